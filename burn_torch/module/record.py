"""ModuleRecord: a module's values by name, apart from the module."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import numpy as np

from burn_torch.backend import LibTorch
from burn_torch.backend.base import capabilities
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.core.frames import warn_user
from burn_torch.core.spec import Shape
from burn_torch.module import tree
from burn_torch.module.param import Param, ParamId
from burn_torch.module.quantization import LISTED, fit_to_record, list_quantized
from burn_torch.module.running_state import RunningState
from burn_torch.module.twins import places
from burn_torch.tensor import Device, Tensor

if TYPE_CHECKING:
    from burn_torch.module.module import Module

__all__ = [
    "FORMATS",
    "DTypePolicy",
    "FileRecorder",
    "ForeignLayoutWarning",
    "ModuleRecord",
    "RecordEntry",
    "RecordFormat",
    "TensorValues",
    "format_of",
    "warn_of_layout",
]

M = TypeVar("M", bound="Module")


@checked
@final
@dataclass(frozen=True)
class RecordEntry:
    """One named value of a record.  `read` gives the data, which may still lie in a file."""

    dtype: DType
    shape: Shape
    id: ParamId | None
    read: Callable[[], TensorData]
    state: bool = False
    """Says whether it is a running state, not a parameter."""

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def peek(self) -> TensorData:
        """The data for one look at it, without a copy where `read` can do that: `read.peek`."""
        data: TensorData = getattr(self.read, "peek", self.read)()
        return data

    def tensor(self, host: Device, dtype: DType | None = None) -> Tensor:
        """The data as a tensor; it keeps the memory of a file where `read` lends that: `read.lend`."""
        wanted = self.dtype if dtype is None else dtype
        if not capabilities(host.backend).holds_torch:
            return Tensor.from_data(self.read().convert(wanted), host)
        lend = getattr(self.read, "lend", None)
        if lend is not None and wanted is self.dtype and host.place == "cpu":
            lent = lend()
            if lent is not None:
                return Tensor.from_torch(LibTorch().share(lent), host)
        if wanted.is_float and self.dtype.is_float and wanted.itemsize > self.dtype.itemsize:
            return Tensor.from_torch(LibTorch().widened(self.read(), wanted, host.place), host)
        return Tensor.from_data(self.read().convert(wanted), host)


@final
class TensorValues:
    """Holds what `RecordEntry.read` is for a tensor: a copy of its values, or with `peek` a look at them."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __call__(self) -> TensorData:
        """A copy."""
        return self._tensor.into_data()

    def peek(self) -> TensorData:
        """The values where they lie, if that is here; nobody may write to them."""
        tensor = self._tensor
        if tensor.place != "cpu" or not tensor.dtype.is_of_numpy:
            return tensor.into_data()
        return TensorData(np.asarray(tensor), tensor.dtype)


class DTypePolicy(Enum):
    """Holds what happens to values whose element type is not that of the module."""

    Strict = "Strict"
    """They are refused."""
    FromRecord = "FromRecord"
    """The module takes the record's element types."""
    CastToModule = "CastToModule"
    """They are converted to the module's."""


class RecordFormat(Protocol):
    """A file format of records; `FORMATS` has them by the ending of their files."""

    def save(self, record: ModuleRecord, path: Path) -> None:
        """Writes a record, whole or not at all.  Raises: ArtifactError where it cannot."""

    def load(self, path: Path) -> ModuleRecord:
        """Reads what a file holds; values may be read later.  Raises: RecordError for a missing or damaged file."""

    def dump(self, record: ModuleRecord) -> bytes:
        """The bytes that a file of the record has.  Raises: RecordError for a format of several files."""

    def parse(self, data: bytes, name: str = "the given bytes") -> ModuleRecord:
        """A record from such bytes; `name` is for messages.  Raises: RecordError for damaged ones."""


class FileRecorder(Protocol):
    """A recorder of `burn_torch.record`: a format at a precision."""

    def record(self, record: ModuleRecord, path: str | Path) -> Path:
        """Writes a record, whole or not at all; returns the file."""

    def load(self, path: str | Path) -> ModuleRecord:
        """The record of a file.  Raises: RecordError for a missing or damaged file."""


class Store(Protocol):
    """A store of `burn_torch.record.stores` that is read."""

    def apply_to(self, module: M) -> tuple[M, Any]:
        """The module with the values of the store, and what became of each key."""


