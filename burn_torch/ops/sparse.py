"""Products of sparse matrices in rows of entries (CSR) with dense ones, and the products that are their gradients.

Row i of a sparse matrix has the entries from offsets[i] to offsets[i + 1] - 1: values, and the columns they stand in.
Equal columns of a row are added up, and columns need no order.  The three rows are closed under differentiation:

    csr_matmul              A b             dA = csr_sampled_matmul(g, b)        db = csr_transposed_matmul(A, g)
    csr_transposed_matmul   A^T b           dA = csr_sampled_matmul(b, g)        db = csr_matmul(A, g)
    csr_sampled_matmul      (x y^T) at A's places       dx = csr_matmul(g, y)    dy = csr_transposed_matmul(g, x)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.bounds import check_numpy, require_indices
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.lookup import embedding
from burn_torch.ops.moments import HALF, like, widened
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import fixed, sample, uniform
from burn_torch.ops.scattering import select_assign
from burn_torch.ops.segments import check_offsets, require_offsets, segment_expand, segment_reduce
from burn_torch.ops.shapes import reshape
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Value

_OFFSETS: Final = fixed([0, 2, 2, 5, 6], np.int64)
_COLUMNS: Final = fixed([2, 0, 1, 1, 2, 0], np.int64)  # the third row has a column twice


# -- what the rows share ----------------------------------------------------------------------------------
def _require_places(columns: TensorSpec, offsets: TensorSpec, values: TensorSpec | None = None) -> int:
    """The number of rows of a sparse matrix.  Raises faults for places, or values, of none."""
    rows = require_offsets(offsets)
    require_indices(columns)
    if columns.ndim != 1 or (values is not None and values.shape != columns.shape):
        raise shape_fault(
            "values and columns do not fit together",
            expected="values (entries,) and columns (entries,)",
            mend="give each value the column that it stands in",
        )
    return rows


def _require_matrix(dense: TensorSpec, name: str, rows: int | None = None) -> None:
    if dense.ndim != 2 or (rows is not None and dense.shape[0] != rows):
        raise shape_fault(
            f"{name} {dense.shape} does not fit the sparse matrix",
            expected=f"{name} ({'rows' if rows is None else rows}, features)",
            mend="flatten axes of a batch into the features",
        )


def _check(call: Call, columns: object, offsets: object, entries: int, cols: int) -> None:
    """Raises: BoundsError for places outside the matrix, or entries that belong to no row."""
    check_offsets(call, offsets, entries)
    ends = np.asarray(offsets)[[0, -1]]
    check_offsets(call, [-1] if (ends[0], ends[1]) != (0, entries) else [0], entries)
    check_numpy(call, columns, cols)


def _in_library(call: Call, compute: Callable[..., torch.Tensor], at: int, cols: int) -> Candidate | None:
    """torch's own product, of places at inputs `at` (columns) and after; None where torch has none.

    On a GPU the library would read anywhere, so the device itself asserts what is checked on the host.
    """
    on_host = call.tensor(0).place == "cpu"
    if on_host and not torch.backends.mkl.is_available():
        return None
    entries, result = call.tensor(at).shape[0], call.results[0]
    dtype = TO_TORCH[result.dtype]
    wide = torch.float32 if result.dtype in HALF else dtype

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        columns, offsets = inputs[at].long(), inputs[at + 1].long()
        if on_host:
            _check(call, columns, offsets, entries, cols)
        if not result.numel or not entries:
            return torch.zeros(result.shape, dtype=dtype, device=result.place)
        if not on_host:
            inside = (columns >= 0).logical_and_(columns < cols).all()
            rising = (offsets[1:] >= offsets[:-1]).all()
            torch._assert_async(inside & rising & (offsets[0] == 0) & (offsets[-1] == entries))
        others = [x.to(wide).contiguous() for i, x in enumerate(inputs) if i not in (at, at + 1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "Sparse CSR tensor support is in beta state"
            return compute(columns.contiguous(), offsets.contiguous(), *others).to(dtype)

    return run


# -- csr_matmul -------------------------------------------------------------------------------------------
def _torch_matmul(call: Call) -> Candidate | None:
    rows, cols = call.result.shape[0], call.tensor(3).shape[0]

    def compute(
        columns: torch.Tensor, offsets: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
    ) -> torch.Tensor:
        return torch.sparse_csr_tensor(offsets, columns, values, (rows, cols), check_invariants=False) @ dense

    return _in_library(call, compute, 1, cols)


@op(
    torch=PerCall(_torch_matmul),
    precision="high",
    samples=[
        sample(uniform(-1, 1, (6,)), _COLUMNS, _OFFSETS, uniform(-1, 1, (3, 5))),
        sample(uniform(-1, 1, (6,)), _COLUMNS, _OFFSETS, uniform(-1, 1, (4, 1))),
        sample(uniform(-1, 1, (6,)), _COLUMNS, _OFFSETS, uniform(-1, 1, (3, 0))),
    ],
)
def csr_matmul(values: TensorSpec, columns: TensorSpec, offsets: TensorSpec, dense: TensorSpec) -> TensorSpec:
    """A sparse matrix times a dense one.

        y[i] = sum over k from offsets[i] to offsets[i + 1] - 1 of values[k] * dense[columns[k]]

    Shapes: values (entries,), columns (entries,), offsets (rows + 1,), dense (cols, features) -> (rows, features).
    Dtypes: values and dense one float type, columns and offsets integers; half types compute in float32.
    Raises: BoundsError for places outside the matrix, where the data is on the host; a GPU stops its program.
    PyTorch: torch.sparse_csr_tensor(offsets, columns, values) @ dense.
    """
    same_dtype(values.require(FLOAT), dense)
    rows = _require_places(columns, offsets, values)
    _require_matrix(dense, "dense")
    return dense.with_shape((rows, dense.shape[1]))


@csr_matmul.decomposes
def _(values, columns, offsets, dense):
    terms = widened(embedding(dense, columns)) * _beside(widened(values))
    return like(dense, segment_reduce(terms, offsets, reduction="sum"))


@csr_matmul.gradient
def _(g, y, values, columns, offsets, dense):
    dvalues = csr_sampled_matmul(columns, offsets, g, dense)
    return dvalues, None, None, csr_transposed_matmul(values, columns, offsets, g, cols=dense.shape[0])


def _beside(x: Value) -> Value:
    return reshape(x, shape=(x.shape[0], 1))


# -- csr_transposed_matmul --------------------------------------------------------------------------------
def _torch_transposed(call: Call) -> Candidate | None:
    rows, cols = call.tensor(3).shape[0], call.attrs["cols"]

    def compute(
        columns: torch.Tensor, offsets: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
    ) -> torch.Tensor:
        # A in rows of entries is A^T in columns of them
        return torch.sparse_csc_tensor(offsets, columns, values, (cols, rows), check_invariants=False) @ dense

    return _in_library(call, compute, 1, cols)


@op(
    torch=PerCall(_torch_transposed),
    precision="high",
    samples=[
        sample(uniform(-1, 1, (6,)), _COLUMNS, _OFFSETS, uniform(-1, 1, (4, 5)), cols=3),
        sample(uniform(-1, 1, (6,)), _COLUMNS, _OFFSETS, uniform(-1, 1, (4, 1)), cols=4),
    ],
)
def csr_transposed_matmul(
    values: TensorSpec, columns: TensorSpec, offsets: TensorSpec, dense: TensorSpec, *, cols: int
) -> TensorSpec:
    """The transpose of a sparse matrix times a dense one.

        y[j] = sum over i and k of its row with columns[k] = j of values[k] * dense[i]

    Shapes: values (entries,), columns (entries,), offsets (rows + 1,), dense (rows, features) -> (cols, features).
    Dtypes: as `csr_matmul`.  Raises: as that too.
    """
    same_dtype(values.require(FLOAT), dense)
    _require_matrix(dense, "dense", _require_places(columns, offsets, values))
    return dense.with_shape((cols, dense.shape[1]))


@csr_transposed_matmul.decomposes
def _(values, columns, offsets, dense, *, cols):
    terms = segment_expand(widened(dense), offsets, length=columns.shape[0]) * _beside(widened(values))
    blank = terms.new_full((cols, dense.shape[1]), 0.0)
    return like(dense, select_assign(blank, columns, terms, dim=0, update="add"))


@csr_transposed_matmul.gradient
def _(g, y, values, columns, offsets, dense, *, cols):
    return csr_sampled_matmul(columns, offsets, dense, g), None, None, csr_matmul(values, columns, offsets, g)


# -- csr_sampled_matmul -----------------------------------------------------------------------------------
def _torch_sampled(call: Call) -> Candidate | None:
    rows, cols = call.tensor(2).shape[0], call.tensor(3).shape[0]

    def compute(columns: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cpu" and not _ascends(columns, offsets):
            return _multiply_pairs(columns, offsets, x, y)
        blank = torch.zeros(columns.shape, dtype=x.dtype, device=x.device)
        places = torch.sparse_csr_tensor(offsets, columns, blank, (rows, cols), check_invariants=False)
        return torch.sparse.sampled_addmm(places, x, y.t(), beta=0.0).values()

    return _in_library(call, compute, 0, cols)


def _ascends(columns: torch.Tensor, offsets: torch.Tensor) -> bool:
    """Tells if the columns of each row ascend, without equal ones, as torch's product on a CPU needs it."""
    rises = columns[1:] > columns[:-1]
    begins = offsets[1:-1]
    rises[begins[(begins > 0) & (begins < len(columns))] - 1] = True
    return bool(rises.all())


