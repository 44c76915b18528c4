"""`burn-torch explain SCRIPT.py`: any script, what it computed, what it says where it fails."""

from __future__ import annotations

import json

import pytest

BOTH = """
import sys, threading
import burn_torch
from burn_torch import Device, Tensor

def gelu(x):
    return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0

@burn_torch.compile
def step(w):
    return w - (w * 2.0).tanh() * 0.1

if __name__ == "__main__":
    device = Device.cpu()
    w = Tensor.ones((4, 8), device)
    for _ in range(300):
        w = step(w)
        value = float(gelu(w).sum())
    print("printed", sys.argv[1:])
    other = threading.Thread(target=lambda: gelu(w * 3.0).into_data())
    other.start()
    other.join()
    held = gelu(w) + 1.0
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "both.py"
    path.write_text(BOTH)
    return path


def test_all_streams_and_compiled_functions(burn, script, tmp_path):
    done = burn("explain", "both.py", "--html", "page.html", "--", "--layers", "2", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("printed ['--layers', '2']\nboth.py: 2 streams, 1 compiled program\n")
    assert "300 times, operation by operation; as kernels it would be" in done.out  # more than a stream remembers
    assert "div, erf, add, mul, div, sum" in done.out
    assert "at both.py:7 in gelu: return x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0" in done.out
    assert "div, erf, add, mul, div, add" in done.out, "what is held at the end is computed"
    assert "mul, div, erf, add, mul, div" in done.out, "the other thread's"
    assert "step on LibTorch" in done.out
    assert "not fused; with fuse=True it would be\n    1 kernel, 1 generated, of 4 operations" in done.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 4
    assert "#pragma omp" in page
    assert page.count("<html") == 1


def test_what_a_script_prints_keeps_its_colours_and_bars(burn, tmp_path):
    """They came out as backslashes: the output of other commands is cleaned of what files hold."""
    lines = 'import sys\nprint("\\x1b[31mred\\x1b[0m")\nsys.stderr.write("\\r1 of 2\\r2 of 2\\n")\n'
    (tmp_path / "bar.py").write_text(lines)
    done = burn("explain", "bar.py", cwd=tmp_path)
    assert "\x1b[31mred\x1b[0m\n" in done.out
    assert "\n1 of 2\n2 of 2\n" in done.err  # the pipe of the test reads a return as an end of a line


def test_as_json_with_nothing_else_on_the_stream(burn, script, tmp_path):
    (tmp_path / "page.html").write_text("old")
    done = burn("explain", "both.py", "--json", "--html", "page.html", cwd=tmp_path)
    assert done.code == 0
    assert "printed []" in done.err
    report = json.loads(done.out)
    assert [stream["place"] for stream in report["streams"]] == ["cpu", "cpu"]
    assert report["fault"] is None
    assert report["functions"][0]["if_fused"]["kernels"][0]["rows"] == ["mul", "tanh", "mul", "sub"]
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_sources_and_graphs(burn, script, tmp_path):
    assert "#pragma omp" in burn("explain", "both.py", "--source", cwd=tmp_path).out
    assert '["tanh", ' in burn("explain", "both.py", "--graph", cwd=tmp_path).out


def test_what_was_computed_before_an_error_is_explained(burn, tmp_path):
    (tmp_path / "fails.py").write_text(
        "from burn_torch import Device, Tensor\nx = Tensor.ones((4,), Device.cpu())\nfloat((x * 2.0).exp().sum())\n"
        "1 / 0\n"
    )
    done = burn("explain", "fails.py", cwd=tmp_path)
    assert done.code == 1
    assert done.out.startswith(
        "fails.py: 1 stream, 0 compiled programs; ended by ZeroDivisionError: division by zero\n"
    )
    assert "mul, exp, sum" in done.out
    assert 'File "fails.py", line 4, in <module>' in done.err
    assert "ZeroDivisionError" in done.err


@pytest.mark.parametrize(
    ("source", "code", "out", "err"),
    [
        ("print('no tensors')", 2, "no tensors\n", "nothing to explain"),
        ("x = (", 1, "0 streams", "SyntaxError"),
        ("import sys; sys.exit(3)", 3, "ended by SystemExit: 3", ""),
        ("import sys; sys.exit(0)", 2, "", "nothing to explain"),
    ],
)
def test_scripts_that_compute_nothing(burn, tmp_path, source, code, out, err):
    (tmp_path / "script.py").write_text(source)
    done = burn("explain", "script.py", cwd=tmp_path)
    assert done.code == code
    assert out in done.out
    assert err in done.err


def test_the_variable_decides_what_is_fused(burn, script, tmp_path):
    done = burn("explain", "both.py", cwd=tmp_path, BURN_TORCH_FUSION="0")
    assert "both.py: 0 streams, 1 compiled program" in done.out


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        (["both.py", "--html", "both.py"], ("a file that is there", "ends in .html")),
        (["both.py", "--html", "nowhere/page.html"], ("cannot be written", "No such file")),
        (["both.py", "--html", "."], ("cannot be written", "Is a directory")),
        (["both.py", "--batch-size", "3"], ("settings of a recipe", "--batch-size, for both.py")),
        (["digits", "--", "x"], ("arguments of a script", "x, for digits")),
        (["nowhere.py"], ("this recipe file does not exist", "nowhere.py")),
    ],
)
def test_words_that_do_not_fit_run_nothing(burn, script, tmp_path, words, complaints):
    done = burn("explain", *words, cwd=tmp_path)
    assert done.code in (2, 5)
    assert done.out == ""
    assert all(part in done.err for part in complaints), done.err
    assert script.read_text() == BOTH


def test_a_recipe_as_a_page(burn, tmp_path):
    small = ["--set", "channels=4", "--set", "hidden=8"]
    assert burn("explain", "digits", "--fuse", "--html", "page.html", *small, cwd=tmp_path).code == 0
    assert "tl.store(" in (tmp_path / "page.html").read_text(encoding="utf-8")