class WritableStore(Protocol):
    """A store that is written."""

    def collect_from(self, module: Module) -> Path:
        """Writes the module; returns the file."""


@final
class Formats(Mapping[str, RecordFormat]):
    """Formats by file ending, each made by what the table names, "module:maker", when it is first asked for."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes: Final = homes
        self._formats: Final[dict[str, RecordFormat]] = {}

    def __getitem__(self, ending: str) -> RecordFormat:
        if ending not in self._formats:
            module, _, name = self._homes[ending].partition(":")
            self._formats[ending] = getattr(importlib.import_module(module), name)()
        return self._formats[ending]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


FORMATS: Final = Formats(
    {
        ".bin": "burn_torch.record.bin_file:BinFormat",
        ".bin.gz": "burn_torch.record.gzip_file:bin_gz_format",
        ".bpk": "burn_torch.record.burnpack_file:BurnpackFormat",
        ".json": "burn_torch.record.json_file:JsonFormat",
        ".json.gz": "burn_torch.record.gzip_file:json_gz_format",
        ".mpk": "burn_torch.record.mpk_file:NamedMpkFormat",
        ".mpk.gz": "burn_torch.record.gzip_file:mpk_gz_format",
        ".safetensors": "burn_torch.record.safetensors_file:SafetensorsFormat",
        ".safetensors.index.json": "burn_torch.record.safetensors_shards:ShardedSafetensorsFormat",
    }
)
"""The formats of records by the ending of their files."""

DEFAULT_ENDING = ".safetensors"
BYTES_ENDING = ".bpk"
"""The format of records in memory, as in Burn."""


@final
@dataclass(frozen=True)
class ModuleRecord:
    """Named values in the order of the module's fields, with metadata.

    `allow_partial` lets keys be missing, `allow_unused` lets the record hold more; `with_dtype_policy` says what
    happens to other element types.  One parameter with several names has one entry under all of them.
    """

    entries: Mapping[str, RecordEntry]
    metadata: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    unused: bool = False
    dtypes: DTypePolicy = DTypePolicy.Strict
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Numbers and truth values by name, of records that are of no module."""

    @staticmethod
    def from_module(module: Module) -> ModuleRecord:
        """The values of a module, read when the record is saved or applied.

        Raises: RecordError where two values have one path: dict keys such as 1 and "1", or with dots in them.
        """
        entries: dict[str, RecordEntry] = {}
        first: dict[int, str] = {}
        for path, leaf in _savable(module).items():
            if first.setdefault(id(leaf), path) != path:
                entries[path] = entries[first[id(leaf)]]
            elif isinstance(leaf, Param):
                tensor = leaf.transform_for_save()
                entries[path] = RecordEntry(tensor.dtype, tensor.shape, leaf.id, TensorValues(tensor))
            else:
                value = leaf.value()
                entries[path] = RecordEntry(value.dtype, value.shape, ParamId(leaf.id), TensorValues(value), state=True)
        return ModuleRecord(entries, {"module": type(module).__name__, **list_quantized(module)})

    # -- policies -----------------------------------------------------------------------
    def allow_partial(self, allow: bool = True) -> ModuleRecord:
        """The same record; keys that it lacks keep the module's values."""
        return replace(self, partial=allow)

    def allow_unused(self, allow: bool = True) -> ModuleRecord:
        """The same record; keys that the module lacks are left."""
        return replace(self, unused=allow)

    def with_dtype_policy(self, policy: DTypePolicy) -> ModuleRecord:
        """The same record; values of other element types are refused, kept or converted."""
        return replace(self, dtypes=policy)

    def cast_to_module_dtype(self) -> ModuleRecord:
        """The same record; values are converted to the module's element types."""
        return self.with_dtype_policy(DTypePolicy.CastToModule)

    # -- applying --------------------------------------------------------------------------
    def validate(self, module: Module) -> list[str]:
        """Every fault between this record and a module, in words; empty if it fits."""
        wanted = _savable(module)
        faults: list[str] = []
        covered = {id(leaf) for key, leaf in wanted.items() if key in self.entries}  # under one of its names
        missing = [] if self.partial else [key for key, leaf in wanted.items() if id(leaf) not in covered]
        extra = [] if self.unused else [key for key in self.entries if key not in wanted]
        hints = len(missing) * len(extra) <= _MOST_PAIRS
        faults += [f"missing key {key}{_nearest(key, extra) if hints else ''}" for key in missing]
        faults += [f"unused key {key}{_nearest(key, missing) if hints else ''}" for key in extra]
        for key, leaf in wanted.items():
            entry = self.entries.get(key)
            if entry is None:
                continue
            shape, dtype = _expected_spec(leaf, entry)
            if entry.shape != shape:
                faults.append(f"{key} has shape {entry.shape}, the module wants {shape}")
            if entry.dtype is not dtype and self.dtypes is DTypePolicy.Strict:
                faults.append(f"{key} has type {entry.dtype}, the module wants {dtype}")
        return faults + self._divided_params(wanted)

    def _divided_params(self, wanted: Mapping[str, object]) -> list[str]:
        """The parameters that the module has in several places, and this record with several values."""
        faults: list[str] = []
        first: dict[int, str] = {}
        for key, leaf in wanted.items():
            if key in self.entries and first.setdefault(id(leaf), key) != key:
                shared = first[id(leaf)]
                if not self._same_value(shared, key):
                    faults.append(f"{shared} and {key} are one parameter of the module, with two values in the record")
        return faults

    def _same_value(self, key: str, other: str) -> bool:
        if self.entries[key] is self.entries[other]:
            return True
        ours, theirs = self.entries[key].read(), self.entries[other].read()
        return ours.array.tobytes() == theirs.array.tobytes()

    def apply(self, module: M) -> M:
        """The module with the values of this record.

        Parameters take the ids of the record too.  If the record has one id for several of them (they were one
        parameter when it was made) the first takes it and the others keep their own, since training needs one each.

        Raises: RecordError that lists every fault at once; then nothing was read.
        """
        module = self._with_its_quantisation(module)
        faults = self.validate(module)
        if faults:
            listed = "\n            ".join(_of_each_kind(faults))
            name = self.metadata.get("module", "another module")
            raise RecordError(
                f"this record does not fit {type(module).__name__}",
                given=f"a record of {name}:\n            {listed}",
                expected="the same keys, shapes and types as the module has",
                mend="build the module with the configuration that was saved beside it, or use"
                " record.allow_partial(), .allow_unused(), .cast_to_module_dtype()"
                + (f"; the file is PyTorch's: {_ADAPT}" if self.metadata.get("format") == "pt" else ""),
            )
        if self.metadata.get("format") == "pt":
            warn_of_layout(module, self.entries)
        new: dict[int, Any] = {}
        taken: set[ParamId] = set()
        for key, leaf in _savable(module).items():
            if key in self.entries and id(leaf) not in new:
                new[id(leaf)] = self._load_leaf(leaf, self.entries[key], taken)
        return tree.rebuild(module, lambda leaf: new.get(id(leaf), leaf))

    def _with_its_quantisation(self, module: M) -> M:
        try:
            return fit_to_record(module, self.entries.keys(), self.metadata)
        except ValueError as err:
            raise RecordError(
                "this record lists no quantised parameters in its metadata",
                given=f"{self.metadata.get(LISTED, '')[:120]} ({err})",
                expected="JSON by path: scheme, shape, element type",
                mend="save the record again, or remove that metadata",
            ) from err

    def _load_leaf(self, leaf: Any, entry: RecordEntry, taken: set[ParamId]) -> object:
        dtype = entry.dtype if self.dtypes is DTypePolicy.FromRecord else _expected_spec(leaf, entry)[1]
        device: Device = leaf.device
        host = device.no_grad()
        tensor = entry.tensor(host, dtype)
        if isinstance(leaf, Param):
            ident = leaf.id if entry.id is None or entry.id in taken else entry.id
            taken.add(ident)
            return leaf.transform_for_load(tensor, ident)
        return leaf.with_value(tensor)

    # -- files --------------------------------------------------------------------------------
    def save(self, path: str | Path) -> Path:
        """Writes the record, whole or not at all; returns the path, with the default ending if it had none."""
        path = _with_ending(Path(path))
        format_of(path).save(self, path)
        return path

    @staticmethod
    def load(path: str | Path) -> ModuleRecord:
        """The record of a file.  Raises: RecordError for a missing, damaged or foreign file."""
        path = _with_ending(Path(path))
        return format_of(path).load(path)

    def into_bytes(self, ending: str = BYTES_ENDING) -> bytes:
        """The bytes that a file with this ending has."""
        return format_of(Path(f"record{ending}")).dump(self)

    @staticmethod
    def from_bytes(data: bytes, ending: str = BYTES_ENDING) -> ModuleRecord:
        """The record that `into_bytes` wrote.  Raises: RecordError for damaged or foreign bytes."""
        return format_of(Path(f"record{ending}")).parse(data)

    def __len__(self) -> int:
        return len(self.entries)

    def is_empty(self) -> bool:
        """Returns whether it holds nothing."""
        return not self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)


