"""Decides which element types a recorder writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.module.record import RecordEntry
from burn_torch.record.faults import cannot_save

__all__ = [
    "AS_THEY_ARE",
    "DoublePrecisionSettings",
    "FullPrecisionSettings",
    "HalfPrecisionSettings",
    "PrecisionSettings",
    "cast_entry",
]


@checked
@dataclass(frozen=True)
class PrecisionSettings:
    """The types that numbers are stored in; None keeps those they have.  Loading gives the first types back."""

    float: DType | None = None
    int: DType | None = None

    @property
    def name(self) -> str:
        """As Burn calls it."""
        return type(self).__name__

    def stored(self, dtype: DType) -> DType:
        """The element type in the file."""
        chosen = self.float if dtype.is_float else self.int if dtype.is_int else None
        return chosen or dtype

    def convert(self, key: str, data: TensorData) -> TensorData:
        """The values as they are stored.

        Raises: RecordError for a finite number beyond the type's range, which would come back as another.
        """
        stored = self.stored(data.dtype)
        if stored is data.dtype:
            return data
        converted = data.convert(stored)
        if stored.is_float:
            lost = np.isinf(converted.values) & np.isfinite(data.values)
        else:
            lost = converted.values != data.values
            if data.num_elements:  # equal bits of other signs compare equal after numpy has widened both
                bounds = np.iinfo(stored.numpy)
                lost |= (data.values < bounds.min) | (data.values > bounds.max)
        if np.any(lost):
            raise cannot_save(
                f"{key} with {data.values[lost].reshape(-1)[0]}, which {stored} does not hold",
                expected=f"values in the range of {stored}, as {self.name} stores them",
                mend="use a recorder with FullPrecisionSettings or DoublePrecisionSettings",
            )
        return converted


@final
class FullPrecisionSettings(PrecisionSettings):
    """f32 and i32."""

    def __init__(self) -> None:
        super().__init__(DType.F32, DType.I32)


@final
class HalfPrecisionSettings(PrecisionSettings):
    """f16 and i16."""

    def __init__(self) -> None:
        super().__init__(DType.F16, DType.I16)


@final
class DoublePrecisionSettings(PrecisionSettings):
    """f64 and i64."""

    def __init__(self) -> None:
        super().__init__(DType.F64, DType.I64)


def cast_entry(key: str, entry: RecordEntry, dtype: DType) -> RecordEntry:
    """The entry with its values in another element type, which are converted when they are read."""
    if entry.dtype is dtype:
        return entry
    settings = PrecisionSettings(float=dtype)
    return replace(entry, dtype=dtype, read=lambda: settings.convert(key, entry.peek()))


AS_THEY_ARE: Final = PrecisionSettings()
"""Holds what `record.save("model.mpk")` uses: every value in its own type."""
