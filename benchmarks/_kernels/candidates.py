"""Every candidate config of the row-wise kernels as a variant: what --tune times, and --tuned takes the best of."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks._kernels.problems import SIZES, gpt2_table, random, row_wise
from benchmarks._kernels.rows import Case
from benchmarks._kernels.timing import Call, Timer, captured
from burn_kernels import REGISTRY, cross_entropy, dropout, glu, norm, optimizer, softmax
from burn_kernels.launch import machine_of

__all__ = ["Part", "fastest", "parts", "tuning_cases"]


@dataclass
class Part:
    """One kernel on given inputs: its candidate configs, the default first, and how to run one."""

    passed: str
    floor_bytes: int
    configs: list[Any]
    run: Callable[[Any], Any]


def parts(name: str, inputs: tuple[Any, ...], dy: Any) -> list[Part]:
    """The kernels of a row-wise operation; backwards run on what one forward saved."""
    x, machine = inputs[0], machine_of(inputs[0])
    n, cols = x.numel() * x.element_size(), x.shape[1]
    if name == "softmax":
        y = softmax.forward(x)
        back: list[Any] = softmax.candidates(cols, 2, machine, backward=True)
        return [
            Part("f", 2 * n, softmax.candidates(cols, 2, machine), lambda c: softmax.forward(x, config=c)),
            Part("b", 3 * n, back, lambda c: softmax.backward(dy, y, config=c)),
        ]
    if name in ("layer_norm", "rms_norm"):
        forward, backward = getattr(norm, name), getattr(norm, f"{name}_backward")
        saved = forward(*inputs)[1:]
        centred = name == "layer_norm"
        front = norm.candidates(cols, 2, machine, centred=centred)
        back = norm.backward_candidates(cols, 2, machine, centred=centred)
        return [
            Part("f", 2 * n, front, lambda c: forward(*inputs, config=c)),
            Part("b", 3 * n, back, lambda c: backward(dy, *inputs[:2], *saved, config=c)),
        ]
    if name == "cross_entropy":
        losses: list[Any] = cross_entropy.candidates(cols, 2, machine, gradient=True)
        configs: list[Any] = cross_entropy.candidates(cols, 2, machine, gradient=True, once=True)
        spare = x.clone()
        return [
            Part("f", n, losses, lambda c: cross_entropy.forward(*inputs, config=c)),
            Part("fb", 2 * n, configs, lambda c: cross_entropy.forward_with_gradient(*inputs, config=c)),
            Part(
                "in place", 2 * n, configs, lambda c: cross_entropy.forward_with_gradient_(spare, inputs[1], config=c)
            ),
        ]
    kind = {"swiglu": "silu", "geglu": "gelu"}[name]
    configs = list(glu.candidates(x.numel(), 2, machine))
    return [
        Part("f", 3 * n, configs, lambda c: glu.forward(*inputs, kind=kind, config=c)),
        Part("b", 5 * n, configs, lambda c: glu.backward(dy, *inputs, kind=kind, config=c)),
    ]


def tuning_cases() -> Iterator[Case]:
    """Each candidate config of each kernel as a variant."""
    for name, make, tag in row_wise():
        for part in parts(name, make(SIZES.rows), make(SIZES.rows)[0]):
            variants: dict[str, Call] = {str(c): functools.partial(part.run, c) for c in part.configs}
            yield Case(f"{name} {tag}", REGISTRY[name], part.passed, part.floor_bytes, variants)
    x = random(SIZES.rows, 14336)
    variants = {
        str(c): functools.partial(dropout.forward, x, 0.1, 7, 11, config=c)
        for c in dropout.candidates(2, machine_of(x))
    }
    yield Case(f"dropout {SIZES.rows}x14336", REGISTRY["dropout"], "f", 4 * x.numel(), variants)
    table = gpt2_table()
    configs, n = optimizer.candidates(machine_of(x)), 28 * sum(p.numel() for p in table.inputs[0])
    variants = {str(c): functools.partial(optimizer.adamw_, table, lr=1e-4, step=100, config=c) for c in configs}
    yield Case("adamw 124M", REGISTRY["adamw"], "step", n, variants)


def fastest(part: Part, timer: Timer) -> Call:
    """The part with the config that a short measurement finds fastest."""
    calls = {str(c): captured(functools.partial(part.run, c), SIZES.device) for c in part.configs}
    times = {name: statistics.median(samples) for name, samples in timer(calls, rounds=9).items()}
    name = min(times, key=lambda name: times[name])
    print(f"    tuned {part.passed}: {name}, {times[name]:.4f} ms; default {times[str(part.configs[0])]:.4f} ms")
    chosen = next(c for c in part.configs if str(c) == name)
    return functools.partial(part.run, chosen)
