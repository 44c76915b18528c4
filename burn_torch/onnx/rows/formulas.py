"""Formulas as text: each function, operator and number of one becomes a node or a constant.

    write(w, "x * Sigmoid(x / alpha)", x=x, alpha=alpha)

Functions have ONNX's names; those in lower case, of the table of elementary functions, are capitalised.  Numbers are
constants of the element type of the first operand.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Final

from burn_torch.onnx.exporting.writer import Number, Wire, Writer

__all__ = ["write"]

_OPERATORS: Final = {
    ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.BitOr: "Or", ast.Eq: "Equal", ast.Lt: "Less",
    ast.LtE: "LessOrEqual",
}  # fmt: skip


@lru_cache(maxsize=256)
def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def write(w: Writer, text: str, **operands: Wire | Number) -> Wire:
    """Writes the nodes of a formula; the first operand is a tensor."""
    first = next(iter(operands.values()))
    assert isinstance(first, Wire)

    def visit(node: ast.expr) -> Wire:
        match node:
            case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
                return w.node(_OPERATORS[type(operator)], visit(left), visit(right))
            case ast.UnaryOp(ast.USub(), operand):
                return w.node("Neg", visit(operand))
            case ast.Name(name):
                return w.operand(operands[name], first.dtype)
            case ast.Constant(value) | ast.Call(ast.Name("float"), [ast.Constant(value)]):
                return w.number(float(value), first.dtype)  # type: ignore[arg-type]  # formulas hold numbers alone
            case ast.Call(ast.Name(name), arguments):
                return w.node(name if name[0].isupper() else name.capitalize(), *map(visit, arguments))
        raise AssertionError(ast.dump(node))

    return visit(_parse(text))
