"""A product with a weight that lies as codes of 8, 4 or 2 bits and scales of its blocks: decoded on the way in.

    y = x @ w + b        w[k, n] = code[k, n] * scale[k // block_k, n // block_n]

Limit: memory at few rows, where codes are read once: K N bits / 8 bytes.  Up to 64 rows words go to tensor cores as
they lie, a product for each code of a word; at more rows tiles are decoded into the type of x.  One row of float32 is
multiplied in registers.  The K axis is cut into parts where columns alone would not fill the machine; their sums, in
float32, are added in order by a second kernel.  Accumulates in float32.  Deterministic.
Layout: codes in order, neighbours of the last axis in one word, the first in its lowest bits; read as words of 32 bits
where rows allow it.
Source: Lin et al. 2023 (AWQ), section 4, for products that decode on the way in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import (
    Machine,
    begins_early,
    ceil_div,
    describe,
    launch,
    machine_of,
    next_power,
    rows_of,
    wide_type,
)
from burn_kernels.launcher import launcher
from burn_kernels.quantized_linear.kernels import KERNELS, few_rows, gather, one_row, tiles
from burn_kernels.spec import Draw, Problem, register_kernel

Block = tuple[int, int]

FRAME = 0x4B000000
"""The bits of 2^23 in float32, whose unit is 1."""


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(
    x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, *, size: int, backward: bool = False, **_: object
) -> int:
    """x, codes, scales and bias read, y written."""
    read = sum(t.numel() * t.element_size() for t in (x, codes, scale, bias) if t is not None)
    return read + x.numel() // max(x.shape[-1], 1) * size * x.element_size()


def flops(x: Tensor, *_: object, size: int, backward: bool = False, **__: object) -> int:
    """A product and a sum for each element of x and column."""
    return 2 * x.numel() * size


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A tile of `block_k` rows and `block_n` columns of the weight, and `block_m` rows of x, in `parts` of the K axis.

    A `block_m` of 1 is multiplied in registers.
    """

    block_m: int
    block_k: int
    block_n: int
    parts: int
    warps: int
    stages: int


