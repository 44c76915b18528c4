"""The backward of layer norm and RMS norm; `norm` says what it computes.

A fixed number of programs stride over the rows and keep their share of dw and db in registers; a second, small kernel
adds the shares.  Where a row with its shares does not fit the registers, one kernel takes the two means of every row,
and another goes over slabs of columns.

Limit: memory, 3 * rows * cols elements (x and dy in, dx out).  Deterministic: a fixed order of sums, no atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable, row_candidates, row_problems
from burn_kernels.launch import (
    Machine,
    begins_early,
    ceil_div,
    contiguous,
    fill,
    launch,
    machine_of,
    next_power,
    rows_key,
    rows_of,
)
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.norm.kernels_backward import add_shares, backward_rows, backward_tiles, row_means
from burn_kernels.norm.kernels_shared import PARTS_TO_WAIT_FOR, backward_shared, check_words, triton_type, words_of
from burn_kernels.norm.references import (
    MAX_TILE_COLS,
    PARTS,
    Gradients,
    layer_norm_reference,
    layer_norm_reference_backward,
    rms_norm_reference,
    rms_norm_reference_backward,
    weights,
)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class BackwardConfig:
    """Backward: `programs` a processor stride over tiles of `rows` rows and `block` columns, `stages` loads ahead.

    A block that holds all columns is the one-kernel form; a smaller one cuts the row into slabs.  With `tiles`, a
    program takes one row at a time as so many tiles of `block` columns, and `reads` x and dy once or twice; with
    `parts`, so many programs share a row (`norm.kernels_shared`).  `passing`: dx, with 2 dy too, leaves the cache
    first, and what a forward just before has read of x stays.
    """

    rows: int
    block: int
    warps: int
    programs: int
    stages: int
    tiles: int = 0
    reads: int = 1
    group: int = 1
    passing: int = 0
    parts: int = 0


def backward_default(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> BackwardConfig:
    """The config of the backward of layer norm, or of RMS norm if not `centred`, that is used without timing."""
    return backward_candidates(cols, itemsize, machine, centred=centred)[0]


def backward_candidates(cols: int, itemsize: int, machine: Machine, *, centred: bool = True) -> list[BackwardConfig]:
    """Lists the configs that a tuner may try for the backward, the default first."""
    block = next_power(cols)
    if block <= 8_192:
        # few programs, so that there are few shares to add; loads run 3 or 4 tiles ahead through shared memory
        rows = max(1, 1024 // block)
        warps = min(16, max(2, rows * block // 512))
        programs = max(1, min(4, 16 // warps))
        configs = [BackwardConfig(rows, block, warps, programs, stages) for stages in (4, 3)]
        if cols * itemsize % 16:  # element by element, nothing runs ahead; more threads have more loads under way
            configs.insert(0, BackwardConfig(rows, block, 2 * warps, programs, 1))
        if block == 4_096:
            configs.reverse()
        configs += [BackwardConfig(rows, block, warps, 2 * programs, 3)]
        configs = [*_in_tiles(cols, itemsize, machine, centred), *configs]
        if rows * block < 8_192:
            configs += [BackwardConfig(2 * rows, block, other, programs, 3) for other in (warps, 2 * warps)]
        return configs
    configs = [
        BackwardConfig(4, 1_024, 4, 8, 3),
        BackwardConfig(4, 1_024, 8, 4, 3),
        BackwardConfig(2, 2_048, 8, 4, 3),
        BackwardConfig(8, 1_024, 8, 4, 3),
    ]
    if cols * itemsize % 16:  # element by element: addresses take the registers that two of the rows would need
        configs.insert(0, BackwardConfig(2, 1_024, 4, 8, 1))
    elif block <= 16_384 and itemsize == 2:
        # without db the row and its share of dw fit the registers; with it they do not, and reading x and dy a second
        # time costs less than spilling
        whole = BackwardConfig(1, block, 16, 1, 1)
        configs = [*configs, whole] if centred else [whole, *configs]
    return _in_tiles(cols, itemsize, machine, centred) or configs


def _in_tiles(cols: int, itemsize: int, machine: Machine, centred: bool) -> list[BackwardConfig]:
    """Rows cut into tiles: where a power of two is a poor fit, and where a row is too much to hold."""
    if itemsize != 2 or machine.backend != "cuda" or not 4_096 <= cols <= 32_768 or cols % 8:
        return []
    if cols <= 8_192:
        roomy = machine.arch in (80, 90)  # more than 100 KiB for loads that run ahead
        wide, narrow = ceil_div(cols, 2_048), ceil_div(cols, 1_024)
        if cols == next_power(cols):
            configs = [BackwardConfig(1, cols // 2, cols // 512, 8_192 // cols, 3, tiles=2)] if centred else []
            if cols == 4_096:  # two rows at once, or loads of six, share the waiting for their means
                both = (
                    BackwardConfig(1, 2_048, 8, 1, 8 if roomy else 6, tiles=2, passing=1),
                    BackwardConfig(2, cols, 16, 1, 4, passing=2),
                )
                configs = [*(both if centred else both[::-1]), *configs]
            return configs
        configs = [BackwardConfig(1, 2_048, 8, 1, 4, tiles=wide)]
        if centred and wide <= 3:
            configs.insert(0, BackwardConfig(1, 2_048, 8, 1, 6 if roomy else 5, tiles=wide, passing=1))
        if not centred and narrow <= 6:
            configs.append(BackwardConfig(1, 1_024, 8, 2, 3, tiles=narrow))
        return configs
    # dw, and db, of all columns fill the registers: x and dy are read again, from the L1 cache
    if machine.arch != 90:
        return []
    # programs that share rows fall into step, which costs a way to L2 each row, or out of it: these were timed
    parts = 2 if cols <= 16_384 else 4
    block, tiles = (4_096, 2) if cols > 6_144 * parts else (2_048, ceil_div(cols, 2_048 * parts))
    tried = ((8, 6), (8, 3), (16, 5)) if tiles == 2 else ((8, 4), (8, 3), (16, 4))
    shared = [BackwardConfig(1, block, warps, 1, stages, tiles=tiles, parts=parts) for warps, stages in tried]
    # two a processor, each of at most 4096 columns: while one waits, the other computes
    parts *= 2
    block, tiles = (4_096, 1) if cols > 3_072 * parts else (1_024, ceil_div(cols, 1_024 * parts))
    shared.append(BackwardConfig(1, block, 4, 2, 4, tiles=tiles, parts=parts))
    if cols not in (16_384, 32_768):
        return shared
    if cols == 16_384:
        configs = [BackwardConfig(1, 4_096, 16, 1, 1, tiles=4, reads=2, group=4)]
        return [*shared, *configs, BackwardConfig(1, 2_048, 8, 1, 1, tiles=8, reads=2, group=8)] if centred else []
    # with db too there is room for half of the columns, and two programs read all of a row for its means
    slabs = 2 if centred else 1
    return shared + [
        BackwardConfig(1, block, 16, 1, 1, tiles=cols // block // slabs, reads=2, group=4) for block in (2_048, 4_096)
    ]


# -- launchers ---------------------------------------------------------------------------------------
@launcher(
    "layer_norm backward",
    "dy as x, x (*batch, cols), w (cols); mean (*batch, 1), rstd (*batch, 1)",
    reference=layer_norm_reference_backward,
)
def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    *,
    bias: bool = True,
    config: BackwardConfig | None = None,
) -> Gradients:
    """The gradients of x, w and b; that of w is None where w is, that of b where `bias` is False."""
    return _run_backward(dy, x, w, mean, rstd, bias=bias, config=config)


@launcher(
    "rms_norm backward", "dy as x, x (*batch, cols), w (cols); rstd (*batch, 1)", reference=rms_norm_reference_backward
)
def rms_norm_backward(
    dy: Tensor, x: Tensor, w: Tensor | None, rstd: Tensor, *, config: BackwardConfig | None = None
) -> tuple[Tensor, Tensor | None]:
    """The gradients of x and w; that of w is None where w is."""
    return _run_backward(dy, x, w, None, rstd, bias=False, config=config)[:2]


def _run_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    *,
    bias: bool,
    config: BackwardConfig | None,
) -> Gradients:
    dx, dw, db = torch.empty(x.shape, dtype=x.dtype, device=x.device), *room_for_sums(x, w, bias)
    if not x.numel():
        fill(0.0, dw, db)
        return dx, dw, db
    machine = machine_of(x)
    flat_dy, flat_x = rows_of(dy), rows_of(x)
    (rows, cols), strides = flat_x.shape, (flat_dy.stride(0), flat_x.stride(0))
    w, mean, _ = vectors = contiguous(w, mean, rstd)
    inputs = (flat_dy, flat_x, *vectors)

    def run(config: BackwardConfig) -> None:
        slabs, shares = _slabs(config, cols), shares_of(config, rows, cols, machine)
        # one share needs no second kernel, but a float32 result may still need rounding: always the same two steps
        sums = room_for_shares(shares, dw, db)
        how: dict[str, Any] = {"warps": config.warps, "stages": config.stages, "STAGES": config.stages}
        how |= {"CENTRED": mean is not None, "LEADS": begins_early(machine)}
        held = config.block * config.tiles
        if config.parts:
            check_words("norm backward", flat_x)
            slots = torch.full((rows * config.parts,), -1, dtype=torch.int64, device=x.device)
            dy_words, x_words = words_of(flat_dy), words_of(flat_x)
            words = (dy_words, x_words, None if w is None else words_of(w), *vectors[1:], slots, words_of(dx))
            shared = (*words, *sums, dy_words.stride(0), x_words.stride(0), rows, cols // 2)
            how |= {"BLOCK": config.block // 2, "TILES": config.tiles, "PARTS": config.parts}
            how |= {"TYPE": triton_type(x.dtype), "EVEN": cols == held * config.parts}
            grid = (shares * config.parts,)
            if machine.backend == "interpreter":  # one program after the other: none can wait
                launch(backward_shared, grid, x, *shared, **how, TELL=True, FINISH=False)
                launch(backward_shared, grid, x, *shared, **how, TELL=False, FINISH=True)
            else:
                launch(backward_shared, grid, x, *shared, **how, together=True, TELL=True, FINISH=True)
        elif config.tiles:
            how |= {"BLOCK": config.block, "PASSING": config.passing, "EVEN": cols % held == 0}
            how["KEEP"] = held <= 768 * config.warps  # weights of 24 columns a thread, at most
            how |= {"TILES": config.tiles, "ALL": slabs * config.tiles, "READS": config.reads}
            how["GROUP"] = config.tiles if config.reads == 1 else config.group
            launch(backward_tiles, (slabs, shares), x, *inputs, dx, *sums, *strides, rows, cols, **how)
        else:
            means = means_of_rows(flat_dy, flat_x, *vectors) if slabs > 1 else (None, None)
            how |= {"ROWS": config.rows, "BLOCK": config.block, "PASSING": config.passing}
            launch(backward_rows, (slabs, shares), x, *inputs, *means, dx, *sums, *strides, rows, cols, **how)
        sum_of_shares(x, sums, (dw, db))

    choice = RMS_BACKWARD if mean is None else LAYER_BACKWARD
    choice.run(x, config, rows_key(flat_dy, flat_x, flags=PARTS[w is not None, bias]), run)
    return dx, dw, db


def room_for_sums(x: Tensor, w: Tensor | None, bias: bool) -> tuple[Tensor | None, Tensor | None]:
    """Memory for dw and db, each if it is asked for."""
    dw = torch.empty_like(w, memory_format=torch.contiguous_format) if w is not None else None
    return dw, torch.empty(x.shape[-1], dtype=x.dtype, device=x.device) if bias else None


def room_for_shares(shares: int, *sums: Tensor | None) -> tuple[Tensor | None, ...]:
    """Memory for the shares of dw and db, each if it is asked for."""
    return tuple(
        [None if t is None else torch.empty(shares, *t.shape, dtype=torch.float32, device=t.device) for t in sums]
    )


def means_of_rows(dy: Tensor, x: Tensor, *vectors: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The two means of every row, by a kernel of their own: for programs that hold a slab of its columns.

    vectors   w, mean and rstd
    """
    rows, cols = x.shape
    along = torch.empty(rows, dtype=torch.float32, device=x.device)
    offset = torch.empty_like(along) if vectors[1] is not None else None
    arguments = (dy, x, *vectors, along, offset, dy.stride(0), x.stride(0), cols)
    block = 2_048 if cols * x.element_size() % 16 else 4_096
    launch(row_means, (rows,), x, *arguments, warps=8, CENTRED=offset is not None, BLOCK=block)
    return along, offset


