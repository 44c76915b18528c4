"""Defines what a file of tensors holds, without loading it: `burn-torch inspect`.

Only headers are read of a large file, and nothing that a file says is run.  Which format it is, its first bytes say;
its name is not trusted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, final

from burn_torch.module.record import FORMATS, ModuleRecord
from burn_torch.record.faults import Unsound, cannot_load, worded
from burn_torch.record.file_format import FileFormat, open_source
from burn_torch.record.layout import MAX_TENSORS, first_keys
from burn_torch.record.safetensors_file import TYPES, described
from burn_torch.record.safetensors_shards import INDEX_ENDING, ShardedSafetensorsFormat, shards_of
from burn_torch.record.source import Source
from burn_torch.record.stores.pickle_walk import PickledTensor, Walk, is_harmless, tensors_of
from burn_torch.record.stores.pytorch import is_legacy, walk_legacy, walk_zipped
from burn_torch.record.zip_directory import members_of

__all__ = ["PYTORCH", "Listed", "Listing", "ending_of", "listing_of"]

CHECKED_BYTES: Final = 256 << 20
"""Up to this size a checksum is read unasked: some 15 ms."""
PYTORCH: Final = ".pt"


@final
@dataclass(frozen=True)
class Listed:
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int | None
    """None for an element type whose size is not known here."""
    same_as: str | None = None
    """The name of another tensor whose memory it shares."""
    about: str = ""
    """Holds what else the file says of it: "state", the file that it lies in."""


@final
@dataclass(frozen=True)
class Listing:
    """All that a file says of itself."""

    path: str
    format: str
    version: str
    file_bytes: int
    tensors: tuple[Listed, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    checksum: str = "none"
    asks_for: tuple[str, ...] = ()
    """Names beyond tensors that a pickle wants called."""
    notes: tuple[str, ...] = ()

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors; one with several names counts once."""
        return sum(tensor.nbytes or 0 for tensor in self.tensors if tensor.same_as is None)

    @property
    def elements(self) -> int:
        """Values of all tensors, counted like that."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors if tensor.same_as is None)

    @property
    def dtypes(self) -> dict[str, int]:
        """How many tensors there are of each element type."""
        return dict(Counter(tensor.dtype for tensor in self.tensors))


def ending_of(path: Path) -> str:
    """The ending that a file's content should have: one of FORMATS, or ".pt".  Raises: RecordError for neither."""
    source = open_source(path, "record")
    head = bytes(source.bytes[:64])
    if head.startswith(b"PK\x03\x04") or is_legacy(head):
        return PYTORCH
    if head.startswith(b"NRUB"):
        return ".bpk"
    if head.startswith(b"\x0eburn_torch bin"):
        return ".bin"
    if head.startswith(b"\x1f\x8b"):
        return next((ending for ending in (".mpk.gz", ".json.gz", ".bin.gz") if path.name.endswith(ending)), ".mpk.gz")
    if head[8:9] == b"{":
        return ".safetensors"
    if head.lstrip()[:1] == b"{":
        return INDEX_ENDING if path.name.endswith(INDEX_ENDING) else ".json"
    named = [ending for ending in FORMATS if path.name.endswith(ending)]
    if named:
        return max(named, key=len)
    if head[:1] and (0x80 <= head[0] < 0x90 or head[0] in (0xDE, 0xDF)):
        return ".mpk"
    raise cannot_load(
        str(path),
        f"it begins with {head[:8]!r}, as no format that is known here" if head else "it is empty",
        f"{', '.join(sorted([*FORMATS, '.onnx', PYTORCH]))}",
        "check that this is the file you mean",
    )


def listing_of(path: Path, *, check: bool | None = None) -> Listing:
    """Returns what a record or a file of torch.save holds.

    check: whether the checksum is compared, for which all of the file is read; None for files below 256 MiB.
    Raises: RecordError for a file that is missing, damaged, or of no known format.
    """
    ending = ending_of(path)
    try:
        if ending == PYTORCH:
            return _of_pytorch(path)
        if ending == INDEX_ENDING:
            return _of_shards(path, check)
        return _of_record(path, ending, check)
    except Unsound as err:
        raise worded(str(path), err, ending) from err


