"""Averages of a model over its steps, beside torch.optim.swa_utils."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import swa_utils

from burn_torch import ArgumentError, Device, DType, Module, ShapeError, Tensor, nn
from burn_torch.optim import SgdConfig, recompute_batch_norms, update_ema, update_swa
from burn_torch.transform import compile, value_and_grad

PLACES = [Device.cpu().autodiff(), Device.ndarray().autodiff()]


class Net(Module):
    """A layer and a batch norm."""

    linear: nn.Linear
    norm: nn.BatchNorm

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3) -> (batch, 4)."""
        return self.norm.forward(self.linear.forward(x))


def net(device: Device) -> Net:
    return Net(nn.LinearConfig(3, 4).init(device), nn.BatchNormConfig(4).init(device))


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.detach()).astype(np.float64)


def changed(model: Any, seed: Any) -> Any:
    return model.map_params(
        lambda p: p.map(lambda x: Tensor.from_data(seed.standard_normal(x.shape).astype("f"), p.device).cast(x.dtype))
    )


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_both_averages_are_those_of_their_formulas(device: Device, seed: Any) -> None:
    models = [changed(net(device), seed) for _ in range(4)]
    ema = swa = models[0]
    for count, model in enumerate(models[1:], 1):
        ema, swa = update_ema(ema, model, 0.75), update_swa(swa, model, count)
    weights = [values(model.linear.weight.val()) for model in models]
    expected = weights[0]
    for weight in weights[1:]:
        expected = 0.75 * expected + 0.25 * weight
    np.testing.assert_allclose(values(ema.linear.weight.val()), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values(swa.linear.weight.val()), np.mean(weights, 0), rtol=1e-5, atol=1e-6)
    assert ema.linear.weight.id == models[0].linear.weight.id
    assert values(update_swa(swa, models[1], 0).linear.weight.val()).tolist() == weights[1].tolist()
    assert values(models[0].linear.weight.val()).tolist() == weights[0].tolist()  # nothing was changed


def test_statistics_and_types_of_an_average(seed: Any) -> None:
    device = PLACES[0]
    model = changed(net(device), seed).map_params(lambda p: p.map(lambda x: x.detach().cast(DType.BF16)))
    model.norm.forward(Tensor.from_data(seed.standard_normal((5, 4)).astype("f"), device).cast(DType.BF16))
    wide = model.map_params(lambda p: p.map(lambda x: x.detach().cast(DType.F32))).valid()
    ema = update_ema(wide, model, 0.999)
    assert ema.linear.weight.val().dtype is DType.F32
    assert ema.linear.weight.device is wide.linear.weight.device
    assert values(ema.norm.running_mean.value()).tolist() == values(model.norm.running_mean.value()).tolist()
    half, far = model, model.map_params(lambda p: p.map(lambda x: x.detach() * 0.0))
    for _ in range(3):
        half = update_ema(half, far, 0.5)
    np.testing.assert_allclose(values(half.linear.weight.val()), values(model.linear.weight.val()) / 8, rtol=1e-2)


def test_a_compiled_step_keeps_an_average(seed: Any) -> None:
    device = PLACES[0]
    model = net(device)
    x = Tensor.from_data(seed.standard_normal((5, 3)).astype("f"), device)

    def step(model: Net, ema: Net, x: Tensor, decay: Tensor) -> tuple[Net, Net]:
        _, grads = value_and_grad(lambda model: model.linear.forward(x).square().mean())(model)
        model, _ = SgdConfig().init().step(0.1, model, grads)
        return model, update_ema(ema, model, decay)

    decay = Tensor.from_data([0.9], device)
    eager, compiled = (model, model.no_grad()), (model, model.no_grad())
    quick = compile(step)
    for _ in range(3):
        eager, compiled = step(*eager, x, decay), quick(*compiled, x, decay)
    assert quick.traces == 1
    np.testing.assert_allclose(values(compiled[1].linear.weight.val()), values(eager[1].linear.weight.val()), rtol=1e-5)
    assert not np.allclose(values(eager[1].linear.weight.val()), values(eager[0].linear.weight.val()))


@pytest.mark.parametrize("device", PLACES, ids=str)
def test_statistics_are_those_of_update_bn(device: Device, seed: Any) -> None:
    model = net(device)
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    assert model.linear.bias is not None
    with torch.no_grad():
        twin[0].weight.copy_(torch.from_numpy(values(model.linear.weight.val()).T.copy()))
        twin[0].bias.copy_(torch.from_numpy(values(model.linear.bias.val())))
    batches = [(2.0 + seed.standard_normal((n, 3))).astype("f") for n in (6, 6, 5)]
    swa_utils.update_bn([torch.from_numpy(batch) for batch in batches], twin)
    tensors = [Tensor.from_data(batch, device) for batch in batches]
    for ours in (
        recompute_batch_norms(model, tensors),
        recompute_batch_norms(model.valid(), tensors, lambda model, batch: model.forward(batch)),
    ):
        mean, var = ours.norm.running_mean.value(), ours.norm.running_var.value()
        np.testing.assert_allclose(values(mean), twin[1].running_mean.numpy(), rtol=1e-5, atol=1e-6)  # type: ignore[union-attr, operator]
        np.testing.assert_allclose(values(var), twin[1].running_var.numpy(), rtol=1e-5, atol=1e-6)  # type: ignore[union-attr, operator]
        assert ours.norm.momentum == 0.1
    assert values(model.norm.running_mean.value()).tolist() == [0.0] * 4
    alone = recompute_batch_norms(model.norm, [model.linear.forward(x).detach() for x in tensors])
    np.testing.assert_allclose(values(alone.running_mean.value()), values(mean), rtol=1e-5, atol=1e-6)
    assert recompute_batch_norms(model.linear, []) is model.linear


def test_mistakes_are_refused_in_words() -> None:
    model = net(PLACES[0])
    with pytest.raises(ArgumentError, match=r"decay is out of range\n.*decay 1\.5"):
        update_ema(model, model, 1.5)
    with pytest.raises(ArgumentError, match=r"number of models is negative\n.*count -1"):
        update_swa(model, model, -1)
    with pytest.raises(ArgumentError, match=r"there are no batches"):
        recompute_batch_norms(model, [])
    other = Net(nn.LinearConfig(3, 5, bias=False).init(PLACES[0]), model.norm)
    with pytest.raises(
        ShapeError, match=r"linear\.weight \(3, 4\) in the average, \(3, 5\) in the model; linear\.bias"
    ):
        update_ema(model, other, 0.9)
