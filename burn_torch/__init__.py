"""Burn, the deep-learning framework, on PyTorch tensors."""
