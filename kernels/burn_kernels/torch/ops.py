"""Softmax, norms, activations, gated units and dropout as operators of PyTorch; `defining` says what holds for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from burn_kernels import activation, dropout, glu, norm, softmax
from burn_kernels.activation import TWINS
from burn_kernels.errors import KernelDeviceError, KernelShapeError
from burn_kernels.launch import describe, wide_type
from burn_kernels.torch.defining import (
    Operator,
    define,
    differentiate,
    in_float32,
    leaf,
    like,
    operator,
    or_reference,
    second,
)

__all__: list[str] = []


# -- what functions share ------------------------------------------------------------------------------
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
    """Whether the element types differ, and autocast will not make them alike."""
    if x.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return False  # all are cast to float32
    return any(other is not None and other.dtype != x.dtype for other in others)


def least_eps(x: torch.Tensor) -> float:
    """What torch's RMS norm adds where it is not told."""
    return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps


def new_seed() -> torch.Tensor:
    """Key and stream of a dropout, drawn from torch's generator of the CPU."""
    # an operator of torch's own: those are the only ones of which torch.compile never makes two calls one
    return torch.randint(2**63 - 1, (2,), dtype=torch.int64, device="cpu")


# -- softmax -------------------------------------------------------------------------------------------
def _define_softmax(name: str, forward: Any, backward: Any, reference: Any, reference_backward: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return or_reference(name, forward, reference)(x).contiguous()  # type: ignore[no-any-return]  # launchers

    def run_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return or_reference(f"{name} backward", backward, reference_backward)(dy, y).contiguous()  # type: ignore[no-any-return]  # launchers

    op = define(f"{name}(Tensor x) -> Tensor", run, like)
    back = define(f"{name}_backward(Tensor dy, Tensor y) -> Tensor", run_backward, lambda dy, y: like(y))

    def setup(ctx: Any, inputs: object, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    def setup_backward(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def again(ctx: Any, upstream: torch.Tensor) -> Any:
        dy, y = ctx.saved_tensors
        graph = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = [leaf(x) for x in (dy, y)]
            return torch.autograd.grad(reference_backward(*leaves), leaves, upstream, create_graph=graph)

    differentiate(op, setup, lambda ctx, dy: back(dy, *ctx.saved_tensors))
    differentiate(back, setup_backward, again)
    in_float32(op, "cuda")


_define_softmax("softmax", softmax.forward, softmax.backward, softmax.reference, softmax.reference_backward)
_define_softmax(
    "log_softmax", softmax.log_forward, softmax.log_backward, softmax.log_reference, softmax.log_reference_backward
)


# -- norms ---------------------------------------------------------------------------------------------
def _statistics(x: torch.Tensor) -> torch.Tensor:
    return torch.empty((*x.shape[:-1], 1), dtype=wide_type(x.dtype), device=x.device)


LAYER_NORM = operator(
    Operator(
        schema="layer_norm(Tensor x, Tensor? w, Tensor? b, float eps) -> (Tensor, Tensor, Tensor)",
        kernel=(norm.layer_norm, norm.layer_norm_reference),
        fake=lambda x, w, b, eps: (like(x), _statistics(x), _statistics(x)),
        results="y mean rstd",
        gradients="x w b",
        saved="x w b mean rstd eps",
        kernel_backward=(norm.layer_norm_backward, norm.layer_norm_reference_backward),
        call_backward=lambda run, dy, x, w, b, mean, rstd, eps: run(dy, x, w, mean, rstd, bias=b is not None),
        twin=lambda x, w, b, mean, rstd, eps: torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, eps),
    )
)
RMS_NORM = operator(
    Operator(
        schema="rms_norm(Tensor x, Tensor? w, float eps) -> (Tensor, Tensor)",
        kernel=(norm.rms_norm, norm.rms_norm_reference),
        fake=lambda x, w, eps: (like(x), _statistics(x)),
        results="y rstd",
        gradients="x w",
        saved="x w rstd eps",
        kernel_backward=(norm.rms_norm_backward, norm.rms_norm_reference_backward),
        call_backward=lambda run, dy, x, w, rstd, eps: run(dy, x, w, rstd),
        twin=lambda x, w, rstd, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], w, eps),
    )
)
in_float32(LAYER_NORM, "cuda")
in_float32(RMS_NORM, "cuda")


