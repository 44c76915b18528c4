"""A compiled program: what one structure of arguments was traced to, and how it is run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, final

from burn_torch.backend import Backend
from burn_torch.backend.base import capabilities
from burn_torch.backend.capabilities import Program as Code
from burn_torch.backend.capabilities import Recorded
from burn_torch.backend.lazy import is_fused
from burn_torch.core.frames import user_level
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion import Plan
from burn_torch.fusion.planning.again import kept_less
from burn_torch.fusion.planning.faults import attempts, plan_or_plainer
from burn_torch.fusion.rewrites.chunking import chunk_losses
from burn_torch.fusion.rewrites.endings import with_endings
from burn_torch.fusion.rewrites.patterns import replaced
from burn_torch.fusion.rewrites.tables import add_rows
from burn_torch.fusion.rows.row import inside
from burn_torch.fusion.shapes.variants import Schedules
from burn_torch.graph import Graph
from burn_torch.graph.passes import Numerics, PassReports, Precision, isolate_outputs, peak_bytes, pipeline
from burn_torch.module.tree import Tree
from burn_torch.ops.value import Primitive
from burn_torch.transform.connected import Call as ConnectedCall
from burn_torch.transform.flatten import Lent, Walk, bare
from burn_torch.transform.lending import Lender, save_holders
from burn_torch.transform.scope import DrawPart, node_at
from burn_torch.transform.structure import Argument, Container, Root, Structure, leaf_of, placed
from burn_torch.transform.tracing import BoundState, Traced
from burn_torch.transform.unflatten import RESULTS, Lending

__all__ = ["MemoryLimitWarning", "Program", "ProgramOptions"]


class MemoryLimitWarning(UserWarning):
    """A compiled function needs more memory than it was given, though cheap values are computed again."""


class ProgramOptions(NamedTuple):
    """How a function is compiled, see `compile`."""

    numerics: Numerics | None
    precision: Precision
    fuse: bool | None
    replay: bool
    memory_limit_bytes: int | None


@final
class Program:
    """A traced function, compiled for its leaf.

    donated  positions among the leaves of the arguments whose memory the program may write over
    held     positions of leaves of trees that are not donated, likely the same tensors at each call
    """

    def __init__(
        self,
        traced: Traced,
        name: str,
        arguments: Sequence[Structure],
        options: ProgramOptions,
        schedules: Schedules,
        *,
        donated: frozenset[int],
        held: frozenset[int],
    ) -> None:
        self.traced: Final = traced
        self.name: Final = name
        self.guard: Final = traced.guard
        self.connection: Final = traced.connection if not donated else None
        self._pullbacks: Final[dict[tuple[bool, ...], Program]] = {}
        self.make_pullback: Callable[[tuple[bool, ...]], Program] | None = None
        """Traces the function with its backward, for gradients of those results that are there."""
        self._tape_entry: Any = None
        self.donated: Final = donated
        on_device = _on_device(traced.graph)
        self.settings: Final = capabilities(traced.leaf).settings() if on_device else None
        """Modes that it was compiled under, where it depends on any."""
        fuse, limit = options.fuse, options.memory_limit_bytes
        if fuse is None:
            fuse = options.numerics != "eager" and _are_fused(arguments)
        self.numerics: Final[Numerics] = options.numerics or ("fast" if on_device or fuse else "eager")
        self.precision: Final = options.precision
        self.plan: Plan | None = None

        notes: list[str] = []
        """Holds what is plainer than it should be, and why."""

        def compiled(fused: bool) -> tuple[Graph, PassReports, Recorded | None, Code | None]:
            def as_traced() -> tuple[Graph, PassReports]:
                graph = isolate_outputs(traced.graph, donated)
                return graph, PassReports([("isolate_outputs", traced.graph, graph)], donated)

            if fused:
                graph, passes = self._fused(schedules, limit)
            else:
                graph, passes = plan_or_plainer(
                    "compiled without passes", partial(self._pipeline, limit), as_traced, notes
                )
            offered = capabilities(traced.leaf)
            if options.replay and (
                recorded := offered.recorded(graph, donated, hold=held, before_overwriting=save_holders)
            ):
                return graph, passes, recorded, None
            code = plan_or_plainer(
                "run operation by operation",
                lambda: offered.program(graph, donated, title=name),
                lambda: Code(Backend.compile(traced.leaf, graph)),
                notes,
            )
            return graph, passes, None, code

        self.graph, self.passes, self.recorded, self.code = (
            plan_or_plainer("compiled without fusion", lambda: compiled(True), lambda: compiled(False), notes)
            if fuse
            else compiled(False)
        )
        plan: Any = self.plan
        if notes:
            plainer = plan is None or any(note.startswith("compiled without") for note in notes)
            self.plan = (Plan(self.graph, (), ()) if plainer else plan).with_notes(*notes)
        if limit is not None:
            _warn_above(limit, peak_bytes(self.graph, donated), name)
        self.run: Final[Callable[..., Sequence[Any]]] = self.recorded or self.code.run  # type: ignore[union-attr]  # one is there
        self._result: Final = traced.result
        self._size: Final = traced.result.size
        self._literals: Final = traced.literals
        self._handed_in: Final = traced.handed_in
        self._draws: Final = tuple(dict.fromkeys(s.draw for s in traced.sources if isinstance(s, DrawPart)))
        drawn = {draw: number for number, draw in enumerate(self._draws)}
        self._extra: Final = [None if isinstance(s, DrawPart) else s.primitive for s in traced.sources]
        self._states: Final = [(i, s.cell) for i, s in enumerate(traced.sources) if isinstance(s, BoundState)]
        self._drawn: Final = [
            (i, drawn[s.draw], s.part) for i, s in enumerate(traced.sources) if isinstance(s, DrawPart)
        ]
        self._public: Final = self._public_outputs()
        order = self._order(arguments) if self.recorded is not None and donated else None
        self._lender: Final = Lender(order) if self.recorded is not None and donated else None
        starts = [start for start, _ in _trees(Container(tuple, (), tuple(arguments)))]
        # a tree that is taken over has its running states in the result
        handed_in = any(starts[number] not in donated for number, _, _ in self._handed_in)
        self.lends_in_parts: Final = order is not None and not (self._public or handed_in or self._literals)
        """Says whether a call whose state comes back needs nothing but what changes, see `again`."""
        self._shares: _Shares | None = None

    def _pipeline(self, limit: int | None, **more: Any) -> tuple[Graph, PassReports]:
        return pipeline(
            self.traced.graph,
            numerics=self.numerics,
            precision=self.precision,
            donated=self.donated,
            memory_limit_bytes=limit,
            **more,
        )

    def _fused(self, schedules: Schedules, limit: int | None) -> tuple[Graph, PassReports]:
        """With generated kernels; where the planned peak is above the limit then, whichever needs less: these, or those
        of the graph in which what is cheap is computed again.
        """

        choices = capabilities(self.traced.leaf).choices
        planned: dict[Graph, Plan] = {}

        def passed(recomputed: int | None) -> tuple[Plan, Graph, PassReports]:
            notes: list[str] = []
            plan = Plan(self.traced.graph, (), ())

            def fuse(graph: Graph) -> Graph:
                nonlocal plan
                if graph not in planned:
                    planned[graph] = schedules.of(graph, choices)
                plan = planned[graph]
                return plan.graph

            def again(graph: Graph) -> Graph:
                nonlocal plan
                plan = kept_less(plan, limit, self.donated)
                return plan.graph

            handed: dict[str, Callable[[Graph], Graph]] = {
                "patterns": replaced,
                "losses in chunks": chunk_losses,
                "gradients of tables by rows": add_rows,
                "fuse": fuse,
                "values made again": again,
            }
            if self.numerics == "fast":  # they round less often
                handed["endings of products"] = partial(with_endings, choices=choices)
            graph, reports = self._pipeline(recomputed, handed=handed, attempt=attempts(notes), body=inside)
            return plan.with_notes(*notes), graph, reports

        best = passed(None)
        if limit is not None and (peak := peak_bytes(best[0].graph, self.donated)) > limit:
            other = passed(limit)
            if peak_bytes(other[0].graph, self.donated) < peak:
                best = other
        self.plan, graph, reports = best
        return graph, reports

    def _public_outputs(self) -> list[int]:
        """Outputs that lie in the program's state and stand in no tree: the caller gets copies of them."""
        if self.recorded is None:
            return []
        kept = {self._output(at + i) for at, size in _trees(self._result) for i in range(size)}
        return [i for i, at in enumerate(self.recorded.takes) if at is not None and i not in kept]

    def _output(self, position: int) -> int | None:
        """Returns which output a leaf of the result is; None for a number that was known when it was traced."""
        before = [at for at, _ in self._literals if at <= position]
        return None if before and before[-1] == position else position - len(before)

    def _order(self, arguments: Sequence[Structure]) -> list[int] | None:
        """For each donated tree among the arguments, the tree of the result that takes its memory over."""
        assert self.recorded is not None
        takes, results = self.recorded.takes, list(_trees(self._result))
        order: list[int] = []
        for at, structure in placed(arguments):
            for start, size in _trees(structure, at):
                if start not in self.donated:
                    continue
                tensors = [i for i in range(size) if isinstance(self.graph.inputs[start + i][1], TensorSpec)]
                heirs = [
                    number
                    for number, (begin, length) in enumerate(results)
                    if length == size
                    and all((i := self._output(begin + k)) is not None and takes[i] == start + k for k in tensors)
                ]
                if not heirs:
                    return None
                order.append(heirs[0])
        return order

    def is_handed_back(self, walk: Walk) -> bool:
        """Returns whether the donated arguments are what the last call of a recorded program returned."""
        if self._lender is None or any(at in self.donated for at, _ in walk.loose):
            return False
        return self._lender.is_handed_back([flat.handle for at, _, flat in walk.roots if at in self.donated])

    def beside(self, trees: Sequence[Tree]) -> list[Any]:
        """The inputs besides the arguments' leaves: data of the function, captured states, keys of the scope around."""
        if not self._draws and not self._states:
            return self._extra
        keys = [draw.next_key(trees) for draw in self._draws]
        extra = self._extra.copy()
        for i, cell in self._states:
            extra[i] = bare(cell.value())[2]
        for i, number, part in self._drawn:
            extra[i] = keys[number][part]
        return extra

    @property
    def tape_entry(self) -> Any:
        """Returns what the tape keeps of each call, where results hang on arguments."""
        if self._tape_entry is None:
            self._tape_entry = ConnectedCall(self)
        return self._tape_entry

    def pulled_back(
        self, present: tuple[bool, ...], cotangents: Sequence[object], leaves: Sequence[object], extra: Sequence[object]
    ) -> Sequence[Any]:
        """The gradients of the arguments that ask for them, of what an earlier call was given: see `connected.py`."""
        pullback = self._pullbacks.get(present)
        if pullback is None:
            assert self.make_pullback is not None
            pullback = self._pullbacks[present] = self.make_pullback(present)
        drawn = {(number, part): extra[i] for i, number, part in self._drawn}
        states = {id(cell): extra[i] for i, cell in self._states}
        beside = pullback._extra.copy()
        for i, number, part in pullback._drawn:
            beside[i] = drawn[number, part]
        for i, cell in pullback._states:
            beside[i] = states[id(cell)]
        gradients = pullback([*cotangents, *leaves, *beside], ())
        return [None if g is None else g.primitive for g in gradients]

    def __call__(
        self,
        leaves: list[Primitive],
        trees: Sequence[Tree],
        kept: bool = False,
        connect: Callable[[Sequence[object]], Sequence[object]] | None = None,
    ) -> Any:
        """The results, of all inputs and of the trees among the arguments; `kept` as `is_handed_back` says, `connect`
        puts those on a tape that belong there.
        """
        outputs: Sequence[Primitive] = self.run(*leaves, kept=True) if kept else self.run(*leaves)
        if self.lends_in_parts:
            assert self.recorded is not None
            shares = self._shares = _Shares(self.recorded.takes, list(_trees(self._result)), outputs)
            return self._lend(shares.of([outputs[i] for i in shares.others]))
        if self._public:
            outputs = list(outputs)
            for i in self._public:
                outputs[i] = self.traced.leaf.copy(outputs[i])
        if self._handed_in:
            cut = len(outputs) - len(self._handed_in)
            self._hand_in(outputs[cut:], trees)
            outputs = outputs[:cut]
        if self._literals:
            outputs = list(outputs)
            for position, number in self._literals:
                outputs.insert(position, number)
        if connect is not None:
            outputs = connect(outputs)
        if self._lender is None:
            return self._result.build(outputs, 0, RESULTS, {})
        return self._lend(outputs)

    def again(self, given: Sequence[Argument]) -> Any:
        """The results of a call whose donated arguments are what the last one returned, of all other inputs in order.

        No time is spent on what lies where it lay.
        """
        assert self.recorded is not None
        shares = self._shares
        assert shares is not None
        return self._lend(shares.of(self.recorded.again(given)))

    def _lend(self, outputs: Any) -> Any:
        assert self._lender is not None
        lending = Lending()
        result = self._result.build(outputs, 0, lending, {})
        self._lender.lend(lending.trees)
        return result

    def _hand_in(self, values: Sequence[object], trees: Sequence[Tree]) -> None:
        for (number, path, leaf), value in zip(self._handed_in, values, strict=True):
            tree = trees[number]
            if tree._unread is None or tree._flat is not None:  # one that was taken over has its states in the result
                node_at(tree, path).update(RESULTS.tensor(leaf, value))


