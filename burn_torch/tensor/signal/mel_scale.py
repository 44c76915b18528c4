"""The mel scale: frequencies as far apart as they sound.  Formulas of torchaudio, which has them of HTK and Slaney."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np

from burn_torch.core.checking import at_least, check_functions, checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.ops.samples import Array
from burn_torch.tensor._arguments import integer, option
from burn_torch.tensor.options import creation
from burn_torch.tensor.signal.framing import StftOptions, spectrogram
from burn_torch.tensor.signal.tapering import hann_window
from burn_torch.tensor.tensor import Tensor

__all__ = ["MelOptions", "hertz_to_mel", "mel_filter_bank", "mel_spectrogram", "mel_to_hertz"]

Function: TypeAlias = Callable[[Array], Array]


@final
@checked(sample_rate=at_least(1), n_mels=at_least(1))
@dataclass(frozen=True)
class MelOptions:
    """The filters that `mel_filter_bank` makes.

    sample_rate   samples a second
    n_mels        filters
    f_min, f_max  hertz, the ends of the first and the last filter; f_max is sample_rate // 2 unless given
    norm          "slaney" divides each filter by its width in hertz
    scale         "htk", logarithmic; or "slaney", linear below 1000 Hz

    PyTorch: torchaudio.functional.melscale_fbanks.
    """

    sample_rate: int = 16000
    n_mels: int = 128
    f_min: float = 0.0
    f_max: float | None = None
    norm: str | None = None
    scale: str = "htk"

    def __post_init__(self) -> None:
        if self.scale in _SCALES and self.norm in (None, "slaney") and 0 <= self.f_min < self.highest:
            return
        raise told(
            ArgumentError,
            "there are no such mel filters",
            given=f"f_min {self.f_min}, f_max {self.highest}, norm {self.norm!r}, scale {self.scale!r}",
            expected='0 <= f_min < f_max, norm None or "slaney", scale "htk" or "slaney"',
            mend="leave out what you do not need: MelOptions(sample_rate=16000, n_mels=80)",
        )

    @property
    def highest(self) -> float:
        """Hertz, where the last filter ends."""
        return float(self.sample_rate // 2) if self.f_max is None else self.f_max


_STEP: Final = 200.0 / 3  # hertz a mel below 1000 Hz, on Slaney's scale
_LOG_STEP: Final = math.log(6.4) / 27.0


def _slaney(hertz: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(hertz >= 1000.0, 15.0 + np.log(hertz / 1000.0) / _LOG_STEP, hertz / _STEP)


def _slaney_hertz(mel: Array) -> Array:
    return np.where(mel >= 15.0, 1000.0 * np.exp(_LOG_STEP * (mel - 15.0)), mel * _STEP)


_SCALES: Final[dict[str, tuple[Function, Function]]] = {
    "htk": (lambda hertz: 2595 * np.log10(1 + hertz / 700), lambda mel: 700 * (np.power(10.0, mel / 2595) - 1)),
    "slaney": (_slaney, _slaney_hertz),
}


def hertz_to_mel(hertz: Array, scale: str = "htk") -> Array:
    """Frequencies on the mel scale, on the host."""
    return _known_scale(scale)[0](np.asarray(hertz, np.float64))


def mel_to_hertz(mel: Array, scale: str = "htk") -> Array:
    """Frequencies of mels, on the host."""
    return _known_scale(scale)[1](np.asarray(mel, np.float64))


def _known_scale(scale: str) -> tuple[Function, Function]:
    if scale not in _SCALES:
        raise told(
            ArgumentError,
            "there is no such mel scale",
            given=f"scale {scale!r}",
            expected='"htk" or "slaney"',
            mend="leave it out: HTK's is the default",
        )
    return _SCALES[scale]


def mel_filter_bank(bins: int, mel: MelOptions, options: object) -> Tensor:
    """Triangles over the bins of a spectrum, evenly spaced on the mel scale: `spectrum @ filters` gives mels.

    `options` is a device, or (device, dtype); f32 unless it says otherwise, computed in f64 and rounded once.
    Shapes: bins n_fft // 2 + 1 -> (bins, n_mels).
    PyTorch: torchaudio.functional.melscale_fbanks.
    """
    count, chosen = integer(bins, "bins"), option(mel, MelOptions, "mel")
    device, dtype = creation(options, DType.F32)
    frequencies = np.linspace(0.0, chosen.sample_rate // 2, max(count, 0))
    low, high = hertz_to_mel(np.array([chosen.f_min, chosen.highest]), chosen.scale).tolist()
    edges = mel_to_hertz(np.linspace(low, high, chosen.n_mels + 2), chosen.scale)
    widths, slopes = np.diff(edges), edges - frequencies[:, None]
    filters = np.maximum(0.0, np.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]))
    if chosen.norm is not None:
        filters *= 2.0 / (edges[2:] - edges[:-2])
    return Tensor.from_data(filters, device, dtype)


def mel_spectrogram(
    signal: Tensor,
    mel: MelOptions | None = None,
    window: Tensor | None = None,
    options: StftOptions | None = None,
    power: float = 2.0,
) -> Tensor:
    """The spectrogram of a signal, in mels.

    window: a periodic Hann window unless given.
    Shapes: signal (*batch, samples) -> (*batch, frames, n_mels).
    PyTorch: torchaudio.transforms.MelSpectrogram, with frames and mels swapped.
    """
    chosen, frames = option(mel, MelOptions, "mel"), option(options, StftOptions, "options")
    like = (signal.device.no_grad(), signal.dtype)
    taper = hann_window(frames.window_size, True, like) if window is None else window
    spectra = spectrogram(
        signal, taper, StftOptions(frames.n_fft, frames.hop_length, frames.win_length, frames.center), power
    )
    return spectra @ mel_filter_bank(frames.n_fft // 2 + 1, chosen, like)


check_functions(globals(), "signal")
