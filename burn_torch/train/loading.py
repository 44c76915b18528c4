"""Loaders as the training loop sees them: epochs of batches from any batch on, and how far each batch brings us."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, nullcontext
from itertools import islice
from typing import Any, Final, final

from burn_torch.core.errors import ConfigError, DataError
from burn_torch.core.share import shares
from burn_torch.tensor import Device
from burn_torch.train.foreign_loader import ForeignEpochs, digest_of_items, starts_again
from burn_torch.train.step import AnyBatch
from burn_torch.train.strategies.parts import Part, part_of
from burn_torch.train.strategies.peers import ALONE, Peers

__all__ = ["Batches"]

_FACTS = ("batch_size", "shuffle", "drop_last")


@final
class Batches:
    """A `DataLoader`, or anything else that can be iterated again and again: a list of batches, a loader of PyTorch.

    A DataLoader starts an epoch at any batch at once, in an order that its seed gives; of other loaders the batches
    before are drawn and dropped.  Their draws from the generators of Python, numpy and torch are a function of the
    run's key and the epoch, see `ForeignEpochs`.
    """

    def __init__(self, loader: Any, device: Device | None, name: str, peers: Peers = ALONE) -> None:
        self.name = name
        self._peers = peers
        self._loader = loader.to_device(device) if device is not None and hasattr(loader, "to_device") else loader
        self._seekable = all(hasattr(loader, name) for name in ("epoch", "num_items", "batch_size"))
        if not self._seekable and not starts_again(loader):
            raise ConfigError(
                f"the {name} loader can be run through only once",
                given=f"{type(loader).__name__}",
                expected="a DataLoader, a list of batches, or another object that iter() starts again",
                mend="put the batches in a list, or write a class whose __iter__ starts from the beginning",
            )
        self.batches_total: int | None = len(self._loader) if hasattr(self._loader, "__len__") else None
        self.items_total: int | None = self._loader.num_items() if self._seekable else None
        if self.batches_total == 0:
            raise empty(name)
        self._foreign: Final = None if self._seekable else ForeignEpochs(self._loader)
        self._facts: dict[str, object] | None = None
        self._reads_its_part = peers.size > 1 and self._seekable and hasattr(self._loader, "share")
        if self._reads_its_part:
            self._loader = self._loader.share(peers.rank, peers.size)

    def items_at(self, batch: int) -> int:
        """How many items the first `batch` batches of an epoch have; 0 where the loader does not say."""
        if not self._seekable:
            return 0
        assert self.items_total is not None
        return min(batch * int(self._loader.batch_size), self.items_total)

    def epoch(self, epoch: int, start: int, key: int = 0) -> Generator[tuple[Any, int]]:
        """The batches of an epoch (the first one is 1) from `start` on, each with the items so far.

        With several processes each gets a `Part` of each batch.  `key` is the run's.
        """
        if self._foreign is not None:
            with closing(self._foreign.batches(epoch, key)) as foreign:
                yield from ((self._part(batch, 0), 0) for batch in islice(foreign, start, None))
            return
        batches = self._loader.epoch(epoch - 1, start)
        with closing(batches) if hasattr(batches, "close") else nullcontext():
            number = start
            for batch in batches:
                number += 1
                items = self.items_at(number)
                yield self._part(batch, items - self.items_at(number - 1)), items

    def _part(self, batch: AnyBatch, items: int) -> object:
        rank, size = self._peers.rank, self._peers.size
        if size == 1:
            return batch
        if self._reads_its_part:
            return Part(batch, shares(items, size)[rank])
        return part_of(batch, rank, size)

    def facts(self) -> dict[str, Any]:
        """Returns what the batches of an epoch depend on, as JSON can hold it."""
        if self._facts is None:
            settings = {name: getattr(self._loader, name) for name in _FACTS if hasattr(self._loader, name)}
            order = {} if self._foreign is None else {"order": self._foreign.order}
            self._facts = {**settings, "items": self.items_total, "batches": self.batches_total, **order}
        return self._facts

    def first_items(self) -> str | None:
        """A digest of the first item, one in the middle and the last of the data set.

        None where the loader has no data set, or one that gives another item each time.
        """
        return digest_of_items(getattr(self._loader, "dataset", None))

    @property
    def unknown_order(self) -> str | None:
        """The class of a loader or sampler whose order may come from a generator of its own; None for others."""
        return None if self._foreign is None else self._foreign.unknown


def empty(name: str) -> DataError:
    """The error for a loader without a batch."""
    return DataError(
        f"the {name} loader is empty",
        given="an epoch of 0 batches",
        expected="one batch at least",
        mend="check the data set, its filters and drop_last",
    )
