"""Autodiff: a tape of values, and gradients derived from the table."""

from burn_torch.backend.autodiff.decorator import Autodiff

__all__ = ["Autodiff"]
