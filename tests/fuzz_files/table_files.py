"""Tables and rows of text."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tests.fuzz_files.mutations import json_changed, lines_changed, words_changed
from tests.fuzz_files.reader import Reader, WrongValueError, either, errors_of_ours, packed_again

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


_TEXT: Final = b"First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n" * 20


def read_corpus(path: Path) -> None:
    """A text in tokens that are learnt from it."""
    from burn_torch.cli.recipes.text_generation import TextGenerationConfig, TextGenerationRecipe, Windows
    from burn_torch.cli.tokens import Tokenizer

    recipe = TextGenerationRecipe()
    config = recipe.prepare(TextGenerationConfig(data_dir=str(path.parent), tokens="bpe", vocabulary=270, context=4))
    tokenizer = Tokenizer(config.merges or ())
    for text in recipe.texts(config):
        tokens = tokenizer.encode(text)
        if tokenizer.decode(tokens) != text:
            raise WrongValueError(f"{text[:40]!r} is {tokenizer.decode(tokens)[:40]!r} when decoded")
        Windows(tokens, config.context)


@cache
def _merges() -> tuple[bytes, ...]:
    from burn_torch.cli.recipes.text_generation import TextGenerationConfig
    from burn_torch.cli.tokens import learn_merges

    merges = learn_merges(_TEXT, 20)
    return tuple(
        TextGenerationConfig(tokens="bpe", vocabulary=276, merges=pairs).to_json().encode()
        for pairs in (merges, ((97, 97), (256, 256), (257, 257)))
    )


def merges_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """Other pairs: of any tokens, of later ones, of each other."""
    values = json.loads(data)
    pairs = values["merges"] or []
    for _ in range(rnd.choice((1, 2, 60))):
        at = rnd.randrange(len(pairs) + 1)
        pairs[at:at] = [
            [rnd.choice((-1, 0, 97, 255, 256, 255 + at, 256 + at)) for _ in range(rnd.choice((2, 2, 2, 1, 3)))]
        ]
    return json.dumps(values).encode()


def read_merges(path: Path) -> None:
    """The tokens that the settings of a run name, forth and back."""
    from burn_torch.cli.recipes.text_generation import TextGenerationConfig
    from burn_torch.cli.tokens import Tokenizer

    tokenizer = Tokenizer(TextGenerationConfig.load(path).merges or ())
    text = _TEXT.decode() + "a" * 5000
    if tokenizer.decode(tokenizer.encode(text)) != text:
        raise WrongValueError("a text is another one when it is decoded")


def read_classes(path: Path) -> None:
    """The names of classes beside the rows of texts."""
    from burn_torch.cli.recipes.text_classification import TextClassificationConfig, TextClassificationRecipe

    TextClassificationRecipe().prepare(TextClassificationConfig(data_dir=str(path.parent)))


def read_script(path: Path) -> None:
    """Looks for a recipe in a file of Python; nothing of it runs."""
    from burn_torch.cli.script import defines_recipe

    assert defines_recipe(path) in (True, False)


_SCRIPT: Final = b"""from burn_torch import Device, Tensor

class Mine:
    name = "mine"

RECIPE = Mine()
for x in [1, 2, (3, {"a": [4]})]:
    print(f"{x!r:>10}", lambda y: y + 1 if y else -y)
"""


READERS: Final[dict[str, Reader]] = {
    "csv": Reader("m.csv", lambda: [_CSV], read_csv, words_changed),
    "json rows": Reader("m.jsonl", lambda: [_ROWS], read_rows, either(words_changed, lines_changed)),
    "table": Reader("m.csv", lambda: [_CSV], read_table, words_changed),
    "csv.gz": Reader("m.csv.gz", lambda: [gzip.compress(_CSV)], read_table, packed_again(words_changed)),
    "texts": Reader(
        "m.csv", lambda: [b'"1","some words","more"\n"2","other ""words""",""\n'], read_texts, words_changed
    ),
    "corpus": Reader("input.txt", lambda: [_TEXT, "π is 3.14, é\n".encode() * 30], read_corpus, words_changed),
    "corpus.gz": Reader(
        "input.txt.gz", lambda: [gzip.compress(_TEXT, mtime=0)], read_corpus, packed_again(words_changed)
    ),
    "classes": Reader(
        "classes.txt",
        lambda: [b"World\nSports\n\nBusiness\n"],
        read_classes,
        words_changed,
        beside=lambda: {"train.csv": b'"1","a","b"\n', "test.csv": b'"1","a","b"\n'},
    ),
    "script": Reader("m.py", lambda: [_SCRIPT], read_script, words_changed),
    "merges": Reader("m.json", _merges, read_merges, either(json_changed, merges_changed)),
}
