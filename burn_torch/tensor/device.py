"""Device: a place and the stack of backends that computes there.  Every tensor carries one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import torch

from burn_torch.backend import Autodiff, Backend, LibTorch, NdArray
from burn_torch.backend.base import capabilities
from burn_torch.backend.capture import Capture
from burn_torch.backend.lazy import fused_by_default, fusion_of, is_fused
from burn_torch.backend.tracing import active
from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.core.spellings import Named, attach_spellings
from burn_torch.core.spellings.packages import DEVICE
from burn_torch.tensor.capturing import CapturedOperations, CaptureScope, capture_operations
from burn_torch.tensor.device_settings import (
    Defaults,
    DeviceConfig,
    DeviceFilter,
    DeviceSettings,
    GradientCheckpointingStrategy,
    defaults_at,
)
from burn_torch.tensor.throughput import ThroughputKey, measure_throughput

if TYPE_CHECKING:
    from burn_torch.backend.lazy.explanation import StreamExplanation

__all__ = [
    "Device",
    "DeviceConfig",
    "DeviceFilter",
    "DeviceSettings",
    "Devices",
    "GradientCheckpointingStrategy",
    "ThroughputKey",
]

_lock: Final = threading.Lock()


@final
@checked(error=DeviceError)
class Device(metaclass=Named):
    """A place, and the stack of backends that computes there.

        Device.cpu()                    torch on the host
        Device.cuda(0).autodiff()       torch on a GPU, with gradients
        Device.cpu().fused()            operations that are computed together, see `fused`
        Device.cuda(0, fused=False)     each operation by itself, whatever is the default
        Device.ndarray()                numpy on the host

    Devices of torch are fused where `fused` says so; without it those of CUDA are, and the CPU is not, unless the
    variable BURN_TORCH_FUSION is 0 (none) or all (the CPU too).

    Equal places with equal stacks are one object.  Raises: DeviceError where this machine has no such place.
    """

    __slots__ = ("_stack", "defaults", "place")

    _instances: ClassVar[dict[tuple[int, str], Device]] = {}

    _stack: Backend
    defaults: Defaults
    """The element types of what is made here without one: one object a place, whatever decorators lie above."""
    place: str

    def __new__(cls, backend: Backend, place: str = "cpu") -> Device:
        """The device of this stack and place; of a traced stack, the device that it stands for."""
        try:
            if backend.session is not None:
                backend = backend.real
        except AttributeError:
            raise no_device(backend) from None
        key = (id(backend), place)
        device = cls._instances.get(key)
        if device is None:
            capabilities(backend).check_place(place)
            with _lock:
                device = cls._instances.get(key)
                if device is None:
                    device = object.__new__(cls)
                    device._stack = backend
                    device.place = place
                    device.defaults = defaults_at(backend, place)
                    cls._instances[key] = device
        return device

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str | torch.device):  # which would never be equal
            raise no_device(other)
        return self is other

    __hash__ = object.__hash__

    @property
    def backend(self) -> Backend:
        """The stack that computes here; while a function is traced, the one that writes it down."""
        session = active()
        return self._stack if session is None else session.stack(self._stack)

    # -- constructors ------------------------------------------------------------------
    @staticmethod
    def cpu(*, fused: bool | None = None) -> Device:
        """torch on the host."""
        return _of_torch("cpu", fused)

    @staticmethod
    def cuda(index: int = 0, *, fused: bool | None = None) -> Device:
        """torch on an NVIDIA or AMD GPU, fused unless `fused` or BURN_TORCH_FUSION says otherwise."""
        return _of_torch(f"cuda:{index}", fused)

    @staticmethod
    def rocm(index: int = 0, *, fused: bool | None = None) -> Device:
        """torch on an AMD GPU, which torch built for ROCm calls "cuda".  Raises: DeviceError under another torch."""
        if torch.version.hip is None:
            raise DeviceError(
                "rocm: this torch is not built for AMD GPUs",
                given=f"torch {torch.__version__}",
                expected="torch built for ROCm",
                mend="install torch from its index for ROCm; Device.cuda(0) is an NVIDIA GPU",
            )
        return Device.cuda(index, fused=fused)

    @staticmethod
    def mps() -> Device:
        """torch on an Apple GPU."""
        return Device(LibTorch(), "mps")

    @staticmethod
    def metal() -> Device:
        """Burn's name for `Device.mps()`."""
        return Device.mps()

    @staticmethod
    def flex() -> Device:
        """Burn's name for its backend of the host: `Device.cpu()`."""
        return Device.cpu()

    @staticmethod
    def ndarray() -> Device:
        """numpy on the host."""
        return Device(NdArray(), "cpu")

    @staticmethod
    def libtorch() -> Device:
        """Burn's name for `Device.cpu(fused=False)`."""
        return Device.cpu(fused=False)

    @staticmethod
    def libtorch_cuda(index: int = 0) -> Device:
        """Burn's name for `Device.cuda(index, fused=False)`."""
        return Device.cuda(index, fused=False)

    @staticmethod
    def libtorch_mps() -> Device:
        """Burn's name for `Device.mps()`."""
        return Device.mps()

    @staticmethod
    def capture() -> Device:
        """A device that computes nothing: operations in its `capture_scope` become a graph."""
        return Device(Capture())

    @staticmethod
    def parse(text: str, *, fused: bool | None = None) -> Device:
        """The device that a word names: "cpu", "cuda", "cuda:1", "mps", "ndarray".  Raises: DeviceError."""
        word = text.strip().lower()
        if word == "ndarray":
            return Device.ndarray()
        return _of_torch("cuda:0" if word == "cuda" else word, fused)

    @staticmethod
    def enumerate(filter: DeviceFilter | str = DeviceFilter.All) -> Devices:
        """The devices of this machine that a filter lets through, torch's first."""
        chosen = DeviceFilter.of(filter)
        devices = [_of_torch(place, None) for place in LibTorch().capabilities.places()] + [Device.ndarray()]
        return Devices(device for device in devices if chosen in (DeviceFilter.All, _filter_of(device)))

    # -- default element types --------------------------------------------------------------
    def settings(self) -> DeviceSettings:
        """The element types of what is made here without one: f32, i64 and bool unless `configure` chose others."""
        return self.defaults.settings

    def configure(self, config: DeviceConfig) -> None:
        """Chooses the element types of what is made at this place without one, gradients or not, fused or not.

        Once, before the first such value is made.  Raises: DeviceError later, or for a type that the place lacks.
        """
        for dtype in (config.float, config.int, config.bool):
            if dtype is not None and not self.supports_dtype(dtype):
                raise DeviceError(
                    f"configure: this device has no {dtype}",
                    given=f"{config} for {self!r}",
                    expected="element types for which supports_dtype is true",
                    mend="choose another type, or another device",
                )
        self.defaults.configure(config, self)

    def capture_scope(self, function: Callable[[CaptureScope], CapturedOperations]) -> CapturedOperations:
        """Runs a function once, without computing, and returns the graph of its operations on this device.

            device = Device.capture()

            def written(scope):
                x = Tensor.from_data([[1.0, 2.0]], device)
                return scope.complete([x], [model.forward(x)])

            graph = device.capture_scope(written).graph

        Tensors from outside that meet one of the scope are constants of the graph, wherever they are.
        Raises: TraceError where a value is read in the function, or another trace runs.
        """
        return capture_operations(self._stack, function)

    # -- stacks ---------------------------------------------------------------------------
    def autodiff(self, checkpoint: GradientCheckpointingStrategy | str = "none") -> Device:
        """The same place with gradients.  checkpoint: "none", or "balanced" to compute cheap values again."""
        strategy = checkpoint.value if isinstance(checkpoint, GradientCheckpointingStrategy) else checkpoint
        return Device(Autodiff(self._stack, strategy), self.place)

    def gradient_checkpointing(self, strategy: GradientCheckpointingStrategy | str) -> Device:
        """The same place with gradients, of whose tape a strategy says what it keeps."""
        return self.no_grad().autodiff(strategy)

    def gradient_checkpointing_strategy(self) -> GradientCheckpointingStrategy | None:
        """Returns what the tape keeps; None on a device without gradients."""
        strategy = getattr(self._stack, "checkpoint", None)
        return None if strategy is None else GradientCheckpointingStrategy(strategy)

    def inner(self) -> Device:
        """The same place without the outermost decorator.  Raises: DeviceError on a leaf."""
        if self._stack.inner is None:
            raise DeviceError(
                "inner: this device has no decorator to take off",
                given=repr(self),
                expected="a device with gradients, such as Device.cpu().autodiff()",
                mend="use the device as it is",
            )
        return Device(self._stack.inner, self.place)

    def no_grad(self) -> Device:
        """The same place without gradients: `inner()` of a device with gradients, itself elsewhere."""
        return self.inner() if self.is_autodiff() else self

    def fused(self) -> Device:
        """The same place with operations that are recorded, and computed in fused kernels when a value is needed.

        Under a tape: `Device.cpu().autodiff().fused()` is `Device.cpu().fused().autodiff()`.  Generated kernels run on
        CUDA devices; on a CPU the operations run one by one.
        """
        return Device(_fused(self._stack), self.place)

    def is_fused(self) -> bool:
        """Returns whether operations here are recorded and computed later."""
        return is_fused(self._stack)

    def is_autodiff(self) -> bool:
        """Returns whether tensors here can carry gradients."""
        return self._stack.is_autodiff

    # -- the machine -------------------------------------------------------------------------
    def sync(self) -> None:
        """Waits until everything submitted to this device is done; computes first what this thread has recorded."""
        self.backend.sync(self.place)

    def flush(self) -> None:
        """Computes what this thread has recorded on a fused device, without waiting; nothing happens elsewhere."""
        fusion = fusion_of(self.backend)
        if fusion is not None and fusion.session is None:
            fusion.flush(self.place)

    def memory_cleanup(self) -> None:
        """Gives memory that holds no value, and is kept for later values, back to the device or to the system."""
        self.sync()
        capabilities(self._stack).give_back(self.place)

    def memory_persistent_allocations(self) -> AbstractContextManager[object]:
        """A block for values that stay, such as the parameters of a model: they lie apart from what comes and goes.

        with device.memory_persistent_allocations():
            model = config.init(device)

        On a GPU they lie in a pool of their own, so that gaps between short-lived values can be joined; on a CPU, where
        the system maps each large block for itself, nothing changes.
        """
        return capabilities(self._stack).set_apart(self.place)

    def staging(self, data: Iterable[TensorData]) -> list[TensorData]:
        """The data in host memory from which this device takes them fastest: page-locked for a GPU, else as they are.

        Tensor.from_data(staged, device) then copies at the full rate of the bus.
        """
        offers = capabilities(self._stack)
        return [offers.lock_pages(each, self.place) for each in data]

    def performance_stats(self, keys: Iterable[ThroughputKey] | None = None) -> dict[ThroughputKey, float]:
        """Measures what this device reaches: bytes a second of copies, operations a second of matrix products.

        keys    what to measure, by default copies and products in f32
        Takes about a second on a CPU.  Units: bytes/s for `ThroughputKey.Memory`, else operations/s.
        """
        wanted = (ThroughputKey.Memory, ThroughputKey(DType.F32)) if keys is None else keys
        leaf = self._stack.leaf()
        return {key: measure_throughput(leaf, self.place, key) for key in wanted}

    def explain(self) -> StreamExplanation:
        """Returns what this thread computed here last, and in which kernels: `print(device.explain())`.

        Computes nothing.  Raises: DeviceError on a device that is not fused.
        """
        fusion = fusion_of(self._stack)
        if fusion is None:
            raise DeviceError(
                "explain: nothing is fused on this device",
                given=repr(self),
                expected="a fused device, such as Device.cuda(0).fused()",
                mend="call burn_torch.explain(function, *arguments) for what compile makes of a function",
            )
        from burn_torch.backend.lazy.explanation import explain_stream  # what runs never needs it

        return explain_stream(fusion.stream(self.place))

    def supports_dtype(self, dtype: DType) -> bool:
        """Returns whether tensors of this element type can be made here."""
        return capabilities(self._stack).supports(dtype, self.place)

    def __repr__(self) -> str:
        return f"Device({self.place}, {self._stack.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (self._stack, self.place))


