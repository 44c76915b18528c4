"""What tests of random ONNX models share: a session of onnxruntime, and the loop over seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["run_models", "session_of"]


def session_of(data: bytes) -> Any:
    """A session of onnxruntime without its optimiser, which ends the process on some models; or a skip."""
    runtime: Any = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(data, options, ["CPUExecutionProvider"])


def run_models(
    disagreements: Callable[[int, Path], list[str] | None], seed: int, count: int, folder: Path, *, least: float
) -> None:
    """Asserts that `count` models agree from `seed` on, and that onnxruntime ran at least this part of them."""
    print(f"random models: SEED={seed}")
    ran = 0
    for number in range(seed, seed + count):
        wrong = disagreements(number, folder)
        if wrong is not None:
            ran += 1
            assert not wrong, f"SEED={number}: " + "\n".join(wrong)
    assert ran >= least * count, f"onnxruntime ran {ran} of {count}"
