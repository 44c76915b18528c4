"""A convolution without its kernels: its geometry, its options, the reference in plain torch, the rules of choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from burn_kernels import dropout
from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.random import Number

Pair = int | Sequence[int]
Added = Tensor | None
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

POOLS = ("none", "max", "mean")
MOST_WINDOW = 3
"""The bits of one int16 say to which elements of a window gradients pass."""


# -- options -----------------------------------------------------------------------------------------
class ConvolutionOptions(TypedDict, total=False):
    """The arguments that every launcher and reference takes by name, in the order of the operator.

    Left out, they are stride=1, padding=0, dilation=1, groups=1, relu=False, pool="none", window=2, prob=0.0, key=0 and
    stream=0.
    """

    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    relu: bool
    pool: str
    """The pool that follows: one of POOLS."""
    window: int
    """The rows and columns of its windows, which lie side by side."""
    prob: float
    """The share of elements that dropout sets to zero, before the ReLU."""
    key: Number
    """The key of the dropout, as of `burn_kernels.dropout`; so `stream`."""
    stream: Number


class Geometry(NamedTuple):
    """The sizes of a convolution; `height` and `width` are those of the input."""

    batch: int
    channels: int
    height: int
    width: int
    outs: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    dilation_h: int
    dilation_w: int
    groups: int

    @property
    def out_h(self) -> int:
        """Rows of the output, before a pool."""
        return (self.height + 2 * self.pad_h - self.dilation_h * (self.kernel_h - 1) - 1) // self.stride_h + 1

    @property
    def out_w(self) -> int:
        """Columns of the output, before a pool."""
        return (self.width + 2 * self.pad_w - self.dilation_w * (self.kernel_w - 1) - 1) // self.stride_w + 1

    @property
    def taps(self) -> int:
        """Weights of one input channel for one output channel."""
        return self.kernel_h * self.kernel_w

    @property
    def sources(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def targets(self) -> int:
        """Output channels of a group."""
        return self.outs // self.groups

    @property
    def pixels(self) -> int:
        """Pixels of all output images."""
        return self.batch * self.out_h * self.out_w

    @property
    def flops(self) -> int:
        """Operations of forward, data gradient or weight gradient: a product and a sum for each weight and pixel."""
        return 2 * self.pixels * self.outs * self.sources * self.taps

    @property
    def elements(self) -> int:
        """Elements of input and output together."""
        return self.batch * self.channels * self.height * self.width + self.pixels * self.outs

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of torch's convolution."""
        return {
            "stride": (self.stride_h, self.stride_w),
            "padding": (self.pad_h, self.pad_w),
            "dilation": (self.dilation_h, self.dilation_w),
            "groups": self.groups,
        }


class After(NamedTuple):
    """The operations that follow the convolution in its kernel, in this order: dropout, ReLU, a pool."""

    relu: bool = False
    pool: str = "none"
    window: int = 1
    prob: float = 0.0
    key: Number = 0
    stream: Number = 0

    @property
    def nothing(self) -> bool:
        """Tells if nothing does."""
        return not self.relu and self.window == 1 and not self.prob

    @property
    def words(self) -> str:
        """The words of a key that stand for them."""
        words = (("drop", self.prob), ("relu", self.relu), (f"{self.pool}{self.window}", self.window > 1))
        return " ".join(word for word, follows in words if follows)

    def factor(self, dtype: torch.dtype) -> float:
        """The factor of a gradient that passes back through all of them."""
        scale = dropout.mask_numbers(self.prob, dtype)[1] if self.prob else 1.0
        return scale / self.window**2 if self.pool == "mean" else scale


NOTHING = After()


