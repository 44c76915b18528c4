"""The gradient of an embedding table in the interpreter: segments across chunks, every config, foreign indices."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import embedding  # after the check for triton
from burn_kernels.embedding import Config
from burn_kernels.launch import H200
from burn_kernels.spec import Draw


@pytest.mark.parametrize("chunk", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("lengths", [[1] * 12, [12], [3, 1, 5, 3], [1, 10, 1], [4, 4, 4], [8, 4], [2, 9, 1]])
@pytest.mark.parametrize("scaled", [False, True])
def test_segments_across_chunks(chunk: int, lengths: list[int], scaled: bool) -> None:
    indices = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    indices = indices[torch.randperm(12, generator=torch.Generator().manual_seed(1))]
    dy, rows = Draw(2).normal(12, 5).float(), len(lengths) + 1
    grad = embedding.backward(dy, indices, rows=rows, scale_by_frequency=scaled, config=Config(chunk, 8, 1))
    exact = embedding.reference(dy.double(), indices, rows=rows, scale_by_frequency=scaled)
    torch.testing.assert_close(grad.double(), exact, rtol=1e-5, atol=1e-5)


def test_every_candidate() -> None:
    draw = Draw(3)
    dy, indices = draw.normal(100, 1030).float(), (draw.normal(100).abs() * 20).long()
    exact = embedding.reference(dy, indices, rows=99)
    for config in embedding.candidates(1030, 4, H200):
        grad = embedding.backward(dy, indices, rows=99, config=config)
        torch.testing.assert_close(grad, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_indices_outside_the_table_add_nothing(dtype: torch.dtype) -> None:
    dy = Draw(4).normal(6, 5).float()
    indices = torch.tensor([0, -1, 3, 2, -(2**31), 2**31 - 1]).to(dtype)
    grad = embedding.backward(dy, indices, rows=3)
    assert torch.equal(grad, torch.stack([dy[0], torch.zeros(5), dy[3]]))


def test_tokens_are_added_in_their_order() -> None:
    # in float32 these sums depend on the order; the stable sort keeps that of the tokens
    dy = torch.tensor([1e8, 1.0, -1e8, 1.0]).reshape(4, 1)
    grad = embedding.backward(dy, torch.zeros(4, dtype=torch.int64), rows=1, config=Config(4, 1, 1))
    assert grad.item() == ((1e8 + 0.0) - 1e8) + 1.0
