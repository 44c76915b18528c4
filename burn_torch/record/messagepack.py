"""The part of MessagePack that Burn's records are written in, read strictly.

Bytes are not copied: they come as the offsets between which they lie.  No extension types, no names that are not text,
no depth beyond a module's own.  Source: https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from burn_torch.record.faults import Unsound, cannot_save
from burn_torch.record.layout import MAX_CONTAINERS, MAX_VALUES, unique
from burn_torch.record.reader import Reader, write_shortest

__all__ = ["Blob", "bin_head", "decode", "encode", "map_head"]

MAX_DEPTH: Final = 64
_LENGTHS: Final = {
    0xC4: ">B", 0xC5: ">H", 0xC6: ">I",  # bytes
    0xD9: ">B", 0xDA: ">H", 0xDB: ">I",  # text
    0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I",  # arrays, maps
}  # fmt: skip
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_FORMS: Final = _LENGTHS | _NUMBERS
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}


@final
@dataclass(frozen=True)
class Blob:
    """Bytes of a file, by their offsets."""

    start: int
    end: int


# -- writing -----------------------------------------------------------------------------------------------
def encode(value: Any) -> bytes:
    """Writes None, truth values, integers of at least 0, text, lists and dicts of them."""
    if value is None or isinstance(value, bool):
        return bytes([next(code for code, known in _CONSTANTS.items() if known is value)])
    if isinstance(value, int):
        return bytes([value]) if value < 128 else _head((0xCC, 0xCD, 0xCE, 0xCF), value)
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else _head((0xD9, 0xDA, 0xDB), len(text))) + text
    if isinstance(value, Mapping):
        return map_head(len(value)) + b"".join(encode(name) + encode(item) for name, item in value.items())
    return list_head(len(value)) + b"".join(map(encode, value))


def map_head(count: int) -> bytes:
    """Returns what begins a map of so many pairs."""
    return bytes([0x80 | count]) if count < 16 else _head((0xDE, 0xDF), count)


def list_head(count: int) -> bytes:
    """Returns what begins an array of so many items."""
    return bytes([0x90 | count]) if count < 16 else _head((0xDC, 0xDD), count)


def bin_head(count: int) -> bytes:
    """Returns what begins so many bytes.  Raises: RecordError from 4 GiB on."""
    return _head((0xC4, 0xC5, 0xC6), count)


def _head(codes: tuple[int, ...], count: int) -> bytes:
    head = write_shortest(count, ((code, _FORMS[code]) for code in codes))
    if head is None:
        raise cannot_save(
            f"a value of {count} bytes", expected="values below 4 GiB, as MessagePack has them", mend="save to .bpk"
        )
    return head


# -- reading -----------------------------------------------------------------------------------------------
def decode(data: memoryview) -> Any:
    """Reads one value that is all of the data.  Raises: Unsound."""
    reader = _Reader(data)
    value = reader.value(0)
    reader.require_end()
    return value


@final
class _Reader(Reader):
    containers = 0

    def value(self, depth: int) -> Any:
        start = self.at
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            return self.unpack(_NUMBERS[code])
        if code in _LENGTHS:
            count: int = self.unpack(_LENGTHS[code])
        elif code < 0xC0:
            count = code & (0x1F if code >= 0xA0 else 0x0F)
        else:
            raise Unsound(f"byte {start} begins no value of a record")
        if code in (0xC4, 0xC5, 0xC6):
            self.take(count)
            return Blob(self.at - count, self.at)
        if 0xA0 <= code < 0xC0 or code in (0xD9, 0xDA, 0xDB):
            return self.take_text(count)
        return self.container(code, count, start, depth)

    def container(self, code: int, count: int, start: int, depth: int) -> Any:
        self.containers += 1
        if count > len(self.data) - self.at:  # each item has a byte at least
            raise Unsound(f"byte {start} promises {count} items")
        if self.containers > MAX_CONTAINERS or count > MAX_VALUES:
            raise Unsound("it has more parts than any record")
        if depth == MAX_DEPTH:
            raise Unsound(f"it is nested deeper than {MAX_DEPTH} levels")
        if 0x90 <= code < 0xA0 or code in (0xDC, 0xDD):
            return [self.value(depth + 1) for _ in range(count)]
        return unique([(self.name(), self.value(depth + 1)) for _ in range(count)], "a map in it")

    def name(self) -> str:
        start = self.at
        name = self.value(MAX_DEPTH)
        if not isinstance(name, str):
            raise Unsound(f"byte {start} begins no name")
        return name
