"""Quantised tensors beside formulas of numpy: codes, scales, packing, propagation, fake quantisation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, DType, Tensor, TensorData, compile
from burn_torch.core.errors import ArgumentError, DTypeError, ShapeError
from burn_torch.tensor import (
    Calibration,
    CalibrationRange,
    QuantizationParameters,
    QuantizedData,
    QuantizedTensor,
    QuantLevel,
    QuantParam,
    QuantPropagation,
    QuantScheme,
    QuantStore,
    QuantValue,
    compute_q_params,
    compute_range,
    fake_quantize,
)
from tests.tensor.leaves import LEAVES

TORCH_FLOATS = {"E5M2": torch.float8_e5m2, "E4M3": torch.float8_e4m3fn}
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@pytest.fixture(params=LEAVES)
def leaf(request: pytest.FixtureRequest) -> Device:
    return LEAVES[request.param]()


def blocks(shape: tuple[int, ...], level: QuantLevel) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """The places of each block, by its index, counted out."""
    sizes = [size or n for size, n in zip(level.sizes(shape), shape, strict=True)]
    members: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in np.ndindex(shape):
        members.setdefault(tuple(i // n for i, n in zip(place, sizes, strict=True)), []).append(place)
    return members


def nearest(ratio: float, value: QuantValue) -> float:
    """The nearest number of a value, by rounding of torch or by looking at all."""
    low, high = value.range
    held = min(max(ratio, low), high)
    if value.value in TORCH_FLOATS:
        return float(torch.tensor(held).to(TORCH_FLOATS[value.value]))
    if value is QuantValue.E2M1:
        order = sorted(range(8), key=lambda code: (abs(E2M1[code] - abs(held)), code % 2))
        return math.copysign(E2M1[order[0]], held)
    return float(np.rint(np.float32(held)))


LEVELS = [
    QuantLevel.per_tensor(),
    QuantLevel.per_block(4),
    QuantLevel.per_block((2, 3), QuantParam.F16),
    QuantLevel.per_channel(-1),
    QuantLevel.per_block((1, 5), QuantParam.UE8M0),
    (QuantLevel.per_block(4, QuantParam.UE4M3), QuantLevel.per_tensor()),
    (QuantLevel.per_block((2, 2), QuantParam.F16), QuantLevel.per_block((4, 4), QuantParam.F32)),
]


@pytest.mark.parametrize("value", QuantValue)
def test_values_and_scales_are_those_of_the_formula(value: QuantValue, leaf: Device, seed: Any) -> None:
    array = seed.normal(size=(5, 7)).astype(np.float32)
    array[:, 0] = 0.0
    for level in LEVELS:
        q = Tensor.from_data(array, leaf).quantize_dynamic(QuantScheme(value, level, QuantStore.Native))
        scales, y = np.asarray(q.effective_scales()), np.asarray(q.dequantize())
        low, high = value.range
        for index, places in blocks(array.shape, q.scheme.levels[0]).items():
            scale = np.float32(scales[index] if scales.size > 1 else scales.item())
            alpha = max(abs(array[place]) for place in places)
            wanted = 2 * alpha / (high - low) if alpha else 0.1
            rough = {QuantParam.UE8M0: 1.01, QuantParam.UE4M3: 0.07, QuantParam.F16: 5e-3}.get(q.scheme.param, 1e-6)
            if len(q.scheme.levels) == 1 or alpha:
                assert wanted * (1 - min(rough, 0.5)) <= scale <= wanted * (1 + rough), (level, index)
            for place in places:
                assert y[place] == np.float32(nearest(array[place] / scale, value)) * scale, (level, place)


@pytest.mark.parametrize("shape", [(5, 37), (2, 3, 9), (6,), (), (2, 0)])
def test_packed_codes_are_the_native_ones(shape: tuple[int, ...], leaf: Device, seed: Any) -> None:
    x = Tensor.from_data(np.asarray(seed.normal(size=shape), np.float32), leaf)
    for value, dim in itertools.product((QuantValue.Q8F, QuantValue.Q4S, QuantValue.Q2F, QuantValue.E2M1), (0, 1)):
        if dim >= max(len(shape), 1):
            continue
        native = x.quantize_dynamic(QuantScheme(value, store=QuantStore.Native))
        for store in (QuantStore.PackedU32(dim), QuantStore.PackedNative(dim)):
            q = x.quantize_dynamic(QuantScheme(value, store=store))
            assert q.codes.shape == q.scheme.stored_shape(shape)
            assert q.codes.dtype is q.scheme.stored
            assert np.array_equal(np.asarray(q.int_codes()), np.asarray(native.codes))
            assert np.array_equal(np.asarray(q.dequantize()), np.asarray(native.dequantize()))
            data = q.into_data()
            flat = np.asarray(native.codes).reshape(-1).tolist()
            built = TensorData.quantized(flat, shape, q.scheme, np.asarray(q.scales))
            assert built.to_bytes() == data.to_bytes()
            again = QuantizedTensor.from_data(QuantizedData.from_bytes(data.to_bytes(), shape, q.scheme), leaf)
            assert np.array_equal(np.asarray(again.dequantize()), np.asarray(q.dequantize()))


def test_the_first_code_lies_in_the_lowest_bits() -> None:
    codes = [1, -1, 7, -7, 0, 2, 3, -2, 5]
    data = TensorData.quantized(codes, (9,), QuantScheme(QuantValue.Q4S), [0.5])
    assert data.codes.array.tolist() == [0xE32097F1, 0x5]
    data = TensorData.quantized(
        [1, -2, 0, -1, 1], (5,), QuantScheme(QuantValue.Q2F, store=QuantStore.PackedNative()), 1
    )
    assert data.codes.array.tolist() == [0b11001001, 0b01]
    assert data.dtype == DType.QFloat(data.scheme)


def test_calibration_and_parameters() -> None:
    x = Tensor.from_data([[1.0, -4.0, 2.0], [0.5, 0.25, -0.25]], Device.cpu())
    scheme = QuantScheme(QuantValue.Q2S)
    mean = compute_range(scheme, x, Calibration.AbsMean)  # BitNet b1.58: codes are round(x / mean|x|) in -1, 0, 1
    assert np.asarray(mean.max).tolist() == pytest.approx([8 / 6])
    q = x.quantize(scheme, compute_q_params(scheme, mean))
    assert np.asarray(q.int_codes()).tolist() == [[1, -1, 1], [0, 0, 0]]
    by_row = compute_range(scheme.with_level(QuantLevel.per_block((1, 2))), x)
    assert np.asarray(by_row.min).tolist() == [[-4.0, 2.0], [0.25, -0.25]]
    assert np.asarray(by_row.max).tolist() == [[1.0, 2.0], [0.5, -0.25]]
    ranges = CalibrationRange(Tensor.from_data([-0.5], x.device), Tensor.from_data([2.0], x.device))
    assert np.asarray(compute_q_params(QuantScheme(QuantValue.Q8S), ranges).scales).tolist() == pytest.approx([2 / 127])
    assert np.asarray(compute_q_params(QuantScheme(), ranges).scales).tolist() == pytest.approx([4 / 255])


def test_faults_are_visible(leaf: Device) -> None:
    x = Tensor.from_data([1.0, math.nan, 3.0], leaf)
    assert np.isnan(np.asarray(x.quantize_dynamic(QuantScheme(QuantValue.Q8S)).dequantize())).all()
    half = QuantizationParameters(Tensor.from_data([0.5], leaf))
    y = Tensor.from_data([math.inf, -math.inf, math.nan, 0.75, 1.25], leaf).quantize(QuantScheme(QuantValue.Q4F), half)
    assert np.asarray(y.dequantize()).tolist() == [3.5, -4.0, 0.0, 1.0, 1.0]  # 1.5 to 2, 2.5 to 2
    zeros = Tensor.zeros((3,), leaf).quantize_dynamic(QuantScheme())
    assert np.asarray(zeros.scales).tolist() == pytest.approx([0.1])
    assert np.asarray(zeros.dequantize()).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [DType.F64, DType.BF16, DType.F16])
def test_other_floats_come_back_as_they_are(dtype: DType, seed: Any) -> None:
    x = Tensor.from_data(seed.normal(size=(4, 9)), Device.cpu()).cast(dtype)
    q = x.transpose().quantize_dynamic(QuantScheme(QuantValue.Q8S, QuantLevel.per_block((3, 2))))
    y = q.dequantize()
    assert (y.dtype, y.shape, q.dtype.scheme) == (dtype, (9, 4), q.scheme)
    scale = np.asarray(q.effective_scales()).max()
    tolerance = scale * 0.51 + 2 ** (-8 if dtype is DType.BF16 else -11) * 4
    assert np.abs(np.asarray(y.float()) - np.asarray(x.transpose().float())).max() <= tolerance


def test_operations_dequantise_and_propagate_as_the_scheme_says(leaf: Device, seed: Any) -> None:
    a, b = (seed.normal(size=(3, 3)).astype(np.float32) for _ in range(2))
    x = Tensor.from_data(a, leaf)
    q = Tensor.from_data(b, leaf).quantize_dynamic(QuantScheme(QuantValue.Q8S))
    near = np.asarray(q.dequantize())
    for ours, theirs in (
        (x + q, a + near), (q - x, near - a), (x @ q, a @ near), (q @ x, near @ a), (q * 2, near * 2),
        (2 / q, 2 / near), (-q, -near), (q[0], near[0]), (q.exp(), np.exp(near)), (x.mul(q), a * near),
        (x.matmul(q.transpose()), a @ near.T), (q + q, near + near), (q.sum(), near.sum().reshape(1)),
    ):  # fmt: skip
        assert isinstance(ours, Tensor)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5)
    kept = Tensor.from_data(b, leaf).quantize_dynamic(
        QuantScheme(QuantValue.Q8S, propagation=QuantPropagation.Propagate)
    )
    product = kept.matmul(x)
    assert isinstance(product, QuantizedTensor)
    assert np.abs(np.asarray(product) - near @ a).max() < 0.02 * np.abs(near @ a).max()
    assert isinstance(kept.greater(0.0), Tensor)  # truth values are not quantised
    for ours, theirs in (
        (q == q, near == near),
        (q != 0.5, near != 0.5),
        (x == q, a == near),
        (q == q[0], near == near[0]),
    ):
        assert np.array_equal(np.asarray(ours), theirs)
    assert (len(q), float(q.sum()), q in {q: 1}) == (len(near), pytest.approx(float(near.sum()), rel=1e-5), True)
    with pytest.raises(ShapeError, match="only a tensor of one element is a number"):
        assert q
    with pytest.raises(AttributeError, match="QuantizedTensor has no attribute no_such"):
        q.no_such()


def test_compiled_functions_take_and_give_quantised_tensors(seed: Any) -> None:
    x = Tensor.from_data(seed.normal(size=(4, 6)).astype(np.float32), Device.cpu())
    scheme = QuantScheme(QuantValue.Q4S, QuantLevel.per_block(3))

    @compile
    def step(q: QuantizedTensor, x: Tensor) -> tuple[Tensor, QuantizedTensor]:
        return q.dequantize() + x, x.quantize_dynamic(scheme)

    q = (x * 2).quantize_dynamic(scheme)
    for _ in range(2):
        y, again = step(q, x)
        assert np.array_equal(np.asarray(y), np.asarray(q.dequantize() + x))
        assert (again.scheme, again.shape) == (scheme, (4, 6))
        assert np.array_equal(np.asarray(again.codes), np.asarray(x.quantize_dynamic(scheme).codes))


def test_fake_quantisation_is_that_of_torch_with_its_gradient(seed: Any) -> None:
    array, upstream = (seed.normal(size=(6, 5)).astype(np.float32) * 2 for _ in range(2))
    device = Device.cpu().autodiff()
    x = Tensor.from_data(array, device).require_grad()
    qparams = QuantizationParameters(Tensor.from_data([0.015], device.inner()))
    y = fake_quantize(x, QuantScheme(QuantValue.Q8F), qparams)
    grads = (y * Tensor.from_data(upstream, device)).sum().backward()
    t = torch.tensor(array, requires_grad=True)
    wanted = torch.fake_quantize_per_tensor_affine(t, 0.015, 0, -128, 127)
    wanted.backward(torch.tensor(upstream))
    assert t.grad is not None
    np.testing.assert_allclose(np.asarray(y.inner()), wanted.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(x.grad(grads)), t.grad.numpy())
    assert 0 < (t.grad == 0).sum() < t.grad.numel()
    assert np.array_equal(
        np.asarray(fake_quantize(x, QuantScheme()).inner()),
        np.asarray(Tensor.from_data(array, Device.cpu()).quantize_dynamic(QuantScheme()).dequantize()),
    )


def test_what_does_not_fit_is_said() -> None:
    x = Tensor.from_data([[1.0, 2.0]], Device.cpu())
    scales = QuantizationParameters(Tensor.from_data([0.5, 0.5, 0.5], x.device))
    two = QuantScheme(level=(QuantLevel.per_block(2), QuantLevel.per_tensor()))
    channels = QuantScheme(level=QuantLevel.per_channel(-1))
    with pytest.raises(ShapeError, match=r"not one for each block(.|\n)*scales \(3,\)(.|\n)*shape \(1, 2\)(.|\n)*mend"):
        x.quantize(channels, scales)
    with pytest.raises(ShapeError, match=r"levels of scales(.|\n)*1 of them(.|\n)*2: per_block(.|\n)*outer_scales"):
        x.quantize(two, QuantizationParameters(Tensor.from_data([[0.5]], x.device)))
    with pytest.raises(DTypeError, match=r"only floats are quantised(.|\n)*i64(.|\n)*f64, f32(.|\n)*float\(\)"):
        x.int().quantize_dynamic(QuantScheme())
    with pytest.raises(
        ArgumentError, match=r"lacks the axes(.|\n)*per_block\(\(1, 2, 3\)(.|\n)*at most 2(.|\n)*per_tensor"
    ):
        x.quantize_dynamic(QuantScheme(level=QuantLevel.per_block((1, 2, 3))))
    with pytest.raises(ArgumentError, match=r"a block has no such sizes(.|\n)*\(0,\)(.|\n)*from 1(.|\n)*mend"):
        QuantLevel.per_block(0)
    with pytest.raises(ArgumentError, match=r"no such scheme(.|\n)*value 'Q8F'(.|\n)*a QuantValue(.|\n)*mend"):
        QuantScheme("Q8F")  # type: ignore[arg-type]  # a wrong one
    with pytest.raises(ShapeError, match=r"codes or scales(.|\n)*3 codes for \(2,\)(.|\n)*2 codes(.|\n)*mend"):
        TensorData.quantized([1, 2, 3], (2,), QuantScheme(), [1.0])
