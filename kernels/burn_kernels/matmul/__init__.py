"""A linear layer with what follows it: out = act(x w^T + b) + residual.

    z = x w^T + b                 act(z): z itself, or one of burn_kernels.activation: gelu, gelu_tanh, silu, relu
    dz = dout * act'(z)           db = sum over rows of dz
    dx = dz w                     dw = dz^T x                          dresidual = dout

Limit: arithmetic.  2 * rows * features * inner operations forward, twice that backward.  What follows the product moves
2 to 4 * rows * features elements where it is a kernel of its own, and none where it is done before the product leaves
its registers: at `inner` from some thousand on, a part of a hundredth; below some hundred, the most of the time.
Layout: any strides; w is (features, inner), as torch.nn.Linear keeps it; `w.T` of (inner, features) is read in place.
Sums in float32.  Deterministic.

Three ways, of which timings choose; without any the library's is taken:

    LIBRARY   the library's product, then one kernel for what follows it
    ENDING    the library's product with its own ending (cuBLASLt: bias and relu, or gelu_tanh in halves; nothing kept)
    TILES     one kernel of this file: tiles in groups, so that programs side by side share their operands in the L2

Backward: act'(z) needs z.  Of relu without a residual the output says enough, and nothing more is kept; elsewhere the
forward keeps z, rows * features elements written and read again.  To compute it again would take 2 * inner operations
an element: more than 4 bytes take, from an inner size of some 350 on (H200, half types: 700 TFLOP/s by 4.2 TB/s), and
layers are wider.  dz and db are made in one pass (`matmul.launch_backward`).
Source: Nvidia, cuBLAS 13, cublasLtEpilogue_t; the order of tiles: Tillet et al. 2019 (Triton), the matrix tutorial.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.activation import activate
from burn_kernels.autotune.cost import Work, figures
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, tunable
from burn_kernels.launch import FLOATS, Machine, ceil_div, launch, next_power, rows_of, runs_kernel
from burn_kernels.matmul.launch_backward import (
    BackwardConfig,
    backward,
    backward_candidates,
    backward_default,
    slope_and_bias,
)
from burn_kernels.matmul.references import (
    KINDS,
    bytes_moved,
    check_layer,
    flops,
    keeps,
    problems,
    reference,
    reference_backward,
    reference_kept,
    rows_in,
    twin,
    twin_kept,
)
from burn_kernels.operators import Operator, nothing
from burn_kernels.products import add_product
from burn_kernels.spec import Draw, KernelSpec, Problem, large_rows, register

__all__ = [
    "ENDING",
    "KINDS",
    "LIBRARY",
    "TILES",
    "BackwardConfig",
    "Config",
    "backward",
    "backward_candidates",
    "backward_default",
    "candidates",
    "default",
    "facts",
    "forward",
    "forward_kept",
    "in_tf32",
    "keeps",
    "place",
    "product",
    "reference",
    "reference_backward",
    "reference_kept",
    "slope_and_bias",
    "tiles",
]

LIBRARY, ENDING, TILES = range(3)


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A way, and of TILES their `rows`, `features` and steps of `inner`; `group` rows of tiles side by side."""

    way: int
    rows: int = 0
    features: int = 0
    inner: int = 0
    group: int = 0
    warps: int = 0
    stages: int = 0