class _Shares:
    """Says which outputs of a recorded program change from call to call, and what the trees of its results share of
    them.

    others  the outputs that lie in no donated memory
    """

    def __init__(
        self, takes: Sequence[int | None], trees: Sequence[tuple[int, int]], outputs: Sequence[Primitive]
    ) -> None:
        self.others: Final = [i for i, at in enumerate(takes) if at is None]
        self._index: Final = {i: n for n, i in enumerate(self.others)}
        self._roots: Final[dict[tuple[int, int], tuple[Any, ...]]] = {}
        for begin, size in trees:
            changing = [i for i in range(begin, begin + size) if takes[i] is None]
            first = self._index[changing[0]] if changing else 0
            lasting = tuple(None if takes[i] is None else outputs[i] for i in range(begin, begin + size))
            at = tuple(i - begin for i in changing)
            self._roots[begin, begin + size] = (lasting, at, first, first + len(changing))

    def of(self, changed: Sequence[Argument]) -> _Outputs:
        """The outputs of a call, of those that change."""
        return _Outputs(self._index, self._roots, changed)


@final
@dataclass(slots=True, eq=False)
class _Outputs:
    """Outputs as `Structure.build` takes them: single ones, and those of a tree in one slice."""

    _index: Mapping[int, int]
    _roots: Mapping[tuple[int, int], tuple[Any, ...]]
    _changed: Sequence[Argument]

    def __getitem__(self, key: Any) -> Any:
        if key.__class__ is not slice:
            return self._changed[self._index[key]]
        lasting, at, first, end = self._roots[key.start, key.stop]
        return Lent(lasting, at, self._changed[first:end])


