"""Attention: each query reads the values that its keys weigh; the backward is in `attention.launch_backward`.

    s = q k^T * scale                              s = softcap * tanh(s / softcap)         if there is a softcap
    s = s + bias                                   s = -inf where a query does not see a key
    lse = log(sum over keys of exp(s))             y = exp(s - lse) v

A query sees the keys where `mask` is true; with `causal` those to its diagonal, with a `window` those less than so many
from it.  The diagonal of query i is key i (`align` "top_left", as torch's is_causal), or key i + seq_k - seq_q
("bottom_right", as FlashAttention's: the last query's is the last key).  A query that sees nothing reads zeros, has an
lse of -inf and gives no gradient.  Fewer heads of k and v than of q are shared by neighbours: h reads h // (heads /
kv_heads).  Dropout multiplies the weights by a mask that is a function of (key, stream, element number), drawn again in
the backward; an element's number counts (batch, heads, seq_q, seq_k) in order, of packed sequences (heads, total_q,
longest_k).

Limit: arithmetic.  4 * batch * heads * seq_q * seq_k * d_head operations forward, 10 backward, half of it under a
diagonal; it moves q, k, v and y.  The scores are never in memory; the backward computes them again from lse.
Layout: any strides with the last axis contiguous, otherwise a copy is made first; y lies as q does.  Offsets have 64
bits.  Accumulates in float32; weights are rounded to the type of v before the product with it.  float32 products are
IEEE's unless `precision` is "tf32".  Deterministic.
Source: Dao et al. 2022, algorithms 1 and 4, https://arxiv.org/abs/2205.14135; Dao 2023 for the order of loops.

Candidates: torch's own kernels (`attention.library`) beside ours.  Not timed, torch's choice among its own is taken
where that computes the same thing, ours for masks, biases, softcaps, windows, dropout and packed sequences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Unpack

from torch import Tensor

from burn_kernels.attention import library, references, selection, twins
from burn_kernels.attention.call import Call, call_of, packed_call_of, room_like
from burn_kernels.attention.configs import BackwardConfig, Config, candidates, default
from burn_kernels.attention.kernels import attention_forward
from burn_kernels.attention.launch_backward import backward, backward_packed
from burn_kernels.attention.references import (
    AttentionOptions,
    reference,
    reference_backward,
    reference_packed,
    reference_packed_backward,
)
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.launch import Machine, ceil_div, launch, machine_of, recorded, runs_kernel, wide_type
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, like
from burn_kernels.spec import register_kernel

__all__ = [
    "AttentionOptions",
    "BackwardConfig",
    "Config",
    "backward",
    "backward_packed",
    "candidates",
    "default",
    "forward",
    "forward_packed",
    "reference",
    "reference_backward",
    "reference_packed",
    "reference_packed_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    bias: Tensor | None = None, *, backward: bool = False, **_: object,
) -> int:  # fmt: skip
    """q, k, v and the bias read, y written; backward those, y and its gradient read, the gradients written."""
    operands = sum(x.numel() * x.element_size() for x in (q, k, v, bias) if x is not None)
    seen = 0 if mask is None else mask.numel()
    y = q.numel() * q.element_size()
    return 2 * operands + 2 * y + seen if backward else operands + y + seen


def flops(
    q: Tensor, k: Tensor, v: Tensor, *_: object, causal: bool = False, backward: bool = False, **__: object
) -> int:
    """Two products forward, five backward; of packed sequences at most, as if all were one."""
    pairs = q.numel() * k.shape[-2 if q.dim() == 4 else 0]
    return (10 if backward else 4) * pairs // (2 if causal else 1)


# -- launchers ---------------------------------------------------------------------------------------
def compute_on_host(*operands: Any, **options: Unpack[AttentionOptions]) -> tuple[Tensor, Tensor]:
    """y and lse without our kernels: by torch's flash attention of the CPU where it computes the call."""
    q, k, v, mask, bias = operands
    rule = references.rule_of("attention", q, **options)
    if references.in_torch(q, k, mask, bias, rule):
        return library.forward(library.TORCHS, q, k, v, rule.causal, rule.factor)
    return reference(*operands, **options)


@launcher("attention", "q, k, v; mask, bias", reference=compute_on_host, options=references.check_dense)
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    config: Config | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Tensor, Tensor]:
    """y, and lse, the logarithm of the sum of the exponentials of each query's scores.

    Shapes: q (batch, heads, seq_q, d_head), k, v (batch, kv_heads, seq_k, d_head), mask and bias broadcast to (batch,
    heads, seq_q, seq_k) -> y as q, lse (batch, heads, seq_q).  `mask` is true where a key is seen, as torch's.
    Dtypes: q, k, v one of float32, float16, bfloat16, on the CPU float64 too; bias any float; lse float32.
    """
    return _run("attention", call_of(q, k, v, mask, bias, references.rule_of("attention", q, **options)), config)


@launcher(
    "attention_packed", "q, k, v; q_starts, k_starts", reference=reference_packed, options=references.check_packed
)
def forward_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    *,
    longest_q: int,
    longest_k: int,
    config: Config | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[Tensor, Tensor]:
    """y and lse of sequences of unlike lengths, packed behind each other.

    Shapes: q (total_q, heads, d_head), k, v (total_k, kv_heads, d_head), q_starts, k_starts (sequences + 1,) integers
    on the device of q -> y as q, lse (heads, total_q).  No sequence is longer than `longest_q`, `longest_k`; on a GPU,
    which is not waited for, what is longer is not computed.
    """
    rule = references.rule_of("attention_packed", q, **options)
    call = packed_call_of(q, k, v, (q_starts, k_starts), (longest_q, longest_k), rule)
    y, lse = _run("attention_packed", call, config)
    return y[0].transpose(0, 1), lse[0]


