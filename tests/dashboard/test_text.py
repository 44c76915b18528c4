"""Runs in plain text: pages for --once, lines for pipes."""

from __future__ import annotations

import io

import pytest

from burn_torch.monitor import EVENTS, LogLine, MetricDefinition, Notice, RunStarted, encode
from burn_torch.monitor.dashboard import Source, follow_lines, page
from burn_torch.monitor.dashboard.text import SILENT_END


def test_a_page_says_all_that_the_dashboard_shows(write):
    folder = write(epochs=2)
    source = Source(folder)
    source.look()
    lines = page(source).splitlines()
    assert lines[:3] == [
        f"run         {folder}",
        "status      completed, epoch 2 of 2, iteration 40",
        "progress    valid 160 of 160 items, 100 % of the run, 8 items/s, 1 min 20 s so far",
    ]
    assert "checkpoint  run/checkpoint/epoch-2.safetensors" in lines
    assert "machine     GPU 0 75 % 60 °C 300 W" in lines
    assert "notice      a word to the user" in lines
    at = lines.index("Loss")
    assert lines[at + 1 :][:2] == [
        "  train     epoch 0.2268, last batch 0.1353, best 0.1353 in epoch 2",
        "  valid     epoch 0.3268, last batch 0.2353, best 0.2353 in epoch 2",
    ]
    assert lines[-3:] == ["log", "  printed in epoch 1", "  printed in epoch 2"]


def test_a_page_of_a_run_that_has_only_begun(write):
    folder = write(RunStarted(3, 1, None, None, (MetricDefinition("Loss", None, False),), ()))
    source = Source(folder, lives=lambda: True)
    source.look()
    assert "status      starting" in page(source)
    assert "  train     no values yet" in page(source)


def test_a_page_counts_damaged_lines(write):
    folder = write(epochs=1)
    path = folder / EVENTS
    lines = path.read_bytes().split(b"\n")
    lines[5] = lines[5][:20]
    path.write_bytes(b"\n".join(lines))
    source = Source(folder)
    source.look()
    assert "damaged     1 line of events.jsonl without an event" in page(source)


def test_lines_tell_the_story_to_the_end(write):
    out = io.StringIO()
    follow_lines(Source(write(epochs=2)), out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "epoch 1/2 train   50 %  80/160 items  8 items/s  ETA 30 s  Accuracy 36.05 %  Loss 0.7674"
    assert [line for line in lines if "ETA" not in line] == [
        "printed in epoch 1",
        "epoch 1/2  train  Accuracy 69.34 %  Loss 0.3679  valid  Accuracy 61.01 %  Loss 0.4679  (40 s)",
        "printed in epoch 2",
        "epoch 2/2  train  Accuracy 88.72 %  Loss 0.1353  valid  Accuracy 80.39 %  Loss 0.2353  (40 s)",
        "a word to the user",
        "the summary",
    ]


def test_lines_say_when_a_run_fell_silent(write):
    out = io.StringIO()
    follow_lines(Source(write(epochs=1, ended=None)), out)
    assert out.getvalue().splitlines()[-1] == SILENT_END


def test_lines_follow_a_run_and_its_return_to_a_checkpoint(write):
    folder = write(epochs=2, total_epochs=3, ended=None)
    path = folder / EVENTS
    alive = [True]
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        data = path.read_bytes()
        number = data.count(b"\n")
        if len(looks) == 1:
            path.write_bytes(data + encode(Notice("live"), number, 1_764_000_090.0))
        elif len(looks) == 2:  # back to the end of the first epoch
            cut = data.index(b"\n", data.index(b'"kind":"checkpoint"')) + 1
            path.write_bytes(data[:cut] + encode(LogLine("again", "stdout"), data[:cut].count(b"\n"), 1_764_000_100.0))
        else:
            alive[0] = False

    out = io.StringIO()
    follow_lines(Source(folder, lives=lambda: alive[0]), out, sleep=sleep)
    lines = out.getvalue().splitlines()
    at = lines.index("the run went back to a checkpoint; its story again from the start:")
    assert lines[at - 1] == "live"
    assert lines[at + 1] == lines[0]
    assert lines[0].startswith("epoch 1/3 train   50 %")
    assert lines[-2:] == ["again", SILENT_END]


@pytest.mark.parametrize("text", ["\x1b[2J\x1b[Hgone", "a\rb", "bell\x07", "\x9b2Jc1"])
def test_no_control_character_gets_out(write, text):
    metric = (MetricDefinition(f"Loss{text}", None, False),)
    folder = write(RunStarted(1, 1, 8, 8, metric, metric), LogLine(text, "stdout"), Notice(text))
    out = io.StringIO()
    source = Source(folder)
    follow_lines(source, out)
    for written in (out.getvalue(), page(source)):
        assert all(char == "\n" or char.isprintable() for char in written), written
