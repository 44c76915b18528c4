"""Schedules against torch's and against their formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from burn_torch import ConfigError, RecordError
from burn_torch.config import Config
from burn_torch.optim import (
    CosineAnnealingLrSchedulerConfig,
    ExponentialLrSchedulerConfig,
    GroupedLrScheduler,
    LinearLrSchedulerConfig,
    LrScheduler,
    NoamLrSchedulerConfig,
    StepLrSchedulerConfig,
    scheduler_of,
)


def torch_rates(make: object, lr: float, steps: int) -> list[float]:
    optim = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr)
    schedule = make(optim)  # type: ignore[operator]
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optim.step()
        schedule.step()
    return rates


S = torch.optim.lr_scheduler
CASES = {
    "linear": (
        LinearLrSchedulerConfig(0.8, 0.2, 5),
        lambda o: S.LinearLR(o, start_factor=1.0, end_factor=0.25, total_iters=5),
    ),
    "cosine": (CosineAnnealingLrSchedulerConfig(0.8, 10, min_lr=0.1), lambda o: S.CosineAnnealingLR(o, 10, 0.1)),
    "exponential": (ExponentialLrSchedulerConfig(0.8, 0.9), lambda o: S.ExponentialLR(o, 0.9)),
    "step": (StepLrSchedulerConfig(0.8, 3, gamma=0.5), lambda o: S.StepLR(o, 3, 0.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_schedule_equals_torch(name: str) -> None:
    config, make = CASES[name]
    schedule: LrScheduler = config.init()
    expected = torch_rates(make, 0.8, 11)
    assert [schedule.step() for _ in range(11)] == pytest.approx(expected, rel=1e-12)
    assert [schedule.lr_at(i) for i in range(11)] == pytest.approx(expected, rel=1e-12)


def test_cosine_starts_again_after_its_length() -> None:
    schedule = CosineAnnealingLrSchedulerConfig(0.8, 4).init()
    assert [schedule.lr_at(i) for i in range(5, 10)] == [schedule.lr_at(i) for i in range(5)]


def test_noam_rises_to_its_peak_at_the_end_of_the_warm_up() -> None:
    schedule = NoamLrSchedulerConfig(2.0, warmup_steps=10, model_size=64).init()
    rates = [schedule.step() for _ in range(30)]
    assert max(range(30), key=rates.__getitem__) == 9
    assert rates[9] == pytest.approx(2.0 / math.sqrt(64 * 10), rel=1e-12)
    assert rates[2] == pytest.approx(2.0 / 8 * 3 * 10**-1.5, rel=1e-12)
    assert rates[24] == pytest.approx(2.0 / 8 / 5, rel=1e-12)


def test_a_number_is_a_constant_schedule() -> None:
    schedule = scheduler_of(1e-3)
    assert [schedule.step() for _ in range(3)] == [1e-3] * 3


def test_a_record_goes_on_where_it_was_made() -> None:
    config = CosineAnnealingLrSchedulerConfig(0.8, 10)
    first, second = config.init(), config.init()
    for _ in range(4):
        first.step()
    second.load_record(first.to_record())
    assert second.step() == first.step()


def test_a_record_of_another_schedule_is_refused() -> None:
    record = scheduler_of(0.1).to_record()
    with pytest.raises(RecordError, match=r"(?s)another schedule.*ConstantLr.*a record of CosineAnnealingLrScheduler"):
        CosineAnnealingLrSchedulerConfig(0.8, 10).init().load_record(record)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: LinearLrSchedulerConfig(0.0, 0.1, 5), r"(?=.*given: +initial_lr = 0\.0\n).*out of range"),
        (lambda: LinearLrSchedulerConfig(0.1, 0.1, 0), r"(?=.*given: +num_iters = 0\n).*too small"),
        (lambda: LinearLrSchedulerConfig(0.1, -0.1, 5), r"(?=.*given: +final_lr = -0\.1\n).*out of range"),
        (lambda: CosineAnnealingLrSchedulerConfig(0.1, 10, min_lr=0.2), r"(?=.*given: +min_lr = 0\.2\n).*out of range"),
        (lambda: ExponentialLrSchedulerConfig(0.1, 1.5), r"(?=.*given: +gamma = 1\.5\n).*out of range"),
        (lambda: scheduler_of("fast"), "not a learning-rate schedule"),  # type: ignore[arg-type]
        (lambda: scheduler_of(Config), "not a learning-rate schedule"),  # type: ignore[arg-type]
    ],
)
def test_bad_values_are_refused(make: object, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s){what}.*given:.*expected:.*mend:"):
        make()  # type: ignore[operator]


def test_rates_by_group_name_the_schedule_that_takes_them() -> None:
    rates: Any = {"body": 0.1, "rest": 1e-3}
    with pytest.raises(ConfigError, match=r"given:    \{'body'[\s\S]*mend:     .* GroupedLrScheduler\("):
        scheduler_of(rates)
    assert GroupedLrScheduler(rates).step().groups == rates
