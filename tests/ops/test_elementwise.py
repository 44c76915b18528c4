"""Element-wise rows at ties, NaN, zeros, ends of ranges, and in their errors."""

from __future__ import annotations

import doctest
import math
from typing import Any

import numpy as np
import pytest

from burn_torch import ops
from burn_torch.backend.libtorch import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.graph import Trace
from burn_torch.ops import special
from tests.ops.behaviour import Where, everywhere, gradients, on_host

NAN, INF = math.nan, math.inf


def i8(values: Any) -> Any:
    return np.array(values, np.int8)


def u8(values: Any) -> Any:
    return np.array(values, np.uint8)


def f64(values: Any) -> Any:
    return np.array(values, np.float64)


# -- quotients of integers -------------------------------------------------------------------------------
@everywhere
def test_integer_division_truncates_toward_zero(where: Where) -> None:
    x, y = [7, 7, -7, -7, 6, -6, 0], [2, -2, 2, -2, 3, 3, 5]
    assert where.run(ops.div, np.array(x), np.array(y)).tolist() == [3, -3, -3, 3, 2, -2, 0]
    assert where.run(ops.div, i8([127, -128, 5]), 2).tolist() == [63, -64, 2]
    assert where.run(ops.div, -100, i8([7, -7, 127])).tolist() == [-14, 14, 0]
    assert where.run(ops.div, u8([255, 7]), u8([2, 9])).tolist() == [127, 0]


@everywhere
def test_remainder_has_the_sign_of_the_divisor_and_fmod_of_the_dividend(where: Where) -> None:
    x, y = [7, 7, -7, -7, 6, 0], [3, -3, 3, -3, 3, 5]
    for dtype in (np.int64, np.int8, np.float32):
        a, b = np.array(x, dtype), np.array(y, dtype)
        assert where.run(ops.remainder, a, b).tolist() == [1, -2, 2, -1, 0, 0]
        assert where.run(ops.fmod, a, b).tolist() == [1, 1, -1, -1, 0, 0]


@on_host
@pytest.mark.parametrize("row", [ops.div, ops.remainder, ops.fmod], ids=lambda row: row.name)
def test_integer_division_by_zero_raises(where: Where, row: Any) -> None:
    message = rf"{row.name}: an integer is divided by zero(.|\n)*y \(2,\) i64(.|\n)*other than 0(.|\n)*float type"
    with pytest.raises(ArgumentError, match=message):
        where.run(row, np.array([1, 2]), np.array([1, 0]))
    with pytest.raises(ArgumentError, match="divided by zero"):
        where.run(row, np.array([1, 2]), 0)


@everywhere
@pytest.mark.parametrize("row", [ops.div, ops.remainder, ops.fmod], ids=lambda row: row.name)
def test_no_integer_is_divided_by_zero_in_an_empty_tensor(where: Where, row: Any) -> None:
    """numpy's candidate looked at the divisor alone."""
    assert where.run(row, np.zeros((0, 1), np.int64), 0).shape == (0, 1)


