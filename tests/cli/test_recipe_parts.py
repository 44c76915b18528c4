"""Tests what recipes are made of: tokens, hashes, pictures of another size, drawing, the names of recipes."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

from burn_torch.cli import registry
from burn_torch.cli.recipes.text_classification import features_of, words_of
from burn_torch.cli.recipes.text_generation import Windows, draw
from burn_torch.cli.tokens import BYTES, Tokenizer, learn_merges
from burn_torch.core.errors import ConfigError, DataError
from burn_torch.data.source.image_file import resized


def slow_merges(text, count):
    """Byte-pair encoding as the paper has it: count all pairs again after every merge."""
    import re

    words = [list(word) for word in re.findall(rb" ?[^\s]{1,127}|\s+?(?= )|\s", text)]
    merges = []
    for number in range(count):
        pairs = {}
        for word in words:
            for pair in itertools.pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(best)
        for word in words:
            at = 0
            while at + 1 < len(word):
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = [BYTES + number]
                at += 1
    return tuple(merges)


@pytest.mark.parametrize("seed", range(4))
def test_merges_are_those_of_the_slow_way(seed):
    random = np.random.default_rng(seed)
    text = bytes(random.choice(list(b"aaab bc\n"), 600))
    assert learn_merges(text, 40) == slow_merges(text, 40)


@pytest.mark.parametrize("text", ["", "low lower", "ünïcode ☃ \n\n  spaces", "new words: lowest slowly"])
def test_tokens_decode_to_the_text(text):
    tokenizer = Tokenizer(learn_merges(b"low lower lowest slow slower slowest " * 3, 20))
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert len(tokens) <= len(text.encode())
    assert sum(len(tokenizer.texts[token]) for token in tokens) == len(text.encode())
    assert Tokenizer(()).encode(text) == list(text.encode())


@pytest.mark.parametrize(
    "merges",
    [[(97, 97)] + [(i, i) for i in range(256, 320)], [(97, -1)], [(97, 257)], [(400, 97)]],
    ids=["doubles", "negative", "itself", "later"],
)
def test_merges_that_a_stranger_wrote_make_no_token_of_terabytes(merges):
    with pytest.raises(ConfigError, match=r"make no tokenizer\n  given:    token .*\n  expected: .*\n  mend:     take"):
        Tokenizer(merges)


def test_a_word_of_a_megabyte_takes_no_square_of_it():
    tokenizer = Tokenizer(learn_merges(b"ab" * 200_000, 3))
    text = "ab" * 100_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_features_are_hashes_of_words_and_pairs():
    row = features_of("Oil&lt;b&gt; falls #39;s", 3, 1000)
    assert words_of("Oil&lt;b&gt; falls #39;s") == ["oil", "b", "falls", "s"]
    grams = ["oil", "b", "falls", "oil b", "b falls"]
    assert list(row) == [*(1 + zlib.crc32(gram.encode()) % 999 for gram in grams), 0]
    assert not features_of("", 3, 1000).any()


def test_pictures_of_another_size():
    ramp = np.arange(16, dtype=np.float32)[:, None] * np.ones((1, 6), np.float32)
    assert np.array_equal(resized(ramp, 16, 6), ramp)
    small = resized(ramp, 8, 3)
    assert small.shape == (8, 3)
    # inside, a triangle filter keeps a straight line straight: row i covers rows 2i and 2i + 1
    np.testing.assert_allclose(small[1:-1, 0], 2 * np.arange(1, 7) + 0.5, rtol=1e-6)
    flat = resized(np.full((5, 7), 0.3, np.float32), 9, 4)
    np.testing.assert_allclose(flat, 0.3, rtol=1e-6)
    large = resized(ramp[:4], 8, 6)
    np.testing.assert_allclose(large[2:6, 0], [0.75, 1.25, 1.75, 2.25], rtol=1e-6)


def test_drawing_follows_the_softmax_of_the_best():
    logits = np.log(np.array([0.1, 0.6, 0.3, 1e-9]))
    random = np.random.default_rng(1)
    counts = np.bincount([draw(logits, 1.0, 2, random) for _ in range(3000)], minlength=4)
    assert counts[[0, 3]].sum() == 0  # top_k = 2
    share = counts[1] / 3000
    assert abs(share - 2 / 3) < 4 * np.sqrt(2 / 9 / 3000)  # four standard deviations of a binomial share
    assert {draw(logits, 1e-3, 4, random) for _ in range(50)} == {1}


def test_recipes_by_module_and_by_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    body = "from burn_torch.cli.recipes.digits import DigitsRecipe, RECIPE\nOTHER = 3\n"
    body += "class Mine(DigitsRecipe):\n    pass\n"
    (tmp_path / "recipes_of_a_test.py").write_text(body)
    for name in ("recipes_of_a_test:Mine", f"{tmp_path / 'recipes_of_a_test.py'}:Mine"):
        assert type(registry.recipe(name)).__name__ == "Mine"
    assert registry.recipe("recipes_of_a_test:RECIPE").name == "digits"
    with pytest.raises(ConfigError, match=r"with OTHER = 3\n"):
        registry.recipe("recipes_of_a_test:OTHER")
    with pytest.raises(ConfigError, match=r"with no Mien\n[\s\S]*recipes_of_a_test:Mine\?"):
        registry.recipe("recipes_of_a_test:Mien")
    with pytest.raises(ConfigError, match="there is no module"):
        registry.recipe("recipes_of_a_test.deeper:Mine")
    with pytest.raises(ConfigError, match="names no module"):
        registry.recipe(":Mine")
    (tmp_path / "needs_what_is_not_there.py").write_text("import a_module_that_is_nowhere\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_nowhere"):
        registry.recipe("needs_what_is_not_there:Mine")


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_text_of_fewer_tokens_than_a_window_is_reported(count: int) -> None:
    """The length of an empty text was -1, which is Python's own error."""
    with pytest.raises(DataError, match=f"the text is too short\n  given: +{count} tokens"):
        Windows([1] * count, 4)
    assert len(Windows([1] * 5, 4)) == 1
