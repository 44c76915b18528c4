"""Rows of CSV files, packed or not, as lists of text; faults with their lines.  Imports no torch."""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, cast

from burn_torch.core.errors import DataError
from burn_torch.core.reading import open_regular, read_lines

__all__ = ["read_rows", "read_text"]

MAX_TEXT: Final = 256 << 20
"""Characters of a text that is read as a whole; bytes in memory of the rows of a gzipped file."""
RATIO: Final = 32
"""Bytes in memory that one byte of a gzipped file may become, where that is more; text shrinks to a tenth."""
_ROW_BYTES, _CELL_BYTES = 64, 32
"""Holds what a row and a cell take in memory beside their characters, at least."""


def read_text(path: Path) -> str:
    """The text of a file, unpacked if its name ends with .gz.  Raises: DataError."""
    return "".join(_lines(path, MAX_TEXT))


def _lines(path: Path, limit: int | None = None) -> Iterator[str]:
    """The lines of a text, of which only one is in memory at a time.  Raises: DataError."""
    try:
        with open_regular(path) as raw, ExitStack() as stack:
            file: IO[bytes] = raw
            if path.suffix == ".gz":
                size = os.fstat(raw.fileno()).st_size
                limit = max(MAX_TEXT, RATIO * size)
                file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=raw)))
            yield from read_lines(file, newline="", limit=limit)
    except (OSError, EOFError, ValueError, zlib.error) as err:
        raise DataError(
            f"{path}: cannot be read",
            given=f"{path.absolute()}: {getattr(err, 'strerror', None) or err}",
            expected="a text file in UTF-8, or such a file packed by gzip",
            mend="check the path; fetch the file again if it is damaged",
        ) from err


def read_rows(path: Path, columns: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line numbers; empty lines are passed over.

    `columns` is how many cells each row has, that of the first row if it is None.
    Raises: DataError for the first line that is no such row.
    """
    reader = csv.reader(_lines(path), strict=True)
    expected = columns
    most = max(MAX_TEXT, RATIO * path.stat().st_size) if path.suffix == ".gz" and path.is_file() else math.inf
    used = 0
    try:
        for cells in reader:
            used += _ROW_BYTES + len(cells) * _CELL_BYTES + sum(map(len, cells))
            if used > most:
                raise _fault(
                    path,
                    reader.line_num,
                    f"rows that need more than {most} bytes in memory",
                    f"a gzipped file that grows {RATIO} times at most",
                    "unpack the file if it is meant to be that large",
                )
            if not cells:
                continue
            expected = len(cells) if expected is None else expected
            if len(cells) != expected:
                raise _fault(path, reader.line_num, f"{len(cells)} cells", f"{expected} cells in every row")
            yield reader.line_num, cells
    except csv.Error as err:
        raise _fault(path, reader.line_num, str(err), "rows of cells with commas between them") from err


def _fault(
    path: Path,
    line: int,
    given: str,
    expected: str,
    mend: str = "mend the line; quote cells that hold a comma or a quote",
) -> DataError:
    return DataError(
        f"{path}: this is not the expected table", given=f"line {line}: {given}", expected=expected, mend=mend
    )