# -- checks ------------------------------------------------------------------------------------------
def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def geometry(
    op: str, x: Tensor, w: Tensor, b: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Geometry:
    """The sizes of a call.  Raises: KernelShapeError, KernelArgumentError, KernelDTypeError, KernelDeviceError."""
    fits = x.dim() == w.dim() == 4 and groups > 0
    fits = fits and x.shape[1] == groups * w.shape[1] and w.shape[0] % groups == 0 and w.shape[0] > 0 < w[0].numel()
    if not fits:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=f"{describe({'x': x, 'w': w})}, groups {groups}",
            expected="x (batch, groups * sources, height, width), w (groups * targets, sources, kernel, kernel)",
            mend="lay the weights out as torch.nn.Conv2d does; other numbers of axes are for torch",
        )
    # the launcher compares them too, but references and fakes are called without it; `check` costs more calls
    alike = x.dtype.is_floating_point and (b is None or b.shape == w.shape[:1])
    for other in (w,) if b is None else (w, b):
        alike = alike and other.dtype is x.dtype and other.device == x.device
    if not alike:
        check(op, {"x": x, "w": w, "b": b}, {"b": w.shape[:1]}, alike=["x", "w", "b"])
    batch, channels, height, width = x.shape
    outs, _, kernel_h, kernel_w = w.shape
    steps = (*_pair(stride), *_pair(padding), *_pair(dilation))
    sizes = Geometry(batch, channels, height, width, outs, kernel_h, kernel_w, *steps, groups)
    if min(steps[:2]) < 1 or min(steps[2:4]) < 0 or min(steps[4:]) < 1 or sizes.out_h < 1 or sizes.out_w < 1:
        raise KernelArgumentError(
            f"{op}: the kernel does not fit into the image",
            given=f"{describe({'x': x, 'w': w})}, stride {stride}, padding {padding}, dilation {dilation}",
            expected="stride and dilation from 1, padding from 0, an output of at least one pixel",
            mend="pad more, or take a smaller kernel",
        )
    return sizes


def read_options(
    op: str,
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    relu: bool = False,
    pool: str = "none",
    window: int = 2,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
) -> tuple[Geometry, After]:
    """The sizes of a call and what follows it.  Raises: as `geometry`, and for a pool that does not fit."""
    sizes = geometry(op, x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)
    dropout.check_probability(op, prob)
    window = 1 if pool == "none" else window
    if pool not in POOLS or not 1 <= window <= min(MOST_WINDOW, sizes.out_h, sizes.out_w):
        raise KernelArgumentError(
            f"{op}: no such pool",
            given=f"pool {pool!r} of {window}, an output of {sizes.out_h} x {sizes.out_w}",
            expected=f"one of {', '.join(POOLS)}, windows from 1 to {MOST_WINDOW} that fit into the output",
            mend="pool by torch.nn.functional, after the convolution",
        )
    return sizes, After(relu, pool if window > 1 else "none", window, prob, key, stream)


def read_backward(
    dy: Tensor, x: Tensor, w: Tensor, b: Added, y: Added, passed: Added, **options: Unpack[ConvolutionOptions]
) -> tuple[Geometry, After]:
    """As `read_options`, for a backward.  Raises: KernelShapeError for a gradient that no output has, too."""
    op = "convolution backward"
    sizes, rest = read_options(op, x, w, b, **options)
    shape = pooled_shape(sizes, rest)
    if any(t is not None and t.shape != shape for t in (dy, y, passed)):
        outputs = {"dy": dy, "y": y, "passed": passed}
        check(op, {**outputs, "x": x}, dict.fromkeys(outputs, shape), alike=())
    return sizes, rest


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: Tensor, w: Tensor, b: Tensor | None = None, **options: Unpack[ConvolutionOptions]
) -> tuple[Tensor, Tensor | None]:
    """The convolution and what follows in plain torch: y, and to which elements of a window gradients pass."""
    sizes, rest = read_options("convolution", x, w, b, **options)
    wide = wide_type(x.dtype)
    z = functional.conv2d(x.to(wide), w.to(wide), None if b is None else b.to(wide), **sizes.options)
    # the mask is that of a tensor in the type of x
    mask = dropout.mask(rest.prob, rest.key, rest.stream, like=z.to(x.dtype)).to(wide) if rest.prob else None
    y, passed = follow(z, rest, mask)
    return y.to(x.dtype).contiguous(), passed


