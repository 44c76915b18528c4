"""The table of timings that comes with the package: what to choose before anything was measured on this machine.

A row of the table holds for the kernels of which it was measured (their text, not its remarks: see `jitted`), on
devices of the same architecture, for the same length of rows, element size, layout and options, and row counts within a
factor of four of the measured one.  It is only a hint: level `on` measures anyway.

    python -m burn_kernels tune && python -m burn_kernels export timings.json       on the GPU, and then anywhere:
    python -m burn_kernels ship benchmarks/data/timings-h200.json timings.json

writes the table anew from these exports.  Of a problem that several files have, the last one's timings count.  Timings
of kernels that have changed since are left out, and so are configs that the kernels no longer have.  Of the others the
fastest configs are kept, and the one that would be taken without the table; nothing where that one is as fast as any
for every row count, or was not timed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from burn_kernels.autotune.cost import choice
from burn_kernels.autotune.errors import BundleError
from burn_kernels.autotune.key import Device, Facts
from burn_kernels.autotune.race import ALIKE
from burn_kernels.launch import A100, H200, MI300X, Machine

if TYPE_CHECKING:
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["configs", "load", "refused", "written"]

FILE = Path(__file__).with_name("shipped.json")
FORMAT = "burn_kernels.timings"
"""How an export begins; see `bundle`, which this does not import: a choice needs none of it."""
NEAR = 4
"""How many times more or fewer rows than were measured."""
MOST_CONFIGS = 3
"""The configs of a problem: the fastest, and where that does not fit a call, or fails, the next ones."""
_MACHINES = {(machine.backend, machine.arch): machine for machine in (H200, A100, MI300X)}


@functools.cache
def load() -> list[dict[str, Any]]:
    """The table: problems, each with its configs, the fastest first."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["problems"]
    return rows


def refused(tunables: Mapping[str, Tunable]) -> list[dict[str, Any]]:
    """Rows of the table whose kernels have changed since: they choose nothing until somebody measures again."""
    return [row for row in load() if row["op"] not in tunables or row["kernel"] != tunables[row["op"]].kernel]


def configs(tunable: Tunable, facts: Facts, device: Device) -> list[Mapping[str, int]]:
    """The configs that the table names for a problem, the fastest first; empty if it says nothing."""
    itemsize = facts.dtype.itemsize
    wanted = [tunable.name, list(facts.exact), itemsize, facts.align, facts.layout, facts.flags]
    best: list[Mapping[str, int]] = []
    nearest = float(NEAR)
    for row in load():
        if [row["backend"], row["arch"]] != [device.machine.backend, device.machine.arch]:
            continue
        if [row["op"], row["exact"], row["itemsize"], row["align"], row["layout"], row["flags"]] != wanted:
            continue
        if row["kernel"] != tunable.kernel:
            continue
        apart = max((max(a / b, b / a) for a, b in zip(row["free"], facts.free, strict=True)), default=1.0)
        if apart <= nearest:
            nearest, best = apart, [config for _, config in row["configs"]]
    return best


# -- making the table --------------------------------------------------------------------------------
class Place(NamedTuple):
    """A problem as the table has it."""

    op: str
    kernel: str
    backend: str
    arch: int | str
    free: tuple[int, ...]
    exact: tuple[int, ...]
    itemsize: int
    align: int
    layout: str
    flags: str


Problems = dict[Place, dict[str, float]]
"""Milliseconds of configs, which are JSON."""


