"""Replay files: the operations that led to the first NaN or infinity, with what they read, to be run again anywhere.

One safetensors file: the tensors `input.<n>`, and under the metadata key `anomaly` JSON with the graph, the numbers,
and what was found.  Loading runs nothing of it; `Replay.run` runs the operations of the graph, which are rows of the
table, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from burn_torch.backend import Backend, LibTorch, NdArray
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.errors import RecordError
from burn_torch.core.spec import TensorSpec
from burn_torch.core.wording import counted
from burn_torch.graph import Graph
from burn_torch.graph.interpreter import stepwise
from burn_torch.graph.printer import node_text
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry
from burn_torch.train.anomaly.search import Fault, Found, Values, find
from burn_torch.train.checkpoint.content import versions

__all__ = ["Replay", "Replayed", "replay", "save"]

VERSION: Final = 1
MIN_LIMIT: Final = 256 << 20
RATIO: Final = 64
"""How many times the bytes of its inputs the values of a graph may take at one time, where that is more."""
_LEAVES: Final = {leaf.name: leaf for leaf in (LibTorch, NdArray)}
_SHOWN: Final = 12
"""How many operations before the fault are told."""


@final
@dataclass(frozen=True)
class Replayed:
    """Holds what a replay gave."""

    fault: Fault | None
    """Holds what is found now; None if all is finite here."""
    expected: Fault
    """Holds what was found when the file was written."""
    steps: tuple[tuple[str, tuple[Values, ...]], ...]
    """Operations in order, each with what its results are like."""

    @property
    def reproduced(self) -> bool:
        """Returns whether the same operation gives the same kind of value in the same place."""
        now, then = self.fault, self.expected
        return now is not None and (now.name, now.values.nan, now.values.infinite, now.values.first) == (
            then.name, then.values.nan, then.values.infinite, then.values.first,
        )  # fmt: skip

    def __str__(self) -> str:
        lines = ["\n    ".join([text, *map(str, values)]) for text, values in self.steps[-_SHOWN:]]
        if len(self.steps) > _SHOWN:
            lines.insert(0, f"({counted(len(self.steps) - _SHOWN, 'operation')} before)")
        if self.reproduced:
            lines.append(f"the same fault: {self.fault}")
        else:
            lines.append(f"another result: {self.fault or 'all is finite'}; it was {self.expected}")
        return "\n".join(lines)


@final
@dataclass(frozen=True)
class Replay:
    """Holds what a replay file holds."""

    graph: Graph
    inputs: tuple[Any, ...]
    """TensorData and numbers, in the order of the graph's inputs."""
    names: tuple[str, ...]
    fault: Fault
    leaf: str
    position: dict[str, int]
    """Epoch, batch and step of the run."""
    versions: dict[str, str]

    @staticmethod
    def load(path: str | Path) -> Replay:
        """The replay of a file.  Raises: RecordError for a file that is damaged or none of these."""
        record = ModuleRecord.load(path)
        try:
            about = json.loads(record.metadata["anomaly"])
            if about["version"] != VERSION:
                raise ValueError(f"layout {about['version']}")
            fault = about["fault"]
            values = fault["values"]
            values |= {"shape": tuple(values["shape"]), "first": values["first"] and tuple(values["first"])}
            graph = Graph.from_json(about["graph"])
            inputs = tuple(_input(record, i, about["inputs"][i]["number"]) for i in range(len(graph.inputs)))
            loaded = Replay(
                graph,
                inputs,
                tuple(str(one["name"]) for one in about["inputs"]),
                Fault(**{**fault, "values": Values(**values)}),
                str(about["leaf"]),
                {str(name): int(value) for name, value in about["position"].items()},
                dict(about["versions"]),
            )
            if loaded.leaf not in _LEAVES:
                raise ValueError(f"a backend {loaded.leaf}")
            _require_small(graph, inputs)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as err:
            raise RecordError(
                "this file is not a replay of an anomaly",
                given=f"{path}: {type(err).__name__}: {str(err).partition(chr(10))[0]}",
                expected=f"a file of layout {VERSION} that --detect-anomaly wrote",
                mend="take a file from anomaly/ in the artifact directory of the run",
            ) from err
        return loaded

    def run(self) -> Replayed:
        """Runs the operations again.  Raises: DeviceError where this machine has no such device as the run had."""
        leaf: Backend = _LEAVES[self.leaf]()
        inputs = [
            leaf.from_data(x, spec.place) if isinstance(x, TensorData) and isinstance(spec, TensorSpec) else x
            for x, (_, spec) in zip(self.inputs, self.graph.inputs, strict=True)
        ]
        steps = []
        for node, outputs in stepwise(self.graph, leaf, inputs):
            tensors = [x for x in outputs if x is not None and not isinstance(x, int | float)]
            origin = "" if node.origin is None else f"  # {node.origin}"
            steps.append((node_text(node) + origin, tuple(Values.of(leaf.into_data(x)) for x in tensors)))
        finding = find(self.graph, leaf, inputs, self.names)
        return Replayed(None if finding is None else finding.fault, self.fault, tuple(steps))


