"""torch's fused kernels of attention: which of them computes a Call, and how each is called, forward and backward.

All of them keep, for each query, the logarithm of the sum of its exponentials, so the scores are never in memory:

    cpu         flash attention on the host, with or without an additive mask
    flash       flash attention 2, half types
    cudnn       cuDNN's flash attention, half types
    efficient   memory-efficient attention, half types and float32, with or without an additive mask

On a GPU torch says which it would take.  If none takes a Call, or torch would write the scores down, the rows'
decompositions compute it.  No kernel waits for the device, and without dropout none reads its random state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["Added", "attention_operands", "torch_attention", "torch_attention_backward"]

Added = Tensor | None
"""A mask of four axes in the type of the query, or none."""
Operands = tuple[Tensor, Tensor, Tensor]
"""Query, key and value, or their gradients."""
Forward = tuple[Tensor, Tensor]

_aten: Final = torch.ops.aten
_MINUS_INFINITY: Final = -math.inf


class _Kernel(NamedTuple):
    """forward(operands, added, causal, scale) gives y and lse; backward(g, operands, y, lse, added, causal, scale) the
    gradients of the operands.
    """

    forward: Callable[..., Forward]
    backward: Callable[..., Operands]


# -- the kernels -------------------------------------------------------------------------------------------
def _cpu_forward(operands: Operands, added: Added, causal: bool, scale: float) -> Forward:
    flash = _aten._scaled_dot_product_flash_attention_for_cpu.default
    return flash(*operands, 0.0, causal, attn_mask=added, scale=scale)


def _cpu_backward(
    g: Tensor, operands: Operands, y: Tensor, lse: Tensor, added: Added, causal: bool, scale: float
) -> Operands:
    flash = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return flash(g, *operands, y, lse, 0.0, causal, attn_mask=added, scale=scale)


def _flash_forward(operands: Operands, added: Added, causal: bool, scale: float) -> Forward:
    results = _aten._scaled_dot_product_flash_attention.default(*operands, 0.0, causal, False, scale=scale)
    return results[0], results[1]


def _flash_backward(
    g: Tensor, operands: Operands, y: Tensor, lse: Tensor, added: Added, causal: bool, scale: float
) -> Operands:
    lengths, unread = _lengths(operands), _random_state(operands)
    flash = _aten._scaled_dot_product_flash_attention_backward.default
    return flash(g, *operands, y, lse, None, None, *lengths, 0.0, causal, unread, unread, scale=scale)


def _cudnn_forward(operands: Operands, added: Added, causal: bool, scale: float) -> Forward:
    cudnn = _aten._scaled_dot_product_cudnn_attention.default
    results = cudnn(*operands, None, True, 0.0, causal, False, scale=scale)
    return results[0], results[1].reshape(operands[0].shape[:3])


def _cudnn_backward(
    g: Tensor, operands: Operands, y: Tensor, lse: Tensor, added: Added, causal: bool, scale: float
) -> Operands:
    lengths, unread = _lengths(operands), _random_state(operands)
    cudnn = _aten._scaled_dot_product_cudnn_attention_backward.default
    lse = lse.unsqueeze(-1)  # as its forward gives it: three axes end the process
    return cudnn(g, *operands, y, lse, unread, unread, None, None, None, *lengths, 0.0, causal, scale=scale)


def _efficient_forward(operands: Operands, added: Added, causal: bool, scale: float) -> Forward:
    efficient = _aten._scaled_dot_product_efficient_attention.default
    y, lse = efficient(*operands, _align_mask(added, operands), True, 0.0, causal, scale=scale)[:2]
    rows = operands[0].shape[2]
    return y, lse if lse.shape[2] == rows else lse[:, :, :rows].contiguous()


def _efficient_backward(
    g: Tensor, operands: Operands, y: Tensor, lse: Tensor, added: Added, causal: bool, scale: float
) -> Operands:
    unread, missing = _random_state(operands), -operands[0].shape[2] % _LSE_ROWS
    if missing:  # as the forward leaves the rows that do not exist: exp(score - inf) is 0
        lse = functional.pad(lse, (0, missing), value=math.inf)
    efficient = _aten._scaled_dot_product_efficient_attention_backward.default
    wanted, added = (True, True, True, False), _align_mask(added, operands)
    return efficient(g, *operands, added, y, lse, unread, unread, 0.0, wanted, causal, scale=scale)[:3]


_LSE_ROWS: Final = 32
"""The rows of a block of the memory-efficient kernel: its lse has a multiple of so many."""

_BIAS_COLUMNS: Final = 8
"""The memory-efficient kernel reads so many elements of a mask at once."""


def _align_mask(added: Added, operands: Operands) -> Added:
    """The mask of all heads, as views, its lines so far apart that the kernel can read several elements at once."""
    if added is None:
        return None
    query, key, _ = operands
    columns = key.shape[2]
    if missing := -columns % _BIAS_COLUMNS:
        added = functional.pad(added, (0, missing))[..., :columns]
    return added.expand(*query.shape[:3], columns)


def _lengths(operands: Operands) -> tuple[int, int]:
    """The longest sequences of queries and of keys."""
    return operands[0].shape[2], operands[1].shape[2]


def _random_state(operands: Operands) -> Tensor:
    return operands[0].new_empty(2, dtype=torch.int64)


_CPU: Final = _Kernel(_cpu_forward, _cpu_backward)
_FLASH: Final = _Kernel(_flash_forward, _flash_backward)
_CUDNN: Final = _Kernel(_cudnn_forward, _cudnn_backward)
_EFFICIENT: Final = _Kernel(_efficient_forward, _efficient_backward)

# -- the choice ------------------------------------------------------------------------------------------------
_TORCHS: Final = {1: _FLASH, 2: _EFFICIENT, 3: _CUDNN}
"""torch's numbers of its kernels; it calls the plain way 0."""


