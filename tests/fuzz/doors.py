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
from tests.fuzz.case import PLAIN, Case, Outcome, data_of, first_by_tape, first_by_vjp, skip
from tests.fuzz.compare import Results
from tests.fuzz.differences import dtypes_of, is_double, numeric
from tests.fuzz.second import second, second_compiled, second_eager
from tests.fuzz.torch_training import trained_by_torch, why_not_by_torch

__all__ = ["DOORS", "Door"]


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
        """Returns whether a program is one of its part."""
        if self.share >= 1:
            return True
        word = f"{case.seed} {self.others or self.name}".encode()
        return (
            self.first
            <= int.from_bytes(hashlib.blake2b(word, digest_size=4).digest(), "big") / 2**32
            < self.first + self.share
        )


def _share_programs(name: str, *doors: tuple[Door, float]) -> tuple[Door, ...]:
    """Doors of which each program goes through one."""
    first, placed = 0.0, []
    for door, share in doors:
        placed.append(replace(door, share=share, others=name, first=first))
        first += share
    return tuple(placed)


# -- eager ---------------------------------------------------------------------------------------------------
def _tape(case: Case) -> Outcome:
    if not case.differentiates:
        return skip("no gradients")
    balanced = PLAIN.autodiff("balanced")
    program = case.program
    results = first_by_tape(program, program.tensors(balanced), program.numbers, case.upstream_on(PLAIN))
    differences = case.judge.differences(data_of(results))
    values = case.judge.reference[: len(case.values)]
    for i, (y, z) in enumerate(zip(values, case.values, strict=True)):
        if y is None or y.array.tobytes() != z.array.tobytes():
            differences.append(f"result {i} differs between a plain device and one with gradients")
    return Outcome(tuple(differences))


def _vjp(case: Case) -> Outcome:
    if not case.differentiates:
        return skip("no gradients")
    program = case.program
    results = first_by_vjp(program, program.tensors(PLAIN), program.numbers, case.upstream_on(PLAIN))
    return Outcome(tuple(case.judge.differences(data_of(results))))


_LARGE_HALVES: Final = "halves that overflow where a row is composed of others"


def _has_large_halves(case: Case) -> bool:
    halves = (DType.F16, DType.BF16)
    return any(
        x.dtype in halves and x.data.size and np.nanmax(np.abs(x.data), initial=0.0) > 20 for x in case.program.inputs
    )


# -- a wider type ------------------------------------------------------------------------------------------------
def _wide(case: Case) -> Outcome:
    """The same in float64: what only a narrow type computes wrongly, as it overflows on the way."""
    program = case.program
    if is_double(case):
        return skip("in float64")
    if program.is_random:
        return skip("random numbers of another type are others")
    everything = replace(program, outputs=tuple(range(program.first_result(len(program.steps)))))
    pool = everything(program.tensors(PLAIN), program.numbers)
    if not all(np.isfinite(x.into_data().values).all() for x in pool if x is not None and x.dtype.is_float):
        return skip("leaves the range of its type")
    wide = case.widened()
    results = data_of(wide.program(wide.program.tensors(PLAIN), program.numbers))
    values = [None if y is None else y.convert(z.dtype) for y, z in zip(results, case.values, strict=True)]
    gradients = case.judge.reference[len(values) :]
    return Outcome(tuple(case.judge.differences([*values, *gradients])))


