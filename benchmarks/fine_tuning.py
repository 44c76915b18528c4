"""Costs and losses of training for few bits, and of tuning a few parameters.

    python benchmarks/fine_tuning.py qat [--mnist FOLDER]        points lost at int8, on digits and MNIST
    python benchmarks/fine_tuning.py lora --ag-news FOLDER       points that LoRA stays behind full tuning
    python benchmarks/fine_tuning.py memory full|qlora [--tiny]  the peak of compiled steps of a Llama of 1B, in bf16

qat: a network trained in floats, and one trained with `fake_quantize_weights` for as long, both quantised to int8 with
a scale a channel.
lora: a transformer that has learnt the classes of one half of the texts, or to fill in masked words, is tuned to the
classes: all of it, or adapters of rank 8 on the matrices of attention, with the head.
memory: AdamW, 1 x 1024 tokens, the state donated; --tiny has two small layers, on any device.
Everything is drawn with fixed seeds.  One GPU, or the CPU where there is none.
"""

from __future__ import annotations

import argparse
import collections
import csv
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import burn_torch
from burn_torch import Device, DType, Module, Param, Tensor, nn
from burn_torch.cli.recipes.text_classification import words_of
from burn_torch.data.source.digits import DigitsDataset
from burn_torch.data.source.mnist import MnistDataset
from burn_torch.module import Lora, ParamGroup, QLora, Quantizer
from burn_torch.nn import Initializer
from burn_torch.optim import AdamWConfig
from burn_torch.tensor import Calibration, QuantLevel, QuantScheme, QuantValue, activation, functional
from burn_torch.tensor.options import AttentionModuleOptions
from burn_torch.transform import compile, value_and_grad

DEVICE = (Device.cuda(0) if torch.cuda.is_available() else Device.cpu()).autodiff()
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


def batches(x: np.ndarray, y: np.ndarray, size: int, epochs: int, seed: int) -> Batches:
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for first in range(0, len(x) - size + 1, size):
            part = order[first : first + size]
            yield x[part], y[part]


def trained(model: Any, loss_of: Callable[..., Tensor], data: Batches, steps: int, lr: float) -> Any:
    """The model after one pass over `data`: AdamW, a rate that rises over a tenth of the steps and falls to 0."""

    @compile
    def step(model: Any, optim: Any, x: Tensor, y: Tensor, rate: float) -> tuple[Any, ...]:
        loss, grads = value_and_grad(loss_of)(model, x, y)
        return (loss, *optim.step(rate, model, grads))

    optim = AdamWConfig(weight_decay=0.01).init()
    for number, (x, y) in enumerate(data):
        rate = lr * min((number + 1) / (0.1 * steps), 1.0 - number / steps)
        _, model, optim = step(model, optim, Tensor.from_data(x, DEVICE), Tensor.from_data(y, DEVICE), rate)
    return model


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.CrossEntropyLoss.new(None, logits.device).forward(logits, targets)


def points(model: Any, x: np.ndarray, y: np.ndarray, size: int = 400) -> float:
    """The percentage of items whose class is right."""
    forward, right, device = compile(lambda model, x: model.forward(x)), 0, DEVICE.inner()
    model = model.valid()
    for first in range(0, len(x), size):
        logits = np.asarray(forward(model, Tensor.from_data(x[first : first + size], device)))
        right += int((logits.argmax(1) == y[first : first + size]).sum())
    return 100 * right / len(x)


