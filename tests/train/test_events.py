"""Tests what a run leaves in events.jsonl: all of it, and after a resume what the undisturbed run leaves."""

import json
import logging
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from burn_torch import ConfigError
from burn_torch.module import ModuleRecord
from burn_torch.monitor import (
    CheckpointSaved,
    ControlClient,
    EpochDone,
    LogLine,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    RunView,
    Split,
    SplitStarted,
    StepDone,
    StopRequested,
    is_alive,
    read_events,
)
from burn_torch.train.checkpoint import AsyncCheckpointer, Checkpoint

EPOCHS = 3
BESIDE = (LogLine, Resources, StopRequested, Notice)
"""Holds what happens beside the loop: when it comes is chance."""


def events(folder):
    log = read_events(folder / "events.jsonl")
    got = list(log)
    assert log.damaged == log.skipped == 0
    assert [stamped.number for stamped in got] == list(range(len(got)))
    times = [stamped.time for stamped in got]
    assert times == sorted(times)
    return [stamped.event for stamped in got]


def computed(folder):
    """Returns what the loop has done, without where it was stopped and resumed; and the names of its checkpoints."""
    loop, saved, resumed = [], [], set()
    for event in events(folder):
        if isinstance(event, CheckpointSaved):
            saved.append(Path(event.path).name)
        elif isinstance(event, RunStarted) and event.resumed_from is not None:
            resumed.add(event.resumed_from)
        elif isinstance(event, RunStarted):
            loop.append(replace(event, run_id="", total_epochs=EPOCHS))
        elif not isinstance(event, BESIDE) and not (isinstance(event, SplitStarted) and event.batches_done):
            loop.append(event)
    return loop, [name for name in saved if "-batch-" not in name or name not in resumed]


class Stopper:
    """Stops the run after so many steps of a split, or fails there."""

    def __init__(self, interrupter, split, after, error=None):
        self.interrupter, self.split, self.left, self.error = interrupter, split, after, error

    def handle(self, event):
        if isinstance(event, StepDone) and event.split is self.split:
            self.left -= 1
            if self.left == 0 and self.error is not None:
                raise self.error
            if self.left == 0:
                self.interrupter.stop("enough")

    def close(self):
        pass


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    program.make_training(folder, EPOCHS).launch(program.make_learner())
    return folder, computed(folder)


def test_a_whole_run(program, whole):
    logged = events(whole[0])
    started = logged[0]
    assert (started.total_epochs, started.starting_epoch, started.train_items, started.valid_items) == (3, 1, 37, 13)
    assert [definition.name for definition in started.train_metrics] == ["Loss", "Accuracy", "Learning Rate"]
    assert started.resumed_from is None
    assert started.run_id
    assert set(started.versions) >= {"burn_torch", "torch", "python"}
    for epoch in range(1, EPOCHS + 1):
        steps = [event for event in logged if isinstance(event, StepDone) and event.epoch == epoch]
        assert [step.items_done for step in steps] == [8, 16, 24, 32, 37, 5, 10, 13]
        assert [step.split for step in steps] == [Split.TRAIN] * 5 + [Split.VALID] * 3
    assert [event.epoch for event in logged if isinstance(event, EpochDone)] == [1, 2, 3]
    assert isinstance(logged[-1], RunEnded)
    assert (logged[-1].status, logged[-1].exit_code) == ("completed", 0)


def test_a_view_of_the_log_agrees_with_the_history(program, tmp_path):
    result = program.make_training(tmp_path / "run", 2).launch(program.make_learner())
    view = RunView.of(tmp_path / "run")
    assert view.status == "ended"
    for split in Split:
        for name in result.history.names(split):
            series = view.metrics[name].splits[split]
            assert series.epochs == result.history.series(name, split)
            values = [y for _, y in series.series.points()]
            assert values == [value for epoch in (1, 2) for value in result.history.values(name, split, epoch)]


