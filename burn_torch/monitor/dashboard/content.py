"""Defines what the panels say, as rows of (text, role) runs: functions of a RunView and a size, without a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from burn_torch.core.wording import counted
from burn_torch.monitor.dashboard.chart import BRAILLE, Glyphs, Line, Row, chart
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.event import GpuUse, Resources, Split
from burn_torch.monitor.progress import format_duration, format_rate
from burn_torch.monitor.view import MetricView, RunView, SplitView

__all__ = [
    "CONTROLS",
    "KINDS",
    "Choice",
    "Kind",
    "clean",
    "controls",
    "log_lines",
    "machine",
    "metrics",
    "mode",
    "plot",
    "progress",
    "status",
    "tabs",
]

Kind = Literal["full", "recent", "summary"]
KINDS: Final[dict[Kind, str]] = {"full": "Full history", "recent": "Recent history", "summary": "Summary"}

CONTROLS: Final = (
    ("q", "Quit", "Stop the training, or leave it"),
    ("← →", "Metric", "Switch between metrics"),
    ("↑ ↓", "Plot", "Switch between plots"),
    ("y", "Scale", "Logarithmic axis or linear"),
    ("l", "Log", "Show what the run prints"),
    ("c", "Save", "Write a checkpoint now"),
)
"""Keys, what they do in a word, and in a sentence."""

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
_CONTROL_CHARACTERS: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
)
"""Characters that a terminal takes for commands or directions of writing, as a class of regular expressions."""
_CONTROL: Final = re.compile(rf"[\n\t{_CONTROL_CHARACTERS}]")


def clean(text: str) -> str:
    """Text of somebody else's without anything that a terminal would take for a command.

    >>> clean("\\x1b[31mred\\x1b[0m\\tand 90 %\\r95 %")
    'red     and 90 % 95 %'
    """
    return _CONTROL.sub(" ", _ESCAPES.sub("", text).expandtabs())


# -- controls ---------------------------------------------------------------------------------------------
def controls(width: int, height: int) -> list[Row]:
    """The keys: a line each where there is room, else as many in a line as fit."""
    if height >= len(CONTROLS):
        return [[(f" {name:<7}", "label"), (f"{key:<4}", "key"), (text, "")] for key, name, text in CONTROLS]
    rows: list[Row] = []
    cell = max(width // 2, 12)
    for key, name, _ in CONTROLS:
        if not rows or sum(len(text) for text, _ in rows[-1]) + cell > width:
            rows.append([])
        rows[-1] += [(f" {key:<4}", "key"), (name.ljust(cell - 5), "")]
    return rows[:height]


# -- metrics ----------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True)
class Choice:
    """Rows, and the names of places in them: (row, first column, end column) to a name."""

    rows: list[Row]
    targets: dict[tuple[int, int, int], str]


def metrics(
    view: RunView, width: int, height: int, *, selected: str | None, hovered: str | None, scrolled: int = 0
) -> Choice:
    """For each metric its name with the best value and that value's epoch, and a line for each split.

    `scrolled` rows are above the box; the header of the selected metric and its lines are shown whatever it says.
    """
    rows: list[Row] = []
    headers: dict[int, str] = {}
    for name, metric in view.metrics.items():
        headers[len(rows)] = name
        role = "selected" if name == selected else "hover" if name == hovered else "title"
        best = _best(metric, roomy=width >= 46)
        shown = clean(name)
        room = max(width - len(shown) - len(best) - 3, 1)
        rows.append([(f" {shown} ", role), (" " * room + best, "good")])
        rows += [_split_row(metric, split, of_split, width) for split, of_split in metric.splits.items()]
    if not rows:
        return Choice([[(" no metrics yet", "dim")]][:height], {})
    start = min(max(scrolled, 0), max(len(rows) - height, 0))
    for row, name in headers.items():
        if name == selected:
            end = row + 1 + len(view.metrics[name].splits)
            start = min(max(start, end - height), row)
    shown_rows = rows[start : start + height]
    targets = {(row - start, 0, width): name for row, name in headers.items() if 0 <= row - start < height}
    return Choice(shown_rows, targets)


def _best(metric: MetricView, *, roomy: bool) -> str:
    """Returns the best value of validation, or else of training."""
    for split in (Split.VALID, Split.TRAIN):
        of_split = metric.splits.get(split)
        if of_split is not None and of_split.best_value is not None:
            value = short(of_split.best_value, metric.unit)
            return f"best {value} in epoch {of_split.best_epoch}" if roomy else f"best {value} @{of_split.best_epoch}"
    return ""


def _split_row(metric: MetricView, split: Split, of_split: SplitView, width: int) -> Row:
    of_epoch = of_split.running if of_split.running is not None else of_split.epoch_value
    epoch = "-" if of_epoch is None else short(of_epoch, metric.unit)
    batch = "-" if of_split.last is None else short(of_split.last, metric.unit)
    head = f"  {str(split).capitalize():<6}"
    text = f"epoch {epoch:<12} batch {batch}"
    if len(head) + len(text) > width:
        text = f"{epoch:<10} {batch}"
    return [(head, str(split)), (text, "")]


# -- status -----------------------------------------------------------------------------------------------
def mode(view: RunView, *, runs: bool) -> tuple[str, str]:
    """Returns what the run is doing, and its role."""
    if view.ended is not None:
        good = view.ended.status in ("completed", "early_stopped")
        return view.ended.status.replace("_", " ").capitalize(), "good" if good else "warning"
    if not runs:
        if view.run is None:
            return "Waiting for a run", "dim"
        return "Ended without a word (killed?)", "error"
    if view.stop_requested is not None:
        return "Stopping: finishing the step", "warning"
    if view.run is None or not view.epoch:
        return "Starting", "dim"
    return view.mode.capitalize(), str(view.split)


def status(view: RunView, width: int, height: int, *, runs: bool, with_machine: bool) -> list[Row]:
    """Mode, epoch, iteration, items, then as much more as there are rows; the machine in a line where it is asked."""
    word, role = mode(view, runs=runs)
    facts: list[tuple[str, str, str]] = [
        ("Mode", word, role),
        ("Epoch", _of(view.epoch, view.total_epochs or None), ""),
        ("Iteration", str(view.iteration), ""),
        ("Items", _of(view.items, view.items_total), "")
        if view.items_total is not None or view.items
        else ("Batches", _of(view.batches, view.batches_total), ""),
    ]
    if with_machine:
        facts.append(("", _machine_line(view.resources), "dim"))
    unit = "items" if view.items_total is not None else "batches"
    rate = view.rate
    facts.append(("Speed", "-" if rate is None else format_rate(rate, unit), ""))
    facts.append(("Elapsed", format_duration(view.elapsed_s), ""))
    saved = view.checkpoints[-1].path.replace("\\", "/").rpartition("/")[2] if view.checkpoints else "none yet"
    facts.append(("Saved", clean(saved), ""))
    if view.damaged:
        facts.insert(4, ("Damaged", f"{counted(view.damaged, 'line')} of the log", "warning"))
    size = min(10, max(width // 3, 5))
    return [
        [(f" {name:<{size}}"[: size + 1] if name else "", "label"), (f" {text}", role)]
        for name, text, role in facts[:height]
    ]


def _of(done: int, total: int | None) -> str:
    return str(done) if total is None else f"{done}/{total}"


# -- machine ----------------------------------------------------------------------------------------------
def machine(view: RunView, width: int, height: int, *, glyphs: Glyphs = BRAILLE) -> list[Row]:
    """Processor, memory and GPUs, each with a bar."""
    resources = view.resources
    if resources is None:
        return [[(" not measured yet", "dim")]][:height]
    rows = [_use("CPU", resources.cpu_percent, "", width, glyphs)]
    if resources.memory_bytes is not None:
        total = resources.memory_total_bytes
        part = None if not total else 100 * resources.memory_bytes / total
        rows.append(_use("Memory", part, f"{_bytes(resources.memory_bytes)}{_out_of(total)}", width, glyphs))
    process = [] if resources.process_cpu_percent is None else [f"CPU {resources.process_cpu_percent:.0f} %"]
    if resources.process_memory_bytes is not None:
        process.append(_bytes(resources.process_memory_bytes))
    if process:
        rows.append([(f" {'Process':<8}", "label"), ("  ".join(process), "")])
    for gpu in resources.gpus:
        rows += _gpu(gpu, width, glyphs)
    return rows[:height]


def _gpu(gpu: GpuUse, width: int, glyphs: Glyphs) -> list[Row]:
    facts = [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]
    facts += [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
    rows = [_use(f"GPU {gpu.index}", gpu.percent, "  ".join(facts), width, glyphs)]
    if gpu.memory_bytes is not None:
        total = gpu.memory_total_bytes
        part = None if not total else 100 * gpu.memory_bytes / total
        rows.append(_use("", part, f"{_bytes(gpu.memory_bytes)}{_out_of(total)}", width, glyphs))
    return rows


def _use(name: str, percent: float | None, text: str, width: int, glyphs: Glyphs) -> Row:
    head: Row = [(f" {name:<8}", "label")]
    if percent is None or math.isnan(percent):
        return [*head, (text or "-", "")]
    number = f"{percent:3.0f} %"
    size = max(min(width - 12 - len(number) - len(text), 20), 0)
    role = "warning" if percent >= 95 and name != "CPU" else ""
    return [*head, (_bar(percent / 100, size, glyphs), "total"), (f" {number}  {text}", role)]


def _machine_line(resources: Resources | None) -> str:
    if resources is None:
        return ""
    parts = [] if resources.cpu_percent is None else [f"CPU {resources.cpu_percent:.0f}%"]
    gpus = [gpu.percent for gpu in resources.gpus if gpu.percent is not None]
    parts += [f"GPU {max(gpus):.0f}%"] if gpus else []
    parts += [] if resources.memory_bytes is None else [_bytes(resources.memory_bytes)]
    return " ".join(parts)


def _out_of(total: int | None) -> str:
    return f"/{_bytes(total)}" if total else ""


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TB"


# -- progress ---------------------------------------------------------------------------------------------
def progress(view: RunView, width: int, *, runs: bool, glyphs: Glyphs = BRAILLE) -> list[Row]:
    """A gauge of the split that runs, and one of the whole run with the time it will take yet."""
    unit = "items" if view.items_total is not None else "batches"
    done, total = (view.items, view.items_total) if unit == "items" else (view.batches, view.batches_total)
    if view.ended is not None:
        time = f"took {format_duration(view.elapsed_s)}"
    elif not runs:
        time = ""
    else:
        time = f"ETA {'---' if view.eta_s is None else format_duration(view.eta_s)}"
    count = f"{_of(done, total)} {unit}"
    side = max(len(time), len(count), 16)
    return [
        _gauge(str(view.split).capitalize(), str(view.split), view.progress_split, count, width, side, glyphs),
        _gauge("Total", "total", view.progress_total, time, width, side, glyphs),
    ]


def _gauge(name: str, role: str, part: float | None, text: str, width: int, side: int, glyphs: Glyphs) -> Row:
    percent = "    -" if part is None else f"{100 * part:3.0f} %"
    size = max(width - 8 - len(percent) - side - 3, 0)
    if size < 6:
        return [(f" {name:<6}", role), (f" {percent}  {text}", "")]
    return [(f" {name:<6} ", role), (_bar(part or 0.0, size, glyphs), role), (f" {percent}  {text:<{side}}", "")]


def _bar(part: float, size: int, glyphs: Glyphs) -> str:
    """A bar of so many cells, the last one filled in eighths where the letters can."""
    steps = len(glyphs.bar) - 1
    filled = round(min(part, 1.0) * size * steps) if part > 0 else 0  # of NaN too, which a run of strangers may hold
    whole, rest = divmod(filled, steps)
    text = glyphs.bar[-1] * whole + (glyphs.bar[rest] if rest else "")
    return text.ljust(size, "." if glyphs.bar[-1] == "#" else "░")


# -- plots ------------------------------------------------------------------------------------------------
def tabs(names: Sequence[str], width: int, *, selected: str | None, hovered: str | None) -> Choice:
    """The strip of metrics between two chevrons, scrolled so that the selected one is in it.

    Places have the names of metrics, and "<" and ">" for the chevrons.
    """
    texts = {name: f" {clean(name)} " for name in names}
    at = list(names).index(selected) if selected in texts else 0
    room = width - 7  # without the chevrons and the last line
    first = at
    used = len(texts[names[at]]) if names else 0
    while first > 0 and used + len(texts[names[first - 1]]) + 1 <= room:  # as many before it as fit
        first -= 1
        used += len(texts[names[first]]) + 1
    row: Row = [(" ‹ ", "hover" if hovered == "<" else "key")]
    targets = {(0, 0, 3): "<"}
    x = 3
    for name in names[first:]:
        text = texts[name]
        if x + len(text) + 4 > width and name != selected:
            break
        text = text[: max(width - x - 4, 1)]
        targets[0, x, x + len(text)] = name
        row += [(text, "selected" if name == selected else "hover" if name == hovered else ""), ("│", "axis")]
        x += len(text) + 1
    row.append((" › ", "hover" if hovered == ">" else "key"))
    targets[0, x, x + 3] = ">"
    return Choice([row], targets)


def plot(
    view: RunView, name: str | None, kind: Kind, width: int, height: int, *, glyphs: Glyphs = BRAILLE, log: bool = False
) -> list[Row]:
    """The plot of a metric, training and validation together."""
    metric = view.metrics.get(name) if name is not None else None
    if metric is None:
        return chart([], width, height, empty="no metrics yet")
    if kind == "summary":
        return _summary(metric, width, height, glyphs)
    lines = []
    for split, of_split in metric.splits.items():
        points = of_split.series.points() if kind == "full" else list(of_split.series.recent)
        lost = of_split.series.not_finite
        label = f"{split} ({lost} not finite)" if lost else str(split)
        lines.append(Line(label, str(split), points, dashed=split is not Split.TRAIN))
    title = f"{clean(metric.name)} over {view.x_unit}{', log' if log else ''}"
    return chart(lines, width, height, glyphs=glyphs, log=log, title=title, empty="no values yet")


def _summary(metric: MetricView, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """A bar for the mean of each split over its epochs, with its best and its last value."""
    means = {split: each.mean for split, each in metric.splits.items()}
    known = [abs(mean) for mean in means.values() if mean is not None]
    if not known:
        return chart([], width, height, empty="no epoch is over yet")
    rows: list[Row] = []
    for split, mean in means.items():
        of_split = metric.splits[split]
        head = f" {str(split).capitalize():<6}"
        if mean is None or of_split.best_value is None:
            rows += [[(head, str(split)), (" no epoch is over yet", "dim")], []]
            continue
        value = short(mean, metric.unit)
        size = max(width - len(head) - len(value) - 9, 1)
        bar = _bar(abs(mean) / (max(known) or 1.0), size, glyphs).rstrip("░.")
        rows.append([(f"{head} ", str(split)), (bar, str(split)), (f" mean {value}", "label")])
        last = of_split.epochs[-1]
        best = f"best {short(of_split.best_value, metric.unit)} in epoch {of_split.best_epoch}"
        rows.append(
            [(" " * (len(head) + 1), ""), (f"{best}, last {short(last[1], metric.unit)} in epoch {last[0]}", "")]
        )
        rows.append([])
    return ([[]] if height > len(rows) else []) + rows[:height]


# -- what the run prints ----------------------------------------------------------------------------------
_LOG_ROLES: Final = {"stdout": "", "stderr": "warning", "log": "dim"}


def log_lines(view: RunView, height: int, *, back: int = 0) -> list[Row]:
    """The last lines that the run printed, or those `back` lines before them."""
    lines = list(view.log)
    end = max(len(lines) - back, min(height, len(lines)))
    shown: Iterable[Row] = (
        [(f" {clean(line.text)}", _LOG_ROLES.get(line.stream, ""))] for line in lines[:end][-height:]
    )
    return [*shown] or [[(" nothing has been printed yet", "dim")]]
