"""Batched: a decorator that computes many samples at once from a function of one."""

from burn_torch.backend.batched.decorator import Batched

__all__ = ["Batched"]
