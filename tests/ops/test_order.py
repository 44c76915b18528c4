"""Tests what the table cannot state of scans and order: ties, NaN, zeros, long lines, element types, messages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import TensorSpec
from tests.ops.behaviour import Where, check_gradients, everywhere, gradients, one_message

NAN = math.nan


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


# -- sort -----------------------------------------------------------------------------------------------
@everywhere
def test_equal_elements_keep_their_order(where: Where) -> None:
    x = np.array([2.0, 1.0, 2.0, 1.0, 2.0])
    assert where.run(ops.sort_with_indices, x, dim=0, descending=False)[1].tolist() == [1, 3, 0, 2, 4]
    assert where.run(ops.sort_with_indices, x, dim=0, descending=True)[1].tolist() == [0, 2, 4, 1, 3]


@everywhere
@pytest.mark.parametrize("descending", [False, True])
def test_long_lines_with_ties_sort_as_torch_sorts(where: Where, descending: bool, seed: np.random.Generator) -> None:
    x = seed.integers(0, 20, (3, 500)).astype(np.float32)
    x[seed.random(x.shape) < 0.05] = NAN
    values, order = torch.sort(torch.from_numpy(x), dim=1, descending=descending, stable=True)
    ours = where.run(ops.sort_with_indices, x, dim=1, descending=descending)
    np.testing.assert_array_equal(ours[0], values.numpy())
    np.testing.assert_array_equal(ours[1], order.numpy())


@everywhere
def test_nan_counts_as_largest(where: Where) -> None:
    x = np.array([1.0, NAN, np.inf, -np.inf, NAN])
    values, order = where.run(ops.sort_with_indices, x, dim=0, descending=False)
    np.testing.assert_array_equal(values, [-np.inf, 1, np.inf, NAN, NAN])
    assert order.tolist() == [3, 0, 2, 1, 4]
    values, order = where.run(ops.sort_with_indices, x, dim=0, descending=True)
    np.testing.assert_array_equal(values, [NAN, NAN, np.inf, 1, -np.inf])
    assert order.tolist() == [1, 4, 2, 0, 3]
    values, _ = where.run(ops.topk_with_indices, x, k=3, dim=0, largest=True)
    np.testing.assert_array_equal(values, [NAN, NAN, np.inf])
    values, order = where.run(ops.topk_with_indices, x, k=3, dim=0, largest=False)
    np.testing.assert_array_equal(values, [-np.inf, 1, np.inf])
    assert order.tolist() == [3, 0, 2]


@everywhere
def test_topk_of_equal_elements_names_each_once(where: Where) -> None:
    values, order = where.run(ops.topk_with_indices, np.array([1.0, 2.0, 2.0, 2.0]), k=2, dim=0, largest=True)
    assert values.tolist() == [2, 2]
    assert len(set(order.tolist())) == 2
    assert set(order.tolist()) <= {1, 2, 3}


@everywhere
@pytest.mark.parametrize("row", ["sort_with_indices", "topk_with_indices"])
def test_gradient_goes_where_each_element_was(where: Where, row: str) -> None:
    attrs = {"descending": True} if row.startswith("sort") else {"k": 3, "largest": True}
    x = np.array([[3.0, 1.0, 2.0]])
    grads = gradients(where, ops.REGISTRY[row], (x,), [np.array([[10.0, 20.0, 30.0]]), None], dim=1, **attrs)
    assert grads[0].tolist() == [[10, 30, 20]]


# -- median ----------------------------------------------------------------------------------------------
@everywhere
def test_median_is_the_lower_of_two_and_its_index_that_of_a_stable_sort(where: Where) -> None:
    x = np.array([[4.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, 7.0, 7.0, 9.0]])
    values, order = where.run(ops.median_with_indices, x, dim=1)
    assert values.tolist() == [[2], [5], [7]]
    assert order.tolist() == [[3], [1], [1]]
    np.testing.assert_array_equal(values, torch.from_numpy(x).median(1, keepdim=True).values.numpy())


@everywhere
def test_median_is_nan_where_one_is(where: Where) -> None:
    x = np.array([[1.0, 2.0, 3.0], [1.0, NAN, NAN], [NAN, 0.0, 1.0]])
    values, order = where.run(ops.median_with_indices, x, dim=1)
    np.testing.assert_array_equal(values, [[2], [NAN], [NAN]])
    assert order.tolist() == [[1], [1], [0]]


@everywhere
def test_median_of_integers(where: Where) -> None:
    values, order = where.run(ops.median_with_indices, np.array([[3, 1], [2, 1], [9, 0]], np.int32), dim=0)
    assert (values.dtype, values.tolist(), order.tolist()) == (np.int32, [[3, 1]], [[0, 0]])


# -- scans ------------------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("zeros", [[], [0], [2], [4], [1, 3], [0, 1, 4]])
def test_gradient_of_cumulative_product_is_exact_at_zeros(where: Where, zeros: list[int]) -> None:
    x = np.random.default_rng(1).uniform(0.5, 1.5, (5, 2))
    x[zeros, 0] = 0
    check_gradients(where, ops.cumprod, x, dim=0)


@everywhere
def test_gradient_of_cumulative_product_of_halves_whose_first_factors_overflow(where: Where) -> None:
    x = np.array([300.0, 300.0, 0.01, 0.5, 0.1], np.float16)
    last = np.array([0, 0, 0, 0, 1], np.float16)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(gradients(where, ops.cumprod, (x,), [last], dim=0)[0], wide.prod() / wide, rtol=1e-3)


@everywhere
def test_gradient_of_cumulative_product_with_zeros_equals_that_of_torch(where: Where) -> None:
    x = np.array([2.0, 0.0, 3.0, 0.0, 5.0])
    g = np.array([1.0, 10.0, 100.0, 1000.0, 10000.0])
    theirs = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(theirs.cumprod(0), theirs, torch.from_numpy(g))
    assert gradients(where, ops.cumprod, (x,), [g], dim=0)[0].tolist() == expected.tolist()


@everywhere
def test_gradient_of_a_long_cumulative_product(where: Where, seed: np.random.Generator) -> None:
    x, g = seed.uniform(0.9, 1.1, (2, 300)), seed.normal(size=(2, 300))
    theirs = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(theirs.cumprod(1), theirs, torch.from_numpy(g))
    grads = gradients(where, ops.cumprod, (x,), [g], dim=1)
    np.testing.assert_allclose(grads[0], expected.numpy(), rtol=1e-10, atol=1e-12)


@everywhere
@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65])
def test_linear_recurrence_step_by_step(where: Where, count: int, seed: np.random.Generator) -> None:
    a, b = seed.normal(size=(2, count)), seed.normal(size=(2, count))
    expected = b.copy()
    for k in range(1, count):
        expected[:, k] += a[:, k] * expected[:, k - 1]
    np.testing.assert_allclose(where.run(ops.linear_scan, a, b, dim=1), expected, rtol=1e-10, atol=1e-12)


@everywhere
def test_linear_recurrence_in_single_precision_does_not_overflow_between(where: Where) -> None:
    # the products of 2^20 over the first half leave f32, the results do not: a term of 0 meets them, then a factor of 0
    a, b = np.full(64, 2.0**20, np.float32), np.zeros(64, np.float32)
    a[32], b[40] = 0, 1
    a[41:] = 0.5
    y = where.run(ops.linear_scan, a, b, dim=0)
    assert y.tolist() == [0.0] * 40 + [2.0**-k for k in range(24)]


@everywhere
def test_running_extremes_pass_nan_on(where: Where) -> None:
    x = np.array([1.0, 1.0, NAN, 3.0, NAN, -1.0])
    for row, theirs in ((ops.cummax_with_indices, torch.cummax), (ops.cummin_with_indices, torch.cummin)):
        values, indices = theirs(torch.from_numpy(x), 0)
        ours = where.run(row, x, dim=0)
        np.testing.assert_array_equal(ours[0], values.numpy())
        np.testing.assert_array_equal(ours[1], indices.numpy())
        plain = {"cummax_with_indices": ops.cummax, "cummin_with_indices": ops.cummin}[row.name]
        np.testing.assert_array_equal(where.run(plain, x, dim=0), values.numpy())


@everywhere
@pytest.mark.parametrize(("row", "sign"), [("cummax", 1.0), ("cummin", -1.0)])
def test_running_extremes_give_the_gradient_to_the_latest_of_equals(where: Where, row: str, sign: float) -> None:
    x = sign * np.array([1.0, 3.0, 3.0, 2.0])
    g = np.array([1.0, 10.0, 100.0, 1000.0])
    assert gradients(where, ops.REGISTRY[row], (x,), [g], dim=0)[0].tolist() == [1, 10, 1100, 0]
    grads = gradients(where, ops.REGISTRY[f"{row}_with_indices"], (x,), [g, None], dim=0)
    assert grads[0].tolist() == [1, 10, 1100, 0]


@everywhere
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32])
def test_integers_wrap_around_and_keep_their_type(where: Where, dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    y = where.run(ops.cumsum, np.array([info.max, 1, 1], dtype.numpy), dim=0)
    assert (y.dtype, y.tolist()) == (dtype.numpy, [info.max, info.min, info.min + 1])
    y = where.run(ops.cumprod, np.array([info.max, 2], dtype.numpy), dim=0)
    assert (y.dtype, y.tolist()) == (dtype.numpy, [info.max, -2 if info.min else info.max - 1])
    y = where.run(ops.cummax, np.array([1, info.max, 0], dtype.numpy), dim=0)
    assert (y.dtype, y.tolist()) == (dtype.numpy, [1, info.max, info.max])
    values, _ = where.run(
        ops.sort_with_indices, np.array([info.max, 0, info.min], dtype.numpy), dim=0, descending=False
    )
    assert (values.dtype, values.tolist()) == (dtype.numpy, sorted([info.max, 0, info.min]))


@everywhere
def test_lines_without_elements(where: Where) -> None:
    empty = np.zeros((2, 0))
    for row in (ops.cumsum, ops.cumprod, ops.cummax, ops.cummin):
        assert where.run(row, empty, dim=1).shape == (2, 0), row.name
        assert gradients(where, row, (empty,), [empty], dim=1)[0].shape == (2, 0)
    assert where.run(ops.sort_with_indices, empty, dim=1, descending=False)[1].shape == (2, 0)
    assert where.run(ops.topk_with_indices, empty, k=0, dim=1, largest=True)[1].shape == (2, 0)
    assert where.run(ops.median_with_indices, empty, dim=0)[0].shape == (1, 0)


# -- messages ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("row", "specs", "attrs", "parts"),
    [
        ("cumsum", [spec()], {"dim": 0}, ("cumsum: dim 0", "given", "at least one axis", "mend")),
        ("cumprod", [spec(3)], {"dim": -1}, ("cumprod: dim -1", "given", "0 to 0", "negative axes")),
        ("linear_scan", [spec(3), spec(2)], {"dim": 0}, ("differ in shape", "given", "one shape", "expand")),
        ("sort_with_indices", [spec(3)], {"dim": 1, "descending": True}, ("dim 1", "given", "0 to 0", "count axes")),
        (
            "topk_with_indices",
            [spec(3)],
            {"k": 4, "dim": 0, "largest": True},
            ("no 4 elements", "given", "k from 0 to 3", "min"),
        ),
        (
            "topk_with_indices",
            [spec(3)],
            {"k": -1, "dim": 0, "largest": True},
            ("no -1 elements", "given", "k from 0", "min"),
        ),
        ("median_with_indices", [spec(0)], {"dim": 0}, ("axis 0 is empty", "given", "at least one", "emptiness")),
    ],
)
def test_misfits_are_reported_in_three_parts(
    row: str, specs: list[Any], attrs: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ShapeError, match=one_message(*parts)):
        ops.REGISTRY[row].bind(specs, attrs)


def test_wrong_types_are_reported_in_three_parts() -> None:
    integers = spec(3, dtype=DType.I32)
    with pytest.raises(DTypeError, match=one_message("sort_with_indices: x has", "bool", "float or integer", "cast")):
        ops.sort_with_indices.bind([spec(3, dtype=DType.BOOL)], {"dim": 0, "descending": False})
    with pytest.raises(DTypeError, match=one_message("cumsum: x has", "bool", "float or integer", "cast")):
        ops.cumsum.bind([spec(3, dtype=DType.BOOL)], {"dim": 0})
    with pytest.raises(DTypeError, match=one_message("linear_scan: a has", "i32", "float", "cast")):
        ops.linear_scan.bind([integers, integers], {"dim": 0})
