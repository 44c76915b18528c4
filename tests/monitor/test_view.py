"""Tests what events fold into: curves that keep their extremes, progress, the time that is left."""

import math
from time import process_time

import numpy as np
import pytest

from burn_torch.monitor import (
    CheckpointSaved,
    EpochDone,
    EpochSummary,
    LogLine,
    MetricDefinition,
    MetricValue,
    Notice,
    Resources,
    RunEnded,
    RunStarted,
    RunView,
    Series,
    Split,
    SplitDone,
    SplitStarted,
    Stamped,
    StepDone,
    StopRequested,
)

LOSS, ACCURACY = MetricDefinition("Loss", None, False), MetricDefinition("Accuracy", "%", True)


def events(epochs=2, batches=4, items=(8, 6), known=True, seconds=1.0):
    """A run of `epochs`, with `items` of training and validation in so many batches, `seconds` a batch."""
    time = 100.0
    totals = items if known else (None, None)
    story = [(0.0, RunStarted(epochs, 1, *totals, (LOSS, ACCURACY), (LOSS, ACCURACY)))]
    for epoch in range(1, epochs + 1):
        for split, count in zip(Split, items, strict=True):
            total = count if known else None
            story.append((0.0, SplitStarted(split, epoch, 0, batches if known else None, 0, total)))
            for batch in range(1, batches + 1):
                values = (MetricValue("Loss", 1.0 / (epoch + batch), 2.0), MetricValue("Accuracy", 10.0 * epoch, 2.0))
                done = count * batch // batches
                step = StepDone(split, epoch, (epoch - 1) * batches + batch, batch, done, values)
                story.append((seconds, step))
            summary = (MetricValue("Loss", 1.0 / epoch), MetricValue("Accuracy", 50.0 - epoch))
            story.append((0.0, SplitDone(EpochSummary(split, epoch, summary))))
        story.append((0.0, EpochDone(epoch)))
        story.append((0.0, CheckpointSaved(f"checkpoint/epoch-{epoch}.safetensors", epoch, True)))
    story.append((0.0, RunEnded("completed", "THE TABLE")))
    for number, (passed, event) in enumerate(story):
        time += passed
        yield Stamped(number, time, event)


def folded(stream, until=None):
    view = RunView()
    for stamped in stream:
        view.apply(stamped)
        if until is not None and until(stamped.event):
            break
    return view


def test_iterations_are_those_of_training_while_a_run_validates():
    view = RunView()
    view.apply(Stamped(0, 0.0, RunStarted(2, 1, 48, 16, (LOSS,), (LOSS,))))
    for number, (split, last, shown) in enumerate([(Split.TRAIN, 3, 3), (Split.VALID, 1, 3), (Split.TRAIN, 6, 6)]):
        view.apply(Stamped(2 * number + 1, 0.0, SplitStarted(split, 1, 0, 3, 0, 48)))
        view.apply(Stamped(2 * number + 2, 0.0, StepDone(split, 1, last, 1, 16, ())))
        assert view.iteration == shown


def test_a_whole_run():
    view = folded(events())
    assert (view.status, view.mode, view.epoch, view.total_epochs) == ("ended", "validating", 2, 2)
    assert (view.iteration, view.items, view.items_total, view.batches, view.batches_total) == (8, 6, 6, 4, 4)
    assert view.ended.summary == "THE TABLE"
    assert [saved.epoch for saved in view.checkpoints] == [1, 2]
    loss = view.metrics["Loss"].splits[Split.VALID]
    assert loss.epochs == [(1, 1.0), (2, 0.5)]
    assert (loss.last, loss.epoch_value, loss.best_value, loss.best_epoch, loss.mean) == (1 / 6, 0.5, 0.5, 2, 0.75)
    accuracy = view.metrics["Accuracy"]
    assert (accuracy.unit, accuracy.higher_is_better) == ("%", True)
    assert accuracy.splits[Split.TRAIN].best_epoch == 1
    assert accuracy.splits[Split.TRAIN].running == 20.0
    row = view.summary[0]
    assert (row.split, row.name, row.lowest, row.lowest_epoch, row.highest, row.highest_epoch, row.best, row.last) == (
        Split.TRAIN, "Loss", 0.5, 2, 1.0, 1, 0.5, 0.5,
    )  # fmt: skip
    assert view.progress_total == 1.0
    assert view.elapsed_s == 16.0


