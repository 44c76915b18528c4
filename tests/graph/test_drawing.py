"""Pictures of graphs: well-formed, complete, escaped, free of overlap, fast enough."""

from __future__ import annotations

import itertools
import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, Node, Origin, Trace
from burn_torch.graph.drawing import draw
from tests.graph.random_graphs import Program, programs

SPEC = TensorSpec.of((3, 4), DType.F32, "cpu")
SVG = "{http://www.w3.org/2000/svg}"


def example(origin: Origin | None = None) -> Graph:
    trace = Trace()
    x = trace.input(SPEC)
    largest, _ = ops.max_with_indices(ops.exp(x) * x, dim=1)
    graph = trace.graph([largest, None])
    nodes = [Node(n.call, n.inputs, n.outputs, origin) for n in graph.nodes]
    return Graph(graph.inputs, nodes, graph.outputs)


def boxes(picture: str) -> list[tuple[str, float, float, float]]:
    """Tooltip, left, right and top of each box."""
    rectangles = []
    for group in ET.fromstring(picture).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None and rect is not None:
            left = float(rect.attrib["x"])
            rectangles.append((title.text or "", left, left + float(rect.attrib["width"]), float(rect.attrib["y"])))
    return rectangles


def test_picture_has_a_box_for_each_input_node_and_output() -> None:
    picture = draw(example())
    tooltips = [text for text, *_ in boxes(picture)]
    assert tooltips == [
        "input %0: f32[3, 4]@cpu",
        "%1 = exp(%0)\nf32[3, 4]",
        "%2 = mul(%1, %0)\nf32[3, 4]",
        "%3, %4 = max_with_indices(%2, dim=1)\nf32[3, 1], i64[3, 1]",
        "output 0: %3, f32[3, 1]",
    ]
    assert len(list(ET.fromstring(picture).iter(f"{SVG}path"))) == 5


def test_readers_stand_below_what_they_read() -> None:
    tops = [top for *_, top in boxes(draw(example()))]
    assert tops == sorted(set(tops))


def test_tooltips_tell_line_and_module_and_the_legend_names_modules() -> None:
    picture = draw(example(Origin("model.py", 12, "forward", "encoder.norm", True)))
    texts = ["".join(e.itertext()) for e in ET.fromstring(picture).iter(f"{SVG}text")]
    assert "gradient of encoder.norm" in texts
    assert boxes(picture)[1][0].endswith("\ngradient of encoder.norm at model.py:12 in forward")


def test_everything_is_escaped(tmp_path: Path) -> None:
    hostile = "</svg><script>alert('x')</script>&\x00\udc80"
    graph = example(Origin(hostile, 1, hostile, hostile, text=hostile))
    for picture in (draw(graph), graph.show(tmp_path / "page.html").read_text(encoding="utf-8")):
        assert "<script" not in picture
        assert "&lt;script&gt;" in picture
    assert len(boxes(draw(graph))) == 5


@settings(max_examples=60, deadline=None)
@given(programs(backward=True))
def test_boxes_do_not_overlap(program: Program) -> None:
    placed = boxes(draw(program.graph))
    outputs = sum(i is not None for i in program.graph.outputs)
    assert len(placed) == len(program.graph.inputs) + len(program.graph.nodes) + outputs
    layers = itertools.groupby(sorted(placed, key=lambda box: (box[3], box[1])), key=lambda box: box[3])
    for _, layer in layers:
        for (_, _, right, _), (_, left, _, _) in itertools.pairwise(layer):
            assert left > right


def test_show_writes_svg_or_html_by_the_name(tmp_path: Path) -> None:
    graph = example()
    svg = graph.show(tmp_path / "graph.svg")
    assert svg == tmp_path / "graph.svg"
    assert svg.read_text(encoding="utf-8") == draw(graph)
    page = graph.show(str(tmp_path / "graph.html")).read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert draw(graph) in page
    assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)", page)


def test_show_without_a_name_makes_a_temporary_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = example().show()
    assert path.parent == tmp_path
    assert path.suffix == ".html"
    assert "max_with_indices" in path.read_text(encoding="utf-8")


def test_empty_graph_has_a_picture() -> None:
    assert boxes(draw(Graph([], [], []))) == []


def test_a_thousand_nodes_with_long_edges_take_little_time() -> None:
    trace = Trace()
    values = [trace.input(SPEC)]
    for i in range(1000):  # as a backward: each reads what was made long before
        values.append(values[-1] * values[max(0, len(values) - 1 - 2 * (i % 400))])
    graph = trace.graph([values[-1]])
    start = time.perf_counter()
    picture = draw(graph)
    assert time.perf_counter() - start < 3  # 0.1 s on an idle machine
    assert len(boxes(picture)) == 1002


def test_a_wide_graph_of_many_modules_names_the_first() -> None:
    trace = Trace()
    x = trace.input(SPEC)
    graph = trace.graph([ops.exp(x) for _ in range(30)])
    nodes = [Node(n.call, n.inputs, n.outputs, Origin("m.py", 1, "f", f"block.{i}")) for i, n in enumerate(graph.nodes)]
    picture = draw(Graph(graph.inputs, nodes, graph.outputs))
    texts = ["".join(e.itertext()) for e in ET.fromstring(picture).iter(f"{SVG}text")]
    assert "block.23" in texts
    assert "block.24" not in texts
    assert "and 6 more" in texts
