"""SupervisedTraining and LearnerBuilder: what they refuse, what they write, how they end."""

import json
import logging
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from burn_torch import ArtifactError, Config, ConfigError, DataError, Device, DeviceError, NonFiniteError, Tensor, seed
from burn_torch.optim import AdamConfig, SgdConfig
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    FileMetricLogger,
    InMemoryMetricLogger,
    Learner,
    LearnerBuilder,
    LossMetric,
    MetricEarlyStoppingStrategy,
    NoImprovementSince,
    SilentRenderer,
    SingleDevice,
    Split,
    SupervisedTraining,
    TrainOutput,
)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class RunConfig(Config):
    epochs: int
    lr: float = 0.1


# -- what it writes --------------------------------------------------------------------------------
def test_artifact_directory(program, tmp_path):
    folder = tmp_path / "a" / "run"
    result = program.make_training(folder, 2).with_config(RunConfig(2)).launch(program.make_learner())
    assert files(folder) == [
        ".lock",
        "checkpoint/epoch-1.safetensors",
        "checkpoint/epoch-2.safetensors",
        "config.json",
        "events.jsonl",
        "experiment.log",
        "model.safetensors",
        "result.json",
        *(f"train/epoch-{n}/{name}.log" for n in (1, 2) for name in ("Accuracy", "Learning_Rate", "Loss")),
        *(f"valid/epoch-{n}/{name}.log" for n in (1, 2) for name in ("Accuracy", "Loss")),
    ]
    lines = (folder / "train/epoch-1/Loss.log").read_text().splitlines()
    assert [float(line) for line in lines] == result.history.values("Loss", Split.TRAIN, 1)
    assert len(lines) == 5
    assert RunConfig.load(folder / "config.json") == RunConfig(2)
    loaded = program.make_net().load_file(folder / "model.safetensors")
    assert program.digest(loaded) == program.digest(result.learner.model)
    report = json.loads((folder / "result.json").read_text())
    assert report["status"] == "completed"
    assert report["metrics"]["valid"]["Loss"] == [value for _, value in result.history.series("Loss")]
    assert report["checkpoint"] == "epoch-2.safetensors"


def test_epoch_values_are_exact_over_items(program, tmp_path):
    result = program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    model = result.model
    _, loader = program.make_loaders()
    rows = [model.classify(batch) for batch in loader.to_device(Device.cpu()).epoch(0)]
    outputs = np.concatenate([row.output.into_data().array for row in rows]).astype(np.float64)
    targets = np.concatenate([row.targets.into_data().array for row in rows])
    shifted = outputs - outputs.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(13), targets]
    # each batch's loss is rounded to float32 once: 2^-24 relative, and the row's own error of two more
    assert result.history.find_metric("Loss", 1) == pytest.approx(losses.mean(), rel=3 * 2**-24)
    assert result.history.find_metric("Accuracy", 1) == 100 * (outputs.argmax(1) == targets).sum() / 13


def test_result_model_is_for_inference(program, tmp_path):
    result = program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    assert result.model.devices() == [Device.cpu()]
    assert result.learner.model.linear1.weight.device is Device.cpu().autodiff()
    assert program.digest(result.model) == program.digest(result.learner.model)
    assert result.checkpoint == tmp_path / "run/checkpoint/epoch-1.safetensors"
    assert result.summary is None


def test_summary_table(program, tmp_path):
    result = program.make_training(tmp_path / "run", 2).summary().launch(program.make_learner())
    lines = result.summary.splitlines()
    assert lines[0] == "======================== Learner Summary ========================"
    assert lines[1:3] == ["Model:", "Net {"]
    at = lines.index("Total Epochs: 2")
    assert lines[at + 2] == "| Split | Metric        | Min.   | Epoch | Max.   | Epoch |"
    assert lines[at + 3] == "|-------|---------------|--------|-------|--------|-------|"
    series = dict(result.history.series("Loss", Split.TRAIN))
    low, high = sorted(series, key=series.get)
    assert (
        lines[at + 4]
        == f"| Train | Loss          | {series[low]:.3f}  | {low}     | {series[high]:.3f}  | {high}     |"
    )
    assert [line.split("|")[1].strip() for line in lines[at + 4 :]] == ["Train"] * 3 + ["Valid"] * 2


