"""Other names for the keys of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import RecordError
from burn_torch.record.faults import shortened
from burn_torch.record.stores.filter import compiled

__all__ = ["KeyRemapper", "lists_cut_short", "map_indices_contiguous", "renamed"]

V = TypeVar("V")
_GROUP: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@checked
@final
@dataclass(frozen=True)
class KeyRemapper:
    """Patterns and what takes their place, applied in order; groups are `$1`, `${1}` or `${name}`, as in Burn.

    >>> KeyRemapper().add_pattern(r"^bert\\.(.*)", "encoder.${1}").remap(["bert.norm.weight"])
    {'bert.norm.weight': 'encoder.norm.weight'}
    """

    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()

    @staticmethod
    def from_patterns(patterns: Iterable[tuple[str, str]]) -> KeyRemapper:
        """Makes a remapper of pairs of pattern and replacement."""
        remapper = KeyRemapper()
        for pattern, to in patterns:
            remapper = remapper.add_pattern(pattern, to)
        return remapper

    def add_pattern(self, pattern: str, to: str) -> KeyRemapper:
        """And one more.  Raises: ArgumentError for no regular expression."""
        regex = compiled(pattern)
        literal = to.replace("\\", "\\\\")
        template = _GROUP.sub(lambda match: rf"\g<{match[1] or match[2]}>", literal)
        return KeyRemapper((*self.patterns, (regex, template)))

    def is_empty(self) -> bool:
        """Returns whether it changes nothing."""
        return not self.patterns

    def remap(self, keys: Iterable[str]) -> dict[str, str]:
        """The new name of each key.  Raises: RecordError for a group that a pattern has not."""
        names: dict[str, str] = {}
        for key in keys:
            new = key
            for regex, template in self.patterns:
                try:
                    new = regex.sub(template, new)
                except (re.error, IndexError) as err:
                    raise RecordError(
                        "keys cannot be renamed",
                        given=f"{regex.pattern} to {template.replace(chr(92), '')}: {err}",
                        expected="groups that the pattern has",
                        mend="$1 is what the first pair of brackets found",
                    ) from err
            names[key] = new
        return names


@checked
def map_indices_contiguous(keys: Iterable[str], wanted: Iterable[str] = ()) -> dict[str, str]:
    """The name of each key with numbers that have no gaps: fc.0 and fc.2 become fc.0 and fc.1.

    PyTorch counts the layers without parameters in a Sequential too.  A list keeps its numbers where the keys `wanted`
    have all of them: then the gap is a layer that the file lacks.

    >>> map_indices_contiguous(["fc.0", "fc.2"])
    {'fc.0': 'fc.0', 'fc.2': 'fc.1'}
    >>> map_indices_contiguous(["fc.0", "fc.2"], ["fc.0", "fc.1", "fc.2"])
    {'fc.0': 'fc.0', 'fc.2': 'fc.2'}
    """
    listed = list(keys)
    numbers, there = _numbers(listed), _numbers(wanted)
    names = {"": ""}  # the new name of each prefix; a key comes behind its prefixes

    def rename(prefix: str, part: str) -> str:
        known = names[prefix]
        if part.isdecimal() and len(part) < 19:  # no more digits than a list could need
            ours = numbers[prefix]
            if not ours.keys() <= there.get(known, {}).keys():
                part = str(ours[int(part)])
        return f"{known}.{part}" if prefix else part

    for key in listed:
        for prefix, part in _steps(key):
            whole = f"{prefix}.{part}" if prefix else part
            if whole not in names:
                names[whole] = rename(prefix, part)
    return {key: names[key] for key in listed}


def lists_cut_short(keys: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Lists whose numbers would lose gaps although the keys `wanted` have more of them: which lack cannot be known.

    >>> lists_cut_short(["fc.0", "fc.2", "fc.4"], ["fc.0", "fc.1", "fc.2", "fc.3"])
    ['fc: 0, 2, 4 in the file, 0, 1, 2, 3 in the module']
    """
    there = _numbers(wanted)
    words = []
    for prefix, ours in _numbers(keys).items():
        known = there.get(prefix, {})
        if len(ours) < len(known) and not ours.keys() <= known.keys() and any(n != i for n, i in ours.items()):
            file, module = (", ".join(map(str, sorted(numbers))) for numbers in (ours, known))
            words.append(f"{prefix or 'the file'}: {file} in the file, {module} in the module")
    return words


def _numbers(keys: Iterable[str]) -> dict[str, dict[int, int]]:
    """For each prefix the numbers that stand behind it, and the place of each in their order."""
    seen: dict[str, set[int]] = {}
    for key in keys:
        for prefix, part in _steps(key):
            if part.isdecimal() and len(part) < 19:
                seen.setdefault(prefix, set()).add(int(part))
    return {prefix: {number: i for i, number in enumerate(sorted(numbers))} for prefix, numbers in seen.items()}


def _steps(key: str) -> list[tuple[str, str]]:
    parts = key.split(".")
    return [(".".join(parts[:i]), part) for i, part in enumerate(parts)]


def renamed(values: Mapping[str, V], names: Mapping[str, str]) -> dict[str, V]:
    """The values under their new names.  Raises: RecordError where two get one name."""
    by_name: dict[str, V] = {}
    first: dict[str, str] = {}
    clashes = []
    for key, value in values.items():
        name = names.get(key, key)
        if name in by_name:
            clashes.append(f"{first[name]} and {key} both become {name}")
        by_name[name], first[name] = value, first.get(name, key)
    if clashes:
        raise RecordError(
            "keys cannot be renamed",
            given="; ".join(shortened(clashes)),
            expected="a name of its own for each",
            mend="make the pattern say more: ^ and $ bind it to the ends",
        )
    return by_name
