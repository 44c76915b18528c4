"""Names in Python code: what it looks up outside of itself, what they stand for, and where code belongs."""

from __future__ import annotations

import dis
import functools
import linecache
import os
import sysconfig
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, Final, NamedTuple

__all__ = [
    "Names", "attribute_of", "codes_in", "contents_of", "is_library", "is_standard", "line_of", "names_of", "place_of",
]  # fmt: skip

_STANDARD: Final = tuple(
    {folder + os.sep
     for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))
     for folder in (path, os.path.realpath(path))}
)  # fmt: skip
_SITE: Final = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_LIBRARIES: Final = frozenset(
    ("burn_torch", "burn_kernels", "torch", "numpy", "scipy", "triton", "pytest", "_pytest", "pluggy")
)


class Names(NamedTuple):
    """The names in a code and in the functions inside of it."""

    outside: frozenset[str]
    """Those that it looks up in its module."""
    inside: frozenset[str]
    """Those that may be attributes, or keys that are written as texts."""
    imported: frozenset[str]
    """Modules that it imports itself."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code and those of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def attribute_of(value: object, name: str) -> Any:
    """An attribute of anything at all; None where it has none, or fails to say so: a proxy of what is not there yet."""
    try:
        return getattr(value, name, None)
    except Exception:  # of the value's own code
        return None


def contents_of(cell: Any, absent: object = None) -> Any:
    """Returns what a variable of an enclosing function holds; `absent` where it is not bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return absent


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """The names in a code."""
    outside: set[str] = set()
    inside: set[str] = set()
    imported: set[str] = set()
    for part in codes_in(code):
        inside.update(part.co_names)
        inside.update(constant for constant in part.co_consts if isinstance(constant, str) and constant.isidentifier())
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                outside.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                imported.add(instruction.argval)
    return Names(frozenset(outside), frozenset(inside), frozenset(imported))


def line_of(codes: Iterable[CodeType], name: str) -> str:
    """Returns where one of these codes loads a name: "file.py:12 in train_step: <source>"; "" if none does."""
    for code in codes:
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = instruction.starts_line or line
            if instruction.argval == name and instruction.opname.startswith("LOAD"):
                return place_of(code, line)
    return ""


def place_of(code: CodeType, line: int) -> str:
    """A line as messages name it: "file.py:12 in train_step: <source>"."""
    source = linecache.getline(code.co_filename, line).strip()
    source = source if len(source) <= 80 else f"{source[:77]}..."
    return f"{code.co_filename}:{line} in {code.co_name}" + (f": {source}" if source else "")


@functools.lru_cache(maxsize=1024)
def is_library(module: object) -> bool:
    """Returns whether a module is of a package whose code reads nothing that a trace could freeze."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def is_standard(filename: str | None) -> bool:
    """Returns whether a file belongs to Python itself."""
    return filename is not None and filename.startswith(_STANDARD) and not any(part in filename for part in _SITE)
