"""Tests what an error, or a limit of time, leaves behind: a checkpoint from which the run goes on with the same
bits.
"""

import json
import threading
import time

import pytest

from burn_torch import ArtifactError, ConfigError, DataError, NonFiniteError
from burn_torch.core import files
from burn_torch.train import Interrupter, LossMetric, SupervisedTraining
from burn_torch.train.event import Notice, StepDone
from burn_torch.train.interrupt import Deadline


class Watching:
    """Keeps notices, and calls a function at each step."""

    def __init__(self, then=lambda event: None) -> None:
        self.notices, self.then = [], then

    def handle(self, event):
        if isinstance(event, Notice):
            self.notices.append(event.text)
        if isinstance(event, StepDone):
            self.then(event)

    def close(self):
        pass


class Failing:
    """A metric that raises at the n-th batch of the run."""

    name, unit, higher_is_better = "Failing", None, True

    def __init__(self, at, error):
        self.at, self.error, self.seen = at, error, 0

    def update(self, item, metadata):
        self.seen += 1
        if self.seen == self.at:
            raise self.error
        return 1.0

    def value(self):
        return 1.0

    def clear(self):
        pass


class FailingLoader:
    """The batches of a loader, with an error in the place of one."""

    def __init__(self, loader, epoch, batch, error):
        self.loader, self.at, self.error = loader, (epoch, batch), error

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def __len__(self):
        return len(self.loader)

    def to_device(self, device):
        return FailingLoader(self.loader.to_device(device), *self.at, self.error)

    def epoch(self, epoch, start=0):
        for number, batch in enumerate(self.loader.epoch(epoch, start), start + 1):
            if (epoch + 1, number) == self.at:
                raise self.error
            yield batch


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    """The run that nobody disturbed."""
    result = program.make_training(tmp_path_factory.mktemp("whole") / "run", 2).launch(program.make_learner())
    return program.digest(result.model), result.history.to_state()


def go_on(program, folder, whole):
    watching = Watching()
    result = program.make_training(folder, 2).resume().renderer(watching).launch(program.make_learner())
    assert program.digest(result.model) == whole[0]
    return result, watching.notices


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), DataError("a damaged picture")])
def test_an_error_of_the_loader_loses_no_step(program, whole, tmp_path, compiled, error):
    train, valid = program.make_loaders()
    training = program.make_training(tmp_path / "run", 2).compile(compiled)
    training = training.with_loaders(FailingLoader(train, 2, 4, error), valid)
    with pytest.raises(type(error), match=str(error)) as caught:
        training.launch(program.make_learner())
    notes = " ".join(caught.value.__notes__)
    assert "in train batch 4 of epoch 2 (step 9 of the run)" in notes
    assert "epoch-2-batch-3.safetensors: --resume, or resume(), goes on from there" in notes
    assert json.loads((tmp_path / "run/result.json").read_text())["checkpoint"] == "epoch-2-batch-3.safetensors"
    result, notices = go_on(program, tmp_path / "run", whole)
    assert result.history.to_state() == whole[1]
    assert notices == []


def test_an_error_in_a_step_takes_the_schedule_back(program, whole, tmp_path):
    """The learning rate of the failing step was drawn already; the resumed run draws it again."""
    steps = 0

    class Fails(program.Net):
        def train_step(self, batch):
            nonlocal steps
            steps += 1
            if steps == 8:
                raise ZeroDivisionError("mine")
            return super().train_step(batch)

    training = program.make_training(tmp_path / "run", 2).compile(False)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        training.launch(program.make_learner(program.make_net(cls=Fails)))
    assert "epoch-2-batch-2.safetensors" in " ".join(caught.value.__notes__)
    result, _ = go_on(program, tmp_path / "run", whole)
    assert result.history.to_state() == whole[1]


def test_an_error_in_validation_keeps_the_epoch_of_training(program, whole, tmp_path):
    error = ZeroDivisionError("mine")
    train, valid = program.make_loaders()
    training = program.make_training(tmp_path / "run", 2).with_loaders(train, FailingLoader(valid, 1, 2, error))
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        training.launch(program.make_learner())
    assert "epoch-1-batch-5.safetensors" in " ".join(caught.value.__notes__)
    result, _ = go_on(program, tmp_path / "run", whole)
    assert result.history.to_state() == whole[1]


def test_an_error_of_a_metric_is_reported_again_at_the_resume(program, whole, tmp_path):
    training = program.make_training(tmp_path / "run", 2).metric_train(Failing(7, ZeroDivisionError("mine")))
    with pytest.raises(ZeroDivisionError, match="mine"):
        training.launch(program.make_learner())
    result, notices = go_on(program, tmp_path / "run", whole)
    assert notices == ["the metrics lack batch 2 of epoch 2: ZeroDivisionError came while it was measured"]
    lacking = result.history.values("Loss", "train", 2)
    assert len(lacking) == 4  # of 5
    again = program.make_training(tmp_path / "run", 2).resume().renderer(watching := Watching())
    again.launch(program.make_learner())
    assert watching.notices[0] == notices[0]


