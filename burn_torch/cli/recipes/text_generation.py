"""`burn-torch train text-generation`: a small transformer that goes on with a text, byte by byte or token by token.

The data is one text file, Tiny Shakespeare by default: the first 90 % train, the rest validates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from burn_torch import nn
from burn_torch.cli.csv_rows import read_text
from burn_torch.cli.data_files import DataFiles
from burn_torch.cli.recipe import AnyConfig, AnyLoader, Prediction, Recipe
from burn_torch.cli.recipe_model import RecipeModel, loader_pair
from burn_torch.cli.run_config import OptimizerSettings, RunConfig
from burn_torch.cli.tokens import BYTES, Tokenizer, learn_merges
from burn_torch.config import replace
from burn_torch.config.rules import Rules
from burn_torch.core.errors import DataError
from burn_torch.data import DataLoader, Dataset
from burn_torch.module import Module
from burn_torch.optim import AdamWConfig, GradientClippingConfig
from burn_torch.tensor import Device, Tensor
from burn_torch.train import LossInput, LossMetric, Metric, MetricMetadata, NumericMetric, Reading

FILES: Final = DataFiles(
    "tiny-shakespeare",
    {"text": ("input.txt", "input.txt.gz")},
    "Tiny Shakespeare is data/tinyshakespeare/input.txt of github.com/karpathy/char-rnn; any text in a file input.txt"
    " will do",
)


class TextGenerationConfig(RunConfig):
    """A transformer of `n_layers` over `context` tokens; `temperature`, `top_k` and `length` are for predicting."""

    recipe: Literal["text-generation"] = "text-generation"
    num_epochs: int = 3
    batch_size: int = 16
    tokens: Literal["bytes", "bpe"] = "bytes"
    vocabulary: int = 512
    """How many tokens there are with bpe; 256 of them are the bytes."""
    context: int = 64
    d_model: int = 128
    n_heads: int = 4
    n_layers: int = 2
    dropout: float = 0.0
    optimizer: OptimizerSettings = OptimizerSettings(
        lr=2e-3, algorithm=AdamWConfig(beta_2=0.99, weight_decay=0.05, grad_clipping=GradientClippingConfig.Norm(1.0))
    )
    temperature: float = 0.8
    top_k: int = 40
    length: int = 300
    """The number of tokens that are added to a prompt."""
    merges: tuple[tuple[int, int], ...] | None = None
    """The pairs that bpe merges, learnt from the training text."""

    def rules(self) -> Rules:
        """See `RunConfig.rules`."""
        rules = super().rules().at_least(BYTES + 1, "vocabulary").at_least(1, "context", "d_model", "n_heads", "top_k")
        rules = rules.at_least(0, "n_layers", "length").divides("n_heads", "d_model").below_one("dropout")
        return rules.positive("temperature")


# -- the data --------------------------------------------------------------------------------------------------


class Windows(Dataset[NDArray[np.int64]]):
    """Runs of `context` + 1 tokens, each of which begins where the one before has its last token."""

    def __init__(self, tokens: Sequence[int], context: int) -> None:
        self.tokens = np.array(tokens, np.int32)
        self.context = context
        if len(self) < 1:
            raise DataError(
                "the text is too short",
                given=f"{len(tokens)} tokens in a part of it",
                expected=f"context + 1 = {context + 1} tokens at least",
                mend="give a longer text, or a smaller context",
            )

    def get(self, index: int) -> NDArray[np.int64]:
        """The window at a position."""
        start = index * self.context
        return self.tokens[start : start + self.context + 1].astype(np.int64)

    def __len__(self) -> int:
        return max(len(self.tokens) - 1, 0) // self.context


@dataclass(frozen=True)
class WindowBatch:
    """inputs and targets (batch, context) int: each target is the token behind its input."""

    inputs: Tensor
    targets: Tensor
    num_bytes: int
    """How many bytes the targets stand for."""


class WindowBatcher:
    """Stacks windows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.lengths = np.array([len(text) for text in tokenizer.texts])

    def batch(self, items: Sequence[NDArray[np.int64]], device: Device) -> WindowBatch:
        """One batch on `device`."""
        windows = np.stack(items)
        inputs, targets = (Tensor.from_data(np.ascontiguousarray(x), device) for x in (windows[:, :-1], windows[:, 1:]))
        return WindowBatch(inputs, targets, int(self.lengths[windows[:, 1:]].sum()))


# -- the model -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextOutput:
    """The mean loss of a batch over its tokens, in nats."""

    loss: Tensor
    num_tokens: int
    num_bytes: int

    def adapt(self, kind: type[object]) -> object:
        """The input of the loss metric."""
        return LossInput(self.loss, self.num_tokens) if kind is LossInput else None


class BitsPerByte(NumericMetric):
    """The loss in bits a byte of text: comparable between tokens of different lengths."""

    name = "Bits per Byte"
    higher_is_better = False

    def measure(self, item: TextOutput, metadata: MetricMetadata) -> Reading:
        """Those of a batch."""
        loss = item.loss.no_grad()
        return Reading.of_total(loss * (item.num_tokens / math.log(2)), item.num_bytes)


