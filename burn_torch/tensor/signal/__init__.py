"""Signals: Fourier transforms, spectrograms, windows, mel filters, convolution by FFT.  Burn's `tensor::signal`.

    re, im = signal.rfft(x, dim=-1)                            # Burn's pair
    spectrum = signal.fft(x)                                   # the same class, a ComplexTensor
    frames = signal.stft(x, signal.hann_window(512, True, x.device), StftOptions(512))

All of them are made of rows of the table: they have gradients of any order, and run on every device.
"""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.core.spellings import hint_missing as _hint_missing
from burn_torch.core.spellings.packages import SIGNAL as _SIGNAL
from burn_torch.tensor.signal.convolving import *
from burn_torch.tensor.signal.framing import *
from burn_torch.tensor.signal.frequencies import *
from burn_torch.tensor.signal.mel_scale import *
from burn_torch.tensor.signal.tapering import *
from burn_torch.tensor.signal.transforms import *

_list_exports(globals())
_hint_missing(globals(), _SIGNAL, torch="fft")
