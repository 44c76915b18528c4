"""Layers that put elements around a signal, an image or a volume: a number, a mirror, the border, or the other side."""

from __future__ import annotations

from typing import ClassVar

from burn_torch import ops
from burn_torch.config import Config
from burn_torch.core.errors import ShapeError
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, in_layer, noting_layer, require_ndim
from burn_torch.nn.conv import AXES
from burn_torch.tensor import Tensor
from burn_torch.tensor.apply import apply_one

__all__ = [
    "CircularPad1d",
    "CircularPad1dConfig",
    "CircularPad2d",
    "CircularPad2dConfig",
    "CircularPad3d",
    "CircularPad3dConfig",
    "ConstantPad1d",
    "ConstantPad1dConfig",
    "ConstantPad2d",
    "ConstantPad2dConfig",
    "ConstantPad3d",
    "ConstantPad3dConfig",
    "ReflectionPad1d",
    "ReflectionPad1dConfig",
    "ReflectionPad2d",
    "ReflectionPad2dConfig",
    "ReflectionPad3d",
    "ReflectionPad3dConfig",
    "ReplicationPad1d",
    "ReplicationPad1dConfig",
    "ReplicationPad2d",
    "ReplicationPad2dConfig",
    "ReplicationPad3d",
    "ReplicationPad3dConfig",
    "ZeroPad1d",
    "ZeroPad1dConfig",
    "ZeroPad2d",
    "ZeroPad2dConfig",
    "ZeroPad3d",
    "ZeroPad3dConfig",
]


class _Amounts(Config):
    def __post_init__(self) -> None:
        Rules(self).at_least(0, "padding").stop()


