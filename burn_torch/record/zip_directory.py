"""The members of a zip file, where all readers of zip files see the same ones.

The format leaves open where the directory is: Python's zipfile takes the bytes before the end record, torch's reader
the offset that the end record says.  A file can have both, and show one reader what the other never checks.  Therefore
everything that is said twice must agree here: the place and size of the directory, the number of its entries, the end
records of both widths, and each member's headers.  Members are neither packed nor encrypted, and none overlaps another.
Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.record.faults import Foreign, Unsound
from burn_torch.record.source import Source

__all__ = ["Member", "members_of"]

MAX_DIRECTORY_BYTES: Final = 16 << 20
"""The limit of a directory: 100 bytes a storage."""
_LOCAL, _ENTRY = struct.Struct("<4s5HIIIHH"), struct.Struct("<4s6HIIIHHHHHII")
_END, _WIDE_END, _LOCATOR = struct.Struct("<4s4HIIH"), struct.Struct("<4sQHHIIQQQQ"), struct.Struct("<4sIQI")
_WIDE: Final = 0xFFFFFFFF
"""In the place of a number of four bytes: the extra field has it with eight."""
_ENCRYPTED: Final = 0x2041
"""Flags of encryption: of the content, strongly, of the directory."""


@final
@dataclass(frozen=True)
class Member:
    """One file within the archive, and between which offsets its bytes lie."""

    name: str
    start: int
    end: int
    crc: int

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def read(self, source: Source) -> bytes:
        """Its bytes.  Raises: Unsound if their sum does not fit."""
        data = bytes(source.bytes[self.start : self.end])
        if zlib.crc32(data) != self.crc:
            raise Unsound(f"the sum of {self.name} does not fit its content")
        return data


def members_of(source: Source) -> Mapping[str, Member]:
    """The members by name, in the order of the directory.  Raises: Unsound where two readers might see two files."""
    count, start, end = _directory(source)
    members: dict[str, Member] = {}
    headers: list[tuple[int, Member]] = []
    at = start
    for _ in range(count):
        header, member, at = _member(source, at, end)
        headers.append((header, member))
        members[member.name.lower()] = member  # torch's reader looks names up in either case
    if at != end:
        raise Unsound(f"its zip directory ends at {at}, and is said to end at {end}")
    if len(members) < count:
        raise Unsound("its zip directory has two members of one name")
    before = 0
    for header, member in sorted(headers, key=lambda pair: pair[0]):
        if header < before or member.end > start:
            raise Unsound(f"its zip member {member.name} overlaps another, or the directory")
        before = member.end
    return {member.name: member for member in members.values()}


def _directory(source: Source) -> tuple[int, int, int]:
    """How many entries the directory has, and between which offsets it lies."""
    at = len(source) - _END.size  # with a comment behind it the record could be looked for in two ways
    signature, disk, first, here, count, size, start, comment = _unpack(_END, source, at)
    if signature != b"PK\x05\x06" or disk or first or comment:
        raise Unsound("it is not a zip file: its last bytes are no end record")
    end = at
    locator_at = at - _LOCATOR.size
    if locator_at > 0 and bytes(source.bytes[locator_at : locator_at + 4]) == b"PK\x06\x07":
        _, disk, end, disks = _unpack(_LOCATOR, source, locator_at)
        wide = _unpack(_WIDE_END, source, end) if end == locator_at - _WIDE_END.size else (b"",)
        if wide[0] != b"PK\x06\x06" or disk or disks != 1 or wide[1] != _WIDE_END.size - 12 or wide[4] or wide[5]:
            raise Unsound("its two zip end records do not fit together")
        for narrow, other, limit in (
            (here, wide[6], 0xFFFF),
            (count, wide[7], 0xFFFF),
            (size, wide[8], _WIDE),
            (start, wide[9], _WIDE),
        ):
            if narrow not in (other, limit):
                raise Unsound("its two zip end records do not agree")
        here, count, size, start = wide[6:]
    if here != count or start + size != end:
        raise Unsound(f"its zip directory of {size} bytes at {start} does not end where its end record is, at {end}")
    if size > MAX_DIRECTORY_BYTES:
        raise Unsound(f"its zip directory has {size} bytes, and that of a model at most {MAX_DIRECTORY_BYTES}")
    return count, start, end


def _member(source: Source, at: int, limit: int) -> tuple[int, Member, int]:
    """Returns where the header of a member is, the member, and where the next entry begins."""
    entry = _unpack(_ENTRY, source, at)
    signature, _, _, flags, method, _, _, crc, packed, plain, named, extra, comment, disk, _, _, header = entry
    name_at, extra_at = at + _ENTRY.size, at + _ENTRY.size + named
    after = extra_at + extra + comment
    if signature != b"PK\x01\x02" or after > limit or disk:
        raise Unsound(f"its zip directory has no entry at {at}")
    raw = bytes(source.bytes[name_at:extra_at])
    try:
        name = raw.decode()
    except UnicodeDecodeError as err:
        raise Unsound(f"its zip directory has the name {raw[:40]!r}, which is no text") from err
    if "\0" in name:  # where names end in C
        raise Unsound(f"its zip directory has the name {raw[:40]!r}")
    if method or flags & _ENCRYPTED:
        how = "packed" if method else "encrypted"
        raise Foreign(f"it is no file of torch.save: {name[:80]} is {how}", "save it with torch.save")
    packed, plain, header = _widen(bytes(source.bytes[extra_at : extra_at + extra]), [packed, plain, header], name)
    there = _unpack(_LOCAL, source, header)
    start = header + _LOCAL.size + there[9] + there[10]
    local = bytes(source.bytes[header + _LOCAL.size : header + _LOCAL.size + there[9]])
    if there[0] != b"PK\x03\x04" or there[2] & _ENCRYPTED or there[3] or local != raw or packed != plain:
        raise Unsound(f"the two zip headers of {name[:80]!r} do not agree")
    return header, Member(name, start, start + plain, crc), after


def _widen(extra: bytes, numbers: list[int], name: str) -> list[int]:
    """The numbers of an entry, those of eight bytes taken from its extra field."""
    wide: bytes | None = None
    at = 0
    while at < len(extra):
        kind, size = struct.unpack_from("<HH", extra, at) if at + 4 <= len(extra) else (0, len(extra))
        if at + 4 + size > len(extra) or (kind == 1 and wide is not None):
            raise Unsound(f"the zip entry of {name[:80]!r} has an extra field that cannot be read")
        wide = extra[at + 4 : at + 4 + size] if kind == 1 else wide
        at += 4 + size
    missing = [i for i, number in enumerate(numbers) if number == _WIDE]
    # an entry has the size before the packed size, and the offset last
    order = sorted(missing, key=(1, 0, 2).index)
    if order and (wide is None or len(wide) < 8 * len(order)):
        raise Unsound(f"the zip entry of {name[:80]!r} lacks a number of eight bytes")
    for place, i in enumerate(order):
        assert wide is not None
        numbers[i] = int.from_bytes(wide[8 * place : 8 * place + 8], "little")
    return numbers


def _unpack(record: struct.Struct, source: Source, at: int) -> tuple[Any, ...]:
    if at < 0:
        raise Unsound("it is not a zip file: it is too short")
    if at + record.size > len(source):
        raise Unsound(f"it is too short for the zip record at {at}")
    return record.unpack(source.bytes[at : at + record.size])
