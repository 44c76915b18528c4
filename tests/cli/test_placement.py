"""`--devices` with several, `--shard-optimizer`, and the command as the processes of torchrun."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SMALL = ["--epochs", "1", "--set", "channels=4", "--set", "hidden=8", "--set", "dropout=0.2", "--seed", "3"]


def losses(folder):
    report = json.loads((folder / "result.json").read_text())
    assert report["status"] == "completed"
    return [report["metrics"][split]["Loss"] for split in ("train", "valid")]


@pytest.fixture
def torchrun(environment):
    """Runs the command as two processes; gives the exit code and both streams."""

    def run(*words, cwd):
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        command = [*start, "--nproc-per-node=2", "-m", "burn_torch", *map(str, words)]
        done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_several_devices_and_several_processes_train_alike(burn, torchrun, tree, tmp_path):
    for name, words in (("main", []), ("sharded", ["--shard-optimizer"])):
        done = burn("train", "digits", *SMALL, "--devices", "cpu,cpu", *words, "--artifact-dir", name, cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"trains digits on cpu,cpu, kept in {name}\n")
    code, out, err = torchrun("train", "digits", *SMALL, "--artifact-dir", "processes", cwd=tmp_path)
    assert code == 0, err
    assert out.startswith("trains digits on 2 processes, cpu each, kept in processes\n")
    assert out.count("Learner Summary") == out.count("epoch 1/1  train") == 1
    wanted = losses(tmp_path / "main")
    for name in ("sharded", "processes"):
        for actual, expected in zip(losses(tmp_path / name), wanted, strict=True):
            assert actual == pytest.approx(expected, rel=1e-5)
    assert {path.name for path in (tmp_path / "processes").iterdir()} == {
        path.name for path in (tmp_path / "main").iterdir()
    }


@pytest.mark.slow
def test_a_mistake_of_one_process_is_reported_in_words_by_all(torchrun, tmp_path):
    """The others showed a traceback of ours for a directory that holds another run."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "model.safetensors").write_bytes(b"")
    code, out, err = torchrun("train", "digits", *SMALL, "--artifact-dir", "taken", cwd=tmp_path)
    assert (code, out) == (1, "")  # torchrun's own code
    printed = err.partition("torch/distributed/elastic")[0]
    assert "error: the artifact directory holds another run\n  given:    taken with model.safetensors\n" in printed
    assert "the first failure, of rank 0:\nerror: the artifact directory holds another run" in printed
    assert "rank 1 ends with code 2: rank 0 failed with ArtifactError: the artifact directory holds" in printed
    assert "Traceback" not in printed
    assert "exitcode  : 2" in err


@pytest.mark.slow
def test_processes_stop_together_go_on_together_and_end_together(torchrun, tmp_path):
    code, _, err = torchrun("train", "digits", *SMALL, "--artifact-dir", "whole", cwd=tmp_path)
    assert code == 0, err
    code, out, err = torchrun("train", "digits", *SMALL, "--artifact-dir", "parts", "--limit-steps", 5, cwd=tmp_path)
    assert code == 0, err
    assert "the checkpoint is parts/checkpoint/epoch-1-batch-5.safetensors" in out
    code, _, err = torchrun("resume", "parts", cwd=tmp_path)
    assert code == 0, err
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    code, out, err = torchrun("train", "digits", *SMALL, "--artifact-dir", "whole", cwd=tmp_path)
    assert (code != 0, out) == (True, "")
    assert err.startswith("error: the artifact directory holds another run\n  given:    whole")
    assert "rank 1 ends with code 2: rank 0 failed with ArtifactError" in err
    code, out, err = torchrun("train", "digits", *SMALL, "--devices", "cpu,cpu", cwd=tmp_path)
    assert (code != 0, out) == (True, "")
    assert "given:    --devices cpu,cpu in 2 processes\n  expected: one device a process" in err
