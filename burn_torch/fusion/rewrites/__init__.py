"""Rewrites of a graph before its kernels are planned: cheaper operations that compute the same."""
