"""The backward of attention: delta and dq by blocks of queries, then dk and dv by blocks of keys, and that of a bias.

    p  = exp(s - lse)         ds = p * (dy v^T - sum(dy * y))
    dq = ds k * scale         dk = ds^T q * scale          dv = p^T dy         dbias = ds, summed over what shares it

With a softcap ds is multiplied by its slope for dq and dk; with dropout p by the mask in dv, and dy v^T by it.

Limit: arithmetic.  14 * batch * heads * seq_q * seq_k * d_head operations where 10 are needed: the scores and dy v^T
are computed once for dq and once for dk and dv, so that each sum has one owner and no atomics; a bias takes 4 more.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch

from burn_kernels.attention import library
from burn_kernels.attention.call import (
    Call,
    call_of,
    extras_of,
    facts_of,
    lines,
    of_library,
    packed_call_of,
    problems_of,
    room_like,
    tiles,
    trial_parts,
)
from burn_kernels.attention.configs import BackwardConfig, backward_candidates, backward_default
from burn_kernels.attention.kernels_backward import BiasShape, bias_backward, keys_backward, queries_backward
from burn_kernels.attention.references import (
    Gradients,
    Options,
    check_dense,
    check_dim,
    check_packed,
    in_torch,
    reference,
    reference_backward,
    reference_packed,
    reference_packed_backward,
    rule_of,
)
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.launch import Machine, ceil_div, check, launch, machine_of, next_power, recorded, runs_kernel


# -- configs -----------------------------------------------------------------------------------------
def _kind(packed: bool, bias: bool, extras: int) -> str:
    """What has a cut of its own: packed sequences, or nothing but a bias beside a diagonal."""
    return "packed" if packed else "bias" if bias and extras == 1 else ""


def bias_cut(call: Call, half: bool, machine: Machine, config: BackwardConfig) -> tuple[int, int, int, int]:
    """Rows and columns of the tiles in which the gradient of a bias is summed, warps and stages."""
    dim = call.q.shape[3]
    if machine.arch == 90 and half and dim <= 128:
        return 64, 64 if dim <= 64 and not call.scattered else 32, 4, 3
    rows = min(config.owned, 64 if machine.backend != "hip" else 16)
    return rows, 16, config.warps if half else min(4, config.warps), 1


# -- launchers ---------------------------------------------------------------------------------------
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
    **options: Unpack[Options],
) -> Gradients:
    """The gradients of q, k, v and bias, each as its operand; that of bias None where there is none, or none is wanted.

    torch's kernels sum with float atomics, so they are candidates only if not `deterministic`.
    """
    op = "attention backward"
    rule = rule_of(op, q, **options)
    check_dense(op, q, k, v, mask, bias)
    check(op, {"dy": dy, "q": q, "y": y, "lse": lse}, {"dy": q.shape, "y": q.shape, "lse": q.shape[:3]},
          alike=["dy", "q", "y"])  # fmt: skip
    wanted = bias is not None and bias_gradient
    if not runs_kernel(op, q, *(() if bias is None else (bias,))):
        if in_torch(q, k, mask, bias, rule):
            return *library.backward(library.TORCHS, dy, q, k, v, y, lse, rule.causal, rule.scale), None
        dq, dk, dv, db = reference_backward(dy, q, k, v, mask, bias, y=y, lse=lse, **options)
        return dq, dk, dv, db if wanted else None
    call = call_of(q, k, v, mask, bias, rule)
    return _run(op, call, lines(dy), lines(y), lse.contiguous(), bias if wanted else None, deterministic, config)


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
    **options: Unpack[Options],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v of `forward_packed`."""
    op = "attention_packed backward"
    rule = rule_of(op, q, **options)
    longest = longest_q, longest_k
    check_packed(op, q, k, v, q_starts, k_starts, longest)
    check(op, {"dy": dy, "q": q, "y": y, "lse": lse}, {"dy": q.shape, "y": q.shape, "lse": (q.shape[1], q.shape[0])},
          alike=["dy", "q", "y"])  # fmt: skip
    if not runs_kernel(op, q):
        lengths: Any = {"longest_q": longest_q, "longest_k": longest_k}
        return reference_packed_backward(dy, q, k, v, q_starts, k_starts, y=y, lse=lse, **lengths, **options)
    call = packed_call_of(q, k, v, q_starts, k_starts, longest, rule)
    upstream, seen = (lines(x).transpose(0, 1)[None] for x in (dy, y))
    found = _run(op, call, upstream, seen, lse.contiguous(), None, True, config)
    dq, dk, dv = (x[0].transpose(0, 1) for x in found[:3] if x is not None)
    return dq, dk, dv


