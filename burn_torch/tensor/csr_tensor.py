"""CsrTensor: a sparse matrix as the entries of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import DTypeLike

from burn_torch import ops
from burn_torch.core.dtype import FLOAT, INT, DType
from burn_torch.core.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.core.wording import described
from burn_torch.ops.samples import Array
from burn_torch.tensor import segments
from burn_torch.tensor._arguments import integer
from burn_torch.tensor.apply import NUMBERS, apply_one, require_tensor
from burn_torch.tensor.compound import Compound
from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import Gradients
from burn_torch.tensor.tensor import Tensor

__all__ = ["CsrTensor"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class CsrTensor(Compound):
    """A sparse matrix (rows, cols): values, the columns they stand in, and where each row begins.

        a = CsrTensor.from_dense(adjacency)
        y = a @ x                                   # gradients for a.values and for x
        weights = a.with_values(scores).softmax()   # over the entries of each row

    values    (entries,), floats, row after row
    columns   (entries,), integers in any order; equal ones of a row are added up
    offsets   (rows + 1,), integers from 0 to entries: row i has the entries offsets[i] to offsets[i + 1] - 1
    cols      the number of columns

    It is one value to `compile`, `grad` and the other transforms, which see `cols` as a constant, and a field of a
    module.  Gradients are those of the entries: what is not stored stays 0.
    Raises: ShapeError, DTypeError, DeviceError where the parts do not fit together; products raise BoundsError for
        places outside the matrix, where the data is on the host.
    PyTorch: torch.sparse_csr_tensor.
    """

    values: Tensor
    columns: Tensor
    offsets: Tensor
    cols: int

    def __post_init__(self) -> None:
        for name in ("values", "columns", "offsets"):
            require_tensor(getattr(self, name), name)
        shown = (
            f"values {self.values.spec}, columns {self.columns.spec}, offsets {self.offsets.spec}, cols {self.cols!r}"
        )
        values, columns, offsets = self.values.spec, self.columns.spec, self.offsets.spec
        if integer(self.cols, "cols") < 0 or not (
            values.ndim == offsets.ndim == 1 and values.shape == columns.shape and offsets.shape[0]
        ):
            raise told(
                ShapeError,
                "the parts of a sparse matrix do not fit together",
                given=shown,
                expected="values (entries,), columns (entries,), offsets (rows + 1,), cols from 0",
                mend="CsrTensor.from_coo(rows, columns, values, shape) makes offsets of row numbers",
            )
        if values.dtype not in FLOAT or columns.dtype not in INT or offsets.dtype not in INT:
            raise told(
                DTypeError,
                "the parts of a sparse matrix have other types",
                given=shown,
                expected="values of floats, columns and offsets of integers",
                mend="cast them, for example with .float() or .int()",
            )
        if not values.place == columns.place == offsets.place:
            raise told(
                DeviceError,
                "the parts of a sparse matrix lie on different devices",
                given=shown,
                expected="one device",
                mend="move them: columns.to_device(values.device)",
            )

    @classmethod
    def of_parts(cls, values: Tensor, columns: Tensor, offsets: Tensor, cols: int) -> CsrTensor:
        """Parts that are known to fit together: how transforms build one, of samples and of what stands for tensors."""
        built = object.__new__(cls)
        for name, part in (("values", values), ("columns", columns), ("offsets", offsets), ("cols", cols)):
            object.__setattr__(built, name, part)
        return built

    # -- constructors ----------------------------------------------------------------------------------------
    @staticmethod
    def from_dense(x: Tensor) -> CsrTensor:
        """The elements of a matrix that are not 0; waits for the device to count them.

        Gradients of the values reach x at their places.  Shapes: x (rows, cols).
        """
        require_tensor(x)
        if x.ndim != 2:
            raise told(
                ShapeError, "only matrices are sparse in rows", given=str(x.spec), expected="x (rows, cols)",
                mend="reshape it to (rows, cols)",
            )  # fmt: skip
        rows, columns = x.detach().not_equal(0.0).nonzero()
        values = x.flatten().select(0, rows * x.shape[1] + columns)
        return CsrTensor(values, columns, segments.offsets(_count(rows, x.shape[0])), x.shape[1])

    @staticmethod
    def from_coo(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> CsrTensor:
        """Takes entries in any order, each with its row and its column; equal places are kept, and add up.

        Shapes: rows, columns, values (entries,).
        """
        for name, x in (("rows", rows), ("columns", columns), ("values", values)):
            require_tensor(x, name)
        if len(shape) != 2 or not rows.shape == columns.shape == values.shape or rows.ndim != 1:
            raise told(
                ShapeError,
                "rows, columns and values do not fit together",
                given=f"rows {rows.spec}, columns {columns.spec}, values {values.spec}, shape {tuple(shape)}",
                expected="rows, columns and values (entries,), shape (rows, cols)",
                mend="give each value its row and its column",
            )
        rows, columns = rows.cast(DType.I64), columns.cast(DType.I64)
        order = (rows * shape[1] + columns).argsort(0)
        offsets = segments.offsets(_count(rows, shape[0]))
        return CsrTensor(values.select(0, order), columns.select(0, order), offsets, shape[1])

    @staticmethod
    def from_torch(tensor: torch.Tensor, device: Device | None = None) -> CsrTensor:
        """A tensor of torch in its CSR layout, without a copy.  Raises: DTypeError for any other layout."""
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_csr or tensor.ndim != 2:
            raise told(
                DTypeError,
                "this is no CSR matrix of torch",
                given=str(tensor.layout) if isinstance(tensor, torch.Tensor) else described(tensor),
                expected="a tensor of two axes with the layout torch.sparse_csr",
                mend="tensor.to_sparse_csr()",
            )
        parts = (tensor.values(), tensor.col_indices(), tensor.crow_indices())
        values, columns, offsets = (Tensor.from_torch(part.detach(), device) for part in parts)
        return CsrTensor(values, columns, offsets, tensor.shape[1])

    # -- what it is ------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """(rows, cols)."""
        return (self.offsets.shape[0] - 1, self.cols)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def dtype(self) -> DType:
        """The element type of the values."""
        return self.values.dtype

    @property
    def device(self) -> Device:
        """The device of all parts."""
        return self.values.device

    @property
    def entries(self) -> int:
        """How many values are stored."""
        return self.values.shape[0]

    def rows(self) -> Tensor:
        """The row of each entry.  Shapes: -> (entries,)."""
        return segments.ids(self.offsets, self.entries)

    def __repr__(self) -> str:
        return f"CsrTensor({self.shape}, {self.entries} entries of {self.dtype}, {self.values.spec.place})"

    # -- going elsewhere -------------------------------------------------------------------------------------
    def to_dense(self) -> Tensor:
        """The whole matrix, with equal places added up.  Shapes: -> (rows, cols)."""
        rows, cols = self.shape
        blank = Tensor.zeros((rows * cols,), (self.device, self.dtype))
        flat = self.rows() * cols + self.columns.cast(DType.I64)
        return blank.select_assign(0, flat, self.values).reshape((rows, cols))

    def into_torch(self) -> torch.Tensor:
        """A tensor of torch in its CSR layout."""
        offsets, columns = (x.cast(DType.I64).into_torch() for x in (self.offsets, self.columns))
        return torch.sparse_csr_tensor(offsets, columns, self.values.into_torch(), self.shape, check_invariants=False)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self.to_dense(), dtype)

    # -- entries ---------------------------------------------------------------------------------------------
    def with_values(self, values: Tensor) -> CsrTensor:
        """Other values at the same places.  Shapes: values (entries,)."""
        return self._with_fields({"values": values})

    def map(self, function: Callable[[Tensor], Tensor]) -> CsrTensor:
        """`function` of the values that are stored; what is not stored stays 0."""
        return self.with_values(function(self.values))

    def softmax(self) -> CsrTensor:
        """exp(x) / sum(exp(x)) over the entries of each row: attention over the edges of a graph."""
        return self.map(lambda values: segments.softmax(values, self.offsets))

    def sum_dim(self, dim: int) -> Tensor:
        """The sums of columns (dim 0) or of rows (dim 1).  Shapes: -> (1, cols) or (rows, 1)."""
        if integer(dim, "dim") % 2 == 1:
            return segments.sum(self.values, self.offsets).unsqueeze_dim(1)
        return segments.sum(self.values, ids=self.columns, count=self.cols).unsqueeze_dim(0)

    def transpose(self) -> CsrTensor:
        """The transpose, whose rows are the columns: sorts the entries."""
        return CsrTensor.from_coo(self.columns, self.rows(), self.values, (self.cols, self.shape[0]))

    def require_grad(self) -> CsrTensor:
        """The same with values that ask for a gradient."""
        return self.map(lambda values: values.require_grad())

    def grad(self, gradients: Gradients) -> CsrTensor | None:
        """The gradient of the values, at their places; None if none reached them."""
        gradient = self.values.grad(gradients)
        if gradient is None:
            return None
        return (self.inner() if self.device.is_autodiff() else self).with_values(gradient)

    def cast(self, dtype: DType) -> CsrTensor:
        """The same with values of another float type."""
        return self.map(lambda values: values.cast(dtype))

    def __neg__(self) -> CsrTensor:
        return self.map(lambda values: -values)

    def __mul__(self, number: object) -> CsrTensor:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return self.map(lambda values: values * number)

    __rmul__ = __mul__

    def __truediv__(self, number: object) -> CsrTensor:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return self.map(lambda values: values / number)

    # -- products --------------------------------------------------------------------------------------------
    def matmul(self, dense: Tensor) -> Tensor:
        """The product with a vector, a matrix or a batch of matrices.

        Shapes: dense (cols,), (cols, features) or (*batch, cols, features) -> with rows in the place of cols.
        """
        return self._multiply(dense, self.cols, lambda x: apply_one(ops.csr_matmul, (*self._parts(), x)))

    def transposed_matmul(self, dense: Tensor) -> Tensor:
        """The product of the transpose with `dense`: no entry is moved.

        Shapes: dense (rows,), (rows, features) or (*batch, rows, features) -> with cols in the place of rows.
        """
        run = ops.csr_transposed_matmul
        return self._multiply(dense, self.shape[0], lambda x: apply_one(run, (*self._parts(), x), self.cols))

    def sampled_matmul(self, x: Tensor, y: Tensor) -> CsrTensor:
        """x @ y^T at the places of this matrix: scores of the edges of a graph.

        Shapes: x (rows, features), y (cols, features).
        """
        return self.with_values(apply_one(ops.csr_sampled_matmul, (self.columns, self.offsets, x, y)))

    def __matmul__(self, other: object) -> Tensor:
        return self.matmul(other) if isinstance(other, Tensor) else NotImplemented

    def __rmatmul__(self, other: object) -> Tensor:
        if not isinstance(other, Tensor):
            return NotImplemented
        if other.ndim == 1:
            return self.transposed_matmul(other)
        return self.transposed_matmul(other.swap_dims(-1, -2)).swap_dims(-1, -2)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.values, self.columns, self.offsets

    def _multiply(self, dense: Tensor, size: int, product: Callable[[Tensor], Tensor]) -> Tensor:
        require_tensor(dense, "dense")
        if not dense.ndim or dense.shape[max(dense.ndim - 2, 0)] != size:
            raise told(
                ShapeError,
                "the sparse and the dense matrix do not fit together",
                given=f"{self!r}, dense {dense.spec}",
                expected=f"dense ({size},) or (..., {size}, features)",
                mend="transpose one side: a.transpose(), or a.transposed_matmul(dense)",
            )
        if dense.ndim == 1:
            return product(dense.unsqueeze_dim(1)).squeeze_dim(1)
        if dense.ndim == 2:
            return product(dense)
        lines = dense.permute((dense.ndim - 2, *range(dense.ndim - 2), dense.ndim - 1))
        y = product(lines.flatten(1, -1))
        apart = y.reshape((y.shape[0], *lines.shape[1:]))
        return apart.permute((*range(1, dense.ndim - 1), 0, dense.ndim - 1))


def _count(ids: Tensor, count: int) -> Tensor:
    """How often each number below `count` occurs."""
    if count < 0:
        raise told(ArgumentError, "a size is below 0", given=f"{count}", expected="0 or more", mend="check the shape")
    return segments.sum(ids.ones_like(), ids=ids, count=count)
