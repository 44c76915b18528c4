"""Optimizers against torch.optim, their purity, their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ArgumentError, Device, Module, Param, RecordError, Tensor, ops
from burn_torch.core.dtype import DType
from burn_torch.optim import (
    AdamConfig,
    AdamWConfig,
    GradientClippingConfig,
    GradientsAccumulator,
    GradientsParams,
    LionConfig,
    MomentumConfig,
    Optimizer,
    SgdConfig,
    WeightDecayConfig,
)

LR = 0.05


class Affine(Module):
    weight: Param
    bias: Param

    def loss(self, x: Tensor) -> Tensor:
        y = ops.linear(x, self.weight.val(), self.bias.val())
        return ops.sum(y * y * y, dims=(0, 1))


def affine(seed: np.random.Generator, device: Device) -> Affine:
    return Affine(
        Param.from_data(seed.standard_normal((4, 3)), device), Param.from_data(seed.standard_normal(3), device)
    )


def gradients(model: Affine, x: Tensor) -> GradientsParams:
    return GradientsParams.from_grads(model.loss(x).backward(), model)


def train(model: Affine, optim: Optimizer, batches: list[np.ndarray]) -> tuple[Affine, Optimizer]:
    device = model.weight.device
    for batch in batches:
        grads = gradients(model, Tensor.from_data(batch, device))
        model, optim = optim.step(LR, model, grads)
    return model, optim


def torch_train(weights: list[np.ndarray], make: Callable[..., Any], batches: list[np.ndarray]) -> list[np.ndarray]:
    w, b = (torch.tensor(value, requires_grad=True) for value in weights)
    optim = make([w, b])
    for batch in batches:
        optim.zero_grad()
        ((torch.tensor(batch) @ w + b) ** 3).sum().backward()
        optim.step()
    return [w.detach().numpy(), b.detach().numpy()]


def values(model: Affine) -> list[np.ndarray]:
    return [model.weight.val().into_data().array, model.bias.val().into_data().array]


class PaperLion(torch.optim.Optimizer):
    """Algorithm 2 of https://arxiv.org/abs/2302.06675, line by line: torch has no Lion."""

    def __init__(self, params: Any, lr: float, beta_1: float, beta_2: float, decay: float) -> None:
        super().__init__(params, {"lr": lr, "beta_1": beta_1, "beta_2": beta_2, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = group["beta_1"] * m + (1 - group["beta_1"]) * p.grad
                p -= group["lr"] * (torch.sign(c) + group["decay"] * p)
                m.copy_(group["beta_2"] * m + (1 - group["beta_2"]) * p.grad)


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
CASES = {
    "sgd": (SgdConfig(), lambda p: SGD(p, LR)),
    "sgd, decay": (SgdConfig(weight_decay=WeightDecayConfig(0.1)), lambda p: SGD(p, LR, weight_decay=0.1)),
    "momentum": (SgdConfig(momentum=MomentumConfig()), lambda p: SGD(p, LR, momentum=0.9, dampening=0.1)),
    "nesterov": (
        SgdConfig(momentum=MomentumConfig(momentum=0.8, dampening=0.0, nesterov=True)),
        lambda p: SGD(p, LR, momentum=0.8, nesterov=True),
    ),
    "adam": (AdamConfig(), lambda p: ADAM(p, LR, eps=1e-5)),
    "adam, decay, amsgrad": (
        AdamConfig(weight_decay=WeightDecayConfig(0.1), amsgrad=True),
        lambda p: ADAM(p, LR, eps=1e-5, weight_decay=0.1, amsgrad=True),
    ),
    "lion": (LionConfig(), lambda p: PaperLion(p, LR, 0.9, 0.99, 0.0)),
    "lion, decay": (LionConfig(beta_1=0.8, beta_2=0.95, weight_decay=0.3), lambda p: PaperLion(p, LR, 0.8, 0.95, 0.3)),
    "adamw": (AdamWConfig(weight_decay=0.3), lambda p: ADAMW(p, LR, eps=1e-5, weight_decay=0.3)),
}


@pytest.mark.parametrize("leaf", [Device.cpu(), Device.ndarray()], ids=["LibTorch", "NdArray"])
@pytest.mark.parametrize("name", CASES)
def test_optimizer_equals_torch_after_seven_steps(name: str, leaf: Device, seed: np.random.Generator) -> None:
    config, make = CASES[name]
    model = affine(seed, leaf.autodiff())
    batches = [seed.standard_normal((5, 4)) * 0.1 for _ in range(7)]
    expected = torch_train(values(model), make, batches)
    trained, _ = train(model, config.init(), batches)
    for ours, theirs in zip(values(trained), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_cautious_decay_shrinks_only_where_update_and_parameter_agree() -> None:
    device = Device.cpu().autodiff()
    model = Affine(Param.from_data(np.array([[2.0], [2.0]]), device), Param.from_data(np.zeros(1), device))
    grads = GradientsParams({model.weight.id: Tensor.from_data(np.array([[1.0], [-1.0]]), device.inner())})
    config = AdamWConfig(weight_decay=0.5, cautious_weight_decay=True, epsilon=1e-12)
    stepped, _ = config.init().step(0.1, model, grads)
    # the first Adam step is lr times the sign of the gradient; only the first element decays: 2 - 0.1 * 0.5 * 2
    np.testing.assert_allclose(stepped.weight.val().into_data().array, [[1.9 - 0.1], [2.0 + 0.1]], rtol=1e-9)


def test_step_changes_neither_model_nor_optimizer(seed: np.random.Generator, device: Device) -> None:
    model = affine(seed, device.autodiff())
    before = [v.copy() for v in values(model)]
    batches = [seed.standard_normal((5, 4)) for _ in range(2)]
    optim = AdamConfig().init()
    once = train(model, optim, batches)
    again = train(model, optim, batches)
    assert optim.groups == ()
    for a, b in zip(values(model), before, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(values(once[0]), values(again[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert once[0].weight.id == model.weight.id
    assert once[0].weight.val().is_require_grad()


def test_parameters_without_a_gradient_keep_value_and_count(seed: np.random.Generator) -> None:
    model = affine(seed, Device.cpu().autodiff())
    x = Tensor.from_data(seed.standard_normal((5, 4)), model.weight.device)
    optim: Optimizer = AdamConfig().init()
    first = model
    for skip in (False, True, False):
        grads = gradients(model, x)
        if skip:
            grads.remove(model.bias.id)
        model, optim = optim.step(LR, model, grads)
    assert {group.ids: group.time for group in optim.groups} == {(first.weight.id,): 3, (first.bias.id,): 2}


def test_record_goes_on_with_the_same_bits(seed: np.random.Generator) -> None:
    model = affine(seed, Device.cpu().autodiff())
    batches = [seed.standard_normal((5, 4)) for _ in range(6)]
    straight, _ = train(model, AdamConfig(amsgrad=True).init(), batches)
    half, optim = train(model, AdamConfig(amsgrad=True).init(), batches[:3])
    resumed = AdamConfig(amsgrad=True).init().load_record(optim.to_record())
    ended, _ = train(half, resumed, batches[3:])
    for a, b in zip(values(ended), values(straight), strict=True):
        np.testing.assert_array_equal(a, b)


def test_record_of_another_optimizer_is_refused(seed: np.random.Generator) -> None:
    model = affine(seed, Device.cpu().autodiff())
    _, optim = train(model, AdamConfig().init(), [seed.standard_normal((5, 4))])
    with pytest.raises(RecordError, match=r"(?s)another optimizer.*a record of Adam.*states velocity.*mend:"):
        SgdConfig(momentum=MomentumConfig()).init().load_record(optim.to_record())


def test_clip_by_value_bounds_each_element() -> None:
    clip = GradientClippingConfig.Value(0.5).init()
    g = Tensor.from_data(np.array([-2.0, 0.25, 3.0]), Device.cpu())
    np.testing.assert_array_equal(clip.clip_gradient(g).into_data().array, [-0.5, 0.25, 0.5])


def test_clip_by_norm_scales_large_tensors_and_leaves_small_ones(seed: np.random.Generator) -> None:
    clip = GradientClippingConfig.Norm(1.0).init()
    large, small = seed.standard_normal((4, 5)) * 3, seed.standard_normal((4, 5)) * 1e-3
    clipped = clip.clip_gradient(Tensor.from_data(large, Device.cpu())).into_data().array
    np.testing.assert_allclose(clipped, large / np.linalg.norm(large), rtol=1e-12)
    kept = clip.clip_gradient(Tensor.from_data(small, Device.cpu())).into_data().array
    np.testing.assert_array_equal(kept, small)
    zero = clip.clip_gradient(Tensor.from_data(np.zeros(3), Device.cpu())).into_data().array
    np.testing.assert_array_equal(zero, np.zeros(3))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_clip_by_norm_of_half_types_takes_the_norm_in_float32(dtype: DType) -> None:
    gradient = Tensor.from_data(np.full((3, 4), 300.0), Device.cpu()).cast(dtype)  # 300² is beyond float16
    clipped = GradientClippingConfig.Norm(2.0).init().clip_gradient(gradient)
    assert clipped.dtype is dtype
    norm = clipped.cast(DType.F64).into_data().array
    np.testing.assert_allclose(norm, 2.0 / np.sqrt(12), rtol=2**-7)  # bfloat16 has eight bits of mantissa


def test_clipping_in_the_optimizer(seed: np.random.Generator) -> None:
    model = affine(seed, Device.cpu().autodiff())
    x = Tensor.from_data(seed.standard_normal((5, 4)), model.weight.device)
    grads = gradients(model, x)
    raw = grads.get(model.weight.id)
    assert raw is not None
    config = SgdConfig(gradient_clipping=GradientClippingConfig.Norm(0.1))
    stepped, _ = config.init().step(1.0, model, grads)
    moved = values(model)[0] - values(stepped)[0]
    np.testing.assert_allclose(np.linalg.norm(moved), 0.1, rtol=1e-9)


def test_a_clipping_that_bounds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"(?s)must be above 0.*given:.*0\.0.*above 0"):
        GradientClippingConfig.Norm(0.0)


def test_accumulator_sums_and_starts_again(seed: np.random.Generator) -> None:
    model = affine(seed, Device.cpu().autodiff())
    batches = [Tensor.from_data(seed.standard_normal((5, 4)), model.weight.device) for _ in range(3)]
    accumulator = GradientsAccumulator()
    parts = [gradients(model, x) for x in batches]
    expected = sum(part.get(model.weight.id).into_data().array for part in parts)  # type: ignore[union-attr]
    for part in parts:
        accumulator.accumulate(model, part)
    grad = accumulator.grads().get(model.weight.id)
    assert grad is not None
    np.testing.assert_allclose(grad.into_data().array, expected, rtol=1e-14)
    assert accumulator.grads().is_empty()


def test_a_step_says_which_arguments_it_takes() -> None:
    device = Device.cpu().autodiff()
    model = affine(np.random.default_rng(0), device)
    adam, loss = AdamConfig().init(), model.loss(Tensor.ones((2, 4), (device, DType.F64)))
    with pytest.raises(ArgumentError, match=r"Adam.step takes(?s:.*)step\(float, Affine, Gradients\)(?s:.*)from_grads"):
        adam.step(LR, model, loss.backward(retain_graph=True))  # type: ignore[arg-type]  # the fault
    grads = GradientsParams.from_grads(loss.backward(), model)
    with pytest.raises(ArgumentError, match=r"step\(Affine, GradientsParams, float\)"):
        adam.step(model, grads, LR)  # type: ignore[arg-type, type-var]  # the fault
