"""Problems on which convolutions are checked, calls of their operator, and what a user of PyTorch would write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

import torch
from torch.nn import functional

from burn_kernels import dropout
from burn_kernels.convolution.references import POOLS, ConvolutionOptions, read_options
from burn_kernels.spec import Draw, Problem


def problems(draw: Draw) -> Iterator[Problem]:
    """Ragged, strided, in groups; each pool and dropout; no images; images in other orders."""

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


def twin(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, **options: Unpack[ConvolutionOptions]
) -> torch.Tensor:
    """y as a user of PyTorch writes it, with the words of our dropout."""
    geometry, rest = read_options("convolution", x, w, b, **options)
    y = functional.conv2d(x, w, b, **geometry.options)
    y = y * dropout.mask(rest.prob, rest.key, rest.stream, like=y) if rest.prob else y
    y = y.relu() if rest.relu else y
    if rest.pool == "none":
        return y
    return functional.max_pool2d(y, rest.window) if rest.pool == "max" else functional.avg_pool2d(y, rest.window)


def large(draw: Draw) -> Iterator[Problem]:
    """Layers of networks, large enough that errors average."""
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


def draw_call(draw: Draw) -> tuple[Any, ...]:
    """The arguments of a call of the operator."""
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
