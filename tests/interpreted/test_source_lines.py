"""Generated kernels that ran have files with the user's lines: of streams, symbolic sizes, compiled functions."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from burn_torch import Device, Tensor, compile  # after the check for triton

FUSED = Device.cpu().fused()


def of_the_stream(x: Tensor) -> Tensor:
    return (x * 3.5 - 0.25).exp() + 0.125  # a line of the stream


def of_a_function(x: Tensor) -> Tensor:
    return (x - x.mean_dim(1)).tanh() * 0.625  # a line of the function


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path))
    return tmp_path / "kernels"


def with_line(folder: Path, words: str) -> list[Path]:
    return [path for path in folder.glob("fused_*.py") if f"# {words}\n" in path.read_text(encoding="utf-8")]


def test_of_a_stream_and_of_symbolic_sizes(folder: Path) -> None:
    for length in (6, 9, 11, 14):
        of_the_stream(Tensor.ones((3, length), FUSED)).into_data()
    exact, symbolic = sorted(with_line(folder, "a line of the stream"), key=lambda path: "s0" in path.read_text())
    assert "s0" in symbolic.read_text(encoding="utf-8")
    assert "def fused_" in exact.read_text(encoding="utf-8")


def test_of_a_compiled_function(folder: Path) -> None:
    x = Tensor.ones((4, 8), Device.cpu())
    compile(of_a_function, fuse=True)(x).into_data()
    (path,) = with_line(folder, "a line of the function")
    assert f"{__file__}:" in path.read_text(encoding="utf-8")
