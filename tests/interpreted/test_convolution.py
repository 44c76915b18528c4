"""Direct convolutions in the interpreter: configs of each kernel, ragged blocks, NaN and equals in a pool."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import convolution, dropout  # after the check for triton
from burn_kernels.convolution import Config, WeightConfig
from burn_kernels.convolution import depthwise as convolution_depthwise  # after the check for triton
from burn_kernels.convolution.configs import STEPS
from burn_kernels.convolution.launch_backward import data_gradient, weight_gradient
from burn_kernels.launch import H200
from burn_kernels.spec import Draw

CONFIGS = [Config(4, 32, 1), Config(3, 64, 2), Config(8, 32, 1, 2), Config(16, 64, 2, 1)]
WEIGHT_CONFIGS = [
    WeightConfig(2, 3, 32, 1, 8),
    WeightConfig(3, 1, 32, 1, 2),
    WeightConfig(16, 3, 32, 1, 8, 2),
    WeightConfig(16, 3, 64, 2, 1, 1),
]


PLANES = [
    convolution_depthwise.Config(*numbers) for numbers in ((2, 4, 1, 2), (3, 2, 1, 1), (4, 1, 2, 3), (7, 8, 1, 2))
]


def close(actual: Any, expected: Any, config: object) -> None:
    # float32 sums of some hundred products in another order
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-5, msg=lambda text: f"{config}\n{text}")


@pytest.mark.parametrize(
    "last", [pytest.param(False, id="in order"), pytest.param(True, id="channels last", marks=pytest.mark.slow)]
)
def test_configs_of_each_kernel(last: bool) -> None:
    draw = Draw(3)
    x, w, b = draw.normal(1, 2, 5, 7).float(), draw.normal(5, 2, 3, 3).float(), draw.normal(5).float()
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    options: dict[str, Any] = {"padding": 1, "stride": 2 if last else 1}
    geometry = convolution.geometry("", x, w, b, options["stride"], 1, 1, 1)
    y, _ = convolution.reference(x, w, b, **options)
    dz = draw.normal(*y.shape).float()
    dx, dw, db = convolution.reference_backward(dz, x, w, b, **options)
    for config in CONFIGS:
        close(convolution.forward(x, w, b, **options, config=config)[0], y, config)
        close(data_gradient(dz, x, w, geometry, config), dx, config)
    for weight_config in WEIGHT_CONFIGS:
        close(weight_gradient(dz, x, w, geometry, True, weight_config), (dw, db), weight_config)
    library = convolution.LIBRARY, convolution.LIBRARY_WEIGHTS
    close(convolution.forward(x, w, b, **options, config=library[0])[0], y, library)
    close(data_gradient(dz, x, w, geometry, library[0]), dx, library)
    close(weight_gradient(dz, x, w, geometry, True, library[1]), (dw, db), library)
    close(weight_gradient(dz, x, w, geometry, False, WEIGHT_CONFIGS[0]), (dw, None), "no bias")


def test_tiles_of_groups_and_of_a_row_of_taps() -> None:
    """Two groups of three channels, read two at a time: the fourth is none; 20 columns, in pieces of 16."""
    draw = Draw(6)
    x, w = draw.normal(2, 6, 3, 9).float(), draw.normal(10, 3, 2, 5).float()
    geometry = convolution.geometry("", x, w, None, (1, 2), (0, 1), (1, 1), 2)
    y, _ = convolution.reference(x, w, **geometry.options)
    dz = draw.normal(*y.shape).float()
    dx, dw, _ = convolution.reference_backward(dz, x, w, None, **geometry.options)
    config = Config(8, 32, 1, 2)
    close(convolution.forward(x, w, **geometry.options, config=config)[0], y, config)
    close(data_gradient(dz, x, w, geometry, config), dx, config)
    close(weight_gradient(dz, x, w, geometry, False, WeightConfig(16, 2, 32, 1, 8, 2))[0], dw, "weights")


def test_weight_gradients_of_32_channels_at_once() -> None:
    draw = Draw(10)
    x, w, b = draw.normal(2, 2, 6, 7).float(), draw.normal(37, 2, 3, 5).float(), draw.normal(37).float()
    geometry = convolution.geometry("", x, w, b, 2, (1, 2), 1, 1)
    y, _ = convolution.reference(x, w, b, **geometry.options)
    dz = draw.normal(*y.shape).float()
    _, dw, db = convolution.reference_backward(dz, x, w, b, **geometry.options)
    config = WeightConfig(32, 3, 32, 1, 1, 1)
    close(weight_gradient(dz, x, w, geometry, True, config), (dw, db), config)


DEPTHWISE = [
    pytest.param((2, 3, 7, 8), (3, 3), (1, 1), id="whole vectors"),
    pytest.param((1, 2, 5, 7), (3, 3), (1, 0), id="an output narrower than the input"),
    pytest.param((1, 3, 9, 5), (2, 3), (0, 1), id="an output lower than the input"),
    pytest.param((2, 2, 6, 4), (5, 3), (2, 1), id="unlike sides", marks=pytest.mark.slow),
    pytest.param((40, 2, 3, 9), (3, 1), (1, 0), id="many images", marks=pytest.mark.slow),
    pytest.param((2, 2, 4, 8), (1, 1), (0, 0), id="one tap", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("shape", "kernel", "padding"), DEPTHWISE)
def test_planes_of_depthwise_convolutions(
    shape: tuple[int, ...], kernel: tuple[int, int], padding: tuple[int, int]
) -> None:
    draw, channels = Draw(8), shape[1]
    x, w, b = draw.normal(*shape).float(), draw.normal(channels, 1, *kernel).float(), draw.normal(channels).float()
    options: dict[str, Any] = {"padding": padding, "groups": channels}
    y, _ = convolution.reference(x, w, b, **options)
    dy = draw.normal(*y.shape).float()
    grads = convolution.reference_backward(dy, x, w, b, **options)
    for config in (*PLANES, convolution_depthwise.LIBRARY):
        close(convolution.forward(x, w, b, **options, config=config)[0], y, config)
        for needs in ((True, True, True), (True, False, False), (False, True, False)):
            needed = convolution.backward(dy, x, w, b, **options, needs=needs, config=config)
            expected = tuple(g if need else None for g, need in zip(grads, needs, strict=True))
            close(needed, expected, (config, needs))


def test_planes_that_do_not_lie_in_order_are_copied_and_kept() -> None:
    draw = Draw(9)
    x = draw.normal(2, 5, 6, 3).float().permute(0, 3, 1, 2)  # channels last
    w, dy = draw.normal(3, 1, 3, 3).float(), draw.normal(2, 3, 6, 5).float().transpose(2, 3)
    before = x.clone()
    y, _ = convolution.forward(x, w, padding=1, groups=3)
    close(y, convolution.reference(x, w, padding=1, groups=3)[0], "forward")
    assert y.is_contiguous()
    grads = convolution.backward(dy, x, w, None, padding=1, groups=3)
    close(grads, convolution.reference_backward(dy, x, w, None, padding=1, groups=3), "backward")
    assert torch.equal(x, before)


@pytest.mark.parametrize("pool", ["none", "max", "mean"])
def test_torch_as_candidate_does_what_follows_too(pool: str) -> None:
    draw = Draw(4)
    x, w, b = draw.normal(2, 1, 6, 7).float(), draw.normal(2, 1, 2, 2).float(), draw.normal(2).float()
    options: dict[str, Any] = {"relu": True, "pool": pool, "prob": 0.3, "key": 7, "stream": 9}
    expected = convolution.reference(x, w, b, **options)
    for config in (convolution.LIBRARY, CONFIGS[0]):
        close(convolution.forward(x, w, b, **options, config=config), expected, config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_data_gradient_by_steps_of_one(dtype: torch.dtype) -> None:
    draw = Draw(9)
    x, w = draw.normal(2, 3, 9, 12).to(dtype), draw.normal(5, 3, 5, 4).to(dtype)
    options: dict[str, Any] = {"stride": (2, 3), "padding": (2, 1)}
    dz = draw.normal(2, 5, 5, 4).to(dtype)
    dx, _, _ = convolution.reference_backward(dz, x, w, None, needs=(True, False, False), **options)
    grad, _, _ = convolution.backward(dz, x, w, None, needs=(True, False, False), **options, config=STEPS)
    assert grad is not None
    assert grad.is_contiguous()
    half = dtype == torch.bfloat16
    torch.testing.assert_close(grad, dx, rtol=1.6e-2 if half else 1e-5, atol=1e-2 if half else 2e-5)


@pytest.mark.slow
def test_candidates_run_and_agree() -> None:
    draw = Draw(5)
    x, w = draw.normal(1, 1, 12, 13).float(), draw.normal(9, 1, 3, 3).float()
    geometry = convolution.geometry("", x, w, None, 1, 0, 1, 1)
    y, _ = convolution.reference(x, w)
    configs = convolution.candidates(geometry, torch.float32, H200)
    assert convolution.LIBRARY in configs
    for config in configs:
        close(convolution.forward(x, w, config=config)[0], y, config)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_the_first_of_equals_and_numbers_that_are_none_in_a_pool() -> None:
    x = torch.tensor([[0.0, 0.0, -1.0, -2.0, torch.nan, 5.0], [0.0, 0.0, -3.0, -torch.inf, 7.0, torch.nan]])[None, None]
    w = torch.ones(1, 1, 1, 1)
    for relu in (False, True):
        y, passed = convolution.forward(x, w, None, relu=relu, pool="max")
        exact, bits = convolution.reference(x, w, None, relu=relu, pool="max")
        torch.testing.assert_close(y, exact, rtol=0.0, atol=0.0, equal_nan=True)
        assert passed is not None
        assert bits is not None
        assert passed[..., :2].tolist() == bits[..., :2].tolist() == [[[[0, 0] if relu else [1, 1]]]]
    y, passed = convolution.forward(torch.full((1, 1, 2, 2), -torch.inf), w, None, pool="max")
    assert passed is not None
    assert (y.item(), passed.item()) == (-torch.inf, 1)


def test_the_mask_is_that_of_dropout() -> None:
    x, w = torch.ones(2, 1, 5, 5), torch.ones(3, 1, 2, 2)
    y, _ = convolution.forward(x, w, None, prob=0.4, key=2**63 - 9, stream=2**40 + 1)
    assert torch.equal(y, 4.0 * dropout.mask(0.4, 2**63 - 9, 2**40 + 1, like=y))
    key, stream = torch.tensor(5), torch.tensor(6)  # numbers that lie on the device
    y, _ = convolution.forward(x, w, None, prob=0.4, key=key, stream=stream)
    assert torch.equal(y, 4.0 * dropout.mask(0.4, 5, 6, like=y))
