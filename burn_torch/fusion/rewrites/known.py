"""Known patterns: what people write in primitives and a row computes better, with kernels tuned by hand.

    e = exp(x - max(x)); e / sum(e)                       softmax
    (x - max(x)) - log(sum(exp(x - max(x))))              log_softmax
    -log_softmax(x)[target]                               cross_entropy
    (x - mean) / sqrt(var + eps) * gamma + beta           layer_norm
    x / sqrt(mean(x^2) + eps) * gamma                     rms_norm
    softmax(q k^T scale) v                                attention, which never writes the scores

Each is written in the ways that are usual.  A row that stands for a pattern can be joined to what lies around it, as if
its user had called it.  If another operation reads a value inside, a backward for example, the pattern is left as it
is; strict mode leaves every pattern, since rows round less often.  Optimizers and embeddings are rows from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, Spec, TensorSpec
from burn_torch.ops.attending import attention
from burn_torch.ops.extremes import amax
from burn_torch.ops.functions import exp, log, rsqrt, sqrt, square
from burn_torch.ops.indexing import gather
from burn_torch.ops.losses import cross_entropy
from burn_torch.ops.normalisation import layer_norm, rms_norm
from burn_torch.ops.op import Candidate
from burn_torch.ops.products import matmul
from burn_torch.ops.reductions import mean, sum, var  # the row
from burn_torch.ops.shapes import permute, reshape
from burn_torch.ops.softmaxes import log_softmax, softmax

__all__ = ["Form", "forms"]

Form = tuple[str, Candidate, Candidate, Sequence[Spec]]
"""A name, what people write, what computes it, and specs to learn the operations from."""

Value = Any


def forms() -> Iterator[Form]:
    """All of them, those first that others are made of."""
    x, row = _spec(4, 6), _spec(6)
    yield "softmax", _softmax, lambda x: softmax(x, dim=x.ndim - 1), [x]
    yield "log_softmax", _log_softmax, lambda x: log_softmax(x, dim=x.ndim - 1), [x]
    yield "log_softmax", _log_of_softmax, lambda x: log_softmax(x, dim=x.ndim - 1), [x]
    index = TensorSpec.of((4, 1), DType.I64, "cpu")
    yield "cross_entropy", _pick_class, _cross_entropy, [x, index]
    for centred in _CENTRED:
        for around, count in _AFFINE:
            yield "layer_norm", _norm(centred, around), _layer_norm, [x, *[row] * count, FLOAT_NUMBER]
    for scaled in _SCALED:
        for around, count in _AFFINE[2:]:
            yield "rms_norm", _norm(scaled, around), _rms_norm, [x, *[row] * count, FLOAT_NUMBER]
    heads = _spec(2, 3, 4, 6)
    yield "attention", _attention, _one_attention, [heads, heads, heads, FLOAT_NUMBER]
    yield "attention", _attend_with_bias, _biased_attention, [heads, heads, heads, FLOAT_NUMBER, _spec(2, 3, 4, 4)]


def _spec(*shape: int) -> TensorSpec:
    return TensorSpec.of(shape, DType.F32, "cpu")


def _last(x: Value) -> tuple[int]:
    return (x.ndim - 1,)


# -- softmax and its loss ------------------------------------------------------------------------------
def _softmax(x: Value) -> Value:
    e = exp(x - amax(x, dims=_last(x)))
    return e / sum(e, dims=_last(x))


def _log_softmax(x: Value) -> Value:
    shifted = x - amax(x, dims=_last(x))
    return shifted - log(sum(exp(shifted), dims=_last(x)))


def _log_of_softmax(x: Value) -> Value:
    return log(softmax(x, dim=x.ndim - 1))


def _pick_class(x: Value, index: Value) -> Value:
    return -gather(log_softmax(x, dim=x.ndim - 1), index, dim=1)


def _cross_entropy(x: Value, index: Value) -> Value:
    rows = index.shape[0]
    return reshape(cross_entropy(x, reshape(index, shape=(rows,)), None, None), shape=(rows, 1))


# -- norms ---------------------------------------------------------------------------------------------
def _by_products(x: Value, eps: Value) -> Value:
    away = x - mean(x, dims=_last(x))
    return away / sqrt(mean(away * away, dims=_last(x)) + eps)


def _by_squares(x: Value, eps: Value) -> Value:
    away = x - mean(x, dims=_last(x))
    return away / sqrt(mean(square(away), dims=_last(x)) + eps)


def _by_var(x: Value, eps: Value) -> Value:
    return (x - mean(x, dims=_last(x))) / sqrt(var(x, dims=_last(x), correction=0) + eps)


_CENTRED = (_by_products, _by_squares, _by_var)


def _rms_divided(x: Value, eps: Value) -> Value:
    return x / sqrt(mean(x * x, dims=_last(x)) + eps)


def _rms_squared(x: Value, eps: Value) -> Value:
    return x / sqrt(mean(square(x), dims=_last(x)) + eps)


def _rms_multiplied(x: Value, eps: Value) -> Value:
    return x * rsqrt(mean(x * x, dims=_last(x)) + eps)


def _rms_square_multiplied(x: Value, eps: Value) -> Value:
    return x * rsqrt(mean(square(x), dims=_last(x)) + eps)


_SCALED = (_rms_divided, _rms_squared, _rms_multiplied, _rms_square_multiplied)

_AFFINE: tuple[tuple[Callable[..., object], int], ...] = (
    (lambda y, gamma, beta: y * gamma + beta, 2),  # the whole before its parts
    (lambda y, gamma, beta: gamma * y + beta, 2),
    (lambda y, gamma: y * gamma, 1),
    (lambda y, gamma: gamma * y, 1),
    (lambda y: y, 0),
)


def _norm(normal: Callable[..., object], around: Callable[..., object]) -> Callable[..., object]:
    return lambda x, *given: around(normal(x, given[-1]), *given[:-1])


def _layer_norm(x: Value, *given: Value) -> Value:
    gamma, beta = [*given[:-1], None, None][:2]
    return layer_norm(x, gamma, beta, given[-1])[0]


def _rms_norm(x: Value, *given: Value) -> Value:
    return rms_norm(x, given[0] if len(given) > 1 else None, given[-1])[0]


# -- attention -----------------------------------------------------------------------------------------
def _attention(q: Value, k: Value, v: Value, scale: Value) -> Value:
    return matmul(softmax(matmul(q, _transpose(k)) * scale, dim=q.ndim - 1), v)


def _one_attention(q: Value, k: Value, v: Value, scale: Value) -> Value:
    return attention(q, k, v, None, None, scale, None, causal=False)[0]


def _attend_with_bias(q: Value, k: Value, v: Value, scale: Value, bias: Value) -> Value:
    return matmul(softmax(matmul(q, _transpose(k)) * scale + bias, dim=q.ndim - 1), v)


def _biased_attention(q: Value, k: Value, v: Value, scale: Value, bias: Value) -> Value:
    return attention(q, k, v, None, bias, scale, None, causal=False)[0]


def _transpose(x: Value) -> Value:
    return permute(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
