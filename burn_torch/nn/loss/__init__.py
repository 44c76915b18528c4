"""Losses: how wrong a model is, as one number."""

from burn_torch.nn.loss._reduction import Reduction
from burn_torch.nn.loss.classification import (
    BinaryCrossEntropyLoss,
    BinaryCrossEntropyLossConfig,
    CrossEntropyLoss,
    CrossEntropyLossConfig,
)
from burn_torch.nn.loss.regression import (
    GaussianNLLLoss,
    GaussianNLLLossConfig,
    HuberLoss,
    HuberLossConfig,
    LpLoss,
    LpLossConfig,
    MseLoss,
    PoissonNllLoss,
    PoissonNllLossConfig,
    SmoothL1Loss,
    SmoothL1LossConfig,
)

__all__ = [
    "BinaryCrossEntropyLoss",
    "BinaryCrossEntropyLossConfig",
    "CrossEntropyLoss",
    "CrossEntropyLossConfig",
    "GaussianNLLLoss",
    "GaussianNLLLossConfig",
    "HuberLoss",
    "HuberLossConfig",
    "LpLoss",
    "LpLossConfig",
    "MseLoss",
    "PoissonNllLoss",
    "PoissonNllLossConfig",
    "Reduction",
    "SmoothL1Loss",
    "SmoothL1LossConfig",
]
