"""Losses: how wrong a model is, as one number."""

from burn_torch.nn.loss._reduction import Reduction
from burn_torch.nn.loss.classification import (
    BinaryCrossEntropyLoss,
    BinaryCrossEntropyLossConfig,
    CrossEntropyLoss,
    CrossEntropyLossConfig,
)
from burn_torch.nn.loss.likelihood import (
    GaussianNLLLoss,
    GaussianNLLLossConfig,
    KLDivLoss,
    KLDivLossConfig,
    PoissonNllLoss,
    PoissonNllLossConfig,
)
from burn_torch.nn.loss.margins import (
    HingeEmbeddingLoss,
    HingeEmbeddingLossConfig,
    MarginRankingLoss,
    MarginRankingLossConfig,
    MultiMarginLoss,
    MultiMarginLossConfig,
    SoftMarginLoss,
)
from burn_torch.nn.loss.regression import (
    HuberLoss,
    HuberLossConfig,
    LpLoss,
    LpLossConfig,
    MseLoss,
    SmoothL1Loss,
    SmoothL1LossConfig,
)
from burn_torch.nn.loss.similarity import (
    CosineEmbeddingLoss,
    CosineEmbeddingLossConfig,
    TripletMarginLoss,
    TripletMarginLossConfig,
)

__all__ = [
    "BinaryCrossEntropyLoss",
    "BinaryCrossEntropyLossConfig",
    "CosineEmbeddingLoss",
    "CosineEmbeddingLossConfig",
    "CrossEntropyLoss",
    "CrossEntropyLossConfig",
    "GaussianNLLLoss",
    "GaussianNLLLossConfig",
    "HingeEmbeddingLoss",
    "HingeEmbeddingLossConfig",
    "HuberLoss",
    "HuberLossConfig",
    "KLDivLoss",
    "KLDivLossConfig",
    "LpLoss",
    "LpLossConfig",
    "MarginRankingLoss",
    "MarginRankingLossConfig",
    "MseLoss",
    "MultiMarginLoss",
    "MultiMarginLossConfig",
    "PoissonNllLoss",
    "PoissonNllLossConfig",
    "Reduction",
    "SmoothL1Loss",
    "SmoothL1LossConfig",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginLossConfig",
]
