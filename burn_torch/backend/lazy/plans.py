"""Plans of sequences of operations, and what happens where one fails.

If the leaf runs generated kernels, the graph goes through the passes and the scheduler (`burn_torch/fusion`) and is
compiled as a program.  Elsewhere it is the same calls as unfused execution, in the same order.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, final

from burn_torch.backend.base import Backend, capabilities, program_of
from burn_torch.backend.lazy.storms import Shapes
from burn_torch.backend.lazy.trie import Step, graph_of
from burn_torch.core.errors import AutodiffError
from burn_torch.core.frames import user_level, warn_user
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.fusion import Choices, Plan, plan_of
from burn_torch.fusion.body.reasons import FusionWarning
from burn_torch.fusion.planning.faults import attempts
from burn_torch.fusion.rewrites.patterns import replaced
from burn_torch.fusion.rows.row import inside
from burn_torch.fusion.rows.symbolic import call_form, call_sizes
from burn_torch.fusion.shapes.variants import SymbolicPlan
from burn_torch.graph.interpreter import executed, interpret, stepwise
from burn_torch.graph.ir import Graph
from burn_torch.graph.passes import dead_code, pipeline
from burn_torch.graph.verifying import is_verifying
from burn_torch.ops.value import Primitive

__all__ = ["FusionWarning", "Planner", "Ready", "changed", "replayed", "version_reader"]

_MASKS: Final = 8
"""The number of choices of wanted results that one sequence may have; from then on all of them are computed."""

_OFTEN: Final = 3
"""The run at which a plan of symbolic sizes becomes a program at its sizes."""

_WINDOW: Final = 256
_MISSES: Final = 64
"""After so many misses among the last 256 flushes, what is met for the first time is not planned."""

_FORMS: Final = 4096

_TOLD: Final = 16


def version_reader(inner: Any) -> Callable[[Any], int]:
    """Returns the counter of writes to a primitive: read off it if it has one (quicker); moved values say so."""
    if getattr(inner, "version_expression", None) == "{}._version":
        return attrgetter("_version")
    return inner.version


@final
class Ready:
    """A sequence of operations, ready to run.

    gives  which results of the sequence it computes, in the order of the graph's outputs
    fused  whether generated kernels run; a failure of one turns it off
    """

    __slots__ = (
        "_given", "_graph", "_key", "_plan", "_reads", "_run", "_version", "fused", "gives", "inner", "lock", "notes",
        "program", "runs", "symbolic",
    )  # fmt: skip

    def __init__(
        self, inner: Backend, graph: Graph | Callable[[], Graph], outside: Sequence[int], live: Sequence[bool]
    ) -> None:
        self.inner: Final = inner
        self.gives: Final = tuple(i for i, alive in enumerate(live) if alive)
        self.lock: Final = threading.Lock()
        self.fused = False
        self.runs = 0
        """How often it ran."""
        self.symbolic: SymbolicPlan | None = None
        """The plan of symbolic sizes that it is an instance of."""
        self.program: Graph | None = None
        """The graph of that plan at its sizes."""
        self.notes: tuple[str, ...] = ()
        """Notes on what is plainer than it could be, and why, beside those of its plan."""
        self._graph = graph
        self._key: str | None = None
        self._given: Final = len(outside)
        self._version: Final = version_reader(inner)
        self._reads: Final = None if list(outside) == list(range(len(outside))) else tuple(outside)
        self._plan: Plan | None = None
        self._run: Callable[..., Sequence[object]] | None = None

    @property
    def graph(self) -> Graph:
        """As it was recorded, without what nobody wants."""
        if not isinstance(self._graph, Graph):
            self._graph = self._graph()
        return self._graph

    @property
    def key(self) -> str:
        """The key of the graph and the results that are wanted; the same in every process."""
        if self._key is None:
            self._key = hashlib.blake2b(self.graph.text().encode(), digest_size=16).hexdigest()
        return self._key

    @property
    def plan(self) -> Plan:
        """The scheduler's plan; where nothing is generated, it is made at the first request."""
        if self.symbolic is not None:
            return self.symbolic.plan
        with self.lock:
            if self._plan is None:
                self._plan = stream_plan(self.graph, capabilities(self.inner).choices).with_notes(*self.notes)
            return self._plan

    # -- making ------------------------------------------------------------------------------------------
    def make(self, place: str) -> None:
        """Compiles it: with generated kernels if the leaf runs them at `place`."""
        if capabilities(self.inner).generates(place):
            try:
                self._run = program_of(self.inner, self.plan.graph).run
                self.fused = True
            except Exception as fault:
                self._tell(fault)
        if self._run is None:
            self._run = self.inner.compile(self.graph)

    def share(self, symbolic: SymbolicPlan, program: Graph) -> None:
        """Runs what a plan of symbolic sizes is at these: step by step, until it has come often enough to compile."""
        self.symbolic, self.program = symbolic, program
        self._run = steps_of(program, self.inner)
        self.fused = True

    def compute(self, outside: Sequence[tuple[object, int]], numbers: Sequence[object]) -> Sequence[Primitive]:
        """The wanted results; in the place of one that cannot be computed, the error."""
        self.runs += 1
        if self._reads is not None:
            outside = [outside[i] for i in self._reads]
        elif len(outside) > self._given:
            outside = outside[: self._given]
        version = self._version
        operands: list[Primitive] = []
        for x, before in outside:
            if version(x) != before:
                return self._spoilt(outside, numbers)
            operands.append(x)
        operands += numbers
        try:
            if self.program is not None and self.runs == _OFTEN and self.fused:
                self._run = program_of(self.inner, self.program).run
            run = self._run
            return interpret(self.graph, self.inner, operands) if run is None else run(*operands)
        except Exception as fault:
            return self._compute_without_kernels(fault, operands)

    def _spoilt(self, outside: Sequence[tuple[object, int]], numbers: Sequence[object]) -> Sequence[object]:
        """The results where values from outside were written to since they were read."""
        inner = self.inner
        operands = [x if inner.version(x) == then else changed(inner.spec(x), self.graph) for x, then in outside]
        return replayed(self.graph, inner, [*operands, *numbers])

    def _compute_without_kernels(self, fault: Exception, given: Sequence[object]) -> Sequence[object]:
        """The results without generated kernels.  If they come out, a kernel was at fault: it is told of, and not run
        again.  Else each operation runs alone, so that all that does not hang on the one that fails is there.
        """
        values = replayed(self.graph, self.inner, given)
        if self.fused and not any(isinstance(value, BaseException) for value in values):
            self.fused = False
            self._run = self.inner.compile(self.graph)
            if self.symbolic is not None:
                self.symbolic.failed = True
            self._tell(fault)
        return values

    def _tell(self, fault: Exception) -> None:
        """Warns of a fault.  Raises: it, with BURN_TORCH_VERIFY=1."""
        if is_verifying():
            raise fault
        self.notes += (f"operation by operation: {type(fault).__name__}: {fault}",)
        self._plan = None if self._plan is None else self._plan.with_notes(self.notes[-1])
        rows = ", ".join(node.call.op.name for node in self.graph.nodes[:8])
        more = f" and {len(self.graph.nodes) - 8} more" if len(self.graph.nodes) > 8 else ""
        origin = next((node.origin for node in self.graph.nodes if node.origin is not None), None)
        warn_user(
            FusionWarning,
            "a generated kernel failed; its operations run without it from now on",
            given=f"{rows}{more}{'' if origin is None else f', from {origin}'}: {type(fault).__name__}: {fault}",
            expected="a kernel that compiles and runs",
            mend="the results are right; please report it with the text of device.explain()",
        )


