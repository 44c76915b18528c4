"""torch's own kernels of attention as candidates: they compute a square without masks, biases and the rest.

    1 flash       flash attention 2, half types
    2 efficient   memory-efficient attention, half types and float32
    3 cudnn       cuDNN's flash attention, half types
    4 torch's     whichever of these torch would take, or none of them

They give y and lse as our kernels do, so that a backward of one may follow a forward of another.  On CPU tensors each
of the numbers stands for torch's flash attention on the host.  Their backwards on a GPU sum with float atomics, unless
torch is told to be deterministic, so they are candidates only where the caller allows that.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from burn_kernels.launch import HALVES

__all__ = ["CUDNN", "EFFICIENT", "FLASH", "TORCHS", "backward", "choose", "forward", "numbers"]

FLASH, EFFICIENT, CUDNN, TORCHS = 1, 2, 3, 4
"""torch has the first three numbers for them too."""
_LSE_ROWS = 32
"""The memory-efficient kernel's lse has a multiple of so many rows."""


def numbers(dtype: torch.dtype, dim: int, *, grouped: bool) -> list[int]:
    """Those that take such heads, torch's own choice first."""
    flash = [] if dtype not in HALVES else [CUDNN, FLASH] if dim <= 128 else [FLASH]
    return [TORCHS, *flash] if grouped else [TORCHS, *flash, EFFICIENT]


def choose(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> int:
    """The number of the kernel that torch would take for these, as if they needed gradients; 0 for none of them."""
    if not q.is_cuda:
        return FLASH
    grouped = q.shape[1] != k.shape[1]
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        choice: Any = torch._fused_sdp_choice  # of which the stubs know another signature
        number = int(choice(*leaves, None, 0.0, causal, enable_gqa=grouped))
    return number if number in numbers(q.dtype, q.shape[3], grouped=grouped) else 0


def forward(number: int, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """y and lse by the kernel with this number."""
    aten: Any = torch.ops.aten
    q, k, v = (_lines(x) for x in (q, k, v))
    if not q.is_cuda:
        host = aten._scaled_dot_product_flash_attention_for_cpu.default
        y, lse = host(q, k, v, 0.0, causal, attn_mask=None, scale=scale)
        return y, lse
    if number == FLASH:
        y, lse, *_ = aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, causal, False, scale=scale)
        return y, lse
    if number == CUDNN:
        cudnn = aten._scaled_dot_product_cudnn_attention.default
        y, lse, *_ = cudnn(q, k, v, None, True, 0.0, causal, False, scale=scale)
        return y, lse.reshape(q.shape[:3])
    efficient = aten._scaled_dot_product_efficient_attention.default
    y, lse, *_ = efficient(q, k, v, None, True, 0.0, causal, scale=scale)
    return y, lse[:, :, : q.shape[2]]


def backward(
    number: int, dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v by the kernel with this number."""
    aten: Any = torch.ops.aten
    dy, q, k, v, y = operands = tuple(_lines(x) for x in (dy, q, k, v, y))
    if not q.is_cuda:
        host = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        dq, dk, dv = host(*operands, lse, 0.0, causal, attn_mask=None, scale=scale)
        return dq, dk, dv
    lengths, unread = (q.shape[2], k.shape[2]), q.new_empty(2, dtype=torch.int64)  # no dropout: no random state
    if number == FLASH:
        flash = aten._scaled_dot_product_flash_attention_backward.default
        grads = flash(*operands, lse, None, None, *lengths, 0.0, causal, unread, unread, scale=scale)
    elif number == CUDNN:
        cudnn = aten._scaled_dot_product_cudnn_attention_backward.default
        column = lse.unsqueeze(-1)  # as its forward gives it: three axes end the process
        unused = unread, unread, None, None, None
        grads = cudnn(*operands, column, *unused, *lengths, 0.0, causal, scale=scale)
    else:
        missing = -q.shape[2] % _LSE_ROWS  # as its forward leaves rows that do not exist: exp(score - inf) is 0
        lse = functional.pad(lse, (0, missing), value=math.inf) if missing else lse
        # its rows of y are read as its forward lays them out, by (batch, position, head), whatever y's strides say: of
        # others the gradients of q and k are garbage in half types
        y = y.transpose(1, 2).contiguous().transpose(1, 2)
        efficient = aten._scaled_dot_product_efficient_attention_backward.default
        wanted = (True, True, True, False)
        grads = efficient(dy, q, k, v, None, y, lse, unread, unread, 0.0, wanted, is_causal=causal, scale=scale)
    dq, dk, dv, *_ = grads
    return dq, dk, dv


def _lines(x: Tensor) -> Tensor:
    """x with its last axis next to itself: the kernels read others as if it were."""
    return x if x.stride(3) == 1 else x.contiguous()
