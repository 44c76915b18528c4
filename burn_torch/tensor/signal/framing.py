"""Spectra of short frames of a signal, and the signal of such spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from burn_torch import ops
from burn_torch.core.checking import at_least, check_functions, checked
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import integer, option, real
from burn_torch.tensor.apply import apply_one, require_tensor
from burn_torch.tensor.complex_tensor import ComplexTensor
from burn_torch.tensor.options import PadMode
from burn_torch.tensor.signal.transforms import Signal, fft, irfft, parts_of, rfft
from burn_torch.tensor.tensor import Tensor

__all__ = ["StftOptions", "istft", "spectrogram", "stft"]


@final
@checked(n_fft=at_least(1), hop_length=at_least(1), win_length=at_least(1))
@dataclass(frozen=True)
class StftOptions:
    """How `stft` and `istft` cut a signal into frames.

    n_fft       points of a frame, any number
    hop_length  samples from one frame to the next; a quarter of n_fft unless given
    win_length  samples of the window, which zeros on both sides fill up to n_fft; n_fft unless given
    center      whether frame t is centred at sample t * hop_length: the signal is mirrored at both ends
    onesided    whether only the n_fft // 2 + 1 bins are kept that say all

    Raises: ArgumentError where frames would leave samples out: hop_length > win_length, or win_length > n_fft.
    """

    n_fft: int = 400
    hop_length: int | None = None
    win_length: int | None = None
    center: bool = True
    onesided: bool = True

    def __post_init__(self) -> None:
        if not self.hop <= self.window_size <= self.n_fft:
            raise told(
                ArgumentError,
                "the frames do not cover the signal",
                given=f"hop_length {self.hop}, win_length {self.window_size}, n_fft {self.n_fft}",
                expected="hop_length <= win_length <= n_fft",
                mend="leave hop_length and win_length out: they are n_fft // 4 and n_fft",
            )

    @staticmethod
    def new(n_fft: int) -> StftOptions:
        """Burn's constructor."""
        return StftOptions(n_fft)

    @property
    def hop(self) -> int:
        """The samples from one frame to the next."""
        return max(self.n_fft // 4, 1) if self.hop_length is None else self.hop_length

    @property
    def window_size(self) -> int:
        """The samples of the window."""
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def bins(self) -> int:
        """The bins of a frame's spectrum."""
        return self.n_fft // 2 + 1 if self.onesided else self.n_fft


def stft(signal: Signal, window: Tensor | None = None, options: StftOptions | None = None) -> Tensor:
    """The spectra of frames that move along the last axis; real and imaginary parts lie along a new last axis.

    signal: real; or complex, if all bins are kept.  window: (win_length,), ones unless given.
    `ComplexTensor.view_as_complex(y)` makes complex numbers of the result.
    Shapes: signal (*batch, samples) -> (*batch, frames, bins, 2).
    PyTorch: torch.stft, which gives (*batch, bins, frames).
    """
    return _spectra(signal, window, option(options, StftOptions, "options")).view_as_real()


def _spectra(signal: Signal, window: Tensor | None, chosen: StftOptions) -> ComplexTensor:
    first, imag = parts_of(signal)
    half = chosen.n_fft // 2
    least = half + 1 if chosen.center else chosen.n_fft
    if not first.ndim or first.shape[-1] < least:
        raise told(
            ShapeError,
            "the signal is shorter than a frame",
            given=f"signal {first.spec}, n_fft {chosen.n_fft}, center {chosen.center}",
            expected=f"signal (*batch, samples) of {least} samples or more",
            mend="pad the signal with zeros, or take a smaller n_fft",
        )
    if imag is not None and chosen.onesided:
        raise told(
            ArgumentError,
            "half a spectrum does not say all of a complex signal",
            given="a ComplexTensor, onesided True",
            expected="all bins",
            mend=f"pass StftOptions({chosen.n_fft}, onesided=False)",
        )
    weights = _weights(first, window, chosen)

    def cut(part: Tensor) -> Tensor:
        mirrored = part.pad([(half, half)], PadMode.Reflect) if chosen.center else part
        frames = mirrored.unfold(part.ndim - 1, chosen.n_fft, chosen.hop)
        return frames if weights is None else frames * weights

    if imag is not None:
        return fft(ComplexTensor(cut(first), cut(imag)))
    return rfft(cut(first)) if chosen.onesided else fft(cut(first))


def istft(
    stft_matrix: Tensor | ComplexTensor,
    window: Tensor | None = None,
    length: int | None = None,
    options: StftOptions | None = None,
) -> Tensor:
    """The signal of spectra that `stft` made with the same window and options: frames add up, over their weights.

        x[t] = sum of w[t - s] * frame[t - s] / sum of w[t - s]^2,  over frames that begin at s

    length: the samples of the result; those that no frame covers are zeros.  Without it, a centred result ends
    n_fft // 2 samples before the last frame does.
    Shapes: stft_matrix (*batch, frames, bins, 2), or complex (*batch, frames, bins) -> (*batch, samples).
    Source: Griffin, Lim 1984, Signal estimation from modified short-time Fourier transform.  PyTorch: torch.istft.
    """
    chosen = option(options, StftOptions, "options")
    spectra = stft_matrix if isinstance(stft_matrix, ComplexTensor) else ComplexTensor.view_as_complex(stft_matrix)
    if spectra.ndim < 2 or not spectra.shape[-2] or spectra.shape[-1] != chosen.bins:
        raise told(
            ShapeError,
            "these are no spectra of such frames",
            given=f"parts {spectra.real.spec}, n_fft {chosen.n_fft}, onesided {chosen.onesided}",
            expected=f"(*batch, frames, {chosen.bins}) with one frame or more",
            mend="pass the options that stft had",
        )
    count, points, hop = spectra.shape[-2], chosen.n_fft, chosen.hop
    frames = irfft(spectra.narrow(-1, 0, points // 2 + 1), None, -1, points)
    weights = _weights(frames, window, chosen)
    flat = frames.reshape(-1, count, points)
    ones = frames.new_full((1, count, points), 1.0)
    if weights is not None:
        flat, ones = flat * weights, ones * weights.square()
    covered = points + (count - 1) * hop
    added = _overlap(flat, covered, hop) / _overlap(ones, covered, hop).clamp_min(_LEAST)
    start = points // 2 if chosen.center else 0
    wanted = covered - 2 * start if length is None else integer(length, "length")
    if wanted < 0:
        raise told(
            ArgumentError,
            "a signal has no negative length",
            given=f"length {length}",
            expected="0 or more samples",
            mend="leave it out: the result has what the frames cover",
        )
    kept = min(wanted, covered - start)
    y = added.narrow(1, start, kept).pad([(0, wanted - kept)])
    return y.reshape(*spectra.shape[:-2], wanted)


_LEAST = 1e-10
"""The least sum of squared weights: below it no frame says anything of a sample."""


def spectrogram(
    signal: Signal, window: Tensor | None = None, options: StftOptions | None = None, power: float = 2.0
) -> Tensor:
    """|stft|^power: 1 for magnitudes, 2 for powers.  torchaudio: spectrogram, with frames and bins swapped.

    Shapes: signal (*batch, samples) -> (*batch, frames, bins).
    """
    spectra = _spectra(signal, window, option(options, StftOptions, "options"))
    exponent = real(power, "power")
    if exponent == 2:
        return spectra.abs_square()
    return spectra.abs() if exponent == 1 else spectra.abs_square() ** (exponent / 2)


def _weights(like: Tensor, window: Tensor | None, chosen: StftOptions) -> Tensor | None:
    """The window in the middle of n_fft points; None if all of them are 1."""
    if window is None:
        if chosen.window_size == chosen.n_fft:
            return None
        window = like.new_full((chosen.window_size,), 1.0)
    require_tensor(window, "window")
    if window.shape != (chosen.window_size,):
        raise told(
            ShapeError,
            "the window does not fit the frames",
            given=f"window {window.spec}",
            expected=f"({chosen.window_size},), the win_length of the options",
            mend="signal.hann_window(options.window_size, True, device) makes one",
        )
    before = (chosen.n_fft - chosen.window_size) // 2
    after = chosen.n_fft - chosen.window_size - before
    return window.pad([(before, after)]) if before or after else window


def _overlap(frames: Tensor, covered: int, hop: int) -> Tensor:
    """Frames, each `hop` behind the one before, added up.  Shapes: (batch, frames, points) -> (batch, covered)."""
    batch, _, points = frames.shape
    return apply_one(ops.unfold_backward, (frames,), (batch, covered), 1, points, hop)


check_functions(globals(), "signal")
