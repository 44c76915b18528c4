"""Group norm: how often it launches, and what the launchers refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelError, KernelShapeError, group_norm
from burn_kernels.launch import H200, recording

X, V = torch.ones(2, 6, 3), torch.ones(6)


def test_one_launch_where_groups_fill_the_machine_else_three_and_four_backward() -> None:
    def launches(*shape: int, groups: int) -> tuple[int, int]:
        x, v = torch.empty(shape, device="meta"), torch.empty(shape[1], device="meta")
        s = torch.empty(shape[0], groups, device="meta")
        with recording(H200) as forward:
            group_norm.forward(x, v, v, groups)
        with recording(H200) as backward:
            group_norm.backward(x, x, v, v, s, s)
        return len(forward), len(backward)

    assert launches(64, 256, 8, 8, groups=32) == (1, 4)
    assert launches(1, 320, 64, 64, groups=32) == (3, 4)


def test_one_channel_a_group_is_instance_norm_and_one_group_a_layer_norm() -> None:
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(
        group_norm.forward(x, V, V, 6)[0], torch.nn.functional.instance_norm(x, None, None, V, V)
    )
    torch.testing.assert_close(group_norm.forward(x, None, None, 1)[0], torch.nn.functional.layer_norm(x, (6, 5)))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"group_norm: the channels cannot be cut.*x \(2, 6, 3\).*groups 4.*groups \* channels.*divides",
            lambda: group_norm.forward(X, V, V, 4),
        ),
        (
            KernelShapeError,
            r"group_norm backward: mean and rstd have another shape.*expected: mean \(2, 3\), rstd \(2, 3\)",
            lambda: group_norm.backward(X, X, V, V, torch.ones(1, 3), torch.ones(1, 3)),
        ),
        (
            KernelShapeError,
            r"group_norm: b has another shape.*b \(3,\).*expected: b \(6,\)",
            lambda: group_norm.forward(X, V, V[:3], 2),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
