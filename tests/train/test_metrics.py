"""Metrics are exact over the items of an epoch, whatever the sizes of the batches."""

import json
import math

import numpy as np
import pytest

from burn_torch import ConfigError, Device, ShapeError, Tensor
from burn_torch.train import (
    AccuracyMetric,
    AurocMetric,
    BleuScore,
    ClassificationOutput,
    IterationSpeedMetric,
    LearningRateMetric,
    LossInput,
    LossMetric,
    Metric,
    MetricMetadata,
    NumericMetric,
    Reading,
    RegressionOutput,
    ResumableMetric,
    SilentRenderer,
    Split,
    SupervisedTraining,
)

CPU = Device.cpu()


def at(lr=0.1, time_s=0.0):
    return MetricMetadata(Split.TRAIN, 1, 1, 0, lr, time_s)


def tensor(values, dtype=np.float32, device=CPU):
    return Tensor.from_data(np.asarray(values, dtype), device)


def classified(loss, output, targets, device=CPU):
    return ClassificationOutput(tensor(loss, device=device), tensor(output, device=device), tensor(targets, np.int64))


@pytest.mark.parametrize("device", [CPU, CPU.autodiff(), Device.ndarray()], ids=["cpu", "autodiff", "ndarray"])
def test_accuracy_and_loss_over_ragged_batches(seed, device):
    loss, accuracy = LossMetric(), AccuracyMetric()
    losses, right, count = [], 0, 0
    for n in (7, 1, 4):
        output, targets = seed.normal(0, 1, (n, 5)).astype(np.float32), seed.integers(0, 5, n)
        value = np.float32(seed.normal())
        item = ClassificationOutput(
            tensor(value, device=device), tensor(output, device=device), tensor(targets, np.int64, device)
        )
        reading = accuracy.update(item, at())
        here = int((output.argmax(-1) == targets).sum())
        assert (reading.value, reading.count) == (100 * here / n, n)
        assert loss.update(item, at()).value == float(value)
        losses.append((float(value), n))
        right, count = right + here, count + n
    assert accuracy.value() == 100 * right / count
    assert loss.value() == pytest.approx(math.fsum(v * n for v, n in losses) / count, rel=1e-15)


def test_loss_is_added_up_in_float64():
    # in float32 the sum stands still at 2^24, and the mean would come out as 0.56 of what it is
    metric = LossMetric()
    item = ClassificationOutput(tensor(1.0), tensor([[1.0]]), tensor([0], np.int64), count=1_000_003)
    for _ in range(30):
        metric.update(item, at())
    assert metric.value() == 1.0
    assert metric.state()["count"] == 30_000_090


def test_accuracy_of_equal_scores_is_that_of_the_first():
    metric = AccuracyMetric()
    metric.update(classified(0.0, [[1, 1], [1, 1]], [0, 1]), at())
    assert metric.value() == 50.0


def test_pad_tokens_are_left_out():
    accuracy, loss = AccuracyMetric().with_pad_token(9), LossMetric().with_pad_token(9)
    output = np.eye(3)[[0, 1, 2, 0]].reshape(2, 2, 3)
    item = classified(2.0, output, [[0, 9], [1, 9]])
    assert accuracy.update(item, at()).count == 2
    loss.update(item, at())
    padded = classified(7.0, output, [[9, 9], [9, 9]])
    assert math.isnan(accuracy.update(padded, at()).value)
    loss.update(padded, at())
    loss.update(classified(5.0, output, [[0, 1], [2, 0]]), at())
    assert accuracy.value() == 50.0
    assert loss.value() == (2.0 * 2 + 5.0 * 4) / 6
    assert AccuracyMetric().pad_token is None  # the class is as it was


def test_a_metric_without_items_is_nan():
    for metric in (LossMetric(), AccuracyMetric(), LearningRateMetric(), IterationSpeedMetric()):
        assert math.isnan(metric.value())


def test_learning_rate_is_the_last_one():
    metric = LearningRateMetric()
    for lr in (0.3, 0.1):
        assert metric.update(None, at(lr=lr)).value == lr
    assert metric.value() == 0.1
    metric.clear()
    assert math.isnan(metric.value())


def test_iteration_speed_leaves_out_the_first_batch():
    metric = IterationSpeedMetric()
    speeds = [metric.update(None, at(time_s=t)).value for t in (10.0, 10.5, 11.5)]
    assert math.isnan(speeds[0])
    assert speeds[1:] == [2.0, 1.0]
    assert metric.value() == pytest.approx(2 / 1.5, rel=1e-15)


@pytest.mark.parametrize("make", [LossMetric, AccuracyMetric, LearningRateMetric, IterationSpeedMetric])
def test_state_goes_through_json_and_back(make, seed):
    def feed(metric, numbers):
        for number in numbers:
            n = 1 + number % 3
            item = classified(0.1 * number, np.eye(4)[[number % 4] * n], [0] * n)
            metric.update(item, at(lr=1 / (number + 1), time_s=number * 0.1))

    whole, first, second = make(), make(), make()
    assert isinstance(first, ResumableMetric)
    feed(whole, range(9))
    feed(first, range(4))
    second.load_state(json.loads(json.dumps(first.state())))
    feed(second, range(4, 9))
    if make is not IterationSpeedMetric:  # its clock starts again
        assert second.value() == whole.value()
    second.clear()
    feed(second, range(9))
    assert second.value() == whole.value()


