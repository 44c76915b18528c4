"""Sums of columns beside reductions of rows: a program goes over some rows, and adds up each column on the way.

    dx = ... mean(dy * x) of each row ...          rows of `length`, all that a program holds at once
    dw = sum of dy * x over the rows of a part     one row of sums for each program; another kernel adds them up

So what both read, such as dy and x in the backward of a norm, is read once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.index import Index, constant, split_index
from burn_torch.fusion.body.reasons import Reason, Unfusible
from burn_torch.graph.ir import Graph, Node
from burn_torch.ops.laws import Folds
from burn_torch.symbolic.sizes import same_size, size_hint

__all__ = ["FEWEST_PARTS", "LONGEST_GATHERED", "Columns", "of_rows", "parts_beside"]

LONGEST_GATHERED: Final = 8192
"""Columns: a sum takes as many registers as a row."""

FEWEST_PARTS: Final = 64
"""With fewer programs much of a large device is idle."""

MOST_ROWS: Final = 32
"""Rows that a program goes over where there are few programs."""


def of_rows(node: Node) -> tuple[int, int] | None:
    """(number, length) of the rows that a reduction reduces, where it is over the last axes; else None."""
    x, dims = node.call.specs[0], sorted(node.call.attrs["dims"])
    if not isinstance(x, TensorSpec) or not x.numel or dims != list(range(x.ndim - len(dims), x.ndim)):
        return None
    length = math.prod(x.shape[dim] for dim in dims)
    return x.numel // length, length


def _gathers(node: Node, rows: int, length: int) -> int | None:
    """In how many parts of these rows a reduction sums columns, one row of sums for each; None where it does not."""
    x, dims = node.call.specs[0], sorted(node.call.attrs["dims"])
    if not isinstance(x, TensorSpec) or node.call.op.law(Folds) != Folds("sum"):
        return None
    if dims != list(range(dims[0], dims[-1] + 1)) or not same_size(math.prod(x.shape[dims[-1] + 1 :]), length):
        return None
    return math.prod(x.shape[: dims[0]]) if same_size(x.numel, rows * length) else None


def parts_beside(body: Graph, folds: Sequence[Node]) -> tuple[Node, int] | None:
    """The reduction whose rows a kernel goes over, and in how many parts it sums columns; None without such sums.

    A sum of columns is a result of the body, and nothing in the body reads it.
    """
    sized = [(size, node) for node in folds if (size := of_rows(node)) is not None]
    if not sized or len(sized) == len(folds):
        return None
    (rows, length), node = max(sized, key=lambda pair: size_hint(pair[0][0] * pair[0][1]))
    parts = {_gathers(other, rows, length) for other in folds if of_rows(other) is None}
    read = {i for other in body.nodes for i in other.inputs}
    sums = {i for other in folds if of_rows(other) is None for i in other.outputs}
    if len(parts) != 1 or None in parts or sums & read or not sums <= set(body.outputs):
        return None
    (count,) = parts
    if not isinstance(count, int):  # symbolic: how many programs run is not known
        return None
    return node, count


@final
class Columns:
    """How a kernel sums columns beside its rows: in how many parts of how many rows of which length."""

    def __init__(self, parts: int, rows: int, length: int) -> None:
        if length > LONGEST_GATHERED:
            raise Unfusible(Reason.LIMIT, f"sums of {length} columns beside rows do not fit a program")
        if parts < FEWEST_PARTS and rows > MOST_ROWS * parts:
            raise Unfusible(Reason.LIMIT, f"{parts} programs for {rows} rows, whose columns are summed beside")
        self.parts: Final = parts
        self.rows: Final = rows
        self.length: Final = length

    def operand_at(self, node: Node, x: Index, r: Index) -> tuple[Index, ...]:
        """Returns the index of the operand of a sum, for the element of a row."""
        spec = node.call.tensor(0)
        return split_index(x * self.length + r, spec.shape) if spec.ndim else (constant(0),)
