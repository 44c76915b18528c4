"""From a `Model` to a plan: what is known is folded, weights become parameters, every name is a Python identifier.

A plan is what `load` runs and what generated source spells out: both call the same operators with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, OnnxError
from burn_torch.module import Module
from burn_torch.onnx.folding import bounded
from burn_torch.onnx.ir import Graph, Model, Node, ValueInfo
from burn_torch.onnx.names import Names
from burn_torch.onnx.operators.registry import FAULTS, Entry, find, on_host
from burn_torch.onnx.weights import ON_HOST, SMALL, Usage, is_generated, is_uniform, is_weight
from burn_torch.ops.value import Attrs

__all__ = ["Body", "Literal", "Plan", "Ref", "Step", "Weight", "plan_of"]


@dataclass(frozen=True)
class Literal:
    """A value that stands in the source: an array on the host, or a number beside tensors."""

    value: Any


@dataclass(frozen=True)
class Ref:
    """A value by its identifier."""

    name: str


@dataclass(frozen=True)
class Weight:
    """A field of the module: a parameter, or a running state where it is not trained."""

    name: str
    trained: bool


Source = Ref | Weight | Literal | None


@dataclass(frozen=True)
class Body:
    """A graph within a node, as a function of its own inputs; it reads outer values too."""

    name: str
    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Source, ...]
    captured: tuple[str, ...]
    """Outer values that it reads."""


@dataclass(frozen=True)
class Step:
    """One call of an operator.  An output of None is read by nobody."""

    entry: Entry
    inputs: tuple[Source, ...]
    attributes: Attrs
    outputs: tuple[str | None, ...]
    label: str
    last_use: tuple[str, ...] = ()
    """Values that nobody reads after this step."""
    opset: int = 1
    placed: bool = False
    """Says whether it computes on the device although the host knows all its inputs: its size depends on them, and no
    size on its values.  A trace then holds an operation of a size, not data that another size has otherwise."""

    @property
    def bodies(self) -> list[Body]:
        """The graphs within the node."""
        return [value for value in self.attributes.values() if isinstance(value, Body)]

    @property
    def packed(self) -> bool:
        """Returns whether the operator gives a tuple."""
        return self.entry.multiple or ("outputs" in self.entry.attributes and len(self.outputs) > 1)


@dataclass
class Plan:
    """A model ready to run or to write."""

    source: str
    opsets: Mapping[str, int]
    producer: str
    inputs: tuple[ValueInfo, ...]
    input_names: tuple[str, ...]
    outputs: tuple[Source, ...]
    output_names: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    weights: dict[str, TensorData] = field(default_factory=dict)
    trained: dict[str, bool] = field(default_factory=dict)
    onnx_names: dict[str, str] = field(default_factory=dict)
    """Holds what the file calls each field."""
    on_device: set[str] = field(default_factory=set)
    """Values that lie on a device whatever the inputs are.  Values of a loop or a sequence never do: a loop that never
    runs hands out what it was given, which the host may know."""


_LISTS: Final = frozenset(
    {
        "ConcatFromSequence", "Optional", "OptionalGetElement", "SequenceAt", "SequenceConstruct", "SequenceErase",
        "SequenceInsert", "SplitToSequence",
    }
)  # fmt: skip
"""Operators on lists, and those that give what was in one."""
_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Dropout"}
)
_WORDS: Final = {"w": "weight", "b": "bias", "r": "recurrent_weight"}


def allowed_bytes(model: Model) -> int:
    """Returns what constants that are worked out may take unless told otherwise: 64 MiB, and four times what the file
    holds.

    A small file must not fill the memory; the weights of a large one may be converted and turned.
    """
    held = [data for graph in model.graph.all_graphs() for data in graph.constants.values()]
    held += [
        value for node in model.graph.all_nodes() for value in node.attributes.values() if isinstance(value, TensorData)
    ]
    return (64 << 20) + 4 * sum(data.array.nbytes for data in held)


def plan_of(model: Model, memory_limit_bytes: int | None = None, *, trains: bool = False) -> Plan:
    """Plans a model whose report is clean.  Raises: OnnxError for constants that cannot be worked out.

    trains   keeps weights that are stored as codes quantised, as numbers that are rounded whenever they are read: so
             training goes on with what the codes can say; else they are worked out once
    """
    return _Planner(model, allowed_bytes(model) if memory_limit_bytes is None else memory_limit_bytes, trains).plan()


class _Planner:
    def __init__(self, model: Model, memory_limit_bytes: int, trains: bool) -> None:
        self.model = model
        self.trains = trains
        self.rounded: set[str] = set()
        """Weights that stood as codes in the file."""
        self.makers: dict[str, Node] = {}
        """The nodes that quantise, by what they make."""
        self.limit = memory_limit_bytes
        self.folded_bytes = 0
        self.values = Names()
        self.fields = Names([*dir(Module), "forward", "init", "from_record", "plan"])
        self.names: dict[str, str] = {}
        self.constants: dict[str, TensorData] = {}
        self.from_file: set[str] = set()
        """Constants that come from the file's weights, directly or through folding."""
        self.device: set[str] = set()
        """Values that surely lie on a device."""
        self.made: dict[tuple[str, bool, str], str] = {}
        graph = model.graph
        self.usage = Usage(graph)
        self.shared: set[tuple[str, bool]] = set()
        """Uniform tensors that have a field already, of one reader."""
        self.result = Plan(model.source, model.opsets, model.producer, graph.inputs, (), (), ())

    def plan(self) -> Plan:
        graph, result = self.model.graph, self.result
        result.input_names = self._take_inputs(graph, "input")
        for info, name in zip(graph.inputs, result.input_names, strict=True):
            if info.kind == "tensor":
                self.device.add(info.name)
                result.on_device.add(name)
        steps, outputs, live = self._live_steps(graph)
        result.steps = _with_last_uses(steps, live)
        result.outputs = outputs
        result.output_names = tuple(info.name for info in graph.outputs)
        every = list(all_steps(result.steps))
        sources = [outputs, *(step.inputs for step in every), *(body.outputs for step in every for body in step.bodies)]
        used = {source.name for group in sources for source in group if isinstance(source, Weight)}
        for table in (result.weights, result.trained, result.onnx_names):
            for name in [name for name in table if name not in used]:
                del table[name]
        return result

    # -- constants ------------------------------------------------------------------------------------
    def _take_inputs(self, graph: Graph, fallback: str) -> tuple[str, ...]:
        """Notes the constants of a graph; returns the identifiers of its inputs."""
        self.constants.update(graph.constants)
        self.from_file.update(graph.constants)
        self.names.update((info.name, self.values.unique(info.name, fallback)) for info in graph.inputs)
        return tuple(self.names[info.name] for info in graph.inputs)

    def _live_steps(self, graph: Graph) -> tuple[list[Step], tuple[Source, ...], set[str]]:
        """The steps of a graph that something reads, its outputs, and the values among these."""
        steps = self._steps(graph)
        outputs = tuple(self._source(info.name, None, 0) for info in graph.outputs)
        live = {source.name for source in outputs if isinstance(source, Ref)}
        return _live(steps, live), outputs, live

    def _steps(self, graph: Graph) -> list[Step]:
        steps: list[Step] = []
        for node in graph.nodes:
            if node.op == "Constant" and not node.domain:
                self.constants[node.outputs[0]] = _constant(node)
                continue
            if self._fold(node):
                continue
            if node.op == "QuantizeLinear":
                self.makers[node.outputs[0]] = node
            steps.append(self._step(self._join_pair(node) or node))
        return steps

    def _join_pair(self, node: Node) -> Node | None:
        """A DequantizeLinear with the QuantizeLinear that it undoes as one node, through which gradients go."""
        if node.op != "DequantizeLinear" or len(node.read) < 3:
            return None
        before = self.makers.get(node.inputs[0])
        if node.inputs[0] in self.rounded:
            source = node.inputs[0]
        elif before is not None and self._same_scales(before, node):
            source = before.inputs[0]
        else:
            return None
        inputs = (source, *node.inputs[1:])
        return replace(node, op="QuantizeDequantizeLinear", domain="burn_torch", opset=1, inputs=inputs)

    def _same_scales(self, one: Node, other: Node) -> bool:
        """Says whether two nodes have one scale and one zero point, along one axis."""
        names = ("axis", "block_size")
        if len(one.read) < 3 or any(one.attributes.get(name) != other.attributes.get(name) for name in names):
            return False
        if one.attributes.get("precision"):
            return False
        pairs = zip(one.inputs[1:3], other.inputs[1:3], strict=True)
        return all(a == b or (a in self.constants and self.constants[a] == self.constants.get(b)) for a, b in pairs)

    def _keep_codes(self, node: Node) -> bool:
        """Notes the numbers of a weight that is stored as codes, which training rounds; False for any other node."""
        codes = self.constants.get(node.inputs[0]) if node.inputs else None
        zero = self.constants.get(node.inputs[2]) if len(node.read) > 2 else None
        if not self.trains or node.op != "DequantizeLinear" or codes is None or zero is None:
            return False
        if codes.dtype not in (DType.I8, DType.U8) or node.inputs[0] not in self.from_file:
            return codes.dtype.is_float and node.inputs[0] in self.rounded
        numbers = _entry(node)(*[on_host(self.constants[x]) for x in node.read], **self._attributes(node, _entry(node)))
        if self.usage.reads[node.inputs[0]] > 1 or not isinstance(numbers, np.ndarray):
            return False
        self.constants[node.inputs[0]] = _data(numbers)
        self.rounded.add(node.inputs[0])
        return True

    def _fold(self, node: Node) -> bool:
        """Works a node out whose inputs are all known; False where it is left to run."""
        if node.graphs or node.op in _RANDOM or not any(node.inputs):
            return False
        if any(x and x not in self.constants for x in node.inputs):
            return False
        if self._keep_codes(node):
            return False
        entry = _entry(node)
        if "device" in entry.attributes:
            return False  # it makes a tensor where the model runs
        data = [on_host(self.constants[x]) if x else None for x in node.inputs]
        attributes = self._attributes(node, entry)
        try:
            with bounded(self.limit - self.folded_bytes):
                results = entry(*data, **attributes)
        except OnnxError as err:
            err.add_note(f"in {node.label}")
            raise
        except (BurnTorchError, *FAULTS) as err:
            raise OnnxError(
                f"{node.label} cannot be worked out",
                given=f"constants, and {type(err).__name__}: {str(err).partition(chr(10))[0]}",
                expected="constants that fit the operator",
                mend="the model is malformed; export it again",
            ) from err
        parts = results if isinstance(results, tuple) else (results,)
        if not all(isinstance(part, np.ndarray | TensorData) for part in parts):
            return False  # a sequence
        for name, part in zip(node.outputs, parts, strict=False):
            if name:
                constant = part if isinstance(part, TensorData) else _data(part)
                self.constants[name] = constant
                self.folded_bytes += constant.array.nbytes
                if any(x in self.from_file for x in node.inputs):
                    self.from_file.add(name)
        return True

    # -- steps ------------------------------------------------------------------------------------------
    def _attributes(self, node: Node, entry: Entry) -> dict[str, Any]:
        attributes = {
            name: on_host(value) if isinstance(value, TensorData) else value for name, value in node.attributes.items()
        }
        if "outputs" in entry.attributes:
            attributes["outputs"] = _read_outputs(node)
        if "version" in entry.attributes:
            attributes["version"] = node.opset
        if "stacks" in entry.attributes:
            attributes["stacks"] = tuple(
                (info.dtype.name, tuple(size if isinstance(size, int) else 0 for size in info.shape))
                if info.dtype is not None and info.shape is not None
                else None
                for info in node.attributes["body"].outputs
            )
        return attributes

    def _step(self, node: Node) -> Step:
        entry = _entry(node)
        names = node.read
        on_device = node.op not in ON_HOST and any(
            entry.kind(i) != "host" and (x in self.device or self._is_trained(x, node, i)) for i, x in enumerate(names)
        )
        nested = bool(node.graphs)
        placed = not on_device and not nested and self._is_placed(node, entry, names)
        attributes: dict[str, Any] = {}
        for name, value in self._attributes(node, entry).items():
            attributes[name] = self._body(value, node) if isinstance(value, Graph) else value
        beside = on_device and not nested and any(entry.kind(i) in ("tensor", "operand") for i in range(len(names)))
        inputs = tuple(self._source(x, node, i, entry, beside=beside) for i, x in enumerate(names))
        outputs: list[str | None] = []
        for name in node.outputs[: _read_outputs(node)]:
            if name:
                self.names[name] = self.values.unique(name, node.op)
                if (on_device or placed) and not nested and node.op not in _LISTS:
                    self.device.add(name)
                    self.result.on_device.add(self.names[name])
            outputs.append(self.names[name] if name else None)
        return Step(entry, inputs, attributes, tuple(outputs), node.label, opset=node.opset, placed=placed)

    def _is_placed(self, node: Node, entry: Entry, inputs: Sequence[str]) -> bool:
        """Returns whether how large a result is depends on what the host knows when the model runs, and nothing
        more.
        """
        if not entry.computes or not self.usage.sizes.isdisjoint(node.outputs):
            return False
        makes = node.op in ("Range", "ConstantOfShape")
        return any(x and x not in self.constants and (makes or entry.kind(i) == "host") for i, x in enumerate(inputs))

    def _body(self, graph: Graph, node: Node) -> Body:
        inputs = self._take_inputs(graph, "item")
        kept, outputs, live = self._live_steps(graph)
        own = {*inputs, *(name for step in kept for name in step.outputs if name)}
        read = live.union(*(_reads(step) for step in kept))
        name = self.values.unique(f"{node.name}_body" if node.op != "If" else graph.name, "body")
        return Body(name, inputs, tuple(kept), outputs, tuple(sorted(read - own)))

    def _source(
        self, name: str, node: Node | None, position: int, entry: Entry | None = None, *, beside: bool = False
    ) -> Source:
        """Returns where a value comes from; `node` is the reader, which surely computes on a device if `beside`."""
        if not name:
            return None
        data = self.constants.get(name)
        if data is None:
            return Ref(self.names[name])
        kind = "tensor" if entry is None else entry.kind(position)
        if kind == "host":
            return Literal(on_host(data))
        if self._is_trained(name, node, position):
            return self._field(name, data, node, position, entry, trained=True)
        if kind == "raw" or (kind == "tensor" and name in self.usage.sizes and not beside):
            return Literal(on_host(data))
        if kind == "operand" and beside and not data.shape and data.dtype is not DType.BF16:
            return Literal(data.array.reshape(()).item())
        if not beside and (name in self.usage.sizes or data.array.size <= SMALL):
            return Literal(on_host(data))
        return self._field(name, data, node, position, entry, trained=False)

    def _is_trained(self, name: str, node: Node | None, position: int) -> bool:
        data = self.constants.get(name)
        if data is None:
            return False
        if node is None:  # an output of the model or of a graph
            return name in self.from_file and data.dtype.is_float and data.array.size > 1
        return is_weight(name, data, node, position, self.usage, from_file=name in self.from_file)

    def _field(
        self, name: str, data: TensorData, node: Node | None, position: int, entry: Entry | None, *, trained: bool
    ) -> Weight:
        shared = node is not None and trained and node.op != "PRelu" and self.usage.reads[name] > 1
        reader = f"{position} {node.outputs}" if node is not None and shared and is_uniform(data) else ""
        key = (name, trained, reader)
        if key not in self.made:
            other = self.made.get((name, not trained, ""))
            if other is not None:  # one tensor is one field, however it is used
                return Weight(other, not trained)
            again = bool(reader) and (name, trained) in self.shared
            self.shared.add((name, trained))
            field_name = self._field_name(name, node, position, entry, again=again)
            field = self.made[key] = self.fields.unique(field_name, "weight")
            self.result.weights[field] = data
            self.result.trained[field] = trained
            self.result.onnx_names[field] = name
        return Weight(self.made[key], trained)

    @staticmethod
    def _field_name(name: str, node: Node | None, position: int, entry: Entry | None, *, again: bool) -> str:
        """The file's name for a weight; where that is a mere number, or taken, that of the node that reads it."""
        if node is None or entry is None or not (again or is_generated(name)):
            return name
        parameter = entry.inputs[min(position, len(entry.inputs) - 1)].name
        word = "weight" if node.op == "MatMul" else _WORDS.get(parameter, parameter)
        return f"{_module_path(node)}_{word}"


