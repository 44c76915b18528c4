"""Names of modules, layers and their functions in PyTorch, and what to write here: see `layers.txt`."""

from burn_torch.core.spellings import read_tables

__all__ = ["FUNCTIONAL", "LINALG", "MODULE", "NN"]

NN, MODULE, FUNCTIONAL, LINALG = read_tables("layers.txt", "NN", "MODULE", "FUNCTIONAL", "LINALG")
