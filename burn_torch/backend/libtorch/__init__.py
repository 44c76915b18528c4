"""The leaf over torch tensors."""

from burn_torch.backend.libtorch.leaf import LibTorch, place_of

__all__ = ["LibTorch", "place_of"]
