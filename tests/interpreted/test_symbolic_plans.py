"""Kernels of symbolic sizes under the interpreter: at every length what the shape's own kernels and float64 say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from burn_torch import Device, FusionWarning, Tensor, compile
from burn_torch.backend.lazy import Fusion, fusion_of
from burn_torch.backend.lazy.stream import Stream
from burn_torch.backend.libtorch.generated import kernel_files
from burn_torch.core.dtype import DType
from burn_torch.core.spec import FLOAT_NUMBER, TensorSpec
from burn_torch.fusion import plan_of
from burn_torch.fusion.rows.symbolic import form_of, sizes_of
from burn_torch.fusion.shapes.variants import Variants
from burn_torch.graph.interpreter import interpret
from burn_torch.graph.ir import Graph
from burn_torch.tensor import activation
from burn_torch.transform import value_and_grad
from tests.fusion import random_recipes
from tests.fusion.checking import in_float64, made
from tests.fusion.programs import COLS, PROGRAMS, ROWS, tensor, traced

pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)  # in lanes that are masked

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller program is not worth the minutes it takes to find

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 63, 64, 65)
"""Nothing, one, primes, powers of two and what is beside them."""

PLAIN, FUSED = Device.cpu().autodiff(), Device.cpu().fused().autodiff()


@pytest.fixture
def stream() -> Iterator[Stream]:
    fusion = fusion_of(FUSED.backend)
    assert isinstance(fusion, Fusion)
    opened = fusion.stream("cpu")
    opened.flush()
    opened.history.clear()
    fusion.replan()
    fusion.planner._recent.clear()
    yield opened
    opened.flush()


# -- one kernel -------------------------------------------------------------------------------------------
KNOWN: dict[str, Variants] = {}


def at_sizes(name: str, rows: int, cols: int) -> Graph:
    sizes = {ROWS: rows, COLS: cols, COLS // 2: cols // 2, 1: 1}
    specs = [
        spec.with_shape(tuple(sizes[n] for n in spec.shape)) if isinstance(spec, TensorSpec) else spec
        for spec in PROGRAMS[name][1]
    ]
    return traced(PROGRAMS[name][0], specs)


CASES = (
    st.sampled_from(sorted(PROGRAMS)),
    st.sampled_from(LENGTHS[2:]),
    st.sampled_from(LENGTHS[2:]),
    st.sampled_from(["contiguous", "transposed", "every second"]),
    st.integers(0, 1000),
)


@settings(deadline=None, max_examples=6)
@given(*CASES)
def test_symbolic_kernels_are_exact_kernels_are_float64(
    name: str, rows: int, cols: int, lies: str, number: int
) -> None:
    agree(name, rows, cols, lies, number)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(*CASES)
def test_many_symbolic_kernels_are_exact_kernels_are_float64(
    name: str, rows: int, cols: int, lies: str, number: int
) -> None:
    agree(name, rows, cols, lies, number)


def agree(name: str, rows: int, cols: int, lies: str, number: int) -> None:
    """Whatever came before, so plans grow from example to example; inputs with gaps too."""
    cols += cols % 2 if name in ("rotary", "rotated") else 0
    graph = at_sizes(name, rows, cols)
    variants = KNOWN.setdefault(name, Variants())
    for other in (at_sizes(name, 6, 10), at_sizes(name, 12, 18), graph):
        if variants.found(sizes_of(other)) is None:
            variants.made(other, sizes_of(other), plan_of)
    instance_at = variants.found(sizes_of(graph))
    assert instance_at is not None or (cols == 2 and name == "rotated"), "half of 2 is no symbol"
    rng = np.random.default_rng(number)
    inputs: list[Any] = [
        laid_out(torch.from_numpy(rng.uniform(0.5, 1.5, spec.shape)).float(), lies)
        if isinstance(spec, TensorSpec)
        else (1e-5 if spec is FLOAT_NUMBER else number)
        for _, spec in graph.inputs
    ]
    exact = interpret(plan_of(graph).graph, FUSED.backend.leaf(), inputs)
    shared = exact if instance_at is None else interpret(instance_at[1], FUSED.backend.leaf(), inputs)
    near = 2e-5 if cols > 4 else 2e-4  # a norm of few columns divides by what may be a small difference of them
    for y, z, wanted in zip(shared, exact, in_float64(graph, inputs), strict=True):
        torch.testing.assert_close(y, z, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(y.double(), wanted, rtol=near, atol=near)


def laid_out(x: torch.Tensor, how: str) -> torch.Tensor:
    if how == "transposed" and x.ndim == 2:
        return x.T.contiguous().T
    if how == "every second" and x.ndim:
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"))
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


def test_a_row_that_does_not_fit_a_program_has_a_plan_of_its_own() -> None:
    variants = Variants()
    for cols in (10, 24, 16390, 16411, 40, 17001):
        graph = at_sizes("softmax", 2, cols)
        if variants.found(sizes_of(graph)) is None:
            variants.made(graph, sizes_of(graph), plan_of)
        instance_at = variants.found(sizes_of(graph))
        if instance_at is not None:
            x = torch.linspace(-1, 1, 2 * cols).reshape(2, cols)
            (y,) = interpret(instance_at[1], FUSED.backend.leaf(), [x])
            torch.testing.assert_close(y, torch.softmax(x * 0.5, 1), rtol=2e-5, atol=1e-9)
    assert [len(variants.plans), variants.planned] == [2, 2]
    guards = {guard.text for plan in variants.plans for guard in plan.symbolic.guards}
    assert {"16384 < s0", "s0 <= 16384"} <= guards


# -- the stream ------------------------------------------------------------------------------------------------
def norm(x: Tensor) -> Tensor:
    centred = x - x.mean_dim(1)
    return centred / (centred.square().mean_dim(1) + 1e-5).sqrt()


def attended(x: Tensor) -> Tensor:
    """A library's products between generated kernels, of axes that are the same length."""
    scores = activation.softmax(x.matmul(x.transpose()) * 0.25, 1)
    return (scores.matmul(x) + x).tanh()