class _Pad(InlineLayer):
    padding: tuple[int, ...]
    MODE: ClassVar = "constant"

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The input with more around its last axes; the amounts are (left, right, top, bottom, front, back)."""
        count = len(self.padding) // 2
        require_ndim(x, self, AXES[count])
        pairs = tuple((self.padding[2 * i], self.padding[2 * i + 1]) for i in reversed(range(count)))
        return self._pad(x, ((0, 0), (0, 0), *pairs))

    def _pad(self, x: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
        return apply_one(ops.pad, (x, 0.0), pairs, self.MODE)


# -- a number -----------------------------------------------------------------------------------------------
class _ConstantPad(_Pad):
    value: float

    def _pad(self, x: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
        return apply_one(ops.pad, (x, self.value), pairs, self.MODE)


class ConstantPad1dConfig(_Amounts, ParameterlessConfig["ConstantPad1d"]):
    """Elements of one value at the left and the right."""

    padding: tuple[int, int]
    value: float


class ConstantPad2dConfig(_Amounts, ParameterlessConfig["ConstantPad2d"]):
    """Elements of one value at the left, right, top and bottom."""

    padding: tuple[int, int, int, int]
    value: float


class ConstantPad3dConfig(_Amounts, ParameterlessConfig["ConstantPad3d"]):
    """Elements of one value at the left, right, top, bottom, front and back."""

    padding: tuple[int, int, int, int, int, int]
    value: float


class ConstantPad1d(_ConstantPad):
    """Shapes: x (batch, channels, n) -> (batch, channels, left + n + right).  PyTorch: torch.nn.ConstantPad1d."""


class ConstantPad2d(_ConstantPad):
    """Shapes: x (batch, channels, h, w) -> (batch, channels, top + h + bottom, left + w + right).

    PyTorch: torch.nn.ConstantPad2d.
    """


class ConstantPad3d(_ConstantPad):
    """As ConstantPad2d, with a depth before the height.  PyTorch: torch.nn.ConstantPad3d."""


class ZeroPad1dConfig(_Amounts, ParameterlessConfig["ZeroPad1d"]):
    """Zeros at the left and the right."""

    padding: tuple[int, int]


class ZeroPad2dConfig(_Amounts, ParameterlessConfig["ZeroPad2d"]):
    """Zeros at the left, right, top and bottom."""

    padding: tuple[int, int, int, int]


class ZeroPad3dConfig(_Amounts, ParameterlessConfig["ZeroPad3d"]):
    """Zeros at the left, right, top, bottom, front and back."""

    padding: tuple[int, int, int, int, int, int]


class ZeroPad1d(_Pad):
    """Shapes as ConstantPad1d.  PyTorch: torch.nn.ZeroPad1d."""


class ZeroPad2d(_Pad):
    """Shapes as ConstantPad2d.  PyTorch: torch.nn.ZeroPad2d."""


class ZeroPad3d(_Pad):
    """Shapes as ConstantPad3d.  PyTorch: torch.nn.ZeroPad3d."""


# -- a mirror -----------------------------------------------------------------------------------------------
class _ReflectionPad(_Pad):
    MODE: ClassVar = "reflect"


class ReflectionPad1dConfig(_Amounts, ParameterlessConfig["ReflectionPad1d"]):
    """Elements mirrored at the first and last one at the left and the right."""

    padding: tuple[int, int]


class ReflectionPad2dConfig(_Amounts, ParameterlessConfig["ReflectionPad2d"]):
    """Elements mirrored at the border at the left, right, top and bottom."""

    padding: tuple[int, int, int, int]


class ReflectionPad3dConfig(_Amounts, ParameterlessConfig["ReflectionPad3d"]):
    """Elements mirrored at the border at the left, right, top, bottom, front and back."""

    padding: tuple[int, int, int, int, int, int]


class ReflectionPad1d(_ReflectionPad):
    """Shapes as ConstantPad1d; the padding is shorter than the axis.  PyTorch: torch.nn.ReflectionPad1d."""


class ReflectionPad2d(_ReflectionPad):
    """Shapes as ConstantPad2d; the padding is shorter than the axis.  PyTorch: torch.nn.ReflectionPad2d."""


class ReflectionPad3d(_ReflectionPad):
    """Shapes as ConstantPad3d; the padding is shorter than the axis.  PyTorch: torch.nn.ReflectionPad3d."""


# -- the border ---------------------------------------------------------------------------------------------
class _ReplicationPad(_Pad):
    MODE: ClassVar = "edge"


class ReplicationPad1dConfig(_Amounts, ParameterlessConfig["ReplicationPad1d"]):
    """Copies of the first and last element at the left and the right."""

    padding: tuple[int, int]


class ReplicationPad2dConfig(_Amounts, ParameterlessConfig["ReplicationPad2d"]):
    """Copies of the border at the left, right, top and bottom."""

    padding: tuple[int, int, int, int]


class ReplicationPad3dConfig(_Amounts, ParameterlessConfig["ReplicationPad3d"]):
    """Copies of the border at the left, right, top, bottom, front and back."""

    padding: tuple[int, int, int, int, int, int]


class ReplicationPad1d(_ReplicationPad):
    """Shapes as ConstantPad1d.  PyTorch: torch.nn.ReplicationPad1d."""


class ReplicationPad2d(_ReplicationPad):
    """Shapes as ConstantPad2d.  PyTorch: torch.nn.ReplicationPad2d."""


class ReplicationPad3d(_ReplicationPad):
    """Shapes as ConstantPad3d.  PyTorch: torch.nn.ReplicationPad3d."""


# -- the other side -----------------------------------------------------------------------------------------
class _CircularPad(_Pad):
    def _pad(self, x: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
        for dim, (before, after) in enumerate(pairs):
            size = x.shape[dim]
            if max(before, after) > size:
                raise in_layer(
                    ShapeError(
                        f"{type(self).__name__}: the padding goes round more than once",
                        given=f"{max(before, after)} elements at axis {dim} of x {x.spec}",
                        expected=f"at most {size} of them",
                        mend="pad less, or repeat the input first",
                    ),
                    self,
                )
            if before or after:
                x = Tensor.cat([x.narrow(dim, size - before, before), x, x.narrow(dim, 0, after)], dim)
        return x


class CircularPad1dConfig(_Amounts, ParameterlessConfig["CircularPad1d"]):
    """Elements of the other end at the left and the right."""

    padding: tuple[int, int]


class CircularPad2dConfig(_Amounts, ParameterlessConfig["CircularPad2d"]):
    """Elements of the other side at the left, right, top and bottom."""

    padding: tuple[int, int, int, int]


class CircularPad3dConfig(_Amounts, ParameterlessConfig["CircularPad3d"]):
    """Elements of the other side at the left, right, top, bottom, front and back."""

    padding: tuple[int, int, int, int, int, int]


class CircularPad1d(_CircularPad):
    """Shapes as ConstantPad1d; the padding is at most the axis.  PyTorch: torch.nn.CircularPad1d."""


class CircularPad2d(_CircularPad):
    """Shapes as ConstantPad2d; the padding is at most the axis.  PyTorch: torch.nn.CircularPad2d."""


class CircularPad3d(_CircularPad):
    """Shapes as ConstantPad3d; the padding is at most the axis.  PyTorch: torch.nn.CircularPad3d."""
