"""Changes to a configuration that were typed as text: `optimizer.lr=0.1`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from burn_torch.config._containers import DictKind, SequenceKind, UnionKind
from burn_torch.config._kinds import FieldValue, Kind
from burn_torch.config._schema import ConfigKind, Field, VariantKind, note_unknown, schema_of
from burn_torch.config.base import Config
from burn_torch.core.checking import checked
from burn_torch.core.faults import INVALID, Place, mend_name, shown

__all__ = ["Edit", "apply_edits", "apply_overrides", "edit_of_text"]

C = TypeVar("C", bound=Config)


class Edit(NamedTuple):
    """One change of one place."""

    keys: Sequence[str]
    """Holds what is left of the dotted path."""
    value: FieldValue
    """Text as it was typed; or, with `typed`, a value as JSON or TOML has it."""
    typed: bool = False
    origin: str = ""
    """Says where it comes from, for the message of a fault."""

    def below(self) -> Edit:
        """The same change, seen from one step down its path."""
        return self._replace(keys=self.keys[1:])

    def read(self, kind: Kind, place: Place) -> Any:
        """The value as its type has it."""
        before = len(place.faults)
        read = kind.decode(self.value, place) if self.typed else kind.parse(self.value, place)
        self.sign(place, before)
        return read

    def sign(self, place: Place, before: int) -> None:
        """Says in the faults from number `before` on where the change comes from."""
        if self.origin:
            faults = place.faults
            faults[before:] = [
                dataclasses.replace(fault, given=f"{fault.given}, from {self.origin}") for fault in faults[before:]
            ]


@checked
def apply_overrides(config: C, overrides: Iterable[str]) -> C:
    """The configuration with each `dotted.path=value` applied; the original stays as it is.

    A path goes through fields, keys of a dict and positions of a list (`layers.0.d_output=3`).  The text is read as the
    type of its field: numbers and `true`/`false` as they look, text and paths as they stand, `none` or `null` for
    nothing, `0.9,0.99` or JSON for a list, the name or JSON for a variant, JSON for everything else.  If two changes
    meet at one place, the later one counts.  The fields of a class are checked together, after all changes.

    >>> class OptimizerConfig(Config):
    ...     lr: float = 1e-3
    >>> class TrainingConfig(Config):
    ...     epochs: int = 3
    ...     optimizer: OptimizerConfig = OptimizerConfig()
    >>> apply_overrides(TrainingConfig(), ["optimizer.lr=0.1", "epochs=5"])
    TrainingConfig(epochs=5, optimizer=OptimizerConfig(lr=0.1))

    Raises: ConfigError, for all faults at once, with the nearest name for an unknown one.
    """
    place = Place()
    edits = [edit for override in overrides if (edit := edit_of_text(override, place)) is not None]
    return apply_edits(config, edits, place)


def edit_of_text(override: str, place: Place, origin: str = "") -> Edit | None:
    """The change that `dotted.path=value` asks for; None, and a fault, where it is none."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if equals and all(keys):
        return Edit(keys, text, origin=origin)
    name = path.strip() if all(keys) else "optimizer.lr"
    place.fault("no override", given=repr(override), expected="dotted.path=value", mend=f"write it like {name}=VALUE")
    return None


def apply_edits(config: C, edits: Sequence[Edit], place: Place) -> C:
    """The configuration with all changes.  Raises: ConfigError for the faults of `place` and of the changes at once."""
    changed: C = _change(config, ConfigKind(type(config)), edits, place)
    place.raise_noted(type(config).__name__)
    return changed


