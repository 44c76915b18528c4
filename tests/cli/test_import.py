"""`burn-torch import`: a report, a module and a record; errors with the exit code for data."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from onnx import helper

from tests.onnx.small_models import info, mlp


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small net.onnx"
    path.write_bytes(mlp()[0].SerializeToString())
    return path


def test_it_reports_and_writes(burn, tmp_path, file):
    done = burn("import", file, "--out", "model", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "opset ai.onnx 18" in done.out
    assert "Gemm x 1" in done.out
    assert "wrote model/small_net.py and model/model.safetensors" in done.out
    text = (tmp_path / "model" / "small_net.py").read_text()
    assert "class Model(Module):" in text
    assert "w1: Param  # (16, 8) f32" in text
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_the_report_alone_writes_nothing(burn, tmp_path, file):
    done = burn("import", file, "--report", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "all of them can be imported" in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small net.onnx"]


def test_what_cannot_be_imported_has_the_exit_code_of_data(burn, tmp_path):
    graph = helper.make_graph([helper.make_node("Odd", ["x"], ["y"], "n1")], "g", [info("x", [1])], [info("y", [1])])
    (tmp_path / "odd.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    )
    done = burn("import", "odd.onnx", cwd=tmp_path)
    assert done.code == 3
    assert "1 node cannot be imported" in done.out
    assert "error: 1 node of odd.onnx cannot be imported" in done.err
    assert "Odd (opset 18) 'n1': not supported" in done.err
    assert not (tmp_path / "model").exists()


def test_a_file_that_is_not_there(burn, tmp_path):
    done = burn("import", "none.onnx", cwd=tmp_path)
    assert done.code == 3
    assert "error: there is no such ONNX file" in done.err
