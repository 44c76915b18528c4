"""The application logs of runs that overlap, as those of two threads do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from burn_torch.train.logger.application import LOG, FileApplicationLogger, installed


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_runs_that_overlap_log_to_their_ends_and_leave_the_level(tmp_path: Path, first_ends_first: bool) -> None:
    before = LOG.level, list(logging.getLogger("burn_torch").handlers)
    assert not LOG.isEnabledFor(logging.INFO)
    runs = [installed(FileApplicationLogger(tmp_path / f"{number}.log")) for number in range(2)]
    for run in runs:
        run.__enter__()
    ending = [0, 1] if first_ends_first else [1, 0]
    runs[ending[0]].__exit__(None, None, None)
    LOG.info("still here")
    runs[ending[1]].__exit__(None, None, None)
    assert (LOG.level, logging.getLogger("burn_torch").handlers) == before
    assert "still here" in (tmp_path / f"{ending[1]}.log").read_text()
