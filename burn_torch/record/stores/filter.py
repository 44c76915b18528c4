"""Decides which values of a module a store reads or writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, final

from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError

__all__ = ["PathFilter", "Predicate", "compiled"]

Predicate: TypeAlias = Callable[[str, str], bool]
"""(path, container path) -> whether it is meant: ("fc.weight", "Struct:Net.Struct:Linear")."""


@checked
@final
@dataclass(frozen=True)
class PathFilter:
    """Paths that match any of its criteria; without criteria, none.

    >>> PathFilter().with_regex(r"^encoder").with_full_path("head.bias").matches("encoder.weight")
    True
    """

    regexes: tuple[re.Pattern[str], ...] = ()
    paths: tuple[str, ...] = ()
    predicates: tuple[Predicate, ...] = ()
    everything: bool = False

    @staticmethod
    def all() -> PathFilter:
        """Every path."""
        return PathFilter(everything=True)

    @staticmethod
    def none() -> PathFilter:
        """No path."""
        return PathFilter()

    @staticmethod
    def from_regex_patterns(patterns: Iterable[str]) -> PathFilter:
        """Paths in which any of the patterns is found."""
        return PathFilter().with_regexes(patterns)

    @staticmethod
    def from_paths(paths: Iterable[str]) -> PathFilter:
        """These paths."""
        return PathFilter().with_full_paths(paths)

    @staticmethod
    def from_predicate(predicate: Predicate) -> PathFilter:
        """Paths that the predicate takes."""
        return PathFilter().with_predicate(predicate)

    def with_regex(self, pattern: str) -> PathFilter:
        """And paths in which the pattern is found.  Raises: ArgumentError for no regular expression."""
        return replace(self, regexes=(*self.regexes, compiled(pattern)))

    def with_regexes(self, patterns: Iterable[str]) -> PathFilter:
        """And paths in which any of the patterns is found."""
        return replace(self, regexes=(*self.regexes, *map(compiled, patterns)))

    def with_full_path(self, path: str) -> PathFilter:
        """And this path."""
        return replace(self, paths=(*self.paths, path))

    def with_full_paths(self, paths: Iterable[str]) -> PathFilter:
        """And these paths."""
        return replace(self, paths=(*self.paths, *paths))

    def with_predicate(self, predicate: Predicate) -> PathFilter:
        """And paths that the predicate takes."""
        return replace(self, predicates=(*self.predicates, predicate))

    def with_predicates(self, predicates: Iterable[Predicate]) -> PathFilter:
        """And paths that any of the predicates takes."""
        return replace(self, predicates=(*self.predicates, *predicates))

    def match_all(self) -> PathFilter:
        """And every other path."""
        return replace(self, everything=True)

    def or_(self, other: PathFilter) -> PathFilter:
        """Paths of either filter.  (`or` is a word of Python's own.)"""
        return PathFilter(
            (*self.regexes, *other.regexes),
            (*self.paths, *other.paths),
            (*self.predicates, *other.predicates),
            self.everything or other.everything,
        )

    __or__ = or_

    def matches(self, path: str, container_path: str = "") -> bool:
        """Returns whether any criterion takes the path."""
        return (
            self.everything
            or path in self.paths
            or any(regex.search(path) for regex in self.regexes)
            or any(predicate(path, container_path) for predicate in self.predicates)
        )

    matches_with_container = matches

    def is_empty(self) -> bool:
        """Returns whether it matches nothing."""
        return self.criteria_count() == 0

    def criteria_count(self) -> int:
        """How many criteria it has."""
        return 1 if self.everything else len(self.regexes) + len(self.paths) + len(self.predicates)


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression.  Raises: ArgumentError with its place for what is none."""
    try:
        return re.compile(pattern)
    except re.error as err:
        raise ArgumentError(
            "this is not a regular expression",
            given=f"{pattern}: {err}",
            expected="a pattern of Python's re",
            mend="escape what is meant literally: \\. for a dot",
        ) from err
