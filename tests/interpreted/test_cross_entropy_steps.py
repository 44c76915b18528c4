"""How cross entropy cuts a row: whole steps, steps in registers, a masked rest, single elements; against float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import cross_entropy  # after the check for triton
from burn_kernels.cross_entropy import Config
from burn_kernels.spec import Draw

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
    x, targets = draw.normal(5, cols, std=3.0).float(), draw.integers(0, cols, 5)
    targets[1], targets[2], targets[3] = -100, 0, cols - 1
    x[1, ::7] = float("nan")  # a row that is ignored leaves zeros, whatever is in it
    exact = torch.where(targets[:, None] == -100, 0.0, x.double()).requires_grad_()
    expected = torch.nn.functional.cross_entropy(exact, targets, label_smoothing=smoothing)
    (slope,) = torch.autograd.grad(expected, exact)
    for run, given in ((cross_entropy.forward_with_gradient, x), (cross_entropy.forward_with_gradient_, x.clone())):
        loss, dx = run(given, targets, smoothing=smoothing, config=config)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(dx.double(), slope, rtol=1e-5, atol=1e-7)
    loss, lse = cross_entropy.forward(x, targets, smoothing=smoothing, config=config)
    dx = cross_entropy.backward(torch.ones(()), x, targets, lse, smoothing=smoothing, config=config)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(dx.double(), slope, rtol=1e-5, atol=1e-7)
