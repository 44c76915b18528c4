"""Tables of numbers and words: columns that are read from the data, a network over rows, and its two tasks.

A column whose cells are all numbers (or empty) is a number: it is brought to zero mean and unit variance, and an empty
cell becomes the mean, which one more input tells.  Any other column is a word: each of its words is an input of its
own, and a word that the training data does not have is none of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from burn_torch import nn
from burn_torch.cli.csv_rows import read_rows
from burn_torch.cli.recipe import AnyConfig, AnyLoader, Prediction, Recipe
from burn_torch.cli.recipe_model import RecipeModel, loader_pair
from burn_torch.cli.run_config import OptimizerSettings, RunConfig
from burn_torch.config import Config, replace
from burn_torch.config.rules import Rules
from burn_torch.core.errors import ConfigError, DataError
from burn_torch.core.faults import nearest
from burn_torch.core.wording import counted
from burn_torch.data import DataLoader, InMemDataset, permutation
from burn_torch.module import Module
from burn_torch.tensor import Device, Tensor, activation
from burn_torch.train import (
    AccuracyMetric,
    ClassificationOutput,
    LossInput,
    LossMetric,
    Metric,
    MetricMetadata,
    NumericMetric,
    Reading,
    RegressionOutput,
)

__all__ = ["Column", "Row", "RowBatch", "TableConfig", "TableModel", "TableRecipe"]

MAX_WORDS: Final = 256
"""A column with more words than this is a text or a name, from which rows cannot be told by a network like this."""
PREDICT_BATCH: Final = 4096


# -- settings ---------------------------------------------------------------------------------------------------


class Column(Config):
    """Holds what the training data says of a column: mean and deviation of its numbers, or its words."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    has_empty: bool = False
    words: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        Rules(self).positive("std").stop()

    @property
    def width(self) -> int:
        """How many inputs of the network it becomes."""
        return 1 + self.has_empty if self.words is None else len(self.words)


class TableConfig(RunConfig):
    """A table, its column to predict, and a network of `layers` hidden layers.

    task       classification if the target has words, or up to 20 whole numbers; else regression
    ignore     columns that are left out
    validation the share of rows that validate, drawn by the seed
    """

    num_epochs: int = 30
    batch_size: int = 128
    target: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    ignore: tuple[str, ...] = ()
    validation: float = 0.2
    hidden: int = 128
    layers: int = 3
    dropout: float = 0.0
    optimizer: OptimizerSettings = OptimizerSettings(lr=2e-3)
    columns: tuple[Column, ...] | None = None
    """The inputs, from the training data."""
    predicts: Column | None = None
    """The target, from the training data."""

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        rules = super().rules().between_zero_and_one("validation").at_least(1, "hidden").at_least(0, "layers")
        return rules.below_one("dropout")


