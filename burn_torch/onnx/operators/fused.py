"""Operators of com.microsoft that onnxruntime's optimisers write for several of ONNX's: products, norms, functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import axis_of, constant, full, malformed, reshaped, unsqueezed
from burn_torch.onnx.operators.elementwise import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    selu,
    sigmoid,
    softplus,
    softsign,
    tanh,
    thresholded_relu,
)  # fmt: skip
from burn_torch.onnx.operators.indexing import gather, gather_nd, unique
from burn_torch.onnx.operators.normalisation import dropout
from burn_torch.onnx.operators.products import gemm, product
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.onnx.operators.shape import pad, range_of, trilu
from burn_torch.onnx.operators.vision import grid_sample_16
from burn_torch.onnx.operators.windows import Convolving, conv
from burn_torch.tensor import Device, Tensor, linalg

__all__ = [
    "bias_add", "bias_dropout", "bias_gelu", "bias_softmax", "bias_split_gelu", "cdist", "embed_layer_normalization",
    "expand_dims", "fast_gelu", "fused_conv", "fused_gemm", "fused_matmul", "gemm_fast_gelu", "inverse", "ms_gelu",
    "ms_group_norm", "ms_pad", "ms_range", "ms_unique", "nhwc_conv", "nhwc_fused_conv", "quick_gelu",
    "simplified_layer_normalization", "skip_group_norm", "skip_layer_normalization",
    "skip_simplified_layer_normalization", "transpose_matmul",
]  # fmt: skip

MICROSOFT: Final = "com.microsoft"
microsoft: Final = partial(operator, domain=MICROSOFT)
"""Registers a function as an operator of onnxruntime's own domain, which has one version."""

Function = Callable[..., Tensor]

# -- what ONNX took over later, or has under another name ---------------------------------------------------------
for _op, _entry in (("GatherND", gather_nd), ("GridSample", grid_sample_16), ("Trilu", trilu)):
    microsoft(_op)(_entry.function)


@microsoft("Range")
def ms_range(start: Tensor, limit: Tensor, delta: Tensor | None = None, *, place: Device | None = None) -> Outputs:
    """start, start + delta, ... below limit, in steps of 1 unless given."""
    step = constant(1, start.device, start.dtype) if delta is None else delta
    return range_of.function(start, limit, step, place=place)


@microsoft("Pad")
def ms_pad(x: Tensor, pads: Host, value: Host | None = None, *, mode: str = "constant") -> Tensor:
    """Pad, whose amounts may be a row of a matrix."""
    return pad.function(x, pads.reshape(-1), value, None, mode=mode)


@microsoft("ExpandDims")
def expand_dims(x: Tensor, axis: Host) -> Tensor:
    """With an axis of size 1 more."""
    return unsqueezed(x, [axis_of(int(axis.reshape(-1)[0]), x.ndim + 1)])


@microsoft("Unique")
def ms_unique(x: Tensor, *, outputs: int = 1) -> Outputs:
    """The distinct elements in the order in which they come, which of them each element is, and how often each is."""
    y, _, places, counts = unique.function(x, sorted=0)
    return y if outputs == 1 else (y, places, counts)[:outputs]


@microsoft("Inverse")
def inverse(x: Tensor) -> Tensor:
    """The inverse of each matrix."""
    return linalg.inverse(x)


