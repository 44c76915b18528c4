"""Walks a kernel in C: all steps of its loops at once, as arrays, so that each access is the list of its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from burn_torch.fusion.body.kernel_proof import MOST_STEPS, Access, KernelFault, Kernels, Loops, judge
from burn_torch.fusion.c.text import Assign, Declare, Expression, Loop, Statement, parse_kernel
from burn_torch.ops.value import Primitive

__all__ = ["prove_c"]


def prove_c(kernel: Any, sizes: Mapping[int, int]) -> None:
    """Shows of a `CKernel` at whole sizes what `kernel_proof` says.

    sizes: elements that each input of the body reaches, by its position.
    Raises: KernelFault.
    """
    parameters, body = parse_kernel(kernel.source, kernel.name)
    names = [name for _, name in parameters]
    symbols = [name for kind, name in parameters if kind == "int64_t" and name.startswith("s")]
    values = dict(zip(symbols, kernel.sizes, strict=True))
    try:
        walk = _Walk(Kernels(kernel.name), kernel.source).over(body, values)
    except _TooLong:
        walk = _Walk(Kernels(kernel.name, whole=False), kernel.source).over(body, values)
    inputs = [f"p{n}" for n in range(len(kernel.inputs))]
    assert [name for name in names if name[0] in "pq"] == [*inputs, *(f"q{n}" for n in range(len(kernel.outputs)))]
    reach = {name: sizes[position] for name, position in zip(inputs, kernel.inputs, strict=True)}
    reach |= {f"q{n}": int(spec.numel) for n, spec in enumerate(kernel.outputs)}
    for output, position in kernel.over:
        over = {f"q{output}": f"p{kernel.inputs.index(position)}"}
        judge(walk.found, reach | walk.arrays, kernel.outputs, over)
    judge(walk.found, reach | walk.arrays, kernel.outputs, {})


EDGE: Final = 64
"""The number of first and last steps that are walked of a loop that is too long to be walked whole."""


class _TooLong(Exception):
    pass


class _Place(NamedTuple):
    """A place of the kernel: whole numbers there, the loops around it with their steps, and which steps come there."""

    known: dict[str, Any]
    loops: Loops
    steps: tuple[Any, ...]
    mask: Any


@final
class _Walk:
    """Goes over a kernel and collects its accesses."""

    def __init__(self, kernels: Kernels, source: str) -> None:
        self.found: Final = kernels
        self.source: Final = source
        self.arrays: Final[dict[str, int]] = {}
        """Elements of local arrays."""
        self.count = 0

    def over(self, body: Sequence[Statement], symbols: Mapping[str, int]) -> _Walk:
        """Itself, after it went over a kernel.  Raises: _TooLong where that is more than `MOST_STEPS`."""
        known = {name: np.full(1, value, np.int64) for name, value in symbols.items()}
        self.statements(body, _Place(known, Loops(places=(0,)), (), np.ones(1, bool)))
        return self

    def statements(self, body: Sequence[Statement], at: _Place) -> None:
        known, loops = dict(at.known), at.loops
        for place, statement in enumerate(body):
            here = at._replace(known=known, loops=Loops(loops.names, loops.kinds, (*loops.places[:-1], place)))
            if isinstance(statement, Loop):
                self.loop(statement, here)
            elif isinstance(statement, Declare):
                if statement.size is not None:
                    self.arrays[statement.name] = int(self.value(statement.size, known).max())
                if statement.value is not None:
                    self.read(statement.value, here)
                    if statement.type == "int64_t" and self.is_whole(statement.value, known):
                        known[statement.name] = np.broadcast_to(self.value(statement.value, known), at.mask.shape)
            else:
                self.assign(statement, here)

    def loop(self, loop: Loop, at: _Place) -> None:
        known, loops, mask = at.known, at.loops, at.mask
        begin, end, step = (
            np.broadcast_to(self.value(x, known), mask.shape) for x in (loop.begin, loop.end, loop.step)
        )
        counts = np.maximum(-((begin - end) // step), 0)
        kept = counts if self.found.whole else np.minimum(counts, 2 * EDGE)
        if kept.sum() > MOST_STEPS:
            raise _TooLong
        rows = np.repeat(np.arange(mask.size), kept)
        nth = np.arange(rows.size) - np.repeat(np.cumsum(kept) - kept, kept)
        nth += np.where(nth < EDGE, 0, (counts - kept)[rows])
        inner = {name: value[rows] if value.shape == mask.shape else value for name, value in known.items()}
        inner[loop.variable] = begin[rows] + nth * step[rows]
        self.count += 1
        inside = Loops((*loops.names, self.count), (*loops.kinds, loop.kind), (*loops.places, 0))
        self.statements(loop.body, _Place(inner, inside, (*(s[rows] for s in at.steps), nth), mask[rows]))

    # -- accesses --------------------------------------------------------------------------------------
    def assign(self, statement: Assign, at: _Place) -> None:
        self.read(statement.value, at)
        target = statement.target
        if target is None or target[0] != "at":
            return
        _, buffer, index = target
        if statement.op != "=":
            self.read(target, at)
        if buffer.startswith("p") and buffer[1:].isdigit():
            raise KernelFault(f"{self.found.name} stores in {buffer}, which it reads")
        self.note(self.found.stores, buffer, index, at)

    def read(self, x: Expression, at: _Place) -> None:
        """Collects the loads of an expression; one branch of a choice is loaded where its test says so."""
        if x[0] in ("number", "name", "text"):
            return
        if x[0] == "at":
            self.note(self.found.loads, x[1], x[2], at)
            self.read(x[2], at)
        elif x[0] == "?" and self.is_whole(x[1], at.known):
            test = np.broadcast_to(self.value(x[1], at.known) != 0, at.mask.shape)
            self.read(x[2], at._replace(mask=at.mask & test))
            self.read(x[3], at._replace(mask=at.mask & ~test))
        else:
            for part in x[1:]:
                if isinstance(part, tuple):
                    self.read(part, at)

    def note(self, into: list[Access], buffer: str, index: Expression, at: _Place) -> None:
        if not self.is_whole(index, at.known):
            raise KernelFault(f"{self.found.name}: the index of {buffer} is not made of loops: {index}")
        elements = np.broadcast_to(self.value(index, at.known), at.mask.shape)[at.mask]
        line = next((line for line in self.source.splitlines() if f"{buffer}[" in line), buffer)
        into.append(Access(buffer, line, at.loops, tuple(s[at.mask] for s in at.steps), elements))

    # -- whole numbers -----------------------------------------------------------------------------------
    def is_whole(self, x: Expression, known: Mapping[str, object]) -> bool:
        """Asks whether an expression is made of loops and whole numbers alone."""
        if x[0] == "number":
            return isinstance(x[1], int)
        if x[0] == "name":
            return x[1] in known
        if x[0] in ("at", "call", "text"):
            return False
        return all(self.is_whole(part, known) for part in x[1:] if isinstance(part, tuple))

    def value(self, x: Expression, known: Mapping[str, object]) -> Any:
        """Evaluates it as C does."""
        if x[0] == "number":
            return np.asarray(x[1], np.int64)
        if x[0] == "name":
            return known[x[1]]
        if x[0] == "cast":
            return self.value(x[2], known)
        operands = [self.value(part, known) for part in x[1:]]
        if x[0] == "?":
            return np.where(operands[0] != 0, operands[1], operands[2])
        return np.asarray(_OPERATORS[x[0]](*operands)).astype(np.int64)


def _quotient(a: Primitive, b: Primitive) -> object:
    return np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b))  # toward zero


_OPERATORS: Final[Mapping[str, Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "&&": np.logical_and,
    "||": np.logical_or,
    "unary -": np.negative,
    "unary !": np.logical_not,
}