# -- tables -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The cells of a file by column."""

    path: Path
    cells: Mapping[str, list[str]]
    lines: list[int]

    @staticmethod
    def read(path: Path) -> Table:
        """Reads a CSV file with a header.  Raises: DataError."""
        rows = read_rows(path)
        _, names = next(rows, (1, []))
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if not names or twice:
            raise DataError(
                f"{path}: the columns have no names of their own",
                given=f"{', '.join(twice)[:400]} more than once" if twice else "an empty file",
                expected="a first line with one name a column",
                mend="write such a line",
            )
        cells: dict[str, list[str]] = {name: [] for name in names}
        lines = []
        for line, row in rows:
            lines.append(line)
            for name, cell in zip(names, row, strict=True):
                cells[name].append(cell.strip())
        return Table(path, cells, lines)

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """A column as numbers, NaN where a cell is empty; None if a cell is something else."""
        try:
            return np.array([float(cell) if cell else math.nan for cell in self.cells[name]], np.float64)
        except ValueError:
            return None

    def column(self, name: str, rows: NDArray[np.int64], *, words: bool = False) -> Column:
        """Returns what some rows say of a column.  Raises: DataError for one that says nothing or is a text."""
        numbers = None if words else self.numbers(name)
        if numbers is not None and np.isfinite(numbers[rows]).any():
            there = numbers[rows][np.isfinite(numbers[rows])]
            std = float(there.std()) or 1.0
            return Column(name, mean=float(there.mean()), std=std, has_empty=bool(np.isnan(numbers).any()))
        counts = Counter(self.cells[name][row] for row in rows.tolist())
        vocabulary = tuple(sorted(word for word in counts if word))
        if vocabulary and len(vocabulary) <= MAX_WORDS:
            return Column(name, words=vocabulary)
        raise DataError(
            f"{self.path}: the column {name} cannot be read",
            given=f"{len(vocabulary)} different words" if vocabulary else "nothing but empty cells",
            expected=f"numbers, or up to {MAX_WORDS} different words",
            mend=f"leave it out: --set ignore={name}",
        )

    def inputs(self, columns: Sequence[Column]) -> NDArray[np.float32]:
        """The rows as inputs of the network, (rows, inputs).  Raises: DataError for columns that do not fit."""
        absent = [column.name for column in columns if column.name not in self.cells]
        if absent:
            near = nearest(absent[0], self.cells)
            raise DataError(
                f"{self.path}: columns are missing",
                given=f"the columns {', '.join(self.cells)}, without {', '.join(absent)}",
                expected=f"the columns {', '.join(column.name for column in columns)}",
                mend="rename them" + (f"; is {near} meant by {absent[0]}?" if near else ""),
            )
        if not columns:
            raise DataError(
                f"{self.path}: there is nothing to predict from",
                given=f"the columns {', '.join(self.cells)[:400]}",
                expected="one column of inputs at least, beside that which is predicted and those left out",
                mend="add a column, or ignore fewer",
            )
        parts: list[NDArray[Any]] = []
        for column in columns:
            if column.words is not None:
                cells = np.array(self.cells[column.name], dtype=object)
                parts += [(cells == word)[:, None] for word in column.words]
                continue
            numbers = self.numbers(column.name)
            if numbers is None:
                raise self.no_number(column.name)
            empty = np.isnan(numbers)
            parts.append((np.where(empty, 0.0, (numbers - column.mean) / column.std))[:, None])
            parts += [empty[:, None]] if column.has_empty else []
        return np.concatenate(parts, axis=1).astype(np.float32)

    def no_number(self, name: str) -> DataError:
        """The error for the first cell of a column that is none."""
        line, cell = next(
            (line, cell)
            for line, cell in zip(self.lines, self.cells[name], strict=True)
            if cell and not _is_number(cell)
        )
        return DataError(
            f"{self.path}: this is not a number",
            given=f"line {line}: {name} = {cell!r}",
            expected="a number, as in the training data",
            mend="mend the cell, or leave it empty",
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Row:
    """One row: inputs (inputs,), and its target as a scaled number or a class."""

    inputs: NDArray[np.float32]
    target: float


@dataclass(frozen=True)
class RowBatch:
    """inputs (batch, inputs) float; targets (batch, 1) float, or (batch,) int for classes."""

    inputs: Tensor
    targets: Tensor


class RowBatcher:
    """Stacks rows."""

    def __init__(self, classes: bool) -> None:
        self.classes = classes

    def batch(self, items: Sequence[Row], device: Device) -> RowBatch:
        """One batch on `device`."""
        inputs = np.stack([item.inputs for item in items])
        targets = np.array([item.target for item in items], np.int64 if self.classes else np.float32)
        targets = targets if self.classes else targets[:, None]
        return RowBatch(Tensor.from_data(inputs, device), Tensor.from_data(targets, device))


# -- the model --------------------------------------------------------------------------------------------------


class TableModel(RecipeModel):
    """Hidden layers with layer norm and a residual path, then one output a class, or one number."""

    first: nn.Linear
    norms: tuple[nn.LayerNorm, ...]
    hidden: tuple[nn.Linear, ...]
    dropout: nn.Dropout
    output: nn.Linear
    classes: bool

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (batch, inputs) -> logits (batch, classes), or numbers (batch, 1)."""
        x = self.first.forward(inputs)
        for norm, layer in zip(self.norms, self.hidden, strict=True):
            x = x + self.dropout.forward(activation.relu(layer.forward(norm.forward(x))))
        return self.output.forward(activation.relu(x))

    def measured(self, batch: RowBatch) -> ClassificationOutput | RegressionOutput:
        """Cross entropy of classes, mean squared error of scaled numbers."""
        outputs = self.forward(batch.inputs)
        if self.classes:
            loss = nn.CrossEntropyLossConfig().init(outputs.device).forward(outputs, batch.targets)
            return ClassificationOutput(loss, outputs, batch.targets)
        return RegressionOutput(nn.MseLoss().forward(outputs, batch.targets), outputs, batch.targets)


class RootMeanSquare(NumericMetric):
    """The root of the mean squared error over the items, in the units of the target: `scale` times that of the loss."""

    name = "RMSE"
    higher_is_better = False

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def measure(self, item: RegressionOutput, metadata: MetricMetadata) -> Reading:
        """The mean square of a batch; `value` takes the root over all."""
        values = item.adapt(LossInput)
        loss = values.loss.no_grad()
        return Reading.of_mean(loss, values.count)

    def value(self) -> float:
        """The root over all items, not the mean of the roots of batches."""
        return self.scale * math.sqrt(super().value())


class ExplainedVariance(NumericMetric):
    """R²: the share of the target's variance in the training data that the model explains, over all items, in %."""

    name = "R2"
    unit = "%"
    higher_is_better = True

    def measure(self, item: RegressionOutput, metadata: MetricMetadata) -> Reading:
        """That of a batch.  Targets are scaled to a variance of 1, so the mean square is the share that is left."""
        values = item.adapt(LossInput)
        loss = values.loss.no_grad()
        return Reading.of_mean((1.0 - loss) * 100.0, values.count)


class TableRecipe(Recipe):
    """A recipe over one CSV file with a header."""

    inputs = "FILE.csv"

    def path(self, config: TableConfig) -> Path:
        """Returns where the table is.  Raises: DataError."""
        raise TypeError(f"{type(self).__name__} does not say where its table is; define path")

    def prepare(self, config: AnyConfig) -> Any:
        """See `Recipe.prepare`: the task, and what the training rows say of each column."""
        table = Table.read(self.path(config))
        self.check(config, table)
        train, _ = self.rows(config, len(table.lines))
        numbers = table.numbers(config.target)
        few = numbers is not None and len(set(numbers.tolist())) <= 20 and bool((numbers == np.round(numbers)).all())
        task = config.task
        if task == "auto":
            task = "classification" if numbers is None or few else "regression"
        if task == "regression" and numbers is None:
            raise table.no_number(config.target)
        target = table.column(config.target, np.arange(len(table.lines)) if task == "classification" else train,
                              words=task == "classification")  # fmt: skip
        left_out = {config.target, *config.ignore}
        columns = tuple(table.column(name, train) for name in table.cells if name not in left_out)
        path = str(self.path(config).absolute())
        return replace(config, task=task, columns=columns, predicts=target, data_dir=path)

    def check(self, config: TableConfig, table: Table) -> None:
        """Raises: ConfigError for settings that do not fit the table, DataError for too few rows."""
        names = list(table.cells)
        for setting, name in [("target", config.target), *(("ignore", name) for name in config.ignore)]:
            if name not in names:
                near = None if name is None else nearest(name, names)
                raise ConfigError(
                    "the table has no such column" if name else "the column to predict is not named",
                    given=f"{setting} = {name}" if name else f"{table.path}, and no target",
                    expected=f"one of {', '.join(names)}",
                    mend=f"did you mean {near}?" if near else f"--set {setting}=COLUMN",
                )
        if len(table.lines) < 2 or len(names) - len(set(config.ignore) | {config.target}) < 1:
            raise DataError(
                f"{table.path}: this is too little to learn from",
                given=f"{counted(len(table.lines), 'row')}, {counted(len(names), 'column')}",
                expected="two rows at least, and a column besides the target",
                mend="give a larger table",
            )

    def rows(self, config: TableConfig, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows that train and those that validate: a shuffle by the seed."""
        order = permutation(count, config.seed, 0)
        held = min(max(1, round(count * config.validation)), count - 1)
        return np.sort(order[held:]), np.sort(order[:held])

    def loaders(self, config: AnyConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """See `Recipe.loaders`."""
        items = self.items(config)
        train, valid = (InMemDataset(items[row] for row in rows.tolist()) for rows in self.rows(config, len(items)))
        return loader_pair(config, device, train, valid, RowBatcher(config.task == "classification"))

    def evaluation(self, config: AnyConfig, device: Device, *, given: bool) -> Mapping[str, AnyLoader]:
        """See `Recipe.evaluation`: of another table all rows."""
        if not given:
            return super().evaluation(config, device, given=False)
        batcher = RowBatcher(config.task == "classification")
        items = InMemDataset(self.items(config))
        return {"given": DataLoader(items, batcher, batch_size=config.batch_size, device=device)}

    def items(self, config: AnyConfig) -> list[Row]:
        """All rows of the table.  Raises: DataError."""
        table = Table.read(self.path(config))
        inputs, targets = table.inputs(config.columns), self.targets(config, table)
        return [Row(row, target) for row, target in zip(inputs, targets, strict=True)]

    def targets(self, config: TableConfig, table: Table) -> list[float]:
        """The scaled number or the class of each row.  Raises: DataError."""
        column = config.predicts
        assert column is not None
        if column.name not in table.cells:
            table.inputs([column])
        if column.words is None:
            numbers = table.numbers(column.name)
            if numbers is None:
                raise table.no_number(column.name)
            faulty = np.flatnonzero(~np.isfinite(numbers))
            scaled = [] if faulty.size else ((numbers - column.mean) / column.std).tolist()
        else:
            known = {word: float(number) for number, word in enumerate(column.words)}
            cells = table.cells[column.name]
            faulty = np.array([row for row, word in enumerate(cells) if word not in known])
            scaled = [] if faulty.size else [known[word] for word in cells]
        if faulty.size:
            row = int(faulty[0])
            raise DataError(
                f"{table.path}: a row has no target",
                given=f"line {table.lines[row]}: {column.name} = {table.cells[column.name][row]!r}",
                expected="a finite number" if column.words is None else f"one of {', '.join(column.words[:12])}",
                mend="leave the row out",
            )
        return scaled

    def model(self, config: AnyConfig, device: Device) -> TableModel:
        """A fresh model."""
        classes = config.task == "classification"
        width = sum(column.width for column in config.columns)
        hidden = config.hidden
        return TableModel(
            nn.LinearConfig(width, hidden).init(device),
            tuple(nn.LayerNormConfig(hidden).init(device) for _ in range(config.layers)),
            tuple(nn.LinearConfig(hidden, hidden).init(device) for _ in range(config.layers)),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(hidden, len(config.predicts.words) if classes else 1).init(device),
            classes,
        )

    def example_inputs(self, config: AnyConfig, device: Device) -> tuple[Tensor]:
        """See `Recipe.example_inputs`: two rows of means, without any word."""
        width = sum(column.width for column in config.columns)
        return (Tensor.from_data(np.zeros((2, width), np.float32), device),)

    def metrics(self, config: AnyConfig) -> Sequence[Metric]:
        """See `Recipe.metrics`."""
        if config.task == "classification":
            return [AccuracyMetric(), LossMetric()]
        return [LossMetric(), RootMeanSquare(config.predicts.std), ExplainedVariance()]

    def predict(self, config: AnyConfig, model: Module, inputs: Sequence[str]) -> Iterator[Prediction]:
        """A number or a class for each row of each file; the target's column may be absent."""
        assert isinstance(model, TableModel)
        for path in inputs:
            table = Table.read(Path(path))
            rows = table.inputs(config.columns)
            for start in range(0, len(rows), PREDICT_BATCH):
                outputs = model.forward(Tensor.from_data(rows[start : start + PREDICT_BATCH], model.devices()[0]))
                shares = activation.softmax(outputs, 1) if model.classes else outputs
                for line, row in zip(table.lines[start:], shares.into_data().values, strict=False):
                    yield _prediction(config.predicts, f"{path}:{line}", row)


def _prediction(column: Column, source: str, row: NDArray[np.float32]) -> Prediction:
    if column.words is not None:
        return Prediction.of_class(source, column.words[int(row.argmax())], float(row.max()))
    value = float(row[0]) * column.std + column.mean
    return Prediction(source, f"{source}: {column.name} = {value:.6g}", {column.name: value})
