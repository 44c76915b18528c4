"""Processes that wait for each other say for whom, and give up in words."""

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import burn_torch.distributed as distributed
from burn_torch import ConfigError
from burn_torch.core.errors import DistributedError
from burn_torch.distributed import joining
from burn_torch.distributed.liveness import ProcessWatch, own_process
from tests.distributed.conftest import ROOT, free_port

DESCRIPTORS = Path("/proc/self/fd")
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """An address at which nothing answers yet."""
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    return "127.0.0.1", port


def client(place: tuple[str, int]) -> Any:
    from torch.distributed import TCPStore

    return TCPStore(*place, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))


def test_who_has_joined_and_who_has_not_is_said_and_then_an_error(place, monkeypatch, capsys):
    monkeypatch.setattr(joining, "_FIRST_TOLD_S", 0.7)
    words = (
        r"(?s)did not come together.*given: +rank 0 of 3 at 127\.0\.0\.1:\d+: in 1 s rank 0 joined, ranks 1, 2 did not"
        r".*expected: 3 processes that all call init\(\) within 1 s.*mend: .*torchrun.*BURN_TORCH_JOIN_S"
    )
    with pytest.raises(DistributedError, match=words):
        joining.join(0, 3, 0, join_s=1.0, prefix="t")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rank 0 of 3 has waited 1 of 1 s at 127.0.0.1:{place[1]}: rank 0 joined, ranks 1, 2 did")


def test_rank_0_that_never_comes_is_named(place, monkeypatch, capsys):
    monkeypatch.setattr(joining, "_FIRST_TOLD_S", 0.2)
    with pytest.raises(DistributedError, match=r"(?s)given: .*rank 0, which holds the store, does not answer there"):
        joining.join(1, 2, 1, join_s=0.5, prefix="t")
    assert "rank 1 of 2 has waited" in capsys.readouterr().err


def test_one_that_joined_and_ended_ends_the_waiting_at_once(place):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    def enter_as_rank_1() -> None:
        time.sleep(0.3)
        store = client(place)
        store.set("t/joined/1", joining.own_process().replace(str(os.getpid()), str(gone.pid)))
        store.add("t/count", 1)

    other = threading.Thread(target=enter_as_rank_1)
    other.start()
    began = time.monotonic()
    with pytest.raises(DistributedError, match=r"(?s)given: .*rank 1 had joined, and ended before the others came"):
        joining.join(0, 3, 0, join_s=30.0, prefix="t")
    other.join()
    assert time.monotonic() - began < 10


def test_a_store_that_ends_while_others_wait_is_reported(place):
    holder = (
        "import time; from datetime import timedelta; from torch.distributed import TCPStore;"
        f"s = TCPStore('127.0.0.1', {place[1]}, is_master=True, wait_for_workers=False);"
        "s.get('t/joined/1'); time.sleep(0.2)"
    )
    process = subprocess.Popen([sys.executable, "-c", holder])
    with pytest.raises(DistributedError, match=r"(?s)given: .*rank 0, which holds the store, ended before all had"):
        joining.join(1, 2, 1, join_s=60.0, prefix="t")
    assert process.wait(30) == 0


@pytest.mark.parametrize("name", ["timeout_s", "silence_s", "join_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "soon", None])
def test_times_to_wait_that_are_none_are_reported(name, value):
    if name == "join_s" and value is None:
        return  # the default
    with pytest.raises(ConfigError, match=rf"(?s){name} is not a time to wait.*given: .*expected: .*mend: "):
        distributed.init(**{name: value})


def test_the_variable_of_the_waiting_time_is_read_and_checked(place, monkeypatch):
    monkeypatch.setenv("BURN_TORCH_JOIN_S", "soon")
    with pytest.raises(
        ConfigError, match=r"(?s)BURN_TORCH_JOIN_S is not a time to wait.*given: .*'soon'.*expected: .*mend: "
    ):
        distributed.init()
    for variable, value in (("BURN_TORCH_JOIN_S", "0.3"), ("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(variable, value)
    with pytest.raises(DistributedError, match=r"within 0\.3 s"):
        distributed.init()


def test_a_port_that_is_none_is_a_distributed_error(place, monkeypatch):
    for port in ("abc", "99999"):
        monkeypatch.setenv("MASTER_PORT", port)
        with pytest.raises(DistributedError, match=rf"(?s)given: .*127\.0\.0\.1:{port}.*expected: .*mend: "):
            joining.join(1, 2, 1, join_s=5.0, prefix="t")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the death of a parent is seen by its descriptor")
def test_a_killed_torchrun_ends_all_ranks_with_one_line_each(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += ["--nproc-per-node=2", "--redirects=3", f"--log-dir={tmp_path}"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    process = subprocess.Popen(
        [*command, str(PROGRAM), "ending", '{"how": "launcher killed"}'],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.wait(90) == -9
    began = time.monotonic()
    files = sorted(tmp_path.glob("*/attempt_0/*/stderr.log"))
    assert len(files) == 2
    for rank, path in enumerate(files):
        line = f"rank {rank} ends with code 137: the launcher (torchrun) is gone, and the store of the run with it"
        while line not in path.read_text():
            assert time.monotonic() - began < 20, path.read_text()
            time.sleep(0.1)
        assert path.read_text().count("\n") < 60  # torch tells of a lost store once at most


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="there is no list of open files here")
def test_watches_of_processes_give_their_descriptors_back() -> None:
    before = len(list(DESCRIPTORS.iterdir()))
    watches = [ProcessWatch(own_process()) for _ in range(20)]
    assert not any(watch.ended() for watch in watches)
    del watches
    assert len(list(DESCRIPTORS.iterdir())) <= before
