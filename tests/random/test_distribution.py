"""Distribution: what it refuses, how it prints, and what it draws for each element type."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from typing import Any

import numpy as np
import pytest

from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.module import StepScope
from burn_torch.tensor import Device, Tensor

ALL = [
    Distribution.Default,
    Distribution.Bernoulli(0.25),
    Distribution.Uniform(-2, 5),
    Distribution.Normal(1.0, 0.5),
]


def any_value(x: Any) -> Any:
    return x


def draw(distribution: Distribution, dtype: DType, count: int = 20_000) -> Any:
    with StepScope(3):
        drawn = Tensor.random((count,), distribution, (Device.cpu(), dtype))
    assert drawn.spec.dtype is dtype
    return drawn.into_data().values


@pytest.mark.parametrize("distribution", ALL, ids=repr)
def test_they_are_values(distribution: Distribution) -> None:
    assert isinstance(distribution, Distribution)
    assert eval(repr(distribution)) == distribution
    assert pickle.loads(pickle.dumps(distribution)) == distribution == copy.deepcopy(distribution)
    assert len({*ALL, copy.deepcopy(distribution)}) == 4


def test_they_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="p"):
        ALL[1].p = 0.5  # type: ignore[attr-defined]


def test_numbers_of_numpy_become_python_numbers() -> None:
    low, high = np.array([0.5], np.float32), np.array([2**60])
    numbers: list[Any] = [low[0], high[0]]
    uniform = Distribution.Uniform(*numbers)
    assert (type(uniform.low), type(uniform.high), uniform.high) == (float, int, 2**60)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: Distribution.Bernoulli(1.1),
            ArgumentError,
            r"(?s)Bernoulli: the prob.*given:    1\.1.*0 to 1.*mend: ",
        ),
        (lambda: Distribution.Bernoulli(math.nan), ArgumentError, r"(?s)given:    nan.*expected: .*mend: "),
        (lambda: Distribution.Uniform(2, 2), ArgumentError, r"(?s)Uniform: .*low 2, high 2.*low < high.*Tensor\.full"),
        (
            lambda: Distribution.Uniform(-1.7e308, 1.7e308),
            ArgumentError,
            r"(?s)endless.*low -1.*so is high - low.*mend",
        ),
        (lambda: Distribution.Normal(0, -1), ArgumentError, r"(?s)Normal: .*mean 0, std -1.*deviation >= 0.*mend: "),
        (lambda: Distribution.Normal(math.inf, 1), ArgumentError, r"(?s)mean inf, std 1.*finite mean.*mend: "),
        (
            lambda: Distribution.Normal(any_value("0"), 1),
            DTypeError,
            r"(?s)mean is not a number.*'0' of type str.*expected.*mend: ",
        ),
        (
            lambda: Distribution.Bernoulli(True),
            DTypeError,
            r"(?s)p is not a number.*True of type bool.*expected.*mend: ",
        ),
    ],
)
def test_parameters_out_of_range(make: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_what_each_draws_for_floats() -> None:
    default, bernoulli, uniform, normal = (draw(distribution, DType.F32) for distribution in ALL)
    assert 0 <= default.min() < 0.01 < 0.99 < default.max() < 1
    assert set(bernoulli.tolist()) == {0.0, 1.0}
    assert abs(bernoulli.mean() - 0.25) < 0.02
    assert -2 <= uniform.min() < -1.9
    assert 4.9 < uniform.max() < 5
    assert abs(normal.mean() - 1) < 0.02
    assert abs(normal.std() - 0.5) < 0.02


def test_what_each_draws_for_integers_and_bools() -> None:
    assert sorted(set(draw(Distribution.Default, DType.I64).tolist())) == list(range(255))
    assert sorted(set(draw(Distribution.Default, DType.I8).tolist())) == list(range(127))
    assert sorted(set(draw(Distribution.Uniform(-1.5, 2.5), DType.I32).tolist())) == [-1, 0, 1, 2]
    assert sorted(set(draw(Distribution.Bernoulli(0.5), DType.U8).tolist())) == [0, 1]
    assert abs(draw(Distribution.Default, DType.BOOL).mean() - 0.5) < 0.02
    assert abs(draw(Distribution.Bernoulli(0.1), DType.BOOL).mean() - 0.1) < 0.02


@pytest.mark.parametrize(
    ("distribution", "dtype"),
    [(ALL[3], DType.I64), (ALL[2], DType.BOOL), (ALL[3], DType.BOOL)],
    ids=repr,
)
def test_pairs_without_meaning(distribution: Distribution, dtype: DType) -> None:
    with pytest.raises(DTypeError, match=rf"(?s){dtype} values cannot be drawn.*given: .*expected: .*mend: "):
        draw(distribution, dtype)
