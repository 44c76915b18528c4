"""Reductions: axes and layouts beside torch, the edges of their definitions, and what the launchers refuse."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import pytest
import torch

from burn_kernels import (
    REGISTRY,
    KernelArgumentError,
    KernelError,
    KernelShapeError,
    KernelSpec,
    Problem,
    reduce,
    verify,
)
from burn_kernels.launch import H200
from burn_kernels.reduce import references as reduce_parts
from burn_kernels.reduce.configs import MOST, grid
from burn_kernels.reduce.references import plan_of
from burn_kernels.spec import Draw

X = torch.ones(4, 6)


@pytest.mark.parametrize("axes", [a for n in range(5) for a in itertools.combinations(range(4), n)])
def test_a_plan_reaches_each_element_once(axes: tuple[int, ...]) -> None:
    base = torch.arange(2 * 3 * 40 * 50).reshape(2, 3, 40, 50)
    for x in (base, base.permute(3, 1, 0, 2), base[:, :, ::2], base[:1].expand(2, 3, 40, 50)):
        for ordered in (False, True):
            plan = plan_of(x, axes, ordered=ordered)
            strides = (plan.outer_stride, plan.inner_stride, plan.far_stride, plan.stride)
            shown = plan.x.as_strided((plan.outer, plan.inner, plan.far, plan.length), strides)
            expected = x.permute([a for a in range(4) if a not in axes] + list(axes))
            visited = shown.reshape(plan.outer * plan.inner, -1)
            expected = expected.reshape(visited.shape)
            # within a result the order matters for places alone
            assert torch.equal(*(t if ordered else t.sort(1)[0] for t in (visited, expected)))


def test_parts_cover_the_axis_and_fill_the_machine() -> None:
    for rows, length in ((1, 10**7), (3, 5000), (16_384, 16_384), (1, 1), (5, 2**31 + 7)):
        plan = plan_of(torch.empty(rows, length, device="meta", dtype=torch.bfloat16), (1,), ordered=True)
        for config in reduce.candidates(rows, length, 2, H200):
            blocks, _, chunks, chunk = grid(plan.outer, plan.inner, plan.far, plan.length, config, H200)
            assert (chunks - 1) * chunk < length <= chunks * chunk
            assert chunk <= MOST
            assert blocks * config.kept >= rows
            if length >= 10**7:
                assert blocks * chunks >= H200.processors


def test_variance_of_too_few_and_sums_of_none() -> None:
    y, middle = reduce.var(torch.ones(3, 1), 1)
    assert y.isnan().all()
    assert middle.tolist() == [1.0, 1.0, 1.0]
    assert reduce.var(torch.ones(3, 0), 1)[0].isnan().all()
    assert reduce.sum(torch.ones(3, 0), 1).tolist() == [0.0] * 3
    assert reduce.mean(torch.ones(3, 0), 1).isnan().all()
    for y in reduce.logsumexp(torch.ones(3, 0), 1):
        assert y.tolist() == [-math.inf] * 3


def test_verify_allows_a_sum_in_which_all_cancels_units_of_what_was_added() -> None:
    x = Draw(5).normal(7, 11)
    x -= x.mean()
    x[0, 0] += 1e-6
    problem = Problem((x,))

    def off(by: float) -> KernelSpec:
        return dataclasses.replace(
            REGISTRY["sum"],
            forward=lambda x, **_: x.double().sum().float() + by,
            gradient=None,
            reference_gradient=None,
        )

    assert verify(off(4e-7 * float(x.norm())), problem, dtype=torch.float32) == []
    assert verify(off(1e-4 * float(x.norm())), problem, dtype=torch.float32) != []
    assert (
        verify(dataclasses.replace(off(4e-7 * float(x.norm())), size=lambda x: 0.0), problem, dtype=torch.float32) != []
    )
    assert reduce_parts.usual_size("mean", torch.full((4, 9), 2.0), 1) == 2.0 / 3.0
    assert reduce_parts.usual_size("amax", x) == 0.0


def test_equals_share_the_gradient_of_an_extreme() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    y = reduce.amax(x, 1)
    assert reduce.extreme_backward(torch.tensor([4.0, 5.0]), x, y, 1).tolist() == [[0.0, 2.0, 2.0], [5.0, 0.0, 0.0]]


def test_the_gradient_of_a_sum_is_a_view() -> None:
    dy = torch.randn(4)
    dx = reduce.sum_backward(dy, X, 1)
    assert dx.data_ptr() == dy.data_ptr()
    assert torch.equal(dx, dy[:, None].expand(4, 6))


def test_candidates_begin_with_the_default() -> None:
    draw = Draw(0)
    for kept, length in [
        (1, 1),
        *zip(draw.integers(1, 9999, 9).tolist(), draw.integers(1, 99999, 9).tolist(), strict=True),
    ]:
        for along in (False, True):
            configs = reduce.candidates(kept, length, 2, H200, along=along)
            assert reduce.default(kept, length, 2, H200, along=along) == configs[0]
            assert len(set(configs)) == len(configs)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"sum: no such axes.*dim 2 of x \(4, 6\).*different axes from -2 to 1.*count axes from 0",
            lambda: reduce.sum(X, 2),
        ),
        (KernelShapeError, r"mean: no such axes.*dim \(0, -2\)", lambda: reduce.mean(X, (0, -2))),
        (
            KernelArgumentError,
            r"argmax: places along several axes.*dim \(0, 1\).*one axis, or None.*flatten",
            lambda: reduce.argmax(X, (0, 1)),
        ),
        (
            KernelArgumentError,
            r"amin: of no elements.*x \(4, 0\).*at least one element.*leave such",
            lambda: reduce.amin(torch.ones(4, 0), 1),
        ),
        (
            KernelShapeError,
            r"var backward: dy has another shape.*dy \(4,\).*expected: dy \(6,\)",
            lambda: reduce.var_backward(torch.ones(4), X, torch.ones(6), 0),
        ),
        (
            KernelShapeError,
            r"sum backward: dy has another shape.*dy \(6,\).*expected: dy \(4,\).*belong",
            lambda: reduce.sum_backward(torch.ones(6), X, 1),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
