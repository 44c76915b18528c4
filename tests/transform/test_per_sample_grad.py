"""per_sample_grad against a loop of grad over batches of one sample; axes, random layers, loops told, errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import Device, PerSampleLoopWarning, StepScope, Tensor, grad, nn, op, per_sample_grad
from burn_torch.core.errors import ArgumentError, AutodiffError, ShapeError, TraceError
from burn_torch.core.spec import TensorSpec
from burn_torch.module import GradientsParams, Module, Param, RunningState
from burn_torch.tensor.apply import unary
from tests.transform.functions import (
    CPU,
    TAPE,
    Array,
    Mlp,
    array,
    by_path,
    close,
    drawn,
    mean_square,
    normal,
    said,
    tensor,
)

DEVICES = [CPU, TAPE, Device.ndarray()]


def loop(loss_fn: Callable[..., Tensor], model: Any, *batch: Tensor) -> dict[str, Array]:
    """The gradients of batches of one sample, one after the other."""
    each = [by_path(model, grad(loss_fn)(model, *(x.narrow(0, i, 1) for x in batch))) for i in range(batch[0].shape[0])]
    return {path: np.stack([grads[path] for grads in each]) for path in each[0]}


def assert_as_loop(loss_fn: Callable[..., Tensor], model: Any, *batch: Tensor, tolerance: float = 1e-10) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a loop would be told
        gradients = by_path(model, per_sample_grad(loss_fn)(model, *batch))
    expected = loop(loss_fn, model, *batch)
    assert set(gradients) == set(expected) != set()
    for path, gradient in expected.items():
        close(gradients[path], gradient, tolerance)


# -- layers: none is looped over ------------------------------------------------------------------------------
def squared(y: Tensor) -> Tensor:
    return y.square().sum()


LAYERS: dict[str, tuple[Callable[[Device], Any], tuple[int, ...]]] = {
    "linear": (lambda device: nn.LinearConfig(4, 3).init(device), (5, 4)),
    "linear over positions": (lambda device: nn.LinearConfig(4, 3).init(device), (5, 2, 4)),
    "linear without bias": (lambda device: nn.LinearConfig(4, 3, bias=False).init(device), (5, 4)),
    "conv1d": (lambda device: nn.Conv1dConfig(2, 4, 3, stride=2).init(device), (5, 2, 9)),
    "conv2d": (lambda device: nn.Conv2dConfig((4, 6), (3, 3), groups=2).init(device), (3, 4, 6, 7)),
    "conv3d": (lambda device: nn.Conv3dConfig((2, 3), (2, 2, 2)).init(device), (3, 2, 4, 3, 4)),
    "conv transpose": (lambda device: nn.ConvTranspose2dConfig((2, 3), (3, 3)).init(device), (3, 2, 4, 4)),
    "layer norm": (lambda device: nn.LayerNormConfig(4).init(device), (5, 3, 4)),
    "rms norm": (lambda device: nn.RmsNormConfig(4).init(device), (5, 4)),
    "group norm": (lambda device: nn.GroupNormConfig(2, 4).init(device), (5, 4, 3, 3)),
    "instance norm": (lambda device: nn.InstanceNormConfig(4).init(device), (5, 4, 6)),
    "prelu": (lambda device: nn.PReluConfig(num_parameters=4).init(device), (5, 4, 3)),
}


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_the_loop(name: str, device: Device, seed: np.random.Generator) -> None:
    make, shape = LAYERS[name]
    layer = drawn(make(device), seed)
    assert_as_loop(lambda m, x: squared(m.forward(x)), layer, tensor(normal(seed, *shape)).to_device(_plain(device)))


def _plain(device: Device) -> Device:
    return device.inner() if device.is_autodiff() else device


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_embedding_and_cross_entropy_equal_the_loop(device: Device, seed: np.random.Generator) -> None:
    model = Words(*(drawn(layer.init(device), seed) for layer in (nn.EmbeddingConfig(7, 4), nn.LinearConfig(4, 3))))
    words = tensor(seed.integers(0, 7, (5, 6))).to_device(_plain(device))
    targets = tensor(seed.integers(0, 3, 5)).to_device(_plain(device))
    loss = nn.loss.CrossEntropyLossConfig().init(_plain(device))
    assert_as_loop(lambda m, w, t: loss.forward(m.forward(w), t), model, words, targets)


class Words(Module):
    """The mean of embeddings, and a linear layer."""

    embedding: nn.Embedding
    linear: nn.Linear

    def forward(self, words: Tensor) -> Tensor:
        return self.linear.forward(self.embedding.forward(words).mean_dim(1).reshape((words.shape[0], 4)))


def test_a_cnn_equals_the_loop_and_torch_vmap(seed: np.random.Generator) -> None:
    model = drawn(Cnn.make(TAPE), seed)
    x, targets = normal(seed, 4, 2, 8, 8), seed.integers(0, 3, 4)
    loss = nn.loss.CrossEntropyLossConfig().init(CPU)
    assert_as_loop(lambda m, x, t: loss.forward(m.forward(x), t), model, tensor(x), tensor(targets))
    gradients = by_path(
        model, per_sample_grad(lambda m, x, t: loss.forward(m.forward(x), t))(model, tensor(x), tensor(targets))
    )
    values = {path: torch.from_numpy(array(p.val())) for path, p in model.named_params()}
    f = torch.nn.functional

    def torch_loss(values: dict[str, torch.Tensor], x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = f.conv2d(x[None], values["conv.weight"], values["conv.bias"], padding=1)
        y = f.group_norm(y, 2, values["norm.gamma"], values["norm.beta"], 1e-5).relu()
        y = f.max_pool2d(y, 2).reshape(1, 64) @ values["linear.weight"] + values["linear.bias"]
        return f.cross_entropy(y, t[None])

    each = torch.func.vmap(torch.func.grad(torch_loss), in_dims=(None, 0, 0))
    for path, gradient in each(values, torch.from_numpy(x), torch.from_numpy(targets)).items():
        close(gradients[path], gradient.numpy())


class Cnn(Module):
    """Convolution, group norm, pooling, dropout, linear."""

    conv: nn.Conv2d
    norm: nn.GroupNorm
    pool: nn.MaxPool2d
    dropout: nn.Dropout
    linear: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout.forward(self.pool.forward(self.norm.forward(self.conv.forward(x)).relu()))
        return self.linear.forward(x.reshape((x.shape[0], 64)))

    @staticmethod
    def make(device: Device, dropout: float = 0.0) -> Cnn:
        return Cnn(
            nn.Conv2dConfig((2, 4), (3, 3), padding=nn.PaddingConfig2d.Same).init(device),
            nn.GroupNormConfig(2, 4).init(device),
            nn.MaxPool2dConfig((2, 2), strides=(2, 2)).init(),
            nn.Dropout(dropout),
            nn.LinearConfig(64, 3).init(device),
        )


SEQUENCES: dict[str, tuple[Callable[[Device], Any], Callable[[Any, Tensor], Tensor]]] = {
    "lstm": (lambda device: nn.LstmConfig(4, 3, True).init(device), lambda m, x: m.forward(x, None)[0]),
    "gru": (lambda device: nn.GruConfig(4, 3, True).init(device), lambda m, x: m.forward(x, None)[0]),
    "encoder": (
        lambda device: nn.TransformerEncoderConfig(4, 6, 2, 1, dropout=0.0).init(device),
        lambda m, x: m.forward(nn.TransformerEncoderInput(x)),
    ),
}


@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_layers_equal_the_loop(name: str, device: Device, seed: np.random.Generator) -> None:
    make, run = SEQUENCES[name]
    assert_as_loop(lambda m, x: squared(run(m, x)), drawn(make(device), seed), tensor(normal(seed, 3, 5, 4)))


def test_in_float32_it_is_within_1e_6_of_the_loop(seed: np.random.Generator) -> None:
    model = Cnn.make(TAPE)
    x = tensor(normal(seed, 8, 2, 8, 8).astype(np.float32))
    assert_as_loop(lambda m, x: m.forward(x).square().mean(), model, x, tolerance=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 5), sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
    number=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_sizes_equal_the_loop(batch: int, sizes: tuple[int, int, int], number: int) -> None:
    rng = np.random.default_rng(number)
    model = drawn(Mlp.make(TAPE, *sizes), rng)
    assert_as_loop(mean_square, model, tensor(normal(rng, batch, sizes[0])), tensor(normal(rng, batch, sizes[2])))


# -- arguments and results --------------------------------------------------------------------------------------
def test_results_lie_under_the_tape_with_the_samples_in_front(seed: np.random.Generator) -> None:
    x, t = tensor(normal(seed, 5, 3)), tensor(normal(seed, 5, 2))
    for device in (CPU, TAPE):
        model = drawn(Mlp.make(device), seed)
        grads = per_sample_grad(mean_square)(model, x, t)
        assert isinstance(grads, GradientsParams)
        for _, param in model.named_params():
            gradient = grads.get(param.id)
            assert gradient is not None
            assert gradient.shape == (5, *param.shape)
            assert gradient.device is CPU


def test_tensors_argnums_axes_aux_and_keywords(seed: np.random.Generator) -> None:
    w, x, t, s = normal(seed, 3), normal(seed, 3, 5), normal(seed, 5), normal(seed, 3)

    def loss(w: Tensor, data: dict[str, Any], t: Tensor, s: Tensor, *, scale: float) -> tuple[Tensor, dict[str, Any]]:
        error = (w.reshape((3, 1)) * data["x"]).sum() - t
        return (error.square() + (s * w).sum()) * scale, {"error": error, "w": w, "name": data["name"]}

    run = per_sample_grad(loss, argnums=(0, 3), in_axes=(None, -1, 0, None), has_aux=True)
    (dw, ds), more = run(tensor(w), {"x": tensor(x), "name": "n"}, tensor(t), tensor(s), scale=2.0)
    error = w @ x - t
    close(dw, 2 * (2 * error * x + s[:, None]).T)
    close(ds, np.broadcast_to(2 * w, (5, 3)))
    close(more["error"], error[:, None])
    close(more["w"], np.broadcast_to(w, (5, 3)))
    assert more["name"] == "n"
    assert all(value.device is CPU for value in (dw, ds, more["error"]))


def test_what_is_not_read_has_zeros_or_no_entry() -> None:
    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0, 5.0])
    dx = per_sample_grad(lambda x, y: y.sum())(x, y)
    assert dx.tolist() == [[0.0, 0.0]] * 3
    model = Mlp.make(TAPE)
    grads = per_sample_grad(lambda m, y: m.inner.weight.val().sum() * y)(model, tensor([3.0, 4.0]).float())
    assert list(grads) == [model.inner.weight.id]
    assert grads.get(model.inner.weight.id)[1].tolist() == [[4.0] * 5] * 3


def test_a_module_beside_is_shared(seed: np.random.Generator) -> None:
    student, teacher = drawn(Mlp.make(TAPE), seed), drawn(Mlp.make(TAPE), seed)
    x = tensor(normal(seed, 4, 3))
    grads = per_sample_grad(lambda m, teacher, x: (m.forward(x) - teacher.forward(x)).square().sum())(
        student, teacher.valid(), x
    )
    expected = loop(lambda m, x: (m.forward(x) - teacher.forward(x)).square().sum(), student, x)
    for path, gradient in by_path(student, grads).items():
        close(gradient, expected[path])


def test_the_mean_is_the_gradient_of_the_mean_loss_dropout_included(seed: np.random.Generator) -> None:
    model = drawn(Cnn.make(TAPE, dropout=0.5), seed)
    x = tensor(normal(seed, 6, 2, 8, 8))

    def loss(m: Cnn, x: Tensor) -> Tensor:
        return m.forward(x).square().mean()

    with StepScope(11, model):
        expected = by_path(model, grad(loss)(model, x))
    with StepScope(11, model):
        each = by_path(model, per_sample_grad(loss)(model, x))
    for path, gradient in expected.items():
        close(each[path].mean(axis=0), gradient)
    one = tensor(np.repeat(normal(seed, 1, 2, 8, 8), 2, axis=0))
    with StepScope(11, model):
        pair = by_path(model, per_sample_grad(loss)(model, one))["linear.weight"]
    assert np.abs(pair[0] - pair[1]).max() > 1e-3  # two equal samples have masks of their own


def test_batch_norm_with_fixed_statistics_equals_the_loop(seed: np.random.Generator) -> None:
    norm = nn.BatchNormConfig(2).init(TAPE)
    x = normal(seed, 5, 2, 3)
    norm.forward(tensor(x.astype(np.float32), TAPE))
    assert_as_loop(lambda m, x: squared(m.forward(x)), norm.valid(), tensor(x.astype(np.float32)), tolerance=1e-6)


def test_it_nests(seed: np.random.Generator) -> None:
    w, x = normal(seed, 3), normal(seed, 4, 3)
    for device in (CPU, TAPE):
        d, data = tensor(w, device), tensor(x)

        def norms(w: Tensor, data: Tensor = data) -> Tensor:  # of gradients x cos(x w)
            each: Tensor = per_sample_grad(lambda w, x: (x * w.reshape((1, 3))).sum().sin())(w, data)
            return each.square().sum()

        gradient = grad(norms)(d)
        t = torch.from_numpy(w.copy()).requires_grad_()
        loss = ((torch.from_numpy(x) @ t).cos()[:, None] * torch.from_numpy(x)).square().sum()
        close(gradient, torch.autograd.grad(loss, t)[0].numpy())
        inside = per_sample_grad(lambda w, x: grad(lambda v: (v * w * x.reshape((3,))).sin().sum())(w).square().sum())(
            d, data
        )
        expected = []
        for row in x:
            t = torch.from_numpy(w.copy()).requires_grad_()
            u = t * torch.from_numpy(row)
            expected.append(torch.autograd.grad(((t.detach() * u).cos() * u).square().sum(), t)[0].numpy())
        assert np.shape(expected) == inside.shape


def test_many_batch_sizes_keep_nothing_that_grows() -> None:
    from burn_torch.backend import Autodiff, LibTorch
    from burn_torch.backend.batched import Batched

    run, w = per_sample_grad(lambda w, x: (w * x).sum()), tensor([2.0])
    for n in range(1, 30):
        assert run(w, tensor(np.ones((n, 1)))).tolist() == [[1.0]] * n
    assert Batched(LibTorch()) is Batched(LibTorch())
    assert Autodiff.above(Batched(LibTorch())) is Autodiff.above(Batched(LibTorch()))


# -- loops and errors -------------------------------------------------------------------------------------------
@op(torch=lambda x: torch.flip(x, (0,)).cumsum(0), numpy=lambda x: x[::-1].cumsum(0), namespace="test_per_sample")
def turned(x: TensorSpec) -> TensorSpec:
    """Sums from the end.  Shapes: x (n,) -> (n,).  Dtypes: float in, the same float out."""
    return x


@turned.gradient
def _(g: Any, y: Any, x: Any) -> Any:
    from burn_torch import ops

    return ops.flip(ops.cumsum(ops.flip(g, axes=(0,)), dim=0), axes=(0,))


def test_a_row_of_ones_own_is_looped_over_and_reported() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        y: Tensor = unary(turned, (w * x).reshape((3,))).square().sum()
        return y

    w, x = tensor([1.0, 2.0, 3.0]), tensor(np.arange(6.0).reshape(2, 3))
    with pytest.warns(
        PerSampleLoopWarning, match=r"per_sample_grad\(loss\): test_per_sample::turned is computed sample by sample"
    ) as caught:
        grads = per_sample_grad(loss)(w, x)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    for i in range(2):
        close(array(grads)[i], array(grad(loss)(w, x.narrow(0, i, 1))))


class Counting(Module):
    """A layer that keeps a statistic of its inputs."""

    weight: Param
    seen: RunningState

    def forward(self, x: Tensor) -> Tensor:
        self.seen.update(x.sum().inner() if x.device.is_autodiff() else x.sum())
        return x * self.weight.val()


X = tensor(np.ones((4, 3)))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: per_sample_grad(lambda m, x: squared(m.forward(x)))(
                nn.BatchNormConfig(2).init(TAPE), tensor(np.ones((4, 2, 3), np.float32))
            ),
            ArgumentError,
            said(
                "batch normalisation in training mixes the samples",
                r"batch_norm.* 4 samples",
                "layers",
                "use model.valid",
            ),
        ),
        (
            lambda: per_sample_grad(lambda m, x: squared(m.forward(x)))(
                Counting(Param(tensor([[2.0]], TAPE)), RunningState(tensor([0.0]))), X
            ),
            ArgumentError,
            said("a running state was updated", "running state [0-9a-f]{16}", "layers that treat", "use model.valid"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: (w * x).sum() * float(x.sum()))(tensor([[1.0]]), X),
            TraceError,
            said("a value was read in a function that computes many samples", "at .*test_per_sample", "operations"),
        ),
        (
            lambda: per_sample_grad(lambda w, x, y: (w * x).sum())(tensor([[1.0]]), X, tensor(np.ones(3))),
            ShapeError,
            said("no common number of samples", r"argument 1 \(4, 3\).*; argument 2 \(3,\)", "one size", "name"),
        ),
        (
            lambda: per_sample_grad(lambda w, n: w.sum())(tensor([1.0]), 3),
            ShapeError,
            said("no common number of samples", "no tensor with an axis of samples", "one size"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: w.sum(), in_axes=(None, 2))(tensor([1.0]), X),
            ShapeError,
            said("no common number of samples", r"argument 1 \(4, 3\) f64 cpu, axis 2", "one size"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: w.sum())(tensor([1.0]), tensor(np.ones((0, 2)))),
            ShapeError,
            said("no common number of samples", r"argument 1 \(0, 2\)", ".*at least 1"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: w.sum(), in_axes=(0, 0))(tensor([1.0]), X),
            ArgumentError,
            said("in_axes does not fit", "in_axes .*argument 0 is differentiated", "one entry", "per_sample_grad"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: w.sum(), in_axes=(None,))(tensor([1.0]), X),
            ArgumentError,
            said("in_axes does not fit", r"in_axes \(None,\) for 2 positional arguments", "one entry"),
        ),
        (
            lambda: per_sample_grad(lambda w, x: w * x)(tensor([[1.0]]), X),
            AutodiffError,
            said(r"per_sample_grad\(<lambda>\): the function did not return one number", r"\(1, 3\)", "a float"),
        ),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_a_refused_running_state_stays_as_it_was() -> None:
    layer = Counting(Param(tensor([[2.0]], TAPE)), RunningState(tensor([7.0])))
    with pytest.raises(ArgumentError, match="a running state was updated"):
        per_sample_grad(lambda m, x: squared(m.forward(x)))(layer, X)
    assert layer.seen.value().tolist() == [7.0]
