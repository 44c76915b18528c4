"""Cross entropy after a linear layer as an operator of PyTorch: its forward may compute the gradients too."""

from __future__ import annotations

import functools
from typing import Any

import torch

from burn_kernels import linear_cross_entropy
from burn_kernels.cross_entropy import OPTIONS
from burn_kernels.cross_entropy.references import twin
from burn_kernels.launch import wide_type
from burn_kernels.operators import like, nothing
from burn_kernels.torch.defining import define, differentiate, or_reference, present, second

__all__: list[str] = []

_NAMES = ("weight", "reduction", "smoothing", "ignore_index", "z_loss")


def _options(values: Any) -> dict[str, Any]:
    """The options of a loss by their names, in the order in which operators take them."""
    return dict(zip(_NAMES, values, strict=True))


_KINDS = {"": None, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _linear_cross_entropy(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, targets: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    *values, gradients, accumulate = rest
    options = _options(values)
    if gradients:
        more = {"accumulate": _KINDS[accumulate]}
        run = or_reference(
            "linear_cross_entropy", linear_cross_entropy.forward_with_gradient, _plain_linear_with_gradient
        )
        loss, dx, dw, db = run(x, w, targets, b, **options, **more)
        return loss, dx, dw, present("linear_cross_entropy", b, db, x)
    run = or_reference("linear_cross_entropy", linear_cross_entropy.forward, linear_cross_entropy.reference)
    return run(x, w, targets, b, **options), nothing(x), nothing(x), nothing(x)


def _plain_linear_with_gradient(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, b: torch.Tensor | None, accumulate: object, **options: Any
) -> tuple[object, ...]:
    loss = linear_cross_entropy.reference(x, w, targets, b, **options)
    return loss, *linear_cross_entropy.reference_backward(torch.ones_like(loss), x, w, targets, b, **options)


def _linear_cross_entropy_backward(
    dloss: torch.Tensor, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, targets: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    *values, accumulate = rest
    run = or_reference(
        "linear_cross_entropy backward",
        functools.partial(linear_cross_entropy.backward, accumulate=_KINDS[accumulate]),
        linear_cross_entropy.reference_backward,
    )
    dx, dw, db = run(dloss, x, w, targets, b, **_options(values))
    return dx.contiguous(), dw.contiguous(), present("linear_cross_entropy backward", b, db, x)


(_OPERATOR,) = linear_cross_entropy.SPEC.operators
LINEAR_CROSS_ENTROPY = define(_OPERATOR.schema, _linear_cross_entropy, _OPERATOR.fake)
_LINEAR_CROSS_ENTROPY_BACKWARD = define(
    f"linear_cross_entropy_backward(Tensor dloss, Tensor x, Tensor w, Tensor? b, Tensor targets, {OPTIONS},"
    " str accumulate) -> (Tensor, Tensor, Tensor)",
    _linear_cross_entropy_backward,
    lambda dloss, x, w, b, *_: (like(x), like(w), nothing(x) if b is None else like(b)),
)


def _setup_linear(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, targets, weight, *options, gradients, accumulate = inputs
    ctx.options, ctx.accumulate, ctx.gradients, ctx.bias = options, accumulate, gradients, b is not None
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    # the inputs too, for a second derivative; of what is alive anyway this keeps no more
    ctx.save_for_backward(x, w, b, targets, weight, *(output[1:] if gradients else ()))


def _linear_gradient(ctx: Any, dloss: torch.Tensor | None, *_: object) -> Any:
    none = (None,) * 8
    if dloss is None:
        return None, None, None, *none
    tensors, grads = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
    if not ctx.gradients or torch.is_grad_enabled():  # a graph of the gradients is asked for
        dx, dw, db = _LINEAR_CROSS_ENTROPY_BACKWARD(dloss, *tensors, *ctx.options, ctx.accumulate)
    else:
        # what is given away and not needed again is scaled where it lies: dw may be as large as all else together.
        # Tensors of a type of its own are those of a trace, in which the operator's outputs may be outputs too
        scale = torch.mul if type(dloss) is not torch.Tensor or _keeps_graph() else torch.Tensor.mul_
        dx, dw, db = (scale(grad, dloss.to(wide_type(grad.dtype))) for grad in grads)
    return dx, dw, db if ctx.bias else None, *none


def _keeps_graph() -> bool:
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return ask is None or bool(ask())


def _setup_linear_backward(ctx: Any, inputs: Any, output: object) -> None:
    *tensors, reduction, smoothing, ignore_index, z_loss, _ = inputs
    ctx.options = reduction, smoothing, ignore_index, z_loss
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _linear_second(ctx: Any, *upstream: torch.Tensor | None) -> object:
    dloss, x, w, b, targets, weight = ctx.saved_tensors
    options = _options((weight, *ctx.options))

    def loss(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return twin(torch.nn.functional.linear(x, w, b), targets, **options)

    return *second(loss, dloss, (x, w, b), upstream), *(None,) * 7


differentiate(LINEAR_CROSS_ENTROPY, _setup_linear, _linear_gradient)
differentiate(_LINEAR_CROSS_ENTROPY_BACKWARD, _setup_linear_backward, _linear_second)
