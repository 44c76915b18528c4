"""Losses against PyTorch: weights, smoothing, padding, impossible classes, ends of ranges, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from burn_torch.core.dtype import DType
from burn_torch.core.errors import BoundsError, DTypeError, ShapeError
from tests.ops.twins import LEAVES, close, compare, gradients, run


def _twin(pads: tuple[int, ...], *, logarithms: bool = False) -> Callable[..., Any]:
    def twin(logits: Any, targets: Any, weight: Any, smoothing: Any) -> Any:
        ignored = pads[0] if pads else -100
        weight = weight if weight is None else weight.detach()  # torch gives the weights no gradient
        if logarithms:  # log_softmax leaves logarithms of probabilities as they are, its gradient does not
            assert not smoothing
            return functional.nll_loss(logits, targets, weight, ignore_index=ignored, reduction="none")
        return functional.cross_entropy(
            logits, targets, weight, ignore_index=ignored, reduction="none", label_smoothing=smoothing or 0.0
        )

    return twin


@pytest.mark.parametrize("pads", [(), (2,)])
@pytest.mark.parametrize("smoothing", [None, 0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("items", [7, 1, 0])
def test_cross_entropy_is_the_twin(
    items: int, weighted: bool, smoothing: float | None, pads: tuple[int, ...], seed: np.random.Generator
) -> None:
    logits, targets = seed.uniform(-4, 4, (items, 5)), seed.integers(0, 5, items)
    weight = seed.uniform(0.2, 2, 5) if weighted else None
    if weight is None:
        compare(seed, "cross_entropy", _twin(pads), logits, targets, weight, smoothing, pad_tokens=pads)
        return
    compare(
        seed, "cross_entropy", _twin(pads), logits, targets, weight, smoothing, differentiate=False, pad_tokens=pads
    )
    compare(seed, "cross_entropy", _written_out(pads), logits, targets, weight, smoothing, pad_tokens=pads)


def _written_out(pads: tuple[int, ...]) -> Callable[..., Any]:
    def twin(logits: Any, targets: Any, weight: Any, smoothing: Any) -> Any:
        q = functional.one_hot(targets, logits.shape[1]).to(logits.dtype)
        q = q * (1 - (smoothing or 0.0)) + (smoothing or 0.0) / logits.shape[1]
        losses = -(q * weight * torch.log_softmax(logits, 1)).sum(1)
        for token in pads:
            losses = torch.where(targets == token, 0.0, losses)
        return losses

    return twin


@pytest.mark.parametrize("weighted", [False, True])
def test_negative_log_likelihood_is_the_twin(weighted: bool, seed: np.random.Generator) -> None:
    logs, targets = seed.uniform(-4, 0, (6, 5)), seed.integers(0, 5, 6)
    weight = seed.uniform(0.2, 2, 5) if weighted else None
    twin = _twin((1,), logarithms=True)
    name = "negative_log_likelihood"
    compare(seed, name, twin, logs, targets, weight, None, differentiate=not weighted, pad_tokens=(1,))


def test_cross_entropy_is_the_likelihood_of_log_softmax(seed: np.random.Generator) -> None:
    logits, targets, weight = seed.uniform(-4, 4, (6, 5)), seed.integers(0, 5, 6), seed.uniform(0.2, 2, 5)
    for leaf in LEAVES:
        logs = run(leaf, "log_softmax", logits, dim=1)
        expected = run(leaf, "cross_entropy", logits, targets, weight, 0.3, pad_tokens=(0, 4))
        close(
            "likelihood", run(leaf, "negative_log_likelihood", logs, targets, weight, 0.3, pad_tokens=(0, 4)), expected
        )


@pytest.mark.parametrize("smoothing", [None, 0.2])
def test_every_pad_token_counts_for_nothing(smoothing: float | None, seed: np.random.Generator) -> None:
    logits, targets = seed.uniform(-4, 4, (6, 5)), np.array([3, 0, 1, 4, -7, 99])
    pads = (0, 1, -7, 99)  # two that are no class
    for leaf in LEAVES:
        losses = run(leaf, "cross_entropy", logits, targets, None, smoothing, pad_tokens=pads)
        assert not losses[[1, 2, 4, 5]].any()
        assert losses[[0, 3]].all()
        inputs = [logits, targets, None, smoothing]
        (grad,) = gradients(leaf, "cross_entropy", inputs, [np.ones(6)], {"pad_tokens": pads})
        assert grad is not None
        assert not grad[[1, 2, 4, 5]].any()
        alone = [logits[[0, 3]], targets[[0, 3]], None, smoothing]
        (expected,) = gradients(leaf, "cross_entropy", alone, [np.ones(2)], {"pad_tokens": ()})
        assert expected is not None
        close("items that count", grad[[0, 3]], expected)


IMPOSSIBLE = np.array([[1.0, -math.inf, 2.0], [-math.inf, 0.5, -math.inf], [3.0, 1.0, -math.inf]])


@pytest.mark.parametrize("smoothing", [None, 0.0])
def test_impossible_classes_leave_no_nan(smoothing: float | None, seed: np.random.Generator) -> None:
    targets = np.array([0, 1, 0])
    compare(seed, "cross_entropy", _twin(()), IMPOSSIBLE, targets, None, smoothing)
    for leaf in LEAVES:
        inputs = [IMPOSSIBLE, targets, None, smoothing]
        assert np.isfinite(run(leaf, "cross_entropy", *inputs)).all()
        (grad,) = gradients(leaf, "cross_entropy", inputs, [np.ones(3)], {})
        assert grad is not None
        assert np.isfinite(grad).all()


def test_an_impossible_target_costs_infinity(seed: np.random.Generator) -> None:
    compare(seed, "cross_entropy", _twin(()), IMPOSSIBLE, np.array([1, 0, 2]), None, None)
    for leaf in LEAVES:
        assert np.isposinf(run(leaf, "cross_entropy", IMPOSSIBLE, np.array([1, 0, 2]), None, None)).all()
        smoothed = run(leaf, "cross_entropy", IMPOSSIBLE, np.array([0, 1, 0]), None, 0.1)
        assert np.isposinf(smoothed).all(), "smoothing gives every class a share"


def test_a_class_of_weight_zero_adds_nothing() -> None:
    logits, targets, weight = IMPOSSIBLE[:1], np.array([1]), np.array([1.0, 0.0, 1.0])
    for leaf in LEAVES:
        assert run(leaf, "cross_entropy", logits, targets, weight, None) == 0.0
        assert np.isfinite(run(leaf, "cross_entropy", logits, targets, weight, 0.1))


def test_large_logits_do_not_overflow(seed: np.random.Generator) -> None:
    logits = np.array([[1e4, -1e4, 0.0], [1e4, 1e4, 1e4], [-1e4, 0.0, 1e4]])
    compare(seed, "cross_entropy", _twin(()), logits, np.array([1, 0, 2]), None, 0.1)


def test_lines_with_nan_are_the_twins(seed: np.random.Generator) -> None:
    logits = np.array([[math.nan, 1.0, 2.0], [-math.inf] * 3, [1.0, 2.0, 3.0]])
    compare(seed, "cross_entropy", _twin(()), logits, np.array([1, 0, 2]), None, None)


def test_targets_of_small_integer_types(seed: np.random.Generator) -> None:
    logits, targets = seed.uniform(-4, 4, (6, 5)), seed.integers(0, 5, 6)
    for leaf in LEAVES:
        expected = run(leaf, "cross_entropy", logits, targets, None, 0.1, pad_tokens=(1,))
        for small in (np.int32, np.int16, np.int8, np.uint8):
            losses = run(leaf, "cross_entropy", logits, targets.astype(small), None, 0.1, pad_tokens=(1,))
            np.testing.assert_array_equal(losses, expected)


def test_half_types_compute_in_float32(seed: np.random.Generator) -> None:
    logits, targets = seed.integers(-16, 16, (6, 50)) / 4, seed.integers(0, 50, 6)  # exact in every type
    expected = run(LEAVES[0], "cross_entropy", logits, targets, None, 0.1)
    for dtype, unit in ((DType.F16, 2.0**-11), (DType.BF16, 2.0**-8)):
        losses = run(LEAVES[0], "cross_entropy", logits, targets, None, 0.1, dtype=dtype)
        np.testing.assert_allclose(losses, expected, rtol=1.01 * unit)


# -- with probabilities, and of pairs -----------------------------------------------------------------------
def test_cross_entropy_with_probabilities_is_the_twin(seed: np.random.Generator) -> None:
    logits, probabilities = seed.uniform(-4, 4, (6, 5)), seed.uniform(0, 1, (6, 5))

    def twin(x: Any, p: Any) -> Any:
        return functional.cross_entropy(x, p, reduction="none")

    compare(seed, "cross_entropy_with_probabilities", twin, logits, probabilities)
    compare(seed, "cross_entropy_with_probabilities", twin, logits * 2500, probabilities)


def test_a_class_of_probability_zero_adds_nothing() -> None:
    probabilities = np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.25, 0.75, 0.0]])
    for leaf in LEAVES:
        losses = run(leaf, "cross_entropy_with_probabilities", IMPOSSIBLE, probabilities)
        assert np.isfinite(losses).all()
        inputs = [IMPOSSIBLE, probabilities]
        grads = gradients(leaf, "cross_entropy_with_probabilities", inputs, [np.ones(3)], {})
        assert grads[0] is not None
        assert np.isfinite(grads[0]).all()


def test_binary_cross_entropy_is_the_twin(seed: np.random.Generator) -> None:
    logits = np.array([-1e4, -745.0, -30.0, -1.0, 0.0, 1e-9, 2.5, 37.0, 1e4])
    targets = np.array([0.0, 1.0, 0.3, 1.0, 0.5, 0.0, 1.0, 1.0, 0.0])

    def twin(x: Any, t: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(x, t, reduction="none")

    compare(seed, "binary_cross_entropy_with_logits", twin, logits, targets)
    for leaf in LEAVES:
        confident = run(leaf, "binary_cross_entropy_with_logits", np.array([40.0]), np.array([1.0]))
        np.testing.assert_allclose(confident, [math.exp(-40)], rtol=1e-15)  # log(p) would give 0


def test_binary_cross_entropy_of_probabilities_is_the_twin(seed: np.random.Generator) -> None:
    def twin(p: Any, t: Any) -> Any:
        return functional.binary_cross_entropy(p, t, reduction="none")

    compare(seed, "binary_cross_entropy", twin, seed.uniform(0.01, 0.99, (3, 4)), seed.uniform(0, 1, (3, 4)))
    certain, targets = np.array([0.0, 0.0, 1.0, 1.0, 1e-60, 0.5]), np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.5])
    compare(seed, "binary_cross_entropy", twin, certain, targets, differentiate=False)
    x = torch.tensor(certain, requires_grad=True)
    (expected,) = torch.autograd.grad(twin(x, torch.tensor(targets)).sum(), x)
    for leaf in LEAVES:
        grad, odds = gradients(leaf, "binary_cross_entropy", [certain, targets], [np.ones(6)], {})
        assert grad is not None
        assert odds is not None
        np.testing.assert_allclose(grad, expected, rtol=1e-8)  # torch keeps its 1e-12 in float32
        np.testing.assert_allclose(odds, [100, 100, -100, -100, 100, 0], rtol=1e-14)
        assert np.isnan(run(leaf, "binary_cross_entropy", np.array([-0.1, 1.1, np.nan]), np.zeros(3))).all()


# -- errors --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("target", [5, -1])
@pytest.mark.parametrize("name", ["cross_entropy", "negative_log_likelihood"])
def test_a_target_that_is_no_class_is_refused(name: str, target: int, leaf: Any) -> None:
    with pytest.raises(
        BoundsError,
        match=rf"(?s){name}: an index is out of range.*given:    indices from .* axis of size 5"
        r".*expected: 0 to 4.*mend: ",
    ):
        run(leaf, name, np.zeros((2, 5)), np.array([1, target]), None, None)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"(?s)cross_entropy: logits and targets do not fit.*given:    logits \(2, 5\) f64, targets \(3,\) i64"
        r".*expected: logits \(items, classes\) and targets \(items,\).*mend:     flatten",
    ):
        run(LEAVES[0], "cross_entropy", np.zeros((2, 5)), np.zeros(3, np.int64), None, None)
    with pytest.raises(ShapeError, match=r"(?s)cross_entropy: the weights do not fit.*expected: weight \(5,\).*mend: "):
        run(LEAVES[0], "cross_entropy", np.zeros((2, 5)), np.zeros(2, np.int64), np.zeros(4), None)


def test_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"(?s)cross_entropy: targets has an element type.*expected: .*mend: "):
        run(LEAVES[0], "cross_entropy", np.zeros((2, 5)), np.zeros(2), None, None)
    with pytest.raises(DTypeError, match=r"(?s)cross_entropy: smoothing is no number.*expected: a number.*mend: "):
        run(LEAVES[0], "cross_entropy", np.zeros((2, 5)), np.zeros(2, np.int64), None, np.zeros(()))


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_nan_gradient_of_a_padded_item_stays_out(leaf: Any, seed: np.random.Generator) -> None:
    """hypot of a loss of 0 gives such a gradient; torch leaves the item out, numpy multiplied it by 0."""
    logits = seed.normal(size=(2, 3))
    g = np.array([0.5, np.nan])
    grad = run(leaf, "cross_entropy_backward", g, logits, np.array([1, -100]), None, None, pad_tokens=(-100,))
    assert not grad[1].any()
    assert np.isfinite(grad).all()


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [None, 0.2])
def test_an_infinite_gradient_stays_infinite(
    leaf: Any, weighted: bool, smoothing: float | None, seed: np.random.Generator
) -> None:
    """Not infinity less infinity, which is NaN: each slope of the loss is a finite number that is not 0."""
    logits, weight = seed.normal(size=(2, 3)), seed.uniform(0.5, 1, 3) if weighted else None
    attrs: dict[str, Any] = {"pad_tokens": ()}
    slopes = run(leaf, "cross_entropy_backward", np.ones(2), logits, np.array([1, 2]), weight, smoothing, **attrs)
    g = np.array([np.inf, -np.inf])
    grad = run(leaf, "cross_entropy_backward", g, logits, np.array([1, 2]), weight, smoothing, **attrs)
    np.testing.assert_array_equal(grad, np.sign(slopes) * g[:, None])
