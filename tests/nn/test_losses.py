"""Losses against torch's in float64: values, gradients, reductions, extreme inputs, padding, weights, smoothing."""

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
from burn_torch.core.errors import ArgumentError, BoundsError, ConfigError, DTypeError, ShapeError
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Trace
from burn_torch.module import Module
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device, Tensor
from tests.nn.twins import AD, CPU, array, close, compare, tensor

Rng = np.random.Generator
TIGHT = 1e-12


def numbers(x: Any) -> Any:
    return array(x).tolist()


def differentiated(loss: Any, *inputs: Any, forward: str = "forward_no_reduction") -> tuple[Any, list[Any]]:
    """The losses, and the gradients of their sum for all float inputs."""
    tracked = [tensor(x).require_grad() if np.asarray(x).dtype.kind == "f" else tensor(x) for x in inputs]
    losses = getattr(loss, forward)(*tracked)
    grads = losses.sum().backward()
    found = [x.grad(grads) for x in tracked if x.is_require_grad()]
    return array(losses), [None if g is None else array(g) for g in found]


def signs(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([-1.0, 1.0], shape)


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
    made = inputs(seed, (3, 4))
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

        compare(seed, loss, expected, *made, forward=reduced, tolerance=TIGHT)
    close(loss.forward(*map(tensor, made)), twin(*map(torch.tensor, made)).sum().reshape(1) / auto, TIGHT)


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


# -- of classes -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("margin", [1.0, 0.25, 0.0])
def test_multi_margin(p: int, margin: float, seed: Rng) -> None:
    loss = nn.MultiMarginLossConfig(margin=margin, p=p).init()
    x, t = seed.normal(size=(6, 5)), seed.integers(0, 5, 6)
    twin = lambda x, t: F.multi_margin_loss(x, t, p=p, margin=margin, reduction="none")  # noqa: E731
    compare(seed, loss, twin, x, t, forward=nn.MultiMarginLoss.forward_no_reduction, tolerance=TIGHT)
    for reduction, name in ((Reduction.Auto, "mean"), (Reduction.Sum, "sum"), (Reduction.BatchMean, "mean")):
        ours = lambda layer, x, t, r=reduction: layer.forward(x, t, r)  # noqa: E731
        theirs = lambda x, t, n=name: F.multi_margin_loss(x, t, p=p, margin=margin, reduction=n).reshape(1)  # noqa: E731
        compare(seed, loss, theirs, x, t, forward=ours, tolerance=TIGHT)
    close(
        loss.forward_no_reduction(tensor(x), tensor(t.astype(np.int32))),
        array(loss.forward_no_reduction(tensor(x), tensor(t))),
    )
    assert loss.forward_no_reduction(tensor(np.zeros((0, 5))), tensor(np.zeros(0, np.int64))).shape == (0,)


def test_multi_margin_names_what_does_not_fit() -> None:
    loss = nn.MultiMarginLossConfig().init()
    with pytest.raises(
        ShapeError,
        match=r"MultiMarginLoss: input and target do not fit together\n  given: .*\(2, 3\) f64.*, target \(3,\) i64"
        r"(.|\n)*expected: input \(batch, classes\) and target \(batch,\)\n  mend: +flatten",
    ):
        loss.forward(tensor(np.zeros((2, 3))), tensor(np.zeros(3, np.int64)))
    with pytest.raises(BoundsError, match=r"an index is out of range\n  given: +indices from 0 to 3") as caught:
        loss.forward(tensor(np.zeros((2, 3))), tensor(np.array([0, 3])))
    assert "in MultiMarginLoss(margin=1.0, p=1)" in caught.value.__notes__


def cross_entropy(pad: int | None = None, weights: list[float] | None = None, smoothing: float = 0.0) -> Any:
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    settings: dict[str, Any] = {} if pad is None else {"ignore_index": pad}
    return lambda x, t: F.cross_entropy(x, t, weight, label_smoothing=smoothing, **settings).reshape(1)


WEIGHTS = [0.5, 2.0, 1.25, 4.0, 0.125]  # exact in float32, as weights are kept


@pytest.mark.parametrize("smoothing", [None, 0.0, 0.1, 1.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["even", "weighted"])
@pytest.mark.parametrize("pad", [None, 1, -100], ids=str)
def test_cross_entropy(pad: int | None, weights: list[float] | None, smoothing: float | None, seed: Rng) -> None:
    config = nn.CrossEntropyLossConfig(pad_tokens=None if pad is None else [pad], weights=weights, smoothing=smoothing)
    x, t = seed.normal(size=(8, 5)) * 3, seed.integers(0, 5, 8)
    t[[2, 5]] = 1 if pad is None else pad
    compare(seed, config.init(AD), cross_entropy(pad, weights, smoothing or 0.0), x, t, tolerance=TIGHT)


@pytest.mark.parametrize("smoothing", [None, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["even", "weighted"])
def test_several_pad_tokens_are_as_if_their_items_were_absent(
    weights: list[float] | None, smoothing: float | None, seed: Rng
) -> None:
    loss = nn.CrossEntropyLossConfig(pad_tokens=[0, 3, 77], weights=weights, smoothing=smoothing).init(AD)
    x, t = seed.normal(size=(7, 5)), np.array([0, 1, 3, 2, 77, 4, 3])
    kept = np.array([1, 3, 5])
    whole, (grad,) = differentiated(loss, x, t, forward="forward")
    alone, (part,) = differentiated(loss, x[kept], t[kept], forward="forward")
    np.testing.assert_allclose(whole, alone, rtol=1e-14)
    np.testing.assert_allclose(grad[kept], part, rtol=1e-13, atol=1e-16)
    assert not np.delete(grad, kept, 0).any()


def test_the_short_constructor_takes_one_pad_token(seed: Rng) -> None:
    x, t = seed.normal(size=(4, 5)), np.array([2, 0, 4, 1])
    compare(seed, nn.CrossEntropyLoss.new(1, AD), cross_entropy(1), x, t, tolerance=TIGHT)
    compare(seed, nn.CrossEntropyLoss.new(None, AD), cross_entropy(), x, t, tolerance=TIGHT)
    empty = nn.CrossEntropyLossConfig(pad_tokens=[]).init(AD)
    compare(seed, empty, cross_entropy(), x, t, tolerance=TIGHT)


def test_a_batch_of_padding_alone_is_nan_and_pulls_nowhere() -> None:
    loss = nn.CrossEntropyLoss.new(2, AD)
    whole, (grad,) = differentiated(loss, np.array([[0.7, 0.2, 0.1]]), np.array([2]), forward="forward")
    assert np.isnan(whole).tolist() == [True]
    assert not grad.any()


def test_cross_entropy_of_probabilities(seed: Rng) -> None:
    # inputs and figures are those of Burn's own tests
    p = np.array([[0.1, 0.2, 0.7, 0, 0], [0.7, 0.1, 0.1, 0.1, 0], [0.2] * 5, [0, 0.3, 0.3, 0.2, 0.2]], np.float32)
    t = np.array([2, 0, 4, 1])
    figures = {None: 0.88169014, 0.0: 0.88169014, 0.1: 1.7929223}
    for smoothing, figure in figures.items():
        loss = nn.CrossEntropyLossConfig(logits=False, smoothing=smoothing).init(CPU)
        assert loss.forward(tensor(p, CPU), tensor(t, CPU)).item() == pytest.approx(figure, rel=1e-6)
    assert nn.CrossEntropyLossConfig().init(CPU).forward(tensor(p, CPU), tensor(t, CPU)).item() == pytest.approx(
        1.354197
    )
    positive = seed.dirichlet(np.ones(5), 6)
    loss = nn.CrossEntropyLossConfig(logits=False, weights=WEIGHTS, pad_tokens=[3]).init(AD)
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    twin = lambda x, t: F.nll_loss(x.log(), t, weight, ignore_index=3).reshape(1)  # noqa: E731
    compare(seed, loss, twin, positive, np.array([0, 1, 2, 3, 4, 4]), tolerance=TIGHT)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_a_probability_of_zero_is_finite_in_every_type(dtype: str) -> None:
    loss = nn.CrossEntropyLossConfig(logits=False, weights=[1.0, 2.0]).init(AD)
    x = tensor(np.array([[0.0, 1.0]])).cast(dtype).require_grad()
    whole = loss.forward(x, tensor(np.array([0])))
    assert str(whole.dtype) == dtype
    least = {"f16": 2.0**-7, "bf16": 2.0**-63, "f32": 2.0**-63, "f64": 2.0**-511}[dtype]
    assert whole.item() == pytest.approx(-math.log(least), rel=1e-2)
    gradient = x.grad(whole.backward())
    assert gradient is not None
    assert numbers(gradient.cast("f64")) == [[0.0, 0.0]]  # below the bound nothing pulls


def test_extreme_logits_stay_finite() -> None:
    whole, (grad,) = differentiated(
        nn.CrossEntropyLoss.new(None, AD), np.array([[1e4, -1e4], [-1e300, 1e300]]), np.array([0, 1]), forward="forward"
    )
    assert whole.tolist() == [0.0]
    assert not grad.any()


def test_cross_entropy_names_itself_where_inputs_do_not_fit() -> None:
    loss = nn.CrossEntropyLossConfig(weights=[1.0, 2.0]).init(CPU)
    with pytest.raises(ShapeError, match=r"cross_entropy: logits and targets do not fit together\n  given: ") as caught:
        loss.forward(Tensor.zeros((2, 2), CPU), Tensor.zeros((3,), CPU).int())
    note = caught.value.__notes__[-1]
    assert note == "in CrossEntropyLoss(pad_tokens=None, weights=(2,) f32 cpu, smoothing=None, logits=True)"
    with pytest.raises(ShapeError, match=r"the weights do not fit the classes\n  given: .*\n  expected: weight \(3,\)"):
        loss.forward(Tensor.zeros((2, 3), CPU), Tensor.zeros((2,), CPU).int())
    with pytest.raises(BoundsError, match=r"an index is out of range\n  given: +indices from 0 to 2"):
        loss.forward(Tensor.zeros((2, 2), CPU), tensor(np.array([0, 2]), CPU))


# -- of yes and no --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("smoothing", [None, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(7,), (4, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("logits", [False, True])
def test_binary_cross_entropy(
    logits: bool, shape: tuple[int, ...], weighted: bool, smoothing: float | None, seed: Rng
) -> None:
    classes = shape[-1] if len(shape) > 1 else 2
    weights = [3.0, 7.0, 0.25][:classes] if weighted else None
    config = nn.BinaryCrossEntropyLossConfig(weights=weights, smoothing=smoothing, logits=logits)
    x = seed.normal(size=shape) * 4 if logits else seed.uniform(0.01, 0.99, shape)
    t = seed.integers(0, 2, shape)
    row = F.binary_cross_entropy_with_logits if logits else F.binary_cross_entropy

    def twin(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        share = t.double() if smoothing is None else t.double() * (1 - smoothing) + smoothing / classes
        weight = None
        if weights is not None:
            all_weights = torch.tensor(weights, dtype=torch.float64)
            weight = all_weights[t] if len(shape) == 1 else all_weights.expand(shape)
        return row(x, share, weight).reshape(1)

    compare(seed, config.init(AD), twin, x, t, tolerance=TIGHT)


def test_binary_targets_may_be_shares(seed: Rng) -> None:
    x, t = seed.normal(size=(3, 4)), seed.uniform(size=(3, 4))
    twin = lambda x, t: F.binary_cross_entropy_with_logits(x, t).reshape(1)  # noqa: E731
    compare(seed, nn.BinaryCrossEntropyLossConfig(logits=True).init(AD), twin, x, t, tolerance=TIGHT)


def test_certain_probabilities_have_finite_gradients() -> None:
    # the decomposed gradient of a clamped logarithm is 0 * inf at both ends
    loss = nn.BinaryCrossEntropyLossConfig().init(AD)
    whole, (grad,) = differentiated(loss, np.array([0.0, 1.0, 1.0, 0.0]), np.array([0, 1, 0, 1]), forward="forward")
    assert whole.tolist() == [50.0]  # a certain mistake costs 100
    assert grad[:2].tolist() == [0.0, 0.0]
    assert np.isfinite(grad).all()
    assert (np.sign(grad[2:]) == [1, -1]).all()


def test_binary_cross_entropy_refuses_what_is_no_probability() -> None:
    loss = nn.BinaryCrossEntropyLossConfig().init(CPU)
    with pytest.raises(
        ArgumentError,
        match=r"input is no probability\n  given: +values from -0.5 to 2\n  expected: 0 to 1\n  mend: .*logits=True",
    ) as caught:
        loss.forward(tensor(np.array([-0.5, 2.0]), CPU), tensor(np.array([0, 1]), CPU))
    assert caught.value.__notes__[-1] == "in BinaryCrossEntropyLoss(weights=None, smoothing=None, logits=False)"
    lost = loss.forward(tensor(np.array([math.nan, 0.5]), CPU), tensor(np.array([0, 1]), CPU))
    assert math.isnan(lost.item())  # a NaN passes on: what made it is to blame


def test_binary_cross_entropy_names_what_does_not_fit() -> None:
    loss = nn.BinaryCrossEntropyLossConfig(weights=[3.0, 7.0], logits=True).init(CPU)
    with pytest.raises(ShapeError, match=r"the shapes differ\n  given: +logits \(2,\) f64.*, targets \(3,\) i64"):
        loss.forward(tensor(np.zeros(2), CPU), tensor(np.zeros(3, np.int64), CPU))
    with pytest.raises(
        ShapeError,
        match=r"weights do not fit the classes\n  given: +2 weights.*\n  expected: 3 weights.*last axis\n  mend: ",
    ):
        loss.forward(tensor(np.zeros((2, 3)), CPU), tensor(np.zeros((2, 3), np.int64), CPU))
    with pytest.raises(
        DTypeError, match=r"no class here\n  given: +targets \(2,\) f64.*\n  expected: integers, 0 or 1"
    ):
        loss.forward(tensor(np.zeros(2), CPU), tensor(np.zeros(2), CPU))
    three = nn.BinaryCrossEntropyLossConfig(weights=[1.0, 2.0, 3.0], logits=True).init(CPU)
    with pytest.raises(ShapeError, match=r"given: +3 weights.*\n  expected: 2 weights, one for target 0"):
        three.forward(tensor(np.zeros(2), CPU), tensor(np.zeros(2, np.int64), CPU))


# -- of embeddings ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("margin", [0.0, 0.4, -0.2])
def test_cosine_embedding(margin: float, seed: Rng) -> None:
    a, b, t = seed.normal(size=(6, 3)), seed.normal(size=(6, 3)), signs(seed, (6,)).astype(np.int64)
    b[0] = a[0]
    for reduction, name in ((Reduction.Mean, "mean"), (Reduction.Sum, "sum"), (Reduction.Auto, "mean")):
        loss = nn.CosineEmbeddingLossConfig(margin=margin, reduction=reduction).init()
        twin = lambda a, b, t, n=name: F.cosine_embedding_loss(a, b, t, margin, reduction=n).reshape(1)  # noqa: E731
        compare(seed, loss, twin, a, b, t, tolerance=1e-11)  # torch adds 1e-12 to the squares
    loss = nn.CosineEmbeddingLossConfig(margin=margin).init()
    each = lambda a, b, t: F.cosine_embedding_loss(a, b, t, margin, reduction="none")  # noqa: E731
    compare(seed, loss, each, a, b, t, forward=nn.CosineEmbeddingLoss.forward_no_reduction, tolerance=1e-11)


def test_a_vector_of_length_zero_has_no_direction_and_no_gradient() -> None:
    a, b, t = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([1, 1])
    losses, grads = differentiated(nn.CosineEmbeddingLoss.new(), a, b, t)
    assert losses.tolist() == [1.0, 1.0]
    assert np.isfinite(grads).all()


def test_a_target_that_is_no_sign_counts_as_nothing() -> None:
    a = np.array([[1.0, 0.0]])
    losses, grads = differentiated(nn.CosineEmbeddingLoss.new(), a, a, np.array([0]))
    assert losses.tolist() == [0.0]
    assert not np.any(grads)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 1.5, 0.5, math.inf])
def test_triplet_margin(p: float, seed: Rng) -> None:
    loss = nn.TripletMarginLoss(0.7, p)  # a configuration holds no infinity
    inputs = [seed.normal(size=(6, 4)) for _ in range(3)]
    twin = lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=0.7, p=p, eps=0.0, reduction="none")  # noqa: E731
    compare(seed, loss, twin, *inputs, forward=nn.TripletMarginLoss.forward_no_reduction, tolerance=1e-11)
    for reduction, name in ((Reduction.Mean, "mean"), (Reduction.Sum, "sum"), (Reduction.Auto, "mean")):
        ours = lambda layer, a, b, c, r=reduction: layer.forward(a, b, c, r)  # noqa: E731
        theirs = lambda a, b, c, n=name: F.triplet_margin_loss(  # noqa: E731
            a, b, c, margin=0.7, p=p, eps=0.0, reduction=n
        ).reshape(1)
        compare(seed, loss, theirs, *inputs, forward=ours, tolerance=1e-11)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.5, math.inf])
