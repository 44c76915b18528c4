"""Sharded safetensors: several files, one record, whole at every moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, RecordError
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry
from burn_torch.record import ShardedSafetensorsFormat
from burn_torch.record.safetensors_shards import shards_of

INDEX = "model.safetensors.index.json"


def entry(value: float, count: int = 10) -> RecordEntry:
    data = TensorData(np.full(count, value, np.float32), DType.F32)
    return RecordEntry(DType.F32, (count,), None, lambda: data)


def record(offset: float = 0.0) -> ModuleRecord:
    shared = entry(offset)
    entries = {
        "a": shared,
        "b": entry(offset + 1),
        "big": entry(offset + 2, 50),
        "c": entry(offset + 3),
        "tied": shared,
    }
    return ModuleRecord(entries, {"module": "Net"})


def read(path: Path) -> dict[str, float]:
    return {key: entry.read().array[0].item() for key, entry in ModuleRecord.load(path).entries.items()}


def test_shards_are_filled_in_order_and_come_back(tmp_path: Path) -> None:
    ShardedSafetensorsFormat(max_shard_bytes=90).save(record(), tmp_path / INDEX)
    index = json.loads((tmp_path / INDEX).read_text())
    shards = list(dict.fromkeys(index["weight_map"].values()))
    assert {name: index["metadata"][name] for name in ("total_size", "burn_torch", "shards")} == {
        "total_size": 320, "burn_torch": "1", "shards": shards,
    }  # fmt: skip
    assert [name[15:] for name in shards] == [f"{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
    assert index["weight_map"]["a"] == index["weight_map"]["b"] == index["weight_map"]["tied"] != shards[1]
    back = ModuleRecord.load(tmp_path / INDEX)
    assert list(back) == ["a", "b", "big", "c", "tied"]
    assert back.metadata == {"module": "Net"}
    assert back.entries["a"] is back.entries["tied"]
    assert read(tmp_path / INDEX) == {"a": 0.0, "b": 1.0, "big": 2.0, "c": 3.0, "tied": 0.0}


def test_a_sharded_model_of_another_program_loads(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.numpy").save_file
    for i, key in enumerate(("a", "b"), start=1):
        save_file({key: np.full(2, i, np.float32)}, tmp_path / f"model-{i:05}-of-00002.safetensors", {"format": "pt"})
    where = {key: f"model-{i:05}-of-00002.safetensors" for i, key in enumerate(("a", "b"), start=1)}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": where}))
    assert read(tmp_path / INDEX) == {"a": 1.0, "b": 2.0}


def test_a_second_save_replaces_the_first_whole(tmp_path: Path) -> None:
    form = ShardedSafetensorsFormat(max_shard_bytes=90)
    (tmp_path / "other.safetensors").write_bytes(b"someone else's")
    form.save(record(), tmp_path / INDEX)
    form.save(record(10.0), tmp_path / INDEX)
    assert read(tmp_path / INDEX)["big"] == 12.0
    assert len(list(tmp_path.iterdir())) == 5


def test_a_failed_save_leaves_the_earlier_model(tmp_path: Path) -> None:
    form = ShardedSafetensorsFormat(max_shard_bytes=90)
    form.save(record(), tmp_path / INDEX)

    def fail() -> Any:
        raise OSError(28, "No space left on device")

    entries = {**record(10.0).entries, "z": RecordEntry(DType.F32, (50,), None, fail)}
    with pytest.raises(ArtifactError, match="No space left"):
        form.save(ModuleRecord(entries), tmp_path / INDEX)
    assert read(tmp_path / INDEX)["big"] == 2.0
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    "name", ["/etc/x.safetensors", "../x.safetensors", "a/x.safetensors", "a\\x.safetensors", "..", ".x.safetensors",
             "x.pt", 3, None, "x\0.safetensors"],
)  # fmt: skip
def test_shards_outside_the_folder_are_refused(tmp_path: Path, name: Any) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(
        RecordError, match=r"it is damaged: files of shards that are no plain names: a in .*\n  expected: .*\n  mend: "
    ):
        ModuleRecord.load(tmp_path / INDEX)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the index cannot be read"),
        ("[" * 100_000, "the index cannot be read"),
        ("[]", "its index has no weight_map"),
        ('{"weight_map": 1}', "its index has no weight_map"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "the index has a twice"),
    ],
)
def test_an_unsound_index_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(RecordError, match=f"it is damaged: {what}"):
        ModuleRecord.load(tmp_path / INDEX)


def test_an_index_that_does_not_fit_its_shards_tells_every_fault(tmp_path: Path) -> None:
    ShardedSafetensorsFormat(max_shard_bytes=90).save(record(), tmp_path / INDEX)
    index = json.loads((tmp_path / INDEX).read_text())
    del index["weight_map"]["b"]
    index["weight_map"]["d"] = index["weight_map"]["big"]
    del index["metadata"]  # an index of another program, which has no checksum
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(RecordError, match=r"d is not in model-.*\n +model-.* holds b, which the index does not have"):
        ModuleRecord.load(tmp_path / INDEX)
    (tmp_path / index["weight_map"]["big"]).unlink()
    with pytest.raises(RecordError, match="there is no such file"):
        ModuleRecord.load(tmp_path / INDEX)


def test_one_file_formats_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"bytes of a sharded record\n  expected: .*\n  mend:     use into_bytes"):
        record().into_bytes(".safetensors.index.json")
    with pytest.raises(RecordError, match=r"an index alone holds no tensors\n  expected: .*\n  mend:     load it from"):
        ModuleRecord.from_bytes(b"{}", ".safetensors.index.json")


def test_every_single_flipped_bit_of_an_index_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    ShardedSafetensorsFormat().save(ModuleRecord({"a": entry(1.0)}), path)
    sound = path.read_bytes()
    assert list(shards_of(path)) == ["a"]
    with path.open("r+b", buffering=0) as file:  # a byte at a time: to write a file anew costs a flush
        for bit in range(8 * len(sound)):
            file.seek(bit // 8)
            file.write(bytes([sound[bit // 8] ^ 1 << bit % 8]))
            with pytest.raises(RecordError, match="cannot be loaded"):
                shards_of(path)
            file.seek(bit // 8)
            file.write(sound[bit // 8 : bit // 8 + 1])
    assert list(shards_of(path)) == ["a"]


def test_an_index_of_another_program_has_no_checksum_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    ShardedSafetensorsFormat().save(record(), path)
    index = json.loads(path.read_bytes())
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index["weight_map"]}))
    assert list(ShardedSafetensorsFormat().load(path)) == list(record())
    path.write_text(json.dumps({"weight_map": index["weight_map"], "more": 1}))
    with pytest.raises(RecordError, match="its index has parts that are not known here: more"):
        ShardedSafetensorsFormat().load(path)
    path.write_text(json.dumps({"weight_map": index["weight_map"], "metadata": []}))
    with pytest.raises(RecordError, match="its index has metadata that is no object"):
        ShardedSafetensorsFormat().load(path)


def test_a_record_of_nothing_keeps_its_metadata_and_leaves_no_file_behind(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    for _ in range(2):
        ShardedSafetensorsFormat().save(ModuleRecord({}, {"module": "Net"}, scalars={"steps": 3}), path)
    back = ShardedSafetensorsFormat().load(path)
    assert (back.is_empty(), back.metadata, back.scalars) == (True, {"module": "Net"}, {"steps": 3})
    assert len(list(tmp_path.iterdir())) == 2
