"""Files of torch.save, as zip files and as one pickle behind another."""

from __future__ import annotations

import contextlib
import io
import random
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.fuzz_files.mutations import bytes_changed
from tests.fuzz_files.reader import Reader, either, errors_of_ours
from tests.fuzz_files.record_files import net

__all__ = ["READERS"]


@cache
def _pytorch(zipped: bool) -> tuple[bytes, ...]:
    import torch

    from tests.record.hostile.pytorch_corpus import LEGACY, saved

    layer = torch.nn.Linear(3, 4)
    options = {} if zipped else LEGACY
    shared = torch.arange(6.0)
    return (
        saved({"a.weight": layer.weight.detach(), "a.bias": layer.bias.detach()}, **options),
        saved({"a": [shared, shared[2:4], {"b": torch.ones(2, dtype=torch.bfloat16)}], "n": 3, "t": "x"}, **options),
    )


def pickle_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """The pickle within a zip file changed, or the bytes of a member, or those of the archive."""
    chance = rnd.random()
    if chance < 0.4 or not data.startswith(b"PK"):
        return bytes_changed(data, rnd, others)
    if chance < 0.6:  # where the directory and the end records are
        at = data.index(b"PK\x01\x02")
        return data[:at] + bytes_changed(data[at:], rnd)
    members = {
        info.filename: archive.read(info)
        for archive in [zipfile.ZipFile(io.BytesIO(data))]
        for info in archive.infolist()
    }
    name = rnd.choice([name for name in members if name.endswith("data.pkl")] * 4 + list(members))
    members[name] = drawn_pickle(rnd) if rnd.random() < 0.1 else opcodes_changed(members[name], rnd)
    file = io.BytesIO()
    with contextlib.suppress(UserWarning), zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


_OPCODES: Final = (
    b"()]}.0123NIJKMLFGXUVSTCBhjqrpgbecaioRtlduQP\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x90\x91\x92\x93\x94\x95"
)


def opcodes_changed(data: bytes, rnd: random.Random) -> bytes:
    """Bytes of a pickle, most often for other words."""
    changed = bytearray(bytes_changed(data, rnd))
    for _ in range(rnd.choice((0, 1, 1, 3))):
        if changed:
            changed[rnd.randrange(len(changed))] = rnd.choice(_OPCODES)
    return bytes(changed)


def drawn_pickle(rnd: random.Random) -> bytes:
    """Words drawn at random, with lists that stand in themselves and in each other."""
    words = [b"\x80" + bytes([rnd.choice((2, 2, 4, 5, 6, 127))])]
    drawn = (
        b"]", b"}", b")", b"(", b"e", b"u", b"s", b"a", b"t", b"l", b"d", b"0", b"2", b"1", b"N", b"K\x05", b"R", b"Q",
        b"b", b"q" + bytes([rnd.randrange(8)]), b"h" + bytes([rnd.randrange(8)]), b"h\x00" * 8, b"X\x01\x00\x00\x00a",
        b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"\x85",
        b"\x86", b"cos\nsystem\n", b"\x8a\x09" + rnd.randbytes(9), b"J\xff\xff\xff\x7f", b"X\x07\x00\x00\x00storage",
        b"\x94", b"\x93",
    )  # fmt: skip
    words += rnd.choices(drawn, k=rnd.choice((3, 10, 60, 400)))
    return b"".join(words) + b"."


def read_pytorch(path: Path) -> None:
    """Reads all tensors, lists them, and loads them into a module."""
    from burn_torch.record.listing import listing_of
    from burn_torch.record.stores import PytorchStore

    with contextlib.suppress(errors_of_ours()):
        listing_of(path)
    store = PytorchStore.from_file(path)
    for entry in store.get_all_snapshots().values():
        entry.read()
    with contextlib.suppress(errors_of_ours()):  # where no name is one of the module's
        net().load_from(store.allow_partial(True))


READERS: Final[dict[str, Reader]] = {
    "pt": Reader("m.pt", lambda: _pytorch(True), read_pytorch, pickle_changed),
    "pth, legacy": Reader(
        "m.pth", lambda: _pytorch(False), read_pytorch, either(bytes_changed, lambda d, r, o: opcodes_changed(d, r))
    ),
}