def test_equal_vectors_have_a_finite_gradient(p: float) -> None:
    same = np.array([[1.0, 2.0]])
    losses, grads = differentiated(nn.TripletMarginLoss(1.0, p), same, same, same)
    assert losses.tolist() == [1.0]
    assert np.isfinite(grads).all()


def test_embeddings_that_are_no_vectors_are_refused() -> None:
    x = tensor(np.zeros((2, 3, 4)), CPU)
    with pytest.raises(
        ShapeError,
        match=r"TripletMarginLoss: the inputs are no vectors of a batch\n  given: .*\n  expected: .*\n  mend: +flatten",
    ) as caught:
        nn.TripletMarginLossConfig().init().forward(x, x, x)
    assert caught.value.__notes__[-1] == "in TripletMarginLoss(margin=1.0, p=2.0)"
    flat = tensor(np.zeros((2, 3)), CPU)
    with pytest.raises(ShapeError, match=r"given: .*target \(3,\) i64.*\n  expected: .*target \(batch,\)"):
        nn.CosineEmbeddingLoss().forward(flat, flat, tensor(np.ones(3, np.int64), CPU))


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
        ArgumentError, match=r"this is no reduction\n  given: +'sum' of type str\n  expected: Reduction.Mean"
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
    made = inputs(seed, (3, 4))
    host = Device.ndarray()
    close(loss.forward_no_reduction(*(tensor(x, host) for x in made)), twin(*map(torch.tensor, made)), TIGHT)
