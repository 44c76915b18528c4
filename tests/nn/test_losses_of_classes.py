"""Losses of classes, of yes and no and of embeddings, against torch's in float64: weights, padding, smoothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import nn
from burn_torch.core.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Tensor
from tests.nn.loss_checks import TIGHT, Rng, differentiated, numbers, signs
from tests.nn.twins import AD, CPU, array, close, compare, tensor


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
        match=r"input is not a probability\n  given: +values from -0.5 to 2\n  expected: 0 to 1\n  mend: .*logits=True",
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
        DTypeError, match=r"holds no classes here\n  given: +targets \(2,\) f64.*\n  expected: integers, 0 or 1"
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
        match=r"TripletMarginLoss: the inputs are not vectors of a batch\n  given: .*\n  expected: .*\n  mend: +flat",
    ) as caught:
        nn.TripletMarginLossConfig().init().forward(x, x, x)
    assert caught.value.__notes__[-1] == "in TripletMarginLoss(margin=1.0, p=2.0)"
    flat = tensor(np.zeros((2, 3)), CPU)
    with pytest.raises(ShapeError, match=r"given: .*target \(3,\) i64.*\n  expected: .*target \(batch,\)"):
        nn.CosineEmbeddingLoss().forward(flat, flat, tensor(np.ones(3, np.int64), CPU))
