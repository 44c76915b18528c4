"""`burn-torch attach` on terminals, pipes and in the wrong places."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAIN = "from burn_torch.cli.main import main; sys.exit(main())"


def attach(*words: object, cwd: Path, timeout_s: float = 30.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command without a terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BURN_TORCH", "PYTHON"))}
    code = f"import sys; sys.modules.update(torch=None, numpy=None)\n{MAIN}"  # a view needs neither
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "attach", *map(str, words)],
        cwd=cwd,
        env=kept | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


# -- on a terminal --------------------------------------------------------------------------------------
def test_on_a_terminal_it_opens_resizes_detaches_and_leaves_everything_as_it_was(open_terminal, live, tmp_path):
    folder, asked = live()
    with open_terminal("attach", folder, cwd=tmp_path) as terminal:
        terminal.until("Progress")
        terminal.until("Validating")
        terminal.resize(150, 45)
        terminal.until("Machine")
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("[c] Cancel")
        terminal.press("c")
        terminal.read(0.2)
        terminal.press("\x03")  # Ctrl-C
        terminal.until("[d] Detach: the training goes on.")
        terminal.press("d")
        assert terminal.wait() == 0
        assert terminal.after.strip() == f"the run goes on; burn-torch attach {folder} shows it again"
        terminal.assert_as_before()
    assert asked.commands == []


@pytest.mark.slow
def test_a_click_on_a_terminal(open_terminal, live, tmp_path):
    with open_terminal("attach", live()[0], cwd=tmp_path) as terminal:
        terminal.until("Accuracy over items")
        terminal.press("\x1b[<0;46;2M\x1b[<0;46;2m")  # the tab of the loss
        terminal.until("Loss over items")
        terminal.press("qd")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)]
)
def test_a_signal_closes_it_and_leaves_the_terminal_as_it_was(open_terminal, live, tmp_path, number, code):
    folder, asked = live()
    with open_terminal("attach", folder, cwd=tmp_path) as terminal:
        terminal.until("Progress")
        terminal.process.send_signal(number)
        assert terminal.wait() == code
        terminal.assert_as_before()
    assert asked.commands == []


def test_a_terminal_that_is_gone_closes_it(open_terminal, live, tmp_path):
    folder, asked = live()
    with open_terminal("attach", folder, cwd=tmp_path) as terminal:
        terminal.until("Progress")
        os.close(terminal.slave)
        os.close(terminal.master)
        assert terminal.process.wait(timeout=10) == 129
    assert asked.commands == []


@pytest.mark.slow
def test_a_terminal_that_is_gone_closes_it_also_where_hangups_are_ignored(open_terminal, live, tmp_path):
    deaf = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with open_terminal("attach", live()[0], cwd=tmp_path, before=deaf) as terminal:
        terminal.until("Progress")
        os.close(terminal.slave)
        os.close(terminal.master)
        assert terminal.process.wait(timeout=10) == 129


def test_an_error_in_the_dashboard_leaves_the_terminal_as_it_was_and_is_reported(open_terminal, live, tmp_path):
    folder, asked = live()
    broken = """
from burn_torch.monitor.dashboard import panels
def rows(self, width, height):
    raise ZeroDivisionError("a panel that fails")
