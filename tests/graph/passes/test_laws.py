"""The promises of rows to passes (laws, layouts, merges) hold on both leaves, bit for bit, in every float type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from burn_torch.graph.passes.constants import held_by
from burn_torch.ops import REGISTRY, Op
from burn_torch.ops.laws import Exchange, Idempotent, Moves, Neutral, OfEqual, OnHost, Rewrite, SelfInverse, Uniform
from tests.graph.random_graphs import assert_same_bits
from tests.ops import table_harness as table

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
TINY = {DType.F32: 1e-45, DType.F64: 5e-324, DType.F16: 6e-8, DType.BF16: 1e-40}
SHAPES = ((7, 5), (3,), (), (0, 4), (40, 33))
NUMBERS = (0.5, -2.0, 3.0, 0.1, -0.0, 0.0, 1.0, math.inf, math.nan, 1e-3)


def rows_with(law: type) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [r for r in REGISTRY.values() if law in r.laws], ids=lambda r: r.name)


def leaves(dtype: DType) -> list[Any]:
    return [LibTorch()] if dtype is DType.BF16 else [LibTorch(), NdArray()]


def drawn(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> TensorData:
    """Random values with NaN, zeros of both signs, infinities and subnormals; of other types whole or truth values."""
    if dtype.is_bool:
        return TensorData.of(np.asarray(rng.random(shape) < 0.5))
    if dtype.is_int:
        return TensorData.of(np.asarray(rng.integers(-100, 100, shape))).convert(dtype)
    values = np.asarray(rng.normal(size=shape) * 4)
    if values.size:
        special = rng.random(shape) < 0.3
        tiny = TINY[dtype]
        pool = [math.nan, math.inf, -math.inf, 0.0, -0.0, tiny, -3 * tiny, 1.0]
        values[special] = rng.choice(pool, size=int(special.sum()))
    return TensorData.of(values).convert(dtype)


def laid_out(leaf: Any, data: TensorData) -> Iterator[Any]:
    """The tensor in rows, with its axes reversed in memory, and with gaps."""
    x = leaf.from_data(data, "cpu")
    yield x
    if data.array.ndim > 1:
        back = tuple(reversed(range(data.array.ndim)))
        if isinstance(x, torch.Tensor):
            yield x.permute(back).contiguous().permute(back)
        else:
            yield np.asfortranarray(x)
    if data.array.ndim:
        if isinstance(x, torch.Tensor):
            yield torch.stack([x, torch.ones_like(x)], -1)[..., 0]
        else:
            yield np.stack([x, np.ones_like(x)], -1)[..., 0]


def types_of(row: Op) -> list[DType]:
    """Those that the row takes."""
    accepted = []
    for dtype in (*FLOATS, DType.I64, DType.I8, DType.BOOL):
        s = TensorSpec.of((2,), dtype, "cpu")
        count = len(row.signature.inputs)
        try:
            row.bind([s] * count, {})
        except Exception:  # the fault of a type that it does not take
            continue
        accepted.append(dtype)
    return accepted


def execute(leaf: Any, row: Op, *inputs: Any, **attrs: Any) -> Any:
    specs = [NUMBER_SPECS[type(x)] if isinstance(x, int | float) else leaf.spec(x) for x in inputs]
    with np.errstate(all="ignore"):
        return leaf.execute(row.bind(specs, attrs), inputs)[0]


def assert_same(leaf: Any, actual: Any, expected: Any) -> None:
    """The same bits, in the same layout."""
    assert_same_bits([read(leaf, actual)], [read(leaf, expected)])
    assert places(actual) == places(expected)


def read(leaf: Any, x: Any) -> Any:
    return np.asarray(leaf.into_data(x).values)


def places(x: Any) -> list[tuple[int, int]]:
    """Sizes and strides of the axes with more than one element; nothing of empty tensors."""
    strides = x.stride() if isinstance(x, torch.Tensor) else [s // x.itemsize for s in x.strides]
    return [(n, s) for n, s in zip(x.shape, strides, strict=True) if n != 1] if 0 not in x.shape else []


def dense(x: Any) -> bool:
    expected = 1
    for size, stride in sorted(places(x), key=lambda p: p[1]):
        if stride != expected:
            return False
        expected *= size
    return True


def contiguous(x: Any) -> bool:
    expected = 1
    for size, stride in reversed(places(x)):
        if stride != expected:
            return False
        expected *= size
    return True


def inputs_of(row: Op, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Leaves and tensors of every type that the row takes, in every layout."""
    for dtype, shape in itertools.product(types_of(row), SHAPES):
        data = drawn(shape, dtype, rng)
        for leaf in leaves(dtype):
            for x in laid_out(leaf, data):
                yield leaf, x


