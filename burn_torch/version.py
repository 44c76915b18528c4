"""The version of burn_torch, in the one place that setup.py, the docs and `burn-torch info` read."""

__all__ = ["__version__"]

__version__ = "0.1.0"
