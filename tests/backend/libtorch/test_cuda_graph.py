"""Recorded programs: all host logic with an arena that replays by computing again, and on a GPU with real graphs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import Autodiff, LibTorch
from burn_torch.backend.libtorch.cuda_graph import capture
from burn_torch.backend.libtorch.cuda_graph_device import Recording
from burn_torch.backend.libtorch.cuda_graph_plan import plan
from burn_torch.backend.libtorch.cuda_settings import precision_settings
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DeviceError
from burn_torch.core.philox import fold, stream_of
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Trace, dead_code, interpret
from burn_torch.graph.passes.memory import memory_plan
from burn_torch.ops.torch_types import FROM_TORCH as FROM
from burn_torch.ops.value import Value


# -- an arena without a GPU --------------------------------------------------------------------------------
class Replayed:
    """A recording that computes again and leaves results where the first run left them.

    It may lie in memory of earlier ones that these have given up: each replay writes NaN to that.
    """

    def __init__(
        self, run: Callable[[], Sequence[Any]], outputs: Sequence[Any], earlier: Sequence[Replayed] = ()
    ) -> None:
        self._run = run
        self.outputs = outputs
        self.given_up: set[int] = set()
        kept = {_memory(x) for other in earlier for at, x in enumerate(other.outputs) if at not in other.given_up}
        given_up = [other.outputs[at] for other in earlier for at in other.given_up]
        self._spoils = [x for x in given_up if _memory(x) not in kept and x.is_floating_point()]
        self.launches: int | None = 7
        self.replay: Callable[[], None] = self._replay
        self.replays = 0

    def _replay(self) -> None:
        self.replays += 1
        made = self._run()
        for x in self._spoils:
            x.fill_(torch.nan)
        for kept, new in zip(self.outputs, made, strict=True):
            if kept.data_ptr() != new.data_ptr():
                kept.copy_(new)

    def forget(self, position: int) -> None:
        self.given_up.add(position)

    def free(self) -> None:
        self.outputs = ()


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


class HostArena:
    """Records on the CPU.  `refuses` names rows that it cannot record; garbage in private memory is NaN."""

    def __init__(self, refuses: Sequence[str] = ()) -> None:
        self.device = torch.device("cpu")
        self.lock = threading.RLock()
        self.nbytes = 0
        self.recordings: list[Replayed] = []
        self.warm_ups = 0
        self.refuses = refuses
        self.recording = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        yield

    def warm_up(self, run: Callable[[], Any]) -> None:
        self.warm_ups += 1
        run()

    def record(self, run: Callable[[], Sequence[Any]], writes: Sequence[torch.Tensor]) -> Recording:
        before = [x.clone() for x in writes]
        self.recording = True
        try:
            outputs = run()
        finally:
            self.recording = False
            for x, kept in zip(writes, before, strict=True):
                x.copy_(kept)
        ours = {x.untyped_storage().data_ptr() for x in writes}
        for x in outputs:  # nothing has run yet
            if x.is_floating_point() and x.untyped_storage().data_ptr() not in ours:
                x.fill_(torch.nan)
        made = Replayed(run, outputs, self.recordings)
        self.recordings.append(made)
        return made

    def mark(self) -> Any:
        class Passed:
            def wait(self) -> None:
                marks.append(1)

        marks: list[int] = []
        return Passed()


def compiled(arena: HostArena) -> Callable[..., Any]:
    """Straight-line code in which the rows that the arena refuses raise while it records."""

    def compile(graph: Graph, donate: Any) -> Callable[..., Any]:
        run = LibTorch().program(graph, donate).run
        refused = [n for n in graph.nodes if n.call.op.name in arena.refuses]

        def guarded(*inputs: Any) -> Any:
            if arena.recording and refused:
                raise RuntimeError("operation not permitted when stream is capturing\nmore words")
            return run(*inputs)

        return guarded

    return compile


def captured(graph: Graph, donate: Sequence[int] = (), *, refuses: Sequence[str] = (), **options: Any) -> Any:
    arena = HostArena(refuses)
    return capture(graph, donate, arena=arena, compile=compiled(arena), **options), arena


# -- graphs ------------------------------------------------------------------------------------------------
def spec(*shape: int, dtype: DType = DType.F32, place: str = "cpu") -> TensorSpec:
    return TensorSpec.of(shape, dtype, place)


SHAPES = ((6, 5), (5,), (5, 3), (3,))


def training_step(place: str = "cpu", *, batch: int = 4, cautious: bool = False, amsgrad: bool = False) -> Graph:
    """Two layers with dropout, cross entropy and Adam: inputs are parameters, means, squares, x, y, lr, time, key."""
    trace = Trace()
    tape = Autodiff.over(trace)
    kinds = 4 if amsgrad else 3
    state = [trace.input(spec(*shape, place=place)) for _ in range(kinds) for shape in SHAPES]
    x, y = trace.input(spec(batch, 6, place=place)), trace.input(spec(batch, dtype=DType.I64, place=place))
    lr, time, key = trace.input(FLOAT_NUMBER), trace.input(INT_NUMBER), trace.input(INT_NUMBER)
    params = [Value(tape, tape.track(p.primitive, p.spec), p.spec) for p in state[:4]]
    hidden = ops.relu(ops.linear(Value(tape, x.primitive, x.spec), params[0], params[1]))
    hidden = ops.dropout(hidden, 0.4, key, stream_of("a"))
    logits = ops.linear(hidden, params[2], params[3])
    loss = ops.mean(ops.cross_entropy(logits, Value(tape, y.primitive, y.spec), None, None), dims=(0,))
    one = ops.full.run(trace, Value, (1.0,), {"shape": (), "dtype": DType.F32, "place": place})
    found = tape.backward([(loss.primitive, one.primitive)])
    grads = [Value(trace, found[p.primitive.node.id], p.spec) for p in params]
    new = ops.adam_update(
        lr, 0.9, 0.99, 1e-8, 0.0, 0.1, time + 1, *state[:4], *grads, *state[4:], amsgrad=amsgrad, cautious=cautious
    )
    return dead_code(trace.graph([*new, Value(trace, tape.inner_primitive(loss.primitive), loss.spec), time + 1]))


def initial_state(device: str = "cpu", kinds: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, generator=generator).mul_(0.5).to(device) for shape in SHAPES]
    return made + [torch.zeros(shape, device=device) for _ in range(kinds - 1) for shape in SHAPES]


def batches(count: int, batch: int = 4, device: str = "cpu") -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(4)
    for _ in range(count):
        x = torch.randn(batch, 6, generator=generator)
        yield x.to(device), torch.randint(0, 3, (batch,), generator=generator).to(device)


def elementwise(build: Callable[..., Any], *specs: Any) -> Graph:
    trace = Trace()
    made = build(*[trace.input(s) for s in specs])
    return trace.graph(made if isinstance(made, list | tuple) else [made])


def train(
    program: Any, steps: int, state: Sequence[torch.Tensor], device: str = "cpu"
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Runs steps as a caller does, with a schedule and a key a step."""
    losses, time = [], 0
    for number, (x, y) in enumerate(batches(steps, device=device)):
        *state, loss, time = program(*state, x, y, 0.01 / (1 + number), time, fold(5, number))
        losses.append(loss)
    assert time == steps
    return list(state), losses


