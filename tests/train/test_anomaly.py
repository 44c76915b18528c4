"""The first NaN or infinity: found where it was planted, compiled and not, and replayed from its file."""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest

from burn_torch import ConfigError, Device, Module, NonFiniteError, Param, RecordError, Tensor
from burn_torch.module import ModuleRecord
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import GradientClippingConfig, GroupedOptimizer, ParamGroup, SgdConfig
from burn_torch.tensor.activation import softmax
from burn_torch.train import SingleDevice, TrainOutput, replay
from burn_torch.train.anomaly import Replay
from burn_torch.train.anomaly.search import find
from burn_torch.train.anomaly.watch import RENEWED_AFTER, unsound
from burn_torch.transform import compile


class Planted(Module):
    """Gives x back, unless its input is large: then the fault."""

    fault: str
    from_step: int = 0

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        on = (step > self.from_step - 0.5).float().reshape([1, 1])
        match self.fault:
            case "log":
                return x + (1 - 2 * on).log()
            case "division":
                return x / (1 - on)
            case "overflow":
                return x + ((on * 200).exp() - (on * 200).exp()) * 0
            case "gradient":  # the slope of sqrt at 0 is infinite
                return x + (x * 0 + (1 - on)).sqrt() * on
            case "mask":  # all of a row is masked: -inf - -inf
                hidden = (x * 0 + on) > 0.5
                return x + softmax(x.mask_fill(hidden, -np.inf), 1) * 0
        return x


class Net(Module):
    linear1: Linear
    planted: Planted
    linear2: Linear

    def classify(self, batch: Any) -> Any:
        h = self.linear1.forward(batch.inputs)
        h = self.planted.forward(h, batch.step)
        output = self.linear2.forward(h)
        loss = (output * output).mean() + output.mean()
        return PROGRAM.ClassificationOutput(loss, output, batch.targets)

    def train_step(self, batch: Any) -> Any:
        item = self.classify(batch)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch: Any) -> Any:
        return self.classify(batch)


@dataclasses.dataclass(frozen=True)
class Batch:
    inputs: Tensor
    targets: Tensor
    step: Tensor


PROGRAM: Any = None


@pytest.fixture(autouse=True)
def _program(program):
    global PROGRAM
    PROGRAM = program


def batches(count: int, device: Device) -> list[Batch]:
    rng = np.random.default_rng(3)
    return [
        Batch(
            Tensor.from_data(rng.normal(0, 1, (4, 6)).astype(np.float32), device),
            Tensor.from_data(np.zeros(4, np.int64), device),
            Tensor.from_data(np.array([float(i)], np.float32), device),
        )
        for i in range(count)
    ]


def learner(program, fault, from_step=0):
    base = program.make_net()
    net = Net(base.linear1, Planted(fault, from_step), Linear(base.linear2.weight, base.linear2.bias))
    return program.Learner(net, program.AdamConfig().init(), 1e-3)


def train(program, folder, fault, from_step, *, compiled=True, steps=24, accumulation=1, prepared=None):
    device = Device.cpu().autodiff()
    training = program.SupervisedTraining(folder, batches(steps, device), None).renderer(program.SilentRenderer())
    training = training.compile(compiled).detect_anomaly().grads_accumulation(accumulation)
    return training.launch(learner(program, fault, from_step) if prepared is None else prepared)


FAULTS = {
    "log": "NaN from log in planted",
    "division": "infinity from div in planted",
    "overflow": "infinity from exp in planted",
    "gradient": "in the gradient of planted",
    "mask": "NaN from softmax in planted",
}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_replayed(program, tmp_path, fault, compiled):
    with pytest.raises(NonFiniteError, match="first value that is not finite") as caught:
        train(program, tmp_path / "run", fault, 5, compiled=compiled)
    text = str(caught.value)
    assert FAULTS[fault] in text
    assert "in epoch 1, batch 6 (step 6 of the run)" in text
    assert re.search(r"line .*test_anomaly.py:\d+ in forward: ", text)
    assert "there is no checkpoint yet" in text
    [file] = (tmp_path / "run/anomaly").iterdir()
    assert file.name == "step-6.safetensors"
    assert f"burn-torch replay {file}" in text
    replayed = replay(file)
    assert replayed.reproduced
    assert FAULTS[fault] in str(replayed.fault)
    assert str(replayed).endswith(f"the same fault: {replayed.fault}")
    assert replayed.fault.values.nan or replayed.fault.values.infinite
    assert Replay.load(file).position == {"epoch": 1, "batch": 6, "step": 6}


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("from_step", [0, 1, 17, 23])
def test_every_step_is_found_across_fresh_starts(program, tmp_path, from_step, compiled):
    assert from_step < 24 > RENEWED_AFTER
    with pytest.raises(NonFiniteError, match=rf"log in planted in epoch 1, batch {from_step + 1} "):
        train(program, tmp_path / "run", "log", from_step, compiled=compiled)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("from_step", [0, 4, 5, 22, 23])
