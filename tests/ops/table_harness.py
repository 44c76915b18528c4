"""Defines what the table test needs: inputs of every kind for a row, runs on every stack, references, and error rules.

How errors are judged (a float result against the float64 result of the same, already rounded, inputs):

    twice     |error| <= 2 * (largest error of torch in this type, over the row's samples) + 1 unit in the last place
    stable    |error| <= 8 * (change of the result when inputs change by one rounding + one rounding of the largest)

`twice` compares with plain torch; `stable` holds for torch's own candidate too, for which the first is no test.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from burn_torch.backend.autodiff.decorator import Autodiff
from burn_torch.backend.libtorch.leaf import LibTorch
from burn_torch.backend.ndarray.leaf import NdArray
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DTypeError, ShapeError
from burn_torch.core.spec import NUMBER_SPECS, Spec, TensorSpec
from burn_torch.ops import REGISTRY, Call, Op
from burn_torch.ops.samples import normalise

Array = NDArray[Any]
Data = TensorData | int | float | bool | None

TORCH: Final = LibTorch()
NUMPY: Final = NdArray()
FLOATS: Final = (DType.F64, DType.F32)
HALVES: Final = (DType.F16, DType.BF16)
EXACT: Final = (DType.I64, DType.I32, DType.I16, DType.I8, DType.U8, DType.U16, DType.U32, DType.U64, DType.BOOL)
EPS: Final = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}

SIGNS_BY_LIBRARY: Final = frozenset({"eigh", "svd"})
"""Rows whose vectors have signs that LAPACK of torch, numpy and CUDA choose; test_linalg.py compares squares."""
SYMMETRIC: Final = frozenset({"cholesky", "eigh"})
"""Rows that read one triangle of a symmetric matrix, and give the gradient along symmetric changes, as torch."""


def is_of_numbers(row: Op) -> bool:
    """Returns whether a row computes host numbers alone: no leaf has it."""
    return row.torch is None and row.numpy is None and row.decomposition is None and row.scalar is not None


def places() -> list[str]:
    """Returns where LibTorch runs: BURN_TORCH_TEST_PLACE alone if it is set, else the CPU and a CUDA device if there
    is one.
    """
    chosen = os.environ.get("BURN_TORCH_TEST_PLACE")
    if chosen:
        return [chosen]
    return ["cpu", "cuda:0"] if torch.cuda.is_available() else ["cpu"]


# -- inputs ----------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Case:
    """One draw of a row's sample: float64, int64 and bool arrays, numbers, None.  `own`: the row declares it."""

    row: Op
    number: int
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    own: bool

    def __repr__(self) -> str:
        shapes = ", ".join(str(x.shape) if isinstance(x, np.ndarray) else repr(x) for x in self.inputs)
        attrs = "".join(f", {name}={value}" for name, value in self.attrs.items())
        return f"{self.row.name} sample {self.number}{'' if self.own else ' (automatic)'}: {shapes}{attrs}"

    def generator(self, purpose: str) -> np.random.Generator:
        """The same random numbers in each run, others for each purpose."""
        return np.random.default_rng(zlib.crc32(f"{self.row.name} {self.number} {purpose}".encode()))


@dataclass(frozen=True, eq=False)
class Typed:
    """A case at element types: the data of each input, and the attributes."""

    case: Case
    dtype: DType | None
    data: tuple[Data, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.case!r} as {self.dtype}"

    def call(self, place: str) -> Call:
        return self.case.row.bind([spec_of(x, place) for x in self.data], at(self.attrs, place))

    def floats(self) -> list[int]:
        """The positions of inputs that can carry gradients."""
        return [i for i, x in enumerate(self.data) if isinstance(x, TensorData) and x.dtype.is_float]

    def replaced(self, arrays: Mapping[int, Array]) -> Typed:
        """The same with other float64 data at some positions; symmetric where the row takes it for that."""
        if self.case.row.name in SYMMETRIC:
            arrays = {i: (x + x.swapaxes(-1, -2)) / 2 for i, x in arrays.items()}
        data = [TensorData(arrays[i], DType.F64) if i in arrays else x for i, x in enumerate(self.data)]
        return Typed(self.case, self.dtype, tuple(data), self.attrs)

    def widened(self) -> Typed:
        """The same values in float64, where float attributes and inputs are narrower: what errors are judged by."""
        data = tuple(
            TensorData(x.values.astype(np.float64), DType.F64) if isinstance(x, TensorData) and x.dtype.is_float else x
            for x in self.data
        )
        attrs = {n: DType.F64 if isinstance(v, DType) and v.is_float else v for n, v in self.attrs.items()}
        return Typed(self.case, DType.F64, data, attrs)


