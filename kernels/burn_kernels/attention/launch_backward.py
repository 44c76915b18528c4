"""The backward of attention: delta and dq by blocks of queries, then dk and dv by blocks of keys, and that of a bias.

    p  = exp(s - lse)         ds = p * (dy v^T - sum(dy * y))
    dq = ds k * scale         dk = ds^T q * scale          dv = p^T dy         dbias = ds, summed over what shares it

With a softcap ds is multiplied by its slope for dq and dk; with dropout p by the mask in dv, and dy v^T by it.

Limit: arithmetic.  14 * batch * heads * seq_q * seq_k * d_head operations where 10 are needed: the scores and dy v^T
are computed once for dq and once for dk and dv, so that each sum has one owner and no atomics; a bias takes 4 more.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Unpack

import torch

from burn_kernels.attention import library, references, selection
from burn_kernels.attention.call import Call, call_of, lines, packed_call_of, room_like
from burn_kernels.attention.configs import BackwardConfig, backward_candidates, backward_default
from burn_kernels.attention.kernels_backward import (
    BiasShape,
    KeyStrides,
    QueryStrides,
    bias_backward,
    keys_backward,
    queries_backward,
)
from burn_kernels.attention.references import AttentionOptions, Gradients
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.launch import Machine, ceil_div, launch, machine_of, next_power, recorded, runs_kernel
from burn_kernels.launcher import launcher


# -- configs -----------------------------------------------------------------------------------------
def _kind(packed: bool, bias: bool, extras: int) -> str:
    """The kind of call that has a cut of its own: packed sequences, or nothing but a bias beside a diagonal."""
    return "packed" if packed else "bias" if bias and extras == 1 else ""


def bias_cut(call: Call, half: bool, machine: Machine, config: BackwardConfig) -> tuple[int, int, int, int]:
    """Rows and columns of the tiles in which the gradient of a bias is summed, warps and stages."""
    dim = call.q.shape[3]
    if machine.arch == 90 and half and dim <= 128:
        return 64, 64 if dim <= 64 and not call.scattered else 32, 4, 3
    rows = min(config.owned, 64 if machine.backend != "hip" else 16)
    return rows, 16, config.warps if half else min(4, config.warps), 1


# -- launchers ---------------------------------------------------------------------------------------
def compute_on_host(
    dy: torch.Tensor,
    *operands: Any,
    deterministic: bool = True,
    bias_gradient: bool = True,
    **options: Unpack[AttentionOptions],
) -> Gradients:
    """The gradients without our kernels: by torch's flash attention of the CPU where it computes the call."""
    q, k, v, mask, bias, y, lse = operands
    rule = references.rule_of("attention backward", q, **options)
    if references.in_torch(q, k, mask, bias, rule):
        return *library.backward(library.TORCHS, dy, q, k, v, y, lse, rule.causal, rule.factor), None
    dq, dk, dv, db = references.reference_backward(dy, *operands, **options)
    return dq, dk, dv, db if bias_gradient else None


@launcher(
    "attention backward",
    "dy as q, q (batch, heads, seq_q, d_head), k, v, y as q; mask, bias, lse (batch, heads, seq_q)",
    reference=compute_on_host,
    options=lambda op, dy, *operands, **options: references.check_dense(op, *operands[:5], **options),
)
def backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    lse: torch.Tensor,
    *,
    deterministic: bool = True,
    bias_gradient: bool = True,
    config: BackwardConfig | None = None,
    **options: Unpack[AttentionOptions],
) -> Gradients:
    """The gradients of q, k, v and bias, each as its operand; that of bias None where there is none, or none is wanted.

    torch's kernels sum with float atomics, so they are candidates only if not `deterministic`.
    """
    call = call_of(q, k, v, mask, bias, references.rule_of("attention backward", q, **options))
    outputs = Outputs(lines(dy), lines(y), lse.contiguous())
    return run_backward("attention backward", call, outputs, bias if bias_gradient else None, deterministic, config)


