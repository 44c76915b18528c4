"""Fourier transforms of real and complex tensors, of any size and along any axes.

`norm` says which direction divides by the number of points n: "backward", the default, the inverse one; "forward" the
other one; "ortho" both, by sqrt(n).  Shorter axes are filled up with zeros, longer ones are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from burn_torch import ops
from burn_torch.core.checking import check_functions
from burn_torch.core.dtype import FLOAT
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.core.frames import told
from burn_torch.core.wording import described
from burn_torch.ops.spectra import NORMS
from burn_torch.tensor._arguments import all_axes, axes
from burn_torch.tensor._arguments import sizes as sizes_of
from burn_torch.tensor.apply import apply, no_tensor
from burn_torch.tensor.complex_tensor import ComplexTensor
from burn_torch.tensor.tensor import Tensor

__all__ = [
    "cfft",
    "fft",
    "fft2",
    "fftn",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftn",
]

Signal: TypeAlias = Tensor | ComplexTensor
Dims: TypeAlias = Sequence[int] | int | None
Sizes: TypeAlias = Sequence[int] | int | None
_LAST_TWO = (-2, -1)


# -- Burn's, along one axis ----------------------------------------------------------------------------------
def rfft(signal: Tensor, dim: int = -1, n: int | None = None, norm: str = "backward") -> ComplexTensor:
    """The n // 2 + 1 bins that say all of the spectrum of real numbers.

    Shapes: signal (..., m, ...), n points of it (default: m) -> real, imag (..., n // 2 + 1, ...).
    PyTorch: torch.fft.rfft, whose n comes before dim.
    """
    return rfftn(signal, (dim,), None if n is None else (n,), norm)


def irfft(
    spectrum_re: Signal,
    spectrum_im: Tensor | None = None,
    dim: int = -1,
    n: int | None = None,
    norm: str = "backward",
) -> Tensor:
    """The n real numbers of a half spectrum; n is 2 * (bins - 1) unless given, so an odd n must be.

    spectrum_re may be a ComplexTensor, without spectrum_im.  The imaginary parts of bin 0, and of the last one of an
    even n, are taken for 0.
    Shapes: (..., n // 2 + 1, ...) -> (..., n, ...).
    PyTorch: torch.fft.irfft, whose n comes before dim.
    """
    return irfftn(_pair(spectrum_re, spectrum_im), (dim,), None if n is None else (n,), norm)


def cfft(signal_re: Signal, signal_im: Tensor | None = None, dim: int = -1, n: int | None = None) -> ComplexTensor:
    """The Fourier transform of complex numbers, as Burn writes it: `fft` of ComplexTensor(signal_re, signal_im)."""
    return fft(_pair(signal_re, signal_im), dim, n)


# -- along one axis ------------------------------------------------------------------------------------------
def fft(x: Signal, dim: int = -1, n: int | None = None, norm: str = "backward") -> ComplexTensor:
    """The Fourier transform of real or complex numbers: n bins.  PyTorch: torch.fft.fft, whose n comes before dim.

    Shapes: x (..., m, ...), n points of it (default: m) -> (..., n, ...).
    """
    return fftn(x, (dim,), None if n is None else (n,), norm)


def ifft(x: Signal, dim: int = -1, n: int | None = None, norm: str = "backward") -> ComplexTensor:
    """The inverse of `fft`."""
    return ifftn(x, (dim,), None if n is None else (n,), norm)


def hfft(x: Signal, dim: int = -1, n: int | None = None, norm: str = "backward") -> Tensor:
    """The real spectrum of n bins of half a Hermitian signal.  PyTorch: torch.fft.hfft."""
    return hfftn(x, (dim,), None if n is None else (n,), norm)


def ihfft(x: Tensor, dim: int = -1, n: int | None = None, norm: str = "backward") -> ComplexTensor:
    """The inverse of `hfft`: half a Hermitian signal.  PyTorch: torch.fft.ihfft."""
    return ihfftn(x, (dim,), None if n is None else (n,), norm)


# -- along two axes ------------------------------------------------------------------------------------------
def fft2(x: Signal, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """`fftn` of the last two axes."""
    return fftn(x, dims, sizes, norm)


def ifft2(x: Signal, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """`ifftn` of the last two axes."""
    return ifftn(x, dims, sizes, norm)


def rfft2(x: Tensor, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """`rfftn` of the last two axes."""
    return rfftn(x, dims, sizes, norm)


def irfft2(x: Signal, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> Tensor:
    """`irfftn` of the last two axes."""
    return irfftn(x, dims, sizes, norm)


def hfft2(x: Signal, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> Tensor:
    """`hfftn` of the last two axes."""
    return hfftn(x, dims, sizes, norm)


def ihfft2(x: Tensor, dims: Dims = _LAST_TWO, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """`ihfftn` of the last two axes."""
    return ihfftn(x, dims, sizes, norm)


# -- along any axes ------------------------------------------------------------------------------------------
def fftn(x: Signal, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """The Fourier transform along `dims`: all axes, or the last ones where only `sizes`, their points, are given.

    PyTorch: torch.fft.fftn, which calls them s and dim.
    """
    return _transform(x, dims, sizes, norm, inverse=False)


def ifftn(x: Signal, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """The inverse of `fftn`."""
    return _transform(x, dims, sizes, norm, inverse=True)


def rfftn(x: Tensor, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """`fftn` of real numbers: along the last of `dims` the n // 2 + 1 bins that say all."""
    real, imag = parts_of(x)
    if imag is not None:
        raise told(
            DTypeError,
            "the transform takes real numbers",
            given=f"a ComplexTensor {x.shape}",
            expected="a Tensor",
            mend="signal.fft and fftn take complex numbers",
        )
    named, points = _plan(real, dims, sizes)
    return ComplexTensor(*apply(ops.rfft, (_fit(real, named, points),), named, _require_norm(norm)))


def irfftn(x: Signal, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`; the last of `sizes` is 2 * (bins - 1) unless given."""
    real, imag = parts_of(x)
    named, points = _plan(real, dims, sizes)
    last = points[-1] if sizes is not None else 2 * (points[-1] - 1)
    if last < 1:
        raise told(
            ShapeError,
            "half a spectrum of no points",
            given=f"{real.spec}, {last} points along axis {named[-1]}",
            expected="at least one point",
            mend="pass n, the number of points: one bin alone may be that of n=1",
        )
    bins = (*points[:-1], last // 2 + 1)
    parts = [_fit(part, named, bins) for part in (real, real.zeros_like() if imag is None else imag)]
    y: Tensor = apply(ops.irfft, parts, named, last, _require_norm(norm))
    return y


def hfftn(x: Signal, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> Tensor:
    """The real spectrum of half a Hermitian signal: `irfftn` of the conjugate, divided where that is not."""
    real, imag = parts_of(x)
    half = real if imag is None else ComplexTensor(real, -imag)
    return irfftn(half, dims, sizes, NORMS[_require_norm(norm)])


def ihfftn(x: Tensor, dims: Dims = None, sizes: Sizes = None, norm: str = "backward") -> ComplexTensor:
    """The inverse of `hfftn`."""
    return rfftn(x, dims, sizes, NORMS[_require_norm(norm)]).conj()


def _transform(x: Signal, dims: Dims, sizes: Sizes, norm: str, *, inverse: bool) -> ComplexTensor:
    real, imag = parts_of(x)
    named, points = _plan(real, dims, sizes)
    parts = [None if part is None else _fit(part, named, points) for part in (real, imag)]
    return ComplexTensor(*apply(ops.fft, parts, named, inverse, _require_norm(norm)))


# -- arguments -----------------------------------------------------------------------------------------------
def parts_of(x: object) -> tuple[Tensor, Tensor | None]:
    """Real and imaginary part of a signal; no imaginary part if it is real.  Raises: DTypeError."""
    if isinstance(x, ComplexTensor):
        return x.real, x.imag
    if not isinstance(x, Tensor):
        raise no_tensor(x)
    if x.dtype not in FLOAT.members:
        raise told(
            DTypeError,
            "a Fourier transform takes floats",
            given=str(x.spec),
            expected="f64, f32, f16 or bf16",
            mend="cast it first, for example x.float()",
        )
    return x, None


def _pair(real: Signal, imag: object) -> Signal:
    if imag is None:
        return real
    if isinstance(real, ComplexTensor) or not isinstance(imag, Tensor):
        raise told(
            DTypeError,
            "the two parts of a complex signal do not fit",
            given=f"{described(real)} and {described(imag)}",
            expected="two tensors, or a ComplexTensor alone",
            mend="name what follows: signal.irfft(spectrum, dim=-1, n=8)",
        )
    return ComplexTensor(real, imag)


def _require_norm(norm: object) -> str:
    if norm is None:  # as in torch and numpy
        return "backward"
    if isinstance(norm, str) and norm in NORMS:
        return norm
    raise told(
        ArgumentError,
        "there is no such normalisation",
        given=f"norm {norm!r:.60}",
        expected=", ".join(map(repr, NORMS)),
        mend='leave it out: "backward" divides by n in the inverse transform',
    )


def _plan(x: Tensor, dims: Dims, sizes: Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes, counted from the front, and the number of points along each."""
    points = None if sizes is None else sizes_of(sizes)
    if dims is None:
        named = all_axes(x) if points is None else tuple(range(x.ndim))[x.ndim - len(points) :]
    else:
        named = axes(x, dims)
    if points is None:
        points = tuple([x.shape[dim] for dim in named])
    if not named or len(points) != len(named) or min(points) < 1:
        raise told(
            ShapeError,
            "no transform has these axes and points",
            given=f"{x.spec}, dims {named}, {points} points",
            expected="one axis or more, and at least one point along each",
            mend="pass one size an axis; shorter axes are filled up with zeros",
        )
    return named, points


def _fit(x: Tensor, named: tuple[int, ...], points: tuple[int, ...]) -> Tensor:
    """x cut, or filled up with zeros, to the points of each axis."""
    if all(x.shape[dim] == n for dim, n in zip(named, points, strict=True)):
        return x
    more = [(0, 0)] * x.ndim
    for dim, n in zip(named, points, strict=True):
        if x.shape[dim] > n:
            x = x.narrow(dim, 0, n)
        more[dim] = (0, n - x.shape[dim])
    return x.pad(more) if any(after for _, after in more) else x


check_functions(globals(), "signal")
