"""Whole programs as CUDA graphs: launched once a call, with inputs, numbers and state where the graph reads them.

    program = capture(graph, donate=range(24))
    *state, loss = program(*state, images, targets, lr, step, key)

What a graph reads and writes lies at fixed addresses:

* Donated inputs (model and optimizer state) have a buffer each, that of the first call's own tensor where it can be
  adopted.  The outputs that take their memory over are written there and handed out as the same tensor objects; a
  caller that hands exactly these back pays for a comparison of identities and copies nothing.
* Held inputs (parameters of an evaluation) are read where they lie.  Another tensor in their place costs a new
  recording, and after three of these a copy a call.
* Other tensors (batches) are copied into buffers.
* Numbers are computed on the host and copied in one block (`cuda_graph_numbers.py`).
* Every other output is copied out of private memory: what the caller holds is never written to again.

What cannot be recorded is launched plainly between recorded parts; `program.splits` says what and why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import is_, itemgetter
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.cuda_graph_device import Arena, CudaArena, Recording
from burn_torch.backend.libtorch.cuda_graph_numbers import NumberBlock
from burn_torch.backend.libtorch.cuda_graph_plan import Plan, Segment, Split, plan, table_call
from burn_torch.backend.libtorch.cuda_graph_transfers import is_in_place
from burn_torch.backend.libtorch.fused import prepare_kernels
from burn_torch.core.errors import DeviceError, explain
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["CapturedProgram", "CapturedSizes", "arena_of", "capture", "precision_settings"]

_WARM_UPS: Final = 3
_HELD_CHANGES: Final = 3

Compile = Callable[[Graph, Collection[int]], Callable[..., Sequence[Any]]]


@dataclass(frozen=True)
class CapturedSizes:
    """What a captured program takes: kernels a call (None where no driver tells), bytes of each kind of memory."""

    launches: int | None
    recordings: int
    pool_bytes: int
    """Private memory of the arena, shared by all programs that were recorded with it."""
    static_bytes: int
    """Buffers of inputs and numbers; adopted tensors are not counted."""


def arena_of(place: str) -> CudaArena:
    """Private memory on a CUDA place, for programs that take turns."""
    return CudaArena(torch.device(place))


def precision_settings() -> tuple[Any, ...]:
    """torch's settings that a recorded program keeps from the time it was recorded: part of what names a program."""
    return tuple([ask() for ask in _asked_of_torch()])


