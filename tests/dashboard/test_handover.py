"""Training on a terminal: the trainer in a session of its own, the dashboard in front of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burn_torch.monitor import ControlClient, RunView, is_alive

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAIN = "from burn_torch.cli.main import main; sys.exit(main())"


FAKE = f"""
from burn_torch.cli import handover
handover._program = lambda: [sys.executable, {str(HERE / "fake_trainer.py")!r}]
sys.exit(handover.lead(sys.argv[1:]))
"""
SMALL = ["--set", "channels=4", "--set", "hidden=16", "--seed", "3"]


@pytest.fixture
def fake(open_terminal, tmp_path):
    """A terminal with the front of a trainer that needs no torch."""
    return lambda how, **options: open_terminal(how, cwd=tmp_path, code=FAKE, **options)


def wait_until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_closes_with_the_run_and_prints_the_summary(fake, tmp_path):
    with fake("done") as terminal:
        assert terminal.wait() == 0
        terminal.assert_as_before()
        assert (
            terminal.after == "======= the summary =======\ncompleted: the last line\nplots    burn-torch attach run\n"
        )
        begun = re.search(r"it begins in session (\d+)", terminal.text)
        assert begun is not None
        assert int(begun[1]) != os.getsid(0)
        assert int(begun[1]) != terminal.process.pid  # a session of its own
    output = (tmp_path / "run/output.log").read_text()
    assert output == "printed where nobody looks\n======= the summary =======\ncompleted: the last line\n"


@pytest.mark.slow
def test_a_run_that_fails_shows_its_last_lines_and_its_code(fake, tmp_path):
    with fake("fail") as terminal:
        assert terminal.wait() == 1
        terminal.assert_as_before()
        lines = terminal.after.splitlines()
    assert lines[0] == "the last lines of run/output.log:"
    assert lines[1:3] == ["line 16", "line 17"]
    assert lines[-2:] == ["error: boom", "plots    burn-torch attach run"]


def test_a_mistake_before_the_run_needs_no_dashboard(fake, tmp_path):
    with fake("early") as terminal:
        assert terminal.wait() == 2
        assert b"?1049h" not in terminal.output
        assert "error: a mistake" in terminal.text
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_before_the_run_reaches_the_trainer(fake, tmp_path):
    with fake("slow") as terminal:
        terminal.until("it begins")
        terminal.press("\x03")
        assert terminal.wait() == 130
        assert b"?1049h" not in terminal.output


@pytest.mark.parametrize("how", ["wait", pytest.param("deaf", marks=pytest.mark.slow)])  # without a control socket
def test_stop_ends_the_run_in_its_own_way(fake, tmp_path, how):
    with fake(how) as terminal:
        terminal.until("Validating")
        terminal.press("qs")
        assert terminal.wait() == 0
        assert "stopped: the last line" in terminal.after


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wait", "deaf"])
def test_kill_ends_it_at_once(fake, tmp_path, how):
    with fake(how) as terminal:
        terminal.until("Validating")
        terminal.press("\x03k")
        assert terminal.wait() == 137
        terminal.assert_as_before()
        assert "plots    burn-torch attach run" in terminal.after


@pytest.mark.slow
def test_detach_leaves_it_running(fake, tmp_path):
    with fake("wait") as terminal:
        terminal.until("Validating")
        terminal.press("qd")
        assert terminal.wait() == 0
        said = re.fullmatch(
            r"the training goes on in process (\d+), its output in run/output\.log\nwatch    burn-torch attach run\n",
            terminal.after,
        )
        assert said is not None
    finish(tmp_path / "run")


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGHUP, marks=pytest.mark.slow), pytest.param(signal.SIGKILL, marks=pytest.mark.slow), None],
)
def test_whatever_happens_to_the_front_the_run_goes_on(fake, tmp_path, how):
    with fake("wait") as terminal:
        terminal.until("Validating")
        if how is None:  # the terminal is gone
            os.close(terminal.slave)
            os.close(terminal.master)
        else:
            terminal.process.send_signal(how)
        assert terminal.process.wait(timeout=10) == {signal.SIGKILL: -9}.get(how, 129)
    finish(tmp_path / "run")


def finish(folder: Path) -> None:
    """The run goes on: it hears that it shall stop, and stops."""
    assert is_alive(folder)
    assert ControlClient(folder).send("stop")["ok"]
    wait_until(lambda: not is_alive(folder))
    ended = RunView.of(folder).ended
    assert ended is not None
    assert ended.status == "stopped"


@pytest.mark.slow
def test_sigterm_goes_to_the_trainer(fake, tmp_path):
    with fake("wait") as terminal:
        terminal.until("Validating")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 0
        terminal.assert_as_before()
        assert "stopped: the last line" in terminal.after


@pytest.mark.slow
def test_a_dashboard_that_fails_becomes_lines_and_the_run_goes_on(fake, tmp_path):
    broken = """
