"""Formats under gzip, with a bound on what a small file may become.

Files that we write have the SHA-256 of the file in the header (an extra field `BT`), with zeros in that place for the
sum: gzip's own sum covers neither the header nor the last bits of the stream.  Files that Burn wrote have no such
field.
Source: RFC 1952.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import tempfile
import zlib
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final, final

from burn_torch.core.checking import checked
from burn_torch.module.record import ModuleRecord
from burn_torch.record.bin_file import BinFormat
from burn_torch.record.faults import Unsound, cannot_load
from burn_torch.record.file_format import FileFormat
from burn_torch.record.json_file import JsonFormat
from burn_torch.record.mpk_file import NamedMpkFormat
from burn_torch.record.source import WINDOW, Source

__all__ = ["GzipFormat", "bin_gz_format", "json_gz_format", "mpk_gz_format"]

MIN_LIMIT: Final = 256 << 20
RATIO: Final = 16
"""Weights shrink by a tenth, states of zeros a thousandfold: what grows more, to above 256 MiB, must be meant."""
_HEAD: Final = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", 36) + b"BT" + struct.pack("<H", 32)
_EXTRA, _NAME, _COMMENT, _HEADER_SUM = 4, 8, 16, 2


@checked
@final
@dataclass(frozen=True)
class GzipFormat(FileFormat):
    """Writes and reads another format under gzip.  max_bytes: of the content; None for the default bound."""

    inner: FileFormat
    max_bytes: int | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]  # a constant of other formats
        """The name of the inner format, with gzip."""
        return f"gzipped {self.inner.kind}"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the content to a temporary file, then packs it."""
        digest = hashlib.sha256(_HEAD + bytes(32))
        file.write(_HEAD + bytes(32))

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        with tempfile.TemporaryFile() as plain:
            self.inner.write(record, plain)
            plain.seek(0)
            packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
            crc = size = 0
            while part := plain.read(WINDOW):
                crc, size = zlib.crc32(part, crc), size + len(part)
                put(packer.compress(part))
            put(packer.flush() + struct.pack("<II", crc, size % 2**32))
        file.seek(len(_HEAD))
        file.write(digest.digest())
        file.seek(0, 2)

    def read(self, source: Source) -> ModuleRecord:
        """Unpacks to a temporary file that is gone when the record is, and reads that."""
        start = _header_end(source)
        ours = bytes(source.bytes[: len(_HEAD)]) == _HEAD
        if ours and not source.trusting and _digest(source) != bytes(source.bytes[len(_HEAD) : len(_HEAD) + 32]):
            raise Unsound("its checksum does not fit its content")
        plain = Source(source.name, self._unpack(source, start))
        plain.trusting = source.trusting
        record = self.inner.read(plain)
        source.version, source.marked, source.sealed = plain.version, ours, ours and not source.trusting
        if plain.sealed and not ours:
            raise Unsound("its header has lost the checksum")
        return record

    def _unpack(self, source: Source, start: int) -> bytes | mmap.mmap:
        limit = self.max_bytes or max(MIN_LIMIT, RATIO * len(source))
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        crc = size = 0
        at = start
        with tempfile.TemporaryFile() as file:
            try:
                while not unpacker.eof and (at < len(source) or unpacker.unconsumed_tail):
                    fresh = unpacker.unconsumed_tail or bytes(source.bytes[at : at + (1 << 16)])
                    at += 0 if unpacker.unconsumed_tail else len(fresh)
                    part = unpacker.decompress(fresh, WINDOW)
                    crc, size = zlib.crc32(part, crc), size + len(part)
                    if size > limit:
                        raise cannot_load(
                            source.name,
                            f"its {len(source)} bytes unpack to more than {limit}",
                            self.kind,
                            f"if that is meant, read it with {type(self).__name__}(..., max_bytes=...)",
                        )
                    file.write(part)
            except zlib.error as err:
                raise Unsound(f"it cannot be unpacked: {err}") from err
            at -= len(unpacker.unused_data)
            if not unpacker.eof or len(source) - at != 8:
                short = not unpacker.eof or len(source) - at < 8
                raise Unsound("it ends too early" if short else "bytes follow its end")
            if struct.unpack("<II", source.bytes[at:]) != (crc, size % 2**32):
                raise Unsound("its gzip sum does not fit its content")
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


bin_gz_format = partial(GzipFormat, BinFormat())
"""Makes the format of `.bin.gz`."""
json_gz_format = partial(GzipFormat, JsonFormat(pretty=False))
"""Makes the format of `.json.gz`."""
mpk_gz_format = partial(GzipFormat, NamedMpkFormat())
"""Makes the format of `.mpk.gz`."""


def _digest(source: Source) -> bytes:
    digest: Any = hashlib.sha256(_HEAD + bytes(32))
    for at in range(len(_HEAD) + 32, len(source), WINDOW):
        digest.update(source.bytes[at : at + WINDOW])
    return bytes(digest.digest())


def _header_end(source: Source) -> int:
    """Returns where the stream begins.  Raises: Unsound."""
    if len(source) < 18 or bytes(source.bytes[:3]) != b"\x1f\x8b\x08":
        raise Unsound("it is no gzip file")
    flags = source.bytes[3]
    if flags & 0xE0:
        raise Unsound("its gzip header has unknown flags")
    at = 10
    if flags & _EXTRA:
        at += 2 + int.from_bytes(source.bytes[at : at + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            end = bytes(source.bytes[at : at + 4096]).find(b"\0")
            if end < 0:
                raise Unsound("its gzip header does not end")
            at += end + 1
    at += 2 if flags & _HEADER_SUM else 0
    if at + 8 > len(source):
        raise Unsound("its gzip header is longer than the file")
    return at
