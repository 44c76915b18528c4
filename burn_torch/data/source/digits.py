"""The digits that come with the package: 1,797 grey images of 8x8, so that a first run needs no network.

E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", 1998, UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, CC BY 4.0.  See digits.README.md beside this file.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.errors import DataError
from burn_torch.data.dataset import Dataset

__all__ = ["DigitsDataset", "DigitsItem"]

ROWS, TEST_ROWS = 1797, 360
HEIGHT = WIDTH = 8
DigitsSplit = Literal["stratified", "file-order"]


@dataclass(frozen=True, eq=False, slots=True)
class DigitsItem:
    """One image (height, width) in float32, 0 (background) to 16, and its class 0..9."""

    image: NDArray[np.float32]
    label: int


class DigitsDataset(Dataset[DigitsItem]):
    """Handwritten digits of 13 writers.

    Args of `train` and `test`:
        split: "stratified" (the default) has 1,437 and 360 images with the same share of each class, drawn once with a
            fixed seed and stored.  "file-order" has the last 360 rows for the test: they are of writers that the
            training images hardly show, and harder.
    """

    CLASS_NAMES: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        self.images = images
        self.labels = labels

    @classmethod
    def train(cls, *, split: DigitsSplit = "stratified") -> Self:
        """The 1,437 training images."""
        return cls._select(~_is_test(split))

    @classmethod
    def test(cls, *, split: DigitsSplit = "stratified") -> Self:
        """The 360 test images."""
        return cls._select(_is_test(split))

    @classmethod
    def num_classes(cls) -> int:
        """The number of classes."""
        return len(cls.CLASS_NAMES)

    @classmethod
    def _select(cls, chosen: NDArray[np.bool_]) -> Self:
        images, labels = _all_rows()
        return cls(images[chosen], labels[chosen])

    def get(self, index: int) -> DigitsItem:
        """The image and its class."""
        return DigitsItem(self.images[index].astype(np.float32), int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.labels)


@cache
def _all_rows() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    text = gzip.decompress(_resource("digits.csv.gz")).decode("ascii")
    rows = np.array([line.split(",") for line in text.splitlines()], dtype=np.uint8)
    rows.setflags(write=False)
    return rows[:, :-1].reshape(ROWS, HEIGHT, WIDTH), rows[:, -1]


def _is_test(split: object) -> NDArray[np.bool_]:
    chosen = np.zeros(ROWS, dtype=np.bool_)
    if not isinstance(split, str):
        split = repr(split)
    if split == "stratified":
        chosen[np.array(_resource("digits_test_rows.txt").split(), dtype=np.int64)] = True
    elif split == "file-order":
        chosen[-TEST_ROWS:] = True
    else:
        raise DataError(
            "the digits have no such split",
            given=f"split={split!r}",
            expected="'stratified' or 'file-order'",
            mend="leave it out for the stratified split",
        )
    return chosen


def _resource(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()
