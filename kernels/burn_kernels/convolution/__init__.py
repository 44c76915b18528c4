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
dx, dw and db in one pass.  For the others timings choose between three ways, measured defaults without any: direct
kernels (`convolution.kernels`), a lane a pixel, exact in float32; tiles on the cores for tensors (`convolution.tiles`),
in half types, and in float32 where torch may multiply as tf32 (`in_tf32`), rounded to the nearest; and torch's
convolution.

If a pool follows, z is never written; the bits of an int16 an output say to which elements of a window gradients pass.
A ReLU's slope is read off y, a dropout's mask drawn again.  db comes from the pass over dz that gives dw.
`is_direct` decides from bytes and operations alone if torch's convolution (cuDNN) is the default.  Torch's own settings
say how it computes, tf32 and determinism included.  The backward is in `convolution.launch_backward`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Unpack

import torch
from torch.nn import functional

from burn_kernels import dropout
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.convolution import choice, depthwise, kernels, launches, problems, references
from burn_kernels.convolution.choice import convolution_tunable, facts_of, geometry_of, key_of, words_of
from burn_kernels.convolution.configs import LIBRARY, LIBRARY_WEIGHTS, Config, WeightConfig
from burn_kernels.convolution.launch_backward import backward
from burn_kernels.convolution.references import (
    POOLS,
    After,
    ConvolutionOptions,
    Geometry,
    Gradients,
    geometry,
    is_direct,
    is_plane,
    reference,
    reference_backward,
)
from burn_kernels.convolution.tiles import convolve_tiles
from burn_kernels.launch import Machine
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, nothing
from burn_kernels.spec import drop_absent, register_kernel

