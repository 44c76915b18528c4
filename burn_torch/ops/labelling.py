"""The row that numbers the connected parts of binary images.

Each pixel points at a pixel of its part, at first itself.  A round lets the root of every part point at the smallest
root beside it, then lets every pixel point at its root.  A part that neither joins another nor is joined lies beside
one that went to a smaller root, so it joins in the next round: if a share `a` of c parts went in a round, a share of
1 - 2 a of c goes in the next one.  So n pixels need at most log2(n) / log2(1.618) rounds, and log2(n) steps to a root.
The root that remains is the first pixel of the part.
Source: Shiloach and Vishkin 1982.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import torch

from burn_torch.core.dtype import BOOL, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.op import op
from burn_torch.ops.samples import Array, booleans, sample
from burn_torch.ops.value import Primitive

__all__ = ["connected_components"]


def _smallest_beside(xp: ModuleType, roots: Primitive, padded: Primitive, diagonal: bool) -> Primitive:
    """The smallest root of each pixel and its 4 or 8 neighbours; the border of `padded` is larger than any."""
    padded[:, 1:-1, 1:-1] = roots
    above = xp.minimum(xp.minimum(padded[:, :-2], padded[:, 2:]), padded[:, 1:-1])
    beside = above if diagonal else padded[:, 1:-1]
    return xp.minimum(above[:, :, 1:-1], xp.minimum(beside[:, :, :-2], beside[:, :, 2:]))


def _label(xp: ModuleType, x: Primitive, diagonal: bool, waits: bool) -> Primitive:
    """Numbers of parts.  `waits`: whether the host may look if it is done; else it takes the most rounds there are."""
    count, shape = math.prod(x.shape), x.shape
    if not count:
        return xp.zeros_like(x, dtype=xp.int64)
    images = x.reshape(-1, *shape[-2:])
    on_device = {"device": x.device} if xp is torch else {}
    places = xp.arange(count, **on_device)
    padded = xp.full((images.shape[0], shape[-2] + 2, shape[-1] + 2), count, dtype=xp.int64, **on_device)
    inside = images.reshape(-1)
    outside = xp.full_like(places, count)
    pointers = places
    steps = max(count - 1, 1).bit_length() + 1
    for _ in range(steps * 3 // 2):
        roots = xp.where(inside, pointers, outside).reshape(images.shape)
        nearest = _smallest_beside(xp, roots, padded, diagonal).reshape(-1)
        nearest = xp.where(inside, nearest, places)
        if waits and not (nearest < pointers).any():
            break
        if xp is torch:
            joined = pointers.scatter_reduce(0, pointers, nearest, "amin")
        else:
            joined = pointers.copy()
            np.minimum.at(joined, pointers, nearest)
        for _ in range(steps):
            further = joined[joined]
            if waits and bool((further == joined).all()):
                break
            joined = further
        pointers = joined
    first = ((pointers == places) & inside).reshape(images.shape[0], -1)
    numbers = xp.cumsum(first, 1).reshape(-1)[pointers]
    return xp.where(inside, numbers, xp.zeros_like(numbers)).reshape(shape)


def _torch_label(x: torch.Tensor, *, diagonal: bool) -> torch.Tensor:
    return _label(torch, x, diagonal, waits=x.device.type == "cpu")


def _numpy_label(x: Array, *, diagonal: bool) -> Array:
    return _label(np, x, diagonal, waits=True).astype(np.int64)


@op(
    torch=_torch_label,
    numpy=_numpy_label,
    nondifferentiable=True,
    samples=[
        sample(booleans((5, 6)), diagonal=False),
        sample(booleans((2, 4, 7)), diagonal=True),
        sample(booleans((0, 3)), diagonal=False),
        sample(booleans((2, 1, 1)), diagonal=True),
    ],
    source="Shiloach and Vishkin 1982",
)
def connected_components(x: TensorSpec, *, diagonal: bool) -> TensorSpec:
    """The number of the connected part that each true pixel belongs to, from 1 on in the order of first pixels; 0
    where x is false.  Pixels are neighbours along rows and columns, and along diagonals if `diagonal`.

    Shapes: x (*batch, height, width) -> the same, each image numbered by itself.  Dtypes: bool -> i64.
    scipy: scipy.ndimage.label.
    """
    x.require(BOOL)
    if x.ndim < 2:
        raise shape_fault(
            "an image has two axes", expected="x (*batch, height, width)", mend="reshape it to (height, width)"
        )
    return x.with_dtype(DType.I64)
