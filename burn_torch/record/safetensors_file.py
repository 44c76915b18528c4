"""Records as safetensors files.

Metadata: `format` "burn_torch", `version`, `module` (its qualified name), `keys` (JSON: element type, shape, id and
kind of each key), `checksum` (SHA-256 over the other metadata and all data).  Files of other programs, without that
metadata, load too, as long as their header is sound.
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
            raise _fault(path, f"it is damaged: {err}", "use an earlier checkpoint, or copy the file again") from err
        ours = metadata.get("format") == "burn_torch"
        if ours:
            _verify(path, metadata, tensors)
        described: dict[str, Any] = json.loads(metadata["keys"]) if ours else {}
        order = described or tensors
        entries = {key: _entry(path, key, tensors[key], described.get(key)) for key in order}
        return ModuleRecord(entries, metadata)


def _metadata(content: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    found: dict[str, str] = header.get("__metadata__", {})
    return found


def _checksum(metadata: Mapping[str, str], data: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(
        json.dumps({key: value for key, value in metadata.items() if key != "checksum"}, sort_keys=True).encode()
    )
    for key in sorted(data):
        digest.update(key.encode())
        digest.update(data[key])
    return digest.hexdigest()


def _verify(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Any]) -> None:
    if metadata.get("version") != VERSION:
        raise _fault(
            path,
            f"it has format version {metadata.get('version')}, this burn_torch reads {VERSION}",
            "update burn_torch, or save the record again with this one",
        )
    data = {key: bytes(tensor["data"]) for key, tensor in tensors.items()}
    if metadata.get("checksum") != _checksum(metadata, data) or set(json.loads(metadata["keys"])) != set(tensors):
        raise _fault(path, "its checksum does not fit its content", "use an earlier checkpoint, or copy the file again")


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
    array = np.frombuffer(bytes(tensor["data"]), dtype.numpy).reshape(shape)
    ident = None if described is None or described["id"] is None else ParamId.parse(described["id"])
    state = described is not None and described["kind"] == "state"
    return RecordEntry(dtype, shape, ident, lambda: TensorData(array, dtype), state)


def _fault(path: Path, what: str, mend: str) -> RecordError:
    return RecordError(
        explain("the record cannot be loaded", given=f"{path}: {what}", expected="a sound safetensors file", mend=mend)
    )