def test_summary_of_a_run_without_an_epoch_has_no_empty_table(program, tmp_path):
    training = program.make_training(tmp_path / "run", 2).summary()
    training.interrupter().stop("at once")
    result = training.launch(program.make_learner())
    assert result.status == "stopped"
    assert result.summary.splitlines()[-2:] == ["", "No epoch is over, so no metric has a value of one."]
    assert "| Split" not in result.summary


def test_application_log_touches_no_root_logger(program, tmp_path, caplog):
    root, ours = logging.getLogger(), logging.getLogger("burn_torch")
    before = (root.level, list(root.handlers), ours.level, list(ours.handlers))
    program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    assert (root.level, list(root.handlers), ours.level, list(ours.handlers)) == before
    text = (tmp_path / "run/experiment.log").read_text()
    assert "epoch 1 valid: {'Loss': " in text
    assert "the run ends: completed" in text
    program.make_training(tmp_path / "other", 1).with_application_logger(None).launch(program.make_learner())
    assert not (tmp_path / "other/experiment.log").exists()


def test_other_loggers_take_the_place_of_files(program, tmp_path):
    one, two = InMemoryMetricLogger(), FileMetricLogger(tmp_path / "elsewhere")
    training = program.make_training(tmp_path / "run", 1).with_metric_logger(one).with_metric_logger(two)
    result = training.launch(program.make_learner())
    assert not (tmp_path / "run/train").exists()
    expected = result.history.values("Accuracy", Split.VALID, 1)
    assert one.read_numeric("Accuracy", 1, Split.VALID) == expected
    assert two.read_numeric("Accuracy", 1, Split.VALID) == expected
    assert [definition.name for definition in one.definitions[Split.TRAIN]] == ["Loss", "Accuracy", "Learning Rate"]
    assert two.read_numeric("Accuracy", 2, Split.VALID) == []


def test_without_validation(program, tmp_path):
    train, _ = program.make_loaders()
    training = SupervisedTraining(tmp_path / "run", train, None).metrics(LossMetric()).num_epochs(2)
    result = training.renderer(SilentRenderer()).launch(program.make_learner())
    assert result.history.epochs(Split.VALID) == []
    assert result.history.epochs("train") == [1, 2]


# -- seeds ------------------------------------------------------------------------------------------
def test_seed_decides_the_bits(program, tmp_path):
    learner = program.make_learner()

    def run(name, number=None):
        training = SupervisedTraining(tmp_path / name, *program.make_loaders()).renderer(SilentRenderer())
        training = training if number is None else training.seed(number)
        return program.digest(training.launch(learner).model)

    assert run("a", 1) == run("b", 1) != run("c", 2)
    seed(5)
    first = run("d")
    assert run("e") != first  # the next key of the same seed
    seed(5)
    assert run("f") == first


# -- what it refuses, before any work ----------------------------------------------------------------
def test_a_directory_with_another_run_is_refused(program, tmp_path):
    folder = tmp_path / "run"
    program.make_training(folder, 1).launch(program.make_learner())
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    with pytest.raises(
        ArtifactError,
        match=r"holds another run\n  given:    .*run with checkpoint, train, valid, model.safetensors\n"
        r"  expected: an empty .*\n  mend:     go on with that run \(resume\(\), --resume\), name another directory",
    ):
        program.make_training(folder, 1).launch(program.make_learner())
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before


def test_a_directory_with_a_config_alone_is_no_run(program, tmp_path):
    RunConfig(1).save(tmp_path / "config.json")  # as the book does before it launches
    assert program.make_training(tmp_path, 1).launch(program.make_learner()).status == "completed"


