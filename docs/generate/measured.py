"""Writes the tables of docs/building-blocks/kernels.md from the rows that benchmarks/kernels.py wrote on a GPU.

The rows lie in benchmarks/data: `kernels-rivals-h200.json` of `--rivals`, and the newest `kernels-judged-h200-*` of
`--judged`.  Nothing in the tables is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from _files import ROOT, refresh

PAGE = "docs/building-blocks/kernels.md"
BEGIN = "<!-- measured: written by docs/generate/measured.py -->"
END = "<!-- end of measured -->"
DATA = ROOT / "benchmarks" / "data"
COLUMNS = {"eager": "eager", "compile": "compile", "liger": "Liger", "jax": "JAX"}
"""Rivals with a column of their own; the others share one."""
NO_RIVALS = ("bare product",)
"""What computes less than the operation."""
OURS = {"linear_cross_entropy": "ours, bf16 sums"}
"""The form of ours that stands for it, where that is not `ours`."""

PEAK, ERROR = "peak MiB, ours / best", "error, ours / eager"

Rows = Mapping[str, Mapping[str, Any]]


def main(check: bool) -> list[str]:
    """Writes the tables between the two marks of the page."""
    before, rest = (ROOT / PAGE).read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return refresh({PAGE: before + BEGIN + "\n\n" + text() + "\n" + END + after}, check)


def text() -> str:
    """Both tables with what they were measured on."""
    parts = []
    rivals = DATA / "kernels-rivals-h200.json"
    if rivals.exists():
        parts.append(rival_table(json.loads(rivals.read_text(encoding="utf-8")), rivals.name))
    judged = sorted(DATA.glob("kernels-judged-h200-*.json"))
    if judged:
        parts.append(bar_table(json.loads(judged[-1].read_text(encoding="utf-8")), judged[-1].name))
    return "\n".join(parts)


def rival_table(run: Mapping[str, Any], name: str) -> str:
    """Each case beside its rivals: their time over ours."""
    cases: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in run["rows"]:
        cases.setdefault((row["case"], row["pass"]), {})[row["variant"]] = row
    lines = [
        (
            f"One {run['device']}, {run['date']}, torch {run['torch']}, Triton {run['triton']}, "
            f"JAX {run.get('jax') or 'absent'}; median of {run['rounds']} rounds, `benchmarks/data/{name}`."
        ),
        "",
        f"| operation | | ms | share | best rival | {' | '.join(COLUMNS.values())} | others | {PEAK} | {ERROR} |",
        "| --- |" + " --- |" * (len(COLUMNS) + 7),
    ]
    lines += [_rival_line(case, passed, rows) for (case, passed), rows in cases.items()]
    return "\n".join([*lines, ""])


def _rival_line(case: str, passed: str, rows: Rows) -> str:
    ours = rows.get(OURS.get(case.partition(" ")[0], "ours")) or rows.get("ours")
    if ours is None:
        return f"| {case} | {passed} | failed |" + " |" * (len(COLUMNS) + 5)
    rivals = {name: row for name, row in rows.items() if not name.startswith("our") and name not in NO_RIVALS}
    ratios = {name: row["median_ms"] / ours["median_ms"] for name, row in rivals.items()}
    best = min(ratios, key=lambda name: ratios[name], default="")
    others = [name for name in rivals if name not in COLUMNS]
    cells = [
        case,
        passed,
        f"{ours['median_ms']:.4f}",
        f"{100 * ours['share_of_copy']:.0f} %",
        f"{best} **{ratios[best]:.2f}**" if best else "none",
        *(f"{ratios[name]:.2f}" if name in ratios else "" for name in COLUMNS),
        ", ".join(f"{name} {ratios[name]:.2f}" for name in others),
        f"{ours['peak_mib']:.0f} / {_peak(rivals.get(best))}",
        f"{_error(ours)} / {_error(_first(rows, ('eager', 'eager fused', 'eager foreach')))}",
    ]
    return "| " + " | ".join(cells) + " |"


def _peak(row: Mapping[str, Any] | None) -> str:
    return f"{row['peak_mib']:.0f}" if row is not None and "peak_mib" in row else "–"


def _error(row: Mapping[str, Any] | None) -> str:
    error = None if row is None else row.get("error")
    return "–" if error is None else f"{error:.2e}".replace("e-0", "e-")


def _first(rows: Rows, names: Sequence[str]) -> Mapping[str, Any] | None:
    return next((rows[name] for name in names if name in rows), None)


def bar_table(run: Mapping[str, Any], name: str) -> str:
    """Each bar with the number that was found."""
    held = sum(bar["holds"] for bar in run["bars"])
    timed = sum(bar["found"] is not None for bar in run["bars"])
    missing = f", {len(run['bars']) - timed} were not timed" if timed < len(run["bars"]) else ""
    lines = [
        (
            f"The bars of `benchmarks/kernels.py --judged`, {held} of {timed} held on {run['date']}{missing} "
            f"(torch {run['torch']}, Triton {run['triton']}; `benchmarks/data/{name}`):"
        ),
        "",
        "| case | | asked | bar | found | holds |",
        "| --- |" + " --- |" * 5,
    ]
    for bar in run["bars"]:
        found = "not timed" if bar["found"] is None else f"{bar['found']:.3f}"
        cells = [
            bar["case"],
            bar["passed"],
            bar["asked"],
            f"{bar['needed']:.3f}",
            found,
            "yes" if bar["holds"] else "no" if bar["found"] is not None else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
