"""Activations against torch's in float64, also far from 0; their configurations as Burn writes them."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch import nn
from burn_torch.config import Config
from burn_torch.core.errors import BurnTorchError, ConfigError, DTypeError, ShapeError
from burn_torch.module import Module, StepScope
from burn_torch.nn.activation import ActivationConfig
from burn_torch.nn.activation.gated import SwiGluConfig
from burn_torch.tensor import Device, Tensor
from tests.nn.twins import compare, same, swapped

CPU = Device.cpu()
Reference = Callable[[torch.Tensor], torch.Tensor]

TWINS: list[tuple[Any, Reference]] = [
    # torch keeps the slopes of CELU and Hardsigmoid in float32, whatever the input: formulas stand for them
    (nn.CeluConfig(alpha=0.7).init(), lambda x: 0.7 * torch.nn.functional.elu(x / 0.7)),
    (nn.EluConfig(alpha=0.7).init(), torch.nn.ELU(0.7)),
    (nn.Gelu(), torch.nn.GELU()),
    (nn.Gelu.new_approximate(), torch.nn.GELU(approximate="tanh")),
    (nn.GLU(1), torch.nn.GLU(1)),
    (nn.GLU(-1), torch.nn.GLU(-1)),
    (nn.HardShrinkConfig(lambda_=0.8).init(), torch.nn.Hardshrink(0.8)),
    (nn.HardSigmoidConfig(alpha=1 / 6).init(), lambda x: torch.clamp(x + 3, 0, 6) / 6),
    (nn.HardSigmoidConfig().init(), lambda x: torch.clamp(x * 0.2 + 0.5, 0, 1)),
    (nn.HardSwish(), torch.nn.Hardswish()),
    (nn.HardtanhConfig(min_val=-0.3, max_val=1.7).init(), torch.nn.Hardtanh(-0.3, 1.7)),
    (nn.LeakyReluConfig(negative_slope=0.3).init(), torch.nn.LeakyReLU(0.3)),
    (nn.LogSigmoid(), torch.nn.LogSigmoid()),
    (nn.Mish(), torch.nn.Mish()),
    (nn.Relu(), torch.nn.ReLU()),
    (nn.Relu6(), torch.nn.ReLU6()),
    (nn.Selu(), torch.nn.SELU()),
    (nn.ShrinkConfig(lambda_=0.8).init(), lambda x: torch.where(x.abs() > 0.8, x - 0.5 * x.sign(), 0.0)),
    (nn.ShrinkConfig().init(), torch.nn.Softshrink(0.5)),
    (nn.Sigmoid(), torch.nn.Sigmoid()),
    (nn.SiLU(), torch.nn.SiLU()),
    (nn.SoftShrinkConfig(lambda_=0.8).init(), torch.nn.Softshrink(0.8)),
    (nn.SoftplusConfig(beta=1.5).init(), torch.nn.Softplus(1.5, threshold=1e9)),
    (nn.Softsign(), torch.nn.Softsign()),
    (nn.Tanh(), torch.nn.Tanh()),
    (nn.Tanhshrink(), torch.nn.Tanhshrink()),
    (nn.ThresholdConfig(0.3, -2.5).init(), torch.nn.Threshold(0.3, -2.5)),
    (nn.ThresholdedReluConfig(alpha=0.6).init(), lambda x: torch.where(x > 0.6, x, 0.0)),
    (nn.RReluConfig(lower=0.2, upper=0.2).init(), torch.nn.LeakyReLU(0.2)),
]
NAMES = [f"{i}-{type(layer).__name__}" for i, (layer, _) in enumerate(TWINS)]
SHAPES = [(3, 4, 6), (1, 2), (0, 4)]


def differentiated(layer: Any, x: np.ndarray, g: np.ndarray, device: Device = CPU) -> tuple[np.ndarray, np.ndarray]:
    """The output, and the gradient of x for the upstream gradient g."""
    inputs = Tensor.from_data(x, device.autodiff()).require_grad()
    y = layer.forward(inputs)
    gradient = inputs.grad((y * Tensor.from_data(g, device.autodiff())).sum().backward())
    assert gradient is not None
    return np.asarray(y), np.asarray(gradient)


def expected(reference: Reference, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inputs = torch.tensor(x, requires_grad=True)
    y = reference(inputs)
    (gradient,) = torch.autograd.grad(y, inputs, torch.tensor(g))
    return y.detach().numpy(), gradient.numpy()


def output_shape(layer: Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(layer, nn.GLU):
        return shape
    dim = layer.dim % len(shape)
    return (*shape[:dim], shape[dim] // 2, *shape[dim + 1 :])


# -- values and gradients -----------------------------------------------------------------------------------
@pytest.mark.parametrize("place", [CPU, Device.ndarray()], ids=["libtorch", "ndarray"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("layer", "reference"), TWINS, ids=NAMES)
def test_equals_its_twin(
    layer: Module, reference: Reference, shape: tuple[int, ...], place: Device, seed: np.random.Generator
) -> None:
    x = seed.uniform(-4, 4, shape)
    g = seed.normal(size=output_shape(layer, shape))
    for ours, theirs in zip(differentiated(layer, x, g, place), expected(reference, x, g), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("layer", "reference"), TWINS, ids=NAMES)
def test_far_inputs_give_no_nan(layer: Module, reference: Reference, seed: np.random.Generator) -> None:
    x = np.array([[-1e100, -1e4, -800.0, -50.0, 50.0, 800.0, 1e4, 1e100]])  # the cube in gelu by tanh is finite still
    g = seed.normal(size=output_shape(layer, x.shape))
    value, gradient = differentiated(layer, x, g)
    assert np.isfinite(gradient).all()
    twin_value, twin_gradient = expected(reference, x, g)
    sound = np.isfinite(twin_gradient)  # torch's own formulas overflow at some of these
    np.testing.assert_allclose(gradient[sound], twin_gradient[sound], rtol=1e-12, atol=1e-14)
    sound = np.isfinite(twin_value)
    np.testing.assert_allclose(value[sound], twin_value[sound], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("layer", [layer for layer, _ in TWINS], ids=NAMES)
def test_strided_and_half_inputs_keep_shape_and_type(layer: Any, seed: np.random.Generator) -> None:
    x = Tensor.from_data(seed.uniform(-4, 4, (4, 6, 2)), CPU)
    turned = x.permute(1, 0, 2)
    solid = Tensor.from_data(np.ascontiguousarray(np.asarray(turned)), CPU)
    forward = layer.forward
    # vector instructions and their remainders round differently: within 4 units in the last place
    np.testing.assert_allclose(np.asarray(forward(turned)), np.asarray(forward(solid)), rtol=1e-15, atol=1e-16)
    half = forward(x.cast("bf16"))
    assert (half.shape, str(half.dtype)) == (forward(x).shape, "bf16")


@pytest.mark.parametrize(
    ("layer", "x", "slope"),
    [
        (nn.Relu(), 0.0, 0.0),
        (nn.Relu6(), 6.0, 1.0),
        (nn.HardtanhConfig().init(), -1.0, 1.0),
        (nn.LeakyReluConfig(negative_slope=0.3).init(), 0.0, 0.3),
        (nn.HardShrinkConfig().init(), 0.5, 0.0),
        (nn.SoftShrinkConfig().init(), -0.5, 0.0),
        (nn.ThresholdConfig(0.5, 2.0).init(), 0.5, 0.0),
        (nn.ThresholdedReluConfig().init(), 1.0, 0.0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Module) else str(value),
)
def test_the_gradient_at_a_kink_is_the_one_that_its_docstring_names(layer: Module, x: float, slope: float) -> None:
    _, gradient = differentiated(layer, np.array([x]), np.array([1.7]))
    assert gradient == pytest.approx(1.7 * slope)


def test_nan_stays_nan() -> None:
    for layer, _ in TWINS:
        if not isinstance(layer, nn.GLU):
            y = layer.forward(Tensor.from_data(np.array([math.nan, 1.0]), CPU))
            assert np.isnan(np.asarray(y)).tolist() == [True, False], layer


def test_celu_takes_a_negative_alpha(seed: np.random.Generator) -> None:
    x, g = seed.uniform(-2, 2, (3, 4)), seed.normal(size=(3, 4))
    value, gradient = differentiated(nn.CeluConfig(alpha=-0.7).init(), x, g)
    np.testing.assert_allclose(value, np.where(x > 0, x, -0.7 * np.expm1(x / -0.7)), rtol=1e-12)
    np.testing.assert_allclose(gradient, g * np.where(x > 0, 1, np.exp(x / -0.7)), rtol=1e-12)


# -- PRelu ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("slopes", "shape"), [(1, (2, 3, 4)), (3, (2, 3, 4)), (3, (5, 3)), (1, (4,)), (3, (0, 3))])
def test_prelu_learns_a_slope_for_all_or_for_each_channel(
    slopes: int, shape: tuple[int, ...], seed: np.random.Generator
) -> None:
    twin = torch.nn.PReLU(slopes).double()
    twin.weight.data = torch.tensor(seed.uniform(-0.5, 0.5, slopes))
    layer = nn.PReluConfig(num_parameters=slopes).init(CPU.autodiff())
    compare(seed, layer, twin, seed.normal(size=shape), params={"alpha": (twin.weight, same)}, tolerance=1e-12)


def test_prelu_begins_with_its_alpha() -> None:
    layer = nn.PReluConfig(num_parameters=3, alpha=0.125).init(CPU)
    assert np.asarray(layer.alpha.val()).tolist() == [0.125, 0.125, 0.125]
    assert layer.alpha_value == 0.125


def test_prelu_names_itself_where_the_channels_do_not_fit() -> None:
    layer = nn.PReluConfig(num_parameters=3).init(CPU)
    with pytest.raises(ShapeError, match=r"alpha fits neither all elements nor the channels") as caught:
        layer.forward(Tensor.ones((2, 4), CPU))
    assert caught.value.__notes__[-1] == "in PRelu(num_parameters=3, alpha_value=0.25)"


# -- RRelu ----------------------------------------------------------------------------------------------------
def test_rrelu_takes_the_middle_slope_where_nothing_trains(seed: np.random.Generator) -> None:
    x = seed.normal(size=(4, 5))
    y = nn.RReluConfig(lower=0.1, upper=0.3).init().forward(Tensor.from_data(x, CPU))
    np.testing.assert_allclose(np.asarray(y), np.where(x < 0, 0.2 * x, x), rtol=1e-12)


def test_rrelu_draws_a_slope_for_each_element_in_training(seed: np.random.Generator) -> None:
    burn_torch.seed(7)
    layer = nn.RReluConfig(lower=0.1, upper=0.3).init()
    x, g = seed.uniform(-2, 2, (80, 50)), seed.normal(size=(80, 50))
    value, gradient = differentiated(layer, x, g)
    below = x < 0
    np.testing.assert_array_equal(value[~below], x[~below])
    np.testing.assert_array_equal(gradient[~below], g[~below])
    slopes = value[below] / x[below]
    np.testing.assert_allclose(gradient[below], g[below] * slopes, rtol=1e-12)
    assert ((slopes > 0.1 - 1e-12) & (slopes < 0.3)).all()
    # even on [0.1, 0.3): mean 0.2, standard deviation 0.2 / sqrt(12); the mean of n is within 5 of its own
    assert abs(slopes.mean() - 0.2) < 5 * 0.2 / math.sqrt(12 * slopes.size)
    assert slopes.std() == pytest.approx(0.2 / math.sqrt(12), rel=0.05)


def test_rrelu_draws_from_the_key_of_the_step(seed: np.random.Generator) -> None:
    layer = nn.RReluConfig().init()
    x = Tensor.from_data(seed.uniform(-2, -1, (3, 4)), CPU.autodiff())

    def step(key: int) -> list[np.ndarray]:
        with StepScope(key, layer):
            return [np.asarray(layer.forward(x)), np.asarray(layer.forward(x))]

    first, again, other = step(1), step(1), step(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


# -- gated --------------------------------------------------------------------------------------------------------
def test_glu_names_itself_where_an_axis_has_no_halves() -> None:
    with pytest.raises(
        ShapeError, match=r"the axis does not have two halves\n  given: +axis 1 of .*\n.*even"
    ) as caught:
        nn.GLU(1).forward(Tensor.ones((2, 3), CPU))
    assert "in GLU(dim=1)" in caught.value.__notes__


@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_is_a_gated_pair_of_linear_maps(bias: bool, seed: np.random.Generator) -> None:
    inner, outer = (torch.nn.Linear(3, 5, bias=bias, dtype=torch.float64) for _ in range(2))
    params = {"linear_inner.weight": (inner.weight, swapped), "linear_outer.weight": (outer.weight, swapped)}
    if bias:
        params |= {"linear_inner.bias": (inner.bias, same), "linear_outer.bias": (outer.bias, same)}
    layer = SwiGluConfig(3, 5, bias=bias).init(CPU.autodiff())
    assert layer.num_params() == 2 * (15 + (5 if bias else 0))
    x = seed.normal(size=(2, 4, 3))
    compare(seed, layer, lambda x: torch.nn.functional.silu(inner(x)) * outer(x), x, params=params, tolerance=1e-12)


def test_swiglu_names_the_linear_map_that_does_not_fit() -> None:
    layer = SwiGluConfig(3, 5).init(CPU)
    with pytest.raises(ShapeError, match=r"linear: .*") as caught:
        layer.forward(Tensor.ones((2, 4), CPU))
    assert any("d_input=3" in note for note in caught.value.__notes__)


def test_an_activation_of_integers_is_an_error() -> None:
    with pytest.raises(DTypeError, match=r"relu: .*\n  given: .*i64"):
        nn.Relu().forward(Tensor.ones((2,), CPU).int())


# -- configurations ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("config", "written"),
    [
        (nn.CeluConfig(), {"alpha": 1.0}),
        (nn.EluConfig(), {"alpha": 1.0}),
        (nn.HardShrinkConfig(), {"lambda": 0.5}),
        (nn.HardSigmoidConfig(), {"alpha": 0.2, "beta": 0.5}),
        (nn.HardtanhConfig(), {"min_val": -1.0, "max_val": 1.0}),
        (nn.LeakyReluConfig(), {"negative_slope": 0.01}),
        (nn.PReluConfig(), {"num_parameters": 1, "alpha": 0.25}),
        (nn.RReluConfig(), {"lower": 0.125, "upper": 1 / 3}),
        (nn.ShrinkConfig(), {"lambda": 0.5, "bias": 0.5}),
        (nn.SoftShrinkConfig(), {"lambda": 0.5}),
        (nn.SoftplusConfig(), {"beta": 1.0}),
        (nn.ThresholdConfig(0.5, 20.0), {"threshold": 0.5, "value": 20.0}),
        (nn.ThresholdedReluConfig(), {"alpha": 1.0}),
        (
            SwiGluConfig(2, 3),
            {
                "d_input": 2,
                "d_output": 3,
                "bias": False,
                "initializer": {"KaimingUniform": {"gain": 3**-0.5, "fan_out_only": False}},
                "layout": "Row",
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_defaults_and_json_are_those_of_burn(config: Config, written: dict[str, Any]) -> None:
    assert list(json.loads(config.to_json()).items()) == list(written.items())
    assert type(config).from_json(config.to_json()) == config


CHOICES: list[tuple[ActivationConfig, Any, type[Module]]] = [
    (ActivationConfig.Identity, "Identity", nn.Identity),
    (ActivationConfig.Gelu, "Gelu", nn.Gelu),
    (ActivationConfig.GeluApproximate, "GeluApproximate", nn.Gelu),
    (ActivationConfig.PRelu(nn.PReluConfig()), {"PRelu": {"num_parameters": 1, "alpha": 0.25}}, nn.PRelu),
    (ActivationConfig.Relu, "Relu", nn.Relu),
    (ActivationConfig.LeakyRelu(nn.LeakyReluConfig()), {"LeakyRelu": {"negative_slope": 0.01}}, nn.LeakyRelu),
    (ActivationConfig.SwiGlu(SwiGluConfig(2, 3)), {"SwiGlu": json.loads(SwiGluConfig(2, 3).to_json())}, nn.SwiGlu),
    (ActivationConfig.Selu, "Selu", nn.Selu),
    (ActivationConfig.Sigmoid, "Sigmoid", nn.Sigmoid),
    (ActivationConfig.Tanh, "Tanh", nn.Tanh),
    (
        ActivationConfig.HardSigmoid(nn.HardSigmoidConfig()),
        {"HardSigmoid": {"alpha": 0.2, "beta": 0.5}},
        nn.HardSigmoid,
    ),
    (ActivationConfig.HardSwish, "HardSwish", nn.HardSwish),
    (ActivationConfig.Softplus(nn.SoftplusConfig()), {"Softplus": {"beta": 1.0}}, nn.Softplus),
    (ActivationConfig.Softsign, "Softsign", nn.Softsign),
    (ActivationConfig.Elu(nn.EluConfig()), {"Elu": {"alpha": 1.0}}, nn.Elu),
    (ActivationConfig.Celu(nn.CeluConfig()), {"Celu": {"alpha": 1.0}}, nn.Celu),
    (
        ActivationConfig.ThresholdedRelu(nn.ThresholdedReluConfig()),
        {"ThresholdedRelu": {"alpha": 1.0}},
        nn.ThresholdedRelu,
    ),
    (ActivationConfig.HardShrink(nn.HardShrinkConfig()), {"HardShrink": {"lambda": 0.5}}, nn.HardShrink),
    (ActivationConfig.SoftShrink(nn.SoftShrinkConfig()), {"SoftShrink": {"lambda": 0.5}}, nn.SoftShrink),
    (ActivationConfig.Shrink(nn.ShrinkConfig()), {"Shrink": {"lambda": 0.5, "bias": 0.5}}, nn.Shrink),
]


@pytest.mark.parametrize(("config", "written", "kind"), CHOICES, ids=lambda value: repr(value)[:40])
def test_a_choice_is_written_with_its_tag_and_makes_its_layer(
    config: ActivationConfig, written: Any, kind: type[Module]
) -> None:
    assert json.loads(config.to_json()) == written
    assert ActivationConfig.from_json(config.to_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    layer = config.init(CPU)
    assert isinstance(layer, kind)
    y = layer.forward(Tensor.ones((4, 2), CPU))
    assert y.shape == (4, 3 if kind is nn.SwiGlu else 2)


def test_the_twenty_choices_are_those_of_burn() -> None:
    tags = [written if isinstance(written, str) else next(iter(written)) for _, written, _ in CHOICES]
    assert len(set(tags)) == 20
    for tag in tags:
        assert hasattr(ActivationConfig, tag)


def test_the_choices_differ_where_they_share_a_layer() -> None:
    assert not ActivationConfig.Gelu.init(CPU).approximate  # type: ignore[union-attr]
    assert ActivationConfig.GeluApproximate.init(CPU).approximate  # type: ignore[union-attr]
    assert isinstance(ActivationConfig.Identity.init(CPU), nn.Identity)


class Block(Config):
    width: int
    activation: ActivationConfig = ActivationConfig.Gelu


def test_a_choice_is_a_field_of_other_configurations() -> None:
    block = Block(8, activation=ActivationConfig.LeakyRelu(nn.LeakyReluConfig(negative_slope=0.2)))
    assert block.to_dict() == {"width": 8, "activation": {"LeakyRelu": {"negative_slope": 0.2}}}
    assert Block.from_json(block.to_json()) == block
    assert Block(8).to_dict() == {"width": 8, "activation": "Gelu"}
    assert repr(block.activation) == "ActivationConfig.LeakyRelu(LeakyReluConfig(negative_slope=0.2))"
    assert repr(Block(8).activation) == "ActivationConfig.Gelu"
    with pytest.raises(ConfigError, match=r"unknown tag\n  given: .*'Gelo' (.|\n)*mend: +did you mean 'Gelu'"):
        Block.from_json('{"width": 8, "activation": "Gelo"}')


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.RReluConfig(lower=0.5, upper=0.2),
            r"the range is empty\n  given: +lower = 0.5\n  expected: lower <= upper, which is 0.2",
        ),
        (
            lambda: nn.HardtanhConfig(min_val=1.0),
            r"the range is empty\n  given: +min_val = 1.0\n  expected: a number below max_val, 1.0",
        ),
        (lambda: nn.CeluConfig(alpha=0.0), r"divides by zero\n  given: +alpha = 0.0\n  expected: .*\n  mend: +Relu"),
        (lambda: nn.SoftplusConfig(beta=0.0), r"not above 0\n  given: +beta = 0.0\n  expected: a number above 0"),
        (lambda: nn.PReluConfig(num_parameters=0), r"too small\n  given: +num_parameters = 0\n  expected: 1 or more"),
        (lambda: nn.HardShrinkConfig(lambda_=-0.1), r"too small\n  given: +lambda_ = -0.1\n  expected: 0 or more"),
        (lambda: nn.SoftShrinkConfig(lambda_=-0.1), r"too small\n  given: +lambda_ = -0.1\n  expected: 0 or more"),
        (lambda: nn.ShrinkConfig(lambda_=-0.1), r"too small\n  given: +lambda_ = -0.1\n  expected: 0 or more"),
        (lambda: SwiGluConfig(-1, -2), r"d_input(.|\n)*d_output"),
    ],
)
def test_a_configuration_refuses_what_no_layer_can_be(make: Callable[[], Config], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


# -- display --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "shown"),
    [
        (nn.Relu(), "Relu"),
        (nn.SiLU(), "SiLU"),
        (nn.Gelu(), "Gelu {approximate: false}"),
        (nn.GLU(1), "GLU {dim: 1}"),
        (nn.CeluConfig().init(), "Celu {alpha: 1.0}"),
        (nn.SoftShrinkConfig().init(), "SoftShrink {lambda: 0.5}"),
        (nn.ShrinkConfig().init(), "Shrink {lambda: 0.5, bias: 0.5}"),
        (nn.HardtanhConfig().init(), "Hardtanh {min_val: -1.0, max_val: 1.0}"),
        (nn.RReluConfig(lower=0.1, upper=0.3).init(), "RRelu {lower: 0.1, upper: 0.3}"),
        (nn.PReluConfig().init(CPU), "PRelu {num_parameters: 1, alpha_value: 0.25, params: 1}"),
        (SwiGluConfig(3, 5).init(CPU), "SwiGlu {d_input: 3, d_output: 5, bias: false, params: 30}"),
    ],
    ids=lambda value: "" if isinstance(value, Module) else re.sub(r"\W.*", "", value),
)
def test_display(layer: Module, shown: str) -> None:
    assert str(layer) == shown


def test_all_errors_are_of_one_family() -> None:
    with pytest.raises(BurnTorchError, match=r"expected: .*\n  mend: "):
        nn.GLU(5).forward(Tensor.ones((2, 4), CPU))
