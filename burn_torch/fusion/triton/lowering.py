"""From a body, a Graph whose operations become one kernel, to a kernel in Triton.

What it needs is decided at once (`body/tiles.py`); the text is written when it is asked for (`dialect.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from burn_torch.fusion.body.loops import Kernel, Text
from burn_torch.fusion.body.needs import Terms
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.body.tiles import decide_tiles
from burn_torch.fusion.triton.dialect import Triton
from burn_torch.fusion.triton.side_by_side import lower_beside
from burn_torch.graph.ir import Graph

__all__ = ["lower"]


def lower(
    body: Graph, *, held: bool = False, over: bool = False, beside: bool = True, **terms: Unpack[Terms]
) -> Kernel:
    """The kernel of a body.

    strict    rounds after each operation, as unfused execution does
    layouts   strides of the body's inputs in elements, None for row-major ones; symbolic ones where sizes are
    held      numbers lie on the device and the kernel takes pointers to them: a recorded launch is replayed with others
    over      results may lie over inputs, as `Kernel.over` says: all is read before anything is written
    beside    parts that share no operation, nor the loops of one kernel, may be kernels side by side in one launch

    Raises: Unfusible, with the reason.
    """

    def lower_whole(body: Graph, layouts: Sequence[tuple[Any, ...] | None] | None) -> Kernel:
        own: Terms = {**terms, "layouts": layouts}
        needs = decide_tiles(body, Triton, over=over, **own)
        return Kernel(
            Text(lambda: Triton(needs, held=held).text()),
            needs.inputs,
            needs.results,
            needs.domain,
            needs.rows_together,
            needs.whole_rows,
            needs.loads,
            needs.wide,
            needs.over(),
            held,
            needs.streamed,
            not needs.whole_rows and not needs.folds and bool(needs.along_x and needs.along_r),
            needs.is_symbolic,
        )

    try:
        return lower_whole(body, terms.get("layouts"))
    except Unfusible:
        apart = lower_beside(body, terms.get("layouts"), lower_whole, held=held) if beside else None
        if apart is None:
            raise
        return apart