def _run(op: str, call: Call, config: Config | None) -> tuple[Tensor, Tensor]:
    q, k, v, rule = call.q, call.k, call.v, call.rule
    references.check_dim(op, q)
    if call.bias is not None:
        runs_kernel(op, call.bias)  # raises for its element type
    if call.empty:
        return room_like(q).zero_(), call.statistics().fill_(-float("inf"))
    ours = functools.partial(default, q.shape[3], q.element_size(), machine_of(q), extras=call.extras)

    def run(config: Config) -> tuple[Tensor, Tensor]:
        number, config = call.choose(config, ours)
        if number:
            return library.forward(number, q, k, v, rule.causal, rule.factor)
        y, lse = room_like(q), call.statistics()
        grid = (ceil_div(call.seq_q, config.rows) * call.batch * call.heads,)
        launch(
            attention_forward, grid, q, *call.arguments(), None, y, lse, call.steps(y), warps=config.warps,
            stages=config.stages, FLAGS=call.flags(), ROWS=config.rows, COLS=config.cols, PAST=call.past(config.cols),
        )  # fmt: skip
        return y, lse

    if config is None and (recorded() is not None or not q.is_cuda):
        config = ours()
    return CHOICE.run(q, config, call.facts(), run)


# -- selection ---------------------------------------------------------------------------------------
def _candidates(facts: Facts, machine: Machine) -> list[Config]:
    extras = selection.extras_of(facts.flags.split())
    ours = candidates(facts.exact[1], facts.dtype.itemsize, machine, extras=extras)
    return selection.join_candidates(Config, ours, facts, machine)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    operands, options = selection.draw_problem(facts, inputs)
    if "packed" in facts.flags.split():
        return Trial.of(forward_packed, *operands, **options)
    return Trial(
        operands,
        lambda given, config: forward(*given, config=config, **options),
        lambda given: reference(*given, **options),
    )


CHOICE = selection.attention_tunable(
    "attention",
    back=False,
    config=Config,
    facts=selection.facts_of,
    candidates=_candidates,
    trial=_trial,
    kernels=(attention_forward,),
    problems=selection.problems_of,
)


# -- registration ------------------------------------------------------------------------------------
def _gradient(run: Callable[..., Any], dy: Tensor, inputs: Any, outputs: Any, **options: Any) -> Any:
    dq, dk, dv, dbias = run(dy, *inputs, *outputs, **options)
    return dq, dk, dv, None, dbias


def _packed_gradient(run: Callable[..., Any], dy: Tensor, inputs: Any, outputs: Any, **options: Any) -> Any:
    return *run(dy, *inputs, *outputs, **options), None, None


_RULE = "Tensor? seed, float? scale, bool causal, str align, int? window, float? softcap, float prob"
_RULE_NAMES = "seed scale causal align window softcap prob"


def _without_backward(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` without the options that are for the backward's kernels alone."""

    def call(*inputs: Any, deterministic: bool = True, bias_gradient: bool = True, **options: Any) -> Any:
        return run(*inputs, **options)

    return call


_LIMITS = "d_head above 256; float64 on a GPU"
_REFERENCE_GRADIENT = functools.partial(_gradient, reference_backward)
SPEC = register_kernel(
    forward,
    backward,
    reference=reference,
    gradient=_gradient,
    reference_gradient=_REFERENCE_GRADIENT,
    twin=twins.twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=twins.problems,
    large=twins.large,
    limits=_LIMITS,
    draw_call=twins.draw_call,
    operators=[
        Operator(
            schema=f"attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? bias, {_RULE},"
            " bool deterministic) -> (Tensor, Tensor)",
            inputs="q k v mask bias",
            fake=lambda q, *_: (room_like(q), q.new_empty(q.shape[:3], dtype=wide_type(q.dtype))),
            results="y lse",
            gradients="q k v bias",
            saved=f"y lse q k v mask bias {_RULE_NAMES} deterministic bias_gradient",
            forward=_without_backward(forward),
            reference=_without_backward(reference),
            reference_gradient=_without_backward(_REFERENCE_GRADIENT),
            twin=lambda *inputs, **options: _without_backward(reference)(*inputs, **options)[0],
            room=room_like,
            laid="q k v",
            drops_unseeded=True,
        )
    ],
)
PACKED_SPEC = register_kernel(
    forward_packed,
    backward_packed,
    gradient=_packed_gradient,
    twin=twins.twin_packed,
    bytes_moved=lambda q, k, v, *_, backward=False, **__: bytes_moved(q, k, v, backward=backward),
    flops=flops,
    problems=twins.packed_problems,
    large=twins.large_packed,
    limits=_LIMITS,
    draw_call=twins.draw_packed_call,
    operators=[
        Operator(
            schema="attention_packed(Tensor q, Tensor k, Tensor v, Tensor q_starts, Tensor k_starts,"
            f" SymInt longest_q, SymInt longest_k, {_RULE}) -> (Tensor, Tensor)",
            inputs="q k v q_starts k_starts",
            fake=lambda q, *_: (like(q), q.new_empty((q.shape[1], q.shape[0]), dtype=wide_type(q.dtype))),
            results="y lse",
            gradients="q k v",
            saved=f"y lse q k v q_starts k_starts longest_q longest_k {_RULE_NAMES}",
            twin=lambda *inputs, **options: reference_packed(*inputs, **options)[0],
            drops_unseeded=True,
        )
    ],
)
