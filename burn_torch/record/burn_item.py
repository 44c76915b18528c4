"""Records as the nested values that Burn's recorders write.

    {"metadata": {"float", "int", "format", "version", "settings"}, "item": {"fc": {"weight": <param>, "bias": null}}}

with a parameter as {"id": base 32, "param": {"bytes", "shape", "dtype"}} and a list for fields 0, 1, 2 and so on.  To
the metadata we add `burn_torch` (our version), `record` (JSON: order, first type, kind, aliases) and `checksum`.
Source: tracel-ai/burn 0.21, crates/burn-core/src/record.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard, final

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.module.param import ParamId
from burn_torch.module.record import ModuleRecord, RecordEntry
from burn_torch.record.burn_types import burn_type, read_burn_type
from burn_torch.record.faults import Unsound, cannot_save
from burn_torch.record.layout import checked_shape, checked_texts, first_keys, parse_json
from burn_torch.record.precision import PrecisionSettings
from burn_torch.record.quantized import Quantized, is_quantized, read_quantized, split_quantized
from burn_torch.record.sealing import UNSEALED
from burn_torch.record.values import little_endian
from burn_torch.version import __version__

__all__ = ["VERSION", "Leaf", "is_ours", "metadata_of", "nested", "record_of", "stored_values", "version_of"]

VERSION: Final = "1"
_RUST: Final = {DType.F16: "half::binary16::f16", DType.BF16: "half::bfloat::bf16"}
_OURS: Final = ("burn_torch", "record", "checksum")

Bytes: TypeAlias = Callable[[], "np.ndarray[Any, np.dtype[np.uint8]]"]
"""Reads the bytes of a tensor."""
BytesOf: TypeAlias = Callable[[str, Any], tuple[Bytes, int]]


@final
@dataclass(frozen=True)
class Leaf:
    """A parameter on its way into a file."""

    key: str
    entry: RecordEntry
    stored: DType

    def head(self) -> dict[str, Any]:
        """All but the bytes."""
        ident = 0 if self.entry.id is None else int(self.entry.id)
        return {"id": _base32(ident), "shape": list(self.entry.shape), "dtype": burn_type(self.stored)}

    @property
    def nbytes(self) -> int:
        """How many bytes it has in the file."""
        return math.prod(self.entry.shape) * self.stored.itemsize


# -- writing -------------------------------------------------------------------------------------------
def metadata_of(record: ModuleRecord, settings: PrecisionSettings, recorder: str) -> dict[str, str]:
    """Burn's metadata of a record, with ours; the checksum last, still unsealed."""
    keys: dict[str, Any] = {}
    for key, known in first_keys(record.entries).items():
        entry = record.entries[key]
        kind = "state" if entry.state else "param"
        keys[key] = {"alias": known} if known != key else [entry.dtype.name, kind, entry.id is not None]
    about = {"keys": keys, "metadata": dict(record.metadata), "scalars": dict(record.scalars)}
    return {
        "float": _rust_type(settings.float or DType.F32),
        "int": _rust_type(settings.int or DType.I32),
        "format": f"{recorder}<{settings.name}>",
        "version": f"burn_torch {__version__}",
        "settings": settings.name,
        "burn_torch": VERSION,
        "record": json.dumps(about, separators=(",", ":")),
        "checksum": UNSEALED,
    }


def _rust_type(dtype: DType) -> str:
    return _RUST.get(dtype, dtype.name)


def stored_values(leaf: Leaf, settings: PrecisionSettings) -> memoryview:
    """The bytes of a parameter in the file.  Raises: RecordError for values beyond its type there."""
    return little_endian(settings.convert(leaf.key, leaf.entry.peek()))


