"""Keys: buckets, alignment of the real problem; the doctests of the package."""

from __future__ import annotations

import doctest

import pytest
import torch

from burn_kernels.autotune import key, levels, race, tunable
from burn_kernels.autotune.key import Candidate, Facts, alignment, key_text, row_facts
from burn_kernels.softmax import Config


@pytest.mark.parametrize("module", [key, levels, race, tunable])
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]  # a module is what it takes


def text(rows: int, cols: int, align: int = 16, flags: str = "") -> str:
    return key_text("op", ("rows",), ("cols",), Facts((rows,), (cols,), torch.float16, align, "packed", flags))


def test_rows_share_a_bucket_of_a_power_of_two_and_columns_do_not() -> None:
    assert text(4097, 100) == text(8192, 100) == "op rows<=8192 cols=100 float16 packed align=16"
    assert text(8193, 100) != text(8192, 100)
    assert text(8192, 101) != text(8192, 100)
    assert text(8192, 100, 2) != text(8192, 100, 16)
    assert text(8192, 100, flags="w") != text(8192, 100)


def test_alignment_is_of_the_real_problem_never_of_its_bucket() -> None:
    # 7 rows of 7 are in the bucket of 8 rows of 8: an alignment taken from the bucket would call them aligned
    assert row_facts(torch.float16, 7, 7, (7,), 0).align == 2
    assert row_facts(torch.float16, 8, 8, (8,), 0).align == 16


@pytest.mark.parametrize("align", [2, 4, 8, 16])
def test_addresses_strides_and_lengths_each_count(align: int) -> None:
    assert row_facts(torch.float16, 4, 64, (64,), align & 15).align == align
    assert row_facts(torch.float16, 4, 64, (64, 64 + align // 2), 0).align == align
    assert row_facts(torch.float16, 4, 64 + align // 2, (64,), 0).align == align
    assert alignment(0) == 16


def test_rows_with_gaps_are_another_layout() -> None:
    assert row_facts(torch.float32, 4, 64, (64, 64), 0).layout == "packed"
    assert row_facts(torch.float32, 4, 64, (64, 80), 0).layout == "strided"


def test_a_candidate_is_plain_data() -> None:
    candidate = Candidate.of(Config(1, 4096, 4))
    assert candidate.name == "rows=1 block=4096 warps=4"
    assert candidate.config == {"rows": 1, "block": 4096, "warps": 4}


def test_the_software_line_names_what_compiles_and_runs() -> None:
    assert key.software().startswith(f"torch {torch.__version__}, triton ")
    assert "burn_kernels" in key.software()
