"""Stores of the formats that are both read and written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, final

from burn_torch.record.stores.base import WritableStore

__all__ = ["BurnpackStore", "SafetensorsStore"]


@final
@dataclass(frozen=True)
class SafetensorsStore(WritableStore):
    """A safetensors file, or the index of a sharded one.

    For files of torch.nn modules: `with_from_adapter(PyTorchToBurnAdapter())`, and to write some
    `with_to_adapter(BurnToPyTorchAdapter())`.
    """

    @property
    def ending(self) -> str:
        """`.safetensors`."""
        return ".safetensors"


@final
@dataclass(frozen=True)
class BurnpackStore(WritableStore):
    """A burnpack file: what Burn reads and writes."""

    extending: bool = True

    def auto_extension(self, enable: bool) -> Self:
        """Returns whether a path without an ending gets `.bpk`."""
        return replace(self, extending=enable)

    @property
    def ending(self) -> str:
        """`.bpk`."""
        return ".bpk"

    def path(self) -> Path:
        """Returns where the file is."""
        if not self.extending and isinstance(self.source, Path):
            return self.source
        return super().path()
