"""Quantised numbers: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and products of integers."""

from __future__ import annotations

from typing import Final

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import axis_of, dtype_of, reshaped
from burn_torch.onnx.operators.products import product
from burn_torch.onnx.operators.registry import operator
from burn_torch.onnx.operators.windows import Convolving, conv
from burn_torch.ops.quantization import spread
from burn_torch.tensor import Tensor

__all__ = [
    "conv_integer", "dequantize_linear", "dynamic_quantize_linear", "matmul_integer", "qlinear_conv", "qlinear_matmul",
    "quantize_dequantize_linear", "quantize_linear",
]  # fmt: skip

_QUANTISED: Final = (DType.U8, DType.I8, DType.U16, DType.I16, DType.I32)


def _spread(s: Tensor, x: Tensor, axis: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts to x: of all, or of each entry of an axis."""
    if s.num_elements() == 1:
        return reshaped(s, ())
    at = axis_of(axis, x.ndim)
    return reshaped(s, tuple(s.shape[0] if i == at else 1 for i in range(x.ndim)))


def _by_block(
    s: Tensor, zero: Tensor | None, x: Tensor, axis: int, block_size: int
) -> tuple[Tensor, Tensor | None, tuple[int, ...]]:
    """Scale, zero point and block sizes as the rows `quantize` and `dequantize` take them."""
    if s.num_elements() == 1 and not block_size:
        return reshaped(s, ()), None if zero is None else reshaped(zero, ()), (0,) * x.ndim
    at = axis_of(axis, x.ndim)
    if block_size:
        return s, zero, tuple(block_size if i == at else 1 for i in range(x.ndim))
    shape = tuple(s.shape[0] if i == at else 1 for i in range(x.ndim))
    shaped = None if zero is None else reshaped(zero, shape)
    return reshaped(s, shape), shaped, tuple(int(i == at) for i in range(x.ndim))


def _require_quantised(dtype: DType) -> None:
    if dtype not in _QUANTISED:
        raise OnnxError(
            "no quantised type of ours",
            given=dtype.name,
            expected=", ".join(t.name for t in _QUANTISED),
            mend="quantise to one of those",
        )


def _saturate(x: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """Rounded to even, moved by the zero point, held within the type."""
    _require_quantised(dtype)
    y = x.round().cast(DType.F64)
    if zero is not None:
        y = y + zero.cast(DType.F64)
    low, high = dtype.limits
    return ops.clamp(y, float(low), float(high)).cast(DType.I64).cast(dtype)


@operator("QuantizeLinear", 10)
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    """round(x / scale) + zero point, held within the type of the zero point."""
    dtype = DType.U8 if not output_dtype else dtype_of(output_dtype)
    dtype = dtype if y_zero_point is None else y_zero_point.dtype
    _require_quantised(dtype)
    scale, zero, block = _by_block(y_scale, y_zero_point, x, axis, block_size)
    if precision:
        x, scale = x.cast(dtype_of(precision)), scale.cast(dtype_of(precision))
    low, high = (int(limit) for limit in dtype.limits)
    y: Tensor = ops.quantize(x.float() if not x.dtype.is_float else x, scale, zero, block=block, low=low, high=high,
                             dtype=dtype)  # fmt: skip
    return y


@operator("DequantizeLinear", 10)
def dequantize_linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """(x - zero point) * scale."""
    scale, zero, block = _by_block(x_scale, x_zero_point, x, axis, block_size)
    dtype = dtype_of(output_dtype) if output_dtype else x_scale.dtype
    y: Tensor = ops.dequantize(x, scale, zero, block=block, dtype=dtype)
    return y


@operator("QuantizeDequantizeLinear", domain="burn_torch")
def quantize_dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """QuantizeLinear and DequantizeLinear in one, whose gradient goes straight through.

    The gradient passes where a number is rounded, and is 0 beyond the codes, as of fake_quantize.  The importer joins
    the two nodes; exports write two again.
    """
    codes = quantize_linear(x, scale, zero_point, axis=axis, block_size=block_size)
    y: Tensor = dequantize_linear(codes, scale, zero_point, axis=axis, block_size=block_size, output_dtype=output_dtype)
    if not x.device.is_autodiff() or y.dtype is not x.dtype:
        return y
    own, zero, block = _by_block(scale.detach(), zero_point, x, axis, block_size)
    ratio = x.detach() / spread(own.cast(x.dtype), x.shape, block)
    ratio = ratio if zero is None else ratio + spread(zero.cast(x.dtype), x.shape, block)
    low, high = zero_point.dtype.limits
    beyond = ratio.lower(low - 0.5).bool_or(ratio.greater(high + 0.5))
    return ops.straight_through(x.mask_fill(beyond, 0.0), y.detach())


@operator("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x as u8 with the scale and zero point that its own range asks for, 0 included; the scale of zeros is 1."""
    dims = tuple(range(x.ndim))
    high = ops.clamp_min(reshaped(ops.amax(x, dims=dims), ()), 0.0)
    low = ops.clamp_max(reshaped(ops.amin(x, dims=dims), ()), 0.0)
    scale = (high - low) / 255.0
    scale = scale.mask_fill(scale.equal(0.0), 1.0)
    zero = ops.clamp((-low / scale).round(), 0.0, 255.0).cast(DType.U8)
    y = ops.quantize(x, scale, zero, block=(0,) * x.ndim, low=0, high=255, dtype=DType.U8)
    return y, scale, zero


# -- products ------------------------------------------------------------------------------------------------
def _columns(s: Tensor, rows: bool) -> Tensor:
    """A scale or zero point of all, of each row, or of each column of a matrix, in a shape that broadcasts to it."""
    if s.num_elements() == 1:
        return reshaped(s, ())
    return reshaped(s, (s.shape[0], 1)) if rows and s.ndim == 1 else s


def _moved(x: Tensor, zero: Tensor | None, rows: bool) -> Tensor:
    """x less its zero point."""
    wide = x.cast(DType.I32)
    return wide if zero is None else wide - _columns(zero.cast(DType.I32), rows)


@operator("MatMulInteger", 10)
def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    """The product of two matrices of 8-bit integers, as i32."""
    return product(_moved(a, a_zero_point, True), _moved(b, b_zero_point, False))


@operator("QLinearMatMul", 10)
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    """The product of two quantised matrices, quantised again."""
    exact = product(_moved(a, a_zero_point, True), _moved(b, b_zero_point, False))
    wide = DType.F64 if a_scale.dtype is DType.F64 else DType.F32
    scale = (
        _columns(a_scale, True).cast(wide) * _columns(b_scale, False).cast(wide) / _columns(y_scale, True).cast(wide)
    )
    return _saturate(exact.cast(wide) * scale, _columns(y_zero_point, True), y_zero_point.dtype)


def _exact_conv(x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None, how: Convolving) -> Tensor:
    """A convolution of integers, computed in f64, where sums below 2^53 are exact."""
    left, right = x.cast(DType.F64), w.cast(DType.F64)
    if x_zero is not None:
        left = left - reshaped(x_zero, ()).cast(DType.F64)
    if w_zero is not None:
        right = right - _spread(w_zero.cast(DType.F64), w, 0)
    return conv(left, right, None, **vars(how))


@operator("ConvInteger", 10)
def conv_integer(
    x: Tensor, w: Tensor, x_zero_point: Tensor | None = None, w_zero_point: Tensor | None = None, *, how: Convolving
) -> Tensor:
    """A convolution of 8-bit integers, as i32."""
    return _exact_conv(x, x_zero_point, w, w_zero_point, how).cast(DType.I32)


@operator("QLinearConv", 10)
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    *,
    how: Convolving,
) -> Tensor:
    """A convolution of quantised numbers, quantised again."""
    exact = _exact_conv(x, x_zero_point, w, w_zero_point, how)
    if b is not None:
        exact = exact + _spread(b.cast(DType.F64), exact, 1)
    scale = _spread(w_scale.cast(DType.F64), exact, 1)
    scale = scale * reshaped(x_scale, ()).cast(DType.F64) / reshaped(y_scale, ()).cast(DType.F64)
    return _saturate(exact * scale, reshaped(y_zero_point, ()), y_zero_point.dtype)
