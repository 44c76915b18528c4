"""One recording of a program: where its inputs, state and results lie, and what a replay of it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_, itemgetter
from typing import Any, Final

import torch

from burn_torch.backend.capabilities import Overwriting
from burn_torch.backend.libtorch.generated.triton_kernels import prepare_kernels
from burn_torch.backend.libtorch.recorded.device import Arena, Recording
from burn_torch.backend.libtorch.recorded.numbers import NumberBlock
from burn_torch.backend.libtorch.recorded.segments import Segment, Segmentation, table_call
from burn_torch.backend.libtorch.recorded.transfers import is_in_place
from burn_torch.core.spec import TensorSpec
from burn_torch.core.wording import first_line
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.collectives import rehearsal
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["Buffers", "Compile", "Recorded", "Unrecorded", "Whole", "place_of"]

_WARM_UPS: Final = 3

Buffers = Mapping[int, torch.Tensor]
"""Memory of donated inputs, by position."""

Compile = Callable[[Graph, Collection[int]], Callable[..., Sequence[Primitive]]]


@dataclass(frozen=True)
class Whole:
    """The properties that all recordings of a program share; see `capture`.  `donated` and `numbers` are positions."""

    graph: Graph
    arena: Arena
    compile: Compile
    before_overwriting: Overwriting
    donated: Sequence[int]
    numbers: Sequence[int]


class Unrecorded(Exception):
    """A segment that could not be recorded."""

    def __init__(self, segment: Segment, fault: RuntimeError) -> None:
        super().__init__(str(fault))
        self.segment: Final = segment
        self.fault: Final = fault


class Recorded:
    """One recording of a program: static memory, recorded segments, and the order in which a call runs them."""

    def __init__(
        self, whole: Whole, plan: Segmentation, inputs: Sequence[Primitive], held: Sequence[int], buffers: Buffers
    ) -> None:
        self.arena: Final = whole.arena
        self.plan: Final = plan
        self.graph: Final = whole.graph
        self.recordings: list[Recording] = []
        self._compile: Final = whole.compile
        self._before_overwriting: Final = whole.before_overwriting
        self._number_inputs: Final = whole.numbers
        self._donated: Final = whole.donated
        self._held: Final = list(held)
        self._holding: Final = [inputs[i] for i in held]
        self._block: Final = NumberBlock(plan, self.arena)
        self.static_bytes = self._block.nbytes
        self._saved: set[int] = set()
        """Results that lie in the state, copied out before it is written after the last segment."""
        self._steps: list[Callable[[dict[int, Primitive], dict[int, Primitive]], None]] = []
        self._place_inputs(inputs, buffers)

    # -- static memory --------------------------------------------------------------------------------------
    def _place_inputs(self, inputs: Sequence[Primitive], buffers: Buffers) -> None:
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

    def holds(self, inputs: Sequence[object] | Mapping[int, object]) -> bool:
        """Asks whether the held inputs are the tensors that the recording reads."""
        return all(inputs[i] is x for i, x in zip(self._held, self._holding, strict=True))

    def _take_state(self, inputs: Sequence[object]) -> None:
        """Copies donated tensors that are not the program's own into its buffers."""
        self._before_overwriting(self._owned)
        state, ours = self._get_state(inputs), {_memory(x) for x in self._owned}
        wrong = [i for i, (x, buffer) in enumerate(zip(state, self._owned, strict=True)) if x is not buffer]
        # one that lies in another one's buffer would be overwritten before it is read
        values = [state[i].clone() if _memory(state[i]) in ours else state[i] for i in wrong]
        for i, value in zip(wrong, values, strict=True):
            self._owned[i].copy_(value)

    # -- a call -----------------------------------------------------------------------------------------------
    def run(self, inputs: Sequence[object], kept: bool = False) -> Sequence[Primitive]:
        """One replay.  `kept`: the donated inputs are the state's buffers."""
        if not kept and not all(map(is_, self._get_state(inputs), self._owned)):
            self._take_state(inputs)
        outputs = self._outputs.copy()
        for at, x in self._replay(inputs):
            outputs[at] = x
        return tuple(outputs)

    def again(self, inputs: Mapping[int, object]) -> list[Any]:
        """One replay on the state's buffers, of the inputs that do not lie there: the outputs that do not, either."""
        outputs = dict(self._replay(inputs))
        return [outputs.get(at) for at in self._others]

    def _replay(self, inputs: Sequence[Primitive] | Mapping[int, Primitive]) -> list[tuple[int, Any]]:
        """The outputs of a replay that lie in no buffer of the state, each with its number."""
        for positions, buffers in self._batches:
            if len(buffers) == 1:
                buffers[0].copy_(inputs[positions[0]], non_blocking=True)
            else:
                torch._foreach_copy_(buffers, [inputs[i] for i in positions])
        numbers = self._block.fill([inputs[i] for i in self._number_inputs])
        values: dict[int, Primitive] = {i: inputs[position] for position, i in self._free}
        for step in self._steps:
            step(numbers, values)
        outputs = [(at, numbers[i]) for at, i in self._number_outputs]
        outputs += [(at, values[i].clone()) for at, i in self._plain_outputs]
        if len(self._pool_outputs) == 1:
            at, x = self._pool_outputs[0]
            outputs.append((at, x.clone()))
        elif self._pool_outputs:
            pool_values = [x for _, x in self._pool_outputs]
            fresh = [torch.empty_like(x) for x in pool_values]
            torch._foreach_copy_(fresh, pool_values)
            outputs += [(at, x) for (at, _), x in zip(self._pool_outputs, fresh, strict=True)]
        return outputs

    # -- recording --------------------------------------------------------------------------------------------
    def record(self, inputs: Sequence[Primitive]) -> None:
        """Warms the program up on copies of the state, then records its segments.  Trains and sends nothing."""
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
        prepare_kernels(place_of(self.arena.device))
        known: dict[int, Primitive] = dict(self._static)  # what lies at an address that stays
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

    def _forget(self, number: int, known: dict[int, object], made_by: dict[int, tuple[Recording, int]]) -> None:
        """Drops results that neither segment `number` nor a later one reads: what is recorded now may lie there.

        Values that a plain segment reads stay where they are, since its results may be views of them.
        """
        segments = enumerate(self.plan.segments)
        read = {i for at, segment in segments if at >= number or not segment.captured for i in segment.reads}
        read.update(i for i in self.plan.outputs if i is not None)
        for i in [i for i in made_by if i not in read]:
            recording, at = made_by.pop(i)
            recording.forget(at)
            del known[i]

    def _record_segment(self, segment: Segment, program: Any, known: dict[int, object], *, ends: bool) -> set[int]:
        """Records a segment and puts its results into `known`; the last one of a program also writes the state.

        Returns the outputs, by number, whose memory is written.
        """
        arguments = [known[i] for i in segment.reads]
        safe: dict[int, torch.Tensor] = {}
        written: set[int] = set()

        def run() -> Sequence[Primitive]:
            results = program(*arguments)
            if not ends:
                return results
            owned_values, copies = self._takeovers(known | dict(zip(segment.makes, results, strict=True)), set())
            safe.update(owned_values)
            written.update(copies)
            if copies:
                torch._foreach_copy_([b for b, _ in copies.values()], [x for _, x in copies.values()])
            return [*results, *safe.values()]

        try:
            recording = self.arena.record(run, self._owned)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as fault:
            raise Unrecorded(segment, fault) from fault
        self.recordings.append(recording)
        known.update(zip((*segment.makes, *safe), recording.outputs, strict=True))
        replay = recording.replay
        self._steps.append(lambda numbers, values: replay())
        return written

    def _eagerly(
        self, programs: Sequence[Primitive], inputs: Sequence[Primitive], numbers: dict[int, Primitive]
    ) -> dict[int, Primitive]:
        """All values of a run by programs that own nothing, and send nothing to other processes."""
        values: dict[int, Primitive] = {**self._static, **numbers}
        values.update((i, inputs[position]) for position, i in self._free)
        with rehearsal():
            for segment, program in zip(self.plan.segments, programs, strict=True):
                values.update(zip(segment.makes, program(*[values[i] for i in segment.reads]), strict=True))
        return values

    def _plain(self, segment: Segment, program: Any, known: dict[int, object]) -> Any:
        fixed, state = {i: known[i] for i in segment.reads if i in known}, {_memory(x) for x in self._owned}
        outputs = [i for i in segment.makes if i in self.plan.outputs]

        def step(numbers: dict[int, object], values: dict[int, Primitive]) -> None:
            read = [fixed[i] if i in fixed else values[i] if i in values else numbers[i] for i in segment.reads]
            values.update(zip(segment.makes, program(*read), strict=True))
            for i in outputs:  # a view of the state would change when that is written
                if _memory(values[i]) in state:
                    values[i] = values[i].clone()

        return step

    def _keep_results(self, segment: Segment, number: int, known: dict[int, Primitive]) -> None:
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

        def copy(numbers: dict[int, object], values: dict[int, Primitive]) -> None:
            for i, buffer in kept:
                buffer.copy_(values[i])

        if kept:
            self._steps.append(copy)

    def _takeovers(
        self, values: dict[int, Primitive], written: Collection[int]
    ) -> tuple[dict[int, torch.Tensor], dict[int, tuple[torch.Tensor, torch.Tensor]]]:
        """Returns what writing the state takes: copies of results that lie in it, and for outputs (buffer, value)."""
        state = {_memory(x) for x in self._owned}
        inputs = {i for i, _ in self.graph.inputs}
        safe: dict[int, torch.Tensor] = {}
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for number, (i, position) in enumerate(zip(self.plan.outputs, self.plan.takes, strict=True)):
            if i is None or i not in values or number in written:
                continue
            value = values[i]
            if position is None:
                if i not in inputs and _memory(value) in state:
                    safe[i] = value.clone()
            elif not _same_place(value, self.state[position]):
                copies[number] = (self.state[position], value.clone() if _memory(value) in state else value)
        return safe, copies

    def _write_rest(self, known: dict[int, Primitive], written: Collection[int]) -> None:
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

        def step(numbers: dict[int, object], values: dict[int, object]) -> None:
            outputs = {
                i: values[i] if i in values else fixed[i] for i in self.plan.outputs if i in values or i in fixed
            }
            safe, copies = self._takeovers(outputs, done)
            values.update(safe)
            for buffer, value in copies.values():
                buffer.copy_(value)

        self._steps.append(step)

    def _lies_there(self, value: torch.Tensor | None, position: int) -> bool:
        return value is not None and _same_place(value, self.state[position])

    def _find_outputs(self, known: dict[int, Primitive]) -> None:
        """Finds the place of each output after a replay."""
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
    def culprit(self, segment: Segment, inputs: Sequence[object]) -> tuple[Call, str] | None:
        """The first node of a segment that cannot be recorded by itself, and what it says."""
        numbers = self._block.fill([inputs[i] for i in self._number_inputs])
        programs = [self._compile(other.graph, ()) for other in self.plan.segments]
        everything = self._eagerly(programs, inputs, numbers)
        values = {name: everything[i] for (name, _), i in zip(segment.graph.inputs, segment.reads, strict=True)}
        for node in segment.graph.nodes:
            program, names = self._alone(node, segment.graph)
            run = partial(program, *[values[name] for name in names])
            results = run()
            try:
                self.arena.record(run, self._owned).free()
            except RuntimeError as fault:
                return table_call(node.call), f"it cannot be captured: {first_line(fault)}"
            values.update((i, x) for i, x in zip(node.outputs, results, strict=True) if i is not None)
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


def _is_tensor(x: object) -> bool:
    return isinstance(x, torch.Tensor)


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _same_place(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x is y or (x.data_ptr() == y.data_ptr() and x.stride() == y.stride() and x.shape == y.shape)


def _adoptable(x: torch.Tensor, taken: Collection[int]) -> bool:
    """Asks whether a donated tensor can be a buffer: dense, at an address for wide accesses, in memory of its own."""
    return x.is_contiguous() and x.data_ptr() % 16 == 0 and (not x.numel() or _memory(x) not in taken)


def _getter(positions: Sequence[int]) -> Callable[[Sequence[Primitive]], Sequence[Primitive]]:
    """Picks these positions out of a tuple; a slice where they are neighbours, which is five times faster."""
    if not positions:
        return lambda inputs: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return lambda inputs: inputs[first : last + 1]
    return itemgetter(*positions)


def place_of(device: torch.device) -> str:
    """A device as specs name it."""
    return device.type if device.index is None else f"{device.type}:{device.index}"
