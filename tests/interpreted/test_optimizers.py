"""Norms of many tensors and steps in the interpreter: every config, types side by side, numbers that are none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import burn_kernels.torch as bk  # after the check for triton
from burn_kernels import lion, optimizer
from burn_kernels.launch import H200
from burn_kernels.spec import Draw

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


ORDERS = (1.0, 2.0, math.inf)


@pytest.mark.parametrize("order", ORDERS)
def test_norms_of_types_side_by_side(order: float) -> None:
    draw = Draw(1)
    group = [draw.normal(9001).float(), draw.normal(3, 5).half(), draw.normal(8).float(), draw.normal(0).float()]
    exact = torch.nn.utils.get_total_norm([x.double() for x in group if x.numel()], order)
    norm, factor = torch.ops.burn_kernels.clip_factor(group, 2.0, order)
    torch.testing.assert_close(norm.double(), exact, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(factor.double(), (2.0 / (exact + 1e-6)).clamp(max=1.0), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("at", [0, 8192, 8199])
def test_a_number_that_is_none_is_not_lost(order: float, at: int) -> None:
    x = torch.ones(8200)
    x[at] = math.nan
    norm, factor = torch.ops.burn_kernels.clip_factor([x], 1.0, order)
    assert norm.isnan()
    assert factor.isnan()
    x[at] = -math.inf
    assert bk.get_total_norm([x], order).item() == math.inf


def test_every_candidate_of_lion() -> None:
    draw = Draw(2)
    groups = [[draw.normal(9001).float()] for _ in range(3)]
    expected = lion.lion_reference(*groups, lr=0.1, decay=0.2)
    for config in lion.candidates(H200):
        updated = lion.lion(*groups, lr=0.1, decay=0.2, config=config)
        torch.testing.assert_close(updated, expected, rtol=1e-5, atol=1e-5)


def test_lion_in_place_with_copies_and_faults_that_stay_visible() -> None:
    draw = Draw(3)
    p, g, m = (draw.normal(8197).float() for _ in range(3))
    g[5] = math.nan
    clip, copies = torch.tensor(0.5), [torch.empty(8197, dtype=torch.float16)]
    expected = lion.lion_reference([p], [g], [m], lr=0.1, clip=clip)
    lion.lion_(optimizer.table([p], [g], [m], copies=copies, in_place=True), lr=0.1, clip=clip)
    torch.testing.assert_close(([p], [m]), expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert p[5].isnan()
    assert torch.equal(copies[0].nan_to_num(), p.half().nan_to_num())


def test_adam_in_place() -> None:
    draw = Draw(4)
    p, g, m, v = (draw.normal(8197).float() for _ in range(4))
    options: dict[str, Any] = {"lr": 0.1, "step": 3, "decay": 0.3}
    expected = optimizer.adamw_reference([p], [g], [m], [v * v], **options, coupled=True)
    table = optimizer.table([p], [g], [m], [v * v], in_place=True)
    optimizer.adamw_(table, **options, coupled=True)
    torch.testing.assert_close(([p], [m]), expected[:2], rtol=1e-5, atol=1e-5)
