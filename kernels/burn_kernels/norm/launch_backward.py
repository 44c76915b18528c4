"""The backward of layer norm and RMS norm; `norm` says what it computes.

A fixed number of programs stride over the rows and keep their share of dw and db in registers; a second, small kernel
adds the shares.  Where a row with its shares does not fit the registers, one kernel takes the two means of every row,
and another goes over slabs of columns.

Limit: memory, 3 * rows * cols elements (x and dy in, dx out).  Deterministic: a fixed order of sums, no atomics.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, row_problems, tunable
from burn_kernels.launch import (
    Machine,
    begins_early,
    ceil_div,
    check,
    launch,
    machine_of,
    next_power,
    require_axis,
    rows_of,
    runs_kernel,
)
from burn_kernels.norm.kernels_backward import add_shares, backward_rows, backward_tiles, row_means
from burn_kernels.norm.kernels_shared import (
    PARTS_TO_WAIT_FOR,
    backward_shared,
    check_words,
    triton_type,
    words_of,
)
from burn_kernels.norm.references import (
    MAX_TILE_COLS,
    PARTS,
    Gradients,
    layer_norm_reference,
    layer_norm_reference_backward,
    reference_backward,
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
    """What a tuner may try for the backward, the default first."""
    block = next_power(cols)
    if block <= 8_192:
        # few programs, so that there are few shares to add; loads run 3 or 4 tiles ahead through shared memory
        rows = max(1, 1024 // block)
        warps = min(16, max(2, rows * block // 512))
        programs = max(1, min(4, 16 // warps))
        found = [BackwardConfig(rows, block, warps, programs, stages) for stages in (4, 3)]
        if cols * itemsize % 16:  # element by element, nothing runs ahead; more threads have more loads under way
            found.insert(0, BackwardConfig(rows, block, 2 * warps, programs, 1))
        if block == 4_096:
            found.reverse()
        found += [BackwardConfig(rows, block, warps, 2 * programs, 3)]
        found = [*_in_tiles(cols, itemsize, machine, centred), *found]
        if rows * block < 8_192:
            found += [BackwardConfig(2 * rows, block, other, programs, 3) for other in (warps, 2 * warps)]
        return found
    found = [
        BackwardConfig(4, 1_024, 4, 8, 3),
        BackwardConfig(4, 1_024, 8, 4, 3),
        BackwardConfig(2, 2_048, 8, 4, 3),
        BackwardConfig(8, 1_024, 8, 4, 3),
    ]
    if cols * itemsize % 16:  # element by element: addresses take the registers that two of the rows would need
        found.insert(0, BackwardConfig(2, 1_024, 4, 8, 1))
    elif block <= 16_384 and itemsize == 2:
        # without db the row and its share of dw fit the registers; with it they do not, and reading x and dy a second
        # time costs less than spilling
        whole = BackwardConfig(1, block, 16, 1, 1)
        found = [*found, whole] if centred else [whole, *found]
    return _in_tiles(cols, itemsize, machine, centred) or found


def _in_tiles(cols: int, itemsize: int, machine: Machine, centred: bool) -> list[BackwardConfig]:
    """Rows cut into tiles: where a power of two is a poor fit, and where a row is too much to hold."""
    if itemsize != 2 or machine.backend != "cuda" or not 4_096 <= cols <= 32_768 or cols % 8:
        return []
    if cols <= 8_192:
        roomy = machine.arch in (80, 90)  # more than 100 KiB for loads that run ahead
        wide, narrow = ceil_div(cols, 2_048), ceil_div(cols, 1_024)
        if cols == next_power(cols):
            found = [BackwardConfig(1, cols // 2, cols // 512, 8_192 // cols, 3, tiles=2)] if centred else []
            if cols == 4_096:  # two rows at once, or loads of six, share the waiting for their means
                both = (
                    BackwardConfig(1, 2_048, 8, 1, 8 if roomy else 6, tiles=2, passing=1),
                    BackwardConfig(2, cols, 16, 1, 4, passing=2),
                )
                found = [*(both if centred else both[::-1]), *found]
            return found
        found = [BackwardConfig(1, 2_048, 8, 1, 4, tiles=wide)]
        if centred and wide <= 3:
            found.insert(0, BackwardConfig(1, 2_048, 8, 1, 6 if roomy else 5, tiles=wide, passing=1))
        if not centred and narrow <= 6:
            found.append(BackwardConfig(1, 1_024, 8, 2, 3, tiles=narrow))
        return found
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
        found = [BackwardConfig(1, 4_096, 16, 1, 1, tiles=4, reads=2, group=4)]
        return [*shared, *found, BackwardConfig(1, 2_048, 8, 1, 1, tiles=8, reads=2, group=8)] if centred else []
    # with db too there is room for half of the columns, and two programs read all of a row for its means
    slabs = 2 if centred else 1
    return shared + [
        BackwardConfig(1, block, 16, 1, 1, tiles=cols // block // slabs, reads=2, group=4) for block in (2_048, 4_096)
    ]


# -- launchers ---------------------------------------------------------------------------------------
def layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    bias: bool = True,
    config: BackwardConfig | None = None,
) -> Gradients:
    """The gradients of x, w and b; that of w is None where w is, that of b where `bias` is False."""
    return _run_backward("layer_norm", dy, x, w, mean, rstd, bias, config)


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    rstd: torch.Tensor,
    *,
    config: BackwardConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of x and w; that of w is None where w is."""
    return _run_backward("rms_norm", dy, x, w, None, rstd, False, config)[:2]


