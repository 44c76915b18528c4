"""The recorders of the Burn book: precision, what Burn wrote, what Burn would read, and files that mean harm."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import RecordEntry
from burn_torch.nn import BatchNormConfig, Linear, LinearConfig, TransformerEncoderConfig
from burn_torch.record import (
    BinBytesRecorder,
    BinFileRecorder,
    BinGzFileRecorder,
    CompactRecorder,
    DefaultRecorder,
    DoublePrecisionSettings,
    FileRecorder,
    FullPrecisionSettings,
    GzipFormat,
    HalfPrecisionSettings,
    JsonGzFileRecorder,
    NamedMpkBytesRecorder,
    NamedMpkFileRecorder,
    NamedMpkFormat,
    NamedMpkGzFileRecorder,
    PrettyJsonFileRecorder,
)
from burn_torch.record.messagepack import Blob, decode, encode

DEVICE = Device.cpu()
FILES = [
    (NamedMpkFileRecorder, ".mpk"), (NamedMpkGzFileRecorder, ".mpk.gz"), (BinFileRecorder, ".bin"),
    (BinGzFileRecorder, ".bin.gz"), (JsonGzFileRecorder, ".json.gz"), (PrettyJsonFileRecorder, ".json"),
]  # fmt: skip


def entry(values: Any, dtype: DType) -> RecordEntry:
    data = TensorData.of(values, dtype)
    return RecordEntry(dtype, data.shape, ParamId(9), lambda: data)


def weight(layer: Linear) -> Any:
    return layer.weight.val().into_data().array


# -- precision ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("recorder", "ending"), FILES)
@pytest.mark.parametrize(
    ("settings", "dtype"),
    [(None, np.float32), (FullPrecisionSettings, np.float32), (HalfPrecisionSettings, np.float16),
     (DoublePrecisionSettings(), np.float64)],
)  # fmt: skip
def test_a_model_comes_back_at_the_precision_of_the_recorder(
    tmp_path: Path, recorder: type[FileRecorder], ending: str, settings: Any, dtype: Any
) -> None:
    layer = LinearConfig(3, 4).init(DEVICE)
    file_recorder = recorder(settings)
    path = file_recorder.record(layer.into_record(), tmp_path / "deep/er/model")
    assert path == tmp_path / f"deep/er/model{ending}"
    loaded = LinearConfig(3, 4).init(DEVICE).load_record(file_recorder.load(tmp_path / "deep/er/model", DEVICE))
    assert np.array_equal(weight(loaded), weight(layer).astype(dtype).astype(np.float32))
    assert loaded.weight.id == layer.weight.id


def test_half_a_file_is_half_as_long_and_integers_shrink_too(tmp_path: Path) -> None:
    record = ModuleRecord({"a": entry(np.arange(1000.0), DType.F64), "b": entry(np.arange(1000), DType.I64)})
    sizes = {
        settings.name: CompactRecorder().path(path).stat().st_size
        for settings in (HalfPrecisionSettings(), FullPrecisionSettings(), DoublePrecisionSettings())
        for path in [NamedMpkFileRecorder(settings).record(record, tmp_path / settings.name)]
    }
    assert 4000 <= sizes["HalfPrecisionSettings"] < 5000
    assert 8000 <= sizes["FullPrecisionSettings"] < 9000
    assert 16000 <= sizes["DoublePrecisionSettings"] < 17000
    back = NamedMpkFileRecorder().load(tmp_path / "HalfPrecisionSettings")
    assert (back.entries["a"].dtype, back.entries["b"].dtype) == (DType.F64, DType.I64)
    assert back.entries["b"].read().to_vec() == list(range(1000))


@pytest.mark.parametrize(
    ("values", "dtype", "shown"), [([1.0, 1e6], DType.F32, "a with 1000000.0, which f16"),
                                   ([3, 40_000], DType.I64, "a with 40000, which i16"),
                                   ([65_535], DType.U16, "a with 65535, which i16")],
)  # fmt: skip
def test_values_beyond_the_precision_are_refused_not_bent(
    tmp_path: Path, values: Any, dtype: DType, shown: str
) -> None:
    with pytest.raises(
        RecordError,
        match=rf"the record cannot be saved\n  given:    {shown} does not hold\n"
        r"  expected: values in the range of .*\n  mend:     use a recorder with FullPrecisionSettings",
    ):
        CompactRecorder().record(ModuleRecord({"a": entry(values, dtype)}), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_infinities_and_nan_are_values_of_every_precision(tmp_path: Path) -> None:
    record = ModuleRecord({"a": entry([np.inf, -np.inf, np.nan], DType.F32)})
    CompactRecorder().record(record, tmp_path / "m")
    assert str(CompactRecorder().load(tmp_path / "m").entries["a"].read().to_vec()) == "[inf, -inf, nan]"


def test_recorders_by_the_name_of_their_precision() -> None:
    assert repr(CompactRecorder()) == "CompactRecorder(HalfPrecisionSettings)"
    assert repr(DefaultRecorder()) == "DefaultRecorder(FullPrecisionSettings)"


@pytest.mark.parametrize("recorder", [BinBytesRecorder, NamedMpkBytesRecorder])
def test_bytes_recorders(recorder: Any) -> None:
    layer = LinearConfig(3, 4).init(DEVICE)
    data = recorder().record(layer.into_record(), ())
    assert isinstance(data, bytes)
    assert np.array_equal(weight(LinearConfig(3, 4).init(DEVICE).load_record(recorder().load(data))), weight(layer))
    with pytest.raises(RecordError, match="its checksum does not fit"):
        recorder().load(data.replace(b"weight", b"wieght"))


def test_a_whole_model_with_lists_and_states(tmp_path: Path) -> None:
    model = TransformerEncoderConfig(8, 16, 2, 2).init(DEVICE)
    for recorder, _ in FILES:
        recorder().record(model.into_record(), tmp_path / "m")
        back = recorder().load(tmp_path / "m")
        assert list(back) == list(model.into_record())
    norm = BatchNormConfig(3).init(DEVICE)
    DefaultRecorder().record(norm.into_record(), tmp_path / "norm")
    assert [e.state for e in DefaultRecorder().load(tmp_path / "norm").entries.values()] == [False, False, True, True]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"the record cannot be written\n  given:    .*\n  expected: .*\n  mend: "):
        DefaultRecorder().record(LinearConfig(1, 1).init(DEVICE).into_record(), tmp_path / "file/m")


def test_keys_that_do_not_nest_are_refused(tmp_path: Path) -> None:
    record = ModuleRecord({"a": entry([1.0], DType.F32), "a.b": entry([1.0], DType.F32)})
    for shuffled in (record, ModuleRecord(dict(list(record.entries.items())[::-1]))):
        with pytest.raises(RecordError, match=r"which is a value and holds others\n  exp.*\n  mend:     save to .bpk"):
            DefaultRecorder().record(shuffled, tmp_path / "m")


# -- Burn's files ---------------------------------------------------------------------------------------------
def param(values: list[float], shape: list[int], dtype: Any = "F32") -> dict[str, Any]:
    return {
        "id": "4000000000000",  # base32hex of 1, 0, 0, 0, 0, 0, 0, 0 reads 0400...; this is 0x20
        "param": {"bytes": np.array(values, np.float32).tobytes(), "shape": shape, "dtype": dtype},
    }


def burns(item: Any) -> dict[str, Any]:
    """Returns what rmp_serde writes of a BurnRecord."""
    metadata = {"float": "f32", "int": "i32", "format": "NamedMpkFileRecorder", "version": "0.20.1", "settings": "Full"}
    return {"metadata": metadata, "item": item}


ITEM = {
    "fc": {"weight": param([1.0, 2.0], [2, 1]), "bias": None, "d_input": None},
    "layers": [{"weight": param([3.0], [1])}, {"weight": param([4.0], [1])}],
    "mask": {"id": "4000000000000", "param": {"bytes": b"\1\0", "shape": [2], "dtype": {"Bool": "Native"}}},
    "steps": 7,
    "name": "net",
}


def test_messagepack_as_burn_writes_it() -> None:
    msgpack = pytest.importorskip("msgpack")
    record = ModuleRecord.from_bytes(msgpack.packb(burns(ITEM)), ".mpk")
    assert {key: e.read().to_list() for key, e in record.entries.items()} == {
        "fc.weight": [[1.0], [2.0]], "layers.0.weight": [3.0], "layers.1.weight": [4.0], "mask": [True, False],
    }  # fmt: skip
    assert record.entries["fc.weight"].id == 0x20
    assert record.scalars == {"steps": 7}
    assert record.metadata["version"] == "0.20.1"


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("indent", [None, 2])
def test_json_as_burn_writes_it(indent: int | None) -> None:
    text = json.dumps(as_json(burns(ITEM)), indent=indent).encode()
    for data, ending in ((text, ".json"), (gzip.compress(text), ".json.gz")):
        record = ModuleRecord.from_bytes(data, ending)
        assert record.entries["fc.weight"].read().to_list() == [[1.0], [2.0]]
        assert record.entries["mask"].read().to_list() == [True, False]


def test_gzip_of_other_programs_with_a_file_name(tmp_path: Path) -> None:
    data = encode(as_json(burns({}))["metadata"])
    with gzip.GzipFile(tmp_path / "m.mpk.gz", "wb") as file:
        file.write(b"\x82" + encode("metadata") + data + encode("item") + encode({}))
    assert ModuleRecord.load(tmp_path / "m.mpk.gz").is_empty()


@pytest.mark.parametrize(
    ("text", "number"),
    [("0400000000000", 1), ("vvvvvvvvvvvvu", 2**64 - 1), ("0400000000", 1),
     ("01000000-0000-0000-0000-000000000000", 1)],
)  # fmt: skip
def test_ids_as_burn_wrote_them_through_the_years(text: str, number: int) -> None:
    value = as_json(burns({"a": {**param([1.0], [1]), "id": text}}))
    assert ModuleRecord.from_bytes(json.dumps(value).encode(), ".json").entries["a"].id == number


def test_what_we_write_is_what_burn_reads() -> None:
    msgpack = pytest.importorskip("msgpack")
    layer = LinearConfig(2, 1).init(DEVICE)
    unpacked = msgpack.unpackb(NamedMpkBytesRecorder().record(layer.into_record()))
    assert list(unpacked) == ["metadata", "item"]
    assert {name: unpacked["metadata"][name] for name in ("float", "int", "settings")} == {
        "float": "f32", "int": "i32", "settings": "FullPrecisionSettings",
    }  # fmt: skip
    leaf = unpacked["item"]["weight"]
    assert leaf["param"] == {"bytes": weight(layer).tobytes(), "shape": [2, 1], "dtype": "F32"}
    back = json.dumps(as_json(burns({"a": {**param([1.0], [1]), "id": leaf["id"]}}))).encode()
    assert ModuleRecord.from_bytes(back, ".json").entries["a"].id == layer.weight.id


@pytest.mark.parametrize("value", [0, 127, 128, 255, 256, 65_536, 2**32, 2**64 - 1, "x" * 31, "x" * 32, "é" * 200,
                                   "x" * 70_000, list(range(15)), list(range(16)), {str(i): i for i in range(16)},
                                   [0] * 70_000, None, True, {}, []])  # fmt: skip
def test_our_messagepack_is_that_of_the_library(value: Any) -> None:
    msgpack = pytest.importorskip("msgpack")
    assert encode(value) == msgpack.packb(value)
    assert decode(memoryview(encode(value))) == value


def test_all_numbers_of_messagepack_are_read() -> None:
    msgpack = pytest.importorskip("msgpack")
    values = [-1, -32, -33, -129, -40_000, -(2**31) - 1, 0.5, -0.0]
    assert decode(memoryview(msgpack.packb(values))) == values
    assert decode(memoryview(msgpack.packb(0.5, use_single_float=True))) == 0.5
    assert decode(memoryview(msgpack.packb([b"abc"]))) == [Blob(3, 6)]


# -- files that mean harm ----------------------------------------------------------------------------------------
def refuse(data: bytes, ending: str, what: str, mend: str = "use an earlier checkpoint") -> None:
    with pytest.raises(
        RecordError,
        match=rf"cannot be loaded\n  given:    the given bytes: .*{what}.*\n  expected: a sound .*\n  mend:     {mend}",
    ):
        ModuleRecord.from_bytes(data, ending)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "it ends at byte 0 within a value of 1 bytes"),
        (b"\xc1", "byte 0 begins no value of a record"),
        (b"\xc7\x01\x01\x01", "byte 0 begins no value of a record"),
        (b"\xc6\xff\xff\xff\xff", "within a value of 4294967295 bytes"),
        (b"\xdd\xff\xff\xff\xff", "byte 0 promises 4294967295 items"),
        (b"\xdf\xff\xff\xff\xff", "byte 0 promises 4294967295 items"),
        (b"\x91" * 100_000, "it is nested deeper than 64 levels"),
        (b"\x81\x01\x01", "byte 1 begins no name"),
        (b"\x82\xa1a\x01\xa1a\x01", "a map in it has a twice"),
        (b"\xa1\xff", "it holds text that is no UTF-8"),
        (b"\x90" * 2, "1 bytes follow its content"),
        (b"\xdd\x00\x0f\x00\x00" + b"\x90" * 0xF0000, "it has more parts than any record"),
        (b"\x80", "it holds no record of a recorder"),
        (encode({"metadata": [], "item": {}}), "its metadata is not text by name"),
        (encode({"metadata": {"burn_torch": "1", "record": "", "checksum": ""}, "item": {}}), "its checksum does"),
        (encode(burns({"a": {"id": "x", "param": {"bytes": 1, "shape": [1], "dtype": "F32"}}})), "a has an id that no"),
        (encode(burns({"a": {"bytes": 1, "shape": [1], "dtype": "F32"}})), "a has values that are no bytes"),
        (encode(burns({"a": {"bytes": 1, "shape": [2**63], "dtype": "F32"}})), "a has a shape that no tensor has"),
        (encode(burns({"a": {"bytes": 1, "shape": [1], "dtype": "F31"}})), "a has the type F31"),
        (encode(burns({"a": {"id": "0400000000000", "param": {"value": [1], "shape": [1]}}})), "Burn did before 0.14"),
        (encode(burns({"a": {"id": "0400000000000", "param": 1}})), "a is no tensor of a record"),
    ],
)  # fmt: skip
def test_hostile_messagepack_is_refused(data: bytes, what: str) -> None:
    refuse(data, ".mpk", f"it is damaged: .*{what}")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file cannot be read"),
        ("[" * 100_000, "the file cannot be read|nested"),
        ('{"metadata": {}, "metadata": {}}', "the file has metadata twice"),
        (json.dumps(as_json(burns({"a": {"bytes": [1, 2, 3], "shape": [1], "dtype": "F32"}}))), "a needs 4 bytes, and"),
        (json.dumps(as_json(burns({"a": {"bytes": [256], "shape": [1], "dtype": "U8"}}))), "no numbers from 0 to 255"),
        (json.dumps(as_json(burns({"a": {"bytes": [2], "shape": [1], "dtype": "Bool"}}))), "a is of truth values"),
        ('{"metadata": {}, "item": {"a": {"bytes": [1,,2], "shape": [3], "dtype": "U8"}}}', "no numbers from 0 to 255"),
        ('{"metadata": {}, "item": {"a": {"bytes": "AA", "shape": [3], "dtype": "U8"}}}', "values that are no bytes"),
    ],
)  # fmt: skip
def test_hostile_json_is_refused(text: str, what: str) -> None:
    refuse(text.encode(), ".json", f"it is damaged: .*({what})")


def test_hostile_bincode_is_refused(tmp_path: Path) -> None:
    refuse(b"\x03f32\x03i32", ".bin", "Burn's own do not say which bytes are which parameter", "in Burn, load it")
    magic = b"\x0eburn_torch bin"
    refuse(magic + b"\xfd" + b"\xff" * 8, ".bin", "it promises 18446744073709551615 values where 64 can be")
    refuse(magic + b"\x01\xfd" + b"\xff" * 8, ".bin", "within a value of 18446744073709551615 bytes")
    refuse(magic + b"\x01\xfe", ".bin", "byte 16 begins no number")
    refuse(magic + b"\x01\x01\xff\x00\x00", ".bin", "no UTF-8")
    refuse(magic + b"\x00\x00", ".bin", "its checksum does not fit")


def test_a_gzip_bomb_is_refused_in_little_memory() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(300)) + packer.flush()
    assert len(bomb) < 400_000
    tracemalloc.start()
    refuse(bomb, ".mpk.gz", r"its \d+ bytes unpack to more than 268435456", "if that is meant, read it with GzipFormat")
    refuse(bomb, ".json.gz", "unpack to more than", "if that is meant")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    with pytest.raises(RecordError, match=r"byte 0 begins|bytes follow its content"):  # it unpacks, and is no record
        GzipFormat(NamedMpkFormat(), max_bytes=1 << 30).parse(bomb)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: b"PK" + data[2:], "it is no gzip file"),
        (lambda data: data[:3] + b"\x80" + data[4:], "its gzip header has unknown flags"),
        (lambda data: data[:3] + b"\x08" + data[4:10] + b"x" * 5000, "its gzip header does not end"),
        (lambda data: data[:3] + b"\x04" + data[4:10] + b"\xff\xff" + data[12:], "its gzip header is longer than"),
        (lambda data: data[:-9], "it ends too early"),
        (lambda data: data[:-4], "it ends too early"),
        (lambda data: data + b"x", "bytes follow its end"),
        (lambda data: data[:-8] + struct.pack("<I", 1) + data[-4:], "its gzip sum does not fit"),
        (lambda data: data[:10] + b"\xff" + data[11:], "it cannot be unpacked"),
    ],
)
def test_hostile_gzip_is_refused(change: Any, what: str) -> None:
    refuse(change(gzip.compress(encode(burns({})))), ".mpk.gz", f"it is damaged: {what}")


def test_our_file_packed_again_has_lost_its_checksum() -> None:
    plain = NamedMpkBytesRecorder().record(LinearConfig(1, 1).init(DEVICE).into_record())
    refuse(gzip.compress(plain), ".mpk.gz", "its header has lost the checksum")
