"""Cross entropy of a linear layer's outputs, without ever holding all of them.

    logits = x w^T + b                     loss: as `cross_entropy` of the logits
    dx = dlogits w                         dw = dlogits^T x                      db = sum over rows of dlogits

Limit: arithmetic.  6 * rows * cols * vocab operations with the gradients, in three matrix products; beside them the
logits of one chunk move to memory and back.  Peak memory: the gradients, and one chunk.
Layout: any.  Deterministic: chunks follow each other in order.

The rows are cut into chunks.  A chunk's logits go into one buffer that all chunks share, cross entropy turns them into
their own gradient there, and two products add what they give to dx, dw and db, so the backward has nothing to compute.
dw and db are summed in float32 unless `accumulate` says otherwise: with many chunks a half type loses digits.  Each
chunk reads and writes all of dw once, so few chunks are faster.  In float16 the sum over the rows is taken first and
divided by their count last, so that small gradients keep their digits; other types are divided with the chunks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch

from burn_kernels import cross_entropy, cublaslt
from burn_kernels.cross_entropy import OPTIONS, draw_options, empty_loss
from burn_kernels.cross_entropy.references import (
    LossOptions,
    Options,
    RowOptions,
    check_targets,
    plain,
    plain_backward,
    require_one_upstream,
    some_options,
    twin,
)
from burn_kernels.cublaslt import Layout
from burn_kernels.cublaslt import Problem as Product
from burn_kernels.cublaslt_choice import best
from burn_kernels.errors import KernelShapeError
from burn_kernels.launch import Machine, ceil_div, check, describe, machine_of, recorded, wide_type
from burn_kernels.launcher import refuses_unknown
from burn_kernels.operators import Operator, like, nothing, present, second
from burn_kernels.spec import Draw, Problem, register_spec

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None = None, *,
    backward: bool = False, **_: object,
) -> int:  # fmt: skip
    """x and w read; backward dx and dw written too.  The logits need not move at all."""
    return (2 if backward else 1) * (x.numel() + w.numel()) * x.element_size()


def flops(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None = None, *,
    backward: bool = False, **_: object,
) -> int:  # fmt: skip
    """One matrix product forward, two backward."""
    return (4 if backward else 2) * x.numel() * w.shape[0]


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """`rows` of logits at once, at most: chunks are alike.

    Of the three products, whether a proposal of cuBLASLt computes it, and which; -1 is torch's own.
    """

    rows: int
    logits: int = -1
    dx: int = -1
    dw: int = -1


BUFFER_BYTES = 352 << 20
"""The most that the logits of a chunk may take: 1438 rows of 128256 bf16, a third of that classifier's gradients."""


def default(vocab: int, itemsize: int, machine: Machine) -> Config:
    """The config that is used, which timings do not choose: memory and bits depend on it."""
    # nor is a chunk a launch of this module: products are torch's, and cross_entropy chooses for its own
    return candidates(vocab, itemsize, machine)[0]


