"""The leaf computes the same inside of torch's modes as outside: eager, compiled and fused, on any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Tensor, compile, nn, value_and_grad
from burn_torch.backend import LibTorch
from burn_torch.ops import REGISTRY
from burn_torch.optim import AdamConfig, GradientsParams
from tests.ops import table_harness as table

AD = Device.cpu().autodiff()


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def default_device(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "default_dtype": lambda: default_dtype(torch.float64),
    "default_device": lambda: default_device("meta"),
    "deterministic": deterministic,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
}
WALKED: Final = ("autocast", "inference_mode", "default_dtype", "default_device", "deterministic")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[Any]]:
    return MODES[request.param]


class Net(Module):
    conv: nn.Conv1d
    norm: nn.BatchNorm
    linear: nn.Linear

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.norm.forward(self.conv.forward(x)).relu().flatten(1)
        return ((self.linear.forward(h) / 3.0 - y) ** 2).mean()


def net() -> Net:
    rng = np.random.default_rng(0)
    network = Net(nn.Conv1dConfig(2, 3, 3).init(AD), nn.BatchNormConfig(3).init(AD), nn.LinearConfig(12, 2).init(AD))
    return network.map_params(lambda p: p.map(lambda v: Tensor.from_data(rng.normal(size=v.shape).astype("f4"), AD)))


def data() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    return (
        Tensor.from_data(rng.normal(size=(5, 2, 6)).astype("f4"), AD),
        Tensor.from_data(rng.normal(size=(5, 2)).astype("f4"), AD),
    )


def step(model: Net, optim: Any, x: Tensor, y: Tensor) -> Any:
    loss = model.loss(x, y)
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(1e-2, model, grads)
    return model, optim, loss.detach()


def trained(run: Callable[..., Any], model: Net, steps: int = 3) -> list[float]:
    x, y = data()
    optim = AdamConfig().init()
    losses = []
    for _ in range(steps):
        model, optim, loss = run(model, optim, x, y)
        losses.append(float(loss))
    return losses


RUNS: Final[dict[str, Callable[[], Callable[..., Any]]]] = {
    "eager": lambda: step,
    "compiled": lambda: compile(step),
    "donated": lambda: compile(step, donate=("model", "optim")),
    "fused": lambda: compile(step, fuse=True),
}


@pytest.mark.parametrize("how", RUNS)
def test_training_is_the_same_in_a_mode(how: str, mode: Callable[[], AbstractContextManager[Any]]) -> None:
    if how == "fused" and mode not in (MODES["autocast"], MODES["inference_mode"], MODES["default_device"]):
        pytest.skip("kernels of C meet no other mode")
    expected = trained(RUNS[how](), net())
    run = RUNS[how]()
    with mode():
        assert trained(run, net()) == expected  # built, traced and run in the mode
    assert trained(run, net()) == expected  # what the mode has left
    with mode():
        assert trained(run, net()) == expected


def test_parameters_made_in_inference_mode_train_outside() -> None:
    expected = trained(step, net())
    with torch.inference_mode():
        model = net()
        x = Tensor.from_torch(torch.ones(2, 3))
        assert not x.into_torch().is_inference()
    assert trained(step, model) == expected
    leaf = Tensor.from_inner(x).require_grad()
    assert np.asarray(leaf.grad((leaf * leaf).backward())).tolist() == [[2.0] * 3] * 2


def test_gradients_walked_in_another_mode_than_recorded(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    model, (x, y) = net(), data()
    expected = np.asarray(value_and_grad(Net.loss)(model, x, y)[1].get(model.linear.weight.id))
    loss = model.loss(x, y)
    with mode():
        grads = GradientsParams.from_grads(loss.backward(), model)
    grad = grads.get(model.linear.weight.id)
    assert grad is not None
    np.testing.assert_array_equal(np.asarray(grad), expected)


def test_another_thread_in_a_mode_changes_nothing_here() -> None:
    expected = trained(step, net())
    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
            entered.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    try:
        assert trained(step, net()) == expected
    finally:
        done.set()
        thread.join()


def test_autocast_is_as_before_after_an_operation() -> None:
    weight = torch.ones(2, 2)
    x = Tensor.ones((2, 2), Device.cpu())
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).into_torch().dtype is torch.float32
        assert (weight @ weight).dtype is torch.bfloat16


def test_fused_device_in_a_mode(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    def run() -> list[float]:
        x = Tensor.from_data(np.arange(12.0, dtype="f4").reshape(3, 4), Device.cpu().fused())
        return ((x @ x.transpose()).exp().recip() + x.sum_dim(1)).into_data().to_vec()  # type: ignore[no-any-return]

    expected = run()
    with mode():
        assert run() == expected


# -- the table ----------------------------------------------------------------------------------------------
def _bits(outputs: Any) -> list[Any]:
    def seen(y: torch.Tensor) -> torch.Tensor:
        return y.contiguous().view(torch.int16) if y.dtype is torch.bfloat16 else y

    return [y if y is None else (y.dtype, tuple(y.shape), seen(y).numpy().tobytes()) for y in outputs]


def _differences(name: str, modes: tuple[str, ...]) -> list[str]:
    leaf, differences = LibTorch(), []
    for case in table.cases(name):
        for variant in table.variants(case):
            call = variant.call("cpu")
            inputs = [leaf.from_data(x, "cpu") if isinstance(x, table.TensorData) else x for x in variant.data]
            expected = _bits(leaf.execute(call, inputs))
            for mode in modes:
                for first in (True, False):
                    if first:  # planned in the mode
                        call.plans.clear()
                        call.memo.clear()
                    with MODES[mode]():
                        outputs = leaf.execute(call, inputs)
                    if _bits(outputs) != expected or any(y is not None and y.is_inference() for y in outputs):
                        differences.append(f"{variant!r} under {mode}")
    return differences


@pytest.mark.parametrize("name", ["matmul", "linear", "cat", "div", "atan2", "hypot", "fmod", "sum", "reshape", "exp"])
def test_a_row_computes_the_same_in_every_mode(name: str) -> None:
    assert _differences(name, WALKED) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, row in REGISTRY.items() if "::" not in n and not table.is_of_numbers(row)])
def test_every_row_computes_the_same_in_every_mode(name: str) -> None:
    assert _differences(name, WALKED) == []
