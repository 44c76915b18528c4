"""What a linear layer has beside its kernels: what it keeps, its checks, the layer in plain torch, problems."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from burn_kernels.activation import KINDS as ACTIVATIONS
from burn_kernels.activation import TWINS, plain
from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type
from burn_kernels.spec import Draw, Problem

KINDS = ("none", *ACTIVATIONS)
Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None, *,
    backward: bool = False, **_: object,
) -> int:  # fmt: skip
    """x, w and what is added read, the output written; backward dout, x, w read, all gradients written."""
    operands = x.numel() + w.numel()
    out = math.prod(x.shape[:-1]) * w.shape[0]
    added = sum(t.numel() for t in (bias, residual) if t is not None)
    return ((2 if backward else 1) * operands + added + out) * x.element_size()


def flops(x: torch.Tensor, w: torch.Tensor, *_: object, backward: bool = False, **__: object) -> int:
    """One matrix product forward, two backward."""
    return (4 if backward else 2) * x.numel() * w.shape[0]


# -- what is kept -----------------------------------------------------------------------------------
def keeps(kind: str, *, residual: bool) -> str:
    """What `forward_kept` keeps for the backward: "", "out" (nothing beside the output) or "z"."""
    return "" if kind == "none" else "out" if kind == "relu" and not residual else "z"


def rows_in(x: torch.Tensor) -> int:
    """How many rows x has, along all axes but the last."""
    return math.prod(x.shape[:-1])


# -- checks ------------------------------------------------------------------------------------------
def check_layer(
    op: str, x: torch.Tensor, w: torch.Tensor, kind: str, others: dict[str, torch.Tensor | None]
) -> tuple[int, ...]:
    """The shape of the output."""
    check_kind(op, kind)
    if x.dim() < 1 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=describe({"x": x, "w": w}),
            expected="x (*batch, inner), w (features, inner)",
            mend="w is laid out as in torch.nn.Linear; pass w.T of a weight that is (inner, features)",
        )
    shape = (*x.shape[:-1], w.shape[0])
    tensors = {"x": x, "w": w, **others}
    check(op, tensors, {"bias": w.shape[:1], "residual": shape}, alike=list(tensors))
    return shape


def check_kind(op: str, kind: str) -> None:
    """Raises KernelArgumentError for a name that is not in KINDS."""
    if kind not in KINDS:
        raise KernelArgumentError(
            f"{op}: no such activation",
            given=f"kind {kind!r}",
            expected=f"one of {', '.join(KINDS)}",
            mend="gelu is the exact form, gelu_tanh the approximation; gated forms are in burn_kernels.glu",
        )


def check_kept(op: str, dy: torch.Tensor, kept: torch.Tensor | None, kind: str) -> None:
    """Checks that what the forward kept is there if it is needed, and fits dy."""
    check_kind(op, kind)
    if (kept is None) != (kind == "none"):
        raise KernelArgumentError(
            f"{op}: what the forward kept is {'missing' if kept is None else 'not needed'}",
            given=f"kind {kind!r}, kept {None if kept is None else tuple(kept.shape)}",
            expected="what forward_kept gave: None without an activation, a tensor with one",
            mend="pass the second result of forward_kept as it is",
        )
    check(op, {"dy": dy, "kept": kept}, {"kept": dy.shape}, alike=["dy", "kept"])


# -- reference ---------------------------------------------------------------------------------------
def reference_kept(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    kind: str = "none",
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The output in plain torch, and what is kept for the backward."""
    wide = wide_type(x.dtype)
    z = torch.nn.functional.linear(x.to(wide), w.to(wide), None if bias is None else bias.to(wide))
    y = z if kind == "none" else plain(z, kind)[0]
    out = (y if residual is None else y + residual.to(wide)).to(x.dtype)
    keep = keeps(kind, residual=residual is not None)
    return out, None if not keep else out if keep == "out" else z.to(x.dtype)


def reference(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    kind: str = "none",
) -> torch.Tensor:
    """The output in plain torch."""
    return reference_kept(x, w, bias, residual, kind=kind)[0]


def reference_slope(
    dy: torch.Tensor, kept: torch.Tensor | None, kind: str, bias: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """dz and db in plain torch."""
    wide = wide_type(dy.dtype)
    dz = dy.to(wide) if kept is None else dy.to(wide) * plain(kept.to(wide), kind)[1]
    db = dz.reshape(rows_in(dy), dy.shape[-1]).sum(0).to(dy.dtype) if bias else None
    return dy if kept is None else dz.to(dy.dtype), db


def reference_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    kept: torch.Tensor | None,
    *,
    kind: str = "none",
    bias: bool = True,
) -> Gradients:
    """The gradients in plain torch."""
    dz, db = reference_slope(dy, kept, kind, bias)
    flat = dz.reshape(rows_in(x), w.shape[0])
    return (flat @ w).view(x.shape), flat.T @ x.reshape(rows_in(x), x.shape[-1]), db


# -- problems ----------------------------------------------------------------------------------------
def problems(draw: Draw) -> Iterator[Problem]:
    """Every activation with and without bias and residual; no rows, no features, nothing to sum; both layouts."""

    def problem(x: torch.Tensor, w: torch.Tensor, kind: str, bias: bool = True, residual: bool = False) -> Problem:
        added = draw.normal(*x.shape[:-1], w.shape[0]) if residual else None
        return Problem((x, w, draw.normal(w.shape[0]) if bias else None, added), {"kind": kind})

    for number, kind in enumerate(KINDS):
        for shape, features in (((5, 7), 11), ((2, 3, 33), 20), ((67, 16), 35)):
            yield problem(draw.normal(*shape), draw.normal(features, shape[-1]), kind, number % 2 == 0, features == 20)
    yield problem(draw.normal(1, 1), draw.normal(1, 1), "silu")
    yield problem(draw.normal(19), draw.normal(5, 19), "gelu", False, True)
    yield problem(draw.normal(0, 5), draw.normal(3, 5), "gelu_tanh")
    yield problem(draw.normal(4, 0), draw.normal(3, 0), "gelu", True, True)
    yield problem(draw.normal(4, 5), draw.normal(0, 5), "relu")
    yield problem(
        draw.normal(18, 40)[::2, 3:20], draw.normal(17, 12).T, "gelu", True, True
    )  # strided; the other layout
    yield problem(draw.normal(9, 21).T, draw.normal(13, 9), "silu")


def twin(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None, *,
    kind: str = "none",
) -> torch.Tensor:  # fmt: skip
    """The layer as a user of PyTorch writes it."""
    z = torch.nn.functional.linear(x, w, bias)
    y = z if kind == "none" else TWINS[kind](z)
    return y if residual is None else y + residual


def twin_kept(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None, *,
    kind: str = "none",
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """The output of `twin`, and what is kept for the backward.  Torch's products of halves may be a unit off."""
    y, keep = twin(x, w, bias, residual, kind=kind), keeps(kind, residual=residual is not None)
    return y, None if not keep else y if keep == "out" else torch.nn.functional.linear(x, w, bias)
