"""Programs as files, and the errors inside them."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ops
from burn_torch.backend.libtorch import source_file
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BoundsError
from burn_torch.core.spec import INT_NUMBER
from burn_torch.graph import Graph, Node, Origin, Trace
from burn_torch.ops import Value
from tests.backend.libtorch.program_harness import LEAF, agree, drawn, spec


# -- source ----------------------------------------------------------------------------------------------
def small() -> Graph:
    trace = Trace()
    x, w = trace.input(spec(2, 3)), trace.input(spec(3, 4))
    graph = trace.graph([ops.relu(ops.linear(x, w, None))])
    origins = [Origin("model.py", 12, "forward", "layers.0"), Origin("model.py", 13, "forward")]
    nodes = [Node(n.call, n.inputs, n.outputs, o) for n, o in zip(graph.nodes, origins, strict=True)]
    return Graph(graph.inputs, nodes, graph.outputs)


def test_source_is_a_file_that_says_where_each_line_is_from(cache: Path) -> None:
    program = LEAF.program(small(), title="a small network")
    assert program.path is not None
    assert program.path.parent == cache / "programs"
    text = program.path.read_text()
    assert text == program.source
    compile(text, str(program.path), "exec")
    lines = text.splitlines()
    assert lines[0] == '"""a small network: 2 inputs, 2 operations, 1 of them in place.'
    assert "mm = torch.mm" in lines
    (product,) = [line for line in lines if "= mm(" in line]
    assert product.split("#")[0].strip() == "v2 = mm(v0, v1)"
    assert product.endswith("# (2, 4) f32  layers.0 at model.py:12 in forward")
    (activation,) = [line for line in lines if "relu_(" in line]
    assert activation.split("#")[0].strip() == "v3 = relu_(v2); del v2"
    assert activation.endswith("# (2, 4) f32  model.py:13 in forward  in place")


def test_source_can_be_imported(cache: Path) -> None:
    path = LEAF.program(small()).path
    assert path is not None
    described = importlib.util.spec_from_file_location("written", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    outputs = module.run(torch.ones(2, 3), torch.ones(3, 4))
    assert torch.equal(outputs[0], torch.full((2, 4), 3.0))


def test_equal_programs_share_a_file(cache: Path) -> None:
    assert LEAF.program(small()).path == LEAF.program(small()).path
    assert len(list((cache / "programs").iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"def run(): pass"])
def test_a_damaged_file_of_a_program_is_written_again(cache: Path, damage: bytes) -> None:
    path = LEAF.program(small()).path
    assert path is not None
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert LEAF.program(small()).path == path
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: np.random.Generator
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "file"))
    program = LEAF.program(small())
    assert program.path is None
    agree(small(), drawn(small(), seed))
    filename = program.run.__code__.co_filename
    assert "def run(" in "".join(linecache.getlines(filename))


def test_the_folder_keeps_the_newest_programs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "_KEPT", 3)
    for size in range(1, 11):
        trace = Trace()
        last = LEAF.program(trace.graph([ops.exp(trace.input(spec(size)))])).path
    files = list((cache / "programs").iterdir())
    assert len(files) <= 6
    assert last in files


# -- errors ----------------------------------------------------------------------------------------------
def told(graph: Graph, inputs: Sequence[Any], error: type[Exception], match: str) -> list[str]:
    origin = Origin("model.py", 12, "forward", "layers.0")
    nodes = [Node(n.call, n.inputs, n.outputs, origin if i else None) for i, n in enumerate(graph.nodes)]
    with pytest.raises(error, match=match) as caught:
        LEAF.program(Graph(graph.inputs, nodes, graph.outputs)).run(*inputs)
    return list(getattr(caught.value, "__notes__", []))


def test_an_error_inside_a_program_names_the_users_line() -> None:
    trace = Trace()
    x, targets = trace.input(spec(2, 3)), trace.input(spec(2, dtype=DType.I64))
    graph = trace.graph([ops.cross_entropy(x * 2.0, targets, None, None)])
    notes = told(graph, [torch.zeros(2, 3), torch.tensor([0, 7])], BoundsError, "7")
    assert "at layers.0 at model.py:12 in forward" in notes
    assert any(note.startswith("in cross_entropy((2, 3) f32 cpu, ") for note in notes)


def test_a_number_beyond_64_bits_is_reported_in_the_words_of_eager_execution() -> None:
    trace = Trace()
    x, n = trace.input(spec(3)), trace.input(INT_NUMBER)
    graph = trace.graph([(x + x) * n])
    notes = told(graph, [torch.zeros(3), 2**70], ArgumentError, "a number does not fit the element type")
    assert "at layers.0 at model.py:12 in forward" in notes


def test_a_traceback_shows_the_generated_line() -> None:
    trace = Trace()
    x, targets = trace.input(spec(2, 3)), trace.input(spec(2, dtype=DType.I64))
    program = LEAF.program(trace.graph([ops.cross_entropy(x, targets, None, None)]))
    with pytest.raises(BoundsError, match="given:") as caught:
        program.run(torch.zeros(2, 3), torch.tensor([0, -1]))
    lines = [str(entry.statement).strip() for entry in caught.traceback]
    assert any(line.startswith("v2 = cross_entropy(v0, v1, None, None)") for line in lines)


def test_values_alone_make_a_program(seed: np.random.Generator) -> None:
    trace = Trace()
    x = trace.input(spec(2))
    graph = trace.graph([x, None, Value(trace, x.primitive, x.spec)])
    data = drawn(graph, seed)[0]
    outputs = LEAF.program(graph).run(data)
    assert outputs[0] is data
    assert outputs[1] is None
