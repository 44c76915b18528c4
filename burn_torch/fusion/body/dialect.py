"""Languages that kernels are written in: a `Dialect` is a table of texts, and writes the steps that a body needs.

    class Triton(Dialect):
        def load(self, step): ...       one method for each kind of step
        def source(self, title): ...    the whole kernel

A body is decided without it (`needs.py`); only what a language cannot say at all is asked before: `form`, `refuses`.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import Argument, tensor
from burn_torch.fusion.body.needs import Needs
from burn_torch.fusion.body.numbers import Numbers
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.body.steps import Choose, Compute, Draw, Place, Step, Value, Words
from burn_torch.fusion.body.templates import read_template
from burn_torch.graph.ir import Graph
from burn_torch.ops.elementary import ELEMENTARY, Elementary, Forms
from burn_torch.ops.laws import Draws
from burn_torch.ops.value import Primitive
from burn_torch.symbolic.sizes import Size, sizes_in

__all__ = ["Dialect", "Expression", "indent", "title_of"]

_OPERATORS: Final[Mapping[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.USub: "-",
    ast.Invert: "~",
}
"""Operators that all languages write alike."""


def title_of(body: Graph) -> str:
    """The first line of a kernel: the rows that it computes."""
    rows = ", ".join(node.call.op.name for node in body.nodes[:12])
    more = f" and {len(body.nodes) - 12} more" if len(body.nodes) > 12 else ""
    return f"{rows}{more}, in one kernel."


def indent(lines: Iterable[str]) -> list[str]:
    """Lines of a block."""
    return [f"    {line}" for line in lines]


class Dialect(ABC):
    """Writes one kernel in a language.

    costly_words  the ways to draw random words that take more than a test
    helpers       functions of a library that the kernel calls
    names         the names of values
    """

    costly_words: ClassVar[frozenset[Words]]

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.numbers: Final = Numbers(needs.body, self)
        self.helpers: Final[set[str]] = set()
        self.names: Final[dict[Value, str]] = {}
        self.pointers: Final = {i: f"p{n}" for n, i in enumerate(needs.read)}
        self._count = 0

    # -- what a language can say ---------------------------------------------------------------------------
    @classmethod
    @abstractmethod
    def forms(cls, function: Elementary) -> Forms:
        """The texts of a function."""

    @classmethod
    @abstractmethod
    def is_slow(cls, form: str) -> bool:
        """Tells if a text takes more than the test whether a program lies in a region."""

    @classmethod
    @abstractmethod
    def refuses(cls, value: Primitive, kind: DType, *, is_constant: bool = False) -> bool:
        """Tells if a number cannot stand beside values of a type.  is_constant: it stands in a template."""

    @classmethod
    def form(cls, name: str, kind: DType, rounded: DType | None) -> str:
        """The text of a function on values of a type.  Raises: Unfusible where the language has none."""
        form = cls.forms(ELEMENTARY[name]).of(kind, rounded) if name in ELEMENTARY else None
        if form is None:
            reason = Reason.UNSUPPORTED if kind in (DType.F32, DType.F64) else Reason.DTYPE
            raise Unfusible(reason, f"kernels have no {name} of {kind}")
        return form

    @classmethod
    def is_costly(cls, name: str, kind: DType, rounded: DType | None) -> bool:
        """Tells if a function takes more than the test whether a program lies in a region."""
        function = ELEMENTARY[name]
        if kind is DType.F32 and function.steps:
            return any(
                cls.is_costly(f, kind, rounded) for step in function.steps for f in read_template(step).functions
            )
        return cls.is_slow(cls.form(name, kind, rounded))

    # -- texts of expressions ------------------------------------------------------------------------------
    @abstractmethod
    def constant(self, value: Primitive, kind: DType) -> str:
        """A number of a template."""

    @abstractmethod
    def literal(self, value: Primitive, kind: DType) -> str:
        """A number that is known, beside values of a type."""

    @abstractmethod
    def argument(self, argument: Argument) -> str:
        """A number of run time."""

    @abstractmethod
    def unary(self, sign: str, operand: str, kind: DType, *, is_literal: bool) -> str:
        """An operator before its operand."""

    @abstractmethod
    def shifted(self, value: str, by: str, kind: DType, *, to_left: bool) -> str:
        """A value shifted as torch has it: beyond the width of the type nothing is left but the sign."""

    def divided(self, expression: Expression, left: str, by: ast.expr) -> str:
        """A quotient."""
        return f"({left} / {expression.write(by)})"

    @abstractmethod
    def chosen(self, tests: Iterable[str], yes: str, no: str) -> str:
        """One of two values."""

    def call(self, form: str, operands: Sequence[str]) -> str:
        """The text of a function of operands."""
        return form.format(*operands)

    def typed(self, text: str, dtype: DType) -> str:
        """A value in a type that it need not have yet."""
        return text

    # -- steps -----------------------------------------------------------------------------------------------
    def write(self, steps: Iterable[Step]) -> None:
        """Writes steps one after the other: each by the method that its kind is called by, which gives the text of its
        value, or has written what it has to.
        """
        for step in steps:
            text = _method(self, type(step))(step)
            if text is not None:
                self.define(step.into, step.place, text)  # type: ignore[union-attr]  # steps with a text have a value

    @abstractmethod
    def define(self, value: Value, place: Place, text: str) -> str:
        """Writes a line that computes a value; gives its name."""

    def define_single(self, step: Compute | Draw, text: str) -> str:
        """Writes a line with a float32 that a step needs more than once; gives its name."""
        return self.define(Value(DType.F32, step.into.x, step.into.r), step.place, text)

    def choose(self, step: Choose) -> str:
        """The value of the first region that an element is in."""
        dtype = step.into.dtype
        texts = [
            self._number_of(step, n) if value is None else self.names[value] for n, value in enumerate(step.operands)
        ]
        chosen = texts[-1]
        for text, region in reversed(list(zip(texts[:-1], step.regions[:-1], strict=True))):
            chosen = self.chosen(region.tests, text, chosen)
        return chosen if dtype.is_bool else self.typed(chosen, dtype)

    def _number_of(self, step: Choose, n: int) -> str:
        """The number that a region is full of."""
        text = self.numbers.operand(step.node, step.regions[n].input, step.into.dtype)
        return f"({text} != 0)" if step.into.dtype.is_bool else text

    def numbers_of(self, step: Draw) -> tuple[str, dict[str, str], str]:
        """How a random value is made of a word and of numbers, these by their names, and the key with its stream."""
        law, node = step.node.call.op.law(Draws), step.node
        assert law is not None
        *parameters, key, stream = node.inputs
        dtype = tensor(node.call.result).dtype
        numbers = self.numbers.made_of(node.call.op.name, parameters, law.numbers, dtype)
        named = dict(zip("abc", numbers, strict=False))
        return law.value, named, f"{self.numbers.key(key)}, {self.numbers.key(stream)}"

    def name(self, hint: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{hint}{self._count}"

    # -- the whole -------------------------------------------------------------------------------------------
    @abstractmethod
    def source(self) -> str:
        """The kernel, by the name KERNEL."""

    def text(self) -> tuple[str, tuple[Argument, ...], tuple[Size, ...]]:
        """The kernel with its numbers, and the symbols that it takes."""
        self.write(self.needs.steps)
        source, sizes = self.name_symbols(self.source())
        return source, tuple(self.numbers.arguments.values()), sizes

    def name_symbols(self, source: str) -> tuple[str, tuple[Size, ...]]:
        """The source with an argument for each symbol in place of SIZES, and what these are; named in the order of
        their use, so that equal kernels of two programs are one.
        """
        shapes = tuple(spec.shape for spec in self.needs.specs.values() if isinstance(spec, TensorSpec))
        scope = next((size.scope for size in sizes_in(shapes)), None)
        if scope is None:
            return source.replace("SIZES, ", ""), ()
        head, body = source.split("SIZES, ")
        symbols = dict.fromkeys(re.findall(r"\b[sd]\d+\b", body))
        new = {name: f"s{n}" for n, name in enumerate(symbols)}
        body = re.sub(r"\b[sd]\d+\b", lambda match: new[match[0]], body)
        return self.with_symbols(head, list(new.values()), body), tuple(map(scope.factor, symbols))

    @abstractmethod
    def with_symbols(self, head: str, names: Sequence[str], body: str) -> str:
        """The source with these arguments between its head and its body."""


_methods: Final[dict[type, str]] = {}


def _method(dialect: Dialect, kind: type) -> Callable[[Any], str | None]:
    name = _methods.get(kind)
    if name is None:  # BeginPass: begin_pass
        name = _methods[kind] = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", kind.__name__).lower()
    method: Callable[[Any], str | None] = getattr(dialect, name)
    return method


@final
@dataclass(frozen=True)
class Expression:
    """Writes a template with operands in its places.

    operands  gives the text of a name
    kind      the type that floats are computed in
    rounded   the half type that the result is rounded to, so that few digits are needed; None for any other
    line      writes a line with a value that is needed more than once, and gives its name
    divisors  for operands that are numbers, what writes them as divisors, and one over them
    """

    dialect: Dialect
    operands: Callable[[str], str]
    kind: DType
    rounded: DType | None
    line: Callable[[str], str]
    divisors: Mapping[str, tuple[Callable[[], tuple[str, str]], Callable[[], str]]]

    def write(self, node: ast.AST) -> str:
        """The source of a part of a template."""
        dialect, kind = self.dialect, self.kind
        if isinstance(node, ast.Name):
            return self.operands(node.id)
        if isinstance(node, ast.Constant):
            return dialect.constant(node.value, kind)
        if isinstance(node, ast.UnaryOp):
            literal = isinstance(node.operand, ast.Constant)
            return dialect.unary(_OPERATORS[type(node.op)], self.write(node.operand), kind, is_literal=literal)
        if isinstance(node, ast.Compare):
            (op,), (right,) = node.ops, node.comparators
            return f"({self.write(node.left)} {_OPERATORS[type(op)]} {self.write(right)})"
        if isinstance(node, ast.BinOp):
            left = self.write(node.left)
            if isinstance(node.op, ast.Div):
                return dialect.divided(self, left, node.right)
            by = self.write(node.right)
            if isinstance(node.op, ast.LShift | ast.RShift) and not kind.is_float:
                return dialect.shifted(left, by, kind, to_left=isinstance(node.op, ast.LShift))
            return f"({left} {_OPERATORS[type(node.op)]} {by})"
        assert isinstance(node, ast.Call)
        return self._call(node)

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "float":
            return self.dialect.constant(float(ast.literal_eval(node.args[0])), self.kind)
        operands = [self.write(argument) for argument in node.args]
        function = ELEMENTARY.get(name)
        if self.kind is DType.F32 and function is not None and function.steps:
            return self._in_steps(function.steps, operands)
        return self.dialect.call(self.dialect.form(name, self.kind, self.rounded), operands)

    def _in_steps(self, steps: Sequence[str], operands: Sequence[str]) -> str:
        """A function of several steps: each but the last is a line, and so is each operand, which steps read again."""
        values = [self.line(operand) for operand in operands]

        def write(step: str) -> str:
            inner = replace(self, operands=lambda name: values[int(name[1:])], divisors={})
            return inner.write(read_template(step).tree)

        *before, last = steps
        for step in before:
            text = write(step)
            values.append(self.line(text))
        return write(last)
