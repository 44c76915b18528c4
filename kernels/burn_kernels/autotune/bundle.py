"""Timings of one machine as a file for another of the same kind: JSON, strict, and nothing in it is executed.

    {"format": "burn_kernels.timings", "version": 1, "timings": [...], "faults": [...]}

Rows keep the device, software and kernel hash under which they were measured, so they serve only where these agree.
Importing adds what is missing and changes no row that is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from burn_kernels.arguments import checked
from burn_kernels.autotune.errors import BundleError
from burn_kernels.autotune.lockfile import write_whole
from burn_kernels.autotune.store import Fault, Place, Store, Timing, is_config, is_numbers

__all__ = ["export_bundle", "import_bundle"]

FORMAT, VERSION = "burn_kernels.timings", 1
MAX_BYTES = 16 << 20


def _is_text(value: object) -> bool:
    # half of a pair, which JSON can hold, is no text that a database can
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode("utf-8") == value


_PLACE: dict[str, Callable[[Any], bool]] = dict.fromkeys(("kernel", "key", "device", "software"), _is_text)
_TIMING = _PLACE | {
    "candidate": _is_text,
    "config": is_config,
    "samples_ms": is_numbers,
    "median_ms": lambda value: is_numbers([value]),
    "eliminated": lambda value: isinstance(value, bool),
    "measured_at": _is_text,
}
_FAULT = _PLACE | {
    "candidate": _is_text,
    "kind": lambda value: value in ("disqualified", "quarantined"),
    "reason": _is_text,
    "seen_at": _is_text,
}


@checked
def export_bundle(store: Store, path: Path) -> int:
    """Writes all rows of a store to a file; returns how many."""
    timings, faults = store.all_timings(), store.all_faults()
    rows = {"timings": [_flat(t) for t in timings], "faults": [_flat(f) for f in faults]}
    try:
        write_whole(path, json.dumps({"format": FORMAT, "version": VERSION} | rows, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise BundleError(
            "autotune: the file cannot be written",
            given=f"{path}: {error}",
            expected="a path in a folder that exists and can be written",
            mend="name another one",
        ) from error
    return len(timings) + len(faults)


@checked
def import_bundle(store: Store, path: Path) -> int:
    """Adds the rows of a file to a store; returns how many are new.

    Raises: BundleError with all that is wrong with the file; then nothing is added.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or set(data) != {"format", "version", "timings", "faults"}:
            raise ValueError("other fields than format, version, timings, faults")
        if (data["format"], data["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {data['format']!r} version {data['version']!r}")
        faults = _faults("timings", data["timings"], _TIMING) + _faults("faults", data["faults"], _FAULT)
        if faults:
            raise ValueError("; ".join(faults[:20]))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(
            "autotune: the file of timings cannot be read",
            given=f"{path}: {error}",
            expected=f"{FORMAT} version {VERSION}, at most {MAX_BYTES} bytes, as export writes it",
            mend="export it again: python -m burn_kernels export FILE",
        ) from error
    timings = [
        Timing(_place(r), r["candidate"], r["config"], tuple(r["samples_ms"]), r["median_ms"], r["eliminated"],
               r["measured_at"])
        for r in data["timings"]
    ]  # fmt: skip
    return store.add(timings, [Fault(_place(r), *(r[n] for n in list(_FAULT)[4:])) for r in data["faults"]])


def _flat(row: Timing | Fault) -> dict[str, object]:
    fields = asdict(row)
    place: dict[str, object] = fields.pop("place")
    return place | fields


def _place(row: Mapping[str, Any]) -> Place:
    return Place(row["kernel"], row["key"], row["device"], row["software"])


def _faults(name: str, rows: object, columns: Mapping[str, Callable[[Any], bool]]) -> list[str]:
    if not isinstance(rows, list):
        return [f"{name} is no list"]
    problems = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or set(row) != set(columns):
            problems.append(f"{name}[{number}]: other fields than {', '.join(columns)}")
            continue
        problems += [
            f"{name}[{number}].{column}: {row[column]!r}"[:200]
            for column in columns
            if not columns[column](row[column])
        ]
    return problems
