"""Attention as operators of PyTorch: sequences of one length, and packed ones.

Results lie as their operands do, heads or positions first, so that what a model does with them next needs no copy.
"""

from __future__ import annotations

from typing import Any

import torch

from burn_kernels import attention
from burn_kernels.attention.call import room_like
from burn_kernels.errors import KernelDeviceError
from burn_kernels.launch import describe, wide_type
from burn_kernels.torch.defining import define, differentiate, like, nothing, or_reference, present, second

__all__: list[str] = []

_RULE = "Tensor? seed, float? scale, bool causal, str align, int? window, float? softcap, float prob"
_NAMES = ("scale", "causal", "align", "window", "softcap", "prob")


def _options(op: str, seed: torch.Tensor | None, *rule: object) -> dict[str, Any]:
    """The launchers' options of an operator's arguments."""
    options = dict(zip(_NAMES, rule, strict=True))
    if seed is None:
        return options
    if seed.device.type != "cpu":
        raise KernelDeviceError(
            f"{op}: the seed lies on a device, and reading it would wait for that",
            given=describe({"seed": seed}),
            expected="two int64 numbers, key and stream, on the CPU",
            mend="seed.cpu(), once, where it is made",
        )
    key, stream = seed.tolist()
    return options | {"key": key, "stream": stream}


def _ordered(x: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    """x as `room_like` has it: itself, or a copy."""
    room = room_like(operand)
    return x if x.stride() == room.stride() else room.copy_(x)


# -- sequences of one length -----------------------------------------------------------------------------
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    seed: torch.Tensor | None,
    *rule: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    *options, _ = rule
    run = or_reference("attention", attention.forward, attention.reference)
    y, lse = run(q, k, v, mask, bias, **_options("attention", seed, *options))
    return _ordered(y, q), lse.contiguous()


def _attention_backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    seed: torch.Tensor | None,
    *rule: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    *options, deterministic, wanted = rule
    name = "attention backward"

    def kernel(*operands: Any, **named: Any) -> Any:
        return attention.backward(*operands, deterministic=deterministic, bias_gradient=wanted, **named)

    run = or_reference(name, kernel, attention.reference_backward)
    dq, dk, dv, db = run(dy, q, k, v, mask, bias, y, lse, **_options(name, seed, *options))
    learned = bias if wanted else None
    return _ordered(dq, q), _ordered(dk, k), _ordered(dv, v), present(name, learned, db, q)


def _fake(q: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return room_like(q), torch.empty(q.shape[:3], dtype=wide_type(q.dtype), device=q.device)


def _fake_backward(
    dy: object,
    y: object,
    lse: object,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: object,
    bias: Any,
    *rest: object,
) -> tuple[torch.Tensor, ...]:
    learned = bias is not None and rest[-1]
    db = torch.empty(bias.shape, dtype=bias.dtype, device=bias.device) if learned else nothing(q)
    return room_like(q), room_like(k), room_like(v), db


ATTENTION = define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? bias, " + _RULE + ", bool deterministic)"
    " -> (Tensor, Tensor)",
    _attention,
    _fake,
)
_ATTENTION_BACKWARD = define(
    "attention_backward(Tensor dy, Tensor y, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? bias, "
    + _RULE
    + ", bool deterministic, bool bias_gradient) -> (Tensor, Tensor, Tensor, Tensor)",
    _attention_backward,
    _fake_backward,
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, scale, causal, align, window, softcap, prob, deterministic = inputs
    ctx.rule = (scale, causal, align, window, softcap, prob)
    ctx.deterministic = deterministic
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors)


def _gradient(ctx: Any, dy: torch.Tensor | None, _: object) -> Any:
    none = (None,) * 8
    if dy is None:
        return (None,) * 5 + none
    y, lse, q, k, v, mask, bias, seed = ctx.saved_tensors
    wanted = bias is not None and ctx.needs_input_grad[4]
    arguments = (dy, y, lse, q, k, v, mask, bias, seed, *ctx.rule, ctx.deterministic, wanted)
    dq, dk, dv, db = _ATTENTION_BACKWARD(*arguments)
    return dq, dk, dv, None, db if wanted else None, *none


def _setup_backward(ctx: Any, inputs: Any, output: object) -> None:
    dy, _, _, *tensors, scale, causal, align, window, softcap, prob, _, wanted = inputs
    ctx.rule, ctx.wanted = (scale, causal, align, window, softcap, prob), wanted
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(dy, *tensors)