# -- activations ---------------------------------------------------------------------------------------
def _as_it_lies(x: torch.Tensor) -> torch.Tensor:
    """A result for x: its elements in the order of x where these fill their memory, else in order."""
    y = torch.empty_like(x)
    return y if y.stride() == x.stride() else like(x)


def _activation(x: torch.Tensor, kind: str) -> torch.Tensor:
    y: torch.Tensor = or_reference("activation", activation.forward, activation.reference)(x, kind=kind)
    place = _as_it_lies(x)
    return y if y.stride() == place.stride() else place.copy_(y)


def _activation_backward(dy: torch.Tensor, x: torch.Tensor, kind: str) -> torch.Tensor:
    run = or_reference("activation backward", activation.backward, activation.reference_backward)
    return run(dy, x, kind=kind).contiguous()  # type: ignore[no-any-return]  # launchers


ACTIVATION = define("activation(Tensor x, str kind) -> Tensor", _activation, lambda x, kind: _as_it_lies(x))
_ACTIVATION_BACKWARD = define(
    "activation_backward(Tensor dy, Tensor x, str kind) -> Tensor", _activation_backward, lambda dy, x, kind: like(x)
)


def _setup_activation(ctx: Any, inputs: Any, output: object) -> None:
    *tensors, ctx.kind = inputs
    ctx.save_for_backward(*tensors)


def _activation_gradient(ctx: Any, dy: torch.Tensor) -> Any:
    return _ACTIVATION_BACKWARD(dy, *ctx.saved_tensors, ctx.kind), None


def _activation_second(ctx: Any, upstream: torch.Tensor) -> object:
    dy, x = ctx.saved_tensors
    return *second(TWINS[ctx.kind], dy, (x,), (upstream,)), None


differentiate(ACTIVATION, _setup_activation, _activation_gradient)
differentiate(_ACTIVATION_BACKWARD, _setup_activation, _activation_second)


# -- gated units ---------------------------------------------------------------------------------------
GLU = operator(
    Operator(
        schema="glu(Tensor gate, Tensor up, str kind) -> Tensor",
        kernel=(glu.forward, glu.reference),
        call=lambda run, gate, up, kind: run(gate, up, kind=kind),
        fake=lambda gate, up, kind: like(gate),
        gradients="gate up",
        saved="gate up kind",
        kernel_backward=(glu.backward, glu.reference_backward),
        call_backward=lambda run, dy, gate, up, kind: run(dy, gate, up, kind=kind),
        twin=lambda gate, up, kind: TWINS[kind](gate) * up,
    )
)


# -- dropout -------------------------------------------------------------------------------------------
def numbers_of(seed: torch.Tensor) -> tuple[int, int]:
    """Key and stream.  Raises: KernelDeviceError where reading them would wait for a device."""
    if seed.device.type != "cpu":
        raise KernelDeviceError(
            "dropout: the seed lies on a device, and reading it would wait for that",
            given=describe({"seed": seed}),
            expected="two int64 numbers, key and stream, on the CPU",
            mend="seed.cpu(), once, where it is made",
        )
    key, stream = seed.tolist()
    return key, stream


def _dropout(x: torch.Tensor, prob: float, seed: torch.Tensor) -> torch.Tensor:
    key, stream = numbers_of(seed)
    return or_reference("dropout", dropout.forward, dropout.reference)(x, prob, key, stream).contiguous()  # type: ignore[no-any-return]  # launchers


DROPOUT = define("dropout(Tensor x, float prob, Tensor seed) -> Tensor", _dropout, lambda x, prob, seed: like(x))


def _setup_dropout(ctx: Any, inputs: Any, output: object) -> None:
    _, ctx.prob, seed = inputs
    ctx.save_for_backward(seed)


differentiate(DROPOUT, _setup_dropout, lambda ctx, dy: (DROPOUT(dy, ctx.prob, *ctx.saved_tensors), None, None))
