"""AUROC and average precision beside scikit-learn's."""

import numpy as np
import pytest

from burn_torch import ArgumentError, ShapeError
from burn_torch.train import (
    AucPrMetric,
    AurocMetric,
    ClassificationOutput,
    ConfusionStatsInput,
    MultiLabelClassificationOutput,
)
from burn_torch.train.metric import ranking
from burn_torch.train.metric.ranking import areas_under_roc, average_precisions

sklearn = pytest.importorskip("sklearn.metrics")

SIZES = (9, 1, 0, 20)
KINDS = {"AUROC": (AurocMetric, sklearn.roc_auc_score), "AUC-PR": (AucPrMetric, sklearn.average_precision_score)}


def cut(array, sizes=SIZES):
    return np.split(array, np.cumsum(sizes)[:-1])


def of_one(kind, true, scores):
    """Percent of one class; NaN where it is undefined: without positives, and for AUROC without negatives."""
    if not true.any() or (kind == "AUROC" and true.all()):
        return np.nan
    return 100 * KINDS[kind][1](true, scores)


def of_all(kind, true, scores, reduction, kept=None):
    kept = np.ones(true.shape, bool) if kept is None else kept
    if reduction == "micro":
        return of_one(kind, true[kept], scores[kept])
    each = [of_one(kind, true[k, c], scores[k, c]) for c, k in enumerate(kept.T)]
    return np.nan if np.isnan(each).all() else np.nanmean(each)


@pytest.fixture
def one_of(tensor):
    def made(output, targets):
        return ClassificationOutput(tensor(0.0), tensor(output), tensor(targets, np.int64))

    return made


@pytest.fixture
def some_of(tensor):
    def made(output, targets):
        return MultiLabelClassificationOutput(tensor(0.0), tensor(output), tensor(targets, np.int64))

    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", ["random", "ties", "all positive", "all negative"])
def test_binary(kind, data, seed, check, one_of):
    n = sum(SIZES)
    scores = seed.random((n, 1)).astype(np.float32)
    if data == "ties":
        scores = (scores * 4).round() / 4
    targets = {"all positive": np.ones(n), "all negative": np.zeros(n)}.get(data, seed.integers(0, 2, n)).astype(int)
    parts = list(zip(cut(scores), cut(targets), strict=True))
    batches = [of_one(kind, t == 1, s) for s, t in parts]
    whole = of_one(kind, targets == 1, scores)
    check(KINDS[kind][0].binary, [one_of(s, t) for s, t in parts], batches, whole)
    # two columns: probabilities, and logits whose softmax they are
    both = [one_of(np.hstack([1 - s, s]), t) for s, t in parts]
    check(KINDS[kind][0].binary, both, batches, whole)
    shift = seed.integers(-2, 3, (n, 1)).astype(np.float32)
    parts = zip(cut(scores), cut(targets), cut(shift), strict=True)
    logits = [one_of(np.hstack([m, m + 8 * s]), t) for s, t, m in parts]
    if data == "ties":  # multiples of 2, so that equal differences are equal in float32
        check(KINDS[kind][0].binary, logits, batches, whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["micro", "macro"])
@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_multiclass(kind, reduction, data, seed, check, one_of):
    n, classes = sum(SIZES), 4
    logits = seed.normal(0, 1, (n, classes)).astype(np.float32)
    scores = np.exp(logits.astype(np.float64))
    scores /= scores.sum(1, keepdims=True)
    targets = np.full(n, 1) if data == "single class" else seed.integers(0, 3, n)  # class 3 is never right
    if data == "padded":
        targets[seed.random(n) < 0.4] = 99
        targets[9] = 99
    kept = np.repeat((targets != 99)[:, None], classes, 1)
    true = targets[:, None] == np.arange(classes)
    whole = of_all(kind, true, scores, reduction, kept)
    batches = [of_all(kind, t, s, reduction, k) for t, s, k in zip(cut(true), cut(scores), cut(kept), strict=True)]
    items = [one_of(s, t) for s, t in zip(cut(logits), cut(targets), strict=True)]

    def build():
        return KINDS[kind][0].multiclass(reduction).with_softmax().with_pad_token(99)

    check(build, items, batches, whole)
    if data == "random" and kind == "AUROC":  # and scikit-learn's own one-against-the-rest
        present = scores[:, :3] / scores[:, :3].sum(1, keepdims=True)
        theirs = sklearn.roc_auc_score(targets, present, multi_class="ovr", average=reduction)
        items = [one_of(s, t) for s, t in zip(cut(present), cut(targets), strict=True)]
        check(lambda: AurocMetric.multiclass(reduction), items, None, 100 * theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["micro", "macro"])
