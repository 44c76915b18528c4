"""Cross entropy beside its kernel: options and their checks, the losses in plain torch, problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.spec import Draw, Problem

REDUCTIONS = ("none", "mean", "sum")
Number = float | Tensor
"""A number, or a tensor of one on the device."""


def lse_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which lse is kept: float32 of half types, else float64."""
    return torch.float32 if dtype.itemsize == 2 else torch.float64


# -- options -----------------------------------------------------------------------------------------
class RowOptions(TypedDict, total=False):
    """The options of the loss of a row, by name."""

    weight: Tensor | None
    smoothing: float
    ignore_index: int
    z_loss: Number


class LossOptions(RowOptions, total=False):
    """The options of a loss, by name; `Options` has their defaults."""

    reduction: str


@dataclass(frozen=True)
class Options:
    """The options of a loss, beside logits and targets.

    weight        the weight of each class, 1 without it
    reduction     "mean", "sum", or "none" for the loss of each row
    smoothing     the share of the target that all classes have alike
    ignore_index  the target of rows that count for nothing
    z_loss        the weight of the square of lse
    """

    weight: Tensor | None = None
    reduction: str = "mean"
    smoothing: float = 0.0
    ignore_index: int = -100
    z_loss: Number = 0.0

    def __post_init__(self) -> None:
        z = self.z_loss
        there = isinstance(z, Tensor) or 0.0 <= z < float("inf")
        if self.reduction not in REDUCTIONS or not 0.0 <= self.smoothing <= 1.0 or not there:
            raise KernelArgumentError(
                "cross_entropy: an option is outside its range",
                given=f"reduction {self.reduction!r}, smoothing {self.smoothing}, z_loss {z}",
                expected=f"reduction one of {', '.join(REDUCTIONS)}; smoothing from 0 to 1; z_loss from 0",
                mend="choose one of these",
            )

    @property
    def has_z(self) -> bool:
        """Tells if the square of lse is part of the loss."""
        return isinstance(self.z_loss, Tensor) or self.z_loss != 0.0

    def counted(self, targets: Tensor) -> Tensor:
        """Counts the rows that are not ignored."""
        return (targets != self.ignore_index).sum()  # stays on the device: nothing waits, and a graph can capture it

    def divisor(self, targets: Tensor, like: Tensor) -> Tensor:
        """The divisor of the mean: the sum of the weights of the targets, without weights the number of rows."""
        if self.weight is None or not self.weight.numel():
            return self.counted(targets)
        weights = self.weight.to(wide_type(like.dtype))
        # what is no class has a loss of NaN already
        chosen = weights[targets.to(torch.int64).clamp(0, weights.shape[0] - 1)]
        return torch.where(targets != self.ignore_index, chosen, 0.0).sum()

    def by_row(self, targets: Tensor, like: Tensor) -> Options:
        """The same with a z_loss that the mean's divisor makes one of the mean over the rows."""
        if self.reduction != "mean" or self.weight is None or not self.has_z:
            return self
        return replace(self, z_loss=self.z_loss * (self.divisor(targets, like) / self.counted(targets)))


def require_one_upstream(reduction: str) -> None:
    """Raises KernelArgumentError where each row has an upstream gradient of its own."""
    if reduction == "none":
        raise KernelArgumentError(
            "cross_entropy: the gradient in the forward needs one upstream gradient for all rows",
            given="reduction 'none'",
            expected="reduction 'mean' or 'sum'",
            mend="call forward, then backward with the upstream gradients",
        )


def check_targets(
    op: str, x: Tensor, targets: Tensor, weight: Tensor | None, z_loss: Number | None, classes: int | None = None
) -> None:
    """Raises KernelShapeError or KernelDTypeError where targets or weights are not one a row of x, one a class."""
    if x.dim() != 2 or tuple(targets.shape) != tuple(x.shape[:1]):
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=describe({"x": x, "targets": targets}),
            expected="x (rows, cols), targets (rows,)",
            mend="flatten with x.reshape(-1, x.shape[-1]) and targets.reshape(-1)",
        )
    if targets.dtype.is_floating_point or targets.dtype == torch.bool or targets.dtype.is_complex:
        raise KernelDTypeError(
            f"{op}: targets are class numbers",
            given=describe({"targets": targets}),
            expected="integers",
            mend="targets.to(torch.int64)",
        )
    if weight is not None:
        classes = x.shape[1] if classes is None else classes
        check(op, {"weight": weight, "x": x}, {"weight": (classes,)}, alike=["weight"])
    if isinstance(z_loss, Tensor):
        check(op, {"z_loss": z_loss, "x": x}, {"z_loss": ()}, alike=["z_loss"])


