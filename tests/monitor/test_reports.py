"""A run as CSV, as TensorBoard files and as a page: what is in them is what was measured."""

import csv
import io
import math
import re
from html.parser import HTMLParser

import pytest

from burn_torch import ConfigError
from burn_torch.monitor import (
    CheckpointSaved,
    EpochSummary,
    GpuUse,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    RunView,
    Split,
    SplitDone,
    SplitStarted,
    Stamped,
    StepDone,
)
from burn_torch.monitor.csv import COLUMNS, write_csv
from burn_torch.monitor.html import html_report
from burn_torch.monitor.tensorboard import TensorBoardWriter

NASTY = "<script>alert('1')</script> & \"quotes\" \x1b[31mred\x1b[0m"


def run(steps=6, epochs=2, *, ended=True, loss=lambda step: 1.0 / step):
    """The events of a run whose loss is known."""
    definitions = (MetricDefinition("Loss", None, False), MetricDefinition(NASTY, "%", True))
    yield RunStarted(
        epochs, 1, 2 * steps, 2 * steps, definitions, definitions, "run-7", '{"lr": 0.5}', None, {"torch": "2"}
    )
    for epoch in range(1, epochs + 1):
        for split in Split:
            yield SplitStarted(split, epoch, 0, steps, 0, 2 * steps)
            for batch in range(1, steps + 1):
                step = (epoch - 1) * steps + batch
                values = (MetricValue("Loss", loss(step), 2.0), MetricValue(NASTY, 50.0, 2.0))
                yield StepDone(split, epoch, step, batch, 2 * batch, values)
            yield SplitDone(EpochSummary(split, epoch, (MetricValue("Loss", 10.0 * epoch), MetricValue(NASTY, 50.0))))
        yield CheckpointSaved(f"{NASTY}/checkpoint/epoch-{epoch}.safetensors", epoch, True)
    yield Notice(NASTY)
    yield LogLine(NASTY, "stdout")
    yield Resources(12.0, 3 << 30, 1 << 30, (GpuUse(0, "H100 <x>", 90.0, 1 << 30, 80 << 30, 60.0, 300.0),), 8 << 30)
    if ended:
        yield RunEnded("completed", None, 0, None)


def stamped(events):
    return [Stamped(number, 1000.0 + number / 8, event) for number, event in enumerate(events)]


def view_of(events):
    view = RunView()
    for one in stamped(events):
        view.apply(one)
    return view


