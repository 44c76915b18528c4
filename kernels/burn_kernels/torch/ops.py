"""Every kernel as an operator of PyTorch: `torch.ops.burn_kernels.<name>`.

Each has a fake implementation (so that torch.compile and torch.export trace it as one call), a gradient, which is an
operator too, and where torch's own operator has one an autocast rule.  The gradient of a gradient is taken through
plain torch.  On a CPU, and past the limit of a kernel, the reference computes; the second is counted and said.

Operators return contiguous tensors of their own, never a view of an input, and write to no input.  The steps of
optimizers, which do, are in `burn_kernels.torch.steps`.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from burn_kernels import cross_entropy, dropout, glu, linear_cross_entropy, norm, softmax
from burn_kernels.errors import KernelDeviceError, KernelLimitError, explain
from burn_kernels.launch import describe, wide_type

__all__ = ["fallbacks"]

NAMESPACE = "burn_kernels"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


# -- fallbacks -----------------------------------------------------------------------------------------
_FALLBACKS: Counter[str] = Counter()


def fallbacks() -> dict[str, int]:
    """How often a call went to plain torch though its tensors lie where kernels run, by operation and reason."""
    return dict(_FALLBACKS)


def note_fallback(op: str, why: str) -> None:
    """Counts a fallback, and warns of the first of its kind; what torch.compile traces is not a call to count."""
    if torch.compiler.is_compiling():
        return
    reason = f"{op}: {why}"
    _FALLBACKS[reason] += 1
    if _FALLBACKS[reason] == 1:
        warnings.warn(f"burn_kernels: plain torch computes {reason}", RuntimeWarning, stacklevel=3)


def or_reference(op: str, kernel: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """The launcher; past its limit the reference, counted and said."""

    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return kernel(*arguments, **options)
        except KernelLimitError as error:
            note_fallback(op, str(error).splitlines()[1].strip().removeprefix("given:").strip())
            return reference(*arguments, **options)

    return run


# -- definition ----------------------------------------------------------------------------------------
def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Defines an operator for all devices; `fake` makes results that have a shape and hold nothing."""
    name = _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,)).split("::")[-1]
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _differentiate(op: Any, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(op._name, backward, setup_context=setup, lib=_LIBRARY)


def _in_float32(op: Any, *devices: str) -> None:
    # as torch's own: these sum many numbers, and autocast hands them over in float32, on a CPU the losses alone
    for device in devices:
        torch.library.register_autocast(op._name, device, torch.float32, lib=_LIBRARY)


def _like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=x.dtype, device=x.device)


