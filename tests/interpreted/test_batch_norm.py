"""Batch norm in the interpreter: every config, cut into parts and whole, both layouts, numbers far from zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import batch_norm  # after the check for triton
from burn_kernels.batch_norm.references import tiling_of
from burn_kernels.channel_norm.configs import Config, grid
from burn_kernels.channel_norm.layout import ordered
from burn_kernels.launch import H200, machine_of, observing
from burn_kernels.spec import Draw

PARTS = [Config(1, 2, 16, 1, 4), Config(4, 4, 8, 1, 8)]
PARTS_OF_ROWS = [Config(4, 16, 1, 1, 4)]


def close(actual: Any, expected: Any, config: object) -> None:
    # float32 sums of some hundred numbers in another order, of values of order 1 to 10
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{config}\n{text}")


@pytest.mark.parametrize(
    ("layout", "activation"),
    [("planes", "relu"), ("last", "silu"), pytest.param("rows", "none", marks=pytest.mark.slow)],
)
def test_every_candidate_and_parts(layout: str, activation: str) -> None:
    draw = Draw(5)
    x, dy = (draw.normal(5, 5, 6, 7, mean=0.5).float() for _ in range(2))
    if layout == "last":
        x = x.contiguous(memory_format=torch.channels_last)  # dy is not: it is copied
    if layout == "rows":
        x, dy = (t.movedim(1, 3).reshape(-1, 5) for t in (x, dy))
    w, b, old_mean, old_var = (draw.normal(5).float() for _ in range(4))
    flat, last = ordered(x)
    tiling = tiling_of(flat, last)
    assert last == (layout != "planes")
    configs = [*batch_norm.candidates(tiling, 4, H200)[:2], *(PARTS_OF_ROWS if last else PARTS)]
    assert max(grid(tiling, config, machine_of(x))[1] for config in configs) > 1
    inputs = (x, w, b, old_mean, old_var)
    expected = batch_norm.reference(*inputs, momentum=0.3, activation=activation)
    _, mean, rstd, *_ = expected
    grads = batch_norm.reference_backward(dy, x, w, b, mean, rstd, activation=activation)
    var = old_var.abs() + 0.1
    slopes = batch_norm.evaluate_reference_backward(dy, x, w, b, old_mean, var, activation=activation)
    for config in configs:
        options: dict[str, Any] = {"activation": activation, "config": config}
        outputs = batch_norm.forward(*inputs, momentum=0.3, **options)
        close(outputs, expected, config)
        assert outputs[0].stride() == x.stride()
        close(batch_norm.backward(dy, x, w, b, mean, rstd, **options), grads, config)
        y = batch_norm.evaluate(x, w, b, old_mean, var, **options)
        close(y, batch_norm.evaluate_reference(x, w, b, old_mean, var, activation=activation), config)
        close(batch_norm.evaluate_backward(dy, x, w, b, old_mean, var, **options), slopes, config)


def test_channels_that_are_held_give_what_tiles_give() -> None:
    """The whole channel in one tile is read once; one row less in the tile, and tiles are gone over."""
    draw = Draw(7)
    x, dy, w, b = draw.normal(4, 3, 5, 5).float(), draw.normal(4, 3, 5, 5).float(), draw.normal(3).float(), None
    _, mean, rstd, *_ = batch_norm.reference(x, w, b)
    for config, names in (
        (Config(2, 4, 32, 1, 4), ["forward_held", "backward_held"]),
        (Config(2, 2, 32, 1, 4), ["forward_whole", "backward_whole"]),
    ):
        with observing() as launches:
            outputs = batch_norm.forward(x, w, b, activation="silu", config=config)
            grads = batch_norm.backward(dy, x, w, b, mean, rstd, activation="silu", config=config)
        assert [launch.kernel.fn.__name__ for launch in launches] == names
        close(outputs, batch_norm.reference(x, w, b, activation="silu"), config)
        close(grads, batch_norm.reference_backward(dy, x, w, b, mean, rstd, activation="silu"), config)


@pytest.mark.parametrize("config", [None, *PARTS])
def test_variance_keeps_its_digits_far_from_zero(config: Config | None) -> None:
    # mean 1000, deviation 1: a sum of squares would leave nothing of the variance; and one channel begins far off
    x = Draw(3).normal(20, 3, 50, mean=1000.0).float()
    x[0, 1, 0] = 0.0
    _, mean, rstd, *_ = batch_norm.forward(x, None, None, config=config)
    _, exact_mean, exact_rstd, *_ = batch_norm.reference(x.double(), None, None)
    torch.testing.assert_close(mean.double(), exact_mean, rtol=2e-7, atol=0.0)
    torch.testing.assert_close(rstd.double(), exact_rstd, rtol=2e-5, atol=0.0)


@pytest.mark.parametrize("config", [None, *PARTS])
def test_running_statistics_in_place(config: Config | None) -> None:
    draw = Draw(4)
    x, mean, var = draw.normal(6, 5, 30).float(), draw.normal(5).float(), draw.normal(5).square().float()
    wide = torch.stack([mean, var], 1)  # columns do not lie in order
    expected = batch_norm.reference(x, None, None, mean, var)
    for old_mean, old_var in ((mean.clone(), var.clone()), (wide[:, 0], wide[:, 1])):
        outputs = batch_norm.forward_(x, None, None, old_mean, old_var, config=config)
        close((*outputs, old_mean, old_var), expected, config)


def test_gradients_from_an_upstream_gradient_that_is_one_number() -> None:
    x = Draw(6).normal(3, 4, 5, 6).float()
    _, mean, rstd, *_ = batch_norm.reference(x, None, None)
    dy = torch.tensor(2.0).expand(x.shape)
    expected = batch_norm.reference_backward(dy, x, None, None, mean, rstd, activation="relu")
    close(batch_norm.backward(dy, x, None, None, mean, rstd, activation="relu"), expected, "expanded")


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_number_that_is_none_stays_in_its_channel() -> None:
    x = Draw(7).normal(3, 4, 50).float()
    x[1, 2, 3] = torch.nan
    y, _, _, mean, _ = batch_norm.forward(x, None, None, torch.zeros(4), torch.ones(4), activation="relu")
    assert mean is not None
    assert y.isnan().all((0, 2)).tolist() == mean.isnan().tolist() == [False, False, True, False]
    assert not y[:, [0, 1, 3]].isnan().any()
