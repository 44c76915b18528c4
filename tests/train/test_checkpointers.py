"""Who writes checkpoints, when one is due, and which ones stay."""

import json
import math
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from burn_torch import ArtifactError, ConfigError, RecordError
from burn_torch.cli.durations import seconds_of, steps_or_seconds
from burn_torch.core import files
from burn_torch.module import ModuleRecord
from burn_torch.train import (
    Aggregate,
    AsyncCheckpointer,
    CheckpointEvery,
    ComposedCheckpointingStrategy,
    FileCheckpointer,
    History,
    KeepLastNCheckpoints,
    LossMetric,
    MetricCheckpointingStrategy,
    Split,
    SupervisedTraining,
)
from burn_torch.train.checkpoint import Checkpoint, Checkpointer, CheckpointStore, Position
from burn_torch.train.checkpoint.background import MAX_WAITING
from burn_torch.train.event import CheckpointSaved, StepDone


class Gate(files.Disk):
    """A disk whose flushes wait for `open`, and fail with `error`."""

    def __init__(self, error: OSError | None = None) -> None:
        self.open, self.begun, self.error = threading.Event(), threading.Event(), error

    def flush(self, file):
        if threading.current_thread().name == "checkpoints":
            self.begun.set()
            assert self.open.wait(30)
            if self.error is not None:
                raise self.error
        super().flush(file)


class Told:
    """Keeps which checkpoints are told of, and after which steps."""

    def __init__(self, then=lambda step: None) -> None:
        self.saved, self.steps, self.then = [], 0, then

    def handle(self, event):
        if isinstance(event, CheckpointSaved):
            self.saved.append((Path(event.path).name, self.steps))
        if isinstance(event, StepDone) and event.split is Split.TRAIN:
            self.steps += 1
            self.then(self.steps)

    def close(self):
        pass


@pytest.fixture(scope="module")
def record(program, tmp_path_factory):
    """A sound checkpoint's record."""
    folder = tmp_path_factory.mktemp("made") / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    return ModuleRecord.load(folder / "checkpoint/epoch-1.safetensors")


# -- files -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("background", [False, True])
def test_save_restore_and_delete(record, tmp_path, background):
    checkpointer: Checkpointer = FileCheckpointer(tmp_path / "checkpoint")
    if background:
        checkpointer = AsyncCheckpointer(checkpointer)
    assert isinstance(checkpointer, Checkpointer)
    assert checkpointer.newest(pytest.fail) is None
    partial, whole = Position(epoch=2, batch=7), Position(epoch=2, complete=True)
    first = checkpointer.save(record, partial)
    assert first.name == "epoch-2-batch-7.safetensors"
    second = checkpointer.save(record, whole)
    assert [file.path for file in checkpointer.files()] == [first, second]
    checkpointer.wait()
    assert checkpointer.finished() == [first, second]
    assert checkpointer.finished() == []
    path, checkpoint = checkpointer.restore(2)
    assert path == second
    assert checkpoint.position == Checkpoint.from_record(record).position
    assert checkpointer.newest(pytest.fail)[0] == second
    checkpointer.delete(2)
    assert [file.path for file in checkpointer.files()] == [first]
    with pytest.raises(RecordError, match=r"no checkpoint of epoch 2\n  given: .* with none\n  expected: .*\n  mend: "):
        checkpointer.restore(2)
    checkpointer.save(record, Position(epoch=3, complete=True), superseded=[first])
    checkpointer.wait()
    assert [file.epoch for file in checkpointer.files()] == [3]
    checkpointer.close()


# -- beside the training -----------------------------------------------------------------------------------
def test_a_slow_disk_stops_no_step(program, tmp_path):
    gate = Gate()
    with files.using(gate):
        training = program.make_training(tmp_path / "run", 1).checkpoint_every(steps=2)

        def then(step):
            if step == 4:
                assert gate.begun.wait(10)
                assert not gate.open.is_set()  # the disk has been busy since step 2
                gate.open.set()

        events = Told(then)
        result = training.renderer(events).launch(program.make_learner())
    assert result.status == "completed"
    assert events.saved[0][0] == "epoch-1-batch-2.safetensors"
    assert events.saved[0][1] >= 4
    assert {name for name, _ in events.saved} >= {"epoch-1-batch-4.safetensors", "epoch-1.safetensors"}
    assert (tmp_path / "run/checkpoint/epoch-1.safetensors").exists()


