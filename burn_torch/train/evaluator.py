"""EvaluatorBuilder and Evaluator: a trained model measured on data sets, each under a name of its own.

    evaluator = EvaluatorBuilder("artifacts/mnist").metrics(AccuracyMetric(), LossMetric()).summary().build(model)
    found = evaluator.eval("clean", loader)
    found.value("Accuracy")
    evaluator.eval_all({"rotated": rotated, "noisy": noisy})

<dir>/evaluation.log              what happened
<dir>/test/<name>/Accuracy.log    one value a line, one line a batch
<dir>/test/<name>/result.json     the values over all items
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import torch

from burn_torch.core.checking import Measured, checked
from burn_torch.core.errors import ArtifactError, ConfigError, TraceError
from burn_torch.core.files import make_folder, write_atomic
from burn_torch.core.wording import first_line
from burn_torch.module import Module
from burn_torch.tensor import Device
from burn_torch.train.event import EventReader, Notice, RunEnded, SplitDone, SplitStarted, StepDone
from burn_torch.train.history import MetricValue
from burn_torch.train.loading import Batches, empty
from burn_torch.train.logger.application import LOG, ApplicationLogger, FileApplicationLogger, installed
from burn_torch.train.logger.metric import file_name
from burn_torch.train.loop import fold, valid_step
from burn_torch.train.measure import Meter, patience_of
from burn_torch.train.metric.base import Metric, MetricMetadata, Split, flatten
from burn_torch.train.step import faults_error, step_fault
from burn_torch.train.strategies.torch_module import torch_valid_step
from burn_torch.train.summary import table_text
from burn_torch.train.torch_model import TorchModel
from burn_torch.transform.compilation import compile

__all__ = ["Evaluation", "Evaluator", "EvaluatorBuilder"]


@final
@dataclass(frozen=True)
class Evaluation:
    """Holds what a model reached on one data set: the values over all its items, and those of each batch."""

    name: str
    items: int
    """0 where the loader does not say."""
    batches: int
    seconds: float
    values: tuple[MetricValue, ...]
    columns: Mapping[str, Sequence[Measured]]

    def value(self, metric: str) -> float:
        """The value of a metric over all items.  Raises: ConfigError for a metric that was not measured."""
        for entry in self.values:
            if entry.name == metric:
                return entry.value
        names = ", ".join(entry.name for entry in self.values) or "none"
        raise ConfigError(
            f"{metric} was not measured", given=metric, expected=f"one of {names}", mend="add it to metrics()"
        )

    def facts(self) -> dict[str, Any]:
        """As JSON holds it; what is not finite is null."""
        values = {entry.name: entry.value if math.isfinite(entry.value) else None for entry in self.values}
        return {"name": self.name, "items": self.items, "batches": self.batches, "metrics": values}


@checked(error=ConfigError, but=("build",))
@final
class EvaluatorBuilder:
    """Puts an evaluator together; each step gives a new builder."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._metrics: tuple[Metric, ...] = ()
        self._renderer: EventReader | None = None
        self._application: ApplicationLogger | str | None = "default"
        self._summary = False
        self._compiled = True
        self._fuse: bool | None = None
        self._seed = 0

    def metrics(self, *metrics: Metric | Iterable[Metric]) -> Self:
        """Returns what is measured; every data set has copies of its own."""
        return self._with(_metrics=self._metrics + flatten(metrics))

    def metric(self, metric: Metric) -> Self:
        """One metric more."""
        return self.metrics(metric)

    def metric_numeric(self, metric: Metric) -> Self:
        """Burn's name for `metric` of a metric with a number; all are."""
        return self.metrics(metric)

    def renderer(self, renderer: EventReader) -> Self:
        """Who follows batches and results; nobody unless given."""
        return self._with(_renderer=renderer)

    def with_application_logger(self, logger: ApplicationLogger | None) -> Self:
        """Returns where messages are written, `evaluation.log` by default; None for nowhere."""
        return self._with(_application=logger)

    def summary(self) -> Self:
        """Shows the renderer a table of all values when a set is done."""
        return self._with(_summary=True)

    def compile(self, flag: bool = True) -> Self:
        """Returns whether steps are compiled, as they are unless this says False."""
        return self._with(_compiled=flag)

    def fuse(self, flag: bool | None = True) -> Self:
        """Returns whether compiled steps run in generated kernels; None, the default: where devices are fused."""
        return self._with(_fuse=flag)

    def seed(self, seed: int) -> Self:
        """The key of what a model draws at random in `valid_step`; 0 unless given."""
        return self._with(_seed=int(seed))

    def build(self, model: Module | TorchModel | torch.nn.Module) -> Evaluator:
        """The evaluator of a model; one on a device with gradients is measured by its `valid()`.

        A plain torch module is measured as a run validates it: see `TorchModel`.
        Raises: ConfigError for a model without `valid_step`, no metrics, or two of one name.
        """
        if isinstance(model, torch.nn.Module):
            model = TorchModel(model)
        fault = step_fault(model, "valid_step")
        faults = [] if fault is None else [fault]
        names = [file_name(metric.name) for metric in self._metrics]
        if not names:
            faults.append(("no metrics", "one metric at least", "add some: metrics(LossMetric())"))
        twice = sorted({name for name in names if names.count(name) > 1})
        faults += [(f"two metrics {name}", "a name of its own for each", "give one another name") for name in twice]
        if faults:
            raise faults_error("EvaluatorBuilder: this cannot be evaluated", faults)
        if isinstance(model, TorchModel):
            return Evaluator(self, model)
        on_tape = any(device.is_autodiff() for device in model.devices())
        return Evaluator(self, model.valid() if on_tape else model)

    def _with(self, **changed: object) -> Self:
        builder = copy.copy(self)
        builder.__dict__.update(changed)
        return builder


