"""The short way from a Tensor method to a backend: one lookup, one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER
from burn_torch.ops.op import Op

if TYPE_CHECKING:
    from burn_torch.tensor.tensor import Tensor

__all__ = ["binary", "unary"]


def unary(op: Op, x: Tensor, *attrs: Any) -> Tensor:
    """A row of one tensor and one output; attributes in the declared order, already normalised."""
    spec = x.spec
    key = (spec, *attrs) if attrs else spec
    call = op.calls.get(key) or op.remember(key, op.bind((spec,), dict(zip(op.signature.attrs, attrs, strict=True))))
    backend = x.backend
    return x.__class__(backend, backend.execute(call, (x.primitive,))[0], call.result)


def binary(op: Op, x: Tensor, y: Any) -> Tensor:
    """A row of two operands without attributes; y is a tensor of any stack that mixes, or a number."""
    spec = x.spec
    backend = x.backend
    kind = y.__class__
    if kind is x.__class__:
        if y.backend is not backend:
            return op(x, y)  # type: ignore[no-any-return]  # the general way lifts constants
        key = (spec, y.spec)
        call = op.calls.get(key) or op.remember(key, op.bind(key, {}))
        return kind(backend, backend.execute(call, (x.primitive, y.primitive))[0], call.result)
    if kind is float:
        key = (spec, FLOAT_NUMBER)
    elif kind is int:
        key = (spec, INT_NUMBER)
    else:
        return op(x, y)  # type: ignore[no-any-return]
    call = op.calls.get(key) or op.remember(key, op.bind(key, {}))
    return x.__class__(backend, backend.execute(call, (x.primitive, y))[0], call.result)
