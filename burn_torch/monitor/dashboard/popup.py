"""A question in front of everything, answered by a key or by a click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["DONE", "QUIT", "Choice", "Popup"]

Choice = tuple[str, str]
"""A key and what it does."""

QUIT: Final[Sequence[Choice]] = (
    ("s", "Stop the training after a checkpoint."),
    ("k", "Stop the training immediately."),
    ("d", "Detach: the training goes on."),
    ("c", "Cancel"),
)
DONE: Final[Sequence[Choice]] = (("x", "Close this and look at the plots."), ("q", "Leave the dashboard."))


@final
class _Option(Static):
    """One line of the popup."""

    def __init__(self, choice: Choice) -> None:
        key, text = choice
        super().__init__(f"[bold ansi_yellow]\\[{key}][/] {text}", classes="option")
        self.key: Final = key


@final
class Popup(ModalScreen[str]):
    """Gives back the key of the choice; escape chooses `cancels`."""

    DEFAULT_CSS: ClassVar[str] = """
    Popup { align: center middle; }
    Popup > Vertical {
        width: auto; max-width: 100%; height: auto; max-height: 100%;
        border: heavy ansi_yellow; padding: 0 1; border-title-style: bold;
    }
    Popup > Vertical.ascii { border: ascii ansi_yellow; }
    Popup .option { width: auto; height: 1; }
    Popup .option:hover { text-style: reverse; }
    """

    def __init__(self, title: str, choices: Sequence[Choice], *, cancels: str, ascii_only: bool = False) -> None:
        super().__init__()
        self._title, self._choices, self._cancels, self._ascii = title, choices, cancels, ascii_only

    def compose(self) -> ComposeResult:
        """One line a choice."""
        with Vertical(classes="ascii" if self._ascii else "") as box:
            box.border_title = self._title
            yield from map(_Option, self._choices)

    def on_key(self, event: events.Key) -> None:
        """A key of a choice, in either case."""
        event.stop()
        self.choose(self._cancels if event.key == "escape" else (event.character or "").lower())

    def choose(self, key: str) -> None:
        """Answers with a key, if it is that of a choice."""
        if any(key == choice for choice, _ in self._choices):
            self.dismiss(key)

    def on_click(self, event: events.Click) -> None:
        """A click on the line of a choice."""
        if isinstance(event.widget, _Option):
            self.dismiss(event.widget.key)
