"""`burn-torch inspect`: what files hold, in words and as JSON; nothing of a file runs."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Param
from burn_torch.core.data import TensorData
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry


class Net(Module):
    weight: Param
    bias: Param


@pytest.fixture
def file(tmp_path):
    net = Net(Param.from_data(np.ones((3, 2), np.float32), Device.cpu()), Param.from_data([1.0, 2.0], Device.cpu()))
    return net.save_file(tmp_path / "net.bpk")


def test_a_record_in_words(burn, file):
    done = burn("inspect", file, cwd=file.parent)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{file}: burnpack, version 1, {file.stat().st_size:,} bytes, checksum fits",
        "metadata",
        "  module  Net",
        "tensors",
        "  weight  f32  (3, 2)  24",
        "  bias    f32  (2,)     8",
        "2 tensors, 8 values, 32 bytes (f32 x 2)",
    ]


def test_a_record_as_json(burn, file):
    done = burn("inspect", file, "--json", "--check", cwd=file.parent)
    listing = json.loads(done.out)
    assert listing["format"] == "burnpack"
    assert listing["checksum"] == "fits"
    assert listing["tensors"][0] == {
        "name": "weight", "dtype": "f32", "shape": [3, 2], "bytes": 24, "same_as": None, "about": "",
    }  # fmt: skip
    assert listing["totals"] == {"tensors": 2, "elements": 8, "bytes": 32, "dtypes": {"f32": 2}}


class Evil:
    def __reduce__(self):
        return os.system, ("echo ran > ran",)


def test_a_hostile_pickle_is_shown_and_does_not_run(burn, tmp_path):
    torch.save({"w": torch.ones(2, 3), "e": Evil()}, tmp_path / "m.pt")
    done = burn("inspect", "m.pt", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "asks for, beyond tensors\n  posix.system\n" in done.out
    assert "  w  f32  (2, 3)  24  storage 0" in done.out
    assert "note: PytorchStore refuses this file" in done.out
    assert not (tmp_path / "ran").exists()


def test_what_a_file_says_cannot_move_the_cursor(burn, tmp_path):
    data = TensorData.of([1.0])
    entries = {"a\x1b[2Jb": RecordEntry(data.dtype, data.shape, None, lambda: data)}
    path = ModuleRecord(entries, {"note": "x" * 1000}).save(tmp_path / "m.safetensors")
    done = burn("inspect", path, cwd=tmp_path)
    assert "\x1b" not in done.out
    assert "a\\x1b[2Jb" in done.out
    assert "... (1,000 characters)" in done.out


def test_a_damaged_file_has_the_exit_code_of_records(burn, file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = burn("inspect", file, cwd=file.parent)
    assert done.code == 5
    assert "error: the record cannot be loaded" in done.err
    assert "its checksum does not fit its content" in done.err


def test_a_run_and_its_checkpoints(burn, trained):
    done = burn("inspect", trained, cwd=trained.parent)
    assert (done.code, done.err) == (0, "")
    assert f"{trained}: directory of a run, " in done.out
    assert "config.recipe" in done.out
    assert "result.status" in done.out
    assert "checkpoint.epoch-1" in done.out
    assert "linear1.weight" in done.out
    checkpoint = next((trained / "checkpoint").glob("*.safetensors"))
    shown = burn("inspect", checkpoint, cwd=checkpoint.parent).out
    assert "checkpoint in safetensors, layout 2 of burn_torch" in shown
    assert "optimizer" in shown
    assert "model.conv1.weight" in shown


def test_a_directory_without_a_run(burn, tmp_path):
    done = burn("inspect", tmp_path, cwd=tmp_path)
    assert done.code == 2
    assert "error: this directory holds no run" in done.err


def test_an_onnx_file(burn, tmp_path):
    pytest.importorskip("onnx")
    from tests.onnx.small_models import mlp

    (tmp_path / "m.onnx").write_bytes(mlp()[0].SerializeToString())
    done = burn("inspect", "m.onnx", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "m.onnx: ONNX, IR " in done.out
    assert "Gemm x 1" in done.out
    assert "w1  f32  (16, 8)  512" in done.out
    (tmp_path / "m.onnx").write_bytes(b"nothing of the kind")
    bad = burn("inspect", "m.onnx", cwd=tmp_path)
    assert bad.code == 3
    assert "error: this is not an ONNX model, or it is damaged" in bad.err
