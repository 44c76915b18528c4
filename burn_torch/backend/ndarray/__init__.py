"""The leaf over numpy arrays: runs anywhere, and is the second opinion on every row."""

from burn_torch.backend.ndarray.leaf import NdArray

__all__ = ["NdArray"]
