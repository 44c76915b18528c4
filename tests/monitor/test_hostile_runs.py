"""Directories of runs that strangers made: no view dies of one, and none of their texts commands the terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from burn_torch import DataError
from burn_torch.cli.main import main
from burn_torch.monitor import EVENTS, DamagedLine, RunView, decode, log, read_events
from burn_torch.monitor.dashboard import Source
from burn_torch.monitor.log import read_outline

STARTED = {
    "v": 1,
    "n": 0,
    "t": 1764000000.0,
    "kind": "run_started",
    "total_epochs": 1,
    "starting_epoch": 1,
    "train_items": 4,
    "valid_items": None,
    "train_metrics": [{"name": "Loss", "unit": None, "higher_is_better": False}],
    "valid_metrics": [],
}


def step(number: int, **changes: object) -> dict[str, object]:
    return {
        "v": 1,
        "n": number,
        "t": 1764000000.0 + number,
        "kind": "step",
        "split": "train",
        "epoch": 1,
        "iteration": number,
        "batches_done": number,
        "items_done": 4,
        "values": [["Loss", 0.5, 1.0]],
        **changes,
    }


def write_run(folder: Path, *events: dict[str, object]) -> Path:
    folder.mkdir(parents=True)
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


HOSTILE = {
    "late": [{**STARTED, "t": 1e308}, step(1, t=-1e18)],
    "digits": [STARTED, step(1, iteration=10**4000 // 10**50)],
    "large": [STARTED, step(1, values=[["Loss", 1e308, 1.0]]), step(2, values=[["Loss", -1e308, 1.0]])],
    "codes": [
        {**STARTED, "train_metrics": [{"name": "Lo\x1b[2Jss\u202e", "unit": "\r", "higher_is_better": False}]},
        step(1, values=[["Lo\x1b[2Jss\u202e", 0.5, 1.0]]),
        {"v": 1, "n": 3, "t": 1764000009.0, "kind": "run_ended", "status": "done\x1b[31m\r\u202e", "summary": None,
         "exit_code": 0, "message": "\x1b]0;title\x07"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "words",
    ["runs list {all}", "runs list {all} --json", "runs compare {run} {good}", "runs plot {all} --width 60",
     "runs plot {all} --log --width 60", "attach {run} --once", "report {run} --html {all}/x.html"],
)  # fmt: skip
def test_no_view_dies_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    run = write_run(tmp_path / "bad", *HOSTILE[name])
    good = write_run(tmp_path / "good", STARTED, step(1))
    assert main(words.format(all=tmp_path, run=run, good=good).split()) == 0
    shown, said = capsys.readouterr()
    assert said == ""
    for sign in ("\x1b", "\r", "\u202e", "\x07"):
        assert sign not in shown
    if "runs list" in words:
        assert "good" in shown


def test_a_line_of_gigabytes_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / EVENTS
    with path.open("wb") as file:
        file.write(json.dumps(STARTED).encode() + b"\n" + b"x")
        file.truncate(40 << 20)  # sparse
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + json.dumps(step(1)).encode() + b"\n")
    assert [event.number for event in read_outline(path)] == [0, 1]
    events = read_events(path)
    assert [event.number for event in events] == [0, 1]
    assert events.damaged == 1


def test_a_view_reads_on_behind_a_megabyte_of_damaged_lines(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", STARTED)
    with (folder / EVENTS).open("ab") as file:
        file.write(b"junk\n" * 500_000 + json.dumps(step(1)).encode() + b"\n")
    source = Source(folder)
    assert source.poll(None)
    assert (source.view.iteration, source.view.damaged) == (1, 500_000)


def test_a_log_that_is_removed_while_it_is_read_ends_the_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run", STARTED, *(step(n) for n in range(1, 9))) / EVENTS
    monkeypatch.setattr(log, "_CHUNK", 400)
    read = log.Follower._lines

    def read_and_remove(self: log.Follower, data: bytes) -> object:
        path.unlink(missing_ok=True)
        return read(self, data)

    monkeypatch.setattr(log.Follower, "_lines", read_and_remove)
    assert [event.number for event in log.Follower(path).poll()] == [0]


def test_one_line_of_another_version_is_a_flipped_bit_in_the_outline_too(tmp_path: Path) -> None:
    other = {**STARTED, "v": 3}
    one = write_run(tmp_path / "one", STARTED, other, step(1)) / EVENTS
    assert [event.number for event in read_outline(one)] == [event.number for event in read_events(one)] == [0, 1]
    for name, events in (("two", [STARTED, other, other]), ("all", [other])):
        with pytest.raises(DataError, match=r"version[\s\S]*given:[\s\S]*expected:[\s\S]*mend:"):
            list(read_outline(write_run(tmp_path / name, *events) / EVENTS))


@pytest.mark.parametrize(
    "changes", [{"t": 1e308}, {"t": -1.0}, {"t": "nan"}, {"n": 2**63}, {"iteration": 2**64}, {"t": 10**400}]
)
def test_a_line_with_numbers_beyond_all_bounds_is_damaged(changes: dict[str, object]) -> None:
    with pytest.raises(DamagedLine):
        decode(json.dumps({**step(1), **changes}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are Unix's")
def test_settings_that_never_end_are_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", STARTED)
    for make in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo, lambda path: path.write_text("[" * 100_000)):
        (run / "config.json").unlink(missing_ok=True)
        make(run / "config.json")
        assert main(["evaluate", str(run)]) in (2, 3, 4)
        complaint = capsys.readouterr().err
        assert "does not explain itself" not in complaint
    assert RunView.of(run).status in ("running", "dead", "ended")


def test_a_result_that_is_a_pipe_or_nested_says_nothing(tmp_path: Path) -> None:
    from burn_torch.cli.runs import open_run

    folder = write_run(tmp_path / "run", STARTED)
    for write in (lambda path: path.write_bytes(b"[" * 100_000), os.mkfifo):
        (folder / "result.json").unlink(missing_ok=True)
        write(folder / "result.json")
        assert open_run(folder, outline=True).status


@pytest.mark.parametrize("content", [b"0.5\nx\n", b"\xff\xfe", b"1" * 5000 + b"\n.", b"1 2\n"])
def test_a_damaged_log_of_a_metric_is_refused_and_written_again(tmp_path: Path, content: bytes) -> None:
    from burn_torch.monitor import MetricValue, Split
    from burn_torch.train.history import History
    from burn_torch.train.logger.metric import FileMetricLogger

    path = tmp_path / "valid" / "epoch-1" / "Loss.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    logger = FileMetricLogger(tmp_path)
    match = r"values of Loss cannot be read\n  given:    .*\n  expected: one number a line\n  mend: "
    with pytest.raises(DataError, match=match):
        logger.read_numeric("Loss", 1, Split.VALID)
    history = History()
    history.add(Split.VALID, 1, (MetricValue("Loss", 0.5, 1),))
    logger.restore(history)
    assert logger.read_numeric("Loss", 1, Split.VALID) == [0.5]