@cache
def _asked_of_torch() -> tuple[Callable[[], Any], ...]:
    """What tells each of the settings: torch's C functions where it has them, which answer in a tenth of the time."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    ways: dict[str, Callable[[], Any]] = {
        "_get_float32_matmul_precision": torch.get_float32_matmul_precision,
        "_get_cublas_allow_fp16_reduced_precision_reduction": lambda: matmul.allow_fp16_reduced_precision_reduction,
        "_get_cublas_allow_bf16_reduced_precision_reduction": lambda: matmul.allow_bf16_reduced_precision_reduction,
        "_get_cudnn_enabled": lambda: cudnn.enabled,
        "_get_cudnn_deterministic": lambda: cudnn.deterministic,
        "_get_deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    }
    of_type = getattr(torch._C, "_get_fp32_precision_getter", None)
    asked = [getattr(torch._C, name, way) for name, way in ways.items()]
    return (partial(of_type, "cuda", "conv") if of_type else _precision_of_convolutions, *asked)


def _precision_of_convolutions() -> Any:
    return getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)


def capture(
    graph: Graph,
    donate: Collection[int] = (),
    *,
    hold: Collection[int] = (),
    arena: Arena | None = None,
    compile: Compile | None = None,
    before_overwriting: Callable[[Sequence[torch.Tensor]], None] = lambda buffers: None,
) -> CapturedProgram:
    """A program that records itself as CUDA graphs at its first call.

    donate    positions of inputs whose memory it owns from then on: the caller holds them no more, and they share no
              memory.  An output that has the spec of one takes its memory over, in order.
    hold      positions of inputs that are the same tensors at every call
    arena     private memory and order of work, shared with other programs; default: its own
    compile   makes straight-line Python of a part; default: LibTorch's
    before_overwriting   told of the state's buffers when other values than those handed out are about to be put there:
              whoever still holds what was handed out can save it

    Raises: DeviceError where no input and no result lies on a CUDA device.
    """
    home: Arena = arena_of(_cuda_place(graph)) if arena is None else arena
    return CapturedProgram(graph, donate, hold, home, compile or _straight_line, before_overwriting)


def _straight_line(graph: Graph, donate: Collection[int]) -> Callable[..., Sequence[Any]]:
    from burn_torch.backend.libtorch.leaf import LibTorch

    return LibTorch().program(graph, donate, title="A recorded part").run


def _cuda_place(graph: Graph) -> str:
    specs = list(graph.specs().values())
    places = sorted({spec.place for spec in specs if isinstance(spec, TensorSpec) and spec.place.startswith("cuda")})
    if len(places) != 1:
        raise DeviceError(
            explain(
                "this program cannot be recorded as a CUDA graph",
                given=f"values on {', '.join(places)}" if places else "no value on a CUDA device",
                expected="values on one CUDA device",
                mend="move the model and the batch to one device" if places else "compile it without CUDA graphs",
            )
        )
    return places[0]


@final
class CapturedProgram:
    """A graph recorded for replay; see the module.  Calls of several threads run one after the other."""

    def __init__(
        self,
        graph: Graph,
        donate: Collection[int],
        hold: Collection[int],
        arena: Arena,
        compile: Compile,
        before_overwriting: Callable[[Sequence[torch.Tensor]], None],
    ) -> None:
        self.graph: Final = graph
        self.arena: Final = arena
        self._compile: Final = compile
        self._before_overwriting: Final = before_overwriting
        tensors = [i for i, (_, spec) in enumerate(graph.inputs) if isinstance(spec, TensorSpec)]
        self._donated: Final = [i for i in tensors if i in donate]
        self._held = [i for i in tensors if i in hold and i not in donate]
        owned = set(self._donated)
        self._given: Final = [i for i in range(len(graph.inputs)) if i not in owned]
        self._numbers: Final = [i for i, (_, spec) in enumerate(graph.inputs) if isinstance(spec, NumberSpec)]
        self._refused: dict[Call, str] = {}
        self._place: Final = _place_of(arena.device)
        self._recorded: _Recorded | None = None
        self._held_changes = 0
        self._lock: Final = threading.RLock()
        self._closed = False
        self._plan: Plan = self._planned()

    def _planned(self) -> Plan:
        return plan(self.graph, self._place, self._donated, refused=self._refused.items())

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def splits(self) -> tuple[Split, ...]:
        """What is launched plainly between recorded parts, and why."""
        return self._plan.splits

    @property
    def sizes(self) -> CapturedSizes:
        """Launches and memory; of a program that was never called, zeros."""
        recorded = self._recorded
        if recorded is None:
            return CapturedSizes(0, 0, self.arena.nbytes, 0)
        launches = [recording.launches for recording in recorded.recordings]
        known = [n for n in launches if n is not None]
        return CapturedSizes(
            sum(known) if len(known) == len(launches) else None,
            len(launches),
            self.arena.nbytes,
            recorded.static_bytes,
        )

    # -- calling ----------------------------------------------------------------------------------------
    def __call__(self, *inputs: Any, kept: bool = False) -> Sequence[Any]:
        """The outputs, valid on the caller's current stream.  Outputs that took donated memory over are the program's
        until they are handed back; `kept` says that the donated inputs are those of the last call, so nobody looks."""
        try:
            with self._lock, self.arena.lock, self.arena.entered():
                recorded = self._recorded
                if recorded is None:
                    self._require_open()
                    recorded = self._recorded = self._record(inputs)
                elif self._held and not recorded.holds(inputs):
                    recorded = self._recorded = self._record_again(inputs)
                return recorded.run(inputs, kept)
        except RuntimeError as fault:
            if _is_lost(fault):
                raise _lost(fault) from fault
            raise

    def again(self, given: Sequence[Any]) -> list[Any]:
        """A call whose donated tensors are those of the last one: of the other inputs, in order, the outputs that take
        no donated memory over, in order.
        """
        inputs = dict(zip(self._given, given, strict=True))
        try:
            with self._lock, self.arena.lock, self.arena.entered():
                recorded = self._recorded
                if recorded is None:
                    self._require_open()
                    raise AssertionError("what was never lent came back")
                if self._held and not recorded.holds(inputs):
                    inputs |= recorded.state
                    recorded = self._recorded = self._record_again([inputs[i] for i in range(len(inputs))])
                return recorded.again(inputs)
        except RuntimeError as fault:
            if _is_lost(fault):
                raise _lost(fault) from fault
            raise

    @property
    def takes(self) -> tuple[int | None, ...]:
        """For each output, the position of the donated input whose memory it takes over; None where it has its own."""
        return tuple(self._plan.takes)

    @property
    def launches(self) -> int | None:
        """Kernels in one call; None before the first, or where no driver tells."""
        return self.sizes.launches if self._recorded is not None else None

    def close(self) -> None:
        """Gives recordings and buffers back.  Outputs that the caller holds stay valid; another call is an error."""
        with self._lock, self.arena.lock:
            if self._recorded is not None:
                self._recorded.free()
            self._recorded = None
            self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError(
                explain(
                    "this captured program is closed",
                    given="a call after close()",
                    expected="a program whose memory was not given back",
                    mend="capture it again",
                )
            )

    # -- recording ----------------------------------------------------------------------------------------
    def _record_again(self, inputs: Sequence[Any]) -> _Recorded:
        self._held_changes += 1
        if self._held_changes >= _HELD_CHANGES:
            self._held = []
        assert self._recorded is not None
        buffers = self._recorded.state
        self._recorded.free()
        return self._record(inputs, buffers)

    def _record(self, inputs: Sequence[Any], buffers: dict[int, torch.Tensor] | None = None) -> _Recorded:
        """Records; where a node cannot be, splits there and starts again."""
        while True:
            recorded = _Recorded(self, self._plan, inputs, self._held, buffers)
            try:
                recorded.record(inputs)
            except _Unrecorded as failed:
                culprit = recorded.culprit(failed.segment, inputs)
                recorded.free()
                if culprit is None:
                    raise _cannot_record(failed.fault) from failed.fault
                call, reason = culprit
                self._refused[call] = reason
                self._plan = self._planned()
            else:
                return recorded


class _Unrecorded(Exception):
    """A segment that could not be recorded."""

    def __init__(self, segment: Segment, fault: RuntimeError) -> None:
        super().__init__(str(fault))
        self.segment: Final = segment
        self.fault: Final = fault


class _Recorded:
    """One recording of a program: static memory, recorded segments, and the order in which a call runs them."""

    def __init__(
        self,
        program: CapturedProgram,
        plan: Plan,
        inputs: Sequence[Any],
        held: Sequence[int],
        buffers: dict[int, torch.Tensor] | None,
    ) -> None:
        self.arena: Final = program.arena
        self.plan: Final = plan
        self.graph: Final = program.graph
        self.recordings: list[Recording] = []
        self._compile: Final = program._compile
        self._before_overwriting: Final = program._before_overwriting
        self._number_inputs: Final = program._numbers
        self._donated: Final = program._donated
        self._held: Final = list(held)
        self._holding: Final = [inputs[i] for i in held]
        self._block: Final = NumberBlock(plan, self.arena)
        self.static_bytes = self._block.nbytes
        self._saved: set[int] = set()
        """Results that lie in the state, copied out before it is written after the last segment."""
        self._steps: list[Callable[[dict[int, Any], dict[int, Any]], None]] = []
        self._place_inputs(inputs, buffers or {})

    # -- static memory --------------------------------------------------------------------------------------
    def _place_inputs(self, inputs: Sequence[Any], buffers: dict[int, torch.Tensor]) -> None:
        """Gives each tensor input that a recording reads, and each donated one, an address that stays."""
        read = {i for segment in self.plan.segments if segment.captured for i in segment.reads}
        self.state: dict[int, torch.Tensor] = {}
        self._copied: list[tuple[int, torch.Tensor]] = []
        self._free: list[tuple[int, int]] = []
        self._static: dict[int, torch.Tensor] = dict(self._block.slots)
        taken = {_memory(x) for position, x in enumerate(inputs) if position not in self._donated and _is_tensor(x)}
        for position, (i, spec) in enumerate(self.graph.inputs):
            if not isinstance(spec, TensorSpec):
                continue
            x = inputs[position]
            if position in self._donated:
                buffer = buffers.get(position)
                if buffer is None:
                    buffer = x if _adoptable(x, taken) else self._new(x.detach().clone(memory_format=_CONTIGUOUS))
                taken.add(_memory(buffer))
                self.state[position] = self._static[i] = buffer
            elif position in self._held:
                self._static[i] = x
            elif i in read:
                buffer = self._new(torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=self.arena.device))
                self._static[i] = buffer
                self._copied.append((position, buffer))
            else:
                self._free.append((position, i))
        self._get_state = _getter(list(self.state))
        self._owned = tuple(self.state.values())
        by_type: dict[torch.dtype, list[tuple[int, torch.Tensor]]] = {}
        for position, buffer in self._copied:
            by_type.setdefault(buffer.dtype, []).append((position, buffer))
        self._batches = [
            ([position for position, _ in group], [buffer for _, buffer in group]) for group in by_type.values()
        ]

    def _new(self, buffer: torch.Tensor) -> torch.Tensor:
        self.static_bytes += buffer.numel() * buffer.element_size()
        return buffer

    def holds(self, inputs: Sequence[Any] | Mapping[int, Any]) -> bool:
        """Whether the held inputs are the tensors that the recording reads."""
        return all(inputs[i] is x for i, x in zip(self._held, self._holding, strict=True))

    def _take_state(self, inputs: Sequence[Any]) -> None:
        """Copies donated tensors that are not the program's own into its buffers."""
        self._before_overwriting(self._owned)
        given, ours = self._get_state(inputs), {_memory(x) for x in self._owned}
        wrong = [i for i, (x, buffer) in enumerate(zip(given, self._owned, strict=True)) if x is not buffer]
        # one that lies in another one's buffer would be overwritten before it is read
        values = [given[i].clone() if _memory(given[i]) in ours else given[i] for i in wrong]
        for i, value in zip(wrong, values, strict=True):
            self._owned[i].copy_(value)

    # -- a call -----------------------------------------------------------------------------------------------
    def run(self, inputs: Sequence[Any], kept: bool = False) -> Sequence[Any]:
        """One replay.  `kept`: the donated inputs are the state's buffers."""
        if not kept and not all(map(is_, self._get_state(inputs), self._owned)):
            self._take_state(inputs)
        outputs = self._outputs.copy()
        for at, x in self._replayed(inputs):
            outputs[at] = x
        return tuple(outputs)

    def again(self, inputs: Mapping[int, Any]) -> list[Any]:
        """One replay on the state's buffers, of the inputs that do not lie there: the outputs that do not, either."""
        found = dict(self._replayed(inputs))
        return [found.get(at) for at in self._others]

    def _replayed(self, inputs: Sequence[Any] | Mapping[int, Any]) -> list[tuple[int, Any]]:
        """The outputs of a replay that lie in no buffer of the state, each with its number."""
        for positions, buffers in self._batches:
            if len(buffers) == 1:
                buffers[0].copy_(inputs[positions[0]], non_blocking=True)
            else:
                torch._foreach_copy_(buffers, [inputs[i] for i in positions])
        numbers = self._block.fill([inputs[i] for i in self._number_inputs])
        values: dict[int, Any] = {i: inputs[position] for position, i in self._free}
        for step in self._steps:
            step(numbers, values)
        outputs = [(at, numbers[i]) for at, i in self._number_outputs]
        outputs += [(at, values[i].clone()) for at, i in self._plain_outputs]
        if len(self._pool_outputs) == 1:
            at, x = self._pool_outputs[0]
            outputs.append((at, x.clone()))
        elif self._pool_outputs:
            given = [x for _, x in self._pool_outputs]
            fresh = [torch.empty_like(x) for x in given]
            torch._foreach_copy_(fresh, given)
            outputs += [(at, x) for (at, _), x in zip(self._pool_outputs, fresh, strict=True)]
        return outputs

    # -- recording --------------------------------------------------------------------------------------------
    def record(self, inputs: Sequence[Any]) -> None:
        """Warms the program up on copies of the state, then records its segments.  Trains nothing."""
        for positions, buffers in self._batches:
            for buffer, i in zip(buffers, positions, strict=True):
                buffer.copy_(inputs[i])
        numbers = self._block.fill([inputs[i] for i in self._number_inputs])
        # what warms up owns nothing: an update then writes to copies, made where it needs them, and trains nothing
        borrowing = [self._compile(segment.graph, ()) for segment in self.plan.segments]

        def once() -> None:
            for _ in range(_WARM_UPS):
                self._eagerly(borrowing, inputs, numbers)

        self.arena.warm_up(once)
        programs = [self._compile(segment.graph, segment.donated) for segment in self.plan.segments]
        # a program that owns its state may write over other memory than the one that warmed up: by other kernels
        prepare_kernels(_place_of(self.arena.device))
        known: dict[int, Any] = dict(self._static)  # what lies at an address that stays
        written: set[int] = set()
        made_by: dict[int, tuple[Recording, int]] = {}
        for number, (segment, program) in enumerate(zip(self.plan.segments, programs, strict=True)):
            self._forget(number, known, made_by)
            if segment.captured:
                written = self._record_segment(segment, program, known, ends=number == len(programs) - 1)
                made_by.update((i, (self.recordings[-1], at)) for at, i in enumerate(segment.makes))
            else:
                self._steps.append(self._plain(segment, program, known))
                self._keep_results(segment, number, known)
        self._write_rest(known, written)
        self._find_outputs(known)

    def _forget(self, number: int, known: dict[int, Any], made_by: dict[int, tuple[Recording, int]]) -> None:
        """Drops results that neither segment `number` nor a later one reads: what is recorded now may lie there.

        What a plain segment reads stays where it is, since what it makes may be a view of that.
        """
        segments = enumerate(self.plan.segments)
        read = {i for at, segment in segments if at >= number or not segment.captured for i in segment.reads}
        read.update(i for i in self.plan.outputs if i is not None)
        for i in [i for i in made_by if i not in read]:
            recording, at = made_by.pop(i)
            recording.forget(at)
            del known[i]

    def _record_segment(self, segment: Segment, program: Any, known: dict[int, Any], *, ends: bool) -> set[int]:
        """Records a segment and puts its results into `known`; the last one of a program also writes the state.

        Returns the outputs, by number, whose memory is written.
        """
        arguments = [known[i] for i in segment.reads]
        safe: dict[int, torch.Tensor] = {}
        written: set[int] = set()

        def run() -> Sequence[Any]:
            made = program(*arguments)
            if not ends:
                return made
            found, copies = self._takeovers(known | dict(zip(segment.makes, made, strict=True)), set())
            safe.update(found)
            written.update(copies)
            if copies:
                torch._foreach_copy_([b for b, _ in copies.values()], [x for _, x in copies.values()])
            return [*made, *safe.values()]

        try:
            recording = self.arena.record(run, self._owned)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as fault:
            raise _Unrecorded(segment, fault) from fault
        self.recordings.append(recording)
        known.update(zip((*segment.makes, *safe), recording.outputs, strict=True))
        replay = recording.replay
        self._steps.append(lambda numbers, values: replay())
        return written

    def _eagerly(self, programs: Sequence[Any], inputs: Sequence[Any], numbers: dict[int, Any]) -> dict[int, Any]:
        """All values of a run by programs that own nothing."""
        values: dict[int, Any] = {**self._static, **numbers}
        values.update((i, inputs[position]) for position, i in self._free)
        for segment, program in zip(self.plan.segments, programs, strict=True):
            values.update(zip(segment.makes, program(*[values[i] for i in segment.reads]), strict=True))
        return values

    def _plain(self, segment: Segment, program: Any, known: dict[int, Any]) -> Any:
        fixed, state = {i: known[i] for i in segment.reads if i in known}, {_memory(x) for x in self._owned}
        outputs = [i for i in segment.makes if i in self.plan.outputs]

        def step(numbers: dict[int, Any], values: dict[int, Any]) -> None:
            read = [fixed[i] if i in fixed else values[i] if i in values else numbers[i] for i in segment.reads]
            values.update(zip(segment.makes, program(*read), strict=True))
            for i in outputs:  # a view of the state would change when that is written
                if _memory(values[i]) in state:
                    values[i] = values[i].clone()

        return step

    def _keep_results(self, segment: Segment, number: int, known: dict[int, Any]) -> None:
        """Buffers for results of a plain segment that a later recording reads.

        None for what is an input itself, at an address that stays: a transfer works where a recording packed it.
        """
        fixed: dict[Any, Any] = {
            name: known[i] for (name, _), i in zip(segment.graph.inputs, segment.reads, strict=True) if i in known
        }
        for node in segment.graph.nodes:
            if is_in_place(node.call) and node.inputs[0] in fixed:
                fixed[node.outputs[0]] = fixed[node.inputs[0]]
        known.update(
            {i: fixed[name] for name, i in zip(segment.graph.outputs, segment.makes, strict=True) if name in fixed}
        )
        later = {i for other in self.plan.segments[number + 1 :] if other.captured for i in other.reads}
        specs = segment.graph.specs()
        kept: list[tuple[int, torch.Tensor]] = []
        for i, name in zip(segment.makes, segment.graph.outputs, strict=True):
            if i in later and i not in known:
                spec: Any = specs[name]  # type: ignore[index]  # a segment makes what it returns
                known[i] = self._new(torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=self.arena.device))
                kept.append((i, known[i]))

        def copy(numbers: dict[int, Any], values: dict[int, Any]) -> None:
            for i, buffer in kept:
                buffer.copy_(values[i])

        if kept:
            self._steps.append(copy)

    def _takeovers(
        self, found: dict[int, Any], written: Collection[int]
    ) -> tuple[dict[int, torch.Tensor], dict[int, tuple[torch.Tensor, torch.Tensor]]]:
        """What writing the state takes: copies of results that lie in it, and for outputs (buffer, value)."""
        state = {_memory(x) for x in self._owned}
        inputs = {i for i, _ in self.graph.inputs}
        safe: dict[int, torch.Tensor] = {}
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for number, (i, position) in enumerate(zip(self.plan.outputs, self.plan.takes, strict=True)):
            if i is None or i not in found or number in written:
                continue
            value = found[i]
            if position is None:
                if i not in inputs and _memory(value) in state:
                    safe[i] = value.clone()
            elif not _same_place(value, self.state[position]):
                copies[number] = (self.state[position], value.clone() if _memory(value) in state else value)
        return safe, copies

    def _write_rest(self, known: dict[int, Any], written: Collection[int]) -> None:
        """Writes after the last segment what no recording writes: results of plain segments, or of earlier ones."""
        fixed, done = {i: known[i] for i in self.plan.outputs if i is not None and i in known}, set(written)
        takes = self.plan.takes
        left = {
            i
            for number, (i, position) in enumerate(zip(self.plan.outputs, takes, strict=True))
            if i is not None
            and position is not None
            and number not in done
            and not self._lies_there(known.get(i), position)
        }
        if not left:
            return
        state, inputs = {_memory(x) for x in self._owned}, {i for i, _ in self.graph.inputs}
        self._saved = {
            i
            for i, position in zip(self.plan.outputs, takes, strict=True)
            if i is not None and position is None and i in known and i not in inputs and _memory(known[i]) in state
        }

        def step(numbers: dict[int, Any], values: dict[int, Any]) -> None:
            found = {i: values[i] if i in values else fixed[i] for i in self.plan.outputs if i in values or i in fixed}
            safe, copies = self._takeovers(found, done)
            values.update(safe)
            for buffer, value in copies.values():
                buffer.copy_(value)

        self._steps.append(step)

    def _lies_there(self, value: torch.Tensor | None, position: int) -> bool:
        return value is not None and _same_place(value, self.state[position])

    def _find_outputs(self, known: dict[int, Any]) -> None:
        """Where each output is found after a replay."""
        plain = {i for segment in self.plan.segments if not segment.captured for i in segment.makes}
        plain |= {i for _, i in self._free} | self._saved
        self._outputs: list[Any] = [None] * len(self.plan.outputs)
        self._others = [at for at, position in enumerate(self.plan.takes) if position is None]
        self._number_outputs: list[tuple[int, int]] = []
        self._plain_outputs: list[tuple[int, int]] = []
        self._pool_outputs: list[tuple[int, torch.Tensor]] = []
        for at, (i, position) in enumerate(zip(self.plan.outputs, self.plan.takes, strict=True)):
            if i is None:
                continue
            if i in self.plan.number_ids:
                self._number_outputs.append((at, i))
            elif position is not None:
                self._outputs[at] = self.state[position]
            elif i in plain:
                self._plain_outputs.append((at, i))
            else:
                self._pool_outputs.append((at, known[i]))

    def free(self) -> None:
        """Frees the recordings; buffers go with the last reference to them."""
        for recording in self.recordings:
            recording.free()
        self.recordings = []
        self._steps = []
        self._pool_outputs = []

    # -- finding what cannot be recorded ------------------------------------------------------------------------
    def culprit(self, segment: Segment, inputs: Sequence[Any]) -> tuple[Call, str] | None:
        """The first node of a segment that cannot be recorded by itself, and what it says."""
        numbers = self._block.fill([inputs[i] for i in self._number_inputs])
        programs = [self._compile(other.graph, ()) for other in self.plan.segments]
        everything = self._eagerly(programs, inputs, numbers)
        values = {name: everything[i] for (name, _), i in zip(segment.graph.inputs, segment.reads, strict=True)}
        for node in segment.graph.nodes:
            program, names = self._alone(node, segment.graph)
            run = partial(program, *[values[name] for name in names])
            made = run()
            try:
                self.arena.record(run, self._owned).free()
            except RuntimeError as fault:
                return table_call(node.call), f"it cannot be captured: {_first_line(fault)}"
            values.update((i, x) for i, x in zip(node.outputs, made, strict=True) if i is not None)
        return None

    def _alone(self, node: Node, graph: Graph) -> tuple[Any, list[int]]:
        specs = graph.specs()
        names = sorted({x for x in node.inputs if isinstance(x, int)})
        local = {name: position for position, name in enumerate(names)}
        outputs = [None if i is None else len(names) + at for at, i in enumerate(node.outputs)]
        inputs = [local[x] if isinstance(x, int) else x for x in node.inputs]
        alone = Graph([(local[x], specs[x]) for x in names], [Node(node.call, inputs, outputs, node.origin)], outputs)
        return self._compile(alone, ()), names


