"""Every layer exported: onnxruntime and the importer compute what it computes, at batches of other sizes too."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from burn_torch.onnx import export, load
from burn_torch.onnx.exporting.tracing import Inputs
from burn_torch.transform.flatten import Walk
from tests.onnx.layer_cases import CASES, classes

TOLERANCE = 1e-5


def outputs(result):
    walk = Walk()
    walk.take(result)
    return walk.leaves


def close(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert abs(a - b).max() <= TOLERANCE * max(1.0, abs(b).max())


def test_there_is_a_case_for_every_layer():
    assert {name.partition(",")[0] for name in CASES} == classes()


@pytest.mark.parametrize("name", list(CASES))
def test_a_layer_computes_the_same_everywhere(name, seed, tmp_path):
    case = CASES[name]
    layer, inputs = case.make(), case.inputs(seed)
    report = export(layer, inputs, tmp_path / "layer.onnx", dynamic_batch=case.dynamic)
    for comparison in report.comparisons:
        assert comparison.error <= TOLERANCE * max(1.0, comparison.largest), str(comparison)
    if report.runtime.startswith("onnxruntime is not installed"):
        pytest.skip(report.runtime)
    assert len(report.comparisons) == len(report.outputs) * (2 if case.dynamic else 1), report.runtime
    tensors = list(Inputs(inputs, [f"input_{i}" for i in range(len(inputs))]).tensors.values())
    again = load(tmp_path / "layer.onnx").forward(*tensors)
    close(outputs(again), outputs(layer.forward(*inputs)))


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 17, 20, 21, 23])
@pytest.mark.parametrize("name", list(CASES))
def test_a_layer_in_other_opsets(name, opset, seed, tmp_path):
    case = CASES[name]
    layer, inputs = case.make(), case.inputs(seed)
    report = export(layer, inputs, tmp_path / "layer.onnx", dynamic_batch=case.dynamic, opset=opset)
    if report.runtime.startswith("onnxruntime is not installed"):
        pytest.skip(report.runtime)
    assert len(report.comparisons) == len(report.outputs) * (2 if case.dynamic else 1), report.runtime
    for comparison in report.comparisons:
        assert comparison.error <= TOLERANCE * max(1.0, comparison.largest), str(comparison)
