"""Kernels of `burn_kernels` that compute rows of the table on a GPU."""
