"""The bars of the kernel library, and whether the rows of a run clear them.

Each bar names a case of `benchmarks/kernels.py` and what the variant `ours` must reach there: a share of a copy of the
same bytes, a ratio to the fastest rival that ran, a peak of memory.  A bar whose case or rival did not run is not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["BARS", "COMPILED", "Bar", "Verdict", "judge", "table"]

MOST_SHARE = 1.1
"""Of a copy's speed: nobody moves the bytes faster, so a higher share was measured on something else."""

COMPILED = "compile"
"""The variant that torch.compile made."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What one case must reach; what is None is not asked."""

    case: str
    passed: str
    variant: str = "ours"
    share: float | None = None
    """Of a copy's speed, at least."""
    ahead: float | None = None
    """The fastest rival's time over ours, at least."""
    against: tuple[str, ...] = ()
    """The rivals that count; all others than ours if empty, and then torch.compile must be among them."""
    peak_mib: float | None = None
    """At most, beyond the inputs."""


HEAD = Bar(
    case="linear_cross_entropy 8192x4096x128256",
    passed="fb",
    variant="ours, bf16 sums",
    ahead=1.0,
    against=(COMPILED,),
    peak_mib=1.4 * 1024,
)
NORMS = [
    Bar(case=f"{name} 8192x{cols}", passed="fb", share=0.90 if cols <= 16_384 else 0.85, ahead=1.3)
    for name in ("layer_norm", "rms_norm")
    for cols in (4096, 5120, 8192, 16_384, 32_768)
]
REDUCTIONS = [
    Bar(case=f"{kind} 16384x16384 dim {dim}", passed="f", share=0.93)
    for kind in ("argmax", "var")
    for dim in (1, 0, None)
]
BARS: Sequence[Bar] = (
    HEAD,
    *(Bar(case=f"cross_entropy 8192x{cols}", passed="fb", share=0.85, ahead=1.7) for cols in (32_000, 50_257, 128_256)),
    *NORMS,
    Bar(case="adamw 124M, clip, bf16 copy", passed="step", share=0.98),
    *(Bar(case=f"softmax 8192x{1024 * n}", passed="f", share=0.92) for n in (1, 4, 5, 8, 16, 32)),
    *REDUCTIONS,
)
"""In the order in which they are timed: those with rivals first, since a run may end early."""


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


def judge(bars: Iterable[Bar], rows: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts of all bars on rows as the benchmark writes them."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["case"], row["pass"]), {})[row["variant"]] = row
    return [verdict for bar in bars for verdict in _judged(bar, found.get((bar.case, bar.passed), {}))]


def _judged(bar: Bar, rows: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    ours = rows.get(bar.variant)
    verdicts = []

    def at_least(asked: str, value: float | None, needed: float) -> None:
        holds = value is not None and value >= needed
        verdicts.append(Verdict(bar.case, bar.passed, asked, value, needed, holds))

    # one that beats the memory did not compute what it was asked for: no figure of it counts
    beyond = ours is not None and (ours["share_of_copy"] or 0.0) > MOST_SHARE
    if bar.share is not None:
        share = None if ours is None else ours["share_of_copy"]
        if beyond:
            verdicts.append(Verdict(bar.case, bar.passed, "share of copy, not above 1.1", share, bar.share, False))
        else:
            at_least("share of copy", share, bar.share)
    if beyond:
        ours = None
    if bar.ahead is not None:
        counted = bar.against or ([name for name in rows if not _is_ours(name)] if COMPILED in rows else ())
        rivals = [row["median_ms"] for name, row in rows.items() if name in counted]
        ratio = min(rivals) / ours["median_ms"] if ours is not None and rivals else None
        at_least(f"times as fast as {' or '.join(bar.against) or 'the best rival'}", ratio, bar.ahead)
    if bar.peak_mib is not None:
        peak = None if ours is None else ours["peak_mib"]
        holds = peak is not None and peak <= bar.peak_mib
        verdicts.append(Verdict(bar.case, bar.passed, "peak MiB, at most", peak, bar.peak_mib, holds))
    return verdicts


def _is_ours(variant: str) -> bool:
    return variant.startswith("ours")


def table(verdicts: Sequence[Verdict]) -> str:
    """A line a verdict, and how many hold."""
    lines = []
    case, asked = (max((len(getattr(v, part)) for v in verdicts), default=0) for part in ("case", "asked"))
    for verdict in verdicts:
        number = "not timed" if verdict.found is None else f"{verdict.found:.3f}"
        word = "pass" if verdict.holds else "FAIL"
        lines.append(
            f"{word}  {verdict.case:<{case}}  {verdict.passed:<6}{verdict.asked:<{asked}}{number:>11}"
            f"  bar {verdict.needed:.3f}"
        )
    held = sum(verdict.holds for verdict in verdicts)
    return "\n".join([*lines, f"{held} of {len(verdicts)} bars hold"])
