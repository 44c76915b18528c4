"""The order of an epoch, as a pure function of (seed, epoch).

Nothing here has a state, so nothing has to be saved or wound forward: epoch 7 is looked up, not reached.  All numbers
are raw words of Philox-4x64-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"), keyed
by the pair (seed, epoch); the highest counter word says what they are for, so that no two uses share a word:

    0   the order of the items          word i belongs to item i
    1   seeds of samples                counter (0, index, 0, 1), its first word
    2   generators of samples           counter (0, index, 0, 2) and up: 2^66 words for each sample
    3   draws of a sampler              word i decides draw i

numpy promises that the raw words of a bit generator never change, and promises nothing of `Generator.permutation`:
hence the shuffle is a stable sort by random words, which gives the same order with every numpy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError

__all__ = ["permutation", "sample_generator", "sample_seed"]

_ORDER, _SEED, _GENERATOR, _DRAW = range(4)
_WORD = 2**64
_MOST = 2**40


@checked(error=DataError)
def permutation(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The positions 0..n-1 in the order of an epoch.

    Each order is equally likely, up to equal words (a chance of n^2 / 2^65), which keep the order of their items.
    Raises: DataError if seed or epoch is not in 0..2^64-1, or n is negative.

    >>> permutation(5, seed=42, epoch=0)
    array([1, 4, 3, 0, 2])
    """
    _require("n", n, _WORD // 2)
    return np.argsort(_words(seed, epoch, _ORDER, n), kind="stable").astype(np.int64, copy=False)


@checked(error=DataError)
def sample_seed(seed: int, epoch: int, index: int) -> int:
    """A 64-bit seed for what is done to one sample in one epoch, whichever worker does it."""
    return int(_philox(seed, epoch, index, _SEED).random_raw())


@checked(error=DataError)
def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """A numpy generator for what is done to one sample in one epoch.

    Its words are fixed for ever; how numpy turns them into normal or integer draws may change between its versions.
    """
    return np.random.Generator(_philox(seed, epoch, index, _GENERATOR))


def draws(count: int, below: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """`count` independent positions below `below`, each equally likely up to below / 2^64."""
    return (_words(seed, epoch, _DRAW, count) % np.uint64(below)).astype(np.int64)


def _words(seed: int, epoch: int, stream: int, count: int) -> NDArray[np.uint64]:
    if count > _MOST:
        raise DataError(
            "the order of this number of items does not fit in memory",
            given=f"{count} items",
            expected=f"{_MOST} at most",
            mend="check how the size was computed",
        )
    words: NDArray[np.uint64] = _philox(seed, epoch, 0, stream).random_raw(count)
    return words


def _philox(seed: int, epoch: int, index: int, stream: int) -> np.random.Philox:
    for name, value in (("seed", seed), ("epoch", epoch), ("index", index)):
        _require(name, value, _WORD)
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, index, 0, stream], dtype=np.uint64))


def _require(name: str, value: int, end: int) -> None:
    if not 0 <= value < end:
        raise DataError(
            f"{name} is out of range",
            given=f"{name}={value}",
            expected=f"0 <= {name} < 2^{end.bit_length() - 1}",
            mend=f"give a {name} in that range",
        )
