"""The example exports digits that the imported file reads as well, and runs any other file."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.onnx.small_models import MODELS

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_inference" / "onnx_inference.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_it_trains_exports_and_reads_the_digits(example, tmp_path, monkeypatch, capsys):
    from burn_torch.data import DigitsDataset

    monkeypatch.chdir(tmp_path)
    outputs = example["main"]([])
    assert [path.name for path in tmp_path.iterdir()] == ["digits.onnx"]
    labels = DigitsDataset.test(split="stratified").labels
    assert (outputs["scores"].argmax(axis=1) == labels).mean() > 0.93
    printed = capsys.readouterr().out
    assert "digits.onnx: opset ai.onnx 18, made by burn_torch" in printed
    assert "of the test images are read right by the imported file" in printed


def test_any_file_runs_on_noise_and_on_given_arrays(example, tmp_path, capsys):
    proto, inputs = MODELS["cnn"]()
    path = tmp_path / "cnn.onnx"
    path.write_bytes(proto.SerializeToString())
    on_noise = example["main"]([str(path)])
    name = proto.graph.output[0].name
    assert list(on_noise) == [name]
    np.save(tmp_path / "x.npy", inputs[0])
    outputs = example["main"]([str(path), str(tmp_path / "x.npy")])
    assert outputs[name].shape[0] == inputs[0].shape[0]
    assert f"{name} {outputs[name].shape} float32: " in capsys.readouterr().out
    from onnx.reference import ReferenceEvaluator

    want = ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: inputs[0]})[0]
    np.testing.assert_allclose(outputs[name], want, rtol=2e-5, atol=1e-6)
