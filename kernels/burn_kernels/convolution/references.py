"""What forward and backward of a convolution share: its geometry, what follows it, and the reference in plain torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from burn_kernels import dropout
from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.random import Number

Pair = int | Sequence[int]
Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]

POOLS = ("none", "max", "mean")
MOST_WINDOW = 3
"""Which elements of a window gradients pass to is kept in one int16."""


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
        """Of all output images."""
        return self.batch * self.out_h * self.out_w

    @property
    def flops(self) -> int:
        """Of each of forward, data gradient and weight gradient: a product and a sum for each weight and pixel."""
        return 2 * self.pixels * self.outs * self.sources * self.taps

    @property
    def elements(self) -> int:
        """Of input and output together."""
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
    """What follows the convolution in its kernel, in this order: dropout, ReLU, a pool of windows side by side."""

    relu: bool
    pool: str
    window: int
    prob: float
    key: Number
    stream: Number

    @property
    def nothing(self) -> bool:
        """Whether nothing does."""
        return not self.relu and self.window == 1 and not self.prob

    @property
    def words(self) -> str:
        """For a key."""
        found = [f"{self.pool}{self.window}"] if self.window > 1 else []
        return " ".join([*(["drop"] if self.prob else []), *(["relu"] if self.relu else []), *found])

    def factor(self, dtype: torch.dtype) -> float:
        """By what a gradient is multiplied that passes back through all of it."""
        scale = dropout.mask_numbers(self.prob, dtype)[1] if self.prob else 1.0
        return scale / self.window**2 if self.pool == "mean" else scale


# -- checks ------------------------------------------------------------------------------------------
def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def geometry(
    op: str,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
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
    check(op, {"x": x, "w": w, "b": b}, {"b": w.shape[:1]}, alike=["x", "w", "b"])
    batch, channels, height, width = x.shape
    outs, _, kernel_h, kernel_w = w.shape
    steps = (*_pair(stride), *_pair(padding), *_pair(dilation))
    made = Geometry(batch, channels, height, width, outs, kernel_h, kernel_w, *steps, groups)
    if min(steps[:2]) < 1 or min(steps[2:4]) < 0 or min(steps[4:]) < 1 or made.out_h < 1 or made.out_w < 1:
        raise KernelArgumentError(
            f"{op}: the kernel does not fit into the image",
            given=f"{describe({'x': x, 'w': w})}, stride {stride}, padding {padding}, dilation {dilation}",
            expected="stride and dilation from 1, padding from 0, an output of at least one pixel",
            mend="pad more, or take a smaller kernel",
        )
    return made


def after(
    op: str, made: Geometry, relu: bool, pool: str, window: int, prob: float, key: Number, stream: Number
) -> After:
    """What follows.  Raises: KernelArgumentError for a pool that there is not, or that does not fit."""
    dropout.check_probability(op, prob)
    window = 1 if pool == "none" else window
    if pool not in POOLS or not 1 <= window <= min(MOST_WINDOW, made.out_h, made.out_w):
        raise KernelArgumentError(
            f"{op}: no such pool",
            given=f"pool {pool!r} of {window}, an output of {made.out_h} x {made.out_w}",
            expected=f"one of {', '.join(POOLS)}, windows from 1 to {MOST_WINDOW} that fit into the output",
            mend="pool by torch.nn.functional, after the convolution",
        )
    return After(relu, pool if window > 1 else "none", window, prob, key, stream)


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
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
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The convolution and what follows in plain torch: y, and which elements of a window gradients pass to."""
    op = "convolution"
    made = geometry(op, x, w, b, stride, padding, dilation, groups)
    rest = after(op, made, relu, pool, window, prob, key, stream)
    wide = wide_type(x.dtype)
    z = functional.conv2d(x.to(wide), w.to(wide), None if b is None else b.to(wide), **made.options)
    # the mask is that of a tensor in the type of x
    mask = dropout.mask(prob, key, stream, like=z.to(x.dtype)).to(wide) if prob else None
    y, passed = followed(z, rest, mask)
    return y.to(x.dtype), passed


