"""The fused operations as modules: constructors, parameters and `state_dict` are those of `torch.nn`.

Where torch has the module, ours is a subclass that exchanges `forward` alone, so a module of torch becomes one of ours,
and back, by its class (`patch` does that).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx import Proxy

from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.matmul.references import check_kind
from burn_kernels.torch import functional as F
from burn_kernels.torch.defining import note_fallback
from burn_kernels.torch.functional import never_in_place, refuse_options

__all__ = [
    "GEGLU",
    "GELU",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "Linear",
    "LinearCrossEntropyLoss",
    "LogSoftmax",
    "RMSNorm",
    "ReGLU",
    "ReLU",
    "ResidualLayerNorm",
    "ResidualRMSNorm",
    "Sequential",
    "SiLU",
    "Softmax",
    "SwiGLU",
]


def _traced_whole(forward: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """`forward`, which torch.fx records as one call of its module, as it does of torch's own.

    For those that look at their input: the others are traced to a function of `functional`, which is one call.
    """

    @functools.wraps(forward)
    def traced(module: nn.Module, input: object) -> object:
        if isinstance(input, Proxy):
            tracer: Any = input.tracer  # a Tracer, as it calls a module
            return tracer.create_proxy("call_module", tracer.path_of_module(module), (input,), {})
        return forward(module, input)

    return traced


@checked
class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm in one kernel forward and two backward."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises over the last axes; see `functional.layer_norm`."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


@checked
class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm in one kernel forward and two backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divides by the root mean square over the last axes; see `functional.rms_norm`."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


@checked
class ResidualLayerNorm(nn.LayerNorm):
    """Layer norm of residual + dropout(x), and that sum, in one pass; `p` as of torch.nn.Dropout, 0 drops nothing.

    The other options and the state_dict are those of torch.nn.LayerNorm.
    """

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, *, p: float = 0.0, **options: Any) -> None:
        super().__init__(normalized_shape, eps, **options)
        self.p = p

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]  # one input more
        """The normed sum, and the sum; see `functional.residual_layer_norm`."""
        options: dict[str, Any] = {"p": self.p, "training": self.training}
        return F.residual_layer_norm(x, residual, self.normalized_shape, self.weight, self.bias, self.eps, **options)

    def extra_repr(self) -> str:
        """The arguments of the constructor."""
        return f"{super().extra_repr()}, p={self.p}"


@checked
class ResidualRMSNorm(nn.RMSNorm):
    """RMS norm of residual + dropout(x), and that sum, in one pass; as `ResidualLayerNorm`."""

    def __init__(self, normalized_shape: Any, eps: float | None = None, *, p: float = 0.0, **options: Any) -> None:
        super().__init__(normalized_shape, eps, **options)
        self.p = p

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]  # one input more
        """The normed sum, and the sum; see `functional.residual_rms_norm`."""
        options: dict[str, Any] = {"p": self.p, "training": self.training}
        return F.residual_rms_norm(x, residual, self.normalized_shape, self.weight, self.eps, **options)

    def extra_repr(self) -> str:
        """The arguments of the constructor."""
        return f"{super().extra_repr()}, p={self.p}"


@checked
class Embedding(nn.Embedding):
    """torch.nn.Embedding, the gradient of its table added up in a fixed order; see `functional.embedding`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The rows that `input` names."""
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return F.embedding(input, self.weight, self.padding_idx, *options)


@checked
class GELU(nn.GELU):
    """torch.nn.GELU in one kernel each way, its input alone kept."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """See `functional.gelu`."""
        return F.gelu(input, self.approximate)


@checked
class SiLU(nn.SiLU):
    """torch.nn.SiLU in one kernel each way, its input alone kept."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(never_in_place("SiLU", inplace))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """See `functional.silu`."""
        return F.silu(input)


@checked
class ReLU(nn.ReLU):
    """torch.nn.ReLU in one kernel each way, its input alone kept."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(never_in_place("ReLU", inplace))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """See `functional.relu`."""
        return F.relu(input)


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    """The base of the batch norms of all numbers of axes."""

    activation = "none"
    """The activation in the same kernel, "relu" or "silu": set it on the object and take the other module away."""

    @_traced_whole
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises over all axes but the second; see `functional.batch_norm`."""
        self._check_input_dim(input)
        trained = self.training or (self.running_mean is None and self.running_var is None)
        share = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean over all batches
                share = 1.0 / float(self.num_batches_tracked)
        kept = not self.training or self.track_running_stats
        running = (self.running_mean, self.running_var) if kept else (None, None)
        return F.batch_norm(
            input, *running, self.weight, self.bias, trained, share, self.eps, activation=self.activation
        )  # fmt: skip


