"""Checks what a run needs before it begins, and what a resume needs besides its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from burn_torch.core.errors import ConfigError
from burn_torch.train.checkpoint import Checkpoint
from burn_torch.train.checkpoint.strategy import metric_strategies
from burn_torch.train.early_stopping import MetricEarlyStoppingStrategy
from burn_torch.train.learner import AnyLearner, Learner
from burn_torch.train.loading import Batches
from burn_torch.train.logger.metric import file_name
from burn_torch.train.metric.base import Metric, Split
from burn_torch.train.run import Run, key_of
from burn_torch.train.step import faults_error, step_fault
from burn_torch.train.strategies import SingleDevice

if TYPE_CHECKING:
    from burn_torch.train.supervised import SupervisedTraining

__all__ = ["require_epochs_left", "require_same_order", "require_trainable"]


def require_trainable(training: SupervisedTraining, learner: AnyLearner) -> None:
    """Raises: ConfigError with all that keeps a training from beginning."""
    if not isinstance(learner, Learner):
        raise ConfigError(
            "SupervisedTraining.launch takes a Learner",
            given=f"a {type(learner).__name__}",
            expected="a Learner: a model, its optimizer and its learning rate",
            mend="launch(Learner(model, AdamConfig().init(), 1e-3))",
        )
    faults: list[tuple[str, str, str]] = []
    for name, value in (("num_epochs", training._num_epochs), ("grads_accumulation", training._accumulation)):
        if value < 1:
            faults.append((f"{name}({value})", f"{name} of 1 or more", "give a positive number"))
    if training._from_epoch is not None and training._from_epoch < 1:
        faults.append((f"checkpoint({training._from_epoch})", "an epoch; the first one is 1", "name one that is over"))
    if training._precision != "float32" and not training._compiled:
        setting = f"precision({training._precision!r}) with compile(False)"
        faults.append((setting, "compiled steps, or float32", "leave one of them out"))
    if training._fuse and not training._compiled:
        faults.append(("fuse() with compile(False)", "compiled steps, or no fuse()", "leave one of them out"))
    steps = ["train_step"] if training._valid_loader is None else ["train_step", "valid_step"]
    for name in steps:
        fault = step_fault(learner.model, name)
        faults += [] if fault is None else [fault]
    for split, metrics in (("train", training._train_metrics), ("valid", training._valid_metrics)):
        faults += _metric_faults(split, metrics)
    if training._time_limit is not None and not training._time_limit > 0:
        faults.append((f"time_limit({training._time_limit})", "a number of seconds above 0", "give a longer time"))
    if training._watched and not isinstance(training._execution, SingleDevice):
        kind = type(training._execution).__name__
        faults.append((f"detect_anomaly with {kind}", "SingleDevice", "train on one device to find the fault"))
    faults += _unmeasured_faults(training)
    if faults:
        raise faults_error("SupervisedTraining: this cannot be trained", faults)


def _unmeasured_faults(training: SupervisedTraining) -> list[tuple[str, str, str]]:
    """A metric that nobody measures would never stop the run, or keep no checkpoint, and nobody would know."""
    asking: list[tuple[str, Any]] = []
    if isinstance(training._early_stopping, MetricEarlyStoppingStrategy):
        asking.append(("early stopping", training._early_stopping))
    if training._chosen_strategy:
        asking += [("checkpoints", strategy) for strategy in metric_strategies(training._strategy)]
    faults = []
    for what, strategy in asking:
        metrics = training._train_metrics if strategy.split == Split.TRAIN else training._valid_metrics
        measured = [metric.name for metric in metrics if isinstance(metric, Metric)]
        if strategy.split == Split.VALID and training._valid_loader is None:
            measured = []
        if strategy.metric not in measured:
            asked = f"{what} by the {strategy.split} metric {strategy.metric}"
            expected = f"a metric that is measured: {', '.join(measured) or 'none is'}"
            faults.append((asked, expected, "add it with metrics(...)"))
    return faults


def _metric_faults(split: str, metrics: Sequence[object]) -> list[tuple[str, str, str]]:
    faults = []
    seen: set[str] = set()
    for metric in metrics:
        if isinstance(metric, type) or not isinstance(metric, Metric):
            shown = f"{metric!r}"[:60]
            faults.append(
                (f"{shown} as a {split} metric", "an object with the methods of Metric", "write LossMetric()")
            )
            continue
        name = file_name(metric.name)
        if name in seen:
            faults.append((f"two {split} metrics {metric.name}", "a name of its own for each", "give one another name"))
        seen.add(name)
    return faults


def require_epochs_left(checkpoint: Checkpoint, num_epochs: int) -> None:
    """Raises: ConfigError for a checkpoint that is past the last epoch."""
    position = checkpoint.position
    if position.epoch > num_epochs:
        trained = (
            f"{position.epoch} epochs" if position.complete else f"batch {position.batch} of epoch {position.epoch}"
        )
        raise ConfigError(
            "the run to resume is past the epoch that it is to end with",
            given=f"num_epochs {num_epochs}, and a checkpoint with {trained} trained",
            expected=f"{position.epoch} epochs or more",
            mend="ask for more epochs; a shorter run is one of its own, in another directory",
        )


def require_same_order(checkpoint: Checkpoint, seed: int | None, train: Batches, run: Run) -> None:
    """Raises: ConfigError where a resume would draw in another order; the run says what else is other than before."""
    if seed is not None and checkpoint.run_key != key_of(seed):
        raise ConfigError(
            "the run to resume has another seed",
            given=f"seed({seed})",
            expected="the seed that the run was started with",
            mend="leave seed() out: the checkpoint knows it",
        )
    facts = train.facts()
    before = checkpoint.loader
    items, schedule = checkpoint.facts.get("items"), checkpoint.facts.get("schedule")
    if None not in (items, run.facts["items"]) and items != run.facts["items"]:
        run.say("the training data holds other items than before: the run goes on with them")
    if schedule is not None and schedule != run.facts["schedule"]:
        run.say(f"the learning rate is another: the run goes on with {run.facts['schedule']}, was {schedule}")
    if not checkpoint.position.complete and train.unknown_order is not None:
        run.say(
            f"the run stopped within an epoch, and only the {train.unknown_order} knows its order: if it has a"
            " generator of its own, some items are trained on twice and others not at all in this epoch"
        )
    other = [f"{name} {facts.get(name)}, was {before[name]}" for name in before if facts.get(name) != before[name]]
    if other and not checkpoint.position.complete:
        raise ConfigError(
            "the run stopped in the middle of an epoch, and its training loader has changed",
            given=", ".join(other),
            expected="the same data, batch size and shuffle seed; the number of workers may differ",
            mend=f"give those, or go on from an epoch that is over: checkpoint({checkpoint.position.epoch - 1})",
        )
    if other:
        run.say(f"the training loader has changed, so the bits will differ: {', '.join(other)}")
