"""CUDA's side of recorded programs: streams, warm-up, capture, private memory.

An `Arena` belongs to one device.  Programs that share one share its private memory, its lock and its order of work:
they are variants of one step (other batch sizes), or steps that run in turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Protocol, final

import torch

from burn_torch.core.errors import DeviceError
from burn_torch.ops.value import Primitive

__all__ = ["Arena", "CudaArena", "Recording"]

Run = Callable[[], Sequence[Primitive]]


class Recording(Protocol):
    """A recorded program."""

    outputs: Sequence[Primitive]
    """A recording, and the results that each replay leaves."""
    launches: int | None
    """How many kernels a replay launches, where that is known."""

    def replay(self) -> None:
        """Submits the program again."""

    def forget(self, position: int) -> None:
        """Frees a result that nothing reads once the recordings so far have run: later ones may use its memory."""

    def free(self) -> None:
        """Gives its memory back."""


class Arena(Protocol):
    """Records programs."""

    @property
    def device(self) -> torch.device:
        """The device that it records on."""

    @property
    def lock(self) -> Any:
        """Held during a call."""

    @property
    def nbytes(self) -> int:
        """Bytes of the private memory of all recordings."""

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Around a call: on the caller's stream, behind the call before.  Raises: DeviceError inside a capture."""

    def warm_up(self, run: Callable[[], Any]) -> None:
        """Runs a program on a stream beside the caller's, before it is recorded."""

    def record(self, run: Run, writes: Sequence[torch.Tensor]) -> Recording:
        """Records what `run` launches.  `writes` are tensors of the caller that it may write to."""

    def mark(self) -> Any:
        """A point behind all work submitted so far."""


@final
class CudaArena:
    """Private memory of a GPU in which recorded programs keep their intermediate values."""

    def __init__(self, device: torch.device) -> None:
        index = device.index if device.index is not None else torch.cuda.current_device()
        self.device: Final = torch.device("cuda", index)
        self.lock: Final = threading.RLock()
        self._pool = torch.cuda.graph_pool_handle()
        self._live: Final[weakref.WeakSet[_CudaRecording]] = weakref.WeakSet()
        self._last: torch.cuda.Stream | None = None
        self._stream = -1
        self._swept = False
        self._entered: Final = _Entered(self)

    @property
    def nbytes(self) -> int:
        """See `Arena.nbytes`."""
        return sum(recording.nbytes for recording in self._live if recording.live)

    def entered(self) -> _Entered:
        """See `Arena.entered`."""
        return self._entered

    def enter(self) -> int:
        """Makes the device and the order of work ready; returns the device that was current.

        Asks torch's C functions: its Python ones cost 8 us of the 40 that a call takes.
        """
        index = self.device.index
        before: int = torch._C._cuda_exchangeDevice(index)
        stream: int = torch._C._cuda_getCurrentRawStream(index)
        if torch._C._cuda_isCurrentStreamCapturing():
            torch._C._cuda_maybeExchangeDevice(before)
            raise DeviceError(
                "a compiled program was called while a CUDA graph is being captured",
                given="a call inside torch.cuda.graph, or inside another compiled function",
                expected="a call on a stream that runs: the program is a CUDA graph of its own",
                mend="call it outside the capture, or compile the function without CUDA graphs",
            )
        if stream != self._stream:
            here = torch.cuda.current_stream()
            if self._last is not None:
                here.wait_stream(self._last)
            self._last, self._stream = here, stream
        return before

    def mark(self) -> _Mark:
        """See `Arena.mark`."""
        event = torch.cuda.Event()
        event.record()
        return _Mark(event)

    def warm_up(self, run: Callable[[], object]) -> None:
        """See `Arena.warm_up`."""
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(here)
        self._swept = False
        with torch.cuda.stream(beside), _searching():
            run()
        here.wait_stream(beside)
        torch.cuda.synchronize(self.device)

    def record(self, run: Run, writes: Sequence[torch.Tensor]) -> _CudaRecording:
        """See `Arena.record`; capturing runs nothing, and no thread measures kernels meanwhile."""
        from burn_kernels import autotune

        with autotune.still():
            return self._record(run)

    def _record(self, run: Run) -> _CudaRecording:
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        torch.cuda.synchronize(self.device)
        if not self._swept:  # once a program, not once a part of it: this takes a tenth of a second
            gc.collect()  # a graph or a stream that is collected during the capture would end it
            torch.cuda.empty_cache()  # warm-up leaves blocks that the private memory cannot use
            self._swept = True
        before = _reserved_bytes(self.device)
        if not any(recording.live for recording in self._live):
            # torch forgets private memory of which no graph is left, and would not know the handle again
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(beside), _searching(), _no_collection():
            graph, outputs = self._capture_run(run)
        launches = _kernel_nodes(graph.raw_cuda_graph())
        graph.instantiate()
        here.wait_stream(beside)
        new = _CudaRecording(graph, outputs, launches, _reserved_bytes(self.device) - before)
        self._live.add(new)
        return new

    def _capture_run(self, run: Run) -> tuple[torch.cuda.CUDAGraph, Sequence[object]]:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            outputs = run()
            graph.capture_end()
        except BaseException:
            self._abandon(graph)
            raise
        return graph, outputs

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a capture that failed.

        torch then leaves two things as they are during a capture: the allocator, which is told, and the random
        generator of the device, which a capture that succeeds sets right.
        """
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(self.device.index, self._pool)
        with contextlib.suppress(RuntimeError):
            torch.cuda.synchronize(self.device)
        self._pool = torch.cuda.graph_pool_handle()
        spare, x = torch.cuda.CUDAGraph(), torch.zeros(1, device=self.device)
        with contextlib.suppress(RuntimeError):
            spare.capture_begin(capture_error_mode="thread_local")
            x.add_(1)
            spare.capture_end()


class _Entered:
    """Around a call, under the arena's lock.  Nothing enters twice: a program calls no other."""

    def __init__(self, arena: CudaArena) -> None:
        self._arena: Final = arena
        self._before = 0

    def __enter__(self) -> None:
        self._before = self._arena.enter()

    def __exit__(self, *_: object) -> None:
        torch._C._cuda_maybeExchangeDevice(self._before)


