"""Embedding tables, and norms of many tensors, as functions of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import torch

from burn_kernels import tensor_norm
from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import describe
from burn_kernels.torch.defining import note_fallback

__all__ = ["clip_grad_norm_", "embedding", "get_total_norm"]


def embedding(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """The rows of `weight` that `input` names; the gradient adds them up in a fixed order, without atomics.

    Shapes: input (*batch) integers, weight (rows, cols) -> (*batch, cols).  Dtypes: weight any float.
    max_norm, which writes to the weight, and sparse go to torch's own.  PyTorch: torch.nn.functional.embedding.
    """
    if max_norm is not None or sparse:
        note_fallback("embedding", "with max_norm" if max_norm is not None else "with sparse gradients")
        options = {"scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
        return torch.nn.functional.embedding(input, weight, padding_idx, max_norm, norm_type, **options)
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise KernelArgumentError(
            "embedding: padding_idx is no row of the table",
            given=f"padding_idx {padding_idx}, {describe({'weight': weight})}",
            expected=f"from {-rows} to {rows - 1}, or None",
            mend="pass the row that stands for padding",
        )
    padding = -1 if padding_idx is None else padding_idx % rows
    rows_of_input: torch.Tensor = torch.ops.burn_kernels.embedding(input, weight, padding, scale_grad_by_freq)
    return rows_of_input


_norms_checked: Final = functools.partial(checked, but=("norm_type", "max_norm"))  # "inf" and tensors, as torch


@_norms_checked
def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """The norm of all tensors as of one vector, in two launches.  PyTorch: torch.nn.utils.get_total_norm.

    Orders 1, 2 and inf have kernels, and tensors of one device; others go to torch's own.  `foreach` means nothing
    here.  The result is float32 (of float64 float64) on the tensors' device; nothing waits for it unless
    `error_if_nonfinite` asks.
    """
    norm, _ = _norm_and_factor("get_total_norm", tensors, norm_type, None, error_if_nonfinite)
    return norm


@_norms_checked
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Scales gradients in place so that their norm is at most `max_norm`; returns the norm that they had.

    The optimizers here do it on the way through their step: `clip_norm=`.  PyTorch: torch.nn.utils.clip_grad_norm_.
    """
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    _require_tensors("clip_grad_norm_", listed)
    grads = [p.grad for p in listed if p.grad is not None]
    with torch.no_grad():
        norm, factor = _norm_and_factor("clip_grad_norm_", grads, norm_type, float(max_norm), error_if_nonfinite)
        assert factor is not None
        for device in dict.fromkeys(grad.device for grad in grads):
            torch._foreach_mul_([grad for grad in grads if grad.device == device], factor.to(device))
    return norm


def _require_tensors(op: str, listed: list[object]) -> None:
    others = [one for one in listed if not isinstance(one, torch.Tensor)]
    if others:
        raise KernelArgumentError(
            f"{op}: not all of these are tensors",
            given=f"a {type(others[0]).__name__} among {len(listed)}",
            expected="tensors of torch",
            mend="pass model.parameters(), or a list of tensors",
        )


def _norm_and_factor(
    op: str, tensors: torch.Tensor | Iterable[torch.Tensor], order: float, most: float | None, finite: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    _require_tensors(op, listed)
    ops, order = torch.ops.burn_kernels, float(order)
    kinds = {(x.device, x.layout, x.is_floating_point()) for x in listed}
    why = "" if order in tensor_norm.ORDERS else f"of order {order}"
    if len(kinds) > 1 or (kinds and not next(iter(kinds))[2]) or any(layout != torch.strided for _, layout, _ in kinds):
        why = "of tensors on several devices, sparse ones, or no floats"
    factor: torch.Tensor | None = None
    if why:
        note_fallback(op, why)
        norm = torch.nn.utils.get_total_norm(listed, order)
        factor = None if most is None else (most / (norm + 1e-6)).clamp(max=1.0)
    elif most is None or not most > 0.0:  # a limit of 0 makes all gradients 0
        norm = ops.tensor_norm(listed, order)
        factor = None if most is None else (most / (norm + 1e-6)).clamp(max=1.0)
    else:
        norm, factor = ops.clip_factor(listed, most, order)
    if finite and not bool(torch.isfinite(norm)):
        raise KernelArgumentError(
            f"{op}: the norm is not finite",
            given=f"{norm.item()} of {len(listed)} tensors",
            expected="finite gradients, as error_if_nonfinite asks",
            mend="look for the NaN with burn_kernels.torch.check, or leave error_if_nonfinite out",
        )
    return norm, factor
