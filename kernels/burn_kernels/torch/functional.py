"""The fused operations as functions, with the parameters of `torch.nn.functional`.

What a kernel has no form for (targets as probabilities, inputs of different types) goes to torch's own function; that
is counted and the first time said, see `fallbacks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.nn import functional as F

from burn_kernels.channel_norm.layout import PLAIN
from burn_kernels.errors import KernelArgumentError, KernelShapeError
from burn_kernels.launch import describe
from burn_kernels.torch.attending import attention, attention_packed, scaled_dot_product_attention
from burn_kernels.torch.defining import note_fallback
from burn_kernels.torch.reductions import amax, amin, argmax, argmin, logsumexp, mean, sum, var
from burn_kernels.torch.residual import residual_layer_norm, residual_rms_norm
from burn_kernels.torch.rotary import rope, rope_computed
from burn_kernels.torch.shared import cast_as_products, last_axes, least_eps, mixed, new_seed
from burn_kernels.torch.tables import clip_grad_norm_, embedding, get_total_norm

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "attention",
    "attention_packed",
    "batch_norm",
    "clip_grad_norm_",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "geglu",
    "gelu",
    "get_total_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "logsumexp",
    "mean",
    "reglu",
    "relu",
    "residual_layer_norm",
    "residual_rms_norm",
    "rms_norm",
    "rope",
    "rope_computed",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "sum",
    "swiglu",
    "var",
]

_OPS = torch.ops.burn_kernels


# -- softmax -------------------------------------------------------------------------------------------
def softmax(
    input: torch.Tensor, dim: int | None = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """exp(x) / sum(exp(x)) along `dim`; without one along that which torch guesses, with its warning.

    Shapes: any -> the same.  Dtypes: any float; `dtype` casts first.  PyTorch: torch.nn.functional.softmax.
    """
    if dim is None:
        return F.softmax(input, None, _stacklevel + 1, dtype)
    return _along(_OPS.softmax, input, dim, dtype)


def log_softmax(
    input: torch.Tensor, dim: int | None = -1, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """x - log(sum(exp(x))) along `dim`; as `softmax`.  PyTorch: torch.nn.functional.log_softmax."""
    if dim is None:
        return F.log_softmax(input, None, _stacklevel + 1, dtype)
    return _along(_OPS.log_softmax, input, dim, dtype)


def _along(op: Callable[..., Any], input: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
    x = input if dtype is None else input.to(dtype)
    y: torch.Tensor
    if x.dim() == 0:
        y = op(x.reshape(1)).reshape(())
    elif dim in (-1, x.dim() - 1):
        y = op(x)
    else:
        y = op(x.transpose(dim, -1)).transpose(dim, -1)
    return y


# -- norms ---------------------------------------------------------------------------------------------
def layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axes.  PyTorch: torch.nn.functional.layer_norm.

    Shapes: input (*batch, *normalized_shape) -> the same; weight, bias (*normalized_shape).
    Dtypes: one float type; under autocast on a GPU float32 comes out, as of torch's.
    """
    if mixed(input, weight, bias):
        note_fallback("layer_norm", "of different element types")
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    x, w, b = last_axes("layer_norm", input, normalized_shape, weight, bias)
    y: torch.Tensor = _OPS.layer_norm(x, w, b, eps)[0]
    return y.reshape(input.shape)


