"""checkpoint of a function: the same bits, the same draws, less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Distribution, StepScope, Tensor, compile, grad, jacrev, jvp, nn, vmap
from burn_torch.module import GradientsParams, Module
from burn_torch.transform import checkpoint
from tests.transform.functions import CPU, TAPE, Mlp, array, by_path, close, drawn, normal, tensor

DEVICES = [CPU, CPU.fused(), TAPE, Device.ndarray()]
NAMES = ["cpu", "fused", "tape", "numpy"]


class Block(Module):
    """Layers with draws and running states."""

    norm: nn.BatchNorm
    drop: nn.Dropout
    mlp: Mlp

    def forward(self, x: Tensor) -> Tensor:
        noise = Tensor.random(x.shape, Distribution.Normal(0.0, 1.0), x.device).cast(x.dtype)
        return self.mlp.forward(self.drop.forward(self.norm.forward(x)) + noise)


def block(seed: np.random.Generator) -> Any:
    return drawn(Block(nn.BatchNormConfig(3).init(TAPE), nn.Dropout(0.5), Mlp.make(TAPE, 3, 5, 3)), seed)


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_gradients_of_any_order(device: Device, seed: np.random.Generator) -> None:
    x, w = tensor(normal(seed, 4), device), tensor(normal(seed, 4), device)

    def make(wrap: Callable[[Any], Any]) -> Callable[..., Tensor]:
        def fn(x: Tensor, w: Tensor) -> Tensor:
            def inner(x: Tensor) -> tuple[Tensor, Tensor]:
                y = (x * w).sin() * x  # w is closed over
                return y.exp(), y * 2.0

            a, b = wrap(inner)(x)
            return (a * b + x).sum()

        return fn

    plain, other = make(lambda f: f), make(checkpoint)
    for transform in (
        lambda f: grad(f, (0, 1)),
        lambda f: grad(lambda x, w: grad(f)(x, w).square().sum(), (0, 1)),
        lambda f: jacrev(grad(f), (0, 1)),
        lambda f: compile(grad(f, (0, 1))),
        lambda f: vmap(grad(lambda x, w: f(x.reshape((1,)), w.narrow(0, 0, 1)), (0, 1)), (0, None)),
        lambda f: grad(lambda x, w: vmap(lambda x: f(x.reshape((1,)), w.narrow(0, 0, 1)))(x).sum(), (0, 1)),
        lambda f: lambda x, w: jvp(f, (x, w), (x, w)),
    ):
        expected, actual = transform(plain)(x, w), transform(other)(x, w)
        for mine, twin in zip(actual, expected, strict=True):
            close(mine, twin, 1e-13)  # x is read beside it too: another order of that sum


def test_a_block_with_draws_and_running_states_trains_the_same(seed: np.random.Generator) -> None:
    model = block(seed)
    x = tensor(normal(seed, 8, 3), TAPE)
    results = []
    for wrap in (lambda f: f, checkpoint):
        with StepScope(7, model) as scope:
            y = wrap(model.forward)(x)
            after = model.mlp.forward(Tensor.random((2, 3), Distribution.Normal(0.0, 1.0), TAPE).cast(x.dtype))
            grads = GradientsParams.from_grads((y.square().sum() + after.sum()).backward(), model)
        states = {str(ident): array(value) for ident, value in scope.states.items()}
        results.append((array(y), by_path(model, grads), states))
    (y, grads, states), (y2, grads2, states2) = results
    np.testing.assert_array_equal(y, y2)
    assert grads.keys() == grads2.keys() != set()
    for path, gradient in grads.items():
        np.testing.assert_array_equal(gradient, grads2[path])
    assert states.keys() == states2.keys() != set()
    for ident, value in states.items():
        np.testing.assert_array_equal(value, states2[ident])


def test_checkpoints_nest(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 5))
    calls = []

    def inner(x: Tensor) -> Tensor:
        calls.append(1)
        return x.sin() * x

    nested = checkpoint(lambda x: checkpoint(inner)(x).exp())
    close(grad(lambda x: nested(x).sum())(x), array(grad(lambda x: (x.sin() * x).exp().sum())(x)))
    assert len(calls) == 3  # forward, the outer again, the inner again


def test_memory_falls() -> None:
    x = Tensor.ones((125_000,), Device.ndarray())  # 0.5 MB in f32

    def eight(x: Tensor) -> Tensor:
        for _ in range(8):
            x = x.sin()
        return x

    def deep(wrap: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
        def fn(x: Tensor) -> Tensor:
            for _ in range(8):
                x = wrap(eight)(x)
            return x.sum()

        return fn

    def peak(fn: Callable[[Tensor], Tensor]) -> int:
        gradient = grad(fn)
        gradient(x)
        tracemalloc.start()
        gradient(x)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(deep(checkpoint)) < 0.4 * peak(deep(lambda f: f))  # 8 + 8 values in place of 64


def test_what_is_no_tensor_passes() -> None:
    x = tensor([1.0])
    assert checkpoint(lambda x: (x.argmax(0).into_scalar(), None, {"y": x}))(x)[0] == 0
    assert checkpoint(lambda: 3)() == 3
