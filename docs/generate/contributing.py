"""Checks CONTRIBUTING.md: each file, name and target in it exists, and recipes are complete.  Writes nothing.

A recipe is a section of level 3 with a table of three columns: files in backticks, what to write, names to copy.  The
first file of a row must hold each of its names as a word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _files import ROOT

PAGE = "CONTRIBUTING.md"
HEADER = "| file | what you write | copy |"
SOURCES = ("burn_torch", "kernels")
FOLDERS = (*SOURCES, "benchmarks", "docs", "examples", "tests", ".ci", ".github")
COMPLETE = {
    "An operation": "erfinv",
    "An indexing operation": "diagonal_assign",
    "A layer": "LocalResponseNorm",
    "A loss": "HuberLoss",
    "A metric": "HammingScore",
    "An optimizer": "LionConfig",
}
"""Recipes that name each file of the package in which their model is named."""


class Row(NamedTuple):
    """One line of a recipe: where it stands, its files, and the names to copy from the first of them."""

    recipe: str
    line: int
    files: tuple[str, ...]
    names: tuple[str, ...]


def main(check: bool) -> list[str]:
    """Raises: SystemExit where the page says what is not so."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    complaints = faults(text, ROOT)
    if complaints:
        raise SystemExit("\n".join([*complaints, f"mend: correct the line of {PAGE}, or the code that it names"]))
    return []


def faults(text: str, root: Path) -> list[str]:
    """Returns what is wrong with the text of the page in a checkout, a line for each fault."""
    rows = list(recipe_rows(text))
    return [
        *missing_paths(text, root),
        *missing_names(rows, root),
        *missing_targets(text, root),
        *incomplete_recipes(rows, root),
    ]


def recipe_rows(text: str) -> Iterator[Row]:
    """Reads the tables of all recipes."""
    recipe, inside = "", False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            recipe, inside = line.lstrip("# "), False
        elif line == HEADER:
            inside = True
        elif inside and line.startswith("|") and not line.startswith("|---"):
            first, _, last = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(recipe, number, quoted(first), quoted(last))
        elif not line.startswith("|"):
            inside = False


def quoted(cell: str) -> tuple[str, ...]:
    """Returns the texts in backticks."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def missing_paths(text: str, root: Path) -> Iterator[str]:
    """Finds paths of the checkout, anywhere on the page, that do not exist."""
    pattern = r"(?<![\w./-])(?:" + "|".join(map(re.escape, FOLDERS)) + r")/[\w./-]*\w"
    for number, line in enumerate(text.splitlines(), 1):
        for path in re.findall(pattern, line):
            if not (root / path).exists():
                yield f"{PAGE}:{number}: there is no {path}"


def missing_names(rows: list[Row], root: Path) -> Iterator[str]:
    """Finds names that the file of their row does not hold, and rows without a file or a name."""
    for row in rows:
        where = f"{PAGE}:{row.line}: {row.recipe}"
        if not row.files or not row.names:
            yield f"{where}: the row names no file, or nothing to copy"
            continue
        path = root / row.files[0]
        content = path.read_text(encoding="utf-8") if path.is_file() else ""
        for name in row.names:
            if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", content):
                yield f"{where}: {row.files[0]} does not name {name}"


def missing_targets(text: str, root: Path) -> Iterator[str]:
    """Finds targets of make that the Makefile lacks."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for target in sorted(set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) - targets):
        yield f"{PAGE}: there is no target {target} of make"


def incomplete_recipes(rows: list[Row], root: Path) -> Iterator[str]:
    """Finds files of the package that name the model of a recipe, and that the recipe does not name."""
    contents = read_sources(root)
    for recipe, model in COMPLETE.items():
        listed = {file for row in rows if row.recipe == recipe for file in row.files}
        word = re.compile(rf"\b{model}(Config)?\b")
        naming = {path for path, content in contents.items() if model in content and word.search(content)}
        if not naming:
            yield f"{PAGE}: {recipe}: no file names {model}"
        for path in sorted(naming - listed):
            yield f"{PAGE}: {recipe}: {path} names {model}, and the recipe does not name that file"


@functools.cache
def read_sources(root: Path) -> dict[str, str]:
    """Reads the package: paths from the root of the checkout, and texts."""
    files = [path for folder in SOURCES for form in ("*.py", "*.txt") for path in (root / folder).rglob(form)]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}