# -- reference ---------------------------------------------------------------------------------------
def reduce(losses: Tensor, targets: Tensor, options: Options) -> Tensor:
    """The losses of the rows, their sum, or the sum by its divisor."""
    if options.reduction == "none":
        return losses
    return losses.sum() if options.reduction == "sum" else losses.sum() / options.divisor(targets, losses)


def reference(x: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> tuple[Tensor, Tensor]:
    """The loss and lse in plain torch."""
    return plain(x, targets, Options(**options).by_row(targets, x))


def plain(x: Tensor, targets: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """The loss and lse in plain torch, of options from `Options.by_row`."""
    wide, smoothing = x.to(wide_type(x.dtype)), options.smoothing
    counted = targets != options.ignore_index
    _check_classes(targets, counted, x.shape[1])
    kind = lse_type(x.dtype)
    if x.shape[1] == 0:
        losses = torch.full(x.shape[:1], float("nan"), dtype=wide.dtype, device=x.device)
        lse = torch.full_like(losses, float("-inf"), dtype=kind)
        return reduce(losses, targets, options), lse
    places = torch.where(counted, targets, 0).to(torch.int64)
    picked = wide.gather(1, places[:, None])[:, 0]
    top = wide.amax(1).clamp_min(torch.finfo(wide.dtype).min)  # of -inf everywhere, so that exp(x - top) is 0
    rest = torch.exp(wide - top[:, None]).sum(1).to(kind).log()
    lse = top + rest
    if options.weight is None:
        losses = rest.to(wide.dtype) + (1.0 - smoothing) * (top - picked)
        if smoothing:
            losses = losses + smoothing * (top - wide.mean(1))
    else:
        weights = options.weight.to(wide.dtype)
        own, share = _shares(weights, places, smoothing)
        total = weights.sum()
        losses = (own + share * total) * rest.to(wide.dtype) + own * (top - picked)
        if smoothing:
            losses = losses + share * (total * top - wide @ weights)
    if options.has_z:
        losses = losses + (options.z_loss * lse * lse).to(wide.dtype)
    losses = torch.where(counted, losses, 0.0)
    return reduce(losses, targets, options), lse


def reference_backward(
    dloss: Tensor, x: Tensor, targets: Tensor, lse: Tensor | None, **options: Unpack[LossOptions]
) -> Tensor:
    """The gradient of x in plain torch; lse is computed if it is None."""
    whole = Options(**options).by_row(targets, x)
    if lse is None:
        lse = plain(x, targets, whole)[1]
    return plain_backward(dloss, x, targets, lse, whole)


def plain_backward(dloss: Tensor, x: Tensor, targets: Tensor, lse: Tensor, options: Options) -> Tensor:
    """The gradient of x in plain torch, of options from `Options.by_row`."""
    wide, smoothing = x.to(wide_type(x.dtype)), options.smoothing
    counted = targets != options.ignore_index
    scale = dloss.to(wide.dtype)
    if options.reduction == "mean":
        scale = scale / options.divisor(targets, x)
    classes = torch.arange(x.shape[1], device=x.device)
    one_hot = (classes == targets[:, None]).to(wide.dtype)
    q = one_hot * (1.0 - smoothing) + smoothing / max(x.shape[1], 1)
    high = lse.to(wide.dtype)
    below = wide - high[:, None]
    if high.dtype != lse.dtype:
        below -= (lse - high).to(wide.dtype)[:, None]
    rise: Tensor | float = 1.0
    if options.weight is not None and x.shape[1]:
        weights = options.weight.to(wide.dtype)
        q = q * weights
        places = torch.where(counted, targets, 0).to(torch.int64)
        own, share = _shares(weights, places, smoothing)
        rise = (own + share * weights.sum())[:, None]
    if options.has_z:
        rise = rise + (2.0 * options.z_loss * lse).to(wide.dtype)[:, None]
    dx = (torch.exp(below) * rise - q) * scale.reshape(-1, 1)
    return torch.where(counted[:, None], dx, 0.0).to(x.dtype)


def _shares(weights: Tensor, places: Tensor, smoothing: float) -> tuple[Tensor, float]:
    """The shares of q of a row's target, and of each class as a multiple of its weight."""
    return weights[places] * (1.0 - smoothing), smoothing / weights.shape[0]


def _check_classes(targets: Tensor, counted: Tensor, cols: int) -> None:
    if targets.device.type != "cpu":
        return  # reading the values would wait for the device
    wrong = targets[counted & ((targets < 0) | (targets >= cols))]
    if wrong.numel():
        raise KernelArgumentError(
            "cross_entropy: targets that are no class",
            given=f"{wrong.numel()} targets, the first {int(wrong[0])}",
            expected=f"from 0 to {cols - 1}, or ignore_index",
            mend="check the labels, and ignore_index if some rows are padding",
        )


# -- registration ------------------------------------------------------------------------------------
def problems(draw: Draw) -> Iterator[Problem]:
    """Small inputs that can expose a mistake."""
    yield Problem((draw.normal(4, 1), draw.integers(0, 1, 4)))
    for rows, cols in ((5, 7), (3, 64), (7, 10), (6, 1001), (2, 50_257), (0, 5)):
        x, targets = draw.normal(rows, cols, std=3.0), draw.integers(0, cols, rows)
        yield Problem((x, targets))
        yield Problem((x, targets), {"reduction": "none", "smoothing": 0.1})
    targets = draw.integers(0, 33, 6)
    targets[::2] = -100
    yield Problem((draw.normal(6, 33), targets))
    yield Problem((draw.normal(6, 33), targets), {"reduction": "sum", "smoothing": 0.3})
    for options in some_options(draw, 33):
        yield Problem((draw.normal(6, 33, std=3.0), targets), options)
    targets = draw.integers(0, 17, 5)
    targets[1] = 3
    yield Problem((draw.normal(10, 40)[::2, 3:20], targets), {"ignore_index": 3, "reduction": "none"})
    yield Problem((draw.normal(17, 5).T, targets), {"ignore_index": 3, "smoothing": 0.2})


def some_options(draw: Draw, classes: int) -> Iterator[dict[str, object]]:
    """Weights of classes and z_loss, each alone and both, with each reduction, with and without smoothing."""
    weight = draw.normal(classes).abs() + 0.1
    yield {"weight": weight}
    yield {"weight": weight, "smoothing": 0.2, "reduction": "none"}
    yield {"z_loss": 0.01}
    yield {"z_loss": 0.02, "weight": weight, "smoothing": 0.1}
    yield {"z_loss": 0.02, "weight": weight, "reduction": "sum"}


def twin(x: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
    """The loss as a user of PyTorch would write it."""
    loss_options = Options(**options)
    # half logits are cast up, or the loss itself is rounded to a half
    wide = x.to(wide_type(x.dtype))
    loss = torch.nn.functional.cross_entropy(
        wide,
        targets.long(),
        weight=None if loss_options.weight is None else loss_options.weight.to(wide.dtype),
        reduction=loss_options.reduction,
        label_smoothing=loss_options.smoothing,
        ignore_index=loss_options.ignore_index,
    )
    if isinstance(loss_options.z_loss, Tensor) or loss_options.z_loss:
        counted = targets != loss_options.ignore_index
        squares = torch.where(counted, torch.logsumexp(wide, 1) ** 2, 0.0) * loss_options.z_loss
        if loss_options.reduction == "none":
            return loss + squares
        loss = loss + (squares.sum() / counted.sum() if loss_options.reduction == "mean" else squares.sum())
    return loss
