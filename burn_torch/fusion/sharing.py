"""Bodies of symbolic sizes: one kernel for many shapes.

A `fusion::kernel` says what it computes as a body at some sizes, which of these are symbols (`dynamic`, positions
among the sizes that the body is given) and what they are in this Call (`sizes`).  So it can be written to a file, and
two Calls that differ in `sizes` alone run one kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, final

from burn_torch.core.sizes import Size
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.loops import Kernel
from burn_torch.fusion.lowering import lower
from burn_torch.fusion.symbolic import Sites, Symbolic, symbolised
from burn_torch.graph.ir import Graph

__all__ = ["Shared", "instance", "kernel_at", "read", "shared"]

_MOST: Final = 4096

Layout = tuple[int | None, ...] | None
"""How a tensor lies in memory: None row-major; else its strides, None for one that is neither 0 nor 1."""


@functools.lru_cache(maxsize=_MOST)
def read(text: str) -> Graph:
    """The body at the sizes that it is written with."""
    return Graph.from_json(text)


@functools.lru_cache(maxsize=_MOST)
def _sites(text: str) -> Sites:
    return Sites(read(text))


@functools.lru_cache(maxsize=_MOST)
def instance(text: str, sizes: tuple[int, ...]) -> Graph:
    """The body at the sizes that it is given."""
    sites = _sites(text)
    return sites.graph(dict(zip(sites.at, sizes, strict=True)))


@functools.lru_cache(maxsize=_MOST)
def shared(text: str, dynamic: tuple[int, ...], layouts: tuple[Layout, ...] = ()) -> Shared:
    """The body with symbols at the positions `dynamic`, for inputs that lie in memory like this.

    Raises: Unsymbolic where the body takes no symbols.
    """
    return Shared(text, dynamic, layouts)


@final
class Shared:
    """A body with symbols.

    symbolic  its graph; each thing that is asked of it, such as a kernel's lowering, adds to its guards
    strides   for each input None where it is row-major, else its strides, numbers and symbols
    """

    def __init__(self, text: str, dynamic: tuple[int, ...], layouts: tuple[Layout, ...]) -> None:
        body = read(text)
        places = list(_sites(text).at)
        self.symbolic: Final[Symbolic] = symbolised(body, [places[n] for n in dynamic])
        self.strides: Final = tuple(None if layout is None else self._strides(layout) for layout in layouts)
        specs = self.symbolic.graph.specs()
        self._specs: Final = [specs[i] for i in self.symbolic.graph.outputs if i is not None]
        self._shapes: Final = self.symbolic.at(
            [n for spec in self._specs if isinstance(spec, TensorSpec) for n in spec.shape]
        )

    def _strides(self, layout: Sequence[int | None]) -> tuple[int | Size, ...]:
        return tuple(self.symbolic.further() if step is None else step for step in layout)

    def symbols(self, sizes: Sequence[int], strides: Sequence[int] = ()) -> tuple[int, ...] | None:
        """The values of the symbols at some sizes, and strides that are symbols; None where a guard fails."""
        return self.symbolic.match_sites(sizes, strides)

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
    dynamic: tuple[int, ...],
    sizes: tuple[int, ...],
    layouts: Sequence[Sequence[int] | None] = (),
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
    classes = tuple([None if layout is None else layout_of(layout) for layout in layouts])
    found, kernel, values = _lowered(text, dynamic, classes if any(classes) else (), strict, held, over)
    steps = [step for layout in layouts if layout is not None for step in layout if step not in (0, 1)]
    symbols = found.symbols(sizes, steps)
    if symbols is None:
        return None
    made = iter(values(symbols))
    domain = kernel.domain
    loops = [tuple([next(made) for _ in axes]) for axes in (domain.kept, domain.reduced or (), domain.shape)]
    return kernel.at(loops, found.specs(symbols), tuple(made))


@functools.lru_cache(maxsize=_MOST)
def _lowered(
    text: str, dynamic: tuple[int, ...], layouts: tuple[Layout, ...], strict: bool, held: bool, over: bool
) -> tuple[Shared, Kernel, Callable[[Sequence[int]], tuple[int, ...]]]:
    """The kernel, and a function from its symbols to the sizes of its loops and its arguments."""
    found = shared(text, dynamic, layouts)
    kernel = lower(found.symbolic.graph, strict=strict, layouts=found.strides or None, held=held, over=over)
    domain = kernel.domain
    return found, kernel, found.symbolic.at([*domain.kept, *(domain.reduced or ()), *domain.shape, *kernel.sizes])


def layout_of(strides: Sequence[int]) -> Layout:
    """The layout of a tensor that is not row-major."""
    return tuple(step if step in (0, 1) else None for step in strides)
