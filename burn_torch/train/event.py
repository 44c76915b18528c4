"""The events of a run, under the names of training; they live in `burn_torch.monitor.event`, which needs no torch."""

from __future__ import annotations

from burn_torch.monitor.event import *  # noqa: F403  # every name of it
from burn_torch.monitor.event import __all__ as __all__
