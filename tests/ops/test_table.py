"""Walks the table: every row, every sample, every leaf.  `-k name` picks rows.

A row fails here for a part it lacks, a flag that is wrong, samples that could not expose a mistake, a result or a
gradient that is wrong.  Behaviour at ties, NaN and ends of ranges is tested beside each family.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
import torch

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.libtorch.attached.programs import in_place_form
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import ALL, DType
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from burn_torch.graph import Trace, interpret
from burn_torch.graph.decomposition import decomposed
from burn_torch.ops import REGISTRY, Call, Op, Value
from burn_torch.ops.elementary import ELEMENTARY
from burn_torch.ops.rules import broadcast_shapes
from tests.ops import table_harness as table
from tests.ops.table_errors import (
    NO_TRUE_SLOPE,
    TORCH_DIFFERS,
    float64,
    float64_of,
    stable_gradient,
    torch_errors,
    torch_gradient_errors,
    twin_place,
    wide_gradient,
)
from tests.ops.table_harness import NUMPY, TORCH, Array, Typed

NOT_TWICE: Final[dict[str, str]] = {}
"""Rows whose second gradient is not checked numerically, each with the reason."""

SUMS_BY_ATOMICS: Final[frozenset[str]] = frozenset(
    {"conv_input_gradient", "conv_weight_gradient", "interpolate_backward", "grid_sample_2d_backward"}
)
"""Rows that torch computes on CUDA with float atomics: two runs differ in the last bits."""


def _between_runs(row: Op, place: str, expected: table.Array) -> float:
    """How much two runs of a row may differ: nothing, but for atomics."""
    if place == "cpu" or row.name not in SUMS_BY_ATOMICS or not expected.size:
        return 0.0
    return 1e-12 * float(np.abs(expected).max())


ROWS: Final = [name for name, row in REGISTRY.items() if "::" not in name and not table.is_of_numbers(row)]
"""Users' rows are theirs to test."""


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> Op:
    return REGISTRY[request.param]


@pytest.fixture(params=[pytest.param(p, marks=[pytest.mark.gpu] * p.startswith("cuda")) for p in table.places()])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # errors are judged in float32
    return str(request.param)


def leaves(place: str, row: Op | None = None) -> list[tuple[Any, str]]:
    """The leaves to compare; only one of a row whose signs each library chooses (see `table.SIGNS_BY_LIBRARY`)."""
    if row is not None and row.name in table.SIGNS_BY_LIBRARY:
        return [(TORCH, "cpu")]
    return [(TORCH, place), (NUMPY, "cpu")]


# -- parts -----------------------------------------------------------------------------------------------
def test_row_has_all_its_parts(row: Op) -> None:
    lacks = []
    text = row.__doc__ or ""
    lacks += [f"{heading} in its docstring" for heading in ("Shapes:", "Dtypes:") if heading not in text]
    if not table.cases(row.name):
        lacks.append("samples")
    for leaf, candidate in (("torch", row.torch), ("numpy", row.numpy)):
        if candidate is None and row.decomposition is None:
            lacks.append(f"{leaf}= or a decomposition")
    if row.gradient_rule is None and row.decomposition is None and not row.nondifferentiable:
        lacks.append("a gradient, a decomposition or nondifferentiable=True")
    if row.pointwise is None and is_elementwise(row):
        lacks.append("pointwise=, since it is element-wise")
    if row.pointwise is not None and row.cost != "cheap":
        lacks.append('cost="cheap", since it is element-wise')
    assert not lacks, f"row {row.name} lacks {', '.join(lacks)}"


def is_elementwise(row: Op) -> bool:
    """Returns whether on every sample an output element depends on the input elements at its place alone."""
    if row.view or row.random or row.barrier or set(row.signature.attrs) - {"dtype"}:
        return False
    seen = False
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        call, _, outputs = table.execute(TORCH, variant)
        tensors = [spec for spec in call.specs if isinstance(spec, TensorSpec)]
        try:
            common = broadcast_shapes(*(spec.shape for spec in tensors))
        except Exception:  # a fault is no error of the user's; any says that the shapes do not broadcast
            return False
        if call.multiple or not tensors or common != call.result.shape:
            return False
        before = table.arrays(TORCH, outputs)[0]
        for i, x in enumerate(variant.data):
            if isinstance(x, TensorData) and x.shape == common and before.size > 1:
                seen = True
                changed = x.array.copy()
                changed.reshape(-1)[0] = changed.reshape(-1)[-1]
                data = [TensorData(changed, x.dtype) if j == i else other for j, other in enumerate(variant.data)]
                after = table.arrays(TORCH, table.execute(TORCH, Typed(case, None, tuple(data), case.attrs))[2])[0]
                if not np.array_equal(before.reshape(-1)[1:], after.reshape(-1)[1:], equal_nan=True):
                    return False
    return seen


