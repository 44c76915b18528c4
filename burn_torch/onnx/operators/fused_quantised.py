"""Operators of com.microsoft on quantised numbers: QLinearAdd and its kin, products that quantise, packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import Ints, axis_of, constant, malformed, reshaped
from burn_torch.onnx.operators.elementwise import leaky_relu
from burn_torch.onnx.operators.fused import embedded, layer_norm, microsoft, nchw, nhwc, seen_tokens
from burn_torch.onnx.operators.fused_attention import FILTER, attention_of
from burn_torch.onnx.operators.indexing import gather
from burn_torch.onnx.operators.products import product
from burn_torch.onnx.operators.quantised import (
    dequantize_linear,
    dynamic_quantize_linear,
    matmul_integer,
    qlinear_conv,
    quantize_linear,
)  # fmt: skip
from burn_torch.onnx.operators.recurrent import Recurrence, lstm_with
from burn_torch.onnx.operators.reduction import softmax
from burn_torch.onnx.operators.registry import Host, Outputs
from burn_torch.onnx.operators.shape import concat
from burn_torch.onnx.operators.windows import Convolving, Pooling, average_pool, global_average_pool, max_pool
from burn_torch.tensor import Tensor

__all__ = [
    "dynamic_quantize_lstm", "dynamic_quantize_matmul", "gather_block_quantized", "matmul_bnb4", "matmul_integer_16",
    "matmul_integer_to_float", "matmul_nbits", "ms_qlinear_conv", "nhwc_max_pool", "qattention",
    "qembed_layer_normalization", "qgemm", "qlinear_add", "qlinear_average_pool", "qlinear_concat",
    "qlinear_global_average_pool", "qlinear_leaky_relu", "qlinear_mul", "qlinear_reduce_mean", "qlinear_sigmoid",
    "qlinear_softmax", "qlinear_where",
]  # fmt: skip

for _op, _entry in (("QuantizeLinear", quantize_linear), ("DequantizeLinear", dequantize_linear)):
    microsoft(_op)(_entry.function)


# -- in floats, and quantised again -------------------------------------------------------------------------------
def _floats(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    y: Tensor = dequantize_linear(x, reshaped(scale, ()), None if zero is None else reshaped(zero, ()))
    return y


def _codes(x: Tensor, scale: Tensor, zero: Tensor | None, like: DType) -> Tensor:
    """Quantised again, with the type of the zero point, or of the inputs where there is none."""
    point = constant(0, x.device, like) if zero is None else reshaped(zero, ())
    y: Tensor = quantize_linear(x, reshaped(scale, ()).cast(x.dtype), point)
    return y


def _nearest(x: Tensor, scale: Tensor, zero: Tensor | None, like: DType) -> Tensor:
    """The same, with the zero point added before it is rounded: a tie goes to the even code, not the even number."""
    dtype = like if zero is None else zero.dtype
    wide = x / reshaped(scale, ()).cast(x.dtype)
    wide = wide if zero is None else wide + reshaped(zero, ()).cast(x.dtype)
    low, high = dtype.limits
    return ops.clamp(wide.round(), float(low), float(high)).cast(dtype)


def _of_one(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None,
) -> Tensor:
    return _codes(function(_floats(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@microsoft("QLinearAdd")
def qlinear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    c_scale: Tensor,
    c_zero_point: Tensor | None = None,
) -> Tensor:
    """The sum of two quantised tensors, quantised again."""
    total = _floats(a, a_scale, a_zero_point) + _floats(b, b_scale, b_zero_point)
    return _nearest(total, c_scale, c_zero_point, a.dtype)


@microsoft("QLinearMul")
def qlinear_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    c_scale: Tensor,
    c_zero_point: Tensor | None = None,
) -> Tensor:
    """The product of two quantised tensors, element by element, quantised again."""
    both = _floats(a, a_scale, a_zero_point) * _floats(b, b_scale, b_zero_point)
    return _nearest(both, c_scale, c_zero_point, a.dtype)


@microsoft("QLinearSigmoid")
def qlinear_sigmoid(
    x: Tensor, x_scale: Tensor, x_zero_point: Tensor | None, y_scale: Tensor, y_zero_point: Tensor | None = None
) -> Tensor:
    """sigmoid of quantised numbers, quantised again."""
    return _of_one(ops.sigmoid, x, x_scale, x_zero_point, y_scale, y_zero_point)


@microsoft("QLinearLeakyRelu")
def qlinear_leaky_relu(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Tensor:
    """leaky_relu of quantised numbers, quantised again."""
    return _of_one(lambda y: leaky_relu(y, alpha=alpha), x, x_scale, x_zero_point, y_scale, y_zero_point)


@microsoft("QLinearSoftmax")
def qlinear_softmax(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor,
    *,
    axis: int = -1,
    opset: int,
) -> Tensor:
    """softmax of quantised numbers, quantised again; before opset 13 over the axes from `axis` on."""

    def compute(y: Tensor) -> Tensor:
        if opset >= 13:
            return softmax(y, axis=axis)
        at = axis_of(axis, y.ndim)
        rows = int(np.prod(y.shape[:at], dtype=np.int64))
        flat = reshaped(y, (rows, int(np.prod(y.shape[at:], dtype=np.int64))))
        return reshaped(ops.softmax(flat, dim=1), y.shape)

    return _of_one(compute, x, x_scale, x_zero_point, y_scale, y_zero_point)


@microsoft("QLinearReduceMean")
def qlinear_reduce_mean(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axes: Ints,
    keepdims: int,
) -> Tensor:
    """The mean of quantised numbers over axes, quantised again."""
    dims = tuple(sorted({axis_of(axis, x.ndim) for axis in axes}))
    kept = [size for i, size in enumerate(x.shape) if i not in dims]

    def compute(y: Tensor) -> Tensor:
        mean: Tensor = ops.mean(y, dims=dims)
        return mean if keepdims else reshaped(mean, tuple(kept))

    return _of_one(compute, x, x_scale, x_zero_point, y_scale, y_zero_point)


@dataclass(frozen=True, kw_only=True)
class ChannelPooling(Pooling):
    """Attributes of pools whose channels may lie last."""

    count_include_pad: int = 0
    channels_last: int = 0


@microsoft("QLinearAveragePool")
def qlinear_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    how: ChannelPooling,
) -> Tensor:
    """The mean of each window of quantised numbers, quantised again."""
    settings = {name: value for name, value in vars(how).items() if name != "channels_last"}

    def compute(y: Tensor) -> Tensor:
        if how.channels_last:
            return nhwc(average_pool(nchw(y), **settings))
        return average_pool(y, **settings)

    return _nearest(compute(_floats(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


@microsoft("QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    *,
    channels_last: int = 0,
) -> Tensor:
    """The mean of each channel of quantised numbers, quantised again."""

    def compute(y: Tensor) -> Tensor:
        return nhwc(global_average_pool(nchw(y))) if channels_last else global_average_pool(y)

    return _of_one(compute, x, x_scale, x_zero_point, y_scale, y_zero_point)


@microsoft("QLinearConcat")
def qlinear_concat(y_scale: Tensor, y_zero_point: Tensor, *xs: Tensor, axis: int) -> Tensor:
    """Quantised tensors, each with a scale and a zero point, one after the other along an axis, quantised alike."""
    if len(xs) % 3:
        raise malformed("QLinearConcat: an input lacks a scale or a zero point", given=f"{len(xs)}", expected="3 each")
    parts = [_floats(*xs[i : i + 3]) for i in range(0, len(xs), 3)]
    return _codes(concat(*parts, axis=axis), y_scale, y_zero_point, xs[0].dtype)


@microsoft("QLinearWhere")
def qlinear_where(
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    z_scale: Tensor,
    z_zero_point: Tensor,
) -> Tensor:
    """x where the condition holds, else y, quantised alike."""
    yes = _codes(_floats(x, x_scale, x_zero_point), z_scale, z_zero_point, x.dtype)
    no = _codes(_floats(y, y_scale, y_zero_point), z_scale, z_zero_point, y.dtype)
    return no.mask_where(condition, yes)


@dataclass(frozen=True, kw_only=True)
class ChannelConvolving(Convolving):
    """Attributes of convolutions whose channels may lie last."""

    channels_last: int = 0


@microsoft("QLinearConv")
def ms_qlinear_conv(
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
    how: ChannelConvolving,
) -> Tensor:
    """A convolution of quantised numbers, whose channels may lie last, quantised again."""
    settings = {name: value for name, value in vars(how).items() if name != "channels_last"}
    rest = (x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b)
    if how.channels_last:
        return nhwc(qlinear_conv(nchw(x), *rest, **settings))
    return qlinear_conv(x, *rest, **settings)


@microsoft("NhwcMaxPool")
def nhwc_max_pool(x: Tensor, *, how: Pooling) -> Tensor:
    """The largest element of each window of images whose channels lie last."""
    return nhwc(max_pool(nchw(x), **vars(how)))


# -- products -----------------------------------------------------------------------------------------------------
@microsoft("MatMulInteger16")
def matmul_integer_16(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices of 16-bit integers, as i32."""
    return product(a.cast(DType.I32), b.cast(DType.I32))


