"""Records in MessagePack with names, the format of Burn's default recorder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, Final, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.module.record import ModuleRecord
from burn_torch.record.burn_item import Bytes, Leaf, is_ours, metadata_of, nested, record_of, stored_values, version_of
from burn_torch.record.faults import Unsound
from burn_torch.record.file_format import FileFormat
from burn_torch.record.messagepack import Blob, bin_head, decode, encode, list_head, map_head
from burn_torch.record.precision import AS_THEY_ARE, PrecisionSettings
from burn_torch.record.sealing import SealedWriter, require_sealed
from burn_torch.record.source import Source

__all__ = ["NamedMpkFormat"]

_CHECKSUM: Final = b"\xa8checksum\xd9\x40"


@checked
@final
@dataclass(frozen=True)
class NamedMpkFormat(FileFormat):
    """Writes and reads `.mpk`."""

    settings: PrecisionSettings = AS_THEY_ARE
    kind = "named MessagePack"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the metadata, then one parameter after another."""
        header = map_head(2) + encode("metadata")
        header += encode(metadata_of(record, self.settings, "NamedMpkFileRecorder")) + encode("item")
        item = nested(record, self.settings)
        writer = SealedWriter(file)
        writer.write(header)
        self._write(item, writer)
        writer.seal(header, _CHECKSUM)

    def _write(self, value: Any, writer: SealedWriter) -> None:
        if isinstance(value, Leaf):
            head = value.head()
            writer.write(map_head(2) + encode("id") + encode(head["id"]) + encode("param") + map_head(3))
            writer.write(encode("bytes") + bin_head(value.nbytes))
            writer.write(stored_values(value, self.settings))
            writer.write(encode("shape") + encode(head["shape"]) + encode("dtype") + encode(head["dtype"]))
        elif isinstance(value, list):
            writer.write(list_head(len(value)))
            for item in value:
                self._write(item, writer)
        else:
            writer.write(map_head(len(value)))
            for name, item in value.items():
                writer.write(encode(name))
                self._write(item, writer)

    def read(self, source: Source) -> ModuleRecord:
        """Checks structure and, where burn_torch wrote the file, the checksum; Burn's own have none."""
        document = decode(source.bytes)

        def bytes_of(key: str, blob: object) -> tuple[Bytes, int]:
            if not isinstance(blob, Blob):
                raise Unsound(f"{key} has values that are no bytes")
            return (lambda: source.array(blob.start, blob.end, np.dtype(np.uint8))), blob.end - blob.start

        metadata = document.get("metadata") if isinstance(document, dict) else None
        if is_ours(metadata):
            require_sealed(source, min(len(source), _header_bytes(metadata)), _CHECKSUM, metadata.get("checksum"))
        source.version = version_of(metadata)
        return record_of(document, bytes_of)


def _header_bytes(metadata: dict[str, Any]) -> int:
    """How long what we wrote before the item is."""
    return len(map_head(2) + encode("metadata") + encode(metadata) + encode("item"))
