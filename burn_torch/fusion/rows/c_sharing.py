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
    text: str, dynamic: str, sizes: tuple[int, ...], layouts: Sequence[Sequence[int] | None] = (), *, strict: bool
) -> CKernel | None:
    """The kernel of a body with symbols, at some sizes; None where it has none, or the sizes are not such as it is for.

    layouts: strides of the inputs, None for row-major ones.
    """
    if not dynamic:
        return None
    classes = tuple([None if layout is None else layout_of(layout) for layout in layouts])
    lowered = _lower(text, dynamic, classes if any(classes) else (), strict)
    if lowered is None:
        return None
    body, kernel, work_at, sizes_at = lowered
    steps = [step for layout in layouts if layout is not None for step in layout if step not in (0, 1)]
    symbols = body.symbols(sizes, steps)
    if symbols is None:
        return None
    (work,) = work_at(symbols)
    return replace(kernel, outputs=body.specs(symbols), work=work, sizes_here=lambda: sizes_at()(symbols))


@functools.lru_cache(maxsize=_MOST)
def _lower(
    text: str, dynamic: str, layouts: tuple[Layout, ...], strict: bool
) -> tuple[Shared, CKernel, Evaluation, Callable[[], Evaluation]] | None:
    """The kernel, and functions from its symbols to its work and its arguments; None where C does not know one."""
    body = shared(text, dynamic, layouts)
    try:
        kernel = lower_to_c(body.graph, strict=strict, layouts=body.strides or None)
    except Unfusible:
        return None
    hints = body.scope.hints
    return body, kernel, evaluation(hints, [kernel.work]), functools.cache(lambda: evaluation(hints, kernel.sizes))
