"""QuantizedData: codes and scales on the host, and the bytes that Burn's files have for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import ArrayLike

from burn_torch.core.data import Array, TensorData, bf16_from_f32
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.quantization import QFloat, QuantParam, QuantScheme
from burn_torch.core.small_floats import encode_small_floats, pack_words
from burn_torch.core.spec import Shape

__all__ = ["QuantizedData"]


@final
@dataclass(frozen=True, eq=False)
class QuantizedData:
    """A quantised tensor on the host; fields as in `QuantizedTensor`, which `QuantizedTensor.from_data` makes of it."""

    codes: TensorData
    scales: TensorData
    outer_scales: TensorData | None
    scheme: QuantScheme
    shape: Shape
    float_dtype: DType = DType.F32

    @property
    def dtype(self) -> QFloat:
        """`DType.QFloat(scheme)`."""
        return QFloat(self.scheme)

    @staticmethod
    def of(codes: ArrayLike, shape: Sequence[int], scheme: QuantScheme, *scales: ArrayLike) -> QuantizedData:
        """From codes in row-major order, each alone, and the scales of each level; see `TensorData.quantized`."""
        shape = tuple(shape)
        flat = np.asarray(codes, np.int64).reshape(-1)
        if flat.size != math.prod(shape):
            raise _misfit(f"{flat.size} codes for {shape}", f"{math.prod(shape)} codes")
        if len(scales) != len(scheme.levels):
            raise _misfit(f"{len(scales)} levels of scales", f"{len(scheme.levels)}, as the scheme has")
        words = flat.reshape(shape).astype(np.uint8).view(scheme.value.code.numpy)
        if scheme.is_packed:
            at = scheme.packed_axis(shape)
            words = pack_words(np.atleast_1d(words).swapaxes(at, -1), scheme.value.size_bits, scheme.stored.numpy)
            words = np.ascontiguousarray(words.swapaxes(at, -1))
        counts = scheme.levels[0].counts(shape)
        levels = [np.asarray(level, np.float32).reshape(-1) for level in scales]
        if levels[0].size != math.prod(counts):
            raise _misfit(f"{levels[0].size} scales", f"{math.prod(counts)}, of shape {counts}")
        stored = [_encode(level, of.param) for level, of in zip(levels, scheme.levels, strict=True)]
        finer = TensorData(stored[0].array.reshape(counts), stored[0].dtype)
        return QuantizedData(
            TensorData(words, scheme.stored), finer, _shape_outer(stored[1:], scheme, shape), scheme, shape
        )

    # -- bytes, as Burn writes them -----------------------------------------------------------------------
    def to_bytes(self) -> bytes:
        """The words in row-major order, zeros up to a multiple of four bytes, then the scales, the finer first."""
        words = self.codes.to_bytes()
        parts = [words, bytes(-len(words) % _ALIGNMENT), self.scales.to_bytes()]
        return b"".join(parts if self.outer_scales is None else [*parts, self.outer_scales.to_bytes()])

    @staticmethod
    def from_bytes(data: bytes, shape: Sequence[int], scheme: QuantScheme) -> QuantizedData:
        """The value that `to_bytes` wrote.  Raises: ShapeError where the bytes are not as many as the shape needs."""
        shape = tuple(shape)
        first, *others = scheme.levels
        stored, counts = scheme.stored_shape(shape), first.counts(shape)
        words = math.prod(stored) * scheme.stored.itemsize
        start = words + -words % _ALIGNMENT
        end = start + math.prod(counts) * first.param.dtype.itemsize
        outer = others[0].param.dtype if others else None
        beyond = scheme.outer_counts(shape) if others else (0,)
        if len(data) != end + math.prod(beyond) * (0 if outer is None else outer.itemsize):
            raise _misfit(
                f"{len(data)} bytes for {shape} of {scheme!r}", f"{scheme.stored_bytes(shape)} bytes, and zeros between"
            )
        return QuantizedData(
            TensorData.from_bytes(data[:words], stored, scheme.stored),
            TensorData.from_bytes(data[start:end], counts, first.param.dtype),
            None if outer is None else TensorData.from_bytes(data[end:], beyond, outer),
            scheme,
            shape,
        )


_ALIGNMENT: Final = 4


def _shape_outer(outer: Sequence[TensorData], scheme: QuantScheme, shape: Shape) -> TensorData | None:
    """The outer scales, if there are any, in their shape."""
    return TensorData(outer[0].array.reshape(scheme.outer_counts(shape)), outer[0].dtype) if outer else None


def _encode(scales: Array, param: QuantParam) -> TensorData:
    held = np.clip(scales, param.smallest, param.largest)
    if param.format is not None:
        return TensorData(encode_small_floats(held, param.format), DType.U8)
    if param is QuantParam.BF16:
        return TensorData(bf16_from_f32(held), DType.BF16)
    return TensorData(held.astype(param.dtype.numpy), param.dtype)


def _misfit(given: str, expected: str) -> BaseException:
    return told(
        ShapeError,
        "TensorData.quantized: codes or scales do not fit the shape",
        given=given,
        expected=expected,
        mend="pass a code for each element, and a scale for each block: QuantLevel.counts(shape)",
    )
