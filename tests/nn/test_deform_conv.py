"""Deformable convolution beside the formula written out in torch, in float64 on both leaves."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import nn
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError, DTypeError, ShapeError
from burn_torch.tensor import DeformConvOptions, Device, Tensor, functional
from burn_torch.transform import compile
from tests.nn.loss_checks import Rng
from tests.nn.twins import array, close, compare, tensor


def formula(
    x: torch.Tensor, offset: torch.Tensor, weight: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None,
    *, stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], offset_groups: int,
) -> torch.Tensor:  # fmt: skip
    """Window by window and tap by tap; each pixel adds what the tent over it says."""
    batch, channels, height, width = x.shape
    rows, columns = torch.arange(height, dtype=x.dtype), torch.arange(width, dtype=x.dtype)
    _, own, *kernel = weight.shape
    taps = list(itertools.product(range(kernel[0]), range(kernel[1])))
    read = torch.zeros((batch, channels, len(taps), *offset.shape[2:]), dtype=x.dtype)
    each = channels // offset_groups
    for group, (k, (i, j)) in itertools.product(range(offset_groups), enumerate(taps)):
        for r, c in itertools.product(*map(range, offset.shape[2:])):
            first = 2 * (group * len(taps) + k)
            y = offset[:, first, r, c] + r * stride[0] - padding[0] + i * dilation[0]
            z = offset[:, first + 1, r, c] + c * stride[1] - padding[1] + j * dilation[1]
            tent = (1 - (y[:, None] - rows).abs()).clamp(min=0)[:, :, None] * (1 - (z[:, None] - columns).abs()).clamp(
                min=0
            )[:, None]
            values = (x[:, group * each : (group + 1) * each] * tent[:, None]).sum((2, 3))
            if mask is not None:
                values = values * mask[:, group * len(taps) + k, r, c][:, None]
            read = read.index_put(
                (
                    torch.arange(batch)[:, None],
                    torch.arange(group * each, (group + 1) * each)[None],
                    torch.tensor(k),
                    torch.tensor(r),
                    torch.tensor(c),
                ),
                values,
            )
    groups = channels // own
    read = read.reshape(batch, groups, own * len(taps), -1)
    y = torch.einsum("gok,ngkp->ngop", weight.reshape(groups, weight.shape[0] // groups, -1), read)
    y = y.reshape(batch, weight.shape[0], *offset.shape[2:])
    return y if bias is None else y + bias[:, None, None]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    {"weight_groups": 2, "offset_groups": 2, "padding": (1, 0)},
    {"offset_groups": 4, "weight_groups": 4, "stride": (1, 2)},
]


def drawn(rng: Rng, settings: dict[str, Any], batch: int = 2) -> list[np.ndarray]:
    """x, offset, weight, mask, bias; places lie up to three pixels away, some of them outside."""
    kernel, size = (2, 3), (5, 6)
    steps, sides, gaps = (settings.get(name, (n, n)) for name, n in (("stride", 1), ("padding", 0), ("dilation", 1)))
    counts = [(size[i] + 2 * sides[i] - gaps[i] * (kernel[i] - 1) - 1) // steps[i] + 1 for i in (0, 1)]
    taps = 6 * settings.get("offset_groups", 1)
    shapes = [(batch, 4, *size), (batch, 2 * taps, *counts), (4, 4 // settings.get("weight_groups", 1), *kernel)]
    x, offset, weight = (rng.normal(size=shape) for shape in shapes)
    return [x, offset * 1.5, weight, rng.uniform(0, 1, (batch, taps, *counts)), rng.normal(size=4)]


@pytest.mark.parametrize("device", [Device.cpu(), Device.ndarray()], ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_is_the_formula_with_all_gradients(settings: dict[str, Any], device: Device, seed: Rng) -> None:
    inputs = drawn(seed, settings)
    theirs = [torch.tensor(x).requires_grad_() for x in inputs]
    plain = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "offset_groups": 1, **settings}
    plain.pop("weight_groups", None)
    expected = formula(*theirs, **plain)
    upstream = seed.normal(size=expected.shape)
    wanted = torch.autograd.grad(expected, theirs, torch.tensor(upstream))
    ours = [Tensor.from_data(x, device.autodiff()).require_grad() for x in inputs]
    y = functional.deform_conv2d(*ours, DeformConvOptions(**settings))
    close(y, expected)
    grads = (y * Tensor.from_data(upstream, device.autodiff())).sum().backward()
    for x, grad in zip(ours, wanted, strict=True):
        close(x.grad(grads), grad)


def test_the_layer_is_the_formula(seed: Rng) -> None:
    config = nn.DeformConv2dConfig((4, 4), (2, 3), padding=nn.PaddingConfig2d.Explicit(1, 1, 1, 1), weight_groups=2)
    x, offset, weight, mask, bias = drawn(seed, {"padding": (1, 1), "weight_groups": 2})
    held = {"weight": torch.tensor(weight).requires_grad_(), "bias": torch.tensor(bias).requires_grad_()}
    settings: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "offset_groups": 1}

    def twin(x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return formula(x, offset, held["weight"], mask, held["bias"], **settings)

    params = {name: (value, lambda x: x) for name, value in held.items()}
    layer = compare(seed, config.init(Device.cpu().autodiff()), twin, x, offset, mask, params=params)
    compare(seed, layer, twin, x, offset, params=params)
    assert "weight_groups: 2, offset_groups: 1" in str(layer)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_without_offsets_it_is_a_convolution(settings: dict[str, Any], seed: Rng) -> None:
    x, offset, weight, _, bias = drawn(seed, settings)
    torch_settings = {name: value for name, value in settings.items() if not name.endswith("groups")}
    expected = F.conv2d(
        *map(torch.tensor, (x, weight, bias)), **torch_settings, groups=settings.get("weight_groups", 1)
    )
    y = functional.deform_conv2d(
        *map(tensor, (x, offset * 0, weight)), bias=tensor(bias), options=DeformConvOptions(**settings)
    )
    close(y, expected)


def test_on_a_pixel_the_slope_is_that_of_the_pixel_after() -> None:
    x, weight = tensor([[[[1.0, 4.0, 9.0]]]]), tensor([[[[1.0]]]])
    offset = tensor(np.zeros((1, 2, 1, 3))).require_grad()
    grad = offset.grad(functional.deform_conv2d(x, offset, weight).sum().backward())
    assert grad is not None
    assert array(grad)[0, 1, 0].tolist() == [3.0, 5.0, -9.0]


def test_places_that_are_no_numbers(seed: Rng) -> None:
    x = np.full((1, 1, 2, 2), math.inf)
    offset = np.zeros((1, 2, 2, 2))
    offset[0, 0] = [[math.nan, math.inf], [-math.inf, -5.0]]
    offset[0, 1, 0, 1] = -math.inf
    y = array(functional.deform_conv2d(tensor(x), tensor(offset), tensor([[[[1.0]]]])))
    np.testing.assert_array_equal(y, [[[[math.nan, 0.0], [0.0, 0.0]]]])


def test_half_types_are_rounded_once_and_programs_compute_the_same(seed: Rng) -> None:
    for dtype, allowed in ((DType.F16, 2**-10), (DType.BF16, 2**-7)):
        half = [tensor(x, Device.cpu()).cast(dtype) for x in drawn(seed, {})]
        y = functional.deform_conv2d(*half)
        assert y.dtype is dtype
        wide = array(functional.deform_conv2d(*(x.cast(DType.F64) for x in half)))
        np.testing.assert_allclose(array(y.cast(DType.F64)), wide, rtol=allowed, atol=allowed / 100)
    inputs = [tensor(x, Device.cpu()) for x in drawn(seed, {})]
    close(compile(functional.deform_conv2d)(*inputs), array(functional.deform_conv2d(*inputs)), 1e-12)


def test_what_does_not_fit_is_refused(seed: Rng) -> None:
    x, offset, weight, mask, bias = map(tensor, drawn(seed, {}))
    with pytest.raises(
        ShapeError, match=r"deform_conv: offset does not fit the windows\n.*\n  expected: offset \(2, 12,"
    ):
        functional.deform_conv2d(x, offset.narrow(1, 0, 6), weight)
    with pytest.raises(ShapeError, match=r"mask does not fit the windows\n.*\n  expected: mask \(2, 6, 4, 4\)"):
        functional.deform_conv2d(x, offset, weight, mask.narrow(2, 0, 1))
    with pytest.raises(ShapeError, match=r"offset_groups 3 does not divide the 4 input channels"):
        functional.deform_conv2d(x, offset, weight, options=DeformConvOptions(offset_groups=3))
    with pytest.raises(ShapeError, match="the bias does not fit the weight"):
        functional.deform_conv2d(x, offset, weight, bias=bias.narrow(0, 0, 2))
    with pytest.raises(DTypeError, match="element types differ"):
        functional.deform_conv2d(x, offset.float(), weight)
    with pytest.raises(ConfigError, match=r"no divisor of the input channels\n  given: +offset_groups = 3"):
        nn.DeformConv2dConfig((4, 4), (3, 3), offset_groups=3)
