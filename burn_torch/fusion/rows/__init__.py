"""The rows of the table that stand for generated kernels, and kernels that serve many shapes."""
