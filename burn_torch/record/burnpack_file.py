"""Records as burnpack files, which Burn reads and writes.

    "NRUB"  version u16  length u32  metadata in CBOR  zeros  tensor data, each tensor on a boundary of 256 bytes

Metadata: `tensors` (by name: `dtype`, `shape`, `data_offsets`, `param_id`), `metadata` (text by name), `scalars`.
To the text we add `burn_torch` (our version), `keys` (order and kind, as JSON) and `checksum`, which covers the whole
file; Burn passes over them.  A parameter with several names lies there once: its descriptors have the same offsets.
Source: tracel-ai/burn, crates/burn-pack, and a file that Burn wrote.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.module.param import ParamId
from burn_torch.module.record import ModuleRecord, RecordEntry
from burn_torch.record.burn_types import burn_type, read_burn_type
from burn_torch.record.cbor import decode, encode
from burn_torch.record.faults import Unsound, cannot_save, shortened
from burn_torch.record.file_format import FileFormat
from burn_torch.record.layout import (
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    Extent,
    checked_offsets,
    checked_shape,
    checked_texts,
    entries_of,
    require_layout,
    require_zeros,
)
from burn_torch.record.quantized import is_quantized, join_quantized, read_quantized, split_quantized
from burn_torch.record.sealing import UNSEALED, SealedWriter, require_sealed
from burn_torch.record.source import Source
from burn_torch.record.values import little_endian

__all__ = ["ALIGNMENT", "BurnpackFormat"]

MAGIC: Final = b"NRUB"  # 0x4255524E, "BURN" to a reader of big-endian words
FORMAT_VERSION: Final = 1
"""Burn's; a reader refuses a newer one."""
VERSION: Final = "1"
"""The version of our metadata."""
ALIGNMENT: Final = 256
_HEADER: Final = struct.Struct("<4sHI")
_CHECKSUM: Final = b"\x68checksum\x78\x40"
_OURS: Final = ("burn_torch", "keys", "checksum")
_SCALARS: Final[Mapping[str, type]] = {"Int": int, "UInt": int, "Float": float, "Bool": bool}


@checked
@final
class BurnpackFormat(FileFormat):
    """Writes and reads `.bpk`."""

    kind = "burnpack"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the metadata, then one tensor after another."""
        tensors: dict[str, dict[str, object]] = {}
        order: dict[str, str] = {}
        placed: dict[int, list[int]] = {}
        at = 0
        entries, quantized = join_quantized(record.entries, record.metadata)
        for key, entry in entries.items():
            order[key] = "state" if entry.state else "param"
            if id(entry) not in placed:
                at += -at % ALIGNMENT
                placed[id(entry)] = [at, at := at + entry.nbytes]
            tensors[key] = _descriptor(key, entry, placed[id(entry)])
            if key in quantized:
                tensors[key] |= dict(zip(("shape", "dtype"), quantized[key], strict=True))
        ours = {"burn_torch": VERSION, "keys": json.dumps(order), "checksum": UNSEALED}
        contents: dict[str, object] = {
            "tensors": _sort_keys(tensors),
            "metadata": _sort_keys({**record.metadata, **ours}),
        }
        if record.scalars:
            contents["scalars"] = _sort_keys({name: _scalar(value) for name, value in record.scalars.items()})
        metadata = encode(contents)
        if len(metadata) > MAX_HEADER_BYTES or len(tensors) > MAX_TENSORS:
            raise cannot_save(
                f"{len(tensors)} tensors with {len(metadata)} bytes of metadata",
                expected=f"at most {MAX_TENSORS} tensors and {MAX_HEADER_BYTES} bytes, which Burn reads",
                mend="save parts of the model to files of their own",
            )
        header = _HEADER.pack(MAGIC, FORMAT_VERSION, len(metadata)) + metadata
        header += bytes(-len(header) % ALIGNMENT)
        writer = SealedWriter(file)
        writer.write(header)
        for entry in {id(entry): entry for entry in entries.values()}.values():
            writer.write(bytes(-writer.written % ALIGNMENT))
            writer.write(little_endian(entry.peek()))
        writer.seal(header, _CHECKSUM)

    def read(self, source: Source) -> ModuleRecord:
        """Checks header, layout, padding and checksum; Burn's own files have no checksum."""
        if len(source) < _HEADER.size:
            raise Unsound(f"it has {len(source)} bytes, fewer than its header")
        magic, version, length = _HEADER.unpack(source.bytes[: _HEADER.size])
        if magic != MAGIC:
            raise Unsound(f"it begins with {bytes(magic)!r}, and a burnpack file with {MAGIC!r}")
        if version != FORMAT_VERSION:
            raise Unsound(f"it has format version {version}, and this burn_torch reads {FORMAT_VERSION}")
        source.version = f"version {version}"
        header_end = _HEADER.size + length
        if length > MAX_HEADER_BYTES or header_end > len(source):
            raise Unsound(f"it promises {length} bytes of metadata, and has {len(source) - _HEADER.size} bytes")
        contents = decode(source.bytes[_HEADER.size : header_end])
        if not isinstance(contents, dict) or not isinstance(contents.get("tensors"), dict):
            raise Unsound("its metadata lists no tensors")
        if foreign := contents.keys() - {"tensors", "metadata", "scalars"}:  # a damaged name would hide the checksum
            raise Unsound(f"its metadata has parts that are not known here: {', '.join(sorted(foreign))[:80]}")
        metadata = checked_texts(contents.get("metadata", {}))
        described = contents["tensors"]
        if len(described) > MAX_TENSORS:
            raise Unsound(f"it has {len(described)} tensors, and Burn reads at most {MAX_TENSORS}")
        ours = sum(name in metadata for name in _OURS) > 1 or "burn_torch" in metadata
        if ours:
            require_sealed(source, header_end, _CHECKSUM, metadata.get("checksum"))
            if metadata.get("burn_torch") != VERSION:
                raise Unsound(f"burn_torch wrote it in version {metadata.get('burn_torch')}, this one reads {VERSION}")
        order = _order(metadata.get("keys", ""), described) if ours else dict.fromkeys(described, "param")
        extents = {key: _extent(key, described[key], order[key] == "state") for key in order}
        start, align = header_end + -header_end % ALIGNMENT, ALIGNMENT
        if not described:
            start = min(start, len(source))
        size = max((extent.end for extent in extents.values()), default=0)
        if not ours and start + size != len(source) == header_end + size:  # Burn 0.19 aligned nothing
            start, align = header_end, 1
        misplaced = [key for key, extent in extents.items() if extent.start % align]
        if misplaced:
            raise Unsound(f"{', '.join(shortened(misplaced))} lie on no boundary of {align} bytes")
        require_layout(extents, len(source) - start, align=align)
        require_zeros(source, extents, header_end, start)
        kept = {name: text for name, text in metadata.items() if not (ours and name in _OURS)}
        quantized = {
            key: read_quantized(
                key, checked_shape(key, about["shape"]), about["dtype"], extents[key].end - extents[key].start
            )
            for key, about in described.items()
            if is_quantized(about["dtype"])
        }
        entries, kept = split_quantized(entries_of(source, extents, start), quantized, kept)
        return ModuleRecord(entries, kept, scalars=_numbers(contents.get("scalars", {})))