@pytest.mark.parametrize(
    ("split", "after", "background"),
    [(Split.TRAIN, 3, True), (Split.TRAIN, 10, False), (Split.VALID, 1, False), (Split.VALID, 7, True)],
)
def test_events_after_a_resume_are_those_of_the_undisturbed_run(program, whole, tmp_path, split, after, background):
    folder = tmp_path / "run"
    training = program.make_training(folder, EPOCHS, workers=1).async_checkpoints(background)
    training.renderer(Stopper(training.interrupter(), split, after)).launch(program.make_learner())
    stopped = events(folder)
    assert isinstance(stopped[-1], RunEnded)
    assert stopped[-1].status == "stopped"
    assert stopped[-1].message == "enough"
    (asked,) = [event for event in stopped if isinstance(event, StopRequested)]
    assert (asked.reason, asked.how) == ("enough", "stop")
    program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
    assert computed(folder) == whole[1]
    first, second = [event for event in events(folder) if isinstance(event, RunStarted)]
    assert first.run_id == second.run_id
    assert second.resumed_from is not None


def test_a_checkpoint_superseded_just_before_a_kill_is_reported_after_the_resume(program, tmp_path, monkeypatch):
    def begun(folder):
        return program.make_training(folder, 1).checkpoint_every(steps=1)

    begun(tmp_path / "whole").launch(program.make_learner())
    folder = tmp_path / "run"
    training = begun(folder)
    with monkeypatch.context() as patch:  # what was written is told of once the run has ended
        patch.setattr(AsyncCheckpointer, "finished", lambda self: [])
        training.renderer(Stopper(training.interrupter(), Split.TRAIN, 4)).launch(program.make_learner())
    (newest,) = folder.glob("checkpoint/*-batch-4.safetensors")
    seen = Checkpoint.from_record(ModuleRecord.load(newest)).events[0]
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes()[:seen])  # what waited for the next flush went with the process
    assert "batch-1." not in "".join(path.name for path in folder.glob("checkpoint/*"))
    begun(folder).resume().launch(program.make_learner())
    names = [
        [Path(e.path).name for e in events(tmp_path / one) if isinstance(e, CheckpointSaved)]
        for one in ("whole", "run")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize(("split", "after"), [(Split.TRAIN, 7), (Split.VALID, 5)])
def test_events_after_an_error_and_a_resume(program, whole, tmp_path, split, after):
    folder = tmp_path / "run"
    training = program.make_training(folder, EPOCHS)
    with pytest.raises(ZeroDivisionError, match="mine"):
        training.renderer(Stopper(None, split, after, ZeroDivisionError("mine"))).launch(program.make_learner())
    failed = events(folder)
    assert isinstance(failed[-1], RunEnded)
    assert (failed[-1].status, failed[-1].exit_code, failed[-1].message) == ("failed", 1, "mine")
    text = [event.text for event in failed if isinstance(event, LogLine) and event.stream == "log"]
    assert "ZeroDivisionError: mine" in text
    program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
    assert computed(folder) == whole[1]


def test_a_resume_that_trains_nothing_more_changes_nothing(program, whole, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, EPOCHS).launch(program.make_learner())
    for _ in range(2):
        program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
        assert computed(folder) == whole[1]


def test_a_resume_of_an_earlier_epoch_gives_up_the_events_of_later_ones(program, whole, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, EPOCHS).launch(program.make_learner())
    program.make_training(folder, EPOCHS).checkpoint(2).launch(program.make_learner())
    assert computed(folder) == whole[1]


def _remove(path):
    path.unlink()


def _truncate(path):
    path.write_bytes(path.read_bytes()[:1500])


def _flip(path):
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 97):
        data[at] ^= 0x15
    path.write_bytes(data)


def _zero(path):
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [_remove, _truncate, _flip, _zero])
def test_a_damaged_log_never_harms_the_run(program, whole, tmp_path, damage):
    folder = tmp_path / "run"
    program.make_training(folder, 2).launch(program.make_learner())
    damage(folder / "events.jsonl")
    result = program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
    assert result.status == "completed"
    saved = (json.loads((path / "result.json").read_text()) for path in (folder, whole[0]))
    assert next(saved) == next(saved)
    view = RunView.of(folder)
    assert view.status == "ended"
    assert view.metrics["Loss"].splits[Split.VALID].epochs[-1][0] == EPOCHS


