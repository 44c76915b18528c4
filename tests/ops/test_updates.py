"""Optimizer rows beyond what the table tests: layouts, types, memory, and agreement of eager and in-place forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.backend.libtorch.attached.programs import in_place_form
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.ndarray.leaf import NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.ops import REGISTRY, Call

LEAF, HOST = LibTorch(), NdArray()

ROWS: dict[str, tuple[str, tuple[float, ...], int, dict[str, Any]]] = {
    "sgd": ("sgd_update", (0.1, 0.5), 2, {}),
    "momentum": ("momentum_update", (0.1, 0.0, 0.9, 0.7), 3, {"nesterov": False}),
    "nesterov": ("momentum_update", (0.1, 0.5, 0.9, 1.0), 3, {"nesterov": True}),
    "lion": ("lion_update", (0.1, 0.9, 0.99, 0.0), 3, {}),
    "lion, decay": ("lion_update", (0.1, 0.8, 0.95, 0.3), 3, {}),
    "adam": ("adam_update", (0.1, 0.9, 0.99, 1e-5, 0.3, 0.0, 1), 4, {"amsgrad": False, "cautious": False}),
    "adamw": ("adam_update", (0.1, 0.9, 0.99, 1e-5, 0.0, 0.3, 12), 4, {"amsgrad": False, "cautious": False}),
    "both": ("adam_update", (0.1, 0.9, 0.99, 1e-5, 0.2, 0.3, 12), 4, {"amsgrad": False, "cautious": False}),
    "cautious": ("adam_update", (0.1, 0.9, 0.99, 1e-5, 0.0, 0.3, 3), 4, {"amsgrad": False, "cautious": True}),
    "amsgrad": ("adam_update", (0.1, 0.9, 0.99, 1e-5, 0.0, 0.3, 3), 5, {"amsgrad": True, "cautious": False}),
}


@pytest.fixture(params=sorted(ROWS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bound(kind: str, xs: Sequence[torch.Tensor]) -> Call:
    name, numbers, _, attrs = ROWS[kind]
    specs = [INT_NUMBER if isinstance(number, int) else FLOAT_NUMBER for number in numbers]
    return REGISTRY[name].bind([*specs, *map(LEAF.spec, xs)], attrs)


def drawn(kind: str, shapes: Sequence[tuple[int, ...]], seed: np.random.Generator, dtype: Any) -> list[torch.Tensor]:
    """Parameters, gradients, states; second moments are positive."""
    runs = ROWS[kind][2]
    values = [np.asarray(seed.normal(size=shape)) for _ in range(runs) for shape in shapes]
    n = len(shapes)
    return [torch.from_numpy(np.abs(v, out=v) if i // n >= 3 else v).to(dtype) for i, v in enumerate(values)]


SHAPES = ((3, 4), (), (0, 2), (17,), (2, 1, 3))


def test_float64_agrees_with_numpy(kind: str, seed: np.random.Generator) -> None:
    xs = drawn(kind, SHAPES, seed, torch.float64)
    call = bound(kind, xs)
    numbers = ROWS[kind][1]
    expected = HOST.execute(call, [*numbers, *(x.numpy() for x in xs)])
    for updated, wanted in zip(LEAF.execute(call, [*numbers, *xs]), expected, strict=True):
        np.testing.assert_allclose(updated.numpy(), wanted, rtol=1e-12, atol=1e-14)


def test_eager_writes_to_nothing_and_in_place_gives_its_bits(kind: str, seed: np.random.Generator) -> None:
    xs = drawn(kind, SHAPES, seed, torch.float32)
    before = [x.clone() for x in xs]
    call, numbers = bound(kind, xs), ROWS[kind][1]
    expected = LEAF.execute(call, [*numbers, *xs])
    assert all(torch.equal(x, y) for x, y in zip(xs, before, strict=True))
    form = in_place_form(call)
    assert form is not None
    function, over = form
    n = len(SHAPES)
    updated = function(*numbers, *xs)
    for i, (new, wanted) in enumerate(zip(updated, expected, strict=True)):
        assert torch.equal(new, wanted)
        assert new is xs[over[i] - len(numbers)]
    assert all(torch.equal(x, y) for x, y in zip(xs[n : 2 * n], before[n : 2 * n], strict=True)), "a gradient changed"


def test_strides_do_not_matter(kind: str, seed: np.random.Generator) -> None:
    # torch's fused kernels read memory in its order, whatever the strides
    xs = drawn(kind, ((3, 4), (4, 3)), seed, torch.float32)
    strided = [x.mT.contiguous().mT for x in xs]
    assert not strided[0].is_contiguous()
    call, numbers = bound(kind, xs), ROWS[kind][1]
    expected = LEAF.execute(call, [*numbers, *xs])
    form = in_place_form(call)
    assert form is not None
    for run in (lambda: LEAF.execute(call, [*numbers, *strided]), lambda: form[0](*numbers, *strided)):
        for updated, wanted in zip(run(), expected, strict=True):
            assert torch.equal(updated, wanted)


def test_expanded_gradients_and_states(kind: str, seed: np.random.Generator) -> None:
    xs = drawn(kind, ((4, 3),), seed, torch.float32)
    narrow = [xs[0], *(x[:1].expand(4, 3) for x in xs[1:])]
    dense = [x.contiguous() for x in narrow]
    call, numbers = bound(kind, xs), ROWS[kind][1]
    for updated, wanted in zip(
        LEAF.execute(call, [*numbers, *narrow]), LEAF.execute(call, [*numbers, *dense]), strict=True
    ):
        assert torch.equal(updated, wanted)


def test_parameters_of_several_types_in_one_call(kind: str, seed: np.random.Generator) -> None:
    single = drawn(kind, ((3, 4), (5,)), seed, torch.float32)
    double = drawn(kind, ((2,), (3, 3)), seed, torch.float64)
    runs, numbers = ROWS[kind][2], ROWS[kind][1]
    mixed: list[torch.Tensor] = []
    for i in range(runs):
        mixed += [single[2 * i], double[2 * i], single[2 * i + 1], double[2 * i + 1]]
    updated = LEAF.execute(bound(kind, mixed), [*numbers, *mixed])
    apart = [list(LEAF.execute(bound(kind, xs), [*numbers, *xs])) for xs in (single, double)]
    for i, value in enumerate(updated):
        wanted = apart[i % 2][i // 2]
        assert value.dtype is wanted.dtype
        assert torch.equal(value, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_are_right_to_a_few_roundings(kind: str, dtype: Any, seed: np.random.Generator) -> None:
    xs = drawn(kind, ((40,),), seed, dtype)
    numbers = ROWS[kind][1]
    wide = [x.double() for x in xs]
    expected = LEAF.execute(bound(kind, wide), [*numbers, *wide])
    for updated, wanted in zip(LEAF.execute(bound(kind, xs), [*numbers, *xs]), expected, strict=True):
        assert updated.dtype is dtype
        # the kernels keep the moments in the narrow type before they divide by them: three roundings of a part each
        error = (updated.double() - wanted).abs().max() / wanted.abs().max()
        assert error < 4 * torch.finfo(dtype).eps


def test_time_and_rate_may_be_tensors(seed: np.random.Generator) -> None:
    xs = drawn("adam", ((3, 4), (5,)), seed, torch.float32)
    _, numbers, _, _ = ROWS["adam"]
    call = bound("adam", xs)
    expected = LEAF.execute(call, [*numbers, *xs])
    arguments = [torch.tensor(numbers[0]), *numbers[1:6], torch.tensor(float(numbers[6])), *xs]
    for updated, wanted in zip(LEAF.execute(call, arguments), expected, strict=True):
        torch.testing.assert_close(updated, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_lion_takes_steps_of_one_size_and_shows_faults(dtype: Any) -> None:
    p, g = torch.zeros(5, dtype=dtype), torch.tensor([3.0, -1e-30, 0.0, float("inf"), float("nan")], dtype=dtype)
    xs = [p, g, torch.zeros(5, dtype=dtype)]
    call = bound("lion", xs)
    expected = [-0.1, 0.1, 0.0, -0.1, float("nan")]
    for leaf, inputs in ((LEAF, xs), (HOST, [x.double().numpy() for x in xs])):
        call = call if leaf is LEAF else bound("lion", [x.double() for x in xs])
        stepped = leaf.execute(call, [0.1, 0.9, 0.99, 0.0, *inputs])[0]
        values = stepped.double().numpy() if leaf is LEAF else stepped
        np.testing.assert_allclose(values, expected, rtol=1e-2 if dtype is torch.bfloat16 else 1e-6)


def test_no_parameters_make_no_results() -> None:
    assert list(LEAF.execute(REGISTRY["sgd_update"].bind([FLOAT_NUMBER, FLOAT_NUMBER], {}), [0.1, 0.0])) == []
    assert TensorSpec.of((0,), DType.F32, "cpu").numel == 0
