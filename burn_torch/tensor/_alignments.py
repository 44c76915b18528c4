"""Asks of tensors that losses over alignments take: can their targets be aligned, may gradients be asked of them."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from burn_torch.backend.base import computes_at_once
from burn_torch.tensor.tensor import Tensor

__all__ = ["is_differentiated", "require_alignable"]


def require_alignable(
    name: str, targets: Tensor, lengths: Tensor, target_lengths: Tensor, *, steps: int, classes: int, blank: int,
    least: int = 0,
) -> None:  # fmt: skip
    """Raises: BoundsError for lengths and targets that cannot be aligned, where they lie on the host and are there."""
    tensors = (targets, lengths, target_lengths)
    if all(x.spec.place == "cpu" and computes_at_once(x.backend) for x in tensors):
        arrays = [np.asarray(x.no_grad().into_data()).astype(np.int64) for x in tensors]
        from burn_torch.ops import alignment

        alignment.require_alignable(name, *arrays, steps=steps, classes=classes, blank=blank, least=least)


def is_differentiated(x: Tensor) -> builtins.bool:
    """Tells if gradients may be asked of what is computed from x: it is on a tape, or a tape lies under it."""
    stack: Any = x.backend
    if stack.is_autodiff and not stack.is_tracked(x.primitive):
        stack = stack.inner
    while stack is not None and not stack.is_autodiff:
        stack = stack.inner
    return stack is not None
