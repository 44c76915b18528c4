"""Derivatives of derivatives against torch: constants, new parameters, optimizer steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, grad, hvp, jvp, optim, per_sample_grad, value_and_grad
from burn_torch.core.errors import AutodiffError, ShapeError
from burn_torch.module import GradientsParams, Module, Param
from tests.transform.functions import (
    CPU,
    TAPE,
    Array,
    Mlp,
    array,
    by_path,
    close,
    drawn,
    judge,
    mean_square,
    normal,
    said,
    tensor,
    twin,
    twin_forward,
    twin_loss,
)

DEVICES = [CPU, TAPE, Device.ndarray()]
ENTRIES = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")


# -- constants ----------------------------------------------------------------------------------------------
def straight_through(x: Tensor) -> Tensor:
    return x + (x.round() - x).detach()


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_straight_through_estimator_has_its_second_and_third_derivative(device: Device) -> None:
    x = tensor([1.3, -0.7], device)

    def cubes(x: Tensor) -> Tensor:
        y = straight_through(x)
        return (y * y * y).sum()

    def second(x: Tensor) -> Tensor:
        slope: Tensor = grad(lambda x: grad(cubes)(x).sum())(x)
        return slope

    assert grad(cubes)(x).tolist() == [3.0, 3.0]  # 3 q(x)², where q is 1 and -1
    assert second(x).tolist() == [6.0, -6.0]
    assert grad(lambda x: second(x).sum())(x).tolist() == [6.0, 6.0]
    one = tensor([1.0, 1.0], device.inner() if device.is_autodiff() else device)
    assert hvp(cubes, (x,), (one,))[0].tolist() == [6.0, -6.0]
    assert jvp(grad(cubes), (x,), (one,))[1].tolist() == [6.0, -6.0]
    assert compile(second)(x).tolist() == [6.0, -6.0]


@pytest.mark.parametrize("cut", [Tensor.detach, Tensor.no_grad, lambda x: x.set_require_grad(False)])
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_detached_values_are_constants_of_every_derivative(cut: Callable[[Tensor], Tensor], device: Device) -> None:
    x, w = tensor([3.0], device), tensor([2.0], device)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        y = w * x
        return (y - cut(y * 0.5)).square().sum()

    penalty = grad(lambda w: grad(lambda x: loss(x, w))(x).square().sum())(w)
    leaf, v = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    y = leaf * v
    (slope,) = torch.autograd.grad((y - (y * 0.5).detach()).square().sum(), v, create_graph=True)
    (expected,) = torch.autograd.grad(slope.square().sum(), leaf)
    assert penalty.tolist() == expected.tolist() == [432.0]
    under = device.inner() if device.is_autodiff() else device
    assert hvp(lambda x: (x * cut(x)).sum(), (x,), (tensor([1.0], under),))[0].tolist() == [0.0]


def test_detach_cuts_the_tapes_of_the_user_and_inner_does_not() -> None:
    below = tensor([2.0], TAPE).require_grad()
    above = Tensor.from_inner(below).require_grad()
    for cut, expected in ((above.detach(), 4.0), (above.no_grad(), 4.0), (above.inner(), 8.0)):
        first = above.grad((above * above * cut).backward())  # 2 a c
        assert first is not None
        second = below.grad(first.backward(retain_graph=True))  # 2 c, and 2 a where c is not constant
        assert second is not None
        assert second.tolist() == [expected]
    assert above.detach().device is above.device
    assert above.no_grad().device is TAPE
    assert below.detach().detach() is not below
    plain = tensor([1.0])
    assert plain.detach() is plain
    assert above.detach().detach().primitive is above.detach().primitive


def test_detach_in_many_samples_at_once_cuts_the_tapes_beneath() -> None:
    w, x = tensor([2.0]), tensor([[1.0], [3.0]])

    def total(w: Tensor) -> Tensor:  # the sum over samples of d/dw (w x · const(w x)) = w x²
        slopes: Tensor = per_sample_grad(lambda w, x: (w * x * (w * x).detach()).sum())(w, x)
        return slopes.sum()

    assert total(w).tolist() == [20.0]
    assert grad(total)(w).tolist() == [0.0]


def twice(model: Any) -> Any:
    return model.map_params(lambda p: p.map(lambda v: v * 2.0))


def test_frozen_modules_are_constants_of_every_derivative(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    x = tensor(normal(seed, 4, 3))
    for freeze in (Module.no_grad, Module.valid, lambda m: m.fork(TAPE)):

        def outer(m: Any, freeze: Callable[[Any], Any] = freeze) -> Tensor:
            slope = grad(lambda x: (m.forward(x) * freeze(m).forward(x)).sum())(x)
            constant = freeze(twice(m)).forward(x).sum()
            return slope.square().sum() + constant  # type: ignore[no-any-return]

        values = twin(model)
        fixed = {path: v.detach() for path, v in values.items()}
        leaf = torch.from_numpy(array(x).copy()).requires_grad_()
        (slope,) = torch.autograd.grad(
            (twin_forward(values, leaf) * twin_forward(fixed, leaf)).sum(), leaf, create_graph=True
        )
        expected = torch.autograd.grad(slope.square().sum(), list(values.values()))
        judge(model, grad(outer)(model), {p: g.numpy() for p, g in zip(values, expected, strict=True)})


# -- new parameters -----------------------------------------------------------------------------------------
def shrink(model: Any, factor: Tensor) -> Any:
    return model.map_params(lambda p: p.map(lambda v: v * factor.reshape((1,) * v.ndim)))


def scaled(layer: Any, factor: Tensor) -> Any:
    bias = Param(layer.bias.val() * factor.reshape((1,)))
    return dataclasses.replace(layer, weight=Param(layer.weight.val() * factor), bias=bias)


NEW: dict[str, Callable[[Any, Tensor], Any]] = {
    "map": shrink,
    "with_value": lambda m, f: m.map_params(lambda p: p.with_value(p.val() * f.reshape((1,) * p.val().ndim))),
    "new ids": lambda m, f: m.map_params(lambda p: Param.from_tensor(p.val() * f.reshape((1,) * p.val().ndim))),
    "replace": lambda m, f: dataclasses.replace(m, inner=scaled(m.inner, f), outer=scaled(m.outer, f)),
    "moved": lambda m, f: shrink(m, f).to_device(Device.ndarray().autodiff()).to_device(TAPE),
}  # fmt: skip


@pytest.mark.parametrize("how", NEW)
@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
def test_new_parameters_inside_a_transform_stay_connected(how: str, device: Device, seed: np.random.Generator) -> None:
    if how == "moved" and device is CPU:
        pytest.skip("moves to a device with gradients")
    model = drawn(Mlp.make(device), seed)
    x, y, factor = normal(seed, 4, 3), normal(seed, 4, 2), tensor([[0.7]], device)

    def outer(m: Any, f: Tensor) -> Tensor:
        new = NEW[how](m, f)
        inner_grads = grad(mean_square)(new, tensor(x), tensor(y))
        total: Tensor = mean_square(new, tensor(x), tensor(y))
        for _, g in inner_grads.items():  # noqa: PERF102  # no dict
            total = total + g.square().sum()
        return total

    grads, slope = grad(outer, argnums=(0, 1))(model, factor)
    values, leaf = twin(model), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    new = {path: v * leaf for path, v in values.items()}
    loss = twin_loss(new, x, y)
    slopes = torch.autograd.grad(loss, list(new.values()), create_graph=True)
    loss = loss + sum(g.square().sum() for g in slopes)
    expected = torch.autograd.grad(loss, [*values.values(), leaf])
    judge(model, grads, {p: g.numpy() for p, g in zip(values, expected, strict=False)})
    close(slope, expected[-1].numpy().reshape(1, 1))


def test_new_parameters_outside_are_leaves_as_before(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    x, y = tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))
    _, aux = grad(lambda m: (mean_square(m, x, y), shrink(m, tensor([0.5], TAPE))), has_aux=True)(model)
    stepped, _ = optim.SgdConfig().init().step(0.1, model, grad(mean_square)(model, x, y))
    for new in (shrink(model, tensor([0.5], TAPE)), aux, stepped):
        assert all(p.val().is_require_grad() for _, p in new.named_params())
        assert len(GradientsParams.from_grads(mean_square(new, x, y).backward(), new)) == 4
    frozen = shrink(model.no_grad(), tensor([0.5], TAPE).require_grad())
    assert not any(TAPE.backend.is_tracked(p.val().primitive) for _, p in frozen.named_params())  # type: ignore[attr-defined]


# -- optimizer steps ------------------------------------------------------------------------------------------
OPTIMIZERS: dict[str, Any] = {
    "sgd": optim.SgdConfig(weight_decay=optim.WeightDecayConfig(0.3)),
    "momentum": optim.SgdConfig(momentum=optim.MomentumConfig()),
    "nesterov": optim.SgdConfig(momentum=optim.MomentumConfig(momentum=0.8, dampening=0.0, nesterov=True)),
    "adam": optim.AdamConfig(weight_decay=optim.WeightDecayConfig(0.2)),
    "amsgrad": optim.AdamConfig(amsgrad=True),
    "adamw": optim.AdamWConfig(weight_decay=0.4),
    "cautious": optim.AdamWConfig(weight_decay=0.4, cautious_weight_decay=True),
    "clipped norm": optim.SgdConfig(gradient_clipping=optim.GradientClippingConfig.Norm(0.05)),
    "clipped value": optim.AdamConfig(grad_clipping=optim.GradientClippingConfig.Value(0.1)),
}


def twin_step(config: Any, lr: Any, values: Any, grads: Any, state: dict[str, Any]) -> Any:
    """One step of a configuration by its published formula, on torch's tape."""
    state["time"] = time = state.get("time", 0) + 1
    clip = config.gradient_clipping if isinstance(config, optim.SgdConfig) else config.grad_clipping
    new = {}
    for (path, p), g in zip(values.items(), grads, strict=True):
        if clip is not None and "Norm" in type(clip).__name__:
            norm = g.square().sum().sqrt()
            g = torch.where(norm > clip.threshold, g * (clip.threshold / norm), g)
        elif clip is not None:
            g = g.clamp(-clip.threshold, clip.threshold)
        decay = config.weight_decay
        if isinstance(decay, optim.WeightDecayConfig):
            g = g + decay.penalty * p
        s = state.setdefault(path, {})
        if isinstance(config, optim.SgdConfig):
            if config.momentum is not None:
                m = config.momentum
                s["v"] = g if "v" not in s else m.momentum * s["v"] + (1 - m.dampening) * g
                g = g + m.momentum * s["v"] if m.nesterov else s["v"]
            new[path] = p - lr * g
            continue
        s["m"] = config.beta_1 * s.get("m", 0.0) + (1 - config.beta_1) * g
        s["s"] = config.beta_2 * s.get("s", 0.0) + (1 - config.beta_2) * g * g
        most = s["s"]
        if config.amsgrad:
            most = s["most"] = torch.maximum(s["most"], most) if "most" in s else most
        if isinstance(config, optim.AdamWConfig):
            kept = (p * s["m"] > 0) if config.cautious_weight_decay else 1.0
            shrunk = lr * decay * p * kept
        else:
            shrunk = 0.0
        size = most.sqrt() / (1 - config.beta_2**time) ** 0.5 + config.epsilon
        new[path] = p - shrunk - lr / (1 - config.beta_1**time) * s["m"] / size
    return new


