"""The process that `compiling` asks for kernels: one request a line, one answer a line.

    python -m burn_kernels.autotune.compile_worker '{"backend": "cuda", "arch": 90, ..., "launchers": false}'
    {"op": "softmax", "facts": {...}, "config": {...}, "number": 0}        ->      {"why_not": ""}

It never touches a GPU: Triton is told of a driver that only says for which machine to compile.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

import burn_kernels  # noqa: F401  # every family, so that every tunable is registered
from burn_kernels.autotune.compiling import launches
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.jitted import settle
from burn_kernels.launch import Machine, extra_options

__all__ = ["main"]

NICE = 10
"""Behind the process that measures."""


class Elsewhere:
    """The driver that Triton asks while it compiles, for a machine that need not be there."""

    def __init__(self, machine: Machine) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(machine.backend, machine.arch, machine.lanes)

    def get_current_target(self) -> object:
        """The machine."""
        return self._target

    def get_current_device(self) -> int:
        """Any number will do."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Nothing is launched on it."""
        return 0


def compiled(request: dict[str, Any], machine: Machine) -> Any:
    """Compiles what is asked for, exactly as the launch would; Triton keeps it in its cache."""
    tunable, problem = TUNABLES[request["op"]], request["facts"]
    facts = Facts(
        tuple(problem["free"]),
        tuple(problem["exact"]),
        getattr(torch, problem["dtype"]),
        problem["align"],
        problem["layout"],
        problem["flags"],
    )
    (launched,) = launches(tunable, facts, [tunable.parse(request["config"])], machine)
    launch = launched[request["number"]]
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    options |= extra_options(machine, launch.together, launch.registers, launch.early, launch.contracts)
    settle(launch.kernel)
    return launch.kernel.warmup(*launch.arguments, grid=launch.grid, **options, **launch.constants)


def main() -> None:
    """Answers until the input ends."""
    about = json.loads(sys.argv[1])
    launchers = about.pop("launchers")
    machine = Machine(**about)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a compiler says is no answer
    os.nice(NICE)
    from triton.runtime import driver

    driver.set_active(Elsewhere(machine))  # no whole driver, for nothing is launched
    for line in sys.stdin:
        why_not = ""
        try:
            answer = compiled(json.loads(line), machine)
            if launchers:
                _launcher(machine)(answer.src, answer.metadata)
        except Exception as error:  # the answer says so; who launches it meets it again, and names the candidate
            why_not = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0][:300]}"
        answers.write(json.dumps({"why_not": why_not}) + "\n")
        answers.flush()


def _launcher(machine: Machine) -> Any:
    """The builder of the C function that launches a kernel; Triton keeps that in its cache too."""
    if machine.backend == "cuda":
        from triton.backends.nvidia.driver import CudaLauncher

        return CudaLauncher
    from triton.backends.amd.driver import HIPLauncher

    return HIPLauncher


if __name__ == "__main__":
    main()
