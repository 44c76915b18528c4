"""The fused operations as functions, with the parameters of `torch.nn.functional`.

What a kernel has no form for (targets as probabilities, inputs of different types) goes to torch's own function; that
is counted and the first time said, see `fallbacks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from burn_kernels.errors import KernelArgumentError, KernelShapeError, explain
from burn_kernels.launch import describe
from burn_kernels.torch import channel_norms as _channel_norms  # noqa: F401  # registers its operators
from burn_kernels.torch import losses as _losses  # noqa: F401  # registers its operators
from burn_kernels.torch import ops as _ops  # noqa: F401  # registers its operators
from burn_kernels.torch.attending import attention, attention_packed, scaled_dot_product_attention
from burn_kernels.torch.defining import note_fallback

__all__ = [
    "attention",
    "attention_packed",
    "batch_norm",
    "cross_entropy",
    "dropout",
    "geglu",
    "layer_norm",
    "linear_cross_entropy",
    "log_softmax",
    "reglu",
    "rms_norm",
    "scaled_dot_product_attention",
    "softmax",
    "swiglu",
]

_OPS = torch.ops.burn_kernels


# -- softmax -------------------------------------------------------------------------------------------
def softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """exp(x) / sum(exp(x)) along `dim`.

    Shapes: any -> the same.  Dtypes: any float; `dtype` casts first.  PyTorch: torch.nn.functional.softmax.
    """
    return _along(_OPS.softmax, input, dim, dtype)


def log_softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """x - log(sum(exp(x))) along `dim`; as `softmax`.  PyTorch: torch.nn.functional.log_softmax."""
    return _along(_OPS.log_softmax, input, dim, dtype)


def _along(op: object, input: torch.Tensor, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
    x = input if dtype is None else input.to(dtype)
    if x.dim() == 0:
        return op(x.reshape(1)).reshape(())  # type: ignore[operator, no-any-return]  # an operator of torch
    if dim in (-1, x.dim() - 1):
        return op(x)  # type: ignore[operator, no-any-return]  # an operator of torch
    return op(x.transpose(dim, -1)).transpose(dim, -1)  # type: ignore[operator, no-any-return]  # an operator of torch


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
    if _mixed(input, weight, bias):
        note_fallback("layer_norm", "of different element types")
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    x, w, b = _last_axis("layer_norm", input, normalized_shape, weight, bias)
    y: torch.Tensor = _OPS.layer_norm(x, w, b, eps)[0]
    return y.reshape(input.shape)


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes; shapes and types as `layer_norm`.

    Without `eps` the smallest difference from 1 of float32 (of float64 for float64).
    PyTorch: torch.nn.functional.rms_norm.
    """
    if eps is None:
        eps = torch.finfo(torch.float64 if input.dtype == torch.float64 else torch.float32).eps
    if _mixed(input, weight):
        note_fallback("rms_norm", "of different element types")
        return F.rms_norm(input, normalized_shape, weight, eps)
    x, w, _ = _last_axis("rms_norm", input, normalized_shape, weight, None)
    y: torch.Tensor = _OPS.rms_norm(x, w, eps)[0]
    return y.reshape(input.shape)


def _mixed(x: torch.Tensor, *others: torch.Tensor | None) -> bool:
    if x.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        return False  # all are cast to float32
    return any(other is not None and other.dtype != x.dtype for other in others)


