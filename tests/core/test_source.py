"""Functions written as source: blocks, names, code that equal texts share, and lines in tracebacks."""

from __future__ import annotations

import linecache
import traceback
from typing import Any

import pytest

from burn_torch.core import source as sources
from burn_torch.core.source import Source


def write_adder(amount: object) -> Any:
    source = Source("adder", least=0)
    name = source.name(amount)
    with source.block("def add(x):"):
        with source.block("if x < least:"):
            source.add("raise ValueError(x)")
        source.add(f"return x + {name}")
    return source.function("add")


def test_equal_texts_share_their_code_and_not_their_objects() -> None:
    one, other = write_adder(1), write_adder(10)
    assert (one(1), other(1)) == (2, 11)
    assert one.__code__ is other.__code__


def test_a_traceback_shows_the_written_line() -> None:
    with pytest.raises(ValueError, match="-3") as fault:
        write_adder(1)(-3)
    last = traceback.extract_tb(fault.value.__traceback__)[-1]
    assert last.line == "raise ValueError(x)"
    assert last.filename.startswith("<burn_torch adder ")


def test_each_object_has_a_name_of_its_own() -> None:
    source = Source("names", k0="taken")
    names = [source.name(value) for value in ("a", "b")]
    assert sorted([*names, "k0"]) == sorted(source.objects)
    assert source.objects["k0"] == "taken"


def test_a_block_ends_where_what_writes_it_raises() -> None:
    source = Source("blocks")
    with pytest.raises(KeyError), source.block("def f():"):
        raise KeyError("f")
    source.add("x = 1")
    assert source.text.splitlines()[-1] == "x = 1"


def test_texts_for_tracebacks_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_shown", type(sources._shown)())
    monkeypatch.setattr(sources, "_MOST", 8)
    names = [f"<burn_torch text {number}>" for number in range(20)]
    for name in names:
        sources.compile_file("x = 1", name)
        sources.compile_file("x = 1", name)  # again: no second place in the list
    assert [name for name in names if name in linecache.cache] == names[-8:]
