"""Precision, recall, F-beta, Hamming score and top-k accuracy beside scikit-learn's."""

import numpy as np
import pytest

from burn_torch import ArgumentError, Device, ShapeError
from burn_torch.train import (
    AccuracyMetric,
    ClassificationMetricConfig,
    ClassificationOutput,
    ClassReduction,
    ConfusionStats,
    ConfusionStatsInput,
    DecisionRule,
    FBetaScoreMetric,
    HammingScore,
    LossMetric,
    MultiLabelClassificationOutput,
    PrecisionMetric,
    RecallMetric,
    SequenceOutput,
    TopKAccuracyMetric,
)

sklearn = pytest.importorskip("sklearn.metrics")

SIZES = (7, 1, 0, 12)
KINDS = {
    "precision": (PrecisionMetric, sklearn.precision_score, {}),
    "recall": (RecallMetric, sklearn.recall_score, {}),
    "fbeta": (FBetaScoreMetric, sklearn.fbeta_score, {"beta": 0.5}),
}


def cut(array, sizes=SIZES):
    return np.split(array, np.cumsum(sizes)[:-1])


def reference(score, true, decided, reduction, **options):
    """In percent; a class whose score is 0 / 0 is left out."""
    if not len(true):
        return np.nan
    classes = true.shape[1]
    average = {"average": None} if classes > 1 else {}
    if reduction == "micro":
        true, decided, average = true.reshape(-1, 1), decided.reshape(-1, 1), {}
    each = score(true, decided, zero_division=np.nan, **average, **options)
    return 100 * np.nanmean(each) if not np.isnan(each).all() else np.nan


@pytest.fixture
def make(tensor):
    def made(loss, output, targets):
        return ClassificationOutput(tensor(loss), tensor(output), tensor(targets, np.int64))

    return made


@pytest.fixture
def multilabel(tensor):
    def made(output, targets):
        return MultiLabelClassificationOutput(tensor(0.0), tensor(output), tensor(targets, np.int64))

    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", ["random", "all positive", "all negative", "never decided"])
def test_binary(kind, data, seed, check, make):
    metric, score, options = KINDS[kind]
    n = sum(SIZES)
    scores = seed.random((n, 1)).astype(np.float32)
    targets = {"all positive": np.ones(n), "all negative": np.zeros(n)}.get(data, seed.integers(0, 2, n)).astype(int)
    threshold = 2.0 if data == "never decided" else 0.6
    decided = scores > np.float32(threshold)
    whole = reference(score, targets[:, None], decided, "macro", **options)
    parts = zip(cut(targets[:, None]), cut(decided), strict=True)
    batches = [reference(score, t, d, "macro", **options) for t, d in parts]
    items = [make(0.0, s, t) for s, t in zip(cut(scores), cut(targets), strict=True)]
    check(lambda: metric.binary(**options, threshold=threshold), items, batches, whole)
    both = [make(0.0, np.hstack([1 - s, s]), t) for s, t in zip(cut(scores), cut(targets), strict=True)]
    check(lambda: metric.binary(**options, threshold=threshold), both, batches, whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["micro", "macro"])
