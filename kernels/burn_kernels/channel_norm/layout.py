"""The layout of tensors with channels, and the checks of a call, for batch norm and group norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.launch import describe, wide_type
from burn_kernels.spec import Draw

ACTIVATIONS = ("none", "relu", "silu")
"""The activations that may follow the norm in the same kernel."""

PLAIN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "silu": torch.nn.functional.silu,
}


def scaled(w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """w for torch's own norms, ones where only b is there: for a bias alone they have no gradient on a GPU."""
    return torch.ones_like(b) if w is None and b is not None else w


# -- layouts -----------------------------------------------------------------------------------------
class Tiling(NamedTuple):
    """A tensor as kept indexes (outer, inner), one result each, by reduced ones (rows, cols), cols side by side."""

    outer: int
    inner: int
    rows: int
    cols: int

    @property
    def kept(self) -> int:
        """Results."""
        return self.outer * self.inner

    @property
    def elements(self) -> int:
        """Elements of a result."""
        return self.rows * self.cols


class Strides(NamedTuple):
    """The distances between elements of a tensor that neighbour each other along an axis of `Tiling`."""

    outer: int
    inner: int
    row: int


class Sizes(NamedTuple):
    """The sizes of a `Tiling`, and the number of its tiles."""

    kept: int
    inner: int
    rows: int
    cols: int
    tiles: int


class Spread(NamedTuple):
    """The distances, in elements, between neighbours along the axes (batch, channels, space)."""

    batch: int
    channel: int
    space: int


def folded(x: torch.Tensor) -> torch.Tensor:
    """x (batch, channels, *space) as (batch, channels, space): a view where the layout allows it, else a copy."""
    return x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)


def channels_last(x: torch.Tensor) -> bool:
    """Tells if the channels of one place are side by side, and places follow each other at one distance."""
    batch, channels, space = x.shape
    strides = Spread(*x.stride())
    if channels > 1 and strides.channel != 1:
        return False
    if space == 1:
        return True
    return channels > 1 and (batch == 1 or strides.batch == space * strides.space)


def ordered(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """x as (batch, channels, space) that kernels read in place, and whether channels are last; maybe a copy."""
    flat = folded(x)
    if channels_last(flat):
        return flat, True
    if flat.shape[2] == 1:
        return flat.contiguous(), True
    return flat if flat.stride(2) == 1 else flat.contiguous(), False


def alike(flat: torch.Tensor, last: bool, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Room for as many elements, without gaps, channels last or not."""
    batch, channels, space = flat.shape
    dtype = dtype or flat.dtype
    if last:
        return torch.empty(batch, space, channels, dtype=dtype, device=flat.device).transpose(1, 2)
    return torch.empty(batch, channels, space, dtype=dtype, device=flat.device)


def in_order_of(x: torch.Tensor, last: bool) -> torch.Tensor:
    """x as (batch, channels, space) in the layout of another tensor; a copy if it has another one."""
    flat = folded(x)
    if (channels_last(flat) if last else flat.stride(2) == 1) or not flat.numel():
        return flat
    return alike(flat, last).copy_(flat)


def unfolded(flat: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """(batch, channels, space) with its axes of space again."""
    return flat.unflatten(2, shape[2:]) if len(shape) > 2 else flat.squeeze(2)


def room_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for a norm of x: channels last where those of x are, otherwise in order."""
    if not x.numel():
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    flat, last = ordered(x)
    return unfolded(alike(flat, last), x.shape)


# -- checks ------------------------------------------------------------------------------------------
def check_norm(
    op: str, x: torch.Tensor, vectors: Mapping[str, torch.Tensor | None], activation: str, *more: str
) -> None:
    """Checks the activation's name, and that the vectors of a norm of x are in float32 or the type of x.

    `more` names vectors that are statistics: float64 is right for them too.
    """
    if activation not in ACTIVATIONS:
        raise KernelArgumentError(
            f"{op}: no such activation",
            given=f"activation {activation!r}",
            expected=f"one of {', '.join(ACTIVATIONS)}",
            mend="apply others by burn_kernels.activation, or in torch",
        )
    wide = wide_type(x.dtype)
    for name, v in vectors.items():
        if v is None or v.dtype in (x.dtype, wide) or (name in more and v.dtype == torch.float64):
            continue
        raise KernelDTypeError(
            f"{op}: the element types do not fit",
            given=describe({"x": x, **vectors}),
            expected=f"{', '.join(vectors)} in the type of x or in {str(wide).removeprefix('torch.')}",
            mend="cast with x.to(dtype)",
        )


def check_count(op: str, x: torch.Tensor) -> None:
    """Raises KernelShapeError where a channel has one element, of which nothing is left after its mean."""
    if x.shape[0] * math.prod(x.shape[2:]) == 1:
        raise KernelShapeError(
            f"{op}: more than one value a channel is needed in training",
            given=describe({"x": x}),
            expected="x (batch, channels, *space) with batch * space above 1",
            mend="use a larger batch, or the form that takes statistics: evaluate",
        )


def statistics_type(dtype: torch.dtype) -> torch.dtype:
    """The type of a mean and an rstd that a norm keeps: of float32 they are float64.

    Half of a float32's last place, times rstd, would be an error of each result: of groups of four numbers that lie
    close together most of the gradient's.
    """
    return torch.float64 if dtype == wide_type(dtype) else torch.float32


# -- reference ---------------------------------------------------------------------------------------
def along_channels(v: torch.Tensor | None, x: torch.Tensor, absent: float) -> torch.Tensor | float:
    """A vector over channels as it meets x (batch, channels, *space), in the wide type."""
    if v is None:
        return absent
    return v.to(wide_type(x.dtype)).reshape(1, -1, *(1 for _ in x.shape[2:]))


def slope(z: torch.Tensor, activation: str) -> torch.Tensor | float:
    """The derivative of the activation at z."""
    if activation == "none":
        return 1.0
    if activation == "relu":
        return (z > 0).to(z.dtype)
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


def before_activation(
    dy: torch.Tensor, n: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, activation: str
) -> tuple[torch.Tensor, torch.Tensor | float, torch.Tensor | None, torch.Tensor | None]:
    """The gradient before the activation, w as it meets n = (x - mean) * rstd, dw and db, in plain torch."""
    axes, scale = (0, *range(2, n.dim())), along_channels(w, n, 1.0)
    g = dy.to(n.dtype) * slope(n * scale + along_channels(b, n, 0.0), activation)
    dw = None if w is None else (g * n).sum(axes).to(w.dtype)
    return g, scale, dw, None if b is None else g.sum(axes).to(b.dtype)


# -- selection ---------------------------------------------------------------------------------------
def words(activation: str, last: bool, **present: object) -> str:
    """The flags of a key: layout, activation, and which of the optional parts are there."""
    flags = ["last" if last else "planes"]
    flags += [activation] if activation != "none" else []
    return " ".join([*flags, *(name for name, value in present.items() if value)])


# -- problems large enough that errors average ---------------------------------------------------------
def large_images(draw: Draw) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Images in both layouts, of sides that are powers of two and others, with weights and biases of their channels."""
    for shape in ((32, 24, 28, 28), (64, 8, 26, 26), (8, 96, 7, 7), (60, 160, 7, 7), (4096, 32, 1, 1)):
        for last in (False, True):
            x = draw.normal(*shape, mean=0.3)
            x = x.contiguous(memory_format=torch.channels_last) if last else x
            yield x, draw.normal(shape[1], mean=1.0), draw.normal(shape[1])
