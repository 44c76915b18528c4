"""A run as one HTML file: curves, summary, configuration, environment, checkpoints, log.

Everything is in the file, and nothing in it is fetched or executed: no script, no font, no network.  It reads on a
phone, prints, and follows the reader's choice of dark or light.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Final

from burn_torch.core.wording import counted
from burn_torch.monitor.curves import figure
from burn_torch.monitor.dashboard.content import clean
from burn_torch.monitor.dashboard.ticks import short
from burn_torch.monitor.event import GpuUse, Split
from burn_torch.monitor.progress import format_duration
from burn_torch.monitor.view import MetricView, RunView

__all__ = ["html_report"]

LOG_LINES: Final = 200
_GIB: Final = 1 << 30

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #687076; --line: #dfe3e6; --page: #ffffff; --box: #f8f9fa;
        --train: #c8325a; --valid: #1f6fb5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ecedee; --dim: #9ba1a6; --line: #3a3f42; --page: #151718; --box: #1e2122;
          --train: #ff8fa8; --valid: #7cc0ff; } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.state { color: var(--dim); margin: .2rem 0 0; } .state b { color: var(--ink); }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; } td.number, th.number { text-align: right;
     font-variant-numeric: tabular-nums; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .8rem; background: var(--box); border: 1px solid var(--line); border-radius: 6px; }
figcaption { font-weight: 600; } figcaption span { color: var(--dim); font-weight: 400; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); } .raw, .mean { fill: none; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.train { stroke: var(--train); } .valid { stroke: var(--valid); } .raw { opacity: .35; stroke-width: 1; }
.mean { stroke-width: 1.8; } .valid.mean { stroke-dasharray: 6 3; }
circle.train { fill: var(--train); } circle.valid { fill: var(--valid); }
.key { display: inline-block; width: 1.4rem; border-top: 2px solid; margin: 0 .3rem .2rem .8rem; }
.key.train { border-color: var(--train); } .key.valid { border-color: var(--valid); border-top-style: dashed; }
pre { margin: 0; padding: .8rem; overflow: auto; max-height: 28rem; background: var(--box);
      border: 1px solid var(--line); border-radius: 6px; font: 12.5px/1.45 ui-monospace, monospace; }
.stderr { color: var(--train); } .log { color: var(--dim); }
"""


def html_report(view: RunView, title: str) -> str:
    """The page of a run as far as it is, finished or not.

    >>> page = html_report(RunView(), "artifacts/<digits>")
    >>> page.startswith("<!doctype html>"), "artifacts/&lt;digits&gt;" in page
    (True, True)
    """
    parts = [
        f"<h1>{_text(title)}</h1>",
        _state(view),
        _section("Summary", _summary(view)),
        _section("Metrics", _figures(view)),
        _section("Checkpoints", _checkpoints(view)),
        _section("Notices", _lines((None, text) for text in view.notices)),
        _section("Configuration", _config(view)),
        _section("Environment", _environment(view)),
        _section("Machine", _machine(view)),
        _section(_log_title(view), _lines((line.stream, line.text) for line in list(view.log)[-LOG_LINES:])),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(clean(text))


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>\n{content}" if content else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """Rows of escaped cells; with `numbers` all columns but the first two are aligned to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marks = [' class="number"' if numbers and at > 1 else "" for at in range(len(cells))]
        return (
            "<tr>" + "".join(f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True)) + "</tr>"
        )

    found = [line("td", row) for row in rows]
    if not found:
        return ""
    top = f"<thead>{line('th', head)}</thead>" if head else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(found)}</tbody></table></div>'


def _state(view: RunView) -> str:
    status = view.ended.status if view.ended is not None else view.status
    parts = [f"<b>{_text(status)}</b>"]
    if view.ended is not None and view.ended.message:
        parts.append(_text(view.ended.message.partition("\n")[0]))
    if view.epoch:
        parts.append(f"epoch {view.epoch} of {view.total_epochs}")
    if view.started_s is not None:
        parts.append(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.started_s)))
        parts.append(f"{format_duration(view.elapsed_s)} long")
    if view.ended is None and view.eta_s is not None:
        parts.append(f"{format_duration(view.eta_s)} to go")
    if view.damaged:
        parts.append(f"{counted(view.damaged, 'line')} of the events left out, being damaged")
    return f'<p class="state">{" · ".join(parts)}</p>'


