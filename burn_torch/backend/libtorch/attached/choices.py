"""The answers of this leaf when planning asks which way is faster here."""

from __future__ import annotations

from typing import Final

from burn_torch.backend.libtorch.attached.products import chosen_rank
from burn_torch.backend.libtorch.generated.anchors import chosen, chosen_convolution
from burn_torch.backend.libtorch.generated.tuning import last_tiles
from burn_torch.fusion.rewrites.choices import Choices

__all__ = ["CHOICES"]

CHOICES: Final = Choices(chosen, chosen_convolution, chosen_rank, last_tiles)