def rms_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes; shapes and types as `layer_norm`.

    Without `eps` the smallest difference from 1 of float32 (of float64 for float64).
    PyTorch: torch.nn.functional.rms_norm.
    """
    eps = least_eps(input) if eps is None else eps
    if mixed(input, weight):
        note_fallback("rms_norm", "of different element types")
        return F.rms_norm(input, normalized_shape, weight, eps)
    x, w = last_axes("rms_norm", input, normalized_shape, weight)
    y: torch.Tensor = _OPS.rms_norm(x, w, eps)[0]
    return y.reshape(input.shape)


# -- norms over channels -------------------------------------------------------------------------------
def batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str = "none",
) -> torch.Tensor:
    """Batch norm over all axes but the second, then `activation`: "none", "relu" or "silu", in the same kernels.

    In training the running statistics are moved on where they lie, as torch does; otherwise they are read.
    Shapes: input (batch, channels, *space) -> the same; the others (channels,).
    Dtypes: any float; vectors in the type of input or float32.  PyTorch: torch.nn.functional.batch_norm.
    """
    if training:
        running = (running_mean, running_var)
        y, _, _, *moved = _OPS.batch_norm(input, weight, bias, *running, momentum, eps, activation)
        for old, new in zip(running, moved, strict=True):
            if old is not None:
                old.copy_(new)
        return y  # type: ignore[no-any-return]  # an operator of torch
    if running_mean is None or running_var is None:
        raise KernelArgumentError(
            "batch_norm: no statistics",
            given=describe({"input": input, "running_mean": running_mean, "running_var": running_var}),
            expected="running_mean and running_var (channels,) where training is False",
            mend="pass both, or training=True to take the statistics of the batch",
        )
    return _OPS.batch_norm_eval(input, weight, bias, running_mean, running_var, eps, activation)  # type: ignore[no-any-return]  # an operator of torch


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: str = "none",
) -> torch.Tensor:
    """Norm over groups of channels of each image, then `activation` in the same kernels, as `batch_norm`.

    Shapes: input (batch, channels, *space) -> the same; weight, bias (channels,).
    Dtypes: any float; vectors in the type of input or float32; autocast on a GPU gives float32, as of torch's.
    PyTorch: torch.nn.functional.group_norm.
    """
    if input.dim() > 1 and num_groups > 0 and input.numel() == num_groups:
        return PLAIN[activation](F.group_norm(input, num_groups, weight, bias, eps))  # which refuses one value a group
    return _OPS.group_norm(input, weight, bias, num_groups, eps, activation)[0]  # type: ignore[no-any-return]  # an operator of torch


def instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    activation: str = "none",
) -> torch.Tensor:
    """Norm over the space of each channel of each image: a group norm of one channel a group.

    Running statistics, which instance norms rarely keep, go to torch's own.  Shapes and types as `group_norm`, without
    its autocast.  PyTorch: torch.nn.functional.instance_norm.
    """
    if running_mean is not None or running_var is not None or not use_input_stats:
        note_fallback("instance_norm", "with running statistics")
        running = (running_mean, running_var)
        return PLAIN[activation](F.instance_norm(input, *running, weight, bias, use_input_stats, momentum, eps))
    if input.dim() < 3 or math.prod(input.shape[2:]) == 1:
        return PLAIN[activation](F.instance_norm(input, None, None, weight, bias, True, momentum, eps))  # which refuses
    y: torch.Tensor = _OPS.group_norm(input, weight, bias, input.shape[1], eps, activation)[0]
    return y.to(input.dtype)


# -- convolution ---------------------------------------------------------------------------------------
def conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    relu: bool = False,
    pool: str = "none",
    window: int = 2,
    p: float = 0.0,
    seed: torch.Tensor | None = None,
) -> torch.Tensor:
    """The convolution of images, then dropout with `p`, ReLU and a "max" or "mean" pool, as far as asked for.

    Few channels are computed directly, with what follows in the same kernel; otherwise, and where timings say so, by
    torch's convolution.  The mask is drawn as in `dropout`.
    Shapes: input (batch, channels, height, width) or one image without the batch, weight (outs, channels / groups,
    kernel, kernel), bias (outs,).
    Dtypes: one float type (under autocast its type).  PyTorch: torch.nn.functional.conv2d.
    """
    input, weight, bias = cast_as_products(input, weight, bias)
    steps, widths = _pair(stride), _pair(dilation)
    x = input[None] if input.dim() == 3 else input
    if isinstance(padding, str):
        x, padding = _pad(x, padding, weight, steps, widths)
    if p and seed is None:
        seed = new_seed()
    y: torch.Tensor = _OPS.convolution(
        x, weight, bias, steps, _pair(padding), widths, groups, relu, pool, window, p, seed
    )[0]  # fmt: skip
    return y[0] if input.dim() == 3 else y


def _pair(value: int | Sequence[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _pad(
    x: torch.Tensor, word: str, weight: torch.Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> tuple[torch.Tensor, list[int]]:
    """The images and the numbers that "valid" and "same" stand for; what is odd comes behind, as of torch's."""
    total = [d * (k - 1) if word == "same" else 0 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if word not in ("same", "valid") or (word == "same" and any(s != 1 for s in stride)):
        raise KernelArgumentError(
            "conv2d: no such padding",
            given=f"padding {word!r}, stride {tuple(stride)}",
            expected="'valid', or 'same' with stride 1, or numbers",
            mend="say by numbers how much is padded",
        )
    odd = [n % 2 for n in total]
    return F.pad(x, [0, odd[1], 0, odd[0]]) if any(odd) else x, [n // 2 for n in total]


# -- losses --------------------------------------------------------------------------------------------
def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
) -> torch.Tensor:
    """The cross entropy of logits and class numbers.  PyTorch: torch.nn.functional.cross_entropy.

    `z_loss` adds z_loss * logsumexp(input)^2 of each row that is not ignored, unweighted: the mean adds its mean over
    these rows.  It holds the logits near 0 (PaLM, section 5, https://arxiv.org/abs/2204.02311, takes 1e-4).
    Shapes: input (classes,), (batch, classes) or (batch, classes, *d), target the same without classes, weight
    (classes,) -> () or, with reduction "none", as target.
    Dtypes: any float; targets any integers; the loss has the type of the input, computed in float32.
    Targets that are no class raise on the CPU; a GPU, which is not waited for, gives NaN.
    """
    _require_constant("cross_entropy", weight)
    why = ""
    if target.is_floating_point():
        why = "of class probabilities"
    elif size_average is not None or reduce is not None:
        why = "with size_average or reduce, which torch has deprecated"
    if why:
        _refuse_z_loss("cross_entropy", z_loss, why)
        note_fallback("cross_entropy", why)
        old = {"size_average": size_average, "reduce": reduce}
        return F.cross_entropy(
            input,
            target,
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
            **old,
        )
    # what torch's own function gives: of half logits a half, under autocast float32
    cast = torch.is_autocast_enabled(input.device.type) and input.dtype != torch.float64
    x = input if input.dim() < 3 else input.movedim(1, -1)
    flat, classes = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    loss: torch.Tensor
    options = (weight, reduction, label_smoothing, ignore_index, z_loss)
    loss, _ = _OPS.cross_entropy(flat, classes, *options)
    loss = loss.to(torch.float32 if cast else input.dtype)
    return loss.reshape(target.shape) if reduction == "none" else loss


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    linear_bias: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
    z_loss: float = 0.0,
    accumulate: torch.dtype | None = None,
) -> torch.Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target), without holding all logits.

    The gradients are computed in the forward, a chunk of rows at a time, and kept in place of the logits.
    Shapes: input (*batch, features), linear_weight (classes, features), target (*batch), linear_bias, weight (classes,)
    -> () or, with reduction "none", (*batch).
    Dtypes: one float type (under autocast its type); the loss is float32 (of float64 float64).  `accumulate` is the
    type in which the weight's gradient is summed over chunks: float32 by default.  `weight`, of the classes, and
    `z_loss` as of `cross_entropy`; without `ignore_index` -100 is ignored.  Targets may be probabilities, (*batch,
    classes): these take torch's own.  `options`, of torch's chunks, are refused: here there is nothing to choose.
    PyTorch: torch.nn.functional.linear_cross_entropy, from 2.13.
    """
    _require_constant("linear_cross_entropy", weight)
    refuse_options("linear_cross_entropy", options, accumulate)
    if target.is_floating_point():
        _refuse_z_loss("linear_cross_entropy", z_loss, "of class probabilities")
        note_fallback("linear_cross_entropy", "of class probabilities")
        logits = F.linear(input, linear_weight, linear_bias)
        loss: torch.Tensor = F.cross_entropy(
            logits.flatten(0, -2), target.flatten(0, -2), weight, reduction=reduction, label_smoothing=label_smoothing
        )
        return loss.reshape(input.shape[:-1]) if reduction == "none" else loss
    input, linear_weight, linear_bias = cast_as_products(input, linear_weight, linear_bias)
    needs = any(t is not None and t.requires_grad for t in (input, linear_weight, linear_bias))
    gradients = reduction != "none" and needs and torch.is_grad_enabled()
    loss = _OPS.linear_cross_entropy(
        input.reshape(-1, input.shape[-1]),
        linear_weight,
        linear_bias,
        target.reshape(-1),
        weight,
        reduction,
        label_smoothing,
        -100 if ignore_index is None else ignore_index,
        z_loss,
        gradients,
        "" if accumulate is None else str(accumulate).removeprefix("torch."),
    )[0]
    return loss.reshape(target.shape) if reduction == "none" else loss


def refuse_options(op: str, options: object, accumulate: torch.dtype | None) -> None:
    """Raises for what torch's chunks are told, and for types in which no gradient is summed."""
    if options is not None:
        raise KernelArgumentError(
            f"{op}: an option without a fused form",
            given=f"options {options}",
            expected="None: how many rows a chunk has is known here from the sizes",
            mend="leave it out; accumulate says in which type the gradient of the weight is summed",
        )
    if accumulate not in (None, torch.float32, torch.float16, torch.bfloat16):
        raise KernelArgumentError(
            f"{op}: no such type to sum in",
            given=f"accumulate {accumulate}",
            expected="torch.float32, torch.float16, torch.bfloat16, or None",
            mend="leave it out, and gradients are summed in float32, of float64 in float64",
        )


