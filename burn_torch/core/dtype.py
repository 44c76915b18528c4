"""Element types: one object each, compared by identity.

Shapes and devices know nothing of them; a leaf maps them to its own (`torch.float32`, `np.float32`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np

from burn_torch.core.errors import DTypeError, explain
from burn_torch.core.imports import named
from burn_torch.core.spellings import attach_spellings
from burn_torch.core.spellings.packages import BURN_TORCH
from burn_torch.core.wording import described

if TYPE_CHECKING:
    from burn_torch.core.quantization import QFloat, QuantScheme

__all__ = [
    "ALL",
    "BOOL",
    "FLOAT",
    "FLOAT8",
    "INT",
    "NUMERIC",
    "STORED",
    "DType",
    "DTypeClass",
    "FloatInfo",
    "IntInfo",
    "rounded_to",
]


class _UnknownType(DTypeError, KeyError):
    """A name or a dtype of numpy that no element type has."""

    __str__ = Exception.__str__  # KeyError shows the text as Python writes it


def _unknown(value: object, expected: str) -> _UnknownType:
    shown, mend = described(value), "DType.F32, DType.I64, DType.BOOL, ... are the element types themselves"
    return _UnknownType(explain("this names no element type", given=shown, expected=expected, mend=mend))


@final
@dataclass(frozen=True)
class FloatInfo:
    """The numbers that a float type holds.

    epsilon             the step from 1.0 to the next number
    min, max            the least and the largest finite number
    min_positive        the smallest positive number of full precision
    smallest_subnormal  the smallest positive number
    """

    dtype: DType
    bits: int
    epsilon: float
    min: float
    max: float
    min_positive: float
    smallest_subnormal: float


@final
@dataclass(frozen=True)
class IntInfo:
    """The numbers that an integer type holds: from `min` to `max`."""

    dtype: DType
    bits: int
    min: int
    max: int


@final
class DType:
    """An element type, named as Burn names it: `DType.F32`, `DType.I64`, `DType.BOOL`.

    `kind` is "float", "float8", "int", "uint" or "bool".  `itemsize` is in bytes.  `numpy` is the array type that holds
    it; numpy has no bfloat16, so BF16 is held as its upper 16 bits in uint16 (see TensorData), and the floats of 8 bits
    as theirs in uint8.

    F8_E4M3 and F8_E5M2 store and move values: cast them to a wider float to compute.  PyTorch: torch.float8_e4m3fn,
    torch.float8_e5m2.
    """

    __slots__ = ("itemsize", "kind", "name", "numpy")

    F64: ClassVar[DType]
    F32: ClassVar[DType]
    FLEX32: ClassVar[DType]
    """Burn's f32 that a device may compute in fewer digits: F32 itself, which no device here computes in fewer."""
    F16: ClassVar[DType]
    BF16: ClassVar[DType]
    F8_E4M3: ClassVar[DType]
    F8_E5M2: ClassVar[DType]
    I64: ClassVar[DType]
    I32: ClassVar[DType]
    I16: ClassVar[DType]
    I8: ClassVar[DType]
    U64: ClassVar[DType]
    U32: ClassVar[DType]
    U16: ClassVar[DType]
    U8: ClassVar[DType]
    BOOL: ClassVar[DType]

    def __new__(cls, *args: object, **named: object) -> DType:
        """Raises: DTypeError for any but those of the table below."""
        if len(args) == 3 and len(_BY_NAME) < len(_TABLE):
            return object.__new__(cls)
        raise _foreign(f"DType({', '.join(map(repr, args))})", args[0] if args else None)

    def __class_getitem__(cls, name: object) -> DType:
        raise _foreign(f"DType[{name!r}]", name)

    def __init__(self, name: str, kind: str, storage: type[np.generic]) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.numpy: Final = np.dtype(storage)
        self.itemsize: Final[int] = self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Tells if gradients can flow through values of this type."""
        return self.kind == "float"

    @property
    def is_of_numpy(self) -> bool:
        """Tells if numpy has the type, and does not hold its bits as integers."""
        return self is not DType.BF16 and self.kind != "float8"

    @property
    def is_int(self) -> bool:
        """Tells if it is a signed or unsigned integer type."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        """Tells if it is the truth type."""
        return self.kind == "bool"

    @property
    def limits(self) -> tuple[int, int] | tuple[float, float]:
        """The least and the largest value, of floats the finite ones; of bool 0 and 1."""
        if self.is_bool:
            return 0, 1
        info = self.iinfo() if self.is_int else self.finfo()
        return info.min, info.max

    def finfo(self) -> FloatInfo:
        """Range and precision of a float type.  Raises: DTypeError for other types.  PyTorch: torch.finfo."""
        digits = _FRACTION_BITS.get(self.name)
        if digits is None:
            raise _wrong_kind(self, "finfo", "float", "iinfo")
        bits = 8 * self.itemsize
        bias = (1 << (bits - 2 - digits)) - 1
        largest = 448.0 if self is DType.F8_E4M3 else (2.0 - 2.0**-digits) * 2.0**bias  # e4m3 has no infinity
        least = 2.0 ** (1 - bias)
        return FloatInfo(self, bits, 2.0**-digits, -largest, largest, least, math.ldexp(least, -digits))

    def iinfo(self) -> IntInfo:
        """Range of an integer type.  Raises: DTypeError for other types.  PyTorch: torch.iinfo."""
        if not self.is_int:
            raise _wrong_kind(self, "iinfo", "integer", "finfo")
        info = np.iinfo(self.numpy)
        return IntInfo(self, info.bits, int(info.min), int(info.max))

    @staticmethod
    def of(name: str) -> DType:
        """The element type of a name, such as "f32".  Raises: DTypeError, which is a KeyError too, for another name."""
        try:
            return _BY_NAME[name]
        except (KeyError, TypeError):
            raise _unknown(name, f"one of {', '.join(_BY_NAME)}") from None

    @staticmethod
    def from_numpy(dtype: np.dtype[np.generic]) -> DType:
        """The element type that a numpy array has.  Raises: DTypeError where burn_torch has none (complex, text)."""
        try:
            return _BY_NUMPY[dtype]
        except (KeyError, TypeError):
            raise _unknown(dtype, "the dtype of a numpy array of numbers or truth values") from None

    @staticmethod
    def QFloat(scheme: QuantScheme) -> QFloat:  # noqa: N802, Burn's variant
        """The element type of tensors that are quantised by this scheme, see `QuantizedTensor`."""
        dtype: QFloat = named("burn_torch.core.quantization:QFloat")(scheme)
        return dtype

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not DType and _twin(other) is not None:  # which would never be equal
            raise _foreign(f"{self!r} == {other!r}", other)
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (DType.of, (self.name,))


def _wrong_kind(dtype: DType, method: str, kind: str, other: str) -> DTypeError:
    return DTypeError(
        f"{method}: {dtype} is no {kind} type",
        given=repr(dtype),
        expected=f"an element type of {kind} numbers",
        mend="cast bool to a number first" if dtype.is_bool else f"write {other}()",
    )


def _twin(other: object) -> str | None:
    """How the element type of torch, numpy or Python, or of a name, is written here."""
    name = other if isinstance(other, str) else getattr(other, "name", None) if isinstance(other, np.dtype) else None
    if name is None and type(other).__module__ == "torch":
        name = str(other).removeprefix("torch.")
    if name is None and isinstance(other, type) and (other in (float, int, bool) or issubclass(other, np.generic)):
        name = other.__name__
    if name in _BY_NAME:
        return f"DType.{name.upper()}"
    text = BURN_TORCH.get(name or "", "")
    return text if text.startswith("DType.") and "," not in text else None


def _foreign(given: str, other: object) -> DTypeError:
    return DTypeError(
        "DType: element types are names of this class",
        given=given,
        expected=f"one of {', '.join(f'DType.{name.upper()}' for name in _BY_NAME)}",
        mend=f"write {_twin(other) or 'DType.F32'}",
    )


_TABLE: Final = (
    ("f64", "float", np.float64),
    ("f32", "float", np.float32),
    ("f16", "float", np.float16),
    ("bf16", "float", np.uint16),
    ("f8_e4m3", "float8", np.uint8),
    ("f8_e5m2", "float8", np.uint8),
    ("i64", "int", np.int64),
    ("i32", "int", np.int32),
    ("i16", "int", np.int16),
    ("i8", "int", np.int8),
    ("u64", "uint", np.uint64),
    ("u32", "uint", np.uint32),
    ("u16", "uint", np.uint16),
    ("u8", "uint", np.uint8),
    ("bool", "bool", np.bool_),
)
_FRACTION_BITS: Final = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8_e4m3": 3, "f8_e5m2": 2}
"""The bits of a float after its leading 1."""
_BY_NAME: dict[str, DType] = {}
for _name, _kind, _storage in _TABLE:
    _BY_NAME[_name] = DType(_name, _kind, _storage)
    setattr(DType, _name.upper(), _BY_NAME[_name])

DType.FLEX32 = DType.F32

for _name, _text in BURN_TORCH.items():  # of torch and numpy, and Burn's in small letters
    if _text.startswith("DType.") and "," not in _text:
        attach_spellings(DType, {_name: _text})
attach_spellings(DType, {_name: f"DType.{_name.upper()}" for _name in _BY_NAME})

_BY_NUMPY = {dtype.numpy: dtype for dtype in _BY_NAME.values() if dtype.is_of_numpy}


@final
class DTypeClass:
    """A named set of element types, for a row to require: `x.require(FLOAT)`."""

    __slots__ = ("members", "name")

    def __init__(self, name: str, *members: DType) -> None:
        self.name: Final = name
        self.members: Final = frozenset(members)

    def __contains__(self, dtype: DType) -> bool:
        return dtype in self.members

    def __or__(self, other: DTypeClass) -> DTypeClass:
        return DTypeClass(f"{self.name} or {other.name}", *self.members, *other.members)

    def __repr__(self) -> str:
        return self.name


FLOAT = DTypeClass("float", DType.F64, DType.F32, DType.F16, DType.BF16)
INT = DTypeClass("integer", *(dtype for dtype in _BY_NAME.values() if dtype.is_int))
BOOL = DTypeClass("bool", DType.BOOL)
NUMERIC = FLOAT | INT
FLOAT8 = DTypeClass("8-bit float", DType.F8_E4M3, DType.F8_E5M2)
ALL = NUMERIC | BOOL
STORED = DTypeClass("any", *_BY_NAME.values())


def rounded_to(dtype: DType, number: float) -> float:
    """The element of a float type that a number becomes, infinite beyond its range; bf16 by way of f32, as in torch."""
    if dtype is DType.F64 or not math.isfinite(number):
        return number
    with np.errstate(over="ignore"):
        if dtype is not DType.BF16:
            return float(dtype.numpy.type(number))
        single = np.float32(number)
    if not np.isfinite(single):
        return float(single)
    bits = int(single.view(np.uint32))
    return float(np.uint32(bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view(np.float32))
