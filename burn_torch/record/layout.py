"""Says where the tensors of a file lie, and whether that can be true.

All sums are done on Python's integers before any memory is asked for, and against the true size of the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.spec import Shape
from burn_torch.module.param import ParamId
from burn_torch.module.record import RecordEntry
from burn_torch.record.faults import Unsound, shortened
from burn_torch.record.source import WINDOW, Source

__all__ = [
    "MAX_HEADER_BYTES",
    "MAX_TENSORS",
    "Extent",
    "checked_offsets",
    "checked_shape",
    "checked_texts",
    "entries_of",
    "first_keys",
    "require_layout",
    "require_zeros",
    "unique",
]

MAX_HEADER_BYTES: Final = 100 * 1024 * 1024
"""The limit of safetensors and of Burn's burnpack."""
MAX_TENSORS: Final = 100_000
MAX_CONTAINERS: Final = 8 * MAX_TENSORS
MAX_VALUES: Final = 50 * MAX_TENSORS
"""The limit of values in a file's metadata: more would fill the memory and describe no record."""
MAX_NDIM: Final = 32
"""Holds what every numpy that we run on can hold."""


@final
@dataclass(frozen=True)
class Extent:
    """One tensor of a file: what it is, and between which offsets of the data it lies."""

    dtype: DType
    shape: Shape
    start: int
    end: int
    id: ParamId | None = None
    state: bool = False
    width: int = 0
    """Bytes of an element, where the file's are wider than the element type's."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element in the file."""
        return self.width or self.dtype.itemsize


def checked_shape(key: str, shape: object) -> Shape:
    """The sizes, if they can be sizes.  Raises: Unsound."""
    if (
        not isinstance(shape, list | tuple)
        or any(type(size) is not int or not 0 <= size < 2**63 for size in shape)
        or len(shape) > MAX_NDIM
        or math.prod(size for size in shape if size) >= 2**60
    ):
        raise Unsound(f"{key} has a shape that no tensor has: {str(shape)[:80]}")
    return tuple(shape)


def checked_offsets(key: str, offsets: object) -> tuple[int, int]:
    """Returns where a tensor begins and ends, if it can lie there.  Raises: Unsound."""
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or any(type(at) is not int or not 0 <= at < 2**63 for at in offsets)
        or offsets[0] > offsets[1]
    ):
        raise Unsound(f"{key} has offsets that no tensor has: {str(offsets)[:80]}")
    return offsets[0], offsets[1]


def checked_texts(metadata: object) -> dict[str, str]:
    """The metadata of a file, if it is text by name.  Raises: Unsound."""
    if not isinstance(metadata, dict) or any(not isinstance(text, str) for text in metadata.values()):
        raise Unsound("its metadata is not text by name")
    return metadata


def first_keys(entries: Mapping[str, RecordEntry]) -> dict[str, str]:
    """For each key the first key of the same parameter: itself, or that which it is another name of."""
    first: dict[int, str] = {}
    return {key: first.setdefault(id(entry), key) for key, entry in entries.items()}


def require_layout(extents: Mapping[str, Extent], size: int, *, align: int = 1) -> None:
    """Raises: Unsound, with all faults, unless the extents fill `size` bytes of data.

    Each has the bytes that its shape needs; no two overlap, but two may be the same; between them lies nothing but
    what `align` leaves open.
    """
    faults = [
        f"{key} needs {wanted} bytes, and has {extent.end - extent.start}"
        for key, extent in extents.items()
        if (wanted := math.prod(extent.shape) * extent.itemsize) != extent.end - extent.start
    ]
    end = 0
    before: tuple[str, Extent] | None = None
    for key, extent in sorted(extents.items(), key=lambda item: (item[1].start, item[1].end)):
        if before is not None and extent == before[1] and extent.start < extent.end:
            continue  # one tensor with two names
        gap = -end % align
        if extent.start < end:
            faults.append(f"{key} overlaps {before[0] if before else 'the header'}")
        elif extent.start - end > gap:
            faults.append(f"{extent.start - end} bytes before {key} belong to nothing")
        end, before = max(end, extent.end), (key, extent)
    if end != size:
        faults.append(f"its header speaks of {end} bytes of data, and the file has {size}")
    if faults:
        raise Unsound("; ".join(shortened(faults)))


