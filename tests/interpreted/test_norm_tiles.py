"""Norm backwards that take a row as tiles: whole rows, ragged ends, slabs, one reading and two; against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import KernelLimitError, norm  # after the check for triton
from burn_kernels.norm.launch_backward import BackwardConfig
from burn_kernels.spec import Draw

FORMS = {
    "five tiles": (40, BackwardConfig(1, 8, 1, 1, 1, tiles=5)),
    "a ragged end": (37, BackwardConfig(1, 8, 1, 1, 1, tiles=5)),
    "read twice": (64, BackwardConfig(1, 8, 1, 1, 1, tiles=8, reads=2, group=4)),
    "two slabs": (64, BackwardConfig(1, 8, 1, 2, 1, tiles=4, reads=2, group=2)),
    "two slabs, ragged": (61, BackwardConfig(1, 8, 1, 2, 1, tiles=4, reads=2, group=4)),
    "two programs a row": (32, BackwardConfig(1, 8, 1, 2, 1, tiles=2, parts=2)),
    "four programs a row, ragged": (58, BackwardConfig(1, 8, 1, 8, 1, tiles=2, parts=4)),
    "beyond what weights in registers take": (8200, BackwardConfig(1, 4096, 1, 1, 1, tiles=3)),
}


WEIGHTS = [(form, weights) for form in FORMS for weights in ("w b", "")]
WEIGHTS += [(form, weights) for form in FORMS if "ragged" in form for weights in ("w", "b")]


@pytest.mark.parametrize(("form", "weights"), WEIGHTS)
def test_gradients(form: str, weights: str) -> None:
    cols, config = FORMS[form]
    draw, dtype = (
        Draw(11),
        torch.float16 if config.parts else torch.float32,
    )  # programs that share a row take half types
    x, dy = draw.normal(5, cols, mean=0.5).to(dtype), draw.normal(5, cols).to(dtype)
    w = draw.normal(cols, mean=1.0).to(dtype) if "w" in weights else None
    cases: list[tuple[Any, Any, Any]] = []
    _, mean, rstd = norm.layer_norm_reference(x, w, None)
    saved = [x, w, mean, rstd]
    cases.append((norm.layer_norm_backward, norm.layer_norm_reference_backward, (saved, {"bias": "b" in weights})))
    if "b" not in weights:
        saved = [x, w, norm.rms_norm_reference(x, w)[1]]
        cases.append((norm.rms_norm_backward, norm.rms_norm_reference_backward, (saved, {})))
    for run, plain, (operands, options) in cases:
        grads = run(dy, *operands, **options, config=config)
        expected = plain(*(t if t is None else t.double() for t in (dy, *operands)), **options)
        for y, z in zip(grads, expected, strict=True):
            assert (y is None) == (z is None)
            if y is not None:
                near = 1e-5 if dtype == torch.float32 else 1e-3
                torch.testing.assert_close(y.double(), z, rtol=near, atol=near)


@pytest.mark.parametrize("form", ["a ragged end", "two slabs, ragged", "two programs a row"])
def test_a_half_type_whose_mean_is_far_from_zero(form: str) -> None:
    """The mean is taken off the sum, so its digits count: no further from float64 than float32 arithmetic is.

    Of bfloat16, which the interpreter does not round to the nearest, the tests on a GPU say so.
    """
    cols, config = FORMS[form]
    draw = Draw(13)
    x, dy = draw.normal(5, cols, mean=900.0, std=15.0).half(), draw.normal(5, cols).half()
    w = draw.normal(cols, mean=1.0).half()
    exact = x.double(), w.double()
    _, mean, rstd = norm.layer_norm_reference(*exact, None)
    saved = mean.float(), rstd.float()
    grads = norm.layer_norm_backward(dy, x, w, *saved, config=config)
    plain = norm.layer_norm_reference_backward(dy, x, w, *saved)
    expected = norm.layer_norm_reference_backward(dy.double(), *exact, mean, rstd)
    for y, z, right in zip(grads, plain, expected, strict=True):
        assert y is not None
        assert z is not None
        assert right is not None
        assert (y.double() - right).norm() <= 1.1 * (z.double() - right).norm()


@pytest.mark.parametrize("begin", [0, 1])
def test_words_that_begin_anywhere(begin: int) -> None:
    """Programs that share a row take words of two numbers; what does not begin at one is copied."""
    draw = Draw(14)
    wide_x, wide_dy = draw.normal(5, 67).half(), draw.normal(5, 66).half()
    x, dy, w = wide_x[:, begin : begin + 64], wide_dy[:, begin : begin + 64], draw.normal(67).half()[begin : begin + 64]
    _, mean, rstd = norm.layer_norm_reference(x, w, None)
    grads = norm.layer_norm_backward(dy, x, w, mean, rstd, config=BackwardConfig(1, 32, 1, 2, 1, tiles=1, parts=2))
    expected = norm.layer_norm_reference_backward(dy.double(), x.double(), w.double(), mean.double(), rstd.double())
    for y, z in zip(grads, expected, strict=True):
        assert y is not None
        torch.testing.assert_close(y.double(), z, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("cols", "dtype"), [(33, torch.float16), (32, torch.float32)])
def test_rows_that_are_not_whole_words(cols: int, dtype: torch.dtype) -> None:
    x, rstd = torch.zeros(2, cols, dtype=dtype), torch.ones(2, 1)
    with pytest.raises(KernelLimitError, match="take two numbers at a time"):
        norm.rms_norm_backward(x, x, None, rstd, config=BackwardConfig(1, 32, 1, 2, 1, tiles=1, parts=2))


@pytest.mark.parametrize(
    ("cols", "config"),
    [(40, norm.Config(1, 8, 1, tiles=5)), (37, norm.Config(1, 8, 1, tiles=5)), (300, norm.Config(1, 64, 1))],
    ids=["five tiles", "a ragged end", "read twice"],
)
@pytest.mark.parametrize("affine", [True, False])
def test_outputs(cols: int, config: norm.Config, affine: bool) -> None:
    draw = Draw(12)
    x, w, b = draw.normal(5, cols, mean=50.0).float(), draw.normal(cols).float(), draw.normal(cols).float()
    weights: tuple[Any, Any] = (w, b) if affine else (None, None)
    exact: list[Any] = [t if t is None else t.double() for t in weights]
    for y, z in zip(
        norm.layer_norm(x, *weights, config=config), norm.layer_norm_reference(x.double(), *exact), strict=True
    ):
        torch.testing.assert_close(y.double(), z, rtol=1e-5, atol=1e-5)
    for y, z in zip(
        norm.rms_norm(x, weights[0], config=config), norm.rms_norm_reference(x.double(), exact[0]), strict=True
    ):
        torch.testing.assert_close(y.double(), z, rtol=1e-5, atol=1e-5)