def unrolled(config: Any, steps: int) -> Callable[[Any, Any, Tensor, Tensor], Tensor]:
    """The loss after some steps of an optimizer, written as any training loop."""

    def outer(model: Any, lr: Any, x: Tensor, y: Tensor) -> Tensor:
        optimizer = config.init()
        for _ in range(steps):
            model, optimizer = optimizer.step(lr, model, grad(mean_square)(model, x, y))
        return mean_square(model, x * 0.5, y)

    return outer


def twin_unrolled(config: Any, steps: int, values: Any, lr: Any, x: Array, y: Array) -> torch.Tensor:
    state: dict[str, Any] = {}
    for _ in range(steps):
        grads = torch.autograd.grad(twin_loss(values, x, y), list(values.values()), create_graph=True)
        values = twin_step(config, lr, values, grads, state)
    return twin_loss(values, x * 0.5, y)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_step_is_differentiated_with_its_learning_rate(name: str, seed: np.random.Generator) -> None:
    config, x, y = OPTIMIZERS[name], normal(seed, 4, 3), normal(seed, 4, 2)
    outer = unrolled(config, 3)
    for device in (CPU, TAPE):
        model = drawn(Mlp.make(device), np.random.default_rng(3))
        values, rate = twin(model), torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
        loss = twin_unrolled(config, 3, values, rate, x, y)
        expected = [g.numpy() for g in torch.autograd.grad(loss, [*values.values(), rate])]
        both = value_and_grad(outer, argnums=(0, 1))
        lr = tensor([0.05], device)
        for run in (both, compile(both)) if device is TAPE else (both,):
            value, (grads, slope) = run(model, lr, tensor(x), tensor(y))
            close(value, loss.detach().numpy().reshape(1))
            judge(model, grads, dict(zip(values, expected, strict=False)))
            close(slope, expected[-1].reshape(1))
        value, grads = value_and_grad(outer)(model, 0.05, tensor(x), tensor(y))  # a rate that is a plain number
        judge(model, grads, dict(zip(values, expected, strict=False)))


