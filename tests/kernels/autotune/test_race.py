"""The race: interleaved rounds, the first sample dropped, hopeless rivals left out, the winner confirmed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from burn_kernels.autotune.race import race, ranking


class Course:
    """Runners with a time each, or a list of times; notes who ran."""

    def __init__(self, **times: float | list[float]) -> None:
        self.times, self.ran = times, list[str]()

    def __call__(self, name: str) -> float:
        self.ran.append(name)
        time = self.times[name]
        if isinstance(time, float):
            return time
        return time[min(self.ran.count(name) - 1, len(time) - 1)]


def always() -> bool:
    return True


def test_the_first_sample_is_dropped() -> None:
    course = Course(a=[900.0, 1.0], b=[800.0, 2.0])
    result = race(["a", "b"], course, within=always)
    assert max(result.samples["a"]) == 1.0
    assert max(result.samples["b"]) == 2.0


def test_rounds_alternate_their_order() -> None:
    course = Course(a=1.0, b=1.0, c=1.0)
    race(["a", "b", "c"], course, within=always)
    assert course.ran[:9] == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]


def test_the_hopeless_are_left_out_after_the_third_round() -> None:
    course = Course(fast=1.0, close=1.4, slow=1.6)
    result = race(["slow", "fast", "close"], course, within=always)
    assert result.eliminated == {"slow"}
    assert len(result.samples["slow"]) == 3
    assert len(result.samples["close"]) > 3


def test_nobody_is_left_out_where_all_are_to_be_timed() -> None:
    course = Course(fast=1.0, slow=9.0)
    result = race(["fast", "slow"], course, within=always, eliminating=False)
    assert not result.eliminated
    assert len(result.samples["slow"]) == 15  # ten rounds, five to confirm


def test_it_ends_when_the_best_stands_still() -> None:
    course = Course(a=1.0, b=1.2)
    result = race(["a", "b"], course, within=always)
    assert len(result.samples["a"]) == 3 + 5


def test_it_goes_on_while_the_best_improves() -> None:
    course = Course(a=[9.0, *(10.0 * 0.8**n for n in range(20))], b=[10.0 * 0.85**n for n in range(30)])
    result = race(["a", "b"], course, within=always)
    assert len(result.samples["a"]) == 10 + 5


def test_the_winner_is_confirmed_against_the_second() -> None:
    # a looked faster for a while; over all its samples it is not
    course = Course(a=[1.0, 0.9, 0.9, 0.9, 2.0], b=1.0)
    result = race(["a", "b"], course, within=always)
    medians = {name: result.median(name) for name in result.samples}
    assert ranking(medians, ["a", "b"]) == ["b", "a"]


def test_who_raises_is_out_and_named() -> None:
    def sample(name: str) -> float:
        if name == "b":
            raise MemoryError("too large")
        return 1.0

    result = race(["a", "b", "c"], sample, within=always)
    assert list(result.failed) == ["b"]
    assert "b" not in result.samples
    assert {"a", "c"} == set(result.samples)


def test_who_raises_in_a_late_round_is_out_too() -> None:
    course = Course(a=1.0, b=1.0)

    def sample(name: str) -> float:
        if name == "a" and course.ran.count("a") == 3:
            raise ValueError("late")
        return course(name)

    result = race(["a", "b"], sample, within=always)
    assert list(result.failed) == ["a"]
    assert list(result.samples) == ["b"]
    assert result.complete


def test_a_race_of_none_that_runs_ends() -> None:
    def sample(name: str) -> float:
        raise ValueError(name)

    result = race(["a", "b"], sample, within=always)
    assert sorted(result.failed) == ["a", "b"]
    assert result.samples == {}


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_the_budget_ends_it_and_is_reported(rounds: int) -> None:
    course = Course(a=1.0, b=1.0)
    within: Callable[[], bool] = lambda: course.ran.count("a") <= rounds  # noqa: E731  # counts the first one too
    result = race(["a", "b"], course, within=within)
    assert not result.complete
    assert all(len(samples) <= rounds for samples in result.samples.values())


def test_among_equals_the_first_in_order_leads() -> None:
    assert ranking({"b": 1.0, "a": 1.015}, ["a", "b"]) == ["a", "b"]
    assert ranking({"b": 1.0, "a": 1.03}, ["a", "b"]) == ["b", "a"]
    assert ranking({}, ["a"]) == []
