"""The choice between activations: Activation and ActivationConfig."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from burn_torch.config import Config
from burn_torch.nn import activation as layers
from burn_torch.nn.dropout import Identity as IdentityLayer
from burn_torch.tensor import Device

__all__ = ["Activation", "ActivationConfig"]

Activation: TypeAlias = (
    IdentityLayer
    | layers.Gelu
    | layers.PRelu
    | layers.Relu
    | layers.LeakyRelu
    | layers.SwiGlu
    | layers.Selu
    | layers.Sigmoid
    | layers.Tanh
    | layers.HardSigmoid
    | layers.HardSwish
    | layers.Softplus
    | layers.Softsign
    | layers.Elu
    | layers.Celu
    | layers.ThresholdedRelu
    | layers.HardShrink
    | layers.SoftShrink
    | layers.Shrink
)
"""What ActivationConfig makes: any of them, with `forward(x)`.  Burn: an enum around them."""


class ActivationConfig(Config, enum=True):
    """One of the activations: `ActivationConfig.Relu`, `.LeakyRelu(LeakyReluConfig())`, ..."""

    Identity: ClassVar[ActivationConfig]
    Gelu: ClassVar[ActivationConfig]
    GeluApproximate: ClassVar[ActivationConfig]
    PRelu: ClassVar[type[PRelu]]
    Relu: ClassVar[ActivationConfig]
    LeakyRelu: ClassVar[type[LeakyRelu]]
    SwiGlu: ClassVar[type[SwiGlu]]
    Selu: ClassVar[ActivationConfig]
    Sigmoid: ClassVar[ActivationConfig]
    Tanh: ClassVar[ActivationConfig]
    HardSigmoid: ClassVar[type[HardSigmoid]]
    HardSwish: ClassVar[ActivationConfig]
    Softplus: ClassVar[type[Softplus]]
    Softsign: ClassVar[ActivationConfig]
    Elu: ClassVar[type[Elu]]
    Celu: ClassVar[type[Celu]]
    ThresholdedRelu: ClassVar[type[ThresholdedRelu]]
    HardShrink: ClassVar[type[HardShrink]]
    SoftShrink: ClassVar[type[SoftShrink]]
    Shrink: ClassVar[type[Shrink]]

    def init(self, device: Device) -> Activation:
        """The layer, with fresh parameters if it has any."""
        config: Any = getattr(self, "config", None)
        return _PLAIN[type(self).__name__]() if config is None else config.init(device)  # type: ignore[no-any-return]


class Identity(ActivationConfig):
    """Has no numbers."""


class Gelu(ActivationConfig):
    """Has no numbers."""


class GeluApproximate(ActivationConfig):
    """Has no numbers."""


class PRelu(ActivationConfig, form="tuple"):
    """See PReluConfig."""

    config: layers.PReluConfig


class Relu(ActivationConfig):
    """Has no numbers."""


class LeakyRelu(ActivationConfig, form="tuple"):
    """See LeakyReluConfig."""

    config: layers.LeakyReluConfig


class SwiGlu(ActivationConfig, form="tuple"):
    """See SwiGluConfig."""

    config: layers.SwiGluConfig


class Selu(ActivationConfig):
    """Has no numbers."""


class Sigmoid(ActivationConfig):
    """Has no numbers."""


class Tanh(ActivationConfig):
    """Has no numbers."""


class HardSigmoid(ActivationConfig, form="tuple"):
    """See HardSigmoidConfig."""

    config: layers.HardSigmoidConfig


class HardSwish(ActivationConfig):
    """Has no numbers."""


class Softplus(ActivationConfig, form="tuple"):
    """See SoftplusConfig."""

    config: layers.SoftplusConfig


class Softsign(ActivationConfig):
    """Has no numbers."""


class Elu(ActivationConfig, form="tuple"):
    """See EluConfig."""

    config: layers.EluConfig


class Celu(ActivationConfig, form="tuple"):
    """See CeluConfig."""

    config: layers.CeluConfig


class ThresholdedRelu(ActivationConfig, form="tuple"):
    """See ThresholdedReluConfig."""

    config: layers.ThresholdedReluConfig


class HardShrink(ActivationConfig, form="tuple"):
    """See HardShrinkConfig."""

    config: layers.HardShrinkConfig


class SoftShrink(ActivationConfig, form="tuple"):
    """See SoftShrinkConfig."""

    config: layers.SoftShrinkConfig


class Shrink(ActivationConfig, form="tuple"):
    """See ShrinkConfig."""

    config: layers.ShrinkConfig


_PLAIN: dict[str, Any] = {
    "Identity": IdentityLayer,
    "Gelu": layers.Gelu,
    "GeluApproximate": layers.Gelu.new_approximate,
    "Relu": layers.Relu,
    "Selu": layers.Selu,
    "Sigmoid": layers.Sigmoid,
    "Tanh": layers.Tanh,
    "HardSwish": layers.HardSwish,
    "Softsign": layers.Softsign,
}

ActivationConfig.Identity = Identity()
ActivationConfig.Gelu = Gelu()
ActivationConfig.GeluApproximate = GeluApproximate()
ActivationConfig.PRelu = PRelu
ActivationConfig.Relu = Relu()
ActivationConfig.LeakyRelu = LeakyRelu
ActivationConfig.SwiGlu = SwiGlu
ActivationConfig.Selu = Selu()
ActivationConfig.Sigmoid = Sigmoid()
ActivationConfig.Tanh = Tanh()
ActivationConfig.HardSigmoid = HardSigmoid
ActivationConfig.HardSwish = HardSwish()
ActivationConfig.Softplus = Softplus
ActivationConfig.Softsign = Softsign()
ActivationConfig.Elu = Elu
ActivationConfig.Celu = Celu
ActivationConfig.ThresholdedRelu = ThresholdedRelu
ActivationConfig.HardShrink = HardShrink
ActivationConfig.SoftShrink = SoftShrink
ActivationConfig.Shrink = Shrink
