"""Writes the table of errors of docs/building-blocks/kernels-torch.md from the rows that benchmarks/errors.py wrote.

The newest `errors-h200-*.json` of benchmarks/data counts; without one the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from _files import ROOT, refresh

PAGE = "docs/building-blocks/kernels-torch.md"
BEGIN = "<!-- errors: written by docs/generate/errors.py -->"
END = "<!-- end of errors -->"
DTYPES = ("float32", "float16", "bfloat16")


def main(check: bool) -> list[str]:
    """Writes the table between the two marks of the page."""
    before, rest = (ROOT / PAGE).read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    runs = sorted((ROOT / "benchmarks" / "data").glob("errors-h200-*.json"))
    text = "Not measured yet: `python benchmarks/errors.py`.\n"
    if runs:
        text = table(json.loads(runs[-1].read_text(encoding="utf-8")), runs[-1].name)
    return refresh({PAGE: before + BEGIN + "\n\n" + text + "\n" + END + after}, check)


def table(run: Mapping[str, Any], name: str) -> str:
    """Writes the largest share of what the rule allows, for each operation and type, of outputs and of gradients."""
    rows = run["rows"]
    beyond = [row for row in rows if not row["share"] <= 1.0]
    kept = f"all {len(rows)} rows keep to it" if not beyond else f"{len(beyond)} of {len(rows)} rows do not keep to it"
    lines = [
        (
            f"One {run['device']}, {run['date']}, torch {run['torch']}, Triton {run['triton']}; {run['seeds']} seeds "
            f"of each problem, `benchmarks/data/{name}`: {kept}."
        ),
        "",
        "| operation | " + " | ".join(DTYPES) + " |",
        "| --- |" + " --- |" * len(DTYPES),
    ]
    for op in sorted({row["op"] for row in rows}):
        cells = [_cell([row for row in rows if row["op"] == op and row["dtype"] == dtype]) for dtype in DTYPES]
        lines.append(f"| `{op}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(rows: list[Mapping[str, Any]]) -> str:
    shares = {
        what: max((row["share"] for row in rows if row["what"] == what), default=None)
        for what in ("outputs", "gradients")
    }
    if not rows:
        return ""
    words = [
        "–" if share is None else f"{share:.2f}" if share <= 1.0 else f"**{share:.2f}**" for share in shares.values()
    ]
    return " / ".join(words)
