"""One run: epochs of training and validation, measured, checkpointed, stoppable."""

from __future__ import annotations

import math
import time
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import Final, final

from burn_torch.core.errors import ArtifactError, DeviceError, NonFiniteError
from burn_torch.core.exit_code import exit_code, exit_code_of
from burn_torch.monitor import event as events
from burn_torch.train.checkpoint.content import versions
from burn_torch.train.loading import Batches, empty
from burn_torch.train.logger.application import LOG
from burn_torch.train.loop import fold
from burn_torch.train.measure import Meter, shows_loss
from burn_torch.train.metric.base import MetricMetadata, Split
from burn_torch.train.output import LossInput, input_of
from burn_torch.train.run_state import RunState
from burn_torch.train.strategies.multi import Several
from burn_torch.train.summary import LearnerSummary

__all__ = ["Run", "key_of"]

_VALID_KEYS: Final = (1 << 64) - 1
"""Training steps fold their number into the run's key; no run has this many, so validation has keys of its own."""


@final
class Run(RunState):
    """Trains a learner from a position to the last epoch, or to where it is told to stop."""

    # -- the run -----------------------------------------------------------------------------------
    def fit(self) -> str:
        """Runs to the end; gives the status of the result."""
        parts = self.parts
        first = self.position.epoch + 1 if self.position.complete else self.position.epoch
        self._publish(
            events.RunStarted(
                parts.num_epochs,
                first,
                parts.train.items_total,
                None if parts.valid is None else parts.valid.items_total,
                self._train.definitions,
                self._valid.definitions,
                parts.publisher.run_id,
                parts.config,
                None if self.last_checkpoint is None else self.last_checkpoint.name,
                versions(),
            )
        )
        self._tell_again()
        for split, meter in ((Split.TRAIN, self._train), (Split.VALID, self._valid)):
            for definition in meter.definitions:
                for logger in parts.loggers:
                    logger.log_metric_definition(split, definition)
        parts.store.begin(self.position.iteration)
        status = self._epochs()
        self._settle()
        LOG.info("the run ends: %s", status)
        return status

    def _epochs(self) -> str:
        parts = self.parts
        while not (self.position.complete and self.position.epoch >= parts.num_epochs):
            if self.position.complete:
                if self._stops_early():
                    self.say(f"stopped early, after epoch {self.position.epoch} of {parts.num_epochs}")
                    return "early_stopped"
                if self._should_stop():
                    return self._stop()
                self.position = replace(self.position, epoch=self.position.epoch + 1, batch=0, complete=False)
            if self._train_epoch() or (parts.valid is not None and self._valid_epoch(parts.valid)):
                if self._saved != self.position:
                    self._checkpoint()
                return self._stop()
            self._finish_epoch()
        return "completed"

    def _stops_early(self) -> bool:
        strategy = self.parts.early_stopping
        return strategy is not None and strategy.should_stop(self.position.epoch, self.history)

    def _is_due(self) -> bool:
        """Returns whether a checkpoint is asked for, or due as the process that writes it sees it.

        Several processes look at its clock only where checkpoints come within epochs: a word between them takes time.
        """
        asked, self._asked = self._asked, False
        store = self.parts.store
        if asked or store.every is None:
            return asked
        return bool(self.parts.peers.from_main(store.is_due(self.position.iteration)))

    def _should_stop(self) -> bool:
        self.parts.artifact.require_held(self.say)
        interrupter, deadline = self.parts.interrupter, self.parts.deadline
        if deadline is not None and deadline.is_over() and not interrupter.should_stop():
            interrupter.stop(str(deadline), status="time_limit")
        stops, saves = self.parts.peers.agree(interrupter)
        self._asked = self._asked or saves
        return stops

    def _stop(self) -> str:
        interrupter = self.parts.interrupter
        how = "signal" if interrupter.status in ("interrupted", "terminated") else "stop"
        self.parts.publisher.stop_requested(interrupter.get_message() or "", how)
        self.say(f"stopped in epoch {self.position.epoch}: {interrupter.get_message()}")
        return interrupter.status or "stopped"

    def _train_epoch(self) -> bool:
        """Trains what is left of the epoch; whether it was told to stop before its end."""
        parts, start = self.parts, self.position
        self._mark = None
        if start.batch == 0:
            self._train.clear()
        self._announce(Split.TRAIN, parts.train, start.batch)
        items_before = parts.train.items_at(start.batch)
        try:
            with closing(parts.train.epoch(start.epoch, start.batch, self._run_key)) as batches:
                for batch, items in batches:
                    self._train_batch(batch, items, items - items_before)
                    items_before = items
                    if self._steps.batches == 0:
                        if self._should_stop():
                            break
                        if self._is_due():
                            self._checkpoint()
            if self._steps.batches:  # the last window of an epoch may be shorter
                if self._watch is not None:
                    self._watch.note(self.learner, self.position, None, self._lr, 0)
                self.learner = self._steps.finish(self.learner, self._lr)
                self.position = replace(self.position, updates=self.position.updates + 1)
            self._train.drain()
        except Exception as err:
            self._note(err, "train", self.position.epoch, self.position.batch + self._whole)
            raise
        if self.position.batch == 0:
            raise empty(parts.train.name)
        if self._should_stop():
            return True
        if parts.valid is not None and parts.store.every is not None and self._saved != self.position:
            self._checkpoint()  # an error or a kill while it validates repeats no training
        self._mark = parts.publisher.position
        self._close_split(self._train)
        return False

    def _train_batch(self, batch: object, items_done: int, items: int) -> None:
        position = self.position
        if self._steps.batches == 0:
            self._undone = self.learner.lr_scheduler.to_record(), self._lr
            self._lr = self.learner.lr_step()
        key = fold(self._run_key, position.iteration)
        if self._watch is not None:
            self._watch.note(self.learner, position, batch, self._lr, key)
        self.learner, item, updated = self._steps.train(self.learner, self._lr, batch, key)
        if position.iteration == 0 and not shows_loss(item.items[0] if isinstance(item, Several) else item):
            LOG.info("%s returns no %s: the run cannot watch for NaN", type(item).__name__, LossInput.__name__)
        self.position = position.after_batch(updated)
        self._undone = None
        metadata = MetricMetadata(
            Split.TRAIN, position.epoch, position.iteration + 1, items, self._lr, time.monotonic()
        )
        self._whole = False
        self._train.add(item, metadata, position.batch + 1, items_done)
        self._whole = True
        self._tell_saved()
        if self._watch is not None and self._watch.is_full():
            self._inspect()

    def _valid_epoch(self, loader: Batches) -> bool:
        """Validates; whether it was told to stop before the end.  Then none of it counts."""
        epoch = self.position.epoch
        model = self.learner.model.valid()
        key = fold(fold(self._run_key, _VALID_KEYS), epoch)
        self._valid.clear()
        self._announce(Split.VALID, loader, 0)
        number = items_before = 0
        try:
            # the first order every time: epochs are compared
            with closing(loader.epoch(1, 0, self._run_key)) as batches:
                for batch, items in batches:
                    item = self._steps.valid(model, batch, fold(key, number))
                    if number == 0:
                        _require_no_gradients(item)
                    number += 1
                    metadata = MetricMetadata(
                        Split.VALID, epoch, self.position.valid_iteration + number, items - items_before, self._lr,
                        time.monotonic(),
                    )  # fmt: skip
                    items_before = items
                    self._valid.add(item, metadata, number, items)
                    self._tell_saved()
                    if self._should_stop():
                        break
            self._valid.drain()
        except Exception as err:
            self._note(err, "valid", epoch, number + 1)
            raise
        if number == 0:
            raise empty(loader.name)
        if self._should_stop():
            self.history.discard(Split.VALID, epoch)
            self.history.reopen(Split.TRAIN, epoch)
            return True
        self.position = replace(self.position, valid_iteration=self.position.valid_iteration + number)
        self._close_split(self._valid)
        return False

    def _finish_epoch(self) -> None:
        self.position = replace(self.position, complete=True)
        epoch = self.position.epoch
        for split in Split:
            names = self._train.definitions if split is Split.TRAIN else self._valid.definitions
            values = {d.name: self.history.find_metric(d.name, epoch, split) for d in names}
            if values:
                LOG.info("epoch %d %s: %s", epoch, split, values, extra={"shown": True})
        self._mark = None
        self._publish(events.EpochDone(epoch))
        self._checkpoint()

    # -- telling ---------------------------------------------------------------------------------
    def _announce(self, split: Split, batches: Batches, start: int) -> None:
        self._publish(
            events.SplitStarted(
                split, self.position.epoch, start, batches.batches_total, batches.items_at(start), batches.items_total
            )
        )

    def _close_split(self, meter: Meter) -> None:
        summary = meter.summary(self.position.epoch)
        self.history.finish(summary)
        for logger in self.parts.loggers:
            logger.log_epoch_summary(summary)
        self._publish(events.SplitDone(summary))

    def _note(self, err: Exception, split: str, epoch: int, batch: int) -> None:
        if isinstance(err, NonFiniteError):
            return  # it says so itself, and may be of the step before
        failed = self._settled_quietly()
        if failed is not None:
            err.add_note(f"a checkpoint could not be written: {failed}")
        saved = "" if self.last_checkpoint is None else f"; the last checkpoint is {self.last_checkpoint}"
        step = self.position.iteration + self._whole  # what is measured has been counted
        err.add_note(f"in {split} batch {batch} of epoch {epoch} (step {step} of the run){saved}")

    # -- the end ------------------------------------------------------------------------------------
    def finish(self, status: str) -> str | None:
        """Writes the model and the result, and shows the summary; gives its text, if one was asked for."""
        parts = self.parts
        parts.artifact.require_held(self.say, at_once=True)
        if parts.peers.is_main and status in ("completed", "early_stopped", "stopped", "time_limit"):
            self.learner.model.save_file(parts.artifact.model)
        definitions = [(meter.split, d) for meter in (self._train, self._valid) for d in meter.definitions]
        summary = str(LearnerSummary(self.history, definitions, str(self.learner.model), fused=parts.fused))
        self.write_result(status, None)
        shown = summary if parts.show_summary else None
        self._publish(events.RunEnded(status, shown, exit_code_of(status), parts.interrupter.get_message()))
        return shown

    def failed(self, status: str, error: BaseException) -> None:
        """Says that an error ended the run, as well as it can."""
        self.write_result(status, error)
        self.parts.publisher.note(events.RunEnded(status, None, exit_code(error), str(error)))

    def write_result(self, status: str, error: BaseException | None) -> None:
        """Writes result.json; after an error as well as it can."""
        metrics = {
            str(split): {name: [_json(value) for _, value in self.history.series(name, split)] for name in names}
            for split in Split
            if (names := self.history.names(split))
        }
        result = {
            "status": status,
            "message": self.parts.interrupter.get_message() if error is None else str(error),
            "position": asdict(self.position),
            "checkpoint": None if self.last_checkpoint is None else self.last_checkpoint.name,
            "metrics": metrics,
            "versions": versions(),
        }
        if error is None:
            self.parts.artifact.write_result(result)
        else:
            with suppress(ArtifactError):  # the error that ended the run is the one to tell
                self.parts.artifact.write_result(result)


def key_of(seed: int) -> int:
    """The random key of a run with this seed."""
    return fold(seed, 0)


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no NaN


def _require_no_gradients(item: object) -> None:
    loss = input_of(item, LossInput)
    if loss is not None and loss.loss.device.is_autodiff():
        raise DeviceError(
            "validation ran on a device with gradients, where Dropout drops and BatchNorm learns",
            given=f"a loss on {loss.loss.device!r}",
            expected="validation batches on the inner device, as the model in valid_step is",
            mend="build the loader with a batcher that uses the device it is given, or make the batches on"
            " device.inner()",
        )
