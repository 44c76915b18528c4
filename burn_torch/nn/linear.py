"""Linear: the affine map of the last axis."""

from __future__ import annotations

from enum import Enum

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.module import Content, Module, Param, ParamId
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import KAIMING, Rules, noting_layer
from burn_torch.tensor import Device, Tensor
from burn_torch.tensor.apply import unary
from burn_torch.tensor.functional import linear

__all__ = ["Linear", "LinearConfig", "LinearLayout"]


class LinearLayout(Enum):
    """How the weight lies in memory and in records; in the model it is (d_input, d_output) either way."""

    Row = "Row"
    """(d_input, d_output), as Burn keeps it."""
    Col = "Col"
    """(d_output, d_input), as PyTorch keeps it: records of both frameworks have this shape."""


class LinearConfig(Config):
    """A linear layer.

    bias true: the map may shift.  initializer: even in +-1 / sqrt(d_input), which keeps the variance of the output
    near that of the input.  layout Row: the faster product for small batches needs no transpose.
    """

    d_input: int
    d_output: int
    bias: bool = True
    initializer: Initializer = KAIMING
    layout: LinearLayout = LinearLayout.Row

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "d_input", "d_output").stop()

    def init(self, device: Device) -> Linear:
        """The layer with fresh parameters."""
        init, fans = self.initializer.init_with, (self.d_input, self.d_output)
        if self.layout is LinearLayout.Row:
            weight = init(fans, *fans, device)
        else:
            weight = _transpose(init((self.d_output, self.d_input), *fans, device))
        return Linear(weight, init((self.d_output,), *fans, device) if self.bias else None)


class Linear(Module):
    """x @ weight + bias over the last axis.

    Shapes: x (*batch, d_input), weight (d_input, d_output), bias (d_output,) -> (*batch, d_output).
    Dtypes: any float, the same for all.
    PyTorch: torch.nn.Linear, whose weight is (d_output, d_input).
    """

    weight: Param
    bias: Param | None

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The mapped input."""
        bias = None if self.bias is None else self.bias.val()
        adapter = self.weight.adapter()
        if adapter is None:
            return linear(x, self.weight.val(), bias)
        return adapter.add_product(linear(x, self.weight.base(), bias), x)

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        d_input, d_output = self.weight.shape
        return content.add("d_input", d_input).add("d_output", d_output).add("bias", self.bias is not None)


def _transpose(stored: Param) -> Param:
    """A parameter of two axes that lies the other way round in memory and in records."""

    def swap(tensor: Tensor) -> Tensor:
        return unary(ops.permute, tensor, (1, 0))

    d_output, d_input = stored.shape
    lazy = Param.uninitialized(
        ParamId.new(),
        lambda device, grad: swap(stored.on_device(device).val()),
        stored.device,
        True,
        (d_input, d_output),
        stored.spec().dtype,
    )
    return lazy.with_mapper(load=swap, save=swap)
