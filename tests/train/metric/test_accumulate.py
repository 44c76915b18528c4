"""Metrics of one's own that are no mean, the states of all metrics, and that measuring waits for nothing."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest

from burn_torch import Device, Tensor
from burn_torch.module import ModuleRecord
from burn_torch.optim import LearningRates
from burn_torch.tensor.transaction import Transaction
from burn_torch.train import (
    AccuracyMetric,
    AdditiveMetric,
    AucPrMetric,
    AurocMetric,
    BleuScore,
    CharErrorRate,
    ClassificationOutput,
    CollectingMetric,
    CpuUse,
    DiceInput,
    DiceMetric,
    FBetaScoreMetric,
    GroupLearningRateMetric,
    HammingScore,
    History,
    IterationSpeedMetric,
    LearningRateMetric,
    LossInput,
    LossMetric,
    MaeMetric,
    MergeableMetric,
    Metric,
    MetricMetadata,
    MultiLabelClassificationOutput,
    NumericMetric,
    PerplexityMetric,
    PrecisionMetric,
    PsnrMetric,
    PsnrMetricConfig,
    Reading,
    RecallMetric,
    RegressionOutput,
    RmseMetric,
    SequenceOutput,
    SilentRenderer,
    Split,
    SsimMetric,
    SsimMetricConfig,
    SupervisedTraining,
    TopKAccuracyMetric,
    WordErrorRate,
    merge_states,
)
from burn_torch.train.checkpoint.content import Checkpoint, Position
from burn_torch.train.event import Notice, StepDone
from burn_torch.train.metric.accumulate import ratio


class RelativeBias(AdditiveMetric):
    """A metric of a user's: a ratio of sums."""

    name = "Relative Bias"
    higher_is_better = False

    def measure(self, item, metadata):
        return {
            "error": (item.output - item.targets).sum(),
            "target": item.targets.sum(),
            "items": item.targets.shape[0],
        }

    def compute(self, columns):
        return ratio(columns["error"], columns["target"])


class MedianError(CollectingMetric):
    """A metric of a user's that needs all items."""

    name = "Median Error"
    higher_is_better = False

    def measure(self, item, metadata):
        return {"error": (item.output - item.targets).abs()}

    def compute(self, columns):
        return float(np.median(columns["error"])) if columns["error"].size else math.nan


def test_metrics_of_ones_own(seed, tensor, check):
    items, errors, targets, batches = [], [], [], []
    for n in (4, 0, 1, 7):
        x, y = seed.normal(0, 1, n), seed.normal(3, 1, n)
        items.append(RegressionOutput(tensor(0.0), tensor(x, np.float64), tensor(y, np.float64)))
        errors.append(x - y)
        targets.append(y)
        batches.append(np.median(np.abs(x - y)) if n else math.nan)
    whole = np.concatenate(errors)
    biases = [e.sum() / t.sum() if t.size else math.nan for e, t in zip(errors, targets, strict=True)]
    check(RelativeBias, items, biases, whole.sum() / np.concatenate(targets).sum())
    check(MedianError, items, batches, np.median(np.abs(whole)))
    assert isinstance(RelativeBias(), Metric)
    assert isinstance(MedianError(), MergeableMetric)


def test_counts_of_batches_are_their_items(tensor):
    metric, where = RelativeBias(), MetricMetadata(Split.VALID, 1, 1, 5, 0.1, 0.0)
    reading = metric.update(RegressionOutput(tensor(0.0), tensor(np.ones(5)), tensor(np.ones(5))), where)
    assert (reading.value, reading.count) == (0.0, 5.0)
    median = MedianError()
    assert median.update(RegressionOutput(tensor(0.0), tensor(np.ones(5)), tensor(np.ones(5))), where).count == 5


def test_sums_are_exact_where_float32_is_not(tensor, feed):
    class Items(AdditiveMetric):
        name = "Items"
        higher_is_better = True

        def measure(self, item, metadata):
            return {"items": item}

        def compute(self, columns):
            return float(columns["items"].sum())

    metric = Items()
    feed(metric, [tensor(2**24, np.int64), tensor(1, np.int64), tensor(1, np.int64)])
    assert metric.value() == 2**24 + 2
    assert metric.state()["items"].dtype == np.int64