@pytest.mark.slow  # some 10 s of planning and of the C compiler each
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_fused_step_of_maml_is_that_of_torch(name: str, seed: np.random.Generator) -> None:
    config, x, y = OPTIMIZERS[name], normal(seed, 4, 3), normal(seed, 4, 2)
    both = compile(value_and_grad(unrolled(config, 2), argnums=(0, 1)), fuse=True)
    model = drawn(Mlp.make(TAPE), np.random.default_rng(3))
    values, rate = twin(model), torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(twin_unrolled(config, 2, values, rate, x, y), [*values.values(), rate])
    _, (grads, slope) = both(model, tensor([0.05]), tensor(x), tensor(y))
    judge(model, grads, {p: g.numpy() for p, g in zip(values, expected, strict=False)})
    close(slope, expected[-1].numpy().reshape(1))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_a_tracked_learning_rate_has_its_gradient_by_backward(name: str, seed: np.random.Generator) -> None:
    config, x, y = OPTIMIZERS[name], normal(seed, 4, 3), normal(seed, 4, 2)
    model = drawn(Mlp.make(TAPE), seed)
    rate = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(twin_unrolled(config, 3, twin(model), rate, x, y), rate)

    def hyper(model: Any, lr: Tensor, x: Tensor, y: Tensor) -> Tensor | None:
        lr = lr.require_grad()
        return lr.grad(unrolled(config, 3)(model, lr, x, y).backward())

    lr = tensor([0.05], TAPE)
    for run in (hyper, compile(hyper)):
        rate_grad = run(model, lr, tensor(x), tensor(y))
        close(rate_grad, expected.numpy().reshape(1))