def test_the_time_is_that_of_work_without_the_pauses_before_a_resume():
    stream = list(events(epochs=2))  # 16 s of work
    cut = next(number for number, one in enumerate(stream) if isinstance(one.event, CheckpointSaved))
    view = RunView()
    for stamped in stream[:cut]:
        view.apply(stamped)
    assert view.elapsed_s == 8.0
    number, pause = cut, 3600.0
    for event in (Notice("checkpoint epoch-2.safetensors is passed over"), stream[0].event):
        view.apply(Stamped(number, 108.0 + pause, event))
        assert view.elapsed_s == 8.0
        number += 1
    view.apply(Stamped(number, 108.5 + pause, Resources(10.0, 1, 2)))
    assert view.elapsed_s == 8.5
    for stamped in stream[cut + 1 :]:
        number += 1
        view.apply(Stamped(number, stamped.time + pause, stamped.event))
    assert (view.status, view.elapsed_s) == ("ended", 16.0)


def test_validation_is_as_wide_as_training():
    view = folded(events())
    xs = {split: [x for x, _ in view.metrics["Loss"].splits[split].series.points()] for split in Split}
    assert view.x_unit == "items"
    assert xs[Split.TRAIN] == [2, 4, 6, 8, 10, 12, 14, 16]
    np.testing.assert_allclose(xs[Split.VALID], [8 / 6, 4, 8 * 4 / 6, 8, 8 + 8 / 6, 12, 8 + 8 * 4 / 6, 16])


