"""The dashboard: a run on a terminal, live or afterwards, in a process of its own.

`show` needs textual (the extra `tui`), which is imported there and nowhere before; `page` and `follow_lines` are the
same run in plain text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from burn_torch.monitor.dashboard.source import Source
from burn_torch.monitor.dashboard.terminal import glyphs as _glyphs
from burn_torch.monitor.dashboard.terminal import obstacle
from burn_torch.monitor.dashboard.terminal import restored as _restored
from burn_torch.monitor.dashboard.text import follow_lines, page

if TYPE_CHECKING:
    from burn_torch.monitor.dashboard.app import Outcome

__all__ = ["Source", "follow_lines", "obstacle", "page", "show"]


def show(source: Source, *, closes: bool = False) -> Outcome:
    """Shows a run on the terminal until the user leaves it, or with `closes` until it ends; says which.

    The terminal is then as it was before, also after an error of the dashboard, which this raises.
    """
    with _restored():
        from burn_torch.monitor.dashboard.app import Dashboard

        source.look()
        app = Dashboard(source, glyphs=_glyphs(), closes=closes)
        outcome = app.run()
    if app.failure is not None:
        raise app.failure
    return outcome or "closed"
