"""Fields that hold other values: lists, tuples, dicts, and unions of types that JSON can tell apart."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from burn_torch.config._frozen import FrozenDict, FrozenList
from burn_torch.config._kinds import ChoiceKind, FieldValue, IntKind, Kind, StrKind, form_of
from burn_torch.core.faults import Place
from burn_torch.core.wording import counted

Step = Callable[[Kind, Any, Place], Any]


def check_with(kind: Kind, value: object, place: Place) -> FieldValue:
    return kind.check(value, place)


def decode_with(kind: Kind, value: FieldValue, place: Place) -> Any:
    """The value of a field, of what came out of JSON."""
    return kind.decode(value, place)


def _parse(kind: Kind, value: FieldValue, place: Place) -> object:
    return kind.parse(value, place)


def _encode(kind: Kind, value: object, place: Place) -> FieldValue:
    return kind.encode(value)


class SequenceKind(Kind):
    """Holds what lists and tuples share.  In an override, `0.9,0.99` is short for `[0.9, 0.99]`."""

    forms = frozenset({"array"})
    keep: Callable[[Sequence[Any]], Any]

    @abstractmethod
    def kinds(self, count: int) -> Sequence[Kind] | None:
        """The kind of each of `count` positions; None if there may not be as many."""

    def claims(self, value: object) -> bool:
        return isinstance(value, (list, tuple))

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        return self._each(check_with, value, place)

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        return self._each(decode_with, value, place)

    def encode(self, value: FieldValue) -> FieldValue:
        return list(self._each(_encode, value, Place()))

    def parse(self, text: str, place: Place) -> FieldValue:
        if text.lstrip().startswith("["):
            return super().parse(text, place)
        return self._each(_parse, [part.strip() for part in text.split(",")] if text.strip() else [], place)

    def _each(self, step: Step, value: FieldValue, place: Place) -> Any:
        if not self.claims(value):
            return place.wrong_type(value, self.describe())
        kinds = self.kinds(len(value))
        if kinds is None:
            return place.fault(
                "wrong length",
                given=f"has {counted(len(value), 'item')}",
                expected=self.describe(),
                mend="give as many as the type asks for",
            )
        return self.keep(
            [step(kind, item, place.at(i)) for i, (kind, item) in enumerate(zip(kinds, value, strict=True))]
        )


class ListKind(SequenceKind):
    """Any number of one kind: `list[X]`, or `tuple[X, ...]`."""

    def __init__(self, item: Kind, *, as_tuple: bool = False) -> None:
        self.item = item
        self.keep = tuple if as_tuple else FrozenList

    def describe(self) -> str:
        return f"list of {self.item.describe()}"

    def kinds(self, count: int) -> Sequence[Kind]:
        return [self.item] * count


class TupleKind(SequenceKind):
    """A fixed number of positions, each of its own kind: `tuple[X, Y]`."""

    keep = tuple

    def __init__(self, items: Sequence[Kind]) -> None:
        self.items = tuple(items)

    def describe(self) -> str:
        return f"list of {len(self.items)} ({', '.join(item.describe() for item in self.items)})"

    def kinds(self, count: int) -> Sequence[Kind] | None:
        return self.items if count == len(self.items) else None


class DictKind(Kind):
    """`dict[K, X]` with K str, int or a choice of text; JSON writes every key as text."""

    forms = frozenset({"object"})

    def __init__(self, key: Kind, item: Kind) -> None:
        self.key = key
        self.item = item

    def describe(self) -> str:
        return f"object of {self.key.describe()} to {self.item.describe()}"

    def claims(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        return self._each(value, self.key.check, check_with, place)

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        note_duplicates(value, place)
        return self._each(value, self.key_of, decode_with, place)

    def encode(self, value: FieldValue) -> FieldValue:
        return {str(self.key.encode(key)): self.item.encode(item) for key, item in value.items()}

    def key_of(self, text: str, place: Place) -> Any:
        """Reads a key from its JSON text."""
        if not isinstance(self.key, IntKind):
            return self.key.decode(text, place)
        key = self.key.parse(text, place)
        if isinstance(key, int) and str(key) != text:  # "01" and "1" would become one key
            return place.fault(
                "no int key", given=f"= {text!r}", expected=f"{str(key)!r}", mend="write the plain number"
            )
        return key

    def _each(self, value: FieldValue, keep: Callable[[Any, Place], Any], step: Step, place: Place) -> object:
        if not self.claims(value):
            return place.wrong_type(value, self.describe())
        kept = [(keep(key, place.at(str(key))), key, item) for key, item in value.items()]
        return FrozenDict({own: step(self.item, item, place.at(str(key))) for own, key, item in kept})


class UnionKind(Kind):
    """One of several kinds that have no JSON form in common, so that a value says itself which one it is."""

    def __init__(self, members: Sequence[Kind]) -> None:
        order = {"null": 0, "bool": 1, "int": 2, "float": 3, "string": 5}  # an int is no float, text is the last resort
        self.members = sorted(members, key=lambda kind: max(order.get(form, 4) for form in kind.forms))
        self.forms = frozenset[str]().union(*(kind.forms for kind in members))

    def describe(self) -> str:
        null_last = sorted(self.members, key=lambda kind: kind.is_optional())
        *rest, last = [kind.describe() for kind in null_last]
        return f"{', '.join(rest)} or {last}"

    def claims(self, value: object) -> bool:
        return self.member_of(value) is not None

    def member_of(self, value: object) -> Kind | None:
        """The member that a kept value belongs to."""
        return next((member for member in self.members if member.claims(value)), None)

    def check(self, value: FieldValue, place: Place) -> FieldValue:
        member = self.member_of(value)
        if member is None and isinstance(value, str):
            member = next((member for member in self.members if member.takes_text), None)
        return place.wrong_type(value, self.describe()) if member is None else member.check(value, place)

    def decode(self, value: FieldValue, place: Place) -> FieldValue:
        form = form_of(value)
        wanted = "float" if form == "int" and "int" not in self.forms else form
        member = next((member for member in self.members if wanted in member.forms), None)
        return place.wrong_type(value, self.describe()) if member is None else member.decode(value, place)

    def encode(self, value: FieldValue) -> FieldValue:
        member = self.member_of(value)
        assert member is not None
        return member.encode(value)

    def parse(self, text: str, place: Place) -> FieldValue:
        first: list[Any] | None = None
        for member in self.members:
            attempt = Place(place.path)
            value = member.parse(text, attempt)
            if not attempt.faults:
                return value
            if not member.is_optional():
                first = attempt.faults if first is None else []
        if first:  # one member besides null: its own words are the better ones
            place.faults.extend(first)
            return value
        return place.fault("no such value", given=f"= {text!r}", expected=self.describe(), mend="write one of these")

    def is_optional(self) -> bool:
        return any(member.is_optional() for member in self.members)


def note_duplicates(value: Mapping[str, object], place: Place) -> None:
    """Notes the keys that a JSON object gave more than once (see `strict_json.parse`)."""
    for key in getattr(value, "duplicates", ()):
        place.at(key).fault("duplicate key", given="is given more than once", expected="each key once", mend="keep one")


def key_kind_fits(kind: Kind) -> bool:
    """Returns whether a kind can be the key of a JSON object."""
    return isinstance(kind, (IntKind, StrKind)) or (isinstance(kind, ChoiceKind) and kind.forms == {"string"})
