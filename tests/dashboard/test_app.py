"""The dashboard itself, driven by keys and mouse on a terminal of textual's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("textual", reason="the dashboard needs textual: pip install 'burn-torch[tui]'")

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from burn_torch.monitor import EventLog, EventReader, Follower, LogLine, MetricValue, Notice, RunEnded, Split, StepDone
from burn_torch.monitor.dashboard.app import Dashboard
from burn_torch.monitor.dashboard.chart import ASCII, BRAILLE
from burn_torch.monitor.dashboard.panels import Controls, Log, Machine, Metrics, Plots, Progress, Status
from burn_torch.monitor.dashboard.popup import Popup
from burn_torch.monitor.dashboard.source import Source

Script = Callable[[Pilot[object], Dashboard], Awaitable[None]]


def lines(app: App[object]) -> list[str]:
    """Returns what is on the screen that lies on top."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def text(app: App[object]) -> str:
    return "\n".join(lines(app))


def drive(folder, script: Script, *, size=(80, 24), closes=False, glyphs=BRAILLE, lives=None) -> Dashboard:
    """Opens the dashboard on a run and does what the script says."""
    source = Source(folder, lives=lives)
    source.look()
    app = Dashboard(source, glyphs=glyphs, closes=closes)

    async def play() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await script(pilot, app)

    asyncio.run(play())
    return app


