"""burnpack files: those that Burn wrote, ours as Burn would read them, and hostile ones."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord
from burn_torch.record.cbor import decode, encode

DATA = Path(os.environ.get("BURN_TORCH_DATA", Path(__file__).parents[3] / "shared/data"))
WEB = DATA / "burn-records/mnist-inference-web.bpk"


def pack(metadata: Any, data: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    """A file with this metadata, written by no program."""
    text = metadata if isinstance(metadata, bytes) else encode(metadata)
    head = struct.pack("<4sHI", b"NRUB", version, len(text) if length is None else length) + text
    return head + bytes(-len(head) % 256) + data


def one(**changes: Any) -> dict[str, Any]:
    """Metadata of two float32 in one tensor, changed."""
    return {"tensors": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}}


def load(data: bytes) -> ModuleRecord:
    return ModuleRecord.from_bytes(data)


@pytest.mark.skipif(not WEB.exists(), reason="the record that Burn wrote is not here")
def test_the_file_that_burn_wrote_is_read_bit_for_bit() -> None:
    raw = WEB.read_bytes()
    record = ModuleRecord.load(WEB)
    (length,) = struct.unpack_from("<I", raw, 6)
    start = -(-(10 + length) // 256) * 256
    assert len(record) == 18
    assert {key: entry.shape for key, entry in record.entries.items()}["fc1.weight"] == (1600, 128)
    weight = np.frombuffer(raw, "<f4", 64 * 9, start)
    assert np.array_equal(record.entries["conv1.conv.weight"].read().array.reshape(-1), weight)
    assert str(record.entries["conv1.conv.bias"].id) == "83eb859adffb2071"
    assert encode(decode(raw[10 : 10 + length])) == raw[10 : 10 + length]


@pytest.mark.skipif(not WEB.exists(), reason="the record that Burn wrote is not here")
def test_what_we_write_has_the_tensors_of_burn_where_burn_looks(tmp_path: Path) -> None:
    record = ModuleRecord.load(WEB)
    raw = record.save(tmp_path / "m.bpk").read_bytes()
    magic, version, length = struct.unpack_from("<4sHI", raw)
    assert (magic, version) == (b"NRUB", 1)
    metadata = decode(raw[10 : 10 + length])
    theirs = WEB.read_bytes()
    burns = decode(theirs[10 : 10 + struct.unpack_from("<I", theirs, 6)[0]])
    assert list(metadata["tensors"]) == list(burns["tensors"])  # sorted, as Burn's map is
    start = -(-(10 + length) // 256) * 256
    for key, about in metadata["tensors"].items():
        known = burns["tensors"][key]
        assert (about["dtype"], about["shape"], about["param_id"]) == (
            known["dtype"],
            known["shape"],
            known["param_id"],
        )
        first, last = about["data_offsets"]
        assert first % 256 == 0
        assert raw[start + first : start + last] == record.entries[key].read().array.tobytes()


def test_the_bytes_of_a_small_file() -> None:
    raw = pack(one(param_id=5), np.array([1, 2], np.float32).tobytes())
    assert raw[:12] == b"NRUB\1\0" + struct.pack("<I", len(encode(one(param_id=5)))) + b"\xa1\x67"
    entry = load(raw).entries["a"]
    assert (entry.dtype, entry.shape, entry.id) == (DType.F32, (2,), 5)
    assert entry.read().to_list() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "data", "expected"),
    [
        ({"Bool": "Native"}, b"\1\0", [True, False]),
        ({"Bool": "U8"}, b"\0\1", [False, True]),
        ({"Bool": "U32"}, b"\1\0\0\0\0\0\0\0", [True, False]),
        ("Bool", b"\1\1", [True, True]),
        ("Flex32", struct.pack("<2f", 1, 2), [1.0, 2.0]),
        ("BF16", b"\x80\x3f\0\0", [1.0, 0.0]),
    ],
)
def test_types_as_burn_has_them(dtype: Any, data: bytes, expected: list[Any]) -> None:
    entry = load(pack(one(dtype=dtype, data_offsets=[0, len(data)]), data)).entries["a"]
    assert list(entry.read().values) == expected


def test_files_of_burn_0_19_which_aligned_nothing() -> None:
    tensors = {"a": one()["tensors"]["a"], "b": one(data_offsets=[8, 16])["tensors"]["a"]}
    text = encode({"tensors": tensors})
    raw = struct.pack("<4sHI", b"NRUB", 1, len(text)) + text + np.arange(4, dtype=np.float32).tobytes()
    assert [entry.read().to_list() for entry in load(raw).entries.values()] == [[0.0, 1.0], [2.0, 3.0]]


def test_scalars_of_burn() -> None:
    scalars = {"a": {"UInt": 3}, "b": {"Int": -3}, "c": {"Float": 0.5}, "d": {"Bool": True}}
    assert load(pack({"tensors": {}, "scalars": scalars})).scalars == {"a": 3, "b": -3, "c": 0.5, "d": True}


def test_one_tensor_with_two_names_may_lie_there_once() -> None:
    tied = {"tensors": {"a": one()["tensors"]["a"], "b": one()["tensors"]["a"]}}
    record = load(pack(tied, bytes(8)))
    assert record.entries["a"] is record.entries["b"]


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"NRUB", "it has 4 bytes, fewer than its header"),
        (b"BURN" + bytes(20), r"it begins with b'BURN', and a burnpack file with b'NRUB'"),
        (pack(one(), bytes(8), version=2), "it has format version 2, and this burn_torch reads 1"),
        (pack(one(), bytes(8), length=2**31), "it promises 2147483648 bytes of metadata"),
        (pack(encode(one()) + b"\xf6", bytes(8)), "1 bytes follow its metadata"),
        (pack([1]), "its metadata lists no tensors"),
        (pack({**one(), "more": 1}, bytes(8)), "its metadata has parts that are not known here: more"),
        (pack({"tensors": []}), "its metadata lists no tensors"),
        (pack({"tensors": {"a": 1}}), "a lacks its type, shape or offsets"),
        (pack({"tensors": {"a": {"dtype": "F32", "shape": [2]}}}), "a lacks its type, shape or offsets"),
        (pack(one(dtype="F8"), bytes(8)), "a has the type F8; known are F64, F32"),
        (pack(one(dtype={"Bool": "U64"}), bytes(8)), "a has the type .*Bool"),
        (pack(one(dtype={"QFloat": {}}), bytes(8)), "a is quantised as nothing here is"),
        (pack(one(shape=[-2]), bytes(8)), "a has a shape that no tensor has"),
        (pack(one(shape=[2**40, 2**40]), bytes(8)), "a has a shape that no tensor has"),
        (pack(one(shape=[3]), bytes(8)), "a needs 12 bytes, and has 8"),
        (pack(one(data_offsets=[8, 0]), bytes(8)), "a has offsets that no tensor has"),
        (pack(one(data_offsets=[8, 16]), bytes(16)), "a lie on no boundary of 256 bytes"),
        (pack(one(data_offsets=[0, 8, 9]), bytes(8)), "a has offsets that no tensor has"),
        (pack(one(data_offsets=[0, 2**63]), bytes(8)), "a has offsets that no tensor has"),
        (pack(one(data_offsets=[256, 264]), bytes(264)), "256 bytes before a belong to nothing"),
        (pack(one(), bytes(4)), "its header speaks of 8 bytes of data, and the file has 4"),
        (pack(one(), bytes(12)), "its header speaks of 8 bytes of data, and the file has 12"),
        (pack(one(param_id=-1), bytes(8)), "a has an id that no parameter has: -1"),
        (pack({**one(), "metadata": {"a": 1}}, bytes(8)), "its metadata is not text by name"),
        (pack({**one(), "scalars": {"a": 1}}, bytes(8)), "the scalar a is no number"),
        (pack({**one(), "scalars": {"a": {"Int": "1"}}}, bytes(8)), "the scalar a is no number"),
        (pack({**one(), "scalars": 1}, bytes(8)), "its scalars are not numbers by name"),
        (pack(one(dtype={"Bool": "Native"}, data_offsets=[0, 2]), b"\1\2"), "a is of truth values, and"),
        (pack(one(), bytes(8))[:200] + b"\1" + pack(one(), bytes(8))[201:], "the padding from byte .* is not zero"),
        (pack({"tensors": {"a": one()["tensors"]["a"], "b": one(shape=[4], data_offsets=[0, 16])["tensors"]["a"]}},
              bytes(16)), "b overlaps a"),
        (pack(b"\x81" * 40 + b"\x01"), "its metadata is nested deeper than 16 levels"),
        (pack(b"\x9b" + b"\xff" * 8), "byte 0 of its metadata promises 18446744073709551615 items"),
        (pack(b"\x7b" + b"\xff" * 8), "within a value of 18446744073709551615 bytes"),
        (pack(b"\xbf\xff"), "byte 0 of its metadata begins no value of a record"),
        (pack(b"\xc1\x01"), "byte 0 of its metadata begins no value of a record"),
        (pack(b"\xa1\x01\x01"), "byte 1 of its metadata is no name"),
        (pack(b"\xa2\x61a\x01\x61a\x01"), "its metadata has a twice"),
        (pack(b"\x62\xff\xff"), "its metadata holds text that is no UTF-8"),
        (pack({**one(), "metadata": {"burn_torch": "9", "checksum": "x"}}, bytes(8)), "its checksum does not fit"),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused(raw: bytes, what: str) -> None:
    with pytest.raises(
        RecordError,
        match=rf"the record cannot be loaded\n  given:    the given bytes: it is damaged: .*{what}.*\n"
        r"  expected: a sound burnpack file\n  mend:     use an earlier checkpoint",
    ):
        load(raw)


def test_all_faults_of_a_layout_come_at_once() -> None:
    tensors = {"a": one(shape=[3])["tensors"]["a"], "b": one(shape=[5], data_offsets=[0, 8])["tensors"]["a"]}
    with pytest.raises(RecordError, match="a needs 12 bytes, and has 8; b needs 20 bytes, and has 8; b overlaps a"):
        load(pack({"tensors": tensors}, bytes(8)))
