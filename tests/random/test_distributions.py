"""The map from words to values: what is promised of each distribution, value by value and in the large."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.backend import LibTorch, NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.core.philox import fold, stream_of, words
from burn_torch.ops import REGISTRY, Value
from burn_torch.ops.sampling import (
    Host,
    bernoulli_map,
    integer_map,
    largest_below,
    normal_map,
    on_host,
    on_torch,
    threshold,
    uniform_map,
)
from burn_torch.ops.torch_types import TO_TORCH

KEY, STREAM = fold(2026, 11), stream_of("distributions")
CPU = torch.device("cpu")
FLOATS = [DType.F64, DType.F32, DType.F16, DType.BF16]


@pytest.fixture
def stats() -> Any:
    return pytest.importorskip("scipy.stats")


def draw(name: str, *parameters: Any, shape: Any = (3, 5), dtype: DType, leaf: Any = None, key: int = KEY) -> Any:
    backend = leaf or LibTorch()
    value = REGISTRY[name].run(
        backend, Value, (*parameters, key, STREAM), {"shape": shape, "dtype": dtype, "place": "cpu"}
    )
    data = backend.into_data(value.primitive)
    assert data.dtype is dtype
    assert data.shape == shape
    return data.values


def host(mapping: Any, raw: list[int]) -> Any:
    """Returns what a map makes of words that are chosen, not drawn."""
    return mapping.values(np.array(raw, np.uint32), Host)


ROWS = [
    ("uniform", (-0.5, 2.5), FLOATS),
    ("normal", (0.25, 1.5), FLOATS),
    ("bernoulli", (0.3,), [DType.BOOL, DType.F32, DType.F16, DType.I64, DType.U8]),
    ("randint", (-100, 27), [DType.I64, DType.I32, DType.I16, DType.I8]),
    ("dropout_mask", (0.3,), FLOATS),
]


@pytest.mark.parametrize(("name", "parameters", "dtype"), [(n, p, d) for n, p, ds in ROWS for d in ds])
def test_both_leaves_give_the_same_bits(name: str, parameters: Any, dtype: DType) -> None:
    ours = draw(name, *parameters, shape=(7, 1, 31), dtype=dtype)
    if dtype is DType.BF16:  # numpy has none: rounded from the float32 value
        single = draw(name, *parameters, shape=(7, 1, 31), dtype=DType.F32, leaf=NdArray())
        rounded = torch.from_numpy(single).bfloat16().float().numpy()
        expected = np.minimum(rounded, largest_below(2.5, dtype)) if name == "uniform" else rounded
    else:
        expected = draw(name, *parameters, shape=(7, 1, 31), dtype=dtype, leaf=NdArray())
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    ("mapping", "dtype"),
    [
        (uniform_map(-1.0, 3.0, DType.F32), DType.F32),
        (uniform_map(-1.0, 3.0, DType.F64), DType.F64),
        (bernoulli_map(0.3), DType.BOOL),
        (integer_map(-5, 17), DType.I64),
        (integer_map(-(2**63), 2**63 - 1), DType.I64),
        (integer_map(-(2**40), 2**41), DType.I64),
        (integer_map(0, 2**32), DType.I64),
    ],
)
def test_torch_formula_equals_numpy(mapping: Any, dtype: DType) -> None:
    """The formula for CUDA, run on torch's CPU, from an odd element on."""
    ours = on_host(mapping, KEY, STREAM, 12_345, 10_001, dtype.numpy)
    theirs = on_torch(mapping, KEY, STREAM, 12_345, 10_001, TO_TORCH[dtype], CPU)
    np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_normal_formula_of_torch_is_within_units_in_the_last_place(dtype: DType, place: str) -> None:
    mean, std = 0.5, 2.0
    mapping = normal_map(mean, std, dtype)
    ours = on_host(mapping, KEY, STREAM, 3, 100_001, dtype.numpy)
    theirs = on_torch(mapping, KEY, STREAM, 3, 100_001, TO_TORCH[dtype], torch.device(place)).cpu().numpy()
    scale = (abs(mean) + np.abs(ours - mean)).astype(dtype.numpy)
    # f64: one unit each for log, cos, sqrt and their product; the narrower f32 hides all of it but its own rounding
    assert np.all(np.abs(ours - theirs) <= (4 if dtype is DType.F64 else 1) * np.spacing(scale))


