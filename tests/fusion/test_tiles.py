"""Tiles of generated kernels: which way they lie, and how much they have on its way."""

from __future__ import annotations

from typing import Any

import pytest

from burn_torch.core.dtype import DType
from burn_torch.fusion import plan_of
from burn_torch.fusion.body.loops import Kernel
from burn_torch.fusion.triton.configs import Tiles, candidates_of, tiles_of
from burn_torch.fusion.triton.lowering import lower
from tests.fusion.programs import row, tensor, traced

HALF = DType.BF16
AHEAD = 64_000
"""Bytes on their way that keep a multiprocessor of an H200 busy."""


def columns_of(function: Any, *specs: Any) -> Kernel:
    """The first kernel of a program."""
    return lower(plan_of(traced(function, list(specs))).groups[0].body)


def activation_and_bias(g: Any, x: Any) -> Any:
    d = row("gelu_approximate_backward")(g, x)
    return d, row("sum_to_shape")(d, shape=(d.shape[-1],))


def cast_and_sum(x: Any) -> Any:
    return row("cast")(row("sum_to_shape")(x, shape=(x.shape[-1],)), dtype=DType.F32)


def norm_backward(g: Any, x: Any, mean: Any, rstd: Any, gamma: Any) -> Any:
    return row("layer_norm_backward")(g * 0.5, x, mean, rstd, gamma)


def ahead(kernel: Kernel, tiles: Tiles) -> float:
    return (tiles.stages - 1) * tiles.x * tiles.r * kernel.streamed * max(tiles.programs(kernel) / 132, 1.0)


@pytest.mark.parametrize("cols", [768, 2304, 3072, 4096])
def test_sums_of_columns_go_along_rows_of_memory(cols: int) -> None:
    """A kernel that held 2048 elements of one or two columns each took 1.3 ms where memory needs 0.07 (H200)."""
    matrix = tensor(16384, cols, dtype=HALF)
    for kernel in (columns_of(activation_and_bias, matrix, matrix), columns_of(cast_and_sum, matrix)):
        tiles = tiles_of(kernel)
        assert kernel.rows_together
        assert not kernel.whole_rows
        assert tiles.x >= 64
        assert tiles.programs(kernel) >= 264
        assert ahead(kernel, tiles) >= AHEAD
        assert all(tiles.x >= 32 for tiles in candidates_of(kernel))


@pytest.mark.parametrize(("cols", "most"), [(768, 256), (4096, 128), (8192, 64)])
def test_columns_beside_rows_are_few_parts_that_read_ahead(cols: int, most: int) -> None:
    matrix, statistics = tensor(16384, cols, dtype=HALF), tensor(16384, 1)
    kernel = columns_of(norm_backward, matrix, matrix, statistics, statistics, tensor(cols, dtype=HALF))
    assert kernel.domain.parts == most
    assert most * cols * 4 <= 2 << 20
    tiles = tiles_of(kernel)
    assert tiles.stages >= 3
    assert ahead(kernel, tiles) >= 0.49 * AHEAD


def test_what_is_read_ahead_fits_shared_memory() -> None:
    matrix, statistics = tensor(16384, 8192), tensor(16384, 1)
    kernel = columns_of(norm_backward, matrix, matrix, statistics, statistics, tensor(8192))
    for tiles in candidates_of(kernel):
        assert (tiles.stages - 1) * tiles.x * tiles.r * kernel.streamed <= 128 << 10
