"""CUDA's side of recorded programs: streams, warm-up, capture, private memory.

An `Arena` belongs to one device.  Programs that share one share its private memory, its lock and its order of work:
they are variants of one step (other batch sizes), or steps that run in turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, final

import torch

from burn_torch.core.errors import DeviceError, explain

__all__ = ["Arena", "CudaArena", "Recording"]

Run = Callable[[], Sequence[Any]]


class Recording(Protocol):
    """A recorded program."""

    outputs: Sequence[Any]
    """Where each replay leaves its results."""
    launches: int | None
    """How many kernels a replay launches, where that is known."""

    def replay(self) -> None:
        """Submits the program again."""

    def free(self) -> None:
        """Gives its memory back."""


class Arena(Protocol):
    """What programs are recorded with."""

    device: torch.device
    lock: Any

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
        self.nbytes = 0
        self._pool: Final = torch.cuda.graph_pool_handle()
        self._last: torch.cuda.Stream | None = None

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """See `Arena.entered`."""
        if torch.cuda.is_current_stream_capturing():
            raise DeviceError(
                explain(
                    "a compiled program was called while a CUDA graph is being captured",
                    given="a call inside torch.cuda.graph, or inside another compiled function",
                    expected="a call on a stream that runs: the program is a CUDA graph of its own",
                    mend="call it outside the capture, or compile the function without CUDA graphs",
                )
            )
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            if self._last is None or self._last != stream:
                if self._last is not None:
                    stream.wait_stream(self._last)
                self._last = stream
            yield

    def mark(self) -> _Mark:
        """See `Arena.mark`."""
        event = torch.cuda.Event()
        event.record()
        return _Mark(event)

    def warm_up(self, run: Callable[[], Any]) -> None:
        """See `Arena.warm_up`."""
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(here)
        with torch.cuda.stream(beside), _searching():
            run()
        here.wait_stream(beside)
        torch.cuda.synchronize(self.device)

    def record(self, run: Run, writes: Sequence[torch.Tensor]) -> _CudaRecording:
        """See `Arena.record`; capturing runs nothing."""
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        torch.cuda.synchronize(self.device)
        gc.collect()  # a graph or a stream that is collected during the capture would end it
        torch.cuda.empty_cache()  # warm-up leaves blocks that the private memory cannot use
        before = _reserved(self.device)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.stream(beside), _searching(), _no_collection():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = run()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the capture has failed; this ends it
                    graph.capture_end()
                raise
            graph.capture_end()
        launches = _kernel_nodes(graph.raw_cuda_graph())
        graph.instantiate()
        here.wait_stream(beside)
        self.nbytes += _reserved(self.device) - before
        return _CudaRecording(graph, outputs, launches)


class _Mark:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event: Final = event

    def wait(self) -> None:
        self._event.synchronize()


class _CudaRecording:
    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: Sequence[Any], launches: int | None) -> None:
        self._graph: Final = graph
        self.outputs = outputs
        self.launches = launches
        self.replay = graph.replay

    def free(self) -> None:
        self.outputs = ()
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


def _reserved(device: torch.device) -> int:
    return int(torch.cuda.memory_stats(device).get("reserved_bytes.all.current", 0))


# -- what a graph holds ---------------------------------------------------------------------------------
@functools.cache
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
