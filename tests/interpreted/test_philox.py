"""Kernels draw our words: `triton.language.philox` with the counter layout of `core/philox.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch.core.philox import fold, split64, stream_of, words

triton: Any = pytest.importorskip("triton")
tl: Any = pytest.importorskip("triton.language")


@triton.jit  # type: ignore[untyped-decorator]  # triton is untyped
def _words(
    out_ptr: Any, key: Any, stream_low: Any, stream_high: Any, first: Any, blocks: Any, SIZE: tl.constexpr
) -> None:
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    number = first + offsets.to(tl.int64)
    low = (number & 0xFFFFFFFF).to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    zero = low * 0
    w0, w1, w2, w3 = tl.philox(key, low, high, zero + stream_low.to(tl.uint32), zero + stream_high.to(tl.uint32))
    at = out_ptr + 4 * offsets
    inside = offsets < blocks
    tl.store(at, w0.to(tl.int64), mask=inside)
    tl.store(at + 1, w1.to(tl.int64), mask=inside)
    tl.store(at + 2, w2.to(tl.int64), mask=inside)
    tl.store(at + 3, w3.to(tl.int64), mask=inside)


@pytest.mark.parametrize("key", [0, fold(1, 2), 2**63 - 1])
@pytest.mark.parametrize("stream", [0, stream_of("encoder.0.dropout#0")])
@pytest.mark.parametrize("first", [0, 5, 2**32 - 3, 2**40])
def test_triton_draws_our_words(key: int, stream: int, first: int) -> None:
    blocks = 13
    out = torch.zeros(4 * blocks, dtype=torch.int64)
    _words[(4,)](out, key, *split64(stream), first, blocks, SIZE=4)
    assert out.tolist() == words(key, stream, 4 * first, 4 * blocks).tolist()
