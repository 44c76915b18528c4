"""Rotary position embedding of queries and keys together, out of place.

    y1 = x1 * cos(a) - x2 * sin(a)        y2 = x2 * cos(a) + x1 * sin(a)        a = position * frequency[pair]

Pairs (x1, x2) are columns (i, i + rotary / 2), or, interleaved, (2 i, 2 i + 1); columns from `rotary` on are copied.
The backward is the rotation by -a of both gradients.

Limit: memory.  Forward and backward each read and write q and k: 2 * (q + k) elements.
Layout: any strides; the last axis is read in place where its elements are neighbours (views of a fused projection
are), otherwise a copy is made first.  Results lie in the order of axes of their inputs.  Computes in float32.
Deterministic.

Angles come from tables of cosines and sines, or are computed: a frequency is kept in turns as a fraction of 2^64, so
position * frequency, modulo 2^64, is exact at every position, where float32 angles lose a digit at each tenfold.
Source: Su et al. 2021, section 3.2, https://arxiv.org/abs/2104.09864.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.launch import Machine, ceil_div, launch, next_power
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, nothing
from burn_kernels.rope.kernels import Strides, TableStrides, _rope
from burn_kernels.rope.references import (
    Pair,
    check_call,
    computed_problems,
    draw_call,
    large,
    problems,
    reference,
    reference_computed,
    turns,
    turns_of,
    twin,
    twin_computed,
)
from burn_kernels.spec import KernelSpec, register_kernel

__all__ = [
    "Config",
    "backward",
    "backward_computed",
    "candidates",
    "default",
    "forward",
    "forward_computed",
    "reference",
    "reference_computed",
    "turns",
    "turns_of",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(q: torch.Tensor, k: torch.Tensor | None, *_: object, backward: bool = False, **__: object) -> int:
    """q and k read and written; the same backward, of their gradients."""
    return 2 * sum(x.numel() * x.element_size() for x in (q, k) if x is not None)


def flops(q: torch.Tensor, k: torch.Tensor | None, *_: object, backward: bool = False, **__: object) -> int:
    """Per element two products and a sum."""
    return 3 * sum(x.numel() for x in (q, k) if x is not None)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`tokens` and `heads` of a tile, `warps` of 32 threads."""

    tokens: int
    heads: int
    warps: int


