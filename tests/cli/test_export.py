"""`burn-torch export`: a run as ONNX, safetensors or bpk; what does not fit has the exit code of usage."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx


def test_a_run_becomes_an_onnx_file(burn, trained, tmp_path):
    done = burn("export", trained, "--to", "onnx", "--out", "digits.onnx", "--dynamic-batch", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "digits.onnx: opset 18" in done.out
    assert "wrote digits.onnx" in done.out
    proto = onnx.load(tmp_path / "digits.onnx")
    assert {entry.key: entry.value for entry in proto.metadata_props} == {"recipe": "digits"}
    runtime = pytest.importorskip("onnxruntime")
    assert "output at batch" in done.out
    session = runtime.InferenceSession(str(tmp_path / "digits.onnx"), providers=["CPUExecutionProvider"])
    from burn_torch.data import DigitsDataset

    data = DigitsDataset.test()
    images = ((data.images.astype(np.float32) - 4.884) / 6.017).astype(np.float32)
    classes = session.run(None, {"images": images})[0].argmax(axis=1)
    assert (classes == data.labels).mean() > 0.3  # two epochs of a tiny network; chance is 0.1


def test_opset_and_half(burn, trained, tmp_path):
    done = burn("export", trained, "--to", "onnx", "--out", "m.onnx", "--opset", 13, "--half", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    proto = onnx.load(tmp_path / "m.onnx")
    assert proto.opset_import[0].version == 13
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


@pytest.mark.parametrize("form", ["safetensors", "bpk"])
def test_weights_in_other_formats(form, burn, trained, tmp_path):
    from burn_torch.module import ModuleRecord

    done = burn("export", trained, "--to", form, "--out", f"w.{form}", "--half", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, f"wrote w.{form}\n", "")
    here, there = ModuleRecord.load(tmp_path / f"w.{form}"), ModuleRecord.load(trained / "model.safetensors")
    assert list(here) == list(there)
    for key in here:
        assert here.entries[key].dtype.name == "f16"
        a, b = here.entries[key].read().values, there.entries[key].read().values
        assert np.array_equal(a, b.astype(np.float16))
    again = burn("export", f"w.{form}", "--to", "safetensors", "--out", "again.safetensors", cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert list(ModuleRecord.load(tmp_path / "again.safetensors")) == list(there)


def test_weights_of_an_onnx_file(burn, trained, tmp_path):
    from burn_torch.module import ModuleRecord

    burn("export", trained, "--to", "onnx", "--out", "m.onnx", cwd=tmp_path)
    done = burn("export", "m.onnx", "--to", "safetensors", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "wrote m.safetensors\n", "")
    assert "conv1_weight" in list(ModuleRecord.load(tmp_path / "m.safetensors"))


def test_the_default_place_is_beside_what_is_exported(burn, trained, tree, tmp_path):
    before = tree(trained)
    source = tmp_path / "w.safetensors"
    source.write_bytes((trained / "model.safetensors").read_bytes())
    done = burn("export", "w.safetensors", "--to", "bpk", cwd=tmp_path)
    assert (done.code, done.out) == (0, "wrote w.bpk\n")
    assert tree(trained) == before


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["RUN", "--to", "safetensors"], 2, "this is no place for the exported file"),
        (["RUN", "--to", "onnx", "--out", "m.bpk"], 2, "a name that ends in .onnx"),
        (["RUN", "--to", "onnx", "--opset", 3], 2, "this opset cannot be written"),
        (["RUN", "--to", "bpk", "--opset", 18], 2, "--opset belongs to ONNX files"),
        (["RUN", "--to", "bpk", "--dynamic-batch", "--opset", 18], 2, "--opset and --dynamic-batch belong"),
        (["RUN/model.safetensors", "--to", "onnx"], 2, "needs to know what is computed, not the weights alone"),
        (["RUN", "--to", "pickle"], 2, "there is no format 'pickle'"),
        ([".", "--to", "onnx"], 2, "this is no artifact directory of a recipe"),
        (["none", "--to", "onnx"], 2, "none, which is no directory"),
        (["none.bpk", "--to", "safetensors"], 5, "none.bpk"),
        (["RUN", "--to", "onnx", "--out", "none/m.onnx"], 2, "the exported model cannot be written"),
    ],
)
def test_what_does_not_fit(words, code, text, burn, trained, tree, tmp_path):
    before = tree(trained)
    given = [str(word).replace("RUN", str(trained)) for word in words]
    done = burn("export", *given, cwd=tmp_path)
    assert done.code == code, done.err
    assert text in done.err
    assert "mend:" in done.err
    assert tree(trained) == before
    assert tree(tmp_path) == {}


def test_a_recipe_of_ones_own_has_to_be_named(burn, recipe, tmp_path):
    burn("train", recipe, "--epochs", 1, "--artifact-dir", "own", cwd=tmp_path)
    done = burn("export", "own", "--to", "onnx", cwd=tmp_path)
    assert done.code == 2
    assert "name its recipe: --recipe FILE.py" in done.err
    done = burn("export", "own", "--to", "onnx", "--recipe", recipe, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "own" / "model.onnx").is_file()


def test_without_onnx_it_says_how_to_get_it(burn, trained, tmp_path):
    done = burn("export", trained, "--to", "onnx", "--out", "m.onnx", cwd=tmp_path, absent=["onnx"])
    assert done.code == 3
    assert "pip install 'burn-torch[onnx]'" in done.err


def test_a_recipe_that_does_not_say_what_its_model_takes():
    from burn_torch import ConfigError
    from burn_torch.cli.recipe import Recipe

    class Silent(Recipe):
        name = "silent"

        def loaders(self, config, device):
            """None."""

        def model(self, config, device):
            """None."""

        def predict(self, config, model, inputs):
            """None."""

    with pytest.raises(ConfigError, match=r"silent does not say what its model takes\n(.*\n)+.*define it"):
        Silent().example_inputs(None, None)
