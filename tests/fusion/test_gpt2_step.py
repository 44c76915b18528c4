"""The training step of GPT-2 124M at its real size, planned and not run: what it needs, and how many kernels it is.

Tensors of one element that stand for all of them cost no memory; the bars on a GPU are in benchmarks/fusion.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from burn_torch import Device, StepScope, Tensor, compile
from burn_torch.fusion import FusionExplanation
from burn_torch.optim import AdamWConfig, GradientsParams
from burn_torch.transform import explain
from examples.gpt2.gpt2 import Gpt2Config

BATCH, SEQ, VOCAB = 16, 1024, 50_304
MIB = 1 << 20
CHUNK_MIB = 2_048 * VOCAB * 2 // MIB  # the logits of a chunk, which the row has for itself
LIMIT_MIB = 5_740


def train(model: Any, optim: Any, tokens: Tensor, targets: Tensor, lr: float, key: int) -> tuple[Any, Any, Tensor]:
    with StepScope(key, model):
        loss = model.loss(tokens, targets)
        gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


@pytest.fixture(scope="module")
def planned() -> Any:
    device = Device.cpu().autodiff()
    small = Gpt2Config(vocab_size=64, context=SEQ, dropout=0.0).init(device)

    def large(param: Any) -> Any:
        shape = tuple(param.shape)
        shape = (VOCAB, *shape[1:]) if shape[0] == 64 else shape
        return param.with_value(Tensor.from_torch(torch.zeros(1).expand(shape), device))

    model = small.map_params(large)
    tokens = Tensor.from_torch(torch.zeros(1, dtype=torch.int64).expand(BATCH, SEQ), device)
    step = compile(
        train, donate=("model", "optim"), precision="bfloat16", fuse=True, memory_limit_bytes=LIMIT_MIB * MIB
    )
    return explain(step, model, AdamWConfig(weight_decay=0.1).init(), tokens, tokens, 3e-4, 1)


def kernels(planned: Any) -> FusionExplanation:
    assert isinstance(planned.fusion, FusionExplanation)
    return planned.fusion


def test_the_step_fits_into_seven_tenths_of_what_torch_compile_takes(planned: Any) -> None:
    """8,584 MiB on an H200, 2026-11-22: 6,000 may be used, state included."""
    assert planned.peak_bytes <= LIMIT_MIB * MIB
    assert LIMIT_MIB + CHUNK_MIB < 6_000


def test_the_head_is_one_row_and_no_logits_are_there(planned: Any) -> None:
    rows = Counter(name for kernel in kernels(planned).kernels for name in kernel.rows)
    assert rows["linear_cross_entropy_with_gradients"] == 1
    assert not rows["cross_entropy"]
    assert max(kernel.bytes_written for kernel in kernels(planned).kernels[:-1]) < 256 * MIB  # but for the update's


def test_gelu_and_norms_are_made_again_by_kernels_of_the_backward(planned: Any) -> None:
    again = [k for k in kernels(planned).kernels if {"gelu_approximate", "gelu_approximate_backward"} <= {*k.rows}]
    assert len(again) == 12
    norms = Counter(k.bytes_written // MIB for k in kernels(planned).kernels if k.rows.count("sum") >= 4)
    assert len(norms) >= 2  # as many as the limit asks for


def test_casts_and_last_sums_share_launches(planned: Any) -> None:
    count = Counter(kernel.rows for kernel in kernels(planned).kernels if len(kernel.rows) == 1)
    assert count["cast",] <= 1
    assert count["sum",] <= 2
    assert len(kernels(planned).kernels) <= 310