from burn_torch.monitor.dashboard import panels
def rows(self, width, height):
    raise ZeroDivisionError("a panel that fails")
panels.Progress.rows = rows
"""
    with fake("done", before=broken) as terminal:
        assert terminal.wait() == 0
        terminal.assert_as_before()
        lines = terminal.after.splitlines()
    assert lines[0] == "the dashboard failed (ZeroDivisionError: a panel that fails); the training goes on"
    assert any(line.startswith("epoch 3/5  train  Accuracy") for line in lines)
    assert lines[-1] == "======= the summary ======="


def test_who_wants_none_gets_none(open_terminal, tmp_path):
    code = """
import argparse, os
from burn_torch.cli import handover
parser = argparse.ArgumentParser()
handover.add_options(parser)
def wanted(*words, **environment):
    os.environ.update(environment)
    print(*words, *environment, handover.wanted(parser.parse_args(words)))
    for name in environment:
        del os.environ[name]
    os.environ["TERM"] = "xterm"
wanted()
wanted("--plain")
wanted("--no-dashboard")
wanted("--hand-over", "7")
wanted(TERM="dumb")
wanted(CI="1")
wanted(RANK="0")
"""
    with open_terminal(cwd=tmp_path, code=code) as terminal:
        assert terminal.wait() == 0
        assert terminal.text.split("\r\n")[:-1] == [
            "True",
            "--plain False",
            "--no-dashboard False",
            "--hand-over 7 False",
            "TERM False",
            "CI False",
            "RANK False",
        ]


# -- a real one ---------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_train_on_a_terminal(open_terminal, tmp_path):
    with open_terminal(
        "train", "digits", "--epochs", 100_000, *SMALL, "--artifact-dir", "run", cwd=tmp_path
    ) as terminal:
        terminal.until("Validating", timeout_s=60)
        terminal.press("c")
        terminal.until("the run saves after this step")
        terminal.press("qs")
        assert terminal.wait() == 0
        terminal.assert_as_before()
        after = terminal.after
    assert "Learner Summary" in after
    assert re.search(
        r"^stopped by a viewer's command; the checkpoint is run/checkpoint/epoch-.*\.safetensors$", after, re.MULTILINE
    )
    assert "go on    burn-torch resume run" in after
    assert (tmp_path / "run/output.log").read_text().startswith("trains digits on cpu")


@pytest.mark.slow
def test_a_dashboard_attached_and_killed_20_times_changes_nothing(open_terminal, tmp_path, bits):
    """Killed in every way there is, at moments spread over the run."""
    words = ["train", "digits", "--epochs", 160, *SMALL, "--artifact-dir"]
    run(*words, "alone", cwd=tmp_path).communicate(timeout=300)
    watched = run(*words, "watched", cwd=tmp_path)
    folder = tmp_path / "watched"
    wait_until(lambda: is_alive(folder), 60)
    killed = 0
    while killed < 20:
        number = (signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, None)[killed % 4]
        with open_terminal("attach", folder, cwd=tmp_path, size=(80 + 6 * killed, 24 + killed)) as terminal:
            terminal.until("Progress")
            terminal.press("\x1b[C\x1b[Bl")  # it is used, too
            terminal.read(0.05 * (killed % 5))
            if number is None:
                os.close(terminal.slave)
                os.close(terminal.master)
            else:
                terminal.process.send_signal(number)
            terminal.process.wait(timeout=10)
        killed += 1
        if killed == 20 or watched.poll() is not None:
            break
    assert killed == 20, "the run was over too soon to tell"
    watched.communicate(timeout=300)
    assert watched.returncode == 0
    assert bits(folder / "model.safetensors") == bits(tmp_path / "alone" / "model.safetensors")


def run(*words: object, cwd: Path) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BURN_TORCH", "PYTHON"))}
    paths = os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "kernels")])
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{MAIN}", *map(str, words)],
        cwd=cwd,
        env=kept | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def bits():
    """A hash of all tensors of a model's file; the ids of its parameters are new in every process."""
    import hashlib
    import json

    def hashed(path: Path) -> str:
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__")
        checksum = hashlib.sha256()
        for name, tensor in sorted(header.items()):
            start, end = tensor["data_offsets"]
            checksum.update(f"{name} {tensor['dtype']} {tensor['shape']}".encode())
            checksum.update(content[8 + size + start : 8 + size + end])
        return checksum.hexdigest()

    return hashed
