"""A small language model in plain PyTorch, trained as it is and with the fused kernels of `burn_kernels.torch`.

    python examples/kernels_lm.py [STEPS]

`patch` exchanges its norms and its loss in place, `check` compares what it runs with float64, and both trainings follow
the same curve.  On a GPU kernels run, on a CPU their references.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

import burn_kernels.torch as bk

TEXT = """
the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. how vexingly quick daft zebras
jump. the five boxing wizards jump quickly. sphinx of black quartz, judge my vow. a mad boxer shot a quick, gloved jab
to the jaw of his dizzy opponent.
"""
LETTERS = sorted(set(TEXT))
SEQ = 32


class Block(nn.Module):
    """Attention and a gated MLP, each after a norm and around a residual, as in Llama."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(size, eps=1e-6), nn.RMSNorm(size, eps=1e-6)
        self.qkv, self.out = nn.Linear(size, 3 * size, bias=False), nn.Linear(size, size, bias=False)
        self.gate, self.up = nn.Linear(size, 2 * size, bias=False), nn.Linear(size, 2 * size, bias=False)
        self.down = nn.Linear(2 * size, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x (batch, seq, size) -> the same."""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(bk.functional.swiglu(self.gate(y), self.up(y)))  # type: ignore[no-any-return]  # modules


class LanguageModel(nn.Module):
    """Predicts the next letter; called with letters, it returns the loss of predicting them."""

    def __init__(self, size: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(len(LETTERS), size), nn.Parameter(0.02 * torch.randn(SEQ, size))
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(size, eps=1e-6), nn.Linear(size, len(LETTERS), bias=False)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Shapes: letters (batch, seq + 1) -> ()."""
        logits = self.head(self.norm(self.blocks(self.embed(letters[:, :-1]) + self.place)))
        return self.loss(logits.flatten(0, 1), letters[:, 1:].flatten())  # type: ignore[no-any-return]  # modules


def batches(steps: int, device: str) -> list[torch.Tensor]:
    """Pieces of the text, the same in every run."""
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, len(numbers) - SEQ - 1, (steps, 8), generator=generator)
    return [torch.stack([numbers[at : at + SEQ + 1] for at in row]).to(device) for row in starts.tolist()]


def train(steps: int, *, patched: bool, device: str = "cpu", backend: str | None = None) -> list[float]:
    """Trains a new model, compiled if a `backend` of torch.compile is named, and returns its losses."""
    torch.manual_seed(0)
    model = LanguageModel().to(device)
    if patched:
        print(bk.patch(model))
        print(bk.check(model, batches(1, device)[0]))
    optimizer = bk.AdamW(model.parameters(), lr=3e-3, clip_norm=1.0) if patched else None
    plain = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = model if backend is None else torch.compile(model, backend=backend)
    losses = []
    for letters in batches(steps, device):
        model.zero_grad()
        loss = run(letters)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        else:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            plain.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Trains twice and prints both curves."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fused, plain = train(steps, patched=True, device=device), train(steps, patched=False, device=device)
    for step in range(0, steps, max(1, steps // 6)):
        print(f"step {step:4d}  plain {plain[step]:.5f}  fused {fused[step]:.5f}")


if __name__ == "__main__":
    main()