def test_with_accumulation_too(program, tmp_path, from_step, compiled):
    with pytest.raises(NonFiniteError, match=rf"log in planted in epoch 1, batch {from_step + 1} "):
        train(program, tmp_path / "run", "log", from_step, compiled=compiled, accumulation=5)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_watched_run_has_the_same_bits(program, tmp_path, compiled):
    results = [
        program.make_training(tmp_path / f"{flag}", 2)
        .compile(compiled)
        .detect_anomaly(flag)
        .launch(program.make_learner())
        for flag in (True, False)
    ]
    assert program.digest(results[0].model) == program.digest(results[1].model)
    assert results[0].history.to_state() == results[1].history.to_state()
    assert not (tmp_path / "True/anomaly").exists()


def test_an_optimizer_that_overflows_is_found_before_a_checkpoint(program, tmp_path):
    """The loss stays finite, since nobody reads the parameter that broke."""

    class Idle(program.Net):
        unused: Linear

        def train_step(self, batch):
            item = self.classify(batch)
            loss = item.loss + (self.unused.weight.val() * 1e30).sum() * 1e-30
            return TrainOutput.new(self, loss.backward(), item)

    base = program.make_net()
    unused = LinearConfig(2, 2).init(Device.cpu().autodiff())
    net = Idle(base.linear1, base.norm, base.dropout, base.activation, base.linear2, unused)
    training = program.make_training(tmp_path / "run", 1).detect_anomaly()
    prepared = program.Learner(net, program.AdamConfig().init(), 1e38)
    with pytest.raises(NonFiniteError, match=r"infinity from |NaN from "):
        training.launch(prepared)
    assert not (tmp_path / "run/checkpoint").exists()


class Steep(Net):
    """From a step on the gradient of a parameter is infinite, though the loss is not: the slope of sqrt at 0."""

    scale: Param

    def classify(self, batch: Any) -> Any:
        item = super().classify(batch)
        on = (batch.step > self.planted.from_step - 0.5).float()
        steep = ((1 - on) + (self.scale.val() - self.scale.val().detach())).sqrt()
        return type(item)(item.loss + steep.sum() * 0.01, item.output, item.targets)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("grouped", [False, True])
def test_an_infinite_gradient_that_clipping_hides_is_found(program, tmp_path, compiled, accumulation, grouped):
    base = learner(program, "none", 7).model
    device = Device.cpu().autodiff()
    net = Steep(base.linear1, base.planted, base.linear2, Param.from_data([0.5], device))
    optim: Any = program.AdamConfig(grad_clipping=GradientClippingConfig.Value(1.0)).init()
    if grouped:
        optim = GroupedOptimizer.of(net, {"scale": (ParamGroup.from_path("scale"), optim)}, SgdConfig().init())
    prepared = program.Learner(net, optim, 1e-3)
    training = program.SupervisedTraining(tmp_path / "blind", batches(24, device), None).compile(compiled)
    training = training.grads_accumulation(accumulation).renderer(program.SilentRenderer())
    assert training.launch(prepared).status == "completed"  # nothing else shows it
    with pytest.raises(NonFiniteError, match=r"infinity from .* in epoch 1, batch (8|9) ") as caught:
        train(program, tmp_path / "run", "none", 7, compiled=compiled, accumulation=accumulation, prepared=prepared)
    assert re.search(r"line .*test_anomaly.py:\d+ in classify: ", str(caught.value))
    assert replay(next((tmp_path / "run/anomaly").iterdir())).reproduced


def test_large_gradients_that_are_finite_are_no_fault(program, tmp_path):
    """Though their squares are not, and so their norm."""

    class Large(Net):
        def train_step(self, batch):
            item = self.classify(batch)
            return TrainOutput.new(self, (item.output.sum() * 2e37).backward(), item)

    base = learner(program, "none").model
    optim = program.AdamConfig(grad_clipping=GradientClippingConfig.Value(1.0)).init()
    prepared = program.Learner(Large(base.linear1, base.planted, base.linear2), optim, 1e-3)
    assert train(program, tmp_path / "run", "none", 0, steps=2, prepared=prepared).status == "completed"


def test_an_input_that_holds_nan_is_named(program, tmp_path):
    device = Device.cpu().autodiff()
    bad = batches(3, device)
    values = np.ones((4, 6), np.float32)
    values[2, 5] = np.nan
    bad[1] = dataclasses.replace(bad[1], inputs=Tensor.from_data(values, device))
    training = program.SupervisedTraining(tmp_path / "run", bad, None).renderer(program.SilentRenderer())
    with pytest.raises(NonFiniteError, match=r"NaN in the input batch.*inputs.* in epoch 1, batch 2") as caught:
        training.detect_anomaly().launch(learner(program, "none"))
    assert "(4, 6) f32, 1 NaN of 24, the first at [2, 5], else from 1 to 1" in str(caught.value)
    assert replay(next((tmp_path / "run/anomaly").iterdir())).reproduced


