"""Defines what holds the rows of a run against numbers: each bar beside what was found, and whether that clears it.

Which bars there are: `bars.py`.  Each names a case of `benchmarks/kernels.py` and what a variant of ours must reach
there: a share of a copy of the same bytes, a ratio to the fastest rival, a peak of memory.  A bar whose case or rival
did not run is not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BARE", "COMPILED", "MOST_SHARE", "Bar", "Verdict", "computes_less", "judge", "rivals_of", "table"]

MOST_SHARE = 1.1
"""The largest share of a copy's speed: no kernel moves bytes faster, so a higher share measured something else."""

LARGE = 8 << 20
"""Bytes, from which on that is said."""

COMPILED = "compile"
"""The variant that torch.compile made; those of its other modes begin so."""

BARE = "bare product"
"""A matrix product without what follows it: no rival, but a bar may name it."""

MOST_APART = 0.05
"""The relative root mean square by which a rival's results may differ from eager torch's, and it still counts."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Holds what one case must reach; what is None is not asked."""

    case: str
    passed: str
    variant: str = "ours"
    goal: str = ""
    """The number in the list of goals that go beyond the bars."""
    share: float | None = None
    """The least share of a copy's speed."""
    ahead: float | None = None
    """The fastest rival's time over ours, at least."""
    against: tuple[str, ...] = ()
    """The rivals that count, torch.compile in all its modes; all if empty, and then it must be among them."""
    peak_mib: float | None = None
    """At most, beyond the inputs."""
    peak_of_compiled: float | None = None
    """At most, of what torch.compile's allocates beyond the inputs."""


@dataclass(frozen=True)
class Verdict:
    """One number beside what it must be."""

    case: str
    passed: str
    asked: str
    found: float | None
    """None where it was not timed."""
    needed: float
    holds: bool
    goal: str = ""


Rows = Mapping[str, Mapping[str, Any]]


def judge(bars: Iterable[Bar], rows: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts of all bars on rows as the benchmark writes them."""
    by_variant: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_variant.setdefault((row["case"], row["pass"]), {})[row["variant"]] = row
    return [verdict for bar in bars for verdict in _judge_bar(bar, by_variant.get((bar.case, bar.passed), {}))]


def computes_less(row: Mapping[str, Any]) -> bool:
    """Returns whether a rival did not compute what it was asked for: wrong results, or faster than memory."""
    apart = row.get("apart")
    return _beats_memory(row) or (apart is not None and not apart <= MOST_APART)


def _beats_memory(row: Mapping[str, Any]) -> bool:
    """Asks whether a row is so large that memory, not a launch, takes its time."""
    share, moved = row.get("share_of_copy"), row.get("floor_bytes", LARGE)
    return share is not None and share > MOST_SHARE and moved >= LARGE


def rivals_of(rows: Rows) -> dict[str, Mapping[str, Any]]:
    """Those of a case's variants that are others' and compute all of it."""
    return {
        name: row
        for name, row in rows.items()
        if not name.startswith("our") and name != BARE and not computes_less(row)
    }


def _judge_bar(bar: Bar, rows: Rows) -> list[Verdict]:
    ours = rows.get(bar.variant)
    verdicts = []

    def told(asked: str, value: float | None, needed: float, holds: bool) -> None:
        verdicts.append(Verdict(bar.case, bar.passed, asked, value, needed, holds, bar.goal))

    # one that beats the memory did not compute what it was asked for: no figure of it counts
    beyond = ours is not None and _beats_memory(ours)
    share = None if ours is None else ours["share_of_copy"]
    if bar.share is not None and beyond:
        told("share of copy, not above 1.1", share, bar.share, False)
    elif bar.share is not None:
        told("share of copy", share, bar.share, share is not None and share >= bar.share)
    if beyond:
        ours = None
    if bar.ahead is not None:
        ratio = _ratio(bar, ours, rows)
        asked = f"times as fast as {' or '.join(bar.against) or 'the best rival'}"
        told(asked, ratio, bar.ahead, ratio is not None and ratio >= bar.ahead)
    peak = None if ours is None else ours["peak_mib"]
    if bar.peak_mib is not None:
        told("peak MiB, at most", peak, bar.peak_mib, peak is not None and peak <= bar.peak_mib)
    if bar.peak_of_compiled is not None:
        theirs = [row["peak_mib"] for name, row in rows.items() if name.startswith(COMPILED)]
        part = peak / min(theirs) if peak is not None and theirs and min(theirs) else None
        told(
            "peak of compile's, at most", part, bar.peak_of_compiled, part is not None and part <= bar.peak_of_compiled
        )
    return verdicts


def _ratio(bar: Bar, ours: Mapping[str, Any] | None, rows: Rows) -> float | None:
    """Returns the ratio to the fastest rival that counts; None without ours, or without one of them."""
    rivals = rivals_of(rows)
    if bar.against:
        starts = tuple(name for name in bar.against if name == COMPILED)
        timed = rivals | {name: row for name, row in rows.items() if name == BARE}  # for who names it
        times = [row["median_ms"] for name, row in timed.items() if name in bar.against or name.startswith(starts)]
    else:
        there = any(name.startswith(COMPILED) for name in rivals)
        times = [row["median_ms"] for row in rivals.values()] if there else []
    return min(times) / ours["median_ms"] if ours is not None and times else None


def table(verdicts: Sequence[Verdict]) -> str:
    """A line a verdict, and how many hold; the goals behind the bars."""
    lines = []
    case, asked = (max((len(getattr(v, part)) for v in verdicts), default=0) for part in ("case", "asked"))
    for kind in (False, True):
        shown = [verdict for verdict in verdicts if bool(verdict.goal) is kind]
        for verdict in shown:
            number = "not timed" if verdict.found is None else f"{verdict.found:.4f}"
            word = "pass" if verdict.holds else "FAIL"
            lines.append(
                f"{word}  {verdict.goal + ' ' if verdict.goal else ''}{verdict.case:<{case}}  {verdict.passed:<6}"
                f"{verdict.asked:<{asked}}{number:>11}  bar {verdict.needed:.3f}"
            )
        if shown or not kind:
            lines.append(f"{sum(v.holds for v in shown)} of {len(shown)} {'goals' if kind else 'bars'} hold")
    return "\n".join(lines)
