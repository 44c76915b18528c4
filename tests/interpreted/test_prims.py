"""The functions that kernels share, against float64 over the range of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")
special: Any = pytest.importorskip("scipy.special")

from burn_kernels import prims, prims_apart  # noqa: E402  # after the check for triton

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _apply(x_ptr: Any, y_ptr: Any, count: Any, FUNCTION: tl.constexpr, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(y_ptr + at, FUNCTION(x), mask=at < count)


def numbers() -> np.ndarray[Any, np.dtype[np.float32]]:
    sizes = 10.0 ** np.linspace(-38, 38, 4001)
    special_cases = [0.0, np.inf, -np.inf, np.nan]
    grids: list[Any] = [np.linspace(-100, 100, 40001), np.linspace(-1, 1, 20001), sizes, -sizes, special_cases]
    return np.concatenate(grids).astype(np.float32)


def in_units(actual: Any, exact: Any) -> Any:
    """The distance in units in the last place of the exact result as a float32; 0 where both are no finite number."""
    nearest = exact.astype(np.float32)
    plain = np.isfinite(nearest) & (np.abs(nearest) > 2e-38)  # below, results may be flushed to 0
    same = (nearest == actual) | (np.isnan(nearest) & np.isnan(actual)) | (np.abs(exact) <= 2e-38)
    distance = np.abs(actual - exact) / np.spacing(np.abs(np.where(plain, nearest, 1.0)))
    return np.where(plain, distance, np.where(same, 0.0, np.inf))


@pytest.mark.parametrize(
    ("function", "exact", "units"),
    [
        (prims.exp, np.exp, 1.0),
        (prims.expm1, np.expm1, 2.0),
        (prims.log1p, np.log1p, 4.0),
        (prims.tanh, np.tanh, 3.0),
        (prims.erf, special.erf, 2.0),
        (prims.sigmoid, special.expit, 4.0),
        (prims_apart.exp, np.exp, 1.0),
        (prims_apart.expm1_odd, np.expm1, 2.0),
        (prims_apart.tanh_odd, np.tanh, 3.0),
        (prims_apart.erf, special.erf, 2.0),
        (prims_apart.sigmoid_tail, special.expit, 4.0),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_function_is_as_exact_as_documented(function: Any, exact: Callable[..., Any], units: float) -> None:
    x = torch.from_numpy(numbers())
    y = torch.empty_like(x)
    _apply[(1,)](x, y, len(x), FUNCTION=function, BLOCK=1 << 17)
    with np.errstate(all="ignore"):
        truth = exact(x.numpy().astype(np.float64))
        worst = in_units(y.numpy().astype(np.float64), truth)
    at = int(np.argmax(worst))
    assert worst[at] <= units, f"{worst[at]} units at {x[at].item()}: {y[at].item()}, exact {truth[at]}"


def test_exponential_is_within_a_unit_down_to_results_that_are_no_normal_numbers() -> None:
    # 0.87 units were found in 33 million arguments, 0.81 of the smallest number below exp(-87.34)
    x = torch.linspace(-103.97, 88.72, 1 << 18)
    y = torch.empty_like(x)
    _apply[(2,)](x, y, len(x), FUNCTION=prims.exp, BLOCK=1 << 17)
    exact = np.exp(x.numpy().astype(np.float64))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    worst = np.abs(y.numpy().astype(np.float64) - exact) / unit
    assert worst.max() <= 0.9, f"{worst.max()} units at {x[int(np.argmax(worst))].item()}"
    assert unit.min() == 2.0**-149


@pytest.mark.parametrize("x", [-80.0, -10.0, -1.0, 0.0, 1.0, 10.0, 80.0])
def test_fast_exponential_loses_one_unit_per_size_of_its_argument(x: float) -> None:
    out = torch.empty(1)
    _apply[(1,)](torch.tensor([x]), out, 1, FUNCTION=prims.exp_fast, BLOCK=1)
    units = in_units(out.numpy().astype(np.float64), np.exp(np.array([x])))
    assert units[0] <= abs(x) + 2


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _turn(turn_ptr: Any, sin_ptr: Any, cos_ptr: Any, count: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    sine, cosine = prims.sin_cos_of_turn(tl.load(turn_ptr + at, mask=at < count, other=0))
    tl.store(sin_ptr + at, sine, mask=at < count)
    tl.store(cos_ptr + at, cosine, mask=at < count)


def test_sine_and_cosine_of_every_part_of_a_turn() -> None:
    edges = [k * 2**29 + d for k in range(-4, 4) for d in (-1, 0, 1) if k * 2**29 + d >= -(2**31)]
    spread = np.linspace(-(2**31), 2**31 - 1, 60_001).round()
    turn = np.concatenate([np.array(edges, dtype=np.float64), spread]).astype(np.int32)
    sine, cosine = torch.empty(len(turn)), torch.empty(len(turn))
    _turn[(1,)](torch.from_numpy(turn), sine, cosine, len(turn), BLOCK=1 << 16)
    angle = turn.astype(np.float64) * (2.0 * np.pi / 2.0**32)
    for curve, exact in ((sine, np.sin(angle)), (cosine, np.cos(angle))):
        # past an eighth of a turn the other function is taken, so neither is near 0 but where it is exact
        far = np.abs(exact) > 1e-12
        assert in_units(curve.numpy().astype(np.float64)[far], exact[far]).max() <= 3.0
        assert np.abs(curve.numpy()[~far]).max() <= 1e-12


def test_normal_share_for_half_types() -> None:
    x = torch.cat([torch.linspace(-20, 20, 40_001), torch.tensor([torch.inf, -torch.inf, torch.nan])])
    y = torch.empty_like(x)
    _apply[(1,)](x, y, len(x), FUNCTION=prims.normal_cdf_fast, BLOCK=1 << 16)
    exact = special.ndtr(x.double().numpy())
    assert (np.abs(y.numpy()[:-1] - exact[:-1]) <= 5e-5 * np.maximum(exact[:-1], 2e-4)).all()
    assert torch.isnan(y[-1])


def bfloat16s() -> torch.Tensor:
    """All 65,536 numbers of bfloat16, as float32."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()


