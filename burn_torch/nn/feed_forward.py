"""PositionWiseFeedForward: the part of a transformer layer that looks at one position."""

from __future__ import annotations

from burn_torch.config import Config
from burn_torch.module import Content, Module
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules
from burn_torch.nn.activation import Activation, ActivationConfig
from burn_torch.nn.dropout import Dropout, DropoutConfig
from burn_torch.nn.linear import Linear, LinearConfig
from burn_torch.tensor import Device, Tensor

__all__ = ["PositionWiseFeedForward", "PositionWiseFeedForwardConfig"]


class PositionWiseFeedForwardConfig(Config):
    """Two linear layers, d_model to d_ff and back, with an activation between.

    dropout 0.1: as in the paper.  initializer: even in +-1 / sqrt(d_input).  activation Gelu: what most transformers
    since BERT use; the paper has Relu.
    """

    d_model: int
    d_ff: int
    dropout: float = 0.1
    initializer: Initializer = KAIMING
    activation: ActivationConfig = ActivationConfig.Gelu

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_model", "d_ff").fraction("dropout").stop()

    def init(self, device: Device) -> PositionWiseFeedForward:
        """The layer with fresh parameters."""
        return PositionWiseFeedForward(
            LinearConfig(self.d_model, self.d_ff, initializer=self.initializer).init(device),
            LinearConfig(self.d_ff, self.d_model, initializer=self.initializer).init(device),
            DropoutConfig(self.dropout).init(),
            self.activation.init(device),
        )


class PositionWiseFeedForward(Module):
    """linear_outer(dropout(activation(linear_inner(x)))).

    Shapes: x (*batch, d_model) -> (*batch, d_model).  Dtypes: any float, the same for x and parameters.
    Source: Vaswani et al. 2017, section 3.3, https://arxiv.org/abs/1706.03762.
    """

    linear_inner: Linear
    linear_outer: Linear
    dropout: Dropout
    activation: Activation

    def forward(self, input: Tensor) -> Tensor:
        """The network applied to each position."""
        inner = self.activation.forward(self.linear_inner.forward(input))
        return self.linear_outer.forward(self.dropout.forward(inner))

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        d_model, d_ff = self.linear_inner.weight.shape
        return content.add("d_model", d_model).add("d_ff", d_ff).add("prob", self.dropout.prob)
