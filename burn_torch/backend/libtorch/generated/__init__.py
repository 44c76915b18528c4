"""Kernels that the library writes itself: compiled, chosen and launched."""
