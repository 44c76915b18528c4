"""Choices about devices: default element types, what is kept for the backward, which devices are listed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, final

from burn_torch.backend import Backend
from burn_torch.core.checking import checked
from burn_torch.core.dtype import BOOL, FLOAT, INT, DType
from burn_torch.core.errors import DeviceError, DTypeError
from burn_torch.tensor.choice import Choice

__all__ = ["Defaults", "DeviceConfig", "DeviceFilter", "DeviceSettings", "GradientCheckpointingStrategy", "defaults_at"]


@final
class GradientCheckpointingStrategy(Choice):
    """Says what the tape of a device keeps: everything that gradients read, or no values that are cheap to redo."""

    Balanced = "balanced"
    Disabled = "none"


@final
class DeviceFilter(Choice):
    """Says which devices `Device.enumerate` lists."""

    All = "all"
    Cpu = "cpu"
    Cuda = "cuda"
    Rocm = "rocm"
    Metal = "metal"
    NdArray = "ndarray"


@final
@checked
@dataclass(frozen=True)
class DeviceConfig:
    """The element types that `Device.configure` chooses; None leaves the device's own.

    Raises: DTypeError for a float type among integers, and the like.
    """

    float: DType | None = None
    int: DType | None = None
    bool: DType | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("float", FLOAT), ("int", INT), ("bool", BOOL)):
            dtype = getattr(self, name)
            if dtype is not None and dtype not in kinds:
                raise DTypeError(
                    f"DeviceConfig: {name} is no {kinds} type",
                    given=f"{name}={dtype!r}",
                    expected=f"one of {', '.join(sorted(kind.name for kind in kinds.members))}",
                    mend=f"leave {name} out for the default",
                )


@final
@dataclass(frozen=True)
class DeviceSettings:
    """The element types of floats, integers and truth values that are made on a device without a type."""

    float_dtype: DType = DType.F32
    int_dtype: DType = DType.I64
    bool_dtype: DType = DType.BOOL


class Defaults:
    """The settings of one place of one leaf: chosen once, before the first value is made by them."""

    __slots__ = ("_lock", "_settings", "fixed_by")

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._settings = DeviceSettings()
        self.fixed_by: str | None = None

    @property
    def settings(self) -> DeviceSettings:
        """The settings as they are now."""
        return self._settings

    def of(self, natural: DType) -> DType:
        """The type for what would be f32 or i64 elsewhere; any other type stays.  From now on the settings do too."""
        if self.fixed_by is None:
            self.fixed_by = "a value was made with a default type"
        settings = self._settings
        if natural is DType.F32:
            return settings.float_dtype
        return settings.int_dtype if natural is DType.I64 else natural

    def configure(self, config: DeviceConfig, device: object) -> None:
        """Chooses the types.  Raises: DeviceError where they are fixed."""
        with self._lock:
            if self.fixed_by is not None:
                raise DeviceError(
                    "configure: the default types of this device are fixed",
                    given=f"{config} for {device}, after {self.fixed_by}",
                    expected="one configuration, before the first value is made with a default type",
                    mend="configure the device where the program starts, or name types: Tensor.zeros(shape, (device, "
                    "DType.F16))",
                )
            own = self._settings
            self._settings = DeviceSettings(
                config.float or own.float_dtype, config.int or own.int_dtype, config.bool or own.bool_dtype
            )
            self.fixed_by = "it was configured"


_OF_PLACES: Final[dict[tuple[Backend, str], Defaults]] = {}


def defaults_at(stack: Backend, place: str) -> Defaults:
    """The default types of a place: one object for all stacks over a leaf, traced ones too."""
    if stack.session is not None:
        stack = stack.real
    key = (stack.leaf(), place)
    return _OF_PLACES.get(key) or _OF_PLACES.setdefault(key, Defaults())
