"""Watching a run for values that are not finite.

Steps are pure, so the step that went wrong can be computed again.  The watch keeps the learner as it was some steps
ago, and the batches, keys and learning rates since.  The loss of each step is looked at anyway; parameters, running
statistics and the optimizer's state, in which a NaN stays for ever, are looked at when the watch starts afresh.  So are
the extremes of the gradients where something may bound them before anybody else sees them, as clipping does with an
infinity.  Only when something is found the steps since are run again, and the one that went wrong operation by
operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from burn_torch.core.errors import TraceError
from burn_torch.core.files import make_folder
from burn_torch.module import Param, RunningState
from burn_torch.module.tree import Tree, walk
from burn_torch.optim import GroupedOptimizer
from burn_torch.optim.optimizer import Optimizer
from burn_torch.tensor import Tensor
from burn_torch.train.anomaly import replay_file, search
from burn_torch.train.anomaly.search import Fault, Found
from burn_torch.train.checkpoint.content import Position
from burn_torch.train.learner import AnyLearner
from burn_torch.train.logger.application import LOG
from burn_torch.train.measure import shows_loss
from burn_torch.train.output import LossInput, adapt
from burn_torch.train.step import AnyBatch
from burn_torch.train.stepping import Steps
from burn_torch.transform.compilation import Opened

__all__ = ["RENEWED_AFTER", "Anomaly", "AnomalyWatch", "may_hide", "unsound"]

RENEWED_AFTER: Final = 16
"""Steps after which the watch starts afresh: it holds their batches, and one more copy of the learner."""


@final
@dataclass(frozen=True)
class Anomaly:
    """Holds what the watch found."""

    position: Position
    """Before the step that went wrong."""
    fault: Fault | None
    """Says which operation; None where the step cannot be run operation by operation."""
    unsound: tuple[str, ...]
    """Holds what is not finite after the step, by name."""
    reason: str | None
    """Why there is no `fault`."""
    file: Path | None


@dataclass(frozen=True)
class _Step:
    """Holds what a step was given; `batch` is None for the update of a short window at the end of an epoch."""

    position: Position
    batch: AnyBatch
    lr: float
    key: int


@final
class AnomalyWatch:
    """Keeps what is needed to find the first step, and in it the first operation, that gave NaN or infinity."""

    def __init__(self, steps: Steps, folder: Path) -> None:
        self._steps: Final = steps
        self._folder: Final = folder
        self._start: AnyLearner | None = None
        self._since: list[_Step] = []

    def note(self, learner: AnyLearner, position: Position, batch: object, lr: float, key: int) -> None:
        """Before each step."""
        if self._start is None:
            self._start = learner.fork()
        self._since.append(_Step(position, batch, lr, key))

    def is_full(self) -> bool:
        """Returns whether it should start afresh, which it can between two updates."""
        return len(self._since) >= RENEWED_AFTER and self._steps.batches == 0

    def clear(self) -> None:
        """Starts afresh at the next step: all so far is sound."""
        self._start = None
        self._since = []

    def search(self) -> Anomaly | None:
        """Runs the steps since the start again; None if all is finite this time."""
        assert self._start is not None
        learner, steps = self._start.fork(), self._steps
        steps.go_back()
        for step in self._since:
            before, window, batches = learner.fork(), steps.window.copy(), steps.batches
            item = None
            if step.batch is None:
                learner = steps.finish(learner, step.lr)
            else:
                learner, item, _ = steps.train(learner, step.lr, step.batch, step.key)
            names = tuple(unsound(learner, item, steps.window, steps.take_seen()))
            if names:
                steps.go_back(window, batches)
                return self._in_step(step, before, names)
        return None

    def _in_step(self, step: _Step, before: AnyLearner, names: tuple[str, ...]) -> Anomaly:
        steps = self._steps
        programs = (
            steps.opened_update(before, step.lr)
            if step.batch is None
            else steps.opened(before, step.lr, step.batch, step.key)
        )
        try:
            for opened in programs:
                finding = search.find(opened.graph, opened.leaf, opened.inputs, opened.names)
                if finding is not None:
                    return Anomaly(
                        step.position, finding.fault, names, None, self._saved(step.position, finding, opened)
                    )
        except TraceError as err:
            lines = str(err).splitlines()
            reason = next((line.partition("given:")[2].strip() for line in lines if "given:" in line), "")
            return Anomaly(step.position, None, names, f"the step cannot be traced: {lines[0]}: {reason}", None)
        return Anomaly(step.position, None, names, "operation by operation all was finite", None)

    def _saved(self, position: Position, finding: Found, opened: Opened) -> Path | None:
        """The replay file; None where it cannot be written: the fault is to be told all the same."""
        number = position.iteration + 1
        where = {"epoch": position.epoch, "batch": position.batch + 1, "step": number}
        try:
            make_folder(self._folder)
            path = self._folder / f"step-{number}.safetensors"
            return replay_file.save(path, finding, opened.leaf, opened.inputs, opened.names, where)
        except OSError as err:
            LOG.warning("the replay file of step %d cannot be written: %s", number, err)
            return None


def may_hide(learner: AnyLearner) -> bool:
    """Returns whether a gradient that is not finite may leave no trace: it is clipped, or the update is not ours."""
    optims = learner.optim.optimizers.values() if isinstance(learner.optim, GroupedOptimizer) else [learner.optim]
    own = hasattr(learner.model, "optimize")
    return own or any(not isinstance(one, Optimizer) or one.clipping is not None for one in optims)


def unsound(learner: AnyLearner, item: object = None, window: Any = None, seen: Sequence[Tensor] = ()) -> Iterator[str]:
    """The names of what is not finite: the loss, gradients, parameters, running statistics, the optimizer's state."""
    named = [("a gradient, before the optimizer had it", extremes) for extremes in seen]
    if item is not None and shows_loss(item):
        named.append(("the loss", adapt(item, LossInput, "the watch").loss))
    for title, tree in (("model", learner.model), ("optimizer", learner.optim)):
        if isinstance(tree, Tree):
            named += [(f"{title}.{path}", _tensor(leaf)) for path, leaf in walk(tree)]
    if window is not None and window.sum is not None:
        named += [(f"gradient of {ident}", gradient) for ident, gradient in window.sum.items()]
    tensors = [(name, _plain(tensor)) for name, tensor in named if tensor.dtype.is_float and tensor.spec.numel]
    if not tensors:
        return
    suspects = _sums(tensors)
    for (name, tensor), total in zip(tensors, suspects, strict=True):
        if not np.isfinite(total) and not np.isfinite(tensor.into_data().values).all():
            yield name


def _sums(tensors: list[tuple[str, Tensor]]) -> list[float]:
    """One sum a tensor, read all at once from each device: it is finite only if all values are."""
    totals: dict[str, list[tuple[int, Tensor]]] = {}
    for i, (_, tensor) in enumerate(tensors):
        total = tensor.sum().reshape([1])
        totals.setdefault(f"{tensor.place} {tensor.dtype}", []).append((i, total))
    sums = [0.0] * len(tensors)
    for parts in totals.values():
        values = Tensor.cat([total for _, total in parts], 0).into_data().values
        for (i, _), value in zip(parts, values, strict=True):
            sums[i] = float(value)
    return sums


def _tensor(leaf: Any) -> Tensor:
    return leaf.val() if isinstance(leaf, Param) else leaf.value() if isinstance(leaf, RunningState) else leaf


def _plain(tensor: Tensor) -> Tensor:
    while tensor.device.is_autodiff():
        tensor = tensor.inner()
    return tensor
