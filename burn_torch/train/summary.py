"""The table at the end of a run, as Burn prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from burn_torch.train.history import Direction, History, MetricDefinition
from burn_torch.train.metric.base import Split

__all__ = ["LearnerSummary"]

_HEAD = ("Split", "Metric", "Min.", "Epoch", "Max.", "Epoch")


@final
class LearnerSummary:
    """The smallest and largest value of each metric over the epochs, and when they were reached.

    fused: its steps ran in generated kernels
    """

    def __init__(
        self,
        history: History,
        definitions: Iterable[tuple[Split, MetricDefinition]],
        model: str,
        *,
        fused: bool = False,
    ) -> None:
        self.model = model
        self.fused = fused
        self.epochs = len(history.epochs(Split.TRAIN))
        self.rows = [
            row for split, definition in definitions if (row := _row(history, split, definition.name)) is not None
        ]

    def __str__(self) -> str:
        title = f"{'=' * 24} Learner Summary {'=' * 24}"
        facts = [f"Total Epochs: {self.epochs}", *(["Steps: fused"] if self.fused else [])]
        head = [title, "Model:", self.model, *facts, ""]
        if not self.rows:
            return "\n".join([*head, "No epoch is over, so no metric has a value of one."])
        return "\n".join([*head, table_text([_HEAD, *self.rows])])


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table in Markdown; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _row(history: History, split: Split, name: str) -> tuple[str, ...] | None:
    lowest = history.find_epoch(name, Direction.LOWEST, split)
    highest = history.find_epoch(name, Direction.HIGHEST, split)
    if lowest is None or highest is None:
        return None
    values = dict(history.series(name, split))
    return (str(split).capitalize(), name, _number(values[lowest]), str(lowest), _number(values[highest]), str(highest))


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.3e}"
