"""Levels: the variable, the function, the block; deterministic mode."""

from __future__ import annotations

import pytest
import torch

from burn_kernels import KernelArgumentError
from burn_kernels.autotune import deterministic, is_deterministic, level, set_level, using
from burn_kernels.verification import poisoned


def test_the_first_level_never_measures() -> None:
    assert level() == "cached"


def test_the_variable_names_the_first_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURN_KERNELS_AUTOTUNE", "full")
    assert level() == "full"


def test_a_wrong_variable_is_an_error_in_three_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURN_KERNELS_AUTOTUNE", "fast")
    with pytest.raises(KernelArgumentError, match=r"no such level\n  given:    BURN_KERNELS_AUTOTUNE='fast'\n.*off, c"):
        level()


def test_a_wrong_name_is_an_error_and_changes_nothing() -> None:
    with pytest.raises(
        KernelArgumentError, match=r"given:    'ON'\n  expected: one of off, cached, on, full\n  mend: "
    ):
        set_level("ON")
    assert level() == "cached"


def test_a_block_sets_and_restores_the_level_also_after_an_error() -> None:
    inside = ""

    def fail() -> None:
        nonlocal inside
        with using("on"):
            inside = level()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (inside, level()) == ("on", "cached")


def test_the_mode_of_torch_counts_unless_a_block_says_otherwise() -> None:
    assert not is_deterministic()
    with deterministic(True):
        assert is_deterministic()
    torch.use_deterministic_algorithms(True)
    try:
        assert is_deterministic()
        with deterministic(False):
            assert not is_deterministic()
    finally:
        torch.use_deterministic_algorithms(False)


def test_poisoned_memory_does_not_change_what_is_chosen() -> None:
    # verify fills memory by torch's deterministic mode; the config that it checks must be the one that runs
    with poisoned():
        assert torch.are_deterministic_algorithms_enabled()
        assert not is_deterministic()
    with deterministic(True), poisoned():
        assert is_deterministic()
