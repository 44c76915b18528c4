"""Recorded programs: training, and who holds what, with an arena that replays by computing again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.recorded.segments import divide
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import FLOAT_NUMBER
from burn_torch.graph import interpret
from burn_torch.graph.passes.memory import memory_plan
from tests.backend.libtorch.capturing import capture
from tests.backend.libtorch.host_arena import (
    HostArena,
    batches,
    captured,
    elementwise,
    exactly,
    initial_state,
    spec,
    train,
    training_step,
)


# -- training ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"cautious": True}], ids=str)
def test_a_recorded_step_trains_as_the_interpreter_does(options: dict[str, Any]) -> None:
    graph, kinds = training_step(**options), 4 if options.get("amsgrad") else 3
    program, arena = captured(graph, range(4 * kinds))
    state, losses = train(program, 5, initial_state(kinds=kinds))
    expected, expected_losses = exactly(graph, 5, initial_state(kinds=kinds))
    # the update with numbers on the device multiplies in another order: a few units of float32 in five steps
    torch.testing.assert_close(state, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-6)
    assert program.splits == ()
    assert (len(arena.recordings), arena.warm_ups, arena.recordings[0].replays) == (1, 1, 5)


def test_state_stays_where_the_first_call_brought_it() -> None:
    program, _ = captured(training_step(), range(12))
    state = initial_state()
    first, second = batches(2)
    once = program(*state, *first, 0.1, 0, 1)
    assert all(x is y for x, y in zip(once[:12], state, strict=True))
    twice = program(*once[:12], *second, 0.1, once[13], 2)
    assert all(x is y for x, y in zip(twice[:12], state, strict=True))
    assert twice[13] == 2


def test_losses_that_the_caller_holds_keep_their_values() -> None:
    program, _ = captured(training_step(), range(12))
    _, losses = train(program, 4, initial_state())
    assert len({float(loss) for loss in losses}) == 4


def test_recording_trains_nothing() -> None:
    graph = training_step()
    program, _ = captured(graph, range(12))
    [batch] = batches(1)
    once = program(*initial_state(), *batch, 0.1, 0, 1)
    expected = interpret(graph, LibTorch(), [*initial_state(), *batch, 0.1, 0, 1])
    torch.testing.assert_close(list(once[:13]), expected[:13], rtol=1e-6, atol=1e-7)


def test_state_from_elsewhere_is_copied_in() -> None:
    """A record that was loaded, or another model of the same shapes."""
    graph = training_step()
    program, _ = captured(graph, range(12))
    first, second = batches(2)
    kept = program(*initial_state(), *first, 0.1, 0, 1)
    other = [x * 0.5 + 0.1 for x in initial_state()]
    copies = [x.clone() for x in other]
    outputs = program(*other, *second, 0.1, 3, 2)
    expected = interpret(graph, LibTorch(), [*copies, *second, 0.1, 3, 2])
    torch.testing.assert_close(list(outputs[:13]), expected[:13], rtol=1e-6, atol=1e-7)
    assert all(x is y for x, y in zip(outputs[:12], kept[:12], strict=True))
    assert all(torch.equal(x, y) for x, y in zip(other, copies, strict=True))


def test_programs_of_two_batch_sizes_share_the_state() -> None:
    small, large = training_step(batch=4), training_step(batch=7)
    arena = HostArena()
    programs = [capture(graph, range(12), arena=arena) for graph in (small, large)]
    state: list[Any] = initial_state()
    expected: list[Any] = initial_state()
    objects = list(state)
    for number in range(4):
        [batch] = batches(1, 7 if number % 2 else 4)
        state = list(programs[number % 2](*state, *batch, 0.1, number, number)[:12])
        expected = interpret((small, large)[number % 2], LibTorch(), [*expected, *batch, 0.1, number, number])[:12]
    assert all(x is y for x, y in zip(state, objects, strict=True))
    torch.testing.assert_close(state, expected, rtol=1e-5, atol=1e-6)
    assert programs[1].sizes.static_bytes < 7 * 6 * 4 + 7 * 8 + 100  # a batch and the numbers, no state


def test_an_update_whose_outputs_come_in_another_order_writes_in_place() -> None:
    def build(p: Any, g: Any, m: Any, v: Any, lr: Any) -> list[Any]:
        new, mean, square = ops.adam_update(lr, 0.9, 0.99, 1e-8, 0.0, 0.0, 3, p, g, m, v, amsgrad=False, cautious=False)
        return [square, new, mean]

    planned = divide(elementwise(build, *[spec(3)] * 4, FLOAT_NUMBER), "cpu", (0, 2, 3))
    assert planned.takes == (3, 0, 2)


# -- who holds what ----------------------------------------------------------------------------------------
def test_an_update_is_in_place_though_a_gradient_lies_otherwise() -> None:
    """The gradient of a transposed product has its axes in another order: all state was copied twice for it."""

    def build(p: Any, turned: Any, m: Any, v: Any, lr: Any) -> list[Any]:
        g = ops.permute(turned, axes=(1, 0))
        return list(ops.adam_update(lr, 0.9, 0.99, 1e-8, 0.0, 0.0, 3, p, g, m, v, amsgrad=False, cautious=False))

    graph = elementwise(build, spec(3, 5), spec(5, 3), spec(3, 5), spec(3, 5), FLOAT_NUMBER)
    (segment,) = divide(graph, "cpu", (0, 2, 3)).segments
    written = memory_plan(segment.graph, segment.donated).in_place
    assert [len(pairs) for pairs in written.values()] == [3]
    program, _ = captured(graph, (0, 2, 3))
    inputs = [torch.rand(3, 5), torch.rand(5, 3), torch.rand(3, 5), torch.rand(3, 5)]
    expected = interpret(graph, LibTorch(), [*(x.clone() for x in inputs), 0.1])
    outputs = program(*inputs, 0.1)
    torch.testing.assert_close(list(outputs), expected, rtol=1e-6, atol=1e-7)
    assert all(x is inputs[i] for x, i in zip(outputs, (0, 2, 3), strict=True))


def test_a_swap_of_state_is_a_swap_each_time() -> None:
    """Outputs that are inputs of another position: what comes back lies in the wrong buffers."""
    graph = elementwise(lambda a, b: [b, a * 1.0], spec(3), spec(3))
    program, _ = captured(graph, (0, 1))
    a, b = torch.arange(3.0), torch.arange(3.0) + 10
    for number in range(4):
        a, b = program(a, b)
        assert (float(a[0]), float(b[0])) == ((10, 0) if number % 2 == 0 else (0, 10))


def test_views_of_state_are_read_before_it_is_written() -> None:
    graph = elementwise(
        lambda a, b: [a * 2.0, ops.reshape(a, shape=(3, 2)), ops.reshape(b, shape=(2, 3)), b + 1.0],
        spec(2, 3),
        spec(3, 2),
    )
    program, _ = captured(graph, (0, 1))
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2) + 10
    expected = interpret(graph, LibTorch(), [a.clone(), b.clone()])
    for x, y in zip(program(a, b), expected, strict=True):
        assert torch.equal(x, y)


def test_equal_outputs_and_outputs_that_are_inputs() -> None:
    def build(a: Any, x: Any) -> list[Any]:
        y = a + x
        return [y, y, x, a, None]

    program, _ = captured(elementwise(build, spec(2), spec(2)), (0,))
    a, x = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    first = program(a, x)
    assert [None if y is None else y.tolist() for y in first] == [[11, 22], [11, 22], [10, 20], [1, 2], None]
    kept = [y.clone() for y in first[:3]]
    program(first[3], x * 2)
    assert all(torch.equal(x, y) for x, y in zip(first[:3], kept, strict=True))
    assert first[2] is not x


def test_donated_tensors_that_share_memory_get_buffers_of_their_own() -> None:
    both = torch.zeros(2, 3)
    program, _ = captured(elementwise(lambda a, b: [a + 1.0, b + 2.0], spec(3), spec(3)), (0, 1))
    a, b = program(both[0], both[0])
    assert (a.tolist(), b.tolist()) == ([1, 1, 1], [2, 2, 2])
    a, b = program(a, b)
    assert (a.tolist(), b.tolist()) == ([2, 2, 2], [4, 4, 4])


def test_a_donated_tensor_that_is_an_input_too_is_not_overwritten_under_it() -> None:
    program, _ = captured(elementwise(lambda a, x: [a + x], spec(3), spec(3)), (0,))
    x = torch.ones(3)
    (a,) = program(x, x)
    assert (a.tolist(), x.tolist()) == ([2, 2, 2], [1, 1, 1])


def test_donated_views_with_gaps_are_copied() -> None:
    whole = torch.zeros(3, 4)
    program, _ = captured(elementwise(lambda a: [a + 1.0], spec(4, 3)), (0,))
    (a,) = program(whole.T)
    assert a.is_contiguous()
    assert torch.equal(program(a)[0], torch.full((4, 3), 2.0))
    assert not whole.any()


def test_inputs_of_any_layout_and_of_no_elements() -> None:
    graph = elementwise(lambda a, x, z: [a * x, z + 1.0], spec(3, 2), spec(3, 2), spec(0, 4))
    program, _ = captured(graph)
    x, a = torch.arange(6.0).reshape(2, 3).T, torch.arange(3.0)[:, None].expand(3, 2)
    for _ in range(2):
        y, z = program(a, x, torch.empty(0, 4))
        assert torch.equal(y, a * x)
        assert z.shape == (0, 4)


def test_held_inputs_are_read_where_they_lie() -> None:
    graph = elementwise(lambda w, x: [w * x], spec(3), spec(3))
    program, arena = captured(graph, hold=(0,))
    w, x = torch.ones(3), torch.arange(3.0)
    assert program(w, x)[0].tolist() == [0, 1, 2]
    w.mul_(3)  # by a training step that owns it
    assert program(w, x)[0].tolist() == [0, 3, 6]
    assert len(arena.recordings) == 1
    for factor in (5.0, 7.0, 9.0, 11.0):
        assert program(torch.full((3,), factor), x)[0].tolist() == [0, factor, 2 * factor]
    assert len(arena.recordings) == 4  # after three others they are copied


# -- closing, threads ----------------------------------------------------------------------------------------------
def test_a_closed_program_says_so_and_leaves_results() -> None:
    program, _ = captured(elementwise(lambda a, x: [a + x, a * x], spec(2), spec(2)), (0,))
    a, y = program(torch.ones(2), torch.ones(2))
    assert program.sizes.recordings == 1
    program.close()
    assert (a.tolist(), y.tolist()) == ([2, 2], [1, 1])
    assert program.sizes.recordings == 0
    with pytest.raises(DeviceError, match=r"(?s)is closed.*after close.*not given back.*capture it again"):
        program(a, y)


def test_threads_take_turns() -> None:
    program, _ = captured(elementwise(lambda x, n: [ops.exp(x) * n], spec(1000), FLOAT_NUMBER))
    x = torch.linspace(0, 1, 1000)
    wrong: list[float] = []

    def work(worker: int) -> None:
        for n in range(20):
            (y,) = program(x, float(100 * worker + n))
            if not torch.allclose(y, x.exp() * (100 * worker + n)):
                wrong.append(worker)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_lost_device_is_reported() -> None:
    class Lost(HostArena):
        def record(self, run: Any, writes: Any) -> Any:
            recording: Any = super().record(run, writes)

            def replay() -> None:
                raise RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be ...")

            recording.replay = replay
            return recording

    program = capture(elementwise(lambda a: [ops.exp(a)], spec(3)), arena=Lost())
    with pytest.raises(DeviceError, match=r"(?s)GPU failed.*device-side assert.*stay within.*start the process again"):
        program(torch.ones(3))
