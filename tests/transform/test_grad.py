"""grad and value_and_grad against torch and central differences in float64; structures, tapes, modes, errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import AutodiffError, Device, DeviceError, DType, StepScope, Tensor, grad, nn, optim, value_and_grad
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.module import GradientsParams, Module, Param, RunningState
from tests.nn.test_recurrent import torch_layout as recurrent_layout
from tests.nn.test_transformer import TORCH_OPTIONS
from tests.nn.test_transformer import torch_layout as encoder_layout
from tests.nn.twin_modules import load_torch, values_of
from tests.transform.functions import (
    CASES,
    CPU,
    TAPE,
    Array,
    Case,
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

shapes = st.tuples(st.integers(1, 4), st.integers(1, 5))


def torch_grads(case: Case, *arrays: Array) -> list[Array]:
    leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
    return [g.numpy() for g in torch.autograd.grad(case.torch(*leaves), leaves)]


# -- values -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", [CPU, TAPE, Device.ndarray()], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_are_those_of_torch(case: Case, device: Device, seed: np.random.Generator) -> None:
    x, y = normal(seed, 3, 4), normal(seed, 3, 4)
    grads = grad(case.ours, argnums=(0, 1))(tensor(x, device), tensor(y, device))
    for ours, theirs in zip(grads, torch_grads(case, x, y), strict=True):
        close(ours, theirs)
        assert ours.device is (device.inner() if device.is_autodiff() else device)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, fewer=st.booleans(), ones=st.booleans(), number=st.integers(0, 2**32 - 1))
def test_gradients_of_broadcast_shapes(shape: tuple[int, int], fewer: bool, ones: bool, number: int) -> None:
    rng = np.random.default_rng(number)
    x, y = normal(rng, *shape), normal(rng, *((shape[1],) if fewer else (1 if ones else shape[0], shape[1])))
    case = CASES[number % 3]
    theirs = torch_grads(case, x, y)
    if y.ndim == 1:  # of two axes in burn_torch, as its operators take equal numbers of axes
        grads = grad(lambda x, y: case.ours(x, y.reshape((1, shape[1]))), argnums=(0, 1))(tensor(x), tensor(y))
    else:
        grads = grad(case.ours, argnums=(0, 1))(tensor(x), tensor(y))
    for ours, expected in zip(grads, theirs, strict=True):
        close(ours, expected)


def test_empty_tensors_have_empty_gradients() -> None:
    assert array(grad(lambda x: x.square().sum())(tensor(np.zeros((0, 3))))).shape == (0, 3)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_derivatives_of_derivatives(times: int, seed: np.random.Generator) -> None:
    x = normal(seed, 4)
    function: Callable[..., Any] = lambda x: (x.sin() * x).sum()  # noqa: E731  # its derivatives are made in a loop
    for _ in range(times):
        function = (lambda g: lambda x: g(x).sum())(grad(function))
    t = torch.from_numpy(x.copy()).requires_grad_()
    expected = (t.sin() * t).sum()
    for _ in range(times):
        (expected,) = torch.autograd.grad(expected.sum(), t, create_graph=True)
    for device in (CPU, TAPE):
        close(function(tensor(x, device)), expected.sum().detach().numpy().reshape(1))
    np.testing.assert_allclose(array(function(tensor(x))), expected.sum().item())


@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
def test_an_inner_derivative_knows_the_outer_variable(device: Device) -> None:
    x = tensor([1.0, 2.0, 3.0], device)
    one = tensor([1.0, 1.0, 1.0], device)

    def outer(a: Tensor) -> Tensor:
        slope: Tensor = grad(lambda b: (a * b).sum())(one)  # a
        return (a * slope).sum()  # a², not perturbed by b

    assert grad(outer)(x).tolist() == [2.0, 4.0, 6.0]


def test_what_is_closed_over_is_constant() -> None:
    x = tensor([1.0, 2.0], TAPE).require_grad()
    assert grad(lambda y: (x * y).sum())(x).tolist() == [1.0, 2.0]
    model = Mlp.make(TAPE)
    inputs, old = tensor(np.ones((1, 3), np.float32)), model.forward(tensor(np.ones((1, 3), np.float32)))
    # the ratio of a policy to itself: 1 everywhere, but its gradient is that of the logarithm
    ratio = grad(lambda m: (m.forward(inputs) - model.forward(inputs)).exp().sum())(model)
    plain = grad(lambda m: m.forward(inputs).sum())(model)
    assert {i: g.tolist() for i, g in ratio.items()} == {i: g.tolist() for i, g in plain.items()}
    assert old.shape == (1, 2)


def test_a_tape_of_ones_own_is_neither_walked_nor_used_up() -> None:
    w = tensor([2.0, 3.0], TAPE).require_grad()
    hidden = w * w
    assert grad(lambda y: (y * hidden).sum())(hidden).tolist() == [4.0, 9.0]
    tape = hidden.sum().backward()
    gradient = w.grad(tape)
    assert gradient is not None
    assert gradient.tolist() == [4.0, 6.0]


# -- modules ----------------------------------------------------------------------------------------------
def test_an_mlp_has_the_gradients_of_torch(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    x, t = normal(seed, 4, 3), normal(seed, 4, 2)
    values = {path: torch.from_numpy(v.copy()).requires_grad_() for path, v in values_of(model).items()}
    hidden = torch.tanh(torch.from_numpy(x) @ values["inner.weight"] + values["inner.bias"])
    loss = (hidden @ values["outer.weight"] + values["outer.bias"] - torch.from_numpy(t)).square().mean()
    expected = dict(zip(values, torch.autograd.grad(loss, list(values.values())), strict=True))
    value, grads = value_and_grad(mean_square)(model, tensor(x), tensor(t))
    close(value, loss.detach().numpy().reshape(1))
    gradients = by_path(model, grads)
    assert set(gradients) == set(expected)
    for path, gradient in expected.items():
        close(gradients[path], gradient.numpy())


class Cnn(Module):
    """Convolution, group norm, pooling, linear."""

    conv: nn.Conv2d
    norm: nn.GroupNorm
    pool: nn.MaxPool2d
    linear: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool.forward(self.norm.forward(self.conv.forward(x)).relu())
        return self.linear.forward(x.reshape((x.shape[0], 4 * 3 * 3)))

    @staticmethod
    def make(device: Device) -> Cnn:
        return Cnn(
            nn.Conv2dConfig((2, 4), (3, 3)).init(device),
            nn.GroupNormConfig(2, 4).init(device),
            nn.MaxPool2dConfig((2, 2), strides=(2, 2)).init(),
            nn.LinearConfig(36, 3).init(device),
        )


def test_a_cnn_has_the_gradients_of_torch(seed: np.random.Generator) -> None:
    model = drawn(Cnn.make(TAPE), seed)
    x, targets = normal(seed, 3, 2, 8, 8), seed.integers(0, 3, 3)
    loss_fn = nn.loss.CrossEntropyLossConfig().init(CPU)
    gradients = by_path(model, grad(lambda m: loss_fn.forward(m.forward(tensor(x)), tensor(targets)))(model))
    values = {path: torch.from_numpy(v.copy()).requires_grad_() for path, v in values_of(model).items()}
    f = torch.nn.functional
    y = f.conv2d(torch.from_numpy(x), values["conv.weight"], values["conv.bias"])
    y = f.max_pool2d(f.group_norm(y, 2, values["norm.gamma"], values["norm.beta"], 1e-5).relu(), 2)
    loss = f.cross_entropy(
        y.reshape(3, 36) @ values["linear.weight"] + values["linear.bias"], torch.from_numpy(targets)
    )
    for (path, leaf), gradient in zip(values.items(), torch.autograd.grad(loss, list(values.values())), strict=True):
        assert leaf.shape == gradient.shape
        close(gradients[path], gradient.numpy())


def test_an_lstm_has_the_gradients_of_torch(seed: np.random.Generator) -> None:
    model = drawn(nn.LstmConfig(4, 5, True).init(TAPE), seed)
    twin = torch.nn.LSTM(4, 5, batch_first=True, dtype=torch.float64)
    values = recurrent_layout("lstm", values_of(model), both=False)
    load_torch(twin, values)
    x, g = normal(seed, 3, 6, 4), normal(seed, 3, 6, 5)
    grads = grad(lambda m, x: (m.forward(x, None)[0] * tensor(g)).sum())(model, tensor(x))
    loss = (twin(torch.from_numpy(x))[0] * torch.from_numpy(g)).sum()
    expected = dict(zip(dict(twin.named_parameters()), torch.autograd.grad(loss, list(twin.parameters())), strict=True))
    gradients = recurrent_layout("lstm", by_path(model, grads), both=False)
    for name, gradient in expected.items():
        close(gradients[name], gradient.numpy())


def test_a_transformer_encoder_has_the_gradients_of_torch(seed: np.random.Generator) -> None:
    config = nn.TransformerEncoderConfig(6, 10, 2, 2, dropout=0.0)
    model = drawn(config.init(TAPE), seed)
    layer = torch.nn.TransformerEncoderLayer(6, 2, 10, activation="gelu", **{**TORCH_OPTIONS, "layer_norm_eps": 1e-5})
    twin = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    load_torch(twin, encoder_layout(values_of(model), norm_first=False))
    x, g = normal(seed, 3, 5, 6), normal(seed, 3, 5, 6)
    grads = grad(lambda m, x: (m.forward(nn.TransformerEncoderInput(x)) * tensor(g)).sum())(model, tensor(x))
    loss = (twin(torch.from_numpy(x)) * torch.from_numpy(g)).sum()
    expected = torch.autograd.grad(loss, list(twin.parameters()))
    gradients = encoder_layout(by_path(model, grads), norm_first=False)
    for (name, _), gradient in zip(twin.named_parameters(), expected, strict=True):
        close(gradients[name], gradient.numpy())


def test_the_gradients_are_those_of_a_step_written_by_hand_bit_for_bit(seed: np.random.Generator) -> None:
    model = Noisy.make(TAPE)
    x, t = tensor(seed.standard_normal((6, 3)).astype(np.float32)), tensor(np.zeros((6, 2), np.float32))
    with StepScope(7, model) as by_hand:
        loss = mean_square(model, x, t)
        expected = GradientsParams.from_grads(loss.backward(), model)
    with StepScope(7, model) as scope:
        value, grads = value_and_grad(mean_square)(model, x, t)
    assert value.tolist() == loss.tolist()
    assert list(grads) == list(expected)
    for ident, gradient in expected.items():
        assert grads.get(ident).tolist() == gradient.tolist()
        assert grads.get(ident).device is gradient.device
    assert {i: s.tolist() for i, s in scope.states.items()} == {i: s.tolist() for i, s in by_hand.states.items()}
    assert len(scope.states) == 2


class Noisy(Module):
    """Layers that train: a linear layer that drops out by itself, batch norm, dropout."""

    linear: nn.Linear
    norm: nn.BatchNorm
    dropout: nn.Dropout
    scale: Own

    @staticmethod
    def make(device: Device) -> Noisy:
        return Noisy(
            nn.LinearConfig(3, 2).init(device), nn.BatchNormConfig(2).init(device), nn.Dropout(0.5),
            Own(Param(tensor(np.ones(2, np.float32), device)), nn.Dropout(0.3)),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.scale.forward(self.dropout.forward(self.norm.forward(self.linear.forward(x))))


class Own(Module):
    """A layer with a parameter that draws under its own name."""

    weight: Param
    inside: nn.Dropout

    def forward(self, x: Tensor) -> Tensor:
        from burn_torch import ops
        from burn_torch.nn._layer import drawn_like

        noise = drawn_like(self, ops.uniform, (0.0, 1.0), x) if x.backend.trains else 1.0
        return self.inside.forward(x * self.weight.val().reshape((1, 2)) * noise)


def test_on_a_plain_device_layers_do_not_train(seed: np.random.Generator) -> None:
    model = Noisy.make(TAPE).valid()
    x, t = tensor(seed.standard_normal((6, 3)).astype(np.float32)), tensor(np.zeros((6, 2), np.float32))
    states = {path: state.value().tolist() for path, state in model.named_states()}
    value, grads = value_and_grad(mean_square)(model, x, t)
    assert value.tolist() == mean_square(model, x, t).tolist()
    assert {path: state.value().tolist() for path, state in model.named_states()} == states
    assert len(grads) == 5
    assert all(gradient.device is CPU for _, gradient in grads.items())
    dx = grad(lambda x: model.forward(x).square().sum())(x)  # what an attack or a saliency map asks for
    assert dx.shape == x.shape
    assert np.abs(array(dx)).min() > 0


def test_a_model_that_is_closed_over_trains_where_it_lives(seed: np.random.Generator) -> None:
    model = Noisy.make(TAPE)
    x = tensor(seed.standard_normal((6, 3)).astype(np.float32))
    with StepScope(3, model):
        expected = model.forward(x).sum()
    with StepScope(3, model):
        value, gradient = value_and_grad(lambda x: model.forward(x).sum())(x)
    assert value.tolist() == expected.tolist()
    assert gradient.device is TAPE  # it hangs on the model's parameters
    with StepScope(3, model):
        bound = grad(model_loss(model))(x)
    assert bound.tolist() == gradient.tolist()


def model_loss(model: Module) -> Callable[[Tensor], Tensor]:
    def loss(x: Tensor) -> Tensor:
        y: Tensor = model.forward(x).sum()  # type: ignore[attr-defined]
        return y

    return loss


class Holder:
    """An object that keeps a model where nobody sees it."""

    def __init__(self, kept: Module) -> None:
        self.kept = kept


def test_a_hidden_model_of_another_device_is_refused_in_words() -> None:
    holder = Holder(nn.LinearConfig(3, 2).init(TAPE))
    match = said(
        "a transform of a function on a plain device met a value of a device with gradients",
        "values of .*trains=False",
        "arguments on the device",
        "pass the model as an argument, close over model.valid",
    )
    with pytest.raises(DeviceError, match=match):
        grad(lambda x, holder: holder.kept.forward(x).sum())(tensor(np.ones((1, 3), np.float32)), holder)


# -- structures -------------------------------------------------------------------------------------------
class Pair(NamedTuple):
    x: Tensor
    y: Any


@dataclass(frozen=True)
class Batch:
    x: Tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.x, Tensor):
            raise TypeError("a constructor that a structure of gradients must not run")


def test_a_gradient_has_the_structure_of_its_argument() -> None:
    x = tensor([1.0, 2.0])
    tree = {"pair": Pair(x, 3), "list": [x * 2.0, None, "text"], "batch": Batch(x, ("a", "b"))}

    def loss(tree: Any) -> Tensor:
        total = tree["pair"].x * tree["pair"].y + tree["list"][0].square() + tree["batch"].x
        return total.sum()  # type: ignore[no-any-return]

    grads = grad(loss)(tree)
    assert list(grads) == ["pair", "list", "batch"]
    assert isinstance(grads["pair"], Pair)
    assert grads["pair"].x.tolist() == [3.0, 3.0]
    assert grads["pair"].y is None
    assert grads["list"][0].tolist() == [4.0, 8.0]
    assert grads["list"][1:] == [None, None]
    assert isinstance(grads["batch"], Batch)
    assert grads["batch"].x.tolist() == [1.0, 1.0]


def test_modules_in_containers_and_tensors_beside_them() -> None:
    models = {"a": Mlp.make(TAPE), "b": [Mlp.make(TAPE)]}
    x = tensor(np.ones((2, 3), np.float32))
    grads, dx = grad(lambda m, x: (m["a"].forward(x) * m["b"][0].forward(x)).sum(), argnums=(0, 1))(models, x)
    assert isinstance(grads["a"], GradientsParams)
    assert len(grads["b"][0]) == 4
    assert dx.shape == (2, 3)


def test_argnums_kwargs_aux_and_numbers() -> None:
    x, y = tensor([1.0, 2.0]), tensor([3.0, 4.0])

    def loss(x: Tensor, power: int, y: Tensor, *, scale: float) -> tuple[Tensor, dict[str, Tensor]]:
        return ((x**power) * y).sum() * scale, {"product": x * y, "steps": tensor([1])}

    gradient, more = grad(loss, argnums=-1, has_aux=True)(x, 2, y, scale=2.0)
    assert gradient.tolist() == [2.0, 8.0]
    assert more["product"].tolist() == [3.0, 8.0]
    assert all(value.device is CPU for value in more.values())
    (value, _), gradients = value_and_grad(loss, argnums=(2, 0), has_aux=True)(x, 2, y, scale=2.0)
    assert value.tolist() == [38.0]
    assert [g.tolist() for g in gradients] == [[2.0, 8.0], [12.0, 32.0]]
    assert grad(loss, has_aux=True).__name__ == "loss"


def test_a_model_in_aux_stays_on_its_device() -> None:
    x = tensor(np.ones((2, 3), np.float32))
    for device in (CPU, TAPE):
        model = Mlp.make(device)
        _, same = grad(lambda m: (m.forward(x).sum(), m), has_aux=True)(model)
        assert same.devices() == [device]
        assert same.inner.weight.val().tolist() == model.inner.weight.val().tolist()


def test_what_is_not_read_has_zeros_or_no_entry() -> None:
    x, y = tensor([1.0, 2.0], TAPE), tensor([3.0, 4.0])
    dx, dy = grad(lambda x, y: x.sum(), argnums=(0, 1))(x, y)
    assert (dx.tolist(), dy.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    assert grad(lambda x: tensor([5.0]))(x).tolist() == [0.0, 0.0]
    model = Mlp.make(TAPE)
    grads = grad(lambda m: m.inner.weight.val().sum())(model)
    assert list(grads) == [model.inner.weight.id]


def test_frozen_parameters_have_no_entry() -> None:
    model = Mlp.make(TAPE)
    frozen = Mlp(model.inner.no_grad(), model.outer)
    x = tensor(np.ones((2, 3), np.float32))
    grads = grad(lambda m: m.forward(x).sum())(frozen)
    assert set(grads) == {param.id for _, param in model.outer.named_params()}


def test_a_shared_parameter_has_one_gradient() -> None:
    layer = nn.LinearConfig(3, 3).init(TAPE)
    x = tensor(np.ones((2, 3), np.float32))
    tied = Tied(layer, layer)
    grads = grad(lambda m: m.second.forward(m.first.forward(x)).sum())(tied)
    loss = tied.second.forward(tied.first.forward(x)).sum()
    expected = GradientsParams.from_grads(loss.backward(), tied)
    assert {i: g.tolist() for i, g in grads.items()} == {i: g.tolist() for i, g in expected.items()}


class Tied(Module):
    first: nn.Linear
    second: nn.Linear


def test_an_optimizer_takes_what_grad_gives(seed: np.random.Generator) -> None:
    x, t = tensor(seed.standard_normal((6, 3)).astype(np.float32)), tensor(np.zeros((6, 2), np.float32))
    one = other = Mlp.make(TAPE)
    sgd, adam = optim.AdamConfig().init(), optim.AdamConfig().init()
    for _ in range(3):
        one, sgd = sgd.step(1e-2, one, grad(mean_square)(one, x, t))
        other, adam = adam.step(1e-2, other, GradientsParams.from_grads(mean_square(other, x, t).backward(), other))
    assert {p: v.val().tolist() for p, v in one.named_params()} == {
        p: v.val().tolist() for p, v in other.named_params()
    }
    plain = one.valid()
    stepped, _ = optim.SgdConfig().init().step(0.1, plain, grad(mean_square)(plain, x, t))
    assert stepped.devices() == [CPU]
    assert mean_square(stepped, x, t).item() < mean_square(plain, x, t).item()


def test_a_parameter_and_half_types() -> None:
    param = Param(tensor([1.0, 2.0], TAPE))
    assert grad(lambda p: p.val().square().sum())(param).tolist() == [2.0, 4.0]
    x = tensor([1.0, 2.0]).cast(DType.BF16)
    slope = grad(lambda x: x.square().sum())(x)
    assert slope.dtype is DType.BF16
    assert slope.float().tolist() == [2.0, 4.0]


def test_batch_norm_under_a_tape_over_a_tape_keeps_plain_statistics() -> None:
    norm = nn.BatchNormConfig(2).init(TAPE)
    gamma = norm.gamma.id
    x = tensor(np.arange(8, dtype=np.float32).reshape(4, 2))
    one = tensor(np.ones((1, 1), np.float32), TAPE)
    grad(lambda a: grad(lambda m: (m.forward(x * a) * x).sum())(norm).get(gamma).sum())(one)
    assert isinstance(norm.running_mean, RunningState)
    assert norm.running_mean.device is CPU
    assert np.abs(array(norm.running_mean.value())).max() > 0


# -- errors ---------------------------------------------------------------------------------------------------
X = tensor([1.0, 2.0])


NO_NUMBER = "the function did not return one number"


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: grad(lambda x: x * x)(X),
            AutodiffError,
            said(rf"grad\(<lambda>\): {NO_NUMBER}", r"\(2,\) f64 cpu", "a float tensor of one", "reduce it.*use vjp"),
        ),
        (lambda: value_and_grad(lambda x: 3.0)(X), AutodiffError, said(rf"value_and_grad.*{NO_NUMBER}", "float")),
        (
            lambda: grad(lambda x: x.sum(), has_aux=True)(X),
            AutodiffError,
            said(NO_NUMBER, r"\(1,\)", r"\(a float tensor of one element, more\), since has_aux"),
        ),
        (lambda: grad(lambda x: x.sum().int())(X), AutodiffError, said(NO_NUMBER, r"\(1,\) i64 cpu", "a float")),
        (
            lambda: grad(lambda t: t["a"].sum())({"a": X, "b": tensor([1, 2]), "c": (tensor([True]),)}),
            DTypeError,
            said(
                r"grad\(<lambda>\): only floats have derivatives",
                r"argument 0\['b'\] \(2,\) i64 cpu, argument 0\['c'\]\[0\] \(1,\) bool cpu",
                "float tensors",
                r"cast them with .float\(\)",
            ),
        ),
        (
            lambda: grad(lambda x, y: x.sum(), argnums=1)(X, 2.0),
            ArgumentError,
            said("argument 1 has nothing to differentiate", "float 2.0", "a float tensor, a module", "wrap a number"),
        ),
        (
            lambda: grad(lambda m: m)(Mlp.make(TAPE).no_grad()),
            ArgumentError,
            said("nothing to differentiate", "Mlp without trainable", "a float tensor", r"call .requires_grad\(\)"),
        ),
        (
            lambda: grad(lambda x: x)(2.0),
            ArgumentError,
            said(r"grad\(<lambda>\): no argument holds a tensor", "numbers", "a float tensor", "wrap a number"),
        ),
        (
            lambda: grad(lambda x: x.sum(), argnums=(0, 2))(X, X),
            ArgumentError,
            said(
                "argnums does not name arguments", r"argnums \(0, 2\), 2 positional", "distinct positions from 0 to 1"
            ),
        ),
        (
            lambda: grad(lambda x, y: x.sum(), argnums=(0, -2))(X, X),
            ArgumentError,
            said("argnums does not name arguments", r"argnums \(0, -2\)", "distinct positions"),
        ),
        (
            lambda: grad(lambda x: x.sum())(x=X),
            ArgumentError,
            said("argnums does not name", "argnums 0, 0 positional", "at least one positional argument"),
        ),
        (
            lambda: grad(lambda m: m.first.weight.val().sum())(_twice()),
            ArgumentError,
            said("two parameters of one module have one id", "first.weight and second.weight", "an id for each"),
        ),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def _twice() -> Tied:
    layer = nn.LinearConfig(3, 3).init(TAPE)
    return Tied(layer, layer.map_params(lambda p: p.map(lambda x: x * 2.0)))
