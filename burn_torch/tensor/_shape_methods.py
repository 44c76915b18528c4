"""Methods that rearrange elements: reshape, permute, cat, split, pad, ..."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

from burn_torch import ops
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.ops.value import Value
from burn_torch.tensor._arguments import axes, axis, fitting, integer, new_axis, sizes, whole_list
from burn_torch.tensor._protocols import Protocols
from burn_torch.tensor.apply import apply, apply_one, unary
from burn_torch.tensor.options import PadMode

__all__ = ["ShapeMethods"]


class ShapeMethods(Protocols):
    """Shape and layout."""

    __slots__ = ()

    # -- what is known of the shape ---------------------------------------------------
    def rank(self) -> int:
        """The number of axes.  PyTorch: dim()."""
        return self.spec.ndim

    def dims(self) -> Shape:
        """The sizes of the axes, as `shape` gives them too."""
        return self.spec.shape

    def num_elements(self) -> int:
        """How many elements it has.  PyTorch: numel()."""
        return self.spec.numel

    # -- another shape -------------------------------------------------------------------
    def reshape(self, *shape: Any) -> Self:
        """The same elements in row-major order under another shape: `x.reshape(2, -1)` or `x.reshape([2, -1])`.

        One size may be -1: it is worked out.  A size 0 keeps the axis of x at that place, as in Burn; for a tensor
        without elements it means 0.
        """
        wanted: Shape = shape
        for size in shape or (None,):
            if size.__class__ is not int or size <= 0:
                wanted = shape[0] if len(shape) == 1 and shape[0].__class__ is tuple else _flat(shape)
                if not wanted or min(wanted) <= 0:
                    wanted = _fill_shape(self, wanted)
                break
        return unary(ops.reshape, self, wanted)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim`, both included, made one."""
        if not self.spec.ndim:
            return unary(ops.reshape, self, (1,))
        first, last = axis(self, start_dim), axis(self, end_dim)
        if first > last:
            raise told(
                ShapeError,
                "start_dim comes after end_dim",
                given=f"start_dim {start_dim}, end_dim {end_dim} of {self.spec}",
                expected="start_dim <= end_dim",
                mend="swap the two",
            )
        shape = self.spec.shape
        return unary(ops.reshape, self, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))

    def squeeze(self, dim: None = None) -> Self:
        """Without the axes of size 1."""
        if dim is not None:
            raise told(
                ArgumentError,
                "squeeze takes every axis of size 1 away",
                given=f"dim {dim} for {self.spec}",
                expected="no arguments",
                mend=f"x.squeeze_dim({dim}) takes one axis away, x.squeeze_dims([...]) several",
            )
        return unary(ops.reshape, self, tuple([size for size in self.spec.shape if size != 1]))

    def squeeze_dim(self, dim: int) -> Self:
        """Without this axis, whose size must be 1.  PyTorch: squeeze(dim), which leaves other sizes as they are."""
        return self.squeeze_dims((dim,))

    def squeeze_dims(self, dims: Sequence[int]) -> Self:
        """Without these axes, whose sizes must be 1; all axes of size 1 if `dims` is empty."""
        if not whole_list(dims, "dims"):
            return self.squeeze()
        gone = axes(self, dims)
        shape = self.spec.shape
        if any(shape[i] != 1 for i in gone):
            raise told(
                ShapeError,
                "an axis that is to go has a size other than 1",
                given=f"dims {tuple(dims)} of {self.spec}",
                expected="axes of size 1",
                mend="flatten or reshape joins axes; select_dim(dim, index) takes one element of an axis",
            )
        return unary(ops.reshape, self, tuple([size for i, size in enumerate(shape) if i not in gone]))

    def unsqueeze(self, rank: int | None = None) -> Self:
        """With axes of size 1 in front, up to `rank` axes; without `rank` one axis more."""
        missing = 1 if rank is None else sizes(integer(rank, "rank"))[0] - self.spec.ndim
        if missing < 1 or missing > 60:
            raise told(
                ShapeError,
                "there are as many axes, or more",
                given=f"rank {rank} for {self.spec}",
                expected=f"rank of {self.spec.ndim + 1} or more: the number of axes of the result",
                mend="x.unsqueeze_dim(dim) inserts an axis at a place, as PyTorch's unsqueeze(dim) does; squeeze or"
                " flatten takes axes away",
            )
        return unary(ops.reshape, self, (1,) * missing + self.spec.shape)

    def unsqueeze_dim(self, dim: int) -> Self:
        """With a new axis of size 1 at this place of the result.  PyTorch: unsqueeze(dim)."""
        at = new_axis(self, dim)
        shape = self.spec.shape
        return unary(ops.reshape, self, (*shape[:at], 1, *shape[at:]))

    def unsqueeze_dims(self, dims: Sequence[int]) -> Self:
        """With new axes of size 1 at these places of the result; a place named twice gets two.

        Shapes: x (3, 4, 5), dims [0, -1, -1] -> (1, 3, 4, 5, 1, 1).
        """
        dims = whole_list(dims, "dims")
        ndim = self.spec.ndim + len(dims)
        taken: set[int] = set()
        for dim in dims:
            at = new_axis(self, dim, len(dims))
            step = -1 if dim < 0 else 1
            while at in taken:
                at = (at + step) % ndim
            taken.add(at)
        old = iter(self.spec.shape)
        return unary(ops.reshape, self, tuple([1 if i in taken else next(old) for i in range(ndim)]))

    def expand(self, *shape: object) -> Self:
        """Broadcast to this shape without copying; -1 keeps a size."""
        wanted = shape[0] if len(shape) == 1 and shape[0].__class__ is tuple else _flat(shape)
        if wanted and min(wanted) < 0:
            extra = len(wanted) - self.spec.ndim
            own = (None,) * extra + self.spec.shape if extra >= 0 else wanted
            wanted = tuple(
                [old if new == -1 and old is not None else new for new, old in zip(wanted, own, strict=False)]
            )
        return unary(ops.expand, self, wanted)

    # -- axes in another order ---------------------------------------------------------------
    def transpose(self, dim0: None = None, dim1: None = None) -> Self:
        """The last two axes swapped.  PyTorch: transpose(-1, -2), or x.mT."""
        if dim0 is not None or dim1 is not None:
            raise told(
                ArgumentError,
                "transpose swaps the last two axes",
                given=f"{dim0} and {dim1} for {self.spec}",
                expected="no arguments",
                mend=f"x.swap_dims({dim0}, {dim1})",
            )
        ndim = self.spec.ndim
        if ndim < 2:
            raise told(
                ShapeError,
                "there are no two axes to swap",
                given=f"{self.spec}",
                expected="a tensor of at least two axes",
                mend="insert an axis with unsqueeze_dim",
            )
        return unary(ops.permute, self, _SWAPPED[ndim] if ndim < len(_SWAPPED) else _swap_last(ndim))

    t = transpose

    def swap_dims(self, dim1: int, dim2: int) -> Self:
        """Two axes swapped.  PyTorch: transpose(dim1, dim2)."""
        a, b = axis(self, dim1), axis(self, dim2)
        order = list(range(self.spec.ndim))
        order[a], order[b] = b, a
        return unary(ops.permute, self, tuple(order))

    def permute(self, *axes: object) -> Self:
        """The axes in another order: axis i of the result is axis axes[i] of x."""
        order = axes[0] if len(axes) == 1 and axes[0].__class__ is tuple else _flat(axes)
        if order and min(order) < 0:
            order = tuple([axis(self, dim) for dim in order])
        return unary(ops.permute, self, order)

    def movedim(self, src: int | Sequence[int], dst: int | Sequence[int]) -> Self:
        """The axes `src` moved to the places `dst`; the others keep their order."""
        source, destination = axes(self, src), axes(self, dst)
        if len(source) != len(destination):
            raise told(
                ShapeError,
                "not as many places as axes",
                given=f"src {src}, dst {dst}",
                expected="src and dst of equal length",
                mend="name one place for each axis",
            )
        rest = iter([i for i in range(self.spec.ndim) if i not in source])
        placed = dict(zip(destination, source, strict=True))
        order = [placed[i] if i in placed else next(rest) for i in range(self.spec.ndim)]
        return unary(ops.permute, self, tuple(order))

    def flip(self, axes: Sequence[int] | int) -> Self:
        """The elements along these axes in reverse order."""
        return unary(ops.flip, self, _axes(self, axes))

    def roll(self, shifts: Sequence[int], dims: Sequence[int]) -> Self:
        """The elements shifted along axes; what leaves at the end enters at the front."""
        shift_list = shifts if isinstance(shifts, list | tuple | range) else (shifts,)
        steps = tuple([integer(shift, "a shift") for shift in shift_list])  # of any size: it goes around
        moved = _axes(self, dims)
        if len(steps) != len(moved):
            raise told(
                ShapeError,
                "not as many shifts as axes",
                given=f"shifts {shifts}, dims {dims}",
                expected="shifts and dims of equal length",
                mend="name one shift for each axis",
            )
        return unary(ops.roll, self, tuple(_once_round(self, *each) for each in zip(steps, moved, strict=True)), moved)

    def roll_dim(self, shift: int, dim: int) -> Self:
        """The elements shifted along one axis; what leaves at the end enters at the front."""
        at = axis(self, dim)
        return unary(ops.roll, self, (_once_round(self, integer(shift, "shift"), at),), (at,))

    # -- more elements --------------------------------------------------------------------
    def repeat(self, *sizes: object) -> Self:
        """Repeated sizes[i] times along axis i; further sizes in front make new axes.  PyTorch: repeat.

        Raises: ArgumentError for a 0, which Burn 0.12 wrote for the axis 0.
        """
        times = _flat(sizes)
        if 0 in times:
            raise told(
                ArgumentError,
                "0 repetitions leave nothing",
                given=f"sizes {times} for {self.spec}",
                expected="how often each axis is repeated, 1 or more",
                mend="x.repeat_dim(dim, times) repeats one axis, as Burn 0.12's repeat(dim, times) did",
            )
        if len(times) < self.spec.ndim:
            raise told(
                ShapeError,
                "a number of repetitions is missing",
                given=f"sizes {times} for {self.spec}",
                expected=f"{self.spec.ndim} sizes or more",
                mend="write 1 for an axis that is not repeated, or use repeat_dim(dim, times)",
            )
        x = self if len(times) == self.spec.ndim else self.unsqueeze(len(times))
        return unary(ops.repeat, x, times)

    def repeat_dim(self, dim: int, times: int) -> Self:
        """Repeated along one axis."""
        at = axis(self, dim)
        return unary(
            ops.repeat, self, tuple([integer(times, "times") if i == at else 1 for i in range(self.spec.ndim)])
        )

    def pad(self, padding: object, mode: PadMode | str | float = "constant") -> Self:
        """More elements around the last axes.

        padding: (before, after) pairs, one for each of the last axes; or (left, right, top, bottom) as four numbers.
        mode: PadMode.Constant(value) or a number, "constant" (0), "reflect" (without the border), "edge" (the border).
        PyTorch: torch.nn.functional.pad, whose flat numbers begin with the last axis too.
        """
        pairs = _pairs(self, padding)
        kind = PadMode.of(mode)
        full = ((0, 0),) * (self.spec.ndim - len(pairs)) + pairs
        return apply_one(ops.pad, (self, fitting(self.spec.dtype, kind.value)), full, kind.name)

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements, `step` apart, along an axis.

        Shapes: x (..., n, ...) -> (..., (n - size) // step + 1, ..., size).
        """
        at, apart = axis(self, dim), integer(step, "step")
        only_one = max(self.spec.shape[at], 1)  # from this step on there is one window
        return unary(ops.unfold, self, at, integer(size, "size"), min(apart, only_one))

    # -- several tensors ----------------------------------------------------------------------
    @classmethod
    def cat(cls, tensors: Sequence[Self], dim: int = 0) -> Self:
        """The tensors one after the other along an axis.  PyTorch: torch.cat."""
        items = cls._check_list(tensors)
        result: Self = apply(ops.cat, items, axis(items[0], dim))
        return result

    @classmethod
    def stack(cls, tensors: Sequence[Self], dim: int = 0) -> Self:
        """The tensors one after the other along a new axis.  PyTorch: torch.stack."""
        return cls.cat([x.unsqueeze_dim(dim) for x in cls._check_list(tensors)], dim)

    @classmethod
    def _check_list(cls, tensors: Sequence[Self]) -> list[Self]:
        one_or_many: Any = tensors
        try:
            items: list[Any] = [one_or_many] if isinstance(one_or_many, Value) else list(one_or_many)
        except (TypeError, ValueError):  # no list, or a file that is closed
            items = [one_or_many]
        if isinstance(one_or_many, Value):
            raise told(
                DTypeError,
                "a list of tensors is needed",
                given=f"one tensor {one_or_many.spec}",
                expected="a list of one or more tensors",
                mend="pass [a, b]; list(x) are the rows of x",
            )
        if not items or not all(isinstance(x, cls) for x in items):
            raise told(
                DTypeError,
                "there are no tensors" if not items else "an item is no tensor",
                given="an empty list" if not items else ", ".join(type(x).__name__ for x in items),
                expected="a list of one or more tensors",
                mend="pass [a, b], not a, b",
            )
        return items

    def iter_dim(self, dim: int) -> Iterator[Self]:
        """The slices along an axis one by one; each keeps the axis with size 1.  `for row in x` drops it."""
        at = axis(self, dim)
        for i in range(self.spec.shape[at]):
            yield self.narrow(at, i, 1)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """`length` elements of an axis, from `start` on.  Raises: ShapeError where the axis ends before."""
        at = axis(self, dim)
        first, count, size = integer(start, "start"), integer(length, "length"), self.spec.shape[at]
        if not 0 <= first <= first + count <= size:
            raise told(
                ShapeError,
                "the range leaves the axis",
                given=f"start {start}, length {length} on axis {at} of {self.spec}",
                expected=f"0 <= start <= start + length <= {size}",
                mend="x.slice_dim(dim, range) cuts a range off at the end",
            )
        ranges = [(first, first + count, 1) if i == at else (0, n, 1) for i, n in enumerate(self.spec.shape)]
        return unary(ops.slice, self, tuple(ranges))

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` parts along an axis, all of one size but the last, which may be smaller."""
        count = integer(chunks, "chunks")
        if count < 1:
            raise told(
                ShapeError, "there must be a part", given=f"chunks {chunks}", expected="1 or more", mend="pass chunks=1"
            )
        size = self.spec.shape[axis(self, dim)]
        return self.split(max(1, -(-size // count)), dim)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> list[Self]:
        """Parts of `split_size` along an axis, the last one perhaps smaller; or parts of the sizes of a list."""
        if isinstance(split_size, list | tuple):
            return self.split_with_sizes(split_size, dim)
        at = axis(self, dim)
        step, size = integer(split_size, "split_size"), self.spec.shape[at]
        if step < 1:
            raise told(
                ShapeError,
                "a part must have elements",
                given=f"split_size {split_size}",
                expected="1 or more",
                mend="pass the size of a part, or use chunk(number of parts)",
            )
        if size == 0:
            return [self]
        return list(apply(ops.split, (self,), tuple(min(step, size - i) for i in range(0, size, step)), at))

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> list[Self]:
        """Parts of these sizes along an axis; their sum is the size of the axis."""
        at = axis(self, dim)
        lengths = whole_list(split_sizes, "split_sizes")
        if sum(lengths) != self.spec.shape[at] or any(n < 0 for n in lengths):
            raise told(
                ShapeError,
                "the parts do not make up the axis",
                given=f"split_sizes {tuple(split_sizes)} with sum {sum(lengths)} on axis {at} of {self.spec}",
                expected=f"sizes with sum {self.spec.shape[at]}",
                mend="let the last size take the rest",
            )
        return list(apply(ops.split, (self,), lengths, at)) if lengths else []


def _swap_last(ndim: int) -> tuple[int, ...]:
    return (*range(ndim - 2), ndim - 1, ndim - 2)


_SWAPPED = [_swap_last(n) if n >= 2 else () for n in range(9)]


def _flat(shape: tuple[Any, ...]) -> Shape:
    # f(2, 3) and f([2, 3])
    if len(shape) == 1:
        return sizes(shape[0])
    for size in shape:
        if size.__class__ is not int:
            return sizes(shape)
    return shape


def _axes(x: Value, dims: Any) -> tuple[int, ...]:
    return axes(x, dims)


def _fill_shape(x: Value, shape: Shape) -> Shape:
    """A shape with its 0 and -1 worked out; what cannot be is left for the row to refuse."""
    own = x.spec.shape
    if x.spec.numel:
        shape = tuple([own[i] if size == 0 and i < len(own) else size for i, size in enumerate(shape)])
    if shape.count(-1) == 1:
        rest = math.prod(size for size in shape if size != -1)
        if rest and x.spec.numel % rest == 0:
            shape = tuple([x.spec.numel // rest if size == -1 else size for size in shape])
    return shape


def _pairs(x: Value, padding: object) -> tuple[tuple[int, int], ...]:
    items = list(padding) if isinstance(padding, list | tuple) else []
    if len(items) in (2, 4) and not any(isinstance(item, list | tuple) for item in items):
        items = [items[i : i + 2] for i in range(len(items) - 2, -1, -2)]  # the last axis comes first
    pairs = [tuple(item) for item in items if isinstance(item, list | tuple) and len(item) == 2]
    if not pairs or len(pairs) < len(items) or len(pairs) > x.spec.ndim:
        raise told(
            ShapeError,
            "the padding fits no axes",
            given=f"padding {padding!r} for {x.spec}",
            expected="(before, after) pairs for at most as many axes as there are, the last axis last; or "
            "(left, right, top, bottom)",
            mend="write [(1, 1), (2, 2)] for one row on each side and two columns",
        )
    return tuple([(integer(before, "before"), integer(after, "after")) for before, after in pairs])


def _once_round(x: Any, shift: int, dim: int) -> int:
    """A shift along an axis, without its whole turns."""
    size = x.spec.shape[dim]
    return shift if -size <= shift <= size else shift % max(size, 1)
