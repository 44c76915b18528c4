"""Layers against their torch twins: outputs and all gradients in float64."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn

from burn_torch import nn, ops
from burn_torch.core.errors import BoundsError, ConfigError, DTypeError, ShapeError
from burn_torch.module.initializer import Initializer
from burn_torch.tensor import Device
from tests.nn.twins import AD, CPU, array, close, compare, double, same, swapped, tensor, with_arrays

Rng = np.random.Generator


def affine(twin: Any, *names: str) -> dict[str, Any]:
    """weight and bias under our names."""
    return {ours: (getattr(twin, theirs), same) for ours, theirs in zip(names, ("weight", "bias"), strict=False)}


# -- configurations ------------------------------------------------------------------------------------------
def test_init_of_every_configuration_says_which_layer_it_makes() -> None:
    inits = [getattr(kind, "init", None) for name, kind in vars(nn).items() if name.endswith("Config")]
    layers = {typing.get_type_hints(init)["return"] for init in inits if init is not None}
    assert {nn.Linear, nn.Dropout, nn.AdaptiveAvgPool2d, nn.HuberLoss} <= layers


# -- linear --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3), (2, 1, 4, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(seed: Rng, shape: tuple[int, ...], bias: bool) -> None:
    twin = tnn.Linear(3, 4, bias=bias).double()
    params = {"weight": (twin.weight, swapped)} | ({"bias": (twin.bias, same)} if bias else {})
    compare(seed, nn.LinearConfig(3, 4, bias=bias).init(AD), twin, seed.standard_normal(shape), params=params)


def test_linear_in_torch_layout_is_the_same_map_and_saves_the_other_way_round(seed: Rng) -> None:
    layer = nn.LinearConfig(3, 4, layout=nn.LinearLayout.Col).init(AD)
    assert layer.weight.shape == (3, 4)
    record = layer.into_record()
    assert record.entries["weight"].shape == (4, 3)
    other = nn.LinearConfig(3, 4, layout=nn.LinearLayout.Col).init(AD).load_record(record)
    x = tensor(seed.standard_normal((2, 3)).astype(np.float32))
    close(other.forward(x), array(layer.forward(x)), 0)


def test_linear_names_itself_and_its_sizes_in_errors() -> None:
    layer = nn.LinearConfig(3, 4).init(AD)
    with pytest.raises(ShapeError, match=r"linear: the input does not fit the weight\n.*x \(2, 5\) f32") as caught:
        layer.forward(tensor(np.zeros((2, 5), np.float32)))
    assert "in Linear(d_input=3, d_output=4, bias=True)" in caught.value.__notes__


# -- convolution ---------------------------------------------------------------------------------------------
TWINS: dict[int, Any] = {1: tnn.Conv1d, 2: tnn.Conv2d, 3: tnn.Conv3d}
BACK: dict[int, Any] = {1: tnn.ConvTranspose1d, 2: tnn.ConvTranspose2d, 3: tnn.ConvTranspose3d}
SIZES = {1: (11,), 2: (9, 8), 3: (6, 5, 7)}


def conv_config(axes: int, channels: tuple[int, int], kernel: tuple[int, ...], **settings: Any) -> Any:
    """A configuration of 1 to 3 axes from settings of tuples."""
    if axes == 1:
        one = {name: value[0] if isinstance(value, tuple) else value for name, value in settings.items()}
        return nn.Conv1dConfig(*channels, kernel[0], **one)
    make: Any = nn.Conv2dConfig if axes == 2 else nn.Conv3dConfig
    return make(channels, kernel, **settings)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("stride", "dilation", "groups", "bias"), [(1, 1, 1, True), (2, 1, 2, False), (1, 2, 1, True)])
def test_conv(seed: Rng, axes: int, stride: int, dilation: int, groups: int, bias: bool) -> None:
    kernel = (3, 2, 1)[:axes]
    twin = TWINS[axes](4, 6, kernel, stride=stride, dilation=dilation, groups=groups, bias=bias).double()
    layer = conv_config(
        axes, (4, 6), kernel, stride=(stride,) * axes, dilation=(dilation,) * axes, groups=groups, bias=bias
    ).init(AD)
    names = ("weight", "bias") if bias else ("weight",)
    compare(seed, layer, twin, seed.standard_normal((2, 4, *SIZES[axes])), params=affine(twin, *names))


PADDINGS: dict[int, Any] = {1: nn.PaddingConfig1d, 2: nn.PaddingConfig2d, 3: nn.PaddingConfig3d}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.filterwarnings("ignore:Using padding=.same:UserWarning")  # torch copies for even kernels, and says so
def test_conv_same_keeps_the_size_for_even_kernels_too(seed: Rng, axes: int, dilation: int) -> None:
    kernel = (4, 3, 2)[:axes]
    twin = TWINS[axes](2, 3, kernel, padding="same", dilation=dilation).double()
    config = conv_config(axes, (2, 3), kernel, padding=PADDINGS[axes].Same, dilation=(dilation,) * axes)
    compare(
        seed,
        config.init(AD),
        twin,
        seed.standard_normal((2, 2, *SIZES[axes])),
        params=affine(twin, "weight", "bias"),
    )


@pytest.mark.parametrize(("size", "windows"), [(9, 3), (10, 4), (1, 1)])
def test_conv_same_makes_size_over_stride_windows(size: int, windows: int) -> None:
    layer = nn.Conv1dConfig(1, 1, 2, stride=3, padding=nn.PaddingConfig1d.Same).init(CPU)
    assert layer.forward(tensor(np.zeros((1, 1, size), np.float32), CPU)).shape == (1, 1, windows)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv_explicit_padding_may_differ_on_each_side(seed: Rng, axes: int) -> None:
    amounts = {1: (1, 2), 2: (1, 2, 3, 0), 3: (1, 2, 0, 3, 0, 1)}[axes]
    kernel = (3, 2, 2)[:axes]
    twin = TWINS[axes](2, 3, kernel).double()
    pairs = list(zip(amounts[:axes], amounts[axes:], strict=True))
    flat = [side for pair in reversed(pairs) for side in pair]

    def padded(x: torch.Tensor) -> torch.Tensor:
        return twin(tnn.functional.pad(x, flat))  # type: ignore[no-any-return]

    config = conv_config(axes, (2, 3), kernel, padding=PADDINGS[axes].Explicit(*amounts))
    assert config.padding.is_asymmetric()
    compare(
        seed, config.init(AD), padded, seed.standard_normal((2, 2, *SIZES[axes])), params=affine(twin, "weight", "bias")
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "out", "groups"), [(1, 0, 0, 1), (2, 1, 1, 2), (3, 0, 2, 1)])
def test_conv_transpose(seed: Rng, axes: int, stride: int, padding: int, out: int, groups: int) -> None:
    kernel = (3, 2, 3)[:axes]
    twin = BACK[axes](4, 6, kernel, stride=stride, padding=padding, output_padding=out, groups=groups).double()
    many: dict[str, Any] = {"stride": (stride,) * axes, "padding": (padding,) * axes, "padding_out": (out,) * axes}
    if axes == 1:
        config: Any = nn.ConvTranspose1dConfig(
            (4, 6), kernel[0], stride=stride, padding=padding, padding_out=out, groups=groups
        )
    else:
        make: Any = nn.ConvTranspose2dConfig if axes == 2 else nn.ConvTranspose3dConfig
        config = make((4, 6), kernel, groups=groups, **many)
    sizes = tuple(size - 2 for size in SIZES[axes])
    compare(seed, config.init(AD), twin, seed.standard_normal((2, 4, *sizes)), params=affine(twin, "weight", "bias"))


def test_conv_says_how_many_axes_it_wants() -> None:
    layer = nn.Conv2dConfig((1, 2), (3, 3)).init(CPU)
    with pytest.raises(ShapeError, match=r"Conv2d: the input has 3 axes\n.*\n.*\(batch, channels, height, width\)"):
        layer.forward(tensor(np.zeros((1, 8, 8), np.float32), CPU))


def test_conv_config_tells_all_faults_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)Conv2dConfig: 2 faults.*kernel_size = \(0, 3\).*groups = 4"):
        nn.Conv2dConfig((4, 6), (0, 3), groups=4)


# -- pooling -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool(seed: Rng, ceil_mode: bool) -> None:
    one = nn.MaxPool1dConfig(3, stride=2, padding=nn.PaddingConfig1d.Explicit(1, 1), dilation=2, ceil_mode=ceil_mode)
    compare(seed, one.init(), tnn.MaxPool1d(3, 2, 1, 2, ceil_mode=ceil_mode), seed.standard_normal((2, 3, 12)))
    two = nn.MaxPool2dConfig(
        (3, 2), strides=(2, 1), padding=nn.PaddingConfig2d.Explicit(1, 0, 1, 0), ceil_mode=ceil_mode
    )
    twin = tnn.MaxPool2d((3, 2), (2, 1), (1, 0), ceil_mode=ceil_mode)
    compare(seed, two.init(), twin, seed.standard_normal((2, 3, 8, 7)))


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count", [False, True])
def test_avg_pool(seed: Rng, ceil_mode: bool, count: bool) -> None:
    options: dict[str, Any] = {"count_include_pad": count, "ceil_mode": ceil_mode}
    one = nn.AvgPool1dConfig(3, stride=2, padding=nn.PaddingConfig1d.Explicit(1, 1), **options)
    compare(seed, one.init(), tnn.AvgPool1d(3, 2, 1, **options), seed.standard_normal((2, 3, 12)))
    two = nn.AvgPool2dConfig((3, 2), strides=(2, 1), padding=nn.PaddingConfig2d.Explicit(1, 0, 1, 0), **options)
    compare(seed, two.init(), tnn.AvgPool2d((3, 2), (2, 1), (1, 0), **options), seed.standard_normal((2, 3, 8, 7)))


def test_pools_move_by_their_window_unless_told() -> None:
    assert nn.MaxPool2dConfig((3, 2)).init().strides == (3, 2)
    assert nn.AvgPool1dConfig(4).init().stride == 4


def test_pools_with_padding_that_differs_on_each_side(seed: Rng) -> None:
    x = seed.standard_normal((2, 3, 6, 7))
    padding = nn.PaddingConfig2d.Explicit(1, 0, 0, 1)
    compare(
        seed,
        nn.MaxPool2dConfig((2, 2), padding=padding).init(),
        lambda t: tnn.functional.max_pool2d(tnn.functional.pad(t, (0, 1, 1, 0), value=-np.inf), 2),
        x,
    )

    def without_padding(t: torch.Tensor) -> torch.Tensor:
        total = tnn.functional.avg_pool2d(tnn.functional.pad(t, (0, 1, 1, 0)), 2)
        return total / tnn.functional.avg_pool2d(tnn.functional.pad(torch.ones_like(t), (0, 1, 1, 0)), 2)

    compare(seed, nn.AvgPool2dConfig((2, 2), padding=padding, count_include_pad=False).init(), without_padding, x)
    compare(
        seed,
        nn.AvgPool2dConfig((2, 2), padding=padding).init(),
        lambda t: tnn.functional.avg_pool2d(tnn.functional.pad(t, (0, 1, 1, 0)), 2),
        x,
    )


def test_adaptive_avg_pool(seed: Rng) -> None:
    one, two = nn.AdaptiveAvgPool1dConfig(4).init(), nn.AdaptiveAvgPool2dConfig((3, 5)).init()
    compare(seed, one, tnn.AdaptiveAvgPool1d(4), seed.standard_normal((2, 3, 9)))
    compare(seed, two, tnn.AdaptiveAvgPool2d((3, 5)), seed.standard_normal((2, 3, 7, 8)))
    three = nn.AdaptiveAvgPool3dConfig((2, 3, 1)).init()
    compare(seed, three, tnn.AdaptiveAvgPool3d((2, 3, 1)), seed.standard_normal((2, 3, 5, 4, 6)))


# -- embedding -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(4,), (2, 3), (0, 2), (2, 3, 1)])
def test_embedding(seed: Rng, shape: tuple[int, ...]) -> None:
    twin = tnn.Embedding(5, 3).double()
    compare(seed, nn.EmbeddingConfig(5, 3).init(AD), twin, seed.integers(0, 5, shape), params=affine(twin, "weight"))


def test_embedding_refuses_an_index_that_is_no_row() -> None:
    layer = nn.EmbeddingConfig(5, 3).init(CPU)
    with pytest.raises(BoundsError, match="embedding") as caught:
        layer.forward(tensor(np.array([1, 5]), CPU))
    assert "in Embedding(n_embedding=5, d_model=3)" in caught.value.__notes__


# -- normalisation -------------------------------------------------------------------------------------------
NORMS = ("gamma", "beta")


def shuffle(seed: Rng, twin: Any) -> Any:
    """The twin with weights that are not 1 and 0."""
    for value in twin.parameters():
        value.data = torch.from_numpy(seed.standard_normal(value.shape))
    return twin


def test_layer_norm(seed: Rng) -> None:
    for shape in ((4, 5), (5,), (2, 3, 5), (0, 5)):
        twin = shuffle(seed, tnn.LayerNorm(5, eps=1e-3).double())
        layer = nn.LayerNormConfig(5, epsilon=1e-3).init(AD)
        compare(seed, layer, twin, seed.standard_normal(shape), params=affine(twin, *NORMS))
    twin = shuffle(seed, tnn.LayerNorm(5, bias=False).double())
    layer = nn.LayerNormConfig(5, bias=False).init(AD)
    compare(seed, layer, twin, seed.standard_normal((4, 5)), params=affine(twin, "gamma"))


def test_rms_norm(seed: Rng) -> None:
    twin = shuffle(seed, tnn.RMSNorm(5, eps=1e-3).double())
    layer = nn.RmsNormConfig(5, epsilon=1e-3).init(AD)
    compare(seed, layer, twin, seed.standard_normal((2, 3, 5)), params=affine(twin, "gamma"))


@pytest.mark.parametrize("affine_", [True, False])
def test_group_norm_and_instance_norm(seed: Rng, affine_: bool) -> None:
    x = seed.standard_normal((2, 6, 3, 4))
    names = NORMS if affine_ else ()
    group = shuffle(seed, tnn.GroupNorm(3, 6, affine=affine_).double())
    compare(seed, nn.GroupNormConfig(3, 6, affine=affine_).init(AD), group, x, params=affine(group, *names))
    instance = shuffle(seed, tnn.InstanceNorm2d(6, affine=affine_).double())
    compare(seed, nn.InstanceNormConfig(6, affine=affine_).init(AD), instance, x, params=affine(instance, *names))


def test_group_norm_checks_the_channels_even_without_gamma() -> None:
    with pytest.raises(ShapeError, match=r"GroupNorm: the input does not fit the layer\n.*\(2, 4, 3\)"):
        nn.GroupNormConfig(2, 6, affine=False).init(CPU).forward(tensor(np.zeros((2, 4, 3), np.float32), CPU))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_local_response_norm(seed: Rng, size: int) -> None:
    layer = nn.LocalResponseNormConfig(size, alpha=0.3, beta=0.6, k=1.5).init()
    twin = tnn.LocalResponseNorm(size, 0.3, 0.6, 1.5)
    compare(seed, layer, twin, seed.standard_normal((2, 4, 3, 5)))
    compare(seed, layer, twin, seed.standard_normal((2, 4, 3)))


def test_normalization_config_makes_the_layer_it_names() -> None:
    config = nn.NormalizationConfig.Group(nn.GroupNormConfig(2, 4))
    assert isinstance(config.init(AD), nn.GroupNorm)
    assert config.num_features() == 4
    assert config.with_num_features(6) == nn.NormalizationConfig.Group(nn.GroupNormConfig(2, 6))
    identity = nn.NormalizationConfig.Identity
    assert isinstance(identity.init(AD), nn.Identity)
    assert identity.num_features() == 0
    assert identity.with_num_features(3) is identity


# -- what the layers say of themselves ---------------------------------------------------------------------------
def test_sizes_are_checked_before_anything_is_made() -> None:
    for make in (
        lambda: nn.DropoutConfig(1.5),
        lambda: nn.BatchNormConfig(0),
        lambda: nn.GroupNormConfig(4, 6),
        lambda: nn.MaxPool2dConfig((0, 1)),
        lambda: nn.EmbeddingConfig(0, 4),
        lambda: nn.PaddingConfig2d.Explicit(-1, 0, 0, 0),
        lambda: nn.LayerNormConfig(4, epsilon=0.0),
        lambda: nn.GaussianNoiseConfig(-1.0),
    ):
        with pytest.raises(ConfigError, match=r"(?s)given: .*expected: .*mend: "):
            make()


def test_a_layer_of_the_inner_device_takes_tracked_inputs(seed: Rng) -> None:
    layer = double(nn.LinearConfig(3, 2).init(CPU))
    x = tensor(seed.standard_normal((4, 3))).require_grad()
    grads = ops.sum(layer.forward(x), dims=(0, 1)).backward()
    grad = x.grad(grads)
    assert grad is not None
    close(grad, np.tile(array(layer.weight.val()).sum(1), (4, 1)))


def test_forward_is_the_same_on_both_leaves(seed: Rng) -> None:
    weight, bias = seed.standard_normal((3, 4)), seed.standard_normal(4)
    x = seed.standard_normal((2, 3))
    for device in (CPU, Device.ndarray()):
        layer = with_arrays(
            nn.LinearConfig(3, 4, initializer=Initializer.Zeros).init(device), {"weight": weight, "bias": bias}
        )
        close(layer.forward(tensor(x, device)), x @ weight + bias)


def test_a_layer_says_what_is_no_tensor_of_ours() -> None:
    for foreign, words in ((torch.ones(1, 1, 3), r"torch\.Tensor"), (np.ones((1, 1, 3)), r"numpy\.ndarray")):
        with pytest.raises(DTypeError, match=rf"linear: an input is neither(?s:.*){words}(?s:.*)Tensor.from_torch"):
            nn.LinearConfig(3, 4).init(AD).forward(foreign)
        with pytest.raises(ShapeError, match=r"Conv2d: the input has 3 axes(?s:.*) \(1, 1, 3\)"):
            nn.Conv2dConfig([1, 2], [1, 1]).init(AD).forward(foreign)
        with pytest.raises(DTypeError, match=rf"conv: an input is neither(?s:.*){words}(?s:.*)Tensor.from_torch"):
            nn.Conv1dConfig(1, 2, 1).init(AD).forward(foreign)
