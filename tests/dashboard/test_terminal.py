"""Tests what a terminal can do, and what the documentation says of the dashboard."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from burn_torch.monitor.dashboard import obstacle
from burn_torch.monitor.dashboard.chart import ASCII, BLOCKS, BRAILLE
from burn_torch.monitor.dashboard.content import CONTROLS, KINDS
from burn_torch.monitor.dashboard.terminal import glyphs

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Stream(io.StringIO):
    def __init__(self, encoding: str = "utf-8", *, tty: bool = True) -> None:
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("encoding", "term", "expected"),
    [
        ("utf-8", "xterm-256color", BRAILLE),
        ("UTF8", "screen", BRAILLE),
        ("utf-8", "linux", BLOCKS),
        ("iso-8859-1", "xterm", ASCII),
        ("ascii", "linux", ASCII),
    ],
)
def test_glyphs_are_what_the_letters_can_draw(monkeypatch, encoding, term, expected):
    monkeypatch.setattr(sys, "__stdout__", Stream(encoding))
    monkeypatch.setenv("TERM", term)
    assert glyphs() is expected


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_each_stream_has_to_be_a_terminal(monkeypatch, name):
    monkeypatch.setenv("TERM", "xterm")
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Stream(tty=stream != name))
    assert obstacle() == "input and output are not both a terminal"
    monkeypatch.setattr(sys, name, None)
    assert obstacle() == "input and output are not both a terminal"


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_cannot_move_its_cursor(monkeypatch, term):
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Stream())
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert obstacle() == "the terminal cannot move its cursor (TERM is dumb or not set)"


def test_without_textual_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Stream())
    monkeypatch.setitem(sys.modules, "textual", None)
    assert obstacle() == "textual is not installed: pip install 'burn-torch[tui]'"


def test_the_page_names_every_key_and_plot():
    page = (DOCS / "building-blocks" / "dashboard.md").read_text(encoding="utf-8")
    for keys, _, _ in CONTROLS:
        for key in keys.split():
            assert f"`{key}`" in page
    for name in KINDS.values():
        assert name.lower() in page


def test_the_pictures_are_small_and_need_nothing_from_elsewhere():
    page = (DOCS / "building-blocks" / "dashboard.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\(\.\./_static/(.+?\.svg)\)", page)
    assert pictures == ["dashboard-80x24.svg", "dashboard-200x50.svg"]
    for name in pictures:
        svg = (DOCS / "_static" / name).read_text(encoding="utf-8")
        assert len(svg) < 120_000
        assert "@font-face" not in svg
        assert svg.count("Progress") == 1
