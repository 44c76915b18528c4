"""Any ONNX file as a module: what it holds, and what it computes.

    python examples/onnx_inference/onnx_inference.py                          train and export digits, then read them
    python examples/onnx_inference/onnx_inference.py model.onnx               run it on noise of the right shapes
    python examples/onnx_inference/onnx_inference.py model.onnx a.npy b.npy   run it on these arrays

Sizes that the file leaves open are 1.  Nothing of the file is executed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import burn_torch
from burn_torch import Device, Module, StepScope, Tensor
from burn_torch.core.dtype import DType
from burn_torch.data import DataLoader, DigitsDataset
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    Conv2d,
    Conv2dConfig,
    CrossEntropyLoss,
    Dropout,
    DropoutConfig,
    Linear,
    LinearConfig,
    PaddingConfig2d,
    Relu,
)
from burn_torch.onnx import ExportReport, export, load, read_model, report_on
from burn_torch.optim import AdamConfig, GradientsParams
from burn_torch.train import fold


# -- any file ------------------------------------------------------------------------------------------------------
def noise(path: Path) -> list[np.ndarray[Any, Any]]:
    """An array for each input of the file: numbers around 0; zeros for whole numbers and truth values."""
    rng = np.random.default_rng(0)
    arrays = []
    for info in read_model(path).graph.inputs:
        shape = [size if isinstance(size, int) else 1 for size in info.shape or ()]
        kind = (info.dtype or DType.F32).numpy
        arrays.append(rng.standard_normal(shape).astype(kind) if kind.kind == "f" else np.zeros(shape, kind))
    return arrays


def infer(path: Path, arrays: Sequence[np.ndarray[Any, Any]], device: Device) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of the file by name, for inputs in its order."""
    model = load(path, device)
    result = model.forward(*(Tensor.from_data(array, device) for array in arrays))
    outputs = result if isinstance(result, tuple) else (result,)
    names = [info.name for info in read_model(path).graph.outputs]
    return {name: np.asarray(output.into_data().values) for name, output in zip(names, outputs, strict=True)}


def tell(outputs: dict[str, np.ndarray[Any, Any]]) -> None:
    """Prints shape, range and the first numbers of each output."""
    for name, values in outputs.items():
        first = " ".join(f"{x:.4g}" for x in values.reshape(-1)[:6].astype(np.float64))
        print(f"{name} {values.shape} {values.dtype}: {first}{' ...' if values.size > 6 else ''}")


# -- without a file: digits ------------------------------------------------------------------------------------------
class Digits(Module):
    """One convolution and two linear layers."""

    conv: Conv2d
    norm: BatchNorm
    dropout: Dropout
    hidden: Linear
    output: Linear
    activation: Relu

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, 8, 8), 0 to 16 -> scores (batch, 10)."""
        batch = images.dims()[0]
        x = images.reshape([batch, 1, 8, 8]) / 16.0
        x = self.activation.forward(self.norm.forward(self.conv.forward(x)))
        x = self.activation.forward(self.hidden.forward(self.dropout.forward(x.reshape([batch, 16 * 4 * 4]))))
        return self.output.forward(x)


class Stacked:
    """Batches of (images, labels)."""

    def batch(self, items: Sequence[Any], device: Device) -> tuple[Tensor, Tensor]:
        """One batch on a device."""
        images = np.stack([item.image for item in items]).astype(np.float32)
        labels = np.array([item.label for item in items], np.int64)
        return Tensor.from_data(images, device), Tensor.from_data(labels, device)


def train(epochs: int, device: Device) -> Digits:
    """A model that has seen the training images so many times."""
    burn_torch.seed(42)
    model = Digits(
        Conv2dConfig((1, 16), (3, 3), stride=(2, 2), padding=PaddingConfig2d.Explicit(1, 1, 1, 1)).init(device),
        BatchNormConfig(16).init(device),
        DropoutConfig(0.2).init(),
        LinearConfig(16 * 4 * 4, 64).init(device),
        LinearConfig(64, 10).init(device),
        Relu(),
    )
    loader = DataLoader(DigitsDataset.train(split="stratified"), Stacked(), batch_size=64, shuffle=42, device=device)
    optim, loss_of, step = AdamConfig().init(), CrossEntropyLoss.new(None, device), 0
    for epoch in range(epochs):
        for images, labels in loader.epoch(epoch):
            with StepScope(fold(42, step), model) as scope:
                loss = loss_of.forward(model.forward(images), labels)
                gradients = GradientsParams.from_grads(loss.backward(), model)
            model, optim = optim.step(3e-3, model.with_states(scope.states), gradients)
            step += 1
        print(f"epoch {epoch + 1}  loss {loss.into_scalar():.3f}")
    return model


def export_digits(path: Path, epochs: int = 8) -> ExportReport:
    """Trains the digits and writes them as an ONNX file that takes any number of images."""
    device = Device.cpu().autodiff()
    model = train(epochs, device)
    example = Tensor.zeros((2, 8, 8), device)
    return export(model, example, path, output_names=["scores"], dynamic_batch=True, metadata={"task": "digits"})


def main(words: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Runs the file that is named, or the digits."""
    parser = argparse.ArgumentParser(description="Runs an ONNX file.")
    parser.add_argument("model", type=Path, nargs="?", help="the ONNX file; without one the digits are trained")
    parser.add_argument("inputs", type=Path, nargs="*", help=".npy files, one for each input of the model")
    args = parser.parse_args(words)
    path = args.model
    if path is None:
        path = Path("digits.onnx")
        print(export_digits(path))
        arrays = [DigitsDataset.test(split="stratified").images.astype(np.float32)]
    else:
        arrays = [np.load(file, allow_pickle=False) for file in args.inputs] or noise(path)
    print(report_on(read_model(path)))
    outputs = infer(path, arrays, Device.cpu())
    tell(outputs)
    if args.model is None:
        right = (outputs["scores"].argmax(axis=1) == DigitsDataset.test(split="stratified").labels).mean()
        print(f"{right:.1%} of the test images are read right by the imported file")
    return outputs


if __name__ == "__main__":
    main()
