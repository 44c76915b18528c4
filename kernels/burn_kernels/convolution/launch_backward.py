"""The backward of direct convolutions; the formulas are in `convolution`.

It has three passes, each with a choice of its own, behind one launcher: the gradient of what follows the convolution
(`launches.spread`), that of the data, and that of weights and bias.  The table of the launcher speaks of the tensors;
their sizes depend on strides and padding, which `references.read_backward` reads.
"""

from __future__ import annotations

import functools
from typing import Unpack

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.convolution import choice, configs, depthwise, kernels, launches, references, tiles
from burn_kernels.convolution.choice import convolution_tunable, geometry_of, key_of, words_of
from burn_kernels.convolution.configs import LIBRARY, LIBRARY_WEIGHTS, STEPS, Config, WeightConfig
from burn_kernels.convolution.references import Geometry, Gradients, library_backward, reference_backward
from burn_kernels.convolution.steps import by_steps, takes_steps
from burn_kernels.launch import Machine
from burn_kernels.launcher import launcher


# -- launchers ---------------------------------------------------------------------------------------
@launcher("convolution backward", "dy, x, w, b; y, passed", reference=reference_backward)
def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    y: torch.Tensor | None = None,
    passed: torch.Tensor | None = None,
    *,
    needs: tuple[bool, bool, bool] = (True, True, True),
    config: Config | depthwise.Config | None = None,
    weight_config: WeightConfig | None = None,
    **options: Unpack[references.ConvolutionOptions],
) -> Gradients:
    """The gradients of x, w and b, None for those that `needs` leaves out; that of b is None where b is.

    `y` is read where a ReLU follows without a pool, `passed` where a pool does.  The gradients lie in order.
    Options, by name: those of the forward.
    """
    geometry, rest = references.read_backward(dy, x, w, b, y, passed, **options)
    needs = (*needs[:2], b is not None and needs[2])
    if not dy.numel() or not x.numel():
        return library_backward(dy, x, w, geometry, needs)
    dz = launches.spread(dy, y, passed, geometry, rest)
    if references.is_plane(geometry) and weight_config is None and not isinstance(config, Config):
        return depthwise.backward(dz, x, w, geometry, needs, config)
    assert not isinstance(config, depthwise.Config)
    dx = data_gradient(dz, x, w, geometry, config) if needs[0] else None
    dw, db = weight_gradient(dz, x, w, geometry, needs[2], weight_config) if needs[1] or needs[2] else (None, None)
    return dx, dw if needs[1] else None, db


def data_gradient(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, geometry: Geometry, config: Config | None
) -> torch.Tensor:
    """The gradient of x from that of the convolution's output, both in order: a convolution with the weights turned."""
    w = w.contiguous()

    def run(config: Config) -> torch.Tensor:
        if config == LIBRARY:
            dx = library_backward(dz, x, w, geometry, (True, False, False))[0]
            assert dx is not None
            return dx.contiguous()
        if config == STEPS:
            return by_steps(dz, w, geometry)
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launches.convolve(dz, w, None, (dx, None), geometry, config, back=True)
        return dx

    return DATA.run(x, config, key_of(geometry, dz, words_of(x.dtype, geometry)), run)


