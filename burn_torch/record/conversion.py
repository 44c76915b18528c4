"""From one format of tensors to another: `burn-torch convert`.

Values go through one at a time, so a model of any size takes the memory of its largest tensor, and the new file is
whole or not there.  Names, ids, kinds, ties and metadata go along, as far as the formats have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import Module
from burn_torch.module.record import FORMATS, ModuleRecord, RecordEntry, format_of
from burn_torch.record.listing import PYTORCH, ending_of
from burn_torch.record.precision import cast_entry
from burn_torch.record.stores.adapter import BurnToPyTorchAdapter, PyTorchToBurnAdapter
from burn_torch.record.stores.base import ModuleStore
from burn_torch.record.stores.files import SafetensorsStore
from burn_torch.record.stores.filter import PathFilter
from burn_torch.record.stores.pytorch import PytorchStore
from burn_torch.record.stores.remap import KeyRemapper, renamed

__all__ = ["changed", "from_pytorch", "read_any", "to_pytorch", "write_any"]

_READ_ONLY: Final = {".pt": "PyTorch", ".pth": "PyTorch", ".onnx": "ONNX"}


def read_any(path: Path) -> ModuleRecord:
    """The record of a file of any format that is read here; its content says which one it is.  Raises: RecordError."""
    ending = ending_of(path)
    if ending == PYTORCH:
        return PytorchStore.from_file(path).map_indices_contiguous(False).read()
    return FORMATS[ending].load(path)


def write_any(record: ModuleRecord, path: Path) -> None:
    """Writes a record in the format that the ending names, whole or not at all.  Raises: RecordError, ArtifactError."""
    if path.suffix in _READ_ONLY:
        raise RecordError(
            f"{_READ_ONLY[path.suffix]} files are read here, not written",
            given=str(path),
            expected=f"one of {', '.join(sorted(FORMATS))}",
            mend=f"write {path.with_suffix('.safetensors').name}: safetensors.torch.load_file gives it to PyTorch",
        )
    format_of(path).save(record, path)


def changed(
    record: ModuleRecord, *, remap: Iterable[tuple[str, str]] = (), only: Sequence[str] = (), dtype: DType | None = None
) -> ModuleRecord:
    """A record with some of its values (`only`: patterns, any is enough), then other names, then other floats.

    Raises: RecordError for two keys that get one name, or patterns that no key matches; ArgumentError for no pattern.
    """
    entries = dict(record.entries)
    if only:
        chosen = PathFilter.from_regex_patterns(only)
        entries = {key: entry for key, entry in entries.items() if chosen.matches(key)}
        if not entries:
            raise RecordError(
                "no value of the file is chosen",
                given=f"{', '.join(only)}, of keys such as {', '.join(list(record.entries)[:5])}",
                expected="a pattern that is found in a key at least",
                mend="see the keys with burn-torch inspect",
            )
    entries = renamed(entries, KeyRemapper.from_patterns(remap).remap(entries))
    if dtype is not None:
        cast: dict[int, RecordEntry] = {}  # one with several names stays one
        for key, entry in entries.items():
            stored = dtype if entry.dtype.is_float else entry.dtype
            entries[key] = cast.setdefault(id(entry), cast_entry(key, entry, stored))
    return replace(record, entries=entries)


# -- with a model, which knows what is turned ------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class _Given(ModuleStore):
    """A store of a record that is there."""

    record: ModuleRecord = field(default_factory=lambda: ModuleRecord({}))

    def read(self) -> ModuleRecord:
        """The record."""
        return self.record


def from_pytorch(record: ModuleRecord, module: Module, path: Path) -> ModuleRecord:
    """The record of a module with the values of its twin in torch.nn: matrices turned, gates split, norms renamed.

    Numbers in keys lose the gaps that layers without parameters leave.
    Raises: RecordError with every value that is missing or does not fit.
    """
    store = _Given(path, from_adapter=PyTorchToBurnAdapter(), contiguous=True, record=record)
    loaded, _ = store.apply_to(module)
    return loaded.into_record()


def to_pytorch(record: ModuleRecord, module: Module, path: Path) -> ModuleRecord:
    """The record of a module in the words of torch.nn, for `load_state_dict`.

    Raises: RecordError with every value that is missing or does not fit.
    """
    loaded = record.cast_to_module_dtype().apply(module)
    return SafetensorsStore.from_file(path).with_to_adapter(BurnToPyTorchAdapter()).collect(loaded)
