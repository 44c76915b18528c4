"""Rows of CSV files, packed or not, as lists of text; faults with their lines.  Imports no torch."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from burn_torch.core.errors import DataError, explain

__all__ = ["read_rows", "read_text"]

LIMIT_BYTES = 1 << 31
"""So much text at most: packed files can hold more than any memory."""


def read_text(path: Path) -> str:
    """The text of a file, unpacked if its name ends with .gz.  Raises: DataError."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                content = file.read(LIMIT_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES} bytes of text")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as err:
        raise DataError(
            explain(
                f"{path}: cannot be read",
                given=f"{path.absolute()}: {getattr(err, 'strerror', None) or err}",
                expected="a text file in UTF-8, or such a file packed by gzip",
                mend="check the path; fetch the file again if it is damaged",
            )
        ) from err


def read_rows(path: Path, columns: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line numbers; empty lines are passed over.

    `columns` is how many cells each row has, that of the first row if it is None.
    Raises: DataError for the first line that is no such row.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    expected = columns
    try:
        for cells in reader:
            if not cells:
                continue
            expected = len(cells) if expected is None else expected
            if len(cells) != expected:
                raise _fault(path, reader.line_num, f"{len(cells)} cells", f"{expected} cells in every row")
            yield reader.line_num, cells
    except csv.Error as err:
        raise _fault(path, reader.line_num, str(err), "rows of cells with commas between them") from err


def _fault(path: Path, line: int, given: str, expected: str) -> DataError:
    return DataError(
        explain(
            f"{path}: this is no such table",
            given=f"line {line}: {given}",
            expected=expected,
            mend="mend the line; quote cells that hold a comma or a quote",
        )
    )
