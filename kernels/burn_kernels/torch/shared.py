"""The parts that functions share: axes that are normalised over, element types, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from burn_kernels.errors import KernelShapeError
from burn_kernels.launch import describe

__all__ = ["cast_as_products", "last_axes", "least_eps", "mixed", "new_seed"]


def last_axes(op: str, x: torch.Tensor, shape: Sequence[int], *vectors: torch.Tensor | None) -> tuple[Any, ...]:
    """x and the vectors with the axes of `shape`, the last ones of x, as one.  Raises: KernelShapeError."""
    shape = tuple(shape)
    fits = len(shape) > 0 and tuple(x.shape[-len(shape) :]) == shape
    if not fits or any(t is not None and tuple(t.shape) != shape for t in vectors):
        names = zip(("weight", "bias"), vectors, strict=False)
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=f"normalized_shape {shape}, " + describe({"input": x, **dict(names)}),
            expected=f"input (*batch, {', '.join(map(str, shape))}), weight and bias {shape}",
            mend="normalize over the last axes of the input",
        )
    if len(shape) == 1:
        return x, *vectors
    return x.flatten(-len(shape)), *(None if t is None else t.flatten() for t in vectors)


def mixed(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """Tells if the element types differ, and autocast will not make them alike."""
    if x.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return False  # all are cast to float32
    return any(other is not None and other.dtype != x.dtype for other in others)


def cast_as_products(x: torch.Tensor, *others: torch.Tensor | None) -> tuple[Any, ...]:
    """x and the others as autocast casts the operands of torch's own products; float64 stays as it is."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x, *others
    kind = torch.get_autocast_dtype(device)
    return x.to(kind), *[None if other is None else other.to(kind) for other in others]


def least_eps(x: torch.Tensor) -> float:
    """The number that torch's RMS norm adds by default."""
    return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps


def new_seed() -> torch.Tensor:
    """Key and stream of a dropout, drawn from torch's generator of the CPU."""
    # an operator of torch's own: those are the only ones of which torch.compile never makes two calls one
    return torch.randint(2**63 - 1, (2,), dtype=torch.int64, device="cpu")
