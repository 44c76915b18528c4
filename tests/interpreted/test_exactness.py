"""Cases in which a rounded number between two kernels, or a difference of near numbers, shows in a float32 result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")

from burn_kernels import attention, batch_norm, group_norm, reduce  # noqa: E402  # after the check for triton
from burn_kernels.channel_norm.scaling import activated  # noqa: E402
from burn_kernels.reduce.kernels import _log_wide  # noqa: E402
from burn_kernels.spec import Draw  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")


def off(actual: torch.Tensor, exact: torch.Tensor) -> float:
    return float((actual.double() - exact).abs().max() / exact.abs().max())


def test_the_gradient_of_logsumexp_does_not_take_the_rounded_result() -> None:
    # half of the last place of 17 is 9.5e-7 of every gradient
    x = (Draw(1).normal(8, 300) + 11.7).float()
    y, lse = reduce.logsumexp(x, 1)
    assert (y.dtype, lse.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(lse, x.double().logsumexp(1), rtol=0.0, atol=1e-7)
    dy = torch.ones(8)
    exact = torch.softmax(x.double(), 1)
    assert off(reduce.logsumexp_backward(dy, x, lse, 1), exact) < 2.5e-7
    assert off(reduce.logsumexp_backward(dy, x, y, 1), exact) > 4e-7  # so the limit above can be missed


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _logarithms(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, _log_wide(tl.load(x_ptr + at)))


def test_a_logarithm_in_float64() -> None:
    x = torch.cat([torch.logspace(-37, 38, 4090), torch.tensor([0.0, 1.0, 2.0, 0.70710677, 0.7071068, 1.4142135])])
    y = torch.empty(4096, dtype=torch.float64)
    _logarithms[(1,)](x, y, BLOCK=4096)
    torch.testing.assert_close(y, x.double().log(), rtol=1e-11, atol=1e-12)


def test_groups_of_few_numbers_that_lie_close_together() -> None:
    # a mean of 3 is rounded by 1.2e-7 at most, rstd is 300: 3.6e-5 of each normalized number
    draw = Draw(2)
    x = (3.0 + 1e-3 * draw.normal(32, 8, 1)).float()
    w, b = draw.normal(8).float(), draw.normal(8).float()
    y, mean, rstd = group_norm.forward(x, w, b, 2, activation="silu")
    assert mean.dtype == rstd.dtype == torch.float64
    dy = draw.normal(32, 8, 1).float()
    exact = group_norm.reference(x.double(), w.double(), b.double(), 2, activation="silu")
    assert off(y, exact[0]) < 2e-6
    wide = (dy.double(), x.double(), w.double(), b.double(), *exact[1:])
    dx = group_norm.backward(dy, x, w, b, mean, rstd, activation="silu")[0]
    assert off(dx, group_norm.reference_backward(*wide, activation="silu")[0]) < 2e-6


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _slopes(x_ptr: Any, y_ptr: Any, dy_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    y, slope = activated(tl.load(x_ptr + at), "silu", tl.float32)
    tl.store(y_ptr + at, y)
    tl.store(dy_ptr + at, slope)


def test_the_slope_of_silu_has_no_cancellation() -> None:
    # 1 - sigmoid(8) by a difference is off by a part in 6000, and the slope by six units
    z = torch.linspace(-30.0, 30.0, 8192)
    y, slope = torch.empty_like(z), torch.empty_like(z)
    _slopes[(1,)](z, y, slope, BLOCK=8192)
    wide = z.double()
    s = torch.sigmoid(wide)
    exact = s * (1.0 + wide * (1.0 - s))
    unit = torch.finfo(torch.float32).eps
    assert ((slope - exact).abs() / exact.abs().clamp_min(0.5)).max() < 2.5 * unit  # it goes through 0 at -1.3
    assert ((y - wide * s).abs() / (wide * s).abs().clamp_min(1e-30)).max() < 3.5 * unit


def test_what_is_infinite_stays_so_in_a_scale_of_two_parts() -> None:
    x = torch.tensor([[1.0, float("inf"), -float("inf"), float("nan")]]).t().contiguous().view(4, 1, 1)
    output = batch_norm.evaluate(x, torch.ones(1), torch.ones(1), torch.tensor([0.3]), torch.tensor([0.7]))
    expected = torch.nn.functional.batch_norm(x, torch.tensor([0.3]), torch.tensor([0.7]), torch.ones(1), torch.ones(1))
    torch.testing.assert_close(output, expected, equal_nan=True)


@pytest.mark.parametrize("dim", [64, 40])
def test_one_query_is_multiplied_as_exactly_as_its_results_show(dim: int) -> None:
    draw = Draw(3)
    q, k, v = draw.normal(1, 2, 1, dim), draw.normal(1, 2, 50, dim), draw.normal(1, 2, 50, dim)
    dy = draw.normal(1, 2, 1, dim)
    q, k, v, dy = (x.float().double() for x in (q, k, v, dy))
    exact = attention.reference(q, k, v)
    y, lse = attention.forward(q.float(), k.float(), v.float())
    assert off(y, exact[0]) < 5e-7
    gradients = attention.reference_backward(dy, q, k, v, None, None, *exact)
    grads = attention.backward(dy.float(), q.float(), k.float(), v.float(), None, None, y, lse)
    for one, other in zip(grads[:3], gradients[:3], strict=True):
        assert one is not None
        assert other is not None
        assert off(one, other) < 8e-7
