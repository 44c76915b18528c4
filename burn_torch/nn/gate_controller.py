"""GateController: one gate of a recurrent layer."""

from __future__ import annotations

from burn_torch.module import Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.tensor import Device, Tensor

__all__ = ["GateController"]


class GateController(Module):
    """Two linear maps into a gate, one of the step's input and one of the hidden state.

        gate = input_transform(x) + hidden_transform(h)

    Shapes: x (batch, d_input), h (batch, d_hidden) -> (batch, d_hidden).
    PyTorch: one block of rows of weight_ih and weight_hh, with bias_ih and bias_hh.
    """

    input_transform: Linear
    hidden_transform: Linear

    @staticmethod
    def new(d_input: int, d_output: int, bias: bool, initializer: Initializer, device: Device) -> GateController:
        """A gate with fresh parameters."""
        return GateController(
            LinearConfig(d_input, d_output, bias=bias, initializer=initializer).init(device),
            LinearConfig(d_output, d_output, bias=bias, initializer=initializer).init(device),
        )

    @staticmethod
    def create_with_weights(input_transform: Linear, hidden_transform: Linear) -> GateController:
        """A gate of given linear layers."""
        return GateController(input_transform, hidden_transform)

    def gate_product(self, input: Tensor, hidden: Tensor) -> Tensor:
        """Returns what the gate makes of an input and a hidden state, before its activation."""
        return self.input_transform.forward(input) + self.hidden_transform.forward(hidden)
