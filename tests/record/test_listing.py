"""Tests what files say of themselves: every format, hostile pickles included, and nothing of them runs."""

from __future__ import annotations

import gzip
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import FORMATS, RecordEntry
from burn_torch.record import ShardedSafetensorsFormat
from burn_torch.record import listing as listing_module
from burn_torch.record.faults import Unsound
from burn_torch.record.listing import Listing, ending_of, listing_of
from burn_torch.record.stores import pickle_walk
from burn_torch.record.stores.pickle_walk import Walk, tensors_of

LEGACY = {"_use_new_zipfile_serialization": False}


def record() -> ModuleRecord:
    def entry(values: Any, dtype: DType, state: bool = False) -> RecordEntry:
        data = TensorData.of(values, dtype)
        return RecordEntry(dtype, data.shape, ParamId(3), lambda: data, state)

    shared = entry(np.arange(6).reshape(2, 3), DType.F32)
    entries = {"a.w": shared, "b.w": shared, "mean": entry([1.0], DType.F64, True), "é": entry(True, DType.BOOL)}
    return ModuleRecord(entries, {"module": "Net"}, scalars={"steps": 3})


@pytest.mark.parametrize("ending", sorted(FORMATS))
def test_a_record_in_every_format(tmp_path: Path, ending: str) -> None:
    listing = listing_of(record().save(tmp_path / f"m{ending}"))
    tensors = {tensor.name: (tensor.dtype, tensor.shape, tensor.nbytes) for tensor in listing.tensors}
    assert tensors == {"a.w": ("f32", (2, 3), 24), "b.w": ("f32", (2, 3), 24), "mean": ("f64", (1,), 8),
                    "é": ("bool", (), 1)}  # fmt: skip
    assert [tensor.same_as for tensor in listing.tensors] == [None, "a.w", None, None]
    assert (listing.tensor_bytes, listing.elements, listing.dtypes) == (33, 8, {"f32": 2, "f64": 1, "bool": 1})
    assert listing.metadata == {"module": "Net"}
    assert listing.scalars == {"steps": 3}
    assert listing.checksum == "fits"
    assert listing.version


@pytest.mark.parametrize("ending", [ending for ending in sorted(FORMATS) if not ending.endswith("index.json")])
def test_the_content_says_which_format_it_is(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(record().into_bytes(ending))
    if ending.endswith(".gz"):
        path = path.rename(tmp_path / f"model{ending}")
    assert ending_of(path) == ending


def test_headers_only_of_what_is_large_and_damage_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = record().save(tmp_path / "m.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordError, match=r"m.safetensors: it is damaged: its checksum does not fit its content"):
        listing_of(path)
    assert listing_of(path, check=False).checksum == "not compared"
    monkeypatch.setattr(listing_module, "CHECKED_BYTES", 100)
    assert listing_of(path).checksum == "not compared"
    with pytest.raises(RecordError, match="its checksum does not fit"):
        listing_of(path, check=True)


def test_shards_are_listed_with_their_files(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    ShardedSafetensorsFormat(max_shard_bytes=24).save(record(), path)
    listing = listing_of(path)
    assert listing.version == "2 shards"
    assert [tensor.about.partition("-")[0] for tensor in listing.tensors] == ["in m"] * 4
    assert listing_of(path, check=False).checksum == "not compared"


def test_element_types_that_are_not_loaded_are_listed_all_the_same(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, dtype=torch.complex64), "b": torch.ones(3)}, tmp_path / "m.safetensors")
    listing = listing_of(tmp_path / "m.safetensors")
    assert {tensor.name: (tensor.dtype, tensor.nbytes) for tensor in listing.tensors} == {
        "a": ("C64", 16), "b": ("F32", 12),
    }  # fmt: skip
    assert listing.notes == ("burn_torch does not load elements of C64",)


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "it is empty"), (b"hello there", "it begins with b'hello th', as no format that is known here"),
     (b"PK\x03\x04", "is not a zip file"), (b"\x1f\x8b\x08", "it is no gzip file"), (b"NRUB", "fewer than its header"),
     (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "its pickle cannot be read"), (b"{", "the file cannot be read")],
)  # fmt: skip
def test_what_is_no_file_of_tensors_is_refused_by_name(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(RecordError, match=r"the record cannot be loaded\n  given:    .*odd: .*") as caught:
        listing_of(tmp_path / "odd")
    assert what in str(caught.value)


# -- pickles ---------------------------------------------------------------------------------------------------------
class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo ran > ran",)


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_a_hostile_pickle_is_listed_with_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    layer = torch.nn.Linear(3, 2)
    torch.save({"sd": layer.state_dict(), "again": layer.weight, "n": 3, "evil": Evil()}, tmp_path / "m.pt", **options)
    listing = listing_of(tmp_path / "m.pt")
    assert not (tmp_path / "ran").exists()
    assert listing.asks_for == (f"{os.system.__module__}.system",)
    assert listing.notes == ("PytorchStore refuses this file: what it asks for is more than tensors",)
    assert [(tensor.name, tensor.shape, tensor.same_as) for tensor in listing.tensors] == [
        ("sd.weight", (2, 3), None), ("sd.bias", (2,), None), ("again", (2, 3), "sd.weight"),
    ]  # fmt: skip
    assert "legacy" in listing.format if options else "zip" in listing.format


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_every_element_type_of_torch(tmp_path: Path, options: Any) -> None:
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
             torch.int8, torch.uint8, torch.bool, torch.complex64]  # fmt: skip
    torch.save({str(kind).removeprefix("torch."): torch.ones(3, dtype=kind) for kind in kinds}, tmp_path / "m.pt",
               **options)  # fmt: skip
    listing = listing_of(tmp_path / "m.pt")
    assert [tensor.nbytes for tensor in listing.tensors] == [3 * kind.itemsize for kind in kinds]
    assert listing.asks_for == ()
    sizes = {"f64": "float64", "bf16": "bfloat16", "bool": "bool", "u8": "uint8", "complex64": "complex64"}
    assert {tensor.dtype: tensor.name for tensor in listing.tensors if tensor.dtype in sizes} == sizes


