"""Requests of the binding of cuBLASLt to the library: sizes, numbers, addresses; the library itself is on a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from burn_kernels import cublaslt
from burn_kernels.errors import KernelArgumentError, KernelDTypeError, KernelError, KernelLimitError, KernelShapeError

HALF = torch.bfloat16


def matrix(rows: int, cols: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(rows, cols).to(dtype)


def multiplied(problem: cublaslt.Problem, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Computes a problem by the library's own rules: columns of neighbours, read across where turned."""

    def seen(layout: cublaslt.Layout, t: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(t, (layout.rows, layout.cols), (1, layout.step), t.storage_offset())

    a, b = seen(problem.first, w), seen(problem.second, x)
    a, b = a.T if problem.turned[0] else a, b.T if problem.turned[1] else b
    out = a @ b
    assert out.shape == (problem.result.rows, problem.result.cols)
    return out.T


@pytest.mark.parametrize("x_turned", [False, True])
@pytest.mark.parametrize("w_turned", [False, True])
def test_operands_of_every_layout_give_the_product(x_turned: bool, w_turned: bool) -> None:
    x = matrix(5, 7, torch.float64).T.contiguous().T if x_turned else matrix(5, 7, torch.float64)
    w = matrix(7, 3, torch.float64).T.contiguous().T if w_turned else matrix(7, 3, torch.float64)
    wide = torch.randn(5, 12, dtype=torch.float64)[:, 2:9]  # rows that are apart
    for left in (x, wide):
        (first, w_packed), (second, x_packed) = cublaslt.layout_of(w), cublaslt.layout_of(left)
        problem = cublaslt.Problem(
            first, second, cublaslt.Layout(3, 5, 3), (not w_packed, not x_packed), torch.float32, torch.float32,
            "none", bias=False, adds=False, tf32=False,
        )  # fmt: skip
        torch.testing.assert_close(multiplied(problem, left, w), left @ w)


def test_a_problem_says_what_was_given() -> None:
    x, w, bias = matrix(16, 8), matrix(24, 8).T, torch.zeros(24, dtype=HALF)
    problem = cublaslt.problem_of(x, w, bias, ending="gelu_kept")
    assert (problem.first, problem.second) == (cublaslt.Layout(8, 24, 8), cublaslt.Layout(8, 16, 8))
    assert (problem.result, problem.turned) == (cublaslt.Layout(24, 16, 24), (True, False))
    assert problem.epilogue == 164
    assert cublaslt.problem_of(x, w, ending="gelu_kept").epilogue == 160
    assert cublaslt.problem_of(x, w, ending="gelu_slope", kept=matrix(16, 24)).epilogue == 192
    out = torch.zeros(16, 30)[:, :24]
    added = cublaslt.problem_of(x, w, out=out, adds=True)
    assert (added.result.step, added.result_dtype, added.adds) == (30, torch.float32, True)


X, W = matrix(16, 8), matrix(8, 24)
FAULTS: list[tuple[type[KernelError], str, tuple[Any, ...], dict[str, Any]]] = [
    (KernelShapeError, r"sizes do not fit[\s\S]*x \(rows, inner\)", (X, matrix(9, 24)), {}),
    (KernelShapeError, r"bias \(24,\)", (X, W, torch.zeros(8, dtype=HALF)), {"ending": "bias"}),
    (KernelShapeError, r"kept \(16, 24\), packed", (X, W), {"ending": "gelu_slope", "kept": matrix(24, 16).T}),
    (KernelShapeError, r"out \(16, 24\)", (X, W), {"out": matrix(16, 8)}),
    (KernelArgumentError, "no such ending", (X, W), {"ending": "tanh"}),
    (KernelArgumentError, "`kept` with the endings gelu_slope", (X, W), {"ending": "gelu_slope"}),
    (KernelArgumentError, "a bias with the ending bias", (X, W), {"ending": "bias"}),
    (KernelArgumentError, "`out` where something is added", (X, W), {"adds": True}),
    (KernelDTypeError, "element types do not fit", (X, W.float()), {}),
    (KernelDTypeError, "out may be float32", (X.float(), W.float()), {"out": matrix(16, 24)}),
    (KernelLimitError, "elements are all apart", (matrix(16, 16)[:, ::2], W), {}),
]


@pytest.mark.parametrize(("kind", "words", "given", "options"), FAULTS)
def test_mistakes_have_words(
    kind: type[KernelError], words: str, given: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=words):
        cublaslt.problem_of(*given, **options)


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "library", lambda: None)
    cublaslt._plan.cache_clear()
    with pytest.raises(KernelLimitError, match="library is not there"):
        cublaslt.product(X, W)
    assert cublaslt.proposals(cublaslt.problem_of(X, W), 0) == 0


