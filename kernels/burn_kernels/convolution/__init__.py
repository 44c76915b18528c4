"""Convolution of images with few channels, computed directly, with what follows it in the same kernel.

    z[n, o, i, j] = b[o] + sum over c, k, l of w[o, c, k, l] * x[n, c, i * stride - pad + k * dilation, j ...]
    y = pool(relu(dropout(z)))               each of the three only where asked for; pools of windows side by side

    dx = sum over o, k, l of w[o, c, k, l] * dz[n, o, ...]        dw = sum over n, i, j of dz * x      db = sum of dz

Limit: memory, x in and y out, and 2 * pixels * outs * sources * taps operations each way: on an H200 51e12 a second in
float32, 400e12 in tf32.  With few channels memory is near: 3 x 3 from 1 to 8 channels in float32 takes 144 operations
for 36 bytes.  cuDNN's tiles are made for 64 channels and more, and mostly idle below.
Layout: x in any strides, read in place; w, and all results, in order (batch, channels, height, width).
Sums in float32.  Deterministic: parts of dw and db in a fixed order, no atomics.

Depthwise convolutions by steps of 1 have kernels of their own (`convolution.planes`), which read a place once and make
dx, dw and db in one pass.  For the others there are
three ways, of which timings choose, by measured defaults without any: direct kernels (`convolution.kernels`), a lane a
pixel, exact in float32; tiles on the cores for tensors (`convolution.tiles`), in half types, and in float32 where torch
may multiply as tf32 (`in_tf32`), rounded to the nearest; and torch's convolution.

Where a pool follows, z is never written; which elements of a window gradients pass to is kept in an int16 an output.
A ReLU's slope is read off y, a dropout's mask drawn again.  db comes from the pass over dz that gives dw.
Whether torch's convolution (cuDNN) is the default, `is_direct` decides, from bytes and operations alone.  What torch's
is, tf32 and determinism included, torch's own settings say.  The backward is in `convolution.launch_backward`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from burn_kernels import dropout, random
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
    Config,
    Form,
    ImageStrides,
    Sizes,
    Steps,
    WeightConfig,
    WeightStrides,
    convolve,
    direct_candidates,
    tile_candidates,
)
from burn_kernels.convolution.launch_backward import backward
from burn_kernels.convolution.references import (
    POOLS,
    After,
    Geometry,
    Gradients,
    Pair,
    after,
    count,
    followed,
    geometry,
    in_tf32,
    is_direct,
    is_plane,
    pooled_shape,
    reference,
    reference_backward,
)
from burn_kernels.convolution.tiles import convolve_tiles, rounds
from burn_kernels.launch import FLOATS, Machine, ceil_div, launch, machine_of, runs_kernel
from burn_kernels.operators import Operator, nothing
from burn_kernels.random import Number
from burn_kernels.spec import Draw, KernelSpec, Problem, register

__all__ = [
    "LIBRARY",
    "LIBRARY_WEIGHTS",
    "POOLS",
    "Config",
    "Geometry",
    "WeightConfig",
    "backward",
    "candidates",
    "default",
    "forward",
    "geometry",
    "is_direct",
    "is_plane",
    "reference",
    "reference_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def _geometry(x: torch.Tensor, w: torch.Tensor, options: dict[str, Any]) -> Geometry:
    steps = (
        options.get(name, value) for name, value in (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
    )
    return geometry("convolution", x, w, None, *steps)


def bytes_moved(x: torch.Tensor, w: torch.Tensor, *_: Any, backward: bool = False, **options: Any) -> int:
    """x read and y written; backward dz read twice, x read, dx written.  Weights are small beside them."""
    made = _geometry(x, w, options)
    window = options.get("window", 2) if options.get("pool", "none") != "none" else 1
    y = made.batch * made.outs * (made.out_h // window) * (made.out_w // window)
    moved = 2 * (x.numel() + made.pixels * made.outs) if backward else x.numel() + y
    return moved * x.element_size()


def flops(x: torch.Tensor, w: torch.Tensor, *_: object, backward: bool = False, **options: object) -> int:
    """A product and a sum for each weight and pixel; backward twice as many."""
    return (2 if backward else 1) * _geometry(x, w, options).flops


# -- configs -----------------------------------------------------------------------------------------
def default(made: Geometry, dtype: torch.dtype, machine: Machine) -> Config:
    """The config of the forward that is used without timing; `LIBRARY` is torch's convolution.

    Depthwise convolutions by steps of 1 have others, those of `convolution.depthwise`.
    """
    return candidates(made, dtype, machine)[0]


def candidates(made: Geometry, dtype: torch.dtype, machine: Machine) -> list[Config]:
    """What a tuner may try for the forward, the default first."""
    return _candidates(facts_of(dtype, made, 0, True, words_of(dtype, made)), machine)


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
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
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The convolution, then dropout with `prob`, ReLU, and a "max" or "mean" pool of `window` x `window`.

    Gives y, and for the backward of a pool, else None, which elements of each window gradients pass to.
    Shapes: x (batch, groups * sources, height, width), w (groups * targets, sources, kernel_h, kernel_w),
    b (groups * targets,) or None -> y (batch, groups * targets, rows, cols), in order.
    Dtypes: float32, float16, bfloat16, all the same; on the CPU float64 too.
    """
    op = "convolution"
    made = geometry(op, x, w, b, stride, padding, dilation, groups)
    rest = after(op, made, relu, pool, window, prob, key, stream)
    if not runs_kernel(op, x):
        y, bits = reference(
            x, w, b, **made.options, relu=relu, pool=pool, window=window, prob=prob, key=key, stream=stream
        )  # fmt: skip
        return y.contiguous(), bits
    shape = pooled_shape(made, rest)
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    passed = torch.empty(shape, dtype=torch.int16, device=x.device) if rest.window > 1 else None
    if not count(shape):
        return y, passed
    w, b, machine = w.contiguous(), None if b is None else b.contiguous(), machine_of(x)
    if rest.nothing and is_plane(made) and not isinstance(config, Config):
        return depthwise.forward(x, w, b, made, config), None
    found: list[tuple[torch.Tensor, torch.Tensor | None]] = [(y, passed)]

    def run(config: Config) -> None:
        if config == LIBRARY:
            found.append(_by_torch(x, w, b, made, rest))
            return
        pixels, blocks = shape[0] * shape[2] * shape[3], ceil_div(made.targets, config.outs)
        grid = (ceil_div(pixels, config.pixels), made.groups * blocks)
        weights = WeightStrides(made.targets * made.sources * made.taps, made.sources * made.taps, made.taps)
        sizes = Sizes(made.height, made.width, made.out_h, made.out_w, made.sources, made.targets, made.groups)
        groups = (ImageStrides(*x.stride()), weights, pixels, sizes, Steps(*made[7:13]))
        form = Form(False, False, made.pad_h + made.pad_w > 0, made.kernel_h, made.kernel_w)
        cut: dict[str, Any] = {"warps": config.warps, "FORM": form, "OUTS": config.outs, "PIXELS": config.pixels}
        if config.channels:
            launch(
                convolve_tiles, grid, x, x, w, b, y, *groups, **cut, CHANNELS=config.channels,
                PRECISION="tf32" if in_tf32(x.dtype, made) else "ieee", ROUNDED=rounds(x.dtype, made),
            )  # fmt: skip
        else:
            draw = (*random.numbers(key, stream), *dropout.mask_numbers(prob, x.dtype)) if prob else (0, 0, 0, 1.0)
            seeds = random.flags(key, stream) if prob else random.flags(0, 0)
            launch(
                convolve, grid, x, x, w, b, y, passed, *groups, *draw, **cut, **seeds, RELU=relu, POOL=rest.pool,
                WINDOW=rest.window, DROP=prob > 0.0, APART=False,
            )  # fmt: skip
        found.append((y, passed))

    words = words_of(x.dtype, made, "b" if b is not None else "", rest.words)
    FORWARD.run(x, config, call_of(made, x, words, machine), run)
    return found[-1]


