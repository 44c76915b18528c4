"""`burn-torch train text-classification`: topics of news from the mean of hashed words and pairs of words.

The data is AG News as it is published: train.csv, test.csv (class from 1 on, title, description, no header) and
classes.txt.  Any files of that form will do: one row a text, its class first.
Source: Joulin et al. 2016, Bag of Tricks for Efficient Text Classification, https://arxiv.org/abs/1607.01759.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from burn_torch import nn
from burn_torch.cli.csv_rows import read_rows, read_text
from burn_torch.cli.data_files import DataFiles
from burn_torch.cli.recipe import AnyLoader, Prediction, Recipe
from burn_torch.cli.recipe_model import RecipeModel, loader_pair
from burn_torch.cli.run_config import OptimizerSettings, RunConfig
from burn_torch.config import replace
from burn_torch.config.rules import Rules
from burn_torch.core.errors import DataError
from burn_torch.data import Dataset
from burn_torch.module import Module
from burn_torch.tensor import Device, Tensor, activation
from burn_torch.train import AccuracyMetric, ClassificationOutput, LossMetric, Metric

FILES: Final = DataFiles(
    "ag-news",
    {
        "train": ("train.csv", "train.csv.gz", "train_subset.csv", "train_subset.csv.gz"),
        "test": ("test.csv", "test.csv.gz"),
        "classes": ("classes.txt",),
    },
    "AG News is the folder data/ag_news_csv of github.com/mhjabreel/CharCnn_Keras (for research, not commercial)",
)
PREDICT_BATCH: Final = 256
PADDING: Final = 0


class TextClassificationConfig(RunConfig):
    """`buckets` rows of `d_model` numbers, one a hashed word or pair; the first `max_words` words of a text count."""

    recipe: Literal["text-classification"] = "text-classification"
    num_epochs: int = 6
    buckets: int = 131072
    d_model: int = 32
    max_words: int = 64
    dropout: float = 0.3
    optimizer: OptimizerSettings = OptimizerSettings(lr=2e-3)
    classes: tuple[str, ...] | None = None
    """Their names, from classes.txt."""

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        return super().rules().at_least(2, "buckets").at_least(1, "d_model", "max_words").below_one("dropout")


# -- texts as numbers ----------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Words and numbers in lower case; the data's leftovers of HTML become spaces."""
    return re.findall(r"[a-z0-9']+", re.sub(r"&\w+;|#\d+;|<[^>]*>|\\", " ", text).lower())


def features_of(text: str, max_words: int, buckets: int) -> NDArray[np.int64]:
    """The hashes of the words and of the pairs of neighbours, (2 * max_words,); 0 where there is none.

    A hash is a CRC-32, not Python's own, which differs from process to process.
    """
    words = words_of(text)[:max_words]
    grams = [*words, *(f"{one} {two}" for one, two in itertools.pairwise(words))]
    row = np.full(2 * max_words, PADDING, np.int64)
    row[: len(grams)] = [1 + zlib.crc32(gram.encode()) % (buckets - 1) for gram in grams]
    return row


@dataclass(frozen=True, eq=False)
class Text:
    """The features of a text, and its class."""

    features: NDArray[np.int64]
    label: int


class TextDataset(Dataset[Text]):
    """The texts of a file, hashed once."""

    def __init__(self, path: Path, config: TextClassificationConfig) -> None:
        classes = len(config.classes or ())
        features, labels = [], []
        for line, cells in read_rows(path):
            label = int(cells[0]) if cells[0].isdecimal() and len(cells[0]) < 10 else 0
            if not 1 <= label <= classes or len(cells) < 2:
                raise DataError(
                    f"{path}: this row does not have a class and a text",
                    given=f"line {line}: {', '.join(cells)[:60]}",
                    expected=f"a class of 1 to {classes}, then the text in one column or more",
                    mend="mend the line, or name all classes in classes.txt",
                )
            features.append(features_of(" ".join(cells[1:]), config.max_words, config.buckets))
            labels.append(label - 1)
        self.features = np.array(features, np.int32).reshape(len(features), 2 * config.max_words)
        self.labels = labels

    def get(self, index: int) -> Text:
        """The text at a position."""
        return Text(self.features[index], self.labels[index])

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TextBatch:
    """features (batch, grams) int, targets (batch,) int."""

    features: Tensor
    targets: Tensor