def _run(
    op: str,
    call: Call,
    dy: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    bias: torch.Tensor | None,
    deterministic: bool,
    config: BackwardConfig | None,
) -> Gradients:
    check_dim(op, call.q)
    q, k, v, rule = call.q, call.k, call.v, call.rule
    db = None if bias is None else torch.empty(bias.shape, dtype=bias.dtype, device=bias.device)
    if call.empty:
        return room_like(q).zero_(), room_like(k).zero_(), room_like(v).zero_(), None if db is None else db.zero_()
    found: list[torch.Tensor] = []
    kind = _kind(call.q_starts is not None, call.bias is not None, call.extras)
    plain = backward_default(q.shape[3], q.element_size(), machine_of(q), extras=call.extras, kind=kind)

    def run(config: BackwardConfig) -> None:
        number = config.library
        if number == library.TORCHS:
            number = library.chosen(q, k, v, rule.causal)
            if not number:
                config = plain
        if number:
            found[:] = library.backward(number, dy, q, k, v, y, lse, rule.causal, rule.scale)
            return
        dq, dk, dv = room_like(q), room_like(k), room_like(v)
        base, delta = call.statistics(), call.statistics()
        rest = call.statistics() if q.dtype == torch.float32 else None
        shared: dict[str, Any] = {"warps": config.warps, "stages": config.stages, "FLAGS": call.flags(backward=True)}
        grid = (ceil_div(call.seq_q, config.owned) * call.batch * call.heads,)
        operands = call.arguments()
        steps = (call.steps(dy), call.steps(y), call.steps(dq))
        arguments = (*operands, dy, y, lse, base, delta, rest, dq, *steps)
        split = rule.window is None and rest is None
        before = shared | {"stages": config.ahead or config.stages}
        sizes = {"ROWS": config.owned, "COLS": config.step, "PAST": call.past(config.step)}
        launch(queries_backward, grid, q, *arguments, **before, **sizes, SPLIT=split)
        grid = (ceil_div(call.seq_k, config.owned) * call.batch * k.shape[1],)
        arguments = (*operands, dy, base, delta, rest, dk, dv, steps[0], call.steps(dk), call.steps(dv))
        step, past = config.turned or config.step, call.past(config.owned)
        one = machine_of(q).arch == 90 and rest is None and 64 < q.shape[3] <= 128 and q.shape[1] > k.shape[1]
        sizes = {"ROWS": step, "COLS": config.owned, "PAST": past, "FULL": call.full(step), "ONE": one}
        launch(keys_backward, grid, q, *arguments, **shared, **sizes)
        if db is not None:
            _bias(call, (dy, base, delta, rest), db, config, shared)
        found[:] = dq, dk, dv

    if config is None and (recorded() is not None or not q.is_cuda):
        config = plain
    CHOICE.run(q, config, (*call.facts(), deterministic, bias is not None), run)
    dq, dk, dv = found
    return dq, dk, dv, db


