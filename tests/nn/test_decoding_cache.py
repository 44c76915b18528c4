"""Caches of fixed size: token by token they give what the causal layer gives for the whole sequence."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import burn_torch as bt
from burn_torch import Device, Tensor, nn
from burn_torch.core.errors import ArgumentError, BoundsError, ConfigError, ShapeError

CPU = Device.cpu()


def values(x: Tensor) -> np.ndarray[Any, Any]:
    return np.asarray(x.into_data().values, np.float64)


def layer(heads: int, width: int) -> nn.MultiHeadAttention:
    return nn.MultiHeadAttentionConfig(width, heads, dropout=0.0).init(CPU)


def whole(attention: nn.MultiHeadAttention, x: Tensor) -> Tensor:
    mask = nn.attention_mask.generate_autoregressive_mask(x.shape[0], x.shape[1], CPU)
    return attention.forward(nn.MhaInput.self_attn(x).mask_attn(mask)).context


def caches(batch: int, heads: int, d_head: int, seq: int, draw: random.Random) -> dict[str, Any]:
    size = draw.randint(1, 4)
    most = -(-seq // size) + 1
    pool = nn.PagePool(batch * most + 3, size, most)
    for sequence in draw.sample(range(batch), batch):
        pool.reserve(sequence, seq)
    paged = nn.PagedCache.new(batch * most + 3, size, heads, d_head, CPU, batch=batch, most_pages=most)
    return {
        "static": nn.StaticCache.new(batch, heads, seq + draw.randint(0, 3), d_head, CPU),
        "paged": paged.with_table(pool.table(list(range(batch)), CPU)),
    }


@pytest.mark.parametrize("kind", ["static", "paged"])
@pytest.mark.parametrize("seed", range(2))
def test_steps_give_what_the_causal_layer_gives(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    bt.seed(seed)
    batch, heads, d_head, seq = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 4), draw.randint(4, 9)
    attention = layer(heads, heads * d_head)
    x = Tensor.random((batch, seq, heads * d_head), bt.Distribution.Normal(0.0, 1.0), CPU)
    cache = caches(batch, heads, d_head, seq, draw)[kind]
    begin, parts = 0, []
    while begin < seq:
        new = min(draw.randint(1, 3), seq - begin)
        y, cache = attention.decode(x.narrow(1, begin, new), cache)
        parts.append(y)
        begin += new
    assert values(cache.length).tolist() == [seq] * batch
    np.testing.assert_allclose(values(Tensor.cat(parts, 1)), values(whole(attention, x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_one_program_serves_every_token(kind: str) -> None:
    attention = layer(2, 6)
    x = Tensor.random((2, 5, 6), bt.Distribution.Normal(0.0, 1.0), CPU)
    cache = caches(2, 2, 3, 5, random.Random(1))[kind]
    step = bt.compile(lambda attention, x, cache: attention.decode(x, cache))
    parts = []
    for at in range(5):
        y, cache = step(attention, x.narrow(1, at, 1), cache)
        parts.append(y)
    np.testing.assert_allclose(values(Tensor.cat(parts, 1)), values(whole(attention, x)), rtol=1e-4, atol=1e-5)


def test_sequences_of_unlike_lengths_share_pages_that_come_back() -> None:
    pool = nn.PagePool(5, 2, 3)
    assert (pool.reserve("a", 5), pool.reserve("b", 3), pool.free) == ([0, 1, 2], [3, 4], 0)
    with pytest.raises(ArgumentError, match=r"(?s)no pages.*7 positions.*up to 0 pages.*release"):
        pool.reserve("c", 7)
    cache = nn.PagedCache.new(5, 2, 1, 3, CPU, batch=2, most_pages=3)
    lengths = Tensor.from_data([0, 0], CPU)
    cache = cache.with_table(pool.table(["a", "b"], CPU), lengths)
    key = Tensor.random((2, 1, 3, 3), bt.Distribution.Normal(0.0, 1.0), CPU)
    cache = cache.append(key, key * 2.0)
    pool.release("b")
    assert pool.reserve("d", 4) == [3, 4]
    lengths = Tensor.from_data([3, 0], CPU)
    cache = cache.with_table(pool.table(["a", "d"], CPU), lengths)
    more = Tensor.random((2, 1, 2, 3), bt.Distribution.Normal(0.0, 1.0), CPU)
    query = Tensor.random((2, 2, 1, 3), bt.Distribution.Normal(0.0, 1.0), CPU)
    read = values(cache.append(more, more * 2.0).attend(query))
    for at, keys in ((0, [values(key)[0, 0], values(more)[0, 0]]), (1, [values(more)[1, 0]])):
        own = np.concatenate(keys)
        weights = np.exp(values(query)[at, :, 0] @ own.T / np.sqrt(3.0))
        expected = weights @ (2.0 * own) / weights.sum(1, keepdims=True)
        np.testing.assert_allclose(read[at, :, 0], expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_said() -> None:
    cache = nn.StaticCache.new(1, 2, 3, 4, CPU)
    ones = Tensor.ones((1, 2, 1, 4), CPU)
    with pytest.raises(ShapeError, match=r"(?s)key does not fit the cache.*\(1, 2, 1, 5\).*\(1, 2, 1, 4\).*heads"):
        cache.append(Tensor.ones((1, 2, 1, 5), CPU), ones)
    with pytest.raises(ShapeError, match=r"(?s)more positions.*4 new.*capacity of 3.*larger"):
        cache.append(Tensor.ones((1, 2, 4, 4), CPU), Tensor.ones((1, 2, 4, 4), CPU))
    for _ in range(3):
        cache = cache.append(ones, ones)
    with pytest.raises(BoundsError, match=r"(?s)scatter.*3"):
        cache.append(ones, ones)
    quiet = nn.MultiHeadAttentionConfig(8, 2, quiet_softmax=True).init(CPU)
    with pytest.raises(ConfigError, match=r"(?s)quiet softmax.*quiet_softmax False.*forward_next"):
        quiet.decode(Tensor.ones((1, 1, 8), CPU), cache)
