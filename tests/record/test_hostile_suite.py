"""6,000 damaged and hostile files: each ends in one clear error, in little memory and time, and touches nothing else.

The corpus is in `tests/record/hostile`; it is read in a process of its own, since it is watched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAX_SECONDS, MAX_MIB = 5.0, 256

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured with Linux's /proc"
)


def rows(folder: Path, every: int, first: int = 0) -> list[dict[str, Any]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.record.hostile.runner", str(folder), str(every), str(first)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def faults(row: dict[str, Any]) -> list[str]:
    """Returns what is wrong with how a case ended."""
    complaints = []
    if row["how"] not in ("refused", "result") or row["listed"] not in ("refused", "result"):
        complaints.append(f"{row['how']} {row['said']}; inspected: {row['listed']} {row['told']}")
    if row["must"] and row["how"] == "result":
        complaints.append("loaded, and had to be refused")
    if row["how"] == "refused" and not (row["named"] and "\n  given: " in row["said"]):
        complaints.append(f"an error that names no file, or is not in three parts: {row['said']}")
    if row["seconds"] > MAX_SECONDS:
        complaints.append(f"{row['seconds']:.1f} s")
    if row["mib"] > MAX_MIB:
        complaints.append(f"{row['mib']} MiB")
    if row["outside"] or row["ran"]:
        complaints.append(f"touched {row['outside']}, ran {row['ran']}")
    return complaints


def judge(reports: list[dict[str, Any]]) -> None:
    wrong = {row["name"]: complaints for row in reports if (complaints := faults(row))}
    assert not wrong, json.dumps(wrong, indent=1)[:5000]


def test_every_fortieth_of_the_hostile_files(tmp_path: Path) -> None:
    reports = rows(tmp_path, 40, 7)
    assert len(reports) > 120
    assert {row["reader"] for row in reports} >= {"record", "pytorch"}
    judge(reports)


@pytest.mark.slow
def test_all_of_the_hostile_files(tmp_path: Path) -> None:
    reports = rows(tmp_path, 1)
    counts = Counter((row["reader"], "must" if row["must"] else "may", row["how"]) for row in reports)
    print(f"{len(reports)} files: {dict(counts)}")
    print(f"at most {max(row['seconds'] for row in reports):.2f} s and {max(row['mib'] for row in reports)} MiB")
    judge(reports)
    assert sum(row["must"] for row in reports) >= 2_000
    assert sum(row["must"] and row["how"] == "refused" for row in reports) == sum(row["must"] for row in reports)
