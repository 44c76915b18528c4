"""Cross entropy of logits (rows, cols) with class targets (rows,).

    lse  = log(sum(exp(x)))                 q = weight * ((1 - smoothing) * one_hot(target) + smoothing / cols)
    loss = sum(q) * lse - sum(q * x) + z_loss * lse^2
    dx   = ((sum(q) + 2 * z_loss * lse) * exp(x - lse) - q) * dloss

`weight`, of the classes, is 1 if not given; then sum(q) is 1.  The mean divides by the sum of the weights of the
targets, as torch's does; that of z_loss * lse^2, which holds lse near 0 and knows no class, by the number of rows.
Rows whose target is `ignore_index` have loss 0, no gradient, and count in neither.
Source of z_loss: Chowdhery et al. 2022 (PaLM), section 5, https://arxiv.org/abs/2204.02311; there 1e-4.

Limit: memory.  The losses alone read rows * cols elements; with the gradient 2 * rows * cols (x in, dx out), since the
second reading of a row finds it in the L2 cache.  backward reads and writes: 2 * rows * cols.
Layout: any; the last axis is read in place where its elements are neighbours, otherwise a copy is made first.
Accumulates in float32, rows of float32 in float64.  Deterministic.  Losses are float32, and so is lse, but of float32
rows float64: half a float32 unit of an lse of 12 would be four units of every gradient of its row.

A row begins wherever cols puts it: with 50257 bf16 columns seven rows of eight do not begin on 16 bytes.  So a row is
read as a body of whole 16-byte vectors and up to two edges of less than a vector, both edges at once.  Each lane of
the body keeps its own maximum and sum over the vectors that it reads; lanes are joined once a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, row_problems, tunable
from burn_kernels.cross_entropy_parts import (
    REDUCTIONS,
    Number,
    Options,
    check_targets,
    lse_type,
    plain,
    plain_backward,
    problems,
    reduce,
    reference,
    reference_backward,
    require_one_upstream,
    twin,
)
from burn_kernels.launch import FLOATS, Machine, ceil_div, check, launch, next_power, runs_kernel
from burn_kernels.prims import (
    LOG2E,
    LOWEST,
    add_exponentials,
    edge_columns,
    exp,
    exp_for,
    halves,
    quotient,
    row_parts,
    wide,
)
from burn_kernels.random import held
from burn_kernels.spec import KernelSpec, register

__all__ = [
    "REDUCTIONS",
    "Config",
    "backward",
    "candidates",
    "default",
    "forward",
    "forward_with_gradient",
    "forward_with_gradient_",
    "lse_type",
    "reference",
    "reference_backward",
]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(x: torch.Tensor, targets: torch.Tensor, *, backward: bool = False, **_: Any) -> int:
    """x read; backward x read and dx written.  `forward_with_gradient` moves as much as backward."""
    return (2 if backward else 1) * x.numel() * x.element_size()


def flops(x: torch.Tensor, targets: torch.Tensor, *, backward: bool = False, **_: Any) -> int:
    """Per element a product, a difference, an exponential, a sum and a comparison."""
    return 5 * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A program a row: `lanes` vectors of 16 bytes at once, at least one a thread, `warps` of 32 threads."""

    lanes: int
    warps: int


def default(cols: int, itemsize: int, machine: Machine, *, gradient: bool = False, weighted: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine, gradient=gradient, weighted=weighted)[0]


