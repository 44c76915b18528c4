"""Values on their way to devices, numpy, torch, pickles and the host."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import DType, TensorData
from burn_torch.core.errors import ArgumentError, AutodiffError, DeviceError, DTypeError, ShapeError
from burn_torch.tensor import Device, Tensor, Transaction
from tests.tensor.leaves import LEAVES, numbers, same, tensors

DTYPES = [DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.I16, DType.I8, DType.U64,
          DType.U32, DType.U16, DType.U8, DType.BOOL]  # fmt: skip


def supported(device: Device) -> list[DType]:
    return [dtype for dtype in DTYPES if device.supports_dtype(dtype)]


@pytest.mark.parametrize("leaf", LEAVES)
def test_data_of_every_type_come_back_as_they_were(leaf: str) -> None:
    device = LEAVES[leaf]()
    for dtype in supported(device):
        data = TensorData.of([[0, 1, 2], [3, 100, 1]], dtype)
        x = Tensor.from_data(data, device)
        assert x.dtype is dtype
        x.into_data().assert_eq(data)
        assert x.tolist() == data.to_list()
        assert x.into_data() is not x.into_data()


def test_numpy_shares_memory_on_the_host_and_cannot_write_to_it() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    array = np.asarray(Tensor.from_torch(tensor))
    tensor[0, 0] = 9.0
    assert array[0, 0] == 9.0
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1.0
    x = Tensor.from_data([1.0, 2.0], Device.ndarray())
    view = np.asarray(x)
    assert view.base is not None
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0
    assert x.tolist() == [1.0, 2.0]
    assert np.array(x, np.float64).dtype == np.float64
    written = np.array(x, copy=True)
    written[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    assert (x + 1.0).tolist() == [2.0, 3.0]  # its own memory was not made read-only for nothing


def test_numpy_gets_bfloat16_as_float32_by_a_copy() -> None:
    x = Tensor.from_data([1.5, -2.0], Device.cpu(), DType.BF16)
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x).tolist() == [1.5, -2.0]
    with pytest.raises(ArgumentError, match=r"(?s)numpy cannot share this memory.*bf16.*np.asarray"):
        np.array(x, copy=False)


def test_a_tracked_tensor_is_read_without_its_tape() -> None:
    x = Tensor.from_data([1.0, 2.0], Device.cpu().autodiff().autodiff()).require_grad()
    y = x * 3.0
    assert np.asarray(y).tolist() == [3.0, 6.0]
    assert y.into_torch().tolist() == [3.0, 6.0]
    assert not y.into_torch().requires_grad


@pytest.mark.parametrize("leaf", LEAVES)
def test_torch_both_ways(leaf: str) -> None:
    x = tensors(LEAVES[leaf]())["x"]
    tensor = x.into_torch()
    np.testing.assert_array_equal(tensor.numpy(), numbers()["x"])
    tensor = torch.ones(3)
    y = Tensor.from_torch(tensor)
    if leaf == "torch":
        assert y.into_torch().data_ptr() == tensor.data_ptr()
    else:
        copied = Tensor.from_data([1.0], Device.ndarray())
        copied.into_torch()[0] = 7.0
        assert copied.tolist() == [1.0]


def test_a_write_to_shared_memory_makes_backward_raise() -> None:
    x = Tensor.from_data([1.0, 2.0], Device.cpu().autodiff()).require_grad()
    y = x * x
    x.into_torch()[0] = 5.0
    with pytest.raises(AutodiffError, match=r"(?s)written to after it was used.*clone"):
        y.backward()


def test_from_torch_checks_the_device() -> None:
    with pytest.raises(DeviceError, match=r"(?s)from_torch: the tensor does not lie on this dev.*NdArray.*to_device"):
        Tensor.from_torch(torch.ones(2), Device.ndarray())
    with pytest.raises(DTypeError, match=r"(?s)this element type is not supported.*complex64"):
        Tensor.from_torch(torch.ones(2, dtype=torch.complex64))


def test_dlpack_both_ways() -> None:
    array = np.arange(6.0).reshape(2, 3)
    x = Tensor.from_dlpack(array)
    same(x, array)
    array[0, 0] = 8.0
    assert x[0, 0].item() == 8.0
    np.testing.assert_array_equal(np.from_dlpack(x), array)
    assert torch.from_dlpack(x).data_ptr() == x.into_torch().data_ptr()
    y = Tensor.from_dlpack(array, Device.ndarray())
    assert y.device is Device.ndarray()
    np.testing.assert_array_equal(torch.from_dlpack(y).numpy(), array)


# -- devices ---------------------------------------------------------------------------------------------
def test_to_another_stack() -> None:
    cpu, nd = Device.cpu(), Device.ndarray()
    x = Tensor.from_data([[1.0, 2.0]], cpu)
    assert x.to_device(cpu) is x
    assert x.to_device(nd).device is nd
    assert x.to_device(nd).to_device(cpu).tolist() == [[1.0, 2.0]]
    tracked = x.to_device(cpu.autodiff())
    assert tracked.device is cpu.autodiff()
    leaf = tracked.require_grad()
    assert leaf.to_device(cpu.autodiff()) is leaf
    assert not (leaf * 2.0).to_device(nd.autodiff()).is_require_grad()
    assert (leaf * 2.0).to_device(cpu).tolist() == [[2.0, 4.0]]
    assert leaf.to_device(cpu.autodiff("balanced")).device is cpu.autodiff("balanced")


@pytest.mark.gpu
def test_gradients_flow_from_device_to_device() -> None:
    x = Tensor.from_data([1.0, 2.0], Device.cpu().autodiff()).require_grad()
    y = (x.to_device(Device.cuda(0).autodiff()) * 3.0).to_device(Device.cpu().autodiff())
    gradient = x.grad((y * y).backward())
    assert gradient is not None
    assert gradient.place == "cpu"
    assert gradient.tolist() == [18.0, 36.0]


def test_bfloat16_is_refused_by_numpy_by_name() -> None:
    x = Tensor.from_data([1.0], Device.cpu(), DType.BF16)
    with pytest.raises(DTypeError, match=r"(?s)numpy has no bfloat16"):
        x.to_device(Device.ndarray())


# -- pickles, copies, the host ------------------------------------------------------------------------------------
def test_pickles_carry_data_device_and_whether_gradients_are_asked() -> None:
    for device in (Device.cpu(), Device.ndarray(), Device.cpu().autodiff("balanced")):
        for dtype in supported(device):
            x = Tensor.from_data([[1, 0, 1]], device, dtype)
            y = pickle.loads(pickle.dumps(x))
            assert (y.device, y.dtype) == (device, dtype)
            y.into_data().assert_eq(x.into_data())
    leaf = Tensor.ones((2,), Device.cpu().autodiff()).require_grad()
    again = pickle.loads(pickle.dumps(leaf))
    assert again.is_require_grad()
    assert again.grad((again * 2.0).backward()).tolist() == [2.0, 2.0]
    assert not pickle.loads(pickle.dumps(leaf * 2.0)).is_require_grad()


def test_copies_are_the_tensor_itself() -> None:
    x = Tensor.ones((2,), Device.cpu())
    assert copy.copy(x) is x
    assert copy.deepcopy({"x": [x]})["x"][0] is x


@pytest.mark.parametrize("leaf", LEAVES)
def test_one_element_is_a_number(leaf: str) -> None:
    device = LEAVES[leaf]()
    x = Tensor.from_data([[2.5]], device)
    assert (x.item(), float(x), int(x), bool(x)) == (2.5, 2.5, 2, True)
    assert x.try_into_scalar() == 2.5
    i = Tensor.from_data(3, device)
    assert ["a", "b", "c", "d"][i] == "d"
    assert list(range(i)) == [0, 1, 2]
    assert isinstance(i.item(), int)
    assert Tensor.from_data(True, device).item() is True
    if device.supports_dtype(DType.BF16):
        assert Tensor.from_data(1.5, device, DType.BF16).item() == 1.5
    with pytest.raises(ShapeError, match=r"(?s)into_scalar: only a tensor of one element.*\(2,\) f32.*mean"):
        Tensor.ones((2,), device).into_scalar()
    with pytest.raises(ShapeError, match=r"(?s)__bool__: only a tensor of one element"):
        bool(Tensor.ones((2,), device))
    with pytest.raises(DTypeError, match=r"(?s)only whole numbers are an index.*f32"):
        [1, 2][Tensor.from_data(1.0, device)]


def test_data_methods_have_all_names() -> None:
    i = Tensor.from_ints([[1, 2]], Device.cpu())
    data = i.into_data()
    for name in ("to_data", "try_into_data", "try_to_data"):
        assert getattr(i, name)() == data
    halves = data.convert(DType.F16)
    converting = "to_data_as try_to_data_as try_to_data_dtype into_data_as try_into_data_as into_data_dtype"
    for name in [*converting.split(), "try_into_data_dtype"]:
        assert getattr(i, name)(DType.F16) == halves
    assert i.try_to_vec_as("bool") == i.try_into_vec_as(DType.BOOL) == [True, True]

    async def read() -> list[Any]:
        return [await i.into_data_async(), await i.to_data_async(), await i.sum().try_into_scalar_async()]

    assert asyncio.run(read()) == [data, data, 3]


def test_a_transaction_reads_in_the_order_of_registration() -> None:
    a, b = Tensor.from_ints([1], Device.cpu()), Tensor.from_data([2.5], Device.ndarray())
    both = Transaction().register(a).register(b)
    assert both.execute() == [a.into_data(), b.into_data()]
    assert asyncio.run(both.execute_async()) == both.try_execute()


@pytest.mark.gpu
def test_a_transaction_reads_a_gpu() -> None:
    a = Tensor.from_data([1.0, 2.0], Device.cuda(0))
    half = Tensor.from_data([3.0], Device.cuda(0), DType.BF16)
    assert Transaction().register(a * 2.0).register(half).execute() == [
        TensorData.of([2.0, 4.0]),
        TensorData.of([3.0], DType.BF16),
    ]


@pytest.mark.parametrize("leaf", LEAVES)
def test_both_64_bit_types_of_numpy_are_taken(leaf: str) -> None:
    # numpy.longlong equals int64 and is another type to torch; numpy makes unsigned ones of large Python numbers
    device = LEAVES[leaf]()
    assert Tensor.from_data([2**63], device).tolist() == [2**63]
    x = Tensor.from_data(np.array([[3, -4]], np.longlong), device)
    assert (x.dtype, x.tolist()) == (DType.I64, [[3, -4]])


@pytest.mark.parametrize("strategies", [("balanced", "none"), ("none", "balanced"), ("balanced", "balanced")], ids=str)
def test_pickled_device_keeps_the_checkpointing_of_each_tape(strategies: tuple[str, str]) -> None:
    device = Device.cpu().autodiff(strategies[0]).autodiff(strategies[1])
    assert pickle.loads(pickle.dumps(device)) is device


def test_pickled_gradients_are_refused_since_their_numbers_are_of_one_process() -> None:
    x = Tensor.from_data([1.0, 2.0], Device.cpu(fused=False).autodiff()).require_grad()
    gradients = (x * x).sum().backward()
    message = (
        r"(?s)cannot leave the process.*given: .*1 tensors on Lib.*GradientsParams, which.*send x.grad\(gradients\)"
    )
    with pytest.raises(AutodiffError, match=message):
        pickle.dumps(gradients)
    assert pickle.loads(pickle.dumps(x.grad(gradients))).tolist() == [2.0, 4.0]