def number_of(leaf: Any, x: Any, number: float) -> Any:
    return number if leaf.spec(x).dtype.is_float else int(number)


# -- laws --------------------------------------------------------------------------------------------
@rows_with(Neutral)
def test_neutral_numbers_change_no_bit(row: Op, seed: np.random.Generator) -> None:
    law = row.law(Neutral)
    assert law is not None
    for leaf, x in inputs_of(row, seed):
        number = number_of(leaf, x, law.number)
        for at in law.at:
            y = execute(leaf, row, *((number, x) if at == 0 else (x, number)))
            assert_same_bits([read(leaf, y)], [read(leaf, x)])
            assert not dense(x) or places(y) == places(x)


@rows_with(SelfInverse)
def test_self_inverse_rows_undo_themselves(row: Op, seed: np.random.Generator) -> None:
    for leaf, x in inputs_of(row, seed):
        y = execute(leaf, row, execute(leaf, row, x))
        assert_same_bits([read(leaf, y)], [read(leaf, x)])
        assert not dense(x) or places(y) == places(x)


@rows_with(Idempotent)
def test_idempotent_rows_do_nothing_the_second_time(row: Op, seed: np.random.Generator) -> None:
    for leaf, x in inputs_of(row, seed):
        once = execute(leaf, row, x)
        assert_same(leaf, execute(leaf, row, once), once)


@rows_with(Exchange)
def test_exchanged_inputs_change_no_bit(row: Op, seed: np.random.Generator) -> None:
    for dtype, shape in itertools.product(types_of(row), SHAPES):
        for leaf in leaves(dtype):
            x, y = (leaf.from_data(drawn(s, dtype, seed), "cpu") for s in (shape, shape[-1:]))
            assert_same(leaf, execute(leaf, row, x, y), execute(leaf, row, y, x))
            number = True if dtype.is_bool else 3 if dtype.is_int else 0.3
            if "operand" in row.signature.inputs[0][1]:
                assert_same(leaf, execute(leaf, row, x, number), execute(leaf, row, number, x))


@rows_with(Uniform)
def test_a_number_gives_the_bits_of_a_tensor_full_of_it(row: Op, seed: np.random.Generator) -> None:
    law = row.law(Uniform)
    assert law is not None
    for leaf, x in inputs_of(row, seed):
        s = leaf.spec(x)
        for number in NUMBERS:
            value = held_by(s.dtype, number if s.dtype.is_float else bool(number) if s.dtype.is_bool else 7)
            if value is None:
                continue
            one = leaf.from_data(TensorData.of(np.full((1,) * len(s.shape), value)).convert(s.dtype), "cpu")
            uniform = one.expand(s.shape) if isinstance(one, torch.Tensor) else np.broadcast_to(one, s.shape)
            for at in law.at:
                pairs = [(other, x) if at == 0 else (x, other) for other in (value, uniform)]
                assert_same(leaf, execute(leaf, row, *pairs[0]), execute(leaf, row, *pairs[1]))


@rows_with(OnHost)
def test_the_host_computes_what_leaves_compute(row: Op) -> None:
    count = len(row.signature.inputs)
    for dtype in (DType.F32, DType.F64):
        for numbers in itertools.product((*NUMBERS, 1e30, -7.3, 1e-30), repeat=count):
            held = [held_by(dtype, n) for n in numbers]
            assert row.scalar is not None
            value = held_by(dtype, row.scalar(*held))
            for leaf in leaves(dtype):
                tensors = [leaf.from_data(TensorData.of(np.full((5,), n)).convert(dtype), "cpu") for n in held]
                output = read(leaf, execute(leaf, row, *tensors))
                tiny = value is not None and abs(value) < np.finfo(dtype.numpy).tiny  # the pass leaves these alone
                if value is not None and not tiny:
                    assert_same_bits([output], [np.full((5,), value, dtype.numpy)])