@pytest.mark.parametrize(
    ("function", "exact"),
    [(prims.erf_short, special.erf), (prims.tanh_short, np.tanh), (prims.sigmoid_short, special.expit)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_short_functions_are_right_for_every_bfloat16(function: Any, exact: Callable[..., Any]) -> None:
    """Before they are rounded they are a tenth of a unit off, so the rounded result is the right one or next to it."""
    x = bfloat16s()
    y = torch.empty_like(x)
    _apply[(1,)](x, y, len(x), FUNCTION=function, BLOCK=1 << 16)
    with np.errstate(all="ignore"):
        expected = exact(x.double().numpy())
    assert torch.equal(y.isnan(), torch.from_numpy(np.isnan(expected)))
    normal = np.abs(expected) >= 2.0**-126  # below, results may be flushed to 0
    assert np.nanmax(np.abs(y.double().numpy() - expected)[~normal], initial=0.0) <= 2.0**-126
    unit = 2.0 ** (np.floor(np.log2(np.abs(expected[normal]))) - 7)
    assert np.max(np.abs(y.double().numpy() - expected)[normal] / unit) <= 0.1
    rounded, nearest = y.bfloat16().double().numpy(), torch.from_numpy(expected).bfloat16().double().numpy()
    assert np.max(np.abs(rounded - nearest)[normal] / unit) <= 1.0


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _divide(x_ptr: Any, y_ptr: Any, divisor: Any, inverse: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, prims.divided_by(tl.load(x_ptr + at), divisor, inverse))


@pytest.mark.parametrize("number", [2.0, 49.0, 0.1, -3.0, 3e38, 0.0, -0.0, float("inf"), float("nan"), 2.0**-126])
def test_division_by_a_number(number: float) -> None:
    from burn_torch.fusion.body.numbers import _divisor, _inverse

    odd = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])
    x = torch.cat([torch.linspace(-100, 100, 4091), odd])
    y = torch.empty_like(x)
    _divide[(1,)](x, y, _divisor(number), _inverse(number), BLOCK=4096)
    exact = x / torch.tensor(number)
    # the interpreter's fma rounds twice, so a last digit may differ there
    torch.testing.assert_close(y, exact, rtol=1.2e-7, atol=1e-43, equal_nan=True)


def test_division_is_of_infinities_too() -> None:
    x = torch.tensor([float("inf"), -float("inf"), 1.0, 0.0])
    y = torch.empty_like(x)
    _quotients[(1,)](x, y, torch.tensor([2.0, 2.0, float("inf"), 0.0]), BLOCK=4)
    torch.testing.assert_close(y, torch.tensor([float("inf"), -float("inf"), 0.0, float("nan")]), equal_nan=True)


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _quotients(x_ptr: Any, y_ptr: Any, z_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, prims.divided(tl.load(x_ptr + at), tl.load(z_ptr + at)))


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _inverse_roots(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, prims.inverse_root(tl.load(x_ptr + at), tl.float32))


def test_inverse_root_of_all_sizes() -> None:
    # the interpreter rounds the products that a GPU does not
    x = torch.cat([torch.logspace(-44, 38, 8188), torch.tensor([0.0, float("inf"), float("nan"), -1.0])])
    y = torch.empty_like(x)
    _inverse_roots[(1,)](x, y, BLOCK=8192)
    exact = x.double().rsqrt()
    assert torch.equal(y[-4:].nan_to_num(nan=-2.0), exact[-4:].float().nan_to_num(nan=-2.0))
    assert ((y.double() / exact)[:-4] - 1.0).abs().max() <= 2 * torch.finfo(torch.float32).eps
