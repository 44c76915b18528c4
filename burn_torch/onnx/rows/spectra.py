"""Fourier transforms: DFT along one axis after the other, with real and imaginary parts on a last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burn_torch.core.dtype import DType
from burn_torch.onnx.exporting.sizes import Length, Size
from burn_torch.onnx.exporting.writer import Cannot, Wire, Writer
from burn_torch.onnx.rows.registry import row
from burn_torch.onnx.rows.shaping import LAST

__all__: list[str] = []


@row("fft")
def _(
    w: Writer, real: Wire, imag: Wire | None, *, dims: tuple[int, ...], inverse: bool, norm: str
) -> tuple[Wire, Wire]:
    sizes = [real.shape[dim] for dim in dims]
    x = _stack(w, real, imag)
    for dim in dims:
        x = _dft(w, x, dim, inverse=int(inverse))
    return _split(w, _scale(w, x, real, sizes, inverse, norm), real.ndim)


@row("rfft")
def _(w: Writer, x: Wire, *, dims: tuple[int, ...], norm: str) -> tuple[Wire, Wire]:
    y = _dft(w, _stack(w, x, None), dims[-1], onesided=1)
    for dim in dims[:-1]:
        y = _dft(w, y, dim)
    return _split(w, _scale(w, y, x, [x.shape[dim] for dim in dims], False, norm), x.ndim)


@row("irfft")
def _(w: Writer, real: Wire, imag: Wire, *, dims: tuple[int, ...], size: Length, norm: str) -> Wire:
    x, last, points = _stack(w, real, imag), dims[-1], w.fixed(size, "the number of points")
    for dim in dims[:-1]:
        x = _dft(w, x, dim, inverse=1)
    if points > 2:  # the other half mirrors the bins between the first and the middle
        inner = (points - 1) // 2
        mirrored = w.cut(x, last, inner, 0, -1)
        signs = w.array([1.0, -1.0], real.dtype, "conjugate")
        x = w.node("Concat", x, w.node("Mul", mirrored, signs), axis=last)
    y = _scale(w, _dft(w, x, last, inverse=1), real, [*(real.shape[dim] for dim in dims[:-1]), points], True, norm)
    return _split(w, y, real.ndim)[0]


def _stack(w: Writer, real: Wire, imag: Wire | None) -> Wire:
    if any(not isinstance(size, Size) and size < 1 for size in real.shape):
        raise Cannot("a transform of nothing")
    parts = [w.unsqueeze(part, [part.ndim]) for part in (real, imag) if part is not None]
    return parts[0] if imag is None else w.node("Concat", *parts, axis=-1)


def _dft(w: Writer, x: Wire, dim: int, *, inverse: int = 0, onesided: int = 0) -> Wire:
    if w.opset < 20:
        return w.node("DFT", x, axis=dim, inverse=inverse, onesided=onesided)
    return w.node("DFT", x, None, w.number(dim, DType.I64), inverse=inverse, onesided=onesided)


def _scale(w: Writer, x: Wire, like: Wire, sizes: Sequence[Length], inverse: bool, norm: str) -> Wire:
    """x as `norm` has it, where DFT divides by the points in the inverse transform."""
    if norm == "backward":
        return x
    points = math.prod(w.fixed(size, "the number of points") for size in sizes)
    factor = points ** (1.0 if norm == "forward" else 0.5)
    return w.node("Mul", x, w.number(factor if inverse else 1.0 / factor, like.dtype))


def _split(w: Writer, x: Wire, ndim: int) -> tuple[Wire, Wire]:
    real, imag = (w.node("Squeeze", w.cut(x, ndim, start, end), w.ints([ndim])) for start, end in ((0, 1), (1, LAST)))
    return real, imag
