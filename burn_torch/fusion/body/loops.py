"""The loops of a kernel, and what is known of a kernel before and after it is written."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.columns import parts_beside
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.graph.ir import Graph
from burn_torch.ops.laws import Folds
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, size_hint

__all__ = ["Argument", "Domain", "Kernel", "Lowered", "Text", "Written", "domain_of", "packed_strides", "tensor"]


# -- what a kernel is -----------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class Domain:
    """The loops of a kernel.

    kept      sizes of the axes that `x` runs over, in row-major order
    reduced   sizes of the axes that `r` runs over; None where nothing is reduced
    shape     of what is reduced, where anything is
    """

    kept: tuple[int, ...]
    reduced: tuple[int, ...] | None
    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    """The axes of `shape` that are reduced."""
    parts: int = 0
    """The parts of the rows, for each of which columns are summed beside; 0 where none are.  See `columns.py`."""

    @property
    def rows(self) -> int:
        """How far `x` runs."""
        return math.prod(self.kept)

    @property
    def length(self) -> int:
        """How far `r` runs."""
        return 1 if self.reduced is None else math.prod(self.reduced)


@final
@dataclass(frozen=True)
class Argument:
    """A number that a kernel takes: `value` makes it of the numbers of the body, on the host.

    kind: "f32"; "i64"; "f64", whose bits are passed as an integer, since a launch passes floats as float32
    """

    name: str
    kind: str
    value: Callable[[Sequence[Primitive]], Any]


@final
class Written(NamedTuple):
    """The text of a kernel: its name, made of its source, the numbers that it takes, and what symbols it takes."""

    name: str
    source: str
    numbers: tuple[Argument, ...]
    sizes: tuple[Size, ...]


@final
class Text:
    """The text of a kernel, written when it is first asked for.

    write  gives the source by the name KERNEL, the numbers and the symbols
    """

    def __init__(self, write: Callable[[], tuple[str, Sequence[Argument], Sequence[Size]]]) -> None:
        self._written: Callable[[], Any] | Written = write

    @property
    def written(self) -> Written:
        """The text; two threads that ask for it first write the same."""
        written = self._written
        if isinstance(written, Written):
            return written
        source, numbers, sizes = written()
        name = "fused_" + hashlib.sha256(source.encode()).hexdigest()[:16]
        self._written = Written(name, source.replace("KERNEL", name), tuple(numbers), tuple(sizes))
        return self._written


@dataclass(frozen=True)
class Lowered:
    """A body as a kernel; nothing of its text is written before it is asked for.

    inputs    positions of the body's inputs that are tensors the kernel reads, in the order of its arguments
    outputs   specs of what it writes
    """

    text: Text
    inputs: tuple[int, ...]
    outputs: tuple[TensorSpec, ...]
    sizes_here: Callable[[], tuple[int, ...]] | None = field(default=None, kw_only=True)

    @cached_property
    def name(self) -> str:
        """Its name, made of its source."""
        return self.text.written.name

    @cached_property
    def source(self) -> str:
        """Its source."""
        return self.text.written.source

    @cached_property
    def numbers(self) -> tuple[Argument, ...]:
        """Further arguments."""
        return self.text.written.numbers

    @cached_property
    def sizes(self) -> tuple[Any, ...]:
        """Arguments beside, where sizes are symbols: sizes made of these; of a kernel at some, whole numbers."""
        return self.text.written.sizes if self.sizes_here is None else self.sizes_here()


@final
@dataclass(frozen=True)
class Kernel(Lowered):
    """A body as a kernel of elements or rows."""

    domain: Domain
    rows_together: bool
    """Says whether neighbours in memory lie along `x`, though `r` is there too: columns are reduced."""
    whole_rows: bool
    """Says whether a program holds whole rows: there is no loop over `r`."""
    loads: int
    wide: bool
    """Says whether indexes need 64 bits."""
    over: tuple[tuple[int, int], ...] = ()
    """(output, position of the body's input): the first may lie over the second, read at its own element alone."""
    held: bool = False
    """Says whether its numbers lie on the device, and it takes pointers to them."""
    streamed: int = 0
    """Bytes for each step of both loops, of all that it reads."""
    turned: bool = False
    """Says whether neighbours in memory lie along `x` in some of its inputs and along `r` in others."""
    symbolic: bool = False
    """Says whether its sizes are symbols."""

    @property
    def steps(self) -> bool:
        """Says whether a program goes over something in steps: loads of later steps may begin before."""
        return self.domain.reduced is not None and (not self.whole_rows or self.domain.parts > 0)

    def at(
        self, loops: Sequence[tuple[int, ...]], outputs: Sequence[TensorSpec], sizes: Callable[[], tuple[int, ...]]
    ) -> Kernel:
        """The kernel of symbolic sizes at some of them.  loops: `kept`, `reduced` and `shape` of its domain."""
        kept, reduced, shape = loops
        domain = replace(
            self.domain, kept=kept, reduced=reduced if self.domain.reduced is not None else None, shape=shape
        )
        return replace(self, domain=domain, outputs=tuple(outputs), sizes_here=sizes, symbolic=False)


# -- the loops ---------------------------------------------------------------------------------------
def domain_of(body: Graph) -> Domain:
    """The loops that a body needs.  Raises: Unfusible where its results do not fit one set of loops."""
    specs = body.specs()
    folds = [node for node in body.nodes if node.call.op.law(Folds) is not None and node.call.attrs["dims"]]
    outputs = [tensor(specs[i]) for i in body.outputs if i is not None]
    if not folds:
        sizes = {spec.numel for spec in outputs}
        if len(sizes) > 1:
            counts = sorted(sizes, key=size_hint)
            raise Unfusible(Reason.SHAPE, f"results of {' and '.join(map(str, counts))} elements")
        largest = max(outputs, key=lambda spec: spec.ndim)
        return Domain((outputs[0].numel,), None, largest.shape)
    beside = parts_beside(body, folds)
    first, parts = beside or (
        max(folds, key=lambda node: (size_hint(tensor(node.call.specs[0]).numel), len(node.call.attrs["dims"]))),
        0,
    )
    shape = tensor(first.call.specs[0]).shape
    axes = tuple(sorted(first.call.attrs["dims"]))
    if not first.call.specs[0].numel:  # type: ignore[union-attr]  # a tensor
        raise Unfusible(Reason.SHAPE, "there is nothing to reduce")
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return Domain(kept, tuple(shape[axis] for axis in axes), shape, axes, parts)


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements without gaps, row-major."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def tensor(spec: object) -> TensorSpec:
    """A spec of known shape.  Raises: Unfusible for any other."""
    if not isinstance(spec, TensorSpec):
        raise Unfusible(Reason.BARRIER, "a shape depends on data")
    return spec
