"""Dropout with a mask that is a function of (key, stream, element number), so that it is drawn again, never saved.

    y = x * mask      mask[i] = 1 / (1 - prob) rounded to the type of x where word[i] < (1 - prob) * 2^32, else 0

word[i] is word i % 4 of block i // 4 of Philox-4x32-10 with counter (block low, block high, stream low, stream high)
and key (key low, key high); see `random`, also for keys and streams that lie on the device.  The backward is
the forward on dy.  A dropped NaN or infinity becomes NaN: faults stay visible.

Limit: memory, forward and backward 2 * numel elements; one cipher of ten rounds serves four elements.
Layout: elements are numbered in order of x's shape; an x that lies otherwise is copied first.  Deterministic.
Source: Salmon, Moraes, Dror, Shaw 2011, section 3.3; Srivastava et al. 2014.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels import random
from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import Machine, ceil_div, launch
from burn_kernels.launcher import launcher
from burn_kernels.operators import Operator, like
from burn_kernels.random import Number
from burn_kernels.spec import Draw, Problem, register_kernel


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *_: object, backward: bool = False) -> int:
    """x read and y written; the same backward."""
    return 2 * x.numel() * x.element_size()


def flops(x: torch.Tensor, *_: object, backward: bool = False) -> int:
    """Ten rounds of some 10 integer operations for four elements, and a product."""
    return 26 * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`ciphers` blocks of four elements a program, `warps` of 32 threads."""

    ciphers: int
    warps: int


