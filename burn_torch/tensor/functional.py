"""Layers as functions of tensors: `functional.conv2d(x, weight, bias, ConvOptions(padding=1))`.

Burn's `tensor::module` and `tensor::loss`.  Settings of spatial axes are one number for all axes, or one each.
"""

from __future__ import annotations

import math
from typing import Any, Final

from burn_torch import ops
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.core.spellings import hint_missing
from burn_torch.core.spellings.layers import FUNCTIONAL
from burn_torch.tensor._alignments import is_differentiated, require_alignable
from burn_torch.tensor._arguments import integer, option, real, truth
from burn_torch.tensor.apply import apply, apply_one, require_tensor
from burn_torch.tensor.options import (
    AttentionModuleOptions,
    ConvOptions,
    ConvTransposeOptions,
    DeformConvOptions,
    InterpolateMode,
    InterpolateOptions,
    UnfoldOptions,
)
from burn_torch.tensor.quantization import QuantizedTensor, linear_by_codes
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "attention",
    "attention_fallback",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv2d_weight_backward",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy_with_logits",
    "ctc_loss",
    "deform_conv2d",
    "embedding",
    "fold4d",
    "group_norm",
    "interpolate",
    "layer_norm",
    "linear",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "max_pool3d",
    "rms_norm",
    "unfold4d",
]

Sizes = int | tuple[int, ...] | list[int]
Step = Sizes | None  # None is the size of the kernel