@checked
class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d in one kernel or three each way."""


@checked
class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d in one kernel or three each way."""


@checked
class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d in one kernel or three each way."""


@checked
class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm in one kernel or three forward, four backward."""

    activation = "none"
    """As of the batch norms."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises over groups of channels of each image; see `functional.group_norm`."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, activation=self.activation)


class _InstanceNorm(nn.modules.instancenorm._InstanceNorm):
    """The base of the instance norms of all numbers of axes: torch's own forward, but for the function at its end."""

    activation = "none"
    """As of the batch norms."""

    forward = _traced_whole(nn.modules.instancenorm._InstanceNorm.forward)

    def _apply_instance_norm(self, input: torch.Tensor) -> torch.Tensor:
        statistics = self.training or not self.track_running_stats
        share = 0.0 if self.momentum is None else self.momentum
        vectors = (self.running_mean, self.running_var, self.weight, self.bias)
        return F.instance_norm(input, *vectors, statistics, share, self.eps, activation=self.activation)


@checked
class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d as a group norm of one channel a group."""


@checked
class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d as a group norm of one channel a group."""


@checked
class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d as a group norm of one channel a group."""


@checked
class Conv2d(nn.Conv2d):
    """torch.nn.Conv2d, of few channels without cuDNN; what follows may be set on the object, for the same kernel.

    Images that are not in order (channels last), and paddings other than zeros, go to torch's own.
    """

    relu = False
    pool = "none"
    window = 2
    p = 0.0

    @_traced_whole
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The convolution with what follows; see `functional.conv2d`."""
        plain = not self.relu and self.pool == "none" and not self.p
        odd = self.padding_mode != "zeros" or not input.is_contiguous()
        if plain and odd:
            note_fallback("conv2d", "of images that are not in order, or padded with other numbers than 0")
            return super().forward(input)
        rest = (self.stride, self.padding, self.dilation, self.groups)
        drop = self.p if self.training else 0.0
        return F.conv2d(
            input, self.weight, self.bias, *rest, relu=self.relu, pool=self.pool, window=self.window, p=drop
        )  # fmt: skip


@checked
class Softmax(nn.Softmax):
    """torch.nn.Softmax in one kernel each way; `dim` None is left to torch, which guesses an axis."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Softmax along `dim`."""
        return F.softmax(input, self.dim, _stacklevel=5)