def default(itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(itemsize, machine)[0]


def candidates(itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first."""
    return [Config(512, 4), Config(1024, 8), Config(1024, 4), Config(256, 4)]


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit(do_not_specialize=["key", "stream", "last"])
def _dropout(
    x_ptr, y_ptr, key, stream, last, scale, count, KEY: tl.constexpr, STREAM: tl.constexpr, CIPHERS: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * CIPHERS
    word = random.draw(random.held(key, KEY), random.held(stream, STREAM), first, CIPHERS)
    at = 4 * first + tl.arange(0, CIPHERS * 4)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.where(word <= last.to(tl.uint32), scale, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


# -- numbers -----------------------------------------------------------------------------------------
def check_probability(op: str, prob: float) -> None:
    """Raises KernelArgumentError for a probability outside its range."""
    if not 0.0 <= prob <= 1.0:
        raise KernelArgumentError(
            f"{op}: the probability is outside its range",
            given=f"prob {prob}",
            expected="from 0 to 1",
            mend="pass the share of elements to drop",
        )


def mask_numbers(prob: float, dtype: torch.dtype) -> tuple[int, float]:
    """The last word that keeps, and the scale: what a kernel with a dropout in it takes beside key and stream."""
    return max(_limit(prob) - 1, 0), _kept_scale(prob, dtype)  # with no word that keeps, the scale is 0


def _limit(prob: float) -> int:
    return round((1.0 - prob) * 4294967296.0)


@functools.lru_cache(maxsize=1024)
def _kept_scale(prob: float, dtype: torch.dtype) -> float:
    # rounded as a mask of this type would be, and finite: 0 * infinity would make NaN of dropped elements
    if _limit(prob) == 0:
        return 0.0
    return torch.tensor(min(1.0 / (1.0 - prob), torch.finfo(dtype).max), dtype=dtype).item()


# -- reference ---------------------------------------------------------------------------------------
def reference(x: torch.Tensor, prob: float, key: Number, stream: Number) -> torch.Tensor:
    """Dropout in plain torch; the words in int64 arithmetic."""
    kept = (random.words(key, stream, x.numel(), x.device) < _limit(prob)).reshape(x.shape)
    return x * (kept.to(x.dtype) * _kept_scale(prob, x.dtype))


def mask(prob: float, key: Number, stream: Number, like: torch.Tensor) -> torch.Tensor:
    """The mask for a tensor like this one, in plain torch: what `reference` multiplies it by."""
    return reference(torch.ones(like.shape, dtype=like.dtype, device=like.device), prob, key, stream)


# -- launchers ---------------------------------------------------------------------------------------
@launcher("dropout", "x", reference=reference, options=lambda op, x, prob, *_, **__: check_probability(op, prob))
def forward(x: torch.Tensor, prob: float, key: Number, stream: Number, *, config: Config | None = None) -> torch.Tensor:
    """x with elements set to zero with probability `prob` and the others divided by 1 - prob.

    key, stream: integers, or tensors of one int64 on the device of x.

    Shapes: x (*s) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    if count:
        source = x.contiguous()
        numbers = (*random.numbers(key, stream), *mask_numbers(prob, x.dtype), count)
        flags = random.flags(key, stream)

        def run(config: Config) -> None:
            grid = (ceil_div(count, 4 * config.ciphers),)
            launch(_dropout, grid, x, source, y, *numbers, warps=config.warps, **flags, CIPHERS=config.ciphers)

        CHOICE.run(x, config, (x.dtype, count, source.data_ptr() & 15), run)
    return y


def backward(
    dy: torch.Tensor, prob: float, key: Number, stream: Number, *, config: Config | None = None
) -> torch.Tensor:
    """The gradient of x from that of y: dropout of dy with the same three numbers."""
    return forward(dy, prob, key, stream, config=config)


# -- selection ---------------------------------------------------------------------------------------
def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (count,), size, held = facts.free, facts.dtype.itemsize, 4 * config.ciphers
    programs = ceil_div(count, held)
    return Work(programs, config.warps, held, size, 2 * count * size, 26 * count, count / (programs * held), 3.0)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    return Trial.of(forward, inputs.rows(facts, 1, facts.free[0]).reshape(-1), 0.1, 7, 11)


# where key and stream lie changes what a program loads by a word: one choice for both
CHOICE = register_tunable(
    name="dropout",
    config=Config,
    facts=lambda dtype, count, address: Facts((count,), (), dtype, alignment(address)),
    free=("elements",),
    exact=(),
    candidates=lambda facts, machine: candidates(facts.dtype.itemsize, machine),
    supports=lambda config, facts: config.ciphers <= 1 << 15,
    work=_work,
    trial=_trial,
    kernels=(_dropout,),
    problems=lambda rows, cols, dtype: [Facts((rows * cols,), (), dtype)],
    shapes=((8192, 5120), (8192, 14_336)),
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for number, shape in enumerate(((5, 7), (3, 64), (1,), (), (2, 1, 1031), (0, 5))):
        yield Problem((draw.normal(*shape), 0.3, 2**63 - 1 - number, 1 << (7 * number)))
    yield Problem((draw.normal(17, 6).T, 0.5, 1, 16))
    yield Problem((draw.normal(33), 1.0, 2, 3))
    yield Problem((draw.normal(33), 0.0, 2**64 - 1, 2**64 - 1))


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    prob = (0.0, 0.1, 0.5, 0.9)[draw.integer(0, 4)]
    return draw.rows(draw.width()), prob, draw.seed()


SPEC = register_kernel(
    forward,
    forward,
    gradient=lambda back, dy, inputs, outputs: (back(dy, *inputs[1:]), None, None, None),
    twin=reference,  # torch draws other words; tests compare these with another implementation of the cipher
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    large=lambda draw: [Problem((draw.normal(64, 5120), 0.1, 5, 6))],
    draw_call=_draw_call,
    operators=[
        Operator(
            schema="dropout(Tensor x, float prob, Tensor seed) -> Tensor",
            inputs="x",
            fake=lambda x, prob, seed: like(x),
            gradients="x",
            saved="prob seed",
            rule=lambda saved, dy: (torch.ops.burn_kernels.dropout(dy, saved["prob"], saved["seed"]),),
        )
    ],
)
