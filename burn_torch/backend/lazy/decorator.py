"""Fusion: a decorator that records what it is told to compute, and computes it when somebody needs it.

The operations between two cuts are one graph: the scheduler makes kernels of it, and a value that is no longer held is
never written to memory.  Cuts follow from the sequence of operations alone: a read by the host, `flush` and `sync`, an
operation whose shape depends on data, that leaves its place or needs other processes, an optimizer's update, 256
operations, and a library's operation once 32 are pending.  Only a value that another thread uses before it is computed
adds a cut, there and then.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from burn_torch.backend.base import capabilities
from burn_torch.backend.decorator import Decorator
from burn_torch.backend.lazy.plans import Planner, Ready, changed, version_reader
from burn_torch.backend.lazy.recipes import can_be_again
from burn_torch.backend.lazy.stream import Computed, Failed, Lazy, Recipe, Stream, recorder
from burn_torch.backend.lazy.trie import TAPED, Step
from burn_torch.core.frames import is_users
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.fusion.rewrites.patterns import literals, on_change
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Literal
from burn_torch.graph.origin import Origin
from burn_torch.ops.laws import Copies, Draws, Fill, Folds, Moves, Regions
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["Fusion", "streams_of_this_thread"]

_LONGEST: Final = 256
_BEFORE_LIBRARY: Final = 32
_STEPS: Final = 1 << 16
"""The number of recorded operations that are remembered; beyond it all is forgotten, and begins anew."""

_lock: Final = threading.Lock()


class _Local(threading.local):
    """The stream of each thread at one place; it is made when a thread first asks for it."""

    def __init__(self, fusion: Fusion, place: str) -> None:
        self.stream: Final = Stream(fusion, place)


@final
class Fusion(Decorator):
    """Computes later, in fused kernels.  `Fusion(inner)` of one stack is always the same object.

    A primitive is the inner primitive itself where it was given from outside, else a Lazy.  Generated kernels run where
    the leaf has them (`Backend.generates`); elsewhere the operations run one by one, with the bits of the leaf.

    While a function is traced, the inner stack is: a traced Fusion passes everything on.
    """

    is_fusion = True
    root: Step
    keyed: dict[NumberSpec, dict[object, Literal]]
    """Numbers that are part of the key of a sequence, since a pattern asks for them."""
    planner: Planner

    def _begin(self) -> None:
        inner = self.inner
        self.origins = getattr(inner, "origins", None)
        self.version_expression = getattr(inner, "version_expression", None)
        self.version_of = version_reader(inner)
        self.planner = Planner(inner)
        self.planned = self.planner.planned
        self._locals = {}
        self._forget()
        if inner.session is None:
            self.replan()
            on_change(self.replan)
        else:
            self.execute = inner.execute  # type: ignore[method-assign]  # a trace is lazy by itself
            self.execute_taped = inner.execute  # type: ignore[method-assign]  # as the line above
            self.compile = inner.compile  # type: ignore[method-assign]  # as the line above

    origins: Any
    version_expression: object
    version_of: Callable[[Any], int]
    planned: Callable[[Step, tuple[bool, ...], str], Ready]
    _locals: dict[str, _Local]
    _taped_key: object
    _key: object
    """The key under which Calls keep their recorders."""
    _steps: int

    # -- recording ---------------------------------------------------------------------------------------
    def execute(self, call: Call, inputs: Sequence[object]) -> Sequence[Primitive]:
        """Records a Call: its results are there when somebody needs them."""
        return (call.plans.get(self._key) or self._recorder(call))(inputs)

    def execute_taped(self, call: Call, inputs: Sequence[object]) -> Sequence[object]:
        """`execute` for a tape, which may keep the result for long: it may stay a recipe, see `recipes.py`."""
        return (call.plans.get(self._taped_key) or self._recorder(call, taped=True))(inputs)

    def _recorder(self, call: Call, taped: bool = False) -> Callable[[Sequence[Primitive]], Sequence[object]]:
        specs = [spec for spec in (*call.specs, *call.results) if isinstance(spec, TensorSpec)]
        places = {spec.place for spec in specs}
        known = [spec for spec in call.results if spec is not None]
        record: Callable[[Sequence[Primitive]], Sequence[Primitive]]
        # an update of hundreds of tensors is one launch already: to record it takes longer than to launch it
        update = call.op.runs is not None
        apart = update or call.op.barrier or call.op.collective is not None or call.is_number
        if apart or len(places) != 1 or not known:
            record = self.cutting(call, sorted(places))
        elif call.is_input:
            record = _first
        else:
            (place,) = places
            limit = _BEFORE_LIBRARY if _is_library(call) else _LONGEST
            again = taped and can_be_again(call) and capabilities(self.inner).generates(place)
            record = recorder(self, call, self._local(place), limit, again)
        call.plans[self._taped_key if taped else self._key] = record
        return record

    def cutting(self, call: Call, places: Sequence[str]) -> Callable[[Sequence[Primitive]], Sequence[object]]:
        """Returns the function that computes a Call at once, after all that is recorded at these places."""

        def run(inputs: Sequence[object]) -> Sequence[Primitive]:
            for place in places:
                self._local(place).stream.flush()
            operands = [self.unwrapped(x) if isinstance(x, Lazy) else x for x in inputs]
            return self.inner.execute(call, operands)

        return run

    def _local(self, place: str) -> _Local:
        local = self._locals.get(place)
        if local is None:
            with _lock:
                local = self._locals.get(place)
                if local is None:
                    local = self._locals[place] = _Local(self, place)
        return local

    def grow(self, last: Step, key: tuple[Any, ...]) -> Step:
        """The node of a sequence that is recorded for the first time."""
        origin = _origin()
        with _lock:
            step = last.next.get(key)
            if step is None:
                taped = key[-1] is TAPED
                step = Step(last, key[0], key[1:-1] if taped else key[1:], origin, taped=taped)
                self._steps += 1
                if self._steps > _STEPS:
                    self._forget()
                last.next[key] = step
        return step

    def replan(self) -> None:
        """Forgets what was planned, since patterns have changed."""
        self.keyed = literals()
        self._key, self._taped_key = object(), object()
        for step in self.root.below():  # segments that are being recorded end in the old tree
            step.plans.clear()
        self.planner.forget()
        self._forget()

    def _forget(self) -> None:
        """Begins a new tree."""
        self._steps = 0
        self.root = Step(None, None, ())

    # -- computing ---------------------------------------------------------------------------------------
    def unwrapped(self, primitive: Primitive) -> Any:
        """The inner primitive; computes it if it is pending.  Raises: what its computation raised."""
        kind = primitive.__class__
        if kind is Lazy:
            stream = primitive.segment.stream
            with stream.lock:
                if primitive.__class__ is Lazy:  # else another thread was quicker
                    stream.compute(primitive.segment, primitive)
            kind = primitive.__class__
        if kind is Recipe:
            return self._write(primitive, self.again(primitive))
        if kind is Computed:
            return primitive.value
        if kind is Failed:
            raise primitive.value
        return primitive

    def write_recipes(self, inputs: Sequence[object]) -> list[object]:
        """The inputs of an operation, with recipes among them computed, together.

        For operations during whose recording the segment was closed: what their recipes are made of may be more than
        one segment holds, so that recording them again would close the next one too, for ever.
        """
        recorded = [(x, self.again(x)) for x in inputs if x.__class__ is Recipe]
        for recipe, y in recorded:
            self._write(recipe, y)
        return list(inputs)

    def _write(self, recipe: Any, recorded: object) -> object:
        """The value of a recipe, which is kept from now on."""
        value = self.unwrapped(recorded)
        recipe.value, recipe.base = value, self.version_of(value)
        recipe.__class__ = Computed
        recipe.recipe = None
        return value

    def again(self, recipe: Any) -> Any:
        """Records what a recipe says.  Raises: AutodiffError where something that it reads was written to since."""
        source = recipe.recipe
        if source is None:  # another thread has computed it
            return recipe
        call, inputs = source
        operands: list[Primitive] = []
        for read in inputs:
            if read is not None and read[0] == "outside" and self.version_of(read[1]) != read[2]:
                raise changed(self.inner.spec(read[1]), None)
            operands.append(None if read is None else read[1])
        return self.execute(call, operands)[0]

    def flush(self, place: str) -> None:
        """Computes what the calling thread has recorded at `place`."""
        self._local(place).stream.flush()

    def stream(self, place: str) -> Stream:
        """The calling thread's stream at `place`."""
        return self._local(place).stream

    # -- what is pending counts -----------------------------------------------------------------------------
    def sync(self, place: str) -> None:
        """Computes what the calling thread has recorded, and waits for it."""
        if self.session is None:
            self.flush(place)
        self.inner.sync(place)

    def version(self, primitive: Primitive) -> int:
        """The inner backend's count of outside writes since the value was made."""
        kind = primitive.__class__
        if kind is Computed:
            return self.version_of(primitive.value) - primitive.base
        return 0 if issubclass(kind, Lazy) else self.version_of(primitive)


def streams_of_this_thread() -> list[Stream]:
    """The calling thread's streams of all stacks and places that were used so far."""
    stacks = [stack for stack in Decorator.interned() if isinstance(stack, Fusion)]
    return [local.stream for stack in stacks for local in list(stack._locals.values())]


def _first(inputs: Sequence[object]) -> Sequence[object]:
    return (inputs[0],)


def _is_library(call: Call) -> bool:
    """Asks whether no generated kernel computes a Call, nor all of its parts."""
    known: bool | None = call.memo.get(_is_library)
    if known is None:
        op = call.op
        regions = op.law(Regions)
        if op.pointwise is not None or call.aliases or any(op.law(law) for law in (Folds, Draws, Moves, Fill, Copies)):
            known = False
        elif regions is not None:
            known = regions.of(call) is None
        else:
            parts = expanded(call)
            known = parts is None or any(_is_library(node.call) for node in parts.nodes)
        call.memo[_is_library] = known
    return known


def _origin() -> Origin | None:
    """The user's line that records."""
    frame = sys._getframe(2)
    while not is_users(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return Origin(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
