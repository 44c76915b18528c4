"""The artifact directory, or its lock, is removed under a run: one clear error, and nothing written for another run."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from burn_torch import Device, Module, Tensor
from burn_torch.core.errors import ArtifactError
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import SgdConfig
from burn_torch.train import Learner, LossInput, LossMetric, SilentRenderer, SupervisedTraining, TrainOutput, artifact
from burn_torch.train.artifact import ArtifactDir

DEVICE = Device.cpu().autodiff()
WORDS = r"(?s)no longer this run's.*given: .*run: {}.*expected: .*stays where it is.*mend: .*resume"


class Net(Module):
    linear: Linear

    def train_step(self, x: Tensor) -> TrainOutput[LossInput]:
        loss = self.linear.forward(x).square().mean()
        return TrainOutput.new(self, loss.backward(), LossInput(loss, 2))


class Meddler(SilentRenderer):
    """Does something to the directory after the fifth step; keeps what is said."""

    def __init__(self, does: Any) -> None:
        self.does, self.steps, self.notices = does, 0, []

    def handle(self, event: Any) -> None:
        if type(event).__name__ == "Notice":
            self.notices.append(event.text)
        if type(event).__name__ == "StepDone":
            self.steps += 1
            if self.steps == 5:
                self.does()


def launch(folder: Path, does: Any, monkeypatch: Any, *, every: bool) -> Meddler:
    monkeypatch.setattr(artifact, "_LOOK_EVERY_S", 0.0)
    meddler = Meddler(does)
    training = SupervisedTraining(folder, [Tensor.ones((2, 1), DEVICE) for _ in range(4)], None).num_epochs(3)
    training = training.metrics(LossMetric()).renderer(meddler).async_checkpoints(False)
    training = training.checkpoint_every(steps=1) if every else training
    training.launch(Learner(Net(LinearConfig(1, 1).init(DEVICE)), SgdConfig().init(), 0.1))
    return meddler


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file())


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("how", ["removed", "moved", "a file"])
def test_a_directory_that_is_gone_ends_the_run_in_three_parts(tmp_path, monkeypatch, how, every):
    folder = tmp_path / "run"

    def lose() -> None:
        folder.rename(tmp_path / "elsewhere")
        if how == "moved":
            return
        shutil.rmtree(tmp_path / "elsewhere")
        if how == "a file":
            folder.write_text("mine")

    with pytest.raises(ArtifactError, match=WORDS.format("it was removed, moved or replaced")):
        launch(folder, lose, monkeypatch, every=every)
    assert not (folder / "result.json").exists()
    if how == "a file":
        assert folder.read_text() == "mine"
    else:
        assert not [name for name in files(folder) if not name.endswith(".log")] if folder.exists() else True


@pytest.mark.parametrize("every", [True, False])
def test_a_directory_that_another_run_has_taken_is_left_alone(tmp_path, monkeypatch, every):
    folder, others = tmp_path / "run", []

    def take() -> None:
        folder.rename(tmp_path / "elsewhere")
        others.append(ArtifactDir(folder))
        others[0].claim(resume=False)
        others[0].write_result({"status": "of the other"})

    with pytest.raises(ArtifactError, match=WORDS.format("it was removed, moved or replaced")):
        launch(folder, take, monkeypatch, every=every)
    assert "of the other" in (folder / "result.json").read_text()
    assert not list(folder.glob("checkpoint/*"))
    others[0].release()


def test_a_lock_that_was_removed_is_taken_again_with_a_notice(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    meddler = launch(folder, (folder / ".lock").unlink, monkeypatch, every=False)
    assert [text for text in meddler.notices if ".lock" in text and "it is there again" in text]
    assert (folder / ".lock").exists()
    assert (folder / "result.json").exists()


def test_a_lock_that_was_removed_and_taken_by_another_run_ends_this_one(tmp_path, monkeypatch):
    folder, others = tmp_path / "run", []

    def take() -> None:
        (folder / ".lock").unlink()
        others.append(ArtifactDir(folder))
        others[0].claim(resume=True)

    with pytest.raises(ArtifactError, match=WORDS.format(r"its \.lock was removed, and another run has taken it")):
        launch(folder, take, monkeypatch, every=False)
    others[0].release()


def test_the_look_is_one_question_to_the_file_system_twice_a_second(tmp_path, monkeypatch):
    asked: list[Any] = []
    held = ArtifactDir(tmp_path / "run")
    held.claim(resume=False)
    held.require_held(asked.append)
    monkeypatch.setattr(artifact, "_identity", asked.append)
    for _ in range(100):
        held.require_held(asked.append)
    assert not asked
    held.release()
    assert [path.name for path in held.path.iterdir()] == [".lock"]
