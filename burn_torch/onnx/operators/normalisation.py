"""Normalisations and dropout: BatchNormalization, LayerNormalization, GroupNormalization, LRN, Dropout, ..."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import axis_of, dtype_of, full, reshaped
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.tensor import Tensor
from burn_torch.tensor.functional.normalisation import respond_to

__all__ = [
    "batch_normalization", "batch_normalization_1", "dropout", "dropout_1", "group_normalization",
    "group_normalization_18", "instance_normalization", "layer_normalization", "lrn", "rms_normalization",
]  # fmt: skip


@operator("BatchNormalization", 1, 13)
def batch_normalization_1(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 1,
    consumed_inputs: object = None,
    outputs: int = 1,
) -> Outputs:
    """Normalised with the statistics given, scaled and shifted a channel at a time."""
    if outputs > 1 or not spatial:
        raise OnnxError(
            "BatchNormalization: this form of it is not supported before opset 14",
            given=f"{outputs} outputs, spatial {spatial}",
            expected="one output (inference), spatial 1",
            mend="export the model for inference, or with a newer opset",
        )
    return ops.batch_norm_inference(x, scale, bias, mean, var, epsilon)


@operator("BatchNormalization", 14)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> Outputs:
    """Normalised with the statistics given, or in training mode with its own and the running ones brought on."""
    wide = x.dtype if mean.dtype is x.dtype else mean.dtype
    wide = DType.F32 if DType.F32 in (wide, scale.dtype) else wide
    y, gamma, beta = x.cast(wide), scale.cast(wide), bias.cast(wide)
    if not training_mode:
        return ops.batch_norm_inference(y, gamma, beta, mean.cast(wide), var.cast(wide), epsilon).cast(x.dtype)
    normal, batch_mean, batch_var = ops.batch_norm(y, gamma, beta, epsilon)
    if outputs == 1:
        return normal.cast(x.dtype)
    running = (
        mean * momentum + reshaped(batch_mean, mean.shape).cast(mean.dtype) * (1.0 - momentum),
        var * momentum + reshaped(batch_var, var.shape).cast(var.dtype) * (1.0 - momentum),
    )
    return (normal.cast(x.dtype), *running)[:outputs]


@operator("InstanceNormalization")
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, consumed_inputs: object = None
) -> Tensor:
    """Each channel of each sample normalised by itself."""
    return ops.group_norm(x, scale, bias, epsilon, groups=x.shape[1])[0]


@operator("GroupNormalization", 18, 20)
def group_normalization_18(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int) -> Tensor:
    """Groups of channels normalised together; scale and bias are of each group."""
    each = x.shape[1] // num_groups

    def spread(w: Tensor) -> Tensor:
        return reshaped(ops.expand(reshaped(w, (num_groups, 1)), shape=(num_groups, each)), (num_groups * each,))

    return ops.group_norm(x, spread(scale), spread(bias), epsilon, groups=num_groups)[0]


@operator("GroupNormalization", 21)
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Tensor:
    """Groups of channels normalised together; scale and bias are of each channel."""
    return ops.group_norm(x, scale, bias, epsilon, groups=num_groups)[0]


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Outputs:
    """The axes from `axis` on normalised together, scaled and shifted; mean and 1 / deviation as further outputs.

    ONNX has it from opset 17 on; onnxruntime's optimiser writes it into older models too.
    """
    at = axis_of(axis, x.ndim)
    y, mean, rstd = ops.layer_norm(
        _rows(x, at), _row(scale, x, at), None if bias is None else _row(bias, x, at), epsilon
    )
    reduced = (*x.shape[:at], *(1,) * (x.ndim - at))
    stash = dtype_of(stash_type)
    results = reshaped(y, x.shape), reshaped(mean, reduced).cast(stash), reshaped(rstd, reduced).cast(stash)
    return results[0] if outputs == 1 else results[:outputs]


def _rows(x: Tensor, at: int) -> Tensor:
    return reshaped(x, (math.prod(x.shape[:at]), math.prod(x.shape[at:])))


def _row(w: Tensor, x: Tensor, at: int) -> Tensor:
    shape = x.shape[at:]
    return reshaped(w if w.shape == shape else ops.expand(w, shape=shape), (math.prod(shape),))


@operator("RMSNormalization", 23)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """The axes from `axis` on divided by the root of their mean square, and scaled."""
    at = axis_of(axis, x.ndim)
    if math.prod(scale.shape) != scale.num_elements() or scale.shape != x.shape[at:]:
        wide = x.cast(dtype_of(stash_type)) if x.dtype is not DType.F64 else x
        root = (ops.mean(wide * wide, dims=tuple(range(at, x.ndim))) + epsilon).sqrt()
        return (wide / root).cast(x.dtype) * scale
    y: Tensor = ops.rms_norm(_rows(x, at), _row(scale, x, at), epsilon)[0]
    return reshaped(y, x.shape)


@operator("LRN")
def lrn(x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """Divided by a power of the sum of squares over neighbouring channels, an even size with one more behind."""
    before = (size - 1) // 2
    return respond_to(x, before, size - 1 - before, alpha, beta, bias)


# -- dropout ------------------------------------------------------------------------------------------------
@operator("Dropout", 1, 11)
def dropout_1(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 1, consumed_inputs: object = None, version: int, outputs: int = 1
) -> Outputs:
    """The value itself: before opset 12 an exported model drops nothing.  The mask is all true."""
    return x if outputs == 1 else (x, full(x.shape, 1, x, DType.BOOL if version >= 10 else x.dtype))


@operator("Dropout", 12)
def dropout(
    x: Tensor,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Outputs:
    """The value itself; in training mode zeros at random places, and the rest scaled up."""
    share = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training_mode is None or not training_mode.reshape(-1)[0] or share == 0.0:
        return x if outputs == 1 else (x, full(x.shape, True, x, DType.BOOL))
    kept = Tensor.random(x.shape, Distribution.Bernoulli(1.0 - share), (x.device, DType.F32)).greater(0.5)
    y = (x * (1.0 / (1.0 - share) if share < 1.0 else 0.0)).mask_fill(kept.bool_not(), 0.0)
    return y if outputs == 1 else (y, kept)
