"""The table of timings that comes with the package: what to choose before anything was measured on this machine.

A row of the table holds for devices of the same architecture, the same length of rows, element size, layout and
options, and row counts within a factor of four of the measured one.  It is only a hint: level `on` measures anyway.

    python -m burn_kernels tune && python -m burn_kernels export timings.json       on the GPU, and then anywhere:
    python -m burn_kernels ship benchmarks/data/kernels-tune-h200.json timings.json

writes the table anew from all these files, which may be what `export` writes or rows of benchmarks/kernels.py --tune.
Of a problem that several files have, the last one's timings count.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burn_kernels.autotune.key import Device, Facts, alignment
from burn_kernels.launch import H200, Machine

if TYPE_CHECKING:
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["configs", "load", "written"]

FILE = Path(__file__).with_name("shipped.json")
FORMAT = "burn_kernels.timings"
"""How an export begins; see `bundle`, which this does not import: a choice needs none of it."""
NEAR = 4
"""How many times more or fewer rows than were measured."""


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


Problems = dict[tuple[Any, ...], dict[str, float]]
"""Milliseconds of configs (as JSON) by op, backend, arch, free, exact, itemsize, align, layout, flags."""


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
        place = (op, H200.backend, H200.arch, free, exact, itemsize, facts.align, facts.layout, flags)
        _keep(found.setdefault(place, {}), numbers, row["median_ms"])
    return found


def of_timings(timings: Iterable[Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> Problems:
    """What an export says, without configs that the kernels no longer have, and ops that are gone."""
    found: Problems = {}
    for row in timings:
        machine = _machine(row["device"])
        named = _facts(row["key"], tunables)
        if machine is None or named is None or row["eliminated"]:
            continue
        op, facts = named
        names = {field.name for field in fields(tunables[op].config)}
        if set(row["config"]) != names or tunables[op].parse(row["config"]) not in tunables[op].candidates(
            facts, machine
        ):
            continue
        size = facts.dtype.itemsize
        problem = (op, machine.backend, machine.arch, facts.free, facts.exact, size, *facts[3:])
        _keep(found.setdefault(problem, {}), row["config"], row["median_ms"])
    return found


def _keep(at: dict[str, float], config: Mapping[str, int], ms: float) -> None:
    text = json.dumps(dict(config))
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
    for (op, backend, arch, free, exact, itemsize, align, layout, flags), at in sorted(problems.items(), key=str):
        row = {"op": op, "backend": backend, "arch": arch, "free": list(free), "exact": list(exact)}
        row |= {"itemsize": itemsize, "align": align, "layout": layout, "flags": flags}
        row["configs"] = [[ms, json.loads(text)] for text, ms in sorted(at.items(), key=lambda pair: pair[1])]
        rows.append(f"  {json.dumps(row)}")
    about_all = ",\n".join(f"  {json.dumps(one)}" for one in measured)
    text = ",\n".join(rows)
    return f'{{\n "measured": [\n{about_all}\n ],\n "problems": [\n{text}\n ]\n}}\n'
