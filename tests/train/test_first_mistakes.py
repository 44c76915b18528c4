"""Mistakes that newcomers make with a training, each told in three parts where it is made."""

import errno
import math
import os
import re
from typing import Any

import pytest
import torch

from burn_torch import Device, Module, Tensor
from burn_torch.core.errors import ArgumentError, ArtifactError, ConfigError
from burn_torch.data import DataLoader
from burn_torch.module import GradientsParams
from burn_torch.monitor.event import MetricValue
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import ConstantLr, CosineAnnealingLrSchedulerConfig, SgdConfig
from burn_torch.train import (
    EvaluatorBuilder,
    FileMetricLogger,
    Learner,
    LossInput,
    LossMetric,
    SilentRenderer,
    SupervisedTraining,
    TorchModel,
    TrainOutput,
)
from burn_torch.train.logger.application import LOG, FileApplicationLogger, installed
from burn_torch.train.metric.base import Split

DEVICE = Device.cpu().autodiff()


class Net(Module):
    linear: Linear

    def item(self, x: Tensor) -> LossInput:
        return LossInput(self.linear.forward(x).square().mean(), 2)

    def train_step(self, x: Tensor) -> Any:
        item = self.item(x)
        return TrainOutput.new(self, item.loss.backward(), item)


class GivesLoss(Net):
    def train_step(self, x: Tensor) -> Any:
        return self.item(x).loss


class GivesItem(Net):
    def train_step(self, x: Tensor) -> Any:
        return self.item(x)


class GivesNothing(Net):
    def train_step(self, x: Tensor) -> Any:
        self.item(x).loss.backward()


class GivesLossAsGradients(Net):
    def train_step(self, x: Tensor) -> Any:
        item = self.item(x)
        return TrainOutput.new(self, item.loss, item)


class YieldsNothing(Net):
    def train_step(self, x: Tensor) -> Any:
        yield self.item(x)


def batches(count: int = 4) -> list[Tensor]:
    return [Tensor.ones((2, 1), DEVICE) for _ in range(count)]


def learner(kind: Any = Net, lr: Any = 0.1) -> Learner[Any]:
    return Learner(kind(LinearConfig(1, 1).init(DEVICE)), SgdConfig().init(), lr)


def training(folder: Any, reader: Any = None) -> SupervisedTraining:
    return SupervisedTraining(folder, batches(), None).renderer(SilentRenderer() if reader is None else reader)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("kind", "what"),
    [(GivesLoss, "a Tensor"), (GivesItem, "a LossInput"), (GivesNothing, "None"), (YieldsNothing, "a LossInput")],
)
def test_a_train_step_without_a_train_output_is_reported(tmp_path, kind, what, compiled):
    complaint = (
        rf"(?s)returned no TrainOutput.*given: +{what} from {kind.__name__}\.train_step"
        r".*expected: a TrainOutput.*mend: +return TrainOutput\.new"
    )
    with pytest.raises(ConfigError, match=complaint):
        training(tmp_path / "run").compile(compiled).launch(learner(kind))


class ForLightning(Net):
    def train_step(self, x: Tensor, batch_idx: int) -> Any:
        raise AssertionError("it is not called")

    def validation_step(self, x: Tensor, batch_idx: int) -> Any:
        return self.item(x)


class ForNobody(Net):
    def train_step(self, *, batch: Tensor) -> Any:
        raise AssertionError("it is not called")

    def valid_step(self) -> Any:
        raise AssertionError("it is not called")


class ForTorch(torch.nn.Linear):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise AssertionError("it is not called")


class WithWrongTypeInside(Net):
    def train_step(self, x: Tensor) -> Any:
        return self.item(x, 3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "train", "valid"),
    [
        (ForLightning, r"train_step\(x, batch_idx\)", "in the place of validation_step"),
        (ForNobody, r"train_step\(\*, batch\)", r"valid_step\(\)"),
    ],
)
def test_steps_that_take_no_batch_are_reported_before_the_run(tmp_path, kind, train, valid):
    run = SupervisedTraining(tmp_path / "run", batches(), batches()).renderer(SilentRenderer())
    complaint = rf"(?s)given: +{kind.__name__}\.({train}).*expected: .*train_step\(batch\).*mend: .*self, batch"
    with pytest.raises(ConfigError, match=rf"{complaint}") as caught:
        run.launch(learner(kind))
    assert re.search(valid, str(caught.value))
    with pytest.raises(ConfigError, match=complaint):
        learner(kind).train_step(batches(1)[0], 1)
    with pytest.raises(ConfigError, match=r"(?s)given: .*expected: .*valid_step\(batch\).*mend: .*self, batch"):
        EvaluatorBuilder(tmp_path / "evaluation").metrics(LossMetric()).build(learner(kind).model)


