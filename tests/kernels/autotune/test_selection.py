"""The choice of a config: the order of sources, levels, budgets, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from burn_kernels import KernelLimitError, softmax
from burn_kernels.autotune import deterministic, still, using, warmup
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import Place, Store, Timing
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs
from burn_kernels.autotune.tuner import Budget
from burn_kernels.launch import A100, H200, observing, recording
from burn_kernels.launch import launch as kernel_launch

FACTS = Facts((100,), (4,), torch.float32)


Use = Callable[..., Any]


Heard = Callable[[Callable[[], Any]], tuple[Any, list[str]]]


def measured(selector: Any, tunable: Any, facts: Facts = FACTS) -> Any:
    selector.measure(selector.plan(tunable, 0, facts))
    selector.forget()


# -- the order of sources ----------------------------------------------------------------------------
def test_without_anything_the_default_runs_and_nothing_is_measured(fake: Any, use: Use) -> None:
    fake.times = {fake.configs[0]: 9.0}
    selector, tunable = fake.selector(), fake.tunable()
    for _ in range(5):
        assert use(selector, tunable) == fake.configs[0]
    assert fake.ran == []
    assert next(iter(selector.decisions.values())).source == "default"


def test_the_shipped_table_comes_before_the_default(fake: Any, use: Use) -> None:
    second = fake.configs[1]
    selector = fake.selector(table=lambda *_: [{"lanes": 1}, {"block": 7, "warps": 7}, vars(second)])
    assert use(selector, fake.tunable()) == second
    assert next(iter(selector.decisions.values())).source == "shipped"
    assert fake.ran == []


def test_timings_come_before_the_shipped_table_and_are_kept(fake: Any, use: Use) -> None:
    first, second, third = fake.configs
    fake.times = {first: 2.0, second: 3.0, third: 1.0}
    selector, tunable = fake.selector(table=lambda *_: [vars(second)]), fake.tunable()
    measured(selector, tunable)
    assert use(selector, tunable) == third
    (decision,) = selector.decisions.values()
    assert decision.source == "measured"
    assert list(decision.ranking.values()) == [third, first, second]
    other = fake.selector(selector.store)  # as another process would find it
    assert use(other, tunable) == third


def test_the_cost_model_speaks_where_the_default_leaves_the_machine_idle(fake: Any, use: Use) -> None:
    from burn_kernels.autotune.cost import Work

    many = {64: 4, 128: 100, 256: 2}
    tunable = replace(
        fake.tunable(), work=lambda config, facts, machine: Work(many[config.block], 4, 1024, 4, 1 << 20, 1)
    )
    selector = fake.selector()
    assert use(selector, tunable) == fake.configs[1]
    assert next(iter(selector.decisions.values())).source == "model"


@pytest.mark.parametrize("what", ["kernel", "key", "device", "software"])
def test_timings_of_something_else_count_for_nothing(fake: Any, use: Use, what: str) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    place = selector.plan(tunable, 0, FACTS).place
    timing = Timing(place, "block=128 warps=4", {"block": 128, "warps": 4}, (0.1,), 0.1)
    selector.store.add([replace(timing, place=replace(place, **{what: "another"}))])
    assert use(selector, tunable) == fake.configs[0]
    selector.store.add([timing])
    selector.forget()
    assert use(selector, tunable) == fake.configs[1]


def test_a_bucket_shares_its_decision_and_alignment_does_not(fake: Any, use: Use) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    for rows in (65, 100, 128):
        use(selector, tunable, Facts((rows,), (4,), torch.float32))
    assert len(selector.decisions) == 1
    use(selector, tunable, Facts((100,), (4,), torch.float32, align=4))
    assert len(selector.decisions) == 2


def test_a_problem_that_the_winner_does_not_support_gets_the_next(fake: Any, use: Use) -> None:
    fake.aligned = True
    fake.configs.reverse()
    selector = fake.selector()
    assert use(selector, fake.tunable()).block == 256
    assert use(selector, fake.tunable(), FACTS._replace(align=4)).block == 128


def test_supports_is_asked_at_every_hit(fake: Any, use: Use) -> None:
    # the known fault: a key whose bucket says aligned, a problem that is not; the bucket's winner must not run
    asked, refuse = list[Facts](), None

    def supports(config: Any, facts: Facts) -> bool:
        asked.append(facts)
        return config is not refuse

    tunable = replace(fake.tunable(), supports=supports)
    selector = fake.selector()
    assert use(selector, tunable) == fake.configs[0]
    count = len(asked)
    assert use(selector, tunable) == fake.configs[0]
    assert len(asked) == count + 1
    refuse = fake.configs[0]
    assert use(selector, tunable) == fake.configs[1]


def test_nothing_that_supports_a_problem_is_an_error_that_lets_callers_take_the_reference(fake: Any, use: Use) -> None:
    tunable = replace(fake.tunable(), supports=lambda config, facts: False)
    with pytest.raises(
        KernelLimitError, match=r"no candidate of double can run\n  given:    double rows<=128.*\n  exp"
    ):
        use(fake.selector(), tunable)


def test_what_is_known_is_bounded(fake: Any, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_kernels.autotune import selection

    monkeypatch.setattr(selection, "MOST_KNOWN", 10)
    selector, tunable = fake.selector(), fake.tunable()
    for rows in range(1, 100):
        use(selector, tunable, Facts((rows,), (4,), torch.float32))
    assert len(selector.known) <= 10
    assert len(selector.decisions) == 8  # buckets 1, 2, 4 ... 128


# -- levels ------------------------------------------------------------------------------------------
def test_off_runs_the_default_whatever_was_measured(fake: Any, use: Use) -> None:
    fake.times = {fake.configs[0]: 9.0}
    selector, tunable = fake.selector(), fake.tunable()
    measured(selector, tunable)
    with selecting(selector):
        assert use(selector, tunable) != fake.configs[0]
        with using("off"):
            assert use(selector, tunable) == fake.configs[0]
        assert use(selector, tunable) != fake.configs[0]


def test_on_measures_at_the_second_use_never_at_the_first(fake: Any, use: Use) -> None:
    fake.times = {fake.configs[0]: 9.0, fake.configs[1]: 3.0}
    selector, tunable = fake.selector(), fake.tunable()
    with using("on"):
        assert use(selector, tunable) == fake.configs[0]
        assert fake.ran == []
        assert use(selector, tunable) == fake.configs[2]
        count = len(fake.ran)
        assert count > 0
        assert use(selector, tunable) == fake.configs[2]
        assert len(fake.ran) == count
    assert len(selector.store.all_timings()) == 3


def test_on_measures_what_only_the_shipped_table_knows_and_not_what_is_stored(fake: Any, use: Use) -> None:
    selector, tunable = fake.selector(table=lambda *_: [{"block": 128, "warps": 4}]), fake.tunable()
    with using("on"):
        for _ in range(2):
            use(selector, tunable)
        count = len(fake.ran)
        assert count > 0
        other = fake.selector(selector.store)
        for _ in range(3):
            use(other, tunable)
    assert len(fake.ran) == count


def test_what_trials_launch_is_not_what_was_observed(fake: Any) -> None:
    x, seen = torch.zeros(4, 4), list[Any]()
    double = fake.double

    def launching(given: torch.Tensor, config: Any) -> Any:
        kernel_launch({(1,): lambda *_, **__: seen.append(config)}, (1,), x, warps=1)
        return double(given, config)

    fake.double = launching
    with selecting(fake.selector()), using("full"), observing() as launches:
        fake.tunable().run_on(0, FACTS, lambda config: launching(x, config))
    assert len(seen) > 10
    assert len(launches) == 1


def test_full_measures_at_the_first_use_and_times_all_to_the_end(fake: Any, use: Use) -> None:
    fake.times = {fake.configs[0]: 9.0, fake.configs[1]: 3.0}
    selector = fake.selector()
    with using("full"):
        assert use(selector, fake.tunable()) == fake.configs[2]
    timings = selector.store.all_timings()
    assert not any(timing.eliminated for timing in timings)
    assert min(len(timing.samples_ms) for timing in timings) == 10


@pytest.mark.parametrize("name", ["on", "full"])
def test_nothing_is_measured_during_a_capture(fake: Any, use: Use, name: str) -> None:
    busy = True
    selector, tunable = fake.selector(capturing=lambda index: busy), fake.tunable()
    with using(name):
        for _ in range(4):
            assert use(selector, tunable) == fake.configs[0]
        assert fake.ran == []
        busy = False
        use(selector, tunable)
    assert fake.ran != []


@pytest.mark.parametrize("how", ["torch", "block"])
def test_nothing_is_measured_in_deterministic_mode_and_the_default_runs(fake: Any, use: Use, how: str) -> None:
    fake.times = {fake.configs[0]: 9.0}
    selector, tunable = fake.selector(), fake.tunable()
    measured(selector, tunable)
    count = len(fake.ran)
    if how == "torch":
        torch.use_deterministic_algorithms(True)
    try:
        with using("full"), deterministic(True):
            for _ in range(3):
                assert use(selector, tunable) == fake.configs[0]
                assert use(selector, tunable, FACTS._replace(exact=(5,))) == fake.configs[0]
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(fake.ran) == count
    assert use(selector, tunable) != fake.configs[0]


def test_tensors_of_the_cpu_and_recordings_take_the_default(fake: Any) -> None:
    launched = list[Any]()
    tunable, selector = fake.tunable(), fake.selector()
    with selecting(selector), using("full"):
        tunable.run(torch.ones(3), None, FACTS, launched.append)
        with recording(H200):
            tunable.run(torch.ones(3), None, FACTS, launched.append)
        tunable.run(torch.ones(3), "given", FACTS, launched.append)
    assert launched == [fake.configs[0], fake.configs[0], "given"]
    assert fake.ran == []
    assert selector.decisions == {}


def test_the_interpreter_takes_the_default_on_any_device(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from burn_kernels.autotune import tunable as tunables

    class OnGpu:
        is_cuda = True

        def get_device(self) -> int:
            return 0

    like: Any = OnGpu()
    monkeypatch.setattr(tunables, "INTERPRETED", True)
    monkeypatch.setattr(tunables, "machine_of", lambda like: H200)
    launched = list[Any]()
    with selecting(fake.selector()) as selector, using("full"):
        fake.tunable().run(like, None, FACTS, launched.append)
        assert selector.decisions == {}
        monkeypatch.setattr(tunables, "INTERPRETED", False)
        fake.tunable().run(like, None, FACTS, launched.append)
        assert len(selector.decisions) == 1
    assert launched == [fake.configs[0]] * 2


def test_a_recording_takes_the_default_of_its_own_machine() -> None:
    x = torch.empty(64, 5120, dtype=torch.bfloat16, device="meta")
    for machine in (H200, A100):
        with recording(machine) as launches:
            softmax.forward(x)
        config = softmax.default(5120, 2, machine)
        assert (launches[0].warps, launches[0].constants["BLOCK"]) == (config.warps, config.block)


# -- budgets -----------------------------------------------------------------------------------------
def test_a_process_that_spent_its_budget_measures_no_more(fake: Any, use: Use) -> None:
    selector = fake.selector(budget=Budget(process_s=0.001, now=lambda: fake.now_s))
    with using("on"):
        for cols in (4, 5):
            for _ in range(3):
                use(selector, fake.tunable(), FACTS._replace(exact=(cols,)))
    assert {timing.place.key for timing in selector.store.all_timings()} == set()  # the first ran out of it
    assert selector.budget.spent_s > 0.001
    count = len(fake.ran)
    assert selector.measure(selector.plan(fake.tunable(), 0, FACTS)) == "the process's 0 s for measurements are spent"
    assert len(fake.ran) == count


def test_a_reference_that_fails_disqualifies_nobody_and_ends_no_tuning(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(facts: Facts, inputs: Inputs) -> Trial:
        def reference(given: Any) -> torch.Tensor:
            if facts.exact == (3,):
                raise ValueError("no such type")
            return torch.as_tensor(given[0] * 2)

        x = inputs.normal(facts.free[0] * facts.exact[0], dtype=facts.dtype)
        return Trial((x,), lambda given, config: fake.double(given[0], config), reference)

    selector, failing = fake.selector(), replace(fake.tunable(), trial=trial)
    monkeypatch.setattr(warmup, "TUNABLES", {"double": failing})
    first, second = warmup.tune_with(selector, "", [(8, 3), (8, 4)])
    assert first.why_not == "it could not be measured: ValueError: no such type"
    assert (second.why_not, selector.store.all_faults()) == ("", [])
    assert {timing.place.key for timing in selector.store.all_timings()} == {second.key}


def test_a_key_that_ran_out_of_time_holds_for_the_process_and_is_not_stored(fake: Any, use: Use) -> None:
    fake.times = {fake.configs[0]: 1.9, fake.configs[1]: 1.8}
    selector = fake.selector(budget=Budget(key_s=0.01, now=lambda: fake.now_s))
    with using("on"):
        for _ in range(2):
            chosen = use(selector, fake.tunable())
    assert chosen == fake.configs[2]
    assert selector.store.all_timings() == []


def test_too_little_memory_means_no_measurement(fake: Any, use: Use) -> None:
    fake.spare = 100
    selector, tunable = fake.selector(), fake.tunable()
    assert "it needs" in selector.measure(selector.plan(tunable, 0, FACTS))
    with using("full"):
        assert use(selector, tunable) == fake.configs[0]
    assert fake.ran == []


def test_memory_that_runs_out_is_not_the_candidates_fault(fake: Any) -> None:
    fake.faults[fake.configs[1]] = "memory"
    selector = fake.selector()
    assert selector.measure(selector.plan(fake.tunable(), 0, FACTS)) == "memory ran out"
    assert selector.store.all_timings() == []
    assert selector.store.all_faults() == []


# -- together ----------------------------------------------------------------------------------------
def test_no_thread_measures_while_another_one_records(fake: Any) -> None:
    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), using("full"):
        with still(), ThreadPoolExecutor(1) as other:
            other.submit(tunable.run_on, 0, FACTS, lambda config: None).result(60)
            assert fake.ran == []
        tunable.run_on(0, FACTS, lambda config: None)
    assert fake.ran != []


def test_recording_waits_for_a_measurement_that_is_under_way(fake: Any) -> None:
    inside, go, began = threading.Event(), threading.Event(), threading.Event()
    original = fake.milliseconds

    def slow(call: Callable[[], Any]) -> float:
        inside.set()
        assert go.wait(60)
        return float(original(call))

    def record(selector: Selector) -> None:
        with selector.still():
            began.set()

    fake.milliseconds = slow
    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), using("full"), ThreadPoolExecutor(2) as threads:
        measuring = threads.submit(tunable.run_on, 0, FACTS, lambda config: None)
        assert inside.wait(60)
        recorded = threads.submit(record, selector)
        assert not began.wait(0.05)
        go.set()
        measuring.result(60)
        recorded.result(60)
    assert began.is_set()


def test_another_thread_does_not_wait_for_a_measurement(fake: Any, use: Use) -> None:
    inside, go = threading.Event(), threading.Event()
    original = fake.milliseconds

    def slow(call: Callable[[], Any]) -> float:
        inside.set()
        assert go.wait(60)
        took: float = original(call)
        return took

    fake.milliseconds = slow
    selector, tunable = fake.selector(), fake.tunable()
    with selecting(selector), using("full"):
        worker = threading.Thread(target=lambda: tunable.run_on(0, FACTS, lambda config: None))
        worker.start()
        assert inside.wait(60)
        begun = time.monotonic()
        launched = list[Any]()
        tunable.run_on(0, FACTS, launched.append)
        tunable.run_on(0, FACTS._replace(exact=(9,)), launched.append)
        assert time.monotonic() - begun < 30
        assert launched == [fake.configs[0]] * 2
        go.set()
        worker.join()
    assert len(selector.store.all_timings()) == 3


def test_threads_that_meet_new_keys_at_once_agree(fake: Any, use: Use) -> None:
    selector, tunable, configs = fake.selector(), fake.tunable(), list[Any]()

    def work() -> None:
        for cols in range(1, 40):
            tunable.run_on(0, FACTS._replace(exact=(cols,)), configs.append)

    with selecting(selector):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert configs == [fake.configs[0]] * (6 * 39)
    assert len(selector.decisions) == 39


def test_keys_without_timings_are_pending(fake: Any, use: Use) -> None:
    selector, tunable = fake.selector(Store(None)), fake.tunable()
    use(selector, tunable)
    (waiting,) = selector.pending()
    assert waiting.place == Place(
        tunable.kernel, "double rows<=128 cols=4 float32 packed align=16", "Fake 1 sm_90 x132", waiting.place.software
    )
    selector.measure(waiting)
    assert selector.pending() == []
