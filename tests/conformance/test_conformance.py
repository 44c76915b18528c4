"""torch's operator database beside the twins of the table: a share of it in the quick suite, all in the slow one."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from tests.conformance.running import LEAVES, database, differences, dtypes_of, run
from tests.conformance.twins import table

TWINS = table()
FEWEST = 330
SHARE = 20
"""One entry in so many is met by the quick tests, on one leaf, and one of its samples in seven."""
QUICK = [entry for entry in sorted(TWINS) if not zlib.crc32(entry.encode()) % SHARE]


def test_the_table_has_twins_of_entries_that_torch_has() -> None:
    assert not set(TWINS) - set(database())
    assert len(TWINS) >= FEWEST


def test_each_difference_names_entries_of_the_table_and_has_a_reason() -> None:
    for line in differences():
        assert line.entries == ("*",) or not set(line.entries) - set(TWINS), line
        assert set(line.kind.split("/")) <= {"value", "gradient", "refused", "lacks"}, line
        assert len(line.reason) > 10, line


@pytest.mark.parametrize("entry", QUICK)
def test_a_share_of_the_samples_agrees(entry: str) -> None:
    leaf = list(LEAVES)[zlib.crc32(entry.encode()) // SHARE % len(LEAVES)]
    for dtype in dtypes_of(entry, TWINS[entry], ["f64", "i64", "bool"]):
        assert not run(entry, TWINS[entry], leaf, dtype, only=lambda number: not number % 7).mismatches


@pytest.mark.slow
@pytest.mark.parametrize("entry", sorted(TWINS))
def test_a_share_of_the_samples_agrees_in_narrow_types_and_in_compiled_c(entry: str) -> None:
    for leaf, dtypes in (("c", ["f64"]), ("libtorch", ["f32", "f16", "bf16"])):
        for dtype in dtypes_of(entry, TWINS[entry], dtypes):
            assert not run(entry, TWINS[entry], leaf, dtype, only=lambda number: not number % 12).mismatches


@pytest.mark.slow
@pytest.mark.parametrize("leaf", ["libtorch", "ndarray", "fused"])
@pytest.mark.parametrize("entry", sorted(TWINS))
def test_every_sample_agrees(entry: str, leaf: str) -> None:
    for dtype in dtypes_of(entry, TWINS[entry], ["f64", "i64", "bool"]):
        assert not run(entry, TWINS[entry], leaf, dtype).mismatches


def test_a_wrong_value_and_a_wrong_gradient_are_found() -> None:
    off = replace(TWINS["exp"], call=lambda x: x.exp() * (1 + 2.0**-40))
    assert "value" in run("exp", off, "libtorch", "f64").mismatches[0]
    cut = replace(TWINS["exp"], call=lambda x: x.exp().detach() + 0.0 * x)
    assert "gradient" in run("exp", cut, "libtorch", "f64").mismatches[0]
    refused = replace(TWINS["exp"], call=lambda x: x.sum_dim(9))
    assert "refused" in run("exp", refused, "libtorch", "f64").mismatches[0]