def _run_backward(
    op: str,
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    bias: bool,
    config: BackwardConfig | None,
) -> Gradients:
    op = f"{op} backward"
    require_axis(op, x)
    cols, statistics = x.shape[-1], (*x.shape[:-1], 1)
    tensors = {"dy": dy, "x": x, "w": w, "mean": mean, "rstd": rstd}
    shapes = {"dy": x.shape, "w": (cols,), "mean": statistics, "rstd": statistics}
    check(op, tensors, shapes, alike=["dy", "x", "w"])
    if not runs_kernel(op, dy, x):
        return reference_backward(dy, x, w, mean, rstd, bias)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    dw = torch.empty_like(w, memory_format=torch.contiguous_format) if w is not None else None
    db = torch.empty(cols, dtype=x.dtype, device=x.device) if bias else None
    if not x.numel():
        return dx, dw if dw is None else dw.zero_(), db if db is None else db.zero_()
    machine = machine_of(x)
    flat_dy, flat_x = rows_of(dy), rows_of(x)
    rows = flat_x.shape[0]
    strides = (flat_dy.stride(0), flat_x.stride(0))
    w, mean = (None if t is None else t.contiguous() for t in (w, mean))
    rstd = rstd.contiguous()
    inputs = (flat_dy, flat_x, w, mean, rstd)

    def run(config: BackwardConfig) -> None:
        slabs = _slabs(config, cols)
        shares = shares_of(config, rows, cols, machine)
        # one share needs no second kernel, but a float32 result may still need rounding: always the same two steps
        dw_shares = torch.empty(shares, cols, dtype=torch.float32, device=x.device) if dw is not None else None
        db_shares = torch.empty(shares, cols, dtype=torch.float32, device=x.device) if db is not None else None
        sizes = {"CENTRED": mean is not None, "ROWS": config.rows, "BLOCK": config.block, "STAGES": config.stages}
        sizes |= {"PASSING": config.passing, "LEADS": begins_early(machine)}
        means = slabs > 1 and not config.tiles
        along, offset = means_of_rows(*inputs, *strides) if means else (None, None)
        arguments = (*inputs, along, offset, dx, dw_shares, db_shares, *strides, rows, cols)
        if config.parts:
            check_words(op, flat_x)
            slots = torch.full((rows * config.parts,), -1, dtype=torch.int64, device=x.device)
            dy_words, x_words = words_of(flat_dy), words_of(flat_x)
            words = (dy_words, x_words, None if w is None else words_of(w), mean, rstd, slots, words_of(dx))
            shared = (*words, dw_shares, db_shares, dy_words.stride(0), x_words.stride(0), rows, cols // 2)
            even = cols == config.block * config.tiles * config.parts
            sizes = {"CENTRED": mean is not None, "BLOCK": config.block // 2, "STAGES": config.stages, "EVEN": even}
            sizes |= {"TYPE": triton_type(x.dtype), "TILES": config.tiles, "PARTS": config.parts}
            sizes["LEADS"] = begins_early(machine)
            grid, how = (shares * config.parts,), {"warps": config.warps, "stages": config.stages}
            if machine.backend == "interpreter":  # one program after the other: none can wait
                launch(backward_shared, grid, x, *shared, **how, **sizes, TELL=True, FINISH=False)
                launch(backward_shared, grid, x, *shared, **how, **sizes, TELL=False, FINISH=True)
            else:
                launch(backward_shared, grid, x, *shared, **how, together=True, **sizes, TELL=True, FINISH=True)
        elif config.tiles:
            tiles = (*inputs, dx, dw_shares, db_shares, *strides, rows, cols)
            even = cols % (config.block * config.tiles) == 0
            sizes = {"CENTRED": mean is not None, "BLOCK": config.block, "STAGES": config.stages, "EVEN": even}
            sizes |= {"PASSING": config.passing, "LEADS": begins_early(machine)}
            sizes["KEEP"] = config.tiles * config.block <= 768 * config.warps  # weights of 24 columns a thread, at most
            group = config.tiles if config.reads == 1 else config.group
            sizes |= {"TILES": config.tiles, "ALL": slabs * config.tiles, "READS": config.reads, "GROUP": group}
            launch(backward_tiles, (slabs, shares), x, *tiles, warps=config.warps, stages=config.stages, **sizes)
        else:
            launch(backward_rows, (slabs, shares), x, *arguments, warps=config.warps, stages=config.stages, **sizes)
        sum_of_shares(x, dw_shares, db_shares, dw, db)

    address = (flat_dy.data_ptr() | flat_x.data_ptr()) & 15
    call = (x.dtype, rows, cols, strides, address, PARTS[w is not None, bias])
    (RMS_BACKWARD if mean is None else LAYER_BACKWARD).run(x, config, call, run)
    return dx, dw, db


def means_of_rows(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor,
    dy_stride: int,
    x_stride: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The two means of every row, by a kernel of their own: for programs that hold a slab of its columns."""
    rows, cols = x.shape
    along = torch.empty(rows, dtype=torch.float32, device=x.device)
    offset = torch.empty_like(along) if mean is not None else None
    arguments = (dy, x, w, mean, rstd, along, offset, dy_stride, x_stride, cols)
    block = 2_048 if cols * x.element_size() % 16 else 4_096
    launch(row_means, (rows,), x, *arguments, warps=8, CENTRED=mean is not None, BLOCK=block)
    return along, offset


def sum_of_shares(
    like: torch.Tensor,
    dw_shares: torch.Tensor | None,
    db_shares: torch.Tensor | None,
    dw: torch.Tensor | None,
    db: torch.Tensor | None,
) -> None:
    """Adds what the programs have left of dw and db."""
    given = dw_shares if dw_shares is not None else db_shares
    if given is None:
        return
    shares, cols = given.shape
    # narrow blocks, so that few columns spread over the machine too; 8 float32 are one sector of 32 bytes
    block = 32 if cols > 8_192 else 8
    sums = (dw_shares, db_shares, dw, db, shares, cols)
    early = begins_early(machine_of(like))
    sizes = {"ROWS": 2048 // block, "BLOCK": block, "EARLY": early}
    launch(add_shares, (ceil_div(cols, block),), like, *sums, warps=4, early=early, **sizes)


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
def _backward_tunable(name: str, *, centred: bool) -> Tunable:
    """The backward's place of choice."""

    def work(config: BackwardConfig, facts: Facts, machine: Machine) -> Work:
        (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
        slabs, shares = _slabs(config, cols), shares_of(config, rows, cols, machine)
        moved = (3 if slabs == 1 or config.parts else 5) * rows * cols * size + 8 * shares * cols * len(
            facts.flags.split()
        )
        steps = ceil_div(ceil_div(rows, config.rows), shares)
        useful = rows * cols / (steps * shares * config.rows * slabs * config.block * max(1, config.tiles))
        held, live = config.rows * config.block, 3.0 + len(facts.flags.split()) / config.rows
        return Work(
            slabs * shares, config.warps, held, size, moved, 14 * rows * cols, useful, live, ahead=config.stages
        )

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        rows, cols = facts.free[0], facts.exact[0]
        x, dy, (w, _) = inputs.rows(facts, rows, cols), inputs.rows(facts, rows, cols), weights(facts, inputs)
        bias = "b" in facts.flags.split()
        if centred:
            _, mean, rstd = layer_norm_reference(x, w, None)
            return Trial(
                (dy, x, w, mean, rstd),
                lambda given, config: layer_norm_backward(*given, bias=bias, config=config),
                lambda given: layer_norm_reference_backward(*given, bias=bias),
            )
        return Trial(
            (dy, x, w, rms_norm_reference(x, w)[1]),
            lambda given, config: rms_norm_backward(*given, config=config),
            lambda given: rms_norm_reference_backward(*given),
        )

    return tunable(
        Tunable(
            name=name,
            config=BackwardConfig,
            free=("rows",),
            exact=("cols",),
            candidates=lambda facts, machine: backward_candidates(
                facts.exact[0], facts.dtype.itemsize, machine, centred=centred
            ),
            supports=_supports,
            work=work,
            trial=trial,
            kernels=(backward_rows, backward_tiles, backward_shared, row_means, add_shares),
            problems=row_problems("w b" if centred else "w"),
        )
    )


LAYER_BACKWARD = _backward_tunable("layer_norm backward", centred=True)
RMS_BACKWARD = _backward_tunable("rms_norm backward", centred=False)
