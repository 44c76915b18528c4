"""Datasets that choose or reorder the items of another one, each a pure function of its seed."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError
from burn_torch.core.faults import Place
from burn_torch.data.dataset import MapStyle, dataset_at_epoch, fetch
from burn_torch.data.order import draws, permutation
from burn_torch.data.transform import Item, View, even_bounds

__all__ = ["SamplerDataset", "SamplerDatasetOptions", "SelectionDataset", "ShuffledDataset"]


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class SelectionDataset(View[Item, Item]):
    """The items at some positions of a dataset, in the order of the positions; one may occur several times.

    Raises: DataError if a position is not in the dataset.
    """

    def __init__(self, dataset: MapStyle[Item], indices: Sequence[int] | NDArray[np.int64]) -> None:
        super().__init__(dataset)
        positions = np.asarray(indices)
        if (
            positions.size and positions.dtype.kind not in "iu"
        ):  # numpy would cut floats, and take a mask for positions 0 and 1
            raise DataError(
                "a selection must hold positions",
                given=f"values of {positions.dtype}",
                expected=f"whole numbers, 0 <= position < {len(dataset)}",
                mend="np.flatnonzero(mask) gives the positions of a mask, and .astype(int) those of whole floats",
            )
        chosen = positions.reshape(-1).astype(np.int64)
        outside = chosen[(chosen < 0) | (chosen >= len(dataset))]
        if outside.size:
            raise DataError(
                "the selection names items that are not there",
                given=f"{outside.size} of {chosen.size} positions, the first {int(outside[0])}",
                expected=f"0 <= position < {len(dataset)}",
                mend="select among the positions of this dataset",
            )
        chosen.setflags(write=False)
        self.indices = chosen

    @classmethod
    def from_indices_checked(cls, dataset: MapStyle[Item], indices: Sequence[int]) -> SelectionDataset[Item]:
        """The constructor under Burn's name."""
        return SelectionDataset(dataset, indices)

    @classmethod
    def new_select_all(cls, dataset: MapStyle[Item]) -> SelectionDataset[Item]:
        """All items, in their order."""
        return SelectionDataset(dataset, np.arange(len(dataset)))

    @classmethod
    def new_shuffled(cls, dataset: MapStyle[Item], seed: int) -> SelectionDataset[Item]:
        """All items, in the order that the seed gives."""
        return SelectionDataset(dataset, permutation(len(dataset), seed, 0))

    def shuffle(self, seed: int) -> SelectionDataset[Item]:
        """The same positions in the order that the seed gives."""
        return SelectionDataset(self.dataset, self.indices[permutation(len(self), seed, 0)])

    def slice(self, start: int, end: int) -> SelectionDataset[Item]:
        """The positions from `start` up to, not including, `end` of this selection."""
        if not 0 <= start <= end <= len(self):
            raise DataError(
                "the slice is not inside the selection",
                given=f"start={start}, end={end} of {len(self)} positions",
                expected=f"0 <= start <= end <= {len(self)}",
                mend="cut at positions that the selection has",
            )
        return SelectionDataset(self.dataset, self.indices[start:end])

    def split(self, num: int) -> list[SelectionDataset[Item]]:
        """`num` selections in order, whose sizes differ by one at most."""
        return [self.slice(start, end) for start, end in even_bounds(len(self), num)]

    def get(self, index: int) -> Item:
        """The item at a position of the selection."""
        return self.dataset[int(self.indices[index])]

    def get_many(self, indices: Sequence[int]) -> list[Item]:
        """The items at positions of the selection."""
        return fetch(self.dataset, self.indices[np.asarray(indices, dtype=np.int64)].tolist())

    def __len__(self) -> int:
        return len(self.indices)


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class ShuffledDataset(SelectionDataset[Item]):
    """All items in an order that the seed gives, the same in every epoch.

    For a new order in each epoch give the seed to the loader: `DataLoader(..., shuffle=seed)`.
    """

    def __init__(self, dataset: MapStyle[Item], seed: int) -> None:
        super().__init__(dataset, permutation(len(dataset), seed, 0))

    @classmethod
    def with_seed(cls, dataset: MapStyle[Item], seed: int) -> ShuffledDataset[Item]:
        """The constructor under Burn's name."""
        return ShuffledDataset(dataset, seed)


