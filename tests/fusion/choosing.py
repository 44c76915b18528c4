"""Other answers of LibTorch to what planning asks, for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from burn_torch.backend.libtorch.attached import choices

__all__ = ["choosing"]


@contextmanager
def choosing(**answers: Any) -> Iterator[None]:
    """A block in which LibTorch answers these questions so: see `Choices`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choices, "CHOICES", replace(choices.CHOICES, **answers))
        yield
