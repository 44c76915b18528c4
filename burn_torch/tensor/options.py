"""Options and choices of tensor operations, as Burn names them.

Every choice is accepted as its enum or as its name: `IndexingUpdateOp.Add` or "add".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import dtype_of
from burn_torch.tensor.choice import Choice
from burn_torch.tensor.device import Device

__all__ = [
    "AttentionModuleOptions",
    "ConvOptions",
    "ConvTransposeOptions",
    "DeformConvOptions",
    "GridIndexing",
    "GridSampleOptions",
    "GridSamplePaddingMode",
    "GridSparsity",
    "IndexPos",
    "IndexingUpdateOp",
    "InterpolateMode",
    "InterpolateOptions",
    "PadMode",
    "PaddedConvOptions",
    "TensorCreationOptions",
    "UnfoldOptions",
    "creation",
]


@final
class IndexingUpdateOp(Choice):
    """Holds what happens to an element that is named by an index: replaced, or combined with what was there."""

    Assign = "assign"
    Add = "add"
    Mul = "mul"
    Min = "min"
    Max = "max"


@final
class InterpolateMode(Choice):
    """How new pixels are worked out of old ones."""

    Nearest = "nearest"
    NearestExact = "nearest_exact"
    Bilinear = "bilinear"
    Bicubic = "bicubic"
    Lanczos3 = "lanczos3"


@final
class GridSamplePaddingMode(Choice):
    """Holds what lies outside the image: zeros, its border, or its mirror image."""

    Zeros = "zeros"
    Border = "border"
    Reflection = "reflection"


@final
class GridIndexing(Choice):
    """Says whether the first tensor of a grid runs along axis 0 (matrix, "ij") or axis 1 (cartesian, "xy")."""

    Matrix = "ij"
    Cartesian = "xy"


@final
class GridSparsity(Choice):
    """Says whether a grid has every point, or axes of size 1 that broadcast to it."""

    Dense = "dense"
    Sparse = "sparse"


@final
class IndexPos(Choice):
    """Says where the axis of coordinates lies."""

    First = "first"
    Last = "last"


@final
@dataclass(frozen=True)
class PadMode:
    """Holds what stands in padding: `PadMode.Constant(value)`, `PadMode.Reflect`, `PadMode.Edge`."""

    name: str
    value: float = 0.0

    Reflect: ClassVar[PadMode]
    Edge: ClassVar[PadMode]

    @staticmethod
    def Constant(value: float = 0.0) -> PadMode:  # noqa: N802, Burn's variant
        """Padding of one value."""
        return PadMode("constant", value)

    @staticmethod
    def of(mode: object) -> PadMode:
        """The mode itself, the one of this name, or a constant for a number.  Raises: ArgumentError."""
        if isinstance(mode, PadMode):
            return mode
        if isinstance(mode, str):
            name = mode.lower()
            if name in ("constant", "reflect", "edge"):
                return PadMode(name)
        elif isinstance(mode, int | float):
            return PadMode("constant", mode)
        raise told(
            ArgumentError,
            "there is no such way to pad",
            given=repr(mode),
            expected="PadMode.Constant(value), 'constant', 'reflect', 'edge', or a number",
            mend="torch's 'replicate' is 'edge'",
        )


PadMode.Reflect = PadMode("reflect")
PadMode.Edge = PadMode("edge")


@final
@dataclass(frozen=True)
class TensorCreationOptions:
    """Says where a tensor is made, and of what element type (None: what the constructor makes by itself)."""

    device: Device
    dtype: DType | None = None

    def with_dtype(self, dtype: DType) -> TensorCreationOptions:
        """The same device with this element type."""
        return replace(self, dtype=dtype)

    def with_device(self, device: Device) -> TensorCreationOptions:
        """Another device with the same element type."""
        return replace(self, device=device)

    @checked
    def dtype_or(self, dtype: DType) -> DType:
        """The element type, or this one if none was chosen."""
        return dtype if self.dtype is None else self.dtype


def creation(options: object, natural: DType) -> tuple[Device, DType]:
    """Device and element type of what a constructor was given: a device, (device, dtype) or TensorCreationOptions.

    natural: the element type where neither the options nor the settings of the device say another.
    """
    device, dtype = chosen_type(options)
    return device, device.defaults.of(natural) if dtype is None else dtype


def chosen_type(options: object) -> tuple[Device, DType | None]:
    """Device and element type of what a constructor was given; None where it names no type."""
    if options.__class__ is Device:
        return options, None
    if isinstance(options, TensorCreationOptions):
        return options.device, options.dtype
    if isinstance(options, tuple) and len(options) == 2 and isinstance(options[0], Device):
        return options[0], dtype_of(options[1])
    raise told(
        DTypeError,
        "this is not a device",
        given=f"{options!r} ({type(options).__name__})",
        expected="a Device, (device, dtype) or TensorCreationOptions",
        mend="write Device.cpu(), or Device.parse('cuda:0') for a text",
    )


# -- of the functional module ------------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class ConvOptions:
    """Options of a convolution.  A number stands for all spatial axes; `padding` also takes (before, after) pairs."""

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | tuple[tuple[int, int], ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1


PaddedConvOptions: Final = ConvOptions
"""Burn's name for convolution options with padding of its own on each side; ConvOptions takes both."""


@final
@dataclass(frozen=True)
class ConvTransposeOptions:
    """Options of a transposed convolution.  `padding_out` widens one side of the result.  PyTorch: output_padding."""

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    padding_out: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1


@final
@dataclass(frozen=True)
class DeformConvOptions:
    """Options of a deformable convolution: those of a convolution, whose groups are `weight_groups`, and groups of
    channels that share their offsets.
    """

    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | tuple[tuple[int, int], ...] = 0
    dilation: int | tuple[int, ...] = 1
    weight_groups: int = 1
    offset_groups: int = 1


@final
@dataclass(frozen=True)
class UnfoldOptions:
    """Options of unfold4d and fold4d."""

    stride: int | tuple[int, int] = 1
    padding: int | tuple[int, int] = 0
    dilation: int | tuple[int, int] = 1


@final
@dataclass(frozen=True)
class InterpolateOptions:
    """Options of interpolate.  `align_corners` is true, as in Burn; PyTorch's default is false."""

    mode: InterpolateMode | str = InterpolateMode.Nearest
    align_corners: bool = True


@final
@dataclass(frozen=True)
class GridSampleOptions:
    """Options of grid_sample_2d."""

    mode: InterpolateMode | str = InterpolateMode.Bilinear
    padding_mode: GridSamplePaddingMode | str = GridSamplePaddingMode.Zeros
    align_corners: bool = False


@final
@dataclass(frozen=True)
class AttentionModuleOptions:
    """Options of attention: scale (None is 1 / sqrt(d_head)), softcap (None is none), is_causal."""

    scale: float | None = None
    softcap: float | None = None
    is_causal: bool = False
