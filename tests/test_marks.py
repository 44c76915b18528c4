"""The marks `slow` and `gpu`, the folder `interpreted` and the fixture `seed`, in a pytest of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.gpu
def test_gpu(): pass
"""
DRAW = """
def test_a(seed): print("drew a", seed.integers(1 << 62))
def test_b(seed): print("drew b", seed.integers(1 << 62))
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A small project with our settings and conftest, and one test of each kind."""
    (tmp_path / "tests" / "interpreted").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "tests" / "interpreted" / "test_kernel.py").write_text("def test_kernel(): pass\n")
    return tmp_path


def pytest_in(suite: Path, *arguments: str, **environment: str) -> str:
    ours = {name: value for name, value in os.environ.items() if name not in ("BURN_TORCH_SLOW", "TRITON_INTERPRET")}
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments]
    variables = ours | {"CUDA_VISIBLE_DEVICES": ""} | environment
    ran = subprocess.run(command, cwd=suite, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def passed(output: str) -> set[str]:
    return set(re.findall(r"^PASSED \S+::test_(\w+)$", output, re.MULTILINE))


def test_plain_pytest_skips_by_name_what_it_is_not_for(suite: Path) -> None:
    pytest.importorskip("torch")
    output = pytest_in(suite, "tests")
    assert passed(output) == {"plain"}
    assert re.search(r"SKIPPED .* gpu: torch finds no CUDA device", output)
    assert re.search(r"SKIPPED .* slow: make test-all runs it, or BURN_TORCH_SLOW=1, or -m slow", output)
    assert re.search(r"SKIPPED .* needs TRITON_INTERPRET=1 in a process of its own: make test", output)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["-m", "not slow and not gpu"], {}, {"plain"}),
        (["-m", "not gpu"], {"BURN_TORCH_SLOW": "1"}, {"plain", "slow"}),
        (["-m", "slow"], {}, {"slow"}),
        (["tests/interpreted"], {"TRITON_INTERPRET": "1"}, {"kernel"}),
    ],
    ids=["make test", "make test-all", "-m slow", "interpreted"],
)
def test_what_runs(suite: Path, arguments: list[str], environment: dict[str, str], expected: set[str]) -> None:
    assert passed(pytest_in(suite, *arguments, **environment)) == expected


def test_each_test_draws_its_own_numbers_in_every_run(suite: Path) -> None:
    (suite / "tests" / "test_draw.py").write_text(DRAW)
    both = re.findall(r"drew \w (\d+)", pytest_in(suite, "tests/test_draw.py", "-s"))
    again = re.findall(r"drew \w (\d+)", pytest_in(suite, "tests/test_draw.py", "-s", "-k", "test_b"))
    assert len(set(both)) == 2
    assert again == [both[1]]


def test_pytest_benchmark_beside_xdist_does_not_end_the_run(suite: Path) -> None:
    # the plugin says so in pytest_configure, where our filter makes errors of warnings
    words = "Benchmarks are automatically disabled because xdist plugin is active."
    (suite / "noisy.py").write_text(
        f"import warnings\ndef pytest_configure(config): warnings.warn(Warning({words!r}))\n"
    )
    assert passed(pytest_in(suite, "-p", "noisy", "tests/test_sample.py", PYTHONPATH=str(suite))) == {"plain"}