def _second_gradient(ctx: Any, *upstream: torch.Tensor | None) -> object:
    dy, q, k, v, mask, bias, seed = ctx.saved_tensors
    options = _options("attention", seed, *ctx.rule)
    operands = (q, k, v, bias if ctx.wanted else None)

    def twin(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, learned: torch.Tensor | None) -> torch.Tensor:
        return attention.reference(q, k, v, mask, bias if learned is None else learned, **options)[0]

    ddy, dq, dk, dv, db = second(twin, dy, operands, upstream)
    return ddy, None, None, dq, dk, dv, None, db, *((None,) * 9)


differentiate(ATTENTION, _setup, _gradient)
differentiate(_ATTENTION_BACKWARD, _setup_backward, _second_gradient)


# -- packed sequences ------------------------------------------------------------------------------------
_PACKED = "Tensor q, Tensor k, Tensor v, Tensor q_starts, Tensor k_starts"
_LONGEST = "SymInt longest_q, SymInt longest_k, "


def _packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    longest_q: int,
    longest_k: int,
    seed: torch.Tensor | None,
    *rule: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    name = "attention_packed"
    run = or_reference(name, attention.forward_packed, attention.reference_packed)
    lengths = {"longest_q": longest_q, "longest_k": longest_k}
    y, lse = run(q, k, v, q_starts, k_starts, **lengths, **_options(name, seed, *rule))
    return y.contiguous(), lse.contiguous()


def _packed_backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    longest_q: int,
    longest_k: int,
    seed: torch.Tensor | None,
    *rule: object,
) -> tuple[torch.Tensor, ...]:
    name = "attention_packed backward"
    run = or_reference(name, attention.backward_packed, attention.reference_packed_backward)
    lengths = {"longest_q": longest_q, "longest_k": longest_k}
    found = run(dy, q, k, v, q_starts, k_starts, y, lse, **lengths, **_options(name, seed, *rule))
    return tuple(x.contiguous() for x in found)


ATTENTION_PACKED = define(
    f"attention_packed({_PACKED}, {_LONGEST}{_RULE}) -> (Tensor, Tensor)",
    _packed,
    lambda q, *_: (like(q), torch.empty(q.shape[1], q.shape[0], dtype=wide_type(q.dtype), device=q.device)),
)
_PACKED_BACKWARD = define(
    f"attention_packed_backward(Tensor dy, Tensor y, Tensor lse, {_PACKED}, {_LONGEST}{_RULE})"
    " -> (Tensor, Tensor, Tensor)",
    _packed_backward,
    lambda dy, y, lse, q, k, v, *_: (like(q), like(k), like(v)),
)


def _setup_packed(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, longest_q, longest_k, seed, ctx.scale, ctx.causal, ctx.align, ctx.window, ctx.softcap, ctx.prob = inputs
    ctx.longest = longest_q, longest_k
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors, seed)


def _rule(ctx: Any) -> tuple[Any, ...]:
    return ctx.scale, ctx.causal, ctx.align, ctx.window, ctx.softcap, ctx.prob


def _packed_gradient(ctx: Any, dy: torch.Tensor | None, _: object) -> Any:
    if dy is None:
        return (None,) * 14
    *tensors, seed = ctx.saved_tensors
    return *_PACKED_BACKWARD(dy, *tensors, *ctx.longest, seed, *_rule(ctx)), *((None,) * 11)


def _setup_packed_backward(ctx: Any, inputs: Any, output: object) -> None:
    dy, _, _, *tensors = inputs[:8]
    ctx.longest, seed, rule = inputs[8:10], inputs[10], inputs[11:]
    ctx.scale, ctx.causal, ctx.align, ctx.window, ctx.softcap, ctx.prob = rule
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(dy, *tensors, seed)


def _packed_second(ctx: Any, *upstream: torch.Tensor | None) -> object:
    dy, q, k, v, q_starts, k_starts, seed = ctx.saved_tensors
    options = _options("attention_packed", seed, *_rule(ctx))
    lengths = dict(zip(("longest_q", "longest_k"), ctx.longest, strict=True))

    def twin(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention.reference_packed(q, k, v, q_starts, k_starts, **lengths, **options)[0]

    ddy, dq, dk, dv = second(twin, dy, (q, k, v), upstream)
    return ddy, None, None, dq, dk, dv, *((None,) * 11)


differentiate(ATTENTION_PACKED, _setup_packed, _packed_gradient)
differentiate(_PACKED_BACKWARD, _setup_packed_backward, _packed_second)
