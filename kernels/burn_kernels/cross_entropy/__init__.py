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

The kernels, and how they cut a row, are in `cross_entropy.kernels`; `cross_entropy.kernels_held` keeps long rows in
registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, register_tunable, row_problems
from burn_kernels.cross_entropy.kernels import count_rows, cross_entropy_rows, mean_of_rows
from burn_kernels.cross_entropy.kernels_held import MOST_BYTES, cross_entropy_held
from burn_kernels.cross_entropy.kernels_held import run as run_held
from burn_kernels.cross_entropy.references import (
    REDUCTIONS,
    LossOptions,
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
from burn_kernels.launch import Machine, ceil_div, check, launch, machine_of, next_power, runs_kernel, wide_type
from burn_kernels.launcher import launcher, refuses_unknown
from burn_kernels.operators import Operator
from burn_kernels.spec import Draw, Problem, large_rows, register_kernel

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
def bytes_moved(x: torch.Tensor, targets: torch.Tensor, *, backward: bool = False, **_: object) -> int:
    """x read; backward x read and dx written.  `forward_with_gradient` moves as much as backward."""
    return (2 if backward else 1) * x.numel() * x.element_size()


def flops(x: torch.Tensor, targets: torch.Tensor, *, backward: bool = False, **_: object) -> int:
    """Per element a product, a difference, an exponential, a sum and a comparison."""
    return 5 * x.numel()


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """A program a row: `lanes` vectors of 16 bytes at once, at least one a thread, `warps` of 32 threads.

    `kept` steps at the end of a row stay in registers between its two readings; loads run `stages` ahead; a thread
    takes `registers` at most, 0 for the compiler's choice: 32 let two programs of 1024 threads on a processor.

    Or `held` programs a processor stride over the rows, of a vector a thread at once: each keeps its row in registers
    while `stages` - 1 next ones are in shared memory.  For losses and gradients together, of half types, without
    smoothing; elsewhere `held` counts for nothing.
    """

    lanes: int
    warps: int
    kept: int = 0
    stages: int = 1
    registers: int = 0
    held: int = 0


def default(
    cols: int, itemsize: int, machine: Machine, *, gradient: bool = False, weighted: bool = False, once: bool = False
) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine, gradient=gradient, weighted=weighted, once=once)[0]


