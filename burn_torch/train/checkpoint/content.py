"""Defines what a checkpoint holds, and how it lies in one record.

Entries: `model.<path>`, `optim.<path>.<slot>`, `history.<split>.<epoch>.<number>` (two rows: values and weights),
`metrics.<number>`, an array in the state of a metric.
Everything else is JSON under the metadata key `checkpoint`.  The record's SHA-256 covers all of it.
"""

from __future__ import annotations

import json
import platform
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import Module, ModuleRecord, ParamId
from burn_torch.module.record import RecordEntry, TensorValues
from burn_torch.optim import LearningRates, OptimizerRecord
from burn_torch.tensor import Device, Tensor
from burn_torch.train.history import History
from burn_torch.version import __version__

__all__ = ["Checkpoint", "Position", "versions"]

VERSION: Final = 2
"""The version of the layout; a reader refuses a newer one.  Layout 1 had no `events`."""

_ARRAY: Final = "metrics.<number>"
"""The key that stands for an array in the JSON of a state."""


@final
@dataclass(frozen=True)
class Position:
    """How far a run is."""

    epoch: int = 1
    """The epoch that is being trained, or that is over; the first one is 1."""
    batch: int = 0
    """How many batches of this epoch have been trained on."""
    complete: bool = False
    """Says whether the epoch is over, validation included."""
    iteration: int = 0
    """How many batches the run has trained on: with the run's key it gives the key of the next step."""
    valid_iteration: int = 0
    """How many batches it has validated on in the epochs before this one."""
    updates: int = 0
    """How often the optimizer has stepped."""

    def after_batch(self, updated: bool) -> Position:
        """After one more training batch.  Once a step, so without `dataclasses.replace`, which takes 8 us."""
        return Position(
            self.epoch, self.batch + 1, False, self.iteration + 1, self.valid_iteration, self.updates + updated
        )


@final
@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    position: Position
    run_key: int
    model: ModuleRecord
    optim: OptimizerRecord
    scheduler: Mapping[str, Any]
    lr: float
    """The learning rate of the newest update, or those of its groups: what validation shows, if the run goes on with
    that."""
    history: History
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """States of the training metrics by name, for an epoch that is not over: what JSON can hold, and arrays."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Holds what the order of the training data depends on."""
    config: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    tuning: str | None = None
    """Says which configs of kernels the run uses, as the lockfile of `burn_kernels` says it."""
    notes: tuple[str, ...] = ()
    """Holds what a resume should say: a line for each way in which this is not the checkpoint of an undisturbed run."""
    facts: Mapping[str, str | None] = field(default_factory=dict)
    """Holds what the run was given that it cannot restore, as texts: a resume says which of them are others."""
    events: tuple[int, int] = (0, 0)
    """How many bytes and events of the event log lie before it; a resume cuts off the rest."""

    def to_record(self, model: Module) -> ModuleRecord:
        """As one record that nothing changes any more; `model` gives the optimizer's states their names.

        Values of tensors are read when the record is saved, which another thread may do while the run goes on.
        """
        entries = {f"model.{path}": entry for path, entry in self.model.entries.items()}
        paths = {param.id: path for path, param in model.named_params()}
        for id, (_, slots) in self.optim.states.items():
            for slot, tensor in slots.items():
                key = f"optim.{paths.get(id, str(id))}.{slot}"
                entries[key] = RecordEntry(tensor.dtype, tensor.shape, id, TensorValues(tensor), state=True)
        columns, described = self.history.to_state()
        for key, column in columns.items():
            data = TensorData(np.stack([np.frombuffer(part, np.float64) for part in column]), DType.F64)
            entries[f"history.{key}"] = RecordEntry(DType.F64, data.shape, None, _constant(data))
        arrays: list[np.ndarray[Any, Any]] = []
        metrics = _without_arrays(self.metrics, arrays)
        for number, values in enumerate(arrays):
            data = TensorData(values, DType.from_numpy(values.dtype))
            entries[f"metrics.{number}"] = RecordEntry(data.dtype, data.shape, None, _constant(data))
        groups = self.lr.groups if isinstance(self.lr, LearningRates) else {}
        about = {
            "version": VERSION,
            "position": asdict(self.position),
            "run_key": self.run_key,
            "optim": {
                "kind": self.optim.kind,
                "states": [[str(id), time, list(slots)] for id, (time, slots) in self.optim.states.items()],
            },
            "scheduler": dict(self.scheduler),
            "lr": float(self.lr).hex(),
            "lr_groups": {name: float(lr).hex() for name, lr in groups.items()},
            "history": described,
            "metrics": metrics,
            "loader": dict(self.loader),
            "config": self.config,
            "versions": dict(self.versions),
            "tuning": self.tuning,
            "notes": list(self.notes),
            "facts": dict(self.facts),
            "events": list(self.events),
        }
        return ModuleRecord(entries, {**self.model.metadata, "checkpoint": json.dumps(about)})

    @staticmethod
    def from_record(record: ModuleRecord) -> Checkpoint:
        """From one record.  Raises: RecordError if it is no checkpoint of a version that this program knows."""
        try:
            about = json.loads(record.metadata["checkpoint"])
            if about["version"] not in range(1, VERSION + 1):
                raise _no_checkpoint(f"a checkpoint of layout {about['version']}")
            return Checkpoint(
                position=Position(**about["position"]),
                run_key=int(about["run_key"]),
                model=ModuleRecord(_below(record, "model."), record.metadata),
                optim=_optimizer_record(about["optim"], _below(record, "optim.")),
                scheduler=dict(about["scheduler"]),
                lr=_learning_rate(about["lr"], about.get("lr_groups", {})),
                history=_history(about["history"], _below(record, "history.")),
                metrics=_with_arrays(dict(about["metrics"]), _below(record, "metrics.")),
                loader=dict(about["loader"]),
                config=about["config"],
                versions=dict(about["versions"]),
                tuning=about.get("tuning"),
                notes=tuple(map(str, about.get("notes", ()))),
                facts=dict(about.get("facts", {})),
                events=_two_counts(about.get("events", [0, 0])),
            )
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError) as err:
            if isinstance(err, RecordError):
                raise
            name = record.metadata.get("module", "other data")
            raise _no_checkpoint(f"a record of {name} ({type(err).__name__}: {err})") from err