def _savable(module: Module) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for path, leaf in tree.walk(module):
        if isinstance(leaf, Param | RunningState) and leaves.setdefault(path, leaf) is not leaf:
            raise RecordError(
                f"two values of {type(module).__name__} have one path",
                given=f"{path} twice",
                expected="a path of its own for each parameter",
                mend="give the dict other keys: text without dots, no number beside the same number as text",
            )
    return leaves


def _expected_spec(leaf: Any, entry: RecordEntry) -> tuple[Shape, DType]:
    if isinstance(leaf, Param):
        saved = leaf.record_spec(entry.dtype)
        return saved.shape, saved.dtype
    value = leaf.value()
    return value.shape, value.dtype


def warn_of_layout(module: Module, keys: Collection[str]) -> None:
    """Warns of square matrices that a file of PyTorch has turned, and that are loaded as they lie there."""
    for place in places(module):
        if place.path in keys and place.torch[0].turned and len(set(place.leaf.shape)) == 1:
            warn_user(
                ForeignLayoutWarning,
                "matrices of a PyTorch file are loaded as they lie",
                given=f"{place.path} {place.leaf.shape}, from a file that says format: pt",
                expected="(d_input, d_output); torch.nn.Linear has (d_output, d_input), and a square one fits both",
                mend=f"{_ADAPT}; or save the file without that word if its matrices lie as here",
            )
            return


