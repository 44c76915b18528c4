"""vmap against torch.func.vmap and against a loop over the samples, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ComplexTensor, Device, Distribution, StepScope, Tensor, compile, grad, nn, vmap
from burn_torch.core.errors import ArgumentError, ShapeError, TraceError
from burn_torch.module import Param
from burn_torch.module.tree import rebuild
from tests.transform.functions import CPU, TAPE, Mlp, array, close, drawn, normal, said, tensor

DEVICES = [CPU, CPU.fused(), TAPE, Device.ndarray()]


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


# -- values ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
@pytest.mark.parametrize(("in_dims", "out_dims"), [((0, 1), 0), ((1, None), 1), ((-1, 0), -1), ((None, -2), 2)])
def test_axes_of_samples_are_those_of_torch(
    device: Device, in_dims: tuple[int | None, ...], out_dims: int, seed: np.random.Generator
) -> None:
    x, y = normal(seed, 3, 3, 3), normal(seed, 3, 3, 3)
    if None in in_dims:
        x, y = (v[0] if dim is None else v for v, dim in zip((x, y), in_dims, strict=True))

    def fn(x: Any, y: Any) -> Any:
        return (x * y.exp()).sin() @ y

    expected = torch.func.vmap(fn, in_dims, out_dims)(torch.from_numpy(x), torch.from_numpy(y))
    close(vmap(fn, in_dims, out_dims)(tensor(x, device), tensor(y, device)), expected.numpy())


def test_containers_take_containers_of_dims(seed: np.random.Generator) -> None:
    x, y, shared = normal(seed, 4, 3), normal(seed, 2, 4), normal(seed, 3)

    def fn(held: dict[str, Any], pair: tuple[Any, Any]) -> dict[str, Any]:
        return {"sum": held["x"] + pair[1], "pair": (pair[0].exp(), pair[1])}

    dims = ({"x": 0, "unused": None}, (1, None))
    out = {"sum": 1, "pair": (0, None)}
    ours = vmap(fn, dims, out)({"x": tensor(x), "unused": 2}, (tensor(y), tensor(shared)))
    close(ours["sum"], (x + shared).T)
    close(ours["pair"][0], np.exp(y.T))
    close(ours["pair"][1], shared)


def test_what_samples_share_is_repeated_in_results(seed: np.random.Generator) -> None:
    x, shared = normal(seed, 3, 2), normal(seed, 2)
    close(vmap(lambda x, y: y.exp(), (0, None))(tensor(x), tensor(shared)), np.exp(np.stack([shared] * 3)))
    assert vmap(lambda x: (x, "text", None))(tensor(x))[1:] == ("text", None)


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
def test_it_nests_over_tensors_of_one_device(device: Device, seed: np.random.Generator) -> None:
    x, y = normal(seed, 3, 4), normal(seed, 3, 4)
    ours, theirs = tensor(x, device), tensor(y, device)
    close(array(vmap(lambda a: vmap(lambda b: dot(a, b))(theirs))(ours))[..., 0], x @ y.T)
    close(array(vmap(vmap(dot, (None, 0)), (0, None))(ours, theirs))[..., 0], x @ y.T)

    class Hidden:  # what the inner function reads is neither argument nor visible by name
        value: Tensor

    hidden = Hidden()

    def outer(a: Tensor) -> Tensor:
        hidden.value = a
        return vmap(inner)(theirs)

    def inner(b: Tensor) -> Tensor:
        return dot(hidden.value, b)

    close(array(vmap(outer)(ours))[..., 0], x @ y.T)


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
def test_gradients_inside_and_around(device: Device, seed: np.random.Generator) -> None:
    x, w = normal(seed, 5, 3), normal(seed, 3)

    def fn(x: Any, w: Any) -> Any:
        return ((x * w).sin() * x).sum()

    tx, tw = torch.from_numpy(x), torch.from_numpy(w)
    each = torch.func.vmap(torch.func.grad(fn, (0, 1)), (0, None))(tx, tw)
    ours = vmap(grad(fn, (0, 1)), (0, None))(tensor(x, device), tensor(w, device))
    around = grad(lambda x, w: vmap(fn, (0, None))(x, w).sum(), (0, 1))(tensor(x, device), tensor(w, device))
    close(ours[0], each[0].numpy())
    close(ours[1], each[1].numpy())
    close(around[0], each[0].numpy())
    close(around[1], each[1].numpy().sum(0))


def test_backward_goes_through(seed: np.random.Generator) -> None:
    x, w = normal(seed, 5, 3), normal(seed, 3)
    leaf = tensor(w, TAPE).require_grad()
    gradients = vmap(lambda x: (x * leaf).sin())(tensor(x, TAPE)).sum().backward()
    close(leaf.grad(gradients), (np.cos(x * w) * x).sum(0))


def test_inside_compile_and_around_compiled_functions(seed: np.random.Generator) -> None:
    x, w = normal(seed, 5, 3), normal(seed, 3)
    expected = np.cos(x * w) * x
    gradient = vmap(grad(lambda w, x: (x * w).sin().sum()), (None, 0))
    close(compile(gradient)(tensor(w), tensor(x)), expected)
    close(vmap(compile(lambda x: (x * tensor(w)).sin()))(tensor(x)), np.sin(x * w))


# -- modules -----------------------------------------------------------------------------------------------------
def stacked(models: list[Any]) -> Any:
    """One module whose parameters are those of all, stacked."""
    values = {p.id: [dict(m.named_params())[path].val() for m in models] for path, p in models[0].named_params()}
    return rebuild(
        models[0], lambda leaf: Param(Tensor.stack(values[leaf.id], 0), leaf.id) if isinstance(leaf, Param) else leaf
    )


def test_an_ensemble_is_a_module_with_mapped_parameters(seed: np.random.Generator) -> None:
    first = Mlp.make(CPU)
    models = [drawn(first, seed) for _ in range(3)]
    x = tensor(normal(seed, 4, 3))
    ours = vmap(lambda model, x: model.forward(x), (0, None))(stacked(models), x)
    close(ours, np.stack([array(model.forward(x)) for model in models]))

    def loss(model: Any, x: Tensor) -> Tensor:
        return model.forward(x).square().mean()

    each = vmap(grad(loss), (0, None))(stacked(models), x)
    for path, param in first.named_params():
        expected = [array(grad(loss)(m, x).get(dict(m.named_params())[path].id)) for m in models]
        close(each.get(param.id), np.stack(expected))


def test_batch_normalisation_of_each_sample_is_its_own(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 3, 4, 2, 5))
    gamma, beta = tensor(np.ones(2)), tensor(np.zeros(2))
    from burn_torch import ops

    def fn(x: Tensor) -> Tensor:
        return ops.batch_norm(x, gamma, beta, 1e-5)[0]

    close(vmap(fn)(x), np.stack([array(fn(x[i])) for i in range(3)]))


# -- random numbers -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", [CPU, CPU.fused(), Device.ndarray()], ids=["cpu", "fused", "numpy"])
def test_random_operations_do_what_randomness_says(device: Device) -> None:
    x = Tensor.zeros((4, 3), device)
    drop = nn.Dropout(0.5)

    def draws(x: Tensor) -> Tensor:
        return x + Tensor.random((3,), Distribution.Uniform(0.0, 1.0), device)

    def masks(x: Tensor) -> Tensor:
        return drop.forward(x + 1.0)

    for fn in (draws, lambda x: x.random_like(Distribution.Normal(0.0, 1.0))):
        different, same = array(vmap(fn, randomness="different")(x)), array(vmap(fn, randomness="same")(x))
        assert len(np.unique(different, axis=0)) == 4
        assert len(np.unique(same, axis=0)) == 1
        with pytest.raises(ArgumentError, match=said("vmap was not told how samples draw", mend=r"vmap\(fn, random")):
            vmap(fn)(x)
    with StepScope(3):
        train = Tensor.zeros((4, 64), device.autodiff())
        assert len(np.unique(array(vmap(masks, randomness="different")(train)), axis=0)) == 4
    same = array(vmap(masks, randomness="same")(train))
    assert len(np.unique(same, axis=0)) == 1
    assert set(np.unique(same)) == {0.0, 2.0}


def test_a_sample_is_shown_by_its_spec() -> None:
    shown: list[str] = []

    def show(x: Tensor) -> Tensor:
        shown.extend((repr(x), repr(ComplexTensor(x, x))))
        return x

    vmap(show)(tensor(np.ones((2, 3))))
    vmap(lambda x: grad(lambda x: show(x).sum())(x))(tensor(np.ones((2, 3))))
    assert all("(3) f64 cpu" in text or "(3,) f64 cpu" in text for text in shown)
    assert len(shown) == 4


def test_one_mask_serves_values_and_gradients_of_all_samples() -> None:
    train = Tensor.ones((4, 64), TAPE)
    drop = nn.Dropout(0.5)

    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        y: list[Tensor] = []

        def fn(x: Tensor) -> Tensor:
            y.append(drop.forward(x))
            return y[0].sum()

        return grad(fn)(x), y[0]

    for randomness in ("same", "different"):
        slope = vmap(lambda x: pair(x)[0], randomness=randomness)(train)
        assert set(np.unique(array(slope))) == {0.0, 2.0}


# -- errors ---------------------------------------------------------------------------------------------------------
def test_errors_say_what_does_not_fit(seed: np.random.Generator) -> None:
    x, y = tensor(normal(seed, 3, 2)), tensor(normal(seed, 4, 2))
    with pytest.raises(
        ShapeError,
        match=said("vmap.dot.: the arguments have no common", r"argument 0 \(3, 2\) f64 cpu, axis 0; argument 1"),
    ):
        vmap(dot)(x, y)
    with pytest.raises(ShapeError, match=said("no common number", "argument 0 .*axis 2", mend="name the axes")):
        vmap(lambda x: x, 2)(x)
    with pytest.raises(ShapeError, match="no tensor with an axis"):
        vmap(dot, (None, None))(x, x)
    with pytest.raises(ShapeError, match="at least 1"):
        vmap(lambda x: x)(Tensor.zeros((0, 2), CPU))
    with pytest.raises(ArgumentError, match=said("in_dims does not fit the arguments", r"in_dims \(0,\) for 2 pos")):
        vmap(dot, (0,))(x, x)
    with pytest.raises(ArgumentError, match=said("in_dims names an axis of an argument", "in_dims 0 for argument 1")):
        vmap(lambda x, n: x * n, (0, 0))(x, 2.0)
    with pytest.raises(ArgumentError, match=said("in_dims does not have the structure", r"at argument 0 \{'x': 0\}")):
        vmap(lambda x: x, ({"x": 0},))((x, x))
    with pytest.raises(ArgumentError, match=said("out_dims does not have the structure", r"at the result \(0, 0\)")):
        vmap(lambda x: x, 0, (0, 0))(x)
    with pytest.raises(ArgumentError, match=said("out_dims does not fit", "out_dims None", mend="leave out_dims out")):
        vmap(lambda x: x, 0, None)(x)
    with pytest.raises(ArgumentError, match=said("out_dims does not fit", "out_dims 2")):
        vmap(lambda x: x, 0, 2)(x)
    with pytest.raises(ArgumentError, match="randomness: 'error' or 'different' or 'same'"):
        vmap(dot, randomness="some")  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="a value was read"):
        vmap(lambda x: x * x.sum().item())(x)
    with pytest.raises(TraceError, match="its shape would differ"):
        vmap(lambda x: x.nonzero()[0])(x)


def test_no_row_of_these_is_looped_over(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 3, 4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vmap(lambda x: (x @ x).sort(0).cumsum(1).softmax(0) if hasattr(x, "softmax") else (x @ x).sort(0))(x)


# -- chunks ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fused", "tape", "numpy"])
def test_chunks_give_what_all_samples_together_give(device: Device, seed: np.random.Generator) -> None:
    def fn(x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"dot": dot(x, y), "rest": (y.sum(), [x * y])}

    in_dims, out_dims = (1, None), {"dot": 0, "rest": (None, [-1])}
    x, y = tensor(normal(seed, 3, 7), device), tensor(normal(seed, 3), device)
    whole = vmap(fn, in_dims, out_dims)(x, y)
    for chunk_size in (1, 3, 6, 7, 99):
        parts = vmap(fn, in_dims, out_dims, chunk_size=chunk_size)(x, y)
        assert parts["rest"][1][0].shape == (3, 7)
        for a, b in ((parts["dot"], whole["dot"]), (parts["rest"][0], whole["rest"][0])):
            close(a, array(b))
        close(parts["rest"][1][0], array(whole["rest"][1][0]))


def test_chunks_bound_how_many_samples_are_computed_at_once(seed: np.random.Generator) -> None:
    x = tensor(normal(seed, 5, 3), TAPE).require_grad()
    counts = []

    def fn(x: Tensor) -> Tensor:
        stack: Any = x.backend
        counts.append(stack.inner.spec(x.primitive.primitive).shape[0])
        return x.exp().sum()

    slope = x.grad(vmap(fn, chunk_size=2)(x).sum().backward())
    close(slope, np.exp(array(x)))
    compiled = compile(lambda x: vmap(lambda v: v.exp().sum(), chunk_size=2)(x))
    close(compiled(x.inner()), np.exp(array(x)).sum(1, keepdims=True))
    assert counts == [2, 2, 1]


def test_chunks_draw_what_randomness_says() -> None:
    x = tensor(np.zeros((6, 4)), CPU)

    def fn(x: Tensor) -> Tensor:
        return x + x.random_like(Distribution.Default)

    with StepScope(3):
        same = array(vmap(fn, randomness="same", chunk_size=4)(x))
        different = array(vmap(fn, randomness="different", chunk_size=4)(x))
    assert len(np.unique(same, axis=0)) == 1
    assert len(np.unique(different, axis=0)) == 6


def test_a_chunk_has_a_sample() -> None:
    with pytest.raises(ArgumentError, match=said("chunk_size is no number", "chunk_size 0", "1 or more", "leave")):
        vmap(dot, chunk_size=0)
