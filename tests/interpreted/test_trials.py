"""Every candidate of every kernel passes the trial that precedes a measurement, and a broken kernel does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import softmax  # after the check for triton
from burn_kernels.autotune import trial as trials
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES, Inputs, Tunable
from burn_kernels.launch import H200

# numpy says so where kernels compute with infinities on purpose, in lanes that are masked or replaced
pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero|All-NaN slice) encountered:RuntimeWarning"
)

NARROW, WIDE = (5, 49), ((3, 1030), (3, 17_000))


def wide_problems(tunable: Tunable) -> list[Facts]:
    """Rows that one block does not hold, or just holds."""
    wide = (
        ((3, 300),) if tunable.name == "linear" else WIDE
    )  # a product is many times the work, and its tiles are narrow
    return [facts for shape in wide for facts in tunable.problems(*shape, torch.float32)]


def problems(tunable: Tunable) -> list[Facts]:
    """Ragged ones, and the same with rows that begin anywhere and lie apart."""
    listed = list(tunable.problems(*NARROW, torch.float32))
    if tunable.exact == ("cols",):
        listed += [facts._replace(layout="strided") for facts in tunable.problems(4, 64, torch.float32)]
        listed += [facts._replace(layout="strided", align=4) for facts in tunable.problems(4, 64, torch.float16)]
    if tunable.name == "cross_entropy":
        listed += [f._replace(flags=f"{f.flags} smooth") for f in tunable.problems(5, 49, torch.float32)]
    if tunable.name.startswith("glu"):
        listed += [f._replace(free=(4, 33), layout="strided", align=4) for f in tunable.problems(4, 33, torch.float32)]
    if tunable.name in ("adamw", "sgd"):
        listed = [f._replace(free=(1,), flags=f.flags + more) for f in listed[:1] for more in ("", " copy=bfloat16")]
        listed.append(listed[0]._replace(align=1))
    return listed


QUICK = ("adamw", "cross_entropy", "dropout", "layer_norm", "softmax")
"""One of each kind; the others are slow tests: all of them take two minutes."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(TUNABLES)]
)
def test_every_candidate_passes_its_trial(name: str) -> None:
    check(TUNABLES[name], problems(TUNABLES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_every_candidate_passes_its_trial_on_wide_rows(name: str) -> None:
    check(TUNABLES[name], wide_problems(TUNABLES[name]))


class Aside(Inputs):
    """Numbers whose mean is not 0: the mean of many around 0 is a small difference, and its error is luck."""

    def normal(self, *shape: int, dtype: torch.dtype, std: float = 1.0) -> torch.Tensor:
        return super().normal(*shape, dtype=torch.float32, std=std).add_(0.5).to(dtype)


def check(tunable: Tunable, problems: list[Facts]) -> None:
    for facts in problems:
        trial = tunable.trial(facts, (Aside if tunable.name in ("batch_norm", "group_norm") else Inputs)("cpu", seed=1))
        base: Any = None
        truth = trials.Truth.of(trial)
        for config in tunable.candidates(facts, H200):
            assert trials.judge(trial, config, truth, facts.dtype) == [], (facts, config)
            if base is None:
                base, faults = trials.first(trial, config)
                assert faults == [], (facts, config)
            else:
                assert trials.agree(trial, config, base, facts.dtype) == [], (facts, config)
        if trial.timed is not None:
            trial.timed(trial.inputs, tunable.default(facts, H200))


def test_rows_that_no_program_computes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "ceil_div", lambda n, step: n // step)
    facts = Facts((5,), (49,), torch.float32, 4)
    trial = softmax.FORWARD.trial(facts, Inputs("cpu"))
    complaints = trials.judge(trial, softmax.Config(2, 64, 1), trials.Truth.of(trial), torch.float32)
    assert complaints[0] == "output 0: 49 elements not written, or NaN where there should be numbers"


def test_a_block_that_writes_past_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original: Any = vars(softmax)["launch"]

    def longer(kernel: Any, grid: Any, like: Any, *arguments: Any, **constants: Any) -> None:
        # x, y, stride, rows, cols: one row more than there is
        arguments = (*arguments[:3], arguments[3] + 1, *arguments[4:])
        original(kernel, (grid[0] + 1,), like, *arguments, **constants)

    monkeypatch.setattr(softmax, "launch", longer)
    facts = Facts((4,), (64,), torch.float32)
    trial = softmax.FORWARD.trial(facts, Inputs("cpu"))
    room = torch.zeros(5, 64)  # so that what is read beyond x is memory of this test
    room[:4] = trial.inputs[0]
    trial = trials.Trial((room[:4],), trial.run, trial.reference)
    complaints = trials.judge(trial, softmax.Config(1, 64, 1), trials.Truth.of(trial), torch.float32)
    assert complaints == ["writes past the end of allocation 0"]
