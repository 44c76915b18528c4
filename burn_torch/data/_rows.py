"""Rows of JSON and CSV files as typed items."""

from __future__ import annotations

import csv
import dataclasses
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from sys import getsizeof
from typing import Any

from burn_torch.config.typed import Kind, decode_with, kind_of, note_duplicates, note_unknown
from burn_torch.core import strict_json
from burn_torch.core.errors import ConfigError, DataError
from burn_torch.core.faults import Place, listed, mend_name, raise_faults, shown
from burn_torch.core.reading import open_regular, read_lines

MAX_BYTES = 448 << 20
"""Bytes of memory that the items of a file may take."""
RATIO = 32
"""Bytes of memory that one byte of a file may become, where that is more."""
MAX_FAULTS = 8  # a file that is of another kind has a fault in every row; the first few say so


def read_json_rows(
    path: str | os.PathLike[str], item_type: type[object] | None, limit_bytes: int | None = None
) -> list[Any]:
    """Reads one JSON object a line; lines without anything but spaces are passed over."""
    rows = _Rows(path, item_type, limit_bytes)
    for number, line in enumerate(rows.lines(), start=1):
        if not line.strip():
            continue
        place = rows.place(number)
        try:
            value = strict_json.parse(line)
        except ValueError as error:
            place.fault("no JSON", given=f"{shown(line.strip())}: {error}", expected="one JSON object", mend="mend it")
            continue
        if not isinstance(value, Mapping):
            place.wrong_type(value, "a JSON object")
        elif item_type is None:
            rows.keep(dict(value), _deep_bytes(value))
        else:
            rows.add(value, decode_with, place)
    return rows.finish()


def read_csv_rows(
    path: str | os.PathLike[str],
    item_type: type[object] | None,
    *,
    delimiter: str,
    header: bool,
    limit_bytes: int | None = None,
) -> list[Any]:
    """Reads rows of cells."""
    rows = _Rows(path, item_type, limit_bytes)
    reader = csv.reader(rows.lines(newline=""), delimiter=delimiter, strict=True)
    columns = list(rows.kinds)
    if not header and item_type is None:
        raise DataError(
            f"{path}: the columns have no names",
            given="header=False and no item_type",
            expected="names from a header line, or from the fields of an item_type",
            mend="from_csv(path, item_type, header=False)",
        )
    try:
        if header:
            columns = next(reader, [])
            rows.require_columns(columns)
        for cells in reader:
            if not cells:
                continue
            place = rows.place(reader.line_num)
            if len(cells) != len(columns):
                place.fault(
                    "wrong number of cells",
                    given=f"has {len(cells)}",
                    expected=f"{len(columns)}: {listed(columns)}",
                    mend="quote cells that hold the delimiter, or name the delimiter",
                )
            elif item_type is None:
                item = dict(zip(columns, cells, strict=True))
                # Python has texts of one character once
                rows.keep(item, getsizeof(item) + sum([getsizeof(cell) for cell in cells if len(cell) > 1]))
            else:
                rows.add({k: c for k, c in zip(columns, cells, strict=True) if k in rows.kinds}, _parse_cell, place)
    except csv.Error as error:
        rows.place(reader.line_num).fault("no CSV", given=str(error), expected="rows of cells", mend="mend the line")
    return rows.finish()


def _parse_cell(kind: Kind, value: Any, place: Place) -> object:
    return None if value == "" and kind.is_optional() else kind.parse(value, place)


