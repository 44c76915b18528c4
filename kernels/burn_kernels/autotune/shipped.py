"""The table of timings that comes with the package: what to choose before anything was measured on this machine.

A row of the table holds for devices of the same architecture, the same length of rows, element size, layout and
options, and row counts within a factor of four of the measured one.  It is only a hint: level `on` measures anyway.

    python -m burn_kernels tune && python -m burn_kernels export timings.json       on the GPU, and then anywhere:
    python -m burn_kernels ship benchmarks/data/kernels-tune-h200.json timings.json

writes the table anew from all these files, which may be what `export` writes or rows of benchmarks/kernels.py --tune.
Of a problem that several files have, the last one's timings count.  What the kernels no longer have is left out; so is
a problem whose timings lack the config that would be taken without the table, since that has changed after them.  Of
the others the fastest configs and that one are kept, and nothing where that one is as fast as any for every row count.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from burn_kernels.autotune.cost import choice
from burn_kernels.autotune.key import Device, Facts, alignment
from burn_kernels.autotune.race import ALIKE
from burn_kernels.launch import A100, H200, MI300X, Machine

if TYPE_CHECKING:
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["configs", "load", "written"]

FILE = Path(__file__).with_name("shipped.json")
FORMAT = "burn_kernels.timings"
"""How an export begins; see `bundle`, which this does not import: a choice needs none of it."""
NEAR = 4
"""How many times more or fewer rows than were measured."""
MOST_CONFIGS = 3
"""Of a problem: the fastest, and where that does not fit a call, or fails, the next ones."""
_MACHINES = {(machine.backend, machine.arch): machine for machine in (H200, A100, MI300X)}


@functools.cache
def load() -> list[dict[str, Any]]:
    """The table: problems, each with its configs, the fastest first."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["problems"]
    return rows


def configs(tunable: Tunable, facts: Facts, device: Device) -> list[Mapping[str, int]]:
    """What the table says for a problem, the fastest first; empty if it says nothing."""
    itemsize = facts.dtype.itemsize
    wanted = [tunable.name, list(facts.exact), itemsize, facts.align, facts.layout, facts.flags]
    best: list[Mapping[str, int]] = []
    nearest = float(NEAR)
    for row in load():
        if [row["backend"], row["arch"]] != [device.machine.backend, device.machine.arch]:
            continue
        if [row["op"], row["exact"], row["itemsize"], row["align"], row["layout"], row["flags"]] != wanted:
            continue
        apart = max((max(a / b, b / a) for a, b in zip(row["free"], facts.free, strict=True)), default=1.0)
        if apart <= nearest:
            nearest, best = apart, [config for _, config in row["configs"]]
    return best


# -- making the table --------------------------------------------------------------------------------
ADAMW_BYTES, CHUNK = 28, 8192


