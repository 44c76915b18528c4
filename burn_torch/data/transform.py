"""Datasets made of datasets, without a copy of any item: mapped, cut, joined, in windows, augmented."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

import numpy as np

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError
from burn_torch.core.share import shares
from burn_torch.data.dataset import Dataset, MapStyle, dataset_at_epoch, fetch
from burn_torch.data.order import sample_generator

__all__ = ["AugmentedDataset", "ComposedDataset", "Mapper", "MapperDataset", "PartialDataset", "WindowsDataset"]

Item = TypeVar("Item")
In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class View(Dataset[Out], Generic[In, Out]):
    """A dataset over one other dataset; a change from epoch to epoch below it shows through it."""

    def __init__(self, dataset: MapStyle[In]) -> None:
        self.dataset = dataset

    def at_epoch(self, epoch: int) -> MapStyle[Out]:
        """The view over the dataset as it is in an epoch."""
        below = dataset_at_epoch(self.dataset, epoch)
        if below is self.dataset:
            return self
        changed = copy.copy(self)
        changed.dataset = below
        return changed

    def __len__(self) -> int:
        return len(self.dataset)


class Mapper(Protocol[In_contra, Out_co]):
    """Holds what `MapperDataset` applies: an object with `map`; a plain function does as well."""

    def map(self, item: In_contra, /) -> Out_co:
        """The new item for an item."""


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class MapperDataset(View[In, Out]):
    """Each item through a mapper, when it is asked for.

    >>> MapperDataset([1, 2, 3], lambda x: x * 10)[1]
    20
    """

    def __init__(self, dataset: MapStyle[In], mapper: Mapper[In, Out] | Callable[[In], Out]) -> None:
        super().__init__(dataset)
        self._map: Callable[[In], Out] = mapper if callable(mapper) else mapper.map

    def get(self, index: int) -> Out:
        """The mapped item."""
        return self._map(self.dataset[index])

    def get_many(self, indices: Sequence[int]) -> list[Out]:
        """The mapped items."""
        return [self._map(item) for item in fetch(self.dataset, indices)]


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class AugmentedDataset(View[In, Out]):
    """Each item through a random function, whose generator is a function of (seed, epoch, index).

    The loader says which epoch it is.  So an image is cropped anew in each epoch, and the same way again in a second
    run, after a resume, and with any number of workers.

    >>> noisy = AugmentedDataset([1.0, 2.0], lambda x, rng: x + rng.random(), seed=0)
    >>> noisy[0] == noisy[0], noisy[0] == noisy.at_epoch(1)[0]
    (True, False)
    """

    def __init__(self, dataset: MapStyle[In], augment: Callable[[In, np.random.Generator], Out], seed: int) -> None:
        super().__init__(dataset)
        sample_generator(seed, 0, 0)  # a seed out of range is told here, not by a worker
        self._augment = augment
        self._seed = seed
        self._epoch = 0

    def at_epoch(self, epoch: int) -> AugmentedDataset[In, Out]:
        """The dataset with the draws of an epoch."""
        changed = copy.copy(self)
        changed.dataset = dataset_at_epoch(self.dataset, epoch)
        changed._epoch = epoch
        return changed

    def get(self, index: int) -> Out:
        """The augmented item."""
        return self._augment(self.dataset[index], sample_generator(self._seed, self._epoch, index))


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class PartialDataset(View[Item, Item]):
    """The items from `start` up to, not including, `end`."""

    def __init__(self, dataset: MapStyle[Item], start: int, end: int) -> None:
        super().__init__(dataset)
        if not 0 <= start <= end <= len(dataset):
            raise DataError(
                "the part is not inside the dataset",
                given=f"start={start}, end={end} of {len(dataset)} items",
                expected=f"0 <= start <= end <= {len(dataset)}",
                mend="cut at positions that the dataset has",
            )
        self._start, self._end = int(start), int(end)  # of numpy's small types sums would overflow

    @classmethod
    def split(cls, dataset: MapStyle[Item], num: int) -> list[PartialDataset[Item]]:
        """`num` parts in order, whose sizes differ by one at most, the larger ones first."""
        return [PartialDataset(dataset, *bounds) for bounds in even_bounds(len(dataset), num)]

    @classmethod
    def split_chunks(cls, dataset: MapStyle[Item], num: int, batch_size: int) -> list[PartialDataset[Item]]:
        """`num` parts in order, cut between batches of `batch_size` only: no batch of the whole is divided."""
        if batch_size < 1:
            raise DataError(
                "a batch has at least one item",
                given=f"batch_size={batch_size}",
                expected="batch_size >= 1",
                mend="give a batch_size of 1 or more",
            )
        total, batch_size = len(dataset), int(batch_size)
        batches = -(-total // batch_size)
        return [
            PartialDataset(dataset, min(start * batch_size, total), min(end * batch_size, total))
            for start, end in even_bounds(batches, num)
        ]

    def get(self, index: int) -> Item:
        """The item at a position of the part."""
        return self.dataset[self._start + index]

    def get_many(self, indices: Sequence[int]) -> list[Item]:
        """The items at positions of the part."""
        return fetch(self.dataset, [self._start + index for index in indices])

    def __len__(self) -> int:
        return self._end - self._start


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class ComposedDataset(Dataset[Item]):
    """Several datasets, one after the other."""

    def __init__(self, datasets: Sequence[MapStyle[Item]]) -> None:
        self.datasets = tuple(datasets)
        self._ends = list(accumulate(len(dataset) for dataset in self.datasets))

    def at_epoch(self, epoch: int) -> ComposedDataset[Item]:
        """The datasets as they are in an epoch, one after the other."""
        return ComposedDataset([dataset_at_epoch(dataset, epoch) for dataset in self.datasets])

    def get(self, index: int) -> Item:
        """The item at a position of the whole."""
        part = bisect_right(self._ends, index)
        return self.datasets[part][index - (self._ends[part - 1] if part else 0)]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class WindowsDataset(View[Item, list[Item]]):
    """Each run of `size` neighbours, starting at every position that leaves room for one.

    >>> list(WindowsDataset([1, 2, 3, 4], 3))
    [[1, 2, 3], [2, 3, 4]]
    """

    def __init__(self, dataset: MapStyle[Item], size: int) -> None:
        super().__init__(dataset)
        if size < 1:
            raise DataError(
                "a window has at least one item",
                given=f"size={size}",
                expected="size >= 1",
                mend="give a size of 1 or more",
            )
        self._size = int(size)

    def get(self, index: int) -> list[Item]:
        """The window that starts at a position."""
        return fetch(self.dataset, range(index, index + self._size))

    def __len__(self) -> int:
        return max(len(self.dataset) - self._size + 1, 0)


def even_bounds(total: int, num: int) -> list[tuple[int, int]]:
    """Returns where to cut `total` items into `num` runs whose sizes differ by one at most, the larger ones first.

    >>> even_bounds(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    if num < 1:
        raise DataError(
            "a dataset is split into at least one part",
            given=f"num={num}",
            expected="num >= 1",
            mend="ask for 1 or more",
        )
    return [(share.first, share.first + share.count) for share in shares(total, int(num))]