@microsoft("CDist")
def cdist(x: Tensor, y: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """The distance of each row of x from each row of y, or its square."""
    apart = reshaped(x, (x.shape[0], 1, x.shape[1])) - reshaped(y, (1, *y.shape))
    squares: Tensor = reshaped(ops.sum(apart * apart, dims=(2,)), (x.shape[0], y.shape[0]))
    if metric not in ("euclidean", "sqeuclidean"):
        raise malformed("CDist: no such metric", given=repr(metric), expected="euclidean or sqeuclidean")
    return squares.sqrt() if metric == "euclidean" else squares


# -- activations --------------------------------------------------------------------------------------------------
@microsoft("Gelu")
def ms_gelu(x: Tensor) -> Tensor:
    """x times the normal distribution function at x."""
    return ops.gelu(x)


@microsoft("FastGelu")
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The approximation of gelu by tanh, of x + bias."""
    return ops.gelu_approximate(x if bias is None else x + bias)


@microsoft("BiasGelu")
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias)."""
    return ops.gelu(x + bias)


@microsoft("QuickGelu")
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return ops.silu(x) if alpha == 1.0 else x * ops.sigmoid(x * alpha)


@microsoft("BiasAdd")
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """x + bias + skip."""
    return x + bias + skip


@microsoft("BiasSplitGelu")
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the last axis of x + bias times gelu of the second."""
    y, half = x + bias, x.shape[-1] // 2
    return y.narrow(y.ndim - 1, 0, half) * ops.gelu(y.narrow(y.ndim - 1, half, half))


@microsoft("BiasSoftmax")
def bias_softmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """softmax(x + bias) over the axes from `axis` on; the bias lacks axes before it: the inner ones, or the outer."""
    at = axis_of(axis, x.ndim)
    rest = x.shape[at:]
    own = math.prod(bias.shape) // max(math.prod(rest), 1)
    rows = math.prod(x.shape[:at])
    flat = reshaped(x, (own, rows // max(own, 1), math.prod(rest))) if is_inner_broadcast else None
    if flat is not None:
        y = flat + reshaped(bias, (own, 1, math.prod(rest)))
    else:
        y = reshaped(x, (rows // max(own, 1), own, math.prod(rest))) + reshaped(bias, (1, own, math.prod(rest)))
    return reshaped(ops.softmax(y, dim=2), x.shape)


@microsoft("BiasDropout")
def bias_dropout(
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Outputs:
    """dropout(x + bias) + residual."""
    y, mask = dropout.function(x + bias, ratio, training_mode, seed=seed, outputs=2)
    y = y if residual is None else y + residual
    return y if outputs == 1 else (y, mask)


# -- products -----------------------------------------------------------------------------------------------------
def _exchange_axes(x: Tensor, batch: int, matrix: int) -> Tensor:
    """x with its first axis moved behind those of the batch, and its last two axes exchanged."""
    if batch and x.ndim > 2:
        x = ops.permute(x, axes=(*range(1, x.ndim - 1), 0, x.ndim - 1))
    return x.transpose() if matrix and x.ndim > 1 else x


@microsoft("FusedMatMul")
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """alpha * a @ b, with the axes of a and b exchanged where it says so."""
    y = product(_exchange_axes(a, transBatchA, transA), _exchange_axes(b, transBatchB, transB))
    return y if alpha == 1.0 else y * alpha


@microsoft("TransposeMatMul")
def transpose_matmul(a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:
    """FusedMatMul under its name of before."""
    return fused_matmul.function(a, b, alpha=alpha, transA=transA, transB=transB)


_ACTIVATIONS: Final[dict[str, tuple[Function, tuple[str, ...]]]] = {
    "Elu": (elu.function, ("alpha",)),
    "HardSigmoid": (hard_sigmoid.function, ("alpha", "beta")),
    "LeakyRelu": (leaky_relu.function, ("alpha",)),
    "Relu": (relu.function, ()),
    "Selu": (selu.function, ("alpha", "gamma")),
    "Sigmoid": (sigmoid.function, ()),
    "Softplus": (softplus.function, ()),
    "Softsign": (softsign.function, ()),
    "Tanh": (tanh.function, ()),
    "ThresholdedRelu": (thresholded_relu.function, ("alpha",)),
    "Clip": (ops.clamp, ("min", "max")),
}
"""Functions that are computed with a product or convolution, and the names of their attributes."""


def _function(op: str, activation: str) -> tuple[Function, tuple[str, ...]]:
    if activation not in _ACTIVATIONS:
        raise malformed(f"{op}: no such activation", given=repr(activation), expected=", ".join(_ACTIVATIONS))
    return _ACTIVATIONS[activation]


@microsoft("FusedGemm")
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """activation(alpha * a @ b + beta * c)."""
    y: Tensor = gemm.function(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not activation:
        return y
    function, names = _function("FusedGemm", activation)
    values = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return function(y, **{name: value for name, value in values.items() if name in names and value is not None})


@microsoft("GemmFastGelu")
def gemm_fast_gelu(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """The approximation of gelu by tanh, of x @ w + bias."""
    return fast_gelu.function(product(x, w), bias)


@dataclass(frozen=True, kw_only=True)
class Activated(Convolving):
    """Attributes of convolutions with an activation."""

    activation: str = ""
    activation_params: tuple[float, ...] = ()

    def convolving(self) -> Convolving:
        """Those of the convolution alone."""
        own = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        return Convolving(**{name: getattr(self, name) for name in own})

    def active(self, y: Tensor) -> Tensor:
        """The activation of a tensor."""
        if not self.activation:
            return y
        function, names = _function("FusedConv", self.activation)
        if len(self.activation_params) not in (0, len(names)):
            raise malformed(
                f"FusedConv: {self.activation} has other numbers",
                given=f"{self.activation_params}",
                expected=", ".join(names) or "none",
            )
        return (
            function(y, *self.activation_params)
            if self.activation == "Clip"
            else function(y, **dict(zip(names, self.activation_params, strict=False)))
        )


@microsoft("FusedConv")
def fused_conv(x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None, *, how: Activated) -> Tensor:
    """activation(conv(x, w) + b + z)."""
    y: Tensor = conv(x, w, b, **vars(how.convolving()))
    return how.active(y if z is None else y + z)


def nhwc(x: Tensor) -> Tensor:
    """With the channels last."""
    return ops.permute(x, axes=(0, *range(2, x.ndim), 1))


def nchw(x: Tensor) -> Tensor:
    """With the channels, which lie last, behind the batch."""
    return ops.permute(x, axes=(0, x.ndim - 1, *range(1, x.ndim - 1)))


@microsoft("NhwcConv")
def nhwc_conv(x: Tensor, w: Tensor, b: Tensor | None = None, *, how: Convolving) -> Tensor:
    """A convolution of images whose channels, and those of the weights, lie last."""
    return nhwc(conv(nchw(x), nchw(w), b, **vars(how)))


@microsoft("NhwcFusedConv")
def nhwc_fused_conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None, *, how: Activated
) -> Tensor:
    """activation(conv(x, w) + b + z) of images whose channels, and those of the weights, lie last."""
    y: Tensor = conv(nchw(x), nchw(w), b, **vars(how.convolving()))
    return nhwc(how.active(y if z is None else y + nchw(z)))


# -- norms --------------------------------------------------------------------------------------------------------
def layer_norm(
    x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, axis: int = -1, *, centred: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised tensor, its mean and 1 / deviation over the axes from `axis` on, in f32 or more."""
    at = axis_of(axis, x.ndim)
    rows, width = math.prod(x.shape[:at]), math.prod(x.shape[at:])
    flat, reduced = reshaped(x, (rows, width)), (*x.shape[:at], *(1,) * (x.ndim - at))
    scale = reshaped(gamma, (width,))
    if centred:
        y, mean, rstd = ops.layer_norm(flat, scale, None if beta is None else reshaped(beta, (width,)), epsilon)
        return reshaped(y, x.shape), reshaped(mean, reduced), reshaped(rstd, reduced)
    y, rstd = ops.rms_norm(flat, scale, epsilon)[:2]
    return reshaped(y, x.shape), full(reduced, 0.0, rstd), reshaped(rstd, reduced)


def _skip_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None, bias: Tensor | None, epsilon: float,
    outputs: int, *, centred: bool,
) -> Outputs:  # fmt: skip
    total = x + skip if bias is None else x + skip + bias
    results = (*layer_norm(total, gamma, beta, epsilon, centred=centred), total)
    return results[0] if outputs == 1 else results[:outputs]


