"""The public API through a strict type checker: `uses.py`, the examples of the README, and nothing inferred as Any."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(*paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy", reason="this test runs mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    files = [str(path) for path in paths]
    return subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_strict_types_of_what_users_write(tmp_path):
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert blocks
    written = []
    for number, block in enumerate(blocks):
        path = tmp_path / f"readme_{number}.py"
        path.write_text(block, encoding="utf-8")
        written.append(path)
    report = mypy(HERE / "uses.py", *written)
    assert (report.returncode, report.stderr) == (0, ""), report.stdout


@pytest.mark.slow
def test_packages_have_the_names_that_they_import_and_no_others(tmp_path):
    uses = tmp_path / "names.py"
    uses.write_text(
        "from burn_torch.nn import Initializer, Linear, MseLoss, Padding, Relu\n"
        "from burn_torch.onnx.operators import add, operator\n"
        "from burn_torch.train import AccuracyMetric, Learner, LossInput, adapt\n"
    )
    checked = mypy(uses)
    assert re.findall(r'Module "(.+)" has no attribute "(.+)"', checked.stdout) == [
        ("burn_torch.nn", "Padding"),
        ("burn_torch.onnx.operators", "operator"),
        ("burn_torch.train", "adapt"),
    ]
    assert checked.stdout.count("error:") == 3


@pytest.mark.slow
def test_a_mistake_in_such_a_file_is_reported(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from burn_torch import Tensor\n\n\ndef rank(x: Tensor) -> str:\n    return x.dims()\n")
    report = mypy(wrong)
    assert report.returncode == 1
    assert 'got "tuple[int, ...]", expected "str"' in report.stdout