def test_where_items_are_unknown_iterations_count():
    view = folded(events(known=False))
    assert view.x_unit == "iterations"
    for split in Split:
        assert [x for x, _ in view.metrics["Loss"].splits[split].series.points()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert view.eta_s == 0.0
    assert view.progress_split is None


def test_progress_counts_training_and_validation():
    seen = []
    view = RunView()
    for stamped in events(epochs=2, batches=2, items=(6, 2)):
        view.apply(stamped)
        if isinstance(stamped.event, StepDone):
            seen.append(view.progress_total)
    np.testing.assert_allclose(seen, [3 / 16, 6 / 16, 7 / 16, 8 / 16, 11 / 16, 14 / 16, 15 / 16, 1])


def test_the_time_that_is_left_waits_for_the_run_to_be_warm_and_leaves_warm_up_out():
    view = RunView()
    total = 400
    view.apply(Stamped(0, 0.0, RunStarted(1, 1, total, None, (LOSS,), ())))
    view.apply(Stamped(1, 0.0, SplitStarted(Split.TRAIN, 1, 0, total, 0, total)))
    time = 0.0
    for batch in range(1, 41):
        time += 2.0 if batch <= 9 else 0.5  # the first ones compile and tune
        view.apply(Stamped(1 + batch, time, StepDone(Split.TRAIN, 1, batch, batch, batch, ())))
        if batch < 10:
            assert view.eta_s is None
    assert view.eta_s == pytest.approx((total - 40) * 0.5, rel=0.1)
    assert view.rate == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(("seconds", "shown_at"), [(0.5, 20), (4.0, 8), (20.0, 2)])
def test_the_time_that_is_left_comes_after_ten_seconds_and_batches_or_thirty_seconds(seconds, shown_at):
    view = RunView()
    view.apply(Stamped(0, 0.0, RunStarted(1, 1, 1000, None, (), ())))
    view.apply(Stamped(1, 0.0, SplitStarted(Split.TRAIN, 1, 0, 1000, 0, 1000)))
    shown = []
    for batch in range(1, 40):
        view.apply(Stamped(1 + batch, batch * seconds, StepDone(Split.TRAIN, 1, batch, batch, batch, ())))
        shown.append(view.eta_s is not None)
    assert shown.index(True) + 1 == shown_at
    assert all(shown[shown_at:])


def test_lines_notices_resources_and_a_wish_to_stop():
    view = RunView()
    for number in range(1500):
        view.apply(Stamped(number, 0.0, LogLine(f"line {number}", "stdout")))
    view.apply(Stamped(1500, 0.0, Notice("look")))
    use = Resources(10.0, 1, 2)
    view.apply(Stamped(1501, 5.0, use))
    view.apply(Stamped(1502, 5.0, StopRequested("asked by its viewer", "stop")))
    assert [view.log[0].text, view.log[-1].text, len(view.log), view.log_lines] == ["line 500", "line 1499", 1000, 1500]
    assert (view.notices, view.resources, list(view.resource_history)) == (["look"], use, [(5.0, use)])
    assert view.stop_requested.how == "stop"


def test_a_log_that_begins_again_is_a_view_that_begins_again():
    view = folded(events(epochs=3))
    for stamped in events(epochs=2):
        view.apply(stamped)
    other = folded(events(epochs=2))
    for name in ("epoch", "iteration", "notices", "summary", "events", "elapsed_s"):
        assert getattr(view, name) == getattr(other, name)
    assert view.metrics["Loss"].splits[Split.TRAIN].series.count == 8


def test_a_metric_that_nobody_announced_is_shown_all_the_same():
    view = RunView()
    view.apply(Stamped(0, 0.0, StepDone(Split.TRAIN, 1, 1, 1, 1, (MetricValue("Surprise", 3.0),))))
    view.apply(Stamped(1, 0.0, SplitDone(EpochSummary(Split.VALID, 1, (MetricValue("Other", math.nan),)))))
    assert view.metrics["Surprise"].splits[Split.TRAIN].last == 3.0
    assert view.metrics["Other"].splits[Split.VALID].epochs[0][0] == 1
    assert view.summary == ()


def test_a_directory_tells_whether_the_run_lives(tmp_path):
    view = RunView(tmp_path)
    stream = list(events())
    for stamped in stream[:5]:
        view.apply(stamped)
    assert view.status == "dead"
    for stamped in stream[5:]:
        view.apply(stamped)
    assert view.status == "ended"


def steps(count):
    yield Stamped(0, 0.0, RunStarted(1, 1, 16 * count, None, (LOSS, ACCURACY), ()))
    yield Stamped(1, 0.0, SplitStarted(Split.TRAIN, 1, 0, count, 0, 16 * count))
    for batch in range(1, count + 1):
        values = (MetricValue("Loss", 1.0 / batch, 16.0), MetricValue("Accuracy", float(batch % 100), 16.0))
        yield Stamped(batch + 1, 0.01 * batch, StepDone(Split.TRAIN, 1, batch, batch, 16 * batch, values))


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_steps_fold_in_seconds(count):
    stream = list(steps(count))
    view = RunView()
    start = process_time()
    for stamped in stream:
        view.apply(stamped)
    seconds = process_time() - start
    points = view.metrics["Accuracy"].splits[Split.TRAIN].series.points()
    assert len(points) <= 2000
    assert (min(y for _, y in points), max(y for _, y in points)) == (0.0, 99.0)
    assert view.iteration == count
    assert seconds < 10e-6 * count, f"{seconds / count * 1e6:.1f} us a step"


# -- series ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [0, 1, 2, 997, 998, 999, 2000, 12_345, 60_000])
def test_a_series_keeps_extremes_ends_and_order(seed, count):
    series = Series()
    values = seed.normal(0, 1, count)
    for x, y in enumerate(values):
        series.add(float(x), float(y))
    points = series.points()
    assert series.count == count
    assert len(points) <= 2000
    xs, ys = [x for x, _ in points], [y for _, y in points]
    assert xs == sorted(set(xs))
    if count:
        assert (min(ys), max(ys)) == (values.min(), values.max())
        assert points[-1] == (count - 1, values[-1])
        assert all(values[int(x)] == y for x, y in points)
        assert list(series.recent) == list(enumerate(values))[-1000:]
    if count <= 900:
        assert len(points) == count
    else:
        assert len(points) > 700


def test_every_spike_of_one_step_stays():
    series = Series()
    spikes = range(1000, 100_000, 7919)
    for x in range(100_000):
        series.add(x, 1e3 if x in spikes else math.sin(x / 500))
    assert {x for x, y in series.points() if y == 1e3} == set(spikes)


def test_values_that_are_not_finite_are_counted_and_not_drawn():
    series = Series()
    for x, y in enumerate([1.0, math.nan, math.inf, 2.0, -math.inf]):
        series.add(x, y)
    assert series.points() == [(0, 1.0), (3, 2.0)]
    assert (series.count, series.not_finite) == (5, 3)
    assert series.last == (4, -math.inf)
