"""Losses of elements against torch's in float64, what all losses refuse, their configurations, other stacks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import nn
from burn_torch.backend import Autodiff
from burn_torch.config import Config
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ConfigError, ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Trace
from burn_torch.module import Module
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device, Tensor
from tests.nn.loss_checks import TIGHT, Rng, differentiated, signs
from tests.nn.twins import AD, CPU, array, close, compare, tensor


# -- element by element ---------------------------------------------------------------------------------------
def poisson(log_input: bool, full: bool) -> Callable[..., torch.Tensor]:
    return lambda x, t: F.poisson_nll_loss(x, t, log_input=log_input, full=full, eps=1e-8, reduction="none")


def gaussian(full: bool) -> Callable[..., torch.Tensor]:
    return lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=full, eps=1e-6, reduction="none")


Inputs = Callable[[Rng, tuple[int, ...]], list[np.ndarray]]


def two(rng: Rng, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.normal(size=shape) * 2, rng.normal(size=shape) * 2]


def counts(rng: Rng, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.uniform(0.1, 3, shape), rng.choice([0.5, 2.5, 4.0], shape)]  # torch has NaN for the gradient at 0


def shares(rng: Rng, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [np.log(rng.dirichlet(np.ones(shape[-1]), shape[:-1])) for _ in range(2)]


def focal(gamma: float, alpha: float | None) -> Callable[..., torch.Tensor]:
    """The formula of the paper, from probabilities, as torchvision's sigmoid_focal_loss has it."""

    def twin(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        t = t.detach()
        p = torch.sigmoid(x) * t + torch.sigmoid(-x) * (1 - t)
        rest = torch.sigmoid(-x) * t + torch.sigmoid(x) * (1 - t)
        share = 1.0 if alpha is None else alpha * t + (1 - alpha) * (1 - t)
        return -share * rest**gamma * torch.log(p)

    return twin


ELEMENTS: list[tuple[Any, Callable[..., torch.Tensor], Inputs]] = [
    (nn.MseLoss.new(), lambda x, t: F.mse_loss(x, t, reduction="none"), two),
    (nn.LpLossConfig.l1(), lambda x, t: F.l1_loss(x, t, reduction="none"), two),
    (nn.LpLossConfig.l2(), lambda x, t: F.mse_loss(x, t, reduction="none"), two),
    (nn.LpLossConfig(3.0).init(), lambda x, t: (x - t).abs() ** 3, two),
    (nn.LpLossConfig(1.5).init(), lambda x, t: (x - t).abs() ** 1.5, two),
    (nn.LpLossConfig(0.5).init(), lambda x, t: (x - t).abs() ** 0.5, two),
    (nn.HuberLossConfig(0.7).init(), lambda x, t: F.huber_loss(x, t, delta=0.7, reduction="none"), two),
    (nn.PoissonNllLossConfig().init(), poisson(True, False), counts),
    (nn.PoissonNllLossConfig(full=True).init(), poisson(True, True), counts),
    (nn.PoissonNllLossConfig(log_input=False).init(), poisson(False, False), counts),
    (nn.PoissonNllLossConfig(log_input=False, full=True).init(), poisson(False, True), counts),
    (nn.GaussianNLLLossConfig().init(), gaussian(False), lambda rng, s: [*two(rng, s), rng.uniform(0.1, 2, s)]),
    (nn.GaussianNLLLossConfig(full=True).init(), gaussian(True), lambda rng, s: [*two(rng, s), rng.uniform(0.1, 2, s)]),
    (
        nn.KLDivLossConfig().init(),
        lambda x, t: F.kl_div(x, t, reduction="none"),
        lambda rng, s: [shares(rng, s)[0], np.exp(shares(rng, s)[1])],
    ),
    (
        nn.KLDivLossConfig(log_target=True).init(),
        lambda x, t: F.kl_div(x, t, reduction="none", log_target=True),
        shares,
    ),
    (
        nn.HingeEmbeddingLossConfig(margin=0.8).init(),
        lambda x, t: F.hinge_embedding_loss(x, t.detach(), margin=0.8, reduction="none"),
        lambda rng, s: [rng.normal(size=s), signs(rng, s)],
    ),
    (
        nn.MarginRankingLossConfig(margin=0.3).init(),
        lambda a, b, t: F.margin_ranking_loss(a, b, t, margin=0.3, reduction="none"),
        lambda rng, s: [*two(rng, s), signs(rng, s)],
    ),
    *[
        (
            nn.FocalLossConfig(gamma=gamma, alpha=alpha).init(),
            focal(gamma, alpha),
            lambda rng, s: [rng.normal(size=s) * 5, rng.choice([0.0, 1.0], s)],
        )
        for gamma, alpha in ((2.0, 0.25), (0.5, None), (0.0, 0.9))
    ],
    (
        nn.SoftMarginLoss.new(),
        lambda x, t: F.softplus(-t * x, threshold=1e9),
        lambda rng, s: [rng.normal(size=s) * 5, signs(rng, s)],
    ),
]


NAMES = [f"{i}-{type(loss).__name__}" for i, (loss, _, _) in enumerate(ELEMENTS)]


@pytest.mark.parametrize("shape", [(3, 4), (5,), (2, 3, 2), (1, 1), (0, 3)], ids=str)
@pytest.mark.parametrize(("loss", "twin", "inputs"), ELEMENTS, ids=NAMES)
def test_each_element_equals_the_twin(
    loss: Any, twin: Callable[..., torch.Tensor], inputs: Inputs, shape: tuple[int, ...], seed: Rng
) -> None:
    compare(seed, loss, twin, *inputs(seed, shape), forward=type(loss).forward_no_reduction, tolerance=TIGHT)


@pytest.mark.parametrize(("loss", "twin", "inputs"), ELEMENTS, ids=NAMES)
def test_every_reduction_is_one_number(loss: Any, twin: Callable[..., torch.Tensor], inputs: Inputs, seed: Rng) -> None:
    arrays = inputs(seed, (3, 4))
    auto = 3 if isinstance(loss, nn.KLDivLoss) else 12
    for reduction, divisor in (
        (Reduction.Mean, 12),
        (Reduction.Sum, 1),
        (Reduction.BatchMean, 3),
        (Reduction.Auto, auto),
    ):

        def reduced(layer: Any, *xs: Tensor, reduction: Reduction = reduction) -> Tensor:
            return layer.forward(*xs, reduction)  # type: ignore[no-any-return]

        def expected(*xs: torch.Tensor, divisor: int = divisor) -> torch.Tensor:
            return twin(*xs).sum().reshape(1) / divisor

        compare(seed, loss, expected, *arrays, forward=reduced, tolerance=TIGHT)
    close(loss.forward(*map(tensor, arrays)), twin(*map(torch.tensor, arrays)).sum().reshape(1) / auto, TIGHT)


def test_soft_margin_is_the_twin_where_torch_does_not_overflow(seed: Rng) -> None:
    x, t = seed.normal(size=(3, 4)), signs(seed, (3, 4))
    twin = lambda x, t: F.soft_margin_loss(x, t.detach(), reduction="none")  # noqa: E731
    ours = lambda layer, x, t: layer.forward_no_reduction(x, t.detach())  # noqa: E731
    compare(seed, nn.SoftMarginLoss(), twin, x, t, forward=ours, tolerance=TIGHT)
    far, (slope, _) = differentiated(nn.SoftMarginLoss(), np.array([-1e4, 1e4]), np.array([1.0, 1.0]))
    assert (far.tolist(), slope.tolist()) == ([1e4, 0.0], [-1.0, 0.0])


@pytest.mark.parametrize("beta", [0.3, 1.0])
def test_smooth_l1(beta: float, seed: Rng) -> None:
    loss = nn.SmoothL1LossConfig(beta=beta).init()
    compare(seed, loss, lambda x, t: F.smooth_l1_loss(x, t, beta=beta, reduction="none"), *two(seed, (3, 4)))
    for reduction, name in ((Reduction.Auto, "mean"), (Reduction.Mean, "mean"), (Reduction.Sum, "sum")):
        ours = lambda layer, x, t, r=reduction: layer.forward_with_reduction(x, t, r)  # noqa: E731
        theirs = lambda x, t, n=name: F.smooth_l1_loss(x, t, beta=beta, reduction=n).reshape(1)  # noqa: E731
        compare(seed, loss, theirs, *two(seed, (3, 4)), forward=ours, tolerance=TIGHT)


@pytest.mark.parametrize("loss", [nn.SmoothL1LossConfig().init(), nn.LpLossConfig.l2()], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("dims", [[1], [0, 2], [-1, 0], [2, 1]], ids=str)
def test_means_over_some_axes_keep_them(loss: Any, dims: list[int], seed: Rng) -> None:
    x, t = seed.normal(size=(2, 3, 4)) * 2, seed.normal(size=(2, 3, 4))
    whole = loss.forward(tensor(x), tensor(t)) if isinstance(loss, nn.SmoothL1Loss) else None
    elements = array(loss.forward_no_reduction(tensor(x), tensor(t)) if whole is None else whole)
    close(loss.forward_reduce_dims(tensor(x), tensor(t), dims), elements.mean(tuple(dims), keepdims=True), TIGHT)


def test_huber_takes_residuals_and_shows_its_bias(seed: Rng) -> None:
    loss = nn.HuberLossConfig(0.5).init()
    residuals = np.array([-2.0, -0.5, 0.0, 0.3, 1.0])
    close(loss.forward_residuals(tensor(residuals)), np.array([0.875, 0.125, 0.0, 0.045, 0.375]), TIGHT)
    assert loss.lin_bias == 0.125


def test_a_residual_without_end_costs_without_end_but_pulls_as_others() -> None:
    for loss in (nn.HuberLossConfig(0.5).init(),):
        losses, (slope, _) = differentiated(loss, np.array([math.inf, -1e300]), np.array([0.0, 0.0]))
        assert losses.tolist() == [math.inf, 0.5e300]
        assert slope.tolist() == [0.5, -0.5]


def test_lp_below_one_has_no_gradient_where_nothing_is_wrong() -> None:
    losses, (slope, _) = differentiated(nn.LpLossConfig(0.5).init(), np.array([1.0, 4.0]), np.array([1.0, 0.0]))
    assert losses.tolist() == [0.0, 2.0]
    assert slope.tolist() == [0.0, 0.25]


def test_gaussian_keeps_variances_at_eps() -> None:
    loss = nn.GaussianNLLLossConfig(eps=0.5).init()
    losses, (slope, _, spread) = differentiated(loss, np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.array([0.0, 0.4]))
    np.testing.assert_allclose(losses, [0.5 * (math.log(0.5) + 2)] * 2, rtol=1e-15)
    assert slope.tolist() == [2.0, 2.0]
    assert spread.tolist() == [0.0, 0.0]


def test_poisson_by_stirling_has_finite_gradients_for_few() -> None:
    loss = nn.PoissonNllLossConfig(full=True).init()
    losses, grads = differentiated(loss, np.array([0.0, 0.0, -40.0, 3.0]), np.array([0.0, 1.0, 2.5, 2.0]))
    np.testing.assert_allclose(losses, [1.0, 1.0, 101.1678, 14.7373], rtol=1e-5)  # figures of Burn's own test
    assert np.isfinite(grads).all()


@pytest.mark.parametrize("log_target", [False, True])
def test_what_is_impossible_costs_nothing_in_a_divergence(log_target: bool) -> None:
    shares = np.array([[0.0, 0.25, 0.75, 0.0]])
    with np.errstate(divide="ignore"):
        targets = np.log(shares) if log_target else shares
    predictions = np.array([[-math.inf, -1.0, -2.0, -3.0]])
    losses, grads = differentiated(nn.KLDivLossConfig(log_target=log_target).init(), predictions, targets)
    expected = [0.0, 0.25 * (math.log(0.25) + 1), 0.75 * (math.log(0.75) + 2), 0.0]
    np.testing.assert_allclose(losses, [expected], rtol=1e-15)
    np.testing.assert_allclose(grads[0], -shares, rtol=1e-15)
    assert np.isfinite(grads[1]).all()


def test_the_kinks_of_margins_are_those_of_their_docstrings() -> None:
    _, (slope, _) = differentiated(nn.HingeEmbeddingLossConfig().init(), np.array([1.0]), np.array([-1.0]))
    assert slope.tolist() == [-1.0]
    _, (slope, _, _) = differentiated(
        nn.MarginRankingLossConfig().init(), np.array([1.0]), np.array([1.0]), np.array([1.0])
    )
    assert slope.tolist() == [0.0]


def test_targets_of_signs_may_be_integers(seed: Rng) -> None:
    x, y, t = seed.normal(size=(3,)), seed.normal(size=(3,)), np.array([1, -1, 1])
    losses: list[tuple[Any, list[np.ndarray]]] = [
        (nn.HingeEmbeddingLossConfig().init(), [x]),
        (nn.MarginRankingLossConfig().init(), [x, y]),
        (nn.SoftMarginLoss(), [x]),
    ]
    for loss, inputs in losses:
        whole = loss.forward(*map(tensor, inputs), tensor(t))
        close(whole, array(loss.forward(*map(tensor, inputs), tensor(t * 1.0))), 0.0)


# -- what all losses refuse ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "loss", [loss for loss, _, _ in ELEMENTS] + [nn.SmoothL1Loss(1.0)], ids=[*NAMES, "SmoothL1Loss"]
)
def test_a_loss_does_not_broadcast(loss: Any) -> None:
    column, row = tensor(np.ones((3, 1)), CPU), tensor(np.ones((3,)), CPU)
    inputs = [column, *[row] * (2 if isinstance(loss, nn.GaussianNLLLoss | nn.MarginRankingLoss) else 1)]
    name = type(loss).__name__
    with pytest.raises(
        ShapeError, match=rf"{name}: the shapes differ\n  given: .*\(3, 1\) f64.*\(3,\) f64.*\n  expected: .*\n  mend: "
    ) as caught:
        loss.forward(*inputs)
    assert caught.value.__notes__[-1].startswith(f"in {name}(")


def test_what_is_no_reduction_is_refused() -> None:
    x = tensor(np.ones(3), CPU)
    with pytest.raises(
        ArgumentError, match=r"this is not a reduction\n  given: +'sum' of type str\n  expected: Reduction.Mean"
    ):
        nn.MseLoss().forward(x, x, "sum")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"no batch to divide by\n  given: +losses \(0,\) f64.*\n(.|\n)*Reduction.Sum"):
        nn.MseLoss().forward(tensor(np.ones(0), CPU), tensor(np.ones(0), CPU), Reduction.BatchMean)


