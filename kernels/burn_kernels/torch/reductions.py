"""Reductions over any axes as functions of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from burn_kernels.torch.defining import note_fallback

__all__ = ["amax", "amin", "argmax", "argmin", "logsumexp", "mean", "sum", "var"]

Axes = int | Sequence[int] | None


def _axes(dim: Axes) -> list[int] | None:
    # no axes are all axes, as torch has it
    return [dim] if isinstance(dim, int) else list(dim) or None if dim is not None else None


def _reduce(kind: str, x: torch.Tensor, dim: Axes, keepdim: bool, dtype: torch.dtype | None, *more: float) -> Any:
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
    return _reduce("sum", input, dim, keepdim, dtype)  # type: ignore[no-any-return]  # an operator of torch


def mean(
    input: torch.Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The mean over the axes `dim`; as `sum`.  PyTorch: torch.mean."""
    return _reduce("mean", input, dim, keepdim, dtype)  # type: ignore[no-any-return]  # an operator of torch


def var(input: torch.Tensor, dim: Axes = None, *, correction: float = 1.0, keepdim: bool = False) -> torch.Tensor:
    """The squared distances from the mean over n - correction; shapes and types as `sum`.  PyTorch: torch.var."""
    return _reduce("var", input, dim, keepdim, None, correction)[0]  # type: ignore[no-any-return]  # an operator


def logsumexp(input: torch.Tensor, dim: Axes, keepdim: bool = False) -> torch.Tensor:
    """log(sum(exp(x))) over the axes `dim`; shapes and types as `sum`.  PyTorch: torch.logsumexp."""
    return _reduce("logsumexp", input, dim, keepdim, None)[0]  # type: ignore[no-any-return]  # an operator of torch


def amax(input: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The largest over the axes `dim`; equals share the gradient alike.  PyTorch: torch.amax."""
    return _reduce("amax", input, dim, keepdim, None)  # type: ignore[no-any-return]  # an operator of torch


def amin(input: torch.Tensor, dim: Axes = None, keepdim: bool = False) -> torch.Tensor:
    """The smallest over the axes `dim`; as `amax`.  PyTorch: torch.amin."""
    return _reduce("amin", input, dim, keepdim, None)  # type: ignore[no-any-return]  # an operator of torch


def argmax(input: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The place of the largest along `dim`, or in the input read in order if None: the first of equals.

    PyTorch: torch.argmax.
    """
    return _place("argmax", input, dim, keepdim)


def argmin(input: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The place of the smallest; as `argmax`.  PyTorch: torch.argmin."""
    return _place("argmin", input, dim, keepdim)


def _place(kind: str, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
    if not x.is_floating_point():
        note_fallback(kind, f"of {str(x.dtype).removeprefix('torch.')}")
        return getattr(torch, kind)(x, dim, keepdim)  # type: ignore[no-any-return]  # of torch
    return getattr(torch.ops.burn_kernels, kind)(x, dim, keepdim)  # type: ignore[no-any-return]  # an operator
