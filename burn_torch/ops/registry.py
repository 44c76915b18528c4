"""The rows by their names.  The file of a family is imported when one of its rows is first asked for.

`homes.txt`, whose rows are generated, says in which file a row stands.  A row that it does not list yet is found too:
then all families are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from burn_torch.core.errors import ArgumentError

if TYPE_CHECKING:
    from burn_torch.ops.op import Op

__all__ = ["FAMILIES", "ROWS", "Registry"]


def _read_rows() -> dict[str, tuple[str, ...]]:
    lines = Path(__file__).with_name("homes.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.partition(":") for line in lines if not line.startswith("#")]
    return {home: tuple(names.split()) for home, _, names in parts}


ROWS: Final = _read_rows()
"""The names of the rows by their modules."""
_FILES: Final = tuple(home for home in ROWS if home.startswith("burn_torch.ops."))
FAMILIES: Final = tuple(home.rpartition(".")[2] for home in _FILES)
"""The files of the table's rows."""

_HOMES: Final = {name: home for home, names in ROWS.items() for name in names}
_RULES_OF_GROUPS: Final = "burn_torch.ops.batching"


@final
class Registry(dict[str, "Op"]):
    """The table.  A row of a family is seen once its file is imported whole, so no thread meets it half declared.

    A caller who iterates, or asks how many there are, gets every row: first those of the families, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self._declared: Final[dict[str, Op]] = {}
        """Rows of files that may still be under way."""

    def enter(self, row: Op) -> None:
        """Takes a row that is declared.  Raises: ArgumentError if another file has a row of this name."""
        home, known = row.__module__, self._home_of(row.name)
        if known is not None and known != home:
            raise ArgumentError(
                f"op: two rows are named {row.name}",
                given=f"{home}.{row.__name__}",
                expected=f"a name beside that of {known}",
                mend='give it a namespace of its own: @op(namespace="mine", ...)',
            )
        if home in _FILES or row.name in _HOMES:
            self._declared[row.name] = row
        else:
            self[row.name] = row

    def _home_of(self, name: str) -> str | None:
        row = self._declared.get(name) or super().get(name)
        return _HOMES.get(name) if row is None else row.__module__

    def load(self) -> None:
        """Imports all families, and the rules for whole groups of their rows."""
        for file in (*_FILES, _RULES_OF_GROUPS):
            importlib.import_module(file)

    def __missing__(self, name: str) -> Op:
        home = _HOMES.get(name)
        if home is not None:
            importlib.import_module(home)
        elif "::" not in name:  # a name of another namespace is of no family
            self.load()
        row = self[name] = self._declared[name]
        return row

    def get(self, name: str, default: Any = None) -> Any:
        """The row of this name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]  # no name is no row
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        self.load()
        order = {file: at for at, file in enumerate(_FILES)}
        ours = sorted(self._declared, key=lambda name: order.get(self._declared[name].__module__, len(order)))
        return iter(dict.fromkeys((*ours, *super().__iter__())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # a view of these methods, not of the dict below
        """The names of all rows."""
        return KeysView(self)

    def values(self) -> ValuesView[Op]:  # type: ignore[override]  # as `keys`
        """All rows."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Op]:  # type: ignore[override]  # as `keys`
        """All rows with their names."""
        return ItemsView(self)