def follow(z: Tensor, rest: After, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Computes what follows a convolution's output z, in plain torch; `mask` is the dropout's."""
    v = z if mask is None else z * mask
    v = v.relu() if rest.relu else v
    if rest.window == 1:
        return v, None
    alive = v > 0 if rest.relu else torch.ones_like(v, dtype=torch.bool) if mask is None else mask > 0
    windows, alive = _windows(v, rest.window), _windows(alive, rest.window)
    bits = torch.arange(rest.window**2, device=z.device)
    if rest.pool == "mean":
        return windows.mean(-1), (alive.long() << bits).sum(-1).to(torch.int16)
    y, place = windows.max(-1)
    return y, (alive.gather(-1, place[..., None])[..., 0].long() << place).to(torch.int16)


def _windows(v: Tensor, size: int) -> Tensor:
    """(batch, channels, height, width) as (batch, channels, rows, cols, size * size); what is left over falls away."""
    height, width = v.shape[2] // size, v.shape[3] // size
    cut = v[:, :, : height * size, : width * size]
    cut = cut.reshape(*v.shape[:2], height, size, width, size)
    return cut.permute(0, 1, 2, 4, 3, 5).flatten(4)


def before(dy: Tensor, y: Tensor | None, passed: Tensor | None, geometry: Geometry, rest: After) -> Tensor:
    """The gradient of the convolution's output from that of y, in plain torch."""
    size = rest.window
    if passed is not None:
        bits = (passed[..., None].long() >> torch.arange(size * size, device=dy.device)) & 1
        spread = (dy * rest.factor(dy.dtype))[..., None] * bits
        rows, cols = dy.shape[2], dy.shape[3]
        spread = (
            spread.unflatten(4, (size, size)).permute(0, 1, 2, 4, 3, 5).reshape(*dy.shape[:2], rows * size, cols * size)
        )
        return functional.pad(spread, (0, geometry.out_w - cols * size, 0, geometry.out_h - rows * size))
    if rest.relu:
        assert y is not None
        return torch.where(y > 0, dy * rest.factor(dy.dtype), 0.0)
    return dropout.reference(dy, rest.prob, rest.key, rest.stream) if rest.prob else dy


def reference_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    y: Tensor | None = None,
    passed: Tensor | None = None,
    *,
    needs: tuple[bool, bool, bool] = (True, True, True),
    **options: Unpack[ConvolutionOptions],
) -> Gradients:
    """The gradients of x, w and b in plain torch."""
    sizes, rest = read_backward(dy, x, w, b, y, passed, **options)
    wide = wide_type(x.dtype)
    dz = before(dy, y, passed, sizes, rest).to(wide)
    grads = library_backward(dz, x.to(wide), w.to(wide), sizes, (*needs[:2], b is not None and needs[2]))
    dx, dw, db = (None if g is None else g.to(x.dtype) for g in grads)
    return dx, dw, db


def library_backward(dz: Tensor, x: Tensor, w: Tensor, geometry: Geometry, needs: tuple[bool, bool, bool]) -> Gradients:
    """The gradients that torch computes, those that are needed."""
    if dz.numel() and x.numel():
        o = geometry.options
        grads: Any = torch.ops.aten.convolution_backward(
            dz, x, w, [geometry.outs], o["stride"], o["padding"], o["dilation"], False, [0, 0], geometry.groups,
            list(needs),
        )  # fmt: skip
    else:
        grads = (torch.zeros_like(x), torch.zeros_like(w), w.new_zeros(geometry.outs))
    dx, dw, db = (g if need else None for g, need in zip(grads, needs, strict=True))
    return dx, dw, db


