"""Twelve faults, planted one by one in a copy of the package: `check` finds each on a model that it affects.

The patches are unified diffs; their line numbers may drift, what they change and the lines around it may not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from burn_kernels.torch._problems import DRAWN

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[2] / "kernels" / "burn_kernels"
pytest.importorskip("triton")


@dataclass(frozen=True)
class Fault:
    """A planted fault: a model that it affects, the finding that must name it, and what that must say."""

    model: str
    op: str
    where: str
    words: str


FAULTS = {
    "accumulation_in_bf16": Fault("attention", "softmax", "1", "output: relative RMS error"),
    "arguments_swapped": Fault("gated", "swiglu", "act", "gradient of gate: relative RMS error"),
    "dropped_weight_gradient": Fault("norms", "layer_norm", "wide", "no gradient for an input that has one"),
    "ignore_index_counted_in_the_mean": Fault("classifier", "cross_entropy", "loss", "output: relative RMS error"),
    "input_overwritten": Fault("norms", "layer_norm", "wide", "the forward writes to x"),
    "int32_offset": Fault("norms", "layer_norm", "wide", "offsets past 32 bits: output: relative RMS error"),
    "scale_skipped": Fault("classifier", "cross_entropy", "loss", "gradient of x: relative RMS error"),
    "stale_config": Fault("norms", "layer_norm", "wide", "output: "),
    "uninitialised_output_tail": Fault("gated", "swiglu", "act", "output: relative RMS error nan"),
    "upstream_gradient_read_as_a_scalar": Fault(
        "weighted classifier", "cross_entropy", "loss", "gradient of x: relative RMS error"
    ),
    "wrong_mask_at_a_ragged_edge": Fault("slice", "layer_norm", "norm", "output: relative RMS error"),
    "wrong_stride": Fault("slice", "layer_norm", "norm", "output: relative RMS error"),
}
MODELS = sorted({fault.model for fault in FAULTS.values()})


# -- patches -------------------------------------------------------------------------------------------
def apply(patch: str, root: Path) -> None:
    """Applies a unified diff below `root`; each hunk's lines must be there exactly once."""
    lines = patch.splitlines()
    path = root / next(line for line in lines if line.startswith("+++ ")).split("b/", 1)[1]
    text = path.read_text(encoding="utf-8")
    starts = [at for at, line in enumerate(lines) if line.startswith("@@")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        hunk = lines[start + 1 : end]
        before = "\n".join(line[1:] for line in hunk if not line.startswith("+")) + "\n"
        after = "\n".join(line[1:] for line in hunk if not line.startswith("-")) + "\n"
        if text.count(before) != 1:
            raise ValueError(f"{path.name}: {text.count(before)} places fit\n{before}")
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def copy(root: Path, patch: str | None = None) -> str:
    """A copy of the package below `root`, with a patch or as it is; returns the folder to import it from.

    Bytecode comes along: it names size and time of its source, which a patch changes.
    """
    shutil.copytree(PACKAGE, root / "burn_kernels")
    if patch is not None:
        apply((HERE / f"{patch}.patch").read_text(encoding="utf-8"), root)
    return str(root)


def run(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Returns the answer of `check` to each job; see check_in_copies."""
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, str(HERE / "check_in_copies.py"), str(folder / "jobs.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
    answers_of_jobs: list[dict[str, Any]] = json.loads(ran.stdout)
    return answers_of_jobs


# -- what is found -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Returns the answers of `check` to each fault on its model, and to the clean package on every model."""
    folder = tmp_path_factory.mktemp("copies")
    clean = copy(folder / "clean")
    jobs: dict[str, dict[str, Any]]
    jobs = {name: {"path": copy(folder / name, name), "model": fault.model} for name, fault in FAULTS.items()}
    jobs |= {f"clean {model}": {"path": clean, "model": model} for model in MODELS}
    return dict(zip(jobs, run(list(jobs.values()), folder), strict=True))


def test_there_are_twelve_and_each_has_a_patch() -> None:
    assert len(FAULTS) == 12
    assert sorted(path.stem for path in HERE.glob("*.patch")) == sorted(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_check_finds_and_names(name: str, answers: dict[str, dict[str, Any]]) -> None:
    fault, answer = FAULTS[name], answers[name]
    assert not answer["ok"]
    named = [text for text in answer["faults"] if text.startswith(f"{fault.op} in {fault.where}: ")]
    assert any(fault.words in text for text in named), answer["faults"]
    first = named[0].splitlines()[0]
    assert "float32; " in first
    assert "BLOCK=" in first or "LANES=" in first  # the config


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_in_the_clean_package(model: str, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[f"clean {model}"]
    assert (answer["ok"], answer["faults"], answer["notes"]) == (True, [], [])
    assert not any("reference used" in config for config in answer["configs"])


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(DRAWN))
def test_nothing_is_found_on_fifty_drawn_shapes(op: str, tmp_path: Path) -> None:
    (answer,) = run([{"path": copy(tmp_path / "clean"), "model": 50, "op": op, "seed": 1}], tmp_path)
    assert (answer["ok"], answer["notes"]) == (True, []), "\n".join(answer["faults"])
    assert answer["ops"] == [op]


# -- the helper ----------------------------------------------------------------------------------------
def test_a_patch_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    root = Path(copy(tmp_path / "copy"))
    patch = (HERE / "wrong_stride.patch").read_text(encoding="utf-8")
    apply(patch, root)
    with pytest.raises(ValueError, match=r"__init__\.py: 0 places fit"):
        apply(patch, root)
