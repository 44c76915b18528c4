"""Normalisation layers, and the choice between them."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from burn_torch import ops
from burn_torch.config import Config, replace
from burn_torch.config._schema import name_variants
from burn_torch.core.errors import ShapeError
from burn_torch.module import Content, Module, Param, RunningState
from burn_torch.module.initializer import Initializer
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.nn.dropout import Identity
from burn_torch.tensor import Device, Tensor, functional
from burn_torch.tensor.apply import apply, apply_one

__all__ = [
    "BatchNorm",
    "BatchNormConfig",
    "GroupNorm",
    "GroupNormConfig",
    "InstanceNorm",
    "InstanceNormConfig",
    "LayerNorm",
    "LayerNormConfig",
    "LocalResponseNorm",
    "LocalResponseNormConfig",
    "Normalization",
    "NormalizationConfig",
    "RmsNorm",
    "RmsNormConfig",
]


def _affine(features: int, device: Device) -> tuple[Param, Param]:
    return Initializer.Ones.init((features,), device), Initializer.Zeros.init((features,), device)


# -- batch ------------------------------------------------------------------------------------------------
class BatchNormConfig(Config):
    """Batch normalisation of `num_features` channels.

    epsilon 1e-5 keeps the root away from 0 and is far below usual variances.  momentum 0.1: the running statistics
    move a tenth of the way to those of each batch.
    """

    num_features: int
    epsilon: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_features").positive("epsilon").fraction("momentum").stop()

    def init(self, device: Device) -> BatchNorm:
        """The layer with gamma 1, beta 0, running mean 0 and running variance 1."""
        gamma, beta = _affine(self.num_features, device)
        inner = device.no_grad()
        mean, var = (RunningState(start.init((self.num_features,), inner).val()) for start in _STATISTICS)
        return BatchNorm(gamma, beta, mean, var, self.momentum, self.epsilon)


_STATISTICS = (Initializer.Zeros, Initializer.Ones)


class BatchNorm(Module):
    """Normalises each channel over the batch and all positions, then scales and shifts.

        y = (x - mean) / sqrt(var + epsilon) * gamma + beta        (var is the biased variance)

    It trains on a device with gradients: mean and var are those of the batch, and the running statistics move by
    `momentum` towards them (towards the unbiased variance).  Elsewhere (`model.valid()`) the running ones are used.
    In a StepScope the new statistics leave through it: `model.with_states(scope.states)`.

    Shapes: x (batch, num_features, *s) -> the same; gamma, beta, running_mean, running_var (num_features,).
    Dtypes: any float; statistics of half types are float32.
    Raises: ShapeError while training on one element a channel, whose variance nobody knows.
    Source: Ioffe, Szegedy 2015, https://arxiv.org/abs/1502.03167.
    PyTorch: torch.nn.BatchNorm1d, 2d and 3d; weight and bias are gamma and beta.
    """

    gamma: Param
    beta: Param
    running_mean: RunningState
    running_var: RunningState
    momentum: float
    epsilon: float

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return self._train(x) if x.backend.trains else self._infer(x)

    def num_features(self) -> int:
        """How many channels it normalises."""
        return self.gamma.shape[0]

    def _infer(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean.value(), self.running_var.value()
        return apply_one(ops.batch_norm_inference, (x, self.gamma.val(), self.beta.val(), mean, var, self.epsilon))

    def _train(self, x: Tensor) -> Tensor:
        count = x.spec.numel // x.shape[1] if x.ndim > 1 and x.shape[1] else 0
        if count == 1:
            raise ShapeError(
                "BatchNorm: one element a channel has no variance to train on",
                given=f"x {x.spec}",
                expected="two elements a channel or more: a batch above 1, or positions",
                mend="drop the last short batch, or call model.valid() to use the running statistics",
            )
        y, mean, var = apply(ops.batch_norm, (x, self.gamma.val(), self.beta.val(), self.epsilon))
        if count:  # an empty batch says nothing
            self._move(self.running_mean, mean, 1.0)
            self._move(self.running_var, var, count / (count - 1))
        return y  # type: ignore[no-any-return]  # rows are typed loosely

    def _move(self, state: RunningState, statistic: Tensor, factor: float) -> None:
        old, new = state.value(), statistic.inner()
        while new.backend.is_autodiff and new.backend is not old.backend:  # a tape over a tape
            new = new.inner()
        new = new.detach()
        if new.dtype is not old.dtype:
            new = ops.cast(new, dtype=old.dtype)
        state.update(old * (1.0 - self.momentum) + new * (self.momentum * factor))

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        content.add("num_features", self.num_features())
        return content.add("momentum", self.momentum).add("epsilon", self.epsilon)


# -- layer and root mean square -----------------------------------------------------------------------------
class LayerNormConfig(Config):
    """Layer normalisation over a last axis of `d_model`.

    epsilon 1e-5 keeps the root away from 0.  bias true: the paper's beta.
    """

    d_model: int
    epsilon: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_model").positive("epsilon").stop()

    def init(self, device: Device) -> LayerNorm:
        """The layer with gamma 1 and beta 0."""
        gamma, beta = _affine(self.d_model, device)
        return LayerNorm(gamma, beta if self.bias else None, self.epsilon)


class LayerNorm(Module):
    """Normalises over the last axis, then scales and shifts.

        y = (x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta        (var is the biased variance)

    Shapes: x (*batch, d_model) -> (*batch, d_model); gamma, beta (d_model,).
    Dtypes: any float; half types compute in float32.
    Source: Ba, Kiros, Hinton 2016, section 3, https://arxiv.org/abs/1607.06450.
    PyTorch: torch.nn.LayerNorm over the last axis; weight and bias are gamma and beta.
    """

    gamma: Param
    beta: Param | None
    epsilon: float

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        beta = self.beta
        return apply(  # type: ignore[no-any-return]  # rows are typed loosely
            ops.layer_norm, (x, self.gamma.val(), None if beta is None else beta.val(), self.epsilon)
        )[0]

    def num_features(self) -> int:
        """The size of the axis it normalises."""
        return self.gamma.shape[0]

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        content.add("d_model", self.gamma.shape[0]).add("epsilon", self.epsilon)
        return content.add("bias", self.beta is not None)


class RmsNormConfig(Config):
    """Root mean square normalisation over a last axis of `d_model`.  epsilon 1e-5 keeps the root away from 0."""

    d_model: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "d_model").positive("epsilon").stop()

    def init(self, device: Device) -> RmsNorm:
        """The layer with gamma 1."""
        return RmsNorm(Initializer.Ones.init((self.d_model,), device), self.epsilon)


class RmsNorm(Module):
    """x / sqrt(mean(x^2) + epsilon) * gamma over the last axis.

    Shapes: x (*batch, d_model) -> (*batch, d_model); gamma (d_model,).  Dtypes: any float; half types compute in f32.
    Source: Zhang, Sennrich 2019, equation 4, https://arxiv.org/abs/1910.07467.
    PyTorch: torch.nn.RMSNorm, whose eps is that of the element type unless given.
    """

    gamma: Param
    epsilon: float

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return apply(ops.rms_norm, (x, self.gamma.val(), self.epsilon))[0]  # type: ignore[no-any-return]  # rows are typed loosely

    def num_features(self) -> int:
        """The size of the axis it normalises."""
        return self.gamma.shape[0]

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        return content.add("d_model", self.gamma.shape[0]).add("epsilon", self.epsilon)


# -- groups of channels ---------------------------------------------------------------------------------------
class GroupNormConfig(Config):
    """Normalisation over groups of channels.

    epsilon 1e-5 keeps the root away from 0.  affine true: the paper's gamma and beta.
    """

    num_groups: int
    num_channels: int
    epsilon: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        rules = Rules(self).at_least(1, "num_groups", "num_channels").positive("epsilon")
        rules.divides("num_groups", "num_channels").stop()

    def init(self, device: Device) -> GroupNorm:
        """The layer with gamma 1 and beta 0."""
        gamma, beta = _affine(self.num_channels, device) if self.affine else (None, None)
        return GroupNorm(gamma, beta, self.num_groups, self.num_channels, self.epsilon, self.affine)


def _group_norm(layer: GroupNorm | InstanceNorm, x: Tensor, groups: int) -> Tensor:
    channels, gamma, beta = layer.num_channels, layer.gamma, layer.beta
    if x.ndim < 2 or x.shape[1] != channels:
        raise ShapeError(
            f"{type(layer).__name__}: the input does not fit the layer",
            given=f"x {x.spec}",
            expected=f"x (batch, {channels}, *s)",
            mend=f"make the layer for the channels of x, or move them to axis 1: num_channels {channels}",
        )
    inputs = (x, None if gamma is None else gamma.val(), None if beta is None else beta.val(), layer.epsilon)
    return apply(ops.group_norm, inputs, groups)[0]  # type: ignore[no-any-return]  # rows are typed loosely


class GroupNorm(Module):
    """Normalises each item over the channels of a group and all positions, then scales and shifts each channel.

    Shapes: x (batch, num_channels, *s) -> the same; gamma, beta (num_channels,).
    Dtypes: any float; half types compute in float32.
    Source: Wu, He 2018, https://arxiv.org/abs/1803.08494.
    PyTorch: torch.nn.GroupNorm; weight and bias are gamma and beta.
    """

    gamma: Param | None
    beta: Param | None
    num_groups: int
    num_channels: int
    epsilon: float
    affine: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return _group_norm(self, x, self.num_groups)

    def num_features(self) -> int:
        """How many channels it normalises."""
        return self.num_channels

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        for name in ("num_groups", "num_channels", "epsilon", "affine"):
            content.add(name, getattr(self, name))
        return content


class InstanceNormConfig(Config):
    """Normalisation of each channel of each item.  Defaults as in GroupNormConfig; PyTorch's affine is false."""

    num_channels: int
    epsilon: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "num_channels").positive("epsilon").stop()

    def init(self, device: Device) -> InstanceNorm:
        """The layer with gamma 1 and beta 0."""
        gamma, beta = _affine(self.num_channels, device) if self.affine else (None, None)
        return InstanceNorm(gamma, beta, self.num_channels, self.epsilon, self.affine)


