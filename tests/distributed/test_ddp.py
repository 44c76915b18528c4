"""Training by several processes against one process with the whole batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch.monitor import read_events
from burn_torch.train import SingleDevice
from burn_torch.train.event import CheckpointSaved
from tests.distributed import small

ROOT = Path(__file__).parents[2]


def alone(folder: Path, **options: Any) -> dict[str, Any]:
    return small.run({"dir": folder, **options}, SingleDevice())


def require_equal(actual: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The same losses, metrics and parameters up to the order of sums in float32."""
    assert actual["series"].keys() == wanted["series"].keys()
    for name, values in wanted["series"].items():
        np.testing.assert_allclose(actual["series"][name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    for name, values in wanted["final"].items():
        np.testing.assert_allclose(actual["final"][name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    for path, values in wanted["params"].items():
        np.testing.assert_allclose(actual["params"][path], values, rtol=1e-5, atol=1e-6, err_msg=path)


def test_two_processes_train_as_one_does(launch: Callable[..., Any], tmp_path: Path) -> None:
    one, other = launch("training", dir=str(tmp_path / "two")).results()
    require_equal(one, alone(tmp_path / "one"))
    assert one["digest"] == other["digest"]
    assert one["series"] == other["series"]
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "one").iterdir())


def test_a_shard_waits_for_gradients_that_only_another_one_needs(launch: Callable[..., Any], tmp_path: Path) -> None:
    """A transfer of gradients of which a process updates nothing was dead code there, and the others hung in it."""
    results = launch("training", dir=str(tmp_path / "two"), sharded=True, bucket_bytes=1, epochs=1).results()
    require_equal(results[0], alone(tmp_path / "one", epochs=1))
    assert results[0]["digest"] == results[1]["digest"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "options"),
    [
        (3, {}),
        (2, {"compiled": False}),
        (2, {"accumulation": 3}),
        (3, {"accumulation": 2, "compiled": False, "sharded": True}),
        (2, {"sharded": True}),
        (2, {"fused": True}),  # fusion had opened the wait for a transfer, and waited no more
    ],
)
def test_so_do_others(launch: Callable[..., Any], tmp_path: Path, world: int, options: dict[str, Any]) -> None:
    results = launch("training", world=world, dir=str(tmp_path / "many"), **options).results()
    options = {name: value for name, value in options.items() if name != "sharded"}
    require_equal(results[0], alone(tmp_path / "one", **options))
    assert len({one["digest"] for one in results}) == 1
    assert results[0]["states"] == 4
    if "sharded" in options:
        assert sum(one["own"] for one in results) == 4


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(launch: Callable[..., Any], tmp_path: Path) -> None:
    wanted = alone(tmp_path / "whole", epochs=3)
    folder = tmp_path / "parts"
    launch("training", world=3, dir=str(folder), epochs=1, sharded=True).results()
    launch("training", world=2, dir=str(folder), epochs=2, sharded=True, resume=True).results()
    require_equal(alone(folder, epochs=3, resume=True), wanted)


@pytest.mark.slow
def test_a_process_that_fails_in_a_step_ends_the_run(launch: Callable[..., Any], tmp_path: Path) -> None:
    ended = launch("training", dir=str(tmp_path), fails="1", compiled=False)
    assert ended.codes == [1, 1]
    assert "the first failure, of rank 1:" in ended.err[0]
    assert "ZeroDivisionError: mine" in ended.err[0].split("rank 0 ends")[0]
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_a_process_that_is_asked_to_stop_stops_all_and_the_run_goes_on(
    launch: Callable[..., Any], tmp_path: Path
) -> None:
    wanted = alone(tmp_path / "whole", stops="none")
    results = launch("training", dir=str(tmp_path / "parts"), stops="1").results()
    assert [one["status"] for one in results] == ["stopped", "stopped"]
    assert results[0]["message"] == "the third step"
    assert [path.name for path in (tmp_path / "parts" / "checkpoint").iterdir()] == ["epoch-1-batch-3.safetensors"]
    resumed = launch("training", dir=str(tmp_path / "parts"), resume=True, stops="none").results()
    require_equal(resumed[0], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_is_asked_for_a_checkpoint_has_it_written(
    launch: Callable[..., Any], tmp_path: Path, rank: str
) -> None:
    results = launch("training", dir=str(tmp_path), saves=rank, epochs=1).results()
    assert [one["status"] for one in results] == ["completed", "completed"]
    events = [event.event for event in read_events(tmp_path / "events.jsonl")]
    saved = [Path(event.path).name for event in events if isinstance(event, CheckpointSaved)]
    assert saved == ["epoch-1-batch-3.safetensors", "epoch-1.safetensors"]


@pytest.mark.slow
def test_torchrun_starts_it(tmp_path: Path) -> None:
    options = json.dumps({"dir": str(tmp_path / "two"), "compiled": False})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "distributed" / "program.py"), "training", options],
        capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    require_equal(lines[0], alone(tmp_path / "one"))
