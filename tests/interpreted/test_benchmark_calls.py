"""Calls of benchmarks/fusion.py compute all that they hand out: what would be computed later costs no time."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._fusion.operations import operations
from burn_torch import Device, Tensor
from burn_torch.backend.lazy.stream import Lazy

FUSED = Device.cpu().fused()


def uncomputed(found: Any) -> list[str]:
    """What is lazy, or the recipe of a value, among results."""
    if isinstance(found, tuple | list):
        return [name for part in found for name in uncomputed(part)]
    while isinstance(found, Tensor) and found.backend.is_autodiff:
        found = found.inner()
    primitive = found.primitive
    left = isinstance(primitive, Lazy) and type(primitive).__name__ != "Computed"
    return [type(primitive).__name__] if left else []


@pytest.mark.parametrize("passed", ["f", "fb"])
@pytest.mark.parametrize("operation", operations(quick=True), ids=lambda operation: operation.name)
def test_all_results_are_computed_within_the_call(operation: Any, passed: str) -> None:
    inputs = operation.inputs("cpu")
    upstream = operation.upstream(inputs) if passed == "fb" else None
    found = operation.lazily(inputs, upstream, FUSED)()
    assert uncomputed(found) == []


def test_a_flush_alone_would_leave_a_recipe() -> None:
    """Else the test above could not fail."""
    (gelu,) = (operation for operation in operations(quick=True) if operation.name.startswith("gelu f32"))
    x = Tensor.from_torch(gelu.inputs("cpu")[0], FUSED.autodiff()).require_grad()
    y = gelu.ours(x)
    FUSED.flush()
    assert uncomputed(y) == ["Recipe"]