async def until(pilot: Pilot[object], condition: Callable[[], bool]) -> None:
    """Waits for something that another thread or a tick brings."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it never came"
        await pilot.pause(0.02)


# -- what is on the screen ------------------------------------------------------------------------------
def test_the_five_panels_at_80_by_24(live):
    async def script(pilot, app):
        shown = text(app)
        for title in ("Controls", "Metrics", "Status", "Plots", "Progress"):
            assert f"─ {title} ─" in shown
        for word in ("Quit", "Accuracy", "Loss", "Train", "Valid", "best", "Mode", "Validating", "Epoch", "3/5"):
            assert word in shown
        assert "CPU 50% GPU 75% 4 GB" in shown
        assert "━━ train" in shown
        assert "ETA" in shown
        assert "a word to the user" in shown
        assert not app.query_one(Machine).display

    drive(live()[0], script)


def test_a_large_screen_has_the_machine_and_whole_sentences(live):
    async def script(pilot, app):
        shown = text(app)
        assert "─ Machine ─" in shown
        assert "GPU 0" in shown
        assert "Stop the training, or leave it" in shown
        assert "best 0.1498 in epoch 3" in shown

    drive(live()[0], script, size=(200, 50))


def test_every_size_is_drawn_and_resized_to(live):
    async def script(pilot, app):
        for width, height in ((1, 1), (5, 2), (20, 6), (59, 12), (60, 19), (80, 9), (300, 100), (80, 24)):
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.05)
            assert [len(line) for line in lines(app)] == [width] * height
        assert "─ Status ─" in text(app)
        assert "Validating" in text(app)

    assert drive(live()[0], script, size=(30, 8)).failure is None


def test_ascii_where_letters_are_not_unicode(live):
    async def script(pilot, app):
        await pilot.press("l")
        await pilot.pause(0.03)
        assert text(app).isascii()
        await pilot.press("q")
        await pilot.pause(0.03)
        assert text(app).isascii()

    drive(live()[0], script, glyphs=ASCII)


# -- keys -------------------------------------------------------------------------------------------------
def test_arrows_switch_metric_and_plot_around_the_ends_and_y_the_axis(live):
    async def script(pilot, app):
        assert (app.shown.metric, app.shown.kind) == ("Accuracy", "full")
        for key, metric, kind in (
            ("right", "Loss", "full"),
            ("right", "Accuracy", "full"),
            ("left", "Loss", "full"),
            ("down", "Loss", "recent"),
            ("down", "Loss", "summary"),
            ("down", "Loss", "full"),
            ("up", "Loss", "summary"),
        ):
            await pilot.press(key)
            assert (app.shown.metric, app.shown.kind) == (metric, kind), key
        await pilot.pause(0.03)
        assert "mean" in text(app)
        await pilot.press("down", "y")
        await pilot.pause(0.03)
        assert "Loss over items, log" in text(app)
        await pilot.press("y")
        await pilot.pause(0.03)
        assert ", log" not in text(app)

    drive(live()[0], script)


def test_l_opens_the_log_and_pages_turn(write):
    folder = write(epochs=3)
    events = [stamped.event for stamped in Follower(folder / "events.jsonl").poll()]
    write(*events[:-1], *(LogLine(f"print {number:03}", "stdout") for number in range(100)), events[-1])

    async def script(pilot, app):
        assert "print 099" not in text(app)
        await pilot.press("l")
        await pilot.pause(0.03)
        assert "print 099" in text(app)
        await pilot.press("pageup")
        await pilot.pause(0.03)
        assert "print 099" not in text(app)
        assert "10 lines below" in text(app)
        await pilot.press("pagedown")
        await pilot.pause(0.03)
        assert "print 099" in text(app)
        app.query_one(Log).on_mouse_scroll_up(None)
        await pilot.pause(0.03)
        assert "print 096" in text(app)
        assert "3 lines below" in text(app)
        await pilot.press("l")
        await pilot.pause(0.03)
        assert "print 096" not in text(app)

    drive(folder, script)


def test_c_asks_for_a_checkpoint(live):
    folder, asked = live()

    async def script(pilot, app):
        await pilot.press("c")
        await until(pilot, lambda: "the run saves after this step" in text(app))

    drive(folder, script)
    assert asked.commands == ["checkpoint"]


# -- the popup --------------------------------------------------------------------------------------------
def test_quit_asks_and_cancel_changes_nothing(live):
    folder, asked = live()

    async def script(pilot, app):
        for opens, cancels in (("q", "c"), ("ctrl+c", "escape"), ("ctrl+q", "C")):
            await pilot.press(opens)
            assert isinstance(app.screen, Popup), opens
            shown = text(app)
            for choice in ("[s] Stop the training after a checkpoint.", "[k] Stop the training immediately."):
                assert choice in shown
            assert "[d] Detach: the training goes on." in shown
            await pilot.press("x", "left", "q", "ctrl+c")  # what is no choice does nothing
            await pilot.click(offset=(1, 1))
            assert isinstance(app.screen, Popup)
            await pilot.press(cancels)
            assert not isinstance(app.screen, Popup), cancels
            assert app.shown.metric == "Accuracy"

    assert drive(folder, script).return_value is None
    assert asked.commands == []


@pytest.mark.parametrize(
    ("key", "command", "answer"),
    [("S", "stop", "the run stops after this step"), ("k", "kill", "the run ends now")],
)
def test_stop_and_kill_reach_the_run(live, key, command, answer):
    folder, asked = live()

    async def script(pilot, app):
        await pilot.press("q", key)
        await until(pilot, lambda: bool(asked.commands))
        await until(pilot, lambda: answer in text(app))

    drive(folder, script)
    assert asked.commands == [command]


def test_the_popup_by_mouse_and_detach(live):
    folder, asked = live()

    async def script(pilot, app):
        for row, commands in ((3, []), (0, ["stop"]), (1, ["stop", "kill"]), (2, ["stop", "kill"])):
            await pilot.press("q")
            options = list(app.screen.query(Static))
            assert len(options) == 4
            await pilot.hover(options[row])
            await pilot.click(options[row])
            if row != 2:
                await until(pilot, lambda: not isinstance(app.screen, Popup))
            await until(pilot, lambda wanted=commands: asked.commands == wanted)

    assert drive(folder, script).return_value == "detached"


def test_a_run_that_takes_no_command_says_so(write):
    async def script(pilot, app):
        await pilot.press("c")
        await until(pilot, lambda: "no run took the command 'checkpoint'" in text(app))

    drive(write(ended=None), script, lives=lambda: True)


def test_quit_leaves_a_run_that_is_over_at_once(write):
    async def script(pilot, app):
        assert "Completed" in text(app)
        await pilot.press("q")

    assert drive(write(), script).return_value == "closed"


# -- the mouse --------------------------------------------------------------------------------------------
def place(app: Dashboard, panel: type, target: str) -> tuple[int, int]:
    """Returns where on the screen a place of a panel is."""
    widget = app.query_one(panel)
    at = next(at for at, name in widget.targets.items() if name == target)
    return widget.content_region.x + at[1] + 1, widget.content_region.y + at[0]


def test_clicks_and_the_wheel_choose(live):
    async def script(pilot, app):
        for panel, target, metric, kind in (
            (Plots, "Loss", "Loss", "full"),
            (Plots, "Accuracy", "Accuracy", "full"),
            (Plots, "<", "Loss", "full"),
            (Plots, ">", "Accuracy", "full"),
            (Metrics, "Loss", "Loss", "full"),
            (Plots, "kind recent", "Loss", "recent"),
            (Plots, "kind summary", "Loss", "summary"),
            (Metrics, "Accuracy", "Accuracy", "summary"),
        ):
            await pilot.click(offset=place(app, panel, target))
            assert (app.shown.metric, app.shown.kind) == (metric, kind), target
            await pilot.pause(0.02)
            assert ("mean" in text(app)) == (kind == "summary")
        app.shown.metric, app.shown.kind = "Accuracy", "full"
        for nothing in (Plots, Status, Progress, Controls):
            region = app.query_one(nothing).content_region
            await pilot.click(offset=(region.right - 1, region.bottom - 1))
        assert (app.shown.metric, app.shown.kind) == ("Accuracy", "full")
        metrics = app.query_one(Metrics)
        for turn, metric in (
            (metrics.on_mouse_scroll_down, "Loss"),
            (metrics.on_mouse_scroll_down, "Loss"),
            (metrics.on_mouse_scroll_up, "Accuracy"),
        ):
            turn(None)
            assert app.shown.metric == metric

    drive(live()[0], script)


def test_hovering_marks_a_place_until_the_mouse_leaves(live):
    async def script(pilot, app):
        for panel, target in ((Plots, "Loss"), (Plots, "<"), (Plots, "kind recent"), (Metrics, "Loss")):
            widget = app.query_one(panel)
            await pilot.hover(offset=place(app, panel, target))
            assert widget.hovered == target
            assert "hover" in {role for row in widget._rows or [] for _, role in row}
            await pilot.hover(Progress)
            await pilot.pause(0.02)
            assert widget.hovered is None
            assert "hover" not in {role for row in widget._rows or [] for _, role in row}

    drive(live()[0], script)


# -- a run that goes on -------------------------------------------------------------------------------------
def test_new_events_show_and_an_end_asks(live):
    folder, _ = live(epochs=1, total_epochs=1)

    async def script(pilot, app):
        log = EventLog.resume(folder / "events.jsonl", log_position(folder))
        log.append(StepDone(Split.VALID, 1, 21, 21, 168, (MetricValue("Loss", 0.123, 8.0),)))
        log.append(Notice("all goes well"))
        log.flush()
        await until(pilot, lambda: "0.123" in text(app) and "all goes well" in text(app))
        await pilot.press("q")  # a question that the end of the run makes pointless
        log.append(RunEnded("completed", None))
        log.close()
        app.source._lives = lambda: False
        await until(pilot, lambda: "Training is done" in text(app))
        assert "[x] Close this and look at the plots." in text(app)
        await pilot.press("x")
        assert not isinstance(app.screen, Popup)
        assert "Completed" in text(app)
        await pilot.press("q")

    assert drive(folder, script, lives=lambda: True).return_value == "closed"


def log_position(folder) -> tuple[int, int]:
    data = (folder / "events.jsonl").read_bytes()
    return len(data), data.count(b"\n")


def test_the_done_popup_can_leave_at_once(live):
    folder, _ = live()
    alive = [True]

    async def script(pilot, app):
        alive[0] = False
        await until(pilot, lambda: "The run has ended without a word" in text(app))
        await pilot.press("q")

    assert drive(folder, script, lives=lambda: alive[0]).return_value == "closed"


def test_in_front_of_its_run_it_closes_with_it(live):
    folder, _ = live()
    alive = [True]

    async def script(pilot, app):
        alive[0] = False
        await until(pilot, lambda: app.return_value is not None)

    assert drive(folder, script, closes=True, lives=lambda: alive[0]).return_value == "ended"


def test_a_run_that_has_not_begun(tmp_path):
    async def script(pilot, app):
        assert "Starting" in text(app)
        assert "no metrics yet" in text(app)
        await pilot.press("left", "right", "up", "down", "y", "l")

    assert drive(tmp_path, script, lives=lambda: True).failure is None


def test_a_run_that_is_resumed_starts_the_view_again(live):
    folder, _ = live(epochs=3)

    async def script(pilot, app):
        assert "3/5" in text(app)
        data = (folder / "events.jsonl").read_bytes()
        cut = data.index(b'"kind":"epoch_done"')
        (folder / "events.jsonl").write_bytes(data[: data.rindex(b"\n", 0, cut) + 1])
        await until(pilot, lambda: "1/5" in text(app))

    drive(folder, script)


# -- a long run -----------------------------------------------------------------------------------------------
def test_a_long_run_shows_at_once_and_becomes_exact(write, monkeypatch):
    folder = write(epochs=10, batches=1000, ended=None)
    monkeypatch.setattr("burn_torch.monitor.dashboard.source._SAMPLE", 100)
    monkeypatch.setattr("burn_torch.monitor.dashboard.source._LONG", 1000)
    source = Source(folder, lives=lambda: True)
    source.look()
    sampled = source.view
    assert source.reading == 0.0
    assert sampled.events < 3200  # of 20,000 steps
    source.poll(None)
    assert source.reading is None
    exact = source.view
    for name in ("Accuracy", "Loss"):
        for split in Split:
            one, other = sampled.metrics[name].splits[split], exact.metrics[name].splits[split]
            assert (one.best_value, one.best_epoch, one.last) == (other.best_value, other.best_epoch, other.last)
            assert one.series.points()[-1] == other.series.points()[-1]
            assert one.series.points()[0][0] < 0.02 * one.series.points()[-1][0]
    assert (sampled.epoch, sampled.iteration, len(sampled.checkpoints)) == (10, 10_000, 10)
    assert exact.events == 20_000 + 2 + 10 * 8


def test_a_long_run_says_how_much_is_read(write, monkeypatch):
    monkeypatch.setattr("burn_torch.monitor.dashboard.source._LONG", 1000)
    monkeypatch.setattr("burn_torch.monitor.dashboard.source._CHUNK", 5000)
    monkeypatch.setattr("burn_torch.monitor.dashboard.app._READ_S", 0.0)

    async def script(pilot, app):
        await until(pilot, lambda: "reading the whole history" in text(app))
        monkeypatch.setattr("burn_torch.monitor.dashboard.app._READ_S", 1.0)
        await until(pilot, lambda: app.source.reading is None)
        await until(pilot, lambda: "reading the whole history" not in text(app))

    drive(write(epochs=5, batches=200, ended=None), script, lives=lambda: True)


# -- faults ---------------------------------------------------------------------------------------------------
def test_an_error_in_a_panel_ends_it_and_is_kept(live, monkeypatch, capfd):
    folder, asked = live()

    async def script(pilot, app):
        def broken(width, height):
            raise ZeroDivisionError("a panel that fails")

        monkeypatch.setattr(app.query_one(Plots), "rows", broken)
        await pilot.press("right")
        await pilot.pause(0.03)

    with pytest.raises(ZeroDivisionError, match="a panel that fails"):
        drive(folder, script)
    assert asked.commands == []
    assert "Traceback" not in capfd.readouterr().err


def test_the_dashboard_is_no_reader_inside_the_run():
    assert not isinstance(Dashboard, EventReader)


def test_a_tick_while_the_panels_go_draws_nothing(live):
    async def script(pilot, app):
        await app.query_one(Progress).remove()
        app.refresh_panels()
        assert "Status" in text(app)

    assert drive(live()[0], script).failure is None
