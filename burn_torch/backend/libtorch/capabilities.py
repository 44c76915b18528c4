"""Capabilities of torch's leaf: several devices, programs, CUDA graphs, generated kernels."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch
from numpy.typing import NDArray

from burn_torch.backend.capabilities import Capabilities, Overwriting, Program, Recorded
from burn_torch.backend.libtorch.tensors import host
from burn_torch.backend.libtorch.tensors.modes import unreadable
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph.ir import Graph
from burn_torch.ops.value import Primitive

if TYPE_CHECKING:
    from burn_torch.fusion.rewrites.choices import Choices

__all__ = ["TorchCapabilities"]


@final
class TorchCapabilities(Capabilities):
    """Those of LibTorch.  Modules that an eager run never needs are imported where they are first asked for."""

    holds_torch = True

    def __init__(self, leaf: Any) -> None:
        super().__init__(leaf)
        self._arenas: Final[dict[str, Any]] = {}
        self._arenas_lock: Final = threading.Lock()

    # -- places -------------------------------------------------------------------------------------
    def places(self) -> list[str]:
        """The places of this machine."""
        places = ["cpu"]
        if torch.cuda.is_available():
            places += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if torch.backends.mps.is_available():
            places.append("mps")
        return places

    def check_place(self, place: str) -> None:
        """Raises DeviceError where torch sees no such device."""
        kind, _, index = place.partition(":")
        if kind == "cpu" and not index:
            return
        if kind == "cuda" and index.isdigit():
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if int(index) < count:
                return
            absent = f"{place}, while torch {torch.__version__} sees {count} CUDA devices"
        elif place == "mps":
            if torch.backends.mps.is_available():
                return
            absent = "mps, while torch sees no Apple GPU"
        else:
            absent = place
        raise DeviceError(
            "there is no such device",
            given=absent,
            expected=f"one of {', '.join(self.places())}",
            mend="use Device.cpu(), or `burn-torch info` to see what is missing",
        )

    def supports(self, dtype: DType, place: str) -> bool:
        """An Apple GPU has no f64."""
        return not (place == "mps" and dtype is DType.F64)

    def generates(self, place: str) -> bool:
        """On a GPU with Triton; on the host under Triton's interpreter only (TRITON_INTERPRET=1)."""
        from burn_torch.backend.libtorch.generated.triton_kernels import generates

        return generates(place)

    @property
    def choices(self) -> Choices:
        """The answers of timings and lockfiles, about kernels on GPUs."""
        from burn_torch.backend.libtorch.attached import choices

        return choices.CHOICES

    # -- whole graphs -------------------------------------------------------------------------------
    def program(self, graph: Graph, donate: Collection[int] = (), *, title: str = "") -> Program:
        """Readable Python over torch's own functions, in place where that is legal; see `programs/program.py`."""
        from burn_torch.backend.libtorch.attached.programs import write_with_kernels

        return write_with_kernels(graph, donate, self.leaf.candidate, title)

    def recorded(
        self, graph: Graph, donate: Collection[int] = (), *, hold: Collection[int] = (), before_overwriting: Overwriting
    ) -> Recorded | None:
        """CUDA graphs, see `recorded/capture.py`; None for a graph that computes on the host or on several devices.

        Programs of one device take turns, and share private memory.
        """
        from burn_torch.backend.libtorch.recorded.capture import arena_of, capture

        places = {spec.place for spec in graph.specs().values() if isinstance(spec, TensorSpec)}
        if len(places) != 1 or not (place := places.pop()).startswith("cuda"):
            return None
        with self._arenas_lock:
            arena = self._arenas.get(place) or self._arenas.setdefault(place, arena_of(place))

        def compile_part(part: Graph, donate: Collection[int]) -> Callable[..., Sequence[Primitive]]:
            return self.program(part, donate, title="A recorded part").run

        return capture(
            graph, donate, hold=hold, arena=arena, compile=compile_part, before_overwriting=before_overwriting
        )

    def settings(self) -> Hashable:
        """torch's modes of precision and determinism."""
        return _precision_settings()()

    # -- beside what computes -----------------------------------------------------------------------
    def reading(self, place: str) -> AbstractContextManager[None]:
        """On a GPU a stream beside the one that computes, from this point of it on."""
        if not place.startswith("cuda"):
            return super().reading(place)
        from burn_torch.backend.libtorch.tensors.reading import CudaReading

        return CudaReading(place)

    def pinned(self, path: Path, place: str, text: str | None) -> AbstractContextManager[Callable[[], str | None]]:
        """The lockfile of `burn_kernels`, for a GPU; a lock that is held already stays, and is what is told of."""
        if not place.startswith("cuda"):
            return super().pinned(path, place, text)
        from burn_torch.backend.libtorch.tuning import pinned

        return pinned(path, text)

    # -- memory of the machine ----------------------------------------------------------------------
    def give_back(self, place: str) -> None:
        """Memory that torch caches, or that the C library does."""
        host.give_back(place)

    def set_apart(self, place: str) -> AbstractContextManager[object]:
        """On a GPU a pool of torch's."""
        return host.set_apart(place)

    def lock_pages(self, data: TensorData, place: str) -> TensorData:
        """For a GPU page-locked memory."""
        return host.lock_pages(data, place)

    # -- memory that is shared ----------------------------------------------------------------------
    def as_array(self, primitive: torch.Tensor) -> NDArray[Any]:
        """A view of a tensor on the host."""
        return primitive.numpy()

    def as_torch(self, primitive: torch.Tensor) -> torch.Tensor:
        """The tensor, on the same memory."""
        try:
            return primitive.detach()
        except (RuntimeError, AssertionError) as err:
            raise unreadable("into_torch", (primitive,)) or err from None


@functools.cache
def _precision_settings() -> Callable[[], Hashable]:
    from burn_torch.backend.libtorch.recorded.settings import precision_settings

    return precision_settings
