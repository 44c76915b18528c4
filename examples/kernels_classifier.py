"""A classifier in plain PyTorch, trained as it is and with the fused kernels of `burn_kernels.torch`.

    python examples/kernels_classifier.py [STEPS]

Its layer norms, attention softmax and loss are exchanged in place; its optimizer is exchanged in the middle of the
training, by its state.  On a GPU kernels run, on a CPU their references.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import burn_kernels.torch as bk

CLASSES, FEATURES = 5, 24


class Classifier(nn.Module):
    """Weighs its features by a softmax of their own, then two layers with norms."""

    def __init__(self, hidden: int = 33) -> None:
        super().__init__()
        self.scores, self.weigh = nn.Linear(FEATURES, FEATURES), nn.Softmax(dim=-1)
        self.first, self.first_norm = nn.Linear(FEATURES, hidden), nn.LayerNorm(hidden)
        self.second, self.second_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.act, self.head = nn.GELU(), nn.Linear(hidden, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x (batch, features) -> (batch, classes)."""
        x = FEATURES * x * self.weigh(self.scores(x))
        x = self.act(self.first_norm(self.first(x)))
        return self.head(x + self.act(self.second_norm(self.second(x))))  # type: ignore[no-any-return]  # modules


def batches(steps: int, device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Points around a centre for each class, the same in every run; one label in eight is missing."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    pairs = []
    for _ in range(steps):
        labels = torch.randint(0, CLASSES, (32,), generator=generator)
        x = centres[labels] + 1.2 * torch.randn(32, FEATURES, generator=generator)
        labels[::8] = -100
        pairs.append((x.to(device), labels.to(device)))
    return pairs


def train(steps: int, *, patched: bool, device: str = "cpu", backend: str | None = None) -> list[float]:
    """Trains a new model, compiled if a `backend` of torch.compile is named, and returns its losses."""
    torch.manual_seed(0)
    model, loss_of = Classifier().to(device), nn.CrossEntropyLoss(label_smoothing=0.1)
    if patched:
        for module in (model, loss_of):
            print(bk.patch(module))
        x, labels = batches(1, device)[0]
        print(bk.check(model, x, loss=lambda logits: loss_of(logits, labels)))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = model if backend is None else torch.compile(model, backend=backend)
    losses = []
    for step, (x, labels) in enumerate(batches(steps, device)):
        if patched and step == steps // 2:
            state = optimizer.state_dict()
            optimizer = bk.AdamW(model.parameters())
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        loss = loss_of(run(x), labels)
        loss.backward()
        optimizer.step()
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
