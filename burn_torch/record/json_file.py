"""Records in JSON, as Burn's JSON recorders write them: the bytes of a tensor are a list of numbers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import IO, Any, Final, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.module.record import ModuleRecord
from burn_torch.record.burn_item import Bytes, Leaf, is_ours, metadata_of, nested, record_of, stored_values, version_of
from burn_torch.record.faults import Unsound
from burn_torch.record.file_format import FileFormat
from burn_torch.record.layout import parse_json
from burn_torch.record.precision import AS_THEY_ARE, PrecisionSettings
from burn_torch.record.sealing import DIGITS, SealedWriter, require_sealed
from burn_torch.record.source import Source

__all__ = ["JsonFormat"]

MAX_SKELETON_BYTES: Final = 64 << 20
"""The limit of a file without the bytes of its tensors."""
CHUNK: Final = 1 << 20
_NUMBERS: Final = [str(number).encode() for number in range(256)]
_BYTES: Final = re.compile(rb'(?<=[{,\s])"bytes"\s*:\s*\[([0-9,\s]*)\]')  # an escaped quote has no such byte before it
_MARK: Final = re.compile(rb'"checksum"\s*:\s*"')


@checked
@final
@dataclass(frozen=True)
class JsonFormat(FileFormat):
    """Writes and reads `.json`."""

    settings: PrecisionSettings = AS_THEY_ARE
    pretty: bool = True
    """Says whether each field has a line of its own; the bytes of a tensor are one line."""
    kind = "JSON record"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the metadata, then one parameter after another."""
        recorder = "PrettyJsonFileRecorder" if self.pretty else "JsonGzFileRecorder"
        head = self._dump(metadata_of(record, self.settings, recorder), 1)
        item = nested(record, self.settings)
        header = f'{{{self._line(1)}"metadata":{self._space}{head},{self._line(1)}"item":{self._space}'.encode()
        writer = SealedWriter(file)
        writer.write(header)
        self._write(item, writer, 1)
        writer.write(f"{self._line(0)}}}".encode())
        writer.seal(header, f'"checksum":{self._space}"'.encode())

    @property
    def _space(self) -> str:
        return " " if self.pretty else ""

    def _line(self, depth: int) -> str:
        return "\n" + "  " * depth if self.pretty else ""

    def _dump(self, value: object, depth: int) -> str:
        text = json.dumps(value, indent=2 if self.pretty else None, separators=(",", ": " if self.pretty else ":"))
        return text.replace("\n", self._line(depth)) if self.pretty else text

    def _write(self, value: Any, writer: SealedWriter, depth: int) -> None:
        if isinstance(value, Leaf):
            self._write_leaf(value, writer, depth)
            return
        is_list = isinstance(value, list)
        writer.write(b"[" if is_list else b"{")
        for i, item in enumerate(value if is_list else value.items()):
            writer.write(f"{',' if i else ''}{self._line(depth + 1)}".encode())
            if not is_list:
                writer.write(f"{json.dumps(item[0])}:{self._space}".encode())
            self._write(item if is_list else item[1], writer, depth + 1)
        end = "]" if is_list else "}"
        writer.write(f"{self._line(depth) if value else ''}{end}".encode())

    def _write_leaf(self, leaf: Leaf, writer: SealedWriter, depth: int) -> None:
        outer, inner, space = self._line(depth + 1), self._line(depth + 2), self._space
        head = leaf.head()
        writer.write(f'{{{outer}"id":{space}"{head["id"]}",{outer}"param":{space}{{{inner}"bytes":{space}['.encode())
        values = stored_values(leaf, self.settings)
        for at in range(0, len(values), CHUNK):
            if at:
                writer.write(b",")
            writer.write(b",".join(map(_NUMBERS.__getitem__, values[at : at + CHUNK])))
        shape, dtype = json.dumps(head["shape"], separators=(",", ":")), json.dumps(head["dtype"])
        writer.write(
            f'],{inner}"shape":{space}{shape},{inner}"dtype":{space}{dtype}{outer}}}{self._line(depth)}}}'.encode()
        )

    def read(self, source: Source) -> ModuleRecord:
        """Checks structure and, where burn_torch wrote the file, the checksum; Burn's own have none."""
        spans: list[tuple[int, int]] = []
        parts: list[bytes] = []
        at = size = 0
        for match in _BYTES.finditer(source.bytes):
            parts.append(bytes(source.bytes[at : match.start()]) + b'"bytes":%d' % len(spans))
            size += len(parts[-1])
            spans.append(match.span(1))
            at = match.end()
            if size > MAX_SKELETON_BYTES:
                break
        if size + len(source) - at > MAX_SKELETON_BYTES:
            raise Unsound(f"without the bytes of its tensors it has more than {MAX_SKELETON_BYTES} bytes")
        document = parse_json(b"".join([*parts, bytes(source.bytes[at:])]), "the file")

        def bytes_of(key: str, position: object) -> tuple[Bytes, int]:
            if type(position) is not int or not 0 <= position < len(spans):
                raise Unsound(f"{key} has values that are no bytes")
            values = _numbers(key, bytes(source.bytes[slice(*spans[position])]))
            return (lambda: values), len(values)

        metadata = document.get("metadata") if isinstance(document, dict) else None
        if is_ours(metadata):
            first = _MARK.search(source.bytes)
            mark = b"" if first is None else first.group()
            end = 0 if first is None else min(len(source), first.end() + DIGITS)
            require_sealed(source, end, mark, metadata.get("checksum"))
        source.version = version_of(metadata)
        return record_of(document, bytes_of)


def _numbers(key: str, text: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        values = [int(part) for part in text.split(b",")] if text.strip() else []
        return np.frombuffer(bytes(values), np.uint8)
    except ValueError as err:
        raise Unsound(f"{key} has bytes that are no numbers from 0 to 255") from err
