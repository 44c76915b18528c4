"""Defines what stands between the brackets of `x[...]`, made into rows: slice, flip, reshape, select, gather_nd."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from burn_torch import ops
from burn_torch.core.data import TensorData, is_of_torch
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BoundsError, BurnTorchError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.value import Value
from burn_torch.tensor.apply import apply, binary, unary

if TYPE_CHECKING:
    from burn_torch.tensor._index_methods import IndexMethods

__all__ = ["Ranges", "index", "ranges_of", "s", "sliced"]

Range = tuple[int, int, int]


class _Slices:
    """`s[1:3, ..., -1, ::2]` is the tuple between the brackets: slices that can be named and passed on.

    >>> s[0, 1:3]
    (0, slice(1, 3, None))
    """

    def __getitem__(self, item: object) -> tuple[object, ...]:
        return item if isinstance(item, tuple) else (item,)

    def __repr__(self) -> str:
        return "s"


s = _Slices()


@dataclass
class Ranges:
    """One (start, end, step > 0) for each axis, and the axes that are read backwards."""

    ranges: tuple[Range, ...]
    flips: tuple[int, ...]

    def shape(self) -> Shape:
        """The sizes of what they cut out."""
        return tuple([len(range(*r)) for r in self.ranges])


def ranges_of(x: Value, slices: object) -> Ranges:
    """The ranges of `x.slice(slices)`: an index counts as a range of one element, so every axis stays.

    Raises: DTypeError for what is no slice; ShapeError for more slices than axes; BoundsError for an index.
    """
    items = _without_ellipsis(x, tuple(slices) if isinstance(slices, tuple | list) else (slices,))
    ranges: list[Range] = []
    flips: list[int] = []
    for i, size in enumerate(x.spec.shape):
        part, backwards = _range(items[i], size, x, i) if i < len(items) else ((0, size, 1), False)
        ranges.append(part)
        if backwards:
            flips.append(i)
    return Ranges(tuple(ranges), tuple(flips))


def sliced(x: IndexMethods, cut: Ranges) -> IndexMethods:
    """Returns what the ranges cut out of x."""
    return _run(x, (_cut(x, cut.ranges), cut.flips, cut.shape()))


# -- x[...] ---------------------------------------------------------------------------------
@dataclass
class _Selection:
    """Holds what the brackets ask for: ranges on all axes of x, then a shape, then tensors of indices on axes of
    that.
    """

    ranges: list[Range] = field(default_factory=list)
    flips: list[int] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    tensors: list[tuple[int, IndexMethods]] = field(default_factory=list)

    def keep(self, taken: Range, backwards: bool) -> None:
        """Another axis of x, of which a range is taken."""
        if backwards:
            self.flips.append(len(self.ranges))
        self.ranges.append(taken)
        self.shape.append(len(range(*taken)))

    def steps(self, x: IndexMethods) -> _Steps:
        """Returns what is done before tensors of indices are read."""
        return _cut(x, self.ranges), tuple(self.flips), tuple(self.shape)


def index(x: IndexMethods, item: object) -> IndexMethods:
    """x[item]: integers, slices, None, Ellipsis, masks, tensors, arrays or lists of indices.

    Tensors of indices behave as in PyTorch: they broadcast; side by side their axes stay where they are, else they
    come first.
    """
    parts = item if item.__class__ is tuple else (item,)
    key = _static(parts)
    if key is None:
        return _index(x, parts, item)
    spec = x.spec
    steps = _steps.get((spec.shape, key))
    if steps is None:
        plan = _plan_index(x, parts, item)
        if len(_steps) >= _STEPS:
            _steps.clear()
        steps = _steps[spec.shape, key] = plan.steps(x)
    return _run(x, steps)


_Steps = tuple[tuple[Range, ...] | None, tuple[int, ...], Shape]
"""Ranges to take (None: all), axes to flip, the shape of the result."""

_STEPS: Final = 4096
_steps: Final[dict[Any, _Steps]] = {}
"""Holds what brackets of integers and slices mean, by the shape before them: `x[0]` in a loop works it out once."""


def _run(x: IndexMethods, steps: _Steps) -> IndexMethods:
    cut, flips, shape = steps
    y = x if cut is None else unary(ops.slice, x, cut)
    if flips:
        y = unary(ops.flip, y, flips)
    return y if y.spec.shape == shape else unary(ops.reshape, y, shape)


def _static(parts: tuple[Any, ...]) -> tuple[object, ...] | None:
    """A key of brackets that hold integers, slices of integers, None and Ellipsis only; None for any other."""
    key: list[Any] = []
    for part in parts:
        kind = part.__class__
        if kind is int or part is None or part is Ellipsis:
            key.append(part)
        elif kind is slice:
            bounds = (part.start, part.stop, part.step)
            for bound in bounds:
                if bound is not None and bound.__class__ is not int:
                    return None
            key.append(bounds)
        else:
            return None
    return tuple(key)


def _cut(x: IndexMethods, ranges: Sequence[Range]) -> tuple[Range, ...] | None:
    whole = all(r == (0, size, 1) for r, size in zip(ranges, x.spec.shape, strict=True))
    return None if whole else tuple(ranges)


def _index(x: IndexMethods, parts: tuple[object, ...], item: object) -> IndexMethods:
    """The general way: with tensors, arrays, lists and masks."""
    items = [_as_tensor(x, part) for part in parts]
    if len(items) == 1 and _is_mask(items[0]) and items[0].spec.ndim == x.spec.ndim > 0:
        return x.mask_select(items[0])
    plan = _plan_index(x, items, item)
    y = _run(x, plan.steps(x))
    if not plan.tensors:
        return y
    if len(plan.tensors) == 1:
        at, indices = plan.tensors[0]
        return y.take(at, indices)
    return _gather(y, plan.tensors)


def _plan_index(x: IndexMethods, items: Sequence[object], item: object) -> _Selection:
    plan = _Selection()
    for part in _without_ellipsis(x, items):
        at = len(plan.ranges)
        if part is None:
            plan.shape.append(1)
        elif isinstance(part, Value) and not part.is_number:
            _take(plan, x, part)  # type: ignore[arg-type]  # a Tensor: `_as_tensor` made sure
        elif isinstance(part, slice):
            plan.keep(*_range(part, _size(x, at, item), x, at))
        else:
            taken, _ = _range(part, _size(x, at, item), x, at)
            plan.ranges.append(taken)
    for size in x.spec.shape[len(plan.ranges) :]:
        plan.keep((0, size, 1), False)
    return plan


def _take(plan: _Selection, x: IndexMethods, part: IndexMethods) -> None:
    """Another tensor of indices, or a mask, which is one tensor of indices for each of its axes."""
    at = len(plan.ranges)
    if not _is_mask(part):
        size = _size(x, at, part)
        plan.tensors.append((len(plan.shape), _not_negative(part, size)))
        plan.keep((0, size, 1), False)
        return
    shape = part.spec.shape
    if x.spec.shape[at : at + len(shape)] != shape or not shape:
        raise told(
            ShapeError,
            "the mask does not fit the axes that it names",
            given=f"a mask {shape} at axis {at} of {x.spec}",
            expected=f"a mask of shape {x.spec.shape[at : at + max(1, len(shape))]}",
            mend="compare the tensor itself, as in x[x > 0]",
        )
    rows: IndexMethods = apply(ops.nonzero, (part,))
    for i, size in enumerate(shape):
        column = unary(ops.slice, rows, ((0, rows.spec.shape[0], 1), (i, i + 1, 1)))
        plan.tensors.append((len(plan.shape), unary(ops.reshape, column, (rows.spec.shape[0],))))
        plan.keep((0, size, 1), False)


def _gather(y: IndexMethods, tensors: list[tuple[int, IndexMethods]]) -> IndexMethods:
    places = [at for at, _ in tensors]
    try:
        shape = np.broadcast_shapes(*[indices.spec.shape for _, indices in tensors])
    except ValueError:
        raise told(
            ShapeError,
            "the tensors of indices do not broadcast",
            given=", ".join(str(indices.spec.shape) for _, indices in tensors),
            expected="shapes that are equal, or 1 where they differ",
            mend="index one axis after the other: x[rows][:, cols]",
        ) from None
    columns = [i if i.spec.shape == shape else unary(ops.expand, i, shape) for _, i in tensors]
    rest = [i for i in range(y.spec.ndim) if i not in places]
    moved = unary(ops.permute, y, (*places, *rest)) if places != list(range(len(places))) else y
    gathered = moved.gather_nd(type(y).stack(columns, len(shape)))
    first = places[0]
    if first == 0 or places != list(range(first, first + len(places))):
        return gathered
    new = list(range(len(shape)))
    left = [len(shape) + i for i in range(first)]
    right = [len(shape) + i for i in range(first, len(rest))]
    return unary(ops.permute, gathered, (*left, *new, *right))


def _as_tensor(x: IndexMethods, part: object) -> Any:
    if not isinstance(part, list | np.ndarray):
        return part
    data = TensorData.of(part)
    if data.dtype.is_float and not data.array.size:
        data = data.convert(DType.I64)
    if not data.dtype.is_bool:
        data = data.convert(DType.I64) if data.dtype.is_int else _refuse(part, x)
    spec = TensorSpec.of(data.shape, data.dtype, x.spec.place)
    return type(x)(x.backend, x.backend.from_data(data, spec.place), spec)  # type: ignore[attr-defined]  # a real backend: traces are refused before


def _is_mask(part: object) -> bool:
    return isinstance(part, Value) and not part.is_number and part.spec.dtype is DType.BOOL


def _not_negative(indices: IndexMethods, size: int) -> IndexMethods:
    if not indices.spec.dtype.is_int:
        _refuse(indices, indices)
    if indices.spec.dtype.kind == "uint":
        return indices
    if indices.spec.dtype is not DType.I64:  # the sum below may leave a smaller type
        indices = unary(ops.cast, indices, DType.I64)
    result: IndexMethods = apply(
        ops.mask_where, (indices, binary(ops.lower, indices, 0), binary(ops.add, indices, size))
    )
    return result


def _without_ellipsis(x: Value, items: Sequence[Any]) -> list[object]:
    dots = [i for i, part in enumerate(items) if part is Ellipsis]
    named = sum(part.spec.ndim if _is_mask(part) else 1 for part in items if part is not None and part is not Ellipsis)
    if len(dots) > 1 or named > x.spec.ndim:
        raise told(
            ShapeError,
            "there is more than one '...'" if len(dots) > 1 else "there are more indices than axes",
            given=f"{len(items)} indices for {x.spec}",
            expected=f"at most {x.spec.ndim} indices and one '...'",
            mend="take some away; a new axis is written None",
        )
    if not dots:
        return list(items)
    full = [slice(None)] * (x.spec.ndim - named)
    return [*items[: dots[0]], *full, *items[dots[0] + 1 :]]


def _size(x: Value, at: int, item: object) -> int:
    if at < x.spec.ndim:
        return x.spec.shape[at]
    raise _refusal(item, x)


def _range(part: Any, size: int, x: Value, at: int) -> tuple[Range, bool]:
    """(start, end, step) with step > 0, and whether it is read backwards."""
    try:
        if isinstance(part, slice):
            start, stop, step = part.indices(size)
        elif isinstance(part, range):
            start, stop, step = part.start, part.stop, part.step
            if step > 0:
                start, stop, step = slice(start, stop, step).indices(size)
        else:
            if part.__class__ is not int and _is_no_position(part):
                raise TypeError
            i = operator.index(part)
            if not -size <= i < size:
                raise told(
                    BoundsError,
                    "the index names no element",
                    given=f"index {i} on axis {at} of {x.spec}",
                    expected=f"{-size} to {size - 1}" if size else "an axis with elements",
                    mend="count from 0, or from the end with -1",
                )
            return (i % size, i % size + 1, 1), False
    except BurnTorchError:
        raise
    except (TypeError, ValueError):
        raise _refusal(part, x) from None
    if step > 0:
        return (start, max(start, stop), step), False
    count = len(range(start, stop, step))
    if not count:
        return (0, 0, 1), False
    return (start + (count - 1) * step, start + 1, -step), True


def _is_no_position(part: object) -> bool:
    """Returns whether it is a truth, or an array: Python would count the one as 1, torch an only element as the
    integer.
    """
    return (
        isinstance(part, bool | np.bool_ | str)
        or bool(getattr(part, "shape", ()))
        or str(getattr(part, "dtype", "")) == "torch.bool"
    )


def _refusal(part: object, x: Value) -> BurnTorchError:
    what = str(part.spec) if isinstance(part, Value) else repr(part)
    return told(
        DTypeError,
        "an index has the wrong type",
        given=f"{what} ({type(part).__name__}) for {x.spec}",
        expected="integers, slices, None, '...', bool masks, tensors or lists of integers",
        mend="Tensor.from_torch(index) takes a tensor of torch"
        if is_of_torch(part)
        else "cast a tensor of indices with .int(); a mask with .bool()",
    )


def _refuse(part: object, x: Value) -> Any:
    raise _refusal(part, x)
