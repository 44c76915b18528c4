"""Cross entropy of logits (rows, cols) with class targets (rows,).

    lse  = log(sum(exp(x)))                 q = (1 - smoothing) * one_hot(target) + smoothing / cols
    loss = lse - sum(q * x)                 dx = (exp(x - lse) - q) * dloss

Rows whose target is `ignore_index` have loss 0, no gradient, and do not count in the mean.

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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels._triton import tl, triton
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, row_problems, tunable
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError, explain
from burn_kernels.launch import FLOATS, Machine, ceil_div, check, describe, launch, next_power, runs_kernel, wide_type
from burn_kernels.prims import LOWEST, add_exponentials, edge_columns, exp_for, halves, quotient, row_parts, wide
from burn_kernels.spec import Draw, KernelSpec, Problem, register

REDUCTIONS = ("none", "mean", "sum")


def lse_type(dtype: torch.dtype) -> torch.dtype:
    """What lse is kept in: float32 of half types, else float64."""
    return torch.float32 if dtype.itemsize == 2 else torch.float64


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


def default(cols: int, itemsize: int, machine: Machine, *, gradient: bool = False) -> Config:
    """The config that is used without timing."""
    return candidates(cols, itemsize, machine, gradient=gradient)[0]


def candidates(cols: int, itemsize: int, machine: Machine, *, gradient: bool = False) -> list[Config]:
    """What a tuner may try, the default first."""
    vectors = next_power(max(1, cols * itemsize // 16))
    most = min(16, max(1, vectors // 64))
    tried = [(most, 2), (most, 1), (most, 4), (max(1, most // 2), 4), (min(32, max(1, vectors // 64)), 2)]
    if gradient and vectors > 8_192:
        # fewer rows at once: 256 KiB each at 128256 bf16 columns, between their two readings, outgrow the L2 cache
        tried.insert(0, (most, 4))
    found = [Config(max(32, min(vectors, 32 * warps * loads)), warps) for warps, loads in tried]
    return list(dict.fromkeys(found))


# -- kernels -----------------------------------------------------------------------------------------
@triton.jit
def _gradient(x, lse, scale, chosen, others, hit, quiet, TYPE: tl.constexpr):
    """(exp(x - lse) - q) * scale, where q * scale is `chosen` where the target is hit, `others` elsewhere."""
    if TYPE == tl.float32:
        high, low = halves(lse)
        below = x - high - low
    else:
        below = x - lse
    return tl.where(quiet, 0.0, tl.fma(exp_for(below, TYPE), scale, -tl.where(hit, chosen, others)))


@triton.jit
def _cross_entropy(
    x_ptr, target_ptr, loss_ptr, lse_ptr, dx_ptr, dloss_ptr, count_ptr, stride, dloss_stride, cols, ignored, smoothing,
    LOSS: tl.constexpr, GRADIENT: tl.constexpr, SMOOTH: tl.constexpr, EDGES: tl.constexpr,
    LANES: tl.constexpr, VECTOR: tl.constexpr,
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

    if LOSS:
        m = tl.full((LANES,), LOWEST, tl.float32)
        total = tl.zeros((LANES,), tl.float32)
        sums = tl.zeros((LANES,), tl.float32)
        for start in tl.range(0, size, LANES * VECTOR):
            inside = start + at < size
            read = tl.load(x_ptr + body + start + at, mask=inside, other=float("-inf"), eviction_policy="evict_last")
            x = read.to(tl.float32)
            m, total = add_exponentials(m, total, x, TYPE)
            if SMOOTH:
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
        loss = rest + (1.0 - smoothing) * (top - picked)
        if SMOOTH:
            plain = tl.sum(wide(sums, TYPE), 0)
            if EDGES:
                plain += tl.sum(wide(tl.where(edge_inside, ends, 0.0), TYPE), 0)
            loss += smoothing * (top - plain / cols)
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
        others, chosen = 0.0, scale
        if SMOOTH:
            others = scale * (smoothing / cols)
            chosen = (wide(scale, TYPE) - wide(scale, TYPE) * smoothing + others).to(tl.float32)
        quiet = target == ignored
        for start in tl.range(0, size, LANES * VECTOR):
            inside = start + at < size
            again = tl.load(x_ptr + body + start + at, mask=inside, other=0.0, eviction_policy="evict_first")
            hit = lead + start + at == target
            dx = _gradient(again.to(tl.float32), lse, scale, chosen, others, hit, quiet, TYPE)
            # what is written is not read again: rows that wait for their second reading need the cache more
            tl.store(dx_ptr + body + start + at, dx.to(TYPE), mask=inside, eviction_policy="evict_first")
        if EDGES:
            dends = _gradient(ends, lse, scale, chosen, others, edge == target, quiet, TYPE)
            tl.store(dx_ptr + begin + edge, dends.to(TYPE), mask=edge_inside)


# -- launchers ---------------------------------------------------------------------------------------
def forward(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, reduced, and lse (rows,), which the backward needs.

    Shapes: x (rows, cols), targets (rows,) integers -> () or, with reduction "none", (rows,).
    Dtypes: x float32, float16, bfloat16, on the CPU float64 too; the loss is float32 (of float64 float64), lse is
    float32 of half types, else float64.
    Targets that are no class and not ignore_index raise on the CPU; on a GPU, which is not waited for, they give NaN.
    """
    _check(x, targets, reduction, smoothing)
    if not runs_kernel("cross_entropy", x):
        return reference(x, targets, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index)
    losses, lse, _ = _run(x, targets, None, None, None, smoothing, ignore_index, config, write=None)
    return _reduce(losses, targets, reduction, ignore_index), lse


def backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    config: Config | None = None,
) -> torch.Tensor:
    """The gradient of x from that of the loss, () or (rows,) as the reduction says; x is read, not written.

    lse: of the forward; None reads x once more to compute it.
    """
    _check(x, targets, reduction, smoothing)
    expected = x.shape[:1] if reduction == "none" else ()
    check(
        "cross_entropy backward",
        {"dloss": dloss, "x": x, "lse": lse},
        {"dloss": expected, "lse": x.shape[:1]},
        alike=["x"],
    )
    if not runs_kernel("cross_entropy backward", x):
        if lse is None:
            lse = reference(x, targets, reduction="none", smoothing=smoothing, ignore_index=ignore_index)[1]
        return reference_backward(
            dloss, x, targets, lse, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index
        )
    count = _count(targets, ignore_index) if reduction == "mean" else None
    return _run(x, targets, lse, dloss, count, smoothing, ignore_index, config, write="new")[2]


def forward_with_gradient(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the gradient of x for an upstream gradient of 1, reading x from memory once.

    Raises: KernelArgumentError for reduction "none", where no single upstream gradient is known.
    """
    return _with_gradient(x, targets, reduction, smoothing, ignore_index, config, write="new")


def forward_with_gradient_(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
    config: Config | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `forward_with_gradient`, but the gradient takes the place of x: no second tensor of that size."""
    return _with_gradient(x, targets, reduction, smoothing, ignore_index, config, write="over")


def _with_gradient(
    x: torch.Tensor,
    targets: torch.Tensor,
    reduction: str,
    smoothing: float,
    ignore_index: int,
    config: Config | None,
    write: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(x, targets, reduction, smoothing)
    require_one_upstream(reduction)
    if not runs_kernel("cross_entropy", x):
        loss, lse = reference(x, targets, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index)
        dx = reference_backward(
            torch.ones_like(loss), x, targets, lse, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index
        )
        return loss, x.copy_(dx) if write == "over" else dx
    count = _count(targets, ignore_index) if reduction == "mean" else None
    losses, _, dx = _run(x, targets, None, None, count, smoothing, ignore_index, config, write=write)
    return _reduce(losses, targets, reduction, ignore_index), dx


def require_one_upstream(reduction: str) -> None:
    """Raises KernelArgumentError where each row has an upstream gradient of its own."""
    if reduction == "none":
        raise KernelArgumentError(
            explain(
                "cross_entropy: the gradient in the forward needs one upstream gradient for all rows",
                given="reduction 'none'",
                expected="reduction 'mean' or 'sum'",
                mend="call forward, then backward with the upstream gradients",
            )
        )


def check_options(reduction: str, smoothing: float) -> None:
    """Raises KernelArgumentError for an option outside its range."""
    if reduction not in REDUCTIONS or not 0.0 <= smoothing <= 1.0:
        raise KernelArgumentError(
            explain(
                "cross_entropy: an option is outside its range",
                given=f"reduction {reduction!r}, smoothing {smoothing}",
                expected=f"reduction one of {', '.join(REDUCTIONS)}; smoothing from 0 to 1",
                mend="choose one of these",
            )
        )


def check_targets(op: str, x: torch.Tensor, targets: torch.Tensor) -> None:
    """Raises KernelShapeError or KernelDTypeError where the targets are no class numbers, one a row of x."""
    if x.dim() != 2 or tuple(targets.shape) != tuple(x.shape[:1]):
        raise KernelShapeError(
            explain(
                f"{op}: the sizes do not fit",
                given=describe({"x": x, "targets": targets}),
                expected="x (rows, cols), targets (rows,)",
                mend="flatten with x.reshape(-1, x.shape[-1]) and targets.reshape(-1)",
            )
        )
    if targets.dtype.is_floating_point or targets.dtype == torch.bool or targets.dtype.is_complex:
        raise KernelDTypeError(
            explain(
                f"{op}: targets are class numbers",
                given=describe({"targets": targets}),
                expected="integers",
                mend="targets.to(torch.int64)",
            )
        )


def _check(x: torch.Tensor, targets: torch.Tensor, reduction: str, smoothing: float) -> None:
    check_options(reduction, smoothing)
    check_targets("cross_entropy", x, targets)
    check("cross_entropy", {"x": x, "targets": targets}, {}, alike=["x"])


def _count(targets: torch.Tensor, ignore_index: int) -> torch.Tensor:
    return (targets != ignore_index).sum()  # stays on the device: nothing waits, and a graph can capture it


def _reduce(losses: torch.Tensor, targets: torch.Tensor, reduction: str, ignore_index: int) -> torch.Tensor:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / _count(targets, ignore_index)


def _run(
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor | None,
    dloss: torch.Tensor | None,
    count: torch.Tensor | None,
    smoothing: float,
    ignore_index: int,
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
        vector = 16 // x.element_size()
        stride = source.stride(0)
        arguments = (source, targets.contiguous(), losses, lse, out, dloss, count)
        spread = 0 if dloss is None or dloss.dim() == 0 else dloss.stride(0)
        numbers = (stride, spread, cols, ignore_index, smoothing)
        edges = bool(cols % vector or stride % vector)
        flags = {"LOSS": not known, "GRADIENT": write is not None, "SMOOTH": smoothing != 0.0, "EDGES": edges}

        def run(config: Config) -> None:
            sizes = {"LANES": config.lanes, "VECTOR": vector}
            launch(_cross_entropy, (rows,), x, *arguments, *numbers, warps=config.warps, **flags, **sizes)

        words = _PARTS[known, write, smoothing != 0.0]
        CHOICE.run(x, config, (x.dtype, rows, cols, (stride,), source.data_ptr() & 15, words), run)
    elif rows:
        losses.fill_(float("nan"))
        lse.fill_(float("-inf"))
    if write == "over" and out is not x:
        out = x.copy_(out)
    return losses, lse, out


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and lse in plain torch."""
    wide = x.to(wide_type(x.dtype))
    counted = targets != ignore_index
    _check_classes(targets, counted, x.shape[1])
    kind = lse_type(x.dtype)
    if x.shape[1] == 0:
        losses = torch.full(x.shape[:1], float("nan"), dtype=wide.dtype, device=x.device)
        lse = torch.full_like(losses, float("-inf"), dtype=kind)
        return _reduce(losses, targets, reduction, ignore_index), lse
    picked = wide.gather(1, torch.where(counted, targets, 0).to(torch.int64)[:, None])[:, 0]
    top = wide.amax(1).clamp_min(torch.finfo(wide.dtype).min)  # of -inf everywhere, so that exp(x - top) is 0
    rest = torch.exp(wide - top[:, None]).sum(1).to(kind).log()
    losses = rest.to(wide.dtype) + (1.0 - smoothing) * (top - picked)
    if smoothing:
        losses = losses + smoothing * (top - wide.mean(1))
    losses = torch.where(counted, losses, 0.0)
    return _reduce(losses, targets, reduction, ignore_index), top + rest


def reference_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
) -> torch.Tensor:
    """The gradient of x in plain torch."""
    wide = x.to(wide_type(x.dtype))
    counted = targets != ignore_index
    scale = dloss.to(wide.dtype)
    if reduction == "mean":
        scale = scale / _count(targets, ignore_index)
    classes = torch.arange(x.shape[1], device=x.device)
    one_hot = (classes == targets[:, None]).to(wide.dtype)
    q = one_hot * (1.0 - smoothing) + smoothing / max(x.shape[1], 1)
    high = lse.to(wide.dtype)
    below = wide - high[:, None]
    if high.dtype != lse.dtype:
        below -= (lse - high).to(wide.dtype)[:, None]
    dx = (torch.exp(below) - q) * scale.reshape(-1, 1)
    return torch.where(counted[:, None], dx, 0.0).to(x.dtype)


def _check_classes(targets: torch.Tensor, counted: torch.Tensor, cols: int) -> None:
    if targets.device.type != "cpu":
        return  # reading the values would wait for the device
    wrong = targets[counted & ((targets < 0) | (targets >= cols))]
    if wrong.numel():
        raise KernelArgumentError(
            explain(
                "cross_entropy: targets that are no class",
                given=f"{wrong.numel()} targets, the first {int(wrong[0])}",
                expected=f"from 0 to {cols - 1}, or ignore_index",
                mend="check the labels, and ignore_index if some rows are padding",
            )
        )


# -- selection ---------------------------------------------------------------------------------------
_WORDS = {(False, None): "loss", (False, "new"): "loss gradient", (False, "over"): "loss gradient over",
          (True, "new"): "gradient"}  # fmt: skip
_PARTS = {(known, write, smooth): f"{words} smooth" if smooth else words
          for (known, write), words in _WORDS.items() for smooth in (False, True)}  # fmt: skip
"""Flags of a key by whether lse is known, where the gradient goes, and whether targets are smoothed."""


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
    smoothing = 0.1 if "smooth" in parts else 0.0
    if parts[0] == "gradient":
        _, lse = reference(x, targets, reduction="none", smoothing=smoothing)
        options: dict[str, Any] = {"reduction": "none", "smoothing": smoothing}
        return Trial(
            (inputs.normal(rows, dtype=torch.float32), x, targets, lse),
            lambda given, config: backward(*given, **options, config=config),
            lambda given: reference_backward(*given, **options),
        )
    if "gradient" not in parts:
        return Trial(
            (x, targets),
            lambda given, config: forward(*given, reduction="none", smoothing=smoothing, config=config),
            lambda given: reference(*given, reduction="none", smoothing=smoothing),
        )
    over = "over" in parts
    spare = x.clone() if over else x

    def both(given: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        loss, lse = reference(*given, smoothing=smoothing)
        return loss, reference_backward(torch.ones_like(loss), *given, lse, smoothing=smoothing)

    def run(given: tuple[torch.Tensor, torch.Tensor], config: Config) -> tuple[torch.Tensor, torch.Tensor]:
        if not over:
            return forward_with_gradient(*given, smoothing=smoothing, config=config)
        copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(given[0])
        return forward_with_gradient_(copy, given[1], smoothing=smoothing, config=config)

    def timed(given: tuple[torch.Tensor, torch.Tensor], config: Config) -> Any:
        return forward_with_gradient_(spare, given[1], smoothing=smoothing, config=config)

    return Trial((x, targets), run, both, timed=timed if over else None)


CHOICE = tunable(
    Tunable(
        name="cross_entropy",
        config=Config,
        free=("rows",),
        exact=("cols",),
        candidates=lambda facts, machine: candidates(
            facts.exact[0], facts.dtype.itemsize, machine, gradient="gradient" in facts.flags
        ),
        supports=lambda config, facts: config.lanes >= 32,
        work=_work,
        trial=_trial,
        sources=(__name__,),
        problems=row_problems("loss", "loss gradient", "loss gradient over", "gradient"),
        shapes=((8192, 32_000), (8192, 50_257), (8192, 128_256)),
    )
)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    yield Problem((draw.normal(4, 1), draw.integers(0, 1, 4)))
    for rows, cols in ((5, 7), (3, 64), (7, 10), (6, 1001), (2, 50_257), (0, 5)):
        x, targets = draw.normal(rows, cols, std=3.0), draw.integers(0, cols, rows)
        yield Problem((x, targets))
        yield Problem((x, targets), {"reduction": "none", "smoothing": 0.1})
    targets = draw.integers(0, 33, 6)
    targets[::2] = -100
    yield Problem((draw.normal(6, 33), targets))
    yield Problem((draw.normal(6, 33), targets), {"reduction": "sum", "smoothing": 0.3})
    targets = draw.integers(0, 17, 5)
    targets[1] = 3
    yield Problem((draw.normal(10, 40)[::2, 3:20], targets), {"ignore_index": 3, "reduction": "none"})
    yield Problem((draw.normal(17, 5).T, targets), {"ignore_index": 3, "smoothing": 0.2})


def _twin(
    x: torch.Tensor,
    targets: torch.Tensor,
    *,
    reduction: str = "mean",
    smoothing: float = 0.0,
    ignore_index: int = -100,
) -> torch.Tensor:
    # PyTorch users upcast half logits, or the loss itself is rounded to a half
    wide = x.to(wide_type(x.dtype))
    return torch.nn.functional.cross_entropy(
        wide, targets, reduction=reduction, label_smoothing=smoothing, ignore_index=ignore_index
    )


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
        twin=_twin,
        bytes_moved=bytes_moved,
        flops=flops,
        problems=_problems,
        dtypes=FLOATS,
        limits="none in size; float64 on a GPU",
    )
)
