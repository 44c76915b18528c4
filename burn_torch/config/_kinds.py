"""The types that a configuration field may have: how each is checked, read, written, and typed on a command line.

`kind_of(annotation)` (in `_schema`) turns a type annotation into a `Kind` once per class.  A kind does four things:

    check(value)    a Python value given to a constructor  -> the value to keep
    decode(value)   a value parsed from JSON               -> the value to keep
    encode(value)   a kept value                           -> what JSON can hold
    parse(text)     the text right of `=` in an override   -> the value to keep

The first, second and last note their faults at a `Place` and then return `INVALID`, so one pass finds all of them.
Types are strict: a bool is no int, text is no number; the one widening is an int where a float is asked for.
Numbers are finite, because JSON has no other: use `X | None` for "no limit" and "not known".
"""

from __future__ import annotations

import json
import math
import numbers
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from burn_torch.core import strict_json
from burn_torch.core.faults import Place, mend_name, shown

__all__ = [
    "BoolKind",
    "ChoiceKind",
    "FieldValue",
    "FloatKind",
    "IntKind",
    "Kind",
    "NullKind",
    "PathKind",
    "StrKind",
    "form_of",
    "name_of_text",
]

FieldValue: TypeAlias = Any
"""The value of a field, or its form in JSON: the kind of the field checks it."""


class Kind(ABC):
    """One type of field."""

    forms: frozenset[str] = frozenset()
    """The JSON forms it is written in; members of a union must differ in them."""
    word = ""
    """The type in a reader's words."""
    takes_text = False
    """Says whether `check` takes a text for a value: the name of a member of an enum."""

    def describe(self) -> str:
        """The type in a reader's words, for the `expected` part of an error."""
        return self.word

    @abstractmethod
    def claims(self, value: object) -> bool:
        """Returns whether a Python value is meant for this member of a union."""

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        """Checks a Python value and brings it to the form that is kept."""
        return self.convert(value) if self.claims(value) else place.wrong_type(value, self.describe())

    def convert(self, value: FieldValue) -> FieldValue:
        """The form that is kept of a value that this kind claims."""
        return value

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        """Reads a value that came out of JSON."""
        return self.check(value, place)

    def encode(self, value: FieldValue) -> FieldValue:
        """Writes a kept value as JSON can hold it."""
        return value

    def parse(self, text: str, place: Place) -> FieldValue:
        """Reads the text of an override: JSON, unless the kind knows a shorter way."""
        try:
            value = strict_json.parse(text)
        except ValueError as error:
            return place.fault("no value", given=f"= {text!r} ({error})", expected=self.describe(), mend="write JSON")
        return self.decode(value, place)

    def is_optional(self) -> bool:
        """Returns whether None is one of the values."""
        return False


def name_of_text(text: object, names: Iterable[str]) -> str | None:
    """The one of some names that a text says, in any case and with underscores or hyphens; None if it says none."""
    known = {_plain(name): name for name in names}
    return known.get(_plain(text)) if isinstance(text, str) else None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def form_of(value: object) -> str:
    """The JSON form of a value that came out of JSON."""
    if value is None:
        return "null"
    for type_, form in ((bool, "bool"), (int, "int"), (float, "float"), (str, "string"), (Mapping, "object")):
        if isinstance(value, type_):
            return form
    return "array"


# -- scalars -----------------------------------------------------------------


class NullKind(Kind):
    """None, the absent value."""

    forms = frozenset({"null"})
    word = "null"

    def claims(self, value: object) -> bool:
        return value is None

    def parse(self, text: str, place: Place) -> FieldValue:
        if text.strip().lower() in ("null", "none"):
            return None
        return place.fault("no null", given=f"= {text!r}", expected="null", mend="write null or none")

    def is_optional(self) -> bool:
        return True


class BoolKind(Kind):
    """True or False, never 1 or 0."""

    forms = frozenset({"bool"})
    word = "bool"

    def claims(self, value: object) -> bool:
        return isinstance(value, bool)

    def parse(self, text: str, place: Place) -> FieldValue:
        truth = {"true": True, "false": False}.get(text.strip().lower())
        if truth is None:
            return place.fault("no bool", given=f"= {text!r}", expected="true or false", mend="write true or false")
        return truth