__all__ = [
    "LIBRARY",
    "LIBRARY_WEIGHTS",
    "POOLS",
    "Config",
    "ConvolutionOptions",
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
def bytes_moved(
    x: torch.Tensor, w: torch.Tensor, *_: object, backward: bool = False, **options: Unpack[ConvolutionOptions]
) -> int:
    """x read and y written; backward dz read twice, x read, dx written.  Weights are small beside them."""
    sizes, rest = references.read_options("convolution", x, w, None, **options)
    moved = x.numel() + math.prod(references.pooled_shape(sizes, rest))
    if backward:
        moved = 2 * (x.numel() + sizes.pixels * sizes.outs)
    return moved * x.element_size()


def flops(
    x: torch.Tensor, w: torch.Tensor, *_: object, backward: bool = False, **options: Unpack[ConvolutionOptions]
) -> int:
    """A product and a sum for each weight and pixel; backward twice as many."""
    return (2 if backward else 1) * references.read_options("convolution", x, w, None, **options)[0].flops


# -- configs -----------------------------------------------------------------------------------------
def default(geometry: Geometry, dtype: torch.dtype, machine: Machine) -> Config:
    """The config of the forward that is used without timing; `LIBRARY` is torch's convolution.

    Depthwise convolutions by steps of 1 have others, those of `convolution.depthwise`.
    """
    return candidates(geometry, dtype, machine)[0]


def candidates(geometry: Geometry, dtype: torch.dtype, machine: Machine) -> list[Config]:
    """The configs that a tuner may try for the forward, the default first."""
    facts = facts_of(dtype, geometry, 0, True, words_of(dtype, geometry))
    return choice.pixel_candidates(facts, machine, back=False)


# -- launchers ---------------------------------------------------------------------------------------
@launcher("convolution", "x, w, b", reference=reference)
def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None = None,
    *,
    config: Config | depthwise.Config | None = None,
    **options: Unpack[ConvolutionOptions],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The convolution, then dropout with `prob`, ReLU, and a "max" or "mean" pool of `window` x `window`.

    Gives y, and for the backward of a pool, else None, the elements of each window to which gradients pass.
    Options, by name: stride=1, padding=0, dilation=1, groups=1, relu=False, pool="none", window=2, prob=0.0, key=0,
    stream=0.
    Shapes: x (batch, groups * sources, height, width), w (groups * targets, sources, kernel_h, kernel_w),
    b (groups * targets,) or None -> y (batch, groups * targets, rows, cols), in order.
    Dtypes: float32, float16, bfloat16, all the same; on the CPU float64 too.
    """
    sizes, rest = references.read_options("convolution", x, w, b, **options)
    shape = references.pooled_shape(sizes, rest)
    if not math.prod(shape):
        return _empty(x, shape, rest)
    w, b = w.contiguous(), None if b is None else b.contiguous()
    if rest.nothing and is_plane(sizes) and not isinstance(config, Config):
        return depthwise.forward(x, w, b, sizes, config), None

    def run(config: Config) -> tuple[torch.Tensor, torch.Tensor | None]:
        if config == LIBRARY:
            return _by_torch(x, w, b, sizes, rest)
        results = _empty(x, shape, rest)
        launches.convolve(x, w, b, results, sizes, config, rest=rest)
        return results

    words = words_of(x.dtype, sizes, "b" if b is not None else "", rest.words)
    return FORWARD.run(x, config, key_of(sizes, x, words), run)


def _empty(x: torch.Tensor, shape: tuple[int, ...], rest: After) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Memory for y, and for what goes with a pool."""
    passed = torch.empty(shape, dtype=torch.int16, device=x.device) if rest.window > 1 else None
    return torch.empty(shape, dtype=x.dtype, device=x.device), passed


def _by_torch(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, geometry: Geometry, rest: After
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch's convolution, and what follows it by its own kernels."""
    z = functional.conv2d(x, w, b, **geometry.options).contiguous()
    if not rest.prob:
        return references.follow(z, rest, None)
    if rest.window == 1:
        return references.follow(dropout.forward(z, rest.prob, rest.key, rest.stream), rest._replace(prob=0.0), None)
    return references.follow(z, rest, dropout.forward(torch.ones_like(z), rest.prob, rest.key, rest.stream))


# -- selection ---------------------------------------------------------------------------------------
def _options_of(facts: Facts) -> dict[str, Any]:
    """The options that a key's words stand for."""
    words = facts.flags.split()
    options: dict[str, Any] = geometry_of(facts).options | {"relu": "relu" in words}
    options |= {"prob": 0.3, "key": 5, "stream": 7} if "drop" in words else {}
    pools = [word for word in words if word[:-1] in POOLS]
    return options | ({"pool": pools[0][:-1], "window": int(pools[0][-1])} if pools else {})


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    options = _options_of(facts)
    # of equals, which a rounding may make, another one may be chosen: y alone is compared
    return choice.trial_of(
        "x w b" if "b" in facts.flags.split() else "x w",
        facts,
        inputs,
        lambda *given: forward(*given[:-1], config=given[-1], **options)[:1],
        lambda *given: reference(*given, **options)[:1],
    )


FORWARD = convolution_tunable(
    "convolution",
    config=Config,
    candidates=functools.partial(choice.pixel_candidates, back=False),
    supports=choice.supports,
    work=functools.partial(choice.pixel_work, back=False),
    trial=_trial,
    kernels=(kernels.convolve, convolve_tiles, *dropout.CHOICE.kernels),
    problems=functools.partial(choice.problems, ("b", "b drop", "b relu max2")),
    shapes=((64, 8), (512, 8)),
    dtype=torch.float32,
)


# -- registration ------------------------------------------------------------------------------------
_OPTIONS = (
    "int[] stride, int[] padding, int[] dilation, int groups, bool relu, str pool, int window, float prob, Tensor? seed"
)


def _known_gradient(run: Any, dy: torch.Tensor, inputs: Any, outputs: Any, *, needs: Any, **options: Any) -> Gradients:
    # an absent result is a tensor of one axis, also beside images that are none
    y, passed = outputs
    grads: Gradients = run(dy, *inputs, y, passed if passed.dim() > 1 else None, needs=tuple(needs), **options)
    return grads


def _fake(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, *options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Results that hold nothing.  With a pool the second says to which elements of each window gradients pass."""
    named: Any = dict(
        zip(ConvolutionOptions.__annotations__, options[:-1], strict=False)
    )  # all but the seed, in their order
    sizes, rest = references.read_options("convolution", x, w, b, **named)
    shape = references.pooled_shape(sizes, rest)
    passed = nothing(x, torch.int16) if rest.window == 1 else x.new_empty(shape, dtype=torch.int16)
    return x.new_empty(shape), passed


SPEC = register_kernel(
    drop_absent(forward),
    backward,
    gradient=lambda back, dy, inputs, outputs, **options: back(dy, *inputs, *outputs, **options),
    twin=problems.twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=problems.problems,
    large=problems.large,
    limits="direct kernels take 2^31 pixels of all images; beyond them, and float64 on a GPU, torch's convolution",
    draw_call=problems.draw_call,
    operators=[
        Operator(
            schema=f"convolution(Tensor x, Tensor w, Tensor? b, {_OPTIONS}) -> (Tensor, Tensor)",
            inputs="x w b",
            fake=_fake,
            results="y passed",
            gradients="x w b",
            saved="x w b y passed needs stride padding dilation groups relu pool window prob seed",
            forward=forward,
            reference=reference,
            gradient=functools.partial(_known_gradient, backward),
            reference_gradient=functools.partial(_known_gradient, reference_backward),
            absent=torch.int16,
            images=True,
        )
    ],
)
