"""Records: safetensors in one file and in shards, burnpack, MessagePack, JSON, bincode, plain and gzipped."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz_files.mutations import bytes_changed, json_changed, words_changed
from tests.fuzz_files.reader import Reader, either, errors_of_ours, packed_again, read_all, require_equal

__all__ = ["READERS"]


def _record(ending: str) -> bytes:
    from tests.record.hostile.corpus import ours

    return ours(ending)


@cache
def net() -> Any:
    from burn_torch import Device, Module
    from burn_torch.nn import Linear, LinearConfig

    class Net(Module):
        a: Linear

    return Net(LinearConfig(3, 4).init(Device.cpu()))


def read_record(path: Path) -> None:
    """Loads, lists, applies, reads all values, and writes what was read again."""
    from burn_torch.module import ModuleRecord
    from burn_torch.record.listing import listing_of

    read_all(lambda: _read_values(ModuleRecord.load(path)), lambda: listing_of(path), lambda: net().load_file(path))


def read_foreign(path: Path) -> None:
    """The same, and the values that safetensors itself reads, where both take the file."""
    from safetensors.numpy import load_file

    from burn_torch.module import ModuleRecord

    read_record(path)
    try:
        theirs = load_file(path)
    except Exception:  # what safetensors refuses is no other value
        return
    with contextlib.suppress(errors_of_ours()):
        entries = ModuleRecord.load(path).entries
        require_equal("keys", sorted(entries), sorted(theirs))
        for key, value in theirs.items():
            require_equal(key, entries[key].read().array, value)


def _read_values(record: Any) -> None:
    for entry in record.entries.values():
        entry.read()
    record.into_bytes(".safetensors")


def header_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """The JSON of a safetensors file changed, and its length made to fit again."""
    size = int.from_bytes(data[:8], "little")
    header = json_changed(data[8 : 8 + size], rnd, others)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


@cache
def foreign_safetensors() -> tuple[bytes, ...]:
    from safetensors.numpy import save

    rng = np.random.default_rng(1)
    return (
        save({"a.weight": rng.random((3, 4), np.float32), "a.bias": np.zeros(4, np.float16)}, {"format": "pt"}),
        save({"x": np.arange(5), "y": np.zeros((0, 3)), "z": np.array(True)}),
    )


def _shards() -> tuple[bytes, dict[str, bytes]]:
    import tempfile

    from burn_torch.record import ShardedSafetensorsFormat

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.safetensors.index.json"
        ShardedSafetensorsFormat(max_shard_bytes=60).save(net().into_record(), path)
        files = {inner.name: inner.read_bytes() for inner in Path(folder).iterdir() if inner != path}
        return path.read_bytes(), files


_shards_once = cache(_shards)


def read_shard(path: Path) -> None:
    """A shard whose index and neighbours are sound; its name has a sum of them in it."""
    path.rename(path.with_name(_first_shard()))
    read_record(path.with_name("m.safetensors.index.json"))


def _beside_shard() -> dict[str, bytes]:
    index, shards = _shards_once()
    return {
        "m.safetensors.index.json": index,
        **{name: data for name, data in shards.items() if name != _first_shard()},
    }


@cache
def _first_shard() -> str:
    return min(_shards_once()[1])


@cache
def _optimizer() -> bytes:
    from burn_torch import Device, Tensor
    from burn_torch.module import ParamId
    from burn_torch.optim import OptimizerRecord

    slots = {"moment_1": Tensor.ones((3, 4), Device.cpu()), "moment_2": Tensor.zeros((3, 4), Device.cpu())}
    record = OptimizerRecord("Adam", {ParamId(7): (3, slots), ParamId(8): (2, {})})
    return bytes(record.into_named().into_bytes(".safetensors"))


def read_optimizer(path: Path) -> None:
    """The states of an optimizer and of a schedule, saved apart from a checkpoint."""
    from burn_torch.module import ModuleRecord
    from burn_torch.optim import LrSchedulerRecord, OptimizerRecord

    read_all(
        lambda: OptimizerRecord.from_named(ModuleRecord.load(path)),
        lambda: LrSchedulerRecord.from_named(ModuleRecord.load(path)),
    )


@cache
def _adapters() -> dict[str, bytes]:
    import tempfile

    from burn_torch.module import Lora
    from burn_torch.record.stores import PeftStore

    with tempfile.TemporaryDirectory() as folder:
        net().apply_lora(Lora(2, 4.0)).save_into(PeftStore.from_file(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


_SETTINGS: Final = "adapter_config.json"


def read_adapters(path: Path) -> None:
    """A folder of PEFT with these settings, whose tensors are sound."""
    from burn_torch.record.stores import PeftStore

    net().load_from(PeftStore.from_file(path.parent))


READERS: Final[dict[str, Reader]] = {
    "safetensors": Reader("m.safetensors", foreign_safetensors, read_foreign, either(bytes_changed, header_changed)),
    "safetensors, ours": Reader(
        "m.safetensors",
        lambda: [_record(".safetensors")],
        read_record,
        either(bytes_changed, header_changed),
        sealed=True,
    ),
    "shards": Reader(
        "m.safetensors.index.json",
        lambda: [_shards_once()[0]],
        read_record,
        either(words_changed, json_changed),
        beside=lambda: _shards_once()[1],
        sealed=True,
    ),
    "burnpack": Reader("m.bpk", lambda: [_record(".bpk")], read_record, sealed=True),
    "mpk": Reader("m.mpk", lambda: [_record(".mpk")], read_record, sealed=True),
    "json": Reader("m.json", lambda: [_record(".json")], read_record, either(words_changed, json_changed), sealed=True),
    "bin": Reader("m.bin", lambda: [_record(".bin")], read_record, sealed=True),
    "mpk.gz": Reader("m.mpk.gz", lambda: [_record(".mpk.gz")], read_record, packed_again(bytes_changed), sealed=True),
    "json.gz": Reader(
        "m.json.gz", lambda: [_record(".json.gz")], read_record, packed_again(words_changed), sealed=True
    ),
    "shard": Reader(
        "shard.safetensors",
        lambda: [_shards_once()[1][_first_shard()]],
        read_shard,
        either(bytes_changed, header_changed),
        beside=_beside_shard,
        sealed=True,
    ),
    "peft": Reader(
        _SETTINGS,
        lambda: [
            _adapters()[_SETTINGS],
            b'{"peft_type": "LORA", "r": 2, "alpha_pattern": {"a": 4}, "use_rslora": true}',
        ],
        read_adapters,
        either(words_changed, json_changed),
        beside=lambda: {name: data for name, data in _adapters().items() if name != _SETTINGS},
    ),
    "optimizer": Reader(
        "m.safetensors", lambda: [_optimizer()], read_optimizer, either(bytes_changed, header_changed), sealed=True
    ),
}
