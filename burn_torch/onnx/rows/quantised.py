"""Quantised numbers: QuantizeLinear and DequantizeLinear where they say the same, small floats, words of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.core.small_floats import small_float_bounds, small_float_signs, small_float_values
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.onnx.exporting.writer import Wire, Writer
from burn_torch.onnx.rows.registry import row
from burn_torch.ops.op import Call

_LINEAR: Final = (DType.I8, DType.U8)


@row("straight_through")
def _(w: Writer, x: Wire, y: Wire) -> Wire:
    return w.node("Identity", y)


# -- scales --------------------------------------------------------------------------------------------------
def _axis(block: Shape, is_one: bool, opset: int) -> tuple[int, int] | None:
    """The axis along which scales change and the size of a block there, 0 for one of each index; None without."""
    if is_one:
        return 0, 0
    ones, others = ([i for i, per in enumerate(block) if (per == 1) is one] for one in (True, False))
    if len(ones) == 1 and not any(block[i] for i in others):
        return ones[0], 0
    if opset >= 21 and len(others) == 1 and block[others[0]] > 1:
        return others[0], block[others[0]]
    return None


def _is_linear(call: Call, used: Sequence[bool], opset: int) -> bool:
    """Asks whether QuantizeLinear or DequantizeLinear computes a call to the bit, of bounded numbers where codes are
    left out.
    """
    x, scale, zero, attrs = call.tensor(0), call.tensor(1), call.specs[2], call.attrs
    quantizes = call.op.name == "quantize"
    codes, number = (attrs["dtype"], x.dtype) if quantizes else (x.dtype, attrs["dtype"])
    alike = zero is None or (isinstance(zero, TensorSpec) and (zero.numel == 1) is (scale.numel == 1))
    place = _axis(attrs["block"], scale.numel == 1, opset)
    if codes not in _LINEAR or number is not DType.F32 or scale.dtype is not DType.F32 or not alike or place is None:
        return False
    bounded = quantizes and codes.limits != (attrs["low"], attrs["high"])
    return bool(x.ndim) and not (bounded and place[1])


def _linear(w: Writer, name: str, x: Wire, scale: Wire, zero: Wire | None, block: Shape, codes: DType) -> Wire:
    is_one = all(length == 1 for length in scale.shape)
    place = _axis(block, is_one, w.opset)
    assert place is not None, "_is_linear lets no other call come here"
    axis, size = place
    shape = () if is_one else scale.shape if size else (scale.shape[axis],)
    fixed = tuple(w.fixed(length, "scales") for length in shape)
    zeros = w.array(np.zeros(fixed, codes.numpy), codes) if zero is None else w.reshape(w.cast(zero, codes), shape)
    if size:
        return w.node(name, x, w.reshape(scale, shape), zeros, axis=axis, block_size=size)
    return w.node(name, x, w.reshape(scale, shape), zeros, axis=axis)


@row("quantize", when=_is_linear)
def _(
    w: Writer, x: Wire, scale: Wire, zero_point: Wire | None, *, block: Shape, low: int, high: int, dtype: DType
) -> Wire:
    if dtype.limits != (low, high):  # numbers beyond the codes that are taken are brought to the last of them
        for op, code in (("Min", high), ("Max", low)):
            least = w.number(float(code), DType.F32)
            least = least if zero_point is None else w.node("Sub", least, w.cast(zero_point, DType.F32))
            x = Wire(w.node(op, x, w.node("Mul", scale, least)), x.dtype, x.known)
    return _linear(w, "QuantizeLinear", x, scale, zero_point, block, dtype)


@row("dequantize", when=_is_linear)
def _(w: Writer, codes: Wire, scale: Wire, zero_point: Wire | None, *, block: Shape, dtype: DType) -> Wire:
    return _linear(w, "DequantizeLinear", codes, scale, zero_point, block, codes.dtype)


# -- small floats ----------------------------------------------------------------------------------------------
@row("decode_small_float")
def _(w: Writer, codes: Wire, *, format: str, dtype: DType) -> Wire:
    values = small_float_values(format)
    places = w.node("Mod", w.cast(codes, DType.I64), w.number(len(values), DType.I64))
    return w.cast(w.node("Gather", w.array(values.astype(np.float32), DType.F32), places, axis=0), dtype)


@row("encode_small_float")
def _(w: Writer, x: Wire, *, format: str) -> Wire:
    sign, not_a_number = small_float_signs(format)
    wide = w.cast(x, DType.F64)
    size = w.unsqueeze(Wire(w.node("Abs", wide), DType.F64, x.shape), [x.ndim])
    below = w.node("Less", size, w.array(small_float_bounds(format), DType.F64))
    reached = w.cast(Wire(w.node("Not", below), DType.BOOL, (*x.shape, len(small_float_bounds(format)))), DType.I64)
    codes = w.node("ReduceSum", reached, w.ints([x.ndim]), keepdims=0)
    zero = w.number(0.0, DType.F64)
    below_zero = w.node("Less", w.node("Div", w.number(1.0, DType.F64), wide), zero)  # of -0 too
    negative = w.node("Or", w.node("Less", wide, zero), below_zero)
    codes = w.node("Add", codes, w.node("Where", negative, w.number(sign, DType.I64), w.number(0, DType.I64)))
    codes = w.node("Where", w.node("IsNaN", wide), w.number(not_a_number, DType.I64), codes)
    return w.cast(Wire(codes, DType.I64), DType.U8)


# -- words ---------------------------------------------------------------------------------------------------
def _powers(w: Writer, bits: int, per: int) -> Wire:
    """The power of two that moves each code of a word to its place."""
    return w.array(np.array([1 << (bits * i) for i in range(per)], np.int64), DType.I64)


def _low_bits(w: Writer, x: Wire, bits: int) -> Wire:
    return Wire(w.node("Mod", w.cast(x, DType.I64), w.number(1 << bits, DType.I64)), DType.I64, x.shape)


@row("pack_codes")
def _(w: Writer, codes: Wire, *, bits: int, dtype: DType) -> Wire:
    per, last = 8 * dtype.itemsize // bits, w.fixed(codes.shape[-1], "codes that share words")
    missing = w.ints([0] * codes.ndim + [0] * (codes.ndim - 1) + [-last % per])
    whole = (*codes.shape[:-1], last + -last % per)
    padded = Wire(w.node("Pad", _low_bits(w, codes, bits), missing), DType.I64, whole)
    parts = w.node("Mul", w.reshape(padded, (*codes.shape[:-1], whole[-1] // per, per)), _powers(w, bits, per))
    return w.cast(Wire(w.node("ReduceSum", parts, w.ints([codes.ndim]), keepdims=0), DType.I64), dtype)


@row("unpack_codes")
def _(w: Writer, words: Wire, *, bits: int, word_bits: int, size: int, dtype: DType) -> Wire:
    per = word_bits // bits
    apart = w.node("Div", w.unsqueeze(_low_bits(w, words, word_bits), [words.ndim]), _powers(w, bits, per))
    parts = _low_bits(w, Wire(apart, DType.I64, (*words.shape, per)), bits)
    last = w.fixed(words.shape[-1], "words of codes") * per
    codes = w.cut(w.reshape(parts, (*words.shape[:-1], last)), words.ndim - 1, 0, size)
    if dtype is DType.I8:
        high = w.node("Less", codes, w.number(1 << (bits - 1), DType.I64))
        codes = w.node("Where", high, codes, w.node("Sub", codes, w.number(1 << bits, DType.I64)))
    return w.cast(Wire(codes, DType.I64), dtype)
