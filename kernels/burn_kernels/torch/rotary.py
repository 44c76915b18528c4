"""Rotary position embedding as functions of PyTorch."""

from __future__ import annotations

import torch

from burn_kernels.errors import KernelArgumentError

__all__ = ["rope", "rope_computed"]


def rope(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Queries and keys, rotated by angles from tables: pairs are columns (i, i + pairs), or neighbours (interleaved).

    Shapes: q (batch, seq, heads, d_head), k (batch, seq, kv_heads, d_head) or None -> the same.  cos, sin
    (length, pairs), their row the position, or (batch or 1, seq, pairs), gathered already; columns from 2 * pairs on
    are copied.  positions (seq,) or (batch or 1, seq) integers, without them 0, 1, 2, ...; `offset` is added.
    Dtypes: q and k one float type, cos and sin any.  cos and sin carry no gradient.
    Views will do: of (batch, heads, seq, d_head) pass q.transpose(1, 2), and get a result that lies as q does.
    """
    _require_constant(cos, sin)
    y, z = torch.ops.burn_kernels.rope(q, k, cos, sin, positions, offset, interleaved, False)
    return y, None if k is None else z


def rope_computed(
    q: torch.Tensor,
    k: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As `rope`, with angles that are computed from `turns` (pairs,), see `burn_kernels.rope.turns`: no tables."""
    y, z = torch.ops.burn_kernels.rope_computed(q, k, turns, positions, offset, interleaved, False)
    return y, None if k is None else z


def _require_constant(*tables: torch.Tensor) -> None:
    if torch.is_grad_enabled() and any(table.requires_grad for table in tables):
        raise KernelArgumentError(
            "rope: the tables carry no gradient",
            given="cos or sin that requires one",
            expected="tables that are constants",
            mend="cos.detach(), sin.detach()",
        )
