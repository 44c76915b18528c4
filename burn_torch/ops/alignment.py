"""The loss of connectionist temporal classification: a sum over all ways to align labels with steps of time."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, INT, DType
from burn_torch.core.errors import BoundsError
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.band_scans import log_band_scan, shares, sum_ahead
from burn_torch.ops.bounds import on_host
from burn_torch.ops.comparison import equal, greater, greater_equal, is_inf, lower, not_equal
from burn_torch.ops.creation import arange
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.functions import exp
from burn_torch.ops.indexing import gather
from burn_torch.ops.logic import bool_and, bool_not, bool_or
from burn_torch.ops.moments import alive, like, statistics_dtype, statistics_of, widened
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import any as any_over
from burn_torch.ops.reductions import logsumexp
from burn_torch.ops.samples import Array, Sample, fixed, sample, uniform
from burn_torch.ops.scattering import scatter
from burn_torch.ops.selection import cast, clamp, mask_where
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.slicing import cat, narrow, pad
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Value

V = TypeVar("V", bound=Value)


# -- what can be aligned -------------------------------------------------------------------------------------------
def require_alignable(
    name: str, targets: Array, lengths: Array, target_lengths: Array, *, steps: int, classes: int, blank: int,
    least: int = 0,
) -> None:  # fmt: skip
    """Raises: BoundsError for a length beyond its axis, for a target that is no class, or the blank."""
    most_labels = targets.shape[1]
    for what, sizes, low, high in (("an input", lengths, least, steps), ("a target", target_lengths, 0, most_labels)):
        if sizes.size and not (sizes.min() >= low and sizes.max() <= high):
            raise _word_misalignment(
                f"{name}: {what} length lies outside of the padded size",
                f"lengths {sizes.tolist()}"[:200],
                f"{low} to {high}, the size of the axis",
                "count the steps of each sample before the padding",
            )
    inside = np.arange(targets.shape[1]) < target_lengths[:, None]
    wrong = inside & ((targets < 0) | (targets >= classes) | (targets == blank))
    if wrong.any():
        sample_, place = np.argwhere(wrong)[0].tolist()
        label = int(targets[sample_, place])
        raise _word_misalignment(
            f"{name}: a target is {'the blank' if label == blank else 'no class'}",
            f"targets[{sample_}, {place}] = {label}, blank {blank}",
            f"within the target length, 0 to {classes - 1} without the blank",
            "number the labels so that the blank has a number of its own",
        )


def _word_misalignment(what: str, given: str, expected: str, mend: str) -> BoundsError:
    return at_user_line(BoundsError(what, given=given, expected=expected, mend=mend))


def find_unalignable(
    targets: V, times: V, ends: V, *, steps: int, classes: int, blank: int, least: int = 0
) -> tuple[V, V]:
    """Masks of targets that name a label (batch, labels), and of samples (batch, 1) that no alignment reads rightly.

    Shapes: targets (batch, labels), times and ends, which are the lengths, (batch, 1), all int64.
    """
    fits = bool_and(bool_and(greater_equal(targets, 0), lower(targets, classes)), not_equal(targets, blank))
    wrong: V = any_over(bool_and(bool_not(fits), lower(count_up(targets, targets.shape[1]), ends)), dims=(1,))
    for length, low, high in ((ends, 0, targets.shape[1]), (times, least, steps)):
        wrong = bool_or(wrong, bool_or(lower(length, low), greater(length, high)))
    return fits, wrong


def count_up(like: V, length: int) -> V:
    """0, 1, ... beside a value."""
    attrs = {"length": length, "dtype": DType.I64, "place": like.place}
    counted: V = arange.run(like.backend, type(like), (0, 1), attrs)
    return counted


def _check(
    log_probs: TensorSpec, targets: TensorSpec, lengths: TensorSpec, target_lengths: TensorSpec, blank: int
) -> None:
    log_probs.require(FLOAT)
    for spec in (targets, lengths, target_lengths):
        spec.require(INT)
    batch = log_probs.shape[:1]
    if log_probs.ndim != 3 or targets.ndim != 2 or {targets.shape[:1], lengths.shape, target_lengths.shape} != {batch}:
        raise shape_fault(
            "scores, targets and lengths do not fit together",
            expected="log_probs (batch, steps, classes), targets (batch, labels), and both lengths (batch,)",
            mend="pad the targets of all samples to one length; each sample has a length of its own",
        )
    if not 0 <= blank < log_probs.shape[2]:
        raise shape_fault(
            f"blank {blank} is no class",
            expected=f"0 to {log_probs.shape[2] - 1}" if log_probs.shape[2] else "at least one class, the blank",
            mend="the scores have a class for the blank beside those of the labels",
        )


# -- torch ---------------------------------------------------------------------------------------------------------
def _torch_ctc_loss(call: Call) -> Candidate | None:
    """torch's own kernels on the host; elsewhere they would wait for the lengths, and the decomposition computes."""
    spec, blank, live = call.tensor(0), call.attrs["blank"], call.attrs["live"]
    if not on_host(call) or not spec.numel:
        return None
    _, steps, classes = spec.shape
    dtype, wide = TO_TORCH[spec.dtype], TO_TORCH[statistics_dtype(spec)]
    backward = torch.ops.aten._ctc_loss_backward.Tensor

    def run(
        log_probs: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor, target_lengths: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        indices = targets.long(), lengths.long(), target_lengths.long()
        require_alignable("ctc_loss", *(x.numpy() for x in indices), steps=steps, classes=classes, blank=blank)
        x = log_probs.to(wide).transpose(0, 1)
        losses, alphas = torch._ctc_loss(x, *indices, blank, False)
        if not live[1]:
            return losses, None
        slopes = backward(torch.ones_like(losses), x, *indices, losses, alphas, blank, True).sub_(x.exp())
        inside = (torch.arange(steps)[:, None] < indices[1]) & (losses != math.inf)
        counts = inside[..., None] & (x != -math.inf)  # torch's share of what cannot be is -inf minus -inf
        slopes = slopes.masked_fill_(~counts, 0).transpose(0, 1).to(dtype)
        return losses if live[0] else None, slopes

    return run


# -- row -----------------------------------------------------------------------------------------------------------
def _sample(
    shape: tuple[int, ...], targets: object, lengths: list[int], target_lengths: list[int], blank: int = 0
) -> Sample:
    whole = [fixed(np.array(x), np.int64) for x in (targets, lengths, target_lengths)]
    return sample(uniform(-3, -0.1, shape), *whole, blank=blank, live=(True, True))


@op(
    torch=PerCall(_torch_ctc_loss),
    precision="high",
    packed="any",
    samples=[
        _sample((2, 4, 3), [[1, 2], [2, 2]], [4, 4], [2, 2]),
        _sample((3, 5, 4), [[0, 1, 3], [3, 0, -1], [1, 7, 2]], [5, 3, 2], [3, 2, 1], blank=2),
        _sample((2, 3, 2), np.zeros((2, 0)), [3, 1], [0, 0], blank=1),
        _sample((0, 3, 4), np.zeros((0, 2)), [], []),
    ],
    source="Graves, Fernandez, Gomez, Schmidhuber 2006, https://www.cs.toronto.edu/~graves/icml_2006.pdf",
)
def ctc_loss(
    log_probs: TensorSpec,
    targets: TensorSpec,
    lengths: TensorSpec,
    target_lengths: TensorSpec,
    *,
    blank: int,
    live: tuple[bool, ...],
) -> tuple[TensorSpec | None, ...]:
    """-log of the probability that the scores, blanks and repetitions taken out, read as the targets; and its slopes.

    The slopes are the derivatives of each sample's loss with respect to its scores: minus the share of each class at
    each step.  `live` says which of both are read: slopes come from the pass that the loss takes, and the gradient is a
    product then.  Steps behind a sample's length and targets behind its target length count for nothing.  Targets that
    no alignment reads cost infinity and have no slopes.

    Shapes: log_probs (batch, steps, classes), targets (batch, labels), lengths, target_lengths (batch,) -> (batch,),
    (batch, steps, classes).
    Dtypes: log_probs float, the others integers; losses float32 of half types, else the same; slopes as log_probs.
    Raises: BoundsError for lengths beyond the padded size, targets that are no class or the blank, on the host; where
    data cannot be looked at, the loss and the slopes of that sample are NaN.
    PyTorch: torch.nn.functional.ctc_loss(reduction="none"), whose gradient has exp(log_probs) added, as it takes
    log_probs for outputs of log_softmax.
    """
    _check(log_probs, targets, lengths, target_lengths, blank)
    return alive(live, statistics_of(log_probs, lengths.shape), log_probs)


@ctc_loss.gradient
def _(g, y, log_probs, *_, **__):
    if g[1] is not None or y[1] is None:
        return NotImplemented
    each = mask_where(g[0], is_inf(y[0]), 0.0)
    return y[1] * like(y[1], reshape(each, shape=(*each.shape, 1, 1))), None, None, None


@ctc_loss.decomposes
def _(log_probs, targets, lengths, target_lengths, *, blank, live):
    x = widened(log_probs)
    batch, steps, classes = x.shape
    states = 2 * targets.shape[1] + 1
    targets, lengths, target_lengths = (cast(v, dtype=DType.I64) for v in (targets, lengths, target_lengths))
    ends, times = (reshape(v, shape=(batch, 1)) for v in (target_lengths, lengths))
    fits, wrong = find_unalignable(targets, times, ends, steps=steps, classes=classes, blank=blank)
    # labels with blanks between them
    blanks = targets.new_full((batch, targets.shape[1], 1), blank)
    read = reshape(mask_where(targets, bool_not(fits), blank), shape=blanks.shape)
    pairs = reshape(cat(blanks, read, dim=2), shape=(batch, states - 1))
    labels = cat(pairs, targets.new_full((batch, 1), blank), dim=1)
    two_before = narrow(pad(labels, blank, padding=((0, 0), (2, 0)), mode="constant"), 1, 0, states)
    skips = bool_and(not_equal(labels, blank), not_equal(labels, two_before))
    # the lattice: a state stays, moves on, or skips a blank between two labels that differ
    classes_of = expand(reshape(labels, shape=(batch, 1, states)), shape=(batch, steps, states))
    moves = reshape(gather(x, classes_of, dim=2), shape=(batch, steps, 1, states))
    skipping = mask_where(moves, bool_not(reshape(skips, shape=(batch, 1, 1, states))), -math.inf)
    moves = cat(moves, moves, skipping, dim=2)
    place = count_up(targets, states)
    start = mask_where(x.new_full((batch, states), 0.0), greater(place, 0), -math.inf)
    alphas = log_band_scan(start, moves)
    at = expand(reshape(clamp(times, 0, steps), shape=(batch, 1, 1)), shape=(batch, 1, states))
    last = reshape(gather(alphas, at, dim=1), shape=(batch, states))
    is_end = bool_or(equal(place, ends * 2), equal(place, ends * 2 - 1))
    final = mask_where(last, bool_not(is_end), -math.inf)
    total = logsumexp(final, dims=(1,))
    losses = mask_where(reshape(-total, shape=(batch,)), reshape(wrong, shape=(batch,)), math.nan)
    loss_if_read = losses if live[0] else None
    if not live[1]:
        return loss_if_read, None
    leaves = exp(final - mask_where(total, equal(total, -math.inf), 0.0))
    elsewhere = not_equal(reshape(count_up(targets, steps + 1), shape=(1, steps + 1, 1)), at)
    seeds = mask_where(reshape(leaves, shape=(batch, 1, states)), elsewhere, 0.0)
    share = narrow(sum_ahead(seeds, shares(alphas, moves)), 1, 1, steps + 1)
    slopes = scatter(x.new_full(x.shape, 0.0), classes_of, -share, dim=2, update="add")
    return loss_if_read, like(log_probs, mask_where(slopes, reshape(wrong, shape=(batch, 1, 1)), math.nan))
