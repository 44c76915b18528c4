"""Tests what survives a run from the command line: checkpoints inside of epochs, a time limit, errors, the first
NaN.
"""

from __future__ import annotations

import json
import re
import shutil

import pytest

SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]


def test_checkpoints_inside_of_an_epoch(burn, bits, trained, tmp_path):
    words = ["train", "digits", "--epochs", "1", *SMALL, "--artifact-dir", "run", "--checkpoint-every"]
    done = burn(*words, "7 steps", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    names = re.findall(r'"[^"]*/(epoch-[^"]*)\.safetensors"', (tmp_path / "run/events.jsonl").read_text())
    assert names == [*(f"epoch-1-batch-{7 * i}" for i in range(1, len(names) - 1)), names[-2], "epoch-1"]
    assert len(names) > 4
    done = burn("train", "digits", "--artifact-dir", "run", "--resume", "--epochs", "2", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert bits(tmp_path / "run/model.safetensors") == bits(trained / "model.safetensors")


def test_a_time_limit_exits_with_0(burn, tmp_path):
    words = ["train", "digits", "--epochs", "2000", *SMALL, "--artifact-dir", "run", "--time-limit", "0.4s"]
    done = burn(*words, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    says = r"^stopped by the time limit of 0.4 s; the checkpoint is (run/checkpoint/epoch-.*)$"
    (checkpoint,) = re.findall(says, done.out, re.MULTILINE)
    assert (tmp_path / checkpoint).is_file()
    assert json.loads((tmp_path / "run/result.json").read_text())["status"] == "time_limit"


def test_an_error_leaves_a_checkpoint_from_which_the_run_goes_on(burn, bits, recipe, tmp_path):
    done = burn("train", recipe, "--set", "fault=error", "--no-compile", cwd=tmp_path)
    assert done.code == 1
    assert "saved artifacts/own/checkpoint/epoch-2-batch-6.safetensors: --resume" in done.err
    words = ["train", recipe, "--artifact-dir", "artifacts/own", "--resume", "--no-compile"]
    done = burn(*words, cwd=tmp_path)  # a new process counts its steps from 1
    assert (done.code, done.err) == (0, "")
    whole = burn("train", recipe, "--no-compile", "--artifact-dir", "whole", cwd=tmp_path)
    assert whole.code == 0
    assert bits(tmp_path / "artifacts/own/model.safetensors") == bits(tmp_path / "whole/model.safetensors")


def test_detect_anomaly_names_the_operation_and_replay_shows_it(burn, tmp_path):
    words = ["train", "digits", *SMALL, "--set", "optimizer.lr=1e30", "--detect-anomaly"]
    done = burn(*words, "--artifact-dir", "run", cwd=tmp_path)
    assert done.code == 4
    assert done.err.startswith("error: the first value that is not finite\n  given:    ")
    assert re.search(r"(NaN|infinity) from \w+ .*in epoch 1, batch \d+ \(step \d+ of the run\)", done.err)
    [file] = (tmp_path / "run/anomaly").iterdir()
    assert f"burn-torch replay run/anomaly/{file.name} shows what it read" in done.err
    shown = burn("replay", f"run/anomaly/{file.name}", cwd=tmp_path)
    assert (shown.code, shown.err) == (0, "")
    assert re.match(r"epoch 1, batch \d+, step \d+: (NaN|infinity) from \w+", shown.out)
    assert re.search(r"(digits|image_classification)\.py:\d+ in \w+: \S", shown.out)  # a line of the recipe's
    assert "sys.exit(main())" not in shown.out
    assert shown.out.splitlines()[-1].startswith("the same fault: ")


def test_replay_of_what_is_none(burn, trained, tmp_path):
    done = burn("replay", "nowhere", cwd=tmp_path)
    assert done.code == 5
    assert re.match(
        r"error: .*\n  given:    nowhere.safetensors: there is no such file\n  expected: .*\n  mend: ", done.err
    )
    done = burn("replay", trained / "model.safetensors", cwd=tmp_path)
    assert done.code == 5
    assert re.match(r"error: this file is not a replay of an anomaly\n  given: .*\n  expected: .*\n  mend: ", done.err)


def test_a_checkpoint_that_does_not_match_names_all_faults(burn, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    config = tmp_path / "run/config.json"
    config.write_text(
        config.read_text().replace('"channels": 4', '"channels": 5').replace('"hidden": 16', '"hidden": 9')
    )
    done = burn("train", "digits", "--artifact-dir", "run", "--resume", "--epochs", "3", cwd=tmp_path)
    assert done.code == 5
    assert done.err.count(", the module wants ") > 5
    assert not (tmp_path / "run/checkpoint/epoch-3.safetensors").exists()


def test_a_damaged_newest_checkpoint_is_passed_over_in_one_line(burn, bits, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    newest = tmp_path / "run/checkpoint/epoch-2.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    done = burn("train", "digits", "--artifact-dir", "run", "--resume", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(r"^.*checkpoint epoch-2.safetensors is passed over: .*$", done.out, re.MULTILINE)) == 1
    assert bits(tmp_path / "run/model.safetensors") == bits(trained / "model.safetensors")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "--checkpoint-every often",
            "--checkpoint-every: 'often' is no number of steps .500. and no time .10m, '2 hours'.",
        ),
        ("--checkpoint-every 0", "--checkpoint-every: '0' is no number of steps"),
        ("--time-limit soon", "--time-limit: 'soon' is no time, such as 90m, 1h30m or 1:30:00"),
        ("--time-limit 90", "--time-limit: '90' is no time"),
        ("--detect-anomalies", "there is no option --detect-anomalies\n[\\s\\S]*did you mean --detect-anomaly"),
    ],
)
def test_wrong_options(words, says, burn, tmp_path):
    done = burn("train", "digits", *words.split(), cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert re.search(says, done.err), done.err
    assert not any(tmp_path.iterdir())