# -- training for few bits -----------------------------------------------------------------------------
class Images(Module):
    """Two convolutions, two linear layers.  Shapes: (batch, 1, side, side) -> (batch, 10)."""

    first: nn.Conv2d
    second: nn.Conv2d
    third: nn.Linear
    last: nn.Linear

    @staticmethod
    def new(side: int) -> Images:
        left = (side - 4) // 2
        return Images(
            nn.Conv2dConfig((1, 16), (3, 3)).init(DEVICE),
            nn.Conv2dConfig((16, 32), (3, 3)).init(DEVICE),
            nn.LinearConfig(32 * left * left, 64).init(DEVICE),
            nn.LinearConfig(64, 10).init(DEVICE),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = activation.relu(self.second.forward(activation.relu(self.first.forward(x))))
        x = functional.max_pool2d(x, (2, 2), (2, 2)).flatten(1)
        return self.last.forward(activation.relu(self.third.forward(x)))


def qat(mnist: Path | None) -> Iterator[dict[str, object]]:
    tasks: list[tuple[str, Any, Any, float, int]] = [("digits", DigitsDataset.train(), DigitsDataset.test(), 16.0, 30)]
    if mnist is not None:
        tasks.append(("mnist", MnistDataset.train(mnist), MnistDataset.test(mnist), 255.0, 3))
    channels = QuantScheme(QuantValue.Q8S, QuantLevel.per_channel(0))
    columns = QuantScheme(QuantValue.Q8S, QuantLevel.per_channel(-1))
    quantizers = [
        Quantizer(Calibration.MinMax, channels).set_param_group(ParamGroup.from_regex(r"(first|second)\.weight$")),
        Quantizer(Calibration.MinMax, columns).set_param_group(ParamGroup.from_regex(r"(third|last)\.weight$")),
    ]

    def faked(model: Any) -> Any:
        for quantizer in quantizers:
            model = model.fake_quantize_weights(quantizer)
        return model

    def quantized(model: Any) -> Any:
        for quantizer in quantizers:
            model = model.quantize_weights(quantizer)
        return model

    for name, train, test, largest, epochs in tasks:
        x, held = ((d.images[:, None] / largest).astype(np.float32) for d in (train, test))
        y, expected = (np.asarray(d.labels).astype(np.int64) for d in (train, test))
        for seed in (1, 2, 3):
            start, size = time.perf_counter(), 64
            steps = epochs * (len(x) // size)
            models = []
            for form in (lambda model: model, faked):
                burn_torch.seed(seed)
                model = Images.new(x.shape[-1])
                loss_of = lambda model, x, y, form=form: cross_entropy(form(model).forward(x), y)  # noqa: E731
                models.append(trained(model, loss_of, batches(x, y, size, epochs, seed), steps, 2e-3))
            plain, aware = models
            yield {
                "task": name, "seed": seed, "floats": points(plain, held, expected),
                "quantised after": points(quantized(plain), held, expected),
                "quantised, trained for it": points(quantized(aware), held, expected),
                "seconds": time.perf_counter() - start,
            }  # fmt: skip


# -- tuning a few parameters ---------------------------------------------------------------------------
WORDS, LENGTH, MASK = 12_000, 64, 1


class Texts(Module):
    """A transformer over words.  Shapes: words (batch, LENGTH) -> (batch, 4); `filled` gives a score for each word."""

    words: nn.Embedding
    places: Param
    encoder: nn.TransformerEncoder
    norm: nn.LayerNorm
    head: nn.Linear

    @staticmethod
    def new(d_model: int = 128, layers: int = 3) -> Texts:
        normal = Initializer.Normal(mean=0.0, std=0.05)
        encoder = nn.TransformerEncoderConfig(d_model, 4 * d_model, 4, layers, dropout=0.1, norm_first=True)
        return Texts(
            nn.EmbeddingConfig(WORDS, d_model, initializer=normal).init(DEVICE),
            normal.init((LENGTH, d_model), DEVICE),
            encoder.init(DEVICE),
            nn.LayerNormConfig(d_model).init(DEVICE),
            nn.LinearConfig(d_model, 4).init(DEVICE),
        )

    def read(self, words: Tensor) -> Tensor:
        x = self.words.forward(words) + self.places.val()
        return self.norm.forward(self.encoder.forward(nn.TransformerEncoderInput(x, padding=words.equal(0))))

    def forward(self, words: Tensor) -> Tensor:
        there = words.greater(0).float().unsqueeze_dim(2)
        return self.head.forward((self.read(words) * there).sum_dim(1).flatten(1) / there.sum_dim(1).flatten(1))

    def filled(self, words: Tensor) -> Tensor:
        x = self.read(words).flatten(0, 1)
        return functional.linear(x, self.words.weight.val().transpose())


def texts(folder: Path, known: dict[str, int] | None) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    name = "test.csv.gz" if known else "train_subset.csv.gz"
    with gzip.open(folder / name, "rt", encoding="utf-8") as file:
        rows = [(int(row[0]) - 1, words_of(" ".join(row[1:]))) for row in csv.reader(file)]
    if known is None:
        counts = collections.Counter(word for _, words in rows for word in words)
        known = {word: 3 + place for place, (word, _) in enumerate(counts.most_common(WORDS - 3))}
    numbers = np.zeros((len(rows), LENGTH), np.int64)
    for row, (_, words) in zip(numbers, rows, strict=True):
        row_of_words = [known.get(word, 2) for word in words[:LENGTH]]
        row[: len(row_of_words)] = row_of_words
    return numbers, np.array([label for label, _ in rows]), known


def lora(folder: Path, epochs: int, limit: int) -> Iterator[dict[str, object]]:
    x, y, known = texts(folder, None)
    held, expected = (part[:limit] for part in texts(folder, known)[:2])
    order = np.random.default_rng(0).permutation(len(x))[:limit]
    x, y = x[order], y[order]
    half, size = len(x) // 2, 64
    adapters = Lora(rank=8, alpha=16.0).set_param_group(ParamGroup.from_regex(r"(query|key|value|output)\.weight$"))

    def masked(words: np.ndarray) -> Batches:
        rng = np.random.default_rng(5)
        for part, _ in batches(words, words, size, 4 * epochs, 6):
            hidden = (rng.random(part.shape) < 0.2) & (part > 0)
            yield np.where(hidden, MASK, part), np.where(hidden, part, 0)

    def class_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model.forward(x), y)

    def filling_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        config = nn.CrossEntropyLossConfig(pad_tokens=(0,))
        return config.init(x.device).forward(model.filled(x), y.flatten(0, 1))

    for kind in ("classes of a half", "masked words"):
        start = time.perf_counter()
        burn_torch.seed(3)
        if kind == "masked words":
            base = trained(Texts.new(), filling_loss, masked(x), 4 * epochs * (len(x) // size), 1e-3)
            mine = slice(0, len(x))
        else:
            data = batches(x[:half], y[:half], size, epochs, 1)
            base, mine = trained(Texts.new(), class_loss, data, epochs * (half // size), 1e-3), slice(half, len(x))
        row: dict[str, object] = {"pre-trained on": kind}
        fresh = nn.LinearConfig(128, 4).init(DEVICE)
        base = Texts(base.words, base.places, base.encoder, base.norm, fresh)
        for name, lr in (("full", 5e-4), ("lora", 3e-3)):
            model: Any = base
            if name == "lora":
                model = base.apply_lora(adapters).unfreeze_group(ParamGroup.from_path("head"))
                count = sum(param.numel for _, param in model.named_params() if param.require_grad)
                row["share trained"] = count / base.num_params()
            data = batches(x[mine], y[mine], size, epochs, 2)
            tuned = trained(model, class_loss, data, epochs * (len(x[mine]) // size), lr)
            row[name] = points(tuned, held, expected)
        yield row | {"seconds": time.perf_counter() - start}


# -- memory ----------------------------------------------------------------------------------------------
class LlamaBlock(Module):
    """Attention with fewer keys than queries, and a gated network."""

    before: nn.RmsNorm
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    between: nn.RmsNorm
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear

    def forward(self, x: Tensor, rotary: nn.RotaryEncoding, d_head: int) -> Tensor:
        batch, seq, d_model = x.shape
        y = self.before.forward(x)

        def heads(layer: nn.Linear) -> Tensor:
            z = layer.forward(y)
            return z.reshape((batch, seq, z.shape[2] // d_head, d_head)).swap_dims(1, 2)

        query, key, value = rotary.forward(heads(self.query)), rotary.forward(heads(self.key)), heads(self.value)
        times = query.shape[1] // key.shape[1]
        key, value = (part.unsqueeze_dim(2).repeat_dim(2, times).flatten(1, 2) for part in (key, value))
        read = functional.attention(query, key, value, options=AttentionModuleOptions(is_causal=True))
        x = x + self.output.forward(read.swap_dims(1, 2).reshape((batch, seq, d_model)))
        y = self.between.forward(x)
        return x + self.down.forward(activation.silu(self.gate.forward(y)) * self.up.forward(y))


class Llama(Module):
    """Shapes: tokens (batch, seq) -> logits (batch, seq, vocab); the embedding's transpose gives the scores."""

    tokens: nn.Embedding
    blocks: tuple[LlamaBlock, ...]
    norm: nn.RmsNorm
    rotary: nn.RotaryEncoding
    d_head: int

    @staticmethod
    def new(vocab: int, d_model: int, d_ff: int, layers: int, d_head: int, kv: int) -> Llama:
        def linear(d_input: int, d_output: int) -> nn.Linear:
            return nn.LinearConfig(d_input, d_output, bias=False).init(DEVICE)

        def norm() -> nn.RmsNorm:
            return nn.RmsNormConfig(d_model).init(DEVICE)

        blocks = [
            LlamaBlock(norm(), linear(d_model, d_model), linear(d_model, kv), linear(d_model, kv),
                       linear(d_model, d_model), norm(), linear(d_model, d_ff), linear(d_model, d_ff),
                       linear(d_ff, d_model)).map_params(lambda param: param.map(lambda w: w.cast(DType.BF16)))
            for _ in range(layers)
        ]  # fmt: skip
        normal = Initializer.Normal(mean=0.0, std=0.02)
        embedding = nn.EmbeddingConfig(vocab, d_model, initializer=normal).init(DEVICE)
        rest = (part.map_params(lambda param: param.map(lambda w: w.cast(DType.BF16))) for part in (embedding, norm()))
        embedding, last = rest  # type: ignore[assignment]  # in order
        return Llama(embedding, tuple(blocks), last, nn.RotaryEncodingConfig(1024, d_head).init(DEVICE), d_head)  # type: ignore[arg-type]  # in order

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens.forward(tokens)
        for block in self.blocks:
            x = block.forward(x, self.rotary, self.d_head)
        x = self.norm.forward(x).flatten(0, 1)
        return cross_entropy(functional.linear(x, self.tokens.weight.val().transpose()), targets.flatten(0, 1))


def memory(kind: str, tiny: bool) -> dict[str, object]:
    burn_torch.seed(1)
    model: Any = Llama.new(500, 64, 128, 2, 16, 32) if tiny else Llama.new(128_256, 2048, 8192, 16, 64, 512)
    whole = model.num_params()
    if kind == "qlora":
        layers = ParamGroup.from_regex(r"blocks\.")
        scheme = QuantScheme(QuantValue.Q4S, QuantLevel.per_block((64, 1)))
        quantizer = Quantizer(Calibration.MinMax, scheme).set_param_group(ParamGroup.from_regex(r"blocks.*\.weight$"))
        model = model.apply_qlora(QLora(Lora(rank=16, alpha=32.0).set_param_group(layers), quantizer))

    @compile(donate=("model", "optim"))
    def step(model: Any, optim: Any, tokens: Tensor, targets: Tensor) -> tuple[Any, ...]:
        loss, grads = value_and_grad(lambda model: model.loss(tokens, targets))(model)
        return (loss, *optim.step(1e-4, model, grads))

    optim: Any = AdamWConfig().init()
    rng = np.random.default_rng(1)
    vocab, seq = (500, 32) if tiny else (128_256, 1024)
    losses = []
    for number in range(6):
        tokens = rng.integers(0, vocab, (1, seq + 1))
        loss, model, optim = step(
            model, optim, Tensor.from_data(tokens[:, :-1], DEVICE), Tensor.from_data(tokens[:, 1:], DEVICE)
        )
        losses.append(float(loss.into_scalar()))
        if torch.cuda.is_available() and number < 3:  # what planning and the first steps took beside is not counted
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    gpu = torch.cuda.is_available()
    return {
        "kind": kind, "parameters": whole, "trained": sum(p.numel for _, p in model.named_params() if p.require_grad),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if gpu else 0.0,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if gpu else 0.0, "losses": losses,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("part", choices=("qat", "lora", "memory"))
    add("kind", nargs="?", choices=("full", "qlora"), default="full")
    add("--mnist", type=Path)
    add("--ag-news", type=Path)
    add("--tiny", action="store_true")
    add("--epochs", type=int, default=4)
    wanted = parser.parse_args()
    if wanted.part == "lora" and wanted.ag_news is None:
        parser.error("lora reads --ag-news FOLDER, with train_subset.csv.gz and test.csv.gz")
    rows: Any = (
        [memory(wanted.kind, wanted.tiny)] if wanted.part == "memory"
        else qat(wanted.mnist) if wanted.part == "qat"
        else lora(wanted.ag_news, wanted.epochs, 192 if wanted.tiny else 1_000_000)
    )  # fmt: skip
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
