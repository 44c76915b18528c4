"""Words of Philox-4x32-10, and yes or no of them: functions of (key, stream, element number).

    word[i] = word i % 4 of block i // 4; block = the cipher of (block low, block high, stream low, stream high) by key
    yes[i]  = value where word[i] < limit, else 0            `limit` counts in units of 2^-32

Key and stream are Python integers taken modulo 2^64, or tensors of one int64 on the device that the kernel reads when
it runs: a CUDA graph then draws other numbers at each replay.

Limit: arithmetic where words are written (ten rounds of some 10 integer operations for 32 bytes), memory else.
Layout: results are contiguous.  Deterministic: the launch's shape does not enter the words.
Source: Salmon, Moraes, Dror, Shaw 2011, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import AVAILABLE, INTERPRETED, tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import Machine, ceil_div, launch, recorded, warn_without_triton

__all__ = ["bits", "signed", "words", "yes"]

Number = int | torch.Tensor


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`ciphers` blocks of four words a program, `warps` of 32 threads."""

    ciphers: int
    warps: int


def default(machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(machine)[0]


def candidates(machine: Machine) -> list[Config]:
    """The configs that a tuner may try, the default first."""
    return [Config(256, 4), Config(512, 4), Config(1024, 8)]


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def held(number, POINTER: tl.constexpr):
    """A number that was passed as it is, or lies where it points to."""
    if POINTER:
        number = tl.load(number)
    return number


@triton.jit
def cipher(key, stream, number):
    """The four words of each of the blocks `number` (int64)."""
    named = number * 0 + stream
    low, high = (number & 0xFFFFFFFF).to(tl.uint32), (number >> 32).to(tl.uint32)
    stream_low, stream_high = (named & 0xFFFFFFFF).to(tl.uint32), ((named >> 32) & 0xFFFFFFFF).to(tl.uint32)
    return tl.philox(key.to(tl.uint64), low, high, stream_low, stream_high)


@triton.jit
def draw(key, stream, first, CIPHERS: tl.constexpr):
    """Words of the blocks [first, first + CIPHERS), in order."""
    w0, w1, w2, w3 = cipher(key, stream, first + tl.arange(0, CIPHERS))
    # a join adds an innermost axis: joined so, the words lie in the order 0 1 2 3
    return tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(CIPHERS * 4)


@triton.jit
def word_at(key, stream, element):
    """The word of each element, numbered in order: a block of four drawn for each, where three are not used."""
    element = element.to(tl.int64)
    w0, w1, w2, w3 = cipher(key, stream, element // 4)
    which = (element % 4).to(tl.int32)
    return tl.where(which < 2, tl.where(which == 0, w0, w1), tl.where(which == 2, w2, w3))


@triton.jit
def row_words(key, stream, begin, BLOCK: tl.constexpr):
    """The words of BLOCK elements from each of the elements `begin` (n, 1), multiples of four, on: (n, BLOCK)."""
    number = begin.to(tl.int64) // 4 + tl.arange(0, BLOCK // 4)[None, :]
    w0, w1, w2, w3 = cipher(key, stream, number)
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (begin.shape[0], BLOCK))


@triton.jit
def fours_at(key, stream, element):
    """The words of elements (n, m), all multiples of four, and of the three that follow each: (n, 4 * m)."""
    w0, w1, w2, w3 = cipher(key, stream, element.to(tl.int64) // 4)
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (element.shape[0], 4 * element.shape[1]))


@triton.jit
def kept(key, stream, last, row, start, cols, QUADS: tl.constexpr, BLOCK: tl.constexpr):
    """Tells which elements of the columns [start, start + BLOCK) of rows (n,) a dropout keeps: (n, BLOCK).

    Elements of (rows, cols) are numbered in order.  QUADS says that 4 divides cols and start, so that a block of four
    words serves four neighbours; otherwise each element draws a block for itself and takes one word.
    """
    if QUADS:
        word = row_words(key, stream, (row * cols + start)[:, None], BLOCK)
    else:
        word = word_at(key, stream, (row * cols + start)[:, None] + tl.arange(0, BLOCK)[None, :])
    return word <= last.to(tl.uint32)


@triton.jit(do_not_specialize=["key", "stream", "begin"])
def _bits(y_ptr, key, stream, begin, count, KEY: tl.constexpr, STREAM: tl.constexpr, CIPHERS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CIPHERS
    word = draw(held(key, KEY), held(stream, STREAM), begin + first, CIPHERS)
    at = 4 * first + tl.arange(0, CIPHERS * 4)
    tl.store(y_ptr + at, word.to(tl.int64), mask=at < count)


@triton.jit(do_not_specialize=["key", "stream", "last"])
def _yes(y_ptr, key, stream, last, value, count, KEY: tl.constexpr, STREAM: tl.constexpr, CIPHERS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CIPHERS
    word = draw(held(key, KEY), held(stream, STREAM), first, CIPHERS)
    at = 4 * first + tl.arange(0, CIPHERS * 4)
    y = tl.where(word <= last.to(tl.uint32), value, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < count)


# -- launchers ---------------------------------------------------------------------------------------
def bits(
    key: Number, stream: Number, first: int, count: int, device: torch.device, *, config: Config | None = None
) -> torch.Tensor:
    """Words [4 first, 4 first + count) of a stream, as int64 (torch computes almost nothing on uint32)."""
    y = torch.empty(count, dtype=torch.int64, device=device)
    if not _runs_kernel(y):
        return words(key, stream, count, device, first)
    if count:
        arguments, held = (y, *numbers(key, stream), first, count), flags(key, stream)

        def run(config: Config) -> None:
            grid = (ceil_div(count, 4 * config.ciphers),)
            launch(_bits, grid, y, *arguments, warps=config.warps, **held, CIPHERS=config.ciphers)

        BITS.run(y, config, (torch.int64, count), run)
    return y


def yes(
    shape: Sequence[int],
    limit: int,
    value: float,
    key: Number,
    stream: Number,
    dtype: torch.dtype,
    device: torch.device,
    *,
    config: Config | None = None,
) -> torch.Tensor:
    """`value` with probability limit / 2^32, else 0.

    Shapes: () -> shape.  Dtypes: any; `value` is exact in float32 and in `dtype`.
    """
    if not 0 <= limit <= 1 << 32:
        raise KernelArgumentError(
            "yes: the limit is no share of 2^32 words",
            given=f"limit {limit}",
            expected="from 0 to 2^32",
            mend="pass round(probability * 2**32)",
        )
    y = torch.empty(tuple(shape), dtype=dtype, device=device)
    if not _runs_kernel(y):
        drawn = words(key, stream, y.numel(), device) < limit
        return torch.where(drawn, value, 0.0).to(dtype).reshape(y.shape)
    count = y.numel()
    if count:
        # the last word that is below the limit; with none, the value is 0
        last, worth = max(limit - 1, 0), value if limit else 0.0
        out = y.view(torch.uint8) if dtype == torch.bool else y
        arguments, held = (out, *numbers(key, stream), last, float(worth), count), flags(key, stream)

        def run(config: Config) -> None:
            grid = (ceil_div(count, 4 * config.ciphers),)
            launch(_yes, grid, y, *arguments, warps=config.warps, **held, CIPHERS=config.ciphers)

        YES.run(y, config, (dtype, count), run)
    return y


def _runs_kernel(y: torch.Tensor) -> bool:
    if recorded() is not None:
        return True
    if y.is_cuda and not AVAILABLE:
        warn_without_triton()
    return AVAILABLE and (y.is_cuda or (INTERPRETED and y.device.type == "cpu"))


def signed(number: int) -> int:
    """An integer modulo 2^64, as a signed one with the same bits."""
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >> 63 else number


def numbers(key: Number, stream: Number) -> tuple[Any, Any]:
    """Key and stream as arguments of a kernel.  Raises: KernelArgumentError for tensors that are no 64-bit integer."""
    for name, number in (("key", key), ("stream", stream)):
        if isinstance(number, torch.Tensor) and (number.dtype != torch.int64 or number.numel() != 1):
            raise KernelArgumentError(
                f"the {name} is no integer of 64 bits",
                given=f"a tensor {tuple(number.shape)} of {number.dtype}",
                expected="a Python integer, or a tensor with one int64",
                mend="make it with torch.tensor(number, dtype=torch.int64, device=device)",
            )
    return tuple(x if isinstance(x, torch.Tensor) else signed(x) for x in (key, stream))  # type: ignore[return-value]  # two


def flags(key: Number, stream: Number) -> dict[str, bool]:
    """Names those of the two that are read from the device."""
    return {"KEY": isinstance(key, torch.Tensor), "STREAM": isinstance(stream, torch.Tensor)}


# -- reference ---------------------------------------------------------------------------------------
def words(key: Number, stream: Number, count: int, device: torch.device, first: int = 0) -> torch.Tensor:
    """Words [4 first, 4 first + count) of a stream in plain torch, as int64."""
    number = torch.arange(first, first + ceil_div(count, 4), dtype=torch.int64, device=device)
    c0, c1 = number & _LOW32, number >> 32
    zero = number * 0
    c2, c3 = zero + (stream & _LOW32), zero + ((stream >> 32) & _LOW32)
    k0, k1 = key & _LOW32, (key >> 32) & _LOW32
    for _ in range(10):
        high0, low0 = _product(c0, 0xD2511F53)
        high2, low2 = _product(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & _LOW32, (k1 + 0xBB67AE85) & _LOW32
    return torch.stack([c0, c1, c2, c3], 1).reshape(-1)[:count]


_LOW32 = 0xFFFFFFFF


def _product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    # the high and low half of a 32 by 32 bit product, without leaving 63 bits
    below, above = (a & 0xFFFF) * b, (a >> 16) * b
    middle = above + (below >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (below & 0xFFFF)


# -- selection ---------------------------------------------------------------------------------------
def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (count,), size, numbers = facts.free, facts.dtype.itemsize, 4 * config.ciphers
    programs = ceil_div(count, numbers)
    return Work(programs, config.warps, numbers, size, count * size, 26 * count, count / (programs * numbers), 3.0)


def _bits_trial(facts: Facts, inputs: Inputs) -> Trial:
    (count,), device = facts.free, inputs.device
    return Trial(
        (7, 11),
        lambda given, config: bits(given[0], given[1], 3, count, device, config=config),
        lambda given: words(given[0], given[1], count, device, 3),
    )


def _yes_trial(facts: Facts, inputs: Inputs) -> Trial:
    (count,), dtype, device, limit = facts.free, facts.dtype, inputs.device, 3 << 29
    return Trial(
        (7, 11),
        lambda given, config: yes((count,), limit, 1.0, given[0], given[1], dtype, device, config=config),
        lambda given: (words(given[0], given[1], count, device) < limit).to(dtype),
    )


def _tunable(name: str, trial: Callable[[Facts, Inputs], Trial], dtype: torch.dtype, *, always: bool) -> Tunable:
    return register_tunable(
        name=name,
        config=Config,
        facts=lambda dtype, count: Facts((count,), (), dtype),  # what is written begins an allocation of its own
        free=("elements",),
        exact=(),
        candidates=lambda facts, machine: candidates(machine),
        supports=lambda config, facts: config.ciphers <= 1 << 15,
        work=_work,
        trial=trial,
        kernels=(_bits,) if always else (_yes,),
        problems=lambda rows, cols, wanted: [Facts((rows * cols,), (), dtype if always else wanted)],
        shapes=((8192, 5120),),
        dtype=dtype,
    )


# where key and stream lie changes what a program loads by a word: one choice for both
BITS = _tunable("random bits", _bits_trial, torch.int64, always=True)
YES = _tunable("random yes", _yes_trial, torch.bfloat16, always=False)