class Stub:
    """Stands for the library: remembers what it was asked, and refuses one function."""

    def __init__(self, refused: str = "") -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.refused = refused

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.asked.append((name, arguments))
            return 15 if name == self.refused else 0

        self.__dict__[name] = call
        return call


def test_the_library_hears_of_a_problem() -> None:
    stub = Stub()
    problem = cublaslt.problem_of(X, W, ending="gelu_slope", kept=matrix(16, 24))
    cublaslt.Library(stub).described(problem)  # type: ignore[arg-type]  # a stand-in
    set_to = {a[1].value: a[2]._obj.value for name, a in stub.asked if name == "cublasLtMatmulDescSetAttribute"}
    assert set_to == {3: 0, 4: 0, 7: 192, 11: cublaslt._SOMEWHERE, 12: 24}
    layouts = [[x.value for x in a[1:]] for name, a in stub.asked if name == "cublasLtMatrixLayoutCreate"]
    assert layouts == [[14, 24, 8, 24], [14, 8, 16, 8], [14, 24, 16, 24]]


def test_a_refusal_is_an_error_with_its_name() -> None:
    library = cublaslt.Library(Stub("cublasLtMatmulDescCreate"))  # type: ignore[arg-type]  # a stand-in
    with pytest.raises(KernelLimitError, match=r"cublasLtMatmulDescCreate failed[\s\S]*15, not supported"):
        library.described(cublaslt.problem_of(X, W))


def test_a_proposal_is_as_long_as_the_librarys() -> None:
    assert ctypes.sizeof(cublaslt._Proposal) == 96


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_endings_agree_with_float64(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, w, bias = (torch.randn(*s, device="cuda").to(dtype) for s in ((384, 64), (64, 256), (256,)))
    y, z = cublaslt.product(x, w, bias, ending="gelu_kept")
    exact = torch.addmm(bias.double(), x.double(), w.double())
    gelu = torch.nn.functional.gelu
    assert z is not None
    torch.testing.assert_close(z.double(), exact, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(y.double(), gelu(exact, approximate="tanh"), rtol=1e-2, atol=1e-2)
    g, turned = torch.randn(384, 96, device="cuda").to(dtype), torch.randn(256, 96, device="cuda").to(dtype)
    wide = z.double().requires_grad_()
    (slope,) = torch.autograd.grad(gelu(wide, approximate="tanh"), wide, g.double() @ turned.double().T)
    dz, sums = cublaslt.product(g, turned.T, ending="gelu_slope_and_sums", kept=z)
    assert sums is not None
    torch.testing.assert_close(dz.double(), slope, rtol=2e-2, atol=5e-2)
    torch.testing.assert_close(sums.double(), slope.sum(0), rtol=2e-2, atol=1.0)
    out = torch.ones(64, 256, device="cuda")
    cublaslt.product(x.T, dz, out=out, adds=True)
    torch.testing.assert_close(out.double(), 1 + x.T.double() @ dz.double(), rtol=1e-3, atol=1e-1)
    for rank in range(cublaslt.proposals(cublaslt.problem_of(x, w, bias, ending="bias"), 0)):
        product, _ = cublaslt.product(x, w, bias, ending="bias", rank=rank)
        torch.testing.assert_close(product.double(), exact, rtol=1e-2, atol=1e-2)
