"""benchmarks/errors.py: a row a type and measure, and a status that says whether the rule holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from benchmarks import errors
from burn_kernels import REGISTRY
from burn_kernels.spec import Problem
from burn_kernels.verification import Difference, verify


def test_rows_hold_the_worst_of_all_seeds_and_problems() -> None:
    rows = errors.rows_of("dropout", "bfloat16", 2, "cpu")
    assert {(row["what"], row["kind"]) for row in rows} == {
        (what, kind) for what in ("outputs", "gradients") for kind in ("relative RMS", "largest")
    }
    for row in rows:
        assert row["share"] == row["error"] / row["allowed"]
        assert 0.0 <= row["share"] <= 1.0
        assert row["seed"] in (0, 1)
        assert row["shapes"] == [[64, 5120]]


def test_the_status_says_what_is_beyond(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"op": "softmax", "dtype": "float32", "what": "outputs", "kind": "largest", "share": 0.4}
    rows_measured = [row]
    monkeypatch.setattr(errors, "measured", lambda *_: rows_measured)
    asked = ["--device", "cpu", "--out", str(tmp_path / "errors.json")]
    assert errors.main(asked) == 0
    assert json.loads((tmp_path / "errors.json").read_text(encoding="utf-8"))["rows"] == [row]
    rows_measured.append(row | {"share": float("nan")})
    assert errors.main(asked) == 1
    assert "1 of 2 rows hold" in capsys.readouterr().out


def test_verify_tells_every_difference_it_measures() -> None:
    differences: list[Difference] = []
    problem = Problem((torch.randn(4, 33, dtype=torch.float64),))
    assert verify(REGISTRY["softmax"], problem, dtype=torch.float32, seen=differences.append) == []
    assert [(one.what, one.kind) for one in differences] == [
        (what, kind) for what in ("output 0", "gradient of input 0") for kind in ("relative RMS", "largest")
    ]
    assert all(one.holds and one.error <= one.allowed and one.size > 0.0 for one in differences)
