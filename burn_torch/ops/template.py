"""Checks the `pointwise` template of a user's row where it is declared: kernels are written from it much later."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from burn_torch.core.errors import ArgumentError
from burn_torch.ops.elementary import ELEMENTARY

__all__ = ["FUNCTIONS", "require_template"]

FUNCTIONS: Final = frozenset({"float", *ELEMENTARY})
"""The functions that kernels write; a row that calls another one is element-wise all the same, but in no kernel."""

_MOST: Final = 8
_NUMBERS: Final = ("inf", "-inf", "nan")
_PARTS: Final = (
    ast.Name, ast.Load, ast.Constant, ast.UnaryOp, ast.USub, ast.Invert, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div,
    ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.Call,
)  # fmt: skip


def require_template(name: str, template: str, inputs: Sequence[str]) -> None:
    """Raises: ArgumentError for a template that is no expression of the inputs, or none that kernels can write."""
    fault = _fault(template, inputs)
    if fault is not None:
        raise ArgumentError(
            f"{name}: its pointwise template is not an expression of its inputs",
            given=f"pointwise={template!r}: {fault}",
            expected="operators, numbers and "
            + (", ".join(f"{{{i}}} for {x}" for i, x in enumerate(inputs)) or "no input")
            + f"; of functions {', '.join(sorted(FUNCTIONS))}",
            mend="leave pointwise out of a row that is more than that: a library computes it then",
        )


def _fault(template: str, inputs: Sequence[str]) -> str | None:
    if "{dtype}" in template:  # a cast, which is written by the attribute
        return None
    named = {int(n) for n in re.findall(r"\{(\d+)\}", template)}
    unknown = sorted(n for n in named if n >= len(inputs))
    if unknown:
        return f"{{{unknown[0]}}} is none of {len(inputs)} inputs"
    if len(inputs) > _MOST:
        return f"{len(inputs)} inputs, where {_MOST} may be"
    try:
        tree = ast.parse(re.sub(r"\{(\d+)\}", r"_\1", template).strip(), mode="eval").body
    except (SyntaxError, ValueError) as err:
        return getattr(err, "msg", None) or str(err)
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _PARTS) or (isinstance(node, ast.Compare) and len(node.ops) > 1):
            text = re.sub(r"\b_(\d)\b", r"{\1}", ast.unparse(node)) or type(node).__name__
            return f"{text} is not written in kernels"
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name):
            return f"there is no function {ast.unparse(node.func)}"
        if isinstance(node, ast.Call) and (fault := _misfit(node)) is not None:
            return fault
        if isinstance(node, ast.Name) and node not in called and not re.fullmatch(r"_\d", node.id):
            return f"{node.id} is no input: write its number in braces"
        if isinstance(node, ast.Constant) and not (isinstance(node.value, int | float) or node.value in _NUMBERS):
            return f"{node.value!r} is no number"
    return None


def _misfit(call: ast.Call) -> str | None:
    """How the operands of a function that kernels write are not as many as it takes."""
    known = ELEMENTARY.get(ast.unparse(call.func))
    if known is None or (len(call.args) == known.operands and not call.keywords):
        return None
    return f"{ast.unparse(call.func)} takes {known.operands}, not {len(call.args) + len(call.keywords)}"
