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
* Numbers are computed on the host and copied in one block (`numbers.py`).
* Every other output is copied out of private memory: what the caller holds is never written to again.

Operations that cannot be recorded are launched plainly between recorded parts; `program.splits` says what and why.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from burn_torch.backend.capabilities import Overwriting
from burn_torch.backend.libtorch.generated.triton_kernels import HeldKernelFailed
from burn_torch.backend.libtorch.recorded.device import Arena, CudaArena
from burn_torch.backend.libtorch.recorded.faults import cannot_record, is_lost, lost
from burn_torch.backend.libtorch.recorded.recording import Buffers, Compile, Recorded, Unrecorded, Whole, place_of
from burn_torch.backend.libtorch.recorded.segments import Segmentation, Split, divide, table_call
from burn_torch.backend.libtorch.tensors.modes import in_autocast, in_inference, outside
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.core.wording import first_line
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["CapturedProgram", "CapturedSizes", "arena_of", "capture"]

_HELD_CHANGES: Final = 3


@dataclass(frozen=True)
class CapturedSizes:
    """The costs of a captured program: kernels a call (None where no driver tells), bytes of each kind of memory."""

    launches: int | None
    recordings: int
    pool_bytes: int
    """Private memory of the arena, shared by all programs that were recorded with it."""
    static_bytes: int
    """Buffers of inputs and numbers; adopted tensors are not counted."""


def arena_of(place: str) -> CudaArena:
    """Private memory on a CUDA place, for programs that take turns."""
    return CudaArena(torch.device(place))


def capture(
    graph: Graph,
    donate: Collection[int] = (),
    *,
    hold: Collection[int] = (),
    compile: Compile,
    arena: Arena | None = None,
    before_overwriting: Overwriting = lambda buffers: None,
) -> CapturedProgram:
    """A program that records itself as CUDA graphs at its first call.

    donate    positions of inputs whose memory it owns from then on: the caller holds them no more, and they share no
              memory.  An output that has the spec of one takes its memory over, in order.
    hold      positions of inputs that are the same tensors at every call
    arena     private memory and order of work, shared with other programs; default: its own
    compile   makes straight-line Python of a part
    before_overwriting   told of the state's buffers when other values than those handed out are about to be put there:
              whoever still holds what was handed out can save it

    Raises: DeviceError where no input and no result lies on a CUDA device.
    """
    home: Arena = arena_of(_cuda_place(graph)) if arena is None else arena
    return CapturedProgram(graph, donate, hold, home, compile, before_overwriting)


def _cuda_place(graph: Graph) -> str:
    specs = list(graph.specs().values())
    places = sorted({spec.place for spec in specs if isinstance(spec, TensorSpec) and spec.place.startswith("cuda")})
    if len(places) != 1:
        raise DeviceError(
            "this program cannot be recorded as a CUDA graph",
            given=f"values on {', '.join(places)}" if places else "no value on a CUDA device",
            expected="values on one CUDA device",
            mend="move the model and the batch to one device" if places else "compile it without CUDA graphs",
        )
    return places[0]


