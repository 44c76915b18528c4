"""Defines what all stores share: the way from the keys of a file to the values of a module, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.errors import ArtifactError, RecordError
from burn_torch.module import Module, ModuleRecord
from burn_torch.module.record import RecordEntry, warn_of_layout
from burn_torch.module.twins import Place, Twin, places
from burn_torch.record.faults import cannot_save, shortened
from burn_torch.record.precision import cast_entry
from burn_torch.record.stores.adapter import IdentityAdapter, ModuleAdapter
from burn_torch.record.stores.filter import PathFilter, Predicate
from burn_torch.record.stores.remap import KeyRemapper, lists_cut_short, map_indices_contiguous, renamed
from burn_torch.record.stores.result import ApplyError, ApplyResult

__all__ = ["ModuleStore", "WritableStore"]

M = TypeVar("M", bound=Module)


@checked
@dataclass(frozen=True)
class ModuleStore(ABC):
    """A file of tensors, and how its keys become those of a module.  Each `with_` method gives another store.

    First the keys are renamed (`remap`, then without gaps in their numbers), then the adapter finds for each value of
    the module what it is in the file, and the filter says which values are loaded at all.
    """

    source: Path | bytes | None
    """The file, or its bytes; None for a store that is written to memory."""
    chosen: PathFilter | None = None
    remapper: KeyRemapper = field(default_factory=KeyRemapper)
    from_adapter: ModuleAdapter = field(default_factory=IdentityAdapter)
    validating: bool = True
    partial: bool = False
    contiguous: bool = False

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The store of a file."""
        return cls(Path(path))

    # -- options ----------------------------------------------------------------------------------
    def filter(self, chosen: PathFilter) -> Self:
        """Only values whose path in the module the filter takes."""
        return replace(self, chosen=chosen)

    def _or(self, more: PathFilter) -> Self:
        return self.filter(more if self.chosen is None else self.chosen.or_(more))

    def with_regex(self, pattern: str) -> Self:
        """Only values in whose path the pattern is found, or that another criterion takes."""
        return self._or(PathFilter().with_regex(pattern))

    def with_regexes(self, patterns: Iterable[str]) -> Self:
        """The same for several patterns."""
        return self._or(PathFilter().with_regexes(patterns))

    def with_full_path(self, path: str) -> Self:
        """Only the value at this path, or that another criterion takes."""
        return self._or(PathFilter().with_full_path(path))

    def with_full_paths(self, paths: Iterable[str]) -> Self:
        """The same for several paths."""
        return self._or(PathFilter().with_full_paths(paths))

    def with_predicate(self, predicate: Predicate) -> Self:
        """Only values that `predicate(path, container_path)` takes, or another criterion."""
        return self._or(PathFilter().with_predicate(predicate))

    def with_predicates(self, predicates: Iterable[Predicate]) -> Self:
        """The same for several predicates."""
        return self._or(PathFilter().with_predicates(predicates))

    def match_all(self) -> Self:
        """All values."""
        return self.filter(PathFilter.all())

    def remap(self, remapper: KeyRemapper) -> Self:
        """Other names for the keys of the file; when it is written, for the keys that it gets."""
        return replace(self, remapper=remapper)

    def with_key_remapping(self, pattern: str, to: str) -> Self:
        """One more pattern: `with_key_remapping(r"^bert\\.", "encoder.")`."""
        return self.remap(self.remapper.add_pattern(pattern, to))

    with_remap_pattern = with_key_remapping

    def with_from_adapter(self, adapter: ModuleAdapter) -> Self:
        """Returns what makes of the file's values those of the module."""
        return replace(self, from_adapter=adapter)

    def validate(self, validate: bool) -> Self:
        """Returns whether faults raise; if not, what fits is loaded and the result lists the rest."""
        return replace(self, validating=validate)

    def allow_partial(self, allow: bool) -> Self:
        """Returns whether keys may be missing."""
        return replace(self, partial=allow)

    def map_indices_contiguous(self, map: bool) -> Self:
        """Returns whether numbers in keys lose their gaps: fc.0 and fc.2 are the module's fc.0 and fc.1.

        A list keeps its numbers where the module has all of them: it has a gap since the file lacks a layer.
        """
        return replace(self, contiguous=map)

    # -- reading ------------------------------------------------------------------------------------
    @abstractmethod
    def read(self) -> ModuleRecord:
        """Returns what the file holds, under its own keys.  Raises: RecordError."""

    def get_all_snapshots(self) -> dict[str, RecordEntry]:
        """Entries by the names that they get; values are read when they are asked for.  Raises: RecordError."""
        return self._named(self.read(), ())

    def _named(self, record: ModuleRecord, wanted: Iterable[str]) -> dict[str, RecordEntry]:
        """Entries by the names that they get in a module with the keys `wanted`."""
        entries = dict(record.entries)
        entries = renamed(entries, self.remapper.remap(entries))
        if self.contiguous and self.partial:
            self._require_whole_lists(entries, wanted)
        return renamed(entries, map_indices_contiguous(entries, wanted)) if self.contiguous else entries

    def get_snapshot(self, name: str) -> RecordEntry | None:
        """One entry, by the name that it gets."""
        return self.get_all_snapshots().get(name)

    def keys(self) -> list[str]:
        """The names that the keys of the file get."""
        return list(self.get_all_snapshots())

    def apply_to(self, module: M) -> tuple[M, ApplyResult]:
        """The module with the values of the file, and what became of each.

        Floats take the element type of the module; other types must fit.
        Raises: RecordError with every fault at once, and where no value of the file has a place in the module, unless
        `validate(False)`; then nothing was loaded.
        """
        there = places(module)
        record = self.read()
        entries = self._named(record, [twin.key for place in there for twin in self._twins(place)])
        loaded: dict[str, RecordEntry] = {}
        used: set[str] = set()
        missing: list[Place] = []
        skipped: list[str] = []
        errors: list[ApplyError] = []
        covered: set[int] = set()
        readers: dict[tuple[str, int], Place] = {}
        for place in there:
            if self.chosen is not None and not self.chosen.matches(place.path, place.container_path):
                skipped.append(place.path)
                used.update(twin.key for twin in self._twins(place))
                continue
            twin = next((twin for twin in self._twins(place) if twin.key in entries), None)
            if twin is None:
                missing.append(place)
                continue
            used.add(twin.key)
            covered.add(id(place.leaf))
            other = readers.setdefault((twin.key, twin.block), place)
            if other.leaf is not place.leaf:
                errors.append(ApplyError(place.path, "load", f"is {twin.key} of the file, and so is {other.path}"))
                continue
            entry, fault = _fit(place, twin, entries[twin.key])
            if fault is not None:
                errors.append(fault)
            else:
                loaded[place.path] = entry
        errors += _divided_values(module, loaded)
        wrong = {error.path for error in errors}
        loaded = {path: entry for path, entry in loaded.items() if path not in wrong}
        result = ApplyResult(
            tuple(loaded),
            tuple(skipped),
            tuple((place.path, place.container_path) for place in missing if id(place.leaf) not in covered),
            tuple(key for key in entries if key not in used),
            tuple(errors),
            _tied(entries),
        )
        if self.validating and (result.errors or (result.missing and not self.partial)):
            raise self._refusal(module, result)
        if self.validating and missing and entries and not used:
            raise self._refusal(module, result, "has no value of")
        if record.metadata.get("format") == "pt" and isinstance(self.from_adapter, IdentityAdapter):
            warn_of_layout(module, loaded)
        return ModuleRecord(loaded).allow_partial().cast_to_module_dtype().apply(module), result

    def _twins(self, place: Place) -> Sequence[Twin]:
        return self.from_adapter.twins(place) or (Twin(place.path),)

    def _require_whole_lists(self, entries: Iterable[str], wanted: Iterable[str]) -> None:
        """Raises: RecordError where part of a list is there, and which part can be read in two ways."""
        unclear = lists_cut_short(entries, wanted)
        if unclear:
            raise RecordError(
                "part of a list is there, and its numbers have gaps",
                given=f"{self.name}: {'; '.join(shortened(unclear))}",
                expected="as many numbers as the module has, or numbers that the module has",
                mend="map_indices_contiguous(False) keeps the numbers, with_key_remapping(pattern, to) says others",
            )

    def _refusal(self, module: Module, result: ApplyResult, what: str = "does not fit") -> RecordError:
        listed = "\n            ".join(shortened(result.lines(self.partial and bool(result.applied))))
        unused = f"\n            unused in the file: {', '.join(shortened(result.unused))}" if result.unused else ""
        return RecordError(
            f"this file {what} {type(module).__name__}",
            given=f"{self.name}:\n            {listed}{unused}",
            expected="a value of the right shape and type for each of the module",
            mend="rename keys with with_key_remapping(pattern, to), leave some with with_regex(pattern), or"
            " allow_partial(True)",
        )

    @property
    def name(self) -> str:
        """The file, for messages."""
        return "the given bytes" if isinstance(self.source, bytes) else str(self.source)


