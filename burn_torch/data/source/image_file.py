"""Grey images from files that a person has at hand: .npy, .csv, .pgm, IDX, and .png or .jpg where Pillow is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.errors import DataError, explain
from burn_torch.core.faults import Place, raise_faults
from burn_torch.data.source.idx import read_idx

__all__ = ["PICTURES", "Images", "read_grey_image", "read_grey_images", "resized"]

Images = NDArray[np.float32]

PICTURES = (".jpeg", ".jpg", ".npy", ".pgm", ".png")
"""Endings of files that hold one picture."""

FORMATS = ".npy, .csv, .pgm, .png, .jpg, or IDX (-ubyte, .gz)"


def read_grey_images(paths: Sequence[Path], size: tuple[int, int], white: float) -> list[Images]:
    """The images of each file as (count, height, width) float32, 0 (black) to `white`.

    Pictures (.pgm, .png, .jpg) are scaled from their own white; arrays (.npy, .csv, IDX) hold values of the data set
    already.  A .csv has one image a line.
    Raises: DataError for all files at once that are missing, empty, damaged or of another size.
    """
    read: list[Images] = []
    place = Place()
    for path in paths:
        try:
            read.append(_shaped(path, _values(path, white), size))
        except DataError as err:
            if len(paths) == 1:
                raise
            place.refused(err)
    if place.faults:
        raise_faults(f"{len(paths)} files", place.faults, error=DataError)
    return read


def read_grey_image(path: Path) -> NDArray[np.float32]:
    """One picture of any size as (height, width) float32, 0 (black) to 1; arrays of bytes are scaled from 255.

    Raises: DataError for a file that is missing, damaged, or no picture.
    """
    values = _values(path, 1.0)
    if values.ndim != 2 or values.size == 0 or values.dtype.kind not in "fiub":
        raise _fault(
            path, f"values of shape {values.shape} and type {values.dtype}", "one grey image", "save it in grey"
        )
    image = np.asarray(values / 255 if values.dtype == np.uint8 else values, np.float32)
    if not np.isfinite(image).all():
        raise _fault(path, "values that are NaN or infinite", "finite numbers", "save the image again")
    return image


def resized(image: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """The picture in another size, by a triangle filter along each axis: bilinear where it grows, and no pixel is left
    out where it shrinks.
    """
    return _along_rows(_along_rows(image, height).T, width).T.copy()


def _along_rows(image: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    rows = image.shape[0]
    if rows == count:
        return image
    ratio = rows / count
    support = max(ratio, 1.0)  # a triangle as wide as a new pixel, or as an old one if those are larger
    centres = (np.arange(count) + 0.5) * ratio - 0.5
    distance = np.abs(np.arange(rows)[None, :] - centres[:, None]) / support
    weights = np.maximum(0.0, 1.0 - distance)
    weights /= weights.sum(1, keepdims=True)
    return np.asarray(weights @ image, np.float32)


def _values(path: Path, white: float) -> NDArray[Any]:
    if not path.is_file():
        what = "this is a directory" if path.is_dir() else "there is no such file"
        raise _fault(path, what, "a file", "check the path")
    ending = path.suffix.lower()
    try:
        if ending == ".npy":
            return _npy(path)
        if ending == ".csv":
            return _csv(path)
        if ending == ".pgm":
            return _pgm(path.read_bytes()) * white
        if ending in (".png", ".jpg", ".jpeg"):
            return _picture(path) * white
        if path.name.endswith("-ubyte") or ending == ".gz":
            return read_idx(path)
    except (ValueError, EOFError, OSError, MemoryError) as err:
        if isinstance(err, DataError):
            raise
        raise _fault(path, f"it is damaged: {err}", f"a whole {ending} file", "save the image again") from err
    raise _fault(path, f"an ending {ending or 'of nothing'}", FORMATS, "convert the image first")


def _shaped(path: Path, values: Any, size: tuple[int, int]) -> Images:
    height, width = size
    shape = values.shape
    fits = shape == size or shape[1:] == size or (len(shape) == 2 and shape[1] == height * width)
    if not fits or values.dtype.kind not in "fiub":
        raise _fault(
            path,
            f"values of shape {shape} and type {values.dtype}",
            f"grey images of {height} x {width} pixels",
            f"scale the image to {width} x {height} and save it in grey",
        )
    if values.size == 0:
        raise _fault(path, "no image", "one image at least", "check how the file was written")
    images = np.asarray(values, dtype=np.float32).reshape(-1, height, width)
    if not np.isfinite(images).all():
        raise _fault(path, "values that are NaN or infinite", "finite numbers", "save the image again")
    return images


def _npy(path: Path) -> NDArray[Any]:
    """An array; one of Python objects is refused, since reading it would run code."""
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError("it does not begin as an .npy file does")
    return np.asarray(np.load(path, allow_pickle=False))


def _csv(path: Path) -> NDArray[Any]:
    text = path.read_text(encoding="ascii")
    if not text.strip():
        raise ValueError("it is empty")
    return np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)


def _pgm(content: bytes) -> NDArray[np.float64]:
    """A PGM picture, 0 to 1.  Source: https://netpbm.sourceforge.net/doc/pgm.html."""
    fields: list[bytes] = []
    position = 0
    while len(fields) < 4:
        while content[position : position + 1].isspace():
            position += 1
        if content[position : position + 1] == b"#":  # a comment, to the end of the line
            end = content.find(b"\n", position)
            position = len(content) if end < 0 else end
            continue
        start = position
        while position < len(content) and not content[position : position + 1].isspace():
            position += 1
        if start == position:
            raise ValueError("the header ends early")
        fields.append(content[start:position])
    magic, width, height, white = fields[0], *(int(field) for field in fields[1:])
    if magic not in (b"P2", b"P5") or not 0 < white < 65536 or width < 1 or height < 1:
        raise ValueError(f"this is no PGM header: {b' '.join(fields)[:40]!r}")
    if magic == b"P2":
        pixels = np.array(content[position:].split(), dtype=np.float64)
    else:
        pixels = np.frombuffer(content[position + 1 :], np.dtype(">u2") if white > 255 else np.dtype("u1"))
    if pixels.size != width * height:
        raise ValueError(f"{pixels.size} pixels, the header says {width} x {height}")
    return np.asarray(pixels.reshape(height, width) / white, dtype=np.float64)


def _picture(path: Path) -> NDArray[np.float64]:
    try:
        from PIL import Image  # an optional package
    except ImportError as err:
        raise _fault(
            path, "a picture, while Pillow is not installed", ".pgm, .npy or .csv without Pillow", "pip install pillow"
        ) from err
    with Image.open(path) as image:
        return np.asarray(image.convert("L"), dtype=np.float64) / 255


def _fault(path: Path, given: str, expected: str, mend: str) -> DataError:
    return DataError(explain("the image cannot be read", given=f"{path}: {given}", expected=expected, mend=mend))
