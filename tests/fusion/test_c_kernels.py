"""Generated C on the CPU: every row, every structure, random programs, gradients; against float64 and the leaf."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from burn_torch import Device, Module, Tensor, compile, nn, seed, vjp
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch import source_file
from burn_torch.backend.libtorch.generated import c_kernels, c_libraries
from burn_torch.backend.libtorch.generated.c_kernels import CFunction, CompilerWarning
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER, Spec, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.c import lowering as c_lowering
from burn_torch.fusion.c.lowering import lower_to_c
from burn_torch.fusion.planning.bodies import Role, role_of
from burn_torch.fusion.rows.row import body_of
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.ops.op import REGISTRY
from burn_torch.optim import AdamWConfig, GradientsParams
from tests.fusion.checking import TOLERANCE, agree, cooked, in_float64, made
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture
from tests.fusion.programs import COLUMN, MATRIX, PROGRAMS, chain12, gelu, row, tensor, traced
from tests.fusion.recipes import recipes

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]


def as_one(graph: Graph, inputs: list[Any], *, strict: bool = False) -> list[torch.Tensor]:
    return list(CFunction(graph, strict=strict)(*inputs))


def planned(graph: Graph, inputs: list[Any]) -> list[torch.Tensor]:
    """Runs the plan, every group of it in C."""
    plan = plan_of(graph)
    for group in (node for node in plan.graph.nodes if "body" in node.call.attrs):
        assert c_kernels.c_function(group.call.attrs["body"], strict=False).kernel is not None
    return list(LibTorch().program(plan.graph).run(*inputs))


# -- structures ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.F64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, specs, _ = PROGRAMS[name]
    kept = COLUMN if dtype is not DType.F64 else None  # statistics of half types are in float32
    typed = [spec.with_dtype(dtype) if isinstance(spec, TensorSpec) and spec is not kept else spec for spec in specs]
    graph = traced(function, typed)
    inputs = made(typed, seed)
    agree(planned(graph, inputs), in_float64(graph, inputs), 2.0)


def test_columns_are_summed_beside_rows(seed: np.random.Generator) -> None:
    """The backward of a norm, at a size at which the plan makes one kernel of rows and columns."""
    rows, cols = 2048, 72
    matrix, column = tensor(rows, cols), tensor(rows, 1)
    specs = [matrix, matrix, column, column, tensor(cols)]
    graph = traced(PROGRAMS["norm_backward"][0], specs)
    plan = plan_of(graph)
    bodies = [body_of(node.call.attrs["body"]) for node in plan.graph.nodes if "body" in node.call.attrs]
    assert any("part_of_rows" in lower_to_c(body).source for body in bodies)
    inputs = made(specs, seed)
    agree(planned(graph, inputs), in_float64(graph, inputs), 100.0)


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (1, 1), (3, 1), (1, 1030), (2, 3, 5, 7), (70, 3), (65, 129)], ids=lambda shape: str(shape)
)
def test_shapes_that_are_odd(shape: tuple[int, ...], seed: np.random.Generator) -> None:
    specs = [tensor(*shape), tensor(*shape)]
    for function in (chain12, lambda x, y: row("softmax")(x * y, dim=0), lambda x, y: x - row("mean")(y, dims=(0,))):
        graph = traced(function, specs)
        inputs = made(specs, seed)
        agree(planned(graph, inputs), in_float64(graph, inputs), 2.0)


def test_broadcasts_permutes_and_slices_are_index_arithmetic(seed: np.random.Generator) -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        turned = row("permute")(x, axes=(2, 0, 1))
        return (turned + y) * z, row("sum")(turned * y, dims=(0, 2)), row("amax")(x * 2.0, dims=(1,))

    specs = [tensor(5, 6, 7), tensor(5, 1), tensor(7, 1, 6)]
    graph = traced(function, specs)
    inputs = made(specs, seed)
    agree(planned(graph, inputs), in_float64(graph, inputs), 4.0)


def test_a_diagonal_is_index_arithmetic(seed: np.random.Generator) -> None:
    def function(x: Any, y: Any) -> Any:
        return row("exp")(row("diagonal")(x, offset=1, dims=(2, 0)) * 2.0) + y

    specs = [tensor(5, 6, 7), tensor(6, 4)]
    graph = traced(function, specs)
    assert len(plan_of(graph).graph.nodes) == 1
    inputs = made(specs, seed)
    agree(planned(graph, inputs), in_float64(graph, inputs), 2.0)


# -- rows ------------------------------------------------------------------------------------------------
def element_wise(dtype: DType) -> list[tuple[str, list[Spec]]]:
    """Rows that kernels take in this type, and what they take."""
    rows: list[tuple[str, list[Spec]]] = []
    for name, op in REGISTRY.items():
        if op.pointwise is None or name in ("cast", "clone"):
            continue
        number = FLOAT_NUMBER if dtype.is_float else INT_NUMBER
        specs: list[Spec] = [
            number if kind == "number" else tensor(5, 7, dtype=dtype) for _, kind in op.signature.inputs
        ]
        if name == "mask_where":
            specs[1] = tensor(5, 7, dtype=DType.BOOL)
        try:
            call = op.bind(specs, {})
        except DTypeError:  # this type is none of the row's
            continue
        if role_of(call)[0] == Role.COMPUTES:
            rows.append((name, specs))
    return rows


TYPES = [DType.F32, DType.F64, DType.BF16, DType.F16, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_element_wise_row(dtype: DType, seed: np.random.Generator) -> None:
    """A few rows a kernel, since the compiler takes its time."""
    rows = element_wise(dtype)
    assert len(rows) > (40 if dtype.is_float else 5)
    for some in (rows[i : i + 6] for i in range(0, len(rows), 6)):
        specs = [spec for _, given_ in some for spec in given_]

        def together(*xs: Any, some: Any = tuple(some)) -> Any:
            waiting = iter(xs)
            return tuple(row(name)(*[next(waiting) for _ in given_]) for name, given_ in some)

        inputs = [
            x.sigmoid() if name == "binary_cross_entropy" else x for name, given_ in some for x in made(given_, seed)
        ]
        graph = traced(together, specs)
        actual, expected = as_one(graph, inputs), interpret(graph, LibTorch(), inputs)
        for (name, _), y, z in zip(some, actual, expected, strict=True):
            if dtype.is_float and y.is_floating_point():
                size = TOLERANCE[dtype] * 2
                torch.testing.assert_close(
                    y, z, rtol=size, atol=size, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
                )
            else:
                assert torch.equal(y, z), name


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16, DType.I64, DType.I8], ids=str)
@pytest.mark.parametrize("dims", [(1,), (0, 2), (0, 1, 2), (2,), (0,)])
def test_every_reduction(dims: tuple[int, ...], dtype: DType, seed: np.random.Generator) -> None:
    names = ["sum", "mean", "prod", "amax", "amin", "any", "all"]
    if not dtype.is_float:
        names.remove("mean")
    specs = [tensor(3, 4, 5, dtype=dtype)]
    inputs = made(specs, seed, 0.5)
    graph = traced(lambda x: tuple(row(name)(x, dims=dims) for name in names), specs)
    size = TOLERANCE.get(dtype, 0.0)
    for y, z in zip(as_one(graph, inputs), interpret(graph, LibTorch(), inputs), strict=True):
        torch.testing.assert_close(y, z, rtol=size, atol=size)


def test_extremes_propagate_nan_and_infinities_are_what_the_table_says() -> None:
    inf = float("inf")
    x = torch.tensor([[1.0, float("nan"), 3.0], [1.0, 2.0, 3.0], [inf, -inf, 0.0], [-inf] * 3])
    for dims in ((1,), (0,)):
        graph = traced(lambda x, d=dims: (row("amax")(x, dims=d), row("amin")(x, dims=d)), [tensor(4, 3)])
        high, low = as_one(graph, [x])
        torch.testing.assert_close(high, x.amax(dims, keepdim=True), equal_nan=True)
        torch.testing.assert_close(low, x.amin(dims, keepdim=True), equal_nan=True)
    graph = traced(lambda x: row("softmax")(x * 1.0, dim=1), [tensor(4, 3)])
    torch.testing.assert_close(planned(graph, [x])[0], torch.softmax(x, 1), equal_nan=True)


def test_long_sums_keep_their_digits(seed: np.random.Generator) -> None:
    """A million numbers near one: float32 added one by one would lose the fourth digit."""
    for shape, dims in (((2, 1 << 20), (1,)), ((1 << 20, 2), (0,))):
        x = made([tensor(*shape)], seed)[0].abs() * 0.01 + 1.0
        graph = traced(lambda x, d=dims: row("sum")(x, dims=d), [tensor(*shape)])
        torch.testing.assert_close(
            as_one(graph, [x])[0].double(), x.double().sum(dims, keepdim=True), rtol=2e-7, atol=0
        )


# -- layouts, numbers, random values -------------------------------------------------------------------
def test_inputs_with_strides(seed: np.random.Generator) -> None:
    graph = traced(lambda x, y: row("tanh")(x) + y, [MATRIX, MATRIX])
    x, y = made([tensor(10, 6), tensor(6, 20)], seed)
    kernel = CFunction(graph, strict=False)
    for given_ in (
        (x.mT, y[:, ::2]),
        (x.mT.contiguous(), y[:, :10]),
        (x.mT, y[:, 10:]),
        (x[:1, :1].expand(6, 10), x.mT),
    ):
        agree(kernel(*given_), [torch.tanh(given_[0].double()) + given_[1].double()])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_numbers_keep_their_digits(dtype: DType, seed: np.random.Generator) -> None:
    specs: list[Spec] = [tensor(4, dtype=dtype), FLOAT_NUMBER]
    graph = traced(lambda x, rate: x * rate + 0.1, specs)
    x = made(specs, seed)[0]
    (output,) = as_one(graph, [x, 1 / 3])
    torch.testing.assert_close(output, x * (1 / 3) + 0.1, rtol=1e-15 if dtype is DType.F64 else 2e-7, atol=0)


@pytest.mark.parametrize("shape", [(6, 10), (5, 8), (3, 1032), (2, 3, 4)])
def test_random_rows_draw_what_the_leaf_draws(shape: tuple[int, ...], seed: np.random.Generator) -> None:
    def drop(x: Any, key: Any, stream: Any) -> Any:
        h = x * row("dropout_mask")(0.4, key, stream, shape=shape, dtype=DType.F32, place="cpu") + 1.0
        return h, h - row("mean")(h, dims=(len(shape) - 1,)), row("sum")(h, dims=(0,))

    specs: list[Spec] = [tensor(*shape), INT_NUMBER, INT_NUMBER]
    graph = traced(drop, specs)
    for key, stream in ((7, 11), (-1, 2**64 - 1), (2**63, 0)):
        inputs = [made(specs, seed)[0], key, stream]
        for y, z in zip(planned(graph, inputs), interpret(graph, LibTorch(), inputs), strict=True):
            torch.testing.assert_close(y, z)


def test_strict_rounding_gives_the_bits_of_eager(seed: np.random.Generator) -> None:
    for dtype in (DType.F16, DType.BF16):
        specs = [tensor(6, 10, dtype=dtype), tensor(6, 10, dtype=dtype)]
        graph = traced(lambda x, y: (x * y + x) * y - x, specs)
        inputs = made(specs, seed)
        (eager,) = interpret(graph, LibTorch(), inputs)
        assert torch.equal(as_one(graph, inputs, strict=True)[0], eager)
        assert not torch.equal(as_one(graph, inputs)[0], eager), "one rounding instead of four shows"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor has no second thread")
def test_the_bits_do_not_depend_on_the_number_of_threads(seed: np.random.Generator) -> None:
    specs: list[Spec] = [tensor(300, 257), tensor(257), tensor(257), FLOAT_NUMBER]
    graph = traced(PROGRAMS["layer_norm"][0], specs)
    column = traced(lambda x: (row("sum")(row("tanh")(x), dims=(0,)), row("sum")(x * 2.0, dims=(1,))), specs[:1])
    inputs = made(specs, seed)
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            runs.append([*planned(graph, inputs), *planned(column, inputs[:1])])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(y, z) for y, z in zip(*runs, strict=True))


# -- memory ------------------------------------------------------------------------------------------------
def test_results_are_written_over_inputs_only_where_they_are_read_no_more(seed: np.random.Generator) -> None:
    graph = traced(gelu, [MATRIX])
    (x,) = made([MATRIX], seed)
    expected, pointer = as_one(graph, [x])[0], x.data_ptr()
    (output,) = CFunction(graph, strict=False).written_over({0: 0})(x)
    assert output.data_ptr() == pointer
    assert torch.equal(output, expected)

    shifted = traced(lambda x: x + row("flip")(x, axes=(1,)), [MATRIX])
    assert lower_to_c(shifted).over == ()
    (x,) = made([MATRIX], seed)
    (output,) = CFunction(shifted, strict=False).written_over({0: 0})(x)
    assert torch.equal(output, x + x.flip(1))

    softmax = traced(
        lambda x: (row("exp")(x), row("sum")(row("exp")(x), dims=(1,)) + row("mean")(x, dims=(1,))), [MATRIX]
    )
    (x,) = made([MATRIX], seed)
    wanted = as_one(softmax, [x])
    for y, z in zip(CFunction(softmax, strict=False).written_over({0: 0})(x), wanted, strict=True):
        assert torch.equal(y, z)


# -- building ----------------------------------------------------------------------------------------------
def test_a_kernel_that_does_not_compile_is_reported_and_its_operations_run(
    monkeypatch: pytest.MonkeyPatch, seed: np.random.Generator
) -> None:
    monkeypatch.setattr(c_libraries, "_FLAGS", (*c_libraries._FLAGS, "-fno-such-flag"))
    graph = traced(lambda x: row("tanh")(x * 2.0) + 41.5, [MATRIX])
    inputs = made([MATRIX], seed)
    kernel = CFunction(graph, strict=False)
    with pytest.warns(CompilerWarning, match="a generated C kernel was not built; its operations run one by one"):
        outputs = kernel(*inputs)
    agree(outputs, in_float64(graph, inputs))
    agree(kernel(*inputs), in_float64(graph, inputs))  # and is not tried again


def test_many_libraries_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(source_file, "_KEPT", 2)
    x = torch.ones(4)
    for number in range(5):
        CFunction(traced(lambda x, n=number: row("tanh")(x + float(n)) * 2.0, [tensor(4)]), strict=False)(x)
    left = {path.suffix for path in (tmp_path / "kernels").iterdir()}
    assert left == {".so", ".c"}
    assert len(list((tmp_path / "kernels").glob("*.so"))) == len(list((tmp_path / "kernels").glob("*.c"))) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_builds_kernels_of_its_own() -> None:
    x = torch.ones(4)
    CFunction(traced(lambda x: row("tanh")(x + 21.5) * 2.0, [tensor(4)]), strict=False)(x)  # the pool has a thread now
    child = os.fork()
    if not child:
        CFunction(traced(lambda x: row("tanh")(x + 22.5) * 2.0, [tensor(4)]), strict=False)(x)
        os._exit(7)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("the forked process waits for a thread that it does not have")
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == 7


def test_few_operations_on_few_elements_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    small, large = tensor(16, 32), tensor(512, 512)
    for spec, pays in ((small, False), (large, True)):
        body = traced(lambda x: row("relu")(x * 2.0), [spec])
        assert (c_lowering.lowered_for_cpu(body, strict=False) is not None) == pays
    assert c_lowering.lowered_for_cpu(traced(gelu, [small]), strict=False) is not None


def test_explain_shows_the_source_in_c(tmp_path: Path) -> None:
    step = compile(lambda x: x * ((x / 1.4142135623730951).erf() + 1.0) / 2.0, fuse=True)
    fusion = step.explain(Tensor.ones((64, 64), Device.cpu())).fusion
    assert fusion is not None
    (report,) = fusion.kernels
    assert report.c_source is not None
    assert "erf_(" in report.c_source
    assert "#pragma omp" in fusion.show(tmp_path / "page.html").read_text()


def test_without_a_compiler_nothing_is_generated_and_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_kernels, "compiler", lambda: None)
    c_kernels._tell_of_none.cache_clear()
    step = compile(lambda x: (x * 2.0).tanh() * 3.0, fuse=True)
    x = Tensor.from_floats([[1.0, 2.0]], Device.cpu())
    with pytest.warns(CompilerWarning, match="there is no C compiler, so fused operations run one by one"):
        step(x)
    assert step(x).tolist() == compile(lambda x: (x * 2.0).tanh() * 3.0)(x).tolist()


def test_processes_that_build_one_kernel_at_once_both_have_it(tmp_path: Path) -> None:
    program = """if True:
        import torch
        from burn_torch.backend.libtorch.generated.c_kernels import CFunction
        from tests.fusion.programs import chain12, tensor, traced
        graph = traced(chain12, [tensor(4, 5), tensor(4, 5)])
        x = torch.linspace(-2, 2, 20).reshape(4, 5)
        print(float(CFunction(graph, strict=False)(x, x)[0].sum()))
    """
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "BURN_TORCH_CACHE": str(tmp_path),
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'kernels'}",
    }
    children = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert printed[0] == printed[1]
    assert len(list((tmp_path / "kernels").glob("*.so"))) == 1
    assert not list((tmp_path / "kernels").glob("tmp*"))


# -- whole steps -------------------------------------------------------------------------------------------
class Net(Module):
    first: nn.Linear
    norm: nn.LayerNorm
    dropout: nn.Dropout
    second: nn.Linear

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = nn.Gelu().forward(self.norm.forward(self.first.forward(x)))
        return (self.second.forward(self.dropout.forward(hidden)) - y).square().mean()


def trained(steps: int, **options: Any) -> list[float]:
    seed(5)
    device = Device.cpu().autodiff()
    norm = nn.LayerNormConfig(24).init(device)
    model = Net(nn.LinearConfig(12, 24).init(device), norm, nn.Dropout(0.2), nn.LinearConfig(24, 12).init(device))
    optim = AdamWConfig().init()

    def step(model: Net, optim: Any, x: Tensor, lr: float) -> Any:
        loss = model.loss(x, x)
        model, optim = optim.step(lr, model, GradientsParams.from_grads(loss.backward(), model))
        return model, optim, loss.detach()

    run = compile(step, donate=("model", "optim"), **options)
    x = Tensor.from_data(np.random.default_rng(1).standard_normal((32, 12)).astype(np.float32), device)
    losses = []
    for _ in range(steps):
        model, optim, loss = run(model, optim, x, 1e-3)
        losses.append(float(loss))
    return losses


def test_a_training_step_in_c_follows_the_one_without() -> None:
    np.testing.assert_allclose(trained(30, fuse=True), trained(30), rtol=1e-4)


# -- random programs -----------------------------------------------------------------------------------
SLOW = os.environ.get("BURN_TORCH_SLOW") == "1"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=300 if SLOW else 10, deadline=None, phases=PHASES)
@given(recipes(), st.sampled_from([DType.F32, DType.BF16]), st.integers(0, 2**32 - 1))
def test_random_programs(recipe: Any, dtype: DType, number: int) -> None:
    shapes, steps = recipe
    specs = [tensor(*shape, dtype=dtype) for shape in shapes]
    graph = traced(lambda *xs: cooked(steps, xs) or xs[0] * 2.0, specs)
    inputs = made(specs, np.random.default_rng(number))
    exact = in_float64(graph, inputs)
    scale = max([float(y.abs().max()) for y in exact if y.numel()], default=1.0)
    agree(planned(graph, inputs), exact, (20 if dtype is DType.F32 else 40) * max(scale, 1.0))


@settings(max_examples=300 if SLOW else 8, deadline=None, phases=PHASES)
@given(recipes(), st.integers(0, 2**32 - 1))
def test_gradients_of_random_programs(recipe: Any, number: int) -> None:
    shapes, steps = recipe
    plain = Device.cpu()
    inputs = made([tensor(*shape) for shape in shapes], np.random.default_rng(number))

    def pulled(*xs: Tensor) -> Any:
        ys, pull = vjp(lambda *given_: cooked(steps, given_) or (given_[0] * 2.0,), *xs)
        return pull(tuple(y * 0.5 + 1.0 for y in ys))

    wide = pulled(*[Tensor.from_torch(x.double(), plain) for x in inputs])
    fused = compile(pulled, fuse=True)(*[Tensor.from_torch(x, plain) for x in inputs])
    exact = [g.into_torch() for g in wide]
    scale = max([float(g.abs().max()) for g in exact if g.numel()], default=1.0)
    agree([g.into_torch() for g in fused], exact, 40 * max(scale, 1.0))


@pytest.mark.parametrize("dtype", [DType.F32, DType.I64], ids=str)
def test_a_border_around_nothing_is_a_number_everywhere(dtype: DType, seed: np.random.Generator) -> None:
    number: Any = 0.5 if dtype.is_float else 7

    def padded(x: Any) -> Any:
        return row("cat")(row("pad")(x, number, padding=((1, 2), (0, 0)), mode="constant"), x, dim=0)

    graph = traced(padded, [tensor(0, 4, dtype=dtype)])
    inputs = made([spec for _, spec in graph.inputs], seed)
    assert CFunction(graph, strict=False).kernel is not None
    agree(as_one(graph, inputs), in_float64(graph, inputs))
