"""TensorData: values on the host, with their shape and element type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError, explain
from burn_torch.core.spec import Shape

__all__ = ["TensorData", "bf16_from_f32", "f32_from_bf16"]

Array = NDArray[Any]


@final
class TensorData:
    """A host array with an element type.

    `array` holds the values; bfloat16, which numpy lacks, lies in it as its 16 bits in uint16, and `values` gives it
    as float32.
    """

    __slots__ = ("array", "dtype")

    def __init__(self, array: Array, dtype: DType) -> None:
        if array.dtype != dtype.numpy:
            raise DTypeError(
                explain(
                    "TensorData: the array does not hold this element type",
                    given=f"an array of {array.dtype} as {dtype}",
                    expected=f"an array of {dtype.numpy}",
                    mend="TensorData.of(values, dtype) converts",
                )
            )
        self.array: Final = array
        self.dtype: Final = dtype

    @staticmethod
    def of(values: Any, dtype: DType | None = None) -> TensorData:
        """From nested sequences, numbers or an array.  Python floats become f32, ints i64, bools bool.

        Raises: ShapeError for ragged rows; DTypeError for values that are no numbers.
        """
        if isinstance(values, TensorData):
            return values if dtype is None else values.convert(dtype)
        from_host = not isinstance(values, np.ndarray | np.generic)
        try:
            array = np.asarray(values)
        except ValueError as err:
            raise ShapeError(
                explain(
                    "TensorData: the rows have different lengths",
                    given=f"{str(values)[:60]}",
                    expected="nested sequences of equal length",
                    mend="pad the shorter rows",
                )
            ) from err
        if from_host and array.dtype == np.float64:
            array = array.astype(np.float32) if dtype is None else array
        if from_host and array.size == 0 and dtype is None:
            array = array.astype(np.float32)
        try:
            natural = DType.from_numpy(array.dtype)
        except KeyError:
            raise DTypeError(
                explain(
                    "TensorData: these values are no numbers of ours",
                    given=f"values of numpy type {array.dtype}",
                    expected="numbers or truth values",
                    mend="convert them first",
                )
            ) from None
        data = TensorData(array, natural)
        return data if dtype is None else data.convert(dtype)

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return tuple(self.array.shape)

    @property
    def values(self) -> Array:
        """The values as a numpy array; bfloat16 comes as float32."""
        return f32_from_bf16(self.array) if self.dtype is DType.BF16 else self.array

    def convert(self, dtype: DType) -> TensorData:
        """The same values in another element type: to integers toward zero, to bool "is not zero"."""
        if dtype is self.dtype:
            return self
        values = self.values
        if dtype is DType.BF16:
            return TensorData(bf16_from_f32(values.astype(np.float32)), dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            return TensorData(values.astype(dtype.numpy), dtype)

    def to_list(self) -> Any:
        """Nested Python lists (a number for a shape without axes)."""
        return self.values.tolist()

    def iter(self) -> Iterator[Any]:
        """The values in row-major order, as Python numbers."""
        return iter(self.values.ravel().tolist())

    def assert_eq(self, other: TensorData, strict: bool = True) -> None:
        """Raises AssertionError unless shapes and values are equal (and, if strict, element types); NaN equals NaN."""
        if strict and self.dtype is not other.dtype:
            raise AssertionError(f"element types differ: {self.dtype} and {other.dtype}")
        np.testing.assert_array_equal(self.values, other.values)

    def assert_approx_eq(self, other: TensorData, rtol: float = 1e-5, atol: float = 1e-8) -> None:
        """Raises AssertionError unless |a - b| <= atol + rtol * |b| everywhere; NaN equals NaN."""
        np.testing.assert_allclose(self.values, other.values, rtol=rtol, atol=atol)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorData)
            and self.dtype is other.dtype
            and self.shape == other.shape
            and bool(np.array_equal(self.values, other.values, equal_nan=self.dtype.is_float))
        )

    __hash__ = None  # type: ignore[assignment]  # mutable data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"TensorData({self.values.tolist()}, shape={self.shape}, dtype={self.dtype})"


def bf16_from_f32(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The 16 bits of bfloat16, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))


def f32_from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 with these upper bits: exact."""
    return np.asarray(np.left_shift(bits.astype(np.uint32), 16)).view(np.float32).reshape(bits.shape)
