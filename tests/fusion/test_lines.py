"""The files of generated kernels say which lines they come from, and nothing else may be added to them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from burn_torch import Device, Tensor, compile, explain  # after the check for triton
from burn_torch.backend.libtorch.generated import kernel_files
from burn_torch.backend.libtorch.generated.c_kernels import compiler
from burn_torch.fusion.body.lines import commented, is_kernel

KERNEL = (
    '"""nothing."""\n\nfrom burn_kernels._triton import tl, triton\n\n\n@triton.jit\ndef NAME(p0):\n    tl.load(p0)\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path))
    return tmp_path / "kernels"


def test_lines_stand_behind_the_kernel_which_stays_as_it_is(folder: Path) -> None:
    source = KERNEL.replace("NAME", "fused_lines_a")
    module = kernel_files.module_of(
        "fused_lines_a", source, ["model.py:3 in f: x + 1", "model.py:4 in f: y = '\u2028'"]
    )
    text = (folder / "fused_lines_a.py").read_text(encoding="utf-8")
    assert text == (
        f"{source}\n# where it was planned first:\n#   model.py:3 in f: x + 1\n#   model.py:4 in f: y = ' '\n"
    )
    assert module.fused_lines_a.src == source[source.index("def ") :]


def test_another_program_with_the_same_kernel_leaves_its_file_alone(folder: Path) -> None:
    source = KERNEL.replace("NAME", "fused_lines_b")
    kernel_files.module_of("fused_lines_b", source, ["a.py:1 in f: one"])
    before = (folder / "fused_lines_b.py").read_text(encoding="utf-8")
    kernel_files.write_kernel("fused_lines_b", source, ["b.py:1 in f: other"])
    assert (folder / "fused_lines_b.py").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("added", ["import os\n", "# a\nimport os\n", "# a\rimport os\n", "#a\n", "# a\x0cimport os"])
def test_a_file_with_more_than_comments_is_written_anew(folder: Path, added: str) -> None:
    source = KERNEL.replace("NAME", "fused_lines_c")
    folder.mkdir()
    path = folder / "fused_lines_c.py"
    path.write_bytes((source + added).encode())
    assert kernel_files.write_kernel("fused_lines_c", source, ["a.py:1"]) == path
    assert path.read_text(encoding="utf-8") == commented(source, ["a.py:1"])


def test_many_lines_are_counted_and_any_name_of_a_file_can_be_written() -> None:
    text = commented("def f(): ...\n", [f"{n}.py\udcff" for n in range(30)])
    assert is_kernel(text, "def f(): ...\n")
    assert text.encode().endswith(b"#   23.py \n#   and 6 more\n")
    assert commented("x", []) == "x"


def chain(x: Tensor) -> Tensor:
    return (x * 1.625 + 0.375).exp().tanh()  # the line of the chain


@pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here")
def test_a_kernel_in_c_says_its_lines_too(folder: Path) -> None:
    x = Tensor.ones((8, 24), Device.cpu())
    step = compile(chain, fuse=True)
    step(x).into_data()
    (report,) = explain(step, x).fusion.kernels  # type: ignore[union-attr]  # it is fused
    (file,) = folder.glob("*.c")
    assert report.c_source == file.read_text(encoding="utf-8")
    (line,) = [line for line in file.read_text(encoding="utf-8").splitlines() if "the line of the chain" in line]
    assert line.startswith(f"//   {__file__}:")
    assert report.source is not None
    assert "# where it was planned first:\n" in report.source
