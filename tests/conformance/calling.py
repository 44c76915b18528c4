"""How torch's arguments become ours, for the families of the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from burn_torch import ComplexTensor, Device, DType, Tensor, ops
from burn_torch.nn.loss import CrossEntropyLossConfig, NLLLossConfig
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.tensor import functional, linalg, signal
from burn_torch.tensor.grid import meshgrid
from burn_torch.tensor.options import (
    AttentionModuleOptions,
    ConvOptions,
    ConvTransposeOptions,
    InterpolateOptions,
    PadMode,
)

Call = Callable[..., Any]
ROUNDINGS: Final = 64


@dataclass(frozen=True)
class Twin:
    """How our function is called with torch's arguments, and how its results are compared."""

    call: Callable[..., Any]
    kinds: str = "f"
    """Types of samples: f of floats, i of int64, b of bool."""
    roundings: float = ROUNDINGS
    after: Callable[..., Any] | None = None
    """Makes what is compared of the results of both, where these are not unique: a function of tensors of either."""
    gradients: bool = True


_place: list[Device] = [Device.cpu()]


def here() -> Device:
    """The device that a twin runs on, for those that make tensors of numbers."""
    return _place[-1]


@contextmanager
def at(device: Device) -> Iterator[None]:
    _place.append(device)
    try:
        yield
    finally:
        _place.pop()


def method(name: str) -> Call:
    """The method of this name, which takes the same arguments."""
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def cast(x: Tensor, dtype: DType | None) -> Tensor:
    return x if dtype is None else x.cast(dtype)


class Lacks(Exception):
    """Says that our function has no such argument."""


def axes_of(x: Tensor, dim: Any) -> tuple[int, ...]:
    """torch's `dim` of a reduction: None and () are all axes."""
    if not x.ndim and dim is not None and dim != ():
        x.sum_dim(dim[0] if isinstance(dim, tuple | list) else dim)  # which refuses it
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return tuple(range(x.ndim))
    return tuple(dim) if isinstance(dim, tuple | list) else (dim,)


def dropped(y: Tensor, dims: Sequence[int], keepdim: bool) -> Any:
    """A result with axes of size 1, without them unless they are kept."""
    gone = {dim % y.ndim for dim in dims} if y.ndim else set()
    return y if keepdim else y.reshape(tuple(n for i, n in enumerate(y.shape) if i not in gone))


def reduced(name: str, *, counted: bool = False) -> Call:
    """The method `name` over several axes.  counted: integers and bools add up as i64."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None, **_: object) -> Any:
        wide = DType.I64 if counted and not x.dtype.is_float else x.dtype
        x, dims = cast(x, dtype or wide), axes_of(x, dim)
        return dropped(getattr(x, name)(dims) if dims else x, dims, keepdim)

    return call


def joined(name: str) -> Call:
    """The method `name` along one axis, over several by joining them."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, **_: object) -> Any:
        dims = [d % max(x.ndim, 1) for d in axes_of(x, dim)]
        rest = [i for i in range(x.ndim) if i not in dims]
        flat = x.permute([*rest, *dims]).reshape(
            (*[x.shape[i] for i in rest], -1)
            if x.num_elements() or not dims
            else (*[x.shape[i] for i in rest], math.prod(x.shape[i] for i in dims))
        )
        shape = [1 if i in dims else n for i, n in enumerate(x.shape)]
        return getattr(flat, name)(-1).reshape(tuple(shape if keepdim else [shape[i] for i in rest]))

    return call


def covariance(x: Tensor, correction: int) -> Tensor:
    """torch.cov, whose variables are rows."""
    y = (x.reshape((1, -1)) if x.ndim < 2 else x).cov(1, correction)
    return y if x.ndim == 2 and len(x) > 1 else y.reshape(())


def one_axis(name: str) -> Call:
    """The method `name` along one axis; all elements together where torch is given none."""

    def call(x: Tensor, dim: int | None = None, keepdim: bool = False, **_: object) -> Any:
        if dim is None:
            y = getattr(x.flatten(), name)(0)
            return tuple(part.reshape(()) for part in y) if isinstance(y, tuple) else y.reshape(())
        y = getattr(x, name)(dim)
        return (
            tuple(dropped(part, (dim,), keepdim) for part in y) if isinstance(y, tuple) else dropped(y, (dim,), keepdim)
        )

    return call


