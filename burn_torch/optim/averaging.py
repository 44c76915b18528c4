"""Averages of a model over its steps, as pure functions: exponential (EMA), and of equal weight (SWA).

ema = update_ema(ema, model, 0.999)                       after each step; begin with ema = model.no_grad()
average = update_swa(average, model, count)               after an epoch; `count` models are in it already
average = recompute_batch_norms(average, batches)         an average of weights has other statistics
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ShapeError
from burn_torch.module import Module, Param, ParamId, RunningState, StepScope, Tree
from burn_torch.module.tree import children, rebuild, walk
from burn_torch.tensor import Tensor

__all__ = ["recompute_batch_norms", "update_ema", "update_swa"]

M = TypeVar("M", bound=Module)
B = TypeVar("B")


def update_ema(ema: M, model: Module, decay: float | Tensor) -> M:
    """decay * ema + (1 - decay) * model for each float parameter; all other values are those of the model.

    ema     begins as model.no_grad(); it stays on its device and in its types, which may be wider than the model's
    decay   from 0 to 1, such as 0.999; a number, or a tensor of one element, which a compiled step takes as an argument

    The sums are computed in float32 at least.  Raises: ArgumentError for a decay out of range; ShapeError for a model
    with other parameters.
    Source: Polyak, Juditsky 1992.  PyTorch: torch.optim.swa_utils.get_ema_multi_avg_fn.
    """
    if isinstance(decay, int | float) and not 0 <= decay <= 1:
        raise ArgumentError(
            "update_ema: the decay is out of range",
            given=f"decay {decay}",
            expected="a number from 0 to 1",
            mend="decay is the share that the average keeps: 0.999 is usual",
        )
    return _blend("update_ema", ema, model, decay, 1.0 - decay)


def update_swa(average: M, model: Module, count: int) -> M:
    """The mean of `count` models, which `average` is, and one more: (count * average + model) / (count + 1).

    Begin with count 0, which gives the values of the model.  Raises: as `update_ema`.
    Source: Izmailov et al. 2018, https://arxiv.org/abs/1803.05407.  PyTorch: torch.optim.swa_utils.AveragedModel.
    """
    if isinstance(count, int) and count < 0:
        raise ArgumentError(
            "update_swa: the number of models is negative",
            given=f"count {count}",
            expected="how many models the average holds already, 0 or more",
            mend="begin with update_swa(model, model, 0)",
        )
    return _blend("update_swa", average, model, count / (count + 1), 1.0 / (count + 1))


def recompute_batch_norms(model: M, batches: Iterable[B], forward: Callable[[M, B], object] | None = None) -> M:
    """The model with running statistics that are the mean over some batches, as its weights now give them.

    forward   computes the model on a batch, by default `model.forward(batch)`; it runs as in training

    A model without batch norms is given back as it is.  Raises: ArgumentError where there is no batch.
    PyTorch: torch.optim.swa_utils.update_bn.
    """
    training = _with_momentum_of_one(model.train())
    statistics = {state.id for norm in _batch_norms(training) for state in _states_of(norm)}
    if not statistics:
        return model
    totals: dict[ParamId, Tensor] = {}
    count = 0
    for count, batch in enumerate(batches, 1):
        with StepScope(count, training) as scope:
            _ = training.forward(batch) if forward is None else forward(training, batch)  # type: ignore[attr-defined]  # a module may have it
        for ident, value in scope.states.items():
            if ident in statistics:
                totals[ident] = totals[ident] + value if ident in totals else value
    if not count:
        raise ArgumentError(
            "recompute_batch_norms: there are no batches",
            given="no batch",
            expected="an iterable of batches, of one at least",
            mend="pass a DataLoader or a list of inputs; an iterator that was read once is empty",
        )
    return model.with_states({ident: total / float(count) for ident, total in totals.items()})


def _blend(what: str, average: M, model: Module, kept: float | Tensor, share: float | Tensor) -> M:
    ours, theirs = dict(walk(average)), dict(walk(model))
    odd = [
        f"{path} {_shape(ours.get(path))} in the average, {_shape(theirs.get(path))} in the model"
        for path in {**ours, **theirs}
        if _shape(ours.get(path)) != _shape(theirs.get(path))
    ]
    if odd:
        raise ShapeError(
            f"{what}: the model has other parameters than the average",
            given="; ".join(odd[:4]) + (f" and {len(odd) - 4} more" if len(odd) > 4 else ""),
            expected="two modules of one configuration",
            mend="begin the average with the model itself: ema = model.no_grad()",
        )
    new: dict[int, object] = {}
    for path, leaf in ours.items():
        if id(leaf) not in new:
            new[id(leaf)] = _blend_leaf(leaf, theirs[path], kept, share)
    return rebuild(average, lambda leaf: new.get(id(leaf), leaf))


def _blend_leaf(leaf: object, other: object, kept: float | Tensor, share: float | Tensor) -> object:
    if isinstance(leaf, RunningState) and isinstance(other, RunningState):
        return leaf.with_value(other.value().to_device(leaf.device).cast(leaf.value().dtype))
    if not isinstance(leaf, Param) or not isinstance(other, Param):
        return leaf
    old, new = leaf.val().detach(), other.val().detach().to_device(leaf.device)
    if old.dtype.is_float:
        wide = old.dtype if old.dtype.itemsize >= 4 else DType.F32
        new = old.cast(wide) * kept + new.cast(wide) * share
    return leaf.with_value(new.cast(old.dtype).detach())


def _shape(leaf: object) -> object:
    return getattr(leaf.value() if isinstance(leaf, RunningState) else leaf, "shape", "missing")


def _batch_norms(node: object) -> list[Tree]:
    """The layers whose running statistics move by a momentum."""
    norms = [node] if isinstance(node, Tree) and "momentum" in node.__module_fields__ and _states_of(node) else []
    return norms + [norm for _, child in children(node) if _is_inner(child) for norm in _batch_norms(child)]


def _is_inner(child: object) -> bool:
    return not isinstance(child, Param | RunningState | Tensor)


def _states_of(norm: Tree) -> list[RunningState]:
    return [child for _, child in children(norm) if isinstance(child, RunningState)]


def _with_momentum_of_one(model: M) -> M:
    """The model whose batch norms take the statistics of a batch as they are."""
    norms = {id(norm): norm for norm in _batch_norms(model)}
    leaves = tuple({type(norm) for norm in norms.values()})
    if type(model) in leaves:
        return model._with_fields({"momentum": 1.0})
    return rebuild(
        model,
        lambda leaf: norms[id(leaf)]._with_fields({"momentum": 1.0}) if id(leaf) in norms else leaf,
        leaves=(Param, RunningState, Tensor, *leaves),
    )
