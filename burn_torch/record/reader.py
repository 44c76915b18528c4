"""Numbers in as few bytes as they need, and reading a file or its metadata from start to end, never beyond it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from burn_torch.record.faults import Unsound

__all__ = ["Reader", "write_shortest"]


def write_shortest(number: int, forms: Iterable[tuple[int, str]]) -> bytes | None:
    """A code and a number in the first form of `struct` that holds it; None if none does."""
    fitting = ((code, form) for code, form in forms if number < 1 << 8 * struct.calcsize(form))
    return next((bytes([code]) + struct.pack(form, number) for code, form in fitting), None)


class Reader:
    """Takes bytes one value after another.  subject: what messages call them."""

    def __init__(self, data: bytes | memoryview, subject: str = "it") -> None:
        self.data = data
        self.at = 0
        self._subject = subject

    def take(self, count: int) -> bytes | memoryview:
        """The next bytes.  Raises: Unsound where there are fewer."""
        if count > len(self.data) - self.at:
            raise Unsound(f"{self._subject} ends at byte {len(self.data)} within a value of {count} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def unpack(self, form: str) -> Any:
        """The next number, in a form of `struct`.  Raises: Unsound."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def take_text(self, count: int) -> str:
        """The next bytes as text.  Raises: Unsound."""
        try:
            return bytes(self.take(count)).decode()
        except UnicodeDecodeError as err:
            raise Unsound(f"{self._subject} holds text that is no UTF-8: {err.reason}") from err

    def require_end(self, content: str = "its content") -> None:
        """Raises: Unsound where bytes are left."""
        if self.at != len(self.data):
            raise Unsound(f"{len(self.data) - self.at} bytes follow {content}")