def _warn_above(limit: int, peak: int, name: str) -> None:
    if limit and peak > limit:  # 0 asks for as little as there can be
        warnings.warn(
            f"{name}: needs {peak / 1e6:.1f} MB at its peak, more than memory_limit_bytes={limit}; what remains is not"
            f" cheap to compute again, so {peak} bytes are the least that can be reached: make batches smaller, donate"
            " more, or raise the limit",
            MemoryLimitWarning,
            stacklevel=user_level(),
        )


def _trees(structure: Structure, at: int = 0) -> Iterator[tuple[int, int]]:
    """The trees in a structure whose leaves begin at `at`: position and number of their leaves."""
    if isinstance(structure, Root):
        yield at, structure.size
    elif isinstance(structure, Container):
        for begin, child in placed(structure.children):
            yield from _trees(child, at + begin)


def _are_fused(arguments: Sequence[Structure]) -> bool:
    """Returns whether a tensor among the arguments is on a fused device where generated kernels run."""
    leaves = [leaf_of(part) for structure in arguments for _, part in structure.parts("")]
    return any(
        is_fused(leaf.stack) and capabilities(leaf.stack).generates(leaf.spec.place)
        for leaf in leaves
        if leaf is not None
    )


def _on_device(graph: Graph) -> bool:
    return any(isinstance(spec, TensorSpec) and spec.place != "cpu" for spec in graph.specs().values())
