"""Whole programs as CUDA graphs."""
