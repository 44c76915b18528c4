"""Tests what the panels say, without a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from burn_torch.monitor import (
    Follower,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    RunView,
    Split,
    SplitStarted,
    Stamped,
    StepDone,
    StopRequested,
)
from burn_torch.monitor.dashboard import content
from burn_torch.monitor.dashboard.chart import ASCII, Row


def texts(rows: Sequence[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


@pytest.fixture
def view(write) -> RunView:
    """Two of three epochs, 20 batches of 8 items each, a second a batch."""
    run_view = RunView()
    for stamped in Follower(write(epochs=2, total_epochs=3, ended=None) / "events.jsonl").poll():
        run_view.apply(stamped)
    return run_view


def then(view: RunView, *events, at: float = 1_764_000_100.0) -> RunView:
    for event in events:
        view.apply(Stamped(view.events, at, event))
    return view


def test_controls_have_a_line_each_or_share_them():
    tall = texts(content.controls(50, 8))
    assert [line.split()[0] for line in tall] == ["Quit", "Metric", "Plot", "Scale", "Log", "Save"]
    small = content.controls(28, 3)
    assert len(small) == 3
    assert {text.strip() for row in small for text, role in row if role == "key"} == {"q", "← →", "↑ ↓", "y", "l", "c"}
    assert max(map(len, texts(small))) <= 28


@pytest.mark.parametrize("width", [28, 60])
def test_metrics_show_the_epoch_so_far_the_last_batch_and_the_best(view, width):
    block = content.metrics(view, width, 20, selected="Loss", hovered=None)
    rows = texts(block.rows)
    assert max(map(len, rows)) <= width
    train = [math.exp(-i / 20) for i in range(21, 41)]
    assert f"{sum(train) / 20:.4g}" in rows[4]  # the mean over the epoch's items, worked out by hand
    assert f"{train[-1]:.4g}" in rows[4]
    assert ("best 0.2353 in epoch 2" if width == 60 else "best 0.2353 @2") in rows[3]  # of validation
    assert block.rows[3][0] == (" Loss ", "selected")
    assert block.rows[0][0] == (" Accuracy ", "title")
    assert block.targets == {(0, 0, width): "Accuracy", (3, 0, width): "Loss"}


def test_metrics_scroll_to_the_selected_one(write):
    names = tuple(f"Metric {number}" for number in range(8))
    view = RunView.of(write(epochs=1, metrics=names))
    for number, name in enumerate(names):
        block = content.metrics(view, 40, 6, selected=name, hovered=None)
        shown = texts(block.rows)
        at = next(y for y, row in enumerate(shown) if row.startswith(f" {name} "))
        assert [row.split()[0] for row in shown[at + 1 : at + 3]] == ["Train", "Valid"], number


def test_a_run_without_metrics_says_so():
    assert texts(content.metrics(RunView(), 30, 5, selected=None, hovered=None).rows) == [" no metrics yet"]
    assert "no metrics yet" in "".join(texts(content.plot(RunView(), None, "full", 30, 5)))


def test_status_says_where_the_run_is(view):
    rows = texts(content.status(view, 40, 9, runs=True, with_machine=False))
    assert [row.split(maxsplit=1) for row in rows[:4]] == [
        ["Mode", "Validating"],
        ["Epoch", "2/3"],
        ["Iteration", "40"],
        ["Items", "160/160"],
    ]
    assert ["Speed", "8 items/s"] in [row.split(maxsplit=1) for row in rows]
    assert ["Elapsed", "1 min 20 s"] in [row.split(maxsplit=1) for row in rows]
    assert ["Saved", "epoch-2.safetensors"] in [row.split(maxsplit=1) for row in rows]


def test_a_small_status_has_a_line_for_the_machine(view):
    rows = texts(content.status(view, 28, 5, runs=True, with_machine=True))
    assert len(rows) == 5
    assert rows[4].strip() == "CPU 50% GPU 75% 4 GB"


@pytest.mark.parametrize(
    ("events", "runs", "word"),
    [
        ([], True, "Validating"),
        ([StopRequested("asked", "stop")], True, "Stopping: finishing the step"),
        ([], False, "Ended without a word (killed?)"),
        ([RunEnded("early_stopped", None)], False, "Early stopped"),
        ([RunEnded("failed", None, 1, "boom")], False, "Failed"),
    ],
)
def test_mode(view, events, runs, word):
    assert content.mode(then(view, *events), runs=runs)[0] == word


def test_mode_before_a_run():
    assert content.mode(RunView(), runs=True)[0] == "Starting"
    assert content.mode(RunView(), runs=False)[0] == "Waiting for a run"


def test_batches_are_counted_where_items_are_unknown():
    metric = (MetricDefinition("Loss", None, False),)
    view = then(
        RunView(),
        RunStarted(2, 1, None, None, metric, ()),
        SplitStarted(Split.TRAIN, 1, 0, None, 0, None),
        StepDone(Split.TRAIN, 1, 1, 1, 0, (MetricValue("Loss", 0.5),)),
    )
    rows = texts(content.status(view, 40, 9, runs=True, with_machine=False))
    assert rows[3].split() == ["Batches", "1"]
    gauges = texts(content.progress(view, 60, runs=True))
    assert gauges[0].split()[-3:] == ["-", "1", "batches"]


def test_progress_of_the_split_and_of_the_run(view):
    split, total = texts(content.progress(view, 60, runs=True))
    assert split.split()[0] == "Valid"
    assert "100 %  160/160 items" in split
    assert total.split()[0] == "Total"
    assert " 67 %  ETA 40 s" in total  # two of three epochs of 2 * 20 s are over
    assert {len(split), len(total)} == {60}
    filled, empty = total.count("█"), total.count("░")
    assert abs(filled / (filled + empty) - 2 / 3) < 0.1


def test_progress_before_it_is_warm_has_no_eta():
    metric = (MetricDefinition("Loss", None, False),)
    view = then(RunView(), RunStarted(2, 1, 80, 8, metric, ()), SplitStarted(Split.TRAIN, 1, 0, 10, 0, 80))
    then(view, StepDone(Split.TRAIN, 1, 1, 1, 8, (MetricValue("Loss", 0.5),)))
    assert "ETA ---" in texts(content.progress(view, 60, runs=True))[1]


def test_progress_in_ascii_and_in_little_room(view):
    assert "#" in texts(content.progress(view, 60, runs=True, glyphs=ASCII))[0]
    assert texts(content.progress(view, 25, runs=True))[0] == " Valid  100 %  160/160 items"


def test_progress_of_a_run_that_is_over(view):
    then(view, RunEnded("completed", None), at=view.now_s)
    assert "took 1 min 20 s" in texts(content.progress(view, 60, runs=False))[1]


def test_machine(view):
    rows = [row.split() for row in texts(content.machine(view, 50, 10))]
    assert rows[0][0::2][:1] == ["CPU"]
    assert rows[0][-2:] == ["50", "%"]
    assert rows[1][-2:] == ["GB/8", "GB"]
    assert rows[2] == ["Process", "CPU", "150", "%", "1", "GB"]
    assert rows[3][:2] == ["GPU", "0"]
    assert rows[3][-4:] == ["60", "°C", "300", "W"]
    assert texts(content.machine(RunView(), 50, 10)) == [" not measured yet"]


def test_a_machine_whose_numbers_are_none_is_shown_without_bars(view):
    then(view, Resources(math.nan, 1 << 30, None, (), memory_total_bytes=0, process_cpu_percent=math.nan))
    assert texts(content.machine(view, 50, 10))[0].split() == ["CPU", "-"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_tabs_always_show_the_selected_metric(width):
    names = [f"Metric number {number}" for number in range(12)]
    for name in names:
        block = content.tabs(names, width, selected=name, hovered=None)
        assert len(texts(block.rows)[0]) <= width
        assert [role for text, role in block.rows[0] if text.strip() and name.startswith(text.strip())].count(
            "selected"
        ) == 1
        row = texts(block.rows)[0]
        for (_, start, end), place in block.targets.items():
            shown = row[start:end].strip()
            assert shown == {"<": "‹", ">": "›"}.get(place, shown)
            if place not in "<>":
                assert place.startswith(shown)


def test_plots_of_all_kinds(view):
    full = texts(content.plot(view, "Loss", "full", 60, 12))
    assert full[0].startswith(" Loss over items")
    assert full[0].endswith("━━ train  ╺╸ valid")
    assert full[-1].split() == ["0", "100", "200", "300"]
    recent = texts(content.plot(view, "Loss", "recent", 60, 12, log=True))
    assert recent[0].startswith(" Loss over items, log")
    summary = [line for line in texts(content.plot(view, "Loss", "summary", 60, 12)) if line]
    first, second = math.exp(-1), math.exp(-2)
    assert f"mean {(first + second) / 2:.4g}" in summary[0]
    assert summary[1].strip() == f"best {second:.4g} in epoch 2, last {second:.4g} in epoch 2"
    assert summary[2].count("█") > summary[0].count("█")  # validation is worse


def test_a_summary_before_the_first_epoch_is_over():
    view = then(RunView(), RunStarted(2, 1, 80, 8, (MetricDefinition("Loss", None, False),), ()))
    assert "no epoch is over yet" in "".join(texts(content.plot(view, "Loss", "summary", 60, 12)))


def test_values_that_are_not_finite_are_counted_in_the_legend(view):
    then(view, StepDone(Split.VALID, 2, 41, 21, 168, (MetricValue("Loss", float("nan")),)))
    assert "valid (1 not finite)" in texts(content.plot(view, "Loss", "full", 70, 12))[0]


def test_the_log_goes_back_and_is_clean(view):
    then(
        view,
        *(LogLine(f"line {number}", "stdout") for number in range(20)),
        LogLine("\x1b[2J\x1b]0;mine\x07a\tb\rc", "stderr"),
    )
    assert texts(content.log_lines(view, 2)) == [" line 19", " a       b c"]
    assert content.log_lines(view, 1)[0][0][1] == "warning"
    assert texts(content.log_lines(view, 2, back=3)) == [" line 16", " line 17"]
    assert texts(content.log_lines(view, 3, back=1000)) == [" printed in epoch 1", " printed in epoch 2", " line 0"]
    assert texts(content.log_lines(RunView(), 3)) == [" nothing has been printed yet"]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b", ""),
        ("bell\x07, null\x00, del\x7f, c1\x9b1m", "bell , null , del , c1 1m"),
        ("日本語 ✓", "日本語 ✓"),
    ],
)
def test_clean(text, cleaned):
    assert content.clean(text) == cleaned


def test_names_of_metrics_are_cleaned(write):
    view = RunView.of(write(epochs=1, metrics=("\x1b[2JLoss",)))
    then(view, Notice("\x1b[2J"))
    for rows in (
        content.metrics(view, 40, 6, selected=None, hovered=None).rows,
        content.tabs(list(view.metrics), 40, selected=None, hovered=None).rows,
        content.plot(view, "\x1b[2JLoss", "full", 40, 10),
    ):
        assert "\x1b" not in "".join(texts(rows))
