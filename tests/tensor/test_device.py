"""Devices: default element types, what the tape keeps, memory, lists of devices, measured throughput."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burn_torch import Device, DType, Tensor, compile, vision
from burn_torch.core.data import TensorData
from burn_torch.core.errors import ArgumentError, DeviceError, DTypeError
from burn_torch.nn import LinearConfig
from burn_torch.tensor import (
    DeviceConfig,
    DeviceFilter,
    Devices,
    DeviceSettings,
    GradientCheckpointingStrategy,
    ThroughputKey,
    device_settings,
    linalg,
)
from burn_torch.train import ClassificationOutput
from burn_torch.train.metric import AccuracyMetric, PrecisionMetric, RecallMetric, TopKAccuracyMetric
from burn_torch.train.metric.base import MetricMetadata


@pytest.fixture
def fresh_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places of which no value was made yet."""
    monkeypatch.setattr(device_settings, "_OF_PLACES", {})
    monkeypatch.setattr(Device, "_instances", {})


@pytest.mark.usefixtures("fresh_places")
def test_default_types_are_chosen_once_for_all_stacks_of_a_place() -> None:
    device = Device.cpu().autodiff()
    device.configure(DeviceConfig(float=DType.F64, int=DType.I32))
    assert Device.cpu(fused=True).settings() == DeviceSettings(DType.F64, DType.I32, DType.BOOL)
    assert Device.ndarray().settings() == DeviceSettings(DType.F32, DType.I64, DType.BOOL)
    x = Tensor.from_data([[0.1, 2.5]], device)
    assert x.tolist() == [[0.1, 2.5]]  # f64 of the numbers, not of their f32
    floats = [x, Tensor.zeros((2,), device), Tensor.from_floats([1], device), Tensor.full((), 0.5, device)]
    floats += [x.int().float(), Tensor.eye(2, device), LinearConfig(2, 3).init(device).forward(x)]
    assert {each.dtype for each in floats} == {DType.F64}
    ints = [x.int(), x.argmax(1), x.argmin(1), x.argsort(1), x.argwhere(), x.topk_with_indices(1, 1)[1]]
    ints += [x.max_dim_with_indices(1)[1], Tensor.arange(3, device), Tensor.full((), 1, device)]
    ints += [Tensor.from_ints([1], device)]
    assert {each.dtype for each in ints} == {DType.I32}
    assert [y.dtype for y in compile(lambda x: (x.argmax(1), x.int().float()))(x)] == [DType.I32, DType.F64]
    assert Tensor.from_data(np.ones(2, np.float32), device).dtype is DType.F32
    assert Tensor.zeros((2,), (device, DType.F16)).dtype is DType.F16
    with pytest.raises(DeviceError, match=r"are fixed(.|\n)*after it was configured(.|\n)*where the program starts"):
        Device.cpu().configure(DeviceConfig(float=DType.F16))


@pytest.mark.usefixtures("fresh_places")
def test_what_the_library_counts_by_itself_fits_beside_any_default_type() -> None:
    device = Device.cpu()
    device.configure(DeviceConfig(float=DType.F16, int=DType.I32))
    scores, labels = Tensor.from_data(np.eye(4, dtype=np.float32), device), Tensor.from_data(np.arange(4), device)
    for metric in (AccuracyMetric(), TopKAccuracyMetric(2), PrecisionMetric.multiclass(1), RecallMetric.multiclass(2)):
        metric.update(ClassificationOutput(scores.sum(), scores, labels), MetricMetadata.fake())
    images = Tensor.from_data(np.zeros((2, 3, 6, 6)), device)
    assert vision.random_crop(images, (3, 3), 1).shape == (2, 3, 3, 3)
    assert linalg.matrix_rank(scores).dtype is DType.I64


def test_types_are_fixed_by_the_first_value_that_is_made_with_one() -> None:
    Tensor.zeros((1,), Device.cpu())
    with pytest.raises(DeviceError, match="after a value was made with a default type"):
        Device.cpu().configure(DeviceConfig(float=DType.F16))
    assert Device.cpu().settings() == DeviceSettings()


def test_types_that_a_device_lacks_or_of_another_kind_are_refused() -> None:
    with pytest.raises(DeviceError, match="this device has no bf16"):
        Device.ndarray().configure(DeviceConfig(float=DType.BF16))
    with pytest.raises(DTypeError, match="float is no float type"):
        DeviceConfig(float=DType.I32)
    with pytest.raises(DTypeError, match="int is no integer type"):
        DeviceConfig(int=DType.F32)


