"""Tests what a run shows: plain lines, a bar on a terminal, nothing."""

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from burn_torch.train import (
    BarRenderer,
    EpochSummary,
    MetricDefinition,
    MetricValue,
    PlainRenderer,
    SilentRenderer,
    Split,
    default_renderer,
)
from burn_torch.train.event import EpochDone, Notice, RunEnded, RunStarted, SplitDone, SplitStarted, StepDone

LOSS = MetricDefinition("Loss", None, False)
ACCURACY = MetricDefinition("Accuracy", "%", True)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
HERE = Path(__file__).parent


def play(renderer, clock, *, items=True, epochs=2, seconds=30.0):
    """Two epochs of four train batches and one of validation, with a clock that we turn."""
    totals = (100, 20) if items else (None, None)
    renderer.handle(RunStarted(epochs, 1, *totals, (LOSS, ACCURACY), (LOSS,)))
    iteration = 0
    for epoch in range(1, epochs + 1):
        for split, batches, total in ((Split.TRAIN, 4, totals[0]), (Split.VALID, 1, totals[1])):
            renderer.handle(SplitStarted(split, epoch, 0, batches, 0, total))
            for batch in range(1, batches + 1):
                clock[0] += seconds
                iteration += 1
                done = 0 if total is None else total * batch // batches
                values = (MetricValue("Loss", 2.0 / iteration, 25),)
                if split is Split.TRAIN:
                    values = (*values, MetricValue("Accuracy", 10.0 * batch, 25))
                renderer.handle(StepDone(split, epoch, iteration, batch, done, values))
            finals = (MetricValue("Loss", 0.5),) if split is Split.VALID else values
            renderer.handle(SplitDone(EpochSummary(split, epoch, finals)))
        renderer.handle(EpochDone(epoch))
        if epoch == 1:
            renderer.handle(Notice("look here"))
    renderer.handle(RunEnded("completed", "THE SUMMARY"))
    renderer.close()


def test_plain_lines():
    clock, out = [0.0], io.StringIO()
    play(PlainRenderer(out, clock=lambda: clock[0]), clock)
    assert out.getvalue().splitlines() == [
        "epoch 1/2 train   25 %  25/100 items  Loss 2  Accuracy 10.00 %",
        "epoch 1/2 train   50 %  50/100 items  1.2 s/item  ETA 3 min 00 s  Loss 1.5  Accuracy 15.00 %",
        "epoch 1/2 train   75 %  75/100 items  1.2 s/item  ETA 2 min 30 s  Loss 1.222  Accuracy 20.00 %",
        "epoch 1/2  train  Loss 0.5  Accuracy 40.00 %  valid  Loss 0.5  (2 min 30 s)",
        "look here",
        "epoch 2/2 train   25 %  25/100 items  1.2 s/item  ETA 1 min 30 s  Loss 0.3333  Accuracy 10.00 %",
        "epoch 2/2 train   50 %  50/100 items  1.2 s/item  ETA 1 min 00 s  Loss 0.3095  Accuracy 15.00 %",
        "epoch 2/2 train   75 %  75/100 items  1.2 s/item  ETA 30 s  Loss 0.2897  Accuracy 20.00 %",
        "epoch 2/2  train  Loss 0.2222  Accuracy 40.00 %  valid  Loss 0.5  (2 min 30 s)",
        "THE SUMMARY",
    ]


def test_plain_lines_of_a_quick_run_are_one_an_epoch():
    clock, out = [0.0], io.StringIO()
    play(PlainRenderer(out, clock=lambda: clock[0]), clock, seconds=0.5)
    assert [line.split("  ")[0] for line in out.getvalue().splitlines()] == [
        "epoch 1/2",
        "look here",
        "epoch 2/2",
        "THE SUMMARY",
    ]


def test_batches_are_counted_where_items_are_not_known():
    clock, out = [0.0], io.StringIO()
    play(PlainRenderer(out, clock=lambda: clock[0]), clock, items=False)
    assert out.getvalue().splitlines()[1].startswith("epoch 1/2 train   50 %  2/4 batches  30 s/batch  ETA")


class Terminal(io.StringIO):
    """A stream of a given encoding that says it is a terminal."""

    def __init__(self, encoding="utf-8", tty=True):
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._tty


ERASE = "\r\x1b[K"


def frames(text):
    """Returns what was drawn on the line, one text a drawing, and the lines that stay."""
    drawn, stays = [], []
    for part in text.split(ERASE):
        *above, last = part.split("\n")
        stays += above
        drawn += [last] if last else []
    return drawn, stays


GOLDEN = [
    "1/1 train ────────────────────────────── 0% 0/100 items",
    "1/1 train ━━━━━━━─────────────────────── 25% Loss 2 Accuracy 10.00 % 25/100 items",
    "1/1 train ━━━━━━━━━━────────── 50% Loss 1.5 Accuracy 15.00 % ETA 1 min 00 s 1.2 s/item 50/100 items",
    "1/1 train ━━━━━━━━━━━━━━━━━━────── 75% Loss 1.222 Accuracy 20.00 % ETA 30 s 1.2 s/item 75/100 items",
    "1/1 train ━━━━━━━━━━━━━━━━━━━━━━━ 100% Loss 1.042 Accuracy 25.00 % ETA 0 s 1.2 s/item 100/100 items",
    "1/1 valid ────────────────────────────── 0% 0/20 items",
    "1/1 valid ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100% Loss 0.4 20/20 items",
    "1/1 valid ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 100% Loss 0.4 20/20 items",
]


