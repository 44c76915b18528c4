"""`burn-torch convert`: between all formats, with other names and types, whole or not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import FORMATS, RecordEntry
from burn_torch.record.conversion import changed, read_any, write_any


def record() -> ModuleRecord:
    def entry(values, dtype, state=False):
        data = TensorData.of(values, dtype)
        return RecordEntry(dtype, data.shape, ParamId(7), lambda: data, state)

    shared = entry(np.arange(6).reshape(2, 3) / 3, DType.F32)
    entries = {"enc.a": shared, "enc.b": shared, "mean": entry([0.5], DType.F64, True), "n": entry([3], DType.I64)}
    return ModuleRecord(entries, {"module": "Net"}, scalars={"steps": 3})


def same(left, right):
    assert list(left) == list(right)
    assert dict(left.metadata) == dict(right.metadata)
    assert dict(left.scalars) == dict(right.scalars)
    for key in left:
        a, b = left.entries[key], right.entries[key]
        assert (a.dtype, a.shape, a.id, a.state) == (b.dtype, b.shape, b.id, b.state)
        assert a.read() == b.read()
    assert left.entries["enc.a"] is left.entries["enc.b"]
    assert right.entries["enc.a"] is right.entries["enc.b"]


@pytest.mark.parametrize("before", sorted(FORMATS))
@pytest.mark.parametrize("after", sorted(FORMATS))
def test_every_format_becomes_every_other(tmp_path, before, after):
    source = record().save(tmp_path / f"in{before}")
    write_any(read_any(source), tmp_path / f"out{after}")
    same(read_any(tmp_path / f"out{after}"), record())


def test_names_choice_and_types():
    converted = changed(record(), remap=[(r"^enc\.", "encoder."), ("b$", "c")], only=["^enc", "^n$"], dtype=DType.F16)
    assert {key: entry.dtype for key, entry in converted.entries.items()} == {
        "encoder.a": DType.F16, "encoder.c": DType.F16, "n": DType.I64,
    }  # fmt: skip
    assert converted.entries["encoder.a"] is converted.entries["encoder.c"]
    assert np.array_equal(
        converted.entries["encoder.a"].read().array, record().entries["enc.a"].read().array.astype(np.float16)
    )
    with pytest.raises(RecordError, match=r"enc.a and enc.b both become enc.x[\s\S]*mend:     make the pattern say"):
        changed(record(), remap=[(r"\.[ab]$", ".x")])
    with pytest.raises(RecordError, match=r"no value of the file is chosen\n  given:    head, of keys such as enc.a"):
        changed(record(), only=["head"])


def test_values_that_the_type_does_not_hold_are_refused(tmp_path):
    data = TensorData.of([1e30])
    big = ModuleRecord({"w": RecordEntry(data.dtype, data.shape, None, lambda: data)})
    with pytest.raises(RecordError, match=r"w with 1.*e\+30, which f16 does not hold"):
        write_any(changed(big, dtype=DType.F16), tmp_path / "m.bpk")
    assert list(tmp_path.iterdir()) == []
    write_any(changed(big, dtype=DType.BF16), tmp_path / "m.bpk")


def test_the_command(burn, tmp_path):
    torch.save({"model": {"fc.weight": torch.ones(3, 2)}, "epoch": 1}, tmp_path / "m.pt")
    done = burn("convert", "m.pt", "m.bpk", "--remap", r"^model\.=", "--half", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out == "wrote m.bpk: 1 tensor, 12 bytes of values\n"
    assert ModuleRecord.load(tmp_path / "m.bpk").entries["fc.weight"].dtype is DType.F16
    again = burn("convert", "m.bpk", "m.bpk", "--dtype", "f64", "--overwrite", cwd=tmp_path)
    assert again.code == 0
    assert ModuleRecord.load(tmp_path / "m.bpk").entries["fc.weight"].read().to_list() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["m.bpk", "there.bpk"], 2, "error: the output file exists already"),
        (["m.bpk", "out.pt"], 5, "mend:     write out.safetensors: safetensors.torch.load_file gives it to PyTorch"),
        (["m.bpk", "out.xyz"], 5, "error: no record format has the ending .xyz"),
        (["m.bpk", "out.bpk", "--remap", "a"], 2, "error: --remap needs a pattern and its replacement"),
        (["m.bpk", "out.bpk", "--remap", "(=a"], 1, "("),
        (["m.bpk", "out.bpk", "--dtype", "f7"], 2, "there is no dtype 'f7'"),
        (["none.bpk", "out.bpk"], 5, "there is no such file"),
        (["m.bpk", "nowhere/out.bpk"], 2, "error: the record cannot be written"),
    ],
)
def test_mistakes_are_reported_and_leave_nothing(burn, tmp_path, words, code, complaint):
    record().save(tmp_path / "m.bpk")
    (tmp_path / "there.bpk").write_bytes(b"mine")
    done = burn("convert", *words, cwd=tmp_path)
    assert done.code == code
    assert complaint in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.bpk", "there.bpk"]
    assert (tmp_path / "there.bpk").read_bytes() == b"mine"


def test_pytorchs_words_for_the_model_of_a_run_and_back(burn, tmp_path, trained):
    to = burn("convert", trained / "model.safetensors", "theirs.safetensors", "--to-pytorch", trained, cwd=tmp_path)
    assert (to.code, to.err) == (0, "")
    theirs = load_file(tmp_path / "theirs.safetensors")
    ours = ModuleRecord.load(trained / "model.safetensors")
    assert np.array_equal(theirs["linear1.weight"].numpy(), ours.entries["linear1.weight"].read().array.T)
    assert "norm1.weight" in theirs
    back = burn("convert", "theirs.safetensors", "ours.bpk", "--from-pytorch", trained, cwd=tmp_path)
    assert (back.code, back.err) == (0, "")
    again = ModuleRecord.load(tmp_path / "ours.bpk")
    assert list(again) == list(ours)
    assert all(again.entries[key].read() == ours.entries[key].read() for key in ours)


def test_weights_beside_an_onnx_file_are_read_as_often_as_is_asked_for(tmp_path):
    """The bytes of an external file were counted again at each reading, so that the third reading was refused."""
    pytest.importorskip("onnx")
    from burn_torch.cli.onnx_file import record_of_onnx
    from tests.record.hostile.onnx_corpus import external

    (tmp_path / "w.data").write_bytes(bytes(range(16)))
    (tmp_path / "m.onnx").write_bytes(external("w.data"))
    (entry,) = record_of_onnx(tmp_path / "m.onnx").entries.values()
    assert len({entry.read().array.tobytes() for _ in range(4)}) == 1


def test_the_weights_of_an_onnx_file(burn, tmp_path):
    pytest.importorskip("onnx")
    from onnx import numpy_helper

    from tests.onnx.small_models import mlp

    model = mlp()[0]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = burn("convert", "m.onnx", "m.safetensors", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    tensors = load_file(tmp_path / "m.safetensors")
    assert {proto.name for proto in model.graph.initializer} == set(tensors)
    for proto in model.graph.initializer:
        assert np.array_equal(tensors[proto.name].numpy(), numpy_helper.to_array(proto))