def weight_gradient(
    dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, geometry: Geometry, bias: bool, config: WeightConfig | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gradients of w, and of b if `bias`, from that of the convolution's output, which lies in order."""

    def run(config: WeightConfig) -> tuple[torch.Tensor, torch.Tensor | None]:
        if config == LIBRARY_WEIGHTS:
            _, dw, db = library_backward(dz, x, w, geometry, (False, True, bias))
            assert dw is not None
            return dw.contiguous(), db
        return launches.weigh(dz, x, w, geometry, bias, config)

    return WEIGHTS.run(x, config, key_of(geometry, x, words_of(x.dtype, geometry, "b" if bias else "")), run)


# -- selection ---------------------------------------------------------------------------------------
def _candidates(facts: Facts, machine: Machine) -> list[Config]:
    geometry, ways = geometry_of(facts), choice.pixel_candidates(facts, machine, back=True)
    if not takes_steps(geometry):
        return ways
    # H200, 2026-11-22, benchmarks/notes/convolution.md: a third of cuDNN's time in half types; exact in float32, more
    faster = machine.arch == 90 and choice.is_first(geometry) and facts.dtype != torch.float32
    return [STEPS, *ways] if faster else [*ways, STEPS]


def _supports(config: Config, facts: Facts) -> bool:
    return takes_steps(geometry_of(facts)) if config == STEPS else choice.supports(config, facts)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    geometry = geometry_of(facts)

    def run(dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, config: Config) -> list[torch.Tensor]:
        return [data_gradient(dz, x, w, geometry, config)]

    def plain(dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Gradients:
        return reference_backward(dz, x, w, None, needs=(True, False, False), **geometry.options)

    return choice.trial_of("dz x w", facts, inputs, run, plain)


def _weight_candidates(facts: Facts, machine: Machine) -> list[WeightConfig]:
    geometry = geometry_of(facts)
    ways = configs.direct_weight_candidates(geometry, machine)
    if choice.offers_tiles(facts, machine):
        terms = geometry.sources * geometry.taps
        ways = choice.with_tiles(ways, configs.tile_weight_candidates(geometry, machine), terms, geometry.targets)
    return choice.with_library(LIBRARY_WEIGHTS, ways, facts, tiles=choice.beats_library(facts, machine, weights=True))


def _supports_weights(config: WeightConfig, facts: Facts) -> bool:
    geometry = geometry_of(facts)
    if config == LIBRARY_WEIGHTS:
        return True
    if config.channels:
        return choice.in_tiles(facts) and choice.supports(LIBRARY, facts)
    few = config.outs * config.rows * geometry.kernel_w <= max(configs.SUMS, geometry.kernel_w)
    return few and geometry.kernel_h % config.rows == 0 and choice.supports(LIBRARY, facts)


def _weight_work(config: WeightConfig, facts: Facts, machine: Machine) -> Work:
    if config == LIBRARY_WEIGHTS:
        return choice.work_of_library(facts, machine)
    geometry, size = geometry_of(facts), facts.dtype.itemsize
    blocks, parts, each = configs.shares(geometry, config, machine)
    useful = geometry.pixels / (parts * each)
    live = config.outs * (config.rows * geometry.kernel_w + 2.0)
    if config.channels:
        live = config.channels * geometry.taps + 48.0
    flops = geometry.flops // (4 if config.channels else 1)  # in tiles, another core's
    return Work(blocks * parts, config.warps, config.pixels, size, geometry.elements * size, flops, useful, live)


def _weight_trial(facts: Facts, inputs: Inputs) -> Trial:
    geometry, bias = geometry_of(facts), "b" in facts.flags.split()

    def run(dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor, config: WeightConfig) -> tuple[object, ...]:
        return weight_gradient(dz, x, w, geometry, bias, config)

    def plain(dz: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Gradients:
        b = w[:, 0, 0, 0] if bias else None
        return reference_backward(dz, x, w, b, needs=(False, True, bias), **geometry.options)

    return choice.trial_of("dz x w", facts, inputs, run, plain)


DATA = convolution_tunable(
    "convolution data gradient",
    config=Config,
    candidates=_candidates,
    supports=_supports,
    work=functools.partial(choice.pixel_work, back=True),
    trial=_trial,
    kernels=(kernels.convolve, tiles.convolve_tiles),
    problems=functools.partial(choice.problems, ("",)),
    shapes=((64, 8), (512, 8)),
    dtype=torch.float32,
)
WEIGHTS = convolution_tunable(
    "convolution weight gradient",
    config=WeightConfig,
    candidates=_weight_candidates,
    supports=_supports_weights,
    work=_weight_work,
    trial=_weight_trial,
    kernels=(kernels.weigh, tiles.weigh_tiles, kernels.join_weights),
    problems=functools.partial(choice.problems, ("b",)),
    shapes=((64, 8), (512, 8)),
    dtype=torch.float32,
)
