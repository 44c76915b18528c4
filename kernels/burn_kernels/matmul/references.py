"""A linear layer without its kernels: the tensors that it keeps, its checks, and the layer in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from burn_kernels import activation
from burn_kernels.activation import TWINS, plain
from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import check, describe, wide_type

KINDS = ("none", *activation.KINDS)
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


# -- limits ------------------------------------------------------------------------------------------
def bytes_moved(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *,
    backward: bool = False, **_: object,
) -> int:  # fmt: skip
    """x, w and what is added read, the output written; backward dout, x, w read, all gradients written."""
    operands = x.numel() + w.numel()
    out = math.prod(x.shape[:-1]) * w.shape[0]
    added = sum(t.numel() for t in (bias, residual) if t is not None)
    return ((2 if backward else 1) * operands + added + out) * x.element_size()


def flops(x: Tensor, w: Tensor, *_: object, backward: bool = False, **__: object) -> int:
    """One matrix product forward, two backward."""
    return (4 if backward else 2) * x.numel() * w.shape[0]


# -- what is kept -----------------------------------------------------------------------------------
def keeps(kind: str, *, residual: bool) -> str:
    """Names the tensor that `forward_kept` keeps for the backward: "", "out" (only the output) or "z"."""
    return "" if kind == "none" else "out" if kind == "relu" and not residual else "z"


def rows_in(x: Tensor) -> int:
    """How many rows x has, along all axes but the last."""
    return math.prod(x.shape[:-1])


# -- checks ------------------------------------------------------------------------------------------
def check_kind(op: str, kind: str) -> None:
    """Raises KernelArgumentError for a name that is not in KINDS."""
    activation.check_kind(op, kind=kind, kinds=KINDS)


def check_layer(op: str, x: Tensor, w: Tensor, *added: Tensor | None, kind: str = "none", **_: object) -> None:
    """Raises KernelArgumentError or KernelShapeError unless the operands fit together."""
    check_kind(op, kind)
    if x.dim() < 1 or w.dim() != 2 or x.shape[-1] != w.shape[1]:
        raise KernelShapeError(
            f"{op}: the sizes do not fit",
            given=describe({"x": x, "w": w}),
            expected="x (*batch, inner), w (features, inner)",
            mend="w is laid out as in torch.nn.Linear; pass w.T of a weight that is (inner, features)",
        )
    bias, residual = added or (None, None)
    shapes = {"bias": w.shape[:1], "residual": (*x.shape[:-1], w.shape[0])}
    if any(t is not None and t.shape != shape for t, shape in zip((bias, residual), shapes.values(), strict=True)):
        check(op, {"x": x, "w": w, "bias": bias, "residual": residual}, shapes, alike=())


def check_backward(op: str, dy: Tensor, x: Tensor, w: Tensor, kept: object, *, kind: str = "none", **_: object) -> None:
    """As `check_layer`, with the gradient of the output; `slope_and_bias` checks what was kept."""
    check_layer(op, x, w, kind=kind)
    if dy.shape != (shape := (*x.shape[:-1], w.shape[0])):
        check(op, {"dy": dy, "x": x}, {"dy": shape}, alike=())


def check_kept(op: str, dy: object, kept: Tensor | None, *, kind: str = "none", **_: object) -> None:
    """Raises KernelArgumentError unless what the forward kept is there exactly if it is needed."""
    check_kind(op, kind)
    if (kept is None) != (kind == "none"):
        raise KernelArgumentError(
            f"{op}: what the forward kept is {'missing' if kept is None else 'not needed'}",
            given=f"kind {kind!r}, kept {None if kept is None else tuple(kept.shape)}",
            expected="what forward_kept gave: None without an activation, a tensor with one",
            mend="pass the second result of forward_kept as it is",
        )


# -- reference ---------------------------------------------------------------------------------------
def reference_kept(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, kind: str = "none"
) -> tuple[Tensor, Tensor | None]:
    """The output in plain torch, and what is kept for the backward."""
    wide = wide_type(x.dtype)
    z = torch.nn.functional.linear(x.to(wide), w.to(wide), None if bias is None else bias.to(wide))
    y = z if kind == "none" else plain(z, kind)[0]
    out = (y if residual is None else y + residual.to(wide)).to(x.dtype)
    keep = keeps(kind, residual=residual is not None)
    return out, None if not keep else out if keep == "out" else z.to(x.dtype)


def reference(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, kind: str = "none"
) -> Tensor:
    """The output in plain torch."""
    return reference_kept(x, w, bias, residual, kind=kind)[0]


def reference_slope(
    dy: Tensor, kept: Tensor | None, *, kind: str = "none", bias: bool = True
) -> tuple[Tensor, Tensor | None]:
    """dz and db in plain torch."""
    wide = wide_type(dy.dtype)
    dz = dy.to(wide) if kept is None else dy.to(wide) * plain(kept.to(wide), kind)[1]
    db = dz.reshape(rows_in(dy), dy.shape[-1]).sum(0).to(dy.dtype) if bias else None
    return dy if kept is None else dz.to(dy.dtype), db


def reference_backward(
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    kept: Tensor | None,
    *,
    kind: str = "none",
    bias: bool = True,
    needs: tuple[bool, bool] = (True, True),
) -> Gradients:
    """The gradients in plain torch."""
    dz, db = reference_slope(dy, kept, kind=kind, bias=bias)
    return *multiply_back(dz, x, w, needs), db


def multiply_back(dz: Tensor, x: Tensor, w: Tensor, needs: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and w, those that `needs` asks for, by the library's products."""
    flat = dz.reshape(rows_in(x), w.shape[0])
    dx = torch.mm(flat, w).view(x.shape) if needs[0] else None
    return dx, torch.mm(flat.T, x.reshape(rows_in(x), x.shape[-1])) if needs[1] else None


# -- twins -------------------------------------------------------------------------------------------
def twin(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *,
    kind: str = "none",
) -> Tensor:  # fmt: skip
    """The layer as a user of PyTorch writes it."""
    z = torch.nn.functional.linear(x, w, bias)
    y = z if kind == "none" else TWINS[kind](z)
    return y if residual is None else y + residual


def twin_kept(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *,
    kind: str = "none",
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The output of `twin`, and what is kept for the backward.  Torch's products of halves may be a unit off."""
    y, keep = twin(x, w, bias, residual, kind=kind), keeps(kind, residual=residual is not None)
    return y, None if not keep else y if keep == "out" else torch.nn.functional.linear(x, w, bias)