def default(rows: int, features: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used without timing: the library's product."""
    return candidates(rows, features, itemsize, machine)[0]


_HALVES = {
    # largest first; each within 255 registers of a thread and the shared memory of its machine
    "hopper": (
        (128, 256, 64, 8, 3),
        (128, 128, 64, 8, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (16, 128, 64, 4, 5),
    ),
    "ampere": (
        (128, 256, 32, 8, 3),
        (128, 128, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 64, 4, 3),
        (16, 128, 64, 4, 4),
    ),
    "amd": ((256, 128, 32, 8, 2), (128, 128, 64, 8, 2), (128, 64, 64, 4, 2), (64, 64, 64, 4, 2), (16, 64, 128, 4, 2)),
}
_WHOLES = {
    "hopper": ((128, 64, 16, 8, 3), (64, 64, 16, 8, 3), (32, 64, 32, 4, 3)),
    "ampere": ((128, 64, 16, 8, 3), (64, 64, 16, 8, 3), (32, 64, 32, 4, 3)),
    "amd": ((128, 64, 16, 8, 2), (64, 64, 16, 4, 2), (32, 64, 32, 4, 2)),
}


def tiles(rows: int, features: int, itemsize: int, machine: Machine, *, flags: str = "") -> list[Config]:
    """The tiles that are worth a try, the largest first."""
    family = "amd" if machine.backend == "hip" else "hopper" if machine.arch == 90 else "ampere"
    table = (_WHOLES if itemsize > 2 else _HALVES)[family]
    # 128 elements a thread leave no registers for an activation between two tensors more: such tiles spill
    most = 64 if {"kept", "residual"} <= set(flags.split()) and machine.backend == "cuda" else 128
    found = [
        Config(TILES, m, n, k, 8, warps, stages)
        for m, n, k, warps, stages in table
        # a tile that is mostly outside computes nothing; the smallest one serves everything
        if (m, n) == table[-1][:2]
        or (m <= next_power(rows) and n <= next_power(features) and m * n <= 32 * warps * most)
    ]
    return list(dict.fromkeys(found))


def candidates(rows: int, features: int, itemsize: int, machine: Machine, *, flags: str = "") -> list[Config]:
    """What a tuner may try, the default first; `flags` as the facts have them."""
    found = [Config(LIBRARY)]
    if machine.backend == "cuda" and _has_ending(itemsize, flags):
        # in halves 1.06 to 1.37 times as fast on an H200, which the shipped table knows of the sizes that were timed;
        # not the default, as 64 x 49 by 300 left 1.1 times what the rule of errors allows
        found.append(Config(ENDING))
    return [*found, *tiles(rows, features, itemsize, machine, flags=flags)]


def _has_ending(itemsize: int, flags: str) -> bool:
    words = flags.split()
    relu = "relu" in words  # of which the output serves the backward too
    # cuBLASLt's gelu leaves 1.8e-6, RMS of outputs of 0.9 in float32 on an H200: five times what torch's own leaves
    gelu = "gelu_tanh" in words and "kept" not in words and itemsize == 2
    return "bias" in words and "residual" not in words and (relu or gelu)


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def place(program, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr, GROUP: tl.constexpr):
    """Which tile a program computes: GROUP rows of tiles, column by column, then the next ones."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(cols, COLS)
    group = program // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = program % (GROUP * across)
    return group * GROUP + within % height, within // height


@triton.jit
def product(
    x_ptr, w_ptr, row, col, rows, cols, inner, x_row, x_inner, w_col, w_inner,
    ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The tile of x w^T at `row` and `col`, int64 of (ROWS,) and (COLS,), in float32."""
    k = tl.arange(0, INNER).to(tl.int64)
    x_ptrs = x_ptr + row[:, None] * x_row + k[None, :] * x_inner
    w_ptrs = w_ptr + col[None, :] * w_col + k[:, None] * w_inner
    within_row, within_col = row[:, None] < rows, col[None, :] < cols
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in tl.range(0, inner, INNER):
        left = inner - start
        x = tl.load(x_ptrs, mask=within_row & (k[None, :] < left), other=0.0)
        w = tl.load(w_ptrs, mask=within_col & (k[:, None] < left), other=0.0)
        total = add_product(x, w, total, PRECISION)
        x_ptrs += tl.cast(x_inner, tl.int64) * INNER
        w_ptrs += tl.cast(w_inner, tl.int64) * INNER
    return total


class Operands(NamedTuple):
    """Pointers to what follows a product; in kernels."""

    bias: object
    residual: object
    y: object
    z: object


@triton.jit
def _finish(
    z, operands, top, left, r_row, rows, cols,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Bias, activation and residual of the tile of the product at (top, left), and what is kept of it."""
    TYPE: tl.constexpr = operands.y.dtype.element_ty
    # the tile begins at an int64; within it 32 bits are enough, and take half the registers, unless rows are WIDE
    down, across = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    if WIDE:
        down = down.to(tl.int64)
    inside = (down < rows - top) & (across < cols - left)
    begin, at = top * cols + left, down * cols + across
    if operands.bias is not None:
        z += tl.load(operands.bias + left + across, mask=across < cols - left, other=0.0).to(tl.float32)
    if operands.z is not None:
        tl.store(operands.z + begin + at, z.to(TYPE), mask=inside)
    if KIND == "none":
        y = z
    else:
        y, _ = activate(z, KIND, TYPE)
    if operands.residual is not None:
        y += tl.load(operands.residual + top * r_row + left + (down * r_row + across), mask=inside, other=0.0).to(
            tl.float32
        )
    tl.store(operands.y + begin + at, y.to(TYPE), mask=inside)


@triton.jit
def _tiles(
    x_ptr, w_ptr, b_ptr, r_ptr, y_ptr, z_ptr, rows, cols, inner, x_row, x_inner, w_col, w_inner, r_row,
    KIND: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, INNER: tl.constexpr,
    GROUP: tl.constexpr, HALVES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    down, across = place(tl.program_id(0), rows, cols, ROWS, COLS, GROUP)
    top, left = down.to(tl.int64) * ROWS, across.to(tl.int64) * COLS
    row, col = top + tl.arange(0, ROWS), left + tl.arange(0, COLS)
    z = product(
        x_ptr, w_ptr, row, col, rows, cols, inner, x_row=x_row, x_inner=x_inner, w_col=w_col, w_inner=w_inner,
        ROWS=ROWS, COLS=COLS, INNER=INNER, PRECISION=PRECISION,
    )  # fmt: skip
    operands = Operands(b_ptr, r_ptr, y_ptr, z_ptr)
    if HALVES:  # one half waits as it is while the other is finished, so that both fit the registers
        one, other = tl.split(tl.permute(tl.reshape(z, (ROWS, 2, COLS // 2)), (0, 2, 1)))
        _finish(one, operands, top, left, r_row, rows, cols, KIND, ROWS, COLS // 2, WIDE=WIDE)
        left += COLS // 2
        _finish(other, operands, top, left, r_row, rows, cols, KIND, ROWS, COLS // 2, WIDE=WIDE)
    else:
        _finish(z, operands, top, left, r_row, rows, cols, KIND, ROWS=ROWS, COLS=COLS, WIDE=WIDE)


@triton.jit
def _ending(
    z_ptr, r_ptr, y_ptr, r_row, rows, cols,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # z and y may be one tensor: each element is read and written by one thread
    across = tl.cdiv(cols, COLS)
    top, left = (tl.program_id(0) // across).to(tl.int64) * ROWS, (tl.program_id(0) % across).to(tl.int64) * COLS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    if WIDE:
        row = row.to(tl.int64)
    inside = (row < rows - top) & (col < cols - left)
    z = tl.load(z_ptr + top * cols + left + (row * cols + col), mask=inside, other=0.0).to(tl.float32)
    operands = Operands(None, r_ptr, y_ptr, None)
    _finish(z, operands, top, left, r_row, rows, cols, KIND, ROWS=ROWS, COLS=COLS, WIDE=WIDE)


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    kind: str = "none",
    config: Config | None = None,
) -> torch.Tensor:
    """act(x w^T + bias) + residual with act one of KINDS.

    Shapes: x (*batch, inner), w (features, inner), bias (features,), residual (*batch, features) -> as residual.
    Dtypes: float32, float16, bfloat16, all the same; on the CPU float64 too.  float32 is multiplied as such; in tf32
    where torch's own products are (torch.set_float32_matmul_precision).
    """
    return _run(x, w, bias, residual, kind, kept=False, config=config)[0]


def forward_kept(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    kind: str = "none",
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As `forward`, and what `backward` needs of it: None, the output itself, or z; see `keeps`."""
    return _run(x, w, bias, residual, kind, kept=True, config=config)


def _run(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    kind: str,
    *,
    kept: bool,
    config: Config | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    shape = check_layer("linear", x, w, kind, {"bias": bias, "residual": residual})
    keep = keeps(kind, residual=residual is not None) if kept else ""
    if not runs_kernel("linear", x):
        out, held = reference_kept(x, w, bias, residual, kind=kind)
        return out, held if keep else None
    rows, (features, inner) = rows_in(x), w.shape
    flat, flat_r = x.reshape(rows, inner), None
    if residual is not None:
        flat_r = rows_of(residual) if residual.numel() else residual.reshape(rows, features)
    made: Made | None = None

    def run(config: Config) -> None:
        nonlocal made
        if config.way == TILES:
            made = _by_tiles(flat, w, bias, flat_r, kind, keep, config)
        elif config.way == ENDING and x.is_cuda:  # elsewhere the same operator has GELU's other form
            assert bias is not None
            made = torch.ops.aten._addmm_activation(bias, flat, w.T, use_gelu=kind == "gelu_tanh"), None
        else:
            made = _by_library(flat, w, bias, flat_r, kind, keep)

    if config is None and not rows * features:
        config = Config(LIBRARY)  # nothing is computed, and what takes how long cannot be told apart
    FORWARD.run(x, config, _call(flat, w, flat_r, bias, kind, keep), run)
    assert made is not None
    out, z = made[0].view(shape), made[1]
    return out, None if not keep else out if keep == "out" else torch.empty_like(out) if z is None else z.view(shape)


Made = tuple[torch.Tensor, torch.Tensor | None]


def _by_tiles(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    kind: str,
    keep: str,
    config: Config,
) -> Made:
    (rows, inner), features = x.shape, w.shape[0]
    y = torch.empty((rows, features), dtype=x.dtype, device=x.device)
    z = torch.empty_like(y) if keep == "z" else None
    if y.numel():
        tensors = (x, w, None if bias is None else bias.contiguous(), residual, y, z)
        strides = (*x.stride(), *w.stride(), 0 if residual is None else residual.stride(0))
        sizes = {"ROWS": config.rows, "COLS": config.features, "INNER": config.inner, "GROUP": config.group}
        grid = (ceil_div(rows, config.rows) * ceil_div(features, config.features),)
        words = {"KIND": kind, "PRECISION": "tf32" if in_tf32(x) else "ieee"}
        flags = {
            "HALVES": config.rows * config.features // (32 * config.warps) > 64,
            "WIDE": _wide(config.rows, y, residual),
        }
        numbers = (rows, features, inner, *strides)
        launch(_tiles, grid, x, *tensors, *numbers, warps=config.warps, stages=config.stages, **words, **flags, **sizes)
    return y, z


def _by_library(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    kind: str,
    keep: str,
) -> Made:
    z = torch.mm(x, w.T) if bias is None else torch.addmm(bias, x, w.T)
    if not z.numel() or (kind == "none" and residual is None):
        return z, None
    rows, features = z.shape
    y = torch.empty_like(z) if keep == "z" else z
    # 2048 elements: two vectors of 16 bytes a thread, in as much of a row as there is
    cols = min(1024, max(16, next_power(features)))
    sizes = {"ROWS": 2048 // cols, "COLS": cols}
    grid = (ceil_div(rows, sizes["ROWS"]) * ceil_div(features, cols),)
    arguments = (z, residual, y, 0 if residual is None else residual.stride(0), rows, features)
    launch(_ending, grid, x, *arguments, warps=4, KIND=kind, WIDE=_wide(sizes["ROWS"], y, residual), **sizes)
    return y, z


def _wide(rows: int, *tensors: torch.Tensor | None) -> bool:
    """Whether offsets within so many rows need 64 bits."""
    return any(rows * t.stride(0) + t.shape[1] >= 2**31 for t in tensors if t is not None)


def in_tf32(x: torch.Tensor) -> bool:
    """Whether torch multiplies float32 as tf32 here, so that this file may."""
    if x.dtype != torch.float32 or torch.version.hip:
        return False
    settings: Any = torch.backends.cuda.matmul
    precision = getattr(settings, "fp32_precision", None)  # from torch 2.9; set_float32_matmul_precision sets it too
    if precision is None:
        return bool(settings.allow_tf32)
    general: Any = torch.backends
    return bool((general.fp32_precision if precision == "none" else precision) == "tf32")


# -- selection ---------------------------------------------------------------------------------------
def _call(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor | None, bias: torch.Tensor | None, kind: str, keep: str
) -> tuple[object, ...]:
    there = [t for t in (x, w, residual) if t is not None]
    words = [kind]
    words += ["bias"] if bias is not None else []
    words += ["residual"] if residual is not None else []
    words += ["kept"] if keep == "z" else []
    words += ["tf32"] if in_tf32(x) else []
    words += [name for name, t in (("x^T", x), ("w^T", w)) if t.stride(1) != 1 and t.shape[1] > 1]
    address = functools.reduce(lambda bits, t: bits | t.data_ptr(), there, 0) & 15
    strides = tuple(max(t.stride()) for t in there)  # the other one is 1, or nothing is aligned anyway
    return x.dtype, x.shape[0], w.shape[0], x.shape[1], strides, address, " ".join(words)


def facts(
    dtype: torch.dtype, rows: int, features: int, inner: int, strides: tuple[int, ...], address: int, flags: str
) -> Facts:
    """What the best config of a layer depends on; `strides` are the distances of its tensors' rows."""
    align = alignment(address, *(stride * dtype.itemsize for stride in strides))
    return Facts((rows,), (features, inner), dtype, align, "packed", flags)


_RATES: dict[int | str, tuple[float, float]] = {
    # operations a second of half types and of float32: an H200's measured 2026-11-21, the others' in its proportion
    90: (7.0e14, 5.1e13),
    80: (2.5e14, 1.8e13),
    "gfx942": (7.0e14, 1.2e14),
}
_SHARE = 0.8
"""Of the library's rate that tiles are taken to reach, as long as nobody timed them."""


def _forward_tunable() -> Tunable:
    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        (rows,), (features, inner), size = facts.free, facts.exact, facts.dtype.itemsize
        words, out = facts.flags.split(), rows * features
        moved = (rows * inner + features * inner + out * (1 + ("residual" in words) + ("kept" in words))) * size
        known, rates = figures(machine), _RATES.get(machine.arch, _RATES[80])
        # the model counts operations of the ordinary units; those of the matrix units cost as much less as they do
        price = known.flops_per_s / rates[0 if size == 2 or "tf32" in words else 1]
        operations = 2.0 * rows * features * inner * price
        if config.way == TILES:
            programs = ceil_div(rows, config.rows) * ceil_div(features, config.features)
            held = config.rows * config.features
            useful = max(out / (programs * held), 1e-6)
            return Work(
                programs, config.warps, held, size, moved, int(operations / _SHARE), useful, 1.0, ahead=config.stages
            )
        # the library spreads a product over the machine by itself, so without timings the model does not leave it
        extra = 0 if config.way == ENDING or (words[0] == "none" and "residual" not in words) else 2 * out * size
        programs = max(machine.processors, ceil_div(rows, 128) * ceil_div(features, 128))
        return Work(programs, 8, 128 * 128, size, moved + extra, int(operations), 1.0, 1.0, ahead=4)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        (rows,), (features, inner), words = facts.free, facts.exact, facts.flags.split()

        def drawn(name: str, m: int, n: int) -> torch.Tensor:
            return inputs.rows(facts, n, m).T if f"{name}^T" in words else inputs.rows(facts, m, n)

        x, w = drawn("x", rows, inner), drawn("w", features, inner)
        bias = inputs.normal(features, dtype=facts.dtype) if "bias" in words else None
        residual = inputs.rows(facts, rows, features) if "residual" in words else None
        run, plain_run = (forward_kept, reference_kept) if "kept" in words else (forward, reference)
        return Trial(
            (x, w, bias, residual),
            lambda given, config: run(*given, kind=words[0], config=config),
            lambda given: plain_run(*given, kind=words[0]),
        )

    def of_layers(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
        # the first layer of an MLP with `cols` hidden features, in training and without
        inner = max(1, cols // 4)
        align = alignment(inner * dtype.itemsize)
        flags = ("none bias", *(f"{kind} bias{kept}" for kind in KINDS[1:] for kept in ("", " kept")))
        flags = tuple(flag for flag in flags if flag != "relu bias kept")  # the output serves
        return [Facts((rows,), (cols, inner), dtype, align, flags=flag) for flag in flags]

    return tunable(
        Tunable(
            name="linear",
            config=Config,
            facts=facts,
            free=("rows",),
            exact=("features", "inner"),
            candidates=lambda facts, machine: candidates(
                facts.free[0], facts.exact[0], facts.dtype.itemsize, machine, flags=facts.flags
            ),
            supports=lambda config, facts: config.way != ENDING or _has_ending(facts.dtype.itemsize, facts.flags),
            work=work,
            trial=trial,
            kernels=(_tiles, _ending),
            problems=of_layers,
            shapes=((8192, 3072), (8192, 16_384)),
            elements=lambda facts: _elements(*facts.free, *facts.exact),
            judged_in=lambda facts: torch.float16 if "tf32" in facts.flags.split() else facts.dtype,
        )
    )


def _elements(rows: int, features: int, inner: int) -> int:
    return rows * inner + features * inner + rows * features


FORWARD = _forward_tunable()


# -- registration ------------------------------------------------------------------------------------
def _outputs(run: Any, *inputs: Any, **options: Any) -> Any:
    y, kept = run(*inputs, **options)
    return y if kept is None else (y, kept)


def _gradient(run: Any, dy: torch.Tensor, inputs: Any, outputs: Any, *, kind: str = "none") -> Any:
    x, w, bias, residual = inputs
    kept = None if kind == "none" else outputs[1]
    dx, dw, db = run(dy, x, w, kept, kind=kind, bias=bias is not None)
    return dx, dw, db, None if residual is None else dy


def _fake(
    x: torch.Tensor, w: torch.Tensor, b: object, residual: object, kind: str, gradients: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    shape, held = (*x.shape[:-1], w.shape[0]), gradients and keeps(kind, residual=residual is not None) == "z"
    return x.new_empty(shape), x.new_empty(shape) if held else nothing(x)


def _large(draw: Draw, x: torch.Tensor) -> Iterator[Problem]:
    w = draw.normal(300, x.shape[1], std=x.shape[1] ** -0.5)
    for kind, residual in (("none", None), ("gelu", None), ("silu", draw.normal(64, 300))):
        yield Problem((x, w, draw.normal(300), residual), {"kind": kind})


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    features, out = draw.integer(1, 40), draw.width()
    x = draw.rows(features, 1.0)
    w = draw.normal(features, out).T if draw.integer(0, 2) else draw.normal(out, features)
    bias = draw.normal(out) if draw.integer(0, 2) else None
    residual = draw.normal(*x.shape[:-1], out) if draw.one_in(3) else None
    return x, w, bias, residual, KINDS[draw.integer(0, len(KINDS))], True


SPEC = register(
    KernelSpec(
        name="linear",
        forward=functools.partial(_outputs, forward_kept),
        gradient=functools.partial(_gradient, backward),
        reference=functools.partial(_outputs, reference_kept),
        reference_gradient=functools.partial(_gradient, reference_backward),
        twin=twin,
        twin_kept=functools.partial(_outputs, twin_kept),
        bytes_moved=bytes_moved,
        flops=flops,
        problems=problems,
        large=large_rows(_large),
        dtypes=FLOATS,
        limits="none in size; float64 on a GPU",
        draw_call=_draw_call,
        operators=(
            Operator(
                schema="linear(Tensor x, Tensor w, Tensor? b, Tensor? residual, str kind, bool gradients)"
                " -> (Tensor, Tensor)",
                inputs="x w b residual",
                fake=_fake,
                results="y kept",
                gradients="x w b residual",
                options=lambda known: {"kind": known["kind"]},
                by_hand=True,
            ),
        ),
    )
)
