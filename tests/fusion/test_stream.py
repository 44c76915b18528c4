"""The lazy stream: what cuts it, what is written, errors, threads, and that none of it depends on chance."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import (
    Device,
    Fusion,
    FusionWarning,
    ShapeError,
    Tensor,
    op,
    ops,
)
from burn_torch.backend.lazy import plans
from burn_torch.backend.lazy.stream import Computed, Lazy, Stream
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.core.errors import AutodiffError
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.shapes.variants import Variants

FUSED = Device.cpu().fused()


@pytest.fixture
def stream() -> Iterator[Stream]:
    """This thread's stream, empty, and without storms from tests before."""
    backend = FUSED.backend
    assert isinstance(backend, Fusion)
    opened = backend.stream("cpu")
    opened.flush()
    opened.history.clear()
    backend.planner._recent.clear()
    backend.planner.forget()
    yield opened
    opened.flush()


def given(seed: np.random.Generator, *shape: int) -> Tensor:
    return Tensor.from_data(seed.standard_normal(shape).astype(np.float32), FUSED)


def is_pending(x: Tensor) -> bool:
    return x.primitive.__class__ is Lazy


# -- cuts ------------------------------------------------------------------------------------------------
READS: dict[str, Callable[[Tensor], Any]] = {
    "data": Tensor.into_data, "number": float, "bool": bool, "item": Tensor.item, "list": Tensor.tolist,
    "numpy": np.asarray, "torch": Tensor.into_torch, "text": str, "pickle": pickle.dumps,
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_a_read_computes(name: str, stream: Stream) -> None:
    x = Tensor.from_floats([2.0], FUSED) * 3.0
    assert is_pending(x)
    READS[name](x)
    assert x.primitive.__class__ is Computed
    assert stream.pending == 0


@pytest.mark.parametrize("cut", [FUSED.flush, FUSED.sync, FUSED.autodiff().flush])
def test_flush_and_sync_compute(cut: Callable[[], None], stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 2).exp()
    cut()
    assert not is_pending(x)


def test_256_operations_are_the_longest(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 2)
    for _ in range(256):
        x = x + 1.0
    assert stream.pending == 256
    x = x + 1.0
    assert stream.pending == 1
    assert [len(ready.graph.nodes) for ready in stream.history] == [256]


def test_a_library_function_cuts_with_32_pending(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 4, 4)
    for _ in range(31):
        x = x + 1.0
    x = x @ x
    assert stream.pending == 32
    y = ops.softmax(x, dim=1)  # made of what kernels compute: no library
    assert stream.pending == 33
    y = y @ x
    assert stream.pending == 1


def test_a_shape_that_depends_on_data_cuts(stream: Stream) -> None:
    x = Tensor.from_floats([1.0, -1.0, 2.0], FUSED) * 2.0
    selected = x.mask_select(x > 0.0)
    assert not is_pending(x)
    assert selected.shape[0] == 2


@op(namespace="lazy_tests", torch=torch.clone, nondifferentiable=True, collective="blocks")
def met(x: TensorSpec) -> TensorSpec:
    """As if other processes were met."""
    return x


def test_a_collective_cuts_and_runs_at_once(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    before = x + 1.0
    after = met(before)
    assert stream.pending == 0
    assert not is_pending(after)
    torch.testing.assert_close(after.into_torch(), x.into_torch() + 1)


def test_a_drop_cuts_nothing_and_what_is_dropped_is_not_written(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    y = x.exp()
    z = y + 1.0
    dead = z * 2.0
    del y, dead
    assert stream.pending == 3
    stream.flush()
    (ready,) = stream.history
    assert ready.gives == (1,)
    assert [node.call.op.name for node in ready.graph.nodes] == ["exp", "add"]
    torch.testing.assert_close(z.into_torch(), x.into_torch().exp() + 1)


def test_what_nobody_holds_is_not_computed(stream: Stream, seed: np.random.Generator) -> None:
    given(seed, 3).exp()
    stream.flush()
    assert not stream.history


def test_results_of_which_one_is_read(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3, 4)
    values, places = x.max_dim_with_indices(1)
    del values
    torch.testing.assert_close(places.into_torch(), x.into_torch().argmax(1, keepdim=True))


def test_a_tuple_of_results_keeps_them_all(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 6)
    call = ops.split.bind([x.spec], {"sizes": (2, 4), "dim": 0})
    parts = x.backend.execute(call, [x.primitive])
    stream.flush()
    assert all(part.__class__ is Computed for part in parts)


# -- the same every time ---------------------------------------------------------------------------------
def program(x: Tensor) -> Tensor:
    h = ((x * 2.0).exp() + x).sum_dim(1)
    g = (h / 3.0).tanh() * x
    return (g @ g.transpose()).relu().sum()


def keys(stream: Stream, x: Tensor) -> list[str]:
    stream.flush()
    stream.history.clear()
    program(x).into_data()
    program(x + 1.0).into_data()
    return [ready.key for ready in stream.history]


def test_plan_keys_depend_on_the_program_alone(stream: Stream, seed: np.random.Generator) -> None:
    """20 runs with garbage collection on and off, while other threads record, flush and drop."""
    x = given(seed, 4, 4)
    stop = threading.Event()

    def busy() -> None:
        own = Tensor.ones((4, 4), FUSED)
        garbage: Any = []
        while not stop.is_set():
            garbage = [program(own), garbage if len(garbage) < 3 else []]
            FUSED.flush()

    others = [threading.Thread(target=busy) for _ in range(3)]
    for other in others:
        other.start()
    try:
        keys_of_runs = []
        for number in range(20):
            gc.disable() if number % 2 else gc.enable()
            keys_of_runs.append(keys(stream, x))
    finally:
        gc.enable()
        stop.set()
        for other in others:
            other.join()
    assert len(keys_of_runs[0]) == 2
    assert all(other == keys_of_runs[0] for other in keys_of_runs)


def test_a_thread_has_the_keys_of_another(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 4, 4)
    backend = FUSED.backend
    assert isinstance(backend, Fusion)
    keys_of_thread: list[list[str]] = []
    other = threading.Thread(target=lambda: keys_of_thread.append(keys(backend.stream("cpu"), x)))
    other.start()
    other.join()
    assert keys_of_thread == [keys(stream, x)]


def test_numbers_are_in_no_key(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    for number in (0.0, 1.0, -0.0, 2.5, float("inf")):
        torch.testing.assert_close((x * number + 1.0).into_torch(), x.into_torch() * number + 1)
    assert len({ready.key for ready in stream.history}) == 1


def test_more_than_eight_choices_of_results_are_computed_whole(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    for choice in range(1, 13):
        sums = [x + 1.0, x + 2.0, x + 3.0, x + 4.0]
        kept = {n: y for n, y in enumerate(sums) if choice >> n & 1}
        del sums
        stream.flush()
        for n, y in kept.items():
            torch.testing.assert_close(y.into_torch(), x.into_torch() + (n + 1))
    assert len({ready.key for ready in stream.history}) <= 9


# -- storms ----------------------------------------------------------------------------------------------
def in_many_shapes(make: Callable[[int], Tensor]) -> None:
    for size in (*range(1, 12), *range(1, 12)):
        (make(size).cos().sin() - 0.125).into_data()


def test_one_warning_of_ever_other_shapes(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are generated here, and none of symbolic sizes exists."""
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    monkeypatch.setattr(Variants, "made", lambda self, graph, sizes, plan: None)
    with pytest.warns(FusionWarning, match=r"shape of full, at .*test_stream(?s:.)*expected(?s:.)*bucket") as warned:
        in_many_shapes(lambda size: Tensor.ones((size, 3), FUSED))
    assert len(warned) == 1
    with pytest.warns(
        FusionWarning, match=r"given: .*9 plans, 0 of them .*axis 1 of input 0 of cos, at .*: .*, \.\.\."
    ):
        in_many_shapes(lambda size: Tensor.from_torch(torch.ones(3, size), FUSED))


def test_nobody_is_warned_of_shapes_where_no_kernels_are_generated(stream: Stream) -> None:
    """A plan costs next to nothing there, and a shape has one when it comes again."""
    in_many_shapes(lambda size: Tensor.ones((size, 5), FUSED))
    assert sum(ready._run is not None for ready in stream.history) == 12, "the first, and all that came again"


def test_in_a_storm_what_is_new_runs_unplanned_and_what_is_not_gets_a_plan(stream: Stream) -> None:
    def chain(x: Any, length: int) -> Any:
        for _ in range(length):
            x = x.cos()
        return x - 0.125

    x, y = Tensor.ones((7, 5), FUSED), torch.ones(7, 5)
    for length in (*range(1, 66), 70, 70, 70):
        torch.testing.assert_close(chain(x, length).into_torch(), chain(y, length))
    planned = [ready._run is not None for ready in stream.history]
    assert planned[-68:-4] == [True] * 64
    assert planned[-4:] == [False, False, True, True]


# -- errors ----------------------------------------------------------------------------------------------
def test_a_wrong_shape_is_reported_where_it_is_written(seed: np.random.Generator) -> None:
    x = given(seed, 4, 3)
    with pytest.raises(ShapeError, match=r"matmul: the inner sizes differ") as caught:
        x @ x
    assert "x @ x" in "".join(caught.value.__notes__)


@op(namespace="lazy_tests", torch=lambda x: _fail(x), numpy=lambda x: _fail(x), nondifferentiable=True)
def failing(x: TensorSpec) -> TensorSpec:
    """Fails."""
    return x


def _fail(x: Any) -> Any:
    raise RuntimeError("the disk is full")


def test_an_error_of_a_computation_names_the_line_and_spoils_nothing_else(
    stream: Stream, seed: np.random.Generator
) -> None:
    x = given(seed, 3)
    good = x * 2.0
    bad = failing(x + 1.0)  # recorded here
    worse = bad + 1.0
    torch.testing.assert_close(good.into_torch(), x.into_torch() * 2)
    for value in (bad, worse):
        with pytest.raises(RuntimeError, match="the disk is full") as caught:
            value.into_data()
        assert "# recorded here" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match="the disk is full"):
        bad.exp()


def test_an_interrupted_flush_can_be_repeated(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor.from_floats([1.0, 2.0], FUSED) * 3.0
    compute = plans.Ready.compute

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(plans.Ready, "compute", compute)
        raise KeyboardInterrupt

    monkeypatch.setattr(plans.Ready, "compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x.into_data()
    y = x + 1.0
    assert (x.tolist(), y.tolist()) == ([3.0, 6.0], [4.0, 7.0])


def test_a_write_to_what_a_pending_operation_reads_is_an_error(stream: Stream) -> None:
    shared = torch.ones(3)
    x = Tensor.from_torch(shared, FUSED)
    early, late = x + 1.0, x * 5.0
    stream.flush()
    pending = x + early
    beside = early * 2.0
    dropped = x * 7.0
    del dropped
    shared.add_(1)
    assert beside.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(
        AutodiffError, match=r"written to(?s:.)*given:(?s:.)*x \+ early(?s:.)*expected:(?s:.)*flush\(\)"
    ):
        pending.into_data()
    assert late.tolist() == [5.0, 5.0, 5.0]
    assert (x + 1.0).tolist() == [3.0, 3.0, 3.0]


def test_a_saved_value_that_was_written_to_is_an_error_of_the_tape() -> None:
    x = Tensor.from_floats([1.0, 2.0], FUSED.autodiff()).require_grad()
    y = x.exp()
    loss = (y * y).sum()
    y.inner().into_torch().mul_(2)
    with pytest.raises(AutodiffError, match="written to after it was used"):
        loss.backward()


class Broken:
    def __init__(self, graph: Any) -> None:
        self.run = _fail_to_compile


def _fail_to_compile(*inputs: Any, **how: Any) -> Any:
    raise SyntaxError("ptxas does not like this kernel")


@pytest.mark.parametrize("at", ["lowering", "running"])
def test_a_kernel_that_fails_is_reported_and_not_run_again(
    at: str, stream: Stream, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchCapabilities, "generates", lambda self, place: True)
    if at == "lowering":
        monkeypatch.setattr(plans, "plan_of", _fail_to_compile)
    else:
        monkeypatch.setattr(TorchCapabilities, "program", lambda self, graph, *args, **options: Broken(graph))
    x = given(seed, 3, 5 if at == "lowering" else 7)

    def run() -> torch.Tensor:
        return ((x.erf() * 0.5 + 1.0) * x.erf()).into_torch()

    exact = (torch.erf(x.into_torch()) * 0.5 + 1) * torch.erf(x.into_torch())
    with pytest.warns(FusionWarning, match=r"kernel failed(?s:.)*given: *erf, mul(?s:.)*ptxas(?s:.)*mend:") as warned:
        assert torch.equal(run(), exact)
    assert len(warned) == 1
    assert torch.equal(run(), exact)


# -- threads ---------------------------------------------------------------------------------------------
def test_a_pending_value_of_another_thread_is_computed_by_its_stream(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    pending = x * 2.0
    outputs: list[torch.Tensor] = []

    def use() -> None:
        outputs.append((pending + 1.0).into_torch())

    other = threading.Thread(target=use)
    other.start()
    other.join()
    assert not is_pending(pending)
    assert stream.pending == 0
    torch.testing.assert_close(outputs[0], x.into_torch() * 2 + 1)


def test_what_a_thread_leaves_behind_is_computed(seed: np.random.Generator) -> None:
    x = given(seed, 3)
    left: list[Tensor] = []
    other = threading.Thread(target=lambda: left.append(x * 2.0))
    other.start()
    other.join()
    torch.testing.assert_close(left[0].into_torch(), x.into_torch() * 2)


def test_16_threads_hand_values_around(seed: np.random.Generator) -> None:
    """Each reads what the others have pending while they go on recording."""
    count, rounds = 16, 12
    start = [given(seed, 5) for _ in range(count)]
    shared: list[Tensor] = list(start)
    results: list[list[torch.Tensor]] = [[] for _ in range(count)]
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            own = start[n]
            for number in range(rounds):
                own = (own * 0.5 + start[n]).tanh()
                shared[n] = own
                other = shared[(n + 1 + number) % count]
                read = other * 1.0
                assert bool((read.abs() <= 10.0).all())
            results[n].append(own.into_torch())
        except BaseException as fault:
            failures.append(fault)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for n, x in enumerate(start):
        own = x.into_torch()
        for _ in range(rounds):
            own = (own * 0.5 + x.into_torch()).tanh()
        assert torch.equal(results[n][0], own)


def test_an_operation_of_a_segment_that_was_closed_meanwhile_is_recorded_again(
    stream: Stream, seed: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread computes the segment between an operation's start and its end."""
    x = given(seed, 3)
    pending = x * 2.0
    backend = FUSED.backend
    assert isinstance(backend, Fusion)
    grow = Fusion.grow

    def meanwhile(self: Fusion, *args: Any) -> Any:
        other = threading.Thread(target=pending.into_data)
        other.start()
        other.join()
        return grow(self, *args)

    monkeypatch.setattr(backend, "_key", object())
    monkeypatch.setattr(backend, "grow", meanwhile.__get__(backend), raising=False)
    result = pending.log1p()
    monkeypatch.undo()
    assert is_pending(result)
    torch.testing.assert_close(result.into_torch(), (x.into_torch() * 2).log1p(), equal_nan=True)


# -- handles ---------------------------------------------------------------------------------------------
def test_nothing_is_kept() -> None:
    """After reads and drops no primitive, input or segment is alive that nobody holds."""
    tape = FUSED.autodiff()

    def work() -> list[weakref.ref[Any]]:
        source = torch.randn(4, 4)
        x = Tensor.from_torch(source, tape).require_grad()
        h = (x * 2.0).exp()
        loss = (h @ h).relu().sum()
        gradient = x.grad(loss.backward())
        assert gradient is not None
        gradient.into_data()
        dropped = x.inner() + 1.0
        FUSED.flush()
        held = [source, h.inner().primitive, gradient.primitive, dropped.primitive, dropped.primitive.segment]
        return [weakref.ref(y) for y in held if not isinstance(y, type(None)) and hasattr(y, "__weakref__")]

    gc.disable()
    try:
        for _ in range(3):
            alive = [reference() for reference in work()]
            assert alive == [None] * len(alive)
    finally:
        gc.enable()


def test_primitives_do_not_pile_up(stream: Stream) -> None:
    x = Tensor.ones((4,), FUSED)

    def count() -> int:
        return sum(issubclass(type(y), Lazy) for y in gc.get_objects())

    for _ in range(2):
        (x * 2.0).exp().into_data()
    gc.collect()
    before = count()
    for _ in range(50):
        (x * 2.0).exp().into_data()
    assert count() == before


def test_donating_a_pending_value_and_what_it_is_read_by(stream: Stream, seed: np.random.Generator) -> None:
    x = given(seed, 3)
    exact = x.into_torch().clone()
    pending = x * 3.0
    reader = pending + 1.0
    step = burn_torch.compile(lambda y: y * 2.0, donate="y")
    doubled = step(pending)
    torch.testing.assert_close(doubled.into_torch(), exact * 6)
    torch.testing.assert_close(reader.into_torch(), exact * 3 + 1)


def test_streams_are_listed_while_another_thread_makes_a_stack(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_torch.backend.decorator import Decorator
    from burn_torch.backend.lazy.decorator import streams_of_this_thread

    instances = dict(Decorator._instances)

    class Made:
        """A stack; a second one is interned while it is looked at."""

        @property
        def __class__(self) -> type:
            instances.setdefault(("second",), FUSED.backend)
            return object

    instances["first",] = Made()
    monkeypatch.setattr(Decorator, "_instances", instances)
    assert stream in streams_of_this_thread()
