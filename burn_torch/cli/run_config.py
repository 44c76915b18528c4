"""The settings that every recipe has."""

from __future__ import annotations

import math
from typing import Annotated, Any

from burn_torch.config import Config, Tag
from burn_torch.core.faults import Place, raise_faults
from burn_torch.optim import AdamConfig, AdamWConfig, SgdConfig

__all__ = ["OptimizerSettings", "RunConfig"]


class OptimizerSettings(Config):
    """The optimizer and its learning rate per step."""

    lr: float = 1e-3
    algorithm: (
        Annotated[AdamConfig, Tag("Adam")] | Annotated[AdamWConfig, Tag("AdamW")] | Annotated[SgdConfig, Tag("Sgd")]
    ) = AdamConfig()


class RunConfig(Config):
    """What any run can be told; each recipe has defaults of its own."""

    recipe: str
    data_dir: str | None = None
    num_epochs: int = 10
    batch_size: int = 64
    num_workers: int = 0
    seed: int = 42
    fuse: bool | None = None
    """Whether steps run in generated kernels; None: where the device is fused, which no CPU is."""
    optimizer: OptimizerSettings = OptimizerSettings()

    def __post_init__(self) -> None:
        place = Place()
        for path, (value, fits, expected) in self.limits().items():
            if not fits:
                place.fault(
                    "out of range",
                    given=f"{path} = {value}",
                    expected=f"{path}: {expected}",
                    mend=f"give {path} such a value, or leave it out",
                )
        if place.faults:
            raise_faults("settings", place.faults)

    def limits(self) -> dict[str, tuple[Any, bool, str]]:
        """Settings by their path: the value, whether it is in range, and the range."""
        return {
            "num_epochs": (self.num_epochs, self.num_epochs >= 1, "1 or more"),
            "batch_size": (self.batch_size, self.batch_size >= 1, "1 or more"),
            "num_workers": (self.num_workers, self.num_workers >= 0, "0 or more"),
            "seed": (self.seed, 0 <= self.seed < 2**64, "0 to 2^64 - 1"),
            "optimizer.lr": (self.optimizer.lr, 0 < self.optimizer.lr < math.inf, "above 0, and finite"),
        }