def _of_each_kind(faults: list[str]) -> list[str]:
    """The first faults of each kind, 20 in all, and how many more there are of it."""
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kind = next((kind for kind in ("missing key", "unused key") if fault.startswith(kind)), "other fault")
        kinds.setdefault(kind, []).append(fault)
    share = 20 // max(1, len(kinds))
    lines = []
    for kind, of_kind in kinds.items():
        left = len(of_kind) - share
        lines += of_kind if len(faults) <= 20 or left <= 0 else [*of_kind[:share], f"and {left} more {kind}s"]
    return lines


_MOST_PAIRS: Final = 20_000
"""Pairs of missing and unused keys beyond which no similar names are looked for: a pair takes 50 microseconds."""
_ADAPT: Final = "load_from(SafetensorsStore.from_file(path).with_from_adapter(PyTorchToBurnAdapter()))"
_PYTORCH: Final = {"gamma": "weight", "beta": "bias", "alpha": "weight", "weight": "gamma", "bias": "beta"}
"""Names of fields here and in torch.nn."""


class ForeignLayoutWarning(UserWarning):
    """Matrices of another framework's layout that fit this one's."""


def _nearest(key: str, others: list[str]) -> str:
    """A hint at the most similar of other names, the key spelt as PyTorch spells it, too."""
    parent, _, field = key.rpartition(".")
    spellings = [key, f"{parent}.{_PYTORCH[field]}"] if field in _PYTORCH else [key]
    close = [match for spelling in spellings for match in difflib.get_close_matches(spelling, others, 1)]
    best = max(close, key=lambda match: max(_likeness(spelling, match) for spelling in spellings), default=None)
    return f" (is it {best}?)" if best else ""


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()


def _with_ending(path: Path) -> Path:
    return path if path.suffix else path.with_suffix(DEFAULT_ENDING)


def format_of(path: Path) -> RecordFormat:
    """The format of a file, by the longest ending that it has.  Raises: RecordError where none is known."""
    endings = [ending for ending in FORMATS if path.name.endswith(ending)]
    if not endings:
        raise RecordError(
            f"no record format has the ending {path.suffix}",
            given=str(path),
            expected=f"one of {', '.join(sorted(FORMATS))}",
            mend=f"save to {path.with_suffix(DEFAULT_ENDING).name}",
        )
    return FORMATS[max(endings, key=len)]
