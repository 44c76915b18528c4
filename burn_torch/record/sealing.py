"""Checksums inside the files that they cover.

A file holds the sum of itself (see `block_sum`) as 64 hex digits; for the sum the digits count as zeros.  So every bit
of the file is covered: header, padding and data, and a writer needs one pass: it writes zeros, then the digits over
them.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Final, final

from burn_torch.record.block_sum import BlockSum
from burn_torch.record.faults import Unsound, cannot_save
from burn_torch.record.source import WINDOW, Source

__all__ = ["DIGITS", "UNSEALED", "SealedWriter", "require_sealed"]

DIGITS: Final = 64
UNSEALED: Final = "0" * DIGITS


@final
class SealedWriter:
    """Writes to a file from its start, and sums up what it writes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = BlockSum()
        self.written = 0

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        self.written += len(view)
        if len(view) <= WINDOW:
            self._digest.update(view)
            self._file.write(view)
            return
        with ThreadPoolExecutor(1) as beside:  # the system copies one part while the next is summed up
            summed: Future[None] | None = None
            for at in range(0, len(view), WINDOW):
                part = view[at : at + WINDOW]
                before, summed = summed, beside.submit(self._digest.update, part)
                self._file.write(part)
                if before is not None:
                    before.result()
            assert summed is not None
            summed.result()

    def seal(self, header: bytes, before: bytes) -> None:
        """Writes the sum over the zeros that follow `before` in the header, which the file began with.

        Raises: RecordError where that place is not the only one of its kind.
        """
        if header.count(before + UNSEALED.encode()) != 1:
            raise cannot_save(
                "metadata that looks like the checksum of the record",
                expected="metadata in words of its own",
                mend="leave that entry out of record.metadata",
            )
        self._file.seek(header.index(before + UNSEALED.encode()) + len(before))
        self._file.write(self._digest.hexdigest().encode())
        self._file.seek(0, 2)


def require_sealed(source: Source, header_end: int, before: bytes, checksum: object) -> None:
    """Raises: Unsound unless the sum that follows `before` in the header is `checksum`, and that of the file."""
    source.marked = True
    if source.trusting:
        return
    header = bytes(source.bytes[:header_end])
    mark = before + str(checksum).encode(errors="replace")
    start = header.find(mark) + len(before)
    if (
        not isinstance(checksum, str)
        or len(checksum) != DIGITS
        or header.count(mark) != 1
        or source.digest((start, start + DIGITS)) != checksum
    ):
        raise Unsound("its checksum does not fit its content")
    source.sealed = True
