"""Names of tensors elsewhere (PyTorch, numpy, Rust's Burn), and what to write here: see `tensors.txt`."""

from burn_torch.core.spellings import read_tables

__all__ = ["FUNCTIONS", "PARAM", "TENSOR"]

TENSOR, PARAM, _METHODS = read_tables("tensors.txt", "TENSOR", "PARAM", "METHODS")

FUNCTIONS = {**TENSOR, **_METHODS}
"""Functions of torch whose work methods of Tensor do."""
