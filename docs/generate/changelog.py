"""Checks the news fragments of changelog.d, and that no entry is written into CHANGELOG.md by hand.  Writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from _files import ROOT

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
NOT_FRAGMENTS = {"README.md", "template.md.jinja"}
MARK = "<!-- releases: written by towncrier from changelog.d -->\n"
LONGEST_LINE = 120
FIGURE = re.compile(r"\b\d[\d.,]* ?(?:ms|us|µs|GB/s|TFLOPS?)\b|\btimes as fast\b|\btimes faster\b|\bH[12]00\b")


def main(check: bool) -> list[str]:
    """Raises: SystemExit where a fragment is malformed or an entry stands in the wrong place."""
    complaints = faults(ROOT)
    if complaints:
        raise SystemExit("\n".join([*complaints, "mend: see changelog.d/README.md"]))
    return []


def faults(root: Path) -> list[str]:
    """Returns what is wrong with the fragments and the changelog of a checkout, a line for each fault."""
    folder = root / "changelog.d"
    fragments = [path for path in sorted(folder.iterdir()) if path.name not in NOT_FRAGMENTS]
    complaints = [f"changelog.d/{path.name}: {fault}" for path in fragments for fault in fragment_faults(path)]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if MARK not in changelog:
        return [*complaints, f"CHANGELOG.md lacks the line {MARK.strip()!r}, below which releases stand"]
    unreleased = changelog.split(MARK)[1].lstrip()
    if unreleased and not unreleased.startswith("## ["):
        complaints.append("CHANGELOG.md: an entry stands outside of any release; write a file in changelog.d instead")
    if re.search(r"^## \[?unreleased|^\* ", changelog.split(MARK)[0], re.IGNORECASE | re.MULTILINE):
        complaints.append("CHANGELOG.md: an entry stands above the releases; write a file in changelog.d instead")
    return complaints


def fragment_faults(path: Path) -> Iterator[str]:
    """Finds what is wrong with the name and the text of one fragment."""
    if not re.fullmatch(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md", path.name):
        yield f"the name is not NAME.KIND.md with a kind of {', '.join(KINDS)}"
        return
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if not text.strip():
        yield "it is empty"
        return
    if text != text.strip() + "\n" or "" in lines:
        yield "it is more than one paragraph, or does not end with one line break"
    if text.startswith(("*", "-", "#")):
        yield "it begins with a mark of a list or heading; towncrier writes those"
    if not text.rstrip().endswith("."):
        yield "its last sentence has no full stop"
    if any(len(line) > LONGEST_LINE for line in lines):
        yield f"a line has more than {LONGEST_LINE} characters"
    if figure := FIGURE.search(text):
        yield f"{figure[0]!r} is a figure of a benchmark: it belongs in benchmarks/notes"
