"""Compiles the kernels of a program ahead of their first launches, several at once, in processes of their own.

Triton compiles one kernel after the other, mostly in Python and a third to two seconds each, and has gcc compile what
launches it.  If three or more of a program's kernels are in no cache, workers (`compile_worker.py`) fill Triton's cache
on disk; the launches find them there, under the very keys that Triton itself computes.  Nothing depends on it: what a
worker did not compile is compiled where it is launched, as ever.

`BURN_TORCH_COMPILE_WORKERS` says how many processes; 0 for none.  The default is one less than there are processors, 8
at most.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from burn_torch.backend.libtorch.generated import compile_worker
from burn_torch.core.errors import ConfigError

__all__ = ["VARIABLE", "compile_ahead", "workers"]

VARIABLE: Final = "BURN_TORCH_COMPILE_WORKERS"

_LEAST: Final = 3
"""Kernels that are worth starting processes for: 0.3 s until they begin."""
_MOST: Final = 8
_PATIENCE_S: Final = 30.0
"""Kernels that take longer altogether are compiled where they are launched; no worker outlives this."""

_COMMAND: Final = (sys.executable, "-P", str(compile_worker.__file__))
"""-P: the folder of the file hides no module."""

_asked: Final[set[str]] = set()
"""Kernels that workers were asked for: once each."""

_useless: Final = threading.Event()
"""Set where workers compiled nothing of what they were asked for: they are not asked again."""


def workers() -> int:
    """How many processes may compile at once.  Raises: ConfigError for a variable that is no number."""
    word = os.environ.get(VARIABLE, "").strip()
    if not word:
        return min(_MOST, len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if not word.isdecimal():
        raise ConfigError(
            f"{VARIABLE} says how many processes compile kernels ahead",
            given=f"{VARIABLE}={word}",
            expected="a whole number, 0 for none",
            mend=f"set one, or unset {VARIABLE}",
        )
    return int(word)


def compile_ahead(kernels: Sequence[object]) -> int:
    """Compiles what no cache has of these kernels on CUDA devices; how many were compiled.

    Kernels are taken for inputs without gaps at aligned addresses, which is what programs mostly have.
    """
    kernels = [kernel for kernel in kernels if _place(kernel).startswith("cuda")]
    if len(kernels) < _LEAST or _useless.is_set() or (count := workers()) < 2 or not _is_usual():
        return 0
    jobs: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        try:
            jobs.update((job["hash"], job) for job in _missing(kernel))
        except Exception:  # whatever is wrong with it, its launch says
            continue
    _asked.update(jobs)
    if len(jobs) < _LEAST:
        return 0
    done = compiled_at_once(list(jobs.values()), min(count, len(jobs)))
    if not done:
        _useless.set()
    return done


def _place(kernel: Any) -> str:
    return next((spec.place for _, spec in kernel.body.inputs if hasattr(spec, "place")), "")


def _is_usual() -> bool:
    """Asks whether launches will be the default ones: no hook watches, no graph records, no tuner measures."""
    from burn_kernels._triton import AVAILABLE, INTERPRETED
    from burn_kernels.autotune import levels
    from burn_kernels.launch import seen

    return AVAILABLE and not INTERPRETED and not seen() and levels.level() not in ("on", "full")


# -- what is missing ---------------------------------------------------------------------------------------
def _missing(kernel: Any) -> Iterator[dict[str, Any]]:
    """The job of a kernel that is neither in this process nor on the disk."""
    import torch

    import burn_kernels

    variant = kernel.variant((None,) * len(kernel.body.inputs))
    lows = (0,) * len(variant.kernel.inputs)
    index = torch.device(_place(kernel)).index or 0
    with torch.cuda.device(index), _collect_compilations() as calls:
        variant.without_launch(lows, variant.tiles_at(lows, index))
    for function, target, specialization in calls:
        job = job_of(function, target, specialization)
        if job is not None:
            yield job | {"kernels": str(Path(burn_kernels.__file__).parent)}


def job_of(function: Any, target: Any, specialization: str) -> dict[str, Any] | None:
    """Returns what a worker must know of a kernel; None where the disk has it, or a worker was asked for it before."""
    from triton.compiler import make_backend
    from triton.runtime.cache import get_cache_manager, triton_key

    source, options = compile_worker.source_of(function, json.loads(specialization), make_backend(target))
    name = compile_worker.hash_of(source, target, options)
    if name in _asked or get_cache_manager(name).get_group(f"{source.name[:150]}.json"):
        return None
    path = function.fn.__code__.co_filename
    return {
        "hash": name, "triton": triton_key(), "path": path, "module": function.fn.__module__, "name": function.__name__,
        "target": [target.backend, target.arch, target.warp_size], "specialization": specialization,
    }  # fmt: skip


@contextmanager
def _collect_compilations() -> Iterator[list[tuple[object, object, str]]]:
    """A block in which Triton says what it would compile on this thread, and does not."""
    from triton import knobs
    from triton.runtime import driver

    calls: list[tuple[Any, Any, str]] = []
    here, before = threading.get_ident(), knobs.runtime.jit_cache_hook

    def hook(**known: Any) -> object:
        if threading.get_ident() != here:
            return None if before is None else before(**known)
        target = driver.active.get_current_target()
        calls.append((known["fn"].jit_function, target, known["compile"]["specialization_data"]))
        return True

    knobs.runtime.jit_cache_hook = hook
    try:
        yield calls
    finally:
        knobs.runtime.jit_cache_hook = before


# -- processes --------------------------------------------------------------------------------------------
def compiled_at_once(
    jobs: Sequence[dict[str, object]], count: int, patience_s: float = _PATIENCE_S, command: Sequence[str] = _COMMAND
) -> int:
    """Lets `count` processes do these jobs; how many were done.  No process is left when it returns or raises."""
    from burn_kernels.workers import Workers

    with Workers(command, count, patience_s=patience_s, quiet=True) as workers:
        ended, _ = wait([workers.submit(job) for job in jobs], timeout=patience_s)
        answers = [future.result() for future in ended]
    return sum(answer is not None and not answer.why_not for answer in answers)
