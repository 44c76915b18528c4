"""Mends Triton's interpreter for these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def interpreter_that_is_mended() -> Iterator[None]:
    pytest.importorskip("triton.runtime.interpreter")
    from tests.interpreted.mends import mended

    with pytest.MonkeyPatch.context() as patch:
        mended(patch)
        yield
