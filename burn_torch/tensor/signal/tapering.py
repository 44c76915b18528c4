"""Windows: what fades a frame out at its ends.

    w[i] = sum over j of (-1)^j * c[j] * cos(2 pi i j / N)

N is `size` of a periodic window, for spectra, and `size - 1` of a symmetric one, for filters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import integer, real, truth
from burn_torch.tensor.options import creation
from burn_torch.tensor.tensor import Tensor

__all__ = ["blackman_window", "cosine_window", "hamming_window", "hann_window"]


def hann_window(size: int, periodic: bool, options: object) -> Tensor:
    """0.5 - 0.5 cos.  `options` is a device, or (device, dtype).  PyTorch: torch.hann_window.  Shapes: -> (size,)."""
    return cosine_window((0.5, 0.5), size, periodic, options)


def hamming_window(size: int, periodic: bool, options: object) -> Tensor:
    """0.54 - 0.46 cos.  PyTorch: torch.hamming_window.  Shapes: -> (size,)."""
    return cosine_window((0.54, 0.46), size, periodic, options)


def blackman_window(size: int, periodic: bool, options: object) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle.  PyTorch: torch.blackman_window.  Shapes: -> (size,)."""
    return cosine_window((0.42, 0.5, 0.08), size, periodic, options)


def cosine_window(coefficients: Sequence[float], size: int, periodic: bool, options: object) -> Tensor:
    """A sum of cosines with these coefficients.  scipy: general_cosine.  A window of size 1 is 1.

    Shapes: -> (size,).  Dtypes: f32 unless the options say otherwise; computed in f64 and rounded once.
    """
    count = integer(size, "size")
    if count < 0:
        raise told(
            ArgumentError,
            "a window has no negative size",
            given=f"size {size}",
            expected="0 or more",
            mend="pass the number of samples of a frame",
        )
    device, dtype = creation(options, DType.F32)
    if not isinstance(coefficients, list | tuple) or not coefficients or not dtype.is_float:
        raise told(
            ArgumentError,
            "these are no values of a window",
            given=f"coefficients {coefficients!r:.60}, {dtype}",
            expected="a list of one coefficient or more, and a float type",
            mend="cosine_window((0.5, 0.5), size, True, device) is the Hann window, of f32",
        )
    span = count if truth(periodic, "periodic") else count - 1
    angle = 2 * np.pi * np.arange(count) / max(span, 1)
    values = [(-1) ** j * real(c, "a coefficient") * np.cos(j * angle) for j, c in enumerate(coefficients)]
    return Tensor.from_data(np.ones(1) if count == 1 else sum(values, np.zeros(count)), device, dtype)


check_functions(globals(), "signal")
