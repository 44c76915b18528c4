"""Torch's profiler, as the tests use it."""

from __future__ import annotations

import torch

__all__ = ["profiling"]


def profiling(*activities: torch.profiler.ProfilerActivity) -> torch.profiler.profile:
    """A profile of the block, by default of what runs on a GPU.

    It keeps all events: torch 2.11 warns whoever does not say whether it should, even where there is one cycle.
    """
    wanted = activities or (torch.profiler.ProfilerActivity.CUDA,)
    return torch.profiler.profile(activities=wanted, acc_events=True)