def stream_plan(graph: Graph, choices: Choices, *, plainer: bool = True) -> Plan:
    """The plan of what a stream has recorded.  Results may share memory with what they were made of.

    plainer  passes that fail are left out, and what cannot be planned is left to the leaf; else the fault is raised
    """
    plan = Plan(graph, (), ())
    notes: list[str] = []

    def fuse(graph: Graph) -> Graph:
        nonlocal plan
        plan = plan_of(graph, choices, plainer=plainer)
        return plan.graph

    after, reports = pipeline(
        graph,
        profile="stream",
        numerics="fast",
        handed={"patterns": replaced, "fuse": fuse},
        attempt=attempts(notes) if plainer else None,
        body=inside,
    )
    return replace(plan, graph=after, passes=(reports, *plan.passes)).with_notes(*notes)


def steps_of(graph: Graph, inner: Backend) -> Callable[..., list[object]]:
    """A function that runs a graph operation by operation, for what is not worth a program of its own."""
    last = {i: n for n, node in enumerate(graph.nodes) for i in node.inputs if isinstance(i, int)}
    kept = {*graph.outputs, *(i for i, _ in graph.inputs)}
    gone = [
        [
            i
            for i in dict.fromkeys((*node.inputs, *node.outputs))
            if isinstance(i, int) and last.get(i, n) == n and i not in kept
        ]
        for n, node in enumerate(graph.nodes)
    ]
    steps = list(zip(graph.nodes, gone, strict=True))
    names = [i for i, _ in graph.inputs]

    def run(*given: object) -> list[Any]:
        values: dict[Any, Any] = dict(zip(names, given, strict=True))
        for node, dying in steps:
            for i, x in zip(node.outputs, executed(node, inner, values), strict=True):
                values[i] = x
            for i in dying:
                values.pop(i, None)
        return [values[i] for i in graph.outputs if i is not None]

    return run


