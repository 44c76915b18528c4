"""For tests of generated C: where they run, and a fixture that makes a kernel of every body, however small."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from burn_torch.backend.libtorch.generated import c_kernels
from burn_torch.fusion.c import lowering as c_lowering

__all__ = ["RUNS_C", "small_kernels"]

RUNS_C = [
    pytest.mark.skipif(c_kernels.compiler() is None, reason="no C compiler with OpenMP here"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels run in Triton's interpreter here"),
]


@pytest.fixture
def small_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small bodies are kernels too: here they show faults, elsewhere they would not be faster."""
    monkeypatch.setattr(c_lowering, "FEW", 1)
    c_kernels.c_function.cache_clear()
    yield
    c_kernels.c_function.cache_clear()
