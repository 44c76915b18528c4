"""The kernels of a linear layer in Triton's interpreter: tiles, what follows the library's product, the slope."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import matmul, verify  # after the check for triton
from burn_kernels.launch import A100, H200, MI300X
from burn_kernels.matmul import BackwardConfig, Config
from burn_kernels.spec import Draw

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")

PROBLEMS = list(matmul.SPEC.problems(Draw(11)))
SMALL = Config(matmul.TILES, 16, 32, 16, 2, 1, 1)
"""Several tiles each way on the smallest problems, and groups that do not divide them."""


def by(config: Config) -> Any:
    """The specification, with this config forward, and a backward of few rows a program."""
    back = functools.partial(matmul.backward, config=BackwardConfig(2, 16, 1, 2))
    return dataclasses.replace(
        matmul.SPEC,
        forward=functools.partial(matmul.SPEC.forward, config=config),
        gradient=functools.partial(matmul.SPEC.gradient.func, back),  # type: ignore[union-attr]  # a partial
    )


@pytest.mark.parametrize("index", range(len(PROBLEMS)))
def test_tiles_agree_with_float64(index: int) -> None:
    assert verify(by(SMALL), PROBLEMS[index], dtype=torch.float32) == []


@pytest.mark.parametrize("index", [0, 4, 8, 13, 17, 19])
def test_tiles_of_halves_agree_with_float64(index: int) -> None:
    assert verify(by(SMALL), PROBLEMS[index], dtype=torch.float16) == []


def test_every_candidate_for_every_machine() -> None:
    draw = Draw(5)
    x, w, bias = draw.normal(37, 50).float(), draw.normal(70, 50).float(), draw.normal(70).float()
    exact = matmul.reference_kept(x.double(), w.double(), bias.double(), kind="gelu")
    for itemsize in (2, 4):
        for config in {c for m in (H200, A100, MI300X) for c in matmul.tiles(4096, 4096, itemsize, m)}:
            for actual, expected in zip(
                matmul.forward_kept(x, w, bias, kind="gelu", config=config), exact, strict=True
            ):
                assert actual is not None
                torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5, msg=str(config))
    dy, z = draw.normal(37, 70).float(), exact[1]
    assert z is not None
    slope = matmul.reference_backward(dy.double(), x.double(), w.double(), z, kind="gelu")
    for back in matmul.backward_candidates(70, 4, H200):
        grads = matmul.backward(dy, x, w, z.float(), kind="gelu", config=back)
        for actual, expected in zip(grads, slope, strict=True):
            assert actual is not None
            torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-4, msg=str(back))


def test_a_group_of_tiles_visits_every_tile_once() -> None:
    draw = Draw(6)
    x, w = draw.normal(150, 3).float(), draw.normal(90, 3).float()
    for group in (1, 3, 8):
        product = matmul.forward(x, w, config=Config(matmul.TILES, 16, 16, 16, group, 1, 1))
        torch.testing.assert_close(product, x @ w.T)


@pytest.mark.parametrize("config", [None, SMALL], ids=["library", "tiles"])
def test_rows_of_nan_stay_where_they_are(config: Config | None) -> None:
    draw = Draw(7)
    x, w = draw.normal(20, 9).float(), draw.normal(10, 9).float()
    x[3] = torch.nan
    product = matmul.forward(x, w, kind="relu", config=config)
    assert product.isnan().sum(1).tolist() == [0, 0, 0, 10] + [0] * 16
