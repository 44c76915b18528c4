"""Launching a compiled kernel again, without Triton's search for it.

To find the kernel that it compiled for a call, Triton looks at the type, value and alignment of every argument, writes
them into a text, and has the driver confirm every pointer: 7.5 us for three tensors on the machine of
benchmarks/notes/fusion.md, of which 0.4 us pass the arguments on.  Who knows that a call is of a kind that was compiled
before hands the same arguments to the same function of the driver.

    compiled = kernel[grid](x, y, BLOCK=1024)               # the first call, by Triton
    ready = prepared(compiled, device_index)
    if not ready.watched(): ready.submit(*grid, stream, *ready.head, x.data_ptr(), y.data_ptr(), 1024)

The kind of a call is what Triton distinguishes: of pointers whether 16 divides them, of integers that it may write into
the code their value, of all others whether 32 bits hold them.  Arguments are all of the kernel's, constants too, in its
order.  On CUDA alone: on ROCm Triton looks at the size of tensors too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

__all__ = ["Prepared", "prepared"]


@final
@dataclass(frozen=True)
class Prepared:
    """A compiled kernel on one device.

    submit   (x, y, z programs, stream, *head, *arguments); pointers are tensors or whole numbers
    watched  whether somebody (a profiler) wants to be told of launches, which only Triton's own do
    """

    submit: Callable[..., None]
    head: tuple[Any, ...]
    watched: Callable[[], bool]
    device: int


def prepared(compiled: Any, device: int) -> Prepared | None:
    """What launches a kernel that Triton compiled and loaded on a device; None for what must go through Triton.

    Triton's interpreter compiles nothing, and a kernel with memory of its own gets it from Triton.
    """
    metadata = getattr(compiled, "metadata", None)
    target = getattr(metadata, "target", None)
    if target is None or target.backend != "cuda" or getattr(compiled, "function", None) is None:
        return None
    watched = _watchers()
    if watched is None:
        return None
    run, packed, function = compiled.run, compiled.packed_metadata, compiled.function
    if run.__class__.__name__ != "CudaLauncher":
        return None
    if getattr(run, "global_scratch_size", 1) or getattr(run, "profile_scratch_size", 1):
        return None
    hooks = (None, None, None)
    submit: Any = getattr(run, "launch", None)
    if _takes_pointers_at_once(submit, run):
        flags = (run.launch_cooperative_grid, run.launch_pdl)
        return Prepared(submit, (function, *flags, None, None, packed, *hooks), watched, device)
    return Prepared(run, (function, packed, *hooks), watched, device)


def _takes_pointers_at_once(submit: Any, run: Any) -> bool:
    """Whether `submit` is the C function of Triton 3.6, whose order of arguments is known."""
    import triton

    known = triton.__version__.startswith("3.6.") and type(submit) is type(len)
    return known and hasattr(run, "launch_cooperative_grid") and hasattr(run, "launch_pdl")


def _watchers() -> Callable[[], bool] | None:
    """What tells whether launches are watched; None where this Triton has other means."""
    from triton import knobs

    runtime = knobs.runtime
    before: Any = getattr(runtime, "launch_enter_hook", None)
    after: Any = getattr(runtime, "launch_exit_hook", None)
    if not hasattr(before, "calls") or not hasattr(after, "calls"):
        return None

    def watched() -> bool:
        return bool(before.calls or after.calls)

    return watched