def spec_of(x: Data, place: str) -> Spec | None:
    """The spec of an input at a place."""
    if x is None:
        return None
    return TensorSpec.of(x.shape, x.dtype, place) if isinstance(x, TensorData) else NUMBER_SPECS[type(x)]


def at(attrs: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The attributes, with `place` where the row has one."""
    return {**attrs, "place": place} if "place" in attrs else dict(attrs)


@functools.cache
def cases(name: str) -> list[Case]:
    """The draws of a row's samples; for an element-wise row also empty, scalar and broadcast shapes."""
    row = REGISTRY[name]
    drawn = []
    for number, sample in enumerate(normalise(row.samples)):
        generator = np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
        drawn.append(Case(row, number, tuple(sample.draw(generator)), sample.attrs, own=True))
    return drawn + (_automatic(row, drawn) if row.pointwise is not None else [])


def _automatic(row: Op, drawn: Sequence[Case]) -> list[Case]:
    model = next((case for case in drawn if all(x.size for x in case.inputs if isinstance(x, np.ndarray))), None)
    if model is None:
        return []
    count = sum(isinstance(x, np.ndarray) for x in model.inputs)
    shapes: list[tuple[tuple[int, ...], ...]] = [(shape,) * count for shape in ((), (0,), (3, 0, 2), (2, 1, 3, 2))]
    if count > 1:
        rest = ((3,),) * (count - 2)
        shapes += [((2, 1, 3), (4, 1), *rest), ((4, 1), (2, 1, 3), *rest), ((), (2, 3), *rest), ((0, 3), (1,), *rest)]
    cases: list[Case] = []
    for chosen in shapes:
        left = iter(chosen)
        inputs = tuple(np.resize(x, next(left)) if isinstance(x, np.ndarray) else x for x in model.inputs)
        case = Case(row, len(drawn) + len(cases), inputs, model.attrs, own=False)
        try:
            next(variants(case)).call("cpu")
        except ShapeError:  # this row does not broadcast
            continue
        cases.append(case)
    return cases


def variants(case: Case) -> Iterator[Typed]:
    """The case at every element type that the row takes; float64 and float32 are not optional."""
    kinds = {x.dtype.kind for x in case.inputs if isinstance(x, np.ndarray)}
    if "f" in kinds:
        for dtype in (*FLOATS, *HALVES, *EXACT):
            yield from _accepted_variants(case, dtype, DType.I64, optional=dtype not in FLOATS)
        if "i" in kinds:
            yield from _accepted_variants(case, DType.F32, DType.I32, optional=True)
    elif "i" in kinds:
        for dtype in EXACT:
            yield from _accepted_variants(case, None, dtype, optional=dtype is not DType.I64)
    else:
        yield from _accepted_variants(case, None, DType.I64, optional=False)


def typed(case: Case, dtype: DType) -> Typed:
    """The case with its float inputs in one float type."""
    data = tuple(_convert_input(x, dtype, DType.I64) for x in case.inputs)
    return Typed(case, dtype, data, case.attrs)


def _accepted_variants(case: Case, floats: DType | None, integers: DType, *, optional: bool) -> Iterator[Typed]:
    data = tuple(_convert_input(x, floats, integers) for x in case.inputs)
    attempts = [data]
    if floats is not None and not floats.is_float:
        attempts.insert(0, tuple(_number(x, floats) for x in data))
    for attempt in attempts:
        variant = Typed(case, floats or integers, attempt, case.attrs)
        try:
            variant.call("cpu")
        except DTypeError:
            if not optional:
                raise
        else:
            yield variant
            return


def _convert_input(x: Any, floats: DType | None, integers: DType) -> Data:
    if not isinstance(x, np.ndarray):
        return x  # type: ignore[no-any-return]  # a number or None
    dtype = DType.BOOL
    if x.dtype.kind == "f":
        assert floats is not None
        dtype = floats
        if dtype.is_bool:
            x = x > 0
        elif dtype.is_int:
            x = _whole(x)
    elif x.dtype.kind == "i":
        dtype = integers
    if dtype.kind == "uint" and x.size:
        # floats are shifted, so that what was distinct stays so; indices stay where they are
        x = np.maximum(x, 0) if integers is dtype else x - min(x.min() - 1, 0)
    return TensorData.of(np.asarray(x)).convert(dtype)


def _whole(x: Any) -> Any:
    # away from zero, so that what was no zero is none; times 4, so that what was distinct by 0.25 stays so
    return np.sign(x) * np.ceil(np.abs(4 * x))


def _number(x: Data, dtype: DType) -> Data:
    if isinstance(x, float):
        x = bool(x > 0) if dtype.is_bool else int(_whole(x))
    return abs(x) if dtype.kind == "uint" and isinstance(x, int) else x


# -- runs ----------------------------------------------------------------------------------------------
def primitive(backend: Any, x: Data, place: str, strided: bool = False) -> Any:
    """An input on a backend; with `strided` in memory with gaps and reversed axes."""
    if not isinstance(x, TensorData):
        return x
    dense = backend.from_data(x, place)
    if not strided:
        return dense
    gap = float("nan") if x.dtype.is_float else 1
    if isinstance(dense, torch.Tensor):
        base = torch.full((*reversed(x.shape), 2), gap, dtype=dense.dtype, device=dense.device)
        view = base[..., 0].permute(tuple(reversed(range(dense.ndim))))
        view.copy_(dense)
        return view
    array = np.full((*reversed(x.shape), 2), gap, dtype=dense.dtype)
    array[..., 0] = dense.T
    return array[..., 0].T


def execute(
    backend: Any, variant: Typed, place: str = "cpu", strided: bool = False
) -> tuple[Call, list[Any], list[Any]]:
    """The Call, the inputs and the outputs as primitives."""
    call = variant.call(place)
    inputs = [primitive(backend, x, place, strided) for x in variant.data]
    return call, inputs, list(backend.execute(call, inputs))


def arrays(backend: Any, outputs: Sequence[Any]) -> list[Array]:
    """Outputs on the host; bfloat16 as float32."""
    return [np.asarray(backend.into_data(x).values) for x in outputs]


@functools.lru_cache(maxsize=512)
def reference(variant: Typed) -> list[Array]:
    """The float64 result of torch on the CPU."""
    return arrays(TORCH, execute(TORCH, variant.widened())[2])


@functools.lru_cache(maxsize=512)
def sensitivity(variant: Typed) -> list[float]:
    """For each output the largest change of the float64 result when each input changes by one rounding of its type."""
    assert variant.dtype is not None
    wide = variant.widened()
    generator = variant.case.generator("sensitivity")
    changes = [0.0] * len(reference(variant))
    for _ in range(2):
        moved = {i: _moved(wide.data[i], variant.dtype, generator) for i in variant.floats()}
        for i, (y, z) in enumerate(zip(reference(variant), reference(wide.replaced(moved)), strict=True)):
            if y.dtype.kind == "f" and y.shape == z.shape:
                changes[i] = max(changes[i], largest(y, z))
    return changes


def _moved(x: Data, dtype: DType, generator: np.random.Generator) -> Array:
    assert isinstance(x, TensorData)
    signs = generator.integers(0, 2, x.shape) * 2.0 - 1.0
    return np.asarray(x.values * (1 + signs * EPS[dtype]))


# -- errors ------------------------------------------------------------------------------------------------
def largest(a: Array, b: Array) -> float:
    """The largest finite absolute difference; 0 for empty arrays."""
    with np.errstate(all="ignore"):
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
    finite = difference[np.isfinite(difference)]
    return float(finite.max()) if finite.size else 0.0


def size(x: Array) -> float:
    """The largest finite absolute value; 0 for empty arrays."""
    return largest(x, np.zeros_like(x))


def part(y: Array, reference: Array) -> float:
    """The largest error as a part of the largest reference value."""
    return largest(y, reference) / (size(reference) or 1.0)


def ulp(reference: Array, dtype: DType) -> Array:
    """One unit in the last place of each reference value, in an element type."""
    if dtype is DType.BF16:
        with np.errstate(divide="ignore"):
            exponent = np.where(reference == 0, -126.0, np.floor(np.log2(np.abs(reference))))
        return np.asarray(np.exp2(np.maximum(exponent, -126.0) - 7))
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(np.spacing(np.abs(reference).astype(dtype.numpy)))).astype(np.float64)


