"""Quantised parameters in files: Burn has one tensor of type `QFloat`, a record here its codes and scales apart.

Its bytes are those of `QuantizedData.to_bytes`.  The record's metadata `quantized` says by path what codes and scales
are of, so that a model of plain parameters takes them too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.quantization import QuantScheme
from burn_torch.core.quantized_data import QuantizedData
from burn_torch.core.spec import Shape
from burn_torch.module.quantization import LISTED, Listed, read_list, write_list
from burn_torch.module.record import RecordEntry
from burn_torch.record.faults import Unsound, cannot_save

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
    try:
        listed = read_list(metadata)
    except ValueError as err:
        raise _word_list_fault(f"{metadata[LISTED][:120]} ({err})") from err
    whole = {f"{path}.{part}": path for path in listed if f"{path}.scales" in entries for part in _PARTS}
    for key, entry in entries.items():
        path = whole.get(key)
        if path is None:
            joined[key] = entry
        elif key.endswith(".codes"):
            scheme, shape, _ = listed[path]
            parts = [entries.get(f"{path}.{part}") for part in _PARTS]
            if [part and (part.shape, part.dtype) for part in parts] != _specs(scheme, shape):
                raise _word_list_fault(f"{path}: codes and scales that are not those of {shape} {scheme!r:.120}")
            read = functools.partial(_join, parts, scheme, shape)
            fresh = RecordEntry(DType.U8, (scheme.file_bytes(shape),), None, read)
            joined[path] = known.setdefault(id(entry), fresh)
            described[path] = (list(shape), {"QFloat": scheme.to_fields()})
    return joined, described


def _word_list_fault(given: str) -> BaseException:
    return cannot_save(
        given,
        expected="metadata that lists quantised parameters as they are: scheme, shape, element type",
        mend="make the record of the module: module.into_record()",
    )


def _specs(scheme: QuantScheme, shape: Shape) -> list[tuple[Shape, DType] | None]:
    """Shapes and types of codes, scales and outer scales.  Raises: ArgumentError for a scheme that does not fit."""
    first, *others = scheme.levels
    specs = [(scheme.stored_shape(shape), scheme.stored), (first.counts(shape), first.param.dtype)]
    return [*specs, (scheme.outer_counts(shape), others[0].param.dtype) if others else None]


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
    try:
        listed = read_list(metadata)
    except ValueError as err:
        raise Unsound(f"its metadata lists no quantised parameters: {str(err)[:120]}") from err
    for key, (shape, scheme) in quantized.items():  # the tensors say what they are, the list what they were
        was = listed.get(key, Listed(scheme, shape, DType.F32))
        listed[key] = Listed(scheme.with_propagation(was.scheme.propagation), shape, was.dtype)
    return apart, {**metadata, **write_list(listed)}


def _split(entry: RecordEntry, shape: Shape, scheme: QuantScheme) -> list[RecordEntry]:
    def part(name: str, stored: Shape, dtype: DType) -> RecordEntry:
        def read() -> TensorData:
            data: TensorData = getattr(QuantizedData.from_bytes(entry.read().array.tobytes(), shape, scheme), name)
            return data

        return RecordEntry(dtype, stored, None, read)

    specs = zip(_PARTS, _specs(scheme, shape), strict=True)
    return [part(name, *spec) for name, spec in specs if spec is not None]