def test_an_unwritable_directory_is_refused_before_any_work(program, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(program.Net, "train_step", lambda *_: pytest.fail("a step was taken"))
    with pytest.raises(
        ArtifactError, match=r"cannot be written\n  given:    .*file/run: Not a directory\n  expected: .*\n  mend: "
    ):
        program.make_training(tmp_path / "file" / "run", 1).launch(program.make_learner())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_refused(program, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ArtifactError, match="Permission denied"):
        program.make_training(tmp_path / "run", 1).launch(program.make_learner())


def test_two_processes_in_one_directory_are_refused(program, tmp_path):
    (tmp_path / ".lock").touch()
    code = (
        "import fcntl, sys\n"
        f"file = open({str(tmp_path / '.lock')!r}, 'ab'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ArtifactError, match=r"another run holds this[\s\S]*mend:     wait for it"):
            program.make_training(tmp_path, 1).launch(program.make_learner())
    finally:
        other.communicate("")
    assert program.make_training(tmp_path, 1).launch(program.make_learner()).status == "completed"


def test_all_faults_of_a_builder_come_at_once(program, tmp_path):
    class Mute(program.Net):
        train_step = None
        valid_step = None

    training = program.make_training(tmp_path / "run", 0).grads_accumulation(0).metrics(LossMetric())
    with pytest.raises(ConfigError, match=r"(?s)given: .*AccuracyMetric.*expected: .*mend: "):
        training.metric_valid(AccuracyMetric)
    with pytest.raises(ConfigError) as caught:
        training.launch(program.make_learner(program.make_net(cls=Mute)))
    for part in (
        "num_epochs(0)", "grads_accumulation(0)", "Mute without train_step", "Mute without valid_step",
        "two train metrics Loss", "two valid metrics Loss",
        "mend:     give a positive number",
        "expected: num_epochs of 1 or more",
    ):  # fmt: skip
        assert part in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_model_without_gradients_is_refused(program, tmp_path):
    net = program.make_net().valid()
    place = re.escape(repr(Device.cpu()))
    with pytest.raises(DeviceError, match=rf"cannot be trained where it is\n  given:    {place}[\s\S]*mend:.*autodiff"):
        program.make_training(tmp_path / "run", 1).launch(program.make_learner(net))
    assert not (tmp_path / "run").exists()


def test_single_device_moves_the_model(program, tmp_path):
    net = program.make_net().valid()
    training = program.make_training(tmp_path / "run", 1).with_training_strategy(SingleDevice(Device.cpu().autodiff()))
    moved = training.launch(program.make_learner(net))
    there = program.make_training(tmp_path / "other", 1).launch(program.make_learner())
    assert program.digest(moved.model) == program.digest(there.model)


def test_an_optimizer_config_in_the_place_of_an_optimizer_is_refused(program):
    with pytest.raises(ConfigError, match=r"not an optimizer\n  given:    AdamConfig[\s\S]*mend:     call init\(\)"):
        Learner(program.make_net(), AdamConfig(), 0.1)


def test_a_generator_is_no_loader(program, tmp_path):
    _, valid = program.make_loaders()
    with pytest.raises(
        ConfigError, match=r"training loader can be run through only once\n  given:    generator[\s\S]*mend:     put"
    ):
        program.make_training(tmp_path / "run").with_loaders((x for x in ()), valid).launch(program.make_learner())


def test_empty_loaders_are_refused(program, tmp_path):
    train, valid = program.make_loaders()

    class Nothing:
        def __iter__(self):
            return iter(())

    with pytest.raises(DataError, match=r"validation loader is empty\n  given:    an epoch of 0 batches"):
        program.make_training(tmp_path / "a").with_loaders(train, []).launch(program.make_learner())
    with pytest.raises(DataError, match=r"training loader is empty[\s\S]*mend:     check the data set"):
        program.make_training(tmp_path / "b").with_loaders(Nothing(), valid).launch(program.make_learner())


def test_validation_on_a_device_with_gradients_is_refused(program, tmp_path):
    train, _ = program.make_loaders()
    device = Device.cpu().autodiff()
    batches = [program.Batcher().batch(program.make_items(5), device)]
    with pytest.raises(DeviceError, match=r"validation ran on a device with gradients[\s\S]*mend: .*device.inner\(\)"):
        program.make_training(tmp_path / "run").with_loaders(train, batches).launch(program.make_learner())


# -- how it goes wrong ------------------------------------------------------------------------------
def poisoned(program, at, error=None):
    taken = []

    class Poisoned(program.Net):
        def train_step(self, batch):
            taken.append(1)
            if len(taken) == at and error is not None:
                raise error
            item = self.classify(batch)
            if len(taken) == at:
                item = ClassificationOutput(item.loss * math.nan, item.output, item.targets)
            return TrainOutput.new(self, item.loss.backward(), item)

    return program.make_learner(program.make_net(cls=Poisoned))


@pytest.mark.parametrize("metrics", [[], [LossMetric()]])
def test_a_loss_that_is_no_number(program, tmp_path, metrics):
    folder = tmp_path / "run"
    training = SupervisedTraining(folder, *program.make_loaders()).metrics(*metrics).num_epochs(3).compile(False)
    with pytest.raises(
        NonFiniteError,
        match=r"the loss is not finite\n  given:    loss nan in epoch 2, batch 2 \(step 7 of the run\)\n"
        r"  expected: a finite loss\n  mend:     lower the learning rate[\s\S]*checkpoint is .*epoch-1.safetensors",
    ):
        training.renderer(SilentRenderer()).launch(poisoned(program, 7))
    report = json.loads((folder / "result.json").read_text())
    assert report["status"] == "diverged"
    assert report["message"].startswith("the loss is not finite")
    assert not (folder / "model.safetensors").exists()
    assert "NonFiniteError" in (folder / "experiment.log").read_text()
    assert training.renderer(SilentRenderer()).resume().launch(program.make_learner()).status == "completed"


def test_a_batch_of_nothing_but_padding_does_not_end_the_run(program, tmp_path):
    class Padded(program.Net):
        def classify(self, batch):
            item = super().classify(batch)
            return ClassificationOutput(item.loss * math.nan, item.output, item.targets, count=0)

        def train_step(self, batch):
            item = super().classify(batch)
            return TrainOutput.new(self, item.loss.backward(), self.classify(batch))

    result = program.make_training(tmp_path / "run", 1).launch(program.make_learner(program.make_net(cls=Padded)))
    assert result.status == "completed"


def test_nan_in_the_first_epoch_says_that_there_is_no_checkpoint(program, tmp_path):
    with pytest.raises(NonFiniteError, match=r"epoch 1, batch 1[\s\S]*there is no checkpoint yet"):
        program.make_training(tmp_path / "run").compile(False).launch(poisoned(program, 1))


def test_an_error_of_the_user_passes_through_with_a_note(program, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        program.make_training(folder, 3).compile(False).launch(poisoned(program, 8, ZeroDivisionError("mine")))
    where, saved = caught.value.__notes__
    assert where.startswith("in train batch 3 of epoch 2 (step 8 of the run); the last checkpoint is ")
    assert where.endswith("epoch-1.safetensors")
    assert "epoch-2-batch-2.safetensors: --resume, or resume(), goes on from there" in saved
    report = json.loads((folder / "result.json").read_text())
    assert (report["status"], report["message"]) == ("failed", "mine")
    whole = program.make_training(tmp_path / "whole", 3).launch(program.make_learner())
    again = program.make_training(folder, 3).resume().launch(program.make_learner())
    assert program.digest(again.model) == program.digest(whole.model)


def test_without_an_application_log_an_error_is_reported_once(start, tmp_path):
    process = start(dir=tmp_path / "run", epochs=1, no_log=True, poison=True)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert output == ""
    assert errors.count("Traceback") == 1
    assert "ZeroDivisionError: mine" in errors


def test_an_error_in_validation_says_so(program, tmp_path, monkeypatch):
    def fails(self, batch):
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(program.Net, "valid_step", fails)
    with pytest.raises(ZeroDivisionError) as caught:
        program.make_training(tmp_path / "run", 3).launch(program.make_learner())
    where, saved = caught.value.__notes__
    assert where == "in valid batch 1 of epoch 1 (step 6 of the run)"
    assert "epoch-1-batch-5.safetensors" in saved


# -- early stopping -----------------------------------------------------------------------------------
def test_early_stopping_is_a_function_of_the_history(program, tmp_path):
    worse = iter(range(100))

    class Worse(program.Net):
        def valid_step(self, batch):
            item = self.classify(batch)
            return ClassificationOutput(
                Tensor.from_data(np.float32(next(worse)), Device.cpu()), item.output, item.targets
            )

    def launch(folder, epochs, resume, warmup=0):
        strategy = MetricEarlyStoppingStrategy("Loss", "lowest", "valid", NoImprovementSince(2))
        training = program.make_training(folder, epochs).early_stopping(strategy.with_warmup_epochs(warmup))
        return training.resume(resume).launch(program.make_learner(program.make_net(cls=Worse)))

    stopped = launch(tmp_path / "a", 9, False)
    assert (stopped.status, len(stopped.history.epochs("train"))) == ("early_stopped", 3)
    assert (tmp_path / "a/model.safetensors").exists()
    assert "stopped early, after epoch 3 of 9" in (tmp_path / "a/experiment.log").read_text()
    launch(tmp_path / "b", 2, False)
    again = launch(tmp_path / "b", 9, True)
    assert (again.status, len(again.history.epochs("train"))) == ("early_stopped", 3)
    assert len(launch(tmp_path / "c", 9, False, warmup=5).history.epochs("train")) == 6


# -- the book's builder ---------------------------------------------------------------------------------
def test_early_stopping_by_a_metric_that_nobody_measures_is_refused(program, tmp_path):
    for strategy, measured in (
        (MetricEarlyStoppingStrategy("Los", "lowest", "valid", NoImprovementSince(2)), "Loss, Accuracy"),
        (MetricEarlyStoppingStrategy("Learning Rate", "lowest", "valid", NoImprovementSince(2)), "Loss, Accuracy"),
    ):
        with pytest.raises(
            ConfigError,
            match=rf"cannot be trained\n  given:    early stopping by the valid metric {strategy.metric}\n"
            rf"  expected: a metric that is measured: {measured}\n  mend:     add it with metrics",
        ):
            program.make_training(tmp_path / "run").early_stopping(strategy).launch(program.make_learner())
    assert not (tmp_path / "run").exists()
    without = MetricEarlyStoppingStrategy("Loss", "lowest", "valid", NoImprovementSince(2))
    training = program.make_training(tmp_path / "run").with_loaders(program.make_loaders()[0], None)
    with pytest.raises(ConfigError, match=r"expected: a metric that is measured: none is"):
        training.early_stopping(without).launch(program.make_learner())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: NoImprovementSince(0), "NoImprovementSince: the number of epochs must be at least 1"),
        (lambda: MetricEarlyStoppingStrategy("Loss", "down", "valid", NoImprovementSince(1)), "no such direction"),
        (lambda: MetricEarlyStoppingStrategy("Loss", "lowest", "test", NoImprovementSince(1)), "no such split"),
    ],
)
def test_early_stopping_that_cannot_be_meant_is_refused(make, what):
    with pytest.raises(ConfigError, match=rf"{what}[\s\S]*\n  expected: [\s\S]*\n  mend:     "):
        make()