def columns(x: Tensor) -> Tensor:
    return (x * 2.0).tanh() - x.mean_dim(0)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"norm": norm, "attended": attended, "columns": columns}


def value_and_gradient(function: Callable[[Tensor], Tensor], data: Any, upstream: Any, device: Device) -> list[Any]:
    x = Tensor.from_data(data, device).require_grad()
    y = function(x)
    gradient = x.grad((y * Tensor.from_data(upstream, device)).sum().backward())
    assert gradient is not None
    return [y.inner().into_torch(), gradient.into_torch()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_at_ever_new_lengths(name: str, stream: Stream, seed: np.random.Generator) -> None:
    before = set(kernel_files._modules)
    for length in (0, 1, 4, 7, 8, 9, 16, 17, 31, 33, 65):
        if length == 0 and name != "columns":
            continue
        data, upstream = seed.standard_normal((2, length, 6))
        exact = value_and_gradient(FUNCTIONS[name], data, upstream, PLAIN)
        single = data.astype(np.float32), upstream.astype(np.float32)
        actual = value_and_gradient(FUNCTIONS[name], single[0], single[1], FUSED)
        for y, z in zip(actual, exact, strict=True):
            torch.testing.assert_close(y.double(), z, rtol=5e-5, atol=5e-5)
    exact_plans = [ready.symbolic for ready in stream.history].count(None)
    assert exact_plans <= 3, "of lengths 0 and 1, and of the first one"
    assert len(set(kernel_files._modules) - before) <= 12, "kernels of 11 lengths, forward and backward"


def test_kernels_of_50_lengths_are_few(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compilations of a machine: a kernel, its tiles, and what Triton asks of each number (1, a multiple of 16)."""
    compiled: set[Any] = set()

    def launched(function: Any, grid: Any, out: Any, *given: Any, warps: int, **blocks: int) -> None:
        classes = tuple(x % 16 == 0 for x in given if isinstance(x, int))
        compiled.add((function.fn.__name__, warps, *blocks.values(), classes))

    monkeypatch.setattr("burn_kernels.launch.launch", launched)
    device = FUSED.inner()
    for length in range(301, 351):
        norm(Tensor.ones((length, 64), device)).into_torch()
    names = {name for name, *_ in compiled}
    assert len(names) <= 2, "the first length's own, and that of all others"
    assert len(compiled) <= 3, "which is compiled for lengths that are multiples of 16 and for others"


def test_a_kernel_that_fails_is_reported_once_for_all_lengths(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def failing(function: Any, *rest: Any, **options: Any) -> Any:
        tried.append(function.fn.__name__)
        raise SyntaxError("ptxas does not like this kernel")

    monkeypatch.setattr("burn_kernels.launch.launch", failing)
    device = FUSED.inner()
    outputs: list[torch.Tensor] = []

    def run() -> None:
        tensors = [Tensor.from_torch(torch.linspace(-1, 1, n * 6).reshape(n, 6), device) for n in (4, 5, 7, 9)]
        outputs.extend((x.tanh() * 3.0 - x).into_torch() for x in tensors)

    with pytest.warns(FusionWarning, match=r"kernel failed(?s:.)*given: *fused_(?s:.)*ptxas(?s:.)*mend:") as warned:
        run()
    assert len(warned) == len(tried) == 2, "that of the first length, and that of all others"
    for y, n in zip(outputs, (4, 5, 7, 9), strict=True):
        x = torch.linspace(-1, 1, n * 6).reshape(n, 6)
        torch.testing.assert_close(y, x.tanh() * 3 - x)


# -- compile ---------------------------------------------------------------------------------------------------
def test_compiled_steps_share_kernels_between_shapes(seed: np.random.Generator) -> None:
    before = set(kernel_files._modules)
    w = Tensor.from_torch(torch.from_numpy(seed.standard_normal((6, 5))).float())

    def step(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        def loss(w: Tensor) -> Tensor:
            h = activation.gelu(x.matmul(w))
            return (activation.softmax(h, 1) * h).mean()

        value, gradient = value_and_grad(loss)(w)
        return value, w - gradient * 0.1

    kernels: list[int] = []
    run, exact = compile(step, fuse=True, numerics="fast"), compile(step)
    for length in (4, 7, 9, 16, 12, 31):
        x = Tensor.from_torch(torch.from_numpy(seed.standard_normal((length, 6))).float())
        for y, z in zip(run(w, x), exact(w, x), strict=True):
            torch.testing.assert_close(y.into_torch(), z.into_torch(), rtol=2e-5, atol=2e-5)
        kernels.append(len(set(kernel_files._modules) - before))
    assert kernels[1] <= 2 * kernels[0]
    assert kernels[2:] == [kernels[1]] * 4, "of the third length on, none is new"
    assert run.traces == 6, "each shape is traced"


def test_a_single_symbol_reaches_all_sizes() -> None:
    """tensor(length) alone: below four elements random words are drawn one by one, so nothing but values is asked."""
    variants = Variants()
    for length in LENGTHS[2:]:
        graph = traced(lambda x: (x * 3.0 + 1.0) * x, [tensor(length)])
        if variants.found(sizes_of(graph)) is None:
            variants.made(graph, sizes_of(graph), plan_of)
        instance_at = variants.found(sizes_of(graph))
        x = torch.linspace(-1, 1, length)
        if instance_at is not None:
            torch.testing.assert_close(interpret(instance_at[1], FUSED.backend.leaf(), [x])[0], (x * 3 + 1) * x)
    assert variants.planned == 1


# -- random programs -------------------------------------------------------------------------------------------
SIZES: list[dict[int, int]] = [
    {},
    {2: 5, 3: 6, 4: 9, 5: 8, 7: 11, 13: 15},
    {2: 3, 3: 2, 4: 17, 5: 2, 7: 4, 13: 31},
    {2: 4, 3: 4, 4: 4, 5: 4, 7: 4, 13: 4},
    {2: 2, 3: 16, 4: 15, 5: 33, 7: 7, 13: 64},
]
"""Replacements for the sizes of a random program's inputs; in one of these all that may be symbols are equal."""

SMALL = [shape for shape in random_recipes.SHAPES if math.prod(shape) in range(1, 200)]

RECIPES = st.tuples(
    st.lists(st.tuples(st.sampled_from(SMALL), st.sampled_from([DType.F32, DType.F32, DType.BF16, DType.I32])),
             min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(random_recipes.KINDS), st.integers(0, 9), st.integers(0, 9),
                       st.integers(0, 99)), min_size=1, max_size=8),
)  # fmt: skip


@settings(deadline=None, max_examples=8, phases=PHASES)
@given(RECIPES, st.integers(0, 1000))
def test_random_programs_at_other_sizes(recipe: Any, number: int) -> None:
    at_all_sizes(recipe, number)


@pytest.mark.slow
@settings(deadline=None, max_examples=300, phases=PHASES)
@given(RECIPES, st.integers(0, 1000))
def test_many_random_programs_at_other_sizes(recipe: Any, number: int) -> None:
    at_all_sizes(recipe, number)


def at_all_sizes(recipe: Any, number: int) -> None:
    """Programs of one form share plans; each is float64 at its sizes, whichever plan it gets."""
    inputs, steps = recipe
    variants: dict[Any, Variants] = {}
    for sizes in SIZES:
        specs = [tensor(*(sizes.get(n, n) for n in shape), dtype=dtype) for shape, dtype in inputs]
        graph = traced(lambda *x: random_recipes.cooked(steps, x), specs)
        known = variants.setdefault(form_of(graph), Variants())
        if known.found(sizes_of(graph)) is None:
            known.made(graph, sizes_of(graph), plan_of)
        instance_at = known.found(sizes_of(graph))
        if instance_at is None:
            continue
        data = made(specs, np.random.default_rng(number))
        kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in data]
        y = interpret(instance_at[1], FUSED.backend.leaf(), data)
        agree_with_float64(y, in_float64(graph, data), graph)
        assert all(torch.equal(a, b) for a, b in zip(data, kept, strict=True))


def agree_with_float64(actual: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], graph: Graph) -> None:
    half = any(
        isinstance(spec, TensorSpec) and spec.dtype in (DType.BF16, DType.F16) for spec in graph.specs().values()
    )
    for y, z in zip(actual, exact, strict=True):
        if not y.is_floating_point():
            assert torch.equal(y, z.to(y.dtype))
            continue
        size = max(float(z.abs().nan_to_num().max()) if z.numel() else 0.0, 1.0)
        torch.testing.assert_close(y.double(), z, rtol=0, atol=(0.05 if half else 2e-5) * size, equal_nan=True)
