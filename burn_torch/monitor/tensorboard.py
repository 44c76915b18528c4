"""A run as TensorBoard shows it: one curve each for training and validation, in one chart a metric.

    <folder>/train    batch/Loss over iterations, epoch/Loss over epochs, the configuration as text
    <folder>/valid    the same names, so that TensorBoard draws them together
    <folder>/machine  processors, memory and GPUs over seconds

It writes with the writer of the package `tensorboard`, the extra of that name; TensorFlow is not needed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from burn_torch.core.errors import ConfigError
from burn_torch.monitor import event as events
from burn_torch.monitor.event import EpochSummary, MetricValue, Stamped

__all__ = ["TensorBoardWriter", "require_tensorboard"]

_SUFFIX: Final = ".burn-torch"
"""Our files end with it, so that a second writing replaces them and nobody else's."""


def require_tensorboard() -> None:
    """Raises: ConfigError if the package is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "TensorBoard files cannot be written",
            given="a Python without the package tensorboard",
            expected="the extra tensorboard",
            mend="pip install 'burn-torch[tensorboard]', or read events.jsonl later with `burn-torch report`",
        )


@final
class TensorBoardWriter:
    """Feed it the events of a run in order, then close it.

    It holds the whole run: files of an earlier writing in the folder are replaced, and where the run went back to a
    checkpoint it begins again.  Raises: ConfigError without the package `tensorboard`.
    """

    def __init__(self, folder: str | Path) -> None:
        require_tensorboard()
        self.folder = Path(folder)
        module = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._make = module.EventFileWriter
        self._event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        self._tensor = importlib.import_module("tensorboard.compat.proto.tensor_pb2").TensorProto
        self._writers: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        self.close()
        for path in self.folder.glob(f"*/events.out.tfevents.*{_SUFFIX}"):
            path.unlink()
        self._last = -1
        self._started: float | None = None

    def apply(self, stamped: Stamped) -> None:
        """The next event."""
        if stamped.number <= self._last:
            self._begin()
        self._last = stamped.number
        event, time = stamped.event, stamped.time
        if isinstance(event, events.StepDone):
            self._scalars(str(event.split), "batch", event.values, event.iteration, time)
        elif isinstance(event, events.SplitDone):
            self._epoch(event.summary, time)
        elif isinstance(event, events.RunStarted):
            self._started = time if self._started is None else self._started
            self._text("config", _describe_run(event), time)
        elif isinstance(event, events.Resources):
            self._machine(event, time)

    def flush(self) -> None:
        """Writes what came so far to the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Ends the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _epoch(self, summary: EpochSummary, time: float) -> None:
        self._scalars(str(summary.split), "epoch", summary.values, summary.epoch, time)
        self._writers[str(summary.split)].flush()

    def _machine(self, event: events.Resources, time: float) -> None:
        measured = {
            "cpu_percent": event.cpu_percent,
            "process_cpu_percent": event.process_cpu_percent,
            "memory_bytes": event.memory_bytes,
            "process_memory_bytes": event.process_memory_bytes,
        }
        for gpu in event.gpus:
            measured[f"gpu{gpu.index}_percent"] = gpu.percent
            measured[f"gpu{gpu.index}_memory_bytes"] = gpu.memory_bytes
            measured[f"gpu{gpu.index}_temperature_c"] = gpu.temperature_c
        values = [MetricValue(name, float(value)) for name, value in measured.items() if value is not None]
        self._scalars("machine", "machine", values, int(time - (self._started or time)), time)

    def _scalars(self, part: str, group: str, values: Sequence[MetricValue], step: int, time: float) -> None:
        kind = self._summary.Summary
        summaries = [kind.Value(tag=f"{group}/{value.name}", simple_value=value.value) for value in values]
        self._writer(part).add_event(self._event(wall_time=time, step=step, summary=kind(value=summaries)))

    def _text(self, name: str, text: str, time: float) -> None:
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        value = self._summary.Summary.Value(
            tag=f"{name}/text_summary",
            metadata=self._summary.SummaryMetadata(plugin_data=plugin),
            tensor=self._tensor(dtype="DT_STRING", string_val=[text.encode("utf-8", "replace")]),
        )
        self._writer("train").add_event(self._event(wall_time=time, summary=self._summary.Summary(value=[value])))

    def _writer(self, part: str) -> Any:
        writer = self._writers.get(part)
        if writer is None:
            writer = self._writers[part] = self._make(
                str(self.folder / part), max_queue_size=1000, flush_secs=5, filename_suffix=_SUFFIX
            )
        return writer


def _describe_run(event: events.RunStarted) -> str:
    """Configuration and versions, indented as Markdown wants code."""
    lines = []
    if event.config is not None:
        try:
            lines += json.dumps(json.loads(event.config), indent=2).splitlines()
        except ValueError:
            lines += event.config.splitlines()
    lines += [f"{name} {version}" for name, version in event.versions.items()]
    return "\n".join(f"    {line}" for line in lines)
