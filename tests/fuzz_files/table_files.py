"""Tables and rows of text."""

from __future__ import annotations

import contextlib
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.fuzz_files.mutations import lines_changed, words_changed
from tests.fuzz_files.reader import Reader, either, errors_of_ours, packed_again

__all__ = ["READERS"]


@dataclass(frozen=True)
class Item:
    """A row with a field of each kind."""

    name: str
    count: int
    price: float
    sold: bool = False
    note: str | None = None


_CSV: Final = b'name,count,price,sold,note\ntea,3,1.5,true,\n"a, b",4,2e3,false,"x\ny"\ncup,-1,0,true,z\n'
_ROWS: Final = (
    b'{"name": "tea", "count": 3, "price": 1.5}\n{"name": "b", "count": 4, "price": 2, "sold": true, "note": "x"}\n'
)


def read_csv(path: Path) -> None:
    """Rows as items and as dicts."""
    from burn_torch.data import InMemDataset

    with contextlib.suppress(errors_of_ours()):
        InMemDataset.from_csv(path)
    with contextlib.suppress(errors_of_ours()):
        InMemDataset.from_csv(path, Item, header=False)
    InMemDataset.from_csv(path, Item)


def read_rows(path: Path) -> None:
    """Rows of JSON as items and as dicts."""
    from burn_torch.data import InMemDataset

    with contextlib.suppress(errors_of_ours()):
        InMemDataset.from_json_rows(path)
    InMemDataset.from_json_rows(path, Item)


def read_table(path: Path) -> None:
    """A table of the recipes, and all that is made of its columns."""
    from burn_torch.cli.tabular import Table

    table = Table.read(path)
    rows = np.arange(len(table.lines))
    columns = []
    for name in table.cells:
        with contextlib.suppress(errors_of_ours()):
            columns.append(table.column(name, rows))
    table.inputs(columns)


def read_texts(path: Path) -> None:
    """Rows of a label and a text."""
    from burn_torch.cli.recipes.text_classification import TextClassificationConfig, TextDataset

    TextDataset(path, TextClassificationConfig(classes=("a", "b"), max_words=8))


READERS: Final[dict[str, Reader]] = {
    "csv": Reader("m.csv", lambda: [_CSV], read_csv, words_changed),
    "json rows": Reader("m.jsonl", lambda: [_ROWS], read_rows, either(words_changed, lines_changed)),
    "table": Reader("m.csv", lambda: [_CSV], read_table, words_changed),
    "csv.gz": Reader("m.csv.gz", lambda: [gzip.compress(_CSV)], read_table, packed_again(words_changed)),
    "texts": Reader(
        "m.csv", lambda: [b'"1","some words","more"\n"2","other ""words""",""\n'], read_texts, words_changed
    ),
}
