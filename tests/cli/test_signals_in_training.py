"""Ctrl-C and SIGTERM in `burn-torch train`: an exit code of its own, a checkpoint, a resume with the same bits."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]
SIGNALS = [(signal.SIGINT, 130, "interrupted by Ctrl-C"), (signal.SIGTERM, 143, "terminated by SIGTERM")]


@pytest.fixture
def start(tmp_path, environment):
    """Starts a training as a process, and waits for the line that begins so."""

    def started(*words: str, line: str) -> subprocess.Popen[str]:
        code = (  # a background job of a shell starts with SIGINT ignored
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from burn_torch.cli.main import main; sys.exit(main())"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        while not process.stdout.readline().startswith(line):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        return process

    return started


@pytest.mark.parametrize(("number", "code", "says"), SIGNALS)
def test_one_signal_writes_a_checkpoint_and_a_resume_has_the_same_bits(
    number, code, says, start, burn, bits, trained, tmp_path
):
    words = ["train", "digits", "--epochs", "200", *SMALL, "--artifact-dir", "run"]
    process = start(*words, line="epoch 1/200")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    run = tmp_path / "run"
    checkpoint = re.findall(rf"^{says}; the checkpoint is (run/checkpoint/epoch-.*\.safetensors)$", out, re.MULTILINE)
    assert checkpoint
    assert (tmp_path / checkpoint[0]).is_file()
    assert "go on    burn-torch resume run\n" in out
    assert not (run / "model.safetensors").exists()
    assert not list(run.rglob("*.part"))

    epochs = 1 + max(int(epoch) for epoch in re.findall(r"^epoch (\d+)/200 ", "epoch 1/200 \n" + out, re.MULTILINE))
    done = burn("train", "digits", "--resume", "--epochs", epochs, "--artifact-dir", "run", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    whole = burn("train", "digits", "--epochs", epochs, *SMALL, "--artifact-dir", "whole", cwd=tmp_path)
    assert (whole.code, whole.err) == (0, "")
    assert bits(run / "model.safetensors") == bits(tmp_path / "whole" / "model.safetensors")


def test_a_second_ctrl_c_stops_at_once(start, recipe, tmp_path):
    slow = tmp_path / "slow.py"
    text = recipe.read_text(encoding="utf-8").replace(
        "from __future__ import annotations\n", "from __future__ import annotations\nimport time\n", 1
    )
    slow.write_text(
        text.replace("        steps += 1\n", "        steps += 1\n        time.sleep(1.0)\n", 1), encoding="utf-8"
    )
    process = start("train", "slow.py", line="trains own")
    time.sleep(0.5)  # the first of two signals meets the first step
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals at one moment would be one
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert "checkpoint" not in out
    assert time.monotonic() - begun < 5
    assert not (tmp_path / "artifacts/own/checkpoint").exists()
