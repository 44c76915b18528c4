"""Values that a training step reads from outside are never frozen; a notice says if they prevent compilation."""

import random
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Module, Tensor
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import SgdConfig
from burn_torch.train import Learner, LossInput, LossMetric, SupervisedTraining, TrainOutput
from burn_torch.train.event import EpochDone, Notice, StepDone

KL = 1.0


class Annealing:
    weight = 1.0

    def now(self) -> float:
        return self.weight


ANNEALING = Annealing()


class Net(Module):
    linear: Linear

    def noise(self) -> float:
        return 0.0

    def train_step(self, x: Tensor) -> TrainOutput[LossInput]:
        loss = self.linear.forward(x).sum() * 0.0 + self.noise()
        return TrainOutput.new(self, loss.backward(), LossInput(loss, 2))

    def valid_step(self, x: Tensor) -> LossInput:
        return LossInput(self.linear.forward(x).sum() * 0.0 + self.noise(), 2)


class Random(Net):
    def noise(self) -> float:
        return random.random() + float(np.random.beta(0.2, 0.2))


class Global(Net):
    def noise(self) -> float:
        return KL


class Attribute(Net):
    def noise(self) -> float:
        return ANNEALING.now()


class Printing(Net):
    def noise(self) -> float:
        print("a step")
        return 1.0


class Reader:
    """Changes what steps read, after each epoch or each step."""

    def __init__(self, each: type) -> None:
        self.texts: list[str] = []
        self._each = each

    def handle(self, event: Any) -> None:
        global KL
        if isinstance(event, Notice):
            self.texts.append(event.text)
        if isinstance(event, self._each):
            KL += 1.0
            ANNEALING.weight += 1.0

    def close(self) -> None:
        pass


def losses(folder, kind, *, compiled, each=EpochDone, batches=4, epochs=3, valid=True):
    """The losses of a run, and what it said."""
    global KL
    KL = ANNEALING.weight = 1.0
    random.seed(7)
    np.random.seed(7)
    device = Device.cpu().autodiff()
    data = [Tensor.zeros((2, 1), device) for _ in range(batches)]
    reader = Reader(each)
    training = SupervisedTraining(folder, data, [Tensor.zeros((2, 1), device.inner())] if valid else None)
    training = training.metrics(LossMetric()).num_epochs(epochs).compile(compiled).renderer(reader)
    result = training.launch(Learner(kind(LinearConfig(1, 1).init(device)), SgdConfig().init(), 0.1))
    values = [
        value
        for split in (("train", "valid") if valid else ("train",))
        for epoch in range(1, epochs + 1)
        for value in result.history.values("Loss", split, epoch)
    ]
    return values, reader.texts


@pytest.mark.parametrize("kind", [Random, Global, Attribute])
def test_a_compiled_run_reads_what_an_eager_one_reads(kind, tmp_path):
    values, texts = losses(tmp_path / "compiled", kind, compiled=True)
    wanted, none = losses(tmp_path / "eager", kind, compiled=False)
    assert values == wanted
    assert len(set(values)) >= 3
    assert not none
    if kind is Random:
        assert any("training runs eagerly" in text and "random.random at" in text and "noise" in text for text in texts)
        assert any("validation runs eagerly" in text for text in texts)
    else:
        assert not texts


def test_a_step_whose_readings_change_each_time_runs_eagerly_and_says_which(tmp_path):
    with pytest.warns(UserWarning, match=r"values outside \(KL: "):
        values, texts = losses(
            tmp_path / "run", Global, compiled=True, each=StepDone, batches=30, epochs=1, valid=False
        )
    assert any("training runs eagerly" in text and "KL: " in text for text in texts)
    assert len(set(values)) > 8


def test_a_step_that_prints_says_so_once(tmp_path, capsys):
    _, texts = losses(tmp_path / "run", Printing, compiled=True)
    assert len([text for text in texts if "prints when it is traced" in text and 'print("a step")' in text]) == 1
    assert 0 < capsys.readouterr().out.count("a step") < 15


def test_a_builder_step_whose_result_is_dropped_is_reported(tmp_path):
    device = Device.cpu().autodiff()
    training = SupervisedTraining(tmp_path / "run", [Tensor.zeros((2, 1), device)], None).renderer(Reader(EpochDone))
    training.num_epochs(5)
    learner = Learner(Net(LinearConfig(1, 1).init(device)), SgdConfig().init(), 0.1)
    with pytest.warns(
        UserWarning, match=r"num_epochs\(\.\.\.\): the result was dropped.*training = training\.num_epochs"
    ):
        training.launch(learner)
