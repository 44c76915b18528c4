"""Activations as a choice in a configuration: `ActivationConfig.Gelu`, `ActivationConfig.LeakyRelu(...)`."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeAlias

from burn_torch.config import Config
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

    @abstractmethod
    def init(self, device: Device) -> Activation:
        """The layer, with fresh parameters if it has any."""

    def __repr__(self) -> str:
        fields = ", ".join(map(repr, self._values()))
        return f"ActivationConfig.{self._info.tag}" + (f"({fields})" if fields else "")


# -- without settings ---------------------------------------------------------------------------------------
class _Gelu(ActivationConfig, tag="Gelu"):
    def init(self, device: Device) -> Gelu:
        return Gelu()


class _GeluApproximate(ActivationConfig, tag="GeluApproximate"):
    def init(self, device: Device) -> Gelu:
        return Gelu.new_approximate()


class _HardSwish(ActivationConfig, tag="HardSwish"):
    def init(self, device: Device) -> HardSwish:
        return HardSwish()


class _Identity(ActivationConfig, tag="Identity"):
    def init(self, device: Device) -> Identity:
        return Identity()


class _Relu(ActivationConfig, tag="Relu"):
    def init(self, device: Device) -> Relu:
        return Relu()


class _Selu(ActivationConfig, tag="Selu"):
    def init(self, device: Device) -> Selu:
        return Selu()


class _Sigmoid(ActivationConfig, tag="Sigmoid"):
    def init(self, device: Device) -> Sigmoid:
        return Sigmoid()


class _Softsign(ActivationConfig, tag="Softsign"):
    def init(self, device: Device) -> Softsign:
        return Softsign()


class _Tanh(ActivationConfig, tag="Tanh"):
    def init(self, device: Device) -> Tanh:
        return Tanh()


# -- with settings ----------------------------------------------------------------------------------------
class _Celu(ActivationConfig, tag="Celu", form="tuple"):
    config: CeluConfig

    def init(self, device: Device) -> Celu:
        return self.config.init(device)


class _Elu(ActivationConfig, tag="Elu", form="tuple"):
    config: EluConfig

    def init(self, device: Device) -> Elu:
        return self.config.init(device)


class _HardShrink(ActivationConfig, tag="HardShrink", form="tuple"):
    config: HardShrinkConfig

    def init(self, device: Device) -> HardShrink:
        return self.config.init(device)


class _HardSigmoid(ActivationConfig, tag="HardSigmoid", form="tuple"):
    config: HardSigmoidConfig

    def init(self, device: Device) -> HardSigmoid:
        return self.config.init(device)


class _LeakyRelu(ActivationConfig, tag="LeakyRelu", form="tuple"):
    config: LeakyReluConfig

    def init(self, device: Device) -> LeakyRelu:
        return self.config.init(device)


class _PRelu(ActivationConfig, tag="PRelu", form="tuple"):
    config: PReluConfig

    def init(self, device: Device) -> PRelu:
        return self.config.init(device)


class _Shrink(ActivationConfig, tag="Shrink", form="tuple"):
    config: ShrinkConfig

    def init(self, device: Device) -> Shrink:
        return self.config.init(device)


class _SoftShrink(ActivationConfig, tag="SoftShrink", form="tuple"):
    config: SoftShrinkConfig

    def init(self, device: Device) -> SoftShrink:
        return self.config.init(device)


class _Softplus(ActivationConfig, tag="Softplus", form="tuple"):
    config: SoftplusConfig

    def init(self, device: Device) -> Softplus:
        return self.config.init(device)


class _SwiGlu(ActivationConfig, tag="SwiGlu", form="tuple"):
    config: SwiGluConfig

    def init(self, device: Device) -> SwiGlu:
        return self.config.init(device)


class _ThresholdedRelu(ActivationConfig, tag="ThresholdedRelu", form="tuple"):
    config: ThresholdedReluConfig

    def init(self, device: Device) -> ThresholdedRelu:
        return self.config.init(device)


ActivationConfig.Celu = _Celu
ActivationConfig.Elu = _Elu
ActivationConfig.Gelu = _Gelu()
ActivationConfig.GeluApproximate = _GeluApproximate()
ActivationConfig.HardShrink = _HardShrink
ActivationConfig.HardSigmoid = _HardSigmoid
ActivationConfig.HardSwish = _HardSwish()
ActivationConfig.Identity = _Identity()
ActivationConfig.LeakyRelu = _LeakyRelu
ActivationConfig.PRelu = _PRelu
ActivationConfig.Relu = _Relu()
ActivationConfig.Selu = _Selu()
ActivationConfig.Shrink = _Shrink
ActivationConfig.Sigmoid = _Sigmoid()
ActivationConfig.SoftShrink = _SoftShrink
ActivationConfig.Softplus = _Softplus
ActivationConfig.Softsign = _Softsign()
ActivationConfig.SwiGlu = _SwiGlu
ActivationConfig.Tanh = _Tanh()
ActivationConfig.ThresholdedRelu = _ThresholdedRelu