def _summary(view: RunView) -> str:
    head = ("Split", "Metric", "Best", "Epoch", "Last", "Min.", "Epoch", "Max.", "Epoch")
    rows = [
        (
            str(row.split),
            _text(row.name),
            _text(short(row.best, row.unit)),
            str(row.best_epoch),
            _text(short(row.last, row.unit)),
            _text(short(row.lowest, row.unit)),
            str(row.lowest_epoch),
            _text(short(row.highest, row.unit)),
            str(row.highest_epoch),
        )
        for row in view.summary
    ]
    return _table(head, rows, numbers=True)


def _figures(view: RunView) -> str:
    drawn = [_figure(view, metric) for metric in view.metrics.values()]
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _figure(view: RunView, metric: MetricView) -> str:
    unit = f" <span>{_text(metric.unit)}</span>" if metric.unit else ""
    keys = "".join(f'<i class="key {split}"></i><span>{split}</span>' for split in Split if split in metric.splits)
    caption = f"<figcaption>{_text(metric.name)}{unit}{keys}</figcaption>"
    return f"<figure>{caption}{figure(view, metric)}</figure>"


def _checkpoints(view: RunView) -> str:
    rows = [
        (_text(saved.path.replace("\\", "/").rpartition("/")[2]), f"epoch {saved.epoch}", _whole(saved.complete))
        for saved in view.checkpoints
    ]
    return _table(("File", "Epoch", ""), rows)


def _whole(complete: bool) -> str:
    return "" if complete else "in the middle of it"


def _config(view: RunView) -> str:
    text = None if view.run is None else view.run.config
    if text is None:
        return ""
    with suppress(ValueError):  # then as it stands
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _environment(view: RunView) -> str:
    run = view.run
    if run is None:
        return ""
    rows = [("run", _text(run.run_id))] if run.run_id else []
    rows += [("resumed from", _text(run.resumed_from))] if run.resumed_from else []
    rows += [(_text(name), _text(version)) for name, version in run.versions.items()]
    return _table((), rows)


def _machine(view: RunView) -> str:
    use = view.resources
    if use is None:
        return ""
    rows = []
    if use.cpu_percent is not None:
        rows.append(("processors", f"{use.cpu_percent:.0f} %"))
    if use.memory_bytes is not None:
        total = f" of {use.memory_total_bytes / _GIB:.1f}" if use.memory_total_bytes is not None else ""
        rows.append(("memory", f"{use.memory_bytes / _GIB:.1f}{total} GiB"))
    if use.process_memory_bytes is not None:
        rows.append(("memory of the run", f"{use.process_memory_bytes / _GIB:.2f} GiB"))
    rows += [(f"GPU {gpu.index} {_text(gpu.name)}", _gpu(gpu)) for gpu in use.gpus]
    return _table((), rows)


def _gpu(gpu: GpuUse) -> str:
    parts = [] if gpu.percent is None else [f"{gpu.percent:.0f} %"]
    if gpu.memory_bytes is not None:
        total = f" of {gpu.memory_total_bytes / _GIB:.1f}" if gpu.memory_total_bytes is not None else ""
        parts.append(f"{gpu.memory_bytes / _GIB:.1f}{total} GiB")
    parts += [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f} °C"]
    parts += [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
    return ", ".join(parts)


def _log_title(view: RunView) -> str:
    return "Log" if view.log_lines <= LOG_LINES else f"Log, the last {LOG_LINES} of {view.log_lines} lines"


def _lines(lines: Iterable[tuple[str | None, str]]) -> str:
    shown = [
        _text(text) if kind is None else f'<span class="{_text(kind)}">{_text(text)}</span>' for kind, text in lines
    ]
    return f"<pre>{chr(10).join(shown)}</pre>" if shown else ""
