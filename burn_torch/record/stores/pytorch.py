"""Defines what torch.save wrote, without running any of it.

The file goes through `torch.load(weights_only=True)` and nothing else: what needs more is refused, with the names that
it asked for.  Before that the zip directory is checked (see `zip_directory`), and the sizes that the pickle speaks of
against those of the members.
"""

from __future__ import annotations

import math
import pickle
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

import torch

from burn_torch.backend import LibTorch
from burn_torch.core.data import TensorData
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry
from burn_torch.ops.torch_types import FROM_TORCH
from burn_torch.record.faults import Unsound, cannot_load, worded
from burn_torch.record.file_format import open_source
from burn_torch.record.layout import MAX_TENSORS
from burn_torch.record.source import Source
from burn_torch.record.stores.adapter import ModuleAdapter, PyTorchToBurnAdapter
from burn_torch.record.stores.base import ModuleStore
from burn_torch.record.stores.pickle_walk import MAX_PICKLE_BYTES, Walk, word_of
from burn_torch.record.zip_directory import Member, members_of

__all__ = ["PytorchStore", "is_legacy", "walk_legacy", "walk_zipped"]

_KIND: Final = "PyTorch"
_ASKED: Final = re.compile(r"GLOBAL ([\w.]+)")
MAX_DEPTH: Final = 32
MAX_VISITS: Final = 8 * MAX_TENSORS
"""Values of nested lists and dicts; a list that stands in several places counts in each."""
_LEGACY: Final = 0x1950A86A20F9469CFC6C
"""Holds what the layout of torch.save before 1.6 begins with, as a pickle."""


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
        content = _load(self.source)
        if self.top_level_key is not None:
            if not isinstance(content, Mapping) or self.top_level_key not in content:
                there = ", ".join(map(word_of, content)) if isinstance(content, Mapping) else type(content).__name__
                raise cannot_load(
                    self.name,
                    f"it has no key {self.top_level_key}; it has {there[:400]}",
                    _KIND,
                    "name one of those in with_top_level_key",
                )
            content = content[self.top_level_key]
        entries: dict[str, RecordEntry] = {}
        shared: dict[tuple[Any, ...], RecordEntry] = {}
        faults: list[str] = []
        for key, tensor in _tensors(self.name, content):
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


def _load(path: Path) -> object:
    source = open_source(path, _KIND)
    zipped = bytes(source.bytes[:4]) == b"PK\x03\x04"
    try:
        _require_storages(source, zipped)
    except Unsound as err:
        raise worded(str(path), err, _KIND) from err
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
        # around the reason stands advice, to run the file too
        reason = (str(err).partition("WeightsUnpickler error:")[2] or str(err)).split("Check the")[0]
        raise cannot_load(str(path), f"it is damaged: {' '.join(reason.split())[:200]}", _KIND) from err
    except MemoryError as err:
        raise cannot_load(str(path), "it is damaged: its tensors do not fit in memory", _KIND) from err
    except Exception as err:  # a damaged pickle fails in any way: the reader runs on what the file says
        reason = (str(err).splitlines() or [""])[0][:200]
        raise cannot_load(str(path), f"it is damaged: {type(err).__name__}: {reason}", _KIND) from err


def _asked(path: Path, message: str, zipped: bool) -> list[str]:
    """The names that a pickle wants called: all of them where torch can list them, else the first."""
    names = [name for name in _ASKED.findall(message) if name]
    if names and zipped:
        with suppress(Exception):  # the list is a courtesy; the refusal stands without it
            names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path)) or names
    return list(dict.fromkeys(names))


def _require_storages(source: Source, zipped: bool) -> None:
    """Raises: Unsound, Foreign where the pickle speaks of more bytes than the file has.

    torch maps a storage of as many bytes as the pickle says, whatever its member has: what is too short would be filled
    with the bytes of its neighbours.
    """
    if not zipped:
        if bytes(source.bytes[:1]) != b"\x80":  # torch would take it for a tar file, and make a folder for that
            raise Unsound(f"it begins with {bytes(source.bytes[:8])!r}, as no file of torch.save")
        walk, _ = walk_legacy(source)
        walk.require_given_bytes()
        if (wanted := sum(walk.storage_bytes().values())) > len(source):
            raise Unsound(f"its storages need {wanted} bytes, and it has {len(source)}")
        return
    members = members_of(source)
    root, walk = walk_zipped(source, members)
    walk.require_given_bytes()
    for key, wanted in walk.storage_bytes().items():
        member = members.get(f"{root}data/{key}")
        if member is None or wanted > member.nbytes:
            raise Unsound(f"the storage {key} needs {wanted} bytes, and has {0 if member is None else member.nbytes}")


def walk_zipped(source: Source, members: Mapping[str, Member]) -> tuple[str, Walk]:
    """The folder that all members are in, and a walk through the pickle.  Raises: Unsound."""
    root = f"{next(iter(members), '').partition('/')[0]}/"  # torch takes that of the first one
    pickled = members.get(f"{root}data.pkl")
    if pickled is None or any(not name.startswith(root) for name in members):
        raise Unsound("it is a zip file without a member data.pkl in the one folder that all are in")
    if pickled.nbytes > MAX_PICKLE_BYTES:
        raise Unsound(f"{pickled.name} has more than {MAX_PICKLE_BYTES} bytes")
    return root, Walk(pickled.read(source))


def walk_legacy(source: Source) -> tuple[Walk, str]:
    """A walk through the object, and the version; around it stand a number, the version, the machine, and the keys.

    Raises: Unsound.
    """
    at = 0
    walks = []
    for step in range(5):
        walks.append(Walk(bytes(source.bytes[at : at + MAX_PICKLE_BYTES])))
        at += walks[-1].used
        if (step == 0 and walks[0].root != _LEGACY) or (step != 3 and walks[-1].asked):
            raise Unsound("it begins as no file of torch.save")
    return walks[3], str(walks[1].root)[:20]


def is_legacy(head: bytes) -> bool:
    """Returns whether bytes begin as torch.save's old layout: a pickle of its number."""
    return head[:1] == b"\x80" and _LEGACY.to_bytes(10, "little") in head[:32]


def _tensors(name: str, root: object) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors below a value, by dotted keys.  Raises: RecordError for nesting without end."""
    left = MAX_VISITS
    waiting: list[tuple[object, str, int]] = [(root, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        left -= 1
        if left < 0:
            raise cannot_load(name, f"it has more than {MAX_VISITS} values", _KIND)
        if isinstance(value, torch.Tensor):
            yield path or "tensor", value
            continue
        if depth > MAX_DEPTH:
            raise cannot_load(name, f"it is nested deeper than {MAX_DEPTH} levels", _KIND)
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        waiting += [(item, f"{path}.{word_of(key)}" if path else word_of(key), depth + 1) for key, item in items][::-1]


def _fault(key: str, tensor: torch.Tensor) -> str | None:
    """Why a tensor is none of ours, if so."""
    if tensor.is_meta:
        return f"{key} has no values: it was on the device meta"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.dtype not in FROM_TORCH:
        return f"{key} is {tensor.dtype} {tensor.layout}, which records do not hold".replace("torch.", "")
    wanted, there = math.prod(tensor.shape) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if wanted > there:
        return f"{key} needs {wanted} bytes, and has {there}"
    return None


def _entry(tensor: torch.Tensor) -> RecordEntry:
    def read() -> TensorData:
        return LibTorch().into_data(tensor.detach().contiguous())

    return RecordEntry(FROM_TORCH[tensor.dtype], tuple(tensor.shape), None, read)
