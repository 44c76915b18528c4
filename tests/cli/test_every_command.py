"""One table: every command as a process, with good and bad input: exit code, both streams, what is left on disk.

Wrong words of `train` and `predict` are in test_bad_input.py; each recipe on data of its own in test_recipes.py.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from burn_torch.cli import registry

ROOT = Path(__file__).resolve().parents[2]
THREE_PARTS = re.compile(r"\Aerror: \S.*\n  given:    \S.*\n(.*\n)*  expected: \S.*\n(.*\n)*  mend:     \S")
SMALL = "--set channels=4 --set hidden=8"


@dataclass(frozen=True)
class Case:
    """A command in a folder that has a finished run `run` and files; what it says, and what it changes there.

    out and err are patterns, in their order; no err means that the stream is empty.  new are patterns of the paths
    that it writes or changes; nothing else may differ.  needs is a package without which it is left out.
    """

    command: str
    code: int = 0
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    needs: str | None = None


FRESH_RUN = ("new/*",)
RESUMED = ("run/*",)

CASES = [
    # -- looking ------------------------------------------------------------------------------------------
    Case("info --json", out=(r'^\{', '"versions"', '"devices"', '"data"')),
    Case("info --data x", 2, err=("no option --data", "--help")),
    Case("cache list programs --json", out=(r"^\[", '"name": "programs"', '"entries"', '"bytes"')),
    Case("cache clear", 2, err=("nothing is removed without a yes", "add --yes")),
    Case("cache list attic", 2, err=("no cache 'attic'", "programs, kernels, timings, triton")),
    Case("cache list --yes", 2, err=("--yes is for clear",)),
    Case("cache clera", 2, err=("no action 'clera'", "one of list, clear", "did you mean clear")),
    Case("completion bash", out=("complete -o bashdefault -F _shtab_burn_torch burn-torch",)),
    Case("completion tcsh", 2, err=("no shell 'tcsh'", "one of bash, zsh, fish", "name one of those")),
    Case("completion fihs", 2, err=("no shell 'fihs'", "did you mean fish")),
    Case("tune --report", out=("lockfile: ",)),
    Case("tune", 2, err=("kernels are measured on a GPU", "--devices cuda:0")),
    Case("tune --devices cpu", 2, err=("measured on a GPU", "given:    --devices cpu")),
    Case("tune --shapes 3x,4 --only softmax", 2, err=("these are not shapes", "ROWSxCOLS", "mend 3x, 4")),
    Case("tune --json", 2, err=("--json is for --report",)),
    Case("tune --budget-s soon", 2, err=("'soon' is no whole number",)),
    Case("completion zsh", out=("^#compdef burn-torch", "runs:'Shows runs", "_shtab_burn_torch_runs_list_options")),
    Case("completion fish", out=("^complete -c burn-torch -f", "-a report")),
    # -- a recipe's step ----------------------------------------------------------------------------------
    Case(f"explain digits {SMALL}", out=("^step on LibTorch", "peak .* planned", "1 adam_update")),
    Case(f"explain digits {SMALL} --valid --graph", out=("^valid_step on LibTorch", "# conv1", "= linear\\(")),
    Case("explain digits --set hiden=4", 2, err=("unknown field", "hiden = '4' .*, from --set", "mean 'hidden'")),
    Case("explain counting.py", 2, err=("the step of own cannot be compiled", "steps, an int, changed", "compile.md")),
    Case("explain digits --graph --json", 2, err=("--json: not allowed with argument --graph",)),
    Case(f"bench digits {SMALL} --steps 2 --warmup 1 --json", out=('"eager"', '"compiled"', '"memory"')),
    Case("bench digits --steps 0", 2, err=("--steps: '0' is below 1",)),
    Case("bench digts", 2, err=("no recipe 'digts'", "did you mean digits")),
    Case("bench regression", 3, err=("california-housing: the data is not here", "housing.csv")),
    Case(f"check digits {SMALL}", out=("^ok +versions", "^ok +gradients against finite differences: 16 parameters",
                                       "^ok +compiled and eager", "^ok +learning", "14 looks, 0 faults")),
    Case("check broken.py", 1, out=("^ok +first loss", "^fault +gradients: none for unused.weight, unused.bias",
                                    "^fault +gradients against finite differences: they differ in hidden.weight",
                                    "^fault +learning", "3 faults")),
    Case("check --kernels sofmax", 2, out=("^ok +versions",), err=("no such operation", "given:    sofmax", "softmax")),
    Case("check chess", 2, err=("no recipe 'chess'",)),
    Case("check --json", out=(r"^\[|^\{", '"versions"')),
    Case("explain digits --valid --json", out=(r"^\{", '"operations"')),
    Case("bench counting.py --set num_epochs=x", 2, err=("OwnConfig: no int", "num_epochs = 'x', from --set")),
    # -- training -----------------------------------------------------------------------------------------
    Case(f"train digits {SMALL} --dry-run --batch-size 32", out=(
        "1437 items to train", r"batch.images \(32, 8, 8\)", r"conv1 +Conv2d +\(32, 4, 8, 8\) +40$", "valid Loss",
        "memory +parameters", "nothing was kept")),
    Case("train digits --show-config --json", out=('"config"', '"origins"', '"seed": "default"')),
    Case("train digits --json", 2, err=("--json is for --show-config",)),
    Case(f"train digits {SMALL} --epochs 1 --artifact-dir new --quiet", new=FRESH_RUN),
    Case(f"train digits {SMALL} --epochs 1 --artifact-dir new --limit-steps 5", new=FRESH_RUN,
         out=("stopped by --limit-steps; the checkpoint is new/checkpoint/epoch-1-batch-5", "resume new$")),
    Case("train digits --limit-steps 0", 2, err=("--limit-steps: '0' is below 1",)),
    Case("train digits --shard-optimizer", 2, err=("do not go together", "--shard-optimizer with --devices cpu")),
    Case("train digits --devices cpu,cuda:7", 2, err=("no device 'cuda:7'",)),
    Case("evaluate run --devices cpu,cpu", 2, err=("runs on one device", "several are for train and resume")),
    Case("train digits --quiet --verbose", 2, err=("not allowed with argument",)),
    Case("train digits --precision half", 2, err=("no precision 'half'|invalid choice",)),
    Case("train digits --epochs 1 --precision bfloat16 --no-compile --artifact-dir new", 2,
         err=("only compiled steps compute in", "given:    --precision bfloat16 --no-compile")),
    Case("train digits --download --artifact-dir new", 2, err=("nothing to download", "mnist or fashion-mnist")),
    Case("train digits --artifact-dir run", 2, err=("holds another run", "with checkpoint")),
    Case("train digits --artifact-dir run/config.json", 2, err=("cannot be written", "File exists")),
    Case("train counting.py:OwnRecipe --epochs 1 --artifact-dir new --no-compile", out=("trains own",), new=FRESH_RUN),
    Case("train counting:OwnRecipe --show-config", out=('^recipe = "own"',)),
    Case("train counting:OwnRecpe", 2, err=("no such recipe", "counting with no OwnRecpe", "counting:OwnRecipe")),
    Case("train nowhere.at.all:Recipe", 2, err=("no module 'nowhere.at.all'", "path/to/file.py:Class")),
    # -- settings -----------------------------------------------------------------------------------------
    Case("train digits --config good.toml --config good.json --seed 5 --show-config", env={
        "BURN_TORCH_SET__OPTIMIZER__LR": "0.25"}, out=(
        "^num_epochs = 3 +# good.toml", "^batch_size = 16 +# good.json", "^seed = 5 +# --seed",
        "^optimizer.lr = 0.25 +# BURN_TORCH_SET__OPTIMIZER__LR")),
    Case("train digits --config bad.toml --set dropuot=0", 2, env={"BURN_TORCH_SET__SEED": "x"}, err=(
        "4 faults", "num_epochs = '3' .*, from bad.toml: wrong type", "optmizer = .*, from bad.toml: unknown field",
        "seed = 'x', from BURN_TORCH_SET__SEED: no int", "dropuot = '0' .*, from --set", "mean 'optimizer'")),
    Case("train digits --config nowhere.toml", 2, err=("nowhere.toml: no settings can be read", "No such file")),
    Case("train digits --config damaged.toml", 2, err=("no settings can be read", "line 1", "read as TOML")),
    Case("train digits --config list.json", 2, err=("no settings can be read", "given:    a list|FrozenList")),
    # -- going on, measuring, predicting ------------------------------------------------------------------
    Case("resume run --epochs 3 --workers 2", out=("resumes digits on cpu, kept in run", "epoch 3/3  train"),
         new=RESUMED),
    Case("resume run", out=("epoch 2 of 2 is over: there is nothing left to train",), new=RESUMED),
    Case("resume run --epochs 1", 2, out=("resumes digits",), err=(
        "past the epoch that it is to end with", "num_epochs 1, and .* with 2 epochs", "2 epochs or more"),
        new=("run/experiment.log",)),
    Case("resume damaged-events --epochs 3", out=("epoch 3/3  train",), new=("damaged-events/*",)),
    Case("resume nowhere", 2, err=("not the artifact directory", "nowhere, which is no directory")),
    Case("resume", 2, err=("required: DIR",)),
    Case("resume run --epochs many", 2, err=("'many' is no whole number",)),
    Case("resume run --recipe counting.py", 5, err=("of another recipe", "recipe own, while .* of digits")),
    Case("resume damaged-config", 2, err=("damaged-config/config.json",)),
    Case("evaluate run", out=("^valid: 360 items", "^  Accuracy +[\\d.]+ %$", "^  Loss "),
         new=("run/test/valid/*", "run/evaluation.log")),
    Case("evaluate run --name other --batch-size 100 --json", out=('"name": "other", "items": 360, "batches": 4',),
         new=("run/test/other/*", "run/evaluation.log")),
    Case("evaluate damaged-events", out=("^valid: 360 items",), new=("damaged-events/test/*", "damaged-events/*.log")),
    Case("evaluate run --name ..", 2, err=("a folder cannot have this name", "given:    '..'")),
    Case("evaluate run --data files", 2, err=("the data comes with the package",)),
    Case("evaluate nowhere", 2, err=("not the artifact directory",)),
    Case("evaluate no-model", 2, err=("no trained model yet", "burn-torch resume no-model", "--checkpoint newest")),
    Case("evaluate no-model --checkpoint 7", 5, err=("no checkpoint of epoch 7", "with epochs 1, 2")),
    Case("evaluate no-model --checkpoint best", 2, err=("--checkpoint: 'best' is neither an epoch",)),
    Case("evaluate broken --checkpoint newest", 2, err=("no checkpoint yet", "broken, without")),
    Case("evaluate run --batch-size 0", 2, err=("--batch-size: '0' is below 1",)),
    Case("predict run one.npy", out=(r"^one.npy: \d \([\d.]+%\)$",)),
    Case("predict run one.npy --set channels=9", 5, err=("conv1.weight has shape",)),
    Case("predict no-model one.npy", 2, err=("no trained model yet",)),
    Case("predict damaged-model one.npy", 5, err=("given:    .*model.safetensors",)),
    # -- watching -----------------------------------------------------------------------------------------
    Case("attach run --once", out=("^run +run$", "^status +completed, epoch 2 of 2", "^Accuracy$", "best .* in epoch")),
    Case("attach run", out=("^epoch 1/2  train", "^epoch 2/2  train", "Learner Summary")),
    Case("attach damaged-events --once", out=("^status", "^damaged +2 lines of events.jsonl without an event")),
    Case("attach nowhere", 2, err=("no run to show", "nowhere, which is no directory", "runs list")),
    Case("attach run/config.json --once", 2, err=("no run to show", "run/config.json")),
    Case("attach run --once --plain", 2, err=("not allowed with argument", r"\[--once \| --plain\] DIR")),
    Case("attach", 2, err=("required: DIR",)),
    # -- looking back -------------------------------------------------------------------------------------
    Case("runs list .", out=("^RUN +STATUS +EPOCH +STARTED +TIME +BEST", r"^\S*damaged-events +\w+ +2/2",
                             r"^\S*run +completed +2/2 .*Accuracy")),
    Case("runs list", out=("no runs below artifacts",)),
    Case("runs list run --json", out=(r"^\[", '"status": "completed"', '"seconds"', '"best_epoch"')),
    Case("runs list nowhere", 2, err=("there are no runs", "nowhere, which is no directory")),
    Case("runs compare run other", out=("^ +run +other$", "^status +completed +completed", "^time ", "^Loss valid",
                                        "^batch_size +64 +100", "^seed +3 +4")),
    Case("runs compare run nowhere", 2, err=("there is no run", "nowhere, which is no directory")),
    Case("runs compare", 2, err=("required: DIR",)),
    Case("runs plot run --metric loss --epochs --ascii --height 5 --width 60", out=("^run: Loss over", "^ .*1 +2$")),
    Case("runs plot run --json", out=(r"^\{", '"Accuracy"', '"train"')),
    Case("runs plot run --metric los", 2, err=("no run measures 'los'", "Accuracy, Loss", "did you mean Loss")),
    Case("runs plot run --width wide", 2, err=("--width: 'wide' is no whole number",)),
    Case("runs lst", 2, err=("no view 'lst'", "one of list, compare, plot", "did you mean list")),
    Case("runs", 2, err=("required: VIEW",)),
    Case("report run --html run.html --csv run.csv", out=("^run.html$", "^run.csv$"), new=("run.html", "run.csv")),
    Case("report damaged-events --csv -", out=("^time,split,epoch,iteration,items,metric,value", "valid,2,", "Loss")),
    Case("report run --tensorboard tb", out=("^tb$",), new=("tb/*",), needs="tensorboard"),
    Case("report run", 2, err=("nothing to write is named", "--html FILE, --csv FILE or --tensorboard DIR")),
    Case("report run --html - --csv -", 2, err=("only one report can go to standard output", "--html - --csv -")),
    Case("report nowhere --csv -", 2, err=("there is no run", "nowhere, which is no directory")),
    Case("report run --html nowhere/r.html", 2, err=("cannot be written", "nowhere/r.html: No such file")),
    Case("inspect run", out=("^run: directory of a run, 2 checkpoints", "config.recipe +digits",
                             "result.status +completed", r"^  conv1.weight +f32  \(4, 1, 3, 3\)")),
    Case("inspect run/model.safetensors --json", out=(r"^\{", '"conv1.weight"')),
    Case("inspect run/checkpoint/epoch-2.safetensors --check", out=("checksum fits", "epoch 2, complete, 46 steps")),
    Case("inspect nowhere", 5, err=("cannot be loaded", "nowhere: there is no such file", "check the path")),
    Case("inspect damaged-model/model.safetensors", 5, err=("damaged-model/model.safetensors",)),
    # -- files for others, and of others ------------------------------------------------------------------
    Case("convert run/model.safetensors m.bpk --half", out=("^wrote m.bpk: 22 tensors, ",), new=("m.bpk",)),
    Case("convert run/model.safetensors one.npy", 2, err=("the output file exists already", "one.npy", "--overwrite")),
    Case("convert run/model.safetensors m.xyz", 5, err=("no record format has the ending .xyz", "save to m.")),
    Case("convert nowhere m.bpk", 5, err=("nowhere",)),
    Case("convert run/model.safetensors m.bpk --remap x", 2, err=("--remap needs a pattern", "RE=TO")),
    Case("export run --to bpk --out m.bpk", out=("^wrote m.bpk$",), new=("m.bpk",)),
    Case("export run --to onnx --out m.onnx", out=("opset 18", "^wrote m.onnx$"), new=("m.onnx",), needs="onnx"),
    Case("export run --to pickle", 2, err=("no format 'pickle'", "one of onnx, safetensors, bpk")),
    Case("export no-model --to bpk", 2, err=("no trained model yet",)),
    Case("export run --to bpk --batch 4", 2, err=("--batch belongs to ONNX files",)),
    Case("import tiny.onnx --out model", out=("operators", "^wrote model/"), new=("model/*",), needs="onnx"),
    Case("import nowhere.onnx", 3, err=("nowhere.onnx",)),
    Case("import one.npy", 3, err=("one.npy",)),
    Case("import one.npy --memory-limit much", 2, err=("--memory-limit: 'much' is no whole number",)),
    Case("replay nan.safetensors", out=(r"^epoch 1, batch \d+, step \d+: (NaN|infinity) from", "the same fault: ")),
    Case("replay run/model.safetensors", 5, err=("not a replay of an anomaly", "run/model.safetensors")),
    Case("replay nowhere.safetensors", 5, err=("nowhere.safetensors",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def workplace(burn, trained, files, recipe, tmp_path_factory):
    """A folder with a run, damaged copies of it, another run, one that broke, recipes and settings."""
    folder = tmp_path_factory.mktemp("workplace")
    for name in ("run", "damaged-events", "damaged-config", "damaged-model", "no-model"):
        shutil.copytree(trained, folder / name)
    events = folder / "damaged-events" / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(
        b"".join([*lines[:3], b"\xff\xfe not a line of JSON\n", b'{"v": 1', *lines[3:-1], lines[-1][:7]])
    )
    (folder / "damaged-config" / "config.json").write_text("{")
    model = folder / "damaged-model" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-8])
    (folder / "no-model" / "model.safetensors").unlink()
    shutil.copy(files / "one.npy", folder)
    shutil.copy(recipe, folder / "counting.py")
    (folder / "broken.py").write_text(
        recipe.read_text()
        .replace("    output: nn.Linear\n", "    output: nn.Linear\n    unused: nn.Linear\n")
        .replace(
            "nn.LinearConfig(16, 10).init(device))",
            "nn.LinearConfig(16, 10).init(device), *[nn.LinearConfig(2, 2).init(device)])",
        )
        .replace(
            "        return super().train_step(batch)",
            "        item = self.classify(batch)\n        return TrainOutput.new(self, (-item.loss).backward(), item)",
        )
        .replace("steps += 1", "steps += 0")
    )
    small = ["--set", "channels=4", "--set", "hidden=16", "--seed", 4, "--batch-size", 100]
    assert burn("train", "digits", "--epochs", 1, *small, "--artifact-dir", "other", cwd=folder).code == 0
    words = ["--detect-anomaly", "--set", "optimizer.lr=1e30", "--artifact-dir", "broken"]
    assert burn("train", "digits", *small, *words, cwd=folder).code == 4
    (report_file,) = (folder / "broken/anomaly").iterdir()
    report_file.rename(folder / "nan.safetensors")
    if find_spec("onnx") is not None:
        assert burn("export", "run", "--to", "onnx", "--out", "tiny.onnx", cwd=folder).code == 0
    (folder / "good.toml").write_text("num_epochs = 3\nbatch_size = 8\n[optimizer]\nlr = 0.5\n")
    (folder / "good.json").write_text('{"batch_size": 16, "seed": 9}')
    (folder / "bad.toml").write_text('num_epochs = "3"\noptmizer.lr = 1\n')
    (folder / "damaged.toml").write_text("num_epochs = = 3\n")
    (folder / "list.json").write_text("[1, 2]")
    return folder


def in_order(patterns, text):
    position = 0
    for pattern in patterns:
        match = re.compile(pattern, re.MULTILINE).search(text, position)
        assert match, f"{pattern!r} is not there, or not in this order:\n{text}"
        position = match.end()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.command) for case in CASES])
def test_command(case, burn, tree, workplace, tmp_path):
    if case.needs is not None:
        pytest.importorskip(case.needs)
    place = workplace if not case.new else shutil.copytree(workplace, tmp_path / "place")
    before = tree(place)
    done = burn(*case.command.split(), cwd=place, **case.env)
    assert done.code == case.code, done.err + done.out
    in_order(case.out, done.out)
    if case.err:
        assert THREE_PARTS.match(done.err), done.err
        assert "Traceback" not in done.err
        in_order(case.err, done.err)
    else:
        assert done.err == ""
    if case.code and not case.out:
        assert done.out == ""
    after = tree(place)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    changed = {name for name in changed if not name.startswith("__pycache__")}
    assert not {name for name in changed if not any(fnmatch.fnmatch(name, pattern) for pattern in case.new)}
    for pattern in case.new:
        assert fnmatch.filter(changed, pattern), f"nothing was written to {pattern}"


@pytest.mark.parametrize("command", registry.commands())
def test_every_command_helps_and_refuses_what_it_does_not_know(command, burn, tree, tmp_path):
    done = burn(command, "--help", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: burn-torch {command} ")
    done = burn(command, "--xyzzy", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert THREE_PARTS.match(done.err)
    assert "there is no option --xyzzy" in done.err
    assert tree(tmp_path) == {}


def test_the_table_has_every_command_with_good_and_bad_input(burn, tmp_path):
    listed_commands = {command: commands_in(burn(*command, "--help", cwd=tmp_path).out) for command in ((), ("runs",))}
    listed = listed_commands[()]
    assert listed == sorted(registry.commands())
    wanted = [name for name in listed if name != "runs"] + [f"runs {view}" for view in listed_commands[("runs",)]]
    assert len(wanted) == len(listed) + 2
    for name in wanted:
        rows = [case for case in CASES if f"{case.command} ".startswith(f"{name} ")]
        assert any(case.code == 0 for case in rows), f"{name} has no row with good input"
        assert any(case.code in (2, 3, 5) for case in rows), f"{name} has no row with bad input"


def commands_in(help):
    """The commands that a help page lists."""
    return re.findall(r"^    (\S+) ", help, re.MULTILINE)


def test_a_run_that_has_not_ended_is_measured_by_a_checkpoint(burn, workplace, tmp_path):
    place = shutil.copytree(workplace / "no-model", tmp_path / "run")
    losses = {}
    for which in (1, 2, "newest"):
        done = burn("evaluate", "run", "--checkpoint", which, "--json", cwd=tmp_path)
        number = 2 if which == "newest" else which
        assert (done.code, done.err) == (0, f"the model of run/checkpoint/epoch-{number}.safetensors\n")
        losses[which] = json.loads(done.out)["metrics"]["Loss"]
    measured = json.loads((place / "result.json").read_text())["metrics"]["valid"]["Loss"]
    assert [losses[1], losses[2]] == pytest.approx(measured, rel=1e-6)
    assert losses["newest"] == losses[2]
    done = burn("predict", "run", workplace / "one.npy", "--checkpoint", "newest", cwd=tmp_path)
    assert (done.code, done.out.count("\n")) == (0, 1)


def test_all_settings_are_kept_with_their_origins(burn, workplace, tmp_path):
    words = ["--config", workplace / "good.toml", "--seed", 5, "--artifact-dir", "run", "--limit-steps", 1]
    done = burn("train", "digits", *SMALL.split(), *words, cwd=tmp_path, BURN_TORCH_SET__DROPOUT="0.25")
    assert (done.code, done.err) == (0, "")
    config = json.loads((tmp_path / "run/config.json").read_text())
    kept = json.loads((tmp_path / "run/config.origins.json").read_text())
    assert (config["dropout"], config["seed"], config["optimizer"]["lr"], config["channels"]) == (0.25, 5, 0.5, 4)
    assert kept["origins"]["dropout"] == "BURN_TORCH_SET__DROPOUT"
    assert kept["origins"]["seed"] == "--seed"
    assert kept["origins"]["optimizer.lr"] == str(workplace / "good.toml")
    assert kept["origins"]["channels"] == "--set"
    assert kept["origins"]["split"] == "default"
    assert kept["command"].startswith("burn-torch train digits --set channels=4")


def test_a_stopped_run_goes_on_with_the_same_bits(burn, tmp_path):
    for name, limit in (("whole", []), ("parts", ["--limit-steps", 30])):
        words = ["train", "digits", *SMALL.split(), "--epochs", 2, "--seed", 3, "--artifact-dir", name, *limit]
        assert burn(*words, cwd=tmp_path).code == 0
    (tmp_path / "parts/model.safetensors").unlink()
    assert burn("resume", "parts", "--limit-steps", 3, cwd=tmp_path).code == 0
    assert burn("resume", "parts", cwd=tmp_path).code == 0
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
