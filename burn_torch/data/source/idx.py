"""IDX, the file format of MNIST: a small header, then the numbers, gzipped or not.

    byte 0, 1   0
    byte 2      element type (see DTYPES)
    byte 3      number of axes
    4 bytes     big-endian size, for each axis
    the rest    the elements, big-endian, last axis fastest

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.checking import checked
from burn_torch.core.errors import DataError
from burn_torch.core.files import replacing_file
from burn_torch.core.reading import open_regular

__all__ = ["read_idx", "write_idx"]

DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
LIMIT_BYTES = 1 << 30  # twenty times the training images of MNIST
PACKED_LIMIT_BYTES = 256 << 20  # of gzipped files; of one that says more, 16 times its own size
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_RATIO = 1032  # deflate makes at most 1032 bytes of one: what claims more is not read at all
_MAX_AXES = 32  # numpy 1 has no more


@checked(error=DataError)
def read_idx(path: str | os.PathLike[str], *, limit_bytes: int | None = None) -> NDArray[Any]:
    """Reads an IDX file; whether it is gzipped is seen from its first bytes.

    The sizes in the header are compared with the size of the file before anything is allocated or inflated.
    `limit_bytes` bounds the elements: by default 1 GiB, or for a gzipped file 256 MiB or 16 times its size.
    Raises: DataError if the file is absent, no IDX file, truncated, damaged, longer than it says, or over the limit.
    """
    file_path = Path(path)
    try:
        with open_regular(file_path) as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            size = os.fstat(raw.fileno()).st_size
            if not packed:
                limit = LIMIT_BYTES if limit_bytes is None else limit_bytes
                return _read(raw, file_path, available=size, limits=(limit,))
            default = (LIMIT_BYTES, max(PACKED_LIMIT_BYTES, 16 * size))
            limits = default if limit_bytes is None else (limit_bytes,)
            with gzip.GzipFile(fileobj=raw) as inflated:
                file = cast("IO[bytes]", inflated)
                return _read(file, file_path, available=size * _MAX_RATIO, limits=limits)
    except OSError as error:  # gzip.BadGzipFile is one
        if isinstance(error, gzip.BadGzipFile):
            _refuse(file_path, "damaged gzip data", given=str(error), expected="a whole gzip file")
        _refuse(file_path, "cannot be read", given=error.strerror or str(error), expected="a file that may be read")
    except (EOFError, zlib.error) as error:
        _refuse(file_path, "truncated or damaged gzip data", given=str(error), expected="a whole gzip file")


@checked(error=DataError)
def write_idx(path: str | os.PathLike[str], array: NDArray[Any]) -> None:
    """Writes an IDX file, gzipped if its name ends in .gz, whole or not at all.

    Raises: DataError if IDX has no such element type, or not so many axes.
    """
    code = next((code for code, name in DTYPES.items() if np.dtype(name).newbyteorder("=") == array.dtype), None)
    if code is None or not 1 <= array.ndim <= _MAX_AXES:
        _refuse(
            Path(path),
            "IDX cannot hold this array",
            given=f"dtype {array.dtype}, {array.ndim} axes",
            expected=f"uint8, int8, int16, int32, float32 or float64, 1 to {_MAX_AXES} axes",
            mend="convert it with array.astype(...)",
        )
    header = bytes((0, 0, code, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    body = header + np.ascontiguousarray(array, dtype=DTYPES[code]).tobytes()
    with replacing_file(path) as file:
        file.write(gzip.compress(body, mtime=0) if str(path).endswith(".gz") else body)


def _read(file: IO[bytes], path: Path, *, available: int, limits: tuple[int, ...]) -> NDArray[Any]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES or not 1 <= magic[3] <= _MAX_AXES:
        _refuse(
            path,
            "not an IDX file",
            given=f"it begins with {magic.hex(' ') or 'nothing'}",
            expected="00 00, an element type (08 09 0b 0c 0d 0e), a number of axes",
            mend="check that it is an IDX file; a web page saved under this name is a usual cause",
        )
    dtype, axes = np.dtype(DTYPES[magic[2]]), magic[3]
    sizes = file.read(4 * axes)
    if len(sizes) < 4 * axes:
        _refuse(path, "truncated", given=f"a header of {4 + len(sizes)} bytes", expected=f"{4 + 4 * axes} bytes")
    shape = struct.unpack(f">{axes}I", sizes)
    wanted, header = math.prod(shape) * dtype.itemsize, 4 + 4 * axes

    def require_allowed(limit_bytes: int) -> None:
        if wanted > limit_bytes:
            _refuse(
                path,
                "larger than allowed",
                given=f"shape {shape} of {dtype.itemsize}-byte elements: {wanted} bytes",
                expected=f"at most {limit_bytes} bytes",
                mend="read_idx(path, limit_bytes=...) if the file is meant to be that large",
            )

    require_allowed(limits[0])
    if math.prod(size or 1 for size in shape) * dtype.itemsize > sys.maxsize:  # numpy asks so of empty arrays too
        _refuse(path, "no array has its shape", given=f"{shape}", expected="sizes whose product is below 2^63 bytes")
    if header + wanted > available:
        _refuse(
            path,
            "truncated",
            given=f"a file that can hold {max(available - header, 0)} bytes of elements at most",
            expected=f"{wanted} bytes, for shape {shape}",
        )
    require_allowed(limits[-1])  # what a gzipped file may hold by itself; the larger bound was for its header
    body = np.empty(wanted, np.uint8)
    filled = 0
    while part := file.readinto(memoryview(body)[filled:]):  # type: ignore[attr-defined, arg-type]  # both have it
        filled += part
    if filled < wanted:
        _refuse(path, "truncated", given=f"{filled} bytes of elements", expected=f"{wanted} bytes, for shape {shape}")
    if file.read(1):  # at the end, gzip also compares its checksum
        _refuse(
            path, "trailing bytes", given="more bytes than the header says", expected=f"{wanted}, for shape {shape}"
        )
    if sys.byteorder == "little":
        body.view(dtype).byteswap(inplace=True)
    return body.view(dtype.newbyteorder("=")).reshape(shape)


def _refuse(
    path: Path, what: str, *, given: str, expected: str, mend: str = "copy or download the file again"
) -> NoReturn:
    raise DataError(f"{path}: {what}", given=given, expected=expected, mend=mend) from None
