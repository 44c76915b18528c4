"""Groups and several updates within a run, and the small methods of a Learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burn_torch import ArgumentError, ConfigError, Device, Tensor
from burn_torch.data import DataLoader
from burn_torch.module import GradientsParams
from burn_torch.optim import (
    AdamConfig,
    GroupedLrScheduler,
    GroupedOptimizer,
    LinearLrSchedulerConfig,
    ParamGroup,
    SgdConfig,
)
from burn_torch.train import GroupLearningRateMetric, Learner, MultiDevice, SingleDevice, TrainOutput
from burn_torch.train.event import SplitStarted
from tests.distributed import small


def grouped(net: Any) -> Learner[Any]:
    groups = {
        "first": (ParamGroup.from_path("linear1"), AdamConfig().init()),
        "second": (ParamGroup.from_path("linear2"), SgdConfig().init()),
    }
    rates = GroupedLrScheduler({"first": LinearLrSchedulerConfig(0.02, 0.0, 20), "second": 0.1})
    return Learner(net, GroupedOptimizer.of(net, groups), rates)


def launch(folder: Any, strategy: Any = None, **options: Any) -> Any:
    training = small.training({"dir": folder, **options}, strategy or SingleDevice())
    metrics = (GroupLearningRateMetric("first"), GroupLearningRateMetric("second"))
    return training.metric_train(metrics[0]).metric_train(metrics[1]).launch(grouped(small.net()))


def bits(result: Any) -> list[bytes]:
    return [param.val().into_data().array.tobytes() for _, param in result.model.named_params()]


def test_a_run_with_groups_logs_their_rates_compiles_and_resumes(tmp_path: Any) -> None:
    whole = launch(tmp_path / "whole")
    assert bits(launch(tmp_path / "eager", compiled=False)) == bits(whole)
    rates = whole.history.values("Learning Rate first", "train", 2)
    np.testing.assert_allclose(rates, [0.02 * (1 - step / 20) for step in range(5, 10)], rtol=1e-12)
    assert whole.history.values("Learning Rate second", "train", 1) == [0.1] * 5
    launch(tmp_path / "parts", epochs=1)
    assert bits(launch(tmp_path / "parts", resume=True)) == bits(whole)


@pytest.mark.slow
def test_groups_train_on_several_devices(tmp_path: Any) -> None:
    one = launch(tmp_path / "one")
    for optim in ("main", "sharded"):
        many = launch(tmp_path / optim, MultiDevice([Device.cpu(), Device.cpu()], optim))
        for (path, a), (_, b) in zip(one.model.named_params(), many.model.named_params(), strict=True):
            np.testing.assert_allclose(b.val().into_data().array, a.val().into_data().array, atol=1e-6, err_msg=path)


def test_a_resume_validates_with_the_rates_of_the_groups(tmp_path: Any) -> None:
    class StopsInValidation:
        def handle(self, event: Any, /) -> None:
            if isinstance(event, SplitStarted) and event.split == "valid":
                training.interrupter().stop("enough")

        def close(self) -> None:
            """Nothing is open."""

    def made(**options: Any) -> Any:
        run = small.training({"dir": tmp_path, "epochs": 1, **options}, SingleDevice())
        return run.metrics(GroupLearningRateMetric("first"), GroupLearningRateMetric("second"))

    training = made().renderer(StopsInValidation())
    assert training.launch(grouped(small.net())).status == "stopped"
    resumed = made(resume=True).launch(grouped(small.net()))
    assert set(resumed.history.values("Learning Rate first", "valid", 1)) == {0.02 * (1 - 4 / 20)}
    assert set(resumed.history.values("Learning Rate second", "valid", 1)) == {0.1}


def test_a_group_without_a_schedule_is_reported(tmp_path: Any) -> None:
    training = small.training({"dir": tmp_path}, SingleDevice()).metric_train(GroupLearningRateMetric("third"))
    with pytest.raises(ConfigError, match=r"the schedule has no such group[\s\S]*'third', and groups first, second"):
        training.launch(grouped(small.net()))


class Twice(small.Net):
    """Updates its two layers one after the other."""

    def train_step(self, batch: small.Batch) -> Any:
        item = self.classify(batch)
        model = yield TrainOutput.several({"second": (self.linear2, item.loss.backward())}, item)
        other = model.classify(batch)
        yield TrainOutput.several({"first": (model.linear1, other.loss.backward())}, other)


def test_a_step_that_yields_updates_each_time_and_has_the_bits_of_a_loop(tmp_path: Any) -> None:
    from burn_torch import StepScope
    from burn_torch.train import fold

    net = small.net()
    twice = Twice(net.linear1, net.noise, net.dropout, net.linear2)
    results = [
        small.training({"dir": tmp_path / f"{compiled}", "compiled": compiled, "epochs": 1}, SingleDevice()).launch(
            Learner(twice, SgdConfig().init(), 0.1)
        )
        for compiled in (True, False)
    ]
    assert bits(results[0]) == bits(results[1])
    model, optim = twice, SgdConfig().init()
    loader = DataLoader(
        small.items(small.ITEMS), small.Batcher(), batch_size=9, shuffle=11, device=Device.cpu().autodiff()
    )
    for step, batch in enumerate(loader.epoch(0)):
        for part, key in (("linear2", fold(fold(7, 0), step)), ("linear1", fold(fold(fold(7, 0), step), 1))):
            with StepScope(key, model):
                grads = model.classify(batch).loss.backward()
            layer = getattr(model, part)
            model, optim = optim.step(0.1, model, GradientsParams.from_grads(grads, layer))
    wanted = [param.val().into_data().array.tobytes() for _, param in model.named_params()]
    assert wanted == bits(results[1])


def test_a_step_that_yields_is_refused_where_gradients_are_added_up(tmp_path: Any) -> None:
    net = small.net()
    twice = Twice(net.linear1, net.noise, net.dropout, net.linear2)
    training = small.training({"dir": tmp_path, "accumulation": 2}, SingleDevice())
    with pytest.raises(ConfigError, match=r"updates several times, which cannot be done here[\s\S]*Twice\.train_step"):
        training.launch(Learner(twice, SgdConfig().init(), 0.1))


class Halved(small.Net):
    """Updates itself, by half of each gradient."""

    def optimize(self, optim: Any, lr: Any, grads: GradientsParams) -> Any:
        return optim.step(lr, self, GradientsParams({ident: g * 0.5 for ident, g in grads.items()}))


def test_a_model_may_update_itself(tmp_path: Any) -> None:
    net = small.net()
    half = Halved(net.linear1, net.noise, net.dropout, net.linear2)
    run = small.training({"dir": tmp_path / "own"}, SingleDevice()).launch(Learner(half, SgdConfig().init(), 0.2))
    wanted = small.training({"dir": tmp_path / "plain"}, SingleDevice()).launch(Learner(net, SgdConfig().init(), 0.1))
    for (path, a), (_, b) in zip(run.model.named_params(), wanted.model.named_params(), strict=True):
        np.testing.assert_allclose(a.val().into_data().array, b.val().into_data().array, rtol=1e-5, err_msg=path)
    with pytest.raises(ConfigError, match=r"updates itself cannot have its optimizer in shards"):
        small.training({"dir": tmp_path / "no"}, MultiDevice([Device.cpu()], "sharded")).launch(
            Learner(half, SgdConfig().init(), 0.2)
        )


def test_parts_that_share_a_parameter_are_reported() -> None:
    net = small.net()
    batch = small.Batcher().batch(small.items(4), Device.cpu().autodiff())
    one, other = (net.classify(batch).loss.backward() for _ in range(2))
    with pytest.raises(ArgumentError, match=r"gradients of two losses[\s\S]*linear2\.weight of all, and of second"):
        TrainOutput.several({"second": (net.linear2, one), "all": (net, other)}, None)


# -- the methods of a Learner ------------------------------------------------------------------------------
def test_a_learner_tells_its_rate_without_counting() -> None:
    learner = Learner(small.net(), SgdConfig().init(), LinearLrSchedulerConfig(0.1, 0.0, 10))
    assert (learner.lr_current(), learner.lr_current(), learner.lr_step()) == (0.1, 0.1, 0.1)
    assert learner.lr_current() == pytest.approx(0.09)


def test_a_learner_takes_gradients_of_several_devices() -> None:
    learner = Learner(small.net(), SgdConfig().init(), 0.1)
    batch = small.Batcher().batch(small.items(4), Device.cpu().autodiff())
    _, grads, _ = learner.train_step(batch, 3)
    twice = GradientsParams({ident: gradient * 2.0 for ident, gradient in grads.items()})
    one, other = learner.optimizer_step_multi(0.1, [grads, grads]), learner.optimizer_step(0.1, twice)
    for (_, a), (_, b) in zip(one.model.named_params(), other.model.named_params(), strict=True):
        np.testing.assert_array_equal(a.val().into_data().array, b.val().into_data().array)


def test_a_learner_goes_on_from_records() -> None:
    def fresh() -> Learner[Any]:
        return Learner(small.net(), AdamConfig().init(), LinearLrSchedulerConfig(0.1, 0.0, 10))

    learner = fresh()
    batch = small.Batcher().batch(small.items(4), Device.cpu().autodiff())

    def step(learner: Learner[Any], key: int) -> Learner[Any]:
        learner, grads, _ = learner.train_step(batch, key)
        return learner.optimizer_step(learner.lr_step(), grads)

    learner = step(learner, 1)
    other = fresh().load_model(learner.model.into_record()).load_optim(learner.optim.to_record())
    other = other.load_scheduler(learner.lr_scheduler.to_record())
    one, two = step(learner.fork(), 2), step(other, 2)
    for (_, a), (_, b) in zip(one.model.named_params(), two.model.named_params(), strict=True):
        np.testing.assert_array_equal(a.val().into_data().array, b.val().into_data().array)
    moved = learner.fork(Device.ndarray().autodiff())
    assert moved.model.devices() == [Device.ndarray().autodiff()]
    assert isinstance(moved.model.linear1.weight.val(), Tensor)
