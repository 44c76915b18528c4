"""Tests which rows of the table are drawn, and what their samples say of shapes, kinds and ranges."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from burn_torch import DType
from burn_torch.ops.op import REGISTRY, Op
from burn_torch.ops.samples import Sample, normalise

__all__ = [
    "CONSTANTS", "FLOATS", "INTEGERS", "LARGE", "LARGEST", "NO_SLOPE", "ORDER_OF_TIES_IS_OPEN", "ROOT", "SHAPES",
    "broadcasts", "drawable", "drawn_samples", "expands", "is_stream", "placed", "range_of", "why_not_drawn",
]  # fmt: skip

LARGEST: Final = 1e5
"""Values beyond are not drawn: their rounding would hide what is wrong."""

LARGE: Final = {DType.F64: 1e30, DType.F32: 1e9, DType.BF16: 1e9, DType.F16: 300.0}
"""Among infinities: a product of a few stays in the range, whatever the order."""
ROOT: Final = {DType.F64: 1e77, DType.F32: 4e9, DType.BF16: 4e9, DType.F16: 16.0}
"""The fourth root of the largest number: squares are in the range of the type, products of squares are not."""
SHAPES: Final[tuple[tuple[int, ...], ...]] = (
    (3, 4), (3, 4), (3, 4), (4,), (1, 4), (3, 1), (2, 3, 4), (2, 1, 4), (), (1,), (1, 1),
    (4, 4), (5,), (2, 3), (7,), (2, 5, 3), (1, 3, 1), (0, 4), (3, 0), (0,), (2, 2, 3, 2), (17,), (9, 5),
)  # fmt: skip
CONSTANTS: Final = (0.0, 0.0, 1.0, 1.0, -1.0, 2.0, -0.0, 0.5)
"""Numbers for which rows have laws, and passes rewrites."""
FLOATS: Final = (DType.F64, DType.F32, DType.F16, DType.BF16)
INTEGERS: Final = (DType.I64, DType.I64, DType.I32, DType.I16, DType.I8, DType.U8)


ORDER_OF_TIES_IS_OPEN: Final = ("topk_with_indices", "median_with_indices")
"""Rows whose indices of equal elements are another leaf's choice."""
NO_SLOPE: Final = frozenset({"straight_through"})
"""Rows whose gradient is, on purpose, not what differences give."""


def why_not_drawn(row: Op) -> str | None:
    """Why a row is in no program; None if it can be."""
    if "::" in row.name:
        return "a row of a user, or of the scheduler: it has no samples of its own"
    if row.collective is not None:
        return "needs other processes"
    if row.barrier:
        return "its shape depends on data, so no program of it can be compiled"
    if row.torch is None and row.numpy is None and row.decomposition is None:
        return "computes host numbers, no tensor"
    return None if normalise(row.samples) else "has no samples"


@functools.cache
def drawable() -> tuple[str, ...]:
    """The names of all rows that are drawn."""
    return tuple(name for name, row in sorted(REGISTRY.items()) if why_not_drawn(row) is None)


@functools.cache
def drawn_samples(name: str) -> tuple[tuple[Sample, tuple[Any, ...]], ...]:
    """Each sample of a row with one draw of it, for shapes, kinds and ranges."""
    generator = np.random.default_rng(7)
    return tuple((s, tuple(s.draw(generator))) for s in normalise(REGISTRY[name].samples))


@functools.cache
def range_of(name: str, position: int) -> tuple[str, float, float]:
    """Kind ("f", "i", "b") and range of an operand, over all samples of an element-wise row."""
    arrays = [x[position] for _, x in drawn_samples(name) if position < len(x) and isinstance(x[position], np.ndarray)]
    if not arrays:
        return "f", -2.0, 2.0
    kind = arrays[0].dtype.kind
    values = np.concatenate([x.astype(np.float64).ravel() for x in arrays])
    values = values[np.isfinite(values) & (np.abs(values) < LARGEST)]
    if not values.size:
        return kind, -2.0, 2.0
    return kind, float(values.min()), float(values.max())


def placed(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes with a place, where the row has one."""
    return {**attrs, "place": "cpu"} if "place" in attrs else dict(attrs)


def is_stream(x: Any) -> bool:
    """Returns whether a number is a key of random numbers."""
    return isinstance(x, int) and not isinstance(x, bool) and abs(x) > 1 << 53


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    """Returns whether two shapes broadcast."""
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def expands(a: Sequence[int], b: Sequence[int]) -> bool:
    """Returns whether the first shape expands to the second."""
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(reversed(a), reversed(b), strict=False))
