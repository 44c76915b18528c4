"""How far the results and gradients of a row may be from float64: by torch's own errors, and by one rounding."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.ops import Op
from tests.ops import table_harness as table
from tests.ops.table_harness import TORCH, Array, Case, Typed

TORCH_DIFFERS: Final[dict[str, str]] = {
    "layer_norm": "torch gives its mean and rstd no gradient",
    "attention": "torch's gradient of a query that sees no key is NaN",
    "csr_sampled_matmul": "torch's derivative on a GPU is another one where places are equal",
    "jagged_attention": "torch gives lse no gradient",
    "straight_through": "its gradient stands for a slope that rounding lacks",
    "sgd_update": "torch's fused kernels have no derivative",
    "momentum_update": "torch's fused kernels have no derivative",
    "lion_update": "torch's functions in place have no derivative",
    "adam_update": "torch's fused kernels have no derivative",
}
"""Rows whose torch candidate has another derivative under torch's autograd, each with the reason."""

NO_TRUE_SLOPE: Final[frozenset[str]] = frozenset({"straight_through"})
"""Rows whose gradient is, on purpose, not the slope: `tests/tensor/test_quantized.py` says what it is."""

NO_TORCH_TWIN: Final[frozenset[str]] = frozenset({"grid_sample_2d_derivative", "grid_sample_2d_scatter"})
"""Rows that torch lacks, whose candidate sums otherwise than their gradient: no measure of the gradient's rounding."""

KERNELS_ALONE: Final[frozenset[str]] = frozenset({"band_scan", "log_band_scan"})
"""Rows that a kernel computes on a GPU, in an order that no row of torch has: `tests/kernels` judges its rounding."""

HOST_TWINS: Final[dict[str, str]] = {
    "ctc_loss": "on a GPU it is its decomposition, where torch's autograd has NaN for labels that no path reaches",
    "eigh": "the signs of its vectors are each library's",
    "svd": "the signs of its vectors are each library's",
}
"""Rows whose gradient by torch's autograd is taken from the CPU, each with the reason."""


def twin_place(row: Op, place: str) -> str:
    """The place where torch's autograd is asked for the gradient of a row."""
    return "cpu" if row.name in HOST_TWINS else place


def float64(row: Op, *, own: bool = False) -> Iterator[Typed]:
    """The cases that can carry gradients, in float64: float attributes too."""
    for case in table.cases(row.name):
        variant = float64_of(case)
        if variant.floats() and (case.own or not own):
            yield variant


_wide: dict[Case, Typed] = {}


def float64_of(case: Case) -> Typed:
    if case not in _wide:
        _wide[case] = table.typed(case, DType.F64).widened()
    return _wide[case]


@functools.cache
def torch_errors(row: Op, place: str) -> dict[int, float]:
    """For each output the largest error of torch in float32 over the row's samples, as a part of the largest value."""
    errors: dict[int, float] = {}
    for case in table.cases(row.name):
        variant = table.typed(case, DType.F32)
        if case.own and variant.floats():
            outputs = table.arrays(TORCH, table.execute(TORCH, variant, place)[2])
            for j, (y, expected) in enumerate(zip(outputs, table.reference(variant), strict=True)):
                errors[j] = max(errors.get(j, 0.0), table.part(y, expected))
    return errors


def wide_gradient(variant: Typed) -> dict[int, Array]:
    return table.gradients(Autodiff(TORCH), variant.widened(), widened(table.upstream(variant))).grads


@functools.cache
def torch_gradient_errors(row: Op, place: str) -> dict[int, float]:
    """For each input the largest error of torch's autograd in float32 over the samples, as a part of the largest."""
    errors: dict[int, float] = {}
    if row.name in TORCH_DIFFERS or row.name in NO_TORCH_TWIN or (row.name in KERNELS_ALONE and place != "cpu"):
        return errors
    for wide in float64(row, own=True):
        variant = table.typed(wide.case, DType.F32)
        theirs = table.through_torch(variant, table.upstream(variant), twin_place(row, place))
        expected = wide_gradient(variant) if theirs else {}
        for i, g in (theirs or {}).items():
            if i in expected and g.size:
                errors[i] = max(errors.get(i, 0.0), table.part(g, expected[i]))
    return errors


def widened(upstream: Sequence[TensorData | None]) -> list[TensorData | None]:
    return [None if g is None else g.convert(DType.F64) for g in upstream]


def stable_gradient(variant: Typed, dtype: DType, i: int) -> float:
    """Returns what one rounding of the inputs and of the upstream gradients changes in the float64 gradient of input
    i.
    """
    key = (variant, dtype)
    if key not in _changes:
        wide = variant.widened()
        start = table.gradients(Autodiff(TORCH), wide, widened(table.upstream(variant))).grads
        generator = variant.case.generator("gradient sensitivity")
        changes = dict.fromkeys(start, 0.0)
        for _ in range(2):
            moved = wide.replaced({k: table._moved(wide.data[k], dtype, generator) for k in wide.floats()})
            seeds = [
                None if g is None else TensorData(table._moved(g.convert(DType.F64), dtype, generator), DType.F64)
                for g in table.upstream(variant)
            ]
            end = table.gradients(Autodiff(TORCH), moved, seeds).grads
            for k in start:
                changes[k] = max(changes[k], table.largest(start[k], end[k]))
        _changes[key] = {k: table.stable(start[k], changes[k], dtype) for k in start}
    return _changes[key].get(i, 0.0)


_changes: dict[tuple[Typed, DType], dict[int, float]] = {}