class TextBatcher:
    """Stacks texts."""

    def batch(self, items: Sequence[Text], device: Device) -> TextBatch:
        """One batch on `device`."""
        features = np.stack([item.features for item in items]).astype(np.int64)
        targets = np.array([item.label for item in items], np.int64)
        return TextBatch(Tensor.from_data(features, device), Tensor.from_data(targets, device))


# -- the model -----------------------------------------------------------------------------------------------


class BagOfWords(RecipeModel):
    """The mean of the rows of all words and pairs, then one linear layer."""

    embedding: nn.Embedding
    dropout: nn.Dropout
    output: nn.Linear

    def forward(self, features: Tensor) -> Tensor:
        """features (batch, grams) -> logits (batch, classes)."""
        rows = self.embedding.forward(features)
        there = features.not_equal(PADDING).cast(rows.dtype).unsqueeze_dim(2)
        total = (rows * there).sum_dim(1).squeeze_dim(1)
        mean = total / there.sum_dim(1).squeeze_dim(1).clamp_min(1.0)
        return self.output.forward(self.dropout.forward(mean))

    def measured(self, batch: TextBatch) -> ClassificationOutput:
        """Logits and their mean cross entropy."""
        logits = self.forward(batch.features)
        loss = nn.CrossEntropyLossConfig().init(logits.device).forward(logits, batch.targets)
        return ClassificationOutput(loss, logits, batch.targets)


class TextClassificationRecipe(Recipe):
    """See the module."""

    name = "text-classification"
    help = "topics of news: AG News"
    config = TextClassificationConfig
    inputs = "TEXT"

    def data_files(self) -> DataFiles:
        """See `Recipe.data_files`."""
        return FILES

    def prepare(self, config: TextClassificationConfig) -> TextClassificationConfig:
        """See `Recipe.prepare`: the names of the classes."""
        config = FILES.located(config)
        path = FILES.find(config.data_dir)["classes"]
        names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
        if len(names) < 2:
            raise DataError(
                f"{path}: too few classes", given=f"{len(names)}", expected="one name a line", mend="restore it"
            )
        return replace(config, classes=names)

    def loaders(self, config: TextClassificationConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """See `Recipe.loaders`."""
        paths = FILES.find(config.data_dir)
        train, test = (TextDataset(paths[name], config) for name in ("train", "test"))
        return loader_pair(config, device, train, test, TextBatcher())

    def model(self, config: TextClassificationConfig, device: Device) -> BagOfWords:
        """A fresh model; rows begin small, so that what was never seen says little."""
        rows = nn.EmbeddingConfig(config.buckets, config.d_model, initializer=nn.Initializer.Normal(mean=0.0, std=0.1))
        return BagOfWords(
            rows.init(device),
            nn.DropoutConfig(config.dropout).init(),
            nn.LinearConfig(config.d_model, len(config.classes or ())).init(device),
        )

    def example_inputs(self, config: TextClassificationConfig, device: Device) -> tuple[Tensor]:
        """See `Recipe.example_inputs`."""
        rows = [features_of(text, config.max_words, config.buckets) for text in ("a short text", "another one")]
        return (Tensor.from_data(np.stack(rows), device),)

    def metrics(self, config: TextClassificationConfig) -> Sequence[Metric]:
        """See `Recipe.metrics`."""
        return [AccuracyMetric(), LossMetric()]

    def predict(self, config: TextClassificationConfig, model: Module, inputs: Sequence[str]) -> Iterator[Prediction]:
        """The class of each text."""
        assert isinstance(model, BagOfWords)
        names = config.classes or ()
        for start in range(0, len(inputs), PREDICT_BATCH):
            texts = inputs[start : start + PREDICT_BATCH]
            rows = np.stack([features_of(text, config.max_words, config.buckets) for text in texts])
            logits = model.forward(Tensor.from_data(rows, model.devices()[0]))
            for text, row in zip(texts, activation.softmax(logits, 1).into_data().values, strict=True):
                yield Prediction.of_class(text, names[int(row.argmax())], float(row.max()))


RECIPE = TextClassificationRecipe()
