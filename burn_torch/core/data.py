"""TensorData: values on the host, with their shape and element type."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burn_torch.core.checking import Measured, checked, checked_late
from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import FLOAT8, DType
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.imports import named
from burn_torch.core.small_floats import encode_small_floats, small_float_values
from burn_torch.core.spec import Shape
from burn_torch.core.tolerance import Tolerance
from burn_torch.core.wording import counted, described, first_line

if TYPE_CHECKING:
    from burn_torch.core.quantization import QuantScheme
    from burn_torch.core.quantized_data import QuantizedData

__all__ = ["TensorData", "bf16_from_f32", "f32_from_bf16"]

Array = NDArray[Any]


@final
class TensorData:
    """A host array with an element type.

    `array` holds the values; bfloat16, which numpy lacks, lies in it as its 16 bits in uint16, and `values` gives it
    as float32; so do the floats of 8 bits, in uint8.
    """

    __slots__ = ("array", "dtype")

    def __init__(self, array: Array, dtype: DType) -> None:
        try:
            fits = array.dtype == dtype.numpy
        except AttributeError:
            fits = False
        if not fits:
            raise DTypeError(
                "TensorData: the array does not hold this element type",
                given=f"{described(array)} as {described(dtype)}",
                expected=f"an array of {getattr(dtype, 'numpy', 'numbers and its DType')}",
                mend="TensorData.of(values, dtype) converts",
            )
        self.array: Final = array
        self.dtype: Final = dtype

    @staticmethod
    def of(values: object, dtype: DType | None = None) -> TensorData:
        """From nested sequences, numbers or an array.  Python floats become f32, ints i64, bools bool.

        A dtype may round values, and makes "is not zero" of them if it is bool; `convert` cuts and wraps them, too.
        Raises: ShapeError for ragged rows; DTypeError for values that are no numbers, and for those that the dtype
        cannot hold: a fraction or NaN as an integer, a number beyond its range.
        """
        if isinstance(values, TensorData):
            return values if dtype is None else values._held_by(dtype)
        from_host = not isinstance(values, np.ndarray | np.generic)
        if from_host and is_of_torch(values):
            return TensorData.of(_of_torch(values), dtype)
        try:
            array = np.asarray(values)
        except (TypeError, RuntimeError, OverflowError, AttributeError) as err:  # what __array__ of an item raises
            raise DTypeError(
                "TensorData: these values are no numbers",
                given=f"a {type(values).__name__}, of which numpy says: {first_line(err)}",
                expected="nested sequences of numbers, or an array",
                mend="convert the items first; of a torch tensor with gradients pass tensor.detach()",
            ) from err
        except ValueError as err:
            raise ShapeError(
                "TensorData: the rows have different lengths",
                given=f"{str(values)[:60]}",
                expected="nested sequences of equal length",
                mend="pad the shorter rows",
            ) from err
        if from_host and array.dtype == np.float64 and dtype is None:
            dtype = DType.F32
        if from_host and array.size == 0 and dtype is None:
            array = array.astype(np.float32)
        try:
            natural = DType.from_numpy(array.dtype)
        except KeyError:
            raise DTypeError(
                "TensorData: these values are no numbers of ours",
                given=f"values of numpy type {array.dtype}",
                expected="numbers or truth values",
                mend="convert them first",
            ) from None
        data = TensorData(array, natural)
        return data if dtype is None else data._held_by(dtype)

    @staticmethod
    @checked
    def new(values: object, shape: Sequence[int], dtype: DType | None = None) -> TensorData:
        """From values in row-major order and a shape.  Raises: ShapeError where they are not as many."""
        flat = TensorData.of(values, dtype)
        return TensorData(_reshape(flat.array.reshape(-1), _sizes(shape)), flat.dtype)

    @staticmethod
    @checked
    def full(shape: Sequence[int], value: Measured | bool, dtype: DType = DType.F32) -> TensorData:
        """One number everywhere."""
        return TensorData.of(np.full(_sizes(shape), value), dtype)

    @staticmethod
    @checked
    def zeros(shape: Sequence[int], dtype: DType = DType.F32) -> TensorData:
        """Zeros."""
        return TensorData(np.zeros(_sizes(shape), dtype.numpy), dtype)

    @staticmethod
    @checked
    def ones(shape: Sequence[int], dtype: DType = DType.F32) -> TensorData:
        """Ones."""
        return TensorData.full(shape, 1, dtype)

    @staticmethod
    @checked
    def random(
        shape: Sequence[int], distribution: Distribution, generator: np.random.Generator, dtype: DType = DType.F32
    ) -> TensorData:
        """Drawn from a distribution with numpy's generator.  `Tensor.random` draws from the key of a step instead."""
        size = _sizes(shape)
        drawn: Array
        if isinstance(distribution, Distribution.Normal):
            drawn = generator.normal(distribution.mean, distribution.std, size)
        elif isinstance(distribution, Distribution.Bernoulli):
            drawn = generator.random(size) < distribution.p
        elif isinstance(distribution, Distribution.Uniform):
            drawn = _even(generator, distribution.low, distribution.high, size, dtype)
        elif dtype.is_bool:
            drawn = generator.random(size) < 0.5
        else:
            drawn = _even(generator, 0, 1 if dtype.is_float else 127 if dtype is DType.I8 else 255, size, dtype)
        return TensorData.of(np.asarray(drawn)).convert(dtype)

    @staticmethod
    @checked
    def from_bytes(data: bytes | bytearray | memoryview, shape: Sequence[int], dtype: DType) -> TensorData:
        """From the bytes of the elements in row-major order, each little-endian; copies.

        Raises: ShapeError where the bytes are not as many as the shape needs.
        """
        wanted = math.prod(_sizes(shape)) * dtype.itemsize
        if memoryview(data).nbytes != wanted:
            raise ShapeError(
                "TensorData.from_bytes: the bytes do not fill the shape",
                given=f"{memoryview(data).nbytes} bytes for {tuple(shape)} {dtype}",
                expected=f"{wanted} bytes",
                mend="check the element type; bf16 and f16 take two bytes, f32 four",
            )
        array = np.frombuffer(data, dtype.numpy.newbyteorder("<")).astype(dtype.numpy)
        return TensorData(_reshape(array, tuple(shape)), dtype)

    @staticmethod
    def quantized(
        values: ArrayLike,
        shape: Sequence[int],
        scheme: QuantScheme,
        scales: ArrayLike,
        outer_scales: ArrayLike | None = None,
    ) -> QuantizedData:
        """From codes in row-major order, each alone, and the scales of their blocks, as floats.

        Raises: ShapeError where they are not as many as the shape and the scheme need.
        """
        levels = (scales,) if outer_scales is None else (scales, outer_scales)
        data: QuantizedData = named("burn_torch.core.quantized_data:QuantizedData").of(values, shape, scheme, *levels)
        return data

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return tuple(self.array.shape)

    @property
    def values(self) -> Array:
        """The values as a numpy array; bfloat16 and the floats of 8 bits come as float32."""
        if self.dtype in FLOAT8:
            return small_float_values(_FORMATS[self.dtype])[self.array].astype(np.float32)
        return f32_from_bf16(self.array) if self.dtype is DType.BF16 else self.array

    @property
    def num_elements(self) -> int:
        """How many values there are."""
        return int(self.array.size)

    @checked_late
    def convert(self, dtype: DType) -> TensorData:
        """The same values in another element type: to integers toward zero, to bool "is not zero"."""
        if dtype is self.dtype:
            return self
        values = self.values
        with np.errstate(invalid="ignore", over="ignore"):
            if dtype is DType.BF16:
                return TensorData(bf16_from_f32(values.astype(np.float32)), dtype)
            if dtype in FLOAT8:
                return TensorData(_encode(values, dtype), dtype)
            return TensorData(values.astype(dtype.numpy), dtype)

    convert_dtype = convert

    def _held_by(self, dtype: DType) -> TensorData:
        """The values in another element type, which may round them.  Raises: DTypeError for one that it cannot hold."""
        converted = self.convert(dtype)
        if converted is self or dtype.is_bool or not self.num_elements:
            return converted
        values = self.values
        low, high = dtype.limits
        if dtype.is_int and self.dtype.is_float:
            # high + 1 is a power of two and exact; high itself rounds up to it in f64, and NaN is below nothing
            lost = (values < low) | ~(values < high + 1.0) | (values != np.trunc(values))
        elif dtype.is_int:
            lost = (values < low) | (values > high)
        else:
            lost = np.isfinite(values) & ~np.isfinite(converted.values)
            if dtype in FLOAT8:  # which may stay at their largest number
                lost |= np.isfinite(values) & (np.abs(values) > high)
        if not lost.any():
            return converted
        lost_values = np.asarray(values)[lost]
        raise DTypeError(
            f"TensorData: {dtype} cannot hold {counted(int(lost.sum()), 'value')}",
            given=f"{lost_values.reshape(-1)[0]} among {self.shape} {self.dtype}",
            expected=f"whole numbers from {low} to {high}"
            if dtype.is_int
            else f"numbers from {low:.6g} to {high:.6g}, infinities or NaN",
            mend="take a wider type; TensorData.of(values).convert(dtype) cuts and wraps where that is meant",
        )

    @checked_late
    def try_cast(self, dtype: DType) -> TensorData:
        """The same values in another element type that holds each of them exactly; NaN stays NaN.

        Raises: DTypeError where a value would change.
        """
        cast = self.convert(dtype)
        back = cast.convert(self.dtype)
        same = np.array_equal(back.values, self.values, equal_nan=self.dtype.is_float)
        if not same or (dtype.is_int and not self._fits(dtype)):
            raise DTypeError(
                "TensorData.try_cast: a value would change",
                given=f"data {self.shape} {self.dtype} to {dtype}",
                expected=f"values that {dtype} holds exactly",
                mend="data.convert(dtype) rounds and cuts instead",
            )
        return cast

    def _fits(self, dtype: DType) -> bool:
        if not self.num_elements or self.dtype.is_bool:
            return True
        info = np.iinfo(dtype.numpy)
        return bool(int(self.values.min()) >= info.min and int(self.values.max()) <= info.max)

    # -- reading -----------------------------------------------------------------------------
    def view(self) -> Array:
        """The values as a numpy array that cannot be written to: `data.view()[1, 2]`."""
        values = self.values.view()
        values.flags.writeable = False
        return values

    def mut_view(self) -> Array:
        """The array itself, to be written to; bfloat16 is its bits.  Raises: DTypeError for a read-only array."""
        if not self.array.flags.writeable:
            raise DTypeError(
                "TensorData: this array is read-only",
                given=f"data {self.shape} {self.dtype} over shared memory",
                expected="data of its own",
                mend="copy it first: TensorData(data.array.copy(), data.dtype)",
            )
        return self.array

    def as_slice(self) -> Array:
        """The values in row-major order, as one axis that cannot be written to."""
        return self.view().reshape(-1)

    def as_mut_slice(self) -> Array:
        """The array in row-major order, as one axis to be written to; bfloat16 is its bits."""
        array = self.mut_view()
        if not array.flags.c_contiguous:
            raise DTypeError(
                "TensorData: the elements do not lie in row-major order",
                given=f"a strided array {self.shape}",
                expected="a contiguous array",
                mend="use mut_view(), which has the axes of the data",
            )
        return array.reshape(-1)

    def to_vec(self) -> list[Any]:
        """The values in row-major order, as Python numbers."""
        values: list[Any] = self.values.ravel().tolist()
        return values

    into_vec = try_to_vec = try_into_vec = to_vec

    def to_list(self) -> Any:
        """Nested Python lists (a number for a shape without axes)."""
        return self.values.tolist()

    def iter(self) -> Iterator[Any]:
        """The values in row-major order, as Python numbers."""
        return iter(self.to_vec())

    def to_bytes(self) -> bytes:
        """The elements in row-major order, each little-endian."""
        return np.ascontiguousarray(self.array).astype(self.array.dtype.newbyteorder("<"), copy=False).tobytes()

    # -- comparing -----------------------------------------------------------------------------
    @checked
    def assert_eq(self, other: TensorData, strict: bool = True) -> None:
        """Raises AssertionError unless shapes and values are equal (and, if strict, element types); NaN equals NaN."""
        if strict and self.dtype is not other.dtype:
            raise AssertionError(f"element types differ: {self.dtype} and {other.dtype}")
        if self.shape != other.shape:
            raise AssertionError(f"shapes differ: {self.shape} and {other.shape}")
        np.testing.assert_array_equal(self.values, other.values)

    @checked
    def assert_approx_eq(self, other: TensorData, tolerance: Tolerance | None = None) -> None:
        """Raises AssertionError, with the first differences, unless shapes agree and all values are near.

        Default: Tolerance.balanced().  NaN is near NaN, an infinity only to itself.
        """
        if self.shape != other.shape:
            raise AssertionError(f"shapes differ: {self.shape} and {other.shape}")
        chosen = tolerance or Tolerance.balanced()
        x, y = self.values.astype(np.float64), other.values.astype(np.float64)
        apart = np.argwhere(~np.atleast_1d(chosen.near(x, y, self.dtype)))
        if not len(apart):
            return
        lines = []
        for position in apart[:_SHOWN]:
            at = tuple(position.tolist()) if self.shape else ()
            a, b = float(x[at]), float(y[at])
            lines.append(f"  at {list(at)}: {a} and {b}, {abs(a - b):.3g} apart")
        more = f"\n  and {len(apart) - _SHOWN} more" if len(apart) > _SHOWN else ""
        raise AssertionError(f"values are not near, by {chosen}:\n" + "\n".join(lines) + more)

    def assert_within_range(self, low: float, high: float) -> None:
        """Raises AssertionError unless low <= value < high everywhere; NaN is outside."""
        self._within(low, high, (self.values >= low) & (self.values < high), "")

    def assert_within_range_inclusive(self, low: float, high: float) -> None:
        """Raises AssertionError unless low <= value <= high everywhere; NaN is outside."""
        self._within(low, high, (self.values >= low) & (self.values <= high), "=")

    def _within(self, low: float, high: float, inside: Any, bound: str) -> None:
        if not np.all(inside):
            first = self.values[~np.asarray(inside)].reshape(-1)[0]
            raise AssertionError(f"{first} is not within {low} <= value <{bound} {high}")

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

    def __reduce__(self) -> tuple[object, tuple[Array, DType]]:
        return (TensorData, (self.array, self.dtype))

    def __repr__(self) -> str:
        return f"TensorData({self.values.tolist()}, shape={self.shape}, dtype={self.dtype})"


