"""TensorData: values on the host, their types, their comparison."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from burn_torch import DType, TensorData
from burn_torch.core.distribution import Distribution
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.tolerance import Tolerance

DTYPES = [DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.I16, DType.I8, DType.U64,
          DType.U32, DType.U16, DType.U8, DType.BOOL]  # fmt: skip


# -- making ------------------------------------------------------------------------------------------------
def test_of_values_and_shape() -> None:
    data = TensorData.new([1, 2, 3, 4, 5, 6], (2, 3))
    assert data == TensorData.of([[1, 2, 3], [4, 5, 6]])
    assert data.dtype is DType.I64
    assert TensorData.new(range(4), [2, 2], DType.F16).to_list() == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(ShapeError, match=r"(?s)the values do not fill the shape.*3 values for \(2, 2\).*4 values"):
        TensorData.new([1, 2, 3], (2, 2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constants(dtype: DType) -> None:
    assert TensorData.zeros((2, 1), dtype).to_vec() == [0, 0]
    assert TensorData.ones([3], dtype).to_vec() == [1, 1, 1]
    assert TensorData.full((), 1, dtype).to_list() == 1
    assert {TensorData.zeros((2,), dtype).dtype, TensorData.ones((), dtype).dtype} == {dtype}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_and_pickles_bring_every_type_back(dtype: DType) -> None:
    data = TensorData.of([[0, 1, 2], [3, 100, 1]], dtype)
    raw = data.to_bytes()
    assert len(raw) == 6 * dtype.itemsize
    assert TensorData.from_bytes(raw, (2, 3), dtype) == data
    assert TensorData.from_bytes(bytearray(raw), (6,), dtype).to_vec() == data.to_vec()
    assert pickle.loads(pickle.dumps(data)) == data
    with pytest.raises(ShapeError, match=r"(?s)the bytes do not fill the shape.*bytes for \(7,\)"):
        TensorData.from_bytes(raw, (7,), dtype)


def test_bytes_are_little_endian_and_row_major() -> None:
    assert TensorData.of([[1, 2], [3, 4]], DType.I16).to_bytes() == bytes([1, 0, 2, 0, 3, 0, 4, 0])
    turned = TensorData(np.array([[1, 2], [3, 4]], np.int16).T, DType.I16)
    assert turned.to_bytes() == bytes([1, 0, 3, 0, 2, 0, 4, 0])
    assert TensorData.of([1.0], DType.BF16).to_bytes() == bytes([0x80, 0x3F])


def test_random_data_follow_the_distribution_and_the_generator() -> None:
    def draw(distribution: Distribution, dtype: DType = DType.F32) -> TensorData:
        return TensorData.random((4000,), distribution, np.random.default_rng(1), dtype)

    assert draw(Distribution.Default) == draw(Distribution.Default)
    draw(Distribution.Default).assert_within_range(0.0, 1.0)
    draw(Distribution.Uniform(-2.0, 3.0)).assert_within_range(-2.0, 3.0)
    assert set(draw(Distribution.Uniform(-2.0, 3.0), DType.I32).to_vec()) == {-2, -1, 0, 1, 2}
    assert set(draw(Distribution.Bernoulli(0.5)).to_vec()) == {0.0, 1.0}
    normal = draw(Distribution.Normal(5.0, 2.0), DType.F64).values
    assert normal.mean() == pytest.approx(5.0, abs=5 * 2.0 / 4000**0.5)  # five standard errors
    assert normal.std() == pytest.approx(2.0, abs=5 * 2.0 / 8000**0.5)
    assert draw(Distribution.Default, DType.U8).values.max() == 254
    assert draw(Distribution.Default, DType.BOOL).dtype is DType.BOOL


def test_errors_of_values() -> None:
    with pytest.raises(ShapeError, match=r"(?s)the rows have different lengths.*pad the shorter"):
        TensorData.of([[1, 2], [3]])
    with pytest.raises(DTypeError, match=r"(?s)these values are no numbers of ours"):
        TensorData.of(["a"])
    with pytest.raises(DTypeError, match=r"(?s)the array does not hold this element type.*float64 as f32"):
        TensorData(np.zeros(2), DType.F32)


def test_items_that_fail_without_a_word_are_named_by_their_fault() -> None:
    class Silent:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise TypeError

    with pytest.raises(DTypeError, match="of which numpy says: TypeError"):
        TensorData.of([Silent()])


# -- reading ------------------------------------------------------------------------------------------------
def test_views_share_and_guard_the_array() -> None:
    data = TensorData.of([[1.0, 2.0], [3.0, 4.0]])
    assert data.view()[1, 0] == 3.0
    assert data.as_slice().tolist() == data.to_vec() == list(data.iter()) == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="read-only"):
        data.view()[0, 0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        data.as_slice()[0] = 9.0
    data.mut_view()[0, 0] = 5.0
    data.as_mut_slice()[3] = 6.0
    assert data.to_list() == [[5.0, 2.0], [3.0, 6.0]]
    assert data.num_elements == 4
    guarded = TensorData(data.view(), DType.F32)
    with pytest.raises(DTypeError, match=r"(?s)this array is read-only.*copy it first"):
        guarded.mut_view()
    with pytest.raises(DTypeError, match=r"(?s)do not lie in row-major order.*mut_view"):
        TensorData(np.zeros((2, 3)).T, DType.F64).as_mut_slice()


def test_numpy_reads_values() -> None:
    assert np.asarray(TensorData.of([1.5], DType.BF16)).tolist() == [1.5]
    assert repr(TensorData.of([1, 2])) == "TensorData([1, 2], shape=(2,), dtype=i64)"


# -- conversion ------------------------------------------------------------------------------------------------
def test_conversion_cuts_toward_zero_and_asks_for_not_zero() -> None:
    data = TensorData.of([-1.9, 0.0, 2.5])
    assert data.convert(DType.I32).to_vec() == [-1, 0, 2]
    assert data.convert_dtype(DType.BOOL).to_vec() == [True, False, True]
    assert data.convert(DType.F32) is data


def test_try_cast_keeps_every_value_or_refuses() -> None:
    assert TensorData.of([1.0, -2.0]).try_cast(DType.I8).to_vec() == [1, -2]
    assert np.isnan(TensorData.of([float("nan")], DType.F64).try_cast(DType.F16).to_vec()[0])
    for values, source, target in (
        ([0.5], DType.F32, DType.I32),
        ([300], DType.I64, DType.U8),
        ([-1], DType.I64, DType.U64),
        ([2**53 + 1], DType.I64, DType.F64),
        ([0.1], DType.F64, DType.F32),
        ([2], DType.I64, DType.BOOL),
        ([float("inf")], DType.F32, DType.I64),
    ):
        with pytest.raises(DTypeError, match=r"(?s)try_cast: a value would change.*data.convert"):
            TensorData.of(values, source).try_cast(target)


# -- comparison ------------------------------------------------------------------------------------------------
def test_equal_data() -> None:
    nan = TensorData.of([1.0, float("nan")])
    nan.assert_eq(TensorData.of([1.0, float("nan")]))
    nan.assert_eq(nan.convert(DType.F64), strict=False)
    assert nan != nan.convert(DType.F64)
    with pytest.raises(AssertionError, match="element types differ: f32 and f64"):
        nan.assert_eq(nan.convert(DType.F64))
    with pytest.raises(AssertionError, match=r"shapes differ: \(1,\) and \(2,\)"):
        TensorData.of([1]).assert_eq(TensorData.of([1, 1]))
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        TensorData.of([1]).assert_eq(TensorData.of([2]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(nan)


def test_near_data_and_the_report_of_those_apart() -> None:
    x = TensorData.of([[1.0, 100.0], [float("nan"), float("inf")]])
    x.assert_approx_eq(TensorData.of([[1.004, 100.5], [float("nan"), float("inf")]]))
    with pytest.raises(AssertionError, match=r"(?s)not near, by Tolerance.*at \[0, 1\]: 100.0 and 102.0, 2 apart"):
        x.assert_approx_eq(TensorData.of([[1.0, 102.0], [float("nan"), float("inf")]]))
    with pytest.raises(AssertionError, match=r"at \[1, 1\]: inf and -inf"):
        x.assert_approx_eq(TensorData.of([[1.0, 100.0], [float("nan"), float("-inf")]]))
    with pytest.raises(AssertionError, match="and 3 more"):
        TensorData.zeros((8,)).assert_approx_eq(TensorData.ones((8,)))
    with pytest.raises(AssertionError, match="shapes differ"):
        x.assert_approx_eq(TensorData.ones((2,)))
    with pytest.raises(AssertionError, match=r"at \[\]: 1.0 and 2.0"):
        TensorData.of(1.0).assert_approx_eq(TensorData.of(2.0))


def test_tolerances() -> None:
    def near(a: float, b: float, tolerance: Tolerance) -> bool:
        return bool(tolerance.near(np.array(a), np.array(b), DType.F32))

    tiny = float(np.finfo(np.float32).tiny)
    assert near(0.0, 63 * tiny, Tolerance.strict())
    assert not near(0.0, 65 * tiny, Tolerance.strict())
    assert near(1.0, 1.009, Tolerance.balanced())  # 0.5 % of |1 + 1.009|
    assert not near(1.0, 1.011, Tolerance.balanced())
    assert near(0.0, 0.009, Tolerance.permissive())
    assert near(2.0, 2.05, Tolerance.absolute(0.1))
    assert not near(2.0, 2.2, Tolerance.absolute(0.1))
    assert near(1e6, 1.01e6, Tolerance.relative(0.01))
    assert not near(0.0, 1e-9, Tolerance.relative(0.01))
    assert Tolerance.rel_abs(0.1, 0.2) == Tolerance(0.1, 0.2)
    with pytest.raises(ArgumentError, match=r"(?s)Tolerance: a part is out of range.*relative 2.0.*one percent"):
        Tolerance.relative(2.0)


def test_ranges() -> None:
    data = TensorData.of([0.0, 0.5, 1.0])
    data.assert_within_range_inclusive(0.0, 1.0)
    data.assert_within_range(0.0, 1.5)
    with pytest.raises(AssertionError, match=r"1.0 is not within 0.0 <= value < 1.0"):
        data.assert_within_range(0.0, 1.0)
    with pytest.raises(AssertionError, match=r"0.0 is not within 0.1 <= value <= 1.0"):
        data.assert_within_range_inclusive(0.1, 1.0)
    with pytest.raises(AssertionError, match="nan is not within"):
        TensorData.of([float("nan")]).assert_within_range(0.0, 1.0)