@checked
class LogSoftmax(nn.LogSoftmax):
    """torch.nn.LogSoftmax in one kernel each way; `dim` None is left to torch, which guesses an axis."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Log-softmax along `dim`."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


@checked
class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss; no softmax is kept, and half logits are not copied to float32.

    `z_loss` is one option more: how much of the squared logsumexp of the logits is added; see `functional`.
    """

    z_loss: float = 0.0  # of a module of torch that was patched, too

    def __init__(
        self,
        weight: torch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.z_loss = z_loss

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of logits and class numbers; see `functional.cross_entropy`."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )


@checked
class LinearCrossEntropyLoss(nn.Module):
    """A linear layer and its cross entropy, without holding all logits.

    The constructor and state_dict (`linear.weight`, `linear.bias`, `weight`) are those of
    torch.nn.LinearCrossEntropyLoss, which is there from 2.13; `out_features` and `options` have no fused form and are
    refused.
    `z_loss` and `accumulate` are more; see `functional.linear_cross_entropy`.
    """

    weight: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        reduction: str = "mean",
        weight: torch.Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: None = None,
        z_loss: float = 0.0,
        accumulate: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        refuse_options("LinearCrossEntropyLoss", options, accumulate)
        if out_features != ():
            raise KernelArgumentError(
                "LinearCrossEntropyLoss: an option without a fused form",
                given=f"out_features {out_features}",
                expected="out_features ()",
                mend="take torch.nn.LinearCrossEntropyLoss, or Linear and CrossEntropyLoss",
            )
        self.linear = nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)
        self.reduction = reduction
        self.ignore_index = -100 if ignore_index is None else ignore_index
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.accumulate = accumulate

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of features and class numbers; see `functional.linear_cross_entropy`."""
        return F.linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            accumulate=self.accumulate,
        )


@checked
class SwiGLU(nn.GLU):
    """silu(a) * b of the two halves of an input along `dim`, as torch.nn.GLU is sigmoid(b) * a; or of two inputs."""

    def forward(self, input: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        """See `functional.swiglu`."""
        return F.swiglu(input, up, self.dim)


@checked
class ReGLU(nn.GLU):
    """relu(a) * b of the two halves of an input along `dim`, or of two inputs."""

    def forward(self, input: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        """See `functional.reglu`."""
        return F.reglu(input, up, self.dim)


@checked
class GEGLU(nn.GLU):
    """gelu(a) * b of the two halves of an input along `dim`, or of two inputs; `approximate` as of torch.nn.GELU."""

    def __init__(self, dim: int = -1, approximate: str = "none") -> None:
        super().__init__(dim)
        self.approximate = approximate

    def forward(self, input: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        """See `functional.geglu`."""
        return F.geglu(input, up, self.dim, self.approximate)

    def extra_repr(self) -> str:
        """The arguments of the constructor."""
        return f"{super().extra_repr()}, approximate={self.approximate!r}"


@checked
class Dropout(nn.Dropout):
    """torch.nn.Dropout with a mask that is drawn again in the backward, never saved; see `functional.dropout`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(p, never_in_place("Dropout", inplace))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Drops in training, passes in evaluation."""
        return F.dropout(input, self.p, self.training)


@checked
class Linear(nn.Linear):
    """torch.nn.Linear, and an activation: none, relu, gelu, gelu_tanh or silu; see `functional.linear`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "none",
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        check_kind("Linear", activation)
        self.activation = activation

    def forward(self, input: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """act(input weight^T + bias), and a residual on top where one is given."""
        return F.linear(input, self.weight, self.bias, activation=self.activation, residual=residual)

    def extra_repr(self) -> str:
        """The arguments of the constructor."""
        return f"{super().extra_repr()}, activation={self.activation!r}"


@checked
class Sequential(nn.Sequential):
    """torch.nn.Sequential that computes a Linear and the activation behind it as one; `patch` makes them.

    Pairs are looked for at each call, and only where nobody could tell the difference: both of torch's own classes,
    without hooks, parametrizations, or a forward of their own.
    """

    def forward(self, input: object) -> Any:
        """Calls the modules one after the other, pairs together."""
        waiting = list(self)
        while waiting:
            module = waiting.pop(0)
            kind = pair_of(module, waiting[0]) if waiting else None
            if kind is None:
                input = module(input)
            else:
                input = F.linear(input, module.weight, module.bias, activation=kind)  # type: ignore[arg-type]  # a Linear
                waiting.pop(0)
        return input


def activation_of(module: nn.Module) -> str | None:
    """The name of an activation of torch's own, if `functional.linear` knows it."""
    if type(module) is nn.GELU:
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(module.approximate)
    return {nn.ReLU: "relu", nn.SiLU: "silu"}.get(type(module))


def pair_of(first: nn.Module, second: nn.Module) -> str | None:
    """The activation, if these two modules can be computed as one without anybody telling the difference."""
    kind = activation_of(second) if type(first) is nn.Linear and unwatched(first, second) else None
    weight = first._parameters.get("weight")  # as an attribute it would be a name only where torch.fx traces
    return kind if weight is not None and weight.is_floating_point() else None


def unwatched(*modules: nn.Module) -> bool:
    """Tells if no hook sees calls of these modules: no hooks on them, no forward of their own."""
    watching = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any("forward" in vars(m) or any(getattr(m, name, None) for name in watching) for m in modules)