@pytest.mark.parametrize("data", ["random", "single class", "padded"])
@pytest.mark.parametrize("k", [1, 2])
def test_multiclass(kind, reduction, data, k, seed, check, make):
    metric, score, options = KINDS[kind]
    n, classes = sum(SIZES), 5
    scores = seed.normal(0, 1, (n, classes)).astype(np.float32)
    targets = np.full(n, 2) if data == "single class" else seed.integers(0, 4, n)  # class 4 is never right
    if data == "padded":
        targets[seed.random(n) < 0.4] = -100
        targets[7] = -100  # the batch of one is nothing but padding
    decided = np.zeros((n, classes), bool)
    np.put_along_axis(decided, np.argsort(-scores, 1)[:, :k], True, 1)
    true, kept = targets[:, None] == np.arange(classes), targets != -100

    def expected(rows):
        rows = rows[kept[rows]]
        return reference(score, true[rows], decided[rows], reduction, **options)

    items = [make(0.0, s, t) for s, t in zip(cut(scores), cut(targets), strict=True)]
    batches = [expected(rows) for rows in cut(np.arange(n))]

    def build():
        built = metric.multiclass(**options, top_k=k, class_reduction=reduction)
        return built.with_pad_token(-100) if data == "padded" else built

    check(build, items, batches, expected(np.arange(n)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["micro", "macro"])
@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_multilabel(kind, reduction, data, seed, check, multilabel):
    metric, score, options = KINDS[kind]
    n, labels = sum(SIZES), 3
    scores = seed.random((n, labels)).astype(np.float32)
    targets = seed.integers(0, 2, (n, labels))
    if data == "single class":
        targets[:, 1] = 0
    if data == "padded":
        targets[seed.random((n, labels)) < 0.3] = -1
    decided = scores > 0.5

    def expected(rows):
        each, t, d, kept = [], targets[rows] == 1, decided[rows], targets[rows] != -1
        if reduction == "micro":
            return reference(score, t[kept][:, None], d[kept][:, None], "macro", **options)
        for c in range(labels):
            column = kept[:, c]
            each.append(reference(score, t[column, c][:, None], d[column, c][:, None], "macro", **options))
        return np.nan if np.isnan(each).all() else np.nanmean(each)

    items = [multilabel(s, t) for s, t in zip(cut(scores), cut(targets), strict=True)]
    batches = [expected(rows) for rows in cut(np.arange(n))]

    def build():
        built = metric.multilabel(**options, class_reduction=reduction)
        return built.with_pad_token(-1) if data == "padded" else built

    check(build, items, batches, expected(np.arange(n)))


def test_names_are_burns():
    assert PrecisionMetric.multiclass(1, "macro").name == "Precision @ TopK(1) [Macro]"
    assert RecallMetric.multilabel(0.5, ClassReduction.Micro).name == "Recall @ Threshold(0.5) [Micro]"
    assert FBetaScoreMetric.multiclass(0.5, 1, "Macro").name == "FBetaScore (0.5) @ TopK(1) [Macro]"
    assert TopKAccuracyMetric(2).name == "Top-K Accuracy @ TopK(2)"
    assert HammingScore().with_threshold(0.75).name == "Hamming Score @ Threshold(0.75)"
    assert HammingScore().name == "Hamming Score @ Threshold(0.5)"


def test_confusion_stats_by_hand(tensor):
    # row by row: decided 0 / 1 / 1 / 2, true 0 / 1 / 2 / 0
    scores = tensor([[3, 1, 1], [0, 2, 1], [0, 2, 1], [0, 1, 2]])
    decisions = ConfusionStatsInput(scores, tensor(np.eye(3)[[0, 1, 2, 0]], np.bool_))
    macro = ConfusionStats(decisions, ClassificationMetricConfig(DecisionRule.TopK(1)))
    assert macro.true_positive().tolist() == [1, 1, 0]
    assert macro.false_positive().tolist() == [0, 1, 1]
    assert macro.false_negative().tolist() == [1, 0, 1]
    assert macro.true_negative().tolist() == [2, 2, 2]
    assert macro.positive().tolist() == [2, 1, 1]
    assert macro.negative().tolist() == [2, 3, 3]
    assert macro.predicted_positive().tolist() == [1, 2, 1]
    assert macro.support().tolist() == [4, 4, 4]
    assert macro.ratio_of_support(macro.true_positive()).tolist() == [0.25, 0.25, 0.0]
    micro = ConfusionStats(decisions, ClassificationMetricConfig(DecisionRule.TopK(1), ClassReduction.Micro))
    counts = (micro.true_positive(), micro.false_positive(), micro.false_negative(), micro.true_negative())
    assert [count.tolist() for count in counts] == [[2], [2], [2], [6]]


def test_equal_scores_decide_for_the_first(tensor):
    scores = tensor([[1, 1, 1, 0]])
    assert DecisionRule.TopK(1).decide(scores).tolist() == [[True, False, False, False]]
    assert DecisionRule.TopK(2).decide(scores).tolist() == [[True, True, False, False]]
    assert DecisionRule.Threshold(1.0).decide(scores).tolist() == [[False] * 4]


@pytest.mark.parametrize("data", ["random", "single class", "padded"])
@pytest.mark.parametrize("k", [1, 3])
def test_top_k_accuracy(data, k, seed, check, make):
    n, classes = sum(SIZES), 6
    scores = seed.normal(0, 1, (n, classes)).astype(np.float32)
    targets = np.full(n, 3) if data == "single class" else seed.integers(0, classes, n)
    if data == "padded":
        targets[seed.random(n) < 0.4] = 77
        targets[7] = 77

    def expected(rows):
        rows = rows[targets[rows] != 77]
        if not len(rows):
            return np.nan
        return 100 * sklearn.top_k_accuracy_score(targets[rows], scores[rows], k=k, labels=range(classes))

    items = [make(0.0, s, t) for s, t in zip(cut(scores), cut(targets), strict=True)]
    check(
        lambda: TopKAccuracyMetric(k).with_pad_token(77) if data == "padded" else TopKAccuracyMetric(k),
        items,
        [expected(rows) for rows in cut(np.arange(n))],
        expected(np.arange(n)),
    )


@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_accuracy_and_loss(data, seed, check, tensor):
    n, classes = sum(SIZES), 4
    scores = seed.normal(0, 1, (n, classes)).astype(np.float32)
    targets = np.full(n, 3) if data == "single class" else seed.integers(0, classes, n)
    if data == "padded":
        targets[seed.random(n) < 0.4] = -1
        targets[7] = -1
    losses = np.where(targets >= 0, seed.random(n), 0.0)
    kept = [rows[targets[rows] >= 0] for rows in cut(np.arange(n))]
    means = [losses[rows].mean() if len(rows) else np.nan for rows in kept]  # of nothing it is NaN, as torch's is
    items = [
        ClassificationOutput(tensor(mean), tensor(s), tensor(t, np.int64))
        for mean, s, t in zip(means, cut(scores), cut(targets), strict=True)
    ]

    def percent(rows):
        return 100 * sklearn.accuracy_score(targets[rows], scores[rows].argmax(1)) if len(rows) else np.nan

    def build(metric):
        return metric.with_pad_token(-1) if data == "padded" else metric

    check(lambda: build(AccuracyMetric()), items, [percent(rows) for rows in kept], percent(np.concatenate(kept)))
    check(lambda: build(LossMetric()), items, means, losses[np.concatenate(kept)].mean())


def test_top_k_accuracy_of_equal_and_missing_scores(make, feed):
    nan = np.nan
    scores = [[1, 1, 1], [1, 1, 1], [1, 1, 1], [nan, 1, 0], [nan, 1, 0], [2, 1, 0]]
    item = make(0.0, scores, [0, 1, 2, 0, 1, 9])  # class 9 is none
    metric = TopKAccuracyMetric(2)
    assert feed(metric, [item]) == [pytest.approx(100 * 3 / 6)]


def test_top_k_accuracy_of_sequences(tensor, feed, seed):
    logits, targets = seed.normal(0, 1, (2, 3, 4)), seed.integers(0, 4, (2, 3))
    item = SequenceOutput(tensor(0.0), tensor(logits), tensor(targets, np.int64))
    whole = sklearn.top_k_accuracy_score(targets.ravel(), logits.reshape(6, 4), k=2, labels=range(4))
    assert feed(TopKAccuracyMetric(2), [item]) == [pytest.approx(100 * whole)]


@pytest.mark.parametrize("data", ["random", "single class", "padded"])
def test_hamming_score(data, seed, check, multilabel):
    n, labels = sum(SIZES), 4
    logits = seed.normal(0, 1, (n, labels)).astype(np.float32)
    targets = np.zeros((n, labels), int) if data == "single class" else seed.integers(0, 2, (n, labels))
    kept = np.ones((n, labels), bool)
    if data == "padded":
        kept = seed.random((n, labels)) < 0.6
        kept[7] = False
    decided = 1 / (1 + np.exp(-logits.astype(np.float64))) > 0.3

    def expected(rows):
        true, said = targets[rows][kept[rows]], decided[rows][kept[rows]]
        return 100 * (1 - sklearn.hamming_loss(true, said)) if true.size else np.nan

    shown = np.where(kept, targets, -1)
    items = [multilabel(s, t) for s, t in zip(cut(logits), cut(shown), strict=True)]
    metric = HammingScore().with_sigmoid().with_threshold(0.3)
    check(
        lambda: metric.with_pad_token(-1) if data == "padded" else metric.with_sigmoid(True),
        items,
        [expected(rows) for rows in cut(np.arange(n))],
        expected(np.arange(n)),
    )


@pytest.mark.parametrize("device", [Device.cpu().autodiff(), Device.ndarray()], ids=["autodiff", "ndarray"])
def test_other_devices(device, seed, tensor, feed):
    scores, targets = seed.normal(0, 1, (9, 4)), seed.integers(0, 4, 9)
    for metric in (PrecisionMetric.multiclass(2), TopKAccuracyMetric(2), FBetaScoreMetric.multiclass(1.0, 1, "micro")):
        values = []
        for place in (Device.cpu(), device):
            item = ClassificationOutput(
                tensor(0.0, device=place), tensor(scores, device=place), tensor(targets, np.int64, place)
            )
            values += feed(metric, [item])
        assert values[0] == values[1]


def test_faults(tensor, make, multilabel, feed):
    item = make(0.0, np.zeros((2, 3)), [0, 1])
    with pytest.raises(
        ArgumentError, match=r"TopKAccuracyMetric: k is larger than the number of classes\n  given:    k=4, sc"
    ):
        feed(TopKAccuracyMetric(4), [item])
    with pytest.raises(
        ArgumentError, match=r"DecisionRule.TopK: k is larger than the number of classes\n  given:    k=4"
    ):
        feed(RecallMetric.multiclass(4), [item])
    with pytest.raises(ArgumentError, match=r"TopKAccuracyMetric: not above 0\n  given:    k=0"):
        TopKAccuracyMetric(0)
    with pytest.raises(ArgumentError, match=r"given:    top_k=0[\s\S]*mend:     give top_k=1"):
        PrecisionMetric.multiclass(0)
    with pytest.raises(ArgumentError, match=r"given:    beta=-1.0[\s\S]*give beta above 0"):
        FBetaScoreMetric.binary(-1.0)
    with pytest.raises(ArgumentError, match=r"no such ClassReduction\n  given:    'median'\n  expected: 'micro' or"):
        PrecisionMetric.multiclass(1, "median")
    with pytest.raises(ShapeError, match=r"given:    scores \(2, 3\)[\s\S]*mend:     use PrecisionMetric.multiclass"):
        feed(PrecisionMetric.binary(), [item])
    with pytest.raises(ShapeError, match=r"ClassificationOutput: .*\n  given:    output \(2, 3\), targets \(2, 3\)"):
        feed(PrecisionMetric.multiclass(), [make(0.0, np.zeros((2, 3)), np.zeros((2, 3)))])
    with pytest.raises(ShapeError, match=r"HammingScore: .*\n  given:    outputs \(2, 3\), targets \(2, 2\)"):
        feed(HammingScore(), [multilabel(np.zeros((2, 3)), np.zeros((2, 2)))])
    without = ConfusionStatsInput(tensor(np.zeros((2, 3))), tensor(np.zeros((2, 3)), np.bool_))
    with pytest.raises(ArgumentError, match=r"no labels to find padding in[\s\S]*mend:     give ConfusionStatsInput\("):
        feed(PrecisionMetric.multiclass().with_pad_token(0), [without])
    metric = PrecisionMetric.multiclass()
    feed(metric, [item, make(0.0, np.zeros((1, 4)), [0])])
    with pytest.raises(
        ShapeError, match=r"does not have one shape\n  given:    'true positive' of shape \(4,\) after \(3,"
    ):
        metric.value()
