"""The parts that every launcher shares: where a call runs, the checks at the border, and the launch itself.

A launch can be recorded instead of run (`recording`): then any tensor will do, those of the meta device too, and what
would have been launched can be compiled ahead of time for a machine that is not there.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from burn_kernels._triton import AVAILABLE, INTERPRETED
from burn_kernels.errors import KernelDeviceError, KernelDTypeError, KernelLimitError, KernelShapeError
from burn_kernels.interpreting import launch_interpreted
from burn_kernels.jitted import settle
from burn_kernels.prepared import kind_of, known, learn

__all__ = [
    "Launch",
    "Machine",
    "begins_early",
    "contiguous",
    "describe",
    "fill",
    "launch",
    "machine_at",
    "machine_of",
    "next_power",
    "observing",
    "recorded",
    "recording",
    "rows_key",
    "rows_of",
    "runs_kernel",
    "seen",
    "undisturbed",
    "unobserved",
    "warn_without_triton",
]

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
"""The types that kernels take; float64 is for references."""


# -- machines ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Machine:
    """The properties of a machine on which the choice of a config depends."""

    backend: str
    """`cuda`, `hip`, or `interpreter`."""
    arch: int | str
    """90 for Hopper, `gfx942` for MI300."""
    processors: int
    """Streaming multiprocessors or compute units."""
    lanes: int = 32
    """Threads of a warp."""


H200 = Machine("cuda", 90, 132)
A100 = Machine("cuda", 80, 108)
MI300X = Machine("hip", "gfx942", 304, 64)
_INTERPRETER = Machine("interpreter", 0, 2)


@functools.lru_cache(maxsize=64)
def machine_at(index: int) -> Machine:
    """The machine that is the GPU with this number."""
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Machine("hip", properties.gcnArchName.split(":")[0], properties.multi_processor_count, 64)
    return Machine("cuda", 10 * properties.major + properties.minor, properties.multi_processor_count)


def machine_of(x: torch.Tensor) -> Machine:
    """The machine that a kernel on x runs on; of a recording, the one it was opened with."""
    recorder = _RECORDER.get()
    if recorder is not None:
        return recorder.machine
    if x.is_cuda:
        return machine_at(x.get_device())
    return _INTERPRETER


@functools.lru_cache(maxsize=1)
def warn_without_triton() -> None:
    """Says once that no kernel runs."""
    warnings.warn(
        "burn_kernels: Triton is not installed, so plain torch computes what kernels would", RuntimeWarning, 4
    )


def runs_kernel(op: str, *tensors: torch.Tensor) -> bool:
    """Tells if a kernel computes on these tensors, or the reference does (CPU tensors, or no Triton).

    Raises: KernelLimitError for element types that no kernel takes, on a device that runs kernels.
    """
    if _RECORDER.get() is None:
        first = tensors[0]
        if first.is_cuda:
            if not AVAILABLE:
                warn_without_triton()
                return False
        elif not (INTERPRETED and first.device.type == "cpu"):
            return False
    for x in tensors:
        if x.dtype not in FLOATS:
            raise KernelLimitError(
                f"{op}: the kernel does not compute in this element type",
                given=", ".join(str(x.dtype) for x in tensors if x.dtype not in FLOATS),
                expected="float32, float16 or bfloat16",
                mend="cast the tensors, or call the reference, which takes float64",
            )
    return True


# -- checks --------------------------------------------------------------------------------------------
def describe(tensors: Mapping[str, torch.Tensor | None]) -> str:
    """Names with shapes, element types and devices, for messages."""
    return ", ".join(
        f"{name} {tuple(x.shape)} {str(x.dtype).removeprefix('torch.')} {x.device}"
        for name, x in tensors.items()
        if x is not None
    )


def check(
    op: str, tensors: Mapping[str, torch.Tensor | None], shapes: Mapping[str, Sequence[int]], *, alike: Sequence[str]
) -> None:
    """Checks that all lie on one device, have the shapes given, and those in `alike` one float type.

    Raises: KernelShapeError, KernelDTypeError, KernelDeviceError, each with all that was given.
    """
    there = {name: x for name, x in tensors.items() if x is not None}
    wrong = [name for name, shape in shapes.items() if name in there and tuple(there[name].shape) != tuple(shape)]
    if wrong:
        raise KernelShapeError(
            f"{op}: {' and '.join(wrong)} {'has' if len(wrong) == 1 else 'have'} another shape than fits",
            given=describe(there),
            expected=", ".join(f"{name} {tuple(shapes[name])}" for name in wrong),
            mend="pass the tensors that belong together",
        )
    # lists: a generator is a call for each of its values
    kinds = {there[name].dtype for name in alike if name in there}
    if len(kinds) > 1 or [kind for kind in kinds if not kind.is_floating_point]:
        raise KernelDTypeError(
            f"{op}: the element types do not fit",
            given=describe(there),
            expected=f"one float type for {', '.join(name for name in alike if name in there)}",
            mend="cast with x.to(dtype)",
        )
    device = next(iter(there.values())).device
    if [x for x in there.values() if x.device != device]:
        raise KernelDeviceError(
            f"{op}: the tensors lie on different devices",
            given=describe(there),
            expected=f"all on {device}",
            mend="move them with x.to(device)",
        )


def require_axis(op: str, x: torch.Tensor) -> None:
    """Raises KernelShapeError where x has no axis to work along."""
    if x.dim() < 1:
        raise KernelShapeError(
            f"{op}: the input has no axis",
            given=describe({"x": x}),
            expected="x (*batch, cols)",
            mend="add an axis with x.unsqueeze(0)",
        )


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """x as (rows, cols) with neighbours in memory along cols; a view where the layout allows it, else a copy."""
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(1) == 1 or flat.shape[1] == 1 else flat.contiguous()


def rows_key(*flats: torch.Tensor, flags: str = "") -> tuple[object, ...]:
    """The key under which a choice for tensors (rows, cols) is remembered: the arguments of `row_facts`."""
    first, address, strides = flats[0], 0, []
    for flat in flats:
        address |= flat.data_ptr()
        strides.append(flat.stride(0))
    return first.dtype, *first.shape, tuple(strides), address & 15, flags


def contiguous(*tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """The tensors without gaps; None where there is none."""
    return tuple([None if x is None else x.contiguous() for x in tensors])


def fill(number: float, *tensors: torch.Tensor | None) -> None:
    """Writes a number to every element of the tensors that are there: the results of an empty call."""
    for x in tensors:
        if x is not None:
            x.fill_(number)


def next_power(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> [next_power(n) for n in (1, 2, 3, 5120)]
    [1, 2, 4, 8192]
    """
    return 1 << max(n - 1, 0).bit_length()


