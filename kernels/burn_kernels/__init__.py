"""Fused Triton kernels over plain torch tensors."""
