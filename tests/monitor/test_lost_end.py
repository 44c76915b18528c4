"""A run that ended in good order on a full disk: its last event is lost, and result.json says how it ended."""

import io
import json

import pytest

from burn_torch.cli.runs import find_runs
from burn_torch.monitor import EventLog, RunEnded, RunStarted, RunView, Split, SplitStarted
from burn_torch.monitor.dashboard import Source, content, follow_lines, page
from burn_torch.monitor.html import html_report


@pytest.fixture
def folder(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.append(RunStarted(2, 1, 64, None, (), ()))
    log.append(SplitStarted(Split.TRAIN, 2, 0, 4, 0, 64))
    log.close()
    return tmp_path


def shown(folder):
    """Returns what each view says of its end: lines that follow, a page, the dashboard, the report, the list."""
    lines = io.StringIO()
    follow_lines(Source(folder), lines)
    source = Source(folder)
    source.poll(None)
    (found_run,) = find_runs([folder])
    word, role = content.mode(source.view, runs=source.runs)
    return lines.getvalue(), page(source), word, role, html_report(RunView.of(folder), "run"), found_run.status


def test_a_completed_run_without_its_last_event_is_completed_in_every_view(folder):
    (folder / "result.json").write_text(json.dumps({"status": "completed"}))
    lines, text, word, role, report, status = shown(folder)
    assert (word, role, status) == ("Completed", "good", "completed")
    assert "status      completed, epoch 2 of 2" in text
    assert "completed; the last events of the run were lost" in lines
    assert "completed" in report
    for view in (lines, text, report):
        assert "without a word" not in view
        assert "dead" not in view


@pytest.mark.parametrize(
    "text", [None, "{", "[]", '{"status": 3}', '{"status": "a b"}', '{"status": "' + "a" * 99 + '"}']
)
def test_a_run_without_a_sound_result_has_ended_without_a_word(folder, text):
    if text is not None:
        (folder / "result.json").write_text(text)
    lines, once, word, role, report, status = shown(folder)
    assert (word, role, status) == ("Ended without a word (killed?)", "error", "dead")
    assert "without a word" in lines
    assert "without a word" in once
    assert "dead" in report


def test_what_the_log_says_of_the_end_counts_before_result_json(folder):
    log = EventLog.resume(folder / "events.jsonl", ((folder / "events.jsonl").stat().st_size, 2))
    log.append(RunEnded("stopped", None, 0, "enough"))
    log.close()
    (folder / "result.json").write_text(json.dumps({"status": "completed"}))
    lines, _, word, _, _, status = shown(folder)
    assert (word, status) == ("Stopped", "stopped")
    assert "were lost" not in lines
