"""`burn-torch info`: what is here, and why something is not."""

from __future__ import annotations

import json
import platform

import pytest


def info(fresh, tmp_path, *, absent=(), **environment):
    before = f"import warnings\nsys.modules.update(dict.fromkeys({list(absent)}))"
    before += "\nwarnings.filterwarnings('ignore', message='Failed to initialize NumPy')"  # torch's own, without numpy
    done = fresh("info", "--json", cwd=tmp_path, before=before, **environment)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def told(burn, tmp_path, **settings):
    done = burn("info", "--json", cwd=tmp_path, **settings)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_facts(burn, tmp_path):
    import numpy as np
    import torch

    from burn_torch.version import __version__

    facts = told(burn, tmp_path, BURN_TORCH_CACHE=str(tmp_path / "cache"), NO_COLOR="1")
    assert facts.keys() == {"versions", "devices", "kernels", "data", "environment"}
    assert facts["versions"]["burn_torch"] == __version__
    assert facts["versions"]["python"].startswith(platform.python_version())
    assert facts["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["devices"]["cpu"].startswith("torch, 1 thread of ")
    assert facts["devices"]["cuda"].startswith("no: ")  # the tests hide what there is
    assert facts["devices"]["mps"]
    assert facts["devices"]["ndarray"].startswith("numpy")
    assert facts["data"]["digits"] == "in the package"
    assert facts["data"]["mnist"].startswith("not here: --data DIR, or BURN_TORCH_DATA=DIR")
    assert facts["data"]["mnist"].endswith("burn-torch train mnist --download")
    assert "--download" not in facts["data"]["ag-news"]
    assert facts["environment"]["NO_COLOR"] == "1"
    assert facts["environment"]["TRITON_INTERPRET"] == "not set"


def test_the_lines_are_the_facts(burn, tmp_path):
    facts = json.loads(burn("info", "--json", cwd=tmp_path).out)
    done = burn("info", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    sections = {}
    for line in done.out.splitlines():
        if line.startswith("  "):
            name, _, value = line.strip().partition(" ")
            list(sections.values())[-1][name] = value.strip()
        else:
            sections[line] = {}
    assert sections == facts


def test_data_is_found_in_its_folder(burn, tmp_path):
    folder = tmp_path / "data" / "tiny-shakespeare"
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text("To be, or not to be")
    facts = told(burn, tmp_path, BURN_TORCH_DATA=str(tmp_path / "data"), BURN_TORCH_SET__SEED="3")
    assert facts["data"]["tiny-shakespeare"] == f"in {folder}"
    assert facts["environment"]["BURN_TORCH_SET__SEED"] == "3"


@pytest.mark.parametrize(
    ("absent", "says"),
    [
        ("triton", "not installed; only for GPU kernels"),
        ("safetensors", "not installed, and burn_torch needs it"),
        ("jinja2", "not installed, and burn_torch needs it"),
        ("shtab", "not installed; only for completion in shells"),
        ("PIL", "not installed; only for predictions of .png and .jpg"),
        ("onnx", "not installed; only for ONNX models"),
        ("onnxruntime", "not installed; only for comparing exported ONNX models"),
        ("tensorboard", "not installed; only for TensorBoard logs"),
        ("textual", "not installed; only for the dashboard"),
        ("torch", "not installed, and burn_torch needs it"),
        ("numpy", "not installed, and burn_torch needs it"),
    ],
)
def test_packages_that_are_absent(absent, says, fresh, burn, tmp_path):
    if absent in ("torch", "numpy"):  # what imports them has to begin without them
        facts = info(fresh, tmp_path, absent=[absent])
    else:
        facts = told(burn, tmp_path, absent=[absent])
    assert facts["versions"]["pillow" if absent == "PIL" else absent] == says
    if absent == "triton":
        assert facts["kernels"]["triton"].startswith("no: ")
    if absent == "numpy":
        assert facts["devices"]["ndarray"].startswith("no: ")
        assert facts["data"]["digits"].startswith("no: ")
    if absent == "torch":
        assert facts["devices"] == {"cpu": "no: import of torch halted; None in sys.modules"}


@pytest.mark.gpu
def test_gpus_are_named(fresh, tmp_path):
    import torch

    facts = info(fresh, tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert facts["devices"]["cuda:0"].startswith(torch.cuda.get_device_properties(0).name)
