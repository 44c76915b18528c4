"""Training on a GPU: it learns, resumes with the same bits, and does not wait for the device at every step."""

import io

import pytest
import torch

from burn_torch import Device
from burn_torch.backend import LibTorch
from burn_torch.train import (
    AccuracyMetric,
    BarRenderer,
    IterationSpeedMetric,
    LearningRateMetric,
    LossMetric,
    PlainRenderer,
    SilentRenderer,
    SingleDevice,
    Split,
    SupervisedTraining,
)
from burn_torch.train.measure import MAX_WAITING, Meter, patience_of
from burn_torch.train.metric.base import MetricMetadata
from burn_torch.train.stepping import Steps


@pytest.mark.gpu
def test_training_on_a_gpu_resumes_with_the_same_bits(program, tmp_path):
    def training(name, epochs):
        run = program.make_training(tmp_path / name, epochs)
        return run.with_training_strategy(SingleDevice(Device.cuda(0).autodiff()))

    whole = training("whole", 3).launch(program.make_learner())
    assert whole.model.devices() == [Device.cuda(0)]
    stopping = training("run", 3)

    class Stopper:
        def handle(self, event):
            if type(event).__name__ == "CheckpointSaved":
                stopping.interrupter().stop()

        def close(self):
            pass

    stopped = stopping.renderer(Stopper()).launch(program.make_learner())
    assert stopped.status == "stopped"
    resumed = training("run", 3).resume().launch(program.make_learner())
    assert program.digest(resumed.model) == program.digest(whole.model)
    assert resumed.history.to_state() == whole.history.to_state()


@pytest.mark.gpu
def test_a_run_on_a_gpu_reads_its_numbers_for_many_steps_at_a_time(program, tmp_path, monkeypatch):
    asked = []
    drain = Meter.drain
    monkeypatch.setattr(Meter, "drain", lambda self: asked.append(len(self._waiting)) or drain(self))
    device = Device.cuda(0).autodiff()
    batch = program.Batcher().batch(program.make_items(8), device)
    training = SupervisedTraining(tmp_path / "run", [batch] * 300, None).metrics(LossMetric(), AccuracyMetric())
    training = training.with_training_strategy(SingleDevice(device)).renderer(SilentRenderer())
    result = training.launch(program.make_learner())
    assert len(result.history.values("Loss", Split.TRAIN, 1)) == 300
    assert sum(asked) == 300
    assert sum(count > 0 for count in asked) < 60  # a step takes a few ms at most


@pytest.mark.parametrize("compiled", [True, False])
def test_between_two_readings_the_loop_waits_for_no_device(program, tmp_path, monkeypatch, compiled):
    """As on an accelerator, with everything that a run has: metrics, a bar, files, a watch, schedule and gradients."""
    monkeypatch.setattr("burn_torch.train.run_state.patience_of", lambda place: 1e9)
    steps, waits = [], []
    taken, read = Steps.train, LibTorch.into_data

    def train(self, *given):
        steps.append(len(steps))
        return taken(self, *given)

    monkeypatch.setattr(Steps, "train", train)
    monkeypatch.setattr(LibTorch, "into_data", lambda self, x: waits.append(len(steps)) or read(self, x))
    for name in ("item", "tolist", "cpu", "numpy", "__float__", "__bool__", "__int__"):
        original = getattr(torch.Tensor, name)

        def reading(x, *given, f=original):
            if x.dtype is not torch.uint8:  # the state of a generator, which lies on the host
                waits.append(len(steps))
            return f(x, *given)

        monkeypatch.setattr(torch.Tensor, name, reading)
    batch = program.Batcher().batch(program.make_items(8), Device.cpu().autodiff())
    training = SupervisedTraining(tmp_path / "run", [batch] * 200, None).compile(compiled)
    training = training.metrics(LossMetric(), AccuracyMetric(), IterationSpeedMetric(), LearningRateMetric())
    training = training.renderer(BarRenderer(io.StringIO())).with_event_reader(PlainRenderer(io.StringIO()))
    result = training.launch(program.make_learner())
    assert (result.status, len(steps)) == ("completed", 200)
    assert len(result.history.values("Loss", Split.TRAIN, 1)) == 200
    moments = sorted(set(waits) - {0})  # before the first step the model is looked at
    assert [moment for moment in moments if moment < 200] == [64, 128, 192], moments


def test_numbers_wait_on_an_accelerator_and_not_on_the_host(program):
    assert patience_of("cpu") == 0
    assert patience_of("cuda:0") > 0
    calls = []
    meter = Meter(Split.TRAIN, [LossMetric()], patience_s=1e9, watch=True, on_step=lambda *args: calls.append(args))
    net = program.make_net()
    item = net.classify(program.Batcher().batch(program.make_items(4), Device.cpu().autodiff()))
    for number in range(MAX_WAITING + 3):
        meter.add(item, MetricMetadata(Split.TRAIN, 1, number + 1, 4, 0.1, 0.0), number + 1, 0)
        assert len(calls) == (MAX_WAITING if number + 1 >= MAX_WAITING else 0)
    meter.drain()
    assert [event.iteration for event, _ in calls] == list(range(1, MAX_WAITING + 4))
    assert all(loss == event.values[0].value for event, loss in calls)
