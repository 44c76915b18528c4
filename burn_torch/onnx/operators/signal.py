"""Signals and random numbers: DFT, STFT, MelWeightMatrix, RandomNormal, RandomUniform, Bernoulli."""

from __future__ import annotations

import numpy as np

from burn_torch import ops
from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import Ints, axis_of, constant, dtype_of, reshaped
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.tensor import Device, Tensor

__all__ = [
    "bernoulli", "dft", "dft_17", "mel_weight_matrix", "random_normal", "random_normal_like", "random_uniform",
    "random_uniform_like", "stft",
]  # fmt: skip


# -- Fourier -------------------------------------------------------------------------------------------
def _transform(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """The discrete Fourier transform as two matrix products; the last axis holds real and imaginary parts."""
    at = axis_of(axis, x.ndim)
    if x.ndim == 2:  # matrix products take two axes
        return _transform(reshaped(x, (1, *x.shape)), length, 1, inverse, onesided).squeeze_dim(0)
    real_out = inverse and onesided
    if length is None:
        length = 2 * (x.shape[at] - 1) if real_out else x.shape[at]
    width = min(x.shape[at], length // 2 + 1 if real_out else length)
    moved = x.narrow(at, 0, width).swap_dims(at, x.ndim - 2) if at != x.ndim - 2 else x.narrow(at, 0, width)
    parts = [reshaped(moved.narrow(x.ndim - 1, i, 1), moved.shape[:-1]) for i in range(x.shape[-1])]
    count = length // 2 + 1 if onesided and not inverse else length
    angle = 2 * np.pi * np.outer(np.arange(width), np.arange(count)) / length
    weights = np.ones((width, 1))
    if real_out:  # the other half is the mirror image
        weights[1 : (length + 1) // 2] = 2.0
    scale = weights / length if inverse else weights
    cos = constant(np.cos(angle) * scale, x.device, x.dtype)
    sin = constant(np.sin(angle) * scale * (1 if inverse else -1), x.device, x.dtype)
    real, imaginary = ops.matmul(parts[0], cos), ops.matmul(parts[0], sin)
    if len(parts) == 2:
        real, imaginary = real - ops.matmul(parts[1], sin), imaginary + ops.matmul(parts[1], cos)
    planes = [real] if real_out else [real, imaginary]
    y = Tensor.cat([reshaped(part, (*part.shape, 1)) for part in planes], real.ndim)
    return y.swap_dims(at, x.ndim - 2) if at != x.ndim - 2 else y


@operator("DFT", 17, 19)
def dft_17(x: Tensor, dft_length: Host | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Tensor:
    """The discrete Fourier transform along an axis."""
    length = None if dft_length is None else int(dft_length.reshape(-1)[0])
    return _transform(x, length, axis, bool(inverse), bool(onesided))


@operator("DFT", 20)
def dft(
    x: Tensor, dft_length: Host | None = None, axis: Host | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """The discrete Fourier transform along an axis."""
    length = None if dft_length is None else int(dft_length.reshape(-1)[0])
    return _transform(x, length, -2 if axis is None else int(axis.reshape(-1)[0]), bool(inverse), bool(onesided))


@operator("STFT", 17)
def stft(
    signal: Tensor,
    frame_step: Host,
    window: Tensor | None = None,
    frame_length: Host | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """The Fourier transform of windows that move along the signal."""
    step = int(frame_step.reshape(-1)[0])
    if frame_length is not None:
        length = int(frame_length.reshape(-1)[0])
    else:
        length = signal.shape[1] if window is None else window.shape[0]
    parts = signal.shape[2] if signal.ndim == 3 else 1
    flat = reshaped(signal, (*signal.shape[:2], parts))
    frames = ops.permute(ops.unfold(flat, dim=1, size=length, step=step), axes=(0, 1, 3, 2))
    if window is not None:
        frames = frames * reshaped(window, (length, 1))
    return _transform(frames, length, 2, False, bool(onesided))


@operator("MelWeightMatrix", 17)
def mel_weight_matrix(
    num_mel_bins: Host,
    dft_length: Host,
    sample_rate: Host,
    lower_edge_hertz: Host,
    upper_edge_hertz: Host,
    *,
    output_datatype: int = 1,
) -> Outputs:
    """The weights that turn a spectrum into bins of the mel scale, known on the host."""
    bins, length, rate = (int(v.reshape(-1)[0]) for v in (num_mel_bins, dft_length, sample_rate))
    low, high = (2595 * np.log10(1 + float(v.reshape(-1)[0]) / 700) for v in (lower_edge_hertz, upper_edge_hertz))
    edges = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    places = ((length + 1) * (700 * (np.power(10, edges / 2595) - 1)) // rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, centre, right = places[i : i + 3]
        if left == centre:
            weights[centre, i] = 1
        else:
            weights[left : centre + 1, i] = (np.arange(left, centre + 1) - left) / (centre - left)
        if right > centre:
            weights[centre:right, i] = (right - np.arange(centre, right)) / (right - centre)
    return weights.astype(dtype_of(output_datatype).numpy)


# -- random numbers ---------------------------------------------------------------------------------------
@operator("RandomNormal")
def random_normal(
    *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, shape: Ints, device: Device
) -> Tensor:
    """Drawn from a normal distribution, from the key of the step; `seed` is not used."""
    return Tensor.random(shape, Distribution.Normal(mean, scale), (device, dtype_of(dtype)))


@operator("RandomUniform")
def random_uniform(
    *, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, shape: Ints, device: Device
) -> Tensor:
    """Drawn evenly from [low, high), from the key of the step; `seed` is not used."""
    return Tensor.random(shape, Distribution.Uniform(low, high), (device, dtype_of(dtype)))


@operator("RandomNormalLike")
def random_normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    """Drawn from a normal distribution in the shape of x, from the key of the step; `seed` is not used."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return Tensor.random(x.shape, Distribution.Normal(mean, scale), (x.device, kind))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    """Drawn evenly from [low, high) in the shape of x, from the key of the step; `seed` is not used."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return Tensor.random(x.shape, Distribution.Uniform(low, high), (x.device, kind))


@operator("Bernoulli", 15)
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that x says, else 0, from the key of the step; `seed` is not used."""
    draw = Tensor.random(x.shape, Distribution.Uniform(0.0, 1.0), (x.device, DType.F32))
    return draw.lower(x.cast(DType.F32)).cast(x.dtype if dtype is None else dtype_of(dtype))
