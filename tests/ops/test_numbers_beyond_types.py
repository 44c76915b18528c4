"""Numbers that an element type cannot hold: one answer on every stack, an error of ours or the same values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import (
    ArgumentError,
    Device,
    Distribution,
    DType,
    DTypeError,
    OutOfMemoryError,
    ShapeError,
    Tensor,
    compile,
    vjp,
)
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import rounded_to
from burn_torch.core.errors import BurnTorchError
from burn_torch.ops import REGISTRY, Op
from burn_torch.ops.samples import normalise

STACKS = {"torch": lambda: Device.cpu(fused=False), "numpy": Device.ndarray, "fused": lambda: Device.cpu(fused=True)}
EXTREMES = [-5, 300, 70_000, -1e9, 65_510.0, 1e300, -1e300, np.inf, -np.inf, 2**31, 2**63 - 1, 2**70]
STORED = ["clamp", "clamp_max", "clamp_min", "full", "hard_shrink", "mask_where", "maximum", "minimum", "one_hot"]
STORED += ["pad", "threshold"]
"""Rows whose numbers become elements."""


def with_numbers() -> list[str]:
    """Rows that take a number and draw nothing."""
    rows = [row for row in REGISTRY.values() if not row.random and row.collective is None and "::" not in row.name]
    return [row.name for row in rows if any(_numbers(sample.inputs) for sample in normalise(row.samples))]


def _numbers(inputs: tuple[Any, ...]) -> list[int]:
    return [i for i, x in enumerate(inputs) if isinstance(x, int | float) and not isinstance(x, bool)]


def outcome(row: Op, device: Device, arrays: list[Any], attrs: dict[str, Any], dtype: DType) -> Any:
    """The results as arrays, or the class of the error."""
    inputs = []
    for x in arrays:
        if isinstance(x, np.ndarray):
            tensor = Tensor.from_data(np.abs(x) if dtype is DType.U8 else x, device)
            inputs.append(tensor.cast(dtype) if x.dtype == np.float64 else tensor)
        else:
            inputs.append(x)
    if "dtype" in attrs and not any(isinstance(x, Tensor) for x in inputs):
        attrs = {**attrs, "dtype": dtype}
    try:
        results = row.run(device.backend, Tensor, inputs, attrs)
        results = results if isinstance(results, tuple) else (results,)
        return [np.asarray(y.into_data().values) for y in results if y is not None]
    except BurnTorchError as error:
        return type(error)


@pytest.mark.parametrize("name", with_numbers())
@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.U8, DType.I8])
def test_no_number_raises_an_error_of_torch(name: str, dtype: DType, seed: np.random.Generator) -> None:
    row = REGISTRY[name]
    if name.endswith("_update"):
        pytest.skip("the optimizers' configurations refuse such numbers")
    for sample in [s for s in normalise(row.samples) if _numbers(s.inputs)][:2]:
        arrays = sample.draw(seed)
        for i in _numbers(sample.inputs):
            for number in EXTREMES:
                arguments = [*arrays[:i], number, *arrays[i + 1 :]]
                for device in STACKS.values():
                    outcome(row, device(), arguments, sample.attrs, dtype)  # an error of torch or numpy is not caught


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, DType.F16, DType.I64, DType.I8, DType.U8])
def test_stacks_agree_on_a_number_that_becomes_an_element(name: str, dtype: DType, seed: np.random.Generator) -> None:
    row = REGISTRY[name]
    samples = [
        s for s in normalise(row.samples) if _numbers(s.inputs) and s.attrs.get("mode", "constant") == "constant"
    ]
    for sample in samples:
        arrays = sample.draw(seed)
        for i in _numbers(sample.inputs):
            for number in EXTREMES:
                arguments = [*arrays[:i], number, *arrays[i + 1 :]]
                answers = [outcome(row, device(), arguments, sample.attrs, dtype) for device in STACKS.values()]
                for other in answers[1:]:
                    if isinstance(answers[0], type):
                        assert other is answers[0], (number, sample, answers)
                    else:
                        assert not isinstance(other, type), (number, sample, answers)
                        for x, y in zip(answers[0], other, strict=True):
                            np.testing.assert_array_equal(x, y)


MESSAGE = r"(?s)mask_where: a number does not fit the element type\n  given:    -1000000000.0 .*\n  expected: numbers from -65504 to 65504, which f16 holds, or an infinity\n  mend:     write float"  # noqa: E501


@pytest.mark.parametrize("stack", STACKS)
def test_mask_fill_of_a_half_type_refuses_a_number_that_it_cannot_hold(stack: str) -> None:
    x = Tensor.from_data([1.0, 2.0], STACKS[stack]()).cast("f16")
    with pytest.raises(ArgumentError, match=MESSAGE):
        x.mask_fill(x > 1.5, -1e9)
    assert x.mask_fill(x > 1.5, -np.inf).tolist() == [1.0, -np.inf]
    assert x.mask_fill(x > 1.5, 65_504.0).tolist() == [1.0, 65_504.0]


@pytest.mark.parametrize("fuse", [False, True])
def test_compiled_programs_refuse_numbers_as_eager_ones_do(fuse: bool) -> None:
    x = Tensor.from_data(np.arange(40_000) % 7, Device.cpu(fused=False)).cast("f16")

    def fill(x: Tensor, number: float) -> Tensor:
        return (x * 2.0 + 1.0).mask_fill(x > 1.0, number) * 0.5

    run = compile(fill, fuse=fuse)
    assert run(x, -7.0).tolist() == fill(x, -7.0).tolist()
    assert run(x, -np.inf).tolist() == fill(x, -np.inf).tolist()
    for literal in (run, compile(lambda x, _: fill(x, -1e9), fuse=fuse)):
        with pytest.raises(ArgumentError, match="a number does not fit the element type"):
            literal(x, -1e9)


@pytest.mark.parametrize("stack", STACKS)
def test_clamp_of_small_integers_refuses_bounds_that_they_cannot_be(stack: str) -> None:
    x = Tensor.from_data([1, 200], STACKS[stack](), "u8")
    calls: list[Callable[[], Tensor]] = [
        lambda: x.clamp_min(-5),
        lambda: x.clamp(-5, 100),
        lambda: x.clamp_max(256),
        lambda: x.pad([(1, 0)], 300),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=r"(?s)given:.*expected: whole numbers from 0 to 255.*mend:"):
            call()
    assert x.clamp(0, 100).tolist() == [1, 100]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(
    "fill",
    [
        lambda x: Tensor.full((2,), 1.5, (x.device, "i64")),
        lambda x: x.full_like(-0.5),
        lambda x: x.slice_fill((range(1),), 2.5),
        lambda x: compile(lambda x, number: x.full_like(number) + x)(x, 1.5),
    ],
    ids=["full", "full_like", "slice_fill", "compiled"],
)
def test_integers_are_not_filled_with_a_fraction_that_is_cut(stack: str, fill: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(DTypeError, match="a float number in i64 values"):
        fill(Tensor.from_data([1, 2, 3], STACKS[stack]())).into_data()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("number", [256, -1, 2**31])
@pytest.mark.parametrize("shift", [Tensor.bitwise_left_shift, Tensor.bitwise_right_shift])
def test_bytes_are_not_shifted_by_a_number_modulo_256(stack: str, number: int, shift: Callable[..., Tensor]) -> None:
    # torch took 256 as a byte, 0, and left the values as they were
    bytes_of_8_bits = Tensor.from_data([1, 200], STACKS[stack](), "u8")
    with pytest.raises(ArgumentError, match="whole numbers from 0 to 255"):
        shift(bytes_of_8_bits, number).into_data()


@pytest.mark.parametrize("stack", STACKS)
def test_a_range_that_leaves_its_type_is_refused(stack: str) -> None:
    device = STACKS[stack]()
    with pytest.raises(ArgumentError, match=r"(?s)arange: .*126, 129.*expected: whole numbers from -128 to 127"):
        Tensor.arange(range(126, 130), (device, "i8")).tolist()
    with pytest.raises(ArgumentError, match="arange"):
        Tensor.arange(range(2**63 - 1, 2**63 + 1), device).tolist()
    assert Tensor.arange(range(127, -129, -85), (device, "i8")).tolist() == [127, 42, -43, -128]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([300, -1], "u8"), ([1.5], "i64"), ([np.nan], "i32"), ([2.0**63], "i64"), ([2**63], "i64"), ([1e9], "f16"),
     ([1e39], "f32"), ([1e39], None), ([1e39], "bf16"), ([-1], "u64"), (np.array([200], np.uint8), "i8"),
     (torch.tensor([300]), "u8"), (torch.tensor([1e39], dtype=torch.float64), "f32"), (torch.tensor([1.5]), "i64")],
)  # fmt: skip
def test_data_that_a_type_cannot_hold_are_refused(values: Any, dtype: str | None) -> None:
    words = r"(?s)TensorData: \w+ cannot hold \d+ values?\n  given: .*\n  expected: .*\n  mend: .*convert\(dtype\)"
    with pytest.raises(DTypeError, match=words):
        Tensor.from_data(values, Device.cpu(), dtype)


def test_data_that_a_type_rounds_are_taken() -> None:
    assert TensorData.of([65_519.0, np.inf], DType.F16).to_list() == [65_504.0, np.inf]
    assert TensorData.of([-(2.0**63)], DType.I64).to_list() == [-(2**63)]
    assert TensorData.of([0, 2], DType.BOOL).to_list() == [False, True]
    assert TensorData.of([300, -1]).convert(DType.U8).to_list() == [44, 255]


@pytest.mark.parametrize("stack", STACKS)
def test_covariances_of_a_half_type_fit_where_their_sums_do_not(stack: str, seed: np.random.Generator) -> None:
    values = (seed.normal(size=(60, 3)) * 50).astype(np.float16)
    wanted = np.cov(values.astype(np.float64), rowvar=False)
    result = np.asarray(Tensor.from_data(values, STACKS[stack]()).cov(0, 1).into_data().values)
    assert result.dtype == np.float16
    assert np.abs(result - wanted).max() <= 1e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("stack", STACKS)
def test_distances_beyond_all_sizes_are_taken_as_what_they_mean(stack: str) -> None:
    x = Tensor.from_data(np.arange(6.0).reshape(2, 3), STACKS[stack]())
    assert x.roll_dim(10**20, 1).tolist() == np.roll(np.arange(6.0).reshape(2, 3), 10**20 % 3, 1).tolist()
    assert x.roll([-(10**20)], [0]).tolist() == x.tolist()
    assert x.unfold(0, 1, 2**70).tolist() == [[[0.0], [1.0], [2.0]]]
    assert x.tril(2**70).tolist() == x.tolist()
    assert x.triu(2**70).tolist() == (x * 0.0).tolist()


@pytest.mark.parametrize("stack", STACKS)
def test_results_that_no_memory_holds_are_errors_of_ours(stack: str) -> None:
    device = STACKS[stack]()
    x = Tensor.zeros((3, 4), device)
    for call in (lambda: x.repeat((2**40, 2**40)), lambda: x.expand((2**62, 3, 4)), lambda: Tensor.eye(2**31, device)):
        with pytest.raises(
            ShapeError, match=r"(?s)the result is larger than any memory\n  given: .*2\^63 bytes.*mend:"
        ):
            call()
    with pytest.raises(OutOfMemoryError, match=r"(?s)full: .*no memory.*given: .*expected: .*GiB\n  mend:"):
        Tensor.zeros((2**46,), device).into_data()
    with pytest.raises(OutOfMemoryError, match=r"(?s)uniform: .*no memory.*given: .*expected: .*GiB\n  mend:"):
        Tensor.random((2**46,), Distribution.Uniform(0.0, 1.0), device).into_data()


def test_powers_beyond_the_exactness_of_floats_keep_their_parity() -> None:
    for device in STACKS.values():
        assert (Tensor.from_data([-1.0], device()) ** (2**31 + 1)).tolist() == [-1.0]


def test_words_say_which_type_a_number_leaves() -> None:
    with pytest.raises(ArgumentError, match=re.escape("3.40282e+38, which f32 holds")):
        Tensor.full((1,), 1e300, Device.cpu())


COMPARING = ["equal", "not_equal", "greater", "greater_equal", "lower", "lower_equal"]
COMPARING += [
    "threshold",
    "thresholded_relu",
    "hard_shrink",
    "soft_shrink",
    "shrink",
    "clamp",
    "clamp_min",
    "clamp_max",
]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize("name", COMPARING)
def test_numbers_compared_with_halves_are_rounded_to_them(name: str, dtype: DType, seed: np.random.Generator) -> None:
    """Generated kernels and some of torch's compared in float32: at the bound of clamp there was no gradient."""
    row = REGISTRY[name]

    def run(x: Tensor, numbers: list[float]) -> list[Tensor]:
        y = row(x, *numbers)
        return [y & (x != 0.0)] if y.dtype.is_bool else [y * 1.5, *vjp(lambda x: row(x, *numbers) * 1.5, x)[1](x)]

    for bound in map(float, seed.uniform(0.05, 4.0, 2)):
        numbers = [-bound, bound] if name == "clamp" else [bound] * (1 + (name in ("shrink", "threshold")))
        near = [bound * factor for factor in (-1.02, -1.0, -0.98, 0.98, 1.0, 1.02)]
        x = Tensor.from_data(near, Device.cpu(fused=False)).cast(dtype)
        wanted = run(x.cast(DType.F64), [rounded_to(dtype, number) for number in numbers])
        written = compile(lambda x, numbers=tuple(numbers): run(x, list(numbers)), fuse=True)
        for outputs in (run(x, numbers), compile(run, fuse=True)(x, numbers), written(x)):
            for y, z in zip(outputs, wanted, strict=True):
                np.testing.assert_allclose(y.float().into_data().values, z.float().into_data().values, 0.02, 0.02)
