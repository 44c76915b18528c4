"""Records in safetensors files: what goes in comes out, and what is damaged is refused."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Module, Tensor
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, RecordError
from burn_torch.module import ModuleRecord, Param, RunningState
from burn_torch.nn import BatchNormConfig, LinearConfig
from burn_torch.record.block_sum import BlockSum

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
DTYPES = [value for value in vars(DType).values() if isinstance(value, DType)]


class Bag(Module):
    items: dict[str, Any]


def bag(**arrays: Any) -> Bag:
    return Bag({name: Param.from_data(array, Device.cpu()) for name, array in arrays.items()})


def bits(tensor: Tensor) -> tuple[bytes, DType, tuple[int, ...]]:
    data = tensor.into_data()
    return data.array.tobytes(), data.dtype, data.shape


def raw(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file with this header, written by no program."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def plain(dtype: str, shape: Any, size: int) -> dict[str, Any]:
    return {"items.a": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}


# -- there and back ----------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_element_type_comes_back_bit_for_bit(
    tmp_path: Path, dtype: DType, shape: tuple[int, ...], seed: np.random.Generator
) -> None:
    value = Tensor.from_data(seed.integers(0, 2, shape), Device.cpu()).cast(dtype)
    module = Bag({"a": Param(value), "b": RunningState(value)})
    other = Tensor.from_data(np.zeros(shape, np.int64), Device.cpu()).cast(dtype)
    loaded = Bag({"a": Param(other), "b": RunningState(other)}).load_file(module.save_file(tmp_path / "m"))
    assert bits(loaded.items["a"].val()) == bits(value)
    assert bits(loaded.items["b"].value()) == bits(value)
    assert loaded.items["a"].id == module.items["a"].id


def test_nan_negative_zero_and_subnormals_come_back(tmp_path: Path) -> None:
    value = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    loaded = bag(a=np.zeros(4, np.float32)).load_file(bag(a=value).save_file(tmp_path / "m.safetensors"))
    assert loaded.items["a"].val().into_data().array.tobytes() == value.tobytes()


def test_strided_parameters_and_odd_names_come_back(tmp_path: Path, seed: np.random.Generator) -> None:
    array = seed.normal(size=(3, 4))
    turned = Param(Tensor.from_data(array, Device.cpu()).swap_dims(0, 1))
    module = Bag({"é 中.deep\n": turned, "__metadata__": turned.with_value(turned.val() + 1)})
    path = module.save_file(tmp_path / "m")
    record = ModuleRecord.load(path)
    assert list(record) == ["items.é 中.deep\n", "items.__metadata__"]
    assert np.array_equal(record.entries["items.é 中.deep\n"].read().array, array.T)
    assert bits(module.load_file(path).items["__metadata__"].val()) == bits(turned.val() + 1)


def test_order_metadata_and_states_are_kept(tmp_path: Path) -> None:
    norm = BatchNormConfig(3).init(Device.cpu())
    record = ModuleRecord.load(norm.save_file(tmp_path / "m"))
    assert list(record) == list(norm.into_record())
    assert [key for key, entry in record.entries.items() if entry.state] == ["running_mean", "running_var"]
    assert record.metadata == {"module": "BatchNorm"}


# -- files of other programs ------------------------------------------------------------------------------
def test_a_file_of_another_program_loads(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "other.safetensors"
    safetensors.save_file({"items.a": array}, path, {"format": "np", "keys": "theirs"})
    loaded = bag(a=np.zeros((2, 3), np.float32)).load_file(path)
    assert np.array_equal(loaded.items["a"].val().into_data().array, array)


@pytest.mark.parametrize(
    ("header", "data", "what"),
    [
        (plain("BOOL", [2], 2), b"\2\1", "items.a is of truth values, and has bytes other than 0 and 1"),
        (plain("F8_E8M0", [2], 2), b"\0\0", "items.a has the type F8_E8M0"),
        (plain("BOOL", [2**63, 2**63], 2), b"\0\0", "it is damaged: items.a has a shape that no tensor has"),
        (plain("BOOL", [2**62, 2**62], 2), b"\0\0", "it is damaged: items.a has a shape that no tensor has"),
        (plain("BOOL", [1] * 33, 1), b"\0", "it is damaged: items.a has a shape that no tensor has"),
        (plain("BOOL", [True], 1), b"\0", "it is damaged: items.a has a shape that no tensor has"),
        (plain("BOOL", "2", 2), b"\0\0", "it is damaged: items.a has a shape that no tensor has"),
        (plain("BOOL", [2], 3), b"\0\0\0", "items.a needs 2 bytes, and has 3"),
        (plain("BOOL", [2], -1), b"\0\0", "items.a has offsets that no tensor has"),
        (plain("BOOL", [2], 2**70), b"\0\0", "items.a has offsets that no tensor has"),
        (
            {
                "items.a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "items.b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]},
            },
            b"\0\0\0",
            "items.b overlaps items.a",
        ),
        (
            {"items.a": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}},
            b"\0\0\0",
            "1 bytes before items.a belong to nothing",
        ),
        ({"items.a": {"dtype": "U8", "shape": [2]}}, b"", "items.a lacks its type, shape or offsets"),
        ({"items.a": {"dtype": 8, "shape": [0], "data_offsets": [0, 0]}}, b"", "items.a has a type that is no name"),
        ({"__metadata__": {"a": 1}}, b"", "its metadata is not text by name"),
        (plain("F32", [2], 4), b"\0\0\0\0", "it is damaged: "),
        (plain("BOOL", [2], 2), b"\0\0\0", "it is damaged: "),
        (plain("BOOL", [-1], 0), b"", "it is damaged: "),
        (b" " + json.dumps(plain("BOOL", [2], 2)).encode(), b"\0\0", "the header does not begin with {"),
        (
            b"{%b,%b}" % ((json.dumps(plain("BOOL", [2], 2)).encode()[1:-1],) * 2),
            b"\0\0",
            "the header has items.a twice",
        ),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"", "it is damaged: "),
        (b"[]", b"", "it is damaged: "),
    ],
)
def test_an_unsound_header_is_refused(tmp_path: Path, header: Any, data: bytes, what: str) -> None:
    with pytest.raises(
        RecordError,
        match=rf"the record cannot be loaded\n  given:    .*m.safetensors: .*{what}.*\n"
        r"  expected: a sound safetensors file\n  mend:     ",
    ):
        ModuleRecord.load(raw(tmp_path / "m.safetensors", header, data))


@pytest.mark.parametrize("content", [b"", b"\1", struct.pack("<Q", 2**62) + b"{}", struct.pack("<Q", 9) + b"{}"])
def test_a_header_longer_than_the_file_is_refused_before_any_allocation(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"it is damaged: it (has . bytes, fewer than|promises a header length of)"):
        ModuleRecord.load(path)


# -- damage --------------------------------------------------------------------------------------------------
def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = LinearConfig(2, 2).init(Device.cpu()).save_file(tmp_path / "m")
    sound = path.read_bytes()
    for at in range(len(sound)):
        for flip in (0x01, 0x20, 0xFF):
            damaged = bytearray(sound)
            damaged[at] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(RecordError, match="cannot be loaded"):
                ModuleRecord.load(path)


def test_every_truncation_and_any_tail_is_noticed(tmp_path: Path) -> None:
    path = LinearConfig(2, 2).init(Device.cpu()).save_file(tmp_path / "m")
    sound = path.read_bytes()
    for damaged in [*(sound[:length] for length in range(len(sound))), sound + b"\0", sound + sound]:
        path.write_bytes(damaged)
        with pytest.raises(RecordError, match="it is damaged"):
            ModuleRecord.load(path)


@pytest.mark.parametrize("name", ["burn_torch", "checksum", "keys"])
def test_damaged_metadata_does_not_pass_for_a_file_of_another_program(tmp_path: Path, name: str) -> None:
    path = bag(a=np.ones(2)).save_file(tmp_path / "m")
    path.write_bytes(path.read_bytes().replace(f'"{name}"'.encode(), f'"{name[:-1]}_"'.encode(), 1))
    with pytest.raises(RecordError, match="its checksum does not fit its content"):
        ModuleRecord.load(path)


def test_an_element_type_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    path = bag(a=np.ones(2, np.float32)).save_file(tmp_path / "m")
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"', 1))
    with pytest.raises(RecordError, match="its checksum does not fit its content"):
        ModuleRecord.load(path)


def sealed(path: Path, metadata: dict[str, str], header: dict[str, Any], data: bytes) -> Path:
    """A file of ours, whatever it says, under a right checksum."""
    described = {"__metadata__": {**metadata, "checksum": "0" * 64}, **header}
    text = json.dumps(described, separators=(",", ":")).encode()
    content = struct.pack("<Q", len(text)) + text + data
    summed = BlockSum()
    summed.update(content)
    path.write_bytes(content.replace(b"0" * 64, summed.hexdigest().encode(), 1))
    return path


@pytest.mark.parametrize(
    "keys", [None, "", "1", "[]", "{}", '{"items.a":1}', '{"items.a":{}}', '{"items.b":{}}',
             '{"items.a":{"alias":"items.b"}}', '{"items.a":{"alias":"items.a"}}',
             '{"items.a":{"dtype":"f64","shape":[2],"id":"zz","kind":"param"}}',
             '{"items.a":{"dtype":"f64","shape":[2],"id":"-1","kind":"param"}}',
             '{"items.a":{"dtype":"f64","shape":[2],"id":"10000000000000000","kind":"param"}}',
             '{"items.a":{"dtype":"f64","shape":[3],"id":null,"kind":"param"}}',
             '{"items.a":{"dtype":"f64","shape":[2],"id":null,"kind":"other"}}'],
)  # fmt: skip
def test_metadata_forged_with_a_right_checksum_is_refused(tmp_path: Path, keys: str | None) -> None:
    metadata = {"burn_torch": "2"} | ({} if keys is None else {"keys": keys})
    header = {"items.a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}
    with pytest.raises(RecordError, match="description of the keys"):
        ModuleRecord.load(sealed(tmp_path / "m.safetensors", metadata, header, bytes(16)))


@pytest.mark.parametrize("scalars", ["", "[]", '{"a":"b"}'])
def test_forged_scalars_are_refused(tmp_path: Path, scalars: str) -> None:
    metadata = {"burn_torch": "2", "keys": "{}", "scalars": scalars}
    with pytest.raises(RecordError, match=r"its scalars (cannot be read|are not numbers by name)"):
        ModuleRecord.load(sealed(tmp_path / "m.safetensors", metadata, {}, b""))


def test_a_newer_format_version_is_refused(tmp_path: Path) -> None:
    path = bag(a=np.ones(2)).save_file(tmp_path / "m")
    path.write_bytes(path.read_bytes().replace(b'"burn_torch":"2"', b'"burn_torch":"9"', 1))
    with pytest.raises(
        RecordError, match=r"it has format version 9, this burn_torch reads 1 and 2\n[\s\S]*mend:     update burn_torch"
    ):
        ModuleRecord.load(path)


# -- earlier versions -----------------------------------------------------------------------------------------
def test_version_1_still_loads() -> None:
    record = ModuleRecord.load(FIXTURES / "version-1.safetensors")
    assert {key: (entry.read().to_list(), entry.state, str(entry.id)) for key, entry in record.entries.items()} == {
        "gamma": ([1.0, 1.0, 1.0], False, "7068566d7c551524"),
        "beta": ([0.0, 0.0, 0.0], False, "0c7826cb5507869e"),
        "running_mean": ([0.0, 0.0, 0.0], True, "34d5b67ff03e9e48"),
        "running_var": ([1.0, 1.0, 1.0], True, "38e1058387badfb4"),
    }
    assert record.metadata == {"module": "BatchNorm"}


def test_every_damaged_byte_of_version_1_is_noticed(tmp_path: Path) -> None:
    sound = (FIXTURES / "version-1.safetensors").read_bytes()
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << at % 8
        (tmp_path / "m.safetensors").write_bytes(damaged)
        with pytest.raises(RecordError, match="cannot be loaded"):
            ModuleRecord.load(tmp_path / "m.safetensors")


# -- what other programs see ------------------------------------------------------------------------------------
def test_the_library_reads_what_we_write(tmp_path: Path, seed: np.random.Generator) -> None:
    safe_open = pytest.importorskip("safetensors").safe_open
    arrays: dict[str, Any] = {
        "a": seed.normal(size=(3, 2)),
        "b": seed.normal(size=5).astype(np.float16),
        "c": np.array(7),
    }
    path = bag(**arrays).save_file(tmp_path / "m")
    with safe_open(path, "np") as file:
        assert file.metadata()["format"] == "pt"
        assert set(file.keys()) == {"items.a", "items.b", "items.c"}
        for name, array in arrays.items():
            assert np.array_equal(file.get_tensor(f"items.{name}"), array)


def test_a_tied_parameter_lies_there_once_and_comes_back_under_both_names(tmp_path: Path) -> None:
    safe_open = pytest.importorskip("safetensors").safe_open
    shared = Param.from_data(np.arange(3.0), Device.cpu())
    path = Bag({"a": shared, "b": shared}).save_file(tmp_path / "m")
    with safe_open(path, "np") as file:
        assert list(file.keys()) == ["items.a"]
    record = ModuleRecord.load(path)
    assert record.entries["items.a"] is record.entries["items.b"]
    loaded = bag(a=np.zeros(3), b=np.zeros(3)).load_file(path)
    assert loaded.items["b"].val().into_data().to_vec() == [0.0, 1.0, 2.0]


def test_tied_tensors_of_the_library_come_under_both_names(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_model = pytest.importorskip("safetensors.torch").save_model
    tied = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
    tied["b"].weight = tied["a"].weight
    save_model(tied, str(tmp_path / "m.safetensors"))
    record = ModuleRecord.load(tmp_path / "m.safetensors")
    assert sorted(record) == ["a.weight", "b.weight"]
    assert record.entries["a.weight"] is record.entries["b.weight"]


def test_metadata_that_mimics_the_checksum_is_refused(tmp_path: Path) -> None:
    header_key = 'x","checksum":"'
    module = Bag({header_key + "0" * 64: Param.from_data(np.ones(1), Device.cpu())})
    record = ModuleRecord.load(module.save_file(tmp_path / "m"))  # JSON escapes what would end the text
    assert list(record) == [f"items.{header_key}" + "0" * 64]


# -- paths ---------------------------------------------------------------------------------------------------
def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"absent.safetensors: there is no such file"):
        ModuleRecord.load(tmp_path / "absent")
    (tmp_path / "d.safetensors").mkdir()
    with pytest.raises(RecordError, match=r"d.safetensors: it cannot be read: Is a directory"):
        ModuleRecord.load(tmp_path / "d.safetensors")
    with pytest.raises(RecordError, match=r"no record format has the ending .v1[\s\S]*expected: one of .*.safetensors"):
        ModuleRecord.load(tmp_path / "model.v1")


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    module = bag(a=np.ones(2))
    (tmp_path / "d.safetensors").mkdir()
    for path in (tmp_path / "absent/m", tmp_path / "d"):
        with pytest.raises(
            ArtifactError, match=r"the record cannot be written\n  given:    [\s\S]*\n  mend:     choose"
        ):
            module.save_file(path)
    assert [path.name for path in tmp_path.iterdir()] == ["d.safetensors"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bag(a=np.ones(2)).save_file(tmp_path / "m")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left on device"):
        bag(a=np.zeros(2)).save_file(path)
    assert path.read_bytes() == before
    assert [path_in_folder.name for path_in_folder in tmp_path.iterdir()] == ["m.safetensors"]


WRITER = """
    import sys
    import numpy as np
    from burn_torch import Device, Module
    from burn_torch.module import Param

    class Bag(Module):
        items: dict

    print("ready", flush=True)
    for value in range(10_000):
        Bag({"a": Param.from_data(np.full(50_000, value), Device.cpu())}).save_file(sys.argv[1])
        print(value, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    for lines in (1, 3, 6):  # so many lines are read, then the signal comes wherever the writer is
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(path)],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert writer.stdout is not None
        printed = [writer.stdout.readline().strip() for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        if path.exists():
            values = ModuleRecord.load(path).entries["items.a"].read().array
            assert len(set(values.tolist())) == 1
            assert lines == 1 or values[0] >= int(printed[-1])
