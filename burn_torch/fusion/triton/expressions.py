"""What an element-wise row computes, as Triton source: its template, read as an expression and written with types.

Expression.of("where({0} > 0.0, {0}, {1} * expm1({0}))").written(["v1", "v2"], FLOAT32)
'tl.where(v1 > 0.0, v1, v2 * expm1_odd(v1))'
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body.reasons import Reason, Unfusible

__all__ = [
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

_PRIMS: Final = frozenset(
    {"exp", "exp_fast", "expm1_odd", "log1p", "tanh_odd", "tanh_odd_short", "erf", "erf_short", "sigmoid_tail",
     "sigmoid_tail_fast", "sigmoid_tail_short"}
)  # fmt: skip
"""Functions of `burn_kernels.prims` and `prims_apart`, on float32."""
_APART: Final = frozenset({"erf", "erf_short", "exp", "expm1_odd", "sigmoid_tail", "tanh_odd"})
"""Those of `prims_apart`."""

_FLOAT32: Final[Mapping[str, str]] = {
    "exp": "exp",
    "expm1": "expm1_odd",
    "log1p": "log1p",
    "tanh": "tanh_odd",
    "erf": "erf",
    "sigmoid": "sigmoid_tail",
    "log": "tl.log",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "sqrt": "tl.sqrt_rn",
    "rsqrt": "1.0 / tl.sqrt_rn",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
}

_FAST: Final[Mapping[str, str]] = {
    **_FLOAT32,
    "exp": "exp_fast",
    "sigmoid": "sigmoid_tail_fast",
    "sqrt": "tl.sqrt",
    "rsqrt": "tl.rsqrt",
}
"""Where the result is rounded to a half type."""

_SHORT: Final[Mapping[str, str]] = {
    **_FAST,
    "erf": "erf_short",
    "tanh": "tanh_odd_short",
    "sigmoid": "sigmoid_tail_short",
}
"""Where it is rounded to bfloat16."""

_JUMPS: Final = frozenset({"floor", "ceil", "rint", "trunc", "fmod", "remainder"})
"""Functions that jump: a last digit decides what they give."""

_FLOAT64: Final[Mapping[str, str]] = {
    "exp": "tl.exp",
    "log": "tl.log",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "erf": "tl.erf",
    "sqrt": "tl.sqrt",
    "rsqrt": "1.0 / tl.sqrt",
    "floor": "tl.floor",
    "ceil": "tl.ceil",
}

_OF_ROUNDED: Final[Mapping[DType | None, Mapping[str, str]]] = {None: _FLOAT32, DType.F16: _FAST, DType.BF16: _SHORT}

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
    """

    operands: Sequence[Operand]
    kind: DType
    rounded: DType | None
    divisors: Mapping[int, tuple[Divisor, Written]]
    used: set[str]

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
        given = [self.write(argument) for argument in node.args]
        if name == "where":
            return f"tl.where({', '.join(given)})"
        if name == "abs":
            return f"tl.abs({given[0]})"
        if name in ("maximum", "minimum"):
            quiet = ", propagate_nan=tl.PropagateNan.ALL" if self.kind.is_float else ""
            return f"tl.{name}({', '.join(given)}{quiet})"
        if name in ("rint", "trunc") and self.kind is DType.F32:
            self.used.add(name)
            return f"{name}({given[0]})"
        if name in ("fmod", "remainder") and self.kind.is_float:
            self.used.add(name)
            return f"{name}({', '.join(given)})"
        known = _FLOAT64 if self.kind is DType.F64 else _OF_ROUNDED[self.rounded]
        if self.kind not in (DType.F32, DType.F64):
            raise Unfusible(Reason.DTYPE, f"kernels have no {name} of {self.kind}")
        if name == "sigmoid" and self.kind is DType.F64:
            self.used.add("sigmoid_tail")
            return f"sigmoid_tail({given[0]})"
        if name not in known:
            raise Unfusible(Reason.UNSUPPORTED, f"kernels have no {name} of {self.kind}")
        written = known[name]
        if written in _PRIMS:
            self.used.add(written)
        return f"({written}({given[0]}))" if written.startswith("1.0") else f"{written}({given[0]})"


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
    return any(isinstance(node, ast.Name) and node.id in _JUMPS for node in ast.walk(parsed(template)))


def expression(
    template: str,
    operands: Sequence[Operand],
    kind: DType,
    *,
    rounded: DType | None,
    used: set[str],
    divisors: Mapping[int, tuple[Divisor, Written]] | None = None,
) -> str:
    """The template with these operands in its places; the helpers that it needs are added to `used`.

    operands  texts, or what writes one where it is needed
    rounded   the half type that the result is rounded to anyway; None where all digits count
    divisors  for operands that are numbers, what writes them as divisors, and one over them

    Raises: Unfusible where kernels have no such function of this type.
    """
    rounded = None if jumps(template) else rounded
    written = _Writer(operands, kind, rounded, divisors or {}, used).write(parsed(template))
    return written if written.startswith("(") else f"({written})" if written[:1] == "-" else written
