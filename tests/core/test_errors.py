"""Errors: each class takes the three parts of its message by name."""

from __future__ import annotations

import pickle

import pytest

from burn_torch.core import errors
from burn_torch.core.errors import BurnTorchError, ShapeError, explain

CLASSES = [kind for name in errors.__all__ if isinstance(kind := getattr(errors, name), type)]
PARTS = {"given": "lhs (2,), rhs (3,)", "expected": "one shape", "mend": "slice\x1b rhs"}


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_words_its_parts_and_stays_equal_through_a_pickle(kind: type[BurnTorchError]) -> None:
    err = kind("add: the shapes differ", **PARTS)
    err.add_note("in a test")
    assert str(err) == explain("add: the shapes differ", **PARTS)
    assert err.args == (str(err),)
    back = pickle.loads(pickle.dumps(err))
    assert (type(back), back.args, back.__notes__) == (kind, err.args, err.__notes__)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_takes_a_plain_message_too(kind: type[BurnTorchError]) -> None:
    assert str(kind("a message")) == "a message"
    assert kind().args == ()


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_message_has_all_three_parts_or_none(part: str) -> None:
    rest = {name: text for name, text in PARTS.items() if name != part}
    with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{part}'"):
        ShapeError("add: the shapes differ", **rest)  # type: ignore[call-overload]  # one part is missing on purpose
