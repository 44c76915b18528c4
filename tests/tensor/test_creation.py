"""Constructors, their options, and random tensors."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from burn_torch import DType
from burn_torch.core import ambient
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.tensor import Device, Distribution, Tensor, TensorCreationOptions
from tests.tensor.leaves import LEAVES, same

leaves = pytest.mark.parametrize("device", [make() for make in LEAVES.values()], ids=list(LEAVES))


@leaves
def test_constants_equal_torch(device: Device) -> None:
    same(Tensor.zeros((2, 3), device), torch.zeros(2, 3))
    same(Tensor.ones([2, 0], device), torch.ones(2, 0))
    same(Tensor.empty(3, device), torch.zeros(3))
    same(Tensor.full((), 2.5, device), torch.tensor(2.5))
    same(Tensor.full((2,), 3, device), torch.tensor([3, 3]))
    same(Tensor.full((2,), True, device), torch.tensor([True, True]))
    same(Tensor.full((2,), np.float64(0.5), device), torch.tensor([0.5, 0.5]))
    same(Tensor.eye(3, device), torch.eye(3))
    same(Tensor.arange(5, device), torch.arange(5))
    same(Tensor.arange(range(7, -2, -3), device), torch.tensor([7, 4, 1]))
    same(Tensor.arange_step(range(2, 11), 4, device), torch.tensor([2, 6, 10]))
    same(Tensor.arange(3, (device, "f64")), torch.arange(3.0, dtype=torch.float64))
    same(Tensor.cartesian_grid((2, 3), device), torch.cartesian_prod(torch.arange(2), torch.arange(3)).reshape(2, 3, 2))


@leaves
@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_masks_are_true_outside(device: Device, offset: int) -> None:
    ones = torch.ones(2, 3, 4)
    same(Tensor.triu_mask((2, 3, 4), offset, device), ones.triu(offset) == 0)
    same(Tensor.tril_mask((2, 3, 4), offset, device), ones.tril(offset) == 0)
    same(Tensor.diag_mask((3, 4), offset, device), ones[0].triu(offset).tril(offset) == 0)


@leaves
def test_data_keep_or_take_their_type(device: Device) -> None:
    assert Tensor.from_data([[1.0, 2.0]], device).dtype is DType.F32
    assert Tensor.from_data([1, 2], device).dtype is DType.I64
    assert Tensor.from_data([True], device).dtype is DType.BOOL
    assert Tensor.from_data(np.ones(2, np.int16), device).dtype is DType.I16
    same(Tensor.from_data([1, 2], device, DType.F64), torch.tensor([1.0, 2.0], dtype=torch.float64))
    same(Tensor.from_data([1.0, -1.0], (device, DType.I32)), torch.tensor([1, -1], dtype=torch.int32))
    same(Tensor.from_floats([[1, 2]], device), torch.tensor([[1.0, 2.0]]))
    same(Tensor.from_ints([1.0, 2.0], device), torch.tensor([1, 2]))
    same(Tensor.from_bool([0, 2], device), torch.tensor([False, True]))
    same(Tensor.from_data(3.5, device), torch.tensor(3.5))


def test_a_constructor_copies() -> None:
    for make in LEAVES.values():
        array = np.zeros(3)
        x = Tensor.from_data(array, make())
        array[0] = 1.0
        assert x.tolist() == [0.0, 0.0, 0.0]


def test_options() -> None:
    cpu, nd = Device.cpu(), Device.ndarray()
    options = TensorCreationOptions(cpu)
    assert options.dtype_or(DType.F16) is DType.F16
    assert options.with_dtype(DType.I64).dtype_or(DType.F16) is DType.I64
    assert options.with_device(nd).device is nd
    x = Tensor.zeros((2,), options.with_dtype(DType.I32))
    assert (x.dtype, x.device) == (DType.I32, cpu)
    assert Tensor.ones((2,), (nd, "f64")).dtype is DType.F64


def test_errors() -> None:
    cpu = Device.cpu()
    with pytest.raises(DTypeError, match=r"(?s)zeros: this is not a device.*'cpu' .str..*Device.parse"):
        Tensor.zeros((2,), "cpu")
    with pytest.raises(DTypeError, match=r"(?s)ones: there is no such element type.*'float99'.*DType.F32"):
        Tensor.ones((2,), (cpu, "float99"))
    with pytest.raises(ShapeError, match=r"(?s)zeros: a size is negative.*\(2, -1\)"):
        Tensor.zeros((2, -1), cpu)
    with pytest.raises(DTypeError, match=r"(?s)full: the value is no number.*'x' .str."):
        Tensor.full((2,), "x", cpu)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DTypeError, match=r"(?s)zeros: a size is not a whole number.*2.5"):
        Tensor.zeros((2.5, 1), cpu)
    with pytest.raises(ShapeError, match=r"(?s)tril_mask: a mask of a triangle needs a matrix.*\(3,\)"):
        Tensor.tril_mask((3,), 0, cpu)
    with pytest.raises(DTypeError, match=r"(?s)arange: range is not a whole number.*0.5"):
        Tensor.arange(0.5, cpu)


# -- random ------------------------------------------------------------------------------------------------
def test_one_seed_gives_the_same_numbers_on_all_leaves() -> None:
    drawn = []
    for make in LEAVES.values():
        ambient.seed(11)
        first = Tensor.random((100,), Distribution.Uniform(-1.0, 2.0), make())
        second = Tensor.random((100,), Distribution.Uniform(-1.0, 2.0), make())
        assert first.tolist() != second.tolist()
        drawn.append(first.tolist() + second.tolist())
    assert drawn[0] == drawn[1]
    assert all(-1.0 <= x < 2.0 for x in drawn[0])


@leaves
def test_distributions(device: Device) -> None:
    ambient.seed(5)
    count = 20_000
    uniform = Tensor.random((count,), Distribution.Default, device)
    assert uniform.dtype is DType.F32
    assert 0.0 <= uniform.min().item() < uniform.max().item() < 1.0
    assert uniform.mean().item() == pytest.approx(0.5, abs=5 * 12**-0.5 / count**0.5)  # five standard errors
    normal = Tensor.random((count,), Distribution.Normal(3.0, 2.0), (device, DType.F64))
    assert normal.mean().item() == pytest.approx(3.0, abs=5 * 2.0 / count**0.5)
    assert normal.var(0).item() == pytest.approx(4.0, abs=5 * 4.0 * (2 / count) ** 0.5)
    coin = Tensor.random((count,), Distribution.Bernoulli(0.3), (device, DType.BOOL))
    assert coin.float().mean().item() == pytest.approx(0.3, abs=5 * (0.21 / count) ** 0.5)
    fair = Tensor.random((count,), Distribution.Default, (device, DType.BOOL))
    assert fair.float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / count**0.5)
    whole = Tensor.random((count,), Distribution.Uniform(-2.0, 3.0), (device, DType.I64))
    assert set(whole.tolist()) == {-2, -1, 0, 1, 2}
    bytes_ = Tensor.random((count,), Distribution.Default, (device, DType.U8))
    assert (min(bytes_.tolist()), max(bytes_.tolist())) == (0, 254)
    small = Tensor.random((count,), Distribution.Default, (device, DType.I8))
    assert (min(small.tolist()), max(small.tolist())) == (0, 126)
    like = Tensor.zeros((3, 2), (device, DType.F64)).random_like(Distribution.Normal(0.0, 1.0))
    assert (like.shape, like.dtype, like.device) == ((3, 2), DType.F64, device)


@leaves
def test_categorical_draws_by_weight_and_never_a_class_without(device: Device) -> None:
    ambient.seed(2)
    weights = Tensor.from_data([[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 0.0]], device)
    drawn = weights.categorical(20_000)
    assert (drawn.shape, drawn.dtype) == ((2, 20_000), DType.I64)
    first, second = drawn.tolist()
    assert set(first) == {0, 2}
    assert set(second) == {1}
    share = first.count(2) / len(first)
    assert share == pytest.approx(0.75, abs=5 * (0.1875 / 20_000) ** 0.5)
    assert Tensor.ones((3,), device).categorical(5).shape == (5,)


def test_threads_draw_different_numbers() -> None:
    ambient.seed(1)
    draws: list[list[float]] = [Tensor.random((4,), Distribution.Default, Device.cpu()).tolist()]

    def draw() -> None:
        draws.append(Tensor.random((4,), Distribution.Default, Device.cpu()).tolist())

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(numbers) for numbers in draws}) == 4


def test_a_scope_names_the_stream() -> None:
    class Counting:
        def __init__(self) -> None:
            self.calls = 0

        def next_key(self) -> tuple[int, int]:
            self.calls += 1
            return 7, self.calls

    with ambient.installed(Counting()) as _, ambient.installed(inner := Counting()):
        a = Tensor.random((3,), Distribution.Default, Device.cpu())
    with ambient.installed(Counting()):
        b = Tensor.random((3,), Distribution.Default, Device.cpu())
    assert inner.calls == 1
    assert a.tolist() == b.tolist()


def test_errors_of_random() -> None:
    with pytest.raises(ArgumentError, match=r"(?s)random: this is no distribution.*'normal'.*Distribution.Uniform"):
        Tensor.random((2,), "normal", Device.cpu())  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ShapeError, match=r"(?s)categorical: there is nothing to draw.*num_samples 0"):
        Tensor.ones((2,), Device.cpu()).categorical(0)


def test_numbers_in_a_wanted_type_are_rounded_once() -> None:
    """0.1 became f32, then f64."""
    for values in (0.1, [0.1, 1e-40, 16777217.5], [[1.0 / 3.0]]):
        for dtype, kind in (("f64", np.float64), ("f32", np.float32)):
            tensor = Tensor.from_data(values, (Device.cpu(), dtype))
            np.testing.assert_array_equal(tensor.into_data().values, np.asarray(values, kind).reshape(tensor.shape))
