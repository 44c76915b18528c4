"""How rows compute many samples at once: what `vmap` and `per_sample_grad` need of the table.

Each rule takes inputs with the samples on a further axis in front and computes all of them in one call, or a few.
Most rows fall into four groups, so they are declared here together:

    element-wise    the row itself, axes aligned (no rule: `pointwise` says it)
    shifted         the row itself on one axis more: attributes that name axes move by one
    folded          rows over items (convolution, pooling): samples and items become one axis
    leading         rows over the last axis, which take any axes in front
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.ops.op import REGISTRY, Call, Candidate, Op
from burn_torch.ops.value import Primitive, Value

__all__ = ["aligned", "beside", "is_tensor", "refuse_mixing"]

_expand: Final = REGISTRY["expand"]
_permute: Final = REGISTRY["permute"]
_reshape: Final = REGISTRY["reshape"]
_sum_to_shape: Final = REGISTRY["sum_to_shape"]


# -- helpers -----------------------------------------------------------------------------------------------
def is_tensor(x: Primitive) -> bool:
    """Tells if an input of a rule is a tensor: no number, not absent."""
    return isinstance(x, Value) and not x.is_number


def beside(n: int, many: bool, x: Primitive) -> Primitive:
    """x with the samples in front; one that all samples share is repeated, as a view."""
    if many or not is_tensor(x):
        return x
    return _expand(_reshape(x, shape=(1, *x.shape)), shape=(n, *x.shape))


def aligned(many: bool, x: Primitive, ndim: int) -> Primitive:
    """x of `ndim` axes a sample: axes of size 1 behind that of the samples, where broadcasting would insert them."""
    if not many or x.ndim == ndim + 1:
        return x
    return _reshape(x, shape=(x.shape[0], *(1,) * (ndim + 1 - x.ndim), *x.shape[1:]))


def _axes(many: bool, x: Primitive) -> int:
    return int(x.ndim) - many


def _several(y: object) -> tuple[Primitive, ...]:
    return y if isinstance(y, tuple) else (y,)


# -- groups ---------------------------------------------------------------------------------------------------
_MOVED: Final[dict[str, Callable[[Any, int], Any]]] = {
    "dim": lambda dim, n: dim + 1,
    "axis": lambda axis, n: axis + 1,
    "dims": lambda dims, n: tuple(dim + 1 for dim in dims),
    "axes": lambda axes, n: tuple(axis + 1 for axis in axes),
    "shape": lambda shape, n: (n, *shape),
    "ranges": lambda ranges, n: ((0, n, 1), *ranges),
    "padding": lambda padding, n: ((0, 0), *padding),
    "times": lambda times, n: (1, *times),
}
"""How an attribute that names axes changes when one more axis stands in front."""


def _shift_axes(row: Op) -> Candidate:
    def rule(n: int, many: Primitive, *inputs: Primitive, **attrs: Primitive) -> Primitive:
        moved = {name: _MOVED[name](value, n) if name in _MOVED else value for name, value in attrs.items()}
        return row(*[beside(n, m, x) for m, x in zip(many, inputs, strict=True)], **moved)

    return rule


def _leading(row: Op, *items: int) -> Candidate:
    """Inputs at `items` take any axes in front; the others must be shared."""

    def rule(n: int, many: Primitive, *inputs: Primitive, **attrs: Primitive) -> Primitive:
        if any(m and i not in items for i, m in enumerate(many)):
            return NotImplemented
        return row(*[beside(n, many[i], x) if i in items else x for i, x in enumerate(inputs)], **attrs)

    return rule


def _fold_samples(row: Op, *items: int) -> Candidate:
    """Inputs at `items`, and all outputs, have an axis of items in front; the other inputs must be shared."""

    def rule(n: int, many: Primitive, *inputs: Primitive, **attrs: Primitive) -> Primitive:
        if any(m and i not in items for i, m in enumerate(many)):
            return NotImplemented
        if any(is_tensor(inputs[i]) and not _axes(many[i], inputs[i]) for i in items):
            return NotImplemented
        y = row(*[_fold(beside(n, many[i], x)) if i in items else x for i, x in enumerate(inputs)], **attrs)
        parts = [None if part is None else _unfold(n, part) for part in _several(y)]
        return tuple(parts) if isinstance(y, tuple) else parts[0]

    return rule


def _fold(x: Primitive) -> Primitive:
    return _reshape(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:])) if is_tensor(x) else x


def _unfold(n: int, y: Primitive) -> Primitive:
    return _reshape(y, shape=(n, y.shape[0] // n, *y.shape[1:]))


_SHIFTED: Final = """
    reshape flip roll repeat triu tril slice slice_assign diagonal diagonal_assign cat split pad unfold unfold_backward
    gather scatter last_writer scatter_distinct one_hot cross fft rfft irfft
    sum mean prod amax amin argmax argmin max_with_indices min_with_indices any all var var_mean logsumexp
    cumsum cumprod linear_scan cummax_with_indices cummin_with_indices cummax cummin
    sort_with_indices topk_with_indices median_with_indices
    softmax softmax_backward log_softmax log_softmax_backward quiet_softmax
    lu qr cholesky eigh svd det cofactors slogdet pinv over_gaps searchsorted
