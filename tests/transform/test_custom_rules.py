"""custom_vjp and custom_jvp: rules of one's own in every transform, against the rules of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Distribution, Tensor, compile, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from burn_torch.core.errors import ArgumentError, AutodiffError, ShapeError
from burn_torch.transform import checkpoint, custom_jvp, custom_vjp
from tests.transform.functions import CPU, TAPE, array, close, normal, said, tensor

DEVICES = [CPU, CPU.fused(), TAPE, Device.ndarray()]
NAMES = ["cpu", "fused", "tape", "numpy"]


def plain(power: int, pair: dict[str, Tensor], w: Tensor) -> dict[str, Any]:
    return {"y": pair["a"].sin() * w * float(power), "n": pair["b"].exp() * w}


def by_vjp() -> Any:
    fn = custom_vjp(plain, nondiff_argnums=(0,))

    def forward(power: int, pair: dict[str, Tensor], w: Tensor) -> Any:
        return plain(power, pair, w), (pair, w, power)

    def backward(power: int, kept: Any, g: dict[str, Tensor]) -> Any:
        pair, w, same = kept
        assert same == power
        da, db = g["y"] * pair["a"].cos() * w * float(power), g["n"] * pair["b"].exp() * w
        dw = g["y"] * pair["a"].sin() * float(power) + g["n"] * pair["b"].exp()
        return {"a": da, "b": db}, dw

    fn.defvjp(forward, backward)
    return fn


def by_jvp() -> Any:
    fn = custom_jvp(plain, nondiff_argnums=(0,))

    def push(power: int, primals: Any, tangents: Any) -> Any:
        (pair, w), (dpair, dw) = primals, tangents
        dy = dpair["a"] * pair["a"].cos() * w * float(power) + pair["a"].sin() * dw * float(power)
        dn = dpair["b"] * pair["b"].exp() * w + pair["b"].exp() * dw
        return plain(power, pair, w), {"y": dy, "n": dn}

    fn.defjvp(push)
    return fn


def total(fn: Callable[..., Any]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def loss(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        out = fn(2, {"a": a, "b": b * b}, w)
        return (out["y"] * out["n"]).sum() + out["y"].square().sum()

    return loss


ALL = (0, 1, 2)
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f,
    "grad": lambda f: grad(f, ALL),
    "second": lambda f: grad(lambda *xs: sum(g.square().sum() for g in grad(f, ALL)(*xs)), ALL),
    "jvp": lambda f: lambda *xs: jvp(f, xs, xs),
    "jvp of some": lambda f: lambda *xs: jvp(lambda a: f(a, *xs[1:]), xs[:1], xs[1:2]),
    "linearize": lambda f: lambda *xs: linearize(f, *xs)[1](*xs),
    "vjp": lambda f: lambda *xs: vjp(f, *xs)[1](f(*xs)),
    "jacrev": lambda f: jacrev(grad(f, 0), ALL),
    "jacfwd": lambda f: jacfwd(grad(f, 0), ALL),
    "hessian": lambda f: hessian(f, 2),
    "vmap": lambda f: vmap(f, (0, None, 0)),
    "vmap of grad": lambda f: vmap(grad(f, ALL), (0, None, 0)),
    "grad of vmap": lambda f: grad(lambda *xs: vmap(f, (0, None, 0))(*xs).sum(), ALL),
    "jvp of vmap": lambda f: lambda *xs: jvp(vmap(f, (0, None, 0)), xs, xs),
    "vmap of jvp": lambda f: vmap(lambda a, b: jvp(lambda a: f(a, b, b), (a,), (b,)), (0, 0)),
    "nested vmap": lambda f: vmap(vmap(f, (0, None, None)), (None, None, 0)),
    "nested vmap of one": lambda f: lambda *xs: vmap(vmap(lambda a: f(a, a, a)))(xs[0].reshape((3, 3, 1))),
    "compile": lambda f: compile(grad(f, ALL)),
    "compile of vmap": lambda f: compile(vmap(f, (0, None, 0))),
    "compile of vmap of grad": lambda f: compile(vmap(grad(f, ALL), (0, None, 0))),
    "checkpoint": lambda f: grad(lambda *xs: checkpoint(f)(*xs).sum(), ALL),
}


@pytest.mark.parametrize("make", [by_vjp, by_jvp])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_rules_stand_for_those_of_the_table(name: str, make: Callable[[], Any], seed: np.random.Generator) -> None:
    transform, fn = TRANSFORMS[name], make()
    for device in DEVICES:
        xs = [tensor(normal(seed, 3, 3), device) for _ in range(3)]
        if name == "vmap of jvp":
            xs = xs[:2]
        elif "vmap" in name:
            xs[1] = tensor(normal(seed, 3), device)
        expected, actual = transform(total(plain))(*xs), transform(total(fn))(*xs)
        mine, twins = (v if isinstance(v, tuple) else (v,) for v in (actual, expected))
        for one, twin in zip(mine, twins, strict=True):
            close(one, twin, 1e-12)


def test_a_rule_is_taken_at_its_word() -> None:
    @custom_vjp
    def straight(x: Tensor) -> Tensor:
        return x.round()

    straight.defvjp(lambda x: (x.round(), None), lambda kept, g: (g * 7.0,))
    x = tensor([1.2, -0.7])
    close(straight(x), [1.0, -1.0])
    close(grad(lambda x: straight(x).sum())(x), [7.0, 7.0])
    close(jvp(straight, (x,), (x,))[1], 7.0 * array(x))
    leaf = tensor([1.2, -0.7], TAPE).require_grad()
    close(leaf.grad(straight(leaf).sum().backward()), [7.0, 7.0])


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_samples_draw_as_vmap_was_told(randomness: str) -> None:
    @custom_vjp
    def noisy(x: Tensor) -> Tensor:
        return x + Tensor.random_like(x, Distribution.Default)

    noisy.defvjp(lambda x: (noisy.__wrapped__(x), None), lambda kept, g: (g,))
    x = tensor(np.zeros((2, 5)))
    first, second = array(vmap(noisy, randomness=randomness)(x))
    assert (first == second).all() == (randomness == "same")
    with pytest.raises(ArgumentError, match=r"(?s)not told how samples draw.*given:.*expected:.*mend:"):
        vmap(noisy)(x)


def test_integers_and_absent_derivatives() -> None:
    @custom_vjp
    def pick(x: Tensor, at: Tensor) -> Tensor:
        return x.select(0, at)

    pick.defvjp(lambda x, at: (x.select(0, at), (x, at)), lambda kept, g: (kept[0] * 0.0 + g.sum(), None))
    x, at = tensor([1.0, 2.0, 3.0]), tensor(np.array([2, 0]))
    close(grad(lambda x: pick(x, at).sum())(x), [2.0, 2.0, 2.0])
    close(jvp(lambda x: pick(x, at), (x,), (x,))[1], [6.0, 6.0])


def test_errors_say_what_does_not_fit() -> None:
    x = tensor([1.0, 2.0])

    def rule(forward: Any, backward: Any, **options: Any) -> Any:
        fn = custom_vjp(lambda x: x * 2.0, **options)
        fn.defvjp(forward, backward)
        return grad(lambda x: fn(x).sum())

    def good(x: Tensor) -> Any:
        return x * 2.0, None

    with pytest.raises(AutodiffError, match=said("custom_vjp.plain.: it has no rule", mend="plain.defvjp")):
        custom_vjp(plain)(1, {}, x)
    with pytest.raises(AutodiffError, match=said("custom_jvp.plain.: it has no rule", mend="plain.defjvp")):
        custom_jvp(plain)(1, {}, x)
    with pytest.raises(ArgumentError, match=said("the forward rule did not return a pair", "a tensor")):
        rule(lambda x: x * 2.0, lambda kept, g: (g,))(x)
    with pytest.raises(ArgumentError, match=said("did not return one derivative for each", "a tensor", "a tuple of 1")):
        rule(good, lambda kept, g: g)(x)
    with pytest.raises(ShapeError, match="the derivatives"):
        rule(good, lambda kept, g: (g.sum(),))(x)
    with pytest.raises(ArgumentError, match="nondiff_argnums does not name"):
        rule(good, lambda kept, g: (g,), nondiff_argnums=(3,))(x)
    with pytest.raises(AutodiffError, match="an argument among nondiff_argnums is differentiated"):
        rule(good, lambda kept, g: (g,), nondiff_argnums=(0,))(x)

    def closing(w: Tensor) -> Tensor:
        fn = custom_vjp(lambda x: x * w)
        fn.defvjp(lambda x: (x * w, None), lambda kept, g: (g,))
        return fn(w * 2.0).sum()

    with pytest.raises(AutodiffError, match=said("closes over a tensor that is differentiated", mend="pass it as")):
        grad(closing)(x)
    pushed = custom_jvp(lambda x: x)
    pushed.defjvp(lambda primals, tangents: tangents[0])
    with pytest.raises(ArgumentError, match="the rule did not return a pair"):
        jvp(pushed, (x,), (x,))
