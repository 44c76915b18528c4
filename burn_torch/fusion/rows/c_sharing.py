"""C kernels of symbolic sizes: one library for many shapes, as `sharing` has it for Triton's kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.c.lowering import CKernel, lower_to_c
from burn_torch.fusion.rows.sharing import Evaluation, Layout, Shared, layout_of, shared
from burn_torch.fusion.rows.symbolic import evaluation

__all__ = ["c_kernel_at"]

_MOST: Final = 4096


def c_kernel_at(
    text: str,
    dynamic: str,
    sizes: tuple[int, ...],
    layouts: Sequence[Sequence[int] | None] = (),
    *,
    strict: bool,
) -> CKernel | None:
    """The kernel of a body with symbols, at some sizes; None where it has none, or the sizes are not such as it is for.

    layouts: strides of the inputs, None for row-major ones.
    """
    if not dynamic:
        return None
    classes = tuple([None if layout is None else layout_of(layout) for layout in layouts])
    made = _lowered(text, dynamic, classes if any(classes) else (), strict)
    if made is None:
        return None
    found, kernel, work_at, sizes_at = made
    steps = [step for layout in layouts if layout is not None for step in layout if step not in (0, 1)]
    symbols = found.symbols(sizes, steps)
    if symbols is None:
        return None
    (work,) = work_at(symbols)
    return replace(kernel, outputs=found.specs(symbols), work=work, sizes_here=lambda: sizes_at()(symbols))


@functools.lru_cache(maxsize=_MOST)
def _lowered(
    text: str, dynamic: str, layouts: tuple[Layout, ...], strict: bool
) -> tuple[Shared, CKernel, Evaluation, Callable[[], Evaluation]] | None:
    """The kernel, and functions from its symbols to its work and its arguments; None where C does not know one."""
    found = shared(text, dynamic, layouts)
    try:
        kernel = lower_to_c(found.graph, strict=strict, layouts=found.strides or None)
    except Unfusible:
        return None
    hints = found.scope.hints
    return found, kernel, evaluation(hints, [kernel.work]), functools.cache(lambda: evaluation(hints, kernel.sizes))