def test_an_empty_batch_has_no_mean_and_sum_zero() -> None:
    none = tensor(np.ones((0, 2)), CPU)
    assert math.isnan(nn.MseLoss().forward(none, none).item())
    assert nn.MseLoss().forward(none, none, Reduction.Sum).item() == 0.0


def test_poisson_refuses_negative_counts_and_rates() -> None:
    good, bad = tensor(np.array([0.0, 1.0]), CPU), tensor(np.array([1.0, -0.42]), CPU)
    with pytest.raises(
        ArgumentError, match=r"targets are negative\n  given: +.* values from -0.42 to 1\n  expected: .*\n"
    ) as caught:
        nn.PoissonNllLossConfig().init().forward(good, bad)
    assert caught.value.__notes__[-1] == "in PoissonNllLoss(log_input=True, full=False, eps=1e-08)"
    with pytest.raises(ArgumentError, match=r"predictions are negative\n(.|\n)*mend: +log_input=True"):
        nn.PoissonNllLossConfig(log_input=False).init().forward(bad, good)
    nn.PoissonNllLossConfig().init().forward(bad, good)


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize(
    "loss",
    [nn.BinaryCrossEntropyLossConfig().init(CPU), nn.PoissonNllLossConfig(log_input=False, full=True).init()],
    ids=lambda value: type(value).__name__,
)
def test_checks_of_values_leave_a_trace_alone(loss: Any, tracked: bool) -> None:
    trace = Trace()
    backend: Any = Autodiff(trace) if tracked else trace  # type: ignore[arg-type]  # a Trace computes no data
    spec = TensorSpec.of((3,), DType.F64, "cpu")
    x, t = (Tensor(backend, trace.input(spec).primitive, spec) for _ in range(2))
    forward = getattr(loss, "forward_no_reduction", loss.forward)
    assert isinstance(forward(x, t).spec, TensorSpec)


