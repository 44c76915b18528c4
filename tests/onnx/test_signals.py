"""Transforms and frames of signals as ONNX nodes: onnxruntime computes what the library computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort

from burn_torch import Device, Tensor, ops
from burn_torch.onnx import export
from burn_torch.tensor import signal
from burn_torch.tensor.signal import StftOptions

OPTIONS = StftOptions(4)


def transforms(x: Tensor) -> tuple[Tensor, ...]:
    half = signal.rfftn(x, (0, 1), norm="ortho")
    whole = signal.ifft(half, 2, norm="forward")
    back = signal.irfftn(half * 2, (0, 1), (3, 7), "ortho")
    added = ops.unfold_backward(x, shape=(3, 14), dim=1, size=5, step=2)
    return half.real, half.imag, whole.real, whole.imag, back, added


def frames(x: Tensor) -> tuple[Tensor, ...]:
    spectra = signal.stft(x[:, :, 0], None, OPTIONS)
    return spectra, signal.istft(spectra, None, None, OPTIONS)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("function", [transforms, frames])
def test_signals_are_written(function, opset: int, tmp_path: Path) -> None:
    x = Tensor.from_data(np.random.default_rng(0).normal(size=(3, 5, 5)).astype(np.float32), Device.cpu())
    export(function, (x,), tmp_path / "signal.onnx", opset=opset)
    session = ort.InferenceSession(tmp_path / "signal.onnx")
    results = session.run(None, {session.get_inputs()[0].name: np.asarray(x)})
    for theirs, ours in zip(results, function(x), strict=True):
        np.testing.assert_allclose(theirs, np.asarray(ours), atol=1e-5)