def test_checkpointing_is_chosen_by_name_or_text_and_read_back() -> None:
    balanced = Device.cpu().autodiff(GradientCheckpointingStrategy.Balanced)
    assert balanced is Device.cpu().autodiff("balanced")
    assert balanced.gradient_checkpointing_strategy() is GradientCheckpointingStrategy.Balanced
    assert balanced.gradient_checkpointing("none") is Device.cpu().autodiff()
    assert Device.cpu().gradient_checkpointing_strategy() is None


def test_a_tensor_goes_to_a_tape_that_keeps_less_with_its_gradient() -> None:
    x = Tensor.from_data([0.5, -1.5], Device.cpu().autodiff()).require_grad()
    y = x.with_gradient_checkpointing_strategy("balanced")
    assert y.device.gradient_checkpointing_strategy() is GradientCheckpointingStrategy.Balanced
    gradient = x.grad((y * y * y).sum().backward())
    assert gradient is not None
    np.testing.assert_allclose(np.asarray(gradient), 3 * np.array([0.25, 2.25]))


def test_devices_are_listed_by_kind() -> None:
    every = Device.enumerate()
    assert isinstance(every, Devices)
    assert Device.cpu() in every
    assert Device.ndarray() in every
    assert Device.enumerate("ndarray") == [Device.ndarray()]
    assert all(device.place == "cpu" for device in Device.enumerate(DeviceFilter.Cpu))
    assert all(device.is_autodiff() for device in every.autodiff())
    assert type(every.into_vec()) is list
    with pytest.raises(ArgumentError, match="there is no such DeviceFilter"):
        Device.enumerate("gpu")
    with pytest.raises(DeviceError, match="fixed"):
        Devices([Device.cpu()]).configure(DeviceConfig())


def test_names_of_other_backends_are_here_or_say_why_not() -> None:
    assert Device.flex() is Device.cpu()
    with pytest.raises(AttributeError, match="torch reaches GPUs through CUDA, ROCm and Metal"):
        Device.webgpu  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no device is remote"):
        Device.remote_iroh  # type: ignore[attr-defined]  # noqa: B018
    if torch.version.hip is None:
        with pytest.raises(DeviceError, match="not built for AMD GPUs"):
            Device.rocm()


@pytest.mark.parametrize("device", [Device.cpu().autodiff(), Device.ndarray()], ids=repr)
def test_memory_is_given_back_set_apart_and_staged(device: Device) -> None:
    with device.memory_persistent_allocations():
        x = Tensor.from_data([1.0, 2.0], device)
    device.memory_cleanup()
    assert x.tolist() == [1.0, 2.0]
    data = TensorData.of([3.0, 4.0])
    (staged,) = device.staging([data])
    assert Tensor.from_data(staged, device).tolist() == [3.0, 4.0]


def test_throughput_is_measured() -> None:
    keys = [ThroughputKey.Memory, ThroughputKey(DType.F32)]
    stats = Device.cpu().performance_stats(keys)
    assert list(stats) == keys
    assert all(1e6 < each < 1e16 for each in stats.values())
    with pytest.raises(DTypeError, match="measured in floats"):
        ThroughputKey(DType.I32)


# -- element types ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [(DType.F64, torch.float64), (DType.F32, torch.float32), (DType.F16, torch.float16), (DType.BF16, torch.bfloat16)],
)
def test_finfo_is_that_of_torch(dtype: DType, theirs: torch.dtype) -> None:
    ours, known = dtype.finfo(), torch.finfo(theirs)
    assert (ours.bits, ours.epsilon, ours.min, ours.max, ours.min_positive) == (
        known.bits, known.eps, known.min, known.max, known.tiny
    )  # fmt: skip
    one = torch.tensor(ours.smallest_subnormal, dtype=torch.float64)
    assert one.to(theirs).double() == one
    assert (one / 2).to(theirs) == 0


def test_iinfo_is_that_of_numpy_and_other_kinds_are_refused() -> None:
    for dtype in (DType.I8, DType.U16, DType.U64):
        known = np.iinfo(dtype.numpy)
        assert (dtype.iinfo().bits, dtype.iinfo().min, dtype.iinfo().max) == (known.bits, known.min, known.max)
    with pytest.raises(DTypeError, match=r"i64 is no float type(.|\n)*write iinfo"):
        DType.I64.finfo()
    with pytest.raises(DTypeError, match=r"bool is no integer type"):
        DType.BOOL.iinfo()
    assert DType.FLEX32 is DType.F32
