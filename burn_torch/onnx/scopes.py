"""Names of values as the standard scopes them: a graph within a node sees outer names, and its own are its own.

The reader gives every value of a model a name that no other value has.  The steps after the reader, such as folding,
fields and written source, then keep values in one table without asking for their graph.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Final, final

from burn_torch.ops.value import Attrs

__all__ = ["Scope", "UniqueNames"]


@final
class UniqueNames:
    """Hands out names, each once."""

    def __init__(self) -> None:
        self._taken: Final[set[str]] = set()
        self._numbers: Final[dict[str, int]] = {}

    def unique(self, wish: str) -> str:
        """The wish itself the first time, then the wish with a number."""
        name = wish
        while name in self._taken:
            self._numbers[wish] = self._numbers.get(wish, 1) + 1
            name = f"{wish}_{self._numbers[wish]}"
        self._taken.add(name)
        return name


@dataclass(frozen=True)
class Scope:
    """Says where nodes stand.

    tables      from the file's names to unique ones: of the graph itself first, then of the graphs around it
    opsets      what operators mean
    attributes  those of the call, within a function
    prefix      the calls around, for the names of nodes
    """

    names: UniqueNames
    tables: tuple[dict[str, str], ...]
    opsets: MutableMapping[str, int]
    attributes: Attrs = field(default_factory=dict)
    prefix: str = ""
    stack: tuple[tuple[str, str, str], ...] = ()
    depth: int = 0

    def of_graph(self, values: Iterable[str]) -> Scope:
        """The scope of a graph that lies here and makes these values.  A value hides an outer one of its name."""
        own = {name: self.names.unique(self.prefix + name) for name in dict.fromkeys(values) if name}
        return replace(self, tables=(own, *self.tables))

    def deeper(self) -> Scope:
        """The same, one level down."""
        return replace(self, depth=self.depth + 1)

    def sees(self, name: str) -> bool:
        """Returns whether a value of this name lies here, or in a graph around."""
        return any(name in table for table in self.tables)

    def rename(self, name: str) -> str:
        """The unique name; of what nothing makes a name that nothing has."""
        if not name:
            return ""
        for table in self.tables:
            if name in table:
                return table[name]
        return self.tables[-1].setdefault(name, self.names.unique(self.prefix + name))
