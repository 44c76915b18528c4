"""Weights of a `.pt`, `.safetensors` or `.bpk` file in a model of one's own, checked on the MNIST test images.

Without a file it shows the three ways on weights that PyTorch makes here: saved by torch, read by burn_torch, the same
scores.  With a file (Burn's example `import-model-weights` has two, its web demo a third) it reads those, says what
became of each key, and counts right answers.  Nothing in a file is executed.

    python examples/import_model_weights/import_model_weights.py
    python examples/import_model_weights/import_model_weights.py mnist.pt --data-dir data/mnist
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from burn_torch import Device, Module, Tensor
from burn_torch.data import DataLoader, MnistDataset, MnistItem
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    Conv2d,
    Conv2dConfig,
    Gelu,
    Linear,
    LinearConfig,
    MaxPool2d,
    MaxPool2dConfig,
    Relu,
)
from burn_torch.record.stores import (
    ApplyResult,
    BurnpackStore,
    ModuleStore,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
)
from burn_torch.tensor.activation import log_softmax

MEAN, STD = 0.1307, 0.3081
"""Mean and deviation of the training images, in [0, 1]: the weights were trained on them."""


class Model(Module):
    """The network of Burn's example `import-model-weights`: three convolutions, two linear layers, two norms."""

    conv1: Conv2d
    conv2: Conv2d
    conv3: Conv2d
    norm1: BatchNorm
    fc1: Linear
    fc2: Linear
    norm2: BatchNorm
    activation: Relu

    @staticmethod
    def init(device: Device) -> Model:
        """A model that has learned nothing."""
        return Model(
            Conv2dConfig((1, 8), (3, 3)).init(device),
            Conv2dConfig((8, 16), (3, 3)).init(device),
            Conv2dConfig((16, 24), (3, 3)).init(device),
            BatchNormConfig(24).init(device),
            LinearConfig(24 * 22 * 22, 32).init(device),
            LinearConfig(32, 10).init(device),
            BatchNormConfig(10).init(device),
            Relu(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Log-probabilities. Shapes: images (batch, 1, 28, 28) -> (batch, 10)."""
        x = images
        for conv in (self.conv1, self.conv2, self.conv3):
            x = self.activation.forward(conv.forward(x))
        x = self.norm1.forward(x).flatten(1, 3)
        x = self.activation.forward(self.fc1.forward(x))
        return log_softmax(self.norm2.forward(self.fc2.forward(x)), 1)


class ConvBlock(Module):
    """Convolution, norm, activation, pooling."""

    conv: Conv2d
    norm: BatchNorm
    activation: Relu
    pool: MaxPool2d

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (batch, channels, height, width) -> (batch, 64, height / 2 - 1, width / 2 - 1)."""
        return self.pool.forward(self.activation.forward(self.norm.forward(self.conv.forward(x))))


class WebModel(Module):
    """The network of Burn's web demo: two blocks of convolutions, three linear layers."""

    conv1: ConvBlock
    conv2: ConvBlock
    fc1: Linear
    fc2: Linear
    fc3: Linear
    activation: Gelu

    @staticmethod
    def init(device: Device) -> WebModel:
        """A model that has learned nothing."""

        def block(channels: int) -> ConvBlock:
            pool = MaxPool2dConfig((2, 2), strides=(2, 2)).init()
            return ConvBlock(
                Conv2dConfig((channels, 64), (3, 3)).init(device), BatchNormConfig(64).init(device), Relu(), pool
            )

        fc1, fc2, fc3 = LinearConfig(64 * 5 * 5, 128), LinearConfig(128, 128), LinearConfig(128, 10)
        return WebModel(block(1), block(64), fc1.init(device), fc2.init(device), fc3.init(device), Gelu())

    def forward(self, images: Tensor) -> Tensor:
        """Scores. Shapes: images (batch, 1, 28, 28) -> (batch, 10)."""
        x = self.conv2.forward(self.conv1.forward(images)).flatten(1, 3)
        x = self.activation.forward(self.fc1.forward(x))
        return self.fc3.forward(self.activation.forward(self.fc2.forward(x)))


def store_of(path: Path) -> ModuleStore:
    """The store that reads a file of this ending; files of PyTorch are adapted to our layouts and names."""
    if path.suffix in (".pt", ".pth"):
        return PytorchStore.from_file(path)
    if path.suffix == ".safetensors":
        return SafetensorsStore.from_file(path).with_from_adapter(PyTorchToBurnAdapter())
    return BurnpackStore.from_file(path)


def load(path: Path, device: Device) -> tuple[Model | WebModel, ApplyResult]:
    """The model that a file is of, with its weights, and what became of each key."""
    store = store_of(path)
    if store.get_snapshot("conv1.conv.weight") is not None:
        return WebModel.init(device).load_from(store)
    return Model.init(device).load_from(store)


# -- the test images -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Batch:
    """images (batch, 1, 28, 28), targets (batch,)."""

    images: Tensor
    targets: Tensor


class Batcher:
    """Stacks images and brings them to the mean and spread of the training images."""

    def batch(self, items: list[MnistItem], device: Device) -> Batch:
        """The batch of some items, on a device."""
        pixels = np.stack([item.image for item in items])[:, None] / np.float32(255)
        targets = np.array([item.label for item in items], np.int64)
        images = ((pixels - MEAN) / STD).astype(np.float32)
        return Batch(Tensor.from_data(images, device), Tensor.from_data(targets, device))


def accuracy(model: Model | WebModel, data_dir: Path | None, device: Device) -> float:
    """Percent of the 10,000 test images that are told right."""
    right = 0
    for batch in DataLoader(MnistDataset.test(data_dir), Batcher(), batch_size=250, device=device).epoch(0):
        best = model.forward(batch.images).argmax(1).squeeze_dim(1)
        right += int(best.equal(batch.targets).int().sum().into_scalar())
    return right / 100


# -- without a file --------------------------------------------------------------------------------------------------
class Twin(torch.nn.Module):
    """`Model`, as PyTorch has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 8, 3), torch.nn.Conv2d(8, 16, 3)
        self.conv3, self.norm1 = torch.nn.Conv2d(16, 24, 3), torch.nn.BatchNorm2d(24)
        self.fc1, self.fc2, self.norm2 = torch.nn.Linear(11616, 32), torch.nn.Linear(32, 10), torch.nn.BatchNorm1d(10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities. Shapes: x (batch, 1, 28, 28) -> (batch, 10)."""
        for conv in (self.conv1, self.conv2, self.conv3):
            x = conv(x).relu()
        x = self.fc1(self.norm1(x).flatten(1)).relu()
        scores: torch.Tensor = self.norm2(self.fc2(x)).log_softmax(1)
        return scores


def show(folder: Path, device: Device) -> dict[str, float]:
    """Saves PyTorch's weights three ways and loads each; the largest difference of the scores, by file ending."""
    from safetensors.torch import save_file

    torch.manual_seed(5)
    theirs = Twin().eval()
    torch.save(theirs.state_dict(), folder / "twin.pt")
    save_file(theirs.state_dict(), folder / "twin.safetensors")
    model, _ = load(folder / "twin.pt", device)
    model.save_into(BurnpackStore.from_file(folder / "twin.bpk"))  # as Burn reads it
    images = torch.randn(4, 1, 28, 28)
    with torch.no_grad():
        wanted = theirs(images).numpy()
    differences = {}
    for ending in (".pt", ".safetensors", ".bpk"):
        model, result = load(folder / f"twin{ending}", device)
        scores = model.forward(Tensor.from_data(images.numpy(), device)).into_data().array
        differences[ending] = float(np.abs(scores - wanted).max())
        print(
            f"twin{ending:13} {len(result.applied)} values; scores differ from PyTorch's by {differences[ending]:.1e}"
        )
    return differences


def main(words: list[str] | None = None) -> None:
    """Loads a file and counts, or shows the three ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="?", type=Path, help="a .pt, .safetensors or .bpk file")
    parser.add_argument("--data-dir", type=Path, help="the folder of MNIST (default: the cache, else a download)")
    args = parser.parse_args(words)
    device = Device.cpu()
    if args.weights is None:
        with tempfile.TemporaryDirectory() as folder:
            show(Path(folder), device)
        return
    model, result = load(args.weights, device)
    print(f"{args.weights.name}: {result}")
    print(f"{accuracy(model, args.data_dir, device):.2f} % of the MNIST test images")


if __name__ == "__main__":
    main()
