"""Gru and BiGru: gated recurrent units."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

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
    parts,
    require_state,
    unroll,
)
from burn_torch.nn.activation import Activation, ActivationConfig
from burn_torch.nn.gate_controller import GateController
from burn_torch.tensor import Device, Tensor, functional

__all__ = ["BiGru", "BiGruConfig", "Gru", "GruCell", "GruCellConfig", "GruConfig"]


class GruConfig(RecurrentConfig):
    """One GRU layer, input (batch, seq, d_input).

    reset_after true: the reset gate acts on the product of the hidden state, which allows one product for all gates;
    PyTorch and version 1 of the paper do so, version 3 resets the state before the product.
    initializer: normal, with as much variance forwards as backwards.  The activations are those of the paper.
    clip: bounds the hidden state to [-clip, clip] after each step.
    """

    d_input: int
    d_hidden: int
    bias: bool
    reset_after: bool = True
    initializer: Initializer = XAVIER
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    hidden_activation: ActivationConfig = ActivationConfig.Tanh
    clip: float | None = None

    def init(self, device: Device) -> Gru:
        """The layer with fresh parameters."""
        return _new(Gru, self, device)


class GruCellConfig(RecurrentConfig):
    """One step of a GRU; see GruConfig for the fields."""

    d_input: int
    d_hidden: int
    bias: bool
    reset_after: bool = True
    initializer: Initializer = XAVIER
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    hidden_activation: ActivationConfig = ActivationConfig.Tanh
    clip: float | None = None

    def init(self, device: Device) -> GruCell:
        """The cell with fresh parameters."""
        return _new(GruCell, self, device)


class _GruGates(Module):
    update_gate: GateController
    reset_gate: GateController
    new_gate: GateController
    d_hidden: int
    reset_after: bool
    gate_activation: Activation
    hidden_activation: Activation
    clip: float | None

    def _gates(self) -> list[GateController]:
        return [self.update_gate, self.reset_gate, self.new_gate]

    def _step(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        gate, new = self.gate_activation.forward, self.hidden_activation.forward
        two, three = (self.d_hidden,) * 2, (self.d_hidden,) * 3
        before = [self.update_gate.hidden_transform, self.reset_gate.hidden_transform]
        weight, bias = joined([*before, self.new_gate.hidden_transform] if self.reset_after else before)

        def candidate(product: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            from_input = parts(product, three, 1)
            from_hidden = functional.linear(hidden, weight, bias)
            if self.reset_after:
                update, reset, rest = parts(from_hidden, three, 1)
                return gate(from_input[0] + update), new(from_input[2] + gate(from_input[1] + reset) * rest)
            update, reset = parts(from_hidden, two, 1)
            kept = gate(from_input[1] + reset) * hidden
            return gate(from_input[0] + update), new(from_input[2] + self.new_gate.hidden_transform.forward(kept))

        def step(product: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            z, n = candidate(product, hidden)
            hidden = n + z * (hidden - n)
            if self.clip is not None:
                hidden = hidden.clamp(-self.clip, self.clip)
            return hidden, hidden

        return step

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.update_gate, self.d_hidden, content).add("reset_after", self.reset_after)


G = TypeVar("G", bound=_GruGates)


def _new(kind: type[G], config: GruConfig | GruCellConfig, device: Device) -> G:
    def gate() -> GateController:
        return GateController.new(config.d_input, config.d_hidden, config.bias, config.initializer, device)

    return kind(
        update_gate=gate(),
        reset_gate=gate(),
        new_gate=gate(),
        d_hidden=config.d_hidden,
        reset_after=config.reset_after,
        gate_activation=config.gate_activation.init(device),
        hidden_activation=config.hidden_activation.init(device),
        clip=config.clip,
    )


class Gru(_GruGates):
    """A gated recurrent unit over a sequence.

        z, r = sigmoid(gate(x_t, h)) of the update and reset gate
        n = tanh(input_transform(x_t) + r * hidden_transform(h))        of the new gate, with reset_after
        n = tanh(input_transform(x_t) + hidden_transform(r * h))        without it
        h = (1 - z) * n + z * h

    Shapes: input (batch, seq, d_input) -> output (batch, seq, d_hidden); states (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    Source: Cho et al. 2014, https://arxiv.org/abs/1406.1078.  PyTorch: torch.nn.GRU of one layer, whose gates lie in
    one weight in the order reset, update, new.
    """

    batch_first: bool = True
    reverse: bool = False

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The hidden state after each step, and the last one; `state` None starts from zeros.

        Burn gives the first alone.  `lengths` (batch,) are the numbers of steps of padded sequences: behind them the
        output is 0, the last state is that of the last step, and a reversed layer begins there.
        """
        rolled = _as_operator([self], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        start = hidden_start(self, batched_input, state)
        return unroll(self, batched_input, self._gates(), self._step(), start, lengths)


def _as_operator(
    layers: Sequence[Gru], x: Tensor, state: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    activations, after = ("gate_activation", "hidden_activation"), layers[0].reset_after
    rolled = as_operator("GRU", layers, Gru._gates, activations, x, [state], lengths, after=after)
    return None if rolled is None else (rolled[0], rolled[1][0])


class GruCell(_GruGates):
    """One step of a Gru; its parameters are those of the layer.

    Shapes: x (batch, d_input), state (batch, d_hidden) -> (batch, d_hidden).
    Dtypes: any float, the same for input, state and parameters.
    PyTorch: torch.nn.GRUCell.
    """

    @noting_layer
    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """The hidden state after the step; `state` None starts from zeros."""
        return cell_step(self, self.d_hidden, x, self._gates(), self._step(), hidden_start(self, x, state))


class BiGruConfig(RecurrentConfig):
    """A GRU layer in both directions; see GruConfig for the fields.  batch_first true: input (batch, seq, d_input)."""

    d_input: int
    d_hidden: int
    bias: bool
    reset_after: bool = True
    initializer: Initializer = XAVIER
    batch_first: bool = True
    gate_activation: ActivationConfig = ActivationConfig.Sigmoid
    hidden_activation: ActivationConfig = ActivationConfig.Tanh
    clip: float | None = None

    def init(self, device: Device) -> BiGru:
        """The layer with fresh parameters."""
        fields = fields_of(self)
        batch_first = fields.pop("batch_first")
        ahead, back = (GruConfig(**fields).init(device) for _ in range(2))
        return BiGru(
            dataclasses.replace(ahead, batch_first=batch_first),
            dataclasses.replace(back, batch_first=batch_first, reverse=True),
            self.d_hidden,
            batch_first,
        )


class BiGru(Module):
    """One GRU from the first step to the last and one back; their outputs lie side by side.

    Burn calls the two layers `forward` and `reverse`; here `forward` is the method.

    Shapes: input (batch, seq, d_input) -> output (batch, seq, 2 * d_hidden), or (seq, batch, ...) without batch_first;
    states (2, batch, d_hidden).
    PyTorch: torch.nn.GRU(bidirectional=True).
    """

    forward_layer: Gru
    reverse_layer: Gru
    d_hidden: int
    batch_first: bool

    @noting_layer
    def forward(
        self, batched_input: Tensor, state: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The hidden states of both directions after each step, and their last ones; `lengths` as in Gru."""
        rolled = _as_operator([self.forward_layer, self.reverse_layer], batched_input, state, lengths)
        if rolled is not None:
            return rolled
        ahead, back = None, None
        if state is not None:
            batch = batch_of(self, batched_input, self.batch_first)
            require_state(self, "hidden", state, (2, batch, self.d_hidden))
            ahead, back = state.select_dim(0, 0), state.select_dim(0, 1)
        output_ahead, ahead = self.forward_layer.forward(batched_input, ahead, lengths)
        output_back, back = self.reverse_layer.forward(batched_input, back, lengths)
        return Tensor.cat([output_ahead, output_back], 2), Tensor.stack([ahead, back], 0)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return gate_sizes(self.forward_layer.update_gate, self.d_hidden, content)
