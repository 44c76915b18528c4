"""Dropout with a mask that is a function of (key, stream, element number), so that it is drawn again, never saved.

    y = x * mask      mask[i] = 1 / (1 - prob) rounded to the type of x where word[i] < (1 - prob) * 2^32, else 0

word[i] is word i % 4 of block i // 4 of Philox-4x32-10 with counter (block low, block high, stream low, stream high)
and the 64-bit key.  Only the two numbers are kept between forward and backward: the backward of y is
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

from burn_kernels._triton import tl, triton
from burn_kernels.errors import KernelArgumentError, explain
from burn_kernels.launch import FLOATS, Machine, ceil_div, check, launch, machine_of, runs_kernel
from burn_kernels.prims import random_words
from burn_kernels.spec import Draw, KernelSpec, Problem, register


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, *_: Any, backward: bool = False) -> int:
    """x read and y written; the same backward."""
    return 2 * x.numel() * x.element_size()


def flops(x: torch.Tensor, *_: Any, backward: bool = False) -> int:
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
    """What a tuner may try, the default first."""
    return [Config(512, 4), Config(1024, 8), Config(1024, 4), Config(256, 4)]


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit(do_not_specialize=["key", "stream", "last"])
def _dropout(x_ptr, y_ptr, key, stream, last, scale, count, CIPHERS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * CIPHERS
    number = first + tl.arange(0, CIPHERS)
    w0, w1, w2, w3 = random_words(key, stream, number)
    # a join adds an innermost axis: joined so, the words lie in the order 0 1 2 3
    word = tl.join(tl.join(w0, w2), tl.join(w1, w3)).reshape(CIPHERS * 4)
    at = 4 * first + tl.arange(0, CIPHERS * 4)
    inside = at < count
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.where(word <= last.to(tl.uint32), scale, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


# -- launchers ---------------------------------------------------------------------------------------
def forward(x: torch.Tensor, prob: float, key: int, stream: int, *, config: Config | None = None) -> torch.Tensor:
    """x with elements set to zero with probability `prob` and the others divided by 1 - prob.

    Shapes: x (*s) -> the same.  Dtypes: float32, float16, bfloat16; on the CPU float64 too.
    """
    _check(x, prob)
    if not runs_kernel("dropout", x):
        return reference(x, prob, key, stream)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    if count:
        config = config or default(x.element_size(), machine_of(x))
        # the last word that keeps; with none, the scale is 0
        numbers = (_signed(key), _signed(stream), max(_limit(prob) - 1, 0), _kept_scale(prob, x.dtype), count)
        grid = (ceil_div(count, 4 * config.ciphers),)
        launch(_dropout, grid, x, x.contiguous(), y, *numbers, warps=config.warps, CIPHERS=config.ciphers)
    return y


def backward(dy: torch.Tensor, prob: float, key: int, stream: int, *, config: Config | None = None) -> torch.Tensor:
    """The gradient of x from that of y: dropout of dy with the same three numbers."""
    return forward(dy, prob, key, stream, config=config)


def _check(x: torch.Tensor, prob: float) -> None:
    check("dropout", {"x": x}, {}, alike=["x"])
    check_probability("dropout", prob)


def check_probability(op: str, prob: float) -> None:
    """Raises KernelArgumentError for a probability outside its range."""
    if not 0.0 <= prob <= 1.0:
        raise KernelArgumentError(
            explain(
                f"{op}: the probability is outside its range",
                given=f"prob {prob}",
                expected="from 0 to 1",
                mend="pass the share of elements to drop",
            )
        )


def _limit(prob: float) -> int:
    return round((1.0 - prob) * 4294967296.0)


def _signed(number: int) -> int:
    # modulo 2^64, as a signed argument with the same bits
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >> 63 else number


def mask_numbers(prob: float, key: int, stream: int, dtype: torch.dtype) -> tuple[int, int, int, float]:
    """What `prims.kept` takes, key, stream and the last word that keeps, and the scale: for kernels with a dropout."""
    return _signed(key), _signed(stream), max(_limit(prob) - 1, 0), _kept_scale(prob, dtype)


def mask(prob: float, key: int, stream: int, like: torch.Tensor) -> torch.Tensor:
    """The mask for a tensor like this one, in plain torch: what `reference` multiplies it by."""
    return reference(torch.ones(like.shape, dtype=like.dtype, device=like.device), prob, key, stream)


@functools.lru_cache(maxsize=1024)
def _kept_scale(prob: float, dtype: torch.dtype) -> float:
    # rounded as a mask of this type would be, and finite: 0 * infinity would make NaN of dropped elements
    if _limit(prob) == 0:
        return 0.0
    return torch.tensor(min(1.0 / (1.0 - prob), torch.finfo(dtype).max), dtype=dtype).item()


# -- reference ---------------------------------------------------------------------------------------
def reference(x: torch.Tensor, prob: float, key: int, stream: int) -> torch.Tensor:
    """Dropout in plain torch; the words in int64 arithmetic."""
    kept = (words(key, stream, x.numel(), x.device) < _limit(prob)).reshape(x.shape)
    return x * (kept.to(x.dtype) * _kept_scale(prob, x.dtype))


def words(key: int, stream: int, count: int, device: torch.device) -> torch.Tensor:
    """The first `count` words of a stream, as int64."""
    number = torch.arange(ceil_div(count, 4), dtype=torch.int64, device=device)
    c0, c1 = number & _LOW32, number >> 32
    c2, c3 = torch.full_like(number, stream & _LOW32), torch.full_like(number, (stream >> 32) & _LOW32)
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


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for number, shape in enumerate(((5, 7), (3, 64), (1,), (), (2, 1, 1031), (0, 5))):
        yield Problem((draw.normal(*shape), 0.3, 2**63 - 1 - number, 1 << (7 * number)))
    yield Problem((draw.normal(17, 6).T, 0.5, 1, 16))
    yield Problem((draw.normal(33), 1.0, 2, 3))
    yield Problem((draw.normal(33), 0.0, 2**64 - 1, 2**64 - 1))


SPEC = register(
    KernelSpec(
        name="dropout",
        forward=forward,
        gradient=lambda dy, inputs, outputs: (backward(dy, *inputs[1:]), None, None, None),
        reference=reference,
        reference_gradient=lambda dy, inputs, outputs: (reference(dy, *inputs[1:]), None, None, None),
        twin=reference,  # torch draws other words; tests compare these with another implementation of the cipher
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        dtypes=FLOATS,
        limits="none in size; float64 on a GPU",
    )
)