def nested(record: ModuleRecord, settings: PrecisionSettings) -> Any:
    """Dicts and lists with a Leaf for each parameter; one with several names has its values under each.

    Raises: RecordError where one key is another's folder.
    """
    root: dict[str, Any] = {}
    for key, entry in record.entries.items():
        *folders, name = key.split(".")
        here = root
        for folder in folders:
            here = here.setdefault(folder, {}) if isinstance(here, dict) else here
        if not isinstance(here, dict) or name in here:
            raise cannot_save(
                f"{key}, which is a value and holds others",
                expected="keys that nest, as modules do",
                mend="save to .bpk or .safetensors, which take any key",
            )
        here[name] = Leaf(key, entry, settings.stored(entry.dtype))
    return _as_lists(root)


def _as_lists(value: object) -> object:
    if not isinstance(value, dict):
        return value
    items = {name: _as_lists(item) for name, item in value.items()}
    if items and all(name == str(i) for i, name in enumerate(items)):
        return list(items.values())
    return items


def _base32(number: int) -> str:
    return base64.b32hexencode(number.to_bytes(8, "little")).decode().rstrip("=").lower()


# -- reading ---------------------------------------------------------------------------------------------
def record_of(document: object, bytes_of: BytesOf, at: Callable[[object, str], object] | None = None) -> ModuleRecord:
    """The record of a document; `bytes_of` finds the bytes that a key's `bytes` stand for, and how many they are.

    `at` finds the value of a key, if the item is not nested.

    Raises: Unsound.
    """
    if not isinstance(document, dict) or document.keys() != {"metadata", "item"}:
        raise Unsound("it holds no record of a recorder")
    metadata = checked_texts(document["metadata"])
    if is_ours(metadata):
        return _record_of_ours(metadata, document["item"], bytes_of, at or _at)
    entries: dict[str, RecordEntry] = {}
    scalars: dict[str, float] = {}
    quantized: dict[str, Quantized] = {}
    for key, value in _flat(document["item"], ""):
        if isinstance(value, dict) and is_quantized(_tensor_of(value).get("dtype")):
            entries[key], quantized[key] = _quantized_entry(key, _tensor_of(value), bytes_of)
        elif isinstance(value, dict):
            entries[key] = _entry(key, value, bytes_of)
        elif isinstance(value, int | float):
            scalars[key] = value
    entries, metadata = split_quantized(entries, quantized, metadata)
    return ModuleRecord(entries, metadata, scalars=scalars)


def _tensor_of(value: dict[str, object]) -> dict[str, object]:
    """The tensor of a parameter, or the value itself."""
    inner = value.get("param")
    return inner if isinstance(inner, dict) else value


def _quantized_entry(key: str, value: dict[str, object], bytes_of: BytesOf) -> tuple[RecordEntry, Quantized]:
    if value.keys() != {"bytes", "shape", "dtype"}:
        raise Unsound(f"{key} is no tensor of a record")
    read, count = bytes_of(key, value["bytes"])
    about = read_quantized(key, checked_shape(key, value["shape"]), value["dtype"], count)
    return RecordEntry(DType.U8, (count,), None, lambda: TensorData(read().view(np.uint8), DType.U8)), about


def version_of(metadata: object) -> str:
    """Returns which program wrote a record, as its metadata says: "0.20.1" of Burn, "burn_torch 0.1.0"."""
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return version[:80] if isinstance(version, str) else ""


def is_ours(metadata: object) -> TypeGuard[dict[str, str]]:
    """Returns whether text by name has any two of three marks, since one alone may be damage, or another program's
    word.
    """
    return (
        isinstance(metadata, dict)
        and all(isinstance(text, str) for text in metadata.values())
        and sum(name in metadata for name in _OURS) > 1
    )


