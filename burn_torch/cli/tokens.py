"""Tokens of text: its bytes, and pairs of them that were merged because they are frequent (byte-pair encoding).

Token 0 to 255 is that byte; token 256 + i is the i-th merge, a pair of earlier tokens.  Merges never reach over the
border between two words; a space belongs to the word behind it.
Source: Sennrich et al. 2016, section 3.2, https://arxiv.org/abs/1508.07909.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from burn_torch.core.errors import ConfigError

__all__ = ["BYTES", "Tokenizer", "learn_merges"]

BYTES: Final = 256
MAX_TOKEN: Final = 128
"""Bytes of a token.  A longer word is several: merging within one takes the square of its length."""
_WORDS: Final = re.compile(rb" ?[^\s]{1,%d}|\s+?(?= )|\s" % (MAX_TOKEN - 1))

Pair = tuple[int, int]


def learn_merges(text: bytes, count: int) -> tuple[Pair, ...]:
    """The `count` merges that a text asks for, most frequent pair first; of equal ones the smaller pair.

    Fewer if no pair occurs twice any more.

    >>> learn_merges(b"low lower lowest", 2)
    ((108, 111), (256, 119))
    """
    words = [(list(word), times) for word, times in Counter(_WORDS.findall(text)).items()]
    pairs: Counter[Pair] = Counter()
    where: dict[Pair, set[int]] = {}
    for number, (word, times) in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += times
            where.setdefault(pair, set()).add(number)
    heap = [(-times, pair) for pair, times in pairs.items()]  # an entry may be too high: counts of known pairs fall
    heapq.heapify(heap)
    merges: list[Pair] = []
    while len(merges) < count and heap:
        times, best = heapq.heappop(heap)
        if pairs[best] != -times:
            if best in pairs:
                heapq.heappush(heap, (-pairs[best], best))
            continue
        if pairs[best] < 2:
            break
        token = BYTES + len(merges)
        merges.append(best)
        fresh: set[Pair] = set()
        for number in where.pop(best):
            word, times = words[number]
            for pair in itertools.pairwise(word):
                pairs[pair] -= times
                if pairs[pair] <= 0:
                    del pairs[pair]
            merged = _merge(word, best, token)
            words[number] = (merged, times)
            for pair in itertools.pairwise(merged):
                pairs[pair] += times
                where.setdefault(pair, set()).add(number)
                if token in pair:
                    fresh.add(pair)
        for pair in fresh:
            heapq.heappush(heap, (-pairs[pair], pair))
    return tuple(merges)


class Tokenizer:
    """Text to tokens and back.

    >>> tokenizer = Tokenizer([(108, 111), (256, 119)])
    >>> tokenizer.encode("low"), tokenizer.decode([257, 101])
    ([257], 'lowe')
    """

    def __init__(self, merges: Iterable[Sequence[int]]) -> None:
        self._ranks: dict[Pair, int] = {}
        self.texts: list[bytes] = [bytes([i]) for i in range(BYTES)]
        """The bytes of each token."""
        for one, other in merges:
            known = len(self.texts)
            if not (0 <= one < known and 0 <= other < known):
                raise _refuse_merge(known, (one, other), f"two tokens of 0 to {known - 1}")
            text = self.texts[one] + self.texts[other]
            if len(text) > MAX_TOKEN:
                raise _refuse_merge(known, (one, other), f"tokens of {MAX_TOKEN} bytes at most, not {len(text)}")
            self._ranks[one, other] = known
            self.texts.append(text)
        self._known: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, in UTF-8."""
        if not self._ranks:
            return list(text.encode())
        tokens_of_text: list[int] = []
        for word in _WORDS.findall(text.encode()):
            tokens = self._known.get(word)
            if tokens is None:
                tokens = self._known[word] = self._encode_word(list(word))
            tokens_of_text += tokens
        return tokens_of_text

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become a replacement character."""
        return b"".join(self.texts[token] for token in tokens).decode(errors="replace")

    def _encode_word(self, word: list[int]) -> list[int]:
        while len(word) > 1:
            pair = min(itertools.pairwise(word), key=lambda p: self._ranks.get(p, len(self.texts)))
            token = self._ranks.get(pair)
            if token is None:
                break
            word = _merge(word, pair, token)
        return word


def _refuse_merge(token: int, pair: Pair, expected: str) -> ConfigError:
    return ConfigError(
        "these merges make no tokenizer",
        given=f"token {token} is the pair {pair}",
        expected=expected,
        mend="take the merges of the run that the model is of: its config.json has them",
    )


def _merge(word: Sequence[int], pair: Pair, token: int) -> list[int]:
    merged: list[int] = []
    at = 0
    while at < len(word):
        if at + 1 < len(word) and (word[at], word[at + 1]) == pair:
            merged.append(token)
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return merged
