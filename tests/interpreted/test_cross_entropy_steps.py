"""How cross entropy cuts a row: whole steps, steps in registers, a masked rest, single elements; against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import cross_entropy  # after the check for triton
from burn_kernels.cross_entropy import Config
from burn_kernels.spec import Draw

HELD = {
    "whole tiles": (768, Config(32, 1, stages=3, held=1)),
    "whole tiles, and a rest": (700, Config(32, 1, stages=3, held=1)),
    "rows that begin anywhere": (767, Config(32, 1, stages=2, held=2)),
    "less than a tile": (49, Config(32, 1, held=1)),
    "one column": (1, Config(32, 1, held=1)),
}
STEP = 128
"""Elements of a step of 32 lanes in float32."""
FORMS = {
    "whole steps alone": (3 * STEP, Config(32, 1)),
    "a short rest, element by element": (3 * STEP + 20, Config(32, 1)),
    "a long rest, masked": (3 * STEP + 100, Config(32, 1)),
    "rows that begin anywhere, a short rest": (3 * STEP + 67, Config(32, 1)),
    "rows that begin anywhere, a long rest": (3 * STEP - 3, Config(32, 1)),
    "no whole step": (61, Config(32, 1)),
    "two steps in registers": (3 * STEP + 101, Config(32, 1, kept=2)),
    "more steps in registers than there are": (2 * STEP, Config(32, 1, kept=5)),
    "loads ahead": (3 * STEP + 2, Config(32, 1, stages=3)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the NaN in a row that is ignored
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradient(form: str, smoothing: float) -> None:
    cols, config = FORMS[form]
    draw = Draw(5)
    x, targets = draw.normal(4, cols, std=3.0).float(), draw.integers(0, cols, 4)
    targets[1], targets[2], targets[3] = -100, 0, cols - 1
    x[1, ::7] = float("nan")  # a row that is ignored leaves zeros, whatever is in it
    exact = torch.where(targets[:, None] == -100, 0.0, x.double()).requires_grad_()
    expected = torch.nn.functional.cross_entropy(exact, targets, label_smoothing=smoothing)
    (slope,) = torch.autograd.grad(expected, exact)
    for run, logits in ((cross_entropy.forward_with_gradient, x), (cross_entropy.forward_with_gradient_, x.clone())):
        loss, dx = run(logits, targets, smoothing=smoothing, config=config)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(dx.double(), slope, rtol=1e-5, atol=1e-7)
    loss, lse = cross_entropy.forward(x, targets, smoothing=smoothing, config=config)
    dx = cross_entropy.backward(torch.ones(()), x, targets, lse, smoothing=smoothing, config=config)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dx.double(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("form", "dtype"),
    [*((form, torch.bfloat16) for form in HELD), ("rows that begin anywhere", torch.float16)],
)
def test_rows_that_stay_in_registers(form: str, dtype: torch.dtype) -> None:
    cols, config = HELD[form]
    draw = Draw(6)
    x, targets = draw.normal(4, cols, std=3.0).to(dtype), draw.integers(0, cols, 4)
    targets[1], targets[2], targets[3] = -100, 0, cols - 1
    x[1, ::7] = float("nan")
    x[0, cols // 2] = float("-inf") if int(targets[0]) != cols // 2 else 1.0
    exact = torch.where(targets[:, None] == -100, 0.0, x.double()).requires_grad_()
    expected = torch.nn.functional.cross_entropy(exact, targets)
    (slope,) = torch.autograd.grad(expected, exact)
    near = 2**-7 if dtype == torch.bfloat16 else 2**-10
    for run, logits in ((cross_entropy.forward_with_gradient, x), (cross_entropy.forward_with_gradient_, x.clone())):
        loss, dx = run(logits, targets, config=config)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(dx.double(), slope, rtol=near, atol=1e-7)


def test_rows_in_registers_know_every_option_but_smoothing() -> None:
    config, draw = Config(32, 1, held=1), Draw(7)
    x, targets = draw.normal(7, 531, std=3.0).bfloat16()[:, 1:], draw.integers(0, 530, 7)
    targets[::3] = 3
    weight, dloss = draw.normal(530).abs() + 0.1, draw.normal(7)
    options: dict[str, Any] = {"weight": weight, "z_loss": 0.02, "ignore_index": 3, "reduction": "none"}
    losses, dx = cross_entropy.forward_with_gradient_(x.clone(), targets, dloss=dloss, config=config, **options)
    expected, lse = cross_entropy.reference(x.double(), targets, **options)
    slope = cross_entropy.reference_backward(dloss.double(), x.double(), targets, lse, **options)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dx.double(), slope, rtol=2**-7, atol=1e-6)


def test_a_target_that_is_no_class_shows_where_rows_stay_in_registers() -> None:
    x, targets = Draw(8).normal(3, 300).bfloat16(), torch.tensor([5, 400, -3])
    losses, _ = cross_entropy.forward_with_gradient_(
        x, targets, dloss=torch.ones(3), reduction="none", config=Config(32, 1, held=1)
    )
    assert losses.isnan().tolist() == [False, True, True]