def _problem(case: str, passed: str, floor_bytes: int) -> tuple[str, tuple[int, ...], tuple[int, ...], str] | None:
    """The tunable, free sizes, exact sizes and flags of a case of benchmarks/kernels.py; bfloat16 but for AdamW."""
    name, _, shape = case.partition(" ")
    if name == "adamw":
        return name, (floor_bytes // ADAMW_BYTES // CHUNK,), (CHUNK,), "g=float32 s=float32"
    rows, cols = (int(n) for n in shape.split("x"))
    back = " backward" if passed == "b" else ""
    if name == "softmax":
        return name + back, (rows,), (cols,), ""
    if name in ("layer_norm", "rms_norm"):
        return name + back, (rows,), (cols,), "w b" if name == "layer_norm" else "w"
    if name == "cross_entropy":
        flags = {"f": "loss", "fb": "loss gradient", "in place": "loss gradient over"}[passed]
        return name, (rows,), (cols,), flags
    if name in ("swiglu", "geglu"):
        return f"glu{back}", (1, rows * cols), (), {"swiglu": "silu", "geglu": "gelu"}[name]
    return (name, (rows * cols,), (), "") if name == "dropout" else None


class Place(NamedTuple):
    """A problem as the table has it."""

    op: str
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


def of_rows(rows: Iterable[Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> Problems:
    """What rows of `benchmarks/kernels.py --tune` say, without configs that the kernels no longer have."""
    found: Problems = {}
    for row in rows:
        problem = _problem(row["case"], row["pass"], row["floor_bytes"])
        if problem is None:
            continue
        op, free, exact, flags = problem
        dtype = torch.float32 if op == "adamw" else torch.bfloat16
        itemsize = dtype.itemsize
        facts = Facts(free, exact, dtype, alignment(*(length * itemsize for length in exact)), flags=flags)
        numbers = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row["variant"])}
        names = {field.name for field in fields(tunables[op].config)}
        if "stages" not in names and numbers.get("stages") == 1:  # what a launch without stages has
            del numbers["stages"]
        # a field that came later has in older rows the value that changes nothing
        numbers = {
            field.name: field.default for field in fields(tunables[op].config) if field.default is not MISSING
        } | numbers
        if set(numbers) != names or tunables[op].parse(numbers) not in tunables[op].candidates(facts, H200):
            continue
        place = Place(op, H200.backend, H200.arch, free, exact, itemsize, facts.align, facts.layout, flags)
        _keep(found.setdefault(place, {}), tunables[op].parse(numbers), row["median_ms"])
    return found


def of_timings(timings: Iterable[Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> Problems:
    """What an export says, without configs that the kernels no longer have, and ops that are gone."""
    found: Problems = {}
    for row in timings:
        machine = _machine(row["device"])
        named = _facts(row["key"], tunables)
        if machine is None or named is None:
            continue
        op, facts = named
        names = {field.name for field in fields(tunables[op].config)}
        numbers = _later(tunables[op]) | row["config"]
        if set(numbers) != names or tunables[op].parse(numbers) not in tunables[op].candidates(facts, machine):
            continue
        size = facts.dtype.itemsize
        problem = Place(op, machine.backend, machine.arch, facts.free, facts.exact, size, *facts[3:])
        _keep(
            found.setdefault(problem, {}), tunables[op].parse(numbers), min(row["samples_ms"])
        )  # a busy host only adds
    return found


def _later(made: Tunable) -> dict[str, Any]:
    """What an export means that is older than a config's newest fields."""
    return {field.name: field.default for field in fields(made.config) if "later" in field.metadata}


def _keep(at: dict[str, float], config: Any, ms: float) -> None:
    text = json.dumps(asdict(config))
    at[text] = min(at.get(text, float("inf")), round(ms, 5))


def _machine(device: str) -> Machine | None:
    """The machine of a device as `key.Device` writes it."""
    found = re.fullmatch(r".* (?:sm_(\d+)|(gfx\w+)) x(\d+)", device)
    if found is None:
        return None
    cuda, hip, processors = found.groups()
    return Machine("hip", hip, int(processors), 64) if hip else Machine("cuda", int(cuda), int(processors))


def _facts(key: str, tunables: Mapping[str, Tunable]) -> tuple[str, Facts] | None:
    """The op and problem of a key, as `key.key_text` writes it; a free size is the largest of its bucket."""
    for op, made in tunables.items():
        sizes = [rf"{name}<=(\d+)" for name in made.free] + [rf"{name}=(\d+)" for name in made.exact]
        pattern = " ".join([re.escape(op), *sizes, r"(\w+) (packed|strided) align=(\d+)"]) + "(?: (.*))?"
        found = re.fullmatch(pattern, key)
        if found is not None:
            *numbers, dtype, layout, align, flags = found.groups()
            counts = tuple(int(number) for number in numbers)
            free, exact = counts[: len(made.free)], counts[len(made.free) :]
            return op, Facts(free, exact, getattr(torch, dtype), int(align), layout, flags or "")
    return None


def _untold(place: Place, tunables: Mapping[str, Tunable]) -> str:
    """The config, as JSON, that a machine would take which measured nothing and had no table; empty if not known."""
    machine = _MACHINES.get((place.backend, place.arch))  # figures of others are not known
    if machine is None:
        return ""
    dtype = next(one for one in (torch.bfloat16, torch.float32, torch.int64) if one.itemsize == place.itemsize)
    facts = Facts(place.free, place.exact, dtype, place.align, place.layout, place.flags)
    made = tunables[place.op]
    named = {name: c for name, c in made.named(facts, machine).items() if made.supports(c, facts)}
    return json.dumps(asdict(named[choice({n: made.work(c, facts, machine) for n, c in named.items()}, machine)]))


def _but_for_rows(place: Place) -> Place:
    """The same for problems that differ in their free sizes: a row serves others nearby, unless they have their own."""
    return place._replace(free=())


def _is_needed(place: Place, at: Mapping[str, float], tunables: Mapping[str, Tunable]) -> bool:
    """Whether the table chooses a config that is faster than the one taken without it."""
    return at.get(_untold(place, tunables), float("inf")) > min(at.values()) * (1 + ALIKE)


def _kept(place: Place, at: Mapping[str, float], tunables: Mapping[str, Tunable]) -> list[tuple[float, Any]]:
    """The fastest configs with their times, and the one that would be taken without the table."""
    order = sorted(at, key=lambda text: at[text])
    untold = _untold(place, tunables)
    return [(at[text], json.loads(text)) for n, text in enumerate(order) if n < MOST_CONFIGS or text == untold]


def written(sources: Mapping[str, Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> str:
    """The text of the table's file, from sources by the names of their files."""
    measured, problems = [], Problems()
    for name, source in sources.items():
        if source.get("format") == FORMAT:
            timings = source["timings"]
            problems |= of_timings(timings, tunables)
            about = {
                "device": ", ".join(sorted({row["device"] for row in timings})),
                "date": max((row["measured_at"] for row in timings), default="")[:10],
                "software": ", ".join(sorted({row["software"] for row in timings})),
            }
        else:
            problems |= of_rows(source["rows"], tunables)
            about = {key: source[key] for key in ("device", "date", "torch", "triton")}
        measured.append({"file": name, **about})
    rows = []
    fresh = {place: at for place, at in problems.items() if _untold(place, tunables) in ("", *at)}
    needed = {_but_for_rows(place) for place, at in fresh.items() if _is_needed(place, at, tunables)}
    for place, at in sorted(fresh.items(), key=str):
        if _but_for_rows(place) in needed:
            rows.append(f"  {json.dumps(place._asdict() | {'configs': _kept(place, at, tunables)})}")
    about_all = ",\n".join(f"  {json.dumps(one)}" for one in measured)
    text = ",\n".join(rows)
    return f'{{\n "measured": [\n{about_all}\n ],\n "problems": [\n{text}\n ]\n}}\n'