def _present(op: str, given: torch.Tensor | None, grad: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """The gradient of an input that may be absent, an empty tensor where it is; one that is missing is a fault."""
    if given is None:
        return _nothing(x)
    if grad is None:
        raise RuntimeError(f"{op}: the launcher returned no gradient for an input that has one")
    return grad.contiguous()


def _second(
    twin: Callable[..., torch.Tensor],
    dy: torch.Tensor,
    inputs: Sequence[torch.Tensor | None],
    upstream: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """The gradients of dy and the inputs from those of the inputs' gradients, through plain torch."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        dy = dy if dy.requires_grad else dy.detach().requires_grad_()
        leaves = [x if x is None or x.requires_grad else x.detach().requires_grad_() for x in inputs]
        there = [x for x in leaves if x is not None]
        y = twin(*leaves)
        grads = iter(torch.autograd.grad(y, there, dy.to(y.dtype), create_graph=True))
        firsts = [None if x is None else next(grads) for x in leaves]
        pairs = [(f, u) for f, u in zip(firsts, upstream, strict=True) if f is not None and u is not None]
        pairs = [(f, u) for f, u in pairs if f.requires_grad]
        if not pairs:
            return [None] * (1 + len(leaves))
        outputs, weights = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outputs, [dy, *there], weights, create_graph=again, allow_unused=True))
        return [next(found), *(None if x is None else next(found) for x in leaves)]


# -- softmax -------------------------------------------------------------------------------------------
def _define_softmax(name: str, forward: Any, backward: Any, reference: Any, reference_backward: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return or_reference(name, forward, reference)(x).contiguous()  # type: ignore[no-any-return]  # launchers

    def run_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return or_reference(f"{name} backward", backward, reference_backward)(dy, y).contiguous()  # type: ignore[no-any-return]  # launchers

    op = define(f"{name}(Tensor x) -> Tensor", run, _like)
    back = define(f"{name}_backward(Tensor dy, Tensor y) -> Tensor", run_backward, lambda dy, y: _like(y))

    def setup(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    def setup_backward(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def second(ctx: Any, upstream: torch.Tensor) -> Any:
        dy, y = ctx.saved_tensors
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in (dy, y)]
            return torch.autograd.grad(reference_backward(*leaves), leaves, upstream, create_graph=again)

    _differentiate(op, setup, lambda ctx, dy: back(dy, *ctx.saved_tensors))
    _differentiate(back, setup_backward, second)
    _in_float32(op, "cuda")


_define_softmax("softmax", softmax.forward, softmax.backward, softmax.reference, softmax.reference_backward)
_define_softmax(
    "log_softmax", softmax.log_forward, softmax.log_backward, softmax.log_reference, softmax.log_reference_backward
)


# -- norms ---------------------------------------------------------------------------------------------
def _statistics(x: torch.Tensor) -> torch.Tensor:
    return torch.empty((*x.shape[:-1], 1), dtype=wide_type(x.dtype), device=x.device)


def _layer_norm(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None, eps: float) -> Any:
    y, mean, rstd = or_reference("layer_norm", norm.layer_norm, norm.layer_norm_reference)(x, w, b, eps)
    return y.contiguous(), mean.contiguous(), rstd.contiguous()


def _layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor | None,
    b: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    name = "layer_norm backward"
    run = or_reference(name, norm.layer_norm_backward, norm.layer_norm_reference_backward)
    dx, dw, db = run(dy, x, w, mean, rstd, bias=b is not None)
    return dx.contiguous(), _present(name, w, dw, x), _present(name, b, db, x)


def _rms_norm(x: torch.Tensor, w: torch.Tensor | None, eps: float) -> Any:
    y, rstd = or_reference("rms_norm", norm.rms_norm, norm.rms_norm_reference)(x, w, eps)
    return y.contiguous(), rstd.contiguous()


def _rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor | None, rstd: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    name = "rms_norm backward"
    dx, dw = or_reference(name, norm.rms_norm_backward, norm.rms_norm_reference_backward)(dy, x, w, rstd)
    return dx.contiguous(), _present(name, w, dw, x)


LAYER_NORM = define(
    "layer_norm(Tensor x, Tensor? w, Tensor? b, float eps) -> (Tensor, Tensor, Tensor)",
    _layer_norm,
    lambda x, w, b, eps: (_like(x), _statistics(x), _statistics(x)),
)
_LAYER_NORM_BACKWARD = define(
    "layer_norm_backward(Tensor dy, Tensor x, Tensor? w, Tensor? b, Tensor mean, Tensor rstd, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    _layer_norm_backward,
    lambda dy, x, w, b, mean, rstd, eps: (
        _like(x),
        _nothing(x) if w is None else _like(w),
        _nothing(x) if b is None else _like(b),
    ),
)
RMS_NORM = define(
    "rms_norm(Tensor x, Tensor? w, float eps) -> (Tensor, Tensor)",
    _rms_norm,
    lambda x, w, eps: (_like(x), _statistics(x)),
)
_RMS_NORM_BACKWARD = define(
    "rms_norm_backward(Tensor dy, Tensor x, Tensor? w, Tensor rstd, float eps) -> (Tensor, Tensor)",
    _rms_norm_backward,
    lambda dy, x, w, rstd, eps: (_like(x), _nothing(x) if w is None else _like(w)),
)


def _setup_norm(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.eps = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output[1:])


def _layer_norm_gradient(ctx: Any, dy: torch.Tensor | None, *_: Any) -> Any:
    x, w, b, mean, rstd = ctx.saved_tensors
    if dy is None:
        return None, None, None, None
    dx, dw, db = _LAYER_NORM_BACKWARD(dy, x, w, b, mean, rstd, ctx.eps)
    return dx, None if w is None else dw, None if b is None else db, None


def _rms_norm_gradient(ctx: Any, dy: torch.Tensor | None, *_: Any) -> Any:
    x, w, rstd = ctx.saved_tensors
    if dy is None:
        return None, None, None
    dx, dw = _RMS_NORM_BACKWARD(dy, x, w, rstd, ctx.eps)
    return dx, None if w is None else dw, None


def _setup_norm_backward(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.eps = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _layer_norm_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, x, w, b, *_ = ctx.saved_tensors
    eps = ctx.eps

    def twin(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps)

    return *_second(twin, dy, (x, w, b), upstream), None, None, None


def _rms_norm_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, x, w, _ = ctx.saved_tensors
    eps = ctx.eps

    def twin(x: torch.Tensor, w: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], w, eps)

    return *_second(twin, dy, (x, w), upstream), None, None


_differentiate(LAYER_NORM, _setup_norm, _layer_norm_gradient)
_differentiate(RMS_NORM, _setup_norm, _rms_norm_gradient)
_differentiate(_LAYER_NORM_BACKWARD, _setup_norm_backward, _layer_norm_second)
_differentiate(_RMS_NORM_BACKWARD, _setup_norm_backward, _rms_norm_second)
_in_float32(LAYER_NORM, "cuda")
_in_float32(RMS_NORM, "cuda")


# -- cross entropy -------------------------------------------------------------------------------------
def _cross_entropy(x: torch.Tensor, targets: torch.Tensor, reduction: str, smoothing: float, ignore_index: int) -> Any:
    run = or_reference("cross_entropy", cross_entropy.forward, cross_entropy.reference)
    return run(x, targets, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index)


def _cross_entropy_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    targets: torch.Tensor,
    lse: torch.Tensor,
    reduction: str,
    smoothing: float,
    ignore_index: int,
) -> torch.Tensor:
    run = or_reference("cross_entropy backward", cross_entropy.backward, cross_entropy.reference_backward)
    dx = run(dloss, x, targets, lse, reduction=reduction, smoothing=smoothing, ignore_index=ignore_index)
    return dx.contiguous()  # type: ignore[no-any-return]  # launchers


def _losses(x: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
    return torch.empty(targets.shape if reduction == "none" else (), dtype=wide_type(x.dtype), device=x.device)


CROSS_ENTROPY = define(
    "cross_entropy(Tensor x, Tensor targets, str reduction, float smoothing, int ignore_index) -> (Tensor, Tensor)",
    _cross_entropy,
    lambda x, targets, reduction, smoothing, ignore_index: (
        _losses(x, targets, reduction),
        torch.empty(x.shape[:1], dtype=cross_entropy.lse_type(x.dtype), device=x.device),
    ),
)
_CROSS_ENTROPY_BACKWARD = define(
    "cross_entropy_backward(Tensor dloss, Tensor x, Tensor targets, Tensor lse, str reduction, float smoothing,"
    " int ignore_index) -> Tensor",
    _cross_entropy_backward,
    lambda dloss, x, targets, lse, reduction, smoothing, ignore_index: _like(x),
)


def _setup_cross_entropy(ctx: Any, inputs: Any, output: Any) -> None:
    x, targets, *ctx.options = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, targets, output[1])


def _cross_entropy_gradient(ctx: Any, dloss: torch.Tensor | None, _: Any) -> Any:
    if dloss is None:
        return None, None, None, None, None
    return _CROSS_ENTROPY_BACKWARD(dloss, *ctx.saved_tensors, *ctx.options), None, None, None, None


def _setup_cross_entropy_backward(ctx: Any, inputs: Any, output: Any) -> None:
    dloss, x, targets, _, *ctx.options = inputs
    ctx.save_for_backward(dloss, x, targets)


def _plain_cross_entropy(
    x: torch.Tensor, targets: torch.Tensor, reduction: str, smoothing: float, ignore_index: int
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(
        x.to(wide_type(x.dtype)),
        targets.long(),
        reduction=reduction,
        label_smoothing=smoothing,
        ignore_index=ignore_index,
    )


def _cross_entropy_second(ctx: Any, upstream: torch.Tensor) -> Any:
    dloss, x, targets = ctx.saved_tensors
    options = ctx.options
    ddloss, dx = _second(lambda x: _plain_cross_entropy(x, targets, *options), dloss, (x,), (upstream,))
    return ddloss, dx, None, None, None, None, None


_differentiate(CROSS_ENTROPY, _setup_cross_entropy, _cross_entropy_gradient)
_differentiate(_CROSS_ENTROPY_BACKWARD, _setup_cross_entropy_backward, _cross_entropy_second)
_in_float32(CROSS_ENTROPY, "cuda", "cpu")


# -- linear and cross entropy --------------------------------------------------------------------------
_KINDS = {"": None, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _linear_cross_entropy(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    targets: torch.Tensor,
    reduction: str,
    smoothing: float,
    ignore_index: int,
    gradients: bool,
    accumulate: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    options: dict[str, Any] = {"reduction": reduction, "smoothing": smoothing, "ignore_index": ignore_index}
    if gradients:
        more = {"accumulate": _KINDS[accumulate]}
        run = or_reference(
            "linear_cross_entropy", linear_cross_entropy.forward_with_gradient, _plain_linear_with_gradient
        )
        loss, dx, dw, db = run(x, w, targets, b, **options, **more)
        return loss, dx, dw, _present("linear_cross_entropy", b, db, x)
    run = or_reference("linear_cross_entropy", linear_cross_entropy.forward, linear_cross_entropy.reference)
    return run(x, w, targets, b, **options), _nothing(x), _nothing(x), _nothing(x)


def _plain_linear_with_gradient(
    x: torch.Tensor, w: torch.Tensor, targets: torch.Tensor, b: torch.Tensor | None, accumulate: Any, **options: Any
) -> tuple[Any, ...]:
    loss = linear_cross_entropy.reference(x, w, targets, b, **options)
    return loss, *linear_cross_entropy.reference_backward(torch.ones_like(loss), x, w, targets, b, **options)


def _fake_linear(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, targets: torch.Tensor, reduction: str, *rest: Any
) -> tuple[torch.Tensor, ...]:
    loss = _losses(x, targets, reduction)
    if not rest[2]:
        return loss, _nothing(x), _nothing(x), _nothing(x)
    return loss, _like(x), _like(w), _nothing(x) if b is None else _like(b)


def _linear_cross_entropy_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor | None,
    targets: torch.Tensor,
    reduction: str,
    smoothing: float,
    ignore_index: int,
    accumulate: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    options: dict[str, Any] = {"reduction": reduction, "smoothing": smoothing, "ignore_index": ignore_index}
    run = or_reference(
        "linear_cross_entropy backward",
        functools.partial(linear_cross_entropy.backward, accumulate=_KINDS[accumulate]),
        linear_cross_entropy.reference_backward,
    )
    dx, dw, db = run(dloss, x, w, targets, b, **options)
    return dx.contiguous(), dw.contiguous(), _present("linear_cross_entropy backward", b, db, x)


LINEAR_CROSS_ENTROPY = define(
    "linear_cross_entropy(Tensor x, Tensor w, Tensor? b, Tensor targets, str reduction, float smoothing,"
    " int ignore_index, bool gradients, str accumulate) -> (Tensor, Tensor, Tensor, Tensor)",
    _linear_cross_entropy,
    _fake_linear,
)
_LINEAR_CROSS_ENTROPY_BACKWARD = define(
    "linear_cross_entropy_backward(Tensor dloss, Tensor x, Tensor w, Tensor? b, Tensor targets, str reduction,"
    " float smoothing, int ignore_index, str accumulate) -> (Tensor, Tensor, Tensor)",
    _linear_cross_entropy_backward,
    lambda dloss, x, w, b, targets, *rest: (_like(x), _like(w), _nothing(x) if b is None else _like(b)),
)


def _setup_linear(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, b, targets, *options, gradients, accumulate = inputs
    ctx.options, ctx.accumulate, ctx.gradients, ctx.bias = options, accumulate, gradients, b is not None
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    # the inputs too, for a second derivative; of what is alive anyway this keeps no more
    ctx.save_for_backward(x, w, b, targets, *(output[1:] if gradients else ()))


def _linear_gradient(ctx: Any, dloss: torch.Tensor | None, *_: Any) -> Any:
    none = (None,) * 6
    if dloss is None:
        return None, None, None, *none
    x, w, b, targets, *grads = ctx.saved_tensors
    if not ctx.gradients or torch.is_grad_enabled():  # a graph of the gradients is asked for
        dx, dw, db = _LINEAR_CROSS_ENTROPY_BACKWARD(dloss, x, w, b, targets, *ctx.options, ctx.accumulate)
    else:
        # what is given away and not needed again is scaled where it lies: dw may be as large as all else together.
        # Tensors of a type of its own are those of a trace, in which the operator's outputs may be outputs too
        scale = torch.mul if type(dloss) is not torch.Tensor or _keeps_graph() else torch.Tensor.mul_
        dx, dw, db = (scale(grad, dloss.to(wide_type(grad.dtype))) for grad in grads)
    return dx, dw, db if ctx.bias else None, *none


def _keeps_graph() -> bool:
    ask = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return ask is None or bool(ask())


def _setup_linear_backward(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, reduction, smoothing, ignore_index, _ = inputs
    ctx.options = reduction, smoothing, ignore_index
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _linear_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dloss, x, w, b, targets = ctx.saved_tensors
    options = ctx.options

    def twin(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        return _plain_cross_entropy(torch.nn.functional.linear(x, w, b), targets, *options)

    return *_second(twin, dloss, (x, w, b), upstream), None, None, None, None, None


_differentiate(LINEAR_CROSS_ENTROPY, _setup_linear, _linear_gradient)
_differentiate(_LINEAR_CROSS_ENTROPY_BACKWARD, _setup_linear_backward, _linear_second)


# -- gated units ---------------------------------------------------------------------------------------
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "relu": torch.nn.functional.relu,
}


def _glu(gate: torch.Tensor, up: torch.Tensor, kind: str) -> torch.Tensor:
    return or_reference("glu", glu.forward, glu.reference)(gate, up, kind=kind).contiguous()  # type: ignore[no-any-return]  # launchers


def _glu_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    dgate, dup = or_reference("glu backward", glu.backward, glu.reference_backward)(dy, gate, up, kind=kind)
    return dgate.contiguous(), dup.contiguous()


GLU = define("glu(Tensor gate, Tensor up, str kind) -> Tensor", _glu, lambda gate, up, kind: _like(gate))
_GLU_BACKWARD = define(
    "glu_backward(Tensor dy, Tensor gate, Tensor up, str kind) -> (Tensor, Tensor)",
    _glu_backward,
    lambda dy, gate, up, kind: (_like(gate), _like(up)),
)


def _setup_glu(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.kind = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _glu_gradient(ctx: Any, dy: torch.Tensor | None) -> Any:
    if dy is None:
        return None, None, None
    return *_GLU_BACKWARD(dy, *ctx.saved_tensors, ctx.kind), None


def _glu_second(ctx: Any, *upstream: torch.Tensor | None) -> Any:
    dy, gate, up = ctx.saved_tensors
    activate = _ACTIVATIONS[ctx.kind]
    return *_second(lambda gate, up: activate(gate) * up, dy, (gate, up), upstream), None


_differentiate(GLU, _setup_glu, _glu_gradient)
_differentiate(_GLU_BACKWARD, _setup_glu, _glu_second)


# -- dropout -------------------------------------------------------------------------------------------
def _dropout(x: torch.Tensor, prob: float, seed: torch.Tensor) -> torch.Tensor:
    if seed.device.type != "cpu":
        raise KernelDeviceError(
            explain(
                "dropout: the seed lies on a device, and reading it would wait for that",
                given=describe({"seed": seed}),
                expected="two int64 numbers, key and stream, on the CPU",
                mend="seed.cpu(), once, where it is made",
            )
        )
    key, stream = seed.tolist()
    return or_reference("dropout", dropout.forward, dropout.reference)(x, prob, key, stream).contiguous()  # type: ignore[no-any-return]  # launchers


DROPOUT = define("dropout(Tensor x, float prob, Tensor seed) -> Tensor", _dropout, lambda x, prob, seed: _like(x))


def _setup_dropout(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.prob, seed = inputs
    ctx.save_for_backward(seed)


_differentiate(DROPOUT, _setup_dropout, lambda ctx, dy: (DROPOUT(dy, ctx.prob, *ctx.saved_tensors), None, None))
