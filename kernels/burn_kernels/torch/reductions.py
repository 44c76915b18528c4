"""Reductions over any axes as operators and functions of PyTorch; `defining` says what holds for all.

The gradients of sum and mean are views of the upstream gradient, made by torch's own operators: no kernel runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from burn_kernels import reduce
from burn_kernels.reduce.references import KINDS, axes_of, count_of, kept_type, reduced, reference_back, shape_of, twin
from burn_kernels.torch.defining import define, differentiate, in_float32, like, note_fallback, or_reference, second

__all__ = ["amax", "amin", "argmax", "argmin", "logsumexp", "mean", "sum", "var"]

PLACES = ("argmax", "argmin")
TWO = ("var", "logsumexp")
"""What gives, beside its result, a tensor that the gradient takes."""


# -- forward -------------------------------------------------------------------------------------------
def _run(kind: str, x: torch.Tensor, dim: Any, keepdim: bool, *more: float) -> object:
    launcher: Callable[..., object] = getattr(reduce, kind)
    options: dict[str, Any] = {"keepdim": keepdim} | ({"correction": more[0]} if more else {})

    def plain(x: torch.Tensor, dim: Any, *, keepdim: bool, correction: float = 1.0) -> Any:
        y, middle = reduced(kind, x, axes_of(kind, x, dim), keepdim, correction)
        return y if middle is None else (y, middle)

    return or_reference(kind, launcher, plain)(x, dim, **options)


def _fake(kind: str, x: torch.Tensor, dim: Any, keepdim: bool, *more: float) -> object:
    shape = shape_of(x, axes_of(kind, x, dim), keepdim)
    y = torch.empty(shape, dtype=torch.int64 if kind in PLACES else x.dtype, device=x.device)
    return (y, torch.empty(shape, dtype=kept_type(kind, x.dtype), device=x.device)) if kind in TWO else y


def _define(kind: str) -> object:
    axes = "int? dim" if kind in PLACES else "int[]? dim"
    more = ", float correction" if kind == "var" else ""
    outputs = "(Tensor, Tensor)" if kind in TWO else "Tensor"
    schema = f"{kind}(Tensor x, {axes}, bool keepdim{more}) -> {outputs}"
    return define(schema, functools.partial(_run, kind), functools.partial(_fake, kind))


OPS = {kind: _define(kind) for kind in KINDS}


# -- gradients -----------------------------------------------------------------------------------------
def _setup_linear(ctx: Any, inputs: Any, output: object) -> None:
    x, dim, _ = inputs
    ctx.shape, axes = x.shape, axes_of("sum", x, dim)
    ctx.kept, ctx.count = shape_of(x, axes, True), count_of(x, axes)


def _sum_gradient(ctx: Any, dy: torch.Tensor) -> object:
    return dy.reshape(ctx.kept).expand(ctx.shape), None, None


def _mean_gradient(ctx: Any, dy: torch.Tensor) -> object:
    return (dy.reshape(ctx.kept) / ctx.count).expand(ctx.shape), None, None


differentiate(OPS["sum"], _setup_linear, _sum_gradient)
differentiate(OPS["mean"], _setup_linear, _mean_gradient)
in_float32(OPS["sum"], "cuda")
in_float32(OPS["logsumexp"], "cuda")


def _back(
    kind: str, dy: torch.Tensor, x: torch.Tensor, saved: torch.Tensor, dim: Any, keepdim: bool, *more: float
) -> torch.Tensor:
    launcher: Callable[..., object] = getattr(reduce, f"{kind}_backward")
    options: dict[str, Any] = {"keepdim": keepdim} | ({"correction": more[0]} if more else {})

    def plain(dy: Any, x: Any, saved: Any, dim: Any, *, keepdim: bool, correction: float = 1.0) -> torch.Tensor:
        return reference_back(kind, dy, x, saved, axes_of(kind, x, dim), correction)

    run = or_reference(f"{kind} backward", launcher, plain)
    return run(dy, x, saved, dim, **options).contiguous()  # type: ignore[no-any-return]  # launchers


def _define_back(kind: str, forwards: tuple[str, ...], more: str = "") -> None:
    schema = f"{kind}_backward(Tensor dy, Tensor x, Tensor saved, int[]? dim, bool keepdim{more}) -> Tensor"
    back = define(schema, functools.partial(_back, kind), lambda dy, x, *_: like(x))

    def setup(ctx: Any, inputs: Any, output: object) -> None:
        x, *ctx.options = inputs
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.set_materialize_grads(False)
        if len(outputs) == 2:
            ctx.mark_non_differentiable(outputs[1])
        ctx.save_for_backward(x, outputs[-1])

    def gradient(ctx: Any, dy: torch.Tensor | None, *_: object) -> Any:
        none = (None,) * len(ctx.options)
        return None if dy is None else back(dy, *ctx.saved_tensors, *ctx.options), *none

    def setup_back(ctx: Any, inputs: Any, output: object) -> None:
        dy, x, saved, *ctx.options = inputs
        ctx.save_for_backward(dy, x, saved)

    def again(ctx: Any, upstream: torch.Tensor) -> Any:
        dy, x, saved = ctx.saved_tensors
        dim, keepdim, *correction = ctx.options
        options = {"correction": correction[0]} if correction else {}
        if kind == "extreme":  # a choice of elements: linear in dy, flat in x
            axes = axes_of(kind, x, dim)
            kept = shape_of(x, axes, True)
            same = (x == saved.reshape(kept)).to(upstream.dtype)
            shares = upstream * same / (same.sum(axes, keepdim=True) if axes else same)
            ddy = shares.sum(axes).reshape(dy.shape) if axes else shares
            return ddy, None, None, *(None,) * len(ctx.options)
        ddy, dx = second(lambda x: twin(kind, x, dim, keepdim, **options), dy, (x,), (upstream,))
        return ddy, dx, None, *(None,) * len(ctx.options)

    for forward in forwards:
        differentiate(OPS[forward], setup, gradient)
    differentiate(back, setup_back, again)


_define_back("var", ("var",), ", float correction")
_define_back("logsumexp", ("logsumexp",))
_define_back("extreme", ("amax", "amin"))


# -- functions -----------------------------------------------------------------------------------------
Axes = int | Sequence[int] | None


def _axes(dim: Axes) -> list[int] | None:
    # no axes are all axes, as torch has it
    return [dim] if isinstance(dim, int) else list(dim) or None if dim is not None else None


def _reduced(kind: str, x: torch.Tensor, dim: Axes, keepdim: bool, dtype: torch.dtype | None, *more: float) -> Any:
    x = x if dtype is None else x.to(dtype)
    if not x.is_floating_point():
        note_fallback(kind, f"of {str(x.dtype).removeprefix('torch.')}")
        call: Callable[..., torch.Tensor] = getattr(torch, kind)
        return call(x, () if dim is None and kind.startswith("a") else dim, keepdim=keepdim)
    return getattr(torch.ops.burn_kernels, kind)(x, _axes(dim), keepdim, *more)


def sum(
    input: torch.Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The sum over the axes `dim`, all if None; `dtype` casts first.  PyTorch: torch.sum.

    Shapes: (*s) -> s without these axes, or with 1 in their place.  Dtypes: any float; others go to torch's own.
    """
    return _reduced("sum", input, dim, keepdim, dtype)  # type: ignore[no-any-return]  # an operator of torch


