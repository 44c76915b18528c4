"""Embedding tables, and norms of many tensors, as operators and functions of PyTorch; see `defining`."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

import torch

from burn_kernels import embedding as launchers
from burn_kernels import tensor_norm
from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import describe, wide_type
from burn_kernels.torch.defining import define, differentiate, leaf, note_fallback, or_reference

__all__ = ["clip_grad_norm_", "embedding", "get_total_norm"]


# -- embedding -----------------------------------------------------------------------------------------
def _embedding(indices: torch.Tensor, weight: torch.Tensor, padding: int, scaled: bool) -> torch.Tensor:
    # a gather, which torch has in one kernel; its gradient is what is ours
    return torch.nn.functional.embedding(indices, weight)


def _embedding_backward(dy: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, scaled: bool) -> torch.Tensor:
    run = or_reference("embedding backward", launchers.backward, launchers.reference)
    options = {"padding_idx": padding if padding >= 0 else None, "scale_by_frequency": scaled}
    return run(dy, indices, rows=rows, **options).contiguous()  # type: ignore[no-any-return]  # launchers


EMBEDDING = define(
    "embedding(Tensor indices, Tensor weight, int padding_idx, bool scale_by_frequency) -> Tensor",
    _embedding,
    lambda indices, weight, *_: torch.empty(
        (*indices.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device
    ),
)
_EMBEDDING_BACKWARD = define(
    "embedding_backward(Tensor dy, Tensor indices, SymInt rows, int padding_idx, bool scale_by_frequency) -> Tensor",
    _embedding_backward,
    lambda dy, indices, rows, *_: torch.empty((rows, dy.shape[-1]), dtype=dy.dtype, device=dy.device),
)


def _setup_embedding(ctx: Any, inputs: Any, output: object) -> None:
    indices, weight, *ctx.options = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _embedding_gradient(ctx: Any, dy: torch.Tensor) -> Any:
    return None, _EMBEDDING_BACKWARD(dy, *ctx.saved_tensors, ctx.rows, *ctx.options), None, None


def _setup_embedding_backward(ctx: Any, inputs: Any, output: object) -> None:
    _, indices, ctx.rows, *ctx.options = inputs
    ctx.save_for_backward(indices)


def _embedding_second(ctx: Any, upstream: torch.Tensor) -> object:
    (indices,), (padding, scaled) = ctx.saved_tensors, ctx.options
    rows = torch.nn.functional.embedding(indices, upstream)
    if scaled:
        ones = torch.ones_like(indices, dtype=upstream.dtype)
        count = torch.zeros(ctx.rows, dtype=upstream.dtype, device=upstream.device)
        rows = rows / count.index_add(0, indices.reshape(-1).long(), ones.reshape(-1))[indices.long()].unsqueeze(-1)
    return torch.where((indices == padding).unsqueeze(-1), 0.0, rows), None, None, None, None


differentiate(EMBEDDING, _setup_embedding, _embedding_gradient)
differentiate(_EMBEDDING_BACKWARD, _setup_embedding_backward, _embedding_second)


# -- norms of many tensors -----------------------------------------------------------------------------
_PARTS: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_MOST_PARTS = 32


def _table(tensors: list[torch.Tensor]) -> tensor_norm.Table:
    """Where the tensors lie; their addresses are on the device already if they lay there lately.

    Only addresses are kept, not tensors: gradients that are set to None give their memory back.
    """
    ordered = [x.contiguous() for x in tensors]
    key = tuple((x.data_ptr(), x.numel(), x.dtype, x.get_device()) for x in ordered)
    if key in _PARTS:
        _PARTS.move_to_end(key)
        return tensor_norm.Table(ordered, _PARTS[key])
    made = tensor_norm.table(ordered)
    _PARTS[key] = made.parts
    if len(_PARTS) > _MOST_PARTS:
        _PARTS.popitem(last=False)
    return made


def _tensor_norm(tensors: list[torch.Tensor], order: float) -> torch.Tensor:
    run = or_reference(
        "tensor_norm",
        lambda: tensor_norm.norm(_table(tensors), order=order),
        lambda: tensor_norm.reference(tensors, order=order),
    )
    return run()  # type: ignore[no-any-return]  # launchers


def _clip_factor(tensors: list[torch.Tensor], most: float, order: float) -> tuple[torch.Tensor, torch.Tensor]:
    def plain() -> tuple[torch.Tensor, torch.Tensor]:
        found = tensor_norm.reference(tensors, order=order)
        return found, (most / (found + 1e-6)).clamp(max=1.0)

    run = or_reference("clip_factor", lambda: tensor_norm.clip_factor(_table(tensors), most, order=order), plain)
    return run()  # type: ignore[no-any-return]  # launchers


def _fake_norm(tensors: list[torch.Tensor], *_: object) -> torch.Tensor:
    first = next((x for x in tensors if x.numel()), None)
    device = tensors[0].device if tensors else torch.device("cpu")
    return torch.empty((), dtype=torch.float32 if first is None else wide_type(first.dtype), device=device)


TENSOR_NORM = define("tensor_norm(Tensor[] tensors, float order) -> Tensor", _tensor_norm, _fake_norm)
CLIP_FACTOR = define(
    "clip_factor(Tensor[] tensors, float most, float order) -> (Tensor, Tensor)",
    _clip_factor,
    lambda tensors, *_: (_fake_norm(tensors), _fake_norm(tensors)),
)


def _setup_norm(ctx: Any, inputs: Any, output: object) -> None:
    tensors, ctx.order = inputs
    ctx.save_for_backward(*tensors)


def _norm_gradient(ctx: Any, dy: torch.Tensor) -> object:
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [leaf(x) for x in ctx.saved_tensors]
        # of norms: with an order that is a float they have derivatives at 0 too
        norms = [torch.linalg.vector_norm(x.to(dy.dtype), ctx.order) for x in leaves if x.numel()]
        if not norms:
            return [torch.zeros_like(x) for x in leaves], None
        found = torch.linalg.vector_norm(torch.stack(norms), ctx.order)
        return list(torch.autograd.grad(found, leaves, dy, create_graph=again, allow_unused=True)), None


differentiate(TENSOR_NORM, _setup_norm, _norm_gradient)


# -- functions -----------------------------------------------------------------------------------------
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
        return torch.nn.functional.embedding(
            input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise KernelArgumentError(
            "embedding: padding_idx is no row of the table",
            given=f"padding_idx {padding_idx}, {describe({'weight': weight})}",
            expected=f"from {-rows} to {rows - 1}, or None",
            mend="pass the row that stands for padding",
        )
    padding = -1 if padding_idx is None else padding_idx % rows
    found: torch.Tensor = torch.ops.burn_kernels.embedding(input, weight, padding, scale_grad_by_freq)
    return found


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
    found, _ = _norm_and_factor("get_total_norm", tensors, norm_type, None, error_if_nonfinite)
    return found


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
        found, factor = _norm_and_factor("clip_grad_norm_", grads, norm_type, float(max_norm), error_if_nonfinite)
        assert factor is not None
        for device in dict.fromkeys(grad.device for grad in grads):
            torch._foreach_mul_([grad for grad in grads if grad.device == device], factor.to(device))
    return found


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
    op: str,
    tensors: torch.Tensor | Iterable[torch.Tensor],
    order: float,
    most: float | None,
    finite: bool,
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
        found = torch.nn.utils.get_total_norm(listed, order)
        factor = None if most is None else (most / (found + 1e-6)).clamp(max=1.0)
    elif most is None or not most > 0.0:  # a limit of 0 makes all gradients 0
        found = ops.tensor_norm(listed, order)
        factor = None if most is None else (most / (found + 1e-6)).clamp(max=1.0)
    else:
        found, factor = ops.clip_factor(listed, most, order)
    if finite and not bool(torch.isfinite(found)):
        raise KernelArgumentError(
            f"{op}: the norm is not finite",
            given=f"{found.item()} of {len(listed)} tensors",
            expected="finite gradients, as error_if_nonfinite asks",
            mend="look for the NaN with burn_kernels.torch.check, or leave error_if_nonfinite out",
        )
    return found, factor
