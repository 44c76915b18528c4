"""Quantised parameters in files: Burn has one tensor of type `QFloat`, a record here its codes and scales apart.

Its bytes are those of `QuantizedData.to_bytes`.  The record's metadata `quantized` says by path what codes and scales
are of, so that a model of plain parameters takes them too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.quantization import QuantScheme
from burn_torch.core.quantized_data import QuantizedData
from burn_torch.core.spec import Shape
from burn_torch.module.quantization import LISTED
from burn_torch.module.record import RecordEntry
from burn_torch.record.faults import Unsound

__all__ = ["Quantized", "is_quantized", "join_quantized", "read_quantized", "split_quantized"]

Quantized = tuple[Shape, QuantScheme]
"""The shape of a quantised tensor and its scheme."""

_PARTS: Final = ("codes", "scales", "outer_scales")


def is_quantized(dtype: object) -> bool:
    """Returns whether a file says `QFloat`."""
    return isinstance(dtype, dict) and list(dtype) == ["QFloat"]


def read_quantized(key: str, shape: Shape, dtype: object, count: int) -> Quantized:
    """The shape and scheme of a tensor of `count` bytes.  Raises: Unsound for a scheme that is none, or other bytes."""
    try:
        scheme = QuantScheme.from_fields(dtype["QFloat"] if isinstance(dtype, dict) else {})
        wanted = scheme.file_bytes(shape)
    except ValueError as err:
        raise Unsound(f"{key} is quantised as nothing here is: {err}") from err
    if wanted != count:
        raise Unsound(f"{key} needs {wanted} bytes, and has {count}")
    return shape, scheme


def join_quantized(
    entries: Mapping[str, RecordEntry], metadata: Mapping[str, str]
) -> tuple[dict[str, RecordEntry], dict[str, tuple[list[int], dict[str, object]]]]:
    """Entries with the bytes of each quantised tensor as one, and what files say of these: shape, `QFloat`."""
    joined: dict[str, RecordEntry] = {}
    described: dict[str, tuple[list[int], dict[str, object]]] = {}
    known: dict[int, RecordEntry] = {}
    listed = json.loads(metadata.get(LISTED, "{}"))
    whole = {f"{path}.{part}": path for path in listed if f"{path}.scales" in entries for part in _PARTS}
    for key, entry in entries.items():
        path = whole.get(key)
        if path is None:
            joined[key] = entry
        elif key.endswith(".codes"):
            about = listed[path]
            scheme, shape = QuantScheme.from_fields(about["scheme"]), tuple(about["shape"])
            parts = [entries.get(f"{path}.{part}") for part in _PARTS]
            read = functools.partial(_join, parts, scheme, shape)
            fresh = RecordEntry(DType.U8, (scheme.file_bytes(shape),), None, read)
            joined[path] = known.setdefault(id(entry), fresh)
            described[path] = (about["shape"], {"QFloat": about["scheme"]})
    return joined, described


def _join(parts: list[RecordEntry | None], scheme: QuantScheme, shape: Shape) -> TensorData:
    codes, scales, outer = (None if part is None else part.read() for part in parts)
    assert codes is not None
    assert scales is not None
    data = QuantizedData(codes, scales, outer, scheme, shape).to_bytes()
    return TensorData(np.frombuffer(data, np.uint8), DType.U8)


def split_quantized(
    entries: Mapping[str, RecordEntry], quantized: Mapping[str, Quantized], metadata: Mapping[str, str]
) -> tuple[dict[str, RecordEntry], dict[str, str]]:
    """Entries with codes and scales apart, and the metadata that lists them."""
    if not quantized:
        return dict(entries), dict(metadata)
    apart: dict[str, RecordEntry] = {}
    known: dict[int, list[RecordEntry]] = {}
    for key, entry in entries.items():
        if key not in quantized:
            apart[key] = entry
            continue
        parts = known.setdefault(id(entry), _split(entry, *quantized[key]))
        apart.update({f"{key}.{part}": one for part, one in zip(_PARTS, parts, strict=False)})
    listed = {
        key: {"scheme": scheme.to_fields(), "shape": list(shape), "dtype": "f32"}
        for key, (shape, scheme) in quantized.items()
    }
    ours = json.loads(metadata.get(LISTED, "{}"))
    return apart, {**metadata, LISTED: json.dumps({**listed, **ours})}


def _split(entry: RecordEntry, shape: Shape, scheme: QuantScheme) -> list[RecordEntry]:
    def part(name: str, stored: Shape, dtype: DType) -> RecordEntry:
        def read() -> TensorData:
            data: TensorData = getattr(QuantizedData.from_bytes(entry.read().array.tobytes(), shape, scheme), name)
            return data

        return RecordEntry(dtype, stored, None, read)

    first, *others = scheme.levels
    parts = [
        part("codes", scheme.stored_shape(shape), scheme.stored),
        part("scales", first.counts(shape), first.param.dtype),
    ]
    if others:
        parts.append(part("outer_scales", scheme.outer_counts(shape), others[0].param.dtype))
    return parts
