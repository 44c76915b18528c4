"""Defines what `burn-torch check RECIPE` looks at: one step of a recipe, and the faults that cost people the most time.

Each look gives an outcome: "ok", a "note" for what is unusual, or a "fault" for what is wrong.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from burn_torch.cli.one_step import KEY, OneStep, leaves_of, step
from burn_torch.core.dtype import DType
from burn_torch.core.errors import BurnTorchError, TraceError
from burn_torch.core.wording import counted, first_line
from burn_torch.module import Module, Param
from burn_torch.optim import GradientsParams
from burn_torch.tensor import Tensor
from burn_torch.train import AccuracyInput, LossInput, fold, train_step, valid_step
from burn_torch.train.output import input_of
from burn_torch.train.stepping import reason_of
from burn_torch.train.strategies.parts import map_tensors

__all__ = ["Outcome", "examine"]

STEPS: Final = 20
"""The number of steps on one batch that must lower its loss."""
PARAMETERS: Final = 64
"""The largest number of parameters moved for finite differences; each costs two runs of the model."""
AGREE: Final = 1e-5
"""In float64, with steps of 1e-6, the difference quotient has errors of about 1e-10 of the loss and 1e-12 of the third
derivative: 1e-5 of the gradient leaves room for both."""
ROUNDING: Final = 16 * 2**-52 / 1e-6
"""The error of a difference quotient from the last four bits of the loss; a gradient that is zero may have so much."""


@dataclass(frozen=True)
class Outcome:
    """Holds what came of one look."""

    name: str
    status: Literal["ok", "note", "fault"]
    text: str


def examine(one: OneStep) -> Iterator[Outcome]:
    """All looks at a recipe, one after the other.  Errors of the model itself are not caught."""
    yield from _data(one)
    model, grads, item = train_step(one.learner.model, one.batch, fold(KEY, 0))
    loss = _loss(item)
    yield from _first_loss(item, loss)
    if loss is None or not math.isfinite(loss):
        return
    yield _check_reach(one.learner.model, grads)
    yield _finite_differences(one)
    yield _check_compiled(one)
    yield _repeats(one)
    yield _validation(one)
    yield _learns(one, loss)
    yield _saves(one, model)


# -- data ---------------------------------------------------------------------------------------------------


def _data(one: OneStep) -> Iterator[Outcome]:
    for name, batch in (("training", one.batch), ("validation", one.valid_batch)):
        faults, notes, count = [], [], 0
        for path, x in leaves_of(batch):
            if not isinstance(x, Tensor):
                continue
            count += 1
            values = x.no_grad().into_data().values
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                count = int((~np.isfinite(values)).sum())
                faults.append(f"{path} has {counted(count, 'NaN or infinite value')}")
            elif values.size > 1 and (values == values.flat[0]).all():
                notes.append(f"{path} has one value alone, {values.flat[0]}")
            elif values.dtype.kind == "f" and float(np.abs(values).max()) > 100:
                notes.append(f"{path} reaches {float(np.abs(values).max()):.3g}: networks want values around 1")
        if faults:
            yield Outcome(f"{name} data", "fault", "; ".join(faults))
        elif notes:
            yield Outcome(f"{name} data", "note", "; ".join(notes))
        else:
            yield Outcome(f"{name} data", "ok", f"{counted(count, 'tensor')}, finite, of more than one value")


# -- loss and gradients ---------------------------------------------------------------------------------------


def _loss(item: object) -> float | None:
    measured = input_of(item, LossInput)
    return None if measured is None else float(measured.loss.no_grad().into_data().values.reshape(()))


def _first_loss(item: object, loss: float | None) -> Iterator[Outcome]:
    if loss is None:
        text = (
            f"{type(item).__name__} returns no LossInput: the run cannot watch for NaN, and LossMetric cannot read it"
        )
        yield Outcome("first loss", "fault", text)
        return
    if not math.isfinite(loss):
        yield Outcome("first loss", "fault", f"{loss}: look for log(0) and 0/0, and at the scale of the data")
        return
    classes = input_of(item, AccuracyInput)
    if classes is not None:
        chance = math.log(classes.outputs.shape[-1])
        if loss > 2 * chance + 1:
            text = f"{loss:.4g}, while guessing costs {chance:.4g}: are inputs and first weights of the right scale?"
            yield Outcome("first loss", "note", text)
            return
        yield Outcome("first loss", "ok", f"{loss:.4g}; guessing costs {chance:.4g}")
        return
    yield Outcome("first loss", "ok", f"{loss:.4g}")


def _check_reach(model: Module, grads: GradientsParams) -> Outcome:
    without, zero, bad = [], [], []
    named = list(model.named_params())
    for path, param in named:
        gradient = grads.get(param.id)
        if gradient is None:
            without.append(path)
            continue
        values = gradient.into_data().values
        if not np.isfinite(values).all():
            bad.append(path)
        elif not values.any():
            zero.append(path)
    if bad:
        return Outcome("gradients", "fault", f"NaN or infinite in {', '.join(bad)}")
    if without:
        return Outcome("gradients", "fault", f"none for {', '.join(without)}: nothing of the loss depends on them")
    if zero:
        return Outcome("gradients", "note", f"zero in all of {', '.join(zero)}")
    return Outcome("gradients", "ok", f"there for all {counted(len(named), 'parameter')}, and none is zero")


def _finite_differences(one: OneStep) -> Outcome:
    name = "gradients against finite differences"
    try:
        model, batch = _in_float64(one.learner.model), map_tensors(one.batch, _widen)
        _, grads, item = train_step(model, batch, fold(KEY, 0))
    except BurnTorchError as err:
        return Outcome(name, "note", f"not looked at, the model does not run in float64: {first_line(err)}")
    random = np.random.Generator(np.random.Philox(KEY))
    floor = ROUNDING * abs(_loss(item) or 0.0)
    worst, wrong, looked = 0.0, [], 0
    for path, param in list(model.named_params())[:PARAMETERS]:
        gradient = grads.get(param.id)
        if gradient is None or not param.val().dtype.is_float:
            continue
        looked += 1
        values = gradient.into_data().values
        length = float(np.linalg.norm(values))
        direction = random.standard_normal(param.shape)
        direction /= np.linalg.norm(direction)
        if length > 0:  # half along the gradient: a random direction alone meets little of one with many zeros
            direction += values / length
            direction /= np.linalg.norm(direction)
        slope = float((values * direction).sum())
        error = min(abs(_quotient(model, param, direction, batch, eps) - slope) for eps in (1e-6, 1e-7))
        if error <= floor:
            continue
        worst = max(worst, error / max(length, floor))
        if error > AGREE * length + floor:
            wrong.append(f"{path} by {error / max(length, floor):.1e}")
    if wrong:
        return Outcome(name, "fault", f"they differ in {', '.join(wrong)} of the gradient's length")
    most = f"the largest difference {worst:.1e} of the gradient" if worst else "no difference above rounding"
    return Outcome(name, "ok", f"{counted(looked, 'parameter')} in float64, {most}")


def _quotient(model: Module, param: Param, direction: Any, batch: object, eps: float) -> float:
    losses = []
    for sign in (1.0, -1.0):
        values = param.val().no_grad() if param.device.is_autodiff() else param.val()
        shift = Tensor.from_data(sign * eps * direction, values.device)
        moved = param.map(lambda value, by=shift: value + by)  # type: ignore[misc]  # a lambda with a default
        changed = model.map_params(lambda p, new=moved: new if p.id == new.id else p)
        losses.append(_loss(train_step(changed, batch, fold(KEY, 0))[2]))
    assert losses[0] is not None
    assert losses[1] is not None
    return (losses[0] - losses[1]) / (2 * eps)


def _in_float64(model: Module) -> Module:
    wide = model.map_params(lambda param: param.map(_widen) if param.val().dtype.is_float else param)
    return wide.with_states({state.id: _widen(state.value()) for _, state in wide.named_states()})


def _widen(x: Tensor) -> Tensor:
    return x.cast(DType.F64) if isinstance(x, Tensor) and x.dtype.is_float else x


# -- the step as a whole ------------------------------------------------------------------------------------------


def _bits(model: Module) -> dict[str, bytes]:
    return {path: param.val().into_data().values.tobytes() for path, param in model.named_params()}


def _bytes_after(one: OneStep, function: Callable[..., object]) -> dict[str, bytes]:
    learner = one.learner.fork()
    for number in range(2):
        learner, _ = one.run(function, learner, number)
    return _bits(learner.model)


def _check_compiled(one: OneStep) -> Outcome:
    name = "compiled and eager"
    try:
        bits = _bytes_after(one, one.compiled())
    except TraceError as err:
        return Outcome(name, "note", f"it runs eagerly, it cannot be compiled: {reason_of(err)}")
    wanted = _bytes_after(one, step)
    other = [path for path in wanted if bits[path] != wanted[path]]
    if not other:
        return Outcome(name, "ok", "the same bits after two steps")
    exact = one.device.place == "cpu" and one.precision == "float32" and not one.settings.config.fuse
    text = f"other bits after two steps in {', '.join(other[:6])}{', ...' if len(other) > 6 else ''}"
    return Outcome(name, "fault" if exact else "note", text)


def _repeats(one: OneStep) -> Outcome:
    if _bytes_after(one, step) == _bytes_after(one, step):
        return Outcome("repeated", "ok", "the same bits from the same seed")
    text = "two runs from one seed differ: does the model draw from random or numpy, or count its steps?"
    return Outcome("repeated", "fault" if one.device.place == "cpu" else "note", text)


def _validation(one: OneStep) -> Outcome:
    model = one.learner.model.valid()
    losses = [_loss(valid_step(model, one.valid_batch, key)) for key in (1, 2)]
    if losses[0] == losses[1]:
        return Outcome("validation", "ok", "gives the same loss twice")
    return Outcome("validation", "note", f"is random: losses {losses[0]} and {losses[1]} of one batch")


def _learns(one: OneStep, before: float) -> Outcome:
    learner, item = one.learner.fork(), None
    for _ in range(STEPS):
        learner, item = one.run(step, learner)  # one key: the loss of the same function each time
    after = _loss(item)
    text = f"{STEPS} steps on one batch bring its loss from {before:.4g} to {after:.4g}"
    if after is not None and after < before:
        return Outcome("learning", "ok", text)
    return Outcome("learning", "fault", f"{text}: is the learning rate too high, or the sign of the loss wrong?")


def _saves(one: OneStep, model: Module) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="burn-torch-check-") as folder:
        path = model.save_file(Path(folder) / "model.safetensors")
        again = one.recipe.model(one.settings.config, one.device).load_file(path)
    if _bits(again) == _bits(model):
        return Outcome("saving", "ok", "a saved model loads with the same bits")
    return Outcome("saving", "fault", "a saved model loads with other bits")
