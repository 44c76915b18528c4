"""Records as safetensors files.

Metadata: `format` "burn_torch", `version`, `module` (its qualified name), `keys` (JSON: element type, shape, id and
kind of each key), `checksum` (SHA-256 over the other metadata and all data).  Files of other programs, without that
metadata, load too, as long as their header is sound.  A file with a good part of that metadata must have all of it,
so that damage to the metadata itself does not pass for a file of another program.
Source: https://huggingface.co/docs/safetensors, format description.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from burn_torch.backend import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, RecordError, explain
from burn_torch.core.files import write_atomic
from burn_torch.module.param import ParamId
from burn_torch.module.record import ModuleRecord, RecordEntry

__all__ = ["VERSION", "SafetensorsFormat"]

VERSION: Final = "1"


class SafetensorsFormat:
    """Writes and reads `.safetensors`."""

    def save(self, record: ModuleRecord, path: Path) -> None:
        """Writes a record, whole or not at all.  Raises: ArtifactError where it cannot."""
        from safetensors.torch import save

        tensors: dict[str, torch.Tensor] = {}
        contents: dict[str, bytes] = {}
        keys: dict[str, Any] = {}
        for key, entry in record.entries.items():
            data = entry.read()
            tensors[key] = LibTorch().from_data(data, "cpu")
            contents[key] = data.array.tobytes()
            kind = "state" if entry.state else "param"
            ident = None if entry.id is None else str(entry.id)
            keys[key] = {"dtype": data.dtype.name, "shape": list(data.shape), "id": ident, "kind": kind}
        metadata = {**record.metadata, "format": "burn_torch", "version": VERSION, "keys": json.dumps(keys)}
        metadata["checksum"] = _checksum(metadata, contents)
        try:
            write_atomic(path, save(tensors, metadata))
        except OSError as err:
            raise ArtifactError(
                explain(
                    "the record cannot be written",
                    given=f"{path}: {err.strerror or err}",
                    expected="a folder that exists and can be written to, with room for the file",
                    mend="choose another path",
                )
            ) from err

    def load(self, path: Path) -> ModuleRecord:
        """Reads a file.  Raises: RecordError for a missing or damaged file."""
        from safetensors import SafetensorError, deserialize

        try:
            content = path.read_bytes()
            tensors = dict(deserialize(content))  # type: ignore[no-untyped-call]
            metadata = _metadata(content)
        except FileNotFoundError as err:
            raise _fault(path, "there is no such file", "check the path") from err
        except OSError as err:
            raise _fault(path, f"it cannot be read: {err.strerror or err}", "check the path and its rights") from err
        except (SafetensorError, ValueError, RecursionError) as err:
            raise _damaged(path, f"it is damaged: {err}") from err
        described = _described(path, metadata, tensors) if _is_ours(metadata) else {}
        order = described or tensors
        entries = {key: _entry(path, key, tensors[key], described.get(key)) for key in order}
        return ModuleRecord(entries, metadata)


def _metadata(content: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", content[:8])
    text = content[8 : 8 + length]
    if not text.startswith(b"{"):  # the format says so; its own reader lets spaces pass
        raise ValueError("the header does not begin with {")
    header = json.loads(text, object_pairs_hook=_distinct)
    found: dict[str, str] = header.get("__metadata__", {})
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the header has {next(name for name in names if names.count(name) > 1)} twice")
    return found


def _is_ours(metadata: Mapping[str, str]) -> bool:
    """By its name, or by what else we write: any two of three, since one alone may be another program's word."""
    return (
        metadata.get("format") == "burn_torch" or sum(map(metadata.__contains__, ("version", "keys", "checksum"))) > 1
    )


def _checksum(metadata: Mapping[str, str], data: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(
        json.dumps({key: value for key, value in metadata.items() if key != "checksum"}, sort_keys=True).encode()
    )
    for key in sorted(data):
        digest.update(key.encode())
        digest.update(data[key])
    return digest.hexdigest()


def _described(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the metadata says of each key, once it is known to fit the file."""
    if metadata.get("version") != VERSION:
        raise _fault(
            path,
            f"it has format version {metadata.get('version')}, this burn_torch reads {VERSION}",
            "update burn_torch, or save the record again with this one",
        )
    data = {key: bytes(tensor["data"]) for key, tensor in tensors.items()}
    if metadata.get("format") != "burn_torch" or metadata.get("checksum") != _checksum(metadata, data):
        raise _damaged(path, "its checksum does not fit its content")
    try:
        found: dict[str, dict[str, Any]] = json.loads(metadata["keys"])
        # the header's own types and shapes are not under the checksum, this copy of them is
        fits = found.keys() == tensors.keys() and all(
            (about["dtype"], about["shape"]) == (_READ[tensor["dtype"]].name, list(tensor["shape"]))
            and about["kind"] in ("param", "state")
            and (about["id"] is None or ParamId.parse(about["id"]) >= 0)
            for about, tensor in ((found[key], tensors[key]) for key in found)
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as err:
        raise _damaged(path, f"its description of the keys cannot be read ({type(err).__name__}: {err})") from err
    if not fits:
        raise _damaged(path, "its header does not fit its description of the keys")
    return found


_READ: Final = {
    "F64": DType.F64, "F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "I64": DType.I64, "I32": DType.I32,
    "I16": DType.I16, "I8": DType.I8, "U64": DType.U64, "U32": DType.U32, "U16": DType.U16, "U8": DType.U8,
    "BOOL": DType.BOOL,
}  # fmt: skip


def _entry(path: Path, key: str, tensor: Any, described: Any) -> RecordEntry:
    dtype = _READ.get(tensor["dtype"])
    if dtype is None:
        raise _fault(path, f"{key} has the type {tensor['dtype']}", f"convert it to one of {', '.join(_READ)}")
    shape = tuple(tensor["shape"])
    data = bytes(tensor["data"])
    if dtype is DType.BOOL and data.translate(None, b"\0\1"):
        raise _damaged(path, f"{key} is of truth values, and has bytes other than 0 and 1")
    array = np.frombuffer(data, dtype.numpy).reshape(shape)
    ident = None if described is None or described["id"] is None else ParamId.parse(described["id"])
    state = described is not None and described["kind"] == "state"
    return RecordEntry(dtype, shape, ident, lambda: TensorData(array, dtype), state)


def _damaged(path: Path, what: str) -> RecordError:
    return _fault(path, what, "use an earlier checkpoint, or copy the file again")


def _fault(path: Path, what: str, mend: str) -> RecordError:
    return RecordError(
        explain("the record cannot be loaded", given=f"{path}: {what}", expected="a sound safetensors file", mend=mend)
    )