@rows_with(OfEqual)
def test_reductions_of_equal_elements(row: Op) -> None:
    law = row.law(OfEqual)
    assert law is not None
    for leaf in leaves(DType.F64):
        x = leaf.from_data(TensorData.of(np.full((6, 5), -1.75)), "cpu")
        output = read(leaf, execute(leaf, row, x, dims=(0, 1)))
        np.testing.assert_allclose(output, [[law.reduce(-1.75, 30)]], rtol=1e-15)


@rows_with(Rewrite)
def test_rewritten_rows_agree_but_for_rounding(row: Op, seed: np.random.Generator) -> None:
    law = row.law(Rewrite)
    assert law is not None
    x = seed.normal(size=(50,))
    leaf, seen = LibTorch(), 0
    for number in (2.0, 4.0, -0.3, 7.0):
        other = law.number(number)
        if other is not None:
            seen += 1
            tensor = leaf.from_data(TensorData.of(x), "cpu")
            rewritten = execute(leaf, REGISTRY[law.row], tensor, tensor if other == "x" else other)
            np.testing.assert_allclose(
                read(leaf, rewritten), read(leaf, execute(leaf, row, tensor, number)), rtol=1e-15
            )
    assert seen
    assert law.number(0.0) is None


# -- memory ------------------------------------------------------------------------------------------
ARRANGED: Sequence[Callable[[Any], Any]] = (
    lambda x: x,
    lambda x: x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim))) if x.ndim > 1 else x,
    lambda x: torch.stack([x, x], -1)[..., 0],
)


def arranged(x: Any, how: int) -> Any:
    if isinstance(x, torch.Tensor):
        return ARRANGED[how](x)
    if not isinstance(x, np.ndarray) or how == 0:
        return x
    return (np.asfortranarray(x) if x.ndim > 1 else x) if how == 1 else np.stack([x, x], -1)[..., 0]


@pytest.mark.parametrize("name", [name for name, row in REGISTRY.items() if "::" not in name and not row.barrier])
def test_results_lie_in_memory_as_the_row_says(name: str) -> None:
    row = REGISTRY[name]
    for case in table.cases(name):
        variant = next(table.variants(case))
        call = variant.call("cpu")
        for leaf, how in itertools.product((LibTorch(), NdArray()), (0, 1, 2)):
            inputs = [arranged(table.primitive(leaf, x, "cpu"), how) for x in variant.data]
            with np.errstate(all="ignore"):
                outputs = leaf.execute(call, inputs)
            tensors = [x for x in inputs if isinstance(x, torch.Tensor | np.ndarray)]
            for y in outputs:
                if y is None:
                    continue
                what = f"{leaf} {case!r} {how}: strides {places(y)}"
                if call.is_input:
                    assert not dense(inputs[0]) or places(y) == places(inputs[0]), what
                if call.aliases:
                    if row.packed in ("input", "order"):
                        assert dense(y) or not dense(inputs[0]), what
                    if row.packed == "input":
                        assert contiguous(y) or not contiguous(inputs[0]), what
                    continue
                if row.packed != "any":
                    assert dense(y), what
                if row.packed in ("contiguous", "follows") and all(map(contiguous, tensors)):
                    assert contiguous(y), what
                if row.packed == "follows" and isinstance(leaf, LibTorch) and call.specs[0] is call.result:
                    assert not dense(inputs[0]) or places(y) == places(inputs[0]), what


@pytest.mark.parametrize("name", [name for name, row in REGISTRY.items() if row.only_if_same])
def test_only_a_call_that_gives_its_input_shares_memory(name: str) -> None:
    for case in table.cases(name):
        for variant in table.variants(case):
            for leaf in (LibTorch(), NdArray()):
                if variant.dtype is DType.BF16 and isinstance(leaf, NdArray):
                    continue
                call, inputs, outputs = table.execute(leaf, variant)
                if isinstance(leaf, LibTorch):
                    shared = outputs[0].untyped_storage().data_ptr() == inputs[0].untyped_storage().data_ptr()
                else:
                    shared = np.shares_memory(outputs[0], inputs[0])
                assert call.aliases is call.is_input
                assert shared is call.is_input or inputs[0].size == 0 or outputs[0].shape.count(0), case


