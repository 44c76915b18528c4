"""Losses of logarithms, of several labels, of distances of one's own and of large vocabularies, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from burn_torch import compile, nn
from burn_torch.core.errors import BoundsError, ConfigError, ShapeError
from burn_torch.nn.loss import Reduction
from burn_torch.tensor import Device, Tensor
from tests.nn.loss_checks import TIGHT, Rng
from tests.nn.twins import AD, CPU, array, close, compare, double, swapped, tensor

WEIGHTS = [0.5, 2.0, 1.25, 4.0, 0.125]  # exact in float32, as weights are kept


@pytest.mark.parametrize("pad", [None, 2, -100])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_nll(pad: int | None, weights: list[float] | None, seed: Rng) -> None:
    loss = nn.NLLLossConfig(pad_tokens=None if pad is None else [pad], weights=weights).init(AD)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    targets = seed.integers(0, 5, 9)
    targets[::4] = 1 if pad is None else pad
    logs = np.log(seed.dirichlet(np.ones(5), 9))
    ignored = {} if pad is None else {"ignore_index": pad}
    compare(seed, loss, lambda x, t: F.nll_loss(x, t, weight, **ignored).reshape(1), logs, targets, tolerance=TIGHT)
    host = Device.ndarray()
    again = nn.NLLLossConfig(pad_tokens=loss.pad_tokens and list(loss.pad_tokens), weights=weights).init(host)
    close(again.forward(tensor(logs, host), tensor(targets, host)), loss.forward(tensor(logs), tensor(targets)), TIGHT)


def _labels(rng: Rng, items: int, classes: int) -> np.ndarray:
    """Some classes of each item, then -1 and whatever: none, all, and one twice among them."""
    rows = rng.permuted(np.tile(np.arange(classes), (items, 1)), axis=1)
    for row in rows:
        row[rng.integers(0, classes + 1) :][:1] = -1
    rows[:1, 1:2] = rows[:1, 0:1]
    return rows


@pytest.mark.parametrize("shape", [(6, 5), (1, 1), (0, 4), (3, 2)], ids=str)
def test_multi_label_margin(shape: tuple[int, int], seed: Rng) -> None:
    loss, x, t = nn.MultiLabelMarginLoss(), seed.normal(size=shape), _labels(seed, *shape)
    twin = lambda x, t: F.multilabel_margin_loss(x, t, reduction="none")  # noqa: E731
    each = nn.MultiLabelMarginLoss.forward_no_reduction
    compare(seed, loss, twin, x, t, forward=each, tolerance=TIGHT)
    whole = loss.forward(tensor(x), tensor(t.astype(np.int32)), Reduction.Sum)
    close(whole, twin(torch.tensor(x), torch.tensor(t)).sum().reshape(1), TIGHT)
    host = Device.ndarray()
    close(each(loss, tensor(x, host), tensor(t, host)), twin(torch.tensor(x), torch.tensor(t)), TIGHT)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_multi_label_soft_margin(weights: list[float] | None, seed: Rng) -> None:
    loss = nn.MultiLabelSoftMarginLossConfig(weights=weights).init(AD)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    x, t = seed.normal(size=(4, 5)) * 3, seed.integers(0, 2, (4, 5))
    for name, reduction in (("mean", Reduction.Auto), ("sum", Reduction.Sum)):
        twin = lambda x, t, n=name: F.multilabel_soft_margin_loss(x, t, weight, reduction=n).reshape(1)  # noqa: E731
        ours = lambda layer, x, t, r=reduction: layer.forward(x, t, r)  # noqa: E731
        compare(seed, loss, twin, x, t, forward=ours, tolerance=TIGHT)
    with pytest.raises(ShapeError, match=r"weights do not fit the classes\n  given: +1 weights(.|\n)*expected: 5"):
        nn.MultiLabelSoftMarginLossConfig(weights=[2.0]).init().forward(tensor(x), tensor(t))


def _cosine(a: Any, b: Any) -> Any:
    """1 - cos, of tensors of either kind."""
    dot = lambda a, b: (a * b).sum_dim(-1).squeeze_dim(-1) if isinstance(a, Tensor) else (a * b).sum(-1)  # noqa: E731
    return 1.0 - dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("margin", [1.0, 0.2])
def test_triplets_with_a_distance_of_ones_own(swap: bool, margin: float, seed: Rng) -> None:
    xs = [seed.normal(size=(8, 3)) for _ in range(3)]
    config = nn.TripletMarginWithDistanceLossConfig(margin=margin, swap=swap)
    for distance, twin in (
        (None, None),
        (_cosine, _cosine),
        (nn.PairwiseDistance(1.0, 0.0), torch.nn.PairwiseDistance(1.0, 0.0)),
    ):
        theirs = torch.nn.TripletMarginWithDistanceLoss(
            distance_function=twin, margin=margin, swap=swap, reduction="none"
        )
        each = nn.TripletMarginWithDistanceLoss.forward_no_reduction
        compare(seed, config.init(None, distance), theirs, *xs, forward=each, tolerance=1e-11)


def test_a_distance_that_is_a_module_is_trained_and_shown(seed: Rng) -> None:
    class Scaled(nn.Linear):
        def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:  # type: ignore[override]  # of two inputs
            assert b is not None
            return super().forward(a - b).square().sum_dim(1).squeeze_dim(1)

    inner = nn.LinearConfig(3, 2).init(AD)
    loss = nn.TripletMarginWithDistanceLossConfig().init(None, Scaled(inner.weight, inner.bias))
    assert [path for path, _ in loss.named_params()] == ["distance.weight", "distance.bias"]
    grads = loss.forward(*(Tensor.from_data(seed.normal(size=(4, 3)).astype("f4"), AD) for _ in range(3))).backward()
    assert inner.weight.val().grad(grads) is not None
    assert "distance: _cosine, margin: 1.0" in str(nn.TripletMarginWithDistanceLossConfig().init(None, _cosine))


@pytest.mark.parametrize(("bias", "pad", "smoothing"), [(False, None, None), (True, 3, 0.1)])
def test_linear_cross_entropy(bias: bool, pad: int | None, smoothing: float | None, seed: Rng) -> None:
    config = nn.LinearCrossEntropyLossConfig(6, 5, bias=bias, pad_tokens=pad and [pad], smoothing=smoothing)
    twin = torch.nn.LinearCrossEntropyLoss(
        6, 5, bias=bias, ignore_index=pad, label_smoothing=smoothing or 0.0, dtype=torch.float64
    )
    params = {"linear.weight": (twin.linear.weight, swapped)} | (
        {"linear.bias": (twin.linear.bias, lambda a: a)} if bias else {}
    )
    flat = lambda x, t: twin(x.reshape(-1, 6), t.reshape(-1)).reshape(1)  # noqa: E731
    x, t = seed.normal(size=(2, 4, 6)), seed.integers(0, 5, (2, 4))
    compare(seed, config.init(AD), flat, x, t, params=params, tolerance=TIGHT)
    with pytest.raises(ShapeError, match=r"LinearCrossEntropyLoss: input and targets do not fit"):
        config.init(CPU).forward(tensor(x, CPU), tensor(t[:1], CPU))


@pytest.mark.parametrize("head_bias", [False, True])
@pytest.mark.parametrize("cutoffs", [[4], [3, 7, 8]])
@pytest.mark.parametrize("compiled", [False, True])
def test_adaptive_log_softmax(cutoffs: list[int], head_bias: bool, compiled: bool, seed: Rng) -> None:
    twin = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs, 2.0, head_bias, dtype=torch.float64)
    layer = nn.AdaptiveLogSoftmaxWithLossConfig(8, 12, cutoffs, div_value=2.0, head_bias=head_bias).init(AD)
    params = {"head.weight": (twin.head.weight, swapped)}
    params |= {"head.bias": (twin.head.bias, lambda a: a)} if head_bias else {}
    for i, cluster in enumerate(twin.tail):
        params |= {f"tail.{i}.{j}.weight": (cluster[j].weight, swapped) for j in (0, 1)}
    x, t = seed.normal(size=(10, 8)), seed.integers(0, 12, 10)
    for part in ("output", "loss"):

        def ours(layer: Any, x: Tensor, t: Tensor, part: str = part) -> Tensor:
            run = lambda layer, x, t: getattr(layer.forward(x, t), part)  # noqa: E731
            return compile(run)(layer, x, t) if compiled else run(layer, x, t)  # type: ignore[no-any-return]

        theirs = lambda x, t, part=part: getattr(twin(x, t), part).reshape(-1)  # noqa: E731
        layer = compare(seed, layer, theirs, x, t, params=params, forward=ours, tolerance=1e-11)
    close(layer.log_prob(tensor(x)), twin.log_prob(torch.tensor(x)), 1e-11)
    np.testing.assert_array_equal(array(layer.predict(tensor(x))), twin.predict(torch.tensor(x)).numpy())
    host = double(layer.valid().to_device(Device.ndarray()))
    close(
        host.forward(tensor(x, Device.ndarray()), tensor(t, Device.ndarray())).output,
        twin(torch.tensor(x), torch.tensor(t)).output,
        1e-11,
    )


def test_adaptive_log_softmax_refuses_what_is_no_class() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLossConfig(8, 12, [4]).init(CPU)
    for wrong in (12, -1):
        with pytest.raises(BoundsError, match=r"out of range\n  given: .*" + str(wrong)):
            layer.forward(Tensor.zeros((2, 8), CPU), tensor(np.array([0, wrong]), CPU))
    for cutoffs in ([], [4, 4], [5, 4], [12], [0, 4]):
        with pytest.raises(ConfigError, match=r"cutoffs"):
            nn.AdaptiveLogSoftmaxWithLossConfig(8, 12, cutoffs)
    assert "d_input: 8, n_classes: 12, cutoffs: [4]" in str(layer)


@pytest.mark.parametrize("loss", [nn.MultiLabelMarginLoss(), nn.MultiLabelSoftMarginLoss(None)])
def test_labels_that_do_not_fit(loss: Any) -> None:
    with pytest.raises(ShapeError, match=r"input and target do not fit together\n  given: .*\n  expected: .*\n  mend:"):
        loss.forward(tensor(np.ones((2, 3))), tensor(np.ones(2, np.int64)))
