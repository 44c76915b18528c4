"""Tests what is known of a parameter before it is made: loading draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from burn_torch import Device, DType, DTypeError, Module, Param, ParamId, RecordError, Tensor
from burn_torch.core import ambient
from burn_torch.module.initializer import Initializer
from burn_torch.nn import Linear, LinearConfig, LinearLayout, LstmConfig
from burn_torch.record.stores import BurnpackStore, PyTorchToBurnAdapter, SafetensorsStore

CPU = Device.cpu()


class Net(Module):
    w: Param


def never(device: Device, require_grad: bool) -> Tensor:
    raise AssertionError("the parameter was made")


def lazy(make: Callable[[Device, bool], Tensor] = never, dtype: DType | None = None) -> Net:
    return Net(Param.uninitialized(ParamId.new(), make, CPU, True, (2, 3), dtype))


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("dtype", [None, DType.F32])
def test_no_door_makes_a_parameter_that_it_loads(tmp_path: Path, dtype: DType | None) -> None:
    saved = Net(Param.from_data(VALUES, CPU))
    save_file({"w": VALUES}, tmp_path / "theirs.safetensors")
    doors: list[Callable[[Net], Net]] = [
        lambda net: net.load_file(tmp_path / "theirs.safetensors"),
        lambda net: net.load_record(saved.into_record()),
        lambda net: net.load_from(SafetensorsStore.from_file(tmp_path / "theirs.safetensors"))[0],
        lambda net: net.load_from(
            SafetensorsStore.from_file(tmp_path / "theirs.safetensors").with_from_adapter(PyTorchToBurnAdapter())
        )[0],
    ]
    for ending in (".safetensors", ".bpk", ".mpk", ".json", ".bin"):
        path = saved.save_file(tmp_path / f"ours{ending}")
        doors.append(lambda net, path=path: net.load_file(path))
    doors.append(lambda net: net.load_from(BurnpackStore.from_file(tmp_path / "ours.bpk"))[0])
    for door in doors:
        np.testing.assert_array_equal(door(lazy(dtype=dtype)).w.val().into_data().array, VALUES)


@pytest.mark.parametrize("device", [CPU, CPU.autodiff(), CPU.fused(), Device.ndarray()], ids=str)
def test_layers_of_every_kind_are_loaded_without_being_drawn(tmp_path: Path, device: Device) -> None:
    class Both(Module):
        rows: Linear
        columns: Linear
        recurrent: Module

    def build() -> Both:
        return Both(
            LinearConfig(3, 5, initializer=Initializer.Orthogonal(gain=1.0), bias=False).init(device),
            LinearConfig(3, 5, layout=LinearLayout.Col).init(device),
            LstmConfig(3, 4, bias=True).init(device),
        )

    path = build().save_file(tmp_path / "m")
    fresh = build()
    for loaded in (fresh.load_file(path), fresh.load_from(SafetensorsStore.from_file(path))[0]):
        assert not any(param.is_initialized() for _, param in fresh.named_params())
        assert all(param.is_initialized() for _, param in loaded.named_params())


def test_specs_of_parameters_to_come() -> None:
    weight = LinearConfig(3, 5, layout=LinearLayout.Col).init(CPU.autodiff()).weight
    cast = weight.init_mapper(lambda value: value.cast(DType.BF16))
    moved = weight.fork(Device.ndarray())
    assert [(p.spec().shape, p.spec().dtype) for p in (weight, cast, moved)] == [
        ((3, 5), DType.F32), ((3, 5), DType.BF16), ((3, 5), DType.F32),
    ]  # fmt: skip
    assert [p.record_spec().shape for p in (weight, cast, moved)] == [(5, 3)] * 3
    assert not any(p.is_initialized() for p in (weight, cast, moved))
    state = ambient.next_key()
    weight.spec()
    assert ambient.next_key()[0] == state[0]
    specs = {p.record_spec() for p in (weight,)}
    weight.val()
    assert {weight.record_spec()} == specs


def test_a_type_that_is_not_declared_follows_the_initializer_where_the_record_has_another_one() -> None:
    half = lazy(lambda device, grad: Tensor.zeros((2, 3), (device, DType.F16)))
    record = Net(Param.from_data(VALUES.astype(np.float16), CPU)).into_record()
    assert half.load_record(record).w.val().dtype is DType.F16
    with pytest.raises(RecordError, match="w has type f16, the module wants f32"):
        lazy(lambda device, grad: Tensor.zeros((2, 3), device)).load_record(record)
    with pytest.raises(RecordError, match="w has type f16, the module wants f32"):
        lazy(dtype=DType.F32).load_record(record)


def test_an_initializer_that_reads_values_makes_the_parameter_once() -> None:
    calls: list[int] = []

    def make(device: Device, require_grad: bool) -> Tensor:
        calls.append(1)
        drawn = np.asarray(Tensor.ones((2, 3), device).into_data().array)  # a trace has no numbers
        return Tensor.from_data(drawn.astype(np.float16), device)

    net = lazy(make)
    assert net.w.spec().dtype is net.w.spec().dtype is DType.F16
    assert len(calls) == 2  # tried in a trace, then made and kept
    assert net.w.is_initialized()


def test_an_initializer_of_another_type_than_declared_is_refused() -> None:
    net = lazy(lambda device, grad: Tensor.zeros((2, 3), (device, DType.F16)), DType.F32)
    with pytest.raises(
        DTypeError, match=r"another shape or type.*\n  given:    \(2, 3\) f16\n  expected: \(2, 3\) f32\n"
    ):
        net.w.val()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool", "uint16"])
def test_large_arrays_are_copied_with_their_bits(dtype: str, turned: bool) -> None:
    source = np.random.default_rng(2).integers(0, 2, (1100, 1024)).astype(dtype)
    source.flags.writeable = False  # as the memory of a mapped file is
    array = source.T if turned else source
    for device in (CPU, CPU.fused()):
        tensor = Tensor.from_data(array, device)
        np.testing.assert_array_equal(tensor.into_data().array, array)
    doubled = (tensor + tensor).into_data().array if dtype.startswith("float") else array
    np.testing.assert_array_equal(doubled, array + array if dtype.startswith("float") else array)
    strided = np.random.default_rng(3).random((3, 700, 512), np.float32)[:, ::2, ::-1]
    np.testing.assert_array_equal(Tensor.from_data(strided, CPU).into_data().array, strided)
