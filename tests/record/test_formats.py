"""Tests what every format of records promises: all that goes in comes out, and damage is noticed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import FORMATS, Formats, RecordEntry, format_of

ENDINGS = [ending for ending in sorted(FORMATS) if ending != ".safetensors.index.json"]
DTYPES = [value for value in vars(DType).values() if isinstance(value, DType)]


def entry(data: TensorData, ident: int | None = None, state: bool = False) -> RecordEntry:
    return RecordEntry(data.dtype, data.shape, None if ident is None else ParamId(ident), lambda: data, state)


def values(dtype: DType, shape: tuple[int, ...], seed: int) -> TensorData:
    """Any bits: NaN with payloads, infinities, subnormals, the largest integers."""
    size = int(np.prod(shape)) * dtype.itemsize
    bits = np.random.default_rng(seed).integers(0, 2 if dtype is DType.BOOL else 256, size, np.uint8)
    return TensorData(bits.view(dtype.numpy).reshape(shape), dtype)


def same(left: ModuleRecord, right: ModuleRecord) -> None:
    assert list(left) == list(right)
    assert dict(left.metadata) == dict(right.metadata)
    for key in left:
        a, b = left.entries[key], right.entries[key]
        assert (a.dtype, a.shape, a.id, a.state) == (b.dtype, b.shape, b.id, b.state)
        assert a.read().array.tobytes() == b.read().array.tobytes()
        assert b.read().dtype is b.dtype
        assert b.read().shape == b.shape


def small() -> ModuleRecord:
    entries = {
        "weight": entry(values(DType.F32, (2, 3), 1), 7),
        "mask": entry(values(DType.BOOL, (3,), 2), 2**64 - 1, state=True),
    }
    return ModuleRecord(entries, {"module": "Linear"})


names = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=8),
    min_size=1, max_size=3,
).map(".".join)  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_record_comes_back_bit_for_bit(ending: str, data: st.DataObject) -> None:
    keys = data.draw(st.lists(names, max_size=5, unique=True))
    keys = [key for key in keys if not any(other != key and other.startswith(f"{key}.") for other in keys)]
    entries = {
        key: entry(
            values(data.draw(st.sampled_from(DTYPES)), tuple(data.draw(st.lists(st.integers(0, 3), max_size=4))), 3),
            data.draw(st.none() | st.integers(0, 2**64 - 1)),
            data.draw(st.booleans()),
        )
        for key in keys
    }
    metadata = data.draw(st.dictionaries(st.sampled_from(["module", "checkpoint", "é"]), st.text(max_size=5)))
    record = ModuleRecord(entries, metadata)
    same(record, ModuleRecord.from_bytes(record.into_bytes(ending), ending))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_has_the_bytes_of_the_record(ending: str, tmp_path: Path) -> None:
    path = small().save(tmp_path / f"m{ending}")
    assert path.read_bytes() == small().into_bytes(ending)
    same(small(), ModuleRecord.load(path))
    same(small(), ModuleRecord.load(ModuleRecord.load(path).save(tmp_path / f"again{ending}")))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("count", [0, 1])
def test_records_of_nothing_and_of_scalars_come_back(ending: str, count: int) -> None:
    record = ModuleRecord({}, scalars={"lr": 0.1, "steps": 2**63, "on": True, "below": -3} if count else {})
    back = ModuleRecord.from_bytes(record.into_bytes(ending), ending)
    assert back.is_empty()
    assert back.scalars == record.scalars
    assert [type(value) for value in back.scalars.values()] == [type(record.scalars[name]) for name in back.scalars]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_tied_parameter_is_one_entry(ending: str) -> None:
    shared = entry(values(DType.F32, (300,), 1), 7)
    record = ModuleRecord({"a.weight": shared, "b.weight": shared})
    data = record.into_bytes(ending)
    same(record, ModuleRecord.from_bytes(data, ending))
    back = ModuleRecord.from_bytes(data, ending)
    assert back.entries["a.weight"] is back.entries["b.weight"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_single_flipped_bit_is_noticed(ending: str) -> None:
    sound = small().into_bytes(ending)
    message = re.compile(r"cannot be loaded\n  given:    the given bytes: .*\n  expected: a sound")
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordError) as caught:
            ModuleRecord.from_bytes(bytes(damaged), ending)
        assert message.search(str(caught.value)), str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_truncation_and_any_tail_is_noticed(ending: str) -> None:
    sound = small().into_bytes(ending)
    for damaged in [*(sound[:length] for length in range(len(sound))), sound + b"\0", sound + sound]:
        with pytest.raises(RecordError, match="cannot be loaded"):
            ModuleRecord.from_bytes(damaged, ending)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mutated_file_is_refused_or_unchanged(ending: str, data: st.DataObject) -> None:
    sound = small().into_bytes(ending)
    start = data.draw(st.integers(0, len(sound)))
    end = data.draw(st.integers(start, min(len(sound), start + 12)))
    mutated = sound[:start] + data.draw(st.binary(max_size=12)) + sound[end:]
    if mutated == sound:
        return
    with pytest.raises(RecordError, match="cannot be loaded"):
        ModuleRecord.from_bytes(mutated, ending)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_is_refused(ending: str, noise: bytes) -> None:
    with pytest.raises(RecordError, match="cannot be loaded"):
        ModuleRecord.from_bytes(noise, ending)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_cannot_be_written_leaves_nothing(ending: str, tmp_path: Path) -> None:
    def fail() -> Any:
        raise OSError(28, "No space left on device")

    record = ModuleRecord({"weight": RecordEntry(DType.F32, (3,), None, fail)})
    (tmp_path / f"m{ending}").write_bytes(b"before")
    with pytest.raises(
        ArtifactError, match=r"the record cannot be written\n  given: .*No space[\s\S]*\n  mend:     choose"
    ):
        record.save(tmp_path / f"m{ending}")
    assert [path.name for path in tmp_path.iterdir()] == [f"m{ending}"]
    assert (tmp_path / f"m{ending}").read_bytes() == b"before"


def test_formats_are_made_when_they_are_first_asked_for() -> None:
    assert FORMATS[".bin"] is format_of(Path("x.bin"))
    assert format_of(Path("x.json.gz")) == FORMATS[".json.gz"] != FORMATS[".json"]
    with pytest.raises(ModuleNotFoundError, match=r"burn_torch\.record\.absent"):
        Formats({".x": "burn_torch.record.absent:Format"})[".x"]