@everywhere
def test_smallest_integer_divided_by_minus_one_wraps_around(where: Where) -> None:
    # torch ends the process here, with a signal of the processor
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        least = np.iinfo(dtype).min
        x = np.array([least, 7, -7], dtype)
        assert where.run(ops.div, x, -1).tolist() == [least, -7, 7]
        assert where.run(ops.div, x, np.array([-1, -1, 2], dtype)).tolist() == [least, -7, -3]
        assert where.run(ops.div, least, np.array([-1, 2], dtype)).tolist() == [least, least // 2]
    assert where.run(ops.div, u8([200, 255]), u8([255, 255])).tolist() == [0, 1]


# -- numbers beside integers -----------------------------------------------------------------------------
@everywhere
def test_comparison_with_a_number_beyond_the_type_does_not_wrap_it(where: Where) -> None:
    x, y, wide = i8([100, -128, 44]), u8([0, 200, 255]), np.array([1, 2**63 - 1])
    assert where.run(ops.lower, x, 300).tolist() == [True] * 3
    assert where.run(ops.greater_equal, x, -129).tolist() == [True] * 3
    assert where.run(ops.equal, x, 300).tolist() == [False] * 3
    assert where.run(ops.not_equal, x, 300).tolist() == [True] * 3
    assert where.run(ops.greater, y, -1).tolist() == [True] * 3
    assert where.run(ops.equal, y, -1).tolist() == [False] * 3
    assert where.run(ops.lower_equal, y, -1).tolist() == [False] * 3
    assert where.run(ops.lower, 300, y).tolist() == [False] * 3
    assert where.run(ops.greater, 300, y).tolist() == [True] * 3
    assert where.run(ops.lower, wide, 2**63).tolist() == [True] * 2
    assert where.run(ops.greater, wide, -(2**70)).tolist() == [True] * 2


_REFUSING = [
    *(ops.add, ops.sub, ops.mul, ops.div, ops.remainder, ops.fmod, ops.pow, ops.maximum, ops.minimum),
    *(ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor),
]


@everywhere
@pytest.mark.parametrize("row", _REFUSING, ids=lambda row: row.name)
def test_number_that_the_integers_beside_it_cannot_be_is_refused(where: Where, row: Any) -> None:
    message = rf"{row.name}: a number does not fit(.|\n)*300 in x \(2,\) i8(.|\n)*-128 to 127(.|\n)*wider type"
    with pytest.raises(ArgumentError, match=message):
        where.run(row, i8([5, 6]), 300)
    with pytest.raises(ArgumentError, match=r"300 in x a int number(.|\n)*0 to 255"):
        where.run(row, 300, u8([5, 6]))
    with pytest.raises(ArgumentError, match=r"a number of 10001 bits in(.|\n)*-9223372036854775808"):
        where.run(row, np.array([5, 6]), 2**10_000)


@everywhere
def test_filling_integers_with_a_number_beyond_the_type_is_refused(where: Where) -> None:
    with pytest.raises(ArgumentError, match="mask_where: a number does not fit the element type"):
        where.run(ops.mask_where, i8([5, 6]), np.array([True, False]), 300)


@everywhere
def test_number_of_more_than_64_bits_beside_floats_is_worded(where: Where) -> None:
    with pytest.raises(ArgumentError, match=r"add: a number does not fit(.|\n)*10001 bits in x(.|\n)*float\(number\)"):
        where.run(ops.add, f64([1.0]), 2**10_000)


@everywhere
def test_float_division_by_zero_is_infinite_or_nan(where: Where) -> None:
    assert where.run(ops.div, f64([1, -1, 0]), f64([0, 0, 0])).tolist()[:2] == [INF, -INF]
    assert np.isnan(where.run(ops.div, f64([0]), 0.0)).all()
    assert where.run(ops.div, 1.0, f64([0.0, -0.0])).tolist() == [INF, -INF]
    assert np.isnan(where.run(ops.remainder, f64([1.0]), 0.0)).all()
    assert np.isnan(where.run(ops.fmod, f64([1.0]), f64([0.0]))).all()


@everywhere
def test_number_divided_by_a_tensor_rounds_once(where: Where) -> None:
    x = np.arange(1, 200, dtype=np.float32)
    assert where.run(ops.div, 5.0, x).tobytes() == (np.float32(5) / x).tobytes()


# -- powers ----------------------------------------------------------------------------------------------------
@everywhere
def test_integers_to_negative_powers_are_truncated(where: Where) -> None:
    base = i8([-2, -1, 0, 1, 2, 127])
    assert where.run(ops.pow, base, -3).tolist() == [0, -1, 0, 1, 0, 0]
    assert where.run(ops.pow, base, -2).tolist() == [0, 1, 0, 1, 0, 0]
    assert where.run(ops.pow, base, i8([-3] * 6)).tolist() == [0, -1, 0, 1, 0, 0]
    assert where.run(ops.pow, base, i8([2] * 6)).tolist() == [4, 1, 0, 1, 4, 1]
    assert where.run(ops.pow, u8([0, 1, 2, 255]), -1).tolist() == [0, 1, 0, 0]
    assert where.run(ops.pow, -1, np.array([-3, -2, 2, 3])).tolist() == [-1, 1, 1, -1]


@everywhere
def test_power_at_zero_and_below(where: Where) -> None:
    base, exponent = f64([0, 0, 0, -8, -2, -2]), f64([0, 2, -1, 1 / 3, 3, -2])
    powers = where.run(ops.pow, base, exponent)
    assert powers[[0, 1, 2, 4, 5]].tolist() == [1, 0, INF, -8, 0.25]
    assert np.isnan(powers[3])


@everywhere
def test_power_gradient_is_zero_where_the_formula_has_no_value(where: Where) -> None:
    one = [np.ones(3)]
    grads = gradients(where, ops.pow, [f64([0, 0, 2]), f64([0, 2, 0])], one)
    assert grads[0].tolist() == [0, 0, 0], "0^0 and x^0 are constant in x"
    assert grads[1].tolist() == [0, 0, math.log(2)], "0^y is constant in y"
    assert gradients(where, ops.pow, [f64([0, 1, 2]), 0.0], one)[0].tolist() == [0, 0, 0]
    assert gradients(where, ops.pow, [f64([0, 1, 2]), 1], one)[0].tolist() == [1, 1, 1]
    assert gradients(where, ops.pow, [0.0, f64([1, 2, 3])], one)[1].tolist() == [0, 0, 0]


# -- extremes and bounds ---------------------------------------------------------------------------------------
@everywhere
@pytest.mark.parametrize("row", [ops.maximum, ops.minimum], ids=lambda row: row.name)
def test_extreme_of_nan_is_nan(where: Where, row: Any) -> None:
    assert np.isnan(where.run(row, f64([NAN, 1, NAN]), f64([1, NAN, NAN]))).all()
    assert np.isnan(where.run(row, f64([NAN]), 1.0)).all()
    assert np.isnan(where.run(row, 1.0, f64([NAN]))).all()


@everywhere
@pytest.mark.parametrize("row", [ops.maximum, ops.minimum], ids=lambda row: row.name)
def test_extreme_splits_the_gradient_at_equal_values(where: Where, row: Any) -> None:
    grads = gradients(where, row, [f64([1, 2, 3]), f64([1, 5, -5])], [f64([8, 8, 8])])
    first = [4, 0, 8] if row is ops.maximum else [4, 8, 0]
    assert grads[0].tolist() == first
    assert grads[1].tolist() == [8 - g for g in first]
    assert gradients(where, row, [f64([2.0]), 2.0], [f64([8])])[0].tolist() == [4]


@everywhere
def test_clamp_passes_the_gradient_at_the_bounds(where: Where) -> None:
    x, g = f64([-2, -1, 0, 1, 2]), [f64([3] * 5)]
    assert gradients(where, ops.clamp, [x, -1.0, 1.0], g)[0].tolist() == [0, 3, 3, 3, 0]
    assert gradients(where, ops.clamp_min, [x, -1.0], g)[0].tolist() == [0, 3, 3, 3, 3]
    assert gradients(where, ops.clamp_max, [x, 1.0], g)[0].tolist() == [3, 3, 3, 3, 0]


@everywhere
def test_clamp_of_nan_and_of_crossed_bounds(where: Where) -> None:
    assert np.isnan(where.run(ops.clamp, f64([NAN]), -1.0, 1.0)).all()
    assert np.isnan(where.run(ops.clamp_min, f64([NAN]), -1.0)).all()
    assert where.run(ops.clamp, f64([-5, 0, 5]), 2.0, -2.0).tolist() == [-2, -2, -2]
    assert where.run(ops.clamp, i8([-100, 3, 100]), -4, 5).tolist() == [-4, 3, 5]


# -- functions -----------------------------------------------------------------------------------------------------
@everywhere
def test_sign_of_nan_and_of_zeros_is_zero(where: Where) -> None:
    assert where.run(ops.sign, f64([NAN, 0.0, -0.0, INF, -INF])).tolist() == [0, 0, 0, 1, -1]
    assert where.run(ops.sign, u8([0, 200])).tolist() == [0, 1]


@everywhere
def test_abs_has_no_slope_at_zero_and_wraps_at_the_lowest_integer(where: Where) -> None:
    assert gradients(where, ops.abs, [f64([-2, 0, 2])], [f64([5, 5, 5])])[0].tolist() == [-5, 0, 5]
    assert where.run(ops.abs, i8([-128, -127])).tolist() == [-128, 127]


@everywhere
def test_round_goes_to_the_even_neighbour(where: Where) -> None:
    assert where.run(ops.round, f64([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.6])).tolist() == [-2, -2, 0, 0, 2, 2, 3]


@everywhere
def test_values_outside_the_domain(where: Where) -> None:
    for row, outside in (("sqrt", -1.0), ("rsqrt", -1.0), ("log", -1.0), ("log1p", -2.0), ("asin", 1.5), ("acos", -1.5),
                         ("acosh", 0.5), ("atanh", 2.0)):  # fmt: skip
        assert np.isnan(where.run(getattr(ops, row), f64([outside]))).all(), row
    for row, at, value in (("recip", 0.0, INF), ("recip", -0.0, -INF), ("rsqrt", 0.0, INF), ("log", 0.0, -INF),
                           ("log1p", -1.0, -INF), ("atanh", 1.0, INF), ("exp", 1000.0, INF)):  # fmt: skip
        assert where.run(getattr(ops, row), f64([at])).tolist() == [value], row


@everywhere
def test_erf_is_exact_to_float64_and_has_two_over_sqrt_pi_for_slope(where: Where) -> None:
    x = f64([-INF, -3.0, -1e-300, 0.0, 0.5, 5.0, INF])
    expected = np.array([math.erf(v) for v in x])
    assert np.abs(where.run(ops.erf, x) - expected).max() <= 2.3e-16
    assert np.isnan(where.run(ops.erf, f64([NAN]))).all()
    assert gradients(where, ops.erf, [f64([0.0])], [f64([3.0])])[0].tolist() == [3.0 * (2 / math.sqrt(math.pi))]


@everywhere
def test_erfinv_is_exact_and_infinite_at_both_ends(where: Where) -> None:
    x = f64([-1.0, -0.999999, -1e-300, 0.0, 0.5, 0.9999999999, 1.0])
    reference = pytest.importorskip("scipy.special", reason="the reference is scipy").erfinv(x)
    np.testing.assert_allclose(where.run(ops.erfinv, x), reference, rtol=4e-15)
    assert np.isnan(where.run(ops.erfinv, f64([NAN, 1.5, -INF]))).all()
    slopes = gradients(where, ops.erfinv, [f64([0.0, 0.5])], [f64([3.0, 1.0])])[0]
    half_root = math.sqrt(math.pi) / 2
    np.testing.assert_allclose(slopes, [3 * half_root, half_root * math.exp(reference[4] ** 2)], rtol=1e-14)


@everywhere
def test_logaddexp_of_large_and_infinite_numbers(where: Where) -> None:
    x, y = f64([1000.0, -1000.0, INF, -INF, INF, 0.0]), f64([1000.0, -1001.0, INF, -INF, -INF, -800.0])
    expected = [1000 + math.log(2), -1000 + math.log1p(math.exp(-1)), INF, -INF, INF, 0.0]
    np.testing.assert_allclose(where.run(ops.logaddexp, x, y), expected, rtol=1e-15)
    slopes = gradients(where, ops.logaddexp, [x, y], [np.ones(6)])
    dx, dy = slopes[0], slopes[1]
    np.testing.assert_allclose(dx, [0.5, 1 / (1 + math.exp(-1)), 0.5, 0.5, 1.0, 1.0], rtol=1e-15)
    np.testing.assert_allclose(dx + dy, np.ones(6), rtol=1e-15)


def test_erf_of_odd_arrays() -> None:
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
    erfs = special.erf(x.transpose(2, 0, 1)[::2])
    assert erfs.shape == (2, 2, 3)
    assert erfs.dtype == np.float32
    assert erfs[1, 0, 2] == np.float32(math.erf(x[0, 2, 2]))
    assert special.erf(np.array(0.5)).shape == ()
    assert special.erf(np.zeros((0, 3), np.float16)).dtype == np.float16


@everywhere
def test_atan2_knows_the_quadrants(where: Where) -> None:
    angles = where.run(ops.atan2, f64([1, 1, -1, -1, 0, -0.0]), f64([1, -1, -1, 1, -1, -1]))
    assert np.allclose(angles / math.pi, [0.25, 0.75, -0.75, -0.25, 1, -1], rtol=1e-15)


@everywhere
def test_hypot_does_not_overflow_between(where: Where) -> None:
    huge = 2.0**600
    assert where.run(ops.hypot, f64([3 * huge, -3.0]), f64([4 * huge, 4.0])).tolist() == [5 * huge, 5]


# -- comparison and logic ------------------------------------------------------------------------------------------
@everywhere
def test_nan_compares_false_except_for_not_equal(where: Where) -> None:
    x, y = f64([NAN, 1, NAN]), f64([1, NAN, NAN])
    for row in (ops.equal, ops.greater, ops.greater_equal, ops.lower, ops.lower_equal):
        assert not where.run(row, x, y).any(), row.name
        assert not where.run(row, 1.0, f64([NAN])).any(), row.name
    assert where.run(ops.not_equal, x, y).all()


@everywhere
def test_number_on_the_left_is_compared_the_right_way_round(where: Where) -> None:
    x = np.array([1, 2, 3])
    assert where.run(ops.greater, 2, x).tolist() == [True, False, False]
    assert where.run(ops.greater_equal, 2, x).tolist() == [True, True, False]
    assert where.run(ops.lower, 2, x).tolist() == [False, False, True]
    assert where.run(ops.lower_equal, 2, x).tolist() == [False, True, True]


@everywhere
def test_kinds_of_floats(where: Where) -> None:
    x = f64([1, INF, -INF, NAN])
    assert where.run(ops.is_nan, x).tolist() == [False, False, False, True]
    assert where.run(ops.is_inf, x).tolist() == [False, True, True, False]
    assert where.run(ops.is_finite, x).tolist() == [True, False, False, False]


@on_host
def test_shifts_beyond_the_width_leave_nothing_but_the_sign(where: Where) -> None:
    assert where.run(ops.bitwise_left_shift, i8([1, -1, 3]), i8([8, 9, 7])).tolist() == [0, 0, -128]
    assert where.run(ops.bitwise_right_shift, i8([100, -100, -1]), i8([8, 9, 7])).tolist() == [0, -1, -1]


@everywhere
def test_bits_of_negative_numbers(where: Where) -> None:
    assert where.run(ops.bitwise_not, i8([0, -1, 5])).tolist() == [-1, 0, -6]
    assert where.run(ops.bitwise_and, i8([-1, -2]), 6).tolist() == [6, 6]
    assert where.run(ops.bitwise_xor, i8([-1, 5]), i8([1, 5])).tolist() == [-2, 0]


# -- selection -----------------------------------------------------------------------------------------------------
@everywhere
def test_nan_that_is_not_chosen_spoils_no_gradient(where: Where) -> None:
    x, mask, value = f64([NAN, 1.0]), np.array([True, False]), f64([2.0, NAN])
    assert where.run(ops.mask_where, x, mask, value).tolist() == [2, 1]
    grads = gradients(where, ops.mask_where, [x, mask, value], [f64([3, 5])])
    assert (grads[0].tolist(), grads[2].tolist()) == ([0, 5], [3, 0])


@everywhere
def test_cast_goes_toward_zero_and_to_not_zero(where: Where) -> None:
    x = f64([-1.9, -0.5, 0.0, 0.5, 1.9])
    assert where.run(ops.cast, x, dtype=DType.I32).tolist() == [-1, 0, 0, 0, 1]
    assert where.run(ops.cast, x, dtype=DType.BOOL).tolist() == [True, True, False, True, True]
    assert where.run(ops.cast, np.array([True, False]), dtype=DType.F32).tolist() == [1, 0]


@everywhere
def test_gradient_comes_back_in_the_type_of_the_input(where: Where) -> None:
    x = np.array([1.5, -2.5], np.float32)
    grad = gradients(where, ops.cast, [x], [f64([0.1, 0.2])], dtype=DType.F64)[0]
    assert grad.dtype == np.float32
    assert grad.tolist() == np.array([0.1, 0.2], np.float32).tolist()


# -- numbers ---------------------------------------------------------------------------------------------------------
def test_examples_of_number_functions_hold() -> None:
    assert doctest.testmod(special).failed == 0


def test_number_functions_keep_the_kind_that_a_trace_expects() -> None:
    trace = Trace()
    whole, fraction = trace.input(INT_NUMBER), trace.input(FLOAT_NUMBER)
    assert ops.maximum(whole, fraction).spec is FLOAT_NUMBER
    assert ops.minimum(whole, 3).spec is INT_NUMBER
    assert ops.div(whole, 2).spec is FLOAT_NUMBER
    assert isinstance(ops.maximum(3, 1.0), float)
    assert isinstance(ops.minimum(3, 7), int)


# -- errors ------------------------------------------------------------------------------------------------------------
def explained(what: str, given: str, expected: str, mend: str) -> str:
    return f"{what}\n  given:    {given}\n  expected: {expected}\n  mend:     {mend}"


def spec(shape: tuple[int, ...], dtype: DType, place: str = "cpu") -> TensorSpec:
    return TensorSpec.of(shape, dtype, place)


def test_shapes_that_do_not_broadcast() -> None:
    message = explained(
        "mul: the shapes do not broadcast", r"x \(4, 3\) f32, y \(4, 5\) f32", ".*axis -1 has 3 and 5", "insert"
    )
    with pytest.raises(ShapeError, match=message):
        ops.mul.bind((spec((4, 3), DType.F32), spec((4, 5), DType.F32)), {})


def test_element_types_that_differ() -> None:
    message = explained("add: the element types differ", r"x \(2,\) f32, y \(2,\) f64", "one element type.*", "cast")
    with pytest.raises(DTypeError, match=message):
        ops.add.bind((spec((2,), DType.F32), spec((2,), DType.F64)), {})


def test_fractional_number_beside_integers() -> None:
    message = explained(
        "clamp: a float number beside i64 values",
        r"x \(2,\) i64, low a float number, high a int number",
        ".*i64.*",
        "convert",
    )
    with pytest.raises(DTypeError, match=message):
        ops.clamp.bind((spec((2,), DType.I64), FLOAT_NUMBER, INT_NUMBER), {})


@pytest.mark.parametrize(
    ("row", "dtype", "expected", "mend"),
    [
        (ops.exp, DType.I64, "x of type float: .*", r"x\.float\(\)"),
        (ops.bool_not, DType.I64, "x of type bool: bool", r"x\.bool\(\)"),
        (ops.bitwise_not, DType.F32, "x of type integer: .*", r"x\.int\(\)"),
        (ops.is_nan, DType.I32, "x of type float: .*", r"x\.float\(\)"),
        (ops.neg, DType.BOOL, "x of type float or integer: .*", r"x\.float\(\)"),
    ],
    ids=lambda x: x.name if hasattr(x, "name") else "",
)
def test_element_type_that_a_row_does_not_take(row: Any, dtype: DType, expected: str, mend: str) -> None:
    what = f"{row.name}: x has an element type that the operation does not take"
    message = explained(what, rf"x \(2,\) {dtype}", expected, f"cast it first, for example {mend}")
    with pytest.raises(DTypeError, match=message):
        row.bind((spec((2,), dtype),), {})


def test_mask_that_is_no_bool() -> None:
    with pytest.raises(DTypeError, match=r"mask_where: mask has an element type(.|\n)*mask of type bool"):
        ops.mask_where.bind((spec((2,), DType.F32), spec((2,), DType.I64), FLOAT_NUMBER), {})


def test_inputs_on_different_devices() -> None:
    message = explained(
        "add: the inputs lie on different devices", r"x \(2,\) f32 on cpu, y \(2,\) f32 on cuda:0", ".*", "move"
    )
    with pytest.raises(DeviceError, match=message):
        ops.add.bind((spec((2,), DType.F32), spec((2,), DType.F32, "cuda:0")), {})


def test_backward_rows_want_one_shape() -> None:
    message = explained("tanh_backward: the shapes differ", r"g \(2,\) f32, y \(1,\) f32", "one shape", "expand")
    with pytest.raises(ShapeError, match=message):
        ops.tanh_backward.bind((spec((2,), DType.F32), spec((1,), DType.F32)), {})


def test_half_types_round_once() -> None:
    leaf = LibTorch()
    for dtype in (DType.F16, DType.BF16):
        x = TensorData.of(np.linspace(0.5, 3, 64)).convert(dtype)
        primitive = leaf.from_data(x, "cpu")
        for row, exact in ((ops.sqrt, np.sqrt), (ops.exp, np.exp), (ops.log, np.log), (ops.tanh, np.tanh)):
            call = row.bind((leaf.spec(primitive),), {})
            output = leaf.into_data(leaf.execute(call, [primitive])[0])
            expected = TensorData.of(exact(x.values.astype(np.float64))).convert(dtype)
            assert output.array.tobytes() == expected.array.tobytes(), f"{row.name} {dtype}"
