"""Faults are planted, and the fuzzer finds them: one quickly, all of them where slow tests run."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.faults import FAULTS
from tests.fuzz.hunting import run_faults
from tests.fuzz.phases import PHASES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="each fault is planted in a forked process")

QUICK = ("a-second-contribution-overwrites",)


def test_one_planted_fault_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_faults(QUICK, seed=7) == [], capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in QUICK])
def test_a_planted_fault_is_found(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    why = PHASES[FAULTS[name].phase].missing()
    if why is not None:
        pytest.skip(why)
    assert run_faults([name], seed=7) == [], capfd.readouterr().out


def test_there_are_at_least_twenty_faults() -> None:
    assert len(FAULTS) >= 20
    doors = {fault.door for fault in FAULTS.values()}
    assert doors >= {"second", "numeric", "ndarray", "compile", "donate", "lazy", "c"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename in the library may take away the text that a fault replaces; slow tests would notice that late."""
    FAULTS[name].plant(monkeypatch)
