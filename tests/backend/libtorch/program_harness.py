"""Helpers of the tests of programs: specs, data, and the comparison with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.graph import Graph, interpret
from tests.graph.random_graphs import assert_same_bits, on_host

LEAF = LibTorch()


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    return TensorSpec.of(shape, dtype, "cpu")


def copies(inputs: Sequence[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]


def drawn(graph: Graph, seed: np.random.Generator) -> list[Any]:
    """Normal values for each input."""
    return [
        float(seed.normal())
        if isinstance(s, NumberSpec)
        else torch.from_numpy(seed.normal(size=s.shape)).to(torch.float64 if s.dtype is DType.F64 else torch.float32)
        for _, s in graph.inputs
    ]


def agree(graph: Graph, inputs: Sequence[Any], donate: Sequence[int] = ()) -> list[torch.Tensor]:
    """Runs the program twice and checks bits against the interpreter, and that nothing else was written to."""
    expected = on_host(LEAF, interpret(graph, LEAF, copies(inputs)))
    program = LEAF.program(graph, donate)
    for _ in range(2):
        given_inputs = copies(inputs)
        outputs = program.run(*given_inputs)
        assert_same_bits(on_host(LEAF, outputs), expected)
        kept = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and i not in donate]
        for i in kept:
            assert torch.equal(given_inputs[i].nan_to_num(), inputs[i].nan_to_num()), f"input {i} was written to"
    return [given_inputs[i] for i in range(len(inputs))]


def written_over(graph: Graph, donate: Sequence[int] = ()) -> list[tuple[int, int]]:
    return list(LEAF.program(graph, donate).reused)
