"""The stream: what one thread has recorded at one place and nobody has computed yet.

A thread records without a lock.  To compute what another thread has recorded, one closes its segment first: whoever
records looks after each operation whether its segment was closed meanwhile, and if its operation came too late, records
it again.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import lt
from typing import TYPE_CHECKING, Any, Final, final

from burn_torch.backend.lazy.recipes import deferred, inputs_of, steps_of
from burn_torch.backend.lazy.trie import TAPED, Step
from burn_torch.core.source import Source
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Literal
from burn_torch.ops.held_numbers import number_ranges
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

if TYPE_CHECKING:
    from burn_torch.backend.lazy.decorator import Fusion
    from burn_torch.backend.lazy.plans import Ready

__all__ = ["Computed", "Failed", "Lazy", "Recipe", "Segment", "Stream", "recorder"]


class Lazy:
    """A value that is not computed yet: the primitive of Fusion.

    Once it is, the same object is a Computed; if that failed, a Failed, whose `value` is the error.
    """

    __slots__ = ("__weakref__", "base", "recipe", "segment", "slot", "value")

    segment: Segment
    slot: int
    value: Primitive
    recipe: Any
    """A Recipe has the Call and its inputs; None once it is computed."""
    base: int
    """The version of the value's memory when it was made."""

    _version = 0
    """As torch's own, so that code that reads versions of tensors reads it: nothing can write to what is not there."""


@final
class Computed(Lazy):
    """A value that is computed: `value` is the inner primitive."""

    __slots__ = ()

    @property
    def _version(self) -> int:  # type: ignore[override]  # no longer a constant
        return self.value._version - self.base


@final
class Failed(Lazy):
    """A value that could not be computed: `value` is the error."""

    __slots__ = ()


@final
class Recipe(Lazy):
    """A value that was not written, since it is cheap to compute again."""

    __slots__ = ()


Entry = tuple[Step, tuple[Lazy | None, ...], tuple[Any, ...]]
"""An operation: where it is in the tree, its results, its numbers.  Appending it is what records it."""


@final
class Segment:
    """Operations from one cut to the next.

    outside  values from outside, each with its version when it was first read
    known    where in `outside` a primitive is, by its identity; of a recipe, the operation that computes it here
    again    recipes that are computed here
    """

    __slots__ = ("again", "closed", "known", "ops", "outside", "stream")

    def __init__(self, stream: Stream, root: Step) -> None:
        self.stream: Final = stream
        self.closed = False
        self.ops: list[Entry] = [(root, (), ())]
        self.outside: list[tuple[Any, int]] = []
        self.known: Final[dict[int, int]] = {}
        self.again: list[Lazy] = []


KEPT: Final = 256
"""Flushes that a stream remembers; where it is watched, all."""

watchers: Final[list[list[Stream]]] = []
"""Lists of those who watch, see `watching.py`: each new stream is put into them."""


@final
class Stream:
    """The segments of one thread at one place.

    history  what was computed last, the newest last
    """

    __slots__ = ("__weakref__", "fusion", "history", "lock", "place", "segment")

    def __init__(self, fusion: Fusion, place: str) -> None:
        self.fusion: Final = fusion
        self.place: Final = place
        self.lock: Final = threading.RLock()
        self.history: deque[Ready] = deque(maxlen=None if watchers else KEPT)
        for streams in watchers:
            streams.append(self)
        self.segment = Segment(self, fusion.root)

    @property
    def pending(self) -> int:
        """Operations that are recorded and not computed."""
        return len(self.segment.ops) - 1

    def flush(self) -> None:
        """Computes what is pending and wanted."""
        with self.lock:
            if len(self.segment.ops) > 1:
                self.compute(self.segment)

    def compute(self, segment: Segment, wanted: Lazy | None = None) -> None:
        """Computes a segment of this stream, with the lock held.  Interrupted, it can be computed again.

        A value that is cheap to compute again may stay a recipe; `wanted` does not.
        """
        fusion = self.fusion
        if self.segment is segment:
            self.segment = Segment(self, fusion.root)
        segment.closed = True
        entries = segment.ops.copy()
        values: list[Any] = []
        numbers: list[Primitive] = []
        for _, results, read_numbers in entries:
            values += results
            numbers += read_numbers
        live = tuple(map(lt, repeat(_UNHELD), map(sys.getrefcount, values)))
        last = entries[-1][0]
        if last.absent:
            live = tuple([alive and y is not None for alive, y in zip(live, values, strict=True)])
        if last.recipes and True in live:
            left = deferred(entries, live, None if wanted is None else wanted.slot)
            if left:
                for n in steps_of(left, entries, live):
                    (y,) = entries[n][1]
                    assert y is not None
                    y.recipe = (entries[n][0].call, inputs_of(entries[n], values, segment.outside))
                    y.__class__ = Recipe
                live = tuple([alive and i not in left for i, alive in enumerate(live)])
        ready = last.plans.get(live)
        if ready is not None or True in live:
            if ready is None:
                ready = fusion.planned(last, live, self.place)
            fusion.planner.flushes += 1
            self.history.append(ready)
            version = fusion.version_of
            for i, value in zip(ready.gives, ready.compute(segment.outside, numbers), strict=True):
                y = values[i]
                y.value = value
                if isinstance(value, BaseException):
                    y.__class__ = Failed
                else:
                    y.base = version(value)
                    y.__class__ = Computed
        segment.ops = []
        segment.outside = []
        segment.again = []


