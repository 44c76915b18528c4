"""The linear layer with an activation as an operator of PyTorch: `torch.ops.burn_kernels.linear`.

As operators are (`burn_kernels.torch.defining`): a fake implementation, a gradient that is one too, and a gradient
of that through plain torch.  `functional.linear` casts to autocast's type, as torch's own does.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from burn_kernels import matmul
from burn_kernels.matmul.references import twin
from burn_kernels.operators import like, nothing
from burn_kernels.torch.defining import define, differentiate, or_reference, second

__all__ = ["LINEAR"]


def _linear(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    residual: torch.Tensor | None,
    kind: str,
    gradients: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    if gradients:
        y, kept = or_reference("linear", matmul.forward_kept, matmul.reference_kept)(x, w, b, residual, kind=kind)
        held = matmul.keeps(kind, residual=residual is not None) == "z"
        return y.contiguous(), kept.contiguous() if held else nothing(x)
    y = or_reference("linear", matmul.forward, matmul.reference)(x, w, b, residual, kind=kind)
    return y.contiguous(), nothing(x)


def _backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    kept: torch.Tensor | None,
    kind: str,
    needs: list[bool],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    run = or_reference(
        "linear backward",
        functools.partial(matmul.backward, needs=(needs[0], needs[1])),
        matmul.reference_backward,
    )
    grads = run(dy, x, w, kept, kind=kind, bias=b is not None and needs[2])
    wanted = zip(grads, needs, strict=True)
    dx, dw, db = (nothing(x) if grad is None or not needed else grad.contiguous() for grad, needed in wanted)
    return dx, dw, db


(_OPERATOR,) = matmul.SPEC.operators
LINEAR = define(_OPERATOR.schema, _linear, _OPERATOR.fake)
_LINEAR_BACKWARD = define(
    "linear_backward(Tensor dy, Tensor x, Tensor w, Tensor? b, Tensor? kept, str kind, bool[] needs)"
    " -> (Tensor, Tensor, Tensor)",
    _backward,
    lambda dy, x, w, b, kept, kind, needs: tuple(
        like(t) if t is not None and needed else nothing(x) for t, needed in zip((x, w, b), needs, strict=True)
    ),
)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, residual, ctx.kind, gradients = inputs
    y, z = output
    ctx.mark_non_differentiable(z)
    ctx.set_materialize_grads(False)
    keep = matmul.keeps(ctx.kind, residual=residual is not None)
    ctx.held = gradients or keep != "z"
    ctx.save_for_backward(x, w, b, {"": None, "out": y, "z": z if gradients else None}[keep])


def _gradient(ctx: Any, dy: torch.Tensor | None, _: object) -> Any:
    if dy is None:
        return (None,) * 6
    x, w, b, kept = ctx.saved_tensors
    if not ctx.held:  # the caller said that no gradient would be asked for: z is computed again
        kept = LINEAR(x.detach(), w.detach(), None if b is None else b.detach(), None, "none", False)[0]
    needs = [bool(ctx.needs_input_grad[at]) for at in range(3)]
    grads = _LINEAR_BACKWARD(dy, x, w, b, kept, ctx.kind, needs) if any(needs) else (None,) * 3
    dx, dw, db = (grad if needed else None for grad, needed in zip(grads, needs, strict=True))
    return dx, dw, db, dy if ctx.needs_input_grad[3] else None, None, None


def _setup_backward(ctx: Any, inputs: Any, output: object) -> None:
    *tensors, _, ctx.kind, ctx.needs = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _second_order(ctx: Any, *upstream: torch.Tensor | None) -> object:
    dy, x, w, b = ctx.saved_tensors
    kind, asked = ctx.kind, [u if needed else None for u, needed in zip(upstream, ctx.needs, strict=True)]

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return twin(x, w, b, kind=kind)

    return *second(layer, dy, (x, w, b), asked), None, None, None


differentiate(LINEAR, _setup, _gradient)
differentiate(_LINEAR_BACKWARD, _setup_backward, _second_order)
