"""Launching a compiled kernel again, without Triton's search for it.

To find the kernel that it compiled for a call, Triton looks at the type, value and alignment of every argument, writes
them into a text, and has the driver confirm every pointer: 7.5 us for three tensors on the machine of
benchmarks/notes/fusion.md, of which 0.4 us pass the arguments on.  Who knows that a call is of a kind that was compiled
before hands the same arguments to the same function of the driver.

    compiled = kernel[grid](x, y, BLOCK=1024)               # the first call, by Triton
    ready = prepared(compiled, device_index)
    if not ready.watched(): ready.submit(*grid, stream, *ready.head, x.data_ptr(), y.data_ptr(), 1024)

The kind of a call is what Triton distinguishes: of pointers whether 16 divides them, of integers that it may write into
the code their value, of all others whether 32 bits hold them.  A named tuple of integers is its own kind, which costs
less than its members one by one; Triton launches other tuples itself.  Arguments are all of the kernel's, constants
too, in its order.  On CUDA alone: on ROCm Triton looks at the size of tensors too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, get_type_hints

import torch

__all__ = ["Kind", "Prepared", "holds_integers", "kind_of", "known", "learn", "prepared"]


@final
@dataclass(frozen=True)
class Prepared:
    """A compiled kernel on one device.

    submit   (x, y, z programs, stream, *head, *arguments); pointers are tensors or whole numbers
    watchers what Triton tells of launches: somebody (a profiler) may have asked, and only Triton's own tell
    """

    submit: Callable[..., None]
    head: tuple[Any, ...]
    watchers: tuple[Any, Any]
    device: int
    by_c: bool = False
    """True if `submit` is Triton's C function: `head` begins with the driver's function, and whether programs wait for
    each other or for an earlier launch; its sixth part are warps, programs of a cluster, and bytes of shared memory."""

    def watched(self) -> bool:
        """Tells if a hook is called at launches."""
        before, after = self.watchers
        return bool(before.calls or after.calls)


def prepared(compiled: Any, device: int) -> Prepared | None:
    """The function that launches a kernel loaded on a device; None if Triton itself must launch it.

    Triton's interpreter compiles nothing, and a kernel with memory of its own gets it from Triton.
    """
    metadata = getattr(compiled, "metadata", None)
    target = getattr(metadata, "target", None)
    if target is None or target.backend != "cuda" or getattr(compiled, "function", None) is None:
        return None
    watchers = _watchers()
    if watchers is None:
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
        return Prepared(submit, (function, *flags, None, None, packed, *hooks), watchers, device, by_c=True)
    return Prepared(run, (function, packed, *hooks), watchers, device)


def _takes_pointers_at_once(submit: object, run: object) -> bool:
    """Tells if `submit` is the C function of Triton 3.6, whose order of arguments is known."""
    import triton

    known = triton.__version__.startswith("3.6.") and type(submit) is type(len)
    return known and hasattr(run, "launch_cooperative_grid") and hasattr(run, "launch_pdl")


def _watchers() -> tuple[object, object] | None:
    """The hooks that Triton calls before and after a launch; None where this Triton has other means."""
    from triton import knobs

    runtime = knobs.runtime
    before: Any = getattr(runtime, "launch_enter_hook", None)
    after: Any = getattr(runtime, "launch_exit_hook", None)
    return (before, after) if hasattr(before, "calls") and hasattr(after, "calls") else None


# -- launches by their kind ----------------------------------------------------------------------------
MOST_KNOWN = 4096
"""Kinds that are remembered; past it all are forgotten: a size that differs in each call fills it."""


@final
class Kind:
    """The properties of a call that Triton distinguishes, and its arguments as the driver takes them."""

    __slots__ = ("arguments", "key")

    def __init__(self, key: tuple[Any, ...], arguments: list[object]) -> None:
        self.key, self.arguments = key, arguments


_known: dict[tuple[object, ...], tuple[Prepared, tuple[object, ...], object]] = {}
_skipped: dict[int, tuple[object, tuple[bool, ...]]] = {}


def kind_of(kernel: Any, device: int, arguments: Sequence[Any], how: tuple[Any, ...]) -> Kind | None:
    """The kind of a call; None for one that must go through Triton.

    how   what else is in its key: warps, stages, constants
    """
    skipped = _skipped.get(id(kernel))
    if skipped is None:
        if not hasattr(kernel, "params") or getattr(kernel, "pre_run_hooks", True):
            return None
        skipped = _skipped[id(kernel)] = (kernel, tuple(p.do_not_specialize for p in kernel.params))
    key: list[object] = [id(kernel), device]
    numbers: list[Any] = []
    address = 0
    for x, skip in zip(arguments, skipped[1], strict=False):  # constants come after these
        kind = x.__class__
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            at = x.data_ptr()
            address |= at
            key.append(x.dtype)
            numbers.append(at)
        elif kind is int:
            key.append(-0x80000000 <= x < 0x80000000 if skip else x)
            numbers.append(x)
        elif kind is float or x is None:
            key.append(kind)
            numbers.append(x)
        elif holds_integers(kind) and not skip:
            key.append(x)
            numbers.append(x)
        else:
            return None
    if address & 15:
        return None
    key.append(how)
    return Kind(tuple(key), numbers)


@functools.lru_cache(maxsize=256)
def holds_integers(group: type) -> bool:
    """Tells if a class is one of named tuples that declares each member as an integer."""
    fields: tuple[str, ...] | None = getattr(group, "_fields", None)
    if not fields or not issubclass(group, tuple):
        return False
    try:
        hints = get_type_hints(group)
    except NameError:  # a hint that cannot be resolved from the class's module
        return False
    return all(hints.get(field) is int for field in fields)


def known(kind: Kind, grid: tuple[int, ...], stream: int) -> Any:
    """Launches a call whose kind is known and gives the compiled kernel; None where Triton must launch it."""
    prepared = _known.get(kind.key)
    if prepared is None or prepared[0].watched():
        return None
    ready, constants, compiled = prepared
    x, y, z = (*grid, 1, 1)[:3]
    ready.submit(x, y, z, stream, *ready.head, *kind.arguments, *constants)
    return compiled


def learn(kernel: Any, kind: Kind, compiled: object, device: int, constants: Mapping[str, object]) -> None:
    """Remembers what Triton compiled for a kind of call."""
    rest = kernel.arg_names[len(kind.arguments) :]
    ready = prepared(compiled, device) if set(rest) == set(constants) else None
    if ready is None:
        return
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[kind.key] = (ready, tuple(constants[name] for name in rest), compiled)
