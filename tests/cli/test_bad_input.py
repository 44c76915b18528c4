"""Wrong commands: each gives one error of three parts, the right exit code, and leaves nothing half-written."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THREE_PARTS = re.compile(r"\Aerror: \S.*\n  given:    \S.*\n(.*\n)*  expected: \S.*\n(.*\n)*  mend:     \S")
CONTROL = re.compile(r"[^\n\t\x20-\x7e\u00a0-\uffff]")


@dataclass(frozen=True)
class Wrong:
    """A command; {files} is the folder of inputs, {run} a run of the digits, {recipe} a file that defines a recipe."""

    command: str
    code: int
    says: tuple[str, ...]
    """Patterns, in the order in which the error has them."""


# these are worded before torch is imported
USAGE = [
    Wrong("trian", 2, ("there is no command 'trian'", "given:    burn-torch trian$", "did you mean train")),
    Wrong("fly", 2, ("there is no command 'fly'", "one of attach, bench, cache, check, ", "name one of those")),
    Wrong("--vresion", 2, ("burn-torch: there is no option --vresion", "did you mean --version")),
    Wrong("predict run --jsn", 2, ("burn-torch predict: there is no option --jsn", "did you mean --json")),
    Wrong("trian digits --seed -1", 2, ("there is no command 'trian'", "did you mean train")),
    Wrong("train --seed -1", 2, ("the following arguments are required: RECIPE",)),
    Wrong("train digits -x", 2, ("burn-torch train: too many arguments: -x",)),
    Wrong("train digits -- --seed", 2, ("burn-torch train: too many arguments: .*--seed",)),
    Wrong("--debgu train digits", 2, ("there is no option --debgu", "did you mean --debug")),
    Wrong("train", 2, ("burn-torch train: the following arguments are required: RECIPE", "expected: ", " RECIPE$")),
    Wrong("train digit", 2, ("there is no recipe 'digit'", "fashion-mnist", "did you mean digits")),
    Wrong("train chess", 2, ("there is no recipe 'chess'", "given:    chess", "name one of those")),
    Wrong("train nowhere.py", 2, ("this recipe file does not exist", "given:    .*nowhere.py", "check the path")),
    Wrong("train digits mnist", 2, ("burn-torch train: too many arguments: mnist", "--help")),
    Wrong("train digits --epoch 1", 2, ("no option --epoch$", "burn-torch train digits --epoch 1", "mean --epochs")),
    Wrong("train digits --xyzzy=1", 2, ("there is no option --xyzzy$", "--help")),
    Wrong("train digits --epochs x", 2, ("--epochs: 'x' is no whole number", "given:    .* --epochs x")),
    Wrong("train digits --epochs 1.5", 2, ("--epochs: '1.5' is no whole number",)),
    Wrong("train digits --epochs", 2, ("--epochs: expected one argument",)),
    Wrong("train digits --seed many", 2, ("--seed: 'many' is no whole number",)),
    Wrong("predict", 2, ("burn-torch predict: the following arguments are required: ARTIFACT_DIR, INPUT",)),
    Wrong("predict some-dir", 2, ("burn-torch predict: the following arguments are required: INPUT",)),
    Wrong("predict a b --jsn", 2, ("burn-torch predict: there is no option --jsn", "did you mean --json")),
    Wrong(
        "predict nowhere {files}/one.npy", 2, ("not the artifact directory", "given:    nowhere, which is no directory")
    ),
    Wrong(
        "predict {files} {files}/one.npy", 2, ("not the artifact directory", "config.json: No such file or directory")
    ),
    Wrong("info --jason", 2, ("burn-torch info: there is no option --jason", "did you mean --json")),
]

SETTINGS = [
    Wrong("train digits --set optimzer.lr=1", 2, ("unknown field", "given:    optimzer = '1'", "mean 'optimizer'")),
    Wrong("train digits --set optimizer.rate=1", 2, ("unknown field", "given:    optimizer.rate", "expected: .*lr")),
    Wrong("train digits --set dropout=much", 2, ("no float", "dropout = 'much'", "expected: float", "write a number")),
    Wrong("train digits --set batch_size=1.5", 2, ("no int", "batch_size = '1.5'", "write a whole number")),
    Wrong("train digits --set dropout", 2, ("no override", "'dropout'", "dotted.path=value")),
    Wrong("train digits --set split=random", 2, ("given:    split = 'random'", "stratified.*file-order")),
    Wrong("train digits --set recipe=mnist", 2, ("recipe = 'mnist'", "expected: .*digits")),
    Wrong("train digits --set optimizer.algorithm=Adm", 2, ("unknown tag", "Adam, AdamW, Lion, Sgd", "mean 'Adam'")),
    Wrong("train digits --set chanels=1 --set dropuot=0 --set seed=x", 2,
          ("3 faults", r"\[1\] chanels", r"\[2\] dropuot", r"\[3\] seed = 'x'", "'channels'", "'dropout'")),
    Wrong("train digits --epochs 0", 2, ("too small", "given:    num_epochs = 0", "1 or more", "give num_epochs")),
    Wrong("train digits --seed -1", 2, ("given:    seed = -1", "0 to 18446744073709551615")),
    Wrong("train digits --seed 18446744073709551616", 2, ("given:    seed = 18446744073709551616",)),
    Wrong("train digits --set batch_size=0", 2, ("given:    batch_size = 0", "1 or more")),
    Wrong("train digits --set optimizer.lr=-1", 2, ("given:    optimizer.lr = -1.0", "a number above 0")),
    Wrong("train digits --set dropout=2", 2, ("given:    dropout = 2.0", "0 or more, below 1")),
    Wrong("train digits --epochs three", 2, ("'three' is no whole number", "expected: --epochs N: how often")),
    Wrong("train digits --set optimizer.lr=nan", 2, ("not a finite number", "mend: +give a finite number")),
    Wrong("train digits --devices cuda", 2, ("no device 'cuda' here", "mend: +leave --devices out")),
    Wrong("tune", 2, ("kernels are measured on a GPU", "mend: +run it on a machine with one")),
    Wrong("inspect /dev/null", 5, ("given: +/dev/null: it is no regular file",)),
    Wrong("train digits --set num_workers=-1", 2, ("given:    num_workers = -1", "0 or more")),
    Wrong("train digits --set channels=0 --set hidden=0", 2, ("2 faults", "channels = 0", "hidden = 0")),
    Wrong("train mnist --set hidden=0", 2, ("given:    hidden = 0",)),
    Wrong("train digits --epochs 0 --set batch_size=0 --set optimizer.lr=-1 --set dropout=2", 2,
          ("4 faults", r"\[1\] num_epochs = 0", r"\[2\] batch_size", r"\[3\] optimizer.lr", r"\[4\] dropout = 2")),
    Wrong("train digits --show-config --set lr=1", 2, ("unknown field", "given:    lr = '1'")),
]  # fmt: skip

DEVICES = [
    Wrong("train digits --devices cuda:0", 2, ("no device 'cuda:0'", "given:    --devices cuda:0", "cpu, ndarray")),
    Wrong("train digits --devices cuda:99", 2, ("no device 'cuda:99'", "burn-torch info")),
    Wrong("train digits --devices cuda:first", 2, ("no device 'cuda:first'", "number of the GPU")),
    Wrong("train digits --devices gpu", 2, ("no device 'gpu'", "expected: one of cpu, ndarray", "mean cuda:0")),
    Wrong("train digits --devices cpu:1", 2, ("no device 'cpu:1'", "did you mean cpu")),
    Wrong("train digits --devices ''", 2, ("no device ''", "name one of those")),
    Wrong("predict {run} {files}/one.npy --devices cuda:0", 2, ("no device 'cuda:0'",)),
]

DATA = [
    Wrong("train digits --data-dir {files}", 2, ("data comes with the package", "given:    --data /")),
    Wrong(
        "train mnist --data {files}/nowhere",
        3,
        ("mnist: the data is not here", "which does not exist", "expected: .*train-images-idx3-ubyte.gz", "--download"),
    ),
    Wrong(
        "train mnist --data {files}/empty",
        3,
        ("not here", "empty, without train-images-idx3-ubyte,", "BURN_TORCH_DATA"),
    ),
    Wrong("train mnist --data {files}/one.npy", 3, ("not here", "one.npy, which is a file")),
    Wrong("train mnist --data {files}/three-files", 3, ("not here", "without t10k-labels-idx1-ubyte$")),
    Wrong("train mnist", 3, ("not here", "/cache/mnist, which does not exist", "--download")),
    Wrong(
        "train regression", 3, ("california-housing: the data is not here", "BURN_TORCH_DATA is not set", "housing.csv")
    ),
    Wrong("train mnist --data {files}/cut", 3, ("truncated", "expected: 37632 bytes", "again")),
    Wrong("train mnist --data {files}/cut-gzip", 3, ("truncated or damaged gzip data",)),
    Wrong("train mnist --data {files}/longer", 3, ("trailing bytes",)),
    Wrong("train mnist --data {files}/web-page", 3, ("not an IDX file", "begins with 3c 68 74 6d", "web page")),
    Wrong("train mnist --data {files}/fewer-labels", 3, (r"images \(48, 28, 28\).*labels \(47,\)", "one n above 0")),
    Wrong("train mnist --data {files}/no-images", 3, (r"images \(0, 28, 28\)", "one n above 0")),
    Wrong("train mnist --data {files}/swapped", 3, ("not the images and labels", "swapped")),
    Wrong("train mnist --data {files}/eleven-classes", 3, ("up to 10", "below 10")),
]

DIRECTORIES = [
    Wrong("train digits --artifact-dir {files}/one.npy", 2, ("cannot be written", "one.npy: File exists", "rights")),
    Wrong("train digits --artifact-dir {files}/one.npy/run", 2, ("cannot be written", "Not a directory")),
    Wrong("train digits --artifact-dir {run}", 2, ("holds another run", "with checkpoint", "--resume")),
    Wrong("train digits --resume", 2, ("not the artifact directory", "artifacts/digits, which is no directory")),
    Wrong("train digits --resume --artifact-dir {files}", 2, ("not the artifact directory", "json: No such file")),
    Wrong("train digits --resume --artifact-dir {run} --set dropout=0 --seed 1", 2,
          ("a resumed run keeps its settings", "given:    --resume with --set dropout=0 --seed 1", "a run of its own")),
    Wrong("train digits --resume --artifact-dir {run} --epochs 0", 2, ("given:    num_epochs = 0",)),
    Wrong("train mnist --resume --artifact-dir {run}", 5, ("of another recipe", "recipe mnist, while .* of digits")),
    Wrong("predict {run} {files}/one.npy --recipe {recipe}", 5, ("of another recipe", "recipe own, while .* digits")),
    Wrong("predict {run} {files}/one.npy --recipe {files}/one.txt", 2, ("there is no recipe '/",)),
]  # fmt: skip

IMAGES = [
    Wrong("predict {run} {files}/nowhere.npy", 3, ("image cannot be read", "there is no such file", "check the path")),
    Wrong("predict {run} {files}", 3, ("image cannot be read", "this is a directory")),
    Wrong("predict {run} {files}/large.npy", 3, (r"shape \(9, 9\)", "8 x 8 pixels", "scale the image")),
    Wrong("predict {run} {files}/none.npy", 3, ("no image", "one image at least")),
    Wrong("predict {run} {files}/nan.npy", 3, ("NaN or infinite", "finite numbers")),
    Wrong("predict {run} {files}/objects.npy", 3, ("damaged: Object arrays", "a whole .npy file")),
    Wrong("predict {run} {files}/text.npy", 3, ("elements of type <U1", "expected numbers")),
    Wrong("predict {run} {files}/cut.npy", 3, ("damaged: .*162", "save the image again")),
    Wrong("predict {run} {files}/notes.npy", 3, ("does not begin as an .npy file does",)),
    Wrong("predict {run} {files}/cut.pgm", 3, ("61 pixels, the header says 8 x 8",)),
    Wrong("predict {run} {files}/header.pgm", 3, ("the header ends early",)),
    Wrong("predict {run} {files}/bitmap.pgm", 3, ("this is no PGM header: .*P4",)),
    Wrong("predict {run} {files}/words.csv", 3, ("damaged: .*three", "a whole .csv file")),
    Wrong("predict {run} {files}/empty.csv", 3, ("it is empty",)),
    Wrong("predict {run} {files}/one.txt", 3, ("an ending .txt", r"\.npy, \.csv, \.pgm", "convert")),
    Wrong("predict {run} {files}/cut-ubyte", 3, ("truncated", "191")),
    Wrong("predict {run} {files}/one.npy {files}/large.npy {files}/cut.pgm", 3,
          ("3 files: 2 faults", r"\[1\] .*large.npy", r"\[2\] .*cut.pgm")),
    Wrong("predict {run} {files}/one.png", 3, ("Pillow is not installed", r"\.pgm, \.npy or \.csv", "pip install")),
]  # fmt: skip


def cases(*tables):
    return [pytest.param(case, id=case.command or "nothing") for table in tables for case in table]


def check(done, case, left):
    assert (done.code, done.out) == (case.code, ""), done.err
    assert THREE_PARTS.match(done.err), done.err
    assert "Traceback" not in done.err
    assert str(ROOT / "burn_torch") not in done.err
    assert CONTROL.search(done.err) is None
    position = 0
    for pattern in case.says:
        match = re.compile(pattern, re.MULTILINE).search(done.err, position)
        assert match, f"{pattern!r} is not there, or not in this order:\n{done.err}"
        position = match.end()
    assert left == {}


@pytest.mark.parametrize("case", cases(USAGE))
def test_usage_errors_need_neither_torch_nor_numpy(case, fresh, tree, tmp_path, files, recipe):
    words = [word.format(files=files, recipe=recipe) for word in case.command.split()]
    absent = "sys.modules.update(torch=None, numpy=None)"
    check(fresh(*words, cwd=tmp_path, before=absent), case, tree(tmp_path))


def test_no_command_at_all_shows_the_help(fresh, tree, tmp_path):
    done, helped = (fresh(*words, cwd=tmp_path) for words in ([], ["--help"]))
    assert (done.code, done.out, done.err) == (2, "", helped.out)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("case", cases(SETTINGS, DEVICES, DATA, DIRECTORIES, IMAGES))
def test_bad_input(case, burn, tree, tmp_path, trained, files, recipe):
    before = tree(trained), tree(files)
    words = [word.strip("'").format(files=files, run=trained, recipe=recipe) for word in case.command.split()]
    check(burn(*words, cwd=tmp_path, absent=["PIL"]), case, tree(tmp_path))
    assert (tree(trained), tree(files)) == before


def test_an_artifact_directory_that_may_not_be_written(burn, tree, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if (folder / "x").parent.stat().st_uid == 0:
        pytest.skip("root may write everywhere")
    case = Wrong("", 2, ("cannot be written", "Permission denied"))
    done = burn("train", "digits", "--artifact-dir", folder / "run", cwd=tmp_path)
    check(done, case, {name: what for name, what in tree(tmp_path).items() if name != "locked"})


@pytest.mark.parametrize("text", ['{"recipe": "chess"}', "[]", "{"])
def test_settings_that_name_no_recipe(text, burn, tree, trained, files, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    (copy / "config.json").write_text(text)
    before = tree(tmp_path)
    done = burn("predict", copy, files / "one.npy", cwd=tmp_path)
    check(done, Wrong("", 2, ("name no built-in recipe", "config.json", "csv-table, digits, fashion-mnist")), {})
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", ["predict", "resume"])
def test_settings_of_a_wider_model(command, burn, tree, trained, files, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    config = copy / "config.json"
    config.write_text(config.read_text().replace('"channels": 4', '"channels": 8'))
    before = tree(tmp_path)
    if command == "predict":
        done = burn("predict", copy, files / "one.npy", cwd=tmp_path)
        printed = done.out
    else:
        done = burn("train", "digits", "--resume", "--artifact-dir", copy, "--epochs", 3, cwd=tmp_path)
        printed = done.out.removeprefix(f"resumes digits on cpu, kept in {copy}\n")
    assert (done.code, printed) == (5, "")
    assert THREE_PARTS.match(done.err)
    assert "conv1.weight has shape (4, 1, 3, 3), the module wants (8, 1, 3, 3)" in done.err
    assert "linear1.weight has shape (32, 16), the module wants (64, 16)" in done.err
    after = tree(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} <= {"run/experiment.log"}
    assert after.keys() == before.keys()


@pytest.mark.parametrize("settings", [{"channels": 10**9}, {"hidden": 10**12}])
def test_settings_of_a_model_of_terabytes(settings, burn, trained, tmp_path):
    """Its running statistics were made before the record was compared."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    for words in (["evaluate", "run"], ["resume", "run"], ["export", "run", "--to", "onnx"]):
        done = burn(*words, cwd=tmp_path)
        assert THREE_PARTS.match(done.err), done
        assert "the settings describe another model than the record" in done.err
        assert done.code == 2


def test_a_run_without_a_model_yet(burn, trained, files, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    (copy / "model.safetensors").unlink()
    done = burn("predict", copy, files / "one.npy", cwd=tmp_path)
    mend = f"finish it: burn-torch resume {copy}"
    check(done, Wrong("", 2, ("no trained model yet", "without model.safetensors", re.escape(mend))), {})


def test_a_damaged_model(burn, trained, files, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    model = copy / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-8])
    done = burn("predict", copy, files / "one.npy", cwd=tmp_path)
    check(done, Wrong("", 5, ("given:    .*model.safetensors",)), {})


def test_debug_shows_our_frames(burn, tmp_path):
    for words in (["--debug", "train", "digits"], ["train", "digits", "--debug"]):
        done = burn(*words, "--epochs", 0, cwd=tmp_path)
        assert done.code == 2
        assert done.err.startswith("Traceback (most recent call last):")
        assert str(ROOT / "burn_torch" / "cli" / "commands" / "train.py") in done.err
        assert "ConfigError" in done.err
