"""Errors of regressions beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from burn_torch import ShapeError
from burn_torch.train import MaeMetric, RegressionOutput, RmseMetric

sklearn = pytest.importorskip("sklearn.metrics", reason="the reference is scikit-learn")

BATCHES = [slice(0, 5), slice(5, 5), slice(5, 6), slice(6, 20)]


def item(tensor, outputs, targets, dtype=np.float32):
    return RegressionOutput(tensor(0.0), tensor(outputs, dtype), tensor(targets, dtype))


@pytest.mark.parametrize(
    ("make", "reference"),
    [(MaeMetric, sklearn.mean_absolute_error), (RmseMetric, sklearn.root_mean_squared_error)],
)
def test_errors_are_those_of_the_whole_epoch(make, reference, tensor, seed, check):
    targets = seed.normal(1000, 1, (20, 3)).astype(np.float32)
    outputs = (targets + seed.normal(0, 2, (20, 3))).astype(np.float32)

    def expected(rows):
        x, y = outputs[rows].astype(np.float64).ravel(), targets[rows].astype(np.float64).ravel()
        return reference(y, x) if x.size else np.nan

    items = [item(tensor, outputs[rows], targets[rows]) for rows in BATCHES]
    check(make, items, [expected(rows) for rows in BATCHES], expected(slice(None)))


def test_half_types_are_summed_in_a_wider_one(tensor, feed):
    far = item(tensor, np.full((4,), 300.0), np.zeros(4), np.float16)  # 300^2 is beyond float16
    assert feed(RmseMetric(), [far]) == [300.0]
    many = item(tensor, np.full((4000,), 100.0), np.zeros(4000), np.float16)
    assert feed(MaeMetric(), [many]) == [100.0]


@pytest.mark.parametrize("metric", [MaeMetric(), RmseMetric()], ids=lambda metric: metric.name)
def test_shapes_that_differ_are_refused(metric, tensor, feed):
    with pytest.raises(ShapeError, match=r"Metric: .*\n  given: +outputs \(3, 1\), targets \(3,\)\n"):
        feed(metric, [item(tensor, np.zeros((3, 1)), np.zeros(3))])