def _record_of_ours(
    metadata: Mapping[str, str], item: object, bytes_of: BytesOf, at: Callable[[object, str], object]
) -> ModuleRecord:
    if metadata.get("burn_torch") != VERSION:
        raise Unsound(f"burn_torch wrote it in version {metadata.get('burn_torch')}, this one reads {VERSION}")
    about = parse_json(metadata.get("record", "").encode(errors="replace"), "its description")
    entries: dict[str, RecordEntry] = {}
    try:
        for key, known in about["keys"].items():
            if isinstance(known, dict):
                entries[key] = entries[known["alias"]]
                continue
            name, kind, has_id = known
            entry = _entry(key, at(item, key), bytes_of)
            if kind not in ("param", "state") or type(has_id) is not bool:
                raise ValueError(f"{key} is of no kind")
            dtype, ident = DType.of(name), entry.id if has_id else None
            entries[key] = RecordEntry(dtype, entry.shape, ident, _read_as(entry, dtype), kind == "state")
        texts, scalars = dict(about["metadata"]), dict(about["scalars"])
        if any(not isinstance(text, str) for text in texts.values()):
            raise ValueError("metadata that is no text")
        if any(type(value) not in (int, float, bool) for value in scalars.values()):
            raise ValueError("a scalar that is no number")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as err:
        raise Unsound(f"its description cannot be read ({type(err).__name__}: {err})") from err
    return ModuleRecord(entries, texts, scalars=scalars)


def _read_as(entry: RecordEntry, dtype: DType) -> Callable[[], TensorData]:
    return lambda: entry.read().convert(dtype)


def _at(item: Any, key: str) -> object:
    for name in key.split("."):
        item = item[int(name)] if isinstance(item, list) else item[name]
    return item


def _flat(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Paths and values: parameters, bare tensors, and constants."""
    if isinstance(value, dict) and value.keys() not in ({"id", "param"}, {"bytes", "shape", "dtype"}):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _flat(item, f"{path}.{i}" if path else str(i))
    else:
        yield path, value


def _entry(key: str, value: object, bytes_of: BytesOf) -> RecordEntry:
    ident = None
    if isinstance(value, dict) and value.keys() == {"id", "param"}:
        ident, value = _ident(key, value["id"]), value["param"]
    if not isinstance(value, dict) or value.keys() != {"bytes", "shape", "dtype"}:
        old = isinstance(value, dict) and value.keys() == {"value", "shape"}
        raise Unsound(
            f"{key} is written as Burn did before 0.14: load it with Burn 0.16 and save it again"
            if old
            else f"{key} is no tensor of a record"
        )
    shape = checked_shape(key, value["shape"])
    dtype, width = read_burn_type(key, value["dtype"])
    read, count = bytes_of(key, value["bytes"])
    wanted = math.prod(shape) * (width or dtype.itemsize)
    if count != wanted:
        raise Unsound(f"{key} needs {wanted} bytes, and has {count}")
    if dtype is DType.BOOL and np.any(read().view(f"<u{width or 1}") > 1):
        raise Unsound(f"{key} is of truth values, and has bytes other than 0 and 1")
    return RecordEntry(dtype, shape, ident, _reader(read, dtype, shape, width))


def _reader(read: Bytes, dtype: DType, shape: tuple[int, ...], width: int) -> Callable[[], TensorData]:
    def values() -> TensorData:
        stored = read()
        if width > 1:
            return TensorData((stored.view(f"<u{width}") != 0).reshape(shape), dtype)
        array = stored.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
        return TensorData(array.reshape(shape), dtype)

    return values


def _ident(key: str, text: object) -> ParamId:
    """The id as Burn writes it, and as it wrote it before: 6 bytes, or a UUID of which it takes 8."""
    if isinstance(text, str):
        with suppress(ValueError):
            if len(text) == 36:
                return ParamId(int.from_bytes(uuid.UUID(text).bytes[:8], "little"))
            if len(text) in (10, 13) and text == text.lower():
                return ParamId(int.from_bytes(base64.b32hexdecode(text.upper() + "=" * (-len(text) % 8)), "little"))
    raise Unsound(f"{key} has an id that no parameter has: {str(text)[:80]}")
