"""Quantised numbers: codes of floats by scales and back, small floats as bits, codes that share words."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, INT, DType, DTypeClass
from burn_torch.core.quantization import QuantValue, block_counts
from burn_torch.core.small_floats import (
    encode_small_floats,
    pack_words,
    small_float_bounds,
    small_float_signs,
    small_float_values,
)
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.comparison import is_nan
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.functions import round as nearest
from burn_torch.ops.op import Op, op
from burn_torch.ops.products import linear
from burn_torch.ops.rules import alike, same_dtype
from burn_torch.ops.samples import Array, fixed, integers, sample, uniform
from burn_torch.ops.selection import cast, clamp, mask_where
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.slicing import slice as cut
from burn_torch.ops.value import Value

_CODES = DTypeClass("of codes", DType.I8, DType.U8, DType.I16, DType.U16, DType.I32)
_WORDS = DTypeClass("of words", DType.U8, DType.U32)


V = TypeVar("V", bound=Value)


# -- scales ------------------------------------------------------------------------------------------
def spread(scale: V, shape: Shape, block: Shape) -> V:
    """Scales of blocks in a shape that broadcasts to a tensor of `shape`; size 0 of a block is the whole axis."""
    if scale.spec.numel == 1:
        return reshape(scale, shape=())
    counts = block_counts(shape, block)
    if all(per in (0, 1) for per in block):
        return scale
    apart = tuple(part for count in counts for part in (count, 1))
    wide = tuple(part for count, per in zip(counts, block, strict=True) for part in (count, per or 1))
    whole = tuple(count * (per or 1) for count, per in zip(counts, block, strict=True))
    y = reshape(expand(reshape(scale, shape=apart), shape=wide), shape=whole)
    held = tuple(min(a, b) for a, b in zip(whole, shape, strict=True))
    return y if held == whole else cut(y, ranges=tuple((0, size, 1) for size in held))


def _require_scales(x: TensorSpec, block: Shape, *scales: TensorSpec | None) -> None:
    if len(block) != x.ndim or any(size < 0 for size in block):
        raise shape_fault(
            "the block does not fit the tensor",
            expected=f"a size for each of {x.ndim} axes; 0 is the whole axis",
            mend="QuantLevel.sizes(shape) gives it",
        )
    counts = block_counts(x.shape, block)
    for scale in scales:
        if scale is not None and scale.numel != 1 and scale.shape != counts:
            raise shape_fault(
                "scales or zero points are not one for each block",
                expected=f"shape {counts}, or one element; here {scale.shape}",
                mend="QuantLevel.counts(shape) gives their shape",
            )


def _wide(*types: DType) -> DType:
    return DType.F64 if DType.F64 in types or DType.I32 in types else DType.F32


def _per_block(low: int, high: int) -> list[object]:
    return [
        sample(uniform(-3, 3, (3, 5)), fixed([0.3]), None, block=(0, 0), low=low, high=high, dtype=DType.I8),
        sample(uniform(-3, 3, (3, 5)), uniform(0.1, 1, (2, 3)), integers(-3, 3, (2, 3)), block=(2, 2), low=low,
               high=high, dtype=DType.I8),
        sample(uniform(-3, 3, (2, 0)), uniform(0.1, 1, (2, 1)), None, block=(1, 0), low=low, high=high,
               dtype=DType.I8),
    ]  # fmt: skip


@op(nondifferentiable=True, samples=_per_block(-7, 7), source="Jacob et al. 2018, equation 1")
def quantize(
    x: TensorSpec,
    scale: TensorSpec,
    zero_point: TensorSpec | None,
    *,
    block: tuple[int, ...],
    low: int,
    high: int,
    dtype: DType,
) -> TensorSpec:
    """round(x / scale) + zero_point, held within low and high; halves go to the even one, NaN to the zero point.

    Shapes: x (*s); scale, zero_point one element, or one for each block -> (*s).
    Dtypes: x, scale floats; zero_point integers -> `dtype`.  The quotient is computed in f32, in f64 if one is f64.
    """
    x.require(FLOAT)
    scale.require(FLOAT)
    _require_scales(x, block, scale, zero_point)
    if dtype not in _CODES:
        raise dtype_fault(
            f"codes have no type {dtype}", expected=f"one of {_names(_CODES)}", mend="take i8, or u8 with a zero point"
        )
    return x.with_dtype(dtype)


def _names(types: DTypeClass) -> str:
    return ", ".join(sorted(dtype.name for dtype in types.members))


@quantize.decomposes
def _(x, scale, zero_point, *, block, low, high, dtype):
    wide = _wide(x.dtype, scale.dtype, dtype)
    y = nearest(cast(x, dtype=wide) / spread(cast(scale, dtype=wide), x.shape, block))
    y = mask_where(y, is_nan(y), 0.0)
    if zero_point is not None:
        y = y + spread(cast(zero_point, dtype=wide), x.shape, block)
    y = clamp(y, float(low), float(high))
    return cast(cast(y, dtype=DType.I64) if dtype is DType.U16 else y, dtype=dtype)


@op(
    samples=[
        sample(integers(-7, 7, (3, 5)), fixed([0.3]), None, block=(0, 0), dtype=DType.F32),
        sample(integers(-7, 7, (3, 5)), uniform(0.1, 1, (2, 3)), integers(-3, 3, (2, 3)), block=(2, 2),
               dtype=DType.F64),
        sample(integers(-7, 7, (2, 0)), uniform(0.1, 1, (2, 1)), None, block=(1, 0), dtype=DType.F32),
    ],
    source="Jacob et al. 2018, equation 1",
)  # fmt: skip
def dequantize(
    codes: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None, *, block: tuple[int, ...], dtype: DType
) -> TensorSpec:
    """(codes - zero_point) * scale.

    Shapes: codes (*s); scale, zero_point one element, or one for each block -> (*s).
    Dtypes: codes integers or floats, scale floats -> `dtype`.  Computed in f32, in f64 if one of them is f64 or
    i32, and rounded once.  The gradient of a scale is the sum over its block; codes have none.
    """
    codes.require(_CODES | INT | FLOAT)
    scale.require(FLOAT)
    _require_scales(codes, block, scale, zero_point)
    if dtype not in FLOAT:
        raise dtype_fault(f"numbers have no type {dtype}", expected=_names(FLOAT), mend="take f32")
    return codes.with_dtype(dtype)


@dequantize.decomposes
def _(codes, scale, zero_point, *, block, dtype):
    wide = _wide(codes.dtype, scale.dtype, dtype)
    y = cast(codes, dtype=wide)
    if zero_point is not None:
        y = y - spread(cast(zero_point, dtype=wide), codes.shape, block)
    return cast(y * spread(cast(scale, dtype=wide), codes.shape, block), dtype=dtype)


@op(
    torch=lambda x, y: y.clone(),
    numpy=lambda x, y: y.copy(),
    pointwise="{1}",
    cost="cheap",
    samples=[sample(uniform(-3, 3), uniform(-3, 3)), sample(uniform(-3, 3, (2, 0)), uniform(-3, 3, (2, 0)))],
    source="Bengio, Leonard, Courville 2013, section 4",
)
def straight_through(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    """y, whose gradient goes to x as if x itself stood there: for rounding, which has no slope of its own.

    Shapes: x, y (*s) -> (*s).  Dtypes: float, both the same.
    """
    return alike(x, y)


@straight_through.gradient
def _(g, z, x, y):
    return g, None


# -- small floats --------------------------------------------------------------------------------------
_FORMATS = ("E5M2", "E4M3", "E2M1", "UE8M0")


def _torch_encode(x: torch.Tensor, *, format: str) -> torch.Tensor:
    sign, not_a_number = small_float_signs(format)
    wide = x.double().contiguous()
    bounds = torch.from_numpy(small_float_bounds(format)).to(x.device)
    codes = torch.searchsorted(bounds, wide.abs(), right=True) + sign * wide.signbit()
    return codes.masked_fill_(wide.isnan(), not_a_number).to(torch.uint8)


def _require_format(format: str) -> None:
    if format not in _FORMATS:
        raise dtype_fault(f"there is no small float {format}", expected=", ".join(_FORMATS), mend="take E4M3")


@op(
    torch=_torch_encode,
    numpy=encode_small_floats,
    nondifferentiable=True,
    samples=[
        sample(uniform(-500, 500, (3, 5)), format="E4M3"),
        sample(fixed([-0.0, 0.25, 2.5, np.inf]), format="E2M1"),
        sample(uniform(-9, 9, (2, 0)), format="E5M2"),
    ],
    source="Micikevicius et al. 2022; OCP Microscaling 1.0",
)
def encode_small_float(x: TensorSpec, *, format: str) -> TensorSpec:
    """The codes of the nearest numbers of a format, "E5M2", "E4M3" or "E2M1"; ties go to even codes.

    "UE8M0" has the powers of two from 2^-127 on, and takes the next one that is not less; signs are lost.
    What lies beyond the largest number becomes that; NaN is NaN, and 0 in E2M1, which has none.
    Shapes: x (*s) -> (*s).  Dtypes: float in, u8 out.
    """
    _require_format(format)
    return x.require(FLOAT).with_dtype(DType.U8)


_NUMPY_FLOATS = {DType.F64: np.float64, DType.F32: np.float32, DType.F16: np.float16}
_TORCH_FLOATS = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
}


def _numpy_decode(codes: Array, *, format: str, dtype: DType) -> Array:
    values = small_float_values(format)
    return np.asarray(values[codes.astype(np.int64) & (len(values) - 1)].astype(_NUMPY_FLOATS[dtype]))


def _torch_decode(codes: torch.Tensor, *, format: str, dtype: DType) -> torch.Tensor:
    values = torch.from_numpy(small_float_values(format)).to(codes.device, _TORCH_FLOATS[dtype])
    return values[codes.long() & (len(values) - 1)]


@op(
    torch=_torch_decode,
    numpy=_numpy_decode,
    nondifferentiable=True,
    samples=[
        sample(integers(0, 127, (3, 5)), format="E4M3", dtype=DType.F32),
        sample(integers(0, 16, (4,)), format="E2M1", dtype=DType.F64),
        sample(integers(0, 16, (2, 0)), format="E5M2", dtype=DType.F32),
    ],
    source="Micikevicius et al. 2022; OCP Microscaling 1.0",
)
def decode_small_float(codes: TensorSpec, *, format: str, dtype: DType) -> TensorSpec:
    """The numbers of codes of a format, "E5M2", "E4M3", "E2M1" or "UE8M0"; the low 8 bits count, of E2M1 4.

    Shapes: codes (*s) -> (*s).  Dtypes: integers in, `dtype` out, a float.
    """
    _require_format(format)
    codes.require(INT)
    if dtype not in FLOAT:
        raise dtype_fault(f"numbers have no type {dtype}", expected=_names(FLOAT), mend="take f32")
    return codes.with_dtype(dtype)


# -- words -----------------------------------------------------------------------------------------------
def _torch_pack(codes: torch.Tensor, *, bits: int, dtype: DType) -> torch.Tensor:
    per = 8 * dtype.itemsize // bits
    last = codes.shape[-1]
    parts = torch.nn.functional.pad(codes.long() & ((1 << bits) - 1), (0, -last % per))
    parts = parts.reshape(*codes.shape[:-1], -(-last // per), per)
    words = (parts << (bits * torch.arange(per, device=codes.device))).sum(-1)
    if dtype is DType.U8:
        return words.to(torch.uint8)
    return words.to(torch.int32).view(torch.uint32)  # torch has no shifts of u32; the low 32 bits are the same


@op(
    torch=_torch_pack,
    numpy=lambda codes, *, bits, dtype: pack_words(codes, bits, dtype.numpy),
    nondifferentiable=True,
    samples=[
        sample(integers(-8, 8, (3, 11)), bits=4, dtype=DType.U32),
        sample(integers(-2, 2, (2, 5)), bits=2, dtype=DType.U8),
        sample(integers(-8, 8, (2, 0)), bits=8, dtype=DType.U32),
    ],
)
def pack_codes(codes: TensorSpec, *, bits: int, dtype: DType) -> TensorSpec:
    """Codes of a few bits, side by side in words along the last axis: the first in the lowest bits, zeros at the end.

    Shapes: codes (*s, n) -> (*s, ceil(n * bits / bits of a word)).  Dtypes: integers in, `dtype` out, u8 or u32.
    """
    codes.require(INT)
    return codes.with_shape((*codes.shape[:-1], -(-_last(codes) // _per_word(bits, dtype)))).with_dtype(dtype)


def _last(x: TensorSpec) -> int:
    if not x.ndim:
        raise shape_fault("codes without axes share no words", expected="an axis or more", mend="reshape to (1,)")
    return x.shape[-1]


def _per_word(bits: int, dtype: DType) -> int:
    if bits not in (2, 4, 8) or dtype not in _WORDS:
        raise dtype_fault(
            f"words of {dtype} hold no codes of {bits} bits",
            expected=f"2, 4 or 8 bits in words of {_names(_WORDS)}",
            mend="take u32",
        )
    return 8 * dtype.itemsize // bits


def _numpy_unpack(words: Array, *, bits: int, word_bits: int, size: int, dtype: DType) -> Array:
    shifts = np.arange(0, word_bits, bits).astype(words.dtype)
    codes = (words[..., None] >> shifts).astype(np.uint8) << (8 - bits)
    codes = codes.reshape(*words.shape[:-1], words.shape[-1] * len(shifts))[..., :size]
    return np.asarray(codes.view(dtype.numpy) >> (8 - bits))


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _torch_unpack(words: torch.Tensor, *, bits: int, word_bits: int, size: int, dtype: DType) -> torch.Tensor:
    signed = _SIGNED.get(words.dtype)
    if signed is not None:  # torch has no shifts of these
        words = words.contiguous().view(signed)
    shifts = torch.arange(0, word_bits, bits, device=words.device, dtype=words.dtype)
    codes = (words[..., None] >> shifts).to(torch.uint8) << (8 - bits)
    codes = codes.reshape(*words.shape[:-1], words.shape[-1] * len(shifts))[..., :size]
    return codes.contiguous().view(torch.int8 if dtype is DType.I8 else torch.uint8) >> (8 - bits)


@op(
    torch=_torch_unpack,
    numpy=_numpy_unpack,
    nondifferentiable=True,
    samples=[
        sample(integers(0, 1 << 32, (3, 2)), bits=4, word_bits=32, size=11, dtype=DType.I8),
        sample(integers(0, 256, (2, 2)), bits=2, word_bits=8, size=7, dtype=DType.U8),
        sample(integers(0, 256, (2, 0)), bits=4, word_bits=8, size=0, dtype=DType.I8),
    ],
)
def unpack_codes(words: TensorSpec, *, bits: int, word_bits: int, size: int, dtype: DType) -> TensorSpec:
    """The `size` codes of a few bits along the last axis that words of `word_bits` bits hold; see `pack_codes`.

    Shapes: words (*s, n) -> (*s, size).  Dtypes: integers in, of which the low bits count; `dtype` out: i8 takes the
    highest bit of a code for the sign, u8 does not.
    """
    words.require(INT | _WORDS)
    per = _per_word(bits, DType.U32 if word_bits == 32 else DType.U8)
    if word_bits > 8 * words.dtype.itemsize or word_bits not in (8, 32):
        raise dtype_fault(f"{words.dtype} holds no words of {word_bits} bits", expected="8 or 32", mend="take u32")
    if -(-size // per) != _last(words):
        raise shape_fault(
            f"{_last(words)} words do not hold {size} codes",
            expected=f"{-(-size // per)} words of {per} codes",
            mend="pass the number of codes that were packed",
        )
    if dtype not in (DType.I8, DType.U8):
        raise dtype_fault(f"codes have no type {dtype}", expected="i8 or u8", mend="take i8 for signed codes")
    return words.with_shape((*words.shape[:-1], size)).with_dtype(dtype)


def _of_many(row: Op) -> None:
    """Many samples are one axis more in front, which rows of single codes and of the last axis take as it is."""
    row.batched(lambda n, many, x, **attrs: row(x, **attrs))


for _row in (encode_small_float, decode_small_float, pack_codes, unpack_codes):
    _of_many(_row)


# -- products ----------------------------------------------------------------------------------------------
_VALUES = tuple(value.value for value in QuantValue)


def whole_codes(codes: V, value: str, per_word: int, size: int) -> V:
    """Codes of a value, each alone: `size` along the last axis, `per_word` of them in each word."""
    kind = QuantValue(value)
    if per_word == 1:
        return codes
    return unpack_codes(codes, bits=kind.size_bits, word_bits=kind.size_bits * per_word, size=size, dtype=kind.code)


@op(
    precision="low",
    statistics=(2,),
    samples=[
        sample(uniform(-1, 1, (3, 4)), integers(-7, 8, (4, 5)), uniform(0.1, 1, (2, 5)), uniform(-1, 1, (5,)),
               value="Q8S", per_word=1, size=5, block=(2, 1)),
        sample(uniform(-1, 1, (2, 3, 4)), integers(0, 256, (4, 3)), uniform(0.1, 1, (4, 2)), None,
               value="Q4S", per_word=2, size=5, block=(1, 3)),
        sample(uniform(-1, 1, (0, 4)), integers(0, 16, (4, 5)), fixed([0.25]), None,
               value="E2M1", per_word=1, size=5, block=(0, 0)),
    ],
)  # fmt: skip
def quantized_linear(
    x: TensorSpec,
    codes: TensorSpec,
    scale: TensorSpec,
    bias: TensorSpec | None,
    *,
    value: str,
    per_word: int,
    size: int,
    block: tuple[int, ...],
) -> TensorSpec:
    """x @ weight + bias of a weight that lies as codes of a `QuantValue` and scales of its blocks.

        weight[k, n] = code[k, n] * scale of the block of (k, n)

    `per_word` codes share a word along the last axis; `size` is d_out.
    Shapes: x (*batch, d_in), codes (d_in, ceil(d_out / per_word)), scale one element or one for each block of
    (d_in, d_out), bias (d_out,) -> (*batch, d_out).
    Dtypes: x, bias a float, both the same; codes integers; scale a float -> that of x.
    """
    x.require(FLOAT)
    codes.require(INT | _WORDS)
    scale.require(FLOAT)
    same_dtype(x, bias)
    if value not in _VALUES or per_word not in (1, 2, 4, 8, 16):
        raise dtype_fault(
            f"there are no {per_word} codes of {value} in a word",
            expected=f"one of {', '.join(_VALUES)}, and 1, 2, 4, 8 or 16 in a word",
            mend="functional.linear(x, weight.quantize_dynamic(scheme)) passes what the scheme says",
        )
    if x.ndim < 1 or codes.ndim != 2 or x.shape[-1] != codes.shape[0] or codes.shape[1] != -(-size // per_word):
        raise shape_fault(
            "the input does not fit the codes",
            expected=f"x (..., d_in) and codes (d_in, {-(-size // per_word)}) with one d_in",
            mend="quantise the weight as (d_in, d_out), its codes packed along the last axis",
        )
    _require_scales(x.with_shape((codes.shape[0], size)), block, scale)
    if bias is not None and bias.shape != (size,):
        raise shape_fault(
            "the bias does not fit the weight",
            expected=f"bias {(size,)}",
            mend="give one number for each output feature",
        )
    return x.with_shape((*x.shape[:-1], size))


@quantized_linear.decomposes
def _(x, codes, scale, bias, *, value, per_word, size, block):
    whole = whole_codes(codes, value, per_word, size)
    if QuantValue(value).is_float:
        whole = decode_small_float(whole, format=value, dtype=DType.F32)
    return linear(x, dequantize(whole, scale, None, block=block, dtype=x.dtype), bias)
