"""The part of CBOR that burnpack files are written in: numbers, text, arrays, maps of text, of known lengths.

A reader of 80 lines that refuses everything else is easier to trust than a library that can do everything: no tags,
no objects, no lengths that run open, no depth beyond a record's own.  Source: RFC 8949.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, final

from burn_torch.record.faults import Unsound
from burn_torch.record.layout import MAX_CONTAINERS, MAX_VALUES, unique
from burn_torch.record.reader import Reader, write_shortest

__all__ = ["decode", "encode"]

MAX_DEPTH: Final = 16
"""Burn reads 128 levels; a record has 5."""

_UNSIGNED, _NEGATIVE, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 3, 4, 5, 7
_WIDTHS: Final = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_CONSTANTS: Final = {20: False, 21: True, 22: None}


def encode(value: Any) -> bytes:
    """Writes None, truth values, numbers, text, sequences and maps; each length in as few bytes as it needs."""
    if value is None or isinstance(value, bool):
        return bytes([0xE0 | next(code for code, known in _CONSTANTS.items() if known is value)])
    if isinstance(value, int):
        return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, Mapping):
        return _head(_MAP, len(value)) + b"".join(encode(key) + encode(item) for key, item in value.items())
    return _head(_ARRAY, len(value)) + b"".join(map(encode, value))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    head = write_shortest(number, ((major << 5 | code, form) for code, form in _WIDTHS.items()))
    if head is None:
        raise OverflowError(f"{number} has more than 64 bits")
    return head


def decode(data: bytes | memoryview) -> Any:
    """Reads one value that is all of the data.  Raises: Unsound."""
    reader = _Reader(bytes(data), "its metadata")  # slices of bytes are cheaper than those of a memoryview
    value = reader.value(0)
    reader.require_end("its metadata")
    return value


@final
class _Reader(Reader):
    containers = 0

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Unsound(f"its metadata is nested deeper than {MAX_DEPTH} levels")
        start = self.at
        major, code = divmod(self.take(1)[0], 32)
        if major == _SIMPLE:
            return self.simple(code, start)
        if (code >= 24 and code not in _WIDTHS) or major not in (_UNSIGNED, _NEGATIVE, _TEXT, _ARRAY, _MAP):
            raise Unsound(f"byte {start} of its metadata begins no value of a record")
        number: int = self.unpack(_WIDTHS[code]) if code >= 24 else code
        if major == _UNSIGNED:
            return number
        if major == _NEGATIVE:
            return -1 - number
        if major == _TEXT:
            return self.take_text(number)
        if number > len(self.data) - self.at:  # each item has a byte at least
            raise Unsound(f"byte {start} of its metadata promises {number} items")
        self.containers += 1
        if self.containers > MAX_CONTAINERS or number > MAX_VALUES:
            raise Unsound("its metadata has more parts than that of any record")
        if major == _ARRAY:
            return [self.value(depth + 1) for _ in range(number)]
        return unique([(self.key(), self.value(depth + 1)) for _ in range(number)], "its metadata")

    def key(self) -> str:
        start = self.at
        name = self.value(MAX_DEPTH)
        if not isinstance(name, str):
            raise Unsound(f"byte {start} of its metadata is no name")
        return name

    def simple(self, code: int, start: int) -> Any:
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _FLOATS:
            return self.unpack(_FLOATS[code])
        raise Unsound(f"byte {start} of its metadata begins no value of a record")
