"""The cipher: known answers, and any part of any stream by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import burn_torch
from burn_torch.core import philox
from burn_torch.core.philox import block, fold, split64, stream_of, words
from burn_torch.ops import philox_torch

# Random123, tests/kat_vectors, philox4x32 with 10 rounds: counter, key, answer.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
PI_STREAM, PI_KEY = 0x03707344_13198A2E, 0x299F31D0_A4093822


def join(low: int, high: int) -> int:
    return low | high << 32


def oracle(key: int, stream: int, i: int) -> int:
    return block((*split64(i // 4), *split64(stream)), split64(key))[i % 4]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers_on_integers_numpy_and_torch(
    counter: tuple[int, int, int, int], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    assert block(counter, key) == answer
    number, stream = join(*counter[:2]), join(*counter[2:])
    assert tuple(words(join(*key), stream, 4 * number, 4).tolist()) == answer
    [(at, drawn)] = philox_torch.chunks(join(*key), stream, number, 1, torch.device("cpu"))
    assert at == number
    assert tuple(drawn.tolist()) == answer


@pytest.mark.parametrize(
    "start",
    [0, 1, 2, 3, 4, 7, 4 * philox._CHUNK - 5, 2**32 - 3, 4 * 2**32 - 6, 2**50 + 1],
    ids=lambda start: hex(start),
)
def test_any_part_of_a_stream_is_the_same_words(start: int) -> None:
    """Among them parts past 2^32 elements, and across the block where the low counter word wraps."""
    drawn = words(PI_KEY, PI_STREAM, start, 13)
    assert drawn.dtype == np.uint32
    assert drawn.tolist() == [oracle(PI_KEY, PI_STREAM, start + i) for i in range(13)]


def test_pieces_join_without_a_seam() -> None:
    size = 4 * philox._CHUNK
    whole = words(3, 5, 0, 2 * size + 3)
    for start in (0, size - 2, size, 2 * size - 1):
        np.testing.assert_array_equal(words(3, 5, start, 5)[: whole.size - start], whole[start : start + 5])


@pytest.mark.parametrize("first", [0, 5, philox._CHUNK - 3, 2**32 - 2, 2**40])
def test_torch_formula_gives_the_same_bits(first: int) -> None:
    ours = words(PI_KEY, PI_STREAM, 4 * first, 44)
    pieces = list(philox_torch.chunks(PI_KEY, PI_STREAM, first, 11, torch.device("cpu")))
    assert torch.cat([piece for _, piece in pieces]).tolist() == ours.tolist()


@pytest.mark.gpu
def test_cuda_gives_the_same_bits() -> None:
    [(_, drawn)] = philox_torch.chunks(PI_KEY, PI_STREAM, 2**32 - 100_000, 100_000, torch.device("cuda:0"))
    assert drawn.cpu().numpy().tolist() == words(PI_KEY, PI_STREAM, 4 * (2**32 - 100_000), 400_000).tolist()


def test_torch_pieces_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox_torch, "CHUNK", 8)
    pieces = list(philox_torch.chunks(1, 2, 5, 20, torch.device("cpu")))
    assert [at for at, _ in pieces] == [5, 8, 16, 24]
    assert torch.cat([piece for _, piece in pieces]).tolist() == words(1, 2, 20, 80).tolist()


def test_keys_and_streams_are_taken_modulo_2_to_the_64() -> None:
    np.testing.assert_array_equal(words(-1, -2, 0, 9), words(2**64 - 1, 2**64 - 2, 0, 9))
    np.testing.assert_array_equal(words(2**64 + 3, 2**65 + 4, 0, 9), words(3, 4, 0, 9))


def test_no_words_is_an_empty_array() -> None:
    assert words(1, 2, 3, 0).shape == (0,)


def test_each_bit_of_key_and_stream_matters() -> None:
    """A change of one input bit flips half of the output bits: 512 bits, so 256 with a deviation of 11.3."""
    base = words(PI_KEY, PI_STREAM, 0, 16)
    for bit in range(64):
        for other in (words(PI_KEY ^ 1 << bit, PI_STREAM, 0, 16), words(PI_KEY, PI_STREAM ^ 1 << bit, 0, 16)):
            flipped = int(np.bitwise_count(base ^ other).sum())
            assert abs(flipped - 256) < 5 * 11.4


# -- keys and names --------------------------------------------------------------------------------------
def test_fold_is_written_down_once_and_for_all() -> None:
    """The values themselves: a checkpoint that is resumed with another fold would go another way."""
    w0, w1, _, _ = block((7, 0, 0, 0x80000000), (42, 0))
    assert fold(42, 7) == join(w0, w1) >> 1 == 0x7961_D57B_EA2C_AB02


def test_folded_keys_differ_and_fit_a_signed_integer() -> None:
    keys = {fold(seed, number) for seed in range(100) for number in range(100)}
    assert len(keys) == 10_000
    assert all(0 <= key < 2**63 for key in keys)
    assert fold(fold(1, 2), 3) != fold(fold(1, 3), 2)


def test_streams_are_the_same_in_every_process() -> None:
    assert stream_of("encoder.0.dropout#3") == 0x48BF_E097_E8C4_9663
    names = {stream_of(f"layer.{i}#{j}") for i in range(100) for j in range(100)}
    assert len(names) == 10_000
    assert all(0 <= stream < 2**63 for stream in names)


def test_a_traced_key_is_folded_as_one_that_is_known() -> None:
    function = burn_torch.compile(lambda key, number: fold(fold(key, number), 3))
    for key in (0, 42, 2**63 - 1):
        for number in (0, 7, 2**40):
            assert function(key, number) == fold(fold(key, number), 3)
    assert function.traces == 1
