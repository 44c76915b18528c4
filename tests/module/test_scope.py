"""StepScope and RunningState: the same numbers however a step runs, and statistics that leave it as values."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from burn_torch.backend.decorator import leaf_primitive
from burn_torch.core import ambient
from burn_torch.core.errors import ArgumentError
from burn_torch.core.philox import fold, stream_of
from burn_torch.core.spec import INT_NUMBER
from burn_torch.graph import Trace
from burn_torch.module import Module, RunningState, StepScope, current_scope, draw, scope
from burn_torch.ops import REGISTRY, Value
from burn_torch.tensor import Device, Tensor

CPU = Device.cpu()
KEY = fold(2026, 3)
_dropout, _sum, _exp, _reshape = (REGISTRY[name] for name in ("dropout", "sum", "exp", "reshape"))


def total(x: Any) -> Any:
    return _reshape(_sum(x, dims=(0, 1)), shape=())


class Drop(Module):
    """Dropout as a layer asks for it."""

    prob: float

    def forward(self, x: Any) -> Any:
        return _dropout(x, self.prob, *draw(self))


class Norm(Module):
    """Subtracts the mean of the batch and keeps a running one."""

    mean: RunningState

    def forward(self, x: Any) -> Any:
        batch = total(x) * (1 / 60)
        self.mean.update(self.mean.value() * 0.5 + batch * 0.5)
        return x - batch


class Net(Module):
    first: Drop
    rest: list[Drop]
    norm: Norm

    def forward(self, x: Any) -> Any:
        for layer in (self.first, *self.rest):
            x = layer.forward(x)
        return x


def net() -> Net:
    return Net(Drop(0.5), [Drop(0.3), Drop(0.3)], Norm(RunningState(Tensor.from_data(1.0, CPU))))


def batch(device: Device = CPU) -> Tensor:
    return Tensor.from_data(np.arange(1.0, 61.0, dtype=np.float32).reshape(3, 20), device)


def run(model: Any, key: int = KEY, x: Tensor | None = None) -> Any:
    with StepScope(key, model):
        return model.forward(batch() if x is None else x).into_data().values


def test_a_running_state_is_shown_by_its_id_and_shape() -> None:
    state = RunningState(Tensor.from_data([1.0, 2.0], CPU))
    assert repr(state) == f"RunningState({state.id}, shape=(2,))"


# -- draws -------------------------------------------------------------------------------------------------
def test_a_draw_is_named_by_key_path_and_count() -> None:
    model = net()
    with StepScope(KEY, model) as opened:
        assert draw(model.rest[1]) == (KEY, stream_of("module:.rest.1#0"))
        assert draw(model.rest[1]) == (KEY, stream_of("module:.rest.1#1"))
        assert opened.draw(model.first) == (KEY, stream_of("module:.first#0"))
    with StepScope(KEY, {"critic": model}):
        assert draw(model.first) == (KEY, stream_of("module:critic.first#0"))


def test_same_key_same_numbers_and_another_key_others() -> None:
    model = net()
    np.testing.assert_array_equal(run(model), run(model))
    np.testing.assert_array_equal(run(model), run(net()))  # paths, not identities
    assert not np.array_equal(run(model), run(model, fold(2026, 4)))


def test_order_of_calls_does_not_matter() -> None:
    model = net()
    with StepScope(KEY, model):
        forward = {id(layer): draw(layer) for layer in (model.first, *model.rest)}
    with StepScope(KEY, model):
        backward = {id(layer): draw(layer) for layer in (*model.rest[::-1], model.first)}
    assert forward == backward
    assert len(set(forward.values())) == 3


def test_a_shared_layer_draws_anew_each_time_and_the_same_every_step() -> None:
    shared = Drop(0.5)
    model = Net(shared, [shared, Drop(0.5)], Norm(RunningState(Tensor.from_data(1.0, CPU))))
    draws = []
    for _ in range(2):
        with StepScope(KEY, model):
            draws.append([shared.forward(batch()).into_data().values for _ in range(2)])
    assert not np.array_equal(draws[0][0], draws[0][1])
    np.testing.assert_array_equal(draws[0], draws[1])
    with StepScope(KEY, model):  # named by its first place
        assert draw(shared)[1] == stream_of("module:.first#0")


def test_a_layer_of_no_root_is_named_by_its_class_and_order() -> None:
    with StepScope(KEY, net()):
        streams = [draw(Drop(0.5)), draw(Drop(0.1))]
    assert streams == [(KEY, stream_of("class:Drop#0")), (KEY, stream_of("class:Drop#1"))]
    with StepScope(KEY):
        assert [draw(Drop(0.5)), draw(Drop(0.1))] == streams


def test_other_random_operations_draw_from_the_scope_too() -> None:
    with StepScope(KEY) as opened:
        assert ambient.next_key() == (KEY, stream_of("name:random#0"))
        assert opened.draw("noise") == (KEY, stream_of("name:noise#0"))
        assert ambient.next_key() == (KEY, stream_of("name:random#1"))


# -- however it runs -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("checkpoint", ["none", "balanced"])
def test_backward_and_recomputation_use_the_mask_of_the_forward(checkpoint: str) -> None:
    from burn_torch.backend import Autodiff, LibTorch

    model = net()
    stack = Autodiff(LibTorch(), checkpoint)
    x = Tensor(stack, stack.track(batch().primitive, batch().spec), batch().spec)
    with StepScope(KEY, model):
        y = model.forward(x)
        loss = total(_exp(y * 0.01))
    eager = run(model)
    np.testing.assert_array_equal(y.into_data().values, eager)
    [(_, gradient)] = stack.backward([(loss.primitive, Tensor.from_data(1.0, CPU).primitive)]).items()
    slope = np.where(eager == 0, 0, eager / batch().into_data().values)
    expected = slope * np.exp(eager * 0.01) * 0.01
    np.testing.assert_allclose(stack.inner.into_data(gradient).values, expected, rtol=1e-6)


def test_a_graph_traced_once_draws_what_the_eager_step_draws() -> None:
    """The key is an input of the graph: one trace serves every step."""
    model, x = net(), batch()
    trace = Trace()
    slot, key = trace.input(x.spec), trace.input(INT_NUMBER)
    with StepScope(key, model):
        graph = trace.graph([model.forward(slot)])
    compiled = x.backend.compile(graph)
    for step in range(3):
        eager = run(model, fold(KEY, step))
        draw = leaf_primitive(x.backend, compiled(x.primitive, fold(KEY, step))[0])
        np.testing.assert_array_equal(draw.numpy(), eager)


def test_threads_at_once_draw_what_they_draw_alone() -> None:
    model = net()
    serial = [run(model, fold(KEY, i)) for i in range(8)]
    draws: dict[int, Any] = {}
    start = threading.Barrier(4, timeout=60)

    def work(worker: int) -> None:
        start.wait()
        for i in range(worker, 8, 4):
            draws[i] = run(model, fold(KEY, i))

    in_threads(4, work)
    for i, expected in enumerate(serial):
        np.testing.assert_array_equal(draws[i], expected)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- scopes ------------------------------------------------------------------------------------------------
def test_scopes_nest_and_the_outer_one_goes_on_counting() -> None:
    layer = Drop(0.5)
    with StepScope(1, layer) as outer:
        assert draw(layer) == (1, stream_of("module:#0"))
        with StepScope(2, layer) as inner:
            assert current_scope() is inner
            assert draw(layer) == (2, stream_of("module:#0"))
        assert current_scope() is outer
        assert draw(layer) == (1, stream_of("module:#1"))
    assert current_scope() is None


def test_an_exception_restores_the_outer_scope() -> None:
    with StepScope(1) as outer:
        with pytest.raises(KeyError, match="lost"), StepScope(2):
            raise KeyError("lost")
        assert current_scope() is outer
    with pytest.raises(KeyError, match="lost"), StepScope(2):
        raise KeyError("lost")
    assert current_scope() is None


def test_a_scope_serves_one_step() -> None:
    opened = StepScope(1)
    with opened:
        pass
    with pytest.raises(ArgumentError, match=r"(?s)entered before.*given:    a second.*expected: one `with`.*mend: "):
        opened.__enter__()
    assert current_scope() is None


def test_another_thread_is_not_in_the_scope() -> None:
    scopes: list[Any] = []
    with StepScope(1):
        in_threads(1, lambda _: scopes.append(current_scope()))
    assert scopes == [None]


def test_eager_code_repeats_after_seed() -> None:
    layer = Drop(0.5)
    draws = []
    for number in (7, 7, 8):
        ambient.seed(number)
        draws.append([layer.forward(batch()).into_data().values for _ in range(3)])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert not np.array_equal(draws[0][0], draws[0][1])


# -- paths -------------------------------------------------------------------------------------------------
def test_a_root_is_walked_once_and_only_if_it_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    walk = scope._walk

    def counted(node: Any, path: str, paths: dict[int, str]) -> None:
        walked.append(id(node))
        walk(node, path, paths)

    monkeypatch.setattr(scope, "_walk", counted)
    model = net()
    with StepScope(1, model):
        pass
    assert walked == []
    for _ in range(3):
        with StepScope(1, model):
            draw(model.first)
    assert walked.count(id(model)) == 1
    assert walked.count(id(model.rest[1])) == 1


def test_paths_are_forgotten_with_their_root() -> None:
    model = net()
    with StepScope(1, model):
        draw(model.first)
    key = id(model)
    assert key in scope._walked
    del model
    gc.collect()
    assert key not in scope._walked


def test_an_identity_taken_over_by_another_root_is_walked_again() -> None:
    model = net()
    with StepScope(1, model):
        draw(model.first)
    scope._walked[id(model)] = (lambda: None, {id(model.first): "module:.stale"})  # type: ignore[assignment]
    with StepScope(1, model):
        assert draw(model.first)[1] == stream_of("module:.first#0")


# -- states ------------------------------------------------------------------------------------------------
def test_a_scope_keeps_new_states_and_leaves_the_cells() -> None:
    model = net()
    cell = model.norm.mean
    with StepScope(1, model) as opened:
        model.norm.forward(batch())
        assert float(cell.value().into_data().values) == pytest.approx(1 * 0.5 + 30.5 * 0.5)
        model.norm.forward(batch())  # reads what the first call handed in
        assert float(cell.value().into_data().values) == pytest.approx(15.75 * 0.5 + 30.5 * 0.5)
    assert float(cell.value().into_data().values) == 1.0
    assert list(opened.states) == [cell.id]
    trained = model.with_states(opened.states)
    assert trained.norm.mean.id == cell.id
    assert float(trained.norm.mean.value().into_data().values) == pytest.approx(23.125)
    assert float(cell.value().into_data().values) == 1.0


def test_eager_code_writes_the_cell() -> None:
    model = net()
    model.norm.forward(batch())
    assert float(model.norm.mean.value().into_data().values) == pytest.approx(15.75)


def test_nested_scopes_keep_their_own_states() -> None:
    cell = RunningState(Tensor.from_data(1.0, CPU))
    with StepScope(1) as outer:
        cell.update(Tensor.from_data(2.0, CPU))
        with StepScope(2) as inner:
            assert float(cell.value().into_data().values) == 1.0
            cell.update(Tensor.from_data(3.0, CPU))
        assert float(cell.value().into_data().values) == 2.0
    assert float(outer.states[cell.id].into_data().values) == 2.0
    assert float(inner.states[cell.id].into_data().values) == 3.0


def test_threads_that_share_a_module_do_not_disturb_each_other() -> None:
    model = net()
    means: dict[int, Any] = {}
    start = threading.Barrier(4, timeout=60)

    def work(worker: int) -> None:
        with StepScope(worker, model) as opened:
            for step in range(25):
                start.wait()
                model.norm.forward(batch() * (worker + 1.0) + step)
        means[worker] = float(opened.states[model.norm.mean.id].into_data().values)

    in_threads(4, work)
    for worker in range(4):
        expected = 1.0
        for step in range(25):
            expected = expected * 0.5 + (30.5 * (worker + 1) + step) * 0.5
        assert means[worker] == pytest.approx(expected, rel=1e-6)
    assert float(model.norm.mean.value().into_data().values) == 1.0


def test_two_copies_with_one_identity_are_distinguished() -> None:
    student = RunningState(Tensor.from_data(1.0, CPU))
    teacher = student.with_value(Tensor.from_data(9.0, CPU))
    with StepScope(1) as opened:
        student.update(Tensor.from_data(2.0, CPU))
        assert float(teacher.value().into_data().values) == 9.0
        with pytest.raises(
            ArgumentError, match=r"(?s)one id were updated.*given:    id .*expected: one module.*valid\(\)"
        ):
            teacher.update(Tensor.from_data(8.0, CPU))
    assert float(opened.states[student.id].into_data().values) == 2.0


def test_a_state_handed_in_under_a_trace_is_an_output_of_the_graph() -> None:
    cell = RunningState(Tensor.from_data(1.0, CPU))
    trace = Trace()
    new = trace.input(batch().spec)
    with StepScope(trace.input(INT_NUMBER)) as opened:
        cell.update(new * 2.0)  # type: ignore[arg-type]
    [value] = opened.states.values()
    assert isinstance(value, Value)
    assert len(trace.graph([value]).nodes) == 1
