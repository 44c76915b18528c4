"""The small functions of the loop, against a loop written by hand and against numpy in float64."""

import dataclasses

import numpy as np
import pytest

from burn_torch import ConfigError, Device, Module, Param, RunningState, Tensor, ops
from burn_torch.core.philox import fold
from burn_torch.module.scope import StepScope
from burn_torch.optim import AdamConfig, GradientsParams, LinearLrSchedulerConfig, SgdConfig
from burn_torch.train import (
    ClassificationOutput,
    GradientWindow,
    Learner,
    RegressionOutput,
    SilentRenderer,
    SupervisedTraining,
    TrainOutput,
    train_step,
    valid_step,
)


class Line(Module):
    weight: Param

    def train_step(self, batch):
        x, y = batch
        output = x.matmul(self.weight.val())
        item = RegressionOutput(ops.square(output - y).mean(), output, y)
        return TrainOutput.new(self, item.loss.backward(), item)

    def valid_step(self, batch):
        x, y = batch
        output = x.matmul(self.weight.val())
        return RegressionOutput(ops.square(output - y).mean(), output, y)


def line(device):
    return Line(Param.from_data(np.array([[0.5], [-0.25]]), device))


def batches(device, sizes, seed):
    return [
        (Tensor.from_data(seed.normal(0, 1, (n, 2)), device), Tensor.from_data(seed.normal(0, 1, (n, 1)), device))
        for n in sizes
    ]


def weight_of(model):
    return model.weight.val().into_data().array.copy()


def test_run_equals_a_loop_written_by_hand(program, tmp_path):
    result = program.make_training(tmp_path / "run", epochs=2).launch(program.make_learner())

    learner = program.make_learner()
    model, optim, schedule = learner.model, learner.optim, learner.lr_scheduler
    loader = program.make_loaders()[0].to_device(Device.cpu().autodiff())
    key, number = fold(7, 0), 0
    for epoch in range(2):
        for batch in loader.epoch(epoch):
            with StepScope(fold(key, number), model) as scope:
                item = model.classify(batch)
                gradients = item.loss.backward()
            model = model.with_states(scope.states)
            grads = GradientsParams.from_grads(gradients, model)
            model, optim = optim.step(schedule.lr_at(number), model, grads)
            number += 1

    assert number == 10
    assert program.digest(result.learner.model) == program.digest(model)


def test_sgd_steps_are_those_of_numpy(seed):
    device = Device.cpu().autodiff()
    model, optim = line(device), SgdConfig().init()
    w = weight_of(model)
    for number, batch in enumerate(batches(device, (4, 1, 7), seed)):
        model, grads, item = train_step(model, batch, number)
        model, optim = optim.step(0.1, model, grads)
        x, y = (part.into_data().array for part in batch)
        residual = x @ w - y
        assert item.loss.into_data().array == pytest.approx(np.mean(residual**2), rel=1e-14)
        w = w - 0.1 * 2 * x.T @ residual / len(x)
    np.testing.assert_allclose(weight_of(model), w, rtol=1e-13)


def test_accumulated_ragged_batches_are_one_large_batch(seed):
    device = Device.cpu().autodiff()
    parts = batches(device, (3, 5, 1), seed)
    model = line(device)
    window = GradientWindow()
    for number, batch in enumerate(parts):
        _, grads, item = train_step(model, batch, number)
        window = window.add(grads, item)
    together = tuple(Tensor.cat([part[i] for part in parts], 0) for i in (0, 1))
    _, expected, _ = train_step(model, together, 0)
    grad = window.take().get(model.weight.id).into_data().array
    np.testing.assert_allclose(grad, expected.get(model.weight.id).into_data().array, rtol=1e-13)


def test_accumulation_weighs_by_a_count_on_the_device(seed):
    device = Device.cpu().autodiff()
    parts = batches(device, (3, 5), seed)
    model = line(device)
    counts = (2.0, 1.0)
    window = GradientWindow()
    expected = 0.0
    for batch, count in zip(parts, counts, strict=True):
        _, grads, item = train_step(model, batch, 0)
        on_device = Tensor.from_data(np.array([int(count)]), device)
        window = window.add(grads, dataclasses.replace(item, count=on_device))
        expected = expected + count / 3 * grads.get(model.weight.id).into_data().array
    np.testing.assert_allclose(window.take().get(model.weight.id).into_data().array, expected, rtol=1e-13)


