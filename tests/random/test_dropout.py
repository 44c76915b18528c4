"""Dropout: one mask for forward, backward, recomputation and graphs; drawn once, remembered as bits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.backend import Autodiff, LibTorch, NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError
from burn_torch.core.philox import words
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.graph import Trace, interpret
from burn_torch.graph.decomposition import decomposed
from burn_torch.ops import REGISTRY, Value, mask_cache
from burn_torch.ops.mask_cache import PackedMasks
from burn_torch.ops.sampling import threshold
from burn_torch.ops.torch_types import TO_TORCH

KEY, STREAM = 0x1234_5678_9ABC_DEF0, 77
dropout, dropout_mask = REGISTRY["dropout"], REGISTRY["dropout_mask"]
LEAVES = [LibTorch(), NdArray()]


def value(backend: Any, data: Any, dtype: DType = DType.F32) -> Value:
    data = TensorData.of(np.asarray(data), dtype)
    return Value(backend, backend.from_data(data, "cpu"), TensorSpec.of(data.shape, data.dtype, "cpu"))


def expected_mask(prob: float, shape: tuple[int, ...]) -> Any:
    keep = words(KEY, STREAM, 0, int(np.prod(shape))) < threshold(1 - prob)
    return keep.reshape(shape) / (1 - prob)


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("prob", [0.0, 0.1, 0.5, 0.9])
def test_values_and_frequency(leaf: Any, prob: float, seed: np.random.Generator) -> None:
    x = seed.normal(size=(40, 5, 51))
    y = leaf.into_data(dropout(value(leaf, x, DType.F64), prob, KEY, STREAM).primitive).values
    np.testing.assert_array_equal(y, x * expected_mask(prob, x.shape))
    assert abs((y == 0).mean() - prob) < 4 * np.sqrt(prob * (1 - prob) / x.size) + 1e-12


@pytest.mark.parametrize("leaf", LEAVES)
def test_probability_one_gives_zeros(leaf: Any) -> None:
    y = dropout(value(leaf, [[1.5, -2.0, 3.0]]), 1, KEY, STREAM)
    np.testing.assert_array_equal(leaf.into_data(y.primitive).values, np.zeros((1, 3)))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_half_types_hold_no_infinity_where_the_scale_is_too_large(dtype: DType) -> None:
    """1 / (1 - prob) is past the largest f16: dropped elements are 0, not 0 * infinity."""
    prob = 1 - 2.0**-20
    mask = dropout_mask.run(
        LibTorch(), Value, (prob, KEY, STREAM), {"shape": (1 << 22,), "dtype": dtype, "place": "cpu"}
    )
    factors = mask.primitive
    largest = min(2.0**20, torch.finfo(TO_TORCH[dtype]).max)
    assert torch.isfinite(factors).all()
    assert set(factors.unique().tolist()) == {0.0, float(torch.tensor(largest, dtype=TO_TORCH[dtype]))}


@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.F16, DType.BF16])
def test_decomposition_has_the_same_bits(dtype: DType, seed: np.random.Generator) -> None:
    for leaf in LEAVES:
        if dtype is DType.BF16 and leaf is NdArray():
            continue
        x = value(leaf, seed.normal(size=(7, 33)), dtype)
        y = dropout(x, 0.3, KEY, STREAM)
        call = dropout.bind((x.spec, FLOAT_NUMBER, INT_NUMBER, INT_NUMBER), {})
        [z] = interpret(decomposed(call), leaf, [x.primitive, 0.3, KEY, STREAM])
        assert leaf.into_data(z) == leaf.into_data(y.primitive)


def test_a_dropped_nan_stays_visible() -> None:
    y = dropout(value(LibTorch(), [np.nan] * 64), 0.5, KEY, STREAM)
    assert torch.isnan(y.primitive).all()


# -- one mask everywhere -----------------------------------------------------------------------------------
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("checkpoint", ["none", "balanced"])
def test_backward_uses_the_mask_of_the_forward_and_saves_no_tensor(
    leaf: Any, checkpoint: str, seed: np.random.Generator
) -> None:
    stack = Autodiff(leaf, checkpoint)
    x = value(leaf, seed.normal(size=(9, 31)), DType.F64)
    root = stack.track(x.primitive, x.spec)
    y = dropout(Value(stack, root, x.spec), 0.4, KEY, STREAM)
    mask_cache.MASKS.clear()  # what follows may use nothing but the three numbers
    assert y.primitive.node.saved == (0.4, KEY, STREAM)
    upstream = value(leaf, seed.normal(size=(9, 31)), DType.F64)
    grad = stack.backward([(y.primitive, upstream.primitive)])[root.node.id]
    expected = leaf.into_data(upstream.primitive).values * expected_mask(0.4, (9, 31))
    np.testing.assert_array_equal(leaf.into_data(grad).values, expected)


def test_second_order(seed: np.random.Generator) -> None:
    """d/dg of the gradient is the mask again."""
    leaf = LibTorch()
    outer = Autodiff(Autodiff(leaf))
    x = value(leaf, seed.normal(size=(4, 5)), DType.F64)
    tracked = outer.track(outer.inner.track(x.primitive, x.spec), x.spec)
    y = dropout(Value(outer, tracked, x.spec), 0.5, KEY, STREAM)
    z = y * y * y
    ones = leaf.from_data(TensorData.of(np.ones((4, 5))), "cpu")
    inner = outer.inner
    first = outer.backward([(z.primitive, ones)])[tracked.node.id]
    second = inner.backward([(first, ones)])[tracked.primitive.node.id]
    m = expected_mask(0.5, (4, 5))
    np.testing.assert_allclose(leaf.into_data(second).values, 6 * m**3 * leaf.into_data(x.primitive).values, rtol=1e-14)


def test_a_traced_graph_draws_with_the_key_it_is_run_with(seed: np.random.Generator) -> None:
    leaf = LibTorch()
    data = seed.normal(size=(6, 7))
    x = value(leaf, data, DType.F64)
    trace = Trace()
    slot, key = trace.input(x.spec), trace.input(INT_NUMBER)
    graph = trace.graph([dropout(slot, 0.3, key, STREAM)])
    run = leaf.compile(graph)
    for number in (KEY, 5, -1):
        eager = dropout(x, 0.3, number, STREAM)
        assert torch.equal(run(x.primitive, number)[0], eager.primitive)
        assert torch.equal(interpret(graph, leaf, [x.primitive, number])[0], eager.primitive)
    assert not torch.equal(run(x.primitive, 5)[0], run(x.primitive, 6)[0])


def test_a_new_key_makes_no_new_call() -> None:
    x = value(LibTorch(), np.ones((3, 3)))
    dropout(x, 0.5, 1, 2)
    before = len(dropout.calls)
    for key in range(50):
        dropout(x, 0.5 + key / 1000, key, key * 7)
    assert len(dropout.calls) == before


# -- remembered masks ----------------------------------------------------------------------------------------
def test_masks_are_remembered_as_bits_and_forgotten_in_order() -> None:
    each = 10 + mask_cache.ENTRY_BYTES
    masks = PackedMasks(limit_bytes=3 * each)
    first = masks.keep(1 << 31, 1, 2, 80)
    assert masks.held_bytes == each
    np.testing.assert_array_equal(masks.keep(1 << 31, 1, 2, 80), first)
    assert masks.held_bytes == 0  # forward and backward had it
    for key in (2, 3, 1, 4):
        masks.keep(1 << 31, key, 2, 80)
    assert [name[1] for name in masks._masks] == [3, 1, 4]
    assert masks.held_bytes == 3 * each
    masks.keep(1 << 31, 5, 2, 8 * masks.limit_bytes + 8)  # more than all may have
    assert masks.held_bytes == 3 * each
    masks.clear()
    assert masks.held_bytes == 0


def test_many_small_masks_stay_below_the_limit() -> None:
    masks = PackedMasks(limit_bytes=1 << 16)
    for key in range(2000):
        masks.keep(1 << 31, key, 2, 8)
    assert masks.held_bytes <= 1 << 16
    assert len(masks._masks) <= (1 << 16) // mask_cache.ENTRY_BYTES


def test_a_remembered_mask_belongs_to_the_caller() -> None:
    masks = PackedMasks(limit_bytes=10_000)
    for _ in range(2):
        mask = masks.keep(1 << 31, 1, 2, 13)
        assert set(mask.tolist()) <= {0, 1}
        assert mask.any()
        mask[:] = 0
    assert masks.keep(1 << 31, 1, 2, 13).any()


def test_the_second_use_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = PackedMasks(limit_bytes=10_000)
    first = masks.keep(1 << 30, 8, 9, 77)
    monkeypatch.setattr(mask_cache, "on_host", None)
    np.testing.assert_array_equal(masks.keep(1 << 30, 8, 9, 77), first)
    with pytest.raises(TypeError, match="not callable"):
        masks.keep(1 << 30, 8, 10, 77)


def test_many_threads_share_the_masks() -> None:
    masks = PackedMasks(limit_bytes=2 * (50 + mask_cache.ENTRY_BYTES))
    expected = {key: words(key, 0, 0, 400) < 1 << 31 for key in range(8)}
    wrong: list[int] = []

    def work() -> None:
        same = [np.array_equal(masks.keep(1 << 31, i % 8, 0, 400), expected[i % 8]) for i in range(200)]
        wrong.append(200 - sum(same))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0, 0, 0, 0]
    held = [packed.nbytes + mask_cache.ENTRY_BYTES for packed in masks._masks.values()]
    assert masks.held_bytes == sum(held) <= masks.limit_bytes


# -- errors ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("leaf", LEAVES)
def test_probability_out_of_range(leaf: Any) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)dropout: the probability.*given:    1\.01.*from 0 to 1.*mend: "):
        dropout(value(leaf, [1.0]), 1.01, KEY, STREAM)


def test_integers_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"(?s)dropout: x has an element type.*x \(2,\) i64.*x of type float.*float"):
        dropout(value(LibTorch(), [1, 2], DType.I64), 0.5, KEY, STREAM)
    with pytest.raises(
        DTypeError, match=r"(?s)dropout: stream is a float number.*expected: stream: a whole.*stream_of"
    ):
        dropout(value(LibTorch(), [1.0]), 0.5, KEY, 2.0)
