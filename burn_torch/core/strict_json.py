"""JSON as it is read and written here: no key is lost, no number is lost, and every failure is a ValueError."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

__all__ = ["JsonObject", "dump", "parse"]


class JsonObject(dict[str, Any]):
    """A parsed object that remembers which keys it was given more than once."""

    duplicates: tuple[str, ...] = ()


def parse(text: str | bytes) -> Any:
    """Parses JSON text, in UTF-8 if it is bytes.

    NaN and infinities become floats, for the kind of their field to refuse by name.
    Raises: ValueError, with the line and column; also for text that is nested too deeply, or not UTF-8.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump(value: object) -> str:
    """Writes a value as JSON text, two spaces a level; letters of any script stay readable."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, as in a file name that is not UTF-8: escapes keep it
        return json.dumps(value, indent=2, allow_nan=False)
    return text


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    parsed = JsonObject(pairs)
    if len(parsed) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        parsed.duplicates = tuple(key for key in parsed if counts[key] > 1)
    return parsed
