"""The timer: a replay has to write the results that the call handed out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from benchmarks._kernels.timing import Replay, Untimed, captured, confirm, refuse_empty, results_of
from burn_torch import Device, Tensor


def done(_: torch.Tensor) -> None:
    """Stands for what a replay returns."""


def test_a_replay_that_writes_its_results_is_confirmed() -> None:
    x = torch.randn(3, 4)
    kept = (torch.empty(3, 4), torch.empty(3, dtype=torch.int64))

    def replay() -> None:
        torch.mul(x, 2.0, out=kept[0])
        torch.argmax(x, 1, out=kept[1])

    confirm(lambda: (x * 2.0, x.argmax(1)), Replay(replay, kept))
    assert torch.equal(kept[0], x * 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_replay_that_writes_nothing_is_refused(dtype: torch.dtype) -> None:
    x = torch.randn(3, 4).to(dtype)
    with pytest.raises(Untimed, match="does not write result 0 of 1"):
        confirm(lambda: x * 2.0, Replay(lambda: None, x * 2.0))


def test_of_several_results_each_is_looked_at() -> None:
    x = torch.randn(3, 4)
    y, z = torch.empty(3, 4), x + 1.0
    with pytest.raises(Untimed, match="does not write result 1 of 2"):
        confirm(lambda: (x * 2.0, [x + 1.0]), Replay(lambda: done(torch.mul(x, 2.0, out=y)), (y, [z])))


@pytest.mark.parametrize("wrong", [torch.zeros(5), torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.bool)])
def test_another_result_than_that_of_a_plain_call_is_refused(wrong: torch.Tensor) -> None:
    right = torch.ones_like(wrong)
    kept = right.clone()
    with pytest.raises(Untimed, match="leaves result 0 of 1 wrong"):
        confirm(right.clone, Replay(lambda: done(kept.copy_(wrong)), kept))


def test_random_results_are_looked_at_for_poison_alone() -> None:
    kept = torch.empty(100)
    confirm(partial(torch.rand, 100), Replay(lambda: done(kept.uniform_()), kept))
    with pytest.raises(Untimed, match="does not write"):
        confirm(partial(torch.rand, 100), Replay(lambda: None, kept))


def test_memory_of_the_caller_is_not_poisoned() -> None:
    x = torch.ones(4)
    confirm(lambda: x, Replay(lambda: None, x))
    assert torch.equal(x, torch.ones(4))


def test_an_empty_graph_is_refused() -> None:
    refuse_empty(["something else"])
    with pytest.raises(Untimed, match="launches nothing"):
        refuse_empty(["The CUDA Graph is empty. This usually means that the graph was attempted to be captured on ..."])


def test_on_a_cpu_a_call_is_itself() -> None:
    call = partial(torch.ones, 2)
    assert captured(call, "cpu") is call


def test_results_are_read_through_tapes_and_containers() -> None:
    x = torch.randn(2, 3)
    device: Any = Device.cpu().fused()
    y = Tensor.from_torch(x, device.autodiff()).require_grad() * 2.0
    tensors = results_of((y, [Tensor.from_torch(x, device) + 1.0, None]))
    assert [torch.equal(a, b) for a, b in zip(tensors, (x * 2.0, x + 1.0), strict=True)] == [True, True]
