"""How files are changed: bytes, numbers, lengths, words of a text, fields of a protobuf, values of a tree."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["bytes_changed", "json_changed", "lines_changed", "protobuf_changed", "text_changed", "words_changed"]

NUMBERS: Final = (
    0, 1, 2, 7, 8, 15, 16, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
    2**40, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -128, -(2**31), -(2**63),
)  # fmt: skip
"""At the limits of what formats count with."""
VALUES: Final = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), "", "a", "0", "nan", "\x1b[2J", "\u202egnp", "\r", "\0", "\ud800",
    "a" * 5000, "../../x", "/dev/zero", [], {}, [[]], {"": 0}, [0] * 100, {"a": {"a": {"a": 1}}}, [1, 2], "f32",
    "1e400", "9" * 400,
)  # fmt: skip
WORDS: Final = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e308", "9" * 4400, "-0", "0x10", "1_000", "true", "null", "[]",
    "{}", "[" * 2000, '{"a":' * 2000, "[" * 60, '""', '"\\ud800"', '"\\u0000"', "\x1b[2J", "\u202e", "\r", "\n", "\0",
    ",", ":", '"', "#", "=", "a.b.c", "[a]", "[[a]]", "{a=1}", "1979-05-27T07:32:00Z", "nan", "inf", "\ufeff", "\u2028",
    "3.0", "-1", "1e-400",
)  # fmt: skip
_MOST_TEXT: Final = 1 << 20
Random = random.Random


def bytes_changed(data: bytes, rnd: Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four changes of bytes, runs of bytes, or numbers of 1 to 8 bytes."""
    changed = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        rnd.choice(_BYTES)(changed, rnd, others)
    return bytes(changed)


def _flip(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    if data:
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)


def _set(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    if data:
        data[rnd.randrange(len(data))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x20, 0x22, rnd.randrange(256)))


