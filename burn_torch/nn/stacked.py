"""StackedLstm, StackedGru, StackedRnn: recurrent layers on top of each other, with dropout between them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import XAVIER, RecurrentConfig, Rules, fields_of, noting_layer
from burn_torch.nn._recurrence import batch_of, require_state
from burn_torch.nn.activation import ActivationConfig
from burn_torch.nn.dropout import Dropout
from burn_torch.nn.gru import BiGru, BiGruConfig, Gru, GruConfig
from burn_torch.nn.lstm import BiLstm, BiLstmConfig, Lstm, LstmConfig
from burn_torch.nn.lstm_state import LstmState
from burn_torch.nn.rnn import BiRnn, BiRnnConfig, Rnn, RnnConfig, RnnState
from burn_torch.tensor import Device, Tensor

__all__ = ["StackedGru", "StackedGruConfig", "StackedLstm", "StackedLstmConfig", "StackedRnn", "StackedRnnConfig"]


# -- what all three share ----------------------------------------------------------------------------------
S = TypeVar("S")
L = TypeVar("L", bound=Lstm | Gru | Rnn | BiLstm | BiGru | BiRnn)
B = TypeVar("B", bound=BiLstm | BiGru | BiRnn)
M = TypeVar("M", bound=Module, covariant=True)


class _LayerConfig(Protocol[M]):
    def init(self, device: Device) -> M: ...


class _Layer(Protocol[S]):
    def forward(
        self, batched_input: Tensor, state: S | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, S]: ...


class _StackedConfig(RecurrentConfig):
    d_input: int
    d_hidden: int
    n_layers: int
    bias: bool
    dropout: float = 0.0
    bidirectional: bool = False
    initializer: Initializer = XAVIER
    batch_first: bool = True
    clip: float | None = None

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_input", "d_hidden", "n_layers").fraction("dropout").positive("clip").stop()

    def _layers(
        self, one: Callable[..., _LayerConfig[L]], both: Callable[..., _LayerConfig[B]], device: Device
    ) -> list[L] | list[B]:
        """The layers with fresh parameters, in one direction or in both."""
        return self._build(both, 2, device) if self.bidirectional else self._build(one, 1, device)

    def _build(self, kind: Callable[..., _LayerConfig[L]], ways: int, device: Device) -> list[L]:
        known = inspect.signature(kind).parameters
        shared = {name: value for name, value in fields_of(self).items() if name in known}
        layers = []
        for i in range(self.n_layers):
            width = self.d_hidden * ways if i else self.d_input
            layer = kind(**{**shared, "d_input": width}).init(device)
            layers.append(dataclasses.replace(layer, batch_first=self.batch_first))
        return layers


class _Stacked(Module):
    layers: Sequence[Module]
    dropout: Dropout
    d_hidden: int
    bidirectional: bool
    batch_first: bool

    def _split(self, x: Tensor, name: str, states: Tensor) -> list[Tensor]:
        """The states of each layer, of those of all layers, (layers, batch, d_hidden)."""
        ways = 2 if self.bidirectional else 1
        shape = (ways * len(self.layers), batch_of(self, x, self.batch_first), self.d_hidden)
        require_state(self, name, states, shape)
        parts = states.chunk(len(self.layers), 0)
        return parts if self.bidirectional else [part.squeeze_dim(0) for part in parts]

    def _join(self, states: Sequence[Tensor]) -> Tensor:
        return Tensor.cat(list(states), 0) if self.bidirectional else Tensor.stack(list(states), 0)

    def custom_content(self, content: Content) -> Content:
        """Sizes, and how the layers lie."""
        self.layers[0].custom_content(content)
        content.add("n_layers", len(self.layers)).add("dropout", self.dropout.prob)
        return content.add("bidirectional", self.bidirectional)


def _run(
    layers: Sequence[_Layer[S]], dropout: Dropout, x: Tensor, states: Sequence[S] | None, lengths: Tensor | None
) -> tuple[Tensor, list[S]]:
    """The output of the last layer, and the states of all."""
    after = []
    for i, layer in enumerate(layers):
        x = dropout.forward(x) if i else x
        x, state = layer.forward(x, None if states is None else states[i], lengths)
        after.append(state)
    return x, after


# -- the three ------------------------------------------------------------------------------------------------
class StackedLstmConfig(_StackedConfig):
    """`n_layers` LSTM layers; the other fields are those of LstmConfig.

    dropout 0: between layers nothing is dropped; one layer has no dropout.  bidirectional: each layer runs both ways.
    """

    input_forget: bool = False
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    cell_activation: ActivationConfig = ActivationConfig.Tanh
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> StackedLstm:
        """The layers with fresh parameters."""
        layers = self._layers(LstmConfig, BiLstmConfig, device)
        return StackedLstm(layers, Dropout(self.dropout), self.d_hidden, self.bidirectional, self.batch_first)


class StackedLstm(_Stacked):
    """LSTM layers, each of which reads the outputs of the one before, with dropout between them while training.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, ways * d_hidden), or (seq, batch, ...) without
    batch_first; states (n_layers * ways, batch, d_hidden), both ways of the first layer in front; ways is 2 if
    bidirectional, else 1.
    Dtypes: any float, the same for input, state and parameters.
    PyTorch: torch.nn.LSTM(num_layers=...); lengths are those of pack_padded_sequence, in any order, and may be 0.
    """

    layers: list[Lstm] | list[BiLstm]

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: LstmState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """The outputs of the last layer, and the last states of all layers; `lengths` as in Lstm."""
        states = None
        if state is not None:
            cells = self._split(batched_input, "cell", state.cell)
            states = list(map(LstmState, cells, self._split(batched_input, "hidden", state.hidden)))
        output, after = _run(self.layers, self.dropout, batched_input, states, lengths)
        return output, LstmState(self._join([s.cell for s in after]), self._join([s.hidden for s in after]))


class StackedGruConfig(_StackedConfig):
    """`n_layers` GRU layers; the other fields are those of GruConfig, and dropout as in StackedLstmConfig."""

    reset_after: bool = True
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> StackedGru:
        """The layers with fresh parameters."""
        layers = self._layers(GruConfig, BiGruConfig, device)
        return StackedGru(layers, Dropout(self.dropout), self.d_hidden, self.bidirectional, self.batch_first)


class StackedGru(_Stacked):
    """GRU layers, each of which reads the outputs of the one before, with dropout between them while training.

    Shapes, Dtypes: as StackedLstm.  PyTorch: torch.nn.GRU(num_layers=...).
    """

    layers: list[Gru] | list[BiGru]

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the last layer, and the last states of all layers; `lengths` as in Gru."""
        states = None if state is None else self._split(batched_input, "hidden", state)
        output, after = _run(self.layers, self.dropout, batched_input, states, lengths)
        return output, self._join(after)


class StackedRnnConfig(_StackedConfig):
    """`n_layers` plain recurrent layers; other fields are those of RnnConfig, and dropout as in StackedLstmConfig."""

    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> StackedRnn:
        """The layers with fresh parameters."""
        layers = self._layers(RnnConfig, BiRnnConfig, device)
        return StackedRnn(layers, Dropout(self.dropout), self.d_hidden, self.bidirectional, self.batch_first)


class StackedRnn(_Stacked):
    """Plain recurrent layers, each of which reads the outputs of the one before, with dropout between them.

    Shapes, Dtypes: as StackedLstm.  PyTorch: torch.nn.RNN(num_layers=...).
    """

    layers: list[Rnn] | list[BiRnn]

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: RnnState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RnnState]:
        """The outputs of the last layer, and the last states of all layers; `lengths` as in Rnn."""
        states = None if state is None else list(map(RnnState, self._split(batched_input, "hidden", state.hidden)))
        output, after = _run(self.layers, self.dropout, batched_input, states, lengths)
        return output, RnnState(self._join([s.hidden for s in after]))