def test_pointwise_expression_computes_the_row(row: Op) -> None:
    if row.pointwise is None:
        pytest.skip("not element-wise")
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        wide = variant.widened() if variant.floats() else variant
        expected = table.reference(variant)[0]
        names = {f"x{i}": x.values if isinstance(x, TensorData) else x for i, x in enumerate(wide.data)}
        source = row.pointwise.format(*names, **wide.attrs)
        with np.errstate(all="ignore"):
            actual = np.asarray(eval(source, {"__builtins__": {}, **_PRIMITIVES}, names))
        actual = np.broadcast_to(actual, expected.shape)
        table.judge(f"{row.pointwise} on {case!r}", actual, expected, 1e-13 * (1 + np.abs(expected)))


_PRIMITIVES: Final[dict[str, Any]] = {
    **{name: known.numpy for name, known in ELEMENTARY.items()},
    **{name: getattr(np, name) for name in ("tan", "sinh", "cosh", "hypot", "isnan", "isinf", "isfinite", "sign")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "cast": lambda x, dtype: np.asarray(x).astype(dtype.numpy),
    "float": float,
    **{dtype.name: dtype for dtype in ALL.members},
}
"""Holds what an expression may call: the kernel primitives, here in numpy."""


def test_scalar_inplace_and_commutative_agree_with_the_row(row: Op) -> None:
    if row.scalar is None and row.inplace is None and not row.commutative:
        pytest.skip("has none of them")
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        call, inputs, outputs = table.execute(TORCH, variant)
        expected = table.arrays(TORCH, outputs)[0]
        if row.commutative:
            swapped = Typed(case, variant.dtype, (*variant.data[1::-1], *variant.data[2:]), variant.attrs)
            table.judge(f"swapped {case!r}", table.arrays(TORCH, table.execute(TORCH, swapped)[2])[0], expected, 0)
        form = in_place_form(call)
        if form is not None:
            function, over = form
            overwritten = [x.clone() if i in over else x for i, x in enumerate(inputs)]
            written = function(*overwritten) if call.multiple else (function(*overwritten),)
            for i, (result, plain) in enumerate(zip(written, outputs, strict=True)):
                assert result.data_ptr() == overwritten[over[i]].data_ptr(), (
                    f"{case!r}: result {i} is not written in place"
                )
                table.judge(f"in place {case!r}", table.arrays(TORCH, [result])[0], table.arrays(TORCH, [plain])[0], 0)
        if row.scalar is not None:
            count = expected.size
            columns = [
                np.broadcast_to(x.values, expected.shape).ravel().tolist() if isinstance(x, TensorData) else [x] * count
                for x in variant.data
            ]
            numbers = [row.scalar(*numbers) for numbers in zip(*columns, strict=True)]
            actual = np.array(numbers, dtype=np.float64).reshape(expected.shape)
            table.judge(f"scalar {case!r}", actual, expected, 1e-13 * (1 + np.abs(expected)))


# -- memory ------------------------------------------------------------------------------------------------
def test_view_flag_says_which_results_share_memory(row: Op, place: str) -> None:
    shared_once = False
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        for leaf, where in leaves(place, row):
            for strided in (False, True):
                call, inputs, outputs = table.execute(leaf, variant, where, strided)
                again = leaf.execute(call, inputs)
                for j, y in enumerate(outputs):
                    for i, x in enumerate(inputs):
                        if _shares(x, y):
                            shared_once = True
                            assert row.view, f"{leaf} {case!r}: output {j} shares memory with input {i}; view=True?"
                            assert i == 0, f"{leaf} {case!r}: output {j} shares memory with input {i}, view is of 0"
                    others = itertools.chain(again, outputs[:j])
                    assert row.view or not any(_shares(y, z) for z in others), (
                        f"{leaf} {case!r}: output {j} shares memory with another output"
                    )
    assert shared_once or not row.view, f"row {row.name} says view=True, and no result shares memory with input 0"


def _shares(x: Any, y: Any) -> bool:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() and bool(_elements(x) & _elements(y))
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.shares_memory(x, y)


def _elements(x: torch.Tensor) -> set[int]:
    """The places in its storage that a tensor reads: views of the two parts of a complex array read none in common."""
    places = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    return set(places.as_strided(x.shape, x.stride(), x.storage_offset()).flatten().tolist())


def test_inputs_stay_as_they_were(row: Op, place: str) -> None:
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        for leaf, where in leaves(place, row):
            for strided in (False, True):
                inputs = table.execute(leaf, variant, where, strided)[1]
                _assert_unchanged(f"{leaf} {case!r} forward", leaf, variant.data, inputs)
        if case.own and variant.floats():
            wide = float64_of(case)
            for leaf, where in leaves(place, row):
                backward = table.gradients(Autodiff(leaf), wide, table.upstream(wide), place=where)
                _assert_unchanged(f"{leaf} {case!r} backward", leaf, wide.data, backward.inputs)
                expected = table.arrays(leaf, table.execute(leaf, wide, where)[2])
                for y, z in zip(table.arrays(leaf, backward.outputs), expected, strict=True):
                    table.judge(f"{leaf} {case!r}: an output after the backward", y, z, _between_runs(row, place, z))


def _assert_unchanged(what: str, leaf: Any, data: Sequence[Any], inputs: Sequence[Any]) -> None:
    for i, (x, primitive) in enumerate(zip(data, inputs, strict=True)):
        if isinstance(x, TensorData):
            assert leaf.into_data(primitive).array.tobytes() == x.array.tobytes(), f"{what}: wrote to input {i}"


# -- forward -----------------------------------------------------------------------------------------------------
def test_forward(row: Op, place: str) -> None:
    for case in table.cases(row.name):
        for variant in table.variants(case):
            _check_forward(row, variant, place)


def _check_forward(row: Op, variant: Typed, place: str) -> None:
    floats = variant.dtype in (*table.FLOATS, *table.HALVES) and variant.dtype is not None
    results: dict[str, list[Array]] = {}
    viewed = False
    for leaf, where in leaves(place, row):
        if leaf is NUMPY and variant.dtype in table.HALVES:
            continue
        for strided in (False, True):
            call, inputs, outputs = table.execute(leaf, variant, where, strided)
            viewed = viewed or any(_shares(x, y) for x in inputs[:1] for y in outputs)
            what = f"{leaf} {variant!r}{' strided' if strided else ''}"
            for y, spec in zip(outputs, call.results, strict=True):
                real = leaf.spec(y)
                assert spec is None or spec is real, f"{what}: the rule says {spec}, the leaf gives {real}"
            results[what] = table.arrays(leaf, outputs)
    call = variant.call("cpu")
    first = next(iter(results.values()))
    exact = viewed or variant.dtype not in table.EPS
    wide = table.reference(variant) if floats else first
    for what, ys in results.items():
        for j, y in enumerate(ys):
            spec = call.results[j]
            dtype = DType.from_numpy(y.dtype) if spec is None else spec.dtype
            if exact or not dtype.is_float:
                table.judge(f"{what}: output {j}", y, first[j] if exact else wide[j], 0)
            else:
                _judge_float(f"{what}: output {j}", variant, j, y, dtype, place, is_torch=what.startswith("LibTorch"))


def _judge_float(what: str, variant: Typed, j: int, y: Array, dtype: DType, place: str, *, is_torch: bool) -> None:
    with np.errstate(over="ignore"):
        expected = table.reference(variant)[j]
    table.judge(what, y, expected, table.stable(expected, table.sensitivity(variant)[j], dtype))
    if not is_torch and dtype in table.FLOATS and y.size >= _FEW:
        error = torch_errors(variant.case.row, place).get(j, 0.0) * table.size(expected)
        if dtype is DType.F64:  # there is no wider type to measure torch's error with, nor to have no error itself
            error *= 1.5 * table.EPS[DType.F64] / table.EPS[DType.F32]
            error += float(table.ulp(expected, dtype).max(initial=0.0)) / 2
        table.judge(f"{what} against twice torch's error", y, expected, table.twice(expected, error, dtype))


_FEW: Final = 8  # on fewer elements torch's largest error is luck


# -- gradients ------------------------------------------------------------------------------------------------------
def test_nondifferentiable_rows_are_flat(row: Op) -> None:
    if not row.nondifferentiable:
        pytest.skip("differentiable")
    for variant in float64(row):
        for i, numeric in table.numeric_gradients(variant).items():
            assert numeric.kink or not numeric.values.any(), f"{variant!r}: input {i} has a gradient, {numeric.values}"


def test_samples_have_a_gradient_to_check(row: Op) -> None:
    _skip_without_slope(row)
    steep: set[int] = set()
    flat: set[int] = set()
    for variant in float64(row, own=True):
        seeds = table.upstream(variant)
        grads = table.gradients(Autodiff(TORCH), variant, seeds).grads
        if not any(g is not None and g.array.size for g in seeds):
            continue
        for i, numeric in table.numeric_gradients(variant).items():
            if i in grads and grads[i].size:
                slope = np.abs(numeric.values).max() > 1e-8
                (steep if slope else flat).add(i)
                # one element may be what is replaced or cut off; then another sample has to show the slope
                assert slope or grads[i].size == 1, (
                    f"{variant!r}: the true gradient of input {i} is zero: a wrong rule would pass"
                )
    assert flat <= steep, f"row {row.name}: in no sample have inputs {flat - steep} a gradient that is not zero"


def test_gradient_against_central_differences(row: Op, place: str) -> None:
    _skip_without_slope(row)
    for variant in float64(row):
        numerics = table.numeric_gradients(variant)
        if not variant.case.own and any(numeric.kink for numeric in numerics.values()):
            continue  # values of a sample, put into another shape, can meet where the function has no derivative
        for leaf, where in leaves(place, row):
            grads = table.gradients(Autodiff(leaf), variant, table.upstream(variant), place=where).grads
            for i, numeric in numerics.items():
                _judge_numeric(f"{leaf} {variant!r}: gradient of input {i}", grads.get(i), numeric)


def _judge_numeric(what: str, grad: Array | None, numeric: table.Numeric) -> None:
    actual = np.zeros(numeric.values.shape) if grad is None else grad.reshape(-1)[numeric.positions]
    table.judge(what, actual, numeric.values, numeric.tolerance)


def test_gradient_against_torch_in_float64(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    if row.name in TORCH_DIFFERS:
        pytest.skip(TORCH_DIFFERS[row.name])
    for variant in float64(row):
        expected = table.through_torch(variant, table.upstream(variant), twin_place(row, place))
        if expected is None:
            continue
        for leaf, where in leaves(place, row):
            grads = table.gradients(Autodiff(leaf), variant, table.upstream(variant), place=where).grads
            for i, g in expected.items():
                what = f"{leaf} {variant!r}: gradient of input {i} against torch"
                actual = grads.get(i, np.zeros_like(g))
                table.judge(what, actual, g, stable_gradient(variant, DType.F64, i))


def test_gradient_in_float32(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    for wide in float64(row):
        variant = table.typed(wide.case, DType.F32)
        expected = wide_gradient(variant)
        for leaf, where in leaves(place, row):
            grads = table.gradients(Autodiff(leaf), variant, table.upstream(variant), place=where).grads
            assert grads.keys() == expected.keys()
            for i, g in expected.items():
                what = f"{leaf} {variant!r}: gradient of input {i}"
                table.judge(what, grads[i], g, stable_gradient(variant, DType.F32, i))
                error = torch_gradient_errors(row, place).get(i)
                if error is not None and g.size >= _FEW:
                    allowed = table.twice(g, error * table.size(g), DType.F32)
                    table.judge(f"{what} against twice torch's error", grads[i], g, allowed)


def test_gradient_through_each_output(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    for variant in float64(row, own=True):
        seeds = table.upstream(variant)
        live = [j for j, g in enumerate(seeds) if g is not None]
        if len(live) < 2:
            continue
        for leaf, where in leaves(place, row):
            stack = Autodiff(leaf)
            together = table.gradients(stack, variant, seeds, place=where).grads
            total = {i: np.zeros_like(g) for i, g in together.items()}
            for j in live:
                alone = table.gradients(
                    stack, variant, [g if k == j else None for k, g in enumerate(seeds)], place=where
                )
                for i, g in alone.grads.items():
                    total[i] += g
            for i, g in together.items():
                scale = max(1.0, table.size(g))
                table.judge(f"{leaf} {variant!r}: input {i}, sum over outputs", total[i], g, 1e-12 * scale)


@pytest.mark.parametrize("name", [name for name in ROWS if "live" in REGISTRY[name].signature.attrs])
def test_each_output_is_computed_where_it_is_read_alone(name: str, place: str) -> None:
    row = REGISTRY[name]
    for variant in float64(row, own=True):
        for leaf, where in leaves(place, row):
            _, _, whole = table.execute(leaf, variant, where)
            read = [j for j, y in enumerate(whole) if y is not None]
            for j in read:
                attrs = {**variant.attrs, "live": tuple(k == j for k in range(len(whole)))}
                _, _, alone = table.execute(leaf, replace(variant, attrs=attrs), where)
                assert [k for k, y in enumerate(alone) if y is not None] == [j], f"{leaf} {variant!r}"
                y, expected = (table.arrays(leaf, [some[j]])[0] for some in (alone, whole))
                # it may use another kernel for fewer outputs
                table.judge(f"{leaf} {variant!r}: output {j}", y, expected, 1e-13 * max(1.0, table.size(expected)))


def test_gradient_for_each_subset_of_inputs(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    variants = list(float64(row, own=True))
    for number, variant in enumerate(variants):
        wanted = variant.floats()
        if len(wanted) < 2:
            continue
        subsets: list[tuple[int, ...]] = [(i,) for i in wanted]
        if len(wanted) > 2:  # each pair of inputs on every third sample
            subsets += list(itertools.combinations(wanted, 2))[number % 3 :: min(3, len(variants))]
        for leaf, where in leaves(place, row):
            stack = Autodiff(leaf)
            whole = table.gradients(stack, variant, table.upstream(variant), place=where).grads
            for needs in subsets:
                grads = table.gradients(stack, variant, table.upstream(variant), place=where, needs=needs).grads
                assert grads.keys() == whole.keys() & set(needs), f"{leaf} {variant!r}: {needs} alone gives {[*grads]}"
                for i, g in grads.items():
                    # a row with `live` may use another kernel for fewer outputs
                    allowed = 1e-13 * max(1.0, table.size(g))
                    table.judge(f"{leaf} {variant!r}: input {i} with {needs} tracked", g, whole[i], allowed)


def test_balanced_checkpointing_changes_no_bit(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    for variant in float64(row, own=True):
        for leaf, where in leaves(place, row):
            saved = table.gradients(Autodiff(leaf), variant, table.upstream(variant), place=where).grads
            again = table.gradients(Autodiff(leaf, "balanced"), variant, table.upstream(variant), place=where).grads
            assert saved.keys() == again.keys()
            for i, g in saved.items():
                # on a GPU some reductions add in an order of their own each time
                allowed = 0.0 if where == "cpu" else stable_gradient(variant, DType.F64, i)
                table.judge(f"{leaf} {variant!r}: input {i}, computed again", again[i], g, allowed)


def test_second_gradient(row: Op, place: str) -> None:
    _skip_unless_differentiable(row)
    if row.name in NOT_TWICE:
        pytest.skip(NOT_TWICE[row.name])
    variants = list(float64(row, own=True))
    most = min(4, max(2, 16 // len(variants)))  # each sample draws its own positions: many samples, fewer of each
    for variant in variants:
        seeds = table.upstream(variant)
        wanted = variant.floats()
        outputs = [j for j, g in enumerate(seeds) if g is not None]
        generator = variant.case.generator("weights")
        weights = {i: generator.normal(size=x.shape) for i in wanted if isinstance(x := variant.data[i], TensorData)}

        first = functools.partial(_first_gradients, variant, wanted, outputs, len(seeds))
        points = [x.values for i in wanted if isinstance(x := variant.data[i], TensorData)]
        points += [g.values for g in seeds if g is not None]
        expected = table.differentiate(first, points, [weights[i] for i in wanted], generator, most)
        for leaf, where in leaves(place, row):
            inputs, upstreams = table.second_gradients(leaf, variant, seeds, weights, where)
            for i, numeric in zip(wanted, expected, strict=False):
                _judge_numeric(f"{leaf} {variant!r}: second gradient of input {i}", inputs.get(i), numeric)
            for j, numeric in zip(outputs, expected[len(wanted) :], strict=True):
                _judge_numeric(f"{leaf} {variant!r}: second gradient of upstream {j}", upstreams.get(j), numeric)


def _first_gradients(
    variant: Typed, wanted: list[int], outputs: list[int], count: int, points: list[Array]
) -> list[Array | None]:
    """Gradients of the wanted inputs; the points are their values, and the upstreams of the outputs, of `count`."""
    upstreams: list[TensorData | None] = [None] * count
    for j, g in zip(outputs, points[len(wanted) :], strict=True):
        upstreams[j] = TensorData(g, DType.F64)
    moved = variant.replaced(dict(zip(wanted, points, strict=False)))
    grads = table.gradients(Autodiff(TORCH), moved, upstreams).grads
    return [grads.get(i) for i in wanted]


def _skip_without_slope(row: Op) -> None:
    _skip_unless_differentiable(row)
    if row.name in NO_TRUE_SLOPE:
        pytest.skip("its gradient is not its slope")


def _skip_unless_differentiable(row: Op) -> None:
    if row.nondifferentiable:
        pytest.skip("nondifferentiable")
    if not any(True for _ in float64(row)):
        pytest.skip("no float inputs")


# -- decompositions and graphs ---------------------------------------------------------------------------------------
def test_decomposition_agrees_with_candidates_and_rule(row: Op, place: str) -> None:
    if row.decomposition is None or (row.torch is None and row.numpy is None and row.gradient_rule is None):
        pytest.skip("has not both")
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        variant = float64_of(case) if variant.floats() else variant
        for leaf, where in leaves(place, row):
            call, inputs, outputs = table.execute(leaf, variant, where)
            composed = interpret(decomposed(call), leaf, [x for x in inputs if x is not None])
            pairs = zip(table.arrays(leaf, composed), table.arrays(leaf, outputs), strict=True)
            for j, (y, z) in enumerate(pairs):
                spec = call.results[j]
                allowed = 0.0
                if variant.floats() and spec is not None and spec.dtype.is_float:
                    allowed = table.stable(z, table.sensitivity(variant)[j], DType.F64)
                table.judge(f"{leaf} {variant!r}: decomposition, output {j}", y, z, allowed)
            if variant.floats() and row.gradient_rule is not None:
                stack = Autodiff(leaf)
                seeds = table.upstream(variant)
                rule = table.gradients(stack, variant, seeds, place=where).grads
                grads = table.gradients(stack, variant, seeds, place=where, run=_decomposition_on(stack)).grads
                for i in variant.floats():
                    g = grads.get(i, np.zeros(1))
                    allowed = stable_gradient(variant, DType.F64, i)
                    table.judge(
                        f"{leaf} {variant!r}: gradient {i} by decomposition",
                        np.broadcast_to(g, rule.get(i, g).shape),
                        rule.get(i, np.zeros_like(g)),
                        allowed,
                    )


def _decomposition_on(stack: Autodiff) -> Callable[[Call, Sequence[Any]], Sequence[Any]]:
    return lambda call, inputs: interpret(decomposed(call), stack, [x for x in inputs if x is not None])


def test_traced_row_gives_the_same_bits(row: Op, place: str) -> None:
    if row.barrier:
        pytest.skip("its shape depends on the data")
    for case in table.cases(row.name):
        variant = next(table.variants(case))
        for symbolic in (False, True):
            for leaf, where in leaves(place, row):
                call, inputs, outputs = table.execute(leaf, variant, where)
                trace = Trace()
                fed: list[Any] = []
                primitives: list[Any] = []
                for x, spec in zip(inputs, call.specs, strict=True):
                    number = x is not None and not isinstance(spec, TensorSpec)
                    if x is None or (number and not symbolic):
                        fed.append(x)
                    else:
                        fed.append(trace.input(NUMBER_SPECS[type(x)] if number else spec))  # type: ignore[arg-type]  # no None here
                        primitives.append(x)
                output = row.run(trace, Value, fed, call.attrs)
                graph = trace.graph(output if call.multiple else (output,))
                expected = table.arrays(leaf, outputs)
                for how, run in (("interpreted", _interpret_graph(leaf, graph)), ("compiled", leaf.compile(graph))):
                    for y, z in zip(table.arrays(leaf, run(*primitives)), expected, strict=True):
                        table.judge(f"{leaf} {case!r} {how}", y, z, _between_runs(row, place, z))


def _interpret_graph(leaf: Any, graph: Any) -> Callable[..., Sequence[Any]]:
    return lambda *inputs: interpret(graph, leaf, inputs)
