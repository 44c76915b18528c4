"""benchmarks/ddp.py, small and on the CPU, as it is run on a machine with GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows(folder: Path, *options: str) -> tuple[int, list[dict[str, object]], str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "ddp.py"), "--tiny", "--rounds", "1", "--warm-up", "1"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--steps", "1", *options], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--processes", "2"],
        pytest.param(["--processes", "1", "2", "--sharded", "--dropout", "0.1"], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_two_processes_are_measured(tmp_path: Path, options: list[str]) -> None:
    code, measured, printed = rows(tmp_path, *options)
    assert code == 0, printed
    assert [row["processes"] for row in measured] == [int(word) for word in options if word in ("1", "2")]
    assert measured[-1]["model"] == "GPT-2 tiny, 4 x 64 tokens a process"
    for row in measured:
        assert row["device"] == "cpu"
        assert isinstance(row["tokens_per_s"], int)
        assert isinstance(row["loss"], float)
        assert row["tokens_per_s"] > 0
        assert 5.5 < row["loss"] < 7.0  # log(512) is 6.2: nothing has been learnt yet
    assert (measured[-1]["times_one"] is None) == (len(measured) == 1)
    assert not list(tmp_path.iterdir())


def test_a_world_that_takes_too_long_is_ended_and_reported(tmp_path: Path) -> None:
    code, measured, _ = rows(tmp_path, "--processes", "1", "--timeout-s", "0.5")
    assert (code, measured) == (1, [{"processes": 1, "failed": "1 processes were not done in 0.5 s"}])
