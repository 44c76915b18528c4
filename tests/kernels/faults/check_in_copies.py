"""Runs `check` on copies of the package, each in a process of its own, in Triton's interpreter.

    TRITON_INTERPRET=1 python check_in_copies.py JOBS.json

JOBS is a list of {"path": the folder that holds the copy, "model": a name from MODELS, or a number of random shapes of
the operation "op"}; the answer is a list of {"ok", "faults": [the finding as text], "configs": [...], "notes": [...]}.
The processes are forks of this one, so torch, its compiler (which `check` turns off) and Triton are imported once.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import triton.runtime.interpreter  # here, once for all copies  # noqa: F401
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[3]))  # which holds no burn_kernels: that is of the copy


class Slice(nn.Module):
    """Normalises a part of what a linear layer gives: rows with gaps between them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 20), nn.LayerNorm(9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)[:, 4:13])  # type: ignore[no-any-return]  # modules


class Norms(nn.Module):
    """Norms of two widths, the narrow one first."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.linear, self.wide = nn.RMSNorm(8), nn.Linear(8, 45), nn.LayerNorm(45)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(self.linear(self.narrow(x)))  # type: ignore[no-any-return]  # modules


class Classifier(nn.Module):
    """A classifier with its loss inside; `reduction` as of the loss."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.linear, self.loss = nn.Linear(6, 11), nn.CrossEntropyLoss(reduction=reduction)
        self.targets = torch.tensor([3, -100, 10, 0, -100])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(self.linear(x), self.targets)  # type: ignore[no-any-return]  # modules


class Gated(nn.Module):
    """A gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        from burn_kernels.torch import SwiGLU

        self.both, self.act, self.down = nn.Linear(6, 26), SwiGLU(), nn.Linear(13, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.both(x)))  # type: ignore[no-any-return]  # modules


MODELS: dict[str, Callable[[], nn.Module]] = {
    "slice": Slice,
    "norms": Norms,
    "classifier": lambda: Classifier("mean"),
    "weighted classifier": lambda: Classifier("none"),
    "gated": Gated,
    "attention": lambda: nn.Sequential(nn.Linear(6, 40), nn.Softmax(-1)),
}
INPUTS = {"norms": 8}


def run(job: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, job["path"])
    import burn_kernels
    from burn_kernels.torch import Report, check, patch
    from tests.interpreted.mends import mended  # which imports the copy's burn_kernels

    home = burn_kernels.__file__
    assert home is not None
    assert Path(home).is_relative_to(job["path"])
    mended(Kept)
    report: Report
    if isinstance(job["model"], int):
        report = check(ops=[job["op"]], shapes=job["model"], seed=job["seed"])
    else:
        torch.manual_seed(0)
        model = MODELS[job["model"]]()
        patch(model)
        report = check(model, torch.randn(5, INPUTS.get(job["model"], 6)))
    return {
        "ok": report.ok,
        "faults": [str(finding) for finding in report.faulty],
        "configs": sorted({finding.config for finding in report.findings}),
        "ops": sorted({finding.op for finding in report.findings}),
        "notes": list(report.notes),
    }


class Kept:
    """Takes what `mended` exchanges, and gives nothing back."""

    setattr = staticmethod(setattr)


def in_a_fork(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            status = 1
            try:
                answer.write_text(json.dumps(run(job)), encoding="utf-8")
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status:
            return {"ok": False, "faults": [f"the process ended with {status}"], "configs": [], "ops": [], "notes": []}
        answer_of_check: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return answer_of_check


if __name__ == "__main__":
    # numpy says so where kernels compute with infinities on purpose, in lanes that are masked or replaced
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of forks where other threads may be
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps([in_a_fork(job) for job in jobs]))
