"""Signals and random numbers: DFT, STFT, MelWeightMatrix, windows, RandomNormal, RandomUniform, Bernoulli."""

from __future__ import annotations

import numpy as np

from burn_torch.core.distribution import Distribution
from burn_torch.core.dtype import DType
from burn_torch.onnx.operators.axes import Ints, axis_of, dtype_of, reshaped
from burn_torch.onnx.operators.registry import Host, Outputs, operator
from burn_torch.tensor import ComplexTensor, Device, Tensor
from burn_torch.tensor import signal as signals

__all__ = [
    "bernoulli", "blackman_window", "dft", "dft_17", "hamming_window", "hann_window", "mel_weight_matrix",
    "random_normal", "random_normal_like", "random_uniform", "random_uniform_like", "stft",
]  # fmt: skip


# -- Fourier -------------------------------------------------------------------------------------------
def _transform(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """The discrete Fourier transform; the last axis holds real and imaginary parts, or real parts alone."""
    at = axis_of(axis, x.ndim)
    z = x[..., 0] if x.shape[-1] == 1 else ComplexTensor.view_as_complex(x)
    if inverse and onesided:
        return signals.irfft(z, None, at, length).unsqueeze_dim(-1)
    y = signals.ifft(z, at, length) if inverse else signals.fft(z, at, length)
    return (y.narrow(at, 0, y.shape[at] // 2 + 1) if onesided else y).view_as_real()


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
    flat = reshaped(signal, (*signal.shape[:2], signal.shape[2] if signal.ndim == 3 else 1))
    frames = flat.unfold(1, length, step).swap_dims(2, 3)
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
    low, high = (float(signals.hertz_to_mel(v.reshape(-1)[0])) for v in (lower_edge_hertz, upper_edge_hertz))
    edges = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    places = ((length + 1) * signals.mel_to_hertz(edges) // rate).astype(np.int64)
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


def _window(coefficients: tuple[float, ...], size: Host, output_datatype: int, periodic: int, device: Device) -> Tensor:
    options = (device, dtype_of(output_datatype))
    return signals.cosine_window(coefficients, int(size.reshape(-1)[0]), bool(periodic), options)


@operator("HannWindow", 17)
def hann_window(size: Host, *, output_datatype: int = 1, periodic: int = 1, device: Device) -> Tensor:
    """A Hann window."""
    return _window((0.5, 0.5), size, output_datatype, periodic, device)


@operator("HammingWindow", 17)
def hamming_window(size: Host, *, output_datatype: int = 1, periodic: int = 1, device: Device) -> Tensor:
    """A Hamming window, with ONNX's coefficients."""
    return _window((25 / 46, 21 / 46), size, output_datatype, periodic, device)


@operator("BlackmanWindow", 17)
def blackman_window(size: Host, *, output_datatype: int = 1, periodic: int = 1, device: Device) -> Tensor:
    """A Blackman window."""
    return _window((0.42, 0.5, 0.08), size, output_datatype, periodic, device)


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