@pytest.mark.parametrize("name", ["random_bits", "uniform", "normal", "bernoulli", "randint", "dropout"])
@pytest.mark.gpu
def test_cuda_draws_what_the_cpu_draws(name: str) -> None:
    parameters: dict[str, Any] = {
        "uniform": (-1.0, 2.0),
        "normal": (0.0, 1.0),
        "bernoulli": (0.4,),
        "randint": (-9, 2**40),
        "random_bits": (),
    }
    leaf, results = LibTorch(), []
    for place in ("cpu", "cuda:0"):
        if name == "dropout":
            x = torch.linspace(-3, 3, 1000).to(place)
            drawn = REGISTRY[name](Value(leaf, x, leaf.spec(x)), 0.3, KEY, STREAM)
        else:
            attrs: dict[str, Any] = {"shape": (1000,), "place": place}
            attrs["dtype"] = {"bernoulli": DType.BOOL, "randint": DType.I64}.get(name, DType.F32)
            if name == "random_bits":
                del attrs["dtype"]
            drawn = REGISTRY[name].run(leaf, Value, (*parameters[name], KEY, STREAM), attrs)
        assert drawn.place == place
        results.append(leaf.into_data(drawn.primitive).values)
    ours, theirs = results
    if name == "normal":
        assert np.all(np.abs(ours - theirs) <= np.spacing(np.abs(ours)))
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("start", [1, 3, 2**32 + 1, 2**35 + 3])
@pytest.mark.parametrize(
    ("mapping", "dtype"),
    [
        (uniform_map(0.0, 1.0, DType.F32), "f4"),
        (uniform_map(0.0, 1.0, DType.F64), "f8"),
        (normal_map(0.0, 1.0, DType.F32), "f4"),
        (normal_map(0.0, 1.0, DType.F64), "f8"),
        (bernoulli_map(0.5), "?"),
        (integer_map(0, 10), "i8"),
        (integer_map(0, 2**40), "i8"),
    ],
)
def test_a_part_of_a_tensor_has_the_elements_of_the_whole(mapping: Any, dtype: str, start: int) -> None:
    """Also past 2^32 elements: each element is a function of its own index."""
    part = on_host(mapping, KEY, STREAM, start, 9, np.dtype(dtype))
    from_before = on_host(mapping, KEY, STREAM, start - 1, 12, np.dtype(dtype))
    np.testing.assert_array_equal(part, from_before[1:10])
    wanted = words(KEY, STREAM, start * mapping.words // 4 * 4, 8 + 10 * mapping.words)
    skipped = start - start * mapping.words // 4 * 4 // mapping.words
    whole = mapping.values(wanted[: wanted.size // 4 * 4], Host).astype(dtype)
    np.testing.assert_array_equal(part, whole[skipped : skipped + 9])


# -- uniform ---------------------------------------------------------------------------------------------
def test_uniform_of_chosen_words() -> None:
    single = host(uniform_map(0.0, 1.0, DType.F32), [0, 0xFF, 0x100, 0x8000_0000, 0xFFFF_FFFF])
    assert single.tolist() == [0.0, 0.0, 2.0**-24, 0.5, 1.0 - 2.0**-24]
    double = host(uniform_map(0.0, 1.0, DType.F64), [0, 63, 0, 64, 1 << 31, 0, 0xFFFF_FFFF, 0xFFFF_FFFF])
    assert double.tolist() == [0.0, 2.0**-53, 0.5, 1.0 - 2.0**-53]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, -1.0), (0.1, 0.7), (-1e-3, 0.0), (1000.0, 1001.0)])
