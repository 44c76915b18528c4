"""Lstm and BiLstm: recurrent layers with a memory cell."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from burn_torch.core.errors import ArgumentError
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import XAVIER, RecurrentConfig, fields_of, noting_layer
from burn_torch.nn._recurrence import as_operator, batch_of, cell_step, gate_sizes, joined, parts, require_state, unroll
from burn_torch.nn.activation import Activation, ActivationConfig
from burn_torch.nn.gate_controller import GateController
from burn_torch.nn.lstm_state import LstmState
from burn_torch.tensor import Device, Tensor, functional

__all__ = ["BiLstm", "BiLstmConfig", "Lstm", "LstmCell", "LstmCellConfig", "LstmConfig"]

_Pair = tuple[Tensor, Tensor]  # cell, hidden


class LstmConfig(RecurrentConfig):
    """One LSTM layer.

    initializer: normal, with as much variance forwards as backwards.  batch_first true: input (batch, seq, d_input).
    reverse: from the last step to the first.  clip: bounds the cell state to [-clip, clip] after each step.
    input_forget: the forget gate is 1 - input gate and has no parameters.  The activations are those of the paper.
    """

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    batch_first: bool = True
    reverse: bool = False
    clip: float | None = None
    input_forget: bool = False
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    cell_activation: ActivationConfig = ActivationConfig.Tanh
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> Lstm:
        """The layer with fresh parameters."""
        return dataclasses.replace(_new(Lstm, self, device), batch_first=self.batch_first, reverse=self.reverse)


class LstmCellConfig(RecurrentConfig):
    """One step of an LSTM; see LstmConfig for the fields."""

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    clip: float | None = None
    input_forget: bool = False
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    cell_activation: ActivationConfig = ActivationConfig.Tanh
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> LstmCell:
        """The cell with fresh parameters."""
        return _new(LstmCell, self, device)


class _LstmGates(Module):
    input_gate: GateController
    forget_gate: GateController | None
    output_gate: GateController
    cell_gate: GateController
    d_hidden: int
    clip: float | None
    input_forget: bool
    gate_activation: Activation
    cell_activation: Activation
    hidden_activation: Activation

    def _gates(self) -> list[GateController]:
        forget = [] if self.forget_gate is None else [self.forget_gate]
        return [self.input_gate, *forget, self.output_gate, self.cell_gate]

    def _start(self, state: LstmState | None, shape: tuple[int, int], x: Tensor) -> _Pair:
        if state is None:
            zeros = x.new_full(shape, 0.0)
            return zeros, zeros
        require_state(self, "cell", state.cell, shape)
        return state.unpack()

    def _step(self) -> Callable[[Tensor, _Pair], tuple[Tensor, _Pair]]:
        gates = self._gates()
        weight, bias = joined([gate.hidden_transform for gate in gates])
        sizes = (self.d_hidden,) * len(gates)
        gate = self.gate_activation.forward

        def step(product: Tensor, pair: _Pair) -> tuple[Tensor, _Pair]:
            cell, hidden = pair
            values = parts(functional.linear(hidden, weight, bias) + product, sizes, 1)
            i, o, g = gate(values[0]), gate(values[-2]), self.cell_activation.forward(values[-1])
            f = 1.0 - i if self.forget_gate is None else gate(values[1])
            cell = f * cell + i * g
            if self.clip is not None:
                cell = cell.clamp(-self.clip, self.clip)
            hidden = o * self.hidden_activation.forward(cell)
            return hidden, (cell, hidden)

        return step

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.input_gate, self.d_hidden, content)


G = TypeVar("G", bound=_LstmGates)


def _new(kind: type[G], config: LstmConfig | LstmCellConfig, device: Device) -> G:
    def gate() -> GateController:
        return GateController.new(config.d_input, config.d_hidden, config.bias, config.initializer, device)

    return kind(
        input_gate=gate(),
        forget_gate=None if config.input_forget else gate(),
        output_gate=gate(),
        cell_gate=gate(),
        d_hidden=config.d_hidden,
        clip=config.clip,
        input_forget=config.input_forget,
        gate_activation=config.gate_activation.init(device),
        cell_activation=config.cell_activation.init(device),
        hidden_activation=config.hidden_activation.init(device),
    )


class Lstm(_LstmGates):
    """Long short-term memory over a sequence.

        i, f, o = sigmoid(gate(x_t, h)) of the input, forget and output gate;  g = tanh(cell_gate(x_t, h))
        c = f * c + i * g;  h = o * tanh(c)

    Shapes: input (batch, seq, d_input) -> output (batch, seq, d_hidden), or (seq, batch, ...) without batch_first;
    states (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    Source: Hochreiter, Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735.  PyTorch: torch.nn.LSTM of one
    layer, whose gates lie in one weight in the order input, forget, cell, output, and whose state is (h, c).
    """

    batch_first: bool = True
    reverse: bool = False

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: LstmState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """The hidden state after each step, and the last state; `state` None starts from zeros.

        `lengths` (batch,) are the numbers of steps of padded sequences: behind them the output is 0, the last state is
        that of the last step, and a reversed layer begins there.
        """
        rolled = _as_operator([self], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        start = functools.partial(self._start, state, x=batched_input)
        output, pair = unroll(self, batched_input, self._gates(), self._step(), start, lengths)
        return output, LstmState(*pair)

    @noting_layer
    def forward_iter(
        self,
        input_timestep_iter: Iterable[tuple[int, Tensor]],
        state: LstmState | None,
        batch_size: int,
        seq_length: int,
        device: Device,
    ) -> tuple[Tensor, LstmState]:
        """The same over steps that come one by one, as pairs of a step's index and its input.

        Shapes: inputs (batch, 1, d_input) -> output (batch, seq, d_hidden), whatever `batch_first` says.
        Raises: ArgumentError unless each index below `seq_length` comes once.
        """
        weight, bias = joined([gate.input_transform for gate in self._gates()])
        step = self._step()
        outputs: dict[int, Tensor] = {}
        indices = []
        pair: _Pair | None = None
        for t, input_t in input_timestep_iter:
            pair = self._start(state, (batch_size, self.d_hidden), input_t) if pair is None else pair
            product = functional.linear(input_t.squeeze_dim(1), weight, bias)
            outputs[t], pair = step(product, pair)
            indices.append(t)
        if sorted(indices) != list(range(seq_length)):
            raise ArgumentError(
                "Lstm.forward_iter: the steps do not make up the sequence",
                given=f"indices {indices}",
                expected=f"each of 0 to {seq_length - 1} once, in any order",
                mend="pass enumerate(x.iter_dim(1)), or a list of it reversed",
            )
        if pair is None:
            zeros = LstmState.initial((batch_size, self.d_hidden), device)
            return Tensor.zeros((batch_size, 0, self.d_hidden), device), zeros if state is None else state
        return Tensor.stack([outputs[t] for t in range(seq_length)], 1), LstmState(*pair)


def _as_operator(
    layers: Sequence[Lstm], x: Tensor, state: LstmState | None, lengths: Tensor | None
) -> tuple[Tensor, LstmState] | None:
    activations = ("gate_activation", "cell_activation", "hidden_activation")
    states = (None, None) if state is None else (state.hidden, state.cell)
    rolled = as_operator("LSTM", layers, _gates_of, activations, x, states, lengths)
    return None if rolled is None else (rolled[0], LstmState(rolled[1][1], rolled[1][0]))


def _gates_of(layer: Lstm) -> list[GateController | None]:
    """The gates in the order of ONNX."""
    return [layer.input_gate, layer.output_gate, layer.forget_gate, layer.cell_gate]


class LstmCell(_LstmGates):
    """One step of an Lstm; its parameters are those of the layer.

    Shapes: x (batch, d_input), states (batch, d_hidden) -> states (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    PyTorch: torch.nn.LSTMCell, whose state is (h, c).
    """

    @noting_layer
    def forward(self, x: Tensor, state: LstmState | None = None) -> LstmState:
        """The state after the step; its hidden part is the output.  `state` None starts from zeros."""
        start = functools.partial(self._start, state, x=x)
        return LstmState(*cell_step(self, self.d_hidden, x, self._gates(), self._step(), start))


class BiLstmConfig(RecurrentConfig):
    """An LSTM layer in both directions; see LstmConfig for the fields."""

    d_input: int
    d_hidden: int
    bias: bool
    initializer: Initializer = XAVIER
    batch_first: bool = True
    clip: float | None = None
    input_forget: bool = False
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    cell_activation: ActivationConfig = ActivationConfig.Tanh
    hidden_activation: ActivationConfig = ActivationConfig.Tanh

    def init(self, device: Device) -> BiLstm:
        """The layer with fresh parameters."""
        ahead, back = (LstmConfig(**fields_of(self), reverse=reverse).init(device) for reverse in (False, True))
        return BiLstm(ahead, back, self.d_hidden, self.batch_first)


class BiLstm(Module):
    """One LSTM from the first step to the last and one back; their outputs lie side by side.

    Burn calls the two layers `forward` and `reverse`; here `forward` is the method.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, 2 * d_hidden), or (seq, batch, ...) without batch_first;
    states (2, batch, d_hidden).
    PyTorch: torch.nn.LSTM(bidirectional=True).
    """

    forward_layer: Lstm
    reverse_layer: Lstm
    d_hidden: int
    batch_first: bool

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: LstmState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """The hidden states of both directions after each step, and their last states; `lengths` as in Lstm."""
        rolled = _as_operator([self.forward_layer, self.reverse_layer], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        ahead, back = None, None
        if state is not None:
            shape = (2, batch_of(self, batched_input, self.batch_first), self.d_hidden)
            require_state(self, "cell", state.cell, shape)
            ahead, back = (part.squeeze_dim(0) for part in state.chunk(2, 0))
        output_ahead, ahead = self.forward_layer.forward(batched_input, ahead, lengths)
        output_back, back = self.reverse_layer.forward(batched_input, back, lengths)
        return Tensor.cat([output_ahead, output_back], 2), LstmState.stack([ahead, back], 0)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.forward_layer.input_gate, self.d_hidden, content)
