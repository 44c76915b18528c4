"""Transforms inside compile: the same bits as without, one trace, and no loop in the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch import (
    Device,
    PerSampleLoopWarning,
    StepScope,
    Tensor,
    compile,
    grad,
    hvp,
    jvp,
    nn,
    optim,
    per_sample_grad,
    value_and_grad,
    vjp,
)
from burn_torch.core.errors import ArgumentError
from burn_torch.graph import Graph
from burn_torch.module import GradientsParams, Module
from tests.transform.functions import CPU, TAPE, Mlp, array, mean_square, normal, said, tensor
from tests.transform.test_grad import Noisy as Drawing


def bits(value: Any) -> Any:
    """Results as nested structures of arrays."""
    if isinstance(value, Tensor):
        return array(value).tobytes(), value.shape, str(value.device)
    if isinstance(value, GradientsParams):
        return {ident: bits(gradient) for ident, gradient in value.items()}
    if isinstance(value, Module):
        return {path: bits(param.val()) for path, param in value.named_params()}
    if isinstance(value, tuple | list):
        return [bits(item) for item in value]
    return value


class Net(Module):
    """Convolution, batch norm, dropout, linear: everything that trains."""

    conv: nn.Conv2d
    norm: nn.BatchNorm
    dropout: nn.Dropout
    linear: nn.Linear

    @staticmethod
    def make(device: Device) -> Net:
        return Net(
            nn.Conv2dConfig((1, 3), (3, 3)).init(device),
            nn.BatchNormConfig(3).init(device),
            nn.Dropout(0.4),
            nn.LinearConfig(48, 2).init(device),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout.forward(self.norm.forward(self.conv.forward(x)).relu())
        return self.linear.forward(x.reshape((x.shape[0], 48)))


def single(rng: np.random.Generator, *shape: int) -> Tensor:
    return tensor(normal(rng, *shape).astype(np.float32))


def test_a_step_written_with_value_and_grad_is_the_eager_one(seed: np.random.Generator) -> None:
    def step(model: Net, optimizer: Any, x: Tensor, t: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
        loss, grads = value_and_grad(mean_square)(model, x, t)
        model, optimizer = optimizer.step(lr, model, grads)
        return model, optimizer, loss

    compiled = compile(step)
    batches = [(single(seed, 5, 1, 6, 6), single(seed, 5, 2)) for _ in range(4)]
    results = []
    first = Net.make(TAPE)
    for run in (step, compiled):
        model, optimizer, losses = first.fork(TAPE), optim.AdamConfig().init(), []
        for i, (x, t) in enumerate(batches):
            with StepScope(i, model) as scope:
                model, optimizer, loss = run(model, optimizer, x, t, 1e-2 / (i + 1))
            model = model.with_states(scope.states)
            losses.append(bits(loss))
        states = {path: array(state.value()).tobytes() for path, state in model.named_states()}
        results.append((bits(model), losses, states))
    assert results[0] == results[1]
    assert compiled.traces == 1


def with_vjp(model: Mlp, x: Tensor) -> Any:
    y, pullback = vjp(lambda m: m.forward(x), model)
    return y, pullback(y)


def with_jvp(model: Mlp, x: Tensor) -> Any:
    return jvp(lambda m: m.forward(x), (model,), (grad(mean_square)(model, x, x.narrow(1, 0, 2)),))


def with_hvp(model: Mlp, x: Tensor) -> Any:
    target = x.narrow(1, 0, 2)
    direction = grad(mean_square)(model, x, target)
    return hvp(lambda m: mean_square(m, x, target), (model,), (direction,))


def nested(model: Mlp, x: Tensor) -> Any:
    return grad(lambda x: grad(lambda m: m.forward(x).sum())(model).get(model.inner.weight.id).square().sum())(x)


def each(model: Mlp, x: Tensor) -> Any:
    return per_sample_grad(mean_square)(model, x, x.narrow(1, 0, 2))


@pytest.mark.parametrize("device", [CPU, TAPE, Device.ndarray()], ids=str)
@pytest.mark.parametrize("function", [with_vjp, with_jvp, with_hvp, nested, each], ids=lambda f: f.__name__)
def test_compiled_equals_eager_bit_for_bit(
    function: Callable[..., Any], device: Device, seed: np.random.Generator
) -> None:
    model = Mlp.make(device)
    plain = device.inner() if device.is_autodiff() else device
    compiled = compile(function)
    for _ in range(2):
        x = single(seed, 4, 3).to_device(plain)
        assert bits(compiled(model, x)) == bits(function(model, x))
    assert compiled.traces == 1


def test_a_transformed_function_is_compiled_itself(seed: np.random.Generator) -> None:
    model, x, t = Mlp.make(TAPE), single(seed, 4, 3), single(seed, 4, 2)
    for transform in (grad, value_and_grad, per_sample_grad):
        run: Callable[..., Any] = transform(mean_square)
        assert bits(compile(run)(model, x, t)) == bits(run(model, x, t))


def test_per_sample_grad_with_dropout_draws_as_in_eager(seed: np.random.Generator) -> None:
    model = Noisy(nn.LinearConfig(3, 2).init(TAPE), nn.Dropout(0.5))
    run = per_sample_grad(mean_square)
    compiled = compile(run)
    x, t = single(seed, 6, 3), single(seed, 6, 2)
    draws = []
    for function in (run, compiled, compiled):
        with StepScope(9, model):
            draws.append(bits(function(model, x, t)))
    assert draws[0] == draws[1] == draws[2]


class Noisy(Module):
    linear: nn.Linear
    dropout: nn.Dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout.forward(self.linear.forward(x))


def graph_of(compiled: Any) -> Graph:
    (program,) = compiled._programs.values()
    graph: Graph = program.graph
    return graph


def words_loss(model: Words, words: Tensor, targets: Tensor) -> Tensor:
    return mean_square(model, words, targets)


class Words(Module):
    """One of each layer that must not be looped over."""

    embedding: nn.Embedding
    norm: nn.LayerNorm
    conv: nn.Conv1d
    linear: nn.Linear

    @staticmethod
    def make(device: Device) -> Words:
        return Words(
            nn.EmbeddingConfig(7, 4).init(device),
            nn.LayerNormConfig(4).init(device),
            nn.Conv1dConfig(4, 3, 3).init(device),
            nn.LinearConfig(9, 2).init(device),
        )

    def forward(self, words: Tensor) -> Tensor:
        x = self.norm.forward(self.embedding.forward(words))
        y = self.conv.forward(x.permute((0, 2, 1)))
        return self.linear.forward(y.reshape((y.shape[0], 9)))


def test_no_loop_over_linear_conv_embedding_and_norm_in_a_program(seed: np.random.Generator) -> None:
    model = Words.make(TAPE)
    counts = []
    for batch in (2, 16):
        compiled = compile(per_sample_grad(words_loss))
        words, targets = tensor(seed.integers(0, 7, (batch, 5))), single(seed, batch, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error", PerSampleLoopWarning)
            grads = compiled(model, words, targets)
        counts.append(len(graph_of(compiled).nodes))
        assert bits(grads) == bits(per_sample_grad(words_loss)(model, words, targets))
    assert counts[0] == counts[1]  # as many operations for 16 samples as for 2


def test_batch_norm_in_training_is_refused_in_a_program_too(seed: np.random.Generator) -> None:
    match = said("batch normalisation in training mixes", "batch_norm", "layers that treat", r"use model.valid\(\)")
    with pytest.raises(ArgumentError, match=match):
        compile(per_sample_grad(mean_square))(Net.make(TAPE), single(seed, 3, 1, 6, 6), single(seed, 3, 2))
    model = Net.make(TAPE).valid()
    x, t = single(seed, 3, 1, 6, 6), single(seed, 3, 2)
    run = per_sample_grad(mean_square)
    assert bits(compile(run)(model, x, t)) == bits(run(model, x, t))


def test_a_layer_with_parameters_that_draws_has_its_own_name_in_a_program(seed: np.random.Generator) -> None:
    model = Drawing.make(TAPE)
    x, t = single(seed, 6, 3), single(seed, 6, 2)
    draws = []
    for run in (grad(mean_square), compile(grad(mean_square))):
        with StepScope(4, model):
            draws.append(bits(run(model, x, t)))
    with StepScope(4, model):
        by_hand = GradientsParams.from_grads(mean_square(model, x, t).backward(), model)
    assert draws[0] == draws[1] == bits(by_hand)
