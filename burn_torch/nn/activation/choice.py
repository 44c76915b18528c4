"""Activations as a choice in a configuration: `ActivationConfig.Gelu`, `ActivationConfig.LeakyRelu(...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from burn_torch.config import Config
from burn_torch.config._schema import name_variants
from burn_torch.nn.activation import gated, hard, rectifiers, smooth
from burn_torch.nn.dropout import Identity
from burn_torch.tensor import Device

__all__ = ["Activation", "ActivationConfig"]

Activation: TypeAlias = (
    rectifiers.Celu
    | rectifiers.Elu
    | smooth.Gelu
    | hard.HardShrink
    | hard.HardSigmoid
    | hard.HardSwish
    | Identity
    | rectifiers.LeakyRelu
    | rectifiers.PRelu
    | rectifiers.Relu
    | rectifiers.Selu
    | hard.Shrink
    | smooth.Sigmoid
    | hard.SoftShrink
    | smooth.Softplus
    | smooth.Softsign
    | gated.SwiGlu
    | smooth.Tanh
    | rectifiers.ThresholdedRelu
)
"""Holds what ActivationConfig makes: any of these layers, with `forward(x)`.  Burn: an enum around them."""


class ActivationConfig(Config, enum=True):
    """One of 20 activations, with its settings where it has any.

    >>> from burn_torch.nn import EluConfig
    >>> ActivationConfig.Relu, ActivationConfig.Elu(EluConfig(alpha=0.5))
    (ActivationConfig.Relu, ActivationConfig.Elu(EluConfig(alpha=0.5)))
    """

    Celu: ClassVar[type[_Celu]]
    Elu: ClassVar[type[_Elu]]
    Gelu: ClassVar[ActivationConfig]
    GeluApproximate: ClassVar[ActivationConfig]
    HardShrink: ClassVar[type[_HardShrink]]
    HardSigmoid: ClassVar[type[_HardSigmoid]]
    HardSwish: ClassVar[ActivationConfig]
    Identity: ClassVar[ActivationConfig]
    LeakyRelu: ClassVar[type[_LeakyRelu]]
    PRelu: ClassVar[type[_PRelu]]
    Relu: ClassVar[ActivationConfig]
    Selu: ClassVar[ActivationConfig]
    Shrink: ClassVar[type[_Shrink]]
    Sigmoid: ClassVar[ActivationConfig]
    SoftShrink: ClassVar[type[_SoftShrink]]
    Softplus: ClassVar[type[_Softplus]]
    Softsign: ClassVar[ActivationConfig]
    SwiGlu: ClassVar[type[_SwiGlu]]
    Tanh: ClassVar[ActivationConfig]
    ThresholdedRelu: ClassVar[type[_ThresholdedRelu]]

    _layer: ClassVar[Callable[[], Activation]]

    def init(self, device: Device) -> Activation:
        """The layer, with fresh parameters if it has any."""
        config: Any = getattr(self, "config", None)
        return type(self)._layer() if config is None else config.init(device)

    def __repr__(self) -> str:
        fields = ", ".join(map(repr, self._values()))
        return f"ActivationConfig.{self._info.tag}" + (f"({fields})" if fields else "")


# -- without settings ---------------------------------------------------------------------------------------
class _Gelu(ActivationConfig, tag="Gelu"):
    _layer = smooth.Gelu


class _GeluApproximate(ActivationConfig, tag="GeluApproximate"):
    _layer = smooth.Gelu.new_approximate


class _HardSwish(ActivationConfig, tag="HardSwish"):
    _layer = hard.HardSwish


class _Identity(ActivationConfig, tag="Identity"):
    _layer = Identity


class _Relu(ActivationConfig, tag="Relu"):
    _layer = rectifiers.Relu


class _Selu(ActivationConfig, tag="Selu"):
    _layer = rectifiers.Selu


class _Sigmoid(ActivationConfig, tag="Sigmoid"):
    _layer = smooth.Sigmoid


class _Softsign(ActivationConfig, tag="Softsign"):
    _layer = smooth.Softsign


class _Tanh(ActivationConfig, tag="Tanh"):
    _layer = smooth.Tanh


# -- with settings ----------------------------------------------------------------------------------------
class _Celu(ActivationConfig, tag="Celu", form="tuple"):
    config: rectifiers.CeluConfig


class _Elu(ActivationConfig, tag="Elu", form="tuple"):
    config: rectifiers.EluConfig


class _HardShrink(ActivationConfig, tag="HardShrink", form="tuple"):
    config: hard.HardShrinkConfig


class _HardSigmoid(ActivationConfig, tag="HardSigmoid", form="tuple"):
    config: hard.HardSigmoidConfig


class _LeakyRelu(ActivationConfig, tag="LeakyRelu", form="tuple"):
    config: rectifiers.LeakyReluConfig


class _PRelu(ActivationConfig, tag="PRelu", form="tuple"):
    config: rectifiers.PReluConfig


class _Shrink(ActivationConfig, tag="Shrink", form="tuple"):
    config: hard.ShrinkConfig


class _SoftShrink(ActivationConfig, tag="SoftShrink", form="tuple"):
    config: hard.SoftShrinkConfig


class _Softplus(ActivationConfig, tag="Softplus", form="tuple"):
    config: smooth.SoftplusConfig


class _SwiGlu(ActivationConfig, tag="SwiGlu", form="tuple"):
    config: gated.SwiGluConfig


class _ThresholdedRelu(ActivationConfig, tag="ThresholdedRelu", form="tuple"):
    config: rectifiers.ThresholdedReluConfig


name_variants(ActivationConfig)