def _change(value: FieldValue, kind: Kind, edits: Sequence[Edit], place: Place) -> FieldValue:
    whole = max((index for index, edit in enumerate(edits) if not edit.keys), default=-1)
    if whole >= 0:
        value = edits[whole].read(kind, place)
        edits = edits[whole + 1 :]
    if not edits or value is INVALID:
        return value
    by_key: dict[str, list[Edit]] = {}
    for edit in edits:
        by_key.setdefault(edit.keys[0], []).append(edit.below())
    declared = kind
    if isinstance(kind, UnionKind):
        kind = kind.member_of(value) or kind
    if isinstance(value, Config):
        if isinstance(kind, VariantKind) and kind.claims(value):
            by_key = _below_its_tag(value, kind, by_key, place)
        return _change_fields(value, by_key, place)
    if isinstance(kind, SequenceKind):
        return _change_items(value, kind, by_key, place)
    if isinstance(kind, DictKind):
        return _change_entries(value, kind, by_key, place)
    return place.at(next(iter(by_key))).fault(
        "nothing below this",
        given=f"leads into {place.path}, which {shown(value)}",
        expected=f"{place.path} as a whole: {declared.describe()}",
        mend=f"write {place.path}=... first",
    )


def _below_its_tag(
    config: Config, kind: VariantKind, by_key: Mapping[str, list[Edit]], place: Place
) -> dict[str, list[Edit]]:
    """The changes by fields, where a path may name the variant too, as files and `--show-config` have it."""
    tags = kind.alternatives()
    names = {field.key for field in schema_of(type(config)).fields}
    fields: dict[str, list[Edit]] = {}
    for key, edits in by_key.items():
        if key in names or key not in tags or not edits[0].keys:
            fields.setdefault(key, []).extend(edits)
        elif tags[key] is type(config):
            for edit in edits:
                fields.setdefault(edit.keys[0], []).append(edit.below())
        else:
            present = next(tag for tag, cls in tags.items() if cls is type(config))
            place.at(key).fault(
                "this is another variant",
                given=f".{'.'.join(edits[0].keys)}, where {place.path} is {present}",
                expected=f"{place.path}.{present}.FIELD",
                mend=f"write {place.path}={key} first",
            )
    return fields


def _change_fields(config: Config, by_key: Mapping[str, list[Edit]], place: Place) -> FieldValue:
    schema = schema_of(type(config))
    by_name: dict[str, Field] = {field.key: field for field in schema.fields}
    values = {field.name: getattr(config, field.name) for field in schema.fields}

    def changed() -> dict[str, Any]:
        for key, edits in by_key.items():
            field = by_name.get(key)
            if field is None:
                before = len(place.faults)
                inner = [
                    f"{name}.{key}"
                    for name, value in values.items()
                    if key in getattr(value, "__dataclass_fields__", ())
                ]
                note_unknown(key, edits[-1].value, list(by_name), type(config), place, inner)
                edits[-1].sign(place, before)
            else:
                values[field.name] = _change(values[field.name], field.kind, edits, place.at(key))
        return values

    return ConfigKind(type(config)).build(changed, place)


def _change_items(
    items: Sequence[object], kind: SequenceKind, by_key: Mapping[str, list[Edit]], place: Place
) -> object:
    values, kinds = list(items), kind.kinds(len(items)) or ()
    for key, edits in by_key.items():
        if key.isdecimal() and int(key) < len(values):
            index = int(key)
            values[index] = _change(values[index], kinds[index], edits, place.at(key))
        else:
            place.at(key).fault(
                "no such position",
                given=shown(edits[-1].value),
                expected=f"a position below {len(values)} in {place.path}",
                mend=f"write the whole list: {place.path}=[...]",
            )
    return kind.keep(values)


def _change_entries(
    entries: Mapping[object, object], kind: DictKind, by_key: Mapping[str, list[Edit]], place: Place
) -> object:
    values = dict(entries)
    for text, edits in by_key.items():
        here = place.at(text)
        key = kind.key_of(text, here)
        if key in values or not edits[0].keys:
            values[key] = _change(values.get(key), kind.item, edits, here)
        else:
            known = [str(kind.key.encode(key)) for key in values]
            here.fault(
                "no such key",
                given=shown(edits[-1].value),
                expected=f"a key of {place.path}",
                mend=mend_name(text, known, otherwise=f"write {here.path}=... first"),
            )
    return kind.check(values, place)
