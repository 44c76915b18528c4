"""kill -9 in steps, validation, the writing of a checkpoint: a resume ends with the bits of an undisturbed run."""

import random
import signal

import pytest

from burn_torch.monitor.log import EVENTS, read_events
from burn_torch.train.event import EpochDone, SplitDone, StepDone

EPOCHS, EVERY = 3, 2
WORKERS = (0, 2, 4)


class Steps:
    """Keeps the steps of a run."""

    def __init__(self):
        self.found = []

    def handle(self, event):
        if isinstance(event, StepDone):
            self.found.append(event)

    def close(self):
        pass


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    """The run that nobody disturbed."""
    steps = Steps()
    folder = tmp_path_factory.mktemp("whole") / "run"
    training = program.make_training(folder, EPOCHS).renderer(steps)
    result = training.launch(program.make_learner())
    return program.digest(result.model), result.history.to_state(), steps.found, events(folder)


def events(folder) -> list:
    """Returns what the log of a run says was computed."""
    return [e.event for e in read_events(folder / EVENTS) if isinstance(e.event, StepDone | SplitDone | EpochDone)]


def moments(count: int) -> list[dict]:
    """Random ones, in turn after a training step, during the writing of a checkpoint, after a validation step."""
    rng = random.Random(6)
    kills = []
    for i in range(count):
        where = ("train", "write", "valid")[i % 3]
        after = rng.randint(1, {"train": 14, "write": 60, "valid": 8}[where])
        kills.append({"where": where, "after": after, "delay_s": rng.uniform(0, 0.02)})
    return kills


def killed(start, folder, kill, **options) -> bool:
    """Runs until it is killed; whether it was, rather than done before."""
    process = start(dir=folder, epochs=EPOCHS, every=EVERY, kill=kill, **options)
    _, errors = process.communicate(timeout=120)
    assert process.returncode in (-signal.SIGKILL, 0), errors
    return process.returncode != 0


def check(program, start, folder, whole, kill, workers) -> bool:
    """Kills a run, resumes it with another number of workers, compares; whether it was killed at all."""
    was_killed = killed(start, folder, kill, workers=workers[0])
    steps = Steps()
    training = program.make_training(folder, EPOCHS, workers[1]).checkpoint_every(steps=EVERY)
    result = training.resume().renderer(steps).launch(program.make_learner())
    assert result.status == "completed"
    assert program.digest(result.model) == whole[0]
    assert result.history.to_state() == whole[1]
    assert steps.found == whole[2][len(whole[2]) - len(steps.found) :]
    assert events(folder) == whole[3]
    return was_killed


def test_killed_in_the_middle_of_a_write(program, start, whole, tmp_path):
    assert check(program, start, tmp_path / "run", whole, {"where": "write", "after": 17}, (2, 4))


@pytest.mark.slow
def test_killed_at_twenty_random_moments(program, start, whole, tmp_path, capsys):
    same = []
    for i, kill in enumerate(moments(20)):
        workers = (WORKERS[i % 3], WORKERS[(i // 3) % 3])
        same.append(check(program, start, tmp_path / str(i), whole, kill, workers))
    with capsys.disabled():
        print(f"\n{len(same)} of 20 the same bits, {sum(same)} of them killed before their end")
    assert sum(same) >= 18


@pytest.mark.slow
def test_one_run_killed_again_and_again(program, start, whole, tmp_path, capsys):
    rng = random.Random(7)
    folder, times = tmp_path / "run", 0
    for i in range(40):
        kill = {"where": "write", "after": rng.randint(3, 20)} if i % 2 else {
            "where": "train", "after": rng.randint(1, 3), "delay_s": rng.uniform(0, 0.01)}  # fmt: skip
        if not killed(start, folder, kill, workers=WORKERS[i % 3], resume=i > 0):
            break
        times += 1
    result = program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
    with capsys.disabled():
        print(f"\nkilled {times} times in one run")
    assert times >= 5
    assert program.digest(result.model) == whole[0]
    assert result.history.to_state() == whole[1]
    assert events(folder) == whole[3]
