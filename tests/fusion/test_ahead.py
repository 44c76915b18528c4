"""Generated kernels compile for machines that are not there."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Iterable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import matmul
from burn_kernels.ahead import compile_launch, resources  # after the check for triton
from burn_kernels.launch import A100, H200, MI300X, Launch, Machine, recording
from burn_torch.backend.libtorch.generated.anchors import _Run
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel, kernel_of
from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, Spec, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.planning import groups
from burn_torch.fusion.rows.product_row import product
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.rows.symbolic import sizes_of
from burn_torch.fusion.shapes.variants import Variants
from burn_torch.fusion.triton.configs import candidates_of
from burn_torch.fusion.triton.products import ProductTiles
from burn_torch.graph.ir import Graph
from burn_torch.ops.torch_types import TO_TORCH
from tests.fusion.programs import PROGRAMS, gelu, row, tensor, traced


def scaled(spec: Spec, dtype: DType, rows: int = 4096, cols: int = 4096) -> Spec:
    """The same axes at sizes of real work."""
    if isinstance(spec, NumberSpec):
        return spec
    sizes = {6: rows, 10: cols, 5: cols // 2, 1: 1}
    return tensor(*(sizes[size] for size in spec.shape), dtype=dtype if spec.shape[-1] > 1 else spec.dtype)


def in_turn(cases: Iterable[Any], count: int) -> list[Any]:
    """Each case with each machine; the quick tests take `count` of the machines for a case, in turn."""
    machines = (H200, A100, MI300X)
    return [
        pytest.param(case, machine, id=f"{case}-{machine.arch}", marks=[pytest.mark.slow] * ((k - i) % 3 >= count))
        for i, case in enumerate(cases)
        for k, machine in enumerate(machines)
    ]


def launches(name: str, dtype: DType, machine: Machine) -> list[Launch]:
    function, specs, _ = PROGRAMS[name]
    graph = plan_of(traced(function, [scaled(spec, dtype) for spec in specs])).graph
    return launched(graph, machine)


def symbolic_launches(name: str, dtype: DType, machine: Machine) -> list[Launch]:
    """Returns the launches of the plan in which both axes are symbols, at other sizes."""
    function, specs, _ = PROGRAMS[name]
    variants = Variants()
    graphs = [traced(function, [scaled(spec, dtype, *sizes) for spec in specs]) for sizes in ((96, 512), (4096, 4096))]
    for graph in graphs:
        variants.made(graph, sizes_of(graph), plan_of)
    variant = variants.found(sizes_of(graphs[-1]))
    assert variant is not None
    return launched(variant[1], machine)


def launched(graph: Graph, machine: Machine) -> list[Launch]:
    kernels = [node for node in graph.nodes if node.call.op.name == "fusion::kernel"]
    assert kernels
    with recording(machine) as launches:
        for node in kernels:
            kernel = kernel_of(node.call)
            arguments: list[Any] = [
                torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device="meta")
                if isinstance(spec, TensorSpec)
                else 3
                for spec in node.call.specs
            ]
            kernel(*arguments)
    return launches


def residual_backward(g: Any, x: Any, mean: Any, rstd: Any, gamma: Any) -> Any:
    """Three sums of columns in the pass over the rows, and their finish."""
    dx, dgamma, dbeta = row("layer_norm_backward")(g * 0.5, x, mean, rstd, gamma)
    total = dx + g
    return total, dgamma, dbeta, row("sum_to_shape")(total, shape=gamma.shape)


def small_clips(*gradients: Any) -> Any:
    """Kernels of several loops side by side."""
    norms = [row("sqrt")(row("sum")(g * g, dims=tuple(range(g.ndim)))) for g in gradients]
    return tuple(g * (1.0 / row("maximum")(norm, 1.0)) for g, norm in zip(gradients, norms, strict=True))


@pytest.mark.parametrize(("dtype", "machine"), in_turn((DType.F32, DType.BF16), 2))
def test_columns_beside_rows_and_kernels_side_by_side_compile(
    dtype: DType, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_SMALL_SHARE", 1)
    matrix, statistics = tensor(4096, 768, dtype=dtype), tensor(4096, 1)
    backward = traced(residual_backward, [matrix, matrix, statistics, statistics, tensor(768, dtype=dtype)])
    shapes = [tensor(768, dtype=dtype), tensor(33, 17, dtype=dtype), tensor(3072, dtype=dtype)]
    clips = traced(small_clips, [*shapes, *shapes, tensor(5, 7, dtype=DType.F64), tensor(5, 7, dtype=DType.F64)])
    for graph, count in ((backward, 2), (clips, 1)):
        launches = launched(plan_of(graph).graph, machine)
        assert len(launches) == count
        for launch in launches:
            assert resources(compile_launch(launch, machine)).spills == 0, launch.constants


@pytest.mark.parametrize("machine", [H200, A100, MI300X], ids=lambda machine: str(machine.arch))
@pytest.mark.parametrize(
    "dtype", [DType.F32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (DType.F64, DType.BF16))], ids=str
)
def test_remainders_compile(dtype: DType, machine: Machine) -> None:
    """Beside numbers and tensors: their loops run until no lane has a multiple left."""
    spec = tensor(4096, 768, dtype=dtype)
    graph = traced(lambda x, y: row("remainder")(x * 2.0, 7.0) + row("fmod")(3.0, y), [spec, spec])
    for launch in launched(plan_of(graph).graph, machine):
        assert resources(compile_launch(launch, machine)).registers, launch.constants


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_products_are_rounded_before_their_maximum_is_subtracted(dtype: DType) -> None:
    """A product taken into the subtraction is its own rounding at the maximum, not 0."""

    def below(x: Any) -> Any:
        scaled = x * 1.214
        return scaled - row("amax")(scaled, dims=(1,))

    (launch,) = launched(plan_of(traced(below, [tensor(64, 96, dtype=dtype)])).graph, H200)
    assert not launch.contracts
    contracted = compile_launch(dataclasses.replace(launch, contracts=True), H200)
    assert "FMA" in machine_code(contracted)
    assert "FMA" not in machine_code(compile_launch(launch, H200))


def machine_code(compiled: Any) -> str:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def activation_and_bias(g: Any, x: Any) -> Any:
    """The backward of an activation, and of the bias that was added before it."""
    d = row("gelu_approximate_backward")(g, x)
    return d, row("sum_to_shape")(d, shape=(d.shape[-1],))


def batch_norm_relu(x: Any, gamma: Any, beta: Any) -> Any:
    return row("relu")(row("batch_norm")(x, gamma, beta, 1e-5)[0])


def turned(x: Any, y: Any) -> Any:
    return row("cast")(row("permute")(x, axes=(1, 0)), dtype=DType.F32) + y


HALF, CHANNELS = DType.BF16, tensor(64, dtype=DType.BF16)
LONG: dict[str, tuple[Any, list[TensorSpec], int]] = {
    "columns": (activation_and_bias, [tensor(16384, 3072, dtype=HALF)] * 2, 2),
    "channels": (batch_norm_relu, [tensor(256, 64, 56, 56, dtype=HALF), CHANNELS, CHANNELS], 3),
    "turned": (turned, [tensor(768, 50304, dtype=HALF), tensor(50304, 768)], 1),
}


@pytest.mark.parametrize(("name", "machine"), in_turn(LONG, 1))
def test_tall_columns_deviations_and_what_is_turned_compile(name: str, machine: Machine) -> None:
    function, specs, count = LONG[name]
    launches = launched(plan_of(traced(function, specs)).graph, machine)
    assert len(launches) == count
    for launch in launches:
        assert resources(compile_launch(launch, machine)).spills == 0, launch.constants


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_what_a_tuner_may_try_compiles_without_spills(name: str) -> None:
    function, specs, _ = LONG[name]
    for group in plan_of(traced(function, specs)).groups:
        variant = FusedKernel(group.body, strict=False).variant((None,) * len(group.body.inputs))
        inputs = [torch.empty(s.shape, dtype=TO_TORCH[s.dtype], device="meta") for _, s in group.body.inputs]  # type: ignore[union-attr]  # tensors
        for tiles in candidates_of(variant.kernel):
            with recording(H200) as launches:
                variant._tried(inputs, tiles)
            assert resources(compile_launch(launches[0], H200)).spills == 0, tiles


@pytest.mark.parametrize("machine", [H200, MI300X], ids=lambda machine: str(machine.arch))
def test_kernels_in_place_compile(machine: Machine) -> None:
    """With the barrier before the stores."""
    graph = traced(lambda x: row("softmax")(x * 0.5, dim=1), [tensor(64, 512)])
    body = plan_of(graph).groups[0].body
    kernel = FusedKernel(body, strict=False).written_over({0: 0})
    with recording(machine) as launches:
        kernel(torch.empty(64, 512, device="meta"))
    (launch,) = launches
    assert resources(compile_launch(launch, machine)).spills == 0


@pytest.mark.parametrize(("name", "machine"), in_turn(PROGRAMS, 2))
def test_kernels_compile_without_spills(name: str, machine: Machine) -> None:
    for dtype in (DType.F32, DType.BF16):
        if machine is not H200 and dtype is DType.F32:
            continue
        for launch in launches(name, dtype, machine):
            taken = resources(compile_launch(launch, machine))
            assert taken.registers > 0
            assert taken.spills == 0, launch.constants


# -- around products -------------------------------------------------------------------------------------
def around(dtype: DType, machine: Machine) -> list[Launch]:
    """A layer with all that may join it, in the tiles that a tuner may choose for it."""
    x, w, b = tensor(2048, 768, dtype=dtype), tensor(768, 3072, dtype=dtype), tensor(3072, dtype=dtype)

    def layer(x: Any, y: Any, w: Any, b: Any, r: Any) -> Any:
        return gelu(row("linear")(row("tanh")(x) * y, w, b)) + r

    body = traced(layer, [x, x, w, b, tensor(2048, 3072, dtype=dtype)])
    configs = matmul.tiles(2048, 3072, dtype.itemsize, machine, flags="residual kept")
    launches_around: list[Launch] = []
    for c in (configs[0], configs[-1]):
        tiles = (c.rows, c.features, c.inner, c.group, c.warps, c.stages)
        attrs = {"body": body.to_json(), "strict": False, "tiles": tiles}
        call = product.bind([spec for _, spec in body.inputs], attrs)
        run = _Run(body_of(call.attrs["body"]), ProductTiles(*call.attrs["tiles"]), strict=False, held=False)
        with recording(machine) as launches:
            run(*[torch.empty(spec.shape, dtype=TO_TORCH[dtype], device="meta") for _, spec in body.inputs])  # type: ignore[union-attr]  # tensors
        launches_around += launches
    return launches_around


@pytest.mark.parametrize(
    ("machine", "dtype"),
    [
        (H200, DType.BF16),
        pytest.param(A100, DType.BF16, marks=pytest.mark.slow),
        pytest.param(MI300X, DType.BF16, marks=pytest.mark.slow),
        pytest.param(H200, DType.F32, marks=pytest.mark.slow),
        pytest.param(A100, DType.F32, marks=pytest.mark.slow),
        pytest.param(MI300X, DType.F32, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_kernels_around_products_compile_without_spills(machine: Machine, dtype: DType) -> None:
    for launch in around(dtype, machine):
        taken = resources(compile_launch(launch, machine))
        assert taken.spills == 0, launch.constants


QUICK = {("dropout_residual_norm", H200), ("norm_backward", MI300X)}


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        pytest.param(
            name, machine, id=f"{name}-{machine.arch}", marks=() if (name, machine) in QUICK else pytest.mark.slow
        )
        for name in PROGRAMS
        for machine in (H200, A100, MI300X)
    ],
)
def test_kernels_of_symbolic_sizes_compile_without_spills(name: str, machine: Machine) -> None:
    for launch in symbolic_launches(name, DType.F32 if machine is A100 else DType.BF16, machine):
        taken = resources(compile_launch(launch, machine))
        assert taken.registers > 0
        assert taken.spills == 0, launch.constants
