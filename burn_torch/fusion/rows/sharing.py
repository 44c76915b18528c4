"""Bodies of symbolic sizes: one kernel for many shapes.

A `fusion::kernel` says what it computes as a body at some sizes, what these are made of (`dynamic`) and what the
symbols are in this Call (`sizes`).  So it can be written to a file, and two Calls that differ in `sizes` alone run one
kernel.

    dynamic  "12,24|s0;64;s0 * s1"     the symbols of the body, then each size that the body is given, in order
    sizes    (7, 8)                    the symbols here
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, final

from burn_torch.core.errors import GraphError
from burn_torch.core.source import Source
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import Kernel
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.c.lowering import CKernel, lower_to_c
from burn_torch.fusion.rows.symbolic import UNKNOWN_STRIDE, Sites, evaluation, tests_of
from burn_torch.fusion.triton.lowering import lower
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.symbolic.sizes import Real, Scope, Size

__all__ = ["Shared", "c_kernel_at", "fillers", "instance", "kernel_at", "read", "shared", "with_hints"]

_MOST: Final = 4096

_PRODUCT: Final = r"-?(?:s\d{1,3}|\d{1,18})(?: \* -?(?:s\d{1,3}|\d{1,18}))*"
_SUM: Final = rf"{_PRODUCT}(?: \+ {_PRODUCT})*"

Filler = Callable[[Any], Any]
Evaluation = Callable[[Sequence[int]], tuple[int, ...]]

Layout = tuple[int | None, ...] | None
"""How a tensor lies in memory: None row-major; else its strides, None for one that is neither 0 nor 1."""


Layouts = Sequence[Sequence[int] | None]
"""The strides of inputs."""


@functools.lru_cache(maxsize=_MOST)
def read(text: str) -> Graph:
    """The body at the sizes that it is written with."""
    return Graph.from_json(text)


@functools.lru_cache(maxsize=_MOST)
def _sites(text: str) -> Sites:
    return Sites(read(text))


@functools.lru_cache(maxsize=_MOST)
def _read_dynamic(dynamic: str) -> tuple[tuple[int, ...], Callable[..., tuple[object, ...]]]:
    """The symbols of a body, and a function from symbols, numbers or not, to the sizes that the body is given.

    Raises: GraphError for a text that is none: it may come from a file, and is run.
    """
    hints, _, texts = dynamic.partition("|")
    known = re.fullmatch(r"\d{1,18}(,\d{1,18})*", hints) and re.fullmatch(rf"{_SUM}(;{_SUM})*", texts)
    numbers = tuple(map(int, hints.split(","))) if known else ()
    if not known or any(int(n) >= len(numbers) for n in re.findall(r"s(\d+)", texts)):
        raise GraphError(
            "fusion::kernel: its sizes cannot be read",
            given=f"dynamic {dynamic[:200]!r}",
            expected="numbers for symbols s0, s1, ..., then sums of products of them, as in '12,24|s0;64;s0 * s1'",
            mend="write the graph anew, with Graph.to_json of the plan",
        )
    names = ", ".join(f"s{n}" for n in range(len(numbers)))
    source = Source("sizes")
    source.add(f"def sizes({names}): return ({texts.replace(';', ', ')},)")
    return numbers, source.function("sizes")


@functools.lru_cache(maxsize=_MOST)
def instance(text: str, dynamic: str, sizes: tuple[int, ...]) -> Graph:
    """The body at some values of its symbols."""
    sites = _sites(text)
    return sites.graph(dict(zip(sites.at, _read_dynamic(dynamic)[1](*sizes), strict=True)))


@functools.lru_cache(maxsize=_MOST)
def shared(text: str, dynamic: str, layouts: tuple[Layout, ...] = ()) -> Shared:
    """The body with its symbols, for inputs that lie in memory like this."""
    return Shared(text, dynamic, layouts)


@final
class Shared:
    """A body with symbols.

    graph    at its symbols; each thing that is asked of it, such as a kernel's lowering, adds to the guards of `scope`
    strides  for each input None where it is row-major, else its strides, numbers and symbols
    """

    def __init__(self, text: str, dynamic: str, layouts: tuple[Layout, ...]) -> None:
        hints, sizes_of = _read_dynamic(dynamic)
        self.scope: Final = Scope({f"s{n}": hint for n, hint in enumerate(hints)})
        sites = _sites(text)
        symbols = [self.scope.symbol(name) for name in self.scope.hints]
        self.graph: Final = sites.graph(dict(zip(sites.at, sizes_of(*symbols), strict=True)))
        self.strides: Final = tuple(None if layout is None else self._strides(layout) for layout in layouts)
        specs = self.graph.specs()
        self._specs: Final = [specs[i] for i in self.graph.outputs if i is not None]
        shapes = [n for spec in self._specs if isinstance(spec, TensorSpec) for n in spec.shape]
        self._shapes: Final = evaluation(self.scope.hints, shapes)
        self._holds: tuple[int, Callable[[Sequence[int]], tuple[int, ...]]] | None = None

    def _strides(self, layout: Sequence[int | None]) -> tuple[int | Size, ...]:
        return tuple(self.scope.add(UNKNOWN_STRIDE) if step is None else step for step in layout)

    def symbols(self, sizes: Sequence[int], strides: Sequence[int] = ()) -> tuple[int, ...] | None:
        """The values of all symbols, strides too; None where a guard fails."""
        count = len(self.scope.guards)
        if self._holds is None or self._holds[0] != count:
            self._holds = count, evaluation(self.scope.hints, [*tests_of(self.scope)])
        values = (*sizes, *strides)
        return values if all(self._holds[1](values)) else None

    def specs(self, symbols: Sequence[int]) -> tuple[TensorSpec, ...]:
        """The specs of the results."""
        values = iter(self._shapes(symbols))
        return tuple(
            spec.with_shape(tuple([next(values) for _ in spec.shape]))
            for spec in self._specs
            if isinstance(spec, TensorSpec)
        )


def kernel_at(
    text: str,
    dynamic: str,
    sizes: tuple[int, ...],
    layouts: Layouts = (),
    *,
    strict: bool,
    held: bool = False,
    over: bool = False,
) -> Kernel | None:
    """The kernel of a body with symbols, at some sizes; None where it has none, or the sizes are not such as it is for.

    layouts: strides of the inputs, None for row-major ones.  The rest is as `lower` has it.
    """
    if not dynamic:
        return None
    sized, kernel, loops_at, sizes_at = _lower(text, dynamic, _classes_of(layouts), strict, held, over)
    symbols = sized.symbols(sizes, _open_strides(layouts))
    if symbols is None:
        return None
    numbers = iter(loops_at(symbols))
    domain = kernel.domain
    loops = [tuple([next(numbers) for _ in axes]) for axes in (domain.kept, domain.reduced or (), domain.shape)]
    return kernel.at(loops, sized.specs(symbols), lambda: sizes_at()(symbols))


@functools.lru_cache(maxsize=_MOST)
def _lower(
    text: str, dynamic: str, layouts: tuple[Layout, ...], strict: bool, held: bool, over: bool
) -> tuple[Shared, Kernel, Evaluation, Callable[[], Evaluation]]:
    """The kernel, and functions from its symbols to the sizes of its loops, and to its arguments once it is written."""
    sized = shared(text, dynamic, layouts)
    strides = sized.strides or None
    kernel = lower(sized.graph, strict=strict, layouts=strides, held=held, over=over, beside=False)
    domain = kernel.domain
    hints = sized.scope.hints
    loops = evaluation(hints, [*domain.kept, *(domain.reduced or ()), *domain.shape])
    return sized, kernel, loops, functools.cache(lambda: evaluation(hints, kernel.sizes))


def _classes_of(layouts: Layouts) -> tuple[Layout, ...]:
    """How inputs lie in memory, whatever the strides that are neither 0 nor 1; nothing if all are row-major."""
    classes = tuple([None if layout is None else _class_of(layout) for layout in layouts])
    return classes if any(classes) else ()


def _class_of(layout: Sequence[int]) -> Layout:
    return tuple(step if step in (0, 1) else None for step in layout)


def _open_strides(layouts: Layouts) -> list[int]:
    """The strides that are symbols."""
    return [step for layout in layouts if layout is not None for step in layout if step not in (0, 1)]


# -- in C ----------------------------------------------------------------------------------------------
def c_kernel_at(
    text: str, dynamic: str, sizes: tuple[int, ...], layouts: Layouts = (), *, strict: bool
) -> CKernel | None:
    """As `kernel_at`, in C; None too where C does not know the body."""
    lowered = _lower_to_c(text, dynamic, _classes_of(layouts), strict) if dynamic else None
    if lowered is None:
        return None
    sized, kernel, work_at, sizes_at = lowered
    symbols = sized.symbols(sizes, _open_strides(layouts))
    if symbols is None:
        return None
    (work,) = work_at(symbols)
    return replace(kernel, outputs=sized.specs(symbols), work=work, sizes_here=lambda: sizes_at()(symbols))


@functools.lru_cache(maxsize=_MOST)
def _lower_to_c(
    text: str, dynamic: str, layouts: tuple[Layout, ...], strict: bool
) -> tuple[Shared, CKernel, Evaluation, Callable[[], Evaluation]] | None:
    """The kernel, and functions from its symbols to its work and its arguments; None where C does not know one."""
    sized = shared(text, dynamic, layouts)
    try:
        kernel = lower_to_c(sized.graph, strict=strict, layouts=sized.strides or None)
    except Unfusible:
        return None
    hints = sized.scope.hints
    return sized, kernel, evaluation(hints, [kernel.work]), functools.cache(lambda: evaluation(hints, kernel.sizes))


# -- back to numbers -----------------------------------------------------------------------------------
def fillers(value_of: Callable[[Size], int]) -> tuple[Filler, Filler, Callable[[Input], Input]]:
    """Functions that put numbers in the place of symbols: in attributes, in specs, and in literals."""

    def number(value: Any) -> Any:
        if value.__class__ is Size:
            return value_of(value)
        return tuple([number(part) for part in value]) if value.__class__ is tuple else value

    def spec_of(spec: Any) -> Any:
        return spec.with_shape(number(spec.shape)) if spec.__class__ is TensorSpec else spec

    def read(i: Input) -> Input:
        if not isinstance(i, Literal) or not isinstance(i.value, Size | Real):
            return i
        return Literal(number(i.value) if isinstance(i.value, Size) else i.value.of(number(i.value.size)))

    return number, spec_of, read


def with_hints(graph: Graph) -> Graph:
    """A symbolic graph at the sizes that its symbols have here."""
    number, spec_of, read = fillers(lambda size: size.hint)
    nodes = [
        Node(
            node.call.op.bind(
                [spec_of(spec) for spec in node.call.specs], {k: number(v) for k, v in node.call.attrs.items()}
            ),
            [read(i) for i in node.inputs],
            node.outputs,
            node.origin,
        )
        for node in graph.nodes
    ]
    return Graph([(i, spec_of(spec)) for i, spec in graph.inputs], nodes, graph.outputs)
