"""Loaded tensors that lie in the pages of the file: nobody sees what another writes, and the file never changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Param
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord
from burn_torch.module.record import RecordEntry, TensorValues
from burn_torch.nn import Linear
from burn_torch.record.source import ALIGNMENT, MIN_LENT, Source
from burn_torch.record.stores import PyTorchToBurnAdapter, SafetensorsStore

CPU = Device.cpu()
posix = pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be replaced here, so nothing is lent")


class Net(Module):
    big: Param
    small: Param


def net(seed: int, dtype: DType = DType.F32, device: Device = CPU) -> Net:
    values = np.random.default_rng(seed).normal(size=(600, 1024))
    return Net(
        Param.from_data(TensorData.of(values, dtype), device), Param.from_data(TensorData.of([1.0, 2.0], dtype), device)
    )


def lies_in_a_file(tensor: torch.Tensor) -> bool:
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return any(
        int(where[0].split("-")[0], 16) <= tensor.data_ptr() < int(where[0].split("-")[1], 16) and len(where) > 5
        and where[5].startswith("/") for where in maps
    )  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc to see where memory is from")
@pytest.mark.parametrize("ending", [".safetensors", ".bpk"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
def test_large_tensors_lie_in_the_file_and_small_ones_do_not(tmp_path: Path, ending: str, dtype: DType) -> None:
    model = net(1, dtype)
    loaded = net(2, dtype).load_file(model.save_file(tmp_path / f"m{ending}"))
    assert loaded.big.val().into_data() == model.big.val().into_data()
    assert loaded.big.val().dtype is dtype
    assert lies_in_a_file(loaded.big.val().into_torch())
    assert loaded.big.val().into_torch().data_ptr() % ALIGNMENT == 0
    assert not lies_in_a_file(loaded.small.val().into_torch())


@posix
@pytest.mark.parametrize("ending", [".safetensors", ".bpk", ".mpk"])
def test_writing_to_a_loaded_tensor_changes_neither_file_nor_record_nor_another_model(
    tmp_path: Path, ending: str
) -> None:
    path = net(1).save_file(tmp_path / f"m{ending}")
    before = path.read_bytes()
    record = ModuleRecord.load(path)
    seen = record.entries["big"].read()
    first, second = net(2).load_record(record), net(2).load_record(record)
    first.big.val().into_torch().fill_(7.0)
    wanted = net(1).big.val().into_data()
    assert np.array_equal(second.big.val().into_data().array, wanted.array)
    assert np.array_equal(seen.array, wanted.array)
    assert np.array_equal(record.entries["big"].read().array, wanted.array)
    assert path.read_bytes() == before
    assert np.all(first.big.val().into_data().array == 7.0)


@posix
def test_a_loaded_model_outlives_its_file_and_may_be_saved_over_it(tmp_path: Path) -> None:
    path = net(1).save_file(tmp_path / "m.safetensors")
    loaded = net(2).load_file(path)
    net(3).save_file(path)
    assert loaded.save_file(path) == path
    path.unlink()
    assert np.array_equal(loaded.big.val().into_data().array, net(1).big.val().into_data().array)


def test_other_element_types_and_numpy_devices_copy(tmp_path: Path) -> None:
    path = net(1).save_file(tmp_path / "m.safetensors")
    wide = net(2, DType.F64).load_record(ModuleRecord.load(path).cast_to_module_dtype())
    assert np.array_equal(wide.big.val().into_data().array, net(1).big.val().into_data().array.astype(np.float64))
    elsewhere = net(2, device=Device.ndarray()).load_file(path)
    assert elsewhere.big.val().into_data() == net(1).big.val().into_data()


def test_what_is_lent_is_lent_once_aligned_and_writable(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(4 * MIN_LENT))
    source = Source.open(path)
    if os.name == "posix":
        lent = source.lend(64, 64 + MIN_LENT, DType.U8, (MIN_LENT,))
        assert lent is not None
        lent.mut_view()[:] = 1
        assert source.lend(64, 64 + MIN_LENT, DType.U8, (MIN_LENT,)) is None
        assert not source.tensor(64, 64 + MIN_LENT, DType.U8, (MIN_LENT,)).array.any()
    assert source.lend(8, 8 + MIN_LENT, DType.U8, (MIN_LENT,)) is None
    assert source.lend(0, 1024, DType.U8, (1024,)) is None
    assert Source("memory", bytes(MIN_LENT)).lend(0, MIN_LENT, DType.U8, (MIN_LENT,)) is None


def test_a_flip_in_a_large_tensor_is_noticed_before_anything_is_lent(tmp_path: Path) -> None:
    path = net(1).save_file(tmp_path / "m.safetensors")
    data = bytearray(path.read_bytes())
    for at in (len(data) // 2, len(data) - 1, 3 << 20 >> 1):
        data[at] ^= 16
        path.write_bytes(data)
        with pytest.raises(RecordError, match="its checksum does not fit its content"):
            net(2).load_file(path)
        data[at] ^= 16


def test_files_are_laid_out_so_that_large_tensors_stay_aligned(tmp_path: Path) -> None:
    entries: dict[str, Any] = {}
    for i, (dtype, size) in enumerate([(DType.F64, 3), (DType.F32, 5), (DType.F32, 1 << 18), (DType.F16, 1 << 19)]):
        data = TensorData.of(np.arange(size) % 2048, dtype)
        entries[f"w{i}"] = RecordEntry(dtype, data.shape, None, lambda data=data: data)  # type: ignore[misc]
    path = ModuleRecord(entries).save(tmp_path / "m.safetensors")
    back = ModuleRecord.load(path)
    assert list(back) == list(entries)
    if os.name == "posix":
        assert [getattr(entry.read, "lend")() is not None for entry in back.entries.values()] == [  # noqa: B009
            False, False, True, True,
        ]  # fmt: skip


def test_a_peek_at_a_tensor_is_no_copy_and_cannot_be_written_to() -> None:
    tensor = net(1).big.val()
    look, copy = TensorValues(tensor).peek(), TensorValues(tensor)()
    assert look == copy
    assert np.shares_memory(look.array, tensor.into_torch().numpy())
    assert not np.shares_memory(copy.array, look.array)
    assert not look.array.flags.writeable
    half = net(1, DType.BF16).big.val()
    assert TensorValues(half).peek() == half.into_data()


WIDER = [
    (torch.float16, DType.F32), (torch.bfloat16, DType.F32), (torch.float16, DType.F64), (torch.bfloat16, DType.F64),
    (torch.float32, DType.F64), (torch.float32, DType.F32), (torch.float64, DType.F32), (torch.float32, DType.F16),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "wanted"), WIDER)
def test_matrices_of_other_layouts_and_types_are_those_of_the_file(
    tmp_path: Path, stored: torch.dtype, wanted: DType
) -> None:
    """As they lie and turned; beyond a MiB, where torch converts and copies instead of numpy."""
    from safetensors.torch import save_file

    weight = torch.from_numpy(np.random.default_rng(5).normal(size=(1030, 700))).to(stored)
    weight[0, :6] = torch.tensor([np.nan, np.inf, -np.inf, -0.0, 6e-8, 65504.0], dtype=torch.float64).to(stored)
    for turned in (False, True):
        save_file({"weight": weight if turned else weight.t().contiguous()}, tmp_path / "m.safetensors")
        store = SafetensorsStore.from_file(tmp_path / "m.safetensors")
        store = store.with_from_adapter(PyTorchToBurnAdapter()) if turned else store
        param = Param.from_data(TensorData.zeros((700, 1030), wanted), CPU)
        layer, _ = Linear(param, None).load_from(store)
        loaded = layer.weight.val().into_torch()
        expected = weight.t().to(loaded.dtype)
        assert loaded.is_contiguous()
        assert torch.equal(loaded.isnan(), expected.isnan())
        bits = torch.int64 if loaded.itemsize == 8 else torch.int32 if loaded.itemsize == 4 else torch.int16
        kept = ~expected.isnan()
        assert torch.equal(loaded[kept].view(bits), expected[kept].view(bits))
