"""Training compiles its steps by default: the same bits as without, and one line where it cannot."""

from dataclasses import dataclass
from typing import Any

import pytest
from safetensors.numpy import load_file

from burn_torch import ConfigError, Tensor
from burn_torch.optim import AdamConfig, AdamWConfig, GradientClippingConfig, MomentumConfig, SgdConfig
from burn_torch.train import ExecutionStrategy, InMemoryMetricLogger, Learner, SingleDevice, Split, TrainOutput
from burn_torch.train.event import Notice
from burn_torch.train.stepping import Steps

OPTIMIZERS = {
    "adam": lambda: AdamConfig(grad_clipping=GradientClippingConfig.Norm(0.5)).init(),
    "momentum": lambda: SgdConfig(momentum=MomentumConfig(nesterov=True)).init(),
}


class Notices:
    def __init__(self):
        self.texts: list[str] = []

    def handle(self, event: Any) -> None:
        if isinstance(event, Notice):
            self.texts.append(event.text)

    def close(self) -> None:
        pass


def run(program, folder, *, compiled, epochs=3, optimizer="adam", accumulation=1, resume=False, net=None, optim=None):
    """A run of 37 items in batches of 8 (the last one has 5): its bits, and what it said."""
    notices = Notices()
    learner = program.make_learner(net)
    learner = Learner(learner.model, OPTIMIZERS[optimizer]() if optim is None else optim, learner.lr_scheduler)
    training = program.make_training(folder, epochs).renderer(notices).grads_accumulation(accumulation)
    result = training.compile(compiled).resume(resume).launch(learner)
    metrics = {
        (name, split, epoch): result.history.values(name, split, epoch)
        for name in ("Loss", "Accuracy")
        for split in (Split.TRAIN, Split.VALID)
        for epoch in range(1, epochs + 1)
        if not resume
    }
    checkpoint = {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(result.checkpoint).items()
    }
    return program.digest(result.model), metrics, checkpoint, notices.texts


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_compiled_run_has_the_bits_of_one_that_is_not(program, tmp_path, optimizer, accumulation):
    options = {"optimizer": optimizer, "accumulation": accumulation}
    actual = run(program, tmp_path / "compiled", compiled=True, **options)
    wanted = run(program, tmp_path / "eager", compiled=False, **options)
    assert actual == wanted
    assert actual[3] == []
    assert len(actual[2]) > 10  # parameters, statistics, states of the optimizer


@pytest.mark.parametrize("accumulation", [1, 3])
def test_runs_go_on_from_checkpoints_of_each_other(program, tmp_path, accumulation):
    digest, _, checkpoint, _ = run(program, tmp_path / "whole", compiled=True, accumulation=accumulation)
    for first in (True, False):
        folder = tmp_path / f"{first}"
        run(program, folder, compiled=first, epochs=1, accumulation=accumulation)
        resumed = run(program, folder, compiled=not first, accumulation=accumulation, resume=True)
        assert (resumed[0], resumed[2]) == (digest, checkpoint)


def test_a_step_is_traced_once_for_each_shape_of_batch(program, tmp_path, monkeypatch):
    created: list[Steps] = []
    init = Steps.__init__

    def kept(self, *args, **kwargs):
        init(self, *args, **kwargs)
        created.append(self)

    monkeypatch.setattr(Steps, "__init__", kept)
    run(program, tmp_path / "run", compiled=True, epochs=4)
    assert [(s._step.traces, s._valid.traces) for s in created] == [(2, 2)]  # whole batches, and the last one


# -- what cannot be compiled -------------------------------------------------------------------------------
def eager_line(notices: list[str], what: str = "training") -> str:
    [line] = [text for text in notices if text.startswith(f"{what} runs eagerly, it cannot be compiled: ")]
    assert "\n" not in line
    return line


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_model_that_reads_a_value_runs_eagerly_and_says_so(program, tmp_path, accumulation):
    class Reads(program.Net):
        def train_step(self, batch):
            item = self.classify(batch)
            scale = 0.5 if float(item.loss) > 1.0 else 1.0
            return TrainOutput.new(self, (item.loss * scale).backward(), item)

    actual = run(program, tmp_path / "a", compiled=True, net=program.make_net(cls=Reads), accumulation=accumulation)
    wanted = run(program, tmp_path / "b", compiled=False, net=program.make_net(cls=Reads), accumulation=accumulation)
    assert actual[:3] == wanted[:3]
    line = eager_line(actual[3])
    assert "was read" in line
    assert "test_stepping.py:" in line
    assert "scale = 0.5 if float(item.loss)" in line
    assert wanted[3] == []


