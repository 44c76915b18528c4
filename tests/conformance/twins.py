"""The table of twins: an entry of torch's `op_db`, and how our function is called with torch's arguments.

`SAME` lists methods of Tensor with torch's name and arguments.  Each other line says what a user writes here, with
torch's names for the arguments.  Letters before a function are kinds of samples: f of floats, i of int64, b of bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from burn_torch import ComplexTensor, DType, Tensor, nn
from burn_torch.tensor import activation as A
from burn_torch.tensor import functional as F
from burn_torch.tensor import linalg as L
from burn_torch.tensor import signal as S
from burn_torch.tensor import special
from burn_torch.tensor.options import GridSampleOptions, UnfoldOptions
from tests.conformance.calling import (
    Twin,
    added,
    attended,
    averaged,
    batched,
    binary_loss,
    cast,
    clamped,
    classified,
    convolved,
    counts,
    covariance,
    ctc,
    dropped,
    framed,
    grid,
    here,
    interpolated,
    joined,
    listed,
    loss,
    made,
    method,
    nll,
    normalised_over,
    one_axis,
    one_quantile,
    padded,
    pooled,
    ranged,
    reduce_loss,
    reduced,
    spectrum,
    squeezed,
    tensors,
    transposed,
    truth_of,
    unique,
    variance,
    vector_norm,
    windowed,
)


def f(call: Callable[..., Any], **more: Any) -> Twin:
    return Twin(call, "f", **more)


def fi(call: Callable[..., Any], **more: Any) -> Twin:
    return Twin(call, "fi", **more)


def fib(call: Callable[..., Any], **more: Any) -> Twin:
    return Twin(call, "fib", **more)


def i(call: Callable[..., Any], **more: Any) -> Twin:
    return Twin(call, "i", **more)


SAME: Final = {
    "f": "acos acosh asin asinh atan atan2 atanh ceil cos cosh deg2rad erf erfinv exp expm1 floor fmod hypot log log1p "
    "logaddexp nan_to_num rad2deg rsqrt sin sinh sqrt tan tanh trunc",
    "fi": "abs gather neg square unfold sign",
    "fib": "expand movedim narrow permute tril triu diagonal reshape matmul",
    "i": "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor",
}

ARITHMETIC: Final = {
    "add": fi(lambda x, y, alpha=1: x + (y if alpha == 1 else y * alpha)),
    "sub": fi(lambda x, y, alpha=1: x - (y if alpha == 1 else y * alpha)),
    "mul": fi(lambda x, y: x * y),
    "div/no_rounding_mode": f(lambda x, y: x / y),
    "div/floor_rounding": f(lambda x, y, rounding_mode: special.floor_divide(x, y)),
    "div/trunc_rounding": f(lambda x, y, rounding_mode: (x / y).trunc()),
    "true_divide": f(lambda x, y: x / y),
    "remainder": fi(lambda x, y: x % y),
    "pow": f(lambda x, y: x**y),
    "rsub": fi(lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha)),
    "__radd__": fi(lambda x, y: y + x),
    "__rsub__": fi(lambda x, y: y - x),
    "__rmul__": fi(lambda x, y: y * x),
    "__rdiv__": f(lambda x, y: y / x),
    "__rmod__": fi(lambda x, y: y % x),
    "__rpow__": f(lambda x, y: y**x),
    "__rmatmul__": fi(lambda x, y: y @ x),
    "__rand__": i(lambda x, y: y & x),
    "__ror__": i(lambda x, y: y | x),
    "__rxor__": i(lambda x, y: y ^ x),
    "positive": fi(lambda x: +x),
    "reciprocal": f(lambda x: x.recip()),
    "round": f(lambda x: x.round()),
    "sgn": fi(lambda x: x.sign()),
    "special.ndtr": f(special.ndtr),
    "floor_divide": f(special.floor_divide),
    "special.entr": f(special.entr),
    "special.xlog1py": f(lambda x, y: special.xlog1py(*tensors(x, y))),
    "xlogy": f(lambda x, y: special.xlogy(*tensors(x, y))),
    "logit": f(special.logit),
    "logcumsumexp": f(special.logcumsumexp, roundings=2**17),  # torch is that far from extended precision
    "sinc": f(special.sinc),
    "frac": f(special.frac),
    "heaviside": f(special.heaviside),
    "copysign": f(lambda x, y: special.copysign(*tensors(x, y))),
    "lerp": f(special.lerp),
    "addcmul": f(lambda x, a, b, value=1: x + a * b * float(value)),
    "addcdiv": f(lambda x, a, b, value=1: x + a / b * float(value)),
    "exp2": f(lambda x: 2.0**x),
    "log2": f(lambda x: x.log() / math.log(2)),
    "log10": f(lambda x: x.log() / math.log(10)),
    "float_power": f(lambda x, y: x.cast("f64") ** (y.cast("f64") if isinstance(y, Tensor) else float(y))),
    "sigmoid": f(A.sigmoid),
    "clamp": f(clamped),
    "clamp_min": f(lambda x, low: clamped(x, low)),
    "clamp_max": f(lambda x, high: clamped(x, None, high)),
    "maximum max/binary": fi(lambda x, y: x.max_pair(y)),
    "minimum min/binary": fi(lambda x, y: x.min_pair(y)),
    "where": fib(lambda x, condition, other: x.where(condition, other)),
}
COMPARISON: Final = {
    "eq": fib(lambda x, y: x == y),
    "ne": fib(lambda x, y: x != y),
    "lt": fi(lambda x, y: x < y),
    "le": fi(lambda x, y: x <= y),
    "gt": fi(lambda x, y: x > y),
    "ge": fi(lambda x, y: x >= y),
    "equal": fi(lambda x, y: x.shape == y.shape and bool((x == y).all())),
    "isclose": f(lambda x, y, rtol=1e-5, atol=1e-8, equal_nan=False: x.is_close(y, rtol, atol)),
    "allclose": f(lambda x, y, rtol=1e-5, atol=1e-8: x.all_close(y, rtol, atol)),
    "isnan": f(lambda x: x.is_nan()),
    "isinf": f(lambda x: x.is_inf()),
    "isfinite": f(lambda x: x.is_finite()),
    "isneginf": f(lambda x: x == -math.inf),
    "isposinf": f(lambda x: x == math.inf),
    "logical_and": fib(lambda x, y: x.bool() & y.bool()),
    "logical_or": fib(lambda x, y: x.bool() | y.bool()),
    "logical_xor": fib(lambda x, y: x.bool() ^ y.bool()),
    "logical_not": fib(lambda x: ~x.bool()),
}
REDUCTIONS: Final = {
    "sum": fib(reduced("sum_dims", counted=True)),
    "mean": f(reduced("mean_dims")),
    "prod": fi(reduced("prod_dims", counted=True)),
    "amax": fi(reduced("max_dims")),
    "amin": fi(reduced("min_dims")),
    "max/reduction_no_dim": fi(reduced("max_dims")),
    "min/reduction_no_dim": fi(reduced("min_dims")),
    "max/reduction_with_dim": fi(one_axis("max_dim_with_indices")),
    "min/reduction_with_dim": fi(one_axis("min_dim_with_indices")),
    "aminmax": fi(lambda x, **k: (reduced("min_dims")(x, **k), reduced("max_dims")(x, **k))),
    "argmax": fi(one_axis("argmax")),
    "argmin": fi(one_axis("argmin")),
    "any": fib(truth_of("any_dim")),
    "all": fib(truth_of("all_dim")),
    "median": f(
        lambda x, dim=None, keepdim=False: one_axis("median" if dim is None else "median_with_indices")(x, dim, keepdim)
    ),
    "nansum": f(lambda x, dim=None, keepdim=False: reduced("sum_dims")(x.mask_fill(x.is_nan(), 0.0), dim, keepdim)),
    "nanmean": f(
        lambda x, dim=None, keepdim=False: (
            reduced("sum_dims")(x.mask_fill(x.is_nan(), 0.0), dim, keepdim)
            / reduced("sum_dims")((~x.is_nan()).cast(x.dtype), dim, keepdim)
        )
    ),
    "norm": f(lambda x, p=2, dim=None, keepdim=False: vector_norm(x, p, dim, keepdim)),
    "logsumexp": f(lambda x, dim, keepdim=False: joined("logsumexp_dim")(x, dim, keepdim)),
    "var": f(variance()),
    "var/unbiased": f(variance()),
    "var_mean": f(variance(beside_mean=True)),
    "var_mean/unbiased": f(variance(beside_mean=True)),
    "std": f(variance(root=True)),
    "std/unbiased": f(variance(root=True)),
    "std_mean": f(variance(root=True, beside_mean=True)),
    "std_mean/unbiased": f(variance(root=True, beside_mean=True)),
    "cumsum": fi(lambda x, dim, dtype=None: cast(x, dtype).cumsum(dim)),
    "cumprod": fi(lambda x, dim, dtype=None: cast(x, dtype).cumprod(dim)),
    "count_nonzero": fib(lambda x, dim=None: reduced("sum_dims")(x.bool().int(), dim)),
    "cov": f(lambda x, correction=1, fweights=None, aweights=None: covariance(x, correction)),
    "quantile": f(
        lambda x, q, dim=None, keepdim=False, interpolation="linear": one_quantile(x, q, dim, keepdim, interpolation)
    ),
    "bincount": i(lambda x, weights=None, minlength=0: x.bincount(weights, minlength)),
    "trace": fi(lambda x: L.trace(x).reshape(())),
}


ORDER: Final = {
    "sort": fi(
        lambda x, dim=-1, descending=False, stable=False: (
            x.sort_descending_with_indices(dim) if descending else x.sort_with_indices(dim)
        )
    ),
    "argsort": fi(
        lambda x, dim=-1, descending=False, stable=False: x.argsort_descending(dim) if descending else x.argsort(dim)
    ),
    "msort": fi(lambda x: x.sort(0)),
    "topk": f(
        lambda x, k, dim=-1, largest=True, in_order=True: (
            x.topk_with_indices(k, dim) if largest else tuple(y.narrow(dim, 0, k) for y in x.sort_with_indices(dim))
        )
    ),
    "searchsorted": fi(
        lambda x, values, *, out_int32=False, right=False, side="left", sorter=None: (
            x if sorter is None else x.gather(-1, sorter)
        ).searchsorted(values if isinstance(values, Tensor) else x.new_full((), values), right or side == "right")
    ),
    "bucketize": fi(lambda x, edges, out_int32=False, right=False: edges.searchsorted(x, right)),
    "unique": fi(unique),
    "nonzero": fib(lambda x, as_tuple=False: tuple(x.nonzero()) if as_tuple else x.argwhere()),
    "argwhere": fib(lambda x: x.argwhere()),
    "nn.functional.one_hot": i(
        lambda x, num_classes=-1: x.one_hot(num_classes if num_classes >= 0 else int(x.max().item()) + 1)
    ),
}
SHAPES: Final = {
    "view": fib(lambda x, shape: x.reshape(shape)),
    "view_as reshape_as": fib(lambda x, other: x.reshape(other.shape)),
    "unflatten": fib(lambda x, dim, sizes: x.reshape((*x.shape[: dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1 :]))),
    "flatten": fib(lambda x, start_dim=0, end_dim=-1: x.flatten(start_dim, end_dim)),
    "ravel": fib(lambda x: x.flatten()),
    "squeeze squeeze/multiple": fib(squeezed),
    "unsqueeze": fib(lambda x, dim: x.unsqueeze_dim(dim)),
    "transpose": fib(lambda x, dim0, dim1: x.swap_dims(dim0, dim1)),
    "mT mH": fib(lambda x: x.transpose()),
    "H T": fib(lambda x: x.permute(*range(x.ndim)[::-1])),
    "broadcast_to": fib(lambda x, shape: x.expand(shape)),
    "expand_as": fib(lambda x, other: x.expand(other.shape)),
    "repeat": fib(lambda x, sizes: x.repeat(*sizes)),
    "fliplr": fib(lambda x: x.flip([1])),
    "flip": fib(lambda x, dims: x.flip(dims)),
    "t": fib(lambda x: x.t() if x.ndim == 2 else x),
    "flipud": fib(lambda x: x.flip([0])),
    "roll": fib(
        lambda x, shifts, dims=None: (
            (x if dims is not None else x.flatten()).roll(*listed(shifts, dims)).reshape(x.shape)
        )
    ),
    "cat": fib(lambda tensors, dim=0: Tensor.cat(tensors, dim)),
    "stack": fib(lambda tensors, dim=0: Tensor.stack(tensors, dim)),
    "chunk unsafe_chunk": fib(lambda x, chunks, dim=0: x.chunk(chunks, dim)),
    "split unsafe_split": fib(lambda x, size, dim=0: x.split(size, dim)),
    "split/list_args split_with_sizes": fib(lambda x, sizes, dim=0: x.split_with_sizes(list(sizes), dim)),
    "unbind": fib(lambda x, dim=0: [x.select_dim(dim, i) for i in range(x.shape[dim])]),
    "meshgrid/list_of_tensors": fib(lambda tensors, indexing: grid(tensors, indexing)),
    "meshgrid/variadic_tensors": fib(lambda *tensors, indexing: grid(tensors, indexing)),
    "nn.functional.pad/constant nn.functional.pad/reflect nn.functional.pad/replicate "
    "nn.functional.pad/replicate_negative nn.functional.pad/circular": f(padded),
    "constant_pad_nd": f(lambda x, pad, value=0: padded(x, pad, "constant", value)),
    "nn.functional.pixel_shuffle": f(lambda x, upscale_factor: nn.PixelShuffleConfig(upscale_factor).init().forward(x)),
    "nn.functional.pixel_unshuffle": f(
        lambda x, downscale_factor: nn.PixelUnshuffleConfig(downscale_factor).init().forward(x)
    ),
    "nn.functional.channel_shuffle": f(lambda x, groups: nn.ChannelShuffleConfig(groups).init().forward(x)),
}


PARTS: Final = {
    "__getitem__": fib(lambda x, item: x[item]),
    "select": fib(lambda x, dim, index: x.select_dim(dim, index)),
    "slice": fib(lambda x, dim=0, start=None, end=None, step=1: x.slice_dim(dim, slice(start, end, step))),
    "index_select": fib(lambda x, dim, index: x.select(dim, index)),
    "index_add": f(lambda x, dim, index, y, alpha=1: x.select_assign(dim, index, y * alpha, "add")),
    "index_copy": fib(lambda x, dim, index, y: x.select_assign(dim, index, y, "assign")),
    "index_put": fib(lambda x, indices, values, accumulate=False: x.index_put(indices, values, accumulate)),
    "take": fib(lambda x, index: x.flatten().take(0, index)),
    "take_along_dim": fib(
        lambda x, index, dim=None: x.flatten().gather(0, index.flatten()) if dim is None else x.gather(dim, index)
    ),
    "scatter": f(
        lambda x, dim, index, src, reduce=None: x.scatter(
            dim, index, src, {"add": "add", "multiply": "mul"}.get(reduce, "assign")
        )
    ),
    "scatter_add": f(lambda x, dim, index, src: x.scatter(dim, index, src, "add")),
    "diagonal_scatter": fib(lambda x, src, offset=0, dim1=0, dim2=1: x.diagonal_assign(src, offset, dim1, dim2)),
    "select_scatter": fib(
        lambda x, src, dim, index: x.slice_assign([slice(None)] * (dim % x.ndim) + [index], src.unsqueeze_dim(dim))
    ),
    "slice_scatter": fib(
        lambda x, src, dim=0, start=None, end=None, step=1: x.slice_assign(
            [slice(None)] * dim + [slice(start, end, step)], src
        )
    ),
    "linalg.diagonal": fib(lambda x, offset=0, dim1=-2, dim2=-1: x.diagonal(offset, dim1, dim2)),
    "masked_fill": f(
        lambda x, mask, value: x.mask_where(mask, value) if isinstance(value, Tensor) else x.mask_fill(mask, value)
    ),
    "masked_select": fib(lambda x, mask: x.mask_select(mask)),
    "diag": fib(lambda x, diagonal=0: x.diagonal(diagonal)),
}
CONSTANTS: Final = {
    "zeros": made(lambda shape: Tensor.zeros(shape, here())),
    "ones": made(lambda shape: Tensor.ones(shape, here())),
    "full": fib(lambda shape, value, dtype=None, **_: Tensor.full(shape, value, (here(), dtype) if dtype else here())),
    "zeros_like": made(lambda x: x.zeros_like()),
    "ones_like": made(lambda x: x.ones_like()),
    "full_like": made(lambda x, value: x.full_like(value)),
    "fill": fib(lambda x, value: x.full_like(value)),
    "new_full": made(lambda x, shape, value: x.new_full(shape, value)),
    "new_zeros": made(lambda x, shape: x.new_full(shape, 0)),
    "new_ones": made(lambda x, shape: x.new_full(shape, 1)),
    "eye": Twin(lambda n, m=None, **k: (~Tensor.diag_mask((n, n if m is None else m), 0, here())).cast(k["dtype"])),
    "linspace": Twin(lambda a, b, steps, dtype=DType.F32, **_: Tensor.linspace(a, b, steps, (here(), dtype))),
    "arange": Twin(ranged, "fi"),
    "tril_indices": i(lambda rows, cols, offset=0, **_: Tensor.tril_indices(rows, cols, offset, here())),
    "triu_indices": i(lambda rows, cols, offset=0, **_: Tensor.triu_indices(rows, cols, offset, here())),
    "double": fib(lambda x, **_: x.cast("f64")),
    "float": fib(lambda x, **_: x.cast("f32")),
    "half": fib(lambda x, **_: x.cast("f16")),
    "bfloat16": fib(lambda x, **_: x.cast("bf16")),
    "long": fib(lambda x, **_: x.int()),
    "int": fib(lambda x, **_: x.cast("i32")),
    "short": fib(lambda x, **_: x.cast("i16")),
    "char": fib(lambda x, **_: x.cast("i8")),
    "byte": fib(lambda x, **_: x.cast("u8")),
    "bool": fib(lambda x, **_: x.bool()),
    "clone contiguous": fib(lambda x, **_: x),
    "item": fib(lambda x: x.item()),
    "complex": f(lambda x, y: ComplexTensor(x, y)),
    "polar": f(lambda x, y: ComplexTensor.from_polar(x, y)),
    "view_as_complex": f(ComplexTensor.view_as_complex),
    "signal.windows.hann": Twin(windowed(S.hann_window)),
    "signal.windows.hamming": Twin(windowed(S.hamming_window)),
    "signal.windows.blackman": Twin(windowed(S.blackman_window)),
    "signal.windows.general_cosine": Twin(
        windowed(lambda size, periodic, options, a: S.cosine_window(a, size, periodic, options))
    ),
}
LINEAR_ALGEBRA: Final = {
    "mm bmm": f(lambda x, y: x @ y),
    "mv": f(lambda x, y: L.matvec(x, y)),
    "dot vdot": f(lambda x, y: x.dot(y).reshape(())),
    "outer": f(lambda x, y: L.outer(x, y)),
    "inner": f(lambda x, y: L.tensordot(x, y, ([-1], [-1])) if x.ndim and y.ndim else x * y),
    "kron": f(L.kron),
    "tensordot": f(lambda x, y, dims=2: L.tensordot(x, y, dims)),
    "einsum": f(lambda tensors, equation: L.einsum(equation, *tensors)),
    "cross linalg.cross": f(lambda x, y, dim=-1: x.cross(y, dim)),
    "addmm addmm/decomposed baddbmm": f(lambda x, a, b, beta=1, alpha=1: added(x, a @ b, beta, alpha)),
    "addmv": f(lambda x, a, v, beta=1, alpha=1: added(x, L.matvec(a, v), beta, alpha)),
    "addr": f(lambda x, u, v, beta=1, alpha=1: added(x, L.outer(u, v), beta, alpha)),
    "addbmm": f(lambda x, a, b, beta=1, alpha=1: added(x, (a @ b).sum_dims_squeeze([0]), beta, alpha)),
    "linalg.multi_dot": f(L.multi_dot),
    "block_diag": f(lambda *matrices: L.block_diag(matrices)),
    "linalg.vander": f(lambda x, N=None: L.vander(x, N)),
    "linalg.vecdot": f(L.vecdot),
    "pinverse": f(L.pinv, roundings=2**12),
    "triangular_solve": f(
        lambda b, a, upper=True, transpose=False, unitriangular=False: L.solve_triangular(
            a.transpose() if transpose else a, b, upper != transpose, unitriangular
        ),
        roundings=2**10,
        after=lambda y: y[0] if isinstance(y, tuple) else y,
    ),
    "linalg.det": f(L.det),
    "linalg.slogdet": f(lambda x: L.slogdet(x)),
    "logdet": f(L.logdet),
    "linalg.inv": f(L.inverse, roundings=2**10),
    "linalg.pinv": f(lambda x, rtol=None: L.pinv(x, rtol), roundings=2**12),
    "linalg.solve": f(L.solve, roundings=2**10),
    "linalg.solve_triangular": f(
        lambda a, b, upper, left=True, unitriangular=False: (
            L.solve_triangular(a, b, upper, unitriangular)
            if left
            else L.solve_triangular(a.transpose(), b.transpose(), not upper, unitriangular).transpose()
        ),
        roundings=2**10,
    ),
    "cholesky linalg.cholesky": f(lambda x, upper=False: L.cholesky(x, upper), roundings=2**10),
    "linalg.qr qr": f(lambda x, mode="reduced": L.qr(x, mode == "reduced" or mode is True), roundings=2**12),
    "linalg.svdvals": f(L.svdvals, roundings=2**10),
    "linalg.svd": f(
        lambda x, full_matrices=True: L.svd(x, full_matrices),
        roundings=2**12,
        after=lambda usv: (abs(usv[0][..., : usv[1].shape[-1]]), usv[1], abs(usv[2][..., : usv[1].shape[-1], :])),
    ),
    "linalg.eigvalsh": f(lambda x, UPLO="L": L.eigvalsh(x if UPLO == "L" else x.transpose()), roundings=2**10),
    "linalg.eigh": f(
        lambda x, UPLO="L": L.eigh(x if UPLO == "L" else x.transpose()),
        roundings=2**12,
        after=lambda wv: (wv[0], abs(wv[1])),
    ),
    "linalg.matrix_power": f(L.matrix_power, roundings=2**12),
    "linalg.matrix_rank": f(lambda x, tol=None, atol=None, rtol=None: L.matrix_rank(x, rtol)),
    "linalg.lstsq linalg.lstsq/grad_oriented": f(
        lambda a, b, driver=None: L.lstsq(a, b), roundings=2**12, after=lambda results: results[0]
    ),
    "linalg.vector_norm": f(vector_norm),
    "cdist": f(lambda x, y, p=2.0, compute_mode=None: L.cdist(x, y, float(p)), roundings=2**10),
    "nn.functional.cosine_similarity": f(
        lambda x, y, dim=1, eps=1e-8: L.cosine_similarity(x, y, dim, eps).squeeze_dim(dim)
    ),
    "nn.functional.normalize": f(lambda x, p=2.0, dim=1, eps=1e-12: L.vector_normalize(x, float(p), dim, eps)),
    "dist": f(lambda x, y, p=2: vector_norm(x - y, float(p))),
}
SIGNAL: Final = {
    "fft.irfft": f(lambda x, n=None, dim=-1, norm=None: S.irfft(x, None, dim, n, norm)),
    **{f"fft.{name}": f(spectrum(getattr(S, name), 1)) for name in ("fft", "ifft", "rfft", "hfft", "ihfft")},
    **{f"fft.{k}fft2": f(spectrum(getattr(S, f"{k}fft2"), 2)) for k in ("", "i", "r", "ir", "h", "ih")},
    **{f"fft.{k}fftn": f(spectrum(getattr(S, f"{k}fftn"), None)) for k in ("", "i", "r", "ir", "h", "ih")},
    "fft.fftshift": f(lambda x, dim=None: S.fftshift(x, dim)),
    "fft.ifftshift": f(lambda x, dim=None: S.ifftshift(x, dim)),
    "stft": f(framed),
}
ACTIVATIONS: Final = {
    "nn.functional.relu": f(lambda x: A.relu(x)),
    "nn.functional.relu6": fi(A.relu6),
    "nn.functional.leaky_relu": f(A.leaky_relu),
    "nn.functional.prelu": f(lambda x, weight: A.prelu(x, weight.flatten())),
    "nn.functional.threshold": f(A.threshold),
    "nn.functional.elu": f(A.elu),
    "nn.functional.celu": f(A.celu),
    "nn.functional.selu": f(A.selu),
    "nn.functional.gelu": f(
        lambda x, approximate="none": A.gelu_approximate(x) if approximate == "tanh" else A.gelu(x)
    ),
    "nn.functional.silu": f(A.silu),
    "nn.functional.mish": f(A.mish),
    "nn.functional.softplus": f(lambda x, beta=1.0: A.softplus(x, float(beta))),
    "nn.functional.softsign": f(A.softsign),
    "nn.functional.tanhshrink": f(A.tanhshrink),
    "nn.functional.logsigmoid": f(A.log_sigmoid),
    "nn.functional.hardsigmoid": f(lambda x: A.hard_sigmoid(x, 1 / 6, 0.5)),
    "nn.functional.hardswish": f(A.hard_swish),
    "nn.functional.hardtanh": f(A.hardtanh),
    "nn.functional.hardshrink": f(A.hard_shrink),
    "nn.functional.softshrink": f(A.soft_shrink),
    "nn.functional.glu": f(A.glu),
    "softmax softmax/with_dtype": f(lambda x, dim, dtype=None: A.softmax(cast(x, dtype), dim)),
    "log_softmax log_softmax/with_dtype": f(lambda x, dim, dtype=None: A.log_softmax(cast(x, dtype), dim)),
    "nn.functional.softmin nn.functional.softmin/with_dtype": f(
        lambda x, dim, dtype=None: A.softmin(cast(x, dtype), dim)
    ),
}
LAYERS: Final = {
    "nn.functional.linear": f(lambda x, w, b=None: F.linear(x, w.transpose(), b)),
    "nn.functional.embedding": f(lambda w, i: F.embedding(w, i)),
    "nn.functional.conv1d": f(convolved(F.conv1d, 1)),
    "nn.functional.conv2d": f(convolved(F.conv2d, 2)),
    "nn.functional.conv3d": f(convolved(F.conv3d, 3)),
    "nn.functional.conv_transpose1d": f(transposed(F.conv_transpose1d, 1)),
    "nn.functional.conv_transpose2d": f(transposed(F.conv_transpose2d, 2)),
    "nn.functional.conv_transpose3d": f(transposed(F.conv_transpose3d, 3)),
    "nn.functional.max_pool1d": f(pooled(1)),
    "nn.functional.max_pool2d": f(pooled(2)),
    "nn.functional.max_pool3d": f(pooled(3)),
    **{f"nn.functional.avg_pool{n}d": f(averaged(n)) for n in (1, 2, 3)},
    **{
        f"nn.functional.adaptive_max_pool{n}d": f(
            batched(
                lambda x, size, return_indices=False, n=n: getattr(F, f"adaptive_max_pool{n}d")(x, counts(x, size, n)),
                n,
            ),
            after=lambda y: y[0] if isinstance(y, tuple) else y,
        )
        for n in (1, 2, 3)
    },
    **{
        f"nn.functional.adaptive_avg_pool{n}d": f(
            batched(lambda x, size, n=n: getattr(F, f"adaptive_avg_pool{n}d")(x, counts(x, size, n)), n)
        )
        for n in (1, 2, 3)
    },
    "nn.functional.layer_norm": f(normalised_over(F.layer_norm)),
    "nn.functional.rms_norm": f(normalised_over(F.rms_norm)),
    "nn.functional.group_norm": f(lambda x, n, weight=None, bias=None, eps=1e-5: F.group_norm(x, n, weight, bias, eps)),
    "nn.functional.instance_norm": f(
        lambda x, weight=None, bias=None, eps=1e-5, **_: F.group_norm(x, x.shape[1], weight, bias, eps)
    ),
    "nn.functional.interpolate/nearest nn.functional.interpolate/nearest-exact nn.functional.interpolate/linear "
    "nn.functional.interpolate/bilinear nn.functional.interpolate/bicubic": f(interpolated),
    "nn.functional.upsample_nearest": f(lambda x, *a, **k: interpolated(x, *a, **k)),
    "nn.functional.upsample_bilinear": f(
        lambda x, *a, **k: interpolated(x, *a, **{"mode": "bilinear", "align_corners": True, **k})
    ),
    "nn.functional.unfold": f(
        lambda x, kernel_size, dilation=1, padding=0, stride=1: F.unfold4d(
            x, kernel_size, UnfoldOptions(stride, padding, dilation)
        )
    ),
    "nn.functional.grid_sample": f(
        lambda x, points, mode="bilinear", padding_mode="zeros", align_corners=False: x.grid_sample_2d(
            points, GridSampleOptions(mode, padding_mode, align_corners)
        )
    ),
    "nn.functional.scaled_dot_product_attention": f(attended, roundings=2**10),
    "nn.functional.local_response_norm": f(
        lambda x, size, alpha=1e-4, beta=0.75, k=1.0: (
            nn.LocalResponseNormConfig(size, alpha=alpha, beta=beta, k=k).init().forward(x)
        )
    ),
    "nn.functional.pairwise_distance": f(
        lambda x, y, p=2.0, eps=1e-6, keepdim=False: dropped(vector_norm(x - y + eps, p, -1, True), (-1,), keepdim)
    ),
}
LOSSES: Final = {
    "nn.functional.mse_loss": f(loss(nn.loss.MseLoss)),
    "nn.functional.l1_loss": f(loss(lambda: nn.loss.LpLossConfig(1.0).init())),
    "nn.functional.smooth_l1_loss": f(
        lambda x, y, beta=1.0, reduction="mean": reduce_loss(
            nn.loss.SmoothL1LossConfig(beta=beta).init().forward(x, y), reduction
        )
    ),
    "nn.functional.huber_loss": f(loss(lambda delta=1.0: nn.loss.HuberLossConfig(delta).init())),
    "nn.functional.kl_div": f(loss(lambda log_target=False: nn.loss.KLDivLossConfig(log_target=log_target).init())),
    "nn.functional.poisson_nll_loss": f(
        loss(
            lambda log_input=True, full=False, eps=1e-8: nn.loss.PoissonNllLossConfig(
                log_input=log_input, full=full, eps=eps
            ).init()
        )
    ),
    "nn.functional.gaussian_nll_loss": f(
        lambda x, y, var, full=False, eps=1e-6, reduction="mean": reduce_loss(
            nn.loss.GaussianNLLLossConfig(full=full, eps=eps)
            .init()
            .forward_no_reduction(
                x,
                y.expand(x.shape),
                (var if var.ndim == x.ndim or var.ndim == 0 else var.unsqueeze_dim(-1)).expand(x.shape),
            ),
            reduction,
        )
    ),
    "nn.functional.hinge_embedding_loss": f(
        loss(lambda margin=1.0: nn.loss.HingeEmbeddingLossConfig(margin=margin).init())
    ),
    "nn.functional.margin_ranking_loss": f(
        loss(lambda margin=0.0: nn.loss.MarginRankingLossConfig(margin=margin).init(), inputs=3)
    ),
    "nn.functional.soft_margin_loss": f(loss(nn.loss.SoftMarginLoss)),
    "nn.functional.cosine_embedding_loss": f(
        loss(lambda margin=0.0: nn.loss.CosineEmbeddingLossConfig(margin=margin).init(), inputs=3)
    ),
    "nn.functional.triplet_margin_loss": f(
        loss(
            lambda margin=1.0, p=2.0, eps=1e-6, swap=False: nn.loss.TripletMarginLossConfig(margin=margin, p=p).init(),
            inputs=3,
        )
    ),
    "nn.functional.multi_margin_loss": f(
        lambda x, y, p=1, margin=1.0, reduction="mean": reduce_loss(
            nn.loss.MultiMarginLossConfig(p=p, margin=margin).init().forward_no_reduction(x, y), reduction
        )
    ),
    "nn.functional.cross_entropy": f(classified),
    "nn.functional.nll_loss": f(nll),
    "nn.functional.multilabel_margin_loss": f(loss(nn.loss.MultiLabelMarginLoss)),
    "nn.functional.multilabel_soft_margin_loss": f(loss(lambda: nn.loss.MultiLabelSoftMarginLossConfig().init(here()))),
    "nn.functional.triplet_margin_with_distance_loss": f(
        lambda x, y, z, distance_function=None, margin=1.0, swap=False, reduction="mean": reduce_loss(
            nn.loss.TripletMarginWithDistanceLossConfig(margin=margin, swap=swap).init().forward_no_reduction(x, y, z),
            reduction,
        )
    ),
    "nn.functional.binary_cross_entropy": f(binary_loss(False)),
    "nn.functional.binary_cross_entropy_with_logits": f(binary_loss(True)),
    "nn.functional.ctc_loss": f(
        lambda x, targets, inputs, lengths, blank=0, reduction="mean", zero_infinity=False: ctc(
            x, targets, inputs, lengths, blank, reduction
        ),
        roundings=2**13,
    ),
}


def table() -> dict[str, Twin]:
    """Every twin by the entry's name."""
    twins = {name: Twin(method(name), kinds) for kinds, names in SAME.items() for name in names.split()}
    for part in (
        ARITHMETIC,
        COMPARISON,
        REDUCTIONS,
        ORDER,
        SHAPES,
        PARTS,
        CONSTANTS,
        LINEAR_ALGEBRA,
        SIGNAL,
        ACTIVATIONS,
        LAYERS,
        LOSSES,
    ):
        twins |= {name: twin for names, twin in part.items() for name in names.split()}
    return twins