@checked
@dataclass(frozen=True)
class WritableStore(ModuleStore):
    """A store that is written too."""

    to_adapter: ModuleAdapter = field(default_factory=IdentityAdapter)
    own_metadata: Mapping[str, str] = field(default_factory=dict)
    overwriting: bool = False

    @classmethod
    def from_bytes(cls, data: bytes | None = None) -> Self:
        """The store of bytes; without some, one to be written to: see `collect_bytes`."""
        return cls(data)

    def with_to_adapter(self, adapter: ModuleAdapter) -> Self:
        """Returns what makes of the module's values those of the file."""
        return replace(self, to_adapter=adapter)

    def metadata(self, key: str, value: str) -> Self:
        """One more text in the file that is written."""
        return replace(self, own_metadata={**self.own_metadata, key: value})

    def clear_metadata(self) -> Self:
        """No texts of one's own."""
        return replace(self, own_metadata={})

    def overwrite(self, overwrite: bool) -> Self:
        """Returns whether a file that is there may be replaced."""
        return replace(self, overwriting=overwrite)

    def collect(self, module: Module) -> ModuleRecord:
        """The record that the store writes.  Raises: RecordError where values cannot be told."""
        entries: dict[str, RecordEntry] = {}
        blocks: dict[str, dict[int, tuple[RecordEntry, Twin]]] = {}
        converted: dict[tuple[int, Twin], RecordEntry] = {}
        record = module.into_record()
        for place in places(module):
            if self.chosen is not None and not self.chosen.matches(place.path, place.container_path):
                continue
            twin = next(iter(self.to_adapter.twins(place) or ()), Twin(place.path))
            entry = record.entries[place.path]
            stored = self.to_adapter.stored(place, entry.dtype)
            part = id(place.leaf), replace(twin, key="")
            if part not in converted:
                converted[part] = _turn(cast_entry(place.path, entry, stored), twin)
            if twin.count == 1:
                entries[twin.key] = converted[part]
            else:
                blocks.setdefault(twin.key, {})[twin.block] = (converted[part], twin)
        for key, parts in blocks.items():
            count = next(iter(parts.values()))[1].count
            if len(parts) < count:
                raise cannot_save(
                    f"{key}, of which only {len(parts)} of {count} blocks are there",
                    expected="all parts of a joined tensor: biases everywhere or nowhere",
                    mend="leave the filter out, or give the layer all its biases",
                )
            entries[key] = _join_blocks([parts[i][0] for i in range(count)])
        entries = renamed(entries, self.remapper.remap(entries))
        return ModuleRecord(entries, {**record.metadata, **self.own_metadata})

    def collect_from(self, module: Module) -> Path:
        """Writes the module, whole or not at all; returns the file.

        Raises: ArtifactError for a file that is there already and may not be replaced, or cannot be written.
        """
        path = self.path()
        if path.exists() and not self.overwriting:
            raise ArtifactError(
                "the output file exists already",
                given=str(path),
                expected="a new path",
                mend="overwrite(True) replaces it",
            )
        return self.collect(module).save(path)

    def collect_bytes(self, module: Module) -> bytes:
        """The bytes of the file."""
        return self.collect(module).into_bytes(self.ending)

    @property
    @abstractmethod
    def ending(self) -> str:
        """That of its files."""

    def path(self) -> Path:
        """Returns where the file is, with the ending if it had none.  Raises: RecordError for a store of bytes."""
        if not isinstance(self.source, Path):
            raise cannot_save("a store of bytes", expected="a store of a file", mend="use collect_bytes(module)")
        return self.source if self.source.suffix else self.source.with_suffix(self.ending)

    def read(self) -> ModuleRecord:
        """Returns what the file holds, under its own keys.  Raises: RecordError."""
        if isinstance(self.source, bytes):
            return ModuleRecord.from_bytes(self.source, self.ending)
        return ModuleRecord.load(self.path())


