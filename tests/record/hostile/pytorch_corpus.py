"""Damaged and hostile files of torch.save: cut, changed, calling what they should not, bombs."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.record.hostile.corpus import HUGE, Case, content, late


# -- torch.save -------------------------------------------------------------------------------------------------------
class Called:
    """Pickles as a call, which loading must not make."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, file, **options)
    return file.getvalue()


LEGACY = {"_use_new_zipfile_serialization": False}
CANARY = "ran"
MAY_LOAD = ("cycle", "doubled", "memo")
"""They hold no tensors, and ask for nothing."""


def calls() -> dict[str, Any]:
    """Calls that would leave a file named CANARY, or do worse."""
    import builtins
    import runpy
    import shutil
    import subprocess
    import webbrowser

    touch = f"open({CANARY!r}, 'w')"
    return {
        "os.system": Called(os.system, f"touch {CANARY}"),
        "os.popen": Called(os.popen, f"touch {CANARY}"),
        "eval": Called(builtins.eval, touch),
        "exec": Called(builtins.exec, touch),
        "open": Called(builtins.open, CANARY, "w"),
        "subprocess": Called(subprocess.check_output, ["touch", CANARY]),
        "import": Called(builtins.__import__, "os"),
        "getattr": Called(builtins.getattr, 3, "real"),
        "runpy": Called(runpy.run_path, CANARY),
        "rmtree": Called(shutil.rmtree, "folder"),
        "browser": Called(webbrowser.open, "http://localhost:1"),
        "torch.load": Called(torch.load, CANARY),
        "hub": Called(torch.hub.load, "a/b", "c"),
        "compile": Called(builtins.compile, touch, "x", "exec"),
        "numpy": Called(np.load, CANARY),
        "remove": Called(os.remove, "sound"),
        "exit": Called(builtins.exit, 3),
        "mkdir": Called(os.mkdir, CANARY),
        "loads": Called(pickle.loads, b"cos\nsystem\n(S'touch ran'\ntR."),
        "module": torch.nn.Linear(2, 2),
    }


def hostile_pytorch(rnd: random.Random) -> Iterator[Case]:
    sound = {"zip": saved({"a": torch.ones(3), "b": torch.ones(2, 2)}), "legacy": saved({"a": torch.ones(3)}, **LEGACY)}
    for kind, data in sound.items():
        step = 1 if kind == "legacy" else 3
        for cut in range(0, len(data), step):
            yield Case(f"{kind} cut at {cut}", "pytorch", "m.pt", content(data[:cut]))
        for at in rnd.sample(range(8 * len(data)), 200):
            bad = bytearray(data)
            bad[at // 8] ^= 1 << at % 8
            yield Case(f"{kind} bit {at}", "pytorch", "m.pt", content(bytes(bad)), refused=False)
        for i in range(60):
            bad = bytearray(data)
            at = rnd.randrange(len(bad) - 8)
            bad[at : at + 8] = struct.pack("<Q", rnd.choice(HUGE))
            yield Case(f"{kind} number {i}", "pytorch", "m.pt", content(bytes(bad)), refused=False)
    for name, call in calls().items():
        yield Case(f"zip {name}", "pytorch", "m.pt", content(saved({"a": torch.ones(2), "b": call})))
        yield Case(f"legacy {name}", "pytorch", "m.pt", content(saved({"a": torch.ones(2), "b": call}, **LEGACY)))
        for protocol in range(6):
            try:
                plain = pickle.dumps(call, protocol)
            except Exception:  # some things have no old protocol
                continue
            yield Case(f"plain {name} {protocol}", "pytorch", "m.pt", content(plain))
    pickles: dict[str, bytes] = {
        "deep": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        "cycle": b"\x80\x02]q\x00h\x00a.",
        "dict of itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
        "nothing": b"",
        "stop": b".",
        "text": b"hello",
        "doubled": b"\x80\x02]q\x00" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60)) + b".",
        "long": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "bytes": b"\x80\x04\x8e" + b"\xff" * 8 + b".",
        "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
        "persistent": b"\x80\x02X\x07\x00\x00\x00storageQ.",
        "extension": b"\x80\x02\x82\x01.",
        "many": b"\x80\x02(" + b"]" * 3_000_000 + b"l.",
    }
    for name, body in pickles.items():
        yield Case(f"zip pickle {name}", "pytorch", "m.pt", content(zipped(body)), refused=name not in MAY_LOAD)
    storages = [
        ("torch", "FloatStorage", size, shape, stride)
        for size, shape, stride in [
            (2**40, (2**40,), (1,)),
            (3, (2**62,), (1,)),
            (3, (2**40, 2**40), (2**40, 1)),
            (3, (-3,), (1,)),
            (3, (3,), (-1,)),
            (3, (100,), (1,)),
            (3, (3,), (2**62,)),
            (-1, (3,), (1,)),
            (2**63 - 1, (3,), (1,)),
            (3, (0,), (2**62,)),
            (3, (3,), ()),
            (3, (), (1,)),
            (3, (2,) * 70, (1,) * 70),
        ]
    ] + [("torch", "DoubleStorage", 3, (3,), (1,)), ("os", "system", 3, (3,), (1,)), ("torch", "load", 3, (3,), (1,))]
    for i, (module, kind, count, shape, stride) in enumerate(storages):
        body = rebuilt(module, kind, count, shape, stride)
        sizes = bytes(12)
        yield Case(
            f"storage {i}", "pytorch", "m.pt", content(zipped(body, {"data/0": sizes})), refused=i not in (8, 9, 10)
        )
    yield from hostile_zips()


