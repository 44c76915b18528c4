"""SupervisedTraining: the training of a model on batches with targets, put together step by step."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, Self, TypeVar, final

from burn_torch.backend.base import capabilities
from burn_torch.config import Config
from burn_torch.core.ambient import next_key
from burn_torch.core.belonging import belonging
from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, DistributedError
from burn_torch.core.frames import called_name, user_level
from burn_torch.graph.passes import Precision
from burn_torch.monitor.tensorboard import TensorBoardWriter, require_tensorboard
from burn_torch.train.artifact import ArtifactDir
from burn_torch.train.checkpoint import Checkpoint, CheckpointEvery, CheckpointingStrategy
from burn_torch.train.checkpoint.store import file_store
from burn_torch.train.checkpoint.strategy import default_strategy
from burn_torch.train.checks import require_epochs_left, require_same_order, require_trainable
from burn_torch.train.early_stopping import EarlyStoppingStrategy
from burn_torch.train.ending import cause_of, close_quietly, closing, forget_stop, status_of
from burn_torch.train.event import EventReader
from burn_torch.train.history import History
from burn_torch.train.interrupt import Deadline, Interrupter, stopping_on_signals
from burn_torch.train.learner import Learner
from burn_torch.train.loading import Batches
from burn_torch.train.logger.application import LOG, ApplicationLogger, FileApplicationLogger, installed
from burn_torch.train.logger.metric import FileMetricLogger, MetricLogger
from burn_torch.train.loop import fold
from burn_torch.train.metric.base import Metric, flatten
from burn_torch.train.parts import Parts
from burn_torch.train.publisher import Publisher
from burn_torch.train.renderer import MetricsRenderer, SilentRenderer, default_renderer
from burn_torch.train.run import Run, key_of
from burn_torch.train.strategies import ExecutionStrategy, SingleDevice
from burn_torch.train.strategies.checkpoints import shared_store
from burn_torch.train.strategies.peers import peers_of
from burn_torch.train.strategies.torch_module import strategy_for

__all__ = ["LearningResult", "SupervisedTraining"]

M = TypeVar("M")


@final
@dataclass(frozen=True)
class LearningResult(Generic[M]):
    """Holds what a run gives back.

    status: "completed", "early_stopped", "stopped" (by an Interrupter), "time_limit", "interrupted" (Ctrl-C),
        "terminated" (SIGTERM).
    """

    status: str
    model: M
    """The trained model for inference, on the device without gradients."""
    learner: Learner[M]
    """Model, optimizer and schedule as the last step left them, to train on with."""
    history: History
    artifact_dir: Path
    checkpoint: Path | None
    """The newest checkpoint."""
    summary: str | None
    """The summary table, if summary() asked for it."""
    message: str | None
    """Why it stopped, if it was told to."""


@checked(error=ConfigError, but=("launch",))
@final
class SupervisedTraining:
    """Trains a model, epoch by epoch, with metrics, logs, checkpoints and a view of what happens.

        result = (
            SupervisedTraining("artifacts/mnist", train_loader, valid_loader)
            .metrics(AccuracyMetric(), LossMetric())
            .num_epochs(10)
            .summary()
            .launch(Learner(model, AdamConfig().init(), 1e-3))
        )
        result.model.forward(images)

    Each step gives a new builder.  `valid_loader` may be None.  Loaders are `DataLoader`s, or anything else that can be
    iterated again and again; a DataLoader is moved to the model's device, the one for validation to its inner device.
    """

    def __init__(self, artifact_dir: str | Path, train_loader: Any, valid_loader: Any) -> None:
        self._artifact_dir = Path(artifact_dir)
        self._train_loader = train_loader
        self._valid_loader = valid_loader
        self._train_metrics: tuple[Metric, ...] = ()
        self._valid_metrics: tuple[Metric, ...] = ()
        self._num_epochs = 1
        self._accumulation = 1
        self._execution: ExecutionStrategy = SingleDevice()
        self._compiled = True
        self._precision: Precision = "float32"
        self._fuse: bool | None = None
        self._strategy: CheckpointingStrategy = default_strategy()
        self._chosen_strategy = False
        self._every: CheckpointEvery | None = None
        self._background = True
        self._time_limit: float | None = None
        self._watched = False
        self._early_stopping: EarlyStoppingStrategy | None = None
        self._renderer: MetricsRenderer | None = None
        self._loggers: tuple[MetricLogger, ...] = ()
        self._readers: tuple[EventReader, ...] = ()
        self._tensorboard: Path | Literal["default"] | None = None
        self._application: ApplicationLogger | str | None = "default"
        self._interrupter = Interrupter()
        self._config: Config | None = None
        self._seed: int | None = None
        self._resume: bool = False
        self._from_epoch: int | None = None
        self._summary = False
        self._used = [False]
        self._made: list[tuple[str, weakref.ref[SupervisedTraining], list[bool]]] = []
        """Builders that came of this one, or of one before it: the step that made each, and whether it was used."""

    def with_loaders(self, train_loader: object, valid_loader: object) -> Self:
        """The same training on other data."""
        return self._with(_train_loader=train_loader, _valid_loader=valid_loader)

    # -- what is measured -------------------------------------------------------------------
    def metrics(self, *metrics: Metric | Sequence[Metric]) -> Self:
        """Metrics of both splits; each split has its own copy."""
        added = flatten(metrics)
        return self._with(_train_metrics=self._train_metrics + added, _valid_metrics=self._valid_metrics + added)

    def metric_train(self, metric: Metric) -> Self:
        """A metric of the training split alone."""
        return self._with(_train_metrics=(*self._train_metrics, metric))

    def metric_valid(self, metric: Metric) -> Self:
        """A metric of the validation split alone."""
        return self._with(_valid_metrics=(*self._valid_metrics, metric))

    def metric_train_numeric(self, metric: Metric) -> Self:
        """Burn's name for `metric_train` of a metric with a number; all are."""
        return self.metric_train(metric)

    def metric_valid_numeric(self, metric: Metric) -> Self:
        """Burn's name for `metric_valid` of a metric with a number; all are."""
        return self.metric_valid(metric)

    # -- how it is trained --------------------------------------------------------------------
    def num_epochs(self, num_epochs: int) -> Self:
        """How often the training data is gone through; 1 unless given."""
        return self._with(_num_epochs=int(num_epochs))

    def grads_accumulation(self, batches: int) -> Self:
        """One update for so many batches, as if they were one large batch; the last ones of an epoch may be fewer."""
        return self._with(_accumulation=int(batches))

    def with_training_strategy(self, strategy: ExecutionStrategy) -> Self:
        """How steps are executed; SingleDevice unless given."""
        return self._with(_execution=strategy)

    def compile(self, flag: bool = True) -> Self:
        """Returns whether steps are compiled, as they are unless this says False.

        The Python of a compiled step runs once for each shape of batch.  A step that cannot be compiled runs eagerly,
        and one line says why.  On the CPU the bits are the same either way.
        """
        return self._with(_compiled=flag)

    def fuse(self, flag: bool | None = True) -> Self:
        """Returns whether compiled steps run in generated kernels; None, the default: where devices are fused.

        On a CPU they are C, and round otherwise than op by op: a run that is resumed keeps its bits if this stays.
        """
        return self._with(_fuse=flag)

    def precision(self, precision: Precision) -> Self:
        """The precision of matrix products, convolutions and attention in compiled steps; parameters stay float32."""
        return self._with(_precision=precision)

    def detect_anomaly(self, flag: bool = True) -> Self:
        """Returns whether the first NaN or infinity is followed to the operation, module and line that it came from.

        The error says them, and names a file that replays it (`burn-torch replay FILE`).  It holds one more copy of
        model and optimizer, and the batches of up to 16 steps; on one device only.
        """
        return self._with(_watched=flag)

    def seed(self, seed: int) -> Self:
        """The random key of the run: of dropout and whatever else its steps draw.

        Without one the key comes from `burn_torch.seed`.  The order of the data is the loader's (shuffle=seed).
        """
        return self._with(_seed=int(seed))

    def early_stopping(self, strategy: EarlyStoppingStrategy) -> Self:
        """Stops before the last epoch."""
        return self._with(_early_stopping=strategy)

    def interrupter(self) -> Interrupter:
        """A handle to stop the run from outside."""
        return self._interrupter

    def with_interrupter(self, interrupter: Interrupter) -> Self:
        """Uses a handle that exists already."""
        return self._with(_interrupter=interrupter)

    # -- checkpoints ----------------------------------------------------------------------------
    def with_checkpointing_strategy(self, strategy: CheckpointingStrategy) -> Self:
        """Returns which checkpoints stay; by default the last two and the one with the lowest validation loss."""
        return self._with(_strategy=strategy, _chosen_strategy=True)

    def with_default_checkpointers(self) -> Self:
        """Burn's switch for checkpoints; here every epoch ends with one anyway, and this picks the default strategy."""
        return self._with(_strategy=default_strategy(), _chosen_strategy=False)

    def checkpoint_every(self, *, steps: int | None = None, minutes: float | None = None) -> Self:
        """Writes checkpoints inside of epochs too: every so many steps (batches) of the run, or minutes, or both.

        A run that is killed goes on from the newest one, in the middle of the epoch.
        Raises: ConfigError for neither, or for what is not above 0.
        """
        return self._with(_every=CheckpointEvery(steps, None if minutes is None else minutes * 60))

    def async_checkpoints(self, flag: bool = True) -> Self:
        """Returns whether a thread writes checkpoints while the run goes on, as it does unless this says False."""
        return self._with(_background=flag)

    def time_limit(self, seconds: float) -> Self:
        """Stops after the step in which this time, from the launch on, is over, with a checkpoint to resume from."""
        return self._with(_time_limit=seconds)

    def checkpoint(self, epoch: int) -> Self:
        """Goes on after this epoch of the run in the artifact directory; later ones are given up."""
        return self._with(_resume=True, _from_epoch=epoch)

    def resume(self, flag: bool = True) -> Self:
        """Goes on from the newest sound checkpoint of the run in the artifact directory.

        A run that was ended before its first checkpoint starts again from the beginning.
        """
        return self._with(_resume=flag, _from_epoch=None)

    # -- what is shown and kept --------------------------------------------------------------------
    def renderer(self, renderer: MetricsRenderer) -> Self:
        """Returns what a person sees; by default a progress bar on a terminal, plain lines elsewhere."""
        return self._with(_renderer=renderer)

    def with_metric_logger(self, logger: MetricLogger) -> Self:
        """Returns where metrics are written; the first one takes the place of the FileMetricLogger, more may follow."""
        return self._with(_loggers=(*self._loggers, logger))

    def with_event_reader(self, reader: EventReader) -> Self:
        """Something of your own that follows the run, besides the renderer; more may follow.

        It gets each event of the loop in the thread of the loop.  Readers that can wait read `events.jsonl` instead,
        from another process.
        """
        return self._with(_readers=(*self._readers, reader))

    def tensorboard(self, folder: str | Path | None = None) -> Self:
        """Writes TensorBoard files while the run goes on, by default into `tensorboard` in the artifact directory.

        A thread does it, about a second behind.  `burn-torch report --tensorboard` writes the same ones afterwards.
        Raises: ConfigError without the package `tensorboard`.
        """
        require_tensorboard()
        return self._with(_tensorboard="default" if folder is None else Path(folder))

    def with_application_logger(self, logger: ApplicationLogger | None) -> Self:
        """Returns where messages are written, `experiment.log` by default; None for nowhere."""
        return self._with(_application=logger)

    def with_config(self, config: Config) -> Self:
        """The configuration that all this was built from; kept as config.json and in every checkpoint."""
        return self._with(_config=config)

    def summary(self) -> Self:
        """Shows the summary table at the end."""
        return self._with(_summary=True)

    def _with(self, **changed: object) -> Self:
        builder = copy.copy(self)
        builder.__dict__.update(changed)
        self._used[0] = True
        builder._used = [False]
        self._made.append((called_name(2), weakref.ref(builder), builder._used))
        return builder

    def _warn_of_dropped(self) -> None:
        """A builder changes nothing: a step whose result is dropped was meant to."""
        self._used[0] = True
        dropped = [name for name, builder, used in self._made if builder() is None and not used[0]]
        if dropped:
            warnings.warn(
                f"{', '.join(dict.fromkeys(f'{name}(...)' for name in dropped))}: the result was dropped, and this"
                f" training is without it; write training = training.{dropped[0]}(...)",
                UserWarning,
                stacklevel=user_level(),
            )

    # -- going --------------------------------------------------------------------------------------
    def launch(self, learner: Learner[M]) -> LearningResult[M]:
        """Trains.  The learner given stays as it is; the result has the trained one.

        Ctrl-C or SIGTERM finishes the step, writes a checkpoint and returns; a second one ends it at once.

        Raises: ConfigError, DeviceError, ArtifactError, RecordError before any work; NonFiniteError for a loss that is
            NaN or infinite; and whatever the model, the loader or a metric raises, with a note that says where.
        """
        self._warn_of_dropped()
        require_trainable(self, learner)
        deadline = None if self._time_limit is None else Deadline(self._time_limit)
        execution = strategy_for(self._execution, learner)
        learner, device = execution.prepare(learner.fork())
        peers = peers_of(execution)
        train = Batches(self._train_loader, device, "training", peers)
        valid = None if self._valid_loader is None else Batches(self._valid_loader, device.inner(), "validation", peers)
        artifact = ArtifactDir(self._artifact_dir, writes=peers.is_main)
        artifact.claim(resume=self._resume)
        with ExitStack() as stack:
            stack.callback(artifact.release)
            application = self._application
            if not peers.is_main:
                application = None
            elif isinstance(application, str):
                application = FileApplicationLogger(artifact.log)
            stack.enter_context(belonging())
            stack.enter_context(installed(application))
            renderer = default_renderer(directory=artifact.path) if self._renderer is None else self._renderer
            renderer = renderer if peers.is_main else SilentRenderer()
            stack.callback(close_quietly, renderer)
            shown = artifact.path if peers.is_main else Path(stack.enter_context(TemporaryDirectory()))
            publisher = Publisher(shown, (renderer, *self._readers) if peers.is_main else ())
            stack.callback(publisher.close)
            for reader in self._readers:
                stack.callback(close_quietly, reader)
            loggers = (self._loggers or (FileMetricLogger(artifact.path),)) if peers.is_main else ()
            for logger in loggers:
                stack.push(closing(logger))
            parts = Parts(
                artifact=artifact,
                train=train,
                valid=valid,
                device=device,
                train_metrics=copy.deepcopy(self._train_metrics),
                valid_metrics=copy.deepcopy(self._valid_metrics),
                num_epochs=self._num_epochs,
                accumulation=self._accumulation,
                execution=execution,
                compiled=self._compiled,
                precision=self._precision,
                fuse=self._fuse,
                store=shared_store(
                    file_store(
                        artifact.checkpoints,
                        self._strategy,
                        self._every,
                        background=self._background and peers.is_main,
                        cleans=peers.is_main,
                    ),
                    peers,
                ),
                early_stopping=self._early_stopping,
                publisher=publisher,
                loggers=loggers,
                interrupter=self._interrupter,
                config=None if self._config is None else self._config.to_json(),
                show_summary=self._summary,
                deadline=deadline,
                peers=peers,
                watched=self._watched,
            )
            stack.callback(lambda: parts.store.close(artifact.hold()))  # a checkpoint that is still written keeps it
            run = Run(parts, learner, peers.from_main(self._run_key()))
            LOG.info("the run begins in %s", artifact.path)
            resumed = self._restore(run, parts) if self._resume else None
            choices = artifact.tuning if peers.is_main else artifact.tuning.with_suffix(f".{peers.rank}.lock")
            lock = capabilities(device.backend).pinned(
                choices, device.place, None if resumed is None else resumed.tuning
            )
            run.parts = parts = replace(parts, tuning=stack.enter_context(lock))
            publisher.begin(resumed.events if resumed is not None and peers.is_main else None)
            known = None if resumed is None else resumed.facts.get("run")
            if known and publisher.earlier_id and publisher.earlier_id != known:
                run.say(f"the checkpoint is of another run, {known}: this directory is that of {publisher.earlier_id}")
            if self._tensorboard is not None and peers.is_main:
                folder = artifact.path / "tensorboard" if self._tensorboard == "default" else self._tensorboard
                stack.enter_context(publisher.feeding(TensorBoardWriter(folder)))
            stack.callback(forget_stop, parts.interrupter)  # when neither signals nor viewers are heard any more
            stack.enter_context(publisher.attended(parts.interrupter, run.say))
            return self._run_parts(run, parts)

    def _run_parts(self, run: Run, parts: Parts) -> LearningResult[Any]:
        if parts.config is not None:
            parts.artifact.write_config(parts.config + "\n")
        parts.artifact.clear_result()
        forget = parts.peers.on_failure(lambda message: run.failed("failed", DistributedError(message)))
        try:
            with stopping_on_signals(parts.interrupter):
                status = run.fit()
                summary = run.finish(status)
            parts.peers.meet()
        except BaseException as failure:
            err = cause_of(failure, lambda: parts.artifact.require_held(run.say, at_once=True))
            parts.peers.report(err)
            LOG.exception("the run failed")
            if isinstance(err, Exception):
                run.save_in_need(err)
            run.failed(status_of(err), err)
            if err is not failure:
                raise err from failure
            raise
        finally:
            forget()
        return LearningResult(
            status=status,
            model=run.learner.model.valid(),
            learner=run.learner,
            history=run.history,
            artifact_dir=parts.artifact.path,
            checkpoint=run.last_checkpoint,
            summary=summary,
            message=parts.interrupter.get_message(),
        )

    def _restore(self, run: Run, parts: Parts) -> Checkpoint | None:
        store = parts.store
        resumed = store.newest(run.say) if self._from_epoch is None else store.load(self._from_epoch)
        if resumed is None:
            run.say("there is no checkpoint yet: the run starts from the beginning")
        else:
            path, checkpoint = resumed
            require_epochs_left(checkpoint, parts.num_epochs)
            require_same_order(checkpoint, self._seed, parts.train, run)
            run.restore(checkpoint, path)
            LOG.info("goes on from %s", path.name)
            if run.position.complete and run.position.epoch >= parts.num_epochs:
                run.say(f"epoch {run.position.epoch} of {parts.num_epochs} is over: there is nothing left to train")
        for logger in parts.loggers:
            logger.restore(run.history)
        return None if resumed is None else resumed[1]

    def _run_key(self) -> int:
        return fold(*next_key()) if self._seed is None else key_of(self._seed)