class TextModel(RecipeModel):
    """Token and position embeddings, a transformer that sees only what lies behind, and logits of the next token."""

    tokens: nn.Embedding
    positions: nn.Embedding
    transformer: nn.TransformerEncoder
    norm: nn.LayerNorm
    output: nn.Linear

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (batch, seq) -> logits (batch, seq, vocabulary)."""
        batch, seq = tokens.dims()
        device = tokens.device
        places = Tensor.arange(range(seq), device).reshape([1, seq])
        x = self.tokens.forward(tokens) + self.positions.forward(places)
        hidden = nn.TransformerEncoderInput(x, attention=nn.generate_autoregressive_mask(batch, seq, device))
        return self.output.forward(self.norm.forward(self.transformer.forward(hidden)))

    def measured(self, batch: WindowBatch) -> TextOutput:
        """The loss of a batch."""
        logits = self.forward(batch.inputs)
        count, vocabulary = batch.targets.spec.numel, logits.dims()[2]
        loss = nn.CrossEntropyLossConfig().init(logits.device)
        mean = loss.forward(logits.reshape([count, vocabulary]), batch.targets.reshape([count]))
        return TextOutput(mean, count, batch.num_bytes)


class TextGenerationRecipe(Recipe):
    """See the module."""

    name = "text-generation"
    help = "a text that is gone on with: Tiny Shakespeare"
    config = TextGenerationConfig
    inputs = "PROMPT"

    def data_files(self) -> DataFiles:
        """See `Recipe.data_files`."""
        return FILES

    def prepare(self, config: TextGenerationConfig) -> TextGenerationConfig:
        """See `Recipe.prepare`: the merges of byte pairs."""
        config = FILES.located(config)
        if config.tokens == "bytes":
            return config
        train, _ = self.texts(config)
        return replace(config, merges=learn_merges(train.encode(), config.vocabulary - BYTES))

    def texts(self, config: TextGenerationConfig) -> tuple[str, str]:
        """The first 90 % of the characters, and the rest."""
        text = read_text(FILES.find(config.data_dir)["text"])
        border = len(text) * 9 // 10
        return text[:border], text[border:]

    def loaders(self, config: TextGenerationConfig, device: Device) -> tuple[AnyLoader, AnyLoader]:
        """See `Recipe.loaders`."""
        tokenizer = Tokenizer(config.merges or ())
        train, valid = (Windows(tokenizer.encode(text), config.context) for text in self.texts(config))
        return loader_pair(config, device, train, valid, WindowBatcher(tokenizer))

    def evaluation(self, config: AnyConfig, device: Device, *, given: bool) -> Mapping[str, AnyLoader]:
        """See `Recipe.evaluation`: of another text all of it."""
        if not given:
            return super().evaluation(config, device, given=False)
        tokenizer = Tokenizer(config.merges or ())
        windows = Windows(tokenizer.encode("".join(self.texts(config))), config.context)
        return {"given": DataLoader(windows, WindowBatcher(tokenizer), batch_size=config.batch_size, device=device)}

    def model(self, config: TextGenerationConfig, device: Device) -> TextModel:
        """A fresh model."""
        size = len(Tokenizer(config.merges or ()))
        small = nn.Initializer.Normal(mean=0.0, std=0.02)
        transformer = nn.TransformerEncoderConfig(
            config.d_model, 4 * config.d_model, config.n_heads, config.n_layers, dropout=config.dropout, norm_first=True
        )
        return TextModel(
            nn.EmbeddingConfig(size, config.d_model, initializer=small).init(device),
            nn.EmbeddingConfig(config.context, config.d_model, initializer=small).init(device),
            transformer.init(device),
            nn.LayerNormConfig(config.d_model).init(device),
            nn.LinearConfig(config.d_model, size, bias=False).init(device),
        )

    def example_inputs(self, config: TextGenerationConfig, device: Device) -> tuple[Tensor]:
        """See `Recipe.example_inputs`: two windows of spaces."""
        return (Tensor.from_data(np.full((2, config.context), ord(" "), np.int64), device),)

    def metrics(self, config: TextGenerationConfig) -> Sequence[Metric]:
        """See `Recipe.metrics`."""
        return [LossMetric(), BitsPerByte()]

    def predict(self, config: TextGenerationConfig, model: Module, inputs: Sequence[str]) -> Iterator[Prediction]:
        """How each prompt goes on; the seed of the settings decides which way."""
        assert isinstance(model, TextModel)
        for prompt in inputs:
            text = prompt + self.generate(config, model, prompt)
            yield Prediction(prompt, text, {"text": text})

    def generate(self, config: TextGenerationConfig, model: TextModel, prompt: str) -> str:
        """Returns what is added to a prompt, drawn from the `top_k` likeliest tokens."""
        tokenizer = Tokenizer(config.merges or ())
        tokens = tokenizer.encode(prompt) or tokenizer.encode("\n")
        random = np.random.Generator(np.random.Philox(config.seed))
        new: list[int] = []
        for _ in range(config.length):
            window = np.array([(tokens + new)[-config.context :]], np.int64)
            logits = model.forward(Tensor.from_data(window, model.devices()[0])).into_data().values[0, -1]
            new.append(draw(logits.astype(np.float64), config.temperature, config.top_k, random))
        return tokenizer.decode(new)


def draw(logits: NDArray[np.float64], temperature: float, top_k: int, random: np.random.Generator) -> int:
    """A token drawn from the softmax of the `top_k` highest logits, divided by the temperature."""
    chosen = np.argsort(-logits, kind="stable")[:top_k]
    weights = np.exp((logits[chosen] - logits[chosen[0]]) / temperature)
    return int(chosen[np.searchsorted(np.cumsum(weights), random.random() * weights.sum(), side="right")])


RECIPE = TextGenerationRecipe()