def judge(what: str, actual: Array, expected: Array, allowed: Array | float) -> None:
    """Fails where finite values differ by more than `allowed`, or others differ at all."""
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if not actual.size:
        return
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        right = (np.abs(actual - expected) <= allowed) | (actual == expected)
    right |= np.isnan(actual) & np.isnan(expected)
    if not right.all():
        with np.errstate(all="ignore"):
            excess = np.where(right, -1.0, np.nan_to_num(np.abs(actual - expected), nan=np.inf))
        worst = np.unravel_index(int(np.argmax(excess)), actual.shape)
        limit = np.broadcast_to(allowed, actual.shape)[worst]
        raise AssertionError(
            f"{what}: at {tuple(map(int, worst))} {actual[worst]!r}, expected {expected[worst]!r}; "
            f"off by {abs(actual[worst] - expected[worst]):.3g}, allowed {limit:.3g}"
        )


def stable(reference: Array, change: float, dtype: DType) -> float:
    """Returns what rounding of inputs and of the result explains, times 8 for the steps between."""
    return 8 * (change + EPS[dtype] * size(reference))


def twice(reference: Array, torch_error: float, dtype: DType) -> Array:
    """Twice the error of torch and one unit in the last place."""
    return np.asarray(2 * torch_error + ulp(reference, dtype))


