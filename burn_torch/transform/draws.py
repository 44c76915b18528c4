"""Random draws of a function that runs again: one scope writes them down, another one gives them once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from burn_torch.core import ambient
from burn_torch.module.scope import StepScope, current_scope
from burn_torch.transform.structure import Argument

__all__ = ["DrawPlayer", "DrawRecorder"]


@final
class DrawRecorder(StepScope):
    """A scope that writes down what the scope around it gives to random draws."""

    def __init__(self) -> None:
        around = current_scope()
        super().__init__(None, share=None if around is None else around.share)
        self._around: Final = around
        self.draws: Final[list[tuple[Argument, int]]] = []

    def draw(self, layer: object) -> tuple[Argument, int]:
        """The (key, stream) of the scope around."""
        drawn = ambient.default_key() if self._around is None else self._around.draw(layer)
        self.draws.append(drawn)
        return drawn

    def draw_named(self, name: str) -> tuple[Argument, int]:
        """The (key, stream) of the scope around."""
        drawn = ambient.default_key() if self._around is None else self._around.draw_named(name)
        self.draws.append(drawn)
        return drawn

    def named(self, identity: int) -> str | None:
        """The name of the scope around."""
        return None if self._around is None else self._around.named(identity)

    def stand_in(self, copies: Mapping[int, object]) -> None:
        """Tells the scope around."""
        if self._around is not None:
            self._around.stand_in(copies)

    def pending(self, state: Argument, otherwise: object) -> Argument:
        """The value of the scope around."""
        return otherwise if self._around is None else self._around.pending(state, otherwise)

    def hand_in(self, state: Argument, value: Argument) -> None:
        """Hands a new value on."""
        if self._around is None:
            state._store(value)
        else:
            self._around.hand_in(state, value)


@final
class DrawPlayer(StepScope):
    """A scope that gives the draws of a `DrawRecorder` again, and keeps what running states are given."""

    def __init__(self, recorder_draws: Sequence[tuple[Argument, int]], share: Argument) -> None:
        super().__init__(None, share=share)
        self._draws: Final = iter(recorder_draws)

    def draw(self, layer: object) -> tuple[Argument, int]:
        """The next (key, stream)."""
        return next(self._draws)

    def draw_named(self, name: str) -> tuple[Argument, int]:
        """The next (key, stream)."""
        return next(self._draws)