class _Rows:
    """The items and the faults of one file."""

    def __init__(self, path: str | os.PathLike[str], item_type: type[Any] | None, limit_bytes: int | None) -> None:
        self.path = Path(path)
        self._limit = limit_bytes
        self._bytes = 0
        self.item_type = item_type
        self.kinds = {} if item_type is None else _kinds_of(item_type)
        bare = [] if item_type is None else _without_default(item_type)
        self._required = [name for name in bare if not self.kinds[name].is_optional()]
        self._absent = {name: None for name in bare if self.kinds[name].is_optional()}
        self.items: list[Any] = []
        self._root = Place()

    def lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of the file."""
        try:
            with open_regular(self.path) as file:
                if self._limit is None:
                    self._limit = max(MAX_BYTES, RATIO * os.fstat(file.fileno()).st_size)
                yield from read_lines(file, newline=newline)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{self.path}: cannot be read",
                given=f"{self.path.absolute()} ({error})",
                expected="a text file in UTF-8",
                mend="check the path and the encoding",
            ) from error

    def place(self, number: int) -> Place:
        """The place of a line; stops the reading when there are faults enough."""
        if len(self._root.faults) >= MAX_FAULTS:
            self.finish()
        return Place(f"line {number}", self._root.faults)

    def require_columns(self, columns: Sequence[str]) -> None:
        """Checks that the header has each field once; one with a default may be absent."""
        for name in self.kinds:
            count = columns.count(name)
            if count > 1 or (count == 0 and name in self._required):
                self.place(1).fault(
                    "column given twice" if count else "column missing",
                    given=f"has the columns {listed(columns)}",
                    expected=f"one column {name}",
                    mend=mend_name(name, columns, otherwise="rename the column or the field, or give header=False"),
                )
        if self._root.faults:
            self.finish()

    def keep(self, item: object, size: int) -> None:
        """Keeps an item that takes so many bytes.  Raises: DataError where all take more than they may."""
        self.items.append(item)
        self._bytes += size + 8  # of the list
        assert self._limit is not None
        if self._bytes > self._limit:
            count, self.items = len(self.items), []
            raise DataError(
                f"{self.path}: its rows take more memory than they may",
                given=f"more than {self._limit:,} bytes for the first {count:,} rows",
                expected=f"{self._limit:,} bytes at most; by default {MAX_BYTES:,}, or {RATIO} times the file",
                mend="give a larger limit_bytes if the file is meant to be that large, or read it in parts",
            )

    def add(self, values: Mapping[str, Any], read: Callable[[Kind, Any, Place], Any], place: Place) -> None:
        """Reads one row and keeps its item, unless it has a fault."""
        assert self.item_type is not None
        before = len(place.faults)
        note_duplicates(values, place)
        for name in values:
            if name not in self.kinds:
                note_unknown(name, values[name], list(self.kinds), self.item_type, place)
        for name in self._required:
            if name not in values:
                place.at(name).fault(
                    "missing field",
                    given="is not given",
                    expected=self.kinds[name].describe(),
                    mend="add it, or give the field a default",
                )
        fields = dict(self._absent)
        fields.update((n, read(kind, values[n], place.at(n))) for n, kind in self.kinds.items() if n in values)
        if len(place.faults) > before:
            return
        try:
            item = self.item_type(**fields)
        except ConfigError as error:
            place.refused(error)
        else:
            own = getsizeof(item) + (getsizeof(item.__dict__) if hasattr(item, "__dict__") else 0)
            self.keep(item, own + sum(map(_deep_bytes, fields.values())))

    def finish(self) -> list[Any]:
        """The items; raises the faults if there are any."""
        if self._root.faults:
            stopped = ", reading stopped there" if len(self._root.faults) >= MAX_FAULTS else ""
            raise_faults(f"{self.path}{stopped}", self._root.faults, error=DataError)
        return self.items


def _deep_bytes(value: object) -> int:
    size = getsizeof(value)
    if isinstance(value, dict):
        return size + sum([getsizeof(name) + _deep_bytes(inner) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return size + sum(map(_deep_bytes, value))
    return size


def _kinds_of(item_type: type[object]) -> dict[str, Kind]:
    if not dataclasses.is_dataclass(item_type):
        raise DataError(
            "items of a file are dataclasses",
            given=f"item_type={item_type!r}",
            expected="a class with @dataclass, or a Config",
            mend="declare the fields of an item in a dataclass",
        )
    hints = typing.get_type_hints(item_type, include_extras=True)
    return {field.name: kind_of(hints[field.name]) for field in dataclasses.fields(item_type)}


def _without_default(item_type: type[Any]) -> list[str]:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(item_type)
    return [field.name for field in fields if field.default is missing and field.default_factory is missing]
