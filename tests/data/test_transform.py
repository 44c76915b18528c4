"""Datasets made of datasets."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burn_torch.core.errors import DataError
from burn_torch.data import (
    AugmentedDataset,
    ComposedDataset,
    Dataset,
    InMemDataset,
    MapperDataset,
    PartialDataset,
    SamplerDataset,
    SamplerDatasetOptions,
    SelectionDataset,
    ShuffledDataset,
    WindowsDataset,
    permutation,
)


class Counting(Dataset[int]):
    """Counts what was read of it."""

    def __init__(self, n):
        self.n = n
        self.reads = []

    def __len__(self):
        return self.n

    def get(self, index):
        self.reads.append(index)
        return index


class Doubler:
    def map(self, item):
        return item * 2


def test_transforms_read_only_what_is_asked_for():
    source = Counting(100)
    stack = WindowsDataset(
        ShuffledDataset(PartialDataset(MapperDataset(ComposedDataset([source, source]), Doubler()), 50, 150), seed=3), 2
    )
    assert len(stack) == 99
    assert source.reads == []
    window = stack[7]
    order = permutation(100, 3, 0)
    assert window == [(50 + int(order[i])) % 100 * 2 for i in (7, 8)]
    assert len(source.reads) == 2


def test_mapper_takes_an_object_or_a_function():
    assert list(MapperDataset([1, 2], Doubler())) == list(MapperDataset([1, 2], lambda x: x * 2)) == [2, 4]
    assert MapperDataset([1, 2], Doubler()).get_many([1, 0]) == [4, 2]


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=5))
def test_composed_is_concatenation(parts):
    whole = ComposedDataset([InMemDataset(part) for part in parts])
    expected = [item for part in parts for item in part]
    assert list(whole) == expected
    assert len(whole) == len(expected)


@given(st.integers(0, 30), st.integers(1, 8), st.integers(1, 7))
def test_splits_cover_everything_once(total, num, batch_size):
    source = list(range(total))
    parts = PartialDataset.split(source, num)
    assert [item for part in parts for item in part] == source
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    chunks = PartialDataset.split_chunks(source, num, batch_size)
    assert [item for chunk in chunks for item in chunk] == source
    assert len(chunks) == num
    assert all(chunk[0] % batch_size == 0 for chunk in chunks if not chunk.is_empty())
    selections = SelectionDataset.new_shuffled(source, 5).split(num)
    assert [item for part in selections for item in part] == list(ShuffledDataset(source, 5))


@given(st.integers(0, 12), st.integers(1, 5))
def test_windows_are_all_runs_of_neighbours(total, size):
    source = list(range(total))
    assert list(WindowsDataset(source, size)) == [source[i : i + size] for i in range(total - size + 1)]


def test_selection_takes_positions_in_their_order():
    chosen = SelectionDataset(["a", "b", "c"], [2, 0, 2])
    assert list(chosen) == ["c", "a", "c"]
    assert chosen.get_many([2, 1]) == ["c", "a"]
    assert list(chosen.slice(1, 3)) == ["a", "c"]
    assert sorted(chosen.shuffle(1)) == ["a", "c", "c"]
    assert list(SelectionDataset.new_select_all(["a", "b"])) == ["a", "b"]
    assert list(SelectionDataset.from_indices_checked(["a", "b"], [1])) == ["b"]
    assert len(SelectionDataset([], [])) == 0
    with pytest.raises(ValueError, match="read-only"):
        chosen.indices[0] = 1


def test_shuffles_are_functions_of_the_seed():
    source = list(range(50))
    assert list(ShuffledDataset(source, 1)) == list(ShuffledDataset.with_seed(source, 1))
    assert list(ShuffledDataset(source, 1)) != list(ShuffledDataset(source, 2))
    assert sorted(ShuffledDataset(source, 1)) == source


@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 5))
def test_sampling_without_replacement_repeats_nothing_too_early(total, size, seed):
    drawn = list(SamplerDataset.without_replacement(list(range(total)), size, seed))
    assert len(drawn) == size
    for start in range(0, size, total):
        run = drawn[start : start + total]
        assert len(set(run)) == len(run)


def test_sampling_with_replacement_is_even():
    drawn = Counter(SamplerDataset.with_replacement(list(range(5)), 50_000, seed=3))
    assert max(abs(count - 10_000) for count in drawn.values()) < 6 * 90  # binomial(50000, 1/5): deviation 89.4


def test_sampler_sizes_and_options():
    source = list(range(10))
    options = SamplerDatasetOptions()
    assert len(SamplerDataset(source)) == 10
    assert len(SamplerDataset(source, options.with_size_ratio(1.55))) == 15
    assert len(SamplerDataset(source, options.with_fixed_size(3))) == 3
    assert len(SamplerDataset(source, options.with_fixed_size(3).with_source_size())) == 10
    assert SamplerDataset(source, options).is_with_replacement()
    assert not SamplerDataset(source, options.without_replacement()).is_with_replacement()
    assert SamplerDataset(source, options.with_replace_samples(False).with_replacement()).is_with_replacement()
    assert sorted(SamplerDataset(source, options.without_replacement().with_seed(7))) == source
    assert len(SamplerDataset([], options)) == 0


def test_a_sampler_draws_anew_in_each_epoch_and_the_same_again():
    sampler = SamplerDataset.without_replacement(list(range(100)), 50, seed=1)
    assert list(sampler.at_epoch(3)) == list(sampler.at_epoch(3)) != list(sampler.at_epoch(4))
    assert list(sampler) == list(sampler.at_epoch(0))
    assert sampler.get_many([5, 7]) == [sampler[5], sampler[7]]


def test_augmentation_is_a_function_of_seed_epoch_and_index():
    source = [0.0] * 10
    one = AugmentedDataset(source, lambda x, rng: x + rng.random(), seed=1)
    assert list(one) == list(one.at_epoch(0))
    assert list(one.at_epoch(1)) == list(one.at_epoch(0).at_epoch(1)) != list(one)
    assert len(set(one)) == 10
    assert list(AugmentedDataset(source, lambda x, rng: x + rng.random(), seed=2)) != list(one)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: MapperDataset(d, lambda x: x),
        lambda d: PartialDataset(d, 0, 5),
        lambda d: ComposedDataset([d, d]),
        lambda d: ShuffledDataset(d, 1),
        lambda d: SelectionDataset(d, [1, 2, 3]),
        lambda d: SamplerDataset.without_replacement(d, 5),
        lambda d: WindowsDataset(d, 1),
        lambda d: AugmentedDataset(d, lambda x, rng: x, 1),
    ],
)
def test_epochs_reach_the_augmentation_through_every_transform(wrap):
    augmented = AugmentedDataset([0.0] * 10, lambda x, rng: x + rng.random(), seed=1)
    stack = wrap(augmented)
    flat = lambda items: set(np.ravel(list(items)).tolist())  # noqa: E731  (one use, two lines apart)
    assert flat(stack.at_epoch(2)) <= flat(augmented.at_epoch(2))
    assert not flat(stack.at_epoch(2)) & flat(stack)


def test_a_view_of_a_plain_list_stays_itself():
    view = MapperDataset([1, 2], lambda x: x)
    assert view.at_epoch(5) is view


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: PartialDataset([1, 2], 1, 3),
            r"not inside the dataset\n  given:    start=1, end=3 of 2 items\n.*\n  mend:     cut",
        ),
        (lambda: PartialDataset([1, 2], -1, 1), "not inside the dataset"),
        (
            lambda: PartialDataset.split([1], 0),
            r"at least one part\n  given:    num=0\n  expected: num >= 1\n  mend:     ask",
        ),
        (
            lambda: PartialDataset.split_chunks([1], 1, 0),
            r"at least one item\n  given:    batch_size=0\n.*\n  mend:     give",
        ),
        (
            lambda: WindowsDataset([1], 0),
            r"window has at least one item\n  given:    size=0\n  expected: size >= 1\n  mend: ",
        ),
        (
            lambda: SelectionDataset([1, 2], [0, 2, -1]),
            r"not there\n  given:    2 of 3 positions, the first 2\n.*\n  mend:     sel",
        ),
        (
            lambda: SelectionDataset([1, 2], [0]).slice(0, 2),
            r"not inside the selection\n  given:    start=0, end=2 of 1.*\n.*\n  m",
        ),
        (
            lambda: SamplerDataset([], SamplerDatasetOptions(size=2)),
            r"empty dataset\n  given:    no items\n.*\n  mend:     check",
        ),
        (
            lambda: SamplerDataset([1], SamplerDatasetOptions(size=-2)),
            r"negative size\n  given:    -2 draws\n.*\n  mend:     give",
        ),
        (lambda: AugmentedDataset([1], lambda x, rng: x, -1), "seed is out of range"),
        (lambda: ShuffledDataset([1], -1), "seed is out of range"),
    ],
)
def test_arguments_that_do_not_fit_are_reported(make, complaint):
    with pytest.raises(DataError, match=complaint):
        make()
