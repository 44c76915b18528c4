"""A third dialect: kernels as loops of plain Python, one number at a time, to be read and to be run.

def fused_0f3a(p0, q0):
    for x in range(12):
        v1 = p0[x]
        v2 = exp(v1)
        q0[x] = v2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from burn_torch.core import philox
from burn_torch.core.dtype import DType
from burn_torch.fusion.body.dialect import Dialect, Expression
from burn_torch.fusion.body.loops import Argument, Lowered, Text, domain_of
from burn_torch.fusion.body.needs import Needs
from burn_torch.fusion.body.steps import Place, Value, Words
from burn_torch.fusion.body.templates import read_template
from burn_torch.fusion.body.tiles import TileNeeds
from burn_torch.graph.ir import Graph
from burn_torch.ops.elementary import ELEMENTARY, Elementary, Forms


class Plain(Dialect):
    costly_words: ClassVar[frozenset[Words]] = frozenset()

    def __init__(self, needs: Needs) -> None:
        super().__init__(needs)
        self.lines: dict[Place, list[str]] = {place: [] for place in Place}

    # -- what it can say: each function, by its own name ---------------------------------------------------
    @classmethod
    def forms(cls, function: Elementary) -> Forms:
        name = next(name for name, known in ELEMENTARY.items() if known is function)
        form = f"{name}({', '.join(f'{{{n}}}' for n in range(function.operands))})"
        return Forms(single=form, double=form, integral=form)

    @classmethod
    def is_slow(cls, form: str) -> bool:
        return False

    @classmethod
    def refuses(cls, value: Any, kind: DType, *, is_constant: bool = False) -> bool:
        return False

    def constant(self, value: Any, kind: DType) -> str:
        return f'float("{value}")' if isinstance(value, float) else repr(value)

    def literal(self, value: Any, kind: DType) -> str:
        return self.constant(value, kind)

    def argument(self, argument: Argument) -> str:
        return argument.name

    def unary(self, sign: str, operand: str, kind: DType, *, is_literal: bool) -> str:
        return f"(not {operand})" if sign == "~" and kind.is_bool else f"({sign}{operand})"

    def shifted(self, value: str, by: str, kind: DType, *, to_left: bool) -> str:
        return f"({value} {'<<' if to_left else '>>'} {by})"

    def chosen(self, tests: Iterable[str], yes: str, no: str) -> str:
        return f"({yes} if {' and '.join(tests)} else {no})"

    # -- lines -----------------------------------------------------------------------------------------------
    def define(self, value: Value, place: Place, text: str) -> str:
        name = self.names[value] = self.name("v")
        self.lines[place].append(f"{name} = {text}")
        return name

    def _expression(self, step: Any, text: str, operands: Any, kind: DType) -> str:
        expression = Expression(self, operands, kind, None, partial(self.define_single, step), {})
        return expression.write(read_template(text).tree)

    def load(self, step: Any) -> str:
        text = f"{self.pointers[step.input]}[{step.at.written()}]"
        return self.chosen(step.at.tests() or ["True"], text, "0")

    def store(self, step: Any) -> None:
        self.lines[step.place].append(f"q{step.number}[{step.at.written()}] = {self.names[step.of]}")

    def compute(self, step: Any) -> str:
        names = [
            self.numbers.operand(step.node, n, step.kind) if value is None else self.names[value]
            for n, value in enumerate(step.operands)
        ]
        return self._expression(step, step.node.call.op.pointwise, lambda name: names[int(name[1:])], step.kind)

    def cast(self, step: Any) -> str:
        kind = "bool" if step.into.dtype.is_bool else "float" if step.into.dtype.is_float else "int"
        return f"{kind}({self.names[step.of]})"

    def full(self, step: Any) -> str:
        return self.numbers.operand(step.node, step.position, step.into.dtype)

    def draw(self, step: Any) -> str:
        value, names, keys = self.numbers_of(step)
        names["word"] = f"word({keys}, {step.at.written()})"
        return self._expression(step, value, names.get, step.into.dtype)

    # -- passes ----------------------------------------------------------------------------------------------
    def begin_pass(self, step: Any) -> None:
        self.lines[Place.LOOP] = []

    def end_pass(self, step: Any) -> None:
        loop = [f"for r in range({self.needs.domain.length}):", *(f"    {line}" for line in self.lines[Place.LOOP])]
        self.lines[Place.EACH] += loop

    def gather(self, step: Any) -> None:
        total = self.define(step.total, Place.EACH, f"begin_{step.kind}()")
        self.lines[Place.LOOP].append(f"{total} = fold_{step.kind}({total}, {self.names[step.of]})")

    def join(self, step: Any) -> str:
        return f"{self.names[step.of]} / {self.needs.domain.length}" if step.kind == "mean" else self.names[step.of]

    # -- the whole -------------------------------------------------------------------------------------------
    def source(self) -> str:
        outputs = [f"q{n}" for n in range(len(self.needs.results))]
        names = [*self.pointers.values(), *outputs, *(a.name for a in self.numbers.arguments.values())]
        lines = [f"for x in range({self.needs.domain.rows}):", *(f"    {line}" for line in self.lines[Place.EACH])]
        return "\n".join([f"def KERNEL({', '.join(names)}):", *(f"    {line}" for line in lines)]) + "\n"

    def with_symbols(self, head: str, names: Sequence[str], body: str) -> str:
        raise AssertionError("plain kernels are of whole sizes")


_FOLDS: dict[str, tuple[Any, Any]] = {
    "sum": (0, lambda a, b: a + b), "mean": (0, lambda a, b: a + b), "prod": (1, lambda a, b: a * b),
    "max": (float("-inf"), max), "min": (float("inf"), min),
    "any": (False, lambda a, b: a or b), "all": (True, lambda a, b: a and b),
}  # fmt: skip


def lower_plainly(body: Graph) -> Lowered:
    """The kernel of a body."""
    needs = TileNeeds(body, domain_of(body), Plain, in_steps=True).decide()
    return Lowered(Text(lambda: Plain(needs).text()), needs.inputs, needs.results)


def run(kernel: Lowered, inputs: Sequence[Any]) -> list[list[Any]]:
    """The outputs of a kernel, flat, of tensors and numbers."""
    names: dict[str, Any] = {
        name: lambda *xs, known=known: known.numpy(*map(np.asarray, xs)) for name, known in ELEMENTARY.items()
    }
    names["word"] = lambda key, stream, at: int(philox.words(key % (1 << 64), stream % (1 << 64), at, 1)[0])
    for kind, (begin, fold) in _FOLDS.items():
        names |= {f"begin_{kind}": lambda begin=begin: begin, f"fold_{kind}": fold}
    exec(kernel.source, names)
    read = [inputs[position].flatten().tolist() for position in kernel.inputs]
    written: list[list[Any]] = [[None] * int(spec.numel) for spec in kernel.outputs]
    names[kernel.name](*read, *written, *(argument.value(inputs) for argument in kernel.numbers))
    return written
