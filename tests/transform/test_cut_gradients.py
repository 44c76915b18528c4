"""Gradients that are constants to an outer backward: what torch gives with create_graph=True, or a notice."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, grad, hvp, jvp, nn, optim, per_sample_grad, value_and_grad, vjp
from burn_torch.module import GradientsParams, Module, Param, UntrainedWarning
from burn_torch.tensor import ConstantGradientsWarning
from burn_torch.tensor.activation import softmax
from burn_torch.tensor.functional import linear
from tests.transform.functions import CPU, TAPE, array, normal, tensor

FUSED = Device.cpu().fused().autodiff()
TOLD = "gradients in this loss are constants"


class Two(Module):
    a: Param
    b: Param

    def forward(self, x: Tensor) -> Tensor:
        return x.matmul(self.a.val()).tanh().matmul(self.b.val())


def mean_square(model: Any, x: Tensor, y: Tensor) -> Tensor:
    loss: Tensor = (model.forward(x) - y).square().mean()
    return loss


def by_id(model: Two, grads: Any) -> tuple[Any, Any]:
    return grads.get(model.a.id), grads.get(model.b.id)


def by_backward(m: Two, x: Tensor, y: Tensor) -> Any:
    return (*by_id(m, GradientsParams.from_grads(mean_square(m, x, y).backward(), m)), None)


def by_tensors_of_backward(m: Two, x: Tensor, y: Tensor) -> Any:
    gradients = mean_square(m, x, y).backward()
    return m.a.val().grad(gradients), m.b.val().grad_remove(gradients), None


def by_value_and_grad(m: Two, x: Tensor, y: Tensor) -> Any:
    value, grads = value_and_grad(mean_square)(m, x, y)
    return (*by_id(m, grads), value)


def by_aux(m: Two, x: Tensor, y: Tensor) -> Any:
    (_, aux), grads = value_and_grad(lambda m: (mean_square(m, x, y), [mean_square(m, x, y)]), has_aux=True)(m)
    return (*by_id(m, grads), aux[0])


def by_vjp(m: Two, x: Tensor, y: Tensor) -> Any:
    value, pullback = vjp(lambda m: mean_square(m, x, y), m)
    return (*by_id(m, pullback(value.detach() * 0.0 + 1.0)[0]), value)


def by_samples(m: Two, x: Tensor, y: Tensor) -> Any:
    a, b = by_id(m, per_sample_grad(mean_square)(m, x, y))
    return a.mean_dim(0).reshape((3, 4)), b.mean_dim(0).reshape((4, 2)), None


def by_compiled_backward(m: Two, x: Tensor, y: Tensor) -> Any:
    def both(m: Two, x: Tensor, y: Tensor) -> Any:
        gradients = mean_square(m, x, y).backward()
        return {"a": [m.a.val().grad(gradients)], "b": m.b.val().grad(gradients)}

    grads = compile(both)(m, x, y)
    return grads["a"][0], grads["b"], None


def by_sums(m: Two, x: Tensor, y: Tensor) -> Any:
    sums = optim.GradientsAccumulator()
    for _ in range(2):
        sums.accumulate(m, GradientsParams.from_grads((mean_square(m, x, y) * 0.5).backward(), m))
    return (*by_id(m, sums.grads()), None)


def by_tensors(m: Two, x: Tensor, y: Tensor) -> Any:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        return (x.matmul(a).tanh().matmul(b) - y).square().mean()

    value, (a, b) = value_and_grad(loss, argnums=(0, 1))(m.a.val(), m.b.val())
    return a, b, value


def by_jvp(m: Two, x: Tensor, y: Tensor) -> Any:
    grads = grad(mean_square)(m, x, y)
    ones = GradientsParams({ident: g.detach() * 0.0 + 1.0 for ident, g in grads.items()})
    _, change = jvp(lambda m: mean_square(m, x, y), (m,), (ones,))
    return (*by_id(m, grads), change)


def by_hvp(m: Two, x: Tensor, y: Tensor) -> Any:
    ones = GradientsParams({p.id: p.val().inner() * 0.0 + 1.0 for p in (m.a, m.b)})
    return (*by_id(m, hvp(lambda m: mean_square(m, x, y), (m,), (ones,))[0]), None)


ROUTES: dict[str, Callable[[Two, Tensor, Tensor], Any]] = {
    "backward": by_backward,
    "tensors of backward": by_tensors_of_backward,
    "grad": lambda m, x, y: (*by_id(m, grad(mean_square)(m, x, y)), None),
    "parameters": lambda m, x, y: (*grad(lambda p: mean_square(Two(*p), x, y))((m.a, m.b)), None),
    "value_and_grad": by_value_and_grad,
    "aux": by_aux,
    "vjp": by_vjp,
    "per_sample_grad": by_samples,
    "compiled": lambda m, x, y: (*by_id(m, compile(grad(mean_square))(m, x, y)), None),
    "compiled backward": by_compiled_backward,
    "fused": lambda m, x, y: (*by_id(m, compile(grad(mean_square), fuse=True)(m, x, y)), None),
    "sums": by_sums,
    "another device": lambda m, x, y: (*by_id(m, grad(mean_square)(m, x, y).to_device(m.a.device)), None),
    "tensors": by_tensors,
    "jvp": by_jvp,
    "hvp": by_hvp,
}

Step = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
STEPS: list[Step] = [
    (lambda g, c: g.exp(), lambda g, c: g.exp()),
    (lambda g, c: c * g, lambda g, c: g * c),
    (lambda g, c: 1.0 - g, lambda g, c: 1.0 - g),
    (lambda g, c: g * g, lambda g, c: g * g),
    (lambda g, c: c.mask_where(c > 0.0, g), lambda g, c: torch.where(c > 0.0, g, c)),
    (lambda g, c: Tensor.cat([g[1:3], c[0:1]], 0), lambda g, c: torch.cat([g[1:3], c[0:1]])),
    (lambda g, c: g.matmul(c.transpose()).matmul(c), lambda g, c: g @ c.T @ c),
    (lambda g, c: g / (g.square().sum().sqrt().reshape((1, 1)) + 1.0), lambda g, c: g / (g.square().sum().sqrt() + 1)),
    (lambda g, c: softmax(g, 1), lambda g, c: torch.softmax(g, 1)),
    (lambda g, c: g[c.abs() > -1.0].reshape((3, 4)), lambda g, c: g),
    (lambda g, c: copy.deepcopy(g), lambda g, c: g),
    (lambda g, c: compile(lambda g, c: g.sin() * c)(g, c), lambda g, c: g.sin() * c),
]


def frozen(m: Two, b: Tensor) -> Two:
    return Two(m.a, Param(b, require_grad=False))


Outer = tuple[Callable[..., Any], Callable[..., Any]]
OUTERS: dict[str, Outer] = {
    "sum": (
        lambda a, b, e, m, x, f: f(m) + a.square().sum() + b.abs().sum() + e.sum(),
        lambda a, b, e, A, B, x, f: f(A, B) + a.square().sum() + b.abs().sum() + e,
    ),
    "product": (lambda a, b, e, m, x, f: a.abs().sum() * f(m), lambda a, b, e, A, B, x, f: a.abs().sum() * f(A, B)),
    "with weights": (lambda a, b, e, m, x, f: (m.a.val() * a).sum(), lambda a, b, e, A, B, x, f: (A * a).sum()),
    "in a layer": (
        lambda a, b, e, m, x, f: (linear(x, a) * linear(x, m.a.val())).mean(),
        lambda a, b, e, A, B, x, f: ((x @ a) * (x @ A)).mean(),
    ),
    "as a weight": (
        lambda a, b, e, m, x, f: f(frozen(m, b * 1.0 if b.is_require_grad() else b)) if e is None else f(m) * e.sum(),
        lambda a, b, e, A, B, x, f: f(A, b) if e is None else f(A, B) * e,
    ),
    "to a compiled call": (
        lambda a, b, e, m, x, f: f(m) + compile(lambda m, g: (g * m.a.val()).sum())(m, a),
        lambda a, b, e, A, B, x, f: f(A, B) + (a * A).sum(),
    ),
    "under a gradient": (
        lambda a, b, e, m, x, f: grad(lambda z: (z * a).sin().sum())(m.a.val()).square().sum(),
        lambda a, b, e, A, B, x, f: ((A * a).cos() * a).square().sum(),
    ),
    "in a value": (
        lambda a, b, e, m, x, f: value_and_grad(lambda z: z.matmul(a).square().sum())(x)[0] * f(m),
        lambda a, b, e, A, B, x, f: (x @ a).square().sum() * f(A, B),
    ),
    "as a cotangent": (
        lambda a, b, e, m, x, f: vjp(lambda z: z.sin(), m.a.val())[1](a)[0].sum() + f(m),
        lambda a, b, e, A, B, x, f: (A.cos() * a).sum() + f(A, B),
    ),
    "as a tangent": (
        lambda a, b, e, m, x, f: jvp(lambda z: z.sin(), (m.a.val(),), (a,))[1].sum() + f(m),
        lambda a, b, e, A, B, x, f: (A.cos() * a).sum() + f(A, B),
    ),
    "differentiated": (
        lambda a, b, e, m, x, f: grad(lambda g: (g * g * g).sum())(a).sum() + f(m),
        lambda a, b, e, A, B, x, f: (3.0 * a * a).sum() + f(A, B),
    ),
}


def is_right_or_told(route: str, outer: str, device: Device, rng: np.random.Generator) -> tuple[bool, bool]:
    """Returns whether the gradients of a penalised loss are those of torch, and whether the notice came."""
    inner = device.inner()
    data = {name: normal(rng, *shape) for name, shape in {"A": (3, 4), "B": (4, 2), "x": (5, 3), "y": (5, 2)}.items()}
    where = [device, inner][rng.integers(2)]
    x, y, c = (tensor(v, where) for v in (data["x"], data["y"], data["A"][::-1] + 0.1))
    m = Two(Param(tensor(data["A"], device)), Param(tensor(data["B"], device)))
    A, B = (torch.from_numpy(data[name].copy()).requires_grad_() for name in "AB")
    s, t, k = (torch.from_numpy(np.ascontiguousarray(v)) for v in (data["x"], data["y"], data["A"][::-1] + 0.1))

    def theirs(A: Any, B: Any) -> Any:
        return ((s @ A).tanh() @ B - t).square().mean()

    steps = [STEPS[i] for i in rng.integers(len(STEPS), size=rng.integers(3))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        a, b, extra = ROUTES[route](m, x, y)
        for step, _ in steps:
            a = step(a, c)
        e = extra if extra is not None or outer != "sum" else Tensor.zeros((1,), inner).cast("f64")
        gradients = OUTERS[outer][0](a, b, e, m, x, lambda m: mean_square(m, x, y)).backward()
    assert all(w.category is ConstantGradientsWarning and TOLD in str(w.message) for w in caught), caught

    loss = theirs(A, B)
    ga, gb = torch.autograd.grad(loss, [A, B], create_graph=True)
    value = loss if extra is not None else torch.zeros(())
    if route in ("hvp", "jvp"):
        along = ga.sum() + gb.sum()
        value = along if route == "jvp" else value
        ga, gb = (ga, gb) if route == "jvp" else torch.autograd.grad(along, [A, B], create_graph=True)
    for _, step in steps:
        ga = step(ga, k)
    total = OUTERS[outer][1](ga, gb, value if extra is not None or outer == "sum" else None, A, B, s, theirs)
    expected = torch.autograd.grad(total, [A, B], allow_unused=True)
    right = True
    for param, g in zip((m.a, m.b), expected, strict=True):
        grad = param.val().grad(gradients)
        zeros = np.zeros(param.shape)
        ours, wanted = zeros if grad is None else array(grad), zeros if g is None else g.numpy()
        right &= bool(np.allclose(ours, wanted, rtol=1e-8, atol=1e-10))
    return right, bool(caught)


def check(route: str, outer: str, rng: np.random.Generator) -> None:
    if (route, outer) == ("tensors", "as a weight"):
        return  # a frozen Param of a connected tensor is a constant: that is what freezing is
    right, warned = is_right_or_told(route, outer, [TAPE, FUSED][rng.integers(2)], rng)
    assert right or (warned and route != "tensors"), "gradients by tensors stay connected"


@pytest.mark.parametrize("route", ROUTES)
def test_a_penalty_on_gradients_is_that_of_torch_or_reported(route: str, seed: np.random.Generator) -> None:
    for outer in seed.choice(list(OUTERS), 2, replace=False):
        check(route, outer, seed)


@pytest.mark.parametrize("outer", OUTERS)
def test_however_a_gradient_enters_a_loss_it_is_reported(outer: str, seed: np.random.Generator) -> None:
    check(seed.choice([route for route in ROUTES if "fused" not in route]), outer, seed)


@pytest.mark.slow
@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("route", ROUTES)
def test_all_penalties_on_gradients_are_those_of_torch_or_reported(
    route: str, outer: str, seed: np.random.Generator
) -> None:
    for _ in range(4):
        check(route, outer, seed)


# -- no false alarms ------------------------------------------------------------------------------------------
def net(device: Device = TAPE) -> Two:
    rng = np.random.default_rng(3)
    return Two(Param(tensor(normal(rng, 3, 4), device)), Param(tensor(normal(rng, 4, 2), device)))


def batch() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(4)
    return tensor(normal(rng, 5, 3)), tensor(normal(rng, 5, 2))


def grads_of(m: Any) -> GradientsParams:
    return GradientsParams.from_grads(mean_square(m, *batch()).backward(), m)


@pytest.mark.parametrize("gradients", [grads_of, lambda m: grad(mean_square)(m, *batch())], ids=["backward", "grad"])
def test_training_logging_and_clipping_say_nothing(gradients: Any) -> None:
    m, sums = net(), optim.GradientsAccumulator()
    clipping = optim.GradientClippingConfig.Norm(1.0).init()
    optimizer, momentum, scale = optim.AdamConfig().init(), None, Tensor.ones((1,), CPU).cast("f64")
    for _ in range(3):
        g = gradients(m)
        norm = sum(x.square().sum() for _, x in g.items()).sqrt()
        assert f"{norm}" == repr(norm)
        assert float(norm.log()) < 9 * norm.into_scalar()
        sums.accumulate(m, g)
        clipped = GradientsParams({ident: clipping.clip_gradient(x) * 0.5 for ident, x in sums.grads().items()})
        assert [array(x).tolist() for _, x in pickle.loads(pickle.dumps(clipped)).items()]
        momentum = g.get(m.a.id) if momentum is None else momentum * 0.9 + g.get(m.a.id)
        m, optimizer = optimizer.step(1e-2, m, clipped)
        by_hand = m.a.val() - g.get(m.a.id) * 0.1  # on the tape, until it is a parameter
        m = Two(m.a.with_value(by_hand), m.b.with_value(Tensor.from_inner(m.b.val().inner() - momentum.mean())))
        loss = mean_square(m, *batch()) * scale  # of the step before: these leaves are new
        assert len(loss.backward()) == 2
        scale = 1.0 / (norm.reshape((1,)) + 1.0)


def test_adversarial_signs_masks_and_detached_gradients_say_nothing() -> None:
    m, (x, y) = net(), batch()
    leaf = tensor(array(x), TAPE).require_grad()
    g = leaf.grad(mean_square(m, leaf, y).backward())
    assert g is not None
    for harmless in (
        x + g.sign() * 0.1,
        x * (g.abs() > 0.1).cast("f64"),
        x + g.detach(),
        x + g.floor(),
        x + g.no_grad(),
    ):
        assert len(mean_square(m, harmless, y).backward()) == 2
    assert len(mean_square(m, tensor(g.tolist()), y).backward()) == 2
    with pytest.warns(ConstantGradientsWarning, match=TOLD):
        mean_square(m, x + g * 0.1, y).backward()


def test_the_notice_names_the_line_where_the_gradient_entered_and_is_one_a_line() -> None:
    m, (x, y) = net(), batch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            penalty = sum(g.square().sum() for _, g in grads_of(m).items())
            total = mean_square(m, x, y) + penalty
            total.backward()
    message = str(caught[0].message)
    assert [w.filename for w in caught] == [__file__]
    for part in ("total = mean_square(m, x, y) + penalty", "create_graph=True", "value_and_grad(loss_fn)(model)"):
        assert part in message


def test_a_step_with_a_tracked_rate_is_reported_where_its_parameters_are_differentiated_too() -> None:
    m, rate = net(), tensor([0.1], TAPE).require_grad()
    stepped, _ = optim.SgdConfig().init().step(rate, m, grads_of(m))
    assert rate.grad(mean_square(stepped, *batch()).backward()) is not None  # by the rate alone: right, and no notice
    stepped, _ = optim.SgdConfig().init().step(rate, m, grads_of(m))
    with pytest.warns(ConstantGradientsWarning, match=TOLD):
        (mean_square(stepped, *batch()) + mean_square(m, *batch())).backward()


OTHER = net()


# -- functions that read no parameter ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "unread",
    [lambda m, x: OTHER.forward(x), lambda m, x: copy.deepcopy(m).forward(x), lambda m, x: m.valid().forward(x)],
    ids=["another model", "a copy", "frozen"],
)
def test_a_transform_whose_function_reads_no_parameter_is_reported(unread: Callable[[Any, Tensor], Tensor]) -> None:
    m, (x, _) = net(), batch()
    ones = GradientsParams({p.id: p.val().inner() * 0.0 + 1.0 for p in (m.a, m.b)})

    def number(m: Any, x: Tensor) -> Tensor:
        return unread(m, x).sum()

    calls: list[Callable[[], Any]] = [
        lambda: grad(number)(m, x),
        lambda: value_and_grad(number)(m, x)[1],
        lambda: vjp(lambda m: unread(m, x), m)[1](Tensor.ones((5, 2), CPU).cast("f64"))[0],
        lambda: per_sample_grad(number)(m, x),
        lambda: hvp(lambda m: number(m, x), (m,), (ones,))[0],
    ]
    for call in calls:
        with pytest.warns(
            UntrainedWarning, match=r"depends on no parameter of argument 0[^$]*a, b of the Two"
        ) as warned:
            assert call().is_empty()
        assert "constants to it" in str(warned[0].message)
        assert "compute with the argument itself" in str(warned[0].message)
    with pytest.warns(UntrainedWarning, match="depends on no parameter of argument 0"):
        jvp(lambda m: unread(m, x), (m,), (ones,))
    with pytest.warns(UntrainedWarning, match="depends on no parameter of argument 0"):
        compile(grad(lambda m, x: m.valid().forward(x).sum()))(m, x)


def test_a_part_that_is_read_is_enough() -> None:
    m, (x, _) = net(), batch()
    assert len(grad(lambda m: x.matmul(m.a.val()).sum())(m)) == 1
    pair = grad(lambda models: models[0].forward(x).sum())([m, nn.LinearConfig(3, 2).init(TAPE)])
    assert [len(grads) for grads in pair] == [2, 0]
    assert vjp(lambda m: m.forward(x), m)[1](None)[0].is_empty()  # no cotangent was given
