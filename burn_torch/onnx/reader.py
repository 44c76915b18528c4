"""From a file to a `Model`: strict, bounded, and without running anything.

Functions, of the model or of ONNX itself, are written out in place; nodes are brought into an order in which they can
run.  One error names all faults of the structure; the report says which operators are supported.
"""

from __future__ import annotations

import heapq
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.errors import OnnxError
from burn_torch.core.imports import load_extra
from burn_torch.onnx.ir import Graph, Model, Node, ValueInfo
from burn_torch.onnx.operators.axes import ONNX_DTYPES, OTHER_DTYPES
from burn_torch.onnx.operators.registry import find
from burn_torch.onnx.scopes import Scope, UniqueNames
from burn_torch.onnx.tensors import Claims, sparse_data, tensor_data

__all__ = ["MAX_FILE_BYTES", "MAX_NODES", "captured", "read_bytes", "read_model"]

MAX_FILE_BYTES: Final = (1 << 31) - 1
"""protobuf's own limit; larger models keep their weights in files beside them."""
MAX_NODES: Final = 100_000
"""Nodes after functions are written out: a few functions that call each other twice make 2^30 of them."""
MAX_EXPANDED_BYTES: Final = 32 << 20
"""Holds what the functions of a file may hold once each call has a copy, beside four times what the file holds."""
MAX_DEPTH: Final = 40
"""How deep functions call functions and graphs hold graphs."""

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a function."""
_DOMAINS: Final = {"ai.onnx": ""}


@checked
def read_model(path: str | Path) -> Model:
    """Reads a file.  Raises: OnnxError for one that is missing, damaged, or larger than protobuf can hold."""
    file = Path(path)
    try:
        if not file.is_file():
            raise OnnxError(
                "there is no such ONNX file",
                given=str(file),
                expected="a file that ends in .onnx",
                mend="check the path",
            )
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise OnnxError(
                "the ONNX file is larger than the format allows",
                given=f"{file}, {size} bytes",
                expected=f"at most {MAX_FILE_BYTES} bytes",
                mend="export the model with its weights as external data",
            )
        data = file.read_bytes()
    except OSError as err:
        raise OnnxError(
            "the ONNX file cannot be read",
            given=f"{file}: {err.strerror or err}",
            expected="a file that can be read",
            mend="check the path and its rights",
        ) from err
    return read_bytes(data, folder=file.parent, source=str(file))


def read_bytes(data: bytes, folder: Path | None = None, source: str = "a model in memory") -> Model:
    """Reads the bytes of a file; external data is looked for in `folder` alone.  Raises: OnnxError."""
    proto = _parse(data, source)
    try:
        return _Reader(proto, folder, source).model()
    except OnnxError as err:
        err.add_note(f"in {source}")
        raise
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError, MemoryError) as err:
        raise OnnxError(
            "the ONNX file is malformed",
            given=f"{source}: {type(err).__name__}: {err}",
            expected="a model that follows the ONNX format",
            mend="export it again",
        ) from err


def _parse(data: bytes, source: str) -> object:
    onnx = load_extra("onnx", "onnx", "reading ONNX files", error=OnnxError)
    from google.protobuf.message import DecodeError

    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError, RuntimeError) as err:
        raise OnnxError(
            "this is not an ONNX file, or it is damaged",
            given=f"{source}, {len(data)} bytes: {err}",
            expected="a protobuf of onnx.ModelProto",
            mend="export or download it again",
        ) from err
    if not proto.HasField("graph") or not proto.opset_import:
        raise OnnxError(
            "this is not an ONNX model, or it is damaged",
            given=f"{source}: no {'opset' if proto.HasField('graph') else 'graph'}",
            expected="a graph and the opsets that it is written in",
            mend="export or download it again",
        )
    return proto


@dataclass
class _Reader:
    proto: Any
    folder: Path | None
    source: str
    count: int = 0
    expanded_bytes: int = 0
    claims: Claims = field(default_factory=Claims)
    defaults: dict[FunctionKey, tuple[dict[str, object], int]] = field(default_factory=dict)
    """For each function that was called: the defaults of its attributes, and its size."""
    faults: list[str] = field(default_factory=list)

    def model(self) -> Model:
        import onnx

        _check_texts(self.proto.producer_name, self.proto.producer_version)
        _check_texts(*(entry.domain for entry in self.proto.opset_import))
        opsets = {_DOMAINS.get(entry.domain, entry.domain): int(entry.version) for entry in self.proto.opset_import}
        newest = onnx.defs.onnx_opset_version()
        if not 1 <= opsets.get("", 1) <= newest:
            raise OnnxError(
                "this opset is not known",
                given=f"opset {opsets['']}",
                expected=f"1 to {newest}, what the installed onnx {onnx.__version__} knows",
                mend="install a newer onnx, or export the model for an older opset",
            )
        self.functions = {
            (_DOMAINS.get(f.domain, f.domain), f.name, getattr(f, "overload", "")): f for f in self.proto.functions
        }
        self.expanded_limit = MAX_EXPANDED_BYTES + 4 * self.proto.ByteSize()
        self.types: dict[str, Any] = {}
        for info in (*self.proto.graph.input, *self.proto.graph.value_info, *self.proto.graph.output):
            self.types[info.name] = info.type
        self._inferred = False
        graph = self.graph(self.proto.graph, Scope(UniqueNames(), (), opsets), nested=False)
        if self.faults:
            shown = self.faults[:20]
            more = "" if len(self.faults) <= 20 else f"; and {len(self.faults) - 20} more"
            raise OnnxError(
                f"the graph is malformed: {len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}",
                given="; ".join(shown) + more,
                expected="each value made once, before it is used, and no circle",
                mend="export the model again",
            )
        producer = f"{self.proto.producer_name} {self.proto.producer_version}".strip()
        return Model(graph, opsets, producer, int(self.proto.ir_version), self.source)

    # -- graphs ---------------------------------------------------------------------------------------
    def graph(self, proto: Any, scope: Scope, *, nested: bool) -> Graph:
        """A graph; one within a node may read values from outside, which are checked where that node stands."""
        if scope.depth > MAX_DEPTH:
            raise _too_deep()
        _check_texts(proto.name, *(value.name for value in (*proto.initializer, *proto.input, *proto.output)))
        _check_texts(*(tensor.values.name for tensor in proto.sparse_initializer))
        weights = Counter(tensor.name for tensor in proto.initializer)
        weights.update(tensor.values.name for tensor in proto.sparse_initializer)
        twice = [name for name, count in weights.items() if count > 1]
        if twice:
            self.faults.append(f"the weight {twice[0]!r} of graph {proto.name!r} is there twice")
        made_by_nodes = {name: None for node in proto.node for name in node.output}
        outer, scope = scope, scope.of_graph([*weights, *(info.name for info in proto.input), *made_by_nodes])
        rename = scope.rename
        if not nested and not proto.output:
            self.faults.append(f"graph {proto.name!r} has no outputs")
        if nested:
            self.faults += _read_too_early(proto, outer, made_by_nodes)
            for info in (*proto.input, *proto.value_info):
                self.types[rename(info.name)] = info.type
        constants = {rename(tensor.name): self.tensor(tensor) for tensor in proto.initializer}
        constants |= {rename(tensor.values.name): self.sparse(tensor) for tensor in proto.sparse_initializer}
        inputs = tuple(
            replace(_info(info), name=rename(info.name)) for info in proto.input if rename(info.name) not in constants
        )
        nodes = self.nodes(proto.node, scope)
        outputs = tuple(replace(_info(info), name=rename(info.name)) for info in proto.output)
        known = set(constants) | {info.name for info in inputs}
        ordered = self.ordered(nodes, known, proto.name, nested=nested)
        defined = known | {name for node in ordered for name in node.outputs}
        missing = [] if nested else [info.name for info in outputs if info.name not in defined]
        self.faults += [f"output {name!r} of graph {proto.name!r} is never made" for name in missing]
        return Graph(proto.name, inputs, outputs, tuple(ordered), constants)

    def ordered(self, nodes: Sequence[Node], known: set[str], name: str, *, nested: bool) -> list[Node]:
        """Nodes after those whose values they read, else as they stand in the file."""
        maker: dict[str, int] = {}
        for i, node in enumerate(nodes):
            for output in node.outputs:
                if output and (output in maker or output in known):
                    self.faults.append(f"value {output!r} is made twice in graph {name!r}, by {node.label} too")
                elif output:
                    maker[output] = i
        waits: list[int] = []
        readers: dict[int, list[int]] = {}
        for i, node in enumerate(nodes):
            before: set[int] = set()
            for value in (*node.inputs, *_captures(node)):
                if value in maker:
                    before.add(maker[value])
                elif value and value not in known and not nested:
                    self.faults.append(f"{node.label} reads {value!r}, which nothing makes")
            waits.append(len(before))
            for j in before:
                readers.setdefault(j, []).append(i)
        ready = [i for i, n in enumerate(waits) if n == 0]
        heapq.heapify(ready)
        ordered: list[Node] = []
        while ready:
            i = heapq.heappop(ready)
            ordered.append(nodes[i])
            for j in readers.get(i, ()):
                waits[j] -= 1
                if waits[j] == 0:
                    heapq.heappush(ready, j)
        if len(ordered) < len(nodes):
            stuck = [node.label for i, node in enumerate(nodes) if waits[i] > 0]
            self.faults.append(f"a circle through {', '.join(stuck[:5])} in graph {name!r}")
        return ordered

    # -- nodes ------------------------------------------------------------------------------------------
    def nodes(self, protos: Iterable[Any], scope: Scope) -> list[Node]:
        nodes: list[Node] = []
        for proto in protos:
            self.count += 1
            if self.count > MAX_NODES:
                raise _too_large(f"more than {MAX_NODES} nodes", f"at most {MAX_NODES}")
            _check_texts(proto.name, proto.op_type, proto.domain, *proto.input, *proto.output)
            _check_texts(*(attribute.name for attribute in proto.attribute))
            domain = _DOMAINS.get(proto.domain, proto.domain)
            opset = scope.opsets.get(domain, scope.opsets.get("", 1) if not domain else 1)
            name = scope.prefix + (proto.name or f"{proto.op_type}_{self.count}")
            inputs = tuple(scope.rename(x) if x else "" for x in proto.input)
            outputs = tuple(scope.rename(x) if x else "" for x in proto.output)
            try:
                attributes = self.attributes(proto, scope)
            except OnnxError as err:
                err.add_note(f"in {Node(name, domain, proto.op_type, opset, (), ()).label}")
                raise
            node = Node(name, domain, proto.op_type, opset, inputs, outputs, attributes)
            body, defaults = self.body(proto, node, scope)
            if body is None:
                nodes.append(node)
            else:
                key = (domain, proto.op_type, getattr(proto, "overload", ""))
                nodes += self.inlined(body, defaults, node, scope, key)
        return nodes

    def tensor(self, proto: object) -> TensorData:
        return tensor_data(proto, self.folder, self.claims)

    def sparse(self, proto: object) -> TensorData:
        """A sparse tensor with its zeros written out, which count as what functions hold do."""
        data = sparse_data(proto, self.folder, self.claims, self.expanded_limit - self.expanded_bytes)
        self.expanded_bytes += data.array.nbytes
        return data

    def attributes(self, proto: Any, scope: Scope) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in scope.attributes:
                    values[attribute.name] = scope.attributes[attribute.ref_attr_name]
            else:
                values[attribute.name] = self.value(attribute, scope)
        return values

    def value(self, attribute: Any, scope: Scope) -> Any:
        kind = attribute.type
        simple: dict[int, Callable[[], object]] = {
            1: lambda: _short(attribute.f),
            2: lambda: int(attribute.i),
            3: lambda: attribute.s.decode("utf-8"),
            4: lambda: self.tensor(attribute.t),
            5: lambda: self.graph(attribute.g, scope.deeper(), nested=True),
            6: lambda: tuple(_short(f) for f in attribute.floats),
            7: lambda: tuple(int(i) for i in attribute.ints),
            11: lambda: self.sparse(attribute.sparse_tensor),
            8: lambda: tuple(s.decode("utf-8") for s in attribute.strings),
            13: lambda: str(attribute.tp)[:200],
        }
        make = simple.get(kind)
        if make is None:
            raise OnnxError(
                f"the attribute {attribute.name!r} is of a kind that is not supported",
                given=f"AttributeProto type {kind}",
                expected="numbers, texts, tensors, graphs, and lists of numbers and texts",
                mend="export the model without it",
            )
        return make()

    # -- functions ----------------------------------------------------------------------------------------
    def body(self, proto: object, node: Node, scope: Scope) -> tuple[Any, dict[str, Any]]:
        """The function that a node calls, of the model or ONNX's own where no importer knows the operator; defaults."""
        key = (node.domain, node.op, getattr(proto, "overload", ""))
        function = self.functions.get(key)
        if function is not None:
            if key not in self.defaults:
                values = {a.name: self.value(a, scope) for a in function.attribute_proto}
                self.defaults[key] = (values, function.ByteSize())
            defaults, size = self.defaults[key]
            self.expanded_bytes += size
            if self.expanded_bytes > self.expanded_limit:
                raise _too_large(f"more than {self.expanded_limit} bytes", f"at most {self.expanded_limit}")
            return function, defaults
        if find(node.domain, node.op, node.opset) is not None or (node.op == "Constant" and not node.domain):
            return None, {}
        import onnx

        try:
            schema: Any = onnx.defs.get_schema(node.op, node.opset, node.domain)
        except onnx.defs.SchemaError:
            return None, {}
        defaults = {
            name: self.value(a.default_value, scope) for name, a in schema.attributes.items() if a.default_value.name
        }
        if schema.has_function:
            return schema.function_body, defaults
        if schema.has_context_dependent_function:
            return self.generated(schema, proto, scope), defaults
        return None, {}

    def generated(self, schema: Any, proto: Any, scope: Scope) -> object:
        """A body that depends on the types of the inputs, which ONNX infers; None where they are not known."""
        import onnx

        if scope.prefix:
            return None
        if not self._inferred:
            self._inferred = True
            try:
                inferred = onnx.shape_inference.infer_shapes(self.proto)
            except Exception as err:  # the types stay unknown; the report names the operator
                self.inference_error = err
            else:
                for info in inferred.graph.value_info:
                    self.types[info.name] = info.type
            for initializer in self.proto.graph.initializer:
                self.types[initializer.name] = onnx.helper.make_tensor_type_proto(
                    initializer.data_type, list(initializer.dims)
                )
        types = [self.types.get(scope.rename(x)) if x else onnx.TypeProto() for x in proto.input]
        if any(kind is None for kind in types):
            return None
        encoded = [kind.SerializeToString() for kind in types if kind is not None]
        text = schema.get_context_dependent_function(proto.SerializeToString(), encoded)
        body = onnx.FunctionProto.FromString(text)
        return body if body.node else None

    def inlined(self, body: Any, defaults: dict[str, Any], node: Node, scope: Scope, key: FunctionKey) -> list[Node]:
        """The nodes of a function, with the names and attributes of the call."""
        if key in scope.stack or scope.depth > MAX_DEPTH:
            raise _too_deep()
        prefix = f"{node.name}/"
        names = dict(zip(body.input, node.inputs, strict=False))
        names.update({name: "" for name in body.input if name not in names})
        results = dict(zip(body.output, node.outputs, strict=False))
        direct = {name: results[name] for name in results if name in names}  # an input handed out as it is
        names.update({name: value for name, value in results.items() if value and name not in direct})
        opsets = ChainMap({_DOMAINS.get(e.domain, e.domain): int(e.version) for e in body.opset_import}, scope.opsets)
        attributes: ChainMap[str, Any] = ChainMap(dict(node.attributes), defaults)
        inner = Scope(scope.names, (names,), opsets, attributes, prefix, (*scope.stack, key), scope.depth + 1)
        nodes = self.nodes(body.node, inner)
        for name, value in direct.items():
            if value:
                nodes.append(Node(f"{prefix}{name}", "", "Identity", opsets.get("", 1), (names[name],), (value,)))
        return nodes


