"""Damaged and hostile files of every format: each with how it is made and whether it must be refused.

`bounded` cases may load: damage to the values alone of a file without a checksum cannot be seen by anybody.  They must
end in one error or in a result, with the same bounds on time, memory and what is touched.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import RecordEntry
from burn_torch.record import ShardedSafetensorsFormat
from burn_torch.record.cbor import encode as cbor
from burn_torch.record.messagepack import encode as mpk

ENDINGS = (".safetensors", ".bpk", ".mpk", ".mpk.gz", ".json", ".json.gz", ".bin", ".bin.gz")
HUGE = (2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1, 100_000_000, 100 * 2**20)
DATA = np.arange(12, dtype=np.float32).tobytes()


@dataclass(frozen=True)
class Case:
    """One file: how it is made in a folder of its own, and who reads it."""

    name: str
    reader: str
    """record, pytorch or onnx."""
    file: str
    make: Callable[[Path], Any]
    """Makes it at a path; may return another one, which is read then."""
    refused: bool = True


def content(data: bytes) -> Callable[[Path], None]:
    """Makes a file of these bytes."""

    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


def late(data: Callable[[], bytes]) -> Callable[[Path], None]:
    """The same for bytes that take long to make: only when they are wanted."""

    def make(path: Path) -> None:
        path.write_bytes(data())

    return make


def ours(ending: str) -> bytes:
    """A sound record of ours."""
    data = TensorData.of(np.arange(12.0).reshape(3, 4), DType.F32)
    mask = TensorData.of([True, False, True])
    entries = {
        "a.w": RecordEntry(data.dtype, data.shape, ParamId(3), lambda: data),
        "mask": RecordEntry(mask.dtype, mask.shape, ParamId(4), lambda: mask, True),
    }
    return ModuleRecord(entries, {"module": "Net"}, scalars={"steps": 3}).into_bytes(ending)


def header_bytes(data: bytes, ending: str) -> int:
    """How long what comes before the values is."""
    if ending == ".safetensors":
        return 8 + int.from_bytes(data[:8], "little")
    if ending == ".bpk":
        return 10 + int.from_bytes(data[6:10], "little")
    return len(data) if ending.endswith(".gz") else data.index(b"a.w") if ending == ".bin" else data.index(b"item")


# -- records of ours, damaged -----------------------------------------------------------------------------------
def damaged_records(rnd: random.Random) -> Iterator[Case]:
    for ending in ENDINGS:
        sound = ours(ending)
        for length in range(header_bytes(sound, ending)):
            yield Case(f"{ending} cut at {length}", "record", f"m{ending}", content(sound[:length]))
        for at in rnd.sample(range(8 * len(sound)), 40):
            bad = bytearray(sound)
            bad[at // 8] ^= 1 << at % 8
            yield Case(f"{ending} bit {at}", "record", f"m{ending}", content(bytes(bad)))
        for i in range(25):
            at = rnd.randrange(len(sound) - 8)
            bad = bytearray(sound)
            bad[at : at + 8] = struct.pack(rnd.choice("<>") + "Q", rnd.choice(HUGE))
            if bytes(bad) != sound:
                yield Case(f"{ending} number {i}", "record", f"m{ending}", content(bytes(bad)))
        for i, tail in enumerate((b"\0", b"x" * 100, sound)):
            yield Case(f"{ending} with a tail {i}", "record", f"m{ending}", content(sound + tail))
        yield Case(
            f"{ending} of another format", "record", f"m{ending}", content(ours(ENDINGS[ENDINGS.index(ending) - 1]))
        )
        yield Case(f"{ending} is a folder", "record", f"m{ending}", lambda path: path.mkdir())
        yield Case(f"{ending} is a pipe", "record", f"m{ending}", lambda path: os.mkfifo(path))
        yield Case(f"{ending} is a link to itself", "record", f"m{ending}", lambda path: path.symlink_to(path))
        yield Case(f"{ending} is a device", "record", f"m{ending}", lambda path: path.symlink_to("/dev/zero"))
        yield Case(f"{ending} is not there", "record", f"m{ending}", lambda path: None)


# -- safetensors of others -----------------------------------------------------------------------------------------
def safetensors(header: Any, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48], **changes}


def hostile_safetensors() -> Iterator[Case]:
    sound = safetensors({"a": tensor()})
    for length in range(len(sound) - len(DATA)):
        yield Case(f"foreign safetensors cut at {length}", "record", "m.safetensors", content(sound[:length]))
    for size in HUGE:
        yield Case(f"header of {size}", "record", "m.safetensors", content(struct.pack("<Q", size) + sound[8:]))
        for name, about in {
            "shape": tensor(shape=[size]),
            "shapes": tensor(shape=[size, size]),
            "end": tensor(data_offsets=[0, size]),
            "start": tensor(data_offsets=[size, size]),
            "zero": tensor(shape=[0, size, size, size]),
        }.items():
            yield Case(
                f"{name} {size}", "record", "m.safetensors", content(safetensors({"a": about})), refused=name != "zero"
            )
    wrong: dict[str, Any] = {
        "negative shape": tensor(shape=[-3, -4]),
        "float shape": tensor(shape=[3.0, 4]),
        "text shape": tensor(shape="34"),
        "bool shape": tensor(shape=[True, 12]),
        "null": None,
        "list": [],
        "no dtype": {"shape": [1]},
        "other dtype": tensor(dtype="F64"),
        "unknown dtype": tensor(dtype="F7"),
        "number dtype": tensor(dtype=3),
        "backwards": tensor(data_offsets=[48, 0]),
        "negative": tensor(data_offsets=[-48, 0]),
        "three offsets": tensor(data_offsets=[0, 1, 48]),
        "gap": tensor(data_offsets=[1, 49]),
        "short": tensor(shape=[3, 3]),
        "more fields": tensor(more=1),
        "bools": tensor(dtype="BOOL", shape=[48]),
        "many axes": tensor(shape=[1] * 100),
        "nested": tensor(shape=[[3], [4]]),
        "ints": tensor(dtype="I64"),
    }
    for name, about in wrong.items():
        yield Case(f"safetensors {name}", "record", "m.safetensors", content(safetensors({"a": about})))
    texts: dict[str, bytes] = {
        "overlap": json.dumps({"a": tensor(), "b": tensor(shape=[2], data_offsets=[40, 48])}).encode(),
        "twice": b'{"a": {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}, "a": {}}',
        "metadata": json.dumps({"a": tensor(), "__metadata__": {"x": 1}}).encode(),
        "metadata list": json.dumps({"a": tensor(), "__metadata__": []}).encode(),
        "half a version": json.dumps({"a": tensor(), "__metadata__": {"keys": "{}", "checksum": "0"}}).encode(),
        "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "containers": b'{"a":[' + b"[]," * 3_000_000 + b"[]]}",
        "commas": b'{"a":[' + b"1," * 6_000_000 + b"1]}",
        "spaces": b" " * 100 + json.dumps({"a": tensor()}).encode(),
        "no UTF-8": b'{"\xff": 1}',
        "half": b'{"a": ',
        "NaN": b'{"a": NaN}',
        "list": b"[]",
        "empty": b"",
        "surrogates": b'{"\\ud800": {}}',
        "digits": b'{"a": ' + b"9" * 5000 + b"}",
    }
    for name, text in texts.items():
        yield Case(f"safetensors {name}", "record", "m.safetensors", content(safetensors(text)))
    for version in ("0", "3", "99", "x", ""):
        text = json.dumps({"__metadata__": {"burn_torch": version, "keys": "{}", "checksum": "0" * 64}}).encode()
        yield Case(f"version {version!r}", "record", "m.safetensors", content(safetensors(text, b"")))
    for i, count in enumerate((100_001, 400_000)):
        yield Case(f"many tensors {i}", "record", "m.safetensors", late(partial(many_tensors, count)))


def many_tensors(count: int) -> bytes:
    return safetensors({f"k{n}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(count)}, b"")


def hostile_shards() -> Iterator[Case]:
    def index(where: Any) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            (path.parent / "ok.safetensors").write_bytes(safetensors({"a": tensor()}))
            path.write_text(where if isinstance(where, str) else json.dumps({"weight_map": where}))

        return make

    name = "m.safetensors.index.json"
    for i, shard in enumerate(
        [
            "../secret.safetensors",
            "/etc/passwd",
            "/dev/zero",
            "..",
            ".",
            "",
            "a/b.safetensors",
            "a\\b.safetensors",
            "x\0.safetensors",
            ".hidden.safetensors",
            "none.safetensors",
            "~/x.safetensors",
            "ok.safetensors/",
            3,
            None,
            ["ok.safetensors"],
            "http://host/x.safetensors",
            "file:///etc/passwd",
            "m.safetensors.index.json",
        ]
    ):
        yield Case(f"shard {i}", "record", name, index({"a": shard}))
    for i, where in enumerate(
        [
            {"b": "ok.safetensors"},
            {},
            [],
            {"a": {}},
            "",
            "{",
            "[" * 90_000,
            "null",
            '{"weight_map": {}, "weight_map": {}}',
            {f"k{n}": f"s{n}.safetensors" for n in range(20_000)},
            '{"a": 1}',
        ]
    ):
        yield Case(f"index {i}", "record", name, index(where), refused=where != {})

    def linked(target: str) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            (path.parent / "s.safetensors").symlink_to(target)
            path.write_text(json.dumps({"weight_map": {"a": "s.safetensors"}}))

        return make

    def piped(path: Path) -> None:
        os.mkfifo(path.parent / "s.safetensors")
        path.write_text(json.dumps({"weight_map": {"a": "s.safetensors"}}))

    yield Case("shard is a device", "record", name, linked("/dev/zero"))
    yield Case("shard is a pipe", "record", name, piped)

    def flipped(bit: int) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            data = TensorData.of([1.0])
            record = ModuleRecord({"a": RecordEntry(data.dtype, data.shape, None, lambda: data)})
            ShardedSafetensorsFormat().save(record, path)
            bad = bytearray(path.read_bytes())
            bad[bit // 8 % len(bad)] ^= 1 << bit % 8
            path.write_bytes(bad)

        return make

    for bit in range(0, 2400, 61):
        yield Case(f"index bit {bit}", "record", name, flipped(bit))


# -- burnpack, MessagePack, JSON, bincode of others -------------------------------------------------------------------
def burnpack(contents: Any, data: bytes = DATA, version: int = 1, length: int | None = None) -> bytes:
    text = contents if isinstance(contents, bytes) else cbor(contents)
    head = struct.pack("<4sHI", b"NRUB", version, len(text) if length is None else length) + text
    return head + bytes(-len(head) % 256) + data


def hostile_burnpack() -> Iterator[Case]:
    sound = burnpack({"tensors": {"a": tensor(param_id=3)}})
    (length,) = struct.unpack("<I", sound[6:10])
    for cut in range(10 + length):
        yield Case(f"foreign burnpack cut at {cut}", "record", "m.bpk", content(sound[:cut]))
    for size in HUGE:
        for name, about in {
            "shape": tensor(shape=[size]),
            "shapes": tensor(shape=[size] * 4),
            "end": tensor(data_offsets=[0, size % 2**64]),
            "id": tensor(param_id=-size),
            "start": tensor(data_offsets=[size % 2**64, 48]),
        }.items():
            try:
                data = burnpack({"tensors": {"a": about}})
            except OverflowError:
                continue
            yield Case(f"burnpack {name} {size}", "record", "m.bpk", content(data))
        if size < 2**32:
            yield Case(f"burnpack length {size}", "record", "m.bpk", content(burnpack({"tensors": {}}, length=size)))
    wrong: dict[str, Any] = {
        "version": burnpack({"tensors": {}}, version=2),
        "no tensors": burnpack({}),
        "a list": burnpack([]),
        "tensors list": burnpack({"tensors": []}),
        "foreign part": burnpack({"tensors": {}, "code": "x"}),
        "dtype": burnpack({"tensors": {"a": tensor(dtype="F31")}}),
        "other": burnpack({"tensors": {"a": tensor(dtype="F64")}}),
        "quantised": burnpack({"tensors": {"a": tensor(dtype={"QFloat": {}})}}),
        "bools": burnpack({"tensors": {"a": tensor(dtype={"Bool": "Native"}, shape=[48])}}),
        "scalars": burnpack({"tensors": {}, "scalars": {"x": 1}}),
        "texts": burnpack({"tensors": {}, "metadata": {"x": 1}}),
        "overlap": burnpack({"tensors": {"a": tensor(), "b": tensor(shape=[2], data_offsets=[40, 48])}}),
        "unaligned": burnpack({"tensors": {"a": tensor(data_offsets=[1, 49])}}),
        "padding": sound[:-49] + b"x" + DATA,
        "tag": burnpack(b"\xc0\x60"),
        "open length": burnpack(b"\xbf\xff"),
        "bytes": burnpack(b"\x58\x01\x00"),
        "huge text": burnpack(b"\x7b" + b"\xff" * 8),
        "huge map": burnpack(b"\xbb" + b"\xff" * 8),
        "deep": burnpack(b"\x81" * 100_000),
        "many": burnpack(b"\x9a\x00\x2f\xff\xff" + b"\x80" * 0x2FFFFF),
        "ints": burnpack(b"\xa1\x01\x01"),
        "twice": burnpack(b"\xa2\x61a\x01\x61a\x01"),
    }
    for name, data in wrong.items():
        yield Case(f"burnpack {name}", "record", "m.bpk", content(data))


def hostile_recorders() -> Iterator[Case]:
    param = {"id": "0400000000000", "param": {"bytes": list(DATA), "shape": [3, 4], "dtype": "F32"}}

    def as_json(item: Any) -> bytes:
        return json.dumps({"metadata": {}, "item": item}).encode()

    def changed(**changes: Any) -> bytes:
        return as_json({"a": {"id": "0400000000000", "param": {**param["param"], **changes}}})  # type: ignore[dict-item]

    sound = as_json({"a": param})
    for cut in range(len(sound)):
        yield Case(f"foreign json cut at {cut}", "record", "m.json", content(sound[:cut]))
    for size in HUGE:
        yield Case(f"json shape {size}", "record", "m.json", content(changed(shape=[size])))
        yield Case(f"json byte {size}", "record", "m.json", content(changed(bytes=[size] * 48)))
        for code in (b"\xdd", b"\xdf", b"\xc6", b"\xdb"):
            data = code + struct.pack(">I", size % 2**32)
            yield Case(f"mpk {code.hex()} {size}", "record", "m.mpk", content(data + b"\x90" * 8))
        bin_data = b"\x0eburn_torch bin\x00" + b"\xfd" + struct.pack("<Q", size)
        yield Case(f"bin count {size}", "record", "m.bin", content(bin_data))
        yield Case(
            f"bin text {size}", "record", "m.bin", content(b"\x0eburn_torch bin\x01\xfd" + struct.pack("<Q", size))
        )
    texts: dict[str, bytes] = {
        "deep": b"[" * 200_000,
        "deep item": b'{"metadata":{},"item":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "twice": b'{"metadata": {}, "item": {}, "item": {}}',
        "parts": b'{"metadata":{},"item":[' + b"[]," * 3_000_000 + b"[]]}",
        "wide": changed(bytes=[*DATA, 0]),
        "null": changed(bytes=None),
        "text": changed(bytes="AAAA"),
        "negative": changed(bytes=[-1] * 48),
        "float": changed(bytes=[1.5] * 48),
        "dtype": changed(dtype="F128"),
        "bad id": as_json({"a": {**param, "id": "!"}}),
        "old": as_json({"a": {"id": "x", "param": {"value": [1], "shape": [1]}}}),
        "no metadata": b'{"item": {}}',
        "list": b"[]",
        "NUL": b"\0" * 64,
        "BOM": b"\xef\xbb\xbf{}",
        "bytes": b"\xff" * 64,
        "marks": b'{"metadata": {"burn_torch": "1", "record": "{}"}, "item": {}}',
    }
    for name, text in texts.items():
        yield Case(f"json {name}", "record", "m.json", content(text))
        yield Case(f"json.gz {name}", "record", "m.json.gz", late(partial(gzip.compress, text, 1)))
    packs: dict[str, bytes] = {
        "deep": b"\x91" * 200_000,
        "extension": b"\xc7\x01\x01\x01",
        "never": b"\xc1",
        "names": b"\x81\x01\x01",
        "twice": b"\x82\xa1a\x01\xa1a\x01",
        "text": b"\xa1\xff",
        "many": b"\xdd\x00\x2f\xff\xff" + b"\x90" * 0x2FFFFF,
        "shape": mpk({"metadata": {}, "item": {"a": {"bytes": 1, "shape": [2**63], "dtype": "F32"}}}),
        "type": mpk({"metadata": {}, "item": {"a": {"bytes": 1, "shape": [1], "dtype": "F31"}}}),
    }
    for name, data in packs.items():
        yield Case(f"mpk {name}", "record", "m.mpk", content(data))
        yield Case(f"mpk.gz {name}", "record", "m.mpk.gz", late(partial(gzip.compress, data, 1)))
    for name, packed in BOMBS.items():
        for ending in (".mpk.gz", ".json.gz", ".bin.gz"):
            yield Case(f"{ending} {name}", "record", f"m{ending}", late(packed))


@cache
def bomb() -> bytes:
    """600 KB that unpack to 600 MiB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(600)) + packer.flush()


PLAIN = gzip.compress(b"x" * 100)
BOMBS: dict[str, Callable[[], bytes]] = {
    "bomb": bomb,
    "bomb in a bomb": lambda: gzip.compress(bomb()),
    "two members": lambda: PLAIN + PLAIN,
    "flags": lambda: PLAIN[:3] + b"\xff" + PLAIN[4:],
    "name without end": lambda: PLAIN[:3] + b"\x08" + PLAIN[4:10] + b"x" * 70_000,
    "extra": lambda: PLAIN[:3] + b"\x04" + PLAIN[4:10] + b"\xff\xff",
    "cut": lambda: PLAIN[:-5],
    "sum": lambda: PLAIN[:-8] + bytes(8),
    "garbage": lambda: PLAIN[:10] + b"\xff" * 50,
    "method": lambda: PLAIN[:2] + b"\x09" + PLAIN[3:],
}
"""Small gzip files that unpack to much, or whose header means harm."""
