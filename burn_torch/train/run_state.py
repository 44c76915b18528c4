"""The state of a run: its learner, position and history, and the checkpoints that it is saved in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NoReturn

from burn_torch.backend.base import capabilities
from burn_torch.core.errors import ArtifactError, ConfigError, NonFiniteError
from burn_torch.core.wording import first_line
from burn_torch.monitor import event as events
from burn_torch.train.anomaly.watch import AnomalyWatch, may_hide, unsound
from burn_torch.train.anomaly.words import not_finite
from burn_torch.train.checkpoint import Checkpoint, CheckpointFile, Position
from burn_torch.train.checkpoint.content import versions
from burn_torch.train.event import Event, StepDone
from burn_torch.train.history import History
from burn_torch.train.learner import AnyLearner, schedule_text
from burn_torch.train.logger.application import LOG
from burn_torch.train.measure import Meter, patience_of
from burn_torch.train.metric.base import Split
from burn_torch.train.parts import Parts
from burn_torch.train.stepping import Steps, steps_of
from burn_torch.train.strategies.base import Stepper
from burn_torch.train.torch_model import TorchModel

__all__ = ["RunState"]


class RunState:
    """Holds the position of a run, its history and learner, and saves them in checkpoints."""

    def __init__(self, parts: Parts, learner: AnyLearner, run_key: int) -> None:
        self.parts = parts
        self.learner = learner
        self.position = Position()
        self.history = History()
        self.last_checkpoint: Path | None = None
        """The newest one that is on the disk."""
        self._saved: Position | None = None
        """The position that the newest one holds, which may still be on its way to the disk."""
        self._announced: dict[str, float] = {}
        """The names of checkpoints that were handed over, and where the event log was after it told of them."""
        self._untold: tuple[str, ...] = ()
        """The checkpoints before the one resumed that its part of the event log does not tell of."""
        self._notes: tuple[str, ...] = ()
        self._undone: tuple[Mapping[str, object], float] | None = None
        """Schedule and learning rate before the update that is being computed."""
        self._asked = False
        """Says whether a checkpoint is wanted, of all processes."""
        self._whole = True
        """Says whether every step so far is in the metrics: a checkpoint says it if not."""
        self._run_key = run_key
        self.facts: Final = {"schedule": schedule_text(learner.lr_scheduler), "items": parts.train.first_items()}
        self._mark: tuple[int, int] | None = None
        """Says where the event log was when training of this epoch was over: its checkpoints know nothing of
        validation.
        """
        self._lr = math.nan
        self._steps: Final = steps_of(
            parts.execution, learner, parts.accumulation, parts.compiled, self.say, parts.precision,
            looks=parts.watched and may_hide(learner), fuse=parts.fuse,
        )  # fmt: skip
        self._watch = _watch_of(self._steps, parts)
        patience = patience_of(parts.device.place)
        self._train = Meter(
            Split.TRAIN, parts.train_metrics, patience_s=patience, watch=True, on_step=self._on_step, peers=parts.peers
        )
        self._valid = Meter(
            Split.VALID, parts.valid_metrics, patience_s=patience, watch=False, on_step=self._on_step, peers=parts.peers
        )

    # -- going on from a checkpoint ------------------------------------------------------------
    def restore(self, checkpoint: Checkpoint, path: Path) -> None:
        """Goes on from a checkpoint.  Raises: RecordError if it is of another model, optimizer or schedule."""
        learner = self.learner
        learner = learner.load_model(checkpoint.model).load_optim(checkpoint.optim, self.parts.device)
        self.learner = learner.load_scheduler(checkpoint.scheduler)
        self.history = checkpoint.history
        self.position = checkpoint.position
        self._run_key = checkpoint.run_key
        self._lr = checkpoint.lr
        self.last_checkpoint = path
        self._saved = self.position
        self._notes = checkpoint.notes
        self._untold = tuple((checkpoint.facts.get("untold") or "").split())
        for note in checkpoint.notes:
            self.say(note)
        if not self.position.complete:
            for name in self._train.load_state(checkpoint.metrics):
                self.say(f"metric {name} keeps no state: in epoch {self.position.epoch} it starts again at the resume")

    def _checkpoint(self) -> None:
        """Saves where the run is: takes the values now, and lets them be written beside the next steps."""
        self._inspect()
        self.parts.artifact.require_held(self.say, at_once=True)
        parts, learner = self.parts, self.learner
        schedule, lr = self._undone or (learner.lr_scheduler.to_record(), self._lr)
        metrics = {} if self.position.complete else self._train.state()  # waits for steps that are not yet events
        seen = self._mark or parts.publisher.position
        self._announced = {name: at for name, at in self._announced.items() if at > seen[0]}
        checkpoint = Checkpoint(
            position=self.position,
            run_key=self._run_key,
            model=learner.model.into_record(),
            optim=learner.optim.to_record(),
            scheduler=schedule,
            lr=lr,
            history=self.history,
            metrics=metrics,
            loader=parts.train.facts(),
            config=parts.config,
            versions=versions(),
            tuning=parts.tuning(),
            notes=self._notes,
            facts={**self.facts, "run": parts.publisher.run_id, "untold": " ".join(self._announced)},
            events=seen,
        )
        parts.device.flush()
        reading = capabilities(parts.device.backend).reading(parts.device.place)
        path = parts.store.save(checkpoint, learner.model, self._after_events(reading))
        self._announced[path.name] = math.inf
        self._saved = self.position
        self._tell_saved()

    @contextmanager
    def _after_events(self, reading: AbstractContextManager[None]) -> Iterator[None]:
        """A block, for the writer of the checkpoint: what it counts of the event log is on the disk before it."""
        self.parts.publisher.sync()
        with reading:
            yield

    def _tell_saved(self) -> None:
        """Tells of checkpoints that have reached the disk.  Raises: ArtifactError for one that could not."""
        for path in self.parts.store.finished():
            self.last_checkpoint = path
            LOG.info("checkpoint %s", path.name, extra={"shown": True})
            self._publish_saved(path)

    def _tell_again(self) -> None:
        """Tells of the checkpoints up to the one that the run goes on from, where what told of them is cut off."""
        newest = None if self.last_checkpoint is None else CheckpointFile.of(self.last_checkpoint)
        if newest is None:
            return
        publisher, folder = self.parts.publisher, newest.path.parent
        there = {folder / name for name in (*publisher.cut, *self._untold)}
        there |= {file.path for file in self.parts.store.checkpointer.files()}
        files = [file for path in there if path.name not in publisher.told and (file := CheckpointFile.of(path))]
        for file in sorted(files, key=lambda file: file.key):
            if file.key <= newest.key:
                self._publish_saved(file.path)

    def _publish_saved(self, path: Path) -> None:
        file = CheckpointFile.of(path)
        assert file is not None
        self._publish(events.CheckpointSaved(str(path), file.epoch, file.complete))
        if path.name in self._announced:
            self._announced[path.name] = self.parts.publisher.position[0]

    def _settle(self) -> None:
        """Waits for the disk."""
        self.parts.store.wait()
        self._tell_saved()

    def _settled_quietly(self) -> str | None:
        """Waits for the disk while an error is told; what went wrong with it, in one line."""
        try:
            self._settle()
        except Exception as err:  # the first error is the one to tell
            LOG.warning("a checkpoint could not be written", exc_info=True)
            self._saved = None
            return first_line(err)
        return None

    def save_in_need(self, error: Exception) -> None:
        """Tries to save what an error in the user's code would lose, and notes on the error what became of it.

        Not where the loss is not finite: that model is no good; nor where the disk failed: it would again.
        """
        failed = self._settled_quietly()
        if failed is not None:
            error.add_note(f"a checkpoint could not be written: {failed}")
        if self.parts.peers.size > 1:
            error.add_note(f"the other processes end too; {self.last_checkpoint or 'no checkpoint'} was saved last")
            return
        if isinstance(error, NonFiniteError | ArtifactError) or self.position.iteration == 0:
            return
        try:
            if self._steps.batches:
                error.add_note("nothing was saved: the error came within a window of gradient accumulation")
                return
            if self._saved == self.position:
                return
            if not self.position.complete:
                self._train.drain()
                self.history.discard(Split.VALID, self.position.epoch)
                self.history.reopen(Split.TRAIN, self.position.epoch)
            if not self._whole:
                where = f"batch {self.position.batch} of epoch {self.position.epoch}"
                self._notes += (f"the metrics lack {where}: {type(error).__name__} came while it was measured",)
            if self._undone is not None and isinstance(self.learner.model, TorchModel):
                where = f"batch {self.position.batch + 1} of epoch {self.position.epoch}"
                came = f"{type(error).__name__} came while it was trained in place"
                self._notes += (f"the torch module may hold part of {where}, as BatchNorm does: {came}",)
            self._checkpoint()
            self._settle()
        except Exception as err:
            LOG.exception("nothing could be saved after the error")
            error.add_note(f"nothing could be saved: {str(err).partition(chr(10))[0]}")
        else:
            error.add_note(f"saved {self.last_checkpoint}: --resume, or resume(), goes on from there")

    # -- telling ---------------------------------------------------------------------------------
    def _on_step(self, event: StepDone, loss: float | None) -> None:
        if loss is not None and not math.isfinite(loss):
            self._refuse(event, loss)
        self.history.add(event.split, event.epoch, event.values)
        for logger in self.parts.loggers:
            logger.log(event.split, event.epoch, event.values)
        self._publish(event)

    def _publish(self, event: Event) -> None:
        self.parts.publisher.publish(event)

    def say(self, text: str) -> None:
        """One line for the log and for all views."""
        LOG.info("%s", text, extra={"shown": True})
        self._publish(events.Notice(text))

    def _inspect(self) -> None:
        """Looks whether all is finite, if that was asked for.  Raises: NonFiniteError that says what is not."""
        if self._watch is None:
            return
        self._train.drain()
        assert isinstance(self._steps, Steps)  # `_watch_of` has seen to it
        names = list(unsound(self.learner, None, self._steps.window, self._steps.take_seen()))
        if names:
            raise self._found_by(self._watch, f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}")
        self._watch.clear()

    def _refuse(self, event: StepDone, loss: float) -> NoReturn:
        what = f"loss {loss} in epoch {event.epoch}, batch {event.batches_done} (step {event.iteration} of the run)"
        if self._watch is not None:
            raise self._found_by(self._watch, what)
        raise NonFiniteError(
            "the loss is not finite",
            given=what,
            expected="a finite loss",
            mend="lower the learning rate, clip the gradients, or look for log(0) and 0/0 in the loss, which"
            f" detect_anomaly(), --detect-anomaly, would find; {self._last_saved()}",
        )

    def _last_saved(self) -> str:
        failed = self._settled_quietly()
        if failed is not None:
            return f"a checkpoint could not be written: {failed}"
        return (
            f"the last checkpoint is {self.last_checkpoint}" if self.last_checkpoint else "there is no checkpoint yet"
        )

    def _found_by(self, watch: AnomalyWatch, what: str) -> NonFiniteError:
        return not_finite(watch.search(), what, self._last_saved())


def _watch_of(steps: Stepper, parts: Parts) -> AnomalyWatch | None:
    """Returns what follows NaN to its origin, if that was asked for.  Raises: ConfigError where steps cannot be run
    again.
    """
    if not parts.watched:
        return None
    if isinstance(steps, Steps) and parts.peers.size == 1:
        return AnomalyWatch(steps, parts.artifact.anomalies)
    raise ConfigError(
        "detect_anomaly watches one process on one device",
        given=f"{type(parts.execution).__name__}, {parts.peers.size} processes",
        expected="SingleDevice",
        mend="look for the NaN with SingleDevice and the same seed: the steps are the same",
    )
