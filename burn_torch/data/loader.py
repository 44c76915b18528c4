"""`DataLoader`: batches of a dataset, in an order that is a function of (seed, epoch)."""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import checked, described, holds, taken_by
from burn_torch.core.errors import DataError, explain
from burn_torch.core.faults import Place
from burn_torch.core.misfits import worded
from burn_torch.core.share import shares
from burn_torch.data._prefetch import Serial, Source, Threaded
from burn_torch.data.dataset import MapStyle, dataset_at_epoch, fetch
from burn_torch.data.order import permutation
from burn_torch.data.transform import PartialDataset, even_bounds

__all__ = ["BatchIterator", "Batcher", "DataLoader", "DataLoaderBuilder", "Progress", "split_dataloader"]

Item = TypeVar("Item")
Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)


class Batcher(Protocol[Item, Batch_co]):
    """Makes a batch of items; with workers it is called from several threads at once."""

    def batch(self, items: list[Item], device: Any, /) -> Batch_co:
        """The batch of some items, on a device (whatever object the loader was given as one)."""


class Progress(NamedTuple):
    """How far an epoch is."""

    items_processed: int
    items_total: int


@checked(error=DataError, but=("__init__",))
class DataLoader(Generic[Item, Batch]):
    """Batches of a dataset.

    Args:
        dataset: a `Dataset`, a list, or a map-style dataset of PyTorch.
        batcher: makes a batch of a list of items.
        batch_size: items a batch; the last one may have fewer.
        shuffle: the seed of the order, or None for the order of the dataset.
        num_workers: threads that make batches ahead of their use; 0 makes each when it is asked for.
            The batches and their order are the same for any number.
        device: handed to the batcher.
        drop_last: leaves out a last batch that is not full.

    `iter(loader)` goes through one epoch after another; `loader.epoch(e, start_batch)` through a given one from a given
    batch, at once: nothing before it is read.

    Raises: DataError if the dataset is empty or an argument is out of range, for all faults at once.
    """

    @worded
    def __init__(
        self,
        dataset: MapStyle[Item],
        batcher: Batcher[Item, Batch],
        *,
        batch_size: int,
        shuffle: int | None = None,
        num_workers: int = 0,
        device: Any = None,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        self.batcher = batcher
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.num_workers = num_workers
        self.device = device
        self.drop_last = drop_last
        self._part = (0, 1)
        self._check()
        self._next_epoch = 0
        self._lock = threading.Lock()

    def num_items(self) -> int:
        """The items of an epoch."""
        total = len(self.dataset)
        return total - total % self.batch_size if self.drop_last else total

    def __len__(self) -> int:
        """The batches of an epoch."""
        return math.ceil(self.num_items() / self.batch_size)

    def __iter__(self) -> BatchIterator[Batch]:
        """The next epoch; the first one is epoch 0."""
        with self._lock:
            epoch = self._next_epoch
            self._next_epoch += 1
        return self.epoch(epoch)

    def epoch(self, epoch: int, start_batch: int = 0) -> BatchIterator[Batch]:
        """The batches of an epoch from `start_batch` on, whatever was read before.

        Raises: DataError if the epoch is negative, `start_batch` is not in it, or the dataset has become empty.
        """
        if epoch < 0:
            raise DataError(
                "epoch is out of range",
                given=f"epoch={epoch}",
                expected="0 or more; the first one is 0",
                mend="count from 0",
            )
        dataset = dataset_at_epoch(self.dataset, epoch)
        total = len(dataset)
        if total == 0:
            _raise_empty(dataset)
        used = total - total % self.batch_size if self.drop_last else total
        seed = self.shuffle
        order = (np.arange(total) if seed is None else permutation(total, seed, epoch))[:used]
        plan = _Epoch(dataset, self.batcher, self.device, order, self.batch_size, epoch, self._part)
        if not 0 <= start_batch <= len(plan):
            raise DataError(
                "the epoch has no such batch",
                given=f"start_batch={start_batch}",
                expected=f"0 <= start_batch <= {len(plan)}",
                mend="resume with the dataset and the batch_size of the first run",
            )
        return BatchIterator(plan, start_batch, self.num_workers)

    def iter_epoch(self, epoch: int, start_batch: int = 0) -> BatchIterator[Batch]:
        """Another name of `epoch`."""
        return self.epoch(epoch, start_batch)

    def slice(self, start: int, end: int) -> DataLoader[Item, Batch]:
        """A loader of the items from `start` up to, not including, `end` of the dataset, shuffled among themselves."""
        return self._with_changes(dataset=PartialDataset(self.dataset, start, end))

    def to_device(self, device: object) -> DataLoader[Item, Batch]:
        """A loader of the same batches for another device."""
        return self._with_changes(device=device)

    def share(self, part: int, parts: int) -> DataLoader[Item, Batch]:
        """A loader that reads only part number `part` of each batch; its length and number of items stay the whole's.

        The parts of a batch differ by one item at most, see `burn_torch.core.share.shares`.  If a batch has fewer items
        than there are parts, the parts without one give the batch's first item.
        """
        return self._with_changes(_part=(part, parts))

    def _with_changes(self, **fields: object) -> DataLoader[Item, Batch]:
        changed = copy.copy(self)
        changed.__dict__.update(fields)
        changed._lock = threading.Lock()
        changed._check()
        return changed

    def _check(self) -> None:
        place = Place()
        if not callable(getattr(self.batcher, "batch", None)):
            shown = f"batcher={self.batcher!r}"
            mend = "write a class with `def batch(self, items, device)`"
            place.fault("no batcher", given=shown, expected="an object with batch(items, device)", mend=mend)
        style = taken_by(MapStyle)
        if style is not None and not holds(style, self.dataset):
            shown = f"dataset={described(self.dataset)}"
            mend = "write a class with `__len__` and `__getitem__`, or give a list"
            place.fault("no dataset", given=shown, expected="a Dataset, a list or a map-style dataset", mend=mend)
        drop_last: object = self.drop_last
        if not isinstance(drop_last, bool | np.bool_):
            shown = f"drop_last={described(drop_last)}"
            place.fault("no truth value", given=shown, expected="drop_last: True or False", mend="give True or False")
        for name in ("batch_size", "num_workers"):
            value = getattr(self, name)
            if not _is_whole(value):
                place.fault("no whole number", given=f"{name}={value!r}", expected=f"{name}: int", mend="give an int")
        place.raise_noted("DataLoader", error=DataError)
        self.batch_size, self.num_workers = int(self.batch_size), int(self.num_workers)  # numpy's small ones overflow
        if self.num_workers < 0:
            shown = f"num_workers={self.num_workers}"
            place.fault(
                "negative number of workers", given=shown, expected="num_workers >= 0", mend="0 means no threads"
            )
        seed = self.shuffle
        if seed is not None and not (_is_whole(seed) and 0 <= seed < 2**64):
            mend = "shuffle=42 shuffles with seed 42, shuffle=None keeps the order"
            place.fault("no seed", given=f"shuffle={self.shuffle}", expected="None or 0 <= seed < 2^64", mend=mend)
        total = len(self.dataset)
        if self.batch_size < 1:
            shown = f"batch_size={self.batch_size}"
            place.fault("empty batches", given=shown, expected="batch_size >= 1", mend="give a batch_size of 1 or more")
        elif self.drop_last and 0 < total < self.batch_size:
            shown = f"{total} items, batch_size={self.batch_size}, drop_last=True"
            mend = "give a smaller batch_size, or drop_last=False"
            place.fault("the only batch would be dropped", given=shown, expected="one full batch at least", mend=mend)
        if total == 0:
            if not place.faults:
                _raise_empty(self.dataset)
            place.fault("empty dataset", given="no items", expected="one at least", mend="check where they come from")
        place.raise_noted("DataLoader", error=DataError)


class BatchIterator(Generic[Batch]):
    """The batches of one epoch; `progress()` says how far it is.

    Its threads end with the last batch, with an error, with `close()` or the `with` block, or when it is dropped.
    """

    def __init__(self, plan: _Epoch[Any, Batch], start_batch: int, num_workers: int) -> None:
        self.epoch = plan.epoch
        self.next_batch = start_batch
        """The number of the batch that comes next: what `DataLoader.epoch` takes to go on from here."""
        self._plan = plan
        self._open = True
        self._source: Source[Batch] = (
            Threaded(plan.make, start_batch, len(plan), num_workers) if num_workers > 0 else Serial(plan.make)
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if not self._open or self.next_batch >= len(self._plan):
            self.close()
            raise StopIteration
        try:
            batch = self._source.take(self.next_batch)
        except BaseException:
            self.close()
            raise
        self.next_batch += 1
        if self.next_batch == len(self._plan):
            self._source.close()  # the threads have nothing left to do
        return batch

    def __len__(self) -> int:
        """The batches that are still to come."""
        return len(self._plan) - self.next_batch if self._open else 0

    def progress(self) -> Progress:
        """The items of the batches given so far, those before the first one included, and of the whole epoch."""
        total = len(self._plan.order)
        return Progress(min(self.next_batch * self._plan.batch_size, total), total)

    def close(self) -> None:
        """Ends the epoch and its threads."""
        self._open = False
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@checked(error=DataError)
class DataLoaderBuilder(Generic[Item, Batch]):
    """Builds a `DataLoader` step by step, as in Burn; each step gives a new builder.

    Defaults, as in Burn: batches of one item, no shuffling, no workers, no device.
    """

    def __init__(self, batcher: Batcher[Item, Batch]) -> None:
        self._batcher = batcher
        self._options: dict[str, Any] = {"batch_size": 1}

    def batch_size(self, batch_size: int) -> Self:
        """Items a batch."""
        return self._with(batch_size=batch_size)

    def shuffle(self, seed: int) -> Self:
        """A new order in each epoch, from this seed."""
        return self._with(shuffle=seed)

    def num_workers(self, num_workers: int) -> Self:
        """Threads that make batches ahead of their use."""
        return self._with(num_workers=num_workers)

    def set_device(self, device: object) -> Self:
        """The device that the batcher is given."""
        return self._with(device=device)

    def drop_last(self, drop_last: bool = True) -> Self:
        """Leaves out a last batch that is not full."""
        return self._with(drop_last=drop_last)

    def build(self, dataset: MapStyle[Item]) -> DataLoader[Item, Batch]:
        """The loader of a dataset."""
        return DataLoader(dataset, self._batcher, **self._options)

    def _with(self, **options: object) -> Self:
        changed = copy.copy(self)
        changed._options = {**self._options, **options}
        return changed


@checked(error=DataError)
def split_dataloader(loader: DataLoader[Item, Batch], devices: Sequence[object]) -> list[DataLoader[Item, Batch]]:
    """One loader a device, each with its own run of the dataset; their sizes differ by one item at most.

    Raises: DataError if there are no devices, or fewer items than devices.
    """
    total = len(loader.dataset)
    if not 1 <= len(devices) <= total:
        raise DataError(
            "the loader cannot be split over these devices",
            given=f"{len(devices)} devices, {total} items",
            expected="one device at least, and an item for each",
            mend="name fewer devices" if devices else "name the devices",
        )
    runs = even_bounds(total, len(devices))
    return [loader.slice(*run).to_device(device) for run, device in zip(runs, devices, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Epoch(Generic[Item, Batch]):
    """All that the batches of an epoch depend on."""

    dataset: MapStyle[Item]
    batcher: Batcher[Item, Batch]
    device: Any
    order: NDArray[np.int64]
    batch_size: int
    epoch: int
    part: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return math.ceil(len(self.order) / self.batch_size)

    def make(self, number: int) -> Batch:
        """One batch, in whichever thread; an error says which items it was about."""
        indices = self.order[number * self.batch_size : (number + 1) * self.batch_size].tolist()
        part, parts = self.part
        if parts > 1:
            share = shares(len(indices), parts)[part]
            indices = indices[share.first : share.first + share.count] or indices[:1]
        try:
            return self.batcher.batch(fetch(self.dataset, indices), self.device)
        except StopIteration as error:
            raise RuntimeError(  # left as it is, it would end the epoch early and nobody would know
                explain(
                    "the dataset or the batcher raised StopIteration",
                    given=f"batch {number + 1} of epoch {self.epoch + 1}",
                    expected="a batch, or an error that says what is wrong",
                    mend="catch it where next() is called on an iterator that has run out",
                )
            ) from error
        except Exception as error:
            some = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
            error.add_note(f"in batch {number + 1} of epoch {self.epoch + 1} of the DataLoader: items {some}")
            raise


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _raise_empty(dataset: object) -> None:
    raise DataError(
        "the dataset is empty",
        given=f"{type(dataset).__name__} with 0 items",
        expected="one item at least",
        mend="check the file, filter or split that the items come from",
    )
