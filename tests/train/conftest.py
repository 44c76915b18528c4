"""The small training that these tests share, as a module and as a process."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def program() -> ModuleType:
    """tests/train/program.py as a module."""
    spec = importlib.util.spec_from_file_location("train_program", HERE / "program.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_program"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """Starts program.py as a process with these options."""

    def started(**options: Any) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
        # as many threads as here: the bits of a sum depend on how it is cut
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "PYTHONWARNINGS": "error",
        }
        return subprocess.Popen(
            [sys.executable, str(HERE / "program.py"), json.dumps({**options, "dir": str(options["dir"])})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    return started