# -- values --------------------------------------------------------------------------------------------
def _fit(place: Place, twin: Twin, entry: RecordEntry) -> tuple[RecordEntry, ApplyError | None]:
    """The entry of a value, cut and turned when it is read; or why it cannot be."""
    shape, dtype = place.spec(entry.dtype)
    in_file = twin.shape(entry.shape)
    if in_file != shape:
        part = f" of which block {twin.block + 1} of {twin.count}" if twin.count > 1 else ""
        turned = ", turned" if twin.turned else ""
        message = f"has shape {entry.shape} as {twin.key}{part}{turned}, the module wants {shape}"
        return entry, ApplyError(place.path, "shape", message)
    if entry.dtype is not dtype and not (entry.dtype.is_float and dtype.is_float):
        return entry, ApplyError(place.path, "dtype", f"has type {entry.dtype} as {twin.key}, the module wants {dtype}")
    if twin.count == 1 and not twin.turned:
        return entry, None

    def read() -> TensorData:
        array = entry.read().array
        if twin.count > 1:
            rows = array.shape[0] // twin.count
            array = array[twin.block * rows : (twin.block + 1) * rows]
        return TensorData(array.T if twin.turned else array, entry.dtype)

    return RecordEntry(entry.dtype, shape, entry.id if twin.count == 1 else None, read, entry.state), None