# -- records -----------------------------------------------------------------------------------------------------
def _of_record(path: Path, ending: str, check: bool | None) -> Listing:
    form = FORMATS[ending]
    assert isinstance(form, FileFormat)
    source = open_source(path, form.kind)
    source.trusting = len(source) > CHECKED_BYTES if check is None else not check
    if ending == ".safetensors":
        raw, metadata = described(source)
        if foreign := {kind for kind, _, _ in raw.values()} - TYPES.keys():
            note = f"burn_torch does not load elements of {', '.join(sorted(foreign))[:400]}"
            tensors = tuple(Listed(key, kind, shape, nbytes) for key, (kind, shape, nbytes) in raw.items())
            texts = {str(name): str(text) for name, text in metadata.items()}  # nothing has looked at them yet
            return Listing(str(path), form.kind, "", len(source), tensors, texts, notes=(note,))
    listing = _list_record(form.read_from(source))
    checksum = _checksum([source])
    return replace(
        listing, path=str(path), format=form.kind, version=source.version, file_bytes=len(source), checksum=checksum
    )


def _checksum(sources: Iterable[Source]) -> str:
    opened = list(sources)
    if not all(source.marked for source in opened):
        return "none"
    return "fits" if all(source.sealed for source in opened) else "not compared"


def _list_record(record: ModuleRecord) -> Listing:
    tensors = []
    for key, known in first_keys(record.entries).items():
        entry = record.entries[key]
        about = "state" if entry.state else ""
        tensors.append(Listed(key, entry.dtype.name, entry.shape, entry.nbytes, known if known != key else None, about))
    return Listing("", "", "", 0, tuple(tensors), record.metadata, record.scalars)


def _of_shards(path: Path, check: bool | None) -> Listing:
    where = shards_of(path)
    form = ShardedSafetensorsFormat()
    size = form.nbytes(path)
    record, sources = form.load_from(path, trusting=size > CHECKED_BYTES if check is None else not check)
    listing = _list_record(record)
    tensors = tuple(replace(tensor, about=f"in {where[tensor.name]}") for tensor in listing.tensors)
    return replace(
        listing,
        path=str(path),
        format="sharded safetensors",
        version=f"{len(sources)} shard{'s' * (len(sources) != 1)}",
        file_bytes=size,
        tensors=tensors,
        checksum=_checksum(sources.values()),
    )


# -- files of torch.save ----------------------------------------------------------------------------------------
def _of_pytorch(path: Path) -> Listing:
    source = open_source(path, "PyTorch")
    zipped = bytes(source.bytes[:4]) == b"PK\x03\x04"
    walk, version = _walk_zip(source) if zipped else walk_legacy(source)
    tensors = []
    first: dict[PickledTensor, str] = {}
    for pickled in tensors_of(walk.root):
        known = first.setdefault(replace(pickled, key=""), pickled.key)
        same_as, storage = known if known != pickled.key else None, f"storage {pickled.storage}"
        tensors.append(Listed(pickled.key, pickled.dtype, pickled.shape, pickled.nbytes, same_as, storage))
        if len(tensors) > MAX_TENSORS:
            raise Unsound(f"it has more than {MAX_TENSORS} tensors")
    asked = tuple(str(name) for name in walk.asked if not is_harmless(name))
    notes = ("PytorchStore refuses this file: what it asks for is more than tensors",) if asked else ()
    layout = "zip" if zipped else "legacy"
    return Listing(
        str(path),
        f"PyTorch, {layout} layout",
        f"version {version}" if version else "",
        len(source),
        tuple(tensors),
        asks_for=asked,
        notes=notes,
    )


def _walk_zip(source: Source) -> tuple[Walk, str]:
    members = members_of(source)
    root, walk = walk_zipped(source, members)
    about = members.get(f"{root}version")
    return walk, about.read(source).decode(errors="replace").strip() if about is not None and about.nbytes < 64 else ""