def merges(row: Op) -> Iterator[tuple[TensorSpec, dict[str, Any], dict[str, Any]]]:
    x = TensorSpec.of((2, 3, 4), DType.F32, "cpu")
    chains: dict[str, list[tuple[Any, Any]]] = {
        "reshape": [((6, 4), (24,)), ((2, 3, 2, 2), (6, 4)), ((2, 1, 3, 4), (2, 3, 4)), ((24,), (2, 3, 4))],
        "permute": [((2, 0, 1), (1, 0, 2)), ((2, 0, 1), (1, 2, 0))],
        "expand": [((5, 2, 3, 4), (6, 5, 2, 3, 4))],
        "flip": [((0, 1), (1, 2)), ((0,), (0,)), ((), (1,))],
        "slice": [
            (((0, 2, 1), (1, 3, 1), (0, 4, 2)), ((1, 2, 1), (0, 2, 1), (1, 2, 1))),
            (((0, 2, 1), (0, 3, 2), (1, 4, 1)), ((0, 2, 1), (1, 1, 1), (0, 3, 2))),
        ],
        "cast": [(DType.F64, DType.F32), (DType.F64, DType.F16), (DType.F32, DType.I64), (DType.F16, DType.F32)],
    }
    attribute = next(iter(row.signature.attrs))
    for first, second in chains[row.name]:
        yield x, {attribute: first}, {attribute: second}


@pytest.mark.parametrize("row", [r for r in REGISTRY.values() if r.merge is not None], ids=lambda r: r.name)
def test_merged_calls_do_what_both_do(row: Op, seed: np.random.Generator) -> None:
    assert row.merge is not None
    merged_once = False
    for s, first, second in merges(row):
        inner = row.bind([s], first)
        outer = row.bind([inner.result], second)
        data = drawn(s.shape, s.dtype, seed)
        for leaf in leaves(s.dtype):
            for number, x in enumerate(laid_out(leaf, data)):
                for exact in (True, False):
                    attrs = row.merge(inner, outer, exact)
                    if attrs is None:
                        continue
                    merged_once = True
                    with np.errstate(all="ignore"):
                        expected = leaf.execute(outer, leaf.execute(inner, [x]))[0]
                        actual = leaf.execute(row.bind([s], attrs), [x])[0]
                    assert_same_bits([read(leaf, actual)], [read(leaf, expected)])
                    joined = row.bind([s], attrs)
                    if exact and (joined.aliases or not joined.is_input) and not joined.is_input:
                        assert places(actual) == places(expected), (number, first, second)
    assert merged_once


def test_rounding_casts_are_not_merged() -> None:
    cast = REGISTRY["cast"]
    assert cast.merge is not None
    for start, between, end in [
        (DType.F32, DType.F16, DType.F32),
        (DType.F32, DType.BF16, DType.F16),
        (DType.F16, DType.BF16, DType.F32),
        (DType.I64, DType.F64, DType.I64),
        (DType.I32, DType.F32, DType.F64),
        (DType.F32, DType.F64, DType.I8),
        (DType.I64, DType.I32, DType.I64),
        (DType.F32, DType.BOOL, DType.F32),
    ]:
        inner = cast.bind([TensorSpec.of((2,), start, "cpu")], {"dtype": between})
        assert cast.merge(inner, cast.bind([inner.result], {"dtype": end}), False) is None, (start, between, end)


def test_moving_rows_make_nothing_new(seed: np.random.Generator) -> None:
    for row in REGISTRY.values():
        law = row.law(Moves)
        if law is None:
            continue
        for case in table.cases(row.name):
            variant = next(table.variants(case))
            call, inputs, outputs = table.execute(NdArray(), variant)
            assert set(np.asarray(outputs[0]).ravel().tolist()) <= set(np.asarray(inputs[0]).ravel().tolist())
            x, y = np.asarray(inputs[0]), np.asarray(outputs[0])
            if law.tight or law.ordered:
                assert y.size == x.size
            if law.ordered:
                np.testing.assert_array_equal(y.ravel(), x.ravel())
            if law.axes is not None:
                np.testing.assert_array_equal(y, np.transpose(x, law.axes(call)))
