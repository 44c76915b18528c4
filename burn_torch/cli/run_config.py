"""The settings that every recipe has."""

from __future__ import annotations

from typing import Annotated, Final

from burn_torch.config import Config, Tag
from burn_torch.config.rules import Rules
from burn_torch.optim import AdamConfig, AdamWConfig, LionConfig, SgdConfig

__all__ = ["OptimizerSettings", "RunConfig"]

_MOST_WORKERS: Final = 1024
"""Each is a thread: more are a slip of the finger."""


class OptimizerSettings(Config):
    """The optimizer and its learning rate per step."""

    lr: float = 1e-3
    algorithm: (
        Annotated[AdamConfig, Tag("Adam")]
        | Annotated[AdamWConfig, Tag("AdamW")]
        | Annotated[LionConfig, Tag("Lion")]
        | Annotated[SgdConfig, Tag("Sgd")]
    ) = AdamConfig()


class RunConfig(Config):
    """Holds what any run can be told; each recipe has defaults of its own."""

    recipe: str
    data_dir: str | None = None
    num_epochs: int = 10
    batch_size: int = 64
    num_workers: int = 0
    seed: int = 42
    fuse: bool | None = None
    """Says whether steps run in generated kernels; None: where the device is fused, which no CPU is."""
    optimizer: OptimizerSettings = OptimizerSettings()

    def __post_init__(self) -> None:
        self.rules().stop()

    def rules(self) -> Rules:
        """Returns what the settings must be; a recipe adds those of its own."""
        rules = Rules(self).at_least(1, "num_epochs", "batch_size").at_least(0, "num_workers")
        return rules.at_most(_MOST_WORKERS, "num_workers").within(0, 2**64 - 1, "seed").positive("optimizer.lr")
