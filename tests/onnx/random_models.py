"""Defines what tests of random ONNX models share: the values of onnxruntime, and the loop over seeds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SEED", "references", "run_models", "session_of"]

SEED = int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(3), "big")
"""The first seed of the random models; SEED= gives those of an earlier run again."""


def session_of(data: bytes) -> Any:
    """A session of onnxruntime without its optimiser, which ends the process on some models; or a skip."""
    runtime: Any = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(data, options, ["CPUExecutionProvider"])


def references(drawn: Any) -> list[tuple[int, dict[str, Any], Any]] | None:
    """Sizes, inputs of a model for them, and the values of onnxruntime; None where it cannot run the model."""
    try:
        session = session_of(drawn.proto.SerializeToString())
        return [(n, inputs, session.run(None, inputs)) for n in (3, 5) for inputs in [drawn.inputs(n)]]
    except Exception as error:  # onnxruntime's errors have no common base that it exports
        if "ONNXRuntimeError" in str(error):
            return None
        raise


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
