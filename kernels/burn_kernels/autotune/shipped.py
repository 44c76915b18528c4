"""The table of timings that comes with the package: what to choose before anything was measured on this machine.

A row of the table holds for devices of the same architecture, the same length of rows, element size, layout and
options, and row counts within a factor of four of the measured one.  It is only a hint: level `on` measures anyway.

    python -m burn_kernels ship benchmarks/data/kernels-tune-h200.json      writes the table anew
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burn_kernels.autotune.key import Device, Facts, alignment
from burn_kernels.launch import H200

if TYPE_CHECKING:
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["configs", "converted", "load"]

FILE = Path(__file__).with_name("shipped.json")
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


def converted(rows: Iterable[Mapping[str, Any]], tunables: Mapping[str, Tunable]) -> list[dict[str, Any]]:
    """The table from rows of `benchmarks/kernels.py --tune`, without configs that the kernels no longer have."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
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
        if set(numbers) != names or tunables[op].parse(numbers) not in tunables[op].candidates(facts, H200):
            continue
        at = found.setdefault((op, free, exact, itemsize, facts.align, flags), {})
        text = json.dumps(numbers)
        at[text] = min(at.get(text, float("inf")), row["median_ms"])
    return [
        {
            "op": op,
            "backend": H200.backend,
            "arch": H200.arch,
            "free": list(free),
            "exact": list(exact),
            "itemsize": itemsize,
            "align": align,
            "layout": "packed",
            "flags": flags,
            "configs": [[ms, json.loads(text)] for text, ms in sorted(at.items(), key=lambda pair: pair[1])],
        }
        for (op, free, exact, itemsize, align, flags), at in sorted(found.items())
    ]


def written(source: Mapping[str, Any], tunables: Mapping[str, Tunable]) -> str:
    """The text of the table's file."""
    about = {name: source[name] for name in ("device", "date", "torch", "triton")}
    rows = ",\n".join(f"  {json.dumps(row)}" for row in converted(source["rows"], tunables))
    return f'{{\n "measured": {json.dumps(about)},\n "problems": [\n{rows}\n ]\n}}\n'
