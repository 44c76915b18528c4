"""Writes what an element-wise row computes as Triton source: its template, read as an expression, with types.

Expression.of("where({0} > 0.0, {0}, {1} * expm1({0}))").written(["v1", "v2"], FLOAT32)
'tl.where(v1 > 0.0, v1, v2 * expm1_odd(v1))'
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.ops.elementary import ELEMENTARY

__all__ = [
    "COSTLY",
    "OPERATORS",
    "TYPES",
    "compared",
    "compares",
    "computed_in",
    "expression",
    "import_lines",
    "jumps",
    "number_text",
    "parsed",
    "written_in_steps",
]

TYPES: Final[Mapping[DType, str]] = {
    DType.F64: "tl.float64",
    DType.F32: "tl.float32",
    DType.F16: "tl.float16",
    DType.BF16: "tl.bfloat16",
    DType.I64: "tl.int64",
    DType.I32: "tl.int32",
    DType.I16: "tl.int16",
    DType.I8: "tl.int8",
    DType.U8: "tl.uint8",
    DType.BOOL: "tl.int1",
}
"""Element types that kernels read and write."""

_HALF: Final = (DType.F16, DType.BF16)

OPERATORS: Final[Mapping[type[ast.AST], str]] = {
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
"""Operators that Triton and C write alike."""


Written = Callable[[], str]
Operand = str | Written
Divisor = Callable[[], tuple[str, str]]


def computed_in(dtype: DType) -> DType:
    """The type in which a kernel computes on values of a type.  Raises: Unfusible for one that kernels do not take."""
    if dtype not in TYPES:
        raise Unfusible(Reason.DTYPE, f"kernels do not take {dtype}")
    return DType.F32 if dtype in _HALF else dtype


def number_text(value: float | int | bool) -> str:
    """A number as source, exact."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