# -- gradients --------------------------------------------------------------------------------------------------
def upstream(variant: Typed, purpose: str = "upstream") -> list[TensorData | None]:
    """Random gradients of the float outputs, the same draw for each element type (rounded to it)."""
    generator = variant.case.generator(purpose)
    call = variant.call("cpu")
    seeds: list[TensorData | None] = []
    for spec in call.results:
        if isinstance(spec, TensorSpec) and spec.dtype.is_float:
            seeds.append(TensorData.of(np.asarray(generator.normal(size=spec.shape))).convert(spec.dtype))
        else:
            seeds.append(None)
    return seeds


@dataclass
class Backward:
    """A first-order gradient: the gradients by input position, and the inputs and outputs that it was taken at."""

    grads: dict[int, Array]
    inputs: list[Any]
    outputs: list[Any]


def gradients(
    stack: Autodiff,
    variant: Typed,
    upstreams: Sequence[TensorData | None],
    *,
    place: str = "cpu",
    needs: Sequence[int] | None = None,
    run: Callable[[Call, Sequence[Any]], Sequence[Any]] | None = None,
) -> Backward:
    """Gradients of sum(upstream * output) over the outputs that have an upstream, for the inputs in `needs`.

    `grads` has those that the rule gives: an input that it has none for is left out, though the tape gives it zeros.
    """
    call = variant.call(place)
    needs = variant.floats() if needs is None else needs
    inputs = [primitive(stack, x, place) for x in variant.data]
    fed = list(inputs)
    for i in needs:
        spec = call.specs[i]
        assert isinstance(spec, TensorSpec)
        fed[i] = stack.track(inputs[i], spec)
    outputs = list((run or stack.execute)(call, fed))
    roots = [
        (y, primitive(stack, g, place))
        for y, g in zip(outputs, upstreams, strict=True)
        if g is not None and stack.is_tracked(y)
    ]
    nodes = [y.node for y, _ in roots if y.node.entry is not None]
    flat = set.intersection(*(set(node.entry.flat) for node in nodes)) if nodes else set()  # the tape's own zeros
    slots = stack.backward(roots) if roots else {}
    grads = {i: arrays(stack, [slots[fed[i].node.id]])[0] for i in needs if fed[i].node.id in slots and i not in flat}
    return Backward(grads, inputs, [stack.unwrapped(y) for y in outputs])