def entries_of(source: Source, extents: Mapping[str, Extent], offset: int) -> dict[str, RecordEntry]:
    """Entries that read their values when they are asked for; one extent with several names is one entry.

    Raises: Unsound for truth values that are neither 0 nor 1.
    """
    by_extent: dict[Extent, RecordEntry] = {}
    entries: dict[str, RecordEntry] = {}
    for key, extent in extents.items():
        if (
            extent.dtype is DType.BOOL
            and not source.trusting
            and not _is_bool(source, offset + extent.start, offset + extent.end, extent)
        ):
            raise Unsound(f"{key} is of truth values, and has bytes other than 0 and 1")
        if extent.start == extent.end or extent not in by_extent:
            by_extent[extent] = RecordEntry(
                extent.dtype, extent.shape, extent.id, _Values(source, extent, offset), extent.state
            )
        entries[key] = by_extent[extent]
    return entries


@final
@dataclass(frozen=True)
class _Values:
    """Reads the values of an extent when it is called; `lend` gives them without a copy, to one who keeps them."""

    source: Source
    extent: Extent
    offset: int

    def __call__(self) -> TensorData:
        extent = self.extent
        start, end = self.offset + extent.start, self.offset + extent.end
        if extent.itemsize == extent.dtype.itemsize:
            return self.source.tensor(start, end, extent.dtype, extent.shape)
        wide = self.source.array(start, end, np.dtype(f"<u{extent.itemsize}"))
        return TensorData((wide != 0).reshape(extent.shape), extent.dtype)

    def lend(self) -> TensorData | None:
        """See `Source.lend`."""
        extent = self.extent
        if extent.itemsize != extent.dtype.itemsize:
            return None
        start, end = self.offset + extent.start, self.offset + extent.end
        return self.source.lend(start, end, extent.dtype, extent.shape)


def _is_bool(source: Source, start: int, end: int, extent: Extent) -> bool:
    return all(
        not np.any(source.array(at, min(at + WINDOW, end), np.dtype(f"<u{extent.itemsize}")) > 1)
        for at in range(start, end, WINDOW)
    )


def parse_json(text: bytes, what: str) -> Any:
    """A JSON value of bounded size whose objects have each name once.  Raises: Unsound."""
    if text.count(b"[") + text.count(b"{") > MAX_CONTAINERS or text.count(b",") > MAX_VALUES:
        raise Unsound(f"{what} has more parts than that of {MAX_TENSORS} tensors")
    try:
        return json.loads(text.decode(), object_pairs_hook=lambda pairs: unique(pairs, what))
    except (ValueError, RecursionError) as err:
        raise Unsound(f"{what} cannot be read ({err})") from err


def unique(pairs: Iterable[tuple[str, object]], what: str) -> dict[str, Any]:
    """A dict of pairs whose names are distinct.  Raises: Unsound."""
    listed: Sequence[tuple[str, object]] = list(pairs)
    by_name = dict(listed)
    if len(by_name) < len(listed):
        names = [name for name, _ in listed]
        raise Unsound(f"{what} has {next(name for name in names if names.count(name) > 1)} twice")
    return by_name


def require_zeros(source: Source, extents: Mapping[str, Extent], end: int, offset: int) -> None:
    """Raises: Unsound for padding, from `end` of the header on, that is not zero."""
    at = end
    for extent in sorted(extents.values(), key=lambda extent: (extent.start, extent.end)):
        _require_zero(source, at, offset + extent.start)
        at = max(at, offset + extent.end)
    _require_zero(source, at, len(source))


def _require_zero(source: Source, start: int, end: int) -> None:
    if end > start and any(source.bytes[start:end]):
        raise Unsound(f"the padding from byte {start} to {end} is not zero")
