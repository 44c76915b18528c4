"""Collectives of two processes: values and gradients against one process that does the work of both."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch.distributed as distributed
from burn_torch import ArgumentError, Device, DistributedError, ShapeError, Tensor, ops


def reference(name: str, xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns what each of two processes gets, in torch, by one process."""
    both = torch.stack(xs)
    if name == "scatter":
        return list(both.sum(0).chunk(2))
    one = {
        "sum": lambda: both.sum(0),
        "mean": lambda: both.mean(0),
        "max": lambda: both.amax(0),
        "gather": lambda: torch.cat(xs, 1),
        "broadcast": lambda: xs[1],
    }[name]()
    return [one, one]


def test_two_processes_compute_what_one_does(launch: Callable[..., Any]) -> None:
    results = launch("collectives").results()
    rng = np.random.default_rng(3)
    every, weights = rng.normal(size=(2, 4, 6)), rng.normal(size=(2, 8, 12))
    words = [results[rank].pop("words") for rank in range(2)]
    assert words == [[[0, "é", [[0.5], [0.5]]], [1, "éé", [[0.5, 0.5], [0.5, 0.5]]]]] * 2
    for name in results[0]:
        xs: list[Any] = [torch.tensor(x, requires_grad=True) for x in every]
        ys = reference(name, xs)
        losses: list[Any] = [
            (y * torch.tensor(weight)[tuple(slice(0, n) for n in y.shape)]).sum()
            for y, weight in zip(ys, weights, strict=True)
        ]
        (losses[0] + losses[1]).backward()
        for rank in range(2):
            y, gradient = map(np.array, results[rank][name])
            np.testing.assert_allclose(y, ys[rank].detach().numpy(), rtol=1e-14, err_msg=name)
            expected = np.zeros((4, 6)) if xs[rank].grad is None else xs[rank].grad.numpy()
            np.testing.assert_allclose(gradient, expected, rtol=1e-14, err_msg=name)


def test_a_rehearsal_sends_nothing(launch: Callable[..., Any]) -> None:
    """A process that records a program for a batch of another size must not wait for those that have theirs."""
    [[rehearsed, total], [none, other]] = launch("rehearsed").results()
    x = [[0.0, 1.0], [2.0, 3.0]]
    assert rehearsed == [x, x, x + x, [[0.0, 1.0]], x]
    assert none == []
    assert total == other == [[1.0, 3.0], [5.0, 7.0]]


def test_alone_they_are_the_identity() -> None:
    x = Tensor.from_data(np.arange(6.0).reshape(2, 3), Device.cpu())
    for y in (
        *(distributed.all_reduce(x, word) for word in ("sum", "mean", "max", "min")),
        distributed.all_gather(x, dim=-1),
        distributed.reduce_scatter(x, dim=1),
        distributed.broadcast(x),
    ):
        np.testing.assert_array_equal(y.into_data().array, x.into_data().array)
    assert (distributed.rank(), distributed.world_size(), distributed.local_rank()) == (0, 1, 0)
    assert not distributed.is_initialized()
    assert distributed.is_main()
    assert distributed.gather([1]) == [[1]]
    distributed.barrier()
    distributed.shutdown()


def test_a_collective_without_its_world_says_so() -> None:
    x = Tensor.from_data(np.ones(3), Device.cpu())
    with pytest.raises(DistributedError, match=r"a collective of 2 processes, and no process group[\s\S]*init\(\)"):
        ops.all_reduce(x, world=2)
    with pytest.raises(DistributedError, match="mean_wait: nothing is under way"):
        ops.mean_wait(x, world=2)


def test_wrong_arguments_are_reported() -> None:
    x = Tensor.from_data(np.ones((3, 2)), Device.cpu())
    with pytest.raises(ArgumentError, match=r"no such reduction[\s\S]*'product'"):
        distributed.all_reduce(x, "product")  # type: ignore[arg-type]  # the fault under test
    with pytest.raises(ShapeError, match=r"all_gather: there is no such axis[\s\S]*dim 2"):
        distributed.all_gather(x, dim=2)
    with pytest.raises(ShapeError, match=r"broadcast: source 2 is no process of a world of 2"):
        ops.broadcast(x, source=2, world=2)
    with pytest.raises(ShapeError, match=r"reduce_scatter: x has not one part for each of 2 processes"):
        ops.reduce_scatter(x, world=2)
    with pytest.raises(ShapeError, match=r"all_reduce: reduction 'product'"):
        ops.all_reduce(x, reduction="product", world=1)


def test_an_incomplete_environment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(distributed_fault(), match=r"without WORLD_SIZE"):
        distributed.init()
    for name, value in (("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(distributed_fault(), match="a rank outside its world"):
        distributed.init()
    monkeypatch.setenv("RANK", "0")
    assert distributed.init().size == 1  # alone: there is nothing to join


def distributed_fault() -> type[Exception]:
    from burn_torch import ConfigError

    return ConfigError
