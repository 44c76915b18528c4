"""The backward of direct convolutions; the formulas are in `convolution`."""

from __future__ import annotations

import functools
from typing import Any

import torch

from burn_kernels import dropout
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.convolution import depthwise
from burn_kernels.convolution.choice import (
    beats_library,
    call_of,
    compared_exactly,
    digits_of,
    facts_of,
    geometry_of,
    in_tiles,
    is_first,
    offers_tiles,
    problems,
    supports,
    with_library,
    with_tiles,
    words_of,
)
from burn_kernels.convolution.kernels import (
    LIBRARY,
    LIBRARY_WEIGHTS,
    STEPS,
    SUMS,
    Config,
    Form,
    ImageStrides,
    Sizes,
    Steps,
    WeightConfig,
    WeightStrides,
    convolve,
    direct_candidates,
    direct_weight_candidates,
    join_weights,
    shares,
    spread,
    tile_candidates,
    tile_weight_candidates,
    weigh,
)
from burn_kernels.convolution.references import (
    After,
    Geometry,
    Gradients,
    Pair,
    after,
    geometry,
    in_tf32,
    is_plane,
    library_backward,
    pooled_shape,
    reference_backward,
)
from burn_kernels.convolution.steps import by_steps, takes_steps
from burn_kernels.convolution.tiles import convolve_tiles, rounds, weigh_tiles
from burn_kernels.launch import Machine, ceil_div, check, launch, machine_of, next_power, runs_kernel
from burn_kernels.random import Number


# -- launchers ---------------------------------------------------------------------------------------
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    y: torch.Tensor | None = None,
    passed: torch.Tensor | None = None,
    *,
    needs: tuple[bool, bool, bool] = (True, True, True),
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    relu: bool = False,
    pool: str = "none",
    window: int = 2,
    prob: float = 0.0,
    key: Number = 0,
    stream: Number = 0,
    config: Config | depthwise.Config | None = None,
    weight_config: WeightConfig | None = None,
) -> Gradients:
    """The gradients of x, w and b, None for those that `needs` leaves out; that of b is None where b is.

    `y` is read where a ReLU follows without a pool, `passed` where a pool does.  The gradients lie in order.
    """
    op = "convolution backward"
    made = geometry(op, x, w, b, stride, padding, dilation, groups)
    rest = after(op, made, relu, pool, window, prob, key, stream)
    shape = pooled_shape(made, rest)
    outputs = {"dy": dy, "y": y, "passed": passed}
    check(op, {**outputs, "x": x}, dict.fromkeys(outputs, shape), alike=["dy", "x"])
    needs = (*needs[:2], b is not None and needs[2])
    if not runs_kernel(op, dy, x):
        followed = {"relu": relu, "pool": pool, "window": window, "prob": prob, "key": key, "stream": stream}
        options: dict[str, Any] = made.options | followed
        return reference_backward(dy, x, w, b, y, passed, needs=needs, **options)
    if not dy.numel() or not x.numel():
        return library_backward(dy, x, w, made, needs)
    dz = _before(dy, y, passed, made, rest)
    if is_plane(made) and weight_config is None and not isinstance(config, Config):
        return depthwise.backward(dz, x, w, made, needs, config)
    assert not isinstance(config, depthwise.Config)
    dx = data_gradient(dz, x, w, made, config) if needs[0] else None
    dw, db = weight_gradient(dz, x, w, made, needs[2], weight_config) if needs[1] or needs[2] else (None, None)
    return dx, dw if needs[1] else None, db


