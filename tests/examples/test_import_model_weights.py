"""Weights of PyTorch and of Burn in the example's models: the accuracy that they were trained to."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "import_model_weights" / "import_model_weights.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_without_a_file_three_formats_give_pytorchs_scores(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    example["main"]([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["twin.pt", "twin.safetensors", "twin.bpk"]
    assert all(float(line.rpartition(" ")[2]) < 1e-5 for line in lines)
    assert all(" 18 values; " in line for line in lines)


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ("pytorch-weights/mnist.pt", 99.15),  # measured with onnxruntime: the folder's README
        ("pytorch-weights/mnist.safetensors", 99.17),
        pytest.param("burn-records/mnist-inference-web.bpk", 98.47, marks=pytest.mark.slow),  # with torch alone
    ],
)
def test_real_weights_reach_their_accuracy(
    example: dict[str, Any], shared_data: Path, capsys: pytest.CaptureFixture[str], weights: str, wanted: float
) -> None:
    example["main"]([str(shared_data / weights), "--data-dir", str(shared_data / "mnist")])
    out = capsys.readouterr().out
    print(out)
    assert "18 applied, 0 skipped, 0 missing" in out
    accuracy = float(out.splitlines()[-1].split()[0])
    assert abs(accuracy - wanted) < 0.015  # one image of 10,000
