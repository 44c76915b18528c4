"""A linear layer with what follows it: out = act(x w^T + b) + residual.

    z = x w^T + b                 act(z): z itself, or one of burn_kernels.activation: gelu, gelu_tanh, silu, relu
    dz = dout * act'(z)           db = sum over rows of dz
    dx = dz w                     dw = dz^T x                          dresidual = dout

Limit: arithmetic.  2 * rows * features * inner operations forward, twice that backward.  What follows the product moves
2 to 4 * rows * features elements where it is a kernel of its own, and none where it is done before the product leaves
its registers: at `inner` from some thousand on, a part of a hundredth; below some hundred, the most of the time.
Layout: any strides; w is (features, inner), as torch.nn.Linear keeps it; `w.T` of (inner, features) is read in place.
Sums in float32.  Deterministic.

Timings choose between three ways; without any the library's is taken:

    LIBRARY   the library's product, then one kernel for what follows it
    ENDING    the library's product with its own ending (cuBLASLt: bias and relu, or gelu_tanh in halves; nothing kept)
    TILES     one kernel (`matmul.ways`): tiles in groups, so that programs side by side share their operands in the L2

Backward: act'(z) needs z.  For relu without a residual the output says enough, and nothing more is kept; elsewhere the
forward keeps z, rows * features elements written and read again.  To compute it again would take 2 * inner operations
an element: more than 4 bytes take, from an inner size of some 350 on (H200, half types: 700 TFLOP/s by 4.2 TB/s), and
layers are wider.  dz and db are made in one pass (`matmul.launch_backward`).
Source: Nvidia, cuBLAS 13, cublasLtEpilogue_t; the order of tiles: Tillet et al. 2019 (Triton), the matrix tutorial.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from burn_kernels.autotune.cost import Work, figures
from burn_kernels.autotune.key import Facts, alignment
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable
from burn_kernels.launch import Machine, ceil_div, rows_of
from burn_kernels.launcher import Launcher, launcher
from burn_kernels.matmul import problems, references, ways
from burn_kernels.matmul.configs import ENDING, LIBRARY, TILES, Config, candidates, default, has_ending, tiles
from burn_kernels.matmul.launch_backward import (
    BackwardConfig,
    backward,
    backward_candidates,
    backward_default,
    slope_and_bias,
)
from burn_kernels.matmul.operators import layer_operators
from burn_kernels.matmul.references import KINDS, keeps, reference, reference_backward, reference_kept, rows_in
from burn_kernels.matmul.ways import Layer, Outputs, in_tf32, place, product
from burn_kernels.spec import drop_absent, large_rows, register_kernel

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


# -- launchers ---------------------------------------------------------------------------------------
@launcher("linear", "x, w, bias, residual", reference=reference, options=references.check_layer)
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
    return _run(x, Layer(_flatten(x), w, bias, _flatten_residual(residual), kind, ""), config)[0]


@launcher("linear", "x, w, bias, residual", reference=reference_kept, options=references.check_layer)
def forward_kept(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    kind: str = "none",
    config: Config | None = None,
) -> Outputs:
    """As `forward`, and the tensor that `backward` needs of it: None, the output itself, or z; see `keeps`."""
    keep = keeps(kind, residual=residual is not None)
    out, z = _run(x, Layer(_flatten(x), w, bias, _flatten_residual(residual), kind, keep), config)
    return out, None if not keep else out if keep == "out" else torch.empty_like(out) if z is None else z


def _flatten(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(rows_in(x), x.shape[-1])


def _flatten_residual(residual: torch.Tensor | None) -> torch.Tensor | None:
    return None if residual is None else rows_of(residual) if residual.numel() else _flatten(residual)


def _run(x: torch.Tensor, layer: Layer, config: Config | None) -> Outputs:
    def run(config: Config) -> Outputs:
        if config.way == TILES:
            return ways.by_tiles(layer, config)
        if config.way == ENDING and x.is_cuda:  # elsewhere the same operator has GELU's other form
            return ways.by_ending(layer)
        return ways.by_library(layer)

    if config is None and not layer.x.shape[0] * layer.w.shape[0]:
        config = Config(LIBRARY)  # nothing is computed, and the times of ways cannot be told apart
    out, z = FORWARD.run(x, config, _key(layer), run)
    shape = (*x.shape[:-1], layer.w.shape[0])
    return out.view(shape), None if z is None else z.view(shape)


# -- selection ---------------------------------------------------------------------------------------
def _key(layer: Layer) -> tuple[object, ...]:
    """The arguments of `facts` for a call."""
    x, w, bias, residual, kind, keep = layer
    tensors = [t for t in (x, w, residual) if t is not None]
    words = [kind]
    words += ["bias"] if bias is not None else []
    words += ["residual"] if residual is not None else []
    words += ["kept"] if keep == "z" else []
    words += ["tf32"] if in_tf32(x) else []
    words += [name for name, t in (("x^T", x), ("w^T", w)) if t.stride(1) != 1 and t.shape[1] > 1]
    address = functools.reduce(lambda bits, t: bits | t.data_ptr(), tensors, 0) & 15
    strides = tuple(max(t.stride()) for t in tensors)  # the other one is 1, or nothing is aligned anyway
    return x.dtype, x.shape[0], w.shape[0], x.shape[1], strides, address, " ".join(words)


def facts(
    dtype: torch.dtype, rows: int, features: int, inner: int, strides: tuple[int, ...], address: int, flags: str
) -> Facts:
    """The properties on which the best config of a layer depends; `strides` are those of its tensors' rows."""
    align = alignment(address, *(stride * dtype.itemsize for stride in strides))
    return Facts((rows,), (features, inner), dtype, align, "packed", flags)


