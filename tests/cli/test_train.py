"""`burn-torch train`: what it writes and shows, resuming, damage, NaN, and errors in a user's recipe."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
CONTROL = re.compile(r"[^\n\t\x20-\x7e\u00a0-\uffff]")
SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]
LEFT_BY_A_RUN = {
    ".lock",
    "checkpoint/epoch-1.safetensors",
    "checkpoint/epoch-2.safetensors",
    "config.json",
    "config.origins.json",
    "events.jsonl",
    "experiment.log",
    "model.safetensors",
    "result.json",
    *(f"{split}/epoch-{epoch}/{name}.log" for split in ("train", "valid") for epoch in (1, 2)
      for name in ("Accuracy", "Loss")),
}  # fmt: skip


def test_a_run_is_shown_in_plain_lines_and_kept(burn, tree, tmp_path):
    done = burn("train", "digits", "--epochs", 2, *SMALL, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert CONTROL.search(done.out) is None
    lines = done.out.splitlines()
    assert lines[0] == "trains digits on cpu, kept in artifacts/digits"
    for epoch in (1, 2):
        shown = (
            rf"epoch {epoch}/2  train  Accuracy [\d.]+ %  Loss [\d.]+  valid  Accuracy [\d.]+ %  Loss [\d.]+  \(.*\)"
        )
        assert re.fullmatch(shown, lines[epoch])
    assert lines[-4:] == [
        "model    artifacts/digits/model.safetensors",
        "predict  burn-torch predict artifacts/digits IMAGE...",
        "evaluate burn-torch evaluate artifacts/digits",
        "go on    burn-torch resume artifacts/digits --epochs 4",
    ]
    assert tree(tmp_path / "artifacts" / "digits").keys() == LEFT_BY_A_RUN
    result = json.loads((tmp_path / "artifacts/digits/result.json").read_text())
    assert result["status"] == "completed"
    config = json.loads((tmp_path / "artifacts/digits/config.json").read_text())
    assert (config["num_epochs"], config["channels"], config["seed"]) == (2, 4, 3)


def test_the_default_directory_is_the_next_free_one(burn, trained, tree, tmp_path):
    for name in ("digits", "digits-2"):
        shutil.copytree(trained, tmp_path / "artifacts" / name)
    before = tree(tmp_path)
    done = burn("train", "digits", "--epochs", 1, *SMALL, cwd=tmp_path)
    assert done.code == 0
    assert done.out.startswith("trains digits on cpu, kept in artifacts/digits-3\n")
    assert {name: what for name, what in tree(tmp_path).items() if "digits-3" not in name} == before
    resumed = burn("train", "digits", "--resume", "--epochs", 2, cwd=tmp_path)
    assert resumed.out.startswith("resumes digits on cpu, kept in artifacts/digits-3\nepoch 2/2  the run goes on\n")


def test_the_commands_that_it_names_can_be_typed(burn, files, tmp_path):
    done = burn("train", "digits", "--epochs", 1, *SMALL, "--artifact-dir", "my runs/no 1", cwd=tmp_path)
    named = dict(re.findall(r"^(predict|go on) +burn-torch (.*)$", done.out, re.MULTILINE))
    predict = [word if word != "IMAGE..." else str(files / "one.npy") for word in shlex.split(named["predict"])]
    assert burn(*predict, cwd=tmp_path).code == 0
    again = burn(*shlex.split(named["go on"]), cwd=tmp_path)
    assert again.code == 0
    assert "epoch 2/2  train" in again.out


def test_settings_are_shown_and_nothing_is_trained(burn, tree, tmp_path):
    done = burn("train", "digits", "--show-config", "--epochs", 7, "--set", "optimizer.lr=0.5", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    config = tomllib.loads(done.out)
    assert (config["recipe"], config["num_epochs"], config["optimizer"]["lr"]) == ("digits", 7, 0.5)
    origins = dict(re.findall(r"^([\w.]+) = .*# (.*)$", done.out, re.MULTILINE))
    assert (origins["num_epochs"], origins["optimizer.lr"], origins["seed"]) == ("--epochs", "--set", "default")
    assert tree(tmp_path) == {}


def test_mnist_from_a_directory_and_resumed_from_elsewhere(burn, files, tmp_path):
    shutil.copytree(files / "mnist", tmp_path / "data")
    settings = ["--epochs", 1, "--data-dir", "data", "--set", "hidden=8", "--artifact-dir", tmp_path / "run"]
    done = burn("train", "mnist", *settings, cwd=tmp_path)
    assert done.code == 0, done.err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = burn("train", "mnist", "--resume", "--epochs", 2, "--artifact-dir", tmp_path / "run", cwd=elsewhere)
    assert done.code == 0, done.err
    done = burn("predict", tmp_path / "run", files / "mnist" / "t10k-images-idx3-ubyte", cwd=elsewhere)
    assert (done.code, len(done.out.splitlines())) == (0, 16)


def test_digits_are_validated_on_the_split_that_was_asked_for(burn, tmp_path):
    done = burn("train", "digits", "--epochs", 1, *SMALL, "--set", "split=file-order", cwd=tmp_path)
    other = burn("train", "digits", "--epochs", 1, *SMALL, cwd=tmp_path)
    assert (done.code, other.code) == (0, 0)
    losses = [re.findall(r"Valid \| Loss +\| ([\d.]+)", run.out) for run in (done, other)]
    assert losses[0] != losses[1]


def test_training_on_numpy(burn, tmp_path):
    done = burn("train", "digits", "--epochs", 1, *SMALL, "--devices", "ndarray", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("trains digits on ndarray, ")


# -- resuming -------------------------------------------------------------------------------------


def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(burn, bits, trained, tmp_path):
    assert burn("train", "digits", "--epochs", 1, *SMALL, "--artifact-dir", "run", cwd=tmp_path).code == 0
    done = burn("train", "digits", "--resume", "--epochs", 2, "--artifact-dir", "run", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "epoch 2/2  the run goes on" in done.out
    assert bits(tmp_path / "run/model.safetensors") == bits(trained / "model.safetensors")


def test_resume_of_a_finished_run_says_that_nothing_is_left(burn, bits, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    done = burn("train", "digits", "--resume", "--artifact-dir", copy, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "epoch 2 of 2 is over: there is nothing left to train\n" in done.out
    assert bits(copy / "model.safetensors") == bits(trained / "model.safetensors")


def test_a_damaged_checkpoint_is_passed_over(burn, bits, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    newest = copy / "checkpoint" / "epoch-2.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    done = burn("train", "digits", "--resume", "--artifact-dir", copy, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "checkpoint epoch-2.safetensors is passed over: " in done.out
    assert "epoch 2/2  train" in done.out
    assert bits(copy / "model.safetensors") == bits(trained / "model.safetensors")


def test_all_checkpoints_damaged(burn, trained, tree, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    for path in (copy / "checkpoint").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    before = tree(copy)
    done = burn("train", "digits", "--resume", "--artifact-dir", copy, "--epochs", 3, cwd=tmp_path)
    assert done.code == 5
    assert re.match(r"error: no checkpoint of this run can be read\n  given:    .*/run/checkpoint:\n", done.err)
    assert re.search(r"epoch-2.safetensors: .*\n +epoch-1.safetensors: .*\n  expected: .*\n  mend:     ", done.err)
    assert "Traceback" not in done.err
    after = tree(copy)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} <= {"events.jsonl", "experiment.log"}


# -- a loss that is no number -----------------------------------------------------------------------


def test_a_loss_that_overflows_in_the_first_epoch(burn, tree, tmp_path):
    done = burn("train", "digits", "--epochs", 2, *SMALL, "--set", "optimizer.lr=1e30", cwd=tmp_path)
    assert done.code == 4
    assert re.match(r"error: the loss is not finite\n  given:    loss \w+ in epoch 1, batch \d+ ", done.err)
    assert re.search(r"\n  expected: a finite loss\n  mend:     lower the learning rate", done.err)
    assert "there is no checkpoint yet" in done.err
    assert "Traceback" not in done.err
    left = tree(tmp_path / "artifacts" / "digits")
    assert "model.safetensors" not in left
    assert not any(name.startswith("checkpoint") for name in left)
    assert json.loads((tmp_path / "artifacts/digits/result.json").read_text())["status"] == "diverged"


def test_nan_names_the_last_checkpoint(burn, recipe, tmp_path):
    done = burn("train", recipe, "--set", "fault=nan", "--no-compile", cwd=tmp_path)  # it counts its steps
    assert done.code == 4
    assert re.search(r"given:    loss nan in epoch 2, batch 7 \(step 30 of the run\)", done.err)
    assert "the last checkpoint is artifacts/own/checkpoint/epoch-1.safetensors" in done.err
    assert (tmp_path / "artifacts/own/checkpoint/epoch-1.safetensors").is_file()
    assert not (tmp_path / "artifacts/own/model.safetensors").exists()


# -- compiled or not --------------------------------------------------------------------------------
def test_no_compile_gives_the_same_bits_and_may_resume_a_compiled_run(burn, trained, tmp_path):
    done = burn("train", "digits", "--epochs", 2, *SMALL, "--no-compile", "--artifact-dir", "eager", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")

    def bits(folder):
        return {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}

    assert bits(tmp_path / "eager") == bits(trained)
    burn("train", "digits", "--epochs", 1, *SMALL, "--artifact-dir", "mixed", cwd=tmp_path)
    resume = ("train", "digits", "--artifact-dir", "mixed", "--resume", "--epochs", 2, "--no-compile")
    assert burn(*resume, cwd=tmp_path).code == 0
    assert bits(tmp_path / "mixed") == bits(trained)


def test_what_cannot_be_compiled_says_why_unless_it_was_not_to_be(burn, recipe, tmp_path):
    done = burn("train", recipe, "--epochs", 1, cwd=tmp_path)
    assert re.search(r"^training runs eagerly, it cannot be compiled: .*steps, an int, changed", done.out, re.MULTILINE)
    done = burn("train", recipe, "--epochs", 1, "--no-compile", cwd=tmp_path)
    assert done.code == 0
    assert "eagerly" not in done.out


# -- recipes of users ---------------------------------------------------------------------------------


def test_a_recipe_of_a_user_is_trained_and_predicts(burn, recipe, files, tmp_path):
    done = burn("train", recipe, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("trains own on cpu, kept in artifacts/own\n")
    named = re.findall(r"^predict +burn-torch (.*)$", done.out, re.MULTILINE)
    words = [str(files / "three.npy") if word == "IMAGE..." else word for word in shlex.split(*named)]
    done = burn(*words, cwd=tmp_path)
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    done = burn("predict", "artifacts/own", files / "three.npy", cwd=tmp_path)
    assert done.code == 2
    assert re.search(r"recipe 'own'\n.*\n  mend:     name its recipe: --recipe FILE.py, or", done.err)


def test_the_recipe_of_the_docs_can_be_trained(burn, files, tmp_path):
    page = (ROOT / "docs" / "building-blocks" / "cli.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "my_recipe.py").write_text(block, encoding="utf-8")
    done = burn("train", "my_recipe.py", "--epochs", 1, "--set", "hidden=16", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    words = ["predict", "artifacts/two-layers", files / "one.npy", "--recipe", "my_recipe.py"]
    assert burn(*words, cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    ("fault", "line", "error"),
    [
        ("error", 'raise KeyError("a mistake of the user")', "KeyError: 'a mistake of the user'"),
        ("shape", "x = images.reshape([images.dims()[0], 64])", "ShapeError: "),
    ],
)
def test_an_error_in_a_users_recipe_shows_the_users_frames_alone(fault, line, error, burn, recipe, tmp_path):
    done = burn("train", recipe, "--set", f"fault={fault}", "--no-compile", cwd=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error in the code that was run (--debug shows every frame):\n")
    frames = re.findall(r'File "(.*)", line \d+, in (\w+)\n    (.*)\n', done.err)
    assert {path for path, _, _ in frames} == {str(recipe)}
    assert frames[-1][2] == line
    assert error in done.err
    assert "in train batch 7 of epoch 2 (step 30 of the run)" in done.err
    assert re.search(r"checkpoint/epoch-(1|2-batch-6)\.safetensors", done.err)  # what the error itself could still save
    debug = burn("train", recipe, "--set", f"fault={fault}", "--no-compile", "--debug", cwd=tmp_path)
    assert debug.code == 1
    assert str(ROOT / "burn_torch" / "train") in debug.err


def test_a_file_that_is_no_recipe(burn, fresh, tree, tmp_path):
    files = {
        "syntax.py": ("RECIPE = (\n", 1, r"syntax.py\", line 1[\s\S]*SyntaxError: "),
        "raises.py": ("x = 1\nx / 0\n", 1, r"raises.py\", line 2, in <module>\n    x / 0\n[\s\S]*ZeroDivisionError"),
        "empty.py": ("", 2, r"given:    .*empty.py with no RECIPE\n  expected: RECIPE, an .*\n  mend:     see docs/"),
        "other.py": ("RECIPE = 3", 2, r"given:    .*other.py with RECIPE = 3"),
    }
    for name, (text, code, says) in files.items():
        (tmp_path / name).write_text(text)
        done = burn("train", f"./{name}", cwd=tmp_path)
        assert (done.code, done.out) == (code, "")
        assert re.search(says, done.err), done.err
        assert "burn_torch/cli" not in done.err.replace("burn_torch/cli/recipes/ for some", "")
    assert not any(name.startswith("artifacts") for name in tree(tmp_path))


def test_an_error_without_a_frame_of_the_user(fresh, tmp_path):
    before = "from burn_torch.cli.commands import info\ndel info._facts"
    done = fresh("info", cwd=tmp_path, before=before)
    assert done.code == 1
    assert re.match(
        r"error: an error that burn-torch does not explain itself\n"
        r"  given:    NameError: .*_facts.*\n  expected: .*\n  mend: .*--debug",
        done.err,
    )
    assert "Traceback" not in done.err


@pytest.mark.gpu
def test_training_on_a_gpu(fresh, files, tmp_path):
    done = fresh("train", "digits", "--epochs", 3, "--devices", "cuda:0", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert (done.code, done.err) == (0, "")
    best = float(re.findall(r"Valid \| Accuracy +\| [\d.]+ +\| \d +\| ([\d.]+)", done.out)[0])
    assert best > 90
    gpu, cpu = (
        fresh("predict", "artifacts/digits", files / "three.npy", *place, cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
        for place in (["--devices", "cuda"], [])
    )
    assert (gpu.code, cpu.code) == (0, 0)
    assert re.findall(r": (\d)", gpu.out) == re.findall(r": (\d)", cpu.out)


@pytest.mark.gpu
def test_a_gpu_that_is_not_there(fresh, tree, tmp_path):
    done = fresh("train", "digits", "--devices", "cuda:99", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert (done.code, done.out) == (2, "")
    assert re.search(
        r"no device 'cuda:99' here\n  given:    --devices cuda:99\n  expected: one of cpu, cuda:0", done.err
    )
    assert tree(tmp_path) == {}
