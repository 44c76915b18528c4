"""Kernels in Triton: its dialect, kernels around products and convolutions, and the proof of what was written."""
