"""A torch tensor that torch's autograd follows is refused at each door: its graph would end there in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import ArgumentError, BurnTorchError, Device, DTypeError, Param, Tensor, TensorData
from burn_torch.data import DataLoaderBuilder, InMemDataset

CPU = Device.cpu()


def leaf() -> torch.Tensor:
    return torch.ones(2, requires_grad=True)


@pytest.mark.parametrize("make", [leaf, lambda: leaf() * 2, lambda: torch.nn.Parameter(torch.ones(2))])
def test_from_torch_of_a_tensor_with_a_graph_names_detach(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(
        ArgumentError, match=r"given: .*requires grad[\s\S]*expected: [\s\S]*mend: .*tensor\.detach\(\)"
    ):
        Tensor.from_torch(make())
    assert Tensor.from_torch(make().detach()).shape == (2,)


@pytest.mark.parametrize(
    "door",
    [
        lambda t: Tensor.from_torch(t),
        lambda t: Tensor.from_dlpack(t),
        lambda t: Tensor.from_data(t, CPU),
        lambda t: Tensor.from_floats(t, CPU),
        lambda t: Tensor.from_data([t, t], CPU),
        lambda t: TensorData.of(t),
        lambda t: TensorData.new(t, (2,)),
        lambda t: Param.from_data(t, CPU),
        lambda t: Param.from_tensor(t),
        lambda t: Param(t),
    ],
)
def test_every_door_refuses_a_tensor_with_a_graph(door: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(BurnTorchError, match=r"(?s)given: .*expected: .*mend: .*detach\(\)"):
        door(leaf() * 2)


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda t: Tensor.ones((2,), CPU) + t, r"Tensor\.from_torch"),
        (lambda t: t + Tensor.ones((2,), CPU), r"Tensor\.from_torch"),
        (lambda t: Tensor.ones((2,), CPU)[t], r"Tensor\.from_torch"),
        (lambda t: Tensor.full((2,), t.sum(), CPU), r"x\.expand"),
    ],
)
@pytest.mark.parametrize("make", [lambda: leaf() * 2, lambda: torch.ones(2, dtype=torch.int64)])
def test_a_tensor_of_torch_is_no_operand_and_no_index(make: Any, call: Callable[[Any], Any], mend: str) -> None:
    with pytest.raises(DTypeError, match=rf"(?s)given: .*expected: .*mend: .*{mend}"):
        call(make())


@pytest.mark.parametrize(
    "x", [torch.ones(2, dtype=torch.complex64), torch.ones(2).to_sparse(), torch.ones(2, device="meta")]
)
def test_other_tensors_without_numbers_are_refused(x: torch.Tensor) -> None:
    for door in (Tensor.from_torch, lambda t: Tensor.from_data(t, CPU)):
        with pytest.raises(BurnTorchError, match="mend: "):
            door(x)


def test_a_fake_tensor_is_refused_by_name() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    with pytest.raises(BurnTorchError, match="FakeTensor"):
        Tensor.from_torch(fake)


def test_what_is_no_torch_tensor_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"no torch tensor[\s\S]*mend: .*from_data"):
        Tensor.from_torch(np.ones(2))  # type: ignore[arg-type]


def test_torch_tensors_as_data_keep_their_type() -> None:
    for dtype in (torch.float64, torch.float16, torch.int32, torch.bool, torch.bfloat16):
        x = torch.tensor([1, 0, 1]).to(dtype)
        assert Tensor.from_data(x, CPU).into_torch().dtype is dtype
        assert Tensor.from_data(x.view(3, 1).expand(3, 2), CPU).shape == (3, 2)


def test_repeat_of_no_times_names_repeat_dim() -> None:
    x = Tensor.ones((2, 3), CPU)
    with pytest.raises(
        ArgumentError, match=r"repeat: 0 repetitions[\s\S]*given: [\s\S]*expected: [\s\S]*repeat_dim\(dim, times\)"
    ):
        x.repeat(0, 2)
    assert x.repeat_dim(0, 2).shape == (4, 3)
    assert x.repeat(2, 1).shape == (4, 3)


class Stack:
    def batch(self, items: list[torch.Tensor], device: Device) -> Tensor:
        return Tensor.from_torch(torch.stack(items))


def test_a_loader_of_tensors_with_a_graph_says_so() -> None:
    items = [leaf() * 2 for _ in range(4)]
    with pytest.raises(ArgumentError, match="detach"):
        next(iter(DataLoaderBuilder(Stack()).batch_size(2).build(InMemDataset(items))))