@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_multilabel(kind, reduction, data, seed, check, some_of):
    n, labels = sum(SIZES), 3
    scores = seed.normal(0, 1, (n, labels)).astype(np.float32)
    targets = seed.integers(0, 2, (n, labels))
    if data == "single class":
        targets[:, 0], targets[:, 2] = 0, 1
    kept = seed.random((n, labels)) < 0.7 if data == "padded" else np.ones((n, labels), bool)
    shown = np.where(kept, targets, -1)
    whole = of_all(kind, targets == 1, scores, reduction, kept)
    items = [some_of(s, t) for s, t in zip(cut(scores), cut(shown), strict=True)]
    check(lambda: KINDS[kind][0].multilabel(reduction).with_pad_token(-1), items, None, whole)


def column(values):
    return np.asarray(values)[:, None]


def test_many_scores_with_and_without_ties(seed):
    true = seed.random(20_000) < 0.1
    every = np.ones((20_000, 1), bool)
    for scores in (seed.normal(true, 1), seed.normal(true, 1).round(1)):
        (area,) = areas_under_roc(column(scores), column(true), every)
        (precision,) = average_precisions(column(scores), column(true), every)
        assert area == pytest.approx(sklearn.roc_auc_score(true, scores), rel=1e-12)
        assert precision == pytest.approx(sklearn.average_precision_score(true, scores), rel=1e-12)


def test_by_hand():
    # pairs of (true, untrue): 0.8 > 0.5, 0.8 > 0.1, 0.5 = 0.5, 0.5 > 0.1
    scores, true, every = column([0.8, 0.5, 0.5, 0.1]), column([True, True, False, False]), np.ones((4, 1), bool)
    assert areas_under_roc(scores, true, every) == [3.5 / 4]
    assert average_precisions(scores, true, every) == pytest.approx([(1 + 2 / 3) / 2])
    but_third = column([True, True, False, True])
    assert areas_under_roc(scores, true, but_third) == average_precisions(scores, true, but_third) == [1.0]
    unknown = np.where(scores == 0.8, np.nan, scores)
    for function in (areas_under_roc, average_precisions):
        assert np.isnan(function(unknown, true, every)).all()
        assert function(unknown, true, unknown == unknown) == pytest.approx(function(scores[1:], true[1:], every[1:]))
        assert np.isnan(function(scores, every & False, every)).all()


def test_classes_are_looked_at_some_at_a_time(seed, some_of, feed, monkeypatch):
    scores, targets = seed.random((50, 7)), seed.integers(0, 2, (50, 7))
    for metric in (AurocMetric.multilabel, AucPrMetric.multilabel):
        (whole,) = feed(metric(), [some_of(scores, targets)])
        with monkeypatch.context() as patch:
            patch.setattr(ranking, "_MOST_AT_ONCE", 150)
            assert ranking._blocks(50, 7) == [slice(0, 3), slice(3, 6), slice(6, 9)]
            assert feed(metric(), [some_of(scores, targets)]) == [whole]


def test_small_probabilities_keep_their_order(one_of, feed):
    small = np.array([1e-9, 2e-9, 3e-9])
    item = one_of(np.stack([1 - small, small], 1), [0, 0, 1])
    assert feed(AurocMetric.binary(), [item]) == [100.0]


def test_names_and_faults(one_of, tensor, feed):
    assert (AurocMetric.binary().name, AucPrMetric.multiclass("micro").name) == ("AUROC [Macro]", "AUC-PR [Micro]")
    assert AucPrMetric().unit == "%"
    with pytest.raises(
        ShapeError, match=r"AurocMetric: binary [\s\S]*given:    scores \(2, 3\)[\s\S]*AurocMetric.multiclass"
    ):
        feed(AurocMetric.binary(), [one_of(np.zeros((2, 3)), [0, 1])])
    with pytest.raises(ShapeError, match=r"AucPrMetric: .*\n  given:    outputs \(2, 3\), targets \(2, 2\)"):
        feed(AucPrMetric.multilabel(), [ConfusionStatsInput(tensor(np.zeros((2, 3))), tensor(np.zeros((2, 2))))])
    pair = ConfusionStatsInput(tensor(np.zeros((2, 3))), tensor(np.zeros((2, 3)), np.bool_))
    with pytest.raises(ArgumentError, match=r"AurocMetric: no labels to find padding in"):
        feed(AurocMetric.multilabel().with_pad_token(0), [pair])
    metric = AurocMetric.multiclass()
    feed(metric, [one_of(np.zeros((2, 3)), [0, 1]), one_of(np.zeros((2, 4)), [0, 1])])
    with pytest.raises(ShapeError, match=r"'score' of shape \(2, 4\) after \(2, 3\)"):
        metric.value()