def default(rows: int, d_in: int, d_out: int, bits: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(rows, d_in, d_out, bits, itemsize, machine)[0]


def _shapes(rows: int, bits: int, itemsize: int, machine: Machine) -> list[tuple[int, int, int, int, int]]:
    """block_m, block_k, block_n, warps, stages; the best first (H200, benchmarks/notes/quantized.md)."""
    line = 128 * 8 // bits >> (
        rows > 32
    )  # columns whose codes fill a line of the cache; sums of many rows, half of one
    few = 16 if rows <= 16 else next_power(rows)
    if itemsize > 2 or machine.backend != "cuda":  # float32 goes through no tensor core, and needs twice the memory
        one = [(1, 64, line, 4, 3), (1, 128, line // 2, 4, 4)]
        return (one if rows == 1 else []) + [(min(few, 64), 32, 64, 4, 2), (16, 64, 64, 4, 2), (16, 32, 32, 4, 2)]
    if rows <= 64:
        near = [(few, 128, line, 4, 2), (few, 128, line, 4, 4)]
        near = near if bits == 4 else near[::-1]
        return [*near, (few, 64, line, 4, 4), (few, 64, 2 * line, 8, 4), (few, 128, 2 * line, 8, 2)]
    tall = 128 if rows <= 128 or int(machine.arch) < 90 else 256
    near = [(tall, 64, 64, 4, 3), (tall, 64, 64, 8, 3)]
    return [*(near if bits == 4 else near[::-1]), (128, 128, 64, 4, 4), (128, 64, 128, 4, 4), (128, 64, 64, 4, 4)]


def candidates(rows: int, d_in: int, d_out: int, bits: int, itemsize: int, machine: Machine) -> list[Config]:
    """Configs that a tuner may try, the default first."""
    configs = []
    for m, k, n, warps, stages in _shapes(rows, bits, itemsize, machine):
        k, n = min(k, max(16, next_power(d_in))), min(n, max(16, next_power(d_out)))
        wanted = 2 * machine.processors // (ceil_div(rows, m) * ceil_div(d_out, n))
        parts = max(1, min(next_power(wanted + 1) // 2, ceil_div(d_in, k), 64))
        configs += [Config(m, k, n, count, warps, stages) for count in (parts, max(1, parts // 2), parts * 2)]
    return list(dict.fromkeys(configs))


# -- reference ---------------------------------------------------------------------------------------
def _whole(codes: Tensor, bits: int, size: int) -> Tensor:
    """Codes in int32, each alone: (d_in, size)."""
    per = 8 * codes.element_size() // bits
    wide = codes.view(torch.int32) if codes.element_size() == 4 else codes.to(torch.int32)
    place = torch.arange(per, device=codes.device, dtype=torch.int32)
    apart = (wide[..., None] << (32 - bits * (place + 1))) >> (32 - bits)
    return apart.reshape(codes.shape[0], codes.shape[1] * per)[:, :size]


def dequantized(codes: Tensor, scale: Tensor, bits: int, size: int, block: Block, dtype: torch.dtype) -> Tensor:
    """The weight in plain torch."""
    whole = _whole(codes, bits, size).to(dtype)
    if scale.numel() == 1:
        return whole * scale.reshape(()).to(dtype)
    wide = scale.to(dtype)
    for axis, (per, length) in enumerate(zip(block, whole.shape, strict=True)):
        wide = wide.repeat_interleave(per or length, axis).narrow(axis, 0, length)
    return whole * wide


def reference(
    x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None = None, *, bits: int, size: int, block: Block
) -> Tensor:
    """The product in plain torch."""
    wide = wide_type(x.dtype)
    y = x.to(wide) @ dequantized(codes, scale, bits, size, block, wide)
    return (y if bias is None else y + bias.to(wide)).to(x.dtype)


# -- launchers ---------------------------------------------------------------------------------------
def _check(
    op: str, x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None = None, *, bits: int, size: int, block: Block,
    **_: object,
) -> None:  # fmt: skip
    whole = codes.dtype in (torch.int8, torch.uint8, torch.int32, torch.uint32)
    per = 8 * codes.element_size() // bits if bits in (2, 4, 8) and whole else 0
    counts = tuple(ceil_div(n, b) if b else 1 for n, b in zip((x.shape[-1], size), block, strict=True))
    fits = per and codes.ndim == 2 and codes.shape == (x.shape[-1], ceil_div(size, per))
    if not fits or (scale.numel() != 1 and scale.shape != counts) or (bias is not None and bias.shape != (size,)):
        raise KernelArgumentError(
            f"{op}: codes, scales or bias do not fit",
            given=describe({"x": x, "codes": codes, "scale": scale, "bias": bias}) + f", bits {bits}, size {size}",
            expected=f"codes (d_in, words) of int8, uint8, int32 or uint32, scales (1,) or {counts}, bias ({size},)",
            mend="bits is 8, 4 or 2; codes of a row fill words from the lowest bits on",
        )


@launcher("quantized_linear", "x (*batch, d_in), ; codes, scale, bias", reference=reference, options=_check)
def forward(
    x: Tensor,
    codes: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    bits: int,
    size: int,
    block: Block,
    config: Config | None = None,
) -> Tensor:
    """x @ weight + bias of a weight in codes of `bits` bits; `size` is the number of its columns.

    Shapes: x (*batch, d_in), codes (d_in, words), scale one element or one for each block, bias (size,) -> (*batch,
    size).  Sizes of `block` are rows and columns that share a scale, 0 the whole axis.
    Dtypes: x float32, float16, bfloat16; on the CPU float64 too; scale any float.
    """
    y = torch.empty((*x.shape[:-1], size), dtype=x.dtype, device=x.device)
    d_in = x.shape[-1]
    if not y.numel():
        return y
    flat = rows_of(x) if x.ndim > 1 else x.reshape(1, -1)
    flat = flat if flat.stride(-1) == 1 else flat.contiguous()
    rows = flat.shape[0]
    packed = codes.contiguous()
    fills = d_in and packed.shape[1] % 4 == 0 and packed.data_ptr() % 4 == 0
    if packed.element_size() == 4 or fills:
        packed = packed.view(torch.int32)
    per = 8 * packed.element_size() // bits
    words = packed.shape[1]
    scales = scale.contiguous()
    one = scales.numel() == 1
    block_k, block_n = (0, 0) if one else block
    block_k, block_n = block_k or max(d_in, 1), block_n or size
    scale_stride = 0 if one else scales.shape[-1]

    def run(config: Config) -> None:
        machine = machine_of(x)
        few = config.block_m <= 64 and per > 1 and x.element_size() == 2
        kernel: Any = one_row if config.block_m == 1 else few_rows if few else tiles
        step = min(config.block_k, max(16, next_power(max(d_in, 1))))
        if block_k < d_in:  # a step should not reach into the next block of scales
            step = min(step, max(16, block_k & -block_k))
        kind = 0 if block_k >= d_in else 1 if block_k % step == 0 else 2
        count = max(1, min(next_power(max(1, config.block_n // per)), next_power(words)))
        if kind == 2 and kernel is few_rows:
            kernel = tiles
        if kernel is not one_row:
            count = max(count, 16 if kernel is few_rows else ceil_div(16, per))
        part_k = ceil_div(ceil_div(max(d_in, 1), config.parts), step) * step
        parts = ceil_div(max(d_in, 1), part_k)
        shared = torch.empty(parts, rows, size, dtype=torch.float32, device=x.device) if parts > 1 else None
        grid = (ceil_div(words, count), parts, ceil_div(rows, max(1, config.block_m)))
        early = shared is not None and begins_early(machine)
        how: dict[str, Any] = {"BITS": bits, "PER": per, "WORDS": count, "LEADS": early, "STAGES": config.stages,
               "BLOCK_K": step, "SCALES": kind, "EVEN": d_in % step == 0 and words % count == 0}  # fmt: skip
        if kernel is not one_row:
            how["BLOCK_M"] = max(16, config.block_m)
        if kernel is few_rows:
            how["NATIVE"] = machine.backend == "cuda" and int(machine.arch) >= 80 and per * bits == 32
        added = bias if shared is None else None
        arguments = (flat, packed, scales, added, y, shared, rows, d_in, size, words, part_k, flat.stride(0))
        launch(kernel, grid, x, *arguments, scale_stride, block_k, block_n, FRAME, warps=config.warps,
               stages=config.stages, **how)  # fmt: skip
        if shared is not None:
            launch(gather, (ceil_div(rows * size, 256),), x, shared, bias, y, parts, rows * size, size, warps=4,
                   BLOCK=256, EARLY=early, early=early)  # fmt: skip

    call = (x.dtype, rows, d_in, size, bits, packed.data_ptr() & 15, block_k if block_k < d_in else 0)
    CHOICE.run(x, config, call, run)
    return y


# -- selection ---------------------------------------------------------------------------------------
def _facts(dtype: torch.dtype, rows: int, d_in: int, size: int, bits: int, address: int, group: int) -> Facts:
    return Facts((rows,), (d_in, size), dtype, alignment(address), "packed", f"bits={bits} group={group}")


def _flags(facts: Facts) -> tuple[int, int]:
    bits, group = (int(word.split("=")[1]) for word in facts.flags.split())
    return bits, group


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (rows,), (d_in, size), (bits, _) = facts.free, facts.exact, _flags(facts)
    programs = ceil_div(size, config.block_n) * config.parts * ceil_div(rows, config.block_m)
    moved = d_in * size * bits // 8 + config.parts * rows * size * 8 * (config.parts > 1)
    useful = rows / (ceil_div(rows, config.block_m) * config.block_m)
    held = config.block_k * config.block_n
    return Work(programs, config.warps, held, 4, moved, 2 * rows * d_in * size, useful, 2.0, ahead=config.stages)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (rows,), (d_in, size), (bits, group) = facts.free, facts.exact, _flags(facts)
    x = inputs.rows(facts._replace(exact=(d_in,)), rows, d_in)
    codes = inputs.integers(0, 127, d_in * ceil_div(size * bits, 8)).reshape(d_in, -1).to(torch.int8)
    scale = x.new_ones(ceil_div(d_in, group) if group else 1, size)
    return Trial.of(forward, x, codes, scale, None, bits=bits, size=size, block=(group, 1))


CHOICE = register_tunable(
    name="quantized_linear",
    config=Config,
    facts=_facts,
    free=("rows",),
    exact=("d_in", "d_out"),
    candidates=lambda facts, machine: candidates(
        facts.free[0], facts.exact[0], facts.exact[1], _flags(facts)[0], facts.dtype.itemsize, machine
    ),
    supports=lambda config, facts: config.block_m > 1 or facts.free[0] == 1,
    work=_work,
    trial=_trial,
    kernels=KERNELS,
    problems=lambda rows, cols, dtype: [
        Facts((rows,), (cols, cols), dtype, 16, "packed", f"bits={bits} group=128") for bits in (8, 4)
    ],
    shapes=((1, 4096), (16, 4096), (256, 4096)),
    elements=lambda facts: facts.exact[0] * facts.exact[1],
)


# -- registration ------------------------------------------------------------------------------------
def _problem(
    draw: Draw, batch: tuple[int, ...], d_in: int, size: int, bits: int, block: Block, word: int = 8
) -> Problem:
    words = ceil_div(size * bits, word)
    low, high, kind = (-128, 128, torch.int8) if word == 8 else (-(2**31), 2**31, torch.int32)
    counts = [ceil_div(n, b) if b else 1 for n, b in zip((d_in, size), block, strict=True)]
    scale = draw.normal(*counts).abs() / 100 + 0.01
    bias = None if draw.one_in(3) else draw.normal(size)
    codes = draw.integers(low, high, d_in, words).to(kind)
    return Problem((draw.normal(*batch, d_in), codes, scale, bias), {"bits": bits, "size": size, "block": block})


def _problems(draw: Draw) -> Iterator[Problem]:
    yield _problem(draw, (1,), 40, 24, 8, (0, 1))
    yield _problem(draw, (1,), 64, 37, 4, (16, 1))
    yield _problem(draw, (), 33, 9, 4, (8, 3))
    yield _problem(draw, (3,), 40, 24, 8, (0, 0))
    yield _problem(draw, (2, 9), 50, 21, 4, (32, 1))
    yield _problem(draw, (1,), 100, 70, 2, (0, 1), 32)
    yield _problem(draw, (5,), 48, 33, 4, (16, 8), 32)
    yield _problem(draw, (0,), 8, 5, 8, (0, 1))


def _twin(
    x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None = None, *, bits: int, size: int, block: Block
) -> Tensor:
    weight = dequantized(codes, scale, bits, size, block, x.dtype)
    return torch.nn.functional.linear(x, weight.T, bias)


SPEC = register_kernel(
    forward,
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    limits="codes of 8, 4 or 2 bits with a sign",
)
