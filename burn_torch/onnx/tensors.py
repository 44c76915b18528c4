"""TensorProto to arrays: sizes are checked before memory is asked for, external data stays in the model's folder."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import OnnxError
from burn_torch.onnx.operators.axes import dtype_of

__all__ = ["MAX_TENSOR_BYTES", "Claims", "sparse_data", "tensor_data"]

MAX_TENSOR_BYTES: Final = 1 << 40
"""No declared size beyond this is believed."""

_WORDS: Final = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.I64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
}
"""Says where values lie that are not raw; those of other types in int32_data."""


MAX_CLAIMS: Final = 2
"""How often the tensors of a model may together take what a file beside it holds: tied weights may lie there once."""


@final
class Claims:
    """Holds what the tensors of one model have taken of each file beside it: one region must not fill the memory."""

    def __init__(self) -> None:
        self._taken: Final[dict[tuple[int, int], int]] = {}

    def take(self, name: str, location: str, length: int, file: os.stat_result) -> None:
        """Notes what a tensor takes.  Raises: OnnxError where all of them take more than the file can mean."""
        key = (file.st_dev, file.st_ino)
        taken = self._taken[key] = self._taken.get(key, 0) + length
        if taken > MAX_CLAIMS * file.st_size:
            raise _fault(
                name,
                f"external data at {location!r}, of which tensors take {taken} bytes in all",
                f"at most {MAX_CLAIMS} times the {file.st_size} bytes of the file: regions of their own, some tied",
            )


def tensor_data(proto: Any, folder: Path | None, claims: Claims | None = None) -> TensorData:
    """The values of a TensorProto.  Raises: OnnxError where it is malformed or leaves the folder.

    `claims` are those of the model, where all its tensors are read.
    """
    name = proto.name or "a tensor without a name"
    dtype = dtype_of(proto.data_type)
    shape = tuple(int(size) for size in proto.dims)
    if any(size < 0 for size in shape):
        raise _fault(name, f"a negative size in {shape}", "sizes of 0 or more")
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size > MAX_TENSOR_BYTES:
        raise _fault(name, f"{shape} {dtype.name}, {size} bytes", f"at most {MAX_TENSOR_BYTES} bytes")
    if proto.data_location == 1:
        raw: Any = _external(proto, folder, name, size, claims)
    elif proto.HasField("raw_data"):
        raw = proto.raw_data
        if len(raw) != size:
            raise _fault(name, f"{len(raw)} bytes for {shape} {dtype.name}", f"{size} bytes")
    else:
        return TensorData(_list_values(proto, dtype, count, name).reshape(shape), dtype)
    stored = dtype.numpy.newbyteorder("<")
    array = np.frombuffer(raw, stored).astype(dtype.numpy, copy=True)
    return TensorData(array.reshape(shape), dtype)


def sparse_data(proto: Any, folder: Path | None, claims: Claims | None, limit_bytes: int) -> TensorData:
    """The values of a SparseTensorProto, with its zeros.  Raises: OnnxError if malformed, or beyond the limit."""
    values = tensor_data(proto.values, folder, claims)
    places = tensor_data(proto.indices, folder, claims)
    name = proto.values.name or "a sparse tensor without a name"
    shape = tuple(int(size) for size in proto.dims)
    if any(size < 0 for size in shape) or len(values.shape) != 1:
        raise _fault(name, f"sizes {shape}, values {values.shape}", "sizes of 0 or more, and a row of values")
    size = math.prod(shape) * values.dtype.itemsize
    if size > limit_bytes:
        raise _fault(name, f"a sparse tensor of {size} bytes with its zeros", f"at most {limit_bytes} bytes more")
    at = places.array
    if places.dtype is not DType.I64 or at.shape not in ((len(values.array),), (len(values.array), len(shape))):
        raise _fault(name, f"places {at.shape} {places.dtype.name}", f"i64, {len(values.array)} of them")
    columns = at[:, None] if at.ndim == 1 else at
    sizes = np.array([math.prod(shape)] if at.ndim == 1 else shape, np.int64)
    if (columns < 0).any() or (columns >= sizes).any():
        raise _fault(name, "a place outside", f"places within {shape}")
    flat = at if at.ndim == 1 else np.ravel_multi_index(tuple(at.T), shape) if shape else np.zeros(len(at), np.int64)
    dense = np.zeros(math.prod(shape), values.array.dtype)
    dense[flat] = values.array
    return TensorData(dense.reshape(shape), values.dtype)


def _list_values(proto: object, dtype: DType, count: int, name: str) -> NDArray[Any]:
    values = getattr(proto, _WORDS.get(dtype, "int32_data"))
    if len(values) != count:
        raise _fault(name, f"{len(values)} values for {count} elements", "as many values as elements")
    if dtype in (DType.F16, DType.BF16):
        bits = np.array(values, np.int64)
        if bits.size and (bits.min() < 0 or bits.max() > 0xFFFF):
            raise _fault(name, "numbers of more than 16 bits", "the bits of 16-bit floats")
        return bits.astype(np.uint16).view(dtype.numpy)
    array = np.array(values, np.float64 if dtype is DType.F64 else None)
    if dtype.is_int and array.size:
        limits = np.iinfo(dtype.numpy)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise _fault(name, f"values outside {dtype.name}", f"{limits.min} to {limits.max}")
    return array.astype(dtype.numpy)


def _external(proto: Any, folder: Path | None, name: str, size: int, claims: Claims | None) -> bytes:
    """Bytes of a file beside the model: a plain file, reached without links, within its length."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise _fault(name, "external data", "values in the model itself: it was not read from a folder")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(size)))
    except ValueError:
        raise _fault(name, f"offset {entries.get('offset')!r}, length {entries.get('length')!r}", "numbers") from None
    parts = Path(location).parts
    if not location or "\0" in location or Path(location).is_absolute() or "\\" in location or ".." in parts:
        raise _fault(name, f"external data at {location!r}", "a relative path below the model's folder")
    path = folder / location
    try:
        if path.resolve(strict=True) != folder.resolve(strict=True) / location:
            raise _fault(
                name,
                f"external data at {location!r}, reached by a link",
                "a file in the model's folder, not a link to one (a cache of downloads has links: copy the file)",
            )
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:  # before it is opened
            raise _fault(name, f"external data at {location!r}", "a plain file with one name")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as err:
        raise _fault(name, f"external data at {location!r}: {err.strerror or err}", "a file beside the model") from err
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise _fault(name, f"external data at {location!r}", "a plain file with one name")
    with os.fdopen(descriptor, "rb") as file:
        if offset < 0 or length != size or offset + length > status.st_size:
            raise _fault(
                name,
                f"bytes {offset} to {offset + length} of {location!r}, which has {status.st_size}",
                f"{size} bytes within the file",
            )
        if claims is not None:
            claims.take(name, location, length, status)
        file.seek(offset)
        return file.read(length)


def _fault(name: str, given: str, expected: str) -> OnnxError:
    return OnnxError(
        f"the tensor {name!r} of the model is malformed", given=given, expected=expected, mend="export the model again"
    )
