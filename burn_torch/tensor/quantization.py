"""Quantised tensors: codes and scales with their scheme, how they are made of floats, and how they become floats again.

    scheme = QuantScheme(QuantValue.Q8S, QuantLevel.per_block((32,)), QuantStore.Native)
    q = x.quantize_dynamic(scheme)              # a QuantizedTensor: a value beside Tensor
    y = q.dequantize()                          # at most half a scale from x

A scheme is Burn's `QuantScheme`; scales are symmetric.  What is quantised is a constant of every derivative;
`fake_quantize` is for training.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from burn_torch import ops
from burn_torch.core.checking import checked
from burn_torch.core.data import Array
from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.quantization import (
    Calibration,
    QFloat,
    QuantParam,
    QuantPropagation,
    QuantScheme,
    QuantStore,
    block_counts,
)
from burn_torch.core.quantized_data import QuantizedData
from burn_torch.core.spec import Shape
from burn_torch.tensor.apply import apply, binary, require_tensor, unary
from burn_torch.tensor.device import Device
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "CalibrationRange",
    "QuantizationParameters",
    "QuantizedTensor",
    "compute_q_params",
    "compute_range",
    "fake_quantize",
]


@final
@dataclass(frozen=True)
class CalibrationRange:
    """The least and the largest number that codes should reach, of each block that shares a scale.

    Shapes: both as `QuantLevel.counts` says, (1,) where all numbers share one.
    """

    min: Tensor
    max: Tensor


@final
@dataclass(frozen=True)
class QuantizationParameters:
    """Scales, above 0: a number is code * scale, with two levels code * scale of its block * outer scale."""

    scales: Tensor
    outer_scales: Tensor | None = None


# -- ranges and scales -----------------------------------------------------------------------------------
@checked
def compute_range(
    scheme: QuantScheme, tensor: Tensor, calibration: Calibration = Calibration.MinMax
) -> CalibrationRange:
    """The range of each block of a tensor, by its least and largest number or by the mean of their sizes.

    An empty tensor, or block, has the range 0 to 0.
    """
    require_tensor(tensor, "tensor")
    _require_float(tensor, "compute_range")
    level, x = scheme.levels[0], tensor.detach()
    x = x.cast(DType.F32) if x.dtype in (DType.F16, DType.BF16) else x
    counts = level.counts(x.shape)
    if not x.num_elements():
        zero = Tensor.zeros(counts, x.device).cast(x.dtype)
        return CalibrationRange(zero, zero)
    block = level.sizes(x.shape)
    if calibration is Calibration.MinMax:
        parts, dims = _in_blocks(x, block, "edge")
        low, high = (unary(row, parts, dims) for row in (ops.amin, ops.amax))
        return CalibrationRange(low.reshape(counts), high.reshape(counts))
    parts, dims = _in_blocks(x.abs(), block, "constant")
    ones, _ = _in_blocks(x.ones_like(), block, "constant")
    mean = (_sum(parts, dims) / _sum(ones, dims)).reshape(counts)
    return CalibrationRange(-mean, mean)


def _sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return unary(ops.sum, x, dims)


def _in_blocks(x: Tensor, block: Shape, padding: str) -> tuple[Tensor, tuple[int, ...]]:
    """x with two axes for each of its own, blocks and places within; the axes of places."""
    if not x.ndim:
        return x.reshape((1,)), (0,)
    counts = block_counts(x.shape, block)
    sizes = tuple(per or size for size, per in zip(x.shape, block, strict=True))
    missing = tuple((0, count * per - size) for count, per, size in zip(counts, sizes, x.shape, strict=True))
    if any(after for _, after in missing):
        for axis, (_, after) in enumerate(missing):  # an edge may be repeated more often than the axis is long
            if after and padding == "edge":
                last = unary(ops.slice, x, _only(x.shape, axis))
                x = ops.cat(x, last.expand([after if i == axis else n for i, n in enumerate(x.shape)]), dim=axis)
            elif after:
                x = ops.pad(x, 0.0, padding=tuple(m if i == axis else (0, 0) for i, m in enumerate(missing)),
                            mode="constant")  # fmt: skip
    parts = x.reshape([part for pair in zip(counts, sizes, strict=True) for part in pair])
    return parts, tuple(range(1, 2 * len(counts), 2))


def _only(shape: Shape, axis: int) -> tuple[tuple[int, int, int], ...]:
    """The ranges of a slice that keeps the last index of an axis."""
    return tuple((size - 1 if i == axis else 0, size, 1) for i, size in enumerate(shape))


@checked
def compute_q_params(scheme: QuantScheme, range: CalibrationRange) -> QuantizationParameters:
    """The scales that spread the codes of a scheme over a range, evenly about 0.

        scale = 2 max(|min|, |max|) / (largest value - least value)

    The scale of a block of zeros is 0.1, as in Burn.  Of two levels, the outer scale is that of the largest finer scale
    below it.
    """
    low, high = scheme.value.range
    alpha = binary(ops.maximum, range.min.abs(), range.max.abs())
    scales = alpha * (2.0 / (high - low))
    scales = scales.mask_fill(scales.equal(0.0), 0.1)
    if len(scheme.levels) == 1:
        return QuantizationParameters(scales)
    groups = scheme.groups(scales.ndim)
    shape = (1,) if scheme.levels[1].is_whole else block_counts(scales.shape, groups)
    if not scales.num_elements():
        return QuantizationParameters(scales, Tensor.ones(shape, scales.device))
    parts, dims = _in_blocks(scales, groups, "edge")
    largest = unary(ops.amax, parts, dims).reshape(shape)
    outer = largest / (scheme.param.largest if scheme.param is QuantParam.UE4M3 else 1.0)
    return QuantizationParameters(scales / _spread(outer, scales.shape, groups), outer)


def _spread(scales: Tensor, shape: Shape, block: Shape) -> Tensor:
    """`spread`, of tensors."""
    from burn_torch.ops.quantization import spread  # not with the first tensor: its rows need many others

    return spread(scales, shape, block)


def _encode(scales: Tensor, param: QuantParam) -> Tensor:
    """Scales as they are stored, held within the range of their type."""
    wide = scales.cast(DType.F64 if scales.dtype is DType.F64 else DType.F32)
    held = wide.clamp(param.smallest, param.largest)
    return held.cast(param.dtype) if param.format is None else unary(ops.encode_small_float, held, param.format)


def _decode(stored: Tensor, param: QuantParam) -> Tensor:
    if param.format is None:
        return stored.cast(DType.F32)
    return unary(ops.decode_small_float, stored, param.format, DType.F32)


# -- quantised values ------------------------------------------------------------------------------------
@final
@dataclass(frozen=True, eq=False, repr=False)
class QuantizedTensor:
    """A tensor as codes and scales; `Tensor.quantize` and `Tensor.quantize_dynamic` make one.

    codes         words that hold the codes, see `QuantScheme.stored_shape`
    scales        one for each block, in the type of the scheme's finer level
    outer_scales  those of the outer level, if there are two
    shape         of the tensor; `float_dtype` is the element type that `dequantize` gives

    Methods and operators of Tensor dequantise first.  Their float results are quantised again where the scheme says
    `QuantPropagation.Propagate`, and floats otherwise (Inhibit).
    """

    codes: Tensor
    scales: Tensor
    outer_scales: Tensor | None
    scheme: QuantScheme
    shape: Shape
    float_dtype: DType

    @property
    def dtype(self) -> QFloat:
        """`DType.QFloat(scheme)`."""
        return QFloat(self.scheme)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def device(self) -> Device:
        """Returns where it lies."""
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """How many bytes codes and scales take."""
        return self.scheme.stored_bytes(self.shape)

    def effective_scales(self) -> Tensor:
        """The scale of each block in f32, all levels multiplied."""
        return _effective(self.scheme, self.scales, self.outer_scales)

    def int_codes(self) -> Tensor:
        """The codes, each alone: i8, or u8 for the bits of small floats, in the shape of the tensor."""
        scheme = self.scheme
        if not scheme.is_packed:
            return self.codes
        at = scheme.packed_axis(self.shape)
        size = self.shape[at] if self.shape else 1
        codes = unary(
            ops.unpack_codes,
            _last_axis(self.codes, at),
            scheme.value.size_bits,
            scheme.size_bits_stored(),
            size,
            scheme.value.code,
        )
        return _last_axis(codes, at).reshape(self.shape)

    def dequantize(self) -> Tensor:
        """code * scale, in the element type of the tensor that was quantised."""
        scheme, codes = self.scheme, self.int_codes()
        if scheme.value.is_float:
            codes = unary(ops.decode_small_float, codes, scheme.value.value, DType.F32)
        block = scheme.levels[0].sizes(self.shape)
        y: Tensor = apply(ops.dequantize, (codes, self.effective_scales(), None), block, self.float_dtype)
        return y

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> QuantizedTensor:
        """The same value with `function(tensor)` for codes and scales."""
        outer = None if self.outer_scales is None else function(self.outer_scales)
        return QuantizedTensor(
            function(self.codes), function(self.scales), outer, self.scheme, self.shape, self.float_dtype
        )

    def to_device(self, device: Device) -> QuantizedTensor:
        """The same value on another device."""
        return self.map_tensors(lambda tensor: tensor.to_device(device))

    def detach(self) -> QuantizedTensor:
        """The value itself: it is a constant of every derivative."""
        return self

    def into_data(self) -> QuantizedData:
        """A copy on the host."""
        outer = None if self.outer_scales is None else self.outer_scales.into_data()
        return QuantizedData(
            self.codes.into_data(), self.scales.into_data(), outer, self.scheme, self.shape, self.float_dtype
        )

    to_data = into_data

    @staticmethod
    def from_data(data: QuantizedData, device: Device) -> QuantizedTensor:
        """Codes and scales of the host on a device."""
        outer = None if data.outer_scales is None else Tensor.from_data(data.outer_scales, device)
        return QuantizedTensor(
            Tensor.from_data(data.codes, device),
            Tensor.from_data(data.scales, device),
            outer,
            data.scheme,
            data.shape,
            data.float_dtype,
        )

    def __burn_tensor__(self) -> Tensor:
        """Returns what functions of tensors take in its place."""
        return self.dequantize()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self.dequantize(), dtype)

    __array_priority__ = 1000
    __hash__ = object.__hash__  # elements are compared, as of Tensor

    def __bool__(self) -> bool:
        return bool(self.dequantize())

    def __float__(self) -> float:
        return float(self.dequantize())

    def __int__(self) -> int:
        return int(self.dequantize())

    def __len__(self) -> int:
        return len(self.dequantize())

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("_") else getattr(Tensor, name, None)
        if method is None or isinstance(method, property) or not callable(method):
            raise AttributeError(f"QuantizedTensor has no attribute {name}", name=name, obj=self)
        return lambda *args, **kwargs: self._propagate(method(self.dequantize(), *args, **kwargs))

    def _propagate(self, result: object) -> object:
        if self.scheme.propagation is QuantPropagation.Inhibit:
            return result
        if isinstance(result, tuple | list):
            return type(result)([self._propagate(part) for part in result])
        if isinstance(result, Tensor) and result.dtype in FLOAT:
            return quantize_dynamic(result, self.scheme)
        return result

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(name for name in dir(Tensor) if not name.startswith("_"))})

    def __repr__(self) -> str:
        scheme = self.scheme
        levels = ", ".join(map(repr, scheme.levels))
        return f"QuantizedTensor({self.shape} {scheme.value.value} {levels} {scheme.store!r}, of {self.float_dtype})"


def _operate(function: Callable[..., object], *, reflected: bool = False) -> Callable[..., object]:
    def operate(self: QuantizedTensor, *others: object) -> object:
        own = self.dequantize()
        others = tuple(x.dequantize() if isinstance(x, QuantizedTensor) else x for x in others)
        return self._propagate(function(*others, own) if reflected else function(own, *others))

    return operate


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(QuantizedTensor, f"__{_name}__", _operate(getattr(operator, _name)))
    setattr(QuantizedTensor, f"__r{_name}__", _operate(getattr(operator, _name), reflected=True))
for _name in ("neg", "pos", "abs", "eq", "ne", "lt", "le", "gt", "ge", "getitem"):
    setattr(QuantizedTensor, f"__{_name}__", _operate(getattr(operator, _name)))


def _effective(scheme: QuantScheme, scales: Tensor, outer: Tensor | None) -> Tensor:
    fine = _decode(scales, scheme.levels[0].param)
    if outer is None:
        return fine
    y: Tensor = fine * _spread(_decode(outer, scheme.levels[1].param), fine.shape, scheme.groups(fine.ndim))
    return y


def linear_by_codes(x: Tensor, weight: QuantizedTensor, bias: Tensor | QuantizedTensor | None) -> Tensor:
    """x @ weight + bias by the row `quantized_linear`, where codes lie alone or share words along the last axis."""
    scheme, (level, *others) = weight.scheme, weight.scheme.levels
    bias = bias.dequantize() if isinstance(bias, QuantizedTensor) else bias
    if len(weight.shape) != 2 or (scheme.is_packed and scheme.store.dim):
        y: Tensor = ops.linear(x, weight.dequantize(), bias)
        return y
    scales = weight.effective_scales() if others or level.param.format else weight.scales
    product: Tensor = ops.quantized_linear(
        x,
        weight.codes,
        scales,
        bias,
        value=scheme.value.value,
        per_word=scheme.num_quants,
        size=weight.shape[1],
        block=level.sizes(weight.shape),
    )
    return product


def _last_axis(x: Tensor, axis: int) -> Tensor:
    """x with an axis and the last one exchanged."""
    return x if not x.ndim or axis == x.ndim - 1 else x.swap_dims(axis, x.ndim - 1)


def _require_float(x: Tensor, what: str) -> None:
    if x.dtype not in FLOAT:
        raise told(
            DTypeError,
            f"{what}: only floats are quantised",
            given=str(x.spec),
            expected="f64, f32, f16 or bf16",
            mend="cast it first with .float()",
        )


@checked
def quantize(x: Tensor, scheme: QuantScheme, qparams: QuantizationParameters) -> QuantizedTensor:
    """See `Tensor.quantize`."""
    _require_float(x, "quantize")
    x, level = x.detach(), scheme.levels[0]
    block, counts = level.sizes(x.shape), level.counts(x.shape)
    scales, outer = qparams.scales.detach(), qparams.outer_scales
    if scales.shape != counts and not (scales.num_elements() == 1 and counts == (1,)):
        raise told(
            ShapeError,
            "quantize: the scales are not one for each block",
            given=f"scales {scales.shape}, for a tensor {x.shape} and {level!r}",
            expected=f"shape {counts}",
            mend="compute_q_params(scheme, compute_range(scheme, x)) has it; so does x.quantize_dynamic(scheme)",
        )
    if (outer is None) != (len(scheme.levels) == 1):
        raise told(
            ShapeError,
            "quantize: the levels of scales are not those of the scheme",
            given=f"{1 if outer is None else 2} of them",
            expected=f"{len(scheme.levels)}: {', '.join(map(repr, scheme.levels))}",
            mend="QuantizationParameters(scales, outer_scales) holds two",
        )
    stored = _encode(scales.reshape(counts), level.param)
    if outer is not None:
        outer = _encode(outer.detach(), scheme.levels[1].param)
    effective = _effective(scheme, stored, outer)
    low, high = scheme.value.range
    if scheme.value.is_float:
        wide = x.cast(DType.F64 if x.dtype is DType.F64 else DType.F32)
        ratio = wide / _spread(effective.cast(wide.dtype), x.shape, block)
        codes = unary(ops.encode_small_float, ratio.clamp(low, high), scheme.value.value)
    else:
        codes = apply(ops.quantize, (x, effective, None), block, int(low), int(high), DType.I8)
    if scheme.is_packed:
        at = scheme.packed_axis(x.shape)
        last = _last_axis(codes if codes.ndim else codes.reshape((1,)), at)
        codes = _last_axis(unary(ops.pack_codes, last, scheme.value.size_bits, scheme.stored), at)
    return QuantizedTensor(codes, stored, outer, scheme, tuple(x.shape), x.dtype)


@checked
def quantize_dynamic(x: Tensor, scheme: QuantScheme, calibration: Calibration = Calibration.MinMax) -> QuantizedTensor:
    """See `Tensor.quantize_dynamic`."""
    _require_float(x, "quantize_dynamic")
    return quantize(x, scheme, compute_q_params(scheme, compute_range(scheme, x, calibration)))


@checked
def fake_quantize(
    x: Tensor,
    scheme: QuantScheme,
    qparams: QuantizationParameters | None = None,
    calibration: Calibration = Calibration.MinMax,
) -> Tensor:
    """x as quantising and dequantising leaves it, for training: gradients flow straight through.

    The gradient passes where a number is rounded, and is 0 where it lies beyond the largest code.  Scales are constants
    of the derivative: those of `qparams`, or of the range of x.

    Shapes: x (*s) -> (*s).  Dtypes: any float, the same out.  PyTorch: torch.fake_quantize_per_tensor_affine.
    Source: Jacob et al. 2018, section 3; Bengio, Leonard, Courville 2013.
    """
    scheme = scheme.with_store(QuantStore.Native)  # what is read back at once is not packed
    q = quantize_dynamic(x, scheme, calibration) if qparams is None else quantize(x, scheme, qparams)
    low, high = scheme.value.range
    half = scheme.value.top_step / 2
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    scales = _spread(q.effective_scales().cast(wide), x.shape, scheme.levels[0].sizes(x.shape))
    ratio = x.detach().cast(wide) / scales
    outside = ratio.lower(low - half).bool_or(ratio.greater(high + half))
    y: Tensor = ops.straight_through(x.mask_fill(outside, 0.0), q.dequantize())
    return y
