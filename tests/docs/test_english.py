"""The rule for English: the lint sees what breaks it, and the list of places that are still allowed only shrinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

MOST_PLACES = 4277
"""The number of places in all files when this line was last lowered; 5194 when the rule was written."""


@pytest.fixture(scope="module")
def english(generator: Callable[[str], Any]) -> Any:
    return generator("english")


def test_the_list_of_allowed_places_never_grows(english: Any) -> None:
    assert english.read_allowed().total() <= MOST_PLACES


@pytest.mark.slow
def test_no_file_has_more_places_than_are_allowed(english: Any) -> None:
    counts = Counter(place.path for place in english.places())
    assert {path: count for path, count in counts.items() if count > english.read_allowed()[path]} == {}


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("found = 1", "the variable found"),
        ("for told in (): ...", "the variable told"),
        ("def f(made): ...", "the parameter made"),
        ("def _joined(): ...", "the function _joined"),
        ("def _found(): ...", "the function _found"),
        ('"""Of what we add."""', "a docstring that begins with 'Of'"),
        ('def f():\n    """Whether nobody knows."""', "a docstring that begins with 'Whether'"),
        ('MOST = 3\n"""So many processes."""', "a docstring that begins with 'So many'"),
        ('raise ValueError("so many kernels there may be")', "the word 'so many'"),
    ],
)
def test_what_breaks_the_rule_is_a_place(english: Any, code: str, fault: str) -> None:
    assert [place.text for place in english.code_places("burn_torch/nn/linear.py", code)] == [fault]


@pytest.mark.parametrize(
    "code",
    [
        "found_names = 1\nx.found = 2\nprint(found)",
        "def explain(what, given): ...",
        "def joined(): ...\ndef _join_groups(): ...\ndef _seed(): ...\ndef _joined_groups(): ...",
        '"""Offers kernels, whatever the size."""',
    ],
)
def test_what_keeps_to_the_rule_is_none(english: Any, code: str) -> None:
    assert list(english.code_places("burn_torch/nn/linear.py", code)) == []


def test_pages_are_read_for_their_words(english: Any) -> None:
    places = list(english.page_places("docs/index.md", "Fine.\nNobody knows, of whom so many came.\n"))
    assert [(place.line, place.text) for place in places] == [
        (2, "the word 'Nobody'"),
        (2, "the word 'whom'"),
        (2, "the word 'so many'"),
    ]


def test_pages_are_read_for_openings_of_sentences(english: Any) -> None:
    text = "# What it is\n\nWhat is it? Fine. Where it ends,\nit ends. Some of\nwhat is.\n\n* Of two, one.\n"
    places = list(english.page_places("docs/index.md", text))
    assert [(place.line, place.text) for place in places] == [
        (3, "a sentence that begins with 'Where'"),
        (7, "a sentence that begins with 'Of'"),
    ]


def test_places_may_move_within_a_package_and_not_grow(english: Any) -> None:
    old, new = "burn_torch/nn/norm.py", "burn_torch/nn/new/norm.py"
    allowed = Counter({old: 2, "burn_torch/optim/sgd.py": 1})
    moved = [english.Place(new, line, "the variable found") for line in (1, 2)]
    assert english.new_places(moved, allowed) == []
    grown = [*moved, english.Place(new, 3, "the variable made")]
    assert english.new_places(grown, allowed) == grown
    assert english.new_places([english.Place("examples/a.py", 1, "the variable found")], allowed) != []


def test_more_places_are_refused_and_not_written(english: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(english, "read_allowed", lambda: Counter[str]())
    monkeypatch.setattr(english, "places", lambda: [english.Place("examples/a.py", 7, "the variable found")])
    with pytest.raises(SystemExit, match=r"examples/a\.py:7: the variable found"):
        english.main(check=False)
