"""GPT-2: a language model in one file.

Run as a program it learns the characters of its own source, then goes on writing.  A minute on a CPU.

    python examples/gpt2/gpt2.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import burn_torch
from burn_torch import Config, Device, Module, Param, StepScope, Tensor
from burn_torch.nn import (
    CrossEntropyLoss,
    Dropout,
    DropoutConfig,
    Embedding,
    Gelu,
    Initializer,
    LayerNorm,
    LayerNormConfig,
    Linear,
)
from burn_torch.optim import AdamWConfig, GradientsParams
from burn_torch.tensor import functional, s
from burn_torch.tensor.activation import softmax
from burn_torch.tensor.options import AttentionModuleOptions
from burn_torch.train import fold

STD = 0.02


class Gpt2Config(Config):
    """The 124-million-parameter model; the paper's other sizes change d_model, n_heads and n_layers.

    dropout 0.1: as in the paper; 0 where the text is read only once.
    """

    vocab_size: int = 50257
    context: int = 1024
    d_model: int = 768
    n_heads: int = 12
    n_layers: int = 12
    dropout: float = 0.1

    def init(self, device: Device) -> Gpt2:
        """A fresh model: weights normal with deviation 0.02, less at the ends of residual paths, biases 0."""
        norm = LayerNormConfig(self.d_model)
        normal = Initializer.Normal(mean=0.0, std=STD)
        return Gpt2(
            tokens=Embedding(normal.init((self.vocab_size, self.d_model), device)),
            positions=normal.init((self.context, self.d_model), device),
            dropout=DropoutConfig(self.dropout).init(),
            blocks=tuple([self._block(device) for _ in range(self.n_layers)]),
            norm=norm.init(device),
        )

    def _block(self, device: Device) -> Block:
        def linear(d_input: int, d_output: int, std: float) -> Linear:
            weight = Initializer.Normal(mean=0.0, std=std).init((d_input, d_output), device)
            return Linear(weight, Initializer.Zeros.init((d_output,), device))

        d, last = self.d_model, STD / (2 * max(self.n_layers, 1)) ** 0.5  # the sum of all paths keeps its variance
        return Block(
            norm_1=LayerNormConfig(d).init(device),
            qkv=linear(d, 3 * d, STD),
            projection=linear(d, d, last),
            norm_2=LayerNormConfig(d).init(device),
            inner=linear(d, 4 * d, STD),
            outer=linear(4 * d, d, last),
            activation=Gelu.new_approximate(),
            dropout=DropoutConfig(self.dropout).init(),
            n_heads=self.n_heads,
        )


class Block(Module):
    """Causal self-attention, then a feed-forward network, each behind a norm and beside a residual path.

    Shapes: x (batch, seq, d_model) -> (batch, seq, d_model).
    """

    norm_1: LayerNorm
    qkv: Linear
    projection: Linear
    norm_2: LayerNorm
    inner: Linear
    outer: Linear
    activation: Gelu
    dropout: Dropout
    n_heads: int

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        x = x + self.dropout.forward(self.projection.forward(self._attend(self.norm_1.forward(x))))
        inner = self.activation.forward(self.inner.forward(self.norm_2.forward(x)))
        return x + self.dropout.forward(self.outer.forward(inner))

    def _attend(self, x: Tensor) -> Tensor:
        batch, seq, d_model = x.shape
        heads = (batch, seq, self.n_heads, d_model // self.n_heads)
        query, key, value = (part.reshape(heads).swap_dims(1, 2) for part in self.qkv.forward(x).chunk(3, 2))
        read = functional.attention(query, key, value, options=AttentionModuleOptions(is_causal=True))
        return read.swap_dims(1, 2).reshape((batch, seq, d_model))


class Gpt2(Module):
    """A stack of blocks between the embedding of tokens and its transpose, which gives the scores of the next token.

    Shapes: tokens (batch, seq) of integers, seq at most `context` -> logits (batch, seq, vocab_size).
    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """

    tokens: Embedding
    positions: Param
    dropout: Dropout
    blocks: tuple[Block, ...]
    norm: LayerNorm

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of the token after each one."""
        x = self.tokens.forward(tokens) + self.positions.val().slice_dim(0, s[: tokens.shape[1]])
        x = self.dropout.forward(x)
        for block in self.blocks:
            x = block.forward(x)
        return functional.linear(self.norm.forward(x), self.tokens.weight.val().transpose())

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of the targets, each the token after its own place.  Shapes: (batch, seq) -> (1,)."""
        logits = self.forward(tokens)
        batch, seq, vocab = logits.shape
        count = batch * seq
        return CrossEntropyLoss.new(None, logits.device).forward(
            logits.reshape((count, vocab)), targets.reshape((count,))
        )

    def generate(self, tokens: list[int], count: int, rng: np.random.Generator) -> list[int]:
        """The tokens and `count` more, each drawn by its probability after those before it."""
        context, device = self.positions.shape[0], self.positions.device
        for _ in range(count):
            seen = Tensor.from_data(np.array([tokens[-context:]]), device)
            chances = softmax(self.forward(seen), 2).into_data().array[0, -1].astype(np.float64)
            tokens = [*tokens, int(rng.choice(len(chances), p=chances / chances.sum()))]
        return tokens


# -- the program --------------------------------------------------------------------------------------------
def train(config: Gpt2Config, text: np.ndarray, steps: int, device: Device, *, lr: float = 2e-3) -> tuple[Gpt2, float]:
    """Learns batches of 16 pieces of a text of tokens; gives the model and the last loss."""
    burn_torch.seed(1)
    rng = np.random.default_rng(1)
    model, optim, last = config.init(device), AdamWConfig(beta_2=0.95, weight_decay=0.1).init(), float("nan")
    for step in range(steps):
        starts = rng.integers(0, len(text) - config.context, 16)
        pieces = np.stack([text[start : start + config.context + 1] for start in starts])
        with StepScope(fold(1, step), model):
            loss = model.loss(Tensor.from_data(pieces[:, :-1], device), Tensor.from_data(pieces[:, 1:], device))
            gradients = GradientsParams.from_grads(loss.backward(), model)
        model, optim = optim.step(lr * min(1.0, 1.25 * (1 - step / steps)), model, gradients)
        if step % 20 == 0 or step == steps - 1:
            last = float(loss.into_scalar())
            print(f"step {step:4d}  loss {last:.3f}")
    return model, last


def main() -> None:
    """Trains on this file and prints how the model would go on."""
    source = Path(__file__).read_text(encoding="utf-8")
    letters = sorted(set(source))
    text = np.array([letters.index(letter) for letter in source], np.int64)
    config = Gpt2Config(vocab_size=len(letters), context=64, d_model=96, n_heads=4, n_layers=3, dropout=0.0)
    model, _ = train(config, text, 300, Device.cpu().autodiff())
    written = model.valid().generate([letters.index(letter) for letter in "def "], 200, np.random.default_rng(1))
    print("".join(letters[token] for token in written))


if __name__ == "__main__":
    main()