def default(heads: int, pairs: int, itemsize: int, machine: Machine, *, by_head: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(heads, pairs, itemsize, machine, by_head=by_head)[0]


def candidates(heads: int, pairs: int, itemsize: int, machine: Machine, *, by_head: bool = False) -> list[Config]:
    """Lists the configs that a tuner may try, the default first; `by_head` where tokens of a head are neighbours."""
    width, most = next_power(pairs), next_power(heads)
    configs = []
    for elements, warps in ((2048, 4), (2048, 8), (1024, 4), (4096, 8)):
        rows = max(1, elements // width)
        # tokens share nothing, heads of a token share their angles: as many heads as there are, unless that scatters
        together = min(most, 4 if by_head else rows, rows)
        configs.append(Config(max(1, rows // together), together, warps))
        if by_head:
            configs.append(Config(rows, 1, warps))
    return list(dict.fromkeys(configs))


# -- launchers ---------------------------------------------------------------------------------------
def _check_tables(op: str, q: Any, k: Any, cos: Any, sin: Any, positions: Any = None, **options: Any) -> None:
    check_call(op, q, k, {"cos": cos, "sin": sin}, positions, options.get("offset", 0))


def _check_turns(op: str, q: Any, k: Any, turns: Any, positions: Any = None, **options: Any) -> None:
    check_call(op, q, k, {"turns": turns}, positions, options.get("offset", 0))


@launcher("rope", "q, k; cos, sin, positions", reference=reference, options=_check_tables)
def forward(
    q: torch.Tensor,
    k: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """q and k, rotated by angles from tables.

    Shapes: q (batch, seq, heads, d_head), k (batch, seq, kv_heads, d_head) or None -> the same.  cos, sin
    (length, pairs), their row the position, or (batch or 1, seq, pairs), gathered already.  The first 2 * pairs columns
    are rotated.  positions (seq,) or (batch or 1, seq), integers; without them 0, 1, 2, ...; `offset` is added.
    Dtypes: q, k float32, float16, bfloat16, on the CPU float64 too; cos, sin any of them.
    A position without a row in the table raises on the CPU; on a GPU, which is not waited for, it gives NaN.
    """
    return _run(q, k, (cos, sin), positions, offset, interleaved, config=config)


@launcher(
    "rope backward",
    "dq, dk; cos, sin, positions",
    reference=functools.partial(reference, inverse=True),
    options=_check_tables,
)
def backward(
    dq: torch.Tensor,
    dk: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """The gradients of q and k from those of the rotated ones: the inverse rotation."""
    return _run(dq, dk, (cos, sin), positions, offset, interleaved, config=config, inverse=True)


@launcher("rope", "q, k; turns, positions", reference=reference_computed, options=_check_turns)
def forward_computed(
    q: torch.Tensor,
    k: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """q and k, rotated by angles that are computed: as `forward`, but `turns` (pairs,) instead of tables."""
    return _run(q, k, (turns,), positions, offset, interleaved, config=config)


@launcher(
    "rope backward",
    "dq, dk; turns, positions",
    reference=functools.partial(reference_computed, inverse=True),
    options=_check_turns,
)
def backward_computed(
    dq: torch.Tensor,
    dk: torch.Tensor | None,
    turns: torch.Tensor,
    positions: torch.Tensor | None = None,
    *,
    offset: int = 0,
    interleaved: bool = False,
    config: Config | None = None,
) -> Pair:
    """The gradients of q and k from those of `forward_computed`'s results."""
    return _run(dq, dk, (turns,), positions, offset, interleaved, config=config, inverse=True)


def _run(
    q: torch.Tensor,
    k: torch.Tensor | None,
    angles: tuple[torch.Tensor, ...],
    positions: torch.Tensor | None,
    offset: int,
    interleaved: bool,
    *,
    config: Config | None,
    inverse: bool = False,
) -> Pair:
    q, k = _copy_unless_in_order(q), None if k is None else _copy_unless_in_order(k)
    qy, ky = torch.empty_like(q), None if k is None else torch.empty_like(k)
    batch, seq, q_heads, cols = q.shape
    k_heads = 0 if k is None else k.shape[2]
    if not batch * seq * cols * (q_heads + k_heads):
        return qy, ky
    pairs = angles[0].shape[-1]
    strides = [Strides(0, 0, 0) if x is None else Strides(*x.stride()[:3]) for x in (q, k, qy, ky)]
    turn, cos, sin, table, length = None, None, None, TableStrides(0, 0), 0
    if len(angles) == 1:
        turn = angles[0].contiguous()
    else:
        cos, sin = angles
        if cos.stride() != sin.stride() or cos.stride(-1) != 1:
            cos, sin = cos.contiguous(), sin.contiguous()
        table, length = _table_strides(cos), cos.shape[-2]
    spread = TableStrides(0, 0) if positions is None else TableStrides(*positions.expand(batch, seq).stride())
    rest = next_power(cols - 2 * pairs) if cols > 2 * pairs else 0
    compiled = {"INTERLEAVED": interleaved, "INVERSE": inverse, "PAIRS": next_power(pairs), "REST": rest}
    tensors = (q, k, qy, ky, cos, sin, turn, positions)
    numbers = (*strides, table, spread, batch * seq, seq, offset, length, q_heads, k_heads)

    def run(config: Config) -> None:
        blocks = ceil_div(q_heads, config.heads)
        grid = (ceil_div(batch * seq, config.tokens), blocks + ceil_div(k_heads, config.heads))
        how = {"warps": config.warps, "TOKENS": config.tokens, "HEADS": config.heads, **compiled}
        launch(_rope, grid, q, *tensors, *numbers, blocks, pairs, cols, **how)

    address = (q.data_ptr() | (0 if k is None else k.data_ptr())) & 15
    layout = (q.is_contiguous() and (k is None or k.is_contiguous()), q.stride(2) > q.stride(1))
    sizes = (batch * seq, q_heads, k_heads, pairs, cols)
    CHOICE.run(
        q, config, (q.dtype, *sizes, (*strides[0], *strides[1]), address, layout, interleaved, turn is not None), run
    )
    return qy, ky


def _copy_unless_in_order(x: torch.Tensor) -> torch.Tensor:
    """x with neighbours in memory along its last axis: a result for it has the order of its axes."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _table_strides(table: torch.Tensor) -> TableStrides:
    *batch, seq, _ = table.stride()
    return TableStrides(batch[0] if batch and table.shape[0] != 1 else 0, seq)


# -- selection ---------------------------------------------------------------------------------------
def _facts(
    dtype: torch.dtype, tokens: int, q_heads: int, k_heads: int, pairs: int, cols: int, spans: tuple[int, ...],
    address: int, layout: tuple[bool, bool], interleaved: bool, computed: bool,
) -> Facts:  # fmt: skip
    packed, by_head = layout
    align = alignment(address, cols * dtype.itemsize, *(span * dtype.itemsize for span in spans))
    words = {"by_head": by_head, "interleaved": interleaved, "computed": computed}
    flags = " ".join(word for word, said in words.items() if said)
    sizes = (q_heads, k_heads, pairs, cols)
    return Facts((tokens,), sizes, dtype, align, "packed" if packed or by_head else "strided", flags)


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (tokens,), (q_heads, k_heads, pairs, cols), size = facts.free, facts.exact, facts.dtype.itemsize
    blocks = ceil_div(q_heads, config.heads) + ceil_div(k_heads, config.heads)
    programs, tile = ceil_div(tokens, config.tokens) * blocks, config.tokens * config.heads * next_power(pairs)
    count = tokens * (q_heads + k_heads)
    useful, moved = count * pairs / (programs * tile), 2 * count * cols * size
    return Work(programs, config.warps, 2 * tile, size, moved, 3 * count * cols, useful, 2.0)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (tokens,), (q_heads, k_heads, pairs, cols), flags = facts.free, facts.exact, facts.flags.split()

    def heads(count: int) -> torch.Tensor | None:
        if not count:
            return None
        if "by_head" in flags:
            flat = inputs.rows(facts, count * tokens, cols)
            return flat.as_strided((1, tokens, count, cols), (0, flat.stride(0), tokens * flat.stride(0), 1))
        flat = inputs.rows(facts, tokens, count * cols)
        return flat.as_strided((1, tokens, count, cols), (0, flat.stride(0), cols, 1))

    call, options = (heads(q_heads), heads(k_heads)), {"interleaved": "interleaved" in flags}
    if "computed" in flags:
        return Trial.of(forward_computed, *call, turns(2 * pairs, device=inputs.device), **options)
    angle = inputs.normal(tokens, pairs, dtype=torch.float32)
    return Trial.of(forward, *call, angle.cos(), angle.sin(), **options)


def _problems_of(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    heads, width = (cols // 128, 128) if cols % 128 == 0 else (1, cols)
    sizes = (heads, ceil_div(heads, 4), width // 2, width)
    align = alignment(width * dtype.itemsize)
    return [Facts((rows,), sizes, dtype, align, flags=flags) for flags in ("", "by_head", "interleaved", "computed")]


CHOICE = register_tunable(
    name="rope",
    config=Config,
    facts=_facts,
    free=("tokens",),
    exact=("q_heads", "k_heads", "pairs", "cols"),
    candidates=lambda facts, machine: candidates(
        max(facts.exact[:2]), facts.exact[2], facts.dtype.itemsize, machine, by_head="by_head" in facts.flags
    ),
    supports=lambda config, facts: config.heads <= next_power(max(facts.exact[:2])),
    work=_work,
    trial=_trial,
    kernels=(_rope,),
    problems=_problems_of,
    shapes=((16_384, 4096), (16_384, 1024)),
    elements=lambda facts: facts.free[0] * sum(facts.exact[:2]) * facts.exact[3],
)


# -- registration -----------------------------------------------------------------------------------
def _turn_back(name: str, saved: Any, dq: torch.Tensor | None, dk: torch.Tensor | None) -> Any:
    """The gradients of q and k, by the same operator with the rotation reversed."""
    op = getattr(torch.ops.burn_kernels, name)
    turned = functools.partial(op, **{n: x for n, x in saved.items() if n not in ("facts", "inverse")})
    inverse = not saved["inverse"]
    if not saved["facts"] or dk is None:
        return None if dq is None else turned(dq, None, inverse=inverse)[0], None
    if dq is None:
        return None, turned(dk, None, inverse=inverse)[0]
    return turned(dq, dk, inverse=inverse)


def _turned_twin(run: Any, q: torch.Tensor, k: torch.Tensor | None, *, inverse: bool, **options: Any) -> Any:
    if inverse:
        turned = "sin" if "sin" in options else "turns"
        options[turned] = -options[turned]
    return run(q, q if k is None else k, **options)[: 1 if k is None else 2]


def _operator(name: str, angles: str, run: Any, back: Any) -> Operator:
    names = " ".join(word.split()[1] for word in angles.split(", "))

    def turn(q: torch.Tensor, k: torch.Tensor | None, *, inverse: bool, **options: Any) -> Any:
        return (back if inverse else run)(
            _copy_unless_in_order(q), None if k is None else _copy_unless_in_order(k), **options
        )

    return Operator(
        schema=f"{name}(Tensor q, Tensor? k, {angles}, Tensor? positions, int offset, bool interleaved, bool inverse)"
        " -> (Tensor, Tensor)",
        inputs="q k",
        fake=lambda q, k, *_: (
            torch.empty_like(_copy_unless_in_order(q)),
            nothing(q) if k is None else torch.empty_like(_copy_unless_in_order(k)),
        ),
        results="y z",
        carries=lambda q, k, *_: 1 if k is None else 2,
        forward=turn,
        gradients="q k",
        saved=f"{names} positions offset interleaved inverse",
        facts=lambda q, k, *_: k is not None,
        twin=functools.partial(_turned_twin, twin if " " in names else twin_computed),
        rule=functools.partial(_turn_back, name),
        room=lambda x: torch.empty_like(_copy_unless_in_order(x)),
    )


def _register(name: str, angles: str, run: Any, back: Any, **parts: Any) -> KernelSpec:
    return register_kernel(
        run,
        back,
        name=name,
        gradient=lambda back, dy, inputs, outputs, **options: back(*dy, **options),
        bytes_moved=bytes_moved,
        flops=flops,
        draw_call=functools.partial(draw_call, name),
        operators=[_operator(name, angles, run, back)],
        **parts,
    )


SPEC = _register("rope", "Tensor cos, Tensor sin", forward, backward, twin=twin, problems=problems)
COMPUTED_SPEC = _register(
    "rope_computed",
    "Tensor turns",
    forward_computed,
    backward_computed,
    twin=twin_computed,
    problems=computed_problems,
    large=large,
)
