"""Proofs about each generated kernel, in C and in Triton, with BURN_TORCH_VERIFY (`graph/verifying.py`).

* Each load and each store lies inside of its buffer, masks and strides included.
* Each element of each output is stored exactly once.
* Where an output may lie over an input, no load of an element follows the store over it, in any order that the threads,
  programs and lanes of the kernel may run in.

`c_proof` and `triton_proof` walk the text that is compiled, all steps of its loops at once, and collect the accesses
that are judged here.  They share nothing with the writers.  Sizes are those of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from burn_torch.core.errors import BurnTorchError, explain
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph

__all__ = ["MOST_STEPS", "Access", "KernelFault", "Kernels", "Loops", "judge", "reached"]

MOST_STEPS: Final = 1 << 22
"""Steps of nested loops; of a kernel with more the first and the last of each loop are walked."""

Whole = Any
"""An array of int64."""


class KernelFault(BurnTorchError):
    """A generated kernel does not keep what kernels promise: a fault of the library, never of the program."""


@final
@dataclass(frozen=True)
class Loops:
    """The loops around an access, the outermost first: what each is called, its kind, and where its steps are."""

    names: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    places: tuple[float, ...] = ()
    """The place of each loop among the statements around it, and at the end that of the access."""


@final
@dataclass(frozen=True)
class Access:
    """A load or a store: the elements it touches, one for each step of the loops around it where it is not masked."""

    buffer: str
    line: str
    loops: Loops
    steps: tuple[Whole, ...]
    """For each loop around it, the step that each element belongs to."""
    elements: Whole


@final
@dataclass
class Kernels:
    """The accesses that a walk over a kernel found.  whole: whether it went over all steps."""

    name: str
    loads: list[Access] = field(default_factory=list)
    stores: list[Access] = field(default_factory=list)
    whole: bool = True


def reached(body: Graph, layouts: Sequence[Sequence[int] | None]) -> dict[int, int]:
    """How many elements of memory each tensor among a body's inputs spans, by its position.

    layouts: strides in elements; None, or nothing at all, for row-major ones
    """
    lengths: dict[int, int] = {}
    for position, (_, spec) in enumerate(body.inputs):
        layout = layouts[position] if position < len(layouts) else None
        if isinstance(spec, TensorSpec):
            spread = layout is not None and spec.numel
            ends = [(n - 1) * step for n, step in zip(spec.shape, layout or (), strict=False)]
            lengths[position] = 1 + sum(ends) if spread else int(spec.numel)
    return lengths


def judge(kernels: Kernels, sizes: Mapping[str, int], outputs: Sequence[TensorSpec], over: Mapping[str, str]) -> None:
    """Shows the three properties of a kernel.

    sizes: elements of each buffer; outputs: of q0, q1, ...; over: the input whose memory an output may take.
    Raises: KernelFault.
    """
    for access in (*kernels.loads, *kernels.stores):
        if access.elements.size and not 0 <= access.elements.min() <= access.elements.max() < sizes[access.buffer]:
            _refuse(
                kernels,
                access.line,
                f"elements {access.elements.min()} to {access.elements.max()}",
                f"0 to {sizes[access.buffer] - 1} of {access.buffer}",
            )
    for number, spec in enumerate(outputs):
        _stored_once(kernels, f"q{number}", int(spec.numel))
    for output, under in over.items():
        _loads_come_first(kernels, output, under)


def _refuse(kernels: Kernels, line: str, given: str, expected: str) -> None:
    raise KernelFault(
        explain(
            f"{kernels.name}: a generated kernel is wrong",
            given=f"{given}, in {line.strip()}",
            expected=expected,
            mend="please report it with this text; without fusion the operations run one by one, and are right",
        )
    )


def _stored_once(kernels: Kernels, output: str, count: int) -> None:
    stores = [access for access in kernels.stores if access.buffer == output]
    lines = "; ".join(dict.fromkeys(access.line.strip() for access in stores)) or "no line"
    times = np.bincount(np.concatenate([a.elements for a in stores] or [np.zeros(0, np.int64)]), minlength=count)
    if times.size and times.max() > 1:
        _refuse(kernels, lines, f"element {times.argmax()} of {output} is stored {times.max()} times", "once")
    if kernels.whole and times.size and times.min() < 1:
        _refuse(kernels, lines, f"element {times.argmin()} of {output} is never stored", "once")


def _loads_come_first(kernels: Kernels, output: str, under: str) -> None:
    """Shows that an element is loaded before it is overwritten."""
    loads = [access for access in kernels.loads if access.buffer == under]
    for store in (access for access in kernels.stores if access.buffer == output):
        if not store.elements.size:
            continue
        order = np.argsort(store.elements, kind="stable")
        sorted_elements = store.elements[order]
        for load in loads:
            place = np.minimum(np.searchsorted(sorted_elements, load.elements), sorted_elements.size - 1)
            both = sorted_elements[place] == load.elements
            late = _late(load, store, both, order[place[both]])
            if late is not None:
                element = load.elements[both][late]
                _refuse(
                    kernels,
                    load.line,
                    f"element {element} of {under} is read after or beside {store.line.strip()}",
                    f"the load first, as {output} lies over {under}",
                )


def _late(load: Access, store: Access, both: Whole, at: Whole) -> int | None:
    """Returns an element that both touch and that is not surely loaded first; None if all are."""
    undecided = np.ones(at.size, bool)
    depth = 0
    for name, other in zip(load.loops.names, store.loops.names, strict=False):
        if name != other:
            break
        difference = load.steps[depth][both] - store.steps[depth][at]
        bad = undecided & ((difference > 0) if not load.loops.kinds[depth] else (difference != 0))
        if bad.any():
            return int(bad.argmax())
        undecided &= difference == 0  # an earlier step of a loop without threads or lanes comes first
        depth += 1
    if undecided.any() and load.loops.places[depth] >= store.loops.places[depth]:
        return int(undecided.argmax())
    return None