def exactly(graph: Graph, steps: int, state: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The same by the interpreter."""
    return train(lambda *inputs: interpret(graph, LibTorch(), inputs), steps, state)


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
    given = initial_state()
    first, second = batches(2)
    once = program(*given, *first, 0.1, 0, 1)
    assert all(x is y for x, y in zip(once[:12], given, strict=True))
    twice = program(*once[:12], *second, 0.1, once[13], 2)
    assert all(x is y for x, y in zip(twice[:12], given, strict=True))
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
    found = program(*other, *second, 0.1, 3, 2)
    expected = interpret(graph, LibTorch(), [*copies, *second, 0.1, 3, 2])
    torch.testing.assert_close(list(found[:13]), expected[:13], rtol=1e-6, atol=1e-7)
    assert all(x is y for x, y in zip(found[:12], kept[:12], strict=True))
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

    found = plan(elementwise(build, *[spec(3)] * 4, FLOAT_NUMBER), "cpu", (0, 2, 3))
    assert found.takes == (3, 0, 2)


# -- who holds what ----------------------------------------------------------------------------------------
def test_an_update_is_in_place_though_a_gradient_lies_otherwise() -> None:
    """The gradient of a transposed product has its axes in another order: all state was copied twice for it."""

    def build(p: Any, turned: Any, m: Any, v: Any, lr: Any) -> list[Any]:
        g = ops.permute(turned, axes=(1, 0))
        return list(ops.adam_update(lr, 0.9, 0.99, 1e-8, 0.0, 0.0, 3, p, g, m, v, amsgrad=False, cautious=False))

    graph = elementwise(build, spec(3, 5), spec(5, 3), spec(3, 5), spec(3, 5), FLOAT_NUMBER)
    (segment,) = plan(graph, "cpu", (0, 2, 3)).segments
    written = memory_plan(segment.graph, segment.donated).in_place
    assert [len(pairs) for pairs in written.values()] == [3]
    program, _ = captured(graph, (0, 2, 3))
    given = [torch.rand(3, 5), torch.rand(5, 3), torch.rand(3, 5), torch.rand(3, 5)]
    expected = interpret(graph, LibTorch(), [*(x.clone() for x in given), 0.1])
    found = program(*given, 0.1)
    torch.testing.assert_close(list(found), expected, rtol=1e-6, atol=1e-7)
    assert all(x is given[i] for x, i in zip(found, (0, 2, 3), strict=True))


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


# -- numbers ----------------------------------------------------------------------------------------------------
def test_numbers_beside_tensors_of_every_type() -> None:
    for dtype in (DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.U8):
        number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER

        def build(x: Any, one: Any, n: Any) -> list[Any]:
            return [x + n, n - x, x * n, ops.maximum(x, n), one * n, ops.clamp(x, 0, n)]

        graph = elementwise(build, spec(5, dtype=dtype), spec(dtype=dtype), number)
        program, _ = captured(graph)
        x = torch.arange(5).to({v: k for k, v in FROM.items()}[dtype])
        for n in (3, 2, 100) if dtype.is_int else (0.1, -1.7, 1e-3):
            found, expected = program(x, x[3], n), interpret(graph, LibTorch(), [x, x[3].clone(), n])
            assert program.splits == ()
            half = dtype in (DType.F16, DType.BF16)
            for y, z in zip(found, expected, strict=True):
                # on a CPU torch rounds a number to a half type before it computes, on a GPU after, as we do
                rtol, atol = (2 * torch.finfo(y.dtype).eps, 1e-2) if half else (0.0, 0.0)
                torch.testing.assert_close(y, z, rtol=rtol, atol=atol)


def test_comparisons_powers_and_tensors_made_of_numbers() -> None:
    def build(x: Any, n: Any) -> list[Any]:
        filled = ops.full.run(x.backend, Value, (n,), {"shape": (2, 2), "dtype": DType.F32, "place": "cpu"})
        steps = ops.arange.run(x.backend, Value, (n, 2), {"length": 3, "dtype": DType.F32, "place": "cpu"})
        return [
            ops.greater(x, n), ops.lower(n, x), ops.equal(x, n), ops.mask_where(x, ops.greater(x, n), n), filled, steps,
            ops.clamp(x, n, 2.0), ops.minimum(n, x), x / n, n / x, ops.remainder(x, n), ops.fmod(x, n), ops.pow(x, n),
        ]  # fmt: skip

    graph = elementwise(build, spec(6), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.tensor([-1.5, 0.5, 1.0, 2.0, 3.25, torch.nan])
    for n in (1.0, 0.5, -2.0):
        for y, z in zip(program(x, n), interpret(graph, LibTorch(), [x, n]), strict=True):
            torch.testing.assert_close(y, z, equal_nan=True)
    assert program.splits == ()


def test_arithmetic_on_numbers_is_the_host_s_in_double() -> None:
    def build(x: Any, t: Any) -> list[Any]:
        rate = 1.0 - 0.9**t
        return [x * rate, rate, t + 1]

    program, _ = captured(elementwise(build, spec(2, dtype=DType.F64), INT_NUMBER))
    for t in (1, 2, 50):
        y, rate, after = program(torch.ones(2, dtype=torch.float64), t)
        assert (rate, after) == (1.0 - 0.9**t, t + 1)
        assert y.tolist() == [rate, rate]


def test_signed_zeros_and_numbers_past_float32() -> None:
    program, _ = captured(elementwise(lambda x, n: [x * n], spec(1), FLOAT_NUMBER))
    x = torch.ones(1)
    assert [str(program(x, n)[0].item()) for n in (0.0, -0.0, 1e300, -1e300)] == ["0.0", "-0.0", "inf", "-inf"]


def test_more_calls_than_the_ring_has_rows() -> None:
    program, _ = captured(elementwise(lambda x, n: [x * n], spec(1), FLOAT_NUMBER))
    assert [program(torch.ones(1), float(n))[0].item() for n in range(200)] == list(range(200))


def test_an_integer_that_the_type_cannot_hold_is_refused_as_in_eager_code() -> None:
    program, _ = captured(elementwise(lambda x, n: [x + n], spec(2, dtype=DType.I32), INT_NUMBER))
    x = torch.tensor([1, 2], dtype=torch.int32)
    assert program(x, 5)[0].tolist() == [6, 7]
    with pytest.raises(ArgumentError, match=r"(?s)add: a number leaves.*2147483648.*from -2147483648.*cast"):
        program(x, 2**31)
    assert program(x, 6)[0].tolist() == [7, 8]


def test_a_key_draws_what_eager_code_draws() -> None:
    def build(x: Any, key: Any) -> list[Any]:
        def drawn(row: Any, *numbers: Any, dtype: DType = DType.F32) -> Any:
            return row.run(x.backend, Value, (*numbers, key, 7), {"shape": (5, 3), "dtype": dtype, "place": "cpu"})

        bits = ops.random_bits.run(x.backend, Value, (key, 2**64 - 1), {"shape": (9,), "place": "cpu"})
        return [
            ops.dropout(x, 0.3, key, 2**63 - 1), drawn(ops.dropout_mask, 0.5), drawn(ops.bernoulli, 0.2), bits,
            drawn(ops.uniform, -1.0, 2.0), drawn(ops.normal, 0.5, 2.0), drawn(ops.randint, -3, 9, dtype=DType.I64),
        ]  # fmt: skip

    graph = elementwise(build, spec(7, 3), INT_NUMBER)
    program, _ = captured(graph)
    x = torch.linspace(-2, 2, 21).reshape(7, 3)
    for key in (0, fold(1, 2), -1, 2**64 - 1, 2**63):
        for y, z in zip(program(x, key), interpret(graph, LibTorch(), [x, key]), strict=True):
            assert torch.equal(y, z)
    assert program.splits == ()


@pytest.mark.parametrize("nesterov", [False, True])
def test_gradient_descent_with_numbers_on_the_device(nesterov: bool) -> None:
    def build(p: Any, g: Any, v: Any, lr: Any, share: Any) -> list[Any]:
        plain = ops.sgd_update(lr, 0.1, p, g)
        return [*plain, *ops.momentum_update(lr, 0.2, 0.9, share, p, g, v, nesterov=nesterov)]

    for dtype in (DType.F32, DType.F64):
        graph = elementwise(build, *[spec(4, 3, dtype=dtype)] * 3, FLOAT_NUMBER, FLOAT_NUMBER)
        program, _ = captured(graph)
        kind = torch.float32 if dtype is DType.F32 else torch.float64
        p, g, v = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1)).to(kind)
        for lr, share in ((0.1, 1.0), (0.01, 0.7)):
            found, expected = program(p, g, v, lr, share), interpret(graph, LibTorch(), [p, g, v, lr, share])
            torch.testing.assert_close(list(found), expected)
        assert program.splits == ()


# -- what cannot be recorded --------------------------------------------------------------------------------------
def test_a_row_that_cannot_be_recorded_splits_the_program() -> None:
    def build(a: Any, x: Any, n: Any) -> list[Any]:
        h = ops.exp(ops.sin(a * n) + x)
        h = ops.cos(h)
        return [a + h, ops.sum(h, dims=(0,))]

    graph = elementwise(build, spec(3), spec(3), FLOAT_NUMBER)
    program, _ = captured(graph, (0,), refuses=("exp",))
    a, b = torch.zeros(3), torch.zeros(3)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x, 0.5 + number])
        a, total = program(a, x, 0.5 + number)
        b = expected[0]
        assert torch.equal(a, b)
        assert torch.equal(total, expected[1])
    [split] = program.splits
    assert split.call.startswith("exp(")
    assert split.reason == "it cannot be captured: operation not permitted when stream is capturing"
    assert "more words" not in str(split)
    assert program.sizes.recordings == 2


@pytest.mark.parametrize("refused", ["sin", "cos", "exp", "add", "sum"])
def test_a_split_anywhere_leaves_the_results_as_they_are(refused: str) -> None:
    def build(a: Any, x: Any) -> list[Any]:
        h = ops.cos(ops.exp(ops.sin(a)))
        return [a + h, ops.reshape(a, shape=(1, 3)), ops.sum(h * x, dims=(0,)), h]

    graph = elementwise(build, spec(3), spec(3))
    program, _ = captured(graph, (0,), refuses=(refused,))
    a, b = torch.arange(3.0), torch.arange(3.0)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x])
        found = program(a, x)
        for y, z in zip(found, expected, strict=True):
            assert torch.equal(y, z)
        a, b = found[0], expected[0]
    assert len(program.splits) == 1


def test_a_program_of_which_nothing_can_be_recorded() -> None:
    graph = elementwise(lambda a, n: [ops.exp(a), n + 1], spec(3), INT_NUMBER)
    program, _ = captured(graph, (0,), refuses=("exp",))
    a = torch.zeros(3)
    for number in range(3):
        expected = a.exp()
        a, after = program(a, number)
        assert torch.equal(a, expected)
        assert after == number + 1
    assert program.sizes.recordings == 0


def test_a_program_without_operations() -> None:
    program, _ = captured(elementwise(lambda a, x, n: [x, a, n], spec(2), spec(2), FLOAT_NUMBER), (0,))
    for number in range(3):
        x, a, n = program(torch.ones(2), torch.zeros(2) + number, 0.5)
        assert (x.tolist(), a.tolist(), n) == ([number] * 2, [1, 1], 0.5)


def test_memory_that_runs_out_is_told_as_it_is() -> None:
    class Full(HostArena):
        def record(self, run: Any, writes: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    program = capture(elementwise(lambda a: [ops.exp(a)], spec(3)), arena=Full())
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 9 GiB"):
        program(torch.ones(3))


def test_a_later_part_may_lie_where_an_earlier_one_left_what_nobody_reads_any_more() -> None:
    def build(a: Any, x: Any) -> list[Any]:
        h = ops.sin(a + x)
        k = h * ops.exp(a * 2.0)  # exp is refused: a part for itself
        return [a + ops.exp(k * 0.5), k]

    graph = elementwise(build, spec(3), spec(3))
    program, arena = captured(graph, (0,), refuses=("exp",))
    a, b = torch.zeros(3), torch.zeros(3)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x])
        a, k = program(a, x)
        b = expected[0]
        assert torch.equal(a, b)
        assert torch.equal(k, expected[1])
    assert [len(one.given_up) for one in arena.recordings[-3:]] == [1, 0, 0]  # h, behind the second part
    assert [len(one._spoils) for one in arena.recordings[-3:]] == [0, 0, 1]


class Twin:
    """A process group of two that hold the same values: sums are there when somebody waits for them."""

    class Work:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def wait(self) -> None:
            self.x.mul_(2)

    def all_reduce(self, x: torch.Tensor, async_op: bool) -> Work:
        assert async_op
        return self.Work(x)


def test_a_transfer_weighted_by_a_number_that_changes_is_launched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start was written in other rows, to read the number from the device; the wait found nothing under way."""
    monkeypatch.setattr("burn_torch.ops.collectives._group", lambda world: Twin())

    def build(a: Any, x: Any, n: Any) -> list[Any]:
        flats = [ops.mean_start(n * 2.0, y, x, world=2) for y in (ops.sin(x), ops.exp(a))]
        one, other = (ops.mean_wait(flat, world=2) for flat in flats)
        return [a + ops.slice(one, ranges=((0, 300, 1),)), ops.cos(other)]

    graph = elementwise(build, spec(300), spec(300), FLOAT_NUMBER)
    program, _ = captured(graph, (0,))
    a, b = torch.zeros(300), torch.zeros(300)
    for number in range(1, 4):
        x = torch.linspace(0, number, 300)
        a, found = program(a, x, 0.5 * number)
        torch.testing.assert_close(found, torch.cos(torch.cat([torch.exp(b), x])))
        b = b + torch.sin(x)
        torch.testing.assert_close(a, b)
    # packing and division are recorded; what is summed lies where it was packed, so no part keeps a copy
    assert [split.call.partition("(")[0] for split in program.splits] == ["mean_send"] * 2 + ["mean_arrive"] * 2
    assert program.sizes.recordings == 3
    assert program.sizes.static_bytes < 300 * 4 + 100  # x and the number


def test_a_transfer_of_what_cannot_be_packed_in_a_recording_is_kept_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("burn_torch.ops.collectives._group", lambda world: Twin())

    def build(x: Any) -> list[Any]:
        return [ops.cos(ops.mean_wait(ops.mean_start(3.0, ops.sin(x), world=2), world=2))]

    program, _ = captured(elementwise(build, spec(5)), refuses=("mean_pack",))
    for number in range(3):
        x = torch.linspace(0, number, 5)
        torch.testing.assert_close(program(x)[0], torch.cos(torch.sin(x)))
    assert [split.call.partition("(")[0] for split in program.splits] == ["mean_pack", "mean_send", "mean_arrive"]


def test_a_part_of_nothing_but_views_is_not_recorded() -> None:
    def build(x: Any) -> list[Any]:
        y = ops.permute(ops.exp(ops.sin(x)), axes=(1, 0))
        return [ops.cos(ops.exp(y))]

    graph = elementwise(build, spec(2, 3))
    program, _ = captured(graph, refuses=("exp",))
    x = torch.arange(6.0).reshape(2, 3) / 6
    for factor in (1.0, 2.0):
        torch.testing.assert_close(program(x * factor)[0], torch.cos(torch.exp(torch.exp(torch.sin(x * factor)).T)))
    assert program.sizes.recordings == 2


def test_a_number_without_a_form_splits_and_says_which() -> None:
    graph = elementwise(lambda x, n: [ops.exp(ops.hard_shrink(ops.sin(x), n))], spec(4), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.linspace(-1, 1, 4)
    for n in (0.5, 0.9):
        assert torch.equal(program(x, n)[0], interpret(graph, LibTorch(), [x, n])[0])
    reasons = [split.reason for split in program.splits]
    if reasons:  # a decomposition would take its place
        assert reasons == ["its lambd changes from call to call, and no form of it reads numbers on the device"]


def test_a_row_without_a_form_is_written_in_others() -> None:
    graph = elementwise(lambda x, n: [ops.layer_norm(x, None, None, n)[0]], spec(4, 6), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    for eps in (1e-5, 0.5):
        torch.testing.assert_close(program(x, eps)[0], interpret(graph, LibTorch(), [x, eps])[0])
    assert program.splits == ()


def test_a_shape_from_data_splits() -> None:
    trace = Trace()
    x = trace.input(spec(4, place="cpu"))
    call = ops.nonzero.bind((x.spec,), {})
    from burn_torch.graph import Node

    graph = Graph([(0, x.spec)], [Node(call, (0,), (1,))], ())
    [split] = plan(graph, "cpu").splits
    assert split.reason == "its shape depends on the data, so it waits for the device"


def test_a_row_on_another_device_splits() -> None:
    graph = elementwise(lambda x, y: [ops.exp(x), ops.sin(y)], spec(3, place="cuda:0"), spec(3))
    found = plan(graph, "cuda:0")
    assert [split.reason for split in found.splits] == ["it computes on cpu, not on cuda:0"]
    assert [segment.captured for segment in found.segments] == [True, False]


def test_no_device_is_told() -> None:
    with pytest.raises(DeviceError, match=r"(?s)cannot be recorded.*no value on a CUDA device.*without CUDA graphs"):
        capture(elementwise(lambda x: [ops.exp(x)], spec(3)))
    graph = elementwise(lambda x, y: [ops.exp(x), y], spec(3, place="cuda:0"), spec(3, place="cuda:1"))
    with pytest.raises(DeviceError, match=r"(?s)cuda:0, cuda:1.*one CUDA device.*move the model"):
        capture(graph)


def test_a_program_that_fails_whole_is_told() -> None:
    class Failing(HostArena):
        def record(self, run: Any, writes: Any) -> Any:
            if not self.recordings:  # each operation alone is recorded well
                self.recordings.append(Replayed(run, ()))
                raise RuntimeError("something else")
            return super().record(run, writes)

    program = capture(elementwise(lambda a: [ops.exp(ops.sin(a))], spec(3)), (0,), arena=Failing())
    with pytest.raises(DeviceError, match=r"(?s)no operation of it could be blamed.*something else.*without CUDA"):
        program(torch.ones(3))


def test_errors_of_the_step_itself_are_its_own() -> None:
    graph = elementwise(lambda x, i: [ops.select(x, i, dim=0)], spec(3), spec(2, dtype=DType.I64))
    program, _ = captured(graph)
    with pytest.raises(IndexError, match="out of range"):
        program(torch.ones(3), torch.tensor([0, 7]))


def test_torch_s_precision_is_part_of_what_names_a_program() -> None:
    before = precision_settings()
    assert hash(before) == hash(precision_settings())
    kept = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert precision_settings() != before
    finally:
        torch.set_float32_matmul_precision(kept)
    assert precision_settings() == before


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


def test_a_lost_device_is_told() -> None:
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
