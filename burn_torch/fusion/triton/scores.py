"""Functions of scores as functions of Triton, which the kernels of attention call on their tiles.

    @triton.jit
    def score(s, b, h, q, k, captured):
        v1 = (k - q).to(tl.int32)
        ...
        return v4

`captured` holds for each tensor a pointer, its number of elements, and its sizes: no size is written into the text.
Indices are held inside the tensors, since tiles reach past the ends of sequences.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.fusion.body.dialect import Expression
from burn_torch.fusion.body.loops import tensor
from burn_torch.fusion.body.scalars import walk
from burn_torch.fusion.body.steps import Place, Value
from burn_torch.fusion.body.templates import computed_in, read_template
from burn_torch.fusion.triton.dialect import Triton, header
from burn_torch.fusion.triton.products import PartNeeds
from burn_torch.graph.ir import Graph, Literal, Node
from burn_torch.graph.passes import dead_code
from burn_torch.ops.creation import full
from burn_torch.ops.selection import cast

__all__ = ["ScoreSource", "captured_numbers", "write_scores"]


def captured_numbers(shape: Shape) -> int:
    """Entries of `captured` for a tensor."""
    return 2 + len(shape)


class ScoreSource(NamedTuple):
    """A module with the functions `score`, `slope` and `seen`, those that there are."""

    name: str
    source: str
    names: frozenset[str]


def write_scores(score: Graph | None, seen: Graph | None, count: int, *, short: bool) -> ScoreSource:
    """The functions of two graphs, the first of which captures `count` tensors; short: half types compute with it.

    Raises: Unfusible, with the reason.
    """
    parts: dict[str, list[str]] = {}
    helpers: set[str] = set()
    if score is not None:
        changed, slope = score.outputs
        arguments = ["s", "b", "h", "q", "k"]
        parts["score"] = _function("score", score, changed, arguments, 0, helpers, short=short)
        if not _is_one(score, slope):
            parts["slope"] = _function("slope", score, slope, arguments, 0, helpers, short=short)
    if seen is not None:
        before = sum(captured_numbers(tensor(spec).shape) for _, spec in score.inputs[5:]) if score else 0
        parts["seen"] = _function("seen", seen, seen.outputs[0], ["b", "h", "q", "k"], before, helpers, short=short)
    own = sorted(helpers & {"quick_tanh", "whole_remainder"})
    imports = [f"from burn_kernels.attention.scores import {', '.join(own)}"] if own else []
    helpers -= set(own)
    lines = header("Functions of the scores of attention.", helpers, *imports)
    source = "\n".join([*lines, *[line for part in parts.values() for line in ("", "", *part)]]) + "\n"
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    return ScoreSource(f"scores_{digest}", source, frozenset(parts))


def _is_one(score: Graph, slope: int | None) -> bool:
    """Tells if scores are moved, and not changed."""
    node = next((node for node in score.nodes if slope in node.outputs), None)
    return node is not None and node.call.op is full and node.inputs == (Literal(1.0),)


def _function(
    name: str,
    graph: Graph,
    output: int | None,
    arguments: Sequence[str],
    before: int,
    helpers: set[str],
    *,
    short: bool,
) -> list[str]:
    """The lines of a function.  before: entries of `captured` that are another function's"""
    part = dead_code(Graph(graph.inputs, graph.nodes, [output]))
    writer = _Writer(part, short=short)
    captured = [tensor(spec) for _, spec in part.inputs[len(arguments) :]]
    (answer,) = walk(part, arguments, _Texts(writer, captured, before))
    helpers |= writer.helpers
    read = {i for node in part.nodes for i in node.inputs if isinstance(i, int)} | {output}
    if name == "score" and part.inputs[0][0] not in read:  # one number for all: as a tile
        answer = f"{answer} + tl.zeros_like(s)"
    indices = [f"    {each} = {each}.to(tl.int32)" for each in ("b", "h")]
    lines = [f"    {line}" for line in writer.lines[Place.EACH]]
    return [
        "@triton.jit",
        f"def {name}({', '.join([*arguments, 'captured'])}):",
        *indices,
        *lines,
        f"    return {answer}",
    ]