@microsoft("MatMulIntegerToFloat")
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The product of two quantised matrices in floats."""
    exact: Tensor = matmul_integer(a, b, a_zero_point, b_zero_point).cast(a_scale.dtype)
    y = exact * (_of_columns(a_scale) * _of_columns(b_scale))
    return y if bias is None else y + bias


def _of_columns(scale: Tensor) -> Tensor:
    return reshaped(scale, ()) if scale.num_elements() == 1 else scale


@microsoft("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    a: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """The product of a, quantised by its own range, and a quantised matrix, in floats."""
    codes, scale, zero = dynamic_quantize_linear(a)
    y: Tensor = matmul_integer_to_float(codes, b, scale, b_scale, zero, b_zero_point, bias)
    return y


@microsoft("QGemm")
def qgemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero_point: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * a @ b + c of quantised matrices; c counts in products of their scales.  Floats without a scale of y."""
    left, right = (x.transpose() if turned else x for x, turned in ((a, transA), (b, transB)))
    exact: Tensor = matmul_integer(left, right, a_zero_point, b_zero_point)
    exact = exact if c is None else exact + c
    y = exact.cast(DType.F32) * (_of_columns(a_scale) * _of_columns(b_scale) * alpha)
    return y if y_scale is None else _codes(y, y_scale, y_zero_point, a.dtype)