# -- linear, embedding ----------------------------------------------------------------------------------
def linear(x: Tensor, weight: Tensor | QuantizedTensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight + bias.

    Shapes: x (*batch, d_in), weight (d_in, d_out), bias (d_out,) -> (*batch, d_out).
    A quantised weight is dequantised on its way into the product.
    PyTorch: torch.nn.functional.linear, whose weight is (d_out, d_in).
    """
    row = ops.linear
    backend: Any = getattr(x, "backend", None)  # a torch tensor has none, and the general way words the error
    if weight.__class__ is not Tensor or weight.backend is not backend or x.__class__ is not Tensor:
        if isinstance(weight, QuantizedTensor):
            return linear_by_codes(x, weight, bias)
        return row(x, weight, bias)  # type: ignore[no-any-return]  # the general way lifts constants
    if bias is None:
        key = (x.spec, weight.spec, None)
        primitives = (x.primitive, weight.primitive, None)
    elif bias.__class__ is Tensor and bias.backend is backend:
        key = (x.spec, weight.spec, bias.spec)  # type: ignore[assignment]  # the three specs, no None
        primitives = (x.primitive, weight.primitive, bias.primitive)
    else:
        return row(x, weight, bias)  # type: ignore[no-any-return]  # rows are typed loosely
    call = row.calls.get(key) or row.remember(key, row.bind(key, {}))
    y = object.__new__(Tensor)  # as in apply.unary: this one is hot
    y.backend = backend
    y.primitive = backend.execute(call, primitives)[0]
    y.spec = call.result
    return y


def embedding(weights: Tensor, indices: Tensor) -> Tensor:
    """Rows of `weights` by their indices.  Shapes: weights (vocab, d), indices (*s) -> (*s, d)."""
    return apply_one(ops.embedding, (weights, indices))


# -- convolution ---------------------------------------------------------------------------------------
def conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over one axis.

    Shapes: x (batch, channels_in, length), weight (channels_out, channels_in / groups, kernel) -> (batch,
    channels_out, counts).
    """
    return _conv(x, weight, bias, options, 1)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over two axes.

    Shapes: x (batch, channels_in, height, width), weight (channels_out, channels_in / groups, *kernel) -> (batch,
    channels_out, *counts).
    """
    return _conv(x, weight, bias, options, 2)


def conv3d(x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvOptions | None = None) -> Tensor:
    """Convolution over three axes."""
    return _conv(x, weight, bias, options, 3)


def _conv(x: Tensor, weight: Tensor, bias: Tensor | None, options: ConvOptions | None, n: int) -> Tensor:
    _spatial(x, n)
    return apply_one(ops.conv, (x, weight, bias), *_conv_attrs(option(options, ConvOptions, "options"), n))


def _conv_attrs(options: ConvOptions, n: int) -> tuple[object, ...]:
    padding = options.padding
    if isinstance(padding, list | tuple) and padding and isinstance(padding[0], list | tuple):
        pairs = tuple([_each("padding", pair, 2) for pair in padding])
    else:
        pairs = tuple([(size, size) for size in _each("padding", padding, n)])  # type: ignore[arg-type]  # a number for each side
    groups = integer(options.groups, "groups")
    return _each("stride", options.stride, n), pairs, _each("dilation", options.dilation, n), groups


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    options: DeformConvOptions | None = None,
) -> Tensor:
    """Convolution over two axes that reads x at places moved by `offset`, between pixels, times `mask`; 0 outside.

    Shapes: x (batch, channels_in, height, width), offset (batch, offset_groups * taps * 2, *counts), (y, x) of each tap
    beside each other, mask (batch, offset_groups * taps, *counts), weight (channels_out, channels_in / weight_groups,
    *kernel) -> (batch, channels_out, *counts); taps is the number of elements of the kernel.
    PyTorch: torchvision.ops.deform_conv2d, whose weight stands before the mask by name.
    """
    _spatial(x, 2)
    chosen = option(options, DeformConvOptions, "options")
    plain = ConvOptions(chosen.stride, chosen.padding, chosen.dilation, chosen.weight_groups)
    groups = integer(chosen.offset_groups, "offset_groups")
    return apply_one(ops.deform_conv, (x, offset, weight, mask, bias), *_conv_attrs(plain, 2), groups)


def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over one axis.  Shapes: weight (channels_in, channels_out / groups, kernel)."""
    return _conv_transpose(x, weight, bias, options, 1)


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over two axes.  Shapes: weight (channels_in, channels_out / groups, *kernel)."""
    return _conv_transpose(x, weight, bias, options, 2)


def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, options: ConvTransposeOptions | None = None
) -> Tensor:
    """The transpose of a convolution over three axes.  Shapes: weight (channels_in, channels_out / groups, *kernel)."""
    return _conv_transpose(x, weight, bias, options, 3)


def _conv_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None, options: ConvTransposeOptions | None, n: int
) -> Tensor:
    _spatial(x, n)
    chosen = option(options, ConvTransposeOptions, "options")
    attrs = [_each(name, getattr(chosen, name), n) for name in ("stride", "padding", "padding_out", "dilation")]
    return apply_one(ops.conv_transpose, (x, weight, bias), *attrs, integer(chosen.groups, "groups"))


def conv2d_weight_backward(
    x: Tensor, weight: Tensor, output_grad: Tensor, options: ConvOptions | None = None
) -> Tensor:
    """The gradient of conv2d with respect to its weight.  PyTorch: torch.nn.grad.conv2d_weight."""
    require_tensor(weight, "weight")
    attrs = _conv_attrs(option(options, ConvOptions, "options"), 2)
    return apply_one(ops.conv_weight_gradient, (x, output_grad), weight.shape[2:], *attrs)


def unfold4d(x: Tensor, kernel_size: Sizes, options: UnfoldOptions | None = None) -> Tensor:
    """The windows of an image as columns.  PyTorch: torch.nn.functional.unfold.

    Shapes: x (batch, channels, height, width) -> (batch, channels * kernel height * kernel width, windows).
    """
    return apply_one(ops.unfold4d, (x,), *_unfold_attrs(kernel_size, options))


def fold4d(x: Tensor, output_size: Sizes, kernel_size: Sizes, options: UnfoldOptions | None = None) -> Tensor:
    """Columns added into the windows of an image.  PyTorch: torch.nn.functional.fold."""
    size = _each("output_size", output_size, 2)
    return apply_one(ops.fold4d, (x,), size, *_unfold_attrs(kernel_size, options))


def _unfold_attrs(kernel_size: Sizes, options: UnfoldOptions | None) -> tuple[object, ...]:
    chosen = option(options, UnfoldOptions, "options")
    kernel = _each("kernel_size", kernel_size, 2)
    return kernel, *[_each(name, getattr(chosen, name), 2) for name in ("stride", "dilation", "padding")]


# -- pooling -------------------------------------------------------------------------------------------------
def max_pool1d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool2d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool3d(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest element of each window; stride None is the kernel's size."""
    return _max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode)[0]


