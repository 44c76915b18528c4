"""Phases: doors that share a process.  Each has an environment of its own, and a part of the programs and the time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PHASES", "Phase"]


@dataclass(frozen=True)
class Phase:
    """Some doors in processes of their own.

    missing      why this machine cannot run it; None where it can
    environment  of its processes
    programs     for each program of the first phase
    time         the part of all seconds
    """

    name: str
    missing: Callable[[], str | None]
    environment: dict[str, str] = field(default_factory=dict)
    programs: float = 1.0
    time: float = 1.0


def _nothing() -> str | None:
    return None


PHASES: Final = {
    phase.name: phase
    for phase in (Phase("eager", _nothing, {"TRITON_INTERPRET": "0", "BURN_TORCH_FUSION": "0"}, 1.0, 0.6),)
}
del os, shutil
