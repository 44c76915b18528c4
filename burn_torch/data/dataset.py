"""`Dataset`: items by index.  And the one that holds them in memory."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack, overload

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError, explain
from burn_torch.data._rows import read_csv_rows, read_json_rows

__all__ = ["Dataset", "InMemDataset", "MapStyle", "SupportsEpoch"]

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class MapStyle(Protocol[Item_co]):
    """Holds what the loader and the transforms need of a dataset: a `Dataset`, a list, or a map-style dataset of
    PyTorch.
    """

    def __getitem__(self, index: int, /) -> Item_co:
        """The item at a position."""

    def __len__(self) -> int:
        """The number of items."""


class SupportsEpoch(Protocol[Item_co]):
    """A dataset whose items or order change from epoch to epoch."""

    def at_epoch(self, epoch: int, /) -> MapStyle[Item_co]:
        """The dataset as it is in an epoch."""


class Dataset(ABC, Generic[Item]):
    """Items by index: derive from it and write `get` and `__len__`.

    `get(index)` is called with 0 <= index < len(dataset) only, from several threads at once if a loader has workers.
    `dataset[index]` checks the index and counts from the end if it is negative, so a dataset is also a sequence for
    PyTorch's own loader.  The same index gives the same item: what is random belongs into `AugmentedDataset`.
    """

    @abstractmethod
    def get(self, index: int) -> Item:
        """The item at a position, 0 <= index < len(self)."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of items."""

    def get_many(self, indices: Sequence[int]) -> list[Item]:
        """The items at several positions; override it where reading many at once is cheaper."""
        return [self.get(index) for index in indices]

    def at_epoch(self, epoch: int) -> MapStyle[Item]:
        """The dataset as it is in an epoch: itself, unless a part of it changes from epoch to epoch."""
        return self

    def is_empty(self) -> bool:
        """Returns whether there is no item."""
        return len(self) == 0

    def iter(self) -> Iterator[Item]:
        """The items, first to last."""
        return iter(self)

    def __iter__(self) -> Iterator[Item]:
        return (self.get(index) for index in range(len(self)))

    def __getitem__(self, index: int) -> Item:
        return self.get(checked_index(index, len(self)))


class CsvOptions(TypedDict, total=False):
    """The options of `InMemDataset.from_csv`."""

    delimiter: str
    header: bool
    limit_bytes: int | None


@checked(error=DataError, but=("get", "get_many", "at_epoch"))
class InMemDataset(Dataset[Item]):
    """A dataset of items that are in memory.

    >>> len(InMemDataset(["a", "b"])), InMemDataset(["a", "b"])[-1]
    (2, 'b')
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = tuple(items)

    @classmethod
    def from_dataset(cls, dataset: MapStyle[Item]) -> InMemDataset[Item]:
        """Reads every item of another dataset once."""
        return InMemDataset(fetch(dataset, range(len(dataset))))

    @overload
    @classmethod
    def from_json_rows(
        cls, path: str | os.PathLike[str], *, limit_bytes: int | None = ...
    ) -> InMemDataset[dict[str, Any]]: ...

    @overload
    @classmethod
    def from_json_rows(
        cls, path: str | os.PathLike[str], item_type: type[Item], *, limit_bytes: int | None = ...
    ) -> InMemDataset[Item]: ...

    @classmethod
    def from_json_rows(
        cls, path: str | os.PathLike[str], item_type: type[object] | None = None, *, limit_bytes: int | None = None
    ) -> InMemDataset[Any]:
        """Reads a file with one JSON object a line, each as an `item_type` (a dataclass) or else as a dict.

        Types are those of `Config` fields, as strict as there.
        `limit_bytes` bounds the memory of the items: by default 448 MiB, or 32 times the size of the file.
        Raises: DataError, for the first faults of the file at once, with their lines.
        """
        return InMemDataset(read_json_rows(path, item_type, limit_bytes))

    @overload
    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], **options: Unpack[CsvOptions]) -> InMemDataset[dict[str, str]]: ...

    @overload
    @classmethod
    def from_csv(
        cls, path: str | os.PathLike[str], item_type: type[Item], **options: Unpack[CsvOptions]
    ) -> InMemDataset[Item]: ...

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        item_type: type[object] | None = None,
        *,
        delimiter: str = ",",
        header: bool = True,
        limit_bytes: int | None = None,
    ) -> InMemDataset[Any]:
        """Reads a CSV file, each row as an `item_type` (a dataclass) or else as a dict of text.

        With a header the columns are found by name, and those that the item does not name are left out; without one
        they are the fields in their order.  An empty cell is None for a field that may be None, else a fault.
        `limit_bytes` bounds the memory of the items: by default 448 MiB, or 32 times the size of the file.
        Raises: DataError, for the first faults of the file at once, with their lines.
        """
        rows = read_csv_rows(path, item_type, delimiter=delimiter, header=header, limit_bytes=limit_bytes)
        return InMemDataset(rows)

    def get(self, index: int) -> Item:
        """The item at a position."""
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


def fetch(dataset: MapStyle[Item], indices: Sequence[int]) -> list[Item]:
    """The items at some positions of any map-style dataset."""
    if isinstance(dataset, Dataset):
        return dataset.get_many(indices)
    return [dataset[index] for index in indices]


def dataset_at_epoch(dataset: MapStyle[Item], epoch: int) -> MapStyle[Item]:
    """Any map-style dataset as it is in an epoch."""
    at_epoch = getattr(dataset, "at_epoch", None)
    if at_epoch is None:
        return dataset
    of_epoch: MapStyle[Item] = at_epoch(epoch)
    return of_epoch


def checked_index(index: int, length: int) -> int:
    """A position that may count from the end, as one from the start.

    Raises: IndexError, which also ends a loop over a sequence.
    """
    position = operator.index(index)
    if -length <= position < length:
        return position % length
    raise IndexError(
        explain(
            "there is no such item",
            given=f"index {position}",
            expected=f"{-length} <= index < {length}" if length else "nothing: the dataset is empty",
            mend="take an index below len(dataset)",
        )
    )
