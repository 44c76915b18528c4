"""Rotary position embedding as operators and functions of PyTorch; `defining` says what holds for all.

The gradient is the same operator with the rotation reversed, and so are all further ones.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from burn_kernels import rope as launchers
from burn_kernels.errors import KernelArgumentError
from burn_kernels.torch.defining import define, differentiate, nothing, or_reference

__all__ = ["rope", "rope_computed"]


def _ordered(x: torch.Tensor) -> torch.Tensor:
    """x with neighbours in memory along its last axis, and a result for it has the order of its axes."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _placed(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """y as it is, or laid as `empty_like(x)` lies: what the fake says."""
    place = torch.empty_like(x)
    return y if y.stride() == place.stride() else place.copy_(y)


def _run(computed: bool, q: torch.Tensor, k: torch.Tensor | None, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    *angles, positions, offset, interleaved, inverse = rest
    q, k = _ordered(q), None if k is None else _ordered(k)
    options = {"offset": offset, "interleaved": interleaved}
    if computed:
        kernel, plain = (
            launchers.backward_computed if inverse else launchers.forward_computed,
            launchers.reference_computed,
        )
    else:
        kernel, plain = launchers.backward if inverse else launchers.forward, launchers.reference  # type: ignore[assignment]  # alike
    run = or_reference("rope", kernel, functools.partial(plain, inverse=inverse))
    y, z = run(q, k, *angles, positions, **options)
    return _placed(y, q), nothing(q) if k is None else _placed(z, k)


def _fake(q: torch.Tensor, k: torch.Tensor | None, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(_ordered(q)), nothing(q) if k is None else torch.empty_like(_ordered(k))


def _define(name: str, angles: str, count: int) -> Any:
    op = define(
        f"{name}(Tensor q, Tensor? k, {angles}, Tensor? positions, int offset, bool interleaved, bool inverse)"
        " -> (Tensor, Tensor)",
        functools.partial(_run, count == 1),
        _fake,
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        _, k, *tensors, ctx.offset, ctx.interleaved, ctx.inverse = inputs
        ctx.pair = k is not None
        if not ctx.pair:
            ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    def gradient(ctx: Any, dq: torch.Tensor | None, dk: torch.Tensor | None) -> Any:
        none = (None,) * (count + 4)
        options = (ctx.offset, ctx.interleaved, not ctx.inverse)
        if not ctx.pair or dk is None:
            return None if dq is None else op(dq, None, *ctx.saved_tensors, *options)[0], None, *none
        if dq is None:
            return None, op(dk, None, *ctx.saved_tensors, *options)[0], *none
        return *op(dq, dk, *ctx.saved_tensors, *options), *none

    differentiate(op, setup, gradient)
    return op


ROPE = _define("rope", "Tensor cos, Tensor sin", 2)
ROPE_COMPUTED = _define("rope_computed", "Tensor turns", 1)


# -- functions -----------------------------------------------------------------------------------------
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
