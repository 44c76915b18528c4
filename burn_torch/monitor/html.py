"""A run as one HTML file: curves, summary, configuration, environment, checkpoints, log.

Everything is in the file, and nothing in it is fetched or executed: no script, no font, no network.  It reads on a
phone, prints, and follows the reader's choice of dark or light.  The page is the template `report.html`; Jinja, which
comes with torch, fills it in and escapes every text.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from burn_torch.core.wording import counted
from burn_torch.monitor.curves import figure
from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.event import GpuUse, Split
from burn_torch.monitor.progress import format_duration
from burn_torch.monitor.view import RunView

__all__ = ["html_report"]

LOG_LINES: Final = 200
_GIB: Final = 1 << 30
_TEMPLATE: Final = Path(__file__).with_name("report.html")

Table = list[tuple[str, ...]]


def html_report(view: RunView, title: str) -> str:
    """The page of a run as far as it is, finished or not.

    >>> page = html_report(RunView(), "artifacts/<digits>")
    >>> page.startswith("<!doctype html>"), "artifacts/&lt;digits&gt;" in page
    (True, True)
    """
    import jinja2  # here: it takes 30 ms to import

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, finalize=_without_controls)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        title=title,
        state=_state(view),
        summary=_summary(view),
        splits=list(Split),
        figures=[(metric, figure(view, metric)) for metric in view.metrics.values()],
        checkpoints=_checkpoints(view),
        notices=[(None, text) for text in view.notices],
        config=_config(view),
        environment=_environment(view),
        machine=_machine(view),
        log_title="Log" if view.log_lines <= LOG_LINES else f"Log, the last {LOG_LINES} of {view.log_lines} lines",
        log=[(line.stream, line.text) for line in list(view.log)[-LOG_LINES:]],
    )


def _without_controls(value: object) -> object:
    """A text as it stands in the page; markup has its texts behind it."""
    return clean(value) if type(value) is str else value


def _state(view: RunView) -> list[str]:
    parts = [view.ended.status if view.ended is not None else view.status]
    if view.ended is not None and view.ended.message:
        parts.append(view.ended.message.partition("\n")[0])
    if view.epoch:
        parts.append(f"epoch {view.epoch} of {view.total_epochs}")
    if view.started_s is not None:
        parts.append(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.started_s)))
        parts.append(f"{format_duration(view.elapsed_s)} long")
    if view.ended is None and view.eta_s is not None:
        parts.append(f"{format_duration(view.eta_s)} to go")
    if view.damaged:
        parts.append(f"{counted(view.damaged, 'line')} of the events left out, being damaged")
    return parts


def _summary(view: RunView) -> Table:
    return [
        (
            str(row.split),
            row.name,
            short(row.best, row.unit),
            str(row.best_epoch),
            short(row.last, row.unit),
            short(row.lowest, row.unit),
            str(row.lowest_epoch),
            short(row.highest, row.unit),
            str(row.highest_epoch),
        )
        for row in view.summary
    ]


def _checkpoints(view: RunView) -> Table:
    return [
        (
            saved.path.replace("\\", "/").rpartition("/")[2],
            f"epoch {saved.epoch}",
            "" if saved.complete else "in the middle of it",
        )
        for saved in view.checkpoints
    ]


def _config(view: RunView) -> str | None:
    text = None if view.run is None else view.run.config
    if text is not None:
        with suppress(ValueError):  # then as it stands
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text


def _environment(view: RunView) -> Table:
    run = view.run
    if run is None:
        return []
    rows: Table = [("run", run.run_id)] if run.run_id else []
    rows += [("resumed from", run.resumed_from)] if run.resumed_from else []
    return [*rows, *run.versions.items()]


def _machine(view: RunView) -> Table:
    use = view.resources
    if use is None:
        return []
    rows: Table = []
    if use.cpu_percent is not None:
        rows.append(("processors", f"{use.cpu_percent:.0f} %"))
    if use.memory_bytes is not None:
        total = f" of {use.memory_total_bytes / _GIB:.1f}" if use.memory_total_bytes is not None else ""
        rows.append(("memory", f"{use.memory_bytes / _GIB:.1f}{total} GiB"))
    if use.process_memory_bytes is not None:
        rows.append(("memory of the run", f"{use.process_memory_bytes / _GIB:.2f} GiB"))
    rows += [(f"GPU {gpu.index} {gpu.name}", _gpu(gpu)) for gpu in use.gpus]
    return rows


def _gpu(gpu: GpuUse) -> str:
    parts = [] if gpu.percent is None else [f"{gpu.percent:.0f} %"]
    if gpu.memory_bytes is not None:
        total = f" of {gpu.memory_total_bytes / _GIB:.1f}" if gpu.memory_total_bytes is not None else ""
        parts.append(f"{gpu.memory_bytes / _GIB:.1f}{total} GiB")
    parts += [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]
    parts += [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
    return ", ".join(parts)
