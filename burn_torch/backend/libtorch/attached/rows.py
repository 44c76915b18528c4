"""Kernels of `burn_kernels` for rows along the last axis: softmax, layer norm, RMS norm, and their backwards; for
products with codes.

As the entries of `attached`: each makes the plan of a Call, or None where the kernel does not take it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from burn_torch.core.dtype import DType
from burn_torch.core.imports import named
from burn_torch.core.quantization import QuantValue
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import Call, Candidate
from burn_torch.ops.value import Primitive

__all__ = ["ROWS"]

_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)


def _fits(call: Call) -> bool:
    """Asks whether like tensors all have a type that kernels take, and there is something to compute."""
    x = call.specs[0]
    return isinstance(x, TensorSpec) and x.dtype in _FLOATS and x.ndim > 0 and x.numel > 0


def _along_last(call: Call) -> bool:
    return _fits(call) and call.attrs["dim"] == call.tensor(0).ndim - 1


def _function(path: str, takes: Callable[[Call], bool]) -> Callable[[Call], Candidate | None]:
    """The entry of a row that a function of `burn_kernels` computes as it is: "module:name"."""
    return lambda call: named(f"burn_kernels.{path}") if takes(call) else None


# -- norms ---------------------------------------------------------------------------------------------
def _layer_norm_backward(call: Call) -> Callable[..., object] | None:
    live, gamma = call.attrs["live"], call.specs[4]
    if not _fits(call) or not live[0] or (gamma is None and (live[1] or live[2])):
        return None
    from burn_kernels import norm

    def run(
        g: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, gamma: torch.Tensor | None
    ) -> Sequence[torch.Tensor | None]:
        grads = norm.layer_norm_backward(g, x, gamma, mean, rstd, bias=live[2])
        return [grad if wanted else None for grad, wanted in zip(grads, live, strict=True)]

    return run


def _rms_norm_backward(call: Call) -> Callable[..., object] | None:
    live, gamma = call.attrs["live"], call.specs[3]
    if not _fits(call) or not live[0] or (gamma is None and live[1]):
        return None
    from burn_kernels import norm

    def run(
        g: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, gamma: torch.Tensor | None
    ) -> Sequence[torch.Tensor | None]:
        grads = norm.rms_norm_backward(g, x, gamma, rstd)
        return [grad if wanted else None for grad, wanted in zip(grads, live, strict=True)]

    return run


# -- codes ---------------------------------------------------------------------------------------------
def _quantized_linear(call: Call) -> Callable[..., object] | None:
    codes, value = call.tensor(1), QuantValue(call.attrs["value"])
    if not _fits(call) or value.is_float or codes.dtype not in (DType.I8, DType.U8, DType.U32):
        return None
    if value.size_bits * call.attrs["per_word"] != 8 * codes.dtype.itemsize:  # 4 bits that stand alone in 8
        return None
    from burn_kernels import quantized_linear

    options = {"bits": value.size_bits, "size": call.attrs["size"], "block": call.attrs["block"]}
    return functools.partial(quantized_linear.forward, **options)


# -- groups of rows ------------------------------------------------------------------------------------
def _group_product(path: str) -> Callable[[Call], Candidate | None]:
    """A product of groups; offsets of narrow types are widened for the kernel."""

    def make(call: Call) -> Candidate | None:
        if not _fits(call) or not call.tensor(1).numel:
            return None
        compute = named(f"burn_kernels.grouped_matmul:{path}")
        if call.tensor(2).dtype in (DType.I64, DType.I32):
            return compute
        return lambda x, other, offsets: compute(x, other, offsets.long())

    return make


def _sequences(call: Call, at: int) -> tuple[dict[str, Primitive], Callable[..., None]] | None:
    """The options of packed attention, and what stops a program whose sequences are longer than they say."""
    query, key, value = (call.tensor(at + i) for i in range(3))
    d_head = query.shape[2]
    if query.dtype not in _FLOATS or d_head != value.shape[2] or d_head > 256 or not (query.numel and key.numel):
        return None
    longest = {"longest_q": call.attrs["longest_query"], "longest_k": call.attrs["longest_key"]}
    ends = (query.shape[0], key.shape[0])

    def require(*starts: torch.Tensor) -> None:
        for at, most, end in zip(starts, longest.values(), ends, strict=True):
            lengths = at[1:] - at[:-1]
            torch._assert_async(((lengths >= 0) & (lengths <= most)).all() & (at[0] == 0) & (at[-1] == end))

    return {"causal": call.attrs["causal"], **longest}, require


def _rule_of(scale: float, softcap: float | None) -> dict[str, Primitive]:
    return {"scale": float(scale)} | ({} if softcap is None else {"softcap": float(softcap)})


def _jagged_attention(call: Call) -> Callable[..., object] | None:
    takes = _sequences(call, 0)
    if takes is None:
        return None
    from burn_kernels import attention

    options, require = takes

    def run(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, query_starts: torch.Tensor,
        key_starts: torch.Tensor, scale: float, softcap: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        q_starts, k_starts = query_starts.long(), key_starts.long()
        require(q_starts, k_starts)
        y, lse = attention.forward_packed(query, key, value, q_starts, k_starts, **options, **_rule_of(scale, softcap))
        return y, torch.where(lse == -math.inf, 0.0, lse)  # of a query that sees nothing

    return run


def _jagged_attention_backward(call: Call) -> Callable[..., object] | None:
    takes, live = _sequences(call, 1), call.attrs["live"]
    if takes is None or not any(live):
        return None
    from burn_kernels import attention

    options, _ = takes  # the forward has asked

    def run(
        g: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, y: torch.Tensor,
        lse: torch.Tensor, query_starts: torch.Tensor, key_starts: torch.Tensor, scale: float, softcap: float | None,
    ) -> Sequence[torch.Tensor | None]:  # fmt: skip
        q_starts, k_starts = query_starts.long(), key_starts.long()
        grads = attention.backward_packed(
            g, query, key, value, q_starts, k_starts, y, lse, **options, **_rule_of(scale, softcap)
        )
        return [grad if wanted else None for grad, wanted in zip(grads, live, strict=True)]

    return run


# -- lattices ------------------------------------------------------------------------------------------
def _scans(call: Call) -> bool:
    weights = call.specs[1]
    return _fits(call) and isinstance(weights, TensorSpec) and weights.numel > 0


ROWS: Final[Mapping[str, Callable[[Call], Callable[..., object] | None]]] = {
    "band_scan": _function("lattice:band_scan", _scans),
    "grouped_matmul": _group_product("forward"),
    "grouped_outer": _group_product("outer"),
    "jagged_attention": _jagged_attention,
    "jagged_attention_backward": _jagged_attention_backward,
    "layer_norm": _function("norm:layer_norm", _fits),
    "layer_norm_backward": _layer_norm_backward,
    "log_band_scan": _function("lattice:log_band_scan", _scans),
    "log_softmax": _function("softmax:log_forward", _along_last),
    "log_softmax_backward": _function("softmax:log_backward", _along_last),
    "quantized_linear": _quantized_linear,
    "rms_norm": _function("norm:rms_norm", _fits),
    "rms_norm_backward": _rms_norm_backward,
    "softmax": _function("softmax:forward", _along_last),
    "softmax_backward": _function("softmax:backward", _along_last),
}
"""By the row's name."""
