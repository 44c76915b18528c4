"""A run as one CSV file in tidy form: a row is one value of one metric.

    time,split,epoch,iteration,items,metric,value
    1764000000.123,train,1,1,16,Loss,2.302585
    1764000004.871,train,1,,1437,Loss,1.204119        the value over all items of the epoch has no iteration

`time` is in seconds since 1970; `items` are those of the epoch so far.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Final, TextIO

from burn_torch.monitor.event import MetricValue, Split, SplitDone, SplitStarted, Stamped, StepDone

__all__ = ["COLUMNS", "write_csv"]

COLUMNS: Final = ("time", "split", "epoch", "iteration", "items", "metric", "value")


def write_csv(events: Iterable[Stamped], file: TextIO) -> int:
    """Writes the values of all metrics of a run; gives the number of rows.  Open the file with newline=""."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows = 0
    items: dict[Split, int] = {}
    for stamped in events:
        event = stamped.event
        if isinstance(event, StepDone):
            items[event.split] = event.items_done
            where: tuple[object, ...] = (event.split, event.epoch, event.iteration, event.items_done)
            values: tuple[MetricValue, ...] = event.values
        elif isinstance(event, SplitDone):
            summary = event.summary
            where = (summary.split, summary.epoch, "", items.get(summary.split, ""))
            values = summary.values
        else:
            if isinstance(event, SplitStarted):
                items[event.split] = event.items_done
            continue
        time = f"{stamped.time:.3f}"
        writer.writerows([time, *where, value.name, repr(float(value.value))] for value in values)
        rows += len(values)
    return rows