def _choose_kernel(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, *, masked: bool, causal: bool
) -> _Kernel | None:
    d_head, d_value, grouped = query.shape[3], value.shape[3], query.shape[1] != key.shape[1]
    if query.place == "cpu":
        return _CPU if d_head == d_value else None
    if not query.place.startswith("cuda") or query.dtype is DType.F64 or d_head % 8 or d_value % 8:
        return None
    if masked:  # the one kernel that is clear about a query that sees nothing
        return None if grouped else _EFFICIENT
    kernel = _TORCHS.get(_torchs_choice(query, key, value, causal=causal, grouped=grouped))
    return None if grouped and kernel is _EFFICIENT else kernel


def _torchs_choice(query: TensorSpec, key: TensorSpec, value: TensorSpec, *, causal: bool, grouped: bool) -> int:
    """The kernel that scaled_dot_product_attention would take for tensors like these that need gradients."""
    with torch.enable_grad():
        q, k, v = (
            torch.empty(x.shape[3], dtype=TO_TORCH[x.dtype], device=x.place, requires_grad=True).expand(x.shape)
            for x in (query, key, value)
        )
        return torch._fused_sdp_choice(q, k, v, None, 0.0, causal, enable_gqa=grouped)


# -- candidates -----------------------------------------------------------------------------------------------
def attention_operands(call: Call, first: int) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The specs of query, key and value, the inputs of a Call from `first` on."""
    return call.tensor(first), call.tensor(first + 1), call.tensor(first + 2)


def torch_attention(call: Call) -> Candidate | None:
    """The forward of a Call of `attention`, (y, lse); None where its decomposition computes."""
    query, key, value = attention_operands(call, 0)
    y, lse = call.results
    if y.numel == 0 or key.numel == 0:
        return lambda query, *_: (query.new_zeros(y.shape), query.new_zeros(lse.shape, dtype=TO_TORCH[lse.dtype]))
    if call.specs[6] is not None:
        return None
    masked = any(spec is not None for spec in call.specs[3:5])
    causal, hidden = _causal_part(query, key, masked=masked, **call.attrs)
    masked = masked or hidden is not None
    kernel = _choose_kernel(query, key, value, masked=masked, causal=causal)
    if kernel is None:
        return None
    forward = _forward_at_any_scale(kernel)
    if not masked:
        # with the diagonal visible to every row, every query sees something
        return lambda query, key, value, mask, bias, scale, softcap: forward(
            (_lines(query), _lines(key), _lines(value)), None, causal, float(scale)
        )

    def run(
        query: Tensor, key: Tensor, value: Tensor, mask: Added, bias: Added, scale: float, softcap: float | None
    ) -> Forward:
        added = _added(query, mask, bias, hidden)
        blind = (added == _MINUS_INFINITY).all(-1)
        y, lse = forward((_lines(query), _lines(key), _lines(value)), added, causal, float(scale))
        return torch.where(blind.unsqueeze(-1), 0.0, y), torch.where(blind, 0.0, lse)

    return run


def torch_attention_backward(call: Call) -> Candidate | None:
    """The backward of a Call of `attention_backward`, its gradients; None where its decomposition computes.

    torch's kernels know no softcap, and the gradient of a mask that is added is not asked of them.
    """
    query, key, value = attention_operands(call, 1)
    live = call.attrs["live"]
    if query.numel == 0 or key.numel == 0 or value.numel == 0:
        shapes = [spec.shape if isinstance(spec, TensorSpec) else None for spec in call.results]
        return lambda g, *_: tuple([None if shape is None else g.new_zeros(shape) for shape in shapes])
    if call.specs[9] is not None or True in live[3:]:
        return None
    masked = call.specs[6] is not None or call.specs[7] is not None
    causal, hidden = _causal_part(query, key, masked=masked, **call.attrs)
    masked = masked or hidden is not None
    kernel = _choose_kernel(query, key, value, masked=masked, causal=causal)
    if kernel is None:
        return None
    backward = _backward_at_any_scale(kernel)

    def run(
        g: Tensor, query: Tensor, key: Tensor, value: Tensor, y: Tensor, lse: Tensor, mask: Added, bias: Added,
        scale: float, softcap: float | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        added = _added(query, mask, bias, hidden) if masked else None
        operands = (_lines(query), _lines(key), _lines(value))
        grads = backward(_lines(g), operands, _lines(y), lse.contiguous(), added, causal, float(scale))
        return tuple([grad if used else None for grad, used in zip((*grads, None), live, strict=False)])

    return run


def _forward_at_any_scale(kernel: _Kernel) -> Callable[..., Forward]:
    """torch's kernels scale the -inf of hidden scores too: a negative scale would make +inf of it, and NaN."""

    def run(operands: Operands, added: Added, causal: bool, scale: float) -> Forward:
        if scale < 0.0:
            operands, scale = (-operands[0], operands[1], operands[2]), -scale
        return kernel.forward(operands, added, causal, scale)

    return run