def candidates(
    cols: int, itemsize: int, machine: Machine, *, gradient: bool = False, weighted: bool = False
) -> list[Config]:
    """What a tuner may try, the default first; `weighted` where a row's weights are read beside it."""
    vectors = next_power(max(1, cols * itemsize // 16))
    most = min(16, max(1, vectors // 64))
    tried = [(most, 2), (most, 1), (most, 4), (max(1, most // 2), 4), (min(32, max(1, vectors // 64)), 2)]
    if gradient and vectors > 4_096:
        # fewer rows at once: between their two readings they outgrow the L1 cache, and at 256 KiB each the L2 cache
        tried.insert(0, (32, 2))
    found = [Config(max(32, min(vectors, 32 * warps * loads)), warps) for warps, loads in tried]
    if weighted:  # as many numbers again to hold, four bytes each: fewer lanes, or registers spill on sm_80
        found = [Config(max(32, config.lanes // 4), config.warps) for config in found]
    return list(dict.fromkeys(found))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _power(shift, TYPE: tl.constexpr):
    """What `_raised` takes of a shift."""
    if TYPE == tl.float32:
        high, low = halves(shift)
    else:
        high, low = shift * -LOG2E, 0.0
    return high, low


@triton.jit
def _raised(x, high, low, TYPE: tl.constexpr):
    """exp(x - shift); of half types by one multiply-add and one exp2."""
    if TYPE == tl.float32:
        y = exp(x - high - low)
    else:
        y = tl.exp2(x * LOG2E + high)
    return y


@triton.jit
def _add(m, total, x, TYPE: tl.constexpr):
    """`add_exponentials` with the multiplication by log2(e) and the difference in one step, of half types."""
    if TYPE == tl.float32:
        peak, total = add_exponentials(m, total, x, TYPE)
    else:
        peak = tl.maximum(m, tl.max(x, 1))
        # no lower, so that the product is finite: logits below -2.3e38 count as -inf
        high, low = _power(tl.maximum(peak, -2.3e38, propagate_nan=tl.PropagateNan.ALL), TYPE)
        total = total * exp_for(m - peak, TYPE) + tl.sum(_raised(x, high[:, None], low, TYPE), 1)
    return peak, total


@triton.jit
def _again(x):
    """x in float32 by other instructions than `.to`: so the compiler keeps the halves, not what it made of them."""
    if x.dtype == tl.bfloat16:
        y = (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        y = x.to(tl.float32)
    return y


@triton.jit
def _cross_entropy(
    x_ptr, target_ptr, w_ptr, total_ptr, loss_ptr, lse_ptr, dx_ptr, dloss_ptr, count_ptr, stride, dloss_stride, cols,
    ignored, smoothing, z, LOSS: tl.constexpr, GRADIENT: tl.constexpr, SMOOTH: tl.constexpr, EACH: tl.constexpr,
    ZLOSS: tl.constexpr, HELD: tl.constexpr, EDGES: tl.constexpr, LANES: tl.constexpr, VECTOR: tl.constexpr,
    ONCE: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = x_ptr.dtype.element_ty
    row = tl.program_id(0).to(tl.int64)
    begin = row * stride
    body, lead, size = row_parts(begin, cols, VECTOR)
    at = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    # edges and target are read before anything is written: dx may lie over x, and other threads may be ahead
    target = tl.load(target_ptr + row)
    if EDGES:
        edge, edge_inside = edge_columns(lead, size, cols, VECTOR)
        ends = tl.load(x_ptr + begin + edge, mask=edge_inside, other=float("-inf")).to(tl.float32)
    # no class, and not to be ignored: NaN, which shows, rather than a read of foreign memory
    legal = (target >= 0) & (target < cols)
    picked = tl.load(x_ptr + begin + target, mask=legal, other=float("nan")).to(tl.float32)
    if w_ptr is not None:
        weight = wide(tl.load(w_ptr + target, mask=legal, other=float("nan")).to(tl.float32), TYPE)
        mass = weight  # the sum of q
        if EACH:
            everything = wide(tl.load(total_ptr).to(tl.float32), TYPE)
            mass = weight - weight * smoothing + everything * (smoothing / cols)
    if ZLOSS:
        z = held(z, HELD)

    STEP: tl.constexpr = LANES * VECTOR
    if ONCE:  # the row in registers
        row_held = tl.load(x_ptr + body + at, mask=(at < size) & (target != ignored), other=float("-inf"))
    if LOSS:
        m = tl.full((LANES,), LOWEST, tl.float32)
        total = tl.zeros((LANES,), tl.float32)
        sums = tl.zeros((LANES,), tl.float32)
        for start in tl.range(0, size, STEP):
            inside = start + at < size
            if ONCE:
                x = row_held.to(tl.float32)
            else:
                x = tl.load(x_ptr + body + start + at, mask=inside, other=float("-inf"), eviction_policy="evict_last")
                x = x.to(tl.float32)
            m, total = _add(m, total, x, TYPE)
            if SMOOTH:
                if EACH:
                    x *= tl.load(w_ptr + lead + start + at, mask=inside, other=0.0).to(tl.float32)
                sums += tl.sum(tl.where(inside, x, 0.0), 1)
        top = tl.max(m, 0)
        if EDGES:
            top = tl.maximum(top, tl.max(ends, 0))
            whole = tl.sum(wide(exp_for(ends - top, TYPE), TYPE), 0)
            whole += tl.sum(wide(total * exp_for(m - top, TYPE), TYPE), 0)
        else:
            whole = tl.sum(wide(total * exp_for(m - top, TYPE), TYPE), 0)
        top = wide(top, TYPE)
        rest = tl.log(whole)
        lse = top + rest
        # not lse - picked: of a sure row, whose loss is near 0, that would leave the rounding of lse
        if w_ptr is not None:
            loss = mass * rest + weight * (1.0 - smoothing) * (top - picked)
        else:
            loss = rest + (1.0 - smoothing) * (top - picked)
        if SMOOTH:
            plain = tl.sum(wide(sums, TYPE), 0)
            if EDGES:
                last = ends
                if EACH:
                    last *= tl.load(w_ptr + edge, mask=edge_inside, other=0.0).to(tl.float32)
                plain += tl.sum(wide(tl.where(edge_inside, last, 0.0), TYPE), 0)
            if EACH:
                loss += smoothing / cols * (everything * top - plain)
            else:
                loss += smoothing * (top - plain / cols)
        if ZLOSS:
            loss += z * lse * lse
        tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, loss))
        tl.store(lse_ptr + row, lse)
    else:
        lse = wide(tl.load(lse_ptr + row), TYPE)

    if GRADIENT:
        scale = tl.full((), 1.0, tl.float32)
        if dloss_ptr is not None:
            scale = tl.load(dloss_ptr + row * dloss_stride).to(tl.float32)
        if count_ptr is not None:
            scale = quotient(scale, tl.load(count_ptr).to(tl.float32), TYPE)
        others, chosen, rise = 0.0, scale, wide(scale, TYPE)
        if SMOOTH:
            others = scale * (smoothing / cols)
            chosen = (wide(scale, TYPE) - wide(scale, TYPE) * smoothing + others).to(tl.float32)
        if w_ptr is not None:
            rise *= mass
            chosen = (chosen * weight).to(tl.float32)
        if ZLOSS:
            rise += wide(scale, TYPE) * 2.0 * z * lse
        rise = rise.to(tl.float32)
        # a row that is ignored is not read: what is nowhere cannot make its zeros NaN
        live = target != ignored
        rise, others = tl.where(live, rise, 0.0), tl.where(live, others, 0.0)
        high, low = _power(tl.where(live, lse, 0.0), TYPE)
        last = (size - 1) // STEP * STEP
        for back in tl.range(0, size, STEP):
            start = last - back  # what was read last is still near
            inside = (start + at < size) & live
            if ONCE:
                again = _again(row_held)
            else:
                again = tl.load(x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy="evict_first")
                again = again.to(tl.float32)
            share = others
            if EACH:
                share *= tl.load(w_ptr + lead + start + at, mask=inside, other=0.0).to(tl.float32)
            dx = _raised(again, high, low, TYPE) * rise - share
            # what is written is not read again: rows that wait for their second reading need the cache more
            tl.store(dx_ptr + body + start + at, dx.to(TYPE), mask=start + at < size, eviction_policy="evict_first")
        if EDGES:
            if EACH:
                others *= tl.load(w_ptr + edge, mask=edge_inside & live, other=0.0).to(tl.float32)
            dends = _raised(tl.where(live, ends, 0.0), high, low, TYPE) * rise - others
            tl.store(dx_ptr + begin + edge, dends.to(TYPE), mask=edge_inside)
        # the target's own gradient takes the place of what the pass above wrote there: no comparison an element
        tl.debug_barrier()
        own = _raised(picked, high, low, TYPE) * rise - chosen
        tl.store(dx_ptr + begin + target, own.to(TYPE), mask=legal & live)


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    z_loss: Number = 0.0,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, reduced, and lse (rows,), which the backward needs.

    Shapes: x (rows, cols), targets (rows,) integers, weight (cols,) -> () or, with reduction "none", (rows,).
    Dtypes: x float32, float16, bfloat16, on the CPU float64 too; weight any float; the loss is float32 (of float64
    float64), lse is float32 of half types, else float64.
    Targets that are no class and not ignore_index raise on the CPU; on a GPU, which is not waited for, they give NaN.
    """
    options = _options(x, targets, weight, reduction, smoothing, ignore_index, z_loss)
    if not runs_kernel("cross_entropy", x):
        return plain(x, targets, options)
    losses, lse, _ = _run(x, targets, None, None, None, options, config, write=None)
    return reduce(losses, targets, options), lse


def backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    z_loss: Number = 0.0,
    config: Config | None = None,
) -> torch.Tensor:
    """The gradient of x from that of the loss, () or (rows,) as the reduction says; x is read, not written.

    lse: of the forward; None reads x once more to compute it.
    """
    options = _options(x, targets, weight, reduction, smoothing, ignore_index, z_loss)
    expected = x.shape[:1] if reduction == "none" else ()
    check(
        "cross_entropy backward",
        {"dloss": dloss, "x": x, "lse": lse},
        {"dloss": expected, "lse": x.shape[:1]},
        alike=["x"],
    )
    if not runs_kernel("cross_entropy backward", x):
        if lse is None:
            lse = plain(x, targets, options)[1]
        return plain_backward(dloss, x, targets, lse, options)
    divisor = options.divisor(targets, x) if reduction == "mean" else None
    return _run(x, targets, lse, dloss, divisor, options, config, write="new")[2]


def forward_with_gradient(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    z_loss: Number = 0.0,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the gradient of x for an upstream gradient of 1, reading x from memory once.

    Raises: KernelArgumentError for reduction "none", where no single upstream gradient is known.
    """
    options = _options(x, targets, weight, reduction, smoothing, ignore_index, z_loss)
    return _with_gradient(x, targets, options, config, write="new")


def forward_with_gradient_(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    dloss: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    z_loss: Number = 0.0,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `forward_with_gradient`, but the gradient takes the place of x: no second tensor of that size.

    dloss: (rows,), the upstream gradients where the reduction is "none".
    """
    options = _options(x, targets, weight, reduction, smoothing, ignore_index, z_loss)
    if dloss is not None:
        check("cross_entropy", {"dloss": dloss, "x": x}, {"dloss": x.shape[:1]}, alike=["x"])
    return _with_gradient(x, targets, options, config, write="over", dloss=dloss)


def part_with_gradient_(
    x: torch.Tensor, targets: torch.Tensor, options: Options, divisor: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `forward_with_gradient_` of some of a batch's rows: the sum of their losses, their gradients over `divisor`.

    Nothing is checked: a caller has checked the whole.
    """
    return _with_gradient(x, targets, options, None, write="over", divisor=divisor)


def _options(
    x: torch.Tensor,
    targets: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    smoothing: float,
    ignore_index: int,
    z_loss: Number,
) -> Options:
    """The options of a call, checked."""
    options = Options(weight, reduction, smoothing, ignore_index, z_loss)
    check_targets("cross_entropy", x, targets, options)
    check("cross_entropy", {"x": x, "targets": targets}, {}, alike=["x"])
    return options.by_row(targets, x)


def _with_gradient(
    x: torch.Tensor,
    targets: torch.Tensor,
    options: Options,
    config: Config | None,
    write: str,
    dloss: torch.Tensor | None = None,
    divisor: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if dloss is None:
        require_one_upstream(options.reduction)
    if not runs_kernel("cross_entropy", x):
        loss, lse = plain(x, targets, options)
        upstream = torch.ones_like(loss) if dloss is None else dloss
        if divisor is not None:
            upstream = upstream / divisor
        dx = plain_backward(upstream, x, targets, lse, options)
        return loss, x.copy_(dx) if write == "over" else dx
    if options.reduction == "mean":
        divisor = options.divisor(targets, x)
    losses, _, dx = _run(x, targets, None, dloss, divisor, options, config, write=write)
    return reduce(losses, targets, options), dx


def _run(
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor | None,
    dloss: torch.Tensor | None,
    divisor: torch.Tensor | None,
    options: Options,
    config: Config | None,
    *,
    write: str | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, cols = x.shape
    losses = torch.empty(rows, dtype=torch.float32, device=x.device)
    known = lse is not None
    lse = torch.empty(rows, dtype=lse_type(x.dtype), device=x.device) if lse is None else lse.contiguous()
    source = x if x.stride(1) == 1 and x.stride(0) >= cols else x.contiguous()
    out = source
    if write == "new" or (write == "over" and source is not x):
        out = torch.empty_strided((rows, cols), source.stride(), dtype=x.dtype, device=x.device)
    if x.numel():
        vector, stride, smooth = 16 // x.element_size(), source.stride(0), options.smoothing != 0.0
        weight = None if options.weight is None else options.weight.contiguous()
        each = smooth and weight is not None  # the weights of all classes are read, not those of the targets alone
        total = weight.sum(dtype=torch.float32) if each and weight is not None else None
        arguments = (source, targets.contiguous(), weight, total, losses, lse, out, dloss, divisor)
        spread = 0 if dloss is None or dloss.dim() == 0 else dloss.stride(0)
        numbers = (stride, spread, cols, options.ignore_index, options.smoothing, options.z_loss)
        edges = bool(cols % vector or stride % vector)
        flags = {"LOSS": not known, "GRADIENT": write is not None, "SMOOTH": smooth, "EACH": each}
        flags |= {"ZLOSS": options.has_z, "HELD": isinstance(options.z_loss, torch.Tensor), "EDGES": edges}

        def run(config: Config) -> None:
            once = config.lanes * vector >= cols and not known and write is not None
            sizes = {"LANES": config.lanes, "VECTOR": vector, "ONCE": once}
            launch(_cross_entropy, (rows,), x, *arguments, *numbers, warps=config.warps, **flags, **sizes)

        # weights of the targets alone and z_loss are a number a row: nothing that a choice depends on
        words = _PARTS[known, write, smooth, each]
        CHOICE.run(x, config, (x.dtype, rows, cols, (stride,), source.data_ptr() & 15, words), run)
    elif rows:
        losses.fill_(float("nan"))
        lse.fill_(float("-inf"))
    if write == "over" and out is not x:
        out = x.copy_(out)
    return losses, lse, out


# -- selection ---------------------------------------------------------------------------------------
_WORDS = {(False, None): "loss", (False, "new"): "loss gradient", (False, "over"): "loss gradient over",
          (True, "new"): "gradient"}  # fmt: skip
_PARTS = {
    (known, write, smooth, weighted): " ".join([words, *["smooth"] * smooth, *["weighted"] * weighted])
    for (known, write), words in _WORDS.items()
    for smooth, weighted in ((False, False), (True, False), (True, True))
}
"""Flags of a key by whether lse is known, where the gradient goes, whether targets are smoothed, and by weights."""


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
    block = config.lanes * 16 // size
    tiles, parts = ceil_div(cols, block), facts.flags.split()
    moved = (2 if "gradient" in parts else 1) * rows * cols * size
    passes = 2 if "loss" in parts and "gradient" in parts else 1
    return Work(rows, config.warps, block, size, moved, 5 * rows * cols, cols / (tiles * block), 2.0, passes)


def _trial(facts: Facts, inputs: Inputs) -> Trial:
    (rows,), (cols,), parts = facts.free, facts.exact, facts.flags.split()
    x, targets = inputs.rows(facts, rows, cols, std=2.0), inputs.integers(0, cols, rows)
    targets[::7] = -100
    common: dict[str, Any] = {"smoothing": 0.1 if "smooth" in parts else 0.0}
    if "weighted" in parts:
        common["weight"] = inputs.normal(cols, dtype=torch.float32).abs()
    if parts[0] == "gradient":
        options = {"reduction": "none"} | common
        _, lse = reference(x, targets, **options)
        return Trial(
            (inputs.normal(rows, dtype=torch.float32), x, targets, lse),
            lambda given, config: backward(*given, **options, config=config),
            lambda given: reference_backward(*given, **options),
        )
    if "gradient" not in parts:
        return Trial(
            (x, targets),
            lambda given, config: forward(*given, reduction="none", **common, config=config),
            lambda given: reference(*given, reduction="none", **common),
        )
    over = "over" in parts
    spare = x.clone() if over else x

    def both(given: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        loss, lse = reference(*given, **common)
        return loss, reference_backward(torch.ones_like(loss), *given, lse, **common)

    def run(given: tuple[torch.Tensor, torch.Tensor], config: Config) -> tuple[torch.Tensor, torch.Tensor]:
        if not over:
            return forward_with_gradient(*given, **common, config=config)
        copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(given[0])
        return forward_with_gradient_(copy, given[1], **common, config=config)

    def timed(given: tuple[torch.Tensor, torch.Tensor], config: Config) -> Any:
        return forward_with_gradient_(spare, given[1], **common, config=config)

    return Trial((x, targets), run, both, timed=timed if over else None)


CHOICE = tunable(
    Tunable(
        name="cross_entropy",
        config=Config,
        free=("rows",),
        exact=("cols",),
        candidates=lambda facts, machine: candidates(
            facts.exact[0],
            facts.dtype.itemsize,
            machine,
            gradient="gradient" in facts.flags,
            weighted="weighted" in facts.flags,
        ),
        supports=lambda config, facts: config.lanes >= 32,
        work=_work,
        trial=_trial,
        sources=(__name__, "burn_kernels.random"),
        problems=row_problems("loss", "loss gradient", "loss gradient over", "gradient"),
        shapes=((8192, 32_000), (8192, 50_257), (8192, 128_256)),
    )
)


# -- registration ------------------------------------------------------------------------------------
SPEC = register(
    KernelSpec(
        name="cross_entropy",
        forward=forward,
        gradient=lambda dy, inputs, outputs, **options: (
            backward(dy, inputs[0], inputs[1], outputs[1], **options),
            None,
        ),
        reference=reference,
        reference_gradient=lambda dy, inputs, outputs, **options: (
            reference_backward(dy, inputs[0], inputs[1], outputs[1], **options),
            None,
        ),
        twin=twin,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=problems,
        dtypes=FLOATS,
        limits="none in size; float64 on a GPU",
    )
)
