"""Real models of other hands: their stored outputs, as source, compiled, trained further, exported again."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import numpy_helper

import burn_torch
from burn_torch import Device, Tensor
from burn_torch.data.source.idx import read_idx
from burn_torch.module import GradientsParams
from burn_torch.nn import CrossEntropyLossConfig
from burn_torch.onnx import ModelGen, export, load
from burn_torch.optim import AdamConfig

ROOT = Path(__file__).parents[2]
CPU = Device.cpu()
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
"""Holds what the README beside the models asks for."""

NAMES = [
    "burn-mnist",
    "burn-sine",
    "mnist-1",
    "mnist-8",
    "silero-vad-16k-op15",
    "super-resolution",
    "ultraface-rfb-320",
    "yunet-n",
]
EVERY = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def pretrained(request):
    return request.getfixturevalue("shared_data") / "onnx-models" / "pretrained"


def array(path):
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def cases(folder):
    """(inputs, outputs) of each stored set; without any the input that the README defines."""
    sets = sorted(folder.glob("test_data_set_*"))
    if not sets:
        image = (np.arange(224 * 224) * 7919 % 256 / 256).astype(np.float32).reshape(1, 1, 224, 224)
        return [([image], None)]
    kinds = ("input", "output")
    return [
        tuple([array(s / f"{kind}_{i}.pb") for i in range(len(list(s.glob(f"{kind}_*.pb"))))] for kind in kinds)
        for s in sets
    ]


def several(output):
    return output if isinstance(output, tuple) else (output,)


def run(model, arrays):
    return [y.into_data().values for y in several(model.forward(*(Tensor.from_data(x, CPU) for x in arrays)))]


def agrees(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)


def written(name, folder, out):
    path = ModelGen().input(folder / "model.onnx").out_dir(out).run()
    spec = importlib.util.spec_from_file_location(f"pretrained_{name.replace('-', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return path, module.Model


@EVERY
def test_stored_outputs_source_and_form(name, pretrained, tmp_path):
    folder = pretrained / name
    model = load(folder / "model.onnx")
    path, source = written(name, folder, tmp_path)
    twin = source.from_record(CPU)
    for inputs, outputs in cases(folder):
        outputs_of_model = run(model, inputs)
        for a, b in zip(outputs_of_model, run(twin, inputs), strict=True):
            assert a.tobytes() == b.tobytes()
        if outputs is not None:
            agrees(outputs_of_model, outputs)
        else:
            image = outputs_of_model[0][0, 0]
            assert (image.mean(), image.std()) == pytest.approx((0.503314, 0.285529), abs=1e-5)
            assert image[2, 5] == pytest.approx(0.932523, abs=1e-5)
            assert image[500, 100] == pytest.approx(0.564709, abs=1e-5)
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed: the form of the source was not looked at")
    for command in (["format", "--check", "--diff"], ["check"]):
        words = [ruff, *command, "--no-cache", "--isolated", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=path.parent)
        assert done.returncode == 0, done.stdout + done.stderr


@EVERY
def test_compiled_and_exported_again(name, pretrained, tmp_path):
    folder = pretrained / name
    model = load(folder / "model.onnx")
    inputs, _ = cases(folder)[0]
    tensors = [Tensor.from_data(x, CPU) for x in inputs]
    compiled = burn_torch.compile(lambda model, *xs: model.forward(*xs))
    want = run(model, inputs)
    for y, b in zip(several(compiled(model, *tensors)), want, strict=True):
        np.testing.assert_allclose(y.into_data().values, b, rtol=1e-5, atol=1e-6)
    report = export(model, tuple(tensors), tmp_path / "again.onnx")
    for comparison in report.comparisons:
        assert comparison.error <= 1e-5 * max(1.0, comparison.largest), str(comparison)
    for a, b in zip(run(load(tmp_path / "again.onnx"), inputs), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(b).max()))


def test_a_pretrained_model_is_fine_tuned_and_its_loss_falls(pretrained, shared_data):
    """burn-mnist, a file for one image at a time, learns to tell rotated digits, which it was not trained on."""
    images = read_idx(shared_data / "mnist" / "train-images-idx3-ubyte.gz")[:400].astype(np.float32) / 255
    labels = read_idx(shared_data / "mnist" / "train-labels-idx1-ubyte.gz")[:400].astype(np.int64)
    device = Device.cpu().autodiff()
    model = load(pretrained / "burn-mnist" / "model.onnx", device)
    rotated = np.ascontiguousarray(np.rot90((images - 0.1307) / 0.3081, axes=(1, 2)))[:, None]
    loss_of, optim = CrossEntropyLossConfig().init(device), AdamConfig().init()

    @burn_torch.compile
    def step(model, optim, x, y):
        logits = Tensor.cat([model.forward(x.narrow(0, i, 1)) for i in range(8)], 0)
        loss = loss_of.forward(logits, y)
        model, optim = optim.step(1e-3, model, GradientsParams.from_grads(loss.backward(), model))
        return model, optim, loss.detach()

    losses = []
    for i in range(50):
        rows = np.arange(i * 8, (i + 1) * 8)
        x, y = (Tensor.from_data(part[rows], device) for part in (rotated, labels))
        model, optim, loss = step(model, optim, x, y)
        losses.append(float(loss.into_scalar()))
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10]), losses