@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_written_later_is_what_was_then(program, tmp_path, compiled):
    """Steps that go on meanwhile, over the memory that a compiled one was given, change nothing in it."""

    class Keeping(Gate):
        def remove(self, path):
            pass

    saved_tensors = {}
    for background in (True, False):
        gate, folder = Keeping(), tmp_path / f"{background}"
        training = program.make_training(folder, 1).compile(compiled).async_checkpoints(background)
        events = Told(lambda step, gate=gate: gate.open.set() if step == 3 else None)
        with files.using(gate):
            training.checkpoint_every(steps=1).renderer(events).launch(program.make_learner())
        paths = sorted((folder / "checkpoint").glob("epoch-1-batch-*.safetensors"))
        saved_tensors[background] = {path.name: load_file(path) for path in paths}
    assert len(saved_tensors[True]) == 5
    assert saved_tensors[True].keys() == saved_tensors[False].keys()
    for name, tensors in saved_tensors[True].items():
        for key, values in tensors.items():
            assert values.tobytes() == saved_tensors[False][name][key].tobytes(), (name, key)


def test_an_error_of_the_writer_ends_the_run_at_the_next_step(program, tmp_path):
    gate = Gate(OSError(28, "No space left on device"))
    events = Told(lambda step: (gate.begun.wait(10), gate.open.set(), time.sleep(0.2)) if step == 3 else None)
    training = program.make_training(tmp_path / "run", 3).checkpoint_every(steps=2).renderer(events)
    with files.using(gate), pytest.raises(ArtifactError, match=r"No space left on device") as caught:
        training.launch(program.make_learner())
    assert events.steps in (3, 4)
    notes = " ".join(caught.value.__notes__)
    assert "while epoch-1-batch-2.safetensors was written beside the training" in notes
    assert "there is no" not in notes
    assert not list((tmp_path / "run/checkpoint").iterdir())


def test_an_error_of_the_last_write_is_not_lost(program, tmp_path):
    gate = Gate(OSError(5, "Input/output error"))
    gate.open.set()
    with files.using(gate), pytest.raises(ArtifactError, match=r"Input/output error"):
        program.make_training(tmp_path / "run", 1).launch(program.make_learner())


def test_a_second_ctrl_c_waits_for_no_disk(program, tmp_path):
    gate = Gate()

    def interrupt():
        for _ in range(2):
            gate.begun.wait(10)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with files.using(gate), pytest.raises(KeyboardInterrupt):
        program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    assert not gate.open.is_set()
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["status"] == "aborted"
    assert result["checkpoint"] is None
    gate.open.set()  # the thread of that run may end


def test_a_run_that_is_broken_off_keeps_its_directory_until_nothing_more_is_written(program, tmp_path, monkeypatch):
    """Else its writer would put a checkpoint beside those of the next run there."""
    monkeypatch.setattr("burn_torch.train.checkpoint.background._PATIENCE_S", 0.1)
    gate, folder = Gate(), tmp_path / "run"

    def then(step):
        if step == 2:
            assert gate.begun.wait(10)
            raise KeyboardInterrupt

    training = program.make_training(folder, 1)
    with files.using(gate):
        with pytest.raises(KeyboardInterrupt):
            training.checkpoint_every(steps=1).renderer(Told(then)).launch(program.make_learner())
        (writer,) = (thread for thread in threading.enumerate() if thread.name == "checkpoints")
        with pytest.raises(ArtifactError, match=r"another run holds[\s\S]*until its last checkpoint is written"):
            training.resume().launch(program.make_learner())
        gate.open.set()
        writer.join(10)
    assert [path.name for path in (folder / "checkpoint").iterdir()] == ["epoch-1-batch-1.safetensors"]
    result = training.resume().launch(program.make_learner())
    whole = program.make_training(tmp_path / "whole", 1).launch(program.make_learner())
    assert program.digest(result.model) == program.digest(whole.model)


