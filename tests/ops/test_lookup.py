"""Embedding: repeated indices, small index types, indices out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.nn import functional

from burn_torch.core.errors import BoundsError, ShapeError
from tests.ops.twins import LEAVES, compare, run


@pytest.mark.parametrize("shape", [(2, 7), (), (0, 3), (40,)])
def test_embedding_is_the_twin(shape: tuple[int, ...], seed: np.random.Generator) -> None:
    weight, indices = seed.standard_normal((5, 3)), seed.integers(0, 5, shape)
    compare(seed, "embedding", lambda w, i: functional.embedding(i, w), weight, np.asarray(indices))


def test_repeated_indices_are_summed_in_one_order(seed: np.random.Generator) -> None:
    g, indices = seed.standard_normal((4000, 8)).astype(np.float32), seed.integers(0, 3, 4000)
    for leaf in LEAVES:
        first = run(leaf, "embedding_backward", g, indices, rows=3)
        for _ in range(5):
            np.testing.assert_array_equal(run(leaf, "embedding_backward", g, indices, rows=3), first)


def test_indices_of_small_types(seed: np.random.Generator) -> None:
    weight, indices = seed.standard_normal((5, 3)), seed.integers(0, 5, (2, 4))
    for leaf in LEAVES:
        for small in (np.int32, np.int16, np.int8, np.uint8):
            np.testing.assert_array_equal(run(leaf, "embedding", weight, indices.astype(small)), weight[indices])


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
@pytest.mark.parametrize("index", [5, -1])
def test_an_index_out_of_range_is_refused(index: int, leaf: Any) -> None:
    message = r"an index is out of range.*given:    indices from .* into an axis of size 5.*expected: 0 to 4.*mend: "
    with pytest.raises(BoundsError, match=f"(?s)embedding: {message}"):
        run(leaf, "embedding", np.zeros((5, 3)), np.array([0, index]))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"(?s)embedding: the weight is not a table.*given:    weight \(3,\) f64.*expected: .*mend: "
    ):
        run(LEAVES[0], "embedding", np.zeros(3), np.zeros(2, np.int64))


def test_an_index_without_a_row_adds_nothing() -> None:
    g = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for leaf in LEAVES:
        grad = run(leaf, "embedding_backward", g, np.array([1, 2, -1]), rows=2)
        np.testing.assert_array_equal(grad, [[0.0, 0.0], [1.0, 2.0]])
