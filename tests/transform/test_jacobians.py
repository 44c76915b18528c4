"""jacfwd, jacrev, hessian, linearize and forward mode against torch.func in float64, alone and in all compositions."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import func

from burn_torch import (
    ComplexTensor,
    Device,
    Distribution,
    Tensor,
    compile,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    nn,
    vjp,
    vmap,
)
from burn_torch.core.errors import ArgumentError, AutodiffError, DTypeError
from burn_torch.tensor import ConstantGradientsWarning
from burn_torch.tensor.activation import softmax
from tests.transform.functions import CPU, TAPE, Mlp, array, close, drawn, mean_square, normal, said, tensor

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

DEVICES = [CPU, CPU.fused(), TAPE, Device.ndarray()]

Fn = Callable[[Any], Any]

# Steps from three numbers to three, each with torch's twin; all have derivatives of every order where they are drawn.
STEPS: list[tuple[Fn, Fn]] = [
    (lambda x: x.sin(), lambda x: x.sin()),
    (lambda x: x * x.tanh(), lambda x: x * x.tanh()),
    (lambda x: x.exp() / (x * x + 1.0), lambda x: x.exp() / (x * x + 1.0)),
    (lambda x: softmax(x, 0) + x, lambda x: x.softmax(0) + x),
    (lambda x: x.cumsum(0) * 0.5, lambda x: x.cumsum(0) * 0.5),
    (lambda x: x.flip([0]) * x, lambda x: x.flip([0]) * x),
    (
        lambda x: x.reshape((3, 1)).matmul(x.reshape((1, 3))).sum_dim(0).reshape((3,)) * 0.3,
        lambda x: (x.reshape(3, 1) @ x.reshape(1, 3)).sum(0) * 0.3,
    ),
    (
        lambda x: Tensor.cat([x.narrow(0, 1, 2), x.narrow(0, 0, 1).square()], 0),
        lambda x: torch.cat([x[1:3], x[:1].square()], 0),
    ),
    (
        lambda x: x.mask_where(x.greater(0.0), x.cos()),
        lambda x: torch.where(x > 0.0, x.cos(), x),
    ),
]


def program(seed: np.random.Generator) -> tuple[Fn, Fn]:
    chosen = [STEPS[i] for i in seed.integers(0, len(STEPS), 3)]

    def ours(x: Any) -> Any:
        for step, _ in chosen:
            x = step(x)
        return x

    def theirs(x: Any) -> Any:
        for _, step in chosen:
            x = step(x)
        return x

    return ours, theirs


OURS = {"f": jacfwd, "r": jacrev, "v": vmap}
THEIRS = {"f": func.jacfwd, "r": func.jacrev, "v": func.vmap}


def compare(names: Sequence[str], seed: np.random.Generator, device: Device = CPU) -> None:
    ours, theirs = program(seed)
    for name in names:
        ours, theirs = OURS[name](ours), THEIRS[name](theirs)
    x = 0.7 * normal(seed, *(2,) * list(names).count("v"), 3)
    close(ours(tensor(x, device)), theirs(torch.from_numpy(x)).numpy())


@pytest.mark.parametrize("names", list(itertools.product("frv", repeat=2)), ids="".join)
def test_compositions_of_two(names: Sequence[str], seed: np.random.Generator) -> None:
    compare(names, seed)


@pytest.mark.parametrize("names", ["frv", "rfv", "vfr", "fvr"])
def test_some_compositions_of_three(names: str, seed: np.random.Generator) -> None:
    compare(names, seed)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
@pytest.mark.parametrize("names", list(itertools.product("frv", repeat=3)), ids="".join)
def test_all_compositions_of_three(names: Sequence[str], device: Device, seed: np.random.Generator) -> None:
    for _ in range(3):
        compare(names, seed, device)


# -- structures --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("ours", [jacfwd, jacrev])
def test_structures_of_outputs_and_arguments(
    ours: Callable[..., Any], chunk_size: int | None, device: Device, seed: np.random.Generator
) -> None:
    x, y = normal(seed, 2, 3), normal(seed, 3)

    def fn(x: Any, y: Any) -> Any:
        return {"a": x @ y.reshape(3, 1), "b": (y * y, x.exp())}

    expected = func.jacrev(fn, (0, 1))(torch.from_numpy(x), torch.from_numpy(y))
    actual = ours(fn, (0, 1), chunk_size=chunk_size)(tensor(x, device), tensor(y, device))
    for mine, twin in ((actual["a"], expected["a"]), *zip(actual["b"], expected["b"], strict=True)):
        for i in range(2):
            close(mine[i], twin[i].numpy())
    result, more = ours(lambda x: (x.sin(), x.cos()), has_aux=True)(tensor(y, device))
    close(result, np.diag(np.cos(y)))
    close(more, np.cos(y))
    assert more.device is device
    assert more.add(tensor(y, device)).device is device


def test_results_of_no_floats_and_empty_tensors() -> None:
    x = tensor([1.0, 2.0])
    for transform in (jacfwd, jacrev):
        both = transform(lambda x: (x * x, x.argmax(0), 3))(x)
        close(both[0], np.diag([2.0, 4.0]))
        assert both[1:] == (None, None)
        assert transform(lambda x: x * 2.0)(Tensor.zeros((0,), CPU)).shape == (0, 0)
        close(transform(lambda x: x.round() + tensor([1.0, 1.0]))(x), np.zeros((2, 2)))


def test_jacobians_by_modules(seed: np.random.Generator) -> None:
    for device in (CPU, TAPE):
        model = drawn(Mlp.make(device), seed)
        x = tensor(normal(seed, 4, 3), device)
        rows, columns = (t(lambda m, x=x: m.forward(x))(model) for t in (jacrev, jacfwd))
        for _, param in model.named_params():
            assert rows.get(param.id).shape == (4, 2, *param.val().shape)
            close(rows.get(param.id), columns.get(param.id))
        weight = model.outer.weight.id
        hidden = np.tanh(array(model.inner.forward(x)))
        close(array(rows.get(weight))[:, 1, :, 1], hidden)
        assert not rows.get(weight).device.is_autodiff() or device is CPU


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
def test_hessians(device: Device, seed: np.random.Generator) -> None:
    x, y = normal(seed, 3), normal(seed, 3)

    def fn(x: Any, y: Any) -> Any:
        return ((x * y).sin() * x).sum()

    expected = func.hessian(fn, (0, 1))(torch.from_numpy(x), torch.from_numpy(y))
    actual = hessian(fn, (0, 1))(tensor(x, device), tensor(y, device))
    for i, j in itertools.product(range(2), repeat=2):
        close(actual[i][j], expected[i][j].numpy())
    close(compile(hessian(fn))(tensor(x, device), tensor(y, device)), expected[0][0].numpy())


def test_random_layers_have_one_mask_for_all_rows() -> None:
    x = Tensor.ones((8,), TAPE)
    drop = nn.Dropout(0.5)
    for transform in (jacfwd, jacrev):
        actual = array(transform(lambda x: drop.forward(x))(x))
        assert set(np.unique(actual)) == {0.0, 2.0}
        assert np.count_nonzero(actual - np.diag(np.diag(actual))) == 0


# -- forward mode ----------------------------------------------------------------------------------------------------
def test_jvp_keeps_nothing() -> None:
    x = Tensor.ones((250_000,), Device.ndarray())

    def deep(x: Tensor) -> Tensor:
        for _ in range(40):
            x = x.sin()
        return x

    def peak(call: Callable[[], object]) -> int:
        call()
        tracemalloc.start()
        call()
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    forward = peak(lambda: jvp(deep, (x,), (x,)))
    backward = peak(lambda: vjp(deep, x)[1](x))
    assert forward < 12 * 1_000_000  # a few values and tangents of 1 MB
    assert backward > 38 * 1_000_000  # one for each of forty steps


def test_linearize_is_called_again_and_again(seed: np.random.Generator) -> None:
    x, w = normal(seed, 3), normal(seed, 3, 2)
    calls = []

    def fn(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        calls.append(1)
        return {"y": x.sin().reshape((1, 3)).matmul(w), "n": x.argmax(0)}

    y, pushforward = linearize(fn, tensor(x), tensor(w))
    for _ in range(3):
        v, u = normal(seed, 3), normal(seed, 3, 2)
        close(pushforward(tensor(v), tensor(u))["y"], (np.cos(x) * v)[None] @ w + np.sin(x)[None] @ u)
        assert pushforward(tensor(v), tensor(u))["n"] is None
        close(pushforward(tensor(v), None)["y"], (np.cos(x) * v)[None] @ w)
    close(y["y"], np.sin(x)[None] @ w)
    assert len(calls) == 1
    with pytest.raises(ArgumentError, match="as many tangents as arguments"):
        pushforward(tensor(v))


def test_forward_over_reverse_through_a_model(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)
    x, target = tensor(normal(seed, 4, 3), TAPE), tensor(normal(seed, 4, 2), TAPE)

    def slope(model: Any) -> Any:
        return grad(mean_square)(model, x, target)

    direction = slope(model)
    _, along = jvp(slope, (model,), (direction,))
    (expected,) = hvp(lambda model: mean_square(model, x, target), (model,), (direction,))
    for _, param in model.named_params():
        close(along.get(param.id), expected.get(param.id))


def test_backward_inside_of_jvp_is_refused() -> None:
    x = tensor([1.0])
    refused = pytest.raises(AutodiffError, match=said("backward inside of a function that jvp", mend="write grad"))
    with pytest.warns(ConstantGradientsWarning), refused:
        jvp(lambda x: (x * x).backward(), (x,), (x,))


def test_errors_say_what_does_not_fit() -> None:
    x = tensor([1.0, 2.0])
    for name, transform in (("jacfwd", jacfwd), ("jacrev", jacrev)):
        with pytest.raises(ArgumentError, match=said(rf"{name}.<lambda>.: argnums does not name")):
            transform(lambda x: x, 3)(x)
        with pytest.raises(DTypeError, match="only floats have derivatives"):
            transform(lambda x: x)(x.int())
        with pytest.raises(AutodiffError, match=said("returned no float tensor", "tuple")):
            transform(lambda x: ())(x)
        with pytest.raises(ArgumentError, match=said("a chunk has one row or more", "chunk_size 0")):
            transform(lambda x: x, chunk_size=0)
        with pytest.raises(AutodiffError, match=said("made of several tensors", "a ComplexTensor at outputs.0.")):
            transform(lambda x: (ComplexTensor(x, x), x))(x)
        with pytest.raises(AutodiffError, match="did not return a pair"):
            transform(lambda x: x, has_aux=True)(x)
    with pytest.raises(AutodiffError, match=said("hessian.<lambda>.: the function did not return one number")):
        hessian(lambda x: x)(x)


def test_draws_of_the_function_are_not_refused() -> None:
    x = tensor([1.0, 2.0])
    for transform in (jacfwd, jacrev):
        actual = array(transform(lambda x: x * x.random_like(Distribution.Uniform(1.0, 2.0)))(x))
        assert actual[0, 1] == actual[1, 0] == 0.0
        assert (np.diag(actual) >= 1.0).all()
