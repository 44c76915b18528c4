"""Checks for every pass, and graphs to check it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from burn_torch.backend.base import Backend
from burn_torch.backend.libtorch import LibTorch
from burn_torch.backend.ndarray import NdArray
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.graph import Graph, Trace, interpret, verify
from burn_torch.ops import Value
from tests.graph.random_graphs import Program, assert_same_bits, on_host, programs

Pass = Callable[[Graph], Graph]

LEAVES: tuple[Backend, ...] = (LibTorch(), NdArray())


def spec(*shape: int, dtype: DType = DType.F32) -> TensorSpec:
    """A spec on the CPU."""
    return TensorSpec.of(shape, dtype, "cpu")


def traced(function: Callable[..., Any], *specs: Any) -> Graph:
    """The graph of a function of values; it may return a tuple."""
    trace = Trace()
    outputs = function(*[trace.input(s) for s in specs])
    return trace.graph(outputs if isinstance(outputs, tuple) else (outputs,))


def names(graph: Graph) -> list[str]:
    """The rows of a graph, in order."""
    return [node.call.op.name for node in graph.nodes]


def made(row: Any, like: Value, *inputs: Any, **attrs: Any) -> Value:
    """Runs a row without tensor inputs in the trace of another value."""
    return row.run(like.backend, Value, inputs, attrs)  # type: ignore[no-any-return]


def programs_with_layouts(**settings: Any) -> st.SearchStrategy[tuple[Program, tuple[int, ...]]]:
    """Programs, and for each input how it lies in memory: in rows, in columns, with gaps."""
    return programs(**settings).flatmap(
        lambda program: st.tuples(st.just(program), st.tuples(*[st.integers(0, 2) for _ in program.graph.inputs]))
    )


def laid_out(x: Any, layout: int) -> Any:
    """The same values as rows (0), with the axes reversed in memory (1), with gaps (2)."""
    if isinstance(x, torch.Tensor):
        if layout == 1 and x.ndim > 1:
            return x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))
        return torch.stack([x, torch.zeros_like(x)], -1)[..., 0] if layout == 2 else x
    if isinstance(x, np.ndarray):
        if layout == 1 and x.ndim > 1:
            return np.asfortranarray(x)
        return np.stack([x, np.zeros_like(x)], -1)[..., 0] if layout == 2 else x
    return x


def run(graph: Graph, program: Program, leaf: Backend, layouts: Sequence[int] = ()) -> list[Any]:
    """The outputs of a graph on the program's data."""
    inputs = program.inputs(leaf)
    if layouts:
        inputs = [laid_out(x, layout) for x, layout in zip(inputs, layouts, strict=True)]
    with np.errstate(all="ignore"):
        return on_host(leaf, interpret(graph, leaf, inputs))


def check(one_pass: Pass, program: Program, layouts: Sequence[int] = (), leaves: Sequence[Backend] = LEAVES) -> Graph:
    """Fails unless the pass changes no bit, keeps the signature and is idempotent; returns the new graph."""
    graph = program.graph
    after = verify(one_pass(graph))
    check_signature(graph, after)
    for leaf in leaves:
        assert_same_bits(run(after, program, leaf, layouts), run(graph, program, leaf, layouts))
    again = one_pass(after)
    assert again == after, f"not idempotent:\n{after}\n{again}"
    return after


def check_signature(before: Graph, after: Graph) -> None:
    """Fails unless inputs are the same and outputs have the same specs."""
    assert after.inputs == before.inputs
    specs, new = before.specs(), after.specs()
    assert [i if i is None else specs[i] for i in before.outputs] == [i if i is None else new[i] for i in after.outputs]