@pytest.mark.parametrize("step", [None, ForTorch.training_step, lambda batch: None])
def test_steps_of_torch_modules_that_take_no_batch_are_reported(tmp_path, step):
    module = ForTorch(1, 1)
    model = module if step is None else TorchModel(module, step)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"(?s)given: .*expected: .*train_step\(batch\).*mend: .*batch\)"):
        training(tmp_path / "run").launch(Learner(model, optimizer, 0.1))


def test_a_wrong_type_inside_of_a_step_stays_what_it_is(tmp_path):
    with pytest.raises(TypeError, match=r"item\(\) takes 2 positional arguments"):
        training(tmp_path / "run").launch(learner(WithWrongTypeInside))


class WithoutItem(Net):
    def train_step(self, x: Tensor) -> Any:
        return TrainOutput.new(self, self.item(x).loss.backward(), None)


class UpdatesNothing(Net):
    def optimize(self, optim: Any, lr: float, grads: Any) -> Any:
        return optim.step(lr, self, grads)[0]


def test_metrics_without_an_item_are_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"(?s)no item.*given: +None .*Loss.*expected: .*mend: .*LossInput\("):
        training(tmp_path / "run").metrics(LossMetric()).launch(learner(WithoutItem))
    assert training(tmp_path / "plain").launch(learner(WithoutItem)).status == "completed"


def test_an_own_update_without_an_optimizer_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"(?s)given: +a UpdatesNothing from .*optimize.*expected: .*mend: "):
        training(tmp_path / "run").launch(learner(UpdatesNothing))


def test_a_loss_in_the_place_of_gradients_is_reported(tmp_path):
    with pytest.raises(ArgumentError, match=r"(?s)takes gradients.*given: +a Tensor.*expected: .*mend: .*backward"):
        training(tmp_path / "run").launch(learner(GivesLossAsGradients))


def test_a_model_in_the_place_of_a_learner_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"(?s)takes a Learner.*given: +a Linear.*expected: .*mend: +launch\(L"):
        training(tmp_path / "run").launch(LinearConfig(1, 1).init(DEVICE))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.num_epochs(2.5), r"num_epochs\(2\.5\)"),
        (lambda t: t.num_epochs("2"), r"num_epochs\('2'\)"),
        (lambda t: t.grads_accumulation(2.5), r"grads_accumulation\(2\.5\)"),
        (lambda t: t.num_epochs(True), r"num_epochs\(True\)"),
        (lambda t: t.checkpoint_every(steps=2.5), r"steps=2\.5"),
        (lambda t: t.checkpoint_every(steps="2"), r"steps='2'"),
    ],
)
def test_counts_that_are_none_are_reported(tmp_path, change, complaint):
    with pytest.raises(ConfigError, match=rf"(?s){complaint}.*expected: .*mend: "):
        change(training(tmp_path / "run")).launch(learner())


@pytest.mark.parametrize("lr", [-0.1, math.nan, math.inf])
def test_a_learning_rate_that_would_not_train_is_reported(lr):
    with pytest.raises(ConfigError, match=r"(?s)cannot train with this.*given: .*expected: a finite number.*mend: "):
        learner(lr=lr)


def test_a_constant_schedule_that_would_not_train_is_reported():
    with pytest.raises(ConfigError, match=r"(?s)cannot train with this.*given: .*expected: a finite number.*mend: "):
        learner(lr=ConstantLr(-0.1))


def test_an_optimizer_with_a_closure_is_reported():
    net = torch.nn.Linear(1, 1)
    with pytest.raises(ConfigError, match=r"(?s)calls the loss several times.*given: .*LBFGS.*expected: .*mend: "):
        Learner(net, torch.optim.LBFGS(net.parameters()), 0.1)


