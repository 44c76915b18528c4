"""Matrix products, normalisation and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.onnx.exporting.sizes import Length, Shape, Size, product
from burn_torch.onnx.exporting.writer import Number, Wire, Writer
from burn_torch.onnx.rows.registry import row
from burn_torch.onnx.rows.shaping import beyond
from burn_torch.ops.op import Call


@row("matmul")
def _(w: Writer, lhs: Wire, rhs: Wire) -> Wire:
    return w.node("MatMul", lhs, rhs)


@row("det")
def _(w: Writer, x: Wire) -> Wire:
    return w.node("Det", x)


@row("linear")
def _(w: Writer, x: Wire, weight: Wire, bias: Wire | None) -> Wire:
    if x.ndim == 2 and bias is not None and x.dtype.is_float:
        return w.node("Gemm", x, weight, bias)
    y = w.node("MatMul", x, weight)
    return y if bias is None else w.node("Add", y, bias)


@row("cross")
def _(w: Writer, lhs: Wire, rhs: Wire, *, dim: int) -> Wire:
    def turned(x: Wire, order: Sequence[int]) -> Wire:
        return w.node("Gather", x, w.ints(list(order)), axis=dim)

    first = w.node("Mul", turned(lhs, (1, 2, 0)), turned(rhs, (2, 0, 1)))
    return w.node("Sub", first, w.node("Mul", turned(lhs, (2, 0, 1)), turned(rhs, (1, 2, 0))))


# -- normalisation -------------------------------------------------------------------------------------------
def _affine(w: Writer, x: Wire, size: Length, gamma: Wire | None, beta: Wire | None) -> tuple[Wire, Wire]:
    """Scale and shift, 1 and 0 where they are absent."""
    n = w.fixed(size, "the size of a normalised axis")
    scale = w.array(np.ones(n), x.dtype) if gamma is None else gamma
    return scale, w.array(np.zeros(n), x.dtype) if beta is None else beta


def _not_empty(call: Call) -> bool:
    x = call.specs[0]
    return isinstance(x, TensorSpec) and x.numel > 0


def _in_f32(call: Call) -> bool:
    """Returns whether there is something to normalise, and f32 is wide enough: ONNX's normalisations are computed in
    it.
    """
    return _not_empty(call) and call.specs[0].dtype is not DType.F64  # type: ignore[union-attr]  # x is a tensor


@row("layer_norm", when=lambda call, used, opset: opset >= 17 and _in_f32(call))
def _(w: Writer, x: Wire, gamma: Wire | None, beta: Wire | None, eps: Number) -> tuple[Wire, ...]:
    scale, shift = _affine(w, x, x.shape[-1], gamma, beta)
    epsilon = w.fixed_number(eps, "epsilon")
    return w.node("LayerNormalization", x, scale, shift, outputs=3, axis=-1, epsilon=epsilon)


@row("rms_norm", when=lambda call, used, opset: opset >= 23 and not used[1] and _in_f32(call))
def _(w: Writer, x: Wire, gamma: Wire | None, eps: Number) -> tuple[Wire, None]:
    scale, _ = _affine(w, x, x.shape[-1], gamma, None)
    return w.node("RMSNormalization", x, scale, axis=-1, epsilon=w.fixed_number(eps, "epsilon")), None


@row("group_norm", when=lambda call, used, opset: opset >= 21 and not any(used[1:]) and _in_f32(call))
def _(
    w: Writer, x: Wire, gamma: Wire | None, beta: Wire | None, eps: Number, *, groups: int
) -> tuple[Wire, None, None]:
    scale, shift = _affine(w, x, x.shape[1], gamma, beta)
    epsilon = w.fixed_number(eps, "epsilon")
    return w.node("GroupNormalization", x, scale, shift, epsilon=epsilon, num_groups=groups), None, None


@row("batch_norm_inference", when=lambda call, used, opset: _not_empty(call))
def _(w: Writer, x: Wire, gamma: Wire | None, beta: Wire | None, mean: Wire, var: Wire, eps: Number) -> Wire:
    scale, shift = _affine(w, x, x.shape[1], gamma, beta)
    if w.opset < 15:  # one element type for all
        mean, var = w.cast(mean, x.dtype), w.cast(var, x.dtype)
    epsilon = w.fixed_number(eps, "epsilon")
    return w.node("BatchNormalization", x, scale, shift, mean, var, epsilon=epsilon)


# -- attention -------------------------------------------------------------------------------------------------
@row("attention", when=lambda call, used, opset: not used[1] and _not_empty(call) and call.specs[1].numel > 0)  # type: ignore[union-attr]  # key is a tensor
def _(
    w: Writer,
    query: Wire,
    key: Wire,
    value: Wire,
    mask: Wire | None,
    bias: Wire | None,
    scale: Number,
    softcap: Number | None,
    *,
    causal: bool,
    offset: Length,
) -> tuple[Wire, None]:
    batch, heads, seq_q, d_head = query.shape
    key_heads, seq_k = key.shape[1:3]
    dtype = query.dtype
    shared: Shape = (batch, key_heads, product((heads // key_heads, seq_q)))
    scores = w.node("MatMul", w.reshape(query, (*shared, d_head)), w.permute(key, (0, 1, 3, 2)))
    scores = _reshape(w, w.node("Mul", scores, w.number(scale, dtype)), (*shared, seq_k), (batch, heads, seq_q, seq_k))
    if softcap is not None:
        cap = w.number(softcap, dtype)
        scores = w.node("Mul", w.node("Tanh", w.node("Div", scores, cap)), cap)
    if bias is not None:
        scores = w.node("Add", scores, bias)
    hidden = w.number(-math.inf, dtype)
    if mask is not None:
        scores = w.node("Where", mask, hidden, scores)
    if causal:
        scores = w.node("Where", beyond(w, seq_q, seq_k, offset + 1), hidden, scores)
    wide = scores if dtype in (DType.F32, DType.F64) else w.cast(scores, DType.F32)
    weights = w.node("Softmax", wide, axis=-1)
    if bias is not None or mask is not None or (causal and (isinstance(offset, Size) or offset < 0)):
        # a query that sees nothing reads zeros
        blind = w.node("Equal", w.reduce("ReduceMax", wide, (3,)), w.number(-math.inf, wide.dtype))
        weights = w.node("Where", blind, w.number(0.0, wide.dtype), weights)
    weights = _reshape(w, w.cast(weights, dtype), (batch, heads, seq_q, seq_k), (*shared, seq_k))
    d_value = value.shape[3]
    context = w.node("MatMul", weights, value)
    return _reshape(w, context, (*shared, d_value), (batch, heads, seq_q, d_value)), None


def _reshape(w: Writer, x: Wire, before: Shape, after: Shape) -> Wire:
    return w.reshape(Wire(x, x.dtype, before), after)