def mean(
    input: torch.Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The mean over the axes `dim`; as `sum`.  PyTorch: torch.mean."""
    return _reduced("mean", input, dim, keepdim, dtype)  # type: ignore[no-any-return]  # an operator of torch


def var(input: torch.Tensor, dim: Axes = None, *, correction: float = 1.0, keepdim: bool = False) -> torch.Tensor:
    """The squared distances from the mean over n - correction; shapes and types as `sum`.  PyTorch: torch.var."""
    return _reduced("var", input, dim, keepdim, None, correction)[0]  # type: ignore[no-any-return]  # an operator


def logsumexp(input: torch.Tensor, dim: Axes, keepdim: bool = False) -> torch.Tensor:
    """log(sum(exp(x))) over the axes `dim`; shapes and types as `sum`.  PyTorch: torch.logsumexp."""
    return _reduced("logsumexp", input, dim, keepdim, None)[0]  # type: ignore[no-any-return]  # an operator of torch


def amax(input: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The largest over the axes `dim`; equals share the gradient alike.  PyTorch: torch.amax."""
    return _reduced("amax", input, dim, keepdim, None)  # type: ignore[no-any-return]  # an operator of torch


def amin(input: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The smallest over the axes `dim`; as `amax`.  PyTorch: torch.amin."""
    return _reduced("amin", input, dim, keepdim, None)  # type: ignore[no-any-return]  # an operator of torch


def argmax(input: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """Where the largest is along `dim`, or in the input read in order if None: the first of equals.

    PyTorch: torch.argmax.
    """
    return _place("argmax", input, dim, keepdim)


def argmin(input: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """Where the smallest is; as `argmax`.  PyTorch: torch.argmin."""
    return _place("argmin", input, dim, keepdim)


def _place(kind: str, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
    if not x.is_floating_point():
        note_fallback(kind, f"of {str(x.dtype).removeprefix('torch.')}")
        return getattr(torch, kind)(x, dim, keepdim)  # type: ignore[no-any-return]  # of torch
    return getattr(torch.ops.burn_kernels, kind)(x, dim, keepdim)  # type: ignore[no-any-return]  # an operator
