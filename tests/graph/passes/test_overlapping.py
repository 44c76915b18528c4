"""Transfers begin right behind what they send, waits come where somebody reads, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from burn_torch import Device, Module, Tensor, compile, ops, seed
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.libtorch.recorded.segments import divide
from burn_torch.core.dtype import DType
from burn_torch.core.share import Share
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.graph import Graph, Trace, dead_code, interpret, verify
from burn_torch.graph.passes import launch_early, memory_plan
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import AdamWConfig
from burn_torch.train import Ddp, LossInput, TrainOutput
from tests.graph.passes.checks import check, names, spec, traced
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
        grads_of_weights = [weight.grad(grads) for weight in weights]
        return mean_over_processes([g for g in grads_of_weights if g is not None], 5.0, bucket_bytes=1)

    compiled = compile(step)
    for one, other in zip(compiled(weights, x), step(weights, x), strict=True):
        np.testing.assert_array_equal(one.into_data().array, other.into_data().array)
    program = next(iter(compiled._programs.values()))
    order = names(program.graph)
    starts = [i for i, name in enumerate(order) if name == "mean_start"]
    products = [i for i, name in enumerate(order) if name == "matmul"]
    assert len(starts) == 3
    assert starts[0] < starts[1] < products[-1]  # the last layers' gradients travel while the first one's is computed


def test_what_is_light_goes_with_a_transfer_and_packing_casts() -> None:
    """Casts of bf16 gradients stood before each transfer, behind the whole backward, and held all of them there."""

    def build(x: Any) -> tuple[Any, ...]:
        one = ops.matmul(x, x)
        other = ops.matmul(one, one)
        wide = ops.cast(one, dtype=DType.F32)
        first = ops.mean_start(2.0, wide, world=1)
        flat = ops.mean_start(2.0, ops.permute(ops.cast(other, dtype=DType.F32), axes=(1, 0)), world=1)
        return ops.mean_wait(first, world=1), ops.mean_wait(flat, world=1)

    graph = traced(build, spec(3, 3, dtype=DType.BF16))
    moved = launch_early(graph)
    verify(moved)
    # the second cast is read by a view, so it stays
    assert names(moved) == ["matmul", "mean_start", "matmul", "cast", "permute", "mean_start", "mean_wait", "mean_wait"]
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    for a, b in zip(interpret(graph, LibTorch(), [x]), interpret(moved, LibTorch(), [x]), strict=True):
        assert torch.equal(a, b)


def test_a_cast_that_rounds_is_not_left_to_packing() -> None:
    graph = traced(lambda x: ops.mean_start(2.0, ops.cast(x, dtype=DType.F32), world=1), X)
    assert names(launch_early(graph)) == ["cast", "mean_start"]


def test_a_wait_and_its_views_come_where_they_are_read() -> None:
    def build(x: Any) -> tuple[Any, ...]:
        one, other = (ops.mean_wait(ops.mean_start(2.0, y, world=1), world=1) for y in (x, ops.exp(x)))
        parts = [ops.reshape(y, shape=(3, 2)) for y in (one, other)]
        work = ops.matmul(ops.permute(x, axes=(1, 0)), x)
        return ops.sin(parts[1]), work, ops.cos(parts[0])

    graph = traced(build, X)
    moved = launch_early(graph)
    verify(moved)
    wait = ["mean_wait", "reshape"]
    assert names(moved) == ["mean_start", "exp", "mean_start", "permute", "matmul", *wait, "sin", *wait, "cos"]


def test_a_wait_that_nobody_reads_stays() -> None:
    """A process reads the means of its own parameters alone, but the others wait for it in all of them."""
    trace = Trace()
    x = trace.input(X)
    kept = ops.exp(x)
    ops.mean_wait(ops.mean_start(2.0, kept, world=1), world=1)
    graph = trace.graph([kept])
    assert names(launch_early(dead_code(graph))) == ["exp", "mean_start", "mean_wait"]


class Model(Module):
    """Three layers; the first one's weight is the last one's too, so its gradient is there last."""

    tied: Linear
    layers: tuple[Linear, ...]

    def train_step(self, batch: Tensor) -> TrainOutput[LossInput]:
        """See TrainStep."""
        y = self.tied.forward(batch)
        for layer in self.layers:
            y = layer.forward(y).tanh()
        loss = self.tied.forward(y).sum()
        return TrainOutput.new(self, loss.backward(), LossInput(loss.detach(), batch.shape[0]))


@pytest.mark.parametrize("fuse", [False, True])
def test_a_recorded_step_of_two_processes_sends_between_parts_of_its_backward(
    monkeypatch: pytest.MonkeyPatch, fuse: bool
) -> None:
    from burn_torch.train.strategies import reducing

    monkeypatch.setattr(reducing, "world_size", lambda: 2)
    device = Device.cpu().autodiff()
    seed(3)
    model = Model(LinearConfig(8, 8).init(device), tuple(LinearConfig(8, 8).init(device) for _ in range(3)))
    x = Tensor.from_data(np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32), device)
    step = compile(
        Ddp(device, bucket_bytes=280).functions.step, donate=("model", "optim"), static="share", precision="bfloat16",
        numerics="fast", fuse=fuse,
    )  # fmt: skip
    step.opened(model, AdamWConfig().init(), x, 0.1, 1, Share(0, 4, 8))
    program = next(iter(step._programs.values()))
    recorded = divide(program.graph, "cpu", program.donated)
    segment_names = [
        "record" if segment.captured else " ".join(node.call.op.name for node in segment.graph.nodes)
        for segment in recorded.segments
    ]
    # each layer's gradients leave before those of the layer below are computed; the update that needs the last
    # transfer follows the others
    assert segment_names[:6] == ["record", "mean_send"] * 3
    assert segment_names[6:] == [
        "record",
        "mean_send mean_arrive mean_arrive mean_arrive",
        "record",
        "mean_arrive",
        "record",
    ]
    parts = [segment.graph for segment in recorded.segments if segment.captured]
    heavy = ["matmul", "fused_product", "kernel"]
    for part in parts[:4]:
        assert any(name in heavy for name in names(part)), names(part)
    for part, segment in zip(parts[4:], [s for s in recorded.segments if s.captured][4:], strict=True):
        [update] = [i for i, name in enumerate(names(part)) if name == "adam_update_on_device"]
        over = memory_plan(part, segment.donated).in_place[update]
        assert len(over) == len(part.nodes[update].outputs)  # parameters and both moments where they lie