def _bias(
    call: Call,
    given: tuple[torch.Tensor | None, ...],
    db: torch.Tensor,
    config: BackwardConfig,
    shared: dict[str, Any],
) -> None:
    batches, heads, rows, cols = (1,) * (4 - db.dim()) + tuple(db.shape)
    machine, half = machine_of(call.q), given[3] is None
    block_rows, block_cols, warps, stages = bias_cut(call, half, machine, config)
    one_row, one_col = rows == 1 < call.seq_q, cols == 1 < call.seq_k
    own_rows = batches * heads * (1 if one_row else ceil_div(rows, block_rows))
    own_cols = 1 if one_col else ceil_div(cols, block_cols)
    each = max(1, min(8, next_power(own_rows * own_cols // (8 * machine.processors))))
    dy = given[0]
    assert dy is not None
    shape = BiasShape(call.batch, batches, heads, rows, cols)
    arguments = (*call.arguments(), *given, db, call.steps(dy), shape)
    flags = {"ROWS": block_rows, "COLS": block_cols, "ONE_ROW": one_row, "ONE_COL": one_col, "EACH": each}
    flags |= {"PAST": call.past(block_cols), "FULL": call.full(block_rows)}
    shared = shared | {"stages": stages, "warps": warps}
    launch(bias_backward, (own_rows * ceil_div(own_cols, each),), call.q, *arguments, **shared, **flags)


# -- selection ---------------------------------------------------------------------------------------
def _facts(*call: Any) -> Facts:
    *common, deterministic, bias = call
    facts = facts_of(*common)
    flags = facts.flags + (" dbias" if bias else "") + ("" if deterministic else " any_order")
    return facts._replace(flags=flags)


def _of_library(facts: Facts) -> bool:
    flags = facts.flags.split()
    return "any_order" in flags and of_library(facts._replace(flags=" ".join(f for f in flags if f != "any_order")))


def _candidates(facts: Facts, machine: Machine) -> list[BackwardConfig]:
    dim, grouped = facts.exact[1], "kv_heads=" in facts.flags
    theirs: list[int] = []
    if machine.backend == "cuda" and _of_library(facts):
        theirs = library.numbers(facts.dtype, dim, grouped=grouped)
    flags = facts.flags.split()
    extras = extras_of(flags)
    kind = _kind("packed" in flags, "bias" in flags, extras)
    ours = backward_candidates(dim, facts.dtype.itemsize, machine, extras=extras, kind=kind)
    return [*(BackwardConfig(number, 0, 0, 0, 0) for number in theirs), *ours]


def _supports(config: BackwardConfig, facts: Facts) -> bool:
    if not config.library:
        return config.owned >= 16 and config.step >= 16
    numbers = library.numbers(facts.dtype, facts.exact[1], grouped="kv_heads=" in facts.flags)
    return _of_library(facts) and config.library in numbers


def _work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
    (batch, seq), (heads, dim), size = facts.free, facts.exact, facts.dtype.itemsize
    owned, step, warps = (config.owned, config.step, config.warps) if not config.library else (64, 64, 8)
    count = tiles(owned, step, seq, seq, "causal" in facts.flags)
    programs, wide = ceil_div(seq, owned) * batch * heads, max(16, next_power(dim))
    moved = 8 * batch * heads * seq * dim * size
    operations = (18 if "dbias" in facts.flags else 14) * batch * heads * count * owned * step * wide
    useful = min(1.0, seq / (ceil_div(seq, owned) * owned))
    return Work(programs, warps, owned * wide, size, moved, operations, useful, 3.0, ahead=max(1, config.stages))


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    given, options = trial_parts(facts)(facts, inputs)
    flags = facts.flags.split()
    run: Any = reference
    back: Any = backward
    plain: Any = reference_backward
    more: dict[str, Any] = {"deterministic": "any_order" not in flags, "bias_gradient": "dbias" in flags}
    if "packed" in flags:
        run, back, plain, more = reference_packed, backward_packed, reference_packed_backward, {}
    if "packed" in flags and inputs.device.type == "meta":  # where sequences end cannot be read there
        q = given[0]
        y, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    else:
        y, lse = run(*given, **options)
    dy = inputs.normal(*y.shape, dtype=facts.dtype)
    return Trial(
        (dy, *given, y, lse),
        lambda given, config: [x for x in back(*given, config=config, **options, **more) if x is not None],
        lambda given: plain(*given, **options)[: 4 if "dbias" in flags else 3],
    )


def _problems(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    found = problems_of(rows, cols, dtype)
    learned = [f._replace(flags=f"{f.flags} dbias") for f in found if "bias" in f.flags]
    loose = [f._replace(flags=f"{f.flags} any_order") for f in found if of_library(f)]
    return [*found, *learned, *loose]


CHOICE = tunable(
    Tunable(
        name="attention backward",
        config=BackwardConfig,
        facts=_facts,
        free=("batch", "seq"),
        exact=("heads", "d_head"),
        candidates=_candidates,
        supports=_supports,
        work=_work,
        trial=_trial,
        kernels=(queries_backward, keys_backward, bias_backward),
        problems=_problems,
        shapes=((4096, 4096), (1024, 768)),
    )
)
