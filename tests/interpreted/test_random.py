"""The kernels that draw, in Triton's interpreter: the words of `core/philox.py`, from numbers and device memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import KernelArgumentError, dropout, random  # after the check for triton
from burn_kernels.launch import H200
from burn_kernels.verification import poisoned
from burn_torch.core.philox import fold, stream_of, words

KEYS = [0, fold(3, 4), 2**63 - 1, 2**64 - 1, -5]
STREAM = stream_of("encoder.dropout#0")
CPU = torch.device("cpu")

# numpy says so where the cipher's products wrap around, on purpose
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def held(number: int) -> torch.Tensor:
    return torch.tensor(random.signed(number))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 1), (0, 7), (3, 2050), (2**32 - 2, 13), (2**40, 4)])
def test_bits_are_the_words_of_philox(key: int, first: int, count: int) -> None:
    expected = words(key, STREAM, 4 * first, count).astype(np.int64)
    with poisoned():
        draws = [random.bits(key, STREAM, first, count, CPU), random.bits(held(key), held(STREAM), first, count, CPU)]
    draws += [random.words(held(key), STREAM, count, CPU, first)]
    for tensor in draws:
        np.testing.assert_array_equal(tensor.numpy(), expected)


@pytest.mark.parametrize("limit", [0, 1, 1 << 31, round(0.7 * 2**32), 2**32 - 1, 2**32])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
def test_yes_below_the_limit(limit: int, dtype: torch.dtype) -> None:
    below = words(KEYS[1], STREAM, 0, 1035).astype(np.int64) < limit
    with poisoned():
        y = random.yes((5, 207), limit, 1.0, held(KEYS[1]), STREAM, dtype, CPU)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.numpy().reshape(-1), below.astype(y.numpy().dtype))


def test_every_candidate_draws_the_same() -> None:
    expected = random.bits(1, 2, 0, 5000, CPU)
    for config in random.candidates(H200):
        assert torch.equal(random.bits(1, 2, 0, 5000, CPU, config=config), expected)
        assert torch.equal(random.yes((5000,), 1 << 31, 2.0, 1, 2, torch.float32, CPU, config=config) == 2.0,
                           expected < 1 << 31)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_dropout_by_numbers_that_lie_on_the_device(key: int, dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 2051).to(dtype)
    expected = dropout.forward(x, 0.3, key, STREAM)
    assert torch.equal(dropout.reference(x, 0.3, held(key), held(STREAM)), expected)
    with poisoned():
        assert torch.equal(dropout.forward(x, 0.3, held(key), STREAM), expected)
        assert torch.equal(dropout.forward(x, 0.3, held(key), held(STREAM)), expected)
        assert torch.equal(dropout.forward(x, 0.3, key, held(STREAM)), expected)


def test_a_key_that_is_no_integer_is_refused() -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)key is no integer.*float32.*one int64.*torch.tensor"):
        random.bits(torch.tensor(1.0), 2, 0, 4, CPU)
    with pytest.raises(KernelArgumentError, match=r"(?s)stream is no integer.*\(2,\).*one int64"):
        random.bits(1, torch.tensor([1, 2]), 0, 4, CPU)


def test_a_limit_past_all_words_is_refused() -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)no share.*limit 4294967297.*0 to 2\^32.*round"):
        random.yes((3,), 2**32 + 1, 1.0, 1, 2, torch.float32, CPU)