def candidates(
    cols: int, itemsize: int, machine: Machine, *, gradient: bool = False, weighted: bool = False, once: bool = False
) -> list[Config]:
    """Lists the configs that a tuner may try, the default first.

    weighted   whether a row's weights are read beside it
    once       whether the loss is computed with the gradient, without smoothing: then a row may stay in registers
    """
    vectors = next_power(max(1, cols * itemsize // 16))
    most = min(16, max(1, vectors // 64))
    tried = [(most, 2), (most, 1), (most, 4), (max(1, most // 2), 4), (min(32, max(1, vectors // 64)), 2)]
    if gradient and vectors > 4_096:
        # fewer rows at once: between their two readings they outgrow the L1 cache, and at 256 KiB each the L2 cache
        tried.insert(0, (32, 2))
    configs = [Config(max(32, min(vectors, 32 * warps * loads)), warps) for warps, loads in tried]
    if gradient and vectors > 4_096 and itemsize == 2 and machine.backend == "cuda":
        # two programs of 1024 threads by 32 registers; or one, with a part of a row too long for the L2 cache in them
        configs = [Config(2_048, 32, registers=32), Config(2_048, 32, 3), *configs]
        # other machines have less shared memory, or were not measured
        if once and cols * itemsize <= MOST_BYTES and machine.arch == 90:
            # 512 threads by 128 registers, or 1024 by 64
            held = [Config(32 * warps, warps, stages=3, registers=2_048 // warps, held=1) for warps in (16, 32)]
            configs = [*held, *configs]
        elif once and machine.arch == 90 and cols % 8 == 0:  # single elements beside that would spill
            # 64 of a row's 250 KiB in registers, and one row a processor: half as many wait in the L2 cache
            configs = [Config(4_096, 32, 1, registers=64), *configs]
    if weighted:  # as many numbers again to hold, four bytes each: fewer lanes, or registers spill on sm_80
        configs = [Config(max(32, config.lanes // 4), config.warps) for config in configs]
    return list(dict.fromkeys(configs))


# -- launchers ---------------------------------------------------------------------------------------
def _check(op: str, x: Any, targets: Any, *, config: object = None, **options: Unpack[LossOptions]) -> None:
    check_targets(op, x, targets, options.get("weight"), options.get("z_loss"))


def _check_backward(op: str, dloss: Any, x: Any, targets: Any, lse: Any, **options: Any) -> None:
    _check(op, x, targets, **options)
    rows = x.shape[:1]
    shapes = {"dloss": rows if options.get("reduction") == "none" else (), "lse": rows}
    check(op, {"dloss": dloss, "x": x, "lse": lse}, shapes, alike=["x"])


@launcher("cross_entropy", "x; targets", reference=reference, options=_check)
def forward(
    x: torch.Tensor, targets: torch.Tensor, *, config: Config | None = None, **options: Unpack[LossOptions]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, reduced, and lse (rows,), which the backward needs.

    Shapes: x (rows, cols), targets (rows,) integers, weight (cols,) -> () or, with reduction "none", (rows,).
    Dtypes: x float32, float16, bfloat16, on the CPU float64 too; weight any float; the loss is float32 (of float64
    float64), lse is float32 of half types, else float64.
    Options, by name: weight=None, reduction="mean", smoothing=0.0, ignore_index=-100, z_loss=0.0.
    Targets that are no class and not ignore_index raise on the CPU; on a GPU, which is not waited for, they give NaN.
    """
    by_row = Options(**options).by_row(targets, x)
    losses, lse, _ = _run(x, targets, None, None, None, by_row, config, write=None)
    divisor = _divisor(x, targets, by_row) if by_row.reduction == "mean" else None
    return _reduce_by(divisor, losses, targets, by_row), lse


@launcher("cross_entropy backward", "x; dloss, targets, lse", reference=reference_backward, options=_check_backward)
def backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    config: Config | None = None,
    **options: Unpack[LossOptions],
) -> torch.Tensor:
    """The gradient of x from that of the loss, () or (rows,) as the reduction says; x is read, not written.

    lse: of the forward; None reads x once more to compute it.
    Options, by name: those of `forward`.
    """
    by_row = Options(**options).by_row(targets, x)
    divisor = _divisor(x, targets, by_row) if by_row.reduction == "mean" else None
    return _run(x, targets, lse, dloss, divisor, by_row, config, write="new")[2]


@refuses_unknown
def forward_with_gradient(
    x: torch.Tensor, targets: torch.Tensor, *, config: Config | None = None, **options: Unpack[LossOptions]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the gradient of x for an upstream gradient of 1, reading x from memory once.

    Options, by name: those of `forward`.
    Raises: KernelArgumentError for reduction "none", where no single upstream gradient is known.
    """
    return _with_gradient(x, targets, _options_by_row(x, targets, options), config, write="new")


@refuses_unknown
def forward_with_gradient_(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    dloss: torch.Tensor | None = None,
    config: Config | None = None,
    **options: Unpack[LossOptions],
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `forward_with_gradient`, but the gradient takes the place of x: no second tensor of that size.

    dloss: (rows,), the upstream gradients where the reduction is "none".
    Options, by name: those of `forward`.
    """
    by_row = _options_by_row(x, targets, options)
    if dloss is not None:
        check("cross_entropy", {"dloss": dloss, "x": x}, {"dloss": x.shape[:1]}, alike=["x"])
    return _with_gradient(x, targets, by_row, config, write="over", dloss=dloss)


def part_with_gradient_(
    x: torch.Tensor, targets: torch.Tensor, options: Options, divisor: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `forward_with_gradient_` of some of a batch's rows: the sum of their losses, their gradients over `divisor`.

    Nothing is checked: a caller has checked the whole.
    """
    return _with_gradient(x, targets, options, None, write="over", divisor=divisor)


def _options_by_row(x: torch.Tensor, targets: torch.Tensor, options: LossOptions) -> Options:
    """The options of a call, by row; raises for a call that does not fit."""
    _check("cross_entropy", x, targets, **options)
    check("cross_entropy", {"x": x, "targets": targets}, {}, alike=["x"])
    return Options(**options).by_row(targets, x)


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
        divisor = _divisor(x, targets, options)
    losses, _, dx = _run(x, targets, None, dloss, divisor, options, config, write=write)
    return _reduce_by(divisor, losses, targets, options), dx


_FEW_ROWS = 65_536
"""Up to here one program counts targets, and adds losses, before torch's two or three kernels would have begun."""


def _divisor(x: torch.Tensor, targets: torch.Tensor, options: Options) -> torch.Tensor:
    """The divisor of the mean."""
    rows = targets.shape[0]
    if options.weight is not None or not 0 < rows <= _FEW_ROWS:
        return options.divisor(targets, x)
    count = torch.empty((), dtype=torch.float32, device=x.device)
    launch(count_rows, (1,), x, targets.contiguous(), count, rows, options.ignore_index, warps=16, BLOCK=_block(rows))
    return count


def _reduce_by(
    divisor: torch.Tensor | None, losses: torch.Tensor, targets: torch.Tensor, options: Options
) -> torch.Tensor:
    """`reduce` with a divisor that is known."""
    if options.reduction != "mean" or divisor is None:
        return reduce(losses, targets, options)
    rows = losses.shape[0]
    if options.weight is not None or not 0 < rows <= _FEW_ROWS:
        return losses.sum() / divisor
    mean = torch.empty((), dtype=torch.float32, device=losses.device)
    launch(mean_of_rows, (1,), losses, losses, divisor, mean, rows, warps=16, BLOCK=_block(rows))
    return mean


def _block(rows: int) -> int:
    return min(4_096, next_power(rows))


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
        flags = {"LOSS": not known, "GRADIENT": write is not None, "SMOOTH": smooth, "EACH": each}
        flags |= {"ZLOSS": options.has_z, "HELD": isinstance(options.z_loss, torch.Tensor)}

        stays = not known and write is not None and not smooth and x.element_size() == 2

        def run(config: Config) -> None:
            if stays and config.held:
                how = {"stages": config.stages, "registers": config.registers}
                how |= {"warps": config.warps, "programs": config.held}
                tensors = (arguments[1], weight, losses, lse, out, dloss, divisor)
                held_numbers = (spread, options.ignore_index, options.z_loss)
                z_flags = {name: flags[name] for name in ("ZLOSS", "HELD")}
                run_held(source, tensors, held_numbers, machine_of(x), **how, flags=z_flags)
                return
            cut = _cut(config, cols, stride, vector, both=not known and write is not None)
            how = {"warps": config.warps, "stages": config.stages, "STAGES": config.stages, "VECTOR": vector}
            how["registers"] = 0 if smooth else config.registers
            launch(cross_entropy_rows, (rows,), x, *arguments, *numbers, LANES=config.lanes, **how, **flags, **cut)

        # weights of the targets alone and z_loss are a number a row: nothing that a choice depends on
        words = _PARTS[known, write, smooth, each]
        CHOICE.run(x, config, (x.dtype, rows, cols, (stride,), source.data_ptr() & 15, words), run)
    elif rows:
        losses.fill_(float("nan"))
        lse.fill_(float("-inf"))
    if write == "over" and out is not x:
        out = x.copy_(out)
    return losses, lse, out


def _cut(config: Config, cols: int, stride: int, vector: int, *, both: bool) -> dict[str, int]:
    """How a row is cut, as the kernel's constants; `both` passes over it, or one."""
    step = config.lanes * vector
    edges = bool(cols % vector or stride % vector)
    align = min(8 * vector, config.lanes) if edges else vector
    once = both and step >= cols
    # what is certainly there of whole steps, and then at least and at most of the rest
    sure = max(0, cols - 2 * align) if edges else cols
    least = sure % step
    most = least + (cols - sure)
    # single elements where a masked step would be idle for the most part, and they are few enough not to wait for
    wide = once or most > min(step, 2 * config.lanes)
    narrow = edges or (not wide and least > 0)
    kept = min(config.kept, sure // step) if both and not once else 0
    return {"ALIGN": align, "WIDE": wide, "NARROW": narrow, "ONCE": once, "KEPT": kept}


# -- selection ---------------------------------------------------------------------------------------
_WORDS = {(False, None): "loss", (False, "new"): "loss gradient", (False, "over"): "loss gradient over",
          (True, "new"): "gradient"}  # fmt: skip
_PARTS = {
    (known, write, smooth, weighted): " ".join([words, *["smooth"] * smooth, *["weighted"] * weighted])
    for (known, write), words in _WORDS.items()
    for smooth, weighted in ((False, False), (True, False), (True, True))
}
"""Flags of a key by whether lse is known, where the gradient goes, whether targets are smoothed, and by weights."""


def _once(facts: Facts) -> bool:
    return facts.flags.startswith("loss gradient") and "smooth" not in facts.flags and facts.dtype.itemsize == 2


def _supports(config: Config, facts: Facts) -> bool:
    return config.lanes >= 32 and (not config.held or _once(facts))


def _work(config: Config, facts: Facts, machine: Machine) -> Work:
    (rows,), (cols,), size = facts.free, facts.exact, facts.dtype.itemsize
    block = config.lanes * 16 // size
    tiles, parts = ceil_div(cols, block), facts.flags.split()
    moved = (2 if "gradient" in parts else 1) * rows * cols * size
    if config.held:
        programs = min(rows, machine.processors * config.held)
        return Work(programs, config.warps, cols, size, moved, 5 * rows * cols, live=0.5, ahead=config.stages)
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
        return Trial.of(backward, inputs.normal(rows, dtype=torch.float32), x, targets, lse, **options)
    if "gradient" not in parts:
        return Trial.of(forward, x, targets, reduction="none", **common)
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

    def timed(given: tuple[torch.Tensor, torch.Tensor], config: Config) -> object:
        return forward_with_gradient_(spare, given[1], **common, config=config)

    return Trial((x, targets), run, both, timed=timed if over else None)


CHOICE = register_tunable(
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
        once=_once(facts),
    ),
    supports=_supports,
    work=_work,
    trial=_trial,
    kernels=(cross_entropy_rows, cross_entropy_held, count_rows, mean_of_rows),
    problems=row_problems("loss", "loss gradient", "loss gradient over", "gradient"),
    shapes=((8192, 32_000), (8192, 50_257), (8192, 128_256)),
)


# -- registration ------------------------------------------------------------------------------------
OPTIONS = "Tensor? weight, str reduction, float smoothing, int ignore_index, float z_loss"
"""The options of a loss, as operators of torch take them."""


def empty_loss(x: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
    """Memory for a loss of logits x."""
    return torch.empty(targets.shape if reduction == "none" else (), dtype=wide_type(x.dtype), device=x.device)


def draw_options(draw: Draw, rows: int, classes: int) -> tuple[Any, ...]:
    """Targets and the options of a loss."""
    targets = draw.integers(0, classes, rows)
    targets = torch.where(torch.rand(rows, generator=draw.generator) < 0.3, -100, targets)
    weight = None if draw.integer(0, 2) else draw.normal(classes).abs() + 0.1
    reduction, smoothing = ("mean", "sum", "none")[draw.integer(0, 3)], (0.0, 0.1)[draw.integer(0, 2)]
    return targets, weight, reduction, smoothing, -100, (0.0, 0.01)[draw.integer(0, 2)]


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    x = draw.rows(draw.width() + 1).flatten(0, -2)
    return x, *draw_options(draw, *x.shape)


def _gradient(back: Any, dy: Any, inputs: Any, outputs: Any, **options: Any) -> Any:
    return back(dy, *inputs, outputs[1], **options), None


SPEC = register_kernel(
    forward,
    backward,
    gradient=_gradient,
    twin=twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=problems,
    large=large_rows(lambda draw, x: [Problem((x, draw.integers(0, x.shape[1], 64)), {"smoothing": 0.1})]),
    draw_call=_draw_call,
    operators=(
        Operator(
            schema=f"cross_entropy(Tensor x, Tensor targets, {OPTIONS}) -> (Tensor, Tensor)",
            inputs="x targets",
            fake=lambda x, targets, weight, reduction, *_: (
                empty_loss(x, targets, reduction),
                torch.empty(x.shape[:1], dtype=lse_type(x.dtype), device=x.device),
            ),
            results="loss lse",
            gradients="x",
            saved="x targets lse weight reduction smoothing ignore_index z_loss",
            upstream="dloss",
            autocast=("cuda", "cpu"),
        ),
    ),
)
