"""Grey images from files that a person has at hand: .npy, .csv, .pgm, IDX, and .png or .jpg where Pillow is there."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.errors import DataError
from burn_torch.core.faults import Place
from burn_torch.core.reading import open_regular, read_bounded, read_lines
from burn_torch.data.source.idx import read_idx

__all__ = ["PICTURES", "Images", "read_grey_image", "read_grey_images", "resized"]

Images = NDArray[np.float32]

PICTURES = (".jpeg", ".jpg", ".npy", ".pgm", ".png")
"""Endings of files that hold one picture."""

FORMATS = ".npy, .csv, .pgm, .png, .jpg, or IDX (-ubyte, .gz)"
MAX_PIXELS: Final = 50_000_000
"""Pixels of one picture: some kilobytes of a PNG can hold more than any memory."""
MAX_PICTURE_BYTES: Final = 256 << 20
"""Bytes of a .pgm, .png or .jpg; MAX_PIXELS as text have fewer."""
MAX_TABLE_BYTES: Final = 256 << 20
"""Bytes of a .csv, whose numbers need twice that in memory; .npy and IDX have no such bound."""
MAX_TEXT_BYTES: Final = 32 << 20
"""Bytes of a .pgm that has its pixels as text: they are read at 0.4 microseconds a number."""
_BLOCK: Final = 1024
_HEADER_BYTES: Final = 1 << 16
_PGM_FIELD: Final = re.compile(rb"(?:\s++|#[^\n]*+\n)*+([^\s#]{1,20})")


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
            read.append(_shape(path, _values(path, white), size))
        except DataError as err:
            if len(paths) == 1:
                raise
            place.refused(err)
    place.raise_noted(f"{len(paths)} files", error=DataError)
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
    # all weights at once would be a matrix of count x rows, and their product would hold the picture in float64
    step = max(1, int(min(_BLOCK / math.sqrt(ratio), _BLOCK**2 / (ratio * image.shape[1]))))
    scaled = np.empty((count, image.shape[1]), np.float32)
    for row in range(0, count, step):
        centres = (np.arange(row, min(row + step, count)) + 0.5) * ratio - 0.5
        first, end = max(math.floor(centres[0] - support), 0), min(math.ceil(centres[-1] + support) + 1, rows)
        distance = np.abs(np.arange(first, end)[None, :] - centres[:, None]) / support
        weights = np.maximum(0.0, 1.0 - distance)
        weights /= weights.sum(1, keepdims=True)
        scaled[row : row + step] = weights @ image[first:end]
    return scaled


def _values(path: Path, white: float) -> NDArray[Any]:
    if not path.is_file():
        there = "this is a directory" if path.is_dir() else "it is no regular file"
        raise _fault(path, there if path.exists() else "there is no such file", "a file", "check the path")
    ending = path.suffix.lower()
    try:
        if ending == ".npy":
            return _npy(path)
        if ending == ".csv":
            return _csv(path)
        if ending == ".pgm":
            return _scale(*_pgm(read_bounded(path, MAX_PICTURE_BYTES)), white)
        if ending in (".png", ".jpg", ".jpeg"):
            return _scale(*_picture(path), white)
        if path.name.endswith("-ubyte") or ending == ".gz":
            return read_idx(path)
    except DataError:
        raise
    except Exception as err:  # numpy and Pillow run on what the file says: one that is damaged fails in any way
        name = "" if isinstance(err, ValueError | OSError) else type(err).__name__
        reason = f"{name} {err}".strip()[:200]
        raise _fault(path, f"it is damaged: {reason}", f"a whole {ending} file", "save the image again") from err
    raise _fault(path, f"an ending {ending or 'of nothing'}", FORMATS, "convert the image first")


def _scale(pixels: NDArray[Any], pixel_white: int, white: float) -> Images:
    """Pixels of 0 to `pixel_white` as 0 to `white`."""
    image = pixels.astype(np.float32)
    return np.divide(image, np.float32(pixel_white / white), out=image)


def _shape(path: Path, values: Any, size: tuple[int, int]) -> Images:
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
    """An array of numbers, whose sizes are compared with that of the file before anything is allocated."""
    with open_regular(path) as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError("it does not begin as an .npy file does")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in header:
            raise ValueError(f"it is of version {version}, and arrays of numbers are of 1.0 or 2.0")
        shape, by_columns, dtype = header[version](file)
        if dtype.kind not in "fiub":
            kind = "Object arrays are not read: that would run code" if dtype.hasobject else f"elements of type {dtype}"
            raise ValueError(f"{kind}; expected numbers")
        count, start = math.prod(map(int, shape)), file.tell()
        there = file.seek(0, io.SEEK_END) - start
        if min(shape, default=0) < 0 or count * dtype.itemsize != there:
            raise ValueError(f"shape {shape} of {dtype} needs {count * dtype.itemsize} bytes, and has {there}")
        file.seek(start)
        values = np.fromfile(file, dtype, count)
    return values.reshape(shape, order="F" if by_columns else "C")


def _csv(path: Path) -> Images:
    with open_regular(path) as file:
        lines = read_lines(file, "ascii", limit=MAX_TABLE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file without numbers, which is refused
            values = np.loadtxt(lines, np.float32, delimiter=",", ndmin=2)
    if not values.size:
        raise ValueError("it is empty")
    return values


def _pgm(content: bytes) -> tuple[NDArray[Any], int]:
    """The pixels of a PGM picture, and which number is white.  Source: https://netpbm.sourceforge.net/doc/pgm.html."""
    fields: list[bytes] = []
    position = 0
    for _ in range(4):
        field = _PGM_FIELD.match(content, position, _HEADER_BYTES)
        if field is None:
            raise ValueError("the header ends early")
        fields.append(field[1])
        position = field.end()
    magic, width, height, white = fields[0], *(int(field) for field in fields[1:])
    if magic not in (b"P2", b"P5") or not 0 < white < 65536 or width < 1 or height < 1:
        raise ValueError(f"this is no PGM header: {b' '.join(fields)[:40]!r}")
    _require_pixels(width, height)
    if magic == b"P2":
        if len(content) > MAX_TEXT_BYTES:
            raise ValueError(f"pixels as text have at most {MAX_TEXT_BYTES} bytes; write it as P5")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of what is no number
            pixels = np.fromstring(content[position:], np.float32, sep=" ")
    else:
        pixels = np.frombuffer(content, np.dtype(">u2") if white > 255 else np.dtype("u1"), offset=position + 1)
    if pixels.size != width * height:
        raise ValueError(f"{pixels.size} pixels, the header says {width} x {height}")
    if not 0 <= pixels.min() <= pixels.max() <= white:
        raise ValueError(f"pixels of {pixels.min():g} to {pixels.max():g}, the header says 0 to {white}")
    return pixels.reshape(height, width), white


def _picture(path: Path) -> tuple[NDArray[Any], int]:
    """The pixels of a PNG or JPEG picture in grey, and which number is white.

    No other reader of Pillow sees the file, whatever it begins with: the one for PostScript starts a program.
    """
    try:
        from PIL import Image  # an optional package
    except ImportError as err:
        raise _fault(
            path,
            "a picture, while Pillow is not installed",
            ".pgm, .npy or .csv without Pillow",
            "pip install 'burn-torch[images]'",
        ) from err
    content = read_bounded(path, MAX_PICTURE_BYTES)
    if not content.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")):
        raise ValueError(f"it begins with {content[:8]!r}, as no PNG or JPEG does")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own bounds lie above these
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            _require_pixels(*image.size)
            deep = image.mode.startswith("I")  # 16 bits, which convert("L") would clip at 255
            grey = image.copy() if deep else image.convert("L")
    return np.asarray(grey), 65535 if deep else 255


def _require_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width} x {height} pixels are more than {MAX_PIXELS}")


def _fault(path: Path, given: str, expected: str, mend: str) -> DataError:
    return DataError("the image cannot be read", given=f"{path}: {given}", expected=expected, mend=mend)
