"""Any record, any names, any types: through shards, through other programs' hands, through conversions, from before."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import FORMATS, RecordEntry
from burn_torch.record import DoublePrecisionSettings, NamedMpkFormat, ShardedSafetensorsFormat
from burn_torch.record.conversion import read_any, write_any
from burn_torch.record.listing import listing_of
from burn_torch.record.stores import PytorchStore

FIXTURES = Path(__file__).parent / "fixtures"
TORCH = {
    torch.float64: DType.F64, torch.float32: DType.F32, torch.float16: DType.F16, torch.bfloat16: DType.BF16,
    torch.int64: DType.I64, torch.int32: DType.I32, torch.int16: DType.I16, torch.int8: DType.I8,
    torch.uint8: DType.U8, torch.bool: DType.BOOL,
}  # fmt: skip
ALL = [value for value in vars(DType).values() if isinstance(value, DType)]
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=6)
names = st.lists(words, min_size=1, max_size=3).map(".".join).filter(lambda name: name != "__metadata__")


@contextmanager
def folder() -> Iterator[Path]:
    """A fresh one for each example: fixtures of pytest are one for all of them."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def bits(dtype: DType, shape: tuple[int, ...], seed: int) -> TensorData:
    """Any bits: NaN with payloads, infinities, subnormals."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype is DType.BOOL else 256, size, np.uint8)
    return TensorData(raw.view(dtype.numpy).reshape(shape), dtype)


@st.composite
def records(draw: st.DrawFn, dtypes: Any = ALL) -> ModuleRecord:
    entries: dict[str, RecordEntry] = {}
    for key in draw(st.lists(names, max_size=5, unique=True)):
        if any(key.startswith(f"{other}.") or other.startswith(f"{key}.") for other in entries):
            continue  # recorders nest: no value holds others
        if entries and draw(st.integers(0, 4)) == 0:
            entries[key] = draw(st.sampled_from(list(entries.values())))  # tied
            continue
        data = bits(draw(st.sampled_from(dtypes)), draw(shapes), draw(st.integers(0, 99)))
        ident = draw(st.none() | st.integers(0, 2**64 - 1).map(ParamId))
        entries[key] = RecordEntry(data.dtype, data.shape, ident, lambda data=data: data, draw(st.booleans()))  # type: ignore[misc]
    texts = st.dictionaries(st.sampled_from(["module", "é", "\0"]), st.text(max_size=5))
    numbers = st.dictionaries(
        words, st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.floats(allow_nan=False), max_size=2
    )
    return ModuleRecord(entries, draw(texts), scalars=draw(numbers))


def same(left: ModuleRecord, right: ModuleRecord) -> None:
    assert list(left) == list(right)
    assert (dict(left.metadata), dict(left.scalars)) == (dict(right.metadata), dict(right.scalars))
    for key in left:
        a, b = left.entries[key], right.entries[key]
        assert (a.dtype, a.shape, a.id, a.state) == (b.dtype, b.shape, b.id, b.state)
        assert a.read().array.tobytes() == b.read().array.tobytes()
    filled = [key for key in left if left.entries[key].nbytes]
    for one, other in itertools.combinations(filled, 2):
        assert (left.entries[one] is left.entries[other]) == (right.entries[one] is right.entries[other])


@settings(max_examples=12, deadline=None)
@given(record=records(), max_shard_bytes=st.integers(1, 200))
def test_any_record_comes_back_from_shards(record: ModuleRecord, max_shard_bytes: int) -> None:
    with folder() as place:
        path = place / "m.safetensors.index.json"
        ShardedSafetensorsFormat(max_shard_bytes).save(record, path)
        same(record, ShardedSafetensorsFormat().load(path))


@pytest.mark.parametrize("ending", sorted(FORMATS))
@settings(max_examples=8, deadline=None)
@given(record=records())
def test_any_record_comes_back_from_a_file_and_is_listed(ending: str, record: ModuleRecord) -> None:
    with folder() as place:
        path = place / f"m{ending}"
        write_any(record, path)
        same(record, read_any(path))
        listing = listing_of(path)
        assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in listing.tensors] == [
            (key, entry.dtype.name, entry.shape) for key, entry in record.entries.items()
        ]
        assert listing.checksum == "fits"


@settings(max_examples=20, deadline=None)
@given(record=records(list(TORCH.values())))
def test_the_safetensors_library_reads_any_record_and_we_read_its(record: ModuleRecord) -> None:
    library = pytest.importorskip("safetensors.torch")
    with folder() as place:
        path = record.save(place / "m.safetensors")
        theirs = library.load_file(path)
        first = {id(entry): key for key, entry in reversed(list(record.entries.items()))}
        assert set(theirs) == set(first.values())
        for key, tensor in theirs.items():
            entry = record.entries[key]
            assert (TORCH[tensor.dtype], tuple(tensor.shape)) == (entry.dtype, entry.shape)
            assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == entry.read().array.tobytes()
        library.save_file(theirs, place / "theirs.safetensors")
        again = ModuleRecord.load(place / "theirs.safetensors")
        assert {key: entry.read().array.tobytes() for key, entry in again.entries.items()} == {
            key: record.entries[key].read().array.tobytes() for key in theirs
        }


@pytest.mark.parametrize("zipped", [True, False])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_tensors_of_torch_save_are_read_and_listed(zipped: bool, data: st.DataObject) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for key in data.draw(st.lists(names, max_size=4, unique=True)):
        kind = data.draw(st.sampled_from(list(TORCH)))
        content = bits(TORCH[kind], data.draw(shapes), 3)
        flat = torch.frombuffer(bytearray(content.array.tobytes() + bytes(8)), dtype=torch.uint8)
        tensors[key] = flat[: content.array.nbytes].view(kind).reshape(content.shape)
    with folder() as place:
        path = place / "m.pt"
        torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
        entries = PytorchStore.from_file(path).map_indices_contiguous(False).get_all_snapshots()
        assert list(entries) == list(tensors)
        for key, tensor in tensors.items():
            assert (entries[key].dtype, entries[key].shape) == (TORCH[tensor.dtype], tuple(tensor.shape))
            assert entries[key].read().array.tobytes() == tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        listed = {tensor.name: (tensor.dtype, tensor.shape, tensor.nbytes) for tensor in listing_of(path).tensors}
        assert listed == {key: (entry.dtype.name, entry.shape, entry.nbytes) for key, entry in entries.items()}


@settings(max_examples=15, deadline=None)
@given(record=records([DType.F32, DType.F16, DType.BF16, DType.I32, DType.I8, DType.BOOL]))
def test_double_precision_loses_nothing(record: ModuleRecord) -> None:
    form = NamedMpkFormat(DoublePrecisionSettings())
    back = form.parse(form.dump(record))
    for key, entry in record.entries.items():
        assert back.entries[key].dtype is entry.dtype
        assert np.array_equal(
            back.entries[key].read().values, entry.read().values, equal_nan=entry.dtype.is_float
        )  # a NaN loses its payload on the way


# -- files of earlier versions -----------------------------------------------------------------------------------
@pytest.mark.parametrize("path", sorted(FIXTURES.glob("version-*")), ids=lambda path: path.name)
def test_files_that_earlier_versions_wrote_still_load(path: Path) -> None:
    record = ModuleRecord.load(path)
    if path.name == "version-1.safetensors":
        assert record.metadata == {"module": "BatchNorm"}  # its values are in test_safetensors_file.py
        return
    assert {key: (entry.read().values.tolist(), entry.id, entry.state) for key, entry in record.entries.items()} == {
        "enc.weight": ([[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]], 7, False),
        "dec.weight": ([[0.0, 0.25, 0.5], [0.75, 1.0, 1.25]], 7, False),
        "enc.bias": ([0.5, -1.0], 8, False),
        "norm.mean": ([1.0, 2.0, 3.0], 9, True),
        "mask": ([True, False], 10, True),
    }
    assert record.entries["enc.weight"] is record.entries["dec.weight"]
    assert record.scalars == {"steps": 3, "lr": 0.25, "on": True}
    assert listing_of(path).checksum == "fits"