@launcher(
    "attention_packed backward",
    "dy as q, q (total_q, heads, d_head), k, v, y as q; q_starts, k_starts, lse (heads, total_q)",
    reference=references.reference_packed_backward,
    options=lambda op, dy, *operands, **options: references.check_packed(op, *operands[:5], **options),
)
def backward_packed(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_starts: torch.Tensor,
    k_starts: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    *,
    longest_q: int,
    longest_k: int,
    config: BackwardConfig | None = None,
    **options: Unpack[AttentionOptions],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v of `forward_packed`."""
    op = "attention_packed backward"
    rule = references.rule_of(op, q, **options)
    call = packed_call_of(q, k, v, (q_starts, k_starts), (longest_q, longest_k), rule)
    outputs = Outputs(lines(dy).transpose(0, 1)[None], lines(y).transpose(0, 1)[None], lse.contiguous())
    dq, dk, dv, _ = run_backward(op, call, outputs, None, True, config)
    return dq[0].transpose(0, 1), dk[0].transpose(0, 1), dv[0].transpose(0, 1)


class Outputs(NamedTuple):
    """The outputs of a forward with the gradient of the first, as the kernels take them."""

    dy: torch.Tensor
    y: torch.Tensor
    lse: torch.Tensor


def run_backward(
    op: str, call: Call, outputs: Outputs, bias: torch.Tensor | None, deterministic: bool, config: BackwardConfig | None
) -> Gradients:
    """The gradients of a call; that of the bias is as `bias`, None without."""
    q, k, v, rule = call.q, call.k, call.v, call.rule
    references.check_dim(op, q)
    if call.bias is not None:
        runs_kernel(op, call.bias)  # raises for its element type
    db = None if bias is None else torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    if call.empty:
        return room_like(q).zero_(), room_like(k).zero_(), room_like(v).zero_(), None if db is None else db.zero_()
    dy, y, lse = outputs
    kind = call.body.kind if call.body else _kind(call.q_starts is not None, call.bias is not None, call.extras)
    ours = functools.partial(
        backward_default, q.shape[3], q.element_size(), machine_of(q), extras=call.extras, kind=kind
    )

    def run(config: BackwardConfig) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        number, config = call.choose(config, ours)
        if number:
            return library.backward(number, dy, q, k, v, y, lse, rule.causal, rule.factor)
        dq, dk, dv = room_like(q), room_like(k), room_like(v)
        base, delta = call.statistics(), call.statistics()
        rest = call.statistics() if q.dtype == torch.float32 else None
        shared: dict[str, Any] = {"warps": config.warps, "stages": config.stages, "FLAGS": call.flags(backward=True)}
        grid = (ceil_div(call.seq_q, config.owned) * call.batch * call.heads,)
        operands = call.arguments()
        query_strides = QueryStrides(*call.steps(dy), *call.steps(y), *call.steps(dq))
        arguments = (*operands, dy, y, lse, base, delta, rest, dq, query_strides)
        split = rule.window is None and rest is None
        before = shared | {"stages": config.ahead or config.stages}
        sizes = {"ROWS": config.owned, "COLS": config.step, "PAST": call.past(config.step)}
        launch(queries_backward, grid, q, *arguments, **before, **sizes, SPLIT=split)
        grid = (ceil_div(call.seq_k, config.owned) * call.batch * k.shape[1],)
        operands = call.arguments(columns=True)
        key_strides = KeyStrides(*call.steps(dy), *call.steps(dk), *call.steps(dv))
        arguments = (*operands, dy, base, delta, rest, dk, dv, key_strides)
        step, past = config.turned or config.step, call.past(config.owned)
        one = machine_of(q).arch == 90 and rest is None and 64 < q.shape[3] <= 128 and q.shape[1] > k.shape[1]
        one = one and call.body is None
        sizes = {"ROWS": step, "COLS": config.owned, "PAST": past, "FULL": call.full(step), "ONE": one}
        launch(keys_backward, grid, q, *arguments, **shared, **sizes)
        if db is not None:
            _bias(call, (dy, base, delta, rest), db, config, shared)
        return dq, dk, dv

    if config is None and (recorded() is not None or not q.is_cuda or call.body is not None):
        config = ours()
    return *CHOICE.run(q, config, (*call.facts(), deterministic, bias is not None), run), db


def _bias(
    call: Call,
    statistics: tuple[torch.Tensor | None, ...],
    db: torch.Tensor,
    config: BackwardConfig,
    shared: dict[str, Any],
) -> None:
    batches, heads, rows, cols = (1,) * (4 - db.dim()) + tuple(db.shape)
    machine, half = machine_of(call.q), statistics[3] is None
    block_rows, block_cols, warps, stages = bias_cut(call, half, machine, config)
    one_row, one_col = rows == 1 < call.seq_q, cols == 1 < call.seq_k
    own_rows = batches * heads * (1 if one_row else ceil_div(rows, block_rows))
    own_cols = 1 if one_col else ceil_div(cols, block_cols)
    each = max(1, min(8, next_power(own_rows * own_cols // (8 * machine.processors))))
    dy = statistics[0]
    assert dy is not None
    shape = BiasShape(call.batch, batches, heads, rows, cols)
    operands = call.arguments()[:-2]  # without lists and what functions of scores read: no such call has a bias
    arguments = (*operands, *statistics, db, call.steps(dy), shape)
    flags = {"ROWS": block_rows, "COLS": block_cols, "ONE_ROW": one_row, "ONE_COL": one_col, "EACH": each}
    flags |= {"PAST": call.past(block_cols), "FULL": call.full(block_rows)}
    shared = shared | {"stages": stages, "warps": warps}
    launch(bias_backward, (own_rows * ceil_div(own_cols, each),), call.q, *arguments, **shared, **flags)


# -- selection ---------------------------------------------------------------------------------------
def _facts(*call: Any) -> Facts:
    *common, deterministic, bias = call
    facts = selection.facts_of(*common)
    return facts._replace(flags=facts.flags + (" dbias" if bias else "") + ("" if deterministic else " any_order"))


def _candidates(facts: Facts, machine: Machine) -> list[BackwardConfig]:
    flags = facts.flags.split()
    extras = selection.extras_of(flags)
    kind = _kind("packed" in flags, "bias" in flags, extras)
    ours = backward_candidates(facts.exact[1], facts.dtype.itemsize, machine, extras=extras, kind=kind)
    return selection.join_candidates(BackwardConfig, ours, facts, machine, back=True)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    operands, options = selection.draw_problem(facts, inputs)
    flags = facts.flags.split()
    run: Any = references.reference
    back: Any = backward
    plain: Any = references.reference_backward
    more: dict[str, Any] = {"deterministic": "any_order" not in flags, "bias_gradient": "dbias" in flags}
    if "packed" in flags:
        run, back, plain, more = references.reference_packed, backward_packed, references.reference_packed_backward, {}
    if "packed" in flags and inputs.device.type == "meta":  # the ends of sequences cannot be read there
        q = operands[0]
        y, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    else:
        y, lse = run(*operands, **options)
    dy = inputs.normal(*y.shape, dtype=facts.dtype)
    return Trial(
        (dy, *operands, y, lse),
        lambda given, config: [x for x in back(*given, config=config, **options, **more) if x is not None],
        lambda given: plain(*given, **options)[: 4 if "dbias" in flags else 3],
    )


def _problems(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    plain = selection.problems_of(rows, cols, dtype)
    learned = [f._replace(flags=f"{f.flags} dbias") for f in plain if "bias" in f.flags]
    loose = [f._replace(flags=f"{f.flags} any_order") for f in plain if selection.of_library(f)]
    return [*plain, *learned, *loose]


CHOICE = selection.attention_tunable(
    "attention backward",
    back=True,
    config=BackwardConfig,
    facts=_facts,
    candidates=_candidates,
    trial=_trial,
    kernels=(queries_backward, keys_backward, bias_backward),
    problems=_problems,
)
