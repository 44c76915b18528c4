"""Kernels whose text has a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from burn_torch.fusion.body.loops import Lowered, Text

K = TypeVar("K", bound=Lowered)


def with_edit(kernel: K, old: str, new: str, times: int = -1) -> K:
    """The kernel with other words in its source."""
    assert old in kernel.source, kernel.source
    source = kernel.source.replace(kernel.name, "KERNEL").replace(old, new, times)
    edited = replace(kernel, text=Text(lambda: (source, kernel.numbers, kernel.sizes)))
    assert edited.source != kernel.source
    return edited
