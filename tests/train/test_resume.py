"""A run that was stopped, killed or damaged ends with the bits of one that never was."""

import dataclasses
import json
import math
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from burn_torch import ArtifactError, ConfigError, RecordError
from burn_torch.module import ModuleRecord
from burn_torch.optim import AdamWConfig, CosineAnnealingLrSchedulerConfig
from burn_torch.train import (
    InMemoryMetricLogger,
    KeepLastNCheckpoints,
    Learner,
    LearningRateMetric,
    LossMetric,
    MetricCheckpointingStrategy,
    SilentRenderer,
    Split,
    SupervisedTraining,
)
from burn_torch.train.checkpoint import Checkpoint
from burn_torch.train.event import EpochDone, Notice, RunStarted, SplitDone, StepDone

EPOCHS = 3


class Recorder:
    """Keeps the events that say what was computed, and stops the run after so many steps of a split."""

    def __init__(self, interrupter=None, split=None, after=math.inf):
        self.events, self.notices = [], []
        self.interrupter, self.split, self.left = interrupter, split, after

    def handle(self, event):
        if isinstance(event, StepDone | SplitDone | EpochDone):
            self.events.append(event)
        if isinstance(event, Notice):
            self.notices.append(event.text)
        if isinstance(event, StepDone) and event.split is self.split:
            self.left -= 1
            if self.left == 0:
                self.interrupter.stop("enough")

    def close(self):
        pass


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for split in ("train", "valid")
        for path in sorted((folder / split).rglob("*.log"))
    }


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    """The run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    recorder = Recorder()
    result = program.make_training(folder, EPOCHS).renderer(recorder).launch(program.make_learner())
    assert result.status == "completed"
    return folder, program.digest(result.model), recorder.events, result


def check_same(program, folder, result, whole):
    assert result.status == "completed"
    assert program.digest(result.model) == whole[1]
    assert tree(folder) == tree(whole[0])
    saved = (json.loads((path / "result.json").read_text()) for path in (folder, whole[0]))
    assert next(saved) == next(saved)


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("epochs", [1, 2])
def test_resume_after_an_epoch_gives_the_same_bits(program, whole, tmp_path, workers, epochs):
    folder = tmp_path / "run"
    first = Recorder()
    program.make_training(folder, epochs, workers).renderer(first).launch(program.make_learner())
    second = Recorder()
    training = program.make_training(folder, EPOCHS, 4 - workers).resume().renderer(second)
    result = training.launch(program.make_learner())
    check_same(program, folder, result, whole)
    assert first.events + second.events == whole[2]


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("after", [1, 2, 3, 5, 7, 8, 9])
def test_resume_in_the_middle_of_an_epoch_gives_the_same_bits(program, whole, tmp_path, split, after):
    folder = tmp_path / "run"
    training = program.make_training(folder, EPOCHS, workers=1)
    first = Recorder(training.interrupter(), split, after)
    stopped = training.renderer(first).launch(program.make_learner())
    assert stopped.status == "stopped"
    assert stopped.message == "enough"
    assert "-batch-" in stopped.checkpoint.name
    second = Recorder()
    training = program.make_training(folder, EPOCHS).resume().renderer(second)
    result = training.launch(program.make_learner())
    check_same(program, folder, result, whole)
    steps = [event for event in first.events + second.events if isinstance(event, StepDone)]
    if split is Split.TRAIN:
        assert steps == [event for event in whole[2] if isinstance(event, StepDone)]
    assert not list((folder / "checkpoint").glob("*-batch-*"))  # superseded by epochs that are over


def test_stop_waits_for_the_end_of_an_accumulation_window(program, tmp_path):
    def launch(folder, stop_after=math.inf, resume=False):
        training = program.make_training(folder, 2).grads_accumulation(2).resume(resume)
        return training.renderer(Recorder(training.interrupter(), Split.TRAIN, stop_after)).launch(
            program.make_learner()
        )

    undisturbed = launch(tmp_path / "a")
    stopped = launch(tmp_path / "b", stop_after=3)
    assert stopped.checkpoint.name == "epoch-1-batch-4.safetensors"
    assert program.digest(launch(tmp_path / "b", resume=True).model) == program.digest(undisturbed.model)


@pytest.mark.parametrize(("split", "after", "window"), [(Split.VALID, 2, 1), (Split.TRAIN, 4, 3)])
def test_validation_after_a_resume_shows_the_learning_rate_of_the_last_update(program, tmp_path, split, after, window):
    def training(folder):
        loaders = program.make_loaders()
        run = SupervisedTraining(folder, *loaders).metrics(LossMetric(), LearningRateMetric()).seed(7)
        return run.num_epochs(2).grads_accumulation(window).renderer(SilentRenderer())

    training(tmp_path / "whole").launch(program.make_learner())
    stopped = training(tmp_path / "run")
    recorder = Recorder(stopped.interrupter(), split, after)
    assert stopped.renderer(recorder).launch(program.make_learner()).status == "stopped"
    training(tmp_path / "run").resume().launch(program.make_learner())
    paths = [f"valid/epoch-{epoch}/Learning_Rate.log" for epoch in (1, 2)]
    for path in paths:
        assert (tmp_path / "run" / path).read_text() == (tmp_path / "whole" / path).read_text()


def test_checkpoint_names_the_epoch_and_gives_up_later_ones(program, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    training = program.make_training(folder, EPOCHS).with_checkpointing_strategy(KeepLastNCheckpoints(2))
    result = training.checkpoint(2).launch(program.make_learner())
    check_same(program, folder, result, whole)
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == [
        "epoch-2.safetensors",
        "epoch-3.safetensors",
    ]
    with pytest.raises(
        RecordError, match=r"no checkpoint of epoch 1\n  given: .* with epochs 2, 3\n  expected: .*\n  mend: .*resume"
    ):
        training.checkpoint(1).launch(program.make_learner())


def test_resume_of_a_finished_run_trains_nothing_more(program, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    recorder = Recorder()
    result = program.make_training(folder, EPOCHS).resume().renderer(recorder).launch(program.make_learner())
    check_same(program, folder, result, whole)
    assert recorder.events == []


def test_in_memory_logger_holds_the_whole_history_after_a_resume(program, whole, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    logger = InMemoryMetricLogger()
    program.make_training(folder, EPOCHS).resume().with_metric_logger(logger).launch(program.make_learner())
    for split in Split:
        for name in whole[3].history.names(split):
            for epoch in range(1, EPOCHS + 1):
                assert logger.read_numeric(name, epoch, split) == whole[3].history.values(name, split, epoch)
            assert logger.history.series(name, split) == whole[3].history.series(name, split)


def test_metric_files_are_written_again_from_the_checkpoint(program, whole, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 2).launch(program.make_learner())
    (folder / "train/epoch-1/Loss.log").write_text("1.0\n2.")  # torn
    (folder / "valid/epoch-2/Accuracy.log").unlink()  # lost
    (folder / "train/epoch-3").mkdir()
    (folder / "train/epoch-3/Loss.log").write_text("9.0\n")  # of a future that never was
    result = program.make_training(folder, EPOCHS).resume().launch(program.make_learner())
    check_same(program, folder, result, whole)


# -- damage -----------------------------------------------------------------------------------------
def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["truncated", "flipped header", "flipped data", "empty", "another file"])
def test_a_damaged_checkpoint_is_passed_over_in_one_line(program, whole, tmp_path, damage):
    folder = tmp_path / "run"
    program.make_training(folder, 2).launch(program.make_learner())
    newest = folder / "checkpoint/epoch-2.safetensors"
    match damage:
        case "truncated":
            newest.write_bytes(newest.read_bytes()[:-7])
        case "flipped header":
            flip(newest, 0.1)
        case "flipped data":
            flip(newest, 0.97)
        case "empty":
            newest.write_bytes(b"")
        case "another file":
            shutil.copy(folder / "model.safetensors", newest)
    recorder = Recorder()
    result = program.make_training(folder, EPOCHS).resume().renderer(recorder).launch(program.make_learner())
    check_same(program, folder, result, whole)
    (notice,) = recorder.notices
    assert notice.startswith("checkpoint epoch-2.safetensors is passed over: ")
    assert "\n" not in notice
    assert str(tmp_path) not in notice
    assert notice in (folder / "experiment.log").read_text()


def test_every_flipped_bit_is_noticed(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    path = folder / "checkpoint/epoch-1.safetensors"
    sound = path.read_bytes()
    for at in np.linspace(0, 0.9999, 97):
        path.write_bytes(sound)
        flip(path, at)
        with pytest.raises(RecordError, match=r"no checkpoint of this run can be read"):
            program.make_training(folder, 2).resume().launch(program.make_learner())


def test_all_checkpoints_damaged_is_an_error_that_lists_them(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 2).launch(program.make_learner())
    for path in (folder / "checkpoint").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        RecordError,
        match=r"no checkpoint of this run can be read\n  given:    .*checkpoint:\n +epoch-2.safetensors: it is damaged"
        r"[\s\S]*epoch-1.safetensors: it is damaged[\s\S]*\n  expected: one sound .*\n  mend:     restore one",
    ):
        program.make_training(folder, EPOCHS).resume().launch(program.make_learner())


@pytest.mark.parametrize("part", ["version", "position", "optim", "scheduler", "history", "metrics", "loader", "lr"])
@pytest.mark.parametrize("forged", [None, 3])
def test_a_forged_part_of_a_checkpoint_is_refused(program, whole, tmp_path, part, forged):
    record = ModuleRecord.load(whole[0] / "checkpoint/epoch-3.safetensors")
    about = {**json.loads(record.metadata["checkpoint"]), part: forged}
    metadata = {**record.metadata, "checkpoint": json.dumps(about)}
    path = dataclasses.replace(record, metadata=metadata).save(tmp_path / "forged")
    with pytest.raises(RecordError, match=r"not a checkpoint of a run\n  given:    .*\n  expected: .*\n  mend:     "):
        Checkpoint.from_record(ModuleRecord.load(path))


def test_a_checkpoint_of_another_model_lists_what_differs(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    with pytest.raises(
        RecordError,
        match=r"does not fit Net\n  given:    a record of .*Net:\n +linear1.weight has shape \(6, 8\), the module wants"
        r" \(6, 4\)[\s\S]*linear2.weight has shape[\s\S]*expected:[\s\S]*mend:",
    ):
        program.make_training(folder, 2).resume().launch(program.make_learner(program.make_net(hidden=4)))


def test_a_checkpoint_of_another_optimizer_or_schedule_is_refused(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    learner = program.make_learner()
    with pytest.raises(RecordError, match=r"another optimizer\n  given:    a record of Adam"):
        program.make_training(folder, 2).resume().launch(dataclasses.replace(learner, optim=AdamWConfig().init()))
    other = Learner(learner.model, learner.optim, CosineAnnealingLrSchedulerConfig(0.1, num_iters=5))
    with pytest.raises(RecordError, match=r"another schedule[\s\S]*expected: a record of CosineAnnealing"):
        program.make_training(folder, 2).resume().launch(other)


def test_resume_with_another_seed_is_refused(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    with pytest.raises(ConfigError, match=r"another seed\n  given:    seed\(8\)[\s\S]*mend:     leave seed\(\) out"):
        program.make_training(folder, 2).seed(8).resume().launch(program.make_learner())


def test_resume_in_an_epoch_wants_the_same_loader(program, tmp_path):
    folder = tmp_path / "run"
    training = program.make_training(folder, 2)
    training.renderer(Recorder(training.interrupter(), Split.TRAIN, 7)).launch(program.make_learner())
    other = program.make_training(folder, 2).resume().with_loaders(*program.make_loaders(batch_size=5))
    with pytest.raises(
        ConfigError, match=r"its training loader has changed\n  given:    batch_size 5, was 8, batches 8, was 5"
    ):
        other.launch(program.make_learner())
    recorder = Recorder()  # after an epoch it is allowed, and said
    assert other.checkpoint(1).renderer(recorder).launch(program.make_learner()).status == "completed"
    (notice,) = recorder.notices
    assert notice == ("the training loader has changed, so the bits will differ: batch_size 5, was 8, batches 8, was 5")


def test_resume_without_a_run_is_refused(program, tmp_path):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(ArtifactError, match=r"no run to resume\n  given: .*\n  expected: .*\n  mend: "):
            program.make_training(folder, 1).resume().launch(program.make_learner())
    assert not (tmp_path / "absent").exists()


def test_a_metric_without_state_says_that_it_starts_again(program, tmp_path):
    class Steps:
        name, unit, higher_is_better = "Steps", None, True

        def __init__(self):
            self.clear()

        def update(self, item, metadata):
            self.count += 1
            return 1.0

        def value(self):
            return self.count

        def clear(self):
            self.count = 0

    folder = tmp_path / "run"
    training = program.make_training(folder, 1).metric_train(Steps())
    training.renderer(Recorder(training.interrupter(), Split.TRAIN, 2)).launch(program.make_learner())
    recorder = Recorder()
    training = program.make_training(folder, 1).metric_train(Steps()).resume().renderer(recorder)
    result = training.launch(program.make_learner())
    assert recorder.notices == ["metric Steps keeps no state: in epoch 1 it starts again at the resume"]
    assert result.history.find_metric("Steps", 1, Split.TRAIN) == 3


# -- processes that die --------------------------------------------------------------------------------
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_killed_while_a_checkpoint_is_written(program, start, whole, tmp_path, epoch):
    folder = tmp_path / "run"
    process = start(dir=folder, epochs=EPOCHS, kill_in_write=epoch)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    assert list((folder / "checkpoint").glob(".epoch-*.part"))
    assert not (folder / f"checkpoint/epoch-{epoch}.safetensors").exists()
    recorder = Recorder()
    result = program.make_training(folder, EPOCHS).resume().renderer(recorder).launch(program.make_learner())
    check_same(program, folder, result, whole)
    assert not list((folder / "checkpoint").glob(".*.part"))
    if epoch == 1:
        assert recorder.notices == ["there is no checkpoint yet: the run starts from the beginning"]


def test_resume_in_another_process_gives_the_same_bits(start, whole, tmp_path):
    folder = tmp_path / "run"
    for options in ({"epochs": 1, "workers": 4}, {"epochs": EPOCHS, "workers": 1, "resume": True}):
        process = start(dir=folder, **options)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert json.loads(output.splitlines()[-1]) == {"status": "completed", "digest": whole[1]}
    assert tree(folder) == tree(whole[0])


def test_an_error_while_writing_leaves_the_earlier_checkpoints(program, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    whole_fsync = os.fsync

    def full(descriptor):
        if ".epoch-2.safetensors" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        whole_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match=r"No space left on device"):
        program.make_training(folder, EPOCHS).launch(program.make_learner())
    assert [path.name for path in (folder / "checkpoint").iterdir()] == ["epoch-1.safetensors"]
    assert json.loads((folder / "result.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("operation", ["flush", "rename", "remove"])
def test_a_fault_in_any_file_operation_can_be_resumed(program, whole, tmp_path, monkeypatch, operation):
    """The n-th operation of a run fails, for every n: the resume ends as the run that nobody disturbed."""
    owner, name = {"flush": (os, "fsync"), "rename": (Path, "replace"), "remove": (Path, "unlink")}[operation]
    real = getattr(owner, name)
    calls, fails = 0, 0

    def counted(*args, **options):
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(5, "Input/output error")
        return real(*args, **options)

    for at in range(1, 200):
        folder = tmp_path / f"run-{at}"
        calls = 0
        monkeypatch.setattr(owner, name, counted)
        try:
            result = program.make_training(folder, EPOCHS).launch(program.make_learner())
        except ArtifactError:
            result = None
        monkeypatch.setattr(owner, name, real)
        if calls < at:
            break
        if result is None:
            fails += 1
            started = (folder / ".lock").exists() and not (folder / ".probe").exists()
            training = program.make_training(folder, EPOCHS).resume(started)
            result = training.launch(program.make_learner())
        check_same(program, folder, result, whole)
    assert fails >= {"flush": 5, "rename": 5, "remove": 1}[operation]


# -- which ones stay -------------------------------------------------------------------------------------
def test_default_strategy_keeps_the_last_two_and_the_best(program, tmp_path):
    result = program.make_training(tmp_path / "run", 6).launch(program.make_learner())
    series = result.history.series("Loss")
    best = min(series, key=lambda pair: pair[1])[0]
    kept = {int(path.stem.split("-")[1]) for path in (tmp_path / "run/checkpoint").iterdir()}
    assert kept == {best, 5, 6}


def test_strategies_are_functions_of_the_history(program, tmp_path):
    strategy = MetricCheckpointingStrategy("Accuracy", "highest", "train")
    with pytest.raises(ConfigError, match=r"at least one checkpoint\n  given:    0\n"):
        KeepLastNCheckpoints(0)
    training = program.make_training(tmp_path / "run", 4).with_checkpointing_strategy(strategy)
    result = training.launch(program.make_learner())
    series = result.history.series("Accuracy", Split.TRAIN)
    best = max(series, key=lambda pair: (pair[1], -pair[0]))[0]
    kept = {int(path.stem.split("-")[1]) for path in (tmp_path / "run/checkpoint").iterdir()}
    assert kept == {best, 4}  # the newest one is never removed by the step that wrote it


def test_a_checkpoint_is_a_record_that_anyone_can_read(program, whole):
    record = ModuleRecord.load(whole[0] / "checkpoint/epoch-3.safetensors")
    keys = set(record.entries)
    assert {"model.linear1.weight", "model.norm.running_mean", "optim.norm.gamma.square", "history.train.1.0"} <= keys
    about = json.loads(record.metadata["checkpoint"])
    assert about["position"]["iteration"] == 15
    assert about["versions"].keys() == {"burn_torch", "torch", "numpy", "python"}
    loss = record.entries["history.train.1.0"].read().array
    assert loss[0].tolist() == whole[3].history.values("Loss", Split.TRAIN, 1)
    assert loss[1].tolist() == [8, 8, 8, 8, 5]


def test_run_started_says_where_it_goes_on(program, tmp_path):
    class Started:
        def __init__(self):
            self.found = []

        def handle(self, event):
            if isinstance(event, RunStarted):
                self.found.append((event.starting_epoch, event.total_epochs, event.train_items, event.valid_items))

        def close(self):
            pass

    program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    started = Started()
    program.make_training(tmp_path / "run", 2).resume().renderer(started).launch(program.make_learner())
    assert started.found == [(2, 2, 37, 13)]
