"""Integers, slices, None and Ellipsis between brackets, drawn at random, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from burn_torch.tensor import Tensor
from tests.tensor.leaves import LEAVES

SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)


@given(st.data(), SHAPES)
@settings(max_examples=150, deadline=None)
def test_basic_indices_equal_numpy(data: Any, shape: tuple[int, ...]) -> None:
    item = data.draw(arrays.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    array = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    for make in LEAVES.values():
        x = Tensor.from_data(array, make())
        np.testing.assert_array_equal(x[item].into_data().array, array[item])


@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_slice_assign_equals_numpy(data: Any, shape: tuple[int, ...]) -> None:
    item = data.draw(arrays.basic_indices(shape, allow_newaxis=False, allow_ellipsis=True))
    parts = tuple(
        slice(i, i + 1 or None) if isinstance(i, int) else i for i in (item if isinstance(item, tuple) else (item,))
    )
    array = np.zeros(shape)
    expected = array.copy()
    values = np.arange(1.0, 1.0 + expected[parts].size).reshape(expected[parts].shape)
    expected[parts] = values
    for make in LEAVES.values():
        x = Tensor.from_data(array, make())
        assigned = x.slice_assign(item, Tensor.from_data(values, make()))
        np.testing.assert_array_equal(assigned.into_data().array, expected)
        np.testing.assert_array_equal(assigned.slice(item).into_data().array, values)
        assert not x.into_data().array.any()
