"""cond, while_loop, scan and associative_scan against Python's own control flow, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Distribution, Tensor, compile, grad, jacfwd, jvp, nn, vmap
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError, TraceError
from burn_torch.transform import associative_scan, cond, scan, while_loop
from tests.transform.functions import CPU, TAPE, array, close, normal, said, tensor

DEVICES = [CPU, CPU.fused(), TAPE, Device.ndarray()]
NAMES = ["cpu", "fused", "tape", "numpy"]


# -- cond ------------------------------------------------------------------------------------------------------
def root(x: Tensor) -> Tensor:
    """The root of what is positive; the slope of the branch that is not taken is NaN there."""
    return cond((x > 0.0).all(), lambda x: x.sqrt().log(), lambda x: x * 3.0, x).sum()


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_cond_is_the_branch_that_holds(device: Device) -> None:
    for value, slope in ((4.0, 0.125), (-1.0, 3.0), (0.0, 3.0)):
        x = tensor([value], device)
        expected = np.log(np.sqrt(value)) if value > 0.0 else 3.0 * value
        for fn in (root, compile(root)):
            close(fn(x), [expected])
        for gradient in (grad(root), compile(grad(root)), compile(jacfwd(lambda x: root(x)))):
            close(array(gradient(x)).reshape(1), [slope])
        second = array(compile(grad(lambda x: grad(root)(x).sum()))(x))
        close(second, [-0.5 / value**2 if value > 0.0 else 0.0])


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_cond_differs_between_samples(device: Device) -> None:
    x = tensor([[4.0], [-1.0], [0.0]], device)
    close(vmap(root)(x), [[np.log(2.0)], [-3.0], [0.0]])
    close(vmap(grad(root))(x), [[0.125], [3.0], [3.0]])
    close(grad(lambda x: vmap(root)(x).sum())(x), [[0.125], [3.0], [3.0]])
    close(compile(vmap(grad(root)))(x), [[0.125], [3.0], [3.0]])


def test_one_branch_runs_where_the_predicate_can_be_read() -> None:
    ran = []
    cond(tensor([True]), lambda: ran.append(1), lambda: ran.append(2))
    cond(False, lambda: ran.append(3), lambda: ran.append(4))
    assert ran == [1, 4]


def test_errors_of_cond() -> None:
    x = tensor([1.0, 2.0])

    def traced(true_fn: Any, false_fn: Any) -> None:
        compile(lambda x: cond((x > 0.0).all(), true_fn, false_fn, x))(x)

    with pytest.raises(ArgumentError, match=said("cond: the predicate is no truth value", "a tensor .2,. bool")):
        cond(x > 0.0, lambda: 1, lambda: 2)
    with pytest.raises(ShapeError, match=said("results of the branches do not keep shapes", r"at value \(1,\) f64")):
        traced(lambda x: x, lambda x: x.sum())
    with pytest.raises(DTypeError, match="results of the branches do not keep"):
        traced(lambda x: x, lambda x: x.int())
    with pytest.raises(ArgumentError, match="results of the branches do not have"):
        traced(lambda x: (x, 1), lambda x: (x, 2))
    with pytest.raises(ArgumentError, match="results of the branches"):
        traced(lambda x: (x,), lambda x: [x])
    with pytest.raises(TraceError, match=said("both branches run, and one draws", mend="draw before")):
        traced(lambda x: x.random_like(Distribution.Normal(0.0, 1.0)), lambda x: x)
    train = Tensor.ones((2, 3), TAPE)
    norm = nn.BatchNormConfig(3).init(TAPE)
    with pytest.raises(TraceError, match="both branches run, and one updates a running state"):
        compile(lambda n, x: cond((x > 0.0).all(), n.forward, lambda x: x, x))(norm, train)


# -- while_loop ------------------------------------------------------------------------------------------------
def newton(x: Tensor, max_steps: int | None = None) -> Tensor:
    return while_loop(lambda s: ((s * s - x).abs() > 1e-12).all(), lambda s: (s + x / s) * 0.5, x + 1.0, max_steps)


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
def test_while_loop_runs_as_often_as_it_must(device: Device) -> None:
    x = tensor([2.0], device)
    close(newton(x), [np.sqrt(2.0)], 1e-10)
    close(grad(lambda x: newton(x).sum())(x), [0.5 / np.sqrt(2.0)], 1e-6)
    close(newton(x, 1), [(3.0 + 2.0 / 3.0) / 2.0])
    samples = tensor([[2.0], [100.0], [1.0]], device)
    each = np.stack([array(newton(tensor([v], device))) for v in (2.0, 100.0, 1.0)])
    close(vmap(newton)(samples), each)
    slopes = np.stack([array(grad(lambda x: newton(x).sum())(tensor([v], device))) for v in (2.0, 100.0, 1.0)])
    close(vmap(grad(lambda x: newton(x).sum()))(samples), slopes)
    bounded = compile(lambda x: newton(x, 12))
    close(bounded(x), array(newton(x)))
    close(bounded(tensor([100.0], device)), array(newton(tensor([100.0], device))))
    close(compile(grad(lambda x: newton(x, 12).sum()))(x), array(grad(lambda x: newton(x).sum())(x)))


def test_while_loop_counts_by_python_where_it_may() -> None:
    def triangle(x: Tensor) -> Any:
        return while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2.0), (0, x))

    assert triangle(tensor([1.0]))[0] == 5
    close(compile(lambda x: triangle(x)[1])(tensor([1.0])), [32.0])
    close(vmap(lambda x: triangle(x)[1])(tensor([1.0, 2.0])), [32.0, 64.0])


def test_finished_steps_give_no_nan() -> None:
    def fn(x: Tensor) -> Tensor:  # after the last step that counts, 1 / (1 - s) is infinite
        return while_loop(lambda s: (s < 0.5).all(), lambda s: s + (1.0 - s).sqrt() * 0.0 + 0.5, x, 4).sum()

    for value in (0.0, 0.5, 1.0):
        close(compile(grad(fn))(tensor([value])), [1.0])


def test_errors_of_while_loop() -> None:
    x = tensor([1.0])
    with pytest.raises(TraceError, match=said("while_loop: how many steps there are depends", mend="while_loop.*max")):
        compile(newton)(x)
    with pytest.raises(ShapeError, match=said("while_loop: the state do not keep")):
        while_loop(lambda s: True, lambda s: Tensor.cat([s, s], 0), x)
    with pytest.raises(ArgumentError, match="while_loop: the predicate is no truth value"):
        while_loop(lambda s: s, lambda s: s, x)
    with pytest.raises(ArgumentError, match="make a tensor of what changes"):
        compile(lambda x: while_loop(lambda s: (s[1] < 5.0).all(), lambda s: (s[0] + 1, s[1] * 2.0), (0, x), 9))(x)


# -- scan --------------------------------------------------------------------------------------------------------
def steps(carry: Any, x: Any) -> Any:
    carry = {"h": (carry["h"] * x["a"] + x["b"]).tanh()}
    return carry, (carry["h"] * 2.0, None)


def unrolled(h: torch.Tensor, a: torch.Tensor, b: torch.Tensor, order: Any) -> tuple[torch.Tensor, torch.Tensor]:
    ys = {}
    for i in order:
        h = torch.tanh(h * a[i] + b[i])
        ys[i] = h * 2.0
    return h, torch.stack([ys[i] for i in sorted(ys)])


@pytest.mark.parametrize("device", DEVICES, ids=NAMES)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_its_gradients(device: Device, reverse: bool, seed: np.random.Generator) -> None:
    h, a, b = normal(seed, 3), normal(seed, 5, 3), normal(seed, 5, 3)

    def fn(h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        carry, (ys, _) = scan(steps, {"h": h}, {"a": a, "b": b}, reverse=reverse)
        return carry["h"].sum() + ys.square().sum()

    torches = [torch.from_numpy(v).requires_grad_() for v in (h, a, b)]
    last, ys = unrolled(*torches, list(range(5))[:: -1 if reverse else 1])
    loss = last.sum() + ys.square().sum()
    expected = torch.autograd.grad(loss, torches)
    ours = [tensor(v, device) for v in (h, a, b)]
    for gradient in (grad(fn, (0, 1, 2)), compile(grad(fn, (0, 1, 2)))):
        for mine, twin in zip(gradient(*ours), expected, strict=True):
            close(mine, twin.numpy())
    carry, (mine, nothing) = scan(steps, {"h": ours[0]}, {"a": ours[1], "b": ours[2]}, reverse=reverse)
    assert nothing is None
    close(mine, ys.detach().numpy())
    close(carry["h"], last.detach().numpy())
    _, along = jvp(lambda h: fn(h, *ours[1:]), (ours[0],), (ours[0],))
    close(along, [float((expected[0].numpy() * h).sum())])


def test_scan_over_other_axes_and_lengths(seed: np.random.Generator) -> None:
    x = normal(seed, 2, 4, 3)
    carry, ys = scan(lambda c, x: (c + x, c + x), tensor(np.zeros((2, 3))), tensor(x), dim=1)
    close(ys, x.cumsum(1))
    close(carry, x.sum(1))
    carry, ys = scan(lambda c, _: (c * 2.0, c), tensor([1.0]), None, length=3)
    close(ys, [[1.0], [2.0], [4.0]])
    close(vmap(lambda x: scan(lambda c, x: (c + x, None), tensor(np.zeros(3)), x)[0])(tensor(x)), x.sum(1))


def test_errors_of_scan() -> None:
    x = tensor(np.ones((3, 2)))
    with pytest.raises(ShapeError, match=said("there is no common number of steps", "length 2; xs .3, 2. f64")):
        scan(lambda c, x: (c, x), x, x, length=2)
    with pytest.raises(ShapeError, match="no tensor and no length"):
        scan(lambda c, x: (c, x), x, None)
    with pytest.raises(ArgumentError, match=said("did not return a pair", "a tensor")):
        scan(lambda c, x: c, x, x)
    with pytest.raises(DTypeError, match="the carry do not keep"):
        scan(lambda c, x: (c.int(), x), x, x)
    with pytest.raises(ArgumentError, match="the carry do not have the structure"):
        scan(lambda c, x: ((c, c), x), (x,), x)


# -- associative_scan ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_prefixes(count: int, reverse: bool, seed: np.random.Generator) -> None:
    x, turn = normal(seed, 2, count), (lambda v: v[:, ::-1]) if reverse else (lambda v: v)
    close(associative_scan(lambda p, q: p + q, tensor(x), 1, reverse), turn(turn(x).cumsum(1)))
    a, b = normal(seed, count, 2), normal(seed, count, 2)

    def affine(p: Any, q: Any) -> Any:  # x -> a x + b, then the next
        return {"a": p["a"] * q["a"], "b": q["a"] * p["b"] + q["b"]}

    order = range(count)[:: -1 if reverse else 1]
    expected, h = np.zeros_like(b), np.zeros(2)
    for i in order:
        expected[i] = h = a[i] * h + b[i]
    ours = {"a": tensor(a), "b": tensor(b)}

    def fn(xs: Any) -> Any:
        return associative_scan(affine, xs, reverse=reverse)

    close(fn(ours)["b"], expected)
    close(compile(fn)(ours)["b"], expected)
    weights = tensor(normal(seed, count, 2))
    gradient = grad(lambda xs: (fn(xs)["b"] * weights).sum())(ours)

    def by_scan(xs: Any) -> Tensor:
        def step(h: Any, x: Any) -> Any:
            return (h * x["a"] + x["b"],) * 2

        return (scan(step, tensor(np.zeros(2)), xs, reverse=reverse)[1] * weights).sum()

    for name in "ab":
        close(gradient[name], array(grad(by_scan)(ours)[name]))


def test_errors_of_associative_scan() -> None:
    x = tensor(np.ones((3, 2)))
    with pytest.raises(ShapeError, match="there is no common number of steps"):
        associative_scan(lambda a, b: a, {"a": x, "b": tensor([1.0])})
    with pytest.raises(ShapeError, match="what the function joins do not keep"):
        associative_scan(lambda a, b: a.sum(), x)
