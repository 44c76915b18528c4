"""Checks the rule for English of docs/style.md: names in code, openings of docstrings, words of texts for users.

A place that breaks the rule is a fault, unless english_allowed.txt still allows it: it has a count for each file that
had places when the rule was written.  Counts only fall: this script writes lower ones and refuses higher ones.
Places may move between the files of one package.

    python docs/generate/english.py PATH...     prints each place of these files, or of all
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from _files import ROOT, refresh

ALLOWED = "docs/generate/english_allowed.txt"
FOLDERS = ("burn_torch", "kernels", "docs", "examples", "benchmarks", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "changelog.d")
LIBRARIES = ("burn_torch/", "kernels/")
VARIABLES = frozenset({"found", "made", "given", "told"})
"""Names that say how a value came, not what it is."""
IRREGULAR = re.compile(
    "begun|bound|bought|brought|built|chosen|drawn|fed|found|given|grown|held|hidden|kept|known|laid|led|lent|lost|made|"
    "met|paid|rewritten|said|sent|shown|spelt|stood|taken|thrown|told|understood|undone|woven|worn|written"
)
OPENING = re.compile(r"(Of|What|Where|Whether|Whose|Whom|Which|So many|Nobody|Somebody|Whoever)\b")
"""How no docstring begins."""
SENTENCE = re.compile(r"(?:^|[.:!] |^[*-] )((?:Of|What|Whatever|Where|Whoever) [a-z`][^.?!]*[.!])", re.MULTILINE)
"""How no sentence of a page begins; a question may."""
WORDS = re.compile(r"\b(nobody|somebody|whoever|whom|so many)\b", re.IGNORECASE)
"""Holds what no text for users says."""


class Place(NamedTuple):
    """One place that breaks the rule."""

    path: str
    line: int
    text: str


def main(check: bool) -> list[str]:
    """Raises: SystemExit where a package has more places than are allowed.  Writes lower counts unless `check`."""
    every = list(places())
    allowed = read_allowed()
    faults = new_places(every, allowed)
    if faults:
        lines = [f"{place.path}:{place.line}: {place.text}" for place in faults]
        raise SystemExit("\n".join([*lines, "mend: write these places by the rule for English in docs/style.md"]))
    return [] if check else refresh({ALLOWED: allowed_text(Counter(place.path for place in every))}, check)


def new_places(every: Iterable[Place], allowed: Counter[str]) -> list[Place]:
    """Returns the places of files with more than are allowed, in packages whose sum has grown."""
    counts = Counter(place.path for place in every)
    sums, limits = by_package(counts), by_package(allowed)
    grown = {path for path in counts if counts[path] > allowed[path] and sums[package(path)] > limits[package(path)]}
    return [place for place in every if place.path in grown]


def by_package(counts: Counter[str]) -> Counter[str]:
    """Returns the sums of counts of files by package."""
    sums: Counter[str] = Counter()
    for path, count in counts.items():
        sums[package(path)] += count
    return sums


def package(path: str) -> str:
    """Returns the package of a file: the first two folders of its path."""
    return "/".join(path.split("/")[:-1][:2])


def read_allowed() -> Counter[str]:
    """Returns how many places each file may have."""
    lines = (ROOT / ALLOWED).read_text(encoding="utf-8").splitlines()
    return Counter({path: int(count) for count, path in (line.split() for line in lines if line[:1].isdigit())})


def allowed_text(counts: Counter[str]) -> str:
    """Returns the text of the file of allowed places."""
    head = ["# Places that still break the rule for English of docs/style.md; see english.py.  Counts only fall."]
    return "\n".join([*head, *(f"{counts[path]} {path}" for path in sorted(counts)), ""])


# -- what breaks the rule --------------------------------------------------------------------------------
def places(paths: Iterable[Path] | None = None) -> Iterator[Place]:
    """Yields each place of the files, or of all that the rule is for."""
    for path in sorted(checked_files()) if paths is None else paths:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        yield from page_places(name, text) if path.suffix == ".md" else code_places(name, text)


def checked_files() -> Iterator[Path]:
    """Yields the Python files of the checkout and the pages for users."""
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*.py") if "_build" not in path.parts)
    for name in PAGES:
        path = ROOT / name
        yield from path.rglob("*.md") if path.is_dir() else [path]


def page_places(name: str, text: str) -> Iterator[Place]:
    """Yields the words and openings of sentences that the rule excludes, but those of its own page."""
    if name == "docs/style.md":
        return
    for number, line in enumerate(text.splitlines(), 1):
        yield from (Place(name, number, f"the word {match[0]!r}") for match in WORDS.finditer(line))
    for match in SENTENCE.finditer(text):
        begun = match[1].split()[0]
        yield Place(name, text.count("\n", 0, match.start(1)) + 1, f"a sentence that begins with {begun!r}")


def code_places(name: str, text: str) -> Iterator[Place]:
    """Yields names, openings of docstrings and words of texts in code."""
    tree = ast.parse(text)
    docstrings = set(docstrings_of(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VARIABLES:
            yield Place(name, node.lineno, f"the variable {node.id}")
        elif isinstance(node, ast.arg) and node.arg in VARIABLES and node.arg != "given":  # a part of `explain`
            yield Place(name, node.lineno, f"the parameter {node.arg}")
        elif isinstance(node, ast.FunctionDef) and is_bare_participle(node.name):
            yield Place(name, node.lineno, f"the function {node.name}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node in docstrings:
                opening = OPENING.match(node.value.lstrip())
                if opening:
                    yield Place(name, node.lineno, f"a docstring that begins with {opening[0]!r}")
            elif name.startswith(LIBRARIES):
                yield from (Place(name, node.lineno, f"the word {match[0]!r}") for match in WORDS.finditer(node.value))


def docstrings_of(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yields the strings that stand alone: docstrings of modules, classes and functions, and those below constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def is_bare_participle(name: str) -> bool:
    """Asks whether the name of a private function is one word, and a participle."""
    word = name.strip("_")
    private = name.startswith("_") and not name.endswith("_")
    return private and "_" not in word and bool(IRREGULAR.fullmatch(word) or re.fullmatch(r"[a-z]{3,}[^e]ed", word))


if __name__ == "__main__":
    chosen = [Path(argument).resolve() for argument in sys.argv[1:]] or None
    for each in places(chosen):
        print(f"{each.path}:{each.line}: {each.text}")  # noqa: T201, the report of a command
