"""Phases: doors that share a process.  Each has an environment of its own, and a part of the programs and the time."""

from __future__ import annotations

import importlib.util
import os
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

    def environment_of(self, place: int) -> dict[str, str]:
        """The environment of one of its processes: those of the phase cuda take the devices in turn."""
        if self.name != "cuda":
            return self.environment
        devices = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
        if not devices:
            import torch

            devices = [str(i) for i in range(torch.cuda.device_count())]
        return {**self.environment, "CUDA_VISIBLE_DEVICES": devices[place % len(devices)] if devices else ""}


_ALL: Final = {"OMP_NUM_THREADS": "1", "BURN_TORCH_FUSION": "0"}


def _no_compiler() -> str | None:
    from burn_torch.backend.libtorch.generated.c_kernels import compiler

    return None if compiler() else "there is no C compiler with OpenMP"


def _no_triton() -> str | None:
    return None if importlib.util.find_spec("triton") else "there is no Triton"


def _no_gpu() -> str | None:
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asks without starting CUDA: processes are forked
    import torch

    return None if torch.cuda.is_available() else "torch finds no CUDA device"


PHASES: Final = {
    phase.name: phase
    for phase in (
        Phase("eager", lambda: None, {**_ALL, "TRITON_INTERPRET": "0"}, 1.0, 0.55),
        Phase("c", _no_compiler, {**_ALL, "TRITON_INTERPRET": "0"}, 0.15, 0.25),
        Phase("interpreter", _no_triton, {**_ALL, "TRITON_INTERPRET": "1"}, 0.015, 0.2),
        Phase("cuda", _no_gpu, {**_ALL, "TRITON_INTERPRET": "0"}, 0.1, 1.0),
    )
}
"""200,000 programs through the first are 30,000 through C and 3,000 through the interpreter."""