def test_what_runs_eagerly_says_that_it_has_another_precision(program, tmp_path):
    class Reads(program.Net):
        def valid_step(self, batch):
            item = self.classify(batch)
            return item if float(item.loss) > 0 else self.classify(batch)

    notices = Notices()
    training = program.make_training(tmp_path / "run", 1).renderer(notices).precision("bfloat16")
    training.launch(program.make_learner(program.make_net(cls=Reads)))
    [line] = notices.texts
    assert line.startswith("validation runs eagerly and in float32, not bfloat16, it cannot be compiled: ")


def test_a_validation_that_reads_a_value_is_distinguished(program, tmp_path):
    class Reads(program.Net):
        def valid_step(self, batch):
            item = self.classify(batch)
            return item if float(item.loss) > 0 else self.classify(batch)

    actual = run(program, tmp_path / "run", compiled=True, net=program.make_net(cls=Reads))
    assert "float(item.loss)" in eager_line(actual[3], "validation")
    assert len(actual[3]) == 1


def test_a_model_that_counts_its_steps_runs_eagerly_and_counts_all_of_them(program, tmp_path):
    steps = 0

    class Counts(program.Net):
        def train_step(self, batch):
            nonlocal steps
            steps += 1
            return super().train_step(batch)

    actual = run(program, tmp_path / "run", compiled=True, net=program.make_net(cls=Counts))
    assert "steps, an int, changed" in eager_line(actual[3])
    assert steps == 15 + 1  # the trace that failed ran it too


def test_an_optimizer_of_ones_own_runs_eagerly_and_says_so(program, tmp_path):
    class Own:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def step(self, lr, model, grads):
            model, inner = self.inner.step(lr, model, grads)
            return model, Own(inner)

        def to_record(self):
            return self.inner.to_record()

        def load_record(self, record, device=None):
            return Own(self.inner.load_record(record, device))

    actual = run(program, tmp_path / "a", compiled=True, optim=Own(AdamWConfig().init()))
    wanted = run(program, tmp_path / "b", compiled=False, optim=AdamWConfig().init())
    assert actual[0] == wanted[0]
    assert "the optimizer is a Own, which is no immutable Optimizer" in eager_line(actual[3])


def test_a_batch_of_a_plain_class_runs_eagerly_and_says_so(program, tmp_path):
    class Plain:
        def __init__(self, inputs: Tensor, targets: Tensor) -> None:
            self.inputs, self.targets = inputs, targets

    class Batcher(program.Batcher):
        def batch(self, items, device):
            batch = super().batch(items, device)
            return Plain(batch.inputs, batch.targets)

    notices = Notices()
    train, valid = (
        type(loader)(program.make_items(37), Batcher(), batch_size=8, shuffle=11) for loader in program.make_loaders()
    )
    training = program.make_training(tmp_path / "run", 1).with_loaders(train, valid).renderer(notices)
    result = training.launch(program.make_learner())
    assert result.status == "completed"
    assert "a tensor that is not among its arguments: batch.inputs (8, 6) f32 cpu" in eager_line(notices.texts)


def test_a_strategy_of_ones_own_is_not_compiled(program, tmp_path):
    @dataclass
    class Counting:
        inner: SingleDevice
        steps: int = 0

        def prepare(self, learner):
            return self.inner.prepare(learner)

        def train_step(self, learner, batch, key):
            self.steps += 1
            return self.inner.train_step(learner, batch, key)

        def optimizer_step(self, learner, lr, grads):
            return self.inner.optimizer_step(learner, lr, grads)

    strategy = Counting(SingleDevice())
    assert isinstance(strategy, ExecutionStrategy)
    wanted = program.make_training(tmp_path / "a", 1).launch(program.make_learner())
    run = program.make_training(tmp_path / "b", 1).with_training_strategy(strategy).launch(program.make_learner())
    assert strategy.steps == 5
    assert program.digest(run.model) == program.digest(wanted.model)
    training = program.make_training(tmp_path / "c", 1).with_training_strategy(strategy)
    with pytest.raises(ConfigError, match=r"computes in float32[\s\S]*precision\('bfloat16'\) with Counting"):
        training.precision("bfloat16").launch(program.make_learner())
    assert strategy.steps == 5


def test_metrics_are_those_of_every_batch(program, tmp_path):
    values = []
    for compiled in (True, False):
        logger = InMemoryMetricLogger()
        training = program.make_training(tmp_path / f"{compiled}", 2).with_metric_logger(logger).compile(compiled)
        result = training.launch(program.make_learner())
        values.append([result.history.values("Loss", Split.TRAIN, epoch) for epoch in (1, 2)])
    assert values[0] == values[1]
    assert [len(epoch) for epoch in values[0]] == [5, 5]
