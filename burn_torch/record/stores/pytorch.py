"""What torch.save wrote, without running any of it.

The file goes through `torch.load(weights_only=True)` and nothing else: what needs more is refused, with the names that
it asked for.  Before that the zip directory is checked (torch stores its members unpacked, so a packed one is a bomb),
and the sizes that the pickle speaks of against those of the members.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

import torch

from burn_torch.backend import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry
from burn_torch.record.faults import Unsound, cannot_load, shortened
from burn_torch.record.file_format import open_source
from burn_torch.record.source import Source
from burn_torch.record.stores.adapter import ModuleAdapter, PyTorchToBurnAdapter
from burn_torch.record.stores.base import ModuleStore
from burn_torch.record.stores.pickle_walk import MAX_PICKLE_BYTES, Walk

__all__ = ["ZIP_FAULTS", "PytorchStore", "require_small_directory", "walked"]

_KIND: Final = "PyTorch"
_DTYPES: Final = {
    torch.float64: DType.F64, torch.float32: DType.F32, torch.float16: DType.F16, torch.bfloat16: DType.BF16,
    torch.int64: DType.I64, torch.int32: DType.I32, torch.int16: DType.I16, torch.int8: DType.I8,
    torch.uint64: DType.U64, torch.uint32: DType.U32, torch.uint16: DType.U16, torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
}  # fmt: skip
_ASKED: Final = re.compile(r"GLOBAL ([\w.]+)")
ZIP_FAULTS: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, OSError, EOFError, ValueError,
    LookupError,
)  # fmt: skip
"""What zipfile raises for a damaged file, beside its own error."""
MAX_DEPTH: Final = 32
MAX_DIRECTORY_BYTES: Final = 16 << 20
"""Of a zip file: 100 bytes a storage."""


@final
@dataclass(frozen=True)
class PytorchStore(ModuleStore):
    """A `.pt` or `.pth` file of tensors, in dicts of any depth; read only.

    Both layouts of torch.save are read, the zip one memory-mapped.  Linear matrices, norm names, attention and
    recurrent layers are adapted, and numbers in keys lose their gaps; both can be switched off.
    """

    from_adapter: ModuleAdapter = field(default_factory=PyTorchToBurnAdapter)
    contiguous: bool = True
    top_level_key: str | None = None

    def with_top_level_key(self, key: str) -> Self:
        """Only what stands under this key: `with_top_level_key("state_dict")`."""
        return replace(self, top_level_key=key)

    def read(self) -> ModuleRecord:
        """The tensors by dotted keys; other values are left."""
        assert isinstance(self.source, Path), "a PytorchStore is made by from_file"
        found = _load(self.source)
        if self.top_level_key is not None:
            if not isinstance(found, Mapping) or self.top_level_key not in found:
                there = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
                raise cannot_load(
                    self.name,
                    f"it has no key {self.top_level_key}; it has {there[:400]}",
                    _KIND,
                    "name one of those in with_top_level_key",
                )
            found = found[self.top_level_key]
        entries: dict[str, RecordEntry] = {}
        shared: dict[tuple[Any, ...], RecordEntry] = {}
        faults: list[str] = []
        for key, tensor in _tensors(self.name, found, "", 0):
            fault = _fault(key, tensor) or (f"{key} stands there twice" if key in entries else None)
            if fault is not None:
                faults.append(fault)
                continue
            start = (tensor.untyped_storage().data_ptr(), tensor.storage_offset())
            same = (start, tensor.shape, tensor.stride(), tensor.dtype)
            entries[key] = shared.setdefault(same if tensor.numel() else (key,), _entry(tensor))
        if faults:
            raise cannot_load(self.name, faults, _KIND, "convert them in PyTorch first: tensor.to(dtype).contiguous()")
        return ModuleRecord(entries)


def _load(path: Path) -> Any:
    source = open_source(path, _KIND)
    zipped = bytes(source.bytes[:4]) == b"PK\x03\x04"
    try:
        if zipped:
            require_small_directory(source)
            _require_stored(path, len(source))
        elif bytes(source.bytes[:1]) != b"\x80":  # torch would take it for a tar file, and make a folder for that
            raise Unsound(f"it begins with {bytes(source.bytes[:8])!r}, as no file of torch.save")
    except Unsound as err:
        raise cannot_load(str(path), f"it is damaged: {err}", _KIND) from err
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old layouts: they are read, or refused below
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as err:
        asked = _asked(path, str(err), zipped)
        if asked:
            raise cannot_load(
                str(path),
                f"it asks for {', '.join(asked)}, which is more than tensors",
                _KIND,
                "in PyTorch, save the state_dict alone: torch.save(model.state_dict(), path)",
            ) from err
        raise cannot_load(str(path), f"it is damaged: {str(err).splitlines()[0][:200]}", _KIND) from err
    except MemoryError as err:
        raise cannot_load(str(path), "it is damaged: its tensors do not fit in memory", _KIND) from err
    except Exception as err:  # a damaged pickle fails in any way: the reader runs on what the file says
        reason = (str(err).splitlines() or [""])[0][:200]
        raise cannot_load(str(path), f"it is damaged: {type(err).__name__}: {reason}", _KIND) from err


def _asked(path: Path, message: str, zipped: bool) -> list[str]:
    """The names that a pickle wants called: all of them where torch can list them, else the first."""
    found = [name for name in _ASKED.findall(message) if name]
    if found and zipped:
        with suppress(Exception):  # the list is a courtesy; the refusal stands without it
            found = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path)) or found
    return list(dict.fromkeys(found))


def require_small_directory(source: Source) -> None:
    """Raises: Unsound for a zip file whose directory alone would fill the memory of who lists it."""
    tail = bytes(source.bytes[-(1 << 16) - 22 :])
    at = tail.rfind(b"PK\x05\x06")
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    wide = tail.rfind(b"PK\x06\x06")  # of files above 4 GiB, and those with more members
    if size == 0xFFFFFFFF and wide >= 0:
        size = int.from_bytes(tail[wide + 40 : wide + 48], "little")
    if size > MAX_DIRECTORY_BYTES:
        raise Unsound(f"its zip directory has {size} bytes, and that of a model at most {MAX_DIRECTORY_BYTES}")


def _require_stored(path: Path, size: int) -> None:
    """Raises: RecordError or Unsound for a zip file that torch.save does not write.

    torch maps a storage of as many bytes as the pickle says, whatever its member has: what is too short would be filled
    with the bytes of its neighbours.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            packed = [member.filename for member in members if member.compress_type != zipfile.ZIP_STORED]
            if packed or sum(member.file_size for member in members) > size:
                what = f"{shortened(packed)[0]} is packed" if packed else "its members overlap"
                raise cannot_load(str(path), f"it is no file of torch.save: {what}", _KIND, "save it with torch.save")
            root, walk = walked(archive)
            for key, wanted in walk.storage_bytes().items():
                there = archive.getinfo(f"{root}data/{key}").file_size
                if wanted > there:
                    raise Unsound(f"the storage {key} needs {wanted} bytes, and has {there}")
    except ZIP_FAULTS as err:
        if isinstance(err, RecordError):
            raise
        raise cannot_load(str(path), f"it is damaged: {err}", _KIND) from err