def _multiply_pairs(columns: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Entry by entry, so many at a time that the rows taken out stay small."""
    places = torch.repeat_interleave(torch.arange(x.shape[0]), offsets.diff())
    step = max(1, (1 << 20) // max(x.shape[1], 1))
    parts = zip(places.split(step), columns.split(step), strict=True)
    return torch.cat([torch.linalg.vecdot(x[i], y[j]) for i, j in parts])


@op(
    torch=PerCall(_torch_sampled),
    precision="high",
    samples=[
        sample(_COLUMNS, _OFFSETS, uniform(-1, 1, (4, 5)), uniform(-1, 1, (3, 5))),
        sample(_COLUMNS, _OFFSETS, uniform(-1, 1, (4, 1)), uniform(-1, 1, (4, 1))),
    ],
)
def csr_sampled_matmul(columns: TensorSpec, offsets: TensorSpec, x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """The elements of x y^T at the places of a sparse matrix.

        z[k] = sum of x[i] * y[columns[k]]        for k of row i

    Shapes: columns (entries,), offsets (rows + 1,), x (rows, features), y (cols, features) -> (entries,).
    Dtypes: x and y one float type, columns and offsets integers; half types compute in float32.
    Raises: as `csr_matmul`.
    PyTorch: torch.sparse.sampled_addmm with beta 0.
    """
    same_dtype(x.require(FLOAT), y)
    _require_matrix(x, "x", _require_places(columns, offsets))
    _require_matrix(y, "y")
    if x.shape[1] != y.shape[1]:
        raise shape_fault(
            "x and y differ in their features",
            expected="x (rows, features) and y (cols, features) with one number of features",
            mend="transpose one side",
        )
    return x.with_shape(columns.shape)


@csr_sampled_matmul.decomposes
def _(columns, offsets, x, y):
    terms = segment_expand(widened(x), offsets, length=columns.shape[0]) * widened(embedding(y, columns))
    return like(x, reshape(sum(terms, dims=(1,)), shape=columns.shape))


@csr_sampled_matmul.gradient
def _(g, z, columns, offsets, x, y):
    dy = csr_transposed_matmul(g, columns, offsets, x, cols=y.shape[0])
    return None, None, csr_matmul(g, columns, offsets, y), dy