def test_learner_builder_is_the_same_training(program, tmp_path, capsys):
    device = Device.cpu().autodiff()
    seed(7)
    model = (
        LearnerBuilder(tmp_path / "book")
        .metric_train_numeric(AccuracyMetric())
        .metric_valid_numeric(AccuracyMetric())
        .metric_train(LossMetric())
        .metric_valid(LossMetric())
        .with_file_checkpointer()
        .devices([device])
        .num_epochs(2)
        .renderer(SilentRenderer())
        .summary()
        .build(program.make_net(), SgdConfig().init(), 0.1)
        .fit(*program.make_loaders())
    )
    seed(7)
    training = SupervisedTraining(tmp_path / "new", *program.make_loaders()).num_epochs(2).renderer(SilentRenderer())
    same = training.launch(Learner(program.make_net(), SgdConfig().init(), 0.1)).model
    assert program.digest(model) == program.digest(same)
    assert (tmp_path / "book/valid/epoch-2/Accuracy.log").exists()
    with pytest.raises(ConfigError, match=r"MultiDevice cannot train so\n  given:    0 devices"):
        LearnerBuilder(tmp_path / "x").devices([])
    several = LearnerBuilder(tmp_path / "several").devices([device, device])
    assert several.build(program.make_net(), AdamConfig().init(), 1e-2).fit(*program.make_loaders()).num_params() > 0


def test_interrupter_of_a_builder_stops_its_run(program, tmp_path):
    builder = LearnerBuilder(tmp_path / "run").num_epochs(3).renderer(SilentRenderer())
    builder.interrupter().stop("before it began")
    result = builder.build(program.make_net(), SgdConfig().init(), 0.1).launch(*program.make_loaders())
    assert (result.status, result.message) == ("stopped", "before it began")
    assert result.checkpoint.name == "epoch-1-batch-1.safetensors"


def test_builders_are_values(program, tmp_path):
    training = program.make_training(tmp_path / "run", 1)
    longer = training.num_epochs(3).metrics(AccuracyMetric().with_pad_token(0))
    assert longer is not training
    assert training._num_epochs == 1
    assert len(training._train_metrics) == 3