def zipped(body: bytes, members: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("m/data.pkl", body)
        archive.writestr("m/byteorder", b"little")
        for name, data in (members or {}).items():
            archive.writestr(f"m/{name}", data)
        archive.writestr("m/version", b"3\n")
    return file.getvalue()


def rebuilt(module: str, kind: str, count: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """The pickle of one tensor, word by word."""

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"\x8a\x09" + value.to_bytes(9, "little", signed=True) for value in values) + b"t"

    storage = (
        b"(X\x07\x00\x00\x00storage"
        + f"c{module}\n{kind}\n".encode()
        + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + b"\x8a\x09"
        + count.to_bytes(9, "little", signed=True)
        + b"tQ"
    )
    called = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + numbers(shape) + numbers(stride) + b"\x89"
    return b"\x80\x02}X\x01\x00\x00\x00a" + called + b"ccollections\nOrderedDict\n)RtRs."


def crowded() -> bytes:
    """A zip file that is nothing but a directory."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(150_000):
            archive.writestr(f"m/data/{i}{'x' * 80}", b"")
    return file.getvalue()


def hostile_zips() -> Iterator[Case]:
    body = rebuilt("torch", "FloatStorage", 3, (3,), (1,))
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(3):
            archive.writestr("m/data.pkl", body)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as old:
        for name in ("sys_info", "pickle", "tensors", "storages", "../../outside"):
            info = tarfile.TarInfo(name)
            info.size = 10
            old.addfile(info, io.BytesIO(b"cos\nsystem"))
    script = io.BytesIO()
    with zipfile.ZipFile(script, "w") as archive:
        for name in ("constants.pkl", "data.pkl", "code/m.py", "version"):
            archive.writestr(f"m/{name}", b"\x80\x02).")
    files: dict[str, bytes] = {
        "twice": file.getvalue(),
        "no storage": zipped(body),
        "short storage": zipped(body, {"data/0": bytes(4)}),
        "outside": zipped(body, {"../../../outside": b"x"}),
        "tar": tar.getvalue(),
        "script": script.getvalue(),
        "empty zip": b"PK\5\6" + bytes(18),
        "begins as a zip": b"PK\3\4" + bytes(100),
        "zip in a zip": zipped(zipped(body)),
    }
    for name, data in files.items():
        yield Case(f"zip {name}", "pytorch", "m.pt", content(data))
    zeros = {"data/0": bytes(1 << 25)}
    yield Case("zip packed", "pytorch", "m.pt", late(lambda: zipped(body, zeros, zipfile.ZIP_DEFLATED)))
    yield Case("zip lzma", "pytorch", "m.pt", late(lambda: zipped(body, zeros, zipfile.ZIP_LZMA)))
    yield Case("zip crowded", "pytorch", "m.pt", late(crowded))
    sound = zipped(body, {"data/0": bytes(12)})
    at = sound.rindex(b"PK\5\6")
    for offset, width in ((8, 2), (10, 2), (12, 4), (16, 4), (20, 2)):
        for value in (1, 2**15, 2 ** (8 * width) - 1):
            bad = bytearray(sound)
            bad[at + offset : at + offset + width] = value.to_bytes(width, "little")
            yield Case(f"zip end {offset} {value}", "pytorch", "m.pt", content(bytes(bad)), refused=False)
    for name in ("is a folder", "is a pipe", "is a device", "is not there"):
        make: Callable[[Path], Any] = {
            "is a folder": lambda path: path.mkdir(),
            "is a pipe": os.mkfifo,
            "is a device": lambda path: path.symlink_to("/dev/zero"),
            "is not there": lambda path: None,
        }[name]
        yield Case(f"pt {name}", "pytorch", "m.pt", make)
