"""Group norm in the interpreter: configs, cut into parts and whole, both layouts, instance norm."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import group_norm  # after the check for triton
from burn_kernels.channel_norm.configs import Config, grid
from burn_kernels.channel_norm.layout import ordered
from burn_kernels.group_norm.references import channels_of, groups_of
from burn_kernels.launch import H200, machine_of
from burn_kernels.spec import Draw

PARTS = [Config(2, 2, 8, 1, 8), Config(1, 8, 4, 1, 8)]


def close(actual: Any, expected: Any, config: object) -> None:
    # float32 sums of some hundred numbers in another order, of values of order 1 to 10
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{config}\n{text}")


@pytest.mark.parametrize(
    ("last", "groups", "activation"),
    [(False, 2, "relu"), (True, 3, "silu"), pytest.param(False, 6, "none", marks=pytest.mark.slow)],
)
def test_configs_and_parts(last: bool, groups: int, activation: str) -> None:
    draw = Draw(groups)
    x, dy = (draw.normal(1, 6, 9, 5, mean=0.5).float() for _ in range(2))
    if last:
        x = x.contiguous(memory_format=torch.channels_last)  # dy is not: it is copied
    w, b = (draw.normal(6).float() for _ in range(2))
    flat, found_last = ordered(x)
    assert found_last == last
    kept = torch.channels_last if last else torch.contiguous_format
    expected = group_norm.reference(x, w, b, groups, activation=activation)
    grads = group_norm.reference_backward(dy, x, w, b, *expected[1:], activation=activation)
    tilings = groups_of(flat, last, groups), channels_of(flat, last)
    for tiling, part in zip(tilings, ("forward", "backward"), strict=True):
        configs = [group_norm.default(tiling, 4, H200), *PARTS]
        assert max(grid(tiling, config, machine_of(x))[1] for config in configs) > 1
        for config in configs:
            options: dict[str, Any] = {"activation": activation, "config": config}
            if part == "forward":
                y = group_norm.forward(x, w, b, groups, **options)
                close(y, expected, config)
                assert y[0].is_contiguous(memory_format=kept)
            else:
                close(group_norm.backward(dy, x, w, b, *expected[1:], **options), grads, config)


def test_variance_keeps_its_digits_far_from_zero() -> None:
    x = Draw(3).normal(2, 4, 90, mean=1000.0).float()
    exact = group_norm.reference(x.double(), None, None, 2)
    for config in (None, PARTS[0]):
        _, mean, rstd = group_norm.forward(x, None, None, 2, config=config)
        torch.testing.assert_close(mean.double(), exact[1], rtol=2e-7, atol=0.0)
        torch.testing.assert_close(rstd.double(), exact[2], rtol=2e-5, atol=0.0)