def test_a_step_that_cannot_be_traced_says_which_values_and_why(program, tmp_path):
    class Reads(Net):
        def train_step(self, batch):
            item = self.classify(batch)
            scale = 1.0 if float(item.loss) > 0 else 0.5
            return TrainOutput.new(self, (item.loss * scale).backward(), item)

    base = learner(program, "log", 2).model
    prepared = program.Learner(Reads(base.linear1, base.planted, base.linear2), program.AdamConfig().init(), 1e-3)
    with pytest.raises(
        NonFiniteError, match=r"the loss, .*batch 3 \(step 3.*cannot be traced[\s\S]*expected: [\s\S]*mend: "
    ):
        train(program, tmp_path / "run", "log", 2, prepared=prepared)


def test_a_disk_that_is_full_hides_no_fault(program, tmp_path, monkeypatch):
    from burn_torch.train.anomaly import replay_file

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replay_file, "save", full)
    with pytest.raises(NonFiniteError, match="NaN from log in planted") as caught:
        train(program, tmp_path / "run", "log", 2)
    assert "look at what that operation reads" in str(caught.value)
    assert "cannot be written" in (tmp_path / "run/experiment.log").read_text()


def test_other_strategies_are_refused(program, tmp_path):
    class Own:
        def __init__(self):
            self.inner = SingleDevice()

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def prepare(self, learner):
            return self.inner.prepare(learner)

        def train_step(self, learner, batch, key):
            return self.inner.train_step(learner, batch, key)

        def optimizer_step(self, learner, lr, grads):
            return self.inner.optimizer_step(learner, lr, grads)

    training = program.make_training(tmp_path / "run", 1).with_training_strategy(Own()).detect_anomaly()
    with pytest.raises(ConfigError, match=r"detect_anomaly with Own\n  expected: SingleDevice\n  mend: "):
        training.launch(program.make_learner())


# -- searching --------------------------------------------------------------------------------------------
def searched(function, *arrays):
    opened = compile(function).opened(*[Tensor.from_data(np.asarray(a, np.float32), Device.cpu()) for a in arrays])
    return find(opened.graph, opened.leaf, opened.inputs, opened.names)


def test_what_is_finite_has_no_fault():
    assert searched(lambda x: (x * x).sum(), [3e38, 3e38]) is not None  # its square is not
    assert searched(lambda x: x + 1, [3e38, 3e38]) is None  # though their sum is not
    assert searched(lambda x: x.mask_fill(x > 0, -np.inf).exp(), [1.0, -1.0]) is None


def test_an_infinity_that_became_nan_is_reported_with_both():
    fault = searched(lambda x: x.exp() - x.exp() * 1.0 - x.exp(), [200.0, 1.0])
    assert str(fault.fault) == "infinity from exp"
    assert fault.fault.became.startswith("sub at ")
    assert "test_anomaly.py" in fault.fault.where


def test_the_part_that_is_kept_is_what_leads_to_the_fault():
    fault = searched(lambda x, y: ((x * 2).log(), (y * 3).exp().sum()), [-1.0], [1.0, 2.0])
    assert [node.call.op.name for node in fault.graph.nodes] == ["mul", "log"]
    assert fault.inputs == (0,)


def test_unsound_names_what_is_not_finite(program):
    sound = learner(program, "none")
    assert list(unsound(sound)) == []
    broken = sound.model.linear1.weight.map(lambda x: x / (x * 0))
    model = dataclasses.replace(sound.model, linear1=dataclasses.replace(sound.model.linear1, weight=broken))
    assert list(unsound(sound.with_model(model))) == ["model.linear1.weight"]


# -- files ------------------------------------------------------------------------------------------------
def test_a_replay_file_is_data_and_nothing_else(program, tmp_path):
    with pytest.raises(NonFiniteError, match="NaN from log"):
        train(program, tmp_path / "run", "log", 1)
    [file] = (tmp_path / "run/anomaly").iterdir()
    record = ModuleRecord.load(file)
    about = json.loads(record.metadata["anomaly"])
    assert about["inputs"][0]["name"].startswith("batch")
    for part in ("version", "fault", "inputs", "leaf", "position", "versions", "graph"):
        for forged in (None, 3, "x"):
            metadata = {**record.metadata, "anomaly": json.dumps({**about, part: forged})}
            path = dataclasses.replace(record, metadata=metadata).save(tmp_path / "forged")
            with pytest.raises(RecordError, match=r"not a replay of an anomaly\n  given: .*\n  expected: .*\n  mend: "):
                Replay.load(path)
    other = program.make_net().into_record().save(tmp_path / "other")
    with pytest.raises(RecordError, match=r"not a replay of an anomaly\n  given:    .*other.safetensors: KeyError"):
        replay(other)


def test_a_replay_that_gives_another_result_says_so(program, tmp_path):
    with pytest.raises(NonFiniteError, match="NaN from log"):
        train(program, tmp_path / "run", "log", 1)
    [file] = (tmp_path / "run/anomaly").iterdir()
    held = Replay.load(file)
    sound = dataclasses.replace(held, inputs=tuple(_zeros(x) for x in held.inputs))
    replayed = sound.run()
    assert not replayed.reproduced
    assert replayed.fault is None
    assert str(replayed).endswith("another result: all is finite; it was NaN from log in planted")


def _zeros(x: Any) -> Any:
    return type(x).of(np.zeros_like(x.array)) if hasattr(x, "array") else x
