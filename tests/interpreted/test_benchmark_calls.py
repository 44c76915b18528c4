"""Calls of benchmarks/fusion.py compute all that they hand out: what would be computed later costs no time."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks._fusion.operations import operations
from burn_torch import Device, Tensor
from burn_torch.backend.lazy.stream import Lazy

FUSED = Device.cpu().fused()


def uncomputed(value: Any) -> list[str]:
    """Lists results that are lazy, or that are recipes of values."""
    if isinstance(value, tuple | list):
        return [name for part in value for name in uncomputed(part)]
    while isinstance(value, Tensor) and value.backend.is_autodiff:
        value = value.inner()
    primitive = value.primitive
    left = isinstance(primitive, Lazy) and type(primitive).__name__ != "Computed"
    return [type(primitive).__name__] if left else []


@pytest.mark.parametrize("passed", ["f", "fb"])
@pytest.mark.parametrize("operation", operations(quick=True), ids=lambda operation: operation.name)
def test_all_results_are_computed_within_the_call(operation: Any, passed: str) -> None:
    inputs = operation.inputs("cpu")
    upstream = operation.upstream(inputs) if passed == "fb" else None
    results = operation.lazily(inputs, upstream, FUSED)()
    assert uncomputed(results) == []


def test_a_flush_alone_would_leave_a_recipe() -> None:
    """Else the test above could not fail."""
    (gelu,) = (operation for operation in operations(quick=True) if operation.name.startswith("gelu f32"))
    x = Tensor.from_torch(gelu.inputs("cpu")[0], FUSED.autodiff()).require_grad()
    y = gelu.ours(x)
    FUSED.flush()
    assert uncomputed(y) == ["Recipe"]