def truth_of(name: str) -> Call:
    """any and all over any axes."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, **_: object) -> Any:
        dims = axes_of(x, dim)
        y = x.bool()
        for i in dims:
            y = getattr(y, name)(i)
        return dropped(y, dims, keepdim)

    return call


def variance(root: bool = False, beside_mean: bool = False) -> Call:
    """var, std, var_mean and std_mean with torch's correction."""

    def call(
        x: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: Any = None
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        dims = axes_of(x, dim)
        less = correction if correction is not None else 1 if unbiased in (None, True) else 0
        rest = [i for i in range(x.ndim) if i not in {d % x.ndim for d in dims}]
        flat = x.permute([*rest, *[d % x.ndim for d in dims]]).reshape((*[x.shape[i] for i in rest], -1))
        y = (flat.std if root else flat.var)(-1) if less == 1 else (flat.std_bias if root else flat.var_bias)(-1)
        if less not in (0, 1):
            n = flat.shape[-1]
            factor = n / (n - less) if n > less else math.nan
            y = y * (factor**0.5 if root else factor)
        shape = (
            tuple(1 if i not in rest else n for i, n in enumerate(x.shape))
            if keepdim
            else tuple(x.shape[i] for i in rest)
        )
        y = y.reshape(shape)
        return (y, flat.mean_dim(-1).reshape(shape)) if beside_mean else y

    return call


def reduce_loss(y: Tensor, reduction: str) -> Tensor:
    """A loss of each element or item as torch reduces it."""
    if reduction == "batchmean":
        return (y.sum() / y.shape[0]).reshape(())
    return y if reduction == "none" else (y.mean() if reduction == "mean" else y.sum()).reshape(())


def loss(make: Callable[..., Any], *, inputs: int = 2) -> Call:
    """A loss layer made of torch's keyword arguments, with torch's reductions."""

    def call(*args: Any, reduction: str = "mean", size_average: None = None, reduce: None = None, **kwargs: Any) -> Any:
        layer = make(*args[inputs:], **kwargs)
        return reduce_loss(layer.forward_no_reduction(*args[:inputs]), reduction)

    return call


def padded(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """torch.nn.functional.pad, whose flat numbers begin with the last axis; below 0 they cut."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    kind = PadMode.Constant(value or 0.0) if mode == "constant" else PadMode.of({"replicate": "edge"}.get(mode, mode))
    y = x.pad([(max(a, 0), max(b, 0)) for a, b in pairs], kind)
    first = x.ndim - len(pairs)
    cut = [slice(None)] * first + [slice(max(-a, 0), y.shape[first + i] - max(-b, 0)) for i, (a, b) in enumerate(pairs)]
    return y.slice(cut) if any(a < 0 or b < 0 for a, b in pairs) else y


def batched(function: Callable[..., Any], spatial: int) -> Call:
    """A function of a batch, which torch gives one item without the batch's axis too."""

    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.ndim == spatial + 1:
            y = function(x.unsqueeze_dim(0), *args, **kwargs)
            return tuple(part.squeeze_dim(0) for part in y) if isinstance(y, tuple) else y.squeeze_dim(0)
        return function(x, *args, **kwargs)

    return call


def made(call: Call) -> Twin:
    """A constructor, which makes what torch was asked for in a type: of a tensor of that type."""

    def make(x: Any, *args: Any, dtype: DType | None = None, **_: object) -> Any:
        return call(cast(x, dtype), *args) if isinstance(x, Tensor) else cast(call(x, *args), dtype)

    return Twin(make, "fib")


def windowed(make: Call) -> Call:
    return lambda size, sym=True, dtype=DType.F32, device=None, requires_grad=False, **k: make(
        size, periodic=not sym, options=(here(), dtype), **k
    )


def grid(tensors: Sequence[Tensor], indexing: str) -> list[Tensor]:
    return meshgrid([x.reshape((-1,)) for x in tensors], indexing)


def unique(x: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None = None) -> Any:
    y = x.unique_with_counts(dim)
    parts = [y.values, *[y.inverse] * return_inverse, *[y.counts] * return_counts]
    return parts[0] if len(parts) == 1 else tuple(parts)


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    dims = axes_of(x, dim)
    x = cast(x, dtype)
    rest = [i for i in range(x.ndim) if i not in {d % x.ndim for d in dims}]
    flat = x.permute([*rest, *[d % x.ndim for d in dims]]).reshape((*[x.shape[i] for i in rest], -1))
    y = linalg.vector_norm(flat, float(ord), -1)
    return y.reshape(
        [1 if i not in rest else n for i, n in enumerate(x.shape)] if keepdim else [x.shape[i] for i in rest]
    )


def spectrum(transform: Call, axes: int | None) -> Call:
    """A Fourier transform along one axis, the last two, or any, whose points torch names first."""
    if axes == 1:
        return lambda x, n=None, dim=-1, norm=None: transform(x, dim, n, norm)
    named = (-2, -1) if axes else None
    return lambda x, s=None, dim=named, norm=None: transform(x, dim, s, norm)


def convolved(conv: Call, n: int) -> Call:
    def call(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if padding == "valid":
            padding = 0
        if padding == "same":
            spread = dilation if isinstance(dilation, tuple) else (dilation,) * n
            total = [d * (k - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
            padding = tuple((t // 2, t - t // 2) for t in total)
        return conv(x, weight, bias, ConvOptions(stride, padding, dilation, groups))

    return batched(call, n)


def transposed(conv: Call, n: int) -> Call:
    def call(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return conv(x, weight, bias, ConvTransposeOptions(stride, padding, output_padding, dilation, groups))

    return batched(call, n)


def pooled(n: int) -> Call:
    def call(
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        both = getattr(functional, f"max_pool{n}d_with_indices", None)
        if return_indices and both is None:
            raise Lacks("return_indices")
        if return_indices:
            return both(x, kernel_size, stride, padding, dilation, ceil_mode)
        return getattr(functional, f"max_pool{n}d")(x, kernel_size, stride, padding, dilation, ceil_mode)

    return batched(call, n)


def normalised_over(normalise: Call) -> Call:
    """A normalisation of the last axis, of several by joining them."""
    default = 1e-5 if normalise is functional.layer_norm else None

    def call(x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float | None = default) -> Any:
        if eps is None:
            eps = torch.finfo(TO_TORCH[x.dtype]).eps
        flat = x.reshape((*x.shape[: x.ndim - len(shape)], math.prod(shape)))
        parameters = [None if w is None else w.flatten() for w in (weight, bias)][
            : 2 if normalise is functional.layer_norm else 1
        ]
        return normalise(flat, *parameters, epsilon=eps).reshape(x.shape)

    return call


def interpolated(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    **_: object,
) -> Any:
    n = x.ndim - 2
    if scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * n
        size = tuple(math.floor(s * f) for s, f in zip(x.shape[2:], factors, strict=True))
    sizes = size if isinstance(size, tuple) else (size,) * n
    kind = {"linear": "bilinear", "nearest-exact": "nearest_exact"}.get(mode, mode)
    return functional.interpolate(x, sizes, InterpolateOptions(kind, bool(align_corners)))


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    mask = attn_mask.bool_not() if attn_mask is not None and attn_mask.dtype.is_bool else None
    bias = attn_mask if mask is None else None
    lift = lambda x: x if x is None or x.ndim == 4 else x.unsqueeze(4)  # noqa: E731
    y = functional.attention(
        lift(q), lift(k), lift(v), lift(mask), lift(bias), AttentionModuleOptions(scale, is_causal=is_causal)
    )
    return y.reshape(y.shape[4 - q.ndim :])


def classified(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    config = CrossEntropyLossConfig(
        weights=None if weight is None else weight.tolist(),
        smoothing=label_smoothing or None,
        pad_tokens=[ignore_index] if ignore_index >= 0 else None,
    )
    y = config.init(x.device).forward(x, target)
    return y.reshape(())


def binary_loss(logits: bool) -> Call:
    def call(
        x: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> Any:
        row = ops.binary_cross_entropy_with_logits if logits else ops.binary_cross_entropy
        y = row(x, target)
        return reduce_loss(y if weight is None else y * weight, reduction)

    return call


def clamped(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Bounds that are tensors are `max_pair` and `min_pair`."""
    low = x if min is None else x.max_pair(min)
    return low if max is None else low.min_pair(max)


def one_quantile(x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Any:
    parts = q.tolist() if isinstance(q, Tensor) else q
    y = (x.flatten() if dim is None else x).quantile(parts, 0 if dim is None else dim, interpolation)
    if isinstance(parts, list):
        at = 0 if dim is None else dim
        y = y.movedim(at, 0)
        if not keepdim:
            return y
        return y.unsqueeze_dim(dim % x.ndim + 1) if dim is not None else y.reshape((len(parts), *[1] * x.ndim))
    if dim is None:
        return y.reshape((1,) * x.ndim if keepdim else ())
    return dropped(y, (dim,), keepdim)


def listed(*values: Any) -> list[list[int]]:
    return [list(v) if isinstance(v, tuple | list) else [0 if v is None else v] for v in values]


def ctc(x: Tensor, targets: Tensor, inputs: Any, lengths: Any, blank: int, reduction: str) -> Any:
    inputs, lengths = (n if isinstance(n, Tensor) else Tensor.from_ints(list(n), here()) for n in (inputs, lengths))
    y = functional.ctc_loss(x, targets, inputs, lengths, blank)
    return reduce_loss(y / lengths.cast(y.dtype).clamp_min(1) if reduction == "mean" else y, reduction)


def counts(x: Tensor, size: Any, n: int) -> list[int]:
    """Sizes of a result, in which None stands for the size of x."""
    wanted = size if isinstance(size, tuple | list) else (size,) * n
    return [m if s is None else s for s, m in zip(wanted, x.shape[-n:], strict=True)]


def ranged(start: Any, end: Any = None, step: Any = 1, dtype: DType | None = None, **_: object) -> Tensor:
    if any(isinstance(n, float) and not n.is_integer() for n in (start, end, step) if n is not None):
        raise Lacks("parts of whole numbers")
    numbers = range(int(start)) if end is None else range(int(start), int(end), int(step))
    y = Tensor.arange(numbers, here() if dtype is None else (here(), dtype))
    return y.cast("f32") if dtype is None and any(isinstance(n, float) for n in (start, end, step)) else y


def squeezed(x: Tensor, dim: Any = None) -> Tensor:
    """torch leaves axes of other sizes as they are."""
    if dim is None:
        return x.squeeze()
    gone = [d for d in axes_of(x, dim) if x.shape[d] == 1] if dim != () else []
    return x.squeeze_dims(gone) if gone else x


def framed(
    x: Tensor,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    onesided: bool = True,
    return_complex: bool = True,
) -> Any:
    """stft, whose frames and bins torch has the other way round."""
    y = signal.stft(x, window, signal.StftOptions(n_fft, hop_length, win_length, center, onesided)).swap_dims(-2, -3)
    return ComplexTensor.view_as_complex(y) if return_complex else y


def averaged(n: int) -> Call:
    def call(
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is not None:
            raise Lacks("divisor_override")
        padding = padding[0] if isinstance(padding, tuple) and len(padding) == 1 else padding
        return getattr(functional, f"avg_pool{n}d")(
            x, kernel_size, stride or None, padding, count_include_pad, ceil_mode
        )

    return batched(call, n)


def added(x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * x + alpha * product; x is not read for a beta of 0."""
    return product * float(alpha) + (x * float(beta) if beta else 0.0 * x.zeros_like())


def tensors(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two operands, of which one may be a number."""
    return (
        x if isinstance(x, Tensor) else y.new_full((), float(x)),
        y if isinstance(y, Tensor) else x.new_full((), float(y)),
    )


def nll(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    if reduction != "mean":
        raise Lacks("reduction")
    config = NLLLossConfig(
        weights=None if weight is None else weight.tolist(), pad_tokens=[ignore_index] if ignore_index >= 0 else None
    )
    return config.init(here()).forward(x, target).reshape(())
