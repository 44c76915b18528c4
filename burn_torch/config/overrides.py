"""Changes to a configuration that were typed as text: `optimizer.lr=0.1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from burn_torch.config._containers import DictKind, SequenceKind, UnionKind
from burn_torch.config._kinds import Kind
from burn_torch.config._schema import ConfigKind, Field, note_unknown, schema_of
from burn_torch.config.base import Config
from burn_torch.core.faults import INVALID, Place, mend_name, raise_faults, shown

__all__ = ["apply_overrides"]

C = TypeVar("C", bound=Config)


class _Edit(NamedTuple):
    keys: Sequence[str]
    """What is left of the dotted path."""
    text: str


def apply_overrides(config: C, overrides: Iterable[str]) -> C:
    """The configuration with each `dotted.path=value` applied; the original stays as it is.

    A path goes through fields, keys of a dict and positions of a list (`layers.0.d_output=3`).  The text is read as the
    type of its field: numbers and `true`/`false` as they look, text and paths as they stand, `none` or `null` for
    nothing, `0.9,0.99` or JSON for a list, the name or JSON for a variant, JSON for everything else.
    Of two changes to one place the later one counts.  The fields of a class are checked together, after all changes.

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
    edits = []
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            place.fault("no override", given=repr(override), expected="dotted.path=value", mend="write it like lr=0.1")
        else:
            edits.append(_Edit(keys, text))
    changed: C = _change(config, ConfigKind(type(config)), edits, place)
    if place.faults:
        raise_faults(type(config).__name__, place.faults)
    return changed


def _change(value: Any, kind: Kind, edits: Sequence[_Edit], place: Place) -> Any:
    whole = max((index for index, edit in enumerate(edits) if not edit.keys), default=-1)
    if whole >= 0:
        value = kind.parse(edits[whole].text, place)
        edits = edits[whole + 1 :]
    if not edits or value is INVALID:
        return value
    by_key: dict[str, list[_Edit]] = {}
    for edit in edits:
        by_key.setdefault(edit.keys[0], []).append(_Edit(edit.keys[1:], edit.text))
    declared = kind
    if isinstance(kind, UnionKind):
        kind = kind.member_of(value) or kind
    if isinstance(value, Config):
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


def _change_fields(config: Config, by_key: Mapping[str, list[_Edit]], place: Place) -> Any:
    schema = schema_of(type(config))
    by_name: dict[str, Field] = {field.key: field for field in schema.fields}
    values = {field.name: getattr(config, field.name) for field in schema.fields}

    def changed() -> dict[str, Any]:
        for key, edits in by_key.items():
            field = by_name.get(key)
            if field is None:
                note_unknown(key, edits[-1].text, list(by_name), type(config), place)
            else:
                values[field.name] = _change(values[field.name], field.kind, edits, place.at(key))
        return values

    return ConfigKind(type(config)).build(changed, place)


def _change_items(items: Sequence[Any], kind: SequenceKind, by_key: Mapping[str, list[_Edit]], place: Place) -> Any:
    values, kinds = list(items), kind.kinds(len(items)) or ()
    for key, edits in by_key.items():
        if key.isdecimal() and int(key) < len(values):
            index = int(key)
            values[index] = _change(values[index], kinds[index], edits, place.at(key))
        else:
            place.at(key).fault(
                "no such position",
                given=shown(edits[-1].text),
                expected=f"a position below {len(values)} in {place.path}",
                mend=f"write the whole list: {place.path}=[...]",
            )
    return kind.keep(values)


def _change_entries(entries: Mapping[Any, Any], kind: DictKind, by_key: Mapping[str, list[_Edit]], place: Place) -> Any:
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
                given=shown(edits[-1].text),
                expected=f"a key of {place.path}",
                mend=mend_name(text, known, otherwise=f"write {here.path}=... first"),
            )
    return kind.check(values, place)