def followed(z: torch.Tensor, rest: After, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What follows a convolution's output z, in plain torch; `mask` is the dropout's."""
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


def _windows(v: torch.Tensor, size: int) -> torch.Tensor:
    """(batch, channels, height, width) as (batch, channels, rows, cols, size * size); what is left over falls away."""
    height, width = v.shape[2] // size, v.shape[3] // size
    cut = v[:, :, : height * size, : width * size]
    cut = cut.reshape(*v.shape[:2], height, size, width, size)
    return cut.permute(0, 1, 2, 4, 3, 5).flatten(4)


def before(
    dy: torch.Tensor, y: torch.Tensor | None, passed: torch.Tensor | None, made: Geometry, rest: After
) -> torch.Tensor:
    """The gradient of the convolution's output from that of y, in plain torch."""
    size = rest.window
    if passed is not None:
        bits = (passed[..., None].long() >> torch.arange(size * size, device=dy.device)) & 1
        spread = (dy * rest.factor(dy.dtype))[..., None] * bits
        rows, cols = dy.shape[2], dy.shape[3]
        spread = (
            spread.unflatten(4, (size, size)).permute(0, 1, 2, 4, 3, 5).reshape(*dy.shape[:2], rows * size, cols * size)
        )
        return functional.pad(spread, (0, made.out_w - cols * size, 0, made.out_h - rows * size))
    if rest.relu:
        assert y is not None
        return torch.where(y > 0, dy * rest.factor(dy.dtype), 0.0)
    return dropout.reference(dy, rest.prob, rest.key, rest.stream) if rest.prob else dy


def reference_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    y: torch.Tensor | None = None,
    passed: torch.Tensor | None = None,
    *,
    needs: tuple[bool, bool, bool] = (True, True, True),
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
) -> Gradients:
    """The gradients of x, w and b in plain torch."""
    op = "convolution backward"
    made = geometry(op, x, w, b, stride, padding, dilation, groups)
    dz = before(dy, y, passed, made, after(op, made, relu, pool, window, prob, key, stream))
    wide = wide_type(x.dtype)
    found = library_backward(dz.to(wide), x.to(wide), w.to(wide), made, (*needs[:2], b is not None and needs[2]))
    dx, dw, db = (None if g is None else g.to(x.dtype) for g in found)
    return dx, dw, db


def library_backward(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, made: Geometry, needs: tuple[bool, bool, bool]
) -> Gradients:
    """The gradients that torch computes, those that are needed."""
    if not dz.numel() or not x.numel():
        nothing = (torch.zeros_like(x), torch.zeros_like(w), w.new_zeros(made.outs))
        found: Any = tuple(g if need else None for g, need in zip(nothing, needs, strict=True))
        return found  # type: ignore[no-any-return]  # three of them
    o = made.options
    found = torch.ops.aten.convolution_backward(
        dz, x, w, [made.outs], o["stride"], o["padding"], o["dilation"], False, [0, 0], made.groups, list(needs)
    )
    dx, dw, db = (g if need else None for g, need in zip(found, needs, strict=True))
    return dx, dw, db


# -- the choice without timing -----------------------------------------------------------------------
def in_tf32(dtype: torch.dtype, made: Geometry | None = None) -> bool:
    """Whether the kernels here may multiply float32 as tf32: where torch may in convolutions and in matrix products.

    Torch's default allows it in convolutions alone, and cuDNN seldom does it with few channels: so who has asked for
    nothing (torch.set_float32_matmul_precision) gets exact products.  Of a stem, cuDNN's are in tf32 often: there
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
    return alone and (products or (made is not None and is_stem(made)))


def _asked(*settings: Any) -> bool:
    """The first that says something, from the nearest on."""
    return next((found for one in settings if (found := one.fp32_precision) != "none"), "ieee") == "tf32"


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


def is_plane(made: Geometry) -> bool:
    """Whether each output plane comes of one input plane by small steps of 1, and is no larger than it."""
    steps = made.stride_h == made.stride_w == made.dilation_h == made.dilation_w == 1
    small = made.taps <= MOST_PLANE_TAPS and 2 * made.pad_h < made.kernel_h and 2 * made.pad_w < made.kernel_w
    return made.channels == made.outs == made.groups and steps and small


STEM_CHANNELS, STEM_TERMS, STEM_RESULTS = 4, 128, 32
"""A network's first layer on pictures: 3 channels, 7 x 7, to 64, where cuDNN errs by 2.9e-4, as tf32 does, in all of
seven weight gradients and three of seven forwards (H200)."""


def is_stem(made: Geometry) -> bool:
    """Whether few channels make many, by kernels so wide that cuDNN often multiplies in tf32 where it may."""
    wide = made.sources * made.taps >= STEM_TERMS and made.targets >= STEM_RESULTS
    return made.groups == 1 and made.sources <= STEM_CHANNELS and wide and made.taps <= MOST_PLANE_TAPS


def is_direct(made: Geometry, dtype: torch.dtype) -> bool:
    """Whether the kernels here are taken without timing: where memory rules, or few channels and little work."""
    if is_plane(made):
        return True
    moved = made.elements * dtype.itemsize
    if made.flops <= INTENSITY * moved:
        return True
    most = FEW_EXACT_PAIRS if dtype == torch.float32 and not in_tf32(dtype) else FEW_PAIRS
    few = max(made.sources, made.targets) <= FEW_CHANNELS and made.sources * made.targets <= most
    return few and made.flops <= SMALL.get(dtype, 0.0)


def pooled_shape(made: Geometry, rest: After) -> tuple[int, int, int, int]:
    """The shape of y."""
    return made.batch, made.outs, made.out_h // rest.window, made.out_w // rest.window


def count(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return math.prod(shape)