def replayed(graph: Graph, inner: Backend, given: Sequence[object]) -> list[object]:
    """The outputs, each operation computed alone; an error in the place of each that hangs on one that fails.

    An input may be an error already.
    """
    values: dict[int, Primitive] = {i: x for (i, _), x in zip(graph.inputs, given, strict=True)}
    for node in graph.nodes:
        inputs = [i for i in node.inputs if isinstance(i, int)]
        fault = next((values[i] for i in inputs if isinstance(values[i], Exception)), None)
        results: Sequence[Primitive]
        if fault is None:
            alone = Graph([(i, spec) for i, spec in _specs_of(node)], [node], node.outputs)
            try:
                ((_, results),) = stepwise(alone, inner, [values[i] for i, _ in alone.inputs])
            except Exception as found:
                if node.origin is not None:
                    found.add_note(f"at {node.origin}")
                found.add_note(f"in {node.call!r}, which was recorded there and computed later")
                fault = found
        if fault is not None:
            results = [fault] * len(node.outputs)
        values.update((i, x) for i, x in zip(node.outputs, results, strict=True) if i is not None)
    return [values[i] for i in graph.outputs if i is not None]


def _specs_of(node: Any) -> list[tuple[int, Spec]]:
    specs = {i: spec for i, spec in zip(node.inputs, node.call.specs, strict=True) if isinstance(i, int)}
    return list(specs.items())


def changed(spec: TensorSpec, graph: Graph | None) -> AutodiffError:
    """The error of a value that was written to while an operation that reads it was pending."""
    nodes = () if graph is None else graph.nodes
    origin = next((node.origin for node in nodes if node.origin is not None), None)
    return AutodiffError(
        "a value was written to after an operation on it was recorded and before it was computed",
        given=f"{spec}, shared with torch and changed in place{'' if origin is None else f', read at {origin}'}",
        expected="values that stay as they were until what reads them is computed",
        mend="call device.flush() before the write, or write to a copy: Tensor.from_torch(tensor.clone())",
    )