def test_numbers_of_an_optimizer_are_differentiated_too(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), normal(seed, 4, 3), normal(seed, 4, 2)

    def outer(momentum: Tensor, penalty: Tensor) -> Tensor:
        optimizer = dataclasses.replace(
            optim.SgdConfig(momentum=optim.MomentumConfig(momentum=0.9, dampening=0.0)).init(),
            momentum=momentum,
            penalty=penalty,
        )
        now = model
        for _ in range(3):
            now, optimizer = optimizer.step(0.1, now, grad(mean_square)(now, tensor(x), tensor(y)))
        return mean_square(now, tensor(x), tensor(y))

    m, p = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.9, 0.2))
    values = twin(model)
    velocity: list[torch.Tensor] = []
    for _ in range(3):
        grads = torch.autograd.grad(twin_loss(values, x, y), list(values.values()), create_graph=True)
        decayed = [g + p * v for g, v in zip(grads, values.values(), strict=True)]
        velocity = [m * a + b for a, b in zip(velocity, decayed, strict=True)] if velocity else decayed
        values = {path: v - 0.1 * s for (path, v), s in zip(values.items(), velocity, strict=True)}
    expected = torch.autograd.grad(twin_loss(values, x, y), (m, p))
    slopes = grad(outer, argnums=(0, 1))(tensor([0.9]), tensor([0.2]))
    for ours, theirs in zip(slopes, expected, strict=True):
        close(ours, theirs.numpy().reshape(1))


