"""How numbers are quantised: the value that each becomes, the scales of all, of blocks or of channels, and how codes
lie in memory.

A scheme says it all and knows no data; `tensor/quantized.py` computes with it.  Names and defaults are Burn's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape

__all__ = [
    "Calibration",
    "QFloat",
    "QuantLevel",
    "QuantMode",
    "QuantParam",
    "QuantPropagation",
    "QuantScheme",
    "QuantStore",
    "QuantValue",
]


@final
class QuantValue(Enum):
    """Holds what a quantised number is: an integer of 8, 4 or 2 bits, or a float of 8 or 4.

    F takes all codes of the integer, S leaves the lowest out, so that the range is even about 0.
    """

    Q8F = "Q8F"
    Q8S = "Q8S"
    Q4F = "Q4F"
    Q4S = "Q4S"
    Q2F = "Q2F"
    Q2S = "Q2S"
    E5M2 = "E5M2"
    E4M3 = "E4M3"
    E2M1 = "E2M1"

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value."""
        return _RANGES[self.value]

    @property
    def top_step(self) -> float:
        """How far the largest value is from the one before."""
        return {"E5M2": 8192.0, "E4M3": 32.0, "E2M1": 2.0}.get(self.value, 1.0)

    @property
    def size_bits(self) -> int:
        """How many bits one takes."""
        return _BITS[self.value[:2]]

    @property
    def is_float(self) -> bool:
        """Tells if codes are small floats, not integers."""
        return self.value.startswith("E")

    @property
    def code(self) -> DType:
        """The element type of a code that stands alone: i8 for integers, u8 for the bits of small floats."""
        return DType.U8 if self.is_float else DType.I8


_RANGES: Final = {
    "Q8F": (-128.0, 127.0),
    "Q8S": (-127.0, 127.0),
    "Q4F": (-8.0, 7.0),
    "Q4S": (-7.0, 7.0),
    "Q2F": (-2.0, 1.0),
    "Q2S": (-1.0, 1.0),
    "E5M2": (-57344.0, 57344.0),
    "E4M3": (-448.0, 448.0),
    "E2M1": (-6.0, 6.0),
}
_BITS: Final = {"Q8": 8, "Q4": 4, "Q2": 2, "E5": 8, "E4": 8, "E2": 4}


@final
@dataclass(frozen=True)
class QuantStore:
    """How codes lie in memory.

        QuantStore.Native             each in a type of its own: i8, or u8 for the bits of small floats
        QuantStore.PackedNative(dim)  those of 4 and 2 bits share bytes (u8)
        QuantStore.PackedU32(dim)     they share words of 32 bits

    `dim` is the axis along which neighbours share, counted from the last one: 0 is the last.  The first of them lies
    in the lowest bits; the last word of an axis that does not fill it ends with zeros.
    """

    name: str
    dim: int = 0

    Native: ClassVar[QuantStore]

    @staticmethod
    def PackedNative(dim: int = 0) -> QuantStore:  # noqa: N802, Burn's variant
        """Codes that share bytes."""
        return QuantStore("PackedNative", dim)

    @staticmethod
    def PackedU32(dim: int = 0) -> QuantStore:  # noqa: N802, Burn's variant
        """Codes that share words of 32 bits."""
        return QuantStore("PackedU32", dim)

    def __post_init__(self) -> None:
        if self.name not in ("Native", "PackedNative", "PackedU32") or type(self.dim) is not int or self.dim < 0:
            raise told(
                ArgumentError,
                "QuantStore: codes do not lie like this",
                given=f"{self.name!r}, dim {self.dim!r}",
                expected="Native, PackedNative(dim) or PackedU32(dim), dim counted from the last axis: 0, 1, ...",
                mend="QuantStore.PackedU32(0) packs along the last axis",
            )

    @property
    def word(self) -> DType | None:
        """The element type that codes share; None where each stands alone."""
        return {"PackedNative": DType.U8, "PackedU32": DType.U32}.get(self.name)

    def __repr__(self) -> str:
        return self.name if self.name == "Native" else f"{self.name}({self.dim})"


QuantStore.Native = QuantStore("Native")


@final
class QuantMode(Enum):
    """How codes and numbers correspond: value = code * scale, with nothing added."""

    Symmetric = "Symmetric"


