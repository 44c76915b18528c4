"""Renderers: what a person sees of a run while it lasts.

A renderer is a reader of events with `handle` and `close`; `MetricsRenderer` is Burn's name for the protocol.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TextIO

from burn_torch.core.checking import checked as _checked
from burn_torch.core.errors import ConfigError as _ConfigError
from burn_torch.monitor.plain import PlainRenderer, SilentRenderer
from burn_torch.train.event import EventReader as MetricsRenderer
from burn_torch.train.renderer.bar import BarRenderer

__all__ = ["BarRenderer", "MetricsRenderer", "PlainRenderer", "SilentRenderer", "default_renderer"]


@_checked(error=_ConfigError)
def default_renderer(stream: TextIO | None = None, directory: str | os.PathLike[str] | None = None) -> MetricsRenderer:
    """A progress bar on a terminal that can move its cursor; else plain lines.

    On a terminal it first says how to open the dashboard on the run in the directory, if it is given one.
    """
    stream = sys.stdout if stream is None else stream
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        if directory is not None:
            stream.write(f"watch    burn-torch attach {shlex.quote(os.fspath(directory))}\n")
        return BarRenderer(stream)
    return PlainRenderer(stream)
