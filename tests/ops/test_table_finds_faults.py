"""The table test, tested: rows with one fault each, and the test that must fail for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY, Op, op
from burn_torch.ops.samples import distinct, fixed, sample, uniform
from burn_torch.ops.signature import Number
from tests.ops import table_harness
from tests.ops import test_table as table

_cache: dict[Any, Any] = {}


def plain(x: TensorSpec) -> TensorSpec:
    """Twice x.

    Shapes: x (*s) -> (*s).  Dtypes: float.
    """
    return x.require(FLOAT)


def twice(
    gradient: Callable[..., Any] | None = lambda g, y, x: g * 2.0, rule: Callable[..., Any] = plain, **fields: Any
) -> Op:
    """A row that doubles, with some of its fields replaced."""
    fields = {
        "torch": lambda x: x * 2,
        "numpy": lambda x: x * 2,
        "pointwise": "({0} + {0})",
        "cost": "cheap",
        "samples": [sample(uniform(-1, 1, (3, 4))), sample(uniform(-1, 1, (2, 0)))],
        **fields,
    }
    row = op(namespace="faulty", **fields)(rule)
    if gradient is not None:
        row.gradient(gradient)
    return row


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Any:
    yield
    REGISTRY.pop("faulty::plain", None)
    table_harness.cases.cache_clear()


EVERY: list[Any] = [
    table.test_row_has_all_its_parts,
    table.test_pointwise_expression_computes_the_row,
    table.test_scalar_inplace_and_commutative_agree_with_the_row,
    table.test_view_flag_says_which_results_share_memory,
    table.test_inputs_stay_as_they_were,
    table.test_forward,
    table.test_samples_have_a_gradient_to_check,
    table.test_nondifferentiable_rows_are_flat,
    table.test_gradient_against_central_differences,
    table.test_gradient_against_torch_in_float64,
    table.test_gradient_in_float32,
    table.test_gradient_for_each_subset_of_inputs,
    table.test_balanced_checkpointing_changes_no_bit,
    table.test_second_gradient,
    table.test_decomposition_agrees_with_candidates_and_rule,
    table.test_traced_row_gives_the_same_bits,
]


def run(test: Any, row: Op) -> None:
    """A test of the table on one row; a skip is a pass."""
    try:
        if "place" in test.__code__.co_varnames[: test.__code__.co_argcount]:
            test(row, "cpu")
        else:
            test(row)
    except pytest.skip.Exception:
        pass


@pytest.mark.parametrize("test", EVERY, ids=lambda test: test.__name__)
def test_right_row_passes(test: Any) -> None:
    run(test, twice(decomposition=lambda x: x + x))


def _stepping(x: Any) -> Any:
    x += 1
    return (x - 1) * 2


def _cached_double(x: Any) -> Any:
    return _cache.setdefault((x.shape, x.dtype), x * 2)


def _off_by_rounding(x: Any) -> Any:
    return x * (2 * x.dtype.type(1 + 2**-22)) if x.dtype == np.float32 else x * 2


def _half_as_wide(x: TensorSpec) -> TensorSpec:
    """Twice x.

    Shapes: x (*s) -> (*s).  Dtypes: float.
    """
    return x.require(FLOAT).with_dtype(DType.F32)


_half_as_wide.__name__ = "plain"


def _undocumented_rule(x: TensorSpec) -> TensorSpec:
    """Twice x."""
    return x.require(FLOAT)


_undocumented_rule.__name__ = "plain"

FAULTS: dict[str, tuple[Any, Callable[[], Op], str]] = {
    "no docstring parts": (
        EVERY[0],
        lambda: twice(rule=_undocumented_rule),
        r"lacks Shapes: in its docstring, Dtypes:",
    ),
    "no samples": (EVERY[0], lambda: twice(samples=()), "lacks samples"),
    "no candidate": (EVERY[0], lambda: twice(numpy=None), r"lacks numpy= or a decomposition"),
    "no gradient": (EVERY[0], lambda: twice(None), "lacks a gradient"),
    "no pointwise": (EVERY[0], lambda: twice(pointwise=None), "lacks pointwise="),
    "wrong pointwise": (EVERY[1], lambda: twice(pointwise="({0} * {0})"), "off by"),
    "unknown primitive": (EVERY[1], lambda: twice(pointwise="double({0})"), "double"),
    "wrong scalar": (EVERY[2], lambda: twice(scalar=lambda x: x * 3), "scalar"),
    "wrong inplace": (EVERY[2], lambda: twice(inplace=lambda x: x.mul_(3)), "in place"),
    "hidden view": (EVERY[3], lambda: twice(torch=lambda x: x, numpy=lambda x: x), "shares memory with input 0"),
    "claimed view": (EVERY[3], lambda: twice(view=True), "no result shares memory"),
    "kept result": (EVERY[3], lambda: twice(torch=_cached_double), "shares memory with another output"),
    "writes to input": (EVERY[4], lambda: twice(torch=_stepping), "wrote to input 0"),
    "leaves differ": (EVERY[5], lambda: twice(numpy=lambda x: x * 2 + 1e-3), "NdArray"),
    "leaves differ by rounding": (EVERY[5], lambda: twice(numpy=_off_by_rounding), "twice torch's error"),
    "wrong element type": (EVERY[5], lambda: twice(rule=_half_as_wide), "the rule says"),
    "reads the memory, not the strides": (
        EVERY[5],
        lambda: twice(torch=lambda x: torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) * 2),
        "strided",
    ),
    "flat samples": (
        EVERY[6],
        lambda: twice(
            lambda g, y, x: ops.mask_where(g, ops.lower(x, 0.0), 0.0),
            torch=torch.relu,
            numpy=lambda x: np.maximum(x, 0),
            samples=uniform(-2, -1),
        ),
        "a wrong rule would pass",
    ),
    "not nondifferentiable": (EVERY[7], lambda: twice(None, nondifferentiable=True), "has a gradient"),
    "wrong factor": (EVERY[8], lambda: twice(lambda g, y, x: g * 2.001), "gradient of input 0"),
    "gradient left out": (EVERY[8], lambda: twice(lambda g, y, x: None), "gradient of input 0"),
    "other gradient than torch": (EVERY[9], lambda: twice(lambda g, y, x: g * 2.001), "against torch"),
    "rounded gradient": (
        EVERY[10],
        lambda: twice(lambda g, y, x: g * 1e4 + g * (2.0 - 1e4), samples=uniform(-1, 1, (4, 4))),
        "gradient of input 0",
    ),
    "second gradient cut": (
        EVERY[13],
        lambda: twice(
            lambda g, y, x: g * ops.cast(ops.cast(x * 2.0**40, dtype=DType.I64), dtype=DType.F64) * 2.0**-39,
            torch=torch.square,
            numpy=np.square,
        ),
        "second gradient of input 0",
    ),
    "other decomposition": (EVERY[14], lambda: twice(decomposition=lambda x: x * 2.01), "decomposition"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    test, make, message = FAULTS[fault]
    row = make()
    with pytest.raises((AssertionError, NameError), match=message):
        run(test, row)


def test_second_input_forgotten_is_found() -> None:
    def plain(x: TensorSpec, y: TensorSpec) -> TensorSpec:
        """x y.  Shapes: x, y (*s) -> (*s).  Dtypes: float."""
        return x.require(FLOAT)

    row = twice(
        lambda g, z, x, y: (g * y, None),
        rule=plain,
        torch=lambda x, y: x * y,
        numpy=lambda x, y: x * y,
        samples=[sample(uniform(-1, 1), uniform(-1, 1))],
    )
    with pytest.raises(AssertionError, match="gradient of input 1"):
        run(table.test_gradient_against_central_differences, row)


def test_kink_between_samples_and_number_inputs_are_no_fault() -> None:
    def plain(x: TensorSpec, slope: Number) -> TensorSpec:
        """Leaky relu.  Shapes: x (*s) -> (*s).  Dtypes: float."""
        return x.require(FLOAT)

    row = twice(
        lambda g, y, x, slope: (ops.mask_where(g, ops.lower(x, 0.0), g * slope), None),
        rule=plain,
        torch=lambda x, slope: torch.where(x < 0, x * slope, x),
        numpy=lambda x, slope: np.where(x < 0, x * slope, x).astype(x.dtype),
        pointwise="where({0} < 0.0, {0} * {1}, {0})",
        samples=[sample(distinct((3, 4)), 0.1), sample(fixed([-0.5, 0.5]), 0.1)],
    )
    for test in EVERY:
        run(test, row)