def test_a_window_of_padding_alone_has_no_gradient(seed):
    device = Device.cpu().autodiff()
    model = line(device)
    window = GradientWindow()
    for batch in batches(device, (3, 5), seed):
        _, grads, item = train_step(model, batch, 0)
        window = window.add(grads, dataclasses.replace(item, count=0))
    assert np.array_equal(window.take().get(model.weight.id).into_data().array, np.zeros((2, 1)))


def test_accumulation_wants_to_know_how_many_items(seed):
    model = line(Device.cpu().autodiff())
    _, grads, _ = train_step(model, batches(Device.cpu().autodiff(), (3,), seed)[0], 0)
    with pytest.raises(ConfigError, match=r"grads_accumulation cannot read[\s\S]*given: .*str[\s\S]*LossInput"):
        GradientWindow().add(grads, "an item")


def test_last_window_of_an_epoch_may_be_shorter(program, tmp_path):
    # 5 batches an epoch in windows of 2: the last window has one batch; Burn drops it
    training = program.make_training(tmp_path / "run", epochs=2).grads_accumulation(2)
    schedule = LinearLrSchedulerConfig(initial_lr=0.05, final_lr=0.001, num_iters=18)
    result = training.launch(Learner(program.make_net(), AdamConfig().init(), schedule))
    assert result.learner.lr_scheduler.taken == 6
    assert {time for time, _ in result.learner.optim.to_record().states.values()} == {6}


def test_launch_changes_nothing_of_what_it_is_given(program, tmp_path):
    learner = program.make_learner()
    before = program.digest(learner.model)
    result = program.make_training(tmp_path / "run", epochs=1).launch(learner)
    assert program.digest(learner.model) == before
    assert learner.optim.to_record().is_empty()
    assert learner.lr_scheduler.taken == 0
    assert program.digest(result.model) != before


def test_running_states_come_from_the_scope_of_each_step(program):
    class Counting(Module):
        weight: Param
        seen: RunningState

        def train_step(self, batch):
            self.seen.update(self.seen.value() + 1.0)
            loss = (self.weight.val() * batch).sum()
            return TrainOutput.new(self, loss.backward(), None)

        def valid_step(self, batch):
            self.seen.update(self.seen.value() + 100.0)
            return self.seen.value()

    device = Device.cpu().autodiff()
    seen = RunningState(Tensor.from_data(np.zeros(1, np.float32), device.inner()))
    model = Counting(Param.from_data(np.ones(1, np.float32), device), seen)
    batch = Tensor.from_data(np.ones(1, np.float32), device)
    first, _, _ = train_step(model, batch, 0)
    second, _, _ = train_step(first, batch, 1)
    assert second.seen.value().into_data().to_list() == [2.0]
    assert model.seen.value().into_data().to_list() == [0.0]
    assert valid_step(second, batch, 0).into_data().to_list() == [102.0]
    assert second.seen.value().into_data().to_list() == [2.0]  # what validation does to a state is dropped


def test_train_output_takes_gradients_of_either_kind(seed):
    device = Device.cpu().autodiff()
    model = line(device)
    x, y = batches(device, (3,), seed)[0]
    taken = GradientsParams.from_grads((x.matmul(model.weight.val()) - y).sum().backward(), model)
    assert TrainOutput.new(model, taken, None).grads is taken
    with pytest.raises(AttributeError):
        taken.anything = 1


def test_a_list_of_batches_is_a_loader(seed, tmp_path):
    device = Device.cpu().autodiff()
    data = batches(device, (4, 4, 2), seed)
    held = [tuple(part.inner() for part in batch) for batch in data]
    training = SupervisedTraining(tmp_path / "run", data, held).num_epochs(2).renderer(SilentRenderer())
    result = training.launch(Learner(line(device), SgdConfig().init(), 0.1))
    model, optim = line(device), SgdConfig().init()
    for _ in range(2):
        for batch in data:
            model, grads, _ = train_step(model, batch, 0)
            model, optim = optim.step(0.1, model, grads)
    assert np.array_equal(weight_of(result.learner.model), weight_of(model))


def test_classification_output_counts_its_targets():
    device = Device.cpu()
    targets = Tensor.from_data(np.zeros((2, 3), np.int64), device)
    one = Tensor.from_data(np.float32(1.0), device)
    from burn_torch.train import LossInput

    assert ClassificationOutput(one, one, targets).adapt(LossInput).count == 6
    assert ClassificationOutput(one, one, targets, count=4).adapt(LossInput).count == 4
    assert RegressionOutput(one, one, targets).adapt(LossInput).count == 2