def everything(tensor, seed):
    """One metric of each kind with an item for it."""
    scores, classes = seed.random((6, 3)), seed.integers(0, 3, 6)
    classified = ClassificationOutput(tensor(0.7), tensor(scores), tensor(classes, np.int64))
    several = MultiLabelClassificationOutput(tensor(0.7), tensor(scores), tensor(seed.integers(0, 2, (6, 3)), np.int64))
    tokens = SequenceOutput(tensor(0.7), tensor(seed.random((2, 5, 4))), tensor(seed.integers(0, 4, (2, 5)), np.int64))
    images = RegressionOutput(tensor(0.7), tensor(seed.random((2, 1, 12, 12))), tensor(seed.random((2, 1, 12, 12))))
    masks = DiceInput(*(tensor(seed.integers(0, 2, (2, 3, 4)), np.int64) for _ in range(2)))
    return [
        (LossMetric(), several),
        (AccuracyMetric(), tokens),
        (TopKAccuracyMetric(2), classified),
        (PrecisionMetric.multiclass(), classified),
        (RecallMetric.multilabel(), several),
        (FBetaScoreMetric.multiclass(1.0, 2, "micro"), classified),
        (AurocMetric.multilabel(), several),
        (AucPrMetric.multiclass().with_softmax(), classified),
        (HammingScore(), several),
        (PerplexityMetric(), tokens),
        (BleuScore(2), tokens),
        (CharErrorRate(), tokens),
        (WordErrorRate(), tokens),
        (PsnrMetric(PsnrMetricConfig(1.0)), images),
        (MaeMetric(), images),
        (RmseMetric(), images),
        (SsimMetric(SsimMetricConfig(1.0)), images),
        (DiceMetric(), masks),
        (LearningRateMetric(), None),
        (IterationSpeedMetric(), None),
        (CpuUse(), None),
    ]


def test_measuring_waits_for_nothing(tensor, seed, monkeypatch):
    where = MetricMetadata.fake()
    assert (where.split, where.epoch, where.iteration, where.items) == (Split.TRAIN, 1, 1, 1)
    pairs = everything(tensor, seed)
    for metric, item in pairs:
        metric.update(item, where)  # the first brings the window of SSIM to the device

    def refuse(*args, **kwargs):
        raise AssertionError("a metric waits for the device in update")

    with monkeypatch.context() as patch:
        for name in ("into_data", "into_torch", "__array__", "__float__", "__int__", "__bool__", "into_scalar"):
            patch.setattr(Tensor, name, refuse)
        patch.setattr(Tensor, "from_data", refuse)
        patch.setattr(Transaction, "execute", refuse)
        readings = [metric.update(item, where) for metric, item in pairs for _ in range(3)]
    assert len([reading.value for reading in readings]) == 3 * len(pairs)


def test_no_reading_holds_a_tape(tensor):
    class MeanError(NumericMetric):
        name, higher_is_better = "Mean Error", False

        def measure(self, item, metadata):
            return Reading.of_mean((item.output - item.targets).mean(), item.targets.shape[0])

    x = tensor([1.0, 2.0], device=Device.cpu().autodiff()).require_grad()
    y = x * 2
    item = RegressionOutput(y.mean(), y, y.zeros_like())
    metrics = [MeanError(), MedianError(), RelativeBias(), LossMetric()]
    readings = [metric.update(item, MetricMetadata.fake()) for metric in metrics]
    held = [reading._number for reading in (readings[0], readings[3])]
    held += [array for metric in metrics[1:3] for array in metric._pending[0]._measured.values()]
    assert not any(array.device.is_autodiff() for array in held if isinstance(array, Tensor))
    assert [reading.value for reading in readings][:2] == [3.0, 3.0]


def test_what_nobody_reads_does_not_pile_up_on_the_device(tensor):
    metric, where = MedianError(), MetricMetadata(Split.TRAIN, 1, 1, 1, 0.1, 0.0)
    item = RegressionOutput(tensor(0.0), tensor([1.0]), tensor([0.0]))
    for _ in range(600):
        metric.update(item, where)
    assert len(metric._pending) <= 256
    assert metric.value() == 1.0
    assert metric.state()["error"].shape == (600,)


