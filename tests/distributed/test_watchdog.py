"""One process ends in some way while another waits for it: both end soon, with one code, the cause shown first."""

from collections.abc import Callable
from typing import Any

import pytest


def seconds_after(ended: Any) -> float:
    """How long the others lived on."""
    return float(ended.at - float(ended.out[1].splitlines()[-1]))


pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="signals of POSIX")


@pytest.mark.slow
def test_a_process_that_raises_ends_the_other_with_its_code(launch: Callable[..., Any]) -> None:
    ended = launch("ending", how="raises")
    assert ended.codes == [1, 1]
    assert seconds_after(ended) < 30
    assert "the first failure, of rank 1:" in ended.err[0]
    assert ended.err[0].index("ZeroDivisionError: mine") < ended.err[0].index("rank 0 ends with code 1: rank 1 failed")
    assert "Traceback" not in ended.err[0].split("rank 0 ends")[1]
    assert "ZeroDivisionError: mine" in ended.err[1]


def test_a_process_that_is_killed_ends_the_other(launch: Callable[..., Any]) -> None:
    ended = launch("ending", how="killed")
    assert ended.codes == [137, -9]
    assert seconds_after(ended) < 30
    assert "rank 0 ends with code 137: rank 1 ended without a word (killed by the system?" in ended.err[0]
    assert "Traceback" not in ended.err[0]


def test_rank_0_with_the_store_is_killed_and_the_other_ends_in_one_line(launch: Callable[..., Any]) -> None:
    ended = launch("ending", how="killed", who=0)
    assert ended.codes == [-9, 137]
    assert ended.at - float(ended.out[0].splitlines()[-1]) < 15
    ends = [line for line in ended.err[1].splitlines() if line.startswith("rank 1 ends with code 137: rank 0 ")]
    assert len(ends) == 1
    assert "Traceback" not in ended.err[1]
    assert ended.err[1].count("\n") < 300  # torch tells of a lost store in a hundred lines each time that it is asked


@pytest.mark.slow
def test_a_process_that_gives_no_sign_of_life_ends_the_other(launch: Callable[..., Any]) -> None:
    ended = launch("ending", how="stopped", silence_s=4.0, timeout_s=60.0, leave=[1])
    assert ended.codes[0] == 137
    assert seconds_after(ended) < 30
    assert "rank 1 gave no sign of life for 4 s" in ended.err[0]


@pytest.mark.slow
def test_a_process_that_hangs_ends_both_and_shows_where_it_was(launch: Callable[..., Any]) -> None:
    ended = launch("ending", how="hangs", silence_s=3.0, timeout_s=5.0)
    assert ended.codes == [1, 1]
    assert seconds_after(ended) < 30
    assert "rank 1 was here:" in ended.err[1]
    assert "time.sleep(300)" in ended.err[1]
