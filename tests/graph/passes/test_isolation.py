"""Outputs share memory with nothing that somebody else holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burn_torch import ops
from burn_torch.backend.libtorch import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.graph import Graph, interpret
from burn_torch.graph.passes import isolate_outputs
from tests.graph.passes.checks import check, made, names, spec, traced
from tests.graph.random_graphs import Program, programs

X = spec(4, 3)


def addresses(tensors: list[Any]) -> list[int]:
    return [x.untyped_storage().data_ptr() for x in tensors if isinstance(x, torch.Tensor) and x.numel()]


@settings(max_examples=150, deadline=None)
@given(program=programs(), donated=st.sets(st.integers(0, 6)))
def test_no_output_shares_memory_with_what_others_hold(program: Program, donated: set[int]) -> None:
    graph = check(lambda g: isolate_outputs(g, donated), program)
    leaf = LibTorch()
    inputs = program.inputs(leaf)
    outputs = interpret(graph, leaf, inputs)
    theirs = set(addresses([x for p, x in enumerate(inputs) if p not in donated]))
    assert not theirs.intersection(addresses(outputs))
    storages = addresses(outputs)
    assert len(set(storages)) == len(storages)


def copies(graph: Graph, donated: Collection[int] = ()) -> int:
    return names(isolate_outputs(graph, donated)).count("clone")


def test_what_is_copied() -> None:
    assert copies(traced(lambda x: ops.exp(x), X)) == 0
    assert copies(traced(lambda x: x, X)) == 1
    assert copies(traced(lambda x: x, X), (0,)) == 0
    assert copies(traced(lambda x: (x, x), X), (0,)) == 1
    assert copies(traced(lambda x: (x, x), X)) == 2
    assert copies(traced(lambda x: (lambda y: (y, y))(ops.exp(x)), X)) == 1
    assert copies(traced(lambda x: ops.reshape(ops.permute(x, axes=(1, 0)), shape=(3, 4, 1)), X)) == 1
    assert copies(traced(lambda x: (x, ops.reshape(x, shape=(12,))), X), (0,)) == 1
    assert copies(traced(lambda x: (lambda y: (ops.reshape(y, shape=(12,)), y))(ops.exp(x)), X)) == 1
    assert copies(traced(lambda x: ops.sum(x, dims=()), X)) == 1
    assert copies(traced(lambda x: ops.sum(x, dims=(0,)), X)) == 0
    assert copies(traced(lambda x: ops.cast(x, dtype=DType.F32), X)) == 1
    assert copies(traced(lambda x: ops.cast(x, dtype=DType.F64), X)) == 0
    assert copies(traced(lambda x: ops.split(x, sizes=(1, 3), dim=0), X)) == 2
    assert copies(traced(lambda x: ops.split(ops.exp(x), sizes=(1, 3), dim=0), X)) == 1


def test_what_lies_in_one_place_twice_is_copied() -> None:
    assert copies(traced(lambda x: ops.expand(ops.exp(x), shape=(2, 4, 3)), X)) == 1
    assert copies(traced(lambda x: ops.reshape(ops.expand(ops.exp(x), shape=(1, 4, 3)), shape=(4, 3)), X)) == 1
    assert copies(traced(lambda x: ops.unfold(ops.exp(x), dim=0, size=3, step=1), X)) == 1
    assert copies(traced(lambda x: ops.slice(ops.exp(x), ranges=((0, 4, 2), (0, 3, 1))), X)) == 0


def test_a_constant_is_copied() -> None:
    graph = traced(lambda x: (made(ops.full, x, 1.0, shape=(2,), dtype=DType.F32, place="cpu"), ops.exp(x)), X)
    assert names(isolate_outputs(graph)) == ["full", "exp", "clone"]


def test_a_value_keeps_its_memory_and_the_view_is_copied() -> None:
    graph = isolate_outputs(traced(lambda x: (lambda y: (ops.reshape(y, shape=(12,)), y))(ops.exp(x)), X))
    assert graph.outputs[1] == graph.nodes[0].outputs[0]
    assert graph.nodes[-1].inputs == (graph.nodes[1].outputs[0],)


@pytest.mark.parametrize("shape", [(3, 4), (0, 2), ()])
def test_clone_is_the_identity_in_memory_of_its_own(shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape, 2)[..., 0]
    y = LibTorch().execute(ops.clone.bind([LibTorch().spec(x)], {}), [x])[0]
    assert torch.equal(x, y)
    assert not addresses([x]) or addresses([x]) != addresses([y])
