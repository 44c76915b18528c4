"""Gradients through moves between stacks: fused and unfused, torch and numpy, compiled, by transforms."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import burn_torch
from burn_torch import Device, DType, Tensor
from burn_torch.core.errors import AutodiffError, DeviceError, TraceError
from burn_torch.module import GradientsParams, Module, Param, UntrainedWarning
from burn_torch.nn import LinearConfig
from burn_torch.optim import SgdConfig
from burn_torch.tensor import activation
from burn_torch.transform import grad, hvp, jvp, per_sample_grad, vjp

DEVICES: dict[str, Callable[[], Device]] = {
    "unfused": lambda: Device.cpu(fused=False),
    "fused": lambda: Device.cpu(fused=True),
    "numpy": Device.ndarray,
}
PAIRS = [(a, b) for a in DEVICES for b in DEVICES if a != b]
"""From where to where: every ordered pair."""


@pytest.fixture(params=PAIRS, ids="-".join)
def both(request: pytest.FixtureRequest) -> tuple[Device, Device]:
    here, there = request.param
    return DEVICES[here](), DEVICES[there]()


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape)


def same(x: Tensor | None, expected: Any, tolerance: float = 1e-12) -> None:
    assert x is not None
    np.testing.assert_allclose(np.asarray(x.into_data().values), expected, rtol=tolerance, atol=tolerance)


def f64(values: Any, device: Device) -> Tensor:
    return Tensor.from_data(values, device, DType.F64)


# -- the tape ------------------------------------------------------------------------------------------------
def test_a_gradient_comes_back_from_another_stack(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    v, g = drawn(0, 2, 3), drawn(1, 2, 3)
    x = f64(v, here).require_grad()
    y = (x.to_device(there).exp() * f64(g, there)).sum()
    assert y.device is there
    gradient = x.grad(y.backward())
    assert gradient is not None
    assert gradient.device is here.inner()
    same(gradient, np.exp(v) * g)


def test_there_and_back_with_leaves_on_both_sides(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    a, b, c, g = (drawn(seed, 3, 2) for seed in range(4))
    x, z, w = f64(a, here).require_grad(), f64(b, there).require_grad(), f64(c, here).require_grad()
    moved = x.to_device(there) * z  # z feeds a loss of another stack
    y = (moved.to_device(here) * w).sin() * f64(g, here)
    gradients = y.sum().backward()
    assert len(gradients) == 3
    d = np.cos(a * b * c) * g
    for leaf, expected in ((x, d * b * c), (z, d * a * c), (w, d * a * b)):
        same(leaf.grad(gradients), expected)
        assert leaf.grad(gradients).device is leaf.device.inner()  # type: ignore[union-attr]  # `same` has seen it


def test_a_value_used_on_both_sides_gets_the_sum(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    v = drawn(4, 5)
    x = f64(v, here).require_grad()
    inner = x * 2.0  # no leaf: its gradient is the sum of three, two of which come from there
    first, second = inner.to_device(there), inner.to_device(there)
    y = (first * second).sum().to_device(here) + (inner * 3.0).sum() + x.to_device(there).sum().to_device(here)
    same(x.grad(y.backward()), 8.0 * v + 6.0 + 1.0)


def test_a_moved_value_used_twice(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    v = drawn(5, 4)
    x = f64(v, here).require_grad()
    moved = x.to_device(there)
    same(x.grad((moved * moved * moved).sum().backward()), 3.0 * v * v)


def test_what_is_not_tracked_moves_as_a_constant(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    x = f64([1.0, 2.0], here)
    z = f64([3.0, 4.0], there).require_grad()
    gradients = (x.to_device(there) * z).sum().backward()
    assert len(gradients) == 1
    same(z.grad(gradients), [1.0, 2.0])
    with pytest.raises(AutodiffError, match="there is no tape to walk back"):
        x.to_device(there).backward()
    assert x.to_device(there.inner()).device is there.inner()
    tracked = f64([1.0], here).require_grad()
    assert not tracked.to_device(there).is_require_grad(), "no leaf: its gradient goes to the leaf that it came from"
    assert tracked.to_device(there.inner()).tolist() == [1.0]
    assert tracked.detach().to_device(there).tolist() == [1.0]


def test_other_element_types_cross_too(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    x = Tensor.from_data([1.5, -2.0], here).require_grad()
    half = x.cast(DType.F16).to_device(there)
    index = Tensor.from_ints([1, 0], here).to_device(there)
    y = (half.select(0, index) * Tensor.from_data([3.0, 4.0], there, DType.F16)).cast(DType.F32).to_device(here)
    gradient = x.grad((y * y).sum().backward())
    assert gradient is not None
    assert gradient.dtype is DType.F32
    same(gradient, [2 * 16 * 1.5, 2 * 9 * -2.0])


def test_second_derivatives_cross(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff().autodiff() for device in both)
    v = drawn(6, 3)
    x = f64(v, here.inner()).require_grad()
    outer = Tensor.from_inner(x).require_grad()
    y = outer.to_device(there).sin().to_device(here).sum()
    first = outer.grad(y.backward())
    assert first is not None
    assert first.device is here.inner()
    same(first, np.cos(v))
    same(x.grad((first * first).sum().backward()), -2.0 * np.cos(v) * np.sin(v))


def test_a_retained_tape_walks_again_and_a_used_one_says_so(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    x = f64([2.0], here).require_grad()
    moved = x.to_device(there)
    y = moved.to_device(here)
    for _ in range(2):
        same(x.grad(y.backward(retain_graph=True)), [1.0])
    y.backward()
    with pytest.raises(AutodiffError, match=r"(?s)an earlier backward has used up.*to_place.*retain_graph=True"):
        y.backward()


def test_checkpointing_tapes_meet() -> None:
    v = drawn(7, 6)
    x = f64(v, Device.cpu(fused=False).autodiff()).require_grad()
    moved = x.to_device(Device.cpu(fused=True).autodiff("balanced"))
    again = (moved.exp() * moved).to_device(Device.cpu(fused=False).autodiff("balanced"))
    same(x.grad(again.sum().backward()), np.exp(v) * (1.0 + v))


def test_from_fewer_tapes_to_more_and_back() -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff().autodiff()
    x = f64([3.0], here).require_grad()
    y = x.to_device(there)
    with pytest.raises(AutodiffError, match="there is no tape to walk back"):
        y.backward()  # a constant to the outer tape
    back = (y * y).to_device(here)
    same(x.grad(back.backward()), [6.0])


def test_a_gradient_of_another_leaf_is_replaced_on_its_own_device() -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff()
    x = f64([1.0, 2.0], here).require_grad()
    gradients = (x.to_device(there) * 2.0).sum().backward()
    x.grad_replace(gradients, f64([5.0, 6.0], here.inner()))
    same(x.grad_remove(gradients), [5.0, 6.0])
    with pytest.raises(AutodiffError, match=r"(?s)does not fit.*Fusion\(LibTorch\).*on LibTorch.*inner device"):
        x.grad_replace(gradients, f64([5.0, 6.0], there.inner()))


def test_random_programs_that_change_sides_have_the_gradients_of_one_side() -> None:
    """The same operations with a move before each, drawn by fixed seeds; sums may come in another order."""
    rows: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda a, b: a * b, lambda a, b: a + b.exp(), lambda a, b: a.sin() - b, lambda a, b: (a @ b) * 0.25,
        lambda a, b: activation.softmax(a, 1) + b, lambda a, b: a.sum_dim(0) * b,
    ]  # fmt: skip
    sides = [Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff()]
    for seed in range(12):
        draw = np.random.default_rng(seed)
        values = [draw.uniform(-1, 1, (4, 4)) for _ in range(3)]
        program = [(draw.integers(len(rows)), draw.integers(9), draw.integers(9), draw.integers(2)) for _ in range(8)]
        gradients_of_runs = []
        for moves in (False, True):
            leaves = [f64(v, sides[i % 2 if moves else 0]).require_grad() for i, v in enumerate(values)]
            pool: list[Tensor] = list(leaves)
            for row, i, j, side in program:
                device = sides[side if moves else 0]
                a, b = (pool[k % len(pool)].to_device(device) for k in (i, j))
                pool.append(rows[row](a, b))
            loss = pool[-1].sum()
            for y in pool[3:-1]:
                loss = loss + y.to_device(loss.device).sum()
            gradients = loss.backward()
            gradients_of_runs.append([leaf.grad(gradients) for leaf in leaves])
        for alone, moved, leaf in zip(*gradients_of_runs, leaves, strict=True):
            assert (alone is None) == (moved is None)
            if moved is not None:
                assert moved.device is leaf.device.inner()
                same(moved, alone.tolist())


def test_threads_cross_at_the_same_time() -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff()
    x = f64(drawn(8, 16), here).require_grad()
    gradients: list[Any] = []

    def work() -> None:
        for _ in range(10):
            y = (x.to_device(there).exp().to_device(here) * 2.0).to_device(there)
            gradients.append(x.grad(y.sum().backward()).tolist())  # type: ignore[union-attr]  # a missing one fails below

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(gradients) == 40
    assert all(each == gradients[0] for each in gradients)


def test_values_of_two_stacks_are_still_not_mixed() -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff()
    with pytest.raises(DeviceError, match=r"(?s)different backend stacks were mixed.*to_device"):
        f64([1.0], here).require_grad() + f64([1.0], there).require_grad()


# -- modules ---------------------------------------------------------------------------------------------------
class Split(Module):
    """Two layers, the second one on another device."""

    first: Param
    second: Param

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.matmul(self.first.val()).relu()
        return hidden.to_device(self.second.device).matmul(self.second.val())


def test_a_model_on_two_stacks_trains_as_on_one(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    v, a, b, goal = drawn(9, 5, 3), drawn(10, 3, 4), drawn(11, 4, 2), drawn(12, 5, 2)
    trained: list[list[Any]] = []
    for second in (here, there):
        model = Split(first=Param.from_tensor(f64(a, here)), second=Param.from_tensor(f64(b, second)))
        optimizer = SgdConfig().init()
        for _ in range(3):
            y = model.forward(f64(v, here))
            loss = (y - f64(goal, second)).powf_scalar(2.0).mean()
            grads = GradientsParams.from_grads(loss.backward(), model)
            assert len(grads) == 2
            model, optimizer = optimizer.step(0.1, model, grads)
        assert (model.first.device, model.second.device) == (here, second)
        trained.append([model.first.val().tolist(), model.second.val().tolist()])
    np.testing.assert_allclose(np.asarray(trained[0][0]), np.asarray(trained[1][0]), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(trained[0][1]), np.asarray(trained[1][1]), rtol=1e-12)


def test_moved_and_forked_modules_have_leaves_of_their_own(both: tuple[Device, Device]) -> None:
    here, there = (device.autodiff() for device in both)
    model = LinearConfig(3, 2).init(here)
    x = Tensor.from_data(drawn(13, 4, 3), there, DType.F32)
    for moved in (model.to_device(there), model.fork(there)):
        loss = moved.forward(x).sum()
        gradients = loss.backward()
        with pytest.warns(UntrainedWarning, match="gradients stop before parameters of this Linear"):
            assert len(GradientsParams.from_grads(gradients, model)) == 0
        gradients = moved.forward(x).sum().backward()
        grads = GradientsParams.from_grads(gradients, moved)
        assert {gradient.device for _, gradient in grads.items()} == {there.inner()}
        back = grads.to_device(here.inner())
        assert {gradient.device for _, gradient in back.items()} == {here.inner()}


# -- transforms --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("taped", [False, True], ids=["plain", "autodiff"])
def test_transforms_differentiate_through_moves(both: tuple[Device, Device], taped: bool) -> None:
    here, there = (device.autodiff() if taped else device for device in both)
    v, u, g = drawn(14, 3), drawn(15, 3), drawn(16, 3)
    x, direction, cotangent = f64(v, here), f64(u, both[0]), f64(g, both[1])

    def there_and_back(x: Tensor) -> Tensor:
        return (x.to_device(there).sin().to_device(here) * x).sum()

    def there_alone(x: Tensor) -> Tensor:
        return x.to_device(there).sin()

    first = np.cos(v) * v + np.sin(v)
    for fn, expected in ((there_and_back, first), (lambda x: there_alone(x).sum(), np.cos(v))):
        gradient = grad(fn)(x)
        assert gradient.device is both[0]
        same(gradient, expected)
    y, pullback = vjp(there_alone, x)
    assert y.device is both[1]
    (pulled,) = pullback(cotangent)
    assert pulled.device is both[0]
    same(pulled, np.cos(v) * g)
    y, tangent = jvp(there_alone, (x,), (direction,))
    assert (y.device, tangent.device) == (both[1], both[1])
    same(tangent, np.cos(v) * u)
    (product,) = hvp(there_and_back, (x,), (direction,))
    assert product.device is both[0]
    same(product, (2.0 * np.cos(v) - v * np.sin(v)) * u)
    again = grad(lambda x: (grad(there_and_back)(x) * f64(u, here)).sum())(x)
    same(again, (2.0 * np.cos(v) - v * np.sin(v)) * u)


def test_a_moved_result_beside_the_loss_is_a_plain_value(both: tuple[Device, Device]) -> None:
    here, there = both

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        moved = x.to_device(there) * 2.0
        return moved.sum(), moved

    gradient, more = grad(loss, has_aux=True)(f64([1.0, 2.0], here))
    assert more.device is there
    assert more.tolist() == [2.0, 4.0]
    same(gradient, [2.0, 2.0])


def test_samples_do_not_leave_their_stack() -> None:
    here, there = Device.cpu(fused=False), Device.cpu(fused=True)
    w, x = f64(drawn(17, 3), here), f64(drawn(18, 4, 3), here)
    with pytest.raises(TraceError, match=r"(?s)computes many samples at once.*mask_where"):
        per_sample_grad(lambda w, x: (w * x).to_device(there).sin().sum())(w, x)


# -- compiled ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fuse", [False, True])
def test_a_compiled_step_crosses(fuse: bool) -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cpu(fused=True).autodiff()
    v, w = drawn(18, 3), drawn(19, 3)

    def step(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.require_grad(), z.require_grad()
        y = (a.to_device(there) * b).exp().to_device(here) * a
        gradients = y.sum().backward()
        first, second = a.grad(gradients), b.grad(gradients)
        assert first is not None
        assert second is not None
        return first, second

    first, second = burn_torch.compile(step, fuse=fuse)(f64(v, here), f64(w, there))
    same(first, np.exp(v * w) * (1.0 + v * w))
    same(second, np.exp(v * w) * v * v)
    assert (first.device, second.device) == (here.inner(), there.inner())
    plain = step(f64(v, here), f64(w, there))
    assert (plain[0].tolist(), plain[1].tolist()) == (first.tolist(), second.tolist())


def test_a_compiled_function_stays_on_one_leaf() -> None:
    fn = burn_torch.compile(lambda x: x.to_device(Device.ndarray()) * 2.0)
    with pytest.raises(TraceError, match=r"(?s)computes on one backend.*NdArray.*move the arguments"):
        fn(f64([1.0], Device.cpu()))


def test_a_tensor_from_outside_is_not_frozen_by_its_move() -> None:
    outside = f64([1.0], Device.cpu(fused=False))
    fn = burn_torch.compile(lambda x: x + outside.to_device(x.device))
    with pytest.raises(TraceError, match=r"(?s)a tensor that is not among its arguments.*pass it as an argument"):
        fn(f64([2.0], Device.cpu(fused=True)))


# -- GPUs ----------------------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("fused", [False, True])
def test_gradients_cross_between_the_host_and_a_gpu(fused: bool) -> None:
    here, there = Device.cpu(fused=False).autodiff(), Device.cuda(0, fused=fused).autodiff()
    for one, two in ((here, there), (there, here)):
        v, w = drawn(20, 4), drawn(21, 4)
        x, z = f64(v, one).require_grad(), f64(w, two).require_grad()
        gradients = ((x.to_device(two) * z).exp().to_device(one) * x).sum().backward()
        same(x.grad(gradients), np.exp(v * w) * (1.0 + v * w))
        same(z.grad(gradients), np.exp(v * w) * v * v)
        assert (x.grad(gradients).place, z.grad(gradients).place) == (one.place, two.place)  # type: ignore[union-attr]
        same(grad(lambda x, two=two: x.to_device(two.inner()).sin().sum())(x.inner()), np.cos(v))
