"""Records as safetensors files.

    length u64  header in JSON  tensor data, without a gap

Metadata: `burn_torch` (our version), `format` "pt" (without it other libraries refuse the file), `keys` (JSON: order,
element type, shape, id and kind of each key, and `alias` for a second name of a parameter), `scalars`, `checksum`
(of the whole file).  Files of other programs, without that metadata, load too, as long as their header is
sound.  A file with a good part of that metadata must have all of it, so that damage to the metadata itself does not
pass for a file of another program.  Version 1, which covered less and had no aliases, is still read.
Source: https://huggingface.co/docs/safetensors, format description.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import IO, Any, Final, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.module.param import ParamId
from burn_torch.module.record import ModuleRecord, RecordEntry
from burn_torch.record.faults import Unsound, cannot_load, cannot_save, shortened
from burn_torch.record.file_format import FileFormat
from burn_torch.record.layout import (
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    Extent,
    checked_offsets,
    checked_shape,
    checked_texts,
    entries_of,
    first_keys,
    parse_json,
    require_layout,
)
from burn_torch.record.sealing import UNSEALED, SealedWriter, require_sealed
from burn_torch.record.source import ALIGNMENT, WINDOW, Source
from burn_torch.record.values import little_endian

__all__ = ["TYPES", "VERSION", "SafetensorsFormat", "described"]

VERSION: Final = "2"
READABLE: Final = ("1", "2")
_CHECKSUM: Final = b'"checksum":"'
TYPES: Final = {dtype.name.upper(): dtype for dtype in vars(DType).values() if isinstance(dtype, DType)}
"""Element types by their names in the file."""
_OURS: Final = ("burn_torch", "keys", "checksum", "scalars")


@checked
@final
class SafetensorsFormat(FileFormat):
    """Writes and reads `.safetensors`."""

    kind = "safetensors"

    def write(self, record: ModuleRecord, file: IO[bytes]) -> None:
        """Writes the header, then one tensor after another: those of whole lines first, then the widest elements, so
        that all are aligned and the large ones can be used where they lie."""
        first = first_keys(record.entries)
        keys = {
            key: _describe(entry) if first[key] == key else {"alias": first[key]}
            for key, entry in record.entries.items()
        }
        kept = sorted(dict.fromkeys(first.values()), key=lambda key: _place(record.entries[key]))
        metadata = {**record.metadata, "format": "pt", "burn_torch": VERSION, "keys": _compact(keys)}
        if record.scalars:
            metadata["scalars"] = _compact(record.scalars)
        contents: dict[str, object] = {"__metadata__": {**metadata, "checksum": UNSEALED}}
        at = 0
        for key in kept:
            entry = record.entries[key]
            if key == "__metadata__":
                raise cannot_save("a key __metadata__", expected="another name", mend="rename the field")
            offsets = [at, at := at + entry.nbytes]
            contents[key] = {"dtype": entry.dtype.name.upper(), "shape": list(entry.shape), "data_offsets": offsets}
        text = _compact(contents).encode()
        text += b" " * (-(len(text) + 8) % ALIGNMENT)
        if len(text) > MAX_HEADER_BYTES:
            raise cannot_save(
                f"{len(keys)} tensors with a header of {len(text)} bytes",
                expected=f"at most {MAX_HEADER_BYTES} bytes",
                mend="save parts of the model to files of their own",
            )
        header = struct.pack("<Q", len(text)) + text
        writer = SealedWriter(file)
        writer.write(header)
        for key in kept:
            writer.write(little_endian(record.entries[key].peek()))
        writer.seal(header, _CHECKSUM)

    def read(self, source: Source) -> ModuleRecord:
        """Checks header, layout and, where burn_torch wrote the file, the checksum."""
        header, start = _header(source)
        metadata = checked_texts(header.pop("__metadata__", {}))
        if len(header) > MAX_TENSORS:
            raise Unsound(f"it has {len(header)} tensors, and no record more than {MAX_TENSORS}")
        version = _version(metadata)
        if version is not None and version not in READABLE:
            raise cannot_load(
                source.name,
                f"it has format version {version}, this burn_torch reads {' and '.join(READABLE)}",
                self.kind,
                "update burn_torch, or save the record again with this one",
            )
        source.version = "" if version is None else f"layout {version} of burn_torch"
        if version == "2":
            require_sealed(source, start, _CHECKSUM, metadata.get("checksum"))
        kinds = {key: about.get("dtype") for key, about in header.items() if isinstance(about, dict)}
        unknown = [f"{key} has the type {k}" for key, k in kinds.items() if isinstance(k, str) and k not in TYPES]
        if unknown:
            raise cannot_load(source.name, shortened(unknown), self.kind, f"convert it to one of {', '.join(TYPES)}")
        plain = {key: _extent(key, about) for key, about in header.items()}
        require_layout(plain, len(source) - start)
        if version == "1":
            source.marked = True
            if not source.trusting:
                if metadata.get("checksum") != _checksum_of_version_1(source, start, metadata, plain):
                    raise Unsound("its checksum does not fit its content")
                source.sealed = True
        aliases, extents = _keys_of_ours(metadata, plain) if version else (_aliases(metadata, plain), plain)
        entries = entries_of(source, extents, start)
        ours = (*_OURS, "format", "version") if version else ()
        return ModuleRecord(
            {key: entries[aliases.get(key, key)] for key in (aliases if version else {**entries, **aliases})},
            {name: text for name, text in metadata.items() if name not in ours},
            scalars=_scalars(metadata) if version else {},
        )


def described(source: Source) -> tuple[dict[str, tuple[str, tuple[int, ...], int]], dict[str, str]]:
    """Type, shape and bytes of each tensor as the header has them, of any type, and the metadata.  Raises: Unsound."""
    header, _ = _header(source)
    metadata = header.pop("__metadata__", {})
    texts = metadata if isinstance(metadata, dict) else {}
    tensors = {}
    for key, about in header.items():
        kind = about.get("dtype") if isinstance(about, dict) else None
        extent = _extent(key, {**about, "dtype": "U8"} if isinstance(kind, str) else about)
        tensors[key] = (str(kind), extent.shape, extent.end - extent.start)
    return tensors, texts


def _place(entry: RecordEntry) -> tuple[bool, int]:
    ragged = entry.nbytes % ALIGNMENT != 0
    return ragged, -entry.dtype.itemsize if ragged else 0


def _header(source: Source) -> tuple[dict[str, Any], int]:
    if len(source) < 8:
        raise Unsound(f"it has {len(source)} bytes, fewer than the length of a header")
    (length,) = struct.unpack("<Q", source.bytes[:8])
    if length > MAX_HEADER_BYTES or length > len(source) - 8:
        raise Unsound(f"it promises a header length of {length} bytes, and has {len(source) - 8}")
    text = bytes(source.bytes[8 : 8 + length])
    if not text.startswith(b"{"):  # the format says so; its own reader lets spaces pass
        raise Unsound("the header does not begin with {")
    header: dict[str, Any] = parse_json(text, "the header")
    return header, 8 + length


def _version(metadata: Mapping[str, str]) -> str | None:
    """By its mark, or by what else we write: any two, since one alone may be another program's word."""
    if "burn_torch" in metadata:
        return metadata["burn_torch"]
    if metadata.get("format") == "burn_torch":
        return metadata.get("version", "of no number")
    if sum(map(metadata.__contains__, ("version", "keys", "checksum"))) > 1:
        raise Unsound("its checksum does not fit its content")
    return None