def test_within_a_window_of_accumulation_nothing_is_saved_and_that_is_said(program, tmp_path):
    train, valid = program.make_loaders()
    loaders = FailingLoader(train, 1, 4, ZeroDivisionError("mine")), valid
    training = program.make_training(tmp_path / "run", 1).with_loaders(*loaders).grads_accumulation(2)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        training.launch(program.make_learner())
    assert caught.value.__notes__[-1] == ("nothing was saved: the error came within a window of gradient accumulation")
    assert not (tmp_path / "run/checkpoint").exists()


def test_before_the_first_step_there_is_nothing_to_save(program, tmp_path):
    train, valid = program.make_loaders()
    loaders = FailingLoader(train, 1, 1, ZeroDivisionError("mine")), valid
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        program.make_training(tmp_path / "run", 1).with_loaders(*loaders).launch(program.make_learner())
    assert len(caught.value.__notes__) == 1
    assert not (tmp_path / "run/checkpoint").exists()


def test_what_fails_to_be_saved_is_noted_on_the_error(program, tmp_path, monkeypatch):
    from burn_torch.train.checkpoint import CheckpointStore

    def full(self, *args):
        raise ArtifactError("no room")

    train, valid = program.make_loaders()
    training = program.make_training(tmp_path / "run", 1)
    training = training.with_loaders(FailingLoader(train, 1, 3, ZeroDivisionError("mine")), valid)
    monkeypatch.setattr(CheckpointStore, "save", full)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        training.launch(program.make_learner())
    assert caught.value.__notes__[-1] == "nothing could be saved: no room"


def test_a_disk_that_failed_meanwhile_is_noted_too(program, tmp_path):
    failing = threading.Event()

    class Broken(files.Disk):
        def flush(self, file):
            if threading.current_thread().name == "checkpoints" and not failing.is_set():
                time.sleep(0.3)
                failing.set()
                raise OSError(5, "Input/output error")
            super().flush(file)

    train, valid = program.make_loaders()
    loaders = FailingLoader(train, 1, 3, ZeroDivisionError("mine")), valid
    training = program.make_training(tmp_path / "run", 1).with_loaders(*loaders).checkpoint_every(steps=2)
    with files.using(Broken()), pytest.raises(ZeroDivisionError, match="mine") as caught:
        training.compile(False).launch(program.make_learner())
    notes = caught.value.__notes__
    assert notes[0] == "a checkpoint could not be written: the record cannot be written"
    assert "saved " in notes[-1]  # it was tried again
    assert [path.name for path in (tmp_path / "run/checkpoint").iterdir()] == ["epoch-1-batch-2.safetensors"]


def test_a_model_that_is_no_good_is_not_saved(program, tmp_path):
    class Diverges(program.Net):
        def classify(self, batch):
            item = super().classify(batch)
            return type(item)(item.loss / (item.loss * 0), item.output, item.targets)

    with pytest.raises(NonFiniteError, match="the loss is not finite"):
        program.make_training(tmp_path / "run", 1).launch(program.make_learner(program.make_net(cls=Diverges)))
    assert not (tmp_path / "run/checkpoint").exists()


# -- a limit of time -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_time_limit_stops_after_the_step_and_saves(program, whole, tmp_path, split, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def then(event):
        clock[0] += 100 if event.split == split else 0

    training = program.make_training(tmp_path / "run", 2).time_limit(250).renderer(Watching(then))
    result = training.launch(program.make_learner())
    assert (result.status, result.message) == ("time_limit", "the time limit of 4 min 10 s")
    assert result.checkpoint.name == f"epoch-1-batch-{3 if split == 'train' else 5}.safetensors"
    assert (tmp_path / "run/model.safetensors").exists()
    assert not training.interrupter().should_stop()
    monkeypatch.undo()
    result, _ = go_on(program, tmp_path / "run", whole)
    assert result.history.to_state() == whole[1]


def test_a_wish_to_stop_outranks_the_time_limit(program, tmp_path):
    interrupter = Interrupter()
    interrupter.stop("first")
    training = program.make_training(tmp_path / "run", 2).time_limit(1e-9).with_interrupter(interrupter)
    result = training.launch(program.make_learner())
    assert (result.status, result.message) == ("stopped", "first")


def test_a_limit_of_nothing_is_refused(program, tmp_path):
    training = SupervisedTraining(tmp_path / "run", *program.make_loaders()).metrics(LossMetric()).time_limit(0)
    with pytest.raises(ConfigError, match=r"given:    time_limit\(0\)\n  expected: .* above 0\n  mend: "):
        training.launch(program.make_learner())


def test_a_deadline_in_words():
    texts = [str(Deadline(seconds)).removeprefix("the time limit of ") for seconds in (7200, 5400, 61.5, 0.25)]
    assert texts == ["2 h", "1 h 30 min", "1 min 1.5 s", "0.25 s"]
