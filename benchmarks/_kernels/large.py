"""Problems of every operation that are large enough for errors to average: what the rule of errors is tried on."""

from __future__ import annotations

from collections.abc import Iterator

from burn_kernels.spec import REGISTRY, Draw, Problem

__all__ = ["large"]


def large(name: str, draw: Draw) -> Iterator[Problem]:
    """The large problems of an operation's spec; rotary embedding has them by computed angles alone."""
    if (problems := REGISTRY[name].large) is not None:
        yield from problems(draw)
