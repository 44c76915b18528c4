"""Defines what the tests of metrics share: tensors, the place of a batch, an epoch of batches of unequal size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Tensor
from burn_torch.train import MetricMetadata, Split, merge_states

AT = MetricMetadata(Split.TRAIN, 1, 1, 0, 0.1, 0.0)


@pytest.fixture(scope="session")
def tensor() -> Callable[..., Tensor]:
    """tensor(values, dtype): on the CPU."""

    def made(values: Any, dtype: Any = np.float32, device: Device | None = None) -> Tensor:
        return Tensor.from_data(np.asarray(values, dtype), Device.cpu() if device is None else device)

    return made


@pytest.fixture(scope="session")
def feed() -> Callable[..., list[float]]:
    """feed(metric, items): updates with each; gives the values of the batches."""

    def fed(metric: Any, items: Iterable[Any]) -> list[float]:
        readings = [metric.update(item, AT) for item in items]
        return [reading.value for reading in readings]

    return fed


@pytest.fixture(scope="session")
def check(feed: Callable[..., list[float]]) -> Callable[..., None]:
    """check(make, items, batches, whole): a metric agrees with its reference, however it comes to its items.

    In one go; after a clear; broken off after each batch and gone on from its state; shared between two workers.
    """

    def same(actual: float, expected: float) -> None:
        if math.isnan(expected):
            assert math.isnan(actual)
        else:
            assert actual == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def checked(make: Callable[[], Any], items: list[Any], batches: list[float] | None, whole: float) -> None:
        metric = make()
        assert math.isnan(metric.value())
        values = feed(metric, items)
        if batches is not None:
            for one, expected in zip(values, batches, strict=True):
                same(one, expected)
        same(metric.value(), whole)
        exact = metric.value()
        metric.clear()
        assert math.isnan(metric.value())
        feed(metric, items)
        same(metric.value(), exact)

        for stop in range(len(items) + 1):
            before, after = make(), make()
            feed(before, items[:stop])
            after.load_state(before.state())
            feed(after, items[stop:])
            assert after.value() == exact or math.isnan(exact)

        workers = [make(), make()]
        feed(workers[0], items[::2])
        feed(workers[1], items[1::2])
        states = [worker.state() for worker in workers]
        for worker in workers:
            merge_states(worker, states)
            same(worker.value(), whole)

    return checked
