"""Loaders that are not ours: lists of batches, PyTorch's DataLoader, whatever else can be iterated again and again.

Their order comes from generators that anything in the process may draw from: `random`, numpy's and torch's.  So each
epoch draws from states of its own, a function of the run's key and the epoch, which are put in place for the time that
the loader makes a batch.  Workers of PyTorch's loaders take their seeds from there too.
"""

from __future__ import annotations

import hashlib
import random
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np
import torch

from burn_torch.core.philox import fold
from burn_torch.train.step import AnyItem

__all__ = ["ForeignEpochs", "digest_of_items", "starts_again"]

_LOADER_KEYS: Final = (1 << 64) - 2
"""Folded into the run's key; steps fold their number, validation one more."""
_WORD: Final = (1 << 64) - 1
_MOST_PARTS: Final = 100_000
"""Parts of an item that are looked at: one that leads back to itself has no end."""

_TURN: Final = threading.RLock()
"""Held while the states of this process are exchanged: runs in other threads have loaders too.  A data set may hold a
loader, or train a model itself, so one thread may take it several times."""

_SEEDS: Final[weakref.WeakKeyDictionary[torch.Generator, tuple[int, int]]] = weakref.WeakKeyDictionary()
"""For each generator that an epoch has set: the seed of its owner, and that of the epoch."""


@final
class ForeignEpochs:
    """The epochs of a loader that is not ours, each the same whenever it is gone through."""

    def __init__(self, loader: Any) -> None:
        self._loader: Final = loader
        self._samplers: Final = list(_samplers_of(loader))
        self._generators: Final = _generators_of([loader, *self._samplers])
        self._seeds: Final = [_own_seed(generator) for generator in self._generators]
        unknown = next(_unknown_of(loader, self._samplers), None)
        self.unknown: Final = None if unknown is None else type(unknown).__name__
        """The class of what may have a generator of its own."""

    @property
    def order(self) -> str:
        """Returns what decides the order: the classes of the loader and its samplers."""
        return " ".join(type(part).__name__ for part in (self._loader, *self._samplers))

    def batches(self, epoch: int, key: int) -> Generator[Any]:
        """The batches of an epoch; the first one is 1."""
        states = _States(fold(fold(key, _LOADER_KEYS), epoch))
        for generator, seed in zip(self._generators, self._seeds, strict=True):
            epoch_seed = fold(fold(seed & _WORD, _LOADER_KEYS), epoch) & (_WORD >> 1)
            _SEEDS[generator] = (seed, epoch_seed)
            generator.manual_seed(epoch_seed)
        for sampler in self._samplers:
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch - 1)
        with states.in_place():
            batches = iter(self._loader)
        while True:
            with states.in_place():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


class _States:
    """States of the generators that loaders draw from."""

    def __init__(self, key: int) -> None:
        self._python = random.Random(key).getstate()
        self._numpy = np.random.RandomState(np.random.MT19937(key)).get_state(legacy=False)
        self._torch = torch.Generator().manual_seed(key & (_WORD >> 1)).get_state()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block that draws from them; afterwards they are where the block has left them."""
        with _TURN:
            before = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
            _put(self._python, self._numpy, self._torch)
            try:
                yield
            finally:
                self._python, self._numpy = random.getstate(), np.random.get_state(legacy=False)
                self._torch = torch.get_rng_state()
                _put(*before)


def starts_again(loader: object) -> bool:
    """Returns whether each iter() goes through a loader from its beginning."""
    if isinstance(loader, torch.utils.data.DataLoader):
        return True  # and its iter() starts workers
    if not hasattr(loader, "__iter__"):
        return False
    with _States(0).in_place():
        return iter(loader) is not loader


def _put(python_state: Any, numpy_state: Any, torch_state: torch.Tensor) -> None:
    random.setstate(python_state)
    np.random.set_state(numpy_state)
    torch.set_rng_state(torch_state)


def _samplers_of(loader: object) -> Iterator[Any]:
    """The batch sampler of a loader of PyTorch, and the sampler in it."""
    if not isinstance(loader, torch.utils.data.DataLoader):
        return
    left: list[Any] = [loader.batch_sampler if loader.batch_sampler is not None else loader.sampler]
    while left:
        sampler = left.pop()
        if sampler is not None:
            yield sampler
            left.append(getattr(sampler, "sampler", None))


def _generators_of(parts: list[object]) -> list[torch.Generator]:
    generators = [getattr(part, "generator", None) for part in parts]
    return list({id(one): one for one in generators if isinstance(one, torch.Generator)}.values())


def _own_seed(generator: torch.Generator) -> int:
    """The seed that its owner gave it, also where an earlier run of this process has set that of an epoch."""
    seed = generator.initial_seed()
    own, epoch_seed = _SEEDS.get(generator, (seed, None))
    return own if seed == epoch_seed else seed


def _unknown_of(loader: Any, samplers: list[object]) -> Iterator[Any]:
    """Yields what may have a generator of its own: samplers that are not torch's, data without numbers, other
    loaders.
    """
    for sampler in samplers:
        if not (type(sampler).__module__.startswith("torch.") or isinstance(sampler, list | tuple | range)):
            yield sampler
    if isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset):
        yield loader.dataset
    elif not isinstance(loader, list | tuple | torch.utils.data.DataLoader):
        yield loader


def digest_of_items(dataset: Any) -> str | None:
    """A digest of three items of a data set; None for what has no items by number, or other ones each time."""
    try:
        count = len(dataset)
        numbers = sorted({0, count // 2, count - 1}) if count else []
        read = dataset.get if callable(getattr(dataset, "get", None)) else dataset.__getitem__
        with _States(0).in_place():
            first = [_digest(read(number)) for number in numbers]
        with _States(1).in_place():
            again = [_digest(read(number)) for number in numbers]
    except Exception:  # what is wrong with an item is told where the item is wanted
        return None
    if first != again or None in first:
        return None
    return hashlib.blake2b("".join(map(str, first)).encode(), digest_size=8).hexdigest()


def _digest(item: AnyItem) -> str | None:
    """A digest of an item made of arrays, tensors, numbers, texts, and containers and dataclasses of them."""
    digest = hashlib.blake2b(digest_size=16)
    left = [item]
    for _ in range(_MOST_PARTS):
        if not left:
            return digest.hexdigest()
        part = left.pop()
        if isinstance(part, torch.Tensor):
            part = part.detach().cpu().numpy()
        if isinstance(part, np.ndarray | np.generic) and not part.dtype.hasobject:
            digest.update(f"{part.dtype.str}{part.shape}".encode() + part.tobytes())
        elif part is None or isinstance(part, bool | int | float | str | bytes):
            digest.update(f"{type(part).__name__}{part!r}".encode())
        elif isinstance(part, dict):
            left += [*part.keys(), *part.values()]
        elif isinstance(part, tuple | list):
            left += part
        elif hasattr(part, "__dataclass_fields__"):
            left += [getattr(part, name) for name in part.__dataclass_fields__]
        else:
            return None
    return None