class InstanceNorm(Module):
    """Normalises each channel of each item over all positions: a GroupNorm with a group for each channel.

    Shapes: x (batch, num_channels, *s) -> the same; gamma, beta (num_channels,).
    Dtypes: any float; half types compute in float32.
    Source: Ulyanov et al. 2016, https://arxiv.org/abs/1607.08022.  PyTorch: torch.nn.InstanceNorm1d, 2d and 3d.
    """

    gamma: Param | None
    beta: Param | None
    num_channels: int
    epsilon: float
    affine: bool

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return _group_norm(self, x, self.num_channels)

    def num_features(self) -> int:
        """How many channels it normalises."""
        return self.num_channels

    def custom_content(self, content: Content) -> Content:
        """Sizes as Burn shows them."""
        for name in ("num_channels", "epsilon", "affine"):
            content.add(name, getattr(self, name))
        return content


# -- local response ---------------------------------------------------------------------------------------------
class LocalResponseNormConfig(ParameterlessConfig["LocalResponseNorm"]):
    """Division by the size of neighbouring channels; alpha 1e-4, beta 0.75, k 1 as in PyTorch (the paper has k 2)."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __post_init__(self) -> None:
        Rules(self).at_least(1, "size").stop()


class LocalResponseNorm(InlineLayer):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta, zeros beyond the first and the last.

    Shapes: x (batch, channels, *s) -> the same.  Dtypes: any float, the same out.
    Source: Krizhevsky et al. 2012, section 3.3.  PyTorch: torch.nn.LocalResponseNorm.
    """

    size: int
    alpha: float
    beta: float
    k: float

    @noting_layer
    def forward(self, x: Tensor) -> Tensor:
        """The normalised input."""
        return functional.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