def _divided_values(module: Module, loaded: Mapping[str, RecordEntry]) -> list[ApplyError]:
    """Values that the module has once, and the file twice and different."""
    first: dict[int, str] = {}
    faults: list[ApplyError] = []
    for place in places(module):
        if place.path not in loaded:
            continue
        known = first.setdefault(id(place.leaf), place.path)
        if known == place.path or loaded[known] is loaded[place.path]:
            continue
        ours, theirs = loaded[known].read(), loaded[place.path].read()
        if ours.array.tobytes() != theirs.array.tobytes():
            message = f"is one parameter with {known}, and the file has two values for it"
            faults.append(ApplyError(place.path, "load", message))
    return faults


def _tied(entries: Mapping[str, RecordEntry]) -> tuple[tuple[str, ...], ...]:
    groups: dict[int, list[str]] = {}
    for key, entry in entries.items():
        groups.setdefault(id(entry), []).append(key)
    return tuple(tuple(keys) for keys in groups.values() if len(keys) > 1)


def _turn(entry: RecordEntry, twin: Twin) -> RecordEntry:
    if not twin.turned:
        return entry

    def read() -> TensorData:
        data = entry.read()
        return TensorData(np.ascontiguousarray(data.array.T), data.dtype)

    return replace(entry, shape=entry.shape[::-1], read=read)


def _join_blocks(parts: list[RecordEntry]) -> RecordEntry:
    first = parts[0]
    shape = (sum(part.shape[0] for part in parts), *first.shape[1:])

    def read() -> TensorData:
        arrays: list[Any] = [part.read().array for part in parts]
        return TensorData(np.concatenate(arrays), first.dtype)

    return RecordEntry(first.dtype, shape, None, read, first.state)
