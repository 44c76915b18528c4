"""`burn-torch export`: a run as ONNX, safetensors or bpk; what does not fit has the exit code of usage."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx


def test_a_run_becomes_an_onnx_file(burn, trained, tmp_path):
    done = burn("export", trained, "--to", "onnx", "--out", "digits.onnx", cwd=tmp_path)
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


def batch_of(path):
    """The first axis of the only input: a number, or the name of one that may be any."""
    axis = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0]
    return axis.dim_value or axis.dim_param


def test_batches_are_of_any_size_unless_one_is_fixed(burn, trained, tmp_path):
    for words, expected in ([], "batch"), (["--batch", 1], 1), (["--batch", 5], 5):
        done = burn("export", trained, "--to", "onnx", "--out", "m.onnx", *words, cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert batch_of(tmp_path / "m.onnx") == expected


def test_a_model_that_minds_the_size_of_the_batch_is_refused_by_name(burn, recipe, tmp_path):
    reads = "        return self.output"
    text = recipe.read_text()
    assert text.count(reads) == 1
    minds = text.replace(reads, f"        x = x.tanh() if x.dims()[0] > 4 else x\n{reads}")
    (tmp_path / "own.py").write_text(minds)
    assert burn("train", recipe, "--epochs", 1, "--artifact-dir", "own", cwd=tmp_path).code == 0
    done = burn("export", "own", "--to", "onnx", "--recipe", "own.py", cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("error: the model of own cannot take batches of any size\n  given:    export: ")
    assert "own.py:" in done.err
    assert "mend:     --batch 2 writes it for batches of 2 alone" in done.err
    assert not (tmp_path / "own/model.onnx").exists()
    done = burn("export", "own", "--to", "onnx", "--recipe", "own.py", "--batch", 2, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert batch_of(tmp_path / "own/model.onnx") == 2


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
        (["RUN", "--to", "safetensors"], 2, "the exported file cannot have this name"),
        (["RUN", "--to", "onnx", "--out", "m.bpk"], 2, "a name that ends in .onnx"),
        (["RUN", "--to", "onnx", "--opset", 3], 2, "this opset cannot be written"),
        (["RUN", "--to", "bpk", "--opset", 18], 2, "--opset belongs to ONNX files"),
        (["RUN", "--to", "bpk", "--batch", 3, "--opset", 18], 2, "--batch and --opset belong"),
        (["RUN", "--to", "onnx", "--batch", 0], 2, "--batch: '0' is below 1"),
        (["RUN/model.safetensors", "--to", "onnx"], 2, "needs to know what is computed, not the weights alone"),
        (["RUN", "--to", "pickle"], 2, "there is no format 'pickle'"),
        ([".", "--to", "onnx"], 2, "this is not the artifact directory of a recipe"),
        (["none", "--to", "onnx"], 2, "none, which is no directory"),
        (["none.bpk", "--to", "safetensors"], 5, "none.bpk"),
        (["RUN", "--to", "onnx", "--out", "none/m.onnx"], 2, "the exported model cannot be written"),
    ],
)
def test_what_does_not_fit(words, code, text, burn, trained, tree, tmp_path):
    before = tree(trained)
    arguments = [str(word).replace("RUN", str(trained)) for word in words]
    done = burn("export", *arguments, cwd=tmp_path)
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