def _module_path(node: Node) -> str:
    """Returns where a node stands, without what its name says twice: "/layer1/layer1.0/conv1/Conv" is at
    layer1.0/conv1.
    """
    parts = [part for part in node.name.split("/") if part]
    if len(parts) > 1 and parts[-1].split("_")[0] == node.op:
        parts.pop()
    following = [*parts[1:], ""]
    return "/".join(part for part, after in zip(parts, following, strict=True) if not after.startswith(f"{part}."))


def _data(array: Any) -> TensorData:
    return TensorData(np.ascontiguousarray(array).reshape(array.shape), DType.from_numpy(array.dtype))


def _entry(node: Node) -> Entry:
    entry = find(node.domain, node.op, node.opset)
    assert entry is not None, node.label
    return entry


def _read_outputs(node: Node) -> int:
    """How many outputs a node has, up to the last with a name; all of a Split, whose parts depend on their number."""
    if node.op == "Split" and not node.domain:
        return len(node.outputs)
    return max((i + 1 for i, name in enumerate(node.outputs) if name), default=1)


def _constant(node: Node) -> TensorData:
    """The value of a Constant node."""
    for name, value in node.attributes.items():
        if name in ("value", "sparse_value") and isinstance(value, TensorData):
            return value
        if name in ("value_float", "value_floats"):
            return TensorData(np.asarray(value, np.float32), DType.F32)
        if name in ("value_int", "value_ints"):
            return TensorData(np.asarray(value, np.int64), DType.I64)
    raise OnnxError(
        f"{node.label} holds no number",
        given=", ".join(node.attributes) or "no attribute",
        expected="value, sparse_value, value_float, value_floats, value_int or value_ints",
        mend="texts are not supported: export the model without them",
    )


# -- what is read -----------------------------------------------------------------------------------------
def _reads(step: Step) -> set[str]:
    return {source.name for source in step.inputs if isinstance(source, Ref)}.union(
        *(body.captured for body in step.bodies)
    )


def _live(steps: list[Step], outputs: set[str]) -> list[Step]:
    """The steps whose results somebody reads, with an output of None where nobody reads it."""
    needed, kept = set(outputs), []
    for step in reversed(steps):
        if any(name in needed for name in step.outputs if name is not None):
            read = tuple(name if name in needed else None for name in step.outputs)
            needed |= _reads(step)
            kept.append(replace(step, outputs=read))
    return kept[::-1]


def _with_last_uses(steps: list[Step], outputs: set[str]) -> tuple[Step, ...]:
    seen, finished = set(outputs), []
    for step in reversed(steps):
        dying = tuple(sorted(_reads(step) - seen))
        seen |= set(dying)
        finished.append(replace(step, last_use=dying))
    return tuple(finished[::-1])


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, and those of the bodies within them."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from all_steps(body.steps)