def max_pool1d_with_indices(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of each window and where it is."""
    return _max_pool(x, 1, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    x: Tensor, kernel_size: Sizes, stride: Step = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of each window and where it is, as a flat index into height * width."""
    return _max_pool(x, 2, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool(x: Tensor, n: int, *settings: Any) -> tuple[Tensor, Tensor]:
    _spatial(x, n)
    pooled: tuple[Tensor, Tensor] = apply(ops.max_pool_with_indices, (x,), *_max_pool_attrs(n, *settings))
    return pooled


def _max_pool_attrs(
    n: int, kernel_size: Sizes, stride: Step, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[object, ...]:
    windows = _window_attrs(n, kernel_size, stride, padding)
    return *windows, _each("dilation", dilation, n), truth(ceil_mode, "ceil_mode")


def _window_attrs(n: int, kernel_size: Sizes, stride: Step, padding: Sizes) -> tuple[object, ...]:
    kernel = _each("kernel_size", kernel_size, n)
    return kernel, kernel if stride is None else _each("stride", stride, n), _each("padding", padding, n)


def max_pool2d_with_indices_backward(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    output_grad: Tensor,
    indices: Tensor,
) -> Tensor:
    """The gradient of max_pool2d: each element of `output_grad` goes where its index says."""
    attrs = _max_pool_attrs(2, kernel_size, stride, padding, dilation, ceil_mode)
    return apply_one(ops.max_pool_with_indices_backward, (output_grad, indices), x.shape[2:], *attrs)


max_pool2d_backward = max_pool2d_with_indices_backward


def avg_pool1d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 1, kernel_size, stride, padding, count_include_pad, ceil_mode)


def avg_pool2d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 2, kernel_size, stride, padding, count_include_pad, ceil_mode)


def avg_pool3d(
    x: Tensor,
    kernel_size: Sizes,
    stride: Step = None,
    padding: Sizes = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; stride None is the kernel's size."""
    return _avg_pool(x, 3, kernel_size, stride, padding, count_include_pad, ceil_mode)


def _avg_pool(x: Tensor, n: int, *settings: Any) -> Tensor:
    _spatial(x, n)
    return apply_one(ops.avg_pool, (x,), *_avg_pool_attrs(n, *settings))


def _avg_pool_attrs(
    n: int, kernel_size: Sizes, stride: Step, padding: Sizes, count_include_pad: bool, ceil_mode: bool
) -> tuple[object, ...]:
    windows = _window_attrs(n, kernel_size, stride, padding)
    return *windows, truth(count_include_pad, "count_include_pad"), truth(ceil_mode, "ceil_mode")


def avg_pool2d_backward(
    x: Tensor,
    grad: Tensor,
    kernel_size: Sizes,
    stride: Step,
    padding: Sizes,
    count_include_pad: bool,
    ceil_mode: bool = False,
) -> Tensor:
    """The gradient of avg_pool2d: each element of `grad` spread over its window."""
    attrs = _avg_pool_attrs(2, kernel_size, stride, padding, count_include_pad, ceil_mode)
    return apply_one(ops.avg_pool_backward, (grad,), x.shape[2:], *attrs)


def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axis as the result has elements."""
    return _adaptive(x, output_size, 1)


def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axes as the result has elements."""
    return _adaptive(x, output_size, 2)


def adaptive_avg_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """Means of as many parts of the axes as the result has elements."""
    return _adaptive(x, output_size, 3)


def _adaptive(x: Tensor, output_size: Sizes, n: int) -> Tensor:
    _spatial(x, n)
    return apply_one(ops.adaptive_avg_pool, (x,), _each("output_size", output_size, n))


def adaptive_max_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axis as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 1)


def adaptive_max_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axes as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 2)


def adaptive_max_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """Maxima of as many parts of the axes as the result has elements; the first of equal ones has the gradient."""
    return _adaptive_max(x, output_size, 3)


