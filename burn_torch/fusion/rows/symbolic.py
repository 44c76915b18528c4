"""Symbolic shapes: a graph at sizes that are not known yet, made of the same graph at sizes that are.

    found = symbolised(graph, positions)      # the sizes at these positions become symbols
    plan_of(found.graph)                      # whatever is asked of a size on the way is noted as a guard
    found.match(sizes_of(other))              # the values of the symbols in another graph; None where a guard fails

Symbols are joined by what the operations demand: a rule of shape is run with sizes that are all different, and where
it refuses them, the equality that it asked for last is made true.  Sizes that are equal by chance stay two symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, final

from burn_torch.core.errors import BurnTorchError
from burn_torch.core.source import Source
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.fusion.body.reasons import Unsymbolic
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.origin import Origin
from burn_torch.ops.op import Call, Op
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Guard, Real, Scope, Size, sizes_in
from burn_torch.symbolic.solving import solved

__all__ = [
    "UNKNOWN_STRIDE",
    "Site",
    "Sites",
    "Symbolic",
    "Unsymbolic",
    "call_form",
    "call_sizes",
    "evaluation",
    "form_of",
    "scope_of",
    "sizes_of",
    "symbolised",
    "tests_of",
]

_SIZES: Final = frozenset({"shape", "size", "sizes", "ranges", "output_size", "padding", "times"})
"""Attributes that hold sizes; all others are part of what an operation is."""

_SPECIAL: Final = 2
"""Sizes below are never symbols: an axis of 1 is repeated, one of 0 is empty."""


UNKNOWN_STRIDE: Final = (1 << 20) + 1
"""The value that stands for an unknown stride: no multiple of anything, and larger than most sizes."""


_MOST_FORMS: Final = 1 << 14

_forms: Final[dict[object, object]] = {}


# -- forms ---------------------------------------------------------------------------------------------
def call_form(call: Call) -> object:
    """The form of a Call, all but its sizes: one object for the same row at other shapes of the same ranks."""
    form = call.memo.get(call_form)
    if form is None:
        specs = tuple(
            (spec.ndim, spec.dtype, spec.place) if isinstance(spec, TensorSpec) else spec for spec in call.specs
        )
        attrs = tuple(_skeleton(value) if name in _SIZES else value for name, value in call.attrs.items())
        form = call.memo[call_form] = _forms.setdefault((call.op, specs, attrs), object())
        if len(_forms) > _MOST_FORMS:
            _forms.clear()
    return form


def _skeleton(value: object) -> object:
    return tuple(_skeleton(part) for part in value) if isinstance(value, tuple) else type(value)


def call_sizes(call: Call) -> tuple[Any, ...]:
    """The sizes of a Call, one after the other: those of its inputs, then those in its attributes."""
    sizes_of_call: tuple[Any, ...] | None = call.memo.get(call_sizes)
    if sizes_of_call is None:
        sizes = [n for spec in call.specs if isinstance(spec, TensorSpec) for n in spec.shape]
        sizes += [n for name, value in call.attrs.items() if name in _SIZES for n in _leaves(value)]
        sizes_of_call = call.memo[call_sizes] = tuple(sizes)
    return sizes_of_call


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield value


def form_of(graph: Graph) -> Any:
    """The form of a graph, all but its sizes; the graph has ids from 0 on."""
    nodes = tuple((call_form(node.call), node.inputs, node.outputs) for node in graph.nodes)
    return tuple(i for i, _ in graph.inputs), nodes, graph.outputs


def sizes_of(graph: Graph) -> tuple[Any, ...]:
    """The sizes of all operations of a graph, in order: numbers, or symbolic ones."""
    return tuple([n for node in graph.nodes for n in call_sizes(node.call)])


def scope_of(graph: Graph) -> Scope | None:
    """The scope of the symbols in a graph; None where it has none."""
    shapes = [spec.shape for spec in graph.specs().values() if isinstance(spec, TensorSpec)]
    literals = [i.value for node in graph.nodes for i in node.inputs if isinstance(i, Literal)]
    numbers = tuple(n.size if isinstance(n, Real) else n for n in literals)
    size = next(sizes_in((*shapes, numbers)), None)
    return None if size is None else size.scope


# -- symbols -------------------------------------------------------------------------------------------
@final
class Site:
    """The origin of a size: an axis of a value that the graph is given, or an attribute of an operation."""

    __slots__ = ("origin", "text")

    def __init__(self, text: str, origin: Origin | None) -> None:
        self.text: Final = text
        self.origin: Final = origin

    def __str__(self) -> str:
        return self.text if self.origin is None else f"{self.text}, at {self.origin}"


@final
class Symbolic:
    """A graph at sizes that are symbols.

    graph    the graph; its ids are those of the graph that it was made of
    scope    its symbols and the guards that were noted so far
    sites    for each position of `sizes_of` from which a size comes, what that size is
    named    where each symbol comes from
    """

    def __init__(self, graph: Graph, scope: Scope, sites: dict[int, Size | int], named: dict[str, Site]) -> None:
        self.graph: Final = graph
        self.scope: Final = scope
        self.sites: Final = sites
        self.named: Final = named
        self._match: tuple[int, Callable[..., tuple[int, ...] | None]] | None = None

    @property
    def symbols(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.scope.hints)

    @property
    def guards(self) -> list[Guard]:
        """Guards that were noted so far and do not follow from the rest, in the order in which it was asked."""
        return self.scope.needed()

    def match(self, sizes: Sequence[int]) -> tuple[int, ...] | None:
        """The values of the symbols in another graph of this form, by its sizes; None where it is none of these."""
        count = len(self.scope.guards)
        if self._match is None or self._match[0] != count:
            self._match = count, self._compile_match()
        return self._match[1](sizes)

    def _compile_match(self) -> Callable[..., tuple[int, ...] | None]:
        lines: list[str] = []
        tests = tests_of(self.scope)
        known: set[str] = set()
        for position, size in self.sites.items():
            text = size.written(names=False) if isinstance(size, Size) else str(size)
            if text in self.named and text not in known:
                known.add(text)
                lines.append(f"{text} = v[{position}]")
            else:
                tests.append(f"v[{position}] == {text}")
        names = "".join(f"{name}, " for name in self.symbols)
        source = Source("symbols")
        with source.block("def match(v):"):
            source.add(*lines, f"return ({names}) if {' and '.join(tests) or 'True'} else None")
        return source.function("match")


def tests_of(scope: Scope) -> list[str]:
    """Tests of the symbols of a scope, as source."""
    return [f"{name} >= {_SPECIAL}" for name in scope.hints] + [guard.text for guard in scope.needed()]


def evaluation(symbols: Iterable[str], texts: Iterable[Size | int | str]) -> Callable[[Sequence[int]], tuple[Any, ...]]:
    """A function from the values of symbols to those of some sizes, or of some texts."""
    names = "".join(f"{name}, " for name in symbols)
    written = "".join(f"{text.written(names=False) if isinstance(text, Size) else text}, " for text in texts)
    source = Source("sizes")
    with source.block("def values(symbols):"):
        source.add(f"{names}= symbols" if names else "pass", f"return ({written})")
    return source.function("values")


# -- making one ----------------------------------------------------------------------------------------
def symbolised(graph: Graph, positions: Collection[int], others: Sequence[Sequence[int]] = ()) -> Symbolic:
    """The graph with symbols at some positions of `sizes_of`, of which those alone count from which a size comes.

    others  sizes of other graphs of this form, to tell a size that follows from another from one that is like it

    Raises: Unsymbolic where its rules do not take symbols, or all that they take is the sizes at hand.
    """
    sites = Sites(graph)
    chosen = [p for p in positions if p in sites.at and sites.values[p] >= _SPECIAL]
    if not chosen:
        raise Unsymbolic("no size that may be a symbol differs")
    first = Scope({f"u{p}": sites.values[p] for p in chosen})
    sizes: dict[int, Primitive] = {p: first.symbol(f"u{p}") for p in chosen}
    first.demanding = True
    evidence = [sites.values, *others]
    while True:
        first.denied.clear()
        first.bordering.clear()
        try:
            sites.graph(sizes)
        except BurnTorchError as fault:
            if not first.denied:
                raise Unsymbolic(str(fault)) from fault
            if not _join_symbols(
                sizes, first.denied[-1], sites, evidence
            ):  # all that is known is that the two are equal
                first.granted[first.denied[-1].key] = first.denied[-1]
            continue
        if not any(_at_an_end(sizes, size, sites, evidence) for size in first.bordering):
            break
    left = sorted({name for size in sizes.values() if isinstance(size, Size) for name in size.symbols()}, key=_number)
    names = {name: f"s{n}" for n, name in enumerate(left)}
    for hints in (_apart({name: first.hints[name] for name in left}), {name: first.hints[name] for name in left}):
        scope = Scope({names[name]: hint for name, hint in hints.items()})
        symbols = {name: scope.symbol(names[name]) for name in left}
        at = {p: size.replaced(symbols) if isinstance(size, Size) else size for p, size in sizes.items()}
        try:
            symbolic_graph = sites.graph(at)
        except (BurnTorchError, Unsymbolic):
            continue
        every: dict[int, Size | int] = {p: at.get(p, sites.values[p]) for p in sites.at}
        named = {names[name]: sites.at[_number(name)] for name in left}
        symbolic = Symbolic(symbolic_graph, scope, every, named)
        if symbolic.match(sites.values) is not None:
            return symbolic
    raise Unsymbolic("what its rules ask for holds at no sizes but these")


def _number(name: str) -> int:
    return int(name[1:])


def _apart(hints: dict[str, int]) -> dict[str, int]:
    """Values that are all different, so that what is equal by chance here is not taken for equal."""
    taken: set[int] = set()
    different: dict[str, int] = {}
    for name, value in hints.items():
        while value in taken:
            value += 16  # as far from a multiple of 16 as before
        taken.add(value)
        different[name] = value
    return different


def _at_an_end(sizes: dict[int, object], size: Size, sites: Sites, evidence: Sequence[Sequence[int]]) -> bool:
    """Ties an end that is written to the size of the axis, where it was at the end of the axis in all that was seen."""
    written = [name for name in size.symbols() if sites.written(_number(name))]
    at = [size.replaced({name: values[_number(name)] for name in size.symbols()}) for values in evidence]
    return bool(written) and not any(at) and _join_symbols(sizes, size, sites, evidence)


def _join_symbols(sizes: dict[int, object], equation: Size, sites: Sites, evidence: Sequence[Sequence[int]]) -> bool:
    """Makes a symbol follow from others so that `equation` is 0; whether one does."""
    names = sorted(equation.symbols(), key=lambda name: (not sites.written(_number(name)), -_number(name)))
    solution = solved(equation, names)
    if solution is None:  # t0 * t1 = s0 * s1: a size that is written is like one that is given, wherever we saw both
        pairs = [
            (name, other)
            for name in names
            for other in names
            if sites.written(_number(name)) and not sites.written(_number(other))
            if all(values[_number(name)] == values[_number(other)] for values in evidence)
        ]
        if not pairs:
            return False
        solution = pairs[0][0], equation.scope.symbol(pairs[0][1])
    name, value = solution
    scope = equation.scope
    values: dict[str, Any] = {other: scope.symbol(other) for other in scope.hints} | {name: value}
    for p, size in sizes.items():
        sizes[p] = size.replaced(values) if isinstance(size, Size) else size
    granted = [size.replaced(values) for size in scope.granted.values()]
    scope.granted.clear()
    scope.granted.update((size.key, size) for size in granted if isinstance(size, Size))
    return True


@final
class Sites:
    """The positions of a graph's sizes from which sizes come."""

    def __init__(self, graph: Graph) -> None:
        self.original: Final = graph
        self.values: Final = sizes_of(graph)
        self.at: Final[dict[int, Site]] = {}
        self._of_input: Final[dict[int, int]] = {}
        """For an input of the graph, the position of its first size."""
        self._of_attrs: Final[list[int]] = []
        """For each node, the position of the first size in its attributes."""
        self._first_written: Final[set[int]] = set()
        inputs = {i for i, _ in graph.inputs}
        position = 0
        for node in graph.nodes:
            call = node.call
            for number, (i, spec) in enumerate(zip(node.inputs, call.specs, strict=True)):
                if not isinstance(spec, TensorSpec):
                    continue
                if isinstance(i, int) and i in inputs and i not in self._of_input:
                    self._of_input[i] = position
                    for axis in range(spec.ndim):
                        text = f"axis {axis} of input {number} of {call.op.name}"
                        self.at[position + axis] = Site(text, node.origin)
                position += spec.ndim
            self._of_attrs.append(position)
            for name, value in call.attrs.items():
                for _ in _leaves(value) if name in _SIZES else ():
                    self.at[position] = Site(f"{name} of {call.op.name}", node.origin)
                    self._first_written.add(position)
                    position += 1

    def written(self, position: int) -> bool:
        """Tells if the size is an attribute."""
        return position in self._first_written

    def graph(self, sizes: dict[int, Primitive]) -> Graph:
        """The graph with other sizes at these positions.  Raises: what its rules raise."""
        specs: dict[int, Spec] = {}
        for i, spec in self.original.inputs:
            specs[i] = spec
            start = self._of_input.get(i)
            if start is not None and isinstance(spec, TensorSpec):
                shape = tuple(sizes.get(start + axis, n) for axis, n in enumerate(spec.shape))
                specs[i] = spec.with_shape(shape)
        inputs = [(i, specs[i]) for i, _ in self.original.inputs]
        nodes: list[Node] = []
        for node, start in zip(self.original.nodes, self._of_attrs, strict=True):
            node_specs = [
                specs[i] if isinstance(i, int) else s for i, s in zip(node.inputs, node.call.specs, strict=True)
            ]
            counter = [start]
            attrs = {
                name: _with_sizes(value, sizes, counter) if name in _SIZES else value
                for name, value in node.call.attrs.items()
            }
            call = _bind_symbols(node.call.op, node_specs, attrs)
            nodes.append(Node(call, node.inputs, node.outputs, node.origin))
            specs.update(
                (i, spec) for i, spec in zip(node.outputs, call.results, strict=True) if i is not None and spec
            )
        return Graph(inputs, nodes, self.original.outputs)


def _bind_symbols(op: Op, specs: Sequence[Spec | None], attrs: dict[str, object]) -> Call:
    """The Call at symbolic sizes.  Raises: Unsymbolic where the rule of the row computes with whole numbers alone."""
    try:
        return op.bind(specs, attrs)
    except BurnTorchError:  # a rule that refuses these sizes, as it refuses numbers
        raise
    except (TypeError, ValueError, ArithmeticError) as fault:
        raise Unsymbolic(f"the rule of {op.name} takes no symbols: {type(fault).__name__}: {fault}") from fault


def _with_sizes(value: object, sizes: dict[int, object], counter: list[int]) -> object:
    if isinstance(value, tuple):
        return tuple([_with_sizes(part, sizes, counter) for part in value])
    if value is None:
        return None
    position = counter[0]
    counter[0] += 1
    return sizes.get(position, value)
