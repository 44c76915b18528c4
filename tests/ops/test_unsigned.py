"""Integers of all widths over their whole ranges: each row beside numpy, and programs drawn at random.

NdArray is numpy; LibTorch computes u16, u32 and u64 on signed integers of the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import INT, DType
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.core.spec import TensorSpec
from burn_torch.ops import REGISTRY
from tests.ops import table_harness as table
from tests.ops.table_harness import NUMPY, TORCH, Array

INTEGERS: Final = sorted(INT.members, key=repr)
WIDE: Final = (DType.U16, DType.U32, DType.U64)


def whole_range(generator: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Elements of which half are ends of the range, its middle, and small numbers."""
    low, high = dtype.limits
    edges = np.array([low, low + 1, high, high - 1, (low + high) // 2, (low + high) // 2 + 1, 0, 1, 2, 3], dtype.numpy)
    anywhere = generator.integers(low, high, shape, dtype=dtype.numpy, endpoint=True)
    return np.where(generator.random(shape) < 0.5, anywhere, generator.choice(edges, shape))


def draw(generator: np.random.Generator, x: Any, dtype: DType) -> Any:
    """An input of a sample as integers over the whole range; indices and truth values as they are."""
    if isinstance(x, np.ndarray):
        values = whole_range(generator, x.shape, dtype) if x.dtype.kind == "f" else x
        return TensorData(values, DType.from_numpy(values.dtype))
    if isinstance(x, float):
        return int(generator.integers(1, min(dtype.limits[1], 1 << 62)))
    return abs(x) if dtype.kind == "uint" and isinstance(x, int) else x


def cases_on(dtype: DType) -> list[tuple[str, table.Case, list[Any]]]:
    """The samples of all rows that take this integer type in place of floats."""
    cases = []
    for name, row in REGISTRY.items():
        if "::" in name or table.is_of_numbers(row) or row.random or row.collective:
            continue
        for case in table.cases(name):
            if not any(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in case.inputs) or "place" in case.attrs:
                continue
            data = [draw(case.generator(f"whole {dtype}"), x, dtype) for x in case.inputs]
            try:
                row.bind([table.spec_of(x, "cpu") for x in data], case.attrs)
            except DTypeError:
                break  # no row of integers
            cases.append((name, case, data))
    return cases


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_rows_of_integers_give_what_numpy_gives(dtype: DType) -> None:
    names = set()
    for name, case, data in cases_on(dtype):
        if name in ("div", "remainder", "fmod"):
            data = [_without_zeros(x) for x in data]
        call = case.row.bind([table.spec_of(x, "cpu") for x in data], case.attrs)
        results = []
        for leaf in (TORCH, NUMPY):
            inputs = [leaf.from_data(x, "cpu") if isinstance(x, TensorData) else x for x in data]
            results.append(table.arrays(leaf, list(leaf.execute(call, inputs))))
        if name == "topk_with_indices":  # which of equal elements is open
            results = [each[:1] for each in results]
        for ours, numpys in zip(*results, strict=True):
            assert ours.dtype == numpys.dtype, (case, dtype)
            assert np.array_equal(ours, numpys), (case, data, ours, numpys)
        names.add(name)
    assert len(names) > 70


def _without_zeros(x: Any) -> Any:
    return TensorData(np.where(x.array == 0, x.array + 1, x.array), x.dtype) if isinstance(x, TensorData) else x


# -- programs -----------------------------------------------------------------------------------------------
Step = Callable[[Tensor, Tensor], Tensor]
STEPS: Final[dict[str, tuple[Step, Callable[[Array, Array], Array]]]] = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "div": (lambda x, y: x / y.clamp_min(1), np.floor_divide),
    "rest": (lambda x, y: x % y.clamp_min(1), lambda x, y: np.remainder(x, np.maximum(y, 1))),
    "power": (lambda x, y: x.powi(y.remainder(5)), lambda x, y: np.power(x, np.remainder(y, 5))),
    "and": (lambda x, y: x.bitwise_and(y), np.bitwise_and),
    "xor": (lambda x, y: x.bitwise_xor(y), np.bitwise_xor),
    "not": (lambda x, y: x.bitwise_not(), lambda x, y: np.bitwise_not(x)),
    "left": (lambda x, y: x.bitwise_left_shift(y.remainder(99)), lambda x, y: np.left_shift(x, np.remainder(y, 99))),
    "right": (lambda x, y: x.bitwise_right_shift(y.remainder(99)), lambda x, y: np.right_shift(x, np.remainder(y, 99))),
    "maximum": (lambda x, y: x.max_pair(y), np.maximum),
    "clamp": (lambda x, y: x.clamp(2, 100), lambda x, y: np.clip(x, 2, 100)),
    "where": (lambda x, y: x.mask_where(x.greater(y), y), lambda x, y: np.where(x > y, y, x)),
    "sort": (lambda x, y: x.sort_descending(1), lambda x, y: -np.sort(-x.astype(object), 1)),
    "sums": (lambda x, y: x + y.sum_dim(0), lambda x, y: x + y.sum(0, keepdims=True, dtype=y.dtype)),
    "scan": (lambda x, y: x.cumsum(0), lambda x, y: np.cumsum(x, 0, dtype=x.dtype)),
    "largest": (lambda x, y: x - y.max_dim(1), lambda x, y: x - y.max(1, keepdims=True)),
    "where_is": (lambda x, y: x + y.argmin(0).cast(x.dtype), lambda x, y: x + y.argmin(0)[None].astype(x.dtype)),
    "product": (lambda x, y: x.matmul(y.transpose()).matmul(x), lambda x, y: x @ y.T @ x),
    "taken": (lambda x, y: x.select(0, y.argmax(1).flatten().clamp(0, 2)), lambda x, y: x[np.minimum(y.argmax(1), 2)]),
    "wider": (lambda x, y: x.cast(DType.I64).cast(x.dtype), lambda x, y: x),
    "turned": (lambda x, y: x.neg().abs().sign() * x, lambda x, y: np.sign(np.abs(-x)) * x),
}


def numpys(name: str, x: Array, y: Array) -> Array:
    """A step in numpy, whose quotient of integers rounds down where ours cuts toward zero."""
    if name == "div":
        divisor = np.maximum(y, 1)
        return (x // divisor) + ((x % divisor != 0) & (x < 0)).astype(x.dtype)
    return np.asarray(STEPS[name][1](x, y)).astype(x.dtype)


@pytest.mark.parametrize("number", [*range(10), *(pytest.param(i, marks=pytest.mark.slow) for i in range(10, 200))])
def test_programs_of_integers_give_what_numpy_gives(number: int) -> None:
    generator = np.random.default_rng(number)
    dtype = [*WIDE, *INTEGERS][number % 11]
    names = [str(name) for name in generator.choice(list(STEPS), 6)]
    x, y = whole_range(generator, (3, 4), dtype), whole_range(generator, (3, 4), dtype)
    expected = [x, y]
    with np.errstate(all="ignore"):
        for name in names:
            expected.append(numpys(name, *expected[-2:]))

    def program(x: Tensor, y: Tensor) -> list[Tensor]:
        values = [x, y]
        for name in names:
            values.append(STEPS[name][0](*values[-2:]))
        return values

    for device in (Device.cpu(), Device.ndarray(), Device.cpu(fused=True)):
        inputs = [Tensor.from_data(TensorData(v, dtype), device) for v in (x, y)]
        for run in (program, compile(program)):
            for name, ours, theirs in zip(["x", "y", *names], run(*inputs), expected, strict=True):
                assert ours.dtype is dtype
                assert np.array_equal(ours.into_data().array, theirs), (device, run, dtype, names, name)


# -- ends ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", WIDE, ids=repr)
@pytest.mark.parametrize("device", [Device.cpu(), Device.ndarray()], ids=repr)
def test_numbers_beyond_the_range_are_refused_in_arithmetic_and_compared_as_they_are(
    dtype: DType, device: Device
) -> None:
    high = dtype.limits[1]
    x = Tensor.from_data(TensorData(np.array([0, 5, high], dtype.numpy), dtype), device)
    assert (x + high).tolist() == [high, 4, high - 1]
    assert (high - x).tolist() == [high, high - 5, 0]
    assert x.lower(high).tolist() == [True, True, False]
    assert x.lower(high + 1).tolist() == [True, True, True]
    assert x.greater_equal(-1).tolist() == [True, True, True]
    assert x.equal(-1).tolist() == [False, False, False]
    assert (x / high).tolist() == [0, 0, 1]
    assert x.bitwise_right_shift(8 * dtype.itemsize - 1).tolist() == [0, 0, 1]
    for wrong in (lambda: x + (high + 1), lambda: x - -1, lambda: x.clamp(-1, 3)):
        with pytest.raises(ArgumentError, match=f"0 to {high}"):
            wrong()
    with pytest.raises(ArgumentError, match="divided by zero"):
        x / 0


@pytest.mark.parametrize("dtype", WIDE, ids=repr)
def test_quotients_and_powers_are_those_of_python(dtype: DType) -> None:
    generator = np.random.default_rng(5)
    x, y = (whole_range(generator, (400,), dtype) for _ in range(2))
    y = np.maximum(y, 1)
    a, b = (Tensor.from_data(TensorData(v, dtype), Device.cpu()) for v in (x, y))
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert (a / b).tolist() == [p // q for p, q in pairs]
    assert (a % b).tolist() == [p % q for p, q in pairs]
    assert a.powi(b).tolist() == [pow(p, q, dtype.limits[1] + 1) for p, q in pairs]


def test_unsigned_values_are_strided_empty_and_without_axes() -> None:
    base = torch.arange(24, dtype=torch.int64).to(torch.uint32).reshape(4, 6)
    x = Tensor.from_torch(base)[:, 1::2].transpose()
    assert (x * x - 1).tolist() == (base.numpy()[:, 1::2].T.astype(object) ** 2 - 1).tolist()
    assert Tensor.from_data(TensorData(np.zeros((0, 3), np.uint64), DType.U64), Device.cpu()).sum_dim(0).tolist() == [
        [0, 0, 0]
    ]
    point = Tensor.from_data(TensorData(np.array(2**63, np.uint64), DType.U64), Device.cpu())
    assert (point / 2).item() == 2**62
    assert (point * 2).item() == 0
    assert point.spec == TensorSpec.of((), DType.U64, "cpu")
