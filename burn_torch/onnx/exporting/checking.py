"""Defines what an exported file is held against: onnx's checker, and the function it came from, run by onnxruntime."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.core.wording import first_line

__all__ = ["Comparison", "checked", "compared"]

_TOLERANCE: Final = {DType.F64: 1e-5, DType.F32: 1e-3, DType.F16: 2e-2, DType.BF16: 1e-1}
"""How far apart outputs may lie, of the largest value or 1: kernels add in other orders, and in other precisions.

Sums of 16,500 equal terms in f32 differ by 4e-4 (a product by a 16,500 x 16,500 matrix, CPU).  f64 has room for
attributes of ONNX operators, such as an epsilon, which are f32.
"""


@dataclass(frozen=True)
class Comparison:
    """One output at one set of sizes: the largest difference between onnxruntime and burn_torch."""

    output: str
    sizes: str
    error: float
    largest: float
    """The largest absolute value of the output."""
    fits: bool

    def __str__(self) -> str:
        at = f" at {self.sizes}" if self.sizes else ""
        return f"{self.output}{at}: off by at most {self.error:.2g}, of values up to {self.largest:.3g}"


def checked(path: Path, name: str) -> None:
    """Raises: OnnxError where onnx's checker or its inference of shapes refuses the file."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as err:
        raise OnnxError(
            f"export: onnx refuses the node that was written for {name}",
            given=first_line(err),
            expected="a model that onnx.checker takes",
            mend="this is a fault of burn_torch: please report it with the function that was exported",
        ) from err


def compared(
    path: Path,
    names: tuple[Sequence[str], Sequence[str]],
    cases: Sequence[tuple[str, Sequence[TensorData], Sequence[TensorData]]],
) -> tuple[str, list[Comparison]]:
    """Runs the file in onnxruntime at each case (sizes, inputs, outputs wanted).

    Gives what ran, or why nothing did, and the comparisons.
    Raises: OnnxError where an output is not that of burn_torch.
    """
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return "onnxruntime is not installed: nothing was compared", []
    version = f"onnxruntime {onnxruntime.__version__}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # by default a product with a dequantised weight rounds its other operand to 8 bits: 1 computes it in f32
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    comparisons: list[Comparison] = []
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for sizes, inputs, wanted in cases:
            feed = {name: _value(onnxruntime, data) for name, data in zip(names[0], inputs, strict=True)}
            results = session.run_with_ort_values(list(names[1]), feed)
            comparisons += [
                _comparison(name, sizes, _array(value, want), want)
                for name, value, want in zip(names[1], results, wanted, strict=True)
            ]
    except OnnxError:
        raise
    except Exception as err:  # onnxruntime's own errors have no common base that it exports
        return f"{version} does not run it: {first_line(err)}", comparisons
    wrong = [comparison for comparison in comparisons if not comparison.fits]
    if wrong:
        raise OnnxError(
            "export: the written model computes other values than burn_torch",
            given="; ".join(map(str, wrong[:5])) + f", in {version}",
            expected="the same outputs up to rounding",
            mend="check that the function computes the same each time; else please report it, and look at the file"
            " with compare=False",
        )
    return version, comparisons


def _value(onnxruntime: Any, data: TensorData) -> object:
    if data.dtype is DType.BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(data.array, 16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(data.array, order="C"))


def _array(value: Any, want: TensorData) -> object:
    if want.dtype is not DType.BF16:
        return value.numpy()
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(value.to_dlpack()).float().numpy()


def _comparison(name: str, sizes: str, value: Any, want: TensorData) -> Comparison:
    wanted = want.values
    if value.shape != wanted.shape or (want.dtype is not DType.BF16 and value.dtype != wanted.dtype):
        raise OnnxError(
            f"export: the written model gives another shape or element type as {name}",
            given=f"{value.shape} {value.dtype}" + (f" at {sizes}" if sizes else ""),
            expected=f"{wanted.shape} {wanted.dtype}",
            mend="this is a fault of burn_torch: please report it with the function that was exported",
        )
    if wanted.size == 0:
        return Comparison(name, sizes, 0.0, 0.0, True)
    a, b = value.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(b)
    largest = float(np.max(np.abs(b[finite]), initial=0.0))
    apart = np.where(same, 0.0, np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b)))
    error = float(np.max(np.where(np.isnan(apart), np.inf, apart)))
    return Comparison(name, sizes, error, largest, error <= _TOLERANCE.get(want.dtype, 0.0) * max(largest, 1.0))