def test_a_log_that_cannot_be_opened_is_reported_before_any_work(program, tmp_path):
    folder = tmp_path / "run"
    (folder / "events.jsonl").mkdir(parents=True)
    with pytest.raises(OSError, match=r"events of the run cannot be written\n  given: .*events.jsonl.*\n  expected: "):
        program.make_training(folder, 1).launch(program.make_learner())


def test_checkpoints_of_before_there_were_events_still_load(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    (path,) = (folder / "checkpoint").iterdir()
    record = ModuleRecord.load(path)
    about = json.loads(record.metadata["checkpoint"])
    assert about["version"] == 2
    assert about.pop("events")[1] > 8
    old = ModuleRecord(record.entries, {**record.metadata, "checkpoint": json.dumps({**about, "version": 1})})
    old.save(path)
    (folder / "events.jsonl").unlink()
    assert Checkpoint.from_record(ModuleRecord.load(path)).events == (0, 0)
    program.make_training(folder, 2).resume().launch(program.make_learner())
    logged = events(folder)
    assert logged[0].resumed_from == "epoch-1.safetensors"
    assert [event.epoch for event in logged if isinstance(event, EpochDone)] == [2]


# -- what happens beside the loop --------------------------------------------------------------------------
class Talker:
    """Prints, warns and logs in the loop's thread."""

    def __init__(self):
        self.once = True

    def handle(self, event):
        if isinstance(event, StepDone) and self.once:
            self.once = False
            print("to stdout")
            print("to", "stderr", file=sys.stderr, end="")
            print("a bar 1 %\ra bar 100 %\ntwo", "parts", sep="\n")
            logging.getLogger("burn_torch.train").warning("a warning")
            logging.getLogger("elsewhere").warning("not ours")

    def close(self):
        pass


def test_what_is_printed_is_reported_and_printed_all_the_same(program, tmp_path, capsys):
    out, err = sys.stdout, sys.stderr
    program.make_training(tmp_path / "run", 1).with_event_reader(Talker()).launch(program.make_learner())
    assert (sys.stdout, sys.stderr) == (out, err)
    printed = capsys.readouterr()
    assert printed.out == "to stdout\na bar 1 %\ra bar 100 %\ntwo\nparts\n"
    assert printed.err == "to stderr"
    lines = [event for event in events(tmp_path / "run") if isinstance(event, LogLine)]
    assert [line.text for line in lines if line.stream == "stdout"] == ["to stdout", "a bar 100 %", "two", "parts"]
    assert [line.text for line in lines if line.stream == "stderr"] == ["to stderr"]
    assert "a warning" in [line.text for line in lines if line.stream == "log"]
    assert "not ours" not in [line.text for line in lines]


class Waiter:
    """Holds the run at its first step until somebody lets it go."""

    def __init__(self):
        self.there, self.go = threading.Event(), threading.Event()

    def handle(self, event):
        if isinstance(event, StepDone):
            self.there.set()
            assert self.go.wait(20.0)

    def close(self):
        pass


def test_a_stop_over_the_control_socket_ends_the_run_with_a_checkpoint(program, tmp_path):
    folder, waiter, results = tmp_path / "run", Waiter(), []
    training = program.make_training(folder, EPOCHS).renderer(waiter)
    learner = program.make_learner()
    thread = threading.Thread(target=lambda: results.append(training.launch(learner)))
    thread.start()
    assert waiter.there.wait(20.0)
    assert is_alive(folder)
    assert RunView.of(folder).status == "running"
    assert ControlClient(folder).send("stop")["ok"]
    waiter.go.set()
    thread.join(20.0)
    (result,) = results
    assert (result.status, result.message) == ("stopped", "a viewer's command")
    assert result.checkpoint.name == "epoch-1-batch-1.safetensors"
    (asked,) = [event for event in events(folder) if isinstance(event, StopRequested)]
    assert asked.how == "stop"
    assert not is_alive(folder)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("control")) == []
    waiter.go.set()
    assert training.resume().launch(learner).status == "completed"  # the command was for the run that it stopped


