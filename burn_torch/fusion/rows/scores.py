"""Functions of scores computed on tensors (batch, heads, seq_q, seq_k), axes of 1 where a value does not vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, final

from burn_torch.core.errors import ShapeError
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.fusion.body.loops import tensor
from burn_torch.fusion.body.scalars import INDEX
from burn_torch.graph.ir import Literal, Node
from burn_torch.ops.creation import arange, full
from burn_torch.ops.indexing import select
from burn_torch.ops.op import Call
from burn_torch.ops.rules import broadcast_shapes
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.value import Primitive, Value

__all__ = ["Dense", "indices_of"]


def _broadcasts(call: Call) -> bool:
    """Tells if a row takes operands of several shapes."""
    wide = [spec.with_shape((2,)) if isinstance(spec, TensorSpec) else spec for spec in call.specs]
    first = next(n for n, spec in enumerate(wide) if isinstance(spec, TensorSpec))
    wide[first] = tensor(wide[first]).with_shape((2, 2))
    try:
        call.op.bind(wide, call.attrs)
    except ShapeError:
        return False
    return True


@final
class Dense:
    """Computes on tensors of four axes, those of 1 where a value is the same for all."""

    def __init__(self, like: Value, captured: Sequence[Value]) -> None:
        self._like: Final = like
        self._captured: Final = captured

    def compute(self, node: Node, operands: Sequence[Value | Literal | None]) -> Value:
        """An element-wise operation."""
        read: list[Primitive] = [x.value if isinstance(x, Literal) else x for x in operands]
        attrs = node.call.attrs
        if node.call.op is full:
            attrs = {**attrs, "shape": (1, 1, 1, 1), "place": self._like.spec.place}
        tensors = [x for x in read if isinstance(x, Value)]
        if tensors:
            shape = broadcast_shapes(*[x.shape for x in tensors])
            if any(x.shape != shape for x in tensors) and not _broadcasts(node.call):
                read = [expand(x, shape=shape) if isinstance(x, Value) else x for x in read]
            result: Value = node.call.op(*read, **attrs)
        else:
            result = node.call.op.run(self._like.backend, type(self._like), read, attrs)
        return result

    def lookup(self, captured: int, index: Sequence[Value | int]) -> Value:
        """The elements of a captured tensor."""
        x = self._captured[captured]
        spec = x.spec
        assert isinstance(spec, TensorSpec)
        flat: Value = reshape(x, shape=(spec.numel,))
        place: Value | int = 0
        for size, at in zip(spec.shape, index, strict=True):
            place = place * size + at
        if isinstance(place, int):
            return cast(Value, reshape(flat, shape=(1, 1, 1, 1)))
        picked = select(flat, reshape(place, shape=(place.spec.numel,)), dim=0)
        return cast(Value, reshape(picked, shape=place.shape))


def indices_of(like: Value, sizes: Shape) -> list[Value]:
    """The numbers of batch entries, heads, queries and keys, each along its own axis of four."""
    indices: list[Value] = []
    for axis, size in enumerate(sizes):
        attrs = {"length": size, "dtype": INDEX, "place": like.spec.place}
        line: Value = arange.run(like.backend, type(like), (0, 1), attrs)
        indices.append(reshape(line, shape=tuple(size if axis == at else 1 for at in range(4))))
    return indices
