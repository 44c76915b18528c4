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
from burn_torch.ops.laws import Draws


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
    def define(self, value: Value | None, dtype: DType, place: Place, text: str) -> str:
        name = self.name("v")
        self.lines[place].append(f"{name} = {text}")
        if value is not None:
            self.names[value] = name
        return name

    def _expression(self, step: Any, text: str, operands: Any, kind: DType) -> None:
        line = partial(self.define, None, kind, step.place)
        expression = Expression(self, operands, kind, None, line, {})
        self.define(step.into, kind, step.place, expression.write(read_template(text).tree))

    def load(self, step: Any) -> None:
        text = f"{self.pointers[step.input]}[{step.at.written()}]"
        self.define(step.into, step.into.dtype, step.place, self.chosen(step.at.tests() or ["True"], text, "0"))

    def store(self, step: Any) -> None:
        self.lines[step.place].append(f"q{step.number}[{step.at.written()}] = {self.names[step.of]}")

    def compute(self, step: Any) -> None:
        names = [
            self.numbers.operand(step.node, n, step.kind) if value is None else self.names[value]
            for n, value in enumerate(step.operands)
        ]
        self._expression(step, step.node.call.op.pointwise, lambda name: names[int(name[1:])], step.kind)

    def cast(self, step: Any) -> None:
        kind = "bool" if step.into.dtype.is_bool else "float" if step.into.dtype.is_float else "int"
        self.define(step.into, step.into.dtype, step.place, f"{kind}({self.names[step.of]})")

    def full(self, step: Any) -> None:
        number = self.numbers.operand(step.node, step.position, step.into.dtype)
        self.define(step.into, step.into.dtype, step.place, number)

    def choose(self, step: Any) -> None:
        self.define(step.into, step.into.dtype, step.place, self.choice_of(step))

    def draw(self, step: Any) -> None:
        law = step.node.call.op.law(Draws)
        *parameters, key, stream = step.node.inputs
        numbers = self.numbers.made_of("draw", parameters, law.numbers, DType.F32)
        word = f"word({self.numbers.key(key)}, {self.numbers.key(stream)}, {step.at.written()})"
        self._expression(
            step, law.value, {"word": word, **dict(zip("abc", numbers, strict=False))}.get, step.into.dtype
        )

    # -- passes ----------------------------------------------------------------------------------------------
    def begin_pass(self, step: Any) -> None:
        self.lines[Place.LOOP] = []

    def end_pass(self, step: Any) -> None:
        loop = [f"for r in range({self.needs.domain.length}):", *(f"    {line}" for line in self.lines[Place.LOOP])]
        self.lines[Place.EACH] += loop

    def gather(self, step: Any) -> None:
        total = self.define(step.total, step.total.dtype, Place.EACH, f"begin_{step.kind}()")
        self.lines[Place.LOOP].append(f"{total} = fold_{step.kind}({total}, {self.names[step.of]})")

    def join(self, step: Any) -> None:
        rest = f" / {self.needs.domain.length}" if step.kind == "mean" else ""
        self.define(step.into, step.into.dtype, Place.EACH, f"{self.names[step.of]}{rest}")

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