def ceil_div(n: int, step: int) -> int:
    """How many steps cover n."""
    return -(-n // step)


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which references compute: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


# -- launches ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Launch:
    """One launch as it would have run."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int
    together: int = False
    registers: int = 0
    early: int = False
    contracts: int = True


@dataclass(frozen=True)
class _Recorder:
    machine: Machine
    launches: list[Launch]


_RECORDER: ContextVar[_Recorder | None] = ContextVar("recorder", default=None)


def recorded() -> Machine | None:
    """The machine for which launches are recorded just now, if they are."""
    recorder = _RECORDER.get()
    return None if recorder is None else recorder.machine


def seen() -> bool:
    """Tells if launches are recorded or observed just now: then all must go through `launch`."""
    return bool(_OBSERVERS) or _RECORDER.get() is not None


def undisturbed(settled: Callable[[], bool], watchers: tuple[Any, Any]) -> Callable[[], bool]:
    """The function that tells if a prepared launch may go on as it did: `settled` says so, nobody records or observes
    launches, and nobody has asked Triton to be told of them.
    """
    before, after = watchers
    recorder, observers = _RECORDER.get, _OBSERVERS

    def holds() -> bool:
        return settled() and not (observers or before.calls or after.calls) and recorder() is None

    return holds


@contextlib.contextmanager
def recording(machine: Machine) -> Iterator[list[Launch]]:
    """Collects what launchers would launch on `machine`; nothing runs, and results hold nothing."""
    recorder = _Recorder(machine, [])
    token = _RECORDER.set(recorder)
    try:
        yield recorder.launches
    finally:
        _RECORDER.reset(token)


_OBSERVERS: list[list[Launch]] = []
_UNOBSERVED: ContextVar[bool] = ContextVar("unobserved", default=False)


@contextlib.contextmanager
def observing() -> Iterator[list[Launch]]:
    """Collects what is launched while it runs as ever, in all threads: those of a backward too, not those of trials."""
    launches: list[Launch] = []
    _OBSERVERS.append(launches)
    try:
        yield launches
    finally:
        _OBSERVERS[:] = [other for other in _OBSERVERS if other is not launches]


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Hides what this thread launches from `observing`: trials and timings are nobody's computation."""
    token = _UNOBSERVED.set(True)
    try:
        yield
    finally:
        _UNOBSERVED.reset(token)


_NOTHING: Mapping[str, object] = MappingProxyType({})


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    like: torch.Tensor,
    *arguments: Any,
    warps: int,
    stages: int = 1,
    together: Any = False,
    registers: Any = 0,
    early: Any = False,
    contracts: Any = True,
    **constants: Any,
) -> Any:
    """Runs a kernel on the device of `like`; `warps` counts 32 threads each, whatever the machine's warp is.

    together    whether all programs run at once, or the launch fails: for those that wait for each other; CUDA only
    registers   the most that a thread takes on CUDA, 0 for the compiler's choice

    early       whether programs may begin before the launch before has ended, whose results they wait for themselves
                (`wait_for_last`): where `begins_early` says that a machine can
    contracts   whether the compiler may take a product into a sum without rounding it; False where a product that is
                written or reduced in one place and subtracted in another must be one number

    All are of any type for callers that pass constants of one type by name.

    Returns Triton's compiled kernel; None in the interpreter, and where the launch is recorded instead.
    """
    recorder = _RECORDER.get()
    machine = machine_of(like)
    warps = max(1, 32 * warps // machine.lanes)
    for observer in () if _UNOBSERVED.get() else _OBSERVERS:
        # without the tensors, which this should not keep alive
        observer.append(Launch(kernel, grid, (), constants, warps, stages, together, registers, early, contracts))
    if recorder is not None:
        recorder.launches.append(
            Launch(kernel, grid, arguments, constants, warps, stages, together, registers, early, contracts)
        )
        return None
    options = extra_options(machine, together, registers, early, contracts)
    if not like.is_cuda:
        return launch_interpreted(kernel, grid, arguments, num_warps=warps, num_stages=stages, **options, **constants)
    index = like.get_device()
    if index != torch.cuda.current_device():
        with torch.cuda.device(index):
            settle(kernel)
            return kernel[grid](*arguments, num_warps=warps, num_stages=stages, **options, **constants)
    return _launch_here(kernel, grid, index, arguments, warps, stages, constants, options)


def begins_early(machine: Machine) -> bool:
    """Tells if a launch can begin before the one before it has ended: Hopper and later."""
    return machine.backend == "cuda" and int(machine.arch) >= 90


def extra_options(
    machine: Machine, together: int, registers: int, early: int = False, contracts: int = True
) -> dict[str, Any]:
    """The options of Triton beside warps and stages."""
    options: dict[str, Any] = {}
    if early:
        options["launch_pdl"] = True
    if together:
        options["launch_cooperative_grid"] = True
    if registers and machine.backend == "cuda":
        options["maxnreg"] = registers
    if not contracts:
        options["enable_fp_fusion"] = False
    return options


def _launch_here(
    kernel: Any,
    grid: tuple[int, ...],
    index: int,
    arguments: tuple[Any, ...],
    warps: int,
    stages: int,
    constants: dict[str, Any],
    options: Mapping[str, Any] = _NOTHING,
) -> object:
    """On the current device: by the shortest way that is known, see `prepared.py`."""
    kind = kind_of(kernel, index, arguments, (warps, stages, *options.items(), *constants.items()))
    if kind is None:
        settle(kernel)
        return kernel[grid](*arguments, num_warps=warps, num_stages=stages, **options, **constants)
    compiled = known(kind, grid, _stream_at(index))
    if compiled is None:
        settle(kernel)
        compiled = kernel[grid](*arguments, num_warps=warps, num_stages=stages, **options, **constants)
        learn(kernel, kind, compiled, index, constants)
    return compiled


def _stream_at(index: int) -> int:
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    return stream