@checked(error=ConfigError)
@final
class Evaluator:
    """Measures a model; made by `EvaluatorBuilder.build`."""

    def __init__(self, builder: EvaluatorBuilder, model: Module | TorchModel) -> None:
        self.model = model
        self._builder = builder
        self._directory = builder._directory
        self._reader = builder._renderer
        self._compiled: Any = (
            compile(valid_step, fuse=builder._fuse) if builder._compiled and isinstance(model, Module) else None
        )

    def eval(self, name: str, loader: object) -> Evaluation:
        """Measures one data set and writes its values below `test/<name>`, in the place of earlier ones.

        Raises: ConfigError for a name that is none of a folder, DataError for a loader without a batch, ArtifactError
            where the directory cannot be written; and what the model, the loader or a metric raises.
        """
        return self.eval_all({name: loader})[0]

    def eval_all(self, splits: Mapping[str, object] | Iterable[tuple[str, object]]) -> list[Evaluation]:
        """Measures several data sets, in their order; see `eval`."""
        wanted = list(splits.items() if isinstance(splits, Mapping) else splits)
        tags = [self._tag(name) for name, _ in wanted]
        if len(set(tags)) < len(tags):
            raise ConfigError(
                "two data sets would be kept in one folder",
                given=", ".join(name for name, _ in wanted),
                expected="a name of its own for each",
                mend="rename one of them",
            )
        with ExitStack() as stack:
            self._make(self._directory)
            application = self._builder._application
            if isinstance(application, str):
                application = FileApplicationLogger(self._directory / "evaluation.log")
            stack.enter_context(installed(application))
            evaluations = []
            for name, loader in wanted:
                try:
                    evaluations.append(self._evaluate(name, loader))
                except Exception:
                    LOG.exception("the evaluation of %s failed", name)
                    raise
                self._write(evaluations[-1])
            if self._builder._summary:
                self._publish(RunEnded("completed", summary_of(evaluations)))
        return evaluations

    def _evaluate(self, name: str, loader: object) -> Evaluation:
        if isinstance(self.model, TorchModel):
            device: Any = Device.parse(str(self.model.device()), fused=False)
        else:
            device = next(iter(self.model.devices()), None)
        batches = Batches(loader, device, name)
        columns: dict[str, list[float]] = {metric.name: [] for metric in self._builder._metrics}

        def on_step(event: StepDone, loss: float | None) -> None:
            for value in event.values:
                columns[value.name].append(value.value)
            self._publish(event)

        place = device.place if isinstance(device, Device) else "cpu"
        metrics = copy.deepcopy(self._builder._metrics)
        meter = Meter(Split.VALID, metrics, patience_s=patience_of(place), watch=False, on_step=on_step)
        meter.clear()
        LOG.info("evaluates %s", name)
        self._publish(SplitStarted(Split.VALID, 1, 0, batches.batches_total, 0, batches.items_total))
        began = time.monotonic()
        number = before = 0
        with closing(batches.epoch(1, 0)) as epoch:
            for batch, items in epoch:
                item = self._step(batch, fold(self._builder._seed, number))
                number += 1
                metadata = MetricMetadata(Split.VALID, 1, number, items - before, math.nan, time.monotonic())
                before = items
                meter.add(item, metadata, number, items)
        if number == 0:
            raise empty(name)
        summary = meter.summary(1)
        self._publish(SplitDone(summary))
        LOG.info("%s: %s", name, {value.name: value.value for value in summary.values})
        return Evaluation(name, before, number, time.monotonic() - began, summary.values, columns)

    def _step(self, batch: object, key: int) -> Any:
        if isinstance(self.model, TorchModel):
            return torch_valid_step(self.model, batch, key)
        if self._compiled is not None:
            try:
                return self._compiled(self.model, batch, key)
            except TraceError as err:
                self._compiled = None
                self._publish(Notice(f"evaluation runs eagerly, it cannot be compiled: {first_line(err)}"))
        return valid_step(self.model, batch, key)

    def _tag(self, name: str) -> str:
        tag = file_name(name)
        if tag.strip(".") and not tag.startswith("."):
            return tag
        raise ConfigError(
            "a folder cannot have this name",
            given=repr(name),
            expected="a word for the data set, such as clean",
            mend="name it otherwise",
        )

    def _write(self, evaluation: Evaluation) -> None:
        folder = self._make(self._directory / "test" / self._tag(evaluation.name))
        try:
            for name, column in evaluation.columns.items():
                lines = "".join(f"{value!r}\n" for value in column)
                write_atomic(folder / f"{file_name(name)}.log", lines.encode(), durable=False)
            write_atomic(folder / "result.json", (json.dumps(evaluation.facts(), indent=2) + "\n").encode())
        except OSError as err:
            raise _unwritable(folder, err) from err

    def _make(self, folder: Path) -> Path:
        try:
            make_folder(folder)
        except OSError as err:
            raise _unwritable(folder, err) from err
        return folder

    def _publish(self, event: Any) -> None:
        if self._reader is not None:
            with suppress(OSError):  # a closed pipe or terminal is no reason to lose the values
                self._reader.handle(event)


def summary_of(evaluations: Sequence[Evaluation]) -> str:
    """A table: one row a data set and metric."""
    rows = [(one.name, value.name, _number(value.value), str(one.items)) for one in evaluations for value in one.values]
    return table_text([("Split", "Metric", "Value", "Items"), *rows])


def _number(value: float) -> str:
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.3e}"


def _unwritable(folder: Path, err: OSError) -> ArtifactError:
    return ArtifactError(
        "the evaluation cannot be written",
        given=f"{folder}: {err.strerror or err}",
        expected="a directory that exists or can be made, with room and the right to write",
        mend="name another directory, or change its rights",
    )