def _descriptor(key: str, entry: RecordEntry, offsets: list[int]) -> dict[str, object]:
    fields = {"dtype": burn_type(entry.dtype), "shape": list(entry.shape), "data_offsets": offsets}
    return fields if entry.id is None else {**fields, "param_id": int(entry.id)}


def _extent(key: str, described: object, state: bool) -> Extent:
    if not isinstance(described, dict) or {"dtype", "shape", "data_offsets"} - described.keys():
        raise Unsound(f"{key} lacks its type, shape or offsets")
    (start, end), ident = checked_offsets(key, described["data_offsets"]), described.get("param_id")
    if ident is not None and (type(ident) is not int or not 0 <= ident < 2**64):
        raise Unsound(f"{key} has an id that no parameter has: {str(ident)[:80]}")
    shape = checked_shape(key, described["shape"])
    if is_quantized(described["dtype"]):
        return Extent(DType.U8, (end - start,), start, end, None if ident is None else ParamId(ident), state)
    dtype, width = read_burn_type(key, described["dtype"])
    return Extent(dtype, shape, start, end, None if ident is None else ParamId(ident), state, width)


def _order(text: str, described: Mapping[str, object]) -> dict[str, str]:
    try:
        kinds = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise Unsound(f"its list of keys cannot be read ({err})") from err
    if (
        not isinstance(kinds, dict)
        or kinds.keys() != described.keys()
        or any(kind not in ("param", "state") for kind in kinds.values())
    ):
        raise Unsound("its list of keys does not fit its tensors")
    return kinds


def _scalar(value: float) -> dict[str, float]:
    kind = "Bool" if isinstance(value, bool) else "Float" if isinstance(value, float) else "Int"
    return {"UInt" if kind == "Int" and value >= 2**63 else kind: value}


def _numbers(scalars: object) -> dict[str, float]:
    if not isinstance(scalars, dict):
        raise Unsound("its scalars are not numbers by name")
    numbers: dict[str, float] = {}
    for name, tagged in scalars.items():
        pairs: list[tuple[str, Any]] = list(tagged.items()) if isinstance(tagged, dict) else [("", None)]
        kind, numbers[name] = pairs[0] if len(pairs) == 1 else ("", False)
        if _SCALARS.get(kind) is not type(numbers[name]):
            raise Unsound(f"the scalar {name} is no number")
    return numbers


def _sort_keys(entries: Mapping[str, object]) -> dict[str, object]:
    """In the order of Burn's own maps."""
    return dict(sorted(entries.items(), key=lambda item: item[0].encode()))
