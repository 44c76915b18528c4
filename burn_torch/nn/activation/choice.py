"""Activations as a choice in a configuration: `ActivationConfig.Gelu`, `ActivationConfig.LeakyRelu(...)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from burn_torch.config import Config
from burn_torch.config._schema import name_variants
from burn_torch.nn.activation.gated import SwiGlu, SwiGluConfig
from burn_torch.nn.activation.hard import (
    HardShrink,
    HardShrinkConfig,
    HardSigmoid,
    HardSigmoidConfig,
    HardSwish,
    Shrink,
    ShrinkConfig,
    SoftShrink,
    SoftShrinkConfig,
)
from burn_torch.nn.activation.rectifiers import (
    Celu,
    CeluConfig,
    Elu,
    EluConfig,
    LeakyRelu,
    LeakyReluConfig,
    PRelu,
    PReluConfig,
    Relu,
    Selu,
    ThresholdedRelu,
    ThresholdedReluConfig,
)
from burn_torch.nn.activation.smooth import Gelu, Sigmoid, Softplus, SoftplusConfig, Softsign, Tanh
from burn_torch.nn.dropout import Identity
from burn_torch.tensor import Device

__all__ = ["Activation", "ActivationConfig"]

Activation: TypeAlias = (
    Celu
    | Elu
    | Gelu
    | HardShrink
    | HardSigmoid
    | HardSwish
    | Identity
    | LeakyRelu
    | PRelu
    | Relu
    | Selu
    | Shrink
    | Sigmoid
    | SoftShrink
    | Softplus
    | Softsign
    | SwiGlu
    | Tanh
    | ThresholdedRelu
)
"""Holds what ActivationConfig makes: any of these layers, with `forward(x)`.  Burn: an enum around them."""


class ActivationConfig(Config, enum=True):
    """One of 20 activations, with its settings where it has any.

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
    _layer = Gelu


class _GeluApproximate(ActivationConfig, tag="GeluApproximate"):
    _layer = Gelu.new_approximate


class _HardSwish(ActivationConfig, tag="HardSwish"):
    _layer = HardSwish


class _Identity(ActivationConfig, tag="Identity"):
    _layer = Identity


class _Relu(ActivationConfig, tag="Relu"):
    _layer = Relu


class _Selu(ActivationConfig, tag="Selu"):
    _layer = Selu


class _Sigmoid(ActivationConfig, tag="Sigmoid"):
    _layer = Sigmoid


class _Softsign(ActivationConfig, tag="Softsign"):
    _layer = Softsign


class _Tanh(ActivationConfig, tag="Tanh"):
    _layer = Tanh


# -- with settings ----------------------------------------------------------------------------------------
class _Celu(ActivationConfig, tag="Celu", form="tuple"):
    config: CeluConfig


class _Elu(ActivationConfig, tag="Elu", form="tuple"):
    config: EluConfig


class _HardShrink(ActivationConfig, tag="HardShrink", form="tuple"):
    config: HardShrinkConfig


class _HardSigmoid(ActivationConfig, tag="HardSigmoid", form="tuple"):
    config: HardSigmoidConfig


class _LeakyRelu(ActivationConfig, tag="LeakyRelu", form="tuple"):
    config: LeakyReluConfig


class _PRelu(ActivationConfig, tag="PRelu", form="tuple"):
    config: PReluConfig


class _Shrink(ActivationConfig, tag="Shrink", form="tuple"):
    config: ShrinkConfig


class _SoftShrink(ActivationConfig, tag="SoftShrink", form="tuple"):
    config: SoftShrinkConfig


class _Softplus(ActivationConfig, tag="Softplus", form="tuple"):
    config: SoftplusConfig


class _SwiGlu(ActivationConfig, tag="SwiGlu", form="tuple"):
    config: SwiGluConfig


class _ThresholdedRelu(ActivationConfig, tag="ThresholdedRelu", form="tuple"):
    config: ThresholdedReluConfig


name_variants(ActivationConfig)
