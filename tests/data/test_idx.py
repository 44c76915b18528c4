"""The IDX reader, with files that are right and files that are wrong in every way."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from burn_torch.core.errors import DataError
from burn_torch.data import read_idx, write_idx

DTYPES = ["uint8", "int8", "int16", "int32", "float32", "float64"]
PARTS = ("\n  given:    ", "\n  expected: ", "\n  mend:     ")
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
)


def packed(payload, gz):
    return gzip.compress(payload) if gz else payload


def image_file(images=3, declared=None, rows=2, cols=2):
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, images if declared is None else declared, rows, cols)
    return header + bytes(range(images * rows * cols))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=arrays, gz=st.booleans())
def test_what_is_written_is_read_again(tmp_path, array, gz):
    path = tmp_path / ("a.gz" if gz else "a")
    write_idx(path, array)
    read = read_idx(path)
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("gz", [False, True])
def test_bytes_are_read_as_the_format_says(tmp_path, gz):
    path = tmp_path / "plain-name"
    path.write_bytes(packed(struct.pack(">BBBBII2h4h", 0, 0, 0x0B, 2, 3, 2, 1, -2, 300, -300, 0, 7), gz))
    assert read_idx(path).tolist() == [[1, -2], [300, -300], [0, 7]]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), array=arrays, gz=st.booleans())
def test_every_truncation_is_refused(tmp_path, data, array, gz):
    path = tmp_path / ("a.gz" if gz else "a")
    write_idx(path, array)
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(DataError, match=r"(truncated|not an IDX file|damaged)") as caught:
        read_idx(path)
    assert all(part in str(caught.value) for part in PARTS)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.binary(max_size=60) | st.binary(max_size=40).map(lambda b: b"\0\0\x08\x01" + b), gz=st.booleans())
def test_any_bytes_give_an_array_or_a_data_error(tmp_path, payload, gz):
    path = tmp_path / "a"
    path.write_bytes(packed(payload, gz))
    try:
        array = read_idx(path)
    except DataError as error:
        complaint = str(error)
        array = None
    else:
        complaint = ""
    if array is None:
        assert all(part in complaint for part in PARTS)
    else:
        assert payload[4 + 4 * array.ndim :] == array.astype(array.dtype.newbyteorder(">")).tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_in_gzipped_elements_is_noticed(tmp_path, data):
    path = tmp_path / "a.gz"
    array = np.arange(200, dtype=np.uint8).reshape(50, 4)
    write_idx(path, array)
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(10, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))  # after gzip's own header
    path.write_bytes(bytes(whole))
    try:
        read = read_idx(path)
    except DataError:
        read = None
    assert read is None or np.array_equal(read, array)


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", r"not an IDX file\n  given:    it begins with nothing\n  expected: 00 00, an element"),
        (
            b"<!DOCTYPE html>",
            r"not an IDX file\n  given:    it begins with 3c 21 44 4f\n.*\n  mend:     check that it is an IDX",
        ),
        (b"\0\0\x0a\x01" + b"\0" * 4, "not an IDX file"),
        (b"\0\0\x08\x00", "not an IDX file"),
        (b"\0\0\x08\x40" + b"\0" * 256, "not an IDX file"),
        (image_file()[:9], r"truncated\n  given:    a header of 9 bytes\n  expected: 16 bytes\n  mend:     copy"),
        (
            image_file() + b"x",
            r"trailing bytes\n  given:    more bytes.*\n  expected: 12, for shape \(3, 2, 2\)\n  mend:     copy",
        ),
        (image_file(declared=4), r"truncated\n  given:    .*\n  expected: 16 bytes, for shape \(4, 2, 2\)"),
        (image_file(declared=2), "trailing bytes"),
        (
            struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**31, 2**31) + b"x",
            r"larger than allowed\n  given:    shape .*\n.*\n  mend:     read",
        ),
    ],
)
def test_faults_are_reported(tmp_path, payload, gz, complaint):
    path = tmp_path / "file"
    path.write_bytes(packed(payload, gz))
    with pytest.raises(DataError, match=rf"file: {complaint}"):
        read_idx(path)


def test_a_claim_beyond_what_the_file_can_hold_is_refused_before_anything_is_inflated(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 900_000_000) + b"\0" * 1000))
    with pytest.raises(
        DataError, match=r"truncated\n  given:    a file that can hold \d+ bytes of elements at most\n  exp.*900000000"
    ):
        read_idx(path)


def test_inflation_is_bounded(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 10) + b"\0" * 50_000_000))
    with pytest.raises(DataError, match="trailing bytes"):
        read_idx(path)
    write_idx(path, np.zeros(2000, dtype=np.uint8))
    with pytest.raises(
        DataError, match=r"larger than allowed\n  given:    shape \(2000,\).*\n  expected: at most 1999 bytes"
    ):
        read_idx(path, limit_bytes=1999)
    with pytest.raises(DataError, match=r"larger than allowed\n.*\n  expected: at most 0 bytes"):
        read_idx(path, limit_bytes=0)


def test_two_gzip_members_are_one_file_and_garbage_is_none(tmp_path):
    path = tmp_path / "a.gz"
    payload = image_file()
    path.write_bytes(gzip.compress(payload[:20]) + gzip.compress(payload[20:]))
    assert read_idx(path).shape == (3, 2, 2)
    path.write_bytes(gzip.compress(payload) + b"garbage")
    with pytest.raises(
        DataError, match=r"damaged gzip data\n  given:    Not a gzipped file.*\n  expected: a whole gzip file\n  m"
    ):
        read_idx(path)


def test_files_that_cannot_be_read_are_reported(tmp_path):
    with pytest.raises(
        DataError, match=r"none: cannot be read\n  given:    No such file.*\n  expected: a file that may.*\n  mend: "
    ):
        read_idx(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read\n  given:    Is a directory"):
        read_idx(tmp_path)


def test_arrays_that_idx_cannot_hold_are_reported(tmp_path):
    for array in (np.zeros(3, dtype=np.int64), np.zeros((), dtype=np.uint8), np.zeros(3, dtype=bool)):
        with pytest.raises(
            DataError, match=r"cannot hold this array\n  given:    dtype .*\n  expected: uint8.*\n  mend:     conv"
        ):
            write_idx(tmp_path / "a", array)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sizes", [(0, 2**31, 2**31, 2**31), (2**31, 0, 2**32 - 1)])
def test_an_empty_array_of_sizes_that_no_array_has_is_refused(tmp_path, sizes):
    header = struct.pack(f">BBBB{len(sizes)}I", 0, 0, 0x0D, len(sizes), *sizes)
    for path, payload in ((tmp_path / "a", header), (tmp_path / "a.gz", gzip.compress(header))):
        path.write_bytes(payload)
        with pytest.raises(DataError, match=r"no array has its shape\n  given:    \(.*\n  expected: sizes.*\n  mend: "):
            read_idx(path)
