"""Scans over lattices beside their references: several blocks of states, states that no path reaches, refusals."""

from __future__ import annotations

import math

import pytest
import torch

from burn_kernels import lattice
from burn_kernels.errors import KernelShapeError


def test_states_of_several_blocks_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(3)
    start, weights = (torch.randn(shape, generator=draw) for shape in ((2, 37), (2, 3, 3, 37)))
    x = torch.randn((2, 4, 37), generator=draw)
    whole = lattice.log_band_scan(start, weights), lattice.band_scan(x, weights)
    monkeypatch.setattr(lattice, "MOST_STATES", 8)
    for several, one in zip((lattice.log_band_scan(start, weights), lattice.band_scan(x, weights)), whole, strict=True):
        assert torch.equal(several, one)


def test_infinities_and_nan_are_those_of_the_reference() -> None:
    start = torch.tensor([[0.0, -math.inf, -math.inf, math.inf, math.nan, -1.0]])
    weights = torch.zeros(1, 3, 2, 6)
    weights[0, :, 1, 1] = -math.inf
    weights[0, 1, 0, 0] = -math.inf
    expected = lattice.log_reference(start.double(), weights.double())
    torch.testing.assert_close(lattice.log_band_scan(start, weights).double(), expected, equal_nan=True)


def test_what_does_not_fit_is_refused() -> None:
    factors = torch.zeros(2, 3, 2, 4)
    with pytest.raises(KernelShapeError, match=r"band_scan: x does not fit the factors(.|\n)*steps \+ 1, states\)"):
        lattice.band_scan(torch.zeros(2, 3, 4), factors)
    with pytest.raises(KernelShapeError, match=r"band_scan: x does not fit"):
        lattice.band_scan(torch.zeros(2, 4, 4, dtype=torch.float16), factors)
    with pytest.raises(KernelShapeError, match="log_band_scan"):
        lattice.log_band_scan(torch.zeros(2, 5), factors)