def is_of_torch(values: object) -> bool:
    """Tells if a value is a torch tensor; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _of_torch(tensor: Any) -> TensorData:
    """A torch tensor's values.  Raises: ArgumentError for one with a graph, DTypeError for other kinds of numbers."""
    torch = sys.modules["torch"]
    name = str(tensor.dtype).removeprefix("torch.")
    shape = "nested" if tensor.is_nested else tuple(tensor.shape)
    described_tensor = f"a torch tensor {shape} of {name} on {tensor.device}"
    forward = torch.autograd.forward_ad
    if tensor.requires_grad or (forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None):
        raise ArgumentError(
            "TensorData: torch's autograd follows this tensor, and its gradients would end here",
            given=f"{described_tensor} that {'requires grad' if tensor.requires_grad else 'carries a tangent'}",
            expected="a tensor without torch's graph",
            mend="pass tensor.detach(), or of a dual tensor forward_ad.unpack_dual(tensor).primal",
        )
    try:
        host = tensor.cpu().resolve_conj().resolve_neg()
        if name in _BITS_OF_TORCH:
            dtype = _BITS_OF_TORCH[name]
            return TensorData(host.contiguous().view(torch.uint8).numpy(), dtype)
        if name == "bfloat16":
            return TensorData(host.contiguous().view(torch.int16).numpy().view(np.uint16), DType.BF16)
        array = host.numpy()
        return TensorData(array, DType.from_numpy(array.dtype))
    except (RuntimeError, TypeError, KeyError) as err:
        raise DTypeError(
            "TensorData: this torch tensor has no numbers of ours",
            given=described_tensor,
            expected="a dense tensor of floats, integers or truth values",
            mend="convert it in torch first: tensor.to_dense(), tensor.float(), tensor.to('cpu');"
            " read it outside of torch.func and of FakeTensorMode",
        ) from err


