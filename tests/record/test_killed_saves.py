"""A process that is killed while it saves: the record that was there before is there, whole, or the new one is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from burn_torch.module import ModuleRecord

ROOT = Path(__file__).parents[2]
ENDINGS = (".safetensors", ".bpk", ".mpk.gz", ".safetensors.index.json")
PROGRAM = """
    import os, sys
    import numpy as np
    from burn_torch.core.data import TensorData
    from burn_torch.core.dtype import DType
    from burn_torch.module import ModuleRecord
    from burn_torch.module.record import RecordEntry
    from burn_torch.record import ModuleRecord  # imports the formats, once for all children

    def say(line):
        os.write(1, f"{line}\\n".encode())

    def save_on(folder, round, endings):
        while True:
            round += 1
            data = TensorData(np.full((4, 1 << 18), round, np.float32), DType.F32)  # 4 MiB: milliseconds
            entries = {f"w{i}": RecordEntry(data.dtype, data.shape, None, lambda: data) for i in range(2)}
            for ending in endings:
                ModuleRecord(entries, {"round": str(round)}).save(f"{folder}/m{ending}")
                say(f"{ending} {round}")

    for line in sys.stdin:
        folder, round, *endings = line.split()
        child = os.fork()
        if not child:
            save_on(folder, int(round), endings)
        say(f"child {child}")
        os.waitpid(child, 0)
        say("dead 0")
"""


pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")


def survives(folder: Path, kills: int, endings: tuple[str, ...], seed: int) -> tuple[int, int]:
    """Kills a saving process at random moments; after each kill every record loads, and is no older than was told.

    Returns how many kills fell into a save, and how many saves there were.
    """
    rnd = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    reported = dict.fromkeys(endings, 0)
    within = 0
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as server:
        for _ in range(kills):
            start = max(reported.values())
            kill_one(server, folder, start, reported, rnd)
            within += look(folder, start, reported)
        assert server.stdin is not None
        server.stdin.close()
    return within, sum(reported.values())


def kill_one(
    server: subprocess.Popen[str], folder: Path, start: int, reported: dict[str, int], rnd: random.Random
) -> None:
    """Has a child save over and over, from round `start + 1` on, and kills it."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{folder} {start} {' '.join(reported)}\n")
    server.stdin.flush()
    child = 0
    word = ""
    killed = False
    while word != "dead":
        word, number = server.stdout.readline().split()
        if word == "child":
            child = int(number)
        elif word in reported:
            reported[word] = int(number)
        if child and not killed and word in reported:  # it saves: from now on it does nothing else
            time.sleep(rnd.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
            killed = True


def look(folder: Path, start: int, reported: dict[str, int]) -> bool:
    """Every record is whole, and no older than its last save; whether the kill fell into one.

    A record of which the child told nothing may be of its first round, which is `start + 1` for every ending: the
    child before may have been killed between two endings of a round.
    """
    parts = list(folder.glob(".*.part"))
    for ending, last in reported.items():
        path = folder / f"m{ending}"
        if not last and not path.exists():
            continue  # the first save of all was killed
        record = ModuleRecord.load(path)
        number = int(record.metadata["round"])
        assert number in (last, max(last, start) + 1), (ending, number, last, start)
        for entry in record.entries.values():
            assert np.all(entry.read().array == number)
        reported[ending] = number
    for part in parts:
        part.unlink()
    return bool(parts)


@pytest.mark.parametrize("endings", [(".safetensors", ".bpk")])
def test_ten_kills_leave_every_record_whole(tmp_path: Path, endings: tuple[str, ...]) -> None:
    survives(tmp_path, 10, endings, 1)


@pytest.mark.slow
def test_two_hundred_kills_leave_every_record_whole(tmp_path: Path) -> None:
    within = saves = 0
    for i, ending in enumerate(ENDINGS):
        folder = tmp_path / str(i)
        folder.mkdir()
        more, done = survives(folder, 50, (ending,), i)
        within, saves = within + more, saves + done
    print(f"200 kills, {within} of them within a save, {saves} saves")
    assert within >= 50
