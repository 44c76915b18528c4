"""Losses that need care: cross entropy over classes and of pairs, written so that nothing overflows or becomes NaN.

A term 0 * log 0 counts as 0, here as in information theory: a class of probability 0, or of weight 0, adds nothing.
Losses come for each item; the layers in `nn` take means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import NumberSpec, Shape, TensorSpec
from burn_torch.ops.arithmetic import mul
from burn_torch.ops.bounds import check_numpy, indexing, require_indices
from burn_torch.ops.comparison import equal
from burn_torch.ops.faults import dtype_fault, shape_fault
from burn_torch.ops.functions import log, log1p
from burn_torch.ops.indexing import one_hot
from burn_torch.ops.laws import EndsHead
from burn_torch.ops.logic import bool_or
from burn_torch.ops.moments import check_statistics, like, statistics_dtype, statistics_of, wide_array, widened
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import alike, same_dtype
from burn_torch.ops.samples import Array, Sample, fixed, integers, sample, uniform
from burn_torch.ops.selection import clamp_min, mask_where
from burn_torch.ops.shapes import expand, reshape
from burn_torch.ops.signature import Operand
from burn_torch.ops.smooth_activations import sigmoid
from burn_torch.ops.softmaxes import log_softmax, softmax
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive, Value


# -- what the rows of class targets share ---------------------------------------------------------------
def _check_classes(
    logits: TensorSpec, targets: TensorSpec, weight: TensorSpec | None, smoothing: Operand | None
) -> TensorSpec:
    # gives the spec of one number an item: a loss of half types is float32, as it is a sum
    same_dtype(logits.require(FLOAT), weight)
    require_indices(targets)
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise shape_fault(
            "logits and targets do not fit together",
            expected="logits (items, classes) and targets (items,)",
            mend="flatten all axes but that of classes into one, for example logits.reshape(-1, classes)",
        )
    if weight is not None and weight.shape != logits.shape[1:]:
        raise shape_fault(
            "the weights do not fit the classes",
            expected=f"weight {logits.shape[1:]}, one number a class",
            mend="give one weight for each class",
        )
    if smoothing is not None and (not isinstance(smoothing, NumberSpec) or smoothing.kind == "bool"):
        raise dtype_fault("smoothing is no number", expected="a number from 0 to 1, or None", mend="pass a float")
    return statistics_of(logits, targets.shape)


def _without_pads(targets: Any, pads: tuple[int, ...], where: Any) -> tuple[Primitive, Primitive]:
    # targets that can be looked up, and a mask of the items that count for nothing (None if there can be none)
    if not pads:
        return targets, None
    padded = targets == pads[0]
    for token in pads[1:]:
        padded = padded | (targets == token)
    return where(padded, 0, targets), padded


def _traced_coefficients(
    targets: Value, weight: Value | None, smoothing: Value | None, pads: Shape, classes: int, dtype: DType
) -> Value:
    # (items, classes): what -log p is multiplied by, the smoothed target distribution times the class weight
    padded = None
    for token in pads:
        same = equal(targets, token)
        padded = same if padded is None else bool_or(padded, same)
    if padded is not None:
        targets = mask_where(targets, padded, 0)
    rest = 0.0 if smoothing is None else smoothing / classes
    peak = 1.0 if smoothing is None else 1.0 - smoothing + rest
    q = one_hot(targets, peak, rest, num_classes=classes, axis=1, dtype=dtype)
    if weight is not None:
        q = _product(q, weight)  # a class that an item has no part in adds nothing, though its weight be infinite
    if padded is not None:
        q = mask_where(q, expand(reshape(padded, shape=(*padded.shape, 1)), shape=q.shape), 0.0)
    return q


def _product(coefficients: Value, logs: Value) -> Value:
    # coefficients * logs, where 0 * log 0 is 0
    return mask_where(coefficients * logs, equal(coefficients, 0.0), 0.0)


def _column(x: Value) -> Value:
    return reshape(x, shape=(*x.shape, 1))


def _torch_nll(logs: Tensor, targets: Tensor, weight: Tensor | None, smoothing: float | None, pads: Shape) -> Tensor:
    # for each item; logs in the type to compute in
    targets, padded = _without_pads(targets, pads, torch.where)
    losses = -logs.gather(1, targets.unsqueeze(1)).squeeze(1)
    if weight is not None:
        weight = weight.to(logs.dtype)
        chosen = weight[targets]
        losses = torch.where(chosen == 0, 0.0, losses * chosen)
    if smoothing:
        terms = logs if weight is None else torch.where(weight == 0, 0.0, logs * weight)
        losses = losses * (1 - smoothing) - terms.sum(1) * (smoothing / logs.shape[1])
    return losses if padded is None else losses.masked_fill_(padded, 0)


def _numpy_nll(
    logs: Array, targets: Array, weight: Array | None, smoothing: float | None, pads: Shape, check: Candidate
) -> Array:
    targets, padded = _without_pads(targets, pads, np.where)
    check(targets)
    losses = -np.take_along_axis(logs, targets[:, None].astype(np.int64), 1)[:, 0]
    if weight is not None:
        weight = wide_array(weight)
        chosen = weight[targets]
        losses = np.where(chosen == 0, 0, losses * chosen)
    if smoothing:
        terms = logs if weight is None else np.where(weight == 0, 0, logs * weight)
        losses = losses * (1 - smoothing) - np.sum(terms, axis=1) * (smoothing / logs.shape[1])
    return losses if padded is None else np.where(padded, 0, losses)


def _samples(low: float, high: float) -> list[Sample]:
    def case(
        items: int, classes: int, weight: Candidate | None = None, smoothing: float | None = None, pads: Shape = ()
    ) -> Sample:
        logits = uniform(low, high, (items, classes))
        return sample(logits, integers(0, classes, (items,)), weight, smoothing, pad_tokens=pads)

    weight = uniform(0.5, 1.5, (5,))
    return [
        case(4, 5),
        case(6, 5, weight),
        case(4, 5, weight, 0.1),
        case(7, 5, None, 0.3, (1, 2)),
        case(7, 5, weight, 0.2, (0,)),
        sample(
            uniform(low, high, (3, 5)), fixed([4, -100, 2], np.int64), None, None, pad_tokens=(-100,)
        ),  # a pad that is no class
        case(0, 5, weight, 0.2),
    ]


# -- negative log likelihood -------------------------------------------------------------------------------
def _torch_losses(logs_of: Callable[[Tensor, torch.dtype], Tensor]) -> PerCall:
    def build(call: Call) -> Candidate:
        spec, pads = call.tensor(0), call.attrs["pad_tokens"]
        wide = TO_TORCH[statistics_dtype(spec)]

        def run(x: Tensor, targets: Tensor, weight: Tensor | None, smoothing: float | None) -> Tensor:
            return _torch_nll(logs_of(x, wide), targets, weight, smoothing, pads)

        return indexing(call, run, spec.shape[1])

    return PerCall(build)


def _numpy_negative_log_likelihood(call: Call) -> Candidate:
    pads, classes = call.attrs["pad_tokens"], call.tensor(0).shape[1]

    def run(logs: Array, targets: Array, weight: Array | None, smoothing: float | None) -> Array:
        return _numpy_nll(
            wide_array(logs), targets, weight, smoothing, pads, lambda indices: check_numpy(call, indices, classes)
        )

    return run


@op(
    torch=_torch_losses(lambda x, wide: x.to(wide)),
    numpy=PerCall(_numpy_negative_log_likelihood),
    precision="high",
    samples=_samples(-3, -0.1),
)
def negative_log_likelihood(
    log_probabilities: TensorSpec,
    targets: TensorSpec,
    weight: TensorSpec | None,
    smoothing: Operand | None,
    *,
    pad_tokens: tuple[int, ...] = (),
) -> TensorSpec:
    """Cross entropy from logarithms of probabilities, for each item; see `cross_entropy`.

    Shapes: log_probabilities (items, classes), targets (items,), weight (classes,) -> (items,).
    Dtypes: float, all the same; targets any integer.  Half types compute in float32, and so are their losses.
    Raises: BoundsError for a target outside [0, classes) that is no pad token, where the data is on the host.
    PyTorch: torch.nn.functional.nll_loss(reduction="none"), which has no smoothing and one pad token.
    """
    return _check_classes(log_probabilities, targets, weight, smoothing)


@negative_log_likelihood.decomposes
def _(log_probabilities, targets, weight, smoothing, *, pad_tokens):
    logs = widened(log_probabilities)
    weight = weight if weight is None else widened(weight)
    q = _traced_coefficients(targets, weight, smoothing, pad_tokens, logs.shape[1], logs.dtype)
    return reshape(-sum(_product(q, logs), dims=(1,)), shape=targets.shape)


# -- cross entropy -------------------------------------------------------------------------------------------
def _numpy_log_softmax(logits: Array, axis: int = 1) -> Array:
    shifted = logits - np.max(logits, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _numpy_cross_entropy(call: Call) -> Candidate:
    run = _numpy_negative_log_likelihood(call)
    return lambda logits, *others: run(_numpy_log_softmax(wide_array(logits)), *others)


@op(
    torch=_torch_losses(lambda x, wide: torch.log_softmax(x, 1, dtype=wide)),
    numpy=PerCall(_numpy_cross_entropy),
    samples=_samples(-3, 3),
    source="Szegedy et al. 2015, section 7 (smoothing), https://arxiv.org/abs/1512.00567",
)
def cross_entropy(
    logits: TensorSpec,
    targets: TensorSpec,
    weight: TensorSpec | None,
    smoothing: Operand | None,
    *,
    pad_tokens: tuple[int, ...] = (),
) -> TensorSpec:
    """-sum(q * weight * log_softmax(logits)) over the classes, for each item.

        q = (1 - smoothing) * one_hot(target) + smoothing / classes

    An item whose target is one of pad_tokens has loss 0 and no gradient; a pad token need not be a class.
    A class of weight 0 adds nothing, even where its logit is -inf.  No mean is taken: with weights it is
    sum(losses) / sum(weight[targets]) over the items that are no padding.

    Shapes: logits (items, classes), targets (items,), weight (classes,) -> (items,).
    Dtypes: float, all the same; targets any integer; smoothing a number or None.  Half types compute in float32, and
    so are their losses.
    Raises: BoundsError for a target outside [0, classes) that is no pad token, where the data is on the host.
    PyTorch: torch.nn.functional.cross_entropy(reduction="none"), whose ignore_index is one pad token.
    """
    return _check_classes(logits, targets, weight, smoothing)


@cross_entropy.gradient
def _(g, y, logits, targets, weight, smoothing, *, pad_tokens):
    dlogits = cross_entropy_backward(g, logits, targets, weight, smoothing, pad_tokens=pad_tokens)
    if weight is None:
        return dlogits, None, None, None
    wide = widened(logits)
    q = _traced_coefficients(targets, None, smoothing, pad_tokens, logits.shape[1], wide.dtype)
    dweight = -sum(_product(q, log_softmax(wide, dim=1)) * _column(g), dims=(0,))
    return dlogits, None, like(weight, reshape(dweight, shape=weight.shape)), None


@cross_entropy.decomposes
def _(logits, targets, weight, smoothing, *, pad_tokens):
    logs = log_softmax(widened(logits), dim=1)
    weight = weight if weight is None else widened(weight)
    return negative_log_likelihood(logs, targets, weight, smoothing, pad_tokens=pad_tokens)


def _torch_cross_entropy_backward(call: Call) -> Candidate:
    spec, pads = call.tensor(1), call.attrs["pad_tokens"]
    classes = spec.shape[1]
    dtype, wide = TO_TORCH[spec.dtype], TO_TORCH[statistics_dtype(spec)]

    def run(
        g: Tensor,
        logits: Tensor,
        targets: Tensor,
        weight: Tensor | None,
        smoothing: float | None,
    ) -> Tensor:
        targets, padded = _without_pads(targets, pads, torch.where)
        if padded is not None:
            g = g.masked_fill(padded, 0)
        even, rest = smoothing / classes if smoothing else 0.0, 1 - smoothing if smoothing else 1.0
        y = torch.softmax(logits, 1, dtype=wide)
        if weight is None:
            peak = y.new_full((len(targets), 1), rest)
        else:
            weight = weight.to(wide)
            peak = (weight[targets] * rest).unsqueeze(1)
            y.mul_(peak + weight.sum() * even if smoothing else peak)
        if smoothing:
            y.sub_(even if weight is None else weight * even)
        # g comes last: an infinite one, in two terms, would leave infinity - infinity
        return y.scatter_add_(1, targets.unsqueeze(1), peak.neg_()).mul_(g.unsqueeze(1)).to(dtype)

    return indexing(call, run, classes, position=2)


def _numpy_cross_entropy_backward(call: Call) -> Candidate:
    pads, classes = call.attrs["pad_tokens"], call.tensor(1).shape[1]

    def run(g: Array, logits: Array, targets: Array, weight: Array | None, smoothing: float | None) -> Array:
        targets, padded = _without_pads(targets, pads, np.where)
        check_numpy(call, targets, classes)
        smoothing = smoothing or 0.0
        g, logits = wide_array(g), wide_array(logits)
        q = np.full(logits.shape, smoothing / classes, logits.dtype)
        q[np.arange(len(targets)), targets] += 1 - smoothing
        if weight is not None:
            q = np.where(q == 0, 0, q * weight)
        if padded is not None:
            q[padded] = 0
            g = np.where(padded, 0, g)  # even where it is NaN
        p = np.exp(_numpy_log_softmax(logits))
        return g[:, None] * (p * np.sum(q, axis=1, keepdims=True) - q)

    return run


def _backward_samples() -> list[Sample]:
    return [
        Sample((uniform(-1, 1, (7 if s.attrs["pad_tokens"] == (0,) else 4,)), *s.inputs), s.attrs)
        for s in [*_samples(-3, 3)[:1], *_samples(-3, 3)[2:3], *_samples(-3, 3)[4:5]]
    ] + [sample(uniform(-1, 1, (0,)), uniform(-1, 1, (0, 5)), integers(0, 5, (0,)), None, 0.2, pad_tokens=())]


@op(
    torch=PerCall(_torch_cross_entropy_backward),
    numpy=PerCall(_numpy_cross_entropy_backward),
    statistics=(0,),
    laws=[EndsHead("linear_cross_entropy_with_gradients", "cross_entropy")],
    samples=_backward_samples(),
)
def cross_entropy_backward(
    g: TensorSpec,
    logits: TensorSpec,
    targets: TensorSpec,
    weight: TensorSpec | None,
    smoothing: Operand | None,
    *,
    pad_tokens: tuple[int, ...] = (),
) -> TensorSpec:
    """The gradient of logits from that of `cross_entropy`: g * (softmax(logits) * sum(w q) - w q).

    Shapes: g (items,), logits (items, classes), targets (items,), weight (classes,) -> (items, classes).
    Dtypes: float, all the same, g of half types float32; targets any integer.  Half types compute in float32.
    """
    _check_classes(logits, targets, weight, smoothing)
    check_statistics(logits, targets.shape, g)
    return logits


@cross_entropy_backward.decomposes
def _(g, logits, targets, weight, smoothing, *, pad_tokens):
    wide = widened(logits)
    weight = weight if weight is None else widened(weight)
    q = _traced_coefficients(targets, weight, smoothing, pad_tokens, logits.shape[1], wide.dtype)
    return like(logits, _column(g) * (softmax(wide, dim=1) * sum(q, dims=(1,)) - q))


# -- cross entropy with probabilities ---------------------------------------------------------------------------
def _torch_cross_entropy_with_probabilities(call: Call) -> Candidate:
    spec = call.results[0]
    dtype, wide = TO_TORCH[spec.dtype], TO_TORCH[statistics_dtype(spec)]

    def run(logits: Tensor, probabilities: Tensor) -> Tensor:
        logs = torch.log_softmax(logits, -1, dtype=wide)
        return torch.where(probabilities == 0, 0.0, logs * probabilities).sum(-1).neg_().to(dtype)

    return run


def _numpy_cross_entropy_with_probabilities(logits: Array, probabilities: Array) -> Array:
    logs = _numpy_log_softmax(wide_array(logits), axis=-1)
    return -np.sum(np.where(probabilities == 0, 0, logs * probabilities), axis=-1)


@op(
    torch=PerCall(_torch_cross_entropy_with_probabilities),
    numpy=_numpy_cross_entropy_with_probabilities,
    precision="high",
    samples=[
        sample(uniform(-3, 3, (4, 5)), uniform(0.1, 1, (4, 5))),
        sample(uniform(-3, 3, (2, 3, 5)), uniform(0.1, 1, (2, 3, 5))),
        sample(uniform(-3, 3, (5,)), uniform(0.1, 1, (5,))),
        sample(uniform(-3, 3, (0, 5)), uniform(0.1, 1, (0, 5))),
    ],
)
def cross_entropy_with_probabilities(logits: TensorSpec, probabilities: TensorSpec) -> TensorSpec:
    """-sum(probabilities * log_softmax(logits)) over the last axis, for each item.

    A class of probability 0 adds nothing, even where its logit is -inf.  The probabilities need not sum to 1.

    Shapes: logits, probabilities (*batch, classes) -> (*batch).
    Dtypes: float, both the same; half types compute in float32.
    PyTorch: torch.nn.functional.cross_entropy with probabilities as target, classes on axis 1, reduction="none".
    """
    alike(logits, probabilities)
    if logits.ndim < 1:
        raise shape_fault("there is no axis of classes", expected="(*batch, classes)", mend="insert an axis")
    return logits.with_shape(logits.shape[:-1])


@cross_entropy_with_probabilities.gradient
def _(g, y, logits, probabilities):
    last, each = logits.ndim - 1, _column(g)
    total = sum(probabilities, dims=(last,))
    return each * (softmax(logits, dim=last) * total - probabilities), -(each * log_softmax(logits, dim=last))


# -- binary cross entropy -------------------------------------------------------------------------------------
@op(
    torch=lambda logits, targets: functional.binary_cross_entropy_with_logits(logits, targets, reduction="none"),
    numpy=lambda logits, targets: (1 - targets) * logits - (np.minimum(logits, 0) - np.log1p(np.exp(-np.abs(logits)))),
    pointwise="((1.0 - {1}) * {0} - (minimum({0}, 0.0) - log1p(exp(-abs({0})))))",
    cost="cheap",
    precision="high",
    samples=[
        sample(uniform(-3, 3), uniform(0, 1)),
        sample(uniform(-3, 3, ()), uniform(0, 1, ())),
        sample(uniform(-3, 3, (0, 2)), uniform(0, 1, (0, 2))),
    ],
)
def binary_cross_entropy_with_logits(logits: TensorSpec, targets: TensorSpec) -> TensorSpec:
    """-(t * log(p) + (1 - t) * log(1 - p)) with p = sigmoid(logits), element by element.

    Computed as (1 - t) * logits - log_sigmoid(logits), which overflows for no finite logit.

    Shapes: logits, targets (*s) -> (*s).  Dtypes: float, both the same.
    PyTorch: torch.nn.functional.binary_cross_entropy_with_logits(reduction="none").
    """
    return alike(logits, targets)


@binary_cross_entropy_with_logits.gradient
def _(g, y, logits, targets):
    return g * (sigmoid(logits) - targets), -mul(g, logits)


def _log_pair(
    p: Primitive, t: Primitive, log: Candidate, log1p: Candidate, at_least: Candidate
) -> tuple[Primitive, ...]:
    # t * log p and (1 - t) * log(1 - p), the logarithms kept at -100 or above
    return t * at_least(log(p), -100.0), (1 - t) * at_least(log1p(-p), -100.0)


def _torch_binary_cross_entropy(call: Call) -> Candidate:
    spec = call.results[0]
    dtype, wide = TO_TORCH[spec.dtype], TO_TORCH[statistics_dtype(spec)]

    def run(probabilities: Tensor, targets: Tensor) -> Tensor:
        yes, no = _log_pair(probabilities.to(wide), targets.to(wide), torch.log, torch.log1p, torch.clamp_min)
        return yes.add_(no).neg_().to(dtype)

    return run


def _numpy_binary_cross_entropy(probabilities: Array, targets: Array) -> Array:
    yes, no = _log_pair(wide_array(probabilities), wide_array(targets), np.log, np.log1p, np.maximum)
    return -(yes + no)


@op(
    torch=PerCall(_torch_binary_cross_entropy),
    numpy=_numpy_binary_cross_entropy,
    pointwise="-({1} * maximum(log({0}), -100.0) + (1.0 - {1}) * maximum(log1p(-{0}), -100.0))",
    cost="cheap",
    precision="high",
    samples=[
        sample(uniform(0.05, 0.95), uniform(0, 1)),
        sample(uniform(0.05, 0.95, ()), uniform(0, 1, ())),
        sample(uniform(0.05, 0.95, (0, 2)), uniform(0, 1, (0, 2))),
    ],
)
def binary_cross_entropy(probabilities: TensorSpec, targets: TensorSpec) -> TensorSpec:
    """-(t * log(p) + (1 - t) * log(1 - p)), element by element, with logarithms kept at -100 or above.

    So a certain mistake costs 100.  Its gradient, (p - t) / max(p * (1 - p), 1e-12), is finite everywhere, and 0 where
    p is t.  A p outside [0, 1] gives NaN.

    Shapes: probabilities, targets (*s) -> (*s).  Dtypes: float, both the same; half types compute in float32.
    PyTorch: torch.nn.functional.binary_cross_entropy(reduction="none"), which raises outside [0, 1].
    """
    return alike(probabilities, targets)


@binary_cross_entropy.gradient
def _(g, y, probabilities, targets):
    p, t = widened(probabilities), widened(targets)
    slope = (p - t) / clamp_min(p * (1 - p), 1e-12)
    odds = clamp_min(log1p(-p), -100.0) - clamp_min(log(p), -100.0)
    return like(probabilities, widened(g) * slope), like(targets, widened(g) * odds)
