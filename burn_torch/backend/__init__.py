"""Backends: leaves that compute (LibTorch, NdArray) and decorators that compose (Autodiff, Fusion)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.base import Backend
from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.exports import export_lazily as _export_lazily

if TYPE_CHECKING:
    from burn_torch.backend.lazy import Fusion, FusionWarning

__all__ = ["Autodiff", "Backend", "Fusion", "FusionWarning", "LibTorch", "NdArray"]

_export_lazily(globals(), {"Fusion": "lazy", "FusionWarning": "lazy"})
