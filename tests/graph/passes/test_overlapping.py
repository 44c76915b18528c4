"""Transfers begin right behind what they send, and nothing else changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from burn_torch import Device, Tensor, compile, ops
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Trace, interpret
from burn_torch.graph.passes import launch_early
from tests.graph.passes.checks import check, names
from tests.graph.random_graphs import Program, programs

X = TensorSpec.of((2, 3), DType.F64, "cpu")


@settings(max_examples=30, deadline=None)
@given(program=programs(max_nodes=24))
def test_graphs_without_transfers_stay_as_they_are(program: Program) -> None:
    check(launch_early, program)
    assert launch_early(program.graph) is program.graph


def two_transfers() -> Graph:
    """A backward that makes two gradients, the later one first; then both are sent, weighted by a count."""
    trace = Trace()
    x, n = trace.input(X), trace.input(FLOAT_NUMBER)
    late = ops.exp(x)
    early = ops.sin(late)
    rest = ops.cos(early)
    weight = n * 2.0
    one = ops.mean_start(weight, late, world=1)
    other = ops.mean_start(weight, rest, early, world=1)
    return trace.graph([ops.mean_wait(one, world=1), ops.mean_wait(other, world=1)])


def test_each_transfer_follows_the_last_of_what_it_sends() -> None:
    graph = two_transfers()
    moved = launch_early(graph)
    assert names(graph) == ["exp", "sin", "cos", "mul", "mean_start", "mean_start", "mean_wait", "mean_wait"]
    assert names(moved) == ["exp", "mul", "mean_start", "sin", "cos", "mean_start", "mean_wait", "mean_wait"]
    leaf = LibTorch()
    x = leaf.from_data(Tensor.from_data(np.arange(6.0).reshape(2, 3), Device.cpu()).into_data(), "cpu")
    for a, b in zip(interpret(graph, leaf, [x, 3.0]), interpret(moved, leaf, [x, 3.0]), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_weight_that_waits_for_another_transfer_keeps_its_place() -> None:
    trace = Trace()
    x = trace.input(X)
    first = ops.exp(x)
    wait = ops.mean_wait(ops.mean_start(1.0, first, world=1), world=1)
    weight = ops.sum(wait, dims=(0,))
    ops.mean_start(ops.reshape(weight, shape=(1,)), first, world=1)
    graph = trace.graph([wait])
    order = names(launch_early(graph))
    assert order.index("mean_wait") < len(order) - order[::-1].index("mean_start") - 1


def test_a_compiled_step_sends_between_the_operations_of_its_backward() -> None:
    from burn_torch.train.strategies.reducing import mean_over_processes

    device = Device.cpu().autodiff()
    rng = np.random.default_rng(0)
    weights = [Tensor.from_data(rng.normal(size=(4, 4)), device).require_grad() for _ in range(3)]
    x = Tensor.from_data(rng.normal(size=(5, 4)), device)

    def step(weights: list[Tensor], x: Tensor) -> list[Tensor]:
        y = x
        for weight in weights:
            y = y.matmul(weight).tanh()
        grads = y.sum().backward()
        found = [weight.grad(grads) for weight in weights]
        return mean_over_processes([g for g in found if g is not None], 5.0, bucket_bytes=1)

    compiled = compile(step)
    for one, other in zip(compiled(weights, x), step(weights, x), strict=True):
        np.testing.assert_array_equal(one.into_data().array, other.into_data().array)
    program = next(iter(compiled._programs.values()))
    order = names(program.graph)
    starts = [i for i, name in enumerate(order) if name == "mean_start"]
    products = [i for i, name in enumerate(order) if name == "matmul"]
    assert len(starts) == 3
    assert starts[0] < starts[1] < products[-1]  # the last layers' gradients travel while the first one's is computed
