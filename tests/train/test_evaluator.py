"""Evaluator: the exact values over all items, their files, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest

from burn_torch import Device, Module, Tensor, nn
from burn_torch.core.errors import ArtifactError, ConfigError, DataError
from burn_torch.data import DataLoader
from burn_torch.nn import CrossEntropyLossConfig
from burn_torch.train import AccuracyMetric, ClassificationOutput, EvaluatorBuilder, LossMetric, NumericMetric, Reading
from burn_torch.train.event import Notice, RunEnded, SplitDone, SplitStarted, StepDone

CPU = Device.cpu()
RANDOM = np.random.default_rng(4)
X, Y = RANDOM.standard_normal((37, 6)).astype(np.float32), RANDOM.integers(0, 3, 37)


@dataclass(frozen=True)
class Rows:
    x: Tensor
    y: Tensor


class Batcher:
    def batch(self, items, device):
        x, y = (np.stack(part) for part in zip(*items, strict=True))
        return Rows(Tensor.from_data(x, device), Tensor.from_data(y, device))


class Net(Module):
    linear: nn.Linear

    def valid_step(self, batch: Rows) -> ClassificationOutput:
        logits = self.linear.forward(batch.x)
        loss = CrossEntropyLossConfig().init(logits.device).forward(logits, batch.y)
        return ClassificationOutput(loss, logits, batch.y)


class Reader:
    def __init__(self):
        self.events = []

    def handle(self, event):
        self.events.append(event)

    def close(self):
        pass


def loader(count=37, size=8, workers=0):
    rows = list(zip(X[:count], Y[:count], strict=True))
    return DataLoader(rows, Batcher(), batch_size=size, num_workers=workers, device=CPU)


@pytest.fixture
def net():
    return Net(nn.LinearConfig(6, 3).init(CPU.autodiff()))


def expected(net, count=37):
    weight, bias = (param.val().into_data().values.astype(np.float64) for _, param in net.named_params())
    logits = X[:count].astype(np.float64) @ weight + bias
    right = logits.argmax(1) == Y[:count]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(count), Y[:count]]
    return 100 * right.mean(), losses.mean()


@pytest.mark.parametrize("compiled", [True, False])
def test_values_are_those_of_all_items(net, tmp_path, compiled):
    evaluator = EvaluatorBuilder(tmp_path).metrics(AccuracyMetric(), LossMetric()).compile(compiled).build(net)
    evaluation = evaluator.eval("clean", loader())  # the last batch has 5 items of 37
    accuracy, loss = expected(net)
    assert (evaluation.items, evaluation.batches, evaluation.name) == (37, 5, "clean")
    assert evaluation.value("Accuracy") == pytest.approx(accuracy, rel=1e-12)
    assert evaluation.value("Loss") == pytest.approx(loss, rel=1e-6)  # float32 logits
    folder = tmp_path / "test" / "clean"
    column = [float(line) for line in (folder / "Loss.log").read_text().split()]
    assert column == list(evaluation.columns["Loss"])
    assert np.average(column, weights=[8, 8, 8, 8, 5]) == pytest.approx(loss, rel=1e-6)
    kept = json.loads((folder / "result.json").read_text())
    values = {name: evaluation.value(name) for name in ("Accuracy", "Loss")}
    assert kept == {"name": "clean", "items": 37, "batches": 5, "metrics": values}
    assert "clean: {'Accuracy'" in (tmp_path / "evaluation.log").read_text()


def test_several_sets_and_any_number_of_workers(net, tmp_path):
    evaluator = EvaluatorBuilder(tmp_path).metric(AccuracyMetric()).metric_numeric(LossMetric()).build(net)
    whole, part = evaluator.eval_all([("whole set", loader(workers=2)), ("part", loader(10, 3))])
    assert whole.value("Accuracy") == pytest.approx(expected(net)[0])
    assert part.value("Accuracy") == pytest.approx(expected(net, 10)[0])  # nothing of the first set is in it
    assert sorted(path.name for path in (tmp_path / "test").iterdir()) == ["part", "whole_set"]
    again = evaluator.eval_all({"whole set": loader(size=37)})[0]
    assert again.value("Accuracy") == whole.value("Accuracy")
    assert len((tmp_path / "test/whole_set/Loss.log").read_text().split()) == 1  # in the place of the earlier values


def test_who_follows_sees_batches_values_and_the_table(net, tmp_path):
    reader = Reader()
    builder = EvaluatorBuilder(tmp_path).metrics([AccuracyMetric()]).renderer(reader).summary()
    evaluation = builder.with_application_logger(None).build(net).eval("clean", loader())
    kinds = [type(event) for event in reader.events]
    assert kinds == [SplitStarted, *[StepDone] * 5, SplitDone, RunEnded]
    assert reader.events[5].items_done == 37
    assert reader.events[-2].summary.values == evaluation.values
    assert "| clean | Accuracy | " in reader.events[-1].summary
    assert not (tmp_path / "evaluation.log").exists()


class Uncompilable(Net):
    def valid_step(self, batch: Rows) -> ClassificationOutput:
        assert float(batch.x.sum().into_data().values[0]) == pytest.approx(float(batch.x.sum().into_data().values[0]))
        return super().valid_step(batch)


def test_what_cannot_be_compiled_runs_eagerly_and_says_so(net, tmp_path):
    reader = Reader()
    model = Uncompilable(net.linear)
    evaluation = (
        EvaluatorBuilder(tmp_path).metrics(AccuracyMetric()).renderer(reader).build(model).eval("clean", loader())
    )
    assert evaluation.value("Accuracy") == pytest.approx(expected(net)[0])
    (notice,) = [event for event in reader.events if isinstance(event, Notice)]
    assert notice.text.startswith("evaluation runs eagerly, it cannot be compiled: ")


class Empty(NumericMetric):
    name = "Empty"
    higher_is_better = True

    def measure(self, item, metadata):
        return Reading.of_mean(0.0, 0)


def test_a_value_of_no_items_is_nan_and_null_in_the_file(net, tmp_path):
    evaluation = EvaluatorBuilder(tmp_path).metrics(Empty()).build(net).eval("clean", loader())
    assert math.isnan(evaluation.value("Empty"))
    assert json.loads((tmp_path / "test/clean/result.json").read_text())["metrics"] == {"Empty": None}
    with pytest.raises(ConfigError, match=r"Loss was not measured[\s\S]*expected: one of Empty"):
        evaluation.value("Loss")


def test_what_cannot_be_evaluated(net, tmp_path):
    with pytest.raises(ConfigError, match=r"Linear without valid_step[\s\S]*no metrics"):
        EvaluatorBuilder(tmp_path).build(net.linear)
    with pytest.raises(ConfigError, match=r"two metrics Loss[\s\S]*a name of its own"):
        EvaluatorBuilder(tmp_path).metrics(LossMetric(), LossMetric()).build(net)
    evaluator = EvaluatorBuilder(tmp_path / "run").metrics(LossMetric()).build(net)
    for name in ("", ".", "..", ".hidden"):
        with pytest.raises(ConfigError, match="a folder cannot have"):
            evaluator.eval(name, loader())
    with pytest.raises(ConfigError, match="kept in one folder"):
        evaluator.eval_all([("a b", loader()), ("a_b", loader())])
    with pytest.raises(DataError, match="is empty"):
        evaluator.eval("none", [])
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot be written[\s\S]*file/run"):
        EvaluatorBuilder(tmp_path / "file" / "run").metrics(LossMetric()).build(net).eval("clean", loader())
