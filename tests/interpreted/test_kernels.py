"""The kernels themselves, in Triton's interpreter: every problem of every spec, every config, against float64.

In float32 and float16, of which the quick tests take one for each problem.  The interpreter truncates float32 to
bfloat16, so that type is judged on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import (  # after the check for triton
    REGISTRY,
    KernelDTypeError,
    KernelLimitError,
    KernelSpec,
    Problem,
    cross_entropy,
    dropout,
    glu,
    lion,
    norm,
    optimizer,
    softmax,
    verify,
)
from burn_kernels.launch import H200
from burn_kernels.spec import Draw
from burn_kernels.verification import poisoned

# numpy says so where kernels compute with infinities on purpose, in lanes that are masked or replaced
pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero|All-NaN slice) encountered:RuntimeWarning"
)

LOWEST = torch.finfo(torch.float32).min


@functools.cache
def problems(spec: KernelSpec) -> list[Problem]:
    return list(spec.problems(Draw(sum(map(ord, spec.name)))))


def quick_type(index: int, problem: Problem) -> torch.dtype:
    """The type of the quick tests: small problems take both in turn, so a fault of one type shows on half of them."""
    is_large = sum(x.numel() for x in problem.inputs if isinstance(x, torch.Tensor)) > 20_000
    return torch.float32 if is_large or index % 2 else torch.float16


CASES = [
    pytest.param(
        spec, index, dtype, id=f"{spec.name}-{index}-{dtype}",
        marks=[] if dtype == quick_type(index, problem) else [pytest.mark.slow],
    )
    for spec in REGISTRY.values()
    for index, problem in enumerate(problems(spec))
    for dtype in (torch.float32, torch.float16)
]  # fmt: skip


@pytest.mark.parametrize(("spec", "index", "dtype"), CASES)
def test_kernel_agrees_with_float64(spec: KernelSpec, index: int, dtype: torch.dtype) -> None:
    assert verify(spec, problems(spec)[index], dtype=dtype) == []


def drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    draw = Draw(sum(sum(shape) for shape in shapes))
    return [draw.normal(*shape).float() for shape in shapes]


def close(actual: Any, expected: Any, config: object) -> None:
    # float32 sums in another order: 1e-5 of values of order 1 to 10 is a hundred times what that makes
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{config}\n{text}")


# 49: several rows a program.  1003: rows that begin anywhere.  20000: wider than what stays in registers.
WIDE = pytest.param(20_000, marks=pytest.mark.slow)


@pytest.mark.parametrize("cols", [49, 1003, 20_000])
def test_every_candidate_of_softmax(cols: int) -> None:
    x, dy = drawn((5, cols), (5, cols))
    y = softmax.reference(x)
    for config in softmax.candidates(cols, 4, H200):
        close(softmax.forward(x, config=config), y, config)
    for config in softmax.candidates(cols, 4, H200, backward=True):
        close(softmax.backward(dy, y, config=config), softmax.reference_backward(dy, y), config)


@pytest.mark.parametrize("cols", [49, 1003, WIDE])
def test_every_candidate_of_norms(cols: int) -> None:
    x, dy, w, b = drawn((5, cols), (5, cols), (cols,), (cols,))
    exact = norm.layer_norm_reference(x, w, b)
    for config in norm.candidates(cols, 4, H200):
        close(norm.layer_norm(x, w, b, config=config), exact, config)
    expected = norm.layer_norm_reference_backward(dy, x, w, *exact[1:])
    for backward in norm.backward_candidates(cols, 4, H200):
        close(norm.layer_norm_backward(dy, x, w, *exact[1:], config=backward), expected, backward)
    y, rstd = norm.rms_norm_reference(x, w)
    for config in norm.candidates(cols, 4, H200, centred=False):
        close(norm.rms_norm(x, w, config=config), (y, rstd), config)
    for backward in norm.backward_candidates(cols, 4, H200, centred=False):
        grads = norm.rms_norm_backward(dy, x, w, rstd, config=backward)
        close(grads, norm.rms_norm_reference_backward(dy, x, w, rstd), backward)


@pytest.mark.parametrize("cols", [7, 1003, WIDE])
def test_every_candidate_of_cross_entropy(cols: int) -> None:
    (x,), targets = drawn((3, cols)), torch.tensor([0, cols - 1, -100])
    loss, lse = cross_entropy.reference(x, targets)
    dx = cross_entropy.reference_backward(torch.ones(()), x, targets, lse)
    for config in cross_entropy.candidates(cols, 4, H200, gradient=True):
        close(cross_entropy.forward_with_gradient(x, targets, config=config), (loss, dx), config)
        spare = x.clone()
        results = cross_entropy.forward_with_gradient_(spare, targets, config=config)
        assert results[1] is spare
        close(results, (loss, dx), config)


def test_every_candidate_of_the_others() -> None:
    gate, up = drawn((3, 1003), (3, 1003))
    for glu_config in glu.candidates(gate.numel(), 4, H200):
        close(glu.forward(gate, up, config=glu_config), glu.reference(gate, up), glu_config)
    for dropout_config in dropout.candidates(4, H200):
        assert torch.equal(dropout.forward(gate, 0.4, 1, 2, config=dropout_config), dropout.reference(gate, 0.4, 1, 2))
    groups = [[x] for x in drawn((9001,), (9001,), (9001,))]
    groups.append([groups[2][0] ** 2])
    expected = optimizer.adamw_reference(*groups, lr=0.1, step=5)
    for optimizer_config in optimizer.candidates(H200):
        close(optimizer.adamw(*groups, lr=0.1, step=5, config=optimizer_config), expected, optimizer_config)


# -- rows with infinities --------------------------------------------------------------------------------
@pytest.mark.parametrize("cols", [9, 20_000])
@pytest.mark.parametrize("value", [-torch.inf, torch.inf, torch.nan, LOWEST])
@pytest.mark.parametrize("whole", [True, False], ids=["whole row", "one element"])
def test_softmax_of_extreme_rows_is_that_of_torch(cols: int, value: float, whole: bool) -> None:
    (x,) = drawn((2, cols))
    x[1, slice(None) if whole else slice(3, 4)] = value
    torch.testing.assert_close(softmax.forward(x), torch.softmax(x, -1), equal_nan=True)
    torch.testing.assert_close(softmax.log_forward(x), torch.log_softmax(x, -1), equal_nan=True)


@pytest.mark.parametrize("cols", [9, 20_000])
def test_layer_norm_keeps_its_digits_far_from_zero(cols: int) -> None:
    # mean 1000, deviation 1: a sum of squares would leave nothing of the variance
    (x,) = drawn((3, cols))
    x = x + 1000.0
    y, mean, rstd = norm.layer_norm(x, None, None)
    exact = norm.layer_norm_reference(x.double(), None, None)
    torch.testing.assert_close(mean.double(), exact[1], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(rstd.double(), exact[2], rtol=1e-4, atol=0.0)
    torch.testing.assert_close(y.double(), exact[0], rtol=0.0, atol=2e-4)


def test_cross_entropy_of_a_target_that_is_no_class_is_nan() -> None:
    x, _ = drawn((3, 33), (3, 33))
    losses, _ = cross_entropy.forward(x, torch.tensor([33, 4, -1]), reduction="none")
    assert losses.isnan().tolist() == [True, False, True]


def test_cross_entropy_of_ignored_rows_that_hold_nan() -> None:
    (x,) = drawn((3, 33))
    x[1] = torch.nan
    loss, dx = cross_entropy.forward_with_gradient(x, torch.tensor([2, -100, 3]))
    assert torch.isfinite(loss)
    assert dx[1].tolist() == [0.0] * 33


# -- writing ------------------------------------------------------------------------------------------------
def test_adamw_in_place_and_its_copies() -> None:
    p, g, m, v = ([x] for x in drawn((9001,), (9001,), (9001,), (9001,)))
    v = [x * x for x in v]
    clip, copies = torch.tensor(0.25), [torch.empty(9001, dtype=torch.float16)]
    expected = optimizer.adamw_reference(p, g, m, v, lr=0.1, step=2, clip=clip)
    table, kept = optimizer.table(p, g, m, v, copies=copies, in_place=True), g[0].clone()
    optimizer.adamw_(table, lr=0.1, step=2, clip=clip)
    close(([*p], [*m], [*v]), expected, "in place")
    assert torch.equal(copies[0], p[0].half())
    assert torch.equal(g[0], kept)


def test_steps_write_each_element_once_and_none_beside() -> None:
    # tensors that end on, before and behind a program's block and a chunk, with a stranger's element behind each
    sizes = (1, 511, 512, 513, 1030, 8192, 8193)
    rooms = [[*drawn(*[(size + 8,) for size in sizes])] for _ in range(4)]
    before = [[x.clone() for x in group] for group in rooms]
    p, g, m, v = ([x[:size] for x, size in zip(group, sizes, strict=True)] for group in rooms)
    for x in v:
        x.square_()
    expected = optimizer.adamw_reference(p, g, m, v, lr=0.1, step=2)
    optimizer.adamw_(optimizer.table(p, g, m, v, in_place=True), lr=0.1, step=2, config=optimizer.Config(512, 4))
    close((p, m, v), expected, "adamw")
    expected = lion.lion_reference(p, g, m, lr=0.1)
    lion.lion_(optimizer.table(p, g, m, in_place=True), lr=0.1)
    close((p, m), expected, "lion")
    for group, old in zip(rooms, before, strict=True):
        for x, y, size in zip(group, old, sizes, strict=True):
            assert torch.equal(x[size:], y[size:])


def test_adamw_by_numbers_that_lie_on_the_device() -> None:
    p, g, m, v = ([x] for x in drawn((9001,), (9001,), (9001,), (9001,)))
    v = [x * x for x in v]
    expected = optimizer.adamw_reference(p, g, m, v, lr=0.1, step=3, decay=0.2)
    numbers = [torch.tensor(x) for x in (1 - 0.1 * 0.2, 0.1 / (1 - 0.9**3), 1 / (1 - 0.999**3) ** 0.5)]
    optimizer.adamw_held(optimizer.table(p, g, m, v, in_place=True), *numbers)
    close(([*p], [*m], [*v]), expected, "held")


def test_numbers_of_another_type_are_refused() -> None:
    group = [torch.ones(3)]
    table, one = optimizer.table(group, group, group, group), torch.ones(())
    with pytest.raises(
        KernelDTypeError, match=r"(?s)rate and second must be read as one float32.*float64.*torch.tensor"
    ):
        optimizer.adamw_held(table, one, one.double(), torch.ones(2))


def test_gradient_of_cross_entropy_without_its_lse() -> None:
    x, dloss = drawn((5, 33), (5,))
    targets = torch.tensor([0, 32, -100, 4, 5])
    _, lse = cross_entropy.reference(x, targets, reduction="none")
    expected = cross_entropy.reference_backward(dloss, x, targets, lse, reduction="none")
    close(cross_entropy.backward(dloss, x, targets, None, reduction="none"), expected, "no lse")


def test_sgd_in_place() -> None:
    p, g, v = ([x] for x in drawn((77,), (77,), (77,)))
    expected = optimizer.sgd_reference(p, g, v, lr=0.1, momentum=0.5, decay=0.1)
    optimizer.sgd_(optimizer.table(p, g, v, in_place=True), lr=0.1, momentum=0.5, decay=0.1)
    close(([*p], [*v]), expected, "in place")


def test_states_of_other_types_than_the_parameters() -> None:
    p, g, m, v = ([x] for x in drawn((77,), (77,), (77,), (77,)))
    groups = p, [x.half() for x in g], [x.half() for x in m], [(x * x).half() for x in v]
    updated = optimizer.adamw(*groups, lr=0.1, step=2)
    assert [group[0].dtype for group in updated] == [torch.float32, torch.float16, torch.float16]
    torch.testing.assert_close(updated, optimizer.adamw_reference(*groups, lr=0.1, step=2), rtol=1e-3, atol=1e-3)


def test_tensors_that_lie_at_odd_addresses() -> None:
    (room,) = drawn((200,))
    p, g, m = ([room[at : at + 49]] for at in (1, 51, 101))
    table = optimizer.table(p, g, m)
    assert not table.aligned
    expected = optimizer.sgd_reference(p, g, m, lr=0.1, momentum=0.5)
    close(optimizer.sgd(p, g, m, lr=0.1, momentum=0.5), expected, "odd")
    x = room[1:190].reshape(3, 63)
    close(softmax.forward(x), softmax.reference(x), "odd")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 2047, 2048, 2049])
def test_dropout_draws_the_words_of_philox(count: int) -> None:
    from burn_torch.core.philox import fold, stream_of, words

    key, stream = fold(3, 4), stream_of("encoder.dropout")
    kept = words(key, stream, 0, count) < np.uint32(round(0.7 * 2**32))
    with poisoned():
        y = dropout.forward(torch.ones(count), 0.3, key, stream)
    assert torch.equal(y != 0, torch.from_numpy(kept))


# -- what verify finds ---------------------------------------------------------------------------------------
def faulty(name: str, **changes: Callable[..., Any]) -> Iterator[str]:
    """The faults of a spec with one function exchanged, problem after problem for as long as somebody asks."""
    import dataclasses

    spec = dataclasses.replace(REGISTRY[name], **changes)  # type: ignore[arg-type]  # functions for functions
    for problem in problems(REGISTRY[name]):
        yield from verify(spec, problem, dtype=torch.float32)


def test_verify_finds_an_output_that_is_written_in_part() -> None:
    def partly(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape)
        y[..., :-1] = softmax.reference(x)[..., :-1]
        return y

    assert any("output 0: largest error nan" in fault for fault in faulty("softmax", forward=partly))


def test_verify_finds_an_input_that_is_written() -> None:
    faults = faulty("softmax", forward=lambda x: x.copy_(softmax.reference(x)))
    assert any("forward writes to input 0" in fault for fault in faults)


def test_verify_finds_an_upstream_gradient_read_as_a_scalar() -> None:
    def scalar(dy: Any, inputs: Any, outputs: Any) -> Any:
        first = dy.flatten()[:1].sum() if dy.numel() else dy.sum()
        return (softmax.backward(torch.full_like(dy, first.item()), outputs[0]),)

    assert any("gradient of input 0" in fault for fault in faulty("softmax", gradient=scalar))


def test_verify_finds_a_missing_weight_gradient() -> None:
    def without(dy: Any, inputs: Any, outputs: Any, eps: float = 1e-5) -> Any:
        return norm.rms_norm_backward(dy, inputs[0], inputs[1], outputs[1])[0], None

    assert any("gradient of input 1: missing" in fault for fault in faulty("rms_norm", gradient=without))


def test_verify_finds_ignored_rows_counted_in_the_mean() -> None:
    def counted(x: torch.Tensor, targets: torch.Tensor, **options: Any) -> Any:
        loss, lse = cross_entropy.forward(x, targets, **options)
        share = (targets != options.get("ignore_index", -100)).float().mean()
        return (loss * share if options.get("reduction", "mean") == "mean" else loss), lse

    assert any("output 0" in fault for fault in faulty("cross_entropy", forward=counted))


def test_kernels_refuse_float64() -> None:
    with pytest.raises(KernelLimitError, match=r"(?s)element type.*torch.float64.*float32, float16 or bfloat16.*cast"):
        softmax.forward(torch.zeros(2, 3, dtype=torch.float64))
