"""Discrete Fourier transforms.  A complex array is two tensors, its real and its imaginary part, of one shape.

    y[k] = sum over n of x[n] * exp(-2 pi i * k * n / N)        exp(+...) for the inverse

along each of `dims`.  `norm` says which direction divides by the number of points: "backward" the inverse one,
"forward" the other one, "ortho" both, by its square root.

torch's functions compute them (cuFFT on CUDA), numpy's on NdArray.  A result is two views of one complex array, and
is read as that array again without a copy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from burn_torch import ops
from burn_torch.core.dtype import FLOAT
from burn_torch.core.errors import ArgumentError
from burn_torch.core.spec import Shape, TensorSpec
from burn_torch.ops.faults import RuleFault, shape_fault
from burn_torch.ops.moments import in_float32, wide_array
from burn_torch.ops.op import Call, Candidate, PerCall, op
from burn_torch.ops.rules import alike, front_axes
from burn_torch.ops.samples import Array, Sample, sample, uniform
from burn_torch.ops.slicing import narrow
from burn_torch.ops.spectra import NORMS, join_parts, split_parts
from burn_torch.ops.value import Primitive


# -- rules ---------------------------------------------------------------------------------------------------
def _check(x: TensorSpec, dims: tuple[int, ...], norm: str) -> None:
    x.require(FLOAT)
    front_axes(dims, x.ndim)
    if not dims:
        raise shape_fault("no axis is named", expected="one axis or more", mend="name an axis, such as dim=-1")
    if norm not in NORMS:
        raise RuleFault(
            ArgumentError,
            f"there is no normalisation {norm!r}",
            expected=", ".join(map(repr, NORMS)),
            mend='leave it out: "backward" divides in the inverse transform',
        )
    _check_points([x.shape[dim] for dim in dims])


def _check_points(sizes: list[int]) -> None:
    if any(size < 1 for size in sizes):
        raise shape_fault(
            "a transform of no points",
            expected="at least one element along each axis that is transformed",
            mend="pass n, the number of points: shorter axes are filled up with zeros",
        )


def _resize(x: TensorSpec, dim: int, size: int) -> TensorSpec:
    return x.with_shape((*x.shape[:dim], size, *x.shape[dim + 1 :]))


# -- torch ---------------------------------------------------------------------------------------------------
def _on_torch(inverse: str, forward: str = "") -> PerCall:
    """A builder for a function of torch.fft; it computes half types in float32, and nothing of empty tensors."""

    def build(call: Call) -> Candidate:
        attrs = call.attrs
        function: Callable[..., torch.Tensor] = getattr(torch.fft, inverse if attrs.get("inverse", True) else forward)
        options: dict[str, object] = {"dim": attrs["dims"], "norm": attrs["norm"]}
        shapes = [spec.shape for spec in call.results]
        if "size" in attrs:
            x = call.tensor(0)
            options["s"] = [*(x.shape[dim] for dim in attrs["dims"][:-1]), attrs["size"]]

        def run(real: torch.Tensor, imag: torch.Tensor | None = None) -> Primitive:
            if not real.numel():  # MKL refuses batches of no items
                empty = tuple(real.new_empty(shape) for shape in shapes)
                return empty if call.multiple else empty[0]
            y = function(join_parts(real, imag), **options)
            return split_parts(y) if call.multiple else y

        return run

    return in_float32(build, everywhere=True)


# -- numpy ---------------------------------------------------------------------------------------------------
def _numpy_join(real: Array, imag: Array | None) -> Array:
    wide: Array = wide_array(real)
    if imag is None:
        return wide
    joined = np.empty(wide.shape, np.result_type(wide, np.complex64))
    joined.real, joined.imag = wide, imag  # 1j * imag has NaN for real parts of infinities
    return joined


def _numpy_split(y: Array) -> tuple[Array, Array]:
    return y.real, y.imag


def _numpy_fft(real: Array, imag: Array | None, *, dims: Shape, inverse: bool, norm: str) -> tuple[Array, Array]:
    transform = np.fft.ifftn if inverse else np.fft.fftn
    x = _numpy_join(real, imag)
    return _numpy_split(transform(x, axes=dims, norm=norm) if x.size else x + 0j)  # type: ignore[arg-type]  # a name


def _numpy_rfft(x: Array, *, dims: Shape, norm: str) -> tuple[Array, Array]:
    if x.size:
        return _numpy_split(np.fft.rfftn(wide_array(x), axes=dims, norm=norm))  # type: ignore[arg-type]  # a name
    empty = np.empty((*x.shape[: dims[-1]], x.shape[dims[-1]] // 2 + 1, *x.shape[dims[-1] + 1 :]))
    return empty, empty


def _numpy_irfft(real: Array, imag: Array, *, dims: Shape, size: int, norm: str) -> Array:
    sizes = [*(real.shape[dim] for dim in dims[:-1]), size]
    if real.size:
        return np.fft.irfftn(_numpy_join(real, imag), sizes, dims, norm)  # type: ignore[arg-type]  # a name
    return np.empty((*real.shape[: dims[-1]], size, *real.shape[dims[-1] + 1 :]))


# -- rows ----------------------------------------------------------------------------------------------------
def _samples(tensors: int, *cases: tuple[Shape, dict[str, object]]) -> list[Sample]:
    return [sample(*[uniform(-1, 1, shape)] * tensors, **attrs) for shape, attrs in cases]


@op(
    torch=_on_torch("ifftn", "fftn"),
    numpy=_numpy_fft,
    packed="any",
    precision="high",
    samples=[
        *_samples(
            2,
            ((5,), {"dims": (0,), "inverse": False, "norm": "backward"}),
            ((3, 4), {"dims": (0, 1), "inverse": True, "norm": "backward"}),
            ((0, 4), {"dims": (1,), "inverse": False, "norm": "backward"}),
        ),
        sample(uniform(-1, 1, (2, 6)), None, dims=(1,), inverse=False, norm="ortho"),
    ],
    source="https://en.wikipedia.org/wiki/Discrete_Fourier_transform",
)
def fft(
    real: TensorSpec, imag: TensorSpec | None, *, dims: tuple[int, ...], inverse: bool, norm: str
) -> tuple[TensorSpec, TensorSpec]:
    """The discrete Fourier transform of a complex array along axes, or its inverse; without `imag`, of a real one.

    Shapes: real, imag (*s) -> real (*s), imag (*s).
    Dtypes: one float in, the same float out; half types are computed in float32.
    PyTorch: torch.fft.fftn and ifftn.
    """
    _check(real, dims, norm)
    if imag is not None:
        alike(real, imag)
    return real, real


@fft.gradient
def _(g, y, real, imag, *, dims, inverse, norm):
    attrs = {"dims": dims, "inverse": not inverse, "norm": NORMS[norm]}
    if g[0] is None:  # that of a purely imaginary array
        of_real, of_imag = fft(g[1], None, **attrs)
        of_real, of_imag = -of_imag, of_real
    else:
        of_real, of_imag = fft(*g, **attrs)
    return of_real, None if imag is None else of_imag


@op(
    torch=_on_torch("rfftn"),
    numpy=_numpy_rfft,
    packed="any",
    precision="high",
    samples=_samples(
        1,
        ((5,), {"dims": (0,), "norm": "backward"}),
        ((4, 3), {"dims": (1, 0), "norm": "ortho"}),
        ((0, 4), {"dims": (1,), "norm": "forward"}),
    ),
    source="Sorensen, Jones, Heideman, Burrus 1987, Real-valued fast Fourier transform algorithms",
)
def rfft(x: TensorSpec, *, dims: tuple[int, ...], norm: str) -> tuple[TensorSpec, TensorSpec]:
    """The Fourier transform of a real array along axes: the half of it that says all, along the last of them.

    Shapes: x (*s) -> real, imag (*s) with n // 2 + 1 bins in the place of n points.
    Dtypes: float in, the same float out; half types are computed in float32.
    PyTorch: torch.fft.rfftn.
    """
    _check(x, dims, norm)
    half = _resize(x, dims[-1], x.shape[dims[-1]] // 2 + 1)
    return half, half


@rfft.gradient
def _(g, y, x, *, dims, norm):
    known = g[1] if g[0] is None else g[0]
    real, imag = (known.new_full(known.shape, 0.0) if part is None else part for part in g)
    inner, last, back = dims[:-1], dims[-1], NORMS[norm]
    if inner:  # complex along all axes but the last: what comes of it is no spectrum of real numbers before
        real, imag = fft(real, imag, dims=inner, inverse=True, norm=back)
    halves = [_scale_pairs(part, last, x.shape[last], 0.5) for part in (real, imag)]
    return irfft(*halves, dims=(last,), size=x.shape[last], norm=back)


def _scale_pairs(x: Primitive, dim: int, size: int, factor: float) -> Primitive:
    """x with the bins multiplied that stand for two of `size`: all but the first, and the last of an even number."""
    end = (size + 1) // 2
    parts = narrow(x, dim, 0, 1), narrow(x, dim, 1, end) * factor, narrow(x, dim, end, x.shape[dim])
    return ops.cat(*[part for part in parts if part.shape[dim]], dim=dim)


@op(
    torch=_on_torch("irfftn"),
    numpy=_numpy_irfft,
    packed="any",
    precision="high",
    samples=_samples(
        2,
        ((3,), {"dims": (0,), "size": 5, "norm": "backward"}),
        ((3, 2), {"dims": (1, 0), "size": 4, "norm": "ortho"}),
        ((0, 3), {"dims": (1,), "size": 4, "norm": "forward"}),
    ),
    source="Sorensen, Jones, Heideman, Burrus 1987, Real-valued fast Fourier transform algorithms",
)
def irfft(real: TensorSpec, imag: TensorSpec, *, dims: tuple[int, ...], size: int, norm: str) -> TensorSpec:
    """The real array of `size` points along the last of `dims` that has this half of a spectrum.

    The other half is the mirror image; so the imaginary parts of bin 0, and of bin size / 2, count for nothing.
    Shapes: real, imag (*s) with size // 2 + 1 bins -> (*s) with `size` points.
    Dtypes: one float in, the same float out; half types are computed in float32.
    PyTorch: torch.fft.irfftn.
    """
    _check(alike(real, imag), dims, norm)
    _check_points([size])
    bins = real.shape[dims[-1]]
    if bins != size // 2 + 1:
        raise shape_fault(
            f"{bins} bins are no half of the spectrum of {size} points",
            expected=f"size // 2 + 1 = {size // 2 + 1} bins along axis {dims[-1]}",
            mend="cut the spectrum, or fill it up with zeros, first",
        )
    return _resize(real, dims[-1], size)


@irfft.gradient
def _(g, y, real, imag, *, dims, size, norm):
    return tuple(_scale_pairs(part, dims[-1], size, 2.0) for part in rfft(g, dims=dims, norm=NORMS[norm]))
