"""compile on a GPU: recorded programs, what they lend, and values within the error of eager execution."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import burn_torch
from burn_torch import Device, Distribution, DType, Module, Tensor, compile
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    Conv2d,
    Conv2dConfig,
    Dropout,
    DropoutConfig,
    Linear,
    LinearConfig,
    MaxPool2d,
    MaxPool2dConfig,
)
from burn_torch.nn.loss import CrossEntropyLossConfig
from burn_torch.optim import AdamWConfig, GradientsParams, SgdConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture
def device() -> Device:
    return Device.cuda(0).autodiff()


class Net(Module):
    conv: Conv2d
    norm: BatchNorm
    pool: MaxPool2d
    drop: Dropout
    linear: Linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool.forward(self.norm.forward(self.conv.forward(x)).relu())
        return self.linear.forward(self.drop.forward(x).flatten(1, 3))


def net(device: Device, prob: float = 0.25) -> Net:
    burn_torch.seed(1)
    layers = Net(
        Conv2dConfig((1, 8), (3, 3)).init(Device.cpu().autodiff()),
        BatchNormConfig(8).init(Device.cpu().autodiff()),
        MaxPool2dConfig((2, 2)).init(),
        DropoutConfig(prob).init(),
        LinearConfig(8 * 6 * 6, 10).init(Device.cpu().autodiff()),
    )
    return layers.to_device(device)


def training_step(model: Net, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Net, Any, Tensor]:
    loss = CrossEntropyLossConfig().init(x.device).forward(model.forward(x), y)
    model, optim = optim.step(lr, model, GradientsParams.from_grads(loss.backward(), model))
    return model, optim, loss.detach()


def batch(device: Device, size: int = 16, dtype: DType = DType.F32) -> tuple[Tensor, Tensor]:
    burn_torch.seed(4)
    x = Tensor.random((size, 1, 14, 14), Distribution.Default, Device.cpu()).cast(dtype)
    return x.to_device(device), Tensor.from_data([i % 10 for i in range(size)], device)


def trained(step: Any, device: Device, steps: int, size: int = 16, dtype: DType = DType.F32) -> tuple[Net, list[float]]:
    model, optim = net(device), AdamWConfig().init()
    if dtype is not DType.F32:
        model = model.map_params(lambda p: p.map(lambda t: t.cast(dtype)))
    x, y = batch(device, size, dtype)
    burn_torch.seed(9)
    losses = []
    for i in range(steps):
        model, optim, loss = step(model, optim, x, y, 1e-3 * (1 + i % 5))
        losses.append(loss)
    return model, [float(loss) for loss in losses]


def test_training_is_as_near_to_float64_as_eager_training(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"))
    _, exact = trained(training_step, Device.cpu().autodiff(), 30, dtype=DType.F64)
    _, eager = trained(training_step, device, 30)
    _, losses = trained(step, device, 30)
    assert step.traces == 1
    bound = 4 * max(abs(a - b) for a, b in zip(eager, exact, strict=True)) + 1e-5
    assert max(abs(a - b) for a, b in zip(losses, exact, strict=True)) <= bound
    assert losses[-1] < 0.5 * losses[0]


def test_results_are_never_overwritten(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(device)
    model, optim = net(device), AdamWConfig().init()
    losses, weights, kept = [], [], []
    for _ in range(6):
        model, optim, loss = step(model, optim, x, y, 1e-2)
        losses.append(loss)
        kept.append(float(loss))
        weights.append((model.linear.weight.val(), model.linear.weight.val().into_data().values.copy()))
    assert [float(loss) for loss in losses] == kept
    assert all((weight.into_data().values == value).all() for weight, value in weights)
    assert len({value.tobytes() for _, value in weights}) == 6


def test_two_states_take_turns_in_one_program(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(device)
    start = net(device, 0.0)
    states = {lr: (start.fork(device), SgdConfig().init()) for lr in (0.1, 0.01)}
    for _ in range(4):
        for lr, (model, optim) in states.items():
            model, optim, _ = step(model, optim, x, y, lr)
            states[lr] = (model, optim)
    assert step.traces == 1
    for lr, (trained_model, _) in states.items():
        model, optim = start.fork(device), SgdConfig().init()
        for _ in range(4):
            model, optim, _ = training_step(model, optim, x, y, lr)
        wanted = model.linear.weight.val().into_data().values
        assert abs(trained_model.linear.weight.val().into_data().values - wanted).max() < 1e-5


def test_shapes_take_turns_over_one_state(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"))
    batches = [batch(device, size) for size in (16, 5, 16, 7, 5)]
    model, optim = net(device, 0.0), AdamWConfig().init()
    other, state = net(device, 0.0), AdamWConfig().init()
    for x, y in batches * 2:
        model, optim, _ = step(model, optim, x, y, 1e-3)
        other, state, _ = training_step(other, state, x, y, 1e-3)
    assert step.traces == 3
    difference = model.linear.weight.val() - other.linear.weight.val()
    assert float(difference.abs().max()) < 1e-4


def test_a_donated_tensor_that_comes_back_is_not_overwritten(device: Device) -> None:
    double = compile(lambda x: x * 2.0, donate="x")
    inner = device.inner()
    results = [double(Tensor.full((3,), float(n), inner)) for n in range(5)]
    assert [r.tolist() for r in results] == [[2.0 * n] * 3 for n in range(5)]


def test_masks_are_those_of_the_cpu(device: Device) -> None:
    drop = compile(lambda layer, x: layer.forward(x))
    layer = DropoutConfig(0.4).init()
    for _ in range(3):
        burn_torch.seed(3)
        wanted = layer.forward(Tensor.ones((33, 7), Device.cpu().autodiff())).into_data().values
        burn_torch.seed(3)
        masked = drop(layer, Tensor.ones((33, 7), device)).into_data().values
        assert (masked == wanted).all()


def test_evaluation_reads_the_weights_that_training_returns(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"))
    forward = compile(lambda model, x: model.forward(x))
    x, y = batch(device)
    model, optim = net(device), AdamWConfig().init()
    for _ in range(5):
        model, optim, _ = step(model, optim, x, y, 1e-2)
        valid = model.valid()
        wanted = valid.forward(x.inner())
        assert float((forward(valid, x.inner()) - wanted).abs().max()) < 1e-4


def test_another_precision_is_another_program(device: Device) -> None:
    product = compile(lambda a, b: a @ b)
    burn_torch.seed(2)
    a = Tensor.random((256, 256), Distribution.Default, Device.cpu()).to_device(device.inner())
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        exact = product(a, a)
        torch.set_float32_matmul_precision("high")
        product(a, a)
        torch.set_float32_matmul_precision("highest")
        assert float((product(a, a) - exact).abs().max()) == 0.0
    finally:
        torch.set_float32_matmul_precision(before)
    assert product.traces == 2


def test_without_replay(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"), replay=False)
    _, wanted = trained(compile(training_step, donate=("model", "optim")), device, 5)
    _, losses = trained(step, device, 5)
    assert losses == pytest.approx(wanted, abs=1e-4)
    explanation = step.explain(net(device), AdamWConfig().init(), *batch(device), 1e-3)
    assert explanation.source is not None


def test_bfloat16_keeps_float32_parameters(device: Device) -> None:
    step = compile(training_step, donate=("model", "optim"), precision="bfloat16")
    model, losses = trained(step, device, 20)
    assert {param.val().dtype for _, param in model.named_params()} == {DType.F32}
    assert losses[-1] < 0.7 * losses[0]
