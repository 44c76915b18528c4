"""Writes the table of contents of docs/index.md: the pages that exist, in reading order.

A page's line is its title and the sentence below it.  A page that BLOCKS does not name comes after those it names.
"""

from __future__ import annotations

import re
from pathlib import Path

from _files import ROOT, refresh

# One page a building block, in the order in which a newcomer meets them.
BLOCKS = (
    "tensor",
    "linalg",
    "signal",
    "irregular",
    "autodiff",
    "module",
    "nn",
    "vision",
    "config",
    "record",
    "stores",
    "dataset",
    "optimizer",
    "transforms",
    "compile",
    "learner",
    "checkpoint",
    "metric",
    "monitor",
    "cli",
    "recipes",
    "dashboard",
    "quantization",
    "randomness",
    "backend",
    "graph",
    "passes",
    "custom-op",
    "errors",
)
BEGIN = "<!-- contents: written by docs/generate/contents.py -->"
END = "<!-- end of contents -->"


def main(check: bool) -> list[str]:
    """Writes the contents between the two marks of docs/index.md."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    before, rest = index.split(BEGIN)
    after = rest.split(END)[1]
    return refresh({"docs/index.md": before + BEGIN + contents(ROOT / "docs") + END + after}, check)


def contents(docs: Path) -> str:
    """Returns the lists of pages and, hidden, Sphinx's own tree of them."""
    blocks = sorted((docs / "building-blocks").glob("*.md"), key=reading_order)
    decisions = sorted((docs / "decisions").glob("*.md"))
    text = section("Building blocks", blocks, docs)
    text += section("Reference", [docs / "reference" / "index.md", docs / "parity.md"], docs)
    work = [docs / name for name in ("house.md", "style.md", "fuzzing.md", "conformance.md", "deprecation.md")]
    text += section("Working on the project", work, docs)
    text += section("Decisions", decisions, docs)
    return text


def reading_order(page: Path) -> tuple[int, str]:
    """Sorts by the place in BLOCKS, then by name."""
    return (BLOCKS.index(page.stem) if page.stem in BLOCKS else len(BLOCKS), page.stem)


def section(title: str, pages: list[Path], docs: Path) -> str:
    """Returns one list of pages with its heading, or nothing where there is no page."""
    if not pages:
        return ""
    names = [page.relative_to(docs).as_posix() for page in pages]
    lines = [line(page, name) for page, name in zip(pages, names, strict=True)]
    tree = ["```{toctree}", ":hidden:", f":caption: {title}", "", *(name.removesuffix(".md") for name in names), "```"]
    return "\n".join(["", f"## {title}", "", *lines, "", *tree, ""])


def line(page: Path, name: str) -> str:
    """Returns a page's line: its title as a link, and the first sentence below the title."""
    opening = re.match(r"# (?P<title>.+)\n+(?P<lead>[^#\n`].*(?:\n[^\n]+)*)?", page.read_text(encoding="utf-8"))
    if opening is None:
        raise SystemExit(f"docs/{name}: the first line must be a title, '# Title'")
    lead = " ".join((opening["lead"] or "").split())
    sentence = re.split(r"(?<=[.:])\s", lead, maxsplit=1)[0].rstrip(":.")
    return f"* [{opening['title']}]({name})" + (f": {sentence}." if sentence else "")
