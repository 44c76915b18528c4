"""Lines of the event log: what is written is read back, and what is no event is told apart."""

import json
import math
from dataclasses import fields

import pytest

from burn_torch import DataError
from burn_torch.monitor import (
    CheckpointSaved,
    DamagedLine,
    EpochDone,
    EpochSummary,
    GpuUse,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    Split,
    SplitDone,
    SplitStarted,
    Stamped,
    StepDone,
    StopRequested,
    decode,
    encode,
)
from burn_torch.monitor.event import Event

VALUES = (MetricValue("Loss", 0.1 + 0.2, 16.0), MetricValue('odd "name"\n', -math.inf, 0.0), MetricValue("m", 3, 2))
EVENTS = [
    RunStarted(
        10, 3, 60_000, None, (MetricDefinition("Loss", None, False), MetricDefinition("Accuracy", "%", True)), (),
        "run-1", '{"lr": 0.1}', "epoch-2.safetensors", {"torch": "2.13", "python": "3.11"},
    ),
    SplitStarted(Split.TRAIN, 3, 17, None, 170, 60_000),
    StepDone(Split.VALID, 3, 900, 18, 180, VALUES),
    StepDone(Split.TRAIN, 1, 1, 1, 0, ()),
    SplitDone(EpochSummary(Split.VALID, 3, VALUES)),
    EpochDone(3),
    CheckpointSaved("run/checkpoint/epoch-3.safetensors", 3, True),
    Notice("one line"),
    LogLine('printed "text" with {braces} and \x1b[31mcolour\x1b[0m, 損失', "stdout"),
    Resources(12.5, 8 << 30, None, (GpuUse(0, "H100", 99.0, 1 << 30, 80 << 30, 61.0, None),), 16 << 30, 180.0),
    StopRequested("Ctrl-C", "signal"),
    RunEnded("completed", "a\ntable", 0, None),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_is_written_is_read_back(event: Event) -> None:
    line = encode(event, 41, 1764000000.1239)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    head = json.loads(line)
    assert (head["v"], head["n"], head["t"]) == (1, 41, 1764000000.124)
    assert decode(line) == Stamped(41, 1764000000.124, event)


def test_every_event_has_a_line() -> None:
    assert {type(event) for event in EVENTS} == set(Event.__args__)


def test_nan_survives() -> None:
    stamped = decode(encode(StepDone(Split.TRAIN, 1, 1, 1, 8, (MetricValue("Loss", math.nan, math.inf),)), 0, 0.0))
    (value,) = stamped.event.values
    assert math.isnan(value.value)
    assert value.count == math.inf
    stamped = decode(encode(Resources(math.nan, None, None), 0, 0.0))
    assert math.isnan(stamped.event.cpu_percent)


def test_a_name_that_is_no_utf8_is_written_all_the_same() -> None:
    assert decode(encode(LogLine("file \udcff", "stdout"), 0, 0.0)).event.text == "file ?"


def test_what_a_later_version_adds_is_skipped() -> None:
    fields = json.loads(encode(EpochDone(3), 7, 1.0))
    assert decode(json.dumps({**fields, "colour": {"deep": [1]}})) == Stamped(7, 1.0, EpochDone(3))
    assert decode(json.dumps({**fields, "kind": "gradient_norm"})) is None


def test_what_an_earlier_version_left_out_has_its_default() -> None:
    fields = json.loads(encode(EVENTS[0], 7, 1.0))
    for name in ("run_id", "config", "resumed_from", "versions"):
        del fields[name]
    event = decode(json.dumps(fields)).event
    assert (event.run_id, event.config, event.resumed_from, event.versions) == ("", None, None, {})


def test_a_newer_layout_is_refused() -> None:
    line = encode(EpochDone(3), 7, 1.0).replace(b'"v":1', b'"v":2')
    with pytest.raises(DataError, match=r"newer version(.|\n)*given: .*layout 2\n.*expected: .*1 or older\n.*mend: "):
        decode(line)


DAMAGED = [
    b"", b"{", b"[]", b"null", b"1", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"v":1}',
    b'{"v":"1","n":0,"t":0,"kind":"x"}',
    b'{"v":0,"n":0,"t":0,"kind":"epoch_done","epoch":1}', b'{"v":true,"n":0,"t":0,"kind":"epoch_done","epoch":1.5}',
    b'{"v":1,"n":0.5,"t":0,"kind":"epoch_done","epoch":1}', b'{"v":1,"n":0,"t":"x","kind":"epoch_done","epoch":1}',
    b'{"v":1,"n":0,"t":0,"kind":["x"],"epoch":1}', b'{"v":1,"n":0,"t":0,"kind":"epoch_done"}',
]  # fmt: skip


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_damage_is_distinguished(line: bytes) -> None:
    with pytest.raises(DamagedLine):
        decode(line)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_fields_of_the_wrong_type_are_damage(event: Event) -> None:
    decoded = json.loads(encode(event, 0, 0.0))
    for name in set(decoded) - {"v", "n", "t", "kind"}:
        for wrong in (object, 1.5, "text", None, {"a": 1}, [1], True):
            line = {key: value for key, value in decoded.items() if key != name}
            if wrong is not object:
                line[name] = wrong
            try:
                stamped = decode(json.dumps(line))
            except DamagedLine:
                continue
            assert encode(stamped.event, 0, 0.0)  # if it is taken, it is a whole event
            assert [field.name for field in fields(stamped.event)] == [field.name for field in fields(event)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_torn_line_is_damage(event: Event) -> None:
    line = encode(event, 3, 1.0).rstrip(b"\n")
    for cut in range(len(line)):
        with pytest.raises(DamagedLine):
            decode(line[:cut])