# -- memory ------------------------------------------------------------------------------------------------------
_CONTIGUOUS: Final = torch.contiguous_format


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _same_place(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x is y or (x.data_ptr() == y.data_ptr() and x.stride() == y.stride() and x.shape == y.shape)


def _adoptable(x: torch.Tensor, taken: Collection[int]) -> bool:
    """Whether a donated tensor can be a buffer: dense, at an address for wide accesses, in memory of its own."""
    return x.is_contiguous() and x.data_ptr() % 16 == 0 and (not x.numel() or _memory(x) not in taken)


def _getter(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Picks these positions out of a tuple; a slice where they are neighbours, which is five times faster."""
    if not positions:
        return lambda inputs: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return lambda inputs: inputs[first : last + 1]
    return itemgetter(*positions)


def _place_of(device: torch.device) -> str:
    return device.type if device.index is None else f"{device.type}:{device.index}"


# -- errors ------------------------------------------------------------------------------------------------------
def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


def _cannot_record(fault: BaseException) -> DeviceError:
    return DeviceError(
        explain(
            "a program could not be recorded as a CUDA graph, and no operation of it could be blamed",
            given=f"{type(fault).__name__}: {_first_line(fault)}",
            expected="a program of which every operation that fails to record alone is left out",
            mend="compile the function without CUDA graphs, and report this message",
        )
    )


def _is_lost(fault: RuntimeError) -> bool:
    return "CUDA error" in str(fault) and "out of memory" not in str(fault)


def _lost(fault: RuntimeError) -> DeviceError:
    """What to tell of a failure of the device: the context of the process is gone, whatever is called next."""
    return DeviceError(
        explain(
            "the GPU failed while a compiled program ran",
            given=_first_line(fault),
            expected="kernels that stay within their tensors; an index outside its axis ends like this",
            mend="start the process again: this CUDA context computes no more. Run the step without compile and with"
            " CUDA_LAUNCH_BLOCKING=1 to see which operation fails",
        )
    )
