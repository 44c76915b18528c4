"""`memory_limit_bytes`: cheap values are computed again, with the same bits, until the plan fits."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import Device, MemoryLimitWarning, Tensor, compile, grad, seed
from burn_torch.core.errors import ArgumentError
from burn_torch.nn import Dropout
from burn_torch.tensor import activation


def deep(x: Tensor) -> Tensor:
    """Eight cheap values, each of which its gradient reads."""
    for _ in range(8):
        x = (x * 1.1).tanh() * activation.sigmoid(x)
    return x.square().sum()


def batch() -> Tensor:
    numbers = np.random.default_rng(3).standard_normal((32, 48)).astype(np.float32)
    return Tensor.from_data(numbers, Device.cpu())


def test_the_same_bits_in_less_memory() -> None:
    x = batch()
    kept, lean = compile(grad(deep)), compile(grad(deep), memory_limit_bytes=0)
    assert lean(x).tolist() == kept(x).tolist()
    assert lean.explain(x).peak_bytes < 0.6 * kept.explain(x).peak_bytes
    assert lean.explain(x).operations > kept.explain(x).operations


def test_no_more_is_computed_again_than_the_limit_asks_for() -> None:
    x = batch()
    peak = compile(grad(deep)).explain(x).peak_bytes
    limits = [int(peak * share) for share in (1.0, 0.9, 0.7)]
    plans = [compile(grad(deep), memory_limit_bytes=limit).explain(x) for limit in limits]
    assert all(plan.peak_bytes <= limit for plan, limit in zip(plans, limits, strict=True))
    assert plans[0].operations == compile(grad(deep)).explain(x).operations
    assert plans[0].operations < plans[1].operations <= plans[2].operations


def test_a_mask_that_is_drawn_again_is_the_same_mask() -> None:
    def dropped(x: Tensor) -> Tensor:
        for _ in range(4):
            x = Dropout(0.3).forward(x.tanh() * 1.5)
        return x.square().sum()

    def masks(**options: int) -> list[float]:
        seed(11)
        return compile(grad(dropped), **options)(batch()).tolist()  # type: ignore[call-overload,no-any-return]

    assert masks(memory_limit_bytes=0) == masks()


def test_a_limit_out_of_reach_is_said_with_the_peak() -> None:
    x = batch()
    with pytest.warns(MemoryLimitWarning, match=r"deep: needs .* MB at its peak, more than memory_limit_bytes=100;"):
        assert float(compile(deep, memory_limit_bytes=100)(x)) == float(compile(deep)(x))


@pytest.mark.parametrize("limit", [-1, 2.5, "4GB", True])
def test_a_limit_is_a_number_of_bytes(limit: object) -> None:
    with pytest.raises(ArgumentError, match="a limit of memory is a number of bytes"):
        compile(deep, memory_limit_bytes=limit)  # type: ignore[call-overload]