def _by_torch(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, made: Geometry, rest: After
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch's convolution, and what follows it by its own kernels."""
    z = functional.conv2d(x, w, b, **made.options).contiguous()
    if not rest.prob:
        return followed(z, rest, None)
    if rest.window == 1:
        return followed(dropout.forward(z, rest.prob, rest.key, rest.stream), rest._replace(prob=0.0), None)
    return followed(z, rest, dropout.forward(torch.ones_like(z), rest.prob, rest.key, rest.stream))


# -- selection ---------------------------------------------------------------------------------------
def _after(facts: Facts) -> dict[str, object]:
    """The options that a key's words stand for."""
    words = facts.flags.split()
    found: dict[str, Any] = {"relu": "relu" in words} | (
        {"prob": 0.3, "key": 5, "stream": 7} if "drop" in words else {}
    )
    pooled = [word for word in words if word[:-1] in POOLS]
    return found | ({"pool": pooled[0][:-1], "window": int(pooled[0][-1])} if pooled else {})


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    made, size = geometry_of(facts), facts.dtype.itemsize
    if config == LIBRARY:  # a guess: the default is `is_direct`'s, and timings decide
        return Work(machine.processors, 8, 4096, size, made.elements * size, made.flops, 1.0)
    blocks, tiles = ceil_div(made.targets, config.outs), ceil_div(made.pixels, config.pixels)
    useful = made.pixels * made.targets / (tiles * config.pixels * blocks * config.outs)
    programs = tiles * made.groups * blocks
    live = min(made.sources, config.channels) * made.taps if config.channels else config.outs
    flops = made.flops // (4 if config.channels else 1)  # in tiles, another core's
    return Work(programs, config.warps, config.pixels, size, made.elements * size, flops, useful, live + 4.0)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    made = geometry_of(facts)
    options = made.options | _after(facts)
    x = inputs.normal(made.batch, made.channels, made.height, made.width, dtype=facts.dtype)
    w = inputs.normal(made.outs, made.sources, made.kernel_h, made.kernel_w, dtype=facts.dtype, std=0.3)
    b = inputs.normal(made.outs, dtype=facts.dtype) if "b" in facts.flags.split() else None
    trial = Trial(
        (x, w, b),
        # of equals, which a rounding may make, another one may be chosen: y alone is compared
        lambda given, config: forward(*given, config=config, **options)[0],
        lambda given: reference(*given, **options)[0],
    )
    return compared_exactly(trial, facts)


def _candidates(facts: Facts, machine: Machine) -> list[Config]:
    made = geometry_of(facts)
    drop, pixels = "drop" in facts.flags.split(), made.pixels * made.groups
    found = direct_candidates(made.targets, made.kernel_w, pixels, machine, drop=drop)
    if offers_tiles(facts, machine):
        tiles = tile_candidates(made.sources, made.targets, made.taps, machine)
        found = with_tiles(found, tiles, made.sources * made.taps, made.targets)
    return with_library(LIBRARY, found, facts, tiles=beats_library(facts, machine))


FORWARD = tunable(
    Tunable(
        name="convolution",
        config=Config,
        facts=facts_of,
        free=("batch",),
        exact=Geometry._fields[1:],
        candidates=_candidates,
        supports=supports,
        work=_work,
        trial=_trial,
        kernels=(convolve, convolve_tiles, *dropout.CHOICE.kernels),
        problems=functools.partial(problems, ("b", "b drop", "b relu max2")),
        shapes=((64, 8), (512, 8)),
        dtype=torch.float32,
        elements=lambda facts: Geometry(*facts.free, *facts.exact).elements,
        judged_in=digits_of,
    )
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    def problem(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **options: object) -> Problem:
        return Problem((draw.normal(*x), draw.normal(*w, std=0.4), draw.normal(w[0]) if bias else None), options)

    yield problem((2, 1, 9, 8), (8, 1, 3, 3))
    yield problem((2, 3, 6, 7), (9, 3, 3, 2), padding=(1, 0), bias=False)
    yield problem((2, 2, 11, 10), (3, 2, 5, 3), stride=(2, 3), padding=2, dilation=(1, 2))
    yield problem((2, 3, 7, 7), (3, 1, 3, 3), groups=3, padding=1)
    yield problem((2, 2, 5, 16), (2, 1, 2, 5), groups=2, padding=(0, 1))  # depthwise, y narrower than x
    yield problem((3, 5, 8, 24), (5, 1, 3, 3), groups=5, padding=1)
    yield problem((2, 4, 7, 6), (6, 2, 2, 2), groups=2, stride=2, relu=True)
    yield problem((2, 2, 8, 9), (3, 2, 3, 3), relu=True, pool="max")
    yield problem((1, 2, 9, 8), (3, 2, 2, 2), relu=True, pool="mean", window=3, prob=0.4, key=3, stream=5)
    yield problem((2, 2, 8, 7), (3, 2, 3, 3), pool="max", prob=0.3, key=3, stream=2**40 + 1, padding=1)
    yield problem((2, 2, 6, 6), (3, 2, 3, 3), prob=0.5, key=2**63 - 1, stream=4)
    yield problem((2, 1, 6, 6), (5, 1, 1, 1), relu=True, prob=0.5, key=9, stream=4)
    yield problem((0, 2, 6, 6), (3, 2, 3, 3))
    x = draw.normal(1, 6, 5, 3).movedim(3, 1)  # channels last
    yield Problem((x, draw.normal(2, 3, 3, 3), draw.normal(2)), {"padding": 1})
    yield Problem((draw.normal(2, 5, 8, 12)[:, 1:4, :, 2:9], draw.normal(3, 3, 3, 4).transpose(2, 3), None), {})


def _twin(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, *, stride: Pair = 1, padding: Pair = 0,
    dilation: Pair = 1, groups: int = 1, relu: bool = False, pool: str = "none", window: int = 2, prob: float = 0.0,
    key: Number = 0, stream: Number = 0,
) -> torch.Tensor:  # fmt: skip
    y = functional.conv2d(x, w, b, stride, padding, dilation, groups)
    y = y * dropout.mask(prob, key, stream, like=y) if prob else y
    y = y.relu() if relu else y
    if pool == "none":
        return y
    return functional.max_pool2d(y, window) if pool == "max" else functional.avg_pool2d(y, window)


def _gradient(run: Any, dy: torch.Tensor, inputs: Any, outputs: Any, **options: Any) -> Gradients:
    found: Gradients = run(dy, *inputs, *outputs, **options)
    return found


def _outputs(run: Any, *inputs: Any, **options: Any) -> object:
    """y, and with a pool what goes with it."""
    y, passed = run(*inputs, **options)
    return (y,) if passed is None else (y, passed)


def _large(draw: Draw) -> Iterator[Problem]:
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
        ((64, 1, 28, 28), (8, 1, 3, 3), {}),
        ((64, 8, 26, 26), (16, 8, 3, 3), {"prob": 0.1, "key": 5, "stream": 6}),
        ((4, 3, 64, 65), (24, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((8, 32, 33, 30), (32, 1, 3, 3), {"groups": 32, "padding": 1}),
        ((8, 48, 56, 56), (48, 1, 3, 3), {"groups": 48, "padding": 1}),
        ((4, 24, 15, 13), (24, 1, 7, 7), {"groups": 24, "padding": 3}),
    )
    for size, weights, options in cases:
        inputs = (draw.normal(*size), draw.normal(*weights, std=0.2), draw.normal(weights[0]))
        yield Problem(inputs, options)
    x = draw.normal(4, 17, 24, 21)[:, 1:, ::2].transpose(2, 3)  # depthwise, and nothing lies in order
    yield Problem((x, draw.normal(16, 1, 3, 3, std=0.2), None), {"groups": 16, "padding": 1})


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    groups = (1, 1, 2, 3)[draw.integer(0, 4)]
    sources, targets = draw.integer(1, 5), draw.integer(1, 7)
    kernel = draw.integer(1, 4), draw.integer(1, 4)
    x = draw.images(groups * sources, least=7)
    w = draw.normal(groups * targets, sources, *kernel, std=0.5)
    pool = POOLS[draw.integer(0, 3)]
    seed = draw.seed() if draw.one_in(3) else None
    steps = [draw.integer(1, 3)] * 2, [draw.integer(0, 2), draw.integer(0, 2)], [1, 1]
    rest = (groups, bool(draw.integer(0, 2)), pool, 2, 0.0 if seed is None else 0.3, seed)
    return x, w, draw.normal(groups * targets) if draw.integer(0, 3) else None, *steps, *rest


_OPTIONS = (
    "int[] stride, int[] padding, int[] dilation, int groups, bool relu, str pool, int window, float prob, Tensor? seed"
)


def _known_gradient(run: Any, dy: torch.Tensor, inputs: Any, outputs: Any, *, needs: Any, **options: Any) -> Gradients:
    # what stands for an absent result has one axis, also beside images that are none
    y, passed = outputs
    return _gradient(run, dy, inputs, (y, passed if passed.dim() > 1 else None), needs=tuple(needs), **options)


def _fake(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Results that hold nothing.  With a pool the second says which elements of each window gradients pass to."""
    stride, padding, dilation, groups, relu, pool, window, prob, _ = options
    sizes = geometry("convolution", x, w, b, stride, padding, dilation, groups)
    rest = after("convolution", sizes, relu, pool, window, prob, 0, 0)
    shape = pooled_shape(sizes, rest)
    passed = nothing(x, torch.int16) if rest.window == 1 else x.new_empty(shape, dtype=torch.int16)
    return x.new_empty(shape), passed


SPEC = register(
    KernelSpec(
        name="convolution",
        forward=functools.partial(_outputs, forward),
        gradient=functools.partial(_gradient, backward),
        reference=functools.partial(_outputs, reference),
        reference_gradient=functools.partial(_gradient, reference_backward),
        twin=_twin,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        large=_large,
        dtypes=FLOATS,
        limits="direct kernels take 2^31 pixels of all images; beyond them, and float64 on a GPU, torch's convolution",
        draw_call=_draw_call,
        operators=(
            Operator(
                schema=f"convolution(Tensor x, Tensor w, Tensor? b, {_OPTIONS}) -> (Tensor, Tensor)",
                inputs="x w b",
                fake=_fake,
                results="y passed",
                gradients="x w b",
                saved="x w b y passed needs stride padding dilation groups relu pool window prob seed",
                gradient=functools.partial(_known_gradient, backward),
                reference_gradient=functools.partial(_known_gradient, reference_backward),
                absent=torch.int16,
                images=True,
            ),
        ),
    )
)