# -- compiled -----------------------------------------------------------------------------------------------
def compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Values and gradients as one program, which is then called with other data, or other shapes and these again."""
    function = _compile_program(case, {**_drawn_options(case, device), **options})
    differences = case.judge.differences(_call(function, case, device))
    if differences:
        return Outcome(tuple(differences))
    traces = 1
    for what, other in _others(case):
        differences += [f"{what}: {words}" for words in other.judge.differences(_call(function, other, device))]
        if what == OTHER_SHAPES:
            traces = 2
            again = case.judge.differences(_call(function, case, device))
            differences += [f"with the first shapes again: {words}" for words in again]
    if function.traces != traces:
        differences.append(f"traced {function.traces} times, expected {traces}")
    return Outcome(tuple(differences))


def _drawn_options(case: Case, device: Device) -> dict[str, Any]:
    """Returns what a program is compiled with: it may round otherwise, or compute values a second time."""
    if device is not PLAIN:
        return {}
    options: dict[str, Any] = {"numerics": "fast"} if case.seed % 3 == 0 else {}
    return {**options, "memory_limit_bytes": 1} if case.seed % 7 == 0 else options


OTHER_SHAPES: Final = "called with other shapes"


def _others(case: Case) -> list[tuple[str, Case]]:
    """For some programs the same one on other data, or on longer axes; none where eager refuses them."""
    if case.seed % 16 > 3:
        return []
    longer = case.seed % 16 == 3
    cases = case.lengthened() if longer else [case.varied()]
    for other in cases:
        with suppress(BurnTorchError):  # an index is out of range, or a shape is an attribute of a step
            assert other.judge
            return [(OTHER_SHAPES if longer else "called again", other)]
    return []


def _compile_program(case: Case, options: dict[str, Any]) -> Any:
    program = case.program
    if not case.differentiates:
        return compile(lambda xs, numbers, upstream: program(xs, numbers), **options)
    way = first_by_vjp if case.seed % 2 else first_by_tape
    return compile(lambda xs, numbers, upstream: way(program, xs, numbers, upstream), **options)


def _call(function: Any, case: Case, device: Device) -> Results:
    program = case.program
    by_tape = case.differentiates and not case.seed % 2
    xs = program.tensors(device.autodiff() if by_tape else device)
    return _results(case, function(xs, list(program.numbers), case.upstream_on(device)))


def _results(case: Case, tensors: Sequence[Tensor | None]) -> Results:
    """Returns what was computed, with None for gradients that are not asked for."""
    arrays = data_of(tensors)
    return arrays + [None] * (len(case.names) - len(arrays))


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
    donated_inputs = [xs[i] for i in gone]
    kept = [x for i, x in enumerate(xs) if i not in gone]
    run = compile(function, donate=("given", "upstream"), **options)
    differences = case.judge.differences(
        _results(case, run(donated_inputs, kept, list(program.numbers), case.upstream_on(device)))
    )
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
    """Values and gradients on another device, then on other data or shapes: a fused device keeps plans."""
    differences = case.judge.differences(case.first_on(device))
    for what, other in _others(case) if not differences else []:
        differences += [f"{what}: {words}" for words in other.judge.differences(other.first_on(device))]
    return Outcome(tuple(differences))


# -- many samples -----------------------------------------------------------------------------------------------
_SAMPLES: Final = 3


def _vmap(case: Case) -> Outcome:
    program = case.program
    if not case.differentiates or program.is_random:
        return skip("no gradients" if not program.is_random else "each sample draws other numbers")
    if _has_large_halves(case):
        return skip(_LARGE_HALVES)
    chosen = random.Random(case.seed)
    batched = [i for i in range(len(program.inputs)) if chosen.random() < 0.5]
    shared = [i for i in program.wanted if i not in batched]
    if not batched or not shared:
        return skip("nothing is shared by samples, or nothing differs")
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
        return skip("other data are refused")
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
            return skip("batch normalisation mixes the samples")
    differences: list[str] = []
    results = data_of([*ys, *gradients])
    for k, one in enumerate(cases):
        part = [None if y is None else _sample(y, k, z) for y, z in zip(results, one.judge.reference, strict=True)]
        differences += [f"sample {k}: {words}" for words in one.judge.differences(part)]
    return Outcome(tuple(differences))


def _sample(many: TensorData, k: int, like: TensorData | None) -> TensorData:
    """One sample's part; results of per_sample_grad keep the batch's axis of one sample."""
    one = np.asarray(many.array[k])
    return TensorData(one if like is None else one.reshape(like.shape), many.dtype)


def _in_numpy(check: Callable[[Case], Outcome]) -> Callable[[Case], Outcome]:
    """numpy has no bf16, and composes rows that torch computes in float32 within."""

    def checked(case: Case) -> Outcome:
        dtypes = {v for step in case.program.steps for v in dtypes_of(step)} | {x.dtype for x in case.program.inputs}
        if DType.BF16 in dtypes:
            return skip("numpy has no bf16")
        return skip(_LARGE_HALVES) if _has_large_halves(case) else check(case)

    return checked


# -- training ------------------------------------------------------------------------------------------------------
def steps(case: Case, device: Device) -> Outcome:
    """Some steps of a random training on another device."""
    return _train_on(case, device, lambda step: step)


def steps_compiled(case: Case, device: Device = PLAIN, **options: Any) -> Outcome:
    """Steps as one program: the model and the optimizer are arguments, and of half of them donated ones."""
    donated = ("net", "optimizer") if case.training.plan["donated"] else ()
    return _train_on(case, device, lambda step: compile(step, donate=donated, **options))


def _steps_by_torch(case: Case) -> Outcome:
    """The same training written with torch: the one door that shares no layer and no optimizer."""
    if not case.trains:
        return skip("one program in 24")
    why = why_not_by_torch(case.training)
    if why is not None:
        return skip(why)
    return _compare_training(case, trained_by_torch(case.training))


def _train_on(case: Case, device: Device, wrap: Callable[[Any], Any]) -> Outcome:
    return _compare_training(case, case.training.run(device, wrap)) if case.trains else skip("one program in 24")


def _compare_training(case: Case, trained: Results) -> Outcome:
    return Outcome(tuple(f"{words} of {case.training}" for words in case.training.judge.differences(trained)[:1]))


# -- all doors, by phase ------------------------------------------------------------------------------------------
def _fused() -> Device:
    return Device.cpu(fused=True)


def _on_gpu(fused: bool) -> Device:
    return Device.cuda(0, fused=fused)


DOORS: Final[dict[str, tuple[Door, ...]]] = {
    "eager": (
        *_share_programs("tapes", (Door("tape", _tape), 0.5), (Door("vjp", _vjp), 0.5)),
        Door("ndarray", _in_numpy(lambda case: eager(case, Device.ndarray()))),
        Door("numeric", numeric, 0.4),
        Door("wide", _wide),
        *_share_programs("compiled", (Door("compile", compiled), 0.75), (Door("donate", donated), 0.25)),
        Door("lazy", lambda case: eager(case, _fused()), 0.12),
        Door("vmap", _vmap, 0.15),
        Door("second", second),
        Door("second compile", second_compiled),
        Door("second lazy", lambda case: second_eager(case, _fused()), 0.5),
        Door("second ndarray", _in_numpy(lambda case: second_eager(case, Device.ndarray())), 0.5),
        Door("steps torch", _steps_by_torch),
        Door("steps ndarray", lambda case: steps(case, Device.ndarray())),
        Door("steps compile", steps_compiled),
        Door("steps lazy", lambda case: steps(case, _fused()), 0.5),
    ),
    "c": (
        *_share_programs(
            "c",
            (Door("c", lambda case: compiled(case, fuse=True)), 0.75),
            (Door("c donate", lambda case: donated(case, fuse=True)), 0.25),
        ),
        Door("second c", lambda case: second_compiled(case, fuse=True)),
        Door("steps c", lambda case: steps_compiled(case, fuse=True), 0.3),
    ),
    "interpreter": (
        *_share_programs(
            "interpreter",
            (Door("interpreter", lambda case: compiled(case, fuse=True)), 0.6),
            (Door("interpreter donate", lambda case: donated(case, fuse=True)), 0.2),
            (Door("interpreter lazy", lambda case: eager(case, _fused())), 0.2),
        ),
        Door("second interpreter", lambda case: second_compiled(case, fuse=True)),
        Door("steps interpreter", lambda case: steps_compiled(case, fuse=True), 0.3),
    ),
    "cuda": (
        *_share_programs(
            "cuda",
            (Door("cuda", lambda case: eager(case, _on_gpu(True))), 0.4),
            (Door("cuda compile", lambda case: compiled(case, _on_gpu(True))), 0.4),
            (Door("cuda donate", lambda case: donated(case, _on_gpu(True))), 0.2),
        ),
        Door("cuda unfused", lambda case: eager(case, _on_gpu(False)), 0.3),
        *_share_programs(
            "second cuda",
            (Door("second cuda", lambda case: second_eager(case, _on_gpu(True))), 0.5),
            (Door("second cuda compile", lambda case: second_compiled(case, _on_gpu(True))), 0.5),
        ),
        *_share_programs(
            "steps cuda",
            (Door("steps cuda", lambda case: steps(case, _on_gpu(True))), 0.4),
            (Door("steps cuda compile", lambda case: steps_compiled(case, _on_gpu(True))), 0.6),
        ),
    ),
}
"""Each phase is processes of their own, see `phases.py`."""
