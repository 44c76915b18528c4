"""Choices with their places, timings and disqualified candidates, as data and as plain lines."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field

from burn_kernels.arguments import checked
from burn_kernels.autotune import levels, shipped
from burn_kernels.autotune.key import software
from burn_kernels.autotune.race import ranking
from burn_kernels.autotune.selection import Selector
from burn_kernels.autotune.store import Place
from burn_kernels.autotune.tunable import TUNABLES

__all__ = ["Entry", "Report", "lines", "report_of"]


@dataclass
class Entry:
    """One key on one device."""

    key: str
    device: str
    software: str
    kernel: str
    current: bool
    """True if the software and the kernel's source are those of now; other rows choose nothing."""
    chosen: str = ""
    times_ms: dict[str, float] = field(default_factory=dict)
    """Medians by candidate, the best first."""
    samples: int = 0
    disqualified: dict[str, str] = field(default_factory=dict)
    """Why a candidate may not be chosen, by name."""


@checked
@dataclass
class Report:
    """All that selection knows."""

    level: str
    deterministic: bool
    store: str
    lockfile: str
    pins: dict[str, dict[str, int]]
    entries: list[Entry]
    shipped: int = 0
    """Rows of the table that comes with the package."""
    refused: tuple[str, ...] = ()
    """Operations of which rows of that table are refused, since their kernels have changed."""

    def as_data(self) -> dict[str, object]:
        """The report as plain dicts and lists."""
        return asdict(self)


@checked
def report_of(selector: Selector) -> Report:
    """Reports all that a selector knows, its store's rows of other devices included."""
    kernels = {tunable.kernel for tunable in TUNABLES.values()}
    entries: dict[Place, Entry] = {}
    times: dict[Place, dict[str, float]] = defaultdict(dict)

    def entry(place: Place) -> Entry:
        now = place.software == software() and place.kernel in kernels
        return entries.setdefault(place, Entry(place.key, place.device, place.software, place.kernel, now))

    if selector.store.there:
        for timing in selector.store.all_timings():
            times[timing.place][timing.candidate] = timing.median_ms
            entry(timing.place).samples += len(timing.samples_ms)
        for fault in selector.store.all_faults():
            entry(fault.place).disqualified[fault.candidate] = f"{fault.kind}: {fault.reason}"
    for place, candidates in entries.items():
        sound = {name: ms for name, ms in times[place].items() if name not in candidates.disqualified}
        candidates.times_ms = dict(sorted(times[place].items(), key=lambda pair: pair[1]))
        candidates.chosen = next(iter(ranking(sound, list(sound))), "")
    for decision in selector.decisions.values():
        if decision.place in entries:
            names = [name for name, config in decision.ranking.items() if config == decision.config]
            entries[decision.place].chosen = names[0] if names else ""
    held = selector.lockfile
    pins = {} if held is None else {f"{p.key} on {p.device}": dict(p.config) for p in held.pins.values()}
    return Report(
        levels.level(),
        levels.is_deterministic(),
        "memory" if selector.store.path is None else str(selector.store.path),
        "" if held is None else f"{held.path} ({held.mode})",
        pins,
        sorted(entries.values(), key=lambda e: (not e.current, e.device, e.key)),
        len(shipped.load()),
        tuple(sorted({row["op"] for row in shipped.refused(TUNABLES)})),
    )


def lines(report: Report) -> list[str]:
    """The report for people."""
    lines = [
        f"level: {report.level}{', deterministic' if report.deterministic else ''}",
        f"store: {report.store}",
        f"lockfile: {report.lockfile or 'none'}",
    ]
    lines += [f"  pinned: {key}: {words(config)}" for key, config in sorted(report.pins.items())]
    if report.refused:
        ops = ", ".join(report.refused)
        lines.append(f"shipped table: rows of {ops} are refused, since their kernels have changed after them")
    if not report.entries:
        lines.append("nothing was measured: choices are the shipped table's, the cost model's and the defaults")
    for entry in report.entries:
        age = "" if entry.current else f"   (not used: {entry.software}, source {entry.kernel})"
        lines += ["", f"{entry.key} on {entry.device}{age}"]
        best = min(entry.times_ms.values(), default=0.0)
        for name, ms in entry.times_ms.items():
            mark = "*" if name == entry.chosen else " "
            lines.append(f"  {mark} {name:<60} {ms:9.4f} ms {ms / best if best else 1.0:6.2f}x")
        lines += [f"  ! {name}: {reason}" for name, reason in sorted(entry.disqualified.items())]
    return lines


def words(config: dict[str, int]) -> str:
    """A config as its candidate is named."""
    return " ".join(f"{name}={value}" for name, value in config.items())