def test_closing_drops_what_is_not_begun_and_says_when_nothing_is_written_any_more(
    record, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("burn_torch.train.checkpoint.background._PATIENCE_S", 0.05)
    gate, heard = Gate(), threading.Event()
    checkpointer = AsyncCheckpointer(FileCheckpointer(tmp_path))
    with files.using(gate), caplog.at_level("WARNING"):
        for epoch in (1, 2):
            checkpointer.save(record, Position(epoch=epoch, complete=True))
        assert gate.begun.wait(10)
        checkpointer.close(heard.set)
        assert "epoch-2.safetensors is not written: the run was broken off" in caplog.text
        assert not heard.is_set()
        gate.open.set()
        assert heard.wait(10)
        assert [path.name for path in tmp_path.iterdir()] == ["epoch-1.safetensors"]
    for idle in (AsyncCheckpointer(FileCheckpointer(tmp_path)), FileCheckpointer(tmp_path)):
        heard.clear()
        idle.close(heard.set)
        assert heard.is_set()


def test_a_disk_that_is_slower_than_the_run_is_waited_for(record, tmp_path, caplog):
    gate = Gate()
    checkpointer = AsyncCheckpointer(FileCheckpointer(tmp_path))
    with files.using(gate), caplog.at_level("WARNING"):
        for epoch in range(1, MAX_WAITING + 1):
            checkpointer.save(record, Position(epoch=epoch, complete=True))
        assert len(checkpointer.waiting) == MAX_WAITING
        threading.Timer(1.2, gate.open.set).start()
        begun = time.monotonic()
        checkpointer.save(record, Position(epoch=9, complete=True))
        assert time.monotonic() - begun > 1
        checkpointer.wait()
    assert "waited 1." in caplog.text
    assert "faster than they can be written" in caplog.text
    assert [file.epoch for file in checkpointer.files()] == [*range(1, MAX_WAITING + 1), 9]
    checkpointer.close()


# -- when ------------------------------------------------------------------------------------------------
def test_checkpoints_by_steps_count_from_the_start_of_the_run(program, tmp_path):
    events = Told()
    training = program.make_training(tmp_path / "run", 2).checkpoint_every(steps=3).async_checkpoints(False)
    training.renderer(events).launch(program.make_learner())
    assert [name for name, _ in events.saved] == [
        "epoch-1-batch-3.safetensors",
        "epoch-1-batch-5.safetensors",  # before it validates
        "epoch-1.safetensors",
        "epoch-2-batch-1.safetensors",
        "epoch-2-batch-4.safetensors",
        "epoch-2-batch-5.safetensors",
        "epoch-2.safetensors",
    ]
    assert [step for _, step in events.saved] == [3, 5, 5, 6, 9, 10, 10]
    assert [path.name for path in sorted((tmp_path / "run/checkpoint").iterdir())] == [
        "epoch-1.safetensors",
        "epoch-2.safetensors",
    ]


def test_checkpoints_wait_for_the_end_of_an_accumulation_window(program, tmp_path):
    events = Told()
    training = program.make_training(tmp_path / "run", 1).checkpoint_every(steps=3).grads_accumulation(2)
    training.async_checkpoints(False).renderer(events).launch(program.make_learner())
    assert events.saved[0] == ("epoch-1-batch-4.safetensors", 4)


def test_checkpoints_by_time(program, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def then(step):
        clock[0] += 30

    events = Told(then)
    training = program.make_training(tmp_path / "run", 1).checkpoint_every(minutes=1).async_checkpoints(False)
    training.renderer(events).launch(program.make_learner())
    assert [step for _, step in events.saved] == [2, 4, 5, 5]


def test_never_is_refused():
    with pytest.raises(
        ConfigError, match=r"must be above 0\n  given:    steps=None, seconds=None\n  expected: .*\n  mend: "
    ):
        CheckpointEvery()
    with pytest.raises(ConfigError, match=r"must be above 0\n  given:    steps=0"):
        CheckpointEvery(steps=0)


def test_times_and_steps_as_people_write_them():
    assert seconds_of("90 s") == 90
    assert seconds_of("1h30m") == seconds_of("1:30:00") == seconds_of("1.5 hours") == 5400
    assert seconds_of("2 days") == 172800
    assert [seconds_of(text) for text in ("", "5", "0 s", "0:00:00", "1:99:00", "5 parsecs", "m5", "-5 s")] == [
        None
    ] * 8
    assert steps_or_seconds("500") == steps_or_seconds("500 steps") == (500, None)
    assert steps_or_seconds("1 step") == (1, None)
    assert steps_or_seconds("10m") == (None, 600)
    assert [steps_or_seconds(text) for text in ("0", "often", "1.5 steps", "-3")] == [None] * 4


# -- which ones stay ---------------------------------------------------------------------------------------
def saved(tmp_path, record, strategy, positions, history=None):
    """The names in a folder after checkpoints at these (epoch, batch or None)."""
    store = CheckpointStore(FileCheckpointer(tmp_path), strategy)
    checkpoint = Checkpoint.from_record(record)
    names = []
    for epoch, batch in positions:
        position = Position(epoch=epoch, batch=batch or 5, complete=batch is None)
        object.__setattr__(checkpoint, "position", position)
        if history is not None:
            object.__setattr__(checkpoint, "history", history)
        store.save(checkpoint, _Nameless())
        names.append([re.sub(r"epoch-|\.safetensors", "", file.path.name) for file in store.checkpointer.files()])
    return names


class _Nameless:
    def named_params(self):
        return []


def test_inside_of_an_epoch_the_one_before_stays(record, tmp_path):
    positions = [(1, 2), (1, 4), (1, 6), (1, None), (2, 2), (2, 4), (2, 6), (2, None), (3, 2), (3, None)]
    assert saved(tmp_path, record, KeepLastNCheckpoints(2), positions) == [
        ["1-batch-2"],
        ["1-batch-2", "1-batch-4"],
        ["1-batch-4", "1-batch-6"],
        ["1-batch-6", "1"],
        ["1", "2-batch-2"],
        ["1", "2-batch-2", "2-batch-4"],
        ["1", "2-batch-4", "2-batch-6"],
        ["1", "2"],
        ["1", "2", "3-batch-2"],
        ["2", "3"],
    ]


def test_what_lies_ahead_goes(record, tmp_path):
    positions = [(1, None), (2, None), (3, 2), (2, 3)]
    assert saved(tmp_path, record, KeepLastNCheckpoints(2), positions)[-1] == ["1", "2-batch-3"]


def test_best_and_last_together(record, tmp_path):
    from burn_torch.train.history import EpochSummary, MetricValue

    history = History()
    for epoch, loss in enumerate([3.0, 1.0, 2.0, math.nan, 1.0], 1):
        history.finish(EpochSummary(Split.VALID, epoch, (MetricValue("Loss", loss),)))
    strategy = ComposedCheckpointingStrategy(KeepLastNCheckpoints(1), MetricCheckpointingStrategy("Loss", "lowest"))
    positions = [(epoch, None) for epoch in range(1, 6)]
    assert saved(tmp_path, record, strategy, positions, history)[-1] == ["2", "5"]
    assert strategy.keep([1, 2], history) == {2}
    assert MetricCheckpointingStrategy(aggregate=Aggregate.MEAN).keep([1, 2, 3], history) == {2}


def test_a_strategy_of_nothing_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"no such direction and no such split\n  given:    direction 'up', split 'exam'\n  expected: .*\n  mend:",
    ):
        MetricCheckpointingStrategy("Loss", "up", "exam")


def test_a_strategy_by_a_metric_that_nobody_measures_is_refused(program, tmp_path):
    strategy = ComposedCheckpointingStrategy(KeepLastNCheckpoints(), MetricCheckpointingStrategy("Acuracy", "highest"))
    training = SupervisedTraining(tmp_path / "run", *program.make_loaders()).metrics(LossMetric())
    with pytest.raises(ConfigError, match=r"checkpoints by the valid metric Acuracy\n  expected: .* measured: Loss"):
        training.with_checkpointing_strategy(strategy).launch(program.make_learner())
    training.launch(program.make_learner())  # the default one asks for nothing