def _last_axis(
    op: str, x: torch.Tensor, shape: Sequence[int], w: torch.Tensor | None, b: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    shape = tuple(shape)
    fits = len(shape) > 0 and tuple(x.shape[-len(shape) :]) == shape
    if not fits or any(t is not None and tuple(t.shape) != shape for t in (w, b)):
        raise KernelShapeError(
            explain(
                f"{op}: the sizes do not fit",
                given=f"normalized_shape {shape}, " + describe({"input": x, "weight": w, "bias": b}),
                expected=f"input (*batch, {', '.join(map(str, shape))}), weight and bias {shape}",
                mend="normalize over the last axes of the input",
            )
        )
    if len(shape) == 1:
        return x, w, b
    return x.flatten(-len(shape)), None if w is None else w.flatten(), None if b is None else b.flatten()


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
        found = _OPS.batch_norm(input, weight, bias, running_mean, running_var, momentum, eps, activation)
        for old, new in ((running_mean, found[3]), (running_var, found[4])):
            if old is not None:
                old.copy_(new)
        return found[0]  # type: ignore[no-any-return]  # an operator of torch
    if running_mean is None or running_var is None:
        raise KernelArgumentError(
            explain(
                "batch_norm: no statistics",
                given=describe({"input": input, "running_mean": running_mean, "running_var": running_var}),
                expected="running_mean and running_var (channels,) where training is False",
                mend="pass both, or training=True to take the statistics of the batch",
            )
        )
    return _OPS.batch_norm_eval(input, weight, bias, running_mean, running_var, eps, activation)  # type: ignore[no-any-return]  # an operator of torch


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
        if z_loss:
            raise KernelArgumentError(
                explain(
                    "cross_entropy: z_loss has no form beside what torch computes",
                    given=f"z_loss {z_loss}, {why}",
                    expected="class numbers as targets, and reduction instead of size_average and reduce",
                    mend="add z_loss * torch.logsumexp(input, 1).square().mean() to the loss",
                )
            )
        note_fallback("cross_entropy", why)
        return F.cross_entropy(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing=label_smoothing
        )
    # what torch's own function gives: of half logits a half, under autocast float32
    cast = torch.is_autocast_enabled(input.device.type) and input.dtype != torch.float64
    x = input if input.dim() < 3 else input.movedim(1, -1)
    flat, classes = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    loss: torch.Tensor
    loss, _ = _OPS.cross_entropy(flat, classes, weight, reduction, label_smoothing, ignore_index, z_loss)
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
    z_loss: float = 0.0,
    accumulate: torch.dtype | None = None,
) -> torch.Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target), without holding all logits.

    The gradients are computed in the forward, a chunk of rows at a time, and kept in place of the logits.
    Shapes: input (*batch, features), linear_weight (classes, features), target (*batch), linear_bias, weight (classes,)
    -> () or, with reduction "none", (*batch).
    Dtypes: one float type (under autocast its type); the loss is float32 (of float64 float64).  `accumulate` is the
    type in which the weight's gradient is summed over chunks: float32 by default.  `weight`, of the classes, and
    `z_loss` as of `cross_entropy`; without `ignore_index` -100 is ignored.
    PyTorch: torch.nn.functional.linear_cross_entropy, from 2.13.
    """
    _require_constant("linear_cross_entropy", weight)
    device = input.device.type
    if torch.is_autocast_enabled(device) and input.dtype != torch.float64:
        kind = torch.get_autocast_dtype(device)
        input, linear_weight = input.to(kind), linear_weight.to(kind)
        linear_bias = None if linear_bias is None else linear_bias.to(kind)
    needs = any(t is not None and t.requires_grad for t in (input, linear_weight, linear_bias))
    gradients = reduction != "none" and needs and torch.is_grad_enabled()
    loss: torch.Tensor = _OPS.linear_cross_entropy(
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


def _require_constant(op: str, weight: torch.Tensor | None) -> None:
    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        raise KernelArgumentError(
            explain(
                f"{op}: the weights of classes carry no gradient",
                given=describe({"weight": weight}) + " that requires one",
                expected="weights that are constants, as of torch.nn.functional.cross_entropy",
                mend="weight.detach()",
            )
        )


# -- gated units ---------------------------------------------------------------------------------------
def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1) -> torch.Tensor:
    """silu(gate) * up; without `up`, of the two halves of `gate` along `dim`.

    Shapes: gate, up alike -> the same; or one (*, 2 n, *) -> (*, n, *).  Dtypes: any float, the wider of the two.
    """
    return _gated(gate, up, dim, "silu")


def geglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1, approximate: str = "none") -> torch.Tensor:
    """gelu(gate) * up, GELU by erf or, if `approximate` is "tanh", by tanh; as `swiglu`."""
    if approximate not in ("none", "tanh"):
        raise KernelArgumentError(
            explain(
                "geglu: no such approximation",
                given=f"approximate {approximate!r}",
                expected="'none' or 'tanh'",
                mend="choose one of these, as of torch.nn.GELU",
            )
        )
    return _gated(gate, up, dim, "gelu" if approximate == "none" else "gelu_tanh")


def reglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1) -> torch.Tensor:
    """max(gate, 0) * up; as `swiglu`."""
    return _gated(gate, up, dim, "relu")


def _gated(gate: torch.Tensor, up: torch.Tensor | None, dim: int, kind: str) -> torch.Tensor:
    if up is None:
        if gate.dim() == 0 or gate.shape[dim] % 2:
            raise KernelShapeError(
                explain(
                    "gated unit: the axis cannot be halved",
                    given=describe({"gate": gate}),
                    expected=f"an even size of axis {dim}: gate and up behind each other",
                    mend="pass gate and up as two tensors",
                )
            )
        gate, up = gate.chunk(2, dim)
    if gate.dtype != up.dtype:
        wider = torch.promote_types(gate.dtype, up.dtype)
        gate, up = gate.to(wider), up.to(wider)
    if gate.dim() == 0:
        return _OPS.glu(gate.reshape(1), up.reshape(1), kind).reshape(())  # type: ignore[no-any-return]  # an operator
    return _OPS.glu(gate, up, kind)  # type: ignore[no-any-return]  # an operator of torch


# -- dropout -------------------------------------------------------------------------------------------
def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, *, seed: torch.Tensor | None = None
) -> torch.Tensor:
    """x with elements set to 0 with probability p and the others divided by 1 - p; never in place.

    The mask is a function of the seed and an element's number (Philox-4x32-10), so it is drawn again in the backward
    instead of being saved.  `seed` is two int64 numbers on the CPU; without it they are drawn from torch's generator
    of the CPU, which `torch.manual_seed` sets.  The masks are others than those of torch.nn.functional.dropout.
    """
    if not training:
        return input
    if seed is None:
        # an operator of torch's own: those are the only ones of which torch.compile never makes two calls one
        seed = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device="cpu")
    return _OPS.dropout(input, p, seed)  # type: ignore[no-any-return]  # an operator of torch
