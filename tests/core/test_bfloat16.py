"""bfloat16 on the host, bit for bit as torch rounds it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from burn_torch.core.data import bf16_from_f32, f32_from_bf16


@given(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32, allow_nan=True)))
def test_bfloat16_rounds_to_nearest_even_as_torch(values: np.ndarray) -> None:
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(f32_from_bf16(bf16_from_f32(values)), expected)
