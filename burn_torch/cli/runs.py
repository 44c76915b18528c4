"""Runs on the disk: where they are, what they did, and how they differ.  Imports no torch."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from burn_torch.core.errors import ArtifactError
from burn_torch.core.wording import first_line
from burn_torch.monitor import EVENTS, RunView, Split
from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.progress import format_duration

__all__ = ["DEFAULT", "Found", "aligned", "best", "described", "differences", "find_runs", "open_run", "row"]

DEFAULT: Final = Path("artifacts")
"""Says where `burn-torch train` keeps runs."""
_DEPTH: Final = 3
"""Folders below a given one in which runs are looked for."""


@final
@dataclass(frozen=True)
class Found:
    """A run and what it did; `fault` says in one line why nothing is known of it."""

    directory: Path
    view: RunView
    fault: str | None = None

    @property
    def status(self) -> str:
        """In one word."""
        if self.fault is not None:
            return "unreadable"
        return self.view.status if self.view.ended is None else self.view.ended.status


def open_run(directory: Path, *, outline: bool) -> Found:
    """The run in an artifact directory; with `outline` without the curves of its batches.

    Raises: ArtifactError if there is none; DataError if its events are of a newer version.
    """
    if not (directory / EVENTS).is_file():
        raise ArtifactError(
            "there is no run",
            given=f"{directory}" + (f" without {EVENTS}" if directory.is_dir() else ", which is no directory"),
            expected="the artifact directory of a run",
            mend="give the directory that `burn-torch train` named; `burn-torch runs list` finds them",
        )
    return Found(directory, RunView.outline(directory) if outline else RunView.of(directory))


def find_runs(places: Sequence[Path]) -> list[Found]:
    """The runs in and below these folders, the oldest first; one that cannot be read is among them.

    Raises: ArtifactError for a folder that is given and holds none.
    """
    directories: list[Path] = []
    for place in places or [DEFAULT]:
        inside = _below(place, _DEPTH)
        if not inside and places:
            raise ArtifactError(
                "there are no runs",
                given=f"{place}" + ("" if place.is_dir() else ", which is no directory"),
                expected="the artifact directory of a run, or a folder of them",
                mend="give the folder that `burn-torch train --artifact-dir` was given, or one above it",
            )
        directories += inside
    runs = [_open(directory) for directory in dict.fromkeys(directories)]
    return sorted(runs, key=lambda run: (run.view.started_s or 0.0, run.directory))


def _below(folder: Path, depth: int) -> list[Path]:
    if (folder / EVENTS).is_file():
        return [folder]
    if depth == 0:
        return []
    with suppress(OSError):
        return [below for inner in sorted(folder.iterdir()) if inner.is_dir() for below in _below(inner, depth - 1)]
    return []


def _open(directory: Path) -> Found:
    try:
        return open_run(directory, outline=True)
    except Exception as err:  # one run that a fault of ours cannot show hides none of the others
        return Found(directory, RunView(directory), first_line(err))


# -- telling -------------------------------------------------------------------------------------------------
def described(run: Found) -> dict[str, Any]:
    """A run as JSON has it."""
    view = run.view
    return {
        "directory": str(run.directory),
        "run_id": "" if view.run is None else view.run.run_id,
        "status": run.status,
        "message": run.fault or (None if view.ended is None else view.ended.message),
        "epoch": view.epoch,
        "total_epochs": view.total_epochs,
        "iteration": view.iteration,
        "started": view.started_s,
        "seconds": round(view.elapsed_s, 3),
        "checkpoints": [Path(saved.path).name for saved in view.checkpoints],
        "metrics": {
            name: {
                str(split): {
                    "last": _json(series.epoch_value),
                    "best": _json(series.best_value),
                    "best_epoch": series.best_epoch,
                    "epochs": [[epoch, _json(value)] for epoch, value in series.epochs],
                }
                for split, series in metric.splits.items()
            }
            for name, metric in view.metrics.items()
        },
    }


def _json(value: float | None) -> float | None:
    return None if value is None or value != value or value in (float("inf"), float("-inf")) else value


def row(run: Found) -> tuple[str, ...]:
    """A run in one line of cells."""
    view = run.view
    if run.fault is not None:
        return str(run.directory), run.status, "", "", "", clean(run.fault)
    started = "" if view.started_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(view.started_s))
    epochs = f"{view.epoch}/{view.total_epochs}" if view.total_epochs else ""
    return str(run.directory), run.status, epochs, started, format_duration(view.elapsed_s), best(view)


def best(view: RunView) -> str:
    """The best values of a run on validation data, or where it has none of training."""
    parts = []
    for metric in view.metrics.values():
        series = metric.splits.get(Split.VALID) or metric.splits.get(Split.TRAIN)
        if series is not None and series.best_value is not None:
            parts.append(f"{clean(metric.name)} {short(series.best_value, metric.unit)}")
    return ", ".join(parts)


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines of columns."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))] if table else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines)


def differences(runs: Sequence[Found]) -> dict[str, list[str]]:
    """The settings and versions that are not the same in all runs, by dotted name; "" where a run has none."""
    columns = [_settings(run.view) for run in runs]
    names = dict.fromkeys(name for settings in columns for name in settings)
    rows = {name: [settings.get(name, "") for settings in columns] for name in names}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}


def _settings(view: RunView) -> dict[str, str]:
    if view.run is None:
        return {}
    settings: dict[str, str] = {}
    with suppress(ValueError, RecursionError):
        _flatten("", json.loads(view.run.config or "{}"), settings)
    return settings | {f"versions.{name}": version for name, version in view.run.versions.items()}


def _flatten(path: str, value: object, into: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _flatten(f"{path}.{name}" if path else str(name), inner, into)
    elif path:
        into[path] = value if isinstance(value, str) else json.dumps(value)
