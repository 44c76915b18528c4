"""The dashboard: an app that reads the events of a run and sends commands back.  It needs textual."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal, final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from burn_torch.monitor.dashboard.chart import ASCII, Glyphs
from burn_torch.monitor.dashboard.panels import Controls, Log, Machine, Metrics, Plots, Progress, Shown, Status
from burn_torch.monitor.dashboard.popup import DONE, QUIT, Choice, Popup
from burn_torch.monitor.dashboard.source import Source

__all__ = ["Dashboard", "Outcome"]

Outcome = Literal["closed", "detached", "ended", "hangup", "terminated"]
"""How it came to an end: of a run that is over, from one that goes on, with the run, by a signal."""

TICK_S: Final = 0.25
_READ_S: Final = 0.12
"""The part of each tick, at most, for reading."""
_GRACE_S: Final = 2.0
"""For the terminal to take the last letters after a signal; a line that is cut may never."""


@final
class Dashboard(App[Outcome]):
    """Shows a run until the user leaves it; with `closes`, until the run ends.

    Neither reading nor a command changes the run, unless the user asks it to stop or to save.
    """

    CSS: ClassVar[str] = """
    Screen { layout: vertical; }
    Popup { background: transparent; }
    #top { height: 1fr; }
    #left { width: 38%; }
    #right { width: 1fr; }
    #controls { height: 5; }
    #metrics { height: 1fr; min-height: 4; }
    #status { height: 7; }
    #machine { height: auto; max-height: 11; display: none; }
    #plots { height: 1fr; }
    #log { height: 45%; display: none; }
    #progress { height: 4; border-subtitle-align: left; }
    Screen.-tall #controls { height: 8; }
    Screen.-tall #status { height: 9; }
    Screen.-tall #machine { display: block; height: 9; }
    Screen.-tall #log { height: 35%; }
    Screen.-short #controls { display: none; }
    Screen.-short #status { height: 6; }
    Screen.-flat #left { display: none; }
    Screen.-narrow #left { display: none; }
    Screen.-flat #progress { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "leave", "Quit", priority=True),  # first of all: what is typed ahead is the answer
        Binding("left", "metric(-1)", "Metric"),
        Binding("right", "metric(1)", "Metric"),
        Binding("up", "kind(-1)", "Plot"),
        Binding("down", "kind(1)", "Plot"),
        Binding("y", "scale", "Scale"),
        Binding("l", "log", "Log"),
        Binding("c", "save", "Save"),
        Binding("pageup", "pages(10)", "Back"),
        Binding("pagedown", "pages(-10)", "Forward"),
        Binding("ctrl+z", "suspend_process", "Suspend"),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-wide")]  # noqa: RUF012 - textual's annotation is no ClassVar
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (10, "-short"), (20, "-usual"), (36, "-tall")]  # noqa: RUF012 - the same
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    TITLE = "burn-torch"

    def __init__(self, source: Source, *, glyphs: Glyphs, closes: bool = False) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours; and NO_COLOR leaves none
        self.shown: Final = Shown(source, glyphs)
        self.failure: Exception | None = None
        """Holds what ended it, if it was a fault of its own."""
        self._closes = closes
        self._ascii = glyphs is ASCII
        self._was_running = False
        self._told = 0

    @property
    def source(self) -> Source:
        """The run."""
        return self.shown.source

    def compose(self) -> ComposeResult:
        """The panels of Burn, the machine and the log."""
        shown, plain = self.shown, self._ascii
        with Horizontal(id="top"):
            with Vertical(id="left"):
                yield Controls(shown, ascii_only=plain)
                yield Metrics(shown, ascii_only=plain)
                yield Status(shown, ascii_only=plain)
                yield Machine(shown, ascii_only=plain)
            with Vertical(id="right"):
                yield Plots(shown, ascii_only=plain)
                yield Log(shown, ascii_only=plain)
        yield Progress(shown, ascii_only=plain)

    def on_mount(self) -> None:
        """Begins to follow the run."""
        self.shown.settle()
        self._was_running = self._closes or self.source.runs  # in front of its run it may come too late
        self._told = len(self.source.view.notices)
        self.query_one(Progress).subtitle(self.source.view.notices[-1] if self._told else "")
        if not self.is_headless:
            self._leave_on_signals()
        self.set_interval(TICK_S, self._tick)

    # -- following ----------------------------------------------------------------------------------
    async def _tick(self) -> None:
        source = self.source
        source.poll(_READ_S)
        self.shown.settle()
        notices = source.view.notices
        if len(notices) != self._told:
            self._told = len(notices)
            if notices:
                self.query_one(Progress).subtitle(notices[-1])
        self.refresh_panels()
        if source.runs:
            self._was_running = True
        elif self._was_running and source.reading is None:
            self._was_running = False
            await self._ended()
        if not self.is_headless and not _has_terminal():
            self.exit("hangup")

    async def _ended(self) -> None:
        if self._closes:
            self.exit("ended")
            return
        if isinstance(self.screen, Popup):  # a question about a run that is over
            await self.pop_screen()
        over = "Training is done" if self.source.view.ended is not None else "The run has ended without a word"
        await self._ask(over, DONE, cancels="x")

    def refresh_panels(self) -> None:
        """Draws what has changed."""
        panels = [self.query(panel) for panel in (Machine, Controls, Metrics, Status, Plots, Log, Progress)]
        if not all(panels):  # a tick while the dashboard closes, and its panels go one by one
            return
        self.shown.with_machine_line = not panels[0].first().display
        for query in panels:
            panel = query.first()
            if panel.display:
                panel.update()

    def on__of_run_changed(self) -> None:
        """Another metric or kind was chosen with the mouse."""
        self.refresh_panels()

    def on_resize(self) -> None:
        """Draws for the new size once the panels have theirs."""
        self.call_after_refresh(self.refresh_panels)

    # -- keys ---------------------------------------------------------------------------------------
    def action_metric(self, by: int) -> None:
        """The next metric, or the one before."""
        self.shown.move(by)
        self.refresh_panels()

    def action_kind(self, by: int) -> None:
        """The next kind of plot, or the one before."""
        self.shown.turn(by)
        self.refresh_panels()

    def action_scale(self) -> None:
        """Logarithmic or linear."""
        self.shown.log_scale = not self.shown.log_scale
        self.refresh_panels()

    def action_log(self) -> None:
        """Opens or closes the log."""
        log = self.query_one(Log)
        log.display = not log.display
        self.call_after_refresh(self.refresh_panels)

    def action_pages(self, by: int) -> None:
        """Turns the pages of the log."""
        log = self.query_one(Log)
        if log.display:
            log.scroll(by)

    def action_save(self) -> None:
        """Asks the run for a checkpoint."""
        self._command("checkpoint")

    async def action_leave(self) -> None:
        """Asks what shall become of the run; leaves at once where it is over."""
        if isinstance(self.screen, Popup):
            self.screen.choose("q")
        elif self.source.runs:
            await self._ask("Quit", QUIT, cancels="c")
        else:
            self.exit("closed")

    async def _ask(self, title: str, choices: Sequence[Choice], *, cancels: str) -> None:
        await self.push_screen(Popup(title, choices, cancels=cancels, ascii_only=self._ascii), self._on_answer)

    def _on_answer(self, key: str | None) -> None:
        match key:
            case "s":
                self._command("stop")
            case "k":
                self._command("kill")
            case "d":
                self.exit("detached")
            case "q":
                self.exit("closed")

    def _command(self, name: str) -> None:
        """Sends a command in a thread, as the run may take its time to answer, and shows the answer."""
        progress = self.query_one(Progress)

        def work() -> None:
            text = self.source.command(name)
            with suppress(RuntimeError):  # the app is gone
                self.call_from_thread(progress.subtitle, text)

        threading.Thread(target=work, name=f"burn-torch-{name}", daemon=True).start()

    # -- the end ------------------------------------------------------------------------------------
    def _leave_on_signals(self) -> None:
        """SIGTERM and SIGHUP close it, SIGINT asks as Ctrl-C does; what was ignored before stays so."""
        loop = asyncio.get_running_loop()
        outcomes: tuple[tuple[str, Outcome | None], ...] = (
            ("SIGTERM", "terminated"),
            ("SIGHUP", "hangup"),
            ("SIGINT", None),
        )
        for name, outcome in outcomes:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:
                continue
            with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not in the main thread
                if outcome is None:
                    loop.add_signal_handler(number, self.call_later, self.run_action, "leave")
                else:
                    loop.add_signal_handler(number, self._on_signal, outcome, 128 + int(number))

    def _on_signal(self, outcome: Outcome, code: int) -> None:
        def give_up() -> None:
            os._exit(code)

        timer = threading.Timer(_GRACE_S, give_up)
        timer.daemon = True
        timer.start()
        self.exit(outcome)

    def _handle_exception(self, error: Exception) -> None:
        self.failure = self.failure or error
        super()._handle_exception(error)

    def _print_error_renderables(self) -> None:
        """Prints nothing: whoever ran the app words the failure, after the terminal is restored."""
        self._exit_renderables.clear()


def _has_terminal() -> bool:
    """Returns whether the terminal is still there: a closed one that nobody was told of would be read for ever."""
    try:
        os.tcgetpgrp(sys.__stdin__.fileno())  # type: ignore[union-attr]  # run_async has checked that there is one
    except (OSError, ValueError, AttributeError):
        return False
    return True
