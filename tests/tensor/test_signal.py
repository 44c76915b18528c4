"""Fourier transforms, frames, windows, mel filters, convolution: beside torch, scipy and formulas, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch

import burn_torch
from burn_torch import ArgumentError, ComplexTensor, Device, DType, DTypeError, ShapeError, Tensor
from burn_torch.tensor import signal
from burn_torch.tensor.signal import MelOptions, StftOptions

LEAVES = {"torch": Device.cpu, "numpy": Device.ndarray}
leaves = pytest.mark.parametrize("leaf", LEAVES)
Array = np.ndarray[Any, Any]


def close(ours: object, theirs: Any, atol: float = 1e-12) -> None:
    expected = theirs.resolve_conj().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    actual = np.asarray(ours)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=atol, rtol=1e-11)


def draw(*shape: int, at: int = 3) -> Array:
    generator = np.random.default_rng(at)
    return generator.normal(size=shape) + 1j * generator.normal(size=shape)


# -- transforms ----------------------------------------------------------------------------------------------
@leaves
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_one_axis_equal_torch(norm: str, leaf: str) -> None:
    values = draw(3, 5, 6)
    z, x = ComplexTensor.from_data(values, LEAVES[leaf]()), Tensor.from_data(values.real, LEAVES[leaf]())
    tz, tx = torch.from_numpy(values), torch.from_numpy(values.real.copy())
    for n, dim in ((None, -1), (None, 0), (4, 1), (9, -1), (1, 0)):
        for names, ours, theirs in (
            (("fft", "ifft", "hfft", "irfft"), z, tz),
            (("fft", "rfft", "ihfft", "irfft"), x, tx),
        ):
            for name in names:
                close(
                    getattr(signal, name)(ours, dim=dim, n=n, norm=norm), getattr(torch.fft, name)(theirs, n, dim, norm)
                )


@leaves
def test_transforms_of_several_axes_equal_torch(leaf: str) -> None:
    values = draw(3, 4, 5)
    z, x = ComplexTensor.from_data(values, LEAVES[leaf]()), Tensor.from_data(values.real, LEAVES[leaf]())
    tz, tx = torch.from_numpy(values), torch.from_numpy(values.real.copy())
    for dims, sizes in ((None, None), ((2, 0), (4, 7)), (None, (3, 8)), (1, 5)):
        for name in ("fftn", "ifftn", "irfftn", "hfftn"):
            close(getattr(signal, name)(z, dims, sizes, "ortho"), getattr(torch.fft, name)(tz, sizes, dims, "ortho"))
        for name in ("fftn", "rfftn", "ihfftn"):
            close(getattr(signal, name)(x, dims, sizes), getattr(torch.fft, name)(tx, sizes, dims))
    for name in ("fft2", "ifft2", "irfft2", "hfft2"):
        close(getattr(signal, name)(z), getattr(torch.fft, name)(tz))
    for name in ("rfft2", "ihfft2"):
        close(getattr(signal, name)(x), getattr(torch.fft, name)(tx))


def test_burns_functions_take_and_give_pairs() -> None:
    values, device = draw(2, 6), Device.cpu()
    re, im = Tensor.from_data(values.real, device), Tensor.from_data(values.imag, device)
    real, imag = signal.cfft(re, im, 1, None)
    close(real, np.fft.fft(values).real)
    close(imag, np.fft.fft(values).imag)
    real, imag = signal.rfft(re, 1, 8)
    assert real.shape == imag.shape == (2, 5)
    close(signal.irfft(real, imag, 1, 8), np.pad(values.real, ((0, 0), (0, 2))))


GRADIENTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "fft": (lambda z: signal.fft(z, 0, 7), lambda z: torch.fft.fft(z, 7, 0)),
    "ifftn": (lambda z: signal.ifftn(z, (0, 1)), lambda z: torch.fft.ifftn(z, dim=(0, 1))),
    "rfft": (lambda z: signal.rfft(z.imag, 1, 4), lambda z: torch.fft.rfft(z.imag, 4, 1)),
    "rfftn": (lambda z: signal.rfftn(z.real, (1, 0)), lambda z: torch.fft.rfftn(z.real, dim=(1, 0))),
    "irfftn": (lambda z: signal.irfftn(z, (0, 1), (4, 5)), lambda z: torch.fft.irfftn(z, (4, 5), (0, 1))),
    "hfft": (lambda z: signal.hfft(z, norm="ortho"), lambda z: torch.fft.hfft(z, norm="ortho")),
    "imaginary part alone": (lambda z: signal.rfft(z.real).imag, lambda z: torch.fft.rfft(z.real).imag),
    "imaginary part of fft": (lambda z: signal.fft(z).imag, lambda z: torch.fft.fft(z).imag),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_and_their_gradients_equal_torch(name: str) -> None:
    ours, theirs = GRADIENTS[name]
    values, second = draw(4, 5), draw(4, 5, at=5)
    z, v = (ComplexTensor.from_data(part, Device.cpu()) for part in (values, second))
    shape = tuple(np.asarray(ours(z)).shape)
    weights = draw(*shape, at=4)
    w, tw = ComplexTensor.from_data(weights, Device.cpu()), torch.from_numpy(weights)

    def loss(z: ComplexTensor) -> Tensor:  # of the third degree, so that its second derivative is no constant
        y = ours(z)
        return (y * y * y * w).real.sum() if isinstance(y, ComplexTensor) else (y * y * y * w.real).sum()

    def slope(z: ComplexTensor) -> Tensor:
        g = burn_torch.grad(loss)(z)
        return (g.real * v.real + g.imag * v.imag).sum()

    tz = torch.from_numpy(values).requires_grad_()
    y = theirs(tz)
    total = ((y**3 * tw).real if y.is_complex() else y**3 * tw.real).sum()
    (first,) = torch.autograd.grad(total, tz, create_graph=True)
    close(burn_torch.grad(loss)(z), first.detach())
    (again,) = torch.autograd.grad((first * torch.from_numpy(second).conj()).real.sum(), tz)
    close(burn_torch.grad(slope)(z), again, atol=1e-10)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_half_types_are_computed_in_float32_and_rounded_once(dtype: DType) -> None:
    x = Tensor.from_data(draw(3, 24).real, Device.cpu(), dtype)
    exact = np.fft.rfft(x.cast(DType.F64).into_data().values)
    real, imag = signal.rfft(x)
    assert real.dtype is imag.dtype is dtype
    unit = {DType.F32: 2e-7, DType.F16: 2**-11, DType.BF16: 2**-8}[dtype]
    largest = np.abs(exact).max()
    for part, expected in ((real, exact.real), (imag, exact.imag)):
        error = np.abs(part.cast(DType.F64).into_data().values - expected)
        assert (error <= unit * np.abs(expected) + 1e-6 * largest).all()


@leaves
def test_layouts_empty_batches_and_one_point(leaf: str) -> None:
    values = draw(4, 3, 2).real
    x = Tensor.from_data(values, LEAVES[leaf]())
    close(signal.rfft(x.permute([2, 0, 1]), 1), np.fft.rfft(values.transpose(2, 0, 1), axis=1))
    close(signal.fft(x[:1].expand(4, 3, 2), 0), np.fft.fft(np.broadcast_to(values[:1], (4, 3, 2)), axis=0))
    again = signal.ifft(signal.fft(x).transpose())
    close(again, np.fft.ifft(np.fft.fft(values).swapaxes(1, 2)))
    assert signal.rfft(x[:0]).shape == (0, 3, 2)
    assert signal.irfft(signal.rfft(x[:0])).shape == (0, 3, 2)
    assert signal.irfft(x[..., :1], n=1).shape == (4, 3, 1)


def test_writing_to_one_part_leaves_the_other() -> None:
    x = Tensor.from_data(draw(8).real, Device.cpu())

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        real, imag = signal.fft(x)
        return (real * 2.0 + 1.0).exp(), imag

    for ours, plain in zip(burn_torch.compile(both)(x), both(x), strict=True):
        close(ours, np.asarray(plain))

    def loss(x: Tensor) -> Tensor:
        real, imag = signal.fft(x.square())
        return (real.exp() * imag).sum()

    close(burn_torch.compile(burn_torch.grad(loss))(x), np.asarray(burn_torch.grad(loss)(x)))


def test_samples_at_once_are_transformed_as_one_by_one() -> None:
    x, batch = Tensor.ones((1,), (Device.cpu(), DType.F64)), Tensor.from_data(draw(5, 4, 6).real, Device.cpu())

    def loss(x: Tensor, sample: Tensor) -> Tensor:
        real, imag = signal.rfftn(sample * x, (-1, -2))
        return (signal.irfftn(ComplexTensor(real.square(), imag), (-1, -2), (6, 4)) * sample).sum()

    each = burn_torch.per_sample_grad(loss, in_axes=(None, 0))(x, batch)
    single = [burn_torch.grad(loss)(x, batch[i]).tolist() for i in range(5)]
    close(each, single)


def test_vmap_transforms_each_sample() -> None:
    values = draw(3, 4, 6)
    z = ComplexTensor.from_data(values, Device.cpu())
    close(burn_torch.vmap(lambda z: signal.fft(z, 0))(z), np.fft.fft(values, axis=1))
    close(burn_torch.vmap(lambda x: signal.fft(x, 0))(z.real), np.fft.fft(values.real, axis=1))
    close(burn_torch.vmap(lambda x: signal.rfftn(x, (1, 0)))(z.real), np.fft.rfftn(values.real, axes=(2, 1)))
    close(burn_torch.vmap(lambda z: signal.irfft(z, n=7))(z), np.fft.irfft(values, 7))


def test_one_program_takes_signals_of_many_lengths() -> None:
    def loss(x: Tensor) -> Tensor:
        spectra = signal.stft(x, None, StftOptions(8))
        return signal.istft(spectra, None, None, StftOptions(8)).square().sum() + signal.fftconvolve(x, x).sum()

    compiled = burn_torch.compile(burn_torch.grad(loss))
    for length in (20, 23, 28, 20):
        x = Tensor.from_data(draw(length).real, Device.cpu())
        close(compiled(x), np.asarray(burn_torch.grad(loss)(x)))


THREE_PARTS = r"\n  given:    .*{}[\s\S]*\n  expected: [\s\S]*{}[\s\S]*\n  mend:     [\s\S]*{}"
X = Tensor.zeros((2, 3), Device.cpu())
WRONG: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, str, str]]] = {
    "integers": (lambda: signal.fft(X.int()), DTypeError, ("i64", "f64", "float")),
    "complex": (lambda: signal.rfft(signal.fft(X)), DTypeError, ("ComplexTensor", "a Tensor", "fftn")),
    "norm": (lambda: signal.fft(X, norm="half"), ArgumentError, ("'half'", "'ortho'", "leave it out")),
    "no points": (lambda: signal.fft(X, n=0), ShapeError, ("points", "at least one", "zeros")),
    "an axis": (lambda: signal.fft(X, 2), ShapeError, ("dim 2", "-2 to 1", "count axes")),
    "an axis twice": (lambda: signal.fftn(X, (0, -2)), ShapeError, ("dims", "distinct", "once")),
    "sizes": (lambda: signal.fftn(X, (0,), (2, 3)), ShapeError, ("dims", "one axis", "one size")),
    "one bin": (lambda: signal.irfft(X[:, :1]), ShapeError, ("0 points", "one point", "n=1")),
    "torch's order": (lambda: signal.irfft(signal.rfft(X), 4), DTypeError, ("4", "two tensors", "dim=-1")),
    "a short signal": (lambda: signal.stft(X), ShapeError, ("n_fft 400", "201 samples", "pad")),
    "half of a complex signal": (
        lambda: signal.stft(signal.fft(X), None, StftOptions(2)),
        ArgumentError,
        ("ComplexTensor", "all bins", "onesided=False"),
    ),
    "a window": (
        lambda: signal.stft(X, X[0], StftOptions(2)),
        ShapeError,
        ("window", "win_length", "hann_window"),
    ),
    "gaps": (lambda: StftOptions(8, 9), ArgumentError, ("hop_length 9", "hop_length <= win_length", "leave")),
    "spectra": (lambda: signal.istft(X, None, None, StftOptions(2)), ShapeError, ("", "", "")),
    "mels": (lambda: MelOptions(f_min=9e9), ArgumentError, ("f_min", "f_min < f_max", "leave out")),
    "mode": (lambda: signal.fftconvolve(X, X, "some"), ArgumentError, ("'some'", "full", "leave it out")),
    "valid": (lambda: signal.fftconvolve(X, X.transpose(), "valid"), ShapeError, ("2, 3", "longer", "full")),
    "window size": (lambda: signal.hann_window(-1, True, Device.cpu()), ArgumentError, ("-1", "0 or more", "samples")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_in_words(name: str) -> None:
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=THREE_PARTS.format(*words)):
        call()


# -- frequencies ---------------------------------------------------------------------------------------------
def test_frequencies_and_shifts_equal_numpy() -> None:
    for n in (1, 4, 5):
        close(signal.fftfreq(n, 0.5, (Device.cpu(), DType.F64)), np.fft.fftfreq(n, 0.5))
        close(signal.rfftfreq(n, 0.5, (Device.cpu(), DType.F64)), np.fft.rfftfreq(n, 0.5))
    values = draw(4, 5)
    z = ComplexTensor.from_data(values, Device.cpu())
    for dims in (None, 1, (0, 1)):
        close(signal.fftshift(z, dims), np.fft.fftshift(values, dims))
        close(signal.ifftshift(z.real, dims), np.fft.ifftshift(values.real, dims))


# -- windows -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("name", ["hann_window", "hamming_window", "blackman_window"])
def test_windows_equal_torch(name: str, periodic: bool) -> None:
    for size in (0, 1, 2, 7, 8):
        expected = getattr(torch, name)(size, periodic, dtype=torch.float64)
        close(getattr(signal, name)(size, periodic, (Device.cpu(), DType.F64)), expected)
    assert getattr(signal, name)(8, periodic, Device.cpu()).dtype is DType.F32


# -- frames --------------------------------------------------------------------------------------------------
@leaves
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
def test_stft_and_istft_equal_torch(onesided: bool, center: bool, leaf: str) -> None:
    values, device = draw(2, 50).real, LEAVES[leaf]()
    options = StftOptions(15, hop_length=4, win_length=11, center=center, onesided=onesided)
    window = signal.hamming_window(11, True, (device, DType.F64))
    tw = torch.hamming_window(11, dtype=torch.float64)
    spectra = signal.stft(Tensor.from_data(values, device), window, options)
    settings: dict[str, Any] = {"center": center, "onesided": onesided}
    theirs = torch.stft(torch.from_numpy(values), 15, 4, 11, tw, return_complex=True, **settings)
    close(ComplexTensor.view_as_complex(spectra).transpose(), theirs)
    if center:  # without it, torch refuses windows whose ends are filled up with zeros
        for length in (None, 33, 50):
            ours = signal.istft(spectra, window, length, options)
            close(ours, torch.istft(theirs, 15, 4, 11, tw, length=length, **settings))


def test_stft_of_a_complex_signal_equals_torch() -> None:
    values, window = draw(2, 30), signal.hann_window(8, True, (Device.cpu(), DType.F64))
    ours = signal.stft(ComplexTensor.from_data(values, Device.cpu()), window, StftOptions(8, onesided=False))
    weights = torch.hann_window(8, dtype=torch.float64)
    theirs = torch.stft(torch.from_numpy(values), 8, window=weights, onesided=False, return_complex=True)
    close(ComplexTensor.view_as_complex(ours).transpose(), theirs)


def test_stft_without_a_window_is_rectangular_as_in_burn() -> None:
    values = draw(3, 20).real
    spectra = signal.stft(Tensor.from_data(values, Device.cpu()), None, StftOptions(8, center=False))
    frames = np.lib.stride_tricks.sliding_window_view(values, 8, axis=1)[:, ::2]
    close(ComplexTensor.view_as_complex(spectra), np.fft.rfft(frames))
    assert spectra.shape == (3, 7, 5, 2)
    close(signal.istft(spectra, None, 22, StftOptions(8, center=False)), np.pad(values, ((0, 0), (0, 2))))


def test_istft_of_one_signal_has_the_gradient_of_torch() -> None:
    values, options = draw(4, 5), StftOptions(8)
    window, tw = signal.hann_window(8, True, (Device.cpu(), DType.F64)), torch.hann_window(8, dtype=torch.float64)
    z = ComplexTensor.from_data(values, Device.cpu())
    ours = burn_torch.grad(lambda z: (signal.istft(z, window, None, options) ** 3).sum())(z)
    tz = torch.from_numpy(values).requires_grad_()
    (torch.istft(tz.transpose(0, 1), 8, 2, window=tw) ** 3).sum().backward()
    assert tz.grad is not None
    close(ours, tz.grad)


# -- mel -----------------------------------------------------------------------------------------------------
def mel_filters(bins: int, rate: int, mels: int, low: float, high: float, slaney_scale: bool, norm: bool) -> Array:
    """Each filter point by point, from its definition."""
    step = np.log(6.4) / 27

    def mel(f: float) -> float:
        if not slaney_scale:
            return float(2595 * np.log10(1 + f / 700))
        return f * 3 / 200 if f < 1000 else float(15 + np.log(f / 1000) / step)

    def hertz(m: float) -> float:
        if not slaney_scale:
            return float(700 * (10 ** (m / 2595) - 1))
        return m * 200 / 3 if m < 15 else float(1000 * np.exp(step * (m - 15)))

    edges = [hertz(mel(low) + i * (mel(high) - mel(low)) / (mels + 1)) for i in range(mels + 2)]
    filters = np.zeros((bins, mels))
    for j in range(mels):
        left, middle, right = edges[j : j + 3]
        for i in range(bins):
            f = i * (rate // 2) / (bins - 1)
            rising, falling = (f - left) / (middle - left), (right - f) / (right - middle)
            filters[i, j] = max(0.0, min(rising, falling)) * (2 / (right - left) if norm else 1)
    return filters


@pytest.mark.parametrize(("scale", "norm"), [("htk", None), ("slaney", "slaney"), ("slaney", None)])
def test_mel_filters_are_triangles_on_the_mel_scale(scale: str, norm: str | None) -> None:
    options = MelOptions(8000, 12, 40.0, 3900.0, norm, scale)
    expected = mel_filters(65, 8000, 12, 40.0, 3900.0, scale == "slaney", norm is not None)
    close(signal.mel_filter_bank(65, options, (Device.cpu(), DType.F64)), expected, atol=1e-9)
    close(signal.mel_to_hertz(signal.hertz_to_mel(expected * 4000, scale), scale), expected * 4000, atol=1e-9)


def test_mel_spectrogram_is_the_power_of_frames_times_the_filters() -> None:
    values, device = draw(2, 300).real, Device.cpu()
    x, options = Tensor.from_data(values, device), StftOptions(64, hop_length=20)
    spectra = torch.stft(
        torch.from_numpy(values), 64, 20, window=torch.hann_window(64, dtype=torch.float64), return_complex=True
    )
    filters = torch.from_numpy(mel_filters(33, 16000, 9, 0.0, 8000.0, False, False))
    for power in (1.0, 2.0, 3.0):
        expected = (spectra.abs() ** power).transpose(1, 2) @ filters
        close(signal.mel_spectrogram(x, MelOptions(n_mels=9), None, options, power), expected, atol=1e-9)


# -- convolution ---------------------------------------------------------------------------------------------
@leaves
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_equals_scipy(mode: str, leaf: str) -> None:
    for shape, other in (((7,), (3,)), ((4, 9), (2, 5)), ((2, 3), (5, 6))):
        a, b = draw(*shape), draw(*other, at=7)
        z, w = (ComplexTensor.from_data(part, LEAVES[leaf]()) for part in (a, b))
        close(signal.fftconvolve(z, w, mode), scipy.signal.fftconvolve(a, b, mode))
        close(signal.fftconvolve(z.real, w.real, mode), scipy.signal.fftconvolve(a.real, b.real, mode))
    a, b = draw(2, 3, 8).real, draw(1, 3, 5).real
    x, y = (Tensor.from_data(part, LEAVES[leaf]()) for part in (a, b))
    close(signal.fftconvolve(x, y, mode, -1), scipy.signal.fftconvolve(a, b, mode, axes=-1))
