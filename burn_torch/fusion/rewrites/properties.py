"""Questions of rewrites about an operation: the laws and the template of its row answer, so a user's rows do too."""

from __future__ import annotations

from burn_torch.core.spec import TensorSpec
from burn_torch.graph.decomposition import expanded
from burn_torch.graph.ir import Input, Literal, Node
from burn_torch.ops.laws import Folds, Moves, Multiplies

__all__ = ["bias_of", "formula", "is_product_alone", "is_transposition", "keeps_order", "permutes", "sums_rows"]


def keeps_order(node: Node) -> bool:
    """True if the result has the elements of input 0 in their order, as a reshape has."""
    law = node.call.op.law(Moves)
    return law is not None and law.ordered


def is_transposition(node: Node) -> bool:
    """True if the result is input 0, a matrix, with its two axes swapped."""
    law = node.call.op.law(Moves)
    return law is not None and law.axes is not None and law.axes(node.call) == (1, 0)


def permutes(node: Node) -> bool:
    """True if the result is input 0 with its axes in another order."""
    law = node.call.op.law(Moves)
    return law is not None and law.axes is not None


def bias_of(product: Node) -> Input:
    """The value that a product of matrices adds; None for nothing."""
    return product.inputs[2] if len(product.inputs) > 2 else None


def is_product_alone(node: Node) -> bool:
    """True if it is a product of matrices that adds nothing."""
    return node.call.op.law(Multiplies) is not None and bias_of(node) is None


def sums_rows(node: Node) -> bool:
    """True if the result, without the axes before the last, is the sum over all of these."""
    x, result = node.call.specs[0], node.call.result
    if not isinstance(x, TensorSpec) or not isinstance(result, TensorSpec) or result.shape != x.shape[-1:]:
        return False
    body = expanded(node.call)
    folds = [] if body is None else [part.call for part in body.nodes if not keeps_order(part)]
    law = folds[0].op.law(Folds) if len(folds) == 1 else None
    return law is not None and law.kind == "sum" and set(folds[0].attrs["dims"]) == set(range(x.ndim - 1))


def formula(node: Node) -> str | None:
    """The expression of an element-wise operation, over ids of values: "(%3 * %3)"; None for any other operation."""
    template = node.call.op.pointwise
    return None if template is None else template.format(*map(_text_of, node.inputs), **node.call.attrs)


def _text_of(value: Input) -> str:
    return f"%{value}" if isinstance(value, int) else repr(value.value) if isinstance(value, Literal) else ""
