"""Plans of symbolic sizes: scheduled once, and had at each shape by evaluating what sizes are made of.

The first shape of a program is planned as it is.  The second one is planned with symbols for the sizes that differ;
what holds of both, such as that the width is 768, stays a number.  A further shape is looked up among these plans, and
only one that fits none of them is planned again, with symbols for all sizes that were seen to differ so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, final

from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion.body.lines import known_lines, remember_lines
from burn_torch.fusion.body.reasons import Unfusible, Unsymbolic
from burn_torch.fusion.planning.faults import note_fault
from burn_torch.fusion.planning.plan import Plan
from burn_torch.fusion.planning.planner import plan_of
from burn_torch.fusion.rewrites.choices import LIBRARIES, Choices
from burn_torch.fusion.rows.row import body_of, kernel
from burn_torch.fusion.rows.sharing import fillers, kernel_at, with_hints
from burn_torch.fusion.rows.symbolic import Sites, Symbolic, evaluation, form_of, sizes_of, symbolised
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.verifier import verify
from burn_torch.graph.verifying import is_proving
from burn_torch.graph.view import GraphView, first_free_id
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Real, Size, exact_quotient, size_hint, sizes_in

__all__ = ["MOST_SYMBOLIC", "Schedules", "SymbolicPlan", "Variants"]

MOST_SYMBOLIC: Final = 4
"""The number of plans of symbolic sizes that one program keeps; the least recently needed goes first."""

_REMEMBERED: Final = 8
"""Shapes of a program that are remembered to tell which sizes differ."""

_MOST_REFUSED: Final = 8
"""So often no plan of symbolic sizes could be made; then none is tried any more, which takes as long as a plan."""


@final
class SymbolicPlan:
    """The plan of a program at sizes that are symbols.

    symbolic  the program, its symbols and guards
    plan      what the scheduler made of it
    uses      how many shapes it served
    """

    def __init__(self, symbolic: Symbolic, plan: Plan) -> None:
        self.symbolic: Final = symbolic
        self.plan: Final = replace(plan, symbolic=symbolic, planned=plan.graph)
        self.uses = 0
        self.failed = False
        """Says whether a kernel of it failed: then it serves no further shape."""
        self._nodes: Final = [_settle_node(node) for node in plan.graph.nodes]
        sizes: dict[Any, Size] = {}
        for node in self._nodes:
            shapes = [spec.shape for spec in node.call.specs if isinstance(spec, TensorSpec)]
            attrs = node.sizes if node.sizes is not None else tuple(node.call.attrs.values())
            numbers = [i.value for i in node.inputs if isinstance(i, Literal)]
            all_sizes = [*sizes_in((*shapes, *attrs)), *(n.size if isinstance(n, Real) else n for n in numbers)]
            sizes.update((size.key, size) for size in all_sizes if isinstance(size, Size))
        input_shapes = [spec.shape for _, spec in plan.graph.inputs if isinstance(spec, TensorSpec)]
        sizes.update((size.key, size) for size in sizes_in(tuple(input_shapes)))
        self._at: Final = {key: n for n, key in enumerate(sizes)}
        self._values: Final = evaluation(symbolic.symbols, list(sizes.values()))

    def graph(self, sizes: Sequence[int]) -> Graph | None:
        """The plan for the program at other sizes; None where a guard fails."""
        symbols = self.symbolic.match(sizes)
        if symbols is None:
            return None
        self.uses += 1
        values = self._values(symbols)
        number, spec_of, read = fillers(lambda size: values[self._at[size.key]])
        nodes = []
        for node in self._nodes:
            call = node.call
            if node.symbolic:
                specs = [spec_of(spec) for spec in call.specs]
                attrs = {name: number(value) for name, value in call.attrs.items()}
                if node.sizes is not None:
                    attrs["sizes"] = number(node.sizes)
                call = call.op.bind(specs, attrs)
            nodes.append(Node(call, [read(i) for i in node.inputs], node.outputs, node.origin))
        instance = Graph([(i, spec_of(spec)) for i, spec in self.plan.graph.inputs], nodes, self.plan.graph.outputs)
        return verify(instance) if is_proving() else instance


@final
class _Settled:
    """An operation of a symbolic plan.  sizes: of a kernel, what its body is given."""

    __slots__ = ("call", "inputs", "origin", "outputs", "sizes", "symbolic")

    def __init__(self, node: Node, call: Any, inputs: Sequence[Input], sizes: tuple[Any, ...] | None) -> None:
        self.call: Final = call
        self.inputs: Final = tuple(inputs)
        self.outputs: Final = node.outputs
        self.origin: Final = node.origin
        self.sizes: Final = sizes
        shapes = [spec.shape for spec in node.call.specs if isinstance(spec, TensorSpec)]
        attrs = tuple(value for name, value in node.call.attrs.items() if name != "body")
        self.symbolic: Final = sizes is not None or next(sizes_in((*shapes, *attrs)), None) is not None


def _settle_node(node: Node) -> _Settled:
    """A kernel of a symbolic body becomes one of a body at the sizes at hand, that says what they are made of.

    Raises: Unsymbolic where no kernel is written so.
    """
    if node.call.op is not kernel or not node.call.attrs["body"].startswith("symbolic "):
        return _Settled(node, node.call, node.inputs, None)
    body, numbers = _with_numbers(body_of(node.call.attrs["body"]))
    sites = Sites(body)
    dynamic, symbols_of_sizes = _write_sizes([sites.values[p] for p in sites.at])
    text = with_hints(body).to_json()
    remember_lines(text, known_lines(node.call.attrs["body"]))
    hints = tuple(map(size_hint, symbols_of_sizes))
    specs = [*_hint_specs(node.call.specs), *(spec for _, spec in numbers)]
    attrs = {**node.call.attrs, "body": text, "dynamic": dynamic, "sizes": hints}
    at_hints = kernel.bind(specs, attrs)
    try:
        kernel_at(text, dynamic, hints, strict=attrs["strict"])
    except Unfusible as fault:
        raise Unsymbolic(str(fault)) from fault
    call = _Unbound(kernel, (*node.call.specs, *(spec for _, spec in numbers)), at_hints.attrs)
    return _Settled(node, call, [*node.inputs, *(literal for literal, _ in numbers)], symbols_of_sizes)


def _write_sizes(sizes: Sequence[Primitive]) -> tuple[str, tuple[Size, ...]]:
    """Sizes as `sharing.py` writes them, and what its symbols are.

    A symbol of the program that is no size by itself counts with what it is multiplied by: of s0 * s1 rows alone
    neither is known.
    """
    symbols: dict[Any, tuple[str, Size]] = {}
    alone: dict[str, str] = {}
    for size in sizes:
        factor = size.factor() if isinstance(size, Size) else None
        if factor is not None and factor not in alone:
            alone[factor] = f"s{len(symbols)}"
            symbols[size.key] = (alone[factor], size)
    texts: list[str] = []
    for size in sizes:
        text = size.spelt(alone) if isinstance(size, Size) else str(size)
        if text is None:
            content = math.gcd(*size.terms.values())
            rest = exact_quotient(size, content)
            name, _ = symbols.setdefault(rest.key, (f"s{len(symbols)}", rest))
            text = f"{name} * {content}"
        texts.append(text)
    values = tuple(size for _, size in symbols.values())
    return f"{','.join(str(size.hint) for size in values)}|{';'.join(texts)}", values


@final
class _Unbound:
    """A Call whose specs and sizes are to be filled in."""

    def __init__(self, op: Any, specs: Sequence[Spec | None], attrs: dict[str, Any]) -> None:
        self.op: Final = op
        self.specs: Final = tuple(specs)
        self.attrs: Final = attrs


def _hint_specs(specs: Sequence[Spec | None]) -> list[Spec | None]:
    return [s.with_shape(tuple(map(size_hint, s.shape))) if isinstance(s, TensorSpec) else s for s in specs]


def _with_numbers(body: Graph) -> tuple[Graph, list[tuple[Literal, Spec]]]:
    """The body with inputs in place of numbers that are made of sizes, and what these are."""
    positions: dict[Literal, int] = {}
    first = first_free_id(body)

    def read(i: Input) -> Input:
        if isinstance(i, Literal) and isinstance(i.value, Size | Real):
            return positions.setdefault(i, first + len(positions))
        return i

    nodes = [Node(node.call, [read(i) for i in node.inputs], node.outputs) for node in body.nodes]
    if not positions:
        return body, []
    numbers = [(literal, FLOAT_NUMBER if isinstance(literal.value, Real) else INT_NUMBER) for literal in positions]
    number_inputs = [(i, spec) for i, (_, spec) in zip(positions.values(), numbers, strict=True)]
    return Graph([*body.inputs, *number_inputs], nodes, body.outputs).dense(), list(numbers)


@final
class Variants:
    """The plans of one program at its shapes.

    plans    of symbolic sizes, that used last coming last
    exact    how many shapes were planned as they are
    planned  how many plans of symbolic sizes were made
    seen     the sizes of shapes that were planned last
    refused  how often a plan of symbolic sizes could not be made
    why      why the shape that was planned last has no plan of symbolic sizes; empty where it needs none
    """

    def __init__(self) -> None:
        self.plans: Final[list[SymbolicPlan]] = []
        self.exact = 0
        self.planned = 0
        self.seen: Final[list[tuple[int, ...]]] = []
        self.refused = 0
        self.why = ""

    def remember(self, sizes: tuple[int, ...]) -> None:
        """Tells of a shape that was planned."""
        if sizes not in self.seen:
            self.seen[:] = [*self.seen[-_REMEMBERED + 1 :], sizes]

    def found(self, sizes: Sequence[int]) -> tuple[SymbolicPlan, Graph] | None:
        """A plan that fits, and what it is at these sizes."""
        for plan in reversed(self.plans):
            try:
                graph = None if plan.failed else plan.graph(sizes)
            except Exception as fault:
                self._refuse(fault)
                self.plans.remove(plan)
                continue
            if graph is not None:
                self.plans.remove(plan)
                self.plans.append(plan)
                return plan, graph
        return None

    def made(self, graph: Graph, sizes: tuple[int, ...], schedule: Callable[[Graph], Plan]) -> SymbolicPlan | None:
        """A plan for the sizes of `graph` and others; None for the first shape, and where symbols do not do."""
        self.why = ""
        seen = [other for other in self.seen if other != sizes]
        self.remember(sizes)
        differing = {n for other in seen for n, (a, b) in enumerate(zip(sizes, other, strict=True)) if a != b}
        for plan in self.plans:
            differing |= {n for n, size in plan.symbolic.sites.items() if isinstance(size, Size)}
        if not differing or self.refused >= _MOST_REFUSED or any(plan.failed for plan in self.plans):
            return None
        try:
            symbolic = symbolised(graph, sorted(differing), seen)
            symbolic_plan = SymbolicPlan(symbolic, schedule(symbolic.graph))
        except Exception as fault:  # a limit is noted; anything else is a fault of the planner, and is reported
            self._refuse(fault)
            return None
        if symbolic.match(sizes) is None:
            self._refuse(Unsymbolic("what the scheduler asked is true of the sizes at hand alone"))
            return None
        self.plans.append(symbolic_plan)
        del self.plans[:-MOST_SYMBOLIC]
        self.planned += 1
        return symbolic_plan

    def _refuse(self, fault: Exception) -> None:
        self.refused += 1
        self.why = note_fault("planned at these sizes alone", fault)


# -- compiled functions --------------------------------------------------------------------------------
_PROGRAMS: Final = 64
"""Forms of its graph that one compiled function keeps plans of."""


@final
class Schedules:
    """The plans of a compiled function, which is traced for each structure of its arguments.

    A trace at another shape is scheduled from a plan of symbolic sizes, and runs that plan's kernels.  Numbers that a
    trace has computed of sizes, such as the count of a mean, are told to these kernels.
    """

    def __init__(self) -> None:
        self._variants: Final[dict[Any, Variants]] = {}

    def of(self, graph: Graph, choices: Choices = LIBRARIES) -> Plan:
        """The plan of a traced graph; the graph in it is at the sizes of this one."""
        graph = graph.dense()
        lifted, numbers = _lift_fractions(graph)
        key = form_of(lifted)
        variants = self._variants.get(key)
        if variants is None:
            if len(self._variants) >= _PROGRAMS:
                self._variants.clear()
            variants = self._variants[key] = Variants()
        sizes = sizes_of(lifted)
        known = variants.found(sizes)
        if known is None and variants.made(lifted, sizes, partial(plan_of, choices=choices, plainer=False)) is not None:
            known = variants.found(sizes)
        if known is None:
            variants.exact += 1
            return plan_of(graph, choices).with_notes(variants.why)
        symbolic, instance = known
        return replace(symbolic.plan, graph=_lowered_again(instance, numbers))


def _lift_fractions(graph: Graph) -> tuple[Graph, dict[int, Literal]]:
    """A graph with inputs in place of the fractions in it, and what these are."""
    fresh = GraphView(graph).fresh
    numbers: dict[int, Literal] = {}

    def read(i: Input) -> Input:
        if isinstance(i, Literal) and isinstance(i.value, float):
            number = fresh()
            numbers[number] = i
            return number
        return i

    nodes = [Node(node.call, [read(i) for i in node.inputs], node.outputs, node.origin) for node in graph.nodes]
    lifted_inputs = [(i, FLOAT_NUMBER) for i in numbers]
    return Graph([*graph.inputs, *lifted_inputs], nodes, graph.outputs), numbers


def _lowered_again(graph: Graph, numbers: dict[int, Literal]) -> Graph:
    def read(i: Input) -> Input:
        return numbers.get(i, i) if isinstance(i, int) else i

    nodes = [Node(node.call, [read(i) for i in node.inputs], node.outputs, node.origin) for node in graph.nodes]
    return Graph([(i, spec) for i, spec in graph.inputs if i not in numbers], nodes, graph.outputs)
