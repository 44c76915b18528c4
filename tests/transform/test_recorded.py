"""Recorded programs under compile, on the CPU: an arena that computes again stands for a GPU that replays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

import burn_torch
from burn_torch import Device, Tensor, compile
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.libtorch.recorded.capture import capture
from burn_torch.graph import Graph
from burn_torch.optim import AdamWConfig, SgdConfig
from burn_torch.transform import program
from burn_torch.transform.flatten import Lent
from tests.backend.libtorch.host_arena import HostArena, compiled
from tests.transform.test_compile_gpu import Net, batch, net, training_step

TAPE = Device.cpu().autodiff()


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All programs are recorded, in one arena; the list has them."""
    arena, recordings = HostArena(), []

    def recorded(
        self: LibTorch,
        graph: Graph,
        donate: Collection[int] = (),
        *,
        hold: Collection[int] = (),
        before_overwriting: Callable[[Sequence[Any]], None],
    ) -> Any:
        recording = capture(
            graph, donate, hold=hold, arena=arena, compile=compiled(arena), before_overwriting=before_overwriting
        )
        recordings.append(recording)
        return recording

    monkeypatch.setattr(TorchCapabilities, "recorded", recorded)
    monkeypatch.setattr(program, "_on_device", lambda graph: True)
    return recordings


def weights(model: Net) -> Any:
    return model.linear.weight.val().into_data().values.copy()


def test_a_state_that_comes_back_is_neither_copied_nor_looked_at(programs: list[Any]) -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(TAPE)
    model, optim = net(TAPE), AdamWConfig().init()
    model, optim, _ = step(model, optim, x, y, 1e-3)
    recorded, counts = programs[0], []
    call = recorded.again

    def seen(others: Any) -> Any:
        counts.append(len(others))
        return call(others)

    recorded.again = seen
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Lent, "__iter__")  # nobody goes through the leaves
        for _ in range(3):
            model, optim, _ = step(model, optim, x, y, 1e-3)
    tensors = len(recorded._recorded._owned)
    assert counts == [len(recorded.graph.inputs) - tensors] * 3
    buffers = {id(x) for x in recorded._recorded._owned}
    assert {id(leaf) for leaf in model._flat.leaves} <= buffers


def test_training_equals_eager_training(programs: list[Any]) -> None:
    step = compile(training_step, donate=("model", "optim"), numerics="eager")
    x, y = batch(TAPE)
    results: list[Any] = []
    for function in (training_step, step):
        model, optim = net(TAPE), AdamWConfig().init()
        burn_torch.seed(5)
        for i in range(6):
            model, optim, _ = function(model, optim, x, y, 1e-3 * (i + 1))
        results.append(weights(model))
    assert abs(results[0] - results[1]).max() < 1e-6


def test_two_states_take_turns() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(TAPE)
    start = net(TAPE, 0.0)
    states: dict[float, Any] = {lr: (start.fork(TAPE), SgdConfig().init()) for lr in (0.1, 0.01)}
    for _ in range(4):
        for lr, (model, optim) in states.items():
            model, optim, _ = step(model, optim, x, y, lr)
            states[lr] = (model, optim)
    assert step.traces == 1
    for lr, (model_of_rate, _) in states.items():
        model, optim = start.fork(TAPE), SgdConfig().init()
        for _ in range(4):
            model, optim, _ = training_step(model, optim, x, y, lr)
        assert abs(weights(model_of_rate) - weights(model)).max() < 1e-6


def test_shapes_take_turns_over_one_state() -> None:
    step = compile(training_step, donate=("model", "optim"))
    batches = [batch(TAPE, size) for size in (8, 5, 8, 3)]
    results: list[Any] = []
    for function in (training_step, step):
        model, optim = net(TAPE, 0.0), AdamWConfig().init()
        for x, y in batches * 2:
            model, optim, _ = function(model, optim, x, y, 1e-3)
        results.append(weights(model))
    assert step.traces == 3
    assert abs(results[0] - results[1]).max() < 1e-6


def test_what_was_read_and_what_was_lent_keep_their_values() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(TAPE)
    model, optim = net(TAPE), AdamWConfig().init()
    seen, lent = [], []
    for i in range(4):
        model, optim, loss = step(model, optim, x, y, 1e-2)
        seen.append((model.linear.weight.val(), weights(model), loss, float(loss)))
        other = step(net(TAPE), AdamWConfig().init(), x, y, 1e-2 * (i + 2))  # another state in the same program
        lent.append((other[0], None))
    assert all((weight.into_data().values == value).all() for weight, value, _, _ in seen)
    assert [float(loss) for _, _, loss, _ in seen] == [value for *_, value in seen]
    assert len({weights(tree).tobytes() for tree, _ in lent}) == 4


def test_bare_tensors_that_are_donated() -> None:
    double = compile(lambda x: x * 2.0, donate="x")
    results = [double(Tensor.full((3,), float(n), Device.cpu())) for n in range(5)]
    assert [r.tolist() for r in results] == [[2.0 * n] * 3 for n in range(5)]


def test_threads_with_states_of_their_own() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(TAPE)
    start = net(TAPE, 0.0)
    weights_of_rate: dict[float, Any] = {}

    def work(lr: float) -> None:
        model, optim = start.fork(TAPE), SgdConfig().init()
        for _ in range(10):
            model, optim, _ = step(model, optim, x, y, lr)
        weights_of_rate[lr] = weights(model)

    threads = [threading.Thread(target=work, args=(0.01 * (i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lr, value in weights_of_rate.items():
        model, optim = start.fork(TAPE), SgdConfig().init()
        for _ in range(10):
            model, optim, _ = training_step(model, optim, x, y, lr)
        assert abs(value - weights(model)).max() < 1e-5
    assert len(weights_of_rate) == 4


def test_a_state_outlives_the_program_that_returned_it() -> None:
    step, other = (compile(training_step, donate=("model", "optim")) for _ in range(2))
    x, y = batch(TAPE)
    start = net(TAPE, 0.0)
    model, optim, _ = step(start.fork(TAPE), SgdConfig().init(), x, y, 0.1)
    model, optim, _ = other(model, optim, x, y, 0.1)  # its state lies in the memory of the first program's
    del other
    gc.collect()
    step(start.fork(TAPE), SgdConfig().init(), x, y, 0.5)
    expected, optim = start.fork(TAPE), SgdConfig().init()
    for _ in range(2):
        expected, optim, _ = training_step(expected, optim, x, y, 0.1)
    assert step.traces == 1
    assert abs(weights(model) - weights(expected)).max() < 1e-6


def test_a_fresh_optimizer_beside_a_model_whose_running_state_was_set() -> None:
    step = compile(training_step, donate=("model", "optim"))
    x, y = batch(TAPE)
    start = net(TAPE, 0.0)
    states = []
    for function in (training_step, step):
        model, _, _ = function(start.fork(TAPE), AdamWConfig().init(), x, y, 1e-2)
        mean = model.norm.running_mean
        mean.update(mean.value() * 2.0)
        model, _, _ = function(model, AdamWConfig().init(), x, y, 1e-2)
        states.append((weights(model), model.norm.running_mean.value().into_data().values))
    assert all(abs(a - b).max() < 1e-6 for a, b in zip(*states, strict=True))
