"""Algebra: identities of the rows, as their laws state them."""

from __future__ import annotations

import math

from burn_torch.core.spec import FLOAT_NUMBER, NumberSpec, Spec, TensorSpec
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes.rewrite import Numerics, Rewriting
from burn_torch.ops.laws import Associative, Idempotent, Neutral, Rewrite, SelfInverse
from burn_torch.ops.op import REGISTRY

__all__ = ["algebra"]


def algebra(graph: Graph, numerics: Numerics = "eager") -> Graph:
    """Leaves out what changes nothing: x * 1, x - 0, neg(neg(x)), floor(floor(x)).

    "eager": what is exact in IEEE arithmetic, and leaves the values of the result where they lie in memory.
    "fast": also x + 0.0, two literal factors or terms as one, x / c as x * (1 / c), x ** 2 as x * x.
    """
    new = Rewriting(graph)
    exact = numerics == "eager"
    for node in graph.nodes:
        inputs = new.renamed(node)
        if node.call.op.laws and not node.call.multiple:
            same = _same_value(new, node, inputs, exact)
            if same is not None:
                new.rename(node.outputs[0], same)
                continue
            if not exact and _simpler(new, node, inputs):
                continue
        new.keep(node, inputs)
    return new.done()


def _same_value(new: Rewriting, node: Node, inputs: tuple[Input, ...], exact: bool) -> int | None:
    """The value that the node computes once more."""
    call, op = node.call, node.call.op
    neutral = op.law(Neutral)
    if neutral is not None:
        for at in neutral.at:
            number, other = inputs[at], inputs[1 - at]
            spec = call.specs[1 - at]
            if (
                isinstance(number, Literal)
                and isinstance(other, int)
                and spec is call.result
                and _is_number(number.value, neutral.number, spec, exact)
                and (not exact or new.layouts.is_its_own_copy(other, spec))
            ):
                return other
        return None
    maker = new.made_by(inputs[0]) if inputs else None
    if maker is None or maker.call.op is not op or call.result is not maker.call.result:
        return None
    if op.law(Idempotent) is not None and isinstance(inputs[0], int):
        return inputs[0]
    if op.law(SelfInverse) is not None:
        x = maker.inputs[0]
        if isinstance(x, int) and (not exact or new.layouts.is_its_own_copy(x, call.result)):
            return x
    return None


def _is_number(value: float, neutral: float, spec: Spec | None, exact: bool) -> bool:
    if value != neutral or isinstance(value, bool):
        return False
    is_float = spec is FLOAT_NUMBER or (isinstance(spec, TensorSpec) and spec.dtype.is_float)
    return not (is_float and exact) or math.copysign(1.0, value) == math.copysign(1.0, neutral)


def _simpler(new: Rewriting, node: Node, inputs: tuple[Input, ...]) -> bool:
    """Writes the node as a cheaper one that may round otherwise."""
    call, op, result = node.call, node.call.op, node.call.result
    if len(inputs) != 2 or not isinstance(result, TensorSpec) or not result.dtype.is_float:
        return False
    rewrite, number = op.law(Rewrite), inputs[1]
    if rewrite is not None and isinstance(number, Literal):
        other = rewrite.number(float(number.value))
        if other is not None:
            row = REGISTRY[rewrite.row]
            if other == "x":
                new.keep(node, (inputs[0], inputs[0]), row.bind((call.specs[0], call.specs[0]), {}))
            else:
                assert isinstance(other, float)
                new.keep(node, (inputs[0], Literal(other)), row.bind((call.specs[0], FLOAT_NUMBER), {}))
            return True
    if op.law(Associative) is None or op.scalar is None:
        return False
    at = _literal_at(inputs)
    maker = new.made_by(inputs[1 - at]) if at is not None else None
    if at is None or maker is None or maker.call.op is not op:
        return False
    inner = _literal_at(maker.inputs)
    x = maker.inputs[1 - inner] if inner is not None else None
    if inner is None or not isinstance(x, int) or isinstance(maker.call.specs[1 - inner], NumberSpec):
        return False
    a, b = maker.inputs[inner], inputs[at]
    assert isinstance(a, Literal)
    assert isinstance(b, Literal)
    both = float(op.scalar(a.value, b.value))
    if not math.isfinite(both):
        return False
    new.keep(node, (x, Literal(both)), op.bind((maker.call.specs[1 - inner], FLOAT_NUMBER), call.attrs))
    return True


def _literal_at(inputs: tuple[Input, ...]) -> int | None:
    return next((i for i, x in enumerate(inputs) if isinstance(x, Literal)), None)