def _extent(key: str, about: object) -> Extent:
    if not isinstance(about, dict) or about.keys() != {"dtype", "shape", "data_offsets"}:
        raise Unsound(f"{key} lacks its type, shape or offsets")
    offsets = checked_offsets(key, about["data_offsets"])
    if not isinstance(about["dtype"], str):
        raise Unsound(f"{key} has a type that is no name")
    return Extent(TYPES[about["dtype"]], checked_shape(key, about["shape"]), *offsets)


def _describe(entry: RecordEntry) -> dict[str, object]:
    ident = None if entry.id is None else str(entry.id)
    kind = "state" if entry.state else "param"
    return {"dtype": entry.dtype.name, "shape": list(entry.shape), "id": ident, "kind": kind}


def _keys_of_ours(metadata: Mapping[str, str], plain: Mapping[str, Extent]) -> tuple[dict[str, str], dict[str, Extent]]:
    """Returns what the metadata says of each key, once it fits the header: the key of its tensor, and its id and
    kind.
    """
    aliases: dict[str, str] = {}
    extents: dict[str, Extent] = {}
    try:
        keys = json.loads(metadata["keys"])
        for key, about in keys.items():
            aliases[key] = about.get("alias", key)
            if "alias" in about:
                continue
            there = plain[key]
            if (about["dtype"], about["shape"]) != (there.dtype.name, list(there.shape)):
                # version 1 had types and shapes of the header not under the checksum, but this copy of them
                raise Unsound("its header does not fit its description of the keys")
            ident = None if about["id"] is None else ParamId.parse(about["id"])
            if about["kind"] not in ("param", "state") or (ident is not None and not 0 <= ident < 2**64):
                raise ValueError("no kind, or no id")
            extents[key] = Extent(there.dtype, there.shape, there.start, there.end, ident, about["kind"] == "state")
        fits = extents.keys() == plain.keys() and all(key in extents for key in aliases.values())
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as err:
        raise Unsound(f"its description of the keys cannot be read ({type(err).__name__}: {err})") from err
    if not fits:
        raise Unsound("its header does not fit its description of the keys")
    return aliases, extents


def _aliases(metadata: Mapping[str, str], plain: Mapping[str, Extent]) -> dict[str, str]:
    """Second names of tied tensors, as safetensors' own `save_model` notes them."""
    return {name: first for name, first in metadata.items() if first in plain and name not in plain}


def _scalars(metadata: Mapping[str, str]) -> dict[str, float]:
    try:
        scalars = json.loads(metadata.get("scalars", "{}"))
    except (ValueError, RecursionError) as err:
        raise Unsound(f"its scalars cannot be read ({err})") from err
    if not isinstance(scalars, dict) or any(type(value) not in (int, float, bool) for value in scalars.values()):
        raise Unsound("its scalars are not numbers by name")
    return scalars


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _checksum_of_version_1(source: Source, start: int, metadata: Mapping[str, str], plain: Mapping[str, Extent]) -> str:
    """It covered the metadata without itself, and each key with its data, in the order of the keys."""
    covered = {key: value for key, value in metadata.items() if key != "checksum"}
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode())
    for key in sorted(plain):
        digest.update(key.encode())
        for at in range(start + plain[key].start, start + plain[key].end, WINDOW):
            digest.update(source.bytes[at : min(at + WINDOW, start + plain[key].end)])
    return digest.hexdigest()
