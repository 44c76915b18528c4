"""Rotary embedding in the interpreter: every config, and positions that the tables do not have."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import rope  # after the check for triton
from burn_kernels.launch import H200
from burn_kernels.spec import Draw


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("by_head", [False, True])
def test_every_candidate(interleaved: bool, by_head: bool) -> None:
    draw = Draw(9)
    q, k = draw.normal(2, 11, 5, 24).float(), draw.normal(2, 11, 2, 24).float()
    steps = rope.turns(20)
    exact = rope.reference_computed(q.double(), k.double(), steps, offset=1000, interleaved=interleaved)
    assert exact[1] is not None
    for config in rope.candidates(5, 10, 4, H200, by_head=by_head):
        rotated = rope.forward_computed(q, k, steps, offset=1000, interleaved=interleaved, config=config)
        assert rotated[1] is not None
        for y, expected in zip(rotated, exact, strict=True):
            assert y is not None
            assert expected is not None
            # two roundings of the product and one of the sum, of numbers to 5
            torch.testing.assert_close(y.double(), expected, rtol=0.0, atol=1e-6, msg=str(config))


def test_a_position_that_the_tables_do_not_have_is_nan() -> None:
    q, table = torch.ones(1, 3, 2, 4), torch.ones(4, 2)
    y, _ = rope.forward(q, None, table, table, torch.tensor([3, 4, -1]))
    assert y.isnan().any(-1)[0, :, 0].tolist() == [False, True, True]


def test_no_keys() -> None:
    q, angle = torch.ones(1, 3, 2, 4), torch.ones(3, 2)
    y, none = rope.forward(q, None, angle.cos(), angle.sin())
    assert none is None
    torch.testing.assert_close(y, rope.reference(q, None, angle.cos(), angle.sin())[0])