@final
class CapturedProgram:
    """A graph recorded for replay; see the module.  Calls of several threads run one after the other."""

    def __init__(
        self, graph: Graph, donate: Collection[int], hold: Collection[int], arena: Arena, compile: Compile,
        before_overwriting: Overwriting,
    ) -> None:  # fmt: skip
        self.graph: Final = graph
        self.arena: Final = arena
        tensors = [i for i, (_, spec) in enumerate(graph.inputs) if isinstance(spec, TensorSpec)]
        self._donated: Final = [i for i in tensors if i in donate]
        self._held = [i for i in tensors if i in hold and i not in donate]
        owned = set(self._donated)
        self._given: Final = [i for i in range(len(graph.inputs)) if i not in owned]
        numbers = [i for i, (_, spec) in enumerate(graph.inputs) if isinstance(spec, NumberSpec)]
        self._whole: Final = Whole(graph, arena, compile, before_overwriting, self._donated, numbers)
        self._refused: dict[Call, str] = {}
        self._place: Final = place_of(arena.device)
        self._recorded: Recorded | None = None
        self._held_changes = 0
        self._lock: Final = threading.RLock()
        self._closed = False
        self._segmentation: Segmentation = self._divide_graph()

    def _divide_graph(self) -> Segmentation:
        return divide(self.graph, self._place, self._donated, refused=self._refused.items())

    # -- what it is -----------------------------------------------------------------------------------
    @property
    def splits(self) -> tuple[Split, ...]:
        """The parts launched plainly between recorded ones, and why."""
        return self._segmentation.splits

    @property
    def sizes(self) -> CapturedSizes:
        """Launches and memory; of a program that was never called, zeros."""
        recorded = self._recorded
        if recorded is None:
            return CapturedSizes(0, 0, self.arena.nbytes, 0)
        launches = [recording.launches for recording in recorded.recordings]
        known = [n for n in launches if n is not None]
        return CapturedSizes(
            sum(known) if len(known) == len(launches) else None, len(launches), self.arena.nbytes, recorded.static_bytes
        )

    # -- calling ----------------------------------------------------------------------------------------
    def __call__(self, *inputs: object, kept: bool = False) -> Sequence[Primitive]:
        """The outputs, valid on the caller's current stream.  Outputs that took donated memory over are the program's
        until they are handed back; `kept` says that the donated inputs are those of the last call, so nobody looks."""
        if in_inference() or (self._recorded is None and in_autocast()):
            return outside(functools.partial(self, kept=kept), inputs)
        try:
            with self._lock, self.arena.lock, self.arena.entered():
                recorded = self._recorded
                if recorded is None:
                    self._require_open()
                    recorded = self._recorded = self._record(inputs)
                elif self._held and not recorded.holds(inputs):
                    recorded = self._recorded = self._record_again(inputs)
                return recorded.run(inputs, kept)
        except HeldKernelFailed as failed:  # in a later call, for other strides: the state may be half written
            raise failed.fault from None
        except RuntimeError as fault:
            if is_lost(fault):
                raise lost(fault) from fault
            raise

    def again(self, given: Sequence[object]) -> list[Any]:
        """A call whose donated tensors are those of the last one: of the other inputs, in order, the outputs that take
        no donated memory over, in order.
        """
        if in_inference():
            return outside(self.again, (given,))
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
            if is_lost(fault):
                raise lost(fault) from fault
            raise

    @property
    def takes(self) -> tuple[int | None, ...]:
        """For each output, the position of the donated input whose memory it takes over; None where it has its own."""
        return tuple(self._segmentation.takes)

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
                "this captured program is closed",
                given="a call after close()",
                expected="a program whose memory was not given back",
                mend="capture it again",
            )

    # -- recording ----------------------------------------------------------------------------------------
    def _blame_all(self, failed: Unrecorded) -> dict[Call, str]:
        """All operations of a segment that cannot be recorded, though each alone can: they are launched plainly."""
        if is_lost(failed.fault):
            raise failed.fault
        reason = f"the part that it is in cannot be captured: {first_line(failed.fault)}"
        return {table_call(node.call): reason for node in failed.segment.graph.nodes}

    def _record_again(self, inputs: Sequence[object]) -> Recorded:
        self._held_changes += 1
        if self._held_changes >= _HELD_CHANGES:
            self._held = []
        assert self._recorded is not None
        buffers = self._recorded.state
        self._recorded.free()
        return self._record(inputs, buffers)

    def _record(self, inputs: Sequence[object], buffers: Buffers | None = None) -> Recorded:
        """Records; where a node cannot be, splits there and starts again."""
        while True:
            recorded = Recorded(self._whole, self._segmentation, inputs, self._held, buffers or {})
            try:
                recorded.record(inputs)
            except HeldKernelFailed as failed:
                recorded.free()
                failed.plan_without()
                self._segmentation = self._divide_graph()
            except Unrecorded as failed:
                culprit = recorded.culprit(failed.segment, inputs)
                recorded.free()
                refused = self._blame_all(failed) if culprit is None else dict([culprit])
                if refused.keys() <= self._refused.keys():
                    raise cannot_record(failed.fault) from failed.fault
                self._refused.update(refused)
                self._segmentation = self._divide_graph()
            else:
                return recorded