def versions() -> dict[str, str]:
    """Returns what the bits of a run may depend on."""
    import torch

    return {
        "burn_torch": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _two_counts(counts: Sequence[Any]) -> tuple[int, int]:
    bytes_before, events_before = map(int, counts)
    if bytes_before < 0 or events_before < 0:
        raise ValueError(f"{counts} are no counts")
    return bytes_before, events_before


def _learning_rate(lr: str, groups: Mapping[str, str]) -> float:
    rates = {name: float.fromhex(rate) for name, rate in groups.items()}
    return LearningRates(rates) if rates else float.fromhex(lr)


def _below(record: ModuleRecord, prefix: str) -> dict[str, RecordEntry]:
    return {key.removeprefix(prefix): entry for key, entry in record.entries.items() if key.startswith(prefix)}


def _optimizer_record(about: Mapping[str, Any], entries: Mapping[str, RecordEntry]) -> OptimizerRecord:
    host = Device.cpu()
    tensors: dict[tuple[ParamId | None, str], Tensor] = {}
    for key, entry in entries.items():
        tensors[entry.id, key.rpartition(".")[2]] = entry.tensor(host)
    states: dict[ParamId, tuple[int, dict[str, Tensor]]] = {}
    for text, time, slots in about["states"]:
        id = ParamId.parse(text)
        states[id] = (int(time), {slot: tensors[id, slot] for slot in slots})
    return OptimizerRecord(about["kind"], states)


def _history(about: Mapping[str, object], entries: Mapping[str, RecordEntry]) -> History:
    columns = {}
    for key, entry in entries.items():
        values, counts = entry.read().array
        columns[key] = (array("d", values.tobytes()), array("d", counts.tobytes()))
    return History.from_state(columns, about)


def _without_arrays(state: object, arrays: list[np.ndarray[Any, Any]]) -> object:
    """The same state with a number in place of each array, which is added to `arrays`."""
    if isinstance(state, np.ndarray):
        arrays.append(state)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(state, Mapping):
        return {str(key): _without_arrays(value, arrays) for key, value in state.items()}
    return [_without_arrays(value, arrays) for value in state] if isinstance(state, list | tuple) else state


def _with_arrays(state: object, entries: Mapping[str, RecordEntry]) -> Any:
    """Returns what `_without_arrays` took apart."""
    if isinstance(state, Mapping):
        if set(state) == {_ARRAY}:
            return entries[str(state[_ARRAY])].read().array
        return {key: _with_arrays(value, entries) for key, value in state.items()}
    return [_with_arrays(value, entries) for value in state] if isinstance(state, list) else state


def _constant(data: TensorData) -> Any:
    return lambda: data


def _no_checkpoint(given: str) -> RecordError:
    return RecordError(
        "this file is not a checkpoint of a run",
        given=given,
        expected=f"a checkpoint of layout {VERSION} or older, as burn_torch {__version__} writes them",
        mend="take a file that a run wrote under checkpoint/, or the version of burn_torch that wrote this one",
    )