def test_a_metric_that_cannot_read_the_item_says_so():
    item = RegressionOutput(tensor(1.0), tensor([[1.0]]), tensor([[1.0]]))
    with pytest.raises(
        ConfigError,
        match=r"AccuracyMetric cannot read what the step returns\n  given:    RegressionOutput, which gives no"
        r" AccuracyInput\n  expected: .*\n  mend:     return another item",
    ):
        AccuracyMetric().update(item, at())


def test_one_hot_targets_are_refused():
    with pytest.raises(ShapeError, match=r"given:    scores \(2, 3\), targets \(2, 3\)[\s\S]*mend: .*not one-hot"):
        AccuracyMetric().update(classified(0.0, np.eye(3)[:2], np.eye(3)[:2]), at())


def test_a_loss_of_several_elements_is_refused():
    item = ClassificationOutput(tensor([1.0, 2.0]), tensor([[1.0]]), tensor([0], np.int64))
    reading = LossMetric().update(item, at())
    with pytest.raises(ShapeError, match=r"given:    a tensor of shape \(2,\)[\s\S]*mend: .*loss.mean\(\)"):
        _ = reading.value


class Largest(NumericMetric):
    """A metric of a user's: one class."""

    name = "Largest Output"
    unit = "u"
    higher_is_better = True

    def measure(self, item, metadata):
        return Reading.of_mean(item.output.max(), item.targets.shape[0])


class Batches:
    """A metric without the base class and without a state."""

    name = "Batches"
    unit = None
    higher_is_better = True

    def __init__(self):
        self.clear()

    def update(self, item, metadata):
        self.count += 1
        return metadata.items

    def value(self):
        return self.count

    def clear(self):
        self.count = 0


def test_custom_metrics_are_measured_logged_and_shown(program, tmp_path):
    assert isinstance(Batches(), Metric)
    training = SupervisedTraining(tmp_path / "run", *program.make_loaders()).metrics([Largest(), Batches()])
    result = training.num_epochs(2).renderer(SilentRenderer()).launch(program.make_learner())
    assert result.history.find_metric("Batches", 2, Split.TRAIN) == 5
    assert result.history.values("Batches", Split.TRAIN, 1) == [8, 8, 8, 8, 5]
    lines = (tmp_path / "run/valid/epoch-2/Largest_Output.log").read_text().split()
    assert [float(line) for line in lines] == result.history.values("Largest Output", Split.VALID, 2)
    mean = np.average(result.history.values("Largest Output", Split.VALID, 2), weights=[5, 5, 3])
    assert result.history.find_metric("Largest Output", 2, Split.VALID) == pytest.approx(mean, rel=1e-15)


def test_reading_reads_a_tensor_once(monkeypatch):
    reads = []
    whole = Tensor.into_data
    monkeypatch.setattr(Tensor, "into_data", lambda self: reads.append(1) or whole(self))
    reading = Reading.of_total(tensor(3.0), 4, scale=100)
    assert not reads
    assert (reading.value, reading.total, reading.value, reading.count) == (75.0, 300.0, 75.0, 4.0)
    assert len(reads) == 1
    assert isinstance(LossInput(tensor(1.0), 1).count, int)


@pytest.mark.parametrize("method", ["load_state", "merge"])
def test_a_state_of_no_mean_is_refused(method):
    with pytest.raises(ConfigError, match=r"given:    \{'a': 1\}[\s\S]*expected: the total.*count[\s\S]*mend: .*state"):
        getattr(LossMetric(), method)({"a": 1})


@pytest.mark.parametrize("method", ["load_state", "merge"])
@pytest.mark.parametrize("metric", [BleuScore, AurocMetric, LearningRateMetric])
def test_the_state_of_a_mean_is_refused_by_others(metric, method):
    """It was a KeyError, or taken without a word, and then the value failed."""
    own = metric()
    with pytest.raises(ConfigError, match=r"this is not the state of[\s\S]*given: +\{'total'[\s\S]*mend: .*state"):
        getattr(own, method)(LossMetric().state())
    assert math.isnan(own.value())


class OfOneWorker(Largest):
    """A metric of a user's that has a merge of its own."""

    def merge(self, state):
        self.load_state(state)


def test_a_state_is_loaded_without_the_merge_of_a_subclass():
    """Loading was a merge into nothing, so this metric called itself without an end."""
    metric = OfOneWorker()
    metric.load_state({"total": (3.0).hex(), "count": 2})
    assert metric.value() == 1.5


@pytest.mark.parametrize("metric", [LossMetric, LearningRateMetric])
def test_a_number_that_no_float_holds_is_refused(metric):
    with pytest.raises(ConfigError, match=r"this is not the state of[\s\S]*given: +\{'total'[\s\S]*mend: .*state"):
        metric().load_state({"total": "0x1p9999", "count": 1, "last": "0x1p9999"})
