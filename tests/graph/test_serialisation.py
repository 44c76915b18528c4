"""Graphs as text and files: exact both ways, strict, and harmless whatever the text is."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import GraphError
from burn_torch.core.spec import FLOAT_NUMBER, NUMBER_SPECS, TensorSpec
from burn_torch.graph import Graph, Literal, Node, Origin, Trace, serialisation, verify
from burn_torch.ops import REGISTRY, op
from tests.graph.random_graphs import Program, programs
from tests.ops import table_harness as table

SPEC = TensorSpec.of((3, 4), DType.F32, "cpu")


def example() -> Graph:
    """x * rate + 0.5, and its largest values with their places; an input that is absent."""
    trace = Trace()
    x, rate = trace.input(SPEC), trace.input(FLOAT_NUMBER)
    largest, where = ops.max_with_indices(x * rate + 0.5, dim=1)
    return trace.graph([ops.rms_norm(x, None, 1e-5)[0], largest, None, where])


def with_literal(value: float | int | bool) -> Graph:
    call = ops.mul.bind([SPEC, NUMBER_SPECS[type(value)]], {}) if not isinstance(value, bool) else None
    if call is None:
        call = ops.full.bind([NUMBER_SPECS[bool]], {"shape": (3, 4), "dtype": DType.BOOL, "place": "cpu"})
        return Graph([], [Node(call, [Literal(value)], [0])], [0])
    if isinstance(value, float):
        return Graph([(0, SPEC)], [Node(call, [0, Literal(value)], [1])], [1])
    return Graph([(0, SPEC)], [Node(call, [0, Literal(value)], [1])], [1])


def bits(graph: Graph) -> list[bytes]:
    """Returns the bits of the floats among its literals."""
    literals = [x.value for n in graph.nodes for x in n.inputs if isinstance(x, Literal)]
    return [struct.pack(">d", x) for x in literals if isinstance(x, float)]


# -- both ways -------------------------------------------------------------------------------------------------
@settings(max_examples=150, deadline=None)
@given(programs(backward=True))
def test_round_trip_of_random_graphs(program: Program) -> None:
    text = program.graph.to_json()
    again = Graph.from_json(text)
    assert again == program.graph
    assert hash(again) == hash(program.graph)
    assert again.to_json() == text
    assert all(a.call is b.call for a, b in zip(again.nodes, program.graph.nodes, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.floats(width=64), st.integers(), st.booleans()))
def test_round_trip_of_any_number(value: float | int | bool) -> None:
    graph = with_literal(value)
    again = Graph.from_json(graph.to_json().encode())
    assert again == graph
    assert bits(again) == bits(graph)


@pytest.mark.parametrize("payload", ["7ff8000000000000", "fff8000000000000", "7ff8000000000001", "7ffdeadbeef00000"])
def test_nan_keeps_its_bits(payload: str) -> None:
    graph = with_literal(struct.unpack(">d", bytes.fromhex(payload))[0])
    assert [x.hex() for x in bits(Graph.from_json(graph.to_json()))] == [payload]


@pytest.mark.parametrize(
    "value", [0.0, -0.0, math.inf, -math.inf, 5e-324, 1e308, 0.1, 2**64, -(2**64) - 1, 10**400, True]
)
def test_number_keeps_value_sign_and_kind(value: float) -> None:
    again = Graph.from_json(with_literal(value).to_json()).nodes[0].inputs[-1]
    assert isinstance(again, Literal)
    assert (type(again.value), repr(again.value)) == (type(value), repr(value))


def test_literals_differ_by_kind_and_by_the_sign_of_zero() -> None:
    literals = [Literal(x) for x in (1, 1.0, True, 0, 0.0, -0.0, False, math.nan, 10**5000)]
    assert len(set(literals)) == len(literals)
    assert Literal(math.nan) == Literal(-math.nan)
    assert hash(Literal(math.nan)) == hash(Literal(-math.nan))


@pytest.mark.parametrize("name", [name for name in REGISTRY if "::" not in name])
def test_every_row_goes_both_ways(name: str) -> None:
    for case in table.cases(name):
        call = next(table.variants(case)).call("cpu")
        inputs: list[Any] = []
        read: list[int | None] = []
        for spec in call.specs:
            read.append(None if spec is None else len(inputs))
            if spec is not None:
                inputs.append((len(inputs), spec))
        outputs = [
            None if spec is None and "live" in call.attrs else len(inputs) + i for i, spec in enumerate(call.results)
        ]
        graph = verify(Graph(inputs, [Node(call, read, outputs)], []))
        assert Graph.from_json(graph.to_json()) == graph


def test_origins_are_kept_when_asked_and_never_read_from_disk() -> None:
    graph = example()
    here = Origin(__file__, 1, "f", "encoder", True)
    located = Graph(graph.inputs, [Node(n.call, n.inputs, n.outputs, here) for n in graph.nodes], graph.outputs)
    (origin, *_) = [n.origin for n in Graph.from_json(located.to_json(origins=True)).nodes]
    assert origin is not None
    assert origin == here._replace(text=here.source)
    assert origin.source.startswith('"""Graphs as text and files')
    assert [n.origin for n in Graph.from_json(located.to_json()).nodes] == [None] * len(graph.nodes)
    assert __file__ not in located.to_json()
    elsewhere = located.to_json(origins=True).replace(json.dumps(here.source), '"x = 1"')
    assert {n.origin.source for n in Graph.from_json(elsewhere).nodes if n.origin} == {"x = 1"}