def candidates(vocab: int, itemsize: int, machine: Machine) -> list[Config]:
    """The configs worth a try, the default first; below 512 rows the products lose speed, above 8192 they gain none."""
    rows = min(8192, max(512, BUFFER_BYTES // max(1, vocab * itemsize)))
    return [Config(count) for count in (rows, 2 * rows, rows // 2)]


LEAST_WORK = 1 << 36
"""Multiplications of one product from which on a trial of cuBLASLt's proposals pays."""


def _choose_products(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, kind: torch.dtype) -> Config:
    """The default, with the proposals of cuBLASLt that are ahead of torch's own product for logits and dw.

    They are timed once in a process (`cublaslt_choice`), which takes some 50 ms, and while it lasts twice dw's memory.
    """
    (rows, cols), vocab = x.shape, w.shape[0]
    config = default(vocab, x.element_size(), machine_of(x))
    if recorded() is not None or not x.is_cuda or x.element_size() != 2 or rows * cols * vocab < LEAST_WORK:
        return config
    if cols % 8 or vocab % 8 or not (x.is_contiguous() and w.is_contiguous() and cublaslt.available()):
        return config
    logits, dw = _products(_step(rows, config), cols, vocab, x.dtype, kind)
    ranks = (None if bias is not None else best(logits, x.get_device()), best(dw, x.get_device()))
    logits_rank, dw_rank = (-1 if rank is None else rank for rank in ranks)
    return replace(config, logits=logits_rank, dw=dw_rank)


def _products(step: int, cols: int, vocab: int, dtype: torch.dtype, kind: torch.dtype) -> tuple[Product, Product]:
    """A chunk's logits, and what it adds to dw, as cuBLASLt has them."""
    narrow, wide, result = Layout(cols, step, cols), Layout(vocab, step, vocab), Layout(cols, vocab, cols)
    logits = Product(result, narrow, wide, (True, False), dtype, dtype)
    return logits, Product(narrow, wide, result, (False, True), dtype, kind, adds=True)


def _step(rows: int, config: Config) -> int:
    """Rows of a chunk: chunks are alike."""
    return max(1, ceil_div(rows, max(1, ceil_div(rows, config.rows))))


# -- launchers ---------------------------------------------------------------------------------------
# The launcher of the other families takes none of these: a call launches nothing of its own but cuts rows into chunks,
# whose products are torch's and whose losses are `cross_entropy`'s, on a CPU too.
@refuses_unknown
def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    config: Config | None = None,
    **options: Unpack[LossOptions],
) -> torch.Tensor:
    """The loss, reduced; `weight`, of the classes, and `z_loss` as of `cross_entropy`.

    Options, by name: weight=None, reduction="mean", smoothing=0.0, ignore_index=-100, z_loss=0.0.
    Shapes: x (rows, cols), w (vocab, cols), targets (rows,) integers, bias, weight (vocab,) -> () or, with "none",
    (rows,).
    Dtypes: x, w, bias one of float32, float16, bfloat16, on the CPU float64 too; the loss float32 (of float64 float64).
    """
    by_row = _options_by_row(x, w, targets, bias, Options(**options))
    by_chunk = _by_chunk(by_row)
    losses = []
    for rows, logits in _chunks(x, w, bias, config):
        part, _ = cross_entropy.forward(logits, targets[rows], **by_chunk)
        losses.append(part)
    if by_row.reduction == "none":
        return torch.cat(losses) if losses else _nothing(x, 0)
    total = torch.stack(losses).sum() if losses else _nothing(x)
    return total if by_row.reduction == "sum" else total / by_row.divisor(targets, x)


@refuses_unknown
def forward_with_gradient(
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    accumulate: torch.dtype | None = None,
    config: Config | None = None,
    **options: Unpack[LossOptions],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The loss and the gradients of x, w and bias for an upstream gradient of 1; the logits are computed once.

    `accumulate` is the type in which dw and db are summed over chunks: by default float32, and float64 of float64.
    Options, by name: those of `forward`.
    Raises: KernelArgumentError for reduction "none", where no single upstream gradient is known.
    """
    by_row = _options_by_row(x, w, targets, bias, Options(**options))
    require_one_upstream(by_row.reduction)
    config = config or _choose_products(x, w, bias, accumulate or wide_type(x.dtype))
    sums, part = _Sums(x, w, bias, accumulate, config), replace(by_row, reduction="sum")
    divisor = None if by_row.reduction == "sum" else by_row.divisor(targets, x)  # on the device: nothing waits
    # another reading and writing of dw is saved where no digits are at stake
    early = None
    if divisor is not None and x.dtype != torch.float16:
        early = torch.where(divisor > 0, divisor.to(wide_type(x.dtype)), torch.inf)  # of no rows all gradients are 0
    losses = []
    for rows, logits in _chunks(x, w, bias, config):
        loss, dlogits = cross_entropy.part_with_gradient_(logits, targets[rows], part, early)
        losses.append(loss)
        sums.add(rows, dlogits)
    total = torch.stack(losses).sum() if losses else _nothing(x)
    if divisor is None:
        dx, dw, db = sums.results(None)
        return total, dx, dw, db
    dx, dw, db = sums.results(_share(divisor, x) if early is None else None)
    return total / divisor, dx, dw, db


@refuses_unknown
def losses_with_gradient(
    dloss: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    accumulate: torch.dtype | None = None,
    config: Config | None = None,
    **options: Unpack[RowOptions],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The loss of each row, and the gradients of x, w and bias for upstream gradients that are known beforehand.

    Options, by name: those of `forward` but reduction.
    Shapes: dloss (rows,), which may repeat one number -> (rows,), as x, as w, as bias.
    Dtypes: dx that of x; dw and db as they are summed: `accumulate`, by default float32, and float64 of float64.
    """
    by_row = _options_by_row(x, w, targets, bias, Options(reduction="none", **options))
    check("linear_cross_entropy", {"dloss": dloss, "x": x}, {"dloss": x.shape[:1]}, alike=["x"])
    sums, by_chunk = _Sums(x, w, bias, accumulate, config), _by_chunk(by_row)
    losses = []
    for rows, logits in _chunks(x, w, bias, config):
        loss, dlogits = cross_entropy.forward_with_gradient_(logits, targets[rows], dloss=dloss[rows], **by_chunk)
        losses.append(loss)
        sums.add(rows, dlogits)
    return torch.cat(losses) if losses else _nothing(x, 0), *sums.wide()


@refuses_unknown
def backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    accumulate: torch.dtype | None = None,
    config: Config | None = None,
    **options: Unpack[LossOptions],
) -> Gradients:
    """The gradients of x, w and bias from that of the loss, () or (rows,); the logits are computed again.

    Options, by name: those of `forward`.
    """
    by_row = _options_by_row(x, w, targets, bias, Options(**options))
    alone = by_row.reduction == "none"
    shape = tuple(targets.shape) if alone else ()
    check("linear_cross_entropy backward", {"dloss": dloss, "x": x}, {"dloss": shape}, alike=["x"])
    sums, by_chunk = _Sums(x, w, bias, accumulate), _by_chunk(by_row)
    for rows, logits in _chunks(x, w, bias, config):
        part = targets[rows]
        if alone:
            _, lse = cross_entropy.forward(logits, part, **by_chunk)
            dlogits = cross_entropy.backward(dloss[rows], logits, part, lse, **by_chunk)
        else:
            _, dlogits = cross_entropy.forward_with_gradient_(logits, part, **by_chunk)
        sums.add(rows, dlogits)
    if alone:
        return sums.results(None)
    scale = dloss.to(wide_type(x.dtype))
    return sums.results(scale * _share(by_row.divisor(targets, x), x) if by_row.reduction == "mean" else scale)


class _Sums:
    """dx in its rows, dw and db summed over chunks."""

    def __init__(
        self,
        x: torch.Tensor,
        w: torch.Tensor,
        bias: torch.Tensor | None,
        accumulate: torch.dtype | None,
        config: Config | None = None,
    ) -> None:
        self.x, self.w, self.kind = x, w, accumulate or wide_type(x.dtype)
        self.ranks = (-1, -1) if config is None else (config.dx, config.dw)
        self.dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self.dw: torch.Tensor | None = None  # the first chunk's product makes it
        self.db = None if bias is None else torch.zeros(bias.shape, dtype=self.kind, device=x.device)

    def add(self, rows: slice, dlogits: torch.Tensor) -> None:
        _product(dlogits, self.w, self.dx[rows], self.ranks[0])
        across, x = dlogits.T, self.x[rows]
        if self.kind != x.dtype and x.is_cuda:
            # the product of halves is added in float32 by the matrix unit's own accumulators
            if self.dw is None:
                self.dw = torch.ops.aten.mm.dtype(across, x, self.kind)
            elif self.ranks[1] >= 0:
                cublaslt.product(across, x, out=self.dw, adds=True, rank=self.ranks[1])
            else:
                torch.ops.aten.addmm.dtype_out(self.dw, across, x, self.kind, out=self.dw)
        elif self.dw is None:
            self.dw = across.to(self.kind) @ x.to(self.kind)
        elif self.kind == x.dtype and self.ranks[1] >= 0:
            cublaslt.product(across, x, out=self.dw, adds=True, rank=self.ranks[1])
        else:
            self.dw.addmm_(across.to(self.kind), x.to(self.kind))
        if self.db is not None:
            self.db += dlogits.sum(0, dtype=self.kind)

    def wide(self) -> Gradients:
        """dx, and dw and db as they are summed."""
        dw = torch.zeros(self.w.shape, dtype=self.kind, device=self.w.device) if self.dw is None else self.dw
        return self.dx, dw, self.db

    def results(self, scale: torch.Tensor | None) -> Gradients:
        dx, dw, db = self.wide()
        if scale is not None:
            for x in (dx, dw, db):
                if x is not None:
                    x.mul_(scale)
        return dx, dw.to(self.w.dtype), None if db is None else db.to(self.w.dtype)


def _product(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, rank: int) -> None:
    """x w by a proposal of cuBLASLt, or by torch."""
    if rank < 0:
        torch.mm(x, w, out=out)
    else:
        cublaslt.product(x, w, out=out, rank=rank)


def _chunks(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, config: Config | None
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Rows with their logits; the buffer is the same each time, and whoever gets it may write over it."""
    count, vocab = x.shape[0], w.shape[0]
    config = config or default(vocab, x.element_size(), machine_of(x))
    step = _step(count, config)
    buffer = torch.empty(min(step, count), vocab, dtype=x.dtype, device=x.device)
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        logits = buffer[: rows.stop - start]
        if bias is None:
            _product(x[rows], w.T, logits, config.logits)
        else:
            torch.addmm(bias, x[rows], w.T, out=logits)
        yield rows, logits


def _by_chunk(options: Options) -> dict[str, Any]:
    """The options of each chunk, whose losses are added."""
    return vars(options) | {"reduction": "none" if options.reduction == "none" else "sum"}


def _share(divisor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    # where no row counts the loss is 0 / 0, but its gradients are 0, as torch's are
    wide = divisor.to(wide_type(x.dtype))
    return torch.where(wide > 0, 1.0 / torch.where(wide > 0, wide, 1.0), 0.0)


def _nothing(x: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=wide_type(x.dtype), device=x.device)


def _options_by_row(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None, options: Options
) -> Options:
    """The options of a call, by row; raises for a call that does not fit."""
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1]:
        raise KernelShapeError(
            "linear_cross_entropy: the sizes do not fit",
            given=describe({"x": x, "w": w}),
            expected="x (rows, cols), w (vocab, cols)",
            mend="flatten with x.reshape(-1, x.shape[-1]); w is laid out as in torch.nn.Linear",
        )
    check_targets("linear_cross_entropy", x, targets, options.weight, options.z_loss, w.shape[0])
    tensors = {"x": x, "w": w, "bias": bias, "targets": targets}
    check("linear_cross_entropy", tensors, {"bias": w.shape[:1]}, alike=["x", "w", "bias"])
    return options.by_row(targets, x)


# -- reference ---------------------------------------------------------------------------------------
def reference(
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    **options: Unpack[LossOptions],
) -> torch.Tensor:
    """The loss in plain torch, all logits at once."""
    logits = torch.nn.functional.linear(x, w, bias)
    return plain(logits, targets, Options(**options).by_row(targets, x))[0]


def reference_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    targets: torch.Tensor,
    bias: torch.Tensor | None = None,
    **options: Unpack[LossOptions],
) -> Gradients:
    """The gradients in plain torch, all logits at once."""
    logits = torch.nn.functional.linear(x, w, bias)
    whole = Options(**options).by_row(targets, x)
    _, lse = plain(logits, targets, whole)
    dlogits = plain_backward(dloss, logits, targets, lse, whole)
    return dlogits @ w, dlogits.T @ x, None if bias is None else dlogits.sum(0)


# -- registration ------------------------------------------------------------------------------------
def _problems(draw: Draw) -> Iterator[Problem]:
    for rows, cols, vocab in ((5, 7, 11), (3, 16, 64), (1, 1, 2), (9, 4, 1001), (0, 3, 5)):
        x, w, targets = draw.normal(rows, cols), draw.normal(vocab, cols), draw.integers(0, vocab, rows)
        yield Problem((x, w, targets, draw.normal(vocab)))
        yield Problem((x, w, targets, None), {"reduction": "none", "smoothing": 0.1})
    targets = draw.integers(0, 17, 6)
    targets[::2] = -100
    yield Problem((draw.normal(6, 5), draw.normal(17, 5), targets, None), {"reduction": "sum", "smoothing": 0.3})
    yield Problem((draw.normal(5, 6).T, draw.normal(5, 17).T, targets, draw.normal(17)))
    for options in some_options(draw, 17):
        yield Problem((draw.normal(6, 5), draw.normal(17, 5), targets, draw.normal(17)), options)


def _twin(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    return twin(torch.nn.functional.linear(x, w, bias), targets, **options)


def _gradient(back: Any, dy: torch.Tensor, inputs: tuple[Any, ...], outputs: object, **options: Any) -> tuple[Any, ...]:
    dx, dw, db = back(dy, *inputs, **options)
    return dx, dw, None, db


def _fake(x: torch.Tensor, w: torch.Tensor, b: Any, targets: torch.Tensor, *options: Any) -> tuple[torch.Tensor, ...]:
    _, reduction, *_, gradients, _ = options
    grads = (x, w, b) if gradients else (None, None, None)
    return empty_loss(x, targets, reduction), *(nothing(x) if t is None else like(t) for t in grads)


def _draw_call(draw: Draw) -> tuple[Any, ...]:
    features, classes = draw.integer(1, 40), draw.width() + 1
    x, w = draw.rows(features, 1.0).flatten(0, -2), draw.normal(classes, features)
    bias = draw.normal(classes) if draw.integer(0, 2) else None
    options = draw_options(draw, x.shape[0], classes)
    return x, w, bias, *options, options[2] != "none", ""


# -- operators ---------------------------------------------------------------------------------------
_NAMES = "weight reduction smoothing ignore_index z_loss"
_ACCUMULATE = {"": None, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _run(*inputs: Any, gradients: bool, accumulate: str, **options: Any) -> tuple[torch.Tensor | None, ...]:
    if not gradients:
        return (forward(*inputs, **options),)
    *results, db = forward_with_gradient(*inputs, **options, accumulate=_ACCUMULATE[accumulate])
    return *results, present("linear_cross_entropy", inputs[3], db)


def _run_plain(*inputs: Any, gradients: bool, accumulate: str, **options: Any) -> tuple[torch.Tensor | None, ...]:
    loss = reference(*inputs, **options)
    return loss, *(reference_backward(torch.ones_like(loss), *inputs, **options) if gradients else ())


def _run_back(back: Any, *inputs: Any, accumulate: str, **options: Any) -> tuple[torch.Tensor | None, ...]:
    more = {"accumulate": _ACCUMULATE[accumulate]} if back is backward else {}
    *results, db = back(*inputs, **options, **more)
    return *results, present("linear_cross_entropy backward", inputs[4], db)


def _pass_back(saved: Mapping[str, Any], dloss: torch.Tensor, *_: object) -> tuple[torch.Tensor | None, ...]:
    """The gradients: those of the forward by dloss, or the backward's if a graph of the gradients is asked for."""
    if not saved["gradients"] or torch.is_grad_enabled():
        names = ("x", "w", "b", "targets", *_NAMES.split(), "accumulate")
        dx, dw, db = torch.ops.burn_kernels.linear_cross_entropy_backward(dloss, *map(saved.__getitem__, names))
    else:
        # gradients that nothing reads again are scaled in place: dw may be as large as all else together.  Tensors
        # of a type of their own are those of a trace, in which the operator's outputs may be outputs too
        scale = torch.mul if type(dloss) is not torch.Tensor or _keeps_graph() else torch.Tensor.mul_
        grads = (saved["dx"], saved["dw"], saved["db"])
        dx, dw, db = (scale(grad, dloss.to(wide_type(grad.dtype))) for grad in grads)
    return dx, dw, None if saved["b"] is None else db


def _keeps_graph() -> bool:
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return ask is None or bool(ask())


def _pass_back_twice(saved: Mapping[str, Any], *upstream: torch.Tensor | None) -> list[torch.Tensor | None]:
    def loss(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return _twin(x, w, saved["targets"], b, **{name: saved[name] for name in _NAMES.split()})

    return second(loss, saved["dloss"], (saved["x"], saved["w"], saved["b"]), upstream)


def _twin_of_operator(*inputs: Any, gradients: bool, accumulate: str, **options: Any) -> torch.Tensor:
    return _twin(*inputs, **options)


LOSS = Operator(
    schema=f"linear_cross_entropy(Tensor x, Tensor w, Tensor? b, Tensor targets, {OPTIONS}, bool gradients,"
    " str accumulate) -> (Tensor, Tensor, Tensor, Tensor)",
    inputs="x w targets b",
    forward=_run,
    reference=_run_plain,
    fake=_fake,
    results="loss dx dw db",
    gradients="x w b",
    # the inputs too, for a second derivative; they are alive anyway
    saved=f"x w b targets {_NAMES} gradients accumulate dx dw db",
    spares=lambda known: () if known["gradients"] else ("dx", "dw", "db"),
    twin=_twin_of_operator,
    rule=_pass_back,
)
LOSS_BACKWARD = Operator(
    schema=f"linear_cross_entropy_backward(Tensor dloss, Tensor x, Tensor w, Tensor? b, Tensor targets, {OPTIONS},"
    " str accumulate) -> (Tensor, Tensor, Tensor)",
    inputs="dloss x w targets b",
    forward=functools.partial(_run_back, backward),
    reference=functools.partial(_run_back, reference_backward),
    fake=lambda dloss, x, w, b, *_: (like(x), like(w), nothing(x) if b is None else like(b)),
    results="dx dw db",
    carries=3,
    gradients="dloss x w b",
    saved=f"dloss x w b targets {_NAMES}",
    rule=_pass_back_twice,
)

SPEC = register_spec(
    name="linear_cross_entropy",
    forward=forward,
    gradient=functools.partial(_gradient, backward),
    reference=reference,
    reference_gradient=functools.partial(_gradient, reference_backward),
    twin=_twin,
    bytes_moved=bytes_moved,
    flops=flops,
    problems=_problems,
    draw_call=_draw_call,
    operators=(LOSS, LOSS_BACKWARD),
)
