"""The frequencies of bins, and spectra with frequency 0 in the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import all_axes, axes, integer, real
from burn_torch.tensor.complex_tensor import ComplexTensor
from burn_torch.tensor.options import creation
from burn_torch.tensor.tensor import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]

T = TypeVar("T", Tensor, ComplexTensor)


def fftfreq(n: int, d: float, options: object) -> Tensor:
    """The frequencies of the n bins of `fft`, of samples d apart: 0, 1, ..., -2, -1 over n * d.

    `options` is a device, or (device, dtype).  PyTorch: torch.fft.fftfreq.
    """
    return _frequencies(np.fft.fftfreq, n, d, options)


def rfftfreq(n: int, d: float, options: object) -> Tensor:
    """The frequencies of the n // 2 + 1 bins of `rfft`, of n samples d apart."""
    return _frequencies(np.fft.rfftfreq, n, d, options)


def _frequencies(count_bins: Callable[[int, float], object], n: int, d: float, options: object) -> Tensor:
    count, step = integer(n, "n"), real(d, "d")
    if count < 1 or step == 0:
        raise told(
            ArgumentError,
            "there are no frequencies",
            given=f"n {n}, d {d}",
            expected="n of 1 or more, d other than 0",
            mend="write signal.fftfreq(n, 1.0 / sample_rate, device)",
        )
    device, dtype = creation(options, DType.F32)
    return Tensor.from_data(count_bins(count, step), device, dtype)


def fftshift(x: T, dims: Sequence[int] | int | None = None) -> T:
    """Moves frequency 0 to the middle of `dims` (default: all axes).  PyTorch: torch.fft.fftshift."""
    return _shift(x, dims, 0)


def ifftshift(x: T, dims: Sequence[int] | int | None = None) -> T:
    """The inverse of `fftshift`."""
    return _shift(x, dims, 1)


def _shift(x: T, dims: Sequence[int] | int | None, up: int) -> T:
    first: Tensor = x.real if isinstance(x, ComplexTensor) else x
    named = all_axes(first) if dims is None else axes(first, dims)
    steps = [(first.shape[dim] + up) // 2 for dim in named]
    return x.roll(steps, list(named))


check_functions(globals(), "signal")
