"""Distribution: what `Tensor.random` draws from."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import ClassVar, final

from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.core.misfits import worded_late

__all__ = ["Distribution", "check_normal", "check_probability", "check_uniform"]


class Distribution:
    """One of four: `Distribution.Default`, `.Bernoulli(p)`, `.Uniform(low, high)`, `.Normal(mean, std)`.

    `Default` is uniform on [0, 1) for floats, on 0 to 254 for integers, and a fair coin for bool.  Immutable; equal
    parameters compare equal.

    >>> Distribution.Uniform(-1, 1)
    Distribution.Uniform(low=-1, high=1)
    >>> Distribution.Default
    Distribution.Default
    """

    __slots__ = ()

    Default: ClassVar[_Default]
    Bernoulli: ClassVar[type[_Bernoulli]]
    Uniform: ClassVar[type[_Uniform]]
    Normal: ClassVar[type[_Normal]]


@final
class _Default(Distribution):
    """Uniform on [0, 1) for floats, on 0 to 254 for integers, a fair coin for bool."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Distribution.Default"

    def __reduce__(self) -> str:
        return "Distribution.Default"


@final
@dataclass(frozen=True)
class _Bernoulli(Distribution):
    """1 with probability `p`, else 0.

    Raises: DTypeError unless p is a number; ArgumentError unless 0 <= p <= 1.
    """

    p: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", _number("Distribution.Bernoulli", "p", self.p))
        check_probability("Distribution.Bernoulli", self.p)


@final
@dataclass(frozen=True)
class _Uniform(Distribution):
    """Evenly from [low, high): `high` itself is never drawn.

    Raises: DTypeError unless both are numbers; ArgumentError unless low < high and high - low is finite.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _number("Distribution.Uniform", "low", self.low))
        object.__setattr__(self, "high", _number("Distribution.Uniform", "high", self.high))
        check_uniform("Distribution.Uniform", self.low, self.high)


@final
@dataclass(frozen=True)
class _Normal(Distribution):
    """The normal distribution of mean `mean` and standard deviation `std`.

    Raises: DTypeError unless both are numbers; ArgumentError unless both are finite and std >= 0.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _number("Distribution.Normal", "mean", self.mean))
        object.__setattr__(self, "std", _number("Distribution.Normal", "std", self.std))
        check_normal("Distribution.Normal", self.mean, self.std)


Distribution.Default = _Default()
Distribution.Bernoulli = _Bernoulli
Distribution.Uniform = _Uniform
Distribution.Normal = _Normal
for _kind in (_Bernoulli, _Uniform, _Normal):  # the names under which users and pickle find them
    _kind.__qualname__ = f"Distribution.{_kind.__name__[1:]}"
    _kind.__init__ = worded_late(_kind.__init__, _kind.__qualname__)  # type: ignore[method-assign]  # the same function, checked


# -- checks, shared with the rows that draw ----------------------------------------------------------
def check_probability(who: str, prob: float) -> None:
    """Raises ArgumentError, in the name of `who`, unless 0 <= prob <= 1."""
    if not 0 <= prob <= 1:
        raise ArgumentError(
            f"{who}: the probability is out of range",
            given=f"{prob}",
            expected="a number from 0 to 1, both included",
            mend="divide a percentage by 100",
        )


def check_uniform(who: str, low: float, high: float) -> None:
    """Raises ArgumentError, in the name of `who`, unless low < high and high - low is finite."""
    if not (low < high and math.isfinite(float(high) - float(low))):
        raise ArgumentError(
            f"{who}: the range is empty or endless",
            given=f"low {low}, high {high}",
            expected="low < high, both finite, and so is high - low",
            mend="name the lower end first; for one constant value use Tensor.full",
        )


def check_normal(who: str, mean: float, std: float) -> None:
    """Raises ArgumentError, in the name of `who`, unless both are finite and std >= 0."""
    if not (math.isfinite(mean) and 0 <= std < math.inf):
        raise ArgumentError(
            f"{who}: the parameters describe no normal distribution",
            given=f"mean {mean}, std {std}",
            expected="a finite mean and a finite standard deviation >= 0",
            mend="give the standard deviation, which is the square root of the variance",
        )


def _number(who: str, name: str, value: object) -> float:
    # int stays int: where integers are drawn, float would lose the last digits of a large one
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise DTypeError(
        f"{who}: {name} is not a number",
        given=f"{value!r} of type {type(value).__name__}",
        expected="a Python number",
        mend=f"write {who}(...) with numbers; a tensor of one element gives its own with into_scalar()",
    )