@microsoft("SkipLayerNormalization")
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Outputs:
    """The last axis of x + skip + bias normalised; mean, 1 / deviation and that sum as further outputs."""
    return _skip_norm(x, skip, gamma, beta, bias, epsilon, outputs, centred=True)


@microsoft("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    outputs: int = 1,
) -> Outputs:
    """The last axis of x + skip + bias divided by the root of its mean square; the sum as fourth output."""
    return _skip_norm(x, skip, gamma, None, bias, epsilon, outputs, centred=False)


@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1
) -> Outputs:
    """The axes from `axis` on divided by the root of their mean square, and scaled; 1 / root as second output.

    onnxruntime writes it among ONNX's own operators, which have none of that name.
    """
    y, _, rstd = layer_norm(x, scale, None, epsilon, axis, centred=False)
    return y if outputs == 1 else (y, rstd)


def embedded(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    position_ids: Tensor | None,
) -> Tensor:
    """Word, position and segment embeddings added."""
    rows = input_ids.shape[1]
    places = position.narrow(0, 0, rows) if position_ids is None else gather.function(position, position_ids)
    y: Tensor = gather.function(word, input_ids) + places
    return y if segment is None or segment_ids is None else y + gather.function(segment, segment_ids)


def seen_tokens(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """How many tokens of each sample the mask shows; 0 without a mask."""
    batch = input_ids.shape[0]
    if mask is None:
        return full((batch,), 0, input_ids, DType.I32)
    return reshaped(ops.sum(mask.equal(1).cast(DType.I32), dims=(1,)), (batch,)).cast(DType.I32)


@microsoft("EmbedLayerNormalization")
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    outputs: int = 1,
) -> Outputs:
    """The sum of three embeddings normalised, how many tokens the mask shows, and the sum."""
    total = embedded(input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, position_ids)
    y = layer_norm(total, gamma, beta, epsilon)[0]
    return y if outputs == 1 else (y, seen_tokens(input_ids, mask), total)[:outputs]


@microsoft("SkipGroupNorm")
def skip_group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Tensor | None,
    bias: Tensor | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
    outputs: int = 1,
) -> Outputs:
    """Groups of channels of x + skip + bias normalised together, and silu of them if `activation`; the sum."""
    if skip is not None:
        if skip.ndim < x.ndim:  # (batch, channels), of every place
            inner = (1,) * (x.ndim - 2)
            shape = (skip.shape[0], *inner, skip.shape[1]) if channels_last else (*skip.shape, *inner)
            skip = reshaped(skip, shape)
        x = x + skip
    if bias is not None:
        x = x + (bias if channels_last else reshaped(bias, (bias.shape[0], *(1,) * (x.ndim - 2))))
    wide = (nchw(x) if channels_last else x).cast(gamma.dtype)
    y = ops.group_norm(wide, gamma, beta, epsilon, groups=groups)[0].cast(x.dtype)
    y = ops.silu(y) if activation else y
    y = nhwc(y) if channels_last else y
    return y if outputs == 1 else (y, x)


@microsoft("GroupNorm")
def ms_group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Tensor:
    """Groups of channels normalised together, and silu of them if `activation`."""
    how = {"activation": activation, "channels_last": channels_last, "epsilon": epsilon, "groups": groups}
    return skip_group_norm.function(x, gamma, beta, None, **how)
