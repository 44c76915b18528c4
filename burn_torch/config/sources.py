"""A configuration put together from several sources, and where each of its values came from.

defaults  <  files, in their order  <  environment  <  what was typed

config, origins = from_sources(TrainingConfig(), [*file_edits("run.toml", TrainingConfig), ...])
origins["optimizer.lr"]  # 'run.toml'
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from burn_torch.config._kinds import FieldValue
from burn_torch.config._schema import ConfigKind, info_of, schema_of
from burn_torch.config.base import Config
from burn_torch.config.overrides import Edit, apply_edits
from burn_torch.core import strict_json
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import Place
from burn_torch.core.reading import MAX_CONFIG_BYTES, read_bounded

__all__ = ["DEFAULT", "Leaf", "environment_edits", "file_edits", "from_sources", "leaves", "to_toml"]

C = TypeVar("C", bound=Config)

DEFAULT: Final = "default"
"""The origin of a value that no source gave."""
_MAX_KEY_PARTS: Final = 100
_LONG_KEY: Final = re.compile(rf"""(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}""")


class Leaf(NamedTuple):
    """One value of a configuration."""

    path: str
    """As an override writes it: optimizer.algorithm.beta_1."""
    key: str
    """As a file writes it, tags of variants included: optimizer.algorithm.Adam.beta_1."""
    value: FieldValue
    """As JSON has it."""


def from_sources(config: C, edits: Sequence[Edit], place: Place | None = None) -> tuple[C, dict[str, str]]:
    """The configuration with all changes, of which a later one wins, and the origin of each value by its path.

    Raises: ConfigError for the faults of all sources at once, and those that `place` has already.
    """
    changed = apply_edits(config, edits, Place() if place is None else place)
    placed = leaves(changed)
    origins = dict.fromkeys((leaf.path for leaf in placed), DEFAULT)
    for edit in edits:
        path = ".".join(edit.keys)
        for leaf in placed:
            if any(name == path or name.startswith(f"{path}.") for name in (leaf.path, leaf.key)):
                origins[leaf.path] = edit.origin
    return changed, origins


# -- files -----------------------------------------------------------------------------------------------


def file_edits(path: str | os.PathLike[str], cls: type[Config]) -> list[Edit]:
    """The changes that a TOML or JSON file asks for.  A variant in it is given whole; what it leaves out is default.

    Raises: ConfigError for a file that cannot be read, or that holds something else.
    """
    file = Path(path)
    try:
        text = read_bounded(file, MAX_CONFIG_BYTES).decode("utf-8-sig")
        values = strict_json.parse(text) if file.suffix.lower() == ".json" else _parse_toml(text)
    except OSError as error:
        shown = f"{file.absolute()} ({error.strerror or error})"
        raise _unreadable(file, shown, "check the path") from error
    except (ValueError, RecursionError) as error:
        shown = f"{file.absolute()}: {error}"
        kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
        raise _unreadable(
            file, shown, f"mend the line, or give it the ending of what it holds; this is read as {kind}"
        ) from error
    if not isinstance(values, Mapping):
        raise _unreadable(file, f"a {type(values).__name__}", 'write fields: {"num_epochs": 3}')
    return list(_edits(values, cls, (), str(path)))


def _parse_toml(text: str) -> dict[str, object]:
    """Raises: ValueError; RecursionError for text that is nested too deeply."""
    if long := _LONG_KEY.search(text):  # tomllib's time grows with the square of a key's parts
        raise ValueError(f"a key of more than {_MAX_KEY_PARTS} parts: {long[0][:40]}...")
    return tomllib.loads(text)


def _edits(values: Mapping[str, object], cls: type[object], prefix: tuple[str, ...], origin: str) -> Iterator[Edit]:
    kinds = {field.key: field.kind for field in schema_of(cls).fields}
    for key, value in values.items():
        kind = kinds.get(key)
        if isinstance(kind, ConfigKind) and isinstance(value, Mapping):
            yield from _edits(value, kind.cls, (*prefix, key), origin)
        else:
            yield Edit((*prefix, key), value, typed=True, origin=origin)


def _unreadable(file: Path, given: str, mend: str) -> ConfigError:
    return ConfigError(
        f"{file}: no settings can be read", given=given, expected="a TOML file, or JSON in .json", mend=mend
    )


# -- environment -------------------------------------------------------------------------------------------


def environment_edits(prefix: str, environment: Mapping[str, str]) -> list[Edit]:
    """The changes that variables ask for: with the prefix SET__, `SET__OPTIMIZER__LR=0.1` is `optimizer.lr=0.1`."""
    variables = sorted(name for name in environment if name.startswith(prefix))
    return [Edit(name.removeprefix(prefix).lower().split("__"), environment[name], origin=name) for name in variables]


# -- writing -------------------------------------------------------------------------------------------------


def leaves(config: Config) -> list[Leaf]:
    """The values of a configuration, in the order of its fields."""
    return list(_leaves(config, "", ""))


def _leaves(config: object, path: str, key: str) -> Iterator[Leaf]:
    for field in schema_of(type(config)).fields:
        value = getattr(config, field.name)
        here, there = (f"{name}.{field.key}" if name else field.key for name in (path, key))
        if isinstance(value, Config) and schema_of(type(value)).fields and info_of(type(value)).form == "struct":
            encoded = field.kind.encode(value)
            tag = "" if encoded == value.to_dict() else f".{next(iter(encoded))}"
            yield from _leaves(value, here, there + tag)
        else:
            yield Leaf(here, there, field.kind.encode(value))


def to_toml(config: Config, origins: Mapping[str, str]) -> str:
    """The configuration as a TOML file that says behind each value where it came from; None has no form in TOML."""
    lines = []
    for leaf in leaves(config):
        text = f"# {leaf.key} is not set" if leaf.value is None else f"{_key(leaf.key)} = {_toml(leaf.value)}"
        lines.append((text, origins.get(leaf.path, DEFAULT)))
    width = min(60, max((len(text) for text, _ in lines), default=0))
    return "".join(f"{text:{width}}  # {origin}\n" for text, origin in lines)


def _key(key: str) -> str:
    bare = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    return ".".join(part if part and set(part) <= bare else _toml(part) for part in key.split("."))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escape(char) for char in value) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return f"\\u{ord(char):04x}" if ord(char) < 32 or ord(char) == 127 else char
