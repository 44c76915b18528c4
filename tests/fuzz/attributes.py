"""How attributes are drawn for a tensor, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from burn_torch import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Op
from tests.fuzz.building import Builder

__all__ = ["ATTRIBUTES", "attributes_known", "draw_dims", "draw_ranges", "draw_sizes"]


def _dim(d: Builder, x: TensorSpec, _: Any) -> int | None:
    return d.random.randrange(x.ndim) if x.ndim else None


def draw_dims(d: Builder, x: TensorSpec, _: Any) -> tuple[int, ...]:
    if not x.ndim or d.chance(0.2):
        return tuple(range(x.ndim))
    return tuple(sorted(d.random.sample(range(x.ndim), d.random.randint(1, x.ndim))))


def _axes(d: Builder, x: TensorSpec, _: Any) -> tuple[int, ...]:
    count = x.ndim if d.chance(0.6) else d.random.randint(0, x.ndim)
    return tuple(d.random.sample(range(x.ndim), count))


def _shape(d: Builder, x: TensorSpec, _: Any) -> tuple[int, ...]:
    shape, numel = x.shape, x.numel
    ways: list[tuple[int, ...]] = [(numel,), (1, *shape), (*shape, 1), (2, *shape), shape[1:], (1,) * len(shape)]
    ways.append(tuple(3 if n == 1 else n for n in shape))
    ways.append(tuple(1 if d.chance(0.5) else n for n in shape))
    ways += [(n, numel // n) for n in (2, 3, 4, 5) if numel and numel % n == 0]
    ways.append(shape[::-1])
    return d.random.choice(ways)


def draw_ranges(d: Builder, x: TensorSpec, _: Any) -> tuple[tuple[int, int, int], ...]:
    ranges = []
    for size in x.shape:
        start = d.random.randint(0, size) if d.chance(0.5) else 0
        stop = d.random.randint(start, size) if d.chance(0.6) else size
        ranges.append((start, stop, d.random.choice((1, 1, 1, 2, 3))))
    return tuple(ranges)


def draw_sizes(d: Builder, x: Any, dim: int) -> tuple[int, ...]:
    size = x.shape[dim]
    first = d.random.randint(0, size)
    return (first, size - first)


def _padding(d: Builder, x: TensorSpec, _: Any) -> tuple[tuple[int, int], ...]:
    return tuple((d.random.choice((0, 0, 1, 2)), d.random.choice((0, 0, 1, 3))) for _ in x.shape)


def _times(d: Builder, x: TensorSpec, _: Any) -> tuple[int, ...]:
    return tuple(d.random.choice((1, 1, 2, 3)) for _ in x.shape)


def _split_sizes(d: Builder, x: TensorSpec, _: Any) -> tuple[int, ...] | None:
    return draw_sizes(d, x, d.random.randrange(x.ndim)) if x.ndim else None


ATTRIBUTES: Final[dict[str, Callable[[Builder, TensorSpec, Any], Any]]] = {
    "dim": _dim,
    "dims": draw_dims,
    "axes": _axes,
    "shape": _shape,
    "ranges": draw_ranges,
    "sizes": _split_sizes,
    "padding": _padding,
    "times": _times,
    "mode": lambda d, x, sample: sample,
    "dtype": lambda d, x, sample: d.random.choice((DType.F64, DType.F32, d.float, DType.I64)),
    "shifts": lambda d, x, sample: tuple(d.random.randint(-3, 3) for _ in x.shape),
    "diagonal": lambda d, x, sample: d.random.randint(-2, 2),
    "correction": lambda d, x, sample: d.random.randint(0, 1),
    "k": lambda d, x, sample: d.random.randint(1, max(1, min(x.shape, default=1))),
    "descending": lambda d, x, sample: d.chance(0.5),
    "largest": lambda d, x, sample: d.chance(0.5),
}
"""How an attribute of a name is drawn for a tensor; a row with others keeps to its samples."""


def attributes_known(row: Op) -> bool:
    kinds = [kind for _, kind in row.signature.inputs]
    one_tensor = kinds[:1] == ["tensor"] and all(kind == "number" for kind in kinds[1:])
    return one_tensor and bool(row.signature.attrs) and set(row.signature.attrs) <= set(ATTRIBUTES)
