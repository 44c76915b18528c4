"""Batch norm: layouts of its results, what torch does at the edges, and what the launchers refuse."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelDTypeError, KernelError, KernelShapeError, batch_norm
from burn_kernels.channel_norm.configs import candidates, default, grid
from burn_kernels.channel_norm.layout import Tiling, alike, ordered, room_like, unfolded
from burn_kernels.launch import A100, H200, MI300X, recording
from burn_kernels.spec import Draw

X, V = torch.ones(4, 6, 3), torch.ones(6)

LAYOUTS: dict[str, tuple[torch.Tensor, bool, bool]] = {  # a tensor, whether channels are last, whether it is copied
    "in order": (torch.empty(2, 3, 4, 5), False, False),
    "rows": (torch.empty(8, 3), True, False),
    "channels last": (torch.empty(2, 4, 5, 3).permute(0, 3, 1, 2), True, False),
    "some channels": (torch.empty(2, 9, 4, 5)[:, 2:6], False, False),
    "some channels, last": (torch.empty(2, 4, 5, 9).permute(0, 3, 1, 2)[:, 2:6], True, False),
    "every other image": (torch.empty(8, 3, 4, 5)[::2], False, False),
    "one channel": (torch.empty(2, 1, 4, 5), False, False),
    "one channel, rows": (torch.empty(8, 1), True, False),
    "no space": (torch.empty(2, 3, 1, 1), True, False),
    "part of the width": (torch.empty(2, 3, 4, 5)[..., 1:], False, True),
    "transposed": (torch.empty(3, 8).T, True, True),
    "every other image, last": (torch.empty(8, 4, 5, 3).permute(0, 3, 1, 2)[::2], False, True),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_read_in_place(name: str) -> None:
    x, last, copied = LAYOUTS[name]
    flat, is_last = ordered(x)
    assert (is_last, flat.data_ptr() != x.data_ptr()) == (last, copied)
    assert flat.shape == (x.shape[0], x.shape[1], math.prod(x.shape[2:]))
    assert unfolded(alike(flat, is_last), x.shape).shape == x.shape
    assert room_like(x).shape == x.shape


def test_parts_cover_the_tiles_and_fill_the_machine() -> None:
    draw = Draw(0)
    sizes = [[int(n) for n in draw.integers(1, most, 40)] for most in (700, 300, 5000)]
    for channels, rows, cols in [*zip(*sizes, strict=True), (64, 256, 3136), (8, 64, 676), (3, 10**6, 1)]:
        tiling = Tiling(1, channels, rows, cols)
        for machine in (H200, A100, MI300X):
            configs = candidates(tiling, 2, machine)
            assert default(tiling, 2, machine) == configs[0]
            assert len(set(configs)) == len(configs)
            for config in configs:
                assert config.kept * config.rows * config.block <= 16_384
                blocks, parts, steps = grid(tiling, config, machine)
                tiles = -(-rows // config.rows) * -(-cols // config.block)
                assert (parts - 1) * steps < tiles <= parts * steps
                assert blocks * config.kept >= channels
    blocks, parts, _ = grid(Tiling(1, 64, 256, 3136), default(Tiling(1, 64, 256, 3136), 2, H200), H200)
    assert blocks * parts > 2 * H200.processors


def test_one_launch_where_channels_fill_the_machine_else_three() -> None:
    def launches(*shape: int) -> int:
        with recording(H200) as recorded:
            batch_norm.forward(torch.empty(shape, device="meta"), None, None)
        return len(recorded)

    assert launches(64, 256) == 1
    assert launches(256, 2048, 7, 7) == 1
    assert launches(256, 64, 56, 56) == 3


def test_without_elements_the_running_statistics_stay() -> None:
    mean, var = torch.rand(3), torch.rand(3)
    y, _, _, new_mean, new_var = batch_norm.forward(torch.ones(0, 3, 2), None, None, mean, var)
    assert y.shape == (0, 3, 2)
    assert new_mean is not None
    assert new_var is not None
    assert (new_mean.tolist(), new_var.tolist()) == (mean.tolist(), var.tolist())
    assert new_mean.data_ptr() != mean.data_ptr()


def test_in_place_is_the_other_form() -> None:
    x, mean, var = torch.randn(5, 3, 2), torch.rand(3), torch.rand(3)
    expected = batch_norm.forward(x, V[:3], None, mean, var, momentum=0.25, activation="silu")
    outputs = batch_norm.forward_(x, V[:3], None, mean, var, momentum=0.25, activation="silu")
    torch.testing.assert_close((*outputs, mean, var), expected, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"batch_norm: more than one value a channel.*x \(1, 6, 1\).*batch \* space above 1.*evaluate",
            lambda: batch_norm.forward(X[:1, :, :1], V, V),
        ),
        (
            KernelShapeError,
            r"batch_norm: the input has no axis of channels.*x \(6,\).*x \(batch, channels, \*space\).*unsqueeze",
            lambda: batch_norm.forward(V, None, None),
        ),
        (
            KernelShapeError,
            r"batch_norm_eval: w and mean have another shape.*w \(3,\).*expected: w \(6,\), mean \(6,\)",
            lambda: batch_norm.evaluate(X, V[:3], V, V[:2], V),
        ),
        (
            KernelArgumentError,
            r"batch_norm: no such activation.*'gelu'.*none, relu, silu.*burn_kernels.activation",
            lambda: batch_norm.forward(X, V, V, activation="gelu"),
        ),
        (
            KernelDTypeError,
            r"batch_norm backward: the element types do not fit.*w \(6,\) float16.*in the type of x or in float32",
            lambda: batch_norm.backward(X, X, V.half(), None, V, V),
        ),
        (
            KernelShapeError,
            r"batch_norm_eval backward: dy has another shape.*dy \(4, 6\).*expected: dy \(4, 6, 3\)",
            lambda: batch_norm.evaluate_backward(X[..., 0], X, V, None, V, V),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
