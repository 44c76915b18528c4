"""Attention on the CPU: beside torch's, its two diagonals, what chooses a kernel, and what the launchers refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from burn_kernels import KernelArgumentError, KernelDTypeError, KernelError, KernelShapeError, attention
from burn_kernels.attention import BackwardConfig, Config, library
from burn_kernels.attention.call import room_like
from burn_kernels.attention.configs import backward_candidates, backward_default
from burn_kernels.attention.launch_backward import CHOICE as BACKWARD
from burn_kernels.launch import A100, H200, MI300X, recording
from burn_kernels.spec import Draw

Q, K = torch.ones(2, 4, 3, 8), torch.ones(2, 2, 5, 8)
FLAT, STARTS = torch.ones(6, 2, 8), torch.tensor([0, 2, 6])
LONGEST: Any = {"longest_q": 4, "longest_k": 4}


# -- beside torch --------------------------------------------------------------------------------------
def test_the_diagonal_of_torch_is_top_left() -> None:
    q, k, v = (Draw(n).normal(1, 2, seq, 8) for n, seq in enumerate((5, 9, 9)))
    for one, other in ((q, k), (k, q)):
        expected = F.scaled_dot_product_attention(one, other, other, is_causal=True)
        torch.testing.assert_close(attention.forward(one, other, other, causal=True)[0], expected)
    y, lse = attention.forward(q, k, v, causal=True, align="bottom_right")
    for row in range(5):  # query i sees the keys to i + 4
        torch.testing.assert_close(
            y[:, :, row : row + 1],
            F.scaled_dot_product_attention(q[:, :, row : row + 1], k[:, :, : row + 5], v[:, :, : row + 5]),
        )
    torch.testing.assert_close(lse, (q @ k.mT / 8**0.5).masked_fill(_future(5, 9, 4), -torch.inf).logsumexp(-1))


def _future(rows: int, cols: int, shift: int) -> torch.Tensor:
    return torch.ones(rows, cols, dtype=torch.bool).triu(shift + 1)


def test_a_window_is_what_a_decoder_with_a_short_memory_sees() -> None:
    q = Draw(0).normal(1, 1, 7, 4)
    y, _ = attention.forward(q, q, q, causal=True, window=3)
    for row in range(7):
        seen = q[:, :, max(0, row - 2) : row + 1]
        torch.testing.assert_close(
            y[:, :, row : row + 1], F.scaled_dot_product_attention(q[:, :, row : row + 1], seen, seen)
        )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_torchs_kernel_on_the_host_is_right_about_lse_and_gradients(
    causal: bool, kv_heads: int, dtype: torch.dtype
) -> None:
    draw = Draw(5)
    q, k, v, dy = (draw.normal(2, heads, 9, 12).to(dtype) for heads in (4, kv_heads, kv_heads, 4))
    y, lse = library.forward(library.FLASH, q, k, v, causal, 0.3)
    exact = [x.double() for x in (q, k, v)]
    expected = attention.reference(*exact, causal=causal, scale=0.3)
    grads = library.backward(library.FLASH, dy, q, k, v, y, lse, causal, 0.3)
    differentiated: Any = attention.reference_backward
    others = differentiated(dy.double(), *exact, None, None, *expected, causal=causal, scale=0.3)
    size = 40 * torch.finfo(dtype).eps
    for actual, other in zip((y, lse, *grads), (*expected, *others[:3]), strict=True):
        assert other is not None
        torch.testing.assert_close(actual.double(), other, rtol=size, atol=size)


def test_packed_sequences_are_those_of_each_alone() -> None:
    draw = Draw(2)
    q, k, v = draw.normal(9, 4, 8), draw.normal(9, 2, 8), draw.normal(9, 2, 8)
    starts = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    y, lse = attention.forward_packed(q, k, v, starts, starts, longest_q=5, longest_k=5, causal=True)
    for part in (slice(0, 4), slice(4, 9)):
        alone, sums = attention.forward(*(x[part].transpose(0, 1)[None] for x in (q, k, v)), causal=True)
        torch.testing.assert_close(y[part], alone[0].transpose(0, 1))
        torch.testing.assert_close(lse[:, part], sums[0])


# -- choices -------------------------------------------------------------------------------------------
def test_torchs_choice_comes_first_where_torch_computes_the_same() -> None:
    def sources(flags: str, dim: int = 64, dtype: torch.dtype = torch.bfloat16) -> list[int]:
        facts = attention.CHOICE.problems(256, 12 * dim, dtype)[0]._replace(flags=flags, exact=(12, dim))
        return [config.library for config in attention.CHOICE.candidates(facts, H200)]

    assert sources("self causal")[:4] == [library.TORCHS, library.CUDNN, library.FLASH, library.EFFICIENT]
    assert sources("self kv_heads=4 causal")[:3] == [library.TORCHS, library.CUDNN, library.FLASH]
    assert sources("keys<=1024")[0] == library.TORCHS
    assert sources("self", dtype=torch.float32)[:2] == [library.TORCHS, library.EFFICIENT]
    ours = ("keys<=1024 causal", "self mask", "self bias", "self softcap", "self window", "self drop", "self packed")
    assert {number for flags in ours for number in sources(flags)} == {0}
    assert set(sources("self", dim=50)) == {0}
    facts = attention.CHOICE.problems(256, 768, torch.bfloat16)[0]
    assert {config.library for config in attention.CHOICE.candidates(facts, MI300X)} == {0}


def test_torchs_backward_is_a_candidate_only_where_any_order_will_do() -> None:
    facts = BACKWARD.problems(256, 768, torch.bfloat16)[0]
    assert facts.flags == "self"
    assert {config.library for config in BACKWARD.candidates(facts, H200)} == {0}
    loose = facts._replace(flags="self any_order")
    assert BACKWARD.candidates(loose, H200)[0].library == library.TORCHS
    assert BACKWARD.supports(BackwardConfig(library.FLASH, 0, 0, 0, 0), loose)
    assert not BACKWARD.supports(BackwardConfig(library.FLASH, 0, 0, 0, 0), facts)
    assert not attention.CHOICE.supports(Config(library.FLASH, 0, 0, 0, 0), facts._replace(flags="self mask"))


def test_candidates_begin_with_the_default() -> None:
    for machine in (H200, A100, MI300X):
        for dim in (16, 40, 64, 96, 128, 256):
            for size in (2, 4):
                for extras in (0, 1, 2):
                    configs = attention.candidates(dim, size, machine, extras=extras)
                    assert attention.default(dim, size, machine, extras=extras) == configs[0]
                    assert len(set(configs)) == len(configs)
                    back = backward_candidates(dim, size, machine, extras=extras)
                    assert backward_default(dim, size, machine, extras=extras) == back[0]
                    assert len(set(back)) == len(back)


def test_results_lie_as_their_operands() -> None:
    first = torch.empty(2, 3, 4, 8)
    last = torch.empty(2, 4, 3, 8).transpose(1, 2)
    assert room_like(first).stride() == first.stride()
    assert room_like(last).stride() == last.stride()
    with recording(H200):
        y, _ = attention.forward(last, first, first)
        _, dk, _, _ = attention.backward(y, last, last, first, None, None, y, torch.empty(2, 3, 4))
    assert y.stride() == last.stride()
    assert dk.stride() == last.stride()


def test_what_is_launched_has_one_program_a_block_and_head() -> None:
    q, k = torch.empty(2, 4, 300, 64, dtype=torch.bfloat16), torch.empty(2, 2, 700, 64, dtype=torch.bfloat16)
    bias = torch.empty(4, 300, 1)
    with recording(H200) as launches:
        y, lse = attention.forward(q, k, k, None, bias, config=Config(0, 64, 32, 4, 2))
        attention.backward(y, q, k, k, None, bias, y, lse, config=BackwardConfig(0, 64, 32, 4, 2))
    assert [launch.grid for launch in launches] == [(5 * 8,), (5 * 8,), (11 * 4,), (5 * 4,)]
    assert [launch.constants["ROWS"] for launch in launches] == [64, 64, 32, 64]


# -- refusals ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"attention: the sizes do not fit.*k \(2, 3, 5, 8\).*kv_heads a divisor.*q.transpose",
            lambda: attention.forward(Q, torch.ones(2, 3, 5, 8), torch.ones(2, 3, 5, 8)),
        ),
        (
            KernelShapeError,
            r"attention backward: the sizes do not fit.*mask \(3, 4\) bool.*broadcast to.*mask\[:, None, None\]",
            lambda: attention.backward(Q, Q, K, K, torch.ones(3, 4, dtype=torch.bool), None, Q, Q[..., 0]),
        ),
        (
            KernelDTypeError,
            r"attention: mask or bias is of another type.*mask \(3, 5\) float32.*true where a key is seen.*as bias=",
            lambda: attention.forward(Q, K, K, torch.ones(3, 5)),
        ),
        (
            KernelDTypeError,
            r"attention: the element types do not fit.*k \(2, 2, 5, 8\) float16.*one float type for q, k, v",
            lambda: attention.forward(Q, K.half(), K.half()),
        ),
        (
            KernelArgumentError,
            r"attention: an option is outside.*align 'left', window 0, softcap -1.0, scale inf, precision 'f.*None is",
            lambda: attention.forward(
                Q, K, K, align="left", window=0, softcap=-1.0, scale=float("inf"), precision="fast"
            ),
        ),
        (
            KernelArgumentError,
            r"attention: the probability is outside.*prob 1.5.*from 0 to 1",
            lambda: attention.forward(Q, K, K, prob=1.5),
        ),
        (
            KernelShapeError,
            r"attention backward: lse has another shape.*expected: lse \(2, 4, 3\)",
            lambda: attention.backward(Q, Q, K, K, None, None, Q, torch.ones(2, 4)),
        ),
        (
            KernelShapeError,
            r"attention_packed: the sizes do not fit.*longest_q 4.*q_starts and k_starts.*running sums",
            lambda: attention.forward_packed(FLAT, FLAT[:, :, :7], FLAT[:, :, :7], STARTS, STARTS, **LONGEST),
        ),
        (
            KernelDTypeError,
            r"attention_packed: starts are whole numbers.*k_starts \(3,\) float32.*int32 or int64.*cumsum",
            lambda: attention.forward_packed(FLAT, FLAT, FLAT, STARTS, STARTS.float(), **LONGEST),
        ),
        (
            KernelArgumentError,
            r"attention_packed: the starts are not those.*longest_q 3.*rising to 6 and 6.*running sums",
            lambda: attention.forward_packed(FLAT, FLAT, FLAT, STARTS, STARTS, longest_q=3, longest_k=4),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