def _captures(node: Node) -> Iterable[str]:
    """Names of outer values that the graphs within a node read."""
    for graph in node.graphs:
        yield from captured(graph)


def captured(graph: Graph) -> set[str]:
    """Names that a graph reads and does not make."""
    own = set(graph.constants) | {info.name for info in graph.inputs}
    own |= {name for node in graph.nodes for name in node.outputs}
    read = {name for node in graph.nodes for name in (*node.inputs, *_captures(node)) if name}
    return (read | {info.name for info in graph.outputs}) - own


def _read_too_early(proto: Any, outer: Scope, makes: Mapping[str, None]) -> Iterable[str]:
    """Faults of a graph within a node that reads an outer value and then makes one of the same name."""
    seen: set[str] = set()
    for node in proto.node:
        for name in node.input:
            if name in makes and name not in seen and outer.sees(name):
                yield f"graph {proto.name!r} reads the outer value {name!r}, and makes another one of that name later"
        seen.update(node.output)


def _check_texts(*texts: object) -> None:
    """protobuf hands a text out as bytes where it is not UTF-8."""
    for text in texts:
        if not isinstance(text, str):
            raise UnicodeError(f"a name that is not UTF-8: {text!r}"[:200])


def _info(info: Any) -> ValueInfo:
    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        return ValueInfo(info.name, kind="tensor" if which is None else which.removesuffix("_type"))
    tensor = info.type.tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(d.dim_value) if d.HasField("dim_value") else (str(d.dim_param) or None) for d in tensor.shape.dim
        )
    foreign = OTHER_DTYPES.get(tensor.elem_type)
    return ValueInfo(info.name, ONNX_DTYPES.get(tensor.elem_type), shape, foreign=foreign)


def _short(value: float) -> float:
    """The shortest decimal that is this number in float32: what the author of the model wrote."""
    import numpy as np

    return float(str(np.float32(value)))


def _too_large(given: str, expected: str) -> OnnxError:
    return OnnxError(
        "the model is too large once its functions are written out",
        given=given,
        expected=expected,
        mend="a file like this is made to exhaust memory; if yours is not, inline less",
    )


def _too_deep() -> OnnxError:
    return OnnxError(
        "functions or graphs of the model are nested too deep",
        given=f"more than {MAX_DEPTH} levels, or a function that calls itself",
        expected=f"at most {MAX_DEPTH} levels",
        mend="export the model with its functions inlined",
    )