@checked(error=DataError)
@dataclass(frozen=True)
class SamplerDatasetOptions:
    """How a `SamplerDataset` draws.

    Defaults, as in Burn: with replacement, as many draws as the dataset has items.  The seed is 0 unless given: a run
    that nobody seeded can be repeated too.
    """

    replace_samples: bool = True
    size: int | None = None
    """A fixed number of draws."""
    ratio: float | None = None
    """The number of draws as a share of the items; without it and without `size`, as many as there are items."""
    seed: int = 0

    def with_replacement(self) -> SamplerDatasetOptions:
        """Each draw is among all items."""
        return replace(self, replace_samples=True)

    def without_replacement(self) -> SamplerDatasetOptions:
        """No item twice before each was drawn once."""
        return replace(self, replace_samples=False)

    def with_replace_samples(self, replace_samples: bool) -> SamplerDatasetOptions:
        """With replacement or without."""
        return replace(self, replace_samples=replace_samples)

    def with_fixed_size(self, size: int) -> SamplerDatasetOptions:
        """That many draws."""
        return replace(self, size=size, ratio=None)

    def with_size_ratio(self, ratio: float) -> SamplerDatasetOptions:
        """A share of the number of items, rounded down."""
        return replace(self, size=None, ratio=ratio)

    def with_source_size(self) -> SamplerDatasetOptions:
        """As many draws as there are items."""
        return replace(self, size=None, ratio=None)

    def with_seed(self, seed: int) -> SamplerDatasetOptions:
        """Draws that this seed gives."""
        return replace(self, seed=seed)

    def resolve_size(self, source_size: int) -> int:
        """The number of draws from a dataset of `source_size` items."""
        if self.size is not None:
            return self.size
        return source_size if self.ratio is None else math.floor(source_size * self.ratio)


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class SamplerDataset(View[Item, Item]):
    """Random draws from a dataset, a function of (seed, epoch, index): the loader draws anew in each epoch.

    Without replacement, each run of len(dataset) draws has every item once.
    Raises: DataError if there is nothing to draw from, or the size is negative.
    """

    def __init__(self, dataset: MapStyle[Item], options: SamplerDatasetOptions | None = None) -> None:
        super().__init__(dataset)
        self.options = SamplerDatasetOptions() if options is None else options
        self._drawn = self._draw(0)

    @classmethod
    def with_replacement(cls, dataset: MapStyle[Item], size: int, seed: int = 0) -> SamplerDataset[Item]:
        """`size` independent draws."""
        return SamplerDataset(dataset, SamplerDatasetOptions(size=size, seed=seed))

    @classmethod
    def without_replacement(cls, dataset: MapStyle[Item], size: int, seed: int = 0) -> SamplerDataset[Item]:
        """`size` draws, no item twice before each was drawn once."""
        return SamplerDataset(dataset, SamplerDatasetOptions(replace_samples=False, size=size, seed=seed))

    def is_with_replacement(self) -> bool:
        """Returns whether each draw is among all items."""
        return self.options.replace_samples

    def at_epoch(self, epoch: int) -> SamplerDataset[Item]:
        """The draws of an epoch."""
        changed = copy.copy(self)
        changed.dataset = dataset_at_epoch(self.dataset, epoch)
        changed._drawn = changed._draw(epoch)
        return changed

    def get(self, index: int) -> Item:
        """The item of a draw."""
        return self.dataset[int(self._drawn[index])]

    def get_many(self, indices: Sequence[int]) -> list[Item]:
        """The items of several draws."""
        return fetch(self.dataset, self._drawn[np.asarray(indices, dtype=np.int64)].tolist())

    def __len__(self) -> int:
        return len(self._drawn)

    def _draw(self, epoch: int) -> NDArray[np.int64]:
        total, place = len(self.dataset), Place()
        size = self.options.resolve_size(total)
        if size < 0:
            place.fault("negative size", given=f"{size} draws", expected="0 or more", mend="give a size or ratio >= 0")
        if total == 0 and size > 0:
            place.fault("empty dataset", given="no items", expected="one at least", mend="check where they come from")
        place.raise_noted("SamplerDataset", error=DataError)
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if self.options.replace_samples:
            return draws(size, total, self.options.seed, epoch)
        rounds = -(-size // total)
        first = draws(rounds, 2**63, self.options.seed, epoch)  # a seed for each run of all items
        return np.concatenate([permutation(total, int(seed), epoch) for seed in first])[:size]