def second_gradients(
    leaf: Any, variant: Typed, upstreams: Sequence[TensorData | None], weights: Mapping[int, Array], place: str = "cpu"
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Gradients of sum(weight * first gradient), with respect to the inputs and to the upstream gradients."""
    inner = Autodiff(leaf)
    outer = Autodiff(inner)
    call = variant.call(place)
    low = [primitive(leaf, x, place) for x in variant.data]
    fed = list(low)
    for i in variant.floats():
        spec = call.specs[i]
        assert isinstance(spec, TensorSpec)
        low[i] = inner.track(low[i], spec)
        fed[i] = outer.track(low[i], spec)
    outputs = outer.execute(call, fed)
    seeds: dict[int, Any] = {}
    for j, g in enumerate(upstreams):
        if g is not None and outer.is_tracked(outputs[j]):
            seeds[j] = inner.track(primitive(leaf, g, place), call.results[j])
    firsts = outer.backward([(outputs[j], seed) for j, seed in seeds.items()]) if seeds else {}
    roots = []
    for i in variant.floats():
        first = firsts.get(fed[i].node.id)
        if first is not None and inner.is_tracked(first):
            roots.append((first, primitive(leaf, TensorData(weights[i], DType.F64), place)))
    slots = inner.backward(roots) if roots else {}

    def taken(tracked: Mapping[int, Any]) -> dict[int, Array]:
        return {i: arrays(leaf, [slots[t.node.id]])[0] for i, t in tracked.items() if t.node.id in slots}

    return taken({i: low[i] for i in variant.floats()}), taken(seeds)


def through_torch(
    variant: Typed, upstreams: Sequence[TensorData | None], place: str = "cpu"
) -> dict[int, Array] | None:
    """The same gradients by torch's autograd through the row's torch candidate; None where torch cannot."""
    call = variant.call(place)
    inputs = [primitive(TORCH, x, place) for x in variant.data]
    for i in variant.floats():
        inputs[i].requires_grad_()
    try:
        with torch.enable_grad():
            output = TORCH.plan(call)(*inputs)
    except RuntimeError:  # a candidate that has no derivative in torch says so here
        return None
    outputs = output if call.multiple else (output,)
    roots = [
        (y, primitive(TORCH, g, place))
        for y, g in zip(outputs, upstreams, strict=True)
        if g is not None and y.requires_grad
    ]
    if not roots:
        return None
    wanted = variant.floats()
    try:
        grads = torch.autograd.grad(
            [y for y, _ in roots], [inputs[i] for i in wanted], [g for _, g in roots], allow_unused=True
        )
    except RuntimeError:
        return None
    return {i: arrays(TORCH, [g])[0] for i, g in zip(wanted, grads, strict=True) if g is not None}


_STEP: Final = 1e-4


@dataclass
class Numeric:
    """A numeric gradient at some flat positions of an input."""

    positions: Array
    values: Array
    scale: float
    kink: bool
    """Says whether slopes from the left and from the right differ somewhere, or the values do."""

    @property
    def tolerance(self) -> float:
        """The bound on a difference of 4 points: rounding gives 1e-12 of the values, a wrong rule errs by its size."""
        return 1e-7 * max(1.0, self.scale, float(np.abs(self.values).max()) if self.values.size else 0.0)


def differentiate(
    function: Callable[[list[Array]], Sequence[Array | None]],
    points: Sequence[Array],
    weights: Sequence[Array | None],
    generator: np.random.Generator,
    most: int,
) -> list[Numeric]:
    """Gradients of sum(weight * function) at each of `points`, by central differences of fourth order.

    Of inputs with more than `most` elements so many are drawn.
    """
    points = [np.array(x, order="C") for x in points]
    start = function(points)
    scale = max((size(y) for y in start if y is not None), default=0.0)
    result = []
    for x in points:
        flat = x.reshape(-1)
        positions = np.arange(x.size) if x.size <= most else generator.choice(x.size, most, replace=False)
        slopes = []
        kink = False
        for k in positions:
            old = flat[k]
            rise = {}
            for step in (1, -1, 2, -2):
                flat[k] = old + step * _STEP
                rise[step] = sum(
                    float(np.sum((y - y0) * w))
                    for y, y0, w in zip(function(points), start, weights, strict=True)
                    if y is not None and y0 is not None and w is not None
                )
            flat[k] = old
            slopes.append((8 * (rise[1] - rise[-1]) - (rise[2] - rise[-2])) / (12 * _STEP))
            bend, jump = abs(rise[1] + rise[-1]), abs(rise[1] - rise[-1])
            kink = kink or max(bend, jump / 1000) > 0.05 * _STEP * max(1.0, scale)
        result.append(Numeric(positions, np.array(slopes), scale, kink))
    return result


@functools.cache
def numeric_gradients(variant: Typed) -> dict[int, Numeric]:
    """Returns the numeric gradient of each float input of a float64 variant, on torch on the CPU."""
    wanted = variant.floats()
    weights = [None if g is None else g.values for g in upstream(variant)]

    def function(points: list[Array]) -> list[Array | None]:
        moved = variant.replaced(dict(zip(wanted, points, strict=True)))
        outputs = arrays(TORCH, execute(TORCH, moved)[2])
        return [y if w is not None else None for y, w in zip(outputs, weights, strict=True)]

    points = [x.values for i in wanted if isinstance(x := variant.data[i], TensorData)]
    slopes = differentiate(function, points, weights, variant.case.generator("numeric"), most=32)
    return dict(zip(wanted, slopes, strict=True))
