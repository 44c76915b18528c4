"""`backward` around transforms against torch: what stays connected, and what is said to be constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, grad, hvp, jvp, optim, per_sample_grad, value_and_grad, vjp
from burn_torch.module import GradientsParams, Param, UntrainedWarning
from burn_torch.tensor import ConstantGradientsWarning
from tests.transform.functions import (
    CPU,
    TAPE,
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
)


def _closing_over(m: Any, x: Tensor) -> Tensor:
    return grad(lambda x: m.forward(x).sum())(x)  # type: ignore[no-any-return]


def _as_argument(m: Any, x: Tensor) -> Tensor:
    return grad(lambda x, m: m.forward(x).sum())(x, m)  # type: ignore[no-any-return]


def _by_keyword(m: Any, x: Tensor) -> Tensor:
    return value_and_grad(lambda x, *, m: m.forward(x).sum())(x, m=m)[1]  # type: ignore[no-any-return]


def _by_vjp(m: Any, x: Tensor) -> Tensor:
    y, pullback = vjp(m.forward, x)
    return pullback(y.ones_like())[0]  # type: ignore[no-any-return]


def _by_samples(m: Any, x: Tensor) -> Tensor:
    shift = Tensor.zeros((1, 3), (x.device, "f64"))
    return per_sample_grad(lambda s, x: m.forward(x + s).sum())(shift, x).reshape((4, 3))  # type: ignore[no-any-return]


def _by_hidden_holder(m: Any, x: Tensor) -> Tensor:
    class Holder:
        kept = m

    return grad(lambda x, h: h.kept.forward(x).sum())(x, Holder)  # type: ignore[no-any-return]


@pytest.mark.parametrize("slope", [_closing_over, _as_argument, _by_keyword, _by_vjp, _by_samples, _by_hidden_holder])
@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
def test_backward_around_a_gradient_penalty(
    slope: Callable[[Any, Tensor], Tensor], device: Device, seed: np.random.Generator
) -> None:
    if slope is _by_hidden_holder and device is CPU:
        pytest.skip("refused in words: nobody sees that the model trains")
    model, x = drawn(Mlp.make(TAPE), seed), normal(seed, 4, 3)
    values, leaf = twin(model), torch.from_numpy(x).requires_grad_()
    (theirs,) = torch.autograd.grad(twin_forward(values, leaf).sum(), leaf, create_graph=True)
    loss = (theirs.square().sum(1).sqrt() - 1).square().mean() + twin_forward(values, leaf).mean()
    expected = torch.autograd.grad(loss, list(values.values()))

    def step(model: Any, x: Tensor) -> Any:
        norms = slope(model, x).square().sum_dim(1).sqrt()
        loss = (norms - 1.0).square().mean() + model.forward(x).mean()
        return loss.detach(), GradientsParams.from_grads(loss.backward(), model)

    for run in (step, compile(step), compile(step, fuse=True)) if slope is not _by_hidden_holder else (step,):
        value, grads = run(model, tensor(x, device))
        close(value, loss.detach().numpy().reshape(1))
        judge(model, grads, {p: g.numpy() for p, g in zip(values, expected, strict=True)})


def test_backward_around_a_gradient_by_what_was_computed(seed: np.random.Generator) -> None:
    w, values = tensor(normal(seed, 3), TAPE).require_grad(), normal(seed, 3)
    hidden = (w * tensor(values)).tanh()
    slope = grad(lambda h: (h * h * h).sum())(hidden)
    grad_of_w = w.grad((slope.square().sum() + hidden.sum()).backward())
    leaf = torch.from_numpy(array(w).copy()).requires_grad_()
    theirs = (leaf * torch.from_numpy(values)).tanh()
    (expected,) = torch.autograd.grad((3 * theirs**2).square().sum() + theirs.sum(), leaf)
    close(grad_of_w, expected.numpy())
    second = grad(lambda w: (w * w * w).sum())(w)  # by the leaf itself
    close(w.grad((second.square().sum() + w.sum()).backward()), 36 * array(w) ** 3 + 1)


def test_what_hangs_on_no_tape_lives_under_it(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 3), TAPE)
    model = drawn(Mlp.make(TAPE), seed)
    inputs = tensor(normal(seed, 4, 3), TAPE)
    assert grad(lambda x: x.square().sum())(x).device is CPU
    assert grad(lambda x: model.no_grad().forward(x).sum())(inputs).device is CPU
    assert all(g.device is CPU for _, g in grad(lambda m: m.forward(inputs).sum())(model).items())
    with_model, _ = value_and_grad(lambda x: model.forward(x).sum())(inputs)
    assert with_model.device is TAPE
    assert len(GradientsParams.from_grads(with_model.backward(), model)) == 4


def test_gradients_that_stop_at_a_newer_version_of_a_parameter_are_reported(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))
    fast, optimizer = optim.SgdConfig().init().step(0.1, model, grad(mean_square)(model, x, y))
    mend = r"pass the module(.|\n)*value_and_grad\(outer\)"
    for new, part in (
        (lambda: fast, False),
        (lambda: optimizer.step(0.1, fast, grad(mean_square)(fast, x, y))[0], True),
    ):
        loss = mean_square(new(), x, y)
        gradients = (loss + mean_square(model, x, y) if part else loss).backward()
        complaint = "gradients of 4 other leaves, among them newer versions of inner.weight, .* and 1 more"
        with pytest.warns(
            UntrainedWarning, match=said("gradients stop before parameters of this Mlp", complaint, "", mend)
        ):
            assert len(GradientsParams.from_grads(gradients, model)) == (4 if part else 0)
    half = tensor([[0.5]], TAPE).require_grad()
    scaled_model = model.map_params(lambda p: Param.from_tensor(p.val() * (half if p.val().ndim > 1 else half[0])))
    with pytest.warns(UntrainedWarning, match="gradients of 4 other leaves, and none of weight, bias"):
        GradientsParams.from_grads(mean_square(scaled_model, x, y).backward(), model.outer)


def test_gradients_of_several_modules_are_taken_in_turns_without_a_word(seed: np.random.Generator) -> None:
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))
    frozen = model.no_grad()
    for _ in range(2):
        gradients = mean_square(model, x, mean_square(frozen, x, y).reshape((1, 1)).expand((4, 2))).backward()
        assert len(GradientsParams.from_grads(gradients, frozen)) == 0
        parts = [GradientsParams.from_module(gradients, part) for part in (model.inner, model.outer)]
        assert [len(part) for part in parts] == [2, 2]
        model, _ = (
            optim.SgdConfig().init().step(0.1, model, GradientsParams(dict(parts[0].items()) | dict(parts[1].items())))
        )


@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
def test_a_compiled_function_is_differentiated_as_its_function(device: Device, seed: np.random.Generator) -> None:
    x, model = tensor(normal(seed, 3), device), drawn(Mlp.make(device), seed)
    inputs, under = normal(seed, 4, 3), device.inner() if device.is_autodiff() else device
    ones, y = tensor(np.ones(3), under), tensor(normal(seed, 4, 2), under)

    def cubes(x: Tensor) -> Tensor:
        return (x * x * x).sum()

    fast, loss = compile(cubes), compile(mean_square)
    assert fast(x).tolist() == cubes(x).tolist()
    close(grad(fast)(x), 3 * array(x) ** 2)
    close(grad(lambda x: fast(x * 2.0))(x), 24 * array(x) ** 2)
    close(vjp(fast, x)[1](tensor([1.0], under))[0], 3 * array(x) ** 2)
    close(jvp(fast, (x,), (ones,))[1], np.sum(3 * array(x) ** 2, keepdims=True))
    close(hvp(fast, (x,), (ones,))[0], 6 * array(x))
    close(compile(grad(fast))(x), 3 * array(x) ** 2)
    close(grad(lambda x: (compile(grad(fast))(x) * ones).sum())(x), 6 * array(x))
    expected = by_path(model, grad(mean_square)(model, tensor(inputs, under), y))
    judge(model, grad(loss)(model, tensor(inputs, under), y), expected)
    constant = grad(lambda x: (x * compile(lambda v: v.exp())(ones)).sum())(x)  # what is no variable runs compiled
    close(constant, np.full(3, np.e))


def test_backward_inside_of_a_transform_is_reported(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 3), TAPE)

    def outer(x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        return (x * inner(x)).sum()

    def by_backward(x: Tensor) -> Tensor:
        leaf = x.require_grad()
        grad = leaf.grad((leaf * leaf * leaf).sum().backward())
        assert grad is not None
        return grad

    mend = "call grad, or value_and_grad, here; for constants detach what it gives"
    match = said("backward: its gradients are constants", r"\(1,\) f64 cpu, which a running grad", "", mend)
    with pytest.warns(ConstantGradientsWarning, match=match):
        grads = grad(outer)(x, by_backward)
    cubes = grad(lambda x: (x * x * x).sum())
    close(grads, grad(outer)(x, lambda x: cubes(x).detach()))
    close(grad(outer)(x, cubes), 9 * array(x) ** 2)
