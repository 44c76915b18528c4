"""Caches for decoding token by token: what was computed for earlier positions is kept.

They are the one thing in this package that changes: a cache belongs to one sequence that is being generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.tensor import Tensor

__all__ = ["CrossAttentionCache", "MhaCache", "TensorCache"]


@final
@checked
class TensorCache:
    """A tensor that grows along one axis, or is computed once."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Tensor | None = None

    @staticmethod
    def empty() -> TensorCache:
        """Holds nothing yet."""
        return TensorCache()

    def length(self, dim: int) -> int:
        """How many positions along an axis it holds."""
        return 0 if self.value is None else self.value.shape[dim]

    def append(self, new: Tensor, dim: int) -> Tensor:
        """Holds `new` behind what it holds; all of it."""
        self.value = new if self.value is None else Tensor.cat([self.value, new], dim)
        return self.value

    def forward_autoregressive(self, tensor: Tensor, dim_cat: int, func: Callable[[Tensor], Tensor]) -> Tensor:
        """`func` of the positions of `tensor` that are not held yet, behind what is held.

        tensor: the whole sequence so far, positions along axis 1; `func` gives them along axis `dim_cat`.
        Returns: all of it.
        """
        held = self.length(dim_cat)
        new = positions_from(tensor, held)
        if self.value is not None and not new.shape[1]:
            return self.value
        return self.append(func(new), dim_cat)

    def forward_full(self, tensor: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
        """`func(tensor)` the first time; the same again ever after, whatever `tensor` is."""
        if self.value is None:
            self.value = func(tensor)
        return self.value


def positions_from(tensor: Tensor, start: int) -> Tensor:
    """The positions, along axis 1, from `start` on.

    Raises: ArgumentError where the sequence ends before: a cache of another one.
    """
    if not start:
        return tensor
    length = tensor.shape[1] if tensor.ndim > 1 else 0
    if length < start:
        raise ArgumentError(
            "the sequence is shorter than what its cache holds",
            given=f"{tensor.spec}, that is {length} positions, and a cache of {start}",
            expected=f"the whole sequence so far: {start} positions or more along axis 1",
            mend="pass all positions each time, or start with a new cache for a new sequence",
        )
    return tensor.narrow(1, start, length - start)


@final
class MhaCache:
    """Holds what MultiHeadAttention keeps while decoding: keys and values of earlier positions, and its answers."""

    __slots__ = ("fixed_memory", "key", "output", "positions", "value")

    def __init__(self, fixed_memory: bool) -> None:
        self.key, self.value, self.output = TensorCache(), TensorCache(), TensorCache()
        self.fixed_memory = fixed_memory
        self.positions = 0
        """Queries that were answered."""

    @staticmethod
    def autoregressive() -> MhaCache:
        """For self-attention: keys and values grow with the sequence."""
        return MhaCache(fixed_memory=False)

    @staticmethod
    def autoregressive_cross_attention() -> MhaCache:
        """For attention to a memory that stays: its keys and values are computed once."""
        return MhaCache(fixed_memory=True)


@final
class CrossAttentionCache:
    """Keys and values of a context, which CrossAttention then projects once."""

    __slots__ = ("key", "value")

    def __init__(self) -> None:
        self.key, self.value = TensorCache(), TensorCache()

    @staticmethod
    def new() -> CrossAttentionCache:
        """Holds nothing yet."""
        return CrossAttentionCache()