def test_every_metric_merges(tensor, seed, feed):
    for metric, item in everything(tensor, seed):
        assert isinstance(metric, MergeableMetric)
        feed(metric, [item, item])
        value, state = metric.value(), copy.deepcopy(metric.state())
        metric.clear()
        merge_states(metric, [state])
        assert metric.value() == value or math.isnan(value)
        empty = type(metric).__new__(type(metric))
        empty.__dict__.update(metric.__dict__)
        empty.clear()
        merge_states(metric, [empty.state(), state, empty.state()])
        assert metric.value() == pytest.approx(value, nan_ok=True)


def test_a_state_stays_as_it_is_while_the_metric_goes_on(tensor, seed, feed):
    for metric, item in everything(tensor, seed):
        feed(metric, [item])
        state = metric.state()
        before = copy.deepcopy(state)
        feed(metric, [item, item])
        metric.clear()
        np.testing.assert_equal(dict(state), dict(before))


def test_workers_without_items_merge_to_nothing():
    metric = AurocMetric.binary()
    merge_states(metric, [AurocMetric.binary().state(), AurocMetric.binary().state()])
    assert math.isnan(metric.value())


def test_means_of_workers_are_weighted_by_their_items(tensor, feed):
    first, second = LossMetric(), LossMetric()
    feed(first, [LossInput(tensor(1.0), 30)])
    feed(second, [LossInput(tensor(5.0), 10)])
    feed(second, [LossInput(tensor(9.0), 0)])
    merge_states(first, [first.state(), second.state()])
    assert first.value() == 2.0


def test_learning_rate_of_a_worker_that_saw_no_step(feed):
    busy, idle = LearningRateMetric(), LearningRateMetric()
    feed(busy, [None])
    merge_states(idle, [idle.state(), busy.state()])
    assert idle.value() == busy.value() == 0.1


def test_learning_rate_of_a_group_in_a_worker_that_saw_no_step():
    busy, idle = GroupLearningRateMetric("slow"), GroupLearningRateMetric("slow")
    busy.update(None, replace(MetricMetadata.fake(), lr=LearningRates({"fast": 0.1, "slow": 0.01})))
    merge_states(idle, [idle.state(), busy.state()])
    assert idle.value() == busy.value() == 0.01


def test_a_run_measures_them_exactly_over_the_epoch(program, tmp_path):
    """F1, AUROC and the rest over 33 and 13 items in batches of 8 and 5, as a compiled training measures them."""
    sklearn = pytest.importorskip("sklearn.metrics")
    seen = []

    class Recorder:
        name, unit, higher_is_better = "Recorder", None, True

        def update(self, item, metadata):
            seen.append((metadata.split, metadata.epoch, item.output.into_data().values.copy(), item.targets.tolist()))
            return 0.0

        def value(self):
            return 0.0

        def clear(self):
            return None

    training = SupervisedTraining(tmp_path / "run", *program.make_loaders()).metrics(
        FBetaScoreMetric.multiclass(1.0, 1, "macro"),
        PrecisionMetric.multiclass(1, "micro"),
        AurocMetric.multiclass().with_softmax(),
        TopKAccuracyMetric(2),
        PerplexityMetric(),
        CpuUse(),
        Recorder(),
    )
    result = training.num_epochs(2).renderer(SilentRenderer()).launch(program.make_learner())
    for split in Split:
        rows = [(x, y) for where, epoch, x, y in seen if (where, epoch) == (split, 2)]
        scores, targets = np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows])
        assert len({len(y) for _, y in rows}) > 1

        def value(name, split=split):
            return result.history.find_metric(name, 2, split)

        classes = range(scores.shape[1])
        f1 = sklearn.f1_score(targets, scores.argmax(1), average="macro", labels=classes, zero_division=np.nan)
        assert value("FBetaScore (1) @ TopK(1) [Macro]") == pytest.approx(100 * f1, rel=1e-6)
        assert value("Precision @ TopK(1) [Micro]") == pytest.approx(100 * (scores.argmax(1) == targets).mean())
        shares = np.exp(scores.astype(np.float64))
        shares /= shares.sum(1, keepdims=True)
        areas = [sklearn.roc_auc_score(targets == c, shares[:, c]) for c in classes if (targets == c).any()]
        assert value("AUROC [Macro]") == pytest.approx(100 * np.mean(areas), rel=1e-6)
        right = shares[np.arange(len(targets)), targets]
        assert value("Perplexity") == pytest.approx(math.exp(-np.log(right).mean()), rel=1e-6)


