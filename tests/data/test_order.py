"""Order and seeds as pure functions, against an independent Philox."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burn_torch.core.errors import DataError
from burn_torch.data import permutation, sample_generator, sample_seed
from burn_torch.data.order import draws

MASK = 2**64 - 1


def philox(key, counter):
    """Philox-4x64-10 as the paper has it, in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c[2], 2**64)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return c


def test_the_reference_gives_the_known_answers_of_random123():
    assert philox((0, 0), (0, 0, 0, 0)) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]
    ones = (MASK,) * 4
    assert philox(ones[:2], ones) == [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]


words64 = st.integers(0, MASK)


@given(st.integers(0, 40), words64, words64)
def test_permutation_sorts_by_philox_words(n, seed, epoch):
    words = [
        word for block in range(n // 4 + 1) for word in philox((seed, epoch), (block + 1, 0, 0, 0))
    ]  # numpy starts at 1
    expected = sorted(range(n), key=words.__getitem__)
    assert permutation(n, seed, epoch).tolist() == expected


@given(words64, words64, words64)
def test_sample_seed_is_one_philox_word(seed, epoch, index):
    assert sample_seed(seed, epoch, index) == philox((seed, epoch), (1, index, 0, 1))[0]


def test_permutation_has_its_value_for_ever():
    assert permutation(12, 42, 3).tolist() == [1, 6, 3, 4, 5, 9, 2, 8, 0, 7, 11, 10]
    assert permutation(0, 1, 2).tolist() == []
    assert permutation(1, 1, 2).dtype == np.int64


def test_orders_of_seeds_and_epochs_differ():
    seen = {tuple(permutation(20, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(seen) == 25
    assert len({sample_seed(s, e, i) for s in range(5) for e in range(5) for i in range(5)}) == 125


def test_every_position_is_equally_likely_at_every_place():
    # 6,000 orders of 5: each of the 25 counts is binomial(6000, 1/5) with deviation 31; 6 deviations are allowed
    orders = np.array([permutation(5, 9, epoch) for epoch in range(6000)])
    counts = np.array([[np.sum(orders[:, place] == item) for item in range(5)] for place in range(5)])
    assert np.abs(counts - 1200).max() < 6 * 31


def test_draws_are_even():
    counts = np.bincount(draws(60_000, 6, 1, 2), minlength=6)  # binomial(60000, 1/6): deviation 91
    assert np.abs(counts - 10_000).max() < 6 * 91


def test_sample_generator_is_a_function_of_its_place():
    assert sample_generator(1, 2, 3).random() == sample_generator(1, 2, 3).random()
    first = {
        sample_generator(*place).bit_generator.random_raw() for place in [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0)]
    }
    assert len(first) == 4


@pytest.mark.parametrize(
    ("n", "seed", "epoch", "name"), [(3, -1, 0, "seed"), (3, 0, -1, "epoch"), (-1, 0, 0, "n"), (3, 2**64, 0, "seed")]
)
def test_arguments_out_of_range_are_reported(n, seed, epoch, name):
    with pytest.raises(
        DataError, match=rf"^{name} is out of range\n  given:    {name}=.*\n  expected: 0 <= .*\n  mend:     give"
    ):
        permutation(n, seed, epoch)
