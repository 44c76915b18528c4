"""Defines what `burn-torch runs` prints: a list, a comparison, curves in plain text."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from burn_torch.cli.runs import DEFAULT, Found, aligned, described, differences, find_runs, open_run, row
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import nearest
from burn_torch.monitor import Split
from burn_torch.monitor.dashboard.chart import ASCII, BRAILLE, Line, chart
from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.progress import format_duration
from burn_torch.monitor.view import MetricView, SplitView

__all__ = ["compare", "listing", "plot"]

_HEAD: Final = ("RUN", "STATUS", "EPOCH", "STARTED", "TIME", "BEST")


# -- list ------------------------------------------------------------------------------------------------
def listing(args: argparse.Namespace) -> int:
    """One line a run."""
    runs = find_runs(args.directories)
    if args.json:
        print(json.dumps([described(run) for run in runs], indent=2))
    elif runs:
        print(aligned([_HEAD, *map(row, runs)]))
    else:
        print(f"no runs below {DEFAULT}")
    return 0


# -- compare -----------------------------------------------------------------------------------------------
def compare(args: argparse.Namespace) -> int:
    """Best values beside each other, and the settings that differ."""
    runs = [open_run(directory, outline=True) for directory in args.directories]
    differing = differences(runs)
    if args.json:
        print(json.dumps({"runs": [described(run) for run in runs], "differences": differing}, indent=2))
        return 0
    head = ("", *(clean(str(run.directory)) for run in runs))
    rows = [("status", *(run.status for run in runs))]
    rows.append(("epochs", *(f"{run.view.epoch}/{run.view.total_epochs}" for run in runs)))
    rows.append(("time", *(format_duration(run.view.elapsed_s) for run in runs)))
    for name in dict.fromkeys(name for run in runs for name in run.view.metrics):
        for split in Split:
            columns = [_of(run, name, split) for run in runs]
            if any(view is not None and view.best_value is not None for _, view in columns):
                rows.append((f"{clean(name)} {split}, best", *(_best(metric, view) for metric, view in columns)))
    rows += [(clean(name), *map(clean, values)) for name, values in differing.items()]
    print(aligned([head, *rows]))
    return 0


def _of(run: Found, name: str, split: Split) -> tuple[MetricView | None, SplitView | None]:
    metric = run.view.metrics.get(name)
    return metric, None if metric is None else metric.splits.get(split)


def _best(metric: MetricView | None, view: SplitView | None) -> str:
    if metric is None or view is None or view.best_value is None:
        return "-"
    return f"{short(view.best_value, metric.unit)} in epoch {view.best_epoch}"


# -- plot --------------------------------------------------------------------------------------------------
def plot(args: argparse.Namespace) -> int:
    """Curves in plain text."""
    runs = [open_run(run.directory, outline=args.epochs) for run in find_runs(args.directories) if run.fault is None]
    names = _names(runs, args.metric)
    if args.json:
        print(json.dumps({str(run.directory): _curves(run, names, epochs=args.epochs) for run in runs}, indent=2))
        return 0
    width = args.width or shutil.get_terminal_size().columns
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    glyphs = ASCII if args.ascii or encoding != "utf8" else BRAILLE
    for run in runs:
        for name in names:
            metric = run.view.metrics.get(name)
            if metric is None:
                continue
            unit = f" ({metric.unit})" if metric.unit else ""
            x = "epochs" if args.epochs else run.view.x_unit
            print(clean(f"{run.directory}: {name}{unit} over {x}"))
            lines = [
                Line(str(split), str(split), _points(view, epochs=args.epochs), dashed=split is Split.VALID)
                for split, view in metric.splits.items()
            ]
            for cells in chart(lines, width, args.height, glyphs=glyphs, log=args.log, empty="no values yet"):
                print("".join(text for text, _ in cells).rstrip())
            print()
    if not runs:
        print(f"no runs below {DEFAULT}")
    return 0


def _names(runs: Sequence[Found], wanted: str | None) -> list[str]:
    names = list(dict.fromkeys(name for run in runs for name in run.view.metrics))
    if wanted is None:
        return names
    by_lower = {name.lower(): name for name in names}
    if wanted.lower() not in by_lower:
        near = nearest(wanted, names)
        raise ConfigError(
            f"no run measures {wanted!r}",
            given=f"--metric {wanted}",
            expected=f"one of {', '.join(names) or 'no metrics at all'}",
            mend="name one of those" if near is None else f"did you mean {near}?",
        )
    return [by_lower[wanted.lower()]]


def _points(view: SplitView, *, epochs: bool) -> list[tuple[float, float]]:
    return [(float(epoch), value) for epoch, value in view.epochs] if epochs else view.series.points()


def _curves(run: Found, names: Sequence[str], *, epochs: bool) -> dict[str, object]:
    return {
        name: {
            str(split): [[x, y if y - y == 0 else None] for x, y in _points(view, epochs=epochs)]
            for split, view in run.view.metrics[name].splits.items()
        }
        for name in names
        if name in run.view.metrics
    }
