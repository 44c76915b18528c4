"""Tests what needs no torch: help, version, the import of the command; and output that nobody reads to its end."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "sys.modules.update(torch=None, numpy=None)"
HELP = {
    "--help": [
        "COMMAND",
        "attach",
        "cache",
        "export",
        "import",
        "info",
        "predict",
        "train",
        "burn-torch train digits",
        "--debug",
        "exit codes: 0",
    ],
    "train --help": [
        "RECIPE",
        "--epochs N",
        "--set KEY=VALUE",
        "--resume",
        "--artifact-dir DIR",
        "fashion-mnist",
        "settings:",
        "machine:",
        "output:",
        "examples:",
    ],
    "predict --help": ["ARTIFACT_DIR", "INPUT", "--json", ".npy", "0 to 16 for digits"],
    "import --help": ["MODEL.onnx", "--out DIR", "--report", "--memory-limit MIB"],
    "attach --help": ["DIR", "--once", "--plain", "never touches the run"],
    "export --help": ["RUN_OR_FILE", "--to FORMAT", "--batch N", "--half", "onnx, safetensors, bpk"],
    "info --help": ["--json", "versions, devices"],
    "cache --help": ["--yes", "programs, kernels, timings, triton", "examples:"],
}


def spent_s() -> float:
    """Processor seconds of all children so far: help waits for nothing, so on an idle machine it takes as long."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.mark.parametrize("command", HELP)
def test_help_is_quick_and_needs_neither_torch_nor_numpy(command, fresh, tree, tmp_path):
    seconds = []
    for _ in range(20 if command == "--help" else 3):
        start = spent_s()
        done = fresh(*command.split(), cwd=tmp_path, before=ABSENT)
        seconds.append(spent_s() - start)
        assert (done.code, done.err) == (0, "")
    for text in HELP[command]:
        assert text in " ".join(done.out.split())
    assert "SUPPRESS" not in done.out  # an option that is to be hidden
    prose = [line for line in done.out.splitlines() if not line.startswith(("  burn-torch ", "  echo ", "  eval "))]
    assert max(map(len, prose)) <= 82  # of a terminal of 80; lines to copy are not broken
    assert statistics.median(seconds) <= 0.3, seconds
    assert tree(tmp_path) == {}


def test_version(fresh, tmp_path):
    from burn_torch.version import __version__

    done = fresh("--version", cwd=tmp_path, before=ABSENT)
    assert (done.code, done.out, done.err) == (0, f"burn-torch {__version__}\n", "")


def test_the_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "burn_torch", "--version"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("burn-torch ")


@pytest.mark.parametrize("module", ["burn_torch", "burn_torch.cli.main", "burn_torch.config", "burn_torch.core.errors"])
def test_imports_that_bring_no_torch(module):
    code = f"import {module}, sys\nprint(sorted({{'torch', 'numpy', 'safetensors', 'triton'}} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_reader_that_has_enough():
    code = """
import os, sys
from burn_torch.cli.main import main
read, write = os.pipe()
os.close(read)  # as `| head -1` does when it has its line
os.dup2(write, 1)
sys.exit(main(["info"]))
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (141, "")
