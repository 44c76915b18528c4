"""Bounds the calls of the library's own functions in a forward and backward of its operators for PyTorch.

A busy machine does not disturb them as it does times.  The bounds are the counts of commit 5fc05e1a, before operators
were declared in specs; on a CPU, so the calls of the references are among them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import burn_kernels.torch  # registers the operators

OPS: Any = torch.ops.burn_kernels
ROOT = str(Path(burn_kernels.__file__).parent)


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, torch.Size(shape).numel()).view(shape).requires_grad_()


X, OTHER, W, B, ROW = leaf(8, 16), leaf(8, 16), leaf(16), leaf(16), leaf(12, 16)
IMAGES, SCALE, SHIFT, FILTERS = leaf(2, 8, 5, 5), leaf(8), leaf(8), leaf(4, 8, 3, 3)
Q, K, V = leaf(2, 3, 4, 8), leaf(2, 3, 4, 8), leaf(2, 3, 4, 8)
TARGETS, SEED, TABLE = torch.arange(8), torch.tensor([3, 4]), torch.ones(4, 4)
LOSS = (None, "mean", 0.0, -100, 0.0)
CALLS: dict[str, tuple[int, Callable[[], Any]]] = {
    "activation": (40, lambda: OPS.activation(X, "gelu")),
    "glu": (62, lambda: OPS.glu(X, OTHER, "silu")),
    "softmax": (43, lambda: OPS.softmax(X)),
    "layer_norm": (71, lambda: OPS.layer_norm(X, W, B, 1e-5)),
    "rms_norm": (63, lambda: OPS.rms_norm(X, W, 1e-5)),
    "residual_layer_norm": (77, lambda: OPS.residual_layer_norm(X, OTHER, W, B, 1e-5, 0.0, None)),
    "residual_rms_norm": (71, lambda: OPS.residual_rms_norm(X, OTHER, W, 1e-5, 0.0, None)),
    "batch_norm": (176, lambda: OPS.batch_norm(IMAGES, SCALE, SHIFT, None, None, 0.1, 1e-5, "relu")),
    "group_norm": (135, lambda: OPS.group_norm(IMAGES, SCALE, SHIFT, 2, 1e-5, "none")),
    "dropout": (84, lambda: OPS.dropout(X, 0.3, SEED)),
    "embedding": (24, lambda: OPS.embedding(TARGETS, X, -1, False)),
    "convolution": (
        141,
        lambda: OPS.convolution(IMAGES, FILTERS, SHIFT[:4], [1, 1], [1, 1], [1, 1], 1, False, "none", 1, 0.0, None),
    ),
    "cross_entropy": (65, lambda: OPS.cross_entropy(X, TARGETS, *LOSS)),
    "linear_cross_entropy": (68, lambda: OPS.linear_cross_entropy(X, ROW, W[:12], TARGETS, *LOSS, True, "")),
    "linear": (81, lambda: OPS.linear(X, ROW, W[:12], None, "gelu", True)),
    "rope": (80, lambda: OPS.rope(Q.transpose(1, 2), K.transpose(1, 2), TABLE, TABLE, None, 0, False, False)),
    "sum": (41, lambda: OPS.sum(X, [1], False)),
    "var": (73, lambda: OPS.var(X, [1], False, 1.0)),
    "amax": (69, lambda: OPS.amax(X, [1], False)),
    "argmax": (31, lambda: OPS.argmax(X, 1, False)),
    "attention": (
        96,
        lambda: OPS.attention(Q, K, V, None, None, None, None, False, "top_left", None, None, 0.0, True),
    ),
}
"""For each operator the calls that it may make, and one call of it."""


def own_calls(run: Callable[[], object]) -> int:
    """Counts the calls of functions of burn_kernels in a warm run."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(ROOT)

    for _ in range(2):
        run()
    profiler = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(profiler)
    return count


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_makes_no_more_calls_than_before_it_was_declared(name: str) -> None:
    most, call = CALLS[name]

    def run() -> None:
        results = call()
        outputs = [y for y in (results if isinstance(results, tuple) else (results,)) if y.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])

    assert 0 < own_calls(run) <= most