# -- the choice without timing -----------------------------------------------------------------------
def in_tf32(dtype: torch.dtype, geometry: Geometry | None = None) -> bool:
    """Tells if the kernels here may multiply float32 as tf32: where torch may in convolutions and in matrix products.

    Torch's default allows it in convolutions alone, and cuDNN seldom does it with few channels: so who has asked for
    nothing (torch.set_float32_matmul_precision) gets exact products.  In a stem, cuDNN's are in tf32 often: there
    tiles are candidates, for who measures.
    """
    if dtype != torch.float32 or torch.version.hip:
        return False
    general: Any = torch.backends
    conv = getattr(general.cudnn, "conv", None)  # from torch 2.9
    if conv is None:
        alone, products = bool(general.cudnn.allow_tf32), bool(general.cuda.matmul.allow_tf32)
    else:
        alone, products = _asked(conv, general.cudnn, general), _asked(general.cuda.matmul, general)
    return alone and (products or (geometry is not None and is_stem(geometry)))


def _asked(*settings: Any) -> bool:
    """Tells if the nearest setting that says something asks for tf32."""
    return next((asked for one in settings if (asked := one.fp32_precision) != "none"), "ieee") == "tf32"


INTENSITY = 8.0
"""Operations a byte up to which direct kernels keep up with memory: two thirds of an H200's 51e12 over 4.2e12."""
SMALL = {torch.float32: 1.0e9, torch.float16: 2.5e8, torch.bfloat16: 2.5e8}
"""Operations up to which a convolution of few channels is small: cuDNN took 22 us for the 9e7 operations of the Burn
book's two layers at 64 images (H200), 4e12 a second, a twelfth of what the cores do; ten times as many is where tiles
of its size begin to fill the machine.  Half types have tensor cores: a quarter."""
MOST_PLANE_TAPS = 49
"""Weights of a depthwise kernel: as many sums of dw are held by a lane."""
FEW_CHANNELS, FEW_PAIRS, FEW_EXACT_PAIRS = 32, 256, 128
"""Channels read or made, and pairs of them.  3 to 32 and 16 to 16 were timed, no more; exact products of 16 to 16 take
a third longer than cuDNN's in tf32, those of 8 to 16 less."""


def is_plane(geometry: Geometry) -> bool:
    """Tells if each output plane comes of one input plane by small steps of 1, and is no larger than it."""
    steps = geometry.stride_h == geometry.stride_w == geometry.dilation_h == geometry.dilation_w == 1
    small = (
        geometry.taps <= MOST_PLANE_TAPS
        and 2 * geometry.pad_h < geometry.kernel_h
        and 2 * geometry.pad_w < geometry.kernel_w
    )
    return geometry.channels == geometry.outs == geometry.groups and steps and small


STEM_CHANNELS, STEM_TERMS, STEM_RESULTS = 4, 128, 32
"""A network's first layer on pictures: 3 channels, 7 x 7, to 64, where cuDNN errs by 2.9e-4, as tf32 does, in all of
seven weight gradients and three of seven forwards (H200)."""


def is_stem(geometry: Geometry) -> bool:
    """Tells if few channels make many, by kernels so wide that cuDNN often multiplies in tf32 where it may."""
    wide = geometry.sources * geometry.taps >= STEM_TERMS and geometry.targets >= STEM_RESULTS
    return geometry.groups == 1 and geometry.sources <= STEM_CHANNELS and wide and geometry.taps <= MOST_PLANE_TAPS


def is_direct(geometry: Geometry, dtype: torch.dtype) -> bool:
    """Tells if the kernels here are taken without timing: where memory rules, or few channels and little work."""
    if is_plane(geometry):
        return True
    moved = geometry.elements * dtype.itemsize
    if geometry.flops <= INTENSITY * moved:
        return True
    most = FEW_EXACT_PAIRS if dtype == torch.float32 and not in_tf32(dtype) else FEW_PAIRS
    few = max(geometry.sources, geometry.targets) <= FEW_CHANNELS and geometry.sources * geometry.targets <= most
    return few and geometry.flops <= SMALL.get(dtype, 0.0)


def pooled_shape(geometry: Geometry, rest: After) -> tuple[int, int, int, int]:
    """The shape of y."""
    return geometry.batch, geometry.outs, geometry.out_h // rest.window, geometry.out_w // rest.window


def count(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