def test_first_order_maml_keeps_the_identity_through_the_step(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    def outer(m: Any) -> Tensor:
        constant = GradientsParams({i: g.detach() for i, g in grad(mean_square)(m, x, y).items()})
        return mean_square(optim.SgdConfig().init().step(0.1, m, constant)[0], x * 0.5, y)

    fast, _ = optim.SgdConfig().init().step(0.1, model, grad(mean_square)(model, x, y))
    judge(model, grad(outer)(model), by_path(fast, grad(mean_square)(fast, x * 0.5, y)))


def test_a_learning_rate_that_is_a_tensor_traces_once(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    @compile
    def step(model: Any, lr: Any, x: Tensor, y: Tensor) -> Any:
        return optim.AdamConfig().init().step(lr, model, grad(mean_square)(model, x, y))[0]

    for rate in (0.1, 0.2, 0.3):
        ours = step(model, tensor([rate]), x, y)
        theirs, _ = optim.AdamConfig().init().step(rate, model, grad(mean_square)(model, x, y))
        for path, value in by_path_of(theirs).items():
            close(by_path_of(ours)[path], value)
    assert step.traces == 1


def by_path_of(model: Any) -> dict[str, Array]:
    return {path: array(p.val()) for path, p in model.named_params()}


@pytest.mark.parametrize("name", ["sgd", "clipped norm", "adam", "amsgrad", "adamw"])
def test_a_step_at_gradients_of_zeros_is_differentiated_without_nan(name: str) -> None:
    config, x = OPTIMIZERS[name], tensor([0.0, 2.0], TAPE)

    class Own(Module):
        w: Param

    def outer(m: Own, lr: Tensor) -> Tensor:  # the first weight has no gradient at first
        g = grad(lambda m: (m.w.val() * m.w.val() * x).square().sum())(m)
        return config.init().step(lr, m, g)[0].w.val().square().sum()  # type: ignore[no-any-return]

    model = Own(Param(tensor([0.5, 0.7], TAPE)))
    grads, slope = grad(outer, argnums=(0, 1))(model, tensor([0.1]))
    step = 1e-6

    def value(by: Array) -> float:
        moved = model.map_params(lambda p: p.map(lambda v: v + tensor(by)))
        return float(array(outer(moved, tensor([0.1]))).item())

    for i, direction in enumerate(np.eye(2)):
        expected = (value(step * direction) - value(-step * direction)) / (2 * step)
        np.testing.assert_allclose(array(grads.get(model.w.id))[i], expected, rtol=1e-6, atol=1e-8)
    assert np.isfinite(array(slope)).all()


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_part_that_is_differentiated_leaves_the_other_part_trainable(
    device: Device, seed: np.random.Generator
) -> None:
    model, under = drawn(Mlp.make(device), seed), device.inner() if device.is_autodiff() else device
    x, y = tensor(normal(seed, 4, 3), under), tensor(normal(seed, 4, 2), under)

    def adapted(inner: Any, outer: Any) -> Tensor:
        whole = Mlp(inner, outer)
        grads = grad(mean_square)(whole, x, y)
        assert len(grads) == 4
        return mean_square(optim.SgdConfig().init().step(0.3, whole, grads)[0], x, y)

    alone = grad(lambda inner: adapted(inner, model.outer))(model.inner)
    whole = grad(lambda m: adapted(m.inner, m.outer))(model)
    for ident, gradient in alone.items():
        close(gradient, whole.get(ident))
    assert len(alone) == 2


def test_a_learning_rate_of_several_elements_is_refused_in_words(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    gradients = grad(lambda m: m.inner.weight.val().sum())(model)
    match = said(
        "the learning rate and other numbers of an optimizer", r"a tensor \(2,\)", "a Python number", "parameters"
    )
    with pytest.raises(ShapeError, match=match):
        optim.SgdConfig().init().step(tensor([0.1, 0.2]), model, gradients)


def test_groups_have_learning_rates_that_differentiate(seed: np.random.Generator) -> None:
    x, y = tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    def outer(model: Any, first: Tensor, rest: Tensor) -> Tensor:
        groups = {"inner": (optim.ParamGroup.from_path("inner"), optim.SgdConfig().init())}
        optimizer = optim.GroupedOptimizer.of(model, groups, rest=optim.AdamConfig().init())
        for _ in range(2):
            rates = {"inner": first, "rest": rest}
            model, optimizer = optimizer.step(rates, model, grad(mean_square)(model, x, y))
        return mean_square(model, x, y)

    model, rates, step = drawn(Mlp.make(TAPE), seed), np.array([0.1, 0.02]), 1e-6

    def value(by: Array) -> float:
        return float(array(outer(model, *(tensor([r]) for r in rates + by))).item())

    _, *slopes = grad(outer, argnums=(0, 1, 2))(model, *(tensor([r]) for r in rates))
    tracked = [tensor([r], TAPE).require_grad() for r in rates]
    gradients = outer(model, *tracked).backward()
    for slope, leaf, direction in zip(slopes, tracked, np.eye(2), strict=True):
        expected = (value(step * direction) - value(-step * direction)) / (2 * step)
        np.testing.assert_allclose(array(slope), [expected], rtol=1e-6)
        close(leaf.grad(gradients), slope)


def test_accumulated_gradients_are_differentiated_through(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    def outer(m: Any, *, parts: int) -> Tensor:
        accumulator = optim.GradientsAccumulator()
        for _ in range(parts):
            accumulator.accumulate(m, grad(lambda m: mean_square(m, x, y) / parts)(m))
        return mean_square(optim.SgdConfig().init().step(0.3, m, accumulator.grads())[0], x, y)

    once, twice = (by_path(model, grad(outer)(model, parts=n)) for n in (1, 2))
    for path in ENTRIES:
        close(twice[path], once[path])


def test_require_grad_of_what_was_computed_is_refused() -> None:
    """It cut gradients off without a word; Burn panics."""
    x = tensor([3.0], TAPE).require_grad()
    y = x * x
    match = said(
        "require_grad: this tensor was computed", r"\(1,\) f64 cpu", "a leaf", r"for a new leaf write x.detach\(\)"
    )
    for ask in (Tensor.require_grad, lambda y: y.set_require_grad(True)):
        with pytest.raises(AutodiffError, match=match):
            ask(y)
    assert y.detach().require_grad().is_require_grad()
    assert x.require_grad() is x
    above = Tensor.from_inner(y).require_grad()  # still on the tape under its own
    first = above.grad((above * above).backward())
    assert first is not None
    close(x.grad(first.backward()), np.array([12.0]))
