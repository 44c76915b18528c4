"""Templates of element-wise rows, read once: their trees, and what a kernel must have to compute them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.ops.elementary import ELEMENTARY

__all__ = ["KERNEL_TYPES", "Demand", "Template", "computed_in", "read_template"]

_HALF: Final = (DType.F16, DType.BF16)

KERNEL_TYPES: Final = frozenset(
    {*_HALF, DType.F64, DType.F32, DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.BOOL}
)
"""Element types that kernels read and write."""

Demand = tuple[str, Any]
"""("operand", n), ("divisor", n), ("constant", value), ("function", name) or ("division", None)."""


def computed_in(dtype: DType) -> DType:
    """The type in which a kernel computes on values of a type.  Raises: Unfusible for one that kernels do not take."""
    if dtype not in KERNEL_TYPES:
        raise Unfusible(Reason.DTYPE, f"kernels do not take {dtype}")
    return DType.F32 if dtype in _HALF else dtype


@final
class Template:
    """An expression such as "where({0} > 0.0, {0}, {1} * expm1({0}))"; its tree calls operand {0} the name _0.

    demands   what a kernel must have for it, in the order in which it is written
    compares  whether it compares: then a digit more in an operand may decide otherwise
    compared  the operands that stand alone on a side of a comparison
    jumps     whether a last digit of an operand may decide what it gives
    """

    def __init__(self, text: str) -> None:
        for i in range(8):
            text = text.replace(f"{{{i}}}", f"_{i}")
        self.tree: Final = ast.parse(text.strip(), mode="eval").body
        self.demands: Final = tuple(_demands(self.tree))
        comparisons = [node for node in ast.walk(self.tree) if isinstance(node, ast.Compare)]
        sides = [side for node in comparisons for side in (node.left, *node.comparators)]
        self.compares: Final = bool(comparisons)
        self.compared: Final = frozenset(
            int(side.id[1:]) for side in sides if isinstance(side, ast.Name) and side.id[0] == "_"
        )
        self.functions: Final = tuple(name for what, name in self.demands if what == "function")
        self.jumps: Final = any(ELEMENTARY[name].jumps for name in self.functions if name in ELEMENTARY)


def _demands(node: ast.AST) -> Iterator[Demand]:
    if isinstance(node, ast.Name):
        if node.id[0] == "_":
            yield "operand", int(node.id[1:])
    elif isinstance(node, ast.Constant):
        yield "constant", node.value
    elif isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        if node.func.id == "float":
            yield "constant", float(ast.literal_eval(node.args[0]))
            return
        for argument in node.args:
            yield from _demands(argument)
        yield "function", node.func.id
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield "division", None
        yield from _demands(node.left)
        if isinstance(node.right, ast.Name) and node.right.id[0] == "_":
            yield "divisor", int(node.right.id[1:])
        else:
            yield from _demands(node.right)
    else:
        for part in ast.iter_child_nodes(node):
            yield from _demands(part)


@functools.lru_cache(maxsize=512)
def read_template(text: str) -> Template:
    """The template of a text."""
    return Template(text)
