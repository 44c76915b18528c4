"""Zip files that could show one reader what the other does not see."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from burn_torch.core.errors import RecordError
from burn_torch.record.faults import Unsound
from burn_torch.record.listing import listing_of
from burn_torch.record.source import Source
from burn_torch.record.stores import PytorchStore
from burn_torch.record.zip_directory import members_of
from tests.record.hostile.pytorch_corpus import rebuilt, zipped

BODY = rebuilt("torch", "FloatStorage", 3, (3,), (1,))
SOUND = zipped(BODY, {"data/0": bytes(12)})


def directory(data: bytes) -> tuple[int, int]:
    """Returns where the directory of a zip file is, and its size."""
    size, start = struct.unpack("<II", data[-10:-2])
    return start, size


def two_directories(shown: bytes, read: bytes) -> bytes:
    """[members of `read`][its directory][members of `shown`][its directory][the end record, which means the first]."""
    first, size = directory(read)
    second, other = directory(shown)
    assert size == other, "the end record has one size for both"
    head = read[: first + size]
    # zipfile moves all offsets by the distance between where the directory is and where it is said to be
    moved = bytearray(shown[second : second + other])
    at = 0
    while at < len(moved):
        name, extra, comment = struct.unpack_from("<3H", moved, at + 28)
        offset = struct.unpack_from("<I", moved, at + 42)[0]
        struct.pack_into("<I", moved, at + 42, offset + len(head) - (len(head) + second - first))
        at += 46 + name + extra + comment
    return head + shown[:second] + bytes(moved) + read[first + size :]


def test_a_file_with_two_directories_is_refused(tmp_path: Path) -> None:
    hostile = zipped(rebuilt("torch", "FloatStorage", 200, (200,), (1,)), {"data/0": bytes(12)})
    path = tmp_path / "m.pt"
    path.write_bytes(
        two_directories(zipped(rebuilt("torch", "FloatStorage", 3, (3,), (1,)), {"data/0": bytes(12)}), hostile)
    )
    with zipfile.ZipFile(path) as archive:  # what one reader sees
        assert archive.getinfo("m/data/0").header_offset > len(hostile)
    with pytest.raises(RecordError, match=r"does not end where its end record is"):
        PytorchStore.from_file(path).read()
    with pytest.raises(RecordError, match=r"does not end where its end record is"):
        listing_of(path)


def renamed(old: bytes, new: bytes) -> bytes:
    return SOUND.replace(old, new)


def overlapping() -> bytes:
    """The header of data/0 is taken for that of data.pkl, whose name it has too."""
    data = bytearray(SOUND)
    start, _ = directory(SOUND)
    entry = SOUND.index(b"m/byteorder", start) - 46
    struct.pack_into("<I", data, entry + 42, struct.unpack_from("<I", data, entry + 42)[0] - 1)
    return bytes(data)


def patched(name: bytes, offset: int, form: str, value: int) -> bytes:
    """One number of a member's entry in the directory, changed."""
    data = bytearray(SOUND)
    struct.pack_into(form, data, SOUND.index(name, directory(SOUND)[0]) - 46 + offset, value)
    return bytes(data)


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "bytes before it": (lambda: b"PK\x03\x04junk" + SOUND, "does not end where its end record is"),
    "bytes behind it": (lambda: SOUND + b"junk", "not a zip file"),
    "a comment": (lambda: SOUND[:-2] + b"\x04\x00junk", "not a zip file"),
    "one name in two cases": (
        lambda: zipped(BODY, {"data/0": bytes(12), "DATA/0": bytes(9)}),
        "two members of one name",
    ),
    "a name with an end in it": (lambda: renamed(b"m/byteorder", b"m/DATA.PKL\0"), r"has the name b'm/DATA"),
    "an offset into another member": (overlapping, "too short|do not agree"),
    "packed sizes": (lambda: patched(b"m/data/0", 20, "<I", 11), "do not agree"),
    "a size beyond the file": (lambda: patched(b"m/data/0", 24, "<I", 2**31), "do not agree"),
    "a wide size without one": (lambda: patched(b"m/data/0", 24, "<I", 2**32 - 1), "lacks a number of eight bytes"),
    "an encrypted member": (lambda: patched(b"m/data/0", 8, "<H", 1), "is encrypted"),
    "a packed member": (lambda: patched(b"m/data/0", 10, "<H", 8), "is packed"),
    "another disk": (lambda: patched(b"m/data/0", 34, "<H", 1), "has no entry"),
    "a wrong sum": (lambda: patched(b"m/data.pkl", 16, "<I", 1), "does not fit its content"),
    "fewer entries": (lambda: SOUND[:-14] + struct.pack("<HH", 3, 3) + SOUND[-10:], "is said to end at"),
    "more entries": (lambda: SOUND[:-14] + struct.pack("<HH", 5, 5) + SOUND[-10:], "has no entry|too short"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_two_readers_might_see_in_two_ways_is_refused(tmp_path: Path, name: str) -> None:
    make, what = CASES[name]
    (tmp_path / "m.pt").write_bytes(make())
    with pytest.raises(RecordError, match=what):
        PytorchStore.from_file(tmp_path / "m.pt").read()


def test_members_may_not_overlap() -> None:
    inner = zipped(BODY, {"data/0": bytes(12)})
    start, _ = directory(inner)
    outer = bytearray(zipped(BODY, {"data/0": inner[:start]}))  # the members lie within a member
    at, _ = directory(bytes(outer))
    base = outer.index(inner[:start])
    entry = outer.index(b"m/data.pkl", at) - 46
    struct.pack_into("<I", outer, entry + 42, base)
    with pytest.raises(Unsound, match="overlaps another"):
        members_of(Source("m.pt", bytes(outer)))


def test_files_of_torch_and_of_zipfile_are_read_with_wide_numbers_too() -> None:
    file = io.BytesIO()
    torch.save({"a": torch.ones(3), "b": torch.ones(5000)}, file)  # torch writes both end records
    assert members_of(Source("m.pt", file.getvalue())).keys() >= {"archive/data.pkl", "archive/data/1"}
    wide = io.BytesIO()
    with zipfile.ZipFile(wide, "w") as archive:
        for name, data in (("m/data.pkl", BODY), ("m/data/0", bytes(12))):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    members = members_of(Source("m.pt", wide.getvalue()))
    assert {name: member.nbytes for name, member in members.items()} == {"m/data.pkl": len(BODY), "m/data/0": 12}
    assert members["m/data.pkl"].read(Source("m.pt", wide.getvalue())) == BODY


def test_what_is_taken_is_what_torchs_reader_sees() -> None:
    file = io.BytesIO()
    torch.save({"a": torch.ones(3), "b": torch.ones(2, 2)}, file)
    rnd = random.Random(5)
    taken = 0
    for sound in (SOUND, file.getvalue()):
        start = sound.rindex(b"PK\x01\x02", 0, sound.index(b"PK\x01\x02") + 4)
        for _ in range(1500):
            data = bytearray(sound)
            for _ in range(rnd.choice((1, 1, 2, 3))):
                at = rnd.randrange(start, len(data)) if rnd.random() < 0.8 else rnd.randrange(len(data))
                data[at] = rnd.choice((0, 1, 255, data[at] ^ 1 << rnd.randrange(8), rnd.randrange(256)))
            try:
                members = members_of(Source("m.pt", bytes(data)))
            except Unsound:
                continue
            taken += 1
            try:
                reader = torch._C.PyTorchFileReader(io.BytesIO(bytes(data)))
            except (RuntimeError, UnicodeDecodeError):
                continue
            root = next(iter(members)).partition("/")[0] + "/"
            names = reader.get_all_records()
            assert sorted(root + name for name in names) == sorted(members)
            for name in names:
                try:
                    record, offset = reader.get_record(name), reader.get_record_offset(name)
                except RuntimeError:  # a wrong sum, or a flag that it does not know
                    continue
                assert (offset, len(record)) == (members[root + name].start, members[root + name].nbytes)
    assert taken > 100


# -- pickles ---------------------------------------------------------------------------------------------------------
def test_lists_within_lists_are_counted_and_not_walked_for_ever(tmp_path: Path) -> None:
    laughs = b"".join(b"](" + (b"h" + bytes([i])) * 10 + b"eq" + bytes([i + 1]) for i in range(12))
    (tmp_path / "l.pt").write_bytes(zipped(b"\x80\x02]q\x00" + laughs + b"."))
    with pytest.raises(RecordError, match=r"it has more than \d+ values\n  expected: a sound PyTorch file"):
        PytorchStore.from_file(tmp_path / "l.pt").read()


def test_a_pickle_of_a_protocol_to_come_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(zipped(b"\x80\x7f" + BODY[2:], {"data/0": bytes(12)}))
    with pytest.raises(RecordError, match="its pickle is of version 127, and the newest is 5"):
        PytorchStore.from_file(tmp_path / "m.pt").read()


def test_tensors_without_values_and_quantised_ones_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"w": torch.empty(3, device="meta")}, path)
    with pytest.raises(RecordError, match=r"w has no values: it was on the device meta\n"):
        PytorchStore.from_file(path).read()
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are deprecated, and stand in files
            torch.save({"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}, path, **options)
        with pytest.raises(RecordError, match=r"quantised numbers \(QInt8Storage\)\n.*\n  mend: .*dequantize"):
            PytorchStore.from_file(path).read()


def test_a_legacy_file_may_not_speak_of_more_bytes_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "m.pth"
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    at = data.index(b"X\x03\x00\x00\x00cpu") + 8
    while data[at : at + 1] != b"K":  # the count of elements, behind the device and what remembers it
        at += 1
    path.write_bytes(data[:at] + b"J\xff\xff\xff\x7f" + data[at + 2 :])
    with pytest.raises(RecordError, match=r"its storages need 8589934588 bytes, and it has"):
        PytorchStore.from_file(path).read()


def test_a_key_of_five_thousand_digits_is_no_fault_of_its_own(tmp_path: Path) -> None:
    torch.save({10**5000: torch.ones(3), "b": torch.ones(2)}, tmp_path / "m.pt")
    with pytest.raises(RecordError, match=r"it is damaged: Unsupported operand 139\n"):
        PytorchStore.from_file(tmp_path / "m.pt").keys()
    assert [tensor.name for tensor in listing_of(tmp_path / "m.pt").tensors] == ["?", "b"]