def test_newer_types_and_views_and_whole_modules(tmp_path: Path) -> None:
    base = torch.zeros(6, dtype=torch.uint16)
    torch.save([base, base[2:4], torch.ones(1, dtype=torch.float8_e5m2), torch.nn.BatchNorm1d(2)], tmp_path / "m.pt")
    listing = listing_of(tmp_path / "m.pt")
    assert [(tensor.name, tensor.dtype, tensor.nbytes) for tensor in listing.tensors[:3]] == [
        ("0", "u16", 12), ("1", "u16", 4), ("2", "f8_e5m2", 1),
    ]  # fmt: skip
    assert "3._buffers.running_mean" in {tensor.name for tensor in listing.tensors}
    assert "torch.nn.modules.batchnorm.BatchNorm1d" in listing.asks_for


class Odd:
    """Pickles in ways that torch.save does not use."""

    def __init__(self) -> None:
        self.x = [1, (2, 3), {"a": {1, 2}}, frozenset([1]), b"x", 1.5, 2**70, None, True]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_all_words_of_pickle_are_understood(protocol: int) -> None:
    walk = Walk(pickle.dumps([Odd(), Evil(), {"deep": [(), ("a",), [[]]]}], protocol))
    assert {str(name) for name in walk.asked} >= {f"{os.system.__module__}.system", f"{__name__}.Odd"}
    assert list(tensors_of(walk.root)) == []


def nested(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"", "its pickle cannot be read"), (b".", "its pickle cannot be read"), (b"\x80\x02K\x01", "cannot be read"),
     (b"\x80\x02R.", "cannot be read"), (b"\x80\x02t.", "cannot be read"), (b"\x80\x02h\x07.", "cannot be read"),
     (b"\x80\x02\x8b\xff\xff\xff\x7f.", "cannot be read"), (b"\x80\x02]K\x01\x86R.", "cannot be read"),
     (nested(100), "it is nested deeper than 64 levels"), (b"\x80\x02" + b"]" * 201 + b".", "more than 200 parts"),
     (b"\x80\x02]q\x00h\x00a.", "nested deeper"),
     (b"\x80\x02" + b"K\x01" * 300 + b".", "its pickle has more than 300 words")],
    ids=range(12),
)  # fmt: skip
def test_hostile_pickles_end_in_one_error(data: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_walk, "MAX_NODES", 200)
    monkeypatch.setattr(pickle_walk, "MAX_WORDS", 300)
    with pytest.raises(Unsound, match=what):
        list(tensors_of(Walk(data).root))


def test_a_pickle_that_unfolds_without_end_is_refused() -> None:
    doubled = b"\x80\x02]q\x00" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60)) + b"."
    with pytest.raises(Unsound, match="its pickle has more than 400000 parts"):
        list(tensors_of(Walk(doubled).root))


def test_zips_that_torch_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", pickle.dumps([0] * 10_000))
    with pytest.raises(RecordError, match=r"it is no file of torch\.save: m/data\.pkl is packed"):
        listing_of(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"x")
    with pytest.raises(RecordError, match=r"it is a zip file without a member data\.pkl"):
        listing_of(path)


def test_gzipped_files_of_unknown_names(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(gzip.compress(b"nothing"))
    with pytest.raises(RecordError, match="it is damaged"):
        listing_of(tmp_path / "m")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no such file"):
        listing_of(tmp_path / "absent")
    assert Listing("p", "f", "", 0, ()).dtypes == {}
