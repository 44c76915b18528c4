"""Words of a stream by a C loop: the bits of numpy, wherever it begins; and when it is built."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch.backend.libtorch.generated import c_words
from burn_torch.backend.libtorch.generated.c_kernels import CompilerError, compiler
from burn_torch.backend.libtorch.generated.c_words import Cipher
from burn_torch.core import philox
from burn_torch.core.imports import named

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")


@pytest.fixture(scope="module")
def cipher() -> Cipher:
    cipher_in_c = Cipher()
    assert cipher_in_c.wait()
    return cipher_in_c


def by_numpy(key: int, stream: int, start: int, count: int) -> philox.Words:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(philox, "_faster_cipher", lambda count: None)
        return philox.words(key, stream, start, count)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(-(2**63), 2**64),
    st.integers(0, 2**64 - 1),
    st.one_of(st.integers(0, 100), st.integers(2**34 - 300, 2**34 + 300), st.integers(2**60, 2**62)),
    st.integers(0, 300),
)
def test_the_words_are_those_of_numpy(cipher: Cipher, key: int, stream: int, start: int, count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(philox, "_faster_cipher", lambda count: cipher())
        words = philox.words(key, stream, start, count)
    np.testing.assert_array_equal(words, by_numpy(key, stream, start, count))


def test_pieces_follow_each_other(cipher: Cipher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philox, "_faster_cipher", lambda count: cipher())
    np.testing.assert_array_equal(philox.words(3, 5, 6, 200_001), by_numpy(3, 5, 6, 200_001))


def test_nothing_is_built_before_many_words_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(c_words, "build_apart", lambda name, source: started.append(name) or Future())
    asked: list[str] = []
    cipher = Cipher()
    monkeypatch.setattr(philox, "named", lambda path: asked.append(path) or cipher)
    monkeypatch.setattr(philox, "_drawn", 0)
    for _ in range(2):
        philox.words(1, 2, 0, 1000)
    assert not asked, "no compiler is imported for a few words"
    drawn = philox.words(1, 2, 0, 4 << 18)
    assert started == ["burn_torch_words"]
    np.testing.assert_array_equal(drawn[:1000], philox.words(1, 2, 0, 1000))
    assert named(philox.CIPHER) is c_words.CIPHER


def test_a_compiler_that_fails_leaves_numpy_to_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: Future[object] = Future()
    failed.set_exception(CompilerError("refused"))
    monkeypatch.setattr(c_words, "build_apart", lambda name, source: failed)
    cipher = Cipher()
    assert not cipher.wait()
    assert cipher() is None
    monkeypatch.setattr(c_words, "compiler", lambda: None)
    assert not Cipher().wait()
