"""Why a compiled function was traced again: in what its arguments differ from the nearest earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from burn_torch.transform.structure import Structure

__all__ = ["Difference", "Retrace", "compared"]

_COMPARED: Final = 8
"""The number of earlier structures that are compared, the newest first."""

_SHOWN: Final = 20
"""The number of differences that are kept: a model with other ids differs in all its parameters."""

_PRINTED: Final = 3
"""The number of them that are printed."""


@dataclass(frozen=True)
class Difference:
    """One part of the arguments that was another before."""

    path: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.path}: {self.now}, was {self.before}"


@dataclass(frozen=True)
class Retrace:
    """One tracing: its number, and what differed from the nearest earlier one; nothing for the first.

    Printed are the first differences, `differences` has up to 20.
    """

    number: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        if not self.differences:
            return f"trace {self.number}: the first" if self.number == 1 else f"trace {self.number}: was dropped before"
        shown = "; ".join(map(str, self.differences[:_PRINTED]))
        return f"trace {self.number}: {shown}" + ("; and more" if len(self.differences) > _PRINTED else "")


def compared(number: int, key: Sequence[object], names: Sequence[str], earlier: Iterable[Sequence[object]]) -> Retrace:
    """The tracing of a key, compared with the keys of earlier programs (the newest last)."""
    candidates = [_differences(key, other, names) for other in list(earlier)[-_COMPARED:][::-1]]
    nearest = min(candidates, key=len, default=[])
    return Retrace(number, tuple(nearest[:_SHOWN]))


def _differences(key: Sequence[object], other: Sequence[object], names: Sequence[str]) -> list[Difference]:
    differences: list[Difference] = []
    if len(key) != len(other):
        return [Difference("the arguments", f"{len(other)} of them", f"{len(key)} of them")]
    for i, (now, before) in enumerate(zip(key, other, strict=True)):
        if now is before or now == before:
            continue
        name = names[i] if i < len(names) else f"argument {i}"
        if not isinstance(now, Structure) or not isinstance(before, Structure):
            differences.append(Difference(name, str(before), str(now)))
            continue
        ours, theirs = dict(now.parts(name)), dict(before.parts(name))
        for path in {**theirs, **ours}:
            a, b = theirs.get(path), ours.get(path)
            if a is not b:
                if not name:  # names that the function reads
                    path = path[2:-2]
                differences.append(
                    Difference(path, "absent" if a is None else repr(a), "absent" if b is None else repr(b))
                )
    return differences