# -- packed weights -------------------------------------------------------------------------------------------------
def _unpack(x: Tensor, bits: int, size: int) -> Tensor:
    """The codes of bytes along the last axis, `size` of them, the lowest bits first."""
    if bits == 8:
        return x.narrow(x.ndim - 1, 0, size)
    codes: Tensor = ops.unpack_codes(x, bits=bits, word_bits=8, size=size, dtype=DType.U8)
    return codes


@microsoft("MatMulNBits")
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Tensor:
    """The product with a matrix of N rows of K codes of few bits, a scale a block; computed in the type of a."""
    if bits not in (2, 4, 8) or weight_prepacked:
        raise malformed(
            "MatMulNBits: these weights are not supported",
            given=f"{bits} bits, weight_prepacked {weight_prepacked}",
            expected="2, 4 or 8 bits in the order of the file",
        )
    blocks = -(-K // block_size)
    codes = _unpack(reshaped(b, (N, blocks, b.num_elements() // max(N * blocks, 1))), bits, block_size)
    if zero_points is None:
        zero = constant([[[float(1 << (bits - 1))]]], a.device, a.dtype)
    elif zero_points.dtype.is_float:
        zero = reshaped(zero_points, (N, blocks, 1)).cast(a.dtype)
    else:
        packed = reshaped(zero_points, (N, zero_points.num_elements() // max(N, 1)))
        zero = reshaped(_unpack(packed, bits, blocks), (N, blocks, 1)).cast(a.dtype)
    scale = reshaped(scales, (N, blocks, 1)).cast(a.dtype)
    if g_idx is None:
        weight = reshaped((codes.cast(a.dtype) - zero) * scale, (N, blocks * block_size)).narrow(1, 0, K)
    else:  # the block of each column, in any order
        flat = reshaped(codes.cast(a.dtype), (N, blocks * block_size)).narrow(1, 0, K)
        own = [ops.expand(x, shape=(N, blocks, 1)) for x in (zero, scale)]
        points, factors = (ops.select(reshaped(x, (N, blocks)), g_idx.cast(DType.I64), dim=1) for x in own)
        weight = (flat - points) * factors
    y = product(a, weight.transpose())
    return y if bias is None else y + bias


_FOUR_BITS: Final = (
    (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25,
     -0.0, -0.0052083333, -0.6666666667, -1.0, -0.3333333333, -0.5, -0.1666666667, -0.25),
    (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)  # fmt: skip
"""The values of codes of FP4 and NF4.  Source: Dettmers et al. 2023, https://arxiv.org/abs/2305.14314, appendix E."""


@microsoft("MatMulBnb4")
def matmul_bnb4(
    a: Tensor,
    b: Tensor,
    absmax: Tensor,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Tensor:
    """The product with a matrix of FP4 or NF4 codes, two a byte, the first one in the high bits."""
    count = N * K
    halves = _unpack(reshaped(b, (b.num_elements(), 1)), 4, 2)
    codes = reshaped(ops.flip(halves, axes=(1,)), (2 * b.num_elements(),)).narrow(0, 0, count)
    values = ops.select(constant(_FOUR_BITS[quant_type], a.device, a.dtype), codes.cast(DType.I64), dim=0)
    block = constant(np.arange(count) // block_size, a.device, DType.I64)
    flat = values * ops.select(absmax.cast(a.dtype), block, dim=0)
    return product(a, reshaped(flat, (N, K)).transpose() if transB else reshaped(flat, (K, N)))


@microsoft("GatherBlockQuantized")
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Tensor:
    """Entries of a table of codes of few bits, with a scale a block along an axis, in floats."""
    per = 8 // bits
    codes = _unpack(data, bits, data.shape[-1] * per)
    at, along = axis_of(quantize_axis, data.ndim), axis_of(gather_axis, data.ndim)
    taken, scale = gather(codes, indices, axis=along), gather(scales, indices, axis=along)
    zero: Tensor | None = None
    if zero_points is not None:
        points = _unpack(zero_points, bits, zero_points.shape[-1] * per).narrow(data.ndim - 1, 0, scales.shape[-1])
        zero = gather(points, indices, axis=along)
    at = at if at < along else at + indices.ndim - 1
    own = _by_element(scale, taken, at, block_size)
    middle = constant(float(1 << (bits - 1)), data.device, scales.dtype)
    less = middle if zero is None else _by_element(zero.cast(scales.dtype), taken, at, block_size)
    return (taken.cast(scales.dtype) - less) * own


def _by_element(s: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A number of each block along an axis, for each element of it."""
    place = constant(np.arange(x.shape[axis]) // block, x.device, DType.I64)
    return ops.select(s, place, dim=axis)


# -- layers -------------------------------------------------------------------------------------------------------
@microsoft("QAttention")
def qattention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask_index: Tensor | None = None,
    x_zero_point: Tensor | None = None,
    weight_zero_point: Tensor | None = None,
    past: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Attention of a quantised sequence to itself, whose product with quantised weights is in floats."""
    products = matmul_integer_to_float(x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias)
    return attention_of(
        products, mask_index, past, None,
        heads=num_heads, sizes=None, scale=scale, filter_value=mask_filter_value, causal=unidirectional,
        rotary=do_rotary, outputs=outputs,
    )  # fmt: skip


@microsoft("QEmbedLayerNormalization")
def qembed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    word_scale: Tensor,
    position_scale: Tensor,
    segment_scale: Tensor | None,
    gamma_scale: Tensor,
    beta_scale: Tensor,
    word_zero_point: Tensor,
    position_zero_point: Tensor,
    segment_zero_point: Tensor | None,
    gamma_zero_point: Tensor,
    beta_zero_point: Tensor,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Outputs:
    """The sum of three quantised embeddings normalised, and how many tokens the mask shows."""
    third = None if segment is None or segment_scale is None else _floats(segment, segment_scale, segment_zero_point)
    total = embedded(
        input_ids,
        segment_ids,
        _floats(word, word_scale, word_zero_point),
        _floats(position, position_scale, position_zero_point),
        third,
        None,
    )
    scale, shift = _floats(gamma, gamma_scale, gamma_zero_point), _floats(beta, beta_scale, beta_zero_point)
    y = layer_norm(total, scale, shift, epsilon)[0]
    return y if outputs == 1 else (y, seen_tokens(input_ids, mask))


@microsoft("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    sequence_lens: Host | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    w_scale: Tensor,
    w_zero_point: Tensor,
    r_scale: Tensor,
    r_zero_point: Tensor,
    *,
    input_forget: int = 0,
    how: Recurrence,
    outputs: int = 1,
) -> Outputs:
    """LSTM with quantised weights, (directions, inputs, 4 * hidden); inputs and states are quantised by their range."""

    def part(s: Tensor, i: int) -> Tensor:
        return reshaped(s.narrow(0, i, 1), s.shape[1:])

    def times(weights: Tensor, scale: Tensor, zero: Tensor) -> Callable[[Tensor, int], Tensor]:
        return lambda x, i: dynamic_quantize_matmul(x, part(weights, i), part(scale, i), part(zero, i))

    products = times(w, w_scale, w_zero_point), times(r, r_scale, r_zero_point)
    states, hidden = (initial_h, initial_c), r.shape[1]
    return lstm_with(products, x, w, hidden, b, sequence_lens, states, p, input_forget, how, outputs)