"""

_LEADING: Final = {
    "layer_norm": (0,),
    "rms_norm": (0,),
    "cross_entropy_with_probabilities": (0, 1),
    "to_place": (0,),
    "connected_components": (0,),
}

_FOLDED: Final[dict[str, tuple[int, ...]]] = {
    "conv_transpose": (0,),
    "deform_conv": (0, 1, 3),
    "unfold4d": (0,),
    "fold4d": (0,),
    "max_pool_with_indices": (0,),
    "max_pool_with_indices_backward": (0, 1),
    "max_pool_at": (0, 1),
    "avg_pool": (0,),
    "avg_pool_backward": (0,),
    "adaptive_avg_pool": (0,),
    "adaptive_avg_pool_backward": (0,),
    "interpolate": (0,),
    "interpolate_backward": (0,),
    "grid_sample_2d": (0, 1),
    "grid_sample_2d_backward": (0, 1, 2),
    "grid_sample_2d_derivative": (0, 1),
    "grid_sample_2d_scatter": (0, 1),
    "ctc_loss": (0, 1, 2, 3),
    "band_scan": (0, 1),
    "log_band_scan": (0, 1),
    "group_norm": (0,),
    "batch_norm_inference": (0,),
    "negative_log_likelihood": (0, 1),
    "cross_entropy": (0, 1),
    "cross_entropy_backward": (0, 1, 2),
}

for _name in _SHIFTED.split():
    REGISTRY[_name].batched(_shift_axes(REGISTRY[_name]))
for _name, _items in _LEADING.items():
    REGISTRY[_name].batched(_leading(REGISTRY[_name], *_items))
for _name, _items in _FOLDED.items():
    REGISTRY[_name].batched(_fold_samples(REGISTRY[_name], *_items))


# -- shapes -----------------------------------------------------------------------------------------------------
@_permute.batched
def _(n, many, x, *, axes):
    return _permute(x, axes=(0, *(axis + 1 for axis in axes)))


@_expand.batched
def _(n, many, x, *, shape):
    return _expand(aligned(True, x, len(shape)), shape=(n, *shape))


@_sum_to_shape.batched
def _(n, many, x, *, shape):
    y = _sum_to_shape(x, shape=(n, *(1,) * (x.ndim - 1 - len(shape)), *shape))
    return _reshape(y, shape=(n, *shape))


# -- products ---------------------------------------------------------------------------------------------------
_matmul: Final = REGISTRY["matmul"]
_linear: Final = REGISTRY["linear"]


@_matmul.batched
def _matmul_of_each(n: int, many: Primitive, lhs: Primitive, rhs: Primitive) -> Primitive:
    ndim = max(_axes(many[0], lhs), _axes(many[1], rhs))
    return _matmul(aligned(many[0], lhs, ndim), aligned(many[1], rhs, ndim))


def _of_each_system(row: Op) -> Candidate:
    """A row of matrices and right sides, whose batch axes broadcast."""

    def rule(n: int, many: Primitive, a: Primitive, b: Primitive, **attrs: Primitive) -> Primitive:
        ndim = max(_axes(many[0], a), _axes(many[1], b))
        return row(aligned(many[0], a, ndim), aligned(many[1], b, ndim), **attrs)

    return rule


for _name in ("solve", "solve_triangular"):
    REGISTRY[_name].batched(_of_each_system(REGISTRY[_name]))


@_linear.batched
def _(n, many, x, weight, bias):
    if not many[1] and not many[2]:
        return _linear(x, weight, bias)
    axes = max(_axes(many[0], x), 2)
    flat = _axes(many[0], x) == 1
    rows = _reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1])) if flat else x
    y = _matmul_of_each(n, many[:2], rows, weight)
    if bias is not None:
        y = y + aligned(many[2], bias, axes)
    return _reshape(y, shape=(n, y.shape[-1])) if flat else y


_prelu: Final = REGISTRY["prelu"]
_prelu_folded: Final = _fold_samples(_prelu, 0)


@_prelu.batched
def _(n, many, x, alpha):
    result = _prelu_folded(n, many, x, alpha)
    if result is not NotImplemented:
        return result
    x, alpha = beside(n, many[0], x), beside(n, many[1], alpha)
    axes, channels = x.ndim - 1, alpha.shape[1]
    around = (1,) * axes if channels == 1 else (1, channels, *(1,) * (axes - 2))
    return REGISTRY["mask_where"](x * _reshape(alpha, shape=(n, *around)), x > 0.0, x)


# -- convolution: a batch of samples with a weight each is one convolution in groups ------------------------------
_conv: Final = REGISTRY["conv"]
_input_gradient: Final = REGISTRY["conv_input_gradient"]
_weight_gradient: Final = REGISTRY["conv_weight_gradient"]
_conv_folded: Final = _fold_samples(_conv, 0)
_input_gradient_folded: Final = _fold_samples(_input_gradient, 0)


def _side_by_side(x: Primitive) -> Primitive:
    """(n, batch, channels, *s) as (batch, n * channels, *s)."""
    n, batch, channels, *size = x.shape
    x = _permute(x, axes=(1, 0, *range(2, x.ndim)))
    return _reshape(x, shape=(batch, n * channels, *size))


def _apart(n: int, y: Primitive) -> Primitive:
    batch, channels, *size = y.shape
    y = _reshape(y, shape=(batch, n, channels // n, *size))
    return _permute(y, axes=(1, 0, *range(2, y.ndim)))


@_conv.batched
def _(n, many, x, weight, bias, *, groups, **settings):
    if not many[1] and not many[2]:
        return _conv_folded(n, many, x, weight, bias, groups=groups, **settings)
    x, weight, bias = (beside(n, m, v) for m, v in zip(many, (x, weight, bias), strict=True))
    bias = None if bias is None else _fold(bias)
    return _apart(n, _conv(_side_by_side(x), _fold(weight), bias, groups=n * groups, **settings))


@_input_gradient.batched
def _(n, many, g, weight, *, groups, **settings):
    if not many[1]:
        return _input_gradient_folded(n, many, g, weight, groups=groups, **settings)
    g, weight = beside(n, many[0], g), beside(n, many[1], weight)
    return _apart(n, _input_gradient(_side_by_side(g), _fold(weight), groups=n * groups, **settings))


@_weight_gradient.batched
def _(n, many, x, g, *, groups, **settings):
    x, g = beside(n, many[0], x), beside(n, many[1], g)
    return _unfold(n, _weight_gradient(_side_by_side(x), _side_by_side(g), groups=n * groups, **settings))


# -- rows by index: the tables of all samples stand below each other ------------------------------------------------
_arange: Final = REGISTRY["arange"]
_cast: Final = REGISTRY["cast"]
_embedding: Final = REGISTRY["embedding"]
_embedding_backward: Final = REGISTRY["embedding_backward"]
_embedding_onto_backward: Final = REGISTRY["embedding_onto_backward"]
_select: Final = REGISTRY["select"]
_linear_index: Final = REGISTRY["linear_index"]
_row_ranks: Final = REGISTRY["row_ranks"]
_amin: Final = REGISTRY["amin"]


def _below(n: int, indices: Primitive, rows: int) -> Any:
    """Indices into tables of `rows` each, one a sample, as indices into all of them."""
    attrs = {"length": n, "dtype": DType.I64, "place": indices.place}
    first = _arange.run(indices.backend, type(indices), (0, rows), attrs)
    return _cast(indices, dtype=DType.I64) + _reshape(first, shape=(n, *(1,) * (indices.ndim - 1)))


@_embedding.batched
def _(n, many, weight, indices):
    if not many[0]:
        return _embedding(weight, indices)
    return _embedding(_fold(weight), _below(n, beside(n, many[1], indices), weight.shape[1]))


@_embedding_backward.batched
def _(n, many, g, indices, *, rows):
    indices = _below(n, beside(n, many[1], indices), rows)
    return _unfold(n, _embedding_backward(beside(n, many[0], g), indices, rows=n * rows))


@_embedding_onto_backward.batched
def _(n, many, x, g, indices):
    x = beside(n, many[0], x)
    indices = _below(n, beside(n, many[2], indices), x.shape[1])
    return _unfold(n, _embedding_onto_backward(_fold(x), beside(n, many[1], g), indices))


@_select.batched
def _(n, many, x, indices, *, dim):
    if not many[1]:
        return _select(x, indices, dim=dim + 1)
    count = indices.shape[1]
    if not many[0]:
        y = _select(x, _reshape(indices, shape=(n * count,)), dim=dim)
        y = _reshape(y, shape=(*x.shape[:dim], n, count, *x.shape[dim + 1 :]))
        return _permute(y, axes=(dim, *range(dim), *range(dim + 1, y.ndim)))
    front = _permute(x, axes=(0, dim + 1, *range(1, dim + 1), *range(dim + 2, x.ndim)))
    chosen = _reshape(_below(n, indices, x.shape[dim + 1]), shape=(n * count,))
    y = _unfold(n, _select(_fold(front), chosen, dim=0))
    return _permute(y, axes=(0, *range(2, dim + 2), 1, *range(dim + 2, y.ndim)))


@_row_ranks.batched
def _(n, many, x):
    count = x.shape[1]
    places = _unfold(n, _row_ranks(_fold(x)))  # among the rows of all samples, which keeps the order of each one's own
    if not count:
        return places
    keys = _reshape(_below(n, places, n * count), shape=(n * count, 1))  # the sample first, then the place
    ranks = _unfold(n, _row_ranks(keys))
    return ranks - _amin(ranks, dims=(1,))


# -- segments: the segments of all samples stand behind each other, what lies between two samples is one more ----------
_cat: Final = REGISTRY["cat"]
_slice: Final = REGISTRY["slice"]
_pad: Final = REGISTRY["pad"]
_segment_ids: Final = REGISTRY["segment_ids"]
_segment_expand: Final = REGISTRY["segment_expand"]
_segment_reduce: Final = REGISTRY["segment_reduce"]
_grouped_matmul: Final = REGISTRY["grouped_matmul"]
_grouped_outer: Final = REGISTRY["grouped_outer"]


def _joined_offsets(n: int, many: bool, offsets: Primitive, length: int) -> Primitive:
    """Offsets of n samples of `length` entries each as those of n * (groups + 1) segments of all entries."""
    ends = _below(n, beside(n, many, offsets), length)
    flat = _reshape(ends, shape=(n * ends.shape[1],))
    return _cat(flat, flat.new_full((1,), n * length), dim=0)


def _without_gaps(n: int, y: Primitive) -> Primitive:
    """Results of the segments of samples, without what lies behind the last one of each."""
    apart = _unfold(n, y)
    return _slice(apart, ranges=tuple((0, size - (i == 1), 1) for i, size in enumerate(apart.shape)))


def _with_gaps(x: Primitive) -> Primitive:
    """Entries (n, groups, ...) of the segments of samples, with zeros for what lies behind the last one of each."""
    return _fold(_pad(x, 0.0 if x.dtype.is_float else 0, padding=tuple((0, int(i == 1)) for i in range(x.ndim)),
                      mode="constant"))  # fmt: skip


def _last(x: Primitive) -> Primitive:
    """The samples behind the entries, where they are features."""
    return _permute(x, axes=(1, 0, *range(2, x.ndim)))


@_segment_ids.batched
def _(n, many, offsets, *, length):
    groups = offsets.shape[1]
    ids = _unfold(n, _segment_ids(_joined_offsets(n, True, offsets, length), length=n * length))
    return ids - _below(n, ids.new_full((n, 1), 0), groups)


@_segment_expand.batched
def _(n, many, x, offsets, *, length):
    if not many[1]:
        return _last(_segment_expand(_last(x), offsets, length=length))
    joined = _joined_offsets(n, True, offsets, length)
    return _unfold(n, _segment_expand(_with_gaps(beside(n, many[0], x)), joined, length=n * length))


@_segment_reduce.batched
def _(n, many, x, offsets, *, reduction):
    if not many[1]:
        return _last(_segment_reduce(_last(x), offsets, reduction=reduction))
    x = beside(n, many[0], x)
    joined = _joined_offsets(n, True, offsets, x.shape[1])
    return _without_gaps(n, _segment_reduce(_fold(x), joined, reduction=reduction))


@_grouped_matmul.batched
def _(n, many, x, weight, offsets):
    if not many[1] and not many[2]:  # each row of each sample is a row of its group
        y = _grouped_matmul(_fold(_last(x)), weight, _cast(offsets, dtype=DType.I64) * n)
        return _last(_reshape(y, shape=(y.shape[0] // n, n, y.shape[1])))
    x, weight = beside(n, many[0], x), beside(n, many[1], weight)
    joined = _joined_offsets(n, many[2], offsets, x.shape[1])
    return _unfold(n, _grouped_matmul(_fold(x), _with_gaps(weight), joined))


@_grouped_outer.batched
def _(n, many, x, y, offsets):
    x, y = beside(n, many[0], x), beside(n, many[1], y)
    joined = _joined_offsets(n, many[2], offsets, x.shape[1])
    return _without_gaps(n, _grouped_outer(_fold(x), _fold(y), joined))


@_linear_index.batched
def _(n, many, indices, *, sizes):
    y = _linear_index(indices, sizes=sizes)
    return _reshape(y, shape=(n, y.shape[0] // n))


# -- attention: masks that differ from item to item go the long way ---------------------------------------------
_attention_folded: Final = _fold_samples(REGISTRY["attention"], 0, 1, 2)


@REGISTRY["attention"].batched
def _(n, many, query, key, value, mask, bias, *numbers, **attrs):
    if [x for x in (mask, bias) if x is not None and x.ndim == 4 and x.shape[0] != 1]:
        return NotImplemented
    return _attention_folded(n, many, query, key, value, mask, bias, *numbers, **attrs)


_attention_backward_folded: Final = _fold_samples(REGISTRY["attention_backward"], 0, 1, 2, 3, 4, 5)


@REGISTRY["attention_backward"].batched
def _(n, many, *inputs, **attrs):
    mask, bias = inputs[6:8]
    if True in attrs["live"][3:] or [x for x in (mask, bias) if x is not None and x.ndim == 4 and x.shape[0] != 1]:
        return NotImplemented  # the gradient of a shared bias is another one for each item
    return _attention_backward_folded(n, many, *inputs, **attrs)


# -- random numbers: each sample has its own, those that the whole batch would draw --------------------------------
def _draw_samples(row: Op) -> Candidate:
    return lambda n, many, *numbers, shape, **attrs: _draw(row, numbers, {"shape": (n, *shape), **attrs})


def _draw(row: Op, numbers: Sequence[object], attrs: dict[str, Any]) -> Any:
    backend = next(x.backend for x in numbers if isinstance(x, Value))
    return row.run(backend, Value, numbers, attrs)


for _name in ("random_bits", "uniform", "normal", "bernoulli", "randint", "dropout_mask"):
    REGISTRY[_name].batched(_draw_samples(REGISTRY[_name]))


@REGISTRY["dropout"].batched
def _(n, many, x, *numbers, start):
    return REGISTRY["dropout"](beside(n, many[0], x), *numbers, start=start)


# -- rows that mix samples -----------------------------------------------------------------------------------------
_MIXING: Final = ("batch_norm", "batch_norm_backward")


def refuse_mixing(call: Call, count: int) -> None:
    """Refuses a row that mixes the items of a batch, where each sample is one item of it.

    Raises: ArgumentError.
    """
    if call.op.name in _MIXING:
        raise ArgumentError(
            "per_sample_grad: batch normalisation in training mixes the samples",
            given=f"{call.op.name} of {call.tensor(0).shape} a sample, {count} samples",
            expected="layers that treat each sample by itself",
            mend="use model.valid(), whose statistics are fixed, or train with GroupNorm or LayerNorm instead",
        )
