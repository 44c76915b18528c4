"""Writes the tables of docs/building-blocks/kernels.md from the rows that benchmarks/kernels.py wrote on a GPU.

The rows lie in benchmarks/data: `kernels-judged-h200.json` of `--judged`, and of the cases that it has not
`kernels-rivals-h200.json` of `--rivals`.  Nothing in the tables is written by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from _files import ROOT, refresh

from benchmarks._kernels.judged import BARE, COMPILED, computes_less

PAGE = "docs/building-blocks/kernels.md"
BEGIN = "<!-- measured: written by docs/generate/measured.py -->"
END = "<!-- end of measured -->"
DATA = ROOT / "benchmarks" / "data"
JUDGED, RIVALS = "kernels-judged-h200.json", "kernels-rivals-h200.json"
COLUMNS = {"eager": "eager", COMPILED: "compile", "liger": "Liger", "jax": "JAX"}
"""Rivals with a column of their own, torch.compile in the faster of its modes; the others share one."""
OURS = {"linear_cross_entropy": "ours, bf16 sums"}
"""The form of ours that stands for it, where that is not `ours`."""
NO_COPY = ("attention", "attention_packed", "linear", "linear_cross_entropy")
"""Operations limited by arithmetic: a copy of their bytes says nothing."""

PEAK, ERROR = "peak MiB, ours / best", "error, ours / eager"

Rows = Mapping[str, Mapping[str, Any]]


def main(check: bool) -> list[str]:
    """Writes the tables between the two marks of the page."""
    before, rest = (ROOT / PAGE).read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return refresh({PAGE: before + BEGIN + "\n\n" + text() + "\n" + END + after}, check)


def text() -> str:
    """All tables with what they were measured on."""
    judged, rivals = (_read(name) for name in (JUDGED, RIVALS))
    parts = []
    if judged is not None:
        bars = judged["bars"]
        parts.append(bar_table(judged, [bar for bar in bars if not bar["goal"]], "bars"))
        parts.append(rival_table(judged, JUDGED))
        timed = {(row["case"], row["pass"]) for row in judged["rows"]}
        if rivals is not None:
            rivals = {**rivals, "rows": [row for row in rivals["rows"] if (row["case"], row["pass"]) not in timed]}
    if rivals is not None and rivals["rows"]:
        parts.append(rival_table(rivals, RIVALS))
    if judged is not None:
        parts.append(bar_table(judged, [bar for bar in bars if bar["goal"]], "goals beyond the bars"))
    return "\n".join(parts)


def _read(name: str) -> dict[str, Any] | None:
    file = DATA / name
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def rival_table(run: Mapping[str, Any], name: str) -> str:
    """Each case beside its rivals: their time over ours."""
    cases: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in run["rows"]:
        cases.setdefault((row["case"], row["pass"]), {})[row["variant"]] = row
    dates = sorted({row.get("date", run["date"]) for row in run["rows"]})
    since = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]} (UTC)"
    lines = [
        (
            f"One {run['device']}, {since}, torch {run['torch']}, Triton {run['triton']}, "
            f"JAX {run.get('jax') or 'absent'}; median of {run['rounds']} rounds, `benchmarks/data/{name}`."
        ),
        "",
        f"| operation | | ms | share | best rival | {' | '.join(COLUMNS.values())} | others | {PEAK} | {ERROR} |",
        "| --- |" + " --- |" * (len(COLUMNS) + 7),
    ]
    lines += [_rival_line(case, passed, rows) for (case, passed), rows in cases.items()]
    return "\n".join([*lines, ""])


def _rival_line(case: str, passed: str, rows: Rows) -> str:
    operation = case.partition(" ")[0]
    ours = rows.get(OURS.get(operation, "ours")) or rows.get("ours")
    if ours is None:
        return f"| {case} | {passed} | failed |" + " |" * (len(COLUMNS) + 5)
    rivals = _by_column({name: row for name, row in rows.items() if not name.startswith("our") and name != BARE})
    ratios = {name: row["median_ms"] / ours["median_ms"] for name, row in rivals.items()}
    best = min((name for name, row in rivals.items() if not computes_less(row)), key=lambda n: ratios[n], default="")
    written = {name: f"{ratios[name]:.2f}" + (" †" if computes_less(row) else "") for name, row in rivals.items()}
    cells = [
        case,
        passed,
        f"{ours['median_ms']:.4f}",
        "–" if operation in NO_COPY else f"{100 * ours['share_of_copy']:.0f} %",
        f"{best} **{ratios[best]:.2f}**" if best else "none",
        *(written.get(name, "") for name in COLUMNS),
        ", ".join(f"{name} {number}" for name, number in written.items() if name not in COLUMNS),
        f"{ours['peak_mib']:.0f} / {_peak(rivals.get(best))}",
        f"{_error(ours)} / {_error(_first(rows, ('eager', 'eager fused', 'eager foreach')))}",
    ]
    return "| " + " | ".join(cells) + " |"


def _by_column(rivals: Rows) -> dict[str, Mapping[str, Any]]:
    """Keeps the faster of the modes of torch.compile, under its name."""
    modes = [row for name, row in rivals.items() if name.startswith(COMPILED)]
    columns = {name: row for name, row in rivals.items() if not name.startswith(COMPILED)}
    return columns | ({COMPILED: min(modes, key=lambda row: row["median_ms"])} if modes else {})


def _peak(row: Mapping[str, Any] | None) -> str:
    return f"{row['peak_mib']:.0f}" if row is not None and "peak_mib" in row else "–"


def _error(row: Mapping[str, Any] | None) -> str:
    error = None if row is None else row.get("error")
    return "–" if error is None else f"{error:.2e}".replace("e-0", "e-")


def _round_away(number: float, *, up: bool) -> str:
    """Three digits behind the point, away from the bar: what misses it by less is seen to miss it."""
    return f"{(math.ceil if up else math.floor)(number * 1000) / 1000:.3f}"


def _first(rows: Rows, names: Sequence[str]) -> Mapping[str, Any] | None:
    return next((rows[name] for name in names if name in rows), None)


def bar_table(run: Mapping[str, Any], bars: Sequence[Mapping[str, Any]], kind: str) -> str:
    """Each bar with the number that was found."""
    held = sum(bar["holds"] for bar in bars)
    timed = sum(bar["found"] is not None for bar in bars)
    missing = f", {len(bars) - timed} were not timed" if timed < len(bars) else ""
    lines = [
        f"The {kind} of `benchmarks/kernels.py --judged`, {held} of {timed} held on {run['date']}{missing}:",
        "",
        "| case | | asked | bar | found | holds |",
        "| --- |" + " --- |" * 5,
    ]
    for bar in bars:
        number = "not timed" if bar["found"] is None else _round_away(bar["found"], up="at most" in bar["asked"])
        cells = [
            f"{bar['goal']} {bar['case']}".strip(),
            bar["passed"],
            bar["asked"],
            f"{bar['needed']:.3f}",
            number,
            "yes" if bar["holds"] else "no" if bar["found"] is not None else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
