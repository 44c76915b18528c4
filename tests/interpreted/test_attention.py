"""Attention in the interpreter: other blocks than the default, drawn rules, biases that broadcast, what nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import HealthCheck, given, settings  # after the check for triton
from hypothesis import strategies as st

from burn_kernels import KernelLimitError, attention
from burn_kernels.attention import BackwardConfig, Config
from burn_kernels.spec import Draw
from burn_kernels.verification import poisoned

# numpy says so where kernels compute with infinities on purpose, in lanes that are masked or replaced
pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero|All-NaN slice) encountered:RuntimeWarning"
)
forward: Any = attention.forward
backward: Any = attention.backward
reference: Any = attention.reference
reference_backward: Any = attention.reference_backward
NAMES = ("y", "lse", "dq", "dk", "dv", "dbias")


def both(
    operands: tuple[Any, ...], config: Config | None = None, back: BackwardConfig | None = None, **options: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """y, lse and the gradients by the kernels, and exactly."""
    exact = [x.double() if x is not None and x.is_floating_point() else x for x in operands]
    y, lse = reference(*exact, **options)
    dy = Draw(7).normal(*y.shape)
    expected = y, lse, *reference_backward(dy, *exact, y, lse, **options)
    with poisoned():
        outputs = forward(*operands, config=config, **options)
        grads = backward(dy.to(outputs[0].dtype), *operands, *outputs, config=back, **options)
    return (*outputs, *grads), expected


def close(actual: tuple[Any, ...], expected: tuple[Any, ...], why: object, size: float = 2e-5) -> None:
    # sums of up to a hundred float32 products of order 1 to 10, in another order
    for name, one, other in zip(NAMES, actual, expected, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            words = f"{name} {why}"
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=size, msg=words)


def operands(q: tuple[int, ...], k: tuple[int, ...], seed: int = 0) -> tuple[Any, ...]:
    draw = Draw(seed)
    return tuple(draw.normal(*shape).float() for shape in (q, k, k))


@pytest.mark.parametrize("rule", [{"causal": True}, {"window": 3}, {"causal": True, "align": "bottom_right"}], ids=str)
def test_keys_that_no_query_sees_read_nothing_past_the_last_one(rule: dict[str, Any]) -> None:
    q, k, v = operands((1, 2, 32, 13), (1, 1, 70, 13))
    room = torch.full((1, 2, 96, 13), torch.nan)
    room[:, :, :32] = q
    actual, expected = both((room[:, :, :32], k, v, None, None), **rule)
    close(actual, expected, rule)


# -- blocks --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [(32, 16), *(pytest.param(x, marks=pytest.mark.slow) for x in ((16, 32), (64, 16)))])
def test_blocks_of_other_sizes(sizes: tuple[int, int]) -> None:
    config, back = Config(0, *sizes, 1, 1), BackwardConfig(0, *sizes, 1, 1)
    for rule in ({"causal": True}, {"causal": True, "align": "bottom_right", "window": 21}):
        inputs = (*operands((1, 1, 40, 8), (1, 1, 65, 8)), None, None)
        close(*both(inputs, config, back, **rule), (sizes, rule))


def past_the_last_key() -> Iterator[Any]:
    # 48 keys in blocks of 32 are read sixteen at once, 33 one by one; a bias of the batch changes the order of programs
    for seq in (48, 33):
        for bias in ((1, 2, seq, seq), (2, 1, 1, seq), (seq, 1), (2, 2, seq, seq)):
            quick = bias == (1, 2, 48, 48)
            yield pytest.param(seq, bias, marks=[] if quick else pytest.mark.slow, id=f"{bias}")


@pytest.mark.parametrize(("seq", "bias"), list(past_the_last_key()))
def test_blocks_that_reach_past_the_last_key_beside_a_bias(seq: int, bias: tuple[int, ...]) -> None:
    draw = Draw(seq)
    mask = draw.integers(0, 5, 2, 1, 1, seq) > 0
    inputs = (*operands((2, 2, seq, 8), (2, 2, seq, 8)), mask, draw.normal(*bias).float())
    rule = {"causal": bias[0] == 1}
    close(*both(inputs, Config(0, 16, 32, 1, 1), BackwardConfig(0, 32, 16, 1, 1), **rule), (seq, bias))


def check_a_rule(seq: tuple[int, int], heads: tuple[int, int], dim: int, rule: dict[str, Any], added: str) -> None:
    draw = Draw(sum(seq))
    mask = draw.integers(0, 2, heads[0], 1, seq[1]) > 0 if "mask" in added else None
    bias = draw.normal(heads[0], *seq).float() if "bias" in added else None
    inputs = (*operands((1, heads[0], seq[0], dim), (1, heads[1], seq[1], dim)), mask, bias)
    # scores of 40 columns with a scale of 1 are of order 20, and so are their errors
    close(*both(inputs, **rule, key=3, stream=5), rule, 2e-4)


# -- float32 -------------------------------------------------------------------------------------------
def test_a_query_that_sees_one_key_has_no_gradient_at_all() -> None:
    # its weight is 1 whatever the score; the sum of dy * y is not the product in its last place
    q, k, v = operands((1, 1, 9, 16), (1, 1, 9, 16))
    y, lse = forward(q, k, v, causal=True)
    dq = backward(Draw(7).normal(1, 1, 9, 16).float(), q, k, v, None, None, y, lse, causal=True)[0]
    assert dq[0, 0, 0].abs().max() == 0.0
    assert dq[0, 0, 1].abs().max() > 0.0


def test_gradients_do_not_carry_the_rounding_of_lse() -> None:
    q, k, v = operands((1, 2, 9, 8), (1, 1, 12, 8))
    bias, dy = Draw(3).normal(2, 9, 12, mean=100.0).float(), Draw(7).normal(1, 2, 9, 8).float()
    y, lse = forward(q, k, v, None, bias, window=7)  # about 100: four units of it are 3e-5 of all weights
    grads, expected = (backward(dy, q, k, v, None, bias, y, other, window=7) for other in (lse + 3e-5, lse))
    for one, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def test_one_query_and_one_key_and_queries_that_see_nothing() -> None:
    check_a_rule((1, 1), (2, 1), 5, {"causal": True, "window": 1}, "mask bias")
    check_a_rule((33, 7), (1, 1), 16, {"causal": True, "align": "bottom_right"}, "mask")


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seq=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    dim=st.sampled_from([1, 5, 16, 40]),
    rule=st.fixed_dictionaries(
        {},
        optional={
            "causal": st.booleans(),
            "align": st.sampled_from(["top_left", "bottom_right"]),
            "window": st.integers(1, 50),
            "softcap": st.floats(0.5, 30.0),
            "prob": st.sampled_from([0.25, 1.0]),
            "scale": st.floats(-1.0, 1.0),
        },
    ),
    added=st.sampled_from(["", "mask", "bias", "mask bias"]),
)
def test_any_rule(seq: tuple[int, int], heads: tuple[int, int], dim: int, rule: dict[str, Any], added: str) -> None:
    check_a_rule(seq, heads, dim, rule, added)


# -- biases --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "shape",
    [(2, 1, 1, 18), (2, 17, 1), (1,), *(pytest.param(x, marks=pytest.mark.slow) for x in ((17, 18), (1, 1, 1, 1)))],
)
def test_the_gradient_of_a_bias_is_summed_over_what_shares_it(shape: tuple[int, ...]) -> None:
    bias = Draw(3).normal(*shape).float()
    close(*both((*operands((2, 2, 17, 8), (2, 1, 18, 8)), None, bias), softcap=3.0), shape, 1e-4)


def test_a_bias_in_a_half_type_beside_float32() -> None:
    bias = Draw(3).normal(20, 18).half()
    actual, expected = both((*operands((1, 1, 20, 8), (1, 1, 18, 8)), None, bias))
    assert actual[5].dtype == torch.float16
    torch.testing.assert_close(actual[5].double(), expected[5].double(), rtol=2e-3, atol=1e-4)
    torch.testing.assert_close(actual[0].double(), expected[0], rtol=1e-5, atol=1e-5)


def test_a_bias_that_hides_and_one_that_is_not_asked_for() -> None:
    bias = Draw(3).normal(20, 18).float()
    bias[:, 4:9] = -torch.inf
    bias[7] = -torch.inf
    inputs = (*operands((1, 1, 20, 8), (1, 1, 18, 8)), None, bias)
    actual, expected = both(inputs)
    close(actual, expected, "hidden")
    assert actual[0][0, 0, 7].tolist() == [0.0] * 8
    assert actual[1][0, 0, 7] == -torch.inf
    assert actual[2][0, 0, 7].tolist() == [0.0] * 8
    y, lse = actual[:2]
    assert backward(torch.ones_like(y), *inputs, y, lse, bias_gradient=False)[3] is None


# -- numbers -------------------------------------------------------------------------------------------
def test_large_scores_neither_overflow_nor_lose_the_largest() -> None:
    q, k, v = operands((1, 1, 20, 8), (1, 1, 33, 8))
    q = 300.0 * q
    y, lse = forward(q, k, v)
    exact = reference(q.double(), k.double(), v.double())
    assert y.isfinite().all()
    torch.testing.assert_close(lse.double(), exact[1], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(y.double(), exact[0], rtol=0.0, atol=1e-3)  # scores of 3000 have errors of 2e-4


def test_nan_goes_on_and_stays_in_its_row() -> None:
    q, k, v = operands((1, 1, 20, 8), (1, 1, 33, 8))
    q[0, 0, 3, 1] = torch.nan
    y, lse = forward(q, k, v)
    assert y.isnan().all(-1)[0, 0].nonzero().flatten().tolist() == [3]
    assert lse.isnan()[0, 0].nonzero().flatten().tolist() == [3]


def test_gradients_are_by_the_lse_that_is_given() -> None:
    # of all keys, where these are a part of them: their weights do not sum to 1; and y and lse that are anything
    q, k, v = operands((1, 2, 20, 8), (1, 2, 37, 8))
    y, lse = forward(q, k, v)
    draw = Draw(3)
    dy = draw.normal(*y.shape).float()
    whole = backward(dy, q, k, v, None, None, y, lse)
    parts = [backward(dy, q, k[:, :, at], v[:, :, at], None, None, y, lse) for at in (slice(0, 16), slice(16, 37))]
    torch.testing.assert_close(parts[0][0] + parts[1][0], whole[0], rtol=1e-5, atol=1e-5)
    for number in (1, 2):
        grad = torch.cat([part[number] for part in parts], 2)
        torch.testing.assert_close(grad, whole[number], rtol=1e-5, atol=1e-5)
    y, lse = draw.normal(*y.shape).float(), draw.normal(*lse.shape).float() + 1.0
    weights = torch.exp(q @ k.mT / 8**0.5 - lse[..., None])
    slopes = weights * (dy @ v.mT - (dy * y).sum(-1, keepdim=True)) / 8**0.5
    expected = slopes @ k, slopes.mT @ q, weights.mT @ dy
    for one, other in zip(backward(dy, q, k, v, None, None, y, lse), expected, strict=False):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_dropout_draws_the_same_mask_whatever_the_blocks() -> None:
    q, k = torch.zeros(1, 2, 20, 16), torch.zeros(1, 1, 36, 16)
    v = torch.eye(36, 16).expand(1, 1, 36, 16).contiguous()
    options: Any = {"prob": 0.4, "key": 11, "stream": 13}
    first, _ = forward(q, k, v, config=Config(0, 16, 16, 1, 1), **options)
    other, _ = forward(q, k, v, config=Config(0, 32, 64, 1, 1), **options)
    assert torch.equal(first == 0.0, other == 0.0)
    assert 0.3 < float((first == 0.0).float().mean()) < 0.5


def test_wide_heads_are_past_the_limit() -> None:
    x = torch.zeros(1, 1, 2, 257)
    with pytest.raises(KernelLimitError, match=r"(?s)attention: the kernel.*d_head 257.*from 1 to 256.*reference"):
        forward(x, x, x)
