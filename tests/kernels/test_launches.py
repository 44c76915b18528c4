"""Options of a launch beside warps and stages."""

from __future__ import annotations

import pytest
import torch

from burn_kernels import cross_entropy, norm
from burn_kernels.launch import A100, H200, MI300X, extra_options, recording


def test_options_of_a_launch() -> None:
    assert extra_options(H200, False, 0) == {}
    assert extra_options(H200, True, 32) == {"launch_cooperative_grid": True, "maxnreg": 32}
    assert extra_options(MI300X, False, 32) == {}
    assert extra_options(H200, False, 0, True) == {"launch_pdl": True}
    assert extra_options(MI300X, False, 0, contracts=False) == {"enable_fp_fusion": False}


@pytest.mark.parametrize(("cols", "parts"), [(16_384, 2), (32_768, 4), (20_480, 4)])
def test_programs_that_wait_for_each_other_run_together(cols: int, parts: int) -> None:
    x, w, s = (torch.empty(8192, n, dtype=torch.bfloat16, device="meta") for n in (cols, cols, 1))
    s = s.float()
    with recording(H200) as launches:
        norm.layer_norm_backward(x, x, w[0], s, s)
    shared = [one for one in launches if "PARTS" in one.constants]
    assert [(one.together, one.constants["PARTS"]) for one in shared] == [(True, parts)]
    assert shared[0].grid[0] <= H200.processors  # or they could not all run at once


def test_registers_are_asked_for_where_two_programs_fit_by_them() -> None:
    x, targets = torch.empty(64, 50_257, dtype=torch.bfloat16, device="meta"), torch.empty(64, dtype=torch.int64)
    with recording(H200) as launches:
        cross_entropy.forward_with_gradient(x, targets.to("meta"), config=cross_entropy.Config(2048, 32, registers=32))
    assert [one.registers for one in launches] == [0, 32, 0]


def test_rows_stay_in_registers_where_a_hopper_can_hold_them() -> None:
    targets = torch.empty(64, dtype=torch.int64, device="meta")
    for machine, cols, smoothing, held in (
        (H200, 50_257, 0.0, True),
        (H200, 50_257, 0.1, False),
        (H200, 32_000, 0.0, False),
        (H200, 128_256, 0.0, False),
        (A100, 50_257, 0.0, False),
    ):
        x = torch.empty(64, cols, dtype=torch.bfloat16, device="meta")
        with recording(machine) as launches:
            cross_entropy.forward_with_gradient(x, targets, smoothing=smoothing)
        assert [one.kernel.fn.__name__ for one in launches].count("cross_entropy_held") == held
