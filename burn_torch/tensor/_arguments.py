"""Axes, shapes and numbers as callers write them, made into what rows take; the errors of those that fit nothing."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BurnTorchError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.spec import Shape
from burn_torch.ops.value import Value
from burn_torch.tensor.apply import no_tensor, number

T = TypeVar("T")

__all__ = ["all_axes", "axes", "axis", "axis_given", "dtype_of", "fitting", "integer", "new_axis", "sizes"]


def integer(value: Any, name: str) -> int:
    """A whole number, numpy's included.  Raises: DTypeError."""
    if value.__class__ is int:
        return value
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except BurnTorchError:  # of a traced number
        raise
    except (TypeError, ValueError, RuntimeError):  # of an array, of several elements
        raise told(
            DTypeError,
            f"{name} is not a whole number",
            given=f"{name} {value!r} ({type(value).__name__})",
            expected="an int",
            mend=f"pass {name} as an int, for example 0 or -1",
        ) from None


def axis(x: Value, dim: int) -> int:
    """An axis of x, counted from the front.  Raises: ShapeError where x has no such axis."""
    try:
        ndim = x.spec.ndim
    except AttributeError:
        raise no_tensor(x) from None
    if dim.__class__ is int and 0 <= dim < ndim:
        return dim
    return _resolve(x, dim, ndim)


def new_axis(x: Value, dim: int, added: int = 1) -> int:
    """A place for a new axis: an axis of the result, which has `added` axes more than x."""
    return _resolve(x, dim, x.spec.ndim + added)


def axes(x: Value, dims: Sequence[int] | int) -> tuple[int, ...]:
    """Distinct axes of x in the order given.  Raises: ShapeError."""
    named = tuple([axis(x, dim) for dim in dims]) if isinstance(dims, list | tuple | range) else (axis(x, dims),)  # type: ignore[arg-type]  # else it is one axis
    if len(set(named)) < len(named):
        raise told(
            ShapeError,
            "an axis is named twice",
            given=f"dims {tuple(dims)} of {x.spec}",  # type: ignore[arg-type]  # a name twice: there are several
            expected="distinct axes",
            mend="name each axis once; -1 is the last",
        )
    return named


def all_axes(x: Value) -> tuple[int, ...]:
    """Every axis of x."""
    return _ALL[x.spec.ndim] if x.spec.ndim < len(_ALL) else tuple(range(x.spec.ndim))


_ALL = [tuple(range(n)) for n in range(9)]


def sizes(shape: object) -> Shape:
    """A shape as a tuple of whole numbers; one number is a shape of one axis.  Raises: DTypeError."""
    if isinstance(shape, Sequence) and not isinstance(shape, str | bytes):
        wanted = tuple([integer(size, "a size") for size in shape])
    else:
        wanted = (integer(shape, "shape"),)
    if any(size < -_LARGEST or size > _LARGEST for size in wanted if size.__class__ is int):
        raise told(
            ShapeError,
            "a size is larger than any memory",
            given=f"shape {wanted}",
            expected="sizes below 2^62",
            mend="check how the size was computed",
        )
    return wanted


_LARGEST = 1 << 62


def whole_list(values: object, name: str) -> tuple[int, ...]:
    """Whole numbers of a list, a tuple or a range.  Raises: DTypeError."""
    if not isinstance(values, list | tuple | range):
        raise told(
            DTypeError,
            f"{name} is no list of whole numbers",
            given=f"{name} {values!r:.60} ({type(values).__name__})",
            expected="a list or tuple of ints",
            mend=f"write {name}=[0], for example",
        )
    return tuple([integer(value, name) for value in values])


def real(value: object, name: str) -> float:
    """A number as a float; no bool, text or NaN.  Raises: DTypeError."""
    value = number(value)
    if value.__class__ is float and value == value:  # no NaN
        return value
    if isinstance(value, Value) and value.is_number:
        return value  # type: ignore[return-value]  # what it is was asked above
    if value.__class__ is int and abs(value) < 1 << 1000:
        return float(value)
    raise told(
        DTypeError,
        f"{name} is no number",
        given=f"{name} {value!r:.60} ({type(value).__name__})",
        expected="a float or an int",
        mend=f"write {name}=1e-5, for example",
    )


def truth(value: object, name: str) -> bool:
    """True or False, numpy's included; no other value, which Python would take for one.  Raises: DTypeError."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise told(
        DTypeError,
        f"{name} is neither true nor false",
        given=f"{name} {value!r:.60} ({type(value).__name__})",
        expected="True or False",
        mend=f"write {name}=True, for example",
    )


def option(value: object, kind: type[T], name: str) -> T:
    """The options, or the default ones for None.  Raises: DTypeError for what is none of this kind."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    raise told(
        DTypeError,
        f"{name} is no {kind.__name__}",
        given=f"{name} {value!r:.60} ({type(value).__name__})",
        expected=f"a {kind.__name__}, or None",
        mend=f"write {kind.__name__}(...), of burn_torch.tensor",
    )


def fitting(dtype: DType, value: object) -> Any:
    """A number as values of this type hold it: 2.0 is 2 for integers, 1 is True for bool; 0.5 stays, to be refused."""
    if value.__class__ is float and dtype.kind == "float":
        return value
    value = number(value)
    if isinstance(value, Value):
        return value
    if not isinstance(value, int | float):
        raise told(
            DTypeError,
            "a number is needed",
            given=f"{value!r:.60} ({type(value).__name__})",
            expected="a float, an int or a bool",
            mend="tensor.item() gives the number of a tensor of one element",
        )
    if dtype.is_float or value != value or value in (math.inf, -math.inf):  # NaN
        return value
    if dtype.is_bool:
        return bool(value) if value in (0, 1) else value
    return int(value) if value == value // 1 else value


def dtype_of(dtype: DType | str) -> DType:
    """An element type, or the one of this name.  Raises: DTypeError."""
    if isinstance(dtype, DType):
        return dtype
    try:
        return DType.of(dtype)
    except (KeyError, TypeError):
        raise told(
            DTypeError,
            "there is no such element type",
            given=repr(dtype),
            expected="a DType, or a name such as 'f32', 'i64', 'bool'",
            mend="write DType.F32; torch.float32 is DType.F32, torch.int64 DType.I64",
        ) from None


def axis_given(x: Value, method: str, dim: object) -> BurnTorchError:
    """The error of an axis, as PyTorch writes it, beside a reduction of all elements."""
    shown = "-1" if dim is None else repr(dim)
    return told(
        ArgumentError,
        f"{method} takes all elements together",
        given=f"dim {dim} for {x.spec}",
        expected="no arguments",
        mend=f"x.{method}_dim({shown}) goes along an axis, which stays with size 1; .squeeze_dim({shown}) drops it",
    )


def _resolve(x: Value, dim: object, ndim: int) -> int:
    index = integer(dim, "dim")
    if -ndim <= index < ndim:
        return index % ndim
    raise told(
        ShapeError,
        f"dim {index} is out of range",
        given=f"a tensor {x.spec}, dim {index}",
        expected=f"{-ndim} to {ndim - 1}" if ndim else "a tensor with at least one axis",
        mend="count axes from 0, or from the end with -1" if ndim else "give it an axis with unsqueeze_dim(0)",
    )
