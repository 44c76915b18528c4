"""The choice of a config when candidates fail: in trials, at their launch, within a capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelLimitError, KernelShapeError
from burn_kernels.autotune import CandidateError, tuner, using
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.selection import selecting

FACTS = Facts((100,), (4,), torch.float32)


Use = Callable[..., Any]


Heard = Callable[[Callable[[], Any]], tuple[Any, list[str]]]


def measured(selector: Any, tunable: Any, facts: Facts = FACTS) -> Any:
    selector.measure(selector.plan(tunable, 0, facts))
    selector.forget()


# -- candidates that fail ----------------------------------------------------------------------------
@pytest.mark.parametrize("fault", ["raises", "value", "tail", "nan", "past", "before", "input"])
def test_a_candidate_that_fails_is_disqualified_by_name_with_the_reason(
    fake: Any, use: Use, heard: Heard, fault: str
) -> None:
    first, second, _ = fake.configs
    fake.times = {second: 0.1}
    fake.faults[second] = fault
    selector, tunable = fake.selector(), fake.tunable()
    with using("full"):
        chosen, said = heard(lambda: use(selector, tunable))
    assert chosen == first
    (message,) = said
    assert "block=128 warps=4 is disqualified: " in message
    (kept,) = selector.store.all_faults()
    assert (kept.candidate, kept.kind) == ("block=128 warps=4", "disqualified")
    assert kept.reason in message
    if fault == "raises":
        assert kept.reason == "ValueError: block 128 does not fit"
    assert {timing.candidate for timing in selector.store.all_timings()} == {"block=64 warps=4", "block=256 warps=8"}
    other = fake.selector(selector.store)  # another process neither takes nor tries it
    fake.ran.clear()
    with using("full"):
        assert use(other, tunable) == first
    assert second not in fake.ran


def test_a_fault_that_shows_only_at_full_size_disqualifies_too(
    fake: Any, heard: Heard, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "JUDGED_ELEMENTS", 1000)
    facts = Facts((3000,), (4,), torch.float32)
    second, right = fake.configs[1], fake.double

    def double(x: torch.Tensor, config: Any) -> torch.Tensor:
        out: torch.Tensor = right(x, config)
        if config == second and x.numel() > 10_000:
            out[10_000] = 0.5
        return out

    fake.double = double
    selector = fake.selector()
    with using("full"):
        _, said = heard(lambda: use(selector, fake.tunable(), facts))
    assert "block=128 warps=4 is disqualified: output 0: largest difference" in said[0]


def test_a_candidate_that_breaks_the_device_is_an_error_that_names_it(fake: Any, use: Use) -> None:
    fake.faults[fake.configs[1]] = "breaks"
    selector = fake.selector()
    with (
        using("full"),
        pytest.raises(
            CandidateError,
            match=r"a candidate of double broke the device\n  given:    block=128 warps=4 for double .*illegal memory",
        ),
    ):
        use(selector, fake.tunable())
    (kept,) = selector.store.all_faults()  # the next process does not try it again
    assert kept.candidate == "block=128 warps=4"


def test_where_none_is_right_nothing_is_kept_and_callers_may_take_the_reference(
    fake: Any, use: Use, heard: Heard
) -> None:
    fake.faults = dict.fromkeys(fake.configs, "raises")
    selector = fake.selector()

    def fail() -> None:
        with (
            using("full"),
            pytest.raises(KernelLimitError, match=r"given: .*block=64 warps=4: ValueError: block 64 do"),
        ):
            use(selector, fake.tunable())

    _, said = heard(fail)
    assert len(said) == 3
    assert selector.store.all_faults() == []  # no compiler, say: tomorrow there may be one


def test_a_launch_that_fails_is_quarantined_and_the_next_of_the_ranking_runs(fake: Any, use: Use, heard: Heard) -> None:
    first, second, third = fake.configs
    fake.times = {first: 3.0, second: 2.0, third: 1.0}
    selector, tunable = fake.selector(), fake.tunable()
    measured(selector, tunable)
    chosen, said = heard(lambda: use(selector, tunable, fails=[third, second]))
    assert chosen == first
    assert [line.split(": ")[2] for line in said] == [
        "block=256 warps=8 is quarantined, its launch failed (RuntimeError",
        "block=128 warps=4 is quarantined, its launch failed (RuntimeError",
    ]
    assert use(selector, tunable) == first  # and stays away, here and in the next process
    assert use(fake.selector(selector.store), tunable) == first
    assert {(fault.candidate, fault.kind) for fault in selector.store.all_faults()} == {
        ("block=256 warps=8", "quarantined"),
        ("block=128 warps=4", "quarantined"),
    }


def test_where_no_launch_works_the_first_error_is_raised_and_nothing_quarantined(fake: Any, use: Use) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    with pytest.raises(RuntimeError, match="out of resource") as caught:
        use(selector, tunable, fails=fake.configs)
    assert caught.value.__notes__ == [
        "in double with block=64 warps=4, for double rows<=128 cols=4 float32 packed align=16"
    ]
    assert selector.store.all_faults() == []
    assert use(selector, tunable) == fake.configs[0]


@pytest.mark.parametrize("error", [KernelShapeError("x"), KernelArgumentError("x"), torch.OutOfMemoryError("x")])
def test_mistakes_of_the_caller_and_lack_of_memory_are_not_the_candidates(fake: Any, error: Exception) -> None:
    selector = fake.selector()

    def launch(config: Any) -> None:
        raise error

    with selecting(selector), pytest.raises(type(error), match="x"):
        fake.tunable().run_on(0, FACTS, launch)
    assert selector.store.all_faults() == []


def test_a_device_that_is_lost_is_an_error_that_names_the_candidate(fake: Any) -> None:
    def launch(config: Any) -> None:
        raise RuntimeError("CUDA error: misaligned address")

    with (
        selecting(fake.selector()) as selector,
        pytest.raises(CandidateError, match=r"device failed under double\n  given:    block=64 .*misaligned.*\n  exp"),
    ):
        fake.tunable().run_on(0, FACTS, launch)
    assert selector.store.all_faults() == []


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("Triton Error [CUDA]: misaligned address", True),
        ("HIP error: unspecified launch failure", True),
        ("out of resource: shared memory, Required: 300000, Hardware limit: 232448", False),
        ("Triton Error [CUDA]: invalid argument", False),
    ],
)
def test_errors_that_leave_the_device_useless_are_known(text: str, stays: bool) -> None:
    assert tuner.is_sticky(RuntimeError(text)) is stays


def test_a_launch_that_fails_in_a_capture_voids_it_and_the_next_capture_takes_another(
    fake: Any, use: Use, heard: Heard
) -> None:
    selector, tunable = fake.selector(capturing=lambda index: True), fake.tunable()

    def capture() -> None:
        with pytest.raises(CandidateError, match=r"during the capture of a CUDA graph\n  given:    block=64 warps=4"):
            use(selector, tunable, fails=fake.configs[:1])

    _, said = heard(capture)
    assert len(said) == 1
    assert use(selector, tunable, fails=fake.configs[:1]) == fake.configs[1]


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: operation not permitted when stream is capturing",
        "Triton Error [CUDA]: operation failed due to a previous error during capture",
    ],
)
def test_a_capture_that_went_wrong_is_not_the_fault_of_the_config(fake: Any, text: str) -> None:
    selector, tunable = fake.selector(capturing=lambda index: True), fake.tunable()

    def launch(config: Any) -> None:
        raise RuntimeError(text)

    with selecting(selector), pytest.raises(RuntimeError, match=text.split("]")[-1]) as raised:
        tunable.run_on(0, FACTS, launch)
    assert type(raised.value) is RuntimeError  # what splits a program that cannot be recorded looks for these
    assert selector.store.all_faults() == []


def test_the_stream_that_is_asked_about_is_that_of_the_launch(fake: Any) -> None:
    asked: list[int] = []

    def capturing(index: int) -> bool:
        asked.append(index)
        return index == 1

    selector, tunable = fake.selector(capturing=capturing), fake.tunable()
    with selecting(selector), using("full"):
        tunable.run_on(1, FACTS, lambda config: None)
        assert (asked, fake.ran) == ([1], [])
        tunable.run_on(0, FACTS, lambda config: None)
    assert fake.ran != []


def test_measuring_on_purpose_keeps_out_of_a_capture(fake: Any) -> None:
    selector = fake.selector(capturing=lambda index: True)
    assert selector.measure(selector.plan(fake.tunable(), 0, FACTS)) == "a CUDA graph is being captured"
    assert fake.ran == []


def test_what_stands_in_the_way_of_a_measurement_is_said_and_the_call_goes_on(
    fake: Any, use: Use, heard: Heard
) -> None:
    def trial(facts: Facts, inputs: Any) -> Any:
        raise ZeroDivisionError("no such inputs")

    tunable, selector = replace(fake.tunable(), trial=trial), fake.selector()
    with using("full"):
        chosen, said = heard(lambda: use(selector, tunable))
    assert chosen == fake.configs[0]
    key = "double rows<=128 cols=4 float32 packed align=16"
    assert said == [f"autotune: {key} could not be measured: ZeroDivisionError: no such inputs"]