panels.Progress.rows = rows
"""
    with open_terminal("attach", folder, cwd=tmp_path, before=broken) as terminal:
        assert terminal.wait() == 1
        assert "an error that burn-torch does not explain itself" in terminal.after
        assert "ZeroDivisionError: a panel that fails" in terminal.after
        terminal.assert_as_before()
    assert asked.commands == []


@pytest.mark.slow
def test_no_color_leaves_none(open_terminal, live, tmp_path):
    colour = re.compile(rb"\x1b\[[0-9;]*?\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
    for environment, colours in (({"NO_COLOR": "1"}, False), ({}, True)):
        with open_terminal("attach", live()[0], cwd=tmp_path, **environment) as terminal:
            terminal.until("Validating")
            terminal.press("qd")
            assert terminal.wait() == 0
            assert bool(colour.search(terminal.output)) == colours
            assert b"\x1b[1;7" in terminal.output or b";7" in terminal.output  # what is selected is reverse


@pytest.mark.parametrize(
    ("environment", "before", "why"),
    [
        ({"TERM": "dumb"}, "", "plain lines, as the terminal cannot move its cursor (TERM is dumb or not set)"),
        (
            {},
            "sys.modules['textual'] = None\n",
            "plain lines, as textual is not installed: pip install 'burn-torch[tui]'",
        ),
    ],
)
def test_a_terminal_that_cannot_gets_plain_lines(open_terminal, write, tmp_path, environment, before, why):
    with open_terminal("attach", write(epochs=1), cwd=tmp_path, before=before, **environment) as terminal:
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.output
        text = terminal.text
    assert text.startswith(why)
    assert "epoch 1/1  train  Accuracy" in text
    assert "the summary" in text


@pytest.mark.slow
def test_in_the_background_it_prints_lines(open_terminal, write, tmp_path):
    behind = "import os; os.setpgid(0, 0) if os.fork() == 0 else (os.wait(), os._exit(0))\n"
    with open_terminal("attach", write(epochs=1), cwd=tmp_path, before=behind) as terminal:
        assert terminal.wait() == 0
        assert "plain lines, as it runs in the background of its terminal" in terminal.text
        assert b"?1049h" not in terminal.output


# -- without one ------------------------------------------------------------------------------------------
def test_in_a_pipe_it_prints_lines_without_control_characters(write, tmp_path):
    done = attach(write(epochs=2), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("epoch") and "items" not in line] == [
        "epoch 1/2  train  Accuracy 69.34 %  Loss 0.3679  valid  Accuracy 61.01 %  Loss 0.4679  (40 s)",
        "epoch 2/2  train  Accuracy 88.72 %  Loss 0.1353  valid  Accuracy 80.39 %  Loss 0.2353  (40 s)",
    ]
    assert all(char == "\n" or char.isprintable() for char in done.stdout)


def test_once_prints_the_present_state(live, tmp_path):
    done = attach(live()[0], "--once", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "status      validating, epoch 3 of 5, iteration 60" in done.stdout


def test_ctrl_c_ends_the_lines_and_not_the_run(live, tmp_path):
    folder, asked = live()
    code = f"import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n{MAIN}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "attach", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("epoch 3/5"):
        pass
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "")
    assert asked.commands == []


@pytest.mark.parametrize(
    ("make", "code", "complaints"),
    [
        (lambda path: None, 2, ["there is no run to show", "which is no directory", "burn-torch runs"]),
        (lambda path: path.mkdir(), 2, ["there is no run to show", "given:    run\n"]),
        (lambda path: (path / "events.jsonl").mkdir(parents=True), 3, ["the events of the run cannot be read"]),
        (lambda path: events(path, b'{"v":2}\n'), 3, ["these events are of a newer version of burn_torch"]),
    ],
)
def test_what_is_no_run(tmp_path, make, code, complaints):
    make(tmp_path / "run")
    done = attach("run", *(["--once"] if code == 3 else []), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    for words in complaints:
        assert words in done.stderr


def events(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / "events.jsonl").write_bytes(content)


@pytest.mark.parametrize("content", [b"", b'\x00\n{\n{"v":1,"n":0,"t":0,"kind":"step"}\n{"v":1,'])
def test_a_damaged_log_is_shown_as_far_as_it_goes(tmp_path, content):
    events(tmp_path / "run", content)
    done = attach("run", "--once", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "status      waiting for a run" in done.stdout
    assert ("damaged" in done.stdout) == (b"\n" in content)


# -- how long it takes --------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_whole_history_of_100_000_steps_is_painted_within_a_second(open_terminal, write, tmp_path):
    folder = write(epochs=10, batches=5000)
    assert (folder / "events.jsonl").read_bytes().count(b'"kind":"step"') == 100_000
    seconds = []
    for _ in range(3):
        with open_terminal("attach", folder, cwd=tmp_path, size=(200, 50)) as terminal:
            terminal.until("Progress")
            seconds.append(terminal.spent_s())  # it waits for nothing, so on an idle machine it takes as long
            terminal.until("400k")  # items on the axis: to the end of the run
            terminal.press("q")
            assert terminal.wait() == 0
    assert statistics.median(seconds) <= 0.8, seconds
