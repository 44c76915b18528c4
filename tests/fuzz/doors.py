"""The ways a program is computed, which must all agree: each takes a Case and says what disagrees.

tape         `loss.backward()` with checkpoint="balanced"; the reference has none
vjp          the transform
ndarray      the numpy leaf
wide         float64, where the program has a narrower type
numeric      differences of values: the only door that does not share the gradient rules
compile      values and gradients as one program, called again with other data and other shapes
donate       the same, with donated arguments
lazy         the fused CPU device: operations are recorded, and run when a value is read
vmap         per_sample_grad over several samples
second       tape over tape, by transforms and by devices, against differences
c            compile(fuse=True) on the CPU: generated C
interpreter  the same with generated Triton, interpreted
steps        a few steps of a random training: modules and optimizers in and out; also written with torch alone
cuda         a fused device, and `compile`, which replays CUDA graphs
"""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from burn_torch import ArgumentError, BurnTorchError, Device, DType, MovedError, Tensor, compile, per_sample_grad
from burn_torch.core.data import TensorData
from tests.fuzz.case import PLAIN, Case, data_of, first_by_tape, first_by_vjp, second_by_transforms
from tests.fuzz.compare import Judge
from tests.fuzz.torch_training import trained_by_torch, why_not_by_torch

__all__ = ["DOORS", "Door", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a door found: disagreements in words, or why it did not run."""

    differences: tuple[str, ...] = ()
    skipped: str | None = None


@dataclass(frozen=True)
class Door:
    """A way to compute.

    share   the part of the programs that it takes
    others  the name of doors that share the programs between them: each program goes through one of these
    first   where its part begins among theirs
    """

    name: str
    check: Callable[[Case], Outcome]
    share: float = 1.0
    others: str = ""
    first: float = 0.0

    def takes(self, case: Case) -> bool:
        """Whether a program is one of its part."""
        if self.share >= 1:
            return True
        word = f"{case.seed} {self.others or self.name}".encode()
        return (
            self.first
            <= int.from_bytes(hashlib.blake2b(word, digest_size=4).digest(), "big") / 2**32
            < self.first + self.share
        )


def _shared(name: str, *doors: tuple[Door, float]) -> tuple[Door, ...]:
    """Doors of which each program goes through one."""
    first, placed = 0.0, []
    for door, share in doors:
        placed.append(replace(door, share=share, others=name, first=first))
        first += share
    return tuple(placed)


def _skip(why: str) -> Outcome:
    return Outcome(skipped=why)


# -- eager ---------------------------------------------------------------------------------------------------
def _tape(case: Case) -> Outcome:
    if not case.differentiates:
        return _skip("no gradients")
    balanced = PLAIN.autodiff("balanced")
    program = case.program
    made = first_by_tape(program, program.tensors(balanced), program.numbers, case.upstream_on(PLAIN))
    found = case.judge.differences(data_of(made))
    values = case.judge.reference[: len(case.values)]
    for i, (y, z) in enumerate(zip(values, case.values, strict=True)):
        if y is None or y.array.tobytes() != z.array.tobytes():
            found.append(f"result {i} differs between a plain device and one with gradients")
    return Outcome(tuple(found))


def _vjp(case: Case) -> Outcome:
    if not case.differentiates:
        return _skip("no gradients")
    program = case.program
    made = first_by_vjp(program, program.tensors(PLAIN), program.numbers, case.upstream_on(PLAIN))
    return Outcome(tuple(case.judge.differences(data_of(made))))


def _dtypes_of(step: Any) -> list[Any]:
    return [v for v in step.attrs.values() if isinstance(v, DType)]


# -- differences -----------------------------------------------------------------------------------------------
_STEP: Final = 1e-4


def _numeric(case: Case) -> Outcome:
    """The gradient along one direction, by differences of fourth order."""
    if not case.differentiates:
        return _skip("no gradients")
    if not _is_double(case):
        return _skip("not in float64")
    program = case.program
    pinned: dict[int, Tensor] = {}
    program(program.tensors(PLAIN), program.numbers, lambda n, y: pinned.setdefault(n, y))
    upstream = [None if g is None else g.values for g in case.upstream]

    def value(xs: Sequence[Tensor]) -> float:
        ys = program(xs, program.numbers, lambda n, y: pinned[n])
        return _weighted([y.into_data() for y in ys], upstream)

    return _along(case, value, case.judge, slice(len(case.values), None), "gradient")


def _weighted(values: Sequence[TensorData | None], weights: Sequence[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(
            sum(
                float((y.values * w).sum())
                for y, w in zip(values, weights, strict=True)
                if y is not None and w is not None
            )
        )


def _along(case: Case, value: Callable[[Sequence[Tensor]], float], judge: Judge, part: slice, what: str) -> Outcome:
    """Compares a part of a judge's reference, gradients of `value`, with differences along one direction."""
    gradients = judge.reference[part]
    if any(_leaves_no_step(x.data) for x in case.program.inputs if x.dtype.is_float):
        return _skip("infinite or large numbers")
    generator = np.random.default_rng(case.seed + 5)
    directions = [generator.uniform(-1, 1, case.program.inputs[i].data.shape) for i in case.program.wanted]
    expected = _weighted(gradients, directions)
    if not np.isfinite(expected):
        return _skip("not finite")

    def at(step: float) -> float:
        inputs = list(case.program.inputs)
        for i, d in zip(case.program.wanted, directions, strict=True):
            inputs[i] = replace(inputs[i], data=inputs[i].data + step * d)
        return value([x.tensor(PLAIN) for x in inputs])

    start = at(0.0)
    slopes: list[float] = []
    bends: list[float] = []
    for step in (_STEP, _STEP / 4):
        a, b, c, d = at(step), at(-step), at(2 * step), at(-2 * step)
        if not np.isfinite([a, b, c, d]).all():
            return _skip("not finite")
        slopes.append((8 * (a - b) - (c - d)) / (12 * step))
        bends.append(((a - start) - (start - b)) / step)
    truncation = abs(slopes[0] - slopes[1])
    kink = abs(4 * bends[1] - bends[0]) / 3  # a bend shrinks with the step, a kink does not
    size = max(abs(expected), abs(slopes[0]), _magnitude(gradients, directions))
    rounding = 2.0**-52 * max(1.0, abs(start), _sum_of_sizes(case)) / (_STEP / 4)
    allowed = 20 * (truncation + kink) + 3000 * rounding
    if allowed > 1e-2 * max(size, 1e-3):
        return _skip("a kink or a steep place")
    if abs(expected - slopes[1]) <= allowed:
        return Outcome()
    if any(not abs(_weighted(run[part], directions) - expected) <= allowed for run in judge.noisy_runs()):
        return _skip("a tie that rounding decides")  # its gradient is one of several, and differences see a mean
    words = f"the {what} along a direction is {expected!r}, by differences {slopes[1]!r}; {allowed:.3g} allowed"
    return Outcome((words,))


def _leaves_no_step(data: Any) -> bool:
    """Whether numbers are so large that a step of a difference is lost in their rounding."""
    with np.errstate(all="ignore"):
        return bool(data.size and not np.nanmax(np.abs(data), initial=0.0) < 1e5)


def _magnitude(gradients: Sequence[TensorData | None], directions: Sequence[Any]) -> float:
    return float(
        sum(float(np.abs(g.values * d).sum()) for g, d in zip(gradients, directions, strict=True) if g is not None)
    )


def _sum_of_sizes(case: Case) -> float:
    with np.errstate(all="ignore"):
        sizes = [
            float(np.abs(y.values * g.values).sum())
            for y, g in zip(case.values, case.upstream, strict=True)
            if g is not None
        ]
    return float(np.nan_to_num(sum(sizes)))


_LARGE_HALVES: Final = "halves that overflow where a row is composed of others"


def _has_large_halves(case: Case) -> bool:
    halves = (DType.F16, DType.BF16)
    return any(x.dtype in halves and x.data.size and np.abs(x.data).max() > 20 for x in case.program.inputs)


def _is_double(case: Case) -> bool:
    floats = [x.dtype for x in case.program.inputs if x.dtype.is_float]
    floats += [v for step in case.program.steps for v in _dtypes_of(step) if v.is_float]
    return all(dtype is DType.F64 for dtype in floats)


# -- a wider type ------------------------------------------------------------------------------------------------
def _wide(case: Case) -> Outcome:
    """The same in float64: what only a narrow type computes wrongly, as it overflows on the way."""
    program = case.program
    if _is_double(case):
        return _skip("in float64")
    if program.is_random:
        return _skip("random numbers of another type are others")
    everything = replace(program, outputs=tuple(range(program.first_result(len(program.steps)))))
    pool = everything(program.tensors(PLAIN), program.numbers)
    if not all(np.isfinite(x.into_data().values).all() for x in pool if x is not None and x.dtype.is_float):
        return _skip("leaves the range of its type")
    wide = replace(case, program=program.widened())
    made = data_of(wide.program(wide.program.tensors(PLAIN), program.numbers))
    values = [None if y is None else y.convert(z.dtype) for y, z in zip(made, case.values, strict=True)]
    gradients = case.judge.reference[len(values) :]
    return Outcome(tuple(case.judge.differences([*values, *gradients])))


# -- compiled -----------------------------------------------------------------------------------------------
def compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Values and gradients as one program, which is then called with other data, or other shapes and these again."""
    function = _compiled(case, {**_drawn_options(case, device), **options})
    found = case.judge.differences(_call(function, case, device))
    if found:
        return Outcome(tuple(found))
    traces = 1
    for what, other in _others(case):
        found += [f"{what}: {words}" for words in other.judge.differences(_call(function, other, device))]
        if what == OTHER_SHAPES:
            traces = 2
            again = case.judge.differences(_call(function, case, device))
            found += [f"with the first shapes again: {words}" for words in again]
    if function.traces != traces:
        found.append(f"traced {function.traces} times, expected {traces}")
    return Outcome(tuple(found))


def _drawn_options(case: Case, device: Device) -> dict[str, Any]:
    """What a program is compiled with: it may round otherwise, or compute values a second time."""
    if device is not PLAIN:
        return {}
    options: dict[str, Any] = {"numerics": "fast"} if case.seed % 3 == 0 else {}
    return {**options, "memory_limit_bytes": 1} if case.seed % 7 == 0 else options


OTHER_SHAPES: Final = "called with other shapes"


def _others(case: Case) -> list[tuple[str, Case]]:
    """For some programs the same one on other data, or on longer axes; none where eager refuses them."""
    if case.seed % 5 > 1:
        return []
    cases = [case.varied()] if case.seed % 5 == 0 else case.lengthened()
    for other in cases:
        with suppress(BurnTorchError):  # an index is out of range, or a shape is an attribute of a step
            assert other.judge
            return [("called again" if case.seed % 5 == 0 else OTHER_SHAPES, other)]
    return []


def _compiled(case: Case, options: dict[str, Any]) -> Any:
    program = case.program
    if not case.differentiates:
        return compile(lambda xs, numbers, upstream: program(xs, numbers), **options)
    way = first_by_vjp if case.seed % 2 else first_by_tape
    return compile(lambda xs, numbers, upstream: way(program, xs, numbers, upstream), **options)


def _call(function: Any, case: Case, device: Device) -> list[TensorData | None]:
    program = case.program
    by_tape = case.differentiates and not case.seed % 2
    xs = program.tensors(device.autodiff() if by_tape else device)
    found = data_of(function(xs, list(program.numbers), case.upstream_on(device)))
    return found + [None] * (len(case.names) - len(found))


def donated(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """The same with some arguments donated: these are gone, the others are as they were."""
    program = case.program
    chosen = random.Random(case.seed)
    gone = [i for i in range(len(program.inputs)) if chosen.random() < 0.6]

    def function(given: list[Tensor], kept: list[Tensor], numbers: list[Any], upstream: list[Any]) -> Any:
        taken, rest = iter(given), iter(kept)
        xs = [next(taken) if i in gone else next(rest) for i in range(len(program.inputs))]
        return first_by_vjp(program, xs, numbers, upstream) if case.differentiates else program(xs, numbers)

    xs = program.tensors(device)
    given = [xs[i] for i in gone]
    kept = [x for i, x in enumerate(xs) if i not in gone]
    run = compile(function, donate=("given", "upstream"), **options)
    found = data_of(run(given, kept, list(program.numbers), case.upstream_on(device)))
    differences = case.judge.differences(found + [None] * (len(case.names) - len(found)))
    for i, x in enumerate(xs):
        if i in gone:
            try:
                x.into_data()
            except MovedError:
                continue
            differences.append(f"x{i} was donated, and can still be read")
        elif x.into_data().array.tobytes() != program.inputs[i].tensor(PLAIN).into_data().array.tobytes():
            differences.append(f"x{i} was not donated, and has changed")
    return Outcome(tuple(differences))


# -- lazy -----------------------------------------------------------------------------------------------------
def eager(case: Case, device: Device) -> Outcome:
    """Values and gradients on another device, then on other data or shapes: a fused device keeps plans by what is
    recorded.
    """
    found = case.judge.differences(case.first_on(device))
    for what, other in _others(case) if not found else []:
        found += [f"{what}: {words}" for words in other.judge.differences(other.first_on(device))]
    return Outcome(tuple(found))


# -- many samples -----------------------------------------------------------------------------------------------
_SAMPLES: Final = 3


def _vmap(case: Case) -> Outcome:
    program = case.program
    if not case.differentiates or program.is_random:
        return _skip("no gradients" if not program.is_random else "each sample draws other numbers")
    if _has_large_halves(case):
        return _skip(_LARGE_HALVES)
    chosen = random.Random(case.seed)
    batched = [i for i in range(len(program.inputs)) if chosen.random() < 0.5]
    shared = [i for i in program.wanted if i not in batched]
    if not batched or not shared:
        return _skip("nothing is shared by samples, or nothing differs")
    inputs = tuple(replace(x, wants_grad=i in shared) for i, x in enumerate(program.inputs))
    cases = []
    for k in range(_SAMPLES):
        one = [
            replace(x, data=np.roll(x.data.ravel(), k).reshape(x.data.shape)) if i in batched else x
            for i, x in enumerate(inputs)
        ]
        cases.append(Case(replace(program, inputs=tuple(one)), seed=case.seed))
    try:
        assert all(one.judge for one in cases)
    except BurnTorchError:
        return _skip("other data are refused")
    upstream = cases[0].upstream
    weights = [None if g is None else Tensor.from_data(g, PLAIN) for g in upstream]

    def loss(learned: list[Tensor], *samples: Tensor) -> Any:
        fed = program.tensors(PLAIN)
        for i, x in zip(shared, learned, strict=True):
            fed[i] = x
        for i, x in zip(batched, samples, strict=True):
            fed[i] = x.reshape(program.inputs[i].data.shape)
        ys = program(fed, program.numbers)
        parts = [(y * g).cast(DType.F64).sum() for y, g in zip(ys, weights, strict=True) if g is not None]
        return sum(parts[1:], start=parts[0]), list(ys)

    axes = [chosen.randint(0, program.inputs[i].data.ndim) for i in batched]
    stacked = [
        Tensor.from_data(
            TensorData(
                np.stack([c.program.inputs[i].tensor(PLAIN).into_data().array for c in cases], axis),
                program.inputs[i].dtype,
            ),
            PLAIN,
        )
        for i, axis in zip(batched, axes, strict=True)
    ]
    learned = [inputs[i].tensor(PLAIN) for i in shared]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row that is looped over is told of
        try:
            gradients, ys = per_sample_grad(loss, in_axes=(None, *axes), has_aux=True)(learned, *stacked)
        except ArgumentError as why:
            if "mixes the samples" not in str(why):
                raise
            return _skip("batch normalisation mixes the samples")
    found: list[str] = []
    made = data_of([*ys, *gradients])
    for k, one in enumerate(cases):
        part = [None if y is None else _sample(y, k, z) for y, z in zip(made, one.judge.reference, strict=True)]
        found += [f"sample {k}: {words}" for words in one.judge.differences(part)]
    return Outcome(tuple(found))


def _sample(many: TensorData, k: int, like: TensorData | None) -> TensorData:
    """One sample's part; results of per_sample_grad keep the batch's axis of one sample."""
    one = np.asarray(many.array[k])
    return TensorData(one if like is None else one.reshape(like.shape), many.dtype)


# -- second gradients ----------------------------------------------------------------------------------------
def _second(case: Case) -> Outcome:
    if not case.second or not case.differentiates:
        return _skip("one program in ten")
    program = case.program
    found = case.second_judge.differences(_second_by_devices(case))
    if found:
        return Outcome(tuple(f"by devices: {words}" for words in found))
    if not _is_double(case):
        return Outcome()
    pinned: dict[int, Tensor] = {}
    program(program.tensors(PLAIN), program.numbers, lambda n, y: pinned.setdefault(n, y))
    upstream = case.upstream_on(PLAIN)

    def value(xs: Sequence[Tensor]) -> float:
        made = first_by_vjp(program, xs, program.numbers, upstream, lambda n, y: pinned[n])
        return _weighted(data_of(made[len(program.outputs) :]), [w.values for w in case.weights])

    return _along(case, value, case.second_judge, slice(len(program.wanted)), "second gradient")


def _second_by_devices(case: Case) -> list[TensorData | None]:
    program = case.program
    inner = PLAIN.autodiff()
    outer = inner.autodiff()
    low = program.tensors(inner)
    fed = [Tensor.from_inner(x) for x in low]
    for i in program.wanted:
        low[i] = low[i].require_grad()
        fed[i] = Tensor.from_inner(low[i]).require_grad()
    ys = program(fed, program.numbers)
    seeds = [None if g is None else Tensor.from_data(g, inner).require_grad() for g in case.upstream]
    loss: Tensor | None = None
    for y, g in zip(ys, seeds, strict=True):
        if g is not None and y.backend.is_tracked(y.primitive):  # type: ignore[attr-defined]  # a tape
            part = (y * Tensor.from_inner(g)).cast(DType.F64).sum()
            loss = part if loss is None else loss + part
    nothing: list[TensorData | None] = [None] * (len(program.wanted) + sum(g is not None for g in seeds))
    if loss is None:
        return nothing
    del outer
    gradients = loss.backward()
    total: Tensor | None = None
    for i, w in zip(program.wanted, case.weights_on(inner), strict=True):
        first = fed[i].grad(gradients)
        if first is not None and first.backend.is_tracked(first.primitive):  # type: ignore[attr-defined]  # a tape
            part = (first * w).cast(DType.F64).sum()
            total = part if total is None else total + part
    if total is None:
        return nothing
    again = total.backward()
    return data_of([*[low[i].grad(again) for i in program.wanted], *[g.grad(again) for g in seeds if g is not None]])


def second_compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Second gradients as one program."""
    if not case.second or not case.differentiates:
        return _skip("one program in ten")
    program = case.program

    def function(xs: list[Tensor], numbers: list[Any], upstream: list[Any], weights: list[Tensor]) -> Any:
        return second_by_transforms(program, xs, numbers, upstream, weights)

    made = compile(function, **options)(
        program.tensors(device), list(program.numbers), case.upstream_on(device), case.weights_on(device)
    )
    return Outcome(tuple(case.second_judge.differences(data_of(made))))


def second_eager(case: Case, device: Device) -> Outcome:
    """Second gradients by nested transforms on another device."""
    if not case.second or not case.differentiates:
        return _skip("one program in ten")
    return Outcome(tuple(case.second_judge.differences(case.second_on(device))))


def _in_numpy(check: Callable[[Case], Outcome]) -> Callable[[Case], Outcome]:
    """numpy has no bf16, and composes rows that torch computes in float32 within."""

    def checked(case: Case) -> Outcome:
        dtypes = {v for step in case.program.steps for v in _dtypes_of(step)} | {x.dtype for x in case.program.inputs}
        if DType.BF16 in dtypes:
            return _skip("numpy has no bf16")
        return _skip(_LARGE_HALVES) if _has_large_halves(case) else check(case)

    return checked


# -- training ------------------------------------------------------------------------------------------------------
def steps(case: Case, device: Device) -> Outcome:
    """Some steps of a random training on another device."""
    return _trained(case, device, lambda step: step)


def steps_compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Steps as one program: the model and the optimizer are arguments, and of half of them donated ones."""
    donated = ("net", "optimizer") if case.training.plan["donated"] else ()
    return _trained(case, device, lambda step: compile(step, donate=donated, **options))


def _steps_by_torch(case: Case) -> Outcome:
    """The same training written with torch: the one door that shares no layer and no optimizer."""
    if not case.trains:
        return _skip("one program in twelve")
    why = why_not_by_torch(case.training)
    if why is not None:
        return _skip(why)
    words = case.training.judge.differences(trained_by_torch(case.training))
    return Outcome(tuple(f"{one} of {case.training}" for one in words[:1]))


def _trained(case: Case, device: Device, wrap: Callable[[Any], Any]) -> Outcome:
    if not case.trains:
        return _skip("one program in twelve")
    words = case.training.judge.differences(case.training.run(device, wrap))
    return Outcome(tuple(f"{one} of {case.training}" for one in words[:1]))


# -- all doors, by phase ------------------------------------------------------------------------------------------
def _fused() -> Device:
    return Device.cpu(fused=True)


def _on_gpu(fused: bool) -> Device:
    return Device.cuda(0, fused=fused)


DOORS: Final[dict[str, tuple[Door, ...]]] = {
    "eager": (
        *_shared("tapes", (Door("tape", _tape), 0.5), (Door("vjp", _vjp), 0.5)),
        Door("ndarray", _in_numpy(lambda case: eager(case, Device.ndarray()))),
        Door("numeric", _numeric, 0.4),
        Door("wide", _wide),
        *_shared("compiled", (Door("compile", compiled), 0.75), (Door("donate", donated), 0.25)),
        Door("lazy", lambda case: eager(case, _fused()), 0.3),
        Door("vmap", _vmap, 0.15),
        Door("second", _second),
        Door("second compile", second_compiled),
        Door("second lazy", lambda case: second_eager(case, _fused()), 0.5),
        Door("second ndarray", _in_numpy(lambda case: second_eager(case, Device.ndarray())), 0.5),
        Door("steps torch", _steps_by_torch),
        Door("steps ndarray", lambda case: steps(case, Device.ndarray())),
        Door("steps compile", steps_compiled),
        Door("steps lazy", lambda case: steps(case, _fused()), 0.5),
    ),
    "c": (
        *_shared(
            "c",
            (Door("c", lambda case: compiled(case, fuse=True)), 0.75),
            (Door("c donate", lambda case: donated(case, fuse=True)), 0.25),
        ),
        Door("second c", lambda case: second_compiled(case, fuse=True)),
        Door("steps c", lambda case: steps_compiled(case, fuse=True), 0.3),
    ),
    "interpreter": (
        *_shared(
            "interpreter",
            (Door("interpreter", lambda case: compiled(case, fuse=True)), 0.6),
            (Door("interpreter donate", lambda case: donated(case, fuse=True)), 0.2),
            (Door("interpreter lazy", lambda case: eager(case, _fused())), 0.2),
        ),
        Door("second interpreter", lambda case: second_compiled(case, fuse=True)),
        Door("steps interpreter", lambda case: steps_compiled(case, fuse=True), 0.3),
    ),
    "cuda": (
        *_shared(
            "cuda",
            (Door("cuda", lambda case: eager(case, _on_gpu(True))), 0.4),
            (Door("cuda compile", lambda case: compiled(case, _on_gpu(True))), 0.4),
            (Door("cuda donate", lambda case: donated(case, _on_gpu(True))), 0.2),
        ),
        Door("cuda unfused", lambda case: eager(case, _on_gpu(False)), 0.3),
        *_shared(
            "second cuda",
            (Door("second cuda", lambda case: second_eager(case, _on_gpu(True))), 0.5),
            (Door("second cuda compile", lambda case: second_compiled(case, _on_gpu(True))), 0.5),
        ),
        *_shared(
            "steps cuda",
            (Door("steps cuda", lambda case: steps(case, _on_gpu(True))), 0.4),
            (Door("steps cuda compile", lambda case: steps_compiled(case, _on_gpu(True))), 0.6),
        ),
    ),
}
"""Each phase is processes of their own, see `phases.py`."""