def _require_small(graph: Graph, inputs: Sequence[object]) -> None:
    """Raises: ValueError for a graph whose values would fill the memory: each is freed at its last use."""
    limit = max(MIN_LIMIT, RATIO * sum(x.array.nbytes for x in inputs if isinstance(x, TensorData)))
    last = {i: number for number, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    sizes: dict[int, int] = {}
    held = 0
    for number, node in enumerate(graph.nodes):
        for i, spec in zip(node.outputs, node.call.results, strict=True):
            if isinstance(spec, TensorSpec):
                size = spec.numel * spec.dtype.itemsize
                if held + size > limit:
                    raise ValueError(f"{node.call.op.name} needs {held + size} bytes, and its inputs allow {limit}")
                if i is not None and i in last:
                    held, sizes[i] = held + size, size
        for x in node.inputs:
            if isinstance(x, int) and last[x] == number:
                held -= sizes.pop(x, 0)


@checked
def replay(path: str | Path) -> Replayed:
    """Runs what a replay file holds.

    Raises: RecordError for a file that is damaged or no replay; DeviceError where its device is not here.
    """
    return Replay.load(path).run()


def save(
    path: Path, finding: Found, leaf: Backend, inputs: Sequence[object], names: Sequence[str], position: dict[str, int]
) -> Path:
    """Writes a replay file.  Raises: ArtifactError where it cannot be written."""
    entries: dict[str, RecordEntry] = {}
    described: list[dict[str, Any]] = []
    for number, at in enumerate(finding.inputs):
        x = inputs[at]
        if isinstance(x, int | float):
            described.append({"name": names[at], "number": _number(x)})
        else:
            spec = leaf.spec(x)
            entries[f"input.{number}"] = RecordEntry(
                spec.dtype, spec.shape, None, partial(leaf.into_data, x), state=True
            )
            described.append({"name": names[at], "number": None})
    again = find(finding.graph, leaf, [inputs[at] for at in finding.inputs], [names[at] for at in finding.inputs])
    fault = finding.fault if again is None else again.fault
    about = {
        "version": VERSION,
        "fault": asdict(fault),
        "inputs": described,
        "leaf": leaf.name,
        "position": position,
        "versions": versions(),
        "graph": finding.graph.to_json(origins=True),
    }
    return ModuleRecord(entries, {"module": "an anomaly", "anomaly": json.dumps(about)}).save(path)


def _number(x: float | int | bool) -> dict[str, object]:
    if isinstance(x, bool):
        return {"bool": x}
    return {"int": x} if isinstance(x, int) else {"float": x.hex()}


def _input(record: ModuleRecord, i: int, number: dict[str, Any] | None) -> object:
    if number is None:
        return record.entries[f"input.{i}"].read()
    ((kind, value),) = number.items()
    if kind == "float":
        return float.fromhex(value)
    if (kind == "int" and type(value) is int) or (kind == "bool" and type(value) is bool):
        return value
    raise ValueError(f"a number of kind {kind}")
