"""Graphs as JSON.

    {"format": "burn_torch graph", "version": 1,
     "specs": [["f32", [3, 4], "cpu"], "float"],
     "inputs": [[0, 0], [1, 1]],
     "nodes": [["mul", [0, 1], {}, [0], [0, 1], [2], null]],
     "outputs": [2, null]}

An input is [id, spec]; a spec is told by its position in the list.  A node is [row, specs of inputs, attributes,
specs of results, inputs, outputs, origin].  A number among inputs is {"float": "0x1.8p+1"} with every bit,
{"int": 3} or {"bool": true}; None is null.

Reading runs nothing that the text brings: rows are looked up by name, their rules of shape and type bind them anew, and
the whole is verified.  Any fault of a text is a GraphError.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import struct
from pathlib import Path
from typing import Any, Final

from burn_torch.core import strict_json
from burn_torch.core.dtype import DType
from burn_torch.core.errors import GraphError
from burn_torch.core.faults import mend_name
from burn_torch.core.files import write_atomic
from burn_torch.core.reading import read_bounded
from burn_torch.core.spec import BOOL_NUMBER, FLOAT_NUMBER, INT_NUMBER, NumberSpec, Spec, TensorSpec
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.ir import Input as NodeInput
from burn_torch.graph.origin import Origin
from burn_torch.graph.verifier import spec_list, verify
from burn_torch.ops.op import REGISTRY

__all__ = ["MOST_BYTES", "read", "read_file", "write", "write_file"]

FORMAT: Final = "burn_torch graph"
VERSION: Final = 1
MOST_BYTES: Final = 1 << 28
"""A text that is longer is refused before it is parsed: a million nodes take about 2^27."""

_MOST_AXES: Final = 64
_DEEPEST: Final = 4  # attributes are tuples of tuples at most
_NUMBERS: Final = {spec.kind: spec for spec in (INT_NUMBER, FLOAT_NUMBER, BOOL_NUMBER)}
_KEYS: Final = ("format", "version", "specs", "inputs", "nodes", "outputs")


# -- writing ---------------------------------------------------------------------------------------------------
def write(graph: Graph, *, origins: bool) -> str:
    """The graph as JSON text, a line for each spec, input and node.

    Raises: GraphError for a whole number of more than 4300 digits, or a text that `read` would refuse as too long.
    """
    try:
        text = _text_of(graph, origins)
    except ValueError as error:  # Python writes no more than 4300 digits of a whole number
        raise _not_written(str(error)) from None
    if len(text) > MOST_BYTES:
        raise _not_written(f"{len(text)} bytes, more than the {MOST_BYTES} that are read")
    return text


def _not_written(given: str) -> GraphError:
    return GraphError(
        "the graph cannot be written as text",
        given=given,
        expected=f"numbers of up to 4300 digits, and at most {MOST_BYTES} bytes in all",
        mend="cut the function that is traced into parts, or pass large numbers as inputs",
    )


def _text_of(graph: Graph, origins: bool) -> str:
    table = _SpecTable()
    inputs = [[i, table.position(spec)] for i, spec in graph.inputs]
    nodes = [_node_out(node, table, origins) for node in graph.nodes]
    parts = [
        f'"format": {json.dumps(FORMAT)},\n"version": {VERSION}',
        *(f'"{name}": {_lines(rows)}' for name, rows in (("specs", table.rows), ("inputs", inputs), ("nodes", nodes))),
        f'"outputs": {json.dumps(graph.outputs)}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write_file(graph: Graph, path: str | os.PathLike[str], *, origins: bool) -> Path:
    """Writes the text to a file, whole or not at all.  Raises: OSError as the operating system words it."""
    write_atomic(path, write(graph, origins=origins).encode())
    return Path(path)


def _lines(rows: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]" if rows else "[]"


class _SpecTable:
    """The specs of a graph, each once."""

    def __init__(self) -> None:
        self.rows: Final[list[Any]] = []
        self._positions: Final[dict[Spec, int]] = {}

    def position(self, spec: Spec | None) -> int | None:
        if spec is None:
            return None
        if spec not in self._positions:
            self._positions[spec] = len(self.rows)
            self.rows.append(
                spec.kind if isinstance(spec, NumberSpec) else [spec.dtype.name, list(spec.shape), spec.place]
            )
        return self._positions[spec]


def _node_out(node: Node, table: _SpecTable, origins: bool) -> list[object]:
    call = node.call
    return [
        call.op.name,
        [table.position(spec) for spec in call.specs],
        {name: _attr_out(value) for name, value in call.attrs.items()},
        [table.position(spec) for spec in call.results],
        [_number_out(x) if isinstance(x, Literal) else x for x in node.inputs],
        list(node.outputs),
        None if node.origin is None or not origins else _origin_out(node.origin),
    ]


def _attr_out(value: object) -> object:
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_attr_out(v) for v in value]
    return value


def _number_out(literal: Literal) -> dict[str, object]:
    value = literal.value
    if type(value) is float:
        return {"float": f"nan:{_bits(value)}" if math.isnan(value) else value.hex()}
    return {type(value).__name__: value}


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _origin_out(origin: Origin) -> list[object]:
    return [origin.file, origin.line, origin.function, origin.path, origin.backward, origin.source]


# -- reading ---------------------------------------------------------------------------------------------------
def read(text: str | bytes) -> Graph:
    """The graph that `write` wrote.  Raises: GraphError, whatever is wrong with the text."""
    if len(text) > MOST_BYTES:
        raise _refusal("the text is too long", f"{len(text)} bytes", f"at most {MOST_BYTES}")
    try:
        document = strict_json.parse(text)
    except (ValueError, MemoryError) as error:
        raise _refusal("this is no JSON", str(error), f"the text of a {FORMAT}") from None
    return _document(document)


def read_file(path: str | os.PathLike[str]) -> Graph:
    """The graph that `write_file` wrote.  Raises: GraphError, also where the file cannot be read."""
    try:
        return read(read_bounded(path, MOST_BYTES))
    except OSError as error:
        reason = f"{os.fspath(path)}: {error.strerror}"
        raise _refusal("the file cannot be read", reason, "a file that graph.save wrote", "check the path") from None
    except GraphError as error:
        error.add_note(f"in {os.fspath(path)}")
        raise


_SAVED_AGAIN: Final = "save the graph again with graph.save(path)"


def _refusal(what: str, given: str, expected: str, mend: str = _SAVED_AGAIN) -> GraphError:
    return GraphError(f"reading a graph: {what}", given=given, expected=expected, mend=mend)


def _fault(where: str, given: object, expected: str) -> GraphError:
    return _refusal(f"{where} is malformed", _short(given), expected)


def _document(document: object) -> Graph:
    if not isinstance(document, strict_json.JsonObject) or document.get("format") != FORMAT:
        raise _fault("the whole", document, f'an object with "format": "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise _refusal(
            "the version is not known here", f"version {_short(version)}", f"version {VERSION}",
            "read it with the burn_torch that wrote it, or a newer one",
        )  # fmt: skip
    _exact_keys("the whole", document, _KEYS)
    specs = [_spec_in(row, f"spec {i}") for i, row in enumerate(_rows(document["specs"], '"specs"'))]
    inputs = []
    for position, row in enumerate(_rows(document["inputs"], '"inputs"')):
        where = f"input {position}"
        i, spec = _rows(row, where, 2)
        inputs.append((_id(i, where), _known_spec(spec, specs, where)))
    nodes = [_node_in(row, specs, f"node {i}") for i, row in enumerate(_rows(document["nodes"], '"nodes"'))]
    outputs = [_optional_id(i, '"outputs"') for i in _rows(document["outputs"], '"outputs"')]
    return verify(Graph(inputs, nodes, outputs))


def _node_in(row: object, specs: list[Spec], where: str) -> Node:
    name, read, attrs, stored_results, inputs, outputs, origin = _rows(row, where, 7)
    if not isinstance(name, str):
        raise _fault(f"the row of {where}", name, "the name of a row")
    where = f"{where}, {_short(name)},"
    op = REGISTRY.get(name)
    if op is None:
        raise _refusal(
            f"the row {_short(name)} is not known here",
            where,
            "a row of this version, or one that a module you import declares",
            "import the module that declares it"
            if "::" in name
            else mend_name(name, list(REGISTRY), otherwise="read it with the burn_torch that wrote it"),
        )
    stored = _object(attrs, f"the attributes of {where}")
    values = {key: _attr_in(value, f"attribute {_short(key)} of {where}") for key, value in stored.items()}
    wanted = tuple(_optional_spec(i, specs, f"an input of {where}") for i in _rows(read, f"the specs of {where}"))
    results = tuple(
        _optional_spec(i, specs, f"a result of {where}") for i in _rows(stored_results, f"the results of {where}")
    )
    try:
        call = op.bind(wanted, values)
    except Exception as error:  # rules are written for calls that code makes: on wrong ones they may raise anything
        raise _refusal(
            f"{where} is a call that the row does not take",
            f"{type(error).__name__}: {error}".partition("\n")[0],
            f"{op.name}({op.signature})",
        ) from None
    if repr(sorted(call.attrs.items())) != repr(sorted(values.items())):  # bind fills in defaults, and takes True for 1
        raise _fault(f"the attributes of {where}", values, f"{call.attrs}")
    if call.results != results:
        raise _refusal(
            f"{where} gives other results here",
            spec_list(results),
            f"{spec_list(call.results)}, as the row's rule says",
            "read it with the burn_torch that wrote it, or trace the function again",
        )
    read_ids = [_input_in(x, where) for x in _rows(inputs, f"the inputs of {where}")]
    made_ids = [_optional_id(i, where) for i in _rows(outputs, f"the outputs of {where}")]
    return Node(call, read_ids, made_ids, _origin_in(origin, where))


def _spec_in(row: object, where: str) -> Spec:
    if isinstance(row, str) and row in _NUMBERS:
        return _NUMBERS[row]
    expected = f"[type, shape, place], or one of {', '.join(_NUMBERS)}"
    if not isinstance(row, list) or len(row) != 3:
        raise _fault(where, row, expected)
    dtype, shape, place = row
    sizes = _rows(shape, f"the shape of {where}")
    if len(sizes) > _MOST_AXES or not all(type(size) is int and 0 <= size < 1 << 63 for size in sizes):
        raise _fault(f"the shape of {where}", shape, f"at most {_MOST_AXES} sizes from 0 to 2^63 - 1")
    if math.prod(sizes) >= 1 << 63:
        raise _fault(f"the shape of {where}", shape, "fewer than 2^63 elements")
    if not isinstance(place, str) or not 0 < len(place) <= 64 or not place.isprintable():
        raise _fault(f"the place of {where}", place, 'a place such as "cpu" or "cuda:0"')
    return TensorSpec.of(tuple(sizes), _dtype_in(dtype, where), place)


def _dtype_in(name: Any, where: str) -> DType:
    try:
        return DType.of(name)
    except (KeyError, TypeError):
        raise _fault(f"the element type of {where}", name, "an element type such as f32") from None


def _attr_in(value: object, where: str, depth: int = 0) -> object:
    if isinstance(value, list) and depth < _DEEPEST:
        return tuple(_attr_in(v, where, depth + 1) for v in value)
    if isinstance(value, dict):
        _exact_keys(where, _object(value, where), ("dtype",))
        return _dtype_in(value["dtype"], where)
    if value is None or type(value) in (int, bool, str):
        return value
    raise _fault(where, value, "a whole number, a truth value, a text, an element type, a list of those, or null")


def _input_in(x: object, where: str) -> NodeInput:
    if not isinstance(x, dict):
        return _optional_id(x, where)
    ((kind, value),) = _pairs(x, where)
    if kind == "float" and isinstance(value, str):
        return Literal(_float_in(value, where))
    if (kind == "int" and type(value) is int) or (kind == "bool" and type(value) is bool):
        return Literal(value)
    raise _fault(f"a number of {where}", x, '{"float": hexadecimal text}, {"int": 3} or {"bool": true}')


def _pairs(x: object, where: str) -> list[tuple[str, object]]:
    pairs = list(_object(x, where).items())
    if len(pairs) != 1:
        raise _fault(f"a number of {where}", x, "one kind with one value")
    return pairs


def _float_in(text: str, where: str) -> float:
    fault = _fault(f"a number of {where}", text, "what float.hex gives, or nan: and the 16 digits of its bits")
    try:
        if text.startswith("nan:"):
            value: float = struct.unpack(">d", bytes.fromhex(text[4:]))[0]
            again = f"nan:{_bits(value)}" if math.isnan(value) else ""
        else:
            value = float.fromhex(text)
            again = value.hex()
    except (ValueError, OverflowError, struct.error):
        raise fault from None
    if again != text or text == "nan":
        raise fault
    return value


def _origin_in(row: object, where: str) -> Origin | None:
    if row is None:
        return None
    values = _rows(row, f"the origin of {where}", 6)
    if [type(v) for v in values] != [str, int, str, str, bool, str]:
        raise _fault(f"the origin of {where}", row, "[file, line, function, module path, of a gradient, source]")
    return Origin(*values)


# -- small parts -----------------------------------------------------------------------------------------------
def _rows(value: object, where: str, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise _fault(where, value, "a list" if count is None else f"a list of {count}")
    return value


def _object(value: object, where: str) -> strict_json.JsonObject:
    if not isinstance(value, strict_json.JsonObject):
        raise _fault(where, value, "an object")
    if value.duplicates:
        raise _fault(where, value, f"each key once; {', '.join(map(_short, value.duplicates))} stands there twice")
    return value


def _exact_keys(where: str, value: strict_json.JsonObject, keys: tuple[str, ...]) -> None:
    if tuple(sorted(_object(value, where))) != tuple(sorted(keys)):
        raise _fault(f"the keys of {where}", list(value), ", ".join(keys))


def _id(value: object, where: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _fault(f"an id of {where}", value, "a whole number from 0 to 2^63 - 1")
    return value


def _optional_id(value: object, where: str) -> int | None:
    return None if value is None else _id(value, where)


def _known_spec(value: object, specs: list[Spec], where: str) -> Spec:
    if type(value) is not int or not 0 <= value < len(specs):
        raise _fault(f"the spec of {where}", value, f'a position in "specs", which has {len(specs)}')
    return specs[value]


def _optional_spec(value: object, specs: list[Spec], where: str) -> Spec | None:
    return None if value is None else _known_spec(value, specs, where)


def _short(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
