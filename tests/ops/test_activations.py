"""Activations and softmaxes where a table of samples does not reach: kinks, ends of ranges, NaN, half types, errors."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch.nn import functional

from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.ops import REGISTRY
from tests.ops.twins import LEAVES, close, compare, gradients, read, run, values

TWINS: Final[dict[str, tuple[Any, tuple[float, ...]]]] = {
    "relu": (torch.relu, ()),
    "leaky_relu": (functional.leaky_relu, (0.2,)),
    "threshold": (functional.threshold, (0.5, -2.0)),
    "thresholded_relu": (lambda x, alpha: functional.threshold(x, alpha, 0.0), (1.0,)),
    "hard_shrink": (functional.hardshrink, (0.5,)),
    "soft_shrink": (functional.softshrink, (0.5,)),
    "shrink": (lambda x, low, bias: torch.where(x.abs() <= low, x * 0, x - x.sign() * bias), (0.5, 0.25)),
    # written out: torch takes 1/6 in float32 in the gradient of its own
    "hard_sigmoid": (lambda x, alpha, beta: torch.clamp(x * alpha + beta, 0, 1), (1 / 6, 0.5)),
    "hard_swish": (functional.hardswish, ()),
    "sigmoid": (torch.sigmoid, ()),
    "log_sigmoid": (functional.logsigmoid, ()),
    "silu": (functional.silu, ()),
    "softplus": (lambda x, beta: functional.softplus(x, beta, threshold=700), (1.5,)),
    "mish": (functional.mish, ()),
    "gelu": (functional.gelu, ()),
    "gelu_approximate": (lambda x: functional.gelu(x, approximate="tanh"), ()),
    "elu": (functional.elu, (0.7,)),
    # written out: torch takes 1 / alpha in float32 in the gradient of its own
    "celu": (lambda x, alpha: torch.relu(x) + alpha * torch.expm1(x.clamp(max=0) / alpha), (0.7,)),
    "selu": (torch.selu, ()),
}
POINTS: Final = np.array(
    [*np.linspace(-7.3, 7.1, 37), -1e4, 1e4, -745.0, 710.0, -89.0, 89.0, -20.5, 20.5, -1e-300, 1e-300]
)


@pytest.mark.parametrize("name", TWINS)
def test_value_and_gradient_are_those_of_the_twin(name: str, seed: np.random.Generator) -> None:
    twin, numbers = TWINS[name]
    compare(seed, name, lambda x, *rest: twin(x, *rest), POINTS, *numbers)


@pytest.mark.parametrize("name", TWINS)
def test_infinities_and_nan_are_those_of_the_twin(name: str) -> None:
    twin, numbers = TWINS[name]
    ends = np.array([math.inf, -math.inf, math.nan])
    expected = twin(torch.from_numpy(ends), *numbers).numpy()
    if name == "shrink":  # the twin here is written with inf * 0
        expected = ends
    for leaf in LEAVES:
        np.testing.assert_array_equal(run(leaf, name, ends, *numbers), expected, err_msg=f"{leaf} {name}")


@pytest.mark.parametrize("name", [*TWINS, "softmax", "log_softmax", "quiet_softmax"])
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_half_types_round_once(name: str, dtype: DType) -> None:
    x = np.linspace(-4.3, 4.1, 24).reshape(4, 6)
    numbers = TWINS[name][1] if name in TWINS else ()
    attrs: dict[str, Any] = {} if name in TWINS else {"dim": 1}
    half = 2.0**-11 if dtype is DType.F16 else 2.0**-8
    output = run(LEAVES[0], name, x, *numbers, dtype=dtype, **attrs)
    rounded = read(values(LEAVES[0], [x], dtype)[0]).astype(np.float64)
    expected = run(LEAVES[0], name, rounded, *numbers, **attrs)
    # one rounding of the result (torch's log_softmax adds a fraction), and float32 steps, which may cancel
    np.testing.assert_allclose(output, expected, rtol=1.3 * half, atol=32 * 2.0**-24)


def test_gradient_at_kinks() -> None:
    ones = np.ones(3)
    kinks = {
        ("relu", (0.0,) * 3, ()): (0.0,) * 3,
        ("leaky_relu", (0.0, -0.0, 0.0), (0.2,)): (0.2,) * 3,
        ("threshold", (0.5,) * 3, (0.5, -2.0)): (0.0,) * 3,
        ("thresholded_relu", (1.0,) * 3, (1.0,)): (0.0,) * 3,
        ("hard_shrink", (-0.5, 0.0, 0.5), (0.5,)): (0.0,) * 3,
        ("soft_shrink", (-0.5, 0.0, 0.5), (0.5,)): (0.0,) * 3,
        ("shrink", (-0.5, 0.0, 0.5), (0.5, 0.25)): (0.0,) * 3,
        ("hard_sigmoid", (-2.0, 0.0, 2.0), (0.25, 0.5)): (0.0, 0.25, 0.0),
        ("hard_swish", (-3.0, 0.0, 3.0), ()): (0.0, 0.5, 1.0),
        ("elu", (0.0,) * 3, (0.7,)): (0.7,) * 3,
        ("celu", (0.0,) * 3, (0.7,)): (1.0,) * 3,
    }
    for leaf in LEAVES:
        for (name, x, numbers), expected in kinks.items():
            (grad,) = gradients(leaf, name, [np.array(x), *numbers], [ones], {})
            assert grad is not None
            np.testing.assert_array_equal(grad, expected, err_msg=f"{leaf} {name}")


def test_softplus_has_no_jump_at_twenty() -> None:
    x = np.array([19.999999, 20.000001, 30.0, 36.0])
    expected = np.array([v + math.log1p(math.exp(-v)) for v in x])
    assert functional.softplus(torch.tensor(30.0, dtype=torch.float64)) == 30.0  # what is avoided here
    for leaf in LEAVES:
        np.testing.assert_allclose(run(leaf, "softplus", x, 1.0), expected, rtol=2.0**-52)


@pytest.mark.parametrize("shape", [(4, 3, 5), (4, 3)])
@pytest.mark.parametrize("slopes", [1, 3])
def test_prelu_is_the_twin(shape: tuple[int, ...], slopes: int, seed: np.random.Generator) -> None:
    x = seed.uniform(-2, 2, shape)
    compare(seed, "prelu", functional.prelu, x, seed.uniform(0.1, 0.5, slopes))


def test_prelu_at_zero_and_nan() -> None:
    for leaf in LEAVES:
        x, alpha = np.array([0.0, -0.0, math.nan, math.inf, -math.inf]), np.array([0.25])
        dx, _ = gradients(leaf, "prelu", [x, alpha], [np.ones(5)], {})
        assert dx is not None
        np.testing.assert_array_equal(dx, [0.25, 0.25, 0.25, 1.0, 0.25])
        np.testing.assert_array_equal(run(leaf, "prelu", x, alpha), [0.0, 0.0, math.nan, math.inf, -math.inf])


# -- softmaxes -----------------------------------------------------------------------------------------
LINES: Final = np.array(
    [
        [1e4, 1e4, -1e4, 0.0],
        [-math.inf, 1.0, 2.0, -math.inf],
        [-math.inf, -math.inf, -math.inf, -math.inf],
        [math.inf, 1.0, 2.0, 3.0],
        [math.nan, 1.0, 2.0, 3.0],
        [5.0, 5.0, 5.0, 5.0],
    ]
)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_is_the_twin(name: str, dim: int, seed: np.random.Generator) -> None:
    compare(seed, name, lambda x: getattr(torch, name)(x, dim), seed.uniform(-9, 9, (3, 4, 5)), dim=dim)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_extreme_lines_is_the_twin(name: str, seed: np.random.Generator) -> None:
    compare(seed, name, lambda x: getattr(torch, name)(x, 1), LINES, dim=1)


def test_quiet_softmax_is_softmax_with_one_more_zero(seed: np.random.Generator) -> None:
    def twin(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.cat([x, torch.zeros(x.shape[0], 1, dtype=x.dtype)], 1), 1)[:, :-1]

    compare(seed, "quiet_softmax", twin, seed.uniform(-9, 9, (5, 4)), dim=1)
    compare(seed, "quiet_softmax", twin, LINES[[0, 1, 2, 5]], dim=1)
    for leaf in LEAVES:
        outputs = run(leaf, "quiet_softmax", LINES, dim=1)
        assert not outputs[2].any(), "a line that is -inf everywhere selects nothing"
        assert np.isnan(outputs[4]).all()


def test_softmax_over_strided_lines(seed: np.random.Generator) -> None:
    x = seed.uniform(-3, 3, (4, 6))
    for leaf in LEAVES:
        turned = REGISTRY["permute"](*values(leaf, [x]), axes=(1, 0))
        outputs = REGISTRY["softmax"](turned, dim=0)
        close("softmax of a transposed input", read(outputs), run(leaf, "softmax", x.T.copy(), dim=0))


# -- errors -----------------------------------------------------------------------------------------------
def test_integers_are_refused() -> None:
    with pytest.raises(
        DTypeError,
        match=r"(?s)gelu: x has an element type.*given:    x \(3,\) i64.*expected: x of type float.*mend:     cast it",
    ):
        run(LEAVES[0], "gelu", np.arange(3))


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"(?s)softmax: dim 2 is out of range.*given:    x \(2, 3\) f64, dim 2.*mend: "
    ):
        run(LEAVES[0], "softmax", np.zeros((2, 3)), dim=2)


def test_slopes_that_fit_no_channel_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"(?s)prelu: alpha fits neither.*given:    x \(2, 3\) f64, alpha \(4,\) f64"
        r".*expected: alpha \(1,\) or \(3,\).*mend:     PReluConfig",
    ):
        run(LEAVES[0], "prelu", np.zeros((2, 3)), np.zeros(4))


def test_a_bool_is_no_slope() -> None:
    with pytest.raises(DTypeError, match=r"(?s)leaky_relu: a bool number beside f64 values.*expected: .*mend: "):
        run(LEAVES[0], "leaky_relu", np.zeros(3), True)