def sum_of_shares(like: Tensor, shares: Sequence[Tensor | None], sums: Sequence[Tensor | None]) -> None:
    """Adds the shares of dw and db that programs have left."""
    first = next((share for share in shares if share is not None), None)
    if first is None:
        return
    count, cols = first.shape
    # narrow blocks, so that few columns spread over the machine too; 8 float32 are one sector of 32 bytes
    block = 32 if cols > 8_192 else 8
    how: dict[str, Any] = {"warps": 4, "ROWS": 2048 // block, "BLOCK": block}
    how["early"] = how["EARLY"] = begins_early(machine_of(like))
    launch(add_shares, (ceil_div(cols, block),), like, *shares, *sums, count, cols, **how)


def shares_of(config: BackwardConfig, rows: int, cols: int, machine: Machine) -> int:
    """Programs that stride over the rows, each of which leaves its share of dw and db."""
    return max(1, min(ceil_div(rows, config.rows), machine.processors * config.programs // _slabs(config, cols)))


def _supports(config: BackwardConfig, facts: Facts) -> bool:
    if config.parts:
        held = config.parts * config.tiles * config.block
        words = facts.dtype.itemsize == 2 and facts.exact[0] % 2 == 0
        return config.parts in PARTS_TO_WAIT_FOR and facts.exact[0] <= held and words
    return config.rows * config.block <= 2 * MAX_TILE_COLS


def _slabs(config: BackwardConfig, cols: int) -> int:
    """Programs across a row."""
    return config.parts or ceil_div(cols, config.block * max(1, config.tiles))


# -- selection ---------------------------------------------------------------------------------------
def _backward_tunable(run: Launcher[..., Any], *, centred: bool) -> Tunable:
    """The backward's place of choice."""

    def work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size, sums = facts.free, facts.exact, facts.dtype.itemsize, len(facts.flags.split())
        slabs, shares = _slabs(config, cols), shares_of(config, rows, cols, machine)
        moved = (3 if slabs == 1 or config.parts else 5) * rows * cols * size + 8 * shares * cols * sums
        steps = ceil_div(ceil_div(rows, config.rows), shares)
        useful = rows * cols / (steps * shares * config.rows * slabs * config.block * max(1, config.tiles))
        programs, held, live = slabs * shares, config.rows * config.block, 3.0 + sums / config.rows
        return Work(programs, config.warps, held, size, moved, 14 * rows * cols, useful, live, ahead=config.stages)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        rows, cols = facts.free[0], facts.exact[0]
        x, dy, (w, _) = inputs.rows(facts, rows, cols), inputs.rows(facts, rows, cols), weights(facts, inputs)
        if centred:
            _, mean, rstd = layer_norm_reference(x, w, None)
            return Trial.of(run, dy, x, w, mean, rstd, bias="b" in facts.flags.split())
        return Trial.of(run, dy, x, w, rms_norm_reference(x, w)[1])

    return register_tunable(
        name=run.op,
        config=BackwardConfig,
        candidates=row_candidates(backward_candidates, centred=centred),
        supports=_supports,
        work=work,
        trial=trial,
        kernels=(backward_rows, backward_tiles, backward_shared, row_means, add_shares),
        problems=row_problems("w b" if centred else "w"),
    )


LAYER_BACKWARD = _backward_tunable(layer_norm_backward, centred=True)
RMS_BACKWARD = _backward_tunable(rms_norm_backward, centred=False)