@final
@dataclass(frozen=True)
class _Writer:
    """Writes one expression.

    kind     the type that floats are computed in
    rounded  the half type that the result is rounded to, so that few digits are needed; None for any other
    divisors for operands that are numbers, what writes them as divisors, and one over them
    line     writes a line with a value that is needed more than once, and gives its name
    """

    operands: Sequence[Operand]
    kind: DType
    rounded: DType | None
    divisors: Mapping[int, tuple[Divisor, Written]]
    used: set[str]
    line: Callable[[str], str]

    def write(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            operand = self.operands[int(node.id[1:])]
            return operand if isinstance(operand, str) else operand()
        if isinstance(node, ast.Constant):
            return number_text(node.value)  # type: ignore[arg-type]  # templates hold numbers
        if isinstance(node, ast.UnaryOp):
            operand = self.write(node.operand)
            if isinstance(node.op, ast.USub) and self.kind.is_float and not isinstance(node.operand, ast.Constant):
                return f"({operand} * -1.0)"  # Triton's -x is 0 - x, which makes 0 of 0, not -0
            return f"({OPERATORS[type(node.op)]}{operand})"
        if isinstance(node, ast.Compare):
            (op,), (right,) = node.ops, node.comparators
            return f"({self.write(node.left)} {OPERATORS[type(op)]} {self.write(right)})"
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        assert isinstance(node, ast.Call)
        return self._call(node)

    def _shifted(self, value: str, by: str, *, to_left: bool) -> str:
        """As torch has it: beyond the width of the type nothing is left but the sign.  The GPU takes y modulo 32."""
        bits = 8 * self.kind.itemsize
        if by.isdecimal() and int(by) < bits:  # a literal
            return f"({value} {'<<' if to_left else '>>'} {by})"
        beyond, within = f"(({by}) < 0) | (({by}) >= {bits})", f"(({by}) & {bits - 1})"
        if to_left or self.kind is DType.U8:
            return f"tl.where({beyond}, 0, {value} {'<<' if to_left else '>>'} {within})"
        return f"({value} >> tl.where({beyond}, {bits - 1}, {within}))"

    def _binary(self, node: ast.BinOp) -> str:
        if isinstance(node.op, ast.LShift | ast.RShift) and not self.kind.is_float:
            left, right = self.write(node.left), self.write(node.right)
            return self._shifted(left, right, to_left=isinstance(node.op, ast.LShift))
        if not isinstance(node.op, ast.Div):
            return f"({self.write(node.left)} {OPERATORS[type(node.op)]} {self.write(node.right)})"
        if not self.kind.is_float:
            raise Unfusible(Reason.DTYPE, f"kernels do not divide {self.kind}")
        left = self.write(node.left)
        by = self.divisors.get(int(node.right.id[1:])) if isinstance(node.right, ast.Name) else None
        if self.kind is DType.F32 and by is not None:  # a division takes the time of ten multiplications
            if self.rounded is not None:
                return f"({left} * {by[1]()})"
            self.used.add("divided_by")
            return f"divided_by({left}, {', '.join(by[0]())})"
        right = self.write(node.right)
        if self.kind is DType.F32 and self.rounded is None:
            self.used.add("divided")
            return f"divided({left}, {right})"  # what `/` gives is two units in the last place off
        return f"({left} / {right})"

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "float":
            return f'float("{ast.literal_eval(node.args[0])}")'
        operands = [self.write(argument) for argument in node.args]
        if self.kind is DType.F32 and name in ELEMENTARY and (steps := ELEMENTARY[name].steps):
            return written_in_steps(steps, operands, self.line, self._step)
        text, helpers = _form(name, self.kind, self.rounded)
        self.used.update(helpers)
        return text.format(*operands)

    def _step(self, template: str, values: Sequence[str]) -> str:
        return replace(self, operands=values, divisors={}).write(parsed(template))


def written_in_steps(
    steps: Sequence[str],
    operands: Sequence[str],
    line: Callable[[str], str],
    write: Callable[[str, Sequence[str]], str],
) -> str:
    """A function of several steps: each but the last is a line, and so is each operand, which steps read again."""
    *before, last = steps
    values = [line(operand) for operand in operands]
    for step in before:
        values.append(line(write(step, values)))
    return write(last, values)


_HELPER: Final = re.compile(r"(?<![\w.])(?:(prims_apart)\.)?(\w+)\(")
"""A function of ours that a form calls, and the module before it."""


@functools.lru_cache(maxsize=512)
def _form(name: str, kind: DType, rounded: DType | None) -> tuple[str, list[str]]:
    """How Triton writes a function of this type, and which helpers that takes.  Raises: Unfusible where it has none."""
    form = ELEMENTARY[name].triton.of(kind, rounded) if name in ELEMENTARY else None
    if form is None:
        reason = Reason.UNSUPPORTED if kind in (DType.F32, DType.F64) else Reason.DTYPE
        raise Unfusible(reason, f"kernels have no {name} of {kind}")
    return form.replace("prims_apart.", ""), [helper for _, helper in _HELPER.findall(form)]


_APART: Final = {
    name for known in ELEMENTARY.values() for form in known.triton for at, name in _HELPER.findall(form) if at
}
"""Helpers of `burn_kernels.prims_apart`; all others are in `burn_kernels.prims`."""

_SLOW: Final = [form.partition("(")[0] for known in ELEMENTARY.values() if known.costly for form in known.triton]
COSTLY: Final = re.compile(rf"(?<![\w.])(?:word_at|{'|'.join(_SLOW)})\(".replace("prims_apart.", ""))
"""Functions that take more than the test whether a program lies in a region."""


def import_lines(names: Collection[str], random_names: Collection[str]) -> list[str]:
    """The lines that import functions of `burn_kernels.prims` and `prims_apart`, and of `burn_kernels.random`."""
    taken = {"prims": set(names) - _APART, "prims_apart": _APART & set(names), "random": random_names}
    return [f"from burn_kernels.{module} import {', '.join(sorted(own))}" for module, own in taken.items() if own]


@functools.lru_cache(maxsize=512)
def compares(template: str) -> bool:
    """Whether the expression compares: then a digit more in an operand may decide otherwise."""
    return any(isinstance(node, ast.Compare) for node in ast.walk(parsed(template)))


@functools.lru_cache(maxsize=512)
def compared(template: str) -> frozenset[int]:
    """The operands that stand alone on a side of a comparison."""
    sides = [
        side
        for node in ast.walk(parsed(template))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
    ]
    return frozenset(int(side.id[1:]) for side in sides if isinstance(side, ast.Name) and side.id[0] == "_")


@functools.lru_cache(maxsize=512)
def parsed(template: str) -> ast.expr:
    """A template as a tree; operand {0} is the name _0."""
    for i in range(8):
        template = template.replace(f"{{{i}}}", f"_{i}")
    return ast.parse(template.strip(), mode="eval").body


@functools.lru_cache(maxsize=512)
def jumps(template: str) -> bool:
    """Whether a last digit of an operand may decide what the template gives."""
    names = {node.id for node in ast.walk(parsed(template)) if isinstance(node, ast.Name)}
    return any(ELEMENTARY[name].jumps for name in names if name in ELEMENTARY)


def expression(
    template: str,
    operands: Sequence[Operand],
    kind: DType,
    *,
    rounded: DType | None,
    used: set[str],
    line: Callable[[str], str],
    divisors: Mapping[int, tuple[Divisor, Written]] | None = None,
) -> str:
    """The template with these operands in its places; the helpers that it needs are added to `used`.

    operands  texts, or what writes one where it is needed
    rounded   the half type that the result is rounded to anyway; None where all digits count
    line      writes a line with a value that is needed more than once, and gives its name
    divisors  for operands that are numbers, what writes them as divisors, and one over them

    Raises: Unfusible where kernels have no such function of this type.
    """
    rounded = None if jumps(template) else rounded
    written = _Writer(operands, kind, rounded, divisors or {}, used, line).write(parsed(template))
    return written if written.startswith("(") else f"({written})" if written[:1] == "-" else written