def test_file_goes_both_ways(tmp_path: Path) -> None:
    graph = example()
    path = graph.save(tmp_path / "step.json")
    assert path == tmp_path / "step.json"
    assert Graph.load(str(path)) == graph


def test_users_row_goes_both_ways_and_is_missed_where_it_is_absent() -> None:
    @op(torch=lambda x: x, namespace="test_serialisation")
    def identity(x: TensorSpec) -> TensorSpec:
        """A user's row."""
        return x

    try:
        call = identity.bind([SPEC], {})
        graph = Graph([(0, SPEC)], [Node(call, [0], [1])], [1])
        text = graph.to_json()
        assert Graph.from_json(text) == graph
    finally:
        del REGISTRY[identity.name]
    with pytest.raises(
        GraphError, match=r"(?s)row 'test_serialisation::identity' is not known here.*import the module"
    ):
        Graph.from_json(text)


# -- strictness ------------------------------------------------------------------------------------------------
def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    document = json.loads(example().to_json())
    change(document)
    return json.dumps(document)


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Sets what the path, all but its last part, leads to."""
    *way, last, value = path

    def change(document: Any) -> None:
        for part in way:
            document = document[part]
        document[last] = value

    return change


DAMAGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format": (put("format", "onnx"), r'(?s)the whole is malformed.*"format": "burn_torch graph"'),
    "version": (put("version", 2), "(?s)the version is not known here.*version 2.*version 1.*burn_torch that wrote it"),
    "version of another type": (put("version", True), "(?s)the version is not known here.*version True"),
    "key too many": (put("more", 1), "the keys of the whole is malformed"),
    "key that lacks": (lambda d: d.pop("nodes"), "the keys of the whole is malformed"),
    "unknown row": (put("nodes", 0, 0, "mull"), "(?s)the row 'mull' is not known here.*did you mean 'mul'"),
    "row that is no name": (put("nodes", 0, 0, 3), "the row of node 0 is malformed"),
    "node too short": (put("nodes", 0, []), "(?s)node 0 is malformed.*a list of 7"),
    "spec of no kind": (put("specs", 1, "complex"), "(?s)spec 1 is malformed.*one of int, float, bool"),
    "element type": (put("specs", 0, 0, "f8"), "(?s)the element type of spec 0.*'f8'.*such as f32"),
    "element type of another kind": (put("specs", 0, 0, []), "the element type of spec 0"),
    "negative size": (put("specs", 0, 1, 0, -1), "(?s)the shape of spec 0.*sizes from 0"),
    "fractional size": (put("specs", 0, 1, 0, 3.0), "(?s)the shape of spec 0.*sizes from 0"),
    "too many axes": (put("specs", 0, 1, [1] * 65), "(?s)the shape of spec 0.*at most 64 sizes"),
    "too many elements": (put("specs", 0, 1, [1 << 40, 1 << 40]), "(?s)the shape of spec 0.*fewer than 2.63 elements"),
    "place": (put("specs", 0, 2, "cpu\n"), "the place of spec 0 is malformed"),
    "position of a spec": (put("inputs", 0, 1, 99), '(?s)the spec of input 0 is malformed.*99.*a position in "specs"'),
    "truth value for an id": (put("inputs", 0, 0, True), "(?s)an id of input 0.*True.*a whole number"),
    "negative id": (put("outputs", 0, -1), '(?s)an id of "outputs".*-1.*a whole number'),
    "attribute of another type": (
        put("nodes", 2, 2, "dim", "1"), "(?s)node 2, 'max_with_indices', is a call that the row does not take.*dim"),
    "attribute out of range": (
        put("nodes", 2, 2, "dim", 7), "(?s)node 2, 'max_with_indices', is a call that the row does not take.*Error"),
    "truth value for an attribute": (put("nodes", 2, 2, "dim", True), "the attributes of node 2, 'max_with_indices',"),
    "attribute that is unknown": (put("nodes", 2, 2, "axis", 1), "(?s)does not take.*unknown attributes"),
    "fraction for an attribute": (put("nodes", 2, 2, "dim", 1.0), "(?s)attribute 'dim' of node 2.*a whole number"),
    "attribute that is nested": (put("nodes", 2, 2, "dim", [[[[[[1]]]]]]), "attribute 'dim' of node 2"),
    "element type of an attribute": (put("nodes", 2, 2, "dim", {"dtype": "f8"}), "the element type of attribute 'dim'"),
    "attribute of no kind": (put("nodes", 2, 2, "dim", {"type": 1}), "the keys of attribute 'dim' of node 2"),
    "other results": (
        put("nodes", 0, 3, [1]), r"(?s)node 0, 'mul', gives other results here.*float.*f32\[3, 4\]@cpu, as the row's"),
    "float that is not canonical": (put("nodes", 1, 4, 1, {"float": "0.5"}), "(?s)a number of node 1.*what float.hex"),
    "float that is none": (put("nodes", 1, 4, 1, {"float": "half"}), "(?s)a number of node 1.*what float.hex"),
    "float that is too large": (put("nodes", 1, 4, 1, {"float": "0x1p+9999"}), "(?s)a number of node 1.*float.hex"),
    "nan without bits": (put("nodes", 1, 4, 1, {"float": "nan"}), "(?s)a number of node 1.*what float.hex"),
    "nan that is none": (put("nodes", 1, 4, 1, {"float": "nan:0000000000000000"}), "(?s)a number of node 1.*its bits"),
    "nan of other length": (put("nodes", 1, 4, 1, {"float": "nan:7ff8"}), "(?s)a number of node 1.*its bits"),
    "bare float": (put("nodes", 1, 4, 1, 0.5), "an id of node 1, 'add', is malformed"),
    "number of no kind": (put("nodes", 1, 4, 1, {"complex": 1}), "a number of node 1, 'add', is malformed"),
    "number of two kinds": (put("nodes", 1, 4, 1, {"int": 1, "bool": True}), "(?s)a number of node 1.*one kind"),
    "truth value for an int": (put("nodes", 1, 4, 1, {"int": True}), "a number of node 1, 'add', is malformed"),
    "number of another kind than bound": (
        put("nodes", 1, 4, 1, {"int": 1}), "graph: input 1 is the int 1"),
    "reads what nothing makes": (put("nodes", 1, 4, 0, 77), "graph: input 0: nothing makes %77"),
    "made twice": (put("nodes", 1, 5, [0]), "%0 is made twice"),
    "origin": (put("nodes", 0, 6, ["a.py", "1", "f", "", False, ""]), "the origin of node 0, 'mul', is malformed"),
    "outputs that are no list": (put("outputs", 3), '(?s)"outputs" is malformed.*a list'),
    "attributes that are no object": (put("nodes", 0, 2, []), "(?s)the attributes of node 0.*an object"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_reported(name: str) -> None:
    change, message = DAMAGED[name]
    with pytest.raises(GraphError, match=message):
        Graph.from_json(changed(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "(?s)reading a graph: this is no JSON.*line 1 column 1"),
        (b"\xff\xfe", "(?s)this is no JSON.*utf-8"),
        ("[" * 100_000, "(?s)this is no JSON.*nested too deeply"),
        ("[]", "(?s)the whole is malformed"),
        ('{"format": "burn_torch graph", "version": 1, "version": 1}', "(?s)the whole is malformed.*twice"),
        ('{"format": "burn_torch graph", "version": ' + "9" * 5000 + "}", "(?s)this is no JSON.*limit"),
    ],
)
def test_text_that_is_no_graph(text: str | bytes, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_json(text)


def test_text_that_is_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = example()
    text = graph.to_json()
    path = graph.save(tmp_path / "graph.json")
    monkeypatch.setattr(serialisation, "MOST_BYTES", len(text) - 1)
    monkeypatch.setattr("burn_torch.core.strict_json.parse", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(GraphError, match=f"(?s)the text is too long.*{len(text)} bytes.*at most {len(text) - 1}"):
        Graph.from_json(text)
    with pytest.raises(GraphError, match=f"(?s)cannot be read.*it has more than {len(text) - 1} bytes"):
        Graph.load(path)
    with pytest.raises(GraphError, match=f"(?s)cannot be written as text.*{len(text)} bytes, more than"):
        graph.to_json()


def test_number_that_is_too_long_is_not_written() -> None:
    with pytest.raises(GraphError, match=r"(?s)cannot be written as text.*limit.*up to 4300 digits"):
        with_literal(10**5000).to_json()


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"(?s)the file cannot be read.*absent.json: No such file.*check the path"):
        Graph.load(tmp_path / "absent.json")
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    with pytest.raises(GraphError, match="this is no JSON") as caught:
        Graph.load(tmp_path / "damaged.json")
    assert any("damaged.json" in note for note in caught.value.__notes__)


# -- hostile text ----------------------------------------------------------------------------------------------
def reads_or_refuses(text: str | bytes) -> None:
    try:
        graph = Graph.from_json(text)
    except GraphError:
        return
    verify(graph)
    assert Graph.from_json(graph.to_json()) == graph


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_changed_bytes_are_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(TEXT)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        match data.draw(st.sampled_from(("set", "cut", "insert", "swap"))):
            case "set":
                text[place] = data.draw(st.one_of(st.sampled_from(TEXT), st.integers(0, 255)))
            case "cut":
                del text[place : place + data.draw(st.integers(1, 9))]
            case "insert":
                text[place:place] = data.draw(st.sampled_from((b"0", b"-", b"1e9", b"null", b"[", b"]", b'"', b",")))
            case "swap":
                other = data.draw(st.integers(0, len(text) - 1))
                text[place], text[other] = text[other], text[place]
        if not text:
            break
    reads_or_refuses(bytes(text))


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 40), st.integers(), st.floats(), st.text(max_size=6),
        st.sampled_from(("cpu", "f32", "bool", "int", "add", "conv", "split", "reshape", "layer_norm_backward")),
        st.builds(lambda: {"dtype": "f16"}), st.builds(lambda: {"float": "0x1.0p+0"}), st.builds(lambda: {"int": 2}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(("dim", "shape", "live", "dtype", "float")), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_changed_values_are_read_or_refused(data: st.DataObject) -> None:
    document = json.loads(TEXT)
    for _ in range(data.draw(st.integers(1, 3))):
        at: Any = document
        for depth in range(data.draw(st.integers(1, 6))):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if depth and not isinstance(at[key], dict | list):
                at[key] = data.draw(JSON)
                break
            if isinstance(at[key], dict | list) and data.draw(st.integers(0, 5)):
                at = at[key]
            else:
                at[key] = data.draw(JSON)
                break
    reads_or_refuses(json.dumps(document))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(name for name in REGISTRY if "::" not in name)), st.data())
def test_any_attributes_of_any_row_are_read_or_refused(name: str, data: st.DataObject) -> None:
    row = REGISTRY[name]
    attrs = {key: data.draw(JSON) for key in row.signature.attrs}
    specs = data.draw(st.lists(st.sampled_from((None, 0, 1, 2, 3)), min_size=len(row.signature.inputs), max_size=12))
    document = {
        "format": "burn_torch graph", "version": 1, "inputs": [],
        "specs": [["f32", [3, 4], "cpu"], "int", "float", ["i64", [2, 3, 0, 5], "cpu"]],
        "nodes": [[name, specs, attrs, [0], [], [], None]], "outputs": [],
    }  # fmt: skip
    with pytest.raises(GraphError):  # at least, it reads no inputs
        Graph.from_json(json.dumps(document))


def _text() -> bytes:
    trace = Trace(origins=True)
    x, rate = trace.input(SPEC), trace.input(FLOAT_NUMBER)
    y = ops.cast(ops.slice(x * rate, ranges=((0, 2, 1), (0, 4, 2))), dtype=DType.F64)
    largest, where = ops.max_with_indices(ops.reshape(y, shape=(4, 1)) + 0.5, dim=0)
    return trace.graph([ops.rms_norm(x, None, 1e-5)[0], largest, None, where]).to_json(origins=True).encode()


TEXT = _text()


def test_the_text_that_is_changed_is_a_graph() -> None:
    assert Graph.from_json(TEXT).to_json(origins=True).encode() == TEXT
    assert re.search(rb"0x1.0000000000000p-1", TEXT)