def _held_by_a_segment() -> int:
    """The reference count of a value that nobody but its segment holds, as `Stream.compute` counts it."""
    entries = [((), (Lazy(),), ()) for _ in range(2)]
    values = [y for entry in entries for y in entry[1]]
    return next(iter(map(sys.getrefcount, values)))


_UNHELD: Final = _held_by_a_segment()


# -- recording -----------------------------------------------------------------------------------------
def recorder(
    fusion: Fusion, call: Call, local: Any, limit: int, taped: bool
) -> Callable[[Sequence[Primitive]], Sequence[Primitive]]:
    """A function from inputs to results that records a Call in the stream of its thread.

    Written as source for the Call at hand, since it runs once an operation.  limit: with so many operations pending,
    they are computed first.  taped: the result may stay a recipe.

    Operations recorded on the way, the recipes among the inputs for instance, do not count for that limit: the recipes
    of one `cat` may be more operations than it, and would be recorded for ever.
    """
    count = len(call.specs)
    lines = ["stream = local.stream", "segment = stream.segment", "ops = segment.ops", "last = ops[-1]"]
    lines += [f"if len(ops) > {limit} and not begun:", "    stream.flush()", "    return record(inputs)"]
    if count:
        lines.append(f"{''.join(f'x{i}, ' for i in range(count))}= inputs")
    ranges = number_ranges(call)
    for n, (i, low, high) in enumerate(ranges):  # a number beyond is refused where it is written, not where read
        lines += [f"if not {low} <= x{i} <= {high} and not holds_{n}(x{i}):", "    return at_once(inputs)"]
    slots: list[str] = []
    numbers: list[str] = []
    for i, spec in enumerate(call.specs):
        if spec is None:
            slots.append("None")
        elif isinstance(spec, TensorSpec):
            lines.append(
                f"s{i} = x{i}.slot if x{i}.__class__ is Lazy and x{i}.segment is segment else outside(segment, x{i})"
            )
            slots.append(f"s{i}")
        else:
            numbers.append(f"x{i}")
            keyed = fusion.keyed.get(spec)
            if keyed:
                lines.append(f"s{i} = keyed_{spec.kind}.get(x{i}) and told(keyed_{spec.kind}, x{i})")
            slots.append(f"s{i}" if keyed else "None")
    key = f"(call, {''.join(f'{slot}, ' for slot in slots)}{'TAPED, ' * taped})"
    lines.append(f"step = last[0].next.get({key}) or grow(last[0], {key})")
    results: list[str] = []
    for i, result in enumerate(call.results):
        if result is None:
            results.append("None, ")
            continue
        lines += [
            f"y{i} = new(Lazy)",
            f"y{i}.segment = segment",
            f"y{i}.slot = step.first + {i}" if i else "y0.slot = step.first",
        ]
        results.append(f"y{i}, ")
    lines += [
        f"made = ({''.join(results)})",
        "if ops[-1] is not last:",  # what ran in between, a finaliser for instance, recorded too
        "    return record(inputs if stream.segment is segment else written(inputs), True)",
        f"ops.append((step, made, ({''.join(f'{n}, ' for n in numbers)})))",
        "if segment.closed:",
        "    return late(stream, made) or record(written(inputs), True)",
        f"return ({''.join(results)})",  # not the entry's own tuple: whoever keeps this one holds the values
    ]
    names: dict[str, Any] = {
        "call": call, "local": local, "Lazy": Lazy, "new": object.__new__, "outside": _outside, "grow": fusion.grow,
        "late": _late, "told": _keyed_literal, "TAPED": TAPED, "at_once": fusion.cutting(call, [local.stream.place]),
        "written": fusion.write_recipes,
    }  # fmt: skip
    names |= {f"keyed_{spec.kind}": keyed for spec, keyed in fusion.keyed.items()}
    names |= {f"holds_{n}": limits.holds for n, limits in enumerate(ranges)}
    source = Source("recorder", **names)
    with source.block("def record(inputs, begun=False):"):
        source.add(*lines)
    return source.function("record")


def _outside(segment: Segment, x: Primitive) -> int:
    """The slot of a value that no operation of the segment makes."""
    kind = x.__class__
    if kind is Computed:
        x = x.value
    elif kind is Lazy or kind is Failed:
        x = segment.stream.fusion.unwrapped(x)
    slot = segment.known.get(id(x))
    if kind is Recipe and slot is None:
        y = segment.stream.fusion.again(x)
        if y.__class__ is Lazy:
            if y.segment is segment:
                segment.again.append(x)
                segment.known[id(x)] = y.slot
            return y.slot
        x = segment.stream.fusion.unwrapped(y)
        slot = segment.known.get(id(x))
    if slot is None:
        outside = segment.outside
        slot = -1 - len(outside)
        outside.append((x, segment.stream.fusion.version_of(x)))
        segment.known[id(x)] = slot
    return slot


def _late(stream: Stream, results: tuple[Lazy | None, ...]) -> tuple[Lazy | None, ...] | None:
    """The results of an operation whose segment another thread closed: None if it was recorded too late."""
    with stream.lock:
        return results if all(y is None or y.__class__ is not Lazy for y in results) else None


def _keyed_literal(keyed: dict[object, Literal], number: object) -> Literal | None:
    """The literal of a number; 0.0 and -0.0 are equal, and two literals."""
    literal = keyed[number]
    return literal if literal == Literal(number) else None
