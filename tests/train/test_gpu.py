"""Training on a GPU: it learns, resumes with the same bits, and does not wait for the device at every step."""

import pytest

from burn_torch import Device
from burn_torch.train import AccuracyMetric, LossMetric, SilentRenderer, SingleDevice, Split, SupervisedTraining
from burn_torch.train.measure import MAX_WAITING, Meter, patience_of
from burn_torch.train.metric.base import MetricMetadata


@pytest.mark.gpu
def test_training_on_a_gpu_resumes_with_the_same_bits(program, tmp_path):
    def training(name, epochs):
        made = program.make_training(tmp_path / name, epochs)
        return made.with_training_strategy(SingleDevice(Device.cuda(0).autodiff()))

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


def test_numbers_wait_on_an_accelerator_and_not_on_the_host(program):
    assert patience_of("cpu") == 0
    assert patience_of("cuda:0") > 0
    told = []
    meter = Meter(Split.TRAIN, [LossMetric()], patience_s=1e9, watch=True, on_step=lambda *args: told.append(args))
    net = program.make_net()
    item = net.classify(program.Batcher().batch(program.make_items(4), Device.cpu().autodiff()))
    for number in range(MAX_WAITING + 3):
        meter.add(item, MetricMetadata(Split.TRAIN, 1, number + 1, 4, 0.1, 0.0), number + 1, 0)
        assert len(told) == (MAX_WAITING if number + 1 >= MAX_WAITING else 0)
    meter.drain()
    assert [event.iteration for event, _ in told] == list(range(1, MAX_WAITING + 4))
    assert all(loss == event.values[0].value for event, loss in told)
