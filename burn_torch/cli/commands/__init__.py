"""The commands of `burn-torch`."""
