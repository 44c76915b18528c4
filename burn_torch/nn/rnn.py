"""Rnn and BiRnn: the plain recurrent layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import XAVIER, RecurrentConfig, fields_of, noting_layer
from burn_torch.nn._recurrence import (
    as_operator,
    batch_of,
    cell_step,
    gate_sizes,
    hidden_start,
    joined,
    require_state,
    unroll,
)
from burn_torch.nn.activation import Activation, ActivationConfig
from burn_torch.nn.gate_controller import GateController
from burn_torch.tensor import Device, Tensor, functional

__all__ = ["BiRnn", "BiRnnConfig", "Rnn", "RnnCell", "RnnCellConfig", "RnnConfig", "RnnState"]


@final
@dataclass(frozen=True, eq=False)
class RnnState:
    """Holds what an Rnn remembers: its hidden state, (batch, d_hidden), or (2, batch, d_hidden) of a bidirectional
    one.
    """

    hidden: Tensor

    @staticmethod
    def new(hidden: Tensor) -> RnnState:
        """Burn's constructor."""
        return RnnState(hidden)


class RnnConfig(RecurrentConfig):
    """One plain recurrent layer.

    initializer: normal, with as much variance forwards as backwards.  batch_first true: input (batch, seq, d_input).
    reverse: from the last step to the first.  clip: bounds the hidden state to [-clip, clip] after each step.
    """

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    batch_first: bool = True
    reverse: bool = False
    clip: float | None = None
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> Rnn:
        """The layer with fresh parameters."""
        return dataclasses.replace(_new(Rnn, self, device), batch_first=self.batch_first, reverse=self.reverse)


class RnnCellConfig(RecurrentConfig):
    """One step of a plain recurrent layer; see RnnConfig for the fields."""

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    clip: float | None = None
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> RnnCell:
        """The cell with fresh parameters."""
        return _new(RnnCell, self, device)


class _RnnGate(Module):
    gate: GateController
    d_hidden: int
    clip: float | None
    hidden_activation: Activation

    def _step(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        weight, bias = joined([self.gate.hidden_transform])

        def step(product: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.hidden_activation.forward(functional.linear(hidden, weight, bias) + product)
            if self.clip is not None:
                hidden = hidden.clamp(-self.clip, self.clip)
            return hidden, hidden

        return step

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.gate, self.d_hidden, content)


G = TypeVar("G", bound=_RnnGate)


def _new(kind: type[G], config: RnnConfig | RnnCellConfig, device: Device) -> G:
    return kind(
        gate=GateController.new(config.d_input, config.d_hidden, config.bias, config.initializer, device),
        d_hidden=config.d_hidden,
        clip=config.clip,
        hidden_activation=config.hidden_activation.init(device),
    )


class Rnn(_RnnGate):
    """h = tanh(gate(x_t, h)) over a sequence.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, d_hidden), or (seq, batch, ...) without batch_first;
    states (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    Source: Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.  PyTorch: torch.nn.RNN of one layer.
    """

    batch_first: bool = True
    reverse: bool = False

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: RnnState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RnnState]:
        """The hidden state after each step, and the last one; `state` None starts from zeros.

        `lengths` (batch,) are the numbers of steps of padded sequences: behind them the output is 0, the last state is
        that of the last step, and a reversed layer begins there.
        """
        rolled = _as_operator([self], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        start = hidden_start(self, batched_input, None if state is None else state.hidden)
        output, hidden = unroll(self, batched_input, [self.gate], self._step(), start, lengths)
        return output, RnnState(hidden)


def _as_operator(
    layers: Sequence[Rnn], x: Tensor, state: RnnState | None, lengths: Tensor | None
) -> tuple[Tensor, RnnState] | None:
    before = [None if state is None else state.hidden]
    rolled = as_operator("RNN", layers, lambda layer: [layer.gate], ["hidden_activation"], x, before, lengths)
    return None if rolled is None else (rolled[0], RnnState(rolled[1][0]))


class RnnCell(_RnnGate):
    """One step of an Rnn; its parameters are those of the layer.

    Shapes: x (batch, d_input), state (batch, d_hidden) -> (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    PyTorch: torch.nn.RNNCell.
    """

    @noting_layer
    def forward(self, x: Tensor, state: RnnState | None = None) -> RnnState:
        """The state after the step; `state` None starts from zeros."""
        start = hidden_start(self, x, None if state is None else state.hidden)
        return RnnState(cell_step(self, self.d_hidden, x, [self.gate], self._step(), start))


class BiRnnConfig(RecurrentConfig):
    """A plain recurrent layer in both directions; see RnnConfig for the fields."""

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    batch_first: bool = True
    clip: float | None = None
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> BiRnn:
        """The layer with fresh parameters."""
        ahead, back = (RnnConfig(**fields_of(self), reverse=reverse).init(device) for reverse in (False, True))
        return BiRnn(ahead, back, self.d_hidden, self.batch_first)


class BiRnn(Module):
    """One Rnn from the first step to the last and one back; their outputs lie side by side.

    Burn calls the two layers `forward` and `reverse`; here `forward` is the method.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, 2 * d_hidden), or (seq, batch, ...) without batch_first;
    states (2, batch, d_hidden).
    PyTorch: torch.nn.RNN(bidirectional=True).
    """

    forward_layer: Rnn
    reverse_layer: Rnn
    d_hidden: int
    batch_first: bool

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: RnnState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, RnnState]:
        """The hidden states of both directions after each step, and their last ones; `lengths` as in Rnn."""
        rolled = _as_operator([self.forward_layer, self.reverse_layer], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        ahead, back = None, None
        if state is not None:
            batch = batch_of(self, batched_input, self.batch_first)
            require_state(self, "hidden", state.hidden, (2, batch, self.d_hidden))
            ahead, back = (RnnState(state.hidden.select_dim(0, i)) for i in (0, 1))
        output_ahead, ahead = self.forward_layer.forward(batched_input, ahead, lengths)
        output_back, back = self.reverse_layer.forward(batched_input, back, lengths)
        return Tensor.cat([output_ahead, output_back], 2), RnnState(Tensor.stack([ahead.hidden, back.hidden], 0))

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.forward_layer.gate, self.d_hidden, content)
