"""Recipes: values of the tape that are not written, since a few cheap operations make them of what is there anyway.

A value that somebody still holds at a cut would be written.  If it was computed under a tape, by at most eight cheap
element-wise operations from values that are stored, it stays unwritten: a Recipe.  An operation that uses it later
records those operations again, in the kernel that needs them, so the backward of a chain reads what the forward read
and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from burn_torch.backend.lazy.trie import Step
from burn_torch.core.spec import NumberSpec
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = ["Given", "can_be_again", "deferred", "inputs_of", "steps_of"]

_MOST: Final = 8

_NEVER: Final = frozenset(range(-1, -2 - _MOST, -1))
"""More operations than any recipe has: of what is not computed again."""

Given = tuple[str, Any, int]
"""An input of a recipe: ("lazy", value, 0), ("outside", primitive, its version then), or ("number", number, 0)."""


def can_be_again(call: Call) -> bool:
    """Asks whether an operation may be computed again instead of keeping its result."""
    op = call.op
    return op.pointwise is not None and op.cost == "cheap" and not op.random and not call.multiple


def deferred(entries: Sequence[tuple[Step, object, object]], live: Sequence[bool], wanted: int | None) -> set[int]:
    """Returns the live results that stay recipes; `wanted` is read now, so it does not."""
    again: dict[int, frozenset[int]] = {}
    """For a result, what is computed to have it: what several operations read is computed once."""
    slots: set[int] = set()
    for step, _, _ in entries:
        call, slot = step.call, step.first
        if call is None or not can_be_again(call):
            continue
        operations = frozenset([slot])
        for i, spec in zip(step.slots, call.specs, strict=True):
            if spec is None or isinstance(spec, NumberSpec) or not isinstance(i, int) or i < 0:
                continue
            if not live[i] or i in slots:
                operations |= again.get(i, _NEVER)
        again[slot] = operations
        if step.taped and live[slot] and slot != wanted and len(operations) <= _MOST:
            slots.add(slot)
    return slots


def steps_of(slots: set[int], entries: Sequence[tuple[Step, object, object]], live: Sequence[bool]) -> list[int]:
    """The results that recipes for `slots` are made of, themselves included: positions of entries, in order."""
    at = {step.first: n for n, (step, _, _) in enumerate(entries) if step.call is not None and step.call.results}
    needed: set[int] = set()
    waiting = list(slots)
    while waiting:
        slot = waiting.pop()
        if slot in needed:
            continue
        needed.add(slot)
        step = entries[at[slot]][0]
        waiting += [i for i in step.slots if isinstance(i, int) and i >= 0 and (not live[i] or i in slots)]
    return sorted(at[slot] for slot in needed)


def inputs_of(
    entry: tuple[Step, object, Sequence[object]], values: Sequence[object], outside: Sequence[Primitive]
) -> list[Given | None]:
    """Returns what an operation read, in the order of its inputs."""
    step, _, numbers = entry
    assert step.call is not None
    rest = iter(numbers)
    inputs: list[Given | None] = []
    for slot, spec in zip(step.slots, step.call.specs, strict=True):
        if spec is None:
            inputs.append(None)
        elif isinstance(spec, NumberSpec):
            inputs.append(("number", next(rest), 0))
        elif isinstance(slot, int) and slot < 0:
            inputs.append(("outside", *outside[-1 - slot]))
        else:
            assert isinstance(slot, int)
            inputs.append(("lazy", values[slot], 0))
    return inputs