def _backward_at_any_scale(kernel: _Kernel) -> Callable[..., Operands]:
    def run(
        g: Tensor, operands: Operands, y: Tensor, lse: Tensor, added: Added, causal: bool, scale: float
    ) -> Operands:
        if scale >= 0.0:
            return kernel.backward(g, operands, y, lse, added, causal, scale)
        query, key, value = operands
        dquery, dkey, dvalue = kernel.backward(g, (-query, key, value), y, lse, added, causal, -scale)
        return -dquery, dkey, dvalue

    return run


def _causal_part(
    query: TensorSpec, key: TensorSpec, *, masked: bool, causal: bool, offset: int, **_: object
) -> tuple[bool, tuple[int, int, int] | None]:
    """Tells if the kernel hides what is to come, or what to hide by a mask: (seq_q, seq_k, diagonal)."""
    if not causal:
        return False, None
    # on a GPU the kernels do not agree on which diagonal of an oblong is meant
    if offset == 0 and not masked and (query.place == "cpu" or query.shape[2] == key.shape[2]):
        return True, None
    return False, (query.shape[2], key.shape[2], offset + 1)


def _added(query: Tensor, mask: Tensor | None, bias: Tensor | None, hidden: tuple[int, int, int] | None) -> Tensor:
    """Mask, bias and what is to come as one mask to add, of four axes."""
    if hidden is not None:
        rows, columns, diagonal = hidden
        future = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu_(diagonal)
        mask = future if mask is None else mask | future
    if bias is None:
        assert mask is not None
        added = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill_(mask, _MINUS_INFINITY)
    else:
        added = bias if mask is None else torch.where(mask, _MINUS_INFINITY, bias)
    return added[(None,) * (4 - added.ndim)]


def _lines(x: Tensor) -> Tensor:
    """x with its last axis next to itself, which the kernels read."""
    return x if x.stride(3) == 1 else x.contiguous()
