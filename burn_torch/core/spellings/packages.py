"""Names of torch's packages, of optimizers, data sets and devices, and what to write here: see `packages.txt`."""

from burn_torch.core.spellings import read_tables

__all__ = ["BURN_TORCH", "CONFIG", "DATA", "DEVICE", "OPTIM", "SIGNAL"]

BURN_TORCH, CONFIG, DATA, DEVICE, OPTIM, SIGNAL = read_tables(
    "packages.txt", "BURN_TORCH", "CONFIG", "DATA", "DEVICE", "OPTIM", "SIGNAL"
)
