"""Attention against PyTorch and against the formula: masks, queries that see nothing, shared heads, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from burn_torch import Autodiff, Device, Tensor, vjp
from burn_torch.backend.autodiff.derive import derive
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from burn_torch.ops import REGISTRY, attention
from burn_torch.ops.attending_torch import torch_attention, torch_attention_backward
from tests.ops.twins import LEAVES, close, compare, gradients, run

Q, K, V = (2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 7)


def _draw(seed: np.random.Generator, *shapes: tuple[int, ...]) -> list[Any]:
    return [seed.uniform(-2, 2, shape) for shape in shapes]


def _formula(
    query: Any, key: Any, value: Any, mask: Any, bias: Any, scale: float, softcap: Any, *, hidden: Any = None
) -> Any:
    # attention by its definition; rows that see nothing are left out by a softmax over finite numbers
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(2, 3) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    shut = torch.zeros_like(scores, dtype=torch.bool)
    for more in (mask, hidden, None if bias is None else torch.isneginf(bias)):
        shut = shut if more is None else shut | more
    blind = shut.all(-1, keepdim=True)
    weights = torch.softmax(torch.where(blind, 0.0, torch.where(shut, -math.inf, scores)), -1)
    return torch.where(blind, 0.0, weights) @ value


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_torchs(causal: bool, seed: np.random.Generator) -> None:
    def twin(query: Any, key: Any, value: Any, mask: Any, bias: Any, scale: float, softcap: Any) -> Any:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)

    compare(seed, "attention", twin, *_draw(seed, Q, K, V), None, None, 0.3, None, causal=causal)


@pytest.mark.parametrize("shape", [(2, 4, 3, 6), (2, 1, 1, 6), (3, 6), (1,)])
def test_a_mask_hides_where_it_is_true(shape: tuple[int, ...], seed: np.random.Generator) -> None:
    mask = seed.random(shape) < 0.4
    compare(seed, "attention", _formula, *_draw(seed, Q, K, V), mask, None, 0.3, None, causal=False)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("masked", [False, True])
def test_bias_and_softcap_follow_the_formula(masked: bool, softcap: Any, seed: np.random.Generator) -> None:
    mask = seed.random((2, 1, 3, 6)) < 0.4 if masked else None
    inputs = [*_draw(seed, Q, K, V), mask, seed.uniform(-2, 2, (4, 3, 6)), 0.7, softcap]
    compare(seed, "attention", _formula, *inputs, causal=False)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("offset", [-2, 0, 3])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_causal_with_shared_heads(
    key_heads: int, offset: int, masked: bool, softcap: Any, seed: np.random.Generator
) -> None:
    hidden = torch.arange(6) > torch.arange(3).unsqueeze(1) + offset

    def twin(*inputs: Any) -> Any:
        return _formula(*inputs, hidden=hidden)

    mask = seed.random((2, 4, 3, 6)) < 0.4 if masked else None
    inputs = [*_draw(seed, Q, (2, key_heads, 6, 5), (2, key_heads, 6, 7)), mask, None, 0.7, softcap]
    compare(seed, "attention", twin, *inputs, causal=True, offset=offset)


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_query_that_sees_nothing_reads_zeros_and_gets_no_gradient(
    how: str, softcap: Any, seed: np.random.Generator
) -> None:
    query, key, value = _draw(seed, Q, K, V)
    mask = np.zeros((1, 1, 3, 6), bool)
    mask[0, 0, 1] = True
    bias = np.where(mask, -math.inf, 0.0)
    inputs = [query, key, value, mask if how == "mask" else None, bias if how == "bias" else None, 0.5, softcap]
    compare(seed, "attention", _formula, *inputs, causal=False)
    for leaf in LEAVES:
        y, lse = run(leaf, "attention", *inputs, causal=False)
        assert not y[:, :, 1].any()
        assert not lse[:, :, 1].any()
        assert y[:, :, [0, 2]].all()
        grads = gradients(leaf, "attention", inputs, [seed.standard_normal(y.shape), None], {"causal": False})
        assert all(g is not None and np.isfinite(g).all() for g in grads)
        assert grads[0] is not None
        assert not grads[0][:, :, 1].any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.F16, DType.BF16], ids=str)
def test_neither_forward_nor_backward_writes_the_scores_down(dtype: DType, masked: bool) -> None:
    heads, mask = TensorSpec.of((2, 3, 8, 4), dtype, "cpu"), TensorSpec.of((2, 1, 1, 8), DType.BOOL, "cpu")
    specs = [heads, heads, heads, mask if masked else None, None, NUMBER_SPECS[float], None]
    call = REGISTRY["attention"].bind(specs, {"causal": not masked})
    backward = derive(call, [True, True, True, *[False] * 4], [True, False], recompute=False, tape=Autodiff.over)
    calls = [call, *(node.call for node in backward.graph.nodes)]
    assert [c.op.name for c in calls] == ["attention", "attention_backward"]
    assert torch_attention(calls[0]) is not None
    assert torch_attention_backward(calls[1]) is not None
    assert {key for key in backward.saves if key[0] == "y"} == {("y", 0), ("y", 1)}


def test_lse_is_the_logarithm_of_the_sum_of_the_exponentials(seed: np.random.Generator) -> None:
    def twin(query: Any, key: Any, value: Any, mask: Any, bias: Any, scale: float, softcap: Any) -> Any:
        scores = query @ key.transpose(2, 3) * scale + bias
        return torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1)

    compare(seed, "attention", twin, *_draw(seed, Q, K, V), None, seed.uniform(-2, 2, (3, 6)), 0.3, None, causal=False)


def test_large_scores_do_not_overflow(seed: np.random.Generator) -> None:
    query, key, value = _draw(seed, Q, K, V)
    inputs: list[Any] = [query * 1e4, key, value, None, None, 1.0, None]
    compare(seed, "attention", _formula, *inputs, causal=False, differentiate=False)
    wanted: list[Any] = [torch.from_numpy(x).requires_grad_() for x in inputs[:3]]
    g = seed.standard_normal((2, 4, 3, 7))
    expected = torch.autograd.grad(_formula(*wanted, *inputs[3:]), wanted, torch.from_numpy(g))
    for leaf in LEAVES:
        # the backward takes exp(scores - lse): scores of up to 2e5 round by 3e-11, and meet queries of up to 2e4
        for grad, exact in zip(
            gradients(leaf, "attention", inputs, [g, None], {"causal": False}), expected, strict=True
        ):
            assert grad is not None
            np.testing.assert_allclose(grad, exact.numpy(), atol=3e-11 * 2e4)


def test_without_keys_all_is_zero() -> None:
    for leaf in LEAVES:
        inputs = [np.ones((1, 2, 3, 5)), np.ones((1, 2, 0, 5)), np.ones((1, 2, 0, 4)), None, None, 1.0, None]
        y, lse = run(leaf, "attention", *inputs, causal=False)
        np.testing.assert_array_equal(y, np.zeros((1, 2, 3, 4)))
        np.testing.assert_array_equal(lse, np.zeros((1, 2, 3)))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_half_types(masked: bool, dtype: DType, seed: np.random.Generator) -> None:
    mask = seed.random((2, 4, 3, 6)) < 0.3 if masked else None
    inputs = [*_draw(seed, Q, K, V), mask, None, 0.5, None]
    expected = run(LEAVES[0], "attention", *inputs, causal=False)[0]
    output = run(LEAVES[0], "attention", *inputs, dtype=dtype, causal=False)[0]
    unit = 2.0**-11 if dtype is DType.F16 else 2.0**-8
    # inputs of size 2 round, scores are sums of 5 products of them, and the values round again
    np.testing.assert_allclose(output, expected, atol=32 * unit)


def test_strided_inputs(seed: np.random.Generator) -> None:
    query, key, value = _draw(seed, (2, 3, 4, 5), (2, 6, 4, 5), (2, 6, 4, 5))
    turned = [np.swapaxes(x, 1, 2) for x in (query, key, value)]
    for leaf in LEAVES:
        expected = run(leaf, "attention", *[x.copy() for x in turned], None, None, 0.4, None, causal=True)
        outputs = run(leaf, "attention", *turned, None, None, 0.4, None, causal=True)
        for y, z in zip(outputs, expected, strict=True):
            close("strided", y, z)


# -- errors ------------------------------------------------------------------------------------------------
def _expect_refusal(*shapes: tuple[int, ...], mask: Any = None, softcap: Any = None) -> None:
    run(LEAVES[0], "attention", *map(np.zeros, shapes), mask, None, 1.0, softcap, causal=False)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"(?s)attention: query, key and value need four axes.*given: .*expected: .*mend: "
    ):
        _expect_refusal((3, 5), (6, 5), (6, 5))
    with pytest.raises(
        ShapeError, match=r"(?s)attention: query, key and value do not fit.*given:    query \(2, 4, 3, 5\).*mend: "
    ):
        _expect_refusal(Q, (2, 4, 6, 4), V)
    with pytest.raises(
        ShapeError,
        match=r"(?s)attention: 4 query heads cannot share 3 key heads.*expected: .*mend:     choose n_heads_kv",
    ):
        _expect_refusal(Q, (2, 3, 6, 5), (2, 3, 6, 7))
    with pytest.raises(
        ShapeError, match=r"(?s)attention: mask does not fit the scores.*expected: .*\(2, 4, 3, 6\).*mend: "
    ):
        _expect_refusal(Q, K, V, mask=np.zeros((2, 4, 6, 6), bool)[:, :, :5])


def test_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        DTypeError, match=r"(?s)attention: mask has an element type.*expected: mask of type bool.*mend: "
    ):
        _expect_refusal(Q, K, V, mask=np.zeros((3, 6)))
    with pytest.raises(DTypeError, match=r"(?s)attention: softcap is a tensor.*expected: softcap: a number or None"):
        _expect_refusal(Q, K, V, softcap=np.ones(()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("leaf", [Device.cpu(fused=False), Device.ndarray()], ids=["LibTorch", "NdArray"])
def test_second_gradients_at_huge_scores_are_finite(leaf: Device, dtype: Any, seed: np.random.Generator) -> None:
    """Scores of 1e19 that are computed again lie hundreds above those that lse was made of."""
    query, key, value = (Tensor.from_data((seed.normal(size=(1, 2, 7, 8)) * 1e10).astype(dtype), leaf) for _ in "qkv")

    def first(*inputs: Tensor) -> Any:
        y, pull = vjp(lambda q, k, v: attention(q, k, v, None, None, 0.35, None, causal=False, offset=0)[0], *inputs)
        return pull(y.new_full(y.shape, 0.3))

    outputs, pull = vjp(first, query, key, value)
    for gradient in pull(tuple(y.new_full(y.shape, 1.0) for y in outputs)):
        assert np.isfinite(gradient.into_data().values).all()
