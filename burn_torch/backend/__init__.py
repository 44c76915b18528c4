"""Backends: leaves that compute (LibTorch, NdArray) and decorators that compose (Autodiff, Fusion)."""

from burn_torch.backend.autodiff import Autodiff
from burn_torch.backend.base import Backend
from burn_torch.backend.lazy import Fusion, FusionWarning
from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray

__all__ = ["Autodiff", "Backend", "Fusion", "FusionWarning", "LibTorch", "NdArray"]
