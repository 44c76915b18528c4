"""Names of a model as Python identifiers: valid, unique, and nothing else.

Only letters, digits and underscores come out, whatever names a file gives its values, so no name can carry code.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MAX_LENGTH", "Names"]

MAX_LENGTH: Final = 48
"""Characters of a name, but for a number at its end."""
_RESERVED: Final = frozenset((
    "self", "op", "np", "numpy", "activation", "device", "path", "Model", "cls", "torch", "found", "operators",
    "parameter", "state", "as_tensor",
))  # fmt: skip


def _shorten(words: str) -> str:
    """The last words that fit; the last letters of a single long one."""
    if len(words) <= MAX_LENGTH:
        return words
    kept = words[-MAX_LENGTH:]
    if words[-MAX_LENGTH - 1] != "_" and "_" in kept.strip("_"):
        kept = kept.partition("_")[2]
    return kept.strip("_")


class Names:
    """Hands out identifiers, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*taken, *_RESERVED}
        self._numbers: dict[str, int] = {}

    def unique(self, wish: str, fallback: str = "value") -> str:
        """An identifier as close to the wish as may be."""
        words = re.sub(r"[^0-9A-Za-z]+", "_", wish[-4 * MAX_LENGTH :])
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", words).lower()
        words = re.sub(r"_+", "_", words).strip("_").removesuffix("_output_0")
        words = _shorten(words)
        if not words or words[0].isdigit():
            words = f"{fallback.lower()}_{words}" if words else fallback.lower()
        if keyword.iskeyword(words) or keyword.issoftkeyword(words) or hasattr(builtins, words):
            words += "_"
        name = words
        while name in self._taken:
            self._numbers[words] = self._numbers.get(words, 1) + 1
            name = f"{words.rstrip('_')}_{self._numbers[words]}"
        self._taken.add(name)
        return name
