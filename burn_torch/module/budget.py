"""How many elements the parameters of a model may have that is built from settings of a stranger.

Parameters are made when they are first read, but running statistics are made at once, and ten million layers are ten
million objects: so elements are counted before anything is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from burn_torch.core.errors import ConfigError

__all__ = ["bounded_elements", "count_elements"]

_PER_PARAMETER: Final = 64
"""A parameter takes some room beside its elements."""
_left: Final[ContextVar[list[int] | None]] = ContextVar("elements left", default=None)


class _OverBudgetError(Exception):
    """There are more elements than may be."""


@contextmanager
def bounded_elements(most: int, settings: str, record: str) -> Iterator[None]:
    """Within, initializers count the elements of what they will make.

    most      how many there may be
    settings  what says how large the model is, in words
    record    what the model is for, in words

    Raises: ConfigError at the first parameter beyond.
    """
    token = _left.set([most])
    try:
        yield
    except _OverBudgetError:
        raise ConfigError(
            "the settings describe another model than the record",
            given=f"{settings}: more than {most:,} elements",
            expected=record,
            mend="take the settings and the record of one run",
        ) from None
    finally:
        _left.reset(token)


def count_elements(shape: Sequence[int]) -> None:
    """Counts what will be made; does nothing outside `bounded_elements`."""
    left = _left.get()
    if left is not None:
        left[0] -= math.prod(shape) + _PER_PARAMETER
        if left[0] < 0:
            raise _OverBudgetError
