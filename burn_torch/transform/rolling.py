"""Loops that stay loops: what writes a program may take the bodies of branches and loops as they are.

In a trace without data Python would compute both branches, and write the body of a loop once for each step.  A
`Roller` that is in force takes the functions instead: `cond`, `while_loop`, `scan` and recurrent layers ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from burn_torch.tensor import Tensor
from burn_torch.transform.structure import Argument, Function

__all__ = ["Recurrence", "Roller", "rolled_by", "roller_of"]


@dataclass(frozen=True)
class Recurrence:
    """One recurrent layer in one direction or in both, as operators of recurrent layers have it.

    kind         "LSTM", "GRU" or "RNN"
    direction    "forward", "reverse" or "bidirectional"
    activations  their names, for each direction
    after        whether the reset gate of a GRU acts on the product of the state
    coupled      whether the forget gate of an LSTM is 1 - input gate
    """

    kind: str
    d_hidden: int
    direction: str
    activations: tuple[str, ...]
    after: bool = False
    coupled: bool = False


class Roller(Protocol):
    """Takes functions of branches and loops in the place of what they compute."""

    def takes(self, *values: object) -> bool:
        """Says whether all tensors of these values are its own, and at least one is there."""
        ...

    def cond(self, pred: Tensor, true_fn: Function, false_fn: Function, operands: Sequence[object]) -> Argument:
        """The result of one of two branches."""
        ...

    def while_loop(self, cond_fn: Function, body_fn: Function, init: object, max_steps: int | None) -> Argument:
        """The last state of a loop."""
        ...

    def scan(
        self, fn: Function, init: object, xs: object, dim: int, length: int, reverse: bool
    ) -> tuple[Argument, Argument]:
        """The last carry and all results of a loop along an axis."""
        ...

    def recurrent(
        self,
        how: Recurrence,
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        states: Sequence[Tensor | None],
        lengths: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """All hidden states (seq, directions, batch, d_hidden), and the last states (directions, batch, d_hidden).

        Shapes: x (seq, batch, d_input); w and r (directions, gates * d_hidden, d_input or d_hidden); b (directions,
        2 * gates * d_hidden); lengths (batch,), beyond which outputs are 0 and states stay, those of a sequence without
        steps being 0.  Gates are in the order of ONNX: input, output, forget, cell; update, reset, hidden.
        """
        ...


_roller: Final[ContextVar[Roller | None]] = ContextVar("burn_torch roller", default=None)


def roller_of(*values: object) -> Roller | None:
    """The roller in force, where it takes these values; None in eager code, and where loops are unrolled."""
    roller = _roller.get()
    return roller if roller is not None and roller.takes(*values) else None


@contextmanager
def rolled_by(roller: Roller) -> Iterator[None]:
    """Hands branches and loops of this context to a roller until the block ends."""
    token = _roller.set(roller)
    try:
        yield
    finally:
        _roller.reset(token)
