"""Defines what optimizers and schedules remember, apart from them: records that every format and recorder takes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import RecordEntry, TensorValues
from burn_torch.tensor import Device, Tensor

__all__ = ["LrSchedulerRecord", "OptimizerRecord"]


class _Kept(ABC):
    """Files and bytes, by way of the named values of a record."""

    @abstractmethod
    def into_named(self) -> ModuleRecord:
        """All that it holds, as entries, scalars and metadata."""

    @classmethod
    @abstractmethod
    def from_named(cls, record: ModuleRecord) -> Self:
        """The record of such values.  Raises: RecordError for those of another kind of record."""

    def save(self, path: str | Path) -> Path:
        """Writes it, whole or not at all; the ending chooses the format (default .safetensors)."""
        return self.into_named().save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote.  Raises: RecordError for a missing, damaged or foreign file."""
        return cls.from_named(ModuleRecord.load(path))

    def into_bytes(self, ending: str = ".bpk") -> bytes:
        """The bytes that a file with this ending has."""
        return self.into_named().into_bytes(ending)

    @classmethod
    def from_bytes(cls, data: bytes, ending: str = ".bpk") -> Self:
        """Reads what `into_bytes` wrote.  Raises: RecordError for damaged or foreign bytes."""
        return cls.from_named(ModuleRecord.from_bytes(data, ending))


@final
@dataclass(frozen=True)
class OptimizerRecord(_Kept):
    """An optimizer's states apart from the optimizer: for each parameter its steps and named tensors."""

    kind: str
    states: dict[ParamId, tuple[int, dict[str, Tensor]]]

    def __len__(self) -> int:
        return len(self.states)

    def is_empty(self) -> bool:
        """Returns whether no parameter was ever stepped."""
        return not self.states

    def into_named(self) -> ModuleRecord:
        """Tensors as `<id>.<slot>`, steps as scalars `<id>.time`."""
        entries = {
            f"{ident}.{slot}": RecordEntry(tensor.dtype, tensor.shape, ident, TensorValues(tensor), state=True)
            for ident, (_, slots) in self.states.items()
            for slot, tensor in slots.items()
        }
        times = {f"{ident}.time": time for ident, (time, _) in self.states.items()}
        order = json.dumps([str(ident) for ident in self.states])
        return ModuleRecord(entries, {"record": "optimizer", "kind": self.kind, "order": order}, scalars=times)

    @classmethod
    def from_named(cls, record: ModuleRecord) -> Self:
        """The record of such values, its tensors on the CPU.  Raises: RecordError for another kind of record."""
        _require_kind(record, "optimizer")
        host = Device.cpu()
        states: dict[ParamId, tuple[int, dict[str, Tensor]]] = {}
        try:
            for text in json.loads(record.metadata["order"]):
                time = record.scalars[f"{text}.time"]
                if type(time) is not int or time < 0:
                    raise ValueError(f"{text} was stepped {time} times")
                states[ParamId.parse(text)] = (time, {})
            for key, entry in record.entries.items():
                text, _, slot = key.rpartition(".")
                states[ParamId.parse(text)][1][slot] = entry.tensor(host)
            return cls(record.metadata["kind"], states)
        except (KeyError, TypeError, ValueError) as err:
            raise _no_record("optimizer", f"one whose parts do not fit ({type(err).__name__}: {err})") from err


@final
class LrSchedulerRecord(_Kept, dict[str, Any]):
    """Holds what a schedule counts: numbers, texts, and records of schedules within, by name."""

    def with_scalar(self, name: str, value: float) -> LrSchedulerRecord:
        """The same record with one more number."""
        return LrSchedulerRecord({**self, name: value})

    def with_record(self, name: str, record: Mapping[str, object]) -> LrSchedulerRecord:
        """The same record with the record of a schedule within."""
        return LrSchedulerRecord({**self, name: LrSchedulerRecord(record)})

    def is_empty(self) -> bool:
        """Returns whether it holds nothing."""
        return not self

    def into_named(self) -> ModuleRecord:
        """Numbers as scalars, texts as metadata, those within under `<name>.`."""
        scalars: dict[str, float] = {}
        texts: dict[str, str] = {"record": "lr_scheduler"}
        for path, value in _flat(self, ""):
            if isinstance(value, str):
                texts[f"value.{path}"] = value
            elif isinstance(value, int | float):
                scalars[path] = value
            else:
                raise RecordError(
                    "the record of a schedule cannot be saved",
                    given=f"{path}, {type(value).__name__}",
                    expected="numbers, texts, and records of them",
                    mend="give it parts of those kinds: record.with_scalar(name, value)",
                )
        return ModuleRecord({}, texts, scalars=scalars)

    @classmethod
    def from_named(cls, record: ModuleRecord) -> Self:
        """The record of such values.  Raises: RecordError for another kind of record."""
        _require_kind(record, "lr_scheduler")
        texts = {
            name.removeprefix("value."): text for name, text in record.metadata.items() if name.startswith("value.")
        }
        values = cls()
        for path, value in {**texts, **record.scalars}.items():
            *folders, name = path.split(".")
            here: dict[str, Any] = values
            for folder in folders:
                here = here.setdefault(folder, cls())
                if not isinstance(here, dict):
                    raise _no_record("lr_scheduler", f"one where {folder} is a number and a record")
            here[name] = value
        return values


def _flat(values: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _require_kind(record: ModuleRecord, wanted: str) -> None:
    kind = record.metadata.get("record")
    if kind != wanted:
        shown = (
            f"a record of kind {kind}"
            if kind
            else f"the record of a module, {record.metadata.get('module', 'unnamed')}"
        )
        raise _no_record(wanted, shown)


def _no_record(wanted: str, given: str) -> RecordError:
    name = {"optimizer": "an optimizer", "lr_scheduler": "a schedule"}[wanted]
    return RecordError(
        f"this is not a record of {name}",
        given=given,
        expected=f"what the to_record() of {name} gave, saved",
        mend="check the path; models, optimizers and schedules have files of their own",
    )
