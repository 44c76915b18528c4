"""Compiled calls on the user's tape: gradients through them are those of the functions that they compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, StepScope, Tensor, compile, grad, nn
from burn_torch.core.errors import AutodiffError, TraceError
from burn_torch.module import GradientsParams, Module
from tests.transform.functions import CPU, TAPE, Mlp, array, by_path, close, drawn, mean_square, normal, said, tensor

FUSED = Device.cpu().fused().autodiff()


def leaf(data: Any, device: Device = TAPE) -> Tensor:
    return tensor(data, device).require_grad()


def gradient(x: Tensor, gradients: Any) -> Any:
    gradient_of_x = x.grad(gradients)
    return None if gradient_of_x is None else array(gradient_of_x)


def several(x: Tensor, w: Tensor, scale: float) -> dict[str, Any]:
    h = (x * w).sin() * scale
    return {"two": (h, x.exp().sum()), "constant": x.detach() * 2.0, "number": 3, "other": h.detach() + w}


@pytest.mark.parametrize("device", [TAPE, FUSED, CPU.autodiff("balanced"), Device.ndarray().autodiff()], ids=str)
@pytest.mark.parametrize("fuse", [None, True])
def test_results_hang_on_arguments_that_ask_for_gradients(
    device: Device, fuse: bool | None, seed: np.random.Generator
) -> None:
    if fuse and "NdArray" in repr(device):
        pytest.skip("no kernels there")
    a, b = normal(seed, 4), normal(seed, 4)
    f = compile(several, fuse=fuse)
    for turn in range(2):
        x, w = leaf(a + turn, device), leaf(b, device)
        y = f(x * 1.0 if turn else x, w, 2.0)  # the second hangs on a tape already
        total = (y["two"][0] * w).sum() + y["two"][1] * 0.5 + y["constant"].sum() + (y["other"] * x).sum()
        gradients = total.backward()
        s, t = (torch.from_numpy(v).requires_grad_() for v in (a + turn, b))
        h = (s * t).sin() * 2.0
        theirs = (h * t).sum() + s.exp().sum() * 0.5 + ((h.detach() + t) * s).sum()
        for ours, expected in zip((x, w), torch.autograd.grad(theirs, (s, t)), strict=True):
            close(ours.grad(gradients), expected.numpy())
        assert y["number"] == 3
    assert f.traces == 1


def test_a_part_of_the_results_is_enough(seed: np.random.Generator) -> None:
    x, w = leaf(normal(seed, 4)), leaf(normal(seed, 4))
    f = compile(several)
    for key in (0, 1, 0):
        gradients = f(x, w, 2.0)["two"][key].sum().backward()
        theirs = several(x, w, 2.0)["two"][key].sum().backward()
        for one in (x, w):
            ours, expected = gradient(one, gradients), gradient(one, theirs)
            assert (ours is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_one_parameter_in_two_places_has_both_gradients(seed: np.random.Generator) -> None:
    layer = drawn(Mlp.make(TAPE), seed).inner

    class Twice(Module):
        a: nn.Linear
        b: nn.Linear

    model, inputs = Twice(layer, layer), tensor(normal(seed, 4, 3))

    def forward(m: Twice, x: Tensor) -> Tensor:
        return (m.a.forward(x) * m.b.forward(x).tanh()).sum()

    ours = GradientsParams.from_grads(compile(forward)(model, inputs).backward(), model)
    for ident, g in GradientsParams.from_grads(forward(model, inputs).backward(), model).items():
        close(ours.get(ident), array(g))


def test_a_loss_of_which_a_part_is_compiled_has_all_of_its_gradient(seed: np.random.Generator) -> None:
    """It had that of the other part alone, without a word."""
    model, x, y = drawn(Mlp.make(TAPE), seed), tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2))

    def total(m: Any, loss: Callable[..., Tensor]) -> Tensor:
        penalty: Tensor = loss(m, x, y)
        for _, p in m.named_params():
            penalty = penalty + p.val().square().sum() * 0.1
        return penalty

    expected = by_path(model, grad(lambda m: total(m, mean_square))(model))
    grads = by_path(model, GradientsParams.from_grads(total(model, compile(mean_square)).backward(), model))
    for path, g in expected.items():
        close(grads[path], g)


class Noisy(Module):
    inner: nn.Linear
    norm: nn.BatchNorm
    dropout: nn.Dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout.forward(self.norm.forward(self.inner.forward(x)))


@pytest.mark.parametrize("close_over", [False, True])
def test_a_backward_draws_what_the_call_drew(close_over: bool, seed: np.random.Generator) -> None:
    model = Noisy(nn.LinearConfig(3, 4).init(TAPE), nn.BatchNormConfig(4).init(TAPE), nn.DropoutConfig(0.5).init())
    dropout = model.dropout if close_over else None

    def loss(m: Noisy, x: Tensor) -> Tensor:
        h = m.norm.forward(m.inner.forward(x))
        return (dropout or m.dropout).forward(h).square().sum()

    x, fast = Tensor.from_data(normal(seed, 6, 3).astype(np.float32), CPU), compile(loss)
    for step in range(3):
        results = []
        for run in (loss, fast):
            with StepScope(step, model) as scope:
                value = run(model, x)
            gradients = GradientsParams.from_grads(value.backward(), model)  # outside of the scope
            assert len(scope.states) == 2
            results.append((value, gradients, model.with_states(scope.states)))
        (a, g, m), (b, h, n) = results
        assert a.item() == b.item()
        assert len(g) == len(h) == 4
        for ident, each in g.items():
            np.testing.assert_allclose(array(h.get(ident)), array(each), rtol=1e-5, atol=1e-6)
        for one, other in ((m.norm.running_mean, n.norm.running_mean), (m.norm.running_var, n.norm.running_var)):
            assert one.value().tolist() == other.value().tolist()
        model = m
    assert fast.traces == 1


def test_what_a_step_has_used_up_hangs_on_nothing(seed: np.random.Generator) -> None:
    model = drawn(Mlp.make(TAPE), seed)

    @compile
    def step(m: Any, x: Tensor, y: Tensor) -> Any:
        output = m.forward(x)
        loss = (output - y).square().mean()
        return GradientsParams.from_grads(loss.backward(), m), loss, output

    gradients, loss, output = step(model, tensor(normal(seed, 4, 3)), tensor(normal(seed, 4, 2)))
    assert len(gradients) == 4
    for value in (loss, output):
        assert not TAPE.backend.is_tracked(value.primitive)  # type: ignore[attr-defined]  # a tape


def test_donated_arguments_are_gone_so_results_hang_on_nothing() -> None:
    f = compile(lambda x: x * x, donate="x")
    with pytest.raises(AutodiffError, match=r"there is no tape to walk back(?s:.*)with donate"):
        f(leaf([2.0])).sum().backward()
    with pytest.raises(TraceError, match="x: a tensor that hangs on a tape"):
        f(leaf([2.0]) * 3.0)


def test_arguments_that_were_written_to_are_reported() -> None:
    memory = torch.tensor([1.0, 2.0])
    x, w = Tensor.from_inner(Tensor.from_torch(memory)), leaf(np.array([2.0, 3.0], np.float32))
    y = compile(lambda x, w: (x * w).sin())(x, w).sum()
    memory += 1.0
    with pytest.raises(AutodiffError, match=r"written to after it was used(?s:.*)the compiled <lambda>"):
        y.backward()


def test_a_second_backward_is_reported() -> None:
    x = leaf([2.0])
    y = compile(lambda x: x * x)(x)
    assert gradient(x, y.backward(retain_graph=True)) == [4.0]
    assert gradient(x, y.backward()) == [4.0]
    with pytest.raises(AutodiffError, match=r"used up(?s:.*)the compiled <lambda>"):
        y.backward()


def test_what_is_read_outside_must_be_there_still() -> None:
    scale = {"by": 3.0}

    @compile
    def f(x: Tensor) -> Tensor:
        return x * x * scale["by"]

    x = leaf([2.0])
    first, second = f(x), f(x)
    assert gradient(x, first.backward()) == [12.0]
    scale["by"] = 5.0
    assert gradient(x, second.backward()) == [12.0]  # its backward was traced with the first
    assert gradient(x, f(x).backward()) == [20.0]
    late = compile(f.function)(x)
    scale["by"] = 7.0
    match = said(
        "backward: what a compiled function read", "f: scale: .*7.0.*was", "the same values", "pass what changes"
    )
    with pytest.raises(AutodiffError, match=match):
        late.backward()


def test_tapes_over_tapes_run_the_function_itself() -> None:
    below = leaf([2.0])
    above = Tensor.from_inner(below).require_grad()
    f = compile(lambda x: x * x * x)
    first = above.grad(f(above).backward())
    assert first is not None
    assert gradient(below, first.backward()) == [12.0]
    assert grad(lambda x: grad(lambda x: f(x).sum())(x).sum())(tensor([2.0])).tolist() == [12.0]


def test_what_does_not_ask_costs_nothing() -> None:
    f = compile(lambda x: x * x)
    y = f(tensor([2.0], TAPE))
    assert not TAPE.backend.is_tracked(y.primitive)  # type: ignore[attr-defined]  # a tape
    assert f(leaf([2.0])).backward() is not None
    assert f.traces == 2