# -- the choice -----------------------------------------------------------------------------------------------------
Normalization: TypeAlias = Identity | BatchNorm | GroupNorm | InstanceNorm | LayerNorm | RmsNorm
"""Holds what NormalizationConfig makes: any of them, with `forward(x)` and `num_features()`.  Burn: an enum around
them.
"""


class NormalizationConfig(Config, enum=True):
    """One of the normalisations: `NormalizationConfig.Batch(BatchNormConfig(8))`, `.Identity`, ..."""

    Identity: ClassVar[NormalizationConfig]
    Batch: ClassVar[type[Batch]]
    Group: ClassVar[type[Group]]
    Instance: ClassVar[type[Instance]]
    Layer: ClassVar[type[Layer]]
    Rms: ClassVar[type[Rms]]

    def init(self, device: Device) -> Normalization:
        """The layer with fresh parameters."""
        config: Any = getattr(self, "config", None)
        return Identity() if config is None else config.init(device)

    def num_features(self) -> int:
        """How many features or channels the layer normalises; 0 for Identity."""
        config = getattr(self, "config", None)
        return 0 if config is None else getattr(config, _SIZES[type(config)])

    def with_num_features(self, num_features: int) -> NormalizationConfig:
        """The same choice for another number of features; Identity stays as it is."""
        config = getattr(self, "config", None)
        if config is None:
            return self
        return replace(self, config=replace(config, **{_SIZES[type(config)]: num_features}))


class NoNormalization(NormalizationConfig, tag="Identity"):
    """No normalisation."""


class Batch(NormalizationConfig, form="tuple"):
    """Batch normalisation."""

    config: BatchNormConfig


class Group(NormalizationConfig, form="tuple"):
    """Normalisation over groups of channels."""

    config: GroupNormConfig


class Instance(NormalizationConfig, form="tuple"):
    """Normalisation of each channel of each item."""

    config: InstanceNormConfig


class Layer(NormalizationConfig, form="tuple"):
    """Layer normalisation."""

    config: LayerNormConfig


class Rms(NormalizationConfig, form="tuple"):
    """Root mean square normalisation."""

    config: RmsNormConfig


_SIZES: dict[type[Config], str] = {
    BatchNormConfig: "num_features",
    GroupNormConfig: "num_channels",
    InstanceNormConfig: "num_channels",
    LayerNormConfig: "d_model",
    RmsNormConfig: "d_model",
}

name_variants(NormalizationConfig)
