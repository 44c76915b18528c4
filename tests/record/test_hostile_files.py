"""Thousands of damaged files of ours and of others: one kind of error, little time, little memory."""

from __future__ import annotations

import gc
import json
import random
import struct
import sys
import time

import numpy as np
import pytest

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import FORMATS, RecordEntry
from burn_torch.record.cbor import encode as cbor
from burn_torch.record.layout import MAX_CONTAINERS

LENGTHS = [2**63 - 1, 2**64 - 1, 2**31, 2**32 - 1, 2**40, 100_000_000]
DATA = np.arange(12, dtype=np.float32).tobytes()


def ours(ending: str) -> bytes:
    data = TensorData.of(np.arange(12.0).reshape(3, 4), DType.F32)
    entry = RecordEntry(data.dtype, data.shape, ParamId(3), lambda: data)
    return ModuleRecord({"a.w": entry, "b": entry}, {"module": "Net"}).into_bytes(ending)


def safetensors() -> bytes:
    text = json.dumps({"a": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}).encode()
    return struct.pack("<Q", len(text)) + text + DATA


def burnpack() -> bytes:
    text = cbor({"tensors": {"a": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48], "param_id": 3}}})
    head = struct.pack("<4sHI", b"NRUB", 1, len(text)) + text
    return head + bytes(-len(head) % 256) + DATA


def burns_json() -> bytes:
    param = {"bytes": list(DATA), "shape": [3, 4], "dtype": "F32"}
    return json.dumps({"metadata": {}, "item": {"a": {"id": "0400000000000", "param": param}}}).encode()


OTHERS = {".safetensors": safetensors, ".bpk": burnpack, ".json": burns_json}


def damaged(data: bytes, rnd: random.Random) -> bytes:
    content = bytearray(data)
    at = rnd.randrange(len(content))
    kind = rnd.randrange(5)
    if kind == 0:
        content[at] ^= 1 << rnd.randrange(8)
    elif kind in (1, 2):
        content[at : at + 8] = struct.pack("<Q" if kind == 1 else ">Q", rnd.choice(LENGTHS))
    elif kind == 3:
        content[at : at + rnd.randrange(1, 9)] = rnd.randbytes(rnd.randrange(9))
    else:
        del content[at:]
    return bytes(content)


def load(data: bytes, ending: str) -> None:
    for entry in ModuleRecord.from_bytes(data, ending).entries.values():
        entry.read()


@pytest.mark.parametrize("ending", [ending for ending in sorted(FORMATS) if not ending.endswith(".index.json")])
def test_damaged_files_of_ours_are_all_refused(ending: str) -> None:
    sound, rnd = ours(ending), random.Random(ending)
    load(sound, ending)
    for _ in range(300):
        bad = damaged(sound, rnd)
        if bad != sound:
            with pytest.raises(RecordError, match="cannot be loaded"):
                load(bad, ending)


@pytest.mark.parametrize("ending", OTHERS)
def test_damaged_files_of_others_are_refused_or_are_sound(ending: str) -> None:
    sound, rnd = OTHERS[ending](), random.Random(ending)
    load(sound, ending)
    refused = 0
    for _ in range(300):
        try:
            load(damaged(sound, rnd), ending)
        except RecordError:
            refused += 1
    assert refused > 150  # the rest are other values, names and ids, which no format without a checksum can notice


@pytest.mark.parametrize("ending", [".safetensors", ".json", ".mpk", ".bpk"])
def test_files_of_nothing_but_containers_are_refused_before_they_fill_the_memory(ending: str) -> None:
    lists = b'{"a":[' + b"[]," * 3_000_000 + b"[]]}"
    files = {
        ".safetensors": struct.pack("<Q", len(lists)) + lists,
        ".json": b'{"metadata":{},"item":' + lists + b"}",
        ".mpk": b"\xdd\x00\x2f\xff\xff" + b"\x90" * 0x2FFFFF,
        ".bpk": struct.pack("<4sHI", b"NRUB", 1, 0x2FFFFF + 5) + b"\x9a\x00\x2f\xff\xff" + b"\x80" * 0x2FFFFF,
    }
    gc.freeze()  # a full collection would visit what 10,000 tests before this one keep: 5 s for 1
    try:
        start = time.process_time()
        with pytest.raises(RecordError, match=r"more parts than"):
            load(files[ending], ending)
        assert time.process_time() - start < 5
    finally:
        gc.unfreeze()
    assert MAX_CONTAINERS * sys.getsizeof({}) < 128 << 20  # what was made before the refusal
