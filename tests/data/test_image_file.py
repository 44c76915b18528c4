"""Pictures from files that strangers made: what is read, what is refused, and how much memory that takes."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from burn_torch import BurnTorchError
from burn_torch.cli.csv_rows import read_rows
from burn_torch.core.errors import DataError
from burn_torch.data import InMemDataset
from burn_torch.data.source.idx import read_idx
from burn_torch.data.source.image_file import MAX_PIXELS, read_grey_image, read_grey_images, resized

NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '%s', 'fortran_order': False, 'shape': %s, }"
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("ending", [".png", ".jpg", ".jpeg"])
def test_a_picture_of_postscript_starts_no_program(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"x{ending}").write_bytes(POSTSCRIPT)
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "gs").chmod(0o755)
    code = (
        "import sys\n"
        "sys.addaudithook(lambda event, args: event == 'subprocess.Popen' and print('started', args[0]))\n"
        "from pathlib import Path\n"
        "from burn_torch.data.source.image_file import read_grey_image\n"
        f"try: read_grey_image(Path({str(tmp_path / f'x{ending}')!r}))\n"
        "except Exception as err: print(type(err).__name__, err)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert "as no PNG or JPEG does" in done.stdout
    assert "started" not in done.stdout
    assert not (tmp_path / "ran").exists()


def test_other_formats_of_pillow_are_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("TIFF", "BMP", "GIF"):
        image.new("L", (3, 2)).save(tmp_path / "x.png", name)
        with pytest.raises(DataError, match=r"x\.png: it is damaged: .* as no PNG or JPEG does\n  expected: a whole"):
            read_grey_image(tmp_path / "x.png")


def test_sixteen_bit_grey_is_not_clipped_to_white(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    values = np.array([[0, 255, 256], [4000, 40000, 65535]], np.uint16)
    image.fromarray(values).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(read_grey_image(tmp_path / "deep.png"), (values / 65535).astype(np.float32))


def test_a_small_png_of_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("1", (10_000, 5_001)).save(tmp_path / "big.png")
    with pytest.raises(DataError, match=rf"10000 x 5001 pixels are more than {MAX_PIXELS}"):
        read_grey_image(tmp_path / "big.png")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", (NPY % (b"<f8", b"(2, 3(")).ljust(127) + b"\n"),
        ("b.npy", (NPY % (b"<f8", b"(9, 9)")).ljust(127) + b"\n"),
        ("c.npy", (NPY % (b"|O", b"(1,)")).ljust(127) + b"\n....."),
        ("d.npy", (NPY % (b"<f8", b"(-1,)")).ljust(127) + b"\n"),
        ("e.npy", b"PK\x03\x04"),
        ("a.pgm", b"P2" + b" " * 5_000_000),
        ("b.pgm", b"P5 100000 100000 255\n"),
        ("c.pgm", b"P2 2 2 9 1 x 3 4"),
        ("d.pgm", b"P5 2 2 255"),
        ("e.pgm", b"P5 2 2 9 \x0a\x01\x02\x03"),
        ("f.pgm", b"P2 2 2 9 -1 2 3 4"),
        ("g.pgm", b"P2 2 2 9 nan 2 3 4"),
        ("a.csv", b"1," * 9_000_000),
        ("b.csv", b"\n\n"),
        ("c.csv", b"1,2\n3\n"),
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
        ("a.jpg", b"\xff\xd8\xff\xe0" + bytes(64)),
    ],
)  # fmt: skip
def test_a_damaged_image_is_an_error_in_three_parts(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: it is damaged: .*\n  expected: a whole .*\n  mend: "):
        read_grey_image(tmp_path / name)


def test_arrays_by_columns_and_of_two_bytes_are_read(tmp_path: Path) -> None:
    values = np.arange(6, dtype=">i2").reshape(2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    np.testing.assert_array_equal(read_grey_image(tmp_path / "a.npy"), values.astype(np.float32))


def test_text_and_binary_pgm_hold_the_same_picture(tmp_path: Path) -> None:
    (tmp_path / "text.pgm").write_bytes(b"P2\n# made by hand\n3 1\n# white\n9\n1 2\n9\n")
    (tmp_path / "binary.pgm").write_bytes(b"P5 3 1 9\n\x01\x02\x09")
    expected = (np.array([[1, 2, 9]]) / 9).astype(np.float32)
    for name in ("text.pgm", "binary.pgm"):
        np.testing.assert_array_equal(read_grey_image(tmp_path / name), expected)
    (images,) = read_grey_images([tmp_path / "binary.pgm"], (1, 3), 255.0)
    np.testing.assert_allclose(images, expected[None] * 255, rtol=1e-7)


@pytest.mark.parametrize("shape", [(1200, 7), (7, 1200), (3000, 2000), (5, 5), (1, 9)])
def test_resizing_in_parts_equals_the_whole_matrix(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(3).random(shape, np.float32)

    def along(image: np.ndarray, count: int) -> np.ndarray:
        rows = image.shape[0]
        ratio = rows / count
        centres = (np.arange(count) + 0.5) * ratio - 0.5
        weights = np.maximum(0.0, 1 - np.abs(np.arange(rows)[None] - centres[:, None]) / max(ratio, 1.0))
        return weights / weights.sum(1, keepdims=True) @ image

    expected = along(along(image.astype(np.float64), 12).T, 17).T
    np.testing.assert_allclose(resized(image, 12, 17), expected, atol=2e-7)


# -- readers beside pictures -------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are Unix's")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("rows.csv", "a.npy", "a-ubyte"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=r"no regular file"):
        InMemDataset.from_csv(tmp_path / "rows.csv")
    with pytest.raises(DataError, match=r"no regular file"):
        InMemDataset.from_json_rows(tmp_path / "rows.csv")
    with pytest.raises(DataError, match=r"no regular file"):
        list(read_rows(tmp_path / "rows.csv"))
    with pytest.raises(DataError, match=r"no regular file"):
        read_idx(tmp_path / "a-ubyte")
    with pytest.raises(DataError, match=r"no regular file"):
        read_grey_image(tmp_path / "a.npy")


def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "long.csv").open("wb") as file:
        file.write(b"a,b\n1,")
        file.truncate(2 << 30)  # sparse: some bytes on the disk
    for read in (InMemDataset.from_csv, InMemDataset.from_json_rows, lambda path: list(read_rows(path))):
        with pytest.raises(BurnTorchError, match=r"more than 16777216 characters|larger than field limit"):
            read(tmp_path / "long.csv")


def test_a_packed_table_may_not_grow_without_bound(tmp_path: Path) -> None:
    import burn_torch.cli.csv_rows as module

    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1\n" * 100_000))
    assert len(list(read_rows(tmp_path / "a.csv.gz"))) == 100_000
    before = module.MAX_TEXT
    try:
        module.MAX_TEXT = 1 << 16  # type: ignore[misc]  # what it is measured against, made small
        with pytest.raises(DataError, match=r"rows that need more than \d+ bytes in memory\n  .*\n  mend:     unpack"):
            list(read_rows(tmp_path / "a.csv.gz"))
    finally:
        module.MAX_TEXT = before  # type: ignore[misc]


def test_a_label_of_five_thousand_digits_is_no_class(tmp_path: Path) -> None:
    from burn_torch.cli.recipes.text_classification import TextClassificationConfig, TextDataset

    (tmp_path / "train.csv").write_text("1" * 5000 + ",words\n")
    with pytest.raises(DataError, match="this row does not have a class and a text"):
        TextDataset(tmp_path / "train.csv", TextClassificationConfig(classes=("a", "b")))