class _Mark:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event: Final = event

    def wait(self) -> None:
        self._event.synchronize()


class _CudaRecording:
    def __init__(
        self, graph: torch.cuda.CUDAGraph, outputs: Sequence[Primitive], launches: int | None, nbytes: int
    ) -> None:
        self._graph: Final = graph
        self._results: Final = list(outputs)
        self.outputs: Sequence[Primitive] = self._results
        self.launches = launches
        self.nbytes: Final = nbytes
        self.live = True
        self.replay: Final[Callable[[], None]] = graph.replay

    def forget(self, position: int) -> None:
        """See `Recording.forget`: the allocator hands out the memory again, within this pool."""
        self._results[position] = None

    def free(self) -> None:
        if self.live:
            self.live = False
            self._results.clear()
            self._graph.reset()


@contextlib.contextmanager
def _searching() -> Iterator[None]:
    """cuDNN measures its algorithms at the first call of each shape, and keeps the fastest for the later ones."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _reserved_bytes(device: torch.device) -> int:
    return int(torch.cuda.memory_stats(device).get("reserved_bytes.all.current", 0))


# -- what a graph holds ---------------------------------------------------------------------------------
@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:  # ROCm
        return None


def _kernel_nodes(graph: int) -> int | None:
    """How many kernels a CUDA graph launches, read off it by the driver; None where there is no such driver."""
    driver = _driver()
    if driver is None:
        return None
    count, handle = ctypes.c_size_t(0), ctypes.c_void_p(graph)
    if driver.cuGraphGetNodes(handle, None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)):
        return None
    kernels = 0
    for node in nodes:
        kind = ctypes.c_int(-1)
        driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
        kernels += kind.value == 0  # CU_GRAPH_NODE_TYPE_KERNEL
    return kernels