@final
class Devices(list[Device]):
    """Devices of this machine, in a list."""

    def autodiff(self) -> Devices:
        """The same places with gradients."""
        return Devices(device.autodiff() for device in self)

    def configure(self, config: DeviceConfig) -> None:
        """Chooses the default element types of all of them.  Raises: as `Device.configure`."""
        for device in self:
            device.configure(config)

    def into_vec(self) -> list[Device]:
        """A plain list."""
        return list(self)


def _filter_of(device: Device) -> DeviceFilter:
    if not capabilities(device._stack).holds_torch:
        return DeviceFilter.NdArray
    if device.place.startswith("cuda"):
        return DeviceFilter.Cuda if torch.version.hip is None else DeviceFilter.Rocm
    return DeviceFilter.Metal if device.place == "mps" else DeviceFilter.Cpu


def _of_torch(place: str, fused: bool | None) -> Device:
    device = Device(LibTorch(), place)
    return device.fused() if (fused_by_default(place) if fused is None else fused) else device


def _fused(stack: Any) -> Any:
    if is_fused(stack):
        return stack
    if stack.is_autodiff:
        return stack.onto(_fused(stack.inner))
    from burn_torch.backend.lazy.decorator import Fusion  # and the scheduler, which other devices never need

    return Fusion(stack)


def no_device(value: object) -> DeviceError:
    """The error of a value that should have been a device."""
    return DeviceError(
        "this is not a device",
        given=f"{value!r:.60} ({type(value).__name__})",
        expected="a Device",
        mend="write Device.cpu(), Device.cuda(0), or Device.parse('cuda:0')",
    )


attach_spellings(Device, DEVICE)
