"""C kernels of symbolic sizes: at every length what float64 says, of a handful of libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, RetraceWarning, Tensor, compile
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.generated import c_kernels
from burn_torch.backend.libtorch.generated.c_kernels import CFunction
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.rows.sharing import c_kernel_at
from burn_torch.fusion.rows.symbolic import sizes_of
from burn_torch.fusion.shapes.variants import Variants
from burn_torch.graph.ir import Graph
from tests.fusion.checking import agree, in_float64, made
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture
from tests.fusion.programs import COLS, PROGRAMS, ROWS, tensor, traced

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]

SIZES = [(6, 10), (9, 22), (7, 8), (2, 4), (31, 64), (70, 36)]


def at_sizes(name: str, rows: int, cols: int) -> Graph:
    sizes = {ROWS: rows, COLS: cols, COLS // 2: cols // 2, 1: 1}
    specs = [
        spec.with_shape(tuple(sizes[n] for n in spec.shape)) if isinstance(spec, TensorSpec) else spec
        for spec in PROGRAMS[name][1]
    ]
    return traced(PROGRAMS[name][0], specs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_library_serves_all_lengths(name: str, seed: np.random.Generator) -> None:
    variants = Variants()
    libraries: set[str] = set()
    for rows, cols in SIZES:
        graph = at_sizes(name, rows, cols)
        instance_at = variants.found(sizes_of(graph))
        if instance_at is None and variants.made(graph, sizes_of(graph), plan_of) is not None:
            instance_at = variants.found(sizes_of(graph))
        if instance_at is None:
            continue
        _, instance = instance_at
        inputs = made([spec for _, spec in graph.inputs], seed)
        inputs = [1e-5 if spec is FLOAT_NUMBER else x for x, (_, spec) in zip(inputs, graph.inputs, strict=True)]
        agree(list(LibTorch().program(instance).run(*inputs)), in_float64(graph, inputs), 4.0)
        for node in instance.nodes:
            if "body" in node.call.attrs:
                attrs = node.call.attrs
                assert attrs["dynamic"]
                kernel = c_kernel_at(attrs["body"], attrs["dynamic"], attrs["sizes"], strict=False)
                assert kernel is not None
                libraries.add(kernel.source)
    kernels = sum("body" in node.call.attrs for node in instance.nodes)
    assert 1 <= len(libraries) <= 2 * kernels


def test_inputs_that_are_strided(seed: np.random.Generator) -> None:
    variants = Variants()
    for rows, cols in [(6, 10), (9, 14), (13, 22)]:
        graph = at_sizes("softmax", rows, cols)
        if variants.found(sizes_of(graph)) is None:
            variants.made(graph, sizes_of(graph), plan_of)
    instance_at = variants.found(sizes_of(graph))
    assert instance_at is not None
    (node,) = [node for node in instance_at[1].nodes if "body" in node.call.attrs]
    (x,) = made([tensor(cols, rows)], seed)
    attrs = node.call.attrs
    kernel = c_kernels.c_function(attrs["body"], attrs["dynamic"], attrs["sizes"], strict=False)
    assert isinstance(kernel, CFunction)
    agree(list(kernel(x.t())), in_float64(graph, [x.t()]))


def test_a_new_length_in_each_step_levels_off(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: set[str] = set()
    apart = c_kernels.build_apart

    def counted(name: str, source: str, **how: Any) -> object:
        sources.add(source)
        return apart(name, source, **how)

    monkeypatch.setattr(c_kernels, "build_apart", counted)

    def step(x: Tensor) -> Tensor:
        y = (x * 2.0).tanh() + 0.25
        return y - y.mean_dim(1)

    fused = compile(step, fuse=True)

    def at_all_lengths() -> None:
        for length in range(5, 30):
            x = torch.linspace(-1, 1, 3 * length).reshape(3, length)
            y = fused(Tensor.from_torch(x, Device.cpu()))
            exact = (x.double() * 2).tanh() + 0.25
            torch.testing.assert_close(y.into_torch().double(), exact - exact.mean(1, keepdim=True), rtol=0, atol=1e-6)

    with pytest.warns(RetraceWarning, match="traced"):
        at_all_lengths()
    assert len(sources) <= 3
