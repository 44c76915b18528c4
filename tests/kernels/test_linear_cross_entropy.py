"""Properties of linear_cross_entropy that a table of problems cannot state: chunks, accumulation, memory, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelError, KernelShapeError, cublaslt, linear_cross_entropy
from burn_kernels.launch import H200, machine_of
from burn_kernels.linear_cross_entropy import Config
from burn_kernels.spec import Draw

DRAW = Draw(7)
X, W, B = DRAW.normal(10, 6), DRAW.normal(33, 6), DRAW.normal(33)
TARGETS = DRAW.integers(0, 33, 10)
TARGETS[3] = -100


@pytest.mark.parametrize("rows", [1, 3, 10, 64])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_chunks_do_not_change_the_result(rows: int, reduction: str) -> None:
    config = Config(rows)
    expected = linear_cross_entropy.reference(X, W, TARGETS, B, reduction=reduction, smoothing=0.1)
    chunked = linear_cross_entropy.forward(X, W, TARGETS, B, reduction=reduction, smoothing=0.1, config=config)
    torch.testing.assert_close(chunked, expected)
    dy = torch.randn(expected.shape, dtype=torch.float64, generator=DRAW.generator)
    exact = linear_cross_entropy.reference_backward(dy, X, W, TARGETS, B, reduction=reduction, smoothing=0.1)
    back = linear_cross_entropy.backward(dy, X, W, TARGETS, B, reduction=reduction, smoothing=0.1, config=config)
    torch.testing.assert_close(back, exact)
    if reduction != "none":
        loss, *grads = linear_cross_entropy.forward_with_gradient(
            X, W, TARGETS, B, reduction=reduction, smoothing=0.1, config=config
        )
        one = linear_cross_entropy.reference_backward(
            torch.ones_like(loss), X, W, TARGETS, B, reduction=reduction, smoothing=0.1
        )
        torch.testing.assert_close((loss, *grads), (expected, *one))


@pytest.mark.parametrize("rows", [3, 64])
def test_upstream_gradients_that_are_known_come_in_with_the_losses(rows: int) -> None:
    dloss = torch.rand(10, dtype=torch.float64, generator=DRAW.generator)
    results = linear_cross_entropy.losses_with_gradient(dloss, X, W, TARGETS, B, smoothing=0.1, config=Config(rows))
    losses = linear_cross_entropy.reference(X, W, TARGETS, B, reduction="none", smoothing=0.1)
    exact = linear_cross_entropy.reference_backward(dloss, X, W, TARGETS, B, reduction="none", smoothing=0.1)
    torch.testing.assert_close(results, (losses, *exact))
    same = linear_cross_entropy.losses_with_gradient(torch.ones((), dtype=torch.float64).expand(10), X, W, TARGETS)
    ones = linear_cross_entropy.reference_backward(torch.ones(10, dtype=torch.float64), X, W, TARGETS, reduction="none")
    torch.testing.assert_close(same[1:3], ones[:2])
    with pytest.raises(KernelShapeError, match=r"(?s)dloss has another shape.*dloss \(9,\).*dloss \(10,\)"):
        linear_cross_entropy.losses_with_gradient(dloss[:9], X, W, TARGETS)


def test_weight_gradients_are_summed_in_float32_unless_told_otherwise() -> None:
    x, w = X.bfloat16().repeat(40, 1), W.bfloat16()
    targets = TARGETS.repeat(40)
    exact = linear_cross_entropy.reference_backward(
        torch.ones((), dtype=torch.float64), x.double(), w.double(), targets
    )

    def error(accumulate: torch.dtype | None) -> float:
        dw = linear_cross_entropy.forward_with_gradient(x, w, targets, accumulate=accumulate, config=Config(2))[2]
        assert dw.dtype == torch.bfloat16
        return float((dw.double() - exact[1]).norm() / exact[1].norm())

    assert error(None) < 0.01
    assert error(torch.bfloat16) > 2 * error(None)


def test_logits_of_all_rows_are_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    empty = torch.empty

    def watched(*shape: int, **options: object) -> torch.Tensor:
        tensor: torch.Tensor = empty(*shape, **options)  # type: ignore[call-overload]  # as it came
        sizes.append(tensor.numel())
        return tensor

    monkeypatch.setattr(torch, "empty", watched)
    linear_cross_entropy.forward_with_gradient(X, W, TARGETS, config=Config(2))
    assert max(sizes) == 2 * 33


def test_the_default_keeps_the_buffer_small_and_the_products_large() -> None:
    assert linear_cross_entropy.default(128_256, 2, H200) == Config(1438)
    for vocab in (1, 1000, 32_000, 50_257, 128_256, 1_000_000):
        configs = linear_cross_entropy.candidates(vocab, 2, H200)
        assert configs[0] == linear_cross_entropy.default(vocab, 2, H200)
        assert 512 <= configs[0].rows <= 8192
        assert len(set(configs)) == len(configs)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"linear_cross_entropy: the sizes do not fit.*w \(33, 5\).*w \(vocab, cols\).*torch.nn.Linear",
            lambda: linear_cross_entropy.forward(X, W[:, :5], TARGETS),
        ),
        (
            KernelShapeError,
            r"linear_cross_entropy: the sizes do not fit.*targets \(9,\).*targets \(rows,\).*flatten",
            lambda: linear_cross_entropy.forward(X, W, TARGETS[:9]),
        ),
        (
            KernelShapeError,
            r"linear_cross_entropy: bias has another shape.*bias \(32,\).*bias \(33,\).*belong together",
            lambda: linear_cross_entropy.forward(X, W, TARGETS, B[:32]),
        ),
        (
            KernelArgumentError,
            r"needs one upstream gradient.*'none'.*'mean' or 'sum'.*call forward, then backward",
            lambda: linear_cross_entropy.forward_with_gradient(X, W, TARGETS, reduction="none"),
        ),
        (
            KernelShapeError,
            r"linear_cross_entropy backward: dloss has another shape.*dloss \(10,\).*expected: dloss \(\)",
            lambda: linear_cross_entropy.backward(torch.ones(10), X, W, TARGETS),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_the_products_whose_proposals_are_timed_are_those_that_run(kind: torch.dtype) -> None:
    x, w = torch.zeros(24, 16, dtype=torch.bfloat16), torch.zeros(64, 16, dtype=torch.bfloat16)
    chunk, logits = x[8:16], torch.zeros(12, 64, dtype=torch.bfloat16)[:8]
    front = cublaslt.problem_of(chunk, w.T, out=logits)
    back = cublaslt.problem_of(logits.T, chunk, out=torch.zeros(64, 16, dtype=kind), adds=True)
    assert linear_cross_entropy._products(8, 16, 64, torch.bfloat16, kind) == (front, back)


@pytest.mark.gpu
def test_proposals_of_cublaslt_give_the_same_loss_and_gradients() -> None:
    x, w = torch.randn(4096, 2048, device="cuda").bfloat16(), torch.randn(64_000, 2048, device="cuda").bfloat16() / 32
    targets = torch.randint(0, 64_000, (4096,), device="cuda")
    plain = linear_cross_entropy.default(64_000, 2, machine_of(x))
    for accumulate in (None, torch.bfloat16):
        results = linear_cross_entropy.forward_with_gradient(x, w, targets, accumulate=accumulate)
        expected = linear_cross_entropy.forward_with_gradient(x, w, targets, accumulate=accumulate, config=plain)
        for one, other in zip(results[:3], expected[:3], strict=True):
            assert (one.double() - other.double()).norm() < 4e-3 * other.double().norm()