@pytest.mark.parametrize("after", [1, 3])
def test_a_resume_in_the_middle_of_an_epoch_gives_the_same_values(program, tmp_path, after):
    class Stop:
        def __init__(self, interrupter):
            self.interrupter, self.left, self.notices = interrupter, after, []

        def handle(self, event):
            if isinstance(event, Notice):
                self.notices.append(event.text)
            if isinstance(event, StepDone) and event.split is Split.TRAIN:
                self.left -= 1
                if not self.left:
                    self.interrupter.stop("enough")

        def close(self):
            return None

    def training(folder):
        metrics = [
            AurocMetric.multiclass("micro"),
            FBetaScoreMetric.multiclass(2.0),
            PerplexityMetric(),
            TopKAccuracyMetric(2),
            MedianScore(),
        ]
        run = SupervisedTraining(folder, *program.make_loaders()).metrics(metrics).num_epochs(2).seed(3)
        return run.renderer(SilentRenderer())

    whole = training(tmp_path / "whole").launch(program.make_learner()).history
    stopped = training(tmp_path / "run")
    first = Stop(stopped.interrupter())
    assert stopped.renderer(first).launch(program.make_learner()).status == "stopped"
    resumed = training(tmp_path / "run").resume()
    second = Stop(resumed.interrupter())
    second.left = -1
    history = resumed.renderer(second).launch(program.make_learner()).history
    assert [text for text in second.notices if "starts again" in text] == []
    for split in Split:
        for name in whole.names(split):
            assert history.series(name, split) == whole.series(name, split)


class MedianScore(CollectingMetric):
    """Another metric of a user's, of the program's items."""

    name = "Median Score"
    higher_is_better = True

    def measure(self, item, metadata):
        return {"score": item.output}  # tracked while training

    def compute(self, columns):
        return float(np.median(columns["score"]))


def test_a_checkpoint_keeps_arrays_of_states_as_tensors(program, tmp_path, seed):
    """An epoch of scores is no text: the text of a file has a limit, its tensors have not."""
    scores = seed.normal(0, 1, (1000, 4)).astype(np.float32)
    states = {
        "a": {"score": scores, "true": scores > 0, "count": np.array([2**53 + 1])},
        "b": {"total": (0.1).hex(), "parts": [np.float64(3.5) * np.ones((0, 2)), {"deep": [1, None]}]},
    }
    learner = program.make_learner()
    checkpoint = Checkpoint(
        position=Position(batch=1),
        run_key=1,
        model=learner.model.into_record(),
        optim=learner.optim.to_record(),
        scheduler=learner.lr_scheduler.to_record(),
        lr=0.1,
        history=History(),
        metrics=states,
    )
    path = checkpoint.to_record(learner.model).save(tmp_path / "saved")
    record = ModuleRecord.load(path)
    assert len(record.metadata["checkpoint"]) < 2000
    restored = Checkpoint.from_record(record).metrics
    np.testing.assert_equal(restored, states)
    assert [restored["a"][name].dtype for name in ("score", "true", "count")] == [np.float32, np.bool_, np.int64]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_on_a_gpu_the_values_are_those_of_the_cpu_and_no_update_waits(tensor, feed):
    import torch

    place = Device.cuda(0)
    here = everything(tensor, np.random.default_rng(5))
    there = everything(lambda values, dtype=np.float32: tensor(values, dtype, place), np.random.default_rng(5))
    for metric, item in there:
        feed(metric, [item])  # what is compiled, loaded or brought to the device once
        metric.clear()
    place.sync()
    torch.cuda.set_sync_debug_mode("error")
    try:
        readings = [[metric.update(item, MetricMetadata.fake()) for _ in range(2)] for metric, item in there]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for (metric, item), (other, _), (first, _) in zip(here, there, readings, strict=True):
        if item is not None:
            assert first.value == pytest.approx(feed(metric, [item, item])[0], rel=1e-5)
            assert other.value() == pytest.approx(metric.value(), rel=1e-5)
