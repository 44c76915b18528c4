"""Runs to look at: logs of events as a run writes them, and a run that answers commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from burn_torch.monitor import (
    EVENTS,
    CheckpointSaved,
    ControlServer,
    EpochDone,
    EpochSummary,
    Event,
    GpuUse,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    Split,
    SplitDone,
    SplitStarted,
    StepDone,
    encode,
)

START_S = 1_764_000_000.0


def story(
    epochs: int = 3,
    batches: int = 20,
    metrics: tuple[str, ...] = ("Accuracy", "Loss"),
    *,
    total_epochs: int | None = None,
    ended: str | None = "completed",
) -> Iterator[tuple[float, Event]]:
    """The events of a run, with the second of each; every number can be worked out by hand."""
    definitions = tuple(
        MetricDefinition(name, "%" if name == "Accuracy" else None, name == "Accuracy") for name in metrics
    )
    total = epochs if total_epochs is None else total_epochs
    now = 0.0
    yield now, RunStarted(total, 1, batches * 8, batches * 8, definitions, definitions, run_id="a run")
    for epoch in range(1, epochs + 1):
        for split in Split:
            yield now, SplitStarted(split, epoch, 0, batches, 0, batches * 8)
            for batch in range(1, batches + 1):
                now += 1.0
                iteration = (epoch - 1) * batches + batch
                values = tuple(MetricValue(name, value_of(name, iteration, split), 8.0) for name in metrics)
                yield now, StepDone(split, epoch, iteration, batch, batch * 8, values)
            last = tuple(MetricValue(name, value_of(name, epoch * batches, split)) for name in metrics)
            yield now, SplitDone(EpochSummary(split, epoch, last))
        yield now, LogLine(f"printed in epoch {epoch}", "stdout")
        yield (
            now,
            Resources(
                50.0, 4 << 30, 1 << 30, (GpuUse(0, "a GPU", 75.0, 8 << 30, 16 << 30, 60.0, 300.0),), 8 << 30, 150.0
            ),
        )
        yield now, EpochDone(epoch)
        yield now, CheckpointSaved(f"run/checkpoint/epoch-{epoch}.safetensors", epoch, True)
    yield now, Notice("a word to the user")
    if ended is not None:
        yield now, RunEnded(ended, "the summary")


def value_of(name: str, iteration: int, split: Split) -> float:
    """A loss that falls, an accuracy that rises; validation is a little worse."""
    loss = math.exp(-iteration / 20) + (0.1 if split is Split.VALID else 0.0)
    return 100.0 * (1.2 - loss) / 1.2 if name == "Accuracy" else loss


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the log of a run into a directory: that of `story`, or the events given."""

    def written(*events: Event, name: str = "run", **changes: object) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        told = [(0.0, event) for event in events] if events else story(**changes)  # type: ignore[arg-type]
        lines = [encode(event, number, START_S + at) for number, (at, event) in enumerate(told)]
        (folder / EVENTS).write_bytes(b"".join(lines))
        return folder

    return written


@dataclass
class Asked:
    """What a run was asked for, in the place of its interrupter."""

    commands: list[str] = field(default_factory=list)

    def stop(self, reason: str = "", *, status: str = "stopped") -> None:
        self.commands.append("stop")

    def request_checkpoint(self) -> None:
        self.commands.append("checkpoint")

    def kill(self) -> None:
        self.commands.append("kill")


@pytest.fixture
def live(write: Write) -> Iterator[Callable[..., tuple[Path, Asked]]]:
    """A run that goes on as far as anybody can see, and takes commands."""
    servers = []

    def started(**changes: object) -> tuple[Path, Asked]:
        folder = write(**{"ended": None, "total_epochs": 5, **changes})
        asked = Asked()
        server = ControlServer(folder, asked, kill=asked.kill)
        server.start()
        servers.append(server)
        return folder, asked

    yield started
    for server in servers:
        server.close()
