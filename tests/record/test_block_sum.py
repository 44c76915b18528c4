"""The checksum of records: pieces do not matter, every change does."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from burn_torch.record.block_sum import BLOCK_BYTES, BlockSum


def summed(*pieces: Any) -> str:
    block_sum = BlockSum()
    for piece in pieces:
        block_sum.update(piece)
    return block_sum.hexdigest()


def plain(data: bytes) -> str:
    """The definition, without any of its numpy."""
    digest = hashlib.sha256()
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0")
        words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, BLOCK_BYTES, 8)]
        rows = [words[i : i + 1024] for i in range(0, len(words), 1024)]
        for sums in ([sum(column) for column in zip(*rows, strict=True)], [sum(row) for row in rows]):
            digest.update(b"".join((value % 2**64).to_bytes(8, "little") for value in sums))
    digest.update(len(data).to_bytes(8, "little"))
    return digest.hexdigest()


@pytest.mark.parametrize("size", [0, 1, 8, 1000, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES + 77])
def test_it_is_what_it_is_defined_to_be_in_any_pieces(size: int, seed: np.random.Generator) -> None:
    data = seed.integers(0, 256, size, np.uint8).tobytes()
    wanted = plain(data)
    assert summed(data) == wanted
    cuts = sorted(seed.integers(0, size + 1, 4).tolist())
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    assert summed(*pieces) == wanted


def test_flips_swaps_and_zeroed_sectors_are_noticed(seed: np.random.Generator) -> None:
    data = seed.integers(0, 256, BLOCK_BYTES + 5000, np.uint8)
    sound = summed(data)
    for at in seed.integers(0, len(data), 200).tolist():
        data[at] ^= 1 << at % 8
        assert summed(data) != sound
        data[at] ^= 1 << at % 8
    for size in (8, 512, 4096, 8192):
        for a, b in ((0, size), (size, 5 * size), (3 * size, BLOCK_BYTES - size)):
            swapped = data.copy()
            swapped[a : a + size], swapped[b : b + size] = data[b : b + size], data[a : a + size]
            assert summed(swapped) != sound
            zeroed = data.copy()
            zeroed[b : b + size] = 0
            assert summed(zeroed) != sound
    assert summed(data) == sound
    assert summed(np.append(data, np.uint8(0))) != sound


@pytest.mark.parametrize("size", [0, 5, BLOCK_BYTES, 19 * BLOCK_BYTES + 77])
@pytest.mark.parametrize("before", [0, 13, BLOCK_BYTES + 1])
def test_on_all_cores_it_is_the_same(size: int, before: int, seed: np.random.Generator) -> None:
    data = seed.integers(0, 256, before + size, np.uint8)
    block_sum = BlockSum()
    block_sum.update(data[:before])
    block_sum.update_from(lambda start, end: data[start:end], before, before + size)
    block_sum.update(data[:9])
    assert block_sum.hexdigest() == summed(data, data[:9])
