"""Pictures, arrays of numpy, and the files of MNIST."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import random
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz_files.mutations import bytes_changed, words_changed
from tests.fuzz_files.reader import Change, Reader, errors_of_ours, packed_again, require_equal

__all__ = ["READERS"]


@cache
def _pictures(kind: str) -> tuple[bytes, ...]:
    from PIL import Image

    files = []
    sizes = {"L": (7, 5), "RGB": (6, 4), "P": (5, 5), "RGBA": (4, 4), "1": (9, 3), "I;16": (4, 3)}
    for mode, size in sizes.items():
        if kind == "JPEG" and mode not in ("L", "RGB"):
            continue
        file = io.BytesIO()
        Image.new(mode, size, 1).save(file, kind)
        files.append(file.getvalue())
    return tuple(files)


def png_changed(data: bytes, rnd: random.Random, others: Sequence[bytes]) -> bytes:
    """A chunk changed, doubled or left out, its sum made to fit; or bytes."""
    if rnd.random() < 0.3:
        return bytes_changed(data, rnd, others)
    chunks, at = [], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    i = rnd.randrange(len(chunks))
    name, content = chunks[i]
    if name == b"IDAT" and rnd.random() < 0.5:
        rows = bytes_changed(zlib.decompress(content), rnd)
        content = zlib.compress(rows * (rnd.choice((1, 1, 1, 5000)) if len(rows) < 4096 else 1))
    else:
        content = bytes_changed(content, rnd)
    chunks[i] = (
        rnd.choice((name,) * 9 + (b"zTXt", b"iTXt", b"iCCP", b"PLTE", b"tRNS", b"acTL", b"fdAT", b"eXIf")),
        content,
    )
    chunks[i:i] = [chunks[i]] * rnd.choice((0, 0, 0, 1, 20))
    return data[:8] + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


_POSTSCRIPT: Final = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


def with_other_kinds(change: Change) -> Change:
    """Now and then a file of another kind under this name."""
    return lambda data, rnd, others: (
        words_changed(_POSTSCRIPT, rnd) if rnd.random() < 0.02 else change(data, rnd, others)
    )


def _npy(*arrays: Any) -> list[bytes]:
    files = []
    for array in arrays:
        file = io.BytesIO()
        np.save(file, array)
        files.append(file.getvalue())
    return files


def read_image(path: Path) -> None:
    """As image folders read pictures, and as predictions read data."""
    from burn_torch.data.source.image_file import read_grey_image, read_grey_images, resized

    with contextlib.suppress(errors_of_ours()):
        read_grey_images([path], (5, 7), 255.0)
    resized(read_grey_image(path), 16, 16)


def read_array(path: Path) -> None:
    """The same of an array, and the values that numpy itself reads, where both take the file."""
    from burn_torch.data.source.image_file import read_grey_image

    read_image(path)
    image = read_grey_image(path)
    try:
        theirs = np.load(path)
    except Exception:  # what numpy refuses is no other value
        return
    require_equal("image", image, np.asarray(theirs / 255 if theirs.dtype == np.uint8 else theirs, np.float32))


@cache
def _idx() -> list[bytes]:
    import tempfile

    from burn_torch.data.source.idx import write_idx

    files = []
    with tempfile.TemporaryDirectory() as folder:
        for array in (np.zeros((2, 5, 7), np.uint8), np.arange(4, dtype=np.int32), np.ones((2, 2), np.float64)):
            write_idx(Path(folder) / "x", array)
            files.append((Path(folder) / "x").read_bytes())
    return files


def read_idx_file(path: Path) -> None:
    """The array of an IDX file."""
    from burn_torch.data.source.idx import read_idx

    read_idx(path)


_IMAGES, _LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


@cache
def _mnist() -> dict[str, bytes]:
    import tempfile

    from burn_torch.data.source.idx import write_idx

    rng = np.random.default_rng(3)
    arrays = {_IMAGES: rng.integers(0, 256, (6, 28, 28)), _LABELS: rng.integers(0, 10, 6)}
    with tempfile.TemporaryDirectory() as folder:
        for name, array in arrays.items():
            write_idx(Path(folder) / name, array.astype(np.uint8))
        return {name: (Path(folder) / name).read_bytes() for name in arrays}


def read_mnist(path: Path) -> None:
    """A data set of a folder, and all its items."""
    from burn_torch.data import MnistDataset

    dataset = MnistDataset.test(path.parent)
    assert all(dataset.get(i).image.shape == (28, 28) for i in range(len(dataset)))


def check_download(path: Path) -> None:
    """Checks the data of a server before it is kept."""
    from burn_torch.data.source.download import RemoteFile, _verify

    plain = gzip.decompress(_mnist()[_LABELS])
    _verify(path, RemoteFile("labels", len(plain), hashlib.sha256(plain).hexdigest()), "http://example.org/labels.gz")


READERS: Final[dict[str, Reader]] = {
    "npy": Reader(
        "m.npy",
        lambda: _npy(np.zeros((5, 7)), np.zeros((5, 7), np.uint8), np.ones((2, 35), ">i2", order="F")),
        read_array,
        words_changed,
    ),
    "png": Reader("m.png", lambda: _pictures("PNG"), read_image, with_other_kinds(png_changed)),
    "jpeg": Reader("m.jpg", lambda: _pictures("JPEG"), read_image, with_other_kinds(bytes_changed)),
    "pgm": Reader(
        "m.pgm",
        lambda: [b"P2\n# made\n7 5\n9\n" + b"1 " * 35, b"P5 7 5 255\n" + bytes(35), b"P5 7 5 999\n" + bytes(70)],
        read_image,
        words_changed,
    ),
    "image csv": Reader("m.csv", lambda: [b"1,2.5,3\n4,5,6\n", b"0," * 34 + b"0\n"], read_image, words_changed),
    "idx": Reader("m-ubyte", _idx, read_idx_file),
    "idx.gz": Reader(
        "m.gz", lambda: [gzip.compress(data) for data in _idx()], read_idx_file, packed_again(bytes_changed)
    ),
    "mnist images": Reader(
        _IMAGES,
        lambda: [_mnist()[_IMAGES]],
        read_mnist,
        packed_again(bytes_changed),
        beside=lambda: {_LABELS: _mnist()[_LABELS]},
    ),
    "mnist labels": Reader(
        _LABELS,
        lambda: [_mnist()[_LABELS]],
        read_mnist,
        packed_again(bytes_changed),
        beside=lambda: {_IMAGES: _mnist()[_IMAGES]},
    ),
    "download": Reader("labels.gz.part", lambda: [_mnist()[_LABELS]], check_download, packed_again(bytes_changed)),
}