# -- configurations ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("config", "written"),
    [
        (nn.CrossEntropyLossConfig(), {"pad_tokens": None, "weights": None, "smoothing": None, "logits": True}),
        (
            nn.CrossEntropyLossConfig(pad_tokens=[0, 2], weights=[1.0, 2.0], smoothing=0.5, logits=False),
            {"pad_tokens": [0, 2], "weights": [1.0, 2.0], "smoothing": 0.5, "logits": False},
        ),
        (nn.BinaryCrossEntropyLossConfig(), {"weights": None, "smoothing": None, "logits": False}),
        (nn.CosineEmbeddingLossConfig(), {"margin": 0.0, "reduction": "Mean"}),
        (nn.FocalLossConfig(), {"gamma": 2.0, "alpha": 0.25}),
        (nn.GaussianNLLLossConfig(), {"eps": 1e-6, "full": False}),
        (nn.HingeEmbeddingLossConfig(), {"margin": 1.0}),
        (nn.HuberLossConfig(0.5), {"delta": 0.5}),
        (nn.KLDivLossConfig(), {"log_target": False}),
        (nn.LpLossConfig(3.0), {"p": 3.0}),
        (nn.MarginRankingLossConfig(), {"margin": 0.0}),
        (nn.MultiMarginLossConfig(), {"margin": 1.0, "p": 1}),
        (nn.PoissonNllLossConfig(), {"log_input": True, "full": False, "eps": 1e-8}),
        (nn.SmoothL1LossConfig(), {"beta": 1.0}),
        (nn.TripletMarginLossConfig(), {"margin": 1.0, "p": 2.0}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_defaults_and_json_are_those_of_burn(config: Config, written: dict[str, Any]) -> None:
    assert list(json.loads(config.to_json()).items()) == list(written.items())
    assert type(config).from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.CrossEntropyLossConfig(smoothing=1.5), r"no fraction\n  given: +smoothing = 1.5\n"),
        (lambda: nn.BinaryCrossEntropyLossConfig(smoothing=-0.1), r"no fraction\n  given: +smoothing = -0.1\n"),
        (
            lambda: nn.CrossEntropyLossConfig(weights=[1.0, 0.0]),
            r"not above 0\n  given: +weights = .*0.0(.|\n)*pad token",
        ),
        (lambda: nn.BinaryCrossEntropyLossConfig(weights=[-1.0]), r"not above 0\n  given: +weights = "),
        (lambda: nn.CrossEntropyLossConfig(weights=[0.0], smoothing=2.0), r"smoothing(.|\n)*weights"),
        (lambda: nn.HuberLossConfig(0.0), r"not above 0\n  given: +delta = 0.0\n"),
        (lambda: nn.FocalLossConfig(gamma=-1.0), r"too small\n  given: +gamma = -1.0\n"),
        (lambda: nn.FocalLossConfig(alpha=1.5), r"no fraction\n  given: +alpha = 1.5\n"),
        (lambda: nn.SmoothL1LossConfig(beta=0.0), r"not above 0\n  given: +beta = 0.0\n"),
        (lambda: nn.LpLossConfig(-1.0), r"not above 0\n  given: +p = -1.0\n"),
        (lambda: nn.TripletMarginLossConfig(p=0.0), r"not above 0\n  given: +p = 0.0\n"),
        (lambda: nn.PoissonNllLossConfig(eps=0.0), r"not above 0\n  given: +eps = 0.0\n"),
        (lambda: nn.GaussianNLLLossConfig(eps=0.0), r"not above 0\n  given: +eps = 0.0\n"),
        (lambda: nn.MarginRankingLossConfig(margin=-0.5), r"too small\n  given: +margin = -0.5\n"),
        (lambda: nn.MultiMarginLossConfig(margin=-0.5), r"too small\n  given: +margin = -0.5\n"),
        (lambda: nn.MultiMarginLossConfig(p=3), r"no power of a hinge\n  given: +p = 3\n  expected: 1 or 2\n"),
    ],
)
def test_a_configuration_refuses_what_no_loss_can_be(make: Callable[[], Config], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        (nn.MseLoss(), "MseLoss"),
        (nn.SoftMarginLoss(), "SoftMarginLoss"),
        (nn.HuberLossConfig(0.5).init(), "HuberLoss {delta: 0.5, lin_bias: 0.125}"),
        (nn.LpLossConfig.l1(), "LpLoss {p: 1.0}"),
        (nn.CosineEmbeddingLossConfig(margin=0.5).init(), "CosineEmbeddingLoss {margin: 0.5, reduction: Mean}"),
        (nn.MultiMarginLossConfig(margin=0.5).init(), "MultiMarginLoss {margin: 0.5, p: 1}"),
        (nn.GaussianNLLLossConfig(eps=0.5).init(), "GaussianNLLLoss {eps: 0.5, full: false}"),
        (nn.KLDivLossConfig(log_target=True).init(), "KLDivLoss {log_target: true}"),
        (
            nn.CrossEntropyLossConfig(weights=[3.0, 7.0], smoothing=0.5, pad_tokens=[1]).init(CPU),
            (
                "CrossEntropyLoss {pad_tokens: [1], weights: Tensor {rank: 1, shape: [2], dtype: f32}, "
                "smoothing: 0.5, logits: true}"
            ),
        ),
        (
            nn.BinaryCrossEntropyLossConfig().init(CPU),
            "BinaryCrossEntropyLoss {weights: None, smoothing: None, logits: false}",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_display(loss: Module, shown: str) -> None:
    assert str(loss) == shown


# -- on other stacks -----------------------------------------------------------------------------------------------
def test_a_loss_moves_with_its_model_and_its_weights_are_constants(seed: Rng) -> None:
    loss = nn.CrossEntropyLossConfig(weights=[1.0, 2.0, 4.0]).init(AD)
    assert loss.num_params() == 0
    inner = loss.valid()
    assert inner.weights is not None
    assert not inner.weights.device.is_autodiff()
    x, t = seed.normal(size=(4, 3)).astype(np.float32), np.array([0, 1, 2, 2])
    expected = loss.forward(tensor(x), tensor(t)).item()
    assert inner.forward(tensor(x, CPU), tensor(t, CPU)).item() == expected
    host = Device.ndarray()
    assert loss.to_device(host).forward(tensor(x, host), tensor(t, host)).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("loss", "twin", "inputs"), ELEMENTS, ids=NAMES)
def test_the_numpy_leaf_agrees(loss: Any, twin: Callable[..., torch.Tensor], inputs: Inputs, seed: Rng) -> None:
    arrays = inputs(seed, (3, 4))
    host = Device.ndarray()
    close(loss.forward_no_reduction(*(tensor(x, host) for x in arrays)), twin(*map(torch.tensor, arrays)), TIGHT)


def test_the_focal_loss_is_exact_far_from_0_and_counts_easy_elements_little() -> None:
    x = Tensor.from_data(np.array([-800.0, 800.0, -40.0, 40.0]), Device.cpu().autodiff()).require_grad()
    t = Tensor.from_data(np.array([1, 1, 1, 0]), Device.cpu())
    losses = nn.FocalLossConfig(alpha=None).init().forward_no_reduction(x, t)
    np.testing.assert_allclose(losses.into_data().values, [800.0, 0.0, 40.0, 40.0], rtol=1e-12)
    np.testing.assert_allclose(x.grad(losses.sum().backward()).into_data().values, [-1.0, 0.0, -1.0, 1.0], rtol=1e-12)