def test_what_the_machine_does_is_reported(program, tmp_path, monkeypatch):
    from burn_torch.monitor import resources

    monkeypatch.setattr(resources.ResourceSampler.__init__, "__kwdefaults__", {"every_s": 0.01})
    waiter = Waiter()
    threading.Thread(target=lambda: (waiter.there.wait(20.0), time.sleep(0.3), waiter.go.set())).start()
    program.make_training(tmp_path / "run", 1).renderer(waiter).launch(program.make_learner())
    samples = [event for event in events(tmp_path / "run") if isinstance(event, Resources)]
    assert len(samples) > 3
    if Path("/proc/meminfo").exists():
        last = samples[-1]
        assert 0 <= last.cpu_percent <= 100
        assert 1 << 20 < last.process_memory_bytes < last.memory_bytes < last.memory_total_bytes


def test_a_checkpoint_over_the_control_socket_changes_nothing_else(program, whole, tmp_path):
    folder, waiter, results = tmp_path / "run", Waiter(), []
    training = program.make_training(folder, EPOCHS).renderer(waiter)
    learner = program.make_learner()
    thread = threading.Thread(target=lambda: results.append(training.launch(learner)))
    thread.start()
    assert waiter.there.wait(20.0)
    assert ControlClient(folder).send("checkpoint") == {"v": 1, "ok": True, "text": "the run saves after this step"}
    waiter.go.set()
    thread.join(20.0)
    loop, saved = computed(folder)
    assert loop == whole[1][0]
    assert saved == ["epoch-1-batch-1.safetensors", *whole[1][1]]


# -- TensorBoard, live --------------------------------------------------------------------------------------
def test_tensorboard_files_are_written_while_the_run_goes_on(program, tmp_path):
    pytest.importorskip("tensorboard")
    folder = tmp_path / "run"
    training = program.make_training(folder, EPOCHS).tensorboard()
    training.renderer(Stopper(training.interrupter(), Split.VALID, 5)).launch(program.make_learner())
    assert list(folder.glob("tensorboard/train/events.out.tfevents.*"))
    result = program.make_training(folder, EPOCHS).tensorboard().resume().launch(program.make_learner())
    for split in Split:
        (path,) = folder.glob(f"tensorboard/{split}/events.out.tfevents.*")  # the first one is replaced
        scalars = _scalars(path)
        values = [value for epoch in (1, 2, 3) for value in result.history.values("Loss", split, epoch)]
        assert [step for step, _ in scalars["batch/Loss"]] == list(range(1, len(values) + 1))
        assert [value for _, value in scalars["batch/Loss"]] == pytest.approx(values)
        assert scalars["epoch/Loss"] == [
            (epoch, pytest.approx(value)) for epoch, value in result.history.series("Loss", split)
        ]


def _scalars(path):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    scalars = {}
    for event in LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.HasField("simple_value"):
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    return scalars


def test_a_reader_that_fails_does_not_harm_the_run(program, whole, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from burn_torch.monitor.tensorboard import TensorBoardWriter

    def failing(self, stamped):
        raise OSError("no room")

    monkeypatch.setattr(TensorBoardWriter, "apply", failing)
    folder = tmp_path / "run"
    program.make_training(folder, EPOCHS).tensorboard().launch(program.make_learner())
    assert computed(folder) == whole[1]
    notices = [event.text for event in events(folder) if isinstance(event, Notice)]
    assert "TensorBoardWriter has failed, the run goes on without it: no room" in notices


def test_tensorboard_without_its_package(program, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"cannot be written\n  given: .*without.*\n  expected: .*\n  mend: .*pip install"
    ):
        program.make_training(tmp_path / "run").tensorboard()


def test_events_have_the_same_names_under_training():
    """The module that only passes them on had no list of them any more, so `import *` took others too."""
    from burn_torch.monitor import event as monitored
    from burn_torch.train import event as trained

    assert trained.__all__ == monitored.__all__
    assert all(getattr(trained, name) is getattr(monitored, name) for name in trained.__all__)
