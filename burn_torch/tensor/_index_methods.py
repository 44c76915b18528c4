"""Methods that read and write parts: slices, indices, masks.  Writing gives a new tensor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NoReturn, Self, cast

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.ops.indexing import selected_by_mask
from burn_torch.tensor._arguments import axis, fitting, integer
from burn_torch.tensor._indexing import Ranges, index, ranges_of, sliced
from burn_torch.tensor._shape_methods import ShapeMethods
from burn_torch.tensor.apply import apply_one, indices, require_tensor, unary
from burn_torch.tensor.options import IndexingUpdateOp

__all__ = ["IndexMethods"]


class IndexMethods(ShapeMethods):
    """Slicing, indexing and masks."""

    __slots__ = ()

    # -- Python's own -------------------------------------------------------------------
    def __getitem__(self, item: object) -> Self:
        return cast(Self, index(self, item))

    def __delitem__(self, item: object) -> NoReturn:
        raise told(
            DTypeError,
            "tensors are immutable",
            given=f"the removal of a part of {self.spec}",
            expected="a new tensor without the part",
            mend="y = Tensor.cat([x[:i], x[i + 1 :]], 0), x[mask] or x.select(dim, indices)",
        )

    def __setitem__(self, item: object, value: object) -> NoReturn:
        raise told(
            DTypeError,
            "tensors are immutable",
            given=f"an assignment to a part of {self.spec}",
            expected="a new tensor with the part replaced",
            mend="y = x.slice_assign(s[1:3], values), x.slice_fill(s[1:3], 0.0) or x.mask_fill(mask, 0.0)",
        )

    def __len__(self) -> int:
        if not self.spec.ndim:
            raise told(
                DTypeError,
                "a tensor without axes has no length",
                given=str(self.spec),
                expected="a tensor with at least one axis",
                mend="x.into_scalar() is its number",
            )
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return iter([self.select_dim(0, i) for i in range(len(self))])

    # -- slices -------------------------------------------------------------------------
    def slice(self, slices: object) -> Self:
        """The elements in ranges of the first axes; every axis stays, also under a single index.

        slices: `s[1:3, ..., -1, ::2]`, or a list of slices, ranges and integers.  `x[...]` drops single indices.
        """
        return cast(Self, sliced(self, ranges_of(self, slices)))

    def slice_dim(self, dim: int, slice: object) -> Self:
        """A range of one axis: `x.slice_dim(-1, s[2:])`, `x.slice_dim(0, range(3))`."""
        at = axis(self, dim)
        one = slice[0] if isinstance(slice, tuple) and len(slice) == 1 else slice
        return self.slice([*[_ALL] * at, one])

    def slice_assign(self, slices: object, values: Self) -> Self:
        """With the elements in these ranges replaced.  Shapes: values broadcast to what `slice(slices)` has."""
        cut = ranges_of(self, slices)
        return apply_one(ops.slice_assign, (self, _spread(values, cut)), cut.ranges)

    def slice_fill(self, slices: object, value: float) -> Self:
        """With the elements in these ranges set to one number."""
        filled = self.new_full((1,) * self.spec.ndim, fitting(self.spec.dtype, value))
        return self.slice_assign(slices, filled)

    # -- one axis -------------------------------------------------------------------------
    def select_dim(self, dim: int, index: int) -> Self:
        """The elements at one index of an axis, without the axis.  PyTorch: select(dim, index)."""
        return self[(*[_ALL] * axis(self, dim), integer(index, "index"))]

    def select(self, dim: int, indices: Self) -> Self:
        """The elements at these indices of an axis.  PyTorch: index_select.

        Shapes: x (..., n, ...), indices (k,) -> (..., k, ...).
        """
        return apply_one(ops.select, (self, indices), axis(self, dim))

    def select_assign(
        self, dim: int, indices: Self, values: Self, update: IndexingUpdateOp | str = IndexingUpdateOp.Add
    ) -> Self:
        """With the elements at these indices of an axis replaced by values, or combined with them.

        Shapes: x (..., n, ...), indices (k,), values (..., k, ...) -> (..., n, ...).
        PyTorch: index_copy, index_add, index_reduce.
        """
        mode = IndexingUpdateOp.of(update).value
        return apply_one(ops.select_assign, (self, indices, values), axis(self, dim), mode)

    def take(self, dim: int, indices: Self) -> Self:
        """The elements at indices of any shape along an axis.

        Shapes: x (*a, n, *b), indices (*k) -> (*a, *k, *b).  PyTorch: x[:, indices]; numpy: take(indices, axis).
        """
        at = axis(self, dim)
        require_tensor(indices, "indices")
        picked = self.select(at, indices if indices.spec.ndim == 1 else unary(ops.reshape, indices, _flat(indices)))
        shape = self.spec.shape
        return unary(ops.reshape, picked, (*shape[:at], *indices.spec.shape, *shape[at + 1 :]))

    def gather(self, dim: int, indices: Self) -> Self:
        """y[..., i, ...] = x[..., indices[..., i, ...], ...] along an axis.  PyTorch: gather.

        Shapes: x (..., n, ...), indices (..., k, ...) with the same other axes -> the shape of indices.
        """
        return apply_one(ops.gather, (self, indices), axis(self, dim))

    def scatter(
        self, dim: int, indices: Self, values: Self, update: IndexingUpdateOp | str = IndexingUpdateOp.Add
    ) -> Self:
        """With values put, or combined, where `gather(dim, indices)` would read.  PyTorch: scatter, scatter_reduce."""
        mode = IndexingUpdateOp.of(update).value
        return apply_one(ops.scatter, (self, indices, values), axis(self, dim), mode)

    # -- several axes -------------------------------------------------------------------------
    def gather_nd(self, indices: Self) -> Self:
        """The slices at indices of several axes: the last axis of `indices` names one element each.

        Shapes: x (n0, ..., *rest), indices (*k, m) -> (*k, *rest after m axes).
        """
        return apply_one(ops.gather_nd, (self, indices))

    def scatter_nd(self, indices: Self, values: Self, update: IndexingUpdateOp | str = IndexingUpdateOp.Add) -> Self:
        """With values put, or combined, where `gather_nd(indices)` would read."""
        return apply_one(ops.scatter_nd, (self, indices, values), IndexingUpdateOp.of(update).value)

    # -- diagonals ----------------------------------------------------------------------------
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements whose place on dim2 is that on dim1 plus `offset`, on a new last axis.  PyTorch: diagonal.

        Shapes: x (rows, cols) -> (n,); x (*s) -> (*s without dim1 and dim2, n).
        """
        return unary(ops.diagonal, self, *_diagonal_at(self, offset, dim1, dim2))

    def diagonal_assign(self, values: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """With the elements that `diagonal(offset, dim1, dim2)` reads replaced.  PyTorch: diagonal_scatter."""
        return apply_one(ops.diagonal_assign, (self, values), *_diagonal_at(self, offset, dim1, dim2))

    # -- masks --------------------------------------------------------------------------------
    def mask_where(self, mask: Self, value: Self | float) -> Self:
        """`value` where the mask is true, x elsewhere.  PyTorch: torch.where(mask, value, x)."""
        return apply_one(ops.mask_where, (self, mask, value))

    def mask_fill(self, mask: Self, value: float) -> Self:
        """One number where the mask is true, x elsewhere.  PyTorch: masked_fill."""
        return apply_one(ops.mask_where, (self, mask, fitting(self.spec.dtype, value)))

    def mask_select(self, mask: Self) -> Self:
        """The elements where the mask is true, in row-major order, as one axis.  The result's size depends on data."""
        result: Self = selected_by_mask(self, mask)
        return result

    async def mask_select_async(self, mask: Self) -> Self:
        """`mask_select` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.mask_select, mask)

    def nonzero(self) -> list[Self]:
        """For each axis the indices of the elements that are not zero.  PyTorch: nonzero(as_tuple=True)."""
        rows = self.argwhere()
        return [rows.select_dim(1, i) for i in range(self.spec.ndim)]

    async def nonzero_async(self) -> list[Self]:
        """`nonzero` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.nonzero)

    def argwhere(self) -> Self:
        """The indices of the elements that are not zero, one row each.  Shapes: x (*s) -> (count, rank)."""
        mask = self if self.spec.dtype is DType.BOOL else unary(ops.cast, self, DType.BOOL)
        return indices(apply_one(ops.nonzero, (mask,)))

    async def argwhere_async(self) -> Self:
        """`argwhere` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.argwhere)


_ALL = slice(None)


def _flat(indices: IndexMethods) -> Shape:
    return (indices.spec.numel,)


def _diagonal_at(x: IndexMethods, offset: int, dim1: int, dim2: int) -> tuple[int, tuple[int, int]]:
    return integer(offset, "offset"), (axis(x, dim1), axis(x, dim2))


def _spread(values: object, cut: Ranges) -> object:
    """Values as slice_assign takes them: of the ranges' own shape, backwards where the ranges are."""
    if not isinstance(values, IndexMethods):
        return values  # the row refuses it
    shape = cut.shape()
    spread = values if values.spec.shape == shape else unary(ops.expand, values, shape)
    return unary(ops.flip, spread, cut.flips) if cut.flips else spread