def test_uniform_never_reaches_high(dtype: DType, low: float, high: float) -> None:
    """The largest word of all gives the largest value below `high`, where float arithmetic would round up to it."""
    cap = largest_below(high, dtype)
    top = host(uniform_map(low, high, dtype), [0xFFFF_FFFF] * 4)
    assert top.max() <= cap < high
    drawn = draw("uniform", low, high, shape=(4096,), dtype=dtype)
    assert drawn.max() < high
    assert drawn.min() >= torch.tensor(low, dtype=torch.float64).to(TO_TORCH[dtype]).double()


@pytest.mark.parametrize("limit", [1.0, -1.0, 0.0, 0.1, -0.1, 3.0e-5, 1000.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_largest_below_has_no_value_between(limit: float, dtype: DType) -> None:
    theirs = TO_TORCH[dtype]
    limit_below = torch.tensor(largest_below(limit, dtype), dtype=torch.float64).to(theirs)
    assert limit_below.double().item() == largest_below(limit, dtype) < limit
    assert torch.nextafter(limit_below, torch.tensor(math.inf, dtype=theirs)).double().item() >= limit


def test_uniform_moments_and_shape(stats: Any) -> None:
    for dtype in (DType.F32, DType.F64):
        drawn = draw("uniform", -1.0, 3.0, shape=(200_000,), dtype=dtype).astype(np.float64)
        assert stats.kstest(drawn, stats.uniform(-1, 4).cdf).pvalue > 1e-3
        assert abs(drawn.mean() - 1.0) < 4 * (4 / math.sqrt(12)) / math.sqrt(drawn.size)
        assert abs(drawn.var() - 16 / 12) < 4 * math.sqrt(1 / 180) * 16 / math.sqrt(drawn.size)


# -- normal ----------------------------------------------------------------------------------------------
def test_normal_is_box_muller_of_word_pairs() -> None:
    raw = [0x8000_0000, 0x2000_0000, 0xFFFF_FFFF, 0, 0, 0x1234_5678, 7, 0xC000_0000]
    expected = []
    for a, b in zip(raw[0::2], raw[1::2], strict=True):
        radius, angle = math.sqrt(-2 * math.log(1 - a / 2**32)), 2 * math.pi * (b / 2**32)
        expected += [3 + 2 * radius * math.cos(angle), 3 + 2 * radius * math.sin(angle)]
    np.testing.assert_allclose(host(normal_map(3.0, 2.0, DType.F32), raw), expected, rtol=0, atol=1e-14)
    assert np.isfinite(expected).all()


def test_normal_tails_are_where_they_are_said_to_be() -> None:
    single = host(normal_map(0.0, 1.0, DType.F32), [0xFFFF_FFFF, 0, 0, 0])
    double = host(normal_map(0.0, 1.0, DType.F64), [0xFFFF_FFFF, 0xFFFF_FFFF, 0, 0])
    assert single[0] == pytest.approx(math.sqrt(64 * math.log(2)))
    assert double[0] == pytest.approx(math.sqrt(106 * math.log(2)))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_normal_moments_and_shape(dtype: DType, stats: Any) -> None:
    drawn = draw("normal", 1.0, 2.0, shape=(200_000,), dtype=dtype).astype(np.float64)
    z = (drawn - 1.0) / 2.0
    assert stats.kstest(z, "norm").pvalue > 1e-3
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 4 * math.sqrt(variance / z.size)
    assert abs(np.corrcoef(z[0::2], z[1::2])[0, 1]) < 4 / math.sqrt(z.size / 2)
    assert abs(np.corrcoef(z[0::2] ** 2, z[1::2] ** 2)[0, 1]) < 4 / math.sqrt(z.size / 2)


def test_normal_past_the_largest_float_is_infinite() -> None:
    drawn = draw("normal", 0.0, 1e38, shape=(4096,), dtype=DType.F32)
    assert np.isinf(drawn).any()
    assert not np.isnan(drawn).any()


def test_normal_without_spread_is_the_mean() -> None:
    np.testing.assert_array_equal(draw("normal", 3.5, 0.0, dtype=DType.F32), np.full((3, 5), 3.5))


# -- bernoulli -------------------------------------------------------------------------------------------
def test_bernoulli_compares_words_with_an_integer() -> None:
    limit = threshold(0.3)
    assert abs(Fraction(limit, 2**32) - Fraction(0.3)) <= Fraction(1, 2**33)
    assert host(bernoulli_map(0.3), [0, limit - 1, limit, 2**32 - 1]).tolist() == [True, True, False, False]
    assert host(bernoulli_map(1.0), [0, 2**31, 2**32 - 1]).all()
    assert not host(bernoulli_map(0.0), [0, 2**31, 2**32 - 1]).any()


@pytest.mark.parametrize("leaf", [LibTorch(), NdArray()])
@pytest.mark.parametrize("prob", [0, 1, 0.0, 1.0])
def test_bernoulli_of_zero_is_never_and_of_one_always(leaf: Any, prob: float) -> None:
    np.testing.assert_array_equal(draw("bernoulli", prob, shape=(999,), dtype=DType.F32, leaf=leaf), prob)


@pytest.mark.parametrize("prob", [0.01, 0.3, 0.5, 0.9])
def test_bernoulli_frequency(prob: float, stats: Any) -> None:
    drawn = draw("bernoulli", prob, shape=(200_000,), dtype=DType.BOOL)
    assert stats.binomtest(int(drawn.sum()), drawn.size, prob).pvalue > 1e-3


# -- randint ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-7, 9), (0, 1), (5, 5 + 2**32), (-(2**63), 2**63 - 1), (0, 3 * 2**61), (-3, 2**32 - 2)]
)
def test_randint_is_the_high_part_of_the_product(low: int, high: int) -> None:
    mapping = integer_map(low, high)
    assert mapping.words == (2 if high - low <= 2**32 else 4)  # else some values would be likelier than others
    raw = words(KEY, STREAM, 0, 64).tolist()
    raw[:4], raw[4:8] = [0] * 4, [2**32 - 1] * 4
    integers = host(mapping, raw).view(np.int64).tolist()
    bits = 32 * mapping.words
    for i, value in enumerate(integers):
        number = sum(raw[mapping.words * i + j] << 32 * j for j in range(mapping.words))
        assert value == low + (number * (high - low) >> bits)
    assert min(integers) == low
    assert max(integers) == high - 1


def test_randint_frequency(stats: Any) -> None:
    drawn = draw("randint", -3, 8, shape=(110_000,), dtype=DType.I64)
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == 11
    assert stats.chisquare(counts).pvalue > 1e-3


# -- bits ------------------------------------------------------------------------------------------------
def test_bits_are_even_and_bytes_are_even(stats: Any) -> None:
    drawn = words(KEY, STREAM, 0, 1 << 18)
    ones = np.array([(drawn >> np.uint32(bit) & np.uint32(1)).sum() for bit in range(32)])
    z = (ones - drawn.size / 2) / math.sqrt(drawn.size / 4)
    assert stats.chi2(32).sf(float((z**2).sum())) > 1e-3
    assert stats.chisquare(np.bincount(drawn.view(np.uint8), minlength=256)).pvalue > 1e-3


def test_random_bits_are_the_words() -> None:
    value = REGISTRY["random_bits"].run(NdArray(), Value, (KEY, STREAM), {"shape": (2, 3), "place": "cpu"})
    assert value.primitive.tolist() == words(KEY, STREAM, 0, 6).reshape(2, 3).tolist()


def test_neighbouring_keys_streams_and_steps_are_independent(stats: Any) -> None:
    size = 50_000
    base = on_host(normal_map(0.0, 1.0, DType.F32), KEY, STREAM, 0, size, np.dtype("f4"))
    others = [(KEY + 1, STREAM), (KEY, STREAM + 1), (fold(2026, 12), STREAM), (KEY, stream_of("distributions#1"))]
    for key, stream in others:
        other = on_host(normal_map(0.0, 1.0, DType.F32), key, stream, 0, size, np.dtype("f4"))
        assert abs(np.corrcoef(base, other)[0, 1]) < 4 / math.sqrt(size)
        assert not np.array_equal(base[1:], other[:-1])
    table = np.zeros((2, 2))
    one, two = (words(KEY, STREAM + i, 0, size) >> np.uint32(31) for i in (0, 1))
    np.add.at(table, (one, two), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


# -- errors ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("leaf", [LibTorch(), NdArray()])
@pytest.mark.parametrize(
    ("name", "parameters", "dtype", "match"),
    [
        ("bernoulli", (1.5,), DType.BOOL, r"(?s)bernoulli: the probability.*given:    1\.5.*from 0 to 1.*mend: "),
        ("bernoulli", (math.nan,), DType.BOOL, r"(?s)given:    nan.*expected: .*mend: "),
        ("dropout_mask", (-0.1,), DType.F32, r"(?s)dropout: the probability.*given:    -0\.1.*expected.*mend: "),
        ("uniform", (1.0, 1.0), DType.F32, r"(?s)uniform: the range is empty.*low 1\.0, high 1\.0.*low < high.*mend: "),
        ("uniform", (0.0, math.inf), DType.F32, r"(?s)uniform: the range.*high inf.*both finite.*mend: "),
        (
            "uniform",
            (0.0, 7e4),
            DType.F16,
            r"(?s)uniform: the range does not fit.*high 70000\.0, f16.*at most 65504 in.*mend: ",
        ),
        (
            "uniform",
            (-2e38, 2e38),
            DType.F32,
            r"(?s)uniform: the range does not fit.*at most 3\.40282e\+38 apart.*mend: ",
        ),
        ("normal", (0.0, -1.0), DType.F32, r"(?s)normal: the parameters.*std -1\.0.*deviation >= 0.*mend: "),
        ("randint", (5, 5), DType.I64, r"(?s)randint: the range is empty.*low 5, high 5, i64.*low < high.*mend: "),
        ("randint", (0, 129), DType.I8, r"(?s)randint: .*high 129, i8.*<= 128; high itself.*mend: "),
        ("randint", (0, 2**63), DType.I64, r"(?s)randint: .*expected: .*<= 9223372036854775807.*mend: "),
    ],
)
def test_parameters_out_of_range(leaf: Any, name: str, parameters: Any, dtype: DType, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        draw(name, *parameters, dtype=dtype, leaf=leaf)


def test_types_that_cannot_be_drawn_and_keys_that_are_no_integers() -> None:
    with pytest.raises(DTypeError, match=r"(?s)uniform: i64 values cannot be drawn.*given: .*expected: float.*mend: "):
        draw("uniform", 0.0, 1.0, dtype=DType.I64)
    with pytest.raises(DTypeError, match=r"(?s)randint: f32 values cannot be drawn.*expected: integer.*mend: "):
        draw("randint", 0, 5, dtype=DType.F32)
    with pytest.raises(DTypeError, match=r"(?s)randint: high is a float number.*expected: high: a whole.*int\(high\)"):
        draw("randint", 0, 5.0, dtype=DType.I64)
    with pytest.raises(DTypeError, match=r"(?s)bernoulli: key is a float number.*expected: key: a whole.*fold"):
        draw("bernoulli", 0.5, dtype=DType.BOOL, key=0.5)  # type: ignore[arg-type]
