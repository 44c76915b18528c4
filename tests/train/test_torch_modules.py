"""Plain torch modules in the Learner: the bits of a raw torch loop, and of a resumed run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ConfigError, Device, RecordError
from burn_torch.core.philox import fold
from burn_torch.module import ModuleRecord
from burn_torch.optim import AdamConfig
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    EvaluatorBuilder,
    Learner,
    LossMetric,
    MultiDevice,
    SilentRenderer,
    SupervisedTraining,
    TorchModel,
)
from burn_torch.train.checkpoint import Checkpoint


@dataclass
class Batch:
    inputs: torch.Tensor
    targets: torch.Tensor


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(8, 3),
        )

    def train_step(self, batch: Batch) -> Any:
        scores = self.layers(batch.inputs)
        loss = torch.nn.functional.cross_entropy(scores, batch.targets)
        output: Any = ClassificationOutput  # its fields are ours; torch tensors in them become ours
        return output(loss, scores, batch.targets)

    valid_step = train_step


def net() -> Any:
    torch.manual_seed(1)
    return Net()


def batches(sizes: tuple[int, ...] = (8, 8, 8, 5)) -> list[Batch]:
    rng = np.random.default_rng(0)
    cuts = []
    for size in sizes:
        inputs = rng.normal(size=(size, 6)).astype(np.float32)
        targets = torch.tensor((inputs[:, 0] > 0).astype(int) + (inputs[:, 1] > 0))
        cuts.append(Batch(torch.from_numpy(inputs), targets))
    return cuts


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda module: torch.optim.AdamW(module.parameters()),
    "momentum": lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
}


def training(folder: Any, epochs: int) -> SupervisedTraining:
    run = SupervisedTraining(folder, batches(), batches((7,))).metrics(LossMetric(), AccuracyMetric())
    return run.num_epochs(epochs).seed(7).renderer(SilentRenderer())


def state(model: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.module.state_dict().items()}


def require_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("name", ["momentum", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_run_has_the_bits_of_a_raw_loop(tmp_path: Any, name: str) -> None:
    module = net()
    result = training(tmp_path / "run", 2).launch(Learner(module, OPTIMIZERS[name](module), 0.05))
    require_same_bits(state(TorchModel(module)), state(TorchModel(net())))  # launch trains a copy
    raw = net()
    optim = OPTIMIZERS[name](raw)
    for group in optim.param_groups:
        group["lr"] = 0.05
    losses = []
    for step, batch in enumerate(batches() * 2):
        torch.manual_seed(fold(fold(7, 0), step))
        loss = raw.train_step(batch).loss
        loss.backward()
        optim.step()
        optim.zero_grad()
        losses.append(loss.item())
    require_same_bits(state(result.model), state(TorchModel(raw)))
    losses_of_run = [value for epoch in (1, 2) for value in result.history.values("Loss", "train", epoch)]
    np.testing.assert_allclose(losses_of_run, losses, rtol=1e-7)


@pytest.mark.parametrize("name", ["momentum", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(tmp_path: Any, name: str) -> None:
    def learner() -> Learner[Any]:
        module = net()
        return Learner(module, OPTIMIZERS[name](module), 0.05)

    whole = training(tmp_path / "whole", 3).launch(learner())
    training(tmp_path / "parts", 1).launch(learner())
    resumed = training(tmp_path / "parts", 3).resume().launch(learner())
    require_same_bits(state(resumed.model), state(whole.model))
    assert resumed.history.series("Accuracy") == whole.history.series("Accuracy")


def test_accumulated_batches_are_one_large_batch(tmp_path: Any) -> None:
    def run(folder: str, sizes: tuple[int, ...], accumulation: int) -> dict[str, Any]:
        torch.manual_seed(3)
        module = torch.nn.Linear(6, 3)
        model = TorchModel(
            module, lambda module, batch: torch.nn.functional.cross_entropy(module(batch.inputs), batch.targets)
        )
        whole = batches((21,))[0]
        cuts, at = [], 0
        for size in sizes:
            cuts.append(Batch(whole.inputs[at : at + size], whole.targets[at : at + size]))
            at += size
        run = SupervisedTraining(tmp_path / folder, cuts, None).metrics(LossMetric()).num_epochs(3)
        run = run.grads_accumulation(accumulation).renderer(SilentRenderer())
        return state(run.launch(Learner(model, torch.optim.SGD(module.parameters(), lr=0.5), 0.5)).model)

    one, parts = run("one", (21,), 1), run("parts", (8, 8, 5), 3)
    for name, value in one.items():
        np.testing.assert_allclose(parts[name].numpy(), value.numpy(), rtol=1e-6, atol=1e-6)


def test_groups_keep_the_ratios_of_their_rates() -> None:
    module = net()
    layers = list(module.layers)
    optim = torch.optim.SGD(
        [{"params": layers[0].parameters(), "lr": 0.1}, {"params": layers[4].parameters(), "lr": 0.01}]
    )
    learner = Learner(module, optim, 1.0)
    learner.optim.set_lr(0.5)
    assert [group["lr"] for group in optim.param_groups] == [0.5, pytest.approx(0.05)]


def test_what_cannot_be_is_reported(tmp_path: Any) -> None:
    module = net()
    with pytest.raises(ConfigError, match=r"is not of this model[\s\S]*none of TorchModel's"):
        Learner(module, torch.optim.SGD(net().parameters(), lr=0.1), 0.1)
    with pytest.raises(ConfigError, match=r"trained by an optimizer of torch[\s\S]*Adam"):
        training(tmp_path / "a", 1).launch(Learner(module, AdamConfig().init(), 0.1))
    learner = Learner(module, torch.optim.SGD(module.parameters(), lr=0.1), 0.1)
    with pytest.raises(ConfigError, match=r"by one process on one device[\s\S]*MultiDevice"):
        training(tmp_path / "b", 1).with_training_strategy(MultiDevice([Device.cpu()])).launch(learner)
    no_loss = TorchModel(module, lambda module, batch: batch.inputs)
    with pytest.raises(ConfigError, match=r"returned no loss[\s\S]*Tensor"):
        training(tmp_path / "c", 1).launch(Learner(no_loss, torch.optim.SGD(module.parameters(), lr=0.1), 0.1))
    bare = torch.nn.Linear(2, 2)
    with pytest.raises(
        ConfigError,
        match=r"Linear without train_step[\s\S]*write Linear\.train_step\(self, batch\), or give TorchModel\(",
    ):
        training(tmp_path / "d", 1).launch(Learner(bare, torch.optim.SGD(bare.parameters(), lr=0.1), 0.1))
    record = ModuleRecord({}, {})
    with pytest.raises(RecordError, match=r"does not fit Net[\s\S]*layers\.0\.weight is missing"):
        TorchModel(module).load_record(record)


def test_states_of_other_parameters_are_refused() -> None:
    module = net()
    params = list(module.parameters())
    whole = Learner(module, torch.optim.SGD(params, lr=0.1, momentum=0.9), 0.1).optim
    for param in params:
        param.grad = torch.ones_like(param)
    whole.optimizer.step()
    fewer = Learner(module, torch.optim.SGD(params[:-1], lr=0.1, momentum=0.9), 0.1).optim
    with pytest.raises(RecordError, match=r"of other parameters[\s\S]*6 parameters, 1 of which torch\.SGD"):
        fewer.load_record(whole.to_record())
    assert fewer.optimizer.state_dict()["state"] == {}


def test_an_evaluator_measures_a_torch_module_as_its_run_validates(tmp_path: Any) -> None:
    module = net()
    result = training(tmp_path / "run", 1).launch(Learner(module, torch.optim.SGD(module.parameters(), lr=0.1), 0.1))
    builder = EvaluatorBuilder(tmp_path / "evaluation").metrics(LossMetric(), AccuracyMetric())
    for model in (result.model, result.model.module.train()):
        before = state(result.model)
        evaluation = builder.build(model).eval("valid", batches((7,)))
        assert evaluation.columns["Loss"] == result.history.values("Loss", "valid", 1)
        assert evaluation.value("Accuracy") == result.history.values("Accuracy", "valid", 1)[0]
        require_same_bits(state(result.model), before)
        assert result.model.module.training
    with pytest.raises(ConfigError, match="Linear without valid_step"):
        builder.build(torch.nn.Linear(2, 2))


class Failing(Net):
    """Fails in the third step, when BatchNorm has seen its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def train_step(self, batch: Batch) -> Any:
        item = super().train_step(batch)
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError("the third step")
        return item


def test_a_checkpoint_of_a_module_that_failed_in_a_step_says_so(tmp_path: Any) -> None:
    module = Failing()
    with pytest.raises(RuntimeError, match="the third step"):
        training(tmp_path, 1).launch(Learner(module, torch.optim.SGD(module.parameters(), lr=0.1), 0.1))
    (saved,) = (tmp_path / "checkpoint").glob("*.safetensors")
    checkpoint = Checkpoint.from_record(ModuleRecord.load(saved))
    assert checkpoint.position.batch == 2
    assert int(checkpoint.model.entries["layers.1.num_batches_tracked"].read().array) == 3  # the third batch is in it
    (note,) = checkpoint.notes
    assert note.startswith("the torch module may hold part of batch 3 of epoch 1"), note