def test_an_error_of_a_metric_names_the_batch_that_it_measured(tmp_path):
    class Bad(LossMetric):
        def measure(self, item, metadata):
            if metadata.iteration == 3:
                raise ValueError("three")
            return super().measure(item, metadata)

    with pytest.raises(ValueError, match="three") as caught:
        training(tmp_path / "run").metrics(Bad()).launch(learner())
    assert any("in train batch 3 of epoch 1 (step 3 of the run)" in note for note in caught.value.__notes__)


def test_another_schedule_of_the_same_kind_is_reported(tmp_path):
    class Reader(SilentRenderer):
        def handle(self, event: Any) -> None:
            if type(event).__name__ == "Notice":
                notices.append(event.text)

    notices: list[str] = []
    cosine = CosineAnnealingLrSchedulerConfig
    run = training(tmp_path / "run", Reader())
    run.launch(learner(lr=cosine(0.1, num_iters=20)))
    run.num_epochs(2).resume().launch(learner(lr=cosine(0.1, num_iters=20)))
    assert not notices
    run.num_epochs(3).resume().launch(learner(lr=cosine(0.5, num_iters=40)))
    assert any("the learning rate is another" in text and "0.5" in text and "0.1" in text for text in notices)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")  # noqa: PTH110
def test_a_full_disk_is_an_artifact_error_while_files_are_closed(tmp_path, monkeypatch):
    from burn_torch.train.logger import metric

    monkeypatch.setattr(metric, "append_to", lambda path: open("/dev/full", "a", encoding="utf-8"))  # noqa: PTH123, SIM115
    logger = FileMetricLogger(tmp_path)
    logger.log(Split.TRAIN, 1, (MetricValue("Loss", 1.0), MetricValue("Accuracy", 2.0)))
    with pytest.raises(ArtifactError, match=r"(?s)metrics cannot be written.*given: .*expected: .*mend: ") as caught:
        logger.close()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    logger.close()  # all are closed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")  # noqa: PTH110
def test_an_application_log_on_a_full_disk_hides_no_error(capsys):
    def log() -> None:
        with installed(FileApplicationLogger("/dev/full")):
            LOG.info("a line")
            raise ArtifactError("the first error")

    with pytest.raises(ArtifactError, match="the first error"):
        log()
    assert capsys.readouterr().err == ""


def test_an_error_of_the_data_is_counted_as_the_training_counts(tmp_path):
    class Broken:
        def batch(self, items: Any, device: Any) -> Tensor:
            if 6 in items:
                raise ZeroDivisionError("six")
            return Tensor.ones((2, 1), device)

    loader = DataLoader(list(range(8)), Broken(), batch_size=2)
    run = SupervisedTraining(tmp_path / "run", loader, None).renderer(SilentRenderer())
    with pytest.raises(ZeroDivisionError, match="six") as caught:
        run.launch(learner())
    notes = "\n".join(caught.value.__notes__)
    assert "in batch 4 of epoch 1 of the DataLoader: items 6, 7" in notes
    assert "in train batch 4 of epoch 1" in notes


class ValidatesNothing(Net):
    def valid_step(self, x: Tensor) -> Any:
        self.item(x)


class ValidatesAsItTrains(Net):
    def valid_step(self, x: Tensor) -> Any:
        return TrainOutput.new(self, GradientsParams(), self.item(x))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("kind", "what"), [(ValidatesNothing, "None"), (ValidatesAsItTrains, "a TrainOutput")])
def test_a_valid_step_without_an_item_is_reported(tmp_path, kind, what, compiled):
    run = SupervisedTraining(tmp_path / "run", batches(), [Tensor.ones((2, 1), Device.cpu())]).metrics(LossMetric())
    complaint = (
        rf"(?s)this valid_step returned no item.*given: +{what} from {kind.__name__}\.valid_step.*expected: .*mend: "
    )
    with pytest.raises(ConfigError, match=complaint):
        run.compile(compiled).renderer(SilentRenderer()).launch(learner(kind))


def test_a_class_in_the_place_of_a_model_is_reported():
    with pytest.raises(ConfigError, match=r"(?s)a class, not a model.*given: +Net\n.*expected: .*mend: +Learner\(Net"):
        Learner(Net, SgdConfig().init(), 0.1)