def test_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    clock, out = [0.0], Terminal()
    play(BarRenderer(out, clock=lambda: clock[0], colour=False), clock, epochs=1)
    drawn, stays = frames(out.getvalue())
    assert drawn == GOLDEN
    assert stays == [
        "epoch 1/1  train  Loss 0.5  Accuracy 40.00 %  valid  Loss 0.5  (2 min 30 s)",
        "look here",
        "THE SUMMARY",
    ]


@pytest.mark.parametrize("columns", [1, 2, 5, 10, 20, 33, 47, 80, 500])
def test_the_bar_never_wraps(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    clock, out = [0.0], Terminal()
    play(BarRenderer(out, clock=lambda: clock[0], colour=False), clock)
    drawn, _ = frames(out.getvalue())
    assert max(map(len, drawn)) <= max(columns - 1, 1)
    if columns >= 20:
        assert any("train 50%" in frame or "─ 50%" in frame or "━ 50%" in frame for frame in drawn)


def test_wide_characters_count_twice(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out, clock = Terminal(), [0.0]
    wide = MetricDefinition("損失", None, False)
    renderer = BarRenderer(out, colour=False, clock=lambda: clock[0])
    renderer.handle(RunStarted(1, 1, 10, None, (wide,), ()))
    renderer.handle(SplitStarted(Split.TRAIN, 1, 0, 5, 0, 10))
    for value in (1.0, 0.001234, 1234.0, 1.2345e-8):
        clock[0] += 1.0
        renderer.handle(StepDone(Split.TRAIN, 1, 1, 1, 2, (MetricValue("損失", value, 1e9),)))
    drawn, _ = frames(out.getvalue())
    assert len(drawn) == 5
    assert any("損失" in frame for frame in drawn)
    for frame in drawn:
        assert len(frame) + sum(char in "損失" for char in frame) <= 39


def test_colour_is_on_one_word_and_obeys_no_color(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    clock = [0.0]
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Terminal()
    play(BarRenderer(coloured, clock=lambda: clock[0]), clock)
    assert "\x1b[91mtrain\x1b[0m" in coloured.getvalue()
    assert "\x1b[94mvalid\x1b[0m" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    play(BarRenderer(plain, clock=lambda: clock[0]), clock)
    assert "m" not in "".join(re.findall(r"\x1b\[[0-9;]*(.)", plain.getvalue()))


def test_a_terminal_without_unicode_gets_ascii(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    clock, out = [0.0], Terminal("ascii")
    play(BarRenderer(out, clock=lambda: clock[0]), clock)
    out.getvalue().encode("ascii")
    assert "#######--" in out.getvalue()


def test_default_renderer_looks_at_the_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(default_renderer(Terminal()), BarRenderer)
    terminal, pipe = Terminal(), Terminal(tty=False)
    default_renderer(terminal, "artifacts/a run")
    assert terminal.getvalue() == "watch    burn-torch attach 'artifacts/a run'\n"
    default_renderer(pipe, "artifacts/a run")
    assert pipe.getvalue() == ""
    assert isinstance(default_renderer(Terminal(tty=False)), PlainRenderer)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(default_renderer(Terminal()), PlainRenderer)
    monkeypatch.delenv("TERM")
    assert isinstance(default_renderer(Terminal()), PlainRenderer)


def test_silent_renderer_says_nothing(capsys):
    play(SilentRenderer(), [0.0])
    assert capsys.readouterr() == ("", "")


def test_a_stream_that_closes_does_not_end_the_run(program, tmp_path, caplog):
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    training = program.make_training(tmp_path / "run", 2).renderer(PlainRenderer(Broken(), interval_s=0))
    assert training.launch(program.make_learner()).status == "completed"
    assert "nothing is shown any more" in caplog.text


def test_piped_process_writes_plain_lines(start, tmp_path):
    process = start(dir=tmp_path / "run", epochs=2, plain=True)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert errors == ""
    assert not CONTROL.search(output)
    lines = output.splitlines()
    assert lines[0].startswith("epoch 1/2  train  Loss ")
    assert lines[1].startswith("epoch 2/2  train  Loss ")
    assert lines[2] == "======================== Learner Summary ========================"


@pytest.mark.parametrize(("term", "columns"), [("xterm", "20"), ("xterm", "80"), ("dumb", "80")])
def test_process_on_a_pseudo_terminal(tmp_path, term, columns):
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import program\n"
        "from burn_torch.train import default_renderer\n"
        f"t = program.make_training({str(tmp_path / 'run')!r}, 2).renderer(default_renderer())\n"
        "t.launch(program.make_learner(program.make_net(cls=program.Net)))\n"
    )
    root = HERE.parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "kernels")]),
        "OMP_NUM_THREADS": "1",
        "TERM": term,
        "COLUMNS": columns,
        "PYTHONIOENCODING": "utf-8",
    }
    environment.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    chunks = []

    def read():
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other side is closed
                return
            if not chunk:
                return
            chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    errors = process.communicate(timeout=120)[1]
    reader.join()
    os.close(ours)
    assert process.returncode == 0, errors
    text = b"".join(chunks).decode().replace("\r\n", "\n")  # the terminal's line discipline
    if term == "dumb":
        assert not CONTROL.search(text)
        return
    assert "\r\x1b[K" in text
    assert set(re.findall(r"\x1b\[([0-9;]*[A-Za-z])", text)) == {"K", "91m", "94m", "0m"}
    for frame in frames(text)[0]:
        assert len(re.sub(r"\x1b\[[0-9;]*m", "", frame)) < int(columns)
    assert text.count("epoch 1/2  train  Loss") == 1
    assert text.endswith(("\n", ERASE))  # the bar is gone
