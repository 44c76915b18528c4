"""Convolution by Fourier transforms: n log n where the sum takes n times m."""

from __future__ import annotations

from collections.abc import Sequence

from burn_torch.core.checking import check_functions
from burn_torch.core.errors import ArgumentError, BurnTorchError, ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import all_axes, axes
from burn_torch.tensor.complex_tensor import ComplexTensor
from burn_torch.tensor.signal.transforms import Signal, fftn, ifftn, irfftn, parts_of, rfftn

__all__ = ["fftconvolve"]

_MODES = ("full", "same", "valid")


def fftconvolve(x: Signal, y: Signal, mode: str = "full", dims: Sequence[int] | int | None = None) -> Signal:
    """The convolution of two arrays along `dims` (default: all axes); the other axes broadcast.

    mode "full": all of it, m + n - 1 elements; "same": the middle, as many as x has; "valid": where both overlap
    wholly, |m - n| + 1: one of them must be the longer along every axis.
    Shapes: x (*batch, m...), y (*batch, n...).  Dtypes: one float; complex if one of them is.
    Source: scipy.signal.fftconvolve.
    """
    (first, _), (second, _) = parts_of(x), parts_of(y)
    if not isinstance(mode, str) or mode not in _MODES:
        raise told(
            ArgumentError,
            "there is no such mode of convolution",
            given=f"mode {mode!r:.60}",
            expected='"full", "same" or "valid"',
            mend="leave it out: all of the convolution is the default",
        )
    if first.ndim != second.ndim or not first.ndim:
        raise _misfit(x, y, "arrays of as many axes, one or more", "insert axes with unsqueeze_dim")
    named = all_axes(first) if dims is None else axes(first, dims)
    sizes, others = ([part.shape[dim] for dim in named] for part in (first, second))
    if min([*sizes, *others], default=0) < 1:
        raise _misfit(x, y, "an axis, and one element or more along each that is convolved", "leave empty arrays out")
    if mode == "valid" and any(m < n for m, n in zip(sizes, others, strict=True)):
        x, y, sizes, others = y, x, others, sizes
        if any(m < n for m, n in zip(sizes, others, strict=True)):
            raise _misfit(x, y, "one array that is the longer along every axis", 'mode="full" takes any sizes')
    full = [m + n - 1 for m, n in zip(sizes, others, strict=True)]
    points = [fast_size(size) for size in full]
    z: Signal
    if isinstance(x, ComplexTensor) or isinstance(y, ComplexTensor):
        z = ifftn(fftn(x, named, points) * fftn(y, named, points), named, points)
    else:
        z = irfftn(rfftn(x, named, points) * rfftn(y, named, points), named, points)
    for dim, size, m, n in zip(named, full, sizes, others, strict=True):
        kept = {"full": size, "same": m, "valid": m - n + 1}[mode]
        z = z.narrow(dim, (size - kept) // 2, kept)
    return z


def fast_size(size: int) -> int:
    """The least number from `size` on that has no prime factor above 5: transforms of it are the fastest."""
    best = 1 << max(size - 1, 0).bit_length()
    five = 1
    while five < best:
        product = five
        while product < best:
            twos = product << max(-(-size // product) - 1, 0).bit_length()
            best = min(best, twos)
            product *= 3
        five *= 5
    return best


def _misfit(x: Signal, y: Signal, expected: str, mend: str) -> BurnTorchError:
    return told(
        ShapeError, "the arrays are not convolved", given=f"x {x.shape}, y {y.shape}", expected=expected, mend=mend
    )


check_functions(globals(), "signal")
