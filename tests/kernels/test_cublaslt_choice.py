"""Choosing among cuBLASLt's proposals: problems with inputs of their own, wrong ones left out, what is ahead wins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from burn_kernels import autotune, cublaslt_choice
from burn_kernels.cublaslt import Problem, problem_of
from burn_kernels.errors import KernelLimitError

HALF = torch.bfloat16


def matrix(rows: int, cols: int, *, turned: bool = False) -> torch.Tensor:
    return torch.zeros(cols, rows, dtype=HALF).T if turned else torch.zeros(rows, cols, dtype=HALF)


PROBLEMS = [
    problem_of(matrix(16, 8), matrix(8, 24), torch.zeros(24, dtype=HALF), ending="bias"),
    problem_of(matrix(16, 8), matrix(8, 24), torch.zeros(24, dtype=HALF), ending="gelu_kept"),
    problem_of(matrix(16, 8), matrix(8, 24, turned=True), ending="gelu_slope_and_sums", kept=matrix(16, 24)),
    problem_of(matrix(16, 8, turned=True), matrix(8, 24)),
    problem_of(matrix(16, 8, turned=True), matrix(8, 24), out=torch.zeros(16, 24), adds=True),
    problem_of(matrix(16, 8), matrix(8, 24), out=torch.zeros(16, 40, dtype=HALF)[:, :24]),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_inputs_lie_as_their_problem_says(problem: Problem) -> None:
    x, w, bias, kept, out = cublaslt_choice.inputs_of(problem, torch.device("cpu"))
    assert problem_of(x, w, bias, ending=problem.ending, kept=kept, out=out, adds=problem.adds) == problem
    if problem.result_dtype == problem.dtype:
        product = cublaslt_choice.separately(problem, x, w, bias, kept, out).double()
        z = x.double() @ w.double() + (0 if bias is None else bias.double())
        if problem.ending == "gelu_kept":
            z = torch.nn.functional.gelu(z, approximate="tanh")
        if kept is not None:
            z = torch.ops.aten.gelu_backward(z, kept.double(), approximate="tanh")
        torch.testing.assert_close(product, z, rtol=2e-2, atol=2e-2)


class Still:
    """A clock of a CPU, by which each call takes as long as somebody said."""

    device = torch.device("cpu")

    def __init__(self, times: list[float]) -> None:
        self.times = times
        self.asked = 0

    def milliseconds(self, call: Callable[[], Any]) -> float:
        call()
        self.asked += 1
        return self.times[(self.asked - 1) % len(self.times)]

    def settle(self) -> None:
        return None

    def aside(self) -> Any:
        return nullcontext()

    def spare_bytes(self) -> int:
        return 1 << 30


def answers(monkeypatch: pytest.MonkeyPatch, wrong: int | None = None, refused: int | None = None) -> None:
    """Three proposals, that compute what torch does but for these."""

    def product(x: torch.Tensor, w: torch.Tensor, bias: Any = None, *, rank: int, **_: Any) -> Any:
        if rank == refused:
            raise KernelLimitError("no algorithm")
        y = torch.mm(x, w) if bias is None else torch.addmm(bias, x, w)
        return (y + 1.0 if rank == wrong else y), None

    monkeypatch.setattr(cublaslt_choice, "product", product)
    monkeypatch.setattr(cublaslt_choice, "proposals", lambda problem, index: 3)


def test_the_fastest_that_is_right_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch)
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0, 0.9, 0.7, 0.8])) == 1
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0, 0.995, 0.999, 1.2])) is None  # as good is not ahead
    answers(monkeypatch, wrong=1)
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0, 0.9, 0.8])) == 2
    answers(monkeypatch, refused=0, wrong=2)
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0, 0.5])) == 1
    monkeypatch.setattr(cublaslt_choice, "proposals", lambda problem, index: 0)
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0])) is None


def test_where_inputs_do_not_fit_it_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    answers(monkeypatch)
    monkeypatch.setattr(cublaslt_choice, "inputs_of", full)
    assert cublaslt_choice.raced(PROBLEMS[0], Still([1.0, 0.5])) is None


def test_nothing_is_timed_where_bits_must_not_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt_choice, "raced", lambda *_: pytest.fail("timed"))
    with autotune.using("off"):
        assert cublaslt_choice.best(PROBLEMS[0], 0) is None
    with autotune.deterministic(True):
        assert cublaslt_choice.best(PROBLEMS[0], 0) is None


@pytest.mark.gpu
def test_a_choice_is_a_proposal_or_torch_and_keeps_no_memory() -> None:
    torch.mm(torch.zeros(8, 8, device="cuda"), torch.zeros(8, 8, device="cuda"))  # the workspace of this stream
    before = torch.cuda.memory_allocated()
    for problem in PROBLEMS:
        rank = cublaslt_choice.best(problem, 0)
        assert rank is None or 0 <= rank < cublaslt_choice.MOST
    assert torch.cuda.memory_allocated() <= before + (64 << 20)  # six streams would keep 192 MiB