class IntKind(Kind):
    """A whole number; numpy's integers become int."""

    forms = frozenset({"int"})
    word = "int"

    def claims(self, value: object) -> bool:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)

    def convert(self, value: FieldValue) -> FieldValue:
        return int(value)

    def parse(self, text: str, place: Place) -> FieldValue:
        try:
            return int(text)
        except ValueError:
            return place.fault("no int", given=f"= {text!r}", expected="int", mend="write a whole number, such as 64")


class FloatKind(Kind):
    """A finite number; an int is widened."""

    forms = frozenset({"float"})
    word = "float"

    def claims(self, value: object) -> bool:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        if not self.claims(value):
            return place.wrong_type(value, self.describe())
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return place.fault(
                "not a finite number",
                given=shown(value),
                expected="a finite float",
                mend="give a finite number: JSON has no other; a field that may be without one is `float | None`",
            )
        return number

    def parse(self, text: str, place: Place) -> FieldValue:
        try:
            number = float(text)
        except ValueError:
            return place.fault("no float", given=f"= {text!r}", expected="float", mend="write a number, such as 1e-3")
        return self.check(number, place)


class StrKind(Kind):
    """Text; in an override it is taken as it stands, without quotes."""

    forms = frozenset({"string"})
    word = "str"

    def claims(self, value: object) -> bool:
        return isinstance(value, str) and not isinstance(value, Enum)

    def convert(self, value: FieldValue) -> FieldValue:
        return str(value)

    def parse(self, text: str, place: Place) -> FieldValue:
        return text


class PathKind(Kind):
    """A path of the file system, written as text with forward slashes."""

    forms = frozenset({"string"})
    word = "path"

    def claims(self, value: object) -> bool:
        return isinstance(value, (str, os.PathLike))

    def convert(self, value: FieldValue) -> FieldValue:
        return Path(value)

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        return Path(value) if isinstance(value, str) else place.wrong_type(value, self.describe())

    def encode(self, value: FieldValue) -> FieldValue:
        return PurePath(value).as_posix()

    def parse(self, text: str, place: Place) -> FieldValue:
        return Path(text)


class ChoiceKind(Kind):
    """One of a few: a `Literal` or an `Enum`.

    A member of an Enum is written as its value where all values are text, else as its name: serde's unit variants.
    Python code may give its name as text too, in any case and with underscores: "row" for LinearLayout.Row.
    """

    def __init__(self, title: str, by_token: Mapping[Any, Any]) -> None:
        self._title = title
        self._by_token = dict(by_token)
        self._texts = [token if isinstance(token, str) else json.dumps(token) for token in self._by_token]
        self.forms = frozenset(form_of(token) for token in self._by_token)
        self.takes_text = bool(title)

    @classmethod
    def of_literal(cls, values: Sequence[object]) -> ChoiceKind:
        """The choice between the values of a Literal."""
        return cls("", {value: value for value in values})

    @classmethod
    def of_enum(cls, enum: type[Enum]) -> ChoiceKind:
        """The choice between the members of an Enum."""
        textual = all(isinstance(member.value, str) for member in enum)
        return cls(f"{enum.__name__}: ", {str(member.value) if textual else member.name: member for member in enum})

    def describe(self) -> str:
        return f"{self._title}one of {', '.join(map(repr, self._by_token))}"

    def claims(self, value: object) -> bool:
        return any(type(value) is type(kept) and value == kept for kept in self._by_token.values())

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        if self.claims(value):
            return value
        token = name_of_text(value, self._by_token) if self.takes_text else None
        return self._unknown(value, place) if token is None else self._by_token[token]

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        for token, kept in self._by_token.items():
            if type(value) is type(token) and value == token:
                return kept
        return self._unknown(value, place)

    def encode(self, value: FieldValue) -> FieldValue:
        return next(token for token, kept in self._by_token.items() if kept == value and type(kept) is type(value))

    def parse(self, text: str, place: Place) -> FieldValue:
        for known, kept in zip(self._texts, self._by_token.values(), strict=True):
            if text == known:
                return kept
        return self._unknown(text, place)

    def _unknown(self, value: object, place: Place) -> object:
        mend = mend_name(value if isinstance(value, str) else "", self._texts, otherwise="take one of them")
        return place.fault("no such choice", given=shown(value), expected=self.describe(), mend=mend)
