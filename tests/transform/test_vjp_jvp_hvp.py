"""vjp, jvp and hvp against torch.func and central differences in float64; structures, tapes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import Device, StepScope, Tensor, grad, hvp, jvp, nn, vjp
from burn_torch.core.errors import ArgumentError, AutodiffError, ShapeError
from burn_torch.module import GradientsParams
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

DEVICES = [CPU, TAPE, Device.ndarray()]


def under(device: Device) -> Device:
    return device.inner() if device.is_autodiff() else device


def spread(x: Any, y: Any) -> Any:
    """A function of two arrays with two outputs of other shapes, for both libraries."""
    return (x * y).sin(), x.exp().reshape((4, 3)) @ y


# -- against torch.func -----------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_vjp_is_that_of_torch(device: Device, seed: np.random.Generator) -> None:
    x, y, g, h = normal(seed, 3, 4), normal(seed, 3, 4), normal(seed, 3, 4), normal(seed, 4, 4)
    outputs, pullback = vjp(spread, tensor(x, device), tensor(y, device))
    theirs, pulled = torch.func.vjp(spread, torch.from_numpy(x), torch.from_numpy(y))  # type: ignore[misc]  # two results, without aux
    for ours, expected in zip(outputs, theirs, strict=True):
        close(ours, expected.numpy())
        assert ours.device is under(device)
    for factor in (1.0, -2.0):  # a pullback may be called again
        cotangents = (tensor(g * factor, under(device)), tensor(h, under(device)))
        expected = pulled((torch.from_numpy(g * factor), torch.from_numpy(h)))
        for ours, wanted in zip(pullback(cotangents), expected, strict=True):
            close(ours, wanted.numpy())
            assert ours.device is under(device)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own jvp uses it
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_jvp_is_that_of_torch(device: Device, seed: np.random.Generator) -> None:
    x, y, v, w = (normal(seed, 3, 4) for _ in range(4))
    outputs, tangents = jvp(
        spread, (tensor(x, device), tensor(y, device)), (tensor(v, under(device)), tensor(w, under(device)))
    )
    theirs, expected = torch.func.jvp(  # type: ignore[misc]  # two results, without aux
        spread, (torch.from_numpy(x), torch.from_numpy(y)), (torch.from_numpy(v), torch.from_numpy(w))
    )
    for ours, wanted in zip((*outputs, *tangents), (*theirs, *expected), strict=True):
        close(ours, wanted.numpy())
        assert ours.device is under(device)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_hvp_is_that_of_torch(case: Case, device: Device, seed: np.random.Generator) -> None:
    x, y, v, w = (normal(seed, 3, 4) for _ in range(4))
    products = hvp(
        case.ours, (tensor(x, device), tensor(y, device)), (tensor(v, under(device)), tensor(w, under(device)))
    )
    _, expected = torch.autograd.functional.hvp(  # type: ignore[no-untyped-call]
        case.torch, (torch.from_numpy(x), torch.from_numpy(y)), (torch.from_numpy(v), torch.from_numpy(w))
    )
    for ours, wanted in zip(products, expected, strict=True):
        close(ours, wanted.numpy())
        assert ours.device is under(device)


# -- against central differences ---------------------------------------------------------------------------
STEP = 1e-5
"""Central differences err by the third derivative times STEP² / 6, and by 1e-16 / STEP of rounding: about 1e-10."""


def difference(function: Callable[[Array], Array], x: Array, v: Array) -> Array:
    quotient: Array = (function(x + STEP * v) - function(x - STEP * v)) / (2 * STEP)
    return quotient


@settings(max_examples=20, deadline=None)
@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 5)), number=st.integers(0, 2**32 - 1), which=st.integers(0, 3))
def test_directions_are_central_differences(shape: tuple[int, int], number: int, which: int) -> None:
    rng, case = np.random.default_rng(number), CASES[which]
    x, y, v = normal(rng, *shape), normal(rng, *shape), normal(rng, *shape)
    fixed = tensor(y)
    _, change = jvp(lambda x: case.ours(x, fixed), (tensor(x),), (tensor(v),))
    expected = difference(lambda x: array(case.ours(tensor(x), fixed)), x, v)
    np.testing.assert_allclose(array(change), expected, rtol=1e-6, atol=1e-7)
    (turned,) = hvp(lambda x: case.ours(x, fixed), (tensor(x),), (tensor(v),))
    expected = difference(lambda x: array(grad(case.ours)(tensor(x), fixed)), x, v)
    np.testing.assert_allclose(array(turned), expected, rtol=1e-6, atol=1e-7)


def _bent(m: Any, x: Tensor) -> Tensor:
    y: Tensor = m.forward(x).tanh()
    return y


MODELS: dict[str, tuple[Callable[[Device], Any], tuple[int, ...], Callable[[Any, Tensor], Tensor]]] = {
    "mlp": (Mlp.make, (4, 3), lambda m, x: m.forward(x)),
    "conv": (lambda device: nn.Conv2dConfig((2, 3), (3, 3)).init(device), (2, 2, 5, 5), _bent),
    "norm": (lambda device: nn.LayerNormConfig(4).init(device), (3, 4), lambda m, x: m.forward(x).sin()),
    "lstm": (lambda device: nn.LstmConfig(3, 4, True).init(device), (2, 3, 3), lambda m, x: m.forward(x, None)[0]),
    "encoder": (
        lambda device: nn.TransformerEncoderConfig(4, 6, 2, 1, dropout=0.0).init(device),
        (2, 3, 4),
        lambda m, x: m.forward(nn.TransformerEncoderInput(x)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_directions_of_modules_are_central_differences(name: str, seed: np.random.Generator) -> None:
    make, shape, run = MODELS[name]
    model = drawn(make(TAPE), seed)
    x = tensor(normal(seed, *shape))
    along = {p.id: tensor(normal(seed, *p.shape)) for _, p in model.named_params()}
    direction = GradientsParams(along)

    def moved(step: float) -> Any:
        return model.map_params(lambda p: p.with_value(p.val() + along[p.id] * step))

    _, change = jvp(lambda m: run(m, x), (model,), (direction,))
    expected = (array(run(moved(STEP), x)) - array(run(moved(-STEP), x))) / (2 * STEP)
    np.testing.assert_allclose(array(change), expected, rtol=1e-6, atol=1e-7)

    def loss(m: Any) -> Tensor:
        y: Tensor = run(m, x).square().sum()
        return y

    (turned,) = hvp(loss, (model,), (direction,))
    above, below = by_path(model, grad(loss)(moved(STEP))), by_path(model, grad(loss)(moved(-STEP)))
    products = by_path(model, turned)
    assert set(products) == set(above)
    for path, gradient in above.items():
        scale = max(1.0, np.abs(gradient).max())
        np.testing.assert_allclose(products[path], (gradient - below[path]) / (2 * STEP), rtol=1e-5, atol=1e-5 * scale)


# -- structures -------------------------------------------------------------------------------------------
def test_pullback_of_a_module_and_containers_of_outputs(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    x, t = tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    def run(model: Mlp, x: Tensor) -> dict[str, Any]:
        y = model.forward(x)
        return {"y": y, "best": (y.argmax(1), "text"), "constant": tensor([1.0])}

    outputs, pullback = vjp(run, model, x)
    assert outputs["best"][1] == "text"
    grads, dx = pullback({"y": (outputs["y"] - t) * (2.0 / 8), "best": None, "constant": tensor([3.0])})
    expected, dx_expected = grad(mean_square, argnums=(0, 1))(model, x, t)
    close(dx, array(dx_expected))
    for path, gradient in by_path(model, expected).items():
        close(by_path(model, grads)[path], gradient)
    nothing, no_dx = pullback({"y": None, "best": None, "constant": None})
    assert len(nothing) == 0
    assert not array(no_dx).any()


def test_aux_of_vjp_and_jvp() -> None:
    x = tensor([1.0, 2.0])
    y, pullback, more = vjp(lambda x: (x * x, {"x": x, "n": 3}), x, has_aux=True)
    assert (y.tolist(), more["x"].tolist(), more["n"]) == ([1.0, 4.0], [1.0, 2.0], 3)
    assert more["x"].device is CPU
    assert pullback(x)[0].tolist() == [2.0, 8.0]
    y, change, more = jvp(lambda x: (x * x, {"x": x}), (x,), (x,), has_aux=True)
    assert (y.tolist(), change.tolist(), more["x"].tolist()) == ([1.0, 4.0], [2.0, 8.0], [1.0, 2.0])
    assert more["x"].device is CPU


def test_outputs_that_do_not_move_have_tangents_of_zeros_and_integers_none() -> None:
    x = tensor([1.0, 3.0])
    outputs, tangents = jvp(lambda x: (x * 0.0 + 1.0, tensor([5.0]), x.argmax(0), "text"), (x,), (None,))
    assert [t if t is None else t.tolist() for t in tangents] == [[0.0, 0.0], [0.0], None, None]
    assert outputs[3] == "text"
    (hv,) = hvp(lambda x: x.sum(), (x,), (x,))
    assert hv.tolist() == [0.0, 0.0]


def test_a_parameter_without_second_derivative_has_zeros_and_one_not_read_no_entry() -> None:
    model = Mlp.make(TAPE)
    x = tensor(np.ones((2, 3), np.float32))
    (product,) = hvp(lambda m: m.inner.forward(x).sum(), (model,), (GradientsParams(),))
    assert set(product) == {param.id for _, param in model.inner.named_params()}
    assert not any(array(v).any() for _, v in product.items())


def test_mixed_derivatives_of_several_primals() -> None:
    x, y = tensor([2.0]), tensor([3.0])
    hx, hy = hvp(lambda x, y: x * x * y, (x, y), (tensor([1.0]), tensor([10.0])))
    assert hx.tolist() == [2 * 3.0 + 2 * 2.0 * 10.0]
    assert hy.tolist() == [2 * 2.0]


# -- tapes ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", [CPU, TAPE], ids=str)
def test_they_nest(device: Device, seed: np.random.Generator) -> None:
    x, v = normal(seed, 3), normal(seed, 3)
    t, u = torch.from_numpy(x), torch.from_numpy(v)

    def cubes(x: Any) -> Any:
        return (x * x * x).sum()

    d, e = tensor(x, device), tensor(v)
    forward_over_reverse = jvp(grad(cubes), (d,), (e,))[1]
    reverse_over_forward = grad(lambda y: jvp(cubes, (y,), (e,))[1].sum())(d)
    through_vjp = grad(lambda y: vjp(cubes, y)[1](tensor([1.0]))[0].mul(e).sum())(d)
    third = grad(lambda y: hvp(cubes, (y,), (e,))[0].sum())(d)
    for product in (forward_over_reverse, reverse_over_forward, through_vjp, *hvp(cubes, (d,), (e,))):
        close(product, (6 * t * u).numpy())
    close(third, 6 * u.numpy())
    by_direction = grad(lambda e: jvp(cubes, (d,), (e,))[1].sum())(e)
    close(by_direction, (3 * t * t).numpy())


def test_layers_train_on_their_device_and_draw_as_in_the_forward() -> None:
    dropout, x = nn.Dropout(0.5), tensor(np.ones((4, 8), np.float32), TAPE)
    with StepScope(5, dropout):
        mask = dropout.forward(x)
    with StepScope(5, dropout):
        y, pullback = vjp(dropout.forward, x)
    assert y.tolist() == mask.tolist()
    assert pullback(tensor(np.ones((4, 8), np.float32)))[0].tolist() == mask.tolist()
    with StepScope(5, dropout):
        _, change = jvp(dropout.forward, (x,), (tensor(np.ones((4, 8), np.float32)),))
    assert change.tolist() == mask.tolist()
    plain = x.inner()
    assert jvp(dropout.forward, (plain,), (plain,))[1].tolist() == plain.tolist()


# -- errors --------------------------------------------------------------------------------------------------
X = tensor([1.0, 2.0])


def square(x: Tensor) -> Tensor:
    return x * x


_PULLBACK: Callable[[Any], tuple[Any, ...]] = vjp(square, X)[1]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: vjp(square, X)[1](tensor([1.0])),
            ShapeError,
            said(r"vjp\(square\): the cotangents do not fit", r"at outputs \(1,\) f64", r"\(2,\) f64", "give each the"),
        ),
        (
            lambda: vjp(square, X)[1](X.float()),
            ShapeError,
            said(r"vjp\(square\): the cotangents do not fit", r"at outputs \(2,\) f32", r"\(2,\) f64"),
        ),
        (
            lambda: vjp(lambda x: (x, x), X)[1]([X, X]),
            ArgumentError,
            said("the cotangents do not have the structure", "at outputs list of 0, 1", "tuple of 0, 1", "give"),
        ),
        (
            lambda: vjp(lambda x: {"a": x}, X)[1]({"b": X}),
            ArgumentError,
            said("the cotangents do not have the structure", "at outputs dict of b", "dict of a"),
        ),
        (
            lambda: vjp(square, X)[1](3.0),
            ArgumentError,
            said("the cotangents are tensors", "at outputs float", "a tensor, or None", "wrap numbers"),
        ),
        (
            lambda: vjp(lambda x: (x, x.argmax(0)), X)[1]((X, tensor([1]))),
            AutodiffError,
            said("cotangents for outputs that have no derivative", r"outputs\[1\] \(1,\) i64", "None", "give None"),
        ),
        (
            lambda: vjp(square, X, has_aux=True),
            AutodiffError,
            said("has_aux=True, but the function did not return a pair", "Tensor", r"\(outputs, more\)", "return"),
        ),
        (
            lambda: jvp(square, (X,), (X, X)),
            ArgumentError,
            said(r"jvp\(square\): as many tangents as arguments", "2 tangents for 1 arguments", "a tuple", "write"),
        ),
        (
            lambda: jvp(square, (X,), (tensor([[1.0]]),)),
            ShapeError,
            said(r"jvp\(square\): the tangents do not fit", r"at argument 0 \(1, 1\) f64", r"\(2,\) f64"),
        ),
        (
            lambda: jvp(lambda m: m.inner.weight.val(), (Mlp.make(TAPE),), (X,)),
            ArgumentError,
            said("the tangents of a module are a GradientsParams", "at argument 0 a tensor", "GradientsParams"),
        ),
        (
            lambda: hvp(mean_square, (Mlp.make(TAPE),), (GradientsParams({Mlp.make(TAPE).inner.weight.id: X}),)),
            ArgumentError,
            said("the tangents of a module are a Grad", "at argument 0 ids [0-9a-f]{16}", "", "take what grad"),
        ),
        (
            lambda: hvp(square, (X,), (X,)),
            AutodiffError,
            said(r"hvp\(square\): the function did not return one number", r"\(2,\) f64", "a float tensor", "reduce"),
        ),
        (
            lambda: grad(lambda g: _PULLBACK(g)[0].sum())(X),
            AutodiffError,
            said("a direction hangs on a tape of its own", r"\(2,\) f64 cpu on Autodiff", "", r"pass x.detach\(\)"),
        ),
        (lambda: vjp(square), ArgumentError, said(r"vjp\(square\): no argument holds a tensor", "numbers", "", "wrap")),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
