"""An arena that replays by computing again, without a GPU, and the graphs that tests of recorded programs run in it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from burn_torch import ops
from burn_torch.backend import Autodiff, LibTorch
from burn_torch.backend.libtorch.recorded.capture import capture
from burn_torch.backend.libtorch.recorded.device import Recording
from burn_torch.core.dtype import DType
from burn_torch.core.philox import fold, stream_of
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Trace, dead_code, interpret
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
        results = self._run()
        for x in self._spoils:
            x.fill_(torch.nan)
        for kept, new in zip(self.outputs, results, strict=True):
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
        replayed = Replayed(run, outputs, self.recordings)
        self.recordings.append(replayed)
        return replayed

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
    slots = tape.backward([(loss.primitive, one.primitive)])
    grads = [Value(trace, slots[p.primitive.node.id], p.spec) for p in params]
    new = ops.adam_update(
        lr, 0.9, 0.99, 1e-8, 0.0, 0.1, time + 1, *state[:4], *grads, *state[4:], amsgrad=amsgrad, cautious=cautious
    )
    return dead_code(trace.graph([*new, Value(trace, tape.unwrapped(loss.primitive), loss.spec), time + 1]))


def initial_state(device: str = "cpu", kinds: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    params_of_kind = [torch.randn(shape, generator=generator).mul_(0.5).to(device) for shape in SHAPES]
    return params_of_kind + [torch.zeros(shape, device=device) for _ in range(kinds - 1) for shape in SHAPES]


def batches(count: int, batch: int = 4, device: str = "cpu") -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(4)
    for _ in range(count):
        x = torch.randn(batch, 6, generator=generator)
        yield x.to(device), torch.randint(0, 3, (batch,), generator=generator).to(device)


def elementwise(build: Callable[..., Any], *specs: Any) -> Graph:
    trace = Trace()
    output = build(*[trace.input(s) for s in specs])
    return trace.graph(output if isinstance(output, list | tuple) else [output])


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