_RATES: dict[int | str, tuple[float, float]] = {
    # operations a second of half types and of float32: an H200's measured 2026-11-21, the others' in its proportion
    90: (7.0e14, 5.1e13),
    80: (2.5e14, 1.8e13),
    "gfx942": (7.0e14, 1.2e14),
}
_SHARE = 0.8
"""The share of the library's rate that the model takes tiles to reach, until timings say more."""


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
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


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (rows,), (features, inner), words = facts.free, facts.exact, facts.flags.split()

    def draw(name: str, m: int, n: int) -> torch.Tensor:
        return inputs.rows(facts, n, m).T if f"{name}^T" in words else inputs.rows(facts, m, n)

    x, w = draw("x", rows, inner), draw("w", features, inner)
    bias = inputs.normal(features, dtype=facts.dtype) if "bias" in words else None
    residual = inputs.rows(facts, rows, features) if "residual" in words else None
    run: Launcher[..., Any] = forward_kept if "kept" in words else forward
    return Trial.of(run, x, w, bias, residual, kind=words[0])


def _problems(rows: int, cols: int, dtype: torch.dtype) -> list[Facts]:
    """The first layer of an MLP with `cols` hidden features, in training and without."""
    inner = max(1, cols // 4)
    align = alignment(inner * dtype.itemsize)
    flags = ("none bias", *(f"{kind} bias{kept}" for kind in KINDS[1:] for kept in ("", " kept")))
    flags = tuple(flag for flag in flags if flag != "relu bias kept")  # the output serves
    return [Facts((rows,), (cols, inner), dtype, align, flags=flag) for flag in flags]


def _elements(rows: int, features: int, inner: int) -> int:
    return rows * inner + features * inner + rows * features


FORWARD = register_tunable(
    name="linear",
    config=Config,
    facts=facts,
    exact=("features", "inner"),
    candidates=lambda facts, machine: candidates(
        facts.free[0], facts.exact[0], facts.dtype.itemsize, machine, flags=facts.flags
    ),
    supports=lambda config, facts: config.way != ENDING or has_ending(facts.dtype.itemsize, facts.flags),
    work=_work,
    trial=_trial,
    kernels=ways.KERNELS,
    problems=_problems,
    shapes=((8192, 3072), (8192, 16_384)),
    elements=lambda facts: _elements(*facts.free, *facts.exact),
    judged_in=lambda facts: torch.float16 if "tf32" in facts.flags.split() else facts.dtype,
)


# -- registration ------------------------------------------------------------------------------------
def _gradient(back: Any, dy: torch.Tensor, inputs: Any, outputs: Any, *, kind: str = "none") -> Any:
    x, w, bias, residual = inputs
    dx, dw, db = back(dy, x, w, None if kind == "none" else outputs[1], kind=kind, bias=bias is not None)
    return dx, dw, db, None if residual is None else dy


SPEC = register_kernel(
    drop_absent(forward_kept),
    backward,
    gradient=_gradient,
    twin=references.twin,
    twin_kept=drop_absent(references.twin_kept),
    bytes_moved=references.bytes_moved,
    flops=references.flops,
    problems=problems.problems,
    large=large_rows(problems.large),
    draw_call=problems.draw_call,
    operators=layer_operators(forward, forward_kept),
)
