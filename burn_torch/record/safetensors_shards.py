"""Records as several safetensors files and an index, as Hugging Face keeps large models.

    model.safetensors.index.json        {"metadata": {"total_size": n, ...}, "weight_map": {key: file}}
    model-3f9c01d2-00001-of-00002.safetensors ...

Shards have names of their own for each save, and the index is replaced last: whoever reads meanwhile finds the old
model whole, and so does a power cut.  The shards that the old index names are removed after that.
The index's metadata also has `burn_torch` (our version), `shards` (their files) and `checksum`, which covers the index.
Source: https://huggingface.co/docs/transformers/big_models, sharded checkpoints.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from burn_torch.core.checking import checked
from burn_torch.core.files import write_atomic
from burn_torch.module.record import ModuleRecord, RecordEntry
from burn_torch.record.faults import Unsound, cannot_load, cannot_save, shortened
from burn_torch.record.file_format import open_source, writing
from burn_torch.record.layout import MAX_HEADER_BYTES, parse_json
from burn_torch.record.safetensors_file import SafetensorsFormat
from burn_torch.record.sealing import UNSEALED, SealedWriter, require_sealed
from burn_torch.record.source import Source

__all__ = ["INDEX_ENDING", "ShardedSafetensorsFormat", "shards_of"]

INDEX_ENDING: Final = ".safetensors.index.json"
MAX_SHARDS: Final = 10_000
VERSION: Final = "1"
_OURS: Final = ("burn_torch", "shards", "checksum")
_CHECKSUM: Final = b'"checksum": "'
_SHARD: Final = re.compile(r"[^/\\\0]+\.safetensors")


@checked
@final
@dataclass(frozen=True)
class ShardedSafetensorsFormat:
    """Writes and reads `.safetensors.index.json` and the shards beside it.

    max_shard_bytes 5 GB: what Hugging Face uses; a tensor above it has a shard of its own.
    """

    max_shard_bytes: int = 5_000_000_000

    def save(self, record: ModuleRecord, path: Path) -> None:
        """Writes the shards, then the index.  Raises: ArtifactError where it cannot."""
        before = _named(path)
        shards = self._shards(record)
        stem = path.name.removesuffix(INDEX_ENDING)
        mark = secrets.token_hex(4)
        names = [f"{stem}-{mark}-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
        try:
            for name, entries in zip(names, shards, strict=True):
                part = ModuleRecord(entries, record.metadata, scalars=record.scalars)
                SafetensorsFormat().save(part, path.with_name(name))
            where = {key: name for name, entries in zip(names, shards, strict=True) for key in entries}
            size = sum(entry.nbytes for entry in {id(entry): entry for entry in record.entries.values()}.values())
            with writing(path):
                write_atomic(path, _seal(size, names, {key: where[key] for key in record.entries}))
        except BaseException:
            _remove(path.parent / name for name in names)
            raise
        own = re.compile(rf"{re.escape(stem)}-[0-9a-f]{{8}}-\d{{5}}-of-\d{{5}}\.safetensors")
        _remove(path.parent / name for name in before - set(names) if own.fullmatch(name))

    def load(self, path: Path) -> ModuleRecord:
        """Reads the index and the headers of its shards.  Raises: RecordError with the faults of all of them."""
        return self.load_from(path)[0]

    def load_from(self, path: Path, *, trusting: bool = False) -> tuple[ModuleRecord, dict[str, Source]]:
        """The record, and its shards by their names.  trusting: see `Source`.  Raises: RecordError."""
        where, names = _index(path)
        form = SafetensorsFormat()
        sources = {name: open_source(path.with_name(name), form.kind) for name in names}
        for source in sources.values():
            source.trusting = trusting
        parts = {name: form.read_from(source) for name, source in sources.items()}
        faults = [f"{key} is not in {name}" for key, name in where.items() if key not in parts[name].entries]
        faults += [
            f"{name} holds {key}, which the index does not have there"
            for name, part in parts.items()
            for key in part.entries
            if where.get(key) != name
        ]
        if faults:
            raise cannot_load(str(path), shortened(faults), "sharded safetensors")
        entries = {key: parts[name].entries[key] for key, name in where.items()}
        first = next(iter(parts.values()), ModuleRecord({}))
        return ModuleRecord(entries, first.metadata, scalars=first.scalars), sources

    def nbytes(self, path: Path) -> int:
        """How large all shards are together.  Raises: RecordError."""
        return sum(len(open_source(path.with_name(name), "safetensors")) for name in _index(path)[1])

    def dump(self, record: ModuleRecord) -> bytes:
        """Raises: RecordError, for it has several files."""
        raise cannot_save(
            "bytes of a sharded record", expected="a format of one file", mend='use into_bytes(".safetensors")'
        )

    def parse(self, data: bytes, name: str = "the given bytes") -> ModuleRecord:
        """Raises: RecordError, for it has several files."""
        raise cannot_load(name, "an index alone holds no tensors", "sharded safetensors", "load it from its folder")

    def _shards(self, record: ModuleRecord) -> list[dict[str, RecordEntry]]:
        """Keys in order, as many as fit; a parameter with several names lies in the shard of its first."""
        shards: list[dict[str, RecordEntry]] = [{}]
        home: dict[int, dict[str, RecordEntry]] = {}
        used = 0
        for key, entry in record.entries.items():
            if id(entry) not in home:
                if shards[-1] and used + entry.nbytes > self.max_shard_bytes:
                    shards.append({})
                    used = 0
                used += entry.nbytes
                home[id(entry)] = shards[-1]
            home[id(entry)][key] = entry
        return shards


def _index(path: Path) -> tuple[dict[str, str], list[str]]:
    """Returns which file each key is in, and all files.  Raises: RecordError."""
    source = open_source(path, "sharded safetensors")
    try:
        if len(source) > MAX_HEADER_BYTES:
            raise Unsound(f"its index has {len(source)} bytes")
        index = parse_json(bytes(source.bytes), "the index")
        where = _weight_map(index)
        return where, list(dict.fromkeys([*_shards_of_ours(source, index), *where.values()]))
    except Unsound as err:
        raise cannot_load(str(path), f"it is damaged: {err}", "sharded safetensors") from err


def _seal(size: int, shards: Sequence[str], where: Mapping[str, str]) -> bytes:
    """The text of an index with its own checksum."""
    metadata = {"total_size": size, "burn_torch": VERSION, "shards": list(shards), "checksum": UNSEALED}
    text = json.dumps({"metadata": metadata, "weight_map": where}, indent=2).encode()
    file = io.BytesIO()
    writer = SealedWriter(file)
    writer.write(text)
    writer.seal(text, _CHECKSUM)
    return file.getvalue()


def _shards_of_ours(source: Source, index: Mapping[str, object]) -> list[str]:
    """The files that an index of ours lists: a record of nothing has one too, with its metadata.

    Raises: Unsound for such an index that was changed; those of others have no checksum.
    """
    if foreign := index.keys() - {"metadata", "weight_map"}:  # a damaged name would hide the checksum
        raise Unsound(f"its index has parts that are not known here: {', '.join(sorted(foreign))[:80]}")
    metadata = index.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Unsound("its index has metadata that is no object")
    if sum(name in metadata for name in _OURS) < 2:
        return []
    require_sealed(source, len(source), _CHECKSUM, metadata.get("checksum"))
    if metadata.get("burn_torch") != VERSION:
        raise Unsound(f"burn_torch wrote its index in version {metadata.get('burn_torch')}, this one reads {VERSION}")
    names = metadata.get("shards")
    if not isinstance(names, list) or not all(map(_is_beside, names)):
        raise Unsound("its index lists shards that are no plain names")
    return names


def _weight_map(index: object) -> dict[str, str]:
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict):
        raise Unsound("its index has no weight_map")
    wrong = [f"{key} in {str(name)[:80]}" for key, name in where.items() if not _is_beside(name)]
    if wrong:
        raise Unsound("files of shards that are no plain names: " + "; ".join(shortened(wrong)))
    if len(set(where.values())) > MAX_SHARDS:
        raise Unsound(f"it has more than {MAX_SHARDS} shards")
    return where


def _is_beside(name: object) -> bool:
    return isinstance(name, str) and _SHARD.fullmatch(name) is not None and not name.startswith(".")


def shards_of(path: Path) -> dict[str, str]:
    """Returns which file each key of an index is in.  Raises: RecordError."""
    return _index(path)[0]


def _named(path: Path) -> set[str]:
    """The shards of the index that is there now; none where it cannot be read, since what it names is not ours."""
    with suppress(Exception):
        return set(_index(path)[1])
    return set()


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # a file too many is no reason to fail: the record is written
            path.unlink(missing_ok=True)
