"""Fixtures that tests of every package use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the repository, or in BURN_TORCH_SHARED; its tests are skipped without it."""
    named = os.environ.get("BURN_TORCH_SHARED")
    shared = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (shared / "data").is_dir():
        pytest.skip("the folder of shared data sets is absent (BURN_TORCH_SHARED names it)")
    return shared / "data"