def _before(
    dy: torch.Tensor, y: torch.Tensor | None, passed: torch.Tensor | None, made: Geometry, rest: After
) -> torch.Tensor:
    """The gradient of the convolution's output, in order."""
    dy = dy.contiguous()
    if rest.nothing:
        return dy
    if rest.window == 1 and not rest.relu:
        return dropout.backward(dy, rest.prob, rest.key, rest.stream)
    dz = torch.empty(made.batch, made.outs, made.out_h, made.out_w, dtype=dy.dtype, device=dy.device)
    read = (None if t is None else t.contiguous() for t in (y, passed))
    arguments = (dy, *read, dz, made.out_h, made.out_w, rest.factor(dy.dtype))
    area = made.out_h * made.out_w
    block = min(1024, next_power(area))
    grid = (made.batch * made.outs * ceil_div(area, block),)
    launch(spread, grid, dy, *arguments, warps=max(1, block // 256), WINDOW=rest.window, BLOCK=block)
    return dz


def data_gradient(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, made: Geometry, config: Config | None
) -> torch.Tensor:
    """The gradient of x from that of the convolution's output, both in order: a convolution with the weights turned."""
    w, machine = w.contiguous(), machine_of(x)
    found: list[torch.Tensor] = []

    def run(config: Config) -> None:
        if config == LIBRARY:
            dx = library_backward(dz, x, w, made, (True, False, False))[0]
            assert dx is not None
            found.append(dx.contiguous())
            return
        if config == STEPS:
            found.append(by_steps(dz, w, made))
            return
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        count, blocks = made.batch * made.height * made.width, ceil_div(made.sources, config.outs)
        grid = (ceil_div(count, config.pixels), made.groups * blocks)
        weights = WeightStrides(made.targets * made.sources * made.taps, made.taps, made.sources * made.taps)
        sizes = Sizes(made.out_h, made.out_w, made.height, made.width, made.targets, made.sources, made.groups)
        groups = (ImageStrides(*dz.stride()), weights, count, sizes, Steps(*made[7:13]))
        form = Form(True, made.stride_h * made.stride_w > 1, True, made.kernel_h, made.kernel_w)
        cut: dict[str, Any] = {"warps": config.warps, "FORM": form, "OUTS": config.outs, "PIXELS": config.pixels}
        if config.channels:
            launch(
                convolve_tiles, grid, x, dz, w, None, dx, *groups, **cut, CHANNELS=config.channels,
                PRECISION="tf32" if in_tf32(x.dtype, made) else "ieee", ROUNDED=rounds(x.dtype, made),
            )  # fmt: skip
        else:
            apart = x.dtype == torch.float32 and machine.backend != "hip"
            launch(
                convolve, grid, x, dz, w, None, dx, None, *groups, 0, 0, 0, 1.0, **cut, RELU=False, POOL="none",
                WINDOW=1, DROP=False, KEY=False, STREAM=False, APART=apart,
            )  # fmt: skip
        found.append(dx)

    DATA.run(x, config, call_of(made, dz, words_of(x.dtype, made), machine), run)
    return found[-1]


def weight_gradient(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, made: Geometry, bias: bool, config: WeightConfig | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of w, and of b if `bias`, from that of the convolution's output, which lies in order."""
    machine = machine_of(x)
    found: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def run(config: WeightConfig) -> None:
        if config == LIBRARY_WEIGHTS:
            _, dw, db = library_backward(dz, x, w, made, (False, True, bias))
            assert dw is not None
            found.append((dw.contiguous(), db))
            return
        dw = torch.empty(w.shape, dtype=w.dtype, device=x.device)
        db = torch.empty(made.outs, dtype=w.dtype, device=x.device) if bias else None
        blocks, parts, each = shares(made, config, machine)
        cols = dw.numel() + made.outs
        part = torch.empty(parts, cols, dtype=torch.float32, device=x.device)
        sizes = Sizes(made.height, made.width, made.out_h, made.out_w, made.sources, made.targets, made.groups)
        arguments = (dz, x, part, ImageStrides(*x.stride()), made.pixels, each, sizes, Steps(*made[7:13]))
        cut: dict[str, Any] = {"warps": config.warps, "OUTS": config.outs, "PIXELS": config.pixels, "BIAS": bias}
        cut |= {"KERNEL_H": made.kernel_h, "KERNEL_W": made.kernel_w, "MASKED": made.pad_h + made.pad_w > 0}
        if config.channels:
            precision = "tf32" if in_tf32(x.dtype, made) else "ieee"
            launch(
                weigh_tiles, (parts, blocks), x, *arguments, **cut, CHANNELS=config.channels, PRECISION=precision,
                ROUNDED=rounds(x.dtype, made),
            )  # fmt: skip
        else:
            launch(weigh, (parts, blocks), x, *arguments, **cut, ROWS=config.rows)
        # as many parts at once as registers hold: each step of the loop waits for memory
        at_once = min(1024, max(128, next_power(parts)))
        joined = (part, dw, db, parts, dw.numel(), cols)
        launch(join_weights, (ceil_div(cols, 8),), x, *joined, warps=at_once // 128, PARTS=at_once, BLOCK=8)
        found.append((dw, db))

    WEIGHTS.run(x, config, call_of(made, x, words_of(x.dtype, made, "b" if bias else ""), machine), run)
    return found[-1]


# -- selection ---------------------------------------------------------------------------------------
def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    made, size = geometry_of(facts), facts.dtype.itemsize
    if config in (LIBRARY, STEPS):  # a guess: the default is `is_direct`'s, and timings decide
        return Work(machine.processors, 8, 4096, size, made.elements * size, made.flops, 1.0)
    pixels, blocks = made.batch * made.height * made.width, ceil_div(made.sources, config.outs)
    programs = ceil_div(pixels, config.pixels) * made.groups * blocks
    live = min(made.targets, config.channels) * made.taps if config.channels else config.outs
    flops = made.flops // (4 if config.channels else 1)  # in tiles, another core's
    useful = pixels * made.sources / (ceil_div(pixels, config.pixels) * config.pixels * blocks * config.outs)
    return Work(programs, config.warps, config.pixels, size, made.elements * size, flops, useful, live + 4.0)


def _weight_work(config: WeightConfig, facts: Facts, machine: Machine) -> Work:
    made, size = geometry_of(facts), facts.dtype.itemsize
    if config == LIBRARY_WEIGHTS:
        return Work(machine.processors, 8, 4096, size, made.elements * size, made.flops, 1.0)
    blocks, parts, each = shares(made, config, machine)
    useful = made.pixels / (parts * each)
    live = config.channels * made.taps + 48.0 if config.channels else config.outs * (config.rows * made.kernel_w + 2.0)
    flops = made.flops // (4 if config.channels else 1)  # in tiles, another core's
    return Work(blocks * parts, config.warps, config.pixels, size, made.elements * size, flops, useful, live)


def _inputs(facts: Facts, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Geometry]:
    made = geometry_of(facts)
    x = inputs.normal(made.batch, made.channels, made.height, made.width, dtype=facts.dtype)
    w = inputs.normal(made.outs, made.sources, made.kernel_h, made.kernel_w, dtype=facts.dtype, std=0.3)
    return inputs.normal(made.batch, made.outs, made.out_h, made.out_w, dtype=facts.dtype), x, w, made


def _plain(needs: tuple[bool, bool, bool], made: Geometry, given: Any) -> list[torch.Tensor]:
    dz, x, w = given
    b = w[:, 0, 0, 0] if needs[2] else None
    return [g for g in reference_backward(dz, x, w, b, needs=needs, **made.options) if g is not None]


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    dz, x, w, made = _inputs(facts, inputs)
    trial = Trial(
        (dz, x, w),
        lambda given, config: data_gradient(given[0], given[1], given[2], made, config),
        functools.partial(_plain, (True, False, False), made),
    )
    return compared_exactly(trial, facts)


def _weight_trial(facts: Facts, inputs: Inputs) -> Trial:
    dz, x, w, made = _inputs(facts, inputs)
    bias = "b" in facts.flags.split()
    trial = Trial(
        (dz, x, w),
        lambda given, config: [
            g for g in weight_gradient(given[0], given[1], given[2], made, bias, config) if g is not None
        ],
        functools.partial(_plain, (False, True, bias), made),
    )
    return compared_exactly(trial, facts)


def _data_candidates(facts: Facts, machine: Machine) -> list[Config]:
    made = geometry_of(facts)
    pixels = made.batch * made.height * made.width * made.groups
    found = direct_candidates(made.sources, made.kernel_w, pixels, machine)
    if offers_tiles(facts, machine):
        tiles = tile_candidates(made.targets, made.sources, made.taps, machine)
        found = with_tiles(found, tiles, made.targets * made.taps, made.sources)
    found = with_library(LIBRARY, found, facts, tiles=False)
    if not takes_steps(made):
        return found
    # H200, 2026-11-22, benchmarks/notes/convolution.md: a third of cuDNN's time in half types; exact in float32, more
    faster = machine.arch == 90 and is_first(made) and facts.dtype != torch.float32
    return [STEPS, *found] if faster else [*found, STEPS]


def _supports(config: Config, facts: Facts) -> bool:
    return takes_steps(geometry_of(facts)) if config == STEPS else supports(config, facts)


def _weight_candidates(facts: Facts, machine: Machine) -> list[WeightConfig]:
    made = geometry_of(facts)
    found = direct_weight_candidates(made, machine)
    if offers_tiles(facts, machine):
        found = with_tiles(found, tile_weight_candidates(made, machine), made.sources * made.taps, made.targets)
    return with_library(LIBRARY_WEIGHTS, found, facts, tiles=beats_library(facts, machine, weights=True))


def _weights_fit(config: WeightConfig, facts: Facts) -> bool:
    made = geometry_of(facts)
    if config == LIBRARY_WEIGHTS:
        return True
    if config.channels:
        return in_tiles(facts) and supports(LIBRARY, facts)
    few = config.outs * config.rows * made.kernel_w <= max(SUMS, made.kernel_w)
    return few and made.kernel_h % config.rows == 0 and supports(LIBRARY, facts)


DATA = tunable(
    Tunable(
        name="convolution data gradient",
        config=Config,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        candidates=_data_candidates,
        supports=_supports,
        work=_work,
        trial=_trial,
        kernels=(convolve, convolve_tiles),
        problems=functools.partial(problems, ("",)),
        shapes=((64, 8), (512, 8)),
        dtype=torch.float32,
        elements=lambda facts: Geometry(*facts.free, *facts.exact).elements,
        judged_in=digits_of,
    )
)
WEIGHTS = tunable(
    Tunable(
        name="convolution weight gradient",
        config=WeightConfig,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        candidates=_weight_candidates,
        supports=_weights_fit,
        work=_weight_work,
        trial=_weight_trial,
        kernels=(weigh, weigh_tiles, join_weights),
        problems=functools.partial(problems, ("b",)),
        shapes=((64, 8), (512, 8)),
        dtype=torch.float32,
        elements=lambda facts: Geometry(*facts.free, *facts.exact).elements,
        judged_in=digits_of,
    )
)