def _adaptive_max(x: Tensor, output_size: Sizes, n: int) -> Tensor:
    _spatial(x, n)
    for axis, count in enumerate(_each("output_size", output_size, n), 2):
        size = x.spec.shape[axis]
        starts = [i * size // count for i in range(count)]
        stops = [-(-(i + 1) * size // count) for i in range(count)]
        longest = max(stop - start for start, stop in zip(starts, stops, strict=True))
        # windows that are shorter than the longest name their last element again
        places = [min(start + k, stop - 1) for start, stop in zip(starts, stops, strict=True) for k in range(longest)]
        parts = x.select(axis, Tensor.from_ints(places, x.device))
        parts = parts.reshape((*x.spec.shape[:axis], count, longest, *x.spec.shape[axis + 1 :]))
        x = parts.max_dim_with_indices(axis + 1)[0].squeeze_dim(axis + 1)
    return x


# -- resampling ------------------------------------------------------------------------------------------------
_INTERPOLATE = {
    InterpolateMode.Nearest: "nearest",
    InterpolateMode.NearestExact: "nearest_exact",
    InterpolateMode.Bilinear: "linear",
    InterpolateMode.Bicubic: "cubic",
    InterpolateMode.Lanczos3: "lanczos",
}


def interpolate(x: Tensor, output_size: Sizes, options: InterpolateOptions | None = None) -> Tensor:
    """An image, or a signal of one axis, at another size.  Corners are aligned unless told otherwise, as in Burn."""
    require_tensor(x)
    chosen = option(options, InterpolateOptions, "options")
    n = max(x.spec.ndim - 2, 1)
    mode = _INTERPOLATE[InterpolateMode.of(chosen.mode)]
    return apply_one(
        ops.interpolate, (x,), _each("output_size", output_size, n), mode, truth(chosen.align_corners, "align_corners")
    )


# -- normalisation ------------------------------------------------------------------------------------------------
def layer_norm(x: Tensor, gamma: Tensor | None, beta: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
    """Normalised over the last axis, scaled by gamma, shifted by beta."""
    y: Tensor = apply(ops.layer_norm, (x, gamma, beta, _positive(epsilon)))[0]
    return y


def rms_norm(x: Tensor, gamma: Tensor | None, epsilon: float = 1e-5) -> Tensor:
    """Divided by the root of the mean square over the last axis, scaled by gamma."""
    y: Tensor = apply(ops.rms_norm, (x, gamma, _positive(epsilon)))[0]
    return y


def group_norm(
    x: Tensor, num_groups: int, gamma: Tensor | None, beta: Tensor | None = None, epsilon: float = 1e-5
) -> Tensor:
    """Normalised over groups of channels (axis 1) and all spatial axes, scaled and shifted by channel."""
    y: Tensor = apply(ops.group_norm, (x, gamma, beta, _positive(epsilon)), integer(num_groups, "num_groups"))[0]
    return y


def batch_norm(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, variance: Tensor, epsilon: float = 1e-5
) -> Tensor:
    """Normalised by channel (axis 1) with given statistics.  PyTorch: batch_norm(training=False)."""
    return apply_one(ops.batch_norm_inference, (x, gamma, beta, mean, variance, _positive(epsilon)))


# -- attention ----------------------------------------------------------------------------------------------------
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    options: AttentionModuleOptions | None = None,
) -> Tensor:
    """Returns what each query reads of the values: softmax(query @ key^T * scale + bias) @ value.

    `mask` is true where a key is hidden.  `scale` is 1 / sqrt(d_head) unless told.
    Shapes: query (batch, heads, seq_q, d_head), key and value (batch, heads, seq_k, d) -> (batch, heads, seq_q, d).
    PyTorch: torch.nn.functional.scaled_dot_product_attention, whose mask is true where a key is seen.
    """
    inputs, causal = _attention((query, key, value, mask, attn_bias), options)
    result: Tensor = apply(ops.attention, inputs, causal, 0)[0]
    return result


def attention_fallback(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    options: AttentionModuleOptions | None = None,
) -> Tensor:
    """`attention` step by step, as its row's decomposition says it: the reference of every faster way."""
    inputs, causal = _attention((query, key, value, mask, attn_bias), options)
    result: Tensor = ops.attention.decomposition(*inputs, causal=causal, offset=0)[0]
    return result


def _attention(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], options: AttentionModuleOptions | None
) -> tuple[tuple[object, ...], bool]:
    for name, x in zip(("query", "key", "value", "mask", "attn_bias"), inputs, strict=True):
        if x is not None or name in ("query", "key", "value"):
            require_tensor(x, name)
    query, key, value, _, _ = inputs
    if not query.ndim == key.ndim == value.ndim == 4:
        raise told(
            ShapeError,
            "attention takes tensors of four axes",
            given=f"query {query.spec}, key {key.spec}, value {value.spec}",
            expected="(batch, heads, seq, d_head)",
            mend="reshape it, or insert axes with unsqueeze_dim",
        )
    chosen = option(options, AttentionModuleOptions, "options")
    scale = 1.0 / math.sqrt(max(query.shape[-1], 1)) if chosen.scale is None else float(chosen.scale)
    softcap = None if chosen.softcap is None else float(chosen.softcap)
    return (*inputs, scale, softcap), truth(chosen.is_causal, "is_causal")


# -- losses ----------------------------------------------------------------------------------------------------
def cross_entropy_with_logits(logits: Tensor, target_probs: Tensor) -> Tensor:
    """The mean over all items of -sum(target_probs * log_softmax(logits)) over the last axis.  Shapes: -> (1,)."""
    items: Tensor = apply(ops.cross_entropy_with_probabilities, (logits, target_probs))
    return items.mean()


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0
) -> Tensor:
    """-log of the probability that each sample, blanks and repetitions taken out, reads as its targets.

    Steps and targets behind the lengths count for nothing.  Targets that no alignment reads cost infinity, without a
    gradient.  The gradient is exp(log_probs) minus the share of each class at each step, as in Burn and PyTorch: that
    of log_probs which log_softmax gives, where the first term adds up to nothing.

    Shapes: log_probs (steps, batch, classes), targets (batch, labels), both lengths (batch,) -> (batch,).
    Dtypes: log_probs any float, the others any integer -> that of log_probs; half types compute in f32.
    Raises: BoundsError for lengths beyond the padded size and for targets that are no class or the blank; on a GPU, and
        in compiled functions there, such a sample is NaN.
    PyTorch: torch.nn.functional.ctc_loss(reduction="none"), which takes targets in one row too.
    """
    require_tensor(log_probs, "log_probs")
    if log_probs.ndim != 3:
        raise told(
            ShapeError,
            "log_probs has no axes of steps, batch and classes",
            given=f"log_probs {log_probs.spec}",
            expected="(steps, batch, classes)",
            mend="insert the batch axis with log_probs.unsqueeze_dim(1)",
        )
    differentiated = is_differentiated(log_probs)
    x, blank = log_probs.swap_dims(0, 1), integer(blank, "blank")
    inputs = (x, targets, input_lengths, target_lengths)
    losses: Tensor = apply(ops.ctc_loss, inputs, blank, (True, differentiated))[0]
    require_alignable("ctc_loss", *inputs[1:], steps=x.shape[1], classes=x.shape[2], blank=blank)
    if differentiated:
        steps = Tensor.arange(x.shape[1], x.device.no_grad()).reshape(1, x.shape[1], 1)
        counts = steps.lower(input_lengths.cast(steps.dtype).reshape(-1, 1, 1))
        counts = counts.bool_and(losses.is_inf().bool_not().reshape(-1, 1, 1))
        mass = x.cast(losses.dtype).mask_fill(counts.bool_not(), -math.inf).exp().sum_dims_squeeze((1, 2))
        losses = losses + (mass - mass.detach())
    return losses if losses.dtype is x.dtype else losses.cast(x.dtype)


# -- arguments ---------------------------------------------------------------------------------------------------
def _spatial(x: Tensor, n: int) -> None:
    require_tensor(x)
    if x.spec.ndim != n + 2:
        raise told(
            ShapeError,
            f"{n} spatial axes are needed",
            given=str(x.spec),
            expected=f"{n + 2} axes: batch, channels and {n} spatial",
            mend="insert the batch axis with x.unsqueeze_dim(0)",
        )


def _positive(epsilon: float) -> float:
    value = real(epsilon, "epsilon")
    if not isinstance(value, float) or 0 <= value < math.inf:
        return value
    raise told(
        ArgumentError,
        "epsilon is not a small number",
        given=f"epsilon {epsilon}",
        expected="a finite number of 0 or more",
        mend="write epsilon=1e-5",
    )


def _count(value: object, name: str) -> int:
    size = integer(value, name)
    if size.__class__ is int and not -_LARGEST < size < _LARGEST:
        raise told(
            ArgumentError,
            f"{name} is larger than any tensor",
            given=f"{name} {size}",
            expected="a number below 2^31",
            mend="check how it was computed",
        )
    return size


_LARGEST: Final = 1 << 31


def _each(name: str, value: Sizes, n: int) -> tuple[int, ...]:
    """One whole number for each of n axes."""
    if not isinstance(value, list | tuple):
        return (_count(value, name),) * n
    sizes = tuple([_count(size, name) for size in value])
    if len(sizes) != n:
        raise told(
            DTypeError,
            f"{name} is not one number for each axis",
            given=f"{name} {value}",
            expected=f"one number, or {n}",
            mend="write one number where all axes have the same",
        )
    return sizes


hint_missing(globals(), FUNCTIONAL, torch="nn.functional")
word_functions(globals())
