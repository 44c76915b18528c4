"""Rnn and BiRnn: the plain recurrent layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import XAVIER, RecurrentConfig, fields_of, noting_layer
from burn_torch.nn._recurrence import batch_of, gate_sizes, hidden_start, joined, require_state, unroll
from burn_torch.nn.activation import Activation, ActivationConfig
from burn_torch.nn.gate_controller import GateController
from burn_torch.tensor import Device, Tensor, functional

__all__ = ["BiRnn", "BiRnnConfig", "Rnn", "RnnConfig", "RnnState"]


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
        return Rnn(
            gate=GateController.new(self.d_input, self.d_hidden, self.bias, self.initializer, device),
            d_hidden=self.d_hidden,
            batch_first=self.batch_first,
            reverse=self.reverse,
            clip=self.clip,
            hidden_activation=self.hidden_activation.init(device),
        )


class Rnn(Module):
    """h = tanh(gate(x_t, h)) over a sequence.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, d_hidden), or (seq, batch, ...) without batch_first;
    states (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    Source: Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.  PyTorch: torch.nn.RNN of one layer.
    """

    gate: GateController
    d_hidden: int
    batch_first: bool
    reverse: bool
    clip: float | None
    hidden_activation: Activation

    @noting_layer
    def forward(self, batched_input: Tensor, state: RnnState | None = None) -> tuple[Tensor, RnnState]:
        """The hidden state after each step, and the last one; `state` None starts from zeros."""
        start = hidden_start(self, batched_input, None if state is None else state.hidden)
        output, hidden = unroll(self, batched_input, [self.gate], self._step(), start)
        return output, RnnState(hidden)

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
    def forward(self, batched_input: Tensor, state: RnnState | None = None) -> tuple[Tensor, RnnState]:
        """The hidden states of both directions after each step, and their last ones."""
        ahead, back = None, None
        if state is not None:
            batch = batch_of(self, batched_input, self.batch_first)
            require_state(self, "hidden", state.hidden, (2, batch, self.d_hidden))
            ahead, back = (RnnState(state.hidden.select_dim(0, i)) for i in (0, 1))
        output_ahead, ahead = self.forward_layer.forward(batched_input, ahead)
        output_back, back = self.reverse_layer.forward(batched_input, back)
        return Tensor.cat([output_ahead, output_back], 2), RnnState(Tensor.stack([ahead.hidden, back.hidden], 0))

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.forward_layer.gate, self.d_hidden, content)
