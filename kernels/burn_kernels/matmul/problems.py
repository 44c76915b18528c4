"""Problems on which linear layers are checked, and calls of their operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from burn_kernels.matmul.references import KINDS
from burn_kernels.spec import Draw, Problem


def problems(draw: Draw) -> Iterator[Problem]:
    """Every activation with and without bias and residual; no rows, no features, nothing to sum; both layouts."""

    def problem(x: torch.Tensor, w: torch.Tensor, kind: str, bias: bool = True, residual: bool = False) -> Problem:
        added = draw.normal(*x.shape[:-1], w.shape[0]) if residual else None
        return Problem((x, w, draw.normal(w.shape[0]) if bias else None, added), {"kind": kind})

    for number, kind in enumerate(KINDS):
        for shape, features in (((5, 7), 11), ((2, 3, 33), 20), ((67, 16), 35)):
            yield problem(draw.normal(*shape), draw.normal(features, shape[-1]), kind, number % 2 == 0, features == 20)
    yield problem(draw.normal(1, 1), draw.normal(1, 1), "silu")
    yield problem(draw.normal(19), draw.normal(5, 19), "gelu", False, True)
    yield problem(draw.normal(0, 5), draw.normal(3, 5), "gelu_tanh")
    yield problem(draw.normal(4, 0), draw.normal(3, 0), "gelu", True, True)
    yield problem(draw.normal(4, 5), draw.normal(0, 5), "relu")
    yield problem(
        draw.normal(18, 40)[::2, 3:20], draw.normal(17, 12).T, "gelu", True, True
    )  # strided; the other layout
    yield problem(draw.normal(9, 21).T, draw.normal(13, 9), "silu")


def large(draw: Draw, x: torch.Tensor) -> Iterator[Problem]:
    """Layers of 300 features that read these rows."""
    w = draw.normal(300, x.shape[1], std=x.shape[1] ** -0.5)
    for kind, residual in (("none", None), ("gelu", None), ("silu", draw.normal(64, 300))):
        yield Problem((x, w, draw.normal(300), residual), {"kind": kind})


def draw_call(draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator."""
    features, out = draw.integer(1, 40), draw.width()
    x = draw.rows(features, 1.0)
    w = draw.normal(features, out).T if draw.integer(0, 2) else draw.normal(out, features)
    bias = draw.normal(out) if draw.integer(0, 2) else None
    residual = draw.normal(*x.shape[:-1], out) if draw.one_in(3) else None
    return x, w, bias, residual, KINDS[draw.integer(0, len(KINDS))], True
