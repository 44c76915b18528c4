"""Records in bincode: the smallest of the recorders' formats, without the names of fields in it.

Burn's own `.bin` files do not say which bytes are which parameter: only the Rust type they are loaded into knows.  So
ours are not those: the values stand under the keys of the record, in the same encoding of numbers and text.
Source: https://docs.rs/bincode, the configuration `standard()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, Final, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.module.record import ModuleRecord
from burn_torch.record.burn_item import Bytes, Leaf, metadata_of, record_of, stored_values, version_of
from burn_torch.record.faults import Unsound, cannot_load
from burn_torch.record.file_format import FileFormat
from burn_torch.record.layout import MAX_NDIM, MAX_TENSORS, first_keys, unique
from burn_torch.record.precision import AS_THEY_ARE, PrecisionSettings
from burn_torch.record.reader import Reader, write_shortest
from burn_torch.record.sealing import SealedWriter, require_sealed
from burn_torch.record.source import Source

__all__ = ["BinFormat"]

_MAGIC: Final = b"\x0eburn_torch bin"
_CHECKSUM: Final = b"\x08checksum\x40"
_WIDTHS: Final = {251: "<H", 252: "<I", 253: "<Q"}


@checked
@final
@dataclass(frozen=True)
class BinFormat(FileFormat):
    """Writes and reads `.bin`."""

    settings: PrecisionSettings = AS_THEY_ARE
    kind = "bincode record"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the metadata, then one parameter after another."""
        metadata = metadata_of(record, self.settings, "BinFileRecorder")
        kept = dict.fromkeys(first_keys(record.entries).values())
        header = _MAGIC + _number(len(metadata))
        header += b"".join(_text(name) + _text(value) for name, value in metadata.items()) + _number(len(kept))
        writer = SealedWriter(file)
        writer.write(header)
        for key in kept:
            entry = record.entries[key]
            leaf = Leaf(key, entry, self.settings.stored(entry.dtype))
            head = leaf.head()
            shape = b"".join(map(_number, head["shape"]))
            writer.write(_text(key) + _text(head["id"]) + _text(leaf.stored.name) + _number(len(head["shape"])) + shape)
            writer.write(_number(leaf.nbytes))
            writer.write(stored_values(leaf, self.settings))
        writer.seal(header, _CHECKSUM)

    def read(self, source: Source) -> ModuleRecord:
        """Checks structure and checksum."""
        if bytes(source.bytes[: len(_MAGIC)]) != _MAGIC:
            raise cannot_load(
                source.name,
                "it begins as no bincode file of burn_torch; Burn's own do not say which bytes are which parameter",
                self.kind,
                "in Burn, load it and save it with NamedMpkFileRecorder or as .bpk",
            )
        reader = _Reader(source.bytes)
        reader.take(len(_MAGIC))
        metadata = unique([(reader.text(), reader.text()) for _ in range(reader.count(64))], "its metadata")
        source.version = version_of(metadata)
        count = reader.count(MAX_TENSORS)
        require_sealed(source, reader.at, _CHECKSUM, metadata.get("checksum"))
        item: dict[str, object] = {}
        for _ in range(count):
            key, ident, dtype = reader.text(), reader.text(), reader.text()
            shape = [reader.number() for _ in range(reader.count(MAX_NDIM))]
            nbytes = reader.number()
            reader.take(nbytes)
            name = {"Bool": "Native"} if dtype == "bool" else dtype.upper()
            param = {"bytes": (reader.at - nbytes, reader.at), "shape": shape, "dtype": name}
            item[key] = {"id": ident, "param": param}
        reader.require_end()

        def bytes_of(key: str, span: Any) -> tuple[Bytes, int]:
            start, end = span
            return (lambda: source.array(start, end, np.dtype(np.uint8))), end - start

        return record_of({"metadata": metadata, "item": item}, bytes_of, at=lambda _, key: item[key])


def _number(value: int) -> bytes:
    written = bytes([value]) if value < 251 else write_shortest(value, _WIDTHS.items())
    assert written is not None, f"{value} has more than 64 bits"
    return written


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


@final
class _Reader(Reader):
    def number(self) -> int:
        start = self.at
        code = self.take(1)[0]
        if code < 251:
            return code
        if code not in _WIDTHS:
            raise Unsound(f"byte {start} begins no number")
        number: int = self.unpack(_WIDTHS[code])
        return number

    def count(self, limit: int) -> int:
        count = self.number()
        if count > limit:
            raise Unsound(f"it promises {count} values where {limit} can be")
        return count

    def text(self) -> str:
        return self.take_text(self.number())