@final
class QuantParam(Enum):
    """The type of scales.  UE8M0 are powers of two, UE4M3 positive floats of 8 bits; both lie in u8."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    UE8M0 = "UE8M0"
    UE4M3 = "UE4M3"

    @property
    def dtype(self) -> DType:
        """The element type in which scales lie."""
        return {"F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16}.get(self.value, DType.U8)

    @property
    def largest(self) -> float:
        """The largest scale."""
        return {"UE8M0": 2.0**127, "UE4M3": 448.0}.get(self.value) or float(self.dtype.limits[1])

    @property
    def smallest(self) -> float:
        """The least scale: above 0, so that no number is divided by it."""
        return {"F16": 2.0**-24, "UE8M0": 2.0**-127, "UE4M3": 2.0**-9}.get(self.value, 2.0**-126)

    @property
    def format(self) -> str | None:
        """The small float whose bits are stored; None where scales are floats of their own."""
        return {"UE8M0": "UE8M0", "UE4M3": "E4M3"}.get(self.value)


@final
@dataclass(frozen=True)
class QuantLevel:
    """Says which numbers share a scale: all of the tensor, those of a block, or those at one index of an axis.

        QuantLevel.per_tensor()
        QuantLevel.per_block((32,))          32 neighbours along the last axis
        QuantLevel.per_block((16, 16))       tiles of the last two axes
        QuantLevel.per_channel(-1)           a scale for each index of the last axis

    Sizes of a block are those of the last axes; along the axes before them it has size 1.  The last block of an axis
    may be shorter.
    """

    block: Shape | None = None
    param: QuantParam = QuantParam.F32
    channel: int | None = None

    def __post_init__(self) -> None:
        sizes = self.block
        if sizes is None:
            return
        if not sizes or any(type(size) is not int or size < 1 for size in sizes):
            raise told(
                ArgumentError,
                "QuantLevel: a block has no such sizes",
                given=f"block {self.block!r}",
                expected="a whole number from 1 for each of the last axes",
                mend="QuantLevel.per_block((32,)) has 32 neighbours along the last axis",
            )

    @staticmethod
    def per_tensor(param: QuantParam = QuantParam.F32) -> QuantLevel:
        """One scale for all numbers."""
        return QuantLevel(None, param)

    @staticmethod
    def per_block(block: Shape | int, param: QuantParam = QuantParam.F32) -> QuantLevel:
        """A scale for each block."""
        return QuantLevel((block,) if isinstance(block, int) else tuple(block), param)

    @staticmethod
    def per_channel(axis: int = -1, param: QuantParam = QuantParam.F32) -> QuantLevel:
        """A scale for each index of an axis."""
        return QuantLevel(None, param, axis)

    @property
    def is_whole(self) -> bool:
        """Tells if all numbers share one scale."""
        return self.block is None and self.channel is None

    def sizes(self, shape: Shape) -> Shape:
        """The sizes of a block in a tensor of this shape, one for each axis; 0 is the whole axis.

        Raises: ArgumentError where the tensor has not the axes.
        """
        ndim = len(shape)
        if self.channel is not None:
            if not -ndim <= self.channel < ndim:
                raise self._misfit(shape, f"an axis of {ndim}")
            return tuple(int(i == self.channel % ndim) for i in range(ndim))
        if self.block is None:
            return (0,) * ndim
        if len(self.block) > ndim:
            raise self._misfit(shape, f"at most {ndim} sizes")
        return (1,) * (ndim - len(self.block)) + self.block

    def counts(self, shape: Shape) -> Shape:
        """The shape of the scales: how many blocks lie along each axis; (1,) where all share one."""
        if self.is_whole:
            return (1,)
        return block_counts(shape, self.sizes(shape))

    def _misfit(self, shape: Shape, expected: str) -> BaseException:
        return told(
            ArgumentError,
            "QuantLevel: the tensor lacks the axes",
            given=f"{self!r}, for a tensor of shape {shape}",
            expected=expected,
            mend="QuantLevel.per_tensor() fits any shape; a Quantizer's param group picks the parameters that fit",
        )

    def __repr__(self) -> str:
        if self.channel is not None:
            return f"per_channel({self.channel}, {self.param.value})"
        return (
            f"per_tensor({self.param.value})" if self.block is None else f"per_block({self.block}, {self.param.value})"
        )


@final
class Calibration(Enum):
    """How the range of numbers is found: their least and largest, or their mean size to both sides (BitNet b1.58)."""

    MinMax = "MinMax"
    AbsMean = "AbsMean"


@final
class QuantPropagation(Enum):
    """Holds what an operation on a quantised tensor gives: a quantised tensor again, or floats."""

    Propagate = "Propagate"
    Inhibit = "Inhibit"


@final
@dataclass(frozen=True)
class QuantScheme:
    """How a tensor is quantised.

        QuantScheme(QuantValue.Q8S, QuantLevel.per_tensor())
        QuantScheme(QuantValue.Q4S, QuantLevel.per_block((32,), QuantParam.F16))
        QuantScheme(QuantValue.E2M1, (QuantLevel.per_block((16,), QuantParam.UE4M3), QuantLevel.per_tensor()))

    level: which numbers share a scale.  Two levels, the finer first, give scales of scales: a number is
        code * scale of its block * scale of all.
    """

    value: QuantValue = QuantValue.Q8F
    level: QuantLevel | tuple[QuantLevel, ...] = QuantLevel()
    store: QuantStore = QuantStore("PackedU32")
    mode: QuantMode = QuantMode.Symmetric
    propagation: QuantPropagation = QuantPropagation.Inhibit

    def __post_init__(self) -> None:
        kinds: tuple[tuple[str, object, type], ...] = (
            ("value", self.value, QuantValue),
            ("store", self.store, QuantStore),
            ("mode", self.mode, QuantMode),
            ("propagation", self.propagation, QuantPropagation),
            *(("level", level, QuantLevel) for level in self.levels),
        )
        wrong = [f"{name} {value!r:.60}" for name, value, kind in kinds if not isinstance(value, kind)]
        if wrong or not 1 <= len(self.levels) <= 2:
            raise told(
                ArgumentError,
                "QuantScheme: there is no such scheme",
                given=", ".join(wrong) or f"{len(self.levels)} levels of scales",
                expected="a QuantValue, one or two of QuantLevel, a QuantStore, a QuantMode, a QuantPropagation",
                mend="QuantScheme(QuantValue.Q8S, QuantLevel.per_tensor()), for example",
            )

    @property
    def levels(self) -> tuple[QuantLevel, ...]:
        """The levels of scales, the finer first."""
        return self.level if isinstance(self.level, tuple) else (self.level,)

    @property
    def param(self) -> QuantParam:
        """The type of the finer scales."""
        return self.levels[0].param

    @property
    def is_packed(self) -> bool:
        """Tells if several codes share a word."""
        return self.num_quants > 1

    @property
    def num_quants(self) -> int:
        """How many codes a stored word holds."""
        word = self.store.word
        return 1 if word is None else 8 * word.itemsize // self.value.size_bits

    def size_bits_value(self) -> int:
        """How many bits a code takes."""
        return self.value.size_bits

    def size_bits_stored(self) -> int:
        """How many bits a stored word takes."""
        return 8 * self.stored.itemsize

    @property
    def stored(self) -> DType:
        """The element type of what is stored."""
        word = self.store.word
        return self.value.code if word is None or (word is DType.U8 and self.num_quants == 1) else word

    def packed_axis(self, shape: Shape) -> int:
        """The axis along which codes share words, counted from the front.  Raises: ArgumentError without that axis."""
        if not shape and not self.store.dim:
            return 0
        if self.store.dim >= len(shape):
            raise told(
                ArgumentError,
                "QuantStore: the tensor lacks the axis",
                given=f"{self.store!r}, for a tensor of shape {shape}",
                expected=f"dim below {len(shape)}, counted from the last axis",
                mend="QuantStore.Native packs nothing",
            )
        return len(shape) - 1 - self.store.dim

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape of the stored words of a tensor of this shape."""
        if not self.is_packed:
            return tuple(shape)
        axis = self.packed_axis(shape)
        shape = tuple(shape) or (1,)
        return (*shape[:axis], -(-shape[axis] // self.num_quants), *shape[axis + 1 :])

    def groups(self, ndim: int) -> Shape:
        """How many of the finer scales share an outer one, along each axis; 0 is the whole axis.

        Raises: ArgumentError where blocks of the two levels cross.
        """
        finer, outer = self.levels
        if outer.is_whole:
            return (0,) * ndim
        shared, fine = outer.sizes((1,) * ndim), finer.sizes((1,) * ndim)
        if any(big and (not small or big % small) for big, small in zip(shared, fine, strict=True)):
            raise told(
                ArgumentError,
                "QuantScheme: blocks of the finer level cross those of the outer one",
                given=f"{finer!r} within {outer!r}",
                expected="outer blocks whose sizes are multiples of the finer ones",
                mend="QuantLevel.per_tensor() as the outer level holds any blocks",
            )
        return tuple(big // small if big else 0 for big, small in zip(shared, fine, strict=True))

    def outer_counts(self, shape: Shape) -> Shape:
        """The shape of the outer scales of a tensor of this shape."""
        outer, counts = self.levels[1], self.levels[0].counts(shape)
        return (1,) if outer.is_whole else block_counts(counts, self.groups(len(counts)))

    def file_bytes(self, shape: Shape) -> int:
        """How many bytes a file has for such a tensor: words, zeros up to a multiple of four, scales."""
        words = math.prod(self.stored_shape(shape)) * self.stored.itemsize
        return self.stored_bytes(shape) + -words % 4

    def stored_bytes(self, shape: Shape) -> int:
        """How many bytes codes and scales of a tensor of this shape take."""
        sizes = [self.levels[0].counts(shape)] + [self.outer_counts(shape) for _ in self.levels[1:]]
        scales = [math.prod(size) * level.param.dtype.itemsize for size, level in zip(sizes, self.levels, strict=True)]
        return math.prod(self.stored_shape(shape)) * self.stored.itemsize + sum(scales)

    # -- as Burn's files have it ------------------------------------------------------------------------
    def to_fields(self) -> dict[str, object]:
        """Names and values of Burn's records; channels and two levels by names of ours."""
        store = self.store.name if self.store.word is None else {self.store.name: self.store.dim}
        levels = [_level_fields(level) for level in self.levels]
        fields = {"value": self.value.value, "store": store, "mode": self.mode.value, **levels[0]}
        return fields if len(levels) == 1 else {**fields, "outer": levels[1]}

    @staticmethod
    def from_fields(fields: Mapping[str, object]) -> QuantScheme:
        """The scheme that `to_fields` wrote, or Burn.  Raises: ValueError for what is none."""
        try:
            store = fields["store"]
            if store == "U32":  # of Burn before 0.20
                store = {"PackedU32": 0}
            name, dim = (store, 0) if isinstance(store, str) else next(iter(dict(store).items()))  # type: ignore[call-overload]  # else it raises
            outer = fields.get("outer")
            levels = (_level_of(fields), *([] if outer is None else [_level_of(outer)]))  # type: ignore[arg-type]  # else it raises
            return QuantScheme(
                QuantValue(fields["value"]),
                levels[0] if len(levels) == 1 else levels,
                QuantStore(str(name), dim),
                QuantMode(fields["mode"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as err:
            raise ValueError(f"no quantisation that is known here: {str(fields)[:120]} ({err})") from err

    # -- the same with one part changed --------------------------------------------------------------
    def with_value(self, value: QuantValue) -> QuantScheme:
        """The same scheme of another value."""
        return replace(self, value=value)

    def with_level(self, *levels: QuantLevel) -> QuantScheme:
        """The same scheme with other scales, the finer first."""
        return replace(self, level=levels[0] if len(levels) == 1 else levels)

    def with_param(self, param: QuantParam) -> QuantScheme:
        """The same scheme with finer scales of another type."""
        return self.with_level(replace(self.levels[0], param=param), *self.levels[1:])

    def with_store(self, store: QuantStore) -> QuantScheme:
        """The same scheme of another store."""
        return replace(self, store=store)

    def with_mode(self, mode: QuantMode) -> QuantScheme:
        """The same scheme of another mode."""
        return replace(self, mode=mode)

    def with_propagation(self, propagation: QuantPropagation) -> QuantScheme:
        """The same scheme, whose tensors propagate what they are or not."""
        return replace(self, propagation=propagation)


def _level_fields(level: QuantLevel) -> dict[str, object]:
    whole: object = "Tensor" if level.channel is None else {"Channel": level.channel}
    return {"level": whole if level.block is None else {"Block": list(level.block)}, "param": level.param.value}


def _level_of(fields: Mapping[str, object]) -> QuantLevel:
    level, param = fields["level"], QuantParam(fields["param"])
    if level == "Tensor":
        return QuantLevel.per_tensor(param)
    ((kind, value),) = dict(level).items()  # type: ignore[call-overload]  # else it raises
    if kind == "Channel":
        return QuantLevel.per_channel(operator.index(value), param)
    return QuantLevel.per_block(tuple(operator.index(size) for size in {"Block": value}[kind]), param)


@final
@dataclass(frozen=True)
class QFloat:
    """The element type of a quantised tensor: `DType.QFloat(scheme)`."""

    scheme: QuantScheme

    name: ClassVar[str] = "qfloat"
    kind: ClassVar[str] = "float"
    is_float: ClassVar[bool] = True
    is_int: ClassVar[bool] = False
    is_bool: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"qfloat({self.scheme.value.value})"


def block_counts(shape: Shape, block: Shape) -> Shape:
    """How many blocks lie along each axis; size 0 is one block of the whole axis."""
    return tuple(-(-size // per) if per else 1 for size, per in zip(shape, block, strict=True))
