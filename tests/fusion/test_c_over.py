"""Generated C whose results lie over inputs: each iteration has read what it overwrites before it does."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from burn_torch import Device, Tensor, compile, grad
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.generated.c_kernels import CFunction
from burn_torch.core.dtype import DType
from burn_torch.fusion import plan_of
from burn_torch.fusion.c import lowering as c_lowering
from burn_torch.graph.ir import Graph
from tests.fusion.checking import made
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture
from tests.fusion.programs import row, tensor, traced
from tests.fusion.random_recipes import one_step, recipes

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]


def sums(x: Any, *dims: int) -> Any:
    return row("sum")(x, dims=dims)


def two_chains(h: Any, a: Any) -> Any:
    return a * 2.0 + 1.0, h * 3.0 + a


def crossed(a: Any, b: Any, c: Any) -> Any:
    return b * 2.0, c - a, a + b * c


def columns_then_state(x: Any, y: Any, state: Any) -> Any:
    return -sums(x * 2.0, 0), state + sums(y * 2.0, 0)


def rows_then_state(x: Any, y: Any, state: Any) -> Any:
    return -sums(x * 2.0, 1), state + sums(y * 2.0, 1)


def normaliser(mean: Any, var: Any, x: Any) -> Any:
    m, v = mean * 0.9 + row("mean")(x, dims=(0,)) * 0.1, var * 0.9 + row("mean")(x * x, dims=(0,)) * 0.1
    return m, v, (x - m) * (v + 1.5)


def online_softmax(m: Any, s: Any, x: Any) -> Any:
    new = row("maximum")(m, row("amax")(x, dims=(1,)))
    return new, s * row("exp")(m - new) + sums(row("exp")(x - new), 1)


def row_after_its_pass(x: Any, y: Any) -> Any:
    """The first result is stored in a pass over the row, and the second reads both inputs when the row is summed."""
    return y * 2.0, x * 2.0 + sums(x * y, 1), sums(x, 1) * 3.0 + sums(row("exp")(y), 1)


def two_passes(x: Any, y: Any) -> Any:
    """The second pass over a row reads what the first one may not have overwritten."""
    centred = x - row("mean")(x, dims=(1,))
    return row("exp")(y), centred * y


ROWS, COLS = 6, 40
PAIR = [(ROWS, COLS), (ROWS, COLS)]
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "two_chains": (two_chains, PAIR),
    "crossed": (crossed, [*PAIR, (ROWS, COLS)]),
    "columns_then_state": (columns_then_state, [*PAIR, (1, COLS)]),
    "rows_then_state": (rows_then_state, [*PAIR, (ROWS, 1)]),
    "normaliser": (normaliser, [(1, COLS), (1, COLS), (ROWS, COLS)]),
    "online_softmax": (online_softmax, [(ROWS, 1), (ROWS, 1), (ROWS, COLS)]),
    "row_after_its_pass": (row_after_its_pass, PAIR),
    "rows_of_one": (row_after_its_pass, [(ROWS, 1), (ROWS, 1)]),
    "columns_of_one": (columns_then_state, [(1, COLS), (1, COLS), (1, COLS)]),
    "two_passes": (two_passes, PAIR),
}


def choices(over: tuple[tuple[int, int], ...]) -> list[dict[int, int]]:
    """Ways to write as many results as can be over inputs of their own."""
    outputs, inputs = sorted({j for j, _ in over}), sorted({k for _, k in over})
    count = min(len(outputs), len(inputs))
    pairings = []
    for chosen in permutations(outputs, count):
        for under in permutations(inputs, count):
            pairs = [pair for pair in zip(chosen, under, strict=True) if pair in over]
            if pairs and dict(pairs) not in pairings:
                pairings.append(dict(pairs))
    most = max(map(len, pairings), default=0)
    return [pairs for pairs in pairings if len(pairs) == most]


def check_all_choices(graph: Graph, inputs: list[Any]) -> int:
    """Compares each way to write over inputs with none, to the bit; how many there are."""
    kernel = CFunction(graph, strict=False)
    assert kernel.kernel is not None
    apart = list(kernel(*inputs))
    ways = choices(kernel.kernel.over)
    for over in ways:
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        together = list(kernel.written_over(over)(*copies))
        for number, (y, z) in enumerate(zip(together, apart, strict=True)):
            torch.testing.assert_close(y, z, rtol=0, atol=0, equal_nan=True, msg=f"result {number}, {over}")
            if number in over:
                assert y.data_ptr() == copies[over[number]].data_ptr()
    return len(ways)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_loads_of_a_pass_precede_its_stores(name: str, dtype: DType, seed: np.random.Generator) -> None:
    function, shapes = CASES[name]
    specs = [tensor(*shape, dtype=dtype) for shape in shapes]
    assert check_all_choices(traced(function, specs), made(specs, seed)) > 0


def test_a_result_covers_no_input_that_a_later_pass_reads() -> None:
    specs = [tensor(*shape) for shape in PAIR]
    over = c_lowering.lower_to_c(traced(two_passes, specs)).over
    assert (0, 0) not in over, "the first pass stores, and the second reads x again"
    assert (1, 0) in over, "the last pass reads and stores"


@pytest.mark.parametrize("fuse", [False, True])
def test_a_product_that_dies_is_read_before_a_result_takes_its_memory(fuse: bool, seed: np.random.Generator) -> None:
    a, b = (seed.standard_normal((80, 80)).astype(np.float32) for _ in range(2))

    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        h = a @ b
        return a * 2.0 + 1.0, h * 3.0 + a

    first, second = compile(f, fuse=fuse)(Tensor.from_data(a, Device.cpu()), Tensor.from_data(b, Device.cpu()))
    wide = a.astype(np.float64)
    np.testing.assert_allclose(first.into_data().values, wide * 2 + 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second.into_data().values, wide @ b * 3 + wide, rtol=1e-5, atol=1e-4)


def test_gradients_of_one_input_do_not_overwrite_what_the_next_reads(seed: np.random.Generator) -> None:
    a, b = (seed.standard_normal((60, 50)) for _ in range(2))

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return b.hypot(b).mean() + (a * b).mean()

    both = compile(lambda a, b: grad(loss, argnums=(0, 1))(a, b), fuse=True)
    da, db = both(Tensor.from_data(a, Device.cpu()), Tensor.from_data(b, Device.cpu()))
    np.testing.assert_allclose(da.into_data().values, b / a.size, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(db.into_data().values, (np.sqrt(2) * np.sign(b) + a) / a.size, rtol=1e-9, atol=1e-12)


# -- random bodies -----------------------------------------------------------------------------------
SLOW = os.environ.get("BURN_TORCH_SLOW") == "1"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
FLOATS = [DType.F32, DType.F32, DType.F64, DType.BF16, DType.F16]


def several(steps: Any, inputs: Any, chosen: list[int]) -> tuple[Any, ...]:
    """Results of a random program from all along it."""
    values = list(inputs)
    for kind, a, b, choice in steps:
        x, y = values[a % len(values)], values[b % len(values)]
        z = one_step(kind, x, y, choice, inputs, True)
        if z is not None and z.spec.numel <= 8192:
            values.append(z)
    computed = values[len(inputs) :]
    if not computed:
        return (inputs[0] * 2.0,)
    return tuple(computed[n % len(computed)] for n in dict.fromkeys(chosen))


@settings(max_examples=600 if SLOW else 6, deadline=None, phases=PHASES)
@given(recipes(FLOATS), st.lists(st.integers(0, 11), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_random_programs_with_donated_inputs(recipe: Any, chosen: list[int], number: int) -> None:
    """Several results, values that die early, donated inputs: the same bits as without any memory used twice."""
    shapes, steps = recipe
    specs = [tensor(*shape, dtype=dtype) for shape, dtype in shapes]
    plan = plan_of(traced(lambda *xs: several(steps, xs, chosen), specs)).graph
    inputs = made(specs, np.random.default_rng(number))
    wanted = [y.clone() for y in LibTorch().program(_each_value_kept(plan)).run(*inputs)]
    donated = [n for n in range(len(inputs)) if (number >> n) & 1]
    results = LibTorch().program(plan, donated).run(*(x.clone() for x in inputs))
    for y, z in zip(results, wanted, strict=False):
        torch.testing.assert_close(y, z, rtol=0, atol=0, equal_nan=True)


def _each_value_kept(plan: Graph) -> Graph:
    """The same program whose every value is a result too, so that nothing is written over anything."""
    kept = [i for node in plan.nodes for i in node.outputs if i is not None]
    return Graph(plan.inputs, plan.nodes, [*plan.outputs, *kept])