def walked(archive: zipfile.ZipFile) -> tuple[str, Walk]:
    """The folder that all members are in, and a walk through the pickle.  Raises: Unsound, or ZIP_FAULTS."""
    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(pickles) != 1:
        raise Unsound(f"it is a zip file with {len(pickles)} members data.pkl")
    about = archive.getinfo(pickles[0])
    if about.compress_type != zipfile.ZIP_STORED or about.file_size > MAX_PICKLE_BYTES:
        raise Unsound(f"{pickles[0]} is packed, or has more than {MAX_PICKLE_BYTES} bytes")
    return pickles[0].removesuffix("data.pkl"), Walk(archive.read(about))


def _tensors(name: str, value: Any, path: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path or "tensor", value
        return
    if depth > MAX_DEPTH:
        raise cannot_load(name, f"it is nested deeper than {MAX_DEPTH} levels", _KIND)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from _tensors(name, item, f"{path}.{key}" if path else str(key), depth + 1)


def _fault(key: str, tensor: torch.Tensor) -> str | None:
    """Why a tensor is none of ours, if so."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.dtype not in _DTYPES:
        return f"{key} is {tensor.dtype} {tensor.layout}, which records do not hold".replace("torch.", "")
    wanted, there = math.prod(tensor.shape) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if wanted > there:
        return f"{key} needs {wanted} bytes, and has {there}"
    return None


def _entry(tensor: torch.Tensor) -> RecordEntry:
    def read() -> TensorData:
        return LibTorch().into_data(tensor.detach().contiguous())

    return RecordEntry(_DTYPES[tensor.dtype], tuple(tensor.shape), None, read)