def of_timings(timings: Iterable[Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> Problems:
    """The problems of an export for the kernels of now, without configs that they no longer have."""
    problems: Problems = {}
    for row in timings:
        machine = _machine(row["device"])
        named = _facts(row["key"], tunables)
        if machine is None or named is None:
            continue
        (op, facts), numbers = named, row["config"]
        tunable = tunables[op]
        names = {field.name for field in fields(tunable.config)}
        if row["kernel"] != tunable.kernel or set(numbers) != names:
            continue
        if tunable.parse(numbers) not in tunable.candidates(facts, machine):
            continue
        size = facts.dtype.itemsize
        problem = Place(op, tunable.kernel, machine.backend, machine.arch, facts.free, facts.exact, size, *facts[3:])
        # the least sample: a busy host only adds
        _keep(problems.setdefault(problem, {}), tunable.parse(numbers), min(row["samples_ms"]))
    return problems


def _keep(at: dict[str, float], config: Any, ms: float) -> None:
    text = json.dumps(asdict(config))
    at[text] = min(at.get(text, float("inf")), round(ms, 5))


def _machine(device: str) -> Machine | None:
    """The machine of a device as `key.Device` writes it."""
    match = re.fullmatch(r".* (?:sm_(\d+)|(gfx\w+)) x(\d+)", device)
    if match is None:
        return None
    cuda, hip, processors = match.groups()
    return Machine("hip", hip, int(processors), 64) if hip else Machine("cuda", int(cuda), int(processors))


def _facts(key: str, tunables: Mapping[str, Tunable]) -> tuple[str, Facts] | None:
    """The op and problem of a key, as `key.key_text` writes it; a free size is the largest of its bucket."""
    for op, tunable in tunables.items():
        sizes = [rf"{name}<=(\d+)" for name in tunable.free] + [rf"{name}=(\d+)" for name in tunable.exact]
        pattern = " ".join([re.escape(op), *sizes, r"(\w+) (packed|strided) align=(\d+)"]) + "(?: (.*))?"
        match = re.fullmatch(pattern, key)
        if match is not None:
            *numbers, dtype, layout, align, flags = match.groups()
            counts = tuple(int(number) for number in numbers)
            free, exact = counts[: len(tunable.free)], counts[len(tunable.free) :]
            return op, Facts(free, exact, getattr(torch, dtype), int(align), layout, flags or "")
    return None


def _untold(place: Place, tunables: Mapping[str, Tunable]) -> str:
    """The config, as JSON, that a machine would take which measured nothing and had no table; empty if not known."""
    machine = _MACHINES.get((place.backend, place.arch))  # figures of others are not known
    if machine is None:
        return ""
    dtype = next(one for one in (torch.bfloat16, torch.float32, torch.int64) if one.itemsize == place.itemsize)
    facts = Facts(place.free, place.exact, dtype, place.align, place.layout, place.flags)
    tunable = tunables[place.op]
    named = {name: c for name, c in tunable.named(facts, machine).items() if tunable.supports(c, facts)}
    return json.dumps(asdict(named[choice({n: tunable.work(c, facts, machine) for n, c in named.items()}, machine)]))


def _but_for_rows(place: Place) -> Place:
    """The same for problems that differ in their free sizes: a row serves others nearby, unless they have their own."""
    return place._replace(free=())


def _is_needed(place: Place, at: Mapping[str, float], tunables: Mapping[str, Tunable]) -> bool:
    """Tells if the table chooses a config that is faster than the one taken without it, which was timed beside it.

    A default that is younger than the timings may be the fastest: they say nothing of it.
    """
    untold = _untold(place, tunables)
    return not untold or at.get(untold, 0.0) > min(at.values()) * (1 + ALIKE)


def _keep_rows(place: Place, at: Mapping[str, float], tunables: Mapping[str, Tunable]) -> list[tuple[float, object]]:
    """The fastest configs with their times, and the one that would be taken without the table."""
    order = sorted(at, key=lambda text: at[text])
    untold = _untold(place, tunables)
    return [(at[text], json.loads(text)) for n, text in enumerate(order) if n < MOST_CONFIGS or text == untold]


def written(sources: Mapping[str, Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> str:
    """The text of the table's file, from sources by the names of their files."""
    measured, problems = [], Problems()
    for name, source in sources.items():
        if not isinstance(source, Mapping) or source.get("format") != FORMAT:
            raise BundleError(
                "autotune: the table is made of exports only",
                given=f"{name}, which is none",
                expected="what python -m burn_kernels export wrote",
                mend="python -m burn_kernels tune && python -m burn_kernels export FILE, on a GPU",
            )
        timings = source["timings"]
        problems |= of_timings(timings, tunables)
        about = {
            "device": ", ".join(sorted({row["device"] for row in timings})),
            "date": max((row["measured_at"] for row in timings), default="")[:10],
            "software": ", ".join(sorted({row["software"] for row in timings})),
        }
        measured.append({"file": name, **about})
    rows = []
    needed = {_but_for_rows(place) for place, at in problems.items() if _is_needed(place, at, tunables)}
    for place, at in sorted(problems.items(), key=str):
        if _but_for_rows(place) in needed:
            rows.append(f"  {json.dumps(place._asdict() | {'configs': _keep_rows(place, at, tunables)})}")
    about_all = ",\n".join(f"  {json.dumps(one)}" for one in measured)
    text = ",\n".join(rows)
    return f'{{\n "measured": [\n{about_all}\n ],\n "problems": [\n{text}\n ]\n}}\n'
