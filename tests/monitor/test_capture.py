"""Tests what is printed while runs go on: whose streams are back when they end."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from burn_torch.monitor.capture import capturing
from burn_torch.monitor.event import LogLine


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_runs_that_overlap_leave_the_streams_as_they_were(capsys: Any, first_ends_first: bool) -> None:
    before = sys.stdout, sys.stderr
    heard: tuple[list[LogLine], list[LogLine]] = ([], [])
    runs = [capturing(heard[0].append), capturing(heard[1].append)]
    for run in runs:
        run.__enter__()
    print("both")
    order = runs if first_ends_first else runs[::-1]
    order[0].__exit__(None, None, None)
    print("one")
    order[1].__exit__(None, None, None)
    print("none")
    assert (sys.stdout, sys.stderr) == before
    lines = [[line.text for line in each] for each in (heard if first_ends_first else heard[::-1])]
    assert lines == [["both"], ["both", "one"]]
    assert capsys.readouterr().out == "both\none\nnone\n"