# -- CSV ---------------------------------------------------------------------------------------------------
def test_csv_has_a_row_for_each_value():
    text = io.StringIO(newline="")
    count = write_csv(stamped(run(loss=lambda step: math.nan if step == 3 else 0.1 * step)), text)
    rows = list(csv.DictReader(io.StringIO(text.getvalue(), newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == count == 2 * 2 * (2 * 6 + 2)
    losses = [row for row in rows if row["metric"] == "Loss" and row["split"] == "valid"]
    steps = [row for row in losses if row["iteration"]]
    assert [int(row["iteration"]) for row in steps] == list(range(1, 13))
    assert [int(row["items"]) for row in steps] == [2, 4, 6, 8, 10, 12] * 2
    assert [float(row["value"]) for row in steps if row["value"] != "nan"] == [0.1 * s for s in range(1, 13) if s != 3]
    epochs = [row for row in losses if not row["iteration"]]
    assert [(row["epoch"], row["items"], row["value"]) for row in epochs] == [("1", "12", "10.0"), ("2", "12", "20.0")]
    assert steps[0]["time"] == f"{1000.0 + 10 / 8:.3f}"
    assert {row["metric"] for row in rows} == {"Loss", NASTY}


# -- TensorBoard -------------------------------------------------------------------------------------------
def scalars(folder):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    (path,) = folder.glob("events.out.tfevents.*")
    series, texts = {}, []
    for event in loader.LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.HasField("simple_value"):
                series.setdefault(value.tag, []).append((event.wall_time, event.step, value.simple_value))
            else:
                texts += [text.decode() for text in value.tensor.string_val]
    return series, texts


def test_tensorboard_reads_what_was_measured(tmp_path):
    pytest.importorskip("tensorboard")
    writer = TensorBoardWriter(tmp_path)
    for one in stamped(run()):
        writer.apply(one)
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["machine", "train", "valid"]
    for split in Split:
        series, texts = scalars(tmp_path / split)
        assert [step for _, step, _ in series["batch/Loss"]] == list(range(1, 13))
        assert [value for *_, value in series["batch/Loss"]] == pytest.approx([1 / step for step in range(1, 13)])
        assert [(step, value) for _, step, value in series["epoch/Loss"]] == [(1, 10.0), (2, 20.0)]
        assert series["batch/Loss"][0][0] == 1000.0 + (2 if split is Split.TRAIN else 10) / 8
        assert any('"lr": 0.5' in text and "torch 2" in text for text in texts) is (split is Split.TRAIN)
    series, _ = scalars(tmp_path / "machine")
    assert series["machine/gpu0_percent"][0][2] == 90.0


def test_tensorboard_begins_again_where_the_run_went_back(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "train").mkdir()
    other = tmp_path / "train" / "notes.txt"
    other.write_text("mine")
    writer = TensorBoardWriter(tmp_path)
    for one in [*stamped(run(epochs=3)), *stamped(run(epochs=1))]:
        writer.apply(one)
    writer.close()
    other.unlink()  # what is not ours was left alone
    series, _ = scalars(tmp_path / "train")
    assert [step for _, step, _ in series["batch/Loss"]] == list(range(1, 7))
    other.write_text("mine")
    TensorBoardWriter(tmp_path).close()
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["notes.txt"]


def test_tensorboard_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"cannot be written\n  given: .*without.*\n  expected: .*extra.*\n  mend: .*pip install"
    ):
        TensorBoardWriter(tmp_path)


# -- the page ----------------------------------------------------------------------------------------------
VOID = {"meta"}


class Page(HTMLParser):
    """Checks that tags match, and keeps what a test asks for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("ended", [True, False])
def test_a_page_holds_everything_and_fetches_nothing(ended):
    text = html_report(view_of(run(ended=ended)), "artifacts/" + NASTY)
    page = Page(text)
    assert {"script", "link", "img", "iframe", "object", "a"}.isdisjoint(page.seen)
    assert not [(name, value) for name, value in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "\x1b" not in text
    assert page.seen.count("svg") == 2
    page_text = "\n".join(page.texts)
    for words in (
        "Summary", "Configuration", '"lr": 0.5', "Environment", "run-7", "torch", "Checkpoints", "epoch-2.safetensors",
        "<script>alert('1')</script> & \"quotes\" red", "H100 <x>", "90 %", "60 °C",
        "completed" if ended else "running",
    ):  # fmt: skip
        assert words in page_text


def test_no_text_of_a_run_is_taken_for_the_template():
    assert "<h1>{{ 7 * 7 }}{% raw %}</h1>" in html_report(RunView(), "{{ 7 * 7 }}{% raw %}")


def test_curves_keep_a_spike_and_leave_gaps_of_what_is_not_finite():
    steps = 300

    def loss(step):
        return math.nan if step % 50 == 0 else 40.0 if step == 301 else 1.0 + step % 7

    text = html_report(view_of(run(steps, loss=loss)), "run")
    (figure,) = re.findall(r"(?s)<figure><figcaption>Loss.*?</figure>", text)
    assert "nan" not in figure.lower()
    for kind in ("train raw", "train mean", "valid raw", "valid mean"):
        (path,) = re.findall(rf'<path class="{kind}" d="M(.*?)"/>', figure)
        points = [tuple(map(float, point.split())) for point in path.split("L")]
        assert len(points) == 600 - 12
        assert all(0 <= x <= 480 and 0 <= y <= 240 for x, y in points)
        assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert figure.count("<circle") == 4
    assert "train, epoch 2: 20" in figure


def test_a_page_of_a_run_that_has_done_nothing_yet():
    Page(html_report(RunView(), "run"))
    page = html_report(view_of(list(run())[:1]), "run")
    Page(page)
    assert page.count("no values yet") == 2


@pytest.mark.parametrize("value", [0.0, -3.5, 1e-30, 1e30, math.inf, math.nan])
def test_curves_of_one_value(value):
    text = html_report(view_of(run(1, 1, loss=lambda step: value)), "run")
    Page(text)
    numbers = re.findall(r'(?:d="M|c[xy]="|[xy][12]?=")([^"]*)"', text)
    assert numbers
    assert all(
        math.isfinite(float(number))
        for numbers in numbers
        for number in re.findall(r"[-\d.e+naif]+", numbers.replace("L", " "))
    )
