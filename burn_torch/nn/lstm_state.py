"""LstmState: what an LSTM remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from burn_torch.core.errors import ShapeError
from burn_torch.core.spec import Shape
from burn_torch.tensor import Device, Tensor

__all__ = ["LstmState"]


@final
@dataclass(frozen=True, eq=False)
class LstmState:
    """Cell and hidden state, of one shape: (batch, d_hidden), or (2, batch, d_hidden) of a bidirectional layer.

    PyTorch: the pair (h, c), in the other order.
    """

    cell: Tensor
    hidden: Tensor

    def __post_init__(self) -> None:
        if self.cell.shape != self.hidden.shape:
            raise ShapeError(
                "LstmState: the two states have different shapes",
                given=f"cell {self.cell.spec}, hidden {self.hidden.spec}",
                expected="cell and hidden of one shape",
                mend="check their order: LstmState(cell, hidden)",
            )

    @staticmethod
    def new(cell: Tensor, hidden: Tensor) -> LstmState:
        """Burn's constructor."""
        return LstmState(cell, hidden)

    @staticmethod
    def initial(shape: Sequence[int], device: object) -> LstmState:
        """Zeros.  `device` may be what Tensor.zeros takes: (device, dtype)."""
        zeros = Tensor.zeros(tuple(shape), device)
        return LstmState(zeros, zeros)

    @property
    def shape(self) -> Shape:
        """The shape of both."""
        return self.cell.shape

    @property
    def device(self) -> Device:
        """Returns where they lie."""
        return self.cell.device

    def unpack(self) -> tuple[Tensor, Tensor]:
        """(cell, hidden)."""
        return self.cell, self.hidden

    def map_state(self, function: Callable[[Tensor], Tensor]) -> LstmState:
        """The state of `function(cell)` and `function(hidden)`."""
        return LstmState(function(self.cell), function(self.hidden))

    def slice(self, slices: object) -> LstmState:
        """See Tensor.slice."""
        return self.map_state(lambda x: x.slice(slices))

    def squeeze_dim(self, dim: int) -> LstmState:
        """Without an axis of size 1."""
        return self.map_state(lambda x: x.squeeze_dim(dim))

    def unsqueeze_dim(self, dim: int) -> LstmState:
        """With a new axis of size 1."""
        return self.map_state(lambda x: x.unsqueeze_dim(dim))

    @staticmethod
    def stack(states: Sequence[LstmState], dim: int) -> LstmState:
        """States along a new axis, such as those of several layers."""
        return LstmState(Tensor.stack([s.cell for s in states], dim), Tensor.stack([s.hidden for s in states], dim))

    def chunk(self, n: int, dim: int) -> list[LstmState]:
        """At most n states along an axis, which stays: the inverse of `stack` but for squeeze_dim."""
        pairs = zip(self.cell.chunk(n, dim), self.hidden.chunk(n, dim), strict=True)
        return [LstmState(cell, hidden) for cell, hidden in pairs]
