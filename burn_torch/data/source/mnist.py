"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28x28, ten classes each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.errors import DataError
from burn_torch.data.dataset import Dataset
from burn_torch.data.source.download import Folder, ProgressCallback, RemoteFile, find_file
from burn_torch.data.source.idx import read_idx

__all__ = ["FashionMnistDataset", "MnistDataset", "MnistItem"]

HEIGHT = WIDTH = 28
CLASSES = 10
Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False, slots=True)
class MnistItem:
    """One image (height, width) in float32, 0 (background) to 255, and its class 0..9."""

    image: NDArray[np.float32]
    label: int


def _files_of(*sums: str) -> dict[Split, tuple[RemoteFile, RemoteFile]]:
    """Images and labels for training, then those for the test, by the SHA-256 of what is in them."""
    named = zip(_NAMES_AND_SIZES, sums, strict=True)
    files = [RemoteFile(f"{name}-ubyte", size, sha256) for (name, size), sha256 in named]
    return {"train": (files[0], files[1]), "test": (files[2], files[3])}


_NAMES_AND_SIZES: Final = (
    ("train-images-idx3", 47_040_016),
    ("train-labels-idx1", 60_008),
    ("t10k-images-idx3", 7_840_016),
    ("t10k-labels-idx1", 10_008),
)


class MnistDataset(Dataset[MnistItem]):
    """Handwritten digits.  Y. LeCun, C. Cortes, C. Burges; the files of the CVDF mirror, as in Burn.

    The pixels stay one byte each in `images` (item, height, width); an item is converted when it is asked for.
    Mean and standard deviation of the training pixels divided by 255: 0.1307 and 0.3081.
    """

    NAME: ClassVar[str] = "mnist"
    URL: ClassVar[str] = "https://storage.googleapis.com/cvdf-datasets/mnist/"
    CLASS_NAMES: ClassVar[tuple[str, ...]] = tuple("0123456789")
    FILES: ClassVar[dict[Split, tuple[RemoteFile, RemoteFile]]] = _files_of(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        self.images = images
        self.labels = labels

    @classmethod
    def train(
        cls, data_dir: Folder = None, *, mirror: str | None = None, progress: ProgressCallback | None = None
    ) -> Self:
        """The 60,000 training images.

        Args:
            data_dir: the folder with the four files, gzipped or not; the only place searched if it is given.
                Without it: $BURN_TORCH_CACHE or ~/.cache/burn_torch, else they are downloaded and kept there.
            mirror: the address of the folder to download from, instead of `URL`.
            progress: told of downloads; by default a bar on stderr if that is a terminal.

        Raises: DataError if a file is absent, damaged, or does not fit the other.
        """
        return cls._open("train", data_dir, mirror, progress)

    @classmethod
    def test(
        cls, data_dir: Folder = None, *, mirror: str | None = None, progress: ProgressCallback | None = None
    ) -> Self:
        """The 10,000 test images; arguments and errors as for `train`."""
        return cls._open("test", data_dir, mirror, progress)

    @classmethod
    def num_classes(cls) -> int:
        """The number of classes."""
        return CLASSES

    @classmethod
    def _open(cls, split: Split, data_dir: Folder, mirror: str | None, progress: ProgressCallback | None) -> Self:
        paths = [
            find_file(cls.NAME, file, base_url=mirror or cls.URL, data_dir=data_dir, progress=progress)
            for file in cls.FILES[split]
        ]
        images, labels = (read_idx(path, limit_bytes=4 * cls.FILES["train"][0].size_bytes) for path in paths)
        _require_fit(images, labels, f"{paths[0]} and {paths[1].name}")
        return cls(images, labels)

    def get(self, index: int) -> MnistItem:
        """The image and its class."""
        return MnistItem(self.images[index].astype(np.float32), int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.labels)


_CLOTHES: Final = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"


class FashionMnistDataset(MnistDataset):
    """Clothing, in the files and shapes of MNIST.  H. Xiao, K. Rasul, R. Vollgraf, Zalando SE, MIT licence.

    Mean and standard deviation of the training pixels divided by 255: 0.2860 and 0.3530.
    """

    NAME: ClassVar[str] = "fashion-mnist"
    # the authors' own address has no https; the bytes are compared with their checksum either way
    URL: ClassVar[str] = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    CLASS_NAMES: ClassVar[tuple[str, ...]] = tuple(_CLOTHES.split(","))
    FILES: ClassVar[dict[Split, tuple[RemoteFile, RemoteFile]]] = _files_of(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    )


def _require_fit(images: NDArray[np.generic], labels: NDArray[np.generic], files: str) -> None:
    """Checks that the two files are images and labels of one data set."""
    fits = (
        images.dtype == labels.dtype == np.uint8
        and images.shape[1:] == (HEIGHT, WIDTH)
        and labels.ndim == 1
        and len(images) == len(labels) > 0
    )
    highest = int(labels.max()) if fits else 0
    if not fits or highest >= CLASSES:
        labels_given = f"labels {labels.shape} {labels.dtype}" + (f" up to {highest}" if fits else "")
        raise DataError(
            f"{files} are not the images and labels of one data set",
            given=f"images {images.shape} {images.dtype}, {labels_given}",
            expected=f"images (n, {HEIGHT}, {WIDTH}) uint8, labels (n,) uint8 below {CLASSES}, one n above 0",
            mend="use the two files of one split; images and labels may have been swapped",
        )