@final
class _Writer(Triton):
    """Writes expressions."""

    def __init__(self, graph: Graph, *, short: bool) -> None:
        super().__init__(PartNeeds(graph, (1,)))
        self._short: Final = short

    def call(self, form: str, operands: Sequence[str]) -> str:
        """The text of a function; the hyperbolic tangent of half types is right to 1e-7."""
        if self._short and "tanh_odd" in form:
            self.helpers.add("quick_tanh")
            return f"quick_tanh({operands[0]})"
        return super().call(form, operands)

    @classmethod
    def form(cls, name: str, kind: DType, rounded: DType | None) -> str:
        """The text of a function; indices have a remainder too."""
        if name == "remainder" and not kind.is_float and not kind.is_bool:
            return "whole_remainder({0}, {1})"
        return super().form(name, kind, rounded)

    def divided(self, expression: Expression, left: str, by: ast.expr) -> str:
        """A quotient; of half types what `/` gives, by a number its inverse; of whole numbers cut toward zero."""
        if not expression.kind.is_float:
            return f"({left} // {expression.write(by)})"
        if not self._short or expression.kind is not DType.F32:
            return super().divided(expression, left, by)
        right = expression.write(by)
        try:
            return f"({left} * {1.0 / float(right)!r})"
        except (ValueError, ZeroDivisionError):
            return f"({left} / {right})"


@final
class _Texts:
    """Writes operations as lines, and gives names.  before: entries of `captured` that are another function's"""

    def __init__(self, writer: _Writer, captured: Sequence[TensorSpec], before: int) -> None:
        self._writer: Final = writer
        self._captured: Final = captured
        begins = [before]
        for spec in captured:
            begins.append(begins[-1] + captured_numbers(spec.shape))
        self._begins: Final = begins

    def compute(self, node: Node, operands: Sequence[str | Literal | None]) -> str:
        """An element-wise operation."""
        call, dtype = node.call, tensor(node.call.result).dtype
        kept = computed_in(dtype)
        if call.op is full:
            (value,) = operands
            assert isinstance(value, Literal)
            return self._line(self._writer.literal(value.value, kept), kept)
        if call.op is cast:
            (x,) = operands
            assert isinstance(x, str)
            return self._line(f"({x} != 0)" if kept.is_bool else self._writer.typed(x, kept), kept)
        types = [computed_in(tensor(spec).dtype) for spec in call.specs if hasattr(spec, "shape")]
        kind = next((each for each in types if not each.is_bool), kept)

        def operand(name: str) -> str:
            value = operands[int(name[1:])]
            assert value is not None
            return self._writer.literal(value.value, kind) if isinstance(value, Literal) else value

        assert call.op.pointwise is not None
        line = lambda text: self._line(text, kind)  # noqa: E731
        expression = Expression(self._writer, operand, kind, None, line, {})
        text = expression.write(read_template(call.op.pointwise).tree)
        return self._line(text if kept.is_bool else self._writer.typed(f"({text})", kept), kept)

    def lookup(self, captured: int, index: Sequence[str | int]) -> str:
        """The element of a captured tensor."""
        begin, spec = self._begins[captured], self._captured[captured]
        place = "0"
        for axis, at in enumerate(index):
            place = str(at) if place == "0" else f"({place} * captured[{begin + 2 + axis}] + {at})"
        place = f"tl.minimum(tl.maximum({place}, 0), captured[{begin + 1}] - 1)"
        kept = computed_in(spec.dtype)
        text = f"tl.load(captured[{begin}] + {place})"
        return self._line(f"({text} != 0)" if kept.is_bool else self._writer.typed(text, kept), kept)

    def _line(self, text: str, dtype: DType) -> str:
        return self._writer.define(Value(dtype, True, False), Place.EACH, text)