# -- choosing ------------------------------------------------------------------------------------------
@final
class Planner:
    """Finds or makes what a sequence becomes, and bounds how much is made.

    flushes    so many programs ran
    misses     how often something had to be made, or was met for the first time in a storm
    shared     how often a plan of symbolic sizes served a new shape
    unplanned  how many of the misses ran without a plan, since too much was new
    plainer    how many of the misses have a plainer plan than they could: each plan says why
    storms     what was told of programs that are planned again and again, the first 16
    """

    def __init__(self, inner: Backend) -> None:
        self.inner: Final = inner
        self.flushes = 0
        self.misses = 0
        self.shared = 0
        self.unplanned = 0
        self.plainer = 0
        self.storms: Final[list[str]] = []
        self._recent: Final[deque[int]] = deque(maxlen=_MISSES)
        """The flushes at which something new was met last."""
        self._shapes: Final[dict[Any, Shapes]] = {}
        self._lock: Final = threading.RLock()

    def planned(self, last: Step, live: tuple[bool, ...], place: str) -> Ready:
        """Plans what `Step.plans` does not have."""
        with self._lock:
            ready: Ready | None = last.plans.get(live)
            if ready is None and len(last.plans) >= _MASKS:
                live = tuple(spec is not None for step in last.path() for spec in _results(step))
                ready = last.plans.get(live)
            return ready or self._find_or_plan(last, live, place)

    def forget(self) -> None:
        """Forgets all plans of symbolic sizes, since patterns have changed."""
        with self._lock:
            self._shapes.clear()

    def _find_or_plan(self, last: Step, live: tuple[bool, ...], place: str) -> Ready:
        steps = last.path()
        calls = [step.call for step in steps if step.call is not None]
        key = (live, *[part for step, call in zip(steps, calls, strict=True) for part in (call_form(call), step.slots)])
        shapes = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) > _FORMS:
                self._shapes.clear()
            shapes = self._shapes[key] = Shapes()
        sizes = tuple(itertools.chain.from_iterable(map(call_sizes, calls)))
        if shapes.outside is not None:
            shared = shapes.variants.found(sizes)
            if shared is not None:
                self.shared += 1
                ready = Ready(self.inner, lambda: dead_code(graph_of(last, live)[0]), shapes.outside, live)
                ready.share(*shared)
                last.plans[live] = ready
                return ready
        return self._plan_anew(last, live, place, shapes, sizes)

    def _plan_anew(
        self, last: Step, live: tuple[bool, ...], place: str, shapes: Shapes, sizes: tuple[int, ...]
    ) -> Ready:
        self.misses += 1
        stormy = len(self._recent) == _MISSES and self.flushes - self._recent[0] < _WINDOW
        self._recent.append(self.flushes)
        graph, outside = graph_of(last, live)
        ready = Ready(self.inner, dead_code(graph), outside, live)
        generates = capabilities(self.inner).generates(place)
        # without kernels a plan is a program of the leaf: worth it for the first shape, and for those that come again
        if (not (stormy or shapes.many) if generates else not stormy and not shapes.plans) or last.met:
            schedule = partial(stream_plan, choices=capabilities(self.inner).choices, plainer=False)
            symbolic = shapes.variants.made(graph, sizes, schedule) if generates else None
            shared = None if symbolic is None else shapes.variants.found(sizes)
            if shared is not None:
                shapes.outside = outside
                ready.share(*shared)
            else:
                shapes.variants.exact += 1
                ready.notes = (shapes.variants.why,) if shapes.variants.why else ()
                ready.make(place)
                self.plainer += bool(generates and (ready.notes or ready.plan.notes))
            last.plans[live] = ready
        else:
            self.unplanned += generates or stormy
        shapes.variants.remember(sizes)
        last.met = True
        if generates and shapes.many and not shapes.told:  # elsewhere a plan is next to nothing
            shapes.told = True
            message = shapes.report(graph)
            if len(self.storms) < _TOLD:
                self.storms.append(message)
            warnings.warn(message, FusionWarning, stacklevel=user_level())
        return ready


def _results(step: Step) -> Sequence[object]:
    assert step.call is not None
    return step.call.results
