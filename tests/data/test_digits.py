"""The digits that come with the package, and their splits."""

import gzip
import hashlib
from importlib import resources

import numpy as np
import pytest

from burn_torch.core.errors import DataError
from burn_torch.data import DigitsDataset, permutation

ROWS = [
    [int(cell) for cell in line.split(",")]
    for line in gzip.decompress(resources.files("burn_torch.data.source").joinpath("digits.csv.gz").read_bytes())
    .decode()
    .splitlines()
]


def stored_test_rows():
    return [
        int(row)
        for row in resources.files("burn_torch.data.source").joinpath("digits_test_rows.txt").read_text().split()
    ]


def test_items_are_the_rows_of_the_file():
    chosen = set(stored_test_rows())
    train = [row for index, row in enumerate(ROWS) if index not in chosen]
    test = [row for index, row in enumerate(ROWS) if index in chosen]
    for dataset, rows in ((DigitsDataset.train(), train), (DigitsDataset.test(), test)):
        assert len(dataset) == len(rows)
        assert [item.label for item in dataset] == [row[-1] for row in rows]
        assert [item.image.reshape(-1).tolist() for item in dataset] == [row[:-1] for row in rows]
    item = DigitsDataset.train()[0]
    assert (item.image.dtype, item.image.shape, type(item.label)) == (np.float32, (8, 8), int)
    assert max(max(row[:-1]) for row in ROWS) == 16


def test_the_split_is_the_one_that_its_rule_draws():
    labels = [row[-1] for row in ROWS]
    shares = [labels.count(label) * 360 / 1797 for label in range(10)]
    take = [int(share) for share in shares]
    for label in sorted(range(10), key=lambda label: (take[label] - shares[label], label))[: 360 - sum(take)]:
        take[label] += 1
    order = permutation(1797, seed=0, epoch=0).tolist()
    drawn = [row for label in range(10) for row in [row for row in order if labels[row] == label][: take[label]]]
    assert stored_test_rows() == sorted(drawn)
    assert len(set(drawn)) == 360


def test_the_split_is_stratified():
    train = np.bincount(DigitsDataset.train().labels, minlength=10)
    test = np.bincount(DigitsDataset.test().labels, minlength=10)
    assert (train.sum(), test.sum()) == (1437, 360)
    assert np.abs(test - (train + test) * 360 / 1797).max() < 1
    assert DigitsDataset.num_classes() == 10


def test_file_order_keeps_the_last_360_rows_for_the_test():
    train, test = DigitsDataset.train(split="file-order"), DigitsDataset.test(split="file-order")
    assert train.labels.tolist() == [row[-1] for row in ROWS[:1437]]
    assert test.labels.tolist() == [row[-1] for row in ROWS[1437:]]


def test_changing_a_dataset_changes_no_other():
    one = DigitsDataset.train()
    one.images[0] = 0
    assert DigitsDataset.train().images[0].any()


def test_an_unknown_split_is_reported():
    with pytest.raises(
        DataError, match=r"no such split\n  given:    split='random'\n  expected: 'stratified' or.*\n  mend:     leave"
    ):
        DigitsDataset.train(split="random")


def test_the_file_is_the_published_one(shared_data):
    packaged = resources.files("burn_torch.data.source").joinpath("digits.csv.gz").read_bytes()
    assert packaged == (shared_data / "digits" / "digits.csv.gz").read_bytes()
    assert hashlib.sha256(packaged).hexdigest() in (shared_data / "digits" / "SHA256SUMS").read_text()
