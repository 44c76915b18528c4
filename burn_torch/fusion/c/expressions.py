"""Writes what an element-wise row computes as C: its template, read as an expression and written with types.

c_expression("where({0} > 0.0, {0}, {1} * expm1({0}))", ["v1", "v2"], DType.F32, used=set())
'((v1 > 0.0f) ? v1 : (v2 * expm1_(v1)))'
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.fusion.triton.expressions import OPERATORS, parsed, written_in_steps
from burn_torch.ops.elementary import ELEMENTARY

__all__ = ["COSTLY", "C_TYPES", "c_expression", "c_number"]

C_TYPES: Final[Mapping[DType, str]] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "_Float16",
    DType.BF16: "uint16_t",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.BOOL: "_Bool",
}
"""How element types lie in memory."""

_HELPER: Final = re.compile(r"\b([a-z]\w*)_\(")
"""A function of `fusion/c/prims.py` that a form calls."""

_SLOW: Final = [
    name for known in ELEMENTARY.values() if known.costly for form in known.c for name in _HELPER.findall(form)
]
COSTLY: Final = re.compile(rf"\b(?:word_at|{'|'.join(_SLOW)})_\(|\bwords\d+\[")
"""Functions that take more than a pass over memory."""


def c_number(value: float | int | bool, kind: DType) -> str:
    """A number as source, of floats rounded to `kind`.  Raises: Unfusible for a fraction beside integers."""
    if isinstance(value, float) and not kind.is_float:
        if not value.is_integer():
            raise Unfusible(Reason.DTYPE, f"the number {value} beside {kind}")
        value = int(value)
    if not isinstance(value, float):
        value = int(value)
        return f"{value}LL" if abs(value) > 1 << 30 else str(value)
    end = "" if kind is DType.F64 else "f"
    if value != value:
        return f'__builtin_nan{end}("")'
    if value in (float("inf"), float("-inf")):
        return f"(-__builtin_inf{end}())" if value < 0 else f"__builtin_inf{end}()"
    return f"{value!r}{end}"


@final
@dataclass(frozen=True)
class _Writer:
    """Writes one expression; `kind` is the type that numbers are computed in; `line` as in Triton's."""

    operands: Mapping[str, str]
    kind: DType
    used: set[str]
    line: Callable[[str], str]

    def write(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return self.operands[node.id]
        if isinstance(node, ast.Constant):
            return c_number(node.value, self.kind)  # type: ignore[arg-type]  # templates hold numbers
        if isinstance(node, ast.UnaryOp):
            sign = OPERATORS[type(node.op)]
            return f"({'!' if sign == '~' and self.kind.is_bool else sign}{self.write(node.operand)})"
        if isinstance(node, ast.Compare):
            (op,), (other,) = node.ops, node.comparators
            return f"({self.write(node.left)} {OPERATORS[type(op)]} {self.write(other)})"
        if isinstance(node, ast.BinOp):
            left, right = self.write(node.left), self.write(node.right)
            if isinstance(node.op, ast.LShift | ast.RShift) and not self.kind.is_float:
                return self._shifted(left, right, to_left=isinstance(node.op, ast.LShift))
            if not isinstance(node.op, ast.Div):
                return f"({left} {OPERATORS[type(node.op)]} {right})"
            if not self.kind.is_float:
                raise Unfusible(Reason.DTYPE, f"kernels do not divide {self.kind}")
            return f"({left} / {right})"
        assert isinstance(node, ast.Call)
        return self._call(node)

    def _shifted(self, value: str, by: str, *, to_left: bool) -> str:
        """As torch has it: beyond the width of the type nothing is left but the sign."""
        bits = 8 * self.kind.itemsize
        beyond = f"({by}) < 0 || ({by}) >= {bits}"
        value = f"({C_TYPES[self.kind]}){value}"  # a literal is an int, of 32 bits
        if to_left or self.kind is DType.U8:
            return f"({beyond} ? 0 : {value} {'<<' if to_left else '>>'} {by})"
        return f"({value} >> ({beyond} ? {bits - 1} : {by}))"

    def _call(self, node: ast.Call) -> str:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "float":
            return c_number(float(ast.literal_eval(node.args[0])), self.kind)
        operands = [self.write(argument) for argument in node.args]
        if self.kind is DType.F32 and name in ELEMENTARY and (steps := ELEMENTARY[name].steps):
            return written_in_steps(steps, operands, self.line, self._step)
        form = ELEMENTARY[name].c.of(self.kind) if name in ELEMENTARY else None
        if form is None:
            reason = Reason.UNSUPPORTED if self.kind in (DType.F32, DType.F64) else Reason.DTYPE
            raise Unfusible(reason, f"kernels have no {name} of {self.kind}")
        self.used.update(_HELPER.findall(form))
        return form.format(*operands)

    def _step(self, template: str, values: Sequence[str]) -> str:
        return replace(self, operands=_named(values)).write(parsed(template))


def _named(operands: Sequence[str]) -> dict[str, str]:
    return {f"_{n}": text for n, text in enumerate(operands)}


def c_expression(
    template: str,
    operands: Sequence[str] | Mapping[str, str],
    kind: DType,
    *,
    used: set[str],
    line: Callable[[str], str],
) -> str:
    """The template with these operands in its places; the helpers that it needs are added to `used`.

    `line` writes a line with a value that is needed more than once, and gives its name.

    Raises: Unfusible where C has no such function of this type.
    """
    names = operands if isinstance(operands, Mapping) else _named(operands)
    return _Writer(names, kind, used, line).write(parsed(template))