def _number(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    form, width = rnd.choice((("B", 1), ("<H", 2), (">H", 2), ("<I", 4), (">I", 4), ("<Q", 8), (">Q", 8)))
    if len(data) >= width:
        at = min(rnd.choice((rnd.randrange(len(data)), rnd.randrange(min(len(data), 64)))), len(data) - width)
        if rnd.random() < 0.3:  # near what stands there: counts that are one too large
            value = struct.unpack_from(form, data, at)[0] + rnd.choice((-1, 1, 2, -8, 8))
        else:
            value = rnd.choice(NUMBERS)
        struct.pack_into(form, data, at, value % 256**width)


def _cut(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    start = rnd.randrange(len(data) + 1)
    end = rnd.choice((len(data), start + rnd.randrange(1, 9), rnd.randrange(len(data) + 1)))
    del data[start : max(start, end)]


def _repeat(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    start = rnd.randrange(len(data) + 1)
    part = data[start : start + rnd.choice((1, 4, 8, 32, 200))]
    data[start:start] = part * rnd.choice((1, 1, 2, 50))


def _insert(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    at = rnd.randrange(len(data) + 1)
    data[at:at] = rnd.randbytes(rnd.choice((1, 2, 4, 8, 64))) if rnd.random() < 0.7 else bytes(rnd.choice((1, 8, 4096)))


def _splice(data: bytearray, rnd: Random, others: Sequence[bytes]) -> None:
    other = rnd.choice(others) if others else bytes(data)
    start = rnd.randrange(len(other) + 1)
    part = other[start : start + rnd.choice((4, 16, 64, 1000))]
    at = rnd.randrange(len(data) + 1)
    data[at : at + rnd.choice((0, len(part)))] = part


_BYTES: Final = (_flip, _flip, _set, _set, _number, _number, _cut, _repeat, _insert, _splice)


# -- texts -------------------------------------------------------------------------------------------------------
_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|\s+|[^\w\s]')


def text_changed(data: bytes, rnd: Random, others: Sequence[bytes] = ()) -> bytes:
    """Words, numbers and signs of a text replaced, doubled, swapped, left out or nested."""
    tokens = _TOKEN.findall(data.decode("utf-8", "surrogateescape"))
    for _ in range(rnd.choice((1, 1, 2, 3))):
        if not tokens:
            break
        at = rnd.randrange(len(tokens))
        kind = rnd.randrange(7)
        if kind == 0:
            del tokens[at : at + rnd.choice((1, 1, 3))]
        elif kind == 1:
            end = at + rnd.choice((1, 2, 5, 20))
            tokens[at:at] = tokens[at:end] * rnd.choice((1, 2, 30))
        elif kind == 2:
            other = rnd.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at] = str(rnd.choice(NUMBERS))
        else:
            tokens[at] = rnd.choice(WORDS)
    return "".join(tokens).encode("utf-8", "surrogateescape" if _escapes(tokens) else "replace")


def _escapes(tokens: Sequence[str]) -> bool:
    return all(not "\ud800" <= char <= "\udc7f" for token in tokens for char in token)


def words_changed(data: bytes, rnd: Random, others: Sequence[bytes] = ()) -> bytes:
    """Either as a text or as bytes."""
    return (text_changed if rnd.random() < 0.7 else bytes_changed)(data, rnd, others)


# -- trees of JSON ------------------------------------------------------------------------------------------------
def json_changed(data: bytes, rnd: Random, others: Sequence[bytes] = ()) -> bytes:
    """One to three values of a document exchanged, doubled, left out or nested; a key in a thousand twice."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return text_changed(data, rnd, others)
    for _ in range(rnd.choice((1, 1, 2, 3))):
        document = _tree_changed(document, rnd)
    text = json.dumps(document)
    if rnd.random() < 0.05:
        text = re.sub(r"\{(\"[^\"]*\":)", r"{\1 0, \1", text, count=1)
    if rnd.random() < 0.03:
        text = text.replace("1", "9" * 4400, 1)
    return text.encode("utf-8", "surrogatepass")


def _tree_changed(value: Any, rnd: Random) -> Any:
    inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inner or rnd.random() < 0.15:
        kind = rnd.randrange(6)
        if kind == 0 and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            return value + rnd.choice((-1, 1, 2, 0.5, 1e6))
        if kind == 1:
            return [value] if rnd.random() < 0.5 else {"a": value}
        if kind == 2 and isinstance(value, str):
            return value + rnd.choice(("\x1b[31m", "\u202e", "\r\n", ".", "a" * 3000, "\0"))
        if kind == 3:
            return _deep(rnd.choice((30, 200, 900)))
        return rnd.choice((*VALUES, rnd.choice(NUMBERS)))
    key = rnd.choice(inner)
    kind = rnd.random()
    if isinstance(value, dict):
        if kind < 0.08:
            return {name: item for name, item in value.items() if name != key}
        if kind < 0.12:
            return {**value, rnd.choice(("", "x", "__metadata__", key + "\u202e", "0", "a.b")): value[key]}
        if kind < 0.15:
            return {rnd.choice(("", "x\x1b[2J", "0")) if name == key else name: item for name, item in value.items()}
        return {name: _tree_changed(item, rnd) if name == key else item for name, item in value.items()}
    changed = list(value)
    if kind < 0.08:
        del changed[key]
    elif kind < 0.16:
        times = rnd.choice((1, 1, 50, 2000))
        if times * len(json.dumps(changed[key])) < _MOST_TEXT:  # repeats within repeats would not end
            changed[key:key] = [changed[key]] * times
    else:
        changed[key] = _tree_changed(changed[key], rnd)
    return changed


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def lines_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """One line of JSON changed as a document, doubled or left out."""
    lines = data.splitlines(keepends=True)
    if not lines or rnd.random() < 0.2:
        return words_changed(data, rnd, others)
    at = rnd.randrange(len(lines))
    lines[at : at + 1] = [json_changed(lines[at], rnd, others) + b"\n"] * rnd.choice((1, 1, 1, 0, 2))
    return b"".join(lines)


# -- protobuf --------------------------------------------------------------------------------------------------------
def protobuf_changed(data: bytes, rnd: Random, others: Sequence[bytes] = ()) -> bytes:
    """A field of a message changed, doubled, left out or moved, at any depth; lengths fit again."""
    fields = _fields(data)
    if not fields:
        return bytes_changed(data, rnd, others)
    at = rnd.randrange(len(fields))
    number, kind, value = fields[at]
    chance = rnd.random()
    if chance < 0.08:
        del fields[at]
    elif chance < 0.16:
        fields[at:at] = [fields[at]] * rnd.choice((1, 1, 3, 200))
    elif chance < 0.2:
        other = rnd.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    elif chance < 0.23:
        fields[at] = (rnd.choice((1, 2, 3, 5, 7, 11, 20, number + 1)), kind, value)
    elif isinstance(value, int):
        fields[at] = (number, kind, rnd.choice((*NUMBERS, value + 1, value - 1)) % 2**64)
    elif chance < 0.85 and _fields(value):
        fields[at] = (number, kind, protobuf_changed(value, rnd, others))
    else:
        fields[at] = (number, kind, words_changed(value, rnd, others))
    return b"".join(_field(*field) for field in fields)


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """The fields of a message; none if the bytes are no message."""
    fields: list[tuple[int, int, Any]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                return []
            if kind == 0:
                value, at = _varint(data, at)
                fields.append((number, kind, value))
                continue
            size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            if at + size > len(data):
                return []
            fields.append((number, kind, bytes(data[at : at + size])))
            at += size
    except (IndexError, KeyError):
        return []
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise IndexError


def _coded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, kind: int, value: Any) -> bytes:
    if kind == 0:
        return _coded(number << 3) + _coded(value)
    if kind == 2:
        return _coded(number << 3 | 2) + _coded(len(value)) + value
    return _coded(number << 3 | kind) + value[: {1: 8, 5: 4}[kind]].ljust({1: 8, 5: 4}[kind], b"\0")