_SHOWN: Final = 5
_FORMATS: Final = {DType.F8_E4M3: "E4M3", DType.F8_E5M2: "E5M2"}
_BITS_OF_TORCH: Final = {"float8_e4m3fn": DType.F8_E4M3, "float8_e5m2": DType.F8_E5M2}


def _sizes(shape: Sequence[int]) -> Shape:
    sizes = tuple(map(int, shape))
    if any(size < 0 for size in sizes) or math.prod(sizes) >= 1 << 40:
        raise ShapeError(
            "TensorData: no array has these sizes",
            given=f"shape {sizes}",
            expected="sizes of 0 or more, and fewer than 2^40 elements",
            mend="check how the sizes were computed",
        )
    return sizes


def _reshape(flat: Array, shape: Shape) -> Array:
    if flat.size != math.prod(shape):
        raise ShapeError(
            "TensorData: the values do not fill the shape",
            given=f"{counted(flat.size, 'value')} for {shape}",
            expected=f"{counted(math.prod(shape), 'value')}",
            mend="count the values, or leave the shape to TensorData.of(nested lists)",
        )
    return flat.reshape(shape)


def _even(generator: np.random.Generator, low: float, high: float, shape: Shape, dtype: DType) -> Array:
    if dtype.is_int:
        return generator.integers(math.ceil(low), math.ceil(high), shape, dtype=np.int64)
    return np.asarray(generator.uniform(low, high, shape))


def _encode(values: Array, dtype: DType) -> Array:
    """The nearest floats of 8 bits; beyond their range e4m3 stays at its largest, and e5m2 is infinite."""
    codes = encode_small_floats(values, _FORMATS[dtype])
    if dtype is DType.F8_E4M3:
        return codes
    return np.where(np.abs(values) >= 61440.0, codes & 0x80 | 0x7C, codes).astype(np.uint8)  # halfway to 2^16


def bf16_from_f32(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The 16 bits of bfloat16, rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))


def f32_from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 with these upper bits: exact."""
    return np.asarray(np.left_shift(bits.astype(np.uint32), 16)).view(np.float32).reshape(bits.shape)