def _refuse_z_loss(op: str, z_loss: float, why: str) -> None:
    if z_loss:
        raise KernelArgumentError(
            f"{op}: z_loss has no form beside what torch computes",
            given=f"z_loss {z_loss}, {why}",
            expected="class numbers as targets, and reduction instead of size_average and reduce",
            mend="add z_loss * torch.logsumexp(logits, 1).square().mean() to the loss",
        )


def _require_constant(op: str, weight: torch.Tensor | None) -> None:
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise KernelArgumentError(
            f"{op}: the weights of classes carry no gradient",
            given=describe({"weight": weight}) + " that requires one",
            expected="weights that are constants, as of torch.nn.functional.cross_entropy",
            mend="weight.detach()",
        )


# -- activations ---------------------------------------------------------------------------------------
def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x times the share of a normal variable below x, or by tanh.  PyTorch: torch.nn.functional.gelu.

    Shapes: any -> the same.  Dtypes: any float.  The input alone is kept for the backward.
    """
    return _OPS.activation(input, _gelu_kind("gelu", approximate))  # type: ignore[no-any-return]  # an operator


def silu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """x / (1 + exp(-x)); as `gelu`.  PyTorch: torch.nn.functional.silu."""
    never_in_place("silu", inplace)
    return _OPS.activation(input, "silu")  # type: ignore[no-any-return]  # an operator of torch


def relu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """max(x, 0), no gradient at 0; as `gelu`.  PyTorch: torch.nn.functional.relu."""
    never_in_place("relu", inplace)
    return _OPS.activation(input, "relu")  # type: ignore[no-any-return]  # an operator of torch


def never_in_place(name: str, inplace: bool) -> bool:
    """Raises for what would write to an input."""
    if inplace:
        raise KernelArgumentError(
            f"{name}: no form in place",
            given="inplace True",
            expected="inplace False: no operation here writes to its input",
            mend="leave it out",
        )
    return inplace


def _gelu_kind(op: str, approximate: str) -> str:
    if approximate not in ("none", "tanh"):
        raise KernelArgumentError(
            f"{op}: no such approximation",
            given=f"approximate {approximate!r}",
            expected="'none' or 'tanh'",
            mend="choose one of these, as of torch.nn.GELU",
        )
    return "gelu" if approximate == "none" else "gelu_tanh"


# -- gated units ---------------------------------------------------------------------------------------
def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1) -> torch.Tensor:
    """silu(gate) * up; without `up`, of the two halves of `gate` along `dim`.

    Shapes: gate, up alike -> the same; or one (*, 2 n, *) -> (*, n, *).  Dtypes: any float, the wider of the two.
    """
    return _gated(gate, up, dim, "silu")


def geglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1, approximate: str = "none") -> torch.Tensor:
    """gelu(gate) * up, GELU by erf or, if `approximate` is "tanh", by tanh; as `swiglu`."""
    return _gated(gate, up, dim, _gelu_kind("geglu", approximate))


def reglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1) -> torch.Tensor:
    """max(gate, 0) * up; as `swiglu`."""
    return _gated(gate, up, dim, "relu")


def _gated(gate: torch.Tensor, up: torch.Tensor | None, dim: int, kind: str) -> torch.Tensor:
    if up is None:
        if gate.dim() == 0 or gate.shape[dim] % 2:
            raise KernelShapeError(
                "gated unit: the axis cannot be halved",
                given=describe({"gate": gate}),
                expected=f"an even size of axis {dim}: gate and up behind each other",
                mend="pass gate and up as two tensors",
            )
        gate, up = gate.chunk(2, dim)
    if gate.dtype != up.dtype:
        wider = torch.promote_types(gate.dtype, up.dtype)
        gate, up = gate.to(wider), up.to(wider)
    if gate.dim() == 0:
        return _OPS.glu(gate.reshape(1), up.reshape(1), kind).reshape(())  # type: ignore[no-any-return]  # an operator
    return _OPS.glu(gate, up, kind)  # type: ignore[no-any-return]  # an operator of torch


# -- linear layers -------------------------------------------------------------------------------------
def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str = "none",
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """act(input weight^T + bias) + residual.  PyTorch: torch.nn.functional.linear and what follows it.

    `activation` is one of none, relu, gelu, gelu_tanh, silu.  A weight that is (in, out) is given as `weight.T`.
    Shapes: input (*batch, in), weight (out, in), bias (out,), residual (*batch, out) -> (*batch, out).
    Dtypes: one float type; under autocast its type, as of torch's linear.
    """
    tensors = (input, weight, bias, residual)
    input, weight, bias, residual = cast_as_products(*tensors)
    gradients = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    y: torch.Tensor = _OPS.linear(input, weight, bias, residual, activation, gradients)[0]
    return y


# -- dropout -------------------------------------------------------------------------------------------
def dropout(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    seed: torch.Tensor | None = None,
) -> torch.Tensor:
    """x with elements set to 0 with probability p and the others divided by 1 - p; never in place.

    The mask is a function of the seed and an element's number (Philox-4x32-10), so it is drawn again in the backward
    instead of being saved.  `seed` is two int64 numbers on the CPU; without it they are drawn from torch's generator
    of the CPU, which `torch.manual_seed` sets.  The masks are others than those of torch.nn.functional.dropout.
    """
    never_in_place("dropout", inplace)
    if not training:
        return input
    return _OPS.dropout(input, p, new_seed() if seed is None else seed)  # type: ignore[no-any-return]  # an operator of torch


# -- tracing -------------------------------------------------------------------------------------------
for _name in __all__:
    torch.fx.wrap(_name)  # torch.fx records a call of one as one call: what looks at an input cannot be traced
